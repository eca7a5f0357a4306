"""OpenMP's idle threads, which FAISS starts, sleep and leave the cores to the model, unless the user says otherwise."""
import os
import pathlib
import re
import subprocess

import pytest

BUILD = pathlib.Path(__file__).resolve().parents[2] / os.environ.get("RETRO_BUILD", "build")


def spin_counts(program, **variables):
    """How often a waiting thread looks for work before it sleeps: of each time that the program was loaded."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY" and k != "GOMP_SPINCOUNT"}
    done = subprocess.run([BUILD / program, "--version"], env=environment | {"OMP_DISPLAY_ENV": "verbose"} | variables,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(program), done.stderr
    counts = re.findall(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)
    if not counts:
        pytest.skip("not GNU's OpenMP")
    return counts


@pytest.mark.parametrize("program", ["retro-server", "retro-index"])
def test_idle_threads_sleep(program):
    first, last = spin_counts(program)
    assert first != "0" and last == "0"


@pytest.mark.parametrize("program", ["retro-server", "retro-index"])
def test_the_user_decides(program):
    for policy, spins in (("active", lambda n: n != "0"), ("passive", lambda n: n == "0")):
        (count,) = spin_counts(program, OMP_WAIT_POLICY=policy)
        assert spins(count)
    assert spin_counts(program, GOMP_SPINCOUNT="77")[-1] == "77"


def test_arguments_are_kept(tmp_path):
    """A program without OMP_WAIT_POLICY begins anew with what it was given, under whatever name it was called."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    link = tmp_path / "a link"
    link.symlink_to(BUILD / "retro-index")
    done = subprocess.run([link, "search", "no such folder", "two  words"], env=environment, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode != 0 and "no such folder" in done.stderr
