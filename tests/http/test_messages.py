"""POST /v1/messages by raw requests, with a model whose answers are known (chat_model.py)."""
import json
import time

import pytest
from chat_model import SOURCES, THOUGHTS, WORDS, make_chat_model
from conftest import Server, loads

TEXT = "".join(WORDS)
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"name": name, "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
         for name in ("get_weather", "get_time")]
KEYS = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messages")
    make_chat_model(folder / "script")
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def post(server, path="/v1/messages", headers={}, **fields):
    body = {"model": "script", "messages": USER, "max_tokens": 100} | fields
    return server.request("POST", path, json.dumps({k: v for k, v in body.items() if v is not None}), headers)


def ask(server, **fields):
    reply = post(server, **fields)
    assert reply.status == 200, reply.body
    return reply.json()


def count(server, **fields):
    reply = post(server, "/v1/messages/count_tokens", max_tokens=None, **fields)
    assert reply.status == 200, reply.body
    return reply.json()["input_tokens"]


def events(server, **fields):
    """The events of a stream, each with the name that its data repeats."""
    reply = post(server, stream=True, **fields)
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/event-stream", reply.body
    found = []
    for event in reply.body.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        assert name.startswith("event: ") and data.startswith("data: ")
        found.append(loads(data[6:]))
        assert found[-1]["type"] == name[7:]
    return found


def assembled(found):
    """A stream as one message; every rule about its order is checked on the way."""
    assert found[0]["type"] == "message_start" and found[0]["message"]["stop_reason"] is None
    assert [e["type"] for e in found[-2:]] == ["message_delta", "message_stop"]
    message, block, text = found[0]["message"], None, ""
    assert message["content"] == []
    for event in found[1:-2]:
        match event["type"]:
            case "ping":
                pass
            case "content_block_start":
                assert block is None and event["index"] == len(message["content"])
                block, text = event["content_block"], ""
            case "content_block_delta":
                delta = event["delta"]
                assert block is not None and event["index"] == len(message["content"])
                match delta["type"]:
                    case "text_delta": block["text"] += delta["text"]
                    case "thinking_delta": block["thinking"] += delta["thinking"]
                    case "signature_delta": block["signature"] = delta["signature"]
                    case "citations_delta": block.setdefault("citations", []).append(delta["citation"])
                    case "input_json_delta": text += delta["partial_json"]
                    case other: raise AssertionError(other)
            case "content_block_stop":
                assert block is not None and event["index"] == len(message["content"])
                if block["type"] == "tool_use":
                    assert block["input"] == {}
                    block["input"] = json.loads(text)
                message["content"].append(block)
                block = None
            case other:
                raise AssertionError(other)
    assert block is None
    return message | found[-2]["delta"] | {"usage": found[-2]["usage"]}


def without_ids(message):
    blocks = [{k: v for k, v in b.items() if k != "id" and v is not None} for b in message["content"]]
    return {k: v for k, v in message.items() if k != "id"} | {"content": blocks}


def both(server, **fields):
    """The whole answer, which the stream's is equal to."""
    whole = ask(server, **fields)
    assert set(whole) == KEYS
    assert without_ids(assembled(events(server, **fields))) == without_ids(whole)
    return whole


def error(reply, status, kind):
    assert reply.status == status, reply.body
    body = reply.json()
    assert set(body) == {"type", "error", "request_id"} and body["type"] == "error"
    assert set(body["error"]) == {"type", "message"} and body["error"]["type"] == kind
    assert body["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]
    return body["error"]["message"]


def test_answer(server):
    whole = both(server)
    assert whole["id"].startswith("msg_") and (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", "script")
    assert [(b["type"], b["text"]) for b in whole["content"]] == [("text", TEXT)]
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("end_turn", None)
    assert whole["usage"]["input_tokens"] == count(server) and whole["usage"]["output_tokens"] == len(WORDS) + 1


def test_length_and_stop_sequence(server):
    assert both(server, max_tokens=2)["stop_reason"] == "max_tokens"
    stopped = both(server, stop_sequences=["zzz", "ld"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "ld")
    assert stopped["content"][0]["text"] == "Hello, wor"
    endless = both(server, max_tokens=5000, chat_template_kwargs={"count": True})
    assert endless["stop_reason"] == "model_context_window_exceeded"
    assert endless["usage"]["input_tokens"] + endless["usage"]["output_tokens"] == 1024


def test_thinking(server):
    thought = both(server, thinking={"type": "enabled", "budget_tokens": 1024})["content"]
    assert [b["type"] for b in thought] == ["thinking", "text"]
    assert thought[0]["thinking"] == "I think so" and thought[0]["signature"] and thought[1]["text"] == "The answer"
    assert [b["type"] for b in both(server, chat_template_kwargs={"enable_thinking": True})["content"]] == ["text"]
    history = [*USER, {"role": "assistant", "content": thought}, *USER]
    assert ask(server, messages=history, thinking={"type": "adaptive"})["content"][0]["type"] == "thinking"


def test_tools(server):
    called = both(server, tools=TOOLS)
    assert called["stop_reason"] == "tool_use"
    assert [b["type"] for b in called["content"]] == ["text", "tool_use", "tool_use"]
    weather, time = called["content"][1:]
    assert (weather["name"], weather["input"], time["name"], time["input"]) == (
        "get_weather", {"city": "Paris"}, "get_time", {})
    assert weather["id"].startswith("toolu_") and weather["id"] != time["id"]
    alone = {"tools": TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    for one in (ask(server, **alone), assembled(events(server, **alone))):
        assert [b["type"] for b in one["content"]] == ["text", "tool_use"] and one["stop_reason"] == "tool_use"
    assert both(server, tools=TOOLS, tool_choice={"type": "none"})["stop_reason"] == "end_turn"
    result = {"type": "tool_result", "tool_use_id": weather["id"], "content": [{"type": "text", "text": "rain"}]}
    history = [*USER, {"role": "assistant", "content": called["content"][:2]}, {"role": "user", "content": [result]}]
    for changed in ({}, {"is_error": True}, {"content": "rain"}, {"content": None}):
        turns = [*history[:2], {"role": "user", "content": [result | changed, {"type": "text", "text": "so?"}]}]
        assert ask(server, messages=turns, tools=TOOLS)["content"][0]["text"] == "Let me look"
    message = error(post(server, tools=TOOLS, tool_choice={"type": "tool", "name": "nothing"}), 400, "invalid_request_error")
    assert "tool_choice" in message


def test_system_and_turns_that_are_joined(server):
    plain = count(server, system="Be brief", messages=[{"role": "user", "content": "a\nb"}])
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=4711;"}
    blocks = [billing, {"type": "text", "text": "Be brief", "cache_control": {"type": "ephemeral"}}]
    assert count(server, system=blocks, messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]) == plain
    later = [*USER, {"role": "system", "content": "A reminder"}]
    assert ask(server, messages=later)["content"][0]["text"] == TEXT


def test_prefill_is_continued(server):
    assert ask(server, messages=[*USER, {"role": "assistant", "content": "abc"}], max_tokens=5)["content"][0]["text"] == "defga"


def test_cache_is_told_where_it_is_marked(server):
    long = [{"type": "text", "text": "word " * 100, "cache_control": {"type": "ephemeral"}}]
    n = count(server, system=long)
    for _ in range(2):
        usage = ask(server, system=long)["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] == n
    assert usage["cache_read_input_tokens"] > 0
    assert ask(server, system="word " * 100)["usage"]["input_tokens"] == n


def document(**fields):
    return {"type": "document", "title": "T", "citations": {"enabled": True},
            "source": {"type": "text", "media_type": "text/plain", "data": "Ä first. " + "x" * 250 + ".\n\nÖ last."}} | fields


def cite(server, *blocks, within=None):
    content = [*blocks, {"type": "text", "text": "?"}]
    return both(server, messages=[{"role": "user", "content": content}], chat_template_kwargs={"sources": True})


def test_citations_of_a_text(server):
    """The script is "Öl [1] comes of [2, 1], not of [9], [x] or 2][2]"."""
    assert "".join(SOURCES) == "Öl [1] comes of [2, 1], not of [9], [x] or 2][2]"
    blocks = cite(server, document())["content"]
    assert [b["text"] for b in blocks] == ["Öl ", " comes of ", ", not of [9], [x] or 2]"]
    first, two, last = (b["citations"] for b in blocks)
    data = document()["source"]["data"]
    assert [len(first), len(two), len(last)] == [1, 2, 1]
    for cited in (*first, *two, *last):
        assert cited["type"] == "char_location" and cited["document_index"] == 0 and cited["document_title"] == "T"
        assert cited["cited_text"] == data[cited["start_char_index"]:cited["end_char_index"]]
    assert first[0]["start_char_index"] == 0 and last[0]["cited_text"] == "Ö last." and two[0] == last[0]


def test_citations_of_blocks_and_results(server):
    parts = [{"type": "text", "text": t} for t in ("one", "two")]
    blocks = cite(server, document(title=None), document(source={"type": "content", "content": parts[:1]}))["content"]
    assert blocks[0]["citations"][0]["type"] == "char_location"
    blocks = cite(server, document(source={"type": "content", "content": parts}, title=None))["content"]
    assert blocks[-1]["citations"] == [{
        "type": "content_block_location", "cited_text": "two", "document_index": 0, "document_title": None,
        "start_block_index": 1, "end_block_index": 2}]
    found = {"type": "search_result", "source": "s", "title": "T", "content": parts, "citations": {"enabled": True}}
    want = {"type": "search_result_location", "source": "s", "title": "T", "cited_text": "one", "search_result_index": 0,
            "start_block_index": 0, "end_block_index": 1}
    assert cite(server, found)["content"][0]["citations"] == [want]
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_time", "input": {"city": "x"}}
    turns = [*USER, {"role": "assistant", "content": [use]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [found]}]}]
    whole = both(server, messages=turns, chat_template_kwargs={"sources": True})
    assert whole["content"][0]["citations"] == [want]


def test_without_citations_brackets_are_text(server):
    blocks = cite(server, document(citations=None))["content"]
    assert [b["text"] for b in blocks] == ["".join(SOURCES)] and not blocks[0].get("citations")


def test_citations_are_for_all_or_none(server):
    content = [document(), document(citations={"enabled": False})]
    message = error(post(server, messages=[{"role": "user", "content": content}]), 400, "invalid_request_error")
    assert "citations" in message


def test_refused_by_name(server):
    url = {"type": "document", "source": {"type": "url", "url": "http://127.0.0.1/x.pdf"}}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    for fields, word in [({"max_tokens": None}, "max_tokens"), ({"messages": None}, "messages"), ({"model": None}, "model"),
                         ({"messages": []}, "messages"), ({"max_tokens": 0}, "max_tokens"), ({"thinking": {"type": "x"}}, "thinking"),
                         ({"messages": [{"role": "robot", "content": "x"}]}, "role"), ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
                         ({"messages": [{"role": "user", "content": [url]}]}, "url"), ({"tools": [{"name": 1}]}, "tools"),
                         ({"messages": [{"role": "user", "content": [picture]}]}, "pictures"), ({"system": 5}, "system"),
                         ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "hologram"),
                         ({"stream": "yes"}, "stream"), ({"temperature": "hot"}, "temperature"), ({"messages": {}}, "messages")]:
        assert word in error(post(server, **fields), 400, "invalid_request_error"), fields


def test_unknown_fields_are_passed_over_and_counted(server):
    def passed(what):
        text = server.request("GET", "/metrics").body.decode()
        found = [line for line in text.splitlines() if line.startswith(f'retro_passed_over_total{{door="messages",what="{what}"}}')]
        return int(found[0].split()[-1]) if found else 0

    before = passed("field"), passed("tool")
    reply = post(server, "/v1/messages?beta=true", {"anthropic-version": "2099-01-01", "anthropic-beta": "a-2099,b"},
                 brand_new={"x": 1}, metadata={"user_id": "u"}, context_management={"edits": []},
                 tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert reply.status == 200, reply.body
    assert passed("field") - before[0] == 3 and passed("tool") - before[1] == 1


def says(server, messages, **fields):
    reply = post(server, messages=messages, **fields)
    assert reply.status == 200, reply.body
    return reply.json()["content"][0]["text"], reply.json()["usage"]["input_tokens"]


def test_tools_that_a_search_finds(server):
    """Tools with defer_loading are told once a result refers to them; the model of the tests calls where it is told of any."""
    search = {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"city": "weather"}}
    found = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "tool_reference", "tool_name": "get_weather"}]}
    deferred = [tool | {"defer_loading": True} for tool in TOOLS]
    asked, answered = USER, [*USER, {"role": "assistant", "content": [search]}, {"role": "user", "content": [found]}]
    assert says(server, asked, tools=deferred)[0] == TEXT, "nobody has found them"
    assert says(server, answered, tools=deferred)[0] != TEXT
    one, both = says(server, answered, tools=deferred)[1], says(server, answered, tools=TOOLS)[1]
    assert one < both, "the other was not found"
    server_side = [*deferred, {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}]
    assert says(server, asked, tools=server_side)[0] != TEXT, "a search that would run at Anthropic finds none, so all are told"
    broken = post(server, messages=[*USER, {"role": "user", "content": [{"type": "tool_reference"}]}])
    assert "tool_reference" in error(broken, 400, "invalid_request_error")


def test_tools_that_come_and_go_on_the_way(server):
    definition = {"type": "tool_definition", "definition": TOOLS[0]}
    come = [*USER, {"role": "system", "content": [{"type": "tool_addition", "tool": definition}]}, *USER]
    gone = [*come, {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": TOOLS[0]["name"]}}]}, *USER]
    back = [*gone, {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": TOOLS[0]["name"]}}]}, *USER]
    assert [says(server, turns)[0] == TEXT for turns in (USER, come, gone, back)] == [True, False, True, False]
    assert says(server, gone, tools=TOOLS[:1])[0] == TEXT, "the request's own goes too"
    wrong = post(server, messages=[*USER, {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "x"}}}]}])
    assert "input_schema" in error(wrong, 400, "invalid_request_error")


def test_many_changes_of_tools_are_read_in_time(server):
    """Names are looked up: many of them take no longer than their text."""
    blocks = [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": f"t{i}"}} for i in range(20000)]
    tools = [TOOLS[0] | {"name": f"t{i}"} for i in range(20000)]
    start = time.monotonic()
    reply = post(server, "/v1/messages/count_tokens", messages=[*USER, {"role": "system", "content": blocks}], tools=tools)
    assert reply.status in (200, 400) and time.monotonic() - start < 20, reply.body[:200]


def test_a_picture_in_a_result_is_told_to_a_model_that_sees_none(server):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"city": "x.png"}}
    turns = [*USER, {"role": "assistant", "content": [use]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture]}]}]
    assert says(server, turns)[0] == TEXT


def test_errors_have_the_shape_of_their_path(server):
    assert "nothing" in error(post(server, model="nothing"), 404, "not_found_error")
    error(server.request("GET", "/v1/messages"), 405, "invalid_request_error")
    error(server.request("POST", "/v1/messages/batches", "{}"), 404, "not_found_error")
    error(server.request("POST", "/v1/messages", "{"), 400, "invalid_request_error")
    long = post(server, messages=[{"role": "user", "content": "word " * 2000}])
    message = error(long, 400, "invalid_request_error")
    assert message.startswith("prompt is too long: ") and " tokens > 1024 maximum" in message


def test_models_in_anthropics_form(server):
    models = server.request("GET", "/v1/models", None, {"anthropic-version": "2023-06-01"}).json()
    assert models["data"][0]["type"] == "model" and models["data"][0]["id"] == "script" and models["has_more"] is False
    assert models["first_id"] == models["data"][0]["id"] and models["data"][0]["created_at"].endswith("Z")
    one = server.request("GET", "/v1/models/script", None, {"anthropic-version": "2023-06-01"}).json()
    assert one == models["data"][0]
    assert server.request("GET", "/v1/models").json()["object"] == "list"


def test_the_server_says_that_it_runs(server):
    assert server.request("HEAD", "/").status == 200 and server.request("GET", "/").status == 200


def test_leaving_frees_the_model(server):
    body = json.dumps({"model": "script", "messages": USER, "max_tokens": 900, "stream": True,
                       "chat_template_kwargs": {"count": True}})
    with server.socket() as connection:
        connection.sendall(f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        read = b""
        while b"message_start" not in read:
            part = connection.recv(65536)
            assert part, read
            read += part
    server.wait_until(lambda health: health["running"] == 0, 20)
