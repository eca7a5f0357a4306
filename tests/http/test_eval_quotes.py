"""retro-eval quotes: shares over a list of questions, of a model whose script quotes where it is asked to."""
import json
import pathlib
import subprocess

import pytest
from chat_model import make_chat_model
from conftest import BUILD, DEPS

TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if 'Quote' in messages[-1].content %}<|to_quotes|>{% else %}<|to_words|>{% endif %}"""
DOCUMENTS = {"bridge.md": "The bridge over the Arn opened in 1911. It carries two tracks.\n",
             "soup.md": "Leek soup takes potatoes and leeks. Salt comes last.\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("eval_quotes")
    make_chat_model(path / "script")
    (path / "script/chat_template.jinja").write_text(TEMPLATE)
    for name, text in DOCUMENTS.items():
        (path / name).write_text(text)
    (path / "retro.json").write_text(json.dumps({
        "model": {"path": str(path / "script")},
        "retrieval": {"collection": str(path / "collection"), "embedder": str(DEPS / "minilm"), "k": 1}}))
    done = subprocess.run([BUILD / "retro-index", "build", "--out", path / "collection", "--config", path / "retro.json",
                           *(path / name for name in DOCUMENTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


def run(folder, questions, *options):
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    command = [BUILD / "retro-eval", "quotes", "--config", folder / "retro.json", *options, folder / "questions.jsonl"]
    return subprocess.run(command, capture_output=True, text=True)


def shares(folder, questions, *options):
    done = run(folder, questions, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_shares(folder):
    found = shares(folder, [
        {"question": "Quote when the bridge opened", "documents": ["bridge.md"]},
        {"question": "Quote when leeks are cooked", "manual": "bridge.md"},
        {"question": "Quote the bridge"},
        {"question": "Say hello"}])
    assert {key: found[key] for key in ("free", "answers", "answers_with_quotes", "quotes", "verbatim",
                                        "verbatim_with_known_documents", "in_right_documents")} == {
        "free": False, "answers": 4, "answers_with_quotes": 3, "quotes": 3, "verbatim": 3,
        "verbatim_with_known_documents": 2, "in_right_documents": 1}


def test_free_answers_are_judged_too(folder):
    """Free, the script's quotation mark stays open: there is no quote."""
    found = shares(folder, [{"question": "Quote the bridge"}], "--free")
    assert found["free"] and found["answers"] == 1 and found["quotes"] == 0


def test_table_and_answers(folder):
    done = run(folder, [{"question": "Quote the bridge", "documents": ["bridge.md"]}], "--answers")
    assert done.returncode == 0, done.stderr
    assert "answers with quotes                    1 of     1  1.000" in done.stdout
    quote = done.stderr.split('"')[1]
    assert quote in DOCUMENTS["bridge.md"] and len(quote.split()) >= 3


@pytest.mark.parametrize("questions, options, words", [
    ([], (), "no question"),
    ([{"text": "x"}], (), "questions.jsonl"),
    ([{"question": "x"}], ("--set", "retrieval.collection="), "retrieval.collection is needed"),
    ([{"question": "x"}], ("--tokens", "100000"), "more than"),
])
def test_errors(folder, questions, options, words):
    done = run(folder, questions, *options)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert pathlib.Path(folder / "questions.jsonl").exists()
