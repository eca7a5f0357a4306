"""`make train-smoke`: the whole way in about two minutes, on the text of this repository. Prepare documents, train a model of one
million parameters, export it, ask retro-server for a completion, and evaluate in C and in PyTorch, which must agree.

    python -m retro_train.smoke --build build --embedder FOLDER --out build/train-smoke
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import torch

from .corpus import Filters, prepared_documents
from .evaluate import default_window, evaluate, print_result
from .export import export_run, load_model
from .files import write_json
from .neighbours import Collection, chunk_queries, read_neighbours
from .prepare import prepare
from .tokenizer import Vocabulary
from .train import Run, train

ROOT = Path(__file__).resolve().parents[2]
TEXT_LIMIT = 200_000  # bytes, so that two cores embed it in half a minute
MODEL = {"architecture": "retro", "num_layers": 6, "hidden_size": 96, "num_attention_heads": 3, "vocab_size": 1024,
         "max_position_embeddings": 256, "position_embedding_type": "learned_absolute", "activation": "gelu_tanh",
         "retro_layers": [4, 6], "retro_chunk_length": 32, "retro_num_neighbors": 2, "eod_token_id": 0}
TRAIN = {"sequence": 256, "batch": 4, "steps": 60, "warmup_steps": 15, "optimizer": "muon", "evaluate_every": 30, "evaluate_documents": 2}
TOLERANCE = 1e-4  # bits per byte, between C and PyTorch in float32


def write_documents(path):
    """The repository's pages, then its headers, as JSONL."""
    size = 0
    with open(path, "w", encoding="utf-8") as out:
        for file in sorted(ROOT.glob("docs/*.md")) + sorted(ROOT.glob("*/*.h")):
            text = file.read_text(encoding="utf-8")
            size += len(text)
            if size > TEXT_LIMIT:
                break
            out.write(json.dumps({"id": file.relative_to(ROOT).as_posix(), "text": text}) + "\n")


def ask(server, config):
    """One completion from a server of its own, on any free port."""
    process = subprocess.Popen([server, "--config", config, "--set", "server.port=0"], stderr=subprocess.PIPE, text=True)
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            found = re.search(r"listening on (http://\S+:\d+)", line)
            if found:
                break
        else:
            raise RuntimeError("retro-server did not start:\n" + "".join(log))
        body = json.dumps({"prompt": "The chunk grid is fixed when", "max_tokens": 24, "temperature": 0}).encode()
        request = urllib.request.Request(found[1] + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["text"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def evaluate_in_c(program, config, files, window):
    """The result of retro-eval ppl for all scored tokens."""
    command = [program, "ppl", "--config", config, "--window", str(window), "--json", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"retro-eval ppl failed:\n{done.stderr}")
    return json.loads(done.stdout)["subsets"]["all"]


def compare(ours, theirs):
    if set(theirs["modes"]) != set(ours["modes"]) or theirs["bytes"] != ours["bytes"]:
        raise RuntimeError(f"modes and bytes differ: PyTorch {ours['bytes']} {sorted(ours['modes'])}, "
                           f"C {theirs['bytes']} {sorted(theirs['modes'])}")
    for mode, value in theirs["modes"].items():
        c, pytorch = value["bits_per_byte"], ours["modes"][mode]["bits_per_byte"]
        print(f"  {mode:<7} C {c:.5f}  PyTorch {pytorch:.5f}  difference {abs(c - pytorch):.6f}")
        if abs(c - pytorch) > TOLERANCE:
            raise RuntimeError(f"{mode}: the C program and PyTorch differ by {abs(c - pytorch):.6f} bits per byte")


def say(began, text):
    print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)


def smoke(build, embedder, out):
    began = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_documents(out / "documents.jsonl")
    write_json(out / "run.json", {"model": MODEL, "data": "data", "train": TRAIN})
    say(began, "prepare documents, tokenizer, collection, neighbours")
    run = Run(out / "run", json.loads((out / "run.json").read_text()), out.resolve())
    prepare(run, out / "documents.jsonl", build / "retro-index", {"embedder": embedder}, Filters(held_out=0.1))
    say(began, "train")
    train(out / "run.json", out / "run")
    export_run(out / "run", out / "model", "f32", None, "make train-smoke")
    say(began, "serve")
    write_json(out / "serve.json", {"model": {"path": str((out / "model").resolve())}, "retrieval": {
        "collection": str((out / "data/collection").resolve()), "embedder": str(Path(embedder).resolve())}})
    print(f"  answer: {ask(build / 'retro-server', out / 'serve.json')!r}")
    say(began, "evaluate in PyTorch and in C")
    model, vocabulary = load_model(out / "model"), Vocabulary(out / "model/tokenizer.json")
    _, documents = chunk_queries(prepared_documents(run.data, "valid"), vocabulary, MODEL["retro_chunk_length"])
    found, window = read_neighbours(run.data / "valid.neighbours").ids, default_window(model.config)
    ours = evaluate(model, documents, vocabulary, window, found, Collection(run.data / "collection"))
    print_result(ours)
    files = sorted((run.data / "documents/valid").rglob("*.txt"), key=lambda p: p.relative_to(run.data).as_posix().encode())
    compare(ours, evaluate_in_c(build / "retro-eval", out / "serve.json", files, window))
    say(began, "all fine")


def main():
    p = argparse.ArgumentParser(prog="retro_train.smoke", description="the whole way in two minutes")
    p.add_argument("--build", type=Path, default=Path("build"), help="folder of the C programs")
    p.add_argument("--embedder", default=str(Path.home() / ".cache/retro-server/minilm"))
    p.add_argument("--out", type=Path, default=Path("build/train-smoke"))
    a = p.parse_args()
    torch.set_num_threads(1)  # products this small make more threads wait for each other
    try:
        smoke(a.build, a.embedder, a.out)
    except (ValueError, RuntimeError, OSError) as problem:
        sys.exit(f"train-smoke: {problem}")


if __name__ == "__main__":
    main()
