"""Chats about pictures with Gemma 4, whose pictures have any shape, and whose rows of a picture see each other in layers with a
window: the server answers as transformers' pipeline does (tests/reference/make_gemma4_golden.py), however many rows a step
has."""
import json
import re
import shutil
import sys

import pytest
from conftest import ROOT
from picture_chats import PictureChats, ask, logprobs_of, part_of, png

sys.path.insert(0, str(ROOT / "tests"))
from stored_tensors import keep_tensors

FOLDER = ROOT / "tests/golden/gemma4_served"
CHATS = PictureChats(FOLDER)
CASES = CHATS.cases
picture, messages_of, start, compare = CHATS.picture, CHATS.messages_of, CHATS.start, CHATS.compare
MOST = 70  # rows of a picture
ROWS = {"wide.png": 10 * 6, "tall.png": 5 * 13, "plain.png": 8 * 8, "tiny.png": 10 * 6, "long.png": 70}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("gemma4"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(c["turns"][-1]))
def test_answers_are_those_of_transformers(server, case):
    """Twice, the second time from kept rows."""
    compare(server, case)
    again = compare(server, case)
    assert again.usage.prompt_tokens_details.cached_tokens == case["prompt_tokens"] - 1


@pytest.mark.parametrize("rows", [MOST, MOST + 9])
def test_steps_of_few_rows(tmp_path, server, rows):
    """Pictures are read whole, and answers have the same bits, also of prompts that come at once."""
    running = start(tmp_path, max_step_tokens=rows, prefix_cache_mb=0)
    try:
        for case in CASES:
            assert logprobs_of(compare(running, case)) == logprobs_of(compare(server, case))
        many = ask(running, messages_of(CASES[5]["turns"]), n=4, logprobs=True)
        assert {c.message.content for c in many.choices} == {CASES[5]["answer"]}
    finally:
        assert running.stop() == 0


def test_a_step_without_room_for_a_picture(tmp_path):
    with pytest.raises(AssertionError, match="server.max_step_tokens is 69, and one step reads all 70 rows of a picture"):
        start(tmp_path, max_step_tokens=MOST - 1)


def test_a_later_turn_takes_over_earlier_pictures(server, tmp_path):
    question = [picture("plain.png"), {"type": "text", "text": "A rather long question about it, to fill a block. " * 3}]
    first = ask(server, [{"role": "user", "content": question}])
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": first.choices[0].message.content},
             {"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "And this?"}]}]
    kept = ask(server, turns, logprobs=True)
    assert kept.usage.prompt_tokens_details.cached_tokens > ROWS["plain.png"]
    forgetful = start(tmp_path, prefix_cache_mb=0)
    try:
        fresh = ask(forgetful, turns, logprobs=True)
    finally:
        assert forgetful.stop() == 0
    assert fresh.usage.prompt_tokens_details.cached_tokens == 0
    assert logprobs_of(kept) == logprobs_of(fresh)


def test_another_picture_is_not_taken_over(server):
    def look(level):
        part = part_of(png(61, 40, (level, level, level)))
        return ask(server, [{"role": "user", "content": [part, {"type": "text", "text": "Which?"}]}], logprobs=True)

    first, other = look(30), look(200)
    assert other.usage.prompt_tokens == first.usage.prompt_tokens
    assert other.usage.prompt_tokens_details.cached_tokens < first.usage.prompt_tokens - ROWS["wide.png"]
    assert logprobs_of(first) != logprobs_of(other)


def test_rows_are_counted(server):
    """A picture has as many rows as its shape lets it have, between two tokens."""
    plain = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}]}]).usage.prompt_tokens
    for name, rows in ROWS.items():
        reply = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}, picture(name)]}])
        assert reply.usage.prompt_tokens == plain + rows + 2 + len("\n\n\n\n")


@pytest.mark.parametrize("words", ["<|image|>", "<|image>", "<image|>"])
def test_words_of_the_template_are_text(server, words):
    reply = ask(server, [{"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "?" + words}]}])
    plain = ask(server, [{"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "?"}]}])
    assert reply.usage.prompt_tokens == plain.usage.prompt_tokens + len(words)


def test_two_ranks(tmp_path):
    running = start(tmp_path, options={"parallel": {"tensor": 2, "comm": "threads"}}, max_step_tokens=MOST + 1)
    try:
        for case in (CASES[3], CASES[5], CASES[5]):
            compare(running, case)
    finally:
        assert running.stop() == 0


def test_rows_in_files(tmp_path):
    """A block that ends within a picture is read by another server."""
    filler = {"type": "text", "text": "x" * 90}
    turns = [{"role": "user", "content": [filler, picture("wide.png"), {"type": "text", "text": "And now? " * 9}]}]
    options = {"cache_folder": str(tmp_path / "rows"), "prefix_cache_mb": 64}
    replies = []
    for i in range(2):
        running = start(tmp_path / str(i), **options)
        try:
            replies.append(ask(running, turns, logprobs=True))
        finally:
            assert running.stop() == 0
    assert [r.usage.prompt_tokens_details.cached_tokens for r in replies] == [0, replies[0].usage.prompt_tokens - 1]
    assert logprobs_of(replies[0]) == logprobs_of(replies[1])


@pytest.mark.parametrize("patches, rows", [(200, 20), (16, 1)])
def test_fewer_patches(tmp_path, patches, rows):
    """Pictures become as many tokens as the tower's patches allow, and the start says so; memory is counted for these."""
    running = start(tmp_path, max_picture_patches=patches)
    try:
        log = running.log.read_text()
        assert f"server.max_picture_patches makes pictures {patches // 9} tokens or fewer" in log
        assert f"the tower reads them in at most {patches} rows" in log
        plain = ask(running, [{"role": "user", "content": [{"type": "text", "text": "?"}]}]).usage.prompt_tokens
        reply = ask(running, [{"role": "user", "content": [{"type": "text", "text": "?"}, picture("wide.png")]}])
        assert 0 < reply.usage.prompt_tokens - plain - 6 <= max(rows, 1)
    finally:
        assert running.stop() == 0


def test_memory_is_counted(tmp_path):
    """The line of the start has the tower's rows, whose number an option bounds."""
    def buffers(patches):
        running = start(tmp_path / str(patches), max_picture_patches=patches)
        assert running.stop() == 0
        return float(re.search(r"step buffers ([\d.]+) MB", running.log.read_text())[1])
    # Of a row: patches, activations and what lies on the host, of about 500 numbers.
    assert buffers(5000) - buffers(1000) > 4000 * 4 * 300 / 1e6


@pytest.mark.parametrize("width, height", [(65535, 1), (1, 65535), (1, 1), (3000, 2), (4000, 3000)])
def test_pictures_of_odd_shapes(server, width, height):
    plain = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}]}]).usage.prompt_tokens
    part = part_of(png(width, height))
    reply = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}, part]}])
    assert 0 < reply.usage.prompt_tokens - plain - 6 <= MOST


def test_too_many_pictures(server):
    reply = server.post({"messages": [{"role": "user", "content": [picture("tiny.png")] * 40}]}, "/v1/chat/completions")
    assert reply.status == 400 and "40 pictures" in reply.error()["message"]


@pytest.mark.parametrize("part", [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
                                  {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}])
def test_video_and_sound_are_refused(server, part):
    reply = server.post({"messages": [{"role": "user", "content": [part]}]}, "/v1/chat/completions")
    assert reply.status == 400 and reply.error()["code"] == "unsupported_content", reply.error()


def test_passages_beside_pictures(tmp_path):
    """What is found is read in the user's text, as if it were sent there."""
    running = start(tmp_path, options={"retrieval": {"template": "{text} "}})
    try:
        message = [picture("wide.png"), {"type": "text", "text": "Which one?"}, picture("tiny.png")]
        given = ask(running, [{"role": "user", "content": message}], logprobs=True,
                    extra_body={"retrieval": {"neighbors": ["A cat sat there."]}})
        message[1] = {"type": "text", "text": "A cat sat there. Which one?"}
        same = ask(running, [{"role": "user", "content": message}], logprobs=True)
        assert logprobs_of(given) == logprobs_of(same)
        assert given.usage.prompt_tokens == same.usage.prompt_tokens
    finally:
        assert running.stop() == 0


def copy_with(tmp_path, file, change):
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    value = json.loads((folder / file).read_text())
    change(value)
    (folder / file).write_text(json.dumps(value))
    return folder


def test_another_patch_is_refused(tmp_path):
    folder = copy_with(tmp_path, "processor_config.json", lambda file: file["image_processor"].update(patch_size=4))
    with pytest.raises(AssertionError, match='"patch_size" 4, "pooling_kernel_size" 3'):
        start(tmp_path, folder)


def test_text_without_a_processor(tmp_path):
    """Pictures are refused where the folder does not say how they are prepared; texts are answered."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    (folder / "processor_config.json").unlink()
    running = start(tmp_path, folder)
    try:
        compare(running, CASES[-1])
        assert running.post({"messages": messages_of(CASES[0]["turns"])}, "/v1/chat/completions").status == 400
    finally:
        assert running.stop() == 0


def test_text_without_a_tower(tmp_path):
    """The tensors of the text alone are there: texts are answered, and pictures are refused."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    keep_tensors(folder / "model.safetensors", lambda name: "vision" not in name)
    running = start(tmp_path, folder)
    try:
        compare(running, CASES[-1])
        assert running.post({"messages": messages_of(CASES[0]["turns"])}, "/v1/chat/completions").status == 400
    finally:
        assert running.stop() == 0
