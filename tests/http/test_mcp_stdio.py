"""retro-server mcp: MCP over standard input and output, a message a line."""
import contextlib
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import BUILD
from mcp_messages import OLD, SUBSCRIPTION, message, meta


class Lines:
    """The program, with pipes to it."""

    def __init__(self, config, *sets):
        command = [BUILD.resolve() / "retro-server", "mcp", "--config", config, *(a for s in sets for a in ("--set", s))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                        env={"PATH": os.environ["PATH"]})

    def send(self, *messages):
        for one in messages:
            self.process.stdin.write((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n")
        self.process.stdin.flush()

    def next(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, method, params=None, ident=1):
        self.send(message(method, params, ident))
        while (got := self.next()).get("id") != ident:
            assert "method" in got
        return got

    def ask_modern(self, method, params=None, ident=1):
        return self.ask(method, {**(params or {}), "_meta": meta()}, ident)

    def tool(self, name, **arguments):
        return self.ask_modern("tools/call", {"name": name, "arguments": arguments})["result"]["structuredContent"]

    def end(self):
        """Closes the input; the status, and the seconds until it came."""
        begin = time.monotonic()
        self.process.stdin.close()
        return self.process.wait(30), time.monotonic() - begin


@pytest.fixture
def own(config, folder, tmp_path):
    values = json.loads(config.read_text())
    values["retrieval"]["collection"] = str(folder)
    file = tmp_path / "own.json"
    file.write_text(json.dumps(values))
    return file


@pytest.fixture
def open_lines(own):
    opened = []

    def open_one(*sets, file=own):
        opened.append(Lines(file, *sets))
        return opened[-1]

    yield open_one
    for lines in opened:
        lines.process.kill()
        lines.process.wait()
        for pipe in (lines.process.stdin, lines.process.stdout, lines.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def test_all_of_it_over_lines(open_lines):
    lines = open_lines()
    assert "2026-07-28" in lines.ask_modern("server/discover")["result"]["supportedVersions"]
    assert [one["name"] for one in lines.ask_modern("tools/list")["result"]["tools"]] == ["search", "read", "list", "fetch", "table_list", "table_query", "add", "delete"]
    first = lines.tool("search", query="a pipe")["results"][0]
    assert first["url"] == first["uri"] and lines.tool("read", id=first["id"], start=first["start"], end=first["end"])["text"] == first["text"]
    assert lines.tool("add", id="z", text="The zebra eats saffron.")["effect"] == "added"
    assert lines.tool("search", query="who eats saffron", k=1)["results"][0]["id"] == "z"
    assert lines.ask_modern("ping")["error"]["code"] == -32601 and lines.ask("ping")["result"] == {}
    assert lines.ask("server/discover")["error"]["code"] == -32601
    status, seconds = lines.end()
    assert status == 0 and seconds < 60
    assert lines.next() is None


def test_it_answers_while_the_documents_are_opened(open_lines):
    lines = open_lines()
    lines.send(message("tools/call", {"name": "search", "arguments": {"query": "pipe"}, "_meta": meta()}, "search"), message("ping", ident="ping"))
    assert [lines.next()["id"] for _ in range(2)] == ["ping", "search"]


def test_documents_that_cannot_be_opened(open_lines, tmp_path):
    lines = open_lines(f"retrieval.collection={tmp_path / 'nowhere'}")
    assert lines.ask("initialize", {"protocolVersion": OLD})["result"]["protocolVersion"] == OLD
    got = lines.ask("tools/call", {"name": "search", "arguments": {"query": "a"}})
    assert "nowhere" in got["error"]["message"]
    assert lines.end()[0] == 1


def test_broken_lines_end_nothing(open_lines):
    lines = open_lines("server.max_body_bytes=100000")
    for broken, code in ((b"{", -32700), (b"\xff\xfe", -32700), (b"[]", -32600), (b"7", -32600), (b'{"id":{}}', -32600), (b'"' + b"x" * 300000 + b'"', -32600),
                         (b"\0", -32700)):
        lines.send(broken)
        assert lines.next()["error"]["code"] == code
    lines.send(b"", b"  \r")
    assert lines.ask("ping", ident="é\n")["id"] == "é\n"


def test_what_comes_before_the_end_is_answered(own):
    asked = json.dumps(message("tools/call", {"name": "search", "arguments": {"query": "pipe"}})).encode()
    done = subprocess.run([BUILD / "retro-server", "mcp", "--config", own], input=asked, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if done.stdout:  # the documents were open within a second
        assert json.loads(done.stdout)["result"]["structuredContent"]["results"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(open_lines, number):
    lines = open_lines()
    lines.tool("search", query="pipe")
    lines.process.send_signal(number)
    assert lines.process.wait(30) == 0


def test_a_listener_is_told_and_can_be_cancelled(open_lines):
    lines = open_lines()
    lines.send(message("subscriptions/listen", {"notifications": {"resourcesListChanged": True}, "_meta": meta()}, "l"))
    assert lines.next()["method"] == "notifications/subscriptions/acknowledged"
    lines.send(message("tools/call", {"name": "add", "arguments": {"text": "One.", "id": "a"}, "_meta": meta()}, 1))
    got = [lines.next() for _ in range(2)]
    told = next(one for one in got if "method" in one)
    assert told["method"] == "notifications/resources/list_changed" and told["params"]["_meta"] == {SUBSCRIPTION: "l"}
    lines.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "l", "_meta": meta()}})
    assert lines.ask_modern("tools/call", {"name": "delete", "arguments": {"id": "a"}})["result"]["isError"] is False
    time.sleep(1.5)
    lines.send(message("ping", ident="last"))
    assert lines.next() == {"jsonrpc": "2.0", "id": "last", "result": {}}


def test_a_client_that_shook_hands_is_told(open_lines):
    lines = open_lines()
    lines.ask("initialize", {"protocolVersion": OLD})
    lines.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    lines.ask("tools/call", {"name": "search", "arguments": {"query": "pipe"}})
    assert lines.ask("resources/subscribe", {"uri": "retro://documents/a"})["result"] == {}
    lines.send(message("tools/call", {"name": "add", "arguments": {"text": "One.", "id": "a"}}, "add"))
    got = [lines.next() for _ in range(3)]
    assert sorted(one.get("method", "") for one in got) == ["", "notifications/resources/list_changed", "notifications/resources/updated"]


def test_nobody_reads(open_lines):
    lines = open_lines()
    lines.process.stdout.close()
    lines.send(message("ping"))
    assert lines.process.wait(30) == 0


def test_several_programs_share_a_collection(open_lines):
    one, other = open_lines(), open_lines()
    assert one.tool("add", id="z", text="The zebra eats saffron.")["effect"] == "added"
    assert other.tool("read", id="z")["text"] == "The zebra eats saffron."


def test_a_configuration_that_is_wrong_is_told_on_standard_error(own):
    done = subprocess.run([BUILD / "retro-server", "mcp", "--config", own, "--set", "retrieval.k=-1"], capture_output=True, timeout=60)
    assert done.returncode == 1 and done.stdout == b"" and b"retrieval.k" in done.stderr


def test_no_model_that_writes_is_needed(open_lines, own, tmp_path):
    values = json.loads(own.read_text())
    del values["model"]
    file = tmp_path / "documents.json"
    file.write_text(json.dumps(values))
    assert open_lines(file=file).tool("search", query="pipe")["results"]
