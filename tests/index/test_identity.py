"""A document is the file that it came from: whatever the arguments, the working directory and the history, the collection
equals the folders, nothing is lost or doubled, and no text is embedded twice.

RETRO_IDENTITY_SEEDS and RETRO_IDENTITY_STEPS try more than a test has time for."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import zipfile

import pytest

from test_changes import INDEX, MODEL

SEEDS = int(os.environ.get("RETRO_IDENTITY_SEEDS", 2))
STEPS = int(os.environ.get("RETRO_IDENTITY_STEPS", 12))
WORDS = "cat sofa rain river bread oven tar archive socket thread lock disk moon tide salt wool drum lamp".split()


def run(*arguments, cwd=None, code=0):
    done = subprocess.run([INDEX.resolve(), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300)
    # Where several are possible: links lead nowhere, or out of what was given.
    assert done.returncode in (code if isinstance(code, tuple) else (code,)), (arguments, cwd, done.stdout + done.stderr)
    return done


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def embedded(done):
    return sum(o.get("embedded", 0) for o in objects(done))


def documents(out):
    """(path, source, text) of each."""
    listed = objects(run("list", "--json", out))
    return sorted((d["path"], d.get("source", ""), json.loads(run("show", "--json", out, d["id"]).stdout)["text"]) for d in listed)


@pytest.fixture()
def two(tmp_path):
    """Two people with notes of the same names, and a collection of the first one's."""
    for who in ("alice", "bob"):
        (tmp_path / who / "notes").mkdir(parents=True)
        (tmp_path / who / "notes/keys.md").write_text(f"# Keys\n\nThe keys of {who} lie under the mat.\n")
    (tmp_path / "alice/notes/tea.md").write_text("# Tea\n\nThe tea is in the tin on the shelf.\n")
    run("build", "--out", tmp_path / "two", *MODEL, tmp_path / "alice/notes")
    return tmp_path


def paths(out):
    return {o["path"] for o in objects(run("list", "--json", out))}


def test_other_folders_of_the_same_name(two):
    out, alice, bob = two / "two", two / "alice/notes", two / "bob/notes"
    assert paths(out) == {"notes/keys.md", "notes/tea.md"}
    done = run("add", "--json", out, bob)
    assert [o["effect"] for o in objects(done)] == ["added"]
    assert paths(out) == {"notes/keys.md", "notes/tea.md", "bob/notes/keys.md"}
    assert run("watch", "--once", out, bob).stdout == ""
    assert run("watch", "--once", out, alice, bob).stdout == ""
    assert run("watch", "--once", out, "notes", "../bob/notes/.", cwd=two / "alice").stdout == ""
    (two / "link").symlink_to(bob)
    assert run("add", out, "link/", "alice/../alice/notes/keys.md", cwd=two).stdout == ""
    shutil.rmtree(bob)
    bob.mkdir()
    assert [o["effect"] for o in objects(run("watch", "--json", "--once", out, bob))] == ["deleted"]
    assert paths(out) == {"notes/keys.md", "notes/tea.md"}
    # Together from the beginning, both are told apart.
    (bob / "keys.md").write_text("# Keys\n\nBob's keys are lost.\n")
    run("build", "--out", out, *MODEL, alice, bob)
    assert paths(out) == {"alice/notes/keys.md", "bob/notes/keys.md", "notes/tea.md"}


def test_copies_and_moves_embed_nothing(two):
    out, alice = two / "two", two / "alice/notes"
    shutil.copy(alice / "tea.md", alice / "again.md")
    done = run("add", "--json", out, alice)
    assert [o["effect"] for o in objects(done)] == ["added"] and embedded(done) == 0
    run("compact", out)
    assert len(objects(run("search", "--json", out, "where is the tea", "-k", "9"))) == 2, "one text, one hit"
    assert objects(run("search", "--json", out, "where is the tea", "-k", "1"))[0]["text"].startswith("# Tea")

    (alice / "sub").mkdir()
    (alice / "tea.md").rename(alice / "sub/green.md")
    (alice / "again.md").unlink()
    done = run("watch", "--once", "--json", out, alice)
    assert sorted(o["effect"] for o in objects(done)) == ["added", "deleted", "deleted"] and embedded(done) == 0
    assert paths(out) == {"notes/keys.md", "notes/sub/green.md"}
    before = documents(out)
    (two / "alice").rename(two / "carol")
    done = run("add", "--json", out, two / "carol/notes")
    assert embedded(done) == 0 and len(before) == 2 and len(documents(out)) == 4
    run("verify", out)
    built = objects(run("build", "--json", "--out", two / "new", *MODEL, two / "carol", two / "bob"))[-1]
    shutil.copy(two / "carol/notes/keys.md", two / "bob/notes/copy.md")
    again = objects(run("build", "--json", "--out", two / "new", *MODEL, two / "carol", two / "bob"))[-1]
    assert again["chunks"] == built["chunks"] + 1 and again["embedded"] == built["embedded"] and again["copies"] == 1


def test_base(two):
    """Below --base a document is known by its path there: the folder may move, and another folder is refused."""
    out, alice, bob = two / "based", two / "alice/notes", two / "bob/notes"
    run("build", "--out", out, *MODEL, "--base", alice, alice)
    ids = {o["path"]: o["id"] for o in objects(run("list", "--json", out))}
    assert set(ids) == {"keys.md", "tea.md"}
    before = documents(out)
    done = run("add", "--base", bob, out, bob, code=1)
    assert str(alice / "keys.md") in done.stderr and str(bob / "keys.md") in done.stderr and "--replace" in done.stderr
    run("watch", "--once", "--base", bob, out, bob, code=1)
    assert documents(out) == before
    assert "does not lie below" in run("add", "--base", bob, out, alice, code=1).stderr

    (two / "alice").rename(two / "moved")
    (two / "moved/notes/tea.md").unlink()
    moved = two / "moved/notes"
    run("watch", "--once", "--base", moved, out, moved, code=1)
    done = run("watch", "--once", "--json", "--replace", "--base", moved, out, moved)
    assert sorted(o["effect"] for o in objects(done)) == ["deleted", "replaced"] and embedded(done) == 0
    assert {o["path"]: o["id"] for o in objects(run("list", "--json", out))} == {"keys.md": ids["keys.md"]}
    done = run("add", "--replace", "--base", bob, out, bob)
    assert done.stdout == "replaced keys.md\n"


def test_given_ids(two):
    out, alice, bob = two / "two", two / "alice/notes/keys.md", two / "bob/notes/keys.md"
    run("add", "--id", "keys", out, alice)
    done = run("add", "--id", "keys", out, bob, code=1)
    assert str(alice) in done.stderr and str(bob) in done.stderr and "--replace" in done.stderr
    assert "alice" in run("show", out, "keys").stdout
    assert run("add", "--id", "keys", "--replace", out, bob).stdout == "replaced keys.md\n"
    assert "bob" in run("show", out, "keys").stdout


class World:
    """Folders, a collection, and what is to be in it: for each file that was added, its documents' texts."""

    def __init__(self, folder, seed):
        self.r, self.home, self.out = random.Random(seed), folder / "home", folder / "collection"
        self.tree = self.home / "tree"
        self.dirs = [self.tree / name for name in ("a/notes", "b/notes", "b/notes/sub", "c")]
        for d in self.dirs:
            d.mkdir(parents=True)
        (self.home / "away").mkdir()
        self.known = {}  # real path: texts, as the collection has them
        self.seen = set()  # texts that were embedded and are still there
        self.log = []
        for _ in range(8):
            self.write()

    def text(self):
        return f"# {self.r.choice(WORDS)} {self.r.randrange(10 ** 6)}\n\n" + " ".join(self.r.choices(WORDS, k=12)) + ".\n"

    def files(self, below=None):
        found = {}
        for top, _, names in os.walk(below or self.tree):
            for name in names:
                path = pathlib.Path(top, name)
                if not path.is_symlink():
                    found[path.resolve()] = self.read(path)
        return found

    def read(self, path):
        if path.suffix != ".zip":
            return {"": path.read_text()}
        with zipfile.ZipFile(path) as z:
            return {f"!/{n}": z.read(n).decode() for n in z.namelist()}

    # Changes of the folders.

    def write(self):
        path = self.r.choice(self.dirs) / self.r.choice(["keys.md", "tea.md", "x.txt", "y#1.md", "box.zip"])
        if path.is_symlink():
            return
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as z:
                for name in self.r.sample(["keys.md", "one.md", "in/two.md"], self.r.randrange(1, 4)):
                    z.writestr(name, self.text())
        else:
            path.write_text(self.text())

    def pick(self):
        return self.r.choice(sorted(self.files()) or [None])

    def place(self, suffix):
        return self.r.choice(self.dirs) / (self.r.choice(["keys", "tea", "new", "x"]) + suffix)

    def copy(self):
        path = self.pick()
        to = self.place(path.suffix) if path else None
        if to and not to.exists() and not to.is_symlink():
            shutil.copy(path, to)

    def move(self):
        path = self.pick()
        to = self.place(path.suffix) if path else None
        if to and not to.exists() and not to.is_symlink():
            path.rename(to)

    def remove(self):
        path = self.pick()
        if path and len(self.files()) > 2:
            path.unlink()

    def link(self):
        path = self.pick()
        to = self.place(path.suffix) if path else None
        if to and not to.exists() and not to.is_symlink():
            to.symlink_to(os.path.relpath(path, to.parent))

    def move_folder(self):
        a, b = self.tree / "c", self.tree / "d"
        if a.exists() and not b.exists():
            a.rename(b)
            self.dirs[3] = b
        elif b.exists() and not a.exists():
            b.rename(a)
            self.dirs[3] = a

    # Commands.

    def spell(self, path):
        """The working directory, and the path as somebody may give it there."""
        cwd = self.r.choice([self.home, self.tree, *self.dirs])
        ways = [str(path), os.path.relpath(path, cwd), os.path.relpath(path, cwd) + ("/" if path.is_dir() else ""),
                str(path.parent / "." / ".." / path.parent.name / path.name)]
        if path.is_dir():
            ways += [os.path.join(os.path.relpath(path, cwd), "."), self.alias(path)]
        return cwd, self.r.choice(ways)

    def alias(self, path):
        link = self.home / "away" / f"to-{len(list((self.home / 'away').iterdir()))}"
        link.symlink_to(path)
        return str(link)

    def arguments(self):
        chosen = self.r.sample([self.tree, *self.dirs, *sorted(self.files())], self.r.randrange(1, 3))
        cwd, first = self.spell(chosen[0])
        return chosen, cwd, [first, *(str(c) for c in chosen[1:])]

    def below(self, chosen):
        now = {}
        for c in chosen:
            now |= self.files(c) if c.is_dir() else {c: self.read(c)} if c.exists() else {}
        return now

    def is_below(self, path, chosen):
        return any(c == path or (c.is_dir() and c in path.parents) for c in chosen)

    def count_embedded(self, done, now):
        """Texts that the collection had are not embedded again; each here is one chunk."""
        new = {t for texts in now.values() for t in texts.values()} - self.seen
        assert embedded(done) <= len(new), (new, done.stdout, self.log)
        self.seen |= new

    def add(self):
        chosen, cwd, given = self.arguments()
        now = self.below(chosen)
        self.log.append(("add", cwd, given))
        if not now:
            return
        done = run("add", "--json", self.out, *given, cwd=cwd, code=(0, 2))
        self.count_embedded(done, now)
        for path, texts in now.items():
            # Members that an archive has no more stay until update or watch.
            self.known[path] = self.known.get(path, {}) | texts

    def update(self):
        chosen, cwd, given = self.arguments()
        now = {p: t for p, t in self.below(chosen).items() if p in self.known}
        self.log.append(("update", cwd, given))
        if not now or len(now) < len(self.below(chosen)):
            return
        done = run("update", "--json", self.out, *given, cwd=cwd, code=(0, 2))
        self.count_embedded(done, now)
        self.known |= now

    def watch(self):
        chosen, cwd, given = self.arguments()
        now = self.below(chosen)
        self.log.append(("watch", cwd, given))
        done = run("watch", "--once", "--json", self.out, *given, cwd=cwd, code=(0, 2))
        self.count_embedded(done, now)
        self.known = {p: t for p, t in self.known.items() if not self.is_below(p, [c for c in chosen if c.exists()])} | now

    def build(self):
        cwd, given = self.spell(self.tree)
        self.log.append(("build", cwd, given))
        done = run("build", "--json", "--out", self.out, *MODEL, given, cwd=cwd, code=(0, 2))
        self.known = self.files()
        texts = {t for d in self.known.values() for t in d.values()}
        assert objects(done)[-1]["embedded"] <= len(texts)
        self.seen = texts

    def delete(self):
        listed = objects(run("list", "--json", self.out))
        if len(listed) < 4:
            return
        gone = self.r.choice(listed)
        run("delete", self.out, gone["id"])
        part = gone["path"][gone["path"].rindex(".zip") + 4:] if ".zip!" in gone["path"] else ""
        source = pathlib.Path(gone["source"])
        self.log.append(("delete", gone["path"]))
        del self.known[source][part]
        if not self.known[source]:
            del self.known[source]

    def compact(self):
        run("compact", self.out)

    def check(self):
        listed = objects(run("list", "--json", self.out))
        have = {}
        for d in listed:
            text = json.loads(run("show", "--json", self.out, d["id"]).stdout)["text"]
            have.setdefault(d["source"], []).append(text)
            assert d["source"].endswith("/" + d["path"].split(".zip!")[0] + (".zip" if ".zip!" in d["path"] else "")), d
        want = {str(p): sorted(t.values()) for p, t in self.known.items()}
        assert {s: sorted(t) for s, t in have.items()} == want, self.log
        names = [d["path"] for d in listed]
        assert len(set(names)) == len(names), names
        # What went from all documents may have to be embedded again.
        self.seen &= {t for texts in have.values() for t in texts}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_collection_equals_the_folders(tmp_path, seed):
    w = World(tmp_path, seed)
    w.build()
    w.check()
    for _ in range(STEPS):
        for _ in range(w.r.randrange(4)):
            change = w.r.choice([w.write, w.write, w.copy, w.move, w.move, w.remove, w.link, w.move_folder])
            w.log.append(change.__name__)
            change()
        w.r.choice([w.add, w.add, w.update, w.watch, w.watch, w.watch, w.delete, w.compact, w.build])()
        w.check()
    w.log.append("all")
    run("watch", "--once", w.out, w.tree, code=(0, 2))
    w.known = {p: t for p, t in w.known.items() if w.tree not in p.parents} | w.files()
    w.check()
