"""PDFs by cairo, whose fonts are subsets as producers embed them, and whose table of characters (ToUnicode) is then taken away or spoiled."""
import ctypes
import re
import zlib

from scans import cairo, library

cairo_pdf = library("libcairo.so.2", ["cairo_pdf_surface_create", "cairo_create"])
A4 = (595, 842)
STREAM = re.compile(rb"(?s)(\d+ 0 obj\s*<<(?:(?!endobj).)*?>>\s*)stream\r?\n(.*?)\r?\nendstream")
LINE = re.compile(rb"<([0-9a-fA-F]{2,4})>\s*<([0-9a-fA-F]{4,})>")


def page_of(text, path, family="DejaVu Serif", points=11):
    """A page of text in a subset of one font."""
    surface = ctypes.c_void_p(cairo_pdf.cairo_pdf_surface_create(str(path).encode(), *(ctypes.c_double(side) for side in A4)))
    context = ctypes.c_void_p(cairo_pdf.cairo_create(surface))
    cairo.cairo_select_font_face(context, family.encode(), 0, 0)
    cairo.cairo_set_font_size(context, ctypes.c_double(points))
    for i, line in enumerate(re.findall(r"\S.{0,70}(?= |$)", text)):
        cairo.cairo_move_to(context, ctypes.c_double(72), ctypes.c_double(90 + 15 * i))
        cairo.cairo_show_text(context, line.encode())
    cairo.cairo_destroy(context)
    cairo.cairo_surface_destroy(surface)
    return path.read_bytes()


def spoil_map(data, change):
    """Each code's characters, changed."""
    def one(found):
        code, text = found[1], bytes.fromhex(found[2].decode()).decode("utf-16-be")
        return b"<%s> <%s>" % (code, change(text).encode("utf-16-be").hex().encode())
    parts = re.split(rb"(endcodespacerange)", data, maxsplit=1)
    parts[-1] = LINE.sub(one, parts[-1])
    return b"".join(parts)


def spoil(pdf, change):
    """`change` of a character's text; None: the tables are gone."""
    if change is None:
        return re.sub(rb"/ToUnicode \d+ 0 R", lambda found: b" " * len(found[0]), pdf)
    out, at = [], 0
    for found in STREAM.finditer(pdf):
        data = found[2]
        try:
            plain = zlib.decompress(data) if b"FlateDecode" in found[1] else data
        except zlib.error:
            continue
        if b"begincmap" not in plain:
            continue
        new = zlib.compress(spoil_map(plain, change))
        head = re.sub(rb"/Length \d+(?: 0 R)?", b"/Length %d" % len(new), found[1])
        out += [pdf[at:found.start()], head, b"stream\n", new, b"\nendstream"]
        at = found.end()
    whole = b"".join(out) + pdf[at:]
    return re.sub(rb"startxref\s+\d+", b"startxref\n0", whole)  # the places of objects are others now: readers look for them


def turn(text):
    """ROT13: letters that are words of no language, with as many vowels as one has."""
    return text.translate(str.maketrans("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM"))


KINDS = {
    "private": lambda text: "".join(chr(0xE000 + ord(c) % 0x1000) if c > " " else c for c in text),
    "replaced": lambda text: "".join("\ufffd" if c > " " else c for c in text),
    "control": lambda text: "".join(chr(1 + ord(c) % 8) if c > " " else c for c in text),
    "shifted": lambda text: "".join(chr(ord(c) + 1) if c > " " else c for c in text),
    "turned": turn,
    "digits": lambda text: "".join(chr(0x30 + ord(c) % 10) if c > " " else c for c in text),
}
