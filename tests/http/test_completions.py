"""Completions in OpenAI's shapes, through the openai client and by hand."""
import concurrent.futures

import openai
import pytest

from conftest import CONTEXT, MODEL

PROMPT = "The fork() system call creates a new process. The child"
GOES_ON = "NAME\n       open - open a file\n\nDESCRIPTION\n"  # the shipped model writes on behind this
OFF = {"enabled": False}


def test_shape(server):
    reply = server.complete(PROMPT, max_tokens=5, temperature=0)
    assert set(reply) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage", "retrieval"}
    assert reply["id"].startswith("cmpl-")
    assert reply["object"] == "text_completion"
    assert reply["model"] == MODEL
    (choice,) = reply["choices"]
    assert set(choice) == {"index", "text", "logprobs", "finish_reason"}
    assert choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] == "length"
    usage = reply["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5


def test_defaults_to_16_tokens(server):
    assert server.complete(PROMPT, ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_openai_client(server):
    client = server.client()
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL, "minilm"]  # the collection's embedder embeds for clients too
    assert client.models.retrieve(MODEL).max_model_len == CONTEXT
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0)
    assert whole.choices[0].text and whole.usage.completion_tokens == 80
    text, usage, chunks = "", None, []
    for event in client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0, stream=True, stream_options={"include_usage": True}
    ):
        chunks += getattr(event, "retrieval", None) or []
        for choice in event.choices:
            text += choice.text
        usage = event.usage or usage
    assert text == whole.choices[0].text
    assert usage == whole.usage
    assert chunks == whole.retrieval


@pytest.mark.parametrize(
    "fields, kind, code, param, words",
    [
        ({"model": "other"}, openai.NotFoundError, "model_not_found", "model", "retro-docs"),
        ({"max_tokens": -1}, openai.BadRequestError, "invalid_value", "max_tokens", "allowed is 0"),
        ({"n": 0}, openai.BadRequestError, "invalid_value", "n", "allowed is 1"),
        ({"suffix": "s"}, openai.BadRequestError, "unsupported_parameter", "suffix", "fill in the middle"),
        ({"presence_penalty": 3}, openai.BadRequestError, "invalid_value", "presence_penalty", "-2 .. 2"),
        ({"logprobs": 21}, openai.BadRequestError, "invalid_value", "logprobs", "server.max_logprobs"),
        ({"prompt": [8192]}, openai.BadRequestError, "invalid_value", "prompt", "0 .. 8191"),
        ({"prompt": [[5], "a"]}, openai.BadRequestError, "invalid_type", "prompt", "array of those"),
        ({"prompt": [[]]}, openai.BadRequestError, "invalid_value", "prompt", "empty array of token ids"),
        ({"extra_body": {"user": 5}}, openai.BadRequestError, "invalid_type", "user", "must be a string"),
        ({"extra_body": {"temp": 1}}, openai.BadRequestError, "unknown_parameter", "temp", "temperature"),
        ({"max_tokens": CONTEXT}, openai.BadRequestError, "context_length_exceeded", "max_tokens", f"the limit is {CONTEXT}"),
        ({"prompt": "word " * 2000}, openai.BadRequestError, "context_length_exceeded", "max_tokens", f"{CONTEXT} tokens"),
    ],
)
def test_errors_are_typed(server, fields, kind, code, param, words):
    with pytest.raises(kind) as raised:
        server.client().completions.create(**{"model": MODEL, "prompt": PROMPT, **fields})
    error = raised.value
    assert error.code == code and error.param == param and error.type == "invalid_request_error"
    assert words in error.message
    assert error.request_id.startswith("req-")


def test_fields_of_other_clients_are_taken(server):
    plain = {"max_tokens": 4, "temperature": 0, "retrieval": {"enabled": False}}
    sent = {"service_tier": "auto", "modalities": ["text"], "prompt_cache_key": "k", "safety_identifier": "s", "user": "u",
            "verbosity": "low", "cache_prompt": True, "keep_alive": "5m", "think": False, "store": True, "metadata": {}}
    assert server.complete("A", **plain, **sent)["choices"] == server.complete("A", **plain)["choices"]
    penalised = [server.complete("A A A A", **plain, **{name: 1.7})["choices"] for name in ("repeat_penalty", "repetition_penalty")]
    assert penalised[0] == penalised[1]


@pytest.mark.parametrize("fields, param", [({"think": True}, "think"), ({"modalities": ["text", "audio"]}, "modalities"),
                                           ({"verbosity": 1}, "verbosity"), ({"cache_prompt": "yes"}, "cache_prompt"),
                                           ({"repeat_penalty": 2, "repetition_penalty": 1.5}, "repeat_penalty")])
def test_fields_of_other_clients_that_would_change_an_answer(server, fields, param):
    reply = server.post({"prompt": "A", "max_tokens": 1, **fields})
    assert reply.status == 400 and reply.error()["param"] == param


def test_unknown_model_is_404(server):
    with pytest.raises(openai.NotFoundError) as raised:
        server.client().models.retrieve("other")
    assert raised.value.code == "model_not_found"


def test_context_is_used_to_the_last_token(server):
    n = server.complete(PROMPT, max_tokens=1)["usage"]["prompt_tokens"]
    assert server.complete(PROMPT, max_tokens=CONTEXT - n, ignore_eos=True)["usage"]["total_tokens"] == CONTEXT
    error = server.post({"prompt": PROMPT, "max_tokens": CONTEXT + 1 - n}).error()
    assert error["code"] == "context_length_exceeded"
    assert f"has {n} tokens and max_tokens is {CONTEXT + 1 - n}, together {CONTEXT + 1}; the limit is {CONTEXT}" in error["message"]


def test_prompts_of_every_kind(server):
    ids = [10, 20, 30]
    alone = [server.complete(p, max_tokens=8, temperature=0, retrieval=OFF) for p in ("one", "two", ids, ids[:1])]
    texts = [a["choices"][0]["text"] for a in alone]
    batch = server.complete(["one", "two"], max_tokens=8, temperature=0, retrieval=OFF)
    assert [c["text"] for c in batch["choices"]] == texts[:2]
    assert [c["index"] for c in batch["choices"]] == [0, 1]
    batch = server.complete([ids, ids[:1]], max_tokens=8, temperature=0, retrieval=OFF)
    assert [c["text"] for c in batch["choices"]] == texts[2:]
    assert batch["usage"]["prompt_tokens"] == 4


def test_an_empty_prompt_starts_from_end_of_text(server):
    empty = server.complete("", max_tokens=8, temperature=0)
    assert empty["usage"]["prompt_tokens"] == 1
    assert empty["choices"] == server.complete([0], max_tokens=8, temperature=0)["choices"]


def test_seeds(server):
    ask = dict(max_tokens=24, temperature=1, ignore_eos=True)
    first = server.complete(PROMPT, seed=7, **ask)["choices"]
    assert server.complete(PROMPT, seed=7, **ask)["choices"] == first
    assert server.complete(PROMPT, seed=8, **ask)["choices"] != first
    assert server.complete(PROMPT, **ask)["choices"] != server.complete(PROMPT, **ask)["choices"]
    # top_k 1 and a tiny top_p leave the most likely token only.
    greedy = server.complete(PROMPT, **{**ask, "temperature": 0})["choices"]
    assert server.complete(PROMPT, top_k=1, **ask)["choices"] == greedy
    assert server.complete(PROMPT, top_p=1e-6, **ask)["choices"] == greedy
    assert server.complete(PROMPT, min_p=1, **ask)["choices"] == greedy


STREAMS = 16


@pytest.mark.parametrize("temperature", [0, 1])
def test_parallel_streams_write_what_each_writes_alone(server, temperature):
    prompts = [PROMPT[: 10 + 5 * i] + " and more" * (7 * i) for i in range(STREAMS)]

    def ask(i):
        stream = server.stream(prompts[i], max_tokens=100, temperature=temperature, seed=i, ignore_eos=True)
        events = list(stream)
        assert stream.done
        return "".join(c["text"] for e in events for c in e["choices"]), [e["retrieval"] for e in events if "retrieval" in e]

    alone = [ask(i) for i in range(STREAMS)]
    steps = server.health()["steps"]
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        together = list(pool.map(ask, range(STREAMS)))
    assert together == alone
    assert server.health()["steps"] - steps < STREAMS * 100 / 2, "the streams did not share steps"


def test_stream_of_several_prompts(server):
    texts = {0: "", 1: ""}
    finish = {}
    for event in server.stream(["one", "two"], max_tokens=12, temperature=0, retrieval=OFF):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                finish[choice["index"]] = choice["finish_reason"]
    whole = server.complete(["one", "two"], max_tokens=12, temperature=0, retrieval=OFF)
    assert texts == {c["index"]: c["text"] for c in whole["choices"]}
    assert finish == {c["index"]: c["finish_reason"] for c in whole["choices"]}


def test_include_usage(server):
    events = list(server.stream(PROMPT, max_tokens=4, temperature=0, stream_options={"include_usage": True}))
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 4
    assert all(e["usage"] is None for e in events[:-1])
    assert all("usage" not in e for e in server.stream(PROMPT, max_tokens=4))


def test_stop_strings_cross_tokens(server):
    ask = dict(max_tokens=60, temperature=0, retrieval=OFF)
    whole = server.complete(GOES_ON, logprobs=0, **ask)["choices"][0]
    text, tokens = whole["text"], whole["logprobs"]["tokens"]
    assert "".join(tokens) == text
    # From the middle of each token to the middle of the next but one: none of these is a token.
    for i in range(4, 30):
        start = len("".join(tokens[:i])) + len(tokens[i]) // 2
        stop = text[start : len("".join(tokens[: i + 2])) + max(1, len(tokens[i + 2]) // 2)]
        expected = text[: text.index(stop)]
        choice = server.complete(GOES_ON, stop=["never\0seen", stop], **ask)["choices"][0]
        assert choice["text"] == expected and choice["finish_reason"] == "stop"
        shown = ""
        for event in server.stream(GOES_ON, stop=stop, **ask):
            shown += event["choices"][0]["text"]
            assert expected.startswith(shown), "part of a stop string was shown"
        assert shown == expected


def test_stop_with_logprobs_shows_no_token_behind_it(server):
    ask = dict(max_tokens=40, temperature=0, retrieval=OFF, logprobs=1)
    tokens = server.complete(PROMPT, **ask)["choices"][0]["logprobs"]["tokens"]
    stop = "".join(tokens[6:8])
    cut = server.complete(PROMPT, stop=stop, **ask)["choices"][0]
    n = len(cut["logprobs"]["tokens"])
    assert tokens[:n] == cut["logprobs"]["tokens"] and "".join(tokens[:n]) == cut["text"]
    parts = [e["choices"][0]["logprobs"] for e in server.stream(PROMPT, stop=stop, **ask)]
    for name, values in cut["logprobs"].items():
        assert sum((p[name] for p in parts if p), []) == values


def test_a_stop_that_never_comes_is_not_swallowed(server):
    ask = dict(max_tokens=30, temperature=0, retrieval=OFF)
    text = server.complete(GOES_ON, **ask)["choices"][0]["text"]
    held = server.complete(GOES_ON, stop=text[-5:] + "never", **ask)["choices"][0]
    assert held["text"] == text and held["finish_reason"] == "length"


def test_end_of_text(server):
    ask = dict(max_tokens=200, temperature=1, logprobs=0, retrieval=OFF)
    for seed in range(40):
        choice = server.complete(PROMPT, seed=seed, **ask)["choices"][0]
        if choice["finish_reason"] == "stop":
            break
    assert choice["finish_reason"] == "stop", "no seed ended"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][-1] == "<|endoftext|>" and "<|endoftext|>" not in choice["text"]
    assert "".join(logprobs["tokens"][:-1]) == choice["text"]
    assert logprobs["text_offset"][-1] == len(choice["text"])
    more = server.complete(PROMPT, seed=seed, ignore_eos=True, **ask)
    assert more["usage"]["completion_tokens"] == 200
    assert more["choices"][0]["text"].startswith(choice["text"])


def test_text_is_whole_characters(server):
    """At a high temperature byte tokens come in any order; streamed text must add up to the text of the plain reply."""
    prompt = "\U0001f469‍\U0001f469‍\U0001f467 漢字 e\u0301 \u0000 end"
    assert server.complete(prompt, echo=True, max_tokens=0)["choices"][0]["text"] == prompt
    for seed in range(6):
        ask = dict(max_tokens=60, temperature=2, seed=seed, retrieval=OFF, ignore_eos=True)
        whole = server.complete(prompt, **ask)["choices"][0]["text"]
        events = list(server.stream(prompt, **ask))
        assert "".join(e["choices"][0]["text"] for e in events) == whole
