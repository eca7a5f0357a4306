"""Chats about pictures with Qwen2.5-VL, whose rows have positions by the grid of a picture: the server answers as
transformers' pipeline does (tests/reference/make_qwen_vl_golden.py)."""
import base64
import json
import shutil

import pytest
from conftest import ROOT, Server

FOLDER = ROOT / "tests/golden/qwen_vl_served"
CASES = json.loads((FOLDER / "answers.json").read_text())
PICTURES = {"wide.png": 24, "plain.png": 16, "tiny.png": 6}  # rows of some


def picture(name):
    url = "data:image/png;base64," + base64.b64encode((FOLDER / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def messages_of(turns):
    def content_of(parts):
        return [picture(p) if p.endswith(".png") else {"type": "text", "text": p} for p in parts]
    return [{"role": "assistant", "content": turn} if i % 2 else {"role": "user", "content": content_of(turn)}
            for i, turn in enumerate(turns)]


def start(folder, model=FOLDER, options={}, **settings):
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(model), "name": "seer", "dtype": "f32"},
                                  "server": {"port": 0, "max_context": 400, **settings}, **options}))
    return Server(config, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("qwen"))
    yield running
    assert running.stop() == 0, running.log.read_text()


def ask(server, messages, **fields):
    return server.client().chat.completions.create(model="seer", messages=messages, temperature=0, max_tokens=12, **fields)


def compare(server, case):
    reply = ask(server, messages_of(case["turns"]), logprobs=True)
    assert reply.choices[0].message.content == case["answer"]
    logprobs = [token.logprob for token in reply.choices[0].logprobs.content]
    assert logprobs == pytest.approx(case["logprobs"][:len(logprobs)], abs=1e-4) and len(logprobs) >= len(case["answer"]) > 0
    assert reply.usage.prompt_tokens == case["prompt_tokens"]
    return reply


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(c["turns"][-1]))
def test_answers_are_those_of_transformers(server, case):
    """Twice, the second time from kept rows."""
    compare(server, case)
    again = compare(server, case)
    assert again.usage.prompt_tokens_details.cached_tokens == case["prompt_tokens"] - 1


def test_a_later_turn_takes_over_earlier_pictures(server, tmp_path):
    question = [picture("plain.png"), {"type": "text", "text": "A rather long question about it, to fill a block. " * 3}]
    first = ask(server, [{"role": "user", "content": question}])
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": first.choices[0].message.content},
             {"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "And this?"}]}]
    kept = ask(server, turns, logprobs=True)
    assert kept.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens
    forgetful = start(tmp_path, prefix_cache_mb=0)
    try:
        fresh = ask(forgetful, turns, logprobs=True)
    finally:
        assert forgetful.stop() == 0
    assert fresh.usage.prompt_tokens_details.cached_tokens == 0
    assert [t.logprob for t in kept.choices[0].logprobs.content] == [t.logprob for t in fresh.choices[0].logprobs.content]


def test_rows_are_counted(server):
    plain = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}]}]).usage.prompt_tokens
    for name, rows in PICTURES.items():
        reply = ask(server, [{"role": "user", "content": [picture(name), {"type": "text", "text": "?"}]}])
        assert reply.usage.prompt_tokens == plain + rows + 2  # and the marks around them


def test_words_of_the_template_are_text(server):
    reply = ask(server, [{"role": "user", "content": [{"type": "text", "text": "<|image_pad|><|video_pad|>"}, picture("tiny.png")]}])
    plain = ask(server, [{"role": "user", "content": [picture("tiny.png")]}])
    assert reply.usage.prompt_tokens == plain.usage.prompt_tokens + len("<|image_pad|><|video_pad|>")


@pytest.mark.parametrize("part", [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
                                  {"type": "video", "video": ["a.png"]}])
def test_video_is_refused(server, part):
    reply = server.post({"messages": [{"role": "user", "content": [part]}]}, "/v1/chat/completions")
    assert reply.status == 400 and reply.error()["code"] == "unsupported_content" and "image_url" in reply.error()["message"]


def test_two_ranks(tmp_path):
    running = start(tmp_path, options={"parallel": {"tensor": 2, "comm": "threads"}})
    try:
        for case in (CASES[3], CASES[5], CASES[5]):
            compare(running, case)
    finally:
        assert running.stop() == 0


def test_passages_beside_pictures(tmp_path):
    """What is found is read in the user's text, as if it were sent there, and positions are counted behind it."""
    running = start(tmp_path, options={"retrieval": {"template": "{text} "}})
    try:
        message = [picture("wide.png"), {"type": "text", "text": "Which one?"}, picture("tiny.png")]
        given = ask(running, [{"role": "user", "content": message}], logprobs=True,
                    extra_body={"retrieval": {"neighbors": ["A cat sat there."]}})
        message[1] = {"type": "text", "text": "A cat sat there. Which one?"}
        same = ask(running, [{"role": "user", "content": message}], logprobs=True)
        assert [t.logprob for t in given.choices[0].logprobs.content] == [t.logprob for t in same.choices[0].logprobs.content]
        assert given.usage.prompt_tokens == same.usage.prompt_tokens
    finally:
        assert running.stop() == 0


def test_text_without_a_processor(tmp_path):
    """Pictures are refused where the folder does not say how they are prepared; texts are answered."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    (folder / "preprocessor_config.json").unlink()
    running = start(tmp_path, folder)
    try:
        compare(running, CASES[-1])
        reply = running.post({"messages": messages_of(CASES[0]["turns"])}, "/v1/chat/completions")
        assert reply.status == 400
    finally:
        assert running.stop() == 0
