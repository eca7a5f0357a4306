"""Tools of others (option tools.mcp): the server carries out the calls of a model, whose answers are known (chat_model.py),
at servers of MCP that are honest or hostile (tool_server.py)."""
import json
import pathlib
import re
import subprocess
import sys
import time

import pytest
from chat_model import WORDS, make_chat_model
from conftest import BUILD, Server, loads
from tool_server import CONTROL, TOOLS

TEXT = "".join(WORDS)
USER = [{"role": "user", "content": "Hi"}]
SCRIPT = str(pathlib.Path(__file__).with_name("tool_server.py"))
SERVERS = ("lines", "lines_old", "http", "http_old", "http_events")
HIDDEN = "exit"  # is not allowed

# A template that is told which tool to call, until it has a result.
TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}
To call one: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- for call in message.tool_calls or [] %}{{ call.function.name + ' ' + (call.function.arguments | tojson) }}{% endfor %}
{{- (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if again or (tools and messages[-1].role != 'tool') %}<|to_NAMES|>{% else %}<|to_words|>{% endif %}{% endif %}"""


def one_call(name, **arguments):
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def scripts_of():
    calls = {f"{server}__{tool}": [one_call(f"{server}__{tool}", text="Ö")] for server in ("lines",) for tool in TOOLS}
    calls |= {f"{server}__echo": [one_call(f"{server}__echo", text="Ö")] for server in SERVERS}
    calls |= {f"http__{tool}": [one_call(f"http__{tool}")] for tool in ("hang", "wrong", "redirect", "endless", "big")}
    calls["own"] = [one_call("get_time")]
    calls["both"] = ["See: ", one_call("lines__echo") + one_call("get_time")]
    calls["two"] = ["See, ", one_call("lines__echo", text="1") + one_call("http__echo", text="2")]
    calls["marked"] = ["<tool_call>", one_call("lines__echo", text="S")[11:-12], "</tool_call>"]
    calls["text"] = ['<tool_call>{"name": "lines__echo", "arguments": "no object"}</tool_call>']
    return calls


CALLS = scripts_of()


def make_template():
    wanted = "".join(f"{{% {'elif' if i else 'if'} want == '{name}' %}}<|to_{name}|>" for i, name in enumerate(CALLS))
    return TEMPLATE.replace("<|to_NAMES|>", wanted + "{% else %}<|to_words|>{% endif %}")


class ToolServer:
    def __init__(self, *words):
        self.process = subprocess.Popen([sys.executable, SCRIPT, "http", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}/mcp"

    def stop(self):
        self.process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "script"
    make_chat_model(path, {"<|to_words|>": WORDS, **{f"<|to_{name}|>": script for name, script in CALLS.items()}}, make_template())
    return path


@pytest.fixture(scope="module")
def entries():
    remote = {"http": ToolServer(), "http_old": ToolServer("old"), "http_events": ToolServer("events")}
    allowed = [name for name in TOOLS if name != HIDDEN]
    command = [sys.executable, SCRIPT, "lines"]
    entries = [{"name": "lines", "command": command, "tools": allowed, "keys": ["ann"]},
               {"name": "lines_old", "command": [*command, "old"], "tools": allowed, "keys": ["*"]},
               *({"name": name, "url": server.url, "tools": allowed, "keys": ["ann", "ben"]} for name, server in remote.items())]
    yield entries
    for server in remote.values():
        server.stop()


def start(folder, entries, where, *sets, **tools):
    config = where / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0, "max_context": 16384},
                                  "tools": {"mcp": entries, "timeout": 2, **tools}}))
    return Server(config, where, *sets)


@pytest.fixture(scope="module")
def server(folder, entries, tmp_path_factory):
    running = start(folder, entries, tmp_path_factory.mktemp("server"))
    wait_for(running, [entry["name"] for entry in entries])
    yield running
    assert running.stop() == 0, running.log.read_text()


def wait_for(server, names, headers={}):
    """Until the tools of these servers are known."""
    deadline = time.monotonic() + 60
    for name in names:
        body = {"messages": USER, "mcp": [name], "max_tokens": 1, "chat_template_kwargs": {"want": "none"}}
        while (reply := post(server, body, headers=headers)).status == 503:
            assert time.monotonic() < deadline, (reply.body, server.log.read_text())
            time.sleep(0.1)
        assert reply.status == 200, reply.body


def post(server, body, path="/v1/chat/completions", headers={}):
    return server.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})


def ask(server, want, mcp=("lines",), **fields):
    kwargs = {"want": want, **fields.pop("kwargs", {})}
    reply = post(server, {"messages": USER, "mcp": mcp if mcp is True else list(mcp), "chat_template_kwargs": kwargs, **fields})
    assert reply.status == 200, reply.body
    return reply.json()


def called(server, want, **fields):
    """The one call of an answer, and its message."""
    reply = ask(server, want, **fields)
    message = reply["choices"][0]["message"]
    assert len(message["mcp_calls"]) == 1, message
    return message["mcp_calls"][0], message


@pytest.mark.parametrize("name", SERVERS)
def test_a_call_is_carried_out(server, name):
    reply = ask(server, f"{name}__echo", [name])
    choice = reply["choices"][0]
    call = choice["message"]["mcp_calls"][0]
    assert (call["server"], call["name"], loads(call["arguments"]), call["output"]) == (name, "echo", {"text": "Ö"}, "said: Ö")
    assert "error" not in call and call["id"].startswith("call_") and choice["message"]["content"] == TEXT
    assert choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"]
    assert reply["usage"]["completion_tokens"] == 1 + 1 + len(WORDS) + 1


def prompt_tokens(folder, server, messages, name):
    """What a prompt would be whose tools are those of the server: the ids of every turn are those of the plain text."""
    path = folder.parent / "request.json"
    tools = loads(server_tools(server, name))
    path.write_text(json.dumps({"messages": messages, "tools": tools, "chat_template_kwargs": {"want": "none"}}))
    done = subprocess.run([BUILD / "retro-eval", "chat", folder, path, "--ids"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return len(done.stdout.split())


def server_tools(server, name):
    from tool_server import describe
    told = [describe(tool) for tool in TOOLS if tool != HIDDEN]
    return json.dumps([{"type": "function", "function": {
        "name": f"{name}__{t['name']}", "description": t["description"], "parameters": t["inputSchema"]}} for t in told])


def test_control_tokens_of_strangers_are_text(server, folder):
    """A description and a result spell the tokens that end a turn and begin another: both are read as plain text."""
    call, message = called(server, "lines__control")
    assert call["output"] == CONTROL and message["content"] == TEXT
    first = prompt_tokens(folder, server, USER, "lines")
    said = [*USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "lines__control", "arguments": {"text": "Ö"}}}]},
        {"role": "tool", "tool_call_id": "x", "content": CONTROL}]
    again = prompt_tokens(folder, server, said, "lines")
    assert again - first > len(CONTROL)
    assert ask(server, "lines__control")["usage"]["prompt_tokens"] == first + again


FAULTS = [("lines__fails", "there is no such city"), ("lines__error", "error -32603: out of order"),
          ("lines__big", "more than 262144 bytes (option tools.max_result_bytes)"), ("lines__hang", "no answer came in time"),
          ("lines__wrong", "a message"), ("lines__endless", "more than 262144 bytes"),
          ("http__big", "more than 262144 bytes"), ("http__hang", "no answer came in time"), ("http__wrong", "a message"),
          ("http__redirect", "redirection, which is not followed"), ("http__endless", "more than 262144 bytes"),
          ("text", "arguments")]


@pytest.mark.parametrize(("want", "words"), FAULTS)
def test_a_fault_is_an_error_that_the_model_reads(server, want, words):
    call, message = called(server, want, mcp=[want.split("__")[0].replace("text", "lines")])
    assert words in call["error"] and "output" not in call and message["content"] == TEXT
    assert called(server, "lines__echo")[0]["output"] == "said: Ö"  # others are served as before


def test_a_long_result_is_cut_to_tokens(folder, entries, tmp_path):
    running = start(folder, entries[:1], tmp_path, max_result_tokens=100)
    wait_for(running, ["lines"])
    output = called(running, "lines__long")[0]["output"]
    assert output.startswith("ab ab ") and output.endswith("\n(cut: these are 100 of 6000 tokens, option tools.max_result_tokens)")
    assert running.stop() == 0


def test_a_server_that_asks_is_refused(server):
    assert called(server, "lines__ask")[0]["output"] == "-32601"


def test_a_command_gets_no_environment(server):
    names, where = loads(called(server, "lines__environment")[0]["output"])
    assert set(names) <= {"PATH", "LANG", "HOME", "LC_CTYPE"} and where == "/"


def test_a_tool_that_is_not_allowed(server):
    """The model is not told of it, and a call of it is no call of the server's."""
    choice = ask(server, "lines__exit")["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and "mcp_calls" not in choice["message"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "lines__exit"


def test_tools_that_were_not_asked_for(server):
    choice = ask(server, "lines__echo", mcp=["http"])["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and "mcp_calls" not in choice["message"]
    reply = post(server, {"messages": USER, "mcp": [{"server": "lines", "tools": ["big"]}], "chat_template_kwargs": {"want": "lines__echo"}})
    assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"
    reply = post(server, {"messages": USER, "chat_template_kwargs": {"want": "lines__echo"}})
    assert reply.json()["choices"][0]["message"]["content"] == TEXT


OWN = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}]


def test_a_call_of_the_clients_ends_the_turn(server):
    choice = ask(server, "own", tools=OWN)["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"][0]["function"]["name"] == "get_time"
    choice = ask(server, "both", tools=OWN)["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and len(choice["message"]["tool_calls"]) == 1
    assert "results come first" in choice["message"]["mcp_calls"][0]["error"] and choice["message"]["content"] == "See: "[:-1]
    choice = ask(server, "both", tools=OWN, parallel_tool_calls=False)["choices"][0]
    assert choice["message"]["mcp_calls"][0]["output"] == "said: " and choice["message"]["content"].endswith(TEXT)


def test_two_calls_of_a_turn(server):
    reply = ask(server, "two", mcp=["lines", "http"])
    assert [(c["index"], c["server"], c["output"]) for c in reply["choices"][0]["message"]["mcp_calls"]] == [
        (0, "lines", "said: 1"), (1, "http", "said: 2")]
    assert reply["choices"][0]["message"]["content"] == "See," + TEXT


@pytest.mark.parametrize(("option", "calls", "words"), [
    ({"max_turns": 2}, 4, "tools.max_turns"), ({"max_calls": 1}, 3, "tools.max_calls"), ({"max_tokens": 1}, 2, "tools.max_tokens")])
def test_loops_end(folder, entries, tmp_path, option, calls, words):
    """A model that calls again whatever it is told: it is refused, once more, and the answer ends."""
    running = start(folder, entries[:1], tmp_path, **option)
    wait_for(running, ["lines"])
    choice = ask(running, "lines__echo", kwargs={"again": True})["choices"][0]
    told = choice["message"]["mcp_calls"]
    assert len(told) == calls and choice["finish_reason"] == "stop"
    assert words in told[-2]["error"] and "told to answer without tools" in told[-1]["error"]
    assert running.stop() == 0


def test_max_tokens_are_those_of_all_turns(server):
    reply = ask(server, "lines__echo", max_tokens=4)
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 4
    assert reply["choices"][0]["message"]["content"] == "".join(WORDS[:2])


def events_of(server, path, body, headers={}):
    reply = post(server, body | {"stream": True}, path, headers)
    assert reply.status == 200, reply.body
    return [loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: {")]


def test_a_stream_shows_the_calls(server):
    body = {"messages": USER, "mcp": ["lines", "http"], "chat_template_kwargs": {"want": "two"}}
    deltas = [e["choices"][0]["delta"] for e in events_of(server, "/v1/chat/completions", body) if e["choices"]]
    told = [c for d in deltas for c in d.get("mcp_calls", [])]
    assert [(c["index"], "arguments" in c, c.get("output")) for c in told] == [
        (0, True, None), (1, True, None), (0, False, "said: 1"), (1, False, "said: 2")]
    assert "".join(d.get("content") or "" for d in deltas) == "See," + TEXT
    first = next(i for i, d in enumerate(deltas) if "mcp_calls" in d)
    assert "".join(d.get("content") or "" for d in deltas[:first + 1]) == "See,"


MCP_TOOLS = [{"type": "mcp", "server_label": name, "require_approval": "never"} for name in ("lines", "http")]


def test_responses(server):
    body = {"input": "Hi", "tools": MCP_TOOLS, "chat_template_kwargs": {"want": "two"}, "store": False}
    whole = post(server, body, "/v1/responses").json()
    assert [(i["type"], i["status"]) for i in whole["output"]] == [
        ("message", "completed"), ("mcp_call", "completed"), ("mcp_call", "completed"), ("message", "completed")]
    call = whole["output"][1]
    assert (call["server_label"], call["name"], loads(call["arguments"]), call["output"], call["error"]) == (
        "lines", "echo", {"text": "1"}, "said: 1", None)
    assert [whole["output"][i]["content"][0]["text"] for i in (0, 3)] == ["See,", TEXT]
    told = events_of(server, "/v1/responses", body)
    assert [e["sequence_number"] for e in told] == list(range(len(told)))
    done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    strip = lambda items: [{k: v for k, v in i.items() if k != "id"} for i in items]
    assert strip(done) == strip(told[-1]["response"]["output"]) == strip(whole["output"])
    kinds = [e["type"] for e in told if "mcp_call" in e["type"]]
    assert kinds == ["response.mcp_call.in_progress", "response.mcp_call_arguments.delta", "response.mcp_call_arguments.done",
                     "response.mcp_call.completed"] * 2
    more = post(server, body | {"input": [{"role": "user", "content": "Hi"}, *whole["output"], {"role": "user", "content": "Go on"}],
                                "chat_template_kwargs": {"want": "none"}}, "/v1/responses").json()
    assert more["output"][0]["content"][0]["text"] == TEXT
    assert more["usage"]["input_tokens"] > whole["usage"]["input_tokens"] // 2


@pytest.mark.parametrize(("tool", "words"), [
    ({"server_url": "http://127.0.0.1:1/mcp"}, "not called"), ({"require_approval": "always"}, "require_approval"),
    ({"server_label": "other"}, "no server of tools called other"), ({"server_label": 1}, "server_label")])
def test_responses_refuse(server, tool, words):
    reply = post(server, {"input": "Hi", "tools": [MCP_TOOLS[0] | tool]}, "/v1/responses")
    assert reply.status in (400, 404) and words in reply.json()["error"]["message"]


def test_messages(server):
    body = {"model": "script", "max_tokens": 100, "messages": USER, "chat_template_kwargs": {"want": "two"},
            "tools": [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("lines", "http")]}
    whole = post(server, body, "/v1/messages").json()
    assert [b["type"] for b in whole["content"]] == ["text", *["mcp_tool_use", "mcp_tool_result"] * 2, "text"]
    use, result = whole["content"][1:3]
    assert (use["name"], use["server_name"], use["input"], use["id"]) == ("echo", "lines", {"text": "1"}, result["tool_use_id"])
    assert result["content"] == [{"type": "text", "text": "said: 1"}] and result["is_error"] is False
    assert whole["content"][-1]["text"] == TEXT and whole["stop_reason"] == "end_turn"
    blocks = {}
    for event in events_of(server, "/v1/messages", body):
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            blocks[event["index"]]["input"] = loads(event["delta"]["partial_json"])
        elif event["type"] == "content_block_delta":
            blocks[event["index"]]["text"] += event["delta"]["text"]
    plain = lambda all: [{k: v for k, v in b.items() if "id" not in k and k != "citations"} for b in all]
    assert plain(blocks.values()) == plain(whole["content"])
    more = body | {"messages": [*USER, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "Go on"}],
                   "chat_template_kwargs": {"want": "none"}}
    more = post(server, more, "/v1/messages").json()
    assert more["content"][0]["text"] == TEXT and more["usage"]["input_tokens"] > whole["usage"]["input_tokens"] // 2
    refused = post(server, body | {"mcp_servers": [{"type": "url", "name": "x", "url": "http://127.0.0.1:1"}]}, "/v1/messages")
    assert refused.status == 400 and "mcp_servers" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("fields", "param"), [
    ({"n": 2}, "n"), ({"logprobs": True}, "logprobs"), ({"mcp": ["none"]}, "none"), ({"mcp": [3]}, "mcp"), ({"mcp": {}}, "mcp"),
    ({"retrieval": {"enabled": False, "support": True}}, "retrieval")])
def test_refusals(server, fields, param):
    reply = post(server, {"messages": USER, "mcp": ["lines"], "chat_template_kwargs": {"want": "none"}, **fields})
    assert reply.status in (400, 404) and param in reply.json()["error"]["message"]


def test_leaving_ends_a_call(server):
    """A client that leaves while a tool hangs: the call is given up, and its thread is free."""
    import http.client
    before = server.log.read_text().count("nobody waits for it any more")
    for want in ("lines__hang", "http__hang"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": USER, "mcp": [want.split("__")[0]], "chat_template_kwargs": {"want": want}}), {"Content-Type": "application/json"})
        time.sleep(0.3)
        connection.close()
        before += 1
        deadline = time.monotonic() + 30
        while server.log.read_text().count("nobody waits for it any more") < before:
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.01)
    seconds = [float(s) for s in re.findall(r"failed in (\S+) s: nobody waits", server.log.read_text())]
    assert max(seconds) < 30, seconds  # less than the tool's own time


def test_stopping_ends_a_call(folder, entries, tmp_path):
    running = start(folder, entries[:1], tmp_path, timeout=600, max_seconds=600)
    wait_for(running, ["lines"])
    connection = running.socket()
    body = json.dumps({"messages": USER, "mcp": ["lines"], "chat_template_kwargs": {"want": "lines__hang"}}).encode()
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(1)
    running.process.terminate()
    assert running.process.wait(60) == 0
    connection.close()


def test_keys(folder, entries, tmp_path):
    lines = [subprocess.run([BUILD / "retro-server", "--new-key", name], capture_output=True, text=True, check=True) for name in ("ann", "ben", "eve")]
    keys = tmp_path / "keys"
    keys.write_text("".join(line.stdout for line in lines))
    secrets = [re.search(r"\bsk-\S+|[\w-]{40,}", line.stderr)[0] for line in lines]
    running = start(folder, entries[:3], tmp_path, f"server.keys_file={keys}")
    ann, ben, eve = ({"Authorization": f"Bearer {secret}"} for secret in secrets)
    wait_for(running, ["lines", "lines_old", "http"], ann)
    body = {"messages": USER, "chat_template_kwargs": {"want": "lines__echo"}}
    assert "output" in post(running, body | {"mcp": True}, headers=ann).json()["choices"][0]["message"]["mcp_calls"][0]
    assert "mcp_calls" not in post(running, body | {"mcp": True}, headers=ben).json()["choices"][0]["message"]
    known, unknown = (post(running, body | {"mcp": [name]}, headers=ben).json()["error"]["message"] for name in ("lines", "elsewhere"))
    assert known.replace("lines", "elsewhere") == unknown
    told = post(running, body | {"mcp": ["lines_old"], "chat_template_kwargs": {"want": "lines_old__echo"}}, headers=eve).json()
    assert told["choices"][0]["message"]["mcp_calls"][0]["output"] == "said: Ö"
    assert running.stop() == 0


def test_all_chats_may_be_told(folder, entries, tmp_path):
    running = start(folder, entries[:1], tmp_path, use="always")
    wait_for(running, ["lines"])
    body = {"messages": USER, "chat_template_kwargs": {"want": "lines__echo"}}
    assert post(running, body).json()["choices"][0]["message"]["mcp_calls"][0]["output"] == "said: Ö"
    for more in ({"mcp": False}, {"n": 2}, {"logprobs": True}, {"tools": OWN}):
        message = post(running, body | more).json()["choices"][0]["message"]
        assert "mcp_calls" not in message
    assert running.stop() == 0


def test_a_forced_call(server):
    """Forced once: the turn behind the result is free."""
    reply = ask(server, "lines__echo", tool_choice={"type": "function", "function": {"name": "lines__echo"}})
    assert reply["choices"][0]["message"]["mcp_calls"][0]["name"] == "echo"
    reply = post(server, {"messages": USER, "mcp": ["lines"], "tool_choice": {"type": "function", "function": {"name": "no"}}})
    assert reply.status == 400 and "tool that is not there" in reply.json()["error"]["message"]


def test_a_dead_server(folder, entries, tmp_path):
    dead = [{"name": "dead", "url": "http://127.0.0.1:9/mcp", "tools": ["a"]}, {"name": "gone", "command": ["/nonexistent"], "tools": ["a"]},
            {"name": "named", "url": "http://localhost:9/mcp", "tools": ["a"]}, {"name": "none", "command": entries[0]["command"], "tools": ["b"]}]
    running = start(folder, dead, tmp_path)
    for name, words in (("dead", "connect"), ("gone", "cannot be started"), ("named", "no public address"), ("none", "none of the tools")):
        deadline = time.monotonic() + 30
        while words not in (reply := post(running, {"messages": USER, "mcp": [name]})).json()["error"]["message"]:
            assert reply.status == 503 and time.monotonic() < deadline, reply.body
            time.sleep(0.1)
    assert post(running, {"messages": USER}).status == 200
    assert running.stop() == 0


@pytest.mark.parametrize(("entry", "words"), [
    ({"name": "a"}, 'has no "tools"'), ({"name": "a__b", "tools": ["x"]}, "without"), ({"name": "a", "tools": ["x"]}, "neither url nor command"),
    ({"name": "a", "tools": ["x"], "command": ["python3"]}, "whole path"), ({"name": "a", "tools": ["x"], "url": "ftp://h"}, "no http"),
    ({"name": "a", "tools": ["x"], "url": "http://h", "command": ["/b"]}, "both"),
    ({"name": "a", "tools": ["x"], "command": ["/b"], "token_file": "t"}, "token_file")])
def test_the_configuration_is_checked(folder, tmp_path, entry, words):
    config = tmp_path / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "tools": {"mcp": [entry]}}))
    done = subprocess.run([BUILD / "retro-server", "--config", config, "--check-config"], capture_output=True, text=True)
    assert done.returncode != 0 and words in done.stderr


def test_a_key_is_sent(folder, entries, tmp_path):
    (tmp_path / "token").write_text("secret-of-tests\n")
    running = start(folder, [entries[2] | {"token_file": "token"}], tmp_path)
    wait_for(running, ["http"])
    assert called(running, "http__echo", mcp=["http"])[0]["output"] == "said: Ö"
    (tmp_path / "token").write_text("wrong")
    wrong = start(folder, [entries[2] | {"token_file": "token"}], tmp_path)
    deadline = time.monotonic() + 30
    while "HTTP status 4" not in post(wrong, {"messages": USER, "mcp": ["http"]}).json()["error"]["message"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert running.stop() == 0 and wrong.stop() == 0


def test_a_schema_and_tools(server):
    """Calls are free, and what is no call is a text of the schema."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 5}}, "required": ["city"]}
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    reply = ask(server, "marked", response_format=shape, max_tokens=400, temperature=0)
    message = reply["choices"][0]["message"]
    assert message["mcp_calls"][0]["output"] == "said: S"
    assert list(loads(message["content"])) == ["city"], message
    free = post(server, {"messages": USER, "tools": OWN, "response_format": shape, "max_tokens": 400, "temperature": 0, "chat_template_kwargs": {"want": "none"}})
    assert list(loads(free.json()["choices"][0]["message"]["content"])) == ["city"]
    echo = [{"type": "function", "function": {"name": "lines__echo", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}]
    for tool_choice in ("auto", "required"):
        own = post(server, {"messages": USER, "tools": echo, "tool_choice": tool_choice, "response_format": {"type": "json_object"},
                            "max_tokens": 400, "temperature": 0, "chat_template_kwargs": {"want": "marked"}})
        assert own.json()["choices"][0]["finish_reason"] == "tool_calls", own.body
    regex = post(server, {"messages": USER, "tools": OWN, "structured_outputs": {"regex": "a+"}})
    assert regex.status == 400 and "leaves no room for calls" in regex.json()["error"]["message"]

