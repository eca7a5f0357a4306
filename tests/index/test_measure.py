"""retro-index stats --recall: what an index finds of what exact search finds; and kinds of index that are asked for."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]
THINGS = "cat dog tree river bread stone lamp chair cloud train paper spoon clock bridge snow wheel".split()


def run(*arguments, code=0):
    done = subprocess.run([INDEX, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measure") / "docs"
    folder.mkdir()
    for i, a in enumerate(THINGS):
        for b in THINGS[:i]:
            (folder / f"{a}-{b}.txt").write_text(f"The {a} is beside the {b}.\n")
    return folder


def recall_of(out, *arguments):
    return json.loads(run("stats", "--json", "--recall", *arguments, out).stdout)["recall"]


def test_recall_of_an_inverted_file(docs, tmp_path):
    out, questions = tmp_path / "c", tmp_path / "questions.txt"
    run("build", "--out", out, "--index", "ivf", *MODEL, docs)
    stats = json.loads(run("stats", "--json", out).stdout)
    assert (stats["chunks"], stats["index"], "recall" in stats) == (120, "IVF32,Flat", False)  # 4 sqrt(120) is 44
    found = recall_of(out, "-k", 3)
    assert (found["k"], found["queries"], found["own_chunks"]) == (3, 120, True)
    assert 0.9 <= found["recall"] <= 1 and 0 < found["median_ms"] <= found["p99_ms"]

    questions.write_text("where is the cat\n\nwhat stands beside the bridge\n")
    found = recall_of(out, "--queries", questions, "-k", 2)
    assert (found["k"], found["queries"], found["own_chunks"]) == (2, 2, False)
    text = run("stats", "--recall", "-k", 2, out).stdout
    assert "recall@2" in text and "120 chunks of the collection asked" in text and "99 of 100 within" in text


def test_an_asked_kind_stays_with_compaction(docs, tmp_path):
    out, more = tmp_path / "c", tmp_path / "more.txt"
    run("build", "--out", out, "--index", "hnsw", *MODEL, docs)
    assert recall_of(out, "-k", 2)["recall"] > 0.95
    more.write_text("The kettle is on the stove.\n")
    run("add", out, more)
    run("compact", out)
    assert json.loads(run("stats", "--json", out).stdout)["index"] == "HNSW32"
    assert "kettle" in run("search", out, "kettle", "-k", "1").stdout


def test_wrong_measurements(docs, tmp_path):
    out, few, empty = tmp_path / "c", tmp_path / "few", tmp_path / "empty"
    few.mkdir()
    (few / "a.txt").write_text("One chunk.\n")
    empty.write_text("\n\n")
    run("build", "--out", out, *MODEL, few)
    assert "recall@5 needs more" in run("stats", "--recall", out, code=1).stderr
    assert "no line has a query" in run("stats", "--recall", "--queries", empty, out, code=1).stderr
    assert "--queries are for --recall" in run("stats", "--queries", empty, out, code=1).stderr
    assert "at least 16 chunks" in run("build", "--out", tmp_path / "d", "--index", "ivfsq8", *MODEL, few, code=1).stderr
