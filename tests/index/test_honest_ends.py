"""Files without an extension, packed ones, encrypted ones, and what a build says at its end of those that it could not read."""
import gzip
import json
import shutil
import subprocess

import pytest

from test_changes import MODEL, run


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
    assert "limit" in extract(tmp_path / "bomb.txt.gz", "--max-file-bytes", "1000000", code=1).stderr
    nested = b"x is a text\n"
    for _ in range(6):
        nested = gzip.compress(nested)
    (tmp_path / "deep.txt.gz").write_bytes(nested)
    extract(tmp_path / "deep.txt.gz", code=1)
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"A text that is cut off. " * 1000)[:-20])
    extract(tmp_path / "cut.txt.gz", code=1)


@pytest.mark.skipif(shutil.which("qpdf") is None, reason="qpdf encrypts the file")
def test_password_file(tmp_path):
    plain = tmp_path / "plain.pdf"
    stream = b"BT /F 12 Tf 20 40 Td (The safe is behind the picture) Tj ET"
    plain.write_bytes(b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
                      b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1"
                      b"/BaseFont/Helvetica>>>>>>>>endobj\n4 0 obj<</Length %d>>stream\n%s\nendstream endobj\ntrailer<</Root 1 0 R/Size 5>>\n%%%%EOF\n"
                      % (len(stream), stream))
    locked = tmp_path / "locked.pdf"
    subprocess.run(["qpdf", "--encrypt", "sesame", "owner", "256", "--", plain, locked], capture_output=True)
    assert locked.exists()
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
    assert "not read: 1 file: binary: a NUL at byte 1" in done.stderr and done.stderr.rstrip().endswith("6 skipped in all, which exit code 2 says")
    assert json.loads(run("build", "--json", "--out", tmp_path / "out2", *MODEL, docs, code=2).stdout)["skipped"] == 6
