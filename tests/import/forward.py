"""Retro as NVIDIA published it, computed by NumPy in float64 from the tensors of a folder: LayerNorm with a stored gamma - 1,
RoPE on the first half of each head, gated SiLU, no biases, untied, a gate, the encoder's residual before its norm.
Written from docs/spec/retro-model.md (5, 6, 10), with nothing of the server's code."""
import json

import numpy as np


class Retro:
    def __init__(self, tensors, layers, heads, cross, m, gate):
        self.tensors = {name: t.array.astype(np.float64) for name, t in tensors.items()}
        self.layers, self.heads, self.cross, self.m, self.gate = layers, heads, cross, m, gate

    def norm(self, x, name, joined="."):
        weight, bias = (self.tensors[f"{name}{joined}{end}"] for end in ("weight", "bias"))
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * (1 + weight) + bias

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T

    def split(self, x, parts):
        """[n, heads * parts * h] -> parts of [heads, n, h]; a head's parts lie beside one another."""
        return x.reshape(len(x), self.heads, parts, -1).transpose(2, 1, 0, 3)

    @staticmethod
    def turn(x):
        """The first half of the dimensions, of which i and i + half turn together."""
        n, h = x.shape[-2:]
        half = h // 4
        angle = np.arange(n)[:, None] / 10000 ** (np.arange(half) / half)
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    @staticmethod
    def attend(q, k, v, mask=None):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = weights / weights.sum(-1, keepdims=True) @ v
        return out.transpose(1, 0, 2).reshape(out.shape[1], -1)

    def self_attention(self, x, prefix, causal):
        q, k, v = self.split(self.linear(self.norm(x, prefix + "self_attention.linear_qkv.layer_norm", "_"),
                                         prefix + "self_attention.linear_qkv"), 3)
        mask = np.tril(np.ones((len(x), len(x)), bool)) if causal else None
        if causal:
            q, k = self.turn(q), self.turn(k)
        return x + self.linear(self.attend(q, k, v, mask), prefix + "self_attention.linear_proj")

    def cross_attention(self, x, source, prefix):
        prefix += "cross_attention.attn."
        q, = self.split(self.linear(x, prefix + "linear_q"), 1)
        k, v = self.split(self.linear(source, prefix + "linear_kv"), 2)
        return self.linear(self.attend(q, k, v), prefix + "linear_proj")

    def mlp(self, x, prefix, norm):
        gate, up = np.split(self.linear(self.norm(x, prefix + norm[0], norm[1]), prefix + "mlp.linear_fc1"), 2, -1)
        return x + self.linear(gate / (1 + np.exp(-gate)) * up, prefix + "mlp.linear_fc2")

    FUSED = ("mlp.linear_fc1.layer_norm", "_")

    def encode(self, neighbor, chunk):
        prefix = f"decoder.layers.{self.cross[0]}.cross_attention.encoder.layers."
        x = self.self_attention(self.tensors["embedding.word_embeddings.weight"][neighbor], prefix + "0.", False)
        x = x + self.cross_attention(self.norm(x, prefix + "0.pre_cross_attn_layernorm"), chunk, prefix + "0.")
        x = self.mlp(x, prefix + "0.", ("pre_mlp_layernorm.norm", "."))
        return self.mlp(self.self_attention(x, prefix + "1.", False), prefix + "1.", self.FUSED)

    def read_neighbors(self, y, i, neighbors, encoded):
        """The rows of chunk j and the first of the zero rows of a short one; from its last row on, its neighbours count."""
        prefix, n, first = f"decoder.layers.{i}.", len(y), len(y) % self.m or self.m
        x = self.norm(y, prefix + "pre_cross_attn_layernorm")
        ends = range(first, n + 1, self.m)
        if not encoded:
            for j, end in enumerate(ends):
                chunk = x[max(0, end - self.m):end]
                chunk = np.concatenate([chunk, np.zeros((self.m - len(chunk), x.shape[1]))])
                encoded.append(np.concatenate([self.encode(one, chunk) for one in neighbors[j]]))
        out = y.copy()
        for p in range(first - 1, n):
            j = (p + 1 - first) // self.m
            out[p] += self.gate * self.cross_attention(x[p:p + 1], encoded[j], prefix)[0]
        return out

    def logits(self, tokens, neighbors):
        x, encoded = self.tensors["embedding.word_embeddings.weight"][tokens], []
        for i in range(self.layers):
            prefix = f"decoder.layers.{i}."
            x = self.self_attention(x, prefix, True)
            if i in self.cross:
                x = self.read_neighbors(x, i, neighbors, encoded)
            x = self.mlp(x, prefix, self.FUSED)
        return self.norm(x, "decoder.final_layernorm") @ self.tensors["output_layer.weight"].T


def write_cases(path, arrays):
    """A safetensors file."""
    names = {np.dtype("<i4"): "I32", np.dtype("<f4"): "F32"}
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in arrays.values()))
