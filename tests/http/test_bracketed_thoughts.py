"""Thoughts between [THINK] and [/THINK], as Mistral's models write them: read in answers and in streams, before calls and JSON
that are held to a schema, and given back to the template, which takes them as parts of a message's content."""
import json

import jsonschema_rs
import pytest
from chat_model import make_chat_model
from conftest import Server

TEMPLATE = """{%- if thinks %}{{- 'Follow [THINK]your thoughts[/THINK] and answer.\\n' }}{% endif %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[TOOL_CALLS]NAME[ARGS]{}' }}{% endif %}
{%- for message in messages %}{{- message.role + ': ' }}
{%- if message['content'] is string %}{{- message['content'] }}{% else %}
{%- for block in message['content'] %}
{%- if block['type'] == 'text' %}{{- block['text'] }}{% elif block['type'] == 'thinking' %}{{- '[THINK]' + block['thinking'] + '[/THINK]' }}
{%- else %}{{- raise_exception('no such part') }}{% endif %}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}{% endfor %}
{{- '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|to_calls|>' if calls else '<|to_think|>' }}{% endif %}"""
SCRIPTS = {"<|to_think|>": ["[THINK]", "I th", "ink so \n", "[/THINK]", "The ans", "wer"],
           "<|to_calls|>": ["[TOOL_CALLS]", "get_weather", "[ARGS]", "{\"city\": ", "\"Rome\", \"days\": 3}"]}
SPECIAL = ["[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"]
USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brackets")
    make_chat_model(folder / "script", SCRIPTS, TEMPLATE, SPECIAL)
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def client(server):
    return server.client()


def ask(client, messages=USER, **fields):
    return client.chat.completions.create(model="script", messages=messages, temperature=0, **fields)


def test_thoughts_are_told_from_words(client):
    message = ask(client).choices[0].message
    assert (message.reasoning_content, message.content) == ("I think so", "The answer")
    deltas = [event.choices[0].delta for event in ask(client, stream=True) if event.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "I think so"
    assert "".join(d.content or "" for d in deltas) == "The answer"


def test_calls_without_thoughts(client):
    choice = ask(client, tools=TOOLS, extra_body={"chat_template_kwargs": {"calls": True}}).choices[0]
    call, = choice.message.tool_calls
    assert not getattr(choice.message, "reasoning_content", None) and not choice.message.content
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome", "days": 3})


def test_forced_calls_behind_thoughts(client):
    choice = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).choices[0]
    call, = choice.message.tool_calls
    assert choice.message.reasoning_content == "I think so" and call.function.name == "get_weather"
    jsonschema_rs.validate(PARAMETERS, json.loads(call.function.arguments))


def test_json_behind_thoughts(client):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": PARAMETERS}}
    message = ask(client, response_format=schema).choices[0].message
    assert message.reasoning_content == "I think so"
    jsonschema_rs.validate(PARAMETERS, json.loads(message.content))


@pytest.mark.parametrize(("content", "extra"), [("The answer", {}), ([{"type": "text", "text": "The answer"}], {}),
                                                (None, {"tool_calls": [{"id": "c", "type": "function", "function": {
                                                    "name": "get_weather", "arguments": "{}"}}]})])
def test_earlier_thoughts_are_given_back(server, content, extra):
    """As many tokens more as the thoughts and their marks have, which are one each."""
    turns = [*USER, {"role": "assistant", "content": content, **extra}]
    more = [{"role": "tool", "tool_call_id": "c", "content": "sunny"}] if extra else [{"role": "user", "content": "And?"}]
    counts = []
    for thoughts in ({}, {"reasoning_content": "abcde"}, {"reasoning": "abcde"}):
        body = {"messages": [turns[0], {**turns[1], **thoughts}, *more], "max_tokens": 1}
        reply = server.post(body, "/v1/chat/completions").json()
        counts.append(reply["usage"]["prompt_tokens"])
    assert [count - counts[0] for count in counts[1:]] == [7, 7]
