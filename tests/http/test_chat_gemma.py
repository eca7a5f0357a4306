"""Chats about pictures with Gemma 3, in which the rows of a picture see each other: the server answers as transformers'
pipeline does (tests/reference/make_gemma3_golden.py), however many rows a step has."""
import json
import shutil

import pytest
from conftest import ROOT
from picture_chats import PictureChats, ask, logprobs_of

FOLDER = ROOT / "tests/golden/gemma3_served"
CHATS = PictureChats(FOLDER)
CASES = CHATS.cases
picture, messages_of, start, compare = CHATS.picture, CHATS.messages_of, CHATS.start, CHATS.compare
ROWS = 16  # of a picture
TOKENS = ROWS + 4  # with what the processor writes around it: two line ends, a mark, a mark, two line ends


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("gemma"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(c["turns"][-1]))
def test_answers_are_those_of_transformers(server, case):
    """Twice, the second time from kept rows."""
    compare(server, case)
    again = compare(server, case)
    assert again.usage.prompt_tokens_details.cached_tokens == case["prompt_tokens"] - 1


@pytest.mark.parametrize("rows", [ROWS, ROWS + 5])
def test_steps_of_few_rows(tmp_path, server, rows):
    """Pictures are read whole, and answers have the same bits, also of prompts that come at once."""
    running = start(tmp_path, max_step_tokens=rows, prefix_cache_mb=0)
    try:
        for case in CASES:
            cut = compare(running, case)
            assert logprobs_of(cut) == logprobs_of(compare(server, case))
        turns = messages_of(CASES[5]["turns"])
        many = ask(running, turns, n=4, logprobs=True)
        assert {c.message.content for c in many.choices} == {CASES[5]["answer"]}
    finally:
        assert running.stop() == 0


def test_a_step_without_room_for_a_picture(tmp_path):
    with pytest.raises(AssertionError, match="server.max_step_tokens is 15, and one step reads all 16 rows of a picture"):
        start(tmp_path, max_step_tokens=ROWS - 1)


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
    assert logprobs_of(kept) == logprobs_of(fresh)


def test_another_picture_is_not_taken_over(server):
    text = {"type": "text", "text": "Which?"}
    first = ask(server, [{"role": "user", "content": [picture("wide.png"), text]}], logprobs=True)
    other = ask(server, [{"role": "user", "content": [picture("tall.png"), text]}], logprobs=True)
    assert other.usage.prompt_tokens_details.cached_tokens < first.usage.prompt_tokens - ROWS
    assert logprobs_of(first) != logprobs_of(other)


def test_rows_are_counted(server):
    """The line ends around a picture are tokens together with those beside them."""
    plain = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}]}]).usage.prompt_tokens
    for name in ("wide.png", "tiny.png"):
        reply = ask(server, [{"role": "user", "content": [{"type": "text", "text": "?"}, picture(name)]}])
        assert reply.usage.prompt_tokens == plain + TOKENS


@pytest.mark.parametrize("words", ["<start_of_image>", "<image_soft_token>", "<end_of_image>"])
def test_words_of_the_template_are_text(server, words):
    reply = ask(server, [{"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "?" + words}]}])
    plain = ask(server, [{"role": "user", "content": [picture("tiny.png"), {"type": "text", "text": "?"}]}])
    assert reply.usage.prompt_tokens == plain.usage.prompt_tokens + len(words)


def test_two_ranks(tmp_path):
    running = start(tmp_path, options={"parallel": {"tensor": 2, "comm": "threads"}}, max_step_tokens=ROWS + 1)
    try:
        for case in (CASES[3], CASES[5], CASES[5]):
            compare(running, case)
    finally:
        assert running.stop() == 0


def test_rows_in_files(tmp_path):
    """A block that ends within a picture is read by another server."""
    filler = {"type": "text", "text": "x" * 110}
    turns = [{"role": "user", "content": [filler, picture("wide.png"), {"type": "text", "text": "And now? " * 4}]}]
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
        message = [picture("wide.png"), {"type": "text", "text": "Which one?"}, picture("tiny.png")]
        given = ask(running, [{"role": "user", "content": message}], logprobs=True,
                    extra_body={"retrieval": {"neighbors": ["A cat sat there."]}})
        message[1] = {"type": "text", "text": "A cat sat there. Which one?"}
        same = ask(running, [{"role": "user", "content": message}], logprobs=True)
        assert logprobs_of(given) == logprobs_of(same)
        assert given.usage.prompt_tokens == same.usage.prompt_tokens
    finally:
        assert running.stop() == 0


def published(tmp_path, **keys):
    """The processor's file as the Hub's folders have it."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    images = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    (folder / "processor_config.json").write_text(json.dumps({"image_seq_length": ROWS, "processor_class": "Gemma3Processor"}))
    images |= {"do_convert_rgb": None, "do_pan_and_scan": None, "pan_and_scan_max_num_crops": None,
               "pan_and_scan_min_crop_size": None, "pan_and_scan_min_ratio_to_activate": None,
               "image_seq_length": ROWS, "processor_class": "Gemma3Processor"} | keys
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


def test_files_of_the_hub(tmp_path):
    running = start(tmp_path, published(tmp_path))
    try:
        compare(running, CASES[3])
    finally:
        assert running.stop() == 0


def test_pan_and_scan_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="do_pan_and_scan"):
        start(tmp_path, published(tmp_path, do_pan_and_scan=True))


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
