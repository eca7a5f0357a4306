"""POST /embed_sparse, in the shape of Text Embeddings Inference, and input_type of /v1/embeddings."""
import json
import subprocess
import sys

import pytest

from conftest import BUILD, DEPS, ROOT, Server
from test_documents import call

sys.path.insert(0, str(ROOT / "tests/embedder"))
import sparse_folder  # noqa: E402

TEXTS = sparse_folder.TEXTS[:4]  # none is longer than the embedder reads


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    sparse_folder.make(folder / "xlm_sparse")
    config = folder / "retro.json"
    config.write_text(json.dumps({
        "model": {"path": str(ROOT / "models/retro-docs"),
                  "others": [{"path": str(folder / "xlm_sparse"), "role": "embedder"},
                             {"path": str(DEPS / "minilm"), "role": "embedder"}]},
        "retrieval": {"query_prompt": "query: "},
        "server": {"port": 0}}))
    server = Server(config, folder)
    server.embedder = folder / "xlm_sparse"
    yield server
    assert server.stop() == 0, server.log.read_text()


def test_a_collection_with_sparse_weights(served, tmp_path):
    """Documents come, change and go over HTTP, and are the same after a restart and a compaction."""
    config, folder = tmp_path / "retro.json", tmp_path / "collection"
    config.write_text(json.dumps({"model": {"path": str(ROOT / "models/retro-docs")},
                                  "retrieval": {"collection": str(folder), "embedder": str(served.embedder)},
                                  "server": {"port": 0}}))
    (tmp_path / "first.txt").write_text("Open the file and read the words of it.\n")
    subprocess.run([BUILD / "retro-index", "build", "--out", folder, "--context", "0", "--config", config,
                    tmp_path / "first.txt"], check=True, capture_output=True)
    server = Server(config, tmp_path)
    texts = {"fox": "The quick brown fox jumps over the lazy dog.", "model": "A small model copies the right words.",
             "file": "How do I list open files?"}
    for name, text in texts.items():
        call(server, "PUT", f"/v1/documents/{name}", {"text": text + " It is new.", "title": "", "metadata": {"of": name}})
        call(server, "PUT", f"/v1/documents/{name}", {"text": text, "title": "", "metadata": {"of": name}})

    def search(**more):
        asked = {"query": "list the open files", "k": 8, "explain": True, **more}
        return {hit["document"]: hit["worth"] for hit in call(server, "POST", "/v1/retrieval/search", asked)["data"]}

    found = search()
    assert len(found) == 4 and max(worth["sparse"] for worth in found.values()) == 1
    assert found["file"]["sparse"] == 1
    assert set(search(filter={"eq": {"of": "fox"}})) == {"fox"}
    assert all("sparse" not in (worth or {}) for worth in
               {hit["document"]: hit.get("worth") for hit in call(server, "POST", "/v1/retrieval/search", {
                   "query": "list the open files", "k": 8, "explain": True, "hybrid": False})["data"]}.values())
    call(server, "DELETE", "/v1/documents/fox")
    kept = search()
    assert set(kept) == set(found) - {"fox"}
    assert server.stop() == 0
    server = Server(config, tmp_path)
    assert search() == kept
    assert server.stop() == 0
    subprocess.run([BUILD / "retro-index", "compact", folder], check=True, capture_output=True)
    server = Server(config, tmp_path)
    assert {name: worth["sparse"] for name, worth in search().items()} == {name: worth["sparse"] for name, worth in kept.items()}
    assert server.stop() == 0, server.log.read_text()


def weights(reply):
    return [{str(w["index"]): w["value"] for w in row} for row in reply]


def test_weights_are_those_of_the_embedder(served):
    got = weights(call(served, "POST", "/embed_sparse", {"inputs": TEXTS, "model": "xlm_sparse"}))
    want = sparse_folder.weigh(served.embedder, TEXTS)
    assert [list(row) for row in got] == [list(row) for row in want] and any(want)
    assert all(row[token] == pytest.approx(wide[token], abs=1e-6) for row, wide in zip(got, want) for token in row)
    # Many texts go through the embedder in several parts.
    many = call(served, "POST", "/embed_sparse", {"inputs": TEXTS * 10, "model": "xlm_sparse"})
    assert weights(many) == got * 10


def test_one_text(served):
    asked = {"inputs": TEXTS[0], "truncate": False, "truncation_direction": "Right", "prompt_name": None}
    one = call(served, "POST", "/embed_sparse", asked)  # the first embedder
    assert one == call(served, "POST", "/embed_sparse", {"inputs": [TEXTS[0]], "model": "xlm_sparse"})
    assert [w["index"] for w in one[0]] == sorted(w["index"] for w in one[0])


def test_long_texts(served):
    long = "file " * 200
    reply = served.post({"inputs": long}, "/embed_sparse")
    assert reply.status == 400 and reply.error()["code"] == "context_length_exceeded" and reply.error()["param"] == "inputs"
    assert len(call(served, "POST", "/embed_sparse", {"inputs": long, "truncate": True})) == 1


@pytest.mark.parametrize("body, code, param", [
    ({"inputs": "a", "model": "minilm"}, "unsupported_model", "model"),
    ({"inputs": "a", "model": "none"}, "model_not_found", "model"),
    ({"inputs": ""}, "invalid_value", "inputs"),
    ({"inputs": []}, None, "inputs"),
    ({"inputs": [{"type": "text", "text": "a"}]}, None, "inputs"),
    ({"inputs": "a", "truncation_direction": "left"}, None, "truncation_direction"),
    ({"inputs": "a", "prompt_name": "x"}, None, "prompt_name"),
    ({}, None, "inputs"),
])
def test_refusals(served, body, code, param):
    reply = served.post(body, "/embed_sparse")
    assert reply.status == (404 if code == "model_not_found" else 400), reply.body
    assert reply.error()["param"] == param and (code is None or reply.error()["code"] == code)


def test_the_description_has_it(served):
    answer = call(served, "GET", "/openapi.json")["paths"]["/embed_sparse"]["post"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["type"] == "array"


def test_the_kind_of_input_chooses_the_prompt(served):
    """Of vectors and of sparse weights."""
    def embed(text, **more):
        return call(served, "POST", "/v1/embeddings", {"input": text, "model": "minilm", **more})["data"][0]["embedding"]
    prompted = embed("query: a pipe")
    assert embed("a pipe", input_type="query") == prompted
    assert embed("a pipe") == embed("a pipe", input_type="document") != prompted
    weighed = call(served, "POST", "/embed_sparse", {"inputs": "query: " + TEXTS[0]})
    assert call(served, "POST", "/embed_sparse", {"inputs": TEXTS[0], "prompt_name": "query"}) == weighed
    assert call(served, "POST", "/embed_sparse", {"inputs": TEXTS[0]}) != weighed
