"""Thoughts in a channel, as Gemma 4 writes them: read in answers and in streams, and before calls and JSON that are held to
a schema. The model is a script (chat_model.py) whose marks are special tokens."""
import json

import jsonschema_rs
import openai
import pytest
from chat_model import make_chat_model
from conftest import Server

TEMPLATE = """{%- if tools %}{{- '<|tool_call>call:NAME{KEY:<|"|>VALUE<|"|>}<tool_call|>' }}{% endif %}
{%- for message in messages %}{{- message.role + ': ' + (message.content or '') + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|to_think|>' if enable_thinking else '<|channel>thought\\n<channel|>' }}{% endif %}"""
SCRIPTS = {"<|to_think|>": ["<|channel>", "thought\nI th", "ink so \n", "<channel|>", "The ans", "wer"],
           "a": ["<|tool_call>", "<tool_call|>", "<|\"|>"]}
SPECIAL = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"]
USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thoughts")
    make_chat_model(folder / "script", SCRIPTS, TEMPLATE, SPECIAL)
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield running.client()
    assert running.stop() == 0, running.log.read_text()


def ask(client, **fields):
    return client.chat.completions.create(model="script", messages=USER, temperature=0, **fields)


def test_thoughts_are_told_from_words(client):
    message = ask(client, extra_body=THINKING).choices[0].message
    assert (message.reasoning_content, message.content) == ("I think so", "The answer")
    deltas = [event.choices[0].delta for event in ask(client, extra_body=THINKING, stream=True) if event.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "I think so"
    assert "".join(d.content or "" for d in deltas) == "The answer"


def test_without_thoughts(client):
    """The template ends them before they begin."""
    message = ask(client).choices[0].message
    assert getattr(message, "reasoning_content", None) is None and message.content == "The answer"


@pytest.mark.parametrize("thinks", [True, False])
def test_forced_calls_behind_thoughts(client, thinks):
    choice = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, extra_body=THINKING if thinks else {}).choices[0]
    assert getattr(choice.message, "reasoning_content", None) == ("I think so" if thinks else None) and not choice.message.content
    call, = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and call.function.name == "get_weather"
    jsonschema_rs.validate(PARAMETERS, json.loads(call.function.arguments))


@pytest.mark.parametrize("schema", [{"enum": ["a|>b"]}, {"type": "string", "pattern": "a[|]b"}])
def test_texts_that_calls_cannot_hold(client, schema):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}}]
    with pytest.raises(openai.BadRequestError, match="calls cannot hold the text"):
        ask(client, tools=tools, tool_choice="required")


def test_json_behind_thoughts(client):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": PARAMETERS}}
    message = ask(client, response_format=schema, extra_body=THINKING).choices[0].message
    assert message.reasoning_content == "I think so"
    jsonschema_rs.validate(PARAMETERS, json.loads(message.content))
