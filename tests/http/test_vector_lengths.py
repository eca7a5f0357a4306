"""/v1/embeddings of an embedder whose folder does not end in Normalize: sentence-transformers' vectors at their length; the
collection that it makes has vectors of unit length."""
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import BUILD, ROOT, Server

sys.path.insert(0, str(ROOT / "tests/import"))
import checkpoints  # noqa: E402

GOLDEN = ROOT / "tests/golden/embedder"
EMBEDDER = GOLDEN / "distilbert_old"
TEXTS = json.loads((GOLDEN / "texts.json").read_text())
SHORT = [i for i, text in enumerate(TEXTS) if 0 < len(text.split()) <= 3][:8]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lengths")
    config, collection = folder / "retro.json", folder / "collection"
    for i in SHORT:
        (folder / f"text{i}.txt").write_text(TEXTS[i])
    settings = {"embedder": str(EMBEDDER), "collection": str(collection)}
    config.write_text(json.dumps({"model": {"path": str(ROOT / "models/retro-docs")}, "retrieval": settings,
                                  "server": {"port": 0}}))
    command = [BUILD / "retro-index", "build", "--context", "0", "--out", collection, "--config", config, *folder.glob("text*.txt")]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def vectors(server, **fields):
    reply = server.post({"input": [TEXTS[i] for i in SHORT], **fields}, "/v1/embeddings")
    assert reply.status == 200, reply.body
    return np.array([one["embedding"] for one in reply.json()["data"]], "<f4")


def test_lengths_are_the_folders(server):
    want = checkpoints.read_safetensors(EMBEDDER / "expected.safetensors")["plain"].array[SHORT]
    got = vectors(server)
    assert np.abs(got - want).max() < 1e-3 * np.abs(want).max()
    assert np.abs(np.linalg.norm(got, axis=1) - 1).min() > 0.1
    assert (vectors(server, dimensions=8) == got[:, :8]).all()


def test_the_index_normalises(server):
    """A text that is in the collection is its own nearest by a cosine of 1."""
    reply = server.post({"query": TEXTS[SHORT[0]], "k": 2}, "/v1/retrieval/search")
    assert reply.status == 200, reply.body
    similarities = [hit["similarity"] for hit in reply.json()["data"]]
    assert abs(1 - similarities[0]) < 1e-3 and all(-1.001 <= s <= 1 for s in similarities), similarities
