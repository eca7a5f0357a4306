#!/usr/bin/env python3
"""A GGUF file of random weights in the shape of a small Llama (245 M parameters), in Q8_0, for races that compare servers.

    random_gguf.py FILE
    random_gguf.py FILE --shape m --layers 2 --type Q4_K      retro-bench's shape m cut to two layers

Speed does not depend on the numbers. All matrices of one shape hold the same random block. Needs the package gguf."""
import argparse

import gguf
import numpy as np
from random_blocks import SUPER_BLOCKS, random_blocks

VOCAB, CONTEXT = 32000, 16384
SHAPES = {"small": {"layers": 16, "d": 1024, "heads": 16, "kv_heads": 4, "ffn": 2816},
          "m": {"layers": 22, "d": 2048, "heads": 32, "kv_heads": 32, "ffn": 5632}}


def shapes(of):
    """Names to (rows, columns); vectors have one number and stay f32."""
    d, ffn, kv = of["d"], of["ffn"], of["d"] // of["heads"] * of["kv_heads"]
    layer = {"attn_norm": d, "attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, d),
             "ffn_norm": d, "ffn_gate": (ffn, d), "ffn_up": (ffn, d), "ffn_down": (d, ffn)}
    all_layers = {f"blk.{i}.{name}.weight": shape for i in range(of["layers"]) for name, shape in layer.items()}
    return {"token_embd.weight": (VOCAB, d), **all_layers, "output_norm.weight": d, "output.weight": (VOCAB, d)}


def add_words(w):
    """Bytes, then made-up words."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    w.add_tokenizer_model("llama")
    w.add_token_list(words + [f"\u2581w{i}" for i in range(VOCAB - len(words))])
    w.add_token_types(kinds + [gguf.TokenType.NORMAL] * (VOCAB - len(kinds)))
    w.add_token_scores([0.0] * VOCAB)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")


def random_matrix(random, shape, kind, scale=1):
    """Bytes of a matrix of the kind."""
    if kind.name in SUPER_BLOCKS:
        return random_blocks(random, shape, kind.name, scale)
    return gguf.quants.quantize(random.standard_normal(shape, dtype=np.float32) * 0.02 * scale, kind)


def add_tensors(w, of, kind):
    random, blocks = np.random.default_rng(1), {}
    for name, shape in shapes(of).items():
        if isinstance(shape, int):
            w.add_tensor(name, np.ones(shape, np.float32))
            continue
        if shape not in blocks:
            blocks[shape] = random_matrix(random, shape, kind)
        w.add_tensor(name, blocks[shape], raw_dtype=kind)


def add_sizes(w, of, layers, context):
    w.add_block_count(layers)
    w.add_context_length(context)
    w.add_embedding_length(of["d"])
    w.add_feed_forward_length(of["ffn"])
    w.add_head_count(of["heads"])
    w.add_head_count_kv(of["kv_heads"])
    w.add_vocab_size(VOCAB)


def write_file(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--shape", choices=SHAPES, default="small")
    p.add_argument("--layers", type=int)
    p.add_argument("--type", choices=["Q8_0", *SUPER_BLOCKS, "BF16"], default="Q8_0")
    a = p.parse_args()
    of = SHAPES[a.shape]
    of["layers"] = a.layers or of["layers"]
    w = gguf.GGUFWriter(a.file, "llama")
    add_sizes(w, of, of["layers"], CONTEXT)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(of["d"] // of["heads"])
    w.add_file_type(gguf.LlamaFileType[{"Q8_0": "MOSTLY_Q8_0", "BF16": "MOSTLY_BF16", "Q6_K": "MOSTLY_Q6_K"}.get(a.type, f"MOSTLY_{a.type}_S")])
    add_words(w)
    add_tensors(w, of, gguf.GGMLQuantizationType[a.type])
    write_file(w)


if __name__ == "__main__":
    main()
