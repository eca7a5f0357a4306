#!/usr/bin/env python3
"""A GGUF file of random weights in the shape of a small Llama (245 M parameters), in Q8_0, for races that compare servers.

    random_gguf.py FILE

Speed does not depend on the numbers. All matrices of one shape hold the same random block. Needs the package gguf."""
import argparse

import gguf
import numpy as np

LAYERS, D, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 16, 1024, 16, 4, 2816, 32000, 4096


def shapes():
    """Names to (rows, columns); vectors have one number and stay f32."""
    kv = D // HEADS * KV_HEADS
    layer = {"attn_norm": D, "attn_q": (D, D), "attn_k": (kv, D), "attn_v": (kv, D), "attn_output": (D, D),
             "ffn_norm": D, "ffn_gate": (FFN, D), "ffn_up": (FFN, D), "ffn_down": (D, FFN)}
    all_layers = {f"blk.{i}.{name}.weight": shape for i in range(LAYERS) for name, shape in layer.items()}
    return {"token_embd.weight": (VOCAB, D), **all_layers, "output_norm.weight": D, "output.weight": (VOCAB, D)}


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


def add_tensors(w):
    q8, random, blocks = gguf.GGMLQuantizationType.Q8_0, np.random.default_rng(1), {}
    for name, shape in shapes().items():
        if isinstance(shape, int):
            w.add_tensor(name, np.ones(shape, np.float32))
            continue
        if shape not in blocks:
            blocks[shape] = gguf.quants.quantize(random.standard_normal(shape, dtype=np.float32) * 0.02, q8)
        w.add_tensor(name, blocks[shape], raw_dtype=q8)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    w = gguf.GGUFWriter(p.parse_args().file, "llama")
    w.add_block_count(LAYERS)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(D)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_vocab_size(VOCAB)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(D // HEADS)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    add_words(w)
    add_tensors(w)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
