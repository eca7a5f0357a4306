"""Clients as they are published, each doing what it is for: langchain-openai, llama-index (openai-like), lm-eval."""
import asyncio
import json
import math
import pathlib

import lm_tasks
import pytest
from http_fixtures import MODEL, Server

EMBEDDER = "minilm"
TEXTS = ["stop a process", "a pipe connects two processes"]
GOLDEN = json.loads((pathlib.Path(__file__).parent / "lm_eval.json").read_text())


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The model that lm_eval.json is of, which also chats."""
    folder = tmp_path_factory.mktemp("tiny")
    lm_tasks.write_model(folder / "tiny")
    file = folder / "retro.json"
    file.write_text(json.dumps({"model": {"path": str(folder / "tiny"), "dtype": "f32"}, "server": {"port": 0}}))
    running = Server(file, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


# LangChain.


def test_langchain_writes_and_streams(server):
    from langchain_openai import OpenAI

    asked = dict(base_url=server.url + "/v1", api_key="none", model=MODEL, max_tokens=12, temperature=0, max_retries=0)
    want = server.complete("The fork() system call", max_tokens=12, temperature=0)["choices"][0]["text"]
    assert OpenAI(**asked).invoke("The fork() system call") == want
    assert "".join(OpenAI(**asked).stream("The fork() system call")) == want
    assert asyncio.run(OpenAI(**asked).ainvoke("The fork() system call")) == want


def test_langchain_chats(tiny):
    from langchain_openai import ChatOpenAI

    asked = dict(base_url=tiny.url + "/v1", api_key="none", model="tiny", max_tokens=8, temperature=0, max_retries=0)
    answer = ChatOpenAI(**asked).invoke("Hello")
    assert answer.usage_metadata["output_tokens"] == 8 or answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["system_fingerprint"].startswith("fp_")
    assert "".join(chunk.content for chunk in ChatOpenAI(**asked).stream("Hello")) == answer.content


def test_langchain_embeds(server):
    from langchain_openai import OpenAIEmbeddings

    asked = dict(base_url=server.url + "/v1", api_key="none", model=EMBEDDER, max_retries=0)
    client = OpenAIEmbeddings(check_embedding_ctx_length=False, **asked)
    first, second = client.embed_documents(TEXTS)
    assert len(first) == 384 and cosine(client.embed_query(TEXTS[0]), first) > 0.9999 > cosine(first, second)


# llama-index.


def test_llama_index_writes_and_streams(server):
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model=MODEL, api_base=server.url + "/v1", api_key="none", is_chat_model=False, context_window=512,
                     max_tokens=12, temperature=0, max_retries=0)
    want = server.complete("The fork() system call", max_tokens=12, temperature=0)["choices"][0]["text"]
    assert llm.complete("The fork() system call").text == want
    assert list(llm.stream_complete("The fork() system call"))[-1].text == want


def test_llama_index_chats(tiny):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model="tiny", api_base=tiny.url + "/v1", api_key="none", is_chat_model=True, context_window=512,
                     max_tokens=8, temperature=0, max_retries=0)
    messages = [ChatMessage(role="user", content="Hello")]
    answer = llm.chat(messages).message.content
    assert list(llm.stream_chat(messages))[-1].message.content == answer


def test_llama_index_embeds(server):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    client = OpenAILikeEmbedding(model_name=EMBEDDER, api_base=server.url + "/v1", api_key="none", max_retries=0)
    first, second = client.get_text_embedding_batch(TEXTS)
    assert len(first) == 384 and cosine(client.get_query_embedding(TEXTS[0]), first) > 0.9999 > cosine(first, second)


# lm-eval: as its own backend scores the same weights.


def assert_close(found, want):
    if isinstance(want, list):
        assert len(found) == len(want)
        for a, b in zip(found, want):
            assert_close(a, b)
    elif isinstance(want, float):
        assert found == pytest.approx(want, rel=1e-4, abs=1e-3)
    else:
        assert found == want


def test_lm_eval_completions(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    tasks = lm_tasks.write_tasks(tmp_path)
    found = lm_tasks.evaluate("local-completions", {
        "model": "tiny", "base_url": tiny.url + "/v1/completions", "tokenizer_backend": "remote", "max_length": 512,
        "num_concurrent": 2}, tasks)
    for task in lm_tasks.TASKS:
        assert_close(found["answers"][task], GOLDEN["answers"][task])
        for name, value in GOLDEN["results"][task].items():
            assert_close(found["results"][task][name], value)


def test_lm_eval_chats(tiny, tmp_path, monkeypatch):
    """Chats write; what they have no logits of, lm-eval does not ask."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    tasks = lm_tasks.write_tasks(tmp_path)
    found = lm_tasks.evaluate("local-chat-completions", {
        "model": "tiny", "base_url": tiny.url + "/v1/chat/completions", "max_length": 512}, tasks, tasks=("local_writing",),
        apply_chat_template=True)
    assert_close(found["answers"]["local_writing"], GOLDEN["answers"]["local_writing"])
