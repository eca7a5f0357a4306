#!/usr/bin/env python3
"""Files into a collection: `retro-index build` against a Python pipeline (ingest_peer.py), by turns.

    VENV/bin/pip install sentence-transformers faiss-cpu
    ~/.cache/retro-server/venv/bin/python tests/race/ingest_race.py FILES --python VENV/bin/python --threads 2 \\
        --json out.jsonl

FILES is a folder of .txt files. Chunks per second of each. Ours is the whole process, its start and its fsyncs included;
the peer's imports and the opening of its models are not counted.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import race

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ROOT / "models/retro-docs"


class Peer:
    """A process of ingest_peer.py, idle between questions."""

    def __init__(self, python, files, dtype, threads):
        command = [python, pathlib.Path(__file__).with_name("ingest_peer.py"), files, DEPS / "minilm",
                   MODEL / "tokenizer.json", dtype, threads]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": str(threads)})

    def measure(self):
        with tempfile.TemporaryDirectory() as out, race.Others([self.process.pid]) as others:
            print(out, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        if not line:
            sys.exit("the peer ended")
        return {**json.loads(line), "others": others.cpus}


def measure_ours(files, dtype, threads):
    with tempfile.TemporaryDirectory() as out, race.Others() as others:
        start = time.perf_counter()
        done = subprocess.run(
            [ROOT / "build/retro-index", "build", "--out", f"{out}/c", "--index", "flat", "--set", f"model.path={MODEL}",
             "--set", f"retrieval.embedder={DEPS / 'minilm'}", "--set", f"retrieval.embedder_dtype={dtype}",
             "--set", f"model.threads={threads}", "--threads", str(threads), files],
            capture_output=True, text=True)
        seconds = time.perf_counter() - start
    if done.returncode not in (0, 2):
        sys.exit(done.stderr)
    chunks = int(re.search(r"(\d+) chunks", done.stdout)[1])
    return {"chunks": chunks, "rate": chunks / seconds, "others": others.cpus}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files")
    parser.add_argument("--python", required=True)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--peers", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    a = parser.parse_args()
    for threads in a.threads:
        peers = {f"python {dtype}": Peer(a.python, a.files, dtype, threads) for dtype in a.peers}
        entries = {"ours": lambda: measure_ours(a.files, "bf16", threads)}
        entries |= {name: peer.measure for name, peer in peers.items()}
        results = race.run_rounds("ingest", entries, a.rounds, a.json)
        race.print_results(f"ingest, {threads} threads", results, {"rate": "chunks/s", "chunks": "chunks"},
                           [("ours / best of Python", "rate", "ours", list(peers))])
        for peer in peers.values():
            peer.process.stdin.close()
            peer.process.wait()


main()
