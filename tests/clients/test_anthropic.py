"""Anthropic's client against POST /v1/messages, with a model whose answers are known (chat_model.py)."""
import json

import anthropic
import pytest
from chat_model import WORDS, make_chat_model
from http_fixtures import Server

TEXT = "".join(WORDS)
ASKED = {"model": "script", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
TOOLS = [{"name": "get_weather", "description": "d", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("anthropic")
    make_chat_model(folder / "script")
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0)
    assert running.stop() == 0, running.log.read_text()


def test_answer_and_count(client):
    message = client.messages.create(**ASKED)
    assert message.content[0].text == TEXT and message.stop_reason == "end_turn"
    counted = client.messages.count_tokens(model="script", messages=ASKED["messages"])
    assert counted.input_tokens == message.usage.input_tokens


def test_stream(client):
    with client.messages.stream(**ASKED) as stream:
        assert "".join(stream.text_stream) == TEXT
        message = stream.get_final_message()
    assert message.content[0].text == TEXT and message.usage.output_tokens == len(WORDS) + 1


def test_thinking_and_stop(client):
    with client.messages.stream(thinking={"type": "enabled", "budget_tokens": 1024}, **ASKED) as stream:
        message = stream.get_final_message()
    assert [b.type for b in message.content] == ["thinking", "text"] and message.content[0].signature
    message = client.messages.create(stop_sequences=["ld"], **ASKED)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "ld")


def test_tools_in_a_loop(client):
    with client.messages.stream(tools=TOOLS, **ASKED) as stream:
        message = stream.get_final_message()
    calls = [b for b in message.content if b.type == "tool_use"]
    assert message.stop_reason == "tool_use" and calls[0].input == {"city": "Paris"}
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"} for call in calls[:1]]
    turns = [*ASKED["messages"], {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content[:2]]},
             {"role": "user", "content": results}]
    assert client.messages.create(**ASKED | {"messages": turns}, tools=TOOLS).content[0].text == "Let me look"


def test_citations(client):
    document = {"type": "document", "title": "T", "citations": {"enabled": True},
                "source": {"type": "text", "media_type": "text/plain", "data": "One."}}
    turns = [{"role": "user", "content": [document, {"type": "text", "text": "?"}]}]
    with client.messages.stream(**ASKED | {"messages": turns}, extra_body={"chat_template_kwargs": {"sources": True}}) as stream:
        message = stream.get_final_message()
    assert message.content[0].citations[0].cited_text == "One."


def test_models_and_errors(client):
    assert [m.id for m in client.models.list()] == ["script"]
    assert client.models.retrieve("script").display_name == "script"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**ASKED | {"model": "nothing"})
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(**ASKED | {"messages": [{"role": "user", "content": "word " * 2000}]})
