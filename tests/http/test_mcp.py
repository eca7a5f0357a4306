"""MCP at /mcp: what both generations of the protocol ask of a server, as raw requests."""
import base64
import json
import re

import prometheus
import pytest

from conftest import ROOT
from mcp_messages import (ACCEPT, CAPABILITIES, MODERN, OLD, VERSION, Session, ask_modern, call, fault, message, meta,
                          modern_headers, post, refusal, result)

METHOD_NOT_FOUND, BAD_PARAMS, HEADERS, NO_VERSION, NO_REQUEST, NOT_JSON = -32601, -32602, -32020, -32022, -32600, -32700


# A request of 2026-07-28.


def test_discover_says_what_there_is(server):
    got = result(ask_modern(server, "server/discover"))
    assert MODERN in got["supportedVersions"] and OLD in got["supportedVersions"]
    assert set(got["capabilities"]) == {"tools", "resources", "prompts", "completions"}
    assert got["resultType"] == "complete" and got["cacheScope"] == "public" and got["ttlMs"] >= 0
    assert len(got["instructions"].encode()) <= 2048
    assert set(got["_meta"]["io.modelcontextprotocol/serverInfo"]) >= {"name", "version"}


@pytest.mark.parametrize("ident", [0, -7, 2**53, "a", "", "ß\u0000\""])
def test_an_id_comes_back_as_it_was(server, ident):
    for method, status in (("server/discover", 200), ("no/such", 404)):
        answer = ask_modern(server, method, ident=ident).json()
        assert answer["id"] == ident and type(answer["id"]) is type(ident)


CASES = [
    ("another method", {"Mcp-Method": "tools/list"}, HEADERS),
    ("no method", {"Mcp-Method": None}, HEADERS),
    ("another case of the method", {"Mcp-Method": "TOOLS/CALL"}, HEADERS),
    ("another name", {"Mcp-Name": "delete"}, HEADERS),
    ("no name", {"Mcp-Name": None}, HEADERS),
    ("a broken name", {"Mcp-Name": "=?base64?!?="}, HEADERS),
    ("no version", {"MCP-Protocol-Version": None}, HEADERS),
    ("an older version", {"MCP-Protocol-Version": OLD}, HEADERS),
    ("another version", {"MCP-Protocol-Version": "2099-01-01"}, HEADERS),
]


@pytest.mark.parametrize("change,code", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_headers_are_compared(server, change, code):
    params = {"name": "search", "arguments": {"query": "pipe"}, "_meta": meta()}
    headers = {k: v for k, v in {**modern_headers("tools/call", params), **change}.items() if v is not None}
    answer = fault(post(server, message("tools/call", params, 7), headers), 400, code)
    assert answer["id"] == 7


def test_header_names_have_any_case_and_values_may_be_coded(server):
    params = {"name": "search", "arguments": {"query": "pipe"}, "_meta": meta()}
    coded = "=?base64?" + base64.b64encode(b"search").decode() + "?="
    headers = {**ACCEPT, "mcp-protocol-version": MODERN, "MCP-METHOD": "tools/call", "mcp-name": coded}
    assert result(post(server, message("tools/call", params), headers))["isError"] is False


def test_a_version_that_nobody_speaks(server):
    params = {"_meta": {VERSION: "2099-01-01", CAPABILITIES: {}}}
    headers = {**modern_headers("tools/list"), "MCP-Protocol-Version": "2099-01-01"}
    data = fault(post(server, message("tools/list", params), headers), 400, NO_VERSION)["error"]["data"]
    assert MODERN in data["supported"] and data["requested"] == "2099-01-01"
    fault(post(server, message("tools/list"), {**ACCEPT, "MCP-Protocol-Version": "1"}), 400, NO_VERSION)


@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
def test_meta_has_what_is_required(server, missing):
    params = {"_meta": {k: v for k, v in meta().items() if k != missing}}
    fault(post(server, message("tools/list", params), modern_headers("tools/list")), 400, BAD_PARAMS)
    fault(post(server, message("tools/list"), modern_headers("tools/list")), 400, BAD_PARAMS)


def test_meta_may_have_more(server):
    params = {"_meta": meta(traceparent="00-0-0-00", progressToken=3, anything={"a": [1]})}
    assert result(post(server, message("tools/list", params), modern_headers("tools/list")))["tools"]


@pytest.mark.parametrize("method", ["no/such", "ping", "logging/setLevel", "initialize", "resources/subscribe"])
def test_what_is_gone_is_not_there(server, method):
    fault(ask_modern(server, method, {"uri": "retro://documents/a", "protocolVersion": MODERN}), 404, METHOD_NOT_FOUND)


BODIES = [(b"{", NOT_JSON), (b"", NOT_JSON), (b'{"a":1,"a":2}', NOT_JSON), (b"\xff", NOT_JSON), (b"7", NO_REQUEST), (b'"a"', NO_REQUEST),
          (b"null", NO_REQUEST), (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', NO_REQUEST),
          (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', NO_REQUEST), (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', NO_REQUEST),
          (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', NO_REQUEST), (b'{"jsonrpc":"2.0","id":1}', NO_REQUEST),
          (b'{"jsonrpc":"2.0","id":1,"method":7}', NO_REQUEST), (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', BAD_PARAMS)]


@pytest.mark.parametrize("body,code", BODIES)
@pytest.mark.parametrize("headers", [ACCEPT, modern_headers("ping")], ids=["old", "modern"])
def test_what_is_no_request(server, headers, body, code):
    fault(post(server, body, headers), 400, code)


def test_responses_and_batches_have_no_place(server):
    headers = modern_headers("ping")
    fault(post(server, {"jsonrpc": "2.0", "id": 1, "result": {}}, headers), 400, NO_REQUEST)
    fault(post(server, [message("tools/list", {"_meta": meta()})], headers), 400, NO_REQUEST)
    fault(post(server, [message("ping")], {**ACCEPT, "MCP-Protocol-Version": OLD}), 400, NO_REQUEST)


def test_notifications_are_taken_without_a_word(server):
    for headers in (ACCEPT, modern_headers("notifications/anything")):
        reply = post(server, {"jsonrpc": "2.0", "method": "notifications/anything", "params": {}}, headers)
        assert reply.status == 202 and reply.body == b""


def test_get_and_delete_are_no_requests(server):
    for method in ("GET", "DELETE", "HEAD"):
        for headers in ({}, {"MCP-Protocol-Version": MODERN, "Mcp-Session-Id": "x"}):
            reply = server.request(method, "/mcp", None, headers)
            assert reply.status == 405 and "POST" in reply.headers["Allow"], reply.body
    assert server.request("PUT", "/mcp", "{}").status == 405


def test_every_list_says_how_long_it_may_be_kept(server):
    for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        got = result(ask_modern(server, method))
        assert isinstance(got["ttlMs"], int) and got["ttlMs"] >= 0 and got["cacheScope"] in ("public", "private")
    assert result(ask_modern(server, "resources/list"))["ttlMs"] == 0
    for method in ("tools/list", "resources/list"):
        assert result(ask_modern(server, method))["cacheScope"] == "private"


# Tools.


def test_tools_have_schemas_that_every_client_takes(server):
    tools = {tool["name"]: tool for tool in result(ask_modern(server, "tools/list"))["tools"]}
    assert list(tools) == ["search", "read", "list", "fetch", "table_list", "table_query", "add", "delete"]
    for name, tool in tools.items():
        assert len(name) < 30 and len(tool["description"].encode()) <= 2048
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object" and not {"anyOf", "oneOf", "allOf"} & set(schema)
            assert isinstance(schema["properties"], dict)
        assert tool["annotations"]["readOnlyHint"] is (name not in ("add", "delete"))
        assert tool["annotations"]["destructiveHint"] is (name in ("add", "delete"))
    assert tools["search"]["inputSchema"]["required"] == ["query"]
    assert tools["search"]["inputSchema"]["properties"]["k"] == {
        "type": "integer", "minimum": 1, "maximum": 50, "description": tools["search"]["inputSchema"]["properties"]["k"]["description"]}


def test_search_finds_what_the_search_of_the_api_finds(server):
    found = server.post({"query": "connect two processes by a pipe", "k": 5, "hybrid": True}, "/v1/retrieval/search").json()["data"]
    got = call(server, "search", {"query": "connect two processes by a pipe", "k": 5, "hybrid": True})["results"]
    assert len(got) == 5
    for mine, theirs in zip(got, found):
        assert mine["path"] == theirs["document"] and mine["id"] == theirs["id"] != mine["path"]
        assert (mine["start"], mine["end"], mine["page"], mine["heading"], mine["text"]) == tuple(
            theirs[key] for key in ("start", "end", "page", "heading", "text"))
        assert mine["similarity"] == pytest.approx(theirs["similarity"], abs=1e-6) and mine["title"]
        document = server.request("GET", "/v1/documents/" + mine["id"]).json()
        assert document["text"].encode()[mine["start"]:mine["end"]].decode() == mine["text"]
        assert server.request("GET", mine["url"].removeprefix(server.url)).json() == document
        read = result(ask_modern(server, "resources/read", {"uri": mine["uri"]}))["contents"]
        assert [(part["uri"], part["text"]) for part in read] == [(mine["uri"], mine["text"])]


def test_fifty_results(server):
    assert len(call(server, "search", {"query": "process", "k": 50})["results"]) == 50
    assert "50" in refusal(server, "search", {"query": "process", "k": 51})


def test_a_filter_narrows_a_search(server):
    everything = {one["path"] for one in call(server, "search", {"query": "a pipe", "k": 20})["results"]}
    for path in everything:
        got = call(server, "search", {"query": "a pipe", "k": 20, "filter": {"eq": {"path": path}}})["results"]
        assert {one["path"] for one in got} == {path} < everything


@pytest.mark.parametrize("tool,arguments,word", [
    ("search", {}, "query"), ("search", {"query": 7}, "query"), ("search", {"query": "a", "k": "x"}, "k"), ("search", {"query": "a", "limit": 3}, "limit"),
    ("search", {"query": "a", "filter": {"near": {}}}, "filter"), ("search", [], "arguments"), ("read", {}, "id"), ("read", {"id": "none"}, "none"),
    ("read", {"id": "none", "page": 0}, "page"), ("list", {"limit": 1000}, "limit"), ("list", {"cursor": "x"}, "cursor"), ("fetch", {}, "id"),
    ("add", {}, "text"), ("add", {"text": ""}, "text"), ("add", {"text": "a", "color": 1}, "color"), ("add", {"documents": []}, "documents"),
    ("delete", {"id": "none"}, "none")])
def test_bad_arguments_are_results_that_name_them(server, tool, arguments, word):
    assert word in refusal(server, tool, arguments)


def test_an_unknown_tool_is_an_error(server):
    for params in ({"name": "destroy", "arguments": {}}, {"arguments": {}}, {"name": ""}):
        headers = {**modern_headers("tools/call", params), "Mcp-Name": params.get("name", "x")}
        fault(post(server, message("tools/call", {**params, "_meta": meta()}), headers), 400, BAD_PARAMS)


def test_read_goes_through_a_document_in_parts(server):
    listed = call(server, "list", {"limit": 100})["documents"]
    document = max(listed, key=lambda one: one["bytes"])
    whole = server.request("GET", "/v1/documents/" + document["id"]).json()["text"].encode()
    text, start = b"", 0
    while start is not None:
        part = call(server, "read", {"id": document["id"], "start": start, "end": start + 5000})
        assert part["bytes"] == len(whole) == document["bytes"] and part["path"] == document["path"]
        text, start = text[:part["start"]] + part["text"].encode(), part["next_start"]
    assert text == whole
    around = call(server, "read", {"id": document["id"], "start": 1000, "end": 1010, "context": 200})
    assert around["start"] in range(797, 801) and around["end"] in range(1210, 1214)
    assert "pages are not known" in refusal(server, "read", {"id": document["id"], "page": 1})
    assert "has %d bytes" % len(whole) in refusal(server, "read", {"id": document["id"], "start": len(whole) + 1})


def test_fetch_has_the_form_of_chatgpt(server):
    first = call(server, "search", {"query": "a pipe"})["results"][0]
    assert {"id", "title", "url"} <= set(first)
    got = call(server, "fetch", {"id": first["id"]})
    assert set(got) >= {"id", "title", "text", "url", "metadata"} and first["text"] in got["text"]
    assert got["url"].startswith(server.url) and got["metadata"]["cut"] is False


# Resources.


def all_pages(server, ask, key="resources"):
    found, cursor = [], None
    while True:
        got = ask({} if cursor is None else {"cursor": cursor})
        found += got[key]
        cursor = got.get("nextCursor")
        if cursor is None:
            return found


def test_every_resource_that_is_listed_can_be_read(server):
    found = all_pages(server, lambda params: result(ask_modern(server, "resources/list", params)))
    assert len(found) == server.request("GET", "/v1/documents").json()["documents"]
    for resource in found:
        read = result(ask_modern(server, "resources/read", {"uri": resource["uri"]}))["contents"][0]
        assert read["uri"] == resource["uri"] and len(read["text"].encode()) == resource["size"]
        by_path = result(ask_modern(server, "resources/read", {"uri": "retro://paths/" + resource["name"].replace("/", "%2F")}))
        assert by_path["contents"][0]["text"] == read["text"]


BAD_URIS = ["retro://documents/", "retro://documents/none", "retro://documents/../x", "retro://documents/..", "retro://documents/a/b",
            "retro://documents/none/pages/1", "retro://documents/none/bytes/0-4", "retro://documents/a/bytes/4-0", "retro://documents/a/pages/0",
            "retro://documents/a/pages/-1", "retro://documents/a%00", "retro://documents/%FF", "retro://documents/a?x", "retro://documents/a#x",
            "retro://paths/..%2F..%2Fetc%2Fpasswd", "file:///etc/passwd", "http://127.0.0.1/", "RETRO://documents/a", "x", "retro://other/a"]


@pytest.mark.parametrize("uri", BAD_URIS)
def test_a_uri_that_is_not_there(server, uri):
    fault(ask_modern(server, "resources/read", {"uri": uri}), 400, BAD_PARAMS)
    fault(Session(server).ask("resources/read", {"uri": uri}), 200, -32002)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", 7, {}, base64.b64encode(b"0" * 16 + b"a").decode()])
@pytest.mark.parametrize("method", ["resources/list", "tools/list", "prompts/list", "resources/templates/list"])
def test_a_cursor_that_is_not_ours(server, method, cursor):
    fault(ask_modern(server, method, {"cursor": cursor}), 400, BAD_PARAMS)


def test_templates_and_completion(server):
    templates = {one["name"]: one["uriTemplate"] for one in result(ask_modern(server, "resources/templates/list"))["resourceTemplates"]}
    assert templates["page"] == "retro://documents/{id}/pages/{page}"
    names = sorted(one["path"] for one in call(server, "list", {"limit": 100})["documents"])
    for ref in ({"type": "ref/resource", "uri": templates["path"]}, {"type": "ref/prompt", "name": "answer"}):
        got = result(ask_modern(server, "completion/complete", {"ref": ref, "argument": {"name": "path", "value": names[0][:3]}}))["completion"]
        assert got["values"] == [name for name in names if name.startswith(names[0][:3])] and got["hasMore"] is False
    other = {"ref": {"type": "ref/prompt", "name": "answer"}, "argument": {"name": "question", "value": "a"}}
    assert result(ask_modern(server, "completion/complete", other))["completion"]["values"] == []
    for params in ({}, {"ref": {"type": "x"}, "argument": {"name": "a", "value": "b"}}, {"ref": {"type": "ref/prompt"}, "argument": {}}):
        fault(ask_modern(server, "completion/complete", params), 400, BAD_PARAMS)


# Prompts.


def test_a_prompt_brings_passages(server):
    assert [one["name"] for one in result(ask_modern(server, "prompts/list"))["prompts"]] == ["answer"]
    got = result(ask_modern(server, "prompts/get", {"name": "answer", "arguments": {"question": "What is a pipe?"}}))
    text = got["messages"][0]["content"]["text"]
    first = call(server, "search", {"query": "What is a pipe?"})["results"][0]
    assert first["text"] in text and first["path"] in text and text.endswith("Question: What is a pipe?")
    nothing = result(ask_modern(server, "prompts/get", {"name": "answer", "arguments": {"question": "What?", "path": "no/such"}}))
    assert "[1]" not in nothing["messages"][0]["content"]["text"]
    fault(ask_modern(server, "prompts/get", {"name": "other", "arguments": {}}), 400, BAD_PARAMS)
    fault(ask_modern(server, "prompts/get", {"name": "answer", "arguments": {}}), 400, BAD_PARAMS)


# The versions that shake hands.


@pytest.mark.parametrize("asked,given", [("2025-11-25",) * 2, ("2025-06-18",) * 2, ("2025-03-26",) * 2, (MODERN, OLD), ("1", OLD)])
def test_hands_are_shaken_on_a_version_that_is_spoken(server, asked, given):
    session = Session(server, asked)
    assert session.version == given and session.result["serverInfo"]["name"] == "retro-server"
    assert session.id.isascii() and len(session.id) >= 32
    got = result(session.ask("tools/call", {"name": "search", "arguments": {"query": "pipe"}}, "x"))
    assert "resultType" not in got and "_meta" not in got and got["structuredContent"]["results"]
    assert result(session.ask("ping")) == {} == result(session.ask("logging/setLevel", {"level": "info"}))
    fault(session.ask("server/discover"), 200, METHOD_NOT_FOUND)
    fault(session.ask("tools/call", {"name": "no"}), 200, BAD_PARAMS)


def test_a_session_ends_and_is_not_known_any_more(server):
    session = Session(server)
    assert session.end().status == 204
    for reply in (session.ask("tools/list"), session.end(), server.request("GET", "/mcp", None, session.headers),
                  session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})):
        assert reply.status == 404, reply.body
    assert Session(server, headers={"Mcp-Session-Id": session.id}).id != session.id


def test_no_session_is_needed(server):
    for headers in (ACCEPT, {**ACCEPT, "MCP-Protocol-Version": OLD}):
        assert result(post(server, message("tools/list"), headers))["tools"]
    fault(post(server, message("resources/subscribe", {"uri": "retro://documents/a"}), ACCEPT), 200, NO_REQUEST)


def test_a_batch_of_2025_03_26(server):
    session = Session(server, "2025-03-26")
    parts = [message("ping", ident=1), {"jsonrpc": "2.0", "method": "notifications/x"}, message("tools/call", {"name": "search", "arguments": {"query": "a"}}, "b"),
             message("no/such", ident=3), message("initialize", {"protocolVersion": OLD}, 4)]
    got = session.send(parts).json()
    assert [one["id"] for one in got] == [1, "b", 3, 4]
    assert got[0]["result"] == {} and got[1]["result"]["structuredContent"]["results"] and "error" in got[2] and "error" in got[3]
    assert session.send(parts[1:2]).status == 202
    fault(session.send([]), 400, NO_REQUEST)
    fault(session.send([message("ping")] * 51), 400, NO_REQUEST)


# Pages.


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://127.0.0.1.evil.example", "https://localhost"])
def test_a_page_of_another_origin_may_not_ask(server, origin):
    for method, body in (("POST", json.dumps(message("ping"))), ("GET", None), ("DELETE", None)):
        reply = server.request(method, "/mcp", body, {**ACCEPT, "Origin": origin})
        assert reply.status == 403 and reply.headers["Access-Control-Allow-Origin"] is None
    rebound = {"Origin": f"http://evil.example:{server.port}", "Host": f"evil.example:{server.port}"}
    assert post(server, message("ping"), {**ACCEPT, **rebound}).status == 403
    assert post(server, message("ping"), {**ACCEPT, "Origin": server.url}).status == 200


def test_a_page_that_may_ask_sees_the_session(start):
    server = start('server.cors_origins=["https://app.example"]')
    page = {"Origin": "https://app.example"}
    reply = post(server, message("initialize", {"protocolVersion": OLD}), {**ACCEPT, **page})
    assert reply.headers["Access-Control-Allow-Origin"] == page["Origin"]
    assert "Mcp-Session-Id" in reply.headers["Access-Control-Expose-Headers"]
    allowed = server.request("OPTIONS", "/mcp", None, page).headers["Access-Control-Allow-Headers"]
    assert {"Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"} <= set(allowed.split(", "))


def test_a_server_without_a_collection_has_no_tools(start):
    server = start("retrieval.collection=")
    assert result(ask_modern(server, "tools/list"))["tools"] == []
    assert result(ask_modern(server, "resources/list"))["resources"] == []
    fault(ask_modern(server, "tools/call", {"name": "search", "arguments": {"query": "a"}}), 400, BAD_PARAMS)


# What the page says.


def test_the_page_says_which_methods_there_are(server):
    rows = re.findall(r"^\| `([a-zA-Z/]+)` \| (\w+) \| (\w+) \|$", (ROOT / "docs/mcp.md").read_text(), re.MULTILINE)
    assert len(rows) >= 18
    for method, old, new in rows:
        got = ask_modern(server, method)
        assert (got.status != 404) == (new == "yes"), method
        answer = post(server, message(method), ACCEPT).json()
        assert (answer.get("error", {}).get("code") != METHOD_NOT_FOUND) == (old == "yes"), method


def test_metrics_count_sessions(server):
    text = server.request("GET", "/metrics").body.decode()
    before = int(re.search(r"^retro_mcp_sessions (\d+)$", text, re.MULTILINE)[1])
    session = Session(server)
    text = server.request("GET", "/metrics").body.decode()
    assert int(re.search(r"^retro_mcp_sessions (\d+)$", text, re.MULTILINE)[1]) == before + 1
    session.end()


def requests_counted(server, **labels):
    return prometheus.value(prometheus.read(server.request("GET", "/metrics").body.decode()), "retro_mcp_requests_total", **labels)


def test_metrics_count_requests(server):
    """By method and tool of those that there are; what a client makes up is "other"."""
    def look():
        return [requests_counted(server, **labels) for labels in (
            {"method": "tools/call", "tool": "search", "outcome": "ok"}, {"method": "tools/call", "tool": "search", "outcome": "tool_error"},
            {"method": "tools/call", "tool": "other", "outcome": "fault"}, {"method": "other", "outcome": "fault"},
            {"method": "tools/list", "tool": "", "outcome": "ok"})]

    before = look()
    call(server, "search", {"query": "a pipe", "k": 1})
    refusal(server, "search", {"query": "a pipe", "k": 99})
    params = {"name": "made-up", "arguments": {}}
    post(server, message("tools/call", {**params, "_meta": meta()}), modern_headers("tools/call", params))
    post(server, message("made/up"), ACCEPT)
    post(server, "{", ACCEPT)
    ask_modern(server, "tools/list")
    assert [now - then for then, now in zip(before, look())] == [1, 1, 1, 2, 1]
    assert b"made" not in server.request("GET", "/metrics").body
