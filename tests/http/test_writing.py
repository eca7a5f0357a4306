"""How answers are written: several to a prompt, biases, penalties, ends, and what is told of them."""
import asyncio
import math

import openai
import pytest

from conftest import MODEL

PROMPT = "The fork() system call"
PLAIN = {"max_tokens": 12, "temperature": 0, "retrieval": {"enabled": False}}


def choices(server, prompt=PROMPT, **fields):
    return server.complete(prompt, **{**PLAIN, **fields})["choices"]


def text(server, **fields):
    (choice,) = choices(server, **fields)
    return choice["text"]


def refused(server, **fields):
    reply = server.post({"prompt": PROMPT, **PLAIN, **fields})
    assert reply.status == 400, reply.body
    return reply.error()


# Several answers.


def test_answers_draw_by_seeds_of_their_own(server):
    several = choices(server, temperature=1, n=4, seed=7)
    assert [c["index"] for c in several] == [0, 1, 2, 3]
    for i, choice in enumerate(several):
        assert choice["text"] == text(server, temperature=1, seed=7 + i)


def test_answers_to_several_prompts_lie_side_by_side(server):
    reply = server.complete([PROMPT, "A pipe"], **{**PLAIN, "n": 2, "temperature": 1, "seed": 3})
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    second = choices(server, "A pipe", n=2, temperature=1, seed=3)
    assert [c["text"] for c in reply["choices"][2:]] == [c["text"] for c in second]
    alone = [server.complete(p, **PLAIN)["usage"]["prompt_tokens"] for p in (PROMPT, "A pipe")]
    assert reply["usage"]["prompt_tokens"] == sum(alone)  # each prompt once
    assert reply["usage"]["completion_tokens"] == 4 * 12


def test_the_best_have_the_likeliest_tokens(server):
    every = choices(server, temperature=1, n=5, seed=1, logprobs=0)
    mean = lambda c: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
    best = server.complete(PROMPT, **{**PLAIN, "temperature": 1, "n": 2, "best_of": 5, "seed": 1})
    wanted = sorted(every, key=mean, reverse=True)[:2]
    assert [c["text"] for c in best["choices"]] == [c["text"] for c in wanted]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 5 * 12


def test_a_stream_has_every_choice(server):
    whole = choices(server, temperature=1, n=3, seed=5)
    parts, ends = {}, {}
    for event in server.stream(PROMPT, **{**PLAIN, "temperature": 1, "n": 3, "seed": 5}):
        for choice in event["choices"]:
            parts[choice["index"]] = parts.get(choice["index"], "") + choice["text"]
            ends[choice["index"]] = choice["finish_reason"] or ends.get(choice["index"])
    assert parts == {c["index"]: c["text"] for c in whole}
    assert ends == {c["index"]: c["finish_reason"] for c in whole}


def test_more_answers_than_are_allowed_are_refused(start):
    server = start("server.max_choices=4")
    assert len(choices(server, n=4, max_tokens=1)) == 4
    assert "server.max_choices" in refused(server, n=5)["message"]
    reply = server.post({"prompt": ["a", "b", "c"], "n": 2, **PLAIN})
    assert reply.status == 400 and reply.error()["param"] == "n"


# Biases and penalties.


def test_a_bias_forces_and_forbids(server):
    first = choices(server, return_token_ids=True)[0]["token_ids"]
    other = (first[0] + 1) % 8192
    forced = choices(server, return_token_ids=True, logit_bias={str(other): 100}, no_repeat_ngram_size=0)[0]["token_ids"]
    assert forced == [other] * 12
    without = choices(server, return_token_ids=True, logit_bias={str(first[0]): -100})[0]["token_ids"]
    assert first[0] not in without


def test_penalties_end_repetition(server):
    plain = choices(server, "the the the the", return_token_ids=True, max_tokens=40, ignore_eos=True)[0]["token_ids"]
    strict = choices(server, "the the the the", return_token_ids=True, max_tokens=40, ignore_eos=True,
                     presence_penalty=2, frequency_penalty=2, repetition_penalty=3)[0]["token_ids"]
    assert len(set(strict)) > len(set(plain))


def runs_of(ids, length):
    return [tuple(ids[i : i + length]) for i in range(len(ids) - length + 1)]


@pytest.mark.parametrize("length", [1, 3, 8])
def test_runs_of_tokens_come_once(server, length):
    """Greedy tokens are the likeliest ones up to the first that would end a run which prompt or answer has."""
    fields = {"return_token_ids": True, "max_tokens": 60, "ignore_eos": True}
    free = choices(server, "the the the the", no_repeat_ngram_size=0, **fields)[0]
    once = choices(server, "the the the the", no_repeat_ngram_size=length, **fields)[0]
    ids, new = once["prompt_token_ids"] + once["token_ids"], len(once["prompt_token_ids"])
    for end in range(max(new, length - 1) + 1, len(ids) + 1):
        assert tuple(ids[end - length : end]) not in runs_of(ids[: end - 1], length)
    same = next(i for i, pair in enumerate(zip(once["token_ids"], free["token_ids"])) if pair[0] != pair[1])
    barred = ids[: new + same] + free["token_ids"][same : same + 1]
    assert tuple(barred[-length:]) in runs_of(barred[:-1], length)


def test_the_models_own_run_length_holds(server):
    """models/retro-docs/generation_config.json bars runs of 8."""
    assert server.request("GET", "/props").json()["default_generation_settings"]["params"]["no_repeat_ngram_size"] == 8
    fields = {"return_token_ids": True, "max_tokens": 60, "ignore_eos": True}
    own, eight, free = (choices(server, "the the the the", **fields, **more)[0]["token_ids"]
                        for more in ({}, {"no_repeat_ngram_size": 8}, {"no_repeat_ngram_size": 0}))
    assert own == eight != free


def test_log_probabilities_stay_the_models_own(server):
    plain = choices(server, logprobs=5, max_tokens=1)[0]["logprobs"]
    edited = choices(server, logprobs=5, max_tokens=1, repetition_penalty=3, logit_bias={"5": 100})[0]["logprobs"]
    for name, value in plain["top_logprobs"][0].items():
        assert edited["top_logprobs"][0][name] == value
    assert edited["token_logprobs"][0] < -1  # token 5 was forced


def test_company_changes_no_penalised_answer(server):
    fields = {"temperature": 0.9, "seed": 11, "presence_penalty": 1.5, "frequency_penalty": -0.5, "logprobs": 2,
              "repetition_penalty": 1.2, "logit_bias": {"266": -2, "14": 3}, "max_tokens": 24, "min_tokens": 20}
    alone = choices(server, **fields)[0]
    company = server.complete(["A pipe", PROMPT, "The kernel", "x", "An inode", "To mount"], **{**PLAIN, **fields})
    assert company["choices"][1] == {**alone, "index": 1}


# Ends.


def test_a_stop_token_ends_the_text(server):
    ids = choices(server, return_token_ids=True)[0]["token_ids"]
    (choice,) = choices(server, stop_token_ids=[ids[4]], return_token_ids=True)
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == ids[4]
    assert choice["token_ids"] == ids[: ids.index(ids[4]) + 1]
    (longer,) = choices(server, stop_token_ids=[ids[4]], include_stop_str_in_output=True)
    assert longer["text"].startswith(choice["text"]) and len(longer["text"]) > len(choice["text"])


def test_a_stop_string_is_named(server):
    whole = text(server)
    word = whole.split()[2]
    (choice,) = choices(server, stop=["never there", word])
    assert choice["stop_reason"] == word and choice["text"] == whole[: whole.index(word)]
    (choice,) = choices(server, stop=word, include_stop_str_in_output=True)
    assert choice["text"] == whole[: whole.index(word) + len(word)]


def test_an_answer_has_its_least_tokens(server):
    word = text(server).split()[0]
    assert choices(server, stop=word)[0]["text"].strip() == ""
    (choice,) = choices(server, stop=word, min_tokens=12)
    assert choice["finish_reason"] == "length" and word in choice["text"]
    ended = server.complete(PROMPT, **{**PLAIN, "logit_bias": {"0": 100}})
    assert ended["usage"]["completion_tokens"] == 1 and ended["choices"][0]["finish_reason"] == "stop"
    later = server.complete(PROMPT, **{**PLAIN, "logit_bias": {"0": 100}, "min_tokens": 5})
    assert later["usage"]["completion_tokens"] == 6


# What is told.


def test_token_ids_come_with_the_text(server):
    (choice,) = choices(server, return_token_ids=True)
    tokens = server.post({"prompt": PROMPT}, "/tokenize").json()["tokens"]
    assert choice["prompt_token_ids"] == tokens
    written = server.post({"tokens": choice["token_ids"]}, "/detokenize").json()["prompt"]
    assert written == choice["text"]
    streamed, prompts = [], []
    for event in server.stream(PROMPT, **{**PLAIN, "return_token_ids": True}):
        for part in event["choices"]:
            streamed += part["token_ids"]
            prompts += [part["prompt_token_ids"]] if "prompt_token_ids" in part else []
    assert streamed == choice["token_ids"] and prompts == [tokens]


def test_prompt_logprobs_are_those_of_echo(server):
    (echo,) = choices(server, echo=True, logprobs=2, max_tokens=0)
    (choice,) = choices(server, prompt_logprobs=2, max_tokens=1, return_token_ids=True)
    assert choice["logprobs"] is None
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    for token, entry, logprob in zip(choice["prompt_token_ids"][1:], rest, echo["logprobs"]["token_logprobs"][1:]):
        assert entry[str(token)]["logprob"] == logprob
        ranks = sorted(e["rank"] for e in entry.values())
        assert ranks[:2] == [1, 2] and len(entry) in (2, 3)
        best = max(entry.values(), key=lambda e: e["logprob"])
        assert best["rank"] == 1


@pytest.mark.parametrize("field, value", [
    ("use_beam_search", True), ("skip_special_tokens", False), ("allowed_token_ids", [1]), ("bad_words", ["x"]),
    ("truncate_prompt_tokens", 3), ("suffix", "x"),
    ("length_penalty", 2), ("priority", 1),
])
def test_what_is_not_supported_is_refused_by_name(server, field, value):
    error = refused(server, **{field: value})
    assert error["param"] == field and error["code"] == "unsupported_parameter"


def test_hostile_numbers_are_refused(server):
    for fields in ({"logit_bias": {"8192": 1}}, {"logit_bias": {"-1": 1}}, {"logit_bias": {"1e3": 1}},
                   {"stop_token_ids": [8192]}, {"stop_token_ids": [-1]}, {"n": 0}, {"n": -1}, {"n": 1.0}, {"n": 1e99},
                   {"best_of": 0}, {"min_tokens": -1}, {"min_tokens": 13}, {"repetition_penalty": 0},
                   {"repetition_penalty": -1}, {"presence_penalty": 3}, {"prompt_logprobs": -1}, {"n": True}):
        assert refused(server, **fields)["param"] in fields
    assert math.isfinite(choices(server, logprobs=0, logit_bias={str(i): -100 for i in range(1000)})[0]["logprobs"]
                         ["token_logprobs"][0])


def test_the_async_client_streams_several(server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            stream = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=6, n=2, seed=1, stream=True,
                                                     logit_bias={"5": -3}, presence_penalty=0.5, frequency_penalty=0.5)
            return {choice.index async for event in stream for choice in event.choices}

    assert asyncio.run(ask()) == {0, 1}
