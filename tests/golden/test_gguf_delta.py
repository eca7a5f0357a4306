"""Qwen3-Next as llama.cpp writes it, made here of the folders in tests/golden/hf: products of delta nets apart, rates for decays."""
import json
import shutil

import numpy as np
import pytest
from test_gguf_gpt_oss import F32, GOLDEN, read_tensors, run, write_gguf

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "mlp.gate": "ffn_gate_inp",
         "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def split_heads(t, config):
    """[q, k, v, z] of each key head as q, k, v of all, and z of all."""
    heads, keys, values = (config[f"linear_{name}"] for name in ("num_key_heads", "key_head_dim", "value_head_dim"))
    group = config["linear_num_value_heads"] // heads * values
    parts = np.split(t.reshape(heads, -1, t.shape[-1]), np.cumsum([keys, keys, group]), axis=1)
    q, k, v, z = (part.reshape(-1, t.shape[-1]) for part in parts)
    return np.concatenate([q, k, v]), z


def ggml_tensors(tensors, config):
    out, experts = {}, {}
    for name, t in tensors.items():
        stem, _, ending = name.rpartition(".")
        if name.startswith("mtp."):
            continue
        if stem in OUTER:
            out[f"{OUTER[stem]}.{ending}"] = t + (stem == "model.norm")
            continue
        layer, inner = name.split(".")[2], ".".join(stem.split(".")[3:])
        block = f"blk.{layer}."
        if inner == "linear_attn.in_proj_qkvz":
            out[block + "attn_qkv.weight"], out[block + "attn_gate.weight"] = split_heads(t, config)
        elif name.endswith(".A_log"):
            out[block + "ssm_a"] = -np.exp(t)
        elif name.endswith(".dt_bias"):
            out[block + "ssm_dt.bias"] = t
        elif ".experts." in name:
            part = f"{block}ffn_{inner.split('.')[3].removesuffix('_proj')}_exps.weight"
            experts.setdefault(part, []).append((int(inner.split(".")[2]), t))
        else:
            around_one = "norm" in inner and inner != "linear_attn.norm"
            t = t[:, 0] if inner == "linear_attn.conv1d" else t
            out[f"{block}{NAMES[inner]}.{ending}"] = t + around_one
    out |= {part: np.stack([t for _, t in sorted(rows, key=lambda row: row[0])]) for part, rows in experts.items()}
    return {name: (F32, list(t.shape), np.ascontiguousarray(t, "<f4").tobytes()) for name, t in out.items()}


def keys_of(config):
    letters = [chr(ord("A") + i) for i in range(config["vocab_size"] - 3)]
    own = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
           "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
           "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
           "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
           "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": 10000.0,
           "rope.dimension_count": config["head_dim"] // 4, "expert_count": config["num_experts"],
           "expert_used_count": config["num_experts_per_tok"], "expert_feed_forward_length": config["moe_intermediate_size"],
           "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
           "ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
           "ssm.group_count": config["linear_num_key_heads"], "ssm.time_step_rank": config["linear_num_value_heads"],
           "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
           "attention.recurrent_layers": [kind == "linear_attention" for kind in config["layer_types"]], "full_attention_interval": 4}
    return {"general.architecture": "qwen3next", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": ["<pad>", "<s>", "</s>", *letters], "tokenizer.ggml.merges": ["A B"],
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * len(letters), "tokenizer.ggml.eos_token_id": 2,
            } | {f"qwen3next.{key}": v for key, v in own.items()}


@pytest.fixture
def made(tmp_path):
    """All layers of a GGUF file have experts."""
    folder, source = tmp_path / "gguf", GOLDEN / "qwen3_next"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    keys, tensors = keys_of(config), ggml_tensors(read_tensors(source), config)
    shutil.copy(source / "cases.safetensors", folder)
    return folder, keys, tensors


def test_equal(made):
    folder, keys, tensors = made
    write_gguf(folder / "model.gguf", keys, tensors)
    done = run("retro-eval", "parity", folder)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
