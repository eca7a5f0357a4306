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
    calls["text"] = [one_call("lines__echo")[:-13] + "}"]
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
