"""The numbers that random_experts_gguf.py fills matrices with, and the experts that tokens choose by them."""
import os
import pathlib
import subprocess

import numpy as np
import pytest
from random_blocks import NUMBERS, SUPER_BLOCKS, matrix_scale, random_blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
TOKENS, LAYERS = 100, 8  # of 48, in which it is the same
HIDDEN, HEADS, FFN, EXPERTS, USED = 2048, 4096, 768, 128, 8  # Qwen3-30B-A3B; the keys' heads do not matter


def widen(rows, kind):
    """f32 of rows of Q4_K or Q5_K: eight runs of 32 numbers, two of them in each 32 bytes of codes."""
    blocks = rows.reshape(-1, SUPER_BLOCKS[kind][0])
    scale, minimum = (blocks[:, at:at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    packed, codes = blocks[:, 4:16], blocks[:, -128:].reshape(-1, 4, 1, 32)
    scales = np.concatenate([packed[:, :4] & 63, packed[:, 8:] & 15 | packed[:, :4] >> 6 << 4], axis=1)
    minimums = np.concatenate([packed[:, 4:8] & 63, packed[:, 8:] >> 4 | packed[:, 4:8] >> 6 << 4], axis=1)
    numbers = np.concatenate([codes & 15, codes >> 4], axis=2).reshape(-1, 8, 32)
    if kind == "Q5_K":
        fifths = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(8, 1) & 1
        numbers = numbers | fifths << 4
    values = (scale * scales)[:, :, None] * numbers - (minimum * minimums)[:, :, None]
    return values.reshape(rows.shape[0], -1)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K"])
def test_numbers_have_no_mean(kind):
    values = widen(random_blocks(np.random.default_rng(1), (512, 4 * NUMBERS), kind), kind)
    assert abs(values.mean()) < 0.02 * values.std()


def normed(x):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)


def silu(x):
    return x / (1 + np.exp(-x))


def count_choices(kind, scale_of):
    """How many experts of each layer tokens choose. All layers have the same matrices, and so have all experts, as in the file; a
    token reads its own values and those before it alike."""
    random = np.random.default_rng(1)
    shapes = {"token_embd": (TOKENS, HIDDEN), "attn_v": (HEADS, HIDDEN), "attn_output": (HIDDEN, HEADS), "ffn_gate_exps": (FFN, HIDDEN),
              "ffn_up_exps": (FFN, HIDDEN), "ffn_down_exps": (HIDDEN, FFN)}
    x, value, output, gate, up, down = (widen(random_blocks(random, shape, kind, scale_of(f"{name}.weight")), kind)
                                        for name, shape in shapes.items())
    before = np.tril(np.ones((TOKENS, TOKENS), np.float32))
    before /= before.sum(axis=1, keepdims=True)
    counts = []
    for _ in range(LAYERS):
        x = x + before @ normed(x) @ value.T @ output.T
        read = normed(x)
        logits = read @ random.standard_normal((EXPERTS, HIDDEN), dtype=np.float32).T
        counts.append(len(np.unique(np.argpartition(logits, -USED)[:, -USED:])))
        x = x + silu(read @ gate.T) * (read @ up.T) @ down.T
    return counts


def test_tokens_choose_different_experts():
    """Where 100 tokens choose 8 of 128 by lot, they choose all of a layer, or all but one. With one scale for all matrices they do
    not."""
    assert min(count_choices("Q4_K", matrix_scale)) >= 0.9 * EXPERTS
    assert min(count_choices("Q4_K", lambda _: 1)) < 0.5 * EXPERTS


def print_experts(*tokens):
    """Of each layer with experts: its number, experts chosen, the shares foretold by the token before and by the router."""
    done = subprocess.run([BUILD / "tests/reference/print_experts", ROOT / "tests/golden/hf/qwen3_moe", *map(str, tokens)],
                          capture_output=True, text=True, check=True)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def test_chosen_experts_are_counted():
    """The golden model has 3 of 6 experts in layers 0 and 2."""
    one, many = print_experts(5), print_experts(5, 9, 9, 3, 14, 22, 51, 7)
    assert [layer[:3] for layer in one] == [(0, 3, -1), (2, 3, -1)]
    assert one[0][3] == many[0][3] == -1
    assert [layer for layer, *_ in many] == [0, 2]
    for _, chosen, by_token, _ in many:
        assert 3 < chosen <= 6
        assert 0 < by_token < 1
    assert 0 < many[1][3] <= 1
