"""Answers that are held to grammars, JSON Schema, choices and calls of tools: through OpenAI's client and its pydantic
helper, alone and in company, and by chance under many schemas."""
import concurrent.futures
import json
import random
import re
from typing import Literal, Optional

import jsonschema_rs
import openai
import pydantic
import pytest
from chat_model import make_chat_model
from conftest import Server, loads

USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("structured") / "script"
    make_chat_model(path)
    return path


@pytest.fixture(scope="module")
def chat_server(folder, tmp_path_factory):
    config = folder.parent / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0, "max_context": 1024}}))
    running = Server(config, tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def client(chat_server):
    return chat_server.client()


def ask(client, **fields):
    return client.chat.completions.create(model="script", messages=USER, **fields).choices[0]


def schema_format(schema, strict=None):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def complete(server, **fields):
    return server.complete("Once", **fields)["choices"][0]


# Completions.

GRAMMAR = 'root ::= "<" [a-e]{2,6} ("|" [0-9]{1,3}){1,3} ">"'
GRAMMAR_PATTERN = r"<[a-e]{2,6}(\|[0-9]{1,3}){1,3}>"


def test_grammar(server):
    for seed in range(8):
        choice = complete(server, grammar=GRAMMAR, max_tokens=200, seed=seed)
        assert choice["finish_reason"] == "stop" and re.fullmatch(GRAMMAR_PATTERN, choice["text"])
    cut = complete(server, grammar='root ::= [a-z]{500}', max_tokens=5)
    assert cut["finish_reason"] == "length" and re.fullmatch("[a-z]+", cut["text"])


def test_greedy_takes_the_likeliest_token_that_is_allowed(server):
    fields = {"temperature": 0, "logprobs": 5, "retrieval": {"enabled": False}, "min_tokens": 1}
    free = complete(server, max_tokens=1, **fields)["logprobs"]["top_logprobs"][0]
    second = sorted(free, key=free.get)[-2]
    choice = complete(server, guided_choice=[second, "zzzz"], max_tokens=5, **fields)
    assert choice["text"] == second
    assert choice["logprobs"]["token_logprobs"][0] == free[second]  # the model's own, not those of the mask


@pytest.mark.parametrize("fields, pattern", [
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"guided_regex": "[A-C]{2}-\\d{3}"}, r"[A-C]{2}-\d{3}"),
    ({"structured_outputs": {"regex": "^(a|b)c?$"}}, "[ab]c?"),
    ({"structured_outputs": {"choice": ["left", "right"]}}, "left|right"),
    ({"structured_outputs": {"grammar": 'root ::= "x" "y"*'}, "stop": ["yyy"], "include_stop_str_in_output": True},
     "xy*"),
    ({"guided_json": {"enum": [1, "two", None]}}, '1|"two"|null'),
    ({"guided_json": '{"const": [1, 2]}'}, r"\[\s*1\s*,\s*2\s*\]"),
    ({"response_format": schema_format({"type": "integer", "minimum": -3, "maximum": 12})}, "-[123]|[0-9]|1[012]"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}}, "true|false"),
])
def test_fields(server, fields, pattern):
    for seed in range(3):
        choice = complete(server, max_tokens=300, seed=seed, **fields)
        assert re.fullmatch(pattern, choice["text"]), choice


def test_several_answers_and_streams(server):
    reply = server.complete("Once", guided_regex="[a-z]{8}", n=4, max_tokens=20, seed=3)
    assert len({c["text"] for c in reply["choices"]}) > 1
    assert all(re.fullmatch("[a-z]{8}", c["text"]) for c in reply["choices"])
    events = list(server.stream("Once", guided_regex="[a-z]{8}", max_tokens=20, seed=3))
    assert "".join(e["choices"][0]["text"] for e in events) == reply["choices"][0]["text"]


def test_other_changes_of_logits(server):
    def text(**fields):
        return complete(server, guided_choice=["aa", "ab", "b"], max_tokens=5, temperature=0, **fields)["text"]
    b = server.request("POST", "/tokenize", json.dumps({"prompt": "b", "add_special_tokens": False}),
                       {"Content-Type": "application/json"}).json()["tokens"]
    assert text(logit_bias={str(b[0]): 100}) == "b"
    # An answer that may go on does not end before min_tokens; one that may not, ends.
    assert len(complete(server, guided_regex="a{1,20}", max_tokens=30, min_tokens=4)["text"]) >= 4
    assert text(min_tokens=5) in ("aa", "ab", "b")
    assert complete(server, grammar='root ::= "a"{9}', ignore_eos=True, max_tokens=30)["text"] == "a" * 9


def test_company_changes_nothing(server):
    asked = [{"guided_regex": "[a-f]{3,30}!"}, {}, {"grammar": GRAMMAR}, {"guided_json": {"type": "integer"}}, {},
             {"guided_choice": ["a b c", "a c b"]}]

    def text(i):
        return complete(server, seed=i, max_tokens=24, **asked[i % len(asked)])["text"]
    alone = [text(i) for i in range(12)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(text, range(12))) == alone


@pytest.mark.parametrize("fields, param, words", [
    ({"grammar": "root ::= root"}, "grammar", "no text matches"),
    ({"grammar": "root ::= a"}, "grammar", "a is used and not defined"),
    ({"grammar": 3}, "grammar", "string"),
    ({"grammar": "root ::= \"a\"", "guided_regex": "a"}, "guided_regex", "send one"),
    ({"guided_regex": "(?=a)"}, "guided_regex", "look-around"),
    ({"guided_choice": []}, "guided_choice", "array of strings"),
    ({"guided_choice": [""]}, "guided_choice", "empty text"),
    ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
    ({"response_format": "json"}, "response_format", "object"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "schema"),
    ({"response_format": schema_format({"uniqueItems": True})}, "response_format.json_schema.schema", "uniqueItems"),
    ({"response_format": schema_format({"properties": {"a": {"not": {}}}})}, "response_format.json_schema.schema",
     "#/properties/a: the keyword not"),
    ({"structured_outputs": {"yaml": 1}}, "structured_outputs", "structured_outputs has"),
    ({"guided_json": json.dumps({"required": [f"n{i}" for i in range(60000)]})}, "guided_json", "more than 1024 named"),
    ({"guided_json": json.dumps({"allOf": [{"minLength": i} for i in range(20000)]})}, "guided_json",
     "more than 4000000 comparisons"),
])
def test_refused(server, fields, param, words):
    reply = server.post({"prompt": "a", **fields})
    error = reply.error()
    assert reply.status == 400 and error["param"] == param and words in error["message"], error


# A suffix.

def test_suffix(chat_server, folder):
    """The model's order: prompt, suffix, and then what stands between."""
    names = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    marks = {t["content"]: t["id"] for t in names}
    reply = chat_server.complete("ab", suffix="c", max_tokens=9, temperature=0, return_token_ids=True)["choices"][0]
    assert (reply["text"], reply["finish_reason"]) == ("in the middle", "stop")
    assert reply["prompt_token_ids"] == [marks["<|fim_prefix|>"], ord("a"), ord("b"), marks["<|fim_suffix|>"],
                                         ord("c"), marks["<|fim_middle|>"]]
    assert chat_server.complete("ab", suffix="", max_tokens=1)["choices"][0]["text"] != "in the"
    error = chat_server.post({"prompt": "a", "suffix": "b", "echo": True}).error()
    assert error["param"] == "echo"


# Chats.

class Step(pydantic.BaseModel):
    kind: Literal["add", "remove"]
    count: int = pydantic.Field(ge=0, le=99)


class Answer(pydantic.BaseModel):
    title: str = pydantic.Field(max_length=12)
    steps: list[Step] = pydantic.Field(min_length=1, max_length=3)
    score: Optional[float] = pydantic.Field(ge=0, le=1)
    done: bool


def test_pydantic(client):
    """OpenAI's helper sends the model's schema and parses the answer."""
    for seed in range(5):
        reply = client.chat.completions.parse(model="script", messages=USER, response_format=Answer, temperature=1,
                                              seed=seed, max_tokens=900)
        assert reply.choices[0].finish_reason == "stop"
        assert isinstance(reply.choices[0].message.parsed, Answer)
        assert list(json.loads(reply.choices[0].message.content)) == ["title", "steps", "score", "done"]


def test_json_object(client):
    found = 0
    for seed in range(6):
        choice = ask(client, response_format={"type": "json_object"}, seed=seed, max_tokens=200, temperature=1,
                     logit_bias={str(ord('"')): 4, str(ord("}")): 4})
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            found += 1
            assert isinstance(loads(choice.message.content), dict)
    assert found > 0


def test_thoughts_are_free(client):
    choice = ask(client, response_format=schema_format({"const": {"a": 1}}),
                 extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert choice.message.model_extra["reasoning_content"] == "I think so"
    assert json.loads(choice.message.content) == {"a": 1}


PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer",
              "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
         {"type": "function", "function": {"name": "get_time", "parameters": {}}}]


def check_weather(call):
    jsonschema_rs.validate(PARAMETERS, json.loads(call.function.arguments))


def test_forced_calls(client):
    named = {"type": "function", "function": {"name": "get_weather"}}
    for seed in range(3):
        choice = ask(client, tools=TOOLS, tool_choice=named, temperature=1, seed=seed)
        assert choice.finish_reason == "tool_calls" and not choice.message.content
        assert [c.function.name for c in choice.message.tool_calls] == ["get_weather"]
        check_weather(choice.message.tool_calls[0])
        choice = ask(client, tools=TOOLS[:1], tool_choice="required", temperature=1, seed=seed)
        assert choice.finish_reason == "tool_calls"
        for call in choice.message.tool_calls:
            check_weather(call)
    assert ask(client, tools=TOOLS, tool_choice="none").message.tool_calls is None


def test_strict_tools(client):
    """The model writes words and begins a call by itself, whose arguments do not fit the tool: they are made to."""
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    choice = ask(client, tools=strict)
    assert choice.message.content == "Let me look" and choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls[0].function.name == "get_weather"
    check_weather(choice.message.tool_calls[0])


@pytest.mark.parametrize("fields, param", [
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
    ({"tools": TOOLS, "extra_body": {"structured_outputs": {"regex": "a+"}}}, "structured_outputs.regex"),
    ({"tools": TOOLS, "tool_choice": "required", "extra_body": {"structured_outputs": {"regex": "a+"}}}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}],
      "tool_choice": "required"}, "tool_choice"),
])
def test_refused_chats(client, fields, param):
    with pytest.raises(openai.BadRequestError) as failed:
        ask(client, **fields)
    assert failed.value.param == param


# Schemas by chance.

def random_schema(rng, depth=0):
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "date"]
    kind = rng.choice(kinds + (["array", "object", "object", "anyOf"] if depth < 3 else []))
    if kind == "string":
        return {"type": "string", "minLength": rng.randrange(3), "maxLength": 3 + rng.randrange(4)}
    if kind == "integer":
        low = rng.randrange(-200, 200)
        return {"type": "integer", "minimum": low, "exclusiveMaximum": low + rng.randrange(1, 300)}
    if kind == "number":
        low = rng.randrange(-200, 200) / rng.choice([1, 4, 100])
        return {"type": "number", "exclusiveMinimum": low, "maximum": low + rng.choice([0.01, 0.5, 7, 1000])}
    if kind == "enum":
        return {"enum": rng.sample([1, 2.5, "a\"b\\", "é\n", None, True, [], {"x": [1, {}]}], 3)}
    if kind == "date":
        return {"type": "string", **rng.choice([{"format": "date"}, {"format": "uuid"}, {"pattern": "^[a-f]{2,4}$"}])}
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "prefixItems": [random_schema(rng, depth + 1) for _ in range(1 + rng.randrange(2))],
                "items": random_schema(rng, depth + 1), "minItems": low, "maxItems": low + rng.randrange(3)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(3)]}
    if kind == "object":
        names = rng.sample(["a", "b", "ab", "c d", "\"q\"", "é"], rng.randrange(5))
        return {"type": "object", "properties": {n: random_schema(rng, depth + 1) for n in names},
                "required": [n for n in names if rng.random() < 0.6], "additionalProperties": False}
    return {"type": kind}


def test_schemas_by_chance(chat_server):
    rng = random.Random(7)
    jobs = [(random_schema(rng), rng.random() < 0.5, seed) for seed in range(60)]

    def run(job):
        schema, strict, seed = job
        reply = chat_server.post({"messages": USER, "seed": seed, "max_tokens": 900, "temperature": 1,
                                  "response_format": schema_format(schema, strict)}, "/v1/chat/completions")
        assert reply.status == 200, (schema, reply.body)
        choice = reply.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            jsonschema_rs.validate(schema, loads(choice["message"]["content"]), validate_formats=True)
        return choice["finish_reason"] == "stop"
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(run, jobs)) > 50
