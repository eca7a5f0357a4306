"""tests/lint/test_lint.py: the linter finds each violation that is planted in a small tree, and nothing else."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A tree that keeps every rule; each test breaks one.
GOOD = {
    "config/base/base.h": '/* config/base/base.h: base. */\n#pragma once\n\n#include <stdio.h>\n',
    "config/json/json.h": '/* config/json/json.h: the door to jansson. */\n#pragma once\n\n#include <jansson.h>\n\n#include "config/base/base.h"\n',
    "kernels/op.c": '/* kernels/op.c: an op. */\n#include "config/base/base.h"\n\nint op(int a) { return a; }\n',
    "retro/model/model.c": '/* retro/model/model.c: a model. */\n#include "config/base/base.h"\n\nint f(void) { return 1; }\n',
    "server/api/api.h": '/* server/api/api.h: the interface. */\n#pragma once\n',
    "server/main.c": '/* server/main.c: main. */\n#include "retro/model/model.h"\n#include "server/api/api.h"\n',
    "server/host/opened.h": '/* server/host/opened.h: opens. */\n#pragma once\n\n#include "retro/model/model.h"\n',
    "tools/bench/bench.c": '/* tools/bench/bench.c: bench. */\n#include "server/host/opened.h"\n',
    "tools/bench/bench_retrieval.c": '/* tools/bench/bench_retrieval.c: bench. */\n#include "server/schedule/engine.h"\n',
    "tests/unit/test_op.c": '/* tests/unit/test_op.c: test. */\n#include <cmocka.h>\n\n#include "config/json/json.h"\n',
    "kernels/many.c": "/* kernels/many.c: short functions. */\n"
    + "".join(f"int many{i}(void) {{ return 0; }}\n" for i in range(20)),
    "retro/run/run.h": "/* retro/run/run.h: runs. */\n#pragma once\n\nstruct twice {\n    int a;\n};\n",
    "README.md": "# A project\n",
}


def body(lines):
    return "{\n" + "    a++;\n" * (lines - 2) + "}\n"


BAD = [
    ("config/x.h", '/* config/x.h: x. */\n#include "kernels/op.h"\n', "config/x.h:2: config/ may not include"),
    ("kernels/x.c", '/* kernels/x.c: x. */\n#include "retro/model/model.h"\n', "kernels/x.c:2: kernels/ may not include"),
    ("retro/x.c", '/* retro/x.c: x. */\n#include "retrieval/index/index.h"\n', "retro/x.c:2: retro/ may not include"),
    ("retro/x.c", '/* retro/x.c: x. */\n\n#include "server/api/api.h"\n', "retro/x.c:3: retro/ may not include"),
    ("retrieval/x.c", '/* retrieval/x.c: x. */\n#include "kernels/op.h"\n',
     "retrieval/x.c:2: retrieval/ may not include"),
    ("config/base/x.h", '/* config/base/x.h: x. */\n#include "config/json/json.h"\n',
     "config/base/x.h:2: the folders config/base, config/json include each other"),
    ("server/x.c", '/* server/x.c: x. */\n#include "tools/bench/bench.h"\n', "server/x.c:2: server/ may not include"),
    ("server/host/x.c", '/* server/host/x.c: x. */\n#include "server/api/api.h"\n',
     "server/host/x.c:2: server/host may not include server/api/api.h"),
    ("server/host/x.c", '/* server/host/x.c: x. */\n#include "server/schedule/engine.h"\n',
     "server/host/x.c:2: server/host may not include"),
    ("tools/index/x.c", '/* tools/index/x.c: x. */\n#include "server/http/http.h"\n',
     "tools/index/x.c:2: tools/index may not include server/http/http.h"),
    ("tools/index/x.c", '/* tools/index/x.c: x. */\n#include "server/schedule/engine.h"\n',
     "tools/index/x.c:2: tools/index may not include"),
    ("server/x.c", "/* server/x.c: x. */\nstruct twice {\n    int a;\n};\n", "server/x.c:2: struct twice is defined in"),
    ("server/x.c", '/* server/x.c: x. */\n#include "tests/helper.h"\n', "server/x.c:2: server/ may not include"),
    ("server/x.c", '/* server/x.c: x. */\n#include "api.h"\n', 'server/x.c:2: "api.h" is not included from the root'),
    ("server/x.c", "/* server/x.c: x. */\n#include <jansson.h>\n", "server/x.c:2: jansson is included by config/json/json.h"),
    ("server/x.c", "/* server/x.c: x. */\n#include <cmocka.h>\n", "server/x.c:2: cmocka is for tests only"),
    ("retro/x.c", f"/* retro/x.c: x. */\nvoid g(int a) {body(61)}", "retro/x.c:2: g has 61 lines, at most 60"),
    ("kernels/x.c", f"/* kernels/x.c: x. */\nvoid g(int a) {body(151)}", "kernels/x.c:2: g has 151 lines, at most 150"),
    ("retro/x.c", "/* retro/x.c: x. */\nvoid g(int a, int b, int c, int d, int e, int f, int g) {}\n",
     "retro/x.c:2: g has 7 parameters, at most 6"),
    ("retro/x.c", "/* retro/x.c: x. */\n" + "extern int many;\n" * 500, "retro/x.c:501: 501 lines in the file"),
    ("retro/x.c", "/* retro/x.c: x. */\nint  x;\n", "retro/x.c:2: not in the project's format"),
    ("retro/x.c", "extern int x;\n", "retro/x.c:1: the first line is not a comment that names the file"),
    ("retro/x.c", "/* retro/y.c: moved. */\n", "retro/x.c:1: the first line is not a comment that names the file"),
    ("retro/x.c", "/* retro/x.c: x. */\nint x; /* What is counted. */\n", "retro/x.c:2: a sentence that begins with what"),
    ("retro/x.c", "/* retro/x.c: x. Which of them\n * it is. */\n", "retro/x.c:1: a sentence that begins with what"),
    ("retro/x.c", "/* retro/x.c: x. */\nint g(int *a, int n) { return a[n++]; }\n", "retro/x.c:2: an effect inside of an index"),
    ("retro/x.h", "/* retro/x.h: x. */\n" + "".join(f"extern int x, y, z, name{i};\n" for i in range(300)),
     "tests/lint/lint.py:1: 7"),
    ("docs/x.md", "one\nsee /" + "work/shared/x\n", "docs/x.md:2: a path of one machine"),
    ("docs/x.md", "in `/" + "root`\n", "docs/x.md:1: a path of one machine"),
    ("tools/x.sh", "curl https://" + "pypi" + ".org/simple\n", "tools/x.sh:1: a package registry's host name"),
]


@pytest.fixture
def tree(tmp_path):
    """A repository with the good files, the linter and the format; returns (write, lint)."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def lint():
        subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
        run = subprocess.run([sys.executable, ROOT / "tests/lint/lint.py"], cwd=tmp_path, capture_output=True, text=True)
        assert run.stderr == ""
        return run.returncode, run.stdout.splitlines()

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    shutil.copy(ROOT / ".clang-format", tmp_path)
    for name, text in GOOD.items():
        write(name, text)
    return write, lint


def test_good_tree_passes(tree):
    _, lint = tree
    status, lines = lint()
    assert (status, len(lines)) == (0, 1)
    assert "no violations" in lines[0]


@pytest.mark.parametrize("name,text,expected", BAD, ids=[f"{i}-{b[0]}" for i, b in enumerate(BAD)])
def test_violation_is_found(tree, name, text, expected):
    write, lint = tree
    write(name, text)
    status, lines = lint()
    assert status == 1
    assert len(lines) == 1 and lines[0].startswith(expected)


def test_the_tail_of_functions_is_bounded(tree):
    write, lint = tree
    write("retro/x.c", "/* retro/x.c: x. */\n" + "".join(f"void g{i}(int a) {body(30)}" for i in range(15)))
    status, lines = lint()
    assert status == 1
    assert len(lines) == 1 and "one function in ten has 30 lines" in lines[0]


def test_what_is_allowed_is_not_reported(tree):
    write, lint = tree
    write("kernels/big.c", f"/* kernels/big.c: a kernel may be longer. */\nvoid g(int a) {body(150)}"
          "int h(int (*f)(int, int), int a[2], int b, int c, int d, int e) {\n    return a[0] + b + c + d + e + f(1, 2);\n}\n")
    write("retro/y.c", "/* retro/y.c: what it says, and which. Who knows? */\nint g(int *a, int n) { return a[n] + n++; }\n")
    write("docs/x.md", "homework/x and ./root/x and /workspace are no paths of ours\n")
    status, lines = lint()
    assert status == 0, lines
