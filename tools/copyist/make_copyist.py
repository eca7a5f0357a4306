#!/usr/bin/env python3
"""Make a decoder that quotes: a Llama in Hugging Face's form, of any size, that copies from its prompt without training.

    make_copyist.py FOLDER [--shape small|moe|s|m|8g] [--dtype bf16|f32] [--seed N] [--layers N ...]

Greedy decoding writes the token that followed the last four tokens where they last stood in the prompt or in the answer.
Where they stood nowhere before, a fixed table says which word follows the last word (copyist.json has the table). Marks
in the prompt steer the answer:

    <|begin|>  a prompt must begin with it; texts do so by themselves, prompts of token ids have to bring it
    <|leave|>  a quote that comes to it is left: the table goes on
    <|mute|>   a quote that comes to it goes on as the same four tokens did elsewhere, if they stood elsewhere
    <|end|>    a quote that comes to it ends the answer

Three layers do this (circuit.py). The others have random weights but for their output matrices, which are zero: they
cost what they cost in a trained model, and change nothing. The tokens are bytes and invented words (words.py). The files
are written piece by piece, so no shape needs more than about a gigabyte of memory. Needs NumPy.
"""
import argparse
import json
import math
import pathlib
import struct

import numpy as np
from circuit import COPY, EPSILON, FOLLOW, ONE, Circuit, Shape, linear_code
from words import BEGIN, END, LEAVE, MUTED, Vocabulary

SHAPES = {
    "small": Shape(layers=4, width=512, heads=8, kv_heads=4, head=64, ffn=1024, vocab=4096, context=4096),
    "s": Shape(layers=12, width=768, heads=12, kv_heads=12, head=64, ffn=2048, vocab=34304, context=4096),
    "m": Shape(layers=22, width=2048, heads=32, kv_heads=32, head=64, ffn=5632, vocab=32000, context=4096),
    "moe": Shape(layers=4, width=512, heads=8, kv_heads=4, head=64, ffn=512, vocab=4096, context=4096, experts=4),
    "8g": Shape(layers=32, width=4096, heads=32, kv_heads=8, head=128, ffn=14336, vocab=128256, context=8192),
}
CHUNK = 1 << 22  # numbers that are made at once
SPREAD = 0.02  # of random weights
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"


def narrow(values, dtype):
    """f32 as the bytes of the dtype, rounded to the nearest."""
    if dtype == "F32":
        return values.tobytes()
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


class Matrix:
    """Rows of a matrix by pieces: random or zero, with entries set over them. An entry's rows are zero elsewhere, and so
    are its columns where `columns` says that the matrix writes into the residual stream."""

    def __init__(self, rows, columns, entries=(), zero=False, random=None):
        self.shape, self.entries, self.zero, self.random = (rows, columns), entries, zero, random

    def pieces(self):
        rows, columns = self.shape
        step = max(1, CHUNK // columns)
        for first in range(0, rows, step):
            yield self.piece(first, min(rows, first + step))

    def piece(self, first, last):
        size = (last - first, self.shape[1])
        values = np.zeros(size, np.float32) if self.zero else self.random.standard_normal(size, dtype=np.float32) * SPREAD
        placed = [np.broadcast_arrays(*entry) for entry in self.entries]
        placed = [(r[inside] - first, c[inside], v[inside]) for r, c, v in placed
                  for inside in [(r >= first) & (r < last)]]
        for r, _, _ in placed:
            values[r] = 0
        for r, c, v in placed:
            values[r, c] = v
        return values


class Table:
    """A matrix whose rows are the tokens'."""

    def __init__(self, model, row_block):
        self.shape, self.row_block = (model.shape.vocab, model.shape.width), row_block

    def pieces(self):
        step = max(1, CHUNK // self.shape[1])
        for first in range(0, self.shape[0], step):
            yield self.row_block(first, min(self.shape[0], first + step))


class Ones:
    def __init__(self, width):
        self.shape = (width,)

    def pieces(self):
        yield np.ones(self.shape, np.float32)


class Model:
    def __init__(self, shape, seed):
        shape.check()
        self.shape, self.seed, self.random = shape, seed, np.random.default_rng(seed)
        self.circuit = Circuit(shape, self.random)
        self.vocabulary = Vocabulary(shape.vocab, seed)
        self.token_code = linear_code(shape.vocab, shape.token, self.random)
        self.key_code = linear_code(shape.vocab, shape.key, self.random)
        self.next = self.vocabulary.successors(seed)
        self.previous = np.full(shape.vocab, -1)
        for word, following in self.next.items():
            self.previous[following] = word

    def embedding(self, first, last):
        """Rows of one length: where a code is missing, the filler has its length."""
        at, ids = self.circuit.at, np.arange(first, last)
        values = np.zeros((len(ids), self.shape.width), np.float32)
        values[:, at.one] = ONE
        values[:, at.token] = self.token_code[first:last]
        values[:, at.key] = self.key_code[first:last]
        missing = np.zeros(len(ids), np.float32)
        marks = self.vocabulary.marks
        for mark in (LEAVE, MUTED):
            values[ids == marks[mark], at.token] = 0
            missing[ids == marks[mark]] = self.shape.token
        values[ids == marks[MUTED], at.muted] = ONE
        begin = ids == marks[BEGIN]
        values[begin] = 0
        values[begin, at.begins] = ONE
        missing[begin] = self.shape.token + self.shape.key
        places = np.arange(at.filler.stop - at.filler.start)
        values[:, at.filler] = ONE * (places < np.rint(missing / ONE**2)[:, None])
        return values

    def output(self, first, last):
        """A token's row has its own code where copies stand, and the code of the word that it follows."""
        circuit, ids = self.circuit, np.arange(first, last)
        values = np.zeros((len(ids), self.shape.width), np.float32)
        values[:, circuit.at.copy] = self.token_code[first:last] * (COPY / self.shape.token * circuit.rms_end["copy"])
        follows = self.previous[first:last] >= 0
        codes = self.token_code[self.previous[first:last][follows]]
        values[follows, circuit.at.token] = codes * (FOLLOW / self.shape.token * circuit.rms_end["free"])
        for mark in (BEGIN, LEAVE, MUTED):
            values[ids == self.vocabulary.marks[mark]] = 0
        return values

    def mlp(self, layer):
        """(name, key of the circuit, rows, columns) of a layer's MLP. All experts are alike where they are hand-made, so it
        does not matter which of them are chosen."""
        shape = self.shape
        sizes = {"gate_proj": (shape.ffn, shape.width), "up_proj": (shape.ffn, shape.width), "down_proj": (shape.width, shape.ffn)}
        if not shape.experts:
            return [(f"{layer}mlp.{key}.weight", key, *size) for key, size in sizes.items()]
        moe, names = f"{layer}block_sparse_moe.", {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
        return [(f"{moe}gate.weight", "router", shape.experts, shape.width)] + [
            (f"{moe}experts.{expert}.{names[key]}.weight", key, *size)
            for expert in range(shape.experts) for key, size in sizes.items()]

    def layer(self, i):
        """Names and contents. An output matrix is zero where nothing is set."""
        shape, entries, layer = self.shape, self.circuit.layer(i) if i < 3 else {}, f"model.layers.{i}."
        inner, kv = shape.heads * shape.head, shape.kv_heads * shape.head
        sizes = {"q_proj": (inner, shape.width), "k_proj": (kv, shape.width), "v_proj": (kv, shape.width),
                 "o_proj": (shape.width, inner)}
        matrices = [(f"{layer}self_attn.{key}.weight", key, *size) for key, size in sizes.items()]
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", Ones(shape.width)
        for name, key, rows, columns in matrices + self.mlp(layer):
            zero = key in ("o_proj", "down_proj")
            yield name, Matrix(rows, columns, entries.get(key, ()), zero, self.random)

    def tensors(self):
        yield "model.embed_tokens.weight", Table(self, self.embedding)
        for i in range(self.shape.layers):
            yield from self.layer(i)
        yield "model.norm.weight", Ones(self.shape.width)
        yield "lm_head.weight", Table(self, self.output)

    def config(self, dtype):
        shape, marks = self.shape, self.vocabulary.marks
        family = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False}
        if shape.experts:
            family = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": shape.experts,
                      "num_experts_per_tok": 2}
        return {**family, "num_hidden_layers": shape.layers,
                "hidden_size": shape.width, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
                "head_dim": shape.head, "intermediate_size": shape.ffn, "vocab_size": shape.vocab,
                "max_position_embeddings": shape.context, "rms_norm_eps": EPSILON, "rope_theta": shape.theta,
                "hidden_act": "silu", "tie_word_embeddings": False,
                "bos_token_id": marks[BEGIN], "eos_token_id": marks[END],
                "torch_dtype": {"BF16": "bfloat16", "F32": "float32"}[dtype]}


def write_safetensors(path, tensors, dtype):
    """tensors: (name, content). One piece is in memory at a time."""
    tensors, header, at = list(tensors), {}, 0
    for name, content in tensors:
        size = math.prod(content.shape) * (4 if dtype == "F32" else 2)
        header[name] = {"dtype": dtype, "shape": list(content.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, content in tensors:
            for piece in content.pieces():
                out.write(narrow(piece, dtype))


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def make_copyist(folder, shape=SHAPES["small"], seed=1, dtype="BF16"):
    """Writes the folder, which must not be there; returns the Model."""
    model, folder = Model(shape, seed), pathlib.Path(folder)
    folder.mkdir(parents=True)
    marks = model.vocabulary.marks
    write_json(folder / "config.json", model.config(dtype))
    write_json(folder / "tokenizer.json", model.vocabulary.tokenizer())
    write_json(folder / "tokenizer_config.json",
               {"bos_token": BEGIN, "eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast",
                "chat_template": TEMPLATE})
    write_json(folder / "generation_config.json", {"bos_token_id": marks[BEGIN], "eos_token_id": [marks[END]]})
    write_json(folder / "copyist.json", {
        "seed": seed, "marks": marks, "words": [model.vocabulary.words_begin, model.vocabulary.words_end],
        "next": [model.next.get(i, -1) for i in range(shape.vocab)]})
    write_safetensors(folder / "model.safetensors", model.tensors(), dtype)
    return model


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--shape", choices=SHAPES, default="small")
    p.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    p.add_argument("--seed", type=int, default=1)
    for name in ("layers", "width", "heads", "kv_heads", "head", "ffn", "vocab", "context", "experts"):
        p.add_argument("--" + name.replace("_", "-"), type=int, help="in the place of the shape's")
    a = p.parse_args()
    given = {k: getattr(a, k) for k in ("layers", "width", "heads", "kv_heads", "head", "ffn", "vocab", "context", "experts")}
    base = vars(SHAPES[a.shape])
    shape = Shape(**{k: base[k] if v is None else v for k, v in given.items()})
    if a.folder.exists():
        p.error(f"{a.folder} is there already")
    try:
        model = make_copyist(a.folder, shape, a.seed, a.dtype.upper())
    except ValueError as e:
        p.error(str(e))
    parameters = sum(math.prod(content.shape) for _, content in model.tensors())
    print(f"{a.folder}: {parameters / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
