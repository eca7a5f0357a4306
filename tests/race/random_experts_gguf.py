#!/usr/bin/env python3
"""A GGUF file of random weights in the shape of a model with experts, cut to some layers, for races.

    random_experts_gguf.py FILE --shape qwen3 --type Q4_K      Qwen3-30B-A3B: 8 of 128 experts
    random_experts_gguf.py FILE --shape gpt-oss                gpt-oss-20b: 4 of 32 experts in MXFP4, all else in Q8_0
    random_experts_gguf.py FILE --shape delta --type Q4_K      Qwen3.5-35B-A3B: the delta rule in three of four layers, 8 of 256 experts
    random_experts_gguf.py FILE --shape latent --type Q4_K     GLM-4.7-Flash: latent attention, 4 of 64 experts behind a dense layer

Speed depends on which experts are chosen, and not on their numbers: the matrices of one shape hold the same random block, and routers
are random. Tokens choose different experts (random_blocks.py); build/tests/reference/print_experts counts them. Needs the package gguf."""
import argparse

import gguf
import numpy as np

from random_blocks import matrix_scale
from random_gguf import VOCAB, add_sizes, add_words, random_matrix, write_file

CONTEXT = 16384
SHAPES = {"qwen3": {"architecture": "qwen3moe", "d": 2048, "heads": 32, "kv_heads": 4, "head": 128, "ffn": 768, "experts": 128, "used": 8},
          "gpt-oss": {"architecture": "gpt-oss", "d": 2880, "heads": 64, "kv_heads": 8, "head": 64, "ffn": 2880, "experts": 32, "used": 4},
          "delta": {"architecture": "qwen35moe", "d": 2048, "heads": 16, "kv_heads": 2, "head": 256, "ffn": 512, "experts": 256, "used": 8,
                    "shared": 512, "key_heads": 16, "value_heads": 32, "state": 128, "filter": 4},
          "latent": {"architecture": "deepseek2", "d": 2048, "heads": 20, "kv_heads": 1, "head": 576, "ffn": 1536, "experts": 64, "used": 4,
                     "shared": 1536, "dense": 10240, "query": 768, "row": 512, "plain": 192, "turned": 64, "value": 256}}
FULL_INTERVAL = 4  # of the layers of "delta" every fourth has attention
MXFP4_EXPONENT = 118  # of a block's scale: 2^(118 - 127)


def expert_shapes(of):
    d, ffn, n = of["d"], of["ffn"], of["experts"]
    shapes = {"ffn_gate_inp.weight": (n, d), "ffn_gate_exps.weight": (n, ffn, d), "ffn_up_exps.weight": (n, ffn, d),
              "ffn_down_exps.weight": (n, d, ffn)}
    if "shared" in of:
        shared = of["shared"]
        shapes |= {"ffn_gate_shexp.weight": (shared, d), "ffn_up_shexp.weight": (shared, d), "ffn_down_shexp.weight": (d, shared)}
    return shapes


def attention_shapes(of, gated=False):
    d, q, kv = of["d"], of["heads"] * of["head"], of["kv_heads"] * of["head"]
    return {"attn_q.weight": (2 * q if gated else q, d), "attn_k.weight": (kv, d), "attn_v.weight": (kv, d), "attn_output.weight": (d, q)}


def head_norms(of):
    return {"attn_q_norm.weight": of["head"], "attn_k_norm.weight": of["head"]}


def qwen3_shapes(of, _):
    return attention_shapes(of) | head_norms(of) | {"ffn_norm.weight": of["d"]} | expert_shapes(of)


def gpt_oss_shapes(of, _):
    n, ffn = of["experts"], of["ffn"]
    shapes = attention_shapes(of)
    biases = {name.replace("weight", "bias"): shape[0] for name, shape in shapes.items()}
    return shapes | biases | expert_shapes(of) | {
        "post_attention_norm.weight": of["d"], "attn_sinks.weight": of["heads"], "ffn_gate_inp.bias": n, "ffn_gate_exps.bias": (n, ffn),
        "ffn_up_exps.bias": (n, ffn), "ffn_down_exps.bias": (n, of["d"])}


def delta_shapes(of, layer):
    d, keys, values = of["d"], of["key_heads"] * of["state"], of["value_heads"] * of["state"]
    shapes = expert_shapes(of) | {"ffn_gate_inp_shexp.weight": (1, d), "post_attention_norm.weight": d}
    if layer % FULL_INTERVAL == FULL_INTERVAL - 1:
        return shapes | attention_shapes(of, gated=True) | head_norms(of)
    return shapes | {"attn_qkv.weight": (2 * keys + values, d), "attn_gate.weight": (values, d), "ssm_conv1d.weight": (2 * keys + values, of["filter"]),
                     "ssm_alpha.weight": (of["value_heads"], d), "ssm_beta.weight": (of["value_heads"], d), "ssm_a": of["value_heads"],
                     "ssm_dt.bias": of["value_heads"], "ssm_norm.weight": of["state"], "ssm_out.weight": (d, values)}


def latent_shapes(of, layer):
    d, heads, row, query = of["d"], of["heads"], of["row"], of["query"]
    shapes = {"attn_q_a.weight": (query, d), "attn_q_a_norm.weight": query, "attn_q_b.weight": (heads * (of["plain"] + of["turned"]), query),
              "attn_kv_a_mqa.weight": (of["head"], d), "attn_kv_a_norm.weight": row, "attn_k_b.weight": (heads, row, of["plain"]),
              "attn_v_b.weight": (heads, of["value"], row), "attn_output.weight": (d, heads * of["value"]), "ffn_norm.weight": d}
    if layer == 0:
        dense = of["dense"]
        return shapes | {"ffn_gate.weight": (dense, d), "ffn_up.weight": (dense, d), "ffn_down.weight": (d, dense)}
    return shapes | expert_shapes(of) | {"exp_probs_b.bias": of["experts"]}


LAYER_SHAPES = {"qwen3moe": qwen3_shapes, "gpt-oss": gpt_oss_shapes, "qwen35moe": delta_shapes, "deepseek2": latent_shapes}


def layer_shapes(of, layer):
    """Names to (rows, columns), of experts and heads (count, rows, columns); vectors have one number."""
    return {"attn_norm.weight": of["d"]} | LAYER_SHAPES[of["architecture"]](of, layer)


def random_experts(random, shape, kind):
    """Bytes [experts, rows, bytes of a row]: every expert is the same matrix."""
    if kind == gguf.GGMLQuantizationType.MXFP4:
        blocks = random.integers(0, 256, (shape[1], shape[2] // 32, 17), np.uint8)
        blocks[:, :, 0] = MXFP4_EXPONENT
        matrix = blocks.reshape(shape[1], -1)
    else:
        matrix = random_matrix(random, shape[1:], kind)
    return np.broadcast_to(matrix, (shape[0], *matrix.shape))


def small_tensor(random, name, shape):
    """A vector, a bias, the router or a filter, which stay f32; None of another matrix."""
    if "gate_inp" in name and name.endswith("weight") or "conv1d" in name:
        return random.standard_normal(shape, dtype=np.float32)
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    return np.full(shape, -1 if name.endswith("ssm_a") else 1, np.float32) if isinstance(shape, int) else None


def add_tensors(w, of, layers, kind, experts_kind):
    random, blocks = np.random.default_rng(1), {}

    def add(name, shape):
        small = small_tensor(random, name, shape)
        if small is not None:
            w.add_tensor(name, small)
            return
        of_kind = experts_kind if "exps" in name else kind
        if shape[-1] % gguf.GGML_QUANT_SIZES[of_kind][0] != 0:
            of_kind = gguf.GGMLQuantizationType.Q8_0
        scale = matrix_scale(name)
        if (shape, of_kind, scale) not in blocks:
            stacked = len(shape) == 3
            blocks[shape, of_kind, scale] = (random_experts(random, shape, of_kind) if stacked else
                                             random_matrix(random, shape, of_kind, scale))
        w.add_tensor(name, blocks[shape, of_kind, scale], raw_dtype=of_kind)

    add("token_embd.weight", (VOCAB, of["d"]))
    for i in range(layers):
        for name, shape in layer_shapes(of, i).items():
            add(f"blk.{i}.{name}", shape)
    add("output_norm.weight", of["d"])
    add("output.weight", (VOCAB, of["d"]))


def add_gpt_oss_words(w, _):
    w.add_sliding_window(128)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(32.0)
    w.add_rope_scaling_orig_ctx_len(4096)


def add_delta_words(w, of):
    w.add_expert_shared_feed_forward_length(of["shared"])
    w.add_rope_dimension_count(of["head"] // 4)
    w.add_rope_dimension_sections([11, 11, 10, 0])
    w.add_ssm_conv_kernel(of["filter"])
    w.add_ssm_state_size(of["state"])
    w.add_ssm_group_count(of["key_heads"])
    w.add_ssm_time_step_rank(of["value_heads"])
    w.add_ssm_inner_size(of["value_heads"] * of["state"])
    w.add_full_attention_interval(FULL_INTERVAL)


def add_latent_words(w, of):
    w.add_leading_dense_block_count(1)
    w.add_q_lora_rank(of["query"])
    w.add_kv_lora_rank(of["row"])
    w.add_key_length_mla(of["plain"] + of["turned"])
    w.add_value_length_mla(of["value"])
    w.add_rope_dimension_count(of["turned"])
    w.add_expert_shared_count(1)
    w.add_expert_weights_scale(1.8)
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_group_count(1)
    w.add_expert_group_used_count(1)


FAMILY_WORDS = {"gpt-oss": add_gpt_oss_words, "qwen35moe": add_delta_words, "deepseek2": add_latent_words}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--shape", choices=SHAPES, default="qwen3")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--type", choices=["Q4_K", "Q8_0"], default="Q8_0")
    a = p.parse_args()
    of = SHAPES[a.shape]
    w = gguf.GGUFWriter(a.file, of["architecture"])
    add_sizes(w, of | {"ffn": of.get("dense", of["ffn"])}, a.layers, CONTEXT)
    w.add_expert_feed_forward_length(of["ffn"])
    w.add_expert_count(of["experts"])
    w.add_expert_used_count(of["used"])
    w.add_key_length(of["head"])
    w.add_value_length(of.get("row", of["head"]))
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e6)
    if of["architecture"] in FAMILY_WORDS:
        FAMILY_WORDS[of["architecture"]](w, of)
    add_words(w)
    kind = gguf.GGMLQuantizationType[a.type]
    add_tensors(w, of, a.layers, kind, gguf.GGMLQuantizationType.MXFP4 if of["architecture"] == "gpt-oss" else kind)
    write_file(w)


if __name__ == "__main__":
    main()
