"""retro-index update, snapshot, restore: what is copied is whole, and what was there stays until it is replaced."""
import json
import shutil
import signal
import subprocess

import pytest

from test_changes import INDEX, MODEL, docs, ids, out, paths, run  # noqa: F401: fixtures


def texts(folder):
    listed = [json.loads(line) for line in run("list", "--json", folder).stdout.splitlines()]
    return {d["path"]: run("show", folder, d["id"]).stdout for d in listed}


def test_update(docs, out):
    (docs / "cats.md").write_text("# Cats\n\nThe cat wants its supper now.\n")
    (docs / "new.md").write_text("# New\n\nNobody has seen this page before.\n")
    done = run("update", out, docs, code=2)
    assert done.stdout.startswith("replaced ") and done.stdout.count("\n") == 1
    assert "new.md: it is not in the collection" in done.stderr and len(ids(out)) == 2
    assert "supper" in texts(out)["docs/cats.md"]
    assert run("update", out, docs / "cats.md").stdout == ""  # however it is given, it is the same file
    cats = next(json.loads(x)["id"] for x in run("list", "--json", out, "cats").stdout.splitlines())
    assert "--replace" in run("update", "--id", cats, out, docs / "new.md", code=1).stderr
    assert run("update", "--replace", "--id", cats, out, docs / "new.md").stdout == "replaced new.md\n"


def test_update_of_records(docs, out):
    """A table becomes what it is now: rows that went, came and changed; a file that is damaged keeps its documents."""
    table, rows = docs / "animals.csv", ["name,text", "cat,It sleeps.", "dog,It barks.", "owl,It hunts at night."]
    table.write_text("\n".join(rows) + "\n")
    other = docs.parent / "plants.csv"
    other.write_text("name,text\noak,It grows.\nelm,It grows, too.\n")
    run("add", out, docs, other)
    run("add", "--id", "own", out, other)
    before = texts(out)
    assert len(before) == 2 + 3 + 2 and len(ids(out)) == 9

    table.write_text("\n".join([rows[0], "ant,It digs.", *rows[2:3]]) + "\n")
    done = run("update", out, docs)
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == ["deleted", "replaced", "replaced"]
    assert {p: t for p, t in texts(out).items() if "animals" in p} == {
        "docs/animals.csv#2": "name: ant\ntext: It digs.\n", "docs/animals.csv#3": "name: dog\ntext: It barks.\n"}
    table.write_text("\n".join(rows + ["bee,It hums."]) + "\n")
    assert run("update", out, docs).stdout.count("added") == 2 and len(ids(out)) == 10

    other.write_text("name,text\noak,It grows.\n")
    assert run("update", "--id", "own", out, other).stdout == "replaced plants.csv#2\ndeleted plants.csv#3\n"
    assert run("update", out, other).stdout.count("deleted") == 1
    kept = ids(out)
    table.write_bytes(b"name,text\n\0\n")
    assert "binary" in run("update", out, docs, code=2).stderr and ids(out) == kept


@pytest.mark.parametrize("place", ["copy", "new/copy", "../notes/copy", "link/copy"])
def test_no_snapshot_within_the_collection(out, tmp_path, place):
    """Its folder is the collection's: what else lies there is swept, and would be in the next copy."""
    folder = out.rename(tmp_path / "notes")
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    target = tmp_path / place if place.startswith("link") else folder / place
    done = run("snapshot", folder, target, code=1)
    assert "lies in the folder of the collection" in done.stderr and sorted(folder.rglob("*")) == before
    assert run("snapshot", folder, tmp_path / "notes-copy").stdout.startswith("snapshot ")


def test_snapshot_and_restore(docs, out, tmp_path):
    (docs / "bread.md").write_text("# Bread\n\nKnead the dough for ten minutes.\n")
    run("add", out, docs)
    before = texts(out)
    kept = tmp_path / "backup/monday"
    assert "3 documents" in run("snapshot", out, kept).stdout
    assert texts(kept) == before
    assert "holds a collection already" in run("snapshot", out, kept, code=1).stderr
    assert "are one folder" in run("restore", out, out, code=1).stderr

    run("delete", out, *ids(out)[:2])
    run("compact", out)
    assert len(ids(out)) == 1
    said = json.loads(run("restore", "--json", kept, out).stdout)
    assert said["effect"] == "restored" and said["documents"] == 3 and said["generation"] == 3
    assert texts(out) == before
    assert "Bread" in run("search", out, "how do I bake", "-k", "1").stdout
    # And into a folder of its own, from where the collection is gone.
    shutil.rmtree(out)
    run("restore", kept, out)
    assert texts(out) == before


def test_damaged_snapshot_is_not_restored(docs, out, tmp_path):
    kept = tmp_path / "kept"
    run("snapshot", out, kept)
    text = next(kept.glob("gen-*/documents.text"))
    raw = bytearray(text.read_bytes())
    raw[5] ^= 1
    text.write_bytes(raw)
    before = texts(out)
    assert "checksum" in run("restore", kept, out, code=1).stderr
    assert texts(out) == before
    assert "checksum" in run("snapshot", kept, tmp_path / "again", code=1).stderr
    assert "not a collection" in run("list", tmp_path / "again", code=1).stderr


def test_snapshots_beside_a_writer(docs, out, tmp_path):
    """Each snapshot holds what was printed before it began."""
    for i in range(60):
        (docs / f"{i}.txt").write_text(f"Note {i} is about the number {i * i}.\n" * 9)
    process = subprocess.Popen([INDEX, "add", out, docs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    printed = []
    for i in range(2):
        printed += [process.stdout.readline().split()[1] for _ in range(4)]
        run("snapshot", out, tmp_path / f"kept-{i}")
        assert set(printed) <= paths(tmp_path / f"kept-{i}")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def test_falls_back_where_it_is_asked(docs, out):
    before = texts(out)
    (docs / "new.md").write_text("# New\n\nA page that the second build has.\n")
    run("build", "--out", out, *MODEL, docs)
    vectors = next(out.glob("gen-000002/vectors.*"))
    raw = bytearray(vectors.read_bytes())
    raw[-9] ^= 16
    vectors.write_bytes(raw)
    for command in ("verify", "list"):
        assert "checksum" in run(command, out, code=1).stderr
    said = run("verify", "--repair", out).stdout
    assert "generation 1 is in use now" in said and "generation 2 is put aside" in said
    assert texts(out) == before and (out / "gen-000002.damaged" / vectors.name).exists()
    run("add", out, docs)
    raw = bytearray((out / "CURRENT").read_bytes())
    raw[3] ^= 1
    (out / "CURRENT").write_bytes(raw)
    run("verify", "--repair", out)
    assert len(texts(out)) == 3


def test_help_and_json(out):
    """Every command has examples, which name commands and options that there are; --json prints an object a line."""
    commands = [line.split()[0] for line in run("help").stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    assert {"add", "update", "delete", "list", "snapshot", "restore", "watch", "verify"} <= set(commands)
    for command in commands:
        said = run(command, "--help").stdout
        examples = said.split("examples:\n")[1].splitlines()
        assert examples and all(x.split()[:2] == ["retro-index", command] for x in examples)
        for option in {w for x in examples for w in x.split() if w.startswith("--")}:
            assert f"  {option} " in said
    hits = [json.loads(x) for x in run("search", "--json", out, "a pet that naps", "-k", "2").stdout.splitlines()]
    assert [h["rank"] for h in hits] == [1, 2] and hits[0]["path"] == "docs/cats.md" and "sofa" in hits[0]["text"]
    assert json.loads(run("verify", "--json", out).stdout)["whole"] is True
    assert json.loads(run("compact", "--json", out).stdout)["effect"] == "compacted"
    for line in run("list", "--json", out).stdout.splitlines() + run("stats", "--json", out).stdout.splitlines():
        json.loads(line)
