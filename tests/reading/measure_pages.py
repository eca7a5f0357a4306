#!/usr/bin/env python3
"""tests/reading/measure_pages.py [-n ROUNDS] [--pages N] [PROGRAM...]: seconds in which `retro-index extract` reads a PDF of 1 000 pages of text
(48 lines of 12 words), and seconds of the processor that all of its processes took. Several programs, such as those of two builds,
take turns. docs/results/reading.md has the figures."""
import argparse
import ctypes
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_pdf  # noqa: E402
import scan_texts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
PR_SET_CHILD_SUBREAPER = 36


def write_pages(path, n, lines=48, words=12):
    """Pages of lines of words in any order: letters are as frequent as in English."""
    dice, known = random.Random(1), " ".join(scan_texts.ENGLISH).encode("ascii", "ignore").decode().split()
    pages = []
    for number in range(n):
        page = make_pdf.Page()
        page.text(72, 40, f"Report, page {number + 1}", 8)
        for i in range(lines):
            page.text(60, 80 + 15 * i, " ".join(dice.choice(known) for _ in range(words)), 9)
        pages.append(page)
    path.write_bytes(make_pdf.write(pages))


def wait_for_orphans():
    """Parsers are no children of the program; those whose parent has ended are this process's."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def measure(program, path):
    """Seconds, seconds of the processor."""
    before, began = os.times(), time.monotonic()
    done = subprocess.run([program, "extract", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{program}: {done.stderr}")
    wait_for_orphans()
    after = os.times()
    return seconds, after.children_user + after.children_system - before.children_user - before.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("programs", nargs="*", default=[INDEX])
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    results = {program: [] for program in options.programs}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "pages.pdf"
        write_pages(path, options.pages)
        for _ in range(options.n):
            for program in options.programs:
                results[program].append(measure(program, path))
    print("| program | seconds: least, median, most | of a core |\n|---|--:|--:|")
    for program, rounds in results.items():
        columns = [sorted(column) for column in zip(*rounds)]
        print(f"| {program} | " + " | ".join(f"{one[0]:.1f}, {statistics.median(one):.1f}, {one[-1]:.1f}" for one in columns) + " |")


if __name__ == "__main__":
    main()
