"""Texts and pictures as vectors of one space: CLIP over HTTP, against transformers
(tests/reference/make_vision_hf_golden.py)."""
import base64
import http.client
import json
import shutil
import struct
import threading
import zlib

import numpy as np
import pytest
from conftest import ROOT, Server

CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
VECTORS = json.loads((CLIP / "vectors.json").read_text())


def picture(name):
    url = "data:image/png;base64," + base64.b64encode((SEER / name).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def text(words):
    return {"type": "text", "text": words}


def start(folder, clip):
    config = folder / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(SEER), "name": "seer",
                                            "others": [{"path": str(clip), "role": "embedder", "name": "clip"}]},
                                  "server": {"port": 0, "max_context": 200}}))
    return Server(config, folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory.mktemp("clip"), CLIP)
    yield running
    assert running.stop() == 0, running.log.read_text()


def embed(server, inputs, **fields):
    reply = server.post({"model": "clip", "input": inputs, **fields}, "/v1/embeddings")
    assert reply.status == 200, reply.body
    return [np.array(item["embedding"]) for item in reply.json()["data"]]


def test_texts(server):
    for got, want in zip(embed(server, list(VECTORS["texts"])[:4]), VECTORS["texts"].values()):
        assert np.abs(got - want).max() < 1e-5


def test_pictures_and_texts_mixed(server):
    names, texts = list(VECTORS["pictures"]), list(VECTORS["texts"])[:2]
    inputs = [picture(names[0]), text(texts[0]), picture(names[1]), picture(names[2]), text(texts[1])]
    want = [VECTORS["pictures"][names[0]], VECTORS["texts"][texts[0]], VECTORS["pictures"][names[1]],
            VECTORS["pictures"][names[2]], VECTORS["texts"][texts[1]]]
    for got, expected in zip(embed(server, inputs), want):
        assert np.abs(got - expected).max() < 1e-5 and abs(np.linalg.norm(got) - 1) < 1e-5


def test_many_pictures_and_fewer_dimensions(server):
    names = list(VECTORS["pictures"]) * 4
    for got, name in zip(embed(server, [picture(n) for n in names], dimensions=8), names):
        want = np.array(VECTORS["pictures"][name][:8])
        assert np.abs(got - want / np.linalg.norm(want)).max() < 1e-5


def test_many_parts(server):
    """More pictures than lie in memory together, among texts: the vectors come in the order of the inputs."""
    names, words = list(VECTORS["pictures"]), list(VECTORS["texts"])[0]
    order = [names[i % 3] if i % 4 else None for i in range(60)]
    inputs = [picture(name) if name else text(words) for name in order]
    for name, got in zip(order, embed(server, inputs)):
        want = VECTORS["pictures"][name] if name else VECTORS["texts"][words]
        assert np.abs(got - want).max() < 1e-5


def test_others_are_answered_while_large_pictures_are_read(server):
    """Decoding 32 megapixels takes a good part of a second, in which the embedder is free."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = 5700
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    packed = zlib.compress(bytes((side + 1) * side), 1)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    large = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}
    vectors = []
    asker = threading.Thread(target=lambda: vectors.extend(embed(server, [large] * 3)))
    asker.start()
    between = 0
    while asker.is_alive():
        embed(server, ["a text"])
        between += 1
    asker.join()
    assert len(vectors) == 3 and between > 8, between


def test_clients_leave_while_pictures_are_read(server):
    body = json.dumps({"model": "clip", "input": [picture("wide.png")] * 50})
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        connection.close()
    assert len(embed(server, [picture("wide.png")])) == 1


def refuse(server, inputs, code, word):
    error = server.post({"model": "clip", "input": inputs}, "/v1/embeddings").error()
    assert error["code"] == code and word in error["message"], error


def test_refusals(server):
    refuse(server, [{"type": "image_url", "image_url": {"url": "http://example.com/a.png"}}], "unsupported_content", "no data: URL")
    refuse(server, [{"type": "audio"}], "invalid_type", "input 0")
    refuse(server, [text("a"), "b"], "invalid_type", "input 1")
    reply = server.post({"model": "clip", "input": [{"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}]},
                        "/v1/embeddings")
    assert reply.status == 400, reply.body


def test_a_folder_that_says_nothing_of_pictures(tmp_path):
    folder = shutil.copytree(CLIP, tmp_path / "clip")
    (folder / "preprocessor_config.json").unlink()
    running = start(tmp_path, folder)
    try:
        assert len(embed(running, ["A photo of a cat"])) == 1
        refuse(running, [picture("plain.png")], "unsupported_content", "reads texts")
    finally:
        assert running.stop() == 0


def test_siglip(tmp_path):
    """Its texts are canonical and filled up, and a learned query gathers its pictures."""
    folder = ROOT / "tests/golden/siglip_served"
    vectors = json.loads((folder / "vectors.json").read_text())
    texts, names = list(vectors["texts"])[:3], list(vectors["pictures"])
    running = start(tmp_path, folder)
    try:
        for got, t in zip(embed(running, texts), texts):
            assert np.abs(got - vectors["texts"][t]).max() < 1e-5, t
        for got, name in zip(embed(running, [picture(n) for n in names * 3]), names * 3):
            assert np.abs(got - vectors["pictures"][name]).max() < 1e-5, name
        mixed = embed(running, [text(texts[0]), picture(names[1]), text(texts[1])])
        assert np.abs(mixed[1] - vectors["pictures"][names[1]]).max() < 1e-5
        assert np.abs(mixed[2] - vectors["texts"][texts[1]]).max() < 1e-5
    finally:
        assert running.stop() == 0, running.log.read_text()
