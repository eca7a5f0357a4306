"""Retrieval while writing: which chunks are searched, when their neighbours are told, and what a request may change."""
import openai
import pytest

from conftest import MODEL, NEIGHBORS

PROMPT = "A chunk is closed by its last token, which"


def positions(n_prompt, n_rows, m=64):
    """Rows that close a chunk, with the grid aligned to the prompt's end."""
    first = n_prompt % m or m
    return list(range(first - 1, n_rows, m))


def test_every_closed_chunk_is_told(server):
    reply = server.complete(PROMPT, max_tokens=200, temperature=0, ignore_eos=True)
    n = reply["usage"]["prompt_tokens"]
    # The last token is written, never read: it closes nothing.
    assert [c["position"] for c in reply["retrieval"]] == positions(n, n + 199)
    assert [c["chunk"] for c in reply["retrieval"]] == list(range(len(reply["retrieval"])))
    for chunk in reply["retrieval"]:
        assert len(chunk["neighbors"]) == NEIGHBORS and chunk["index"] == 0
        for neighbor in chunk["neighbors"]:
            assert set(neighbor) == {"id", "document", "title", "start", "end", "page", "line", "heading", "similarity", "text"}
            assert neighbor["document"].endswith(".md") and neighbor["text"]
            assert 0 <= neighbor["start"] < neighbor["end"] and -1 <= neighbor["similarity"] <= 1
    by_vectors = server.complete(PROMPT, max_tokens=1, retrieval={"hybrid": False})["retrieval"][0]["neighbors"]
    similarities = [neighbor["similarity"] for neighbor in by_vectors]
    assert similarities == sorted(similarities, reverse=True)


def test_neighbors_are_ranked_as_searches_are(server):
    question = "Which option is OPENSSL_CONF beside, in retrieval.max_k?"
    place = lambda hit: (hit["document"], hit["start"])
    for hybrid in (False, True):
        found = server.post({"query": question, "k": NEIGHBORS, "hybrid": hybrid}, "/v1/retrieval/search").json()["data"]
        read = server.complete(question, max_tokens=1, retrieval={"hybrid": hybrid})["retrieval"][0]["neighbors"]
        assert list(map(place, read)) == list(map(place, found))
    usual = server.complete(question, max_tokens=1)["retrieval"][0]["neighbors"]
    assert usual == read and "max_k" in usual[0]["text"]


def test_long_prompts_retrieve_for_every_chunk(server):
    ids = [(11 * i) % 8000 + 100 for i in range(200)]
    reply = server.complete([ids], max_tokens=1)
    assert [c["position"] for c in reply["retrieval"]] == [7, 71, 135, 199]


def test_neighbours_come_before_the_tokens_that_read_them(server):
    stream = server.stream(PROMPT, max_tokens=150, temperature=0, logprobs=0, ignore_eos=True)
    whole = server.complete(PROMPT, max_tokens=150, temperature=0, ignore_eos=True)
    n, shown, told = whole["usage"]["prompt_tokens"], 0, []
    for event in stream:
        for chunk in event.get("retrieval", []):
            assert n + shown <= chunk["position"] or chunk["position"] < n
            told.append(chunk)
        for choice in event["choices"]:
            shown += len(choice["logprobs"]["tokens"]) if choice["logprobs"] else 0
    assert shown == 150
    assert told == whole["retrieval"] and len(told) >= 3


def test_off(server):
    ask = dict(max_tokens=80, temperature=0, logprobs=1)  # the most likely tokens may be the same ones
    reply = server.complete(PROMPT, **ask, retrieval={"enabled": False})
    assert reply["retrieval"] == []
    assert reply["choices"] != server.complete(PROMPT, **ask)["choices"]


def test_k_and_floor(server):
    one = server.complete(PROMPT, max_tokens=1, retrieval={"k": 1, "hybrid": False})["retrieval"]
    many = server.complete(PROMPT, max_tokens=1, retrieval={"k": 7, "hybrid": False})["retrieval"]
    assert len(one[0]["neighbors"]) == 1 and len(many[0]["neighbors"]) == 7
    assert one[0]["neighbors"] == many[0]["neighbors"][:1]
    floor = many[0]["neighbors"][3]["similarity"] + 1e-6
    near = server.complete(PROMPT, max_tokens=1, retrieval={"k": 7, "min_similarity": floor, "hybrid": False})["retrieval"]
    assert near[0]["neighbors"] == many[0]["neighbors"][:3]
    # Nothing near enough: the chunk is told, the model reads none, as if retrieval were off.
    ask = dict(max_tokens=40, temperature=0)
    none = server.complete(PROMPT, retrieval={"min_similarity": 1}, **ask)
    assert [c["neighbors"] for c in none["retrieval"]] == [[]]
    assert none["choices"] == server.complete(PROMPT, retrieval={"enabled": False}, **ask)["choices"]


def test_room_for_neighbours(start):
    """Cross attention has memory for as many as the model was trained with; searches and prompts take more."""
    served = start("retrieval.max_neighbors=0")
    ask = {"prompt": PROMPT, "max_tokens": 1}
    assert served.request("GET", "/props").json()["retrieval"]["max_k"] == NEIGHBORS
    assert len(served.complete(PROMPT, max_tokens=1, retrieval={"k": NEIGHBORS})["retrieval"][0]["neighbors"]) == NEIGHBORS
    more = NEIGHBORS + 1
    for field, fields in (("k", {"k": more}), ("k", {"k": more, "mode": "both"}), ("neighbors", {"neighbors": ["a"] * more})):
        refused = served.post(ask | {"retrieval": fields})
        error = refused.json()["error"]
        assert (refused.status, error["param"]) == (400, f"retrieval.{field}")
        assert error["message"] == f"{more} neighbours: cross attention has room for {NEIGHBORS} of a chunk (option retrieval.max_neighbors)"
    assert served.complete(PROMPT, max_tokens=1, retrieval={"k": 8, "mode": "prompt"})["retrieval"]
    assert len(served.post({"query": "stop the server", "k": 8}, "/v1/retrieval/search").json()["data"]) == 8
    # More that are usual make room for themselves.
    more = start("retrieval.max_neighbors=0", "retrieval.k=3")
    assert len(more.complete(PROMPT, max_tokens=1)["retrieval"][0]["neighbors"]) == 3


def test_the_caller_s_neighbours(server):
    texts = ["A process that ends leaves a zombie until its parent waits.", "x " * 500, ""]
    ask = dict(max_tokens=80, temperature=0, ignore_eos=True, logprobs=1)
    given = server.complete(PROMPT, retrieval={"neighbors": texts}, **ask)
    n = given["usage"]["prompt_tokens"]
    assert [c["position"] for c in given["retrieval"]] == positions(n, n + 79)
    for chunk in given["retrieval"]:
        assert [neighbor["text"] for neighbor in chunk["neighbors"]] == texts
        assert all(neighbor["document"] is None and neighbor["similarity"] is None for neighbor in chunk["neighbors"])
    assert given["choices"] == server.complete(PROMPT, retrieval={"neighbors": texts}, **ask)["choices"]
    assert given["choices"] != server.complete(PROMPT, retrieval={"neighbors": texts[:1]}, **ask)["choices"]


def test_through_the_openai_client(server):
    reply = server.client().completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=2, extra_body={"retrieval": {"neighbors": ["given"]}}
    )
    assert reply.retrieval[0]["neighbors"][0]["text"] == "given"


def test_search(server):
    found = server.post({"query": "how to stop the server", "k": 5}, "/v1/retrieval/search").json()["data"]
    assert len(found) == 5
    assert set(found[0]) == {"id", "document", "title", "start", "end", "page", "line", "heading", "similarity", "text", "chunk"}
    path = "/v1/retrieval/search?q=how+to%20stop+the+server&k=5"
    assert server.request("GET", path).json()["data"] == found
    near = server.post({"query": "how to stop the server", "k": 5, "min_similarity": 1}, "/v1/retrieval/search")
    assert near.json()["data"] == []
    # A chunk's own text finds that chunk.
    again = server.post({"query": found[2]["text"], "k": 1}, "/v1/retrieval/search").json()["data"]
    assert again[0]["chunk"] == found[2]["chunk"] and again[0]["similarity"] > 0.8
    for path in ("/v1/retrieval/search", "/v1/retrieval/search?q=x&k=0", "/v1/retrieval/search?q=x&k=99"):
        assert server.request("GET", path).error()["code"] in ("missing_parameter", "invalid_value")
    for field in ("q", "k", "min_similarity"):
        error = server.request("GET", f"/v1/retrieval/search?{'' if field == 'q' else 'q=x&'}{field}=%ff").error()
        assert error["param"] == field and error["message"] == f"{field} is not valid UTF-8"
    # A NUL is refused, and cuts nothing short.
    error = server.request("GET", "/v1/retrieval/search?q=x%00y").error()
    assert error["param"] == "q" and error["code"] == "invalid_value"
    with_nul = server.post({"query": "stop\0the server", "k": 1}, "/v1/retrieval/search").json()["data"]
    cut = server.post({"query": "stop", "k": 1}, "/v1/retrieval/search").json()["data"]
    assert with_nul[0]["similarity"] != cut[0]["similarity"]


@pytest.mark.parametrize("field", ["limit=3", "query=x", "top_k=3", "K=3", "k%00=3", "kk"])
def test_an_unknown_field_of_the_query_string(server, field):
    reply = server.request("GET", f"/v1/retrieval/search?q=x&{field}")
    error = reply.error()
    assert reply.status == 400
    if "%00" in field:
        assert error["code"] == "invalid_value"
        return
    name = field.split("=")[0]
    assert error["code"] == "unknown_parameter" and error["param"] == name
    assert error["message"] == f"unknown parameter {name}; known are k, min_similarity, hybrid, rerank, pictures, per_document, distinct, min_confidence, filter, boxes, explain, operators, q"


def test_a_field_given_twice(server):
    error = server.request("GET", "/v1/retrieval/search?q=x&k=1&k=2").error()
    assert error["code"] == "invalid_value" and error["message"] == "k is given more than once"


def test_without_a_collection(start):
    server = start("retrieval.collection=")
    assert server.health()["retrieval"] == "none"
    assert "no retrieval" in server.log.read_text()
    assert server.complete(PROMPT, max_tokens=4)["retrieval"] == []
    given = server.complete(PROMPT, max_tokens=4, retrieval={"neighbors": ["one"]})
    assert given["retrieval"][0]["neighbors"][0]["text"] == "one"
    with pytest.raises(openai.BadRequestError) as raised:
        server.client().completions.create(model=MODEL, prompt=PROMPT, extra_body={"retrieval": {"k": 1}})
    assert raised.value.code == "no_collection"
    assert server.request("GET", "/v1/retrieval/search?q=x").error()["code"] == "no_collection"


def test_on_request_only(start):
    server = start("retrieval.enabled=false")
    assert server.complete(PROMPT, max_tokens=4)["retrieval"] == []
    assert len(server.complete(PROMPT, max_tokens=4, retrieval={"enabled": True})["retrieval"]) == 1


def test_grid_from_the_start(start):
    server = start("retrieval.grid=start")
    assert server.complete(PROMPT, max_tokens=4)["retrieval"] == []
    ids = [(11 * i) % 8000 + 100 for i in range(100)]
    reply = server.complete([ids], max_tokens=60, ignore_eos=True)
    assert [c["position"] for c in reply["retrieval"]] == [63, 127]
