"""Biases on queries, keys and values alone (add_qkv_bias without add_bias_linear), as Qwen's relatives have them in Megatron
and NeMo: tests/golden/hf/qwen2_bf16 under Megatron's names computes the logits of transformers, whatever it becomes."""
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
sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints as make  # noqa: E402
from checkpoints import Tensor  # noqa: E402
from forward import write_cases  # noqa: E402

CASE = ROOT / "tests/golden/hf/qwen2_bf16"
LLAVA = ROOT / "tests/golden/vision/llava_b"
GGUF = ROOT / "tests/golden/gguf/gpt2/model.gguf"
HEADS, GROUPS = 6, 3
F32 = ("--set", "model.dtype=f32")


def run(program, *arguments):
    done = subprocess.run([BUILD / program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def join_groups(parts, ends):
    """Queries, keys and values of a layer as Megatron has them: those of a group's heads, its keys, its values."""
    q, k, v = (parts[f"self_attn.{name}_proj.{ends}"].array for name in "qkv")
    q, k, v = (a.reshape(GROUPS, -1, *a.shape[1:]) for a in (q, k, v))
    return Tensor("BF16", np.concatenate([q, k, v], 1).reshape(-1, *q.shape[2:]))


def megatron_tensors():
    """Words and the MLP are padded with zeros, so that three ranks can share them."""
    theirs = make.read_folder(CASE)
    words = np.pad(theirs["model.embed_tokens.weight"].array, ((0, 2), (0, 0)))
    ours = {"embedding.word_embeddings.weight": Tensor("BF16", words),
            "decoder.final_layernorm.weight": theirs["model.norm.weight"]}
    for i in range(2):
        part = {name.removeprefix(f"model.layers.{i}."): t for name, t in theirs.items() if f".layers.{i}." in name}
        gated = np.concatenate([np.pad(part[f"mlp.{name}_proj.weight"].array, ((0, 32), (0, 0))) for name in ("gate", "up")])
        layer = {"self_attention.linear_qkv.layer_norm_weight": part["input_layernorm.weight"],
                 "self_attention.linear_qkv.weight": join_groups(part, "weight"),
                 "self_attention.linear_qkv.bias": join_groups(part, "bias"),
                 "self_attention.linear_proj.weight": part["self_attn.o_proj.weight"],
                 "mlp.linear_fc1.layer_norm_weight": part["post_attention_layernorm.weight"],
                 "mlp.linear_fc1.weight": Tensor("BF16", gated), "mlp.linear_fc2.weight": Tensor("BF16", np.pad(part["mlp.down_proj.weight"].array, ((0, 0), (0, 32))))}
        ours |= {f"decoder.layers.{i}.{name}": t for name, t in layer.items()}
    return ours


def write(folder, ranks, tensors, **more):
    args = dict(num_layers=2, num_attention_heads=HEADS, group_query_attention=True, num_query_groups=GROUPS, swiglu=True,
                normalization="RMSNorm", norm_epsilon=1e-6, position_embedding_type="rope", add_position_embedding=False,
                rotary_base=1000000, max_position_embeddings=64, add_bias_linear=False, add_qkv_bias=True,
                untie_embeddings_and_output_weights=False, tensor_model_parallel_size=ranks)
    make.write_ranks(folder, ranks, lambda rank, _: {name: make.part_of(name, t, rank, ranks, True)
                                                     for name, t in tensors.items()}, make.namespace(**{**args, **more}))
    return folder


def write_reference(folder):
    """The logits of transformers; those of the padding are 0."""
    theirs = {name: t.array for name, t in make.read_safetensors(CASE / "cases.safetensors").items()}
    write_cases(folder / "cases.safetensors", {
        name: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, 2)]) if name.endswith("logits") else a
        for name, a in theirs.items() if "hidden_states" not in name})


def imported(tmp_path, ranks=1, *options):
    folder = write(tmp_path / "parts", ranks, megatron_tensors())
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"vocab_size": 250}))
    run("retro-convert", "--from", folder, "--out", tmp_path / "out", "--config", given, *options)
    return tmp_path / "out"


def parity(folder, tolerance, *options):
    write_reference(folder)
    done = run("retro-eval", "parity", "--tolerance", tolerance, *options, folder)
    assert done.stdout.endswith(" 0 failed\n") and "tokens=" in done.stdout, done.stdout


@pytest.mark.parametrize("ranks", [1, 3])
def test_import(tmp_path, ranks):
    out = imported(tmp_path, ranks)
    made = json.loads((out / "config.json").read_text())
    assert (made["architecture"], made["add_bias_linear"], made["add_qkv_bias"]) == ("gpt", False, True)
    assert make.plain(make.read_folder(out)) == make.plain(megatron_tensors())
    parity(out, 1e-4, *F32)


@pytest.mark.parametrize("options", [("parallel.tensor=3",), ("parallel.pipeline=2",)])
def test_ranks(tmp_path, options):
    sets = [part for option in ("parallel.comm=threads", *options) for part in ("--set", option)]
    parity(imported(tmp_path), 1e-4, *F32, *sets)


@pytest.mark.parametrize("to,tolerance,options", [("f32", 1e-4, F32), ("packed", 0.1, ()), ("int8", 0.5, ())])
def test_conversions(tmp_path, to, tolerance, options):
    run("retro-convert", imported(tmp_path), tmp_path / "made", "--to", to)
    parity(tmp_path / "made", tolerance, *options)


def test_gguf(tmp_path):
    """GGUF's word for it is qwen2. The tokenizer is another model's, cut to the word table."""
    run("retro-convert", GGUF, tmp_path / "other", "--to", "f32")
    out = imported(tmp_path)
    tokenizer = json.loads((tmp_path / "other/tokenizer.json").read_text())
    tokenizer["model"].update(merges=[], vocab={w: i for w, i in tokenizer["model"]["vocab"].items() if i < 250})
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["id"] < 250]
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    run("retro-convert", out, tmp_path / "made", "--to", "gguf")
    parity(tmp_path / "made", 1e-4, *F32)
    run("retro-convert", tmp_path / "made", tmp_path / "again", "--to", "bf16")
    assert json.loads((tmp_path / "again/config.json").read_text())["model_type"] == "qwen2"
    parity(tmp_path / "again", 1e-4, *F32)


def test_import_as_int8(tmp_path):
    parity(imported(tmp_path, 1, "--to", "int8"), 0.5)


def test_bias_that_is_not_said(tmp_path):
    """A folder whose config.json leaves the key out does not silently lose the bias."""
    out = imported(tmp_path)
    config = json.loads((out / "config.json").read_text())
    del config["add_qkv_bias"]
    (out / "config.json").write_text(json.dumps(config))
    done = subprocess.run([BUILD / "retro-eval", "parity", out], capture_output=True, text=True)
    assert done.returncode == 1 and "linear_qkv.bias has no place" in done.stderr, done.stderr


def zero_biases(tensors):
    """The same model with biases of zero on queries, keys and values."""
    return tensors | {name.removesuffix("weight") + "bias": Tensor("F32", np.zeros(len(t.array), "<f4"))
                      for name, t in tensors.items() if name.endswith("self_attention.linear_qkv.weight")}


@pytest.mark.parametrize("case", ["retro/case_b", "t5/case_b"])
def test_cross_attention_has_none(tmp_path, case):
    """Megatron's rule: biases of self attention, the encoder's included, not of cross attention."""
    folder = ROOT / "tests/golden" / case
    config, tensors = json.loads((folder / "config.json").read_text()), make.read_folder(folder)
    assert config["add_bias_linear"] is False
    out = shutil.copytree(folder, tmp_path / "out")
    (out / "config.json").write_text(json.dumps({**config, "add_qkv_bias": True}))
    own = {name: t for name, t in tensors.items() if name not in config.get("alias_keys", ())}
    biased = zero_biases(own)
    write_cases(out / "model.safetensors", {name: t.array for name, t in biased.items()})
    run("retro-eval", "parity", out)


def test_language_model_of_llava(tmp_path):
    """The model above behind a tower: texts alone have its logits."""
    config, tower = json.loads((LLAVA / "config.json").read_text()), make.read_folder(LLAVA)
    language = {**config["language"], "num_layers": 2, "hidden_size": 48, "num_attention_heads": HEADS,
                "num_query_groups": GROUPS, "ffn_hidden_size": 96, "vocab_size": 250, "padded_vocab_size": 252,
                "rotary_base": 1000000, "tie_word_embeddings": True, "add_bias_linear": False, "add_qkv_bias": True}
    tensors = {name: t for name, t in tower.items() if not name.startswith(("language_model.", "vision_projection."))}
    tensors |= {f"language_model.{name}": t for name, t in megatron_tensors().items()}
    given = tmp_path / "given.json"
    projector = {"projector_type": "affine", "input_size": config["projector"]["input_size"], "hidden_size": 48}
    for name, shape in (("weight", (48, projector["input_size"])), ("bias", 48)):
        tensors[f"vision_projection.encoder.{name}"] = Tensor("F32", np.zeros(shape, "<f4"))
    given.write_text(json.dumps({**config, "language": language, "projector": projector}))
    make.torch_save(tmp_path / "parts/mp_rank_00/model_optim_rng.pt", {"model": tensors})
    run("retro-convert", "--from", tmp_path / "parts", "--out", tmp_path / "out", "--config", given)
    theirs = make.read_safetensors(CASE / "cases.safetensors")
    logits = np.pad(theirs["b1.logits"].array, ((0, 0), (0, 0), (0, 2)))
    cases = {"text.tokens": theirs["b1.input_ids"].array, "text.logits": logits, "text.lengths": np.array([11], "<i4"),
             "text.images": np.zeros((0, 3, 32, 32), "<f4"), "text.num_image_tiles": np.zeros(0, "<i4")}
    write_cases(tmp_path / "out/cases.safetensors", cases)
    done = run("retro-eval", "parity", "--set", "model.dtype=f32", "--tolerance", 1e-4, tmp_path / "out")
    assert "1 passed, 0 failed" in done.stdout, done.stdout
