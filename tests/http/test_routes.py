"""The routes beside completions: embeddings, rankings, tokenizers, operators' endpoints, several models, other origins,
and the description that is written from the tables which check requests."""
import base64
import json
import math
import re
import struct

import pytest

from conftest import CONTEXT, DEPS, MODEL, ROOT, Server

EMBEDDER = "minilm"


def vectors(reply):
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert answer["object"] == "list" and [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return [d["embedding"] for d in answer["data"]]


def embed(server, texts, **fields):
    return vectors(server.post({"input": texts, **fields}, "/v1/embeddings"))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


# Embeddings.


def test_vectors_have_unit_length_and_mean_something(server):
    cat, kitten, pipe = embed(server, ["a cat sleeps", "the kitten is asleep", "a pipe connects two processes"])
    assert len(cat) == 384 and all(abs(cosine(v, v) - 1) < 1e-5 for v in (cat, kitten, pipe))
    assert cosine(cat, kitten) > cosine(cat, pipe)


def test_company_changes_no_vector(server):
    texts = [f"text {'and more ' * (i % 7)}{i}" for i in range(40)]
    assert embed(server, texts)[17] == embed(server, texts[17])[0]


def test_base64_holds_the_same_floats(server):
    (floats,) = embed(server, "a cat")
    (text,) = embed(server, "a cat", encoding_format="base64")
    assert list(struct.unpack("<384f", base64.b64decode(text))) == pytest.approx(floats, abs=1e-7)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 100, 384])
def test_shorter_vectors_have_unit_length_too(server, dimensions):
    (whole,), (short,) = embed(server, "a cat"), embed(server, "a cat", dimensions=dimensions)
    assert len(short) == dimensions
    length = math.sqrt(cosine(whole[:dimensions], whole[:dimensions]))
    assert short == pytest.approx([x / length for x in whole[:dimensions]], abs=1e-6)
    (text,) = embed(server, "a cat", dimensions=dimensions, encoding_format="base64")
    assert struct.unpack(f"<{dimensions}f", base64.b64decode(text)) == pytest.approx(short, abs=1e-7)


def test_token_ids_are_embedded_as_their_text(server):
    ids = server.post({"prompt": "a cat sleeps", "model": EMBEDDER}, "/tokenize").json()["tokens"]
    bare = server.post({"content": "a cat sleeps", "model": EMBEDDER}, "/tokenize").json()["tokens"]
    assert ids[1:-1] == bare
    assert embed(server, [ids])[0] == embed(server, bare)[0] == embed(server, "a cat sleeps")[0]


def test_ids_of_another_vocabulary_are_refused(server):
    """LangChain tokenizes for OpenAI's models unless it is told not to: these are cl100k's ids of "The cat, then"."""
    reply = server.post({"input": [[791, 8415, 11, 1243]]}, "/v1/embeddings")
    assert reply.status == 400 and "check_embedding_ctx_length=False" in reply.error()["message"]


@pytest.mark.parametrize("body, param", [
    ({}, "input"), ({"input": None}, "input"), ({"input": []}, "input"), ({"input": ""}, "input"), ({"input": 3}, "input"),
    ({"input": ["a", ""]}, "input"), ({"input": ["a", 1]}, "input"), ({"input": [[]]}, "input"),
    ({"input": [30522]}, "input"), ({"input": [-1]}, "input"), ({"input": {"text": "a"}}, "input"),
    ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": 385}, "dimensions"),
    ({"input": "a", "dimensions": 2.5}, "dimensions"), ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
    ({"input": "a", "encoding_format": 1}, "encoding_format"), ({"input": "word " * 300}, "input"),
    ({"input": "a", "input_type": "x"}, "input_type"), ({"input": "a", "inputs": "a"}, "inputs"),
])
def test_wrong_inputs_are_refused_by_name(server, body, param):
    reply = server.post(body, "/v1/embeddings")
    assert reply.status == 400 and reply.error()["param"] == param


def test_the_client_reads_base64_by_itself(server):
    with server.client() as client:
        reply = client.embeddings.create(model=EMBEDDER, input=["a cat", "a dog"])
        assert reply.usage.prompt_tokens == 8
        assert reply.data[0].embedding == pytest.approx(embed(server, "a cat")[0], abs=1e-7)


def test_every_null_is_absent(server):
    nulls = dict.fromkeys(["model", "encoding_format", "dimensions", "user", "input_type"])
    assert embed(server, "a cat", **nulls) == embed(server, "a cat")


# Rankings.


def test_documents_are_ranked_by_cosine(server):
    texts = ["stocks fell", "the cat sat on the mat", "kittens play"]
    reply = server.post({"query": "cats", "documents": [texts[0], {"text": texts[1]}, texts[2]], "return_documents": True},
                        "/v1/rerank").json()
    scores = [r["relevance_score"] for r in reply["results"]]
    assert scores == sorted(scores, reverse=True) and {r["index"] for r in reply["results"]} == {0, 1, 2}
    query, *documents = embed(server, ["cats", *texts])
    for result in reply["results"]:
        assert result["document"]["text"] == texts[result["index"]]
        assert result["relevance_score"] == pytest.approx(cosine(query, documents[result["index"]]), abs=1e-5)
    two = server.post({"query": "cats", "documents": texts, "top_n": 2}, "/v1/rerank").json()["results"]
    assert [r["index"] for r in two] == [r["index"] for r in reply["results"][:2]] and "document" not in two[0]


@pytest.mark.parametrize("body, param", [
    ({"documents": ["a"]}, "query"), ({"query": "a"}, "documents"), ({"query": "a", "documents": []}, "documents"),
    ({"query": "a", "documents": [1]}, "documents"), ({"query": "a", "documents": [{"title": "x"}]}, "documents"),
    ({"query": 1, "documents": ["a"]}, "query"), ({"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
])
def test_wrong_rankings_are_refused_by_name(server, body, param):
    reply = server.post(body, "/v1/rerank")
    assert reply.status == 400 and reply.error()["param"] == param


# Tokenizers: lm-eval's remote tokenizer sends exactly these.


def test_tokens_go_there_and_back(server):
    info = server.request("GET", "/tokenizer_info").json()
    assert info["eos_token"] == "<|endoftext|>" and info["bos_token"] is None and "Question: " in info["chat_template"]
    for text in ("The fork() call", "", "naïve Œuvre 漢字 🙂", "a\0b", " <|endoftext|> "):
        tokens = server.post({"prompt": text, "add_special_tokens": False}, "/tokenize").json()
        assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == CONTEXT
        assert server.post({"tokens": tokens["tokens"]}, "/detokenize").json()["prompt"] == text
    eos = server.post({"prompt": info["eos_token"], "add_special_tokens": False}, "/tokenize").json()["tokens"]
    assert eos == [info["eos_token_id"]]
    plain = server.post({"content": info["eos_token"], "parse_special": False}, "/tokenize").json()["tokens"]
    assert len(plain) > 1


def test_pieces_make_up_the_text(server):
    reply = server.post({"content": "a pipe", "with_pieces": True}, "/tokenize").json()
    assert "".join(t["piece"] for t in reply["tokens"]) == "a pipe"
    strings = server.post({"prompt": "a pipe", "return_token_strs": True}, "/tokenize").json()["token_strs"]
    assert strings == [t["piece"] for t in reply["tokens"]]


@pytest.mark.parametrize("path, body, param", [
    ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 1}, "prompt"), ("/tokenize", {"prompt": ["a"]}, "prompt"),
    ("/tokenize", {"prompt": "a", "content": "a"}, "content"), ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"), ("/detokenize", {"tokens": [8192]}, "tokens"),
    ("/detokenize", {"tokens": [-1]}, "tokens"), ("/detokenize", {"tokens": [1.5]}, "tokens"),
])
def test_wrong_tokens_are_refused_by_name(server, path, body, param):
    reply = server.post(body, path)
    assert reply.status == 400 and reply.error()["param"] == param


# Several models.


@pytest.fixture(scope="module")
def others(config, tmp_path_factory):
    rows = [{"path": str(ROOT / "models" / MODEL), "name": "second"},
            {"path": str(DEPS / "minilm"), "name": "embedder two", "role": "embedder"}]
    running = Server(config, tmp_path_factory.mktemp("others"), f"model.others={json.dumps(rows)}")
    yield running
    assert running.stop() == 0, running.log.read_text()


def test_the_name_chooses_the_model(others):
    listed = {m["id"]: m["meta"]["role"] for m in others.request("GET", "/v1/models").json()["data"]}
    assert listed == {MODEL: "decoder", "second": "decoder", EMBEDDER: "embedder", "embedder two": "embedder"}
    ask = {"prompt": "A pipe", "max_tokens": 8, "temperature": 0, "retrieval": {"enabled": False}}
    first, second = (others.post({**ask, **named}).json() for named in ({}, {"model": "second"}))
    assert (first["model"], second["model"]) == (MODEL, "second")
    assert first["choices"] == second["choices"]
    assert others.post({**ask, "retrieval": {"enabled": True}, "model": "second"}).error()["code"] == "no_collection"
    assert embed(others, "a cat", model="embedder two") == embed(others, "a cat")
    assert others.request("GET", "/v1/models/embedder%20two").json()["meta"]["n_embd"] == 384


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"}), ("/tokenize", {"prompt": "a"}),
    ("/v1/rerank", {"query": "a", "documents": ["a"]}), ("/detokenize", {"tokens": [1]}),
])
def test_an_unknown_model_is_404_with_the_known_names(others, path, body):
    reply = others.post({**body, "model": "gpt-4"}, path)
    error = reply.error()
    assert reply.status == 404 and error["code"] == "model_not_found" and error["param"] == "model"
    assert all(f"'{name}'" in error["message"] for name in (MODEL, "second", EMBEDDER, "embedder two"))


def test_a_model_of_another_kind_is_404(others):
    for path, body in (("/v1/completions", {"prompt": "a", "model": EMBEDDER}), ("/v1/embeddings", {"input": "a", "model": MODEL})):
        reply = others.post(body, path)
        assert reply.status == 404 and "those that do are" in reply.error()["message"]


# Operators.


def parse_metrics(text):
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_0-9]+ .+", line), line
            continue
        found = re.fullmatch(r'([a-z_0-9]+(?:\{(?:[a-z_]+="[^"]*",?)*\})?) ([-+0-9.e]+)', line)
        assert found, line
        assert found[1] not in values, line
        values[found[1]] = float(found[2])
    return values


def test_metrics_count_what_was_done(start):
    server = start()
    server.complete("The fork() system call " * 20, max_tokens=5, ignore_eos=True)
    server.post({"prompt": 1})
    server.wait_until(lambda h: h["running"] == 0, 20)
    # A request is counted when its connection has done with it, which may be after the client has the answer.
    counted = {f'retro_http_requests_total{{path="/v1/completions",code="{code}"}}': 1 for code in (200, 400)}
    server.wait_until(lambda h: counted.keys() <= parse_metrics(server.request("GET", "/metrics").body.decode()).keys(), 60)
    reply = server.request("GET", "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    values = parse_metrics(reply.body.decode())
    assert counted.items() <= values.items()
    model = f'model_name="{MODEL}"'
    assert values[f"retro_generation_tokens_total{{{model}}}"] == 5
    assert values[f'retro_request_success_total{{{model},finished_reason="length"}}'] == 1
    for name, count in (("time_to_first_token", 1), ("time_per_output_token", 4), ("e2e_request_latency", 1),
                        ("request_queue_time", 1)):
        assert values[f"retro_{name}_seconds_count{{{model}}}"] == count
        assert values[f'retro_{name}_seconds_bucket{{{model},le="+Inf"}}'] == count
    for phase in ("queue", "embed", "search"):
        assert values[f'retro_retrieval_seconds_count{{{model},phase="{phase}"}}'] >= 1
    assert values[f"retro_kv_blocks_used{{{model}}}"] == 0 < values[f"retro_kv_blocks{{{model}}}"]
    buckets = [v for k, v in values.items() if k.startswith(f"retro_e2e_request_latency_seconds_bucket{{{model}")]
    assert buckets == sorted(buckets)


def test_probes_answer(server):
    for path in ("/livez", "/readyz", "/health"):
        assert server.request("GET", path).json()["status"] == "ok"
        assert server.request("HEAD", path).body == b""
    assert re.fullmatch(r"\d+\.\d+\.\d+", server.request("GET", "/version").json()["version"])
    props = server.request("GET", "/props").json()
    assert props["total_slots"] == 8 and props["default_generation_settings"]["params"]["temperature"] == 1
    cache = props["prefix_cache"]
    assert cache["block_tokens"] > 0 < cache["block_bytes"] and 0 <= cache["blocks"] <= cache["max_blocks"] > 0
    assert "Question: " in props["chat_template"]


# Other origins.


def test_options_tell_the_methods(server):
    for path, methods in (("/v1/models", "GET, HEAD, OPTIONS"), ("/v1/completions", "POST, OPTIONS"),
                          ("/v1/retrieval/search", "GET, HEAD, POST, OPTIONS")):
        reply = server.request("OPTIONS", path)
        assert reply.status == 204 and reply.body == b"" and reply.headers["Allow"] == methods
        assert server.request("PATCH", path).headers["Allow"] == methods
    assert server.request("OPTIONS", "/nothing").status == 404
    assert server.request("OPTIONS", "*").status == 204


def test_no_origin_is_allowed_unasked(server):
    reply = server.request("GET", "/v1/models", headers={"Origin": "https://a.example"})
    assert not [h for h in reply.headers if h.lower().startswith("access-control")]


def test_listed_origins_are_allowed(start):
    server = start('server.cors_origins=["https://a.example"]')
    for method, path in (("GET", "/v1/models"), ("OPTIONS", "/v1/completions"), ("POST", "/v1/completions"), ("GET", "/x")):
        allowed = server.request(method, path, headers={"Origin": "https://a.example"})
        assert allowed.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "Origin" in allowed.headers["Vary"] and "Access-Control-Allow-Credentials" not in allowed.headers
        other = server.request(method, path, headers={"Origin": "https://b.example"})
        assert other.headers["Access-Control-Allow-Origin"] is None and "Origin" in other.headers["Vary"]
    preflight = server.request("OPTIONS", "/v1/completions", headers={
        "Origin": "https://a.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,authorization"})
    assert preflight.status == 204 and "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert {"Authorization", "Content-Type"} <= set(preflight.headers["Access-Control-Allow-Headers"].split(", "))


# The description.


def test_the_description_has_every_field(server):
    paths = server.request("GET", "/openapi.json").json()["paths"]
    body = paths["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    known = server.post({"prompt": "a", "unknown": 1}).error()["message"].split("known are ")[1].split(", ")
    assert set(known) <= set(body["properties"]) and body["required"] == ["prompt"]
    assert body["properties"]["logprobs"]["maximum"] == 20 and body["additionalProperties"] is False
    for path, operations in paths.items():
        url = path.replace("{id}", MODEL)
        wanted = sorted(server.request("OPTIONS", url).headers["Allow"].replace(", HEAD", "").lower().split(", ")[:-1])
        assert sorted(operations) == wanted, path
