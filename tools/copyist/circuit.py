"""The hand-made part of a copyist: a Llama whose first three layers find where the last four tokens stood before, and
write what followed there.

The residual stream has parts (Layout). Their numbers are 1 and -1, or nothing:

    one      a number that all tokens have
    token    a code of the token that the output matrix reads
    key      another code, which is compared
    before   the key of the token before                          written by layer 0
    pair     key times a permutation of before: a code of two tokens
    pair1..3 the pairs at one, two and three tokens before        written by layer 1
    here     pair times a permutation of pair2: the last four tokens
    there    pair1 times a permutation of pair3: the four tokens before the last
    copy     the token code of the place that layer 2 found

Codes are linear, so any two of them differ in many places; their products are codes of several tokens. A head that
looks a fixed number of tokens back has a constant query and a constant key: RoPE turns them against each other, and at
one distance alone do they agree in all of the fast pairs. The head of layer 2 compares `here` with `there` in slow
pairs, which a few thousand tokens do not turn. Of several places the last one wins, because two pairs of middle speed
take off a little for each token of distance. Where no place agrees, the head reads the token that begins a text: its
value is nothing, and its key agrees with every query, but less than a true match.

Every row of these matrices has one number that is not zero, and a block of 32 numbers of the word table has 0 and ONE,
or 1 and -1. So each type of quantised weights keeps them exactly.
"""
import dataclasses
import math

import numpy as np

EPSILON = 1e-5
# The number of flags: 42/63 of the way from -1 to 1, so that six bits hold the scale of a block that has it; and 1 is not
# half of a step in its eight bits.
ONE = 4 / 3
BACK = 500.0  # score of a head that looks back, at its distance; 8 % less and below elsewhere
FAST = 7  # RoPE's pairs that it uses
MATCH = 3000.0  # score of a match, without its distance
NONE = 0.85  # share of it at which there is none
FAR = 380.0  # taken off at the largest distance
# Weights of an MLP that multiplies: 945 = 15 * 63 times a power of two, with which the zeros beside a negative weight are
# exact in four bits. SiLU is linear for the larger one, and nothing for its negative.
GATE, UP = 945 / 64, 945 / 1024
COPY, FOLLOW = 60.0, 14.0  # logits of the copied token and of the successor


def linear_code(words, places, random):
    """(words, places) of 1 and -1: the best of some random linear codes; any two words differ in as many places as may
    be."""
    bits = max(1, int(words - 1).bit_length())
    numbers = (np.arange(1 << bits)[:, None] >> np.arange(bits)) & 1
    best, distance = None, 0
    for _ in range(12):
        generator = random.integers(0, 2, (bits, places))
        code = (numbers @ generator) % 2
        least = int(code[1:].sum(1).min())
        if least > distance:
            best, distance = code, least
    if best is None:
        raise ValueError(f"{places} places are too few for {words} words")
    return (1 - 2 * best[:words]).astype(np.float32)


@dataclasses.dataclass
class Shape:
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocab: int
    context: int
    experts: int = 0

    def __post_init__(self):
        self.theta = 1e12
        half = self.head // 2
        self.speeds = self.theta ** (-np.arange(half) / half)
        slow = np.flatnonzero(self.speeds * self.context <= 0.15)
        middle = np.flatnonzero((self.speeds * self.context <= 1.0) & (self.speeds * self.context > 0.15))
        self.flag = half - 1
        self.distance = middle[:2]
        self.slow = slow[slow != self.flag]
        self.key = min(64, 2 * len(self.slow) // 4 * 4)
        self.token = min(128, self.head)

    def check(self):
        if self.layers < 3:
            raise ValueError("three layers are hand-made: give at least 3")
        if self.head < 64 or self.head % 2:
            raise ValueError("a head must have 64 numbers or more, an even number of them")
        if self.heads % self.kv_heads or self.heads < 3:
            raise ValueError("heads must be a multiple of the key/value heads, and 3 or more")
        if self.ffn < 4 * self.key:
            raise ValueError(f"the FFN must have {4 * self.key} units or more")
        if self.experts == 1:
            raise ValueError("two experts are read for each token: give 2 or more, or 0 for one MLP")
        if Layout(self).end > self.width:
            raise ValueError(f"the width must be {Layout(self).end} or more with heads of {self.head}")


class Layout:
    """Where the parts of the residual stream lie. Each begins at a multiple of 32, where blocks of quantised words do."""

    def __init__(self, shape):
        self.end = 0
        self.one, self.begins, self.muted = 0, 1, 2
        flags = self.add(3 + math.ceil((shape.token + shape.key) / ONE**2))
        self.filler = slice(3, flags.stop)
        self.token = self.add(shape.token)
        self.key = self.add(shape.key)
        rest = self.add(0).start
        names = ("before", "pair", "pair1", "pair2", "pair3", "here", "there")
        for i, name in enumerate(names):
            setattr(self, name, slice(rest + i * shape.key, rest + (i + 1) * shape.key))
        self.end = rest + len(names) * shape.key
        self.copy = self.add(shape.token)

    def add(self, length):
        start = -(-self.end // 32) * 32
        self.end = start + length
        return slice(start, self.end)


def indices(part):
    return np.arange(part.start, part.stop)


class Circuit:
    """The matrices of the hand-made layers. A matrix is a list of entries (rows, columns, values); whoever writes it
    zeroes those rows (or columns, of matrices that write into the residual stream) first."""

    def __init__(self, shape, random):
        self.shape, self.at = shape, Layout(shape)
        self.first, self.second = random.permutation(shape.key), random.permutation(shape.key)
        full = ONE**2 + shape.token
        # Root mean squares of an ordinary token's row, before the attention and before the MLP of each layer.
        keys = {(0, "attention"): 1, (0, "mlp"): 2, (1, "attention"): 3, (1, "mlp"): 6, (2, "attention"): 8}
        self.rms = {place: self.root(full + n * shape.key) for place, n in keys.items()}
        self.rms_begin = self.root(ONE**2 * (1 + round((shape.token + shape.key) / ONE**2)))
        self.rms_end = {"copy": self.root(full + 8 * shape.key + shape.token), "free": self.root(full + 8 * shape.key)}

    def root(self, squares):
        return float(np.sqrt(squares / self.shape.width + EPSILON))

    def group(self, head):
        return head // (self.shape.heads // self.shape.kv_heads)

    def rows(self, head):
        return head * self.shape.head + np.arange(self.shape.head)

    def look_back(self, layer, head, distance, source, target):
        """Entries of a head that writes into `target` what stood in `source` some tokens before."""
        shape, rms = self.shape, self.rms[layer, "attention"]
        size = rms / ONE * np.sqrt(BACK * np.sqrt(shape.head) / FAST)
        pairs, half, kv = np.arange(FAST), shape.head // 2, self.group(head)
        turn = self.shape.speeds[:FAST] * distance
        query, key = self.rows(head), self.rows(kv)
        n = target.stop - target.start
        return {
            "q_proj": [(query, self.at.one, 0.0), (query[pairs], self.at.one, size * np.cos(turn)),
                       (query[pairs + half], self.at.one, -size * np.sin(turn))],
            "k_proj": [(key, self.at.one, 0.0), (key[pairs], self.at.one, size)],
            "v_proj": [(key[:n], indices(source), 1.0)],
            "o_proj": [(indices(target), query[:n], rms)],
        }

    def find(self):
        """Entries of the head of layer 2 that finds the last match."""
        shape, at, rms = self.shape, self.at, self.rms[2, "attention"]
        half, root, one = shape.head // 2, np.sqrt(shape.head), self.rms[2, "attention"] / ONE
        query, key = self.rows(0), self.rows(0)
        slow = np.concatenate([shape.slow, shape.slow + half])[: shape.key]
        size = rms * np.sqrt(MATCH * root / shape.key)
        begin = np.sqrt(NONE * MATCH * root)
        slope = FAR / shape.context / len(shape.distance) / shape.speeds[shape.distance]
        far = one * np.sqrt(slope * root)
        muted = np.sqrt(4 * MATCH * root)
        n = shape.token
        return {
            "q_proj": [(query, at.one, 0.0), (query[slow], indices(at.here), size), (query[shape.flag], at.one, one * begin),
                       (query[shape.flag + half], at.one, -one * muted), (query[shape.distance + half], at.one, far)],
            "k_proj": [(key, at.one, 0.0), (key[slow], indices(at.there), size),
                       (key[shape.flag], at.begins, self.rms_begin / ONE * begin),
                       (key[shape.flag + half], at.muted, one * muted), (key[shape.distance], at.one, far)],
            "v_proj": [(key[:n], indices(at.token), 1.0)],
            "o_proj": [(indices(at.copy), query[:n], rms)],
        }

    def multiply(self, layer, products):
        """Entries of an MLP; products: (factor, permutation, factor, target), parts of the stream. Two units make one:
        relu(a) b and relu(-a) (-b)."""
        rms, entries, unit = self.rms[layer, "mlp"], {"gate_proj": [], "up_proj": [], "down_proj": []}, 0
        for left, order, right, target in products:
            a, b = indices(left), indices(right)[order]
            for sign in (1.0, -1.0):
                units = unit + np.arange(len(a))
                entries["gate_proj"].append((units, a, sign * GATE))
                entries["up_proj"].append((units, b, sign * UP))
                entries["down_proj"].append((indices(target), units, rms**2 / GATE / UP))
                unit += len(a)
        return entries

    def layer(self, i):
        """Matrix name to entries, for each of the three hand-made layers."""
        at = self.at
        if i == 0:
            attention = [self.look_back(0, 0, 1, at.key, at.before)]
            mlp = self.multiply(0, [(at.key, self.first, at.before, at.pair)])
        elif i == 1:
            parts = (at.pair1, at.pair2, at.pair3)
            attention = [self.look_back(1, n, n + 1, at.pair, part) for n, part in enumerate(parts)]
            mlp = self.multiply(1, [(at.pair, self.second, at.pair2, at.here),
                                    (at.pair1, self.second, at.pair3, at.there)])
        else:
            attention, mlp = [self.find()], {}
        heads = {}
        for head in attention:
            for name, entries in head.items():
                heads.setdefault(name, []).extend(entries)
        return heads | mlp
