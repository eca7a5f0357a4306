"""Machines that retro-server is not for: the build says so, and nothing else, before it compiles."""
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFUSED = "retro-server is for 64-bit little-endian machines, as x86-64 and arm64 are"
OTHERS = {
    "big-endian": "-U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__",
    "32 bits": "-U__SIZEOF_POINTER__ -D__SIZEOF_POINTER__=4",
}
# Machines that there are, in a compiler that has their macros without their libraries.
TARGETS = ["s390x-linux-gnu", "powerpc64-linux-gnu", "aarch64_be-linux-gnu", "i686-linux-gnu", "arm-linux-gnueabihf",
           "x86_64-linux-gnux32"]


def compile_header(flags):
    command = ["cc", *flags, "-I", ROOT, "-fsyntax-only", "-x", "c", ROOT / "config/base/base.h"]
    return subprocess.run(command, capture_output=True, text=True)


def test_this_machine_is_accepted():
    assert compile_header([]).returncode == 0


@pytest.mark.parametrize("machine", OTHERS)
def test_others_are_refused_by_the_header(machine):
    done = compile_header(OTHERS[machine].split())
    assert done.returncode != 0 and REFUSED in done.stderr, done.stderr


def make_refuses(words, folder):
    command = ["make", "-C", ROOT, "-n", f"BUILD={folder}/build", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    assert done.stdout.count("\n") <= 2 and not (folder / "build").exists(), "something was built"
    return done.stderr


@pytest.mark.parametrize("machine", OTHERS)
def test_others_are_refused_by_make(machine, tmp_path):
    assert REFUSED in make_refuses(["all", f"CC=cc {OTHERS[machine]}"], tmp_path)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_compilers_for_others_are_refused(target, tmp_path):
    assert f"{REFUSED}, and clang --target={target} compiles for" in make_refuses(["all", f"CC=clang --target={target}"], tmp_path)


@pytest.mark.parametrize("arch", ["s390x", "i386", "armhf", "nonsense"])
def test_packages_for_others_are_refused(arch, tmp_path):
    expected = f"ARCH={arch}: retro-server is for 64-bit little-endian machines, and packaged for amd64 arm64"
    assert expected in make_refuses(["deb", f"ARCH={arch}"], tmp_path)
