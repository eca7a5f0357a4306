"""OpenAI's client and its Agents SDK against POST /v1/responses, with a model whose answers are known (chat_model.py)."""
import asyncio
import json
import subprocess

import openai
import pytest
from chat_model import WORDS, make_chat_model
from http_fixtures import BUILD, DEPS, Server

TEXT = "".join(WORDS)
TOOLS = [{"type": "function", "name": "get_weather", "description": "d", "strict": False,
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("responses")
    make_chat_model(folder / "script")
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield running.url + "/v1"
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture
def client(url):
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


def test_answer_and_chain(client):
    first = client.responses.create(model="script", input="Hi")
    assert first.output_text == TEXT and first.status == "completed"
    second = client.responses.create(model="script", input="and?", previous_response_id=first.id)
    assert second.output_text == TEXT and client.responses.retrieve(first.id).output_text == TEXT
    assert [i.content[0].text for i in client.responses.input_items.list(first.id)] == ["Hi"]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert client.responses.input_tokens.count(model="script", input="Hi").input_tokens == first.usage.input_tokens


def test_stream(client):
    with client.responses.stream(model="script", input="Hi") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert text == TEXT == stream.get_final_response().output_text
    with client.responses.stream(model="script", input="Hi", tools=TOOLS) as stream:
        final = stream.get_final_response()
    assert [i.type for i in final.output] == ["message", "function_call", "function_call"]
    with client.responses.stream(model="script", input="Hi", extra_body={"chat_template_kwargs": {"enable_thinking": True}}) as stream:
        assert [i.type for i in stream.get_final_response().output] == ["reasoning", "message"]


def test_the_agents_sdk(url, monkeypatch):
    """A model that calls two tools at every turn: the loop runs them, and ends where it may not go on."""
    import agents

    seen = []

    @agents.function_tool(strict_mode=False)
    def get_weather(city: str) -> str:
        seen.append(city)
        return "rain"

    @agents.function_tool
    def get_time() -> str:
        return "noon"

    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(model="script", openai_client=openai.AsyncOpenAI(base_url=url, api_key="none"))

    async def run():
        talker = agents.Agent(name="a", instructions="Be brief", model=model)
        assert (await agents.Runner.run(talker, "Hi")).final_output == TEXT
        streamed = agents.Runner.run_streamed(talker, "Hi")
        assert [e async for e in streamed.stream_events()] and streamed.final_output == TEXT
        caller = agents.Agent(name="b", instructions="Be brief", model=model, tools=[get_weather, get_time])
        with pytest.raises(agents.MaxTurnsExceeded):
            await agents.Runner.run(caller, "Hi", max_turns=2)

    asyncio.run(run())
    assert seen == ["Paris", "Paris"]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """The same model with a collection; asked for sources it writes "Öl [1] comes of [2, 1], ..."."""
    folder = tmp_path_factory.mktemp("documents")
    make_chat_model(folder / "script")
    (folder / "pages").mkdir()
    (folder / "pages/soup.md").write_text("# Soup\n\nLeek soup takes potatoes, leeks and cream.\n")
    config = folder / "retro.json"
    retrieval = {"collection": str(folder / "collection"), "embedder": str(DEPS / "minilm"), "documents": "read"}
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "retrieval": retrieval, "server": {"port": 0}}))
    subprocess.run([BUILD / "retro-index", "build", "--out", folder / "collection", "--config", config, folder / "pages"], check=True)
    running = Server(config, folder, "retrieval.keep_files=path")
    yield openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0)
    assert running.stop() == 0, running.log.read_text()


def test_file_search(documents):
    store, = documents.vector_stores.list()
    best = documents.vector_stores.search(store.id, query="leek soup").data[0]
    assert documents.files.retrieve(best.file_id).filename == best.filename
    assert "Leek soup" in documents.files.content(best.file_id).text
    assert [f.id for f in documents.vector_stores.files.list(store.id)] == [best.file_id]
    tools = [{"type": "file_search", "vector_store_ids": [store.id]}]
    extra = {"chat_template_kwargs": {"sources": True}}
    with documents.responses.stream(model="script", input="leek soup?", tools=tools, include=["file_search_call.results"],
                                    extra_body=extra) as stream:
        final = stream.get_final_response()
    call, message = final.output
    assert call.results[0].filename == best.filename
    part = message.content[0]
    assert part.annotations[0].file_id == best.file_id and part.text[part.annotations[0].index:].startswith("[1]")
