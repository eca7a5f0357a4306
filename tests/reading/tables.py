"""Tables on pages for layouts.py: with lines and without, merged heads, lines in cells, over pages."""
import random

from layouts import Case, Writer, case, flow, wrap
from make_pdf import Page, width

BOATS = ["Kayak", "Rowing boat", "Sailing boat", "Raft", "Canoe", "Tender", "Barge", "Gig"]
COASTS = ["Northern coast", "Southern coast", "River mouth"]
TOWNS = ["Oakhurst", "Penbury", "Stonehaven", "Millbrook", "Fairlight", "Kestrel Bay"]


def put(page, x0, x1, y, text, size, align, font="F"):
    left = {"l": x0 + 4, "r": x1 - 4 - width(text, size, font), "c": (x0 + x1 - width(text, size, font)) / 2}[align]
    page.text(left, y, text, size, font)


def plain_cells(heads, rows):
    return [([row[0]], [head], value) for row in rows for head, value in zip(heads[1:], row[1:]) if value]


def numbers(seed, heads, names, least=100, most=99999):
    chance = random.Random(seed)
    return [[name] + [f"{chance.randrange(least, most):,}" for _ in heads[1:]] for name in names]


def draw(page, edges, y, heads, rows, lines="all", bold=True, size=9, step=16, aligns=None, shade=False):
    """One line a row; returns y behind it."""
    aligns = aligns or "l" + "r" * (len(heads) - 1)
    top, all_rows = y, [heads] + rows
    for i, row in enumerate(all_rows):
        if shade and i % 2 == 1:
            page.box(edges[0], y, edges[-1], y + step, fill=0.9)
        for j, text in enumerate(row):
            put(page, edges[j], edges[j + 1], y + step - 5, text, size, aligns[j], "B" if i == 0 and bold else "F")
        if lines == "all" or (lines == "book" and i in (0, 1)) or (lines == "rows"):
            page.line(edges[0], y, edges[-1], y)
        y += step
    if lines in ("all", "book", "rows"):
        page.line(edges[0], y, edges[-1], y)
    if lines in ("all", "frame"):
        for x in edges:
            page.line(x, top, x, y)
    if lines == "frame":
        for at in (top, top + step, y):
            page.line(edges[0], at, edges[-1], at)
    return y


HEADS = ["Boat", "weekday", "weekend", "holiday", "deposit"]
EDGES = [72, 190, 270, 350, 430, 520]


def simple(name, seed, heads=HEADS, names=BOATS, edges=EDGES, **how):
    writer, page = Writer(seed), Page()
    sentences = writer.sentences(8)
    rows = numbers(seed, heads, names)
    y, _ = flow(page, 72, 90, 450, " ".join(sentences[:4]), 10)
    y = draw(page, edges, y + 12, heads, rows, **how)
    flow(page, 72, y + 26, 450, " ".join(sentences[4:]), 10)
    return Case(name, [page], sentences, cells=plain_cells(heads, rows))


@case
def ruled():
    return simple("table with all lines", 50)


@case
def ruled_plain_head():
    return simple("table with all lines, head not bold", 51, bold=False)


@case
def framed():
    return simple("table with lines between columns only", 52, lines="frame")


@case
def book():
    return simple("table with three lines", 53, lines="book")


@case
def row_lines():
    return simple("table with lines between rows", 54, lines="rows")


@case
def bare():
    return simple("table without lines", 55, lines="none")


@case
def bare_plain():
    return simple("table without lines, head not bold", 56, lines="none", bold=False)


@case
def shaded():
    return simple("table with shades", 57, lines="none", shade=True)


@case
def bare_close():
    return simple("table without lines, close columns", 58, edges=[72, 150, 200, 250, 300, 350], lines="none")


@case
def two_wide():
    return simple("table of two columns", 59, heads=["Town", "People"], names=TOWNS, edges=[72, 200, 280], lines="none")


@case
def ruled_texts():
    writer, page = Writer(60), Page()
    heads = ["Boat", "Where", "Who may take it", "Note"]
    chance = random.Random(60)
    rows = [[name, chance.choice(TOWNS), chance.choice(["members", "guests", "children", "everyone"]), chance.choice(["dry hull", "new sail", "old oars"])]
            for name in BOATS]
    draw(page, [72, 180, 290, 410, 520], 100, heads, rows, aligns="llll")
    return Case("table of texts with lines", [page], cells=plain_cells(heads, rows))


@case
def empty_cells():
    page, heads, rows = Page(), HEADS, numbers(61, HEADS, BOATS)
    for i, j in ((0, 2), (2, 1), (3, 4), (5, 3), (6, 1), (6, 2)):
        rows[i][j] = ""
    draw(page, EDGES, 100, heads, rows)
    return Case("empty cells with lines", [page], cells=plain_cells(heads, rows))


@case
def empty_cells_bare():
    page, heads, rows = Page(), HEADS, numbers(62, HEADS, BOATS)
    for i, j in ((0, 2), (2, 1), (3, 4), (5, 3), (6, 1), (6, 2)):
        rows[i][j] = ""
    draw(page, EDGES, 100, heads, rows, lines="none")
    return Case("empty cells without lines", [page], cells=plain_cells(heads, rows))


def merged(name, seed, lines):
    """Two levels of heads over columns, and of names before rows."""
    page = Page()
    edges, y, step, size = [60, 150, 230, 300, 370, 440, 510], 100, 18, 9
    years, seasons = ["2019", "2020"], ["Spring", "Autumn"]
    rows = [(COASTS[i // 2], TOWNS[i]) for i in range(6)]
    values = numbers(seed, [""] * 5, [town for _, town in rows])
    for k, year in enumerate(years):
        put(page, edges[2 + 2 * k], edges[4 + 2 * k], y + 12, year, size, "c", "B")
        for s, season in enumerate(seasons):
            put(page, edges[2 + 2 * k + s], edges[3 + 2 * k + s], y + step + 12, season, size, "r", "B")
    put(page, edges[0], edges[1], y + step + 12, "Coast", size, "l", "B")
    put(page, edges[1], edges[2], y + step + 12, "Town", size, "l", "B")
    cells = []
    for i, (coast, town) in enumerate(rows):
        top = y + (2 + i) * step
        if i % 2 == 0:
            put(page, edges[0], edges[1], top + 12, coast, size, "l")
        put(page, edges[1], edges[2], top + 12, town, size, "l")
        for j, value in enumerate(values[i][1:]):
            put(page, edges[2 + j], edges[3 + j], top + 12, value, size, "r")
            cells.append(([coast, town], [years[j // 2], seasons[j % 2]], value))
    bottom = y + 8 * step
    if lines == "all":
        for at in (y, y + 2 * step, bottom):
            page.line(edges[0], at, edges[-1], at)
        page.line(edges[2], y + step, edges[-1], y + step)
        for i in range(1, 6):
            page.line(edges[1] if i % 2 else edges[0], y + (2 + i) * step, edges[-1], y + (2 + i) * step)
        for x in (edges[0], edges[1], edges[2], edges[4], edges[6]):
            page.line(x, y, x, bottom)
        for x in (edges[3], edges[5]):
            page.line(x, y + step, x, bottom)
    elif lines == "book":
        for at in (y, y + 2 * step, bottom):
            page.line(edges[0], at, edges[-1], at, 0.8)
        for k in range(2):
            page.line(edges[2 + 2 * k] + 6, y + step, edges[4 + 2 * k] - 4, y + step, 0.4)
    return Case(name, [page], cells=cells)


@case
def merged_ruled():
    return merged("merged heads with lines", 63, "all")


@case
def merged_book():
    return merged("merged heads with three lines", 64, "book")


@case
def merged_bare():
    return merged("merged heads without lines", 65, "none")


def several_lines(name, seed, lines):
    page, chance = Page(), random.Random(seed)
    heads, edges, y, size = ["Work", "What is done", "Days", "Cost"], [72, 170, 400, 455, 520], 100, 9
    works = ["Mast", "Hull below the water", "Rudder", "Deck", "Sails and ropes"]
    writer, cells = Writer(seed), []
    rows = [[work, writer.sentence(9)[:-1], str(chance.randrange(2, 40)), f"{chance.randrange(200, 9000)}"] for work in works]
    ys = [y]
    for i, row in enumerate([heads] + rows):
        high = 1
        for j, text in enumerate(row):
            parts = wrap(text, edges[j + 1] - edges[j] - 8, size)
            for k, part in enumerate(parts):
                put(page, edges[j], edges[j + 1], y + 12 + 11 * k, part, size, "r" if j > 1 else "l", "B" if i == 0 else "F")
            high = max(high, len(parts))
        if i:
            cells += [([row[0]], [head], value) for head, value in zip(heads[1:], row[1:])]
        y += 11 * high + 8
        ys.append(y)
    if lines == "all":
        for x in edges:
            page.line(x, ys[0], x, ys[-1])
        for at in ys:
            page.line(edges[0], at, edges[-1], at)
    elif lines == "rows":
        for at in ys:
            page.line(edges[0], at, edges[-1], at)
    return Case(name, [page], cells=cells)


@case
def lines_ruled():
    return several_lines("lines in cells, all lines", 66, "all")


@case
def lines_rows():
    return several_lines("lines in cells, lines between rows", 67, "rows")


@case
def lines_bare():
    return several_lines("lines in cells, no lines", 68, "none")


def long_table(name, seed, repeated, lines):
    heads, rows = HEADS, numbers(seed, HEADS, [f"Boat {i}" for i in range(1, 91)])
    pages = []
    for i in range(0, 90, 30):
        page = Page()
        page.text(72, 40, "Prices of the boathouse", 8)
        if repeated or i == 0:
            draw(page, EDGES, 80, heads, rows[i:i + 30], lines=lines)
        else:
            draw(page, EDGES, 80, rows[i], rows[i + 1:i + 30], lines=lines, bold=False)
        pages.append(page)
    return Case(name, pages, cells=plain_cells(heads, rows))


@case
def long_repeated():
    return long_table("a table over three pages, its head repeated", 69, True, "all")


@case
def long_once():
    return long_table("a table over three pages, its head once", 70, False, "all")


@case
def long_bare():
    return long_table("a table over three pages without lines", 71, True, "none")


@case
def in_columns():
    writer, page = Writer(72), Page()
    sentences = writer.sentences(26)
    heads, rows = ["Boat", "hours", "price"], numbers(72, ["", "", ""], BOATS[:5], 10, 999)
    y, rest = flow(page, 60, 90, 225, " ".join(sentences), 10, most=14, justify=True)
    y = draw(page, [60, 150, 215, 285], y + 4, heads, rows, lines="none", step=14)
    _, rest = flow(page, 60, y + 18, 225, rest, 10, most=14, justify=True)
    flow(page, 310, 90, 225, rest, 10, justify=True)
    return Case("a table within a column", [page], sentences, cells=plain_cells(heads, rows))


@case
def captioned():
    made = simple("table under its caption", 73, lines="book")
    made.pages[0].text(72, 70, "Table 1. Prices of boats in shillings", 9, "I")
    return made



@case
def odd_values():
    page, heads = Page(), ["Item", "Change", "Share", "Result", "Until"]
    rows = [["Lanterns", "-3.5 %", "(1,204)", "n/a", "12 May 2021"], ["Ropes", "+0.7 %", "(88)", "\u2013", "3 June 2022"],
            ["Barley (dry)", "12 %", "4,000 (est.)", "$1.50", "1 July 2020"], ["Linen", "0", "17 kg", "\u20ac 30", "9 March 2019"]]
    draw(page, EDGES, 100, heads, rows, lines="none", aligns="lrrrr")
    return Case("signs, units and dates without lines", [page], cells=plain_cells(heads, rows))


@case
def years():
    return simple("rows named by years", 74, heads=["Year", "Ferries", "Bridges", "Tunnels"], names=[str(year) for year in range(2001, 2009)],
                  edges=[72, 150, 250, 350, 450], lines="book")


@case
def years_across():
    return simple("columns named by years", 75, heads=["Town", "2018", "2019", "2020"], names=TOWNS, edges=[72, 190, 280, 370, 460], lines="none",
                  bold=False)


def two_line_heads(name, seed, lines):
    page = Page()
    heads = [["", "Boats in", "Boats in", "Price of"], ["Town", "the harbour", "the river", "a day"]]
    names = ["Town", "Boats in the harbour", "Boats in the river", "Price of a day"]
    rows = numbers(seed, names, TOWNS)
    edges, y = [72, 180, 290, 400, 510], 100
    for k, row in enumerate(heads):
        for j, text in enumerate(row):
            put(page, edges[j], edges[j + 1], y + 11 + 11 * k, text, 9, "l" if j == 0 else "r", "B")
    top = y + 28
    for i, row in enumerate(rows):
        for j, text in enumerate(row):
            put(page, edges[j], edges[j + 1], top + 11 + 16 * i, text, 9, "l" if j == 0 else "r")
    bottom = top + 16 * len(rows)
    if lines != "none":
        for at in (y, top, bottom):
            page.line(edges[0], at, edges[-1], at)
    if lines == "all":
        for i in range(1, len(rows)):
            page.line(edges[0], top + 16 * i, edges[-1], top + 16 * i)
        for x in edges:
            page.line(x, y, x, bottom)
    return Case(name, [page], cells=plain_cells(names, rows))


@case
def heads_two_lines_ruled():
    return two_line_heads("heads of two lines, all lines", 76, "all")


@case
def heads_two_lines_book():
    return two_line_heads("heads of two lines, three lines", 77, "book")


@case
def heads_two_lines_bare():
    return two_line_heads("heads of two lines, no lines", 78, "none")


@case
def merged_body():
    """A value that two columns share, between lines."""
    page = Page()
    edges, heads = [72, 190, 290, 390, 490], ["Boat", "May", "June", "July"]
    rows = [["Kayak", "120", "130", "140"], ["Raft", "closed", None, "150"], ["Canoe", "160", "170", "180"]]
    for i, row in enumerate([heads] + rows):
        y = 100 + 18 * i
        page.line(edges[0], y, edges[-1], y)
        for j, text in enumerate(row):
            if text is None:
                continue
            last = j + 2 if j + 1 < 4 and row[j + 1] is None else j + 1
            put(page, edges[j], edges[last], y + 12, text, 9, "l" if j == 0 else "c", "B" if i == 0 else "F")
        for j, x in enumerate(edges):
            if not (j < 4 and row[j] is None):
                page.line(x, y, x, y + 18)
    page.line(edges[0], 172, edges[-1], 172)
    cells = plain_cells(heads, [["Kayak", "120", "130", "140"], ["Raft", "closed", "closed", "150"], ["Canoe", "160", "170", "180"]])
    return Case("a value over two columns", [page], cells=cells)


@case
def turned_table():
    """A wide table on a page that is turned."""
    heads, rows = HEADS, numbers(79, HEADS, BOATS)
    inner = Page(size=(842, 595))
    draw(inner, [100, 240, 360, 480, 600, 740], 120, heads, rows)
    page = Page(rotate=90)
    page.raw("0 1 -1 0 595 0 cm")
    page.ops += inner.ops
    return Case("a table on a turned page", [page], cells=plain_cells(heads, rows))


@case
def two_tables():
    page, first, second = Page(), numbers(80, HEADS, BOATS[:4]), numbers(81, ["Town", "ferries", "carts"], TOWNS[:4])
    y = draw(page, EDGES, 90, HEADS, first, lines="book")
    page.text(72, y + 24, "Table 2. Traffic of the towns", 9)
    draw(page, [72, 200, 300, 400], y + 34, ["Town", "ferries", "carts"], second, lines="book")
    return Case("two tables, one below the other", [page], cells=plain_cells(HEADS, first) + plain_cells(["Town", "ferries", "carts"], second))


@case
def dashed():
    """Lines of dashes, and double ones."""
    page, rows = Page(), numbers(82, HEADS, BOATS[:5])
    y, step = 100, 18
    for i, row in enumerate([HEADS] + rows):
        for j, text in enumerate(row):
            put(page, EDGES[j], EDGES[j + 1], y + 12, text, 9, "l" if j == 0 else "r", "B" if i == 0 else "F")
        page.line(EDGES[0], y, EDGES[-1], y, 0.6, dash="[3 2] 0 d")
        if i == 1:
            page.line(EDGES[0], y + 2, EDGES[-1], y + 2, 0.6)
        y += step
    page.line(EDGES[0], y, EDGES[-1], y, 0.6, dash="[3 2] 0 d")
    for x in EDGES:
        page.line(x, 100, x, y, 0.6, grey=0.6)
    return Case("dashed, double and grey lines", [page], cells=plain_cells(HEADS, rows))


@case
def names_over_rows():
    """Rows in groups, each under a name of its own that covers the table."""
    page, heads, cells, y = Page(), ["Boat", "weekday", "weekend"], [], 100
    edges = [72, 220, 320, 420]
    values = numbers(83, heads, BOATS[:6])
    for j, text in enumerate(heads):
        put(page, edges[j], edges[j + 1], y + 12, text, 9, "l" if j == 0 else "r", "B")
    page.line(edges[0], y, edges[-1], y)
    y += 18
    for group in range(2):
        page.line(edges[0], y, edges[-1], y)
        put(page, edges[0], edges[-1], y + 12, COASTS[group], 9, "c", "B")
        y += 18
        for row in values[3 * group:3 * group + 3]:
            page.line(edges[0], y, edges[-1], y)
            for j, text in enumerate(row):
                put(page, edges[j], edges[j + 1], y + 12, text, 9, "l" if j == 0 else "r")
            for x in edges[1:-1]:
                page.line(x, y, x, y + 18)
            cells += [([COASTS[group], row[0]], [head], value) for head, value in zip(heads[1:], row[1:])]
            y += 18
    page.line(edges[0], y, edges[-1], y)
    for x in edges[1:-1]:
        page.line(x, 100, x, 118)
    for x in (edges[0], edges[-1]):
        page.line(x, 100, x, y)
    return Case("names over groups of rows", [page], cells=cells)


@case
def invoice():
    """Pairs of names and values, items under names with a line below them, and sums without names of their own."""
    page = Page()
    page.text(72, 60, "INVOICE", 20, "B")
    pairs = [("Invoice no.", "2026-0417"), ("Date", "3 May 2026"), ("Customer", "Quill & Sons"), ("Due", "17 May 2026")]
    for i, (name, value) in enumerate(pairs):
        page.text(72, 100 + 14 * i, name)
        page.text(180, 100 + 14 * i, value)
    heads, places = ["Item", "Qty", "Unit price", "Amount"], [72, 300, 370, 470]
    rows = [["Kayak, two seats", "2", "290.00", "580.00"], ["Paddle", "4", "25.50", "102.00"], ["Life jacket, large", "3", "40.00", "120.00"]]
    for x, head in zip(places, heads):
        page.text(x, 190, head, 10, "B")
    page.line(72, 194, 540, 194)
    for i, row in enumerate(rows):
        for x, value in zip(places, row):
            page.text(x, 210 + 16 * i, value)
    page.line(72, 262, 540, 262)
    for i, (name, value) in enumerate([("Subtotal", "802.00"), ("VAT 20%", "160.40"), ("Total", "962.40")]):
        page.text(370, 276 + 14 * i, name)
        page.text(470, 276 + 14 * i, value)
    return Case("an invoice", [page], ["INVOICE", *(f"{name} | {value}\n" for name, value in pairs)], cells=plain_cells(heads, rows))
