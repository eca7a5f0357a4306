"""Training batches. Step s of a run with seed S is a function of (S, s) alone, so a run resumes by its step number.

The documents of the collection, each padded to whole chunks, make one circular stream: a training chunk is a store chunk, and
its neighbours were searched for exactly this text. Chunks of questions (questions.py) follow in the stream; they are nobody's
neighbours. A sequence is n tokens of the stream. Half of the sequences begin in
mid-chunk, with only the last f tokens of their first chunk: that is the grid of a prompt whose length is no multiple of m.
"""

import dataclasses
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
    self_share: float = 0.0
    self_end: float = 0.0
    self_until: float = 0.45
    self_fallen: float = 0.75
    question_share: float = 0.0  # sequences that are of questions, beside those that the stream has
    # Chunks before an answer with one neighbour replaced by the chunk that has it. Where the search found another part of the
    # manual, the answer is not to be read, and a model that sees no others learns to make answers up.
    answer_share: float = 0.5
    # Sequences in which phrases are said again and again, which the model is to find less likely each time: a small model whose
    # most likely token is taken says a phrase for ever (loss.py, repetition_loss).
    repeat_share: float = 0.0

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
    periods: torch.Tensor | None = None  # [b, n] a target of the third copy of a phrase, or a later one, has the phrase's length

    def to(self, device):
        """The tokens; the model asks for values of the rest, which would stop a GPU."""
        move = lambda t: None if t is None else t.to(device, non_blocking=True)
        return dataclasses.replace(self, ids=move(self.ids), targets=move(self.targets), neighbours=move(self.neighbours))

    def pin_memory(self):
        """torch.utils.data calls it: only pinned memory is copied to a GPU while that computes."""
        pin = lambda t: None if t is None else t.pin_memory()
        return dataclasses.replace(self, ids=pin(self.ids), targets=pin(self.targets), neighbours=pin(self.neighbours))


@dataclass
class Questions:
    tokens: np.ndarray  # [chunks, m]
    sources: np.ndarray  # [chunks] the collection's chunk that has what the next one says, -1: none is known


def replace_neighbour(tokens, counts, slot, chosen, texts):
    """Of the chosen [b, l] chunks, neighbour `slot` [b, l] becomes texts [chosen, r]; a chunk without any has one then."""
    where = np.nonzero(chosen)
    tokens[(*where, slot[where])] = texts
    counts[chosen] = np.maximum(counts[chosen], 1)


@dataclass
class Sequences:
    """Of a step."""

    rows: np.ndarray  # [b, n + 1] of the stream
    f: np.ndarray  # [b] of them in the first chunk
    chunk: np.ndarray  # [b, l] whose neighbours each chunk has
    second: np.ndarray  # [b, n] targets of a phrase's second copy
    periods: np.ndarray  # [b, n] as Batch's


LONGEST_PHRASE = 48  # tokens that repeat
MORE_COPIES = 0.35  # of the geometric distribution of the copies behind the first


@dataclass
class Repeats:
    """A sequence with phrases that are said several times, each followed by what follows it in the text."""

    places: np.ndarray  # [n + 1] which token of the text each one is
    second: np.ndarray  # [n] targets of second copies
    periods: np.ndarray  # [n] of targets of later copies: the phrase's length; else 0


def repeat_phrases(rng, tokens, pad):
    """Repeats of a sequence [n + 1]. Short phrases are as frequent as long ones; one with padding is said once."""
    places, at = [], 0
    second, periods = np.zeros(2 * len(tokens), dtype=bool), np.zeros(2 * len(tokens), dtype=np.int64)
    while len(places) < len(tokens):
        run = int(rng.integers(LONGEST_PHRASE, 2 * LONGEST_PHRASE))
        places += range(at, at + run)
        at += run
        length = int(np.exp(rng.uniform(0, np.log(LONGEST_PHRASE + 1))))
        copies = min(int(rng.geometric(MORE_COPIES)), max(2, 2 * LONGEST_PHRASE // length))
        phrase = np.arange(at - length, at)
        if (tokens[phrase[phrase < len(tokens)]] == pad).any():
            continue
        first = len(places) - 1  # the target of the second copy's first token
        places += np.tile(phrase, copies).tolist()
        second[first : first + length] = True
        periods[first + length : first + copies * length] = length
    n = len(tokens) - 1
    return Repeats(np.array(places[: n + 1]), second[:n], periods[:n])


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

    def sequences(self, rng, step):
        """Where the step's tokens and neighbours are."""
        chunks = self.first_chunks(step)
        short = rng.random(self.b) < (self.options.short_first_chunk if self.retro else 0)
        f = np.where(short, rng.integers(1, self.m, self.b), self.m)
        start = (chunks + 1) * self.m - f
        rows = (start[:, None] + np.arange(self.n + 1)) % len(self.stream)
        chunk = (chunks[:, None] + np.arange(self.l)) % self.chunks
        nothing = np.zeros((self.b, self.n), dtype=np.int64)
        return Sequences(rows, f, chunk, nothing.astype(bool), nothing)

    def repeat_phrases(self, step, s):
        """Lets phrases repeat in some of the sequences; not among questions, whose answers begin chunks."""
        rng = np.random.default_rng([self.seed, 3, step])
        of_documents = s.chunk.max(axis=1) < len(self.collection)
        for row in np.flatnonzero((rng.random(self.b) < self.options.repeat_share) & of_documents):
            repeats = repeat_phrases(rng, self.stream[s.rows[row]], self.collection.eod)
            s.rows[row] = (s.rows[row, 0] + repeats.places) % len(self.stream)
            s.second[row], s.periods[row] = repeats.second, repeats.periods
            # A chunk has moved in the text: it reads what the chunk does that its first token is of, which ends no later than it.
            begins = s.f[row] + self.m * np.arange(self.l - 1)
            s.chunk[row, 1:] = s.rows[row, begins] // self.m

    def batch(self, step, progress, rank=0, ranks=1):
        """The batch of a step; with several ranks each takes its rows of the same batch."""
        rng = np.random.default_rng([self.seed, 0, step])
        s = self.sequences(rng, step)
        self.repeat_phrases(step, s)
        tokens, pad = self.stream[s.rows], self.collection.eod
        ids, targets = tokens[:, :-1], tokens[:, 1:].copy()
        targets[(ids == pad) & (targets == pad)] = -1  # padding after padding teaches nothing
        targets[s.second] = -1  # and nothing is to teach that a phrase is said again
        mine = slice(rank * self.b // ranks, (rank + 1) * self.b // ranks)
        tensor = lambda a: torch.from_numpy(np.ascontiguousarray(a[mine]))
        if not self.retro:
            return Batch(tensor(ids), tensor(targets), periods=tensor(s.periods))
        neighbours, counts = self.neighbours(rng, s.chunk, progress)
        return Batch(tensor(ids), tensor(targets), tensor(neighbours), tensor(s.f), tensor(counts), tensor(s.periods))

    def neighbours(self, rng, chunk, progress):
        """Tokens [b, l, k, r] and counts [b, l] of the sequences' chunks [b, l]."""
        o, (b, l) = self.options, (self.b, self.l)
        k, r = self.config.retro_num_neighbors, self.config.retro_retrieved_length
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


class Batches(torch.utils.data.Dataset):
    """The batches of one rank by (step, progress), for torch.utils.data."""

    def __init__(self, data, rank, ranks):
        self.data, self.rank, self.ranks = data, rank, ranks

    def __getitem__(self, place):
        return self.data.batch(*place, self.rank, self.ranks)


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
