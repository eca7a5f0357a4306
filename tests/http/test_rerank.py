"""retrieval.reranker: what is found is put in the order of a cross-encoder; /v1/rerank asks it. The one here is tiny and
random: its order means nothing, and is checked against retro-eval rerank."""
import json
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, Server
from test_documents import call

RERANKER = ROOT / "tests/golden/reranker/bert"
QUERY = "how does the server stop"


@pytest.fixture(scope="module")
def served(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerank")
    server = Server(config, folder, f"retrieval.reranker={RERANKER}", "retrieval.rerank_candidates=6")
    yield server
    server.stop()


def search(server, **fields):
    return call(server, "POST", "/v1/retrieval/search", {"query": QUERY, **fields})["data"]


def relevances(texts, tmp_path):
    lines = tmp_path / "pairs.jsonl"
    lines.write_text("".join(json.dumps({"query": QUERY, "text": text}) + "\n" for text in texts))
    done = subprocess.run([BUILD / "retro-eval", "rerank", RERANKER, lines], capture_output=True, text=True, check=True)
    return [json.loads(line)["relevance"] for line in done.stdout.splitlines()]


def test_the_reranker_orders_what_is_found(served, tmp_path):
    nearest = search(served, k=6, rerank=False)
    assert all("relevance" not in hit for hit in nearest)
    want = dict(zip((hit["text"] for hit in nearest), relevances([hit["text"] for hit in nearest], tmp_path)))
    found = search(served, k=4)
    assert [hit["text"] for hit in found] == sorted(want, key=want.get, reverse=True)[:4]
    assert [hit["relevance"] for hit in found] == pytest.approx([want[hit["text"]] for hit in found], abs=1e-6)
    assert found == search(served, k=4, rerank=True)
    assert found == call(served, "GET", "/v1/retrieval/search?q=how+does+the+server+stop&k=4&rerank=true")["data"]
    assert {hit["text"] for hit in search(served, k=8)} == {hit["text"] for hit in search(served, k=8, rerank=False)}
    assert len(search(served, k=4, hybrid=True, per_document=1)) == 4


def test_answers_read_what_is_best(served):
    ask = {"prompt": QUERY, "max_tokens": 2, "temperature": 0}
    reply = served.post(ask | {"retrieval": {"mode": "prompt", "k": 2}}).json()
    assert all("relevance" in n for n in reply["retrieval"][-1]["neighbors"])
    plain = served.post(ask | {"retrieval": {"mode": "prompt", "k": 2, "rerank": False}}).json()
    assert all("relevance" not in n for n in plain["retrieval"][-1]["neighbors"])
    attended = served.post(ask | {"retrieval": {"mode": "attention", "k": 2}}).json()
    assert all("relevance" not in n for n in attended["retrieval"][-1]["neighbors"])


def test_rankings(served, tmp_path):
    texts = ["The server ends after SIGTERM.", "Cats purr.", "Rivers and lakes."]
    reply = call(served, "POST", "/v1/rerank", {"query": QUERY, "documents": texts})
    want = relevances(texts, tmp_path)
    assert reply["model"] == "bert"
    assert [r["relevance_score"] for r in reply["results"]] == pytest.approx(sorted(want, reverse=True), abs=1e-6)
    assert [r["index"] for r in reply["results"]] == sorted(range(3), key=lambda i: -want[i])
    assert reply["usage"]["total_tokens"] > 3 * len(QUERY.split())
    named = call(served, "POST", "/v1/rerank", {"query": QUERY, "documents": texts, "model": "bert", "top_n": 1})
    assert named["results"] == reply["results"][:1]
    cosines = call(served, "POST", "/v1/rerank", {"query": QUERY, "documents": texts, "model": "minilm"})
    assert cosines["model"] == "minilm" and cosines["results"] != reply["results"]
    models = {m["id"]: m["meta"]["role"] for m in call(served, "GET", "/v1/models")["data"]}
    assert models["bert"] == "reranker" and models["minilm"] == "embedder"
    assert call(served, "GET", "/v1/models/bert")["meta"]["role"] == "reranker"
    assert served.post({"input": "a", "model": "bert"}, "/v1/embeddings").status == 404


def test_the_configuration_says_whether_requests_rerank(config, tmp_path):
    server = Server(config, tmp_path, f"retrieval.reranker={RERANKER}", "retrieval.rerank=false")
    assert all("relevance" not in hit for hit in search(server))
    assert all("relevance" in hit for hit in search(server, rerank=True))
    assert server.request("GET", "/props").json()["retrieval"]["rerank"] is False
    server.stop()


def test_without_a_reranker(server):
    for path, body, param in (("/v1/retrieval/search", {"query": "x", "rerank": True}, "rerank"),
                              ("/v1/completions", {"prompt": "x", "retrieval": {"rerank": True}}, "retrieval.rerank")):
        reply = server.post(body, path)
        assert reply.status == 400 and reply.error()["code"] == "no_reranker" and reply.error()["param"] == param
    assert call(server, "POST", "/v1/retrieval/search", {"query": "x", "rerank": False})["data"]
    assert server.post({"query": "x", "rerank": 1}, "/v1/retrieval/search").error()["param"] == "rerank"


def test_tools_rerank_too(config, tmp_path):
    settings = json.loads(config.read_text())
    folder, questions = tmp_path / "collection", tmp_path / "questions.jsonl"
    shutil.copytree(settings["retrieval"]["collection"], folder)
    options = ["--config", config, "--set", f"retrieval.collection={folder}", "--set", f"retrieval.reranker={RERANKER}",
               "--set", "retrieval.rerank_candidates=5"]

    def run(*arguments):
        return subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=True).stdout

    plain = [json.loads(line) for line in run(BUILD / "retro-index", "search", "--json", "-k", 5, folder, QUERY).splitlines()]
    hits = [json.loads(line) for line in run(BUILD / "retro-index", "search", "--json", "-k", 5, *options, folder, QUERY).splitlines()]
    assert sorted(hit["text"] for hit in hits) == sorted(hit["text"] for hit in plain)
    assert [hit["relevance"] for hit in hits] == sorted((hit["relevance"] for hit in hits), reverse=True)

    questions.write_text(json.dumps({"question": QUERY, "documents": [plain[0]["path"]]}) + "\n")
    rows = [json.loads(line) for line in run(BUILD / "retro-eval", "retrieval", "--json", *options, questions).splitlines()]
    assert {row["way"] for row in rows} == {"vectors", "words", "hybrid", "reranked"}
    assert all(0 <= row["ndcg@10"] <= 1 for row in rows)


def test_a_nul_ends_no_text(config, tmp_path):
    """Neither of a document nor of a query, in the words that Qwen3-Reranker is asked in."""
    server = Server(config, tmp_path, f"retrieval.reranker={ROOT / 'tests/golden/reranker/qwen3'}")

    def score(query, document):
        reply = call(server, "POST", "/v1/rerank", {"query": query, "documents": [document]})
        return reply["results"][0]["relevance_score"], reply["usage"]["total_tokens"]

    short, long = score("a word", "some"), score("a word", "some\0 more words at the end")
    assert short[0] != long[0] and short[1] + 4 < long[1]
    assert score("a\0 word at the end", "some")[1] > short[1] + 2
    assert server.stop() == 0, server.log.read_text()
