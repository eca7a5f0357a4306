#!/usr/bin/env python3
"""tests/reading/score.py [-v] [--pdftotext] [NAME]: makes the layouts of layouts.py, reads them with build/tests/reading/read_file, and prints
how much of each is right; the last lines are the sums. With --pdftotext that program reads them, which knows no places and
no kinds. docs/results/reading.md has the figures."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import make_pdf

sys.modules.setdefault("layouts", __import__("layouts"))
import layouts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
READ = ROOT / os.environ.get("RETRO_BUILD", "build") / "tests/reading/read_file"
KINDS = {"paragraph": 1, "heading": 2, "item": 3, "head": 4, "row": 5, "code": 6, "caption": 7, "footnote": 8, "contents": 9}


def read_by_pdftotext(path):
    began = time.monotonic()
    run = subprocess.run(["pdftotext", path, "-"], capture_output=True, text=True)
    document = {"text": run.stdout, "blocks": [], "found": {}}
    return {"documents": [document], "seconds": time.monotonic() - began, "error": ""}


def read(path, *sentences):
    if "--pdftotext" in sys.argv:
        return read_by_pdftotext(path)
    run = subprocess.run([READ, path, *sentences], capture_output=True, text=True, timeout=300)
    return json.loads(run.stdout)


def flat(text):
    return re.sub(r"\s+", " ", text)


def has_cell(lines, cell):
    rows, heads, value = cell
    for line in lines:
        parts = line.split(" | ")
        found = any(part.endswith(value) and all(head in part for head in heads) for part in parts)
        if found and all(name in parts[0] for name in rows):
            return True
    return False


def kind_at(document, place):
    kind = 0
    for at, level in document["blocks"]:
        if at > place:
            break
        kind = level
    return kind


def in_order(text, sentences):
    """Each sentence that stands whole behind the one before it."""
    right, at = [], 0
    for one in sentences:
        place = text.find(one, at)
        right.append(place >= 0)
        if place >= 0:
            at = place + len(one)
    return right


def box_share(rects, words, page):
    """Of the sentence's words those whose middle lies within, and of the words within those that are the sentence's."""
    def inside(box):
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        return any(r[3] - 1 <= x <= r[5] + 1 and r[4] - 1 <= y <= r[6] + 1 for r in rects)
    mine = sum(inside(box) for box in words)
    within = sum(inside(box[1:]) for box in page.boxes)
    return mine / len(words), mine / max(within, 1)


def sentence_boxes(page, sentence):
    """The boxes of a sentence's words, one after the other in the order in which they were drawn."""
    words, drawn = sentence.split(), [box[0] for box in page.boxes]
    for i in range(len(drawn) - len(words) + 1):
        if drawn[i:i + len(words)] == words:
            return [box[1:] for box in page.boxes[i:i + len(words)]]
    return None


def score(made, folder):
    path = folder / "case.pdf"
    path.write_bytes(make_pdf.write(made.pages, bookmarks=made.options.get("bookmarks", ())))
    asked = made.sentences[:8] if len(made.pages) == 1 and all("\n" not in one for one in made.sentences[:8]) else []
    answer = read(path, *asked)
    document = (answer["documents"] or [{"text": "", "blocks": [], "found": {}}])[0]
    text = document["text"] if "\n" in "".join(made.sentences) else flat(document["text"])
    right = in_order(text, made.sentences)
    wrong = [one for one, good in zip(made.sentences, right) if not good]
    side = made.options.get("side", [])
    wrong += [one for one in side if one not in flat(document["text"])]
    absent = [one for one in made.absent if one in flat(document["text"])]
    lines = document["text"].split("\n")
    lost = [cell for cell in made.cells if not has_cell(lines, cell)]
    kinds = []
    for kind, start in made.blocks:
        place = document["text"].find(start[:30])
        if place < 0 or kind_at(document, len(document["text"][:place].encode())) != KINDS[kind]:
            kinds.append((kind, start))
    boxes, bad = 0, []
    for sentence in asked:
        words = sentence_boxes(made.pages[0], sentence)
        if not words or sentence not in document["text"]:
            continue
        boxes += 1
        share = box_share(document["found"].get(sentence, []), words, made.pages[0])
        if share[0] < 0.95 or share[1] < 0.9:
            bad.append((sentence, share))
    return {"sentences": len(made.sentences) + len(side), "wrong": wrong, "absent": len(made.absent), "present": absent,
            "cells": len(made.cells), "lost": lost, "blocks": len(made.blocks), "kinds": kinds, "boxes": boxes, "bad": bad,
            "seconds": answer["seconds"], "text": document["text"]}


def main():
    names = [one for one in sys.argv[1:] if not one.startswith("-")]
    verbose = "-v" in sys.argv
    sums = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for function in layouts.CASES:
            made = function()
            if names and not any(name in made.name for name in names):
                continue
            got = score(made, pathlib.Path(folder))
            faults = [("wrong", "sentences"), ("present", "absent"), ("lost", "cells"), ("kinds", "blocks"), ("bad", "boxes")]
            said = ", ".join(f"{whole} {got[whole] - len(got[fault])}/{got[whole]}" for fault, whole in faults if got[whole])
            ok = not any(got[fault] for fault, _ in faults)
            print(f"{'ok    ' if ok else 'FAULTY'} {made.name}: {said}")
            for fault, whole in faults:
                a, b = sums.get(whole, (0, 0))
                sums[whole] = (a + got[whole] - len(got[fault]), b + got[whole])
            if verbose and not ok:
                for fault, _ in faults:
                    for one in got[fault][:4]:
                        print("      ", fault, one)
                print("\n".join("       | " + line for line in got["text"].split("\n")[:60]))
    for whole, (good, n) in sums.items():
        print(f"{whole}: {good} of {n}, {good / max(n, 1):.3f}")
    print(f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
