"""A model with a vision tower reads the pictures that a search finds for its prompt, each in the place of its passage: the
answer is that to a client who sends the same pictures and captions."""
import base64
import http.client
import json
import shutil
import struct
import subprocess
import zlib

import pytest
from conftest import BUILD, ROOT, Server

CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
QWEN = ROOT / "tests/golden/qwen_vl_served"
QWEN_3 = ROOT / "tests/golden/qwen3_vl_served"
QWEN_35 = ROOT / "tests/golden/qwen3_5_served"
GEMMA = ROOT / "tests/golden/gemma3_served"
MISTRAL = ROOT / "tests/golden/mistral3_served"
ROWS = 16  # of a picture


def data_url(data):
    return "data:image/png;base64," + base64.b64encode(data).decode()


def picture(name):
    return {"type": "image_url", "image_url": {"url": data_url((SEER / name).read_bytes())}}


def text(words):
    return {"type": "text", "text": words}


def make_collection(folder, files, options={}, model=SEER):
    config, collection = folder / "retro.json", folder / "collection"
    retrieval = {"embedder": str(CLIP), "collection": str(collection), "template": "{text} ", "per_document": 1, "k": 1}
    config.write_text(json.dumps({"model": {"path": str(model), "name": "seer", "dtype": "f32"},
                                  "retrieval": {**retrieval, **options}, "server": {"port": 0, "max_context": 400}}))
    command = [BUILD / "retro-index", "build", "--pictures", "--out", collection, "--config", config, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return config


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("found")
    running = Server(make_collection(folder, [SEER / "wide.png", SEER / "tall.png"]), folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def ask(server, content, **fields):
    messages = content if isinstance(content, list) and "role" in content[0] else [{"role": "user", "content": content}]
    reply = server.post({"messages": messages, "temperature": 0, "max_tokens": 8, "logprobs": True, **fields},
                        "/v1/chat/completions")
    assert reply.status == 200, reply.body
    return reply.json()


def sent(server, content):
    """What a client sends itself."""
    return ask(server, content, retrieval={"enabled": False})


def logprobs(reply):
    return [token["logprob"] for token in reply["choices"][0]["logprobs"]["content"]]


def sources(reply):
    return [source for chunk in reply["retrieval"] for source in chunk["neighbors"]]


def same(found, other):
    assert found["choices"][0]["message"]["content"] == other["choices"][0]["message"]["content"]
    assert logprobs(found) == pytest.approx(logprobs(other), abs=1e-5)
    assert found["usage"]["prompt_tokens"] == other["usage"]["prompt_tokens"]


def test_as_if_it_were_sent(server):
    found = ask(server, "What is wide?", retrieval={"k": 1})
    [source] = sources(found)
    name = source["text"]
    assert name in ("wide", "tall") and source["picture_read"] is True and "picture_problem" not in source
    assert server.request("GET", source["picture"]).body == (SEER / f"{name}.png").read_bytes()
    same(found, sent(server, [picture(f"{name}.png"), text(f"{name} What is wide?")]))
    captions = ask(server, "What is wide?", retrieval={"neighbors": [name]})
    assert found["usage"]["prompt_tokens"] > captions["usage"]["prompt_tokens"] + ROWS - 1


def test_between_the_pictures_of_the_conversation(server):
    """Each picture's rows stand where the template has it: before the found one's those of earlier turns."""
    turns = [{"role": "user", "content": [picture("plain.png"), text("And this?")]},
             {"role": "assistant", "content": "Plain."},
             {"role": "user", "content": "What is tall?"}]
    found = ask(server, turns, retrieval={"k": 2})
    first, second = (source["text"] for source in sources(found))
    assert all(source["picture_read"] for source in sources(found))
    turns[-1] = {"role": "user", "content": [picture(f"{first}.png"), picture(f"{second}.png"), text("x")]}
    assert sent(server, turns)["usage"]["prompt_tokens"] > 3 * ROWS
    alone = ask(server, turns[:2] + [{"role": "user", "content": "What is tall?"}], retrieval={"k": 1})
    turns[-1] = {"role": "user", "content": [picture(f"{first}.png"), text(f"{first} What is tall?")]}
    same(alone, sent(server, turns))


def test_rows_are_kept_by_content(server):
    """The same found picture is not read again; and a conversation that has the picture itself takes its rows over."""
    words = "Which of them is it that I saw on the long way home? " * 4
    first, again = (ask(server, words, retrieval={"k": 1}) for _ in range(2))
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == first["usage"]["prompt_tokens"] - 1
    name = sources(first)[0]["text"]
    other = sent(server, [picture(f"{name}.png"), text(f"{name} {words}")])
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == first["usage"]["prompt_tokens"] - 1
    same(first, other)


def test_citations_name_it(server):
    found = ask(server, "What is wide?", retrieval={"k": 2}, max_tokens=40,
                guided_regex=r"see \[2\]\.")
    [citation] = found["citations"]
    assert citation["number"] == 2 and citation["document"] == sources(found)[1]["document"]


def test_streams_and_other_passages_later(server):
    """Passages that are sought again bring their pictures."""
    for stream in (False, True):
        reply = server.post({"messages": [{"role": "user", "content": "What is wide?"}], "max_tokens": 10, "stream": stream,
                             "temperature": 0, "ignore_eos": True, "retrieval": {"k": 1, "every": 4}}, "/v1/chat/completions")
        assert reply.status == 200, reply.body
        events = [line[6:] for line in reply.body.decode().split("\n") if line.startswith("data: {")] or [reply.body]
        found = [source for event in events for source in sources({"retrieval": json.loads(event).get("retrieval", [])})]
        assert len(found) == 3 and all(source["picture_read"] for source in found), found


@pytest.mark.parametrize("model", [QWEN, QWEN_3, QWEN_35, MISTRAL], ids=["qwen2.5", "qwen3", "qwen3.5", "mistral3"])
def test_rows_are_placed_by_their_grid(model, tmp_path):
    """Qwen2.5-VL and Qwen3-VL: what stands behind a found picture has other positions than without it, also when it is another one
    by and by. Mistral 3: a found picture has tokens behind its lines, too."""
    running = Server(make_collection(tmp_path, [SEER / "wide.png", SEER / "tall.png"], model=model), tmp_path)
    try:
        turns = [{"role": "user", "content": [picture("plain.png"), text("And this?")]},
                 {"role": "assistant", "content": "Plain."}, {"role": "user", "content": "What is tall?"}]
        found = ask(running, turns, retrieval={"k": 1})
        [source] = sources(found)
        assert source["picture_read"] is True
        turns[-1] = {"role": "user", "content": [picture(f"{source['text']}.png"), text(f"{source['text']} What is tall?")]}
        same(found, sent(running, turns))
        later = ask(running, "What is wide?", max_tokens=12, retrieval={"k": 1, "every": 4}, ignore_eos=True)
        answer, names = later["choices"][0]["message"]["content"], [source["text"] for source in sources(later)]
        assert len(answer) == 12 and len(names) == 3 and all(source["picture_read"] for source in sources(later))
        for i, name in enumerate(names):
            turns = [{"role": "user", "content": [picture(f"{name}.png"), text(f"{name} What is wide?")]}]
            turns += [{"role": "assistant", "content": answer[:4 * i]}] if i else []
            part = ask(running, turns, retrieval={"enabled": False}, max_tokens=4, ignore_eos=True,
                       add_generation_prompt=i == 0, continue_final_message=i > 0)
            assert logprobs(part) == pytest.approx(logprobs(later)[4 * i:4 * i + 4], abs=1e-5), (i, names)
    finally:
        assert running.stop() == 0


@pytest.mark.parametrize("kept", [0, 64])
def test_rows_that_see_each_other(tmp_path, kept):
    """Gemma 3: found pictures stand in the processor's words, and are read whole, also when it is another one by and by,
    with rows of earlier prompts and without."""
    config = make_collection(tmp_path, [SEER / "wide.png", SEER / "tall.png"], model=GEMMA)
    options = json.loads(config.read_text())
    options["server"] |= {"prefix_cache_mb": kept, "max_step_tokens": ROWS + 3}
    config.write_text(json.dumps(options))
    running = Server(config, tmp_path)
    try:
        found = ask(running, "What is tall?", retrieval={"k": 1})
        [source] = sources(found)
        assert source["picture_read"] is True
        same(found, sent(running, [picture(f"{source['text']}.png"), text(f"{source['text']} What is tall?")]))
        later = ask(running, "What is wide?", max_tokens=12, retrieval={"k": 1, "every": 4}, ignore_eos=True)
        names = [source["text"] for source in sources(later)]
        assert len(names) == 3 and all(source["picture_read"] for source in sources(later))
        turns = [{"role": "user", "content": [picture(f"{names[0]}.png"), text(f"{names[0]} What is wide?")]}]
        part = ask(running, turns, retrieval={"enabled": False}, max_tokens=4, ignore_eos=True)
        assert logprobs(part) == pytest.approx(logprobs(later)[:4], abs=1e-5)
    finally:
        assert running.stop() == 0


def test_before_a_completion(server):
    reply = server.post({"prompt": "What is wide?", "max_tokens": 4, "retrieval": {"k": 1}}, "/v1/completions")
    assert reply.status == 200 and sources(reply.json())[0]["picture_read"], reply.body
    assert reply.json()["usage"]["prompt_tokens"] > ROWS


def test_no_more_than_the_option_and_the_context_hold(tmp_path):
    files = [SEER / "wide.png", SEER / "tall.png", SEER / "plain.png"]
    running = Server(make_collection(tmp_path, files, {"k": 3}), tmp_path)
    try:
        found = sources(ask(running, "What is wide?"))
        assert [source["picture_read"] for source in found] == [True, True, False]
        assert "retrieval.prompt_pictures" in found[2]["picture_problem"] and "2 found pictures" in found[2]["picture_problem"]
        most = 400 - running.post({"content": "What is wide?"}, "/tokenize").json()["tokens"].__len__() - 40
        crowded = ask(running, "What is wide?", max_tokens=most, retrieval={"k": 1})
        [source] = sources(crowded)
        assert source["picture_read"] is True or "no room" in source["picture_problem"]
        crowded = ask(running, "What is wide?", max_tokens=most + 15, retrieval={"k": 1}, ignore_eos=True)
        [source] = sources(crowded)
        assert source["picture_read"] is False and "no room for its 16 rows" in source["picture_problem"]
    finally:
        assert running.stop() == 0


def test_without_a_length_the_answer_leaves_room(server):
    """An answer that may be as long as the context leaves room for passages and pictures."""
    messages = [{"role": "user", "content": "What is wide?"}]
    reply = server.post({"messages": messages, "stop": ["e", "a"], "retrieval": {"k": 1}}, "/v1/chat/completions")
    assert reply.status == 200 and sources(reply.json())[0]["picture_read"], reply.body


def gray_png(side):
    """A small file of a large picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packed = zlib.compress(bytes((side + 1) * side), 1)
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_a_picture_that_the_model_cannot_read(server):
    """The embedder takes larger pictures than the model does: the caption stands alone, and the source says why."""
    body = {"id": "huge", "text": data_url(gray_png(5800)) + "\n\nhuge", "metadata": {"size": "huge"}}
    assert server.post(body, "/v1/documents").status == 200
    found = ask(server, "What is huge?", retrieval={"k": 1, "filter": {"eq": {"size": "huge"}}})
    [source] = sources(found)
    assert source["picture_read"] is False and "5800 x 5800 pixels" in source["picture_problem"], source
    assert source["text"] == "huge" and server.request("GET", source["picture"]).status == 200
    same(found, sent(server, "huge What is huge?"))
    assert server.request("DELETE", "/v1/documents/huge").status == 200


def test_clients_leave_while_found_pictures_are_read(server):
    """Nothing is left of them: later questions are answered."""
    body = {"id": "large", "text": data_url(gray_png(5000)) + "\n\nlarge", "metadata": {"size": "large"}}
    assert server.post(body, "/v1/documents").status == 200
    question = {"messages": [{"role": "user", "content": "What is large?"}], "max_tokens": 4,
                "retrieval": {"k": 1, "filter": {"eq": {"size": "large"}}}}
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/chat/completions", json.dumps(question), {"Content-Type": "application/json"})
        connection.close()
    [source] = sources(ask(server, "What is wide?", retrieval={"k": 1}))
    assert source["picture_read"]
    assert server.request("DELETE", "/v1/documents/large").status == 200


def test_a_model_that_reads_text_alone(tmp_path):
    """It reads captions, and nothing is told of pictures that it does not see."""
    from chat_model import make_chat_model
    make_chat_model(tmp_path / "script")
    config = make_collection(tmp_path, [SEER / "wide.png"])
    settings = json.loads(config.read_text())
    settings["model"] = {"path": str(tmp_path / "script"), "name": "script"}
    config.write_text(json.dumps(settings))
    running = Server(config, tmp_path)
    try:
        [source] = sources(ask(running, "What is wide?"))
        assert source["text"] == "wide" and "picture" in source and "picture_read" not in source
    finally:
        assert running.stop() == 0


def test_a_template_that_has_no_place_for_it(tmp_path):
    folder = shutil.copytree(SEER, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}")
    config = make_collection(tmp_path, [SEER / "wide.png"])
    settings = json.loads(config.read_text())
    settings["model"]["path"] = str(folder)
    config.write_text(json.dumps(settings))
    running = Server(config, tmp_path)
    try:
        [source] = sources(ask(running, "What is wide?"))
        assert source["picture_read"] is False and "chat template" in source["picture_problem"]
    finally:
        assert running.stop() == 0


def rewrites(server):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines
               if line.startswith(("retro_questions_rewritten_total{", "retro_questions_not_rewritten_total{")))


def test_a_refused_conversation_with_pictures_asks_for_no_rewrite(tmp_path):
    server = Server(make_collection(tmp_path, [SEER / "wide.png"], {"query": "rewritten"}), tmp_path)
    earlier = [{"role": "user", "content": "What is wide?"}, {"role": "assistant", "content": "One picture."}]
    messages = [*earlier, {"role": "user", "content": [picture("tall.png"), text("And the other one?")]}]
    reply = server.post({"messages": messages, "max_tokens": 5000}, "/v1/chat/completions")
    assert reply.status == 400 and reply.error()["code"] == "context_length_exceeded", reply.body
    broken = {"type": "image_url", "image_url": {"url": data_url(b"\x89PNG\r\n\x1a\n no picture")}}
    messages[-1]["content"][0] = broken
    reply = server.post({"messages": messages, "max_tokens": 8}, "/v1/chat/completions")
    assert reply.status == 400 and reply.error()["code"] == "invalid_image", reply.body
    assert rewrites(server) == 0
    messages[-1]["content"][0] = picture("tall.png")
    [entry] = ask(server, messages)["retrieval"]
    assert ("query" in entry) != ("query_problem" in entry) and rewrites(server) == 1
    assert server.stop() == 0, server.log.read_text()
