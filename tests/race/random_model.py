#!/usr/bin/env python3
"""Random weights in shape m (22 layers of 2048, 1.26 G parameters), as a model folder of ours or as calm's file.

    random_model.py ours FOLDER                 config.json, tokenizer.json, model.safetensors in bf16
    random_model.py calm FILE --dtype fp16|fp8  one safetensors file with calm's names and metadata

Speed does not depend on the numbers. Every matrix of one shape holds the same random block, at its own place in the
file. retro-convert makes the other types of ours. Needs NumPy.
"""
import argparse
import json
import pathlib
import struct

import numpy as np

LAYERS, D, HEADS, FFN, VOCAB, CONTEXT = 22, 2048, 32, 5632, 32000, 4096
CONFIG = {
    "architecture": "gpt", "num_layers": LAYERS, "hidden_size": D, "num_attention_heads": HEADS,
    "ffn_hidden_size": FFN, "vocab_size": VOCAB, "max_position_embeddings": CONTEXT,
    "position_embedding_type": "rope", "normalization": "RMSNorm", "activation": "swiglu",
    "add_bias_linear": False, "tie_word_embeddings": False, "eod_token_id": 0,
}
ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E5M2": 1, "U8": 1}


def write_safetensors(path, tensors, metadata=None):
    """tensors: (name, dtype, shape, function that returns the bytes). One is held in memory at a time."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, _ in tensors:
        size = int(np.prod(shape)) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, data in tensors:
            raw = data()
            start, end = header[name]["data_offsets"]
            assert len(raw) == end - start, name
            out.write(raw)


def encode(values, dtype):
    """f32 to the bytes of a narrower type. bf16 is the upper half of f32 and e5m2 that of f16, cut off."""
    if dtype == "F32":
        return values.tobytes()
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    half = values.astype(np.float16)
    return half.tobytes() if dtype == "F16" else (half.view(np.uint16) >> 8).astype(np.uint8).tobytes()


class Weights:
    """Tensors of one dtype: matrices are random, norms are ones and stay f32."""

    def __init__(self, dtype):
        self.dtype, self.blocks, self.random = dtype, {}, np.random.default_rng(1)

    def block(self, shape):
        if shape not in self.blocks:
            self.blocks[shape] = encode(self.random.standard_normal(shape, dtype=np.float32) * 0.02, self.dtype)
        return self.blocks[shape]

    def matrix(self, name, rows, columns):
        return name, self.dtype, (rows, columns), lambda: self.block((rows, columns))

    def norm(self, name, dtype="F32"):
        return name, dtype, (D,), lambda: encode(np.ones(D, np.float32), dtype)


def our_tensors():
    w = Weights("BF16")
    yield w.matrix("embedding.word_embeddings.weight", VOCAB, D)
    for i in range(LAYERS):
        layer = f"decoder.layers.{i}."
        yield w.norm(layer + "self_attention.linear_qkv.layer_norm_weight", "BF16")
        yield w.matrix(layer + "self_attention.linear_qkv.weight", 3 * D, D)
        yield w.matrix(layer + "self_attention.linear_proj.weight", D, D)
        yield w.norm(layer + "mlp.linear_fc1.layer_norm_weight", "BF16")
        yield w.matrix(layer + "mlp.linear_fc1.weight", 2 * FFN, D)
        yield w.matrix(layer + "mlp.linear_fc2.weight", D, FFN)
    yield w.norm("decoder.final_layernorm.weight", "BF16")
    yield w.matrix("output_layer.weight", VOCAB, D)


def our_tokenizer():
    """Byte-level BPE without merges: an end of text, the 256 bytes, and made-up words for the rest of the ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    pieces = ["<|endoftext|>", *map(chr, printable), *(chr(256 + i) for i in range(len(others)))]
    pieces += [f"\u0120w{i}" for i in range(VOCAB - len(pieces))]
    bytes_as_text = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 0, "content": pieces[0], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
            "pre_tokenizer": bytes_as_text, "post_processor": None, "decoder": bytes_as_text, "model": model}


def write_ours(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(our_tokenizer(), ensure_ascii=False))
    write_safetensors(folder / "model.safetensors", list(our_tensors()))


def calm_tensors(dtype):
    w = Weights({"fp16": "F16", "fp8": "F8_E5M2"}[dtype])
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    text = b"".join(word.encode() + b"\0" for word in words + [f" w{i}" for i in range(VOCAB - len(words))])
    yield w.matrix("model.embed.weight", VOCAB, D)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield w.norm(layer + "attn.norm.weight")
        for name in ("wq", "wk", "wv", "wo"):
            yield w.matrix(f"{layer}attn.{name}.weight", D, D)
        yield w.norm(layer + "mlp.norm.weight")
        yield w.matrix(layer + "mlp.w1.weight", FFN, D)
        yield w.matrix(layer + "mlp.w2.weight", D, FFN)
        yield w.matrix(layer + "mlp.w3.weight", FFN, D)
    yield w.norm("model.norm.weight")
    yield w.matrix("model.output.weight", VOCAB, D)
    yield "tokenizer.scores", "F32", (VOCAB,), lambda: bytes(4 * VOCAB)
    yield "tokenizer.tokens", "U8", (len(text),), lambda: text  # last: its odd length would misalign the others


def write_calm(path, dtype):
    """No end of text, so that every run writes as many tokens as it is asked for."""
    numbers = {"dim": D, "hidden_dim": FFN, "head_dim": D // HEADS, "n_layers": LAYERS, "n_heads": HEADS,
               "n_kv_heads": HEADS, "vocab_size": VOCAB, "max_seq_len": CONTEXT, "bos_token_id": 1, "eos_token_id": -1,
               "rope_theta": 10000.0, "rotary_dim": D // HEADS, "norm_eps": 1e-5}
    words = {"arch": "llama", "dtype": dtype, "norm_type": "rmsnorm", "act_type": "silu"}
    write_safetensors(path, list(calm_tensors(dtype)), {**words, **{k: str(v) for k, v in numbers.items()}})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=["ours", "calm"])
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--dtype", choices=["fp16", "fp8"], default="fp16", help="of calm's weights")
    a = p.parse_args()
    if a.out.exists():
        raise SystemExit(f"{a.out} is there already")
    if a.kind == "ours":
        write_ours(a.out)
    else:
        write_calm(a.out, a.dtype)


if __name__ == "__main__":
    main()
