"""The contents of a batch: chunks, neighbours and grids that agree with the collection's."""

import numpy as np
import pytest
import standin
from retro_train import data as module
from retro_train.config import ModelConfig
from retro_train.data import NeighbourOptions, TrainingData
from retro_train.neighbours import Collection, read_neighbours, write_neighbours

CONFIG = ModelConfig(architecture="retro", num_layers=2, hidden_size=32, num_attention_heads=2, vocab_size=400,
                     max_position_embeddings=64, position_embedding_type="learned_absolute", activation="gelu_tanh",
                     retro_layers=[2], retro_chunk_length=8, retro_num_neighbors=2, eod_token_id=0)
PLAIN = NeighbourOptions(short_first_chunk=0.5, drop_sequence=0, drop_chunk=0, self_share=0, self_end=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    standin.data_folder(path, CONFIG)
    return path


@pytest.fixture(scope="module")
def collection(folder):
    return Collection(folder / "collection")


@pytest.fixture(scope="module")
def found(folder):
    return read_neighbours(folder / "train.neighbours").ids


def make(collection, found, options=PLAIN, seed=3, batch=6):
    return TrainingData(collection, found, CONFIG, 32, batch, seed, options)


def test_collection_holds_every_document(folder, collection):
    from retro_train.tokenizer import Vocabulary

    vocabulary = Vocabulary(folder / "model/tokenizer.json")
    for number, name in enumerate(collection.names):
        mine = collection.document == number
        ids = collection.tokens[mine].reshape(-1)[: collection.lengths[mine].sum()]
        assert vocabulary.decode(ids) == (folder / "documents/train" / name).read_text()


def test_neighbour_is_a_chunk_and_its_continuation_in_the_document(collection):
    last = int(np.flatnonzero(collection.document == 0)[-1])
    tokens = collection.neighbour_tokens(np.array([0, last, -1]), 20)
    assert np.array_equal(tokens[0], collection.tokens[:3].reshape(-1)[:20])
    assert np.array_equal(tokens[1, :8], collection.tokens[last]) and (tokens[1, 8:] == 0).all()
    assert (tokens[2] == 0).all()
    end = len(collection) - 1
    assert (collection.neighbour_tokens(np.array([end]), 16)[0, 8:] == 0).all()


def test_rows_chunks_and_neighbours_agree(collection, found):
    data, stream = make(collection, found), collection.tokens.reshape(-1)
    grids = set()
    for step in range(5):
        b, chunks = data.batch(step, 0.0), data.first_chunks(step)
        for i, c in enumerate(chunks):
            f = int(b.f[i])
            grids.add(f == 8)
            start = (c + 1) * 8 - f
            assert np.array_equal(b.ids[i].numpy(), np.take(stream, range(start, start + 32), mode="wrap"))
            followed = np.take(stream, range(start + 1, start + 33), mode="wrap")
            padding = (b.ids[i].numpy() == 0) & (followed == 0)
            assert np.array_equal(b.targets[i].numpy(), np.where(padding, -1, followed))
            for j in range(4):
                store = (c + j) % len(collection)
                assert np.array_equal(b.neighbours[i, j].numpy(), collection.neighbour_tokens(found[store], 16))
    assert grids == {True, False}


def test_own_document_is_no_neighbour(collection, found):
    assert (collection.document[found] != collection.document[:, None]).all()


def test_an_epoch_visits_every_chunk_once(collection, found):
    data = make(collection, found, batch=1)
    slots = len(collection) // 4
    chunks = np.concatenate([(data.first_chunks(s)[:, None] + np.arange(4)).ravel() for s in range(slots)])
    assert len(np.unique(chunks % len(collection))) == slots * 4


def test_batches_are_a_function_of_seed_and_step(collection, found):
    a, b, other = make(collection, found), make(collection, found), make(collection, found, seed=4)
    first, again, third = (d.batch(7, 0.5).ids for d in (a, b, other))
    assert first.equal(again) and not first.equal(third)


def test_ranks_share_one_batch(collection, found):
    data = make(collection, found)
    whole, parts = data.batch(2, 0.1), [data.batch(2, 0.1, rank, 2) for rank in range(2)]
    for name in ("ids", "targets", "neighbours", "f", "counts", "periods"):
        import torch

        assert torch.cat([getattr(p, name) for p in parts]).equal(getattr(whole, name))


def test_dropout_and_self_neighbours_have_their_shares(collection, found):
    options = NeighbourOptions(drop_sequence=0.2, drop_chunk=0.1, self_share=0.4, self_end=0.1)
    data, plain = make(collection, found, options, batch=64), make(collection, found, batch=64)
    counts = np.concatenate([data.batch(s, 0.0).counts.numpy() for s in range(12)])
    dropped = (counts == 0).all(1)
    assert 0.15 < dropped.mean() < 0.25 and 0.07 < (counts[~dropped] == 0).mean() < 0.13
    for progress, share in ((0.0, 0.4), (0.6, 0.25), (0.9, 0.1)):
        changed = [(data.batch(s, progress).neighbours != plain.batch(s, progress).neighbours).any(-1).any(-1) for s in range(12)]
        assert abs(np.concatenate(changed).mean() - share) < 0.05


def test_phrases_repeat_and_the_text_goes_on(collection, found, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PHRASE", 4)
    options = NeighbourOptions(drop_sequence=0, drop_chunk=0, self_share=0, self_end=0, repeat_share=0.5)
    data, plain = make(collection, found, options, batch=64), make(collection, found, batch=64)
    stream, lengths, unchanged = collection.tokens.reshape(-1), set(), 0
    for step in range(4):
        b, before = data.batch(step, 0.0), plain.batch(step, 0.0)
        sequences = data.sequences(np.random.default_rng([3, 0, step]), step)
        data.repeat_phrases(step, sequences)
        assert not before.periods.any()
        for row in range(64):
            periods, ids, targets, places = (t[row] for t in (b.periods.numpy(), b.ids.numpy(), b.targets.numpy(), sequences.rows))
            assert np.array_equal(ids, stream[places[:-1]])
            if not periods.any() and np.array_equal(ids, before.ids[row].numpy()):
                assert b.targets[row].equal(before.targets[row]) and b.neighbours[row].equal(before.neighbours[row])
                unchanged += 1
                continue
            for i in np.flatnonzero(periods):
                length = periods[i]
                lengths.add(length)
                assert targets[i] == ids[i + 1 - length] == ids[i + 1 - 2 * length] and targets[i] > 0
                assert (targets[i - length : i] == -1).any() or periods[i - 1] == length
            # A chunk reads nothing that was found for text behind its first token's chunk.
            for j in range(1, 4):
                first = int(b.f[row]) + 8 * (j - 1)
                store = places[first] // 8 % len(collection)
                assert np.array_equal(b.neighbours[row, j].numpy(), collection.neighbour_tokens(found[store], 16))
    assert lengths == {1, 2, 3, 4} and 100 < unchanged < 160


def test_files_are_checked(tmp_path, found):
    write_neighbours(tmp_path / "x", found, np.zeros(found.shape), 5000)
    again = read_neighbours(tmp_path / "x")
    assert np.array_equal(again.ids, found) and again.n_chunks == 5000
    raw = (tmp_path / "x").read_bytes()
    for damaged in (raw[:-1], b"X" + raw[1:], raw[:10]):
        (tmp_path / "x").write_bytes(damaged)
        with pytest.raises(ValueError):
            read_neighbours(tmp_path / "x")


def test_neighbours_of_another_collection_are_refused(collection, found):
    with pytest.raises(ValueError, match="another collection"):
        make(collection, found[:-1])
