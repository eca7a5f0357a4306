"""A collection in Milvus: what retro-index and the server do with it, beside the same in a folder.

`make test` runs this with a fake Milvus (tests/milvus/fake.py), `make milvus-test` with the real one."""
import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest

from conftest import BUILD, DEPS, MODEL, ROOT, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "milvus"))
import proxy  # noqa: E402
import servers  # noqa: E402
from test_keys import Keys, bearer  # noqa: E402
from test_tls import Authority  # noqa: E402

TEXTS = {
    "bread.md": "# Bread\n\nKnead the dough for ten minutes, then let it rise in a warm place until it has doubled.\n\n"
                "## Oven\n\nA hot oven and steam give a thin crust. Bake for forty minutes and let it cool on a grid.\n" * 3,
    "steam.md": "---\nteam: engines\nyear: 1829\ntags: [rail, steam]\nbuilt: 1829-10-06\n---\n# Steam\n\nThe engine raises steam "
                "in a boiler with many tubes, and the blast pipe draws the fire.\n",
    "sail.md": "---\nteam: ships\nyear: 1840\ntags: [sea]\n---\n# Sails\n\nA ship sails close to the wind when her yards are braced up.\n",
    "soup.md": "---\nteam: cooks\nyear: 2024\npublic: true\n---\n# Soup\n\nSimmer the soup for ten minutes; salt it at the end.\n",
}


def run(*arguments, code=0, **environment):
    done = subprocess.run([BUILD / "retro-index", *map(str, arguments)], capture_output=True, text=True, timeout=1200,
                          env={**os.environ, **environment})
    assert done.returncode == code, (arguments, done.returncode, done.stdout + done.stderr)
    return done.stdout if code == 0 else done.stdout + done.stderr


def lines(*arguments):
    return [json.loads(line) for line in run(*arguments).splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("milvus")
    for name, text in TEXTS.items():
        (folder / "texts" / name).parent.mkdir(exist_ok=True)
        (folder / "texts" / name).write_text(text)
    config = {"model": {"path": str(ROOT / "models" / MODEL)},
              "retrieval": {"embedder": str(DEPS / "minilm")}, "server": {"port": 0}}
    (folder / "retro.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def milvus(tmp_path_factory):
    server = servers.make(tmp_path_factory.mktemp("server")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def local(place):
    run("build", "--out", place / "local", "--config", place / "retro.json", place / "texts")
    return place / "local"


@pytest.fixture(scope="module")
def remote(place, milvus):
    address = milvus.address("texts")
    run("build", "--out", address, "--config", place / "retro.json", place / "texts")
    return address


def fresh(milvus, place, name, *paths):
    """A collection of its own for a test that changes it."""
    address = milvus.address(name)
    run("build", "--out", address, "--config", place / "retro.json", *(place / "texts" / p for p in paths or ["soup.md"]))
    return address


def same_hits(a, b):
    assert [(h["id"], h["start"]) for h in a] == [(h["id"], h["start"]) for h in b]
    for x, y in zip(a, b):
        assert abs(x.pop("similarity") - y.pop("similarity")) < 1e-5
        assert x == y


def test_verbs_agree_with_a_folder(local, remote):
    assert sorted(d["id"] for d in lines("list", "--json", local)) == sorted(d["id"] for d in lines("list", "--json", remote))
    for d in lines("list", "--json", local)[:1]:
        assert lines("show", "--json", local, d["id"]) == lines("show", "--json", remote, d["id"])
    a, b = lines("stats", "--json", local)[0], lines("stats", "--json", remote)[0]
    assert b["index"] == "HNSW" and "generation" not in b
    assert all(a[key] == b[key] for key in b if key != "index")
    same_hits(*(lines("search", "--json", "-k", 3, c, "how long do I bake bread") for c in (local, remote)))
    assert lines("verify", "--json", remote)[0]["documents"] == len(TEXTS)


CONDITIONS = [
    {"eq": {"team": "engines"}}, {"eq": {"tags": "rail"}}, {"eq": {"year": 1829.0}}, {"eq": {"year": "1829"}},
    {"eq": {"public": True}}, {"in": {"team": ["cooks", "ships", 'a "quoted\\" name']}}, {"range": {"year": {"gte": 1829, "lt": 1840}}},
    {"range": {"year": {"gt": 1829}}}, {"range": {"built": {"gte": "1829-10-06", "lte": "1829-10-06T12:00:00Z"}}},
    {"prefix": {"path": "texts/s"}}, {"prefix": {"team": "co"}}, {"prefix": {"tags": "st"}}, {"prefix": {"team": "x" * 100}},
    {"not": {"eq": {"team": "cooks"}}}, {"not": {"range": {"year": {"gte": 1829}}}}, {"not": {"prefix": {"tags": "st"}}},
    {"not": {"prefix": {"path": "texts/" + "b" * 100}}}, {"eq": {"a\"b' || chunk >= 0": 1}},
    {"and": [{"range": {"year": {"gte": 1800}}}, {"or": [{"eq": {"team": "ships"}}, {"not": {"prefix": {"path": "texts/s"}}}]}]},
]


def serve(place, tmp_path_factory, collection, *sets):
    return Server(place / "retro.json", tmp_path_factory.mktemp("served"), f"retrieval.collection={collection}", *sets)


@pytest.fixture(scope="module")
def served(place, local, remote, tmp_path_factory):
    """A server over the folder, two over Milvus."""
    running = [serve(place, tmp_path_factory, c, f"retrieval.reranker={ROOT / 'tests/golden/reranker/bert'}")
               for c in (local, remote, remote)]
    yield running
    for server in running:
        assert server.stop() == 0, server.log.read_text()


def call(server, method, path, body=None, expect=200):
    reply = server.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
    assert reply.status == expect, (path, reply.status, reply.body)
    return reply.json()


def search(server, query, k=3, **fields):
    """By vectors: only a folder has words beside them."""
    return call(server, "POST", "/v1/retrieval/search", {"query": query, "k": k, "rerank": False, "hybrid": False, **fields})["data"]


def same_data(a, b):
    """But for the chunk's number, which counts in its document in Milvus, the last bits of the similarity, and the order of
    those that are equally near."""
    a, b = (sorted(hits, key=lambda h: (-round(h.get("relevance") or h["similarity"], 4), h["document"], h["start"])) for hits in (a, b))
    assert [(h["document"], h["start"]) for h in a] == [(h["document"], h["start"]) for h in b]
    for x, y in zip(a, b):
        assert abs(x["similarity"] - y["similarity"]) < 1e-5
        assert {**x, "similarity": 0, "chunk": 0} == {**y, "similarity": 0, "chunk": 0}


def test_filters_agree_with_a_folder(served):
    for condition in CONDITIONS:
        answers = [search(s, "ten minutes of steam", 16, filter=condition) for s in served[:2]]
        same_data(*answers)
    found = [search(served[1], "steam", 16, filter=c) for c in CONDITIONS]
    assert any(found) and not all(found)


def test_choices_agree_with_a_folder(served):
    for fields in ({"per_document": 1}, {"distinct": 0.9}, {"min_similarity": 0.3}, {"k": 1},
                   {"per_document": 1, "filter": {"prefix": {"path": "texts/"}}}):
        same_data(*(search(s, "ten minutes of baking", **{"k": 8, **fields}) for s in served[:2]))


def test_a_reranker_orders_the_same(served):
    orders = []
    for query in ("ten minutes of baking", "ten minutes of steam", "a sail in the wind", "soup"):
        nearest, *found = (search(s, query, 5, rerank=rerank)
                           for s, rerank in ((served[1], False), (served[0], True), (served[1], True)))
        assert all("relevance" not in hit for hit in nearest) and all("relevance" in hit for hit in found[1])
        orders.append([hit["start"] for hit in nearest] != [hit["start"] for hit in found[1]])
        same_data(*found)
    assert any(orders)


def test_the_model_reads_the_same(served):
    """Tokens of chunks and their continuations by attention, and passages with whole sentences in the prompt."""
    for fields in ({}, {"retrieval": {"mode": "prompt"}}, {"retrieval": {"k": 1}},
                   {"retrieval": {"exclude": ["texts/bread.md"]}}):
        body = {"prompt": "The oven is hot and the bread", "max_tokens": 24, "temperature": 0, **fields}
        texts = [call(s, "POST", "/v1/completions", body)["choices"][0]["text"] for s in served]
        assert texts[0] == texts[1] == texts[2]


def test_two_servers_and_one_milvus(served):
    _, a, b = served
    call(a, "POST", "/v1/documents", {"id": "tea", "text": "Pour boiling water over the tea leaves.", "metadata": {"team": "cooks"}})
    assert call(b, "GET", "/v1/documents/tea")["text"] == "Pour boiling water over the tea leaves."
    assert search(b, "tea leaves")[0]["text"].startswith("Pour boiling")
    body = {"prompt": "How do I brew tea leaves? Pour", "max_tokens": 8, "temperature": 0, "retrieval": {"mode": "prompt", "k": 1}}
    answers = [call(s, "POST", "/v1/completions", body) for s in (a, b, a, b)]
    assert len({x["choices"][0]["text"] for x in answers}) == 1
    assert call(b, "DELETE", "/v1/documents/tea")["effect"] == "deleted"
    for s in (a, b):
        assert all("boiling water" not in h["text"] for h in search(s, "tea leaves", 16))
        assert call(s, "GET", "/v1/documents/tea", expect=404)["error"]["code"] == "not_found"
    listed = [call(s, "GET", "/v1/documents?limit=2") for s in (a, b)]
    assert listed[0]["data"] == listed[1]["data"] and listed[0]["has_more"]
    rest = call(a, "GET", "/v1/documents?after=" + listed[0]["data"][-1]["id"])
    assert len(rest["data"]) == len(TEXTS) - 2 and not rest["has_more"] and rest["documents"] == len(TEXTS)


def test_several_documents_in_one_request(served):
    documents = [{"id": f"m{i}", "text": f"Note {i} on kettles. " * (1 + i * 4)} for i in range(12)]
    documents += [{"id": "m3", "text": "Another note."}, {"id": "m4", "text": documents[4]["text"]}]
    changed = [{"id": "m9", "text": "Shorter."}, {"id": "m1", "text": "Longer. " * 200}, documents[2]]
    for body in (documents, changed, changed):
        answers = [call(s, "POST", "/v1/documents", {"documents": body}) for s in served[:2]]
        assert answers[0]["data"] == answers[1]["data"]
    for other in served[1:]:
        assert call(other, "GET", "/v1/documents/m9")["text"] == "Shorter."
        same_data(*(search(s, "kettle", 16, filter={"prefix": {"path": "m"}}) for s in (served[0], other)))
    for i in range(12):
        for s in served[:2]:
            assert call(s, "DELETE", f"/v1/documents/m{i}")["effect"] == "deleted"
    listed = [call(s, "GET", "/v1/documents?limit=1") for s in served]
    assert len({(x["documents"], x["chunks"]) for x in listed}) == 1  # no row is left


def test_what_cannot_be_is_said(place, local, remote):
    for verb in (["compact", remote], ["snapshot", remote, place / "x"], ["restore", local, remote], ["neighbors", "--out", place / "x", remote],
                 ["verify", "--repair", remote]):
        assert "lies in Milvus" in run(*verb, code=1)
    assert "lies in Milvus" in run("stats", "--recall", remote, code=1)
    assert "already" in run("build", "--out", remote, "--config", place / "retro.json", place / "texts", code=1)
    assert "no collection nothing" in run("list", remote.replace("texts", "nothing"), code=1)
    for wrong in ("milvus://127.0.0.1:1/", "milvus://user:secret@host/x", "milvus://host:99999/x", "milvus:///x", "milvus://h/1x"):
        words = run("list", wrong, code=1)
        assert "Milvus" in words or "milvus" in words or "password" in words
        assert "secret" not in words


def test_add_replace_delete(place, milvus):
    address = fresh(milvus, place, "changes")
    text = place / "note.txt"
    text.write_text("The kettle whistles when the water boils. " * 40)
    assert run("add", "--id", 'n"1', "--meta", "team=cooks", address, text) == "added note.txt\n"
    assert run("add", "--id", 'n"1', "--meta", "team=cooks", address, text) == ""
    long = lines("show", "--json", address, 'n"1')[0]
    assert long["text"] == text.read_text() and long["chunks"] > 5 and long["metadata"] == {"team": "cooks"}
    text.write_text("A short note on kettles.")
    assert run("update", "--id", 'n"1', address, text) == "replaced note.txt\n"
    hits = lines("search", "--json", "-k", 50, address, "the kettle whistles")
    assert [h["text"] for h in hits if h["id"] == 'n"1'] == ["A short note on kettles."]
    assert run("delete", address, 'n"1') == "deleted note.txt\n"
    assert "no document has the name or the id" in run("delete", address, 'n"1', code=1)
    assert "no document has the name or the id" in run("show", address, "note.txt", code=1)
    assert all(h["id"] != 'n"1' for h in lines("search", "--json", "-k", 50, address, "kettle"))
    assert lines("stats", "--json", address)[0]["chunks"] == 1


def test_tenants(place, milvus, tmp_path):
    """Ids are each tenant's own, and nobody puts a document into another's view."""
    keys = Keys(tmp_path / "keys.jsonl")
    for name in ("alice", "bob"):
        keys.add(name, filter={"eq": {"tenant": name}}, stored_bytes=400)
    keys.add("root")
    server = Server(place / "retro.json", tmp_path, f"retrieval.collection={fresh(milvus, place, 'tenants')}", f"server.keys_file={keys.path}")

    def ask(who, method, path, body=None, expect=200):
        reply = server.request(method, path, json.dumps(body) if body else None, bearer(keys.secrets[who]))
        assert reply.status == expect, reply.body
        return reply.json()

    text = {"text": "Knead the dough for ten minutes."}
    for who in ("alice", "bob"):
        assert ask(who, "PUT", "/v1/documents/report", text)["effect"] == "added"
        assert ask(who, "PUT", "/v1/documents/report", text)["effect"] == "unchanged"
    both = {"documents": [{"id": "report", "text": "Bake it."}, {"id": "other", **text}]}
    assert [d["effect"] for d in ask("bob", "POST", "/v1/documents", both)["data"]] == ["replaced", "added"]
    assert ask("alice", "GET", "/v1/documents/report")["text"] == text["text"]
    ask("alice", "PUT", "/v1/documents/other", text | {"metadata": {"tenant": ["alice", "bob"]}}, expect=403)
    ask("alice", "PUT", "/v1/documents/other", {"text": "x" * 400}, expect=413)
    assert {d["id"] for d in ask("bob", "GET", "/v1/documents")["data"]} == {"report", "other"}
    assert [d["id"] for d in ask("alice", "GET", "/v1/documents")["data"]] == ["report"]
    pages = [ask("bob", "GET", "/v1/documents?limit=1")]
    pages.append(ask("bob", "GET", f"/v1/documents?limit=1&after={pages[0]['data'][0]['id']}"))
    assert {d["id"] for page in pages for d in page["data"]} == {"report", "other"} and not pages[1]["has_more"]
    found = ask("bob", "POST", "/v1/retrieval/search", {"query": "dough", "filter": {"eq": {"id": "other"}}})["data"]
    assert [hit["document"] for hit in found] == ["other"]
    assert ask("bob", "DELETE", "/v1/documents/report")["effect"] == "deleted"
    ask("bob", "GET", "/v1/documents/report", expect=404)
    stored = {d["id"] for d in ask("root", "GET", "/v1/documents")["data"] if d["id"].startswith("@")}
    assert len(stored) == 2 and {name.split("/")[1] for name in stored} == {"report", "other"}
    assert server.stop() == 0, server.log.read_text()


@pytest.mark.skipif(not servers.REAL, reason="to embed more than a thousand chunks takes long")
def test_a_document_that_takes_several_requests(place, milvus):
    address, text = milvus.address("long"), place / "long.txt"
    run("build", "--chunk-length", 4, "--out", address, "--config", place / "retro.json", place / "texts/soup.md")
    chunks = lines("stats", "--json", address)[0]["chunks"]
    text.write_text(" ".join(f"{i} kettles." for i in range(1200)))
    assert run("add", "--id", "long", address, text) == "added long.txt\n"
    shown = lines("show", "--json", address, "long")[0]
    assert shown["text"] == text.read_text() and shown["chunks"] > 1100
    assert lines("verify", "--json", address)[0]["chunks"] == chunks + shown["chunks"]
    text.write_text("A kettle.")
    assert run("add", "--id", "long", address, text) == "replaced long.txt\n"
    assert run("delete", address, "long.txt") == "deleted long.txt\n"
    assert lines("stats", "--json", address)[0]["chunks"] == chunks


def test_copy_both_ways(place, milvus, local):
    address, back = milvus.address("copied"), place / "back"
    text = place / "late.md"
    text.write_text("# Late\n\nThis one is in the log of changes.\n" * 4)
    source = place / "source"
    run("copy", local, source)
    run("add", "--meta", "team=cooks", source, text)
    n = len(TEXTS) + 1
    assert f": {n} documents copied, 0 were there; {n} documents" in run("copy", source, address)
    # As if the copy had been broken off.
    gone = lines("list", "--json", address)[0]["id"]
    run("delete", address, gone)
    assert f": 1 documents copied, {n - 1} were there" in run("copy", source, address)
    done = lines("copy", "--json", address, back)[0]
    assert (done["copied"], done["there"], done["documents"]) == (n, 0, n)
    a, b = (sorted(lines("list", "--json", c), key=lambda d: d["id"]) for c in (source, back))
    assert a == b
    run("verify", back)


def test_pictures(place, milvus, tmp_path_factory):
    """By a picture, over HTTP; a file that no row holds is passed over."""
    golden, address = ROOT / "tests/golden", milvus.address("pictures")
    wide, large = golden / "llava_served/wide.png", place / "large.png"
    large.write_bytes(wide.read_bytes() + bytes(60000))
    (place / "seer.json").write_text(json.dumps({"model": {"path": str(golden / "llava_served")}, "server": {"port": 0, "max_context": 400},
                                                 "retrieval": {"embedder": str(golden / "clip_served")}}))
    config = ["--config", place / "seer.json"]
    words = run("build", "--pictures", "--out", address, *config, wide, wide.with_name("tall.png"), large, code=2)
    assert "Milvus holds" in words and "2 documents" in words
    server = Server(place / "seer.json", tmp_path_factory.mktemp("pictures"), f"retrieval.collection={address}")
    image = "data:image/png;base64," + base64.b64encode(wide.read_bytes()).decode()
    found = call(server, "POST", "/v1/retrieval/search/picture", {"image": image, "k": 2})["data"]
    assert [hit["document"] for hit in found] == ["wide.png", "tall.png"]
    assert found[0]["similarity"] == pytest.approx(1, abs=1e-5)
    shown = server.request("GET", found[0]["picture"])
    assert shown.status == 200 and shown.body == wide.read_bytes() and shown.headers["Content-Type"] == "image/png"
    assert shown.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert call(server, "GET", "/v1/pictures/none", expect=404)["error"]["code"] == "not_found"
    assert server.stop() == 0, server.log.read_text()


@pytest.mark.skipif(not servers.REAL, reason="Milvus' order and pages are what is in question")
def test_many_documents_are_listed_in_pages(place, milvus):
    address = fresh(milvus, place, "many")
    folder = place / "many"
    folder.mkdir()
    for i in range(1100):
        (folder / f"{i}.txt").write_text(f"Note {i}.")
    run("add", address, folder)
    found = lines("list", "--json", address, "many/")
    assert len({d["id"] for d in found}) == len(found) == 1100


# Faults.

# The real server may need a second for a search on a busy machine.
QUICK = (f"retrieval.milvus_seconds={4 if servers.REAL else 1}", "retrieval.milvus_attempts=2")
NEVER_HANGS = 60


def ask(server, query="how long do I bake bread"):
    """A search: its status and its hits, soon."""
    start = time.monotonic()
    reply = server.post({"query": query, "k": 3}, "/v1/retrieval/search")
    assert time.monotonic() - start < NEVER_HANGS
    return reply.status, reply.json().get("data")


def right_answer(server):
    """What it finds while nothing is wrong."""
    answers = []
    servers.wait_until(lambda: answers.append(ask(server)) or answers[-1][0] == 200, 120, "it does not answer")
    return answers[-1][1]


def comes_back(server, before):
    servers.wait_until(lambda: ask(server) == (200, before), 120, "it does not come back")


@pytest.fixture(scope="module")
def between(milvus, remote, place, tmp_path_factory):
    """Servers behind a proxy: one that fails, one that writes without."""
    line = proxy.Proxy(milvus.port)
    running = [serve(place, tmp_path_factory, line.address("texts"), *QUICK, *sets) for sets in ((), ("retrieval.away=write_without",))]
    yield line, *running
    line.turn("pass")
    for server in running:
        assert server.stop() == 0, server.log.read_text()
    line.close()


def all_texts(server):
    """Of the chunks that there are, fewer than a search may find."""
    hits = server.post({"query": "bread", "k": 16}, "/v1/retrieval/search").json()["data"]
    assert len(hits) < 16
    return {hit["text"] for hit in hits}


@pytest.mark.parametrize("mode", ["delay", "cut", "corrupt"])
def test_a_bad_line(between, mode):
    line, fails, without = between
    body = {"prompt": "The bread rises and", "max_tokens": 4, "temperature": 0}
    before = right_answer(fails)
    texts = all_texts(fails)
    line.turn(mode)
    answers = [ask(fails) for _ in range(4)]
    assert all(status in (500, 503) or {hit["text"] for hit in data} <= texts for status, data in answers)
    if mode != "corrupt":  # a change of a similarity is not noticed
        assert any(status != 200 for status, _ in answers)
        assert all(status != 200 or data == before for status, data in answers)
    reply = fails.post(body)
    assert reply.status in (500, 503) or "retrieval_away" not in reply.json()
    if mode != "corrupt":
        assert reply.status == 503 and reply.headers["Retry-After"]
        assert fails.post({"id": "x", "text": "x"}, "/v1/documents").status == 503
    written = call(without, "POST", "/v1/completions", body)
    if mode != "corrupt":
        assert written["retrieval_away"] is True and all(not r["neighbors"] for r in written["retrieval"])
    line.turn("pass")
    comes_back(fails, before)
    servers.wait_until(lambda: "retrieval_away" not in call(without, "POST", "/v1/completions", body), 120, "still without")


@pytest.fixture(scope="module")
def lied_to(place, tmp_path_factory):
    """A server, and the Milvus that lies to it."""
    liar = servers.Liar(tmp_path_factory.mktemp("liar")).start()
    address = fresh(liar, place, "lies", *TEXTS)
    running = Server(place / "retro.json", tmp_path_factory.mktemp("lied_to"), f"retrieval.collection={address}")
    yield running, liar
    liar.tell("")
    assert running.stop() == 0, running.log.read_text()
    liar.kill()


@pytest.mark.parametrize("lie", ["no chunk", "no chunk but the first's", "many chunks", "no document", "no number", "no end"])
def test_a_milvus_that_lies(lied_to, lie):
    """Whoever answers in the place of Milvus is not believed: nothing is shown that is not there, and the server lives on."""
    server, liar = lied_to
    body = {"query": "a hot oven and steam", "k": 4}
    true = server.post(body, "/v1/retrieval/search")
    assert true.status == 200 and len(true.json()["data"]) == 4
    liar.tell(lie)
    for _ in range(3):
        reply = server.post(body, "/v1/retrieval/search")
        assert reply.status in (200, 500, 503), reply.body
        assert reply.status != 200 or all(hit in true.json()["data"] for hit in reply.json()["data"]), reply.body
    liar.tell("")
    server.wait_until(lambda _: server.post(body, "/v1/retrieval/search").status == 200, 60)
    assert server.post(body, "/v1/retrieval/search").json() == true.json()


def test_a_document_of_too_many_chunks(lied_to):
    """What Milvus tells of a document asks for no more pages than a document may have."""
    server, liar = lied_to
    liar.tell("many chunks")
    reply = server.post({"query": "a hot oven and steam", "k": 4}, "/v1/retrieval/search")
    liar.tell("")
    assert reply.status == 500 and "67108864 chunks; one has at most 1048576" in reply.error()["message"], reply.body


def resident(server):
    """Most bytes that the process ever had in memory."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])


@pytest.fixture
def patient(lied_to, place, tmp_path):
    """A server that waits for the same Milvus as long as a busy machine needs."""
    _, liar = lied_to
    address = fresh(liar, place, "patience", *TEXTS)
    running = Server(place / "retro.json", tmp_path, f"retrieval.collection={address}", "retrieval.milvus_seconds=300")
    yield running, liar
    liar.tell("")
    assert running.stop() == 0, running.log.read_text()


def test_an_answer_without_measure(patient):
    """It is read as far as the limit of an answer, once, and not kept."""
    server, liar = patient
    body, before = {"query": "a hot oven and steam", "k": 4}, resident(server)
    liar.tell("a large answer")
    reply = server.post(body, "/v1/retrieval/search")
    liar.tell("")
    assert reply.status == 503 and "more than 256 MiB" in reply.error()["message"], reply.body
    assert (liar.folder / "large").read_text() == "again\n"
    assert resident(server) - before < 1 << 30
    server.wait_until(lambda _: server.post(body, "/v1/retrieval/search").status == 200, 60)


def test_vectors_that_come_twice(lied_to, place, tmp_path):
    """A row that comes again is none of another chunk: no vector is copied that was not told."""
    _, liar = lied_to
    address = fresh(liar, place, "twice")
    text = tmp_path / "long.txt"
    text.write_text("The kettle whistles. " * 300)
    run("add", "--id", "long", address, text)
    liar.tell("repeated vectors")
    done = run("copy", address, tmp_path / "copy", code=1)
    liar.tell("")
    assert "of document long twice" in done, done
    run("copy", address, tmp_path / "copy")


def test_calls_share_a_connection(milvus, remote):
    line = proxy.Proxy(milvus.port)
    run("list", line.address("texts"))
    assert len(line.sockets) == 2  # of the client and of the server
    line.close()


def test_large_answers_are_not_waited_for(place, milvus):
    """Of 16 to 32 KiB, over a connection that is used again: see RECEIVE_BYTES in link.c."""
    address = fresh(milvus, place, "large")
    text = place / "large.txt"
    text.write_text("The kettle whistles. " * 300)
    run("add", "--id", "large", address, text)

    def is_soon():
        start = time.monotonic()
        assert lines("show", "--json", address, "large")[0]["text"] == text.read_text()
        return time.monotonic() - start < 0.9

    servers.wait_until(is_soon, 60, "each answer comes late")


def test_connections_that_were_ended_while_idle(place, milvus, remote, tmp_path_factory):
    """The next search has another, at its first attempt."""
    line = proxy.Proxy(milvus.port)
    server = serve(place, tmp_path_factory, line.address("texts"), "retrieval.milvus_attempts=1")
    before = right_answer(server)
    for _ in range(5):
        line.drop()
        assert ask(server) == (200, before)
    assert server.stop() == 0, server.log.read_text()
    line.close()


def test_killed_under_load(place, tmp_path_factory):
    own = servers.make(tmp_path_factory.mktemp("own"))
    if servers.REAL:
        pytest.skip("one Milvus at a time: test_killed_and_restarted has the real one")
    own.start()
    address = own.address("load")
    run("build", "--out", address, "--config", place / "retro.json", place / "texts")
    server = serve(place, tmp_path_factory, address, *QUICK)
    try:
        check_kill(own, server)
    finally:
        assert server.stop() == 0, server.log.read_text()
        own.kill()


def check_kill(own, server):
    before, over, answers = right_answer(server), threading.Event(), []

    def load():
        while not over.is_set():
            answers.append(ask(server))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        servers.wait_until(lambda: len(answers) > 8, 120, "no load")
        own.kill()
        servers.wait_until(lambda: sum(status != 200 for status, _ in answers[-20:]) > 8, 120, "nobody notices")
        own.start()
        servers.wait_until(lambda: all(status == 200 for status, _ in answers[-12:]), 300, "it does not come back")
    finally:
        over.set()
        for t in threads:
            t.join()
    assert all((status == 200 and data == before) or status == 503 for status, data in answers)


@pytest.mark.skipif(not servers.REAL, reason="the fake one is killed under load of its own")
def test_killed_and_restarted(milvus, served):
    check_kill(milvus, served[1])


def test_token(place, tmp_path_factory):
    if servers.REAL:
        pytest.skip("authorization is off")
    own = servers.Fake(tmp_path_factory.mktemp("token"), "user:opensesame").start()
    secret = place / "token"
    secret.write_text("user:opensesame\n")
    try:
        address = own.address("token")
        config = ["--config", place / "retro.json"]
        run("build", "--out", address, *config, "--set", f"retrieval.milvus_token_file={secret}", place / "texts/soup.md")
        assert run("list", address, RETRO_MILVUS_TOKEN="user:opensesame")
        for environment in ({}, {"RETRO_MILVUS_TOKEN": "user:wrongword"}):
            words = run("list", address, code=1, **environment)
            assert "token" in words and "wrongword" not in words
        server = serve(place, tmp_path_factory, address, f"retrieval.milvus_token_file={secret}", "log.level=debug")
        assert ask(server)[0] == 200
        assert server.stop() == 0 and "opensesame" not in server.log.read_text()
    finally:
        own.kill()


@pytest.mark.skipif(not servers.REAL, reason="test_token and test_tls have the same with the fake one")
def test_token_and_tls_of_the_server_itself(place, milvus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    authority.sign("127.0.0.1")
    milvus.kill()
    own = servers.Real(folder, authorization_enabled="true", tls_mode=1, server_pem_path=folder / "server.pem",
                       server_key_path=folder / "server.key", ca_pem_path=authority.certificate)
    address = f"milvuss://127.0.0.1:{own.port}/secured"
    trust = "--set", f"retrieval.milvus_authority={authority.certificate}"
    try:
        own.start()
        build = "build", "--out", address, "--config", place / "retro.json", *trust, place / "texts"
        servers.wait_until(lambda: "token" in run(*build, code=1), 60, "it takes any token")
        run(*build, RETRO_MILVUS_TOKEN="root:Milvus")
        said = run("list", address, *trust, code=1, RETRO_MILVUS_TOKEN="root:wrongword")
        assert "token" in said and "wrongword" not in said
        assert "certificate" in run("list", address, code=1, RETRO_MILVUS_TOKEN="root:Milvus")
        listed = run("list", "--json", address, *trust, RETRO_MILVUS_TOKEN="root:Milvus")
        assert len(listed.splitlines()) == len(TEXTS)
    finally:
        own.kill()
        milvus.start()


def test_tls(place, milvus, remote, tmp_path_factory):
    folders = [tmp_path_factory.mktemp(name) for name in ("known", "unknown")]
    known, unknown = (Authority(folder) for folder in folders)
    for authority, name in ((known, "127.0.0.1"), (unknown, "127.0.0.1")):
        authority.sign(name)
    line = proxy.Proxy(milvus.port, folders[0] / "server.pem", folders[0] / "server.key")
    named = line.address("texts").replace("127.0.0.1", "localhost")
    trust = "--set", f"retrieval.milvus_authority={known.certificate}"
    try:
        assert lines("list", "--json", line.address("texts"), *trust) == lines("list", "--json", remote)
        for address, sets, words in ((line.address("texts"), (), "certificate"), (named, trust, "localhost"),
                                     (line.address("texts"), ("--set", f"retrieval.milvus_authority={unknown.certificate}"), "certificate"),
                                     (line.address("texts"), ("--set", "retrieval.milvus_authority=/nowhere"), "/nowhere"),
                                     (line.address("texts").replace("milvuss", "milvus"), (), "Milvus at")):
            said = run("list", address, *sets, code=1)
            assert words in said, said
        server = serve(place, tmp_path_factory, line.address("texts"), f"retrieval.milvus_authority={known.certificate}")
        before = right_answer(server)
        line.drop()
        assert ask(server) == (200, before)
        assert server.stop() == 0, server.log.read_text()
    finally:
        line.close()
