"""Tokens guessed ahead of their rows: no answer differs by a byte, and what is told of them."""
import concurrent.futures
import json
import random

import pytest
from conftest import ROOT, Server
from test_prefixes import metric

PLAIN = {"temperature": 0, "retrieval": {"enabled": False}}
TEXT = "The table of open files lists each file once. The table of open files lists each file once. The table"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}


def total(server, name):
    return metric(server, f"retro_{name}_tokens_total")


def details(reply):
    return reply["usage"]["completion_tokens_details"]


def untimed(reply):
    """All of an answer but its name, its time, and what was counted on the way."""
    return {key: value for key, value in reply.items() if key not in ("id", "created", "usage")}


@pytest.fixture(scope="module")
def pair(config, tmp_path_factory):
    """A server that drafts wherever it can and one that does not."""
    folder = tmp_path_factory.mktemp("drafts")
    servers = [Server(config, folder, f"server.drafts={drafts}", "server.max_sequences=6") for drafts in ("always", "off")]
    yield servers
    for server in servers:
        assert server.stop() == 0, server.log.read_text()


def test_an_answer_that_repeats_is_drafted(start):
    server = start("server.drafts=always")
    reply = server.complete(TEXT, max_tokens=200, ignore_eos=True, **PLAIN)
    steps = server.health()["steps"]
    drafted, accepted = total(server, "drafted"), total(server, "accepted_drafted")
    assert 0 < accepted <= drafted
    assert steps < reply["usage"]["completion_tokens"] - accepted + 5
    told = details(reply)
    assert 0 < told["accepted_drafted_tokens"] <= told["drafted_tokens"] <= reply["usage"]["completion_tokens"]
    assert told["accepted_prediction_tokens"] == told["rejected_prediction_tokens"] == 0


def test_off_guesses_nothing(pair):
    reply = pair[1].complete(TEXT, max_tokens=60, ignore_eos=True, **PLAIN)
    assert set(details(reply).values()) == {0}
    assert total(pair[1], "drafted") == total(pair[1], "accepted_drafted") == 0


def changed(text, generator):
    """The text with some of its words changed."""
    words = text.split(" ")
    for _ in range(generator.randrange(4)):
        words[generator.randrange(len(words))] = generator.choice(["file", "bridge", "", "Ärger 🙂"])
    return " ".join(words)


def random_request(generator, texts):
    prompt = generator.choice(texts)[: generator.randrange(20, 300)]
    request = {"prompt": prompt if generator.random() < 0.5 else prompt + "\n" + prompt[: generator.randrange(1, 80)],
               "max_tokens": generator.randrange(1, 70), "seed": generator.randrange(5)}
    request["temperature"] = generator.choice([0, 0, 0.3, 1])
    request["retrieval"] = generator.choice([{"enabled": False}, {}, {"k": 1}, {"attention": "tokens"}, {"mode": "prompt"},
                                              {"mode": "prompt", "every": 9}, {"neighbors": ["A bridge is long. " * 9]}])
    for chance, field in ((0.3, {"ignore_eos": True}), (0.2, {"logprobs": 3}), (0.15, {"presence_penalty": 0.7}),
                          (0.15, {"repetition_penalty": 1.3}), (0.15, {"no_repeat_ngram_size": 4}), (0.2, {"n": 2}),
                          (0.15, {"stop": ["file", "\n\n"]}), (0.1, {"min_tokens": 20}), (0.1, {"echo": True}),
                          (0.15, {"logit_bias": {"11": 3.5, "100": -4}}), (0.1, {"return_token_ids": True}),
                          (0.15, {"response_format": {"type": "json_schema",
                                                      "json_schema": {"name": "x", "schema": SCHEMA}}})):
        if generator.random() < chance:
            request.update(field)
    return request


def drop_refused(server, requests):
    """Requests whose fields do not go together are refused alike by both."""
    return [request for request in requests if server.post(dict(request, max_tokens=1)).status == 200]


def test_no_answer_differs(pair):
    """Random requests, six at a time: the second time each expects an edit of its own first answer."""
    generator = random.Random(1)
    texts = [path.read_text() for path in sorted((ROOT / "tests/texts").glob("*.md"))]
    requests = drop_refused(pair[1], [random_request(generator, texts) for _ in range(50)])
    assert len(requests) > 30
    for _ in range(2):
        replies = []
        for server in pair:
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                replies.append(list(pool.map(lambda request: server.post(request).json(), requests)))
        for request, drafted, plain in zip(requests, *replies):
            assert untimed(drafted) == untimed(plain), request
        for request, reply in zip(requests, replies[1]):
            content = changed(reply["choices"][0]["text"], generator)
            request["prediction"] = {"type": "content", "content": content}
    assert total(pair[0], "accepted_drafted") > 100
    assert total(pair[0], "drafted") - total(pair[0], "accepted_drafted") > 50


def test_streams_do_not_differ(pair):
    body = {"max_tokens": 120, "ignore_eos": True, "stream_options": {"include_usage": True}, **PLAIN}
    before = total(pair[0], "accepted_drafted")
    texts = []
    for server in pair:
        events = list(server.stream(TEXT, **body))
        texts.append("".join(event["choices"][0]["text"] for event in events if event["choices"]))
    assert texts[0] == texts[1] and total(pair[0], "accepted_drafted") > before


def test_a_text_that_is_expected(pair):
    prompt = "A bridge is"
    plain = pair[1].complete(prompt, max_tokens=80, ignore_eos=True, **PLAIN)
    text = plain["choices"][0]["text"]
    for content in (text, [{"type": "text", "text": text[:40]}, {"type": "text", "text": text[40:]}]):
        reply = pair[0].complete(prompt, max_tokens=80, ignore_eos=True,
                                 prediction={"type": "content", "content": content}, **PLAIN)
        assert reply["choices"] == plain["choices"]
        assert details(reply)["accepted_prediction_tokens"] >= 60
    wrong = pair[0].complete(prompt, max_tokens=80, ignore_eos=True,
                             prediction={"type": "content", "content": "Nothing of this is right. " * 9}, **PLAIN)
    assert wrong["choices"] == plain["choices"]
    assert details(wrong)["rejected_prediction_tokens"] > 0


def test_neighbors_of_a_foretold_chunk_are_looked_for_ahead(pair):
    """Chunks that end as they were foretold, and chunks that end otherwise after their lookup was asked for."""
    body = {"max_tokens": 200, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
    plain = pair[1].complete("A bridge is", **body)
    words = plain["choices"][0]["text"].split(" ")
    before = [metric(pair[0], f"retro_lookups_ahead_{kind}total") for kind in ("", "used_")]
    for edited in (words, [word if i % 23 else "bridges" for i, word in enumerate(words)]):
        prediction = {"type": "content", "content": " ".join(edited)}
        reply = pair[0].complete("A bridge is", prediction=prediction, **body)
        assert reply["choices"] == plain["choices"] and reply["retrieval"] == plain["retrieval"]
    after = [metric(pair[0], f"retro_lookups_ahead_{kind}total") for kind in ("", "used_")]
    asked, used = after[0] - before[0], after[1] - before[1]
    assert 0 < used < asked, (used, asked)


def test_counts_depend_on_nobody_else(pair):
    """What usage tells of drafts is the same alone and in company."""
    body = {"max_tokens": 90, "ignore_eos": True, "seed": 4, "retrieval": {"enabled": False}}
    alone = pair[0].complete(TEXT, **body)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        others = [pool.submit(pair[0].complete, f"{i} " * 30, **body) for i in range(5)]
        again = pool.submit(pair[0].complete, TEXT, **body).result()
        assert all(other.result() for other in others)
    assert details(again) == details(alone)
    assert again["choices"] == alone["choices"]


@pytest.mark.parametrize("prediction", ["text", {"content": "x"}, {"type": "content", "content": 3},
                                        {"type": "content", "content": [{"type": "image"}]},
                                        {"type": "content", "content": "x", "more": 1}])
def test_predictions_of_other_forms_are_refused(pair, prediction):
    reply = pair[0].post({"prompt": "A", "max_tokens": 1, "prediction": prediction})
    assert reply.status == 400 and reply.error()["param"] == "prediction"


def test_a_prediction_is_text(pair):
    """Marks in it are characters, and a long one costs no more than reading it."""
    reply = pair[0].complete("A", max_tokens=5, prediction={"type": "content", "content": "<|endoftext|>" * 20000}, **PLAIN)
    assert reply["choices"] == pair[1].complete("A", max_tokens=5, **PLAIN)["choices"]


def test_on_drafts_only_what_pays(pair, start):
    """The answers are the same whatever the clock says; which guesses were computed is not."""
    server = start()
    for fields in (PLAIN, {"temperature": 1, "seed": 3}):
        body = {"max_tokens": 120, "ignore_eos": True, **fields}
        assert untimed(server.complete(TEXT, **body)) == untimed(pair[1].complete(TEXT, **body))


@pytest.mark.parametrize("ranks", [("parallel.tensor=2",), ("parallel.pipeline=2", "parallel.micro_batch_rows=4")])
def test_ranks_draft_alike(start, ranks):
    """The other ranks compute guesses like any rows, and are not told which of them were right."""
    ranked = [start(f"server.drafts={drafts}", "parallel.comm=threads", *ranks) for drafts in ("always", "off")]
    for fields in ({"retrieval": {"enabled": False}}, {}):
        body = {"max_tokens": 100, "ignore_eos": True, "temperature": 0, **fields}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            replies = [list(pool.map(lambda n, s=server: s.complete(TEXT[n:], **body), range(0, 40, 10))) for server in ranked]
        assert [untimed(reply) for reply in replies[0]] == [untimed(reply) for reply in replies[1]]
    assert total(ranked[0], "accepted_drafted") > 20


def test_a_client_that_leaves(pair):
    for fields in (PLAIN, {"temperature": 0}) * 4:
        stream = pair[0].stream(TEXT, max_tokens=400, ignore_eos=True, **fields)
        next(iter(stream))
        stream.close()
    pair[0].wait_until(lambda health: health["running"] == 0, 60)
    assert json.loads(pair[0].request("GET", "/health").body)["status"] == "ok"
