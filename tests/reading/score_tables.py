"""tests/reading/score_tables.py [--kinds xlsx,docx] [--lines]: how many cells of made-up tables stand in one passage with the
heads of their row and of their column, by kind of file, and the seconds and memory of large files.

Files are made (workbooks.py, offices.py), indexed by $RETRO_BUILD/retro-index and all passages of the collection are read
back. With --lines the lines of `retro-index extract` are taken for passages, which shows the reader without the cutting.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

sys.modules.setdefault("layouts", __import__("layouts"))
import layouts  # noqa: E402
import make_pdf  # noqa: E402
from offices import docx, odt, p, pptx, rtf, tbl, tc, tr
from workbooks import ods, xlsx

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RETRO_BUILD", ROOT / "build")).resolve()
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
PLACES = ["Northern coast", "Southern fens", "Eastern hills", "Western isles"]
SITES = ["Oakhurst", "Elmbridge", "Ashdown", "Firwood", "Yewtree", "Birchley", "Hollybank", "Rowanfield"]
SEASONS = ["Spring", "Summer", "Autumn"]
YEARS = ["2019", "2020"]


def make_table(dice):
    """Rows of (place, site, values), with heads of two levels: years over seasons."""
    rows = []
    for place in dice.sample(PLACES, 2):
        for site in dice.sample(SITES, 4):
            rows.append((place, site, [dice.randrange(10000, 99999) for _ in range(6)]))
    return rows


def cells_of(rows):
    """(value, heads) for each cell."""
    for place, site, values in rows:
        for i, value in enumerate(values):
            yield str(value), [place, site, YEARS[i // 3], SEASONS[i % 3]]


def grid(rows):
    """Lists of values with None where a merged cell covers."""
    heads = [["Region", "Site", YEARS[0], None, None, YEARS[1], None, None], [None, None] + SEASONS * 2]
    body = [[place if i % 4 == 0 else None, site, *values] for i, (place, site, values) in enumerate(rows)]
    return heads + body


def as_xlsx(rows):
    return xlsx([{"name": "Counts", "rows": [["Birds counted by site"]] + grid(rows),
                  "merges": ["C2:E2", "F2:H2", "A2:A3", "B2:B3", "A4:A7", "A8:A11"]}])


def as_ods(rows):
    cell = lambda v, more="": {"with": more + (f' office:value-type="float" office:value="{v}"' if isinstance(v, int) else ""), "xml": f"<text:p>{v}</text:p>"}
    covered = {"tag": "table:covered-table-cell"}
    lines = [[cell("Region", 'table:number-rows-spanned="2"'), cell("Site", 'table:number-rows-spanned="2"'), cell(YEARS[0], 'table:number-columns-spanned="3"'), covered, covered,
              cell(YEARS[1], 'table:number-columns-spanned="3"'), covered, covered], [covered, covered] + [cell(s) for s in SEASONS * 2]]
    for i, (place, site, values) in enumerate(rows):
        lines.append([cell(place, 'table:number-rows-spanned="4"') if i % 4 == 0 else covered, cell(site)] + [cell(v) for v in values])
    return ods([{"name": "Counts", "rows": lines}])


def as_docx(rows):
    lines = [tr(tc("Region", merge="restart"), tc("Site", merge="restart"), tc(YEARS[0], 3), tc(YEARS[1], 3)),
             tr(tc("", merge="go"), tc("", merge="go"), *SEASONS * 2)]
    for i, (place, site, values) in enumerate(rows):
        lines.append(tr(tc(place if i % 4 == 0 else "", merge="go" if i % 4 else "restart"), site, *map(str, values)))
    return docx(p("Birds counted by site", "berschrift1") + tbl(*lines))


def as_odt(rows):
    cell = lambda v, more="": f"<table:table-cell {more}><text:p>{v}</text:p></table:table-cell>"
    covered = "<table:covered-table-cell/>"
    line = lambda *cells: f"<table:table-row>{''.join(cells)}</table:table-row>"
    lines = line(cell("Region", 'table:number-rows-spanned="2"'), cell("Site", 'table:number-rows-spanned="2"'), cell(YEARS[0], 'table:number-columns-spanned="3"'), covered * 2,
                 cell(YEARS[1], 'table:number-columns-spanned="3"'), covered * 2) + line(covered * 2, *map(cell, SEASONS * 2))
    for i, (place, site, values) in enumerate(rows):
        lines += line(cell(place, 'table:number-rows-spanned="4"') if i % 4 == 0 else covered, cell(site), *map(cell, values))
    return odt(f"<table:table>{lines}</table:table>")


def as_html(rows):
    lines = (f"<tr><th rowspan=2>Region<th rowspan=2>Site<th colspan=3>{YEARS[0]}<th colspan=3>{YEARS[1]}<tr>" + "".join(f"<th>{s}" for s in SEASONS * 2))
    for i, (place, site, values) in enumerate(rows):
        lines += "<tr>" + (f"<th rowspan=4>{place}" if i % 4 == 0 else "") + f"<th>{site}" + "".join(f"<td>{v}" for v in values)
    return f"<h1>Birds counted by site</h1><table>{lines}</table>".encode()


def as_pptx(rows):
    cell = lambda v, more="": f"<a:tc {more}><a:txBody><a:p><a:r><a:t>{v}</a:t></a:r></a:p></a:txBody></a:tc>"
    down, right = '<a:tc vMerge="1"/>', '<a:tc hMerge="1"/>'
    line = lambda *cells: f"<a:tr>{''.join(cells)}</a:tr>"
    lines = line(cell("Region", 'rowSpan="2"'), cell("Site", 'rowSpan="2"'), cell(YEARS[0], 'gridSpan="3"'), right * 2, cell(YEARS[1], 'gridSpan="3"'), right * 2)
    lines += line(down * 2, *map(cell, SEASONS * 2))
    for i, (place, site, values) in enumerate(rows):
        lines += line(cell(place, 'rowSpan="4"') if i % 4 == 0 else down, cell(site), *map(cell, values))
    return pptx([(f"<p:graphicFrame><a:tbl>{lines}</a:tbl></p:graphicFrame>", None, False)])


def as_rtf(rows):
    def line(edges, cells):
        return "\\trowd" + "".join(f"{facts}\\cellx{edge}" for edge, facts in edges) + "\\pard\\intbl " + "".join(f"{c}\\cell " for c in cells) + "\\row\n"
    edge = lambda i: 1000 * (i + 1)
    text = line([(edge(0), "\\clvmgf"), (edge(1), "\\clvmgf"), (edge(4), ""), (edge(7), "")], ["Region", "Site", *YEARS])
    text += line([(edge(0), "\\clvmrg"), (edge(1), "\\clvmrg")] + [(edge(i), "") for i in range(2, 8)], ["", ""] + SEASONS * 2)
    for i, (place, site, values) in enumerate(rows):
        text += line([(edge(0), "\\clvmrg" if i % 4 else "\\clvmgf")] + [(edge(j), "") for j in range(1, 8)], [place if i % 4 == 0 else "", site, *values])
    return rtf(text)


def as_csv(rows):
    lines = ["Region,Site," + ",".join(f"{y} {s}" for y in YEARS for s in SEASONS)]
    return "\n".join(lines + [",".join(map(str, [place, site, *values])) for place, site, values in rows]).encode()


KINDS = {"xlsx": as_xlsx, "ods": as_ods, "docx": as_docx, "odt": as_odt, "html": as_html, "pptx": as_pptx, "rtf": as_rtf, "csv": as_csv}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode not in (0, 2):
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def passages_of(folder, files, lines):
    if lines:
        texts = [run(BUILD / "retro-index", "extract", file) for file in files]
        parts = [part for text in texts for part in text.split("==> ")] if files[0].suffix == ".csv" else texts
        return parts if files[0].suffix == ".csv" else [line for text in texts for line in text.splitlines()]
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(ROOT / "models/retro-docs")}, "retrieval": {"embedder": str(DEPS / "minilm")}}))
    run(BUILD / "retro-index", "build", "--out", folder / "c", "--config", config, *files)
    found = run(BUILD / "retro-index", "search", "--json", "--config", config, "--k", 1000, folder / "c", "birds")
    return [json.loads(line)["text"] for line in found.splitlines()]


def score(kind, tables, lines):
    dice = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder, files, wanted = pathlib.Path(name), [], []
        for i in range(tables):
            rows = make_table(dice)
            files.append(folder / f"t{i}.{kind}")
            files[-1].write_bytes(KINDS[kind](rows))
            wanted += list(cells_of(rows))
        passages = passages_of(folder, files, lines)
    found = sum(any(value in text and all(h in text for h in heads) for text in passages) for value, heads in wanted)
    return found, len(wanted)


def score_pdf(lines):
    """The tables of layouts.py, with lines and without: a cell needs the names of its row and of its column."""
    made = [case for case in (function() for function in layouts.CASES) if case.cells]
    with tempfile.TemporaryDirectory() as name:
        folder, files = pathlib.Path(name), []
        for i, case in enumerate(made):
            files.append(folder / f"t{i}.pdf")
            files[-1].write_bytes(make_pdf.write(case.pages))
        passages = passages_of(folder, files, lines)
    wanted = [cell for case in made for cell in case.cells]
    found = sum(any(all(part in text for part in (value, *rows, *heads)) for text in passages) for rows, heads, value in wanted)
    return found, len(wanted)


def measure_large(kind):
    """Seconds of reading 20 000 rows of 12 columns; the child's memory is bounded by the sandbox."""
    dice = random.Random(1)
    rows = [["Order", "Client", "Region", "Product", "Units", "Price", "Rate", "Paid", "Note", "Channel", "Code", "Days"]]
    for i in range(20000):
        rows.append([i, f"Client {i % 900}", dice.choice(PLACES), dice.choice(SITES), dice.randrange(90), dice.randrange(9999) / 100, 0.25, True, f"note {i}", "web", f"C{i}", i % 31])
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / f"large.{kind}"
        file.write_bytes({"xlsx": xlsx, "ods": ods}[kind]([{"name": "Orders", "rows": rows}]))
        start = time.monotonic()
        text = run(BUILD / "retro-index", "extract", file)
        seconds = time.monotonic() - start
    assert text.count("\n") > 20000
    return seconds, file


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join([*KINDS, "pdf"]))
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--lines", action="store_true")
    options = parser.parse_args()
    total = [0, 0]
    for kind in options.kinds.split(","):
        found, n = score_pdf(options.lines) if kind == "pdf" else score(kind, options.tables, options.lines)
        total = [total[0] + found, total[1] + n]
        print(f"{kind:5} {found:5} of {n}  {found / n:.3f}", flush=True)
    print(f"all   {total[0]:5} of {total[1]}  {total[0] / total[1]:.3f}")
    for kind in ("xlsx", "ods"):
        if kind in options.kinds:
            seconds, _ = measure_large(kind)
            print(f"20 000 rows of 12 columns, {kind}: {seconds:.1f} s")
    print(f"memory of the largest process that was waited for: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
