"""retro-index add, delete, list, show and compact on real files: what is printed is kept."""
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"
DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))
MODEL = ["--set", f"model.path={ROOT / 'models/retro-docs'}", "--set", f"retrieval.embedder={DEPS / 'minilm'}"]


def run(*arguments, code=0):
    done = subprocess.run([INDEX, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def ids(out):
    return [json.loads(line)["id"] for line in run("list", "--json", out).stdout.splitlines()]


def paths(out):
    return set(run("list", out).stdout.splitlines())


@pytest.fixture()
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "cats.md").write_text("# Cats\n\nThe cat sleeps on the warm sofa all day and purrs.\n")
    (folder / "tar.txt").write_text("To unpack an archive, run tar with the options -xf and the archive's name.\n")
    return folder


@pytest.fixture()
def out(docs, tmp_path):
    run("build", "--out", tmp_path / "collection", *MODEL, docs)
    return tmp_path / "collection"


def test_add_replace_delete(docs, out):
    first = ids(out)
    (docs / "bread.md").write_text("# Bread\n\nKnead the dough for ten minutes, then let it rise in a warm place.\n")
    done = run("add", out, docs)
    assert done.stdout == "added docs/bread.md\n"
    assert "2 documents were there already" in done.stderr
    assert ids(out)[:-1] == first
    new = ids(out)[-1]
    assert "docs/bread.md" in run("search", out, "how do I bake", "-k", "1").stdout

    (docs / "bread.md").write_text("# Bread\n\nUse a sourdough starter and a hot oven with steam.\n")
    assert run("add", out, docs).stdout == "replaced docs/bread.md\n"
    for name in (new, "docs/bread.md", docs / "bread.md"):
        assert "sourdough" in run("show", out, name).stdout
    assert "Knead" not in run("search", out, "how do I bake", "-k", "9").stdout

    assert run("delete", out, new).stdout == "deleted docs/bread.md\n"
    assert ids(out) == first
    assert "bread" not in run("search", out, "how do I bake", "-k", "9").stdout
    assert new in run("delete", out, new, code=1).stderr
    assert "no document has the name or the id" in run("show", out, new, code=1).stderr


def test_delete_by_name(docs, out):
    """A path, a folder, a file of several documents, a file on the disk and a filter name what goes; several need --yes."""
    for name in ("live/one.md", "live/deep/two.md", "lively.md"):
        (docs / name).parent.mkdir(exist_ok=True, parents=True)
        (docs / name).write_text(f"# {name}\n\nIt is about {name}.\n")
    (docs / "rows.csv").write_text("name,text\nant,It digs.\nbee,It hums.\n")
    run("add", "--meta", "team=ops", out, docs)
    assert "no document has the name" in run("delete", out, "docs/liv", code=1).stderr
    assert "no document lies below" in run("delete", out, "docs/liv/", code=1).stderr
    assert "2 documents would be deleted; --yes" in run("delete", out, "docs/live/", code=1).stderr
    assert "docs/live/one.md" in run("list", out).stdout
    gone = run("delete", "--yes", out, "docs/live/").stdout.splitlines()
    assert sorted(gone) == ["deleted docs/live/deep/two.md", "deleted docs/live/one.md"]
    run("list", out, "live/", code=1)
    assert run("delete", "--yes", out, docs / "rows.csv").stdout.count("deleted docs/rows.csv#") == 2
    assert run("delete", out, "docs/tar.txt").stdout == "deleted docs/tar.txt\n"
    assert "allows no document" in run("delete", "--yes", "--filter", '{"eq": {"team": "web"}}', out, code=1).stderr
    assert "no document has the name" in run("delete", out, "docs/cats.md", "--filter", '{"eq": {"team": "web"}}', code=1).stderr
    gone = run("delete", "--yes", "--filter", '{"eq": {"team": "ops"}}', out).stdout.splitlines()
    assert sorted(gone) == ["deleted docs/cats.md", "deleted docs/lively.md"]
    assert "needs DIR" in run("delete", out, code=1).stderr


def test_mistyped_commands(docs):
    assert "did you mean search?" in run("serch", docs, "cats", code=1).stderr
    assert "did you mean delete?" in run("help", "delte", code=1).stderr
    assert "usage: retro-index COMMAND" in run("frobnicate", code=1).stderr


def test_metadata_and_ids_of_the_caller(docs, out):
    page = docs.parent / "ticket.txt"
    page.write_text("The printer on the third floor is out of paper again.\n")
    assert run("add", "--id", "ticket 7", "--meta", "team=ops", "--meta", "priority=3", out, page).stdout == "added ticket.txt\n"
    shown = json.loads(run("show", "--json", out, "ticket 7").stdout)
    assert shown["metadata"] == {"team": "ops", "priority": 3} and shown["text"] == page.read_text()
    listed = [json.loads(line) for line in run("list", "--json", out).stdout.splitlines()]
    assert [d["id"] for d in listed][-1] == "ticket 7" and len(listed) == 3
    assert "names one document" in run("add", "--id", "x", out, docs, code=1).stderr
    assert "expected KEY=VALUE" in run("add", "--meta", "team", out, page, code=1).stderr


def test_compaction(docs, out):
    page = docs.parent / "secret.txt"
    page.write_text("The password of the safe is swordfish.\n")
    kept = ids(out)
    added = run("add", out, page).stdout.split()[1]
    run("delete", out, added)
    assert b"swordfish" in b"".join(f.read_bytes() for f in out.rglob("*") if f.is_file())
    assert "generation 2, 2 documents" in run("compact", out).stdout
    assert b"swordfish" not in b"".join(f.read_bytes() for f in out.rglob("*") if f.is_file())
    assert ids(out) == kept
    stats = json.loads(run("stats", "--json", out).stdout)
    assert stats["generation"] == 2 and stats["documents"] == 2 and stats["changes"] == 0
    run("verify", out)


def test_one_program_changes_at_a_time(docs, out):
    """Beside a program that holds the lock, a change waits, and says after ten seconds why it gives up."""
    import fcntl

    with open(out / "LOCK") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("delete", out, ids(out)[0], code=1)
    assert "another program is changing this collection" in done.stderr
    run("delete", out, ids(out)[0])


def test_bad_documents_do_not_stop_the_others(docs, out):
    (docs / "empty.txt").write_text("")
    (docs / "good.txt").write_text("Rivers carry water from the mountains to the sea.\n")
    done = run("add", out, docs, code=2)
    assert done.stdout.count("added") == 1 and "empty.txt" in done.stderr


def test_interrupted(docs, out):
    """Every line that was printed is kept."""
    for i in range(200):
        (docs / f"{i}.txt").write_text(f"Note {i} is about the number {i * i}.\n" * 20)
    process = subprocess.Popen([INDEX, "add", out, docs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and "what was printed is kept" in errors
    printed = {line.split()[1] for line in [*lines, *rest.splitlines()]}
    assert printed <= paths(out) and len(ids(out)) == len(printed) + 2
