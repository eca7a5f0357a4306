"""retrieval.filter: which documents searches, answers and lists may find; and keys that see a part of them."""
import io
import json
import signal
import urllib.parse
import zipfile

import prometheus
import pytest

from test_documents import call, index
from test_keys import Keys, bearer, log_holds

NOTES = {
    "bread": ("Knead the dough for ten minutes, then let it rise in a warm place.", {"team": "bakers", "year": 2024, "date": "2024-05-31", "tags": ["dough", "oven"]}),
    "cake": ("Knead the dough gently and bake the cake in the oven until it is golden.", {"team": "bakers", "year": 2020, "date": "2020-01-01T08:00:00Z"}),
    "plaster": ("Knead the dough of plaster for ten minutes, then let it rise.", {"team": "masons", "year": 2024, "public": True}),
    "secret": ("Knead the dough with the secret of the masons: saffron.", {"team": "masons", "year": 2019}),
}
QUERY = "Knead the dough for ten minutes"


def put_notes(server, headers={}):
    for name, (text, metadata) in NOTES.items():
        body = json.dumps({"path": f"notes/{name}.md", "text": text, "metadata": metadata})
        assert server.request("PUT", f"/v1/documents/{name}", body, headers).status == 200


@pytest.fixture()
def served(start, folder):
    server = start(f"retrieval.collection={folder}")
    put_notes(server)
    return server


def found(server, filter, k=16, headers={}):
    reply = server.request("POST", "/v1/retrieval/search", json.dumps({"query": QUERY, "k": k, "filter": filter}), headers)
    assert reply.status == 200, reply.body
    return {hit["document"].removeprefix("notes/").removesuffix(".md") for hit in reply.json()["data"]}


ALLOWED = [
    ({"eq": {"team": "bakers"}}, {"bread", "cake"}),
    ({"in": {"team": ["masons", "bakers"]}}, {"bread", "cake", "plaster", "secret"}),
    ({"eq": {"tags": "oven"}}, {"bread"}),
    ({"range": {"year": {"gte": 2020}}}, {"bread", "cake", "plaster"}),
    ({"range": {"date": {"lt": "2024-01-01"}}}, {"cake"}),
    ({"prefix": {"path": "notes/p"}}, {"plaster"}),
    ({"and": [{"eq": {"team": "masons"}}, {"not": {"eq": {"public": True}}}]}, {"secret"}),
    ({"or": [{"eq": {"id": "cake"}}, {"eq": {"public": True}}]}, {"cake", "plaster"}),
    ({"eq": {"team": "nobody"}}, set()),
]


def test_searches_and_lists(served):
    for filter, expected in ALLOWED:
        assert found(served, filter) == expected, filter
        text = urllib.parse.quote(json.dumps(filter))
        listed = call(served, "GET", f"/v1/documents?limit=1000&filter={text}")
        assert {d["id"] for d in listed["data"]} == expected, filter
        by_query = call(served, "GET", f"/v1/retrieval/search?q=dough&k=16&filter={text}")
        assert {hit["document"] for hit in by_query["data"]} == {f"notes/{name}.md" for name in expected}, filter


def test_filters_outlive_compaction(served, folder):
    index("compact", folder)
    served.wait_until(lambda _: call(served, "GET", "/v1/documents?limit=1")["changes"] == 0, 20)
    assert found(served, {"eq": {"team": "bakers"}}) == {"bread", "cake"}
    assert found(served, {"eq": {"team": "bakers"}}, k=1) <= {"bread", "cake"}


WRONG = [
    ({}, "filter", "one operator"),
    ([], "filter", "an object"),
    ({"is": {"a": 1}}, "filter.is", "no such operator; there are eq, in, range, prefix, and, or, not"),
    ({"and": [{"eq": {"a": 1}}, {"range": {"d": {"gt": "soon"}}}]}, "filter.and[1].range.d.gt", "must be a date"),
    ("{\"eq\": ", "filter", "the filter:1"),
]


def test_wrong_filters(served):
    for filter, param, words in WRONG:
        chat = {"messages": [{"role": "user", "content": "x"}], "retrieval": {"filter": filter}}
        for path, body, prefix in (("/v1/retrieval/search", {"query": "x", "filter": filter}, ""),
                                   ("/v1/completions", {"prompt": "x", "retrieval": {"filter": filter}}, "retrieval."),
                                   ("/v1/chat/completions", chat, "retrieval.")):
            error = call(served, "POST", path, body, expect=400)["error"]
            assert error["param"] == prefix + param and words in error["message"], error


def test_limits_of_filters_and_metadata(start, folder):
    """What a document may say of itself, and what a request may ask, is bounded by options; errors name them."""
    server = start(f"retrieval.collection={folder}", "retrieval.max_filter_bytes=200", "retrieval.max_metadata_values=20",
                   "retrieval.max_metadata_bytes=300")
    put_notes(server)
    long = {"in": {"team": [f"team {n}" for n in range(30)]}}
    text = urllib.parse.quote(json.dumps(long))
    chat = {"messages": [{"role": "user", "content": "x"}], "retrieval": {"filter": long}}
    for method, path, body in (("POST", "/v1/retrieval/search", {"query": "x", "filter": long}),
                               ("POST", "/v1/completions", {"prompt": "x", "retrieval": {"filter": long}}),
                               ("POST", "/v1/chat/completions", chat),
                               ("GET", f"/v1/documents?filter={text}", None),
                               ("GET", f"/v1/retrieval/search?q=x&filter={text}", None)):
        words = call(server, method, path, body, expect=400)["error"]["message"]
        assert "the limit is 200 (option retrieval.max_filter_bytes)" in words, (path, words)
    assert found(server, {"eq": {"team": "bakers"}}) == {"bread", "cake"}
    for metadata, option in (({"a": list(range(21))}, "max_metadata_values"), ({f"n{i}": 1 for i in range(21)}, "max_metadata_values"),
                             ({"a": "x" * 300}, "max_metadata_bytes")):
        error = call(server, "POST", "/v1/documents", {"text": "x", "metadata": metadata}, expect=400)["error"]
        assert error["param"] == "metadata" and f"(option retrieval.{option})" in error["message"], error
    call(server, "PUT", "/v1/documents/most", {"text": "x", "metadata": {"a": list(range(20))}})


def sources(reply):
    return {n["document"] for entry in reply.json()["retrieval"] for n in entry["neighbors"]}


def test_answers_read_what_the_filter_allows(served):
    ask = {"prompt": QUERY, "max_tokens": 4, "temperature": 0}
    for mode in ("attention", "prompt", "both"):
        reply = served.post(ask | {"retrieval": {"mode": mode, "k": 4, "filter": {"eq": {"team": "bakers"}}}})
        assert sources(reply) == {"notes/bread.md", "notes/cake.md"}, mode
        reply = served.post(ask | {"retrieval": {"mode": mode, "filter": {"eq": {"team": "nobody"}}}})
        assert sources(reply) == set()


def test_the_configuration_narrows_searches(start, folder):
    server = start(f"retrieval.collection={folder}", 'retrieval.filter={"eq":{"team":"bakers"}}')
    put_notes(server)
    assert found(server, {"range": {"year": {"gte": 0}}}) == {"bread", "cake"}
    assert found(server, {"eq": {"team": "masons"}}) == set()
    assert sources(server.post({"prompt": QUERY, "max_tokens": 2, "retrieval": {"k": 8}})) == {"notes/bread.md", "notes/cake.md"}


# Keys.

@pytest.fixture()
def tenants(start, folder, tmp_path):
    """A server with an operator, and two tenants who each have documents."""
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("root")
    keys.add("bakers", filter={"eq": {"team": "bakers"}})
    keys.add("masons", filter={"eq": {"team": "masons"}})
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}", "server.operations=open")
    put_notes(server, bearer(keys.secrets["root"]))

    def ask(who, method, path, body=None, expect=200):
        reply = server.request(method, path, json.dumps(body) if body is not None else None, bearer(keys.secrets[who]))
        assert reply.status == expect, reply.body
        return reply.json()

    ask.server, ask.keys = server, keys
    return ask


BAKERS, MASONS = {"bread", "cake"}, {"plaster", "secret"}


def test_a_key_finds_its_own_documents_only(tenants):
    headers = bearer(tenants.keys.secrets["bakers"])
    assert found(tenants.server, {"not": {"eq": {"team": "bakers"}}}, headers=headers) == set()
    assert found(tenants.server, {"or": [{"eq": {"id": "secret"}}, {"range": {"year": {"gte": 0}}}]}, headers=headers) == BAKERS
    for hit in tenants("masons", "POST", "/v1/retrieval/search", {"query": QUERY, "k": 16})["data"]:
        assert hit["document"].removeprefix("notes/").removesuffix(".md") in MASONS
        assert "chunk" not in hit
    assert {d["document"] for d in tenants("root", "POST", "/v1/retrieval/search", {"query": QUERY, "k": 4})["data"]} == {f"notes/{n}.md" for n in NOTES}


def test_answers_of_a_key(tenants):
    for mode, who, names in ((m, *w) for m in ("attention", "prompt", "both") for w in (("bakers", BAKERS), ("masons", MASONS))):
        ask = {"prompt": QUERY, "max_tokens": 8, "temperature": 0, "retrieval": {"mode": mode, "k": 8}}
        reply = tenants(who, "POST", "/v1/completions", ask)
        read = {n["document"] for entry in reply["retrieval"] for n in entry["neighbors"]}
        assert read == {f"notes/{n}.md" for n in names}
        compared = tenants(who, "POST", "/v1/completions", ask | {"retrieval": {**ask["retrieval"], "compare": ["notes/bread.md", "notes/secret.md"]}})
        assert {n["document"] for entry in compared["retrieval"] for n in entry["neighbors"]} == read


def test_documents_of_others_are_not_there(tenants):
    """The same words, whether there is such a document or not."""
    for method in ("GET", "DELETE"):
        hidden = tenants("bakers", method, "/v1/documents/secret", expect=404)
        none = tenants("bakers", method, "/v1/documents/nosuch", expect=404)
        assert json.dumps(hidden).replace("secret", "nosuch") == json.dumps(none)
    hidden = tenants("bakers", "GET", "/v1/documents?after=secret", expect=404)
    assert hidden == tenants("bakers", "GET", "/v1/documents?after=nosuch", expect=404)
    assert tenants("masons", "GET", "/v1/documents/secret")["metadata"]["year"] == 2019


def test_lists_and_counts_of_a_key(tenants):
    for who, names in (("bakers", BAKERS), ("masons", MASONS)):
        listed = tenants(who, "GET", "/v1/documents")
        assert {d["id"] for d in listed["data"]} == names
        assert (listed["documents"], listed["chunks"], listed["has_more"]) == (2, sum(d["chunks"] for d in listed["data"]), False)
        assert tenants(who, "GET", "/v1/models")["data"][0]["meta"]["retro"]["chunks"] == listed["chunks"]
    page = tenants("bakers", "GET", "/v1/documents?limit=1")
    assert page["has_more"] and len(page["data"]) == 1


def test_a_key_puts_documents_of_its_own(tenants):
    text = {"text": "Rye bread needs sourdough."}
    added = tenants("bakers", "POST", "/v1/documents", text | {"path": "rye.md", "metadata": {"year": 2025}})
    assert tenants("bakers", "GET", f"/v1/documents/{added['id']}")["metadata"] == {"year": 2025, "team": "bakers"}
    tenants("masons", "GET", f"/v1/documents/{added['id']}", expect=404)
    other = tenants("masons", "POST", "/v1/documents", text | {"path": "rye.md"})
    assert other["effect"] == "added" and other["id"] != added["id"]
    wrong = tenants("bakers", "POST", "/v1/documents", text | {"metadata": {"team": "masons"}}, expect=403)["error"]
    assert wrong["code"] == "document_not_allowed"
    tenants("bakers", "DELETE", f"/v1/documents/{added['id']}")
    tenants("bakers", "GET", f"/v1/documents/{added['id']}", expect=404)
    tenants("bakers", "DELETE", "/v1/documents/plaster", expect=404)
    tenants("root", "GET", "/v1/documents/plaster")


def put(tenants, who, name, text, effect, **more):
    assert tenants(who, "PUT", f"/v1/documents/{name}", {"text": text, **more}) == {"id": name, "path": more.get("path", name), "object": "document", "effect": effect}


def stored(tenants, name, team):
    """The ids under which the operator sees what tenants call so."""
    filter = urllib.parse.quote(json.dumps({"eq": {"id": name, "team": team}}))
    return [d["id"] for d in tenants("root", "GET", f"/v1/documents?filter={filter}")["data"]]


def test_ids_are_each_tenants_own(tenants):
    """Another's id tells nothing: neither whether it is taken, nor what the document is."""
    text, metadata = NOTES["secret"]
    put(tenants, "bakers", "secret", text, "added", path="notes/secret.md", metadata={"year": 2019})
    assert tenants("masons", "GET", "/v1/documents/secret")["metadata"] == metadata
    put(tenants, "bakers", "secret", text, "unchanged", path="notes/secret.md", metadata={"year": 2019})
    put(tenants, "bakers", "secret", "Rye bread needs sourdough.", "replaced")
    assert tenants("masons", "GET", "/v1/documents/secret")["text"] == text
    put(tenants, "masons", "secret", "Saffron it is.", "replaced", metadata={"year": 2019})
    put(tenants, "masons", "new", "Rye bread needs sourdough.", "added")
    put(tenants, "bakers", "new", "Rye bread needs sourdough.", "added")
    assert {d["id"] for d in tenants("bakers", "GET", "/v1/documents")["data"]} == BAKERS | {"secret", "new"}
    assert {d["id"] for d in tenants("masons", "GET", "/v1/documents")["data"]} == MASONS | {"new"}
    tenants("bakers", "DELETE", "/v1/documents/secret")
    tenants("bakers", "DELETE", "/v1/documents/secret", expect=404)
    assert tenants("masons", "GET", "/v1/documents/secret")["text"] == "Saffron it is."


def test_ids_of_tenants_as_operators_see_them(tenants):
    put(tenants, "bakers", "rye", "Rye bread needs sourdough.", "added")
    put(tenants, "masons", "rye", "Rye bread needs no mortar.", "added")
    (name,), (other,) = stored(tenants, "rye", "bakers"), stored(tenants, "rye", "masons")
    assert name != other and name.endswith("/rye") and name.startswith("@")
    shown = tenants("root", "GET", "/v1/documents/" + urllib.parse.quote(name))
    assert shown["path"] == "rye" and shown["id"] == name and "sourdough" in shown["text"]
    for who, expect in (("bakers", 200), ("masons", 404)):
        tenants(who, "GET", "/v1/documents/" + urllib.parse.quote(name), expect=expect)
    tenants("root", "PUT", "/v1/documents/" + urllib.parse.quote(name), {"text": "Rye needs a starter.", "metadata": {"team": "bakers"}})
    assert "starter" in tenants("bakers", "GET", "/v1/documents/rye")["text"]
    tenants("root", "DELETE", "/v1/documents/" + urllib.parse.quote(name))
    tenants("bakers", "GET", "/v1/documents/rye", expect=404)
    tenants("root", "GET", "/v1/documents/rye", expect=404)


def test_ids_in_filters_lists_and_searches_of_tenants(tenants):
    for name in ("rye", "spelt", "einkorn"):
        for who in ("masons", "bakers"):
            put(tenants, who, name, f"{QUERY}: {name}.", "added", path=f"flour/{name}.md")
    mine = [d["id"] for d in tenants("bakers", "GET", "/v1/documents")["data"]]
    pages = []
    while not pages or pages[-1]["has_more"]:
        after = f"&after={pages[-1]['data'][-1]['id']}" if pages else ""
        pages.append(tenants("bakers", "GET", "/v1/documents?limit=2" + after))
    assert [d["id"] for page in pages for d in page["data"]] == mine and set(mine) == BAKERS | {"rye", "spelt", "einkorn"}
    headers = bearer(tenants.keys.secrets["bakers"])
    assert found(tenants.server, {"in": {"id": ["rye", "bread", "secret"]}}, headers=headers) == {"flour/rye", "bread"}
    assert found(tenants.server, {"prefix": {"id": "e"}}, headers=headers) == {"flour/einkorn"}
    listed = tenants("bakers", "GET", "/v1/documents?filter=" + urllib.parse.quote('{"not": {"prefix": {"id": "e"}}}'))
    assert [d["id"] for d in listed["data"]] == [name for name in mine if name != "einkorn"]
    ask = {"prompt": QUERY, "max_tokens": 2, "retrieval": {"mode": "prompt", "k": 16, "exclude": ["rye", "flour/spelt.md"]}}
    read = {n["document"] for entry in tenants("bakers", "POST", "/v1/completions", ask)["retrieval"] for n in entry["neighbors"]}
    assert read <= {"flour/einkorn.md", "notes/bread.md", "notes/cake.md"} and "flour/einkorn.md" in read


def test_a_key_that_demands_ids(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("alice", filter={"prefix": {"id": "alice/"}})
    keys.add("bob", filter={"prefix": {"id": "bob/"}})
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")

    def put_as(who, name):
        return server.request("PUT", "/v1/documents/" + urllib.parse.quote(name, safe=""), '{"text": "A note."}', bearer(keys.secrets[who])).status

    assert put_as("alice", "alice/1") == 200 and put_as("alice", "bob/1") == 403 and put_as("alice", "1") == 403
    assert put_as("alice", "@0123456789abcdef/alice/1") == 403
    for who, expected in (("alice", ["alice/1"]), ("bob", [])):
        reply = server.request("GET", "/v1/documents", headers=bearer(keys.secrets[who])).json()
        assert [d["id"] for d in reply["data"]] == expected


def test_tenants_are_told_nothing_of_others_changes(tenants):
    ask = {"prompt": QUERY, "max_tokens": 1, "temperature": 0}
    before = [tenants("bakers", *request) for request in (("GET", "/v1/documents"), ("GET", "/v1/models"), ("POST", "/v1/completions", ask), ("GET", "/props"))]
    put(tenants, "masons", "new", "Rye bread needs sourdough.", "added")
    tenants("masons", "POST", "/v1/completions", {"prompt": "Mortar and stone " * 60, "max_tokens": 1})
    after = [tenants("bakers", *request) for request in (("GET", "/v1/documents"), ("GET", "/v1/models"), ("POST", "/v1/completions", ask), ("GET", "/props"))]
    for reply in (before[2], after[2]):
        del reply["id"], reply["created"], reply["usage"]["prompt_tokens_details"]
    assert before == after
    assert "generation" in tenants("root", "GET", "/v1/documents") and "_g1." in tenants("root", "POST", "/v1/completions", ask)["system_fingerprint"]


PLANTED = {"team": ["bakers", "masons"]}
REFUSED = [PLANTED, {"team": ["bakers"]}, {"team": []}, {"team": "masons"}, {"team": "bakers\0"}, {"team": True}]


def test_a_document_is_not_planted(tenants):
    """A search takes a list where one value fits, so a list may not bring another tenant's value along."""
    text = {"text": QUERY + " says the planted one", "path": "planted.md"}
    for metadata in REFUSED:
        refused = tenants("bakers", "POST", "/v1/documents", text | {"metadata": metadata}, expect=403)["error"]
        assert refused["code"] == "document_not_allowed", metadata
        listed = tenants("bakers", "POST", "/v1/documents", {"documents": [text | {"metadata": metadata}]})["data"]
        assert [d["effect"] for d in listed] == ["failed"] and listed[0]["error"]["code"] == "document_not_allowed"
    own = tenants("bakers", "POST", "/v1/documents", text)
    tenants("bakers", "PUT", f"/v1/documents/{own['id']}", text | {"metadata": PLANTED}, expect=403)
    assert tenants("bakers", "GET", f"/v1/documents/{own['id']}")["metadata"] == {"team": "bakers"}
    for other in ({"Team": "masons"}, {"teams": ["masons"]}):
        assert tenants("bakers", "POST", "/v1/documents", text | {"metadata": other})["effect"] == "replaced"
    for twice in ('{"team": "bakers", "team": "masons"}', '{"team\\u0000": "masons"}'):
        body = f'{{"text": "x", "metadata": {twice}}}'
        assert tenants.server.request("POST", "/v1/documents", body, bearer(tenants.keys.secrets["bakers"])).status == 400
    names = {hit["document"] for hit in tenants("masons", "POST", "/v1/retrieval/search", {"query": QUERY, "k": 16})["data"]}
    assert names == {f"notes/{name}.md" for name in MASONS}


def upload(tenants, who, name, file, *names, **parts):
    """A form with a file, or with the same under several names."""
    lines = [f'--b0undary\r\nContent-Disposition: form-data; name="file"; filename="{each}"\r\n\r\n'.encode() + file
             for each in (name, *names)]
    lines += [f'--b0undary\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}'.encode() for key, value in parts.items()]
    headers = bearer(tenants.keys.secrets[who]) | {"Content-Type": "multipart/form-data; boundary=b0undary"}
    return tenants.server.request("POST", "/v1/documents", b"\r\n".join(lines) + b"\r\n--b0undary--\r\n", headers)


def test_files_are_not_planted(tenants):
    """What a file says of itself is no metadata of an upload, and a form's metadata is judged as any."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("a.md", f"---\nteam: masons\n---\n{QUERY} in the archive.")
        z.writestr("a.md.meta.json", json.dumps({"team": "masons"}))
        z.writestr("b.jsonl", json.dumps({"text": QUERY, "team": "masons", "metadata": {"team": "masons"}}))
    mail = f"From: a@example.org\nTo: b@example.org\nSubject: Dough\nteam: masons\nContent-Type: text/plain\n\n{QUERY} by mail.\n"
    for name, file in (("all.zip", archive.getvalue()), ("one.eml", mail.encode()), ("page.md", f"---\nteam: masons\n---\n{QUERY}".encode())):
        for metadata in (PLANTED, {"team": "masons"}):
            data = upload(tenants, "bakers", name, file, metadata=json.dumps(metadata)).json()["data"]
            assert data and all(d["effect"] == "failed" for d in data), data
        for d in upload(tenants, "bakers", name, file).json()["data"]:
            assert d["effect"] == "added" and tenants("bakers", "GET", f"/v1/documents/{d['id']}")["metadata"] == {"team": "bakers"}
    twice = upload(tenants, "bakers", "c.md", b"text", metadata='{"team":"bakers","team":"masons"}')
    assert twice.status == 400
    names = {hit["document"] for hit in tenants("masons", "POST", "/v1/retrieval/search", {"query": QUERY, "k": 16})["data"]}
    assert names == {f"notes/{name}.md" for name in MASONS}


def cached(reply):
    return reply["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)


def test_rows_of_others_are_not_taken_over(tenants):
    """What one key's prompt leaves in the cache would tell another, who guesses it, that it was right."""
    guess = {"prompt": "the secret of the masons is saffron and this line is long enough for blocks " * 20, "max_tokens": 1, "retrieval": {"enabled": False}}
    assert cached(tenants("masons", "POST", "/v1/completions", guess)) == 0
    assert cached(tenants("masons", "POST", "/v1/completions", guess)) > 0
    assert cached(tenants("bakers", "POST", "/v1/completions", guess)) == 0
    assert cached(tenants("root", "POST", "/v1/completions", guess)) == 0
    assert cached(tenants("bakers", "POST", "/v1/completions", guess)) > 0


def test_rows_of_other_keys_without_filters(start, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    for name in ("alice", "bob"):
        keys.add(name)
    guess = {"prompt": "the name of the patient is Mary and this line is long enough for blocks " * 20, "max_tokens": 1}

    def ask(server, who):
        reply = server.request("POST", "/v1/completions", json.dumps(guess), bearer(keys.secrets[who]))
        assert reply.status == 200, reply.body
        return cached(reply.json())

    apart = start(f"server.keys_file={keys.path}", "retrieval.collection=")
    assert ask(apart, "alice") == 0 and ask(apart, "bob") == 0 and ask(apart, "alice") > 0 and ask(apart, "bob") > 0
    keys.lines.append("")
    keys.write()
    apart.process.send_signal(signal.SIGHUP)
    log_holds(apart, "keys: 2", 2)
    assert ask(apart, "bob") > 0
    shared = start(f"server.keys_file={keys.path}", "retrieval.collection=", "server.prefix_sharing=filter")
    assert ask(shared, "alice") == 0 and ask(shared, "bob") > 0


# What a key uses.

NOTE = "Knead the dough for ten minutes. " * 10


def key_metric(server, name, who):
    return prometheus.value(prometheus.read(server.request("GET", "/metrics").body.decode()), name, key=who)


def test_puts_and_searches_are_charged(tenants):
    def spent():
        return key_metric(tenants.server, "retro_key_tokens_total", "bakers")

    before = spent()
    tenants("bakers", "POST", "/v1/documents", {"documents": [{"id": name, "text": NOTE + name} for name in ("a", "b")]})
    put_both = spent()
    assert 100 < put_both - before < 400
    tenants("bakers", "PUT", "/v1/documents/a", {"text": NOTE + "a"})
    assert spent() == put_both, "nothing was embedded"
    tenants("bakers", "PUT", "/v1/documents/c", {"text": NOTE, "metadata": {"team": "masons"}}, expect=403)
    assert spent() == put_both, "nothing was embedded"
    assert upload(tenants, "bakers", "rows.jsonl", json.dumps({"text": NOTE}).encode()).status == 200
    uploaded = spent()
    assert uploaded - put_both > 50
    tenants("bakers", "POST", "/v1/retrieval/search", {"query": QUERY})
    searched = spent()
    assert 5 < searched - uploaded < 20
    tenants("bakers", "POST", "/v1/embeddings", {"input": QUERY})
    assert spent() - searched == searched - uploaded
    assert key_metric(tenants.server, "retro_key_tokens_total", "masons") == 0


@pytest.mark.parametrize("method, path, body", [("PUT", "/v1/documents/a", {"text": NOTE * 3}), ("POST", "/v1/retrieval/search", {"query": QUERY * 3})])
def test_a_key_without_tokens_left_waits(start, folder, tmp_path, method, path, body):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("alice", filter={"eq": {"tenant": "alice"}}, tokens_per_day=10)
    server = start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")
    headers = bearer(keys.secrets["alice"])
    assert server.request(method, path, json.dumps(body), headers).status == 200
    refused = server.request(method, path, json.dumps(body), headers)
    assert refused.status == 429 and "tokens_per_day" in refused.error()["message"]


def test_a_key_stores_so_many_bytes(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("alice", filter={"eq": {"tenant": "alice"}}, stored_bytes=1000)
    keys.add("bob", filter={"eq": {"tenant": "bob"}})
    sets = (f"retrieval.collection={folder}", f"server.keys_file={keys.path}", "server.max_upload_text=2000",
            "server.operations=open")
    server = start(*sets)

    def ask(method, path, body=None, expect=200, who="alice"):
        reply = server.request(method, path, json.dumps(body) if body else None, bearer(keys.secrets[who]))
        assert reply.status == expect, reply.body
        return reply.json()

    def held():
        return {d["id"] for d in ask("GET", "/v1/documents")["data"]}

    ask("PUT", "/v1/documents/a", {"text": NOTE})
    ask("PUT", "/v1/documents/b", {"text": NOTE})
    full = ask("PUT", "/v1/documents/c", {"text": NOTE}, expect=413)["error"]
    size = len(NOTE) + len("a") + len('{"tenant":"alice"}')
    for words in ("alice may store 1000 bytes", '"stored_bytes"', f"{2 * size} are stored", f"takes {size} more"):
        assert words in full["message"]
    assert held() == {"a", "b"} and key_metric(server, "retro_key_stored_bytes", "alice") == 2 * size
    assert ask("PUT", "/v1/documents/a", {"text": NOTE})["effect"] == "unchanged"
    ask("PUT", "/v1/documents/a", {"text": NOTE * 3}, expect=413)
    for field in "title", "path":
        ask("PUT", "/v1/documents/c", {"text": "x", field: "y" * 800}, expect=413)
    ask("PUT", "/v1/documents/c", {"text": NOTE * 3}, who="bob")
    assert server.stop() == 0
    server = start(*sets)
    ask("PUT", "/v1/documents/c", {"text": NOTE}, expect=413)

    asked = lambda who, *rest: ask(*rest, who=who)
    asked.server, asked.keys = server, keys
    rows = "".join(json.dumps({"text": f"{i} " + "x" * 150}) + "\n" for i in range(3)).encode()
    assert "stored_bytes" in upload(asked, "alice", "rows.jsonl", rows).json()["data"][0]["error"]["message"]
    assert held() == {"a", "b"}, "a file is put as a whole or not at all"
    ask("DELETE", "/v1/documents/a")
    assert len(upload(asked, "alice", "rows.jsonl", rows).json()["data"]) == 3
    assert [d["effect"] for d in ask("POST", "/v1/documents", {"documents": [{"id": "c", "text": "short"}, {"id": "d", "text": NOTE}]})["data"]] == ["added", "failed"]
    first, second = upload(asked, "bob", "note.md", (NOTE * 4).encode(), "more.md").json()["data"]
    assert first["effect"] == "added" and second["effect"] == "failed"
    for words in (f"{8 * len(NOTE)} bytes", "the limit is 2000 (option server.max_upload_text)"):
        assert words in second["error"]["message"]


def test_a_wrong_filter_of_a_key(start, folder, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    keys.add("root")
    keys.add("broken", filter={"eq": {}})
    with pytest.raises(AssertionError, match="keys.jsonl:4.*filter.eq"):
        start(f"retrieval.collection={folder}", f"server.keys_file={keys.path}")
