"""OpenAI's client against /v1/files and /v1/vector_stores, and file_search in a store of its own."""
import io
import json
import subprocess

import openai
import pytest
from chat_model import make_chat_model
from http_fixtures import BUILD, DEPS, Server

TEXTS = {"soup.md": b"Leek soup takes barley and smoked eel.\n", "canal.md": b"The canal has nine locks of oak.\n", "bread.md": b"Saffron bread is baked at dawn.\n"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    make_chat_model(folder / "script")
    (folder / "seed.md").write_text("A collection begins with a document.\n")
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024},
                                  "retrieval": {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "documents": "write"}}))
    done = subprocess.run([BUILD / "retro-index", "build", "--out", folder / "collection", "--config", config, folder / "seed.md"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    running = Server(config, folder, "retrieval.keep_files=copy")
    yield openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0)
    assert running.stop() == 0, running.log.read_text()


def upload(client, name):
    return client.files.create(file=(name, TEXTS[name]), purpose="assistants")


def test_files(client):
    file = client.files.create(file=("soup.md", TEXTS["soup.md"]), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.filename == "soup.md" and file.bytes == len(TEXTS["soup.md"]) and file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file and client.files.content(file.id).read() == TEXTS["soup.md"]
    assert file.id in {f.id for f in client.files.list(limit=1)}, "the list goes on by itself"
    assert [f.id for f in client.files.list(purpose="user_data")] == [file.id]
    assert client.files.wait_for_processing(file.id).status == "processed"
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_vector_stores(client):
    files = {name: upload(client, name) for name in TEXTS}
    store = client.vector_stores.create(name="kitchen", file_ids=[files["soup.md"].id], metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 7})
    assert client.vector_stores.retrieve(store.id).name == "kitchen"
    added = client.vector_stores.files.create_and_poll(files["bread.md"].id, vector_store_id=store.id, attributes={"year": 2020, "fresh": True})
    assert added.status == "completed" and added.attributes == {"year": 2020, "fresh": True}
    uploaded = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("canal.md", TEXTS["canal.md"]), attributes={"year": 2021})
    assert uploaded.status == "completed" and uploaded.last_error is None
    assert client.vector_stores.files.poll(files["soup.md"].id, vector_store_id=store.id).status == "completed"
    shown = client.vector_stores.retrieve(store.id)
    assert shown.status == "completed" and shown.file_counts.completed == 3 == shown.file_counts.total
    assert {f.id for f in client.vector_stores.files.list(store.id, limit=1)} == {files["soup.md"].id, files["bread.md"].id, uploaded.id}
    assert "".join(part.text for part in client.vector_stores.files.content(uploaded.id, vector_store_id=store.id)) == TEXTS["canal.md"].decode()
    changed = client.vector_stores.files.update(uploaded.id, vector_store_id=store.id, attributes={"year": 2022})
    assert changed.attributes == {"year": 2022}

    def found(**fields):
        return {r.filename: r.attributes for r in client.vector_stores.search(store.id, query="what is baked and what floats", **fields)}

    assert found() == {"soup.md": {}, "bread.md": {"year": 2020, "fresh": True}, "canal.md": {"year": 2022}}
    assert found(filters={"type": "eq", "key": "fresh", "value": True}) == {"bread.md": {"year": 2020, "fresh": True}}
    both = {"type": "and", "filters": [{"type": "gte", "key": "year", "value": 2020}, {"type": "ne", "key": "fresh", "value": True}]}
    assert set(found(filters=both)) == {"canal.md"} and len(found(max_num_results=1)) == 1
    assert found(ranking_options={"ranker": "auto", "score_threshold": 0.999}) == {}
    assert client.vector_stores.update(store.id, name="other").name == "other"
    assert store.id in {s.id for s in client.vector_stores.list(limit=1, order="asc")}
    assert client.vector_stores.files.delete(uploaded.id, vector_store_id=store.id).deleted
    assert set(found()) == {"soup.md", "bread.md"}
    assert client.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.search(store.id, query="a")
    for file in (*files.values(), uploaded):
        assert client.files.delete(file.id).deleted


def test_batches(client):
    store = client.vector_stores.create()
    files = []
    for name, text in TEXTS.items():
        files.append(io.BytesIO(text))
        files[-1].name = name
    batch = client.vector_stores.file_batches.upload_and_poll(vector_store_id=store.id, files=files)
    assert batch.status == "completed" and batch.file_counts.completed == 3
    assert client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id) == batch
    listed = list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, limit=2))
    assert len(listed) == 3 and {f.status for f in listed} == {"completed"}
    again = client.vector_stores.file_batches.create_and_poll(vector_store_id=store.id, file_ids=[f.id for f in listed], attributes={"n": 1})
    assert again.file_counts.completed == 3 and client.vector_stores.files.retrieve(listed[0].id, vector_store_id=store.id).attributes == {"n": 1}
    assert client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id).id == batch.id
    for file in listed:
        client.files.delete(file.id)
    assert client.vector_stores.retrieve(store.id).file_counts.total == 0


def test_an_answer_cites_the_store(client):
    store = client.vector_stores.create()
    files = {client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=(name, text)).id: name for name, text in TEXTS.items()}
    tools = [{"type": "file_search", "vector_store_ids": [store.id], "max_num_results": 2}]
    answer = client.responses.create(model="script", input="What does leek soup take?", tools=tools, include=["file_search_call.results"],
                                     extra_body={"chat_template_kwargs": {"sources": True}})
    search, message = answer.output
    assert search.type == "file_search_call" and search.status == "completed" and len(search.results) == 2
    assert search.results[0].filename == "soup.md" and search.results[0].text in TEXTS["soup.md"].decode()
    cited = message.content[0].annotations
    assert cited and {a.type for a in cited} == {"file_citation"} and all(files[a.file_id] == a.filename for a in cited)
    assert client.files.content(cited[0].file_id).read() == TEXTS[cited[0].filename]
    with client.responses.stream(model="script", input="What does leek soup take?", tools=tools, extra_body={"chat_template_kwargs": {"sources": True}}) as stream:
        assert [a.file_id for a in stream.get_final_response().output[1].content[0].annotations] == [a.file_id for a in cited]
    for file in files:
        client.files.delete(file)
    client.vector_stores.delete(store.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="script", input="Hi", tools=tools)


def test_the_agents_sdk_searches_a_store(client):
    import asyncio

    import agents

    store = client.vector_stores.create()
    file = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("soup.md", TEXTS["soup.md"]))
    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(model="script", openai_client=openai.AsyncOpenAI(base_url=str(client.base_url), api_key="none"))
    agent = agents.Agent(name="a", model=model, tools=[agents.FileSearchTool(vector_store_ids=[store.id], max_num_results=3, include_search_results=True)])
    result = asyncio.run(agents.Runner.run(agent, "What does leek soup take?"))
    items = [i.raw_item for i in result.new_items if i.raw_item.type == "file_search_call"]
    assert items and items[0].results[0].file_id == file.id
