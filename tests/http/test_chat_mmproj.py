"""Chats about pictures with a model in two GGUF files, its own and its tower's: the answers are those of the folder that both
were made of (tests/reference/make_gguf_towers.py)."""
import json
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT
from picture_chats import PictureChats, ask, logprobs_of

GOLDEN = ROOT / "tests/golden"
PAIRS = GOLDEN / "mmproj"
NAMES = ["gemma3_served", "gemma4_served", "llava_served", "llava_next_served", "mistral3_served", "qwen_vl_served",
         "qwen3_vl_served", "qwen3_5_served"]


def answers_of(running, folder):
    chats = PictureChats(folder)
    try:
        replies = [ask(running, chats.messages_of(case.get("turns") or [case["parts"]]), logprobs=True) for case in chats.cases]
    finally:
        assert running.stop() == 0, running.log.read_text()
    return [(r.choices[0].message.content, r.usage.prompt_tokens, logprobs_of(r)) for r in replies]


def as_torchvision(folder, out):
    """The folder with the back end that files are read with: they do not name one."""
    shutil.copytree(folder, out)
    for name in ("processor_config.json", "preprocessor_config.json"):
        if (out / name).exists():
            (out / name).write_text((out / name).read_text().replace("ImageProcessorPil", "ImageProcessor"))
    return out


def with_pictures(folder):
    """Both folders of LLaVA have the pictures of one."""
    for picture in (GOLDEN / "llava_served").glob("*.png"):
        if folder.name == "llava_next_served":
            shutil.copy(picture, folder)
    return folder


def without_links(folder):
    """Files do not tell which rows of a picture see each other in Gemma 4. Small models, as this one is, have no such rows."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "gemma4":
        del config["text_config"]["use_bidirectional_attention"]
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_the_folder(name, tmp_path):
    folder = with_pictures(without_links(as_torchvision(GOLDEN / name, tmp_path / name)))
    chats = PictureChats(folder)
    want = answers_of(chats.start(tmp_path / "a"), folder)
    got = answers_of(chats.start(tmp_path / "b", PAIRS / name / "model.gguf"), folder)
    for (text, tokens, logprobs), (other, others, numbers) in zip(want, got):
        assert (text, tokens) == (other, others)
        assert logprobs == pytest.approx(numbers, abs=1e-4)


def check(model, tmp_path):
    return subprocess.run([BUILD / "retro-server", "--check-config", "--set", f"model.path={model}", "--set",
                           "server.max_context=400"], capture_output=True, text=True)


def beside(tmp_path, model, *towers):
    folder = tmp_path / "models"
    folder.mkdir(parents=True)
    shutil.copy(model, folder / "model.gguf")
    for i, tower in enumerate(towers):
        shutil.copy(PAIRS / tower / "mmproj-tiny.gguf", folder / f"mmproj-{i}.gguf")
    return folder / "model.gguf"


def test_a_pair_is_checked(tmp_path):
    done = check(beside(tmp_path, PAIRS / "gemma3_served/model.gguf", "gemma3_served"), tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_start_says_which_precision_is_read(tmp_path):
    """Of one size it is F16, beside BF16 too; here both files are the same, and the first one by name is taken."""
    model = beside(tmp_path, PAIRS / "gemma3_served/model.gguf")
    for name in ("mmproj-BF16.gguf", "mmproj-F16.gguf"):
        shutil.copy(PAIRS / "gemma3_served/mmproj-tiny.gguf", model.parent / name)
    chats = PictureChats(GOLDEN / "gemma3_served")
    running = chats.start(tmp_path / "a", model)
    try:
        assert "mmproj-BF16.gguf, which loses least of 2 precisions" in running.log.read_text()
        with_picture = chats.messages_of([["plain.png", "What?"]])
        assert running.post({"messages": with_picture, "max_tokens": 2}, "/v1/chat/completions").status == 200
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("model, towers, words", [
    (PAIRS / "gemma3_served/model.gguf", ["gemma3_served", "gemma3_served"],
     "2 files could be the vision tower of model.gguf: mmproj-0.gguf, mmproj-1.gguf"),
    (PAIRS / "gemma3_served/model.gguf", ["qwen3_vl"], "mmproj-0.gguf is a tower (qwen3vl_merger) that does not go with"),
    (PAIRS / "qwen3_5/model.gguf", ["qwen3_vl"], "mmproj-0.gguf adds rows behind 2 layers, "),
    (GOLDEN / "gguf/llama/model.gguf", ["gemma3_a"], "a model of the architecture llama"),
    (PAIRS / "gemma3_a/mmproj-tiny.gguf", [], "is the file of a vision tower: name that of the model"),
])
def test_what_does_not_go_together(model, towers, words, tmp_path):
    done = check(beside(tmp_path, model, *towers), tmp_path)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_towers_among_other_models(tmp_path):
    """One that goes with the model is its own; all others are other models', and no reason to refuse this one."""
    model = PAIRS / "gemma3_served/model.gguf"
    own = check(beside(tmp_path / "own", model, "qwen3_vl", "gemma3_served"), tmp_path)
    assert own.returncode == 0, own.stderr
    alone = beside(tmp_path / "none", model, "qwen3_vl")
    shutil.copy(PAIRS / "gemma3_a/model.gguf", alone.parent / "other.gguf")
    none = check(alone, tmp_path)
    assert none.returncode == 0, none.stderr


@pytest.mark.parametrize("name", ["qwen3_vl_served", "qwen3_5_served"])
def test_pictures_without_a_tower(name, tmp_path):
    """The model answers texts and refuses pictures."""
    chats = PictureChats(GOLDEN / name)
    running = chats.start(tmp_path / "a", beside(tmp_path, PAIRS / name / "model.gguf"))
    try:
        with_picture = chats.messages_of([["plain.png", "What?"]])
        text_alone = chats.messages_of([["What?"]])
        assert running.post({"messages": with_picture}, "/v1/chat/completions").status == 400
        assert running.post({"messages": text_alone, "max_tokens": 4}, "/v1/chat/completions").status == 200
    finally:
        assert running.stop() == 0
