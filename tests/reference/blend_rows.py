#!/usr/bin/env python3
"""Keys and values of passages that were computed alone, joined to a prompt, against computing the prompt (docs/prefixes.md).

    python tests/reference/blend_rows.py docs/*.md

The model, that which ships or --model, without retrieval, reads four passages of 128 tokens in another order than they have in the text, then
32 tokens that come before the answer, and the answer: 64 tokens of the text. Rows of a passage are computed alone, and a
share of them again in the prompt, as CacheBlend (arXiv 2405.16444) chooses them: the first layer of all rows, then the rows
whose keys and values in the second layer differ most from those computed alone; or in every layer the first 16 rows of each
passage, as EPIC (arXiv 2410.15332) does.

    turned the keys are turned by RoPE to the place of their passage in the prompt
    place  the passage alone had the positions that it has in the prompt: models with learned positions, which cannot be turned
    first  it had the first positions: the same models

    nats   of a token of the answer, in the mean
    loss   of what the passages gain, lost; with the 95 % interval by bootstrap over the documents
    other  share of the answer's tokens whose most likely token is another one than when all is computed
    work   rows of passages and question that are computed in a layer, in the mean, of all

Needs torch, tokenizers, safetensors and NumPy."""
import argparse
import json
import pathlib
import random

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSAGES, LENGTH, QUESTION, ANSWER = 4, 128, 32, 64
BEFORE = PASSAGES * LENGTH
SHARES = (0, 0.05, 0.10, 0.15, 0.20, 0.30, 0.50)
FIRST = 16  # rows of a passage, in EPIC's way
COMPUTED = {"activation": "gelu_tanh", "normalization": "LayerNorm", "rotary_percent": 1.0, "rotary_interleaved": False,
            "layernorm_zero_centered_gamma": False, "add_bias_linear": True, "tie_word_embeddings": True}


class Decoder:
    """docs/spec/retro-model.md 4, without neighbours: pre-norm layers with learned positions or RoPE. Keys are kept as they are
    before RoPE turns them, and turned where they are read."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        others = {key: self.config[key] for key, value in COMPUTED.items() if self.config.get(key, value) != value}
        if others or self.config.get("num_query_groups", self.config["num_attention_heads"]) != self.config["num_attention_heads"]:
            raise SystemExit(f"{folder}/config.json: expected {COMPUTED} and no shared key/value heads, found {others}")
        self.rope = self.config["position_embedding_type"] == "rope"
        self.heads = self.config["num_attention_heads"]
        self.weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
        self.layers = self.config["num_layers"]

    def linear(self, x, name):
        return torch.nn.functional.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weights[name + "weight"], self.weights[name + "bias"])

    def embed(self, ids, positions):
        words = self.weights["embedding.word_embeddings.weight"][ids]
        return words if self.rope else words + self.weights["embedding.position_embeddings.weight"][positions]

    def turn(self, x, positions):
        """RoPE of x [rows, heads, h]."""
        if not self.rope:
            return x
        width = x.shape[-1]
        angle = torch.outer(positions.double(), self.config["rotary_base"] ** -(torch.arange(0, width, 2).double() / width))
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def project(self, x, i):
        """Queries, keys and values [rows, heads, h]; a head's three parts lie behind each other."""
        layer = f"decoder.layers.{i}.self_attention.linear_qkv"
        qkv = self.linear(self.norm(x, layer + ".layer_norm_"), layer)
        return qkv.view(len(x), self.heads, 3, -1).unbind(2)

    def finish(self, x, i, q, k, v, rows):
        """The layer's output for rows that have these numbers; keys and values are of all rows."""
        layer = f"decoder.layers.{i}."
        places = torch.arange(len(k))
        allowed, q, k = places[None] <= rows[:, None], self.turn(q, rows), self.turn(k, places)
        mixed = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)), attn_mask=allowed)
        x = x + self.linear(mixed.transpose(0, 1).flatten(1), layer + "self_attention.linear_proj")
        wide = self.linear(self.norm(x, layer + "mlp.linear_fc1.layer_norm_"), layer + "mlp.linear_fc1")
        return x + self.linear(torch.nn.functional.gelu(wide, approximate="tanh"), layer + "mlp.linear_fc2")

    def rows_alone(self, ids, positions):
        """Keys and values of each layer."""
        x, kept = self.embed(ids, positions), []
        for i in range(self.layers):
            q, k, v = self.project(x, i)
            kept.append((k, v))
            x = self.finish(x, i, q, k, v, torch.arange(len(ids)))
        return kept

    def logits(self, x):
        return self.norm(x, "decoder.final_layernorm.") @ self.weights["embedding.word_embeddings.weight"].T


def exact(model, ids):
    rows = torch.arange(len(ids))
    x = model.embed(ids, rows)
    for i in range(model.layers):
        x = model.finish(x, i, *model.project(x, i), rows)
    return model.logits(x[-ANSWER - 1:-1])


def blended(model, ids, kept, share=0, first=0):
    """Logits, and how many rows before the answer were computed in a layer, in the mean. Computed again are a share of the rows
    of passages, or the first ones of each passage."""
    rows, computed = torch.arange(len(ids)), 0
    if share == 0:
        rows = rows[(rows >= BEFORE) | (rows % LENGTH < first)]
    x = model.embed(ids[rows], rows)
    for i in range(model.layers):
        q, k, v = model.project(x, i)
        old_k, old_v = kept[i]
        if i == 1 and share > 0:
            difference = (k[:BEFORE] - old_k).square().sum((1, 2)) + (v[:BEFORE] - old_v).square().sum((1, 2))
            chosen = difference.topk(round(share * BEFORE)).indices.sort().values
            picked = torch.cat([chosen, torch.arange(BEFORE, len(ids))])
            rows, x, q, k, v = rows[picked], x[picked], q[picked], k[picked], v[picked]
        all_k, all_v = (torch.cat([old, old.new_zeros(len(ids) - BEFORE, *old.shape[1:])]) for old in (old_k, old_v))
        all_k[rows], all_v[rows] = k, v
        x = model.finish(x, i, q, all_k, all_v, rows)
        computed += len(rows) - ANSWER
    return model.logits(x[-ANSWER - 1:-1]), computed / model.layers


def join(model, passages, placed):
    """Rows of passages computed alone, behind each other."""
    parts = [model.rows_alone(ids, torch.arange(LENGTH) + (j * LENGTH if placed else 0)) for j, ids in enumerate(passages)]
    return [tuple(torch.cat([part[i][kind] for part in parts]) for kind in (0, 1)) for i in range(model.layers)]


def windows(tokenizer, paths, most):
    """(document, passages in another order, question and answer)."""
    draw, size = random.Random(1), BEFORE + QUESTION + ANSWER
    for number, path in enumerate(paths):
        ids = torch.tensor(tokenizer.encode(pathlib.Path(path).read_text()).ids)
        starts = range(0, len(ids) - size, size)
        for start in draw.sample(starts, min(most, len(starts))):
            passages = list(ids[start:start + BEFORE].split(LENGTH))
            order = list(range(PASSAGES))
            while order == sorted(order):
                draw.shuffle(order)
            yield number, [passages[j] for j in order], ids[start + BEFORE:start + size]


def measure(model, found):
    """{way: one (nats, other, work) for each window}."""
    ways = {}
    for _, passages, end in found:
        prompt = torch.cat([*passages, end])
        wanted, whole = end[-ANSWER:], exact(model, prompt)
        told = {"no passages": (exact(model, end), QUESTION), "exact": (whole, BEFORE + QUESTION)}
        for name, placed in (("turned", False),) if model.rope else (("place", True), ("first", False)):
            kept = join(model, passages, placed)
            told.update({f"{name}, {share:.0%}": blended(model, prompt, kept, share) for share in SHARES})
            told[f"{name}, first {FIRST}"] = blended(model, prompt, kept, first=FIRST)
        for way, (logits, rows) in told.items():
            nats = torch.nn.functional.cross_entropy(logits, wanted).item()
            other = (logits.argmax(-1) != whole.argmax(-1)).float().mean().item()
            ways.setdefault(way, []).append((nats, other, rows / (BEFORE + QUESTION)))
    return {way: np.array(values) for way, values in ways.items()}


def interval(ways, way, documents):
    """Loss, and its 95 % interval."""
    draw, numbers, losses = np.random.default_rng(1), np.unique(documents), []
    none, whole, of = (ways[name][:, 0] for name in ("no passages", "exact", way))
    for _ in range(2000):
        picked = np.concatenate([np.flatnonzero(documents == i) for i in draw.choice(numbers, len(numbers))])
        losses.append((of - whole)[picked].mean() / (none - whole)[picked].mean())
    return (of - whole).mean() / (none - whole).mean(), *np.percentile(losses, (2.5, 97.5))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("documents", nargs="+")
    p.add_argument("--model", type=pathlib.Path, default=ROOT / "models/retro-docs")
    p.add_argument("--windows", type=int, default=4, help="of a document, at most")
    a = p.parse_args()
    model, tokenizer = Decoder(a.model), Tokenizer.from_file(str(a.model / "tokenizer.json"))
    found = list(windows(tokenizer, a.documents, a.windows))
    documents = np.array([number for number, _, _ in found])
    with torch.inference_mode():
        ways = measure(model, found)
    print(f"{len(found)} answers of {len(set(documents))} documents")
    print("| way | nats | loss | other | work |\n|---|---|---|---|---|")
    for way, values in ways.items():
        nats, other, work = values.mean(0)
        loss, low, high = interval(ways, way, documents)
        print(f"| {way} | {nats:.4f} | {100 * loss:.0f} % ({100 * low:.0f} .. {100 * high:.0f}) | {100 * other:.1f} % | {work:.2f} |")


if __name__ == "__main__":
    main()
