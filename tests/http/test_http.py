"""HTTP by hand: pieces of any size, several requests on one connection, limits, hostile bodies."""
import json
import re
import socket

import pytest

from conftest import CONTEXT, MODEL, NEIGHBORS, ROOT

pytestmark = pytest.mark.hostile

BODY = json.dumps({"prompt": "The", "max_tokens": 3, "temperature": 0}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def read_response(file):
    """Status, headers and body of one response with a Content-Length."""
    status = int(file.readline().split()[1])
    headers = {}
    while (line := file.readline()) != b"\r\n":
        name, value = line.decode().split(":", 1)
        headers[name.lower()] = value.strip()
    return status, headers, file.read(int(headers.get("content-length", 0)))


def text(body):
    return json.loads(body)["choices"][0]["text"]


def test_a_body_byte_by_byte(server):
    expected = server.complete("The", max_tokens=3, temperature=0)["choices"][0]["text"]
    with server.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY:
            s.send(bytes([byte]))
        status, _, body = read_response(s.makefile("rb"))
        assert status == 200 and text(body) == expected


def test_chunks_of_one_byte(server):
    expected = server.complete("The", max_tokens=3, temperature=0)["choices"][0]["text"]
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
    with server.socket() as s:
        s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        status, _, body = read_response(s.makefile("rb"))
        assert status == 200 and text(body) == expected


def test_pipelined_requests(server):
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    with server.socket() as s:
        s.sendall(request + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + request)
        file = s.makefile("rb")
        first, health, second = (read_response(file) for _ in range(3))
    assert [r[0] for r in (first, health, second)] == [200, 200, 200]
    assert json.loads(health[2])["status"] == "ok"
    assert text(first[2]) == text(second[2])
    assert len({r[1]["x-request-id"] for r in (first, health, second)}) == 3


def test_a_connection_is_kept(server):
    with server.socket() as s:
        file = s.makefile("rb")
        for _ in range(3):
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            status, headers, _ = read_response(file)
            assert status == 200 and headers.get("connection", "keep-alive").lower() == "keep-alive"


def test_expect_continue(server):
    with server.socket() as s:
        file = s.makefile("rb")
        s.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert file.readline().startswith(b"HTTP/1.1 100") and file.readline() == b"\r\n"
        s.sendall(BODY)
        assert read_response(file)[0] == 200
    with server.socket() as s:  # refused before it is sent
        s.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 5000000\r\n\r\n")
        status, _, body = read_response(s.makefile("rb"))
        assert status == 413
        assert "5000000 bytes, the limit is 4194304 (option server.max_body_bytes)" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("value", [b"nonsense", b"100-continue, nonsense", b"100-continued"])
def test_expectations_that_nobody_knows(server, value):
    with server.socket() as s:
        s.sendall(HEAD + b"Expect: %s\r\nContent-Length: %d\r\n\r\n" % (value, len(BODY)))
        status, _, body = read_response(s.makefile("rb"))
        assert status == 417 and json.loads(body)["error"]["code"] == "unknown_expectation"
    with server.socket() as s:
        s.sendall(HEAD + b"Expect: 100-Continue\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        file = s.makefile("rb")
        assert file.readline().startswith(b"HTTP/1.1 ")


def test_head(server):
    with server.socket() as s:
        file = s.makefile("rb")
        s.sendall(b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert file.readline().startswith(b"HTTP/1.1 200")
        while file.readline() != b"\r\n":
            pass
        assert read_response(file)[0] == 200  # nothing of a body came in between


@pytest.mark.parametrize(
    "method, path, status, code",
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/page/", 404, "not_found"),
        ("GET", "/page/../health", 404, "not_found"),
        ("GET", "/v1/completions/", 404, "not_found"),
        ("GET", "/v1/models/", 404, "not_found"),
        ("GET", "/v1/models/retro-docs/x", 404, "model_not_found"),
        ("GET", "/v1/models/retro-docs%00x", 404, "model_not_found"),
        ("GET", "/health%00x", 404, "not_found"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("PUT", "/v1/retrieval/search", 405, "method_not_allowed"),
        ("OPTIONS", "/nowhere", 404, "not_found"),
    ],
)
def test_routes(server, method, path, status, code):
    reply = server.request(method, path)
    assert reply.status == status and reply.error()["code"] == code
    if status == 405:
        assert reply.headers["Allow"] and method not in reply.headers["Allow"]


@pytest.mark.parametrize(
    "path, allow",
    [
        ("/v1/completions", "POST, OPTIONS"),
        ("/v1/models", "GET, HEAD, OPTIONS"),
        ("/v1/models/retro-docs", "GET, HEAD, OPTIONS"),
        ("/v1/retrieval/search", "GET, HEAD, POST, OPTIONS"),
        ("/health", "GET, HEAD, OPTIONS"),
    ],
)
def test_what_a_path_takes(server, path, allow):
    reply = server.request("PATCH", path)
    assert reply.status == 405 and reply.headers["Allow"] == allow
    assert path in reply.error()["message"] and allow in reply.error()["message"]


def test_headers_of_answers(server):
    for path, status in (("/health", 200), ("/v1/models", 200), ("/nowhere", 404)):
        reply = server.request("GET", path)
        assert reply.status == status
        assert reply.headers.get_all("Content-Type") == ["application/json"]
        assert reply.headers.get_all("Cache-Control") == ["no-store"]
        assert "Retry-After" not in reply.headers and "Allow" not in reply.headers


def test_a_route_has_its_own_limit_of_a_body(server):
    reply = server.post({"query": "a" * 100_000}, "/v1/retrieval/search")
    assert reply.status == 413 and reply.error()["code"] == "body_too_large"
    assert "/v1/retrieval/search is 65536" in reply.error()["message"]


def test_models(server):
    listed = server.request("GET", "/v1/models").json()
    assert listed["object"] == "list"
    model, embedder = listed["data"]
    assert embedder["meta"]["role"] == "embedder"
    assert model == server.request("GET", "/v1/models/retro-docs").json()
    assert model["object"] == "model" and model["max_model_len"] == CONTEXT
    retro = model["meta"]["retro"]
    assert (retro["chunk_length"], retro["num_neighbors"], retro["retrieved_length"]) == (64, NEIGHBORS, 128)
    assert retro["chunks"] > 20 and retro["generation"] == 1


def test_the_folder_names_the_model(start):
    assert start(f"model.path={ROOT / 'models' / MODEL}//").request("GET", "/v1/models").json()["data"][0]["id"] == MODEL


def test_content_types(server):
    def ask(kind):
        return server.request("POST", "/v1/completions", BODY, {"Content-Type": kind} if kind else {})

    for kind in (None, "application/json; charset=utf-8", "application/x-www-form-urlencoded", "Application/JSON"):
        assert ask(kind).status == 200, kind
    for kind in ("multipart/form-data; boundary=x", "application/xml", "image/png"):
        reply = ask(kind)
        assert reply.status == 415 and reply.error()["code"] == "unsupported_media_type"


@pytest.mark.parametrize("body", [b"", b"{", b'{"prompt": "a",}', b"\xff", b"null", b'"a"', b"{}" * 2, b"[" * 100000])
def test_malformed_bodies(server, body):
    reply = server.request("POST", "/v1/completions", body)
    assert reply.status == 400 and reply.error()["type"] == "invalid_request_error"


def test_an_encoded_body_is_refused_by_name(server):
    def ask(encoding):
        return server.request("POST", "/v1/completions", BODY, {"Content-Encoding": encoding})

    assert ask("identity").status == 200
    reply = ask("gzip")
    assert reply.status == 415 and reply.error()["code"] == "unsupported_media_type" and "gzip" in reply.error()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nContent-Length: 61\r\n",
        b"Content-Length: 61\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: \r\n",
    ],
)
def test_a_body_without_a_clear_end_ends_the_connection(server, headers):
    """The bytes behind it may be somebody else's request, seen through a proxy: it must not be answered."""
    with server.socket() as s:
        s.sendall(HEAD + headers + b"\r\n" + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = s.makefile("rb").read()  # to the end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 400 ") and b"ambiguous_body" in answer
    assert answer.count(b"HTTP/1.1") == 1 and b'"status"' not in answer


def test_malformed_json_says_where(server):
    reply = server.request("POST", "/v1/completions", b'{"prompt": "a",\n  "stop": nope}')
    assert re.search(r"request:2:\d+: not JSON", reply.error()["message"])


def test_a_large_body(server):
    reply = server.request("POST", "/v1/completions", b'{"prompt": "' + b"a" * 5_000_000 + b'"}')
    assert reply.status == 413 and reply.error()["code"] == "body_too_large"
    with server.socket() as s:  # of unannounced length
        piece = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + piece * 80 + b"0\r\n\r\n")
        assert read_response(s.makefile("rb"))[0] == 413


@pytest.mark.parametrize("size", [100, 200_000, 2_000_000])
@pytest.mark.parametrize("before", [b"", b"2\r\n{ \r\n"], ids=["first", "later"])
def test_large_chunk_extensions(server, before, size):
    """Too large a one is the client's fault, and is told as one."""
    with server.socket() as s:
        try:
            s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + before + b"%x;a=" % len(BODY) + b"b" * size + b"\r\n" + BODY + b"\r\n0\r\n\r\n")
        except OSError:
            pass  # it was answered before all of it was sent
        status, _, body = read_response(s.makefile("rb"))
    assert status in ((200, 400) if size == 100 else (413,)), body
    assert status != 413 or json.loads(body)["error"]["code"] == "body_too_large", body
    assert server.health()["status"] == "ok"


def test_large_headers(server):
    reply = server.request("GET", "/health", headers={"X-Filler": "a" * 20000})
    assert reply.status == 431 and "the limit is 16384" in reply.error()["message"]
    with server.socket() as s:  # more than the connection's memory: the library refuses by itself
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Filler: " + b"a" * 200000 + b"\r\n\r\n")
        assert b" 431 " in s.makefile("rb").readline()
    assert server.health()["status"] == "ok"


@pytest.mark.parametrize(
    "request_, status, code",
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Filler: " + b"a" * 200000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Filler: a\r\n" * 20000 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "target_too_long"),
        (b"GET /health HTTP/7.0\r\nHost: localhost\r\n\r\n", 505, "malformed_request"),
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", 400, "malformed_request"),
        (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: z\r\n\r\n{}", 400, "malformed_request"),
    ],
    ids=["header", "headers", "target", "version", "chunk", "length"],
)
def test_what_the_library_refuses_is_in_the_form_of_the_api(server, request_, status, code):
    with server.socket() as s:
        s.sendall(request_)
        got, headers, body = read_response(s.makefile("rb"))
    assert got == status and headers["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert error["code"] == code and set(error) == {"message", "type", "param", "code"}
    assert server.health()["status"] == "ok"


def memory(server, field):
    status = open(f"/proc/{server.process.pid}/status").read()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024


def test_hostile_bodies_cost_no_memory(start):
    """jansson needs up to 80 times a body's size for such: 4 MiB of them would be 320 MB."""
    server = start()
    server.complete("warm", max_tokens=2)
    before = memory(server, "VmHWM")
    for piece in (b"{},", b"[],", b"1,", b'"a",', b'{"a":'):
        body = b'{"prompt": [' + piece * (4_000_000 // len(piece)) + b"1]}"
        reply = server.request("POST", "/v1/completions", body)
        assert reply.status == 400 and reply.error()["code"] == "too_many_values"
    # Copies of the body while it grows; under AddressSanitizer freed ones stay for a while.
    assert memory(server, "VmHWM") - before < 96 << 20
    assert server.health()["status"] == "ok"


@pytest.mark.parametrize(
    "junk",
    [
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%00%0a%0d%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_junk_harms_nobody(server, junk):
    with server.socket() as s:
        s.sendall(junk)
        s.shutdown(socket.SHUT_WR)
        s.settimeout(5)
        try:
            while s.recv(4096):
                pass
        except (TimeoutError, ConnectionResetError):
            pass
    assert server.complete("The", max_tokens=1)["usage"]["completion_tokens"] == 1
