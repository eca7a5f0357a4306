"""Chats with documents: found passages stand in the user's last message, and the answer names them."""
import json
import pathlib
import subprocess
import sys

import pytest
from chat_model import SOURCES, make_chat_model
from conftest import BUILD, DEPS, MODEL, ROOT, Server, counted, loads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

PATH = "/v1/chat/completions"
TEMPLATE = "{number}. {title}: {text}\n"
CHAT = "{% for m in messages %}<|begin_of_text|>{{ m.role }}\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
DOCUMENTS = {
    "bridges.md": "# Bridges\n\nThe bridge over the Arn opened in 1911. It carries two tracks of rails. Its arches are made of granite.\n",
    "marks.md": "# Marks\n\nThe mark <|eot_id|> ends a turn of a chat. The mark <|begin_of_text|> begins one.\n",
    "soup.md": "# Soup\n\nLeek soup takes potatoes, leeks and cream. Boil the potatoes first. Salt comes last of all.\n",
}
HISTORY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]


def build(config, out, folder):
    done = subprocess.run([BUILD / "retro-index", "build", "--out", out, "--config", config, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def config(pages, tmp_path_factory):
    """A downloaded model with a longer context, and a collection."""
    folder = tmp_path_factory.mktemp("documents")
    downloaded.write_folder(folder / "tiny", {"do_sample": False})
    (folder / "tiny/chat_template.jinja").write_text(CHAT)
    model = json.loads((folder / "tiny/config.json").read_text())
    (folder / "tiny/config.json").write_text(json.dumps(model | {"max_position_embeddings": 2048}))
    file = folder / "retro.json"
    file.write_text(json.dumps({
        "model": {"path": str(folder / "tiny"), "dtype": "f32"},
        "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "template": TEMPLATE},
        "server": {"port": 0}}))
    build(file, folder / "collection", pages)
    return file


@pytest.fixture(scope="module")
def server(config, tmp_path_factory):
    running = Server(config, tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


def say(server, messages, expect=200, **fields):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    reply = server.post({"messages": messages, "max_tokens": 12, "logprobs": True, "ignore_eos": True} | fields, PATH)
    assert reply.status == expect, reply.body
    return reply.json()


def written(reply):
    """What was written, to the last bit."""
    return [(t["token"], t["logprob"]) for t in reply["choices"][0]["logprobs"]["content"]]


def passages(reply, template=TEMPLATE):
    (entry,) = reply["retrieval"]
    assert (entry["index"], entry["chunk"], entry["position"]) == (0, 0, 0)
    fields = (template.replace("{number}", "{0}").replace("{title}", "{1[title]}").replace("{text}", "{1[text]}"))
    return "".join(fields.format(i + 1, n) for i, n in enumerate(entry["neighbors"]))


@pytest.mark.parametrize("before", [[], HISTORY])
def test_passages_stand_in_the_last_message_of_the_user(server, before):
    question = "when did the bridge open?"
    on = say(server, [*before, {"role": "user", "content": question}], retrieval={"k": 2})
    assert on["retrieval"][0]["neighbors"][0]["document"].endswith("bridges.md")
    by_hand = say(server, [*before, {"role": "user", "content": passages(on) + question}], retrieval={"enabled": False})
    off = say(server, [*before, {"role": "user", "content": question}], retrieval={"enabled": False})
    assert written(on) == written(by_hand) != written(off)
    assert off["retrieval"] == [] and counted(on) == counted(by_hand) != counted(off)


def test_the_query_is_the_last_message_of_the_user(server):
    """Its parts are one text; what is said behind it is not sought by."""
    parts = [{"type": "text", "text": "\n how is leek soup"}, {"type": "text", "text": "boiled?"}]
    messages = [{"role": "user", "content": "when did the bridge open?"}, {"role": "user", "content": parts},
                {"role": "assistant", "content": "The bridge over the Arn"}]
    on = say(server, messages, retrieval={"k": 1})
    assert on["retrieval"][0]["neighbors"][0]["document"].endswith("soup.md")
    messages[1]["content"] = passages(on) + "how is leek soup\nboiled?"
    assert written(on) == written(say(server, messages, retrieval={"enabled": False}))


def test_passages_are_sentences_and_each_place_is_there_once(server):
    """The collection's chunks are 64 bytes: those found side by side are one passage."""
    found = say(server, "when did the bridge open?", retrieval={"k": 8})["retrieval"][0]["neighbors"]
    assert [n["number"] for n in found] == list(range(1, len(found) + 1)) and len(found) < 8
    places = [(n["document"], n["start"], n["end"]) for n in found]
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in zip(places, places[1:]))
    assert len({document for document, _, _ in places}) == sum(a[0] != b[0] for a, b in zip(places, places[1:])) + 1
    for n in found:
        text = DOCUMENTS[pathlib.Path(n["document"]).name].encode()
        assert text[n["start"]:n["end"]] == n["text"].encode()
        assert n["text"][-1] in ".s" and n["text"][0] in "#TILBSE"


def test_control_tokens_of_documents_are_text(server):
    on = say(server, "which mark ends a turn?", retrieval={"k": 1})
    assert "<|eot_id|>" in passages(on)
    by_hand = say(server, passages(on) + "which mark ends a turn?", retrieval={"enabled": False})
    assert written(on) == written(by_hand)


def test_k_floor_and_budget(server, config, tmp_path):
    assert len(say(server, "soup", retrieval={"k": 1})["retrieval"][0]["neighbors"]) == 1
    none = say(server, "soup", retrieval={"min_similarity": 1})
    assert none["retrieval"][0]["neighbors"] == [] and written(none) == written(say(server, "soup", retrieval={"enabled": False}))
    small = Server(config, tmp_path, "retrieval.prompt_tokens=1", "retrieval.enabled=false")
    assert say(small, "soup", retrieval={"k": 4})["retrieval"][0]["neighbors"] == []
    assert say(small, "soup")["retrieval"] == []
    assert small.stop() == 0


def test_passages_leave_room_for_the_answer(server, config, tmp_path):
    """A length that is not given leaves passages their tokens."""
    small = Server(config, tmp_path, "server.max_context=700")
    reply = say(small, "soup", max_tokens=None, ignore_eos=True)
    assert reply["choices"][0]["finish_reason"] == "length" and reply["retrieval"][0]["neighbors"]
    assert small.stop() == 0


GUIDE = "# Guide\n\nIt begins here.\n\n## Crossing\n\n" + "The road is long. " * 30 + "The ferry leaves at noon from the old pier. " + \
    "The river is wide. " * 30 + "\n\n## Return\n\nThe way back is another.\n"


def test_sections_are_read_around_chunks(config, tmp_path):
    """The chunk that is found grows to its section, as far as the budget goes; places are those of what was read."""
    (tmp_path / "guide.md").write_text(GUIDE)
    build(config, tmp_path / "collection", tmp_path / "guide.md")
    running = Server(config, tmp_path, f"retrieval.collection={tmp_path / 'collection'}", "retrieval.prompt_tokens=1500", "retrieval.k=1")
    question = "When does the ferry leave from the old pier?"
    chunk, section = (say(running, question, retrieval={"read": read})["retrieval"][0]["neighbors"] for read in ("chunk", "section"))
    (small,), (grown,) = chunk, section
    assert grown["start"] <= small["start"] and grown["end"] >= small["end"] and len(grown["text"]) > len(small["text"])
    assert GUIDE.encode()[grown["start"]:grown["end"]].decode() == grown["text"] and "The ferry leaves" in grown["text"]
    assert grown["text"].startswith("## Crossing") and grown["text"].endswith("wide.") and grown["heading"] == ["Guide", "Crossing"]
    assert grown["line"] == 5

    few = Server(config, tmp_path, f"retrieval.collection={tmp_path / 'collection'}", "retrieval.prompt_tokens=600", "retrieval.k=1",
                 "retrieval.read=section")
    reply = say(few, question)
    (part,) = reply["retrieval"][0]["neighbors"]
    assert len(small["text"]) < len(part["text"]) < len(grown["text"]) and "The ferry leaves" in part["text"]
    assert part["text"].startswith("The ") and part["text"].endswith(".")
    assert len(passages(reply).encode()) <= 600  # the model has a token for each byte
    for one in (running, few):
        assert one.stop() == 0


def test_stream(server):
    whole = say(server, "soup", logprobs=False, temperature=0)
    reply = server.post({"messages": [{"role": "user", "content": "soup"}], "max_tokens": 12, "ignore_eos": True, "stream": True}, PATH)
    assert reply.status == 200 and reply.body.endswith(b"data: [DONE]\n\n")
    events = [loads(line[6:]) for line in reply.body.decode().split("\n\n")[:-2]]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[1]["retrieval"] == whole["retrieval"] and events[1]["choices"][0]["delta"] == {}
    assert not any("retrieval" in event for event in events[2:])
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole["choices"][0]["message"]["content"]


def test_each_answer_names_what_it_read(server):
    reply = say(server, "soup", n=2)
    assert [entry["index"] for entry in reply["retrieval"]] == [0, 1]
    assert reply["retrieval"][0]["neighbors"] == reply["retrieval"][1]["neighbors"]


def shares_of(tokens):
    return [t["logprob"] for t in tokens], [t["logprob_without"] for t in tokens]


def test_an_answer_is_compared_with_the_same_without_documents(server):
    question = "when did the bridge open?"
    bridges = say(server, question, retrieval={"k": 1})["retrieval"][0]["neighbors"][0]["document"]
    reply = say(server, question, n=2, temperature=0, retrieval={"k": 2, "compare": [bridges]})
    text = reply["choices"][1]["message"]["content"]
    entry = reply["compare"][1]
    assert [e["index"] for e in reply["compare"]] == [0, 1] and entry["without"] == [bridges]
    assert [(t["token"], t["logprob"]) for t in entry["tokens"]] == written(reply)
    assert entry["tokens"][0]["answer_start"] == 0 and entry["tokens"][-1]["answer_end"] == len(text)
    # The first token's context is that of the request that excludes the document.
    excluded = say(server, question, temperature=0, top_logprobs=20, retrieval={"k": 2, "exclude": [bridges]})
    assert bridges not in [n["document"] for n in excluded["retrieval"][0]["neighbors"]]
    top = {t["token"]: t["logprob"] for t in excluded["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
    first = entry["tokens"][0]
    assert first["logprob_without"] == top.get(first["token"], first["logprob_without"]) != first["logprob"]
    # Without nothing the same is read, in the same place.
    same = say(server, question, retrieval={"compare": []})
    with_all, without_none = shares_of(same["compare"][0]["tokens"])
    assert with_all == without_none
    # Without a request for log-probabilities none are told.
    off = say(server, question, logprobs=False, retrieval={"compare": "off"})
    assert off["choices"][0]["logprobs"] is None and off["compare"][0]["without"] == "off"


def test_a_stream_ends_with_the_comparison(server):
    body = {"messages": [{"role": "user", "content": "soup"}], "max_tokens": 12, "ignore_eos": True, "temperature": 0,
            "retrieval": {"compare": "off"}}
    whole = server.post(body, PATH).json()
    events = [loads(line[6:]) for line in server.post(body | {"stream": True}, PATH).body.decode().split("\n\n")[:-2]]
    assert events[-2]["choices"][0]["finish_reason"] == "length" and events[-1]["choices"] == []
    assert events[-1]["compare"] == whole["compare"]
    assert not any("compare" in event for event in events[:-1])


def test_a_chat_that_finds_nothing_to_search_by_is_compared_with_nothing(server):
    messages = [{"role": "system", "content": "soup"}, {"role": "user", "content": " "}]
    error = say(server, messages, expect=400, retrieval={"compare": "off"})["error"]
    assert error["code"] == "no_query"


def test_without_a_message_to_search_by(server):
    messages = [{"role": "system", "content": "soup"}, {"role": "user", "content": " "}]
    assert say(server, messages)["retrieval"] == []
    error = say(server, messages, expect=400, retrieval={"enabled": True})["error"]
    assert error["param"] == "messages" and error["code"] == "no_query"
    error = say(server, messages, expect=400, retrieval={"neighbors": ["a"]})["error"]
    assert error["param"] == "messages" and error["code"] == "no_query"


def test_a_template_without_the_message(config, tmp_path):
    folder = pathlib.Path(json.loads(config.read_text())["model"]["path"])
    copy = tmp_path / "deaf"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "chat_template.jinja").unlink()
    (copy / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    deaf = Server(config, tmp_path, f"model.path={copy}")
    assert say(deaf, "soup")["retrieval"]
    error = say(deaf, [*HISTORY, {"role": "user", "content": "soup"}], expect=400)["error"]
    assert error["code"] == "no_place_for_passages" and "leaves out the user's last message" in error["message"]
    assert deaf.stop() == 0


def test_a_retro_model_reads_them_by_cross_attention(pages, tmp_path):
    folder = tmp_path / "retro"
    folder.mkdir()
    for file in (ROOT / "models" / MODEL).iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    file = tmp_path / "retro.json"
    file.write_text(json.dumps({
        "model": {"path": str(folder)}, "server": {"port": 0},
        "retrieval": {"collection": str(tmp_path / "collection"), "embedder": str(DEPS / "minilm")}}))
    build(file, tmp_path / "collection", pages)
    server = Server(file, tmp_path)
    long = "when did the bridge open? " * 30
    found = say(server, long, retrieval={"k": 1})["retrieval"]
    assert len(found) > 1 and [entry["chunk"] for entry in found] == list(range(len(found)))
    assert all(entry["neighbors"][0]["document"].endswith("bridges.md") for entry in found[:-1])
    given = say(server, long, retrieval={"neighbors": ["granite"]})["retrieval"]
    assert [n["text"] for entry in given for n in entry["neighbors"]] == ["granite"] * len(found)
    assert say(server, long, retrieval={"enabled": False})["retrieval"] == []
    assert server.stop() == 0


@pytest.fixture(scope="module")
def citing(config, tmp_path_factory):
    """A model whose answer is known: it cites."""
    folder = tmp_path_factory.mktemp("citing")
    make_chat_model(folder / "script")
    running = Server(config, folder, f"model.path={folder / 'script'}")
    yield running
    assert running.stop() == 0, running.log.read_text()


ASKED = {"max_tokens": 20, "chat_template_kwargs": {"sources": True}, "ignore_eos": False, "logprobs": False}


def expect_citations(citations, text, found, index=0):
    """The numbers of passages in brackets, in order, with the passages and their places in the text."""
    expected = [(1, "[1]"), (2, "[2, 1]"), (1, "[2, 1]"), (2, "[2]")]
    assert [(c["number"], text[c["answer_start"]:c["answer_end"]]) for c in citations] == expected
    assert citations[-1]["answer_end"] == len(text) and citations[0]["answer_start"] == text.index("[")
    for c in citations:
        passage = found["neighbors"][c["number"] - 1]
        assert c["index"] == index
        assert [c[key] for key in ("number", "document", "title", "start", "end")] == [
            passage[key] for key in ("number", "document", "title", "start", "end")]


def test_citations(citing):
    reply = say(citing, "soup or bridge?", n=2, retrieval={"k": 8}, **ASKED)
    text = reply["choices"][0]["message"]["content"]
    assert text == "".join(SOURCES) and len(reply["retrieval"][0]["neighbors"]) < 9
    expect_citations([c for c in reply["citations"] if c["index"] == 0], text, reply["retrieval"][0])
    expect_citations([c for c in reply["citations"] if c["index"] == 1], text, reply["retrieval"][1], 1)
    assert "citations" not in say(citing, "soup?", retrieval={"enabled": False}, **ASKED)
    assert say(citing, "soup?", retrieval={"min_similarity": 1}, **ASKED)["citations"] == []


def test_citations_of_a_stream_come_last(citing):
    body = {"messages": [{"role": "user", "content": "soup or bridge?"}], "retrieval": {"k": 8}, "stream": True, **ASKED}
    events = [loads(line[6:]) for line in citing.post(body, PATH).body.decode().split("\n\n")[:-2]]
    assert [i for i, event in enumerate(events) if "citations" in event] == [len(events) - 1]
    expect_citations(events[-1]["citations"], "".join(SOURCES), events[1]["retrieval"][0])


@pytest.mark.parametrize("echo", [False, True])
def test_citations_of_a_completion(citing, echo):
    """Echoed, the prompt is part of the text that the places count from, and cites nothing itself."""
    fields = {"max_tokens": 20, "echo": echo, "retrieval": {"k": 8}}
    reply = citing.complete("Süße [1] <|to_sources|>", **fields)
    events = list(citing.stream("Süße [1] <|to_sources|>", **fields))
    (streamed,) = [event["retrieval"][0] for event in events if "retrieval" in event]
    for found, citations in ((reply["retrieval"][0], reply["citations"]), (streamed, events[-1]["citations"])):
        shift = len("Süße [1] <|to_sources|>") * echo
        text = reply["choices"][0]["text"][shift:]
        expect_citations([c | {key: c[key] - shift for key in ("answer_start", "answer_end")} for c in citations], text, found)
