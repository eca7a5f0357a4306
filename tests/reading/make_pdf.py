"""Writes PDFs without a library: text in the standard fonts, lines, boxes, and what pages do to their frame."""
import zlib

HELVETICA = dict(zip(map(chr, range(32, 127)), (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, *[556] * 10, 278, 278, 584, 584, 584, 556,
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944,
    667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584)))
FONTS = {"F": "Helvetica", "B": "Helvetica-Bold", "I": "Helvetica-Oblique", "C": "Courier"}
# Codes that are no character of Windows-1252 are taken for ligatures, and 0xAD for a hyphen that is soft.
LIGATURES = {"\ufb01": 1, "\ufb02": 2}


def width(text, size, font="F"):
    if font == "C":
        return 0.6 * size * len(text)
    bold = 1.06 if font == "B" else 1
    return sum(HELVETICA.get(c, 500) for c in text) * size * bold / 1000


def encode(text):
    codes = bytes(LIGATURES[c] if c in LIGATURES else c.encode("cp1252", "replace")[0] for c in text)
    return b"(" + codes.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)") + b")"


class Page:
    """Places are points from the left top corner of the page as it is shown, unless `frame` says otherwise."""

    def __init__(self, size=(595, 842), rotate=0, crop=None, origin=(0, 0), unit=None):
        self.size, self.rotate, self.crop, self.origin, self.unit = size, rotate, crop, origin, unit
        self.ops, self.boxes, self.images = [], [], []

    def text(self, x, y, text, size=10, font="F", colour=0, mode=0, angle=0, spacing=0):
        """The baseline begins at x, y from the top. Remembers the box of each word."""
        import math
        a, b = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        grey = colour if isinstance(colour, str) else f"{colour} g"
        self.ops.append(f"{grey} BT /{font} {size} Tf {mode} Tr {spacing} Tc {a:.4f} {b:.4f} {-b:.4f} {a:.4f} {x:.2f} {self.size[1] - y:.2f} Tm "
                        .encode() + encode(text) + b" Tj ET")
        at = x
        for word in text.split(" "):
            if word and angle == 0:
                self.boxes.append((word, at, y - 0.72 * size, at + width(word, size, font) + spacing * len(word), y + 0.2 * size))
            at += width(word + " ", size, font) + spacing * (len(word) + 1)
        return at

    def line(self, x0, y0, x1, y1, thick=0.6, grey=0, dash=""):
        self.ops.append(f"q {grey} G {thick} w {dash or '[] 0 d'} {x0:.2f} {self.size[1] - y0:.2f} m {x1:.2f} {self.size[1] - y1:.2f} l S Q".encode())

    def box(self, x0, y0, x1, y1, fill=None, thick=0.6):
        shape = f"{x0:.2f} {self.size[1] - y1:.2f} {x1 - x0:.2f} {y1 - y0:.2f} re"
        self.ops.append(f"q {fill} g {shape} f Q".encode() if fill is not None else f"q {thick} w {shape} S Q".encode())

    def image(self, x0, y0, x1, y1, pixels=None, columns=8, rows=8):
        pixels = pixels or bytes((i * 37 + j * 59) % 256 for j in range(rows) for i in range(columns))
        self.images.append((pixels, columns, rows))
        self.ops.append(f"q {x1 - x0:.2f} 0 0 {y1 - y0:.2f} {x0:.2f} {self.size[1] - y1:.2f} cm /I{len(self.images)} Do Q".encode())

    def raw(self, ops):
        self.ops.append(ops.encode("latin-1") if isinstance(ops, str) else ops)


def stream(head, data):
    return b"<<" + head + b"/Length %d>>stream\n" % len(data) + data + b"\nendstream"


def write(pages, bookmarks=(), title=None, extra=None):
    """The bytes of a PDF. bookmarks: (title, page from 0); extra(objects) may add to them."""
    objects = [b"<</Type/Catalog/Pages 2 0 R%s>>", b""]
    difference = b"/Encoding<</Type/Encoding/BaseEncoding/WinAnsiEncoding/Differences[1/fi/fl]>>"
    fonts = b""
    for name, base in FONTS.items():
        objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/" + base.encode() + difference + b">>")
        fonts += b"/%s %d 0 R" % (name.encode(), len(objects))
    kids = []
    for page in pages:
        images = b""
        for i, (pixels, columns, rows) in enumerate(page.images, 1):
            objects.append(stream(b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/FlateDecode"
                                  % (columns, rows), zlib.compress(pixels)))
            images += b"/I%d %d 0 R" % (i, len(objects))
        dx, dy = page.origin
        ops = b"\n".join(page.ops)
        if dx or dy:
            ops = b"1 0 0 1 %d %d cm\n" % (dx, dy) + ops
        objects.append(stream(b"/Filter/FlateDecode", zlib.compress(ops)))
        content = len(objects)
        media = b"[%g %g %g %g]" % (dx, dy, dx + page.size[0], dy + page.size[1])
        facts = b"/MediaBox" + media
        if page.rotate:
            facts += b"/Rotate %d" % page.rotate
        if page.unit:
            facts += b"/UserUnit %g" % page.unit
        if page.crop:
            x0, y0, x1, y1 = page.crop
            facts += b"/CropBox[%g %g %g %g]" % (dx + x0, dy + page.size[1] - y1, dx + x1, dy + page.size[1] - y0)
        objects.append(b"<</Type/Page/Parent 2 0 R/Contents %d 0 R/Resources<</Font<<%s>>/XObject<<%s>>>>%s>>" % (content, fonts, images, facts))
        kids.append(len(objects))
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    catalog = b""
    if bookmarks:
        root = len(objects) + 1
        objects.append(b"<</Type/Outlines/First %d 0 R/Last %d 0 R/Count %d>>" % (root + 1, root + len(bookmarks), len(bookmarks)))
        for i, (name, page) in enumerate(bookmarks):
            links = (b"/Prev %d 0 R" % (root + i) if i else b"") + (b"/Next %d 0 R" % (root + i + 2) if i + 1 < len(bookmarks) else b"")
            objects.append(b"<</Title %s/Parent %d 0 R/Dest[%d 0 R/Fit]%s>>" % (encode(name), root, kids[page], links))
        catalog = b"/Outlines %d 0 R" % root
    objects[0] = objects[0] % catalog
    trailer = b""
    if title:
        objects.append(b"<</Title %s>>" % encode(title))
        trailer = b"/Info %d 0 R" % len(objects)
    if extra:
        trailer += extra(objects) or b""
    return assemble(objects, trailer)


def assemble(objects, trailer=b""):
    out, places = b"%PDF-1.6\n", []
    for i, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj" % i + one + b"\nendobj\n"
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, table)
