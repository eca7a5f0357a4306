"""Sparse weights of an embedder, against PyTorch: tests/reference/make_sparse_golden.py."""
import json
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import sparse_folder
from sparse_folder import BUILD, EXPECTED, GOLDEN, ROOT, TEXTS
from test_kinds import read_tensors

sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sparse_folder.make(tmp_path_factory.mktemp("sparse") / "xlm_sparse")


def write_head(path, **tensors):
    """A safetensors file of float32 tensors."""
    header, data = {}, b""
    for name, values in tensors.items():
        values = np.asarray(values, "<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def refuse(folder, *words):
    done = subprocess.run([BUILD / "retro-eval", "embed", "--sparse", folder, "a"], capture_output=True, text=True)
    assert done.returncode == 1 and all(word in done.stderr for word in words), done.stderr


def test_weights_match(folder):
    got = sparse_folder.weigh(folder, TEXTS)
    assert len(got) == len(EXPECTED) and sum(map(len, EXPECTED)) > 100
    for row, want in zip(got, EXPECTED):
        assert list(row) == list(want)
        assert all(abs(row[token] - want[token]) < 1e-5 for token in want)


def test_a_text_weighs_the_same_alone(folder):
    assert [sparse_folder.weigh(folder, [text])[0] for text in TEXTS[:6]] == sparse_folder.weigh(folder, TEXTS)[:6]


def test_vectors_stay(folder):
    """The head changes nothing of the vectors beside the weights."""
    def vectors(of):
        return subprocess.run([BUILD / "retro-eval", "embed", of, *TEXTS[:4]], capture_output=True, text=True, check=True).stdout
    assert vectors(folder) == vectors(GOLDEN / "xlm_cls")


def test_prompts_are_weighed(folder):
    """A prompt is text that is read, as an instruction of FlagEmbedding's is."""
    prompted = sparse_folder.weigh(folder, TEXTS[:2], "--query", "--set", "retrieval.query_prompt=query: ")
    assert prompted == sparse_folder.weigh(folder, ["query: " + text for text in TEXTS[:2]])


def test_a_head_in_half_precision(folder, tmp_path):
    """The published file may have float16."""
    half = sparse_folder.without_head(tmp_path / "half")
    wide = read_tensors(folder / "sparse_linear.safetensors")
    make.torch_save(half / "sparse_linear.pt", {name: Tensor("F16", wide[name].astype("<f2")) for name in ("weight", "bias")})
    assert sparse_folder.convert(half).returncode == 0
    assert b'"F16"' in (half / "sparse_linear.safetensors").read_bytes()
    got, want = sparse_folder.weigh(half, TEXTS), sparse_folder.weigh(folder, TEXTS)
    same = [(row[t], wide[t]) for row, wide in zip(got, want) for t in row.keys() & wide.keys()]
    assert len(same) > 90 and max(abs(a - b) for a, b in same) < 1e-2


def test_no_head(tmp_path):
    """The published file alone is not read: the log says what to do."""
    folder = sparse_folder.without_head(tmp_path / "none")
    refuse(folder, "has no sparse weights", "sparse_linear.safetensors")
    done = subprocess.run([BUILD / "retro-eval", "embed", folder, "a"], capture_output=True, text=True)
    assert done.returncode == 0 and "retro-convert --sparse-head" in done.stderr


@pytest.mark.parametrize("tensors, words", [
    ({"weight": [[1.0] * 32]}, "tensor bias is missing"),
    ({"bias": [1.0]}, "tensor weight is missing"),
    ({"weight": [[1.0] * 31], "bias": [1.0]}, "weight is F32 [1, 31]"),
    ({"weight": [[1.0] * 32] * 2, "bias": [1.0]}, "weight is F32 [2, 32]"),
    ({"weight": [1.0] * 32, "bias": [1.0]}, "weight is F32 [32]"),
    ({"weight": [[1.0] * 32], "bias": [1.0, 2.0]}, "bias is F32 [2]"),
    ({"weight": [[1.0] * 31 + [float("nan")]], "bias": [1.0]}, "tensor weight: number 31 is not finite"),
    ({"weight": [[1.0] * 32], "bias": [float("inf")]}, "tensor bias: number 0 is not finite"),
    ({"weight": [[3e38] * 32], "bias": [1.0]}, "is not finite"),
])
def test_hostile_heads(tensors, words, tmp_path):
    folder = sparse_folder.without_head(tmp_path / "hostile")
    write_head(folder / "sparse_linear.safetensors", **tensors)
    refuse(folder, words)


def test_a_head_that_is_cut_off(folder, tmp_path):
    cut = pathlib.Path(shutil.copytree(folder, tmp_path / "cut"))
    whole = (cut / "sparse_linear.safetensors").read_bytes()
    (cut / "sparse_linear.safetensors").write_bytes(whole[:-3])
    refuse(cut, "sparse_linear.safetensors")


def test_another_head_is_another_embedder(folder, tmp_path):
    """Collections know an embedder by its hash, which the head is part of."""
    docs = tmp_path / "a.md"
    docs.write_text("# A\n\nSome text.\n")
    hashes = set()
    for name in (folder, GOLDEN / "xlm_cls"):
        out = tmp_path / f"c{len(hashes)}"
        subprocess.run([BUILD / "retro-index", "build", "--out", out, "--set", f"retrieval.embedder={name}", "--set",
                        f"model.path={sparse_folder.ROOT / 'models/retro-docs'}", docs], check=True, capture_output=True)
        hashes.add(json.loads((next(out.glob("gen-*")) / "MANIFEST").read_text())["embedder_hash"])
    assert len(hashes) == 2


# The conversion.

def torch_file(path, root):
    """A zip as torch.save makes it, around a pickle."""
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", root)


@pytest.mark.parametrize("make, words", [
    (lambda path: path.unlink(), "No such file"),
    (lambda path: path.write_bytes(b"nothing of the kind"), "no zip"),
    (lambda path: path.write_bytes(path.read_bytes()[:900]), "sparse_linear.pt"),
    (lambda path: torch_file(path, pickle.dumps({"weight": 1}, protocol=2)), "is no tensor"),
    (lambda path: torch_file(path, pickle.dumps({"w": 1}, protocol=2)), "tensor weight is missing"),
    (lambda path: torch_file(path, b"cos\nsystem\n(S'echo ran > ran'\ntR."), "sparse_linear.pt"),
])
def test_files_that_are_no_head(make, words, tmp_path):
    folder = sparse_folder.without_head(tmp_path / "folder")
    make(folder / "sparse_linear.pt")
    done = sparse_folder.convert(folder)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not list(folder.glob("sparse_linear.safetensors*")) and not pathlib.Path("ran").exists()


def test_a_linear_layer_of_another_shape(tmp_path):
    """bge-m3's other head, colbert_linear.pt, has as many outputs as inputs."""
    folder = sparse_folder.without_head(tmp_path / "folder")
    make.torch_save(folder / "sparse_linear.pt", {"weight": Tensor("F32", np.ones((32, 32), "<f4")),
                                                  "bias": Tensor("F32", np.ones(32, "<f4"))})
    done = sparse_folder.convert(folder)
    assert done.returncode == 1 and "expected weight [1, hidden] and bias [1]" in done.stderr


def test_what_is_there_stays(folder, tmp_path):
    again = pathlib.Path(shutil.copytree(folder, tmp_path / "again"))
    before = (again / "sparse_linear.safetensors").read_bytes()
    done = sparse_folder.convert(again)
    assert done.returncode == 1 and "is there already" in done.stderr
    assert (again / "sparse_linear.safetensors").read_bytes() == before


def test_a_converted_embedder_keeps_its_head(folder, tmp_path):
    done = subprocess.run([BUILD / "retro-convert", folder, tmp_path / "bf16", "--to", "bf16"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head = "sparse_linear.safetensors"
    assert (tmp_path / "bf16" / head).read_bytes() == (folder / head).read_bytes()
    got, want = sparse_folder.weigh(tmp_path / "bf16", TEXTS[:3]), sparse_folder.weigh(folder, TEXTS[:3])
    assert all(abs(row[t] - wide[t]) < 0.2 for row, wide in zip(got, want) for t in row.keys() & wide.keys())


def test_the_command_stands_alone(folder):
    done = subprocess.run([BUILD / "retro-convert", "--sparse-head", folder, "more"], capture_output=True, text=True)
    assert done.returncode == 1 and "stands alone" in done.stderr
