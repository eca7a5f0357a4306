"""retro-index watch: the collection becomes what the folder is, whatever happens to the files."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest
from test_changes import INDEX, docs, out, run  # noqa: F401: fixtures
from test_copies import texts


class Watch:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([INDEX, "watch", *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines, self.errors = [], []
        for stream, to in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=lambda s=stream, t=to: t.extend(line.strip() for line in iter(s.readline, "")), daemon=True).start()
        self.until(lambda: "watching; Ctrl-C ends it" in self.errors)

    def until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None and time.monotonic() < end, (self.lines, self.errors)
            time.sleep(0.05)


@contextlib.contextmanager
def watch(*arguments):
    w = Watch(*arguments)
    try:
        yield w
        w.process.send_signal(signal.SIGTERM)
        assert w.process.wait(timeout=60) == 0, w.errors
    finally:
        w.process.kill()


def is_text(out, expected):
    def look():
        try:
            return texts(out) == expected
        except AssertionError:  # a document went between list and show
            return False
    return look


def test_follows_a_folder(docs, out):
    (docs / "cats.md").unlink()
    (docs / "bread.md").write_text("# Bread\n\nKnead the dough.\n")
    with watch(out, docs) as w:
        # What has happened before is carried out first.
        now = {"docs/bread.md": "# Bread\n\nKnead the dough.\n", "docs/tar.txt": (docs / "tar.txt").read_text()}
        assert texts(out) == now and sorted(x.split()[0] for x in w.lines) == ["added", "deleted"]

        sub = docs / "a/b/c"
        sub.mkdir(parents=True)
        (sub / "deep.txt").write_text("Deep under the sea there is no light.\n")
        now["docs/a/b/c/deep.txt"] = (sub / "deep.txt").read_text()
        w.until(is_text(out, now))

        # An editor writes another file and renames it.
        (docs / ".tmp").write_text("# Bread\n\nBake it until it is brown.\n")
        os.rename(docs / ".tmp", docs / "bread.md")
        now["docs/bread.md"] = "# Bread\n\nBake it until it is brown.\n"
        w.until(is_text(out, now))

        (docs / "a").rename(docs / "z")
        now["docs/z/b/c/deep.txt"] = now.pop("docs/a/b/c/deep.txt")
        w.until(is_text(out, now))
        (docs / "z/b/c/deep.txt").write_text("Deep under the sea there are fish.\n")
        now["docs/z/b/c/deep.txt"] = "Deep under the sea there are fish.\n"
        w.until(is_text(out, now))

        (docs / "z/b/c/deep.txt").unlink()
        (docs / "tar.txt").write_text("")
        del now["docs/z/b/c/deep.txt"], now["docs/tar.txt"]
        w.until(is_text(out, now))
        assert "replaced" in " ".join(w.lines)
        lines = len(w.lines)
        os.utime(docs / "bread.md")
        (docs / "notes.unknown").write_text("x")
        time.sleep(1)
        assert len(w.lines) == lines, "the same content again changes nothing"


def test_keeps_what_is_not_its_own(docs, out):
    """Documents with ids of their own or of other folders, and those of a folder that is gone for a while."""
    page = docs.parent / "ticket.txt"
    page.write_text("The printer is out of paper.\n")
    run("add", "--id", "ticket 7", out, page)
    before = texts(out)
    (docs / "new.md").write_text("# New\n\nA page.\n")
    with watch(out, docs) as w:
        assert texts(out) == before | {"docs/new.md": "# New\n\nA page.\n"}
        docs.rename(docs.parent / "away")
        time.sleep(1)
        assert len(texts(out)) == 4
        (docs.parent / "away").rename(docs)
        (docs / "new.md").unlink()
        w.until(is_text(out, before))


def test_many_at_once(docs, out):
    """More than a queue of events holds may come while it embeds."""
    with watch(out, docs) as w:
        for i in range(60):
            (docs / f"{i}.txt").write_text(f"Note {i}: {i * i}.\n")
        for i in range(0, 60, 3):
            (docs / f"{i}.txt").unlink()
        left = {f"docs/{i}.txt" for i in range(60) if i % 3} | {"docs/cats.md", "docs/tar.txt"}
        w.until(lambda: {json.loads(x)["path"] for x in run("list", "--json", out).stdout.splitlines()} == left)


def test_records_of_a_file(docs, out):
    """A row that goes from a table takes its document along, and no other."""
    rows = ["name,text", "cat,The cat sleeps on the sofa.", "dog,The dog barks at the moon.", "owl,The owl hunts at night."]
    (docs / "animals.csv").write_text("\n".join(rows) + "\n")
    with watch(out, docs) as w:
        assert sum("animals.csv#" in p for p in texts(out)) == 3
        (docs / "animals.csv").write_text("\n".join(rows[:3]) + "\n")
        w.until(lambda: sum("animals.csv#" in json.loads(x)["path"] for x in run("list", "--json", out).stdout.splitlines()) == 2)
        (docs / "animals.csv").unlink()
        w.until(lambda: len(run("list", out).stdout.split()) == 2)


def test_once(docs, out):
    """For a timer: what is new is added, what is gone is deleted, and the command ends."""
    (docs / "new.md").write_text("# New\n\nA page.\n")
    (docs / "tar.txt").unlink()
    said = run("watch", "--once", "--json", out, docs)
    assert sorted(json.loads(line)["effect"] for line in said.stdout.splitlines()) == ["added", "deleted"], said
    assert "watching" not in said.stderr
    assert run("watch", "--once", out, docs).stdout == ""


def test_a_folder_that_is_moved_away_and_back(docs, out):
    """Its files are those of before, down to inode and times, and their documents have gone meanwhile."""
    sub = docs / "sub"
    sub.mkdir()
    (sub / "ibis.txt").write_text("The ibis wades in the reeds.\n")
    with watch(out, docs) as w:
        whole = texts(out)
        sub.rename(docs.parent / "away")
        w.until(is_text(out, {path: text for path, text in whole.items() if "ibis" not in path}))
        (docs.parent / "away").rename(sub)
        w.until(is_text(out, whole))


def test_the_given_folder_goes_and_another_one_comes(docs, out):
    with watch(out, docs) as w:
        before = texts(out)
        shutil.rmtree(docs)
        w.until(lambda: any("its documents stay until it comes back" in line for line in w.errors))
        assert texts(out) == before
        docs.mkdir()
        (docs / "kudu.txt").write_text("The kudu has spiral horns.\n")
        w.until(is_text(out, {"docs/kudu.txt": "The kudu has spiral horns.\n"}))


def can_mount():
    return subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this user may not mount anything")
def test_a_file_system_that_is_not_mounted(docs, out):
    """Its folder is there, and empty. Documents stay; those of a folder that was emptied do not."""
    mounted = docs.parent / "usb"
    mounted.mkdir()
    script = """set -e
        mount -t tmpfs none "$3"
        echo "The ibis wades in the reeds." > "$3/ibis.txt"
        echo "The kudu has spiral horns." > "$3/kudu.txt"
        "$1" watch --once "$2" "$3"
        umount "$3"
        "$1" watch --once "$2" "$3"
        mount -t tmpfs none "$3"
        echo "The kudu has spiral horns." > "$3/kudu.txt"
        "$1" watch --once "$2" "$3"
        rm "$3/kudu.txt"
        "$1" watch --once "$2" "$3" """
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script, "sh", INDEX, out, mounted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["added usb/ibis.txt", "added usb/kudu.txt", "deleted usb/ibis.txt", "deleted usb/kudu.txt"]
    assert done.stderr.count("is empty, and on another file system than its documents were read from") == 1
