"""A model that writes messages in channels, as gpt-oss does: thoughts, words and calls, whole and in streams."""
import json
import pathlib

import openai
import pytest
from chat_model import make_chat_model, make_tokens, write_weights
from conftest import Server

TEMPLATE = (pathlib.Path(__file__).resolve().parents[1] / "chat/templates/channels.jinja").read_text()
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]
# Each token is followed by one other, so a mark stands once by itself and then within a longer text.
SCRIPT = ["<|channel|>", "analysis", "<|message|>", "I th", "ink.", "<|end|>", "<|start|>", "assistant<|channel|>commentary<|message|>",
          "I look.<|end|><|start|>assistant", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
          "{\"city\": ", "\"Paris\"}<|end|>", "<|start|>assistant<|channel|>final<|message|>It is ", "warm."]
MARKS = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>", "<|call|>", "<|return|>"]
# Without a guide the model thinks, and says "Hello". A call that is begun has no city that a tool has.
CALLER = ["<|channel|>", "analysis", "<|message|>", "I th", "ink.", "<|end|>", "<|start|>", "assistant"]
WISHES = ["<|channel|>", "commentary", " to=functions.get_weather", " ", "<|constrain|>", "json", "<|message|>", "{\"city\": \"Paris\"}", "<|call|>"]
SAYER = ["<|channel|>", "final", "<|message|>", "Hello", "<|return|>"]
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}
STRICT = [{"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": CITY}},
          {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]


def serve(tmp_path_factory, script, missing=()):
    """A server whose model writes the script; the template's last letter begins it. Behind "}" it ends the message."""
    folder = tmp_path_factory.mktemp("channels") / "script"
    texts = script + [mark for mark in MARKS if mark not in script and mark not in missing]
    make_chat_model(folder, {"t": texts}, TEMPLATE)
    names, follow = make_tokens({"t": texts})
    follow[names.index(script[-1])] = names.index("<|im_end|>")
    if script is CALLER:
        follow |= {names.index("}"): names.index("<|end|>"), names.index("assistant"): names.index("<|channel|>")}
    write_weights(folder, len(names), follow)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = token["special"] or token["content"] in MARKS
    path.write_text(json.dumps(tokenizer))
    config = folder.parent / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0, "max_context": 2048}}))
    return Server(config, tmp_path_factory.mktemp("server"))


def serving(name, *arguments):
    @pytest.fixture(scope="module", name=name)
    def serve_one(tmp_path_factory):
        running = serve(tmp_path_factory, *arguments)
        yield running
        assert running.stop() == 0, running.log.read_text()
    return serve_one


words, caller, wishes, sayer, unmarked = (
    serving("words", SCRIPT), serving("caller", CALLER), serving("wishes", WISHES), serving("sayer", SAYER),
    serving("unmarked", SAYER, ["<|end|>"]))


@pytest.fixture
def client(words):
    return words.client()


def ask(client, **fields):
    return client.chat.completions.create(model="script", messages=USER, **{"temperature": 0, "max_tokens": 60, **fields})


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


def calls_of(message):
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]


def check_calls(calls, names=("get_weather", "get_time")):
    assert calls
    for name, arguments in calls:
        assert name in names and (arguments == {} if name == "get_time" else arguments["city"] in ("Oslo", "Rome")), calls


# Where the script is not allowed, any token is as likely as another.
FREE = {"temperature": 1, "seed": 7, "max_tokens": 1600}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def test_forced_calls(caller):
    """The model thinks as it likes, once, and then it calls: as often as it may, once, or the tool that is named."""
    client = caller.client()
    for seed in range(2):
        choice = ask(client, tools=STRICT, tool_choice="required", **FREE | {"seed": seed}).choices[0]
        assert choice.finish_reason == "tool_calls" and not choice.message.content
        assert choice.message.reasoning_content == "I think."
        check_calls(calls_of(choice.message))
        assert len(choice.message.tool_calls) == 16  # the most there may be
    one = ask(client, tools=STRICT, tool_choice="required", parallel_tool_calls=False, **FREE).choices[0].message
    check_calls(calls_of(one))
    assert len(one.tool_calls) == 1
    named = ask(client, tools=STRICT, tool_choice=NAMED, **FREE).choices[0]
    assert named.finish_reason == "tool_calls" and len(named.message.tool_calls) == 1
    check_calls(calls_of(named.message), ["get_weather"])


def test_forced_calls_in_a_stream(caller):
    whole = ask(caller.client(), tools=STRICT, tool_choice="required", **FREE).choices[0].message
    thought, calls, finish = "", {}, None
    for chunk in ask(caller.client(), tools=STRICT, tool_choice="required", stream=True, **FREE):
        for choice in chunk.choices:
            assert not choice.delta.content
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = name + (call.function.name or ""), arguments + (call.function.arguments or "")
    assert (thought, finish) == ("I think.", "tool_calls")
    assert [(name, json.loads(arguments)) for _, (name, arguments) in sorted(calls.items())] == calls_of(whole)


def test_forced_calls_at_other_doors(caller):
    flat = [{"type": "function", **tool["function"]} for tool in STRICT]
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        reply = caller.post({"model": "script", "input": "Hi", "tools": flat, "tool_choice": choice, "temperature": 1,
                             "max_output_tokens": 1600}, "/v1/responses").json()
        check_calls([(item["name"], json.loads(item["arguments"])) for item in reply["output"] if item["type"] == "function_call"])
        assert [item["type"] for item in reply["output"]][0] == "reasoning"
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in STRICT]
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        reply = caller.post({"model": "script", "messages": USER, "tools": tools, "tool_choice": choice, "temperature": 1,
                             "max_tokens": 1600}, "/v1/messages").json()
        check_calls([(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"])
        assert reply["stop_reason"] == "tool_use"


def test_strict_calls(wishes):
    """A call that the model begins by itself is held to the parameters of the tool, and to the tools that there are."""
    choice = ask(wishes.client(), tools=STRICT, **FREE).choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    check_calls(calls_of(choice.message), ["get_weather"])
    loose = ask(wishes.client(), tools=TOOLS).choices[0].message
    assert calls_of(loose) == [("get_weather", {"city": "Paris"})]


def test_strict_tools_need_no_call(sayer):
    choice = ask(sayer.client(), tools=STRICT).choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Hello", None, "stop")


def test_a_message_that_goes_on_calls_nothing(sayer):
    with pytest.raises(openai.BadRequestError) as failed:
        sayer.client().chat.completions.create(model="script", messages=[*USER, {"role": "assistant", "content": "He"}], tools=STRICT, extra_body={
            "continue_final_message": True, "add_generation_prompt": False})
    assert failed.value.param == "continue_final_message"


def test_json_or_calls(sayer, wishes):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": {"a": 1}}}}
    said = ask(sayer.client(), tools=STRICT, response_format=schema, **FREE).choices[0].message
    assert json.loads(said.content) == {"a": 1} and not said.tool_calls
    called = ask(wishes.client(), tools=STRICT, response_format=schema, **FREE).choices[0].message
    check_calls(calls_of(called), ["get_weather"])


def test_a_tokenizer_without_the_marks(unmarked):
    """Texts would be as good as marks, so nothing could be held to a call."""
    with pytest.raises(openai.BadRequestError) as failed:
        ask(unmarked.client(), tools=STRICT, tool_choice="required")
    assert failed.value.param == "tool_choice" and "cannot be forced" in failed.value.message
