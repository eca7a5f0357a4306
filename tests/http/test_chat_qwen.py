"""Chats about pictures with Qwen2.5-VL, Qwen3-VL and Qwen3.5, whose rows have positions by the grid of a picture: the server
answers as transformers' pipeline does (tests/reference/make_qwen_vl_golden.py)."""
import json
import pathlib
import re
import shutil
import sys

import pytest
from conftest import ROOT
from picture_chats import PictureChats, ask

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from stored_tensors import keep_tensors

FOLDERS = [ROOT / "tests/golden/qwen_vl_served", ROOT / "tests/golden/qwen3_vl_served", ROOT / "tests/golden/qwen3_5_served"]
STATES = FOLDERS[2]  # it goes on behind its states: at the ends of texts, and where a block of rows ends
BLOCK = 128
CHATS = PictureChats(FOLDERS[0])  # all have the same pictures
CASES = [PictureChats(folder).cases for folder in FOLDERS]
picture, messages_of, start, compare = CHATS.picture, CHATS.messages_of, CHATS.start, CHATS.compare
PICTURES = {"wide.png": 24, "plain.png": 16, "tiny.png": 6}  # rows of some


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def server(request, tmp_path_factory):
    running = start(tmp_path_factory.mktemp("qwen"), request.param)
    yield running
    assert running.stop() == 0, running.log.read_text()


def cases_of(server):
    return CASES[FOLDERS.index(server.model)]


def test_rows_of_pictures_are_counted(server):
    """In memory, at the start: all columns that the decoder is given, of whole contexts."""
    config = json.loads((server.model / "config.json").read_text())
    text = config.get("text_config", config)
    columns = text["hidden_size"] * (1 + len(config["vision_config"].get("deepstack_visual_indexes", [])))
    line = next(line for line in server.log.read_text().splitlines() if "memory: " in line)
    found = re.search(r"rows of pictures ([\d.]+) MB", line)
    assert float(found[1]) == pytest.approx(4e-6 * columns * 400 * (8 + 1), abs=0.06), line


@pytest.mark.parametrize("number", range(len(CASES[0])), ids=lambda i: " ".join(CASES[0][i]["turns"][-1]))
def test_answers_are_those_of_transformers(server, number):
    """Twice, the second time from kept rows."""
    case = cases_of(server)[number]
    compare(server, case)
    again = compare(server, case)
    most = case["prompt_tokens"] - 1
    kept = most // BLOCK * BLOCK if server.model == STATES else most
    assert again.usage.prompt_tokens_details.cached_tokens == kept


def test_a_later_turn_takes_over_earlier_pictures(server, tmp_path):
    question = [picture("plain.png"), {"type": "text", "text": "A rather long question about it, to fill a block. " * 3}]
    first = ask(server, [{"role": "user", "content": question}])
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": first.choices[0].message.content},
             {"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "And this?"}]}]
    kept = ask(server, turns, logprobs=True)
    assert kept.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens
    forgetful = start(tmp_path, server.model, prefix_cache_mb=0)
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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("shape", ["tensor", "pipeline"])
def test_two_ranks(tmp_path, folder, shape):
    running = start(tmp_path, folder, options={"parallel": {shape: 2, "comm": "threads"}})
    try:
        for number in (3, 5, 5):
            compare(running, cases_of(running)[number])
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_passages_beside_pictures(tmp_path, folder):
    """What is found is read in the user's text, as if it were sent there, and positions are counted behind it."""
    running = start(tmp_path, folder, options={"retrieval": {"template": "{text} "}})
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


@pytest.mark.parametrize("cases, folder", zip(CASES, FOLDERS), ids=[folder.name for folder in FOLDERS])
def test_text_without_a_processor(tmp_path, cases, folder):
    """Pictures are refused where the folder does not say how they are prepared; texts are answered."""
    copy = shutil.copytree(folder, tmp_path / "model")
    (copy / "preprocessor_config.json").unlink()
    running = start(tmp_path, copy)
    try:
        compare(running, cases[-1])
        reply = running.post({"messages": messages_of(cases[0]["turns"])}, "/v1/chat/completions")
        assert reply.status == 400
    finally:
        assert running.stop() == 0


def test_the_processor_of_published_folders(server, tmp_path):
    """preprocessor_config.json has other keys as the Hub has it; a picture becomes as many rows."""
    folder = shutil.copytree(server.model, tmp_path / "model")
    half = [0.5, 0.5, 0.5]
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "size": {"longest_edge": 16777216, "shortest_edge": 256}, "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": half, "image_std": half, "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast"}))
    running = start(tmp_path, folder)
    try:
        turns = messages_of([["plain.png", "What is this?"]])
        assert ask(running, turns).usage.prompt_tokens == ask(server, turns).usage.prompt_tokens
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("number", [1, 2], ids=["qwen3", "qwen3.5"])
def test_text_without_a_tower(tmp_path, number):
    """The tensors of the text alone are there: texts are answered, and pictures are refused."""
    folder = shutil.copytree(FOLDERS[number], tmp_path / "model")
    keep_tensors(folder / "model.safetensors", lambda name: not name.startswith("model.visual."))
    running = start(tmp_path, folder)
    try:
        assert "the checkpoint has no vision tower" in running.log.read_text()
        compare(running, CASES[number][-1])
        reply = running.post({"messages": messages_of(CASES[number][0]["turns"])}, "/v1/chat/completions")
        assert reply.status == 400
    finally:
        assert running.stop() == 0
