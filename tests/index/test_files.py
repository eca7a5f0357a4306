"""Every kind of file: what is kept of it, and hostile ones, which are skipped with a reason and harm nothing."""

import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import pytest

import make_files
from test_retro_index import INDEX, ROOT, build, run

sys.path.insert(0, str(ROOT / "tools"))
from retro_train.neighbours import read_document_names  # noqa: E402


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make_files.write(tmp_path_factory.mktemp("good"), make_files.good())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return make_files.write(tmp_path_factory.mktemp("hostile"), make_files.hostile())


def extract(path, *options, env=None):
    return subprocess.run([INDEX, "extract", *options, path], capture_output=True, text=True, timeout=120, env=env)


TEXTS = {
    "book.docx": "Ovens\nHeat the oven to 200 degrees.\nSafety\nWear gloves & goggles.\nBread | 40 minutes\nPie | 40 minutes: 50 minutes\n"
                 "Cleaning\nUse soap.\n",
    "book.odt": "Gardens\nWater  the roses daily.\nTools\nA spade,\ta rake.\n",
    "talk.pptx": "Plan\nSell more.\nResults\nSales doubled.\n",
    "whales.epub": "Loomings\n\nCall me Ishmael.\n\nThe Spouter-Inn\n\nA wide, low entry.\n",
    "paper.pdf": "Page one tells of apples.\n\nPage three tells of pears.\n",
    "prices.csv": '==> #2 <==\nname: Bread\nprice: 3,20\nnote: a "dark" loaf\nwith seeds\n==> #4 <==\nname: Pie\n'
                  "price: 4,10\n==> #6 <==\nname: Cake\nnote: sweet\n",
    "table.tsv": "==> #2 <==\na: 1\nb: 2\n",
    "records.jsonl": "==> #1 <==\nThe first record.\n==> #4 <==\ncity: Oslo\npeople: 709000\ntags: north\ntags: sea\n",
    "letter.eml": "Subject: Kafötrinken at noon\nFrom: Jörg Müller <j@example.org>\nTo: all@example.org\n"
                  "Date: Mon, 1 Jan 2024 10:00:00 +0000\n\nПривет, a soft break.==> !/a.txt <==\nattached"
                  "==> !/naïve plan.csv#2 <==\nk: x\nv: 1\n==> !/3/a.txt <==\nПривет again"
                  "==> !/attachment-5.eml <==\nSubject: Inner\n\nforwarded==> !/attachment-5.eml!/deep.md <==\n# Deep mail",
    "box.mbox": "==> #1 <==\nSubject: First\n\nHello there.\n\nThey went. >From here.\n\n==> #8 <==\nSubject: Second\n\nHi\n\ngreetings\n",
    "all.tar.gz": "==> !/docs/page.html <==\nTarred\n\nfeathered\n",
    "all.zip": "==> !/notes/a.md <==\n# Notes\n\nalpha beta\n==> !/b.txt <==\ngamma delta\n==> !/inner.zip!/deep.md <==\n"
               "# Deep\n\nburied treasure\n==> !/sheet.csv#2 <==\nk: x\nv: 1\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(good, name):
    done = extract(good / name)
    assert done.stdout == TEXTS[name], done.stderr
    assert done.returncode == (2 if name in ("all.zip", "records.jsonl", "letter.eml") else 0)


def test_skipped_within(good):
    skipped = extract(good / "all.zip").stderr
    for words in ("all.zip!/../../escape.txt: its name leads out", "all.zip!/empty.txt: empty",
                  "all.zip: 1 of its files are of no known kind, the first is picture.png"):
        assert words in skipped
    assert "hidden" not in skipped and len(skipped.splitlines()) == 3
    assert "records.jsonl#3: record:1:2: not JSON" in extract(good / "records.jsonl").stderr
    assert extract(good / "letter.eml").stderr.splitlines()[-1].endswith(
        "letter.eml: 1 of its attachments are of no known kind, the first is photo.png")


def test_records_as_programs_write_them(tmp_path):
    (tmp_path / "excel.csv").write_bytes(b"sep=;\r\nboat;price\r\nKayak;1,50\r\n")
    (tmp_path / "said.csv").write_bytes(b"sep=,b\n1,2\n")
    (tmp_path / "nested.jsonl").write_text('{"name": "Kayak", "hire": {"days": [1, 2, {"free": true}], "by": {"town": "Oakhurst"}}, "none": null}\n'
                                           + '{"deep": ' * 30 + '"too deep"' + "}" * 30 + "\n" + '{"a": "b"}\n')
    assert extract(tmp_path / "excel.csv").stdout == "==> #3 <==\nboat: Kayak\nprice: 1,50\n"
    assert extract(tmp_path / "said.csv").stdout == "==> #2 <==\nsep=: 1\nb: 2\n"
    done = extract(tmp_path / "nested.jsonl")
    assert done.stdout == ("==> #1 <==\nname: Kayak\nhire.days: 1\nhire.days: 2\nhire.days.free: true\nhire.by.town: Oakhurst\n"
                           "==> #3 <==\na: b\n"), done


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_of_members(tmp_path, locale):
    """In letters of any script, as archives of today note them, and in bytes of old ones."""
    names = ["caf\u00e9/\u65e5\u672c.txt", "Stra\u00dfe.md", "plain.txt"]
    with zipfile.ZipFile(tmp_path / "names.zip", "w") as archive:
        for name in names:
            archive.writestr(name, f"words of {name}")
    with tarfile.open(tmp_path / "names.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            data = f"words of {name}".encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    for archive in ("names.zip", "names.tar"):
        done = extract(tmp_path / archive, env={"LC_ALL": locale, "PATH": os.environ["PATH"]})
        assert done.returncode == 0 and done.stdout == "".join(f"==> !/{name} <==\nwords of {name}" for name in names), done
    old = (tmp_path / "names.zip").read_bytes().replace("Stra\u00dfe.md".encode(), b"Stra\xe1\xe1e.md")
    (tmp_path / "old.zip").write_bytes(old)
    done = extract(tmp_path / "old.zip")
    assert "words of Stra\u00dfe.md" in done.stdout or "a name that cannot be read" in done.stderr, done


def test_one_name_twice(tmp_path):
    """Ids are made of names: the first file of a name is read, the other one is named, and the rest is there."""
    with tarfile.open(tmp_path / "twice.tar", "w") as archive:
        for name, text in (("a.txt", b"first"), ("a.txt", b"second"), ("b.txt", b"third")):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    done = build(tmp_path / "c", tmp_path / "twice.tar")
    assert done.returncode == 2 and "2 documents" in done.stdout, done.stderr
    assert "twice.tar!/a.txt: another file in the archive has this name" in done.stderr
    assert extract(tmp_path / "twice.tar").stdout == "==> !/a.txt <==\nfirst==> !/b.txt <==\nthird"


PLACES = [("gloves and goggles", "book.docx", "page 2, Ovens > Safety", "The handbook"),
          ("watering roses", "book.odt", "page 1, Gardens", "Garden book"),
          ("sales doubled", "talk.pptx", "page 1, Plan", "Talk"),
          ("Ishmael", "whales.epub", "Loomings", "Whales"),
          ("apples", "paper.pdf", "page 1", None), ("pie price", "prices.csv#4", "line 4", "Pie"),
          ("cake", "prices.csv#6", "line 6", "Cake"), ("Oslo", "records.jsonl#4", "line 4", None),
          ("treasure", "all.zip!/inner.zip!/deep.md", "line 1, Deep", "Deep"),
          ("mail in a mail", "letter.eml!/attachment-5.eml!/deep.md", "line 1, Deep mail", "Deep mail")]


def test_places(good, tmp_path):
    """A collection of all of them, whose chunks know page, line and headings, before and after a compaction."""
    out = tmp_path / "collection"
    done = build(out, good, "--chunk-length", 8)
    assert done.returncode == 2 and "skipped" in done.stdout, done.stderr
    (tmp_path / "more.pdf").write_bytes(make_files.make_pdf(["Added of ants.", "Added of bees."]))
    assert run("add", out, tmp_path / "more.pdf").stdout == "added more.pdf\n"
    names = read_document_names(out / "gen-000001/documents")
    assert {path for _, path, _, _ in PLACES} <= {name.removeprefix("good0/") for name in names} and len(set(names)) == 24
    for step in range(2):
        found = run("search", out, "apples", "-k", 1000).stdout
        seen = set(re.findall(r"^\d+  \S+  (?:good0/)?(\S+)  \[\d+, \d+\)(?: \((.*?)\))?(?:  (.*))?$", found, re.M))
        for _, path, place, title in PLACES:
            assert (path, place, title or "") in seen, seen
        assert {("more.pdf", "page 1", ""), ("more.pdf", "page 2", "")} <= seen
        assert ("book.docx", "page 3, Cleaning", "The handbook") in seen
        assert run("compact" if step == 0 else "verify", out).returncode == 0


REASONS = {"bomb.docx": "more than 1048576 bytes", "nested.zip": "more than 3 deep", "laughs.docx": "damaged",
           "deep.docx": "damaged", "cut.docx": "damaged", "text.docx": "damaged", "empty.docx": "no text in it",
           "missing.odt": "it has no content.xml", "outside.odt": "declares a document type", "scan.pdf": "nothing is on its pages",
           "text.pdf": "it is no PDF, or damaged", "cut.pdf": "it is no PDF, or damaged", "binary.csv": "a NUL at byte 6",
           "cut.tar.gz": "damaged", "spine.epub": "damaged", "bomb.zip": "0.txt: more than 1048576 bytes"}


@pytest.mark.parametrize("name", REASONS)
def test_hostile(hostile, name):
    done = extract(hostile / name, "--max-file-bytes", "1048576")
    assert done.returncode in (1, 2) and REASONS[name] in done.stderr
    assert "root:" not in done.stdout and len(done.stdout) < 1 << 20


def test_hostile_beside_good(hostile, good, tmp_path):
    """One bad file does not keep the others out, and each is named with its reason."""
    done = build(tmp_path / "c", hostile, good / "paper.pdf", "--max-file-bytes", 1048576)
    assert done.returncode == 2 and "1 documents" in done.stdout, done.stderr
    for name, reason in REASONS.items():
        assert re.search(rf"skipped: .*{re.escape(name)}.*", done.stderr) and reason in done.stderr


@pytest.fixture
def man(tmp_path):
    """A man page, which a program reads."""
    page = tmp_path / "sieve.1"
    page.write_text(".TH SIEVE 1\n.SH NAME\nsieve \\- strain quinoa\n")
    return page


@pytest.fixture
def fake():
    """An environment whose mandoc is a script, in a folder that everybody reads: a parser of root's is nobody."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)

        def make(script):
            program = pathlib.Path(folder) / "mandoc"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

        yield make


@pytest.mark.parametrize("script, reason", [
    ("while :; do :; done", "takes over 1 seconds"),
    ("exec sleep 1000", "takes over 1 seconds"),
    ("while :; do echo text; done", "more text than the limit of 100000"),
    ("exit 5", "exit code 5"),
    ("exit 0", "not a man page")])
def test_program_that_misbehaves(man, fake, script, reason):
    began = time.monotonic()
    done = extract(man, "--max-file-seconds", "1", "--max-file-bytes", "100000", env=fake(script))
    assert done.returncode == 1 and reason in done.stderr and time.monotonic() - began < 60


def test_program_is_shut_in(man, fake, tmp_path):
    """A parser that was taken over opens no file to write, starts no program and has no descriptor but its own."""
    mark = tmp_path / "mark"
    script = (f"echo 'HEAD(1)  Title  HEAD(1)'; echo; echo x > {mark}; echo wrote $?; for f in 3 4 5 6 7 8 9; do {{ true <&$f; }} 2>/dev/null && echo open $f; done; "
              "echo alive; echo; echo foot; (echo sub); echo sub $?")
    done = extract(man, env=fake(script))
    assert not mark.exists() and "wrote 0" not in done.stdout and "sub\n" not in done.stdout
    assert not re.search(r"open \d", done.stdout) and "alive" in done.stdout, done.stderr


def test_program_that_is_missing(man, tmp_path):
    (tmp_path / "bin").mkdir()
    done = extract(man, env={**os.environ, "PATH": str(tmp_path / "bin")})
    assert done.returncode == 1 and "install the package mandoc" in done.stderr


def test_dry_run(good, tmp_path):
    """Everything is read and listed, without a model, an embedder or a collection."""
    (tmp_path / "a\nname.txt").write_text("text\n")
    done = run("build", "--dry-run", good, tmp_path)
    assert done.returncode == 2 and not list(tmp_path.glob("*/CURRENT"))
    lines = done.stdout.splitlines()
    assert "      133  good0/book.docx  The handbook" in lines and "        5  all.zip" not in done.stdout
    assert any(line.endswith("all.zip!/inner.zip!/deep.md  Deep") for line in lines)
    assert any("a\\nname.txt" in line for line in lines)
    assert re.fullmatch(r"\d+ documents, \d+ bytes of text, 5 skipped; nothing was written", lines[-1]), done.stderr
    assert int(lines[-1].split()[0]) == len(lines) - 1
    done = run("add", "--dry-run", tmp_path / "none", good / "paper.pdf")
    assert done.returncode == 0 and "paper.pdf" in done.stdout and not (tmp_path / "none").exists()


def test_threads_change_nothing(good, hostile, tmp_path):
    """Files are read at the same time and added in their order: the same collection, ids and messages."""
    (tmp_path / "docs").mkdir()
    for i in range(20):
        (tmp_path / f"docs/{i}.{'html' if i % 3 else 'txt'}").write_text(f"<p>Page {i} is about {i * i}.</p>\n" * (40 if i == 4 else 1))
    some = [hostile / name for name in sorted(REASONS) if "bomb" not in name and name != "deep.docx"]
    seen = []
    for threads in (1, 5):
        out = tmp_path / f"c{threads}"
        done = build(out, good, *some, tmp_path / "docs", "--threads", threads, "--max-file-bytes", 1 << 20, "--index", "Exact")
        assert done.returncode == 2, done.stderr
        files = {f.relative_to(out): f.read_bytes() for f in sorted(out.rglob("*")) if f.is_file() and f.parent.name != "scans"}
        said = [re.sub("(its parser ended|takes over).*", "", line) for line in done.stderr.splitlines() if line.startswith(("skipped", "note"))]
        seen.append((files, said))
        added = run("add", out, good / "all.zip", tmp_path / "docs", "--threads", threads).stdout
        seen[-1] += (added,)
    assert len(seen[0][0]) > 5 and len(seen[0][1]) > 15 and seen[0] == seen[1]


def name_and_parent(process):
    try:
        name, _, rest = pathlib.Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return "", 0
    return name, int(rest.split()[1])


def is_parser_of(process, program):
    """Whether it is a mandoc that the program's keeper began."""
    name, keeper = name_and_parent(process)
    return name == "mandoc" and name_and_parent(keeper)[1] == program


def test_interrupted_while_a_parser_hangs(man, fake, tmp_path):
    """Ctrl-C does not wait for what is read ahead."""
    for i in range(4):
        (tmp_path / f"{i}.1").write_bytes(man.read_bytes())
    process = subprocess.Popen([INDEX, "build", "--dry-run", "--threads", "3", tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=fake("while :; do :; done"))
    end = time.monotonic() + 60
    while not any(is_parser_of(folder.name, process.pid) for folder in pathlib.Path("/proc").glob("[0-9]*")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=50)
    assert process.returncode == 130 and time.monotonic() - began < 40, errors
