"""Fonts that do not say which letters they draw, or say others: such pages are read by OCR, and good ones are not."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import fonts  # noqa: E402
import scan_scores  # noqa: E402
import scan_texts  # noqa: E402
from test_ocr import extract, needs_ocr  # noqa: E402

TEXT = " ".join(scan_texts.ENGLISH[:3])[:1500].rpartition(" ")[0]


def made(tmp_path, change=lambda text: text, text=TEXT):
    path = tmp_path / "page.pdf"
    path.write_bytes(fonts.spoil(fonts.page_of(text, path), change))
    return path


@needs_ocr
@pytest.mark.parametrize("kind", [*fonts.KINDS, "none"])
def test_spoiled_fonts_are_read_by_ocr(tmp_path, kind):
    path = made(tmp_path, fonts.KINDS.get(kind))
    plain = extract(path, "--no-ocr")
    done = extract(path)
    assert done.returncode == 0, done.stderr
    assert scan_scores.error_rate(done.stdout, TEXT) < 0.02, (plain.stdout[:200], done.stdout[:200])


@needs_ocr
def test_letters_that_are_nearly_as_frequent(tmp_path):
    """Letters of German that were exchanged by ROT13 are half of them frequent ones."""
    text = " ".join(scan_texts.GERMAN[:3])[:1500].rpartition(" ")[0]
    done = extract(made(tmp_path, fonts.turn, text))
    assert scan_scores.error_rate(done.stdout, text) < 0.02, done


@needs_ocr
@pytest.mark.parametrize("text", [TEXT, " ".join(scan_texts.GERMAN[:3])[:1500], " ".join(scan_texts.POLISH[:3])[:1500], "0f3c 9ab7 deadbeef " * 60, "48291 77310 5024 " * 60])
def test_good_fonts_are_believed(tmp_path, text):
    """Without OCR's languages too: what stands in the file is kept letter by letter."""
    path = made(tmp_path, text=text)
    with_ocr, without = extract(path, "--ocr-languages", "eng"), extract(path, "--no-ocr")
    assert with_ocr.stdout == without.stdout and with_ocr.stderr == ""
    assert scan_scores.error_rate(without.stdout, text) < 0.001
