"""Names of documents over HTTP: whatever a path holds, it is put, listed, searched, fetched and deleted by that path.

RETRO_SEEDS=N tries N seeds; each makes a list of hostile paths."""
import os
import random
import unicodedata
import urllib.parse

import pytest
from test_documents import call, search, served, upload  # noqa: F401 (a fixture)
from test_kept_files import get

SEEDS = int(os.environ.get("RETRO_SEEDS", "3"))
HOSTILE = ["a b", " ", "-n", "--yes", "'", '"', "\n", "\t", "\\", "ü", unicodedata.normalize("NFD", "ü"), "日本", "%2F", "%", "%zz", "?q=1&x",
           "#12", "!", "$(x)", "`", "*", "+", "&", "=", ";", ": ", "~", "\x7f", "…", "..", "🙂", "/", "<b>"]


def make_path(rng):
    return "".join(rng.choice(HOSTILE + ["x", "y", "7"]) for _ in range(rng.randint(1, 7))).rstrip("/") + ".md"


def query(path):
    return urllib.parse.urlencode({"path": path})


def named(server, path):
    return [d["path"] for d in call(server, "GET", f"/v1/documents?limit=1000&{query(path)}")["data"]]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_round_trip(served, seed):
    rng = random.Random(seed)
    before = {d["path"] for d in call(served, "GET", "/v1/documents?limit=1000")["data"]}
    paths = sorted({make_path(rng) for _ in range(20)} | {"ä.md", unicodedata.normalize("NFD", "ä.md"), "-", "n", "n#", "n?"})
    ids = {}
    for i, path in enumerate(paths):
        said = call(served, "POST", "/v1/documents", {"path": path, "text": f"Text number {i} is about {'trains ships planes'.split()[i % 3]}.\n"})
        assert said["path"] == path and said["effect"] == "added"
        ids[path] = said["id"]
    assert len(set(ids.values())) == len(paths), "names that differ in a byte are two documents"
    assert {d["path"] for d in call(served, "GET", "/v1/documents?limit=1000")["data"]} == before | set(paths)
    for i, path in enumerate(paths):
        assert named(served, path) == [path]
        shown = call(served, "GET", f"/v1/documents/{urllib.parse.quote(ids[path], safe='')}")
        assert shown["path"] == path and shown["text"].startswith(f"Text number {i} ")
    assert {hit["document"] for hit in search(served, "a text about trains", 16)} <= before | set(paths)
    for path in rng.sample(paths, len(paths)):
        assert [d["path"] for d in call(served, "DELETE", f"/v1/documents?{query(path)}")["data"]] == [path]
        assert named(served, path) == []
        call(served, "DELETE", f"/v1/documents?{query(path)}", expect=404)
    assert {d["path"] for d in call(served, "GET", "/v1/documents?limit=1000")["data"]} == before


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ids_of_any_kind(served, seed):
    """An id is a segment of the address, percent-encoded."""
    rng = random.Random(1000 + seed)
    for identity in {make_path(rng) for _ in range(12)}:
        address = f"/v1/documents/{urllib.parse.quote(identity, safe='')}"
        assert call(served, "PUT", address, {"text": "A text of an id."})["id"] == identity
        assert call(served, "GET", address)["id"] == identity
        assert call(served, "DELETE", address)["effect"] == "deleted"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_files_of_uploads(start, folder, seed):
    """The bytes come back by the id, and the name to save it by is one that no client runs away with."""
    rng = random.Random(2000 + seed)
    server = start(f"retrieval.collection={folder}", "retrieval.keep_files=copy")
    for i in range(8):
        path, text = make_path(rng), f"Upload number {i} of seed {seed}.\n".encode()
        (done,) = upload(server, [("path", None, path.encode()), ("file", "x.md", text)])["data"]
        assert done["path"] == path
        status, headers, got = get(server, f"/v1/documents/{urllib.parse.quote(done['id'], safe='')}/file")
        assert status == 200 and got == text
        assert "\n" not in headers["Content-Disposition"] and named(server, path) == [path]
        assert [d["path"] for d in call(server, "DELETE", f"/v1/documents?{query(path)}")["data"]] == [path]
