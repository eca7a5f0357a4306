"""Files of scans: PDF with pages of pictures, of text, or of both; TIFF of several pages; and files that mean harm."""
import ctypes
import struct
import zlib
from pathlib import Path

import scans


class Pdf:
    """Pages one by one, each of some contents; everything is written at the end."""

    def __init__(self):
        self.objects = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]  # catalogue, pages, font
        self.pages = []

    def add(self, body):
        self.objects.append(body)
        return len(self.objects)

    def stream(self, facts, data):
        packed = zlib.compress(data)
        return self.add(b"<< %s /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (facts, len(packed), packed))

    def page(self, pixels=None, lines=(), hidden=False, size=(595, 842), rotate=0):
        """`lines`: x, y from the foot, points, text. Hidden ones are drawn in mode 3, under the picture's name."""
        content, resources = [], b"/Font << /F1 3 0 R >>"
        if pixels is not None:
            h, w = pixels.shape
            image = self.stream(b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8" % (w, h),
                                pixels.tobytes())
            resources += b" /XObject << /Im %d 0 R >>" % image
            content.append(b"q %d 0 0 %d 0 0 cm /Im Do Q" % size)
        for x, y, points, text in lines:
            escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("latin-1", "replace")
            content.append(b"BT /F1 %d Tf %d Tr %d %d Td (%s) Tj ET" % (points, 3 if hidden else 0, x, y, escaped))
        stream = self.stream(b"", b"\n".join(content))
        self.pages.append(self.add(b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Rotate %d /Contents %d 0 R /Resources << %s >> >>"
                                   % (*size, rotate, stream, resources)))

    def write(self, path):
        self.objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
        self.objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(self.pages), b" ".join(b"%d 0 R" % p for p in self.pages))
        out, places = b"%PDF-1.5\n", []
        for i, body in enumerate(self.objects):
            places.append(len(out))
            out += b"%d 0 obj\n%s\nendobj\n" % (i + 1, body)
        start = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1) + b"".join(b"%010d 00000 n \n" % p for p in places)
        out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, start)
        Path(path).write_bytes(out)
        return path


def layer(words, dpi, height):
    """The words of a page that was drawn, as lines of a hidden layer."""
    return [(x0 * 72 / dpi, (height - y1 * 72 / dpi) + 2, 10, word) for word, x0, _, _, y1 in words]


def tiff(path, pages, dpi=200):
    """A page each, one behind the other, of 8-bit grey."""
    for i, pixels in enumerate(pages):
        with scans.Pix(pixels) as pix:
            scans.lept.pixSetResolution(pix, dpi, dpi)
            assert scans.lept.pixWriteTiff(str(path).encode(), pix, 10, b"w" if i == 0 else b"a") == 0
    return path


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_white(width, height, color=0, rows=None):
    """A PNG of nothing, whose bytes say little of its size; it may be cut off behind some rows."""
    row = b"\0" + b"\xff" * (width * (3 if color == 2 else 1))
    pack = zlib.compressobj(1)
    data = b"".join(pack.compress(row) for _ in range(height if rows is None else rows)) + pack.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)) + chunk(b"IDAT", data) + \
        chunk(b"IEND", b"")


def tiff_head(width, height, bits, strips):
    """A TIFF that says it is large, and has next to no pixels."""
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1),
               (278, 4, 1, height), (279, 4, 1, strips)]
    return b"II*\0" + struct.pack("<I", 16) + b"\0" * 8 + struct.pack("<H", len(entries)) + \
        b"".join(struct.pack("<HHII", *entry) for entry in entries) + struct.pack("<I", 0)


def tiff_ring():
    """Pages whose list bites its own tail."""
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 0) + struct.pack("<I", 8) + b"\0" * 64
