#!/usr/bin/env python3
"""MiniLM embeddings, 64 texts of 64 tokens at once: ours against PyTorch and ONNX Runtime, by turns.

    python3 -m venv onnx-venv && onnx-venv/bin/pip install onnx onnxruntime
    build/retro-convert ~/.cache/retro-server/minilm minilm-int8 --to int8
    ~/.cache/retro-server/venv/bin/python tests/race/embed_race.py --int8 minilm-int8 --onnx onnx-venv/bin/python \\
        --torch ~/.cache/retro-server/train-venv/bin/python --threads 1 2 --json out.jsonl

Texts per second. Ours is `retro-bench embed`, from characters to vectors; the peers are given token ids
(embed_peers.py says what they compute). Ratios are against the fastest peer that computes in at least 16 bits, and for
int8 against ONNX Runtime's int8 too. Then the least cosine of each entry's vectors with PyTorch's in f32.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import race

WORDS = "the file is open and a process writes to it for every line after one second".split()
TEXTS, LENGTH = 64, 62  # and [CLS], [SEP]
PEERS = {"torch": ["f32", "bf16"], "onnx": ["f32", "int8"]}


def make_texts(n=TEXTS):
    """Words that the vocabulary holds whole, drawn as retro-bench draws them."""
    texts, seed = [], 1
    for _ in range(n):
        words = []
        for _ in range(LENGTH):
            seed = (seed * 1664525 + 1013904223) % 2**32
            words.append(WORDS[seed >> 28])
        texts.append(" ".join(words))
    return texts


def token_ids(texts, vocabulary):
    number = {word: i for i, word in enumerate(vocabulary)}
    return np.array([[number[w] for w in ("[CLS]", *text.split(), "[SEP]")] for text in texts], np.int64)


def least_cosine(a, b):
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


class Peer:
    """A process of embed_peers.py, idle between questions."""

    def __init__(self, python, engine, variants, model, ids):
        script = pathlib.Path(__file__).with_name("embed_peers.py")
        self.name, self.variants = engine, variants
        self.process = subprocess.Popen([python, script, engine, model, ids], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended at: {' '.join(map(str, words))}")
        return json.loads(line)

    def rate(self, variant, threads, batches):
        with race.Others([self.process.pid]) as others:
            answer = self.ask("rate", variant, threads, batches)
        return {"threads": threads, **answer, "others": others.cpus}

    def vectors(self, variant, folder):
        path = pathlib.Path(folder) / "vectors.npy"
        self.ask("vectors", variant, path)
        return np.load(path)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def our_rate(a, dtype, model, threads):
    with race.Others() as others:
        out = run([f"{a.build}/retro-bench", "embed", "--dtype", dtype, "--threads", str(threads), "--rounds", "1", "--json",
                   model])
    rate = next(line["value"] for line in race.json_lines(out) if line["name"] == "embed")
    return {"threads": threads, "rate": rate, "others": others.cpus}


def our_vectors(a, dtype, model, texts):
    kept = "auto" if dtype == "int8" else dtype
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    out = run([f"{a.build}/retro-eval", "embed", "--set", f"retrieval.embedder_dtype={kept}", model, "-"], lines)
    return np.array([json.loads(line) for line in out.splitlines()], np.float32)


def compare_vectors(a, ours, peers, texts, folder):
    reference = peers["torch"].vectors("f32", folder)
    print("\nleast cosine with PyTorch f32:")
    for dtype, model in ours.items():
        print(f"  ours {dtype:29s} {least_cosine(our_vectors(a, dtype, model, texts), reference):.6f}")
    for name, peer in peers.items():
        for variant in peer.variants:
            print(f"  {name + ' ' + variant:34s} {least_cosine(peer.vectors(variant, folder), reference):.6f}")


def race_rates(a, ours, peers, threads):
    entries = {f"ours {d}": lambda d=d, m=m: our_rate(a, d, m, threads) for d, m in ours.items()}
    for name, peer in peers.items():
        for variant in peer.variants:
            entries[f"{name} {variant}"] = lambda p=peer, v=variant: p.rate(v, threads, a.batches)
            peer.ask("rate", variant, threads, 1)  # compiles, packs, starts threads
    results = race.run_rounds("embed", entries, a.rounds, a.json)
    wide = [e for e in entries if e.startswith(("torch", "onnx")) and not e.endswith("int8")]
    ratios = [(f"ours {d} / fastest of {', '.join(wide)}", "rate", f"ours {d}", wide) for d in ours]
    if "int8" in ours:
        ratios.append(("ours int8 / onnx int8", "rate", "ours int8", ["onnx int8"]))
    race.print_results(f"MiniLM, {TEXTS} texts of {LENGTH + 2} tokens a batch, {threads} threads", results,
                       {"rate": "texts/s"}, ratios)


def main():
    home = pathlib.Path.home() / ".cache/retro-server"
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build", help="folder of retro-bench and retro-eval")
    p.add_argument("--model", default=str(home / "minilm"))
    p.add_argument("--int8", help="the model after retro-convert --to int8")
    p.add_argument("--torch", required=True, help="Python that has PyTorch")
    p.add_argument("--onnx", required=True, help="Python that has onnx and onnxruntime")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--batches", type=int, default=4, help="of the peers, in a round; ours does 4")
    p.add_argument("--compiled", action="store_true", help="torch.compile too; it takes half a minute to start")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", help="append every result to this file")
    a = p.parse_args()
    ours = {"f32": a.model, "bf16": a.model, **({"int8": a.int8} if a.int8 else {})}
    with tempfile.TemporaryDirectory() as folder:
        texts = make_texts()
        ids = f"{folder}/ids.npy"
        np.save(ids, token_ids(texts, (pathlib.Path(a.model) / "vocab.txt").read_text(encoding="utf-8").splitlines()))
        peers = {}
        try:
            for name, python in (("torch", a.torch), ("onnx", a.onnx)):
                variants = PEERS[name] + (["bf16-compiled"] if a.compiled and name == "torch" else [])
                peers[name] = Peer(python, name, variants, a.model, ids)
            for threads in a.threads:
                race_rates(a, ours, peers, threads)
            compare_vectors(a, ours, peers, texts, folder)
        finally:
            for peer in peers.values():
                peer.stop()


if __name__ == "__main__":
    main()
