#!/usr/bin/env python3
"""retro-convert's import against the disk: bytes of a checkpoint a second, over what direct reads of its files reach.

    import_race.py WORK --gigabytes 3 --rounds 3 [--to int8]

WORK gets a legacy GPT checkpoint of two ranks with random bf16 weights, and goes at the end. In each round the files are
taken out of the page cache and read with O_DIRECT in blocks of 8 MB, then taken out again and imported; every other round
the other way round. The import also writes: as much as it reads, to the same disk, and waits until it is there. Needs NumPy.
"""
import argparse
import json
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import race

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402

BLOCK, HIDDEN, FFN, VOCABULARY, RANKS = 8 << 20, 2048, 8192, 32000, 2


def shapes(layers):
    found = {"embedding.word_embeddings.weight": (VOCABULARY, HIDDEN), "output_layer.weight": (VOCABULARY, HIDDEN)}
    for i in range(layers):
        layer = f"decoder.layers.{i}."
        found.update({layer + "self_attention.linear_qkv.weight": (3 * HIDDEN, HIDDEN),
                      layer + "self_attention.linear_proj.weight": (HIDDEN, HIDDEN),
                      layer + "mlp.linear_fc1.weight": (FFN, HIDDEN), layer + "mlp.linear_fc2.weight": (HIDDEN, FFN)})
        for norm in ("self_attention.linear_qkv.layer_norm_", "mlp.linear_fc1.layer_norm_"):
            found.update({layer + norm + end: (HIDDEN,) for end in ("weight", "bias")})
    found.update({f"decoder.final_layernorm.{end}": (HIDDEN,) for end in ("weight", "bias")})
    return found


def write(folder, gigabytes):
    """Random bits are bf16 of any size; the highest bit of the exponent stays 0, so all are finite."""
    layers = max(1, round((gigabytes * 1e9 / 2 - 2 * VOCABULARY * HIDDEN) / (4 * HIDDEN * HIDDEN + 2 * FFN * HIDDEN)))
    random = np.random.default_rng(1)
    tensors = {}
    for name, shape in shapes(layers).items():
        bits = np.frombuffer(random.bytes(2 * int(np.prod(shape))), "<u2") & 0xBFFF
        tensors[name] = Tensor("BF16", bits.reshape(shape))
    args = make.namespace(num_layers=layers, num_attention_heads=16, max_position_embeddings=2048, bias_gelu_fusion=False,
                          use_rotary_position_embeddings=True, untie_embeddings_and_output_weights=True)
    make.write_ranks(folder, RANKS, lambda rank, _: make.nest_legacy(
        {name: make.part_of(name, t, rank, RANKS, False) for name, t in tensors.items()}, set()), args)
    return sorted(folder.glob("*/*/*.pt"))


def forget(files):
    os.sync()
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_directly(files):
    """Seconds of reading all files past the page cache."""
    block, began = mmap.mmap(-1, BLOCK), time.monotonic()  # aligned, as O_DIRECT wants it
    for path in files:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while os.readv(file, [block]) > 0:
            pass
        os.close(file)
    return time.monotonic() - began


def convert(a, work, options):
    out = work / "out"
    command = [a.build / "retro-convert", "--from", work / "parts", "--out", out, "--config", work / "given.json", *options]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr)
    shutil.rmtree(out)
    return seconds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--gigabytes", type=float, default=3)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--to")
    a = p.parse_args()
    if shutil.disk_usage(a.work).free < 2.5e9 * a.gigabytes:
        sys.exit(f"{a.work}: {2.5 * a.gigabytes:.0f} GB have to be free")
    with tempfile.TemporaryDirectory(prefix="import-", dir=a.work) as folder:
        work = pathlib.Path(folder)
        files = write(work / "parts", a.gigabytes)
        (work / "given.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
        size = sum(f.stat().st_size for f in files)

        def direct():
            forget(files)
            with race.Others() as others:
                seconds = read_directly(files)
            return {"rate": size / seconds / 1e6, "others": others.cpus}

        def imported():
            forget(files)
            with race.Others() as others:
                seconds = convert(a, work, ["--to", a.to] if a.to else [])
            return {"rate": size / seconds / 1e6, "others": others.cpus}

        results = race.run_rounds("import", {"direct read": direct, "import": imported}, a.rounds)
        race.print_results(f"{size / 1e9:.2f} GB, {a.to or 'its own type'}", results, {"rate": "MB/s"},
                           [("import over direct read", "rate", "import", ["direct read"])])


if __name__ == "__main__":
    main()
