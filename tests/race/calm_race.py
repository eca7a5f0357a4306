#!/usr/bin/env python3
"""One sequence on calm (zeux/calm, its CPU path) and on ours, by turns: tokens per second, 64 tokens from an empty cache.

    git clone https://github.com/zeux/calm && calm_race.py --build calm           (makes calm/run-cpu)
    random_model.py calm m-fp16.calm --dtype fp16; random_model.py calm m-fp8.calm --dtype fp8
    calm_race.py --calm calm/run-cpu --fp16 m-fp16.calm --fp8 m-fp8.calm --threads 1 2 --json out.jsonl

calm is compiled with its own Makefile's flags, for this machine (-march=native), and without CUDA. The shape is m on both
sides. It compares fp16 with our f16 and bf16 (16 bits a weight), fp8 with our int8 (8.5 bits). calm multiplies in
f32; ours rounds activations to bf16 for bf16 weights and to int8 for int8 weights. calm keeps keys and values in f16.
Ours is `retro-bench decode`, without retrieval.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import race

PAIRS = {"fp16": ("f16", "bf16"), "fp8": ("int8",)}
FLAGS = ["-O3", "-ffast-math", "-fopenmp", "-march=native"]
# The function that run.c calls where a GPU is asked for; CALM_CPU=1 keeps it from doing so.
NO_CUDA = """
#include <stddef.h>
#include <stdlib.h>
struct Transformer;
void* upload_cuda(void* p, size_t n) { (void)p, (void)n; abort(); }
void prepare_cuda(struct Transformer* t) { (void)t; abort(); }
float* forward_cuda(struct Transformer* t, int token, int pos, unsigned flags) {
    (void)t, (void)token, (void)pos, (void)flags; abort();
}
void perf_cuda(void) {}
"""


def build(folder, compiler):
    (folder / "no_cuda.c").write_text(NO_CUDA)
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), str(folder / "no_cuda.c")]
    subprocess.run([compiler, *FLAGS, *sources, "-lm", "-o", str(folder / "run-cpu")], check=True)


def output_of(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def calm_rate(text, tokens):
    """From calm's closing line, which also says whether it wrote as many tokens as it was asked for."""
    found = re.search(r"# (\d+) tokens: throughput: ([\d.]+) tok/s", text)
    if not found or int(found[1]) != tokens:
        sys.exit(f"calm did not write {tokens} tokens: {text[-500:]}")
    return float(found[2])


def calm(a, path, threads):
    with race.Others() as others:
        _, err = output_of([a.calm, path, "-n", str(a.tokens), "-t", "0", "-i", "", "-c", "256"], CALM_CPU="1",
                           OMP_NUM_THREADS=str(threads))
    return {"threads": threads, "rate": calm_rate(err, a.tokens), "others": others.cpus}


def ours(a, dtype, threads):
    command = f"{a.bench} --dtype {dtype} --threads {threads} --tokens {a.tokens} --rounds 1 --json".split()
    with race.Others() as others:
        out, _ = output_of(command)
    found = {line["name"]: line["value"] for line in race.json_lines(out)}
    return {"threads": threads, "rate": found["decode"], "share": 100 * found["decode_share_of_read"],
            "others": others.cpus}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, metavar="FOLDER", help="compile calm's sources there and end")
    p.add_argument("--compiler", default="cc")
    p.add_argument("--calm", help="its program")
    p.add_argument("--fp16", help="calm's model file of that type")
    p.add_argument("--fp8")
    p.add_argument("--bench", default="build/retro-bench decode --model m", help="our command but for type and threads")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    if a.build:
        return build(a.build, a.compiler)
    models = {"fp16": a.fp16, "fp8": a.fp8}
    if not a.calm or not any(models.values()):
        p.error("--calm and --fp16 or --fp8 are needed")
    for threads in a.threads:
        entries, ratios = {}, []
        for kind, path in models.items():
            if not path:
                continue
            entries[f"calm {kind}"] = lambda path=path: calm(a, path, threads)
            for dtype in PAIRS[kind]:
                entries[f"ours {dtype}"] = lambda dtype=dtype: ours(a, dtype, threads)
                ratios.append((f"ours {dtype} / calm {kind}", "rate", f"ours {dtype}", [f"calm {kind}"]))
        results = race.run_rounds("calm", entries, a.rounds, a.json)
        race.print_results(f"decode, {a.tokens} tokens, {threads} threads", results,
                           {"rate": "tok/s", "share": "% of the read bandwidth"}, ratios)


if __name__ == "__main__":
    main()
