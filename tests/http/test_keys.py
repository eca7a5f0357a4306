"""Who is let in: keys and their limits, addresses, and whose turn it is."""
import concurrent.futures
import json
import re
import signal
import subprocess
import time

import openai
import pytest

from conftest import BUILD, MODEL
from test_lifecycle import LONG, SOON, idle, send


def new_key(name, **limits):
    """A key, and its line for the file."""
    done = subprocess.run([BUILD / "retro-server", "--new-key", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    secret = re.search(r"retro-[0-9a-f]{64}", done.stderr)[0]
    assert secret not in done.stdout
    return secret, json.dumps({**json.loads(done.stdout), **limits})


class Keys:
    """A file of keys."""

    def __init__(self, path):
        self.path, self.lines, self.secrets = path, ["# keys of the test", ""], {}

    def add(self, name, **limits):
        self.secrets[name], line = new_key(name, **limits)
        self.lines.append(line)
        self.write()
        return self.secrets[name]

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")


@pytest.fixture
def keys(tmp_path):
    return Keys(tmp_path / "keys.jsonl")


def ask(server, headers, prompt="The", **fields):
    return server.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 1, **fields}), headers)


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def refused(server, secret):
    """The first answer that is no 200: an answer may be there before it is counted."""
    deadline = time.monotonic() + 20
    while (reply := ask(server, bearer(secret))).status == 200:
        assert time.monotonic() < deadline
    return reply


def log_holds(server, words, times=1):
    deadline = time.monotonic() + 20
    while server.log.read_text().count(words) < times:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.02)


def test_a_key_is_needed(start, keys):
    secret = keys.add("alice")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=", "log.level=debug",
                   "server.cors_origins=https://page.example")
    for headers in (bearer(secret), {"Authorization": f"bearer  {secret}"}, {"X-Api-Key": secret}, {"api-key": secret},
                    {"Authorization": "Bearer ", "X-Api-Key": secret}):
        assert ask(server, headers).status == 200, headers
    for headers, code in (({}, "missing_api_key"), (bearer(""), "missing_api_key"), (bearer("none"), "invalid_api_key"),
                          (bearer(secret[:-1]), "invalid_api_key"), (bearer(9000 * "x"), "invalid_api_key"),
                          ({"Authorization": f"Basic {secret}"}, "missing_api_key")):
        reply = ask(server, {**headers, "Origin": "https://page.example"})
        error = reply.error()
        assert (reply.status, error["type"], error["code"]) == (401, "authentication_error", code), headers
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert reply.headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert server.request("GET", "/v1/models").status == 401
    assert server.request("GET", "/nothing").status == 401
    for path in ("/livez", "/readyz"):
        assert server.request("GET", path).status == 200
    for path in ("/health", "/metrics", "/version", "/openapi.json"):
        assert server.request("GET", path).status == 401, "metrics name keys"
    preflight = server.request("OPTIONS", "/v1/completions", headers={"Origin": "https://page.example"})
    assert preflight.status == 204 and "Authorization" in preflight.headers["Access-Control-Allow-Headers"]

    client = openai.OpenAI(base_url=server.url + "/v1", api_key=secret, max_retries=0)
    assert client.completions.create(model=MODEL, prompt="The", max_tokens=1).usage.completion_tokens == 1
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="none").models.list()

    server.stop()
    log = server.log.read_text()
    assert secret not in log and json.loads(keys.lines[2])["sha256"] not in log and secret[:-1] not in log


def test_a_body_without_a_key_is_not_read(start, keys):
    keys.add("alice")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    with server.socket() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 401 ")


def test_requests_a_minute(start, keys):
    secret = keys.add("alice", requests_per_minute=3)
    other = keys.add("bob")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    statuses = [ask(server, bearer(secret)).status for _ in range(3)]
    reply = ask(server, bearer(secret))
    assert statuses == [200] * 3 and reply.status == 429
    error = reply.error()
    assert error["type"] == "rate_limit_error" and error["code"] == "rate_limit_exceeded"
    assert "alice may have 3 requests a minute" in error["message"]
    assert 1 <= int(reply.headers["Retry-After"]) <= 20
    assert ask(server, bearer(other)).status == 200, "another key has limits of its own"
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=server.url + "/v1", api_key=secret, max_retries=0).models.list()


def test_requests_at_a_time(start, keys):
    secret = keys.add("alice", concurrent=1)
    server = start(f"server.keys_file={keys.path}", "server.operations=open", "retrieval.collection=")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key=secret, max_retries=0)
    stream = client.completions.create(model=MODEL, prompt="The", stream=True, max_tokens=480, extra_body={"ignore_eos": True})
    next(iter(stream))
    reply = ask(server, bearer(secret))
    assert reply.status == 429 and "1 requests at a time" in reply.error()["message"]
    stream.close()
    server.wait_until(idle, 60)
    deadline = time.monotonic() + 20
    while ask(server, bearer(secret)).status != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"max_tokens": 200, "ignore_eos": True}])
def test_a_request_right_behind_an_answer(start, keys, fields):
    """A request counts no more once its client has the last byte of the answer."""
    secret = keys.add("alice", concurrent=1)
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    for _ in range(20 if "max_tokens" in fields else 100):
        reply = ask(server, bearer(secret), **fields)
        assert reply.status == 200, reply.body


@pytest.mark.parametrize("path, body", [("/v1/completions", {"prompt": "The " * 99, "max_tokens": 20, "ignore_eos": True}),
                                        ("/v1/embeddings", {"input": "The " * 150})])
def test_tokens(start, keys, path, body):
    """What is over the budget has to be made up for, at one token a second here."""
    secret = keys.add("alice", tokens_per_minute=60)
    server = start(f"server.keys_file={keys.path}")
    reply = server.request("POST", path, json.dumps(body), bearer(secret))
    used = reply.json()["usage"]["total_tokens"]
    assert reply.status == 200 and used > 100
    reply = refused(server, secret)
    assert reply.status == 429 and "60 tokens a minute" in reply.error()["message"]
    assert used - 60 - 20 < int(reply.headers["Retry-After"]) <= used - 60 + 20


def test_the_file_is_read_again(start, keys):
    secret = keys.add("alice", tokens_per_day=1)
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    assert refused(server, secret).status == 429
    later = keys.add("bob")
    assert ask(server, bearer(later)).status == 401
    server.process.send_signal(signal.SIGHUP)
    log_holds(server, "keys: 2, from")
    assert ask(server, bearer(later)).status == 200
    assert ask(server, bearer(secret)).status == 429, "what was used stays used"

    keys.path.write_text(keys.lines[-1] + '\n{"name": "eve", "sha256": "not a hash, but a secret"}\n')
    server.process.send_signal(signal.SIGHUP)
    log_holds(server, "the keys are as before")
    assert re.search(r"keys\.jsonl:2: .*sha256", server.log.read_text())
    assert "but a secret" not in server.log.read_text()
    assert ask(server, bearer(later)).status == 200 and ask(server, bearer(secret)).status == 429

    keys.path.write_text(keys.lines[-1] + "\n")
    server.process.send_signal(signal.SIGHUP)
    log_holds(server, "keys: 1, from", times=2)
    assert ask(server, bearer(secret)).status == 401, "a key that is gone is gone"


def test_operators(start, keys):
    """Metrics name keys: where there are keys, one of them is asked for."""
    user, operator = keys.add("alice"), keys.add("root", operations=True)
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    for path in ("/health", "/metrics", "/version", "/openapi.json"):
        statuses = [server.request("GET", path, headers=h).status for h in ({}, bearer(user), bearer(operator))]
        assert statuses == [401, 403, 200], path
    for path in ("/livez", "/readyz"):
        assert server.request("GET", path).status == 200
    assert ask(server, bearer(operator)).status == 200
    local = start("server.operations=local", "retrieval.collection=")
    assert local.request("GET", "/metrics").status == 200


def test_the_description_says_where_a_key_is_needed(start, keys):
    keys.add("alice")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=", "server.operations=open")
    page = server.request("GET", "/openapi.json").json()
    assert page["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    for path, methods in page["paths"].items():
        for operation in methods.values():
            needed = operation["security"] == [{"bearer": []}, {"header": []}]
            assert needed == path.startswith(("/v1/", "/mcp", "/api/", "/tokenize", "/detokenize", "/tokenizer_info", "/props",
                                                "/embed_sparse")), path
            assert not needed or {"401", "403", "429"} <= set(operation["responses"])


def test_networks(start):
    server = start("server.allow=10.0.0.0/8", "retrieval.collection=")
    reply = server.post({"prompt": "The"})
    assert reply.status == 403 and reply.error()["code"] == "address_not_allowed"
    assert "127.0.0.1" in reply.error()["message"] and reply.error()["type"] == "permission_error"
    assert server.request("GET", "/livez").status == 403
    both = start('server.allow=["10.0.0.0/8","127.0.0.0/30"]', "retrieval.collection=")
    assert both.complete("The", max_tokens=1)


def test_one_client_does_not_fill_the_queue(start, keys):
    """One has 100 requests, another has one: it is let in, and written next."""
    many, one = keys.add("many"), keys.add("one")
    server = start(f"server.keys_file={keys.path}", "server.operations=open", "retrieval.collection=", "server.max_sequences=2",
                   "server.max_queue=20")
    sockets = []
    body = json.dumps({"prompt": "The", **LONG}).encode()
    for _ in range(100):
        s = server.socket()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
                  % (many.encode(), len(body), body))
        sockets.append(s)
    server.wait_until(lambda h: h["running"] == 2 and h["waiting"] >= 20, 60)
    assert ask(server, bearer(many)).status == 503
    before = server.health()["generated_tokens"]
    assert ask(server, bearer(one)).status == 200
    assert server.health()["generated_tokens"] - before < 4 * 480, "it waited for a sequence, not for the queue"
    for s in sockets:
        s.close()
    server.wait_until(idle, 60)


def test_the_embedder_takes_turns(start, keys):
    """One client's 2048 texts do not keep another's one text waiting."""
    many, one = keys.add("many"), keys.add("one")
    server = start(f"server.keys_file={keys.path}", "server.operations=open")

    def embed(secret, texts):
        return server.request("POST", "/v1/embeddings", json.dumps({"input": texts}), bearer(secret)).status

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(embed, many, [f"text number {i}" for i in range(2048)])
        deadline = time.monotonic() + 20
        while b'retro_key_requests_running{key="many"} 1' not in server.request("GET", "/metrics").body:
            assert time.monotonic() < deadline
        assert embed(one, ["a text"]) == 200 and not slow.done()
        assert slow.result() == 200


@pytest.mark.parametrize("sets, path, body", [
    (["server.max_sequences=1"], "/v1/completions", {"prompt": ["The"] * 16, **LONG}),
    ([], "/v1/embeddings", {"input": ["The " * 200] * 2000})])
def test_a_request_has_its_time(start, sets, path, body):
    """What is not written in time is given up, in the words of the API; a stream ends with them."""
    server = start("server.request_timeout=1", *sets)
    started = time.monotonic()
    reply = server.post(body, path)
    assert reply.status == 503 and "option server.request_timeout" in reply.error()["message"]
    assert time.monotonic() - started >= 1
    if path == "/v1/completions":
        *_, last = server.stream(["The"] * 16, **LONG)
        assert "option server.request_timeout" in last["error"]["message"]
    server.wait_until(idle, 20)
    assert server.complete("The", max_tokens=1)


def keep_busy(server):
    """Two requests at work. The connection that asked before may count for a moment, and keep the second one out."""
    for _ in range(5):
        busy = [send(server, {"prompt": ["The"] * 16, **LONG}) for _ in range(2)]
        try:
            server.wait_until(lambda h: h["running"] == 1 and h["waiting"] >= 31, 60)
            return busy
        except AssertionError:
            for s in busy:
                s.close()
            server.wait_until(idle, 60)
    raise AssertionError("one of two requests is refused again and again")


def test_connections_of_one_client(start):
    """An idle one makes room; where all are at work, requests of more are refused."""
    server = start("server.max_client_connections=2", "server.max_sequences=1", "retrieval.collection=")
    held = [server.socket() for _ in range(2)]
    time.sleep(1.1)
    assert server.complete("The", max_tokens=1), "one of the idle ones was closed"
    for s in held:
        s.close()
    deadline = time.monotonic() + 20
    while b"\nretro_http_connections 1\n" not in server.request("GET", "/metrics").body:
        assert time.monotonic() < deadline
    busy = keep_busy(server)
    reply = server.post({"prompt": "The"})
    assert reply.status == 429 and reply.headers["Retry-After"] == "1"
    assert reply.error()["code"] == "too_many_connections"
    for s in busy:
        s.close()
    server.wait_until(idle, 20)
    assert server.complete("The", max_tokens=1)


@pytest.mark.parametrize("option, words", [("server.keys_file=/nowhere", "server.keys_file: /nowhere"),
                                           ("server.allow=10.0.0.0/33", "server.allow: \"10.0.0.0/33\" is no network"),
                                           ("server.operations=key", "which needs server.keys_file")])
def test_wrong_options(config, option, words):
    done = subprocess.run([BUILD / "retro-server", "--config", config, "--set", option], capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stderr


def test_keys_of_ones_own(keys):
    def run(secret, *arguments):
        return subprocess.run([BUILD / "retro-server", *arguments], input=secret, capture_output=True, text=True)

    secret, line = new_key("alice")
    done = run(secret + "\n", "--hash-key", "alice")
    assert done.returncode == 0 and json.loads(done.stdout) == json.loads(line)
    short = run("password\n", "--hash-key", "alice")
    assert short.returncode == 1 and "8 bytes" in short.stderr and "password" not in short.stderr
    assert run("", "--new-key", "a b").returncode == 1
