"""/v1/documents: a collection that changes while it is served, by requests and by retro-index beside the server."""
import json
import pathlib
import subprocess
import sys
import threading
import urllib.parse

import pytest

from conftest import BUILD, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "index"))
import make_files  # noqa: E402

BREAD = "# Bread\n\nKnead the dough for ten minutes, then let it rise in a warm place until it has doubled.\n"


@pytest.fixture()
def served(start, folder):
    return start(f"retrieval.collection={folder}")


def call(server, method, path, body=None, expect=200):
    reply = server.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
    assert reply.status == expect, reply.body
    return reply.json()


def index(*arguments, code=0):
    done = subprocess.run([BUILD / "retro-index", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def search(server, query, k=3):
    return call(server, "POST", "/v1/retrieval/search", {"query": query, "k": k})["data"]


def finds(server, query, path):
    return any(hit["document"] == path for hit in search(server, query))


def test_add_replace_delete(served):
    before = call(served, "GET", "/v1/documents")
    body = {"id": "bread", "path": "kitchen/bread.md", "title": "Bread", "text": BREAD, "metadata": {"team": "bakers", "year": 2024, "tags": ["a", "b"]}}
    assert call(served, "POST", "/v1/documents", body) == {"id": "bread", "path": "kitchen/bread.md", "object": "document", "effect": "added"}
    assert call(served, "POST", "/v1/documents", body)["effect"] == "unchanged"
    assert search(served, "how do I bake")[0]["document"] == "kitchen/bread.md"
    shown = call(served, "GET", "/v1/documents/bread")
    assert shown["text"] == BREAD and shown["metadata"] == body["metadata"] and shown["bytes"] == len(BREAD.encode())

    body["text"] = "Use a sourdough starter and a hot oven with steam."
    assert call(served, "PUT", "/v1/documents/bread", {k: v for k, v in body.items() if k != "id"})["effect"] == "replaced"
    assert call(served, "GET", "/v1/documents/bread")["text"] == body["text"]
    assert not any("Knead" in hit["text"] for hit in search(served, "knead the dough", 16) if hit["document"] == "kitchen/bread.md")

    after = call(served, "GET", "/v1/documents")
    assert after["documents"] == before["documents"] + 1 and after["changes"] == before["changes"] + 2
    assert call(served, "DELETE", "/v1/documents/bread")["effect"] == "deleted"
    assert not finds(served, "how do I bake", "kitchen/bread.md")
    assert call(served, "GET", "/v1/documents/bread", expect=404)["error"]["code"] == "not_found"
    call(served, "DELETE", "/v1/documents/bread", expect=404)


def test_ids_are_any_text(served):
    for name in ("a b/c", "ä?&=", "x" * 512):
        path = "/v1/documents/" + urllib.parse.quote(name, safe="")
        assert call(served, "PUT", path, {"text": "A note about " + name})["id"] == name
        assert call(served, "GET", path)["id"] == name
        call(served, "DELETE", path)
    assert call(served, "PUT", "/v1/documents/" + "x" * 513, {"text": "too long"}, expect=400)["error"]["message"].count("512")
    assert call(served, "PUT", "/v1/documents/a", {"id": "b", "text": "x"}, expect=400)["error"]["param"] == "id"
    first = call(served, "POST", "/v1/documents", {"text": "No id and no path."})
    assert call(served, "POST", "/v1/documents", {"text": "No id and no path."}) == first | {"effect": "unchanged"}


def test_list_in_pages(served):
    for i in range(5):
        call(served, "PUT", f"/v1/documents/note-{i}", {"text": f"Note {i}.", "path": f"notes/{i}"})
    page = call(served, "GET", "/v1/documents?prefix=notes/&limit=2")
    assert [d["id"] for d in page["data"]] == ["note-0", "note-1"] and page["has_more"]
    page = call(served, "GET", "/v1/documents?prefix=notes/&limit=3&after=note-1")
    assert [d["id"] for d in page["data"]] == ["note-2", "note-3", "note-4"] and not page["has_more"]
    assert "text" not in page["data"][0]
    call(served, "GET", "/v1/documents?after=nobody", expect=404)
    assert call(served, "GET", "/v1/documents?limit=0", expect=400)["error"]["param"] == "limit"


@pytest.mark.parametrize("body, param", [({}, "text"), ({"text": ""}, "text"), ({"text": 5}, "text"), ({"text": "x", "metadata": {"a": {}}}, "metadata"),
                                         ({"text": "x", "metadata": []}, "metadata"), ({"text": "x", "id": ""}, "id"), ({"text": "x", "more": 1}, "more")])
def test_bad_documents(served, body, param):
    assert call(served, "POST", "/v1/documents", body, expect=400)["error"]["param"] == param


def test_answers_read_what_was_added(served):
    """The next request retrieves from the new document, and from the deleted one no more."""
    ask = {"prompt": "Knead the dough for ten minutes, then let it", "max_tokens": 4, "temperature": 0, "retrieval": {"k": 2}}

    def sources():
        return {n["document"] for entry in served.post(ask).json()["retrieval"] for n in entry["neighbors"]}

    assert "kitchen/bread.md" not in sources()
    call(served, "PUT", "/v1/documents/bread", {"path": "kitchen/bread.md", "text": BREAD})
    assert "kitchen/bread.md" in sources()
    call(served, "DELETE", "/v1/documents/bread")
    assert "kitchen/bread.md" not in sources()


def test_retro_index_beside_the_server(served, folder, tmp_path):
    """Both change the collection, and each sees at once what the other did."""
    page = tmp_path / "bread.md"
    page.write_text(BREAD)
    added = index("add", folder, page).split()[1]
    assert search(served, "how do I bake")[0]["document"] == "bread.md"
    call(served, "PUT", "/v1/documents/soup", {"text": "Soup needs salt and time.", "path": "soup.md"})
    assert {added, "soup.md"} <= set(index("list", folder).split())
    assert index("delete", folder, "soup") == "deleted soup.md\n"
    call(served, "GET", "/v1/documents/soup", expect=404)

    assert "generation 2" in index("compact", folder)
    served.wait_until(lambda health: call(served, "GET", "/v1/documents")["generation"] == 2, 60)
    assert finds(served, "how do I bake", "bread.md")
    [document] = [d["id"] for d in map(json.loads, index("list", "--json", folder).splitlines()) if d["path"] == added]
    call(served, "DELETE", f"/v1/documents/{document}")
    assert added not in index("list", folder).split()


def test_compacts_by_itself(start, folder):
    served = start(f"retrieval.collection={folder}", "retrieval.compact_after=5")
    for i in range(6):
        call(served, "PUT", f"/v1/documents/note-{i}", {"text": f"Note {i} is about the number {i * i}."})
    served.wait_until(lambda health: call(served, "GET", "/v1/documents")["generation"] > 1, 60)
    assert call(served, "GET", "/v1/documents/note-5")["text"].endswith("25.")
    assert finds(served, "note 5 about the number 25", "note-5")


def test_many_at_once(served):
    """Threads that add and delete at the same time: every acknowledged change is there."""
    failures = []

    def change(first):
        try:
            for i in range(first, first + 8):
                call(served, "PUT", f"/v1/documents/n{i}", {"text": f"Number {i} in words and figures."})
            for i in range(first, first + 8, 2):
                call(served, "DELETE", f"/v1/documents/n{i}")
        except AssertionError as e:
            failures.append(e)

    threads = [threading.Thread(target=change, args=(100 * t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    left = {d["id"] for d in call(served, "GET", "/v1/documents?limit=1000")["data"] if d["id"].startswith("n")}
    assert {f"n{100 * t + i}" for t in range(4) for i in range(1, 8, 2)} <= left
    assert not {f"n{100 * t + i}" for t in range(4) for i in range(0, 8, 2)} & left


def test_the_folder_is_away_for_a_while(served, folder):
    """A document that is still searched is not answered as if it were gone, and nothing takes the folder's place."""
    call(served, "PUT", "/v1/documents/bread", {"text": BREAD})
    away = folder.rename(folder.parent / "away")
    assert finds(served, "knead the dough", "bread")
    for method, path in ("DELETE", "/v1/documents/bread"), ("DELETE", "/v1/documents/nothing"), ("PUT", "/v1/documents/soup"):
        reply = served.request(method, path, json.dumps({"text": "Stir."}) if method == "PUT" else None)
        assert reply.status == 500 and reply.error()["code"] == "internal_error", reply.body
        told = reply.error()["message"]
        assert "the log of the server" in told and "No such file" in told and str(folder.parent) not in told, told
    assert not folder.exists() and f"{folder}/" in served.log.read_text()
    away.rename(folder)
    assert call(served, "DELETE", "/v1/documents/bread")["effect"] == "deleted"
    assert call(served, "PUT", "/v1/documents/soup", {"text": "Stir."})["effect"] == "added"


def test_kept_over_a_restart(config, folder, tmp_path):
    first = Server(config, tmp_path, f"retrieval.collection={folder}")
    call(first, "PUT", "/v1/documents/bread", {"path": "bread.md", "text": BREAD})
    first.process.kill()
    first.process.wait(30)
    second = Server(config, tmp_path, f"retrieval.collection={folder}")
    assert call(second, "GET", "/v1/documents/bread")["text"] == BREAD
    assert finds(second, "how do I bake", "bread.md")
    assert second.stop() == 0


@pytest.mark.parametrize("access, read, write", [("off", 403, 403), ("read", 200, 403), ("write", 200, 200)])
def test_access(start, folder, access, read, write):
    served = start(f"retrieval.collection={folder}", f"retrieval.documents={access}")
    call(served, "GET", "/v1/documents", expect=read)
    call(served, "PUT", "/v1/documents/a", {"text": "A note."}, expect=write)
    call(served, "DELETE", "/v1/documents/a", expect=write)


def upload(server, parts, expect=200, boundary="b0undary", tail="--\r\n"):
    """parts: (name, filename or None, bytes)."""
    body = b""
    for name, filename, content in parts:
        disposition = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
        body += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"
    body += f"--{boundary}{tail}".encode()
    reply = server.request("POST", "/v1/documents", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    assert reply.status == expect, reply.body
    return reply.json()


def test_upload(served):
    page = b"<html><head><title>Steam</title></head><body><p>Steam ovens bake bread with a shiny crust.</p></body></html>"
    said = upload(served, [("file", "kitchen/bread.md", BREAD.encode()), ("file", "steam.html", page),
                           ("metadata", None, b'{"team": "bakers"}'), ("file", "x.bin", b"\0\1")])
    assert said["object"] == "list" and [d["effect"] for d in said["data"]] == ["added", "added", "failed"]
    assert "x.bin" in said["data"][2]["error"]["message"] and "/proc" not in json.dumps(said)
    shown = call(served, "GET", "/v1/documents/" + said["data"][1]["id"])
    assert shown["title"] == "Steam" and shown["path"] == "steam.html" and "shiny crust" in shown["text"]
    assert shown["metadata"] == {"team": "bakers"}
    assert search(served, "how do I bake bread")[0]["document"] in ("kitchen/bread.md", "steam.html")
    again = upload(served, [("file", "steam.html", page), ("metadata", None, b'{"team": "bakers"}')])
    assert again["data"] == [{"id": said["data"][1]["id"], "path": "steam.html", "object": "document", "effect": "unchanged"}]
    one = upload(served, [("id", None, b"mine"), ("title", None, b"A title"), ("path", None, b"a/b.md"), ("file", "b.md", b"# B\n\nText.\n")])
    assert one["data"][0]["id"] == "mine"
    shown = call(served, "GET", "/v1/documents/mine")
    assert shown["path"] == "a/b.md" and shown["title"] == "A title"
    # Text that looks like a boundary.
    tricky = b"One line.\r\n--b0undar\r\nAnother line.\r\n-- and more."
    upload(served, [("id", None, b"tricky"), ("file", "t.txt", tricky)])
    assert call(served, "GET", "/v1/documents/tricky")["text"].encode() == tricky


def test_two_files_of_one_name(served):
    """As curl sends files of two folders: neither is taken, and nothing that was there is lost."""
    upload(served, [("file", "notes/README.md", b"# Notes\n\nThe oldest.\n")])
    before = paths_of(served)
    twins = [("file", "README.md", b"# One\n\nFirst.\n"), ("file", "other.md", b"# Other\n"), ("file", "README.md", b"# Two\n\nSecond.\n")]
    refused = upload(served, twins, expect=400)["error"]["message"]
    assert 'parts 1 and 3 of the body are both called "README.md"' in refused and paths_of(served) == before
    twins[2] = ("file", "docs/README.md", twins[2][2])
    assert [d["effect"] for d in upload(served, twins)["data"]] == ["added"] * 3
    assert paths_of(served).keys() - before.keys() == {"README.md", "other.md", "docs/README.md"}


def test_uploads_of_foreign_formats(served):
    """They are parsed beside the server, as retro-index does, and a passage knows its page."""
    good, bad = make_files.good(), make_files.hostile()
    man = b".TH SIEVE 1\n.SH NAME\nsieve \\- strain quinoa\n"
    upload(served, [("file", "paper.pdf", good["paper.pdf"]), ("file", "book.docx", good["book.docx"]), ("file", "sieve.1", man)])
    found = search(served, "Page one tells of apples, page three tells of pears")
    assert [hit["page"] for hit in found if hit["document"] == "paper.pdf"] == [1], found
    found = search(served, "ovens: heat to 200 degrees, wear gloves and goggles")
    assert [hit["heading"] for hit in found if hit["document"] == "book.docx"] == [["Ovens", "Safety"]], found
    assert finds(served, "strain quinoa", "sieve.1")
    failed = upload(served, [("file", "laughs.docx", bad["laughs.docx"]), ("file", "text.pdf", bad["text.pdf"])])["data"]
    for answer, words in zip(failed, ["laughs.docx: damaged", "text.pdf: it is no PDF, or damaged"]):
        assert answer["effect"] == "failed" and answer["error"]["message"].startswith(words)
    assert finds(served, "strain quinoa", "sieve.1")


def paths_of(server):
    return {d["path"]: d["id"] for d in call(server, "GET", "/v1/documents?limit=1000")["data"]}


def test_uploads_of_several_documents(served):
    """Archives, tables, lines of JSON and mail: the answer has an id for each document, and what was left out."""
    good, before = make_files.good(), paths_of(served)
    parts = [("file", name, good[name]) for name in ("all.zip", "prices.csv", "all.tar.gz", "letter.eml")]
    said = upload(served, [*parts, ("file", "a.txt", b"A text."), ("metadata", None, b'{"team": "bakers"}')])
    now = {path: i for path, i in paths_of(served).items() if path not in before}
    assert [d["effect"] for d in said["data"]] == ["added"] * 15 and {d["id"] for d in said["data"]} == set(now.values())
    assert {"all.zip!/notes/a.md", "all.zip!/inner.zip!/deep.md", "prices.csv#4", "all.tar.gz!/docs/page.html", "letter.eml",
            "letter.eml!/attachment-5.eml!/deep.md", "a.txt"} <= set(now)
    shown = call(served, "GET", "/v1/documents/" + now["prices.csv#4"])
    assert shown["text"] == "name: Pie\nprice: 4,10\n" and shown["title"] == "Pie" and shown["metadata"] == {"team": "bakers"}
    assert finds(served, "buried treasure", "all.zip!/inner.zip!/deep.md")
    assert said["n_skipped"] == 4 and [s["file"] for s in said["skipped"]] == ["all.zip"] * 3 + ["letter.eml"]
    assert "all.zip!/../../escape.txt: its name leads out of the archive" in [s["message"] for s in said["skipped"]]

    again = upload(served, [parts[1], ("metadata", None, b'{"team": "bakers"}')])
    assert [d["effect"] for d in again["data"]] == ["unchanged"] * 3 and "skipped" not in again
    own = upload(served, [("id", None, b"mine"), parts[1]])["data"]
    assert [d["id"] for d in own] == ["mine#2", "mine#4", "mine#6"]
    assert "may hold several" in upload(served, [("title", None, b"x"), parts[1]], expect=400)["error"]["message"]


def test_limits_of_uploads_of_several(served):
    """Nothing of a file over a limit is added; a file beside it is."""
    before = paths_of(served)
    rows = lambda n: b"a\n" + b"".join(b"row %d\n" % i for i in range(n))
    bomb = make_files.zipped([(f"{i}.txt", b"A bomb. " * (2 << 20)) for i in range(5)])
    said = upload(served, [("file", "rows.csv", rows(1001)), ("file", "bomb.zip", bomb), ("file", "no.zip", b"no zip"),
                           ("file", "none.csv", b"a,b\n"), ("file", "nested.zip", make_files.hostile()["nested.zip"]),
                           ("file", "good.tsv", b"a\tb\n1\t2\n")])
    assert [d["effect"] for d in said["data"]] == ["failed"] * 4 + ["added"], said
    for answer, words in zip(said["data"], ("rows.csv: more than 1000 documents", "bomb.zip: ", "no.zip: damaged", "none.csv: no document in it")):
        assert answer["error"]["message"].startswith(words) and answer["id"], answer
    assert "more text than the limit of 67108864 bytes" in said["data"][1]["error"]["message"]
    assert "more than 3 deep" in said["skipped"][0]["message"]
    assert set(paths_of(served)) - set(before) == {"good.tsv#2"}


def test_bad_uploads(served):
    before = call(served, "GET", "/v1/documents")["changes"]
    good = ("file", "a.txt", b"A text.")
    for parts, what in [([("id", None, b"x")], "no part"), ([good, ("file", "b.txt", b"B."), ("id", None, b"x")], "of one file"),
                        ([good, good], "both called"),
                        ([good, ("metadata", None, b"[1]")], "object"), ([good, ("metadata", None, b"{")], "metadata"),
                        ([good, ("colour", None, b"red")], "unknown part"), ([("file", None, b"text")], "no filename"),
                        ([good, ("title", None, b"a"), ("title", None, b"b")], "twice"),
                        ([good, ("title", None, b"\xff")], "UTF-8")]:
        assert what in upload(served, parts, expect=400)["error"]["message"]
    assert upload(served, [("id", None, b"x")], expect=400)["error"]["code"] == "missing_parameter"
    assert upload(served, [good, ("colour", None, b"red")], expect=400)["error"]["code"] == "unknown_parameter"
    assert "boundary" in upload(served, [good], expect=400, tail="")["error"]["message"]
    assert "behind" in upload(served, [good], expect=400, tail="--\r\nmore")["error"]["message"]
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=a; boundary=b",
                 'multipart/form-data; boundary="a'):
        reply = served.request("POST", "/v1/documents", b"--a--", {"Content-Type": kind})
        assert reply.status == 400 and "one boundary" in reply.json()["error"]["message"]
    assert call(served, "GET", "/v1/documents")["changes"] == before


def test_batch(served):
    batch = {"documents": [{"id": f"b{i}", "text": f"Batch document {i}.", "metadata": {"n": i}} for i in range(20)]}
    batch["documents"].append({"id": "x" * 600, "text": "An id that is too long."})
    said = call(served, "POST", "/v1/documents", batch)
    assert [d["effect"] for d in said["data"]] == ["added"] * 20 + ["failed"]
    assert call(served, "GET", "/v1/documents/b7")["metadata"] == {"n": 7}
    for bad in ([], [1], [{"id": "a"}], "x", [{"text": ""}]):
        call(served, "POST", "/v1/documents", {"documents": bad}, expect=400)
    call(served, "POST", "/v1/documents", {"documents": [{"text": "a"}], "id": "b"}, expect=400)
    call(served, "PUT", "/v1/documents/q", {"documents": [{"text": "a"}]}, expect=400)


def test_changes_are_counted_in_the_budget(start, folder, tmp_path):
    """Documents of the log are in memory until the next compaction."""
    page = tmp_path / "page.txt"
    page.write_text("A page of text. " * 4000)
    index("add", folder, page)
    counted = start(f"retrieval.collection={folder}").log.read_text()
    assert "changed documents" in counted
    index("compact", folder)
    assert "changed documents" not in start(f"retrieval.collection={folder}").log.read_text()
