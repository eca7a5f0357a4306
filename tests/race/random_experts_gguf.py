#!/usr/bin/env python3
"""A GGUF file of random weights in the shape of a model with experts, cut to some layers, for races.

    random_experts_gguf.py FILE --shape qwen3 --type Q4_K      Qwen3-30B-A3B: 8 of 128 experts
    random_experts_gguf.py FILE --shape gpt-oss                gpt-oss-20b: 4 of 32 experts in MXFP4, all else in Q8_0

Speed depends on which experts are chosen, and not on their numbers: the router is random, the matrices of one shape hold the
same random block. Needs the package gguf."""
import argparse

import gguf
import numpy as np

from random_gguf import VOCAB, add_sizes, add_words, random_matrix, write_file

CONTEXT = 16384
SHAPES = {"qwen3": {"architecture": "qwen3moe", "d": 2048, "heads": 32, "kv_heads": 4, "head": 128, "ffn": 768, "experts": 128, "used": 8},
          "gpt-oss": {"architecture": "gpt-oss", "d": 2880, "heads": 64, "kv_heads": 8, "head": 64, "ffn": 2880, "experts": 32, "used": 4}}
MXFP4_EXPONENT = 118  # of a block's scale: 2^(118 - 127)


def layer_shapes(of):
    """Names to (rows, columns), of experts (experts, rows, columns); vectors have one number."""
    d, ffn, n, q, kv = of["d"], of["ffn"], of["experts"], of["heads"] * of["head"], of["kv_heads"] * of["head"]
    shapes = {"attn_norm.weight": d, "attn_q.weight": (q, d), "attn_k.weight": (kv, d), "attn_v.weight": (kv, d), "attn_output.weight": (d, q),
              "ffn_gate_inp.weight": (n, d), "ffn_gate_exps.weight": (n, ffn, d), "ffn_up_exps.weight": (n, ffn, d),
              "ffn_down_exps.weight": (n, d, ffn)}
    if of["architecture"] == "qwen3moe":
        return shapes | {"attn_q_norm.weight": of["head"], "attn_k_norm.weight": of["head"], "ffn_norm.weight": d}
    return shapes | {"post_attention_norm.weight": d, "attn_sinks.weight": of["heads"], "attn_q.bias": q, "attn_k.bias": kv, "attn_v.bias": kv,
                     "attn_output.bias": d, "ffn_gate_inp.bias": n, "ffn_gate_exps.bias": (n, ffn), "ffn_up_exps.bias": (n, ffn),
                     "ffn_down_exps.bias": (n, d)}


def random_experts(random, shape, kind):
    """Bytes [experts, rows, bytes of a row]: every expert is the same matrix."""
    if kind == gguf.GGMLQuantizationType.MXFP4:
        blocks = random.integers(0, 256, (shape[1], shape[2] // 32, 17), np.uint8)
        blocks[:, :, 0] = MXFP4_EXPONENT
        matrix = blocks.reshape(shape[1], -1)
    else:
        matrix = random_matrix(random, shape[1:], kind)
    return np.broadcast_to(matrix, (shape[0], *matrix.shape))


def add_tensors(w, of, layers, kind, experts_kind):
    random, blocks = np.random.default_rng(1), {}

    def add(name, shape):
        if isinstance(shape, int) or name.endswith("bias"):
            w.add_tensor(name, np.full(shape, 0 if name.endswith("bias") else 1, np.float32))
        elif "gate_inp" in name:
            w.add_tensor(name, random.standard_normal(shape, dtype=np.float32))
        else:
            experts = len(shape) == 3
            if shape not in blocks:
                blocks[shape] = random_experts(random, shape, experts_kind) if experts else random_matrix(random, shape, kind)
            w.add_tensor(name, blocks[shape], raw_dtype=experts_kind if experts else kind)

    add("token_embd.weight", (VOCAB, of["d"]))
    for i in range(layers):
        for name, shape in layer_shapes(of).items():
            add(f"blk.{i}.{name}", shape)
    add("output_norm.weight", of["d"])
    add("output.weight", (VOCAB, of["d"]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--shape", choices=SHAPES, default="qwen3")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--type", choices=["Q4_K", "Q8_0"], default="Q8_0")
    a = p.parse_args()
    of = SHAPES[a.shape]
    w = gguf.GGUFWriter(a.file, of["architecture"])
    add_sizes(w, of, a.layers, CONTEXT)
    w.add_expert_feed_forward_length(of["ffn"])
    w.add_expert_count(of["experts"])
    w.add_expert_used_count(of["used"])
    w.add_key_length(of["head"])
    w.add_value_length(of["head"])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e6)
    if of["architecture"] == "gpt-oss":
        w.add_sliding_window(128)
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(32.0)
        w.add_rope_scaling_orig_ctx_len(4096)
    add_words(w)
    kind = gguf.GGMLQuantizationType[a.type]
    add_tensors(w, of, a.layers, kind, gguf.GGMLQuantizationType.MXFP4 if of["architecture"] == "gpt-oss" else kind)
    write_file(w)


if __name__ == "__main__":
    main()
