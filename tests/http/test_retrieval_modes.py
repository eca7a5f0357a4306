"""How what is found is read: by cross attention, in the prompt, or both; sought once, or again as the text grows.

The texts that a model read are put together here from what its answer names, sent as a prompt of ids without
retrieval, and must give the same tokens with the same log-probabilities, to the last bit."""
import json
import pathlib
import subprocess
import sys

import pytest
from chat_model import make_chat_model
from conftest import BUILD, DEPS, MODEL, ROOT, Server, counted

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

PATH = "/v1/chat/completions"
TEMPLATE = "{number}. {title}: {text}\n"
PROMPT = "A chunk is closed by its last token, which"
PAGES = ("architecture", "indexing", "serving", "testing")
OFF = {"enabled": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A collection that was made for the model that ships, and a decoder with another tokenizer."""
    path = tmp_path_factory.mktemp("modes")
    write_config(path, ROOT / "models" / MODEL)
    pages = [ROOT / "tests/texts" / f"{page}.md" for page in PAGES]
    done = subprocess.run([BUILD / "retro-index", "build", "--out", path / "collection", "--config", path / "retro.json", *pages],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    downloaded.write_folder(path / "tiny", {"do_sample": False})
    return path


def write_config(path, model, name="retro.json"):
    (path / name).write_text(json.dumps({
        "model": {"path": str(model), "dtype": "f32"},
        "retrieval": {"collection": str(path / "collection"), "embedder": str(DEPS / "minilm"), "template": TEMPLATE,
                      "prompt_tokens": 250 if model.name == MODEL else 1600},  # the others have a token for each byte
        "server": {"port": 0}}))
    return path / name


def opened(fixture_name, config):
    @pytest.fixture(scope="module", name=fixture_name)
    def open_server(folder, tmp_path_factory):
        running = Server(config(folder), tmp_path_factory.mktemp(fixture_name))
        yield running
        assert running.stop() == 0, running.log.read_text()
    return open_server


retro = opened("retro", lambda folder: folder / "retro.json")
llama = opened("llama", lambda folder: write_config(folder, folder / "tiny", "llama.json"))


def complete(server, prompt, **fields):
    """Without the models' own no_repeat_ngram_size, which counts a client's prompt and not the passages put before it."""
    return server.complete(prompt, **{"temperature": 0, "logprobs": 1, "ignore_eos": True, "return_token_ids": True,
                                      "no_repeat_ngram_size": 0} | fields)


def written(reply):
    choice = reply["choices"][0]
    return list(zip(choice["token_ids"], choice["logprobs"]["token_logprobs"]))


def ids_of(server, text):
    reply = server.post({"prompt": text, "add_special_tokens": False}, "/tokenize")
    assert reply.status == 200, reply.body
    return reply.json()["tokens"]


def passage_ids(server, entry):
    """Passages are cut into tokens one by one."""
    fields = TEMPLATE.replace("{title}", "{0[title]}").replace("{text}", "{0[text]}").replace("{number}", "{0[number]}")
    return [i for n in entry["neighbors"] for i in ids_of(server, fields.format(n))]


def test_by_attention_is_the_default_of_a_retro_model(retro):
    plain = complete(retro, PROMPT, max_tokens=80)
    assert plain == plain | {"retrieval": complete(retro, PROMPT, max_tokens=80, retrieval={"mode": "attention"})["retrieval"]}
    assert "number" not in plain["retrieval"][0]["neighbors"][0] and "citations" not in plain


@pytest.mark.parametrize("mode", ["prompt", "both"])
def test_a_retro_model_reads_its_prompt(retro, mode):
    """In its prompt alone, it writes as without retrieval behind the same text; in both, as with retrieval."""
    reply = complete(retro, PROMPT, max_tokens=80, retrieval={"mode": mode})
    passages, chunks = reply["retrieval"][0], reply["retrieval"][1:]
    assert [n["number"] for n in passages["neighbors"]] == list(range(1, len(passages["neighbors"]) + 1))
    assert len(passages["neighbors"]) > 0 and passages["position"] == 0 and "citations" in reply
    ids = passage_ids(retro, passages) + ids_of(retro, PROMPT)
    same = complete(retro, [ids], max_tokens=80, retrieval=OFF if mode == "prompt" else {"mode": "attention"})
    assert written(reply) == written(same) and counted(reply) == counted(same)
    assert chunks == same["retrieval"] and (len(chunks) > 2) == (mode == "both")
    assert written(reply) != written(complete(retro, PROMPT, max_tokens=80, retrieval=OFF))


def test_given_passages(retro, llama):
    texts = ["A chunk has 64 tokens.", "Its last token closes it."]
    for server, mode in ((llama, "auto"), (llama, "prompt"), (retro, "prompt"), (retro, "both")):
        reply = complete(server, PROMPT, max_tokens=20, retrieval={"neighbors": texts, "mode": mode})
        passages = reply["retrieval"][0]
        assert [(n["number"], n["text"], n["document"], n["start"]) for n in passages["neighbors"]] == [
            (i + 1, text, None, None) for i, text in enumerate(texts)]
        ids = [i for n, text in enumerate(texts) for i in ids_of(server, f"{n + 1}. : {text}\n")]
        prompt = server.post({"prompt": PROMPT}, "/tokenize").json()["tokens"]
        first = 1 if server is llama else 0  # the token that begins every text of this model
        same = complete(server, [prompt[:first] + ids + prompt[first:]], max_tokens=20,
                        retrieval={"neighbors": texts, "mode": "attention"} if mode == "both" else OFF)
        assert written(reply) == written(same) and counted(reply) == counted(same)
        assert [c["position"] for c in reply["retrieval"][1:]] == [c["position"] for c in same["retrieval"]]


def parts_of(server, prompt, reply, every, n):
    """For each search: what the same text gives without retrieval, and what was written behind it."""
    tokens = written(reply)
    assert [entry["chunk"] for entry in reply["retrieval"]] == list(range(-(-n // every)))
    for j, entry in enumerate(reply["retrieval"]):
        ids = passage_ids(server, entry) + prompt + [t for t, _ in tokens[:j * every]]
        part = tokens[j * every:(j + 1) * every]
        assert entry["position"] == (len(ids) - 1 if j > 0 else 0)
        yield written(complete(server, [ids], max_tokens=len(part), retrieval=OFF)), part


@pytest.mark.parametrize("model, every", [("llama", 16), ("llama", 7), ("retro", 24)])
def test_passages_are_sought_again(request, model, every):
    server = request.getfixturevalue(model)
    prompt = ids_of(server, "The index of a collection is")
    reply = complete(server, [prompt], max_tokens=60, retrieval={"mode": "prompt", "every": every, "k": 2})
    parts = list(parts_of(server, prompt, reply, every, 60))
    assert all(alone == part for alone, part in parts)
    assert len({tuple(passage_ids(server, entry)) for entry in reply["retrieval"]}) > 1


def test_what_both_texts_begin_with_is_read_once(llama):
    """A conversation's beginning stays; the figures count the rows that were computed."""
    def rows():
        lines = llama.request("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("retro_prompt_tokens_total"))

    system = "Be brief. " * 40
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "What is a chunk?"}]
    body = {"messages": messages, "max_tokens": 12, "ignore_eos": True, "retrieval": {"k": 1}}
    before = rows()
    once = llama.post(body, PATH).json()
    middle = rows()
    again = llama.post(body | {"retrieval": {"k": 1, "every": 6}}, PATH).json()
    assert len(again["retrieval"]) == 2
    read = again["usage"]["prompt_tokens"] + 6
    assert rows() - middle < (middle - before) + read - 256
    assert once["usage"]["completion_tokens"] == 12


def test_streams_tell_each_search_before_what_it_was_read_for(llama):
    prompt = ids_of(llama, PROMPT)
    fields = {"max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0, "retrieval": {"every": 16}}
    whole, told, shown = llama.complete([prompt], **fields), [], 0
    for event in llama.stream([prompt], **fields):
        for entry in event.get("retrieval", []):
            assert shown <= 16 * entry["chunk"]
            told.append(entry)
        for choice in event["choices"]:
            shown += len(choice["logprobs"]["tokens"]) if choice["logprobs"] else 0
    assert told == whole["retrieval"] and len(told) == 3 and shown == 40


def test_the_turns_before_may_be_sought_by_too(llama):
    messages = [{"role": "user", "content": "How is the server stopped by SIGTERM?"}, {"role": "assistant", "content": "In order."},
                {"role": "user", "content": "And then?"}]
    search = lambda text: llama.post({"query": text, "k": 1}, "/v1/retrieval/search").json()["data"]
    for query, text in (("message", "And then?"), ("conversation", "And then?\nIn order.\nHow is the server stopped by SIGTERM?")):
        found = llama.post({"messages": messages, "max_tokens": 1, "retrieval": {"k": 1, "query": query}}, PATH).json()
        names = {n["document"] for n in found["retrieval"][0]["neighbors"]}
        assert names == {hit["document"] for hit in search(text)}
        nearest = max(n["similarity"] for n in found["retrieval"][0]["neighbors"])
        assert nearest == search(text)[0]["similarity"]


def test_citations_are_of_the_passages_that_were_read(folder, tmp_path):
    """A script of eight tokens, each other passages in the prompt."""
    make_chat_model(tmp_path / "script")
    server = Server(write_config(folder, tmp_path / "script", "script.json"), tmp_path)
    body = {"messages": [{"role": "user", "content": "What is a chunk?"}], "max_tokens": 20, "retrieval": {"k": 8, "every": 4},
            "chat_template_kwargs": {"sources": True}}
    reply = server.post(body, PATH).json()
    first, second = reply["retrieval"][:2]
    assert first["neighbors"] != second["neighbors"]
    assert [c["number"] for c in reply["citations"]] == [1, 2, 1, 2]
    for citation, entry in zip(reply["citations"], (first, first, first, second)):
        passage = entry["neighbors"][citation["number"] - 1]
        assert [citation[key] for key in ("document", "start", "end")] == [passage[key] for key in ("document", "start", "end")]
    assert server.stop() == 0


def refusal(server, body, path="/v1/completions"):
    reply = server.post(body, path)
    assert reply.status == 400, reply.body
    return reply.error()


def test_refused_requests(llama, retro):
    for mode in ("attention", "both"):
        error = refusal(llama, {"prompt": "a", "retrieval": {"mode": mode}})
        assert (error["code"], error["param"]) == ("no_retrieval", "retrieval.mode")
    error = refusal(retro, {"prompt": "a", "retrieval": {"mode": "both", "every": 8}})
    assert error["param"] == "retrieval.every"
    for every in (3, -1, 2.5, "8"):
        error = refusal(llama, {"prompt": "a", "retrieval": {"every": every}})
        assert error["param"] == "retrieval.every"
    assert refusal(llama, {"prompt": "a", "retrieval": {"mode": "all"}})["param"] == "retrieval.mode"
    assert refusal(llama, {"prompt": "a", "retrieval": {"neighbors": ["b"], "every": 8}})["param"] == "retrieval.neighbors"


@pytest.mark.parametrize("model, options, words", [
    ("llama.json", ["retrieval.mode=attention"], "has no chunked cross attention"),
    ("retro.json", ["retrieval.mode=both", "retrieval.every=8"], "retrieval.every is for prompt"),
    ("other.json", [], "tokenizer"),
])
def test_refused_configurations(folder, tmp_path, model, options, words):
    write_config(folder, folder / "tiny", "llama.json")
    config = json.loads((folder / "retro.json").read_text())
    config["retrieval"]["collection"] = str(other_collection(folder, tmp_path))
    (folder / "other.json").write_text(json.dumps(config))
    sets = [a for option in options for a in ("--set", option)]
    for check in (["--check-config"], []):
        done = subprocess.run([BUILD / "retro-server", "--config", folder / model, *sets, *check], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def other_collection(folder, tmp_path):
    """Cut by the other decoder's tokenizer."""
    config = write_config(folder, folder / "tiny", "llama.json")
    done = subprocess.run([BUILD / "retro-index", "build", "--out", tmp_path / "other", "--config", config, ROOT / "tests/texts/serving.md"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return tmp_path / "other"


def test_a_collection_of_another_tokenizer_is_read_in_the_prompt(folder, tmp_path):
    other = other_collection(folder, tmp_path)
    server = Server(folder / "retro.json", tmp_path, f"retrieval.collection={other}", "retrieval.mode=prompt")
    reply = complete(server, PROMPT, max_tokens=8)
    assert reply["retrieval"][0]["neighbors"]
    error = refusal(server, {"prompt": "a", "retrieval": {"mode": "both"}})
    assert "cut by another tokenizer" in error["message"]
    assert complete(server, PROMPT, max_tokens=8, retrieval={"mode": "attention", "neighbors": ["a"]})["retrieval"]
    assert server.stop() == 0
