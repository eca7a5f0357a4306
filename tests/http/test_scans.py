"""GET /v1/scans: which folders the documents came from, and what of them was skipped, to those who may know."""
import contextlib
import signal
import subprocess
import time

import pytest
from conftest import BUILD, DEPS, MODEL, ROOT
from test_documents import call, index
from test_keys import bearer, keys  # noqa: F401 (a fixture)

MAKERS = ["--set", f"model.path={ROOT / 'models' / MODEL}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]
WAIT = 120


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nA note about trains.\n")
    (folder / "bad: one.docx").write_bytes(b"no archive at all")
    (folder / "large.txt").write_text("word " * 400)
    (folder / "drawing.dwg").write_bytes(b"\0")
    return folder


@pytest.fixture
def collection(tmp_path, notes):
    index("build", "--max-file-bytes", 1000, "--out", tmp_path / "collection", *MAKERS, notes, code=2)
    return tmp_path / "collection"


@contextlib.contextmanager
def watch(collection, folder):
    process = subprocess.Popen([BUILD / "retro-index", "watch", "--max-file-bytes", "1000", collection, folder],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert any("watching" in line for line in process.stderr)
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 0
    process.stderr.close()


def scans(server):
    return call(server, "GET", "/v1/scans")["data"]


def wait_until(server, condition):
    deadline = time.monotonic() + WAIT
    while not condition(scans(server)):
        assert time.monotonic() < deadline, scans(server)
        time.sleep(0.05)


def test_a_build_leaves_what_it_skipped(start, collection, notes):
    server = start(f"retrieval.collection={collection}")
    (scan,) = scans(server)
    skipped = {one["path"]: one for one in scan.pop("skipped")}
    assert abs(scan.pop("time") - time.time()) < 600
    assert scan == {"object": "scan", "paths": [str(notes)], "followed": False, "files": 3, "not_read": 1, "n_skipped": 2}
    assert set(skipped) == {str(notes / "bad: one.docx"), str(notes / "large.txt")}
    large = skipped[str(notes / "large.txt")]
    assert "2000 bytes" in large["reason"] and "--max-file-bytes" in large["remedy"]
    assert str(notes) not in skipped[str(notes / "bad: one.docx")]["reason"]


def test_a_folder_that_is_watched(start, collection, notes):
    server = start(f"retrieval.collection={collection}")
    with watch(collection, notes):
        wait_until(server, lambda found: [(one["followed"], one["n_skipped"]) for one in found] == [(True, 2)])
        # A file that stays bad is not read again, and stays told; one that is mended or gone is not.
        (notes / "b.md").write_text("# B\n\nA note about ships.\n")
        wait_until(server, lambda found: found[0]["files"] == 4)
        assert scans(server)[0]["n_skipped"] == 2
        (notes / "large.txt").write_text("A word.\n")
        wait_until(server, lambda found: [one["path"] for one in found[0]["skipped"]] == [str(notes / "bad: one.docx")])
        (notes / "bad: one.docx").unlink()
        wait_until(server, lambda found: found[0]["n_skipped"] == 0 and found[0]["skipped"] == [])
    assert [one["followed"] for one in scans(server)] == [False]


def test_another_folder_has_its_own(start, collection, notes, tmp_path):
    server = start(f"retrieval.collection={collection}")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.md").write_text("# C\n\nA note about planes.\n")
    with watch(collection, tmp_path / "more"):
        wait_until(server, lambda found: sorted(one["followed"] for one in found) == [False, True])
    index("build", "--out", collection, *MAKERS, tmp_path / "more")
    assert [one["paths"] for one in scans(server)] == [[str(tmp_path / "more")]], "the collection was made anew"


def test_paths_are_for_those_who_change_documents(start, collection, notes, keys):
    reader = keys.add("reader", documents="read")
    writer = keys.add("writer")
    tenant = keys.add("tenant", filter={"eq": {"team": "red"}})
    outsider = keys.add("outsider", documents="off")
    server = start(f"retrieval.collection={collection}", f"server.keys_file={keys.path}", "retrieval.documents=write")

    def ask(key):
        reply = server.request("GET", "/v1/scans", headers=bearer(key))
        return reply.status, reply.json(), reply.body

    status, said, body = ask(reader)
    assert status == 200 and said["data"][0]["n_skipped"] == 2 and str(notes).encode() not in body
    assert "paths" not in said["data"][0] and "skipped" not in said["data"][0]
    assert ask(writer)[1]["data"][0]["paths"] == [str(notes)]
    assert ask(tenant)[1]["data"] == []
    assert ask(outsider)[0] == 403


def test_a_record_that_is_damaged_is_none(start, collection):
    server = start(f"retrieval.collection={collection}")
    (record,) = (collection / "scans").glob("*.json")
    for damage in (b"{", b"[]", b'{"paths": 3, "skipped": {"a": 1}, "time": "x"}', b"\xff" * 100, b"[" * 5000, b" " * (2 << 20)):
        record.write_bytes(damage)
        found = scans(server)
        assert found == [] or (found[0]["paths"] == [] and found[0]["skipped"] == [] and found[0]["time"] == 0)
    assert server.health()["status"] == "ok"
