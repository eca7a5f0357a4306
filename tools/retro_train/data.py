"""Training batches. Step s of a run with seed S is a function of (S, s) alone, so a run resumes by its step number.

The documents of the collection, each padded to whole chunks, make one circular stream: a training chunk is a store chunk, and
its neighbours were searched for exactly this text. Chunks of questions (questions.py) follow in the stream; they are nobody's
neighbours. A sequence is n tokens of the stream. Half of the sequences begin in
mid-chunk, with only the last f tokens of their first chunk: that is the grid of a prompt whose length is no multiple of m.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .neighbours import Collection, read_neighbours


@dataclass
class NeighbourOptions:
    short_first_chunk: float = 0.5  # sequences whose first chunk is short
    drop_sequence: float = 0.2  # sequences without neighbours
    drop_chunk: float = 0.1  # chunks without, in the others
    # Chunks with one neighbour replaced by their own text, shifted by up to half a chunk: from `self_share` until
    # `self_until` of the run, falling to `self_end` at `self_fallen`. It teaches to copy, where true neighbours seldom do.
    self_share: float = 0.4
    self_end: float = 0.1
    self_until: float = 0.45
    self_fallen: float = 0.75
    question_share: float = 0.0  # sequences that are of questions, beside those that the stream has
    # Chunks before an answer with one neighbour replaced by the chunk that has it. Where the search found another part of the
    # manual, the answer is not to be read, and a model that sees no others learns to make answers up.
    answer_share: float = 0.5

    def self_at(self, progress):
        fallen = (progress - self.self_until) / max(self.self_fallen - self.self_until, 1e-9)
        return self.self_share + (self.self_end - self.self_share) * min(max(fallen, 0.0), 1.0)


@dataclass
class Batch:
    ids: torch.Tensor  # [b, n]
    targets: torch.Tensor  # [b, n], -1 not scored
    neighbours: torch.Tensor | None = None  # [b, l, k, r]
    f: torch.Tensor | None = None  # [b] rows of the first chunk
    counts: torch.Tensor | None = None  # [b, l] neighbours of each chunk

    def to(self, device):
        move = lambda t: None if t is None else t.to(device, non_blocking=True)
        return Batch(*map(move, (self.ids, self.targets, self.neighbours, self.f, self.counts)))


@dataclass
class Questions:
    tokens: np.ndarray  # [chunks, m]
    sources: np.ndarray  # [chunks] the collection's chunk that has what the next one says, -1: none is known


def replace_neighbour(tokens, counts, slot, chosen, texts):
    """Of the chosen [b, l] chunks, neighbour `slot` [b, l] becomes texts [chosen, r]; a chunk without any has one then."""
    where = np.nonzero(chosen)
    tokens[(*where, slot[where])] = texts
    counts[chosen] = np.maximum(counts[chosen], 1)


class TrainingData:
    """collection: Collection; found: neighbour ids [chunks, at least k] or None for a plain GPT; questions: Questions, whose
    chunks follow the collection's in the stream, and their neighbours in found."""

    def __init__(self, collection, found, config, sequence, batch, seed, options, questions=None):
        m = collection.m
        if sequence % m:
            raise ValueError(f"sequence {sequence} is not a multiple of the chunk length {m}")
        tokens = collection.tokens if questions is None else np.concatenate([collection.tokens, questions.tokens])
        self.chunks = len(tokens)
        if self.chunks < sequence // m + 1:
            raise ValueError(f"{self.chunks} chunks are fewer than a sequence of {sequence} tokens needs")
        self.retro = config.architecture == "retro"
        if self.retro:
            if found is None or found.shape[0] != self.chunks or found.shape[1] < config.retro_num_neighbors:
                raise ValueError("neighbours are missing, of another collection, or fewer than retro_num_neighbors")
            if config.retro_chunk_length != m:
                raise ValueError(f"retro_chunk_length {config.retro_chunk_length}, the collection was cut in {m}")
            self.found = found[:, : config.retro_num_neighbors]
        self.collection, self.config, self.options, self.questions = collection, config, options, questions
        self.n, self.b, self.m, self.l, self.seed = sequence, batch, m, sequence // m, seed
        self.stream = tokens.reshape(-1)

    def first_chunks(self, step):
        """[b] where the sequences begin: every epoch visits the stream once, in another order and from another start."""
        slots = self.chunks // self.l
        positions = np.arange(step * self.b, (step + 1) * self.b)
        chunks = np.empty(self.b, dtype=np.int64)
        for epoch in np.unique(positions // slots):
            rng = np.random.default_rng([self.seed, 1, int(epoch)])
            order, shift = rng.permutation(slots), rng.integers(self.chunks)
            mine = positions // slots == epoch
            chunks[mine] = order[positions[mine] % slots] * self.l + shift
        return self.turn_to_questions(chunks % self.chunks, step)

    def turn_to_questions(self, chunks, step):
        """Sequences of documents that this step gives up for sequences of questions."""
        if self.questions is None or self.options.question_share == 0:
            return chunks
        rng = np.random.default_rng([self.seed, 2, step])
        turned = rng.random(self.b) < self.options.question_share
        first = len(self.collection)
        return np.where(turned, rng.integers(first, max(self.chunks - self.l, first) + 1, self.b), chunks)

    def batch(self, step, progress, rank=0, ranks=1):
        """The batch of a step; with several ranks each takes its rows of the same batch."""
        rng = np.random.default_rng([self.seed, 0, step])
        chunks = self.first_chunks(step)
        short = rng.random(self.b) < (self.options.short_first_chunk if self.retro else 0)
        f = np.where(short, rng.integers(1, self.m, self.b), self.m)
        start = (chunks + 1) * self.m - f
        rows = (start[:, None] + np.arange(self.n + 1)) % len(self.stream)
        tokens = self.stream[rows]
        ids, targets = tokens[:, :-1], tokens[:, 1:].copy()
        pad = self.collection.eod
        targets[(ids == pad) & (targets == pad)] = -1  # padding after padding teaches nothing
        mine = slice(rank * self.b // ranks, (rank + 1) * self.b // ranks)
        tensor = lambda a: torch.from_numpy(np.ascontiguousarray(a[mine]))
        if not self.retro:
            return Batch(tensor(ids), tensor(targets))
        neighbours, counts = self.neighbours(rng, chunks, progress)
        return Batch(tensor(ids), tensor(targets), tensor(neighbours), tensor(f), tensor(counts))

    def neighbours(self, rng, chunks, progress):
        """Tokens [b, l, k, r] and counts [b, l] of the sequences' chunks."""
        o, (b, l) = self.options, (self.b, self.l)
        k, r = self.config.retro_num_neighbors, self.config.retro_retrieved_length
        chunk = (chunks[:, None] + np.arange(l)) % self.chunks
        ids = self.found[chunk]
        counts = (ids >= 0).sum(-1)
        tokens = self.collection.neighbour_tokens(ids, r)
        own = rng.random((b, l)) < o.self_at(progress)
        shift = rng.integers(-(self.m // 2), self.m // 2 + 1, (b, l))
        rows = (chunk * self.m + shift)[..., None] + np.arange(r)
        slot = rng.integers(0, np.maximum(counts, 1))
        replace_neighbour(tokens, counts, slot, own, self.stream[rows[own] % len(self.stream)])
        if self.questions is not None:
            self.give_answers(rng, chunk, slot, tokens, counts)
        counts[rng.random((b, l)) < o.drop_chunk] = 0
        counts[rng.random(b) < o.drop_sequence] = 0
        return tokens, counts


    def give_answers(self, rng, chunk, slot, tokens, counts):
        """Puts the chunks that have the answers in place of a neighbour of some [b, l] chunks before answers."""
        question = chunk - len(self.collection)
        sources = np.where(question >= 0, self.questions.sources[np.maximum(question, 0)], -1)
        given = (sources >= 0) & (rng.random(chunk.shape) < self.options.answer_share)
        replace_neighbour(tokens, counts, slot, given, self.collection.neighbour_tokens(sources[given], tokens.shape[-1]))


def read_training_data(folder, config, sequence, batch, seed, options):
    """TrainingData of a prepared folder, with its questions when it has some."""
    folder, questions, found = Path(folder), None, None
    collection = Collection(folder / "collection")
    if (folder / "questions.tokens").exists():
        tokens = np.fromfile(folder / "questions.tokens", "<u4").astype(np.int64).reshape(-1, collection.m)
        questions = Questions(tokens, np.fromfile(folder / "questions.sources", "<i8"))
    if config.architecture == "retro":
        found = read_neighbours(folder / "train.neighbours").ids
        if questions is not None:
            found = np.concatenate([found, read_neighbours(folder / "questions.neighbours").ids])
    return TrainingData(collection, found, config, sequence, batch, seed, options, questions)
