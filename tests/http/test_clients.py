"""Clients that do not keep to the rules: malformed heads, bodies without end, slow ones, many that ask nothing."""
import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from conftest import BUILD
from test_http import BODY, HEAD, read_response

pytestmark = pytest.mark.hostile

LIMIT = 60  # seconds: nothing here takes so long on any machine
PIPE_SIZE = 1031  # F_SETPIPE_SZ


def ask_raw(server, data):
    """Everything that comes back until the server closes the connection."""
    with server.socket() as s:
        s.settimeout(LIMIT)
        s.sendall(data)
        return s.makefile("rb").read()


def error_of(answer):
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def wait_for_log(server, pattern):
    wait_for(lambda: re.search(pattern, server.log.read_text()), f"no {pattern} in\n{server.log.read_text()}")


# Heads.

NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what a proxy may see as another client's request


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\0b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A\0: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\0X-A: a\r\n\r\n",
        b"GET /health\0x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET\0 /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A : a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A\t: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX(A): a\r\n\r\n",
        b"GET /health HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\r\n b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\r\n\tb\r\nX-B: c\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent: 5\r\n -Length\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nhost: y\r\n\r\n",
        b"GET /health HTTP/1.1\r\nX-A: a\r\n\r\n",
        b"GET /health HTTP/1.1\nHost: x\n\n",
        b"GET /health HTTP/1.1\r\nHost: x\nX-A: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\rX-B: b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\x0bb\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: a\x7f\r\n\r\n",
        b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1 \r\nHost: localhost\r\n\r\n",
        b"GET /health\t HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n",
        b"G(T /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_malformed_head_is_400_and_ends_the_connection(server, head):
    answer = ask_raw(server, head + NEXT)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.") == 1 and b'"status"' not in answer, answer
    assert re.search(rb"connection: close", answer, re.I), answer


def test_a_malformed_head_is_told_why(server):
    error = error_of(ask_raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A : a\r\n\r\n"))
    assert error["code"] == "malformed_request" and "colon" in error["message"]
    wait_for_log(server, r"req-\w+ GET /health 400 ")


@pytest.mark.parametrize(
    "head",
    [
        b"\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",  # RFC 9112, 2.2: an empty line before it is to be ignored
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost:x\r\nX-A:\r\nX-B: \r\nX-C:\t  a b\t c  \r\nX-D: \xc3\xa9\r\n\r\n",
        b"GET /health?a=b%20c&d HTTP/1.1\r\nHost: localhost\r\nCookie: a=b; c=d\r\nX-A: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 90) for i in range(150)) + b"\r\n",
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_good_head_passes_in_pieces_of_any_size(server, head, piece):
    with server.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        file = s.makefile("rb")
        rounds = 1 if b"HTTP/1.0" in head else 3
        for _ in range(rounds):
            for i in range(0, len(head), piece):
                s.sendall(head[i : i + piece])
            status, _, body = read_response(file)
            assert status == 200, body


# Bodies over the limit: the client is told while it sends, and can read it.


def test_a_body_of_one_byte_too_many(start):
    server = start("server.max_body_bytes=2000")

    def body(size):
        start = b'{"max_tokens": 1, "temperature": 0, "prompt": "The"'
        return start + b" " * (size - len(start) - 1) + b"}"

    for size, status in ((2000, 200), (2001, 413)):
        whole = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size + body(size)
        answer = ask_raw(server, whole)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        chunked = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % size + body(size) + b"\r\n0\r\n\r\n"
        answer = ask_raw(server, chunked)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        if status == 413:
            assert "the limit is 2000 (option server.max_body_bytes)" in error_of(answer)["message"]


def test_an_announced_body_over_the_limit_is_413_before_it_is_sent(server):
    answer = ask_raw(server, HEAD + b"Content-Length: 64000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and error_of(answer)["code"] == "body_too_large"
    assert "64000000 bytes, the limit is 4194304" in error_of(answer)["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_first_and_reads_then_sees_its_413(server, chunked):
    with server.socket() as s:
        s.settimeout(LIMIT)
        s.sendall(HEAD + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 64000000\r\n\r\n"))
        piece = b"f4240\r\n" + b"a" * 1_000_000 + b"\r\n" if chunked else b"a" * 1_000_000
        for _ in range(64):
            s.sendall(piece)
        answer = s.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    wait_for_log(server, r"req-\w+ POST /v1/completions 413 ")


def test_a_body_without_end_is_413_and_closed(server):
    with server.socket() as s:
        s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        s.settimeout(0)
        piece, answer, begun = b"10000\r\n" + b"a" * 0x10000 + b"\r\n", b"", time.monotonic()
        ended = False
        while not ended:  # sends and reads as fast as it may
            assert time.monotonic() - begun < 20, answer
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                s.send(piece)
            try:
                data = s.recv(65536)
                answer += data
                ended = data == b""
            except BlockingIOError:
                time.sleep(0.001)
    assert answer.startswith(b"HTTP/1.1 413 ") and error_of(answer)["code"] == "body_too_large"


# Slow clients.


def drip(server, start, byte):
    """Sends a byte every tenth of a second until the server answers or closes: all that it says."""
    with server.socket() as s:
        s.sendall(start)
        s.settimeout(0.1)
        deadline = time.monotonic() + LIMIT
        answer = b""
        while time.monotonic() < deadline:
            try:
                data = s.recv(65536)
                if not data:
                    return answer
                answer += data
            except TimeoutError:
                with contextlib.suppress(OSError):
                    s.send(byte)
            except ConnectionResetError:
                return answer
    raise AssertionError("a connection that sends a byte now and then is kept")


@pytest.mark.parametrize("start_of", [b"G", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: "])
def test_a_slow_head_is_408(start, start_of):
    server = start("server.head_timeout=2")
    answer = drip(server, start_of, b"E")
    assert answer.startswith(b"HTTP/1.1 408 ") and "server.head_timeout" in error_of(answer)["message"]
    wait_for_log(server, r" - - - 408 ")
    with server.socket() as s:  # the time begins with a request, not with the connection
        s.settimeout(LIMIT)
        file = s.makefile("rb")
        for _ in range(2):
            time.sleep(3)
            s.sendall(NEXT)
            assert read_response(file)[0] == 200


@pytest.mark.parametrize(
    "start_of, byte", [(b"Content-Length: 4000\r\n\r\n", b"a"), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n")]
)
def test_a_slow_body_is_408(start, start_of, byte):
    server = start("server.head_timeout=2", "server.min_body_rate=100")
    answer = drip(server, HEAD + start_of, byte)
    assert answer.startswith(b"HTTP/1.1 408 ") and "server.min_body_rate" in error_of(answer)["message"]
    wait_for_log(server, r"req-\w+ POST /v1/completions 408 .*body")


def test_a_body_that_is_fast_enough_may_take_its_time(start):
    server = start("server.head_timeout=1", "server.min_body_rate=50")
    body = BODY + b" " * 500
    with server.socket() as s:
        s.settimeout(LIMIT)
        s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        begun = time.monotonic()
        for i in range(0, len(body), 20):
            s.sendall(body[i : i + 20])
            time.sleep(0.1)
        assert time.monotonic() - begun > 2.5
        assert read_response(s.makefile("rb"))[0] == 200


def test_what_became_of_a_request_is_logged(start):
    server = start("server.connection_timeout=1", "server.min_body_rate=0")
    with server.socket() as s:  # nothing of the body comes
        s.settimeout(LIMIT)
        s.sendall(HEAD + b"Content-Length: 10\r\n\r\n")
        assert s.recv(1) == b""
    wait_for_log(server, r"POST /v1/completions 408 .*the body did not come")
    with server.socket() as s:
        s.sendall(HEAD + b"Content-Length: 10\r\n\r\n")
    wait_for_log(server, r"POST /v1/completions 499 .*the client left")
    body = json.dumps({"prompt": "The", "max_tokens": 400, "ignore_eos": True}).encode()
    with server.socket() as s:
        s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        server.wait_until(lambda h: h["running"] == 1, LIMIT)
    wait_for(lambda: len(re.findall("499 .*the client left", server.log.read_text())) == 2, server.log.read_text())
    assert " 200 " not in re.sub(".*GET /health.*", "", server.log.read_text())


# Connections that ask nothing.


def test_idle_connections_give_way(start):
    server = start("server.connection_timeout=600")  # server.max_connections is 256
    with contextlib.ExitStack() as open_ones:
        idle = [open_ones.enter_context(server.socket()) for _ in range(600)]
        assert server.health()["status"] == "ok"
        assert server.complete("The", max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2
        idle[0].settimeout(LIMIT)
        assert idle[0].recv(1) == b"", "the one that was idle longest was closed"
        idle[-1].sendall(NEXT)  # the youngest was not
        assert read_response(idle[-1].makefile("rb"))[0] == 200


def test_half_a_head_gives_way_after_idle_connections(start):
    server = start("server.max_connections=4", "server.connection_timeout=600", "server.head_timeout=600")
    with contextlib.ExitStack() as open_ones:
        begun = [open_ones.enter_context(server.socket()) for _ in range(40)]
        for s in begun:
            with contextlib.suppress(OSError):
                s.sendall(b"GET /hea")
        assert server.health()["status"] == "ok"


def test_operators_are_answered_when_every_connection_is_busy(start):
    server = start("server.max_connections=3")
    with contextlib.ExitStack() as open_ones:
        for _ in range(3):
            s = open_ones.enter_context(server.socket())
            s.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
            assert b" 100 " in s.recv(100)
            s.sendall(b"a" * 50000)  # busy: a body is on its way
        reply = server.post({"prompt": "The", "max_tokens": 1})
        assert reply.status == 503 and "server.max_connections" in reply.error()["message"] and reply.headers["Retry-After"]
        idle = [open_ones.enter_context(server.socket()) for _ in range(30)]
        assert server.health()["status"] == "ok" and idle
    wait_for(lambda: server.post({"prompt": "The", "max_tokens": 1}).status == 200, "the slots are free again")


# The log.


def test_a_log_that_nobody_reads_stops_nothing(config, tmp_path):
    """A full pipe. Lines that did not fit are counted, and the count is told when somebody reads again."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, PIPE_SIZE, 4096)
    port = free_port()
    command = [BUILD / "retro-server", "--config", config, "--set", f"server.port={port}"]
    with subprocess.Popen(command, stderr=writer) as process:
        os.close(writer)
        try:
            log = b""
            while b"listening" not in log:
                log += os.read(reader, 65536)
            requests = NEXT * 50
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
                file = s.makefile("rb")
                for _ in range(120):
                    s.sendall(requests)
                    for _ in range(50):
                        assert read_response(file)[0] == 200
            process.send_signal(signal.SIGTERM)
            while data := os.read(reader, 65536):
                log += data
        finally:
            os.close(reader)
            process.kill()
        assert process.wait(LIMIT) == 0
    text = log.decode()
    written = len(re.findall(r" GET /health 200 ", text))
    dropped = sum(map(int, re.findall(r"(\d+) lines of this log were dropped", text)))
    assert dropped > 0 and text.count("\n") == len(text.splitlines())
    assert all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in text.splitlines())
    assert 5990 <= written + dropped <= 6010


def test_a_log_that_is_never_read_does_not_keep_the_server(config):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, PIPE_SIZE, 4096)
    port = free_port()
    command = [BUILD / "retro-server", "--config", config, "--set", f"server.port={port}"]
    with subprocess.Popen(command, stderr=writer) as process:
        os.close(writer)
        try:
            log = b""
            while b"listening" not in log:
                log += os.read(reader, 65536)
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
                file = s.makefile("rb")
                for _ in range(200):
                    s.sendall(NEXT)
                    assert read_response(file)[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT) == 0
        finally:
            os.close(reader)
            process.kill()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]
