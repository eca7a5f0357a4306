"""Conversations with a model that brings no chat template: questions and answers as plain text, through every door."""
import json

import openai
import pytest
from chat_model import MARKS, make_chat_model
from conftest import Server

QUESTION = "What does lseek() return upon successful completion?"
USER = [{"role": "user", "content": QUESTION}]
GREEDY = {"temperature": 0, "max_tokens": 24}
PASSED = {"service_tier": "auto", "modalities": ["text"], "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low",
          "cache_prompt": True, "keep_alive": "5m", "think": False, "repeat_penalty": 1}
MANY = [{"role": "system", "content": "Be short. "}, {"role": "user", "content": [{"type": "text", "text": "One?"}]},
        {"role": "assistant", "content": " Yes.\n"}, *USER]
MANY_TEXT = f"Be short.\n\nQuestion: One?\nAnswer: Yes.\nQuestion: {QUESTION}\nAnswer:"


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    """It goes on with the next question by itself."""
    folder = tmp_path_factory.mktemp("plain") / "asker"
    make_chat_model(folder, {":": ["  It is", " so.", "\nQues", "tion", ": And?"]} | {mark: [] for mark in MARKS})
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    config = folder.parent / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(folder)}, "server": {"port": 0}}))
    running = Server(config, folder.parent)
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.mark.parametrize("messages, prompt", [(USER, f"Question: {QUESTION}\nAnswer:"), (MANY, MANY_TEXT)])
def test_a_conversation_is_this_text(server, messages, prompt):
    chat = server.client().chat.completions.create(model="retro-docs", messages=messages, **GREEDY, extra_body=PASSED)
    text = server.complete(prompt, **GREEDY)
    assert chat.usage.prompt_tokens == text["usage"]["prompt_tokens"]
    assert chat.choices[0].message.content == text["choices"][0]["text"].lstrip() != ""


def test_an_answer_goes_on(server):
    begun = [*USER, {"role": "assistant", "content": "Upon successful"}]
    reply = server.post({"messages": begun, "continue_final_message": True, "add_generation_prompt": False, **GREEDY},
                        "/v1/chat/completions").json()
    prompt = f"Question: {QUESTION}\nAnswer: Upon successful"
    assert reply["usage"]["prompt_tokens"] == server.complete(prompt, **GREEDY)["usage"]["prompt_tokens"]


def test_the_next_question_ends_an_answer(asker):
    client = asker.client()
    chat = client.chat.completions.create(model="asker", messages=USER, max_tokens=40)
    assert chat.choices[0].message.content == "It is so." and chat.choices[0].finish_reason == "stop"
    assert "stop_reason" not in chat.choices[0].model_dump()
    stream = client.chat.completions.create(model="asker", messages=USER, max_tokens=40, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "It is so."
    stopped = client.chat.completions.create(model="asker", messages=USER, max_tokens=40, stop=[" so"])
    assert stopped.choices[0].message.content == "It is" and stopped.choices[0].model_dump()["stop_reason"] == " so"


def test_other_doors(asker):
    said = asker.client().responses.create(model="asker", input=QUESTION, max_output_tokens=40)
    assert said.output_text == "It is so." and said.status == "completed"
    message = asker.post({"model": "asker", "messages": USER, "max_tokens": 40}, "/v1/messages").json()
    assert [block["text"] for block in message["content"]] == ["It is so."]
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    ollama = asker.post({"model": "asker", "messages": USER, "stream": False}, "/api/chat").json()
    assert ollama["message"]["content"] == "It is so."


def test_ollama_continues_a_prompt_as_it_is(asker):
    """Ollama does so with a model that has no template."""
    reply = asker.post({"model": "asker", "prompt": "A:", "stream": False}, "/api/generate").json()
    assert reply["response"] == "  It is so.\nQuestion: And?" and reply["prompt_eval_count"] == 2


@pytest.mark.parametrize("fields, param", [
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}, "tools"),
    ({"documents": [{"text": "a"}]}, "documents"), ({"chat_template": "other"}, None),
    ({"messages": [{"role": "tool", "content": "1", "tool_call_id": "a"}]}, None),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}, None)])
def test_what_it_does_not_know_is_refused(asker, fields, param):
    reply = asker.post({"messages": USER, "max_tokens": 1, **fields}, "/v1/chat/completions")
    assert reply.status == 400 and (param is None or reply.error()["param"] == param), reply.body


def test_it_is_told(asker):
    (model,) = asker.request("GET", "/v1/models").json()["data"]
    assert (model["meta"]["chat"], model["meta"]["chat_template"]) == (True, "plain")
    assert "Question: " in asker.request("GET", "/tokenizer_info").json()["chat_template"]
    assert asker.post({"model": "asker"}, "/api/show").json()["capabilities"] == ["completion"]


def test_a_template_in_the_folder_comes_first(tmp_path):
    make_chat_model(tmp_path / "own")
    config = tmp_path / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(tmp_path / "own")}, "server": {"port": 0}}))
    server = Server(config, tmp_path)
    (model,) = server.request("GET", "/v1/models").json()["data"]
    assert model["meta"]["chat_template"] == "model"
    assert server.stop() == 0


def test_unknown_parameters_stay_errors(server):
    with pytest.raises(openai.BadRequestError) as raised:
        server.client().chat.completions.create(model="retro-docs", messages=USER, extra_body={"repeat_penality": 1})
    assert raised.value.code == "unknown_parameter"
