"""Families of Hugging Face: spellings of config.json and of tensors, and options that are refused by name."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
GOLDEN = ROOT / "tests/golden/hf"


def parity(folder, *arguments):
    return subprocess.run([EVAL, "parity", "--set", "model.dtype=f32", *arguments, folder], capture_output=True, text=True)


def expect_equal(folder):
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def expect_refusal(folder, *words):
    done = parity(folder)
    assert done.returncode == 1 and all(word in done.stderr for word in words), done.stdout + done.stderr


def copy_family(name, tmp_path, drop=(), **values):
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    for key in drop:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config | values))
    return folder


def read_tensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def zeros(*shape):
    return "F32", list(shape), np.zeros(shape, "<f4").tobytes()


def test_gpt2_without_prefix(tmp_path):
    """GPT2Model writes no "transformer."; old files hold the causal mask as well."""
    folder = copy_family("gpt2", tmp_path)
    tensors = {name.removeprefix("transformer."): t for name, t in read_tensors(folder / "model.safetensors").items()}
    assert "h.0.attn.c_attn.weight" in tensors
    tensors |= {f"h.{i}.attn.{mask}": zeros(4) for i in range(3) for mask in ("bias", "masked_bias")}
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


@pytest.mark.parametrize("prefix", ["transformer.h", "h"])
def test_gpt2_names_what_is_missing(tmp_path, prefix):
    folder = copy_family("gpt2", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    tensors = {name.replace("transformer.h", prefix): t for name, t in tensors.items()}
    del tensors[f"{prefix}.1.mlp.c_fc.bias"]
    write_tensors(folder / "model.safetensors", tensors)
    expect_refusal(folder, f"tensor {prefix}.1.mlp.c_fc.bias is missing")


def test_stored_output_matrix_wins(tmp_path):
    """tie_word_embeddings is true; lm_head.weight is stored all the same, and is the output matrix."""
    folder = copy_family("gpt2", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    word = tensors["transformer.wte.weight"]
    write_tensors(folder / "model.safetensors", tensors | {"lm_head.weight": word})
    expect_equal(folder)
    write_tensors(folder / "model.safetensors", tensors | {"lm_head.weight": zeros(*word[1])})
    assert "FAILED" in parity(folder).stdout


def test_rope_in_words_of_transformers_4(tmp_path):
    folder = copy_family("llama", tmp_path, drop=["rope_parameters"], rope_theta=50000.0, rope_scaling=None)
    expect_equal(folder)
    folder = copy_family("qwen2_bf16", tmp_path, drop=["rope_parameters"], rope_theta=1000000.0,
                         rope_scaling={"type": "default"})
    expect_equal(folder)


def test_rope_base_matters(tmp_path):
    assert "FAILED" in parity(copy_family("llama", tmp_path, drop=["rope_parameters"])).stdout


@pytest.mark.parametrize("key, names", [("attention_bias", "q k v o"), ("mlp_bias", "gate up down")])
def test_llama_biases_by_config(tmp_path, key, names):
    """Biases of zero change nothing; each is needed where config.json says so, and has no place where it does not."""
    folder = copy_family("llama", tmp_path, **{key: True})
    part = "self_attn" if key == "attention_bias" else "mlp"
    first = "q_proj" if key == "attention_bias" else "gate_proj"
    expect_refusal(folder, f"tensor model.layers.0.{part}.{first}.bias is missing")

    tensors = {}
    for shard in sorted(folder.glob("model-*.safetensors")):
        tensors |= read_tensors(shard)
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    for i in range(3):
        for name in names.split():
            matrix = f"model.layers.{i}.{part}.{name}_proj"
            tensors[f"{matrix}.bias"] = zeros(tensors[f"{matrix}.weight"][1][0])
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)
    shutil.copy(GOLDEN / "llama/config.json", folder / "config.json")
    expect_refusal(folder, ".bias has no place")


def test_untied_needs_an_output_matrix(tmp_path):
    folder = copy_family("qwen2_bf16", tmp_path, drop=["tie_word_embeddings"])
    expect_refusal(folder, "tensor lm_head.weight is missing")


@pytest.mark.parametrize("family, key, value, words", [
    ("gpt2", "scale_attn_by_inverse_layer_idx", True, "must be false"),
    ("gpt2", "add_cross_attention", True, "must be false"),
    ("gpt2", "activation_function", "mish", "allowed is gelu, gelu_new"),
    ("gpt2", "n_head", 5, "32 is not a multiple of 5"),
    ("gpt2", "n_layer", 0, "allowed is 1 .. 512"),
    ("gpt2", "n_positions", "64", "expected an integer"),
    ("llama", "rope_scaling", {"type": "linear", "factor": 2.0}, "rope_scaling.type"),
    ("llama", "rope_scaling", {"factor": 2.0}, "rope_scaling.rope_type"),
    ("llama", "rope_parameters", {"rope_type": "llama3", "rope_theta": 5e5}, "rope_parameters.rope_type"),
    ("llama", "quantization_config", {"quant_method": "gptq"}, "not supported"),
    ("llama", "num_key_value_heads", 3, "cannot share"),
    ("llama", "eos_token_id", ["2"], "expected an integer"),
    ("qwen2_bf16", "use_sliding_window", True, "must be false"),
])
def test_options_that_are_refused(tmp_path, family, key, value, words):
    folder = copy_family(family, tmp_path, **{key: value})
    done = parity(folder)
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr
    assert key in done.stderr or family == "gpt2" and key == "n_head" or "heads cannot share" in done.stderr


def test_several_eos_ids(tmp_path):
    expect_equal(copy_family("llama", tmp_path, eos_token_id=[2, 3]))
