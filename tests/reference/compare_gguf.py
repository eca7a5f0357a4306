"""compare_gguf.py PEERS BUILD: what opening a GGUF file costs in accuracy, type by type, against llama.cpp on the same file.
PEERS is as make_gguf_golden.py has it, BUILD a build with tests/reference/print_logits.

One random llama of 512 columns and 4 layers is quantised by llama-quantize to each type (--pure, but for what the type
cannot hold). Columns: KL divergence of the next token, mean over 96 rows in nats, from llama.cpp to us, from the exact
model (dequantised, f32) to us and to llama.cpp; the largest difference of a logit between us and llama.cpp, between
llama.cpp and the exact model, and between llama.cpp with and without repacked weights; how many of 96 greedy tokens differ
from llama.cpp's, and llama.cpp's from the exact model's. Rows of random models are often close to a tie."""

import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

import make_gguf_golden as golden

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "IQ4_XS", "Q2_K", "Q3_K_M", "Q4_K_M",
         "Q4_K_S", "Q5_K_M", "Q6_K"]
ROWS = 96


def ours(program, model, dtype, ids, folder):
    out = folder / "logits"
    done = subprocess.run([program, model, dtype, out, *map(str, ids)], check=True, capture_output=True, text=True)
    return np.fromfile(out, "<f4").reshape(len(ids), int(done.stdout)), done.stderr


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p, q):
    p, q = log_softmax(p), log_softmax(q)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def compare(peers, build, folder):
    program = golden.build_reference(peers, folder)
    s = dict(architecture="llama", layers=4, d=512, heads=8, kv=4, head=64, ffn=1536, context=256)
    rng = np.random.default_rng(11)
    s["vocab"] = golden.add_sentencepiece(gguf.GGUFWriter(None, "llama"))
    wide = folder / "wide.gguf"
    golden.write_model(wide, s, golden.llama_tensors(rng, s), golden.add_sentencepiece, {})
    ids = rng.integers(3, s["vocab"], ROWS)
    print(f"{'type':8} {'MB':>6} {'KL(llama,us)':>13} {'KL(exact,us)':>13} {'KL(ex,llama)':>13} {'max us':>8} "
          f"{'exact':>8} {'repack':>8} {'tokens':>7} {'own':>4}")
    for kind in TYPES:
        model, twin = folder / f"{kind}.gguf", folder / "twin.gguf"
        subprocess.run([peers / "bin/llama-quantize", wide, model, kind], check=True, capture_output=True)
        golden.write_twin(twin, model)
        llama, plain = (golden.Reference(program, model, *more).logits(ids, s["vocab"]) for more in ((), ("plain",)))
        exact = golden.Reference(program, twin).logits(ids, s["vocab"])
        got, said = ours(build / "tests/reference/print_logits", model, "auto", ids, folder)
        differ = int((got.argmax(-1) != llama.argmax(-1)).sum()), int((exact.argmax(-1) != llama.argmax(-1)).sum())
        print(f"{kind:8} {model.stat().st_size * 1e-6:6.1f} {divergence(llama, got):13.2e} {divergence(exact, got):13.2e} "
              f"{divergence(exact, llama):13.2e} {np.abs(got - llama).max():8.4f} "
              f"{np.abs(exact - llama).max():8.4f} {np.abs(llama - plain).max():8.4f} "
              f"{differ[0]:7} {differ[1]:4}", flush=True)
        for line in said.splitlines():
            print("        ", line.split("info  ")[-1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        compare(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(scratch))
