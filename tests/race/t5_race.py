#!/usr/bin/env python3
"""T5-large in bf16: reading sources and writing after them, ours against PyTorch, by turns.

    python3 -m venv torch-venv && torch-venv/bin/pip install torch==2.15.0 transformers==5.23.0
    ~/.cache/retro-server/venv/bin/python tests/race/t5_race.py --torch torch-venv/bin/python --threads 1 2

A load SEQUENCESxSOURCE+TOKENS is some sequences at once, each with a source and that many tokens after it. Ours is
`retro-bench seq2seq`, PyTorch is t5_peer.py; both have random weights, so texts do not matter. Ratios:

    decode    tokens per second, steps of one token of each sequence over the cache
    first     source tokens per second until the first token's logits are there: the same work on both sides
    encoder   source tokens per second: ours is that time less one later step, and still makes the decoder's keys and
              values of the source, which PyTorch's encoder does not; PyTorch's is the encoder alone

All three are the rate of ours over that of PyTorch, which is the faster of its attentions where several are given.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import race

LOADS = ["1x128+64", "8x128+64", "1x512+8", "8x512+8"]
TESTS = {"decode": "tok/s", "first": "source tok/s", "encoder": "source tok/s"}


def parse_load(text):
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)\+([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: expected SEQUENCESxSOURCE+TOKENS, as in 8x128+64")
    return tuple(map(int, match.groups()))


class Peer:
    """A process of t5_peer.py, idle between questions."""

    def __init__(self, python, config, attention):
        script = pathlib.Path(__file__).with_name("t5_peer.py")
        self.process = subprocess.Popen([python, script, config, "--attention", attention], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def rate(self, threads, load):
        with race.Others([self.process.pid]) as others:
            print("rate", threads, *load, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        if not line:
            sys.exit("PyTorch's process ended")
        return {**json.loads(line), "others": others.cpus}

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def our_figures(text):
    """{test: value} of what retro-bench seq2seq prints as JSON."""
    figures = {line["name"].removeprefix("seq2seq."): line["value"] for line in race.json_lines(text)}
    return {"first": figures["first"], "encoder": figures["encode"], "decode": figures["decode"]}


def our_rate(bench, folder, threads, load):
    sequences, source, tokens = load
    command = [bench, "seq2seq", "--dtype", "bf16", "--rounds", "1", "--json", "--threads", threads, "--sequences",
               sequences, "--prompt", source, "--tokens", tokens, folder]
    with race.Others() as others:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return {**our_figures(done.stdout), "others": others.cpus}


def print_rounds(results, tests):
    for test in tests:
        for entry in results[0]:
            values = " ".join(f"{v:.1f}" for v in race.values_of(results, entry, test))
            print(f"  rounds of {test}, {entry}: {values}")


def race_load(a, peers, threads, load):
    name = f"{load[0]}x{load[1]}+{load[2]}"
    entries = {"ours": lambda: our_rate(f"{a.build}/retro-bench", a.shape, threads, load)}
    for attention, peer in peers.items():
        entries[f"torch {attention}"] = lambda p=peer: p.rate(threads, load)
    results = race.run_rounds(f"t5 {name}, {threads} threads", entries, a.rounds, a.json)
    against = [e for e in entries if e != "ours"]
    ratios = [(f"{test}: ours / torch", test, "ours", against) for test in TESTS]
    race.print_results(f"T5 bf16 {name}, {threads} threads", results, TESTS, ratios)
    print_rounds(results, TESTS)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="folder of retro-bench")
    p.add_argument("--shape", default="tools/shapes/t5-large", help="folder of a config.json, which both read")
    p.add_argument("--torch", required=True, help="Python that has PyTorch and transformers")
    p.add_argument("--attention", nargs="+", choices=["sdpa", "eager"], default=["sdpa"], help="of transformers")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--loads", type=parse_load, nargs="+", default=[parse_load(text) for text in LOADS])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    peers = {}
    try:
        for attention in a.attention:
            peers[attention] = Peer(a.torch, f"{a.shape}/config.json", attention)
        for threads in a.threads:
            for load in a.loads:
                race_load(a, peers, threads, load)
    finally:
        for peer in peers.values():
            peer.stop()


if __name__ == "__main__":
    main()
