"""POST /v1/responses by raw requests, with a model whose answers are known (chat_model.py)."""
import json

import pytest
from chat_model import TEMPLATE, WORDS, make_chat_model
from conftest import Server, loads
from test_keys import Keys, bearer

TEXT = "".join(WORDS)
TOOLS = [{"type": "function", "name": name, "description": "d",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}} for name in ("get_weather", "get_time")]
COUNT = {"chat_template_kwargs": {"count": True}}
ALWAYS = {"id", "object", "created_at", "status", "error", "incomplete_details", "model", "output", "parallel_tool_calls",
          "tool_choice", "tools", "text", "temperature", "top_p", "max_output_tokens", "truncation", "previous_response_id",
          "instructions", "metadata", "reasoning", "usage", "store", "background", "top_logprobs"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("responses")
    make_chat_model(path / "script")
    return path


def start_server(folder, model="script", **server):
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / model), "name": "script"}, "server": {"port": 0, "max_context": 1024} | server}))
    return Server(config, folder)


@pytest.fixture(scope="module")
def server(folder):
    running = start_server(folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def post(server, path="/v1/responses", headers={}, **fields):
    return server.request("POST", path, json.dumps({"model": "script", "input": "Hi"} | fields), headers)


def ask(server, **fields):
    reply = post(server, **fields)
    assert reply.status == 200, reply.body
    response = reply.json()
    assert ALWAYS <= set(response) and response["id"].startswith("resp_") and response["object"] == "response"
    return response


def events(server, **fields):
    reply = post(server, stream=True, **fields)
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/event-stream", reply.body
    found = []
    for event in reply.body.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(loads(data[6:]))
        assert name == f"event: {found[-1]['type']}"
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    return found


def assembled(found):
    """The last event's response, which its events add up to."""
    assert [e["type"] for e in found[:2]] == ["response.created", "response.in_progress"]
    assert all(e["response"]["output"] == [] and e["response"]["status"] == "in_progress" for e in found[:2])
    items, text, part = [], "", None
    for event in found[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"])
            assert items[-1]["status"] == "in_progress"
            text, part = "", None
            continue
        assert event["output_index"] == len(items) - 1 and event.get("item_id", items[-1]["id"]) == items[-1]["id"]
        if kind == "content_part.added":
            part = event["part"]
            assert part["text"] == ""
        elif kind.endswith(".delta"):
            text += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert event["text"] == text and part is not None
        elif kind == "function_call_arguments.done":
            assert event["arguments"] == text and event["name"] == items[-1]["name"]
        elif kind == "content_part.done":
            assert event["part"]["text"] == text
        else:
            assert kind == "output_item.done" and event["item"]["id"] == items[-1]["id"]
            items[-1] = event["item"]
    last = found[-1]
    assert last["type"] == "response." + last["response"]["status"]
    assert last["response"]["output"] == items and last["response"]["id"] == found[0]["response"]["id"]
    return last["response"]


def plain(value):
    """Without what each answer has of its own."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("id", "call_id", "created_at", "completed_at", "cached_tokens")}
    return [plain(v) for v in value] if isinstance(value, list) else value


def both(server, **fields):
    whole = ask(server, **fields)
    assert plain(assembled(events(server, **fields))) == plain(whole)
    return whole


def test_answer(server):
    whole = both(server)
    item, = whole["output"]
    assert (item["type"], item["role"], item["status"], whole["status"]) == ("message", "assistant", "completed", "completed")
    assert item["content"] == [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    usage = whole["usage"]
    assert usage["output_tokens"] == len(WORDS) + 1 and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    counted = post(server, "/v1/responses/input_tokens").json()
    assert counted == {"object": "response.input_tokens", "input_tokens": usage["input_tokens"]}


def test_cut(server):
    whole = both(server, max_output_tokens=2)
    assert whole["status"] == "incomplete" and whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole["output"][0]["status"] == "incomplete" and whole["max_output_tokens"] == 2


def test_reasoning(server):
    whole = both(server, chat_template_kwargs={"enable_thinking": True})
    thought, said = whole["output"]
    assert thought["type"] == "reasoning" and thought["summary"] == [] and thought["content"][0]["text"] == "I think so"
    assert said["content"][0]["text"] == "The answer" and 0 < whole["usage"]["output_tokens_details"]["reasoning_tokens"] < 8
    again = [{"role": "user", "content": "Hi"}, thought, said, {"type": "message", "role": "user", "content": "and?"}]
    assert ask(server, input=again)["status"] == "completed"
    assert [i["type"] for i in both(server, reasoning={"effort": "none"})["output"]] == ["message"]


def test_functions(server):
    whole = both(server, tools=TOOLS)
    said, weather, time = whole["output"]
    assert said["content"][0]["text"] == "Let me look" and [weather["type"], time["type"]] == ["function_call"] * 2
    assert (weather["name"], json.loads(weather["arguments"]), time["name"]) == ("get_weather", {"city": "Paris"}, "get_time")
    assert weather["call_id"] != weather["id"] and weather["call_id"] != time["call_id"] and weather["id"].startswith("fc_")
    for one in (ask(server, tools=TOOLS, parallel_tool_calls=False), assembled(events(server, tools=TOOLS, parallel_tool_calls=False))):
        assert plain(one["output"]) == plain(whole["output"][:2]) and one["parallel_tool_calls"] is False
    assert both(server, tools=TOOLS, tool_choice="none")["output"][0]["content"][0]["text"] == TEXT
    for output in ("rain", [{"type": "input_text", "text": "rain"}]):
        history = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, *whole["output"][:2],
                   {"type": "function_call_output", "call_id": weather["call_id"], "output": output}]
        assert ask(server, input=history, tools=TOOLS)["status"] == "completed"
    one = ask(server, tools=TOOLS, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]})
    assert one["usage"]["input_tokens"] < whole["usage"]["input_tokens"]
    strict = ask(server, tools=[TOOLS[0] | {"strict": True}])
    assert strict["tools"][0]["strict"] is True and whole["tools"][0]["strict"] is False


def test_strict_json(server):
    shape = {"type": "json_schema", "name": "n", "strict": True, "schema": {
        "type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}}
    whole = both(server, text={"format": shape}, temperature=0)
    assert json.loads(whole["output"][0]["content"][0]["text"]) == {"a": 1} and whole["text"]["format"] == shape


def test_stored(server):
    first = ask(server, metadata={"k": "v"}, instructions="Be brief")
    assert server.request("GET", f"/v1/responses/{first['id']}").json() == first
    second = ask(server, previous_response_id=first["id"], input=[{"role": "user", "content": "and?"}])
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] and second["previous_response_id"] == first["id"]
    flat = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "and?"}]
    assert ask(server, input=flat, store=False)["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    items = server.request("GET", f"/v1/responses/{second['id']}/input_items?order=asc").json()
    assert [i["content"] for i in items["data"]] == ["and?"] and items["has_more"] is False
    assert server.request("POST", f"/v1/responses/{first['id']}/cancel", "{}").status == 400
    assert server.request("DELETE", f"/v1/responses/{first['id']}").json()["deleted"] is True
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]:
        reply = server.request(method, f"/v1/responses/{first['id']}{path}")
        assert reply.status == 404 and reply.error()["code"] == "not_found"
    reply = post(server, previous_response_id=first["id"])
    assert reply.status == 404 and reply.error()["param"] == "previous_response_id"
    unstored = ask(server, store=False)
    assert server.request("GET", f"/v1/responses/{unstored['id']}").status == 404


def test_pages_of_input_items(server):
    one = ask(server, input=[{"role": "user", "content": c} for c in "abc"])["id"]
    pages = [server.request("GET", f"/v1/responses/{one}/input_items?limit=2").json()]
    pages.append(server.request("GET", f"/v1/responses/{one}/input_items?limit=2&after={pages[0]['last_id']}").json())
    assert [[i["content"] for i in p["data"]] for p in pages] == [["c", "b"], ["a"]]
    assert [p["has_more"] for p in pages] == [True, False]
    for query in ("after=nothing", "limit=0", "order=up"):
        assert server.request("GET", f"/v1/responses/{one}/input_items?{query}").status == 400


def test_limits_are_each_keys_own(folder):
    keys = Keys(folder / "keys.jsonl")
    ann, bob = (bearer(keys.add(name)) for name in ("ann", "bob"))
    running = start_server(folder, keys_file=str(keys.path), max_responses=2)
    try:
        kept = [post(running, headers=ann).json()["id"] for _ in range(3)]
        for _ in range(5):
            post(running, headers=bob)
        statuses = [running.request("GET", f"/v1/responses/{i}", None, ann).status for i in kept]
        assert statuses == [404, 200, 200]
        assert running.request("GET", f"/v1/responses/{kept[2]}", None, bob).status == 404
        assert post(running, headers=bob, previous_response_id=kept[2]).status == 404
        assert running.request("DELETE", f"/v1/responses/{kept[2]}", None, bob).status == 404
        assert running.request("GET", f"/v1/responses/{kept[2]}").status == 401
    finally:
        assert running.stop() == 0, running.log.read_text()


def test_truncation(server):
    turns = [{"role": role, "content": "word " * 60} for _ in range(6) for role in ("user", "assistant")]
    turns.append({"role": "user", "content": "Hi"})
    reply = post(server, input=turns)
    assert reply.status == 400 and reply.error()["code"] == "context_length_exceeded"
    whole = ask(server, input=turns, truncation="auto", instructions="Be brief")
    assert whole["status"] == "completed" and whole["usage"]["input_tokens"] < 1024 and whole["truncation"] == "auto"


def test_what_codex_sends(server):
    """Tools of types that run elsewhere, developers' messages, hints; and an empty input to look whether the server is there."""
    tools = [*TOOLS, {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
             {"type": "web_search"}, {"type": "local_shell"}, {"type": "image_generation"}, {"type": "namespace", "name": "m", "tools": []}]
    turns = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "p"}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
             {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "later"}]},
             {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "AAA="},
             {"type": "web_search_call", "id": "ws_1", "status": "completed"},
             {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "***"},
             {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}]
    whole = assembled(events(server, input=turns[:5], instructions="x" * 200, store=False, tools=tools, tool_choice="auto",
                             parallel_tool_calls=False, include=["reasoning.encrypted_content"], prompt_cache_key="k",
                             reasoning={"effort": "medium", "summary": "auto"}, text={"verbosity": "low"},
                             client_metadata={"a": "b"}, brand_new=1))
    assert whole["status"] == "completed" and [t["type"] for t in whole["tools"]] == ["function", "function", "namespace"]
    last = assembled(events(server, input=[], instructions="x", max_output_tokens=1))
    assert last["status"] == "incomplete"
    metrics = server.request("GET", "/metrics").body.decode()
    assert 'retro_passed_over_total{door="responses",what="tool"} 4' in metrics
    assert 'retro_passed_over_total{door="responses",what="item"} 1' in metrics


def test_functions_in_namespaces(server):
    """As Codex sends those of each MCP server: the model calls get_weather, and the client gets namespace and name apart."""
    space = {"type": "namespace", "name": "get_", "description": "d", "tools": [TOOLS[0] | {"name": "weather"}, {"type": "custom", "name": "x"}]}
    other = {"type": "namespace", "name": "mcp__documents", "description": "d", "tools": [TOOLS[1] | {"name": "search"}]}
    plain, joined = [TOOLS[0] | {"name": "get___weather"}, TOOLS[1]], [space, TOOLS[1], other]
    found = events(server, tools=joined)
    whole = assembled(found)
    calls = [item for item in whole["output"] if item["type"] == "function_call"]
    assert [(call["name"], call.get("namespace")) for call in calls] == [("get_weather", None), ("get_time", None)]
    assert [tool["type"] for tool in whole["tools"]] == ["namespace", "function", "namespace"]
    assert ask(server, tools=plain)["usage"]["input_tokens"] < whole["usage"]["input_tokens"]
    for tool, word in (({"type": "namespace", "tools": []}, "name"), ({"type": "namespace", "name": "m"}, "array"),
                       ({"type": "namespace", "name": "m", "tools": [{"type": "function"}]}, "name")):
        assert word in post(server, tools=[tool]).error()["message"]


def test_a_call_in_a_namespace_comes_and_goes(folder):
    scripts = {"<|to_words|>": WORDS, "<|to_calls|>": ['<tool_call>{"name": "mcp__documents__search", "arguments": {"city": "b"}}</tool_call>']}
    make_chat_model(folder / "spaces", scripts, TEMPLATE.replace("elif tools", "elif tools and messages[-1].role != 'tool'"))
    running = start_server(folder, model="spaces")
    try:
        tools = [{"type": "namespace", "name": "mcp__documents", "description": "d", "tools": [TOOLS[0] | {"name": "search"}]}]
        found = events(running, tools=tools)
        [done] = [event for event in found if event["type"] == "response.function_call_arguments.done"]
        assert (done["name"], done["namespace"]) == ("search", "mcp__documents")
        [call] = assembled(found)["output"]
        assert (call["name"], call["namespace"]) == ("search", "mcp__documents")
        turns = [{"role": "user", "content": "Hi"}, call, {"type": "function_call_output", "call_id": call["call_id"], "output": [
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]
        assert ask(running, tools=tools, input=turns)["output"][0]["content"][0]["text"] == TEXT
        kept = ask(running, tools=tools)
        more = [{"type": "function_call_output", "call_id": kept["output"][0]["call_id"], "output": "found"}]
        assert ask(running, tools=tools, input=more, previous_response_id=kept["id"])["output"][0]["content"][0]["text"] == TEXT
        forced = ask(running, tools=tools, tool_choice={"type": "function", "namespace": "mcp__documents", "name": "search"})
        assert forced["output"][0]["type"] == "function_call"
    finally:
        assert running.stop() == 0, running.log.read_text()


def test_codex_reads_the_context(server):
    models = server.request("GET", "/v1/models").json()
    assert [(m["slug"], m["context_window"]) for m in models["models"]] == [("script", 1024)] and models["data"][0]["id"] == "script"


def test_logprobs(server):
    whole = ask(server, include=["message.output_text.logprobs"], top_logprobs=2)
    tokens = whole["output"][0]["content"][0]["logprobs"]
    assert "".join(t["token"] for t in tokens) == TEXT and all(len(t["top_logprobs"]) == 2 for t in tokens)


def test_refused_by_name(server):
    for fields, word in [({"background": True}, "background"), ({"conversation": "conv_1"}, "conversation"), ({"input": 5}, "input"),
                         ({"tools": [{"type": "mcp", "server_url": "http://127.0.0.1"}]}, "mcp"), ({"prompt": {"id": "p"}}, "prompt"),
                         ({"input": [{"type": "hologram"}]}, "hologram"), ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
                         ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]}, "pictures"),
                         ({"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://x/y"}]}]}, "file_url"),
                         ({"tool_choice": {"type": "web_search"}}, "tool_choice"), ({"truncation": "some"}, "truncation"),
                         ({"store": "yes"}, "store"), ({"text": {"format": {"type": "xml"}}}, "response_format"),
                         ({"max_output_tokens": 0}, "max_tokens"), ({"temperature": 9}, "temperature")]:
        reply = post(server, **fields)
        assert reply.status == 400 and word in reply.error()["message"], (fields, reply.body)
    assert post(server, model="nothing").error()["code"] == "model_not_found"


def test_a_file_in_the_input(server):
    data = "data:text/plain;base64,aGVsbG8="
    part = {"type": "input_file", "filename": "a.txt", "file_data": data}
    more = ask(server, input=[{"role": "user", "content": [part, {"type": "input_text", "text": "Hi"}]}])
    assert more["usage"]["input_tokens"] > ask(server)["usage"]["input_tokens"] + 5


def test_leaving_frees_the_model(server):
    body = json.dumps({"model": "script", "input": "Hi", "stream": True} | COUNT)
    with server.socket() as connection:
        connection.sendall(f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        read = b""
        while b"response.created" not in read:
            part = connection.recv(65536)
            assert part, read
            read += part
    server.wait_until(lambda health: health["running"] == 0, 20)
