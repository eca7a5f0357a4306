#!/usr/bin/env python3
"""The worth of two threads of one process: against two processes of one thread each, and against the memory.

    threads_race.py --json out.jsonl
    threads_race.py --json out.jsonl --bench new=build/retro-bench --bench old=OTHER/build/retro-bench

All processes are started at the beginning, keep their model, and work by turns (`retro-bench turns`); a round takes each
figure once of each of them. "two processes" are two of the first --bench, one thread each, pinned to a CPU each, asked
at the same moment; their figure is the sum. "read" is what two threads read from memory, in the middle of the round's
tokens: decoding is compared with it by its bytes a token. Needs exactly two CPUs. All rounds are printed.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

import race

SHARED = ["pp512", "batch16.pp", "batch16.tg"]
GOAL, DECODE_GOAL, WORST_DECODE = 0.92, 0.95, 0.85


class Bench:
    """A process that takes turns."""

    def __init__(self, bench, model, threads, cpu=None):
        pin = [] if cpu is None else ["taskset", "-c", str(cpu)]
        command = [*pin, *shlex.split(bench), "turns", "--model", model, "--threads", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.token_bytes = None

    def ask(self, test):
        self.process.stdin.write(test + "\n")

    def answer(self, names):
        found = {}
        while not set(names) <= set(found):
            line = self.process.stdout.readline()
            if not line:
                sys.exit("retro-bench turns ended: " + " ".join(self.process.args))
            figure = json.loads(line)
            found[figure["name"]] = figure["value"]
        return found

    def wait_until_open(self):
        self.token_bytes = self.answer(["token_bytes"])["token_bytes"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def figures_of(test):
    return ["batch16.pp", "batch16.tg"] if test.startswith("batch16") else [test]


def take_together(benches, test):
    """The sums over processes that work at the same time."""
    for b in benches:
        b.ask(test)
    answers = [b.answer(figures_of(test)) for b in benches]
    return {name: sum(a[name] for a in answers) for name in figures_of(test)}


def take_round(number, pair, single, tests):
    """One round: entry -> {figure: value}; "others" is how many CPUs were used by anything else."""
    out = {name: {} for name in ["two processes", *single]}
    pids = [b.process.pid for b in [*pair, *single.values()]]
    order = list(out)[:: -1 if number % 2 else 1]
    with race.Others(pids) as others:
        for test in tests:
            for name in order:
                if test != "tg64":
                    out[name].update(take_together(pair if name == "two processes" else [single[name]], test))
                elif name in single:
                    first = next(iter(single.values()))
                    reads = [take_together([first], "read")["read"]]
                    out[name].update(take_together([single[name]], test))
                    reads.append(take_together([first], "read")["read"])
                    out[name]["read"] = statistics.mean(reads)
    for values in out.values():
        values["others"] = others.cpus
    return out


def rows_of(results, single, token_bytes):
    """(label, values by round, ratios by round), where the ratio is to the two processes or to the read bandwidth."""
    for test in SHARED:
        pair = race.values_of(results, "two processes", test)
        if pair:
            yield f"{test}, two processes, tok/s", pair, None
        for name in single:
            values = race.values_of(results, name, test)
            if values and pair:
                yield f"{test}, {name}, tok/s", values, [v / p for v, p in zip(values, pair)]
    for name in single:
        values, reads = (race.values_of(results, name, test) for test in ("tg64", "read"))
        if values:
            yield f"read beside {name}, GB/s", reads, None
            yield f"tg64, {name}, tok/s", values, [v * token_bytes * 1e-9 / r for v, r in zip(values, reads)]


def print_rounds(results, single, token_bytes):
    others = [r["two processes"]["others"] for r in results]
    print(f"\n{len(results)} rounds, {time.strftime('%F %T')}; CPUs used by others in each round: "
          + " ".join(f"{o:.2f}" for o in others))
    for label, values, ratios in rows_of(results, single, token_bytes):
        print(f"{label:36s} " + " ".join(f"{v:6.1f}" for v in values))
        if ratios:
            print(f"{'':36s} " + " ".join(f"{r:6.2f}" for r in ratios)
                  + f"  median {statistics.median(ratios):.3f}, worst {min(ratios):.3f}")
    print(f"goals: {GOAL} of two processes in the median; decoding {DECODE_GOAL} of read in the median, {WORST_DECODE} "
          "in the worst round")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", action="append", metavar="NAME=COMMAND", help="build/retro-bench; the pair is of the first")
    p.add_argument("--model", default="m-int8")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--seconds", type=float, default=1e9, help="no round begins later")
    p.add_argument("--tests", nargs="+", default=["pp512", "batch16.tg", "tg64"])
    p.add_argument("--json", help="append every round to this file")
    a = p.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) != 2:
        sys.exit("this needs exactly two CPUs: run it under taskset")
    benches = dict(b.split("=", 1) for b in a.bench or ["two threads=build/retro-bench"])
    end = time.monotonic() + a.seconds
    pair = [Bench(next(iter(benches.values())), a.model, 1, cpu) for cpu in cpus]
    single = {name: Bench(command, a.model, 2) for name, command in benches.items()}
    for b in [*pair, *single.values()]:
        b.wait_until_open()
    results = []
    for i in range(a.rounds):
        if time.monotonic() > end:
            break
        results.append(take_round(i, pair, single, a.tests))
        if a.json:
            with open(a.json, "a") as out:
                out.write(json.dumps({"race": "threads", "model": a.model, "time": time.strftime("%FT%T"), **results[-1]}) + "\n")
    print_rounds(results, single, pair[0].token_bytes)
    for b in [*pair, *single.values()]:
        b.close()


if __name__ == "__main__":
    main()
