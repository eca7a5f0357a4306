"""retro-eval chat writes what Hugging Face transformers writes: whole templates, and pieces of Jinja.

tests/reference/make_chat_fixtures.py makes the expected texts and ids."""
import json
import os
import pathlib
import subprocess

import pytest
from conversations import CONVERSATIONS
from snippets import VARIABLES

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
SNIPPETS = json.loads((HERE / "snippets.json").read_text())
EPOCH = {**os.environ, "SOURCE_DATE_EPOCH": "1735689600"}


def chat(folder, request, *options):
    return subprocess.run([PROGRAM, "chat", folder, request, *options], capture_output=True, env=EPOCH)


def folder_of(path, source, name="chat_template.jinja"):
    path.mkdir(exist_ok=True)
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(source)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (path / file).write_bytes((HERE / file).read_bytes())
    return path


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_conversations(name, tmp_path):
    folder = folder_of(tmp_path / "model", (HERE / "templates" / name).read_text())
    request = tmp_path / "request.json"
    texts = 0
    for conversation, want in zip(CONVERSATIONS, EXPECTED[name], strict=True):
        request.write_text(json.dumps(conversation))
        done = chat(folder, request)
        if "text" not in want:
            assert done.returncode == 1 and done.stdout == b"", conversation
            assert (want["error"] or "") in done.stderr.decode()
            continue
        texts += 1
        assert (done.stdout.decode(), done.returncode) == (want["text"], 0), (conversation, done.stderr)
        if want["ids"] is None:
            continue
        ids = chat(folder, request, "--ids")
        assert [int(i) for i in ids.stdout.split()] == want["ids"], (conversation, ids.stderr)
    assert texts >= 5


def test_snippets(tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": VARIABLES}))
    same = 0
    for source, want in SNIPPETS:
        done = chat(folder_of(tmp_path / "model", source), request)
        if done.stderr.endswith(b"is not supported\n"):
            continue
        same += 1
        got = done.stdout.decode() if done.returncode == 0 else None
        assert got == want, (source, done.stderr)
    assert same > 0.9 * len(SNIPPETS)


def rendered(folder, tmp_path, **fields):
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}))
    done = chat(folder, request)
    return done.stdout.decode() if done.returncode == 0 else done.stderr.decode()


def test_which_template(tmp_path):
    """chat_template.jinja and its folder go before tokenizer_config.json; tools choose tool_use."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    folder = folder_of(tmp_path / "model", "tool", "additional_chat_templates/tool_use.jinja")
    config = {"chat_template": [{"name": "default", "template": "C"}, {"name": "rag", "template": "R"}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert "no default" in rendered(folder, tmp_path)
    assert rendered(folder, tmp_path, tools=tools) == "tool"
    (folder / "chat_template.jinja").write_text("J{{ bos_token }}")
    assert rendered(folder, tmp_path) == "J"
    assert rendered(folder, tmp_path, tools=tools) == "tool"
    assert rendered(folder, tmp_path, chat_template="tool_use") == "tool"
    assert "default, tool_use" in rendered(folder, tmp_path, chat_template="rag")
    (folder / "chat_template.jinja").unlink()
    (folder / "additional_chat_templates/tool_use.jinja").unlink()
    assert rendered(folder, tmp_path) == "C"
    assert rendered(folder, tmp_path, chat_template="rag") == "R"
    (folder / "tokenizer_config.json").write_text("{}")
    assert "has no chat template" in rendered(folder, tmp_path)


@pytest.mark.parametrize("source, words", [
    ("a\n{% include 'x' %}", "line 2: the tag include is not supported"),
    ("\n\n{{ 1 | frobnicate }}", "line 3: the filter frobnicate is not supported"),
    ("{% if false %}{{ 1 | frobnicate }}{% endif %}", ""),
    ("{% for a in b recursive %}{% endfor %}", "line 1: a recursive loop is not supported"),
    ("{% if x %}", "the template ends before elif else endif"),
    ("{{ 9223372036854775807 + 1 }}", "a number beyond 64 bits is not supported"),
    ("{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"),
    ("{{ ''.__class__ }}", "unsafe"),
    ("{{ range(100001) }}", "Range too big"),
    ("{% set l = range(9999)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}", "steps"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper"),
    ("{% set ns = namespace(x='ab') %}{% for a in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "64 MB"),
    ("{{ raise_exception('my\nwords') }}", "retro-eval chat: my\\nwords"),
])
def test_refusals_name_construct_and_line(tmp_path, source, words):
    assert words in rendered(folder_of(tmp_path / "model", source), tmp_path)


@pytest.mark.parametrize("fields, words", [
    ({"messages": []}, "messages is empty"),
    ({"messages": {}}, "messages must be a list of objects"),
    ({"messages": [1]}, "messages[0] must be an object"),
    ({"tools": [1]}, "tools[0] must be an object"),
    ({"chat_template_kwargs": {"messages": 1}}, "must not hold messages"),
    ({"add_generation_prompt": 1}, "add_generation_prompt must be true or false"),
])
def test_requests_that_are_wrong(tmp_path, fields, words):
    assert words in rendered(folder_of(tmp_path / "model", "x"), tmp_path, **fields)


PARTS = """{%- for message in messages %}{{- '[' + message.role + ']' }}
{%- if message['content'] is string %}{{- message['content'] }}{% else %}
{%- for block in message['content'] %}
{%- if block['type'] == 'thinking' %}{{- '[THINK]' + block['thinking'] + '[/THINK]' }}{% else %}{{- block['text'] }}{% endif %}
{%- endfor %}{% endif %}{% endfor %}"""
READS = "{{- (message.reasoning_content or '') }}"
SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one", "reasoning_content": "r"}, {"role": "user", "content": "s"}]


@pytest.mark.parametrize(("source", "last", "want"), [
    (PARTS, {"content": "two", "thinking": "t"}, "[user]q[assistant][THINK]r[/THINK]one[user]s[assistant][THINK]t[/THINK]two"),
    (PARTS, {"content": [{"type": "text", "text": "two"}], "reasoning": "t"},
     "[user]q[assistant][THINK]r[/THINK]one[user]s[assistant][THINK]t[/THINK]two"),
    (PARTS, {"content": "two", "reasoning_content": ""}, "[user]q[assistant][THINK]r[/THINK]one[user]s[assistant]two"),
    (PARTS.replace("{%- if message['content'] is", READS + "{%- if message['content'] is"), {"content": "two"},
     "[user]q[assistant]rone[user]s[assistant]two"),
])
@pytest.mark.parametrize("continues", [False, True])
def test_thoughts_as_parts(tmp_path, source, last, want, continues):
    """Of a template that takes them in no other way; also where the last message is gone on with."""
    request = tmp_path / "request.json"
    messages = [*SAID, {"role": "assistant", **last}]
    request.write_text(json.dumps({"messages": messages, "continue_final_message": continues, "add_generation_prompt": False}))
    done = chat(folder_of(tmp_path / "model", source), request)
    assert (done.stdout.decode(), done.returncode) == (want, 0), done.stderr
