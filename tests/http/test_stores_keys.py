"""Files and vector stores of keys: one never sees, lists, searches, changes, deletes or counts what is another's."""
import json
import re
import time

import pytest

from conftest import MODEL
from test_keys import Keys, bearer
from test_stores import PATIENCE, TEXTS, Client, options

SECRET = "The heron nests at the third lock of the old canal, which nobody else knows."


def filters_of(kind):
    return {"tenants": [{"filter": {"eq": {"tenant": name}}} for name in ("alice", "bob")], "plain": [{}, {}],
            "same tenant": [{"filter": {"eq": {"tenant": "both"}}}] * 2}[kind]


@pytest.fixture(params=["plain", "tenants", "same tenant"])
def clients(request, start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    secrets = [keys.add(name, **limits) for name, limits in zip(("alice", "bob"), filters_of(request.param))]
    server = start(*options(folder, f"server.keys_file={keys.path}"))
    return [Client(server, bearer(secret)) for secret in secrets]


def same(client, there, never, *, method="GET", body=None):
    """What is another's is told as what never was, but for its name."""
    replies = []
    for path in (there, never):
        data = json.dumps(body) if body is not None else None
        reply = client.server.request(method, f"/v1/{path}", data, client.headers | {"Content-Type": "application/json"})
        replies.append((reply.status, reply.body.decode()))
    for name in set(re.split("[/=]", there)) ^ set(re.split("[/=]", never)):
        replies = [(status, text.replace(name, "ID").replace(name.removeprefix("file-"), "ID")) for status, text in replies]
    assert replies[0] == replies[1] and replies[0][0] in (400, 404), replies
    return replies[0][0]


def test_a_key_meets_nothing_of_another(clients):
    alice, bob = clients
    file = alice.upload("secret.txt", SECRET)
    store = alice.store(file, name="secrets")
    batch = alice.ask("POST", f"vector_stores/{store['id']}/file_batches", {"file_ids": [file["id"]]})
    alice.settled(f"vector_stores/{store['id']}/file_batches/{batch['id']}")
    own = bob.upload("own.txt", "Bob's own text of a canal.")
    bobs = bob.store(own)
    no_file, no_store, no_batch = "file-" + "0" * 32, "vs_" + "0" * 32, "vsfb_" + "0" * 32

    for path in ("", "/content"):
        assert same(bob, f"files/{file['id']}{path}", f"files/{no_file}{path}") == 404
    same(bob, f"files/{file['id']}", f"files/{no_file}", method="DELETE")
    assert same(bob, f"files?after={file['id']}", f"files?after={no_file}") == 404
    for method, path, body in (("GET", "", None), ("POST", "", {"name": "mine"}), ("DELETE", "", None), ("POST", "/search", {"query": "heron"}),
                               ("GET", "/files", None), ("POST", "/files", {"file_id": own["id"]}), ("GET", f"/files/{own['id']}", None),
                               ("POST", "/file_batches", {"file_ids": [own["id"]]}), ("GET", f"/file_batches/{no_batch}", None)):
        assert same(bob, f"vector_stores/{store['id']}{path}", f"vector_stores/{no_store}{path}", method=method, body=body) == 404
    for path, other in ((f"files/{file['id']}", f"files/{no_file}"), (f"files/{file['id']}/content", f"files/{no_file}/content"),
                        (f"file_batches/{batch['id']}", f"file_batches/{no_batch}"), (f"file_batches/{batch['id']}/files", f"file_batches/{no_batch}/files")):
        assert same(bob, f"vector_stores/{bobs['id']}/{path}", f"vector_stores/{bobs['id']}/{other}") == 404
    same(bob, f"vector_stores?after={store['id']}", f"vector_stores?after={no_store}")
    for path, body in (("files", {"file_id": file["id"]}), ("file_batches", {"file_ids": [file["id"]]})):
        bob.ask("POST", f"vector_stores/{bobs['id']}/{path}", body, status=404)
    bob.ask("POST", "vector_stores", {"file_ids": [file["id"]]}, status=404)
    tool = {"type": "file_search", "vector_store_ids": [bobs["id"], store["id"]]}
    bob.ask("POST", "responses", {"model": MODEL, "input": "heron", "tools": [tool]}, status=404)

    assert [s["id"] for s in bob.ask("GET", "vector_stores")["data"]] == [bobs["id"], "vs_collection"]
    assert file["id"] not in {f["id"] for f in bob.ask("GET", "files?limit=1000")["data"]}
    assert own["id"] not in {f["id"] for f in alice.ask("GET", "files?limit=1000")["data"]}
    assert alice.found(store) == {"secret.txt"} and bob.found(bobs) == {"own.txt"}
    assert alice.ask("GET", f"files/{file['id']}") == file


def test_no_other_door_shows_a_file_of_another_key(clients):
    alice, bob = clients
    listing = "documents?limit=1000"
    document = {"id": "common", "text": "A common text of herons.", "path": "common.md"}
    alice.ask("POST", "documents", document)
    before = [(c.ask("GET", listing)["documents"], c.ask("GET", "vector_stores/vs_collection")["file_counts"]["total"]) for c in clients]
    file = alice.upload("secret.txt", SECRET)
    store = alice.store(file)
    name = file["id"].removeprefix("file-")
    models = bob.ask("GET", "models")

    assert alice.ask("GET", listing)["documents"] == before[0][0] + 1
    shown = bob.ask("GET", listing)
    assert shown["documents"] == before[1][0] and name not in json.dumps(shown) and "secret" not in json.dumps(shown)
    assert not {"generation", "changes"} & {key for key, value in shown.items() if value is not None}
    assert bob.ask("GET", "vector_stores/vs_collection")["file_counts"]["total"] == before[1][1]
    for method, path in (("GET", f"documents/{name}"), ("DELETE", f"documents/{name}")):
        same(bob, path, f"documents/{'0' * 32}", method=method)
    for hits in (bob.ask("POST", "vector_stores/vs_collection/search", {"query": SECRET, "max_num_results": 16})["data"],
                 bob.ask("POST", "retrieval/search", {"query": SECRET, "k": 16})["data"]):
        assert SECRET not in json.dumps(hits)
    for where in ({"eq": {"$purpose": "assistants"}}, {"range": {f"${store['id']}": {"gt": 0}}}, {"prefix": {"$owner": ""}}):
        assert bob.ask("POST", "retrieval/search", {"query": SECRET, "k": 16, "filter": where})["data"] == []
    answer = bob.ask("POST", "completions", {"model": MODEL, "prompt": SECRET, "max_tokens": 1, "retrieval": {"mode": "prompt", "k": 16}})
    assert "heron nests" not in json.dumps(answer["retrieval"])
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": SECRET}}}
    reply = bob.server.request("POST", "/mcp", json.dumps(call), bob.headers | {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                                                                             "MCP-Protocol-Version": "2025-06-18"})
    assert b"heron nests" not in reply.body
    assert bob.ask("GET", "models")["data"][0].get("chunks") == models["data"][0].get("chunks")
    assert SECRET in json.dumps(alice.ask("POST", "retrieval/search", {"query": SECRET, "k": 16})["data"])


def test_nobody_smuggles_a_text_into_the_store_of_another(clients):
    alice, bob = clients
    store = alice.store(alice.upload("secret.txt", SECRET))
    for metadata in ({f"${store['id']}": 1}, {"$owner": "0"}, {"$purpose": "assistants"}, {"$": 1}):
        bob.ask("POST", "documents", {"text": SECRET, "metadata": metadata}, status=400)
    front = f"---\n\"${store['id']}\": 1\n$purpose: assistants\n---\n{SECRET}\n"
    bob.upload("front.md", front)
    assert alice.found(store) == {"secret.txt"}


def test_what_a_key_may_store_holds_for_files(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    alice = Client(start(*options(folder, f"server.keys_file={keys.path}"),) if keys.add("alice", stored_bytes=2000, filter={"eq": {"tenant": "a"}}) else None,
                   bearer(keys.secrets["alice"]))
    file = alice.upload("bread.md")
    assert "stored_bytes" in alice.upload("long.txt", "word " * 500, status=413)["error"]["message"]
    store = alice.store()
    failed = alice.add(store, file, state="failed", attributes={str(i): "v" * 500 for i in range(8)})
    assert failed["last_error"]["code"] == "invalid_file" and "stored_bytes" in failed["last_error"]["message"]
    assert alice.add(store, file, attributes={"a": 1})["status"] == "completed"


def test_a_key_that_may_only_read_changes_nothing(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("reader", documents="read")
    reader = Client(start(*options(folder, f"server.keys_file={keys.path}")), bearer(keys.secrets["reader"]))
    reader.upload("bread.md", status=403)
    for path, body in (("vector_stores", {}), ("vector_stores/vs_x", {}), ("vector_stores/vs_x/files", {"file_id": "file-a"})):
        reader.ask("POST", path, body, status=403)
    reader.ask("DELETE", "files/file-a", status=403)
    reader.ask("DELETE", "vector_stores/vs_x", status=403)
    assert [s["id"] for s in reader.ask("GET", "vector_stores")["data"]] == ["vs_collection"]


def test_stores_are_the_keys_after_a_restart_and_a_reading_of_keys(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    for name in ("alice", "bob"):
        keys.add(name)
    sets = options(folder, f"server.keys_file={keys.path}")
    alice = Client(start(*sets), bearer(keys.secrets["alice"]))
    store = alice.store(alice.upload("secret.txt", SECRET))
    assert alice.server.stop() == 0
    server = start(*sets)
    alice, bob = (Client(server, bearer(keys.secrets[name])) for name in ("alice", "bob"))
    assert alice.found(store) == {"secret.txt"} and SECRET not in json.dumps(bob.ask("POST", "retrieval/search", {"query": SECRET, "k": 16}))
    secret = keys.add("carol")
    server.process.send_signal(1)
    carol, deadline = Client(server, bearer(secret)), time.monotonic() + PATIENCE
    while server.request("GET", "/v1/models", None, carol.headers).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert SECRET not in json.dumps(carol.ask("POST", "retrieval/search", {"query": SECRET, "k": 16}))
    assert alice.found(store) == {"secret.txt"} and [s["id"] for s in carol.ask("GET", "vector_stores")["data"]] == ["vs_collection"]
