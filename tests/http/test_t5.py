"""Models with an encoder over HTTP: T5's prompt is its encoder's text; passages are put before it by a template."""
import json
import pathlib
import shutil
import subprocess

import pytest
import sentencepiece
from conftest import BUILD, DEPS, ROOT, Server

GOLDEN = ROOT / "tests/golden/hf/t5_v1_1"
PIECES, SENTINELS = 150, 100


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A random T5 as it is downloaded: config.json, model.safetensors, spiece.model, tokenizer_config.json."""
    path = tmp_path_factory.mktemp("t5")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, path / name)
    text = path / "text"
    text.write_text("\n".join((ROOT / "tests/texts" / f"{page}.md").read_text() for page in ("serving", "indexing", "api")))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(path / "spiece"), vocab_size=PIECES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        character_coverage=0.99, hard_vocab_limit=False, minloglevel=2)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": SENTINELS}))
    return path


@pytest.fixture(scope="session")
def collection(folder, config, tmp_path_factory):
    """Documents cut with the T5's tokenizer or any other: passages are read as text."""
    out = tmp_path_factory.mktemp("t5-collection") / "collection"
    pages = [ROOT / "tests/texts" / f"{page}.md" for page in ("serving", "indexing", "gpu")]
    done = subprocess.run([BUILD / "retro-index", "build", "--out", out, "--config", config, *pages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return out


@pytest.fixture(scope="session")
def t5_config(folder, collection, tmp_path_factory):
    file = tmp_path_factory.mktemp("t5-config") / "retro.json"
    file.write_text(json.dumps({
        "model": {"path": str(folder), "dtype": "f32"},
        "retrieval": {"collection": str(collection), "embedder": str(DEPS / "minilm"), "template": "{number}. {title}: {text}\n", "prompt_tokens": 300},
        "server": {"port": 0, "max_context": 512}}))
    return file


@pytest.fixture(scope="session")
def t5(t5_config, tmp_path_factory):
    running = Server(t5_config, tmp_path_factory.mktemp("t5-server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


def complete(server, expect=200, **fields):
    body = {"temperature": 0, "max_tokens": 12, "retrieval": {"enabled": False}} | fields
    reply = server.post(body)
    assert reply.status == expect, reply.body
    return reply.json()


def test_the_prompt_is_the_encoders_text(t5):
    a, b = complete(t5, prompt="index a folder"), complete(t5, prompt="start the server")
    assert a["choices"][0]["text"] != b["choices"][0]["text"]
    again = complete(t5, prompt="index a folder")
    assert a["usage"].pop("prompt_tokens_details") == {"cached_tokens": 0}
    assert again["usage"].pop("prompt_tokens_details")["cached_tokens"] == a["usage"]["prompt_tokens"] - 1  # the source
    assert a == again | {k: a[k] for k in ("id", "created")}
    assert a["usage"]["prompt_tokens"] > 2


def test_ids_of_the_reference(t5):
    """The reference's own ids: encoder ids in, greedy ids out, as transformers drew them."""
    import numpy as np

    raw = (GOLDEN / "cases.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])

    def read(name):
        start, end = header[name]["data_offsets"]
        return np.frombuffer(raw[8 + size + start:8 + size + end], dtype="<i4").tolist()

    prompt, want = read("generate.prompt"), read("generate.tokens")
    answer = complete(t5, prompt=prompt, max_tokens=len(want), logprobs=1, ignore_eos=True)
    scored = complete(t5, prompt=prompt, target=want, max_tokens=0, echo=True, logprobs=1)
    logprobs = answer["choices"][0]["logprobs"]["token_logprobs"]
    again = scored["choices"][0]["logprobs"]["token_logprobs"]
    assert again[0] is None and again[1:] == pytest.approx(logprobs, abs=1e-4)


def test_a_batch_is_its_prompts_alone(t5):
    prompts = ["index a folder", "a", "The server answers requests over HTTP, and says which documents it read."]
    together = complete(t5, prompt=prompts)["choices"]
    for prompt, choice in zip(prompts, together):
        assert complete(t5, prompt=prompt)["choices"][0]["text"] == choice["text"]


def test_a_target_is_gone_on_from(t5):
    whole = complete(t5, prompt="index", max_tokens=10, ignore_eos=True, logprobs=0)["choices"][0]
    some = complete(t5, prompt="index", target="the", max_tokens=4, echo=True)["choices"][0]
    assert some["text"].startswith("the")
    assert len(whole["logprobs"]["tokens"]) == 10


def test_sentinels(t5):
    """A gap's sentinel in the prompt is one token; a sentinel that is written is text."""
    with_gap = complete(t5, prompt="index <extra_id_0> folder")["usage"]["prompt_tokens"]
    without = complete(t5, prompt="index  folder")["usage"]["prompt_tokens"]
    assert with_gap <= without + 3
    shown = complete(t5, prompt="index", target="<extra_id_0> a", max_tokens=0, echo=True)["choices"][0]["text"]
    assert shown == "<extra_id_0> a"


def test_passages_before_the_prompt(t5):
    """Found passages change the answer and are named; the usage counts them as what was read."""
    off = complete(t5, prompt="how is a folder indexed?")
    on = complete(t5, prompt="how is a folder indexed?", retrieval={"enabled": True, "k": 2})
    found = on["retrieval"]
    assert len(found) == 1 and found[0]["chunk"] == 0 and found[0]["position"] == 0
    assert 1 <= len(found[0]["neighbors"]) <= 2
    assert found[0]["neighbors"][0]["document"].endswith(".md")
    assert on["choices"][0]["text"] != off["choices"][0]["text"] and off["retrieval"] == []
    assert on["usage"]["prompt_tokens"] > off["usage"]["prompt_tokens"] + 20


def test_passages_are_the_template_and_the_prompt(t5):
    """The same text, written by hand from the passages that the answer names, gives the same answer."""
    prompt = "how is a folder indexed?"
    on = complete(t5, prompt=prompt, retrieval={"enabled": True, "k": 2}, logprobs=0)
    written = "".join(f"{i + 1}. {n['title']}: {n['text']}\n" for i, n in enumerate(on["retrieval"][0]["neighbors"]))
    by_hand = complete(t5, prompt=written + prompt, logprobs=0)
    a, b = (x["choices"][0]["logprobs"]["token_logprobs"] for x in (on, by_hand))
    assert a == pytest.approx(b, abs=0.2)  # the end of a passage and the prompt are cut into tokens apart


def test_passages_of_the_request_stand_before_the_prompt(t5):
    given = complete(t5, prompt="index", retrieval={"neighbors": ["a folder", "a page"]}, logprobs=0)
    (entry,) = given["retrieval"]
    assert [(n["number"], n["text"], n["document"]) for n in entry["neighbors"]] == [(1, "a folder", None), (2, "a page", None)]
    by_hand = complete(t5, prompt="1. : a folder\n2. : a page\nindex", logprobs=0)
    a, b = (x["choices"][0]["logprobs"]["token_logprobs"] for x in (given, by_hand))
    assert a == pytest.approx(b, abs=0.2)  # as above
    assert given["usage"]["prompt_tokens"] > complete(t5, prompt="index")["usage"]["prompt_tokens"]


def test_passages_are_sought_again(t5):
    """The encoder reads the new ones and the prompt; the decoder goes on behind what it wrote."""
    fields = {"prompt": "how is a folder indexed?", "max_tokens": 16, "logprobs": 0, "ignore_eos": True, "return_token_ids": True}
    reply = complete(t5, retrieval={"k": 2, "every": 6}, **fields)
    assert [entry["chunk"] for entry in reply["retrieval"]] == [0, 1, 2]
    ids, logprobs = reply["choices"][0]["token_ids"], reply["choices"][0]["logprobs"]["token_logprobs"]
    for entry, start in zip(reply["retrieval"], (0, 6, 12)):
        part = complete(t5, **fields | {"target": ids[:start], "max_tokens": 4},
                        retrieval={"neighbors": [n["text"] for n in entry["neighbors"]]})
        if all(n["title"] == "" for n in entry["neighbors"]):
            assert part["choices"][0]["logprobs"]["token_logprobs"] == logprobs[start:start + 4]
        assert len(part["choices"][0]["token_ids"]) == 4


def test_passages_fit_the_budget(t5, start_t5):
    server = start_t5("retrieval.prompt_tokens=1")
    assert complete(server, prompt="index", retrieval={"enabled": True})["retrieval"][0]["neighbors"] == []


@pytest.fixture
def start_t5(t5_config, tmp_path):
    servers = []

    def start_one(*sets):
        servers.append(Server(t5_config, tmp_path, *sets))
        return servers[-1]

    yield start_one
    for running in servers:
        assert running.stop() == 0, running.log.read_text()


def test_refusals(t5):
    for fields, param, words in [
        ({"prompt": "a", "target": 5}, "target", "must be a string"),
        ({"prompt": "a", "target": [999999]}, "target", "vocabulary"),
        ({"prompt": "a " * 600}, "prompt", "the encoder reads 512"),
        ({"prompt": "a", "max_tokens": 600}, "max_tokens", "limit is 512"),
        ({"prompt": "a", "retrieval": {"mode": "both", "neighbors": ["x"]}}, "retrieval.mode", "no chunked cross attention"),
    ]:
        answer = complete(t5, expect=400, **fields)
        assert answer["error"]["param"] == param and words in answer["error"]["message"], answer


def test_a_target_needs_an_encoder(server):
    assert complete(server, expect=400, prompt="a", target="b")["error"]["param"] == "target"


def test_a_template_is_checked(t5_config):
    for template, words in [("{title}", "{text}, the passage itself, is missing"), ("{text} {page}", "is no placeholder")]:
        done = subprocess.run([BUILD / "retro-server", "--config", t5_config, "--set", f"retrieval.template={template}", "--check-config"], capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr, done.stderr
