"""A pytest plugin that keeps what the HTTP tests send, a file a connection: the seeds of tests/fuzz/fuzz_connection.c.

    PYTHONPATH=tests/fuzz RETRO_REQUESTS=tests/fuzz/corpus/connection pytest -p record_requests tests/http

Requests that differ in values alone count once: one is kept for each method, path, set of headers and set of fields of
its body, and at most eight for a method and path. Ports and keys are replaced, so that a second run gives the same files."""
import collections
import hashlib
import json
import os
import pathlib
import re
import socket

MOST_BYTES, MOST_FILES, MOST_ALIKE = 3000, 200, 8
folder = pathlib.Path(os.environ["RETRO_REQUESTS"])
seen = set()
alike = collections.Counter()
sent = {}


def shape(data):
    """What a connection's first request is, without its values."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    target = re.sub(rb"[0-9a-f]{6,}|\d+", b"#", lines[0])
    names = tuple(sorted(line.split(b":")[0].lower() for line in lines[1:] if line[:2] != b"X-"))
    try:
        fields = tuple(sorted((name, type(value).__name__) for name, value in json.loads(body).items()))
    except (ValueError, AttributeError):
        fields = body[:8]
    return target[:60], names, fields


def normal(data):
    data = re.sub(rb"(127\.0\.0\.1|localhost):\d+", rb"\1:8080", data)
    return re.sub(rb"retro-[0-9a-f]{64}", b"retro-" + b"0" * 64, data)


def keep(data):
    data = normal(data)
    if not data or len(data) > MOST_BYTES or len(seen) >= MOST_FILES or shape(data) in seen:
        return
    route = shape(data)[0].split(b"?")[0]
    if alike[route] == MOST_ALIKE:
        return
    alike[route] += 1
    seen.add(shape(data))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


def note(s, data):
    if s.family == socket.AF_INET and s.type == socket.SOCK_STREAM:
        sent[s] = sent.get(s, b"") + bytes(data)[: MOST_BYTES + 1]


def patched(name):
    original = getattr(socket.socket, name)

    def replacement(self, data, *rest):
        note(self, data)
        return original(self, data, *rest)

    setattr(socket.socket, name, replacement)


def pytest_configure():
    patched("send")
    patched("sendall")


def pytest_runtest_teardown():
    for data in sent.values():
        keep(data)
    sent.clear()
