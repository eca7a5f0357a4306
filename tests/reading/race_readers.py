#!/usr/bin/env python3
"""tests/reading/race_readers.py PEERS [--scans N] [--readers NAME,...]: how much of the same files retro-index, pymupdf4llm, markitdown and docling
read right, and how fast. PEERS is the python of an environment that has those packages; one that it lacks is named and left out.

Files: the layouts and tables of layouts.py as PDF, the tables of score_tables.py in other kinds, and N scans in PDF. A sentence counts
where it stands whole and behind the one before it; a cell where a line has it with the names of its row and column ("in a line"), or
where it stands under and behind them in a table of Markdown ("in a table"). Emphasis and other signs of Markdown do not count against
a reader. Seconds are those of all files, one after the other, without the time in which a peer's libraries are loaded.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.modules.setdefault("layouts", __import__("layouts"))
import layouts  # noqa: E402
import make_pdf  # noqa: E402
import scan_files  # noqa: E402
import scan_scores  # noqa: E402
import scans  # noqa: E402
import score  # noqa: E402
import score_tables  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
# Each reads paths from its standard input, and answers a line of JSON for each.
LOOP = """
import json, sys, time
out = sys.stdout
sys.stdout = sys.stderr
%s
for line in sys.stdin:
    began = time.monotonic()
    try:
        text = read(line.strip())
    except Exception as why:
        text = ""
        print(line.strip(), type(why).__name__, str(why)[:200], file=sys.stderr)
    out.write(json.dumps({"text": text, "seconds": time.monotonic() - began}) + "\\n")
    out.flush()
"""
PEERS = {
    "pymupdf4llm": "import pymupdf4llm\nread = lambda path: pymupdf4llm.to_markdown(path, show_progress=False)",
    "markitdown": "from markitdown import MarkItDown\none = MarkItDown()\nread = lambda path: one.convert(path).text_content",
    "docling": "from docling.document_converter import DocumentConverter\none = DocumentConverter()\n"
               "read = lambda path: one.convert(path).document.export_to_markdown()"}


def read_ours(paths):
    answers = []
    for path in paths:
        began = time.monotonic()
        done = subprocess.run([INDEX, "extract", path], capture_output=True, text=True)
        answers.append({"text": done.stdout, "seconds": time.monotonic() - began})
    return answers


def read_by_peer(python, name, paths):
    """None: it is not there."""
    run = subprocess.run([python, "-c", LOOP % PEERS[name]], input="\n".join(map(str, paths)), capture_output=True, text=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) == len(paths):
        return answers
    print(f"{name}: left out: {(run.stderr.strip().splitlines() or ['no reason'])[-1]}", file=sys.stderr)
    return None


def plain(text):
    """Without the signs of Markdown."""
    text = re.sub(r"<br */?>", " ", text)
    text = re.sub(r"^\s*(#+|[-*+]|>)\s+", "", text, flags=re.M)
    return re.sub(r"\\([_*|.#()\[\]-])", r"\1", re.sub(r"\*\*|__|`|(?<!\w)_|_(?!\w)", "", text))


def markdown_tables(text):
    rows, tables = [], []
    for line in [*text.splitlines(), ""]:
        if line.strip().startswith("|"):
            cells = [plain(cell).strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells if cell):
                rows.append(cells)
        elif rows:
            tables.append(rows)
            rows = []
    return tables


def in_a_table(tables, names, heads, value):
    """The value stands under its heads and behind its names, which may stand in a row above where cells are merged."""
    for rows in tables:
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                if cell != value:
                    continue
                above = " ".join(rows[k][j] for k in range(i) if j < len(rows[k]))
                left = " ".join(row[:j] + [rows[k][m] for k in range(i) for m in range(min(j, len(rows[k]))) if not row[m] or k == i])
                if all(head in above for head in heads) and all(name in left for name in names):
                    return True
    return False


def count_cells(text, cells):
    lines, tables = [plain(line) for line in text.splitlines()], markdown_tables(text)
    in_line = sum(any(all(part in line for part in (value, *names, *heads)) for line in lines) for names, heads, value in cells)
    return in_line, sum(in_a_table(tables, names, heads, value) for names, heads, value in cells)


def make_files(folder, n_scans):
    """(group, path, what is right)"""
    files = []
    for i, function in enumerate(layouts.CASES):
        made = function()
        path = folder / f"layout{i}.pdf"
        path.write_bytes(make_pdf.write(made.pages, bookmarks=made.options.get("bookmarks", ())))
        files.append(("layouts", path, made))
    dice = random.Random(7)
    for kind in ("xlsx", "docx", "html", "pptx"):
        rows = score_tables.make_table(dice)
        path = folder / f"table.{kind}"
        path.write_bytes(score_tables.KINDS[kind](rows))
        cells = [(heads[:2], heads[2:], value) for value, heads in score_tables.cells_of(rows)]
        files.append((f"tables in {kind}", path, cells))
    texts = [scan for scan in scans.make_scans() if not scan.cells]
    for i, scan in enumerate(texts[::max(1, len(texts) // n_scans)][:n_scans] if n_scans else []):
        pdf = scan_files.Pdf()
        pdf.page(scan.pixels)
        files.append(("scans", pdf.write(folder / f"scan{i}.pdf"), scan.text))
    return files


def judge(files, answers):
    sums = {}
    for (group, _, right), answer in zip(files, answers):
        total = sums.setdefault(group, {"seconds": 0, "files": 0, "sentences": [0, 0], "absent": [0, 0], "line": 0, "table": 0, "cells": 0, "error": 0})
        text = answer["text"]
        total["seconds"] += answer["seconds"]
        total["files"] += 1
        if group == "scans":
            total["error"] += scan_scores.error_rate(plain(text), right)
            continue
        if group == "layouts":
            flat = score.flat(plain(text))
            good = score.in_order(flat, [score.flat(one) for one in right.sentences])
            total["sentences"] = [total["sentences"][0] + sum(good), total["sentences"][1] + len(good)]
            total["absent"] = [total["absent"][0] + sum(one not in flat for one in right.absent), total["absent"][1] + len(right.absent)]
            right = right.cells
        line, table = count_cells(text, right)
        total["line"] += line
        total["table"] += table
        total["cells"] += len(right)
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers")
    parser.add_argument("--scans", type=int, default=6)
    parser.add_argument("--readers", default=",".join(["retro-index", *PEERS]))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        files = make_files(pathlib.Path(name), options.scans)
        paths = [path for _, path, _ in files]
        print("| reader | files | sentences | left out | cells in a line | in a table | error of scans | seconds |\n|---|---|--:|--:|--:|--:|--:|--:|")
        for reader in options.readers.split(","):
            answers = read_ours(paths) if reader == "retro-index" else read_by_peer(options.peers, reader, paths)
            for group, one in judge(files, answers).items() if answers else ():
                share = lambda part: f"{part[0] / part[1]:.3f}" if part[1] else ""
                cells = [f"{one[key]} of {one['cells']}" if one["cells"] else "" for key in ("line", "table")]
                error = f"{one['error'] / one['files']:.4f}" if group == "scans" else ""
                print(f"| {reader} | {one['files']} {group} | {share(one['sentences'])} | {share(one['absent'])} | {cells[0]} | {cells[1]} | {error} | {one['seconds']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
