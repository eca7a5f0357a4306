"""A set of page layouts, made up, with what a reader has to find in each: sentences whole and in order, what is not to be
there, kinds of blocks, cells with their heads. score.py reads them."""
import random

from make_pdf import Page, width

NOUNS = ("harbour lantern orchard granite meadow ferry blanket kettle barley chimney willow compass anchor saddle copper basket pebble "
         "thistle bridge market cellar linen heron juniper mortar ribbon furnace quarry tunnel valley whistle candle feather garden").split()
VERBS = "keeps carries follows lifts measures paints covers guards repairs sells crosses answers brings turns leaves".split()
ADJECTIVES = "quiet narrow early heavy silver distant northern careful wooden bitter gentle hollow modern ragged simple".split()


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def sentence(self, least=7):
        pick = self.random.choice
        parts = ["The", pick(ADJECTIVES), pick(NOUNS), pick(VERBS), "the", pick(ADJECTIVES), pick(NOUNS)]
        while len(parts) < least + self.random.randrange(6):
            parts += [pick(["near", "under", "behind", "beside"]), "the", pick(ADJECTIVES), pick(NOUNS)]
        return " ".join(parts) + "."

    def sentences(self, n):
        made = {}
        while len(made) < n:
            made[self.sentence()] = True
        return list(made)


def wrap(text, room, size, font="F"):
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}".strip()
        if line and width(longer, size, font) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    return lines + [line]


def justified(page, x, y, line, room, size, font="F"):
    words = line.split(" ")
    gap = (room - sum(width(word, size, font) for word in words)) / max(len(words) - 1, 1)
    for word in words:
        page.text(x, y, word, size, font)
        x += width(word, size, font) + gap


def flow(page, x, y, room, text, size=10, leading=None, font="F", justify=False, indent=0, most=None):
    """Writes lines; returns y behind the last and the lines that did not fit."""
    leading = leading or 1.2 * size
    lines = wrap(" " * 0 + text, room - indent, size, font) if indent else wrap(text, room, size, font)
    for i, line in enumerate(lines):
        if most is not None and i == most:
            return y, " ".join(lines[i:])
        left = x + (indent if i == 0 else 0)
        if justify and i + 1 < len(lines):
            justified(page, left, y, line, room - (left - x), size, font)
        else:
            page.text(left, y, line, size, font)
        y += leading
    return y, ""


class Case:
    def __init__(self, name, pages, sentences=(), absent=(), cells=(), blocks=(), **options):
        self.name, self.pages, self.sentences, self.absent = name, pages, list(sentences), list(absent)
        self.cells, self.blocks, self.options = list(cells), list(blocks), options


CASES = []


def case(function):
    CASES.append(function)
    return function


def columns(seed, edges, justify, size=10, lines=30, per=3):
    """Paragraphs that run through columns from the left, each from the line at which it left the one before."""
    writer, page = Writer(seed), Page()
    sentences = writer.sentences(40)
    text, used = " ".join(sentences), []
    for left, right in edges:
        _, text = flow(page, left, 90, right - left, text, size, justify=justify, most=lines)
    whole = " ".join(sentences)[:len(" ".join(sentences)) - len(text)]
    used = [one for one in sentences if one in whole]
    return page, used


@case
def one_column():
    writer, page = Writer(1), Page()
    y, sentences = 90, writer.sentences(18)
    for i in range(0, 18, 6):
        y, _ = flow(page, 72, y, 450, " ".join(sentences[i:i + 6]), 11)
        y += 8
    return Case("one column", [page], sentences)


@case
def indented():
    writer, page = Writer(2), Page()
    y, sentences = 90, writer.sentences(18)
    for i in range(0, 18, 6):
        y, _ = flow(page, 72, y, 450, " ".join(sentences[i:i + 6]), 11, justify=True, indent=18)
    return Case("indented paragraphs", [page], sentences, blocks=[("paragraph", sentences[6]), ("paragraph", sentences[12])])


@case
def two_columns():
    page, used = columns(3, [(60, 285), (310, 535)], True)
    return Case("two columns", [page], used)


@case
def two_columns_ragged():
    page, used = columns(4, [(60, 285), (310, 535)], False)
    return Case("two columns, ragged", [page], used)


@case
def two_columns_near():
    page, used = columns(5, [(60, 292), (300, 532)], True)
    return Case("two columns, narrow gutter", [page], used)


@case
def three_columns():
    page, used = columns(6, [(50, 200), (222, 372), (394, 544)], True, size=9, lines=40)
    return Case("three columns", [page], used)


@case
def columns_shifted():
    """The right column's lines stand half a line lower."""
    writer, page = Writer(7), Page()
    sentences = writer.sentences(20)
    _, rest = flow(page, 60, 90, 225, " ".join(sentences), 10, justify=True, most=24)
    flow(page, 310, 95.5, 225, rest, 10, justify=True)
    return Case("columns half a line apart", [page], sentences)


def bands(seed, heading_x, heading):
    writer, page = Writer(seed), Page()
    sentences, y, all_used = writer.sentences(36), 90, []
    page.text(heading_x(heading[0], 14), y, heading[0], 14, "B")
    y += 26
    for half in (sentences[:18], sentences[18:]):
        lines = wrap(" ".join(half), 225, 10)
        left, right = lines[:(len(lines) + 1) // 2], lines[(len(lines) + 1) // 2:]
        for i, line in enumerate(left):
            page.text(60, y + 12 * i, line, 10)
        for i, line in enumerate(right):
            page.text(310, y + 12 * i, line, 10)
        all_used += half
        y += 12 * len(left) + 16
        if half is not sentences[18:] and len(heading) > 1 and half == sentences[:18]:
            page.text(heading_x(heading[1], 14), y, heading[1], 14, "B")
            y += 26
    order = [heading[0], *sentences[:18], heading[1], *sentences[18:]]
    return Case("", [page], order, blocks=[("heading", heading[0]), ("heading", heading[1])])


@case
def bands_wide():
    made = bands(8, lambda text, size: 60, ["The harbour and everything that was carried through it in summer", "What the "
                 "orchard gave in the years that followed the flood"])
    made.name = "bands under wide headings"
    return made


@case
def bands_centered():
    made = bands(9, lambda text, size: 297 - width(text, size, "B") / 2, ["Before the flood", "After the flood"])
    made.name = "bands under centered headings"
    return made


@case
def bands_short():
    made = bands(10, lambda text, size: 60, ["Before", "After"])
    made.name = "bands under short headings"
    return made


@case
def sidebar():
    writer, page = Writer(11), Page()
    sentences, side = writer.sentences(24), writer.sentences(4)
    y, rest = flow(page, 60, 90, 475, " ".join(sentences), 10, most=8)
    _, rest = flow(page, 60, y, 330, rest, 10, most=14)
    page.box(410, y - 10, 540, y + 14 * 12 - 6, fill=0.92)
    flow(page, 418, y + 4, 114, " ".join(side), 8)
    flow(page, 60, y + 14 * 12, 475, rest, 10)
    return Case("sidebar in a shade", [page], sentences, side=side)


@case
def sidebar_same_size():
    writer, page = Writer(111), Page()
    sentences, side = writer.sentences(24), writer.sentences(3)
    y, rest = flow(page, 60, 90, 475, " ".join(sentences), 10, most=8)
    _, rest = flow(page, 60, y, 330, rest, 10, most=14)
    page.box(410, y - 10, 540, y + 14 * 12 - 6)
    flow(page, 418, y + 4, 114, " ".join(side), 10)
    flow(page, 60, y + 14 * 12, 475, rest, 10)
    return Case("sidebar in a box, same type", [page], sentences, side=side)


@case
def margin_notes():
    writer, page = Writer(12), Page()
    sentences, side = writer.sentences(30), writer.sentences(3)
    flow(page, 60, 90, 340, " ".join(sentences), 10)
    flow(page, 420, 90, 110, side[0], 7.5)
    flow(page, 420, 200, 110, side[1], 7.5)
    return Case("notes in the margin", [page], sentences, side=side[:2])


def with_notes(seed, left=60, room=475, size=10, raised=True):
    """A page whose last sentence goes on overleaf, with a note at its foot."""
    writer = Writer(seed)
    sentences, note, pages = writer.sentences(60), writer.sentences(2), []
    text = " ".join(sentences)
    lines = wrap(text, room, size)
    first, second = Page(), Page()
    per = 40
    for i, line in enumerate(lines[:per]):
        x = first.text(left, 90 + 12 * i, line, size)
        if i == 5 and raised:
            pass
    # The mark stands behind the first full stop of a line that ends a sentence.
    for i, line in enumerate(lines[:per]):
        if line.endswith("."):
            first.text(left + width(line, size), 90 + 12 * i - 3.5, "1", 6)
            break
    y = 90 + 12 * per + 14
    first.line(left, y - 10, left + 120, y - 10, 0.5)
    first.text(left, y - 2.5, "1", 5)
    flow(first, left + 5, y, room, note[0], 8)
    for i, line in enumerate(lines[per:per + 30]):
        second.text(left, 90 + 12 * i, line, size)
    whole = " ".join(lines[:per + 30])
    return Case("", [first, second], [one for one in sentences if one in whole], side=[note[0]],
                blocks=[("footnote", note[0])])


@case
def footnote():
    made = with_notes(13)
    made.name = "a note at the foot, a sentence overleaf"
    return made


@case
def footnote_columns():
    writer, page = Writer(14), Page()
    sentences, note = writer.sentences(40), writer.sentences(2)
    text = " ".join(sentences)
    _, text = flow(page, 60, 90, 225, text, 10, most=40, justify=True)
    page.line(60, 584, 150, 584, 0.5)
    page.text(60, 594, "* " + note[0][:40], 8)
    page.text(60, 604, note[0][41:], 8)
    _, rest = flow(page, 310, 90, 225, text, 10, most=40, justify=True)
    whole = " ".join(sentences)[:len(" ".join(sentences)) - len(rest)]
    return Case("a note under the left column", [page], [one for one in sentences if one in whole])


@case
def hyphens():
    page = Page()
    lines = ["The committee found that the develop-", "ment of the northern harbour was a well-", "known matter, and that its adminis-",
             "tration kept every ledger. A well-known", "matter it was for the Anglo-", "Saxon settlers as well."]
    for i, line in enumerate(lines):
        page.text(72, 90 + 13 * i, line, 11)
    return Case("hyphens", [page], [
        "The committee found that the development of the northern harbour was a well-known matter, and that its administration kept every ledger.",
        "A well-known matter it was for the Anglo-Saxon settlers as well."])


@case
def soft_hyphens():
    page = Page()
    page.text(72, 90, "The lantern was repaired and the furn\xad", 11)
    page.text(72, 103, "ace was lit again before the winter came.", 11)
    return Case("soft hyphens", [page], ["The lantern was repaired and the furnace was lit again before the winter came."])


@case
def hyphen_pages():
    writer, first, second = Writer(15), Page(), Page()
    sentences = writer.sentences(6)
    y, _ = flow(first, 72, 90, 450, " ".join(sentences[:3]), 11)
    first.text(72, y, "The surveyor of the valley wrote a report on the con-", 11)
    second.text(72, 90, "struction of the tunnel.", 11)
    flow(second, 72, 104, 450, " ".join(sentences[3:]), 11)
    return Case("a word over two pages", [first, second],
                sentences[:3] + ["The surveyor of the valley wrote a report on the construction of the tunnel."] + sentences[3:])


@case
def ligatures():
    page = Page()
    page.text(72, 90, "The \ufb01rst \ufb02ood of the year \ufb01lled the of\ufb01ce.", 11)
    return Case("ligatures", [page], ["The first flood of the year filled the office."])


@case
def drop_capital():
    page = Page()
    page.text(72, 116, "T", 38)
    left = 72 + width("T", 38) + 3
    page.text(left, 90, "he early ferry crosses the narrow valley near", 11)
    page.text(left, 103, "the market. It carries barley, linen and a", 11)
    page.text(left, 116, "copper kettle for the people of the quarry, who", 11)
    page.text(72, 129, "wait for it under the old willow.", 11)
    return Case("a drop capital", [page], ["The early ferry crosses the narrow valley near the market.",
                                           "It carries barley, linen and a copper kettle for the people of the quarry, who wait for it under the old willow."])


@case
def wide_set():
    writer, page = Writer(16), Page()
    sentences = writer.sentences(4)
    page.text(72, 80, "R E P O R T", 16, "B")
    flow(page, 72, 110, 450, " ".join(sentences), 11)
    return Case("wide-set letters", [page], ["REPORT", *sentences])


def book(seed, n, head, foot, per=34, alternate=False):
    """Pages of prose with heads and feet."""
    writer, pages = Writer(seed), []
    sentences = writer.sentences(26 * n)
    text = " ".join(sentences)
    lines = wrap(text, 450, 11)
    for i in range(n):
        page = Page()
        for j, line in enumerate(lines[per * i:per * (i + 1)]):
            page.text(72, 100 + 14 * j, line, 11)
        for what, y in ((head, 50), (foot, 800)):
            if what:
                said = what(i)
                x = 72 if not alternate or i % 2 == 0 else 523 - width(said, 9)
                page.text(x, y, said, 9)
        pages.append(page)
    whole = " ".join(lines[:per * n])
    return pages, [one for one in sentences if one in whole]


@case
def running_head():
    pages, used = book(17, 6, lambda i: "Annual report of the harbour office", lambda i: str(i + 1))
    return Case("running head and numbers", pages, used, absent=["Annual report of the harbour office"])


@case
def running_alternate():
    pages, used = book(18, 8, lambda i: "The northern valley" if i % 2 else "A history of ferries", lambda i: f"Page {i + 1} of 8", alternate=True)
    return Case("heads of left and right pages", pages, used, absent=["The northern valley", "A history of ferries", "Page 3 of 8"])


@case
def running_roman():
    pages, used = book(19, 5, None, lambda i: f"- {['iii', 'iv', 'v', 'vi', 'vii'][i]} -")
    return Case("roman numbers", pages, used, absent=["- iv -"])


@case
def running_three():
    pages, used = book(20, 3, lambda i: "Draft for the council", lambda i: f"Version 2, page {i + 1}")
    return Case("three pages with a head", pages, used, absent=["Draft for the council", "Version 2, page"])


@case
def running_chapters():
    pages, used = book(21, 12, lambda i: f"Chapter {1 + i // 6}: {'Lanterns' if i < 6 else 'Bridges'}      {i + 10}", None)
    return Case("heads by chapter", pages, used, absent=["Chapter 1: Lanterns", "Chapter 2: Bridges"])


@case
def two_pages_kept():
    """Two pages are too few to tell."""
    pages, used = book(22, 2, lambda i: "Minutes of the meeting", None)
    return Case("two pages keep their heads", pages, ["Minutes of the meeting"])


@case
def hidden():
    writer, page = Writer(23), Page()
    sentences = writer.sentences(8)
    y, _ = flow(page, 72, 90, 450, " ".join(sentences), 11)
    page.text(72, y + 20, "White words on white paper tell nothing.", 11, colour=1)
    page.text(72, y + 40, "Invisible words of the third mode.", 11, mode=3)
    page.text(72, y + 60, "Words under a white sheet.", 11)
    page.box(70, y + 48, 400, y + 66, fill=1)
    page.text(72, -40, "Words above the page.", 11)
    return Case("hidden text", [page], sentences, absent=["White words", "Invisible words", "white sheet", "above the page"])


@case
def watermark():
    writer, page = Writer(24), Page()
    sentences = writer.sentences(24)
    page.text(150, 600, "CONFIDENTIAL", 70, "B", colour=0.85, angle=45)
    flow(page, 72, 90, 450, " ".join(sentences), 11)
    return Case("a watermark", [page], sentences, absent=["CONFIDENTIAL"])


@case
def reversed_order():
    writer, page = Writer(25), Page()
    sentences = writer.sentences(20)
    flow(page, 72, 90, 450, " ".join(sentences), 11)
    page.ops.reverse()
    return Case("lines drawn backwards", [page], sentences)


@case
def shuffled_words():
    writer, page = Writer(26), Page()
    sentences = writer.sentences(12)
    for i, line in enumerate(wrap(" ".join(sentences), 450, 11)):
        x = 72
        for word in line.split(" "):
            page.text(x, 90 + 14 * i, word, 11)
            x += width(word + " ", 11)
    random.Random(5).shuffle(page.ops)
    return Case("words drawn in any order", [page], sentences)


@case
def line_numbers():
    writer, page = Writer(27), Page()
    sentences = writer.sentences(24)
    for i, line in enumerate(wrap(" ".join(sentences), 420, 11)):
        page.text(100, 90 + 16 * i, line, 11)
        page.text(70, 90 + 16 * i, str(i + 1), 8)
    return Case("numbers of lines in the margin", [page], sentences)


@case
def code():
    writer, page = Writer(28), Page()
    sentences = writer.sentences(6)
    y, _ = flow(page, 72, 90, 450, " ".join(sentences[:3]), 11)
    lines = ["def ferry(loads):", "    total = 0", "    for load in loads:", "        if load > 3:", "            total += load", "    return total"]
    for i, line in enumerate(lines):
        blanks = len(line) - len(line.lstrip())
        page.text(90 + 6 * blanks, y + 10 + 12 * i, line.strip(), 10, "C")
    flow(page, 72, y + 100, 450, " ".join(sentences[3:]), 11)
    return Case("code", [page], [*sentences[:3], "\n".join(lines), *sentences[3:]], blocks=[("code", "def ferry")])


@case
def contents_dotted():
    writer, page = Writer(29), Page()
    sentences = writer.sentences(5)
    page.text(72, 80, "Contents", 16, "B")
    entries = [("1 The harbour", "3"), ("2 The orchard and its walls", "9"), ("2.1 Stone", "11"), ("2.2 Wood", "14"), ("3 The ferry", "21")]
    for i, (name, number) in enumerate(entries):
        x = page.text(72, 110 + 16 * i, name + " ", 11)
        dots = "." * int((500 - x) / width(".", 11))
        page.text(x, 110 + 16 * i, dots, 11)
        page.text(510, 110 + 16 * i, number, 11)
    flow(page, 72, 250, 450, " ".join(sentences), 11)
    return Case("contents with dots", [page], sentences, blocks=[("contents", "The orchard and its walls"), ("contents", "3 The ferry")])


@case
def contents_plain():
    writer, page = Writer(30), Page()
    sentences = writer.sentences(5)
    page.text(72, 80, "Contents", 16, "B")
    entries = [("The harbour", "3"), ("The orchard and its walls", "9"), ("Stone", "11"), ("Wood", "14"), ("The ferry", "21")]
    for i, (name, number) in enumerate(entries):
        page.text(72, 110 + 16 * i, name, 11)
        page.text(510 - width(number, 11), 110 + 16 * i, number, 11)
    flow(page, 72, 250, 450, " ".join(sentences), 11)
    return Case("contents without dots", [page], sentences, blocks=[("contents", "The orchard and its walls")])


@case
def lists():
    writer, page = Writer(31), Page()
    items, y = writer.sentences(6), 90
    for i, item in enumerate(items):
        mark, x = ("\u2022", 80) if i < 3 else (f"{i - 2}.", 80)
        page.text(x, y, mark, 11)
        y, _ = flow(page, x + 16, y, 220, item, 11)
    return Case("lists", [page], items, blocks=[("item", items[1]), ("item", items[4])])


@case
def headings():
    writer, page = Writer(32), Page()
    sentences, y = writer.sentences(12), 80
    page.text(72, y, "Ferries of the north", 20, "B")
    y += 30
    for i, name in enumerate(("1 The boats", "2 The people")):
        page.text(72, y, name, 14, "B")
        y, _ = flow(page, 72, y + 20, 450, " ".join(sentences[6 * i:6 * i + 3]), 10)
        page.text(72, y + 8, "Bold words", 10, "B")
        y, _ = flow(page, 72, y + 22, 450, " ".join(sentences[6 * i + 3:6 * i + 6]), 10)
        y += 12
    return Case("headings", [page], ["Ferries of the north", "1 The boats", *sentences[:3], "Bold words", *sentences[3:6], "2 The people"],
                blocks=[("heading", "Ferries of the north"), ("heading", "1 The boats"), ("heading", "Bold words"), ("heading", "2 The people")])


@case
def bookmarked():
    writer, page = Writer(33), Page()
    sentences = writer.sentences(8)
    page.text(72, 80, "Plain words that are a title", 10)
    y, _ = flow(page, 72, 100, 450, " ".join(sentences), 10)
    return Case("a bookmark names a heading", [page], ["Plain words that are a title", *sentences],
                blocks=[("heading", "Plain words that are a title")], bookmarks=[("Plain words that are a title", 0)])


def turned(name, seed, **frame):
    writer, page = Writer(seed), Page(**frame)
    sentences = writer.sentences(12)
    # Drawn so that the text is upright once the page is turned.
    w, h = page.size
    turn = {0: "", 90: f"0 1 -1 0 {w} 0 cm", 180: f"-1 0 0 -1 {w} {h} cm", 270: f"0 -1 1 0 0 {h} cm"}[page.rotate]
    inner = Page(size=(h, w) if page.rotate % 180 else (w, h))
    flow(inner, 120, 160, 300, " ".join(sentences), 11)
    page.raw(turn)
    page.ops += inner.ops
    page.boxes = inner.boxes
    if page.crop:
        page.boxes = [(word, x0 - page.crop[0], y0 - page.crop[1], x1 - page.crop[0], y1 - page.crop[1]) for word, x0, y0, x1, y1 in inner.boxes]
    return Case(name, [page], sentences, boxes=True)


@case
def turned_90():
    return turned("page turned by 90", 34, rotate=90)


@case
def turned_180():
    return turned("page turned by 180", 35, rotate=180)


@case
def turned_270():
    return turned("page turned by 270", 36, rotate=270)


@case
def cropped():
    return turned("cropped page", 37, crop=(50, 60, 560, 800))


@case
def moved_origin():
    return turned("origin not at zero", 38, origin=(100, 200))


@case
def moved_below():
    return turned("origin below zero, cropped", 39, origin=(-300, -421), crop=(20, 30, 580, 830))


@case
def user_unit():
    return turned("user unit", 40, unit=2)


@case
def sideways():
    """A page whose text was drawn on its side, without /Rotate."""
    writer, page = Writer(41), Page()
    sentences = writer.sentences(12)
    inner = Page(size=(842, 595))
    flow(inner, 120, 160, 500, " ".join(sentences), 11)
    page.raw("0 1 -1 0 595 0 cm")
    page.ops += inner.ops
    return Case("text on its side", [page], sentences)


@case
def journal():
    """Two columns on several pages, with heads, numbers and a note on each; sentences go on overleaf."""
    writer, pages = Writer(42), []
    sentences, notes = writer.sentences(150), writer.sentences(3)
    text = " ".join(sentences)
    for i in range(3):
        page = Page()
        page.text(60, 50, "Journal of ferries and bridges", 8, "I")
        page.text(290, 810, str(100 + i), 9)
        for k, (left, right) in enumerate([(60, 285), (310, 535)]):
            _, text = flow(page, left, 90, right - left, text, 10, justify=True, most=44 if k else 40)
        page.line(60, 580, 140, 580, 0.4)
        page.text(60, 589.5, str(i + 1), 5)
        flow(page, 64, 592, 220, notes[i], 8)
        pages.append(page)
    whole = " ".join(sentences)[:len(" ".join(sentences)) - len(text)]
    return Case("two columns over pages with notes", pages, [one for one in sentences if one in whole],
                absent=["Journal of ferries", "101"], side=notes)


@case
def nested_lists():
    writer, page = Writer(43), Page()
    items, y = writer.sentences(6), 90
    for i, item in enumerate(items):
        x = 80 if i % 3 == 0 else 110
        page.text(x, y, "\u2022" if x == 80 else "-", 11)
        y, _ = flow(page, x + 14, y, 300, item, 11)
    return Case("nested lists", [page], items, blocks=[("item", items[0]), ("item", items[1]), ("item", items[3])])


@case
def figure():
    """A picture with a caption at the top of the right column, between the halves of a sentence."""
    writer, page = Writer(44), Page()
    sentences = writer.sentences(30)
    _, text = flow(page, 60, 90, 225, " ".join(sentences), 10, justify=True, most=40)
    page.image(310, 80, 535, 230)
    page.text(310, 245, "Figure 1: A lantern of the harbour", 8)
    flow(page, 310, 270, 225, text, 10, justify=True)
    return Case("a figure at the top of a column", [page], sentences, side=["Figure 1: A lantern of the harbour"],
                blocks=[("caption", "Figure 1: A lantern")])


@case
def title_page():
    writer, page = Writer(45), Page()
    sentences = writer.sentences(30)
    for i, line in enumerate(["On the quiet harbours", "of the northern valley"]):
        page.text(297 - width(line, 18, "B") / 2, 80 + 22 * i, line, 18, "B")
    page.text(297 - width("Anna Berg and Jon Holm", 11) / 2, 130, "Anna Berg and Jon Holm", 11)
    page.text(297 - width("Abstract", 10, "B") / 2, 160, "Abstract", 10, "B")
    y, _ = flow(page, 110, 176, 375, " ".join(sentences[:5]), 9, justify=True)
    lines = wrap(" ".join(sentences[5:]), 225, 10)
    half = (len(lines) + 1) // 2
    for k, part in enumerate((lines[:half], lines[half:])):
        for i, line in enumerate(part):
            page.text(60 + 250 * k, y + 20 + 12 * i, line, 10)
    return Case("title, abstract and two columns", [page], ["On the quiet harbours of the northern valley", "Abstract", *sentences],
                blocks=[("heading", "On the quiet harbours")])


@case
def boxed():
    """A box around a paragraph is no table."""
    writer, page = Writer(46), Page()
    sentences = writer.sentences(12)
    y, _ = flow(page, 72, 90, 450, " ".join(sentences[:4]), 10)
    page.box(68, y + 4, 526, y + 60)
    flow(page, 76, y + 20, 440, " ".join(sentences[4:7]), 10)
    flow(page, 72, y + 80, 450, " ".join(sentences[7:]), 10)
    return Case("a box around a paragraph", [page], sentences)


@case
def underlined():
    writer, page = Writer(47), Page()
    sentences = writer.sentences(8)
    for i, line in enumerate(wrap(" ".join(sentences), 450, 11)):
        page.text(72, 90 + 15 * i, line, 11)
        page.line(72, 92 + 15 * i, 72 + width(line, 11), 92 + 15 * i, 0.5)
    return Case("underlined text", [page], sentences)


@case
def table_on_its_side():
    """Below an upright title most of the page is turned; the names of an axis that is turned are left out elsewhere."""
    writer, page, other = Writer(48), Page(), Page()
    sentences = writer.sentences(10)
    page.text(72, 60, "Appendix A. The quiet harbours", 14, "B")
    for i, line in enumerate(wrap(" ".join(sentences[:6]), 600, 11)):
        page.text(120 + 14 * i, 780, line, 11, angle=90)
    flow(other, 72, 90, 450, " ".join(sentences[6:]), 11)
    other.text(60, 500, "Tons of silt", 9, angle=90)
    return Case("a page on its side under an upright title", [page, other], ["Appendix A. The quiet harbours", *sentences], absent=["Tons of silt"])


import tables  # noqa: E402,F401  adds its cases
