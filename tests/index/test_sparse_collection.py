"""Collections whose embedder has sparse weights: built, searched, changed, compacted, copied and turned to another embedder.
What a search says of sparse weights is what the weights of query and chunks give."""
import json
import pathlib
import resource
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/embedder"))
import sparse_folder  # noqa: E402
from sparse_folder import BUILD, GOLDEN, multiply, weigh  # noqa: E402

WORDS = "open file read word list process copy small model quick brown fox jumps lazy dog returns zero error choice agree".split()


def index(*arguments, code=0):
    done = subprocess.run([BUILD / "retro-index", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def facts(collection):
    return json.loads(index("stats", "--json", collection).stdout)


def search(collection, query, *more):
    out = index("search", "--json", "--explain", "-k", 30, *more, collection, query).stdout
    return [json.loads(line) for line in out.splitlines()]


def note(i):
    words = [WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(3 + i % 6)]
    return f"{' '.join(words)} {i}.\n"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return sparse_folder.make(tmp_path_factory.mktemp("embedder") / "xlm_sparse")


def options(embedder):
    return ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={embedder}"]


@pytest.fixture(scope="module")
def built(embedder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "notes").mkdir()
    for i in range(25):
        (folder / f"notes/{i}.txt").write_text(note(i))
    index("build", "--out", folder / "collection", "--context", 0, *options(embedder), folder / "notes")
    return folder / "collection"


@pytest.fixture()
def collection(built, tmp_path):
    index("snapshot", built, tmp_path / "collection")
    return tmp_path / "collection"


def check(collection, embedder, query="open the small file"):
    """The shares of the best score, of all hits."""
    hits = search(collection, query)
    assert len(hits) > 10
    own = weigh(embedder, [query])[0]
    scores = [multiply(own, row) for row in weigh(embedder, [hit["text"] for hit in hits], "--document")]
    best = max(scores)
    assert best > 0
    for hit, score in zip(hits, scores):
        worth = hit["worth"]
        assert worth["sparse"] == pytest.approx(score / best, abs=1e-5) and worth["sparse_weight"] == pytest.approx(0.3)
        assert worth["total"] == pytest.approx(worth["vectors"] + worth["words_weight"] * worth["words"] + 5 * worth["exact"]
                                               + 2 * worth["told"] + 0.3 * worth["sparse"], abs=1e-4)
    assert [hit["worth"]["total"] for hit in hits] == sorted((hit["worth"]["total"] for hit in hits), reverse=True)
    index("verify", collection)
    return hits


def test_built(built, embedder):
    manifest = json.loads((next(built.glob("gen-*")) / "MANIFEST").read_text())
    assert manifest["sparse"] is True and "chunks.sparse" in manifest["files"]
    assert not list(built.glob("gen-*/*.tmp"))
    weights = [len(row) for row in weigh(embedder, [note(i) for i in range(25)])]
    assert facts(built)["sparse_weights"] == sum(weights) > 0
    assert f"sparse        {sum(weights)} weights" in index("stats", built).stdout
    check(built, embedder)
    assert "x sparse" in index("search", "--explain", built, "open the small file").stdout


def test_vectors_alone(built):
    """Without words there is one list, as without sparse weights."""
    assert all("worth" not in hit for hit in search(built, "open the small file", "--set", "retrieval.hybrid=false"))


def test_changes_and_compaction(collection, embedder, tmp_path):
    (tmp_path / "more").mkdir()
    for i in range(30, 40):
        (tmp_path / f"more/{i}.txt").write_text(note(i))
    index("add", collection, tmp_path / "more")
    first = check(collection, embedder)
    assert any(hit["path"].endswith("33.txt") for hit in search(collection, note(33)))
    index("compact", collection)
    again = check(collection, embedder)
    assert {hit["path"]: hit["worth"]["sparse"] for hit in first} == {hit["path"]: hit["worth"]["sparse"] for hit in again}
    index("delete", collection, first[0]["path"])
    assert first[0]["path"] not in {hit["path"] for hit in check(collection, embedder)}
    index("compact", collection)
    check(collection, embedder)


def test_copies(built, embedder, tmp_path):
    index("copy", built, tmp_path / "copy")
    left, right = (search(c, "open the small file") for c in (built, tmp_path / "copy"))
    assert [(h["path"], h["worth"]) for h in left] == [(h["path"], h["worth"]) for h in right]
    assert facts(tmp_path / "copy")["sparse_weights"] == facts(built)["sparse_weights"]
    check(tmp_path / "copy", embedder)


def test_turns_there_and_back(collection, embedder):
    """To an embedder without sparse weights, and back."""
    plain = GOLDEN / "xlm_cls"
    index("embed", "--with", plain, collection)
    assert "sparse_weights" not in facts(collection) and not list(collection.glob(f"gen-{facts(collection)['generation']:06d}/chunks.sparse"))
    assert all("sparse" not in hit["worth"] for hit in search(collection, "open the small file"))
    index("embed", "--with", embedder, collection)
    check(collection, embedder)


def small_files():
    """No file of a program may be larger: its writes fail then."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_build_that_failed_keeps_them(embedder, tmp_path):
    """Texts that were embedded before have their sparse weights, too: the collection is the same, byte for byte."""
    (tmp_path / "notes").mkdir()
    for i in range(60):
        (tmp_path / f"notes/{i}.txt").write_text("".join(note(i + j) for j in range(20)))
    command = ["build", "--chunk-length", 8, *options(embedder), "--out"]
    index(*command, tmp_path / "whole", tmp_path / "notes")
    out = tmp_path / "failed"
    failed = subprocess.run([BUILD / "retro-index", *map(str, command), out, tmp_path / "notes"], capture_output=True,
                            text=True, preexec_fn=small_files)
    assert failed.returncode == 1 and "File too large" in failed.stderr
    kept = (out / "unfinished.vectors").read_bytes()
    assert len(kept) > 60000
    # Of the last record a weight is damaged: it is made again.
    (out / "unfinished.vectors").write_bytes(kept[:-2] + bytes([kept[-2] ^ 1]) + kept[-1:])
    assert "going on" in index(*command, out, tmp_path / "notes").stderr
    assert not (out / "unfinished.vectors").exists()
    for name in ("chunks.sparse", "vectors.faiss"):
        left, right = (next(folder.glob(f"gen-*/{name}")).read_bytes() for folder in (out, tmp_path / "whole"))
        assert left == right


def test_a_damaged_file_is_refused(collection):
    file = next(collection.glob("gen-*/chunks.sparse"))
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)
    assert "chunks.sparse" in index("search", collection, "open", code=1).stderr


def test_without_a_head_nothing_changes(tmp_path):
    (tmp_path / "notes").mkdir()
    for i in range(10):
        (tmp_path / f"notes/{i}.txt").write_text(note(i))
    index("build", "--out", tmp_path / "c", *options(GOLDEN / "xlm_cls"), tmp_path / "notes")
    assert "sparse" not in json.loads((next((tmp_path / "c").glob("gen-*")) / "MANIFEST").read_text())
    assert all("sparse" not in hit.get("worth", {}) for hit in search(tmp_path / "c", "open the small file"))
