#!/usr/bin/env python3
"""tests/reading/measure_hostile.py [NAME...]: seconds and memory of `retro-index extract` on files that attack their readers, the slowest
first, what it said, and whether a process or a file was left behind. docs/results/reading.md has the figures."""
import io
import os
import pathlib
import re
import sys
import tempfile
import threading
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.modules.setdefault("layouts", __import__("layouts"))
import hostile  # noqa: E402
import scan_files  # noqa: E402
from workbooks import xlsx  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-index"


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def nested_zips(depth=4, wide=10):
    inner = zipped([("zeros.txt", b"0" * (50 << 20))])
    for _ in range(depth):
        inner = zipped([(f"{i}.zip", inner) for i in range(wide)])
    return inner


def sheet_bomb():
    """A sheet of 800 MB of cells, which packs to 2 MB."""
    small = xlsx([{"name": "Sheet", "rows": [["a", "b"], [1, 2]]}])
    cell = b"<c><v>1</v></c>" * 1000
    with zipfile.ZipFile(io.BytesIO(small)) as book:
        parts = [(name, book.read(name)) for name in book.namelist()]
    return zipped([(name, data.replace(b"<sheetData>", b"<sheetData>" + (b"<row>" + cell + b"</row>") * 53000) if "worksheets/" in name else data)
                   for name, data in parts])


def laughs():
    names = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    return f'<!DOCTYPE x [<!ENTITY a0 "ha">{names}]><x>&a9;</x>'.encode()


FILES = {
    "locked.pdf": hostile.locked, "forms.pdf": lambda: hostile.forms()[0], "bomb.pdf": hostile.bomb, "tree.pdf": hostile.many_pages,
    "huge.pdf": hostile.huge, "cut.pdf": hostile.cut,
    "zips.zip": nested_zips,
    "members.zip": lambda: zipped([(f"{i}.txt", b"x") for i in range(100000)]),
    "zeros.zip": lambda: zipped([("zeros.txt", b"0" * (1 << 30))]),
    "sheet.xlsx": sheet_bomb,
    "bomb.tif": lambda: scan_files.tiff_head(60000, 60000, 8, 1 << 31),
    "ring.tif": scan_files.tiff_ring,
    "white.png": lambda: scan_files.png_of_white(30000, 30000, rows=200),
    "deep.html": lambda: b"<div>" * 1000000 + b"words",
    "tables.html": lambda: b"<table><tr><td>" * 100000 + b"words",
    "line.html": lambda: b"<p>" + b"word " * (12 << 20),
    "line.txt": lambda: b"word " * (12 << 20),
    "line.csv": lambda: b"a,b\n" + b"word," * (12 << 20),
    "laughs.xml": laughs,
    "deep.ipynb": lambda: b"[" * 10000000,
    "deep.rtf": lambda: b"{\\rtf1 " + b"{" * 10000000,
    "parts.eml": lambda: b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (i, i) for i in range(50000)) + b"\nwords",
}


def processes(session):
    """Those of the session: (number, seconds of a core, MiB at most)."""
    tick, found = os.sysconf("SC_CLK_TCK"), []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            peak = re.search(r"VmHWM:\s*(\d+)", (stat.parent / "status").read_text())
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append((stat.parent.name, (int(fields[11]) + int(fields[12])) / tick, int(peak[1]) >> 10 if peak else 0))
    return found


class Watch(threading.Thread):
    """Looks at the processes of a session again and again: parsers are no children whose use wait() tells."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.cpu, self.mib, self.ended = session, {}, 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.02):
            for number, cpu, mib in processes(self.session):
                self.cpu[number] = cpu
                self.mib = max(self.mib, mib)


def run(path, folder):
    read, write = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ["TMPDIR"] = str(folder)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.dup2(write, 2)
        os.close(read)
        os.execv(INDEX, [INDEX, "extract", path])
    os.close(write)
    watch = Watch(child)
    watch.start()
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - began
    watch.ended.set()
    watch.join()
    until = time.monotonic() + 10
    while processes(child) and time.monotonic() < until:
        time.sleep(0.1)
    lines = [line for line in said.replace(str(path), path.name).splitlines() if not line.startswith("reading:")]
    return {"name": path.name, "seconds": seconds, "cpu": sum(watch.cpu.values()), "mib": watch.mib,
            "code": os.waitstatus_to_exitcode(status), "said": lines[-1][:150] if lines else "is read", "left": [number for number, _, _ in processes(child)] + os.listdir(folder)}


def main():
    names = sys.argv[1:] or list(FILES)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path, empty = pathlib.Path(folder) / name, pathlib.Path(folder) / "empty"
            empty.mkdir(exist_ok=True)
            path.write_bytes(FILES[name]())
            results.append(run(path, empty))
            path.unlink()
            print(results[-1], file=sys.stderr, flush=True)
    print("| file | seconds | of a core | MiB | what it says | left behind |\n|---|--:|--:|--:|---|---|")
    for r in sorted(results, key=lambda r: -r["seconds"]):
        print(f"| {r['name']} | {r['seconds']:.1f} | {r['cpu']:.1f} | {r['mib']} | {r['said']} | {', '.join(r['left']) or 'nothing'} |")
    bad = [r["name"] for r in results if r["seconds"] > 60 or r["mib"] > 1024 or r["left"] or r["code"] not in (0, 1, 2)]
    print(f"\n{len(results)} files, {len(bad)} of them over 60 s or 1 GiB, without an end of their own, or with something left: {', '.join(bad)}")
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main())
