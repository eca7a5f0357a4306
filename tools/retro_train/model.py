"""Retro as Megatron-Core computes it, written for training: batch first, every chunk of a batch at once.

Attribute names spell the checkpoint keys (docs/model-format.md), so state_dict() is the export. The letters: b batch, n
tokens, m chunk length, l chunks, k neighbours, r retrieved length, d hidden size, H heads, G key/value groups, h head size.

The chunk grid of a sequence is its f, the rows of its first chunk (1..m): chunk 0 is rows 0..f-1, chunk j rows
f+(j-1)m..f+jm-1, and row p reads the neighbours of chunk floor((p+1-f)/m), none while p < f-1. Megatron's own forward
of n rows is f = n mod m (or m).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from . import native
from .loss import REPETITION_WEIGHT, cross_entropy, repetition_loss


class Norm(nn.Module):
    """LayerNorm or RMSNorm; zero-centred gamma ("1p") stores gamma - 1."""

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.full((c.hidden_size,), 0.0 if c.layernorm_zero_centered_gamma else 1.0))
        self.bias = nn.Parameter(torch.zeros(c.hidden_size)) if c.normalization == "LayerNorm" else None
        self.rule = NormRule(c)

    def forward(self, x):
        return self.rule(x, self.weight, self.bias)


class NormRule:
    """The norm as a function of its weights, shared by Norm and the fused pair NormLinear."""

    def __init__(self, c):
        self.epsilon, self.centered, self.rms = c.layernorm_epsilon, c.layernorm_zero_centered_gamma, c.normalization == "RMSNorm"

    def __call__(self, x, weight, bias):
        weight = weight + 1 if self.centered else weight
        if self.rms:
            return F.rms_norm(x, x.shape[-1:], weight, self.epsilon)
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.epsilon)


class NormLinear(nn.Linear):
    """Norm then linear: the pair that Transformer Engine keeps in one module, layer_norm_weight/_bias and weight/bias."""

    def __init__(self, c, out):
        super().__init__(c.hidden_size, out, bias=c.add_bias_linear)
        self.layer_norm_weight = nn.Parameter(torch.full((c.hidden_size,), 0.0 if c.layernorm_zero_centered_gamma else 1.0))
        self.layer_norm_bias = nn.Parameter(torch.zeros(c.hidden_size)) if c.normalization == "LayerNorm" else None
        self.rule = NormRule(c)

    def forward(self, x):
        return super().forward(self.rule(x, self.layer_norm_weight, self.layer_norm_bias))


CAUSAL_BLOCK = 128  # query rows


def attend(q, k, v, causal=False, mask=None):
    """softmax(q k' / sqrt(h)) v over [b, heads, rows, h]. On a CPU in bfloat16 PyTorch's fused kernel takes over twice as
    long as the products; causal rows go there in blocks, each with the keys up to its last row."""
    if q.is_cuda or q.dtype == torch.float32:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    q, k = q / math.sqrt(q.shape[-1]), k.transpose(-1, -2)
    if not causal:
        scores = q @ k
        if native.suits(scores):
            read = mask.sum(-1)[..., 0] if mask is not None else torch.tensor(scores.shape[-1])
            return native.softmax_lengths(scores, read.expand(scores.shape[:2])) @ v
        if mask is not None:
            scores = scores.masked_fill_(~mask, -math.inf)
        return scores.softmax(-1) @ v

    future = torch.full((CAUSAL_BLOCK, CAUSAL_BLOCK), -math.inf, dtype=q.dtype).triu(1)
    blocks = []
    for at in range(0, q.shape[-2], CAUSAL_BLOCK):
        end = min(at + CAUSAL_BLOCK, q.shape[-2])
        scores = q[..., at:end, :] @ k[..., :end]
        scores[..., at:] += future[: end - at, : end - at]
        blocks.append(scores.softmax(-1) @ v[..., :end, :])
    return torch.cat(blocks, -2)


def rotate(x, c):
    """RoPE on the first c.rotated dimensions of x [b, heads, n, h]; angles in float32, by absolute row."""
    width = c.rotated
    frequency = c.rotary_base ** -(torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(x.shape[-2], device=x.device, dtype=torch.float32), frequency)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    turned, rest = x[..., :width], x[..., width:]
    if c.rotary_interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([turned, rest], -1)


class SelfAttention(nn.Module):
    """Rows of linear_qkv per key/value group: its H/G query heads, its key, its value."""

    def __init__(self, c, causal):
        super().__init__()
        self.c, self.causal = c, causal
        h, heads = c.kv_channels, c.num_attention_heads
        self.linear_qkv = NormLinear(c, (heads + 2 * c.num_query_groups) * h)
        self.linear_proj = nn.Linear(heads * h, c.hidden_size, bias=c.add_bias_linear)

    def forward(self, x):
        (b, s, _), c = x.shape, self.c
        per_group = c.num_attention_heads // c.num_query_groups
        groups = self.linear_qkv(x).view(b, s, c.num_query_groups, per_group + 2, c.kv_channels)
        if native.suits(groups) and per_group == 1 and not c.rotated:
            return self.linear_proj(native.SelfAttention.apply(groups, self.causal))
        q = groups[..., :per_group, :].reshape(b, s, c.num_attention_heads, c.kv_channels).transpose(1, 2)
        k, v = (groups[..., i, :].transpose(1, 2).repeat_interleave(per_group, 1) for i in (-2, -1))
        if self.causal and c.rotated:  # the neighbour encoder knows no RoPE
            q, k = rotate(q, c), rotate(k, c)
        o = attend(q, k, v, causal=self.causal)
        return self.linear_proj(o.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Rows of linear_kv per head: key, value. No positions."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.head_size = c.num_attention_heads, c.kv_channels
        width = self.heads * self.head_size
        self.linear_q = nn.Linear(c.hidden_size, width, bias=c.add_bias_linear)
        self.linear_kv = nn.Linear(c.hidden_size, 2 * width, bias=c.add_bias_linear)
        self.linear_proj = nn.Linear(width, c.hidden_size, bias=c.add_bias_linear)

    def forward(self, x, context, mask=None):
        """x [b, s, d], context [b, t, d], mask [b, t] of rows that may be read or None."""
        q = self.linear_q(x).unflatten(-1, (self.heads, self.head_size)).transpose(1, 2)
        k, v = self.linear_kv(context).unflatten(-1, (self.heads, 2, self.head_size)).permute(3, 0, 2, 1, 4)
        o = attend(q, k, v, mask=None if mask is None else mask[:, None, None, :])
        return self.linear_proj(o.transpose(1, 2).flatten(2))


PLAIN_ACTIVATIONS = {
    "gelu_tanh": native.gelu_tanh,
    "gelu_erf": F.gelu,
    "silu": F.silu,
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x).square(),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


class MLP(nn.Module):
    """Gated kinds: the first half of fc1's rows is the gate."""

    def __init__(self, c, fused_norm=True):
        super().__init__()
        rows = (2 if c.gated else 1) * c.ffn_hidden_size
        self.linear_fc1 = NormLinear(c, rows) if fused_norm else nn.Linear(c.hidden_size, rows, bias=c.add_bias_linear)
        self.linear_fc2 = nn.Linear(c.ffn_hidden_size, c.hidden_size, bias=c.add_bias_linear)
        self.gated = c.gated
        self.act = PLAIN_ACTIVATIONS[{"swiglu": "silu", "geglu": "gelu_tanh"}.get(c.activation, c.activation)]

    def forward(self, x):
        x = self.linear_fc1(x)
        if self.gated:
            gate, up = x.chunk(2, -1)
            return self.linear_fc2(self.act(gate) * up)
        return self.linear_fc2(self.act(x))


class Wrap(nn.Module):
    """Only spells a key: Wrap("norm", module) is called as module and named prefix.norm.*."""

    def __init__(self, name, module):
        super().__init__()
        self.name = name
        self.add_module(name, module)

    def forward(self, *args):
        return getattr(self, self.name)(*args)


class EncoderLayer(nn.Module):
    """Bidirectional over the r tokens of one neighbour; layer 0 also reads the chunk that the neighbour was found for."""

    def __init__(self, c, first):
        super().__init__()
        self.first, self.residual_normed = first, c.encoder_residual == "normed"
        self.self_attention = SelfAttention(c, causal=False)
        if first:
            self.pre_cross_attn_layernorm = Norm(c)
            self.cross_attention = Wrap("attn", CrossAttention(c))
            self.pre_mlp_layernorm = Wrap("norm", Norm(c))
        self.mlp = MLP(c, fused_norm=not first)

    def forward(self, e, chunks):
        """e [c k, r, d], the neighbours of one chunk adjacent; chunks [c, m, d]."""
        y = e + self.self_attention(e)
        if not self.first:
            return y + self.mlp(y)
        u = self.pre_cross_attn_layernorm(y)
        k = len(e) // max(len(chunks), 1)
        o = self.cross_attention(u.view(len(chunks), k * u.shape[1], u.shape[2]), chunks).view_as(u)
        z = o + (u if self.residual_normed else y)
        return z + self.mlp(self.pre_mlp_layernorm(z))


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(c, j == 0) for j in range(c.retro_encoder_num_layers))

    def forward(self, e, chunks):
        for layer in self.layers:
            e = layer(e, chunks)
        return e


def shift_rows(x, offset, rows):
    """out[b, i] = x[b, i + offset[b]] for i < rows, zero where that is outside of x [b, n, d]."""
    index = torch.arange(rows, device=x.device) + offset[:, None]
    inside = (index >= 0) & (index < x.shape[1])
    index = index.clamp(0, x.shape[1] - 1)
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[2])) * inside[..., None].to(x.dtype)


class Neighbours:
    """The rows that cross attention reads in one forward: the neighbours of every chunk of every sequence.

    ids [b, l, k, r]; f [b] rows of the first chunk, 1..m; counts [b, l]: how many of the k are real (the first ones), 0
    leaves the chunk's cross attention out altogether. Only the c chunks that have neighbours are computed: readers [c]
    numbers them. hidden [c k, r, d] is first the embedded tokens, then the encoder's output. f and counts may lie on the
    CPU while ids are on a GPU: c is asked for there, and the GPU need not come to a stop first.
    """

    def __init__(self, ids, f, counts=None):
        self.b, self.l, self.k, self.r = ids.shape
        counts = torch.full(ids.shape[:2], self.k) if counts is None else counts
        readers = counts.flatten().nonzero().squeeze(1)
        self.key_mask = self.make_key_mask(counts.flatten()[readers], ids.device)  # now: a compiled decoder asks for no values
        self.shortest, self.f = int(f.min()), f.to(ids.device)
        self.readers = readers.to(ids.device)
        self.ids = ids.flatten(0, 1)[self.readers].flatten(0, 1)
        self.hidden = None

    def of_readers(self, rows):
        """[b, l m, d] -> [c, m, d]."""
        return rows.view(self.b * self.l, -1, rows.shape[-1])[self.readers]

    def of_all(self, rows):
        """[c, m, d] -> [b, l m, d], zero in the chunks that read nothing."""
        everywhere = rows.new_zeros(self.b * self.l, *rows.shape[1:])
        return everywhere.index_copy(0, self.readers, rows).view(self.b, -1, rows.shape[-1])

    def make_key_mask(self, counts, device):
        """[c, k r] rows that a chunk may read, or None when all may read all. counts [c]."""
        if not bool((counts < self.k).any()):
            return None
        real = torch.arange(self.k, device=counts.device) < counts[:, None]
        return real.repeat_interleave(self.r, -1).to(device)


class ChunkedCrossAttention(nn.Module):
    def __init__(self, c, first):
        super().__init__()
        self.m, self.gate = c.retro_chunk_length, c.retro_attention_gate
        self.attn = CrossAttention(c)
        if first:  # the first retro layer owns the encoder, later ones read its output
            self.encoder = Encoder(c)

    def forward(self, x, neighbours):
        """x [b, n, d], normed; returns what is added to the stream, zero in rows that read no neighbours."""
        n, m, q = x.shape[1], self.m, neighbours
        if hasattr(self, "encoder"):
            # m - f zero rows before row 0 complete the first chunk. They are attended; where they stand has no effect.
            chunks = q.of_readers(shift_rows(x, q.f - m, q.l * m))
            q.hidden = self.encoder(q.hidden, chunks)
        windows = q.of_readers(shift_rows(x, q.f - 1, q.l * m))  # from each chunk's closing row on
        o = self.attn(windows, q.hidden.reshape(len(windows), q.k * q.r, x.shape[-1]), q.key_mask)
        return self.gate * shift_rows(q.of_all(o), 1 - q.f, n)


class DecoderLayer(nn.Module):
    def __init__(self, c, number):
        super().__init__()
        self.retro = number in c.retro_layers
        self.self_attention = SelfAttention(c, causal=True)
        if self.retro:
            self.pre_cross_attn_layernorm = Norm(c)
            self.cross_attention = ChunkedCrossAttention(c, first=number == min(c.retro_layers))
        self.mlp = MLP(c)

    def forward(self, x, neighbours):
        x = x + self.self_attention(x)
        if self.retro and neighbours is not None:
            x = x + self.cross_attention(self.pre_cross_attn_layernorm(x), neighbours)
        return x + self.mlp(x)


class Embedding(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.padded_vocab_size, c.hidden_size)
        if c.position_embedding_type == "learned_absolute":
            self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)

    def forward(self, ids):
        x = self.word_embeddings(ids)
        if hasattr(self, "position_embeddings"):
            x = x + self.position_embeddings.weight[: ids.shape[-1]]  # neighbours count from 0 each
        return x


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(c, i + 1) for i in range(c.num_layers))
        self.final_layernorm = Norm(c) if c.final_norm else None

    def forward(self, x, neighbours, trace=None):
        for layer in self.layers:
            x = layer(x, neighbours)
            if trace is not None:
                trace.append(x)
        return x if self.final_layernorm is None else self.final_layernorm(x)


class Retro(nn.Module):
    """Retro, or GPT when config.architecture says so. Initial weights: normal 0.02, residual writes scaled by depth."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.decoder = Decoder(config)
        if not config.tie_word_embeddings:
            self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("linear_proj.weight", "linear_fc2.weight"))
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * config.num_layers) if residual else 0.02)
            elif name.endswith(".bias"):
                nn.init.zeros_(p)

    def embed_neighbours(self, ids):
        """[c k, r] -> [c k, r, d]."""
        return self.embedding(ids)

    def hidden(self, ids, neighbours=None, trace=None):
        """ids [b, n] -> [b, n, d], after the final norm. neighbours: Neighbours, or None: cross attention is skipped.
        trace: a list that takes the stream after each layer."""
        if neighbours is not None:
            needed = 1 + (ids.shape[1] - neighbours.shortest) // self.config.retro_chunk_length
            if neighbours.l < needed:
                raise ValueError(f"{neighbours.l} neighbour sets for a sequence of {needed} complete chunks")
            neighbours.hidden = self.embed_neighbours(neighbours.ids)
        return self.decoder(self.embedding(ids), neighbours, trace)

    @property
    def words(self):
        """[padded vocabulary, d]: what the hidden state is compared with."""
        return (self.embedding.word_embeddings if self.config.tie_word_embeddings else self.output_layer).weight

    def logits(self, hidden):
        """[..., d] -> [..., padded vocabulary]."""
        return F.linear(hidden, self.words)

    def forward(self, ids, targets, neighbours=None, f=None, counts=None, periods=None):
        """Mean loss in nats over targets [b, n]; target -1 is not scored. It is the cross entropy, or repetition_loss where periods
        [b, n] are not 0."""
        found = None if neighbours is None else Neighbours(neighbours, f, counts)
        hidden, targets = self.hidden(ids, found).flatten(0, 1), targets.flatten()
        if periods is None or not periods.any():
            return cross_entropy(hidden, self.words, targets)
        repeats = (periods.flatten() != 0).to(targets.device)
        said = targets.masked_fill(repeats, -1)
        n_said, n_repeats = (said >= 0).sum(), repeats.sum()
        repetition = REPETITION_WEIGHT * repetition_loss(hidden, self.words, targets, periods.flatten())
        return (cross_entropy(hidden, self.words, said) * n_said + repetition * n_repeats) / (n_said + n_repeats)
