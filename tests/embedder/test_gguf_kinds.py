"""Embedders in GGUF files against sentence-transformers: tests/reference/make_gguf_families.py."""
import shutil
import subprocess

import numpy as np
import pytest

from test_kinds import BUILD, GOLDEN, ROOT, TEXTS, check, embed, expected, read_tensors, run

FILES = ROOT / "tests/golden/gguf"


INSTRUCTION = "Instruct: find the words that answer\nQuery:"


# Files have neither prompts nor limits.
@pytest.mark.parametrize("kind, tokens, prompt", [
    ("bert_cls", 24, INSTRUCTION), ("qwen3_last", 512, INSTRUCTION), ("nomic_mean", 24, "query: "), ("modernbert_cls", 512, ""),
    ("gemma_windows", 24, "query: ")])
def test_vectors_match(kind, tokens, prompt):
    beside = FILES / f"{kind}.safetensors"
    want = read_tensors(beside) if beside.exists() else expected(kind)
    file = FILES / f"{kind}.gguf"
    options = ["--set", f"retrieval.embedder_tokens={tokens}"]
    check(embed(file, *options), want["plain"])
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


def convert(source, out, dtype):
    done = subprocess.run([BUILD / "retro-convert", source, out, "--to", dtype], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", ["bert_cls", "qwen3_last", "nomic_mean", "modernbert_cls"])
def test_a_converted_file_pools_as_before(kind, tmp_path):
    """pooling_type of the file stands in the folder's own files."""
    options = ["--set", "retrieval.embedder_tokens=24"]
    assert convert(FILES / f"{kind}.gguf", tmp_path / "folder", "f32") == (0, "")
    assert (embed(tmp_path / "folder", *options) == embed(FILES / f"{kind}.gguf", *options)).all()


def test_matrices_behind_the_mean_are_not_lost(tmp_path):
    code, error = convert(FILES / "gemma_windows.gguf", tmp_path / "folder", "f32")
    assert code == 1 and "dense_2.weight" in error and not (tmp_path / "folder").exists()


def test_a_converted_folder_keeps_its_modules(tmp_path):
    """Dense modules have weights in folders of their own."""
    assert convert(ROOT / "tests/golden/embedder/gemma_dense", tmp_path / "folder", "int8") == (0, "")
    cosine = (embed(tmp_path / "folder") * expected("gemma_dense")["plain"]).sum(1)
    assert cosine.min() > 0.99
