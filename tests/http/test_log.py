"""The log: one line a request, as text or JSON, with the names that the client gives it; never a prompt or a key."""
import http.client
import json
import re
import time

import pytest

from test_keys import ask, bearer, keys, log_holds, new_key  # noqa: F401
from test_lifecycle import send

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def records(server, n=1):
    """The lines of requests, when there are n."""
    deadline = time.monotonic() + 20
    while True:
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        found = [line for line in lines if line.get("event") == "request"]
        if len(found) >= n:
            return found
        assert time.monotonic() < deadline, lines
        time.sleep(0.02)


def request(server, headers, path="/v1/completions", body='{"prompt": "a very secret prompt", "max_tokens": 3}'):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply


@pytest.fixture
def start_json(start):
    """Servers whose whole log is JSON."""
    return lambda *sets: start("log.format=json", "retrieval.collection=", *sets)


def test_json(start_json, keys):
    secret = keys.add("alice")
    server = start_json(f"server.keys_file={keys.path}", "log.level=debug")
    reply = request(server, {**bearer(secret), "X-Request-Id": "my-request.7", "traceparent": TRACE})
    assert reply.status == 200 and reply.headers["x-request-id"] == "my-request.7"
    request(server, bearer("an-invalid-key-of-somebody"), path="/v1/compl%C3%A9tions%00?q=very+secret")
    # A line is written when its exchange ends, and the ends of two connections have no order.
    first, second = sorted(records(server, 2), key=lambda record: record["id"] != "my-request.7")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"]) and first["level"] == "info"
    assert 0 < first.pop("seconds") < 60
    assert first.pop("time") and first.pop("level") and first.pop("bytes_out") > 100
    assert first.pop("tokens_read") > 0
    assert first == {"event": "request", "id": "my-request.7", "client": "127.0.0.1", "key": "alice", "method": "POST",
                     "path": "/v1/completions", "status": 200, "bytes_in": 51, "tokens_written": 3,
                     "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "parent_id": "00f067aa0ba902b7", "sampled": True}
    assert second["status"] == 401 and "key" not in second and second["id"].startswith("req-")
    with server.socket() as s:  # a head that is refused, with the key in it
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer %s\r\n\r\n" % secret.encode())
        assert s.recv(100).startswith(b"HTTP/1.1 400")
    server.stop()
    log = server.log.read_text()
    for word in (secret, json.loads(keys.lines[-1])["sha256"], "an-invalid-key", "very secret"):
        assert word not in log
    assert all(json.loads(line)["level"] for line in log.splitlines())


@pytest.mark.parametrize("id", ["", "a b", "a" * 65, "a/b", "\u00e9", 'x"y'])
def test_an_id_that_is_no_id_is_not_taken(server, id):
    reply = request(server, {"X-Request-Id": id.encode()})
    assert reply.status == 200 and reply.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize("trace", ["", TRACE[:-1], TRACE + "-", "ff" + TRACE[2:], TRACE.upper(), TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
                                   TRACE.replace("-", "_")])
def test_a_trace_that_is_none_is_not_logged(server, trace):
    assert request(server, {"traceparent": trace, "X-Request-Id": "none"}).status == 200
    log_holds(server, "none POST")
    assert "trace=" not in server.log.read_text()


def test_text(start, keys):
    secret = keys.add("alice")
    server = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    request(server, {**bearer(secret), "X-Request-Id": "x-1", "traceparent": "01" + TRACE[2:] + "-more"})
    log_holds(server, " key=alice trace=4bf92f3577b34da6a3ce929d0e0e4736\n")
    assert re.search(r"info  x-1 POST /v1/completions 200 \d+ ms key=alice", server.log.read_text())


def test_prompts_are_there_when_asked_for(start_json):
    server = start_json("log.prompts=true")
    request(server, {}, body='{"prompt": "a very \\u00e9 secret\\nprompt", "max_tokens": 1}')
    records(server)  # a record comes behind the answer, and may come behind the next one's
    request(server, {}, body='{"prompt": ' + 9000 * " " + '"The", "max_tokens": 1}')
    first, second = records(server, 2)
    assert json.loads(first["body"])["prompt"] == "a very \u00e9 secret\nprompt"
    assert len(second["body"]) == 4096


def test_a_client_that_left(start_json):
    server = start_json()
    s = send(server, {"prompt": "The", "max_tokens": 480, "ignore_eos": True})
    server.wait_until(lambda h: h["running"] == 1, 20)
    s.close()
    deadline = time.monotonic() + 20
    while not (left := [r for r in records(server) if r["status"] == 499]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert left[0]["reason"] == "the client left" and left[0]["bytes_out"] == 0
