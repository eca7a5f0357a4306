"""Scans with a known text: pages drawn by cairo, spoiled as scanners and cameras do, and written by leptonica. Both
libraries are those that the readers of pages need, by ctypes.

    python3 tests/reading/scans.py FOLDER   writes NAME.png (.jpg, .tif) and NAME.txt for each case
"""
import ctypes
import ctypes.util
import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np

try:
    from . import scan_texts
except ImportError:
    import scan_texts

A4 = (8.27, 11.69)  # inches

# ---- drawing


def library(name, result):
    found = ctypes.CDLL(name)
    for function in result:
        getattr(found, function).restype = ctypes.c_void_p
    return found


cairo = library("libcairo.so.2", ["cairo_image_surface_create", "cairo_create", "cairo_image_surface_get_data"])
lept = library("liblept.so.5", ["pixCreate", "pixGetData", "pixConvertRGBToLuminance", "pixThresholdToBinary"])


class Extents(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("x_bearing", "y_bearing", "width", "height", "x_advance", "y_advance")]


class Drawing:
    """A white page of 8-bit grey at so many dots an inch."""

    def __init__(self, dpi, size=A4):
        self.dpi, self.width, self.height = dpi, int(size[0] * dpi), int(size[1] * dpi)
        self.surface = ctypes.c_void_p(cairo.cairo_image_surface_create(1, self.width, self.height))
        self.context = ctypes.c_void_p(cairo.cairo_create(self.surface))
        self.color(1)
        cairo.cairo_paint(self.context)
        self.color(0)

    def color(self, level):
        cairo.cairo_set_source_rgb(self.context, *[ctypes.c_double(level)] * 3)

    def font(self, family, points, bold=False, italic=False):
        cairo.cairo_select_font_face(self.context, family.encode(), int(italic), int(bold))
        self.size = points * self.dpi / 72
        cairo.cairo_set_font_size(self.context, ctypes.c_double(self.size))

    def measure(self, text):
        extents = Extents()
        cairo.cairo_text_extents(self.context, text.encode(), ctypes.byref(extents))
        return extents.x_advance

    def text(self, x, y, text):
        cairo.cairo_move_to(self.context, ctypes.c_double(x), ctypes.c_double(y))
        cairo.cairo_show_text(self.context, text.encode())

    def rule(self, x0, y0, x1, y1, width=2.0):
        cairo.cairo_set_line_width(self.context, ctypes.c_double(width))
        cairo.cairo_move_to(self.context, ctypes.c_double(x0), ctypes.c_double(y0))
        cairo.cairo_line_to(self.context, ctypes.c_double(x1), ctypes.c_double(y1))
        cairo.cairo_stroke(self.context)

    def paragraph(self, x, y, width, text, leading=1.35):
        """Returns the baseline that follows, and each word with its box in pixels."""
        line, words = [], []

        def show():
            at = x
            for word in line:
                self.text(at, y, word)
                advance = self.measure(word)
                words.append((word, at, y - 0.75 * self.size, at + advance, y + 0.22 * self.size))
                at += advance + self.measure("a b") - self.measure("ab")

        for word in text.split():
            if line and self.measure(" ".join(line + [word])) > width:
                show()
                line, y = [], y + self.size * leading
            line.append(word)
        show()
        return y + self.size * leading, words

    def grey(self):
        cairo.cairo_surface_flush(self.surface)
        data = ctypes.cast(cairo.cairo_image_surface_get_data(self.surface), ctypes.POINTER(ctypes.c_uint8))
        stride = cairo.cairo_image_surface_get_stride(self.surface)
        pixels = np.ctypeslib.as_array(data, (self.height, stride))
        return pixels.reshape(self.height, -1, 4)[:, :self.width, 1].copy()


@dataclasses.dataclass
class Scan:
    name: str
    group: str
    pixels: np.ndarray
    text: str
    dpi: int = 300
    kind: str = "png"
    quality: int = 85
    words: list = dataclasses.field(default_factory=list)  # word, x0, y0, x1, y1 in pixels of the page that is stored
    cells: list = dataclasses.field(default_factory=list)  # row's name, column's name, text


def prose(language, seed, n):
    paragraphs = scan_texts.LANGUAGES[language]
    return [paragraphs[(seed + i) % len(paragraphs)] for i in range(n)]


def draw_page(language="eng", seed=0, n=5, font="DejaVu Serif", points=11, dpi=300, columns=1, heading=None):
    page = Drawing(dpi)
    margin, gap = dpi * 1.0, dpi * 0.35
    width = (page.width - 2 * margin - gap * (columns - 1)) / columns
    y, texts, words = margin, [], []
    if heading:
        page.font(font, points * 1.6, bold=True)
        y, found = page.paragraph(margin, y + page.size, page.width - 2 * margin, heading)
        words += found
        texts.append(heading)
    page.font(font, points)
    top, paragraphs = y + page.size, prose(language, seed, n)
    each = math.ceil(n / columns)
    for column in range(columns):
        y = top
        for text in paragraphs[column * each:(column + 1) * each]:
            y, found = page.paragraph(margin + column * (width + gap), y, width, text)
            y += page.size * 0.7
            words += found
            texts.append(text)
    return page.grey(), "\n".join(texts), words


def draw_table(which, dpi=300, font="DejaVu Sans", points=11, ruled=True):
    page = Drawing(dpi)
    heads, rows = scan_texts.TABLES[which]
    x0, y, height = dpi * 1.0, dpi * 1.2, dpi * 0.36
    page.font(font, points)
    y, _ = page.paragraph(x0, y, page.width - 2 * x0, prose("eng", which, 1)[0])
    width = (page.width - 2 * x0) / len(heads)
    top = y + height * 0.5
    for i, row in enumerate([heads] + rows):
        page.font(font, points, bold=i == 0)
        for j, cell in enumerate(row):
            at = x0 + j * width + dpi * 0.08
            if i and j:
                at = x0 + (j + 1) * width - dpi * 0.08 - page.measure(cell)
            page.text(at, top + i * height + height * 0.68, cell)
    if ruled:
        for i in range(len(rows) + 2):
            page.rule(x0, top + i * height, x0 + width * len(heads), top + i * height)
        for j in range(len(heads) + 1):
            page.rule(x0 + j * width, top, x0 + j * width, top + height * (len(rows) + 1))
    page.font(font, points)
    page.paragraph(x0, top + (len(rows) + 2.5) * height, page.width - 2 * x0, prose("eng", which + 1, 1)[0])
    cells = [(row[0], heads[j], row[j]) for row in rows for j in range(1, len(heads))]
    return page.grey(), cells


# ---- spoiling


def rotate(pixels, degrees, fill=255):
    """Clockwise, about the middle, in a picture of the same size."""
    h, w = pixels.shape
    angle = math.radians(degrees)
    ys, xs = np.mgrid[0:h, 0:w].astype(np.float32)
    xs -= w / 2
    ys -= h / 2
    sx, sy = (math.cos(angle) * xs + math.sin(angle) * ys + w / 2), (-math.sin(angle) * xs + math.cos(angle) * ys + h / 2)
    return sample(pixels, sx, sy, fill)


def sample(pixels, sx, sy, fill=255):
    h, w = pixels.shape
    x, y = np.floor(sx).astype(np.int32), np.floor(sy).astype(np.int32)
    inside = (x >= 0) & (y >= 0) & (x < w - 1) & (y < h - 1)
    x, y = np.clip(x, 0, w - 2), np.clip(y, 0, h - 2)
    fx, fy = (sx - x).astype(np.float32), (sy - y).astype(np.float32)
    top = pixels[y, x] * (1 - fx) + pixels[y, x + 1] * fx
    low = pixels[y + 1, x] * (1 - fx) + pixels[y + 1, x + 1] * fx
    return np.where(inside, top * (1 - fy) + low * fy, fill).astype(np.uint8)


def salt(pixels, share, seed=1):
    dice = np.random.default_rng(seed).random(pixels.shape, dtype=np.float32)
    spoiled = pixels.copy()
    spoiled[dice < share / 2] = 0
    spoiled[dice > 1 - share / 2] = 255
    return spoiled


def grain(pixels, sigma, seed=2):
    noise = np.random.default_rng(seed).standard_normal(pixels.shape, dtype=np.float32) * sigma
    return np.clip(pixels * 0.85 + 20 + noise, 0, 255).astype(np.uint8)


def specks(pixels, n, seed=3, most=4):
    dice, spoiled = np.random.default_rng(seed), pixels.copy()
    for y, x, r in zip(dice.integers(8, pixels.shape[0] - 8, n), dice.integers(8, pixels.shape[1] - 8, n), dice.integers(1, most, n)):
        spoiled[y:y + r, x:x + r] = dice.integers(0, 90)
    return spoiled


def blur(pixels, radius):
    spoiled, kernel = pixels.astype(np.float32), np.exp(-np.arange(-3 * radius, 3 * radius + 1) ** 2 / (2 * radius ** 2))
    kernel /= kernel.sum()
    for axis in (0, 1):
        spoiled = sum(k * np.roll(spoiled, i - len(kernel) // 2, axis) for i, k in enumerate(kernel))
    return np.clip(spoiled, 0, 255).astype(np.uint8)


def shade(pixels, low, direction=(1, 0.4)):
    """Light that falls off to `low` of itself."""
    h, w = pixels.shape
    ys, xs = np.mgrid[0:h, 0:w].astype(np.float32)
    along = (xs / w * direction[0] + ys / h * direction[1]) / sum(direction)
    return (pixels * (1 - (1 - low) * along)).astype(np.uint8)


def shadow(pixels, level=0.45):
    """A hand's edge over a part of the page."""
    h, w = pixels.shape
    ys, xs = np.mgrid[0:h, 0:w].astype(np.float32)
    edge = 1 / (1 + np.exp(-(xs - 0.55 * w + 0.3 * (ys - h / 2)) / (0.02 * w)))
    return (pixels * (1 - (1 - level) * edge) * 0.9).astype(np.uint8)


def photograph(pixels, seed=5):
    """A page on a dark table, seen a little from the side."""
    h, w = pixels.shape
    ys, xs = np.mgrid[0:h, 0:w].astype(np.float32)
    u, v = xs / w - 0.5, ys / h - 0.5
    depth = 1 + 0.05 * v
    page = sample(pixels, (u * 1.08 * depth + 0.5 + 0.01 * v) * w, (v * 1.06 * depth + 0.5) * h, fill=70)
    return grain(blur(shade(page, 0.6), 1), 5, seed)


def turn(pixels, quarters):
    """Quarter turns clockwise."""
    return np.ascontiguousarray(np.rot90(pixels, -quarters))


# ---- the cases


def make_scans():
    """One after the other: they are large."""
    def scan(name, group, spoil=None, kind="png", quality=85, **page):
        pixels, text, words = draw_page(**page)
        if spoil:
            pixels = spoil(pixels)
            words = []
        return Scan(name, group, pixels, text, page.get("dpi", 300), kind, quality, words)

    fonts = ["DejaVu Serif", "DejaVu Sans", "Liberation Serif", "Liberation Sans", "C059", "Nimbus Roman"]
    for i, font in enumerate(fonts):
        yield scan(f"clean-{i}", "clean", font=font, seed=i, points=[11, 10, 12, 11, 10, 9][i])
    yield scan("columns", "clean", columns=2, n=6, points=9, font="Liberation Serif", seed=2)
    yield scan("heading", "clean", heading="Minutes of the Harbour Board", font="Liberation Sans", seed=4)
    yield scan("small", "size", points=7, n=6, seed=1)
    yield scan("low", "size", dpi=150, seed=3, points=12)
    yield scan("lower", "size", dpi=120, seed=5, points=11, font="Liberation Sans")
    yield scan("large", "size", dpi=600, seed=5, n=3, points=12)
    yield scan("fax", "size", lambda p: np.where(p < 140, 0, 255).astype(np.uint8), kind="g4", dpi=200, seed=6)
    for i, degrees in enumerate([1, -2, 3, -4, 5, -7, 9]):
        yield scan(f"skew{degrees}", "skew", lambda p, d=degrees: rotate(p, d), seed=i, font=fonts[i % 4])
    yield scan("skew-columns", "skew", lambda p: rotate(p, 3.5), seed=3, columns=2, n=6, points=9)
    for i, share in enumerate([0.01, 0.03, 0.08, 0.15]):
        yield scan(f"salt{share}", "noise", lambda p, s=share: salt(p, s), seed=i, font=fonts[i])
    for i, sigma in enumerate([15, 35, 60]):
        yield scan(f"grain{sigma}", "noise", lambda p, s=sigma: grain(p, s), seed=i + 3, font=fonts[i])
    yield scan("specks", "noise", lambda p: specks(p, 9000), seed=2)
    yield scan("salt-fax", "noise", lambda p: np.where(salt(p, 0.05) < 128, 0, 255).astype(np.uint8), kind="g4", seed=1, dpi=200)
    yield scan("salt-skew", "noise", lambda p: salt(rotate(p, 2.5), 0.04), seed=6, font="Liberation Serif")
    for i, quarters in enumerate([1, 2, 3]):
        yield scan(f"turned{quarters * 90}", "turned", lambda p, q=quarters: turn(p, q), seed=i, font=fonts[i])
        yield scan(f"turned-columns{quarters * 90}", "turned", lambda p, q=quarters: turn(p, q), seed=i, columns=2, n=6, points=9)
    yield scan("turned-skew", "turned", lambda p: turn(rotate(p, 2), 1), seed=4)
    yield scan("turned-short", "turned", lambda p: turn(p, 2), seed=4, n=1)
    yield scan("gradient", "light", lambda p: shade(p, 0.35), seed=1, kind="jpg")
    yield scan("shadow", "light", shadow, seed=2, kind="jpg")
    yield scan("dim", "light", lambda p: (p * 0.35 + 30).astype(np.uint8), seed=3)
    yield scan("faint", "light", lambda p: (p * 0.25 + 180).astype(np.uint8), seed=3, font="Liberation Sans")
    yield scan("inverse", "light", lambda p: 255 - p, seed=5)
    yield scan("photo", "light", photograph, seed=4, kind="jpg")
    yield scan("blur", "blur", lambda p: blur(p, 2), seed=1)
    yield scan("jpeg", "blur", lambda p: blur(p, 1), seed=6, kind="jpg", quality=18)
    for language in ("deu", "fra", "pol"):
        for i in range(3):
            yield scan(f"{language}-{i}", language, language=language, seed=2 * i, font=fonts[[0, 3, 2][i]], points=[11, 10, 12][i])
        yield scan(f"{language}-skew", language, lambda p: rotate(p, 1.5), language=language, seed=1, font="Liberation Serif")
    for i in range(len(scan_texts.TABLES)):
        pixels, cells = draw_table(i, font=fonts[(i + 1) % 4], points=[11, 10, 9, 11][i])
        if i == 2:
            pixels = rotate(pixels, 1.2)
        if i == 3:
            pixels = grain(pixels, 10)
        yield Scan(f"table-{i}", "table", pixels, "", cells=cells)


# ---- writing


class Pix:
    def __init__(self, pixels):
        h, w = pixels.shape
        self.pix = ctypes.c_void_p(lept.pixCreate(w, h, 8))
        self.words = (w + 3) // 4
        packed = np.zeros((h, self.words * 4), np.uint8)
        packed[:, :w] = pixels
        packed = packed.reshape(h, self.words, 4)[:, :, ::-1].copy()  # words of 32 bits, the first pixel the highest byte
        ctypes.memmove(lept.pixGetData(self.pix), packed.ctypes.data, packed.nbytes)

    def __enter__(self):
        return self.pix

    def __exit__(self, *_):
        lept.pixDestroy(ctypes.byref(self.pix))


def write(scan, folder):
    path = Path(folder) / f"{scan.name}.{'tif' if scan.kind == 'g4' else scan.kind}"
    with Pix(scan.pixels) as pix:
        lept.pixSetResolution(pix, scan.dpi, scan.dpi)
        if scan.kind == "png":
            fault = lept.pixWritePng(str(path).encode(), pix, ctypes.c_float(0))
        elif scan.kind == "jpg":
            fault = lept.pixWriteJpeg(str(path).encode(), pix, scan.quality, 0)
        else:
            black = ctypes.c_void_p(lept.pixThresholdToBinary(pix, 128))
            fault = lept.pixWriteTiff(str(path).encode(), black, 8, b"w")
            lept.pixDestroy(ctypes.byref(black))
    assert fault == 0, path
    return path


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for scan in make_scans():
        path = write(scan, folder)
        facts = {"name": scan.name, "group": scan.group, "file": path.name, "text": scan.text, "words": scan.words, "cells": scan.cells,
                 "dpi": scan.dpi, "size": [scan.pixels.shape[1], scan.pixels.shape[0]]}
        (folder / f"{scan.name}.json").write_text(json.dumps(facts, ensure_ascii=False))


if __name__ == "__main__":
    main(sys.argv[1])
