"""Where an answer comes from: documents left out, the same answer scored without them, and what names its makers."""
import concurrent.futures
import json
import re

import pytest
from conftest import END, MODEL, NEIGHBORS, ROOT

PROMPT = "A chunk is closed by its last token, which"
ASK = dict(max_tokens=128, temperature=0, ignore_eos=True)


def documents(reply):
    return [[n["document"] for n in chunk["neighbors"]] for chunk in reply["retrieval"]]


def ids(server, text):
    return server.post({"prompt": text}, "/tokenize").json()["tokens"]


def scores(server, reply, **retrieval):
    """Log-probabilities of an answer behind its prompt. The chunk grid is that of the prompt: 128 tokens are two chunks."""
    choice = reply["choices"][0]
    prompt, answer = choice["prompt_token_ids"], choice["token_ids"]
    again = server.complete([prompt + answer], max_tokens=0, echo=True, logprobs=0, retrieval=retrieval)
    return again["choices"][0]["logprobs"]["token_logprobs"][len(prompt):]


# Documents that are left out.


def test_excluded_documents_are_not_found(server):
    all_of_them = server.complete(PROMPT, max_tokens=1, retrieval={"k": 16})["retrieval"][0]["neighbors"]
    nearest = all_of_them[0]["document"]
    want = [n for n in all_of_them if n["document"] != nearest][:NEIGHBORS]
    left = server.complete(PROMPT, max_tokens=1, retrieval={"exclude": [nearest]})["retrieval"][0]["neighbors"]
    assert len(want) == NEIGHBORS and left == want
    assert server.complete(PROMPT, max_tokens=1, retrieval={"exclude": []})["retrieval"][0]["neighbors"] == all_of_them[:NEIGHBORS]
    assert server.complete(PROMPT, max_tokens=1, retrieval={"exclude": ["no such"]})["retrieval"][0]["neighbors"] == all_of_them[:NEIGHBORS]


def test_all_documents_excluded_is_none_read(server):
    every, k = set(), 16
    while found := {d for c in documents(server.complete(PROMPT, max_tokens=1, retrieval={"k": k, "exclude": sorted(every)})) for d in c}:
        every |= found
    assert len(every) == 6
    without = server.complete(PROMPT, **ASK, retrieval={"exclude": sorted(every)})
    assert documents(without) == [[]] * 2
    assert without["choices"][0]["text"] == server.complete(PROMPT, **ASK, retrieval={"enabled": False})["choices"][0]["text"]


# The answer under other neighbours.


def check_tokens(entry, text):
    """The tokens stand in the text one behind the other."""
    at = 0
    for token in entry["tokens"]:
        assert token["answer_start"] == at and token["answer_end"] >= at
        if "\ufffd" not in token["token"]:
            assert text[at:token["answer_end"]] == ("" if token["token"] == END else token["token"])
        at = token["answer_end"]
    assert at == len(text)


def test_compared_with_off(server):
    reply = server.complete(PROMPT, **ASK, logprobs=0, return_token_ids=True, retrieval={"compare": "off"})
    (entry,) = reply["compare"]
    assert entry["index"] == 0 and entry["without"] == "off"
    assert [t["logprob"] for t in entry["tokens"]] == reply["choices"][0]["logprobs"]["token_logprobs"]
    assert [t["logprob_without"] for t in entry["tokens"]] == scores(server, reply, enabled=False)
    check_tokens(entry, reply["choices"][0]["text"])
    plain = server.complete(PROMPT, **ASK, logprobs=0)
    assert plain["choices"][0]["logprobs"] == reply["choices"][0]["logprobs"] and "compare" not in plain


def test_compared_without_documents(server):
    nearest = documents(server.complete(PROMPT, max_tokens=1))[0][0]
    asked = {"compare": [nearest], "exclude": ["another"], "k": 3}
    reply = server.complete(PROMPT, **ASK, return_token_ids=True, retrieval=asked)
    (entry,) = reply["compare"]
    assert entry["without"] == [nearest]
    assert [t["logprob"] for t in entry["tokens"]] == scores(server, reply, k=3)
    assert [t["logprob_without"] for t in entry["tokens"]] == scores(server, reply, k=3, exclude=[nearest])
    assert any(t["logprob"] != t["logprob_without"] for t in entry["tokens"])
    # Without nothing it is the same request: to the last bit.
    for entry in server.complete(PROMPT, **ASK, n=2, retrieval={"compare": []})["compare"]:
        assert [t["logprob"] for t in entry["tokens"]] == [t["logprob_without"] for t in entry["tokens"]]


def test_given_neighbours_compared(server):
    reply = server.complete(PROMPT, **ASK, return_token_ids=True, retrieval={"neighbors": ["A fork."], "compare": "off"})
    (entry,) = reply["compare"]
    assert [t["logprob"] for t in entry["tokens"]] == scores(server, reply, neighbors=["A fork."])
    assert [t["logprob_without"] for t in entry["tokens"]] == scores(server, reply, enabled=False)


def test_a_stream_sends_the_comparison_last(server):
    asked = dict(ASK, max_tokens=70, n=2, seed=3, temperature=1, retrieval={"compare": "off"})
    whole = server.complete([PROMPT, "The"], **asked)
    events = list(server.stream([PROMPT, "The"], **asked, stream_options={"include_usage": True}))
    compared = [event for event in events if "compare" in event]
    assert all(event["choices"] == [] for event in compared)
    assert sorted((e for event in compared for e in event["compare"]), key=lambda e: e["index"]) == whole["compare"]
    for event in compared:
        (entry,) = event["compare"]
        ends = [i for i, e in enumerate(events) for c in e["choices"] if c["index"] == entry["index"] and c["finish_reason"]]
        assert len(ends) == 1 and events.index(event) > ends[0]
    assert events[-1]["usage"] == whole["usage"] and "compare" not in events[-1]


def finished(server):
    metrics = server.request("GET", "/metrics").body.decode()
    return int(re.search(r'retro_request_success_total\{.*finished_reason="length"\} (\d+)', metrics)[1])


def test_comparisons_among_others(start):
    """Fewer sequences than answers: comparisons wait for their turn like prompts, and change nobody's answer."""
    server = start("server.max_sequences=2")
    asked = [dict(ASK, max_tokens=10 + 9 * i, retrieval={"compare": "off"} if i % 2 else {"k": 2}) for i in range(6)]
    alone = [server.complete(PROMPT, **a) for a in asked]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda a: server.complete(PROMPT, **a), asked))
    for one, other in zip(alone, together):
        assert all(one.get(key) == other.get(key) for key in ("choices", "retrieval", "compare", "system_fingerprint"))
    server.wait_until(lambda h: h["running"] + h["waiting"] == 0, 60)
    server.wait_until(lambda h: finished(server) >= 12, 60)
    assert finished(server) == 12, "a comparison is no request"


def test_a_client_that_leaves_leaves_its_comparison(server):
    stream = server.stream(PROMPT, max_tokens=400, ignore_eos=True, retrieval={"compare": "off"})
    for event in stream:
        if event["choices"] and event["choices"][0]["finish_reason"]:
            break
    stream.close()
    server.wait_until(lambda h: h["running"] + h["waiting"] + h["parked"] == 0, 60)


REFUSED = [
    ({"compare": "on"}, "retrieval.compare", "invalid_value"),
    ({"compare": 3}, "retrieval.compare", "invalid_type"),
    ({"compare": [3]}, "retrieval.compare", "invalid_type"),
    ({"exclude": "a"}, "retrieval.exclude", "invalid_type"),
    ({"exclude": ["a"] * 65}, "retrieval.exclude", "invalid_value"),
    ({"compare": ["a"] * 65}, "retrieval.compare", "invalid_value"),
    ({"neighbors": ["a"], "exclude": ["b"]}, "retrieval.neighbors", "invalid_value"),
    ({"neighbors": ["a"], "compare": ["b"]}, "retrieval.neighbors", "invalid_value"),
    ({"enabled": False, "compare": "off"}, "retrieval.compare", "no_retrieval"),
]


@pytest.mark.parametrize("retrieval, param, code", REFUSED)
def test_refused(server, retrieval, param, code):
    reply = server.post({"prompt": PROMPT, "max_tokens": 1, "retrieval": retrieval})
    assert reply.status == 400 and (reply.error()["param"], reply.error()["code"]) == (param, code), reply.body
    if "65" in reply.error()["message"]:
        assert "the limit is 64 (option retrieval.max_excluded)" in reply.error()["message"]


def test_nothing_written_is_nothing_compared(server):
    reply = server.post({"prompt": PROMPT, "max_tokens": 0, "retrieval": {"compare": "off"}})
    assert reply.status == 400 and reply.error()["param"] == "retrieval.compare"


# Names of model, collection and seed.


def bytes_of(server, body):
    """The answer but for what tells answers apart, and what they cost."""
    reply = server.post(body)
    assert reply.status == 200, reply.body
    body = re.sub(rb'^\{"id":"cmpl-[0-9a-f]{16}","object":"text_completion","created":\d+,', b"", reply.body)
    return re.sub(rb'"cached_tokens":\d+', b"", body)


def test_the_same_request_is_the_same_bytes(start):
    """Across restarts, with other numbers of threads, alone and among others."""
    body = {"prompt": [PROMPT, "The"], "max_tokens": 100, "n": 2, "seed": -5, "logprobs": 2, "ignore_eos": True,
            "retrieval": {"compare": "off", "exclude": ["x"]}}
    first = start()
    alone = bytes_of(first, body)
    assert alone.startswith(b'"model":"') and first.stop() == 0
    second = start("model.threads=1", "server.max_sequences=5")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        others = [pool.submit(second.complete, f"Number {i}", max_tokens=50 + 9 * i) for i in range(4)]
        assert bytes_of(second, body) == alone
        for other in others:
            other.result()
    assert bytes_of(second, body) == alone


def test_a_random_seed_is_told(server):
    ask = dict(max_tokens=30, ignore_eos=True)
    reply = server.complete([PROMPT, PROMPT], n=2, **ask)
    assert 0 <= reply["seed"] < 2**52 and len({choice["text"] for choice in reply["choices"]}) == 4
    for choice in reply["choices"]:
        again = server.complete(PROMPT, seed=reply["seed"] + choice["index"], **ask)
        assert again["choices"][0]["text"] == choice["text"]
    assert server.complete(PROMPT, n=3, seed=-(2**63), **ask)["seed"] == -(2**63)
    assert all(event["seed"] == 7 for event in server.stream(PROMPT, seed=7, **ask))
    assert "seed" not in server.complete(PROMPT, seed=7, temperature=0, **ask), "nothing is drawn"


def test_the_fingerprint(server, start):
    searched = server.complete(PROMPT, max_tokens=1)["system_fingerprint"]
    assert re.fullmatch(r"fp_[0-9a-f]{16}_[0-9a-f]{8}_g\d+\.\d+", searched)
    off = server.complete(PROMPT, max_tokens=1, retrieval={"enabled": False})["system_fingerprint"]
    assert searched.startswith(off + "_g") and searched.endswith(f"_g{generation(server)}")
    assert all(e["system_fingerprint"] == searched for e in server.stream(PROMPT, max_tokens=3))
    assert server.client().completions.create(model=MODEL, prompt=PROMPT, max_tokens=1).system_fingerprint == searched
    other = start("model.dtype=f16").complete(PROMPT, max_tokens=1)["system_fingerprint"]
    assert other[:19] == searched[:19] and other != searched


def generation(server):
    """Of the collection, as fingerprints name it: with the changes since."""
    about = server.request("GET", f"/v1/models/{MODEL}").json()["meta"]["retro"]
    return f"{about['generation']}.{about['changes']}"


# Attention.


def attention_of(server, prompt=PROMPT, **fields):
    """The answer, and its entries of attention by chunk."""
    retrieval = {"attention": "tokens"} | fields.pop("retrieval", {})
    reply = server.complete(prompt, **{**ASK, **fields}, retrieval=retrieval)
    return reply, {(e["index"], e["chunk"]): e for e in reply["attention"]}


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows)]


def close(a, b, tolerance=1e-5):
    return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b))


def test_attention_is_shared_out_over_neighbours(server):
    reply, entries = attention_of(server, logprobs=0, return_token_ids=True, retrieval={"k": 3})
    plain = server.complete(PROMPT, **ASK, logprobs=0, return_token_ids=True, retrieval={"k": 3})
    assert plain["choices"] == reply["choices"], "to tell changes nothing, to the last bit"
    assert list(entries) == [(0, c["chunk"]) for c in reply["retrieval"]]
    tokens = [t for e in reply["attention"] for t in e["tokens"]]
    check_tokens({"tokens": tokens}, reply["choices"][0]["text"])
    for chunk, entry in zip(reply["retrieval"], reply["attention"]):
        assert len(entry["shares"]) == len(chunk["neighbors"]) == 3
        assert close([sum(entry["shares"])], [1]) and all(0 <= share <= 1 for share in entry["shares"])
        assert all(close([sum(t["shares"])], [1]) for t in entry["tokens"])
        # The closing row of the prompt's last chunk writes the answer's first token.
        assert close(mean([t["shares"] for t in entry["tokens"]]), entry["shares"])
    chunks, _ = attention_of(server, retrieval={"k": 3, "attention": True})
    assert [{k: v for k, v in e.items() if k != "tokens"} for e in reply["attention"]] == chunks["attention"]
    assert "attention" not in plain and "attention" not in server.complete(PROMPT, max_tokens=1, retrieval={"attention": False})


def test_attention_of_every_chunk_of_a_prompt(server):
    """A prompt's own chunks are told too; in steps of few rows and among others the same."""
    ids = [(11 * i) % 8000 + 100 for i in range(200)]
    reply, entries = attention_of(server, [ids], max_tokens=3)
    assert [e["chunk"] for e in reply["attention"]] == [0, 1, 2, 3]
    assert [len(e["tokens"]) for e in reply["attention"]] == [0, 0, 0, 3]
    assert all(close([sum(e["shares"])], [1]) for e in reply["attention"])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda n: attention_of(server, [ids[:n]], max_tokens=3), (200, 150, 200, 90)))
    assert together[0][0]["attention"] == together[2][0]["attention"] == reply["attention"]


def test_attention_follows_what_is_read(server):
    """Equal neighbours get equal shares; alone, one gets all. Attention to none is not told."""
    _, entries = attention_of(server, max_tokens=5, retrieval={"neighbors": ["A fork.", "A fork."]})
    assert close(entries[0, 0]["shares"], [0.5, 0.5])
    _, entries = attention_of(server, max_tokens=5, retrieval={"k": 1})
    assert close(entries[0, 0]["shares"], [1])
    reply, entries = attention_of(server, max_tokens=5, retrieval={"min_similarity": 1})
    assert len(reply["retrieval"]) == 1 and entries == {}


def test_attention_in_a_stream(server):
    asked = dict(ASK, n=2, max_tokens=70, temperature=1, seed=5, retrieval={"attention": "tokens"})
    whole = server.complete(PROMPT, **asked)
    events = list(server.stream(PROMPT, **asked))
    told = [(e["choices"][0], e["attention"]) for e in events if "attention" in e]
    assert all(choice["finish_reason"] == "length" for choice, _ in told)
    assert [entry for _, entries in sorted(told, key=lambda t: t[0]["index"]) for entry in entries] == whole["attention"]


def test_attention_is_that_of_the_reference(start):
    """tests/golden/attention.json: PyTorch's, by tests/reference/make_attention_golden.py."""
    server = start("model.dtype=f32")
    golden = json.loads((ROOT / "tests/golden/attention.json").read_text())
    for case in golden["cases"]:
        reply = server.complete([case["prompt"]], max_tokens=len(case["answer"]), temperature=0, ignore_eos=True,
                                return_token_ids=True, no_repeat_ngram_size=0,
                                retrieval={"neighbors": golden["neighbors"], "attention": "tokens"})
        assert reply["choices"][0]["token_ids"] == case["answer"]
        assert [e["chunk"] for e in reply["attention"]] == [e["chunk"] for e in case["attention"]]
        for entry, want in zip(reply["attention"], case["attention"]):
            assert close(entry["shares"], want["shares"], 1e-4)
            assert all(close(t["shares"], w, 1e-4) for t, w in zip(entry["tokens"], want["tokens"], strict=True))


@pytest.mark.parametrize("attention, code", [("chunks", "invalid_value"), (1, "invalid_type")])
def test_attention_refused(server, attention, code):
    error = server.post({"prompt": PROMPT, "max_tokens": 1, "retrieval": {"attention": attention}}).error()
    assert (error["param"], error["code"]) == ("retrieval.attention", code)
    error = server.post({"prompt": PROMPT, "retrieval": {"enabled": False, "attention": True}}).error()
    assert (error["param"], error["code"]) == ("retrieval.attention", "no_retrieval")
