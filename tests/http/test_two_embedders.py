"""Passages by an embedder of texts and pictures by CLIP in one collection: one list of hits, from the command line, over
HTTP and in a prompt."""
import base64
import json
import os
import pathlib
import subprocess

import pytest
from conftest import BUILD, ROOT, Server

DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
CLIP = ROOT / "tests/golden/clip_served"
SEER = ROOT / "tests/golden/llava_served"
PICTURES = ("wide.png", "tall.png")
INDEX = BUILD / "retro-index"


def url_of(name):
    return "data:image/png;base64," + base64.b64encode((SEER / name).read_bytes()).decode()


def run(*words, code=0):
    done = subprocess.run([INDEX, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def lines(*words):
    return [json.loads(line) for line in run(*words).splitlines()]


def write_config(folder, **retrieval):
    config = folder / "retro.json"
    settings = {"embedder": str(DEPS / "minilm"), "template": "{text} ", "hybrid": False, **retrieval}
    config.write_text(json.dumps({"model": {"path": str(SEER), "name": "seer", "dtype": "f32"}, "retrieval": settings,
                                  "server": {"port": 0, "max_context": 400}}))
    return config


def build(folder):
    """A picture and two texts; another picture comes into the log."""
    (folder / "harbour.txt").write_text("The harbour lies at the mouth of the river.")
    (folder / "bread.txt").write_text("Knead the dough for ten minutes and let it rise.")
    config, collection = write_config(folder), folder / "collection"
    run("build", "--out", collection, "--config", config, "--picture-embedder", CLIP, SEER / "wide.png",
        folder / "harbour.txt", folder / "bread.txt")
    run("add", "--pictures", collection, SEER / "tall.png")
    return collection


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    running = Server(write_config(folder, collection=str(build(folder))), folder)
    yield running
    assert running.stop() == 0, running.log.read_text()


def search(server, query, **fields):
    reply = server.post({"query": query, **fields}, "/v1/retrieval/search")
    assert reply.status == 200, reply.body
    return reply.json()["data"]


def by_picture(server, name, **fields):
    reply = server.post({"image": url_of(name), **fields}, "/v1/retrieval/search/picture")
    assert reply.status == 200, reply.body
    return reply.json()["data"]


def names(hits):
    return [hit["document"] for hit in hits]


def test_one_list(server):
    """Reciprocal ranks of both lists: the best passage, then pictures, which are found as captions, too."""
    found = search(server, "Where does the ship reach the sea?", k=4)
    alone = search(server, "Where does the ship reach the sea?", k=4, pictures=False)
    assert [hit["by"] for hit in alone] == [["passages"]] * 4 and names(alone)[0] == "harbour.txt"
    assert {hit["document"]: hit["by"] for hit in found} == {
        "harbour.txt": ["passages"], "bread.txt": ["passages"], **dict.fromkeys(PICTURES, ["passages", "pictures"])}
    assert [n for n in names(found) if n.endswith("txt")] == [n for n in names(alone) if n.endswith("txt")]
    worth = {name: 1 / (11 + rank) for rank, name in enumerate(names(alone))}
    pictures = {name: [worth[name] + 1 / 11, worth[name] + 1 / 12] for name in PICTURES}
    orders = [sorted(worth, key=lambda n: -(worth | {PICTURES[i]: pictures[PICTURES[i]][0],
                                                     PICTURES[1 - i]: pictures[PICTURES[1 - i]][1]})[n]) for i in (0, 1)]
    assert names(found) in orders


def test_floor_in_each_list(server):
    """What is too far away among the pictures may be near enough among the passages."""
    found = search(server, "tall", k=4, min_similarity=0.9)
    assert names(found) == ["tall.png"] and found[0]["by"] in (["passages"], ["passages", "pictures"])
    assert found[0]["text"] == "tall" and "picture" in found[0]


def test_by_picture(server):
    for name in PICTURES:
        found = by_picture(server, name, k=4)
        assert [hit["by"] for hit in found] == [["pictures"]] * 2 and set(names(found)) == set(PICTURES)
        assert names(found)[0] == name and found[0]["similarity"] == pytest.approx(1, abs=1e-5)
        assert server.request("GET", found[0]["picture"]).body == (SEER / name).read_bytes()


def test_put_and_delete(server):
    text = url_of("plain.png") + "\n\nNothing but sky above the plain"
    assert server.post({"id": "plain", "text": text, "metadata": {"kind": "sky"}}, "/v1/documents").status == 200
    assert names(by_picture(server, "plain.png", k=1)) == ["plain"]
    found = search(server, "sky above a plain", k=1, filter={"eq": {"kind": "sky"}})
    assert found[0]["by"] == ["passages", "pictures"] and found[0]["text"] == "Nothing but sky above the plain"
    assert names(search(server, "sky above a plain", k=1, hybrid=True)) == ["plain"]
    assert server.request("DELETE", "/v1/documents/plain").status == 200
    assert "plain" not in names(by_picture(server, "plain.png", k=5)) + names(search(server, "sky above a plain", k=9))


def ask(server, content, **fields):
    reply = server.post({"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8, **fields},
                        "/v1/chat/completions")
    assert reply.status == 200, reply.body
    return reply.json()


def test_a_model_reads_both(server):
    """A found picture is seen, in the place of its caption, as if the client had sent it."""
    found = ask(server, "What is tall?", retrieval={"k": 1})
    [source] = found["retrieval"][0]["neighbors"]
    name = source["document"]
    assert name in PICTURES and source["by"] == ["passages", "pictures"]
    assert source["picture_read"] is True and "picture_problem" not in source
    sent = ask(server, [{"type": "image_url", "image_url": {"url": url_of(name)}},
                        {"type": "text", "text": f"{source['text']} What is tall?"}], retrieval={"enabled": False})
    assert found["choices"][0]["message"]["content"] == sent["choices"][0]["message"]["content"]
    assert found["usage"]["prompt_tokens"] == sent["usage"]["prompt_tokens"]
    without = ask(server, "Where is the harbour?", retrieval={"k": 2, "pictures": False})
    assert [s["by"] for s in without["retrieval"][0]["neighbors"]] == [["passages"]] * 2


def test_vectors_of_both(server):
    """Either embedder answers by its name; the first is meant by none."""
    def embed(**body):
        reply = server.post(body, "/v1/embeddings")
        assert reply.status == 200, reply.body
        return [e["embedding"] for e in reply.json()["data"]]

    roles = {m["id"]: m["meta"]["role"] for m in server.request("GET", "/v1/models").json()["data"]}
    assert roles == {"seer": "decoder", "minilm": "embedder", "clip_served": "embedder"}
    assert len(embed(input="a tall one")[0]) == len(embed(input="a tall one", model="minilm")[0]) == 384
    [text] = embed(input="a tall one", model="clip_served")
    [seen] = embed(input=[{"type": "image_url", "image_url": {"url": url_of("tall.png")}}], model="clip_served")
    assert len(text) == len(seen) == 20
    cosine = sum(a * b for a, b in zip(text, seen))
    found = search(server, "a tall one", k=4, filter={"eq": {"path": "tall.png"}}, min_similarity=-1)
    own = search(server, "a tall one", k=4, filter={"eq": {"path": "tall.png"}}, pictures=False)
    assert found[0]["by"] == ["passages", "pictures"]
    assert found[0]["similarity"] == pytest.approx(own[0]["similarity"], abs=1e-5)  # of equal ranks the passages' counts
    for floor, lists in ((cosine - 1e-3, ["passages", "pictures"]), (cosine + 1e-3, ["passages"])):
        assert {hit["document"]: hit["by"] for hit in search(server, "a tall one", k=4, min_similarity=floor)}["tall.png"] == lists


def test_refusals(server):
    for value in (1, "no", []):
        reply = server.post({"query": "x", "pictures": value}, "/v1/retrieval/search")
        assert reply.status == 400 and "pictures" in reply.error()["message"], reply.body


def test_command_line(tmp_path):
    collection = build(tmp_path)
    found = lines("search", "--json", "-k", 4, collection, "a tall one")
    assert {"tall.png": ["passages", "words", "pictures"], "harbour.txt": ["passages"]}.items() <= {
        hit["path"]: hit["by"] for hit in found}.items()
    assert "by passages, words, pictures" in run("search", "-k", 4, collection, "a tall one")
    alone = lines("search", "--json", "--set", "retrieval.pictures=false", "--set", "retrieval.hybrid=false", "-k", 4, collection, "a tall one")
    assert [hit["by"] for hit in alone] == [["passages"]] * 4
    [like] = lines("search", "--json", "--by-picture", "-k", 1, collection, SEER / "tall.png")
    assert like["path"] == "tall.png" and like["similarity"] == pytest.approx(1, abs=1e-5)

    [stats] = lines("stats", "--json", collection)
    assert stats["pictures"] == {"count": 2, "dim": 20, "index": stats["pictures"]["index"], "embedder": str(CLIP)}
    assert "pictures      2, vectors of 20 numbers" in run("stats", collection)
    [compacted] = lines("compact", "--json", collection)
    assert compacted["documents"] == 4
    run("verify", collection)
    assert lines("search", "--json", "-k", 4, collection, "a tall one")[0]["path"] == found[0]["path"]
    run("snapshot", collection, tmp_path / "snapshot")
    run("copy", collection, tmp_path / "copy")
    run("copy", tmp_path / "snapshot", tmp_path / "copy")
    for place in ("snapshot", "copy"):
        [again] = lines("search", "--json", "--by-picture", "-k", 1, tmp_path / place, SEER / "wide.png")
        assert again["path"] == "wide.png"
    for name in ("wide", "tall"):
        [document] = [d["id"] for d in lines("list", "--json", collection) if d["path"] == f"{name}.png"]
        run("delete", collection, document)
    assert lines("search", "--json", "--by-picture", collection, SEER / "wide.png") == []
    run("compact", collection)
    assert not list(collection.glob("gen-*/pictures.*"))
    run("verify", collection)


def test_refused_commands(tmp_path):
    """Each says what is wrong, and with which option."""
    collection, config = build(tmp_path), tmp_path / "retro.json"
    minilm = DEPS / "minilm"
    said = run("build", "--out", tmp_path / "x", "--config", config, "--picture-embedder", minilm, SEER / "wide.png", code=1)
    assert "reads texts alone" in said and "retrieval.picture_embedder" in said
    said = run("build", "--out", "milvus://127.0.0.1:1/x", "--config", config, "--picture-embedder", CLIP, SEER / "wide.png",
               code=1)
    assert "one embedder" in said
    run("build", "--out", tmp_path / "texts", "--config", config, tmp_path / "bread.txt")
    said = run("search", "--set", f"retrieval.picture_embedder={CLIP}", tmp_path / "texts", "dough", code=1)
    assert "without an embedder for its pictures alone" in said
    assert "another embedder" in run("copy", collection, tmp_path / "texts", code=1)
    done = subprocess.run([BUILD / "retro-server", "--check", "--config", config, "--set",
                           f"retrieval.collection={tmp_path / 'texts'}", "--set", f"retrieval.picture_embedder={CLIP}"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "without an embedder for its pictures alone" in done.stdout + done.stderr
