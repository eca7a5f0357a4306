"""Ollama's Python client against /api, with a model whose answers are known (chat_model.py)."""
import json

import ollama
import pytest
from chat_model import WORDS, make_chat_model
from http_fixtures import DEPS, Server

TEXT = "".join(WORDS)
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ollama")
    make_chat_model(folder / "script")
    config = folder / "retro.json"
    others = [{"path": str(DEPS / "minilm"), "role": "embedder"}]
    config.write_text(json.dumps({"model": {"path": str(folder / "script"), "others": others}, "server": {"port": 0}}))
    running = Server(config, folder)
    yield ollama.Client(host=running.url)
    assert running.stop() == 0, running.log.read_text()


def get_weather(city: str) -> str:
    """The weather.

    Args:
        city: of which
    """
    return f"rain in {city}"


def test_chat(client):
    assert client.chat("script", USER).message.content == TEXT
    assert "".join(part.message.content for part in client.chat("script", USER, stream=True)) == TEXT
    thought = client.chat("script", USER, think=True).message
    assert (thought.thinking, thought.content) == ("I think so", "The answer")


def test_tools(client):
    message = client.chat("script", USER, tools=[get_weather]).message
    call = message.tool_calls[0].function
    assert call.name == "get_weather" and get_weather(**call.arguments) == "rain in Paris"
    message.tool_calls = message.tool_calls[:1]
    turns = [*USER, message, {"role": "tool", "tool_name": call.name, "content": "rain"}]
    assert client.chat("script", turns, tools=[get_weather]).message.content == "Let me look"


def test_generate_embed_and_models(client):
    assert client.generate("script", "Hi").response == TEXT
    assert len(client.embed("minilm", ["a", "b"]).embeddings) == 2
    assert [m.model for m in client.list().models] == ["script", "minilm"]
    assert "tools" in client.show("script").capabilities and len(client.ps().models) == 2
    with pytest.raises(ollama.ResponseError) as raised:
        client.chat("nothing", USER)
    assert raised.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="does not apply"):
        client.pull("script")
