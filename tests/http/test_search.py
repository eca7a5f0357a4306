"""How hits are chosen: hybrid, per_document, distinct, in searches and in answers."""
import json
import shutil
import subprocess

import pytest

from conftest import BUILD, Server
from test_documents import call

NOTES = {
    "frobnicate": "The zorblax option of frobnicate turns the quiet mode on.",
    "twin": "The zorblax option of frobnicate turns the quiet mode on!",
    "other": "A page about something else entirely: rivers, lakes and seas.",
}


@pytest.fixture(scope="module")
def served(config, tmp_path_factory):
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
    assert all(hit["similarity"] >= 0.4 for hit in search(served, hybrid=True, min_similarity=0.4))
    assert search(served, hybrid=False) == search(served)


def test_operators(served):
    """Each hit has the phrase and none the excluded word, whichever list it is from, in documents of the log too."""
    found = lambda query, **fields: {hit["document"] for hit in search(served, query=query, operators=True, **fields)}
    assert found('"quiet mode"') >= {"frobnicate", "twin"}
    assert all("quiet mode" in hit["text"] for hit in search(served, query='"quiet mode" zorblax', operators=True))
    assert not found('"mode quiet" zorblax') & {"frobnicate", "twin"}
    assert not found("frobnicate -zorblax") & {"frobnicate", "twin"}
    assert {hit["document"] for hit in search(served, query="zorbl*", operators=True)[:2]} == {"frobnicate", "twin"}
    by_query = call(served, "GET", "/v1/retrieval/search?q=zorbl*&k=8&operators=true")["data"]
    assert by_query == search(served, query="zorbl*", operators=True)
    for query, words in (('"open', "without its end"), ("-only", "no word that is sought"), ("z*", "two characters"),
                         (" ".join(f"-w{i}" for i in range(2000)) + " x", "more than 8")):
        failed = call(served, "POST", "/v1/retrieval/search", {"query": query, "operators": True}, 400)
        assert words in failed["error"]["message"], failed


def test_answers_read_what_is_ranked_so(served):
    ask = {"prompt": "The zorblax option", "max_tokens": 2, "temperature": 0}
    for mode in ("attention", "prompt"):
        reply = served.post(ask | {"retrieval": {"mode": mode, "k": 2, "hybrid": True}}).json()
        assert {n["document"] for n in reply["retrieval"][-1]["neighbors"]} == {"frobnicate", "twin"}, mode
        reply = served.post(ask | {"retrieval": {"mode": mode, "k": 2, "hybrid": True, "distinct": 0.8, "filter": {"not": {"eq": {"id": "other"}}}}}).json()
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


def evaluate(config, questions, code=0):
    done = subprocess.run([BUILD / "retro-eval", "retrieval", "--json", "--config", config, questions], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else done.stderr


def test_questions_with_known_documents(served, config, tmp_path):
    first = served_hits(served, "how do I stop the server", per_document=1)
    second = served_hits(served, "zorblax", per_document=1)
    lines = [{"question": "how do I stop the server", "documents": first[:1], "kind": "a"},
             {"question": "how do I stop the server", "documents": [first[2]], "kind": "a"},
             {"question": "zorblax", "documents": second[:2], "exclude": ["nosuch"], "kind": "b"},
             {"question": "zorblax", "documents": second[:1], "exclude": second[:1], "kind": "c"}]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = json.loads(config.read_text())
    folder["retrieval"]["collection"] = served_collection(served)
    own = tmp_path / "retro.json"
    own.write_text(json.dumps(folder))
    rows = {(row["kind"], row["way"]): row for row in evaluate(own, file)}
    assert len(rows) == 12 and rows["all", "vectors"]["questions"] == 4
    near = rows["a", "vectors"]
    assert (near["recall@1"], near["recall@5"]) == (0.5, 1) and near["mrr@10"] == pytest.approx((1 + 1 / 3) / 2, abs=1e-4)
    assert near["ndcg@10"] == pytest.approx((1 + 0.5) / 2, abs=1e-4)
    assert rows["b", "vectors"]["ndcg@10"] == 1 and rows["b", "words"]["recall@1"] == 1
    assert rows["c", "hybrid"]["recall@10"] == 0

    file.write_text('{"question": "x"}\n')
    assert "questions.jsonl" in evaluate(own, file, 1) and "documents" in evaluate(own, file, 1)


def served_hits(server, query, **fields):
    return [hit["document"] for hit in search(server, query=query, **fields)]


def served_collection(server):
    return str(server.log.parent / "collection")
