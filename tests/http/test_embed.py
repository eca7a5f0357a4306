"""retro-index embed: a collection turns to another embedder while servers search it and change it."""
import json
import signal
import struct
import subprocess
import threading
import time

import pytest

from conftest import BUILD, ROOT, Server
import prometheus
from test_documents import call

OLD, NEW = (ROOT / "tests/golden/embedder" / name for name in ("bert_cls", "mpnet_mean"))
N = 600
PROBE = {"query": "note 7 about seven rivers", "k": 4, "hybrid": False, "filter": {"not": {"eq": {"kind": "later"}}}}


def index(*arguments, code=0):
    done = subprocess.run([BUILD / "retro-index", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def facts(collection):
    return json.loads(index("stats", "--json", collection).stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embed")
    (folder / "notes").mkdir()
    for i in range(N):
        (folder / f"notes/{i}.md").write_text(f"# Note {i}\n\nIt is about {i} rivers, {i * i} lakes and the {i % 9} seas.\n")
    index("build", "--out", folder / "collection", "--set", f"model.path={ROOT / 'models/retro-docs'}", "--set",
          f"retrieval.embedder={OLD}", folder / "notes")
    return folder / "collection"


@pytest.fixture()
def collection(built, tmp_path):
    index("snapshot", built, tmp_path / "collection")
    return tmp_path / "collection"


@pytest.fixture()
def serve(tmp_path):
    """Starts servers of the collection, whose configuration names no embedder; each ends well."""
    servers, config = [], tmp_path / "retro.json"
    config.write_text(json.dumps({"model": {"path": str(ROOT / "models/retro-docs")}, "server": {"port": 0}}))

    def start(collection, *sets):
        servers.append(Server(config, tmp_path, f"retrieval.collection={collection}", *sets))
        return servers[-1]

    yield start
    for server in servers:
        assert server.stop() == 0, server.log.read_text()


def probe(server):
    return [(hit["document"], hit["similarity"]) for hit in call(server, "POST", "/v1/retrieval/search", PROBE)["data"]]


def embed(collection, *more, to=NEW):
    return subprocess.Popen([BUILD / "retro-index", "embed", "--with", to, *more, collection], stderr=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def kept_vectors(collection):
    """How many vectors an embed has put on the disk so far."""
    file = collection / "embedding/unfinished.vectors"
    size = file.stat().st_size if file.exists() else 0
    dim = struct.unpack_from("<Q", file.read_bytes(), 16)[0] if size >= 32 else 0
    return (size - 32) // (32 + 4 * dim) if dim else 0


def test_searches_are_whole_and_changes_are_kept(collection, serve):
    """Two servers: what each finds is what either embedder finds, and both turn; documents that come and go meanwhile
    are those that are there."""
    servers = [serve(collection), serve(collection)]
    before, seen, over = probe(servers[0]), [], threading.Event()
    call(servers[0], "PUT", "/v1/documents/soup", {"text": "Soup needs salt and time.", "metadata": {"kind": "later"}})

    def search(server):
        while not over.is_set():
            seen.append(probe(server))

    kept = {}

    def change():
        for i in range(10 ** 6):
            if over.is_set():
                return
            text = f"Later note {i} about the number {i + 1000}."
            call(servers[i % 2], "PUT", f"/v1/documents/later-{i % 20}", {"text": text, "metadata": {"kind": "later"}})
            kept[f"later-{i % 20}"] = text
            if i % 20 == 19:
                call(servers[0], "DELETE", "/v1/documents/later-3")
                del kept["later-3"]

    threads = [threading.Thread(target=search, args=(s,)) for s in servers] + [threading.Thread(target=change)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: before in seen)
        running = embed(collection, "--load", "20")
        out, err = running.communicate(timeout=300)
        assert running.returncode == 0, err
        assert "documents came or went meanwhile" in err and out.startswith("embedded ")
        until(lambda: len(seen) > 2 and all(probe(s) != before for s in servers))
        call(servers[0], "PUT", "/v1/documents/soup", {"text": "Soup needs salt, time and leeks.", "metadata": {"kind": "later"}})
    finally:
        over.set()
        for thread in threads:
            thread.join()
    after = probe(servers[0])
    assert after == probe(servers[1]) and after != before
    assert before in seen and after in seen and all(found in (before, after) for found in seen)
    assert facts(collection)["embedder"] == str(NEW) and facts(collection)["documents"] == N + 1 + len(kept)
    for server in servers:
        for name, text in kept.items():
            assert call(server, "GET", f"/v1/documents/{name}")["text"] == text
        assert "leeks" in call(server, "GET", "/v1/documents/soup")["text"]
    # What came later has vectors of the new embedder: the same as in a server that starts now.
    query = {"query": "Later note about the number", "k": 8, "hybrid": False}
    found = call(serve(collection), "POST", "/v1/retrieval/search", query)["data"]
    assert found and found == call(servers[0], "POST", "/v1/retrieval/search", query)["data"]

    index("compact", collection)
    assert not (collection / "embedding").exists() and len(list(collection.glob("gen-*"))) == 1


def test_goes_on_after_kill(collection):
    """Texts that were embedded before are not embedded again, and the lock is free meanwhile."""
    running = embed(collection, "--load", "1")
    until(lambda: kept_vectors(collection) > 0)
    running.send_signal(signal.SIGSTOP)  # it holds what it holds
    assert "another program embeds" in index("embed", "--with", NEW, collection, code=1).stderr
    assert facts(collection)["embedder"] == str(OLD)
    running.kill()
    running.communicate()
    n = kept_vectors(collection)
    done = index("embed", "--json", "--with", NEW, collection)
    assert f"an interrupted embed has left the vectors of {n} texts" in done.stderr
    assert json.loads(done.stdout)["effect"] == "embedded" and facts(collection)["embedder"] == str(NEW)
    assert not (collection / "embedding").exists()
    index("verify", collection)
    first = index("search", "--json", collection, "seven rivers").stdout
    # The same as when it is embedded without an interruption.
    index("embed", "--with", OLD, collection)
    index("embed", "--with", NEW, collection)
    assert index("search", "--json", collection, "seven rivers").stdout == first


def test_progress(collection, serve):
    """Servers tell how far it is as long as it goes on."""
    server = serve(collection)

    def read():
        families = prometheus.read(server.request("GET", "/metrics").body.decode())
        return [list(families[name]["samples"].values()) for name in ("retro_embed_chunks_done", "retro_embed_chunks")]

    assert read() == [[], []]
    running = embed(collection, "--load", "1")
    until(lambda: read()[0])
    done, chunks = read()
    assert 0 < done[0] < chunks[0] == facts(collection)["chunks"]
    running.kill()
    running.communicate()
    index("embed", "--with", NEW, collection)
    assert read() == [[], []]


def test_leftovers(collection):
    """Those of another embedder, and of a command that ended just behind the switch, are removed and named."""
    running = embed(collection, "--load", "1", to=ROOT / "tests/golden/embedder/roberta_mean")
    until(lambda: kept_vectors(collection) > 0)
    running.send_signal(signal.SIGINT)
    assert "the next embed goes on from here" in running.communicate()[1] and running.returncode == 130
    assert "the vectors of another embedder" in index("embed", "--with", NEW, collection).stderr
    (collection / "embedding").mkdir()
    (collection / "embedding/unfinished.vectors").write_bytes(b"x" * 100)
    done = index("embed", "--with", NEW, collection)
    assert "already" in done.stderr and "left by an embed that did not end, is removed" in done.stderr
    assert done.stdout.startswith("unchanged ") and not (collection / "embedding").exists()
    assert "embed --with FOLDER DIR" in index("embed", collection, code=1).stderr
    assert "at least 4096 chunks" in index("embed", "--with", OLD, "--index", "IVF4096,Flat", collection, code=1).stderr


def test_another_embedder_is_named(collection, serve):
    """A server whose configuration names the old one searches on as before, changes nothing, and says what to do."""
    server = serve(collection, f"retrieval.embedder={OLD}")
    before = probe(server)
    index("embed", "--with", NEW, collection)
    until(lambda: "let retrieval.embedder be" in server.log.read_text())
    assert probe(server) == before
    failed = call(server, "PUT", "/v1/documents/soup", {"text": "Soup needs salt."}, expect=503)
    message = failed["error"]["message"]
    assert str(NEW) not in message and "let retrieval.embedder be a file of the server" in message and "restart" in message
    assert f"let retrieval.embedder be {NEW}" in server.log.read_text()
    assert probe(server) == before
