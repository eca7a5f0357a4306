"""Claude Code and Codex, unmodified: they answer, call tools of their own, and search the collection as a server of MCP. What
the server refused is in its metrics, and has to be nothing."""
import json
import os
import pathlib
import subprocess
import zlib

import claude_agent_sdk
import codex_cli_bin
import prometheus
import pytest
from agent_model import WORDS, make_agent_model, one_call
from http_fixtures import BUILD, Server

CLAUDE = pathlib.Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
CODEX = codex_cli_bin.bundled_codex_path()
ANSWER, ASKED = "".join(WORDS), {"query": "connect two processes by a pipe", "k": 2}
SECONDS = 300


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def picture():
    rows = b"".join(b"\0" + b"\xff\0\0" * 16 for _ in range(16))
    head = (16).to_bytes(4, "big") * 2 + bytes((8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("agents")
    (path / "work").mkdir()
    (path / "work/red.png").write_bytes(picture())
    return path


@pytest.fixture(scope="module")
def running(place, tmp_path_factory):
    make_agent_model(place / "agent", {
        "bash": one_call("Bash", command="echo it ran", description="Say it"), "search": one_call("mcp__documents__search", **ASKED),
        "find": one_call("ToolSearch", query="select:mcp__documents__read", max_results=1),
        "look": one_call("Read", file_path=str(place / "work/red.png")), "exec": one_call("exec_command", cmd="echo it ran")})
    documents = place / "documents"
    documents.mkdir()
    (documents / "pipe.txt").write_text("pipe() creates a pipe, which connects two processes: what one writes, the other reads.\n")
    config = place / "retro.json"
    config.write_text(json.dumps({
        "model": {"path": str(place / "agent"), "name": "agent"}, "server": {"port": 0, "max_context": 100000},
        "retrieval": {"collection": str(place / "collection"), "embedder": os.environ["RETRO_DEPS"] + "/minilm", "documents": "read"}}))
    subprocess.run([BUILD / "retro-index", "build", "--config", config, "--out", place / "collection", documents], check=True)
    server = Server(config, tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0, server.log.read_text()


def refused(server):
    """Requests to the doors that were answered by an error, by path and status; a stream that the client left is none."""
    samples = prometheus.read(server.request("GET", "/metrics").body.decode())["retro_http_requests_total"]["samples"]
    found = {labels: n for (_, labels), n in samples.items() if 'path="/v1/' in labels[0] or 'path="/mcp' in labels[0]}
    return {labels: n for labels, n in found.items() if labels[1][6:9] not in ("200", "202", "204", "499")}


def mcp_calls(server):
    families = prometheus.read(server.request("GET", "/metrics").body.decode())
    return prometheus.value(families, "retro_mcp_requests_total", method="tools/call", tool="search", outcome="ok")


def run(program, place, words, **environment):
    """The standard output of a client whose home is new."""
    (place / "home/.codex").mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC", "OPENAI", "CODEX"))}
    done = subprocess.run([program, *words], cwd=place / "work", env={**kept, "HOME": str(place / "home"), **environment}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def claude(server, place, *words):
    return run(CLAUDE, place, words, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_AUTH_TOKEN="KEY", ANTHROPIC_MODEL="agent",
               ANTHROPIC_SMALL_FAST_MODEL="agent", CLAUDE_CODE_MAX_CONTEXT_TOKENS="100000", DISABLE_AUTOUPDATER="1")


def codex(server, place, *words):
    (place / "home/.codex").mkdir(parents=True, exist_ok=True)
    (place / "home/.codex/config.toml").write_text(f'''model = "agent"
model_provider = "retro"
model_context_window = 100000

[model_providers.retro]
name = "retro-server"
base_url = "{server.url}/v1"
wire_api = "responses"
env_key = "RETRO_KEY"

[mcp_servers.documents]
url = "{server.url}/mcp"
bearer_token_env_var = "RETRO_KEY"
''')
    return run(CODEX, place, ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", *words], RETRO_KEY="KEY")


def events(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def results(server, place, words, *more):
    """What tools gave Claude Code in a session, as text, and its last words."""
    told = events(claude(server, place, "-p", words, "--model", "agent", "--output-format", "stream-json", "--verbose", *more))
    blocks = [block for event in told if event["type"] == "user" for block in event["message"]["content"] if block["type"] == "tool_result"]
    return json.dumps(blocks), told[-1]["result"]


def items(text):
    return [event["item"] for event in events(text) if event["type"] == "item.completed"]


def test_claude_code_answers_and_counts(running, place):
    assert claude(running, place, "-p", "hello", "--model", "agent").strip() == ANSWER
    assert "100k" in claude(running, place, "-p", "/context", "--model", "agent")
    assert refused(running) == {}


def test_claude_code_calls_its_tools(running, place):
    said, last = results(running, place, "please @bash now", "--allowedTools", "Bash")
    assert "it ran" in said and last == ANSWER
    said, last = results(running, place, "please @look now", "--allowedTools", "Read")
    assert '"image"' in said and last == ANSWER, "a model that sees no pictures goes on"
    assert refused(running) == {}


def test_claude_code_searches_the_collection(running, place):
    claude(running, place, "mcp", "add", "--transport", "http", "documents", running.url + "/mcp", "--header", "Authorization: Bearer KEY")
    assert "Connected" in claude(running, place, "mcp", "list")
    before = mcp_calls(running)
    said, last = results(running, place, "please @search now", "--allowedTools", "mcp__documents__search")
    assert "pipe.txt" in said and last == ANSWER and mcp_calls(running) == before + 1
    said, last = results(running, place, "please @find now")
    assert '"tool_reference"' in said and last == ANSWER
    claude(running, place, "mcp", "remove", "documents")
    config = place / "stdio.json"
    config.write_text(json.dumps(json.loads((place / "retro.json").read_text()) | {"model": {"path": str(place / "agent")}}))
    claude(running, place, "mcp", "add", "documents", "--", str(BUILD / "retro-server"), "mcp", "--config", str(config))
    said, last = results(running, place, "please @search now", "--allowedTools", "mcp__documents__search")
    assert "pipe.txt" in said and last == ANSWER
    assert refused(running) == {}


def test_codex_answers_and_calls_its_tools(running, place):
    assert [item["text"] for item in items(codex(running, place, "hello")) if item["type"] == "agent_message"] == [ANSWER]
    told = items(codex(running, place, "please @exec now"))
    assert "it ran" in json.dumps(told) and told[-1]["text"] == ANSWER
    assert refused(running) == {}


def test_codex_searches_the_collection(running, place):
    before = mcp_calls(running)
    told = items(codex(running, place, "please @search now"))
    assert "pipe.txt" in json.dumps(told) and told[-1]["text"] == ANSWER and mcp_calls(running) == before + 1
    assert refused(running) == {}
