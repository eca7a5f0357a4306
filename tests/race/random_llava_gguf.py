#!/usr/bin/env python3
"""LLaVA in the shape of tools/shapes/llava-1b with random weights, as llama.cpp reads it: two GGUF files, in bf16 and f16.

    random_llava_gguf.py FOLDER [--tower f16|bf16]

FOLDER gets llm.gguf (22 layers of 2048, 1.26 G parameters) and mmproj.gguf (CLIP's ViT-L/14 of 336 pixels without its
last layer, and the projector). Speed does not depend on the numbers. Needs the package gguf."""
import argparse
import pathlib

import gguf
import numpy as np
import random_gguf

LAYERS, D, HEADS, FFN, CONTEXT = 22, 2048, 32, 5632, 2048
TOWER = {"layers": 23, "width": 1024, "heads": 16, "ffn": 4096, "patch": 14, "image": 336}
BF16, F16 = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F16


class Writer(gguf.GGUFWriter):
    """Matrices of one shape hold the same random block; vectors are f32."""

    def __init__(self, path, architecture, kind):
        super().__init__(path, architecture)
        self.kind, self.random, self.blocks = kind, np.random.default_rng(1), {}

    def matrix(self, name, *shape):
        if shape not in self.blocks:
            values = self.random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
            self.blocks[shape] = gguf.quants.quantize(values, self.kind)
        self.add_tensor(name, self.blocks[shape], raw_dtype=self.kind)

    def vector(self, name, n, value=0.0):
        self.add_tensor(name, np.full(n, value, np.float32))

    def finish(self):
        self.write_header_to_file()
        self.write_kv_data_to_file()
        self.write_tensors_to_file()
        self.close()


def write_decoder(path):
    w = Writer(path, "llama", BF16)
    w.add_block_count(LAYERS)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(D)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(HEADS)
    w.add_vocab_size(random_gguf.VOCAB)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(D // HEADS)
    random_gguf.add_words(w)
    w.matrix("token_embd.weight", random_gguf.VOCAB, D)
    for i in range(LAYERS):
        at = f"blk.{i}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            w.matrix(f"{at}{name}.weight", D, D)
        for name in ("ffn_gate", "ffn_up"):
            w.matrix(f"{at}{name}.weight", FFN, D)
        w.matrix(f"{at}ffn_down.weight", D, FFN)
        for name in ("attn_norm", "ffn_norm"):
            w.vector(f"{at}{name}.weight", D, 1)
    w.vector("output_norm.weight", D, 1)
    w.matrix("output.weight", random_gguf.VOCAB, D)
    w.finish()


def add_tower_keys(w):
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.use_gelu", False)
    for name, value in (("image_size", "image"), ("patch_size", "patch"), ("embedding_length", "width"),
                        ("feed_forward_length", "ffn"), ("attention.head_count", "heads"), ("block_count", "layers")):
        w.add_uint32(f"clip.vision.{name}", TOWER[value])
    w.add_uint32("clip.vision.projection_dim", 768)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    w.add_array("clip.vision.image_mean", [0.48145466, 0.4578275, 0.40821073])
    w.add_array("clip.vision.image_std", [0.26862954, 0.26130258, 0.27577711])


def write_tower(path, kind):
    w = Writer(path, "clip", kind)
    width, ffn = TOWER["width"], TOWER["ffn"]
    rows = (TOWER["image"] // TOWER["patch"]) ** 2 + 1
    add_tower_keys(w)
    w.vector("v.class_embd", width)
    values = w.random.standard_normal((width, 3, TOWER["patch"], TOWER["patch"]), dtype=np.float32)
    w.add_tensor("v.patch_embd.weight", (values * np.float32(0.02)).astype(np.float16))
    w.add_tensor("v.position_embd.weight", w.random.standard_normal((rows, width), dtype=np.float32))
    w.vector("v.pre_ln.weight", width, 1)
    w.vector("v.pre_ln.bias", width)
    for i in range(TOWER["layers"]):
        at = f"v.blk.{i}."
        for name, out, columns in (("attn_q", width, width), ("attn_k", width, width), ("attn_v", width, width),
                                   ("attn_out", width, width), ("ffn_up", ffn, width), ("ffn_down", width, ffn)):
            w.matrix(f"{at}{name}.weight", out, columns)
            w.vector(f"{at}{name}.bias", out)
        for name in ("ln1", "ln2"):
            w.vector(f"{at}{name}.weight", width, 1)
            w.vector(f"{at}{name}.bias", width)
    for name, columns in (("mm.0", width), ("mm.2", D)):
        w.matrix(name + ".weight", D, columns)
        w.vector(name + ".bias", D)
    w.finish()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--tower", choices=["f16", "bf16"], default="f16", help="type of the tower's matrices")
    a = p.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    write_decoder(a.folder / "llm.gguf")
    write_tower(a.folder / "mmproj.gguf", {"f16": F16, "bf16": BF16}[a.tower])


if __name__ == "__main__":
    main()
