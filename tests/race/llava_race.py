#!/usr/bin/env python3
"""Time from a picture to the first token of a LLaVA with random bf16 weights: ours against llama-mtmd-cli, by turns.

    python tests/race/random_llava_gguf.py WORK/llava --tower f16
    python tests/race/llava_race.py --peer PEERS/bin/llama-mtmd-cli --folder WORK/llava

The shape is tools/shapes/llava-1b: CLIP's ViT-L/14 of 336 pixels and a decoder of 1.26 G parameters. Ours is `retro-bench
tower`: the tower, the projector, the decoder over 576 rows and the text, the logits. Theirs is the "prompt eval time" that
llama-mtmd-cli prints, which runs from the first decoding of text, through encoding the picture, to the last logits; and
what it says of the encoding. Reading and resizing the file is counted on neither side. Ours gets as many tokens of text
as theirs had. Needs Pillow and NumPy.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import race
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = 576


def run(command):
    with race.Others() as others:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr, others.cpus


def their_time(a, picture, threads):
    text, others = run([a.peer, "-m", a.folder / "llm.gguf", "--mmproj", a.folder / "mmproj.gguf", "--image", picture, "-p",
                        "w1", "-n", 1, "-t", threads, "--temp", 0, "--perf", "-lv", 4, "--chat-template", "vicuna"])
    encode = float(re.search(r"encoding done in ([\d.]+) ms", text)[1])
    prompt, tokens = re.search(r"prompt eval time =\s*([\d.]+) ms /\s*(\d+) tokens", text).groups()
    return {"first": float(prompt), "tower": encode, "tokens": int(tokens) - ROWS, "others": others}


def our_time(a, threads, tokens):
    text, others = run([f"{a.build}/retro-bench", "tower", "--dtype", "bf16", "--rounds", 1, "--json", "--threads", threads,
                        "--prompt", tokens, ROOT / "tools/shapes/llava-1b"])
    found = {line["name"]: line["value"] for line in race.json_lines(text)}
    return {"first": found["tower.first"], "tower": 1e3 / found["tower.pictures"], "tokens": tokens, "others": others}


def measure(a, threads, picture, rounds):
    tokens = their_time(a, picture, threads)["tokens"] if a.tokens is None else a.tokens
    entries = {"retro": lambda: our_time(a, threads, tokens), "llama.cpp": lambda: their_time(a, picture, threads)}
    results = race.run_rounds(f"llava {threads}", entries, rounds, a.json)
    ratios = [(f"{test}: retro / llama.cpp", test, "retro", ["llama.cpp"]) for test in ("first", "tower")]
    race.print_results(f"LLaVA 1 B, {threads} threads", results, {"first": "ms", "tower": "ms", "tokens": ""}, ratios)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--peer", required=True, help="llama-mtmd-cli")
    p.add_argument("--folder", type=pathlib.Path, required=True, help="of random_llava_gguf.py")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--tokens", type=int, help="of text; else a run of theirs says so")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as name:
        picture = pathlib.Path(name) / "picture.png"
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (336, 336, 3), dtype=np.uint8)).save(picture)
        for threads in a.threads:
            measure(a, threads, picture, a.rounds)


if __name__ == "__main__":
    main()
