"""Embedders in GGUF files against sentence-transformers: tests/reference/make_gguf_families.py."""
import shutil
import subprocess

import numpy as np
import pytest

from test_kinds import BUILD, GOLDEN, ROOT, TEXTS, check, embed, expected, read_tensors, run

FILES = ROOT / "tests/golden/gguf"


@pytest.mark.parametrize("kind, tokens", [("bert_cls", 24), ("qwen3_last", 512)])
def test_vectors_match(kind, tokens):
    want = expected(kind)
    file = FILES / f"{kind}.gguf"
    options = ["--set", f"retrieval.embedder_tokens={tokens}"]
    check(embed(file, *options), want["plain"])
    prompt = "Instruct: find the words that answer\nQuery:"  # files have no prompts
    check(embed(file, *options, "--query", "--set", f"retrieval.query_prompt={prompt}"), want["query"])


def test_xlm_roberta():
    """Positions of padding are cut off in the file, so a text with <pad> has no place there."""
    want, got = read_tensors(FILES / "xlm_mapped.safetensors"), embed(FILES / "xlm_mapped.gguf")
    kept = [i for i, text in enumerate(TEXTS) if "<pad>" not in text]
    check(got[kept], want["plain"][kept])
    assert len(kept) == len(TEXTS) - 1


def test_smaller_weights(tmp_path):
    """The same vectors from a folder with model.gguf, and nearly the same in bf16."""
    shutil.copy(FILES / "bert_cls.gguf", tmp_path / "model.gguf")
    whole = embed(FILES / "bert_cls.gguf")
    assert (embed(tmp_path) == whole).all()
    near = embed(tmp_path, "--set", "retrieval.embedder_dtype=bf16")
    assert (near * whole).sum(1).min() > 0.999 and not (near == whole).all()


def test_a_decoder_without_pooling_is_refused():
    done = run(FILES / "qwen3/model.gguf")
    assert done.returncode == 1 and "pooling_type" in done.stderr


def test_collection(tmp_path):
    """retro-index builds with such a file and finds with it."""
    (tmp_path / "texts").mkdir()
    for i, text in enumerate(TEXTS[:5]):
        (tmp_path / f"texts/{i}.txt").write_text(text)
    options = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={FILES / 'bert_cls.gguf'}"]
    index = [BUILD / "retro-index"]
    built = subprocess.run([*index, "build", "--out", tmp_path / "collection", *options, tmp_path / "texts"],
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    found = subprocess.run([*index, "search", tmp_path / "collection", TEXTS[1]], capture_output=True, text=True)
    assert found.returncode == 0 and "1.txt" in found.stdout, found.stdout + found.stderr
