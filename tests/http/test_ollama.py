"""Ollama's API by raw requests, with a model whose answers are known (chat_model.py)."""
import json
import re

import pytest
from chat_model import WORDS, make_chat_model
from conftest import DEPS, Server, loads

TEXT = "".join(WORDS)
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}} for name in ("get_weather", "get_time")]
COUNTS = {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ollama")
    make_chat_model(folder / "script")
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script"), "others": [{"path": str(DEPS / "minilm"), "role": "embedder"}]},
                                  "server": {"port": 0, "max_context": 512}}))
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def post(server, path, **fields):
    return server.request("POST", path, json.dumps({"model": "script"} | fields))


def ask(server, path="/api/chat", **fields):
    body = {"messages": USER} if path == "/api/chat" else {"prompt": "Hi"}
    reply = post(server, path, **body | {"stream": False} | fields)
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert answer["done"] is True and COUNTS <= set(answer) and all(isinstance(answer[k], int) for k in COUNTS)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", answer["created_at"])
    return answer


def lines(server, path="/api/chat", **fields):
    body = {"messages": USER} if path == "/api/chat" else {"prompt": "Hi"}
    reply = post(server, path, **body | fields)
    assert reply.status == 200 and reply.headers["Content-Type"] == "application/x-ndjson", reply.body
    found = [loads(line) for line in reply.body.decode().splitlines()]
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True] and COUNTS <= set(found[-1])
    return found


def error(reply, status):
    assert reply.status == status, reply.body
    assert set(reply.json()) == {"error"}
    return reply.json()["error"]


def test_chat(server):
    answer = ask(server)
    assert answer["message"] == {"role": "assistant", "content": TEXT} and answer["done_reason"] == "stop"
    assert answer["model"] == "script" and answer["eval_count"] == len(WORDS) + 1
    found = lines(server)
    assert "".join(line["message"]["content"] for line in found) == TEXT and found[-1]["message"]["content"] == ""
    assert ask(server, model="script:latest")["model"] == "script:latest"


def test_options(server):
    cut = ask(server, options={"num_predict": 2, "num_ctx": 64, "num_gpu": 1, "mirostat": 0})
    assert cut["done_reason"] == "length" and cut["message"]["content"] == "".join(WORDS[:2])
    assert ask(server, options={"stop": ["ld"], "num_predict": -1})["message"]["content"] == "Hello, wor"
    assert ask(server, options={"num_predict": 5000}, chat_template_kwargs={"count": True})["done_reason"] == "length"
    assert "temperature" in error(post(server, "/api/chat", messages=USER, options={"temperature": "hot"}), 400)


def test_thinking(server):
    answer = ask(server, think=True)
    assert answer["message"] == {"role": "assistant", "content": "The answer", "thinking": "I think so"}
    found = lines(server, think=True)
    assert "".join(line["message"].get("thinking", "") for line in found) == "I think so"
    history = [*USER, answer["message"], *USER]
    assert ask(server, messages=history, think=False)["message"]["content"] == TEXT


def test_tools(server):
    answer = ask(server, tools=TOOLS)["message"]
    assert answer["content"] == "Let me look"
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in answer["tool_calls"]]
    assert calls == [("get_weather", {"city": "Paris"}), ("get_time", {})]
    streamed = [c for line in lines(server, tools=TOOLS) for c in line["message"].get("tool_calls", [])]
    assert [c["function"]["name"] for c in streamed] == ["get_weather", "get_time"]
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    history = [*USER, {"role": "assistant", "content": "", "tool_calls": [call]},
               {"role": "tool", "tool_name": "get_weather", "content": "rain"}]
    assert ask(server, messages=history, tools=TOOLS)["message"]["content"] == "Let me look"


def test_format(server):
    shape = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}
    assert json.loads(ask(server, format=shape, options={"temperature": 0})["message"]["content"]) == {"a": 1}
    assert error(post(server, "/api/chat", messages=USER, format="xml"), 400).startswith("format")


def test_generate(server):
    answer = ask(server, "/api/generate")
    assert answer["response"] == TEXT and "message" not in answer
    assert "".join(line["response"] for line in lines(server, "/api/generate", system="Be brief")) == TEXT
    assert ask(server, "/api/generate", prompt="abc", raw=True, options={"num_predict": 4})["response"] == "defg"
    assert "suffix" in error(post(server, "/api/generate", prompt="a", suffix="b"), 400)


def test_without_words_the_model_is_loaded(server):
    for path, fields in (("/api/chat", {}), ("/api/chat", {"messages": []}), ("/api/generate", {})):
        answer = post(server, path, **fields | {"stream": False}).json()
        assert answer["done"] is True and answer["done_reason"] == "load" and answer["model"] == "script"
    assert post(server, "/api/generate", keep_alive=0, stream=False).json()["done_reason"] == "unload"


def test_models(server):
    tags = server.request("GET", "/api/tags").json()["models"]
    assert [m["name"] for m in tags] == ["script", "minilm"]
    for model in tags:
        assert {"name", "model", "modified_at", "size", "digest", "details"} == set(model) and len(model["digest"]) == 64
        assert {"format", "family", "families", "parameter_size", "quantization_level"} <= set(model["details"])
    assert all({"expires_at", "size_vram"} <= set(m) for m in server.request("GET", "/api/ps").json()["models"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", server.request("GET", "/api/version").json()["version"])
    for fields in ({"model": "script"}, {"model": None, "name": "script:latest"}):
        shown = post(server, "/api/show", **fields).json()
        assert shown["capabilities"] == ["completion", "tools"]
        architecture = shown["model_info"]["general.architecture"]
        assert shown["model_info"][f"{architecture}.context_length"] == 512 and "im_start" in shown["template"]
    assert post(server, "/api/show", model="minilm").json()["capabilities"] == ["embedding"]


def test_embed(server):
    one, two = post(server, "/api/embed", model="minilm", input=["a pipe", "a file"]).json()["embeddings"]
    assert len(one) == len(two) == 384 and one != two
    single = post(server, "/api/embed", model="minilm:latest", input="a pipe", keep_alive="5m").json()
    assert single["embeddings"] == [one] and single["prompt_eval_count"] > 0
    assert post(server, "/api/embeddings", model="minilm", prompt="a pipe").json()["embedding"] == one
    assert len(post(server, "/api/embed", model="minilm", input="a pipe", dimensions=8).json()["embeddings"][0]) == 8
    assert post(server, "/api/embed", model="minilm", input="word " * 5000).status == 200
    assert "tokens" in error(post(server, "/api/embed", model="minilm", input="word " * 5000, truncate=False), 400)
    assert post(server, "/api/embed", model="minilm", input=[]).json()["embeddings"] == []


def test_errors_and_what_does_not_apply(server):
    assert "nothing" in error(post(server, "/api/chat", model="nothing", messages=USER), 404)
    assert "nothing" in error(post(server, "/api/show", model="nothing"), 404)
    error(server.request("POST", "/api/chat", "{"), 400)
    error(server.request("POST", "/api/chat", "{}"), 400)
    error(server.request("GET", "/api/nowhere"), 404)
    error(server.request("GET", "/api/chat"), 405)
    for method, path in (("POST", "pull"), ("POST", "push"), ("POST", "create"), ("POST", "copy"), ("DELETE", "delete")):
        assert "does not apply" in error(server.request(method, f"/api/{path}", "{}"), 400)


def test_unknown_fields_are_passed_over(server):
    assert ask(server, brand_new=1, options={"new_option": 2})["message"]["content"] == TEXT
    assert 'retro_passed_over_total{door="ollama",what="field"}' in server.request("GET", "/metrics").body.decode()


def test_leaving_frees_the_model(server):
    body = json.dumps({"model": "script", "messages": USER, "chat_template_kwargs": {"count": True}})
    with server.socket() as connection:
        connection.sendall(f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        read = b""
        while b'"done":false' not in read:
            part = connection.recv(65536)
            assert part, read
            read += part
    server.wait_until(lambda health: health["running"] == 0, 20)
