"""compare_cache.py BUILD [FOLDER...]: what the type of keys and values costs in accuracy, against those of f32. BUILD
has tests/reference/print_logits. Without folders: golden models of several families, and models/retro-docs.

Tokens are random, and text where a model of this repository was trained on it; no neighbours. Weights are f32, so that
nothing else is rounded. Columns for each type: the largest difference of a logit and the root mean square, the KL
divergence of the next token (mean over the rows, nats), and rows whose likeliest token is another."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "tests/golden" / name for name in (
    "retro/case_a", "retro/case_b", "retro/case_c", "hf/llama", "hf/llama3", "hf/gemma2", "hf/gemma3_text", "hf/qwen3",
    "hf/qwen2_window", "hf/mixtral", "hf/phi3", "hf/gpt_oss", "hf/qwen3_next")] + [ROOT / "models/retro-docs"]
TYPES = "f16", "bf16", "int8"
ROWS = 1000


def token_ids(folder):
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    rows = min(ROWS, config["max_position_embeddings"])
    if folder.name == "retro-docs":
        import tokenizers
        text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))[:4])
        return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[:rows]
    return np.random.default_rng(1).integers(3, config["vocab_size"], rows)


def logits(program, folder, types, ids, out):
    done = subprocess.run([program, folder, types, out, *map(str, ids)], check=True, capture_output=True, text=True)
    return np.fromfile(out, "<f4").reshape(len(ids), int(done.stdout)).astype(np.float64)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare(build, folders, scratch):
    program, out = pathlib.Path(build) / "tests/reference/print_logits", pathlib.Path(scratch) / "logits"
    print("| model | rows | keys and values | largest | rms | KL | other tokens |\n|---|---|---|---|---|---|---|")
    for folder in folders:
        ids = token_ids(folder)
        exact = logits(program, folder, "f32/f32", ids, out)
        p = log_softmax(exact)
        for kind in TYPES:
            got = logits(program, folder, f"f32/{kind}", ids, out)
            q = log_softmax(got)
            divergence = (np.exp(p) * (p - q)).sum(-1).mean()
            others = int((got.argmax(-1) != exact.argmax(-1)).sum())
            print(f"| {folder.parent.name}/{folder.name} | {len(ids)} | {kind} | {np.abs(got - exact).max():.2e} | "
                  f"{np.sqrt(((got - exact) ** 2).mean()):.2e} | {divergence:.1e} | {others} |", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compare(sys.argv[1], [pathlib.Path(f) for f in sys.argv[2:]] or FOLDERS, folder)
