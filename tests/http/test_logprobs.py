"""Log-probabilities of answers and prompts: the contract that evaluation harnesses rely on."""

from conftest import END

PROMPT = "SIGTERM asks a process to end; SIGKILL ends it. naïve 漢字"
OFF = {"enabled": False}


def test_scoring_contract(server):
    """As lm-evaluation-harness asks: token ids in, prompt and one token scored."""
    ids = list(range(100, 160))
    reply = server.complete([ids, ids[:7]], temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True)
    for choice, prompt in zip(reply["choices"], (ids, ids[:7])):
        scores = choice["logprobs"]
        assert {len(v) for v in scores.values()} == {len(prompt) + 1}
        assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
        for value, top in zip(scores["token_logprobs"][1:], scores["top_logprobs"][1:]):
            assert value in top.values(), "the token itself is among the alternatives"
            assert value <= max(top.values())
        # The last token was drawn greedily: equal as floats, not nearly.
        assert scores["token_logprobs"][-1] == max(scores["top_logprobs"][-1].values())


def test_scores_without_writing(server):
    scored = server.complete(PROMPT, max_tokens=0, echo=True, logprobs=2)
    choice = scored["choices"][0]
    assert choice["text"] == PROMPT and choice["finish_reason"] == "length"
    assert scored["usage"]["completion_tokens"] == 0
    assert len(choice["logprobs"]["tokens"]) == scored["usage"]["prompt_tokens"]
    longer = server.complete(PROMPT, max_tokens=3, echo=True, logprobs=2, temperature=0)["choices"][0]
    n = scored["usage"]["prompt_tokens"]
    for name, values in choice["logprobs"].items():
        assert longer["logprobs"][name][:n] == values


def test_an_answer_scores_the_same_when_read_back(server):
    """Prefill computes at once the same floats that decoding computed token by token."""
    compared = 0
    for seed in range(50):
        ask = dict(logprobs=1, retrieval=OFF, temperature=0.5, seed=seed)
        written = server.complete(PROMPT, max_tokens=20, ignore_eos=True, **ask)["choices"][0]
        read = server.complete(PROMPT + written["text"], max_tokens=0, echo=True, **ask)["choices"][0]
        if read["logprobs"]["tokens"][-20:] == written["logprobs"]["tokens"]:  # the text may have other tokens too
            assert read["logprobs"]["token_logprobs"][-20:] == written["logprobs"]["token_logprobs"]
            assert read["logprobs"]["top_logprobs"][-20:] == written["logprobs"]["top_logprobs"]
            compared += 1
        if compared == 3:
            return
    raise AssertionError(f"{compared} of 50 answers are read back in the tokens that they were written in")


def test_long_prompts_are_scored_in_blocks(server):
    """More rows than one step may score, next to requests that only write."""
    ids = [(7 * i) % 8000 + 100 for i in range(500)]
    alone = server.complete([ids], max_tokens=0, logprobs=3, echo=True)["choices"][0]["logprobs"]
    assert len(alone["tokens"]) == 500
    both = server.complete([ids, ids], max_tokens=0, logprobs=3, echo=True)["choices"]
    assert both[0]["logprobs"] == alone and both[1]["logprobs"] == alone


def test_number_of_alternatives(server):
    for n in (0, 1, 5, 20):
        top = server.complete(PROMPT, max_tokens=4, temperature=0, logprobs=n)["choices"][0]["logprobs"]["top_logprobs"]
        assert all(max(n, 1) <= len(t) <= n + 1 for t in top)


def test_text_offsets_count_characters(server):
    choice = server.complete(PROMPT, max_tokens=12, temperature=0, echo=True, logprobs=0)["choices"][0]
    offsets, tokens, text = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], choice["text"]
    assert offsets[0] == 0 and offsets == sorted(offsets)
    for token, start in zip(tokens, offsets):
        if not token.startswith("bytes:"):
            assert text[start : start + len(token)] == ("" if token == END else token)
    alone = server.complete(PROMPT, max_tokens=12, temperature=0, logprobs=0)["choices"][0]
    assert alone["logprobs"]["text_offset"][0] == 0
    assert text == PROMPT + alone["text"]


def test_half_characters_have_names_of_their_own(server):
    tokens = server.complete("漢字漢", max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]["tokens"]
    spelt = b"".join(
        bytes.fromhex(t[6:].replace("\\x", "")) if t.startswith("bytes:") else t.encode() for t in tokens
    )
    assert spelt.decode() == "漢字漢"
    assert any(t.startswith("bytes:") for t in tokens), "the tokenizer has no half characters here: change the text"


def test_streamed_scores_add_up(server):
    ask = dict(max_tokens=30, temperature=0, echo=True, logprobs=2)
    whole = server.complete(PROMPT, **ask)["choices"][0]
    parts = [c for e in server.stream(PROMPT, **ask) for c in e["choices"]]
    assert "".join(c["text"] for c in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        assert sum((c["logprobs"][name] for c in parts if c["logprobs"]), []) == values
