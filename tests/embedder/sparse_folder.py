"""The random embedder xlm_cls with the head of tests/reference/make_sparse_golden.py, which retro-convert makes readable."""
import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/embedder"
TEXTS = json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))
EXPECTED = json.loads((GOLDEN / "sparse/sparse.json").read_text())


def convert(folder):
    return subprocess.run([BUILD / "retro-convert", "--sparse-head", folder], capture_output=True, text=True)


def without_head(folder):
    shutil.copytree(GOLDEN / "xlm_cls", folder)
    shutil.copy(GOLDEN / "sparse/sparse_linear.pt", folder)
    return folder


def make(folder):
    without_head(folder)
    done = convert(folder)
    assert done.returncode == 0, done.stderr
    return folder


def weigh(folder, texts, *options):
    """The weights of each text by retro-eval: a dict of token ids."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([BUILD / "retro-eval", "embed", "--sparse", *options, folder, "-"], input=lines,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def multiply(left, right):
    return sum(weight * right[token] for token, weight in left.items() if token in right)
