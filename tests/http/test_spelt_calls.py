"""Arguments of calls that JSON's readers cannot hold, or that are none: every door answers with JSON, and the server goes on."""
import json

import pytest
from chat_model import TEMPLATE, make_chat_model
from conftest import Server

USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
SPELT = '{"n": 123456789012345678901, "n": -1e999}'
CALLS = ["<tool_call>", '{"name": "f", "arguments":\n {"n":123456789012345678901,\n"n":-1e999}}</tool_call>',
         '\n<tool_call>{"name": "f", "arguments": "1}, \\"x\\": {"}', "</tool_call>"]
TOLD = '1}, "x": {'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    make_chat_model(folder / "model", {"<|to_calls|>": CALLS}, TEMPLATE.replace("call.function.arguments.city", "'x'"))
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "model"), "name": "script"},
                                  "server": {"port": 0, "max_context": 16384}}))
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def numbers(text):
    """Each member of the first level, with numbers as they are spelt."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=list)


def test_chat_and_responses_give_them_as_they_are_spelt(server):
    reply = server.post({"messages": USER, "tools": TOOLS}, "/v1/chat/completions").json()
    calls = reply["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [SPELT, TOLD]
    body = {"model": "script", "input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
    items = server.post(body, "/v1/responses").json()["output"]
    assert [item["arguments"] for item in items if item["type"] == "function_call"] == [SPELT, TOLD]


def test_doors_with_values_write_json(server):
    body = {"model": "script", "max_tokens": 200, "messages": USER, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    reply = server.post(body, "/v1/messages")
    blocks = [dict(block) for block in dict(numbers(reply.body))["content"]]
    assert [block["input"] for block in blocks] == [numbers(SPELT), TOLD]
    events = server.post({**body, "stream": True}, "/v1/messages").body.decode()
    deltas = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    parts = [event["delta"]["partial_json"] for event in deltas if "partial_json" in event.get("delta", {})]
    assert [numbers(part) for part in parts] == [numbers(SPELT), TOLD]

    reply = server.post({"model": "script", "messages": USER, "tools": TOOLS}, "/api/chat")
    calls = []
    for line in reply.body.splitlines():
        calls += dict(dict(numbers(line))["message"]).get("tool_calls", [])
    assert [dict(dict(call)["function"])["arguments"] for call in calls] == [numbers(SPELT), TOLD]


def deep(levels):
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


DEEP = deep(64)
CHAT = [*USER, {"role": "assistant", "content": "", "tool_calls": [
    {"id": "c", "type": "function", "function": {"name": "f", "arguments": DEEP}}]},
    {"role": "tool", "tool_call_id": "c", "content": "x"}]


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": CHAT}),
    ("/v1/responses", {"model": "script", "input": [
        {"role": "user", "content": "Hi"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": DEEP},
        {"type": "function_call_output", "call_id": "c", "output": "x"}]}),
    ("/v1/messages", {"model": "script", "max_tokens": 2, "messages": [
        *USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": json.loads(deep(59))}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}]}),
    ("/api/chat", {"model": "script", "messages": [
        *USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]},
        {"role": "tool", "tool_name": "f", "content": "x"}]}),
])
def test_deep_arguments_do_not_end_the_server(server, path, body):
    """As deep as a reader allows, within what stands around them in a conversation."""
    assert server.post(body, path).status in (200, 400, 404)
    assert server.health()["status"] == "ok"
