"""Scans within a PDF that needs a password, and files whose readers run out of memory."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import scan_scores  # noqa: E402
from lock_pdf import LockedPdf  # noqa: E402
from test_ocr import drawn, extract, needs_ocr  # noqa: E402


@needs_ocr
def test_scan_in_a_locked_file(tmp_path):
    pixels, text, _ = drawn(dpi=150, n=1, seed=1)
    pdf = LockedPdf("sesame")
    pdf.page(lines=[(72, 700, 11, "The first page of this letter has text.")] * 2)
    pdf.page(pixels)
    path = pdf.write(tmp_path / "locked.pdf")
    said = extract(path)
    assert said.returncode == 1 and "needs a password" in said.stderr
    (tmp_path / "words").write_text("wrong\nsesame\n")
    said = extract(path, "--password-file", tmp_path / "words")
    assert said.returncode == 0 and "lost" not in said.stderr, said.stderr
    read = scan_scores.normal(said.stdout)
    assert "first page of this letter" in read and scan_scores.normal(text)[:60] in read
    (tmp_path / "words").write_text("wrong\n")
    assert "none of those given fits" in extract(path, "--password-file", tmp_path / "words").stderr


@pytest.mark.parametrize("name, head, unit, n", [("line.csv", b"a,b\n", b"word,", 12 << 20), ("line.jsonl", b'{"text": [1', b",1", 30 << 20)])
def test_memory_is_named(tmp_path, name, head, unit, n):
    (tmp_path / name).write_bytes(head + unit * n + (b"\n" if name.endswith("csv") else b"]}\n"))
    said = extract(tmp_path / name, "--max-file-bytes", str(1 << 28), "--max-file-seconds", "300")
    assert said.returncode != 0
    reason = "needs more than 1024 MiB of memory, which is the limit; split it into smaller files" if name.endswith("csv") else "needs more memory than there is"
    assert reason in said.stderr, said.stderr[:1000]
