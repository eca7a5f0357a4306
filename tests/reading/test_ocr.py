"""Scans, photographs of text, and pages of PDF that are pictures: what `retro-index extract` reads of them."""
import ctypes.util
import os
import pathlib
import re
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import scan_files  # noqa: E402
import scan_scores  # noqa: E402
import scan_texts  # noqa: E402
import scans  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
MODELS = pathlib.Path("/usr/share/tesseract-ocr/5/tessdata")
HAVE = {path.stem for path in MODELS.glob("*.traineddata")} if ctypes.util.find_library("tesseract") else set()
needs_ocr = pytest.mark.skipif("eng" not in HAVE, reason="needs the packages libtesseract5 and tesseract-ocr-eng")


def extract(path, *options, timeout=300):
    return subprocess.run([INDEX, "extract", *options, path], capture_output=True, text=True, timeout=timeout)


def drawn(dpi=200, **page):
    return scans.draw_page(dpi=dpi, **page)


def store(folder, name, pixels, kind="png", dpi=200):
    return scans.write(scans.Scan(name, "", pixels, "", dpi, kind), folder)


def error_of(path, text, *options):
    done = extract(path, *options)
    assert done.returncode == 0, done.stderr
    return scan_scores.error_rate(done.stdout, text)


@needs_ocr
@pytest.mark.parametrize("name, spoil, most", [
    ("plain", lambda p: p, 0.01),
    ("askew", lambda p: scans.rotate(p, 3.5), 0.03),
    ("far-askew", lambda p: scans.rotate(p, -8), 0.03),
    ("noisy", lambda p: scans.salt(p, 0.06), 0.1),
    ("grainy", lambda p: scans.grain(p, 40), 0.1),
    ("side", lambda p: scans.turn(p, 1), 0.01),
    ("head", lambda p: scans.turn(p, 2), 0.01),
    ("other-side", lambda p: scans.turn(p, 3), 0.01),
    ("dark", lambda p: scans.shade(p, 0.3), 0.02),
    ("white-on-black", lambda p: 255 - p, 0.02),
])
def test_spoiled(tmp_path, name, spoil, most):
    pixels, text, _ = drawn(n=3, seed=len(name))
    assert error_of(store(tmp_path, name, spoil(pixels)), text) <= most


def exif(orientation, order="<"):
    entry = struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0)
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 1) + entry + bytes(4)


def with_exif(path, tiff):
    """The file with its camera's note, before everything else."""
    whole = path.read_bytes()
    if path.suffix == ".jpg":
        note = b"Exif\0\0" + tiff
        path.write_bytes(whole[:2] + b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note + whole[2:])
    else:
        path.write_bytes(whole[:33] + scan_files.chunk(b"eXIf", tiff) + whole[33:])
    return path


@needs_ocr
@pytest.mark.parametrize("orientation, stored, kind", [
    (2, lambda p: p[:, ::-1], "jpg"),
    (4, lambda p: p[::-1], "png"),
    (5, lambda p: p.T, "jpg"),
    (6, lambda p: np.rot90(p, 1), "jpg"),
    (7, lambda p: p[::-1, ::-1].T, "png"),
])
def test_turned_as_the_camera_says(tmp_path, orientation, stored, kind):
    """A viewer shows such a picture turned or mirrored back, and so it is read."""
    pixels, text, _ = drawn(n=2, seed=orientation)
    path = store(tmp_path, "photograph", np.ascontiguousarray(stored(pixels)), kind)
    order = "<" if kind == "jpg" else ">"
    assert error_of(with_exif(path, exif(orientation, order)), text) <= 0.01


@needs_ocr
@pytest.mark.parametrize("note", [b"", b"II", exif(6)[:9], exif(9), b"II*\0" + b"\xff" * 40])
def test_notes_of_cameras_that_lie(tmp_path, note):
    pixels, text, _ = drawn(n=1, seed=1)
    assert error_of(with_exif(store(tmp_path, "photograph", pixels, "jpg"), note), text) <= 0.01


@needs_ocr
@pytest.mark.parametrize("language", ["deu", "fra", "pol"])
def test_languages(tmp_path, language):
    if language not in HAVE:
        pytest.skip(f"needs the package tesseract-ocr-{language}")
    pixels, text, _ = drawn(language=language, n=3, dpi=300)
    path = store(tmp_path, language, pixels, dpi=300)
    assert error_of(path, text) <= 0.01, "found by itself"
    assert error_of(path, text, "--ocr-languages", f"eng+{language}") <= 0.01
    assert error_of(path, text, "--ocr-languages", "eng") > 0.005, "English has none of its letters"


@needs_ocr
def test_table(tmp_path):
    for which in range(3):
        pixels, cells = scans.draw_table(which)
        done = extract(store(tmp_path, "table", pixels, dpi=300))
        found = scan_scores.cells_found(done.stdout, cells)
        assert len(found) >= len(cells) - 1, done.stdout


@needs_ocr
def test_pages_of_tiff(tmp_path):
    first, second = drawn(n=1, seed=1), drawn(n=1, seed=4)
    blank = np.full_like(first[0], 255)
    path = scan_files.tiff(tmp_path / "three.tif", [first[0], blank, second[0]])
    done = extract(path)
    assert scan_scores.error_rate(done.stdout, first[1] + "\n" + second[1]) <= 0.01
    assert "page 2: OCR finds no text in its picture" in done.stderr


@needs_ocr
def test_mixed_pdf(tmp_path):
    """Text, a scan, a stamped scan, a scan with a good layer, one with another page's layer, and a blank page."""
    texts = [scan_texts.ENGLISH[i] for i in range(8)]
    pdf = scan_files.Pdf()
    pdf.page(lines=[(72, 700 - 14 * i, 11, line) for i, line in enumerate(re.findall(r".{1,80}(?: |$)", texts[0]))])
    scanned, _, _ = drawn(n=1, seed=1)
    pdf.page(scanned)
    stamped, _, _ = drawn(n=1, seed=2)
    pdf.page(stamped, lines=[(40, 20, 8, "BATES 000417")])
    layered, _, words = drawn(n=2, seed=3)
    marked = [("Oxbow" if word == "Bread" else word, *box) for word, *box in words]
    pdf.page(layered, lines=scan_files.layer(marked, 200, 842), hidden=True)
    wrong, _, _ = drawn(n=2, seed=5)
    _, _, other = drawn(language="deu", n=3)
    pdf.page(wrong, lines=scan_files.layer(other, 200, 842), hidden=True)
    done = extract(pdf.write(tmp_path / "mixed.pdf"))
    read = scan_scores.normal(done.stdout)
    for i in (1, 2, 5, 6):
        part = scan_scores.normal(texts[i])
        assert part[:60] in read, (i, read)
    assert "BATES 000417" in read
    assert "Oxbow" in read and "Bread keeps longest" not in read, "a good layer is kept, and not doubled"
    assert read.count(scan_scores.normal(texts[4])[:50]) == 1
    assert "hle am Fu" not in read, "the layer of another page is not believed"


def test_no_silent_page(tmp_path):
    """Without OCR each page says why it is not read."""
    pdf = scan_files.Pdf()
    pdf.page(lines=[(72, 700, 11, "This page has some text that can be read.")] * 2)
    pixels, _, _ = drawn(n=1, dpi=100)
    pdf.page(pixels)
    path = pdf.write(tmp_path / "two.pdf")
    done = extract(path, "--no-ocr")
    assert done.returncode == 0 and "some text" in done.stdout
    assert "page 2: a picture without text; OCR is off" in done.stderr
    done = extract(path, "--ocr-languages", "xqz")
    if HAVE:
        assert "page 2: a picture without text; OCR has no model of the language \"xqz\": package tesseract-ocr-xqz" in done.stderr
    else:
        assert "page 2: a picture without text; OCR is not installed: package tesseract-ocr" in done.stderr
    done = extract(store(tmp_path, "alone", pixels), "--ocr-languages", "xqz")
    assert done.returncode != 0 and "package tesseract-ocr" in done.stderr


def test_options(tmp_path):
    path = store(tmp_path, "a", np.full((100, 100), 255, np.uint8))
    for list_ in ("eng+", "../eng", "eng deu", "+".join(["eng"] * 7)):
        done = extract(path, "--ocr-languages", list_)
        assert done.returncode != 0 and "--ocr-languages" in done.stderr
    done = extract(path, "--no-ocr")
    assert done.returncode != 0 and "OCR is off" in done.stderr


HOSTILE = {
    "cut.jpg": None,
    "large.png": lambda: scan_files.png_of_white(30000, 30000, rows=200),
    "large-color.png": lambda: scan_files.png_of_white(30000, 20000, 2, rows=200),
    "bomb.tif": lambda: scan_files.tiff_head(60000, 60000, 8, 1 << 31),
    "lies.tif": lambda: scan_files.tiff_head(5000, 5000, 8, 100),
    "ring.tif": scan_files.tiff_ring,
    "none.tif": lambda: b"II*\0" + b"\xff" * 200,
    "text.png": lambda: b"This is no picture at all, whatever its name says.",
    "thin.png": lambda: scan_files.png_of_white(1, 20000),
    "dot.png": lambda: scan_files.png_of_white(1, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(tmp_path, name):
    path = tmp_path / name
    if name == "cut.jpg":
        pixels, _, _ = drawn(n=2)
        whole = store(tmp_path, "whole", pixels, "jpg").read_bytes()
        path.write_bytes(whole[:len(whole) // 3])
    else:
        path.write_bytes(HOSTILE[name]())
    done = extract(path)
    assert done.returncode in (0, 1, 2) and done.stdout.count("\0") == 0
    if done.returncode:
        assert re.search(rf"{re.escape(name)}: .+", done.stderr), done.stderr


@needs_ocr
def test_progress(tmp_path):
    """A file that takes long says how many of its pages are read."""
    pixels, _, _ = drawn(n=3)
    path = scan_files.tiff(tmp_path / "long.tif", [pixels] * 12)
    began = time.monotonic()
    done = extract(path)
    counts = [int(count) for count in re.findall(r"^reading: .*long\.tif: (\d+) of 12 pages$", done.stderr, re.M)]
    assert counts or time.monotonic() - began < 6, "it is told after three seconds, at the next page"
    assert counts == sorted(set(counts)) and all(0 < count < 12 for count in counts)


@needs_ocr
def test_noise_has_a_reason(tmp_path):
    """Nothing but noise: no text is made up, or the page is named."""
    noise = np.random.default_rng(7).integers(0, 255, (2200, 1700)).astype(np.uint8)
    done = extract(store(tmp_path, "noise", noise))
    assert done.returncode != 0 and "page 1:" in done.stderr, done.stdout[:200]


@needs_ocr
def test_page_takes_too_long(tmp_path):
    pixels, _, _ = scans.draw_page(n=8, dpi=300, points=8, columns=2)
    wide = np.tile(pixels, (1, 2))
    done = extract(store(tmp_path, "wide", wide, dpi=300), "--max-page-seconds", "1")
    if done.returncode:  # a fast machine may read it within the second
        assert "page 1: OCR takes over 1 seconds" in done.stderr
