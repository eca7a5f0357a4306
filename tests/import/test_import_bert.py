"""retro-convert on Megatron's BERTs: what is imported makes the vectors of the Hugging Face model (tests/golden/embedder,
by sentence-transformers) that the checkpoint was made of. The files are written by hand, in the names of Megatron-LM and
Megatron-Core."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
CASE = ROOT / "tests/golden/embedder/megatron_bert"
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Box, Tensor  # noqa: E402

HEADS, HIDDEN, VOCABULARY = 4, 32, 200
CORE = {"attention.ln.": "self_attention.linear_qkv.layer_norm_", "attention.output.dense.": "self_attention.linear_proj.",
        "ln.": "mlp.linear_fc1.layer_norm_", "intermediate.dense.": "mlp.linear_fc1.", "output.dense.": "mlp.linear_fc2."}
TABLES = {"word_embeddings": "word_embeddings", "position_embeddings": "position_embeddings",
          "token_type_embeddings": "tokentype_embeddings"}


def core_tensors():
    """The golden's tensors by Megatron-Core's names; queries, keys and values lie together for each head. The table is
    padded, and there are the heads of training."""
    hf = {name.removeprefix("bert."): t.array for name, t in make.read_folder(CASE).items()}
    found = {f"encoder.final_layernorm.{end}": hf[f"encoder.ln.{end}"] for end in ("weight", "bias")}
    for theirs, ours in TABLES.items():
        found[f"embedding.{ours}.weight"] = hf[f"embeddings.{theirs}.weight"]
    words = found["embedding.word_embeddings.weight"]
    found["embedding.word_embeddings.weight"] = np.concatenate([words, np.zeros((56, HIDDEN), "<f4")])
    for i in (0, 1):
        layer, prefix = f"encoder.layer.{i}.", f"encoder.layers.{i}."
        for end in ("weight", "bias"):
            parts = [hf[f"{layer}attention.self.{name}.{end}"] for name in ("query", "key", "value")]
            rest = parts[0].shape[1:]
            heads = np.stack([p.reshape(HEADS, -1, *rest) for p in parts], 1)
            found[f"{prefix}self_attention.linear_qkv.{end}"] = heads.reshape(-1, *rest)
            for theirs, ours in CORE.items():
                found[prefix + ours + end] = hf[layer + theirs + end]
    zeros = {"lm_head.dense.weight": (32, 32), "lm_head.layer_norm.weight": (32,), "binary_head.weight": (2, 32),
             "binary_head.bias": (2,), "pooler.dense.weight": (32, 32), "output_layer.bias": (256,)}
    found.update({name: np.zeros(shape, "<f4") for name, shape in zeros.items()})
    return {name: Tensor("F32", np.ascontiguousarray(array)) for name, array in found.items()}


def legacy(tensors):
    """Names of Megatron-LM, nested as it writes them."""
    inner = {"embedding": {}, "encoder": {}, "pooler": {}}
    model = {"language_model": inner, "lm_head": {}, "binary_head": {}}
    for name, t in tensors.items():
        first, rest = name.split(".", 1)
        if first == "embedding":
            inner["embedding"][rest.removesuffix(".weight")] = {"weight": t}
        elif name.startswith("encoder.layers."):
            _, _, layer, tail = name.split(".", 3)
            inner["encoder"][f"layers.{layer}.{make.legacy_tail(tail, False)}"] = t
        elif first == "encoder":
            inner["encoder"][rest.replace("final_layernorm", "final_norm")] = t
        elif first == "pooler":
            inner["pooler"][rest] = t
        elif first in model:
            model[first][rest] = t
    model["lm_head"]["bias"] = tensors["output_layer.bias"]
    return model


def arguments(ranks=1, stages=1):
    return make.namespace(
        num_layers=2, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=64, max_position_embeddings=40,
        layernorm_epsilon=1e-12, add_position_embedding=True, bias_gelu_fusion=False, tensor_model_parallel_size=ranks,
        pipeline_model_parallel_size=stages)


def imported(tmp_path, checkpoint, *options):
    out = tmp_path / "out"
    command = [BUILD / "retro-convert", "--from", checkpoint, "--out", out, "--tokenizer", CASE, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "6 tensors left out, which an embedder has no use for" in done.stdout, done.stdout
    return out


def makes_the_vectors(folder):
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        shutil.copy(CASE / name, folder)
    shutil.copytree(CASE / "1_Pooling", folder / "1_Pooling", dirs_exist_ok=True)
    texts = json.loads((CASE.parent / "texts.json").read_text(encoding="utf-8"))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([BUILD / "retro-eval", "embed", folder, "-"], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got = np.array([json.loads(line) for line in done.stdout.splitlines()])
    want = make.read_safetensors(CASE / "expected.safetensors")["plain"].array
    assert np.abs(got - want).max() < 1e-5


@pytest.mark.parametrize("old,ranks", [(True, 1), (True, 2), (False, 4)])
def test_rank_files(tmp_path, old, ranks):
    tensors = core_tensors()

    def model_of(rank, stage):
        parts = {name: make.part_of(name, t, rank, ranks, False) for name, t in tensors.items()}
        return legacy(parts) if old else parts

    make.write_ranks(tmp_path / "parts", ranks, model_of, arguments(ranks))
    out = imported(tmp_path, tmp_path / "parts")
    makes_the_vectors(out)
    made = json.loads((out / "config.json").read_text())
    assert (made["architecture"], made["num_tokentypes"], made["activation"]) == ("megatron_bert", 2, "gelu_erf")
    assert (made["vocab_size"], made["padded_vocab_size"]) == (VOCABULARY, 256)


def test_distributed(tmp_path):
    """Layers stacked, as Megatron-Core saves BERT."""
    tensors, stacked = core_tensors(), {}
    for name, t in tensors.items():
        if not name.startswith("encoder.layers."):
            stacked[name] = (t.array.shape, [Box((0,) * t.array.ndim, t)])
        elif name.startswith("encoder.layers.0."):
            both = np.stack([t.array, tensors[name.replace(".0.", ".1.", 1)].array])
            stacked[name.replace(".0.", ".", 1)] = (both.shape, [Box((0,) * both.ndim, Tensor("F32", both))])
    make.write_distributed(tmp_path / "parts", stacked)
    (tmp_path / "parts/metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    make.torch_save(tmp_path / "parts/common.pt", {"args": arguments()})
    makes_the_vectors(imported(tmp_path, tmp_path / "parts"))


def test_without_token_types(tmp_path):
    """Trained without the head that says whether two texts follow one another: the table is missing, and so is its row."""
    tensors = core_tensors()
    types = tensors.pop("embedding.tokentype_embeddings.weight")
    positions = tensors["embedding.position_embeddings.weight"]
    tensors["embedding.position_embeddings.weight"] = Tensor("F32", positions.array + types.array[0])
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, arguments())
    makes_the_vectors(imported(tmp_path, tmp_path / "parts"))


def test_smaller_weights(tmp_path):
    make.write_ranks(tmp_path / "parts", 1, lambda *_: core_tensors(), arguments())
    out = imported(tmp_path, tmp_path / "parts", "--to", "f16")
    assert {t.kind for name, t in make.read_folder(out).items() if name.endswith("linear_qkv.weight")} == {"F16"}


def test_the_other_order_of_norms(tmp_path):
    tensors = {**core_tensors(), "encoder.initial_layernorm.weight": Tensor("F32", np.ones(HIDDEN, "<f4"))}
    make.write_ranks(tmp_path / "parts", 1, lambda *_: tensors, arguments())
    done = subprocess.run([BUILD / "retro-convert", "--inspect", tmp_path / "parts"], capture_output=True, text=True)
    assert done.returncode == 1 and "is a BERT of NeMo 2 that normalises after its layers" in done.stderr
