"""Heads at and past the limits: long ones, and ones of many arguments, cookies, headers and trailers. The HTTP library
refuses some of them in the midst of reading, when the memory of the connection ends."""
import json
import socket

import pytest

from test_http import read_response
from test_lifecycle import LONG, SOON, idle, send

pytestmark = pytest.mark.hostile

LINE = b" HTTP/1.1\r\nHost: localhost\r\n"
POST = b"Content-Length: 2\r\n\r\n{}"
SIZES = sorted({size + more for power in range(4, 18) for size in [1 << power] for more in (-1, 0, 1)} | {60_000, 100_000})
TARGETS = {
    "short arguments": lambda n: b"/v1/models?" + b"a=b&" * (n // 4),
    "names": lambda n: b"/v1/models?" + b"a&" * (n // 2),
    "nothing": lambda n: b"/v1/models?" + b"&" * n,
    "a long argument": lambda n: b"/v1/models?a=" + b"b" * n,
    "long arguments": lambda n: b"/v1/models?" + b"&".join([b"a=" + b"b" * 1000] * (n // 1000 + 1)),
    "escapes": lambda n: b"/v1/models?" + b"%00=%41+&" * (n // 9),
    "a long path": lambda n: b"/" + b"%41" * (n // 3),
    "behind a NUL": lambda n: b"/v1\0models?" + b"a=b&" * (n // 4),
}
HEADERS = {
    "cookies": lambda n: b"Cookie: " + b"a;" * (n // 2) + b"\r\n",
    "cookies with values": lambda n: b"Cookie: " + b"a=b; " * (n // 5) + b"\r\n",
    "a long cookie": lambda n: b"Cookie: a=" + b"b" * n + b"\r\n",
    "cookies apart": lambda n: b"Cookie: a=b\r\n" * (n // 13),
    "short headers": lambda n: b"a:b\r\n" * (n // 5),
    "a folded header": lambda n: b"a: b\r\n" + b" c\r\n" * (n // 4),
}


def heads():
    for name, make in TARGETS.items():
        yield name, lambda n, make=make: make(n) + LINE
    for name, make in HEADERS.items():
        yield name, lambda n, make=make: b"/v1/models" + LINE + make(n)
    yield "blank lines first", lambda n: b"/v1/models?" + b"a=b&" * 2000 + LINE + b"Cookie: " + b"a;" * (n // 2) + b"\r\n"


def answer(server, request):
    """The status of its one answer, None: the connection ended without one."""
    with server.socket() as s:
        try:
            s.sendall(request)
            got = read_response(s.makefile("rb"))
        except (ConnectionError, IndexError):
            return None
    if got[0] >= 400:
        assert json.loads(got[2])["error"]["message"]
    return got[0]


@pytest.mark.parametrize("name, make", list(heads()), ids=[name for name, _ in heads()])
def test_heads_of_all_sizes(server, name, make):
    """Beside a request that runs: it goes on, and nothing but answers comes back."""
    busy = send(server, {"prompt": ["The"] * 4, **LONG})
    for method, end in ((b"GET ", b"\r\n"), (b"POST ", POST), (b"\r\n" * 15000 + b"GET ", b"\r\n")):
        for size in SIZES:
            status = answer(server, method + make(size) + end)
            assert status in (200, 400, 404, 405, 414, 431, None), (size, status)
            if size <= 64 and name not in ("behind a NUL", "a folded header", "blank lines first"):
                assert status in (200, 404, 405), (size, status)
    busy.close()
    server.wait_until(idle, 20 + SOON)
    assert server.complete("The", max_tokens=1)


def test_trailers_of_all_sizes(server):
    head = b"POST /tokenize" + LINE + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    for size in SIZES:
        for trailer in (b"a:b\r\n" * (size // 5), b"a: " + b"b" * size + b"\r\n", b"Cookie: " + b"a;" * (size // 2) + b"\r\n"):
            assert answer(server, head + trailer + b"\r\n") in (400, 431, None)
    assert server.complete("The", max_tokens=1)


def test_many_arguments_are_refused_by_their_number(server):
    for n, status in ((1, 200), (64, 200), (65, 400), (1000, 400)):
        reply = server.request("GET", "/v1/models?" + "&".join(f"a{i}=b" for i in range(n)))
        assert reply.status == status, n
    assert reply.error()["code"] == "too_many_arguments" and "more than 64 arguments" in reply.error()["message"]


def test_arguments_are_read_as_forms_write_them(server):
    """Blanks as "+", escapes, a name without a value; a NUL is refused, and cuts nothing."""
    reply = server.request("GET", "/v1/retrieval/search?q=stop+the%20server&k=2")
    assert reply.status == 200 and len(reply.json()["data"]) == 2
    assert server.request("GET", "/v1/retrieval/search?q=a%00b").status == 400
    assert server.request("GET", "/v1/retrieval/search?q").status == 400


def test_cookies_mean_nothing(server):
    for value in ("a=b", "a=b; c", "a" * 3000, ";;;,,,===", '"', 'a="b;c"'):
        assert server.request("GET", "/v1/models", headers={"Cookie": value}).status == 200
