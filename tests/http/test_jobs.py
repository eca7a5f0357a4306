"""Uploads that are answered at once by a job, and /v1/jobs."""
import json
import signal
import time

import pytest

from test_documents import BREAD, call, search, served, upload  # noqa: F401 (a fixture)
from test_keys import bearer, keys  # noqa: F401 (a fixture)

WAIT = 120
OVER = ("done", "failed", "cancelled")


def wait_for(server, job, states=OVER, headers={}):
    deadline = time.monotonic() + WAIT
    while True:
        reply = server.request("GET", f"/v1/jobs/{job}", headers=headers)
        assert reply.status == 200, reply.body
        now = reply.json()
        if now["status"] in states:
            return now
        assert time.monotonic() < deadline, now
        time.sleep(0.05)


def long_text(n):
    return "".join(f"Line {i} is about the number {i * i}, and about nothing else at all.\n" for i in range(n))


def test_a_text(served):
    posted = call(served, "POST", "/v1/documents", {"id": "bread", "path": "bread.md", "text": BREAD, "wait": False}, expect=202)
    assert posted["object"] == "job" and posted["id"].startswith("job_") and posted["status"] == "waiting"
    assert posted["files"] == {"done": 0, "total": 1} and posted["data"] == []
    job = wait_for(served, posted["id"])
    assert job["status"] == "done" and job["files"] == {"done": 1, "total": 1} and job["chunks"] >= 1
    assert job["data"] == [{"id": "bread", "path": "bread.md", "object": "document", "effect": "added"}]
    assert search(served, "how do I bake")[0]["document"] == "bread.md"
    assert call(served, "PUT", "/v1/documents/bread?wait=false", {"text": BREAD, "path": "bread.md"}, expect=202)["status"] == "waiting"
    assert call(served, "POST", "/v1/documents", {"text": BREAD, "wait": "no"}, expect=400)["error"]["param"] == "wait"
    assert call(served, "POST", "/v1/documents?wait=perhaps", {"text": BREAD}, expect=400)["error"]["param"] == "wait"
    assert call(served, "POST", "/v1/documents", {"text": BREAD, "wait": True})["object"] == "document"


def test_files(served):
    """What is in the end of a job is what the answer would have been."""
    parts = [("file", "a.md", BREAD.encode()), ("file", "x.bin", b"\0\1")]
    posted = upload(served, parts + [("wait", None, b"false")], expect=202)
    assert posted["files"] == {"done": 0, "total": 2}
    job = wait_for(served, posted["id"])
    assert job["status"] == "done" and job["files"]["done"] == 2
    again = upload(served, parts)
    assert [d["effect"] for d in job["data"]] == ["added", "failed"] and [d["effect"] for d in again["data"]] == ["unchanged", "failed"]
    assert job["data"][1] == again["data"][1] and "path" in job["data"][0]
    lost = upload(served, [("file", "x.bin", b"\0\1"), ("wait", None, b"false")], expect=202)
    assert wait_for(served, lost["id"])["status"] == "failed"
    several = call(served, "POST", "/v1/documents", {"documents": [{"text": "One."}, {"text": "Two."}], "wait": False}, expect=202)
    assert [d["effect"] for d in wait_for(served, several["id"])["data"]] == ["added", "added"]
    call(served, "POST", "/v1/documents", {"documents": [{"text": "One.", "wait": False}]}, expect=400)
    upload(served, parts + [("wait", None, b"maybe")], expect=400)
    listed = call(served, "GET", "/v1/jobs")["data"]
    assert [j["id"] for j in listed[:3]] == [several["id"], lost["id"], posted["id"]] and "data" not in listed[0]


def test_cancel(served):
    """One that is under way ends soon; of its documents those stay that were put; the line goes on."""
    first = call(served, "POST", "/v1/documents", {"documents": [{"id": "short", "text": "A short one."}, {"id": "long", "text": long_text(3000)}],
                                                   "wait": False}, expect=202)
    second = call(served, "POST", "/v1/documents", {"id": "next", "text": "The next one.", "wait": False}, expect=202)
    deadline = time.monotonic() + WAIT
    while call(served, "GET", f"/v1/jobs/{first['id']}")["files"]["done"] < 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert call(served, "DELETE", f"/v1/jobs/{first['id']}")["status"] == "cancelled"
    assert wait_for(served, second["id"])["status"] == "done"
    job = wait_for(served, first["id"])
    while len(job["data"]) == 0:
        job = wait_for(served, first["id"])
    assert [d["effect"] for d in job["data"]] == ["added", "failed"] and job["data"][1]["error"]["code"] == "cancelled"
    call(served, "GET", "/v1/documents/long", expect=404)
    assert call(served, "DELETE", f"/v1/jobs/{second['id']}")["status"] == "done", "what is over stays so"
    assert call(served, "DELETE", "/v1/jobs/job_0", expect=404) == call(served, "GET", "/v1/jobs/job_1", expect=404)


def test_limits_and_the_end_of_the_server(start, folder):
    """An owner has so many jobs at a time; a server that stops ends them."""
    server = start(f"retrieval.collection={folder}")
    call(server, "POST", "/v1/documents", {"text": long_text(5000), "wait": False}, expect=202)
    codes = [server.post({"text": f"Note {i}.", "wait": False}, "/v1/documents").status for i in range(20)]
    assert codes[:15] == [202] * 15 and codes[-1] == 503
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT) == 0


def test_keys(start, folder, keys):  # noqa: F811
    """Nobody can tell that another has a job."""
    alice, bob = keys.add("alice"), keys.add("bob")
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")

    def ask(secret, method, path, body=None):
        reply = server.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", **bearer(secret)})
        return reply.status, reply.json()

    status, posted = ask(alice, "POST", "/v1/documents", {"text": BREAD, "wait": False})
    assert status == 202
    mine = f"/v1/jobs/{posted['id']}"
    for method in ("GET", "DELETE"):
        assert ask(bob, method, mine) == ask(bob, method, "/v1/jobs/job_" + 32 * "0")
        assert ask(bob, method, mine)[0] == 404
    assert ask(bob, "GET", "/v1/jobs")[1]["data"] == []
    assert wait_for(server, posted["id"], headers=bearer(alice))["status"] == "done"
    assert [j["id"] for j in ask(alice, "GET", "/v1/jobs")[1]["data"]] == [posted["id"]]


@pytest.mark.parametrize("path", ["notes/a.md", "notes/", "notes/ü \"x\"\n.md"])
def test_documents_by_path(served, path):
    from urllib.parse import quote
    paths = ["notes/a.md", "notes/a.md.bak", 'notes/ü "x"\n.md', "note", "notes2/b.md"]
    for one in paths:
        call(served, "POST", "/v1/documents", {"path": one, "text": f"A note at {one}."})
    wanted = [p for p in paths if (p.startswith(path) if path.endswith("/") else p == path)]
    query = "?path=" + quote(path, safe="")
    assert {d["path"] for d in call(served, "GET", "/v1/documents" + query)["data"]} == set(wanted)
    assert call(served, "GET", "/v1/documents?path=" + path.upper()[:5], expect=200)["data"] == []
    gone = call(served, "DELETE", "/v1/documents" + query)["data"]
    assert {d["path"] for d in gone} == set(wanted) and {d["effect"] for d in gone} == {"deleted"}
    assert call(served, "GET", "/v1/documents" + query)["data"] == []
    left = {d["path"] for d in call(served, "GET", "/v1/documents?prefix=note")["data"]}
    assert left == set(paths) - set(wanted)
    assert call(served, "DELETE", "/v1/documents" + query, expect=404)["error"]["code"] == "not_found"


def test_delete_by_filter(served):
    from urllib.parse import quote
    for i in range(4):
        call(served, "POST", "/v1/documents", {"path": f"n/{i}", "text": f"Note {i}.", "metadata": {"team": "ops" if i % 2 else "dev"}})
    only = quote(json.dumps({"eq": {"team": "ops"}}))
    assert {d["path"] for d in call(served, "DELETE", f"/v1/documents?path=n/&filter={only}")["data"]} == {"n/1", "n/3"}
    assert {d["path"] for d in call(served, "GET", "/v1/documents?path=n/")["data"]} == {"n/0", "n/2"}
    call(served, "DELETE", "/v1/documents", expect=400)
    call(served, "DELETE", "/v1/documents?path=", expect=400)
    call(served, "DELETE", "/v1/documents?limit=3", expect=400)


def test_no_tenant_deletes_what_it_does_not_see(start, folder, keys):  # noqa: F811
    alice = keys.add("alice", filter={"eq": {"team": "a"}})
    bob = keys.add("bob", filter={"eq": {"team": "b"}})
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")

    def ask(secret, method, path, body=None):
        reply = server.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", **bearer(secret)})
        return reply.status, reply.json()

    for secret in (alice, bob):
        assert ask(secret, "POST", "/v1/documents", {"path": "plans/x.md", "text": "The plan."})[0] == 200
    assert [d["effect"] for d in ask(alice, "DELETE", "/v1/documents?path=plans/")[1]["data"]] == ["deleted"]
    assert ask(alice, "DELETE", "/v1/documents?path=plans/x.md")[0] == 404
    assert len(ask(bob, "GET", "/v1/documents?path=plans/x.md")[1]["data"]) == 1
