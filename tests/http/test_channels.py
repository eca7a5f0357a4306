"""A model that writes messages in channels, as gpt-oss does: thoughts, words and calls, whole and in streams."""
import json
import pathlib

import pytest
from chat_model import make_chat_model
from conftest import Server

TEMPLATE = (pathlib.Path(__file__).resolve().parents[1] / "chat/templates/channels.jinja").read_text()
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
# Each token is followed by one other, so a mark stands once by itself and then within a longer text.
SCRIPT = ["<|channel|>", "analysis", "<|message|>", "I th", "ink.", "<|end|>", "<|start|>", "assistant<|channel|>commentary<|message|>",
          "I look.<|end|><|start|>assistant", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
          "{\"city\": ", "\"Paris\"}<|end|>", "<|start|>assistant<|channel|>final<|message|>It is ", "warm."]
MARKS = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The template's last letter begins the script."""
    folder = tmp_path_factory.mktemp("channels") / "script"
    make_chat_model(folder, {"t": SCRIPT}, TEMPLATE)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = token["special"] or token["content"] in MARKS
    path.write_text(json.dumps(tokenizer))
    config = folder.parent / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, tmp_path_factory.mktemp("server"))
    yield running.client()
    assert running.stop() == 0, running.log.read_text()


def ask(client, **fields):
    return client.chat.completions.create(model="script", messages=USER, temperature=0, max_tokens=60, **fields)


def test_channels_are_taken_apart(client):
    message = ask(client, tools=TOOLS).choices[0].message
    assert message.reasoning_content == "I think."
    assert message.content == "I look.\nIt is warm."
    assert [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == [("get_weather", {"city": "Paris"})]


def test_stream(client):
    thought = said = ""
    calls = []
    for chunk in ask(client, tools=TOOLS, stream=True):
        for choice in chunk.choices:
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            said += choice.delta.content or ""
            calls += [c.function.name for c in choice.delta.tool_calls or [] if c.function.name]
    assert (thought, said, calls) == ("I think.", "I look.\nIt is warm.", ["get_weather"])


def test_a_guide_holds_the_final_message(client):
    reply = ask(client, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "boolean"}}})
    message = reply.choices[0].message
    assert message.content in ("true", "false") and not getattr(message, "reasoning_content", None)
    assert reply.choices[0].finish_reason == "stop"
