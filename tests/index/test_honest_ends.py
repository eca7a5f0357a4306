"""Files without an extension, packed ones, encrypted ones, and what a build says at its end of those that it could not read."""
import gzip
import json
import pathlib
import sys

from test_changes import MODEL, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reading"))
from lock_pdf import Lock  # noqa: E402


def extract(path, *options, code=0):
    return run("extract", *options, path, code=code)


def test_files_without_an_extension(tmp_path):
    for name, text in (("Dockerfile", "FROM debian:12\nRUN apt-get update\n"), ("Makefile", "all:\n\tcc a.c\n"), ("README", "A program that counts.\n")):
        (tmp_path / name).write_text(text)
        assert extract(tmp_path / name).stdout == text
    (tmp_path / "page").write_text("<!DOCTYPE html><html><head><title>T</title></head><body><p>Tea.</p></body></html>")
    assert extract(tmp_path / "page").stdout.strip() == "Tea."
    (tmp_path / "core").write_bytes(b"\x7fELF\0\1\2" * 100)
    assert "no extension" in extract(tmp_path / "core", code=1).stderr
    done = run("build", "--dry-run", *MODEL, tmp_path)
    assert "4 documents" in done.stdout and 'not read: 1 file of kind "no extension"' in done.stderr


def test_packed_files(tmp_path):
    (tmp_path / "a.md.gz").write_bytes(gzip.compress(b"# Tea\n\nSteep it.\n"))
    assert extract(tmp_path / "a.md.gz").stdout == "# Tea\n\nSteep it.\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"name,size\nx,1\ny,2\n"))
    assert "name" in extract(tmp_path / "t.csv.gz").stdout
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(b"x" * (8 << 20)))
    assert "more than 1000000 bytes" in extract(tmp_path / "bomb.txt.gz", "--max-file-bytes", "1000000", code=1).stderr
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"A text that is cut off. " * 1000)[:-20])
    extract(tmp_path / "cut.txt.gz", code=1)


def locked_pdf(password, text):
    """A page of text."""
    lock = Lock(password)
    stream = lock.lock(4, f"BT /F 12 Tf 20 40 Td ({text}) Tj ET".encode())
    return (b"%%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
            b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1"
            b"/BaseFont/Helvetica>>>>>>>>endobj\n4 0 obj<</Length %d>>stream\n%s\nendstream endobj\n5 0 obj%sendobj\n"
            b"trailer<</Root 1 0 R/Size 6%s>>\n%%%%EOF\n" % (len(stream), stream, lock.entry(), lock.trailer(5)))


def test_password_file(tmp_path):
    locked = tmp_path / "locked.pdf"
    locked.write_bytes(locked_pdf("sesame", "The safe is behind the picture"))
    said = extract(locked, code=1).stderr
    assert "needs a password" in said and "--password-file" in said
    words = tmp_path / "passwords"
    words.write_text("wrong\n")
    assert "none of those given fits" in extract(locked, "--password-file", words, code=1).stderr
    words.write_text("wrong\nsesame\n")
    assert "behind the picture" in extract(locked, "--password-file", words).stdout
    assert "--password-file" in extract(locked, "--password-file", tmp_path / "none", code=1).stderr


def test_the_end_says_what_was_not_read(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("A good one.\n")
    for i in range(5):
        (docs / f"empty{i}.md").write_text("")
    (docs / "binary.txt").write_bytes(b"a\0b")
    done = run("build", "--out", tmp_path / "out", *MODEL, docs, code=2)
    assert "not read: 5 files: empty (" in done.stderr and ", ...)" in done.stderr
    assert "not read: 1 file: binary: a NUL at byte 1" in done.stderr and done.stderr.rstrip().endswith("6 skipped in all; the exit code of retro-index is 2 then")
    assert json.loads(run("build", "--json", "--out", tmp_path / "out2", *MODEL, docs, code=2).stdout)["skipped"] == 6
