"""MCP: who writes, who is told of changes, and what one key learns of another."""
import json
import signal
import time

import pytest

from mcp_messages import (MODERN, SUBSCRIPTION, Events, Session, ask_modern, call, fault, listen, message, meta,
                          modern_headers, post, refusal, result)
from test_documents import upload
from test_keys import Keys, bearer

CHANGED, UPDATED = "notifications/resources/list_changed", "notifications/resources/updated"


@pytest.fixture
def written(start, folder):
    """A server whose collection the test may change."""
    return start(f"retrieval.collection={folder}")


def put(server, ident, text, **more):
    reply = server.request("PUT", f"/v1/documents/{ident}", json.dumps({"text": text}), {"Content-Type": "application/json", **more})
    assert reply.status == 200, reply.body


def acknowledged(stream, ident="l"):
    first = stream.next()[1]
    assert first["method"] == "notifications/subscriptions/acknowledged" and first["params"]["_meta"] == {SUBSCRIPTION: ident}
    return first["params"]["notifications"]


# Writing.


def test_a_document_is_added_found_replaced_and_deleted(written):
    got = call(written, "add", {"text": "The zebra eats saffron at noon.", "id": "z", "path": "animals/zebra.md", "metadata": {"year": 2024}})
    assert got["effect"] == "added" and got["id"] == "z"
    assert call(written, "add", {"text": "The zebra eats saffron at noon.", "id": "z", "path": "animals/zebra.md", "metadata": {"year": 2024}})["effect"] == "unchanged"
    first = call(written, "search", {"query": "what eats saffron", "filter": {"eq": {"year": 2024}}})["results"][0]
    assert (first["id"], first["path"]) == ("z", "animals/zebra.md") and "saffron" in first["text"]
    assert call(written, "add", {"text": "The zebra sleeps.", "id": "z"})["effect"] == "replaced"
    assert call(written, "read", {"id": "z"})["text"] == "The zebra sleeps."
    assert call(written, "delete", {"id": "z"})["effect"] == "deleted"
    assert "z" in refusal(written, "read", {"id": "z"})


def test_tables_are_listed_and_asked(written):
    upload(written, [("file", "hours.csv", b"Boat,Hours\nKayak,3\nCanoe,4\nKayak,5\n")])
    told = call(written, "table_list", {"document": "hours.csv"})["data"]
    assert [(t["path"], t["number"], t["rows"]) for t in told] == [("hours.csv", 1, 3)]
    assert len(call(written, "table_list", {"limit": 1})["data"]) == 1
    assert told[0]["document"] in [t["document"] for t in call(written, "table_list", {})["data"]]
    got = call(written, "table_query", {"document": "hours.csv", "group": ["Boat"], "measures": [{"measure": "sum", "column": "Hours"}], "sort": [{"by": "Boat"}]})
    assert [row["values"] for row in got["rows"]] == [["Canoe", 4], ["Kayak", 8]] and got["matched"] == 3
    assert written.post({"document": "hours.csv", "group": ["Boat"], "measures": [{"measure": "sum", "column": "Hours"}], "sort": [{"by": "Boat"}]},
                        "/v1/tables/query").json() == got
    for wrong, words in (({}, "document"), ({"document": "hours.csv", "group": ["Nothing"]}, "Nothing"), ({"document": "none"}, "none"),
                         ({"document": "hours.csv", "sql": "x"}, "sql")):
        assert words in refusal(written, "table_query", wrong)


def test_progress_of_a_long_text(written):
    """A client that names a token is told how far its document is; one that does not gets one object."""
    text = "\n\n".join(f"Paragraph {i} says that number {i} is not number {i + 1}. " * 8 for i in range(200))
    params = {"name": "add", "arguments": {"text": text, "id": "long"}, "_meta": meta(progressToken="p-1")}
    reply = post(written, message("tools/call", params, 9), modern_headers("tools/call", params))
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/event-stream"
    told = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    assert told[-1]["id"] == 9 and told[-1]["result"]["structuredContent"]["effect"] == "added"
    steps = [one["params"] for one in told[:-1]]
    assert steps and all(one["method"] == "notifications/progress" for one in told[:-1])
    assert all(step["progressToken"] == "p-1" and 0 < step["progress"] <= step["total"] for step in steps)
    assert all(a["progress"] < b["progress"] for a, b in zip(steps, steps[1:]))
    params["arguments"]["id"] = "again"
    del params["_meta"]["progressToken"]
    reply = post(written, message("tools/call", params), modern_headers("tools/call", params))
    assert result(reply)["structuredContent"]["effect"] == "added"
    for ident in ("long", "again"):
        call(written, "delete", {"id": ident})


NAMES = ["a/b c", "Ä?#%", "..", "x" * 400, "retro://documents/a", "/etc/passwd", "a%2Fb"]


def test_names_of_any_kind_are_listed_and_read(written):
    for i, name in enumerate(NAMES):
        call(written, "add", {"text": f"Number {i}.", "id": name})
    found, cursor = {}, None
    while cursor != "":
        got = result(ask_modern(written, "resources/list", {"cursor": cursor} if cursor else {}))
        found.update({one["name"]: one["uri"] for one in got["resources"]})
        cursor = got.get("nextCursor", "")
    for i, name in enumerate(NAMES):
        assert found[name].count("/") == 3
        params = {"uri": found[name]}
        assert result(ask_modern(written, "resources/read", params))["contents"][0]["text"] == f"Number {i}."


def test_pages_of_a_list_lose_nothing(written):
    for i in range(130):
        put(written, f"n{i:03}", f"Text {i}.")
    stay = {one["uri"] for one in result(ask_modern(written, "resources/list"))["resources"]}
    assert len(stay) == 100
    everything = set()
    page = result(ask_modern(written, "resources/list"))
    seen = [one["uri"] for one in page["resources"]]
    last = page["resources"][-1]["name"]
    put(written, "a-before", "It comes before all.")
    put(written, "zz-behind", "It comes behind all.")
    put(written, "n120", "It is another text now.")
    call(written, "delete", {"id": last})
    while "nextCursor" in page:
        page = result(ask_modern(written, "resources/list", {"cursor": page["nextCursor"]}))
        seen += [one["uri"] for one in page["resources"]]
    everything = {f"retro://documents/n{i:03}" for i in range(130)} | {"retro://documents/zz-behind"}
    assert everything <= set(seen) and len(seen) == len(set(seen))


# Being told.


def test_a_listener_is_told_what_it_asked_for(written):
    put(written, "a", "One.")
    stream = listen(written, {"resourcesListChanged": True, "toolsListChanged": True, "resourceSubscriptions": ["retro://documents/a", "file:///x"]})
    assert acknowledged(stream) == {"resourcesListChanged": True, "resourceSubscriptions": ["retro://documents/a"]}
    put(written, "a", "Two, and longer.")
    told = [stream.next()[1] for _ in range(2)]
    assert [one["method"] for one in told] == [CHANGED, UPDATED] and told[1]["params"]["uri"] == "retro://documents/a"
    assert all(one["params"]["_meta"] == {SUBSCRIPTION: "l"} for one in told)
    call(written, "delete", {"id": "a"})
    assert [stream.next()[1]["method"] for _ in range(2)] == [CHANGED, UPDATED]
    stream.close()


def test_what_was_not_asked_for_is_not_sent(written):
    put(written, "a", "One.")
    stream = listen(written, {"resourceSubscriptions": ["retro://documents/a"]}, 7)
    assert acknowledged(stream, 7) == {"resourceSubscriptions": ["retro://documents/a"]}
    put(written, "b", "Another.")
    put(written, "a", "Two!")
    assert stream.next()[1]["method"] == UPDATED
    stream.close()


def test_a_burst_is_one_notification(written):
    stream = listen(written, {"resourcesListChanged": True})
    acknowledged(stream)
    begin = time.monotonic()
    for i in range(40):
        put(written, f"burst{i}", f"Text {i}.")
    spent = time.monotonic() - begin
    put(written, "watched", "One.")
    told = 0
    follower = listen(written, {"resourceSubscriptions": ["retro://documents/watched"]})
    acknowledged(follower)
    stream.connection.sock.settimeout(4)
    try:
        while stream.next():
            told += 1
    except TimeoutError:
        pass
    assert 1 <= told <= spent + 5
    follower.close()


def test_a_stream_ends_with_the_server_and_says_so(written):
    stream = listen(written, {"resourcesListChanged": True}, "end")
    acknowledged(stream, "end")
    session = Session(written)
    other = session.stream()
    assert other.line() == ": listening"
    begin = time.monotonic()
    assert written.stop() == 0
    assert time.monotonic() - begin < 15
    last = stream.next()[1]
    assert last["id"] == "end" and last["result"]["resultType"] == "complete" and last["result"]["_meta"][SUBSCRIPTION] == "end"
    assert stream.next() is None and other.next() is None


def test_a_session_is_told_over_its_stream(written):
    put(written, "a", "One.")
    session = Session(written)
    stream = session.stream()
    assert stream.status == 200 and stream.line() == ": listening"
    assert result(session.ask("resources/subscribe", {"uri": "retro://documents/a"})) == {}
    fault(session.ask("resources/subscribe", {"uri": "file:///a"}), 200, -32002)
    put(written, "a", "Two!")
    assert stream.next()[1] == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "retro://documents/a"}}
    assert result(session.ask("resources/unsubscribe", {"uri": "retro://documents/a"})) == {}
    put(written, "a", "Four")
    put(written, "b", "Another.")
    assert stream.next()[1]["method"] == CHANGED
    later = session.stream()  # takes the place of the first
    assert later.line() == ": listening" and stream.next() is None
    session.end()
    assert later.next() is None


def test_a_stream_is_resumed_where_it_was_cut(written):
    session = Session(written)
    stream = session.stream()
    stream.line()
    put(written, "a", "One.")
    ident, first = stream.next()
    assert first["method"] == CHANGED
    stream.close()
    put(written, "b", "Two.")
    again = session.stream(**{"Last-Event-ID": ident})
    assert again.line() == ": listening"
    assert again.next()[1]["method"] == CHANGED
    again.close()
    replayed = session.stream(**{"Last-Event-ID": str(int(ident) - 1)})
    replayed.line()
    assert replayed.next() == (ident, first)
    replayed.close()


def test_listeners_leave_room_for_requests(start, folder):
    server = start(f"retrieval.collection={folder}", "server.max_connections=8", "server.max_listeners=100")
    streams = [listen(server, {"resourcesListChanged": True}) for _ in range(4)]
    params = {"notifications": {}, "_meta": meta()}
    refused = Events(server, "POST", json.dumps(message("subscriptions/listen", params)), modern_headers("subscriptions/listen"))
    assert refused.status == 503 and b"max_listeners" in refused.response.read() and refused.response.headers["Retry-After"]
    assert Session(server).stream().status == 405
    for _ in range(20):
        assert call(server, "search", {"query": "pipe"})["results"]
    for stream in streams:
        stream.close()
    deadline = time.monotonic() + 20
    while (stream := Events(server, "POST", json.dumps(message("subscriptions/listen", params)), modern_headers("subscriptions/listen"))).status == 503:
        assert time.monotonic() < deadline
    stream.close()


def test_sessions_end_when_they_are_idle_and_the_oldest_makes_room(start, folder):
    server = start(f"retrieval.collection={folder}", "server.session_timeout=1", "server.max_sessions=3")
    sessions = [Session(server) for _ in range(5)]
    assert sessions[0].ask("ping").status == 404 and sessions[4].ask("ping").status == 200
    deadline = time.monotonic() + 20
    time.sleep(1.2)
    while sessions[4].ask("ping").status != 404:
        assert time.monotonic() < deadline
        time.sleep(1.2)


# Keys.


@pytest.fixture
def shared(start, folder, tmp_path):
    """A server with two tenants, and keys that may read alone and see no documents."""
    keys = Keys(tmp_path / "keys.jsonl")
    for name in ("alice", "bob"):
        keys.add(name, filter={"eq": {"tenant": name}}, concurrent=4)
    keys.add("reader", documents="read")
    keys.add("finder", documents="off")
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")
    return server, {name: bearer(secret) for name, secret in keys.secrets.items()}


def test_each_request_needs_a_key(shared):
    server, keys = shared
    for method, body in (("POST", "{}"), ("GET", None), ("DELETE", None)):
        assert server.request(method, "/mcp", body).status == 401
    session = Session(server, headers=keys["alice"])
    assert session.ask("ping").status == 200
    session.more = {}
    assert session.ask("ping").status == 401
    session.more = keys["bob"]
    for reply in (session.ask("ping"), session.end(), server.request("GET", "/mcp", None, session.headers)):
        assert reply.status == 404


def test_streams_and_sessions_end_with_their_key(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("alice")
    keys.add("bob")
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")
    headers = {name: bearer(secret) for name, secret in keys.secrets.items()}
    stream, session = listen(server, {"resourcesListChanged": True}, **headers["bob"]), Session(server, headers=headers["alice"])
    acknowledged(stream)
    keys.lines = [line for line in keys.lines if '"bob"' not in line]
    keys.write()
    server.process.send_signal(signal.SIGHUP)
    assert stream.next()[1]["result"]["resultType"] == "complete" and stream.next() is None
    assert session.ask("ping").status == 404  # its key was read anew
    assert ask_modern(server, "tools/list", **headers["bob"]).status == 401
    again = Session(server, headers=headers["alice"])
    other = again.stream()
    assert other.line() == ": listening"
    put(server, "a", "One.", **headers["alice"])
    assert other.next()[1]["method"] == CHANGED
    other.close()


def test_a_page_needs_more_than_a_key(shared):
    server, keys = shared
    for origin in ("null", "http://evil.example"):
        assert ask_modern(server, "tools/list", **keys["alice"], Origin=origin).status == 403
    assert ask_modern(server, "tools/list", **keys["alice"], Host="evil.example").status == 403
    assert ask_modern(server, "tools/list", **keys["alice"], Origin=server.url).status == 200


def test_a_key_has_the_tools_that_it_may_use(shared):
    server, keys = shared
    tools = {name: [one["name"] for one in result(ask_modern(server, "tools/list", **keys[name]))["tools"]] for name in keys}
    assert tools["alice"] == ["search", "read", "list", "fetch", "table_list", "table_query", "add", "delete"]
    assert tools["reader"] == tools["alice"][:6] and tools["finder"] == ["search"]
    fault(ask_modern(server, "tools/call", {"name": "add", "arguments": {"text": "a"}}, **keys["reader"]), 400, -32602)
    fault(ask_modern(server, "tools/call", {"name": "read", "arguments": {"id": "a"}}, **keys["finder"]), 400, -32602)
    assert result(ask_modern(server, "resources/list", **keys["finder"]))["resources"] == []
    ident = result(ask_modern(server, "resources/list", **keys["reader"]))["resources"][0]["uri"]
    fault(ask_modern(server, "resources/read", {"uri": ident}, **keys["finder"]), 400, -32602)
    reply = server.request("PUT", "/v1/documents/a", json.dumps({"text": "a"}), {**keys["reader"], "Content-Type": "application/json"})
    assert reply.status == 403 and "this key" in reply.error()["message"]


def test_a_tenant_meets_no_other(shared):
    server, keys = shared
    alice, bob = keys["alice"], keys["bob"]
    assert call(server, "list", **alice)["documents"] == [] == call(server, "search", {"query": "pipe"}, **alice)["results"]
    stream = listen(server, {"resourcesListChanged": True, "resourceSubscriptions": ["retro://documents/report"]}, **alice)
    acknowledged(stream)
    for text in ("The secret of bob.", "Another secret."):
        call(server, "add", {"id": "report", "text": text, "path": "bob/report.md"}, **bob)
    assert call(server, "list", **alice)["documents"] == [] and "report" in refusal(server, "read", {"id": "report"}, **alice)
    assert result(ask_modern(server, "completion/complete", {"ref": {"type": "ref/prompt", "name": "answer"},
                                                             "argument": {"name": "path", "value": "bob"}}, **alice))["completion"]["values"] == []
    for uri in ("retro://documents/report", "retro://paths/bob%2Freport.md", "retro://documents/report/bytes/0-4"):
        fault(ask_modern(server, "resources/read", {"uri": uri}, **alice), 400, -32602)
    prompt = result(ask_modern(server, "prompts/get", {"name": "answer", "arguments": {"question": "What is known?"}}, **alice))
    assert "secret" not in json.dumps(prompt)
    call(server, "add", {"id": "report", "text": "Of alice."}, **alice)
    told = [stream.next()[1]["method"] for _ in range(2)]  # of her own document alone, and nothing before
    assert told == [CHANGED, UPDATED]
    assert call(server, "read", {"id": "report"}, **alice)["text"] == "Of alice."
    assert call(server, "read", {"id": "report"}, **bob)["text"] == "Another secret."
    stream.close()


def test_a_listener_takes_no_turn_of_its_key(shared):
    server, keys = shared
    streams = [listen(server, {"resourcesListChanged": True}, ident, **keys["alice"]) for ident in (1, 2, 3)]
    for stream, ident in zip(streams, (1, 2, 3)):
        acknowledged(stream, ident)
    for _ in range(5):
        assert call(server, "search", {"query": "pipe"}, **keys["alice"])["results"] == []
    for stream in streams:
        stream.close()
