"""Pictures of a collection over HTTP: found by a picture and by words, shown, put and deleted."""
import base64
import json
import subprocess
import urllib.parse

import pytest
from conftest import BUILD, ROOT, Server

CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
PICTURES = ("wide.png", "tall.png")


def url_of(name):
    return "data:image/png;base64," + base64.b64encode((SEER / name).read_bytes()).decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    config, collection = folder / "retro.json", folder / "collection"
    (folder / "harbour.txt").write_text("The harbour lies at the mouth of the river.")
    config.write_text(json.dumps({"model": {"path": str(SEER), "name": "seer"},
                                  "retrieval": {"embedder": str(CLIP), "collection": str(collection)},
                                  "server": {"port": 0, "max_context": 400}}))
    command = [BUILD / "retro-index", "build", "--pictures", "--out", collection, "--config", config,
               *(SEER / name for name in PICTURES), folder / "harbour.txt"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    running = Server(config, folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def search(server, image, **fields):
    reply = server.post({"image": image, **fields}, "/v1/retrieval/search/picture")
    assert reply.status == 200, reply.body
    return reply.json()["data"]


def test_by_a_picture(server):
    for name in PICTURES:
        found = search(server, url_of(name), k=3)
        assert [len(found), found[0]["document"]] == [3, name] and found[0]["similarity"] == pytest.approx(1, abs=1e-5)
        shown = server.request("GET", found[0]["picture"])
        assert shown.status == 200 and shown.body == (SEER / name).read_bytes()
        assert shown.headers["Content-Type"] == "image/png" and shown.headers["X-Content-Type-Options"] == "nosniff"
        assert shown.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


def test_by_words(server):
    reply = server.post({"query": "a river", "k": 5}, "/v1/retrieval/search").json()["data"]
    assert {hit["document"]: "picture" in hit for hit in reply} == {"harbour.txt": False, "wide.png": True, "tall.png": True}
    assert {hit["text"] for hit in reply if "picture" in hit} == {"wide", "tall"}


def test_a_source_of_an_answer(server):
    """Passages of a model that reads text are captions, and tell where the picture is."""
    reply = server.post({"messages": [{"role": "user", "content": "What is wide?"}], "max_tokens": 4,
                         "retrieval": {"enabled": True, "k": 3}}, "/v1/chat/completions")
    assert reply.status == 200, reply.body
    sources = [n for chunk in reply.json()["retrieval"] for n in chunk["neighbors"]]
    assert sum("picture" in source for source in sources) == 2
    assert all("base64" not in source["text"] for source in sources)


def test_put_over_http(server):
    text = url_of("plain.png") + "\n\nA plain: nothing but sky"
    reply = server.post({"id": "plain/of sky?", "text": text, "metadata": {"kind": "sky"}}, "/v1/documents")
    assert reply.status == 200 and reply.json()["effect"] == "added", reply.body
    found = search(server, url_of("plain.png"), k=1, filter={"eq": {"kind": "sky"}})
    assert found[0]["text"] == "A plain: nothing but sky"
    assert found[0]["picture"] == "/v1/pictures/" + urllib.parse.quote("plain/of sky?", safe="")
    assert server.request("GET", found[0]["picture"]).body == (SEER / "plain.png").read_bytes()
    assert server.request("DELETE", "/v1/documents/" + urllib.parse.quote("plain/of sky?", safe="")).status == 200
    assert server.request("GET", found[0]["picture"]).status == 404


@pytest.mark.parametrize("body, code", [
    ({}, "missing_parameter"),
    ({"image": 7}, "invalid_type"),
    ({"image": "http://example.com/a.png"}, "invalid_type"),
    ({"image": "data:image/png;base64,%%"}, "invalid_value"),
    ({"image": "data:image/png;base64,aGVsbG8="}, "invalid_value"),
    ({"image": "data:image/png;base64,"}, "missing_parameter"),
    ({"image": "data:image/png;base64,aGVsbG8=", "query": "x"}, "unknown_parameter"),
])
def test_refusals(server, body, code):
    reply = server.post(body, "/v1/retrieval/search/picture")
    assert reply.status == 400 and reply.error()["code"] == code, reply.body


def test_no_picture(server):
    found = server.post({"query": "harbour", "k": 5}, "/v1/retrieval/search").json()["data"]
    harbour = server.request("GET", "/v1/documents").json()["data"]
    name = next(d["id"] for d in harbour if d["path"] == "harbour.txt")
    assert found and server.request("GET", "/v1/pictures/" + name).status == 404
    assert server.request("GET", "/v1/pictures/nobody").status == 404
    reply = server.post({"text": "data:image/png;base64,aGVsbG8=\n\nno picture"}, "/v1/documents")
    assert reply.status == 400, reply.body
