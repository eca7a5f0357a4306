"""A collection after its program was ended, its writes failed, its disk was full or its power was cut, before each change
of the folder. What was acknowledged is there, nothing is half there, and the next program goes on.

RETRO_CRASH=N (1) tries N times as many states of the disk after a cut of the power, and leaves no moment out."""
import collections
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import pytest

import crash_disk as disk

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
WORKER, SHIM = BUILD / "tests/crash/worker", BUILD / "tests/crash/shim.so"
MUCH = int(os.environ.get("RETRO_CRASH", "1"))
STATES = 3 * MUCH  # of the disk, for each moment at which the power is cut
FAISS = "FAISS" in subprocess.run([BUILD / "retro-index", "--version"], capture_output=True, text=True).stdout


@pytest.fixture()
def folder():
    """In memory where there is such a place: what fsync does is simulated."""
    made = tempfile.mkdtemp(prefix="retro-crash-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield pathlib.Path(made)
    shutil.rmtree(made)


def work(root, words, fault=None, goes_on=False):
    """Runs the worker in `root` and returns its lines. goes_on: the journal does, too."""
    out, journal = root.parent / "out", root.parent / "journal"
    if not goes_on:
        journal.unlink(missing_ok=True)
    environment = {**os.environ, "LD_PRELOAD": str(SHIM), "CRASH_ROOT": str(root), "CRASH_JOURNAL": str(journal)}
    if fault:
        environment["CRASH_FAULT"] = fault
    with open(out, "wb") as f:
        done = subprocess.run([WORKER, *words], cwd=root, env=environment, stdout=f, stderr=subprocess.PIPE, timeout=30)
    assert done.returncode in (0, 1, -9), f"{words} {fault}: {done.returncode} {done.stderr.decode()}"
    return out.read_text()


def plain(*words):
    done = subprocess.run([WORKER, *map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


class Model:
    """What may be there: {id: version} states, after the lines that the worker has printed."""

    def __init__(self, start, after=None):
        self.states = {frozenset(start.items())}
        self.after = after  # what `done` without an id leads to

    @staticmethod
    def changed(state, i, version):
        rest = {k: v for k, v in state if k != i}
        return frozenset((rest | {i: version} if version else rest).items())

    def follow(self, text):
        states, trying = self.states, None
        for line in text.splitlines():
            word, *rest = line.split()
            if word == "try" and trying is not None:  # another program, after the end of the first
                states = states | self.move(states, trying)
            if word == "try":
                trying = rest
            if word not in ("done", "failed") or trying is None:
                continue
            moved = self.move(states, trying)
            states, trying = (moved if word == "done" else states | moved), None
        return states | self.move(states, trying) if trying else states

    def move(self, states, trying):
        if trying[0].isdigit():
            return {self.changed(s, int(trying[0]), int(trying[1])) for s in states}
        return {frozenset(self.after.items())} if self.after is not None else states


class Apart(Model):
    """Threads with a document each: what may be there of each of them."""

    def follow(self, text):
        start = dict(next(iter(self.states)))
        may = {i: {start.get(i, 0)} for i in range(12)}
        for line in text.splitlines():
            word, *rest = line.split()
            if word == "try" and rest[0].isdigit():
                may[int(rest[0])].add(int(rest[1]))
            if word == "done" and rest and rest[0].isdigit():
                may[int(rest[0])] = {int(rest[1])}
        return may


class Untouched(Model):
    """What is copied from."""

    def follow(self, text):
        return self.states


class Damaged(Model):
    """A log that takes no change before it is repaired."""


class Fallen(Model):
    """A collection that does not open before it is repaired."""


class Scenario:
    def __init__(self, folder, words, target, model, others=()):
        self.folder, self.words, self.target, self.model, self.others = folder, words, target, model, others
        self.base = disk.Tree(folder / "base")
        self.cases, self.counts, self.n = [], collections.Counter(), 0
        self.text = self.run("run")
        self.events = disk.read_journal(folder / "journal")
        assert "failed" not in self.text and "done" in self.text
        whole = disk.cut_power(self.base, self.events, None, 1).as_dict()
        assert whole == disk.Tree(folder / "run").as_dict(), "a change of the folder was not seen"

    def run(self, place, fault=None):
        root = self.folder / place
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.folder / "base", root)
        # A copy has other inodes: those of the base stand for them in what is simulated.
        copy = disk.Tree(root)
        self.renamed = {str(copy.folders[p][n]): what for p, d in self.base.folders.items() for n, what in d.items()
                        if what != "folder"}
        text = work(root, self.words, fault)
        self.base.inodes = dict(self.renamed)
        return text

    def add(self, kind, label, tree, text):
        """A state of the folder to be checked: a tree, or the folder as it lies there."""
        place = self.folder / f"case-{len(self.cases)}"
        if isinstance(tree, disk.Tree):
            tree.write(place)
        else:
            shutil.copytree(tree, place)
        self.cases.append((label, place, text))
        self.counts[kind] += 1

    def add_power_cuts(self, step=1):
        for k in range(0, len(self.events) + 1, step):
            printed = self.text.encode()[:self.events[k].printed].decode() if k < len(self.events) else self.text
            for state in range(STATES):
                rng = random.Random(f"{self.words} {k} {state}")
                share = (0, 0.5, 1)[state] if state < 3 else rng.random()
                tree = disk.cut_power(self.base, self.events[:k], rng, share)
                self.add("power cut", f"power cut before event {k}, state {state}", tree, printed)

    def add_faults(self, kinds=("kill", "torn", "short", "eio", "enospc", "full"), step=1):
        """Each fault at each change, as it lies there; and with the power cut afterwards."""
        last = self.events[-1].number
        writes = {e.number for e in self.events if e.kind == "write"}
        grows = writes | {e.number for e in self.events if e.kind in ("create", "mkdir", "rename")}
        for kind in kinds:
            for k in range(1, last + 1, step):
                if (kind in ("torn", "short") and k not in writes) or (kind in ("enospc", "full") and k not in grows):
                    continue
                text = self.run("run", f"{kind}:{k}")
                if kind == "short":
                    assert text == self.text
                self.add(kind, f"{kind} at {k}", self.folder / "run", text)
                if kind in ("eio", "enospc", "full"):
                    events = disk.read_journal(self.folder / "journal")
                    rng = random.Random(f"{self.words} {kind} {k}")
                    for state in range(1 + STATES // 2):
                        share = 0 if state == 0 else rng.random()
                        tree = disk.cut_power(self.base, events, rng, share)
                        self.add(f"{kind}, power cut", f"{kind} at {k}, power cut, state {state}", tree, text)

    def add_second_programs(self, step=1):
        """The program is ended, or a write or fsync of it fails; another one changes the collection; the power is cut."""
        for kind in ("kill", "eio"):
            for k in range(1, self.events[-1].number + 1, step):
                text = self.run("run", f"{kind}:{k}")
                text += work(self.folder / "run", ["change", self.target], goes_on=True)
                tree = disk.cut_power(self.base, disk.read_journal(self.folder / "journal"), None, 0)
                self.add(f"{kind}, change, power cut", f"{kind} at {k}, change, power cut", tree, text)

    def run_again(self):
        """The same once more, by a program whose writes do not fail; then what it says is there."""
        for label, place, text in self.cases[::5 if MUCH == 1 else 1]:
            again = place.parent / (place.name + "-again")
            shutil.copytree(place, again)
            text += work(again, self.words)
            assert "failed" not in text.splitlines()[-1] and "done" in text, f"{label}, again: {text}"
            yield f"{label}, again", again, text

    def check(self):
        cases = self.cases + list(self.run_again())
        for target in (self.target, *self.others):
            model = self.model if target == self.target else self.others[target]
            for at in range(0, len(cases), 200):
                self.check_some(cases[at:at + 200], target, model)
        self.n = len(cases)

    def check_some(self, cases, target, model):
        folders = [place / target for _, place, _ in cases]
        done = subprocess.run([WORKER, "check", *folders], capture_output=True, text=True, timeout=300)
        answers = done.stdout.split("folder ")[1:]
        assert len(answers) == len(cases), done.stdout[-2000:] + done.stderr[-2000:]
        for (label, _, text), answer in zip(cases, answers):
            lines = answer.splitlines()[1:]
            allowed = model.follow(text)
            said = f"{label}\n--- printed\n{text}\n--- found\n{answer}"
            if lines and lines[0].startswith("failed open") and "is not a collection" in lines[0]:
                assert frozenset() in allowed, said
                continue
            if lines[-1].startswith("failed open") and isinstance(model, Fallen) and "done" not in text:
                continue
            if lines[-1].startswith("failed on") and "verify --repair" in lines[-1] and "done" not in text:
                assert isinstance(model, Damaged), said
                continue
            assert lines[-1] == "well", said + done.stderr[-3000:]
            first, second = "\n".join(lines).split("goes on\n")
            assert "done embed" not in text or "embedder second" in first and "embedder second" in second, said
            seen = [frozenset((int(a), int(b)) for a, b in (x.split()[1:] for x in part.splitlines() if x.startswith("document")))
                    for part in (first, second)]
            if isinstance(allowed, dict):
                assert all(dict(seen[0]).get(i, 0) in may for i, may in allowed.items()), said
            else:
                assert seen[0] in allowed, said
            assert dict(seen[1]) == dict(seen[0]) | {9: 1, 10: 1}, said


START = {0: 1, 1: 1, 2: 1, 3: 1}
CHANGED = {0: 2, 1: 3, 2: 1, 3: 1, 5: 1}


def begin(folder, factory="Exact", *more):
    (folder / "base").mkdir()
    plain("build", folder / "base/c", 4, 1, factory, *more)


def report(name, s):
    print(f"{name}: {s.n} checks of {len(s.cases)} states, " + ", ".join(f"{n} {kind}" for kind, n in s.counts.items()))


def test_add_and_delete(folder):
    begin(folder)
    s = Scenario(folder, ["change", "c"], "c", Model(START))
    s.add_power_cuts()
    s.add_faults()
    s.add_second_programs()
    s.check()
    # After a write or an fsync that failed, the next change of the same program is carried out.
    failed = [text for label, _, text in s.cases if label.startswith("eio") and "failed" in text]
    assert len(failed) > 20 and not any("opened anew" in text for text in failed), failed
    report("add, delete", s)


def test_together(folder):
    """Several changes share an fsync, beside a compaction."""
    begin(folder)
    s = Scenario(folder, ["together", "c"], "c", Apart(START))
    s.add_power_cuts()
    s.add_faults(("kill", "torn", "eio", "enospc", "full"), step=3 if MUCH == 1 else 1)
    s.check()
    report("together", s)


def test_compact(folder):
    begin(folder)
    plain("change", folder / "base/c")
    s = Scenario(folder, ["compact", "c"], "c", Model(CHANGED))
    s.add_power_cuts()
    s.add_faults()
    s.add_second_programs()
    s.check()
    report("compact", s)


def test_embed(folder):
    """The collection turns to another embedder: its vectors are all of one, before and after."""
    begin(folder)
    plain("change", folder / "base/c")
    s = Scenario(folder, ["embed", "c"], "c", Model(CHANGED))
    s.add_power_cuts()
    s.add_faults(("kill", "torn", "eio", "enospc"), step=2 if MUCH == 1 else 1)
    s.add_second_programs(step=3 if MUCH == 1 else 1)
    s.check()
    report("embed", s)


def test_embed_beside_changes(folder):
    """Another program changes the collection while it is embedded, and just before the switch."""
    begin(folder)
    s = Scenario(folder, ["embed", "c", "changes"], "c", Model(START))
    assert all(f"done {x}" in s.text for x in ("7 1", "2 0", "7 2", "3 4", "2 2", "7 0"))
    s.add_power_cuts(step=3 if MUCH == 1 else 1)
    s.add_faults(("kill", "torn", "eio"), step=5 if MUCH == 1 else 1)
    s.check()
    report("embed beside changes", s)


@pytest.mark.skipif(not FAISS, reason="built without FAISS")
@pytest.mark.parametrize("index", ["Flat", "ivfsq8"])
def test_compact_faiss(folder, index):
    begin(folder, index)
    plain("change", folder / "base/c")
    s = Scenario(folder, ["compact", "c"], "c", Model(CHANGED))
    s.add_faults(("kill", "torn", "enospc"), step=4 if MUCH == 1 else 1)
    s.check()
    report("compact with FAISS", s)


def test_build(folder):
    """Into a folder that is not there, and over a collection that was changed."""
    (folder / "base").mkdir()
    built = dict.fromkeys(range(6), 2)
    s = Scenario(folder, ["build", "a/b/c", "6", "2", "Exact"], "a/b/c", Model({}, built))
    s.add_power_cuts()
    s.add_faults()
    s.check()
    report("build", s)


def test_build_again(folder):
    begin(folder)
    plain("change", folder / "base/c")
    s = Scenario(folder, ["build", "c", "6", "2", "Exact"], "c", Model(CHANGED, dict.fromkeys(range(6), 2)))
    s.add_power_cuts()
    s.add_faults()
    s.add_second_programs()
    s.check()
    report("build again", s)


def test_snapshot(folder):
    begin(folder)
    plain("change", folder / "base/c")
    s = Scenario(folder, ["copy", "c", "kept/out"], "kept/out", Model({}, CHANGED), {"c": Untouched(CHANGED)})
    s.add_power_cuts()
    s.add_faults()
    s.check()
    report("snapshot", s)


def test_restore(folder):
    begin(folder)
    plain("change", folder / "base/c")
    plain("build", folder / "base/d", 2, 3, "Exact")
    s = Scenario(folder, ["copy", "c", "d"], "d", Model({0: 3, 1: 3}, CHANGED), {"c": Untouched(CHANGED)})
    s.add_power_cuts()
    s.add_faults()
    s.add_second_programs()
    s.check()
    report("restore", s)


def test_repair(folder):
    """Of a log whose second change is damaged."""
    begin(folder)
    plain("change", folder / "base/c")
    log = folder / "base/c/gen-000001/changes.log"
    raw = bytearray(log.read_bytes())
    first, head = 32, 32
    payload = int.from_bytes(raw[first + 16:first + 24], "little")
    raw[first + head + (payload + 7) // 8 * 8 + head + 8] ^= 4
    log.write_bytes(raw)
    s = Scenario(folder, ["repair", "c"], "c", Damaged(START | {4: 1}))
    s.add_power_cuts()
    s.add_faults()
    s.check()
    report("repair", s)


def damage_and_verify(folder, factory, n, *more):
    """n folders with a flipped bit each: in the damaged ones verify fails, the others show what was there."""
    begin(folder, factory, *more)
    plain("change", folder / "base/c")
    plain("compact", folder / "base/c")
    plain("change", folder / "base/c")
    files = sorted(f for f in (folder / "base/c").rglob("*") if f.is_file() and f.stat().st_size)
    rng, cases, harmless = random.Random(7), [], set()
    for i in range(n):
        file = files[i % len(files)].relative_to(folder / "base")
        shutil.copytree(folder / "base", folder / f"flip-{i}")
        raw = bytearray((folder / f"flip-{i}" / file).read_bytes())
        at = rng.randrange(8 * len(raw))
        raw[at // 8] ^= 1 << at % 8
        (folder / f"flip-{i}" / file).write_bytes(raw)
        cases.append((file, at))
    done = subprocess.run([WORKER, "verify", *(folder / f"flip-{i}/c" for i in range(n))], capture_output=True, text=True, timeout=120)
    answers = done.stdout.split("folder ")[1:]
    assert done.returncode == 0 and len(answers) == n, done.stdout[-2000:] + done.stderr[-2000:]
    for (file, at), answer in zip(cases, answers):
        if "failed" in answer:
            continue
        found = {int(a): int(b) for a, b in (x.split()[1:] for x in answer.splitlines() if x.startswith("document"))}
        assert found == CHANGED, f"bit {at} of {file}: {answer}"
        harmless.add(file.name)
    assert harmless <= {"changes.kept", "changes.cut"}, harmless
    return cases


def test_flipped_bits(folder):
    assert len({file for file, _ in damage_and_verify(folder, "Exact", 300 * MUCH)}) == 11


def test_flipped_bits_of_pictures(folder):
    cases = damage_and_verify(folder, "Exact", 150 * MUCH, "pictures")
    assert {"pictures.f32", "pictures.chunks"} <= {file.name for file, _ in cases}


@pytest.mark.parametrize("words", [["change", "c"], ["compact", "c"], ["build", "c", "6", "2", "Exact", "pictures"]],
                         ids=lambda words: words[0])
def test_pictures(folder, words):
    """Some documents are pictures, whose vectors by an embedder of their own lie beside those of the chunks."""
    begin(folder, "Exact", "pictures")
    if words[0] != "change":
        plain("change", folder / "base/c")
    models = {"change": Model(START), "compact": Model(CHANGED), "build": Model(CHANGED, dict.fromkeys(range(6), 2))}
    s = Scenario(folder, words, "c", models[words[0]])
    s.add_faults(("kill", "torn", "eio", "full"), step=2 if MUCH == 1 else 1)
    s.check()
    report(f"pictures, {words[0]}", s)


@pytest.mark.skipif(not FAISS, reason="built without FAISS")
def test_flipped_bits_faiss(folder):
    damage_and_verify(folder, "SQ8", 200 * MUCH)


def test_fall_back(folder):
    """A damaged generation is given up for the one before, and another time for none."""
    begin(folder)
    plain("build", folder / "base/c", 6, 2, "Exact")
    text = folder / "base/c/gen-000002/documents.text"
    text.write_bytes(b"x" + text.read_bytes()[1:])
    s = Scenario(folder, ["repair", "c"], "c", Fallen(START))
    s.add_power_cuts()
    s.add_faults()
    s.check()
    report("fall back", s)


DEPS = pathlib.Path(os.environ.get("RETRO_DEPS", pathlib.Path.home() / ".cache/retro-server"))


@pytest.mark.parametrize("command", ["add", "compact", "snapshot"])
def test_retro_index(folder, command):
    """The program itself, ended before one of its writes: every line that it printed holds, and it goes on."""
    index, base = BUILD / "retro-index", folder / "base"
    base.mkdir()
    for i in range(4):
        (base / f"{i}.txt").write_text(f"Note {i} is about the number {i * i}.\n")
    settings = [x for s in (f"model.path={ROOT / 'models/retro-docs'}", f"retrieval.embedder={DEPS / 'minilm'}") for x in ("--set", s)]
    subprocess.run([index, "build", "--out", "c", *settings, "0.txt"], cwd=base, check=True, capture_output=True)
    subprocess.run([index, "add", "c", "1.txt"], cwd=base, check=True, capture_output=True)
    words = {"add": ["add", "c", "2.txt", "3.txt"], "compact": ["compact", "c"], "snapshot": ["snapshot", "c", "out"]}[command]

    def run(root, fault=None):
        out, journal = folder / "out", folder / "journal"
        journal.unlink(missing_ok=True)
        environment = {**os.environ, "LD_PRELOAD": str(SHIM), "CRASH_ROOT": str(root), "CRASH_JOURNAL": str(journal)}
        with open(out, "wb") as f:
            done = subprocess.run([index, *words], cwd=root, stdout=f, stderr=subprocess.PIPE, timeout=60,
                                  env={**environment, "CRASH_FAULT": fault} if fault else environment)
        return done.returncode, out.read_text()

    def ids(root, place):
        done = subprocess.run([index, "list", place], cwd=root, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    shutil.copytree(base, folder / "run")
    before = ids(base, "c")
    code, text = run(folder / "run")
    assert code == 0
    after, steps = ids(folder / "run", "c"), disk.read_journal(folder / "journal")[-1].number
    rng = random.Random(command)
    for k in sorted(rng.sample(range(1, steps + 1), min(steps, 3 * MUCH))):
        shutil.rmtree(folder / "run")
        shutil.copytree(base, folder / "run")
        code, text = run(folder / "run", f"kill:{k}")
        assert code == -9
        found = ids(folder / "run", "c")
        assert before | {x.split()[1] for x in text.splitlines() if x.startswith("added ")} <= found <= after
        finished = command == "snapshot" and (folder / "run/out/CURRENT").exists()
        code, text = run(folder / "run")
        assert code == (1 if finished else 0), text  # a snapshot that is there stays
        assert ids(folder / "run", "c") == after
        if command == "snapshot":
            assert ids(folder / "run", "out") == before
