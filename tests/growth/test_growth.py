"""Work on foreign input grows no faster than the input: tests/growth/growth.c counts the instructions of each case at three
sizes. Where the kernel counts none, callgrind does. Counts do not depend on what else the machine does."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / os.environ.get("RETRO_BUILD", "build") / "tests" / "growth" / "growth"
MOST = 2.3  # of a doubling

# A library's own work, in a process with a limit of time: known, and bounded elsewhere.
KNOWN = {
    "html/attributes": "libxml2 looks through an element's attributes for each of them",
}


def simulated(folder):
    """Callgrind's dumps name the case and the size, and end in a total."""
    subprocess.run(["valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={folder}/dump",
                    PROGRAM], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for dump in sorted(folder.iterdir(), key=lambda path: int(path.suffix[1:] or 0)):
        text = dump.read_text(errors="replace")
        title, total = re.search(r"growth (\S+) (\d+)", text), re.search(r"^totals: (\d+)", text, re.M)
        if title and total:
            yield title[1], int(title[2]), int(total[1])


def counted(folder):
    done = subprocess.run([PROGRAM], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 2:
        yield from simulated(folder)
        return
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        name, n, count = line.split()
        yield name, int(n), int(count)


@pytest.fixture(scope="module")
def growth(tmp_path_factory):
    cases = {}
    for name, n, count in counted(tmp_path_factory.mktemp("callgrind")):
        cases.setdefault(name, []).append((n, count))
    for name, sizes in cases.items():
        ratios = [later / earlier for (_, earlier), (_, later) in zip(sizes, sizes[1:])]
        print(f"{name:28} n {sizes[-1][0]:7} {sizes[-1][1]:12} instructions ", *(f"{ratio:.2f}" for ratio in ratios))
    return cases


def test_every_parser_has_cases(growth):
    kinds = {name.split("/")[0] for name in growth}
    assert kinds >= {"chat", "jinja", "schema", "gbnf", "regex", "filter", "metadata", "bpe", "unigram", "wordpiece",
                     "sentencepiece", "tokenizer.json", "html", "markdown", "mail", "archive", "gguf", "config.json", "pickle",
                     "request", "door", "words", "reply", "stream"}


def test_work_grows_with_the_input(growth):
    too_fast = []
    for name, sizes in growth.items():
        assert len(sizes) == 3, name
        for (n, earlier), (_, later) in zip(sizes, sizes[1:]):
            if later > MOST * earlier and name not in KNOWN:
                too_fast.append(f"{name}: {later / earlier:.2f} times the instructions from {n} to {2 * n}")
    assert not too_fast, "\n".join(too_fast)
