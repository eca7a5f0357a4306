"""Forms of PDF that were filled in, and text that was typed onto a page: what a viewer shows there is read."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import make_pdf  # noqa: E402
import score  # noqa: E402
from layouts import Writer, flow  # noqa: E402

HEIGHT = 842


def quoted(text):
    return b"<FEFF" + text.encode("utf-16-be").hex().encode() + b">"


class Form:
    """Fields by their places from the left top corner of the page."""

    def __init__(self, **page):
        self.page, self.notes = make_pdf.Page(**page), []

    def field(self, x, y, width, height, facts, flags=4, draws=b""):
        rect = b"/Rect[%g %g %g %g]" % (x, HEIGHT - y - height, x + width, HEIGHT - y)
        self.notes.append((b"/Type/Annot/F %d%s%s" % (flags, rect, facts), width, height, draws))

    def text(self, x, y, width, height, value, more=b"", flags=4):
        words = value.replace("\n", " ").encode("cp1252", "replace").replace(b"(", b"").replace(b")", b"")
        self.field(x, y, width, height, b"/Subtype/Widget/FT/Tx/T(f%d)/V%s/DA(/F 10 Tf 0 g)%s" % (len(self.notes), quoted(value), more), flags,
                   b"/Tx BMC BT /F 10 Tf 2 4 Td (%s) Tj ET EMC" % words)

    def write(self):
        def add(objects):
            font = b"/Resources<</Font<</F 3 0 R>>>>"
            numbers = []
            for facts, width, height, draws in self.notes:
                objects.append(make_pdf.stream(b"/Type/XObject/Subtype/Form/BBox[0 0 %g %g]%s" % (width, height, font), draws))
                look = b"/AP<</N<</On %d 0 R>>>>" if b"/Btn" in facts else b"/AP<</N %d 0 R>>"
                objects.append(b"<<" + facts + look % len(objects) + b">>")
                numbers.append(len(objects))
            notes = b"[" + b" ".join(b"%d 0 R" % number for number in numbers) + b"]"
            page = next(i for i, one in enumerate(objects) if b"/Type/Page/" in one)
            objects[page] = objects[page].replace(b"/Type/Page/", b"/Type/Page/Annots" + notes + b"/", 1)
            objects[0] = objects[0][:-2] + b"/AcroForm<</Fields" + notes + b"/DA(/F 10 Tf 0 g)/DR<</Font<</F 3 0 R>>>>>>>>"
        return make_pdf.write([self.page], extra=add)


def read(tmp_path, content):
    path = tmp_path / "form.pdf"
    path.write_bytes(content)
    answer = score.read(path)
    assert not answer["error"], answer["error"]
    return answer["documents"][0]


def application():
    form = Form()
    form.page.text(72, 90, "Application for a berth", 16, "B")
    for i, (label, value) in enumerate([("Name", "Ada Lovelace"), ("Boat", "Heron II"), ("Length in metres", "7.35"), ("Harbour", "Świnoujście")]):
        form.page.text(72, 130 + 24 * i, label)
        form.text(200, 118 + 24 * i, 200, 16, value)
    return form


def test_values_stand_behind_their_labels(tmp_path):
    document = read(tmp_path, application().write())
    text = score.flat(document["text"])
    places = [text.find(one) for one in ("Application for a berth", "Name", "Ada Lovelace", "Boat", "Heron II", "7.35", "Harbour", "Świnoujście")]
    assert -1 not in places and places == sorted(places), document["text"]
    assert document["losses"] == ""


@pytest.mark.parametrize("rotate", [90, 270])
def test_turned_pages(tmp_path, rotate):
    """The page is stored on its side, and shown upright."""
    form = Form(rotate=rotate)
    place = (lambda x, y: (y, x)) if rotate == 90 else (lambda x, y: (595 - y, HEIGHT - x))
    for i, (label, value) in enumerate([("Name", "Ada Lovelace"), ("Boat", "Heron II"), ("Length in metres", "7.35")]):
        y = 130 + 24 * i
        form.page.raw("BT /F 10 Tf 0 %d %d 0 %g %g Tm (%s) Tj ET" % ((1, -1, *place(72, y), label) if rotate == 90 else (-1, 1, *place(72, y), label)))
        left, top = (min(pair) for pair in zip(place(200, y - 12), place(400, y + 4)))
        form.text(left, HEIGHT - top - 200, 16, 200, value)
    text = score.flat(read(tmp_path, form.write())["text"])
    places = [text.find(one) for one in ("Name", "Ada Lovelace", "Boat", "Heron II", "7.35")]
    assert -1 not in places and places == sorted(places), text


def test_long_text_has_lines(tmp_path):
    form = application()
    sentences = Writer(3).sentences(4)
    form.text(72, 260, 400, 120, " ".join(sentences) + "\nSecond line.", b"/Ff 4096")
    text = score.flat(read(tmp_path, form.write())["text"])
    assert all(one in text for one in sentences) and "Second line." in text, text


def test_choices_and_boxes(tmp_path):
    form = application()
    form.field(72, 240, 12, 12, b"/Subtype/Widget/FT/Btn/T(yes)/V/On/AS/On", draws=b"0 0 12 12 re f")
    form.page.text(90, 250, "Power at the berth")
    form.field(72, 260, 12, 12, b"/Subtype/Widget/FT/Btn/T(no)/V/Off/AS/Off", draws=b"0 0 12 12 re f")
    form.page.text(90, 270, "Water at the berth")
    form.page.text(72, 300, "Season")
    form.field(200, 288, 120, 16, b"/Subtype/Widget/FT/Ch/Ff 131072/T(season)/Opt[(Spring)(Late summer)(Winter)]/V(Late summer)/DA(/F 10 Tf 0 g)",
               draws=b"BT /F 10 Tf 2 4 Td (Late summer) Tj ET")
    text = score.flat(read(tmp_path, form.write())["text"])
    assert "[x] Power at the berth" in text and text.count("[x]") == 1 and "Late summer" in text and "Spring" not in text, text


def test_typed_notes_are_read_and_comments_are_not(tmp_path):
    form = Form()
    sentences = Writer(5).sentences(6)
    flow(form.page, 72, 90, 450, " ".join(sentences), 11)
    form.field(72, 300, 300, 16, b"/Subtype/FreeText/DA(/F 10 Tf 0 g)/Contents(Received on the third of May)",
               draws=b"BT /F 10 Tf 2 4 Td (Received on the third of May) Tj ET")
    form.field(500, 90, 20, 20, b"/Subtype/Text/Contents(Somebody doubts this)")
    text = score.flat(read(tmp_path, form.write())["text"])
    assert "Received on the third of May" in text and "doubts" not in text and all(one in text for one in sentences), text


def test_what_is_not_shown_is_left_out(tmp_path):
    form = application()
    form.text(72, 260, 200, 16, "An invisible value", flags=2)
    form.text(72, 290, 200, 16, "hunter2", b"/Ff 8192")
    form.text(72, 320, 200, 16, "")
    text = read(tmp_path, form.write())["text"]
    assert "invisible" not in text and "hunter2" not in text


def test_fields_that_are_wrong_lose_nothing(tmp_path):
    form = application()
    for rect in ((0, 0, 0, 0), (9000, 9000, 50, 10), (-50, 20, 1e9, 1e9), (300, 500, -40, -10)):
        form.text(*rect, "Some value")
    form.text(72, 260, 10, 3, "word " * 20000, b"/Ff 4096")
    form.field(72, 280, 200, 16, b"/Subtype/Widget/FT/Sig/V 99 0 R")
    form.field(72, 300, 200, 16, b"/Subtype/Widget/Parent 1 0 R")
    form.field(72, 320, 200, 16, b"/Subtype/FreeText/Contents(\xfe\xff\xd8\x00\xff\xff)")
    text = score.flat(read(tmp_path, form.write())["text"])
    assert "Ada Lovelace" in text and "Application for a berth" in text, text[:400]
