"""file_search over the collection, which is a vector store; its documents are files."""
import json

import pytest
from chat_model import SOURCES, make_chat_model
from conftest import DEPS, Server
from test_chat_documents import DOCUMENTS, build
from test_keys import Keys, bearer
from test_responses import assembled, events, plain, post

STORE = "vs_collection"
TOOL = {"type": "file_search", "vector_store_ids": [STORE]}
ASKED = {"input": "What does leek soup take?", "chat_template_kwargs": {"sources": True}}
TEXT = "".join(SOURCES)  # "Öl [1] comes of [2, 1], not of [9], [x] or 2][2]"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    make_chat_model(folder / "script")
    pages = folder / "pages"
    pages.mkdir()
    for name, text in DOCUMENTS.items():
        (pages / name).write_text(text)
        (pages / f"{name}.meta.json").write_text(json.dumps({"kind": name[:-3], "letters": len(name)}))
    file = folder / "retro.json"
    file.write_text(json.dumps({
        "model": {"path": str(folder / "script")},
        "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm")}, "server": {"port": 0}}))
    build(file, folder / "collection", pages)
    return file


@pytest.fixture(scope="module")
def server(config, tmp_path_factory):
    running = Server(config, tmp_path_factory.mktemp("server"), "retrieval.documents=read", "retrieval.keep_files=path")
    yield running
    assert running.stop() == 0, running.log.read_text()


def respond(server, **fields):
    """The whole answer, which the stream's is equal to."""
    whole = post(server, **ASKED | {"tools": [TOOL]} | fields)
    assert whole.status == 200, whole.body
    found = events(server, **ASKED | {"tools": [TOOL]} | fields)
    search = [e for e in found if "file_search_call" in e["type"] or "annotation" in e["type"]]
    kept = [e for e in found if e not in search]
    for i, event in enumerate(kept):
        event["sequence_number"] = i
    assert plain(assembled(kept)) == plain(whole.json())
    kinds = [e["type"].removeprefix("response.") for e in search]
    n = len(whole.json()["output"][-1]["content"][0]["annotations"])
    assert kinds == ["file_search_call.in_progress", "file_search_call.searching", "file_search_call.completed",
                     *["output_text.annotation.added"] * n]
    assert [e["annotation"] for e in search[3:]] == whole.json()["output"][-1]["content"][0]["annotations"]
    assert [e["annotation_index"] for e in search[3:]] == list(range(n))
    return whole.json()


def test_citations_name_files_and_places(server):
    whole = respond(server)
    search, message = whole["output"]
    assert search["type"] == "file_search_call" and search["id"].startswith("fs_") and search["status"] == "completed"
    assert search["queries"] == [ASKED["input"]] and search["results"] is None
    part = message["content"][0]
    assert part["text"] == TEXT
    places = [a["index"] for a in part["annotations"]]
    assert places == [TEXT.index(p) for p in ("[1]", "[2, 1]", "[2, 1]", "[2]")]
    assert all(a["type"] == "file_citation" for a in part["annotations"]) and part["annotations"][0]["filename"] == "pages/soup.md"
    for citation in part["annotations"]:
        file = server.request("GET", f"/v1/files/{citation['file_id']}").json()
        assert file["filename"] == citation["filename"] and file["id"] == citation["file_id"]
    text = server.request("GET", f"/v1/files/{part['annotations'][0]['file_id']}/content").body.decode()
    assert text == DOCUMENTS["soup.md"]


def test_results_are_told_where_they_are_asked_for(server):
    whole = respond(server, include=["file_search_call.results"])
    results = whole["output"][0]["results"]
    assert results[0]["attributes"] == {"kind": "soup", "letters": 7}
    scores = [r["score"] for r in results]
    assert scores == sorted(scores, reverse=True) and all(0 <= s <= 1 for s in scores)
    assert results[0]["filename"] == "pages/soup.md" and results[0]["text"] in DOCUMENTS["soup.md"]
    one = respond(server, tools=[TOOL | {"max_num_results": 1}], include=["file_search_call.results"])
    assert len(one["output"][0]["results"]) == 1
    assert len(one["output"][1]["content"][0]["annotations"]) == 2, "[2] names no passage any more"


def test_filters(server):
    def found(filters):
        tool = TOOL | {"filters": filters}
        return {r["filename"] for r in respond(server, tools=[tool], include=["file_search_call.results"])["output"][0]["results"]}

    def where(kind, value, key="kind"):
        return {"type": kind, "key": key, "value": value}

    assert found(where("eq", "bridges")) == {"pages/bridges.md"}
    assert found(where("ne", "soup")) == {"pages/bridges.md", "pages/marks.md"}
    assert found(where("nin", ["soup", "marks"])) == {"pages/bridges.md"}
    assert found(where("gt", 8, "letters")) == {"pages/bridges.md"}
    assert found({"type": "or", "filters": [where("eq", "soup"), where("lte", 7, "letters")]}) == {"pages/soup.md"}
    assert found({"type": "and", "filters": [where("in", ["soup", "marks"]), where("eq", "marks")]}) == {"pages/marks.md"}
    for filters in ({"type": "near"}, {"type": "and", "filters": []}, {"type": "eq", "key": "a"}, where("gt", True)):
        assert post(server, **ASKED, tools=[TOOL | {"filters": filters}]).status == 400, filters


def test_without_file_search_there_are_no_passages(server):
    whole = post(server, **ASKED).json()
    assert [i["type"] for i in whole["output"]] == ["message"] and whole["output"][0]["content"][0]["annotations"] == []
    forced = respond(server, tool_choice={"type": "file_search"})
    assert forced["output"][0]["type"] == "file_search_call"
    none = post(server, **ASKED, tools=[TOOL], tool_choice="none").json()
    assert [i["type"] for i in none["output"]] == ["message"]


def test_refused_by_name(server):
    for fields, status, word in [({"tools": [TOOL | {"vector_store_ids": ["vs_other"]}]}, 404, "vs_other"),
                                 ({"tools": [TOOL | {"vector_store_ids": []}]}, 400, "vector_store_ids"),
                                 ({"tools": [TOOL | {"vector_store_ids": [STORE] * 9}]}, 400, "vector_store_ids"),
                                 ({"tools": [{"type": "file_search"}]}, 400, "vector_store_ids"),
                                 ({"tools": [TOOL | {"max_num_results": 51}]}, 400, "max_num_results"),
                                 ({"tools": [TOOL, TOOL]}, 400, "file_search"),
                                 ({"tools": [TOOL], "retrieval": {"k": 1}}, 400, "retrieval"),
                                 ({"tools": [], "tool_choice": {"type": "file_search"}}, 400, "file_search")]:
        reply = post(server, **ASKED | fields)
        assert reply.status == status and word in reply.error()["message"], (fields, reply.body)


def test_the_store_and_its_files(server):
    stores = server.request("GET", "/v1/vector_stores").json()
    assert [s["id"] for s in stores["data"]] == [STORE] and stores["data"][0]["file_counts"]["total"] == 3
    assert server.request("GET", f"/v1/vector_stores/{STORE}").json()["status"] == "completed"
    pages = [server.request("GET", f"/v1/vector_stores/{STORE}/files?limit=2").json()]
    pages.append(server.request("GET", f"/v1/vector_stores/{STORE}/files?limit=2&after={pages[0]['last_id']}").json())
    files = [f for page in pages for f in page["data"]]
    assert len({f["id"] for f in files}) == 3 and [p["has_more"] for p in pages] == [True, False]
    for file in files:
        one = server.request("GET", f"/v1/vector_stores/{STORE}/files/{file['id']}").json()
        assert one == file and one["status"] == "completed" and set(one["attributes"]) == {"kind", "letters"}
        content = server.request("GET", f"/v1/vector_stores/{STORE}/files/{file['id']}/content").json()
        assert content["data"][0]["text"] in DOCUMENTS.values()
    assert {f["id"] for f in server.request("GET", "/v1/files").json()["data"]} == {f["id"] for f in files}
    for path in ("vector_stores/vs_no", "vector_stores/vs_no/files", "files/nothing", "files/file-nothing", "files/file-.zz",
                 f"vector_stores/{STORE}/files/file-nothing", f"vector_stores/{STORE}/files/file-nothing/content"):
        assert server.request("GET", f"/v1/{path}").status == 404, path
    for method, path in (("POST", "vector_stores"), ("DELETE", f"vector_stores/{STORE}"), ("POST", f"vector_stores/{STORE}/files"),
                         ("DELETE", f"files/{files[0]['id']}")):
        reply = server.request(method, f"/v1/{path}", "{}")
        assert reply.status == 403 and "retrieval.documents" in reply.error()["message"]


def test_search(server):
    def search(**fields):
        return server.request("POST", f"/v1/vector_stores/{STORE}/search", json.dumps({"query": "leek soup"} | fields))

    page = search().json()
    assert page["object"] == "vector_store.search_results.page" and page["search_query"] == ["leek soup"]
    best = page["data"][0]
    assert best["filename"] == "pages/soup.md" and best["content"][0]["text"] in DOCUMENTS["soup.md"] and page["has_more"] is False
    assert server.request("GET", f"/v1/files/{best['file_id']}").json()["filename"] == "pages/soup.md"
    assert len(search(max_num_results=1, query=["leek", "soup"]).json()["data"]) == 1
    assert search(ranking_options={"ranker": "auto", "score_threshold": 0.99}).json()["data"] == []
    for fields in ({"query": ""}, {"query": 5}, {"max_num_results": 0}, {"ranking_options": {"score_threshold": 2}}):
        assert search(**fields).status == 400
    assert server.request("POST", "/v1/vector_stores/vs_no/search", '{"query": "a"}').status == 404


def test_a_tenant_meets_no_others_documents(config, tmp_path):
    keys = Keys(tmp_path / "keys.jsonl")
    cook = bearer(keys.add("cook", filter={"eq": {"kind": "soup"}}))
    builder = bearer(keys.add("builder", filter={"eq": {"kind": "bridges"}}))
    running = Server(config, tmp_path, f"server.keys_file={keys.path}", "retrieval.documents=read")
    try:
        files = {name: running.request("GET", "/v1/files", None, key).json()["data"] for name, key in (("cook", cook), ("builder", builder))}
        assert [f["filename"] for f in files["cook"]] == ["pages/soup.md"] and [f["filename"] for f in files["builder"]] == ["pages/bridges.md"]
        own, foreign = files["cook"][0]["id"], files["builder"][0]["id"]
        assert running.request("GET", f"/v1/files/{own}", None, cook).status == 200
        for path in (f"files/{foreign}", f"files/{foreign}/content", f"vector_stores/{STORE}/files/{foreign}/content"):
            assert running.request("GET", f"/v1/{path}", None, cook).status == 404
        store = running.request("GET", f"/v1/vector_stores/{STORE}", None, cook).json()
        assert store["file_counts"]["total"] == 1
        hits = running.request("POST", f"/v1/vector_stores/{STORE}/search", '{"query": "granite arches of a bridge"}', cook).json()
        assert {h["filename"] for h in hits["data"]} == {"pages/soup.md"}
        whole = post(running, headers=cook, tools=[TOOL], include=["file_search_call.results"], **ASKED | {"input": "granite arches"}).json()
        assert {r["filename"] for r in whole["output"][0]["results"]} == {"pages/soup.md"}
        tool = TOOL | {"filters": {"type": "eq", "key": "kind", "value": "bridges"}}
        whole = post(running, headers=cook, tools=[tool], include=["file_search_call.results"], **ASKED).json()
        assert not whole["output"][0]["results"]
    finally:
        assert running.stop() == 0, running.log.read_text()


def test_file_search_in_stores_of_ones_own(config, tmp_path):
    import shutil

    from test_stores import Client, options

    folder = tmp_path / "collection"
    shutil.copytree(json.loads(config.read_text())["retrieval"]["collection"], folder)
    running = Server(config, tmp_path, *options(folder))
    client = Client(running)
    try:
        soup, canal = client.upload("own.md", "Leek soup of the north takes barley and smoked eel.\n"), client.upload("canal.md", "The canal has nine locks.\n")
        kitchen, water = client.store(), client.store(canal)
        client.add(kitchen, soup, attributes={"year": 2020})
        client.add(kitchen, canal, attributes={"year": 2021})

        def results(*stores, **fields):
            tool = TOOL | {"vector_store_ids": [s["id"] for s in stores]} | fields
            whole = respond(running, tools=[tool], include=["file_search_call.results"])
            return whole, {(r["filename"], tuple(r["attributes"].items())) for r in whole["output"][0]["results"] or []}

        whole, found = results(kitchen)
        assert found == {("own.md", (("year", 2020),)), ("canal.md", (("year", 2021),))}
        cited = whole["output"][1]["content"][0]["annotations"]
        assert {a["filename"] for a in cited} == {"own.md", "canal.md"} and {a["file_id"] for a in cited} == {soup["id"], canal["id"]}
        assert results(water)[1] == {("canal.md", ())}
        assert results(kitchen, filters={"type": "lt", "key": "year", "value": 2021})[1] == {("own.md", (("year", 2020),))}
        assert results(water, kitchen)[1] == {("canal.md", ()), ("own.md", (("year", 2020),))}
        both = {name for name, _ in results(kitchen, {"id": STORE}, max_num_results=16)[1]}
        assert {"own.md", "canal.md", "pages/soup.md"} <= both
        client.ask("DELETE", f"files/{soup['id']}")
        assert {name for name, _ in results(kitchen)[1]} == {"canal.md"}
        client.ask("DELETE", f"vector_stores/{water['id']}")
        assert post(running, **ASKED, tools=[TOOL | {"vector_store_ids": [water["id"]]}]).status == 404
    finally:
        assert running.stop() == 0, running.log.read_text()
