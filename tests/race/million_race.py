#!/usr/bin/env python3
"""Searches among a million chunks: `scale search` against LanceDB and Milvus Lite over the same texts, vectors and queries,
by turns.

    build/tests/scale/scale make WORK/million 1000000 docs/*.md
    build/tests/scale/scale export WORK/export 1000000 docs/*.md
    LANCE tests/race/million_lance.py make WORK/export WORK/lance
    MILVUS tests/race/million_milvus.py make WORK/export WORK/milvus
    million_race.py WORK --chunks 1000000 --lance LANCE --milvus MILVUS

LANCE is a python that has lancedb, MILVUS one that has pymilvus and milvus-lite; one of them is enough. A round opens each of
them once, searches it 400 times by vectors, by words and by both, and compares the ten nearest of 200 queries with exact search.
No time includes HTTP or embedding; those of the peers include their Python.
"""
import argparse
import pathlib
import subprocess
import sys

import race

HERE = pathlib.Path(__file__).resolve().parent
TESTS = {f"search.{way}.{part}": "ms" for way in ("hybrid", "vectors", "words") for part in ("p50", "p95", "most")}
TESTS |= {"recall.10": "", "search.memory": "MiB", "open": "s", "first": "s"}


def run(command):
    with race.Others() as others:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: float(line[1]) for line in lines if line[0] in TESTS} | {"others": others.cpus}


def peers(a):
    """name -> the command that searches it."""
    found = {}
    if a.lance:
        found["lancedb"] = [a.lance, HERE / "million_lance.py", "search", a.work / "export", a.work / "lance", "--probes", a.probes, "--searches", a.searches]
    if a.milvus:
        found["milvus"] = [a.milvus, HERE / "million_milvus.py", "search", a.work / "export", a.work / "milvus", *a.milvus_options.split(),
                           "--searches", a.searches]
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--chunks", type=int, default=1000000)
    p.add_argument("--lance", help="a python that has lancedb")
    p.add_argument("--probes", default="1024", help="lists that LanceDB reads of 4096")
    p.add_argument("--milvus", help="a python that has pymilvus and milvus-lite")
    p.add_argument("--milvus-options", default="", help="of million_milvus.py, as \"--index ivfsq8 --probes 50\"")
    p.add_argument("--searches", type=int, default=400, help="of a peer, each way")
    p.add_argument("--scale", default="build/tests/scale/scale")
    p.add_argument("--texts", nargs="+", default=sorted(map(str, pathlib.Path("docs").glob("*.md"))))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    commands = {"ours": [a.scale, "search", a.work / "million", a.chunks, *a.texts]} | peers(a)
    if len(commands) == 1:
        p.error("--lance or --milvus is needed")
    entries = {name: lambda command=command: run(command) for name, command in commands.items()}
    results = race.run_rounds("million", entries, a.rounds, a.json)
    ratios = [(f"ours / {name}, {test}", test, "ours", [name]) for name in commands if name != "ours"
              for test in TESTS if test.endswith("p50") or test.endswith("p95")]
    race.print_results(f"{a.chunks} chunks", results, TESTS, ratios)


if __name__ == "__main__":
    main()
