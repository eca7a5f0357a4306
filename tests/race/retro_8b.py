#!/usr/bin/env python3
"""NVIDIA's 8B Retro in its published shape, random weights in int4, on this machine: opening, memory, speed, chunks.

    retro_8b.py make WORK DOCUMENTS...              WORK/model (7 GB, mapped when it is opened) and WORK/collection
    retro_8b.py collect WORK DOCUMENTS...           WORK/collection anew
    retro_8b.py measure WORK --threads 1 --threads 2 --json out.jsonl

`make` writes the folder that the import with `--to int4` would write (matrices in four bits, word table and output matrix
in eight), packs it, and removes what it packed. It needs 15 GB on the disk and 8 GB of memory meanwhile, and says so first.
The tokenizer is a SentencePiece model of 256 000 entries: the words of the documents, single bytes, and made-up words.
`measure` starts a server that retrieves while it writes, once for each number of threads. Needs NumPy.

    open       seconds from the start of the program to its answer of GET /health; "cold": after the file left the memory
    prompt     tokens per second of 256 new tokens, without neighbours
    write      tokens per second, from the middle gap between two tokens
    share      bytes that a token reads, over the time of a token, over what `retro-bench roofline` reads
    chunk      what a token that closes a chunk takes longer; lookup: of that, embedder and search
    output     the matrix of 256 000 rows alone (`retro-bench linear`), and its part of a token
"""
import argparse
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time

import numpy as np
import race
from http_race import Server, events

LAYERS, D, HEADS, FFN, VOCABULARY, CONTEXT, CHUNK = 32, 4096, 32, 10880, 256000, 4096, 64
CROSS = range(8, LAYERS, 3)
ORDINARY = 300  # ids from here on are words
CONFIG = {
    "architecture": "retro", "num_layers": LAYERS, "hidden_size": D, "num_attention_heads": HEADS, "ffn_hidden_size": FFN,
    "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "position_embedding_type": "rope", "rotary_percent": 0.5,
    "normalization": "LayerNorm", "layernorm_zero_centered_gamma": True, "activation": "swiglu", "add_bias_linear": False,
    "tie_word_embeddings": False, "eod_token_id": 2, "retro_chunk_length": CHUNK, "retro_num_neighbors": 2,
    "retro_retrieved_length": 2 * CHUNK, "encoder_residual": "raw", "retro_attention_gate": 1.0,
}


def matrices():
    """(name, rows, columns) of each matrix."""
    yield "embedding.word_embeddings.weight", VOCABULARY, D
    yield "output_layer.weight", VOCABULARY, D
    encoder = f"decoder.layers.{CROSS[0]}.cross_attention.encoder.layers."
    layers = [(f"decoder.layers.{i}.", i in CROSS) for i in range(LAYERS)] + [(f"{encoder}{j}.", j == 0) for j in range(2)]
    for layer, reads in layers:
        yield layer + "self_attention.linear_qkv.weight", 3 * D, D
        yield layer + "self_attention.linear_proj.weight", D, D
        yield layer + "mlp.linear_fc1.weight", 2 * FFN, D
        yield layer + "mlp.linear_fc2.weight", D, FFN
        for name, rows in (("q", D), ("kv", 2 * D), ("proj", D)) if reads else ():
            yield f"{layer}cross_attention.attn.linear_{name}.weight", rows, D


def norms():
    encoder = f"decoder.layers.{CROSS[0]}.cross_attention.encoder.layers."
    for layer in [f"decoder.layers.{i}." for i in range(LAYERS)] + [f"{encoder}{j}." for j in range(2)]:
        yield layer + "self_attention.linear_qkv.layer_norm_"
        yield layer + ("pre_mlp_layernorm.norm." if layer == encoder + "0." else "mlp.linear_fc1.layer_norm_")
    for layer in [f"decoder.layers.{i}." for i in CROSS] + [encoder + "0."]:
        yield layer + "pre_cross_attn_layernorm."
    yield "decoder.final_layernorm."


def is_table(name):
    return name in ("embedding.word_embeddings.weight", "output_layer.weight")


def bytes_of(name, rows, columns):
    """Eight bits and a scale for 32 weights, or four bits, a scale and a minimum."""
    return rows * columns * 34 // 32 if is_table(name) else rows * columns * 20 // 32


def token_bytes():
    """What one token reads: the decoder without the keys and values of neighbours, and the output matrix."""
    left_out = ("embedding.", "linear_kv.")
    return sum(bytes_of(*m) for m in matrices() if ".encoder." not in m[0] and not any(x in m[0] for x in left_out))


def tensors():
    """(name, dtype, shape, function that returns the bytes), large elements last so that all are aligned."""
    random_bytes = np.random.default_rng(1)

    def half(value, shape):
        return lambda: np.full(shape, value, np.float16).tobytes()

    for name, rows, columns in matrices():
        deviation = 0.02 if name.endswith(("qkv.weight", "fc1.weight")) or is_table(name) else 0.02 / (2 * LAYERS) ** 0.5
        blocks = (rows, columns // 32)
        if is_table(name):  # bytes of 0 to 255 are -128 to 127, which the format ends at -127
            def table(rows=rows, columns=columns):
                for _ in range(8):
                    part = np.frombuffer(random_bytes.bytes(rows * columns // 8), np.int8)
                    yield np.maximum(part, -127).tobytes()
            yield name, "I8", (rows, columns), table
            yield name + ".scale", "F16", blocks, half(deviation / 73, blocks)
        else:
            yield name, "U8", (rows, columns // 2), lambda n=rows * columns // 2: random_bytes.bytes(n)
            yield name + ".scale", "F16", blocks, half(deviation / 4.6, blocks)
            yield name + ".minimum", "F16", blocks, half(-7.5 * deviation / 4.6, blocks)
    for name in norms():
        for end in ("weight", "bias"):
            yield name + end, "BF16", (D,), lambda: bytes(2 * D)


def write_weights(path):
    header, at, listed = {}, 0, list(tensors())
    for name, dtype, shape, _ in listed:
        size = int(np.prod(shape)) * {"I8": 1, "U8": 1, "F16": 2, "BF16": 2}[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in listed:
            found = data()
            for part in [found] if isinstance(found, bytes) else found:
                out.write(part)


def words_of(paths):
    """Words of the documents, the most frequent first, as far as they are plain text."""
    counts = {}
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix in (".md", ".txt", ".html", ".gz"):
                text = (gzip.open if file.suffix == ".gz" else open)(file, "rt", errors="replace").read()
                for word in re.findall(r"[A-Za-z]{2,16}|[0-9]{2,4}|[^\sA-Za-z0-9]{2,3}", text):
                    counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: (-counts[word], word))


def field(number, value):
    """A field of a protocol buffer: text, a number or a float."""
    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tokenizer_of(words):
    """A SentencePiece model (unigram, bytes for what no piece has)."""
    normal, unknown, control, byte = 1, 2, 3, 6
    pieces = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control)]
    pieces += [(f"<0x{b:02X}>", 0.0, byte) for b in range(256)]
    texts = {"\u2581": None, **dict.fromkeys(map(chr, range(33, 127)))}
    texts.update(dict.fromkeys(text for word in words[:120000] for text in ("\u2581" + word, word)))
    texts = list(texts)[: VOCABULARY - len(pieces)]
    texts += [f"\u2581qx{i}zq" for i in range(VOCABULARY - len(pieces) - len(texts))]
    pieces += [(text, -4.0 - 12.0 * i / VOCABULARY, normal) for i, text in enumerate(texts)]
    model = b"".join(field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in pieces)
    trainer = field(3, 1) + field(4, VOCABULARY) + field(35, 1)  # unigram, size, byte fallback
    normalizer = field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1)
    return model + field(2, trainer) + field(3, normalizer)


def make(a):
    model, loose = a.work / "model", a.work / "int4"
    weights = sum(bytes_of(*m) for m in matrices())
    free = shutil.disk_usage(a.work).free
    if free < 2.1 * weights:
        sys.exit(f"{a.work}: {free / 1e9:.1f} GB are free, and {2.1 * weights / 1e9:.1f} GB are needed")
    if model.exists():
        sys.exit(f"{model} is there already")
    shutil.rmtree(loose, ignore_errors=True)
    loose.mkdir()
    began = time.monotonic()
    (loose / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (loose / "tokenizer.model").write_bytes(tokenizer_of(words_of(a.documents)))
    write_weights(loose / "model.safetensors")
    print(f"written: {weights / 1e9:.2f} GB of matrices in {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    done = subprocess.run([a.build / "retro-convert", loose, model, "--to", "packed"], stdout=subprocess.DEVNULL)
    shutil.rmtree(loose)
    if done.returncode:
        sys.exit("retro-convert failed")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"packed in {time.monotonic() - began:.0f} s, {most:.1f} GB of memory", flush=True)
    collect(a)


def collect(a):
    config = a.work / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(a.work / "model")}, "retrieval": {
        "collection": str(a.work / "collection"), "embedder": str(a.embedder), "embedder_dtype": "bf16"}}))
    command = [a.build / "retro-index", "build", "--out", a.work / "collection", "--config", config, *a.documents]
    if subprocess.run(command).returncode not in (0, 2):  # 2: some files were no text
        sys.exit("retro-index failed")


def forget(path):
    """Takes a file's pages out of memory, as far as no process uses them."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory_of(pid):
    """Resident gigabytes: of the process alone, and of mapped files."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {key: int(re.search(rf"{name}:\s+(\d+)", text)[1]) * 1024 / 1e9
            for key, name in (("anonymous", "RssAnon"), ("mapped", "RssFile"))}


def start(a, threads, name):
    config = json.loads((a.work / "retro.json").read_text())
    config["model"]["threads"] = threads
    config["server"] = {"port": 0, "max_sequences": 1, "max_context": 1024, "prefix_cache_mb": 0}
    path = a.work / f"{name}.json"
    path.write_text(json.dumps(config))
    began = time.monotonic()
    server = Server([a.build / "retro-server", "--config", path], 0, {}, a.work / f"{name}.log")
    return server, time.monotonic() - began


def ask(server, prompt, tokens, **more):
    """Seconds to the first token, and the gaps between the tokens."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "return_token_ids": True, **more}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(response.read().decode())
    times = []
    for event in events(response):
        for choice in event.get("choices", []):
            times += [time.monotonic()] * len(choice.get("token_ids", []))
    connection.close()
    if len(times) != tokens:
        sys.exit(f"{len(times)} tokens of {tokens}")
    return times[0] - began, [b - a for a, b in zip(times, times[1:])]


def lookups(server):
    """Seconds of embedding and searching until now."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(x) for x in re.findall(r"^retro_retrieval_seconds_sum\{[^}]*phase=\"(?:embed|search)\"[^}]*\} (\S+)", text, re.M))


def bench(a, threads, *command):
    done = subprocess.run([a.build / "retro-bench", *command, "--threads", str(threads), "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {line["name"]: line["value"] for line in map(json.loads, done.stdout.splitlines())}


SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50, "repetition_penalty": 1.1, "seed": 1}
KINDS = {"greedy": {}, "sampled": SAMPLED, "sampled from all": {"temperature": 1.0, "seed": 1}, "log-probabilities": {"logprobs": 5}}


def measure_rates(a, server, rng, out):
    """Tokens a second without neighbours, of each way to choose a token."""
    def prompt(n):
        return [rng.randrange(ORDINARY, VOCABULARY) for _ in range(n)]

    alone = {"retrieval": {"enabled": False}}
    ask(server, prompt(CHUNK), 2)  # all pages are in memory from here on
    first, _ = ask(server, prompt(256), 1, **alone)
    out["prompt"] = 256 / first
    for name, options in KINDS.items():
        gaps = ask(server, prompt(8), a.tokens, **alone, **options)[1]
        out[f"write, {name}"] = 1 / statistics.median(gaps)
    first, _ = ask(server, prompt(256), 1)
    out["prompt with neighbours"] = 256 / first


def measure_chunks(server, rng, chunks, out):
    """The prompt is one chunk long, so the last token of each chunk of the answer closes one."""
    prompt = [rng.randrange(ORDINARY, VOCABULARY) for _ in range(CHUNK)]
    before = lookups(server)
    _, gaps = ask(server, prompt, chunks * CHUNK + 2)
    usual = statistics.median(gaps)
    out["write with neighbours"] = 1 / usual
    # Token number 64 closes the first chunk of the answer: what it waits for lies before token 65.
    extra = [max(gaps[i * CHUNK - 2 : i * CHUNK + 1]) - usual for i in range(1, chunks + 1)]
    out["chunk"] = 1e3 * statistics.mean(extra)
    out["lookup"] = 1e3 * (lookups(server) - before) / (chunks + 1)
    out["tokens a second with chunks"] = CHUNK / (CHUNK * usual + statistics.mean(extra))


def measure_once(a, threads, rng):
    out = {"threads": threads, "time": time.strftime("%FT%T")}
    with race.Others() as others:
        out["read"] = bench(a, threads, "roofline")["read_gbps"]
        if a.cold:
            forget(a.work / "model/model.packed")
            server, out["open cold"] = start(a, threads, f"cold-{threads}")
            began = time.monotonic()
            ask(server, [ORDINARY] * 8, 1, retrieval={"enabled": False})
            out["first token cold"] = time.monotonic() - began
            server.stop()
        server, out["open"] = start(a, threads, f"warm-{threads}")
        try:
            out.update({f"opened, {k}": v for k, v in memory_of(server.process.pid).items()})
            measure_rates(a, server, rng, out)
            measure_chunks(server, rng, a.chunks, out)
            out.update({f"used, {k}": v for k, v in memory_of(server.process.pid).items()})
        finally:
            server.stop()
        rate = bench(a, threads, "linear", "--rows", "1", "--in", str(D), "--out", str(VOCABULARY), "--dtype", "int8")
    seconds = 1e-9 * bytes_of("output_layer.weight", VOCABULARY, D) / rate["linear_int8_rows1_gbps"]
    out["output"] = 1e3 * seconds
    out["output of a token"] = seconds * out["write, greedy"]
    out["share"] = 1e-9 * token_bytes() * out["write, greedy"] / out["read"]
    out["others"] = others.cpus
    return out


def measure(a):
    rng = random.Random(1)
    print(f"a token reads {token_bytes() / 1e9:.2f} GB; the weights have {sum(bytes_of(*m) for m in matrices()) / 1e9:.2f} GB")
    for _ in range(a.rounds):
        for threads in a.threads:
            out = measure_once(a, threads, rng)
            for name, value in out.items():
                print(f"{name:32s} {value:.3f}" if isinstance(value, float) else f"{name:32s} {value}", flush=True)
            if a.json:
                with open(a.json, "a") as lines:
                    lines.write(json.dumps(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    kinds = p.add_subparsers(dest="kind", required=True)
    for kind in ("make", "collect"):
        making = kinds.add_parser(kind)
        making.add_argument("work", type=pathlib.Path)
        making.add_argument("documents", type=pathlib.Path, nargs="+")
        making.add_argument("--embedder", type=pathlib.Path, default=pathlib.Path.home() / ".cache/retro-server/minilm")
    measuring = kinds.add_parser("measure")
    measuring.add_argument("work", type=pathlib.Path)
    measuring.add_argument("--threads", type=int, action="append", required=True)
    measuring.add_argument("--rounds", type=int, default=1)
    measuring.add_argument("--tokens", type=int, default=24)
    measuring.add_argument("--chunks", type=int, default=2, help="that close in the answer with neighbours")
    measuring.add_argument("--cold", action="store_true", help="opens once more before, with the file out of memory")
    measuring.add_argument("--json")
    a = p.parse_args()
    a.build = a.build.resolve()
    {"make": make, "collect": collect, "measure": measure}[a.kind](a)


if __name__ == "__main__":
    main()
