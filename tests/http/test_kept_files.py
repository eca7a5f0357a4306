"""GET /v1/documents/ID/file: the file that a document came from, as it came, for those who may read the document."""
import http.client
import json
import os
import random
import shutil
import signal
import time
import urllib.parse

import pytest

from test_documents import call, index, upload
from test_keys import bearer, keys  # noqa: F401 (a fixture)

PAGE = b"<html><head><title>Steam</title></head><body><script>alert(1)</script><p>Steam ovens bake bread.</p></body></html>"
NOTE = "# Tea\n\nSteep the leaves for three minutes. Übung macht den Meister.\n".encode()
WAIT = 180


def get(server, path, headers={}, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def file_of(identity):
    return f"/v1/documents/{identity}/file"


def id_of(server, path):
    [found] = [d["id"] for d in call(server, "GET", "/v1/documents?limit=1000")["data"] if d["path"] == path]
    return found


def copies(folder):
    files = folder / "files"
    return sorted(p.name for p in files.iterdir()) if files.exists() else []


def wait_for_copies(folder, n):
    deadline = time.monotonic() + WAIT
    while len(copies(folder)) != n:
        assert time.monotonic() < deadline, copies(folder)
        time.sleep(0.05)


def test_uploads_are_given_as_they_came(start, folder):
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    said = upload(server, [("file", "kitchen/tea time.md", NOTE), ("file", "steam.html", PAGE)])
    tea, steam = (d["id"] for d in said["data"])
    status, headers, body = get(server, file_of(tea))
    assert (status, body) == (200, NOTE) and headers["Content-Length"] == str(len(NOTE))
    assert headers["Content-Type"] == "text/plain" and headers["Accept-Ranges"] == "bytes"
    assert headers["Content-Disposition"] == 'inline; filename="tea time.md"'

    status, headers, body = get(server, file_of(steam))
    assert (status, body) == (200, PAGE)
    assert headers["Content-Type"] == "application/octet-stream" and headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"

    [copy] = [folder / "files" / name for name in copies(folder) if (folder / "files" / name).read_bytes() == NOTE]
    assert copy.stat().st_mode & 0o777 == 0o600 and (folder / "files").stat().st_mode & 0o777 == 0o700
    call(server, "PUT", "/v1/documents/text", {"text": "A text that came without a file."})
    assert get(server, file_of("text"))[0] == 404 and get(server, file_of("nobody"))[0] == 404
    call(server, "PUT", "/v1/documents/" + urllib.parse.quote("a/file", safe=""), {"text": "no"}, expect=405)


@pytest.mark.parametrize("tags", ["\x0b", "\x0c \x0b,", '"a"\x0b', "W/", ",\x0c,W/\x0b"])
def test_blanks_of_other_kinds_between_tags(start, folder, tags):
    """Control characters in a header are refused, and no list of tags holds a thread (tests/fuzz/corpus/ranges)."""
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    [said] = upload(server, [("file", "tea.md", NOTE)])["data"]
    status, _, body = get(server, file_of(said["id"]), {"If-None-Match": tags})
    assert status == 400 if any(c in tags for c in "\x0b\x0c") else (status, body) == (200, NOTE)
    assert get(server, file_of(said["id"]))[2] == NOTE


def test_parts(start, folder):
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    text = b"<p>A long remark about numbers.</p><!--" + "".join(f"Line {i}.\n" for i in range(80000)).encode() + b"-->"
    [said] = upload(server, [("file", "long.html", text)])["data"]
    path, n = file_of(said["id"]), len(text)
    tag = get(server, path)[1]["ETag"]
    for asked, start_, end in (("bytes=0-0", 0, 1), ("bytes=5-9", 5, 10), (f"bytes={n - 1}-", n - 1, n), ("bytes=-7", n - 7, n),
                               (f"bytes=-{n * 2}", 0, n), (f"bytes=10-{n * 9}", 10, n), ("bytes=1000-700000", 1000, 700001)):
        status, headers, body = get(server, path, {"Range": asked})
        assert status == 206 and body == text[start_:end] and headers["Content-Range"] == f"bytes {start_}-{end - 1}/{n}"
    for asked in (f"bytes={n}-", "bytes=-0", "bytes=99999999999999999999-"):
        status, headers, body = get(server, path, {"Range": asked})
        assert status == 416 and headers["Content-Range"] == f"bytes */{n}" and json.loads(body)["error"]["code"] == "range_not_satisfiable"
    for asked in ("bytes=9-5", "bytes=a-b", "lines=1-2", "bytes=", "bytes=0-1,4-5", "bytes=1", "bytes=--1", ""):
        assert get(server, path, {"Range": asked})[0] == 200, asked
    assert get(server, path, {"Range": "bytes=0-4", "If-Range": tag})[0] == 206
    assert get(server, path, {"Range": "bytes=0-4", "If-Range": '"other"'})[2] == text
    status, headers, body = get(server, path, {"If-None-Match": f'"x", {tag}'})
    assert status == 304 and body == b"" and headers["ETag"] == tag
    status, headers, body = get(server, path, {"Range": "bytes=0-4"}, "HEAD")
    assert status == 200 and body == b"" and headers["Content-Length"] == str(n)


def test_copies_go_with_their_documents(start, folder):
    """Two documents of the same bytes share a copy; it goes with the last one: by a deletion, another file, another program,
    a compaction, and where the server was killed in between."""
    sets = (f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    server = start(*sets)
    first, second = (d["id"] for d in upload(server, [("file", "a.md", NOTE), ("file", "b.md", NOTE)])["data"])
    other = upload(server, [("file", "c.txt", b"Something else about rivers.")])["data"][0]["id"]
    assert len(copies(folder)) == 2
    call(server, "DELETE", f"/v1/documents/{first}")
    assert get(server, file_of(first))[0] == 404 and get(server, file_of(second))[2] == NOTE
    upload(server, [("file", "c.txt", b"Something new about lakes.")])
    wait_for_copies(folder, 2)
    assert get(server, file_of(other))[2] == b"Something new about lakes."

    index("compact", folder)
    server.wait_until(lambda health: call(server, "GET", "/v1/documents")["generation"] == 2, WAIT)
    assert get(server, file_of(second))[2] == NOTE and len(copies(folder)) == 2
    index("delete", folder, "b.md")
    wait_for_copies(folder, 1)

    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.process.returncode = 0
    stray = folder / "files" / ("0" * 64)
    stray.write_bytes(b"of an upload that was never put")
    again = start(*sets)
    wait_for_copies(folder, 1)
    assert get(again, file_of(other))[2] == b"Something new about lakes."
    call(again, "DELETE", f"/v1/documents/{other}")
    wait_for_copies(folder, 0)


def test_an_archive_is_given_whole(start, folder, tmp_path):
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    for name in ("tea.md", "soup.md"):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / name).write_text(f"A note named {name} about {name[:-3]}.")
    archive = shutil.make_archive(str(tmp_path / "notes"), "zip", tmp_path / "notes")
    content = open(archive, "rb").read()
    said = upload(server, [("file", "notes.zip", content)])["data"]
    assert len(said) == 2 and len(copies(folder)) == 1
    for document in said:
        status, headers, body = get(server, file_of(document["id"]))
        assert (status, body) == (200, content) and 'filename="notes.zip"' in headers["Content-Disposition"]
    call(server, "DELETE", f"/v1/documents/{said[0]['id']}")
    assert get(server, file_of(said[1]["id"]))[2] == content


def test_files_on_disk(start, folder, tmp_path):
    """From where they lie, as long as they are as they were read; nothing else by any trick with links."""
    notes = tmp_path / "notes"
    notes.mkdir()
    note, link = notes / "tea \"Grün\"\n.md", notes / "soup.md"
    note.write_bytes(NOTE)
    link.write_text("Soup needs salt.")
    index("add", folder, notes)
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=path")
    tea, soup = id_of(server, 'notes/tea "Grün"\n.md'), id_of(server, "notes/soup.md")
    status, headers, body = get(server, file_of(tea))
    assert (status, body) == (200, NOTE)
    assert headers["Content-Disposition"] == "inline; filename=\"tea _Gr__n__.md\"; filename*=UTF-8''tea%20%22Gr%C3%BCn%22%0A.md"
    os.utime(note, (1, 1))
    assert get(server, file_of(tea))[0] == 200, "its bytes are the same"
    note.write_bytes(NOTE.replace(b"three", b"seven"))
    status, headers, body = get(server, file_of(tea))
    assert status == 409 and json.loads(body)["error"]["code"] == "file_changed" and b"/" not in body.replace(b"http://", b"")
    index("add", folder, notes)
    assert b"seven" in get(server, file_of(tea))[2]

    secret = tmp_path / "secret"
    secret.write_text("Soup needs salt.")
    link.unlink()
    assert get(server, file_of(soup))[0] == 409
    link.symlink_to(secret)
    assert get(server, file_of(soup))[0] == 409, "a link stands where the file was"
    link.unlink()
    os.mkfifo(link)
    assert get(server, file_of(soup))[0] == 409
    [said] = upload(server, [("file", "x.md", b"An upload, which is not kept.")])["data"]
    assert get(server, file_of(said["id"]))[0] == 404
    assert copies(folder) == []


def test_off(start, folder, tmp_path):
    (tmp_path / "a.md").write_bytes(NOTE)
    index("add", folder, tmp_path / "a.md")
    server = start(f"retrieval.collection={folder}")
    status, headers, body = get(server, file_of(id_of(server, "a.md")))
    assert status == 404 and "retrieval.keep_files" in json.loads(body)["error"]["message"]


def test_keys(start, folder, keys):  # noqa: F811
    """A file is as its document is: no other key has it, and its bytes count."""
    alice = keys.add("alice", filter={"eq": {"team": "a"}}, stored_bytes=3000)
    bob = keys.add("bob", filter={"eq": {"team": "b"}})
    none = keys.add("none", documents="off")
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy", f"server.keys_file={keys.path}")

    def send(secret, name, content):
        body = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + name.encode() + b'"\r\n\r\n' + content + b"\r\n--b--\r\n")
        reply = server.request("POST", "/v1/documents", body, {"Content-Type": "multipart/form-data; boundary=b", **bearer(secret)})
        assert reply.status == 200, reply.body
        return reply.json()["data"][0]

    mine, theirs = send(alice, "a.md", NOTE)["id"], send(bob, "a.md", NOTE)["id"]
    assert len(copies(folder)) == 1
    assert get(server, file_of(mine), bearer(alice))[2] == NOTE and get(server, file_of(theirs), bearer(bob))[2] == NOTE
    lost, never = get(server, file_of(theirs), bearer(alice)), get(server, file_of("nobody"), bearer(alice))
    assert lost[0] == never[0] == 404 and lost[2].replace(theirs.encode(), b"nobody") == never[2]
    assert get(server, file_of(mine), bearer(none))[0] == 403 and get(server, file_of(mine))[0] == 401
    server.request("DELETE", f"/v1/documents/{mine}", headers=bearer(alice))
    assert get(server, file_of(theirs), bearer(bob))[2] == NOTE

    for seed in (1, 2):  # the second comes when the copies were looked through since the last change
        page = b"<p>Bread.</p><!--" + random.Random(seed).randbytes(1500).hex().encode() + b"-->"
        refused = send(alice, "page.html", page)
        assert refused["effect"] == "failed" and "stored_bytes" in refused["error"]["message"], refused
        wait_for_copies(folder, 1)


def test_a_file_that_is_written_to_is_cut_off(start, folder, tmp_path):
    """A client never takes the half of a file, or a mixture of two, for the file."""
    big = tmp_path / "big.html"
    big.write_bytes(b"<p>A page with a long remark.</p><!--" + b"x" * (24 << 20) + b"-->")
    index("add", folder, big)
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=path")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", file_of(id_of(server, "big.html")))
    reply = connection.getresponse()
    assert reply.status == 200
    reply.read(100)
    with big.open("r+b") as out:
        out.write(b"LINE")
    with pytest.raises(http.client.IncompleteRead):
        reply.read()
    connection.close()
