"""PDFs that attack, and pages that cannot be read, for test_reading.py."""
import zlib

import make_pdf
from layouts import Writer, flow
from make_pdf import Page


def words(seed=1, n=8):
    writer, page = Writer(seed), Page()
    sentences = writer.sentences(n)
    flow(page, 72, 90, 450, " ".join(sentences), 11)
    return page, sentences


def locked():
    """A password is needed: the one that is empty does not fit."""
    def encrypt(objects):
        objects.append(b"<</Filter/Standard/V 1/R 2/Length 40/P -44/O<" + b"41" * 32 + b">/U<" + b"42" * 32 + b">>>")
        return b"/Encrypt %d 0 R/ID[<00><00>]" % len(objects)
    return make_pdf.write([words()[0]], extra=encrypt)


def forms(depth=9, wide=10):
    """The second of three pages draws forms within forms, 10^8 of them."""
    first, sentences = words(1)
    third, more = words(2)
    second = Page()
    second.text(72, 90, "Words before the forms.", 11)
    second.raw("/X0 Do")

    def add(objects):
        start = len(objects) + 1
        for i in range(depth):
            last = i == depth - 1
            body = b"0 0 5 5 re f" if last else b"/X0 Do " * wide
            inner = b"" if last else b"/Resources<</XObject<</X0 %d 0 R>>>>" % (start + i + 1)
            objects.append(make_pdf.stream(b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]" + inner, body))
        pages = [i for i, one in enumerate(objects) if b"/Type/Page/" in one]
        page = pages[1]
        objects[page] = objects[page].replace(b"/XObject<<>>", b"/XObject<</X0 %d 0 R>>" % start)
    return make_pdf.write([first, second, third], extra=add), sentences + more


def bomb():
    """A stream that unpacks to 2 GB, within another."""
    page, _ = words()
    inner = zlib.compress(b" " * (1 << 27), 9)

    def add(objects):
        content = next(i for i, one in enumerate(objects) if b"/FlateDecode" in one)
        objects[content] = make_pdf.stream(b"/Filter[/FlateDecode/FlateDecode]", zlib.compress(inner * 16, 9))
    return make_pdf.write([page], extra=add)


def many_pages():
    """A tree of pages that leads back to itself."""
    made = make_pdf.write([words()[0]])
    return made.replace(b"/Count 1/Kids[8 0 R]", b"/Count 9/Kids[2 0 R]")


def huge():
    page = Page(size=(14400, 14400))
    page.text(100, 300, "Words on a page of two hundred inches.", 100)
    return make_pdf.write([page])


def without_table():
    """The table of objects is gone; they are found by themselves."""
    page, sentences = words()
    made = make_pdf.write([page])
    table = made.index(b"xref")
    return made[:table] + made[made.index(b"trailer"):made.index(b"startxref")] + b"startxref\n99999999\n%%EOF\n", sentences


def cut():
    return make_pdf.write([words()[0]])[:400]


def pictures():
    """Pages with text, a picture alone, a stamp on a picture, and nothing."""
    text, sentences = words()
    picture, stamp = Page(), Page()
    for page in (picture, stamp):
        page.image(0, 0, 595, 842)
    stamp.text(500, 20, "B 00012", 8)
    return make_pdf.write([text, picture, stamp, Page()]), sentences
