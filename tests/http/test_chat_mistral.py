"""Chats about pictures with Mistral 3, whose pictures are read line by line, each with a token behind it: the server answers as
transformers' pipeline does (tests/reference/make_pixtral_golden.py), however many rows a step has."""
import json
import shutil

import openai
import pytest
from conftest import ROOT
from picture_chats import PictureChats, ask, logprobs_of, part_of, png, text

FOLDER = ROOT / "tests/golden/mistral3_served"  # patches of 4 pixels, four of which are a token; sides of 64 pixels at most
CHATS = PictureChats(FOLDER)
CASES = CHATS.cases
picture, messages_of, start, compare = CHATS.picture, CHATS.messages_of, CHATS.start, CHATS.compare


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("mistral"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(c["turns"][-1]))
def test_answers_are_those_of_transformers(server, case):
    """Twice, the second time from kept rows."""
    compare(server, case)
    again = compare(server, case)
    assert again.usage.prompt_tokens_details.cached_tokens == case["prompt_tokens"] - 1


def test_steps_of_few_rows(tmp_path, server):
    """Answers have the same bits, also of prompts that come at once."""
    running = start(tmp_path, max_step_tokens=7, prefix_cache_mb=0)
    try:
        for case in CASES:
            assert logprobs_of(compare(running, case)) == logprobs_of(compare(server, case))
        many = ask(running, messages_of(CASES[5]["turns"]), n=4, logprobs=True)
        assert {c.message.content for c in many.choices} == {CASES[5]["answer"]}
    finally:
        assert running.stop() == 0


def test_a_later_turn_takes_over_earlier_pictures(server, tmp_path):
    question = [picture("plain.png"), text("A rather long question about it, to fill a block. " * 3)]
    first = ask(server, [{"role": "user", "content": question}])
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": first.choices[0].message.content},
             {"role": "user", "content": [picture("long.png"), text("And this?")]}]
    kept = ask(server, turns, logprobs=True)
    assert kept.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens
    forgetful = start(tmp_path, prefix_cache_mb=0)
    try:
        fresh = ask(forgetful, turns, logprobs=True)
    finally:
        assert forgetful.stop() == 0
    assert fresh.usage.prompt_tokens_details.cached_tokens == 0
    assert logprobs_of(kept) == logprobs_of(fresh)


def test_another_picture_is_not_taken_over(server):
    first = ask(server, [{"role": "user", "content": [picture("wide.png"), text("Which?")]}], logprobs=True)
    other = ask(server, [{"role": "user", "content": [part_of(png(61, 40)), text("Which?")]}], logprobs=True)
    assert other.usage.prompt_tokens == first.usage.prompt_tokens
    assert other.usage.prompt_tokens_details.cached_tokens < 16
    assert logprobs_of(first) != logprobs_of(other)


@pytest.mark.parametrize("words", ["[IMG]", "[IMG_BREAK]", "[IMG_END]"])
def test_words_of_the_template_are_text(server, words):
    reply = ask(server, [{"role": "user", "content": [picture("tiny.png"), text("?" + words)]}])
    plain = ask(server, [{"role": "user", "content": [picture("tiny.png"), text("?")]}])
    assert reply.usage.prompt_tokens == plain.usage.prompt_tokens + len(words)


def test_two_ranks(tmp_path):
    running = start(tmp_path, options={"parallel": {"tensor": 2, "comm": "threads"}}, max_step_tokens=17)
    try:
        for case in (CASES[3], CASES[5], CASES[5]):
            compare(running, case)
    finally:
        assert running.stop() == 0


def test_rows_in_files(tmp_path):
    """A block that ends within a picture is read by another server."""
    turns = [{"role": "user", "content": [text("x" * 110), picture("wide.png"), text("And now? " * 4)]}]
    options = {"cache_folder": str(tmp_path / "rows"), "prefix_cache_mb": 64}
    replies = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        running = start(tmp_path / str(i), **options)
        try:
            replies.append(ask(running, turns, logprobs=True))
        finally:
            assert running.stop() == 0
    assert [r.usage.prompt_tokens_details.cached_tokens for r in replies] == [0, replies[0].usage.prompt_tokens - 1]
    assert logprobs_of(replies[0]) == logprobs_of(replies[1])


def test_passages_beside_pictures(tmp_path):
    """What is found is read in the user's text, as if it were sent there."""
    running = start(tmp_path, options={"retrieval": {"template": "{text} "}})
    try:
        message = [picture("wide.png"), text("Which one?"), picture("tiny.png")]
        given = ask(running, [{"role": "user", "content": message}], logprobs=True,
                    extra_body={"retrieval": {"neighbors": ["A cat sat there."]}})
        message[1] = text("A cat sat there. Which one?")
        same = ask(running, [{"role": "user", "content": message}], logprobs=True)
        assert logprobs_of(given) == logprobs_of(same)
        assert given.usage.prompt_tokens == same.usage.prompt_tokens
    finally:
        assert running.stop() == 0


def count(server, *sizes):
    return ask(server, [{"role": "user", "content": [*(part_of(png(*size)) for size in sizes), text("?")]}]).usage.prompt_tokens


@pytest.mark.parametrize("size, ids", [((8, 8), 2), ((9, 8), 3), ((64, 64), 72), ((600, 600), 72), ((300, 200), 54), ((128, 2), 9)])
def test_rows_are_counted(server, size, ids):
    """Columns and one more for each line of 8 pixels."""
    assert count(server, size) == count(server) + ids


def test_large_pictures_are_made_smaller(tmp_path):
    running = start(tmp_path, max_picture_patches=64)
    try:
        log = running.log.read_text()
        assert "in at most 64 rows" in log and "more than 1024 pixels are made smaller by server.max_picture_patches" in log
        words = count(running)
        for size, ids in [((32, 32), 20), ((40, 40), 20), ((300, 200), 15), ((20, 200), 16), ((3, 2), 2), ((64, 8), 9)]:
            assert count(running, size) == words + ids, size
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("size, words", [((4000, 20), "it has no pixel left"), ((1, 4000), "it has no pixel left")])
def test_narrow_pictures_are_refused(server, size, words):
    with pytest.raises(openai.BadRequestError, match=words):
        count(server, size)


def test_a_narrow_picture_and_few_patches(tmp_path):
    running = start(tmp_path, max_picture_patches=16)
    try:
        with pytest.raises(openai.BadRequestError, match="32 rows of the tower; the limit is 16 .server.max_picture_patches"):
            count(running, (64, 1))
    finally:
        assert running.stop() == 0


def published(tmp_path, processor={}, **keys):
    """The processors' files as the Hub's folders have them."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    both = json.loads((folder / "processor_config.json").read_text())
    images = both.pop("image_processor")
    (folder / "processor_config.json").write_text(json.dumps(both | processor))
    (folder / "preprocessor_config.json").write_text(json.dumps(images | {"processor_class": "PixtralProcessor"} | keys))
    return folder


def test_files_of_the_hub(tmp_path):
    running = start(tmp_path, published(tmp_path, patch_size=16))
    try:
        compare(running, CASES[3])
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("processor, keys, words", [
    ({"patch_size": 7}, {}, "\"patch_size\" 7 and \"spatial_merge_size\" 2, the model's tower 4 and 2"),
    ({"spatial_merge_size": 1}, {}, "\"spatial_merge_size\" 1, the"),
    ({"spatial_merge_size": 0}, {}, "spatial_merge_size"),
    ({"image_end_token": "[IMG_STOP]"}, {}, "has no token \"\\[IMG_STOP\\]\""),
    ({"image_break_token": 3}, {}, "image_break_token"),
    ({}, {"image_processor_type": "Qwen2VLImageProcessor", "size": {"shortest_edge": 9, "longest_edge": 999}},
     "does not make what the model reads: pictures of any size as Pixtral's"),
    ({}, {"crop_pct": 1}, "crop_pct"),
])
def test_processors_that_do_not_fit_are_refused(tmp_path, processor, keys, words):
    if "image_processor_type" in keys:
        keys = keys | {"patch_size": 4, "do_pad": False}
    with pytest.raises(AssertionError, match=words):
        start(tmp_path, published(tmp_path, processor, **keys))


def test_text_without_a_processor(tmp_path):
    """Pictures are refused where the folder does not say how they are prepared; texts are answered."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    (folder / "processor_config.json").unlink()
    running = start(tmp_path, folder)
    try:
        compare(running, CASES[-1])
        reply = running.post({"messages": messages_of(CASES[0]["turns"])}, "/v1/chat/completions")
        assert reply.status == 400
    finally:
        assert running.stop() == 0
