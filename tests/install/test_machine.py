"""Machines that retro-server is not for: the build says so, and nothing else, before it compiles."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFUSED = "retro-server is for 64-bit little-endian machines, as x86-64 and arm64 are"
OTHERS = {
    "big-endian": "-U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__",
    "32 bits": "-U__SIZEOF_POINTER__ -D__SIZEOF_POINTER__=4",
}


def compile_header(flags):
    command = ["cc", *flags, "-I", ROOT, "-fsyntax-only", "-x", "c", ROOT / "config/base/base.h"]
    return subprocess.run(command, capture_output=True, text=True)


def test_this_machine_is_accepted():
    assert compile_header([]).returncode == 0


@pytest.mark.parametrize("machine", OTHERS)
def test_others_are_refused_by_the_header(machine):
    done = compile_header(OTHERS[machine].split())
    assert done.returncode != 0 and REFUSED in done.stderr, done.stderr


@pytest.mark.parametrize("machine", OTHERS)
def test_others_are_refused_by_make(machine, tmp_path):
    command = ["make", "-C", ROOT, "-n", "all", f"CC=cc {OTHERS[machine]}", f"BUILD={tmp_path}/build"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and REFUSED in done.stderr, done.stderr
    assert done.stdout.count("\n") <= 2 and not (tmp_path / "build").exists(), "something was built"
