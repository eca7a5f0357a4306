"""With the real retro-index: its neighbours against every vector compared, and preparation from a folder to files that agree."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import standin
from retro_train.config import ModelConfig
from retro_train.corpus import Filters
from retro_train.export import write_model
from retro_train.model import Retro
from retro_train.neighbours import Collection, chunk_queries, read_neighbours
from retro_train.prepare import Preparation, QuestionLimit, prepare
from retro_train.search import find_neighbours, search
from retro_train.tokenizer import Vocabulary, train
from retro_train.train import Run

MODEL = {"architecture": "retro", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 400,
         "max_position_embeddings": 64, "position_embedding_type": "learned_absolute", "activation": "gelu_tanh",
         "retro_layers": [2], "retro_chunk_length": 16, "retro_num_neighbors": 3, "eod_token_id": 0}
PAGE = "NAME\n       frob - turn the knobs of a file\n\nDESCRIPTION\n" + "".join(
    f"       -{letter}     set the {word} knob\n\n" for letter, word in zip("abcdefghijklmnopqrstuv", standin.COMMANDS * 2))


def index(build, *arguments):
    done = subprocess.run([str(build / "retro-index"), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory, build, deps):
    """A collection with exact search, whose vectors lie in a file, and one of FAISS."""
    path = tmp_path_factory.mktemp("pipeline")
    docs = standin.documents(12)
    docs[0] = (docs[0][0], docs[0][1] * 20)  # one document with more chunks than a first search brings
    (path / "docs").mkdir()
    for name, text in docs:
        (path / "docs" / name).write_text(text)
    (path / "model").mkdir()
    train((text for _, text in docs), 400).save(str(path / "model/tokenizer.json"))
    write_model(path / "model", Retro(ModelConfig.from_dict(MODEL)), None)
    config = {"model": {"path": str(path / "model")}, "retrieval": {"embedder": str(deps / "minilm")}}
    (path / "index.json").write_text(json.dumps(config))
    for name, factory in (("exact", "Exact"), ("flat", "Flat"), ("ivf", "IVF4,Flat")):
        index(build, "build", "--chunks", "grid", "--out", path / name, "--config", path / "index.json", "--index", factory, path / "docs")
    return path


def expected(vectors, queries, k, forbidden):
    scores = queries @ vectors.T
    scores[forbidden] = -2
    best = -np.sort(-scores, 1)[:, :k]
    return np.where(best > -2, best, -2)


@pytest.mark.parametrize("kind", ["exact", "flat"])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("k", [1, 5])
def test_neighbours_of_a_collection(home, build, tmp_path, kind, exclude, k):
    collection = Collection(home / kind)
    n = len(collection)
    vectors = np.fromfile(next((home / "exact").glob("gen-*/vectors.f32")), "<f4").reshape(n, -1)
    index(build, "neighbors", home / kind, "--k", k, *(["--exclude-same-document"] if exclude else []), "--out", tmp_path / "out")
    found = read_neighbours(tmp_path / "out")
    same = collection.document[:, None] == collection.document
    assert same.sum(1).max() > 40  # the first, narrow search is not enough for all
    assert found.n_chunks == n and found.ids.shape == (n, k)
    # Equal vectors exist, so similarities are compared and ids only by what they score.
    assert np.allclose(found.similarities, expected(vectors, vectors, k, same & exclude), atol=1e-5)
    scores = np.einsum("nd,nkd->nk", vectors, vectors[found.ids])
    assert np.allclose(scores, found.similarities, atol=1e-5)
    assert not exclude or (collection.document[found.ids] != collection.document[:, None]).all()


def test_fewer_neighbours_than_asked_for(home, build, tmp_path):
    collection = Collection(home / "exact")
    index(build, "neighbors", home / "exact", "--k", 500, "--exclude-same-document", "--out", tmp_path / "out")
    found = read_neighbours(tmp_path / "out")
    others = (collection.document[:, None] != collection.document).sum(1)
    assert ((found.ids >= 0).sum(1) == np.minimum(others, 500)).all()
    assert (found.similarities[found.ids < 0] == -2).all()


def test_an_inverted_file_gives_its_vectors_back(home, build, tmp_path):
    collection = Collection(home / "ivf")
    index(build, "neighbors", home / "ivf", "--k", 1, "--out", tmp_path / "out")
    assert np.allclose(read_neighbours(tmp_path / "out").similarities, 1, atol=1e-4)  # each chunk finds itself or its equal
    assert len(collection) == len(read_neighbours(tmp_path / "out").ids)


def test_neighbours_of_other_text(home, build, tmp_path):
    collection, vocabulary = Collection(home / "flat"), Vocabulary(home / "model/tokenizer.json")
    docs = [(f"docs/{name}", text) for name, text in standin.documents(12)[1:3]]
    queries, _ = chunk_queries(docs, vocabulary, 16)
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    common = ("neighbors", home / "flat", "--k", 2, "--queries", tmp_path / "q.jsonl", "--config", home / "index.json")
    index(build, *common, "--out", tmp_path / "out")
    found = read_neighbours(tmp_path / "out")
    assert len(found.ids) == len(queries) and np.allclose(found.similarities[:, 0], 1, atol=1e-3)
    index(build, *common, "--exclude-same-document", "--out", tmp_path / "out")
    names = [[collection.names[collection.document[i]] for i in row] for row in read_neighbours(tmp_path / "out").ids]
    assert all(q["document"] not in row for q, row in zip(queries, names))


def test_bad_queries_are_named(home, build, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"document": "a", "text": "b"}\n{"document": "a"}\n')
    done = subprocess.run([build / "retro-index", "neighbors", home / "flat", "--queries", tmp_path / "q.jsonl", "--out", tmp_path / "out",
                           "--config", home / "index.json"], capture_output=True, text=True)
    assert done.returncode == 1 and "q.jsonl:2" in done.stderr and not (tmp_path / "out").exists()


def test_prepare_a_folder(home, build, deps, tmp_path):
    (tmp_path / "docs/sub").mkdir(parents=True)
    for i, (name, text) in enumerate(standin.documents(20)):
        (tmp_path / "docs" / ("sub" if i % 2 else ".") / name.replace(".txt", ".md")).write_text(text)
    (tmp_path / "docs/picture.bin").write_bytes(b"\0" * 2000)
    (tmp_path / "docs/frob.txt").write_text(PAGE)
    model = MODEL | {"retro_chunk_length": 64, "max_position_embeddings": 128}  # in which a question has room
    run = Run(tmp_path / "run", {"model": model, "data": "data", "train": {"steps": 1}}, tmp_path)
    arguments = (run, tmp_path / "docs", build / "retro-index", {"embedder": deps / "minilm"}, Filters(held_out=0.2))
    prepare(*arguments, questions=QuestionLimit(4))
    report = json.loads((tmp_path / "data/corpus.json").read_text())
    assert report["train"]["documents"] + report["valid"]["documents"] + report["dropped"].get("repeats", 0) == 21
    assert report["dropped"]["unreadable"] == 1 and report["valid"]["documents"] >= 1
    collection = Collection(tmp_path / "data/collection")
    found = read_neighbours(tmp_path / "data/train.neighbours")
    assert found.ids.shape == (len(collection), 3)
    assert (collection.document[found.ids] != collection.document[:, None]).all()
    vocabulary = Vocabulary(tmp_path / "data/model/tokenizer.json")
    for number, name in enumerate(collection.names):  # the C tokenizer cut what this tokenizer cuts
        mine = collection.document == number
        ids = collection.tokens[mine].reshape(-1)[: collection.lengths[mine].sum()]
        assert np.array_equal(ids, vocabulary.encode((tmp_path / "data/documents" / Path(name)).read_text()))
    asked = np.fromfile(tmp_path / "data/questions.tokens", "<u4").reshape(-1, 64)
    answers = read_neighbours(tmp_path / "data/questions.neighbours")
    assert len(asked) == len(answers.ids) and answers.n_chunks == len(collection)
    assert any("frob" in collection.names[collection.document[i]] for i in answers.ids[:, 0])
    check_sources(tmp_path / "data", collection, asked, vocabulary)
    check_resumption(tmp_path / "data", arguments)


def test_torch_finds_what_retro_index_finds(build, deps, tmp_path):
    """The same chunks and questions, and neighbours as near, without retro-index's vectors."""
    (tmp_path / "docs").mkdir()
    for name, text in standin.documents(12):
        (tmp_path / "docs" / name).write_text(text)
    (tmp_path / "docs/frob.txt").write_text(PAGE)
    model, folders = MODEL | {"retro_chunk_length": 64, "max_position_embeddings": 128}, []
    for by_torch in (False, True):
        run = Run(tmp_path / "run", {"model": model, "data": str(by_torch), "train": {"steps": 1}}, tmp_path)
        prepare(run, tmp_path / "docs", build / "retro-index", {"embedder": deps / "minilm", "embedder_dtype": "f32"},
                Filters(held_out=0.2), questions=QuestionLimit(4), by_torch=by_torch)
        folders.append(run.data)
    assert not (folders[1] / "train.neighbours").exists()
    search(folders[1], deps / "minilm", 3, "cpu")
    first, second = (Collection(folder / "collection") for folder in folders)
    assert np.array_equal(first.tokens, second.tokens) and np.array_equal(first.starts, second.starts) and first.names == second.names
    for name in ("questions.tokens", "questions.sources"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    for name in ("train", "valid", "questions"):
        found, again = (read_neighbours(folder / f"{name}.neighbours") for folder in folders)
        assert found.ids.shape == again.ids.shape and np.allclose(found.similarities, again.similarities, atol=1e-4)
    asked_for_more = find_neighbours(torch.eye(3), torch.eye(3), 5, torch.tensor([0, 0, 1]))
    assert (asked_for_more[0] >= 0).sum(1).tolist() == [1, 1, 2] and (asked_for_more[1][asked_for_more[0] < 0] == -2).all()


def check_sources(data, collection, asked, vocabulary):
    """The chunk that has an answer has its first words, and so has the manual."""
    sources = np.fromfile(data / "questions.sources", "<i8")
    known = np.flatnonzero(sources >= 0)
    assert len(sources) == len(asked) and len(known) >= 2
    for row in known:
        answer = vocabulary.decode(asked[row + 1][asked[row + 1] != 0]).split()
        source = collection.neighbour_tokens(sources[row], 128)
        assert "frob" in collection.names[collection.document[sources[row]]]
        assert " ".join(answer[:2]) in " ".join(vocabulary.decode(source[source != 0]).split())


def check_resumption(data, arguments):
    """Behind the last whole stage, and only with the same settings."""
    state = json.loads((data / "prepared.json").read_text())
    assert state["whole"] == ["documents", "model", "collection", "neighbours", "validation", "questions"]
    (data / "prepared.json").write_text(json.dumps(state | {"whole": state["whole"][:-1]}))
    before, kept = (data / "questions.tokens").read_bytes(), data / "documents/kept"
    (data / "questions.tokens").write_bytes(b"half")
    kept.write_text("a document's stage would remove this")
    prepare(*arguments, questions=QuestionLimit(4))
    assert kept.exists() and (data / "questions.tokens").read_bytes() == before

    # A collection that was begun is left to retro-index, which goes on with it.
    unfinished = data / "collection/unfinished.vectors"
    unfinished.write_bytes(b"of an interrupted build")
    (data / "prepared.json").write_text(json.dumps(state | {"whole": state["whole"][:2], "begun": "collection"}))
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Preparation, "make_collection", lambda self: seen.append(unfinished.read_bytes()))
        prepare(*arguments, questions=QuestionLimit(4))
    assert seen == [b"of an interrupted build"]
    state["whole"].pop()
    (data / "prepared.json").write_text(json.dumps(state))
    prepare(*arguments)
    assert not kept.exists() and not (data / "questions.tokens").exists()
