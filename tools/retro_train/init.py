"""Initial weights that can already copy from a neighbour. Everything stays trainable.

From random weights the way from a neighbour to a better prediction needs several parts at once, none of which pays alone:
measured, cross attention was still at chance after millions of tokens. This lays out an induction head across
retrieval:

  1. Positions are waves in dimensions 0..h-1 (h the head size); words get little weight there.
  2. Head 0 of the first decoder layer and of the first encoder layer attends to the previous position: queries and keys
     read the waves, queries turned by one position.
  3. In the encoder this head brings a random projection A of the previous token's word into dimensions 0..h-1.
  4. In every retro layer each cross attention head but the last compares A of my token (query) with those dimensions (key):
     it finds the places of the neighbours whose previous token is mine. It then copies a slice of the word found there.
     The last head stays random.

The magnitudes matter: a write ten times as loud as the embedding kills the circuit.
"""

import math

import torch


@torch.no_grad()
def copy_init(model):
    c = model.config
    d, h, heads = c.hidden_size, c.kv_channels, c.num_attention_heads
    suits = (c.architecture == "retro" and c.position_embedding_type == "learned_absolute" and h * heads == d and heads > 1
             and c.num_query_groups == heads and not c.layernorm_zero_centered_gamma and c.encoder_residual == "normed")
    if not suits:
        raise ValueError("copy_init is for retro models with learned positions, two or more heads of d / H, no query groups, "
                         "plain norms and the normed encoder residual; use \"init\": \"normal\"")
    w = model.state_dict()  # shares storage with the parameters
    frequency = wave_frequencies(h)
    i = torch.arange(h)
    waves(w, h)
    first = min(c.retro_layers) - 1
    encoder = f"decoder.layers.{first}.cross_attention.encoder.layers.0."
    for layer in ("decoder.layers.0.", encoder):
        previous_position_head(w, layer, frequency, heads, h)
    a = torch.linalg.qr(torch.randn(d - h, h))[0].T  # [h, d - h]: random directions of the word space
    value = w[encoder + "self_attention.linear_qkv.weight"].view(heads, 3, h, d)[0, 2]
    value.zero_()
    value[:, h:] = a
    proj = w[encoder + "self_attention.linear_proj.weight"]
    proj[:, :h] = 0
    proj[i, i] = 0.058
    for number in c.retro_layers:
        matching_heads(w, f"decoder.layers.{number - 1}.cross_attention.attn.", a, heads)


def wave_frequencies(h):
    return torch.exp(torch.linspace(math.log(2.0), math.log(1 / 150), h // 2))


def wave_rows(count, h):
    """[count, h]: positions as h / 2 cosines and as many sines."""
    angle = torch.arange(count)[:, None] * wave_frequencies(h)
    return torch.cat([angle.cos(), angle.sin()], 1)


def waves(w, h):
    """Step 1."""
    position = w["embedding.position_embeddings.weight"]
    position.zero_()
    position[:, :h] = 0.04 * wave_rows(len(position), h)
    w["embedding.word_embeddings.weight"][:, :h] *= 0.2


def previous_position_head(w, layer, frequency, heads, h):
    """Step 2: q(p) . k(p - 1) is largest when the query is the key turned by one position."""
    weight = w[layer + "self_attention.linear_qkv.weight"]
    q, k = weight.view(heads, 3, h, weight.shape[1])[0, :2]
    half, i = h // 2, torch.arange(h)
    q.zero_()
    k.zero_()
    k[i, i] = 1.4
    q[i, i] = 1.4 * torch.cat([frequency.cos(), frequency.cos()])
    q[i[:half], i[half:]] = 1.4 * frequency.sin()
    q[i[half:], i[:half]] = -1.4 * frequency.sin()
    w[layer + "self_attention.linear_proj.weight"][:, :h] *= 2


def matching_heads(w, name, a, heads):
    """Step 4."""
    h, d = a.shape[0], a.shape[0] + a.shape[1]
    i = torch.arange(h)
    q, kv = w[name + "linear_q.weight"].view(heads, h, d), w[name + "linear_kv.weight"].view(heads, 2, h, d)
    proj = w[name + "linear_proj.weight"]
    for j in range(heads - 1):
        q[j], kv[j], proj[:, j * h : (j + 1) * h] = 0, 0, 0
        q[j][:, h:] = 2.5 * a
        kv[j, 0, i, i] = 1.0
        kv[j, 1, i, h * (j + 1) + i] = 1.0
        proj[h * (j + 1) + i, j * h + i] = 0.12
