"""How hits are chosen: hybrid, per_document, distinct, in searches and in answers."""
import json
import shutil

import pytest

from test_documents import call

NOTES = {
    "frobnicate": "The zorblax option of frobnicate turns the quiet mode on.",
    "twin": "The zorblax option of frobnicate turns the quiet mode on!",
    "other": "A page about something else entirely: rivers, lakes and seas.",
}


@pytest.fixture(scope="module")
def served(config, tmp_path_factory):
    from conftest import Server
    folder = tmp_path_factory.mktemp("search")
    shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], folder / "collection")
    server = Server(config, folder, f"retrieval.collection={folder / 'collection'}")
    for name, text in NOTES.items():
        call(server, "PUT", f"/v1/documents/{name}", {"path": name, "text": text})
    yield server
    server.stop()


def search(server, **fields):
    return call(server, "POST", "/v1/retrieval/search", {"query": "zorblax", "k": 8, **fields})["data"]


def test_a_rare_word_is_found(served):
    """Its letters say nothing to an embedder; the rank of words has nothing else."""
    hybrid = search(served, hybrid=True)
    assert {hit["document"] for hit in hybrid[:2]} == {"frobnicate", "twin"}
    assert hybrid == search(served, hybrid=True)
    by_query = call(served, "GET", "/v1/retrieval/search?q=zorblax&k=8&hybrid=true&per_document=8")["data"]
    assert by_query == hybrid
    assert all(hit["distance"] <= 0.6 for hit in search(served, hybrid=True, min_similarity=0.4))
    assert search(served, hybrid=False) == search(served)


def test_answers_read_what_is_ranked_so(served):
    ask = {"prompt": "The zorblax option", "max_tokens": 2, "temperature": 0}
    for mode in ("attention", "prompt"):
        reply = served.post(ask | {"retrieval": {"mode": mode, "k": 2, "hybrid": True}}).json()
        assert {n["document"] for n in reply["retrieval"][-1]["neighbors"]} == {"frobnicate", "twin"}, mode
        reply = served.post(ask | {"retrieval": {"mode": mode, "k": 2, "hybrid": True, "distinct": 0.95, "filter": {"not": {"eq": {"id": "other"}}}}}).json()
        found = [n["document"] for n in reply["retrieval"][-1]["neighbors"]]
        assert len(found) == 2 and len({"frobnicate", "twin"} & set(found)) == 1, mode


def test_few_of_each_document(served):
    found = [hit["document"] for hit in search(served, query="the server and its options", k=16, per_document=1)]
    assert len(found) == len(set(found)) > 4
    assert len({hit["document"] for hit in search(served, query="the server and its options", k=16)}) < len(found)


def test_wrong_fields(served):
    for fields, param in (({"hybrid": 1}, "hybrid"), ({"per_document": -1}, "per_document"), ({"distinct": 2}, "distinct")):
        assert call(served, "POST", "/v1/retrieval/search", {"query": "x", **fields}, expect=400)["error"]["param"] == param
    error = call(served, "POST", "/v1/completions", {"prompt": "x", "retrieval": {"neighbors": ["a"], "hybrid": True}}, expect=400)["error"]
    assert "retrieval.neighbors" == error["param"]
