"""What a disk holds after the power is cut: the folder as it was, and of the changes since (a journal of shim.c) all that
was synced, with a random part of the rest. A change of a file is on the disk after an fsync of the file, a name after one
of its folder. After an fsync that failed nobody may count on what came before it."""
import os
import pathlib

SECTOR = 512  # what a disk writes as a whole


class Event:
    def __init__(self, number, printed, kind, words, data):
        self.number, self.printed, self.kind, self.words, self.data = number, printed, kind, words, data


def read_journal(path):
    events, raw, at = [], path.read_bytes() if path.exists() else b"", 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        number, printed, kind, *words = raw[at:end].decode().split(" ")
        at, data = end + 1, b""
        if kind == "write":
            size = int(words[2])
            data = raw[at:at + size]
            at += size + 1
        events.append(Event(int(number), int(printed), kind, words, data))
    return events


def parent(path):
    return path.rsplit("/", 1)[0] if "/" in path else "."


def name(path):
    return path.rsplit("/", 1)[-1]


class Tree:
    """Folders by path, each with its names; files by what they are, whatever they are called."""

    def __init__(self, root):
        self.folders, self.files, self.inodes = {}, {}, {}
        for folder, names, files in os.walk(root):
            place = os.path.relpath(folder, root)
            self.folders[place] = {n: "folder" for n in names}
            for n in files:
                path = pathlib.Path(folder, n)
                inode = path.stat().st_ino
                self.folders[place][n] = inode
                self.files[inode] = path.read_bytes()
                self.inodes[str(inode)] = inode

    def copy(self):
        other = object.__new__(Tree)
        other.folders = {k: dict(v) for k, v in self.folders.items()}
        other.files = {k: bytearray(v) for k, v in self.files.items()}
        other.inodes = dict(self.inodes)
        return other

    def write(self, root):
        """Makes the folder that the names lead to."""
        def make(place, target):
            target.mkdir()
            for n, what in self.folders.get(place, {}).items():
                if what == "folder":
                    make(n if place == "." else f"{place}/{n}", target / n)
                else:
                    (target / n).write_bytes(self.files[what])
        make(".", root)

    def as_dict(self):
        found = {}

        def look(place):
            for n, what in self.folders.get(place, {}).items():
                path = n if place == "." else f"{place}/{n}"
                found[path] = None if what == "folder" else bytes(self.files[what])
                if what == "folder":
                    look(path)
        look(".")
        return found


def find_synced(events):
    """For each change whether a later fsync covers it."""
    synced, waiting = [False] * len(events), {}
    for i, e in enumerate(events):
        if e.kind in ("write", "cut"):
            waiting.setdefault(("file", e.words[0]), []).append(i)
        elif e.kind == "create":
            # Another file may have had that inode.
            waiting.pop(("file", e.words[0]), None)
            waiting.setdefault(("folder", parent(e.words[1])), []).append(i)
        elif e.kind in ("mkdir", "unlink", "rmdir"):
            waiting.setdefault(("folder", parent(e.words[0])), []).append(i)
        elif e.kind == "rename":
            waiting.setdefault(("folder", parent(e.words[1])), []).append(i)
        else:
            what = ("file", e.words[0]) if e.kind.endswith("-file") else ("folder", e.words[1])
            for j in waiting.pop(what, []):
                synced[j] = e.kind.startswith("sync")
    return synced


def put(tree, e, data, at):
    content = tree.files[tree.inodes[e.words[0]]]
    if len(content) < at + len(data):
        content.extend(bytes(at + len(data) - len(content)))
    content[at:at + len(data)] = data


def tear(tree, e, rng):
    """Some sectors of a write, and perhaps its length."""
    at, end = int(e.words[1]), int(e.words[1]) + len(e.data)
    if rng.random() < 0.5:
        put(tree, e, b"", end)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        if rng.random() < 0.5:
            put(tree, e, e.data[at - int(e.words[1]):stop - int(e.words[1])], at)
        at = stop


def move(by_path, old, new):
    for path in [p for p in by_path if p == old or p.startswith(old + "/")]:
        by_path[new + path[len(old):]] = by_path.pop(path)


def apply(tree, e, index):
    if e.kind == "write":
        put(tree, e, e.data, int(e.words[1]))
    elif e.kind == "cut":
        content = tree.files[tree.inodes[e.words[0]]]
        size = int(e.words[1])
        del content[size:]
        content.extend(bytes(size - len(content)))
    elif e.kind == "create":
        tree.folders.setdefault(parent(e.words[1]), {})[name(e.words[1])] = ("new", index)
    elif e.kind == "mkdir":
        tree.folders.setdefault(parent(e.words[0]), {})[name(e.words[0])] = "folder"
        tree.folders.setdefault(e.words[0], {})
    elif e.kind in ("unlink", "rmdir"):
        tree.folders.get(parent(e.words[0]), {}).pop(name(e.words[0]), None)
    elif e.kind == "rename":
        tree.folders.setdefault(parent(e.words[1]), {})[name(e.words[1])] = e.target
        old = tree.folders.get(parent(e.words[0]), {})
        if old.get(name(e.words[0])) == e.target:
            del old[name(e.words[0])]
        if e.target == "folder":
            move(tree.folders, e.words[0], e.words[1])


def cut_power(base, events, rng, share):
    """The tree after the events, where `share` of what was not synced has come to the disk: 0 .. 1."""
    synced = find_synced(events)
    tree = base.copy()
    names = {f"{p}/{n}" if p != "." else n: what for p, d in base.folders.items() for n, what in d.items()}
    for i, e in enumerate(events):
        if e.kind == "create":
            tree.inodes[e.words[0]] = ("new", i)
            tree.files[("new", i)] = bytearray()
            names[e.words[1]] = ("new", i)
        if e.kind == "rename":
            e.target = names[e.words[0]]
            move(names, e.words[0], e.words[1])
        if e.kind in ("unlink", "rmdir"):
            names.pop(e.words[0], None)
        if e.kind == "mkdir":
            names[e.words[0]] = "folder"
        if synced[i] or share == 1 or (share > 0 and rng.random() < share):
            apply(tree, e, i)
        elif e.kind == "write" and share > 0:
            tear(tree, e, rng)
    return tree
