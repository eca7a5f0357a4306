"""How much the passages that were read support each sentence of an answer."""
import concurrent.futures
import json
import math

import pytest
from conftest import Server, counted
from test_chat_documents import HISTORY, PATH, config as documents_config, pages, say  # noqa: F401
from test_keys import ask, bearer, keys  # noqa: F401
from test_provenance import ASK, PROMPT, documents as documents_of, scores
from test_t5 import collection, folder, t5, t5_config  # noqa: F401

STRETCH = 8
QUESTION = "when did the bridge open?"


@pytest.fixture(scope="module")
def documents(documents_config, tmp_path_factory):  # noqa: F811
    """A chat model with passages in its prompt."""
    running = Server(documents_config, tmp_path_factory.mktemp("documents-server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


def supported(reply):
    return [e["support"] for e in reply["support"]]


def text_of(reply):
    choice = reply["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def check_sentences(entries, text):
    """They stand one behind the other, and leave nothing but blanks."""
    at = 0
    for entry in entries:
        assert text[at:entry["answer_start"]].strip() == "" and entry["answer_start"] < entry["answer_end"]
        assert text[entry["answer_start"]] not in " \n" and text[entry["answer_end"] - 1] not in " \n"
        at = entry["answer_end"]
    assert text[at:].strip() == ""


def by_hand(entries, tokens):
    """The figure of docs/api.md from a comparison's tokens: each counts for the first sentence that it wrote of."""
    left, figures = list(tokens), []
    for entry in entries:
        gains = []
        while left and left[0]["answer_start"] < entry["answer_end"]:
            token = left.pop(0)
            if entry["answer_start"] < token["answer_end"] and token["answer_start"] < token["answer_end"]:
                gains.append(token["logprob"] - token["logprob_without"])
        stretches = [gains[i:i + STRETCH] for i in range(max(1, len(gains) - STRETCH + 1))]
        figures.append(max(0, 1 - math.exp(-min(sum(part) / len(part) for part in stretches))))
    return figures


def test_the_figure_is_that_of_two_scored_requests(server):
    """By cross attention; the answer goes over two chunks."""
    reply = server.complete(PROMPT, **ASK, return_token_ids=True, retrieval={"support": True, "compare": "off"})
    tokens = reply["compare"][0]["tokens"]
    assert [t["logprob"] for t in tokens] == scores(server, reply)
    assert [t["logprob_without"] for t in tokens] == scores(server, reply, enabled=False)
    check_sentences(reply["support"], text_of(reply))
    assert supported(reply) == pytest.approx(by_hand(reply["support"], tokens), abs=1e-6)
    assert any(figure > 0 for figure in supported(reply))
    assert all(e["index"] == 0 and e["chunk"] in (0, 1) and 1 <= e["passage"] <= 4 for e in reply["support"])
    alone = server.complete(PROMPT, **ASK, retrieval={"support": True})
    assert alone["support"] == reply["support"] and "compare" not in alone and "attention" not in alone
    plain = server.complete(PROMPT, **ASK)
    assert text_of(plain) == text_of(alone) and counted(plain) == counted(alone) and "support" not in plain


def test_the_passage_is_the_one_that_got_most_attention(server):
    asked = dict(ASK, max_tokens=40)
    reply = server.complete(PROMPT, **asked, retrieval={"support": True, "attention": "tokens"})
    (told,) = reply["attention"]
    for entry in reply["support"]:
        inside = [t["shares"] for t in told["tokens"] if entry["answer_start"] < t["answer_end"] and t["answer_start"] < entry["answer_end"]]
        sums = [sum(column) for column in zip(*inside)]
        assert entry["chunk"] == told["chunk"] and sums[entry["passage"] - 1] == pytest.approx(max(sums))
    assert server.complete(PROMPT, **asked, retrieval={"support": True})["support"] == reply["support"]


def test_compared_without_a_document_and_judged(server):
    """Two comparisons, one behind the other."""
    nearest = documents_of(server.complete(PROMPT, max_tokens=1))[0][0]
    both = server.complete(PROMPT, **ASK, retrieval={"support": True, "compare": [nearest]})
    assert both["support"] == server.complete(PROMPT, **ASK, retrieval={"support": True})["support"]
    assert both["compare"] == server.complete(PROMPT, **ASK, retrieval={"compare": [nearest]})["compare"]


def test_given_neighbours(server):
    given = ["A chunk is closed by its last token.", "Bread takes flour, water and salt."]
    reply = server.complete(PROMPT, **ASK, retrieval={"neighbors": given, "support": True, "compare": "off"})
    assert supported(reply) == pytest.approx(by_hand(reply["support"], reply["compare"][0]["tokens"]), abs=1e-6)
    assert all(e["passage"] in (1, 2) for e in reply["support"])


def test_nothing_read_is_not_judged(server, documents):
    reply = server.complete(PROMPT, **ASK, retrieval={"support": True, "min_similarity": 1})
    check_sentences(reply["support"], text_of(reply))
    assert reply["support"] and all((e["support"], e["chunk"], e["passage"]) == (None, None, None) for e in reply["support"])
    reply = say(documents, QUESTION, retrieval={"support": True, "min_similarity": 1})
    assert reply["support"] and supported(reply) == [None] * len(reply["support"])
    assert server.complete(PROMPT, max_tokens=0, retrieval={"support": True})["support"] == []


def test_a_server_that_always_judges(start):
    server = start("retrieval.support=true")
    want = server.complete(PROMPT, **ASK, retrieval={"support": True})["support"]
    assert server.complete(PROMPT, **ASK)["support"] == want
    assert "support" not in server.complete(PROMPT, **ASK, retrieval={"support": False})
    off = server.complete(PROMPT, **ASK, retrieval={"enabled": False})
    assert off["support"] and supported(off) == [None] * len(off["support"])
    refused = server.post({"prompt": PROMPT, "retrieval": {"enabled": False, "support": True}}).error()
    assert (refused["param"], refused["code"]) == ("retrieval.support", "no_retrieval")


@pytest.mark.parametrize("before", [[], HISTORY])
def test_passages_in_a_chats_prompt(documents, before):
    messages = [*before, {"role": "user", "content": QUESTION}]
    asked = {"max_tokens": 60, "temperature": 0}
    reply = say(documents, messages, **asked, retrieval={"k": 2, "support": True, "compare": "off"})
    check_sentences(reply["support"], text_of(reply))
    tokens = reply["compare"][0]["tokens"]
    without = say(documents, messages, **asked, retrieval={"k": 2, "support": True})
    assert without["support"] == reply["support"]
    numbers = {n["number"] for n in reply["retrieval"][0]["neighbors"]}
    assert all(e["chunk"] == 0 and e["passage"] in numbers for e in reply["support"])
    if all("\ufffd" not in t["token"] for t in tokens):
        assert supported(reply) == pytest.approx(by_hand(reply["support"], tokens), abs=1e-6)


def test_passages_that_are_sought_again(documents):
    """Each token is of the passages that stood in the prompt as it was written."""
    reply = say(documents, QUESTION, max_tokens=40, temperature=0, retrieval={"k": 2, "every": 8, "support": True})
    chunks = {entry["chunk"]: len(entry["neighbors"]) for entry in reply["retrieval"]}
    assert len(chunks) == 5
    assert reply["support"] and all(1 <= e["passage"] <= chunks[e["chunk"]] for e in reply["support"])
    assert all(0 <= e["support"] < 1 for e in reply["support"])


def test_an_encoders_passages(t5):  # noqa: F811
    asked = {"prompt": "How is a collection built?", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
    reply = t5.post({**asked, "retrieval": {"support": True, "compare": "off"}}).json()
    check_sentences(reply["support"], text_of(reply))
    assert supported(reply) == pytest.approx(by_hand(reply["support"], reply["compare"][0]["tokens"]), abs=1e-6)
    numbers = {n["number"] for n in reply["retrieval"][0]["neighbors"]}
    assert all(e["passage"] in numbers for e in reply["support"])


def test_a_stream_tells_it_last(server):
    asked = dict(ASK, max_tokens=70, n=2, seed=3, temperature=1, retrieval={"support": True})
    whole = server.complete([PROMPT, "The"], **asked)
    assert {e["index"] for e in whole["support"]} == {0, 1, 2, 3}
    events = list(server.stream([PROMPT, "The"], **asked, stream_options={"include_usage": True}))
    judged = [event for event in events if "support" in event]
    assert all(event["choices"] == [] for event in judged)
    assert sorted((e for event in judged for e in event["support"]), key=lambda e: (e["index"], e["answer_start"])) == whole["support"]
    for event in judged:
        index = event["support"][0]["index"]
        ends = [i for i, e in enumerate(events) for c in e["choices"] if c["index"] == index and c["finish_reason"]]
        assert len(ends) == 1 and events.index(event) > ends[0]
    assert counted(events[-1]) == counted(whole)


def test_a_chats_stream(documents):
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40, "temperature": 0, "ignore_eos": True,
            "retrieval": {"k": 2, "support": True}}
    whole = documents.post(body, PATH).json()
    streamed = documents.post({**body, "stream": True}, PATH).body.decode()
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert [e["support"] for e in events if "support" in e] == [whole["support"]]


def test_echoed_prompts_count(server):
    asked = dict(ASK, max_tokens=40, retrieval={"support": True})
    plain, echoed = (server.complete(PROMPT, **asked, echo=echo) for echo in (False, True))
    moved = [{**e, "answer_start": e["answer_start"] + len(PROMPT), "answer_end": e["answer_end"] + len(PROMPT)} for e in plain["support"]]
    assert echoed["support"] == moved


def test_judged_among_others(start):
    """Fewer sequences than answers: whoever is judged waits for a turn, and changes nobody's answer."""
    server = start("server.max_sequences=2")
    asked = [dict(ASK, max_tokens=10 + 9 * i, retrieval={"support": True} if i % 2 else {"k": 2}) for i in range(6)]
    alone = [server.complete(PROMPT, **a) for a in asked]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda a: server.complete(PROMPT, **a), asked))
    for one, other in zip(alone, together):
        assert all(one.get(key) == other.get(key) for key in ("choices", "retrieval", "support"))


def test_a_client_that_leaves_is_not_judged(server):
    stream = server.stream(PROMPT, max_tokens=400, ignore_eos=True, retrieval={"support": True})
    for event in stream:
        if event["choices"] and event["choices"][0]["finish_reason"]:
            break
    stream.close()
    server.wait_until(lambda h: h["running"] + h["waiting"] + h["parked"] == 0, 60)


def test_support_is_for_answers(server):
    error = server.post({"query": "chunk", "support": True}, "/v1/retrieval/search").error()
    assert "support" in error["message"]
    error = server.post({"prompt": PROMPT, "retrieval": {"support": "yes"}}).error()
    assert (error["param"], error["code"]) == ("retrieval.support", "invalid_type")


def test_judging_counts_as_tokens_read(start, keys):  # noqa: F811
    """A key is charged for the prompt and the answer that are read once more."""
    secret = keys.add("alice", tokens_per_minute=60)
    server = start(f"server.keys_file={keys.path}")
    reply = ask(server, bearer(secret), max_tokens=99, ignore_eos=True, retrieval={"support": True})
    used = 2 * reply.json()["usage"]["total_tokens"]
    late = ask(server, bearer(secret))
    assert reply.status == 200 and late.status == 429
    assert used - 60 - 20 < int(late.headers["Retry-After"]) <= used - 60 + 20
