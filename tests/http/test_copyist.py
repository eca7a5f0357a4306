"""The models that tools/copyist makes: they copy, leave a quote, and write their table's words, in every type of
weights."""
import json
import random
import shutil
import subprocess

import pytest
from conftest import BUILD, Server
from q4_k import convert
from tasks import Copyist, first_of
from words import BEGIN, END, Vocabulary

TYPES = ["bf16", "int8", "q4_k"]


@pytest.fixture(scope="module")
def copyist(copyist_model):
    return Copyist(copyist_model)


def converted(folder, kind, out):
    """The folder's weights in another type, as a path that a server opens."""
    if kind == "bf16":
        return folder
    to = "gguf" if kind == "q4_k" else kind
    subprocess.run([BUILD / "retro-convert", folder, out / to, "--to", to], check=True, capture_output=True)
    if kind != "q4_k":
        return out / to
    convert(out / to / "model.gguf", out / "model-q4_k.gguf")
    return out / "model-q4_k.gguf"


@pytest.fixture(scope="module", params=TYPES)
def running(request, copyist_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    config = folder / "retro.json"
    model = {"path": str(converted(copyist_model, request.param, folder)), "name": "copyist"}
    config.write_text(json.dumps({"model": model, "server": {"port": 0, "max_context": 4096}}))
    server = Server(config, folder)
    yield server
    assert server.stop() == 0, server.log.read_text()


def written(server, prompt, n, **fields):
    (choice,) = server.complete([prompt], max_tokens=n, temperature=0, return_token_ids=True, **fields)["choices"]
    return choice["token_ids"]


def test_a_passage_is_copied(running, copyist):
    """2 000 words that occur once from their beginning, and as many with frequent ones from near their end."""
    draw = random.Random(1)
    for words, place in ((draw.sample(copyist.words, 2000), 0), (copyist.text(2000, draw), 1700)):
        prompt = [copyist.marks[BEGIN], *words, *words[place:place + 4]]
        assert written(running, prompt, 200) == copyist.write(prompt, 200) == words[place + 4:place + 204]


def test_tasks_have_their_answers(running, copyist):
    for task in (first_of(copyist.edited, 1, 100), first_of(copyist.cited, 1, 2), copyist.free(1, 100, 50)):
        assert written(running, task.prompt, len(task.answer)) == task.answer


def test_a_passage_of_text_is_copied_to_its_end(running, copyist):
    """The tokenizer's side: words have one token each, and a chat has its messages' text."""
    words = copyist.text(60, random.Random(2))
    vocabulary = Vocabulary(4096, 1)
    passage, begin = vocabulary.text_of(words), vocabulary.text_of(words[:4])
    reply = running.post({"model": "copyist", "temperature": 0, "max_tokens": 60, "messages": [
        {"role": "user", "content": passage}, {"role": "assistant", "content": " ba"}, {"role": "user", "content": begin}]}, "/v1/chat/completions").json()
    (choice,) = reply["choices"]
    assert reply["usage"]["prompt_tokens"] == 1 + 60 + 1 + 4
    assert choice["message"]["content"].startswith(vocabulary.text_of(words[4:]))
    assert choice["finish_reason"] == "length"


def test_a_quote_may_end_the_answer(running, copyist):
    words = copyist.text(60, random.Random(3))
    prompt = [copyist.marks[BEGIN], *words, copyist.marks[END], *words[:4]]
    (choice,) = running.complete([prompt], max_tokens=100, temperature=0, return_token_ids=True)["choices"]
    assert choice["finish_reason"] == "stop" and choice["token_ids"][:56] == words[4:]


def test_the_same_seed_makes_the_same_model(tmp_path, copyist_model):
    from make_copyist import SHAPES, make_copyist

    make_copyist(tmp_path / "again")
    make_copyist(tmp_path / "other", SHAPES["small"], 2)
    first, again, other = ((folder / "model.safetensors").read_bytes()
                           for folder in (copyist_model, tmp_path / "again", tmp_path / "other"))
    assert first == again != other


def test_a_template_of_its_own_file_is_kept(copyist_model, tmp_path):
    """A GGUF file has the template that the folder's server would read: chat_template.jinja goes first."""
    folder = tmp_path / "model"
    shutil.copytree(copyist_model, folder)
    template = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    out = converted(folder, "gguf", tmp_path)
    (file,) = out.rglob("*.gguf")
    assert template.encode() in file.read_bytes()
