"""Pictures in a collection whose embedder reads them: built, added, found by words and by pictures, and shown."""
import json
import os
import pathlib
import shutil
import subprocess

import make_files
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
TEXTS = ROOT / "tests/golden/embedder/bert_cls"
PICTURES = ("wide.png", "tall.png", "plain.png")
TEXT = "The harbour lies at the mouth of the river, and ships of the line have anchored there. " * 3


def run(*arguments, code=0):
    done = subprocess.run([BUILD / "retro-index", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    for name in PICTURES:
        shutil.copy(SEER / name, folder / f"a_{name}")
    (folder / "harbour.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "retro.json"
    path.write_text(json.dumps({"model": {"path": str(SEER)}, "retrieval": {"embedder": str(CLIP)}}))
    return path


@pytest.fixture(scope="module")
def collection(files, config, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "collection"
    done = run("build", "--pictures", "--out", out, "--config", config, files)
    assert "4 documents" in done.stdout, done.stdout
    run("verify", out)
    return out


def search(collection, config, *arguments):
    lines = run("search", "--json", "--config", config, *arguments[:-1], collection, arguments[-1]).stdout
    return [json.loads(line) for line in lines.splitlines()]


def test_found_by_a_picture(collection, config, files):
    for name in PICTURES:
        found = search(collection, config, "-k", "9", "--by-picture", files / f"a_{name}")
        assert found[0]["path"].endswith(f"a_{name}") and found[0]["similarity"] == pytest.approx(1, abs=1e-5)
        assert found[0]["text"] == "a " + name.removesuffix(".png") == found[0]["title"]
        assert any(hit["path"].endswith("harbour.txt") for hit in found)


def test_found_by_words(collection, config):
    found = search(collection, config, "-k", "9", "ships of the line")
    assert {hit["path"].rsplit("/")[-1] for hit in found} == {"harbour.txt", *(f"a_{name}" for name in PICTURES)}
    found = search(collection, config, "-k", "9", "plain")
    assert found[0]["path"].endswith("a_plain.png")


def test_added_and_compacted(collection, config, files, tmp_path):
    """The same answers whether a picture was built, added, or compacted."""
    other = tmp_path / "other"
    run("build", "--no-ocr", "--out", other, "--config", config, files)
    chunks = json.loads(run("stats", "--json", other).stdout)["chunks"]
    assert len(search(other, config, "-k", "9", "harbour")) == chunks > 1
    done = run("add", "--pictures", "--config", config, other, files)
    assert len(done.stdout.splitlines()) == 3, done.stdout + done.stderr
    query = ("-k", "3", "--by-picture", files / "a_wide.png")
    wanted = [(hit["title"], hit["similarity"]) for hit in search(collection, config, *query)]
    got = [(hit["title"], hit["similarity"]) for hit in search(other, config, *query)]
    assert [title for title, _ in got] == [title for title, _ in wanted]
    # The log of changes adds the products of a row in another order than the index.
    assert [similarity for _, similarity in got] == pytest.approx([similarity for _, similarity in wanted], rel=1e-6)
    run("compact", other)
    run("verify", other)
    assert [(hit["title"], hit["similarity"]) for hit in search(other, config, *query)] == wanted


def test_only_where_they_are_asked_for(files, config, tmp_path):
    done = run("build", "--no-ocr", "--out", tmp_path / "texts", "--config", config, files)
    assert "1 documents" in done.stdout and 'of kind ".png"' in done.stderr
    done = run("add", "--no-ocr", "--config", config, tmp_path / "texts", files / "a_wide.png", code=1)
    assert "with --pictures, or without --no-ocr, pictures" in done.stderr


def test_an_embedder_of_texts_refuses_them(files, tmp_path):
    done = run("build", "--pictures", "--out", tmp_path / "c", "--set", f"model.path={SEER}",
               "--set", f"retrieval.embedder={TEXTS}", files, code=2)
    skipped = [line for line in done.stderr.splitlines() if line.startswith("skipped: ")]
    assert "1 documents" in done.stdout and sum("it is a picture, and the embedder" in line for line in skipped) == 3


def test_pages_of_a_pdf(config, tmp_path):
    """Each page is a picture beside the text; a page without text, as of a scan, is one too."""
    (tmp_path / "paper.pdf").write_bytes(make_files.make_pdf(["Page one tells of apples.", "", "Page three of pears."]))
    (tmp_path / "scan.pdf").write_bytes(make_files.make_pdf([""]))
    out = tmp_path / "c"
    done = run("build", "--pictures", "--out", out, "--config", config, tmp_path / "paper.pdf", tmp_path / "scan.pdf")
    assert "5 documents" in done.stdout, done.stdout
    found = search(out, config, "-k", "9", "page three")
    pages = {hit["path"]: hit for hit in found}
    assert {"paper.pdf", "paper.pdf#page=1", "paper.pdf#page=2", "paper.pdf#page=3", "scan.pdf#page=1"} == set(pages)
    assert pages["paper.pdf#page=3"]["page"] == 3 and pages["paper.pdf#page=3"]["text"] == "paper, page 3"
    shown = run("show", out, pages["paper.pdf#page=1"]["id"]).stdout
    assert shown.startswith("data:image/png;base64,") and shown.rstrip().endswith("paper, page 1")


def test_damaged_pictures_are_skipped(config, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    whole = (SEER / "wide.png").read_bytes()
    (files / "cut.png").write_bytes(whole[:200])
    (files / "no.png").write_bytes(b"no picture")
    (files / "whole.png").write_bytes(whole)
    done = run("build", "--pictures", "--out", tmp_path / "c", "--config", config, files, code=2)
    assert "1 documents" in done.stdout and "cut.png" in done.stderr and "no JPEG, PNG" in done.stderr
    run("search", "--by-picture", "--config", config, tmp_path / "c", files / "cut.png", code=1)
