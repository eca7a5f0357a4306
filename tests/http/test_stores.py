"""Files that clients upload, and vector stores of them: what a client gets back, what is refused, and what lasts."""
import json
import shutil
import subprocess
import threading
import time

import pytest

from conftest import BUILD, MODEL

TEXTS = {
    "bread.md": "# Bread\n\nThe baker folds saffron into the dough and bakes it in a stone oven at dawn.\n",
    "fork.txt": "The fork system call makes a copy of the process, which the parent waits for.\n",
    "mortar.md": "# Mortar\n\nLime mortar hardens slowly where the wall is wet, and lasts for centuries.\n",
}
PATIENCE = 60


class Client:
    """One client's requests, with its key if it has one."""

    def __init__(self, server, headers={}):
        self.server, self.headers = server, headers

    def ask(self, method, path, body=None, status=200):
        headers = self.headers | ({"Content-Type": "application/json"} if body is not None else {})
        reply = self.server.request(method, f"/v1/{path}", json.dumps(body) if body is not None else None, headers)
        assert reply.status == status, (method, path, body, reply.status, reply.body)
        return reply.json() if status == 200 and reply.headers["Content-Type"] == "application/json" else reply

    def form(self, parts, status=200):
        body = b"".join(b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' %
                        (name.encode(), b'; filename="%s"' % file.encode() if file else b"", content) for name, file, content in parts)
        reply = self.server.request("POST", "/v1/files", body + b"--b--\r\n", self.headers | {"Content-Type": "multipart/form-data; boundary=b"})
        assert reply.status == status, reply.body
        return reply.json()

    def upload(self, name, text=None, status=200, **fields):
        fields = {"purpose": "assistants"} | fields
        return self.form([("file", name, (TEXTS[name] if text is None else text).encode()), *((k, None, v.encode()) for k, v in fields.items())], status)

    def settled(self, path, state="completed"):
        """The object of the path, once it is no more in progress."""
        deadline = time.monotonic() + PATIENCE
        while (shown := self.ask("GET", path))["status"] == "in_progress":
            assert time.monotonic() < deadline, shown
            time.sleep(0.02)
        assert shown["status"] == state, shown
        return shown

    def store(self, *files, **fields):
        made = self.ask("POST", "vector_stores", {"file_ids": [f["id"] for f in files], **fields})
        return self.settled(f"vector_stores/{made['id']}")

    def add(self, store, file, state="completed", **fields):
        self.ask("POST", f"vector_stores/{store['id']}/files", {"file_id": file["id"], **fields})
        return self.settled(f"vector_stores/{store['id']}/files/{file['id']}", state)

    def search(self, store, query="bread and mortar and processes", **fields):
        return self.ask("POST", f"vector_stores/{store['id']}/search", {"query": query, **fields})["data"]

    def found(self, store, **fields):
        return {hit["filename"] for hit in self.search(store, **fields)}

    def listed(self, path):
        """All items of a list, page by page."""
        items, after = [], ""
        while True:
            page = self.ask("GET", f"{path}{'&' if '?' in path else '?'}limit=2{after}")
            items += page["data"]
            assert [page["first_id"], page["last_id"]] == ([page["data"][0]["id"], page["data"][-1]["id"]] if page["data"] else [None, None])
            if not page["has_more"]:
                return items
            after = f"&after={page['last_id']}"


def options(folder, *more):
    return (f"retrieval.collection={folder}", "retrieval.documents=write", *more)


@pytest.fixture
def client(start, folder):
    return Client(start(*options(folder)))


@pytest.fixture
def files(client):
    return {name: client.upload(name) for name in TEXTS}


def test_a_file_is_uploaded_shown_and_deleted(client):
    before = {f["id"] for f in client.ask("GET", "files?limit=1000")["data"]}
    file = client.upload("bread.md", purpose="user_data")
    assert file["object"] == "file" and file["bytes"] == len(TEXTS["bread.md"]) and file["status"] == "processed"
    assert abs(file["created_at"] - time.time()) < PATIENCE
    assert client.ask("GET", f"files/{file['id']}") == file
    assert "retrieval.keep_files" in client.ask("GET", f"files/{file['id']}/content", status=404).error()["message"]
    assert {f["id"] for f in client.ask("GET", "files?limit=1000")["data"]} == before | {file["id"]}
    assert [f["id"] for f in client.ask("GET", "files?purpose=user_data")["data"]] == [file["id"]]
    assert file["id"] not in {f["id"] for f in client.ask("GET", "files?purpose=assistants&limit=1000")["data"]}
    hits = client.ask("POST", "vector_stores/vs_collection/search", {"query": "saffron dough"})["data"]
    assert hits[0]["filename"] == "bread.md" and hits[0]["file_id"] == file["id"] and hits[0]["attributes"] == {}
    assert client.ask("DELETE", f"files/{file['id']}") == {"id": file["id"], "object": "file", "deleted": True}
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        client.ask(method, f"files/{file['id']}{path}", status=404)
    assert {f["id"] for f in client.ask("GET", "files?limit=1000")["data"]} == before


def test_a_file_is_given_as_it_was_uploaded(start, folder):
    client = Client(start(*options(folder, "retrieval.keep_files=copy")))
    page = b"<html><body><script>alert(1)</script><p>Lime mortar hardens \xc3\xa4 slowly.</p></body></html>\r\n"
    file = client.form([("file", "lime.html", page), ("purpose", None, b"assistants")])
    store = client.store(file)
    reply = client.ask("GET", f"files/{file['id']}/content")
    assert reply.body == page and reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and "lime.html" in reply.headers["Content-Disposition"]
    text = client.ask("GET", f"vector_stores/{store['id']}/files/{file['id']}/content")["data"][0]["text"]
    assert "hardens ä slowly" in text and "alert" not in text
    part = client.server.request("GET", f"/v1/files/{file['id']}/content", headers={"Range": "bytes=6-9"})
    assert (part.status, part.body) == (206, page[6:10])
    client.ask("POST", "documents", {"id": "note", "path": "note.txt", "text": "A text of a request has no file."})
    assert "keep_files" in client.ask("GET", "files/file-note/content", status=404).error()["message"]
    client.ask("DELETE", f"files/{file['id']}")
    client.ask("GET", f"files/{file['id']}/content", status=404)


def test_two_files_of_a_name_are_two(client):
    one, other = client.upload("a.txt", "One text of bread."), client.upload("a.txt", "One text of bread.")
    assert one["id"] != other["id"]
    client.ask("DELETE", f"files/{one['id']}")
    assert client.ask("GET", f"files/{other['id']}")["filename"] == "a.txt"


@pytest.mark.parametrize("parts, word", [
    ([("file", "a.txt", b"text")], "purpose"),
    ([("purpose", None, b"assistants")], "file"),
    ([("file", "a.txt", b"text"), ("purpose", None, b"fine-tune")], "fine-tune"),
    ([("file", "a.txt", b"text"), ("purpose", None, b"batch")], "batch"),
    ([("file", "a.zip", b"PK"), ("purpose", None, b"assistants")], "/v1/documents"),
    ([("file", "a.txt", b"text"), ("file", "b.txt", b"text"), ("purpose", None, b"assistants")], "more than one"),
    ([("file", None, b"text"), ("purpose", None, b"assistants")], "filename"),
    ([("file", "a.txt", b""), ("purpose", None, b"assistants")], "a.txt"),
    ([("file", "a.bin", bytes(range(256)) * 9), ("purpose", None, b"assistants")], "a.bin"),
    ([("file", "a.txt", b"text"), ("purpose", None, b"assistants"), ("expires_after[anchor]", None, b"created_at")], "seconds"),
    ([("file", "a.txt", b"text"), ("purpose", None, b"assistants"), ("expires_after[seconds]", None, b"4000")], "anchor"),
    ([("file", "a.txt", b"text"), ("purpose", None, b"assistants"), ("expires_after[anchor]", None, b"created_at"),
      ("expires_after[seconds]", None, b"3599")], "3600"),
])
def test_what_is_no_upload_is_refused(client, parts, word):
    assert word in client.form(parts, status=400)["error"]["message"]


def test_a_document_of_the_collection_is_deleted_by_no_cleaning_script(client):
    file = client.ask("GET", "files")["data"][0]
    assert "/v1/documents" in client.ask("DELETE", f"files/{file['id']}", status=400).error()["message"]
    store = client.store()
    refused = client.ask("POST", f"vector_stores/{store['id']}/files", {"file_id": file["id"]}, status=400)
    assert "vs_collection" in refused.error()["message"]


def test_a_store_is_made_shown_changed_and_deleted(client, files):
    store = client.store(files["bread.md"], files["fork.txt"], name="Öl", metadata={"team": "web"}, expires_after={"anchor": "last_active_at", "days": 3})
    assert store["object"] == "vector_store" and store["name"] == "Öl" and store["metadata"] == {"team": "web"}
    assert store["file_counts"] == {"in_progress": 0, "completed": 2, "failed": 0, "cancelled": 0, "total": 2}
    assert store["expires_after"] == {"anchor": "last_active_at", "days": 3} and store["expires_at"] == store["last_active_at"] + 3 * 86400
    assert store["usage_bytes"] == len(TEXTS["bread.md"]) + len(TEXTS["fork.txt"])
    changed = client.ask("POST", f"vector_stores/{store['id']}", {"name": "b", "metadata": {"a": "1"}})
    assert changed["name"] == "b" and changed["metadata"] == {"a": "1"} and changed["expires_after"]["days"] == 3
    lasting = client.ask("POST", f"vector_stores/{store['id']}", {"expires_after": None})
    assert "expires_after" not in lasting and lasting["name"] == "b"
    assert client.ask("GET", f"vector_stores/{store['id']}") == lasting
    assert client.ask("DELETE", f"vector_stores/{store['id']}") == {"id": store["id"], "object": "vector_store.deleted", "deleted": True}
    for method, path, body in (("GET", "", None), ("POST", "", {}), ("DELETE", "", None), ("POST", "/search", {"query": "a"}), ("GET", "/files", None),
                               ("POST", "/files", {"file_id": files["bread.md"]["id"]}), ("GET", f"/files/{files['bread.md']['id']}", None)):
        client.ask(method, f"vector_stores/{store['id']}{path}", body, status=404)
    assert client.ask("GET", f"files/{files['bread.md']['id']}") == files["bread.md"]


def test_stores_are_listed_by_cursors(client):
    made = [client.store(name=str(i))["id"] for i in range(5)]
    assert [s["id"] for s in client.listed("vector_stores?order=asc")] == ["vs_collection", *made]
    assert [s["id"] for s in client.listed("vector_stores")] == [*made[::-1], "vs_collection"]
    back = client.ask("GET", f"vector_stores?limit=2&before={made[0]}")
    assert [s["id"] for s in back["data"]] == [made[2], made[1]] and back["has_more"]
    client.ask("GET", "vector_stores?after=vs_no", status=400)
    for query in ("limit=0", "limit=101", "order=up"):
        client.ask("GET", f"vector_stores?{query}", status=400)


def test_files_of_a_store(client, files):
    store = client.store()
    attributes = {"author": "Ann", "year": 2020, "draft": False, "weight": 0.5}
    added = client.add(store, files["bread.md"], attributes=attributes)
    assert added["object"] == "vector_store.file" and added["attributes"] == attributes and added["last_error"] is None
    assert added["usage_bytes"] == len(TEXTS["bread.md"]) and added["vector_store_id"] == store["id"]
    client.add(store, files["fork.txt"])
    client.add(store, files["mortar.md"])
    path = f"vector_stores/{store['id']}/files"
    assert {f["id"] for f in client.listed(path)} == {f["id"] for f in files.values()}
    assert client.listed(path + "?order=asc") == client.listed(path)[::-1]
    assert client.ask("GET", path + "?filter=failed")["data"] == [] and len(client.ask("GET", path + "?filter=completed")["data"]) == 3
    content = client.ask("GET", f"{path}/{added['id']}/content")
    assert content["data"] == [{"type": "text", "text": TEXTS["bread.md"]}]
    changed = client.ask("POST", f"{path}/{added['id']}", {"attributes": {"year": 2021}})
    assert changed == added | {"attributes": {"year": 2021}} == client.ask("GET", f"{path}/{added['id']}")
    assert client.ask("DELETE", f"{path}/{added['id']}") == {"id": added["id"], "object": "vector_store.file.deleted", "deleted": True}
    client.ask("GET", f"{path}/{added['id']}", status=404)
    client.ask("DELETE", f"{path}/{added['id']}", status=404)
    assert client.found(store) == {"fork.txt", "mortar.md"}
    assert client.ask("GET", f"files/{added['id']}")["id"] == added["id"]
    client.ask("DELETE", f"files/{files['fork.txt']['id']}")
    assert [f["id"] for f in client.listed(path)] == [files["mortar.md"]["id"]]


def test_a_file_has_attributes_in_each_store(client, files):
    one, other = client.store(), client.store()
    client.add(one, files["bread.md"], attributes={"kind": "food"})
    client.add(other, files["bread.md"], attributes={"kind": "craft"})
    client.add(other, files["mortar.md"], attributes={"kind": "craft"})
    where = {"type": "eq", "key": "kind", "value": "craft"}
    assert client.found(one, filters=where) == set() and client.found(other, filters=where) == {"bread.md", "mortar.md"}
    assert [h["attributes"] for h in client.search(one)] == [{"kind": "food"}]
    client.ask("DELETE", f"vector_stores/{other['id']}")
    assert client.found(one) == {"bread.md"}
    again = client.store()
    client.add(again, files["bread.md"])
    stored = json.loads(json.dumps(client.ask("GET", f"documents/{files['bread.md']['id'].removeprefix('file-')}")["metadata"]))
    assert not [name for name in stored if other["id"] in name], "the deleted store went from the metadata"


def test_filters(client, files):
    store = client.store()
    for name, year, tag in (("bread.md", 2019, "a"), ("fork.txt", 2020, "b"), ("mortar.md", 2021, "c")):
        client.add(store, files[name], attributes={"year": year, "tag": tag, "odd": year % 2 == 1})
    client.ask("POST", f"vector_stores/{store['id']}/files/{files['mortar.md']['id']}", {"attributes": {"year": 2021, "odd": True}})

    def where(kind, key, value):
        return {"type": kind, "key": key, "value": value}

    for filters, names in [(where("eq", "tag", "a"), {"bread.md"}), (where("ne", "tag", "a"), {"fork.txt", "mortar.md"}),
                           (where("gt", "year", 2019), {"fork.txt", "mortar.md"}), (where("gte", "year", 2021), {"mortar.md"}),
                           (where("lt", "year", 2020), {"bread.md"}), (where("lte", "year", 2020), {"bread.md", "fork.txt"}),
                           (where("in", "tag", ["a", "b"]), {"bread.md", "fork.txt"}), (where("nin", "tag", ["a", "b"]), {"mortar.md"}),
                           (where("eq", "odd", True), {"bread.md", "mortar.md"}),
                           ({"type": "and", "filters": [where("eq", "odd", True), where("gt", "year", 2020)]}, {"mortar.md"}),
                           ({"type": "or", "filters": [where("eq", "tag", "b"), {"type": "and", "filters": [where("lt", "year", 2020)]}]}, {"bread.md", "fork.txt"})]:
        assert client.found(store, filters=filters) == names, filters
    for filters in (where("near", "a", 1), {"type": "and", "filters": []}, where("gt", "year", True), {"type": "eq", "key": "a"}):
        client.ask("POST", f"vector_stores/{store['id']}/search", {"query": "a", "filters": filters}, status=400)


def test_search_options(client, files):
    store = client.store(*files.values())
    hits = client.search(store, query="saffron dough in an oven")
    assert hits[0]["filename"] == "bread.md" and hits[0]["file_id"] == files["bread.md"]["id"] and hits[0]["content"][0]["text"] in TEXTS["bread.md"]
    assert [h["score"] for h in hits] == sorted((h["score"] for h in hits), reverse=True)
    assert len(client.search(store, max_num_results=1)) == 1 and client.search(store, ranking_options={"ranker": "auto", "score_threshold": 0.99}) == []
    assert client.search(store, rewrite_query=False)
    for fields, word in (({"rewrite_query": True}, "rewrite_query"), ({"max_num_results": 51}, "max_num_results")):
        assert word in client.ask("POST", f"vector_stores/{store['id']}/search", {"query": "a", **fields}, status=400).error()["message"]


def test_batches(client, files):
    store = client.store()
    path = f"vector_stores/{store['id']}/file_batches"
    made = client.ask("POST", path, {"file_ids": [f["id"] for f in files.values()], "attributes": {"year": 1}})
    assert made["object"] == "vector_store.files_batch" and made["status"] == "in_progress" and made["file_counts"]["total"] == 3
    batch = client.settled(f"{path}/{made['id']}")
    assert batch["file_counts"] == {"in_progress": 0, "completed": 3, "failed": 0, "cancelled": 0, "total": 3}
    listed = client.listed(f"{path}/{made['id']}/files")
    assert {f["id"] for f in listed} == {f["id"] for f in files.values()} and all(f["attributes"] == {"year": 1} for f in listed)
    assert client.ask("POST", f"{path}/{made['id']}/cancel") == batch, "it is over"
    other = client.store()
    path = f"vector_stores/{other['id']}/file_batches"
    made = client.ask("POST", path, {"files": [{"file_id": files["bread.md"]["id"], "attributes": {"n": 1}}, {"file_id": files["fork.txt"]["id"]}]})
    client.settled(f"{path}/{made['id']}")
    assert {f["id"]: f["attributes"] for f in client.listed(f"vector_stores/{other['id']}/files")} == {files["bread.md"]["id"]: {"n": 1}, files["fork.txt"]["id"]: {}}
    for body in ({}, {"file_ids": []}, {"file_ids": ["file-x"], "files": []}, {"file_ids": "file-x"}, {"files": [{}]}):
        client.ask("POST", path, body, status=400)
    client.ask("POST", path, {"file_ids": ["file-0000"]}, status=404)
    client.ask("GET", f"vector_stores/{store['id']}/file_batches/{made['id']}", status=404)
    client.ask("GET", f"{path}/vsfb_no", status=404)


def test_what_stores_do_not_take_is_refused_by_name(client, files):
    store = client.store()
    file = files["bread.md"]["id"]
    long = {str(i): 1 for i in range(17)}
    for path, body, word in [("vector_stores", {"name": "n" * 257}, "name"), ("vector_stores", {"metadata": {"a": 1}}, "metadata"),
                             ("vector_stores", {"metadata": {str(i): "" for i in range(17)}}, "16"),
                             ("vector_stores", {"expires_after": {"anchor": "created_at", "days": 1}}, "last_active_at"),
                             ("vector_stores", {"expires_after": {"anchor": "last_active_at", "days": 366}}, "365"),
                             ("vector_stores", {"file_ids": [1] * 501}, "500"),
                             ("vector_stores", {"chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}}, "chunks of at most 64"),
                             (f"vector_stores/{store['id']}/files", {"file_id": file, "attributes": long}, "16"),
                             (f"vector_stores/{store['id']}/files", {"file_id": file, "attributes": {"k" * 65: 1}}, "64"),
                             (f"vector_stores/{store['id']}/files", {"file_id": file, "attributes": {"a": "v" * 513}}, "512"),
                             (f"vector_stores/{store['id']}/files", {"file_id": file, "attributes": {"a": [1]}}, "attributes"),
                             (f"vector_stores/{store['id']}/files", {"file_id": file, "attributes": 5}, "attributes"),
                             (f"vector_stores/{store['id']}/files", {}, "file_id"),
                             ("vector_stores/vs_collection", {"name": "a"}, "/v1/documents"),
                             ("vector_stores/vs_collection/files", {"file_id": file}, "/v1/documents"),
                             ("vector_stores/vs_collection/file_batches", {"file_ids": [file]}, "/v1/documents")]:
        assert word in client.ask("POST", path, body, status=400).error()["message"], (path, body)
    client.ask("DELETE", "vector_stores/vs_collection", status=400)
    client.ask("POST", "vector_stores", {"file_ids": ["file-0"]}, status=404)
    same = {"type": "static", "static": client.add(store, files["fork.txt"])["chunking_strategy"]["static"]}
    client.ask("POST", "vector_stores", {"chunking_strategy": same})
    client.ask("POST", "documents", {"text": "a", "metadata": {"$owner": "me"}}, status=400)


def test_a_key_has_so_many_stores(start, folder):
    client = Client(start(*options(folder, "server.max_vector_stores=2")))
    one, two = client.store(), client.store()
    assert "server.max_vector_stores" in client.ask("POST", "vector_stores", {}, status=400).error()["message"]
    client.ask("DELETE", f"vector_stores/{one['id']}")
    client.store()
    assert two["id"] in {s["id"] for s in client.ask("GET", "vector_stores")["data"]}


def test_a_file_that_cannot_be_added_says_why(start, folder):
    client = Client(start(*options(folder, "retrieval.max_metadata_values=8")))
    file, store = client.upload("bread.md"), client.store()
    failed = client.add(store, file, state="failed", attributes={str(i): i for i in range(9)})
    assert failed["last_error"]["code"] == "invalid_file" and "max_metadata_values" in failed["last_error"]["message"]
    shown = client.ask("GET", f"vector_stores/{store['id']}")
    assert shown["file_counts"] == {"in_progress": 0, "completed": 0, "failed": 1, "cancelled": 0, "total": 1} and client.found(store) == set()
    assert [f["status"] for f in client.ask("GET", f"vector_stores/{store['id']}/files?filter=failed")["data"]] == ["failed"]
    client.ask("DELETE", f"vector_stores/{store['id']}/files/{file['id']}")
    assert client.ask("GET", f"vector_stores/{store['id']}")["file_counts"]["total"] == 0
    assert client.add(store, file)["status"] == "completed"


def test_files_and_stores_outlive_the_server(start, folder):
    first = Client(start(*options(folder)))
    files = [first.upload(name) for name in TEXTS]
    store = first.store(files[0], name="kept", metadata={"a": "b"})
    first.add(store, files[1], attributes={"n": 1})
    first.server.process.kill()
    first.server.process.wait(30)
    first.server.process.returncode = 0
    again = Client(start(*options(folder)))
    assert again.ask("GET", f"vector_stores/{store['id']}")["file_counts"]["completed"] == 2
    assert again.ask("GET", f"vector_stores/{store['id']}")["name"] == "kept"
    assert again.ask("GET", f"vector_stores/{store['id']}/files/{files[1]['id']}")["attributes"] == {"n": 1}
    assert again.found(store) == {"bread.md", "fork.txt"}
    for file in files:
        again.ask("DELETE", f"files/{file['id']}")
    again.ask("DELETE", f"vector_stores/{store['id']}")


def edit(folder, change):
    file = folder / "vector_stores.json"
    records = json.loads(file.read_text())
    change(records)
    file.write_text(json.dumps(records))


def test_what_was_in_progress_when_a_server_died_can_be_done_again(start, folder):
    client = Client(start(*options(folder)))
    file, other, store = client.upload("bread.md"), client.upload("fork.txt"), client.store()
    path = f"vector_stores/{store['id']}"
    batch = client.settled(f"{path}/file_batches/" + client.ask("POST", f"{path}/file_batches", {"file_ids": [file["id"], other["id"]]})["id"])
    client.ask("DELETE", f"{path}/files/{other['id']}")
    assert client.server.stop() == 0

    def undo(records):
        for entry in records["batches"][0]["files"]:
            entry.update(state="in_progress", gone=False)
        records["batches"][0]["server"] = "00000000000000ff"

    edit(folder, undo)
    client = Client(start(*options(folder)))
    shown = client.ask("GET", f"{path}/file_batches/{batch['id']}")
    assert shown["status"] == "completed" and shown["file_counts"] == {"in_progress": 0, "completed": 1, "failed": 1, "cancelled": 0, "total": 2}
    lost = client.ask("GET", f"{path}/files/{other['id']}")
    assert lost["status"] == "failed" and lost["last_error"]["code"] == "server_error" and "again" in lost["last_error"]["message"]
    assert client.add(store, other)["status"] == "completed"


def test_a_store_expires(start, folder):
    client = Client(start(*options(folder)))
    file = client.upload("bread.md")
    store = client.store(file, expires_after={"anchor": "last_active_at", "days": 2})
    lasting = client.store(file)
    old = client.store(expires_after={"anchor": "last_active_at", "days": 1})
    assert client.server.stop() == 0

    def age(records):
        for record in records["stores"]:
            record["active"] -= (20 if record["id"] == old["id"] else 3) * 86400

    edit(folder, age)
    client = Client(start(*options(folder)))
    path = f"vector_stores/{store['id']}"
    shown = client.ask("GET", path)
    assert shown["status"] == "expired" and shown["file_counts"]["total"] == 0 and shown["expires_at"] < time.time()
    for method, at, body in (("POST", "/search", {"query": "a"}), ("GET", "/files", None), ("POST", "/files", {"file_id": file["id"]}), ("POST", "", {"name": "a"})):
        assert "expired" in client.ask(method, path + at, body, status=400).error()["message"]
    respond = client.ask("POST", "responses", {"model": MODEL, "input": "a", "tools": [{"type": "file_search", "vector_store_ids": [store["id"]]}]}, status=400)
    assert "expired" in respond.error()["message"]
    assert client.found(lasting) == {"bread.md"}
    deadline = time.monotonic() + PATIENCE
    while old["id"] in {s["id"] for s in client.ask("GET", "vector_stores")["data"]}:
        assert time.monotonic() < deadline, "one that expired long ago is forgotten"
        time.sleep(0.1)
    client.ask("DELETE", path)
    assert client.ask("GET", f"files/{file['id']}")["id"] == file["id"]


def test_a_damaged_file_of_records_is_told_and_nothing_is_lost(start, folder):
    client = Client(start(*options(folder)))
    store = client.store()
    file = folder / "vector_stores.json"
    whole = file.read_text()
    file.write_text(whole[:-3])
    assert "vector_stores.json" in client.ask("GET", f"vector_stores/{store['id']}", status=500).error()["message"]
    client.ask("POST", "vector_stores", {}, status=500)
    file.write_text(whole)
    assert client.ask("GET", f"vector_stores/{store['id']}")["id"] == store["id"]


def test_two_servers_of_a_collection_share_stores(start, folder):
    one, other = Client(start(*options(folder))), Client(start(*options(folder)))
    file = one.upload("bread.md")
    store = one.store(file, name="both")
    assert other.ask("GET", f"vector_stores/{store['id']}")["name"] == "both"
    deadline = time.monotonic() + PATIENCE
    while other.found(store) != {"bread.md"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    made = {other.store()["id"], *(one.store()["id"] for _ in range(3)), store["id"], "vs_collection"}
    assert {s["id"] for c in (one, other) for s in c.ask("GET", "vector_stores")["data"]} == made


def test_the_folder_is_away_for_a_while(start, folder):
    """A store is not answered as if it were gone; and behind another folder in its place servers keep each other out as before."""
    first = Client(start(*options(folder)))
    kept = first.store(name="kept")
    away = folder.rename(folder.parent / "away")
    for method in "GET", "DELETE":
        reply = first.ask(method, f"vector_stores/{kept['id']}", status=500)
        assert "vector_stores.json" in reply.json()["error"]["message"]
    shutil.copytree(away, folder)
    second = Client(start(*options(folder)))
    made, n = [], 40

    def make(client):
        made.extend(client.ask("POST", "vector_stores", {"name": f"store {i}"})["id"] for i in range(n))

    threads = [threading.Thread(target=make, args=(client,)) for client in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 2 * n
    for client in first, second:
        listed = {store["id"] for store in client.ask("GET", "vector_stores?limit=100")["data"]}
        assert listed == {*made, kept["id"], "vs_collection"}
        client.ask("GET", f"vector_stores/{kept['id']}")


def test_a_file_whose_time_is_over_is_gone_at_once_and_deleted_soon(config, start, folder, tmp_path):
    client = Client(start(*options(folder)))
    fields = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    kept = client.upload("fork.txt", **fields)
    assert kept["expires_at"] == kept["created_at"] + 3600 and client.ask("GET", f"files/{kept['id']}") == kept
    store = client.store(kept)
    assert client.found(store) == {"fork.txt"}
    assert client.server.stop() == 0
    (tmp_path / "over.txt").write_text(TEXTS["mortar.md"])
    facts = {"$purpose": "assistants", "$created": 1, "$bytes": 9, "$until": 2, f"${store['id']}": 1}
    given = [word for name, value in facts.items() for word in ("--meta", f"{name}={value}")]
    done = subprocess.run([BUILD / "retro-index", "add", *given, folder, tmp_path / "over.txt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    client = Client(start(*options(folder)))
    shown = {f["filename"] for f in client.ask("GET", "files?limit=1000")["data"]}
    assert "fork.txt" in shown and not [name for name in shown if "over.txt" in name] and client.found(store) == {"fork.txt"}
    assert client.ask("GET", f"vector_stores/{store['id']}")["file_counts"]["total"] == 1
    deadline = time.monotonic() + PATIENCE
    while [d for d in client.ask("GET", "documents?limit=1000")["data"] if d["path"].endswith("over.txt")]:
        assert time.monotonic() < deadline, "nobody sweeps"
        time.sleep(0.1)
