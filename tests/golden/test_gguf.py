"""GGUF files through retro-eval parity and retro-convert: llama.cpp's logits (tests/reference/make_gguf_golden.py), what is
made of a file, and files that we write."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/gguf"
RELATIVES = ["qwen3", "olmo2", "gemma2", "smollm3", "granite", "starcoder2"]
MODELS = ["llama", "qwen2", "gpt2", "kquants", "gemma2"]
# Files that llama.cpp's converter made of folders of transformers (tests/reference/make_gguf_families.py), with the
# folders' logits.
CONVERTED = ["phi3", "phi3_short", "gemma3", "gptneox", "gptneox_parallel", "mixtral", "qwen2moe", "qwen3moe"]
# Likewise; not written.
READ_ONLY = ["qwen2vl", "deepseek2_lite", "deepseek2", "glm47_flash", "glm4moe", "ernie4_5_moe", "minimax", "qwen35", "qwen35moe", "lfm2",
             "lfm2moe", "granitehybrid", "granitehybrid_dense", "granite4", "granitemoe", "granitemoe_shared", "olmoe", "dots1", "nemotron_h", "nemotron_h_moe", "glm4", "cohere2", "olmo3", "mistral3",
             "exaone4", "arcee", "nemotron", "seed_oss", "ernie4_5", "hunyuan_dense", "hunyuan_moe", "llama4", "gemma4", "gemma4_moe"]
# The reference is the dequantised model in f32. llama.cpp's GELU is a table of f16; measured 2.7e-3, 1.8e-3, 1.5e-3.
EXACT = {"gpt2": "5e-3", "gemma2": "5e-3", "starcoder2": "5e-3"}
# The same with int8 and int4 kept, and inputs rounded to int8: measured 0.08, 0.50, 0.16, 0.08; logits lie within 15.
QUANTISED = "0.7"
# Experts are chosen from rounded rows, and a row may meet another one; measured 2.55, with attention in f32 0.77, and 0.75 of Gemma 4.
EXPERTS = "3"


def run(program, *arguments):
    return subprocess.run([BUILD / program, *map(str, arguments)], capture_output=True, text=True)


def parity(folder, tolerance, *options):
    done = run("retro-eval", "parity", "--tolerance", tolerance, *options, folder)
    assert done.returncode == 0 and "tokens=ok" in done.stdout, done.stdout + done.stderr
    return done


def converted(source, out, to):
    done = run("retro-convert", source, out, "--to", to)
    assert done.returncode == 0, done.stderr
    return out


def with_cases(folder, name):
    shutil.copy(GOLDEN / name / "cases.safetensors", folder)
    return folder


def read_tensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + size:][slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, a in tensors.items():
        raw = a.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("name", sorted({*MODELS, *RELATIVES}))
def test_reference_logits(name):
    parity(GOLDEN / name, EXACT.get(name, "1e-4"), "--set", "model.dtype=f32")
    parity(GOLDEN / name, QUANTISED)


@pytest.mark.parametrize("name", [*CONVERTED, *READ_ONLY])
def test_converted_logits(name):
    parity(GOLDEN / name, "1e-4", "--set", "model.dtype=f32")
    parity(GOLDEN / name, EXPERTS)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "kquants", "gptneox", "phi3", "qwen3moe", "qwen35", "deepseek2"])
def test_two_ranks(name):
    parity(GOLDEN / name, EXACT.get(name, "2e-4"), "--set", "model.dtype=f32", "--set", "parallel.tensor=2", "--set",
           "parallel.comm=threads")


def test_loss_is_told():
    done = parity(GOLDEN / "kquants", QUANTISED)
    assert "hold blocks that int8 and int4 do not fit: relative error" in done.stderr
    assert "do not fit" not in parity(GOLDEN / "llama", QUANTISED).stderr  # each of its types is exact


@pytest.mark.parametrize("name", [*MODELS, *CONVERTED, *READ_ONLY])
def test_as_folder(name, tmp_path):
    """The folder that a file becomes computes the same, and so does the packed one."""
    folder = with_cases(converted(GOLDEN / name / "model.gguf", tmp_path / "f32", "f32"), name)
    parity(folder, EXACT.get(name, "1e-4"))
    assert json.loads((folder / "tokenizer_config.json").read_text())["eos_token"] == "</s>"
    packed = with_cases(converted(GOLDEN / name, tmp_path / "packed", "packed"), name)
    parity(packed, EXPERTS if name in (*CONVERTED, "gemma4_moe", "olmoe", "dots1") else QUANTISED)


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_is_not_written(name, tmp_path):
    folder = converted(GOLDEN / name, tmp_path / "f32", "f32")
    done = run("retro-convert", folder, tmp_path / "gguf", "--to", "gguf")
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    assert done.returncode == 1 and f"a {kind} model is not written to GGUF" in done.stderr, done.stderr


def test_blocks_stay_as_they_are(tmp_path):
    """Q8_0 becomes int8 and back, number for number: no tensor changes on the way."""
    folder = converted(GOLDEN / "qwen2/model.gguf", tmp_path / "int8", "int8")
    first = read_tensors(folder / "model.safetensors")
    assert {t[0] for name, t in first.items() if name.endswith("proj.weight")} == {"I8"}
    again = converted(converted(folder, tmp_path / "gguf", "gguf"), tmp_path / "again", "int8")
    assert read_tensors(again / "model.safetensors") == first


def test_int4_both_ways(tmp_path):
    wide = converted(GOLDEN / "qwen2/model.gguf", tmp_path / "f32", "f32")
    narrow = converted(wide, tmp_path / "int4", "int4")
    again = converted(converted(narrow, tmp_path / "gguf", "gguf"), tmp_path / "again", "int4")
    assert read_tensors(again / "model.safetensors") == read_tensors(narrow / "model.safetensors")


def test_turned_blocks(tmp_path):
    """GPT-2's folders hold floats as [in, out] and blocks as [out, in], as GGUF does: the rounded model goes both ways."""
    narrow = converted(GOLDEN / "gpt2/model.gguf", tmp_path / "int8", "int8")
    first = read_tensors(narrow / "model.safetensors")
    dtype, (rows, columns), _ = first["transformer.h.0.attn.c_attn.weight"]
    assert dtype == "U8" and rows == 3 * 2 * columns  # two of 4 bits in a byte
    parity(with_cases(narrow, "gpt2"), QUANTISED)
    again = converted(converted(narrow, tmp_path / "gguf", "gguf"), tmp_path / "again", "int8")
    assert read_tensors(again / "model.safetensors") == first


def test_heads_in_order(tmp_path):
    """Value heads that lie in another order, as columns of blocks too, become int8 in the order of folders."""
    parity(with_cases(converted(GOLDEN / "qwen35moe/model.gguf", tmp_path / "int8", "int8"), "qwen35moe"), EXPERTS)


def test_blocks_are_not_rounded_twice(tmp_path):
    done = run("retro-convert", GOLDEN / "qwen2/model.gguf", tmp_path / "int4", "--to", "int4")
    assert done.returncode == 1 and "holds int8 already" in done.stderr


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "qwen3", *CONVERTED])
def test_written_files(name, tmp_path):
    """What we write computes what we read: tests/reference/compare_gguf.py has llama.cpp read such files."""
    wide = converted(GOLDEN / name / "model.gguf", tmp_path / "f32", "f32")
    parity(with_cases(converted(wide, tmp_path / "gguf", "gguf"), name), EXACT.get(name, "1e-4"))


def test_written_experts(tmp_path):
    """Blocks of stacked experts go both ways number for number."""
    narrow = converted(GOLDEN / "qwen2moe/model.gguf", tmp_path / "int8", "int8")
    again = converted(converted(narrow, tmp_path / "gguf", "gguf"), tmp_path / "again", "int8")
    assert read_tensors(again / "model.safetensors") == read_tensors(narrow / "model.safetensors")


@pytest.mark.parametrize("name", ["gemma_dense", "qwen2_two_sided"])
def test_models_that_see_both_sides_are_not_written(tmp_path, name):
    done = run("retro-convert", ROOT / "tests/golden/embedder" / name, tmp_path / "out", "--to", "gguf")
    assert done.returncode == 1 and "see those behind them" in done.stderr and not (tmp_path / "out").exists(), done.stderr


@pytest.mark.parametrize("name, key", [("mixtral", "sliding_window"), ("gemma3_text", "query_pre_attn_scalar"),
                                       ("qwen3_moe", "mlp_only_layers")])
def test_options_that_llama_cpp_lacks(name, key, tmp_path):
    done = run("retro-convert", ROOT / "tests/golden/hf" / name, tmp_path / "out", "--to", "gguf")
    assert done.returncode == 1 and f'no word for this model\'s "{key}"' in done.stderr, done.stderr


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


@pytest.mark.parametrize("base", [10000, 150000, 5e5, 1e6, 1000000.0, 1234567, 8388607.5])
@pytest.mark.parametrize("name, scaling", [("mixtral", None), ("mixtral", LLAMA3), ("qwen3", None), ("phi3", None),
                                           ("qwen3", {"rope_type": "linear", "factor": 3.0}),
                                           ("gemma3", {"rope_type": "linear", "factor": 8.0})])
def test_base_of_rope(name, scaling, base, tmp_path):
    """The base comes back as it was written, whatever the frequencies were made of it."""
    folder = converted(GOLDEN / name / "model.gguf", tmp_path / "folder", "f32")
    config = json.loads((folder / "config.json").read_text()) | {"rope_theta": base}
    if scaling:
        config |= {"rope_scaling": scaling, "rope_factors": None}
    (folder / "config.json").write_text(json.dumps(config))
    again = converted(converted(folder, tmp_path / "gguf", "gguf"), tmp_path / "again", "f32")
    read = json.loads((again / "config.json").read_text())
    assert read["rope_theta"] == base
    if scaling and scaling["rope_type"] == "linear":
        assert read["rope_scaling"] == scaling
    elif scaling:
        assert read["rope_factors"][0] == 1 and read["rope_factors"][-1] == 8
    elif name == "phi3":
        assert read["rope_scaling"]["long_factor"] == pytest.approx(config["rope_scaling"]["long_factor"], rel=1e-6)


def megatron(folder, rope, **options):
    """A random GPT of Megatron's with gpt2's tokenizer."""
    d, heads, kv, head, ffn, vocab, layers = 64, 4, 2 if rope else 4, 16, 96, 379, 2
    config = {"architecture": "gpt", "num_layers": layers, "hidden_size": d, "num_attention_heads": heads,
              "num_query_groups": kv, "ffn_hidden_size": ffn, "vocab_size": vocab, "max_position_embeddings": 64,
              "position_embedding_type": "rope" if rope else "learned_absolute", "add_bias_linear": False,
              "normalization": "RMSNorm" if rope else "LayerNorm", "activation": "swiglu" if rope else "gelu_tanh"}
    rng = np.random.default_rng(5)
    tensors = {"embedding.word_embeddings.weight": 0.3 * rng.standard_normal((vocab, d))}
    if not rope:
        tensors["embedding.position_embeddings.weight"] = 0.3 * rng.standard_normal((64, d))
    for i in range(layers):
        norm, shapes = f"decoder.layers.{i}.", {
            "self_attention.linear_qkv": ((heads + 2 * kv) * head, d), "self_attention.linear_proj": (d, heads * head),
            "mlp.linear_fc1": (ffn * (2 if rope else 1), d), "mlp.linear_fc2": (d, ffn)}
        tensors |= {norm + part + ".weight": rng.standard_normal(shape) / shape[1] ** 0.5 for part, shape in shapes.items()}
        for part in ("self_attention.linear_qkv", "mlp.linear_fc1"):
            tensors[norm + part + ".layer_norm_weight"] = 0.2 * rng.standard_normal(d) + 1
            if not rope:
                tensors[norm + part + ".layer_norm_bias"] = 0.1 * rng.standard_normal(d)
    tensors["decoder.final_layernorm.weight"] = 0.2 * rng.standard_normal(d) + 1
    if not rope:
        tensors["decoder.final_layernorm.bias"] = 0.1 * rng.standard_normal(d)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | options))
    write_tensors(folder / "model.safetensors", tensors)
    converted(GOLDEN / "gpt2/model.gguf", folder.parent / "tokenizer", "f32")
    shutil.copy(folder.parent / "tokenizer/tokenizer.json", folder)
    return folder


def float_tensors(folder):
    return {name: np.frombuffer(raw, "<f4").reshape(shape)
            for name, (_, shape, raw) in read_tensors(folder / "model.safetensors").items()}


@pytest.mark.parametrize("options", [{}, {"rotary_interleaved": True}, {"layernorm_zero_centered_gamma": True}])
def test_megatron_as_llama(options, tmp_path):
    """The file is Llama's: queries, keys and values apart, in the order of heads; norms as they are computed with."""
    folder = megatron(tmp_path / "gpt", True, **options)
    theirs = float_tensors(folder)
    ours = float_tensors(converted(converted(folder, tmp_path / "gguf", "gguf"), tmp_path / "llama", "f32"))
    prefix, layer = "decoder.layers.1.", "model.layers.1."
    groups = theirs[prefix + "self_attention.linear_qkv.weight"].reshape(2, 4, 16, 64)  # of each: two queries, key, value
    order = [*range(0, 16, 2), *range(1, 16, 2)] if "rotary_interleaved" in options else [*range(16)]
    np.testing.assert_array_equal(ours[layer + "self_attn.q_proj.weight"], groups[:, :2, order].reshape(64, 64))
    np.testing.assert_array_equal(ours[layer + "self_attn.k_proj.weight"], groups[:, 2, order].reshape(32, 64))
    np.testing.assert_array_equal(ours[layer + "self_attn.v_proj.weight"], groups[:, 3].reshape(32, 64))
    gate, up = np.split(theirs[prefix + "mlp.linear_fc1.weight"], 2)
    np.testing.assert_array_equal(ours[layer + "mlp.gate_proj.weight"], gate)
    np.testing.assert_array_equal(ours[layer + "mlp.up_proj.weight"], up)
    gamma = theirs["decoder.final_layernorm.weight"]
    np.testing.assert_array_equal(ours["model.norm.weight"], gamma + 1 if len(options) and "zero" in str(options) else gamma)


def test_megatron_as_gpt2(tmp_path):
    """Biases that the model does not have are zeros in the file."""
    folder = megatron(tmp_path / "gpt", False)
    theirs = float_tensors(folder)
    ours = float_tensors(converted(converted(folder, tmp_path / "gguf", "gguf"), tmp_path / "gpt2", "f32"))
    heads = theirs["decoder.layers.1.self_attention.linear_qkv.weight"].reshape(4, 3, 16, 64)
    np.testing.assert_array_equal(ours["transformer.h.1.attn.c_attn.weight"].T, heads.swapaxes(0, 1).reshape(192, 64))
    assert not ours["transformer.h.1.attn.c_attn.bias"].any() and ours["transformer.h.1.mlp.c_fc.bias"].shape == (96,)
    np.testing.assert_array_equal(ours["transformer.wpe.weight"], theirs["embedding.position_embeddings.weight"])


def test_what_gguf_has_no_word_for(tmp_path):
    done = run("retro-convert", ROOT / "models/retro-docs", tmp_path / "out", "--to", "gguf")
    assert done.returncode == 1 and "a retro model is not written to GGUF" in done.stderr
    done = run("retro-convert", megatron(tmp_path / "gpt", False, activation="gelu_erf"), tmp_path / "out", "--to", "gguf")
    assert done.returncode == 1 and "neither llama.cpp's gpt2" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
