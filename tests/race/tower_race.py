#!/usr/bin/env python3
"""Vision towers with random weights: ours against PyTorch and ONNX Runtime, by turns.

    python3 tests/race/tower_race.py --torch torch-venv/bin/python --onnx onnx-venv/bin/python

The shapes are CLIP's ViT-L/14 of 336 pixels and RADIO's ViT-B/16 at 512 pixels. Ours is `retro-bench tower`, theirs is
tower_peers.py. Pixels are given on both sides; ours also cuts the patches, finds the positions and copies rows. Rates
are pictures a second. bf16 is measured against the best of all others, f32 against the best of others in f32.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import race

SIDES = {"clip-vit-l-14-336": 336, "radio-b": 512}
TORCH, ONNX = ["bf16", "f32"], ["f32"]


class Peer:
    """A process of tower_peers.py, idle between questions."""

    def __init__(self, python, engine, shape):
        script = pathlib.Path(__file__).with_name("tower_peers.py")
        self.process = subprocess.Popen([python, script, engine, shape, str(SIDES[shape])], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def rate(self, variant, threads, pictures, times):
        with race.Others([self.process.pid]) as others:
            print("rate", variant, threads, pictures, times, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        if not line:
            sys.exit("a peer's process ended")
        return {**json.loads(line), "others": others.cpus}

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def our_rate(build, shape, dtype, threads, pictures, times):
    folder = pathlib.Path(__file__).resolve().parents[2] / "tools/shapes" / shape
    command = [f"{build}/retro-bench", "tower", "--dtype", dtype, "--rounds", times, "--json", "--threads", threads,
               "--sequences", pictures, "--pixels", SIDES[shape], folder]
    with race.Others() as others:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return {"rate": race.json_lines(done.stdout)[0]["value"], "others": others.cpus}


def entries_of(build, shape, torch, onnx, threads, pictures, times, compiled=()):
    entries = {f"retro {t}": lambda t=t: our_rate(build, shape, t, threads, pictures, times) for t in ("bf16", "f32")}
    for variant in [*TORCH, *compiled]:
        entries[f"torch {variant}"] = lambda v=variant: torch.rate(v, threads, pictures, times)
    for variant in ONNX:
        entries[f"onnx {variant}"] = lambda v=variant: onnx.rate(v, threads, pictures, times)
    return entries


def print_race(shape, threads, pictures, results):
    others = [e for e in results[0] if not e.startswith("retro")]
    narrow = [e for e in others if "bf16" not in e]
    ratios = [("retro bf16 / best of others", "rate", "retro bf16", others),
              ("retro f32 / best f32 of others", "rate", "retro f32", narrow)]
    race.print_results(f"{shape}, {threads} threads, {pictures} pictures", results, {"rate": "pictures/s"}, ratios)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="folder of retro-bench")
    p.add_argument("--torch", required=True, help="Python that has PyTorch")
    p.add_argument("--onnx", required=True, help="Python that has onnx and onnxruntime")
    p.add_argument("--shapes", nargs="+", choices=list(SIDES), default=list(SIDES))
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--pictures", type=int, nargs="+", default=[1, 8])
    p.add_argument("--compiled", nargs="*", choices=["bf16-compiled", "f32-compiled"], default=[])
    p.add_argument("--times", type=int, default=1, help="measurements of each entry in a round, whose median counts")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    for shape in a.shapes:
        peers = [Peer(a.torch, "torch", shape), Peer(a.onnx, "onnx", shape)]
        for threads in a.threads:
            for pictures in a.pictures:
                entries = entries_of(a.build, shape, *peers, threads, pictures, a.times, a.compiled)
                results = race.run_rounds(f"tower {shape} {threads} {pictures}", entries, a.rounds, a.json)
                print_race(shape, threads, pictures, results)
        for peer in peers:
            peer.stop()


if __name__ == "__main__":
    main()
