"""What a key gets of files and stores does not depend on another key's: its answers equal those of a server on which the
other never was. Both servers begin with the same collection. Alice's steps go to both; Bob's go to the first alone, some of
them while Alice waits. Ids are random and times are the clock's: they are compared by the order in which they appeared."""
import concurrent.futures
import json
import random
import shutil

import pytest

from conftest import Server
from test_keys import Keys, bearer
from test_noninterference import SEEDS, STEPS, pick_text
from test_stores import Client
from test_stores_keys import filters_of

TIMES = ("created_at", "last_active_at", "expires_at")


class Side:
    """A client of one server, and the names that ids of its answers have in both worlds."""

    def __init__(self, client):
        self.client, self.names, self.ids = client, {}, {}

    def name(self, identity, kind):
        """The id's name: its kind, and how many came before."""
        if identity not in self.names:
            name = f"{kind}{sum(n.startswith(kind) for n in self.ids)}"
            self.names[identity], self.ids[name] = name, identity
        return self.names[identity]

    def real(self, text):
        for name in sorted(self.ids, key=len, reverse=True):
            text = text.replace(f"<{name}>", self.ids[name])
        return text

    def do(self, step):
        """The answer with names for ids, without times."""
        method, path, body, made = step
        if method == "UPLOAD":
            reply = self.client.form([("file", path, body.encode()), ("purpose", None, b"assistants")])
            text, status = json.dumps(reply), 200
        else:
            data = self.real(json.dumps(body)) if body is not None else None
            headers = self.client.headers | ({"Content-Type": "application/json"} if data else {})
            reply = self.client.server.request(method, "/v1/" + self.real(path), data, headers)
            text, status = reply.body.decode(), reply.status
        if made and status == 200:
            self.name(json.loads(text)["id"], made)
            if made == "file":
                self.name(json.loads(text)["id"].removeprefix("file-"), "plain")
            else:
                text = json.dumps(self.settle(json.loads(text)))  # how far it was at first depends on the machine
        for identity in sorted(self.names, key=len, reverse=True):
            text = text.replace(identity, f"<{self.names[identity]}>")
        try:
            return status, self.without_times(json.loads(text))
        except ValueError:
            return status, text

    def settle(self, made):
        """What became of it."""
        path = f"vector_stores/{made['id']}"
        if made["object"] == "vector_store.files_batch":
            path = f"vector_stores/{made['vector_store_id']}/file_batches/{made['id']}"
        return self.client.settled(path)

    def without_times(self, value):
        if isinstance(value, list):
            return sorted((self.without_times(v) for v in value), key=json.dumps)  # made in one second, order is by random ids
        if not isinstance(value, dict):
            return value
        return {k: 0 if k in TIMES or (k.startswith("$<store") and "." not in k) or k in ("$created", "$owner") else self.without_times(v) for k, v in value.items()}


def any_of(r, side, kind):
    names = [name for name in side.ids if name.startswith(kind)]
    return f"<{r.choice(names)}>" if names and r.random() < 0.95 else {"file": "file-0", "store": "vs_0"}.get(kind, "0")


def pick_step(r, side):
    file, store, other = any_of(r, side, "file"), any_of(r, side, "store"), any_of(r, side, "file")
    members = f"vector_stores/{store}/files"
    attributes = {"attributes": {"n": r.randrange(3), "w": r.choice(("a", "b"))}}
    query = {"query": " ".join(pick_text(r).split()[:4]), "max_num_results": 16}
    where = {"filters": {"type": r.choice(("eq", "ne", "gt")), "key": "n", "value": r.randrange(3)}} if r.random() < 0.5 else {}
    return r.choice((
        ("UPLOAD", r.choice(("a.md", "b.txt")), pick_text(r), "file"), ("UPLOAD", "c.md", pick_text(r), "file"),
        ("POST", "vector_stores", {"name": "s", "file_ids": [file]}, "store"), ("POST", "vector_stores", {}, "store"),
        ("POST", f"vector_stores/{store}/file_batches", {"file_ids": [file, other], **attributes}, "batch"),
        ("POST", f"vector_stores/{store}/file_batches", {"file_ids": [file], **attributes}, "batch"),
        ("POST", f"{members}/{file}", attributes, None), ("DELETE", f"{members}/{file}", None, None), ("GET", members, None, None),
        ("GET", f"{members}/{file}", None, None), ("GET", f"{members}/{file}/content", None, None), ("GET", f"files/{file}", None, None),
        ("DELETE", f"files/{file}", None, None), ("GET", f"vector_stores/{store}", None, None), ("GET", "vector_stores?limit=100", None, None),
        ("GET", "files?limit=1000", None, None), ("GET", "documents?limit=1000", None, None), ("GET", "vector_stores/vs_collection", None, None),
        ("POST", f"vector_stores/{store}/search", query | where, None), ("POST", f"vector_stores/{store}/search", query | where, None),
        ("POST", "vector_stores/vs_collection/search", query, None), ("POST", "retrieval/search", {"query": query["query"], "k": 16}, None),
        ("DELETE", f"vector_stores/{store}", None, None), ("POST", f"vector_stores/{store}", {"name": "t"}, None)))


def step_of_bob(r, alice, bob):
    """Of his own files and stores, or with the ids of hers."""
    if r.random() < 0.7:
        return pick_step(r, bob)
    method, path, body, _ = pick_step(r, alice)
    return method, path if method == "UPLOAD" else alice.real(path), json.loads(alice.real(json.dumps(body))), None


def run(seed, alice, alone, bob):
    r, n, fine = random.Random(seed), 0, 0
    first = ("UPLOAD", "first.md", "A first text of bread.", "file")  # from then on each key has its own view of the collection
    assert alice.do(first) == alone.do(first)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for number in range(STEPS):
            running = [pool.submit(bob.do, step_of_bob(r, alice, bob)) for _ in range(r.choice((0, 1, 2)))]
            if r.random() < 0.5:
                [task.result() for task in running]
            step = pick_step(r, alice)
            answer, expected = alice.do(step), alone.do(step)
            assert answer == expected, f"seed {seed}, step {number}: {step}"
            [task.result() for task in running]
            n, fine = n + 1, fine + (answer[0] == 200)
    assert fine > n / 3, "most answers are refusals"
    return n


@pytest.mark.parametrize("kind", ["plain", "tenants", "same tenant"])
def test_a_key_does_not_see_another(config, tmp_path, kind):
    keys = Keys(tmp_path / "keys.jsonl")
    for name, limits in zip(("alice", "bob"), filters_of(kind)):
        keys.add(name, **limits)
    lines = keys.lines[-2:]
    for seed in range(SEEDS):
        servers = []
        try:
            for name, known in (("A", lines), ("B", lines[:1])):
                folder = tmp_path / f"{seed}{name}"
                shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], folder / "collection")
                (folder / "keys.jsonl").write_text("\n".join(known) + "\n")
                servers.append(Server(config, folder, f"retrieval.collection={folder}/collection", f"server.keys_file={folder}/keys.jsonl",
                                      "retrieval.compact_after=40"))
            alice, alone = (Side(Client(server, bearer(keys.secrets["alice"]))) for server in servers)
            bob = Side(Client(servers[0], bearer(keys.secrets["bob"])))
            n = run(f"{kind}{seed}", alice, alone, bob)
            print(f"{kind}: seed {seed}: {n} answers compared")
        finally:
            for server in servers:
                assert server.stop() == 0, server.log.read_text()
