"""retro-index reread: what would be read differently now is read again, and nothing else."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reading"))
import scan_files  # noqa: E402
import scans  # noqa: E402
import workbooks  # noqa: E402
from test_ocr import needs_ocr  # noqa: E402

INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]


def run(*arguments, code=0):
    done = subprocess.run([INDEX, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def reread(out, *options, code=0):
    """The lines of changes, and the summary."""
    lines = [json.loads(line) for line in run("reread", "--json", out, *options, code=code).stdout.splitlines()]
    return lines[:-1], lines[-1]


def show(out, name):
    return json.loads(run("show", "--json", out, name).stdout)


@pytest.fixture()
def folder(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("The ferry leaves the harbour at noon.\n")
    (folder / "rows.csv").write_text("boat,price\nKayak,290\nCanoe,310\n")
    (folder / "book.xlsx").write_bytes(workbooks.Xlsx([
        {"name": "Shown", "rows": [["boat", "price"], ["Kayak", 290], ["Canoe", 310]]},
        {"name": "Away", "rows": [["boat", "secret"], ["Dinghy", 77], ["Raft", 12]], "hidden": True}]).write())
    return folder


def test_hidden_sheets(folder, tmp_path):
    out = tmp_path / "collection"
    run("build", "--out", out, *MODEL, folder)
    assert "Dinghy" not in run("show", out, "docs/book.xlsx").stdout
    changes, told = reread(out)
    assert changes == [] and told["files"] == 0 and told["current"] == 4
    assert "book.xlsx: its hidden sheets were left out" in run("reread", "--dry-run", "--hidden-sheets", out).stdout
    assert "Dinghy" not in run("show", out, "docs/book.xlsx").stdout
    changes, told = reread(out, "--hidden-sheets")
    assert [(change["effect"], change["path"]) for change in changes] == [("replaced", "docs/book.xlsx")]
    assert told["hidden_sheets"] == 1 and told["current"] == 3
    assert "Dinghy | secret: 77" in run("show", out, "docs/book.xlsx").stdout
    changes, told = reread(out, "--hidden-sheets")
    assert changes == [] and told["files"] == 0


@pytest.mark.parametrize("way", ["path", "base", "id"])
def test_ids_names_and_metadata_stay(folder, tmp_path, way):
    out = tmp_path / "collection"
    run("build", "--out", out, *MODEL, folder / "a.txt")
    options = {"path": [], "base": ["--base", folder], "id": ["--id", "ticket-7"]}[way]
    run("add", "--meta", "team=ops", *options, out, folder / "book.xlsx")
    name = json.loads(run("list", "--json", out, "book").stdout)["path"]
    before = show(out, name)
    reread(out, "--hidden-sheets")
    after = show(out, name)
    assert "Dinghy" in run("show", out, name).stdout
    for key in ("id", "path", "metadata"):
        assert before[key] == after[key]
    assert after["metadata"] == {"team": "ops"}
    assert len(run("list", out).stdout.splitlines()) == 2


def test_files_that_are_gone_keep_their_documents(folder, tmp_path):
    out = tmp_path / "collection"
    run("build", "--out", out, *MODEL, folder)
    (folder / "book.xlsx").unlink()
    done = run("reread", "--hidden-sheets", out, code=2)
    assert "book.xlsx: it is not there" in done.stderr
    assert "Kayak" in run("show", out, "docs/book.xlsx").stdout


def test_parts_of_an_archive(folder, tmp_path):
    import zipfile
    out = tmp_path / "collection"
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.write(folder / "book.xlsx", "book.xlsx")
        archive.writestr("old.txt", "A note that will be gone.")
    run("build", "--out", out, *MODEL, folder / "all.zip")
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.write(folder / "book.xlsx", "book.xlsx")
        archive.writestr("new.txt", "A note that is new.")
    changes, _ = reread(out, "--hidden-sheets")
    assert {(change["effect"], change["path"]) for change in changes} == {
        ("replaced", "all.zip!/book.xlsx"), ("added", "all.zip!/new.txt"), ("deleted", "all.zip!/old.txt")}


@needs_ocr
def test_ocr_that_came_later(folder, tmp_path):
    out = tmp_path / "collection"
    pdf = scan_files.Pdf()
    pdf.page(lines=[(72, 700, 11, "The first page has text that can be read.")] * 2)
    pixels, _, _ = scans.draw_page(dpi=200, n=1, seed=1)
    pdf.page(pixels)
    pdf.write(folder / "two.pdf")
    done = run("build", "--no-ocr", "--out", out, *MODEL, folder)
    assert "page 2: a picture without text; OCR is off" in done.stderr
    changes, told = reread(out, "--no-ocr")
    assert changes == [] and told["files"] == 0, "without OCR nothing is read differently"
    changes, told = reread(out)
    assert [change["path"] for change in changes] == ["docs/two.pdf"] and told["ocr"] == 1
    assert len(run("show", out, "docs/two.pdf").stdout) > 150
    changes, told = reread(out)
    assert changes == [] and told["ocr"] == 0


def without_library(*command):
    """Runs it where OCR's library is no library, while its models are there."""
    library = pathlib.Path("/usr/lib") / os.uname().machine / "libtesseract.so.5"
    found = [line.split("=> ")[1] for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines()
             if "libtesseract.so.5 " in line] or [str(library)]
    hide = "for i; do case $i in --) shift; break;; esac; mount --bind /dev/null $i || exit 99; shift; done; exec \"$@\""
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", *{str(pathlib.Path(one).resolve()) for one in found}, "--", *map(str, command)],
                          capture_output=True, text=True, timeout=300)
    if done.returncode in (99, 127) or "unshare" in done.stderr:
        pytest.skip("files cannot be hidden here")
    return done


@needs_ocr
def test_library_of_ocr_that_came_later(folder, tmp_path):
    out = tmp_path / "collection"
    pdf = scan_files.Pdf()
    pdf.page(lines=[(72, 700, 11, "The first page has text that can be read.")] * 2)
    pdf.page(scans.draw_page(dpi=200, n=1, seed=1)[0])
    pdf.write(folder / "two.pdf")
    done = without_library(INDEX, "build", "--out", out, *MODEL, folder)
    assert done.returncode == 0 and "OCR is not installed: package tesseract-ocr" in done.stderr, done.stderr
    done = without_library(INDEX, "reread", "--json", out)
    assert json.loads(done.stdout.splitlines()[-1])["files"] == 0, "what is missing still reads nothing"
    changes, told = reread(out)
    assert [change["path"] for change in changes] == ["docs/two.pdf"] and told["ocr"] == 1
    assert reread(out)[1]["files"] == 0
    done = without_library(INDEX, "reread", "--json", out)
    assert json.loads(done.stdout.splitlines()[-1])["files"] == 0, "what OCR read stays"


@needs_ocr
def test_confidence(folder, tmp_path):
    """Hits say how sure OCR was of their page, and unsure ones can be left out."""
    out = tmp_path / "collection"
    clean, text, _ = scans.draw_page(dpi=200, n=1, seed=1)
    spoiled = scans.salt(scans.draw_page(dpi=100, n=1, seed=1)[0], 0.1)
    scans.write(scans.Scan("clean", "", clean, "", 200, "png"), folder)
    scans.write(scans.Scan("spoiled", "", spoiled, "", 100, "png"), folder)
    done = subprocess.run([INDEX, "build", "--out", out, *MODEL, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 2), done.stderr
    hits = [json.loads(line) for line in run("search", "--json", "-k", "20", out, text[:60]).stdout.splitlines()]
    sure = {hit["path"]: hit.get("confidence") for hit in hits}
    assert sure["docs/a.txt"] is None and 60 < sure["docs/clean.png"] <= 100
    kept = [json.loads(line) for line in run("search", "--json", "-k", "20", "--min-confidence", sure["docs/clean.png"], out, text[:60]).stdout.splitlines()]
    left = [json.loads(line) for line in run("search", "--json", "-k", "20", "--min-confidence", sure["docs/clean.png"] + 1, out, text[:60]).stdout.splitlines()]
    assert "docs/clean.png" in {hit["path"] for hit in kept}
    assert {hit["path"] for hit in left} & {"docs/clean.png", "docs/spoiled.png"} == set()
    assert "docs/a.txt" in {hit["path"] for hit in left}
    assert f"OCR {sure['docs/clean.png']} % sure" in run("search", out, text[:60]).stdout


def test_refusals(tmp_path):
    assert "not a collection" in run("reread", tmp_path / "none", code=1).stderr
    assert "reread DIR" in run("reread", code=1).stderr
