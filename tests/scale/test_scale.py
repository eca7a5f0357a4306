"""The program that measures large collections (scale.c), over a small one: it makes, searches, changes, compacts, turns and
exports it, and says what it is to say."""
import os
import pathlib
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("RETRO_BUILD", "build") / "tests/scale/scale"
CHUNKS = "2000"
SUBJECT_CHUNKS = 41  # scale.h


def scale(command, folder):
    done = subprocess.run([PROGRAM, command, folder, CHUNKS, ROOT / "README.md"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: float(line[1]) for line in lines if "." in line[0] or line[0] in ("open", "compact")}


def test_small_collection(tmp_path):
    folder = tmp_path / "collection"
    assert scale("make", folder)["build.commit"] > 0
    found = scale("measure", folder)
    assert found["recall.10"] == 1  # exact search up to 100 000 chunks
    assert found["search.hybrid.p50"] > 0 and found["change.p50"] > 0 and found["compact"] > 0
    assert (folder / "gen-000002").is_dir()
    turned = scale("turn", folder)
    assert turned["turn.later"] == 20 and turned["turn.locked"] > 0


def test_search_changes_nothing(tmp_path):
    scale("make", tmp_path / "collection")
    before = sorted(p.name for p in (tmp_path / "collection").rglob("*"))
    found = scale("search", tmp_path / "collection")
    assert found["search.words.p50"] > 0 and found["recall.10"] == 1 and "change.p50" not in found
    assert sorted(p.name for p in (tmp_path / "collection").rglob("*")) == before


def test_exported_vectors_are_those_that_are_searched(tmp_path):
    scale("export", tmp_path / "export")
    texts, queries = ((tmp_path / "export" / f"{name}.txt").read_text().splitlines() for name in ("texts", "queries"))
    vectors, asked = (np.fromfile(tmp_path / "export" / f"{name}.f32", np.float32).reshape(-1, 384) for name in ("vectors", "queries"))
    assert len(texts) == len(vectors) == int(CHUNKS) and len(queries) == len(asked) == 500
    assert all(len(text.split()) >= 20 for text in texts) and all(len(query.split()) == 7 for query in queries)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    subjects = (vectors @ asked[:100].T).argmax(0) // SUBJECT_CHUNKS
    documents = np.arange(100) * 7919 % (int(CHUNKS) // 10)
    assert (subjects == documents * 10 // SUBJECT_CHUNKS).mean() > 0.9


def test_wrong_words(tmp_path):
    done = subprocess.run([PROGRAM, "shrink", tmp_path, CHUNKS, ROOT / "README.md"], capture_output=True, text=True)
    assert done.returncode == 2 and "make|measure|search|turn|export" in done.stderr
