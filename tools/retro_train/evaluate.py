"""Bits per byte of documents with true neighbours, without, with random ones, and under a plain GPT.

The definition, which `retro-eval ppl` shares: the tokens of a whole document, nothing added, in consecutive windows of W.
In a window of n tokens the chunk grid starts at row 0 (f = m here), rows 0..n-2 predict tokens 1..n-1, and token 0 is not
scored. Neighbours are searched for the text of each complete chunk. bits = -sum log2 p; bytes = bytes of the scored
tokens; bits/byte is the quotient of the sums over all documents. Intervals: 1000 resamples of the documents.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from .model import Neighbours

DRAWS = 1000


@dataclass
class Window:
    document: int
    tokens: np.ndarray  # [n]
    chunk: int  # of the window's first chunk among all complete chunks of all documents


def cut_windows(documents, window, m):
    """documents: token arrays. Windows of one token score nothing and are left out."""
    if m and window % m:
        raise ValueError(f"window {window} is not a multiple of the chunk length {m}")
    windows, chunk = [], 0
    for number, tokens in enumerate(documents):
        for at in range(0, len(tokens), window):
            if len(tokens) - at > 1:
                windows.append(Window(number, tokens[at : at + window], chunk + at // m if m else 0))
        chunk += len(tokens) // m if m else 0
    return windows


def batches(windows, size):
    """Windows of similar length together."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].tokens))
    for at in range(0, len(order), size):
        yield [windows[i] for i in order[at : at + size]]


def neighbours_of(group, length, found, collection, config, device):
    """Neighbours [b, l, k, r] of the complete chunks of a batch of windows; the others have none."""
    m, r = config.retro_chunk_length, config.retro_retrieved_length
    l, k = length // m, found.shape[1]
    ids = np.full((len(group), l, k), -1, dtype=np.int64)
    for i, w in enumerate(group):
        complete = len(w.tokens) // m
        ids[i, :complete] = found[w.chunk : w.chunk + complete]
    counts = torch.from_numpy((ids >= 0).sum(-1))
    tokens = torch.from_numpy(collection.neighbour_tokens(ids, r))
    return Neighbours(tokens.to(device), torch.full((len(group),), m, device=device), counts.to(device))


@torch.no_grad()
def token_bits(model, windows, found, collection, device, batch=8):
    """Yields (window, bits [n - 1] of its tokens 1..n-1). found [complete chunks, k] neighbour ids, or None: off."""
    for group in batches(windows, batch):
        length = len(group[0].tokens)
        ids = torch.zeros(len(group), length, dtype=torch.long)
        for i, w in enumerate(group):
            ids[i, : len(w.tokens)] = torch.from_numpy(w.tokens)
        ids = ids.to(device)
        neighbours = None
        if found is not None and length >= model.config.retro_chunk_length:
            neighbours = neighbours_of(group, length, found, collection, model.config, device)
        hidden = model.hidden(ids, neighbours)
        for i, w in enumerate(group):
            logits = model.logits(hidden[i, : len(w.tokens) - 1]).float()
            nats = torch.nn.functional.cross_entropy(logits, ids[i, 1 : len(w.tokens)], reduction="none")
            yield w, nats.double().cpu().numpy() / math.log(2)


def bootstrap(bits, size, seed):
    """95 % interval of sum(bits) / sum(size) over resampled documents."""
    picks = np.random.default_rng(seed).integers(0, len(bits), (DRAWS, len(bits)))
    ratios = np.sort(bits[picks].sum(1) / np.maximum(size[picks].sum(1), 1))
    return ratios[DRAWS // 40], ratios[DRAWS - 1 - DRAWS // 40]


def random_ids(chunks, k, n_chunks, seed):
    """Uniform chunk ids [chunks, k], by the generator of `retro-eval ppl`, so that both draw the same."""
    ids, state = np.empty(chunks * k, dtype=np.int64), seed
    for i in range(len(ids)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids[i] = (state >> 16) % n_chunks
    return ids.reshape(chunks, k)


def gain(of, over, seed):
    """How many percent fewer bits `of` needs than `over`; the interval resamples documents, each with both of its sums."""
    low, high = bootstrap(over - of, over, seed)
    return {"percent": 100 * (1 - of.sum() / over.sum()), "low": 100 * low, "high": 100 * high}


def evaluate(model, documents, vocabulary, window, found, collection, gpt=None, seed=1, device="cpu"):
    """documents: token arrays; found [complete chunks of all documents, k] neighbour ids. The result is what JSON holds."""
    c = model.config
    m = c.retro_chunk_length if c.architecture == "retro" else 0
    windows = cut_windows(documents, window, m)
    size = np.zeros(len(documents))
    for w in windows:
        size[w.document] += vocabulary.bytes[w.tokens[1:]].sum()
    runs = {"off": (model, None)}
    if m and found is not None:
        chunks = sum(len(t) // m for t in documents)
        if len(found) != chunks:
            raise ValueError(f"neighbours of {len(found)} chunks; the documents have {chunks}")
        random = random_ids(chunks, found.shape[1], len(collection), seed)
        runs = {"on": (model, found), "off": (model, None), "random": (model, random)}
    if gpt is not None:
        runs["gpt"] = (gpt, None)
    modes, bits_of = {}, {}
    for mode, (net, ids) in runs.items():
        bits = np.zeros(len(documents))
        for w, values in token_bits(net, windows, ids, collection, device):
            bits[w.document] += values.sum()
        low, high = bootstrap(bits, size, seed)
        bits_of[mode] = bits
        modes[mode] = {"bits_per_byte": bits.sum() / size.sum(), "low": low, "high": high, "bits": bits.sum()}
    pairs = [p for p in (("on", "off"), ("random", "off"), ("on", "gpt")) if set(p) <= set(runs)]
    gains = {f"{a} against {b}": gain(bits_of[a], bits_of[b], seed) for a, b in pairs}
    return {"documents": len(documents), "bytes": int(size.sum()), "tokens": int(sum(len(w.tokens) - 1 for w in windows)),
            "window": window, "k": 0 if found is None else found.shape[1],
            "chunks": 0 if collection is None else len(collection), "modes": modes, "gains": gains}


def default_window(config):
    """min(512, longest sequence), whole chunks."""
    window = min(512, config.max_position_embeddings)
    m = config.retro_chunk_length or 1
    return max(window // m, 1) * m


def print_result(result):
    print(f"{result['documents']} documents, {result['bytes']} bytes, {result['tokens']} tokens scored, window "
          f"{result['window']}, k {result['k']}, {result['chunks']} chunks in the collection")
    for mode, v in result["modes"].items():
        print(f"  {mode:<7} {v['bits_per_byte']:.4f} bits/byte   95 % {v['low']:.4f} .. {v['high']:.4f}")
    for pair, v in result["gains"].items():
        print(f"  {pair}: {v['percent']:+.2f} % fewer bits, 95 % {v['low']:+.2f} .. {v['high']:+.2f}")
