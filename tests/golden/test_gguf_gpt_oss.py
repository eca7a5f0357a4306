"""gpt-oss as llama.cpp writes it, made here of the folders in tests/golden/hf: gate and up apart, MXFP4 in GGML's blocks, sinks."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest
from test_gguf import read_tensors as stored_tensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden/hf"
F32, BF16, MXFP4 = 0, 30, 39
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.router": "ffn_gate_inp"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def run(program, *arguments):
    return subprocess.run([BUILD / program, *map(str, arguments)], capture_output=True, text=True)


def read_tensors(folder):
    raw = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        values = np.frombuffer(raw[8 + size:][slice(*t["data_offsets"])], {"F32": "<f4", "BF16": "<u2", "U8": "u1"}[t["dtype"]])
        if t["dtype"] == "BF16":
            values = (values.astype("<u4") << 16).view("<f4")
        tensors[name] = values.reshape(t["shape"])
    return tensors


def to_ggml(codes, exponents):
    """Blocks [..., blocks, 16] of two neighbours a byte, the first in the low half, as GGML has them: byte j holds number j and 16 + j."""
    numbers = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], 32)
    return np.concatenate([exponents[..., None], numbers[..., :16] | numbers[..., 16:] << 4], -1).astype("u1")


def expert_tensors(layer, name, t, tensors):
    """Of the gates and ups, and of what leads back: {name: (type, shape with rows first, bytes)}."""
    if name + "_blocks" in tensors:
        blocks = to_ggml(tensors[name + "_blocks"], tensors[name + "_scales"])
        kind, shape = MXFP4, [*blocks.shape[:2], blocks.shape[2] * 32]
    else:
        blocks, kind = np.swapaxes(t, 1, 2), F32
        shape = list(blocks.shape)
    bias = tensors[name + "_bias"]
    if name.endswith("down_proj"):
        parts = {"down": (blocks, bias)}
    else:
        parts = {"gate": (blocks[:, ::2], bias[:, ::2]), "up": (blocks[:, 1::2], bias[:, 1::2])}
    out = {}
    for part, (w, b) in parts.items():
        out[f"blk.{layer}.ffn_{part}_exps.weight"] = (kind, [shape[0], w.shape[1], shape[2]], np.ascontiguousarray(w).tobytes())
        out[f"blk.{layer}.ffn_{part}_exps.bias"] = (F32, list(b.shape), b.astype("<f4").tobytes())
    return out


def plain(name, t, published):
    if published and t.ndim == 2:
        return {name: (BF16, list(t.shape), (np.ascontiguousarray(t).view("<u4") >> 16).astype("<u2").tobytes())}
    return {name: (F32, list(t.shape), t.astype("<f4").tobytes())}


def ggml_tensors(tensors):
    out = {}
    published = any(name.endswith("_blocks") for name in tensors)
    for name, t in tensors.items():
        stem, _, ending = name.rpartition(".")
        layer = name.split(".")[2] if name.startswith("model.layers.") else None
        inner = ".".join(stem.split(".")[3:])
        if stem in OUTER:
            out |= plain(f"{OUTER[stem]}.{ending}", t, published)
        elif inner in NAMES:
            out |= plain(f"blk.{layer}.{NAMES[inner]}.{ending}", t, published)
        elif name.endswith("self_attn.sinks"):
            out |= plain(f"blk.{layer}.attn_sinks.weight", t, published)
        elif name.endswith(("gate_up_proj", "down_proj", "gate_up_proj_blocks", "down_proj_blocks")):
            out |= expert_tensors(layer, name.removesuffix("_blocks"), t, tensors)
    return out


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    if isinstance(v, list):
        item = 8 if isinstance(v[0], str) else 7 if isinstance(v[0], bool) else 5
        pack = {8: text, 7: lambda s: struct.pack("<B", s), 5: lambda s: struct.pack("<i", s)}[item]
        return struct.pack("<IIQ", 9, item, len(v)) + b"".join(map(pack, v))
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def keys_of(config):
    rope = config["rope_parameters"]
    own = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
           "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
           "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
           "rope.freq_base": float(rope["rope_theta"]), "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
           "expert_count": config["num_local_experts"], "expert_used_count": config["num_experts_per_tok"],
           "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
           "attention.sliding_window": config["sliding_window"], "expert_feed_forward_length": config["intermediate_size"],
           "rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
           "rope.scaling.original_context_length": rope["original_max_position_embeddings"]}
    letters = ["AB"] + [chr(ord("A") + i) for i in range(config["vocab_size"] - 4)]
    return {"general.architecture": "gpt-oss", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-4o",
            "tokenizer.ggml.tokens": ["<pad>", "<s>", "</s>", *letters], "tokenizer.ggml.merges": ["A B"],
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * len(letters), "tokenizer.ggml.eos_token_id": 2,
            } | {f"gpt-oss.{key}": v for key, v in own.items()}


def write_gguf(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items())
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


@pytest.fixture(params=["gpt_oss", "gpt_oss_mxfp4"])
def made(request, tmp_path):
    folder = tmp_path / "gguf"
    folder.mkdir()
    source = GOLDEN / request.param
    keys = keys_of(json.loads((source / "config.json").read_text()))
    tensors = ggml_tensors(read_tensors(source))
    write_gguf(folder / "model.gguf", keys, tensors)
    shutil.copy(source / "cases.safetensors", folder)
    return folder, source, keys, tensors


def logits(folder, *options):
    """What parity says of each case: the same words for the same numbers."""
    done = run("retro-eval", "parity", "--tolerance", "1", *options, folder)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    return done.stdout.replace(str(folder), "")


def test_the_folder_of_the_same_weights(made):
    """Within rounding of transformers, and what the folder gives, kept in four bits and widened."""
    folder, source, _, _ = made
    for options in (["--set", "model.dtype=f32"], []):
        assert logits(folder, *options) == logits(source, *options)
    done = run("retro-eval", "parity", "--tolerance", "1e-4", "--set", "model.dtype=f32", folder)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def test_ranks(made):
    for way in ("tensor", "pipeline"):
        done = run("retro-eval", "parity", "--set", "model.dtype=f32", "--set", f"parallel.{way}=2", "--set", "parallel.comm=threads", made[0])
        assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr


def test_conversion(made, tmp_path):
    """As a folder of ours the experts stay in four bits, or are widened."""
    folder = made[0]
    for kind in ("int8", "f32"):
        done = run("retro-convert", folder, tmp_path / kind, "--to", kind)
        assert done.returncode == 0, done.stderr
        shutil.copy(folder / "cases.safetensors", tmp_path / kind)
    done = run("retro-eval", "parity", "--tolerance", "1e-4", tmp_path / "f32")
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    assert "passed" in run("retro-eval", "parity", "--tolerance", "3", tmp_path / "int8").stdout


def converted(source, out, to):
    done = run("retro-convert", source, out, "--to", to)
    assert done.returncode == 0, done.stderr
    return out


def test_written(made, tmp_path):
    """The file that is made of a folder has the numbers of the file that the folder was made of, MXFP4 in four bits."""
    folder, source, _, _ = made
    mxfp4 = source.name.endswith("mxfp4")
    first = converted(folder, tmp_path / "folder", "int8" if mxfp4 else "f32")
    again = converted(converted(first, tmp_path / "written", "gguf"), tmp_path / "again", "int8" if mxfp4 else "f32")
    assert (first / "config.json").read_text() == (again / "config.json").read_text()
    before, after = (stored_tensors(path / "model.safetensors") for path in (first, again))
    assert set(before) == set(after)
    assert all(before[name] == after[name] for name in before if not name.endswith("router.weight"))  # f32 in files
    shutil.copy(source / "cases.safetensors", tmp_path / "written")
    done = run("retro-eval", "parity", "--tolerance", "3" if mxfp4 else "1e-4", tmp_path / "written")
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("key, value", [("swiglu_limit", 5.0), ("layer_types", ["full_attention"] * 3)])
def test_options_that_llama_cpp_lacks(made, tmp_path, key, value):
    folder, source, _, _ = made
    if source.name != "gpt_oss":
        return
    plain = converted(folder, tmp_path / "folder", "f32")
    config = json.loads((plain / "config.json").read_text()) | {key: value}
    (plain / "config.json").write_text(json.dumps(config))
    done = run("retro-convert", plain, tmp_path / "written", "--to", "gguf")
    assert done.returncode == 1 and f'no word for this model\'s "{key}"' in done.stderr, done.stderr


def expect_refusal(folder, words):
    done = run("retro-eval", "parity", folder)
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr


def test_refusals(made):
    folder, _, keys, tensors = made
    path = folder / "model.gguf"
    write_gguf(path, keys | {"gpt-oss.swiglu_clamp": 7.0}, tensors)
    expect_refusal(folder, 'key "gpt-oss.swiglu_clamp" is not known')
    write_gguf(path, {key: v for key, v in keys.items() if "scaling" not in key}, tensors)
    expect_refusal(folder, 'needs "rope_scaling"')
    write_gguf(path, keys, {name: t for name, t in tensors.items() if name != "blk.1.attn_sinks.weight"})
    expect_refusal(folder, "model.layers.1.self_attn.sinks is missing")
    kind, shape, raw = tensors["blk.0.ffn_up_exps.weight"]
    if kind == MXFP4:
        write_gguf(path, keys, tensors | {"blk.0.ffn_up_exps.weight": (kind, shape, b"\xff" + raw[1:])})
        expect_refusal(folder, "not finite")
