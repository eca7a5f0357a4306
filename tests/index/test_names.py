"""Names of documents round trip between the command line, HTTP and the disk, whatever they hold.

RETRO_SEEDS=N tries N seeds; each makes a folder of hostile names."""
import contextlib
import json
import os
import pathlib
import pty
import random
import subprocess
import sys

import pytest

from test_changes import INDEX, MODEL, run

SEEDS = int(os.environ.get("RETRO_SEEDS", "3"))
HOSTILE = ["a b", "-n", "--yes", "'", '"', "\n", "\t", "\\", "ü", "日本", "é", "%2F", "?q=1&x", "#12", "!", "$(x)", "`", "*", ";", ": ", "~", "\x7f", "…"]


def make_name(rng):
    name = "".join(rng.choice(HOSTILE + ["x", "y", "7"]) for _ in range(rng.randint(1, 6)))
    return name.lstrip(".").replace("/", "")


def make_files(folder, rng):
    """Paths below the folder, each with a text of its own."""
    names = {make_name(rng) + ".md" for _ in range(6)}
    names |= {f"one/{n}" for n in sorted(names)[:2]} | {f"two/{n}" for n in sorted(names)[:2]}
    names |= {"same/name/x.md", "other/same/name/x.md", "l" * 200 + ".md", ("d" * 60 + "/") * 3 + "deep.md"}
    for i, name in enumerate(sorted(names)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Text number {i} is about {'trains ships planes'.split()[i % 3]}, and nothing else.\n")
    return names


def listed(out):
    return {d["path"]: d for d in map(json.loads, run("list", "--json", out).stdout.splitlines())}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_round_trip(tmp_path, seed):
    rng = random.Random(seed)
    folder, out = tmp_path / "docs", tmp_path / "collection"
    names = make_files(folder, rng)
    run("build", "--out", out, *MODEL, "--base", folder, folder)
    documents = listed(out)
    assert set(documents) == names

    for name in sorted(names):
        shown = json.loads(run("show", "--json", out, "--", name).stdout)
        assert shown["path"] == name and shown["text"] == (folder / name).read_text()
        assert json.loads(run("show", "--json", out, shown["id"]).stdout)["path"] == name
    for name in rng.sample(sorted(names), 3):
        (folder / name).write_text("Changed: a text about gardens.\n")
        done = json.loads(run("add", "--json", "--base", folder, out, "--", folder / name).stdout)
        assert done["path"] == name and done["id"] == documents[name]["id"] and done["effect"] == "replaced"
    victims = rng.sample(sorted(names), 4)
    for name in victims:
        done = json.loads(run("delete", "--json", out, "--", name).stdout)
        assert done == {"effect": "deleted", "id": documents[name]["id"], "path": name}
    assert set(listed(out)) == names - set(victims)


def test_two_folders_of_one_name(tmp_path):
    out = tmp_path / "collection"
    for place in ("a", "b"):
        (tmp_path / place / "notes").mkdir(parents=True)
        (tmp_path / place / "notes" / "x.md").write_text(f"A note at {place}.\n")
    run("build", "--out", out, *MODEL, tmp_path / "a/notes")
    run("add", out, tmp_path / "b/notes")
    assert sorted(listed(out)) == ["b/notes/x.md", "notes/x.md"]
    assert "at b." in run("show", out, "b/notes/x.md").stdout and "at a." in run("show", out, tmp_path / "a/notes/x.md").stdout
    run("delete", "--yes", out, str(tmp_path / "b/notes") + "/")
    assert sorted(listed(out)) == ["notes/x.md"]


def test_names_that_are_no_utf8(tmp_path):
    """They are shown with what can be shown, found by the file, and are no second document."""
    out, folder = tmp_path / "collection", tmp_path / "docs"
    folder.mkdir()
    (folder / "plain.md").write_text("A plain one.\n")
    path = os.fsencode(folder) + b"/\xff\xfe.md"
    with open(path, "wb") as file:
        file.write(b"A note with a strange name.\n")
    run("build", "--out", out, *MODEL, folder)
    strange = [d for d in listed(out).values() if d["path"] != "docs/plain.md"]
    assert len(strange) == 1
    assert "strange name" in run("show", out, strange[0]["id"]).stdout
    assert "added" not in run("add", out, folder).stdout


def test_a_misspelt_command(tmp_path):
    done = run("serch", tmp_path, "x", code=1)
    assert "did you mean search?" in done.stderr


def test_a_misspelt_option(tmp_path):
    assert "did you mean --verbose?" in run("build", "--verbsoe", tmp_path, code=1).stderr
    assert "did you mean" not in run("build", "--nothing-like-it", tmp_path, code=1).stderr
    assert "--out needs a value" in run("build", "--out", code=1).stderr


def ask_at_a_terminal(answer, *arguments):
    """Both sides of what is said at a terminal, and the exit code."""
    try:
        process, terminal = pty.fork()
    except OSError as problem:  # a system without /dev/ptmx, as in a bare change of root
        pytest.skip(f"no terminal can be made here: {problem}")
    if process == 0:
        os.execv(INDEX, [str(INDEX), *map(str, arguments)])
    said = b""
    while b"[y/N] " not in said:
        said += os.read(terminal, 4096)
    os.write(terminal, answer + b"\n")
    with contextlib.suppress(OSError):  # a terminal whose program has ended
        while more := os.read(terminal, 4096):
            said += more
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_a_folder_is_deleted_after_a_question(tmp_path):
    """At a terminal; a script says --yes."""
    out = tmp_path / "collection"
    for i in range(12):
        path = tmp_path / f"live/n{i:02}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"Note number {i}.\n")
    run("build", "--out", out, *MODEL, "--base", tmp_path, tmp_path / "live")
    assert "--yes deletes them without asking" in run("delete", out, "live/", code=1).stderr
    said, code = ask_at_a_terminal(b"n", "delete", out, "live/")
    assert code == 1 and "nothing was deleted" in said
    assert "live/n00.md" in said and "and 2 more" in said and "delete 12 documents?" in said and len(listed(out)) == 12
    run("delete", out, "live/n03.md", "live/n04.md")
    assert len(listed(out)) == 10, "documents that are named are not asked about"
    said, code = ask_at_a_terminal(b"y", "delete", out, "live/")
    assert code == 0 and "there are no documents" in run("list", out, code=1).stderr
