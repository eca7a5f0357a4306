#!/usr/bin/env python3
"""Files of llama.cpp's types against llama.cpp and ik_llama.cpp, by turns: a prompt of 512 tokens and 64 written ones, or
with --batch 16 sequences together, of 16 prompt tokens and 32 written ones each.

    gguf_race.py --models PEERS/models --llama PEERS/bin --ik PEERS/ik/build/bin --threads 1 --json out.jsonl

MODELS has m-bf16.gguf, m-q8_0.gguf, m-q4_0.gguf and m-q4_K_M.gguf, of one shape with random weights. Ours is
`retro-bench turns` with the same shape and bits; pure Q4_K stands against Q4_K_M, which has some Q6_K. ik_llama.cpp runs
twice, as it comes and with -rtr 1, which rearranges weights as they are read. A ratio is ours over the best of the
others in the same round.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import race

OURS = {"bf16": "m-bf16", "q8_0": "m-int8", "q4_0": "m-int4", "q4_K_M": "m-q4_k"}
UNITS = {"pp512": "tok/s", "tg64": "tok/s"}
BATCH_UNITS = {"batch16.pp": "tok/s", "batch16.tg": "tok/s"}


def absolute(path):
    return pathlib.Path(path).resolve()


def output_of(command, text=None, errors=False):
    """What it prints, and with `errors` also what it says beside. ik writes a log into the folder that it runs in."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout + errors * done.stderr


def measure_ours(a, kind):
    command = [str(a.bench), "turns", "--model", OURS[kind], "--threads", str(a.threads)]
    asked = ["batch16.tg"] if a.batch else UNITS
    lines = [json.loads(line) for line in output_of(command, "".join(f"{test}\n" for test in asked)).splitlines()]
    return {line["name"]: line["value"] for line in lines if line["name"] in a.units}


def measure_peer(a, programs, kind, extra):
    command = [str(programs / "llama-bench"), "-m", str(a.models / f"m-{kind}.gguf"), "-t", str(a.threads),
               "-p", "512", "-n", "64", "-r", "1", "-o", "json", *extra]
    rows = json.loads(output_of(command))
    return {f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}": row["avg_ts"] for row in rows}


def measure_peer_batch(a, programs, kind, extra):
    """The row of numbers of its table: PP, TG, B, N_KV, seconds and rates of both. ik prints it beside its output."""
    command = [str(programs / "llama-batched-bench"), "-m", str(a.models / f"m-{kind}.gguf"), "-t", str(a.threads),
               "-c", "1536", "-b", "2048", "-ub", "512", "-npp", "16", "-ntg", "32", "-npl", "16", *extra]
    rows = [line.strip(" |").split("|") for line in output_of(command, errors=True).splitlines()
            if line.startswith("|")]
    numbers = [float(cell) for cell in rows[-1]]
    return {"batch16.pp": numbers[5], "batch16.tg": numbers[7]}


def entry(measure, *arguments):
    def run():
        with race.Others() as others:
            values = measure(*arguments)
        return {**values, "others": others.cpus}
    return run


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", type=absolute, required=True)
    a.add_argument("--llama", type=absolute, required=True)
    a.add_argument("--ik", type=absolute, required=True)
    a.add_argument("--bench", type=absolute, default=absolute("build/retro-bench"))
    a.add_argument("--types", nargs="+", choices=OURS, default=list(OURS))
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--batch", action="store_true")
    a.add_argument("--json")
    a = a.parse_args()
    a.units = BATCH_UNITS if a.batch else UNITS
    measure = measure_peer_batch if a.batch else measure_peer

    entries = {}
    for kind in a.types:
        entries[f"llama.cpp {kind}"] = entry(measure, a, a.llama, kind, [])
        entries[f"ik {kind}"] = entry(measure, a, a.ik, kind, [])
        entries[f"ik -rtr {kind}"] = entry(measure, a, a.ik, kind, ["-rtr"] if a.batch else ["-rtr", "1"])
        entries[f"retro {kind}"] = entry(measure_ours, a, kind)
    results = race.run_rounds("gguf", entries, a.rounds, a.json)
    against = {kind: [name for name in entries if name.endswith(f" {kind}") and not name.startswith("retro")] for kind in a.types}
    ratios = [(f"{kind} {test}", test, f"retro {kind}", against[kind]) for kind in a.types for test in a.units]
    race.print_results(f"GGUF types, {a.threads} threads", results, a.units, ratios)


if __name__ == "__main__":
    main()
