"""Calls of tools between tags, as Qwen3-Coder, GLM, MiniMax, DeepSeek, LFM2, Gemma 4,
Granite 3, OLMo 3 and Apertus write them: read in answers and in streams,
and forced and strict ones, which are held to the tool. The models are scripts (chat_model.py)."""
import json

import jsonschema_rs
import openai
import pytest
from chat_model import TEMPLATE, make_chat_model
from conftest import Server

USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {
    "city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "note": {"type": "string"}, "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["city", "days"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "get_time", "parameters": {}}}]
# Nothing that a model which draws at random could go on with for ever.
WITHOUT_TEXT = {**PARAMETERS, "properties": {key: value for key, value in PARAMETERS["properties"].items() if key != "note"},
                "additionalProperties": False}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
SHORT = [{"type": "function", "function": {"name": "get_weather", "parameters": WITHOUT_TEXT}},
         {"type": "function", "function": {"name": "get_time", "parameters": NOTHING}}]
WEATHER = {"city": "Rome", "days": 3, "note": "a \"b\"\nc", "flags": [True]}

DEEPSEEK = ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]
# What a template says of calls, and pieces of an answer with two of them.
FORMATS = {
    "function": ("<tool_call><function=NAME><parameter=KEY>", [
        "<tool_call>", "\n<function=get_weather>\n<param", "eter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>",
        "\n<parameter=note>\na \"b\"\nc\n</parameter>\n<parameter=flags>\n[true]\n</parameter>\n</function>\n</tool",
        "_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>"]),
    "glm": ("<tool_call>NAME<arg_key>KEY</arg_key>", [
        "<tool_call>", "get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3",
        "</arg_value>\n<arg_key>note</arg_key>\n<arg_value>a \"b\"\nc</arg_value>\n<arg_key>flags</arg_key>\n<arg_value>[true]",
        "</arg_value>\n</tool", "_call>\n<tool_call>get_time\n</tool_call>"]),
    "minimax": ("<minimax:tool_call>", [
        "<minimax:tool_call>", "\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>\n<parameter name=\"days\">",
        "3</parameter>\n<parameter name=\"note\">a \"b\"\nc</parameter>\n<parameter name=\"flags\">[true]</parameter>\n</invoke>\n",
        "<invoke name=\"get_time\">\n</invoke>\n", "</minimax:tool_call>"]),
    "deepseek": ("".join(DEEPSEEK), [
        DEEPSEEK[0], DEEPSEEK[1], "get_weather", DEEPSEEK[2], json.dumps(WEATHER), DEEPSEEK[3],
        DEEPSEEK[1] + "get_time" + DEEPSEEK[2], "{}" + DEEPSEEK[3], DEEPSEEK[4]]),
    "deepseek_block": ("".join(DEEPSEEK) + "```json", [
        DEEPSEEK[0], DEEPSEEK[1], "function", DEEPSEEK[2], "get_weather\n```json\n" + json.dumps(WEATHER) + "\n```", DEEPSEEK[3],
        "\n" + DEEPSEEK[1] + "function" + DEEPSEEK[2], "get_time\n```json\n{}\n```" + DEEPSEEK[3], DEEPSEEK[4]]),
    "gemma": ("<|tool_call>call:NAME{KEY:<|\"|>VALUE<|\"|>}<tool_call|>", [
        "<|tool_call>", "call:get_weather{city:", "<|\"|>", "Rome<|\"|>,days:3,note:<|\"|>a \"b\"\nc<|\"", "|>,flags:[true]}", "<tool_call|>",
        "<|tool_call>call:get_time{}<tool", "_call|>"]),
    "granite": ("respond only with <|tool_call|> followed by a JSON list", [
        "<|tool_call|>", '[{"name": "get_weather", "arguments": ' + json.dumps(WEATHER)[:20], json.dumps(WEATHER)[20:] + "}",
        ', {"name": "get_time", "arguments": {}}]']),
    "olmo": ("<functions></functions><function_calls></function_calls>", [
        "<function_calls>", "get_weather(city=\"Rome\", days=3, note=\"a \\\"b\\\"", "\\nc\", flags=[true])\nget_time()",
        "</function_calls>"]),
    "apertus": ("<|tools_prefix|>[]<|tools_suffix|>", [
        "<|tools_prefix|>", '[{"get_weather": ' + json.dumps(WEATHER)[:20], json.dumps(WEATHER)[20:] + '}, {"get_time": {}}]',
        "<|tools_suffix|>"]),
    "python": ("<|tool_call_start|>[]<|tool_call_end|>", [
        "<|tool_call_start|>", "[get_weather(city='Rome', days=3, note=\"a \\\"b\\\"", "\\nc\", flags=[True]), get_time()]",
        "<|tool_call_end|>"]),
}


@pytest.fixture(scope="module", params=FORMATS)
def client(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    template, pieces = FORMATS[request.param]
    scripts = {"<|to_words|>": ["Hello"], "<|to_calls|>": ["Let me ", "look\n", *pieces]}
    make_chat_model(folder / "script", scripts, TEMPLATE.replace('<tool_call>{"name": ..., "arguments": ...}</tool_call>', template))
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder / "script")}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, folder)
    yield running.client()
    assert running.stop() == 0, running.log.read_text()


def ask(client, **fields):
    return client.chat.completions.create(model="script", messages=USER, tools=TOOLS, **fields)


def check(calls):
    assert [name for name, _ in calls] == ["get_weather", "get_time"]
    assert [json.loads(arguments) for _, arguments in calls] == [WEATHER, {}]


def test_calls_are_read(client):
    choice = ask(client).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look", "tool_calls")
    check([(call.function.name, call.function.arguments) for call in choice.message.tool_calls])


def test_calls_in_a_stream(client):
    content, calls = "", {}
    for event in ask(client, stream=True):
        delta = event.choices[0].delta if event.choices else None
        content += (delta.content or "") if delta else ""
        for call in (delta.tool_calls or []) if delta else []:
            name, arguments = calls.setdefault(call.index, ["", ""])
            calls[call.index] = [name + (call.function.name or ""), arguments + (call.function.arguments or "")]
    assert content == "Let me look"
    check([tuple(calls[i]) for i in sorted(calls)])


def test_forced_calls(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    for seed in range(4):
        choice = client.chat.completions.create(model="script", messages=USER, tools=SHORT, tool_choice=named, temperature=1,
                                                seed=seed).choices[0]
        assert choice.finish_reason == "tool_calls" and not choice.message.content
        assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
        jsonschema_rs.validate(WITHOUT_TEXT, json.loads(choice.message.tool_calls[0].function.arguments))


def test_forced_calls_in_a_stream(client, request):
    """Of any tool, one call or several; behind a tag of a call the script of two formats ends."""
    counts = set()
    for seed in range(8):
        calls = {}
        for event in client.chat.completions.create(model="script", messages=USER, tools=SHORT, tool_choice="required", temperature=1,
                                                    seed=seed, stream=True):
            for call in (event.choices[0].delta.tool_calls or []) if event.choices else []:
                name, arguments = calls.setdefault(call.index, ["", ""])
                calls[call.index] = [name + (call.function.name or ""), arguments + (call.function.arguments or "")]
        counts.add(len(calls))
        for name, arguments in calls.values():
            jsonschema_rs.validate({"get_weather": WITHOUT_TEXT, "get_time": NOTHING}[name], json.loads(arguments))
    assert 0 not in counts
    assert max(counts) > 1 or request.node.callspec.params["client"] in ("function", "glm")


def test_strict_calls(client):
    """The model begins a call by itself, whose city the tool does not know."""
    elsewhere = {**WITHOUT_TEXT, "properties": {**WITHOUT_TEXT["properties"], "city": {"enum": ["Paris"], "type": "string"}}}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": elsewhere, "strict": True}}]
    for seed in range(4):
        choice = client.chat.completions.create(model="script", messages=USER, tools=tools, temperature=1, seed=seed).choices[0]
        assert choice.message.content == "Let me look" and choice.finish_reason == "tool_calls"
        for call in choice.message.tool_calls:
            jsonschema_rs.validate(elsewhere, json.loads(call.function.arguments))


def test_a_keyword_that_no_tag_holds(client, request):
    """Values that are JSON are held to all of them."""
    if request.node.callspec.params["client"] in ("apertus", "deepseek", "deepseek_block", "gemma", "granite", "olmo", "python"):
        return
    tools = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"type": "string", "pattern": "x+"}}}}}]
    with pytest.raises(openai.BadRequestError, match="parameters of f: a: the keyword pattern"):
        client.chat.completions.create(model="script", messages=USER, tools=tools, tool_choice="required")
