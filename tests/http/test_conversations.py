"""Conversations that keep what they read: passages of earlier turns stay where they stood (retrieval.conversation=keep)."""
import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from chat_model import SOURCES, make_chat_model
from conftest import BUILD, DEPS, Server
from test_cache_folder import files, memory_has, named, needles_of, settled, wait_for
from test_keys import Keys, bearer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import downloaded  # noqa: E402

PATH = "/v1/chat/completions"
CHAT = ("{% for m in messages %}<|begin_of_text|>{{ m.role }}\n{{ (m.content or '') | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|begin_of_text|>assistant\n{% endif %}")
TEMPLATE, AGAIN = "[{number}] {title}: {text}\n", "[{number}] {title} again\n"
SUBJECTS = ["bridge", "soup", "garden", "engine", "violin", "harbour", "glacier", "bakery", "library", "orchard"]
FACTS = {name: f"# The {name}\n\nThe {name} was opened in {1900 + i}. Every {name} needs care in its year {i + 3}.\n"
         for i, name in enumerate(SUBJECTS)}


def question(name):
    return f"When was the {name} opened?"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A small model with a long context, and a collection of ten documents, each of one passage."""
    folder = tmp_path_factory.mktemp("conversations")
    downloaded.write_folder(folder / "tiny", {"do_sample": False})
    (folder / "tiny/chat_template.jinja").write_text(CHAT)
    model = json.loads((folder / "tiny/config.json").read_text())
    (folder / "tiny/config.json").write_text(json.dumps(model | {"max_position_embeddings": 8192}))
    (folder / "pages").mkdir()
    for name, text in FACTS.items():
        (folder / f"pages/{name}.md").write_text(text)
    file = folder / "retro.json"
    file.write_text(json.dumps({
        "model": {"path": str(folder / "tiny"), "dtype": "f32"},
        "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "template": TEMPLATE,
                      "again": AGAIN, "conversation": "keep", "k": 1},
        "server": {"port": 0}}))
    done = subprocess.run([BUILD / "retro-index", "build", "--out", folder / "collection", "--config", file, folder / "pages"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return file


@pytest.fixture(scope="module")
def server(config, tmp_path_factory):
    running = Server(config, tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def own(config, tmp_path):
    """Starts servers with options of their own and a collection of their own."""
    servers = []

    def start(*options):
        copy = tmp_path / f"collection{len(servers)}"
        shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], copy)
        servers.append(Server(config, tmp_path, f"retrieval.collection={copy}", *options))
        return servers[-1]

    yield start
    for running in servers:
        assert running.stop() == 0, running.log.read_text()


def send(server, body, path=PATH, key=None):
    headers = {"Content-Type": "application/json"} | (bearer(key) if key else {})
    return server.request("POST", path, json.dumps(body), headers)


def say(server, messages, key=None, **fields):
    body = {"messages": messages, "max_tokens": 8, "logprobs": True, "ignore_eos": True, "temperature": 0} | fields
    reply = send(server, body, key=key)
    assert reply.status == 200, reply.body
    return reply.json()


def written(reply):
    """What was written, to the last bit."""
    return [(t["token"], t["logprob"]) for t in reply["choices"][0]["logprobs"]["content"]]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def shown(neighbor, template=TEMPLATE):
    fields = template.replace("{number}", "{0[number]}").replace("{title}", "{0[title]}").replace("{text}", "{0[text]}")
    return fields.format(neighbor)


def put_in(reply):
    """What a turn puts before its question."""
    (entry,) = reply["retrieval"]
    return "".join(shown(n, AGAIN if n.get("again") else TEMPLATE) for n in entry["neighbors"])


def numbers(reply, key="neighbors"):
    return [n["number"] for n in reply["retrieval"][0].get(key, [])]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(server, name):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def talk(server, names, messages=(), key=None, **fields):
    """Asks about each; the messages with their answers, and the replies."""
    messages, replies = list(messages), []
    for i, name in enumerate(names):
        messages.append(user(question(name)))
        replies.append(say(server, messages, key, **fields))
        messages.append(assistant(f"It is known, {i}."))
    return messages, replies


def by_hand(server, messages, inserted, **fields):
    """The same prompt, sent with the passages in its messages."""
    messages = [dict(m) for m in messages]
    users = [m for m in messages if m["role"] == "user"]
    for message, text in zip(users, inserted):
        message["content"] = text + message["content"]
    return say(server, messages, retrieval={"enabled": False}, **fields)


def expect_prompt(server, messages, reply, inserted):
    same = by_hand(server, messages, inserted)
    assert written(same) == written(reply)
    assert same["usage"]["prompt_tokens"] == reply["usage"]["prompt_tokens"]


def test_passages_stay_where_they_were_read(server):
    messages, replies = talk(server, SUBJECTS[:4], [{"role": "system", "content": "Be brief."}])
    assert [numbers(reply) for reply in replies] == [[1], [2], [3], [4]]
    assert [numbers(reply, "earlier") for reply in replies] == [[], [1], [1, 2], [1, 2, 3]]
    for i, reply in enumerate(replies):
        expect_prompt(server, messages[:2 + 2 * i], reply, [put_in(r) for r in replies[:i + 1]])
    earlier = replies[3]["retrieval"][0]["earlier"]
    for reply, passage in zip(replies, earlier):
        found = reply["retrieval"][0]["neighbors"][0]
        assert {k: passage[k] for k in ("number", "id", "start", "end", "text")} == {
            k: found[k] for k in ("number", "id", "start", "end", "text")}


def test_the_next_prompt_begins_with_the_one_before(server):
    """To the token, whatever is found in the next turn."""
    _, replies = talk(server, SUBJECTS[:6], [user("Hello there"), assistant("Hello.")])
    for before, after in zip(replies, replies[1:]):
        assert cached(after) >= before["usage"]["prompt_tokens"] > cached(before)


def test_latest_is_as_it_was(server):
    messages, replies = talk(server, SUBJECTS[:3], [user("Latest alone"), assistant("Yes.")], retrieval={"conversation": "latest"})
    assert [numbers(reply) for reply in replies] == [[1], [1], [1]]
    assert all("earlier" not in reply["retrieval"][0] for reply in replies)
    expect_prompt(server, messages[:-1], replies[2], ["", "", "", put_in(replies[2])])


def test_a_passage_that_is_found_again_is_named(server):
    messages, replies = talk(server, ["bridge", "soup", "bridge", "violin", "bridge"], [user("Again and again"), assistant("Yes.")])
    first = replies[0]["retrieval"][0]["neighbors"][-1]
    again = replies[2]["retrieval"][0]["neighbors"]
    assert again[-1].get("again"), (replies[0]["retrieval"], replies[2]["retrieval"])
    assert again[-1]["number"] == first["number"] and again[-1]["text"] == first["text"]
    before = metric(server, "retro_conversation_passages_again_total")
    for i in (2, 3, 4):
        expect_prompt(server, messages[:3 + 2 * i], replies[i], ["", *(put_in(r) for r in replies[:i + 1])])
    fresh = [n for n in replies[4]["retrieval"][0]["neighbors"] if not n.get("again")]
    assert not fresh and before >= 2
    assert max(numbers(replies[3])) == max(max(numbers(r)) for r in replies)


def test_answers_over_ten_turns_do_not_depend_on_the_cache(own):
    told = []
    for mb in (64, 0):
        server = own(f"server.prefix_cache_mb={mb}")
        _, replies = talk(server, SUBJECTS, retrieval={"k": 2})
        told.append([(written(r), r["retrieval"]) for r in replies])
        assert (cached(replies[-1]) > 0) == (mb > 0)
    assert told[0] == told[1]


def change(server, name, text=None):
    """Puts other text into the document, or deletes it."""
    found = json.loads(server.request("GET", "/v1/documents?limit=100").body)["data"]
    (document,) = [d for d in found if d["path"].endswith(f"{name}.md")]
    url = "/v1/documents/" + document["id"]
    if text is None:
        reply = server.request("DELETE", url)
    else:
        body = json.dumps({"text": text, "title": document["title"], "path": document["path"]})
        reply = server.request("PUT", url, body, {"Content-Type": "application/json"})
    assert reply.status in (200, 201), reply.body


@pytest.mark.parametrize("text", [None, "# The soup\n\nAnother text of nothing.\n", FACTS["soup"] + "One word more.\n"])
def test_what_changed_is_not_shown_again(own, text):
    server = own()
    messages, replies = talk(server, ["bridge", "soup", "garden"])
    change(server, "soup", text)
    messages.append(user(question("engine")))
    reply = say(server, messages)
    assert numbers(reply, "earlier") == [1, 3] and numbers(reply) == [4]
    assert metric(server, "retro_conversation_passages_gone_total") == 1
    expect_prompt(server, messages, reply, [put_in(replies[0]), "", put_in(replies[2]), put_in(reply)])


def test_a_deleted_passage_is_not_named(own):
    server = own()
    messages, replies = talk(server, ["bridge", "soup", "bridge"])
    assert replies[2]["retrieval"][0]["neighbors"][0]["again"]
    change(server, "bridge")
    messages.append(user(question("engine")))
    reply = say(server, messages)
    assert numbers(reply, "earlier") == [2]
    expect_prompt(server, messages, reply, ["", put_in(replies[1]), "", put_in(reply)])


def test_rows_leave_with_documents_of_earlier_turns(own, tmp_path):
    """Passages of earlier turns are part of what a prompt has read, in a prompt that takes over no rows of these turns too."""
    rows = tmp_path / "rows"
    server = own(f"server.cache_folder={rows}")

    subject_of = {}

    def new_files(asked):
        before = set(files(rows))
        reply = say(server, asked, max_tokens=150)
        settled(server)
        subject_of.update((n["id"], pathlib.Path(n["document"]).stem) for n in reply["retrieval"][0]["neighbors"])
        return reply, set(files(rows)) - before

    def subjects(path):
        return {subject_of[name] for name in named(path)}

    messages = [{"role": "system", "content": "Answer in a few words. " * 20}]
    for i, name in enumerate(SUBJECTS[:3]):
        messages.append(user(question(name)))
        reply, new = new_files(messages)
        assert documents(reply) == [name]
        # Each turn goes on behind the rows of the turns before. What it adds is named from its own passage on.
        assert {frozenset(subjects(p)) for p in new} == {frozenset(SUBJECTS[:i]), frozenset(SUBJECTS[: i + 1])}
        messages.append(assistant("It is known. " * 20))
    # With another system message, all is computed anew; the conversation stays the same one.
    messages = [{"role": "system", "content": "Answer in many words. " * 20}, *messages[1:], user(question("engine"))]
    reply, new = new_files(messages)
    assert numbers(reply, "earlier") == [1, 2, 3]
    assert {frozenset(subjects(p)) for p in new} == {frozenset(), frozenset(SUBJECTS[:3]), frozenset(SUBJECTS[:4])}
    marked = [p for p in files(rows) if "bridge" in subjects(p)]
    others = [p for p in files(rows) if p not in marked]
    needles = needles_of(marked)
    assert memory_has(server, needles), "the search finds rows that are there"

    change(server, "bridge")
    wait_for(lambda: not any(p.exists() for p in marked))
    assert memory_has(server, needles) == set()
    assert others and all(p.exists() for p in others)
    again = say(server, messages)
    assert 128 <= cached(again) < again["usage"]["prompt_tokens"] // 2
    assert numbers(again, "earlier") == [2, 3]


@pytest.mark.parametrize("retrieval", [{"exclude": ["{soup}"]}, {"filter": {"not": {"eq": {"id": "{id}"}}}}])
def test_what_the_request_may_not_read_is_not_shown(server, retrieval):
    messages, replies = talk(server, ["bridge", "soup", "garden"], [user(json.dumps(retrieval)), assistant("Yes.")])
    soup = replies[1]["retrieval"][0]["neighbors"][0]
    retrieval = json.loads(json.dumps(retrieval).replace("{soup}", soup["document"]).replace("{id}", soup["id"]))
    messages.append(user(question("engine")))
    reply = say(server, messages, retrieval=retrieval)
    assert soup["id"] not in [n["id"] for n in reply["retrieval"][0]["earlier"]]
    expect_prompt(server, messages, reply, ["", put_in(replies[0]), "", put_in(replies[2]), put_in(reply)])
    # The next request may.
    assert soup["id"] in [n["id"] for n in say(server, messages)["retrieval"][0]["earlier"]]


def test_a_request_without_retrieval_reads_nothing(server):
    messages, _ = talk(server, ["bridge"], [user("Nothing to read"), assistant("Yes.")])
    messages.append(user("And now?"))
    off = say(server, messages, retrieval={"enabled": False})
    assert off["retrieval"] == []
    expect_prompt(server, messages, off, [])


def test_an_edited_message_is_another_conversation(server):
    messages, replies = talk(server, ["bridge", "soup", "garden"], [user("Edits"), assistant("Yes.")])
    messages[5] = assistant("It is known, but otherwise.")
    messages.append(user(question("engine")))
    reply = say(server, messages)
    assert numbers(reply, "earlier") == [1, 2] and numbers(reply) == [3]
    expect_prompt(server, messages, reply, ["", put_in(replies[0]), put_in(replies[1]), "", put_in(reply)])


def test_branches_and_answers_made_anew(server):
    messages, replies = talk(server, ["bridge", "soup"], [user("Branches"), assistant("Yes.")])
    again = say(server, messages[:-1])
    assert again["retrieval"] == replies[1]["retrieval"] and written(again) == written(replies[1])
    left = say(server, [*messages[:-1], assistant("Left."), user(question("garden"))])
    right = say(server, [*messages[:-1], assistant("Right."), user(question("engine"))])
    assert numbers(left, "earlier") == numbers(right, "earlier") == [1, 2] and numbers(left) == numbers(right) == [3]
    assert left["retrieval"][0]["neighbors"][0]["id"] != right["retrieval"][0]["neighbors"][0]["id"]
    onward = [*messages[:-1], assistant("Left."), user(question("garden")), assistant("Yes."), user(question("violin"))]
    assert say(server, onward)["retrieval"][0]["earlier"][2]["id"] == left["retrieval"][0]["neighbors"][0]["id"]


def test_several_answers(server):
    messages, _ = talk(server, ["bridge"], [user("Several"), assistant("Yes.")])
    messages.append(user(question("soup")))
    reply = say(server, messages, n=3, temperature=1, seed=1)
    assert [e["neighbors"] for e in reply["retrieval"]] == [reply["retrieval"][0]["neighbors"]] * 3
    assert all(e["earlier"] == reply["retrieval"][0]["earlier"] for e in reply["retrieval"])


def test_parts_are_the_same_message(server):
    messages, _ = talk(server, ["bridge"], [{"role": "system", "content": "It is Monday."}, user("Parts"), assistant("Yes.")])
    messages[0]["content"] = "It is Tuesday."
    messages[3]["content"] = [{"type": "text", "text": messages[3]["content"]}]
    messages.append(user(question("soup")))
    assert numbers(say(server, messages), "earlier") == [1]


def test_turns_of_tools(server):
    """A message of the user keeps its passages while tools answer, and in later turns."""
    messages, replies = talk(server, ["bridge"], [user("Tools"), assistant("Yes.")])
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages += [user(question("soup"))]
    asked = say(server, messages)
    messages += [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "fine"}]
    told = say(server, messages)
    assert told["retrieval"] == asked["retrieval"] and cached(told) >= asked["usage"]["prompt_tokens"] - 16
    messages += [assistant("It is fine."), user(question("garden"))]
    reply = say(server, messages)
    assert numbers(reply, "earlier") == [1, 2]
    assert cached(reply) >= told["usage"]["prompt_tokens"] - 16


def test_the_oldest_leave_at_once(own):
    """Within conversation_tokens; in most turns none leave, and the prompt begins with the one before."""
    server = own("retrieval.conversation_tokens=420", "retrieval.prompt_tokens=120")
    _, replies = talk(server, SUBJECTS)
    stood = [numbers(reply, "earlier") for reply in replies]
    left = [i for i in range(1, 10) if not set(stood[i - 1]) <= set(stood[i])]
    assert 1 <= len(left) <= 4, stood
    for i in range(1, 10):
        assert stood[i] == list(range(stood[i][0], i + 1))
        assert numbers(replies[i]) == [i + 1]
        kept = cached(replies[i]) >= replies[i - 1]["usage"]["prompt_tokens"]
        assert kept == (i not in left), (i, stood)
    assert all(len(stood[i - 1]) - len(stood[i]) >= 1 for i in left)


def test_a_full_context_takes_the_oldest_away(own):
    server = own("server.max_context=700")
    _, replies = talk(server, SUBJECTS)
    assert all(reply["usage"]["total_tokens"] <= 700 for reply in replies)
    assert all(numbers(reply) for reply in replies[:5])


def test_what_is_known_is_bounded(own):
    server = own("retrieval.conversations_mb=1")
    messages, _ = talk(server, ["bridge", "soup"])
    assert metric(server, "retro_conversation_turns") == 2
    assert 0 < metric(server, "retro_conversation_bytes") < 1 << 20
    assert metric(server, "retro_conversation_evictions_total") == 0


def test_tenants_share_nothing(own, tmp_path):
    """A key that sends another's conversation gets nothing of its passages, nor does it get them in time."""
    keys = Keys(tmp_path / "keys.jsonl")
    alice, bob = keys.add("alice"), keys.add("bob")
    server = own(f"server.keys_file={keys.path}")
    messages, _ = talk(server, ["bridge", "soup"], key=alice)
    messages.append(user(question("garden")))
    curious = say(server, messages, bob)
    assert numbers(curious) == [1] and "earlier" not in curious["retrieval"][0] and cached(curious) == 0
    assert numbers(say(server, messages, alice), "earlier") == [1, 2]


def test_ten_thousand_messages(server):
    """More than the context has: refused, in linear time, and the server goes on."""
    messages = [user("a"), assistant("b")] * 5000 + [user("c")]
    reply = send(server, {"messages": messages, "max_tokens": 4})
    assert reply.status == 400 and reply.error()["code"] == "context_length_exceeded"
    names = [user(question("soup")), assistant("<|eot_id|>")] * 12
    assert say(server, [*names, user("soup")])["retrieval"]


def test_attention_and_comparisons(server):
    messages, replies = talk(server, ["bridge", "soup"], [user("Attention"), assistant("Yes.")])
    bridge = replies[0]["retrieval"][0]["neighbors"][0]["document"]
    messages.append(user(question("garden")))
    reply = say(server, messages, retrieval={"k": 2, "attention": True, "support": True, "compare": [bridge]})
    own = [n for n in reply["retrieval"][0]["neighbors"] if not n.get("again")]
    (told,) = reply["attention"] if own else [{"shares": []}]
    assert len(told["shares"]) == len(own) and all(0 < share < 1 for share in told["shares"])
    without = say(server, messages, retrieval={"k": 2, "exclude": [bridge]}, top_logprobs=20)
    top = {t["token"]: t["logprob"] for t in without["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
    first = reply["compare"][0]["tokens"][0]
    assert first["logprob_without"] == top.get(first["token"], first["logprob_without"]) != first["logprob"]


@pytest.fixture(scope="module")
def citing(config, tmp_path_factory):
    """A model whose answer is known: it cites [1], [2, 1] and [2]."""
    folder = tmp_path_factory.mktemp("citing")
    make_chat_model(folder / "script")
    running = Server(config, folder, f"model.path={folder / 'script'}")
    yield running
    assert running.stop() == 0, running.log.read_text()


def test_citations_name_passages_of_earlier_turns(citing):
    fields = {"max_tokens": 20, "chat_template_kwargs": {"sources": True}, "ignore_eos": False, "logprobs": False}
    _, replies = talk(citing, ["bridge", "soup", "garden"], **fields)
    assert [[c["number"] for c in reply["citations"]] for reply in replies] == [[1, 1], [1, 2, 1, 2], [1, 2, 1, 2]]
    for citation in replies[2]["citations"]:
        passage = replies[2]["retrieval"][0]["earlier"][citation["number"] - 1]
        assert [citation[k] for k in ("document", "start", "end")] == [passage[k] for k in ("document", "start", "end")]
        assert "".join(SOURCES)[citation["answer_start"]:citation["answer_end"]].startswith("[")


def kept(server):
    return metric(server, "retro_conversation_passages_kept_total")


def test_doors(own):
    """Every protocol's conversations are known, whoever holds their messages."""
    server = own()
    first = send(server, {"input": question("bridge"), "max_output_tokens": 8, "retrieval": {}}, "/v1/responses").json()
    assert kept(server) == 0
    send(server, {"input": question("soup"), "max_output_tokens": 8, "retrieval": {}, "previous_response_id": first["id"]}, "/v1/responses")
    assert kept(server) == 1
    turns = [user(question("violin")), assistant("Yes."), user(question("engine"))]
    for path, body in (("/v1/messages", {"model": "tiny", "max_tokens": 8, "retrieval": {}}), ("/api/chat", {"model": "tiny", "stream": False, "retrieval": {}, "options": {"num_predict": 8}})):
        for n in (1, 3):
            messages = [user(path), assistant("Yes."), *turns[:n]]
            before = kept(server)
            reply = send(server, body | {"messages": messages}, path)
            assert reply.status == 200, reply.body
            assert kept(server) == before + (n == 3), path


def documents(reply):
    return [pathlib.Path(n["document"]).stem for n in reply["retrieval"][0]["neighbors"]]


def test_a_stable_order(own):
    """Documents that are about as relevant stand as they were read before, and the prompt is found again."""
    server = own("retrieval.order_distance=1")
    ways = [question("bridge") + " " + question("soup"), question("soup") + " " + question("bridge") * 2]
    plain = [say(server, [user(way)], retrieval={"k": 2}) for way in ways]
    orders = [documents(reply) for reply in plain]
    assert sorted(orders[0]) == sorted(orders[1]) == ["bridge", "soup"] and orders[0] != orders[1]
    fields = {"retrieval": {"k": 2, "order": "stable"}}
    first, second = (say(server, [user(way)], **fields) for way in ways)
    assert documents(first) == documents(second) == orders[0]
    assert numbers(second) == [1, 2] and cached(second) > cached(plain[1])
    expect_prompt(server, [user(ways[1])], second, [put_in(second)])
    # Another beginning has orders of its own.
    other = say(server, [{"role": "system", "content": "Other."}, user(ways[1])], **fields)
    assert documents(other) == orders[1]


def test_a_stable_order_keeps_the_distance(own):
    server = own("retrieval.order_distance=0", "retrieval.order=stable")
    ways = [question("bridge") + " " + question("soup"), question("soup") + " " + question("bridge") * 2]
    for way in ways:
        stable = say(server, [user(way)], retrieval={"k": 2})
        assert documents(stable) == documents(say(server, [user(way)], retrieval={"k": 2, "order": "relevance"}))


def test_options_are_checked(config):
    for option, words in [("again={title}", "{number}, by which the passage is named, is missing"), ("again={number} {page}", "is no placeholder"),
                          ("conversation=some", "conversation")]:
        done = subprocess.run([BUILD / "retro-server", "--config", config, "--set", f"retrieval.{option}", "--check-config"], capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr, done.stderr
