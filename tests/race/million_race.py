#!/usr/bin/env python3
"""Searches among a million chunks: `scale search` against LanceDB over the same texts, vectors and queries, by turns.

    build/tests/scale/scale make WORK/million 1000000 docs/*.md
    build/tests/scale/scale export WORK/export 1000000 docs/*.md
    LANCE tests/race/million_peer.py make WORK/export WORK/lance
    million_race.py WORK --chunks 1000000 --lance LANCE

LANCE is a python that has lancedb. A round opens each of them once, searches 400 times by vectors, by words and by both,
and compares the ten nearest of 200 queries with exact search. Neither time includes HTTP or embedding; LanceDB's include
its Python.
"""
import argparse
import pathlib
import subprocess
import sys

import race

HERE = pathlib.Path(__file__).resolve().parent
TESTS = {f"search.{way}.{part}": "ms" for way in ("hybrid", "vectors", "words") for part in ("p50", "p95", "most")}
TESTS |= {"recall.10": "", "search.memory": "MiB", "open": "s"}


def run(command):
    with race.Others() as others:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: float(line[1]) for line in lines if line[0] in TESTS} | {"others": others.cpus}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--chunks", type=int, default=1000000)
    p.add_argument("--lance", required=True, help="a python that has lancedb")
    p.add_argument("--probes", default="1024", help="lists that LanceDB reads of 4096")
    p.add_argument("--scale", default="build/tests/scale/scale")
    p.add_argument("--texts", nargs="+", default=sorted(map(str, pathlib.Path("docs").glob("*.md"))))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    entries = {"ours": lambda: run([a.scale, "search", a.work / "million", a.chunks, *a.texts]),
               "lancedb": lambda: run([a.lance, HERE / "million_peer.py", "search", a.work / "export", a.work / "lance", "--probes", a.probes])}
    results = race.run_rounds("million", entries, a.rounds, a.json)
    ratios = [(f"ours / lancedb, {test}", test, "ours", ["lancedb"]) for test in TESTS if test.endswith("p50") or test.endswith("p95")]
    race.print_results(f"{a.chunks} chunks, LanceDB reads {a.probes} lists", results, TESTS, ratios)


if __name__ == "__main__":
    main()
