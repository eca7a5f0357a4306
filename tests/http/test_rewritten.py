"""Questions that point back are rewritten by the model that answers, and passages are sought by what it wrote.

The model has scripts: one for a prompt that asks it to write a question anew, chosen by a word of the question, and
another for everything else. So the line is known, and what the search found by it is what a search by it finds."""
import json
import shutil
import socket
import subprocess
import time

import pytest
from chat_model import make_chat_model
from conftest import BUILD, DEPS, MODEL, ROOT, Server, loads

PATH = "/v1/chat/completions"
LINE = "When did the bridge over the Arn open?"
SCRIPTS = {"<|to_words|>": ["It opened", " in 1911", " [1]."],
           "<|to_line|>": ["When did ", "the bridge over ", "the Arn open?"],
           "<|to_blank|>": ["When did the", " bridge over the", " Arn open?", "  "],
           "<think>": ["Let me", " think", "</think>"], "Ċ": ["When?"]}  # behind a line end
# The request for a rewrite has the question behind these words.
ASKS = "The question anew:"
TEMPLATE = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% set said = messages[-1].content %}{% if 'The question anew:' not in said %}<|to_words|>{% elif 'refuse' in said -%}
{{ raise_exception('no such words') }}{% elif 'count' in said %}<|to_count|>{% elif 'blank' in said %}<|to_blank|>{%
elif 'thought' in said %}<think>{% else %}<|to_line|>{% endif %}"""
DOCUMENTS = {
    "bridges.md": "# Bridges\n\nThe bridge over the Arn opened in 1911. It carries two tracks of rails.\n",
    "soup.md": "# Soup\n\nLeek soup takes potatoes, leeks and cream. Salt comes last of all.\n",
    "stars.md": "# Stars\n\nThe second one from the left is Alnilam, a blue supergiant.\n",
}
EARLIER = [{"role": "user", "content": "Which bridges are there?"},
           {"role": "assistant", "content": "One over the Arn, and one over the Bey."}]


def ask(question, earlier=EARLIER):
    return [*earlier, {"role": "user", "content": question}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewritten")
    make_chat_model(path / "model", SCRIPTS, TEMPLATE)
    (path / "documents").mkdir()
    for name, text in DOCUMENTS.items():
        (path / "documents" / name).write_text(text)
    (path / "retro.json").write_text(json.dumps({
        "model": {"path": str(path / "model")},
        "retrieval": {"collection": str(path / "collection"), "embedder": str(DEPS / "minilm"), "query": "rewritten", "k": 1},
        "server": {"port": 0}}))
    done = subprocess.run([BUILD / "retro-index", "build", "--out", path / "collection", "--config", path / "retro.json",
                           path / "documents"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return path


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    running = Server(folder / "retro.json", tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


def chat(server, messages, expect=200, **fields):
    reply = server.post({"messages": messages, "max_tokens": 12} | fields, PATH)
    assert reply.status == expect, reply.body
    return reply.json()


def counts(server):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return tuple(next(int(line.split()[-1]) for line in lines if line.startswith(f"retro_questions_{name}_total{{"))
                 for name in ("rewritten", "not_rewritten"))


def search(server, query):
    return server.post({"query": query, "k": 1}, "/v1/retrieval/search").json()["data"][0]


def found_by(server, entry, query):
    """Whether the entry's passage is what a search by these words finds."""
    hit, (neighbor,) = search(server, query), entry["neighbors"]
    return (neighbor["document"], neighbor["similarity"]) == (hit["document"], hit["similarity"])


@pytest.mark.parametrize("question", ["And when did the second one open?", "A blank follows the second one?", "A thought for the second one?"])
def test_the_search_is_by_the_line_that_the_answer_shows(server, question):
    before = counts(server)
    reply = chat(server, ask(question))
    (entry,) = reply["retrieval"]
    assert entry["query"] == ("When?" if "thought" in question else LINE) and "query_problem" not in entry
    assert found_by(server, entry, entry["query"]) and not found_by(server, entry, question)
    assert reply["choices"][0]["message"]["content"] == "It opened in 1911 [1]."
    assert counts(server) == (before[0] + 1, before[1])


def test_the_model_reads_the_users_own_words(server):
    """The prompt has the question as it was asked, behind the same passage."""
    question = "And when did the bridge over the Arn open for trains?"
    reply, other = (chat(server, ask(question), retrieval={"query": query, "k": 1}) for query in ("rewritten", "message"))
    told = reply["retrieval"][0].pop("query")
    assert told == LINE and "query" not in other["retrieval"][0]
    assert [n["text"] for n in reply["retrieval"][0]["neighbors"]] == [n["text"] for n in other["retrieval"][0]["neighbors"]]
    assert reply["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]


def test_a_request_that_is_refused_asks_for_no_rewrite(server):
    before = counts(server)
    odd = ask("And the second one?", [*EARLIER, {"role": "tool", "content": 5}])
    assert "message 2" in chat(server, odd, 400)["error"]["message"]
    assert chat(server, ask("And the second one?"), 400, max_tokens=5000)["error"]["code"] == "context_length_exceeded"
    assert chat(server, ask("second " * 3000), 400)["error"]["code"] == "context_length_exceeded"
    assert counts(server) == before


def test_a_first_question_is_not_rewritten(server):
    before = counts(server)
    for earlier in ([], [{"role": "system", "content": "Be brief."}], [{"role": "assistant", "content": " "}]):
        (entry,) = chat(server, ask("Which is the second one?", earlier))["retrieval"]
        assert "query" not in entry and "query_problem" not in entry
        assert found_by(server, entry, "Which is the second one?")
    assert counts(server) == before


@pytest.mark.parametrize("question, words", [
    ("Please count the second one", "retrieval.rewrite_tokens"),  # letters for ever
    ("Please refuse the second one", "no such words"),
    ("the second one " * 40, "retrieval.rewrite_context"),
])
def test_what_is_not_rewritten_is_told(server, question, words):
    before = counts(server)
    (entry,) = chat(server, ask(question))["retrieval"]
    assert words in entry["query_problem"] and "query" not in entry
    assert found_by(server, entry, "\n".join([question, EARLIER[1]["content"], EARLIER[0]["content"]]))
    assert counts(server) == (before[0], before[1] + 1)


def test_a_request_chooses(server):
    for query, told in (("message", False), ("conversation", False), ("rewritten", True)):
        (entry,) = chat(server, ask("And the second one?"), retrieval={"query": query})["retrieval"]
        assert ("query" in entry) == told
    assert chat(server, ask("And the second one?"), retrieval={"enabled": False})["retrieval"] == []
    given = chat(server, ask("And the second one?"), retrieval={"neighbors": ["The Bey."]})
    assert "query" not in given["retrieval"][0]


def test_long_turns_are_cut(server):
    """A turn takes half of what the later ones leave at most; a question in short ones is read whole."""
    long, short = "A long story. " * 40 + "refuse", "Not so long. " + "refuse"
    for text, told in ((long, "query"), (short, "query_problem")):
        (entry,) = chat(server, ask("And the second one?", [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": text}]))["retrieval"]
        assert told in entry, entry
    older = [{"role": "user", "content": short}, {"role": "assistant", "content": long[:-6]}]
    (entry,) = chat(server, ask("And the second one?", older))["retrieval"]
    assert "no such words" in entry["query_problem"]  # the older turn has its part


def test_streams_tell_the_query_before_the_text(server):
    shown = []
    reply = server.post({"messages": ask("And the second one?"), "max_tokens": 12, "stream": True}, PATH)
    for line in reply.body.decode().split("\n\n")[:-2]:
        event = loads(line[6:])
        shown += [("found", entry["query"]) for entry in event.get("retrieval", [])]
        shown += [("text", c["delta"]["content"]) for c in event["choices"] if c["delta"].get("content")]
    assert shown[0] == ("found", LINE) and "".join(text for kind, text in shown if kind == "text") == "It opened in 1911 [1]."


def test_answers_of_one_request_share_the_rewrite(server):
    before = counts(server)
    entries = chat(server, ask("And the second one?"), n=3, temperature=1)["retrieval"]
    assert [entry["query"] for entry in entries] == [LINE] * 3 and counts(server)[0] == before[0] + 1


def test_a_client_that_leaves_ends_the_rewrite(folder, tmp_path):
    """Letters for ever, until the client is gone; a rewrite that was over before counts."""
    shutil.copytree(folder / "model", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    server = Server(folder / "retro.json", tmp_path, f"model.path={tmp_path / 'model'}", "retrieval.rewrite_tokens=4096",
                    "server.max_sequences=1", "server.max_context=8192", "server.drafts=off")
    body = json.dumps({"messages": ask("Please count the second one"), "max_tokens": 12}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(20):
        before = counts(server)
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(head.encode() + body)
        wait_for(lambda: running(server) == 1 or counts(server) != before)
        client.close()
        wait_for(lambda: running(server) == 0)
        if counts(server) == before:
            break
    else:
        raise AssertionError("no rewrite was given up")
    assert chat(server, ask("And the second one?"))["retrieval"][0]["query"] == LINE
    assert server.stop() == 0


def running(server):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("retro_num_requests_running{"))


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_responses_api_shows_the_query(server):
    stores = server.request("GET", "/v1/vector_stores").json()["data"]
    reply = server.post({"input": ask("And the second one?"), "max_output_tokens": 16,
                         "tools": [{"type": "file_search", "vector_store_ids": [stores[0]["id"]]}]}, "/v1/responses")
    assert reply.status == 200, reply.body
    (call,) = (item for item in reply.json()["output"] if item["type"] == "file_search_call")
    assert call["queries"] == [LINE]


@pytest.mark.parametrize("options, words", [
    (["retrieval.query=rewritten"], "set retrieval.mode=prompt"),
    (["retrieval.query=rewritten", "retrieval.mode=prompt"], "has no chat template"),
])
def test_models_that_cannot_rewrite_are_refused_at_the_start(folder, options, words):
    sets = [a for option in [f"model.path={ROOT / 'models' / MODEL}", *options] for a in ("--set", option)]
    for check in (["--check-config"], []):
        done = subprocess.run([BUILD / "retro-server", "--config", folder / "retro.json", *sets, *check], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_models_that_cannot_rewrite_refuse_requests(folder, tmp_path):
    """A Retro model without a template, and a collection that was cut for it."""
    sets = [f"model.path={ROOT / 'models' / MODEL}", "retrieval.query=message", f"retrieval.collection={tmp_path / 'collection'}"]
    done = subprocess.run([BUILD / "retro-index", "build", "--out", tmp_path / "collection", "--config", folder / "retro.json",
                           *(a for one in sets for a in ("--set", one)), folder / "documents"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    server = Server(folder / "retro.json", tmp_path, *sets)
    for fields, words in (({"query": "rewritten", "mode": "attention"}, "cross attention"), ({"query": "rewritten", "mode": "prompt"}, "no chat template")):
        reply = server.post({"messages": ask("And the second one?"), "retrieval": fields}, PATH)
        assert reply.status in (400,) and reply.error()["param"] == "retrieval.query" and words in reply.error()["message"], reply.body
    assert server.stop() == 0
