"""A collection whose disk is full, or read-only: what was acknowledged stays, searches go on, clients are told what happened."""
import contextlib
import json
import os
import shutil
import subprocess

import pytest

from conftest import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")


@contextlib.contextmanager
def mounted(folder, size):
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def disk(folder, tmp_path):
    with mounted(tmp_path / "disk", "24m") as place:
        shutil.copytree(folder, place / "collection")
        yield place


def put(server, name, text):
    return server.request("PUT", f"/v1/documents/{name}", json.dumps({"text": text}), {"Content-Type": "application/json"})


def ids(server):
    listed, after = [], ""
    while True:
        page = server.request("GET", f"/v1/documents?limit=100{after}").json()
        listed += [d["id"] for d in page["data"]]
        if not page.get("has_more"):
            return set(listed)
        after = f"&after={page['last_id']}"


def fill(place):
    """All of the disk but what one small change takes."""
    with (place / "filler").open("wb", buffering=0) as f:
        with contextlib.suppress(OSError):
            while f.write(bytes(1 << 12)):
                pass


def refused(reply, place):
    message = reply.error()["message"]
    assert reply.status in (500, 503) and str(place) not in message, reply.body
    return message


def test_documents_are_put_on_a_full_disk(config, disk, tmp_path):
    server = Server(config, tmp_path, f"retrieval.collection={disk / 'collection'}")
    before = ids(server)
    assert put(server, "first", "The kettle whistles.").status in (200, 201)
    query = {"query": "a kettle that whistles", "k": 2}
    found = server.post(query, "/v1/retrieval/search").json()
    fill(disk)
    text = "The lighthouse keeper writes a letter. " * 400
    told = [refused(put(server, f"full-{i}", text), disk) for i in range(3)]
    assert any("No space left on device" in message for message in told), told
    assert server.post(query, "/v1/retrieval/search").json() == found and ids(server) == before | {"first"}

    (disk / "filler").unlink()
    assert put(server, "later", text).status in (200, 201)
    assert ids(server) == before | {"first", "later"}
    assert server.stop() == 0 and str(disk) in server.log.read_text()

    again = Server(config, tmp_path, f"retrieval.collection={disk / 'collection'}")
    assert ids(again) == before | {"first", "later"}
    assert again.stop() == 0


def remount(place, mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", place], check=True)


def test_a_disk_that_becomes_read_only_and_is_at_start(config, disk, tmp_path):
    server = Server(config, tmp_path, f"retrieval.collection={disk / 'collection'}")
    assert put(server, "first", "The kettle whistles.").status in (200, 201)
    before = ids(server)
    query = {"query": "a kettle that whistles", "k": 2}
    found = server.post(query, "/v1/retrieval/search").json()
    server.stop()

    remount(disk, "ro")
    server = Server(config, tmp_path, f"retrieval.collection={disk / 'collection'}")
    assert "Read-only file system" in refused(put(server, "second", "The cat sleeps."), disk)
    assert "Read-only file system" in refused(server.request("DELETE", "/v1/documents/first"), disk)
    assert server.post(query, "/v1/retrieval/search").json() == found and ids(server) == before

    remount(disk, "rw")
    assert put(server, "second", "The cat sleeps.").status in (200, 201)
    server.stop()
    server = Server(config, tmp_path, f"retrieval.collection={disk / 'collection'}")
    assert ids(server) == before | {"second"}
    assert server.stop() == 0
