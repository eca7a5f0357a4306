"""A data folder without retro-index: the collection's files in its format, neighbours by TF-IDF. Only for tests of the Python
parts; tests/train/test_pipeline.py and `make train-smoke` use the real one."""

import numpy as np

from retro_train import tokenizer
from retro_train.neighbours import Collection, write_neighbours
from retro_train.search import write_collection

COMMANDS = ("fork", "exec", "wait", "open", "read", "write", "close", "pipe", "kill", "stat", "mount", "chmod")


def documents(count, seed=0):
    """Manual pages that share sentences: something to retrieve."""
    rng = np.random.default_rng(seed)
    sentences = [f"The {a}() call returns the {b} descriptor of process {i} after {c}() has failed with error {i * 7 % 50}."
                 for i, (a, b, c) in enumerate(rng.choice(COMMANDS, (120, 3)))]
    return [(f"page{n:03}.txt", f"page {n}\n\n" + " ".join(rng.choice(sentences, 14)) + "\n") for n in range(count)]


def tfidf(tokens, size):
    counts = np.zeros((len(tokens), size))
    for row, ids in zip(counts, tokens):
        np.add.at(row, ids, 1)
    counts *= np.log(len(tokens) / (1 + (counts > 0).sum(0)))
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def best(queries, store, k, forbidden=None):
    scores = queries @ store.T
    if forbidden is not None:
        scores[forbidden] = -2
    ids = np.argsort(-scores, 1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, 1)


def data_folder(folder, config, count=40):
    """The files that `prepare` would leave: tokenizer, collection, neighbours, validation documents."""
    docs = documents(count)
    train, valid = docs[: -count // 5], docs[-count // 5 :]
    (folder / "model").mkdir(parents=True)
    tokenizer.train((text for _, text in train), config.vocab_size).save(str(folder / "model/tokenizer.json"))
    vocabulary = tokenizer.Vocabulary(folder / "model/tokenizer.json")
    m, k = config.retro_chunk_length, config.retro_num_neighbors
    write_collection(folder / "collection", train, vocabulary, m, config.eod_token_id or 0)
    for part, chosen in (("train", train), ("valid", valid)):
        (folder / "documents" / part).mkdir(parents=True)
        for name, text in chosen:
            (folder / "documents" / part / name).write_text(text)
    collection = Collection(folder / "collection")
    store = tfidf(collection.tokens, config.vocab_size)
    same = collection.document[:, None] == collection.document
    write_neighbours(folder / "train.neighbours", *best(store, store, k, same), len(collection))
    encoded = [vocabulary.encode(text) for _, text in valid]
    queries = np.array([ids[at : at + m] for ids in encoded for at in range(0, len(ids) - m + 1, m)])
    write_neighbours(folder / "valid.neighbours", *best(tfidf(queries, config.vocab_size), store, k), len(collection))
    return vocabulary
