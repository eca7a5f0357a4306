"""Pictures in chats: the server reads files, resizes, sees and answers as transformers' pipeline does
(tests/reference/make_vision_hf_golden.py)."""
import base64
import http.client
import json
import shutil
import struct
import subprocess
import threading
import zlib

import openai
import pytest
from conftest import BUILD, ROOT, Server

FOLDER = ROOT / "tests/golden/llava_served"
CASES = json.loads((FOLDER / "answers.json").read_text())
NEXT = ROOT / "tests/golden/llava_next_served"
NEXT_CASES = json.loads((NEXT / "answers.json").read_text())
ROWS = 16  # of a picture


def data_url(path, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(path.read_bytes()).decode()


def picture(name):
    return {"type": "image_url", "image_url": {"url": data_url(FOLDER / name)}}


def content_of(parts):
    return [picture(p) if p.endswith(".png") else {"type": "text", "text": p} for p in parts]


def start(folder, model, options={}):
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(model), "name": "seer", "dtype": "f32"},
                                  "server": {"port": 0, "max_context": 400}, **options}))
    return Server(config, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("pictures"), FOLDER)
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def next_server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("next"), NEXT)
    yield running
    assert running.stop() == 0, running.log.read_text()


def ask(server, content, **fields):
    messages = content if isinstance(content, list) and "role" in content[0] else [{"role": "user", "content": content}]
    return server.client().chat.completions.create(model="seer", messages=messages, temperature=0, max_tokens=12, **fields)


def refuse(server, content, code, *words):
    reply = server.post({"messages": [{"role": "user", "content": content}]}, "/v1/chat/completions")
    error = reply.error()
    assert reply.status == 400 and error["code"] == code and all(word in error["message"] for word in words), error


def compare(server, case):
    reply = ask(server, content_of(case["parts"]), logprobs=True)
    assert reply.choices[0].message.content == case["answer"]
    logprobs = [token.logprob for token in reply.choices[0].logprobs.content]
    assert logprobs == pytest.approx(case["logprobs"][:len(logprobs)], abs=1e-4) and len(logprobs) >= len(case["answer"]) > 0
    assert reply.usage.prompt_tokens == case["prompt_tokens"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(c["parts"]))
def test_answers_are_those_of_transformers(server, case):
    compare(server, case)


@pytest.mark.parametrize("case", NEXT_CASES, ids=lambda c: " ".join(c["parts"]))
def test_lines_of_tiles(next_server, case):
    """LLaVA-NeXT: the whole picture, then its tiles line by line without what fills them up; twice, the second time
    from kept rows."""
    compare(next_server, case)
    compare(next_server, case)


def test_a_text_alone_is_a_part(server):
    case = CASES[-1]
    assert len(case["parts"]) == 1
    assert ask(server, case["parts"][0]).choices[0].message.content == case["answer"]


def test_streams_and_choices(server):
    case = CASES[0]
    events = ask(server, content_of(case["parts"]), stream=True)
    assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == case["answer"]
    reply = ask(server, content_of(case["parts"]), n=3)
    assert [choice.message.content for choice in reply.choices] == [case["answer"]] * 3


def test_rows_are_kept_by_content(server):
    """The same picture in a later turn is not read again; another one in its place is."""
    words = [{"type": "text", "text": "A rather long question about it, so that more than one block is filled. " * 3}]
    first = ask(server, [picture("wide.png"), *words])
    again = ask(server, [picture("wide.png"), *words])
    other = ask(server, [picture("tall.png"), *words])
    assert again.choices[0].message.content == first.choices[0].message.content
    cached = [r.usage.prompt_tokens_details.cached_tokens for r in (first, again, other)]
    total = first.usage.prompt_tokens
    assert cached[1] == total - 1 and cached[2] < total - 200, cached

    turns = [{"role": "user", "content": [picture("wide.png"), *words]},
             {"role": "assistant", "content": first.choices[0].message.content},
             {"role": "user", "content": [picture("plain.png"), {"type": "text", "text": "And this?"}]}]
    third = ask(server, turns)
    assert third.usage.prompt_tokens_details.cached_tokens > ROWS


def test_a_word_of_the_text_is_no_picture(server):
    """The template's word in a request is text."""
    reply = ask(server, [{"type": "text", "text": "<image>"}, picture("plain.png")])
    assert reply.usage.prompt_tokens > ROWS + len("<image>")


@pytest.mark.parametrize("url, code, words", [
    ("http://example.com/a.png", "unsupported_content", ["no data: URL", "fetches no pictures"]),
    ("https://example.com/a.png", "unsupported_content", ["no data: URL"]),
    ("file:///etc/passwd", "unsupported_content", ["no data: URL"]),
    ("data:image/png;base64,%%%%", "invalid_value", ["message 0", "base64"]),
    ("data:image/png,abc", "invalid_image", ["message 0"]),
    ("data:image/png;base64", "invalid_value", ["message 0"]),
    ("data:image/png;base64,", "invalid_image", ["message 0"]),
    ("data:image/png;base64,aGVsbG8gd29ybGQ=", "invalid_image", ["message 0"]),
])
def test_other_urls_are_refused(server, url, code, words):
    refuse(server, [{"type": "image_url", "image_url": {"url": url}}], code, *words)


def test_malformed_parts_are_refused(server):
    refuse(server, [{"type": "image_url"}], "invalid_type", "message 0")
    refuse(server, [{"type": "image_url", "image_url": {"url": 3}}], "invalid_type", "message 0")
    refuse(server, [{"type": "input_audio"}], "unsupported_content", "image_url")


def test_the_limits(server):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    url = "data:image/png;base64," + base64.b64encode(bomb).decode()
    refuse(server, [{"type": "image_url", "image_url": {"url": url}}], "invalid_image", "60000")
    header = struct.pack(">IIBBBBB", 5700, 5700, 8, 0, 0, 0, 0)  # a small file that is a large picture
    large = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(5701 * 5700))) + chunk(b"IEND", b"")
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(large).decode()}}
    refuse(server, [part] * 3, "invalid_image", "67108864 pixels together")
    refuse(server, [picture("plain.png")] * 26, "context_length_exceeded", "26 pictures of at least 16 tokens")
    refuse(server, [picture("plain.png")] * 24 + [{"type": "text", "text": "long " * 40}], "context_length_exceeded")


def gray_png(side, value):
    """A small file of a large picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    line = bytes([0]) + bytes([value]) * side
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(line) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def large_picture(value):
    url = "data:image/png;base64," + base64.b64encode(gray_png(5700, value)).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def test_others_are_answered_while_a_large_picture_is_read(server):
    """Decoding 32 megapixels takes a good part of a second, in which HTTP's thread goes on, and a stream too."""
    answers = []
    asker = threading.Thread(target=lambda: answers.append(ask(server, [large_picture(3), large_picture(200)])))
    asker.start()
    between = 0
    while asker.is_alive():
        server.health()
        between += 1
    asker.join()
    assert len(answers) == 1 and between > 10, between


def test_a_bad_picture_of_a_stream_is_a_refusal(server):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    for stream in (False, True):
        reply = server.post({"messages": [{"role": "user", "content": [part]}], "stream": stream}, "/v1/chat/completions")
        assert reply.status == 400 and reply.error()["code"] == "invalid_image"
        assert reply.headers["Content-Type"] == "application/json"


def test_clients_leave_while_pictures_are_read(server):
    """Nothing is left of them: later pictures are read."""
    body = json.dumps({"messages": [{"role": "user", "content": [large_picture(7)] * 2}], "stream": True})
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        connection.close()
    compare(server, CASES[0])


def test_passages_stand_beside_pictures(tmp_path):
    """What is found is read in the user's text, as if it were sent there."""
    running = start(tmp_path, FOLDER, {"retrieval": {"template": "{text} "}})
    try:
        given = ask(running, content_of(["wide.png", "Which one?"]), logprobs=True,
                    extra_body={"retrieval": {"neighbors": ["A cat sat there."]}})
        same = ask(running, content_of(["wide.png", "A cat sat there. Which one?"]), logprobs=True)
        assert given.choices[0].message.content == same.choices[0].message.content
        assert [t.logprob for t in given.choices[0].logprobs.content] == [t.logprob for t in same.choices[0].logprobs.content]
        assert given.usage.prompt_tokens == same.usage.prompt_tokens
    finally:
        assert running.stop() == 0


def test_two_ranks(tmp_path):
    """The tower's heads are shared by the ranks, and its rows go with the plan."""
    running = start(tmp_path, NEXT, {"parallel": {"tensor": 2, "comm": "threads"}})
    try:
        compare(running, NEXT_CASES[2])
        compare(running, NEXT_CASES[2])
    finally:
        assert running.stop() == 0


def test_the_template_of_an_older_processor(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    running = start(tmp_path, folder)
    try:
        compare(running, CASES[0])
    finally:
        assert running.stop() == 0


def test_a_processor_of_another_model_is_refused(tmp_path):
    """Tiles for a model of one picture would be other rows than it was trained with."""
    folder = shutil.copytree(FOLDER, tmp_path / "model")
    shutil.copy(NEXT / "preprocessor_config.json", folder)
    command = [BUILD / "retro-server", "--set", f"model.path={folder}", "--set", "server.port=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "does not make what the model reads" in done.stderr, done.stderr


def test_models_that_read_text_alone(tmp_path):
    from chat_model import make_chat_model
    make_chat_model(tmp_path / "script")
    (tmp_path / "retro.json").write_text(json.dumps({"model": {"path": str(tmp_path / "script")}, "server": {"port": 0}}))
    running = Server(tmp_path / "retro.json", tmp_path)
    try:
        with pytest.raises(openai.BadRequestError, match="reads no pictures"):
            running.client().chat.completions.create(
                model="script", messages=[{"role": "user", "content": [picture("plain.png")]}])
    finally:
        assert running.stop() == 0
