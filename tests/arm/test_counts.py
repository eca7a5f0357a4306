"""tests/arm/counts.py: which programs it runs and what it makes of their marks, with a qemu that prints given totals."""
import os
import pathlib
import subprocess
import sys

COUNTS = pathlib.Path(__file__).resolve().parent / "counts.py"
# Totals at each mark: ours take a hundred million more instructions each time, a peer two hundred. A second step brings
# four more than the first.
QEMU = """#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
assert words[:3] == ["-cpu", "max,sve=off", "-plugin"] and words[4:6] == ["-L", "SYSROOT"], words
program, *arguments = words[6:]
peer = program == "PEER"
with open(os.environ["LOG"], "a") as log:
    print(os.path.basename(program), *arguments, os.environ.get("RETRO_CPU"), file=log)
marks = [1, 2] if "embed" in arguments else [1, 2, 4, 10]
for mark in marks:
    n = mark * 100000000 * (1 + peer)
    print(f"count mark instructions {n} loaded {2 * n} stored {3 * n}", file=sys.stderr)
print("count end instructions 9 loaded 9 stored 9", file=sys.stderr)
"""


def run_counts(folder, *options):
    """The rows of the table, and the programs with their arguments and RETRO_CPU."""
    qemu, log = folder / "qemu-aarch64", folder / "log"
    qemu.write_text(QEMU)
    qemu.chmod(0o755)
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", LOG=str(log))
    environment.pop("RETRO_CPU", None)
    command = [sys.executable, COUNTS, "BUILD", "SYSROOT", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    return rows, log.read_text().splitlines()


def test_prompt_and_step(tmp_path):
    options = ["--types", "int8", "q4_k", "--variants", "bf16", "--layers", "3", "--prompt", "64"]
    rows, programs = run_counts(tmp_path, *options, "--peer", "bf16=PEER", "--file", "int8=a.gguf")
    assert programs == ["step_counts int8 3 64 bf16", "PEER a.gguf 64 None", "step_counts q4_k 3 64 bf16"]
    assert rows[0] == ["bf16", "int8", "prompt of 64", "retro-server", "100.0", "200.0", "300.0", ""]
    assert rows[1] == ["bf16", "int8", "a step", "retro-server", "400.0", "800.0", "1200.0", ""]
    assert rows[2] == ["bf16", "int8", "prompt of 64", "llama.cpp", "200.0", "400.0", "600.0", "0.50, 0.50"]
    assert rows[3] == ["bf16", "int8", "a step", "llama.cpp", "800.0", "1600.0", "2400.0", "0.50, 0.50"]
    assert [row[:4] for row in rows[4:]] == [["bf16", "q4_k", what, "retro-server"] for what in ("prompt of 64", "a step")]


def test_variants_have_peers_of_their_own(tmp_path):
    options = ["--types", "int8", "--variants", "dotprod", "bf16", "--file", "int8=a.gguf", "--peer", "dotprod=PEER"]
    rows, programs = run_counts(tmp_path, *options)
    assert programs == ["step_counts int8 2 512 dotprod", "PEER a.gguf 512 None", "step_counts int8 2 512 bf16"]
    assert len(rows) == 6


def test_embedder(tmp_path):
    options = ["--variants", "dotprod", "--embed", "folder", "texts", "--peer", "dotprod=PEER", "--file", "f32=e.gguf"]
    rows, programs = run_counts(tmp_path, *options)
    assert programs == ["step_counts embed folder texts dotprod", "PEER e.gguf embed texts None"]
    assert rows == [["dotprod", "f32", "texts", "retro-server", "100.0", "200.0", "300.0", ""],
                    ["dotprod", "f32", "texts", "llama.cpp", "200.0", "400.0", "600.0", "0.50, 0.50"]]


def test_a_program_that_fails_is_told(tmp_path):
    qemu = tmp_path / "bin" / "qemu-aarch64"
    qemu.parent.mkdir()
    qemu.write_text("#!/bin/sh\necho no such file >&2\nexit 1\n")
    qemu.chmod(0o755)
    environment = dict(os.environ, PATH=f"{qemu.parent}:{os.environ['PATH']}")
    command = [sys.executable, COUNTS, "BUILD", "SYSROOT", "--types", "int8", "--variants", "bf16"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode != 0 and "no such file" in done.stderr
