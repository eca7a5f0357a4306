"""Tables, spreadsheets and other office files: what `retro-index extract` makes of files that are made here, trap by trap."""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import legacy
from offices import docx, odp, odt, p, pptx, rtf, shape, tbl, tc, tr
from workbooks import SPACES, Xlsx, address, ods, ods_content, odf, xlsx, zipped

BUILD = pathlib.Path(os.environ.get("RETRO_BUILD", "build")).resolve()
DATE = datetime.date


def extract(tmp_path, name, content):
    """Its text, and what was said beside it."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = subprocess.run([BUILD / "retro-index", "extract", path], capture_output=True, text=True, timeout=120)
    return done.stdout.rstrip("\n"), done.stderr


def sheet(*rows, **more):
    return [{"name": "Sheet1", "rows": list(rows), **more}]


@pytest.fixture
def shown(tmp_path):
    """The text of a workbook of one sheet."""
    def show(*rows, options={}, **more):
        return extract(tmp_path, "a.xlsx", xlsx(sheet(*rows, **more), **options))[0]
    return show


COUNTS = [["Region", "Site", "2019", None, "2020", None], [None, None, "Spring", "Autumn", "Spring", "Autumn"],
          ["Northern coast", "Oakhurst", 28608, 61937, 1, 2], [None, "Elm", 3, 5, 6, 7], ["South", "Ash", 8, 9, 10, 11.5]]
MERGES = ["C1:D1", "E1:F1", "A1:A2", "B1:B2", "A3:A4"]
COUNTED = """Region | Site | 2019 | 2020
Region | Site | Spring | Autumn | Spring | Autumn
Northern coast, Oakhurst | 2019, Spring: 28,608 | 2019, Autumn: 61937 | 2020, Spring: 1 | 2020, Autumn: 2
Northern coast, Elm | 2019, Spring: 3 | 2019, Autumn: 5 | 2020, Spring: 6 | 2020, Autumn: 7
South, Ash | 2019, Spring: 8 | 2019, Autumn: 9 | 2020, Spring: 10 | 2020, Autumn: 11.5"""


def test_merged_heads_are_repeated(shown):
    assert shown(*COUNTS, merges=MERGES, formats={"C": "#,##0"}) == COUNTED


@pytest.mark.parametrize("options", [{"prefix": "x"}, {"strict": True}, {"inline": True}, {"addresses": False}, {"absolute": True}, {"styles": False}],
                         ids=lambda o: next(iter(o)))
def test_spellings_of_one_workbook(shown, options):
    plain = COUNTED.replace("28,608", "28608")
    assert shown(*COUNTS, merges=MERGES, options=options) == plain


def test_one_merge_over_everything_and_a_false_dimension(shown):
    assert shown(["a", "b"], ["x", 1], merges=["A1:XFD1048576", "C3:D9", "B1:A1"]).splitlines()[-1].startswith("x")


@pytest.mark.parametrize("code, number, expected", [
    ("0.00", 3.14159, "3.14 (3.14159)"), ("#,##0.00\" €\"", 1234.5, "1,234.50 €"), ("0.0%", 0.125, "12.5%"), ("0%", 0.125, "13% (0.125)"),
    ("0.0\" kg\"", 2.5, "2.5 kg"), ("[Red]-0", 7, "-7 (7)"), ("0;(0)", -5, "(5)"), ("#,##0;[Red]-#,##0", -1234, "-1,234"),
    ("0;-0;\"none\"", 0, "none (0)"), ("[$€-407] #,##0.00", 5.5, "€ 5.50"), ("\\x0", 5, "x5 (5)"), ("0.00E+00", 12345, "1.23E+04 (12345)"),
    ("General", 0.1 + 0.2, "0.3"), ("General", 15.1, "15.1"), ("000", 7, "007 (7)"), ("#,##0,", 12345678, "12,346 (12345678)"),
    ("0.##", 2, "2"), ("[>=100]0\" many\";0\" few\"", 5, "5 few"), ("@", 5, "5"), ("0.00", 1.005, "1.01 (1.005)"), ("00-00", 1234, "12-34 (1234)"),
    ("# ?/?", 0.5, "0.5"), ("General", 1e20, "1e+20"), ("General", 0.00001, "0.00001"), ("_-* #,##0.00_-", 5, "5.00"),
    ("d. mmmm yyyy", 45356, "5. March 2024 (2024-03-05)"), ("yyyy-mm-dd", 45356, "2024-03-05"), ("dd.mm.yyyy", 45356, "05.03.2024"),
    ("mmm-yy", 45356, "Mar-24 (2024-03-05)"), ("m/d/yyyy", 45356, "3/5/2024 (2024-03-05)"), ("[$-407]d. mmm", 45356, "5. Mar (2024-03-05)"),
    ("yyyy-mm-dd", 1, "1900-01-01"), ("yyyy-mm-dd", 59, "1900-02-28"), ("yyyy-mm-dd", 60, "1900-02-29"), ("yyyy-mm-dd", 61, "1900-03-01"),
    ("yyyy-mm-dd hh:mm", 45356.75, "2024-03-05 18:00"), ("h:mm AM/PM", 0.75, "6:00 PM"), ("[h]:mm", 1.5, "36:00"), ("mm:ss.0", 0.0005, "00:43.2"),
    ("dddd", 45356, "Tuesday (2024-03-05)"), ("yyyy-mm-dd", -1, "-1"), ("yyyy-mm-dd", 1e9, "1000000000")])
def test_number_formats(shown, code, number, expected):
    assert shown(["Item", "Value"], ["one", number], formats={"B": code}).splitlines()[-1] == f"one | Value: {expected}"


def test_dates_since_1904(shown):
    last = shown(["Item", "Day"], ["one", DATE(2024, 3, 5)], ["two", {"xml": '<v>2024-03-05T00:00:00</v>', "t": "d"}], options={"from_1904": True})
    assert last.splitlines()[-2:] == ["one | Day: 2024-03-05", "two | Day: 2024-03-05"]


def test_kinds_of_cells(shown):
    rows = [["Kind", "Value"], ["true", True], ["error", {"xml": "<v>#N/A</v>", "t": "e"}], ["formula's text", {"xml": "<f>A1</f><v>said</v>", "t": "str"}],
            ["rich", {"xml": "<is><r><t>bo</t></r><r><t>th</t></r><rPh><t>spoken</t></rPh></is>", "t": "inlineStr"}], ["escape", "a_x000D_b_x0041_"],
            ["out of range", {"xml": "<v>99999999</v>", "t": "s"}], ["nonsense", {"xml": "<v>abc</v>"}], ["breaks", "two\nlines"]]
    assert shown(*rows).splitlines() == ["Kind | Value", "true | Value: TRUE", "error | Value: #N/A", "formula's text | Value: said", "rich | Value: both",
                                         "escape | Value: a bA", "out of range", "nonsense | Value: abc", "breaks | Value: two lines"]


def test_formulas_without_values(tmp_path):
    formula = {"xml": "<f>SUM(B2:B3)</f><v></v>"}
    text, said = extract(tmp_path, "a.xlsx", xlsx(sheet(["Item", "Price"], ["a", 1], ["b", {"xml": "<f>B2+1</f><v>2</v>"}], ["all", formula])))
    assert text.splitlines()[-2:] == ["b | Price: 2", "all | Price: =SUM(B2:B3) (not computed)"] and "1 formulas have no value" in said
    zero = {"xml": "<f>SUM(B2:B3)</f><v>0</v>"}
    text, _ = extract(tmp_path, "b.xlsx", xlsx(sheet(["Item", "Price"], ["a", 1], ["all", zero]), not_computed=True))
    assert "=SUM(B2:B3) (not computed)" in text


def test_what_is_hidden_is_named(tmp_path):
    book = xlsx([{"name": "Shown", "rows": [["a", "secret", "c"], ["x", 1, 2], ["y", 3, 4], ["z", 5, 6]], "hidden_rows": [3], "hidden_columns": [2]},
                 {"name": "Away", "rows": [["q", "w"], [1, 2]], "hidden": True}, {"name": "Gone", "rows": [["q"]], "hidden": "veryHidden"}])
    text, said = extract(tmp_path, "a.xlsx", book)
    assert text == "Shown\n\na | c\nx | c: 2\nz | c: 6"
    for words in ('sheet "Away" is hidden', 'sheet "Gone" is hidden', 'sheet "Shown": 1 hidden rows', 'sheet "Shown": 1 hidden columns'):
        assert words in said
    text, said = extract(tmp_path, "b.xlsx", xlsx([{"name": "Away", "rows": [["q"]], "hidden": True}]))
    assert text == "" and 'sheet "Away" is hidden' in said


def test_several_tables_of_a_sheet(shown):
    rows = [["Prices of boats"], [None], ["Boat", "Price", None, "Town", "People"], ["Kayak", 5, None, "Oslo", 700], ["Raft", 6, None, "Rome", 900], [None], [None],
            ["Days open"], ["Month", "Days"], ["May", 20], [None], ["Total", 20]]
    assert shown(*rows).splitlines() == ["Prices of boats", "", "Boat | Price", "Kayak | Price: 5", "Raft | Price: 6", "", "Town | People", "Oslo | People: 700",
                                         "Rome | People: 900", "", "Days open", "Month | Days", "May | Days: 20", "Total | Days: 20"]


def test_tables_that_the_file_names(shown):
    rows = [["Boat", "Price"], ["Kayak", 5], ["Left", "Right"], ["x", "y"]]
    text = shown(*rows, tables=[("Hire", "A1:B2"), ("Table7", "A3:B4")])
    assert text.splitlines() == ["Hire", "Boat | Price", "Kayak | Price: 5", "", "Left | Right", "x | Right: y"]


def test_heads_only_and_years_and_forms(shown):
    assert shown(["Name", "Town", "Phone"]) == "Name | Town | Phone"
    assert shown(["Site", 2019, 2020], ["Elm", 5, 6]).splitlines()[-1] == "Elm | 2019: 5 | 2020: 6"
    assert shown(["Client", "Ann"], ["Day", DATE(2024, 1, 2)], ["Price", 5]).splitlines() == ["Client | Ann", "Day | 2024-01-02", "Price | 5"]
    wide = shown(["Item"] + [f"Column {i}" for i in range(40)], ["one"] + list(range(40)))
    assert len(wide.splitlines()) > 4 and all(line.startswith("one | ") for line in wide.splitlines()[1:]) and "one | Column 39: 39" not in wide.splitlines()[1]


def test_groups_and_comments(shown):
    text = shown(["Region", "Site", "Birds"], ["North", "Elm", 5], [None, "Oak", 6], [None, "Ash", 7], ["South", "Fir", 8], [None, "Yew", 9],
                 comments={"C3": "Counted twice.\nBy hand."})
    assert text.splitlines()[1:] == ["North, Elm | Birds: 5", "North, Oak | Birds: 6", "North, Ash | Birds: 7", "South, Fir | Birds: 8", "South, Yew | Birds: 9", "",
                                     "Comment on C3: Counted twice. By hand."]


# OpenDocument.

def test_ods(tmp_path):
    rows = [["Boat", "Day", "Price", "Hidden", "Note"],
            ["Kayak", DATE(2024, 3, 5), {"with": 'office:value-type="currency" office:value="1234.5"', "xml": "<text:p>1.234,50 €</text:p>"}, 1,
             {"xml": "<office:annotation><dc:creator>Ann</dc:creator><text:p>remark</text:p></office:annotation><text:p>a<text:s text:c='3'/>b</text:p><text:p>c</text:p>"}],
            ["Raft", None, {"with": 'office:value-type="percentage" office:value="0.5" table:formula="of:=1/2"', "xml": "<text:p>50%</text:p>"}, 1,
             {"with": 'table:formula="of:=SUM([.A1])"'}],
            ["Gone", None, 5, 1, None]]
    text, said = extract(tmp_path, "a.ods", ods([{"name": "Hire", "rows": rows, "hidden_columns": [4], "hidden_rows": [4]},
                                                  {"name": "Away", "rows": [["x", "y"]], "hidden": True}]))
    assert text.splitlines() == ["Hire", "", "Boat | Day | Price | Note", "Kayak | Day: 05.03.24 (2024-03-05) | Price: 1.234,50 € (1234.5) | Note: a b c",
                                 "Raft | Price: 50% | Note: =SUM([.A1]) (not computed)", "", "Comment on E2: remark"]
    assert 'sheet "Away" is hidden' in said and "1 hidden rows" in said and "1 hidden columns" in said


def test_ods_spans_and_repeats(tmp_path):
    span = lambda text, columns, rows=1: {"with": f'table:number-columns-spanned="{columns}" table:number-rows-spanned="{rows}"', "xml": f"<text:p>{text}</text:p>"}
    covered = {"tag": "table:covered-table-cell"}
    rows = [[span("Boat", 1, 2), span("Hire", 2), covered], [covered, "day", "weekend"], ["Kayak", 180, 290],
            ["Same", {"with": 'table:number-columns-repeated="2" office:value-type="float" office:value="7"', "xml": "<text:p>7</text:p>"}]]
    text, _ = extract(tmp_path, "a.ods", ods(sheet(*rows)))
    assert text.splitlines()[2:] == ["Kayak | Hire, day: 180 | Hire, weekend: 290", "Same | Hire, day: 7 | Hire, weekend: 7"]
    endless = [["a", "b"], [{"with": f'table:number-columns-repeated="{1 << 34}" office:value-type="float" office:value="1"', "xml": "<text:p>1</text:p>"}]]
    text, said = extract(tmp_path, "b.ods", ods(sheet(*endless)))
    assert len(text) < 100000 and f"stands {1 << 34} times" in said
    content = ods_content(sheet(["a", "b"], ["x", 5])).replace("<table:table-row><table:table-cell office", f'<table:table-row table:number-rows-repeated="{1 << 34}"><table:table-cell office')
    text, said = extract(tmp_path, "c.ods", odf("spreadsheet", content))
    assert len(text) < 20000000 and "cells; split it" in said
    flat = content.replace(f'table:number-rows-repeated="{1 << 34}"', "").replace("office:document-content", "office:document").replace(
        "<office:document ", '<office:document office:mimetype="application/vnd.oasis.opendocument.spreadsheet" ')
    assert extract(tmp_path, "d.fods", flat)[0] == "a | b\nx | b: 5"


# Documents.

HIRED = ["Boat | Hire", "Boat | day | weekend", "Kayak | Hire, day: 180 | Hire, weekend: 290"]


def test_docx(tmp_path):
    box = "".join(f"<mc:{way}><w:txbxContent>{p('In the box.')}</w:txbxContent></mc:{way}>" for way in ("Choice", "Fallback"))
    body = (p("Birds", "Mine") + p("Contents", "Toc") + p("We counted", inside='<w:footnoteReference w:id="2"/><w:t> all birds.</w:t>') + p("first", number=(1, 0)) +
            p("inner", number=(1, 1)) + p("inner b", number=(1, 1)) + p("second", number=(1, 0)) + p("dot", number=(2, 0)) +
            p("Before", inside=f"<mc:AlternateContent>{box}</mc:AlternateContent><w:t> and after.</w:t>") +
            "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>moved</w:t></w:r>"
            "</w:moveFrom><w:ins><w:r><w:t>Inserted</w:t></w:r></w:ins><w:r><w:instrText>PAGE</w:instrText></w:r><w:sdt><w:sdtContent><w:hyperlink><w:r><w:t> link</w:t>"
            "</w:r></w:hyperlink></w:sdtContent></w:sdt></w:p>" +
            tbl(tr(tc("Boat", merge="restart"), tc("Hire", 2), head=True), tr(tc("", merge="go"), "day", "weekend", head=True), tr("Kayak", "180", "290")) +
            p("Between") + tbl(tr("A box with one cell")))
    text, _ = extract(tmp_path, "a.docx", docx(body))
    assert text.splitlines() == ["Birds", "Contents", "We counted all birds.", "Counted at low tide.", "1. first", "1.a) inner", "1.b) inner b", "2. second", "- dot",
                                 "Before and after.", "In the box.", "Inserted link", *HIRED, "Between", "A box with one cell"]


def test_docx_rows_that_are_merged_downwards(tmp_path):
    body = tbl(tr("Region", "Birds", "Eggs"), tr(tc("North", merge="restart"), "1", "2"), tr(tc("", merge="go"), "3", "4"))
    assert extract(tmp_path, "a.docx", docx(body))[0].splitlines()[1:] == ["North | Birds: 1 | Eggs: 2", "North | Birds: 3 | Eggs: 4"]
    nested = tbl(tr("Name", "Inside"), tr("one", tc(tbl(tr("x", "y"), tr("1", "2")) + p("after"))), tr("two", "plain"))
    assert extract(tmp_path, "b.docx", docx(nested))[0].splitlines()[-2:] == ["one | Inside: x y; 1 2; after", "two | Inside: plain"]


def test_odt(tmp_path):
    cell = lambda text, more="": f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"
    row = lambda *cells: f"<table:table-row>{''.join(cells)}</table:table-row>"
    table = ("<table:table><table:table-header-rows>" + row(cell("Boat", 'table:number-rows-spanned="2"'), cell("Hire", 'table:number-columns-spanned="2"'), "<table:covered-table-cell/>") +
             row("<table:covered-table-cell/>", cell("day"), cell("weekend")) + "</table:table-header-rows>" + row(cell("Kayak"), cell("180"), cell("290")) + "</table:table>")
    styles = ('<text:list-style style:name="L1"><text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
              '<text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")" text:display-levels="2"/></text:list-style>')
    text = ('<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h text:outline-level="1">Birds</text:h>'
            "<text:p>Water<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>A note.</text:p></text:note-body></text:note> flows.</text:p>"
            '<text:list text:style-name="L1"><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item>'
            "<text:list-item><text:p>two</text:p></text:list-item></text:list><text:p>Anchored<draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame> here</text:p>")
    assert extract(tmp_path, "a.odt", odt(text + table, styles))[0].splitlines() == [
        "Birds", "Water flows.", "A note.", "1. one", "1.a) deep", "2. two", "Anchored here", "boxed", *HIRED]


def test_slides(tmp_path):
    frame = lambda kind, text: f'<draw:frame presentation:class="{kind}"><draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>'
    page = f'<draw:page draw:master-page-name="m">{frame("title", "Plan")}{frame("footer", "foot")}{frame("outline", "Sell more.")}<presentation:notes>{frame("notes", "Slowly.")}</presentation:notes></draw:page>'
    assert extract(tmp_path, "a.odp", odp(page))[0].splitlines() == ["Plan", "Sell more.", "Notes: Slowly."]
    cell = lambda text, more="": f"<a:tc {more}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"
    table = ('<p:graphicFrame><a:tbl><a:tr>' + cell("Boat", 'rowSpan="2"') + cell("Hire", 'gridSpan="2"') + '<a:tc hMerge="1"/></a:tr><a:tr><a:tc vMerge="1"/>' + cell("day") +
             cell("weekend") + "</a:tr><a:tr>" + cell("Kayak") + cell("180") + cell("290") + "</a:tr></a:tbl></p:graphicFrame>")
    text, said = extract(tmp_path, "a.pptx", pptx([(shape("title", "Boats") + shape("ftr", "foot") + table, "Mention the lake.", False),
                                                    (shape("title", "Secret"), None, True), (shape("title", "End") + shape(None, "one", "two"), None, False)]))
    assert text.splitlines() == ["Boats", *HIRED, "Notes: Mention the lake.", "End", "one", "two"] and "slide 2 is hidden" in said


def test_html(tmp_path):
    page = ("<body><h1>Boats</h1><p>Te&shy;xt <wbr>with<span style='color:red;display: none'>hidden</span><i aria-hidden=true>x</i></p><table><caption>Hire of boats</caption><thead>"
            "<tr><th rowspan=2>Boat<th colspan=2>Hire<tr><th>day<th>weekend</thead><tr><th scope=row>Kayak<td>180<td>290<tr><th scope=row>Canoe<td rowspan=2>200<td>310<tr><th>Raft<td>5"
            "</table><table><tr><td>A long layout cell<td><h2>Second</h2><table><tr><td>x<td>y<tr><td>1<td>2</table></table><table><tr><th colspan=99999999>wide<tr><td>a<td>b</table>end")
    lines = extract(tmp_path, "a.html", page)[0].splitlines()
    assert lines[:10] == ["Boats", "", "Text with", "", "Hire of boats", *HIRED, "Canoe | Hire, day: 200 | Hire, weekend: 310", "Raft | Hire, day: 200 | Hire, weekend: 5"]
    assert "x | y" in lines and "1 | y: 2" in lines and "wide, a | b" in lines and lines[-1] == "end"


def test_a_table_in_a_book(tmp_path):
    """Cells keep their places where a chapter follows another."""
    page = "<html><body><h1>{0}</h1><table><tr><th>Boat<th>Price<tr><td>Kayak<td>{0}</table></body></html>"
    package = ('<package><manifest><item id="a" href="a.xhtml"/><item id="b" href="b.xhtml"/></manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>')
    book = zipped({"META-INF/container.xml": '<container><rootfile full-path="p.opf"/></container>', "p.opf": package, "a.xhtml": page.format(5), "b.xhtml": page.format(6)},
                  first=("mimetype", "application/epub+zip"))
    text, said = extract(tmp_path, "a.epub", book)
    assert said == "" and "Kayak | Price: 5" in text and "Kayak | Price: 6" in text


def test_rtf(tmp_path):
    def row(edges, cells, before=""):
        return "\\trowd" + before + "".join(f"{facts}\\cellx{edge}" for edge, facts in edges) + "\\pard\\intbl " + "".join(c + "\\cell " for c in cells) + "\\row\n"
    body = (r"\pard\plain\s1 Birds of the coast\par\pard\plain Na\'efve {\f1 \'cf\'f0\'e8} {\f2 \'93\'fa\'96\'7b} \u322?\'f3d\u378? \uc2\u8364 EU\uc1 \u-10179?\u-8704? end "
            r"{\v hidden}{\*\unknown gone}{\deleted del}\emdash\~x{\footnote A note here.} tail.\par{\header head}{\pict\wmetafile8 010009}{\pict\bin5 }}}}{ok}"
            + row([(1000, "\\clvmgf"), (3000, "")], ["Boat", "Hire"]) + row([(1000, "\\clvmrg"), (2000, ""), (3000, "")], ["", "day", "weekend"]) +
            row([(1000, ""), (2000, ""), (3000, "")], ["Kayak", "180", "290"]) + "\\pard after\\par")
    text, _ = extract(tmp_path, "a.rtf", rtf(body))
    assert text.splitlines() == ["Birds of the coast", "Naïve При 日本 łódź €😀 end —\u00a0x tail.", "A note here.", *HIRED, "after"]
    assert extract(tmp_path, "b.doc", rtf("named doc\\par"))[0] == "named doc"
    deep = b"{\\rtf1 " + b"{" * 100000 + b"x" + b"}" * 100001
    assert "more than 1999 deep" in extract(tmp_path, "c.rtf", deep)[1]


def test_notebooks_and_xml(tmp_path):
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "Some text."]},
             {"cell_type": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": ["1\n"]}, {"data": {"text/plain": "<Figure>", "image/png": "AAAA"}},
                                                                       {"output_type": "error", "ename": "E", "evalue": "bad"}]}]
    assert extract(tmp_path, "a.ipynb", json.dumps({"cells": cells}))[0] == "# Title\nSome text.\n\nprint(1)\n\n1\n\n<Figure>\n\nE: bad"
    book = ('<?xml version="1.0"?><!DOCTYPE article [<!ENTITY a "b">]><article><title>The <em>title</em></title><para>One <b>two</b> three.</para><section><title>Inner</title>'
            "<itemizedlist><listitem><para>item</para></listitem></itemizedlist><table><tgroup><thead><row><entry>A</entry><entry>B</entry></row></thead><tbody><row><entry>x</entry>"
            "<entry>5</entry></row></tbody></tgroup></table></section></article>")
    assert extract(tmp_path, "a.xml", book)[0].splitlines() == ["The title", "One two three.", "Inner", "- item", "A | B", "x | B: 5"]
    assert extract(tmp_path, "b.xml", "<cities><city><name>Oslo</name><people>700</people></city></cities>")[0] == "name: Oslo\npeople: 700"
    laughs = '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">' + "".join(f'<!ENTITY {chr(98 + i)} "{("&" + chr(97 + i) + ";") * 10}">' for i in range(9)) + "]><p>ho &j;</p>"
    assert extract(tmp_path, "c.xml", laughs)[0].strip() in ("", "ho")


# Files of before 2007, and files that are not what they are called.

def test_old_files(tmp_path):
    import shutil

    document = legacy.doc("Grüße aus Łódź\rSecond paragraph\r")
    book = legacy.xls([["Boat", "Price"], ["Kayak", 5.5], ["Łódź, \"old\"", 7]])
    if shutil.which("catdoc") is None:
        for name, content in (("a.doc", document), ("a.xls", book)):
            assert "(Debian's package catdoc)" in extract(tmp_path, name, content)[1]
        return
    assert extract(tmp_path, "a.doc", document)[0].splitlines() == ["Grüße aus Łódź", "Second paragraph"]
    assert extract(tmp_path, "a.xls", book)[0].splitlines() == ["Boat | Price", "Kayak | Price: 5.5", 'Łódź, "old" | Price: 7']
    assert extract(tmp_path, "b.docx", document)[0].startswith("Grüße")


def test_names_that_lie_and_passwords(tmp_path):
    book = xlsx(sheet(["a", "b"], ["x", 5]))
    assert extract(tmp_path, "a.xls", book)[0] == "a | b\nx | b: 5"
    assert extract(tmp_path, "b.xls", "<html><table><tr><th>a<th>b<tr><td>x<td>5</table>")[0] == "a | b\nx | b: 5"
    assert extract(tmp_path, "c.xls", "a\tb\nx\t5\n")[0].endswith("a: x\nb: 5")
    assert extract(tmp_path, "d.ods", book)[0] == "a | b\nx | b: 5"
    for name, content in [("e.docx", legacy.ole({"EncryptedPackage": b"x" * 5000, "EncryptionInfo": b"y"})), ("e.doc", legacy.doc("x\r", locked=True)),
                          ("e.xls", legacy.xls([["a"]], locked=True)), ("e.ods", odf("spreadsheet", "<a/>", {"META-INF/manifest.xml": "<m:encryption-data/>"}))]:
        assert "it is protected by a password" in extract(tmp_path, name, content)[1], name
    for name, content, words in [("f.xlsx", zipped({"xl/workbook.bin": "x"}), "save it as XLSX"), ("f.doc", legacy.ole({"Other": b"x"}), "save it as DOCX"),
                                 ("g.xlsx", b"PK\3\4 cut", "damaged"), ("g.rtf", b"no rtf", "no RTF"), ("g.ipynb", b"{", "g.ipynb")]:
        assert words in extract(tmp_path, name, content)[1], name


def test_twenty_thousand_rows(tmp_path):
    rows = [["Order", "Client", "Day", "Units", "Price", "Paid"]] + [[i, f"Client {i % 900}", DATE(2023, 1, 1) + datetime.timedelta(days=i % 700), i % 90, i / 7, True] for i in range(20000)]
    for name, made in (("a.xlsx", xlsx(sheet(*rows))), ("a.ods", ods(sheet(*rows)))):
        text, _ = extract(tmp_path, name, made)
        assert len(text.splitlines()) == 20001 and text.splitlines()[-1].startswith("19999 | Client: Client 199 | Day: ")
