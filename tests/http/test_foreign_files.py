"""Uploads that attack: what they ask of the server's files, time and memory, and what other clients notice of it."""
import json
import os
import pathlib
import sys
import time

import pytest

from test_documents import call, upload
from test_keys import Keys, bearer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "index"))
import make_files  # noqa: E402

# This file is what a hostile page asks for, by its name in the server's directory; no string here has the mark whole:
# MARK-OF-THE-FILE
MARK = "-".join(("MARK", "OF", "THE", "FILE"))
HERE = os.path.relpath(__file__)


@pytest.fixture()
def served(start, folder):
    return start(f"retrieval.collection={folder}")


REQUESTS = [".so {}", "'so {}", ".cc !\n!so {}", ".if 1 .so {}", ".de XX\n.so {}\n..\n.XX", ".ds a s\n.\\*ao {}",
            ".so\\\n {}", ".mso {}", ".pso cat {}"]


def page(request):
    return (".TH CAT 1\n.SH NAME\ncat \\- join\n.SH FILES\n" + request.format(HERE) + "\nThe end.\n").encode()


def test_man_pages_read_no_files(served):
    """Alone, in an archive and in a message."""
    for i, request in enumerate(REQUESTS):
        man, name = page(request), f"cat{i}.1"
        mail = (b"From: a@example.org\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
                b"Content-Type: text/plain\n\nHello.\n--b\nContent-Disposition: attachment; filename=cat.1\n\n" + man + b"\n--b--\n")
        said = upload(served, [("file", name, man), ("file", f"{i}.zip", make_files.zipped([("cat.1", man)])), ("file", f"{i}.eml", mail)])
        shown = [call(served, "GET", "/v1/documents/" + document["id"])["text"] for document in said["data"]]
        assert len(shown) == 4 and sum("cat - join" in text for text in shown) == 3, shown
        assert not any(MARK in text for text in shown), request


def forms(depth=9, wide=10):
    """A PDF of a page that draws empty forms within forms, 10^8 of them: Poppler goes through them all."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
               b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>>>",
               b"<</Length 5>>stream\n/F Do\nendstream"]
    for i in range(depth):
        last = i == depth - 1
        body = b"" if last else b"/F Do " * wide
        resources = b"" if last else b"/Resources<</XObject<</F %d 0 R>>>>" % (6 + i)
        objects.append(b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]%s/Length %d>>stream\n%s\nendstream" % (resources, len(body), body))
    out, places = b"%PDF-1.4\n", []
    for i, one in enumerate(objects):
        places.append(len(out))
        out += b"%d 0 obj%s\nendobj\n" % (i + 1, one)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + b"".join(b"%010d 00000 n \n" % p for p in places)
    return out + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, table)


def slow_archive():
    return make_files.zipped([(f"{i}.pdf", forms()) for i in range(3)])


def form(name, content):
    body = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n--b--\r\n"
    return body, "multipart/form-data; boundary=b"


def send_upload(server, secret, name, content):
    """A connection on which an upload was sent, whose answer nobody has read."""
    body, kind = form(name, content)
    connection = server.socket()
    connection.sendall(f"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\nContent-Type: {kind}\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def readers(server):
    """Processes that read files for the server."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if stat and ") Z " not in stat:
            parents[int(entry.name)] = int(stat[stat.rindex(")") + 2:].split()[1])
    keepers = {pid for pid, parent in parents.items() if parent == server.process.pid}
    return [pid for pid, parent in parents.items() if parent in keepers]


def lasting_readers(server):
    """Those that read on: the one that read an archive's list ends a moment after the next file's begins."""
    earlier = readers(server)
    time.sleep(2)
    return [pid for pid in readers(server) if pid in earlier]


def wait_for(condition, seconds=60):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


def put_note(server, secret, i):
    reply = server.request("PUT", f"/v1/documents/note-{i}", json.dumps({"text": f"Note {i}."}), {**bearer(secret), "Content-Type": "application/json"})
    assert reply.status == 200, reply.body


def test_slow_uploads_hold_nobody(start, folder, tmp_path):
    """While a hostile archive is read others put texts and files; its reading ends with its client, and with the server."""
    keys = Keys(tmp_path / "keys.jsonl")
    alice, bob = keys.add("alice"), keys.add("bob")
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}", "retrieval.upload_seconds=600",
                   "server.drain_timeout=0")
    hostile = [send_upload(server, alice, f"{i}.zip", slow_archive()) for i in range(4)]
    wait_for(lambda: lasting_readers(server))
    assert len(lasting_readers(server)) == 1, "one file of a client is read at once"
    for i in range(3):
        put_note(server, bob, i)
    body, kind = form("paper.pdf", make_files.good()["paper.pdf"])
    reply = server.request("POST", "/v1/documents", body, {**bearer(bob), "Content-Type": kind})
    assert reply.status == 200 and reply.json()["data"][0]["effect"] == "added", reply.body
    wait_for(lambda: len(readers(server)) == 1)  # the reader of Bob's file ends a moment after its answer
    for connection in hostile:
        connection.close()
    wait_for(lambda: not readers(server))
    put_note(server, alice, 9)

    hostile = send_upload(server, alice, "again.zip", slow_archive())
    wait_for(lambda: readers(server))
    assert server.stop() == 0
    hostile.close()


def test_time_of_an_upload(start, folder):
    """One limit is for all files of an archive."""
    server = start(f"retrieval.collection={folder}", "retrieval.upload_seconds=1")
    for name, content in (("a.zip", slow_archive()), ("a.pdf", forms())):
        said = upload(server, [("file", name, content)])["data"][0]
        assert said["effect"] == "failed" and "over 1 seconds" in said["error"]["message"], said
        assert "retrieval.upload_seconds" in said["error"]["message"]
    assert upload(server, [("file", "a.txt", b"A text.")])["data"][0]["effect"] == "added"


def test_answers_repeat_no_long_headings(served):
    """A heading and a title of 63 kB come back cut, in whole characters, with a mark."""
    long = "\u00e4" * 31000
    body = {"documents": [{"id": str(i), "path": f"{i}.md", "title": long, "text": f"# {long}\n\nZebras number {i}.\n"} for i in range(2)]}
    call(served, "POST", "/v1/documents", body)
    hits = call(served, "POST", "/v1/retrieval/search", {"query": "Zebras number", "k": 16})["data"]
    found = [hit for hit in hits if hit["document"].endswith(".md") and hit["title"].startswith("\u00e4")]
    assert found and all(hit["title"] == "\u00e4" * 200 + "\u2026" for hit in found)
    headings = [heading for hit in found for heading in hit["heading"]]
    assert headings and set(headings) == {"\u00e4" * 200 + "\u2026"}


def test_collections_are_private(config, served, folder):
    call(served, "PUT", "/v1/documents/a", {"text": "A note."})
    for collection in (config.parent / "collection", folder):
        for path in collection.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
