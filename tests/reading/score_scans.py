"""Reads the scans of scans.py by `retro-index extract`, and prints a table of what was read wrong.

    python3 tests/reading/score_scans.py build/retro-index [--only PART_OF_A_NAME] [--keep FOLDER]
"""
import argparse
import dataclasses
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import scan_scores  # noqa: E402
import scans  # noqa: E402


@dataclasses.dataclass
class Result:
    name: str
    group: str
    error: float  # share of the characters; of a table: of the cells
    seconds: float
    cells: tuple = (0, 0)
    note: str = ""


def read(program, path):
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run([program, "extract", str(path)], capture_output=True, text=True)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The parser's process is the keeper's child, which ends with the program: its time is counted, where the keeper waits for it.
    cpu = end.ru_utime + end.ru_stime - began.ru_utime - began.ru_stime
    return done, max(cpu, 0), time.monotonic() - start


def score(program, scan, folder):
    path = scans.write(scan, folder)
    done, _, seconds = read(program, path)
    note = (done.stderr.strip().splitlines() or [""])[-1]
    if scan.cells:
        found = scan_scores.cells_found(done.stdout, scan.cells)
        counts = (len(found), len(scan.cells))
        return Result(scan.name, scan.group, 1 - counts[0] / counts[1], seconds, counts, note)
    return Result(scan.name, scan.group, scan_scores.error_rate(done.stdout, scan.text), seconds, note=note)


def table(results):
    groups = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    print("\n| group | pages | mean error | worst | empty |\n|---|--:|--:|--:|--:|")
    texts = [r for r in results if r.group != "table"]
    for name, group in [*groups.items(), ("all text", texts)]:
        if name == "table":
            found, all_cells = (sum(r.cells[i] for r in group) for i in (0, 1))
            print(f"| table | {len(group)} | {found} of {all_cells} cells | | |")
        elif group:
            errors = [r.error for r in group]
            print(f"| {name} | {len(group)} | {sum(errors) / len(errors):.4f} | {max(errors):.4f} | {sum(e == 1 for e in errors)} |")
    print(f"\n{len(results)} files in {sum(r.seconds for r in results):.0f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    a = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for scan in scans.make_scans():
            if a.only not in scan.name and a.only != scan.group:
                continue
            results.append(score(a.program, scan, a.keep or folder))
            r = results[-1]
            print(f"{r.name:22} {r.error:.4f} {r.seconds:6.2f} s  {r.note}", flush=True)
    table(results)


if __name__ == "__main__":
    main()
