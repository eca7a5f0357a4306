"""The program that measures large collections (scale.c), over a small one: it makes, searches, changes, compacts and turns
it, and says what it is to say."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("RETRO_BUILD", "build") / "tests/scale/scale"
CHUNKS = "2000"


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


def test_wrong_words(tmp_path):
    done = subprocess.run([PROGRAM, "shrink", tmp_path, CHUNKS, ROOT / "README.md"], capture_output=True, text=True)
    assert done.returncode == 2 and "make|measure|turn" in done.stderr
