"""How much the kernels for Arm take, counted where no Arm machine is: instructions, and bytes loaded and stored.

usage: counts.py BUILD SYSROOT [--types int8 q4_k bf16] [--variants bf16 i8mm dotprod neon] [--layers 2] [--prompt 512]

BUILD is a build for arm64 with the program tests/arm/step_counts (make BUILD=... tests/arm/step_counts as tests/arm64.sh
builds), SYSROOT holds that machine's libraries. Each line of the table is one run of the program under qemu-aarch64 with
tests/arm/count_plugin.c: a prompt, and one step behind 16 tokens, of a model of shape m cut to some layers. A count is no
time: what an instruction costs differs from one to another and from one processor to the next.
"""
import argparse
import os
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"count mark instructions (\d+) loaded (\d+) stored (\d+)")


def build_plugin(folder):
    plugin = pathlib.Path(folder) / "count_plugin.so"
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", HERE / "count_plugin.c"]
    subprocess.run([*command, "-o", plugin], check=True)
    return plugin


def marks_of(arguments, plugin, dtype, variant):
    command = ["qemu-aarch64", "-cpu", "max,sve=off", "-plugin", plugin, "-L", arguments.sysroot]
    program = [pathlib.Path(arguments.build) / "tests/arm/step_counts", dtype, str(arguments.layers), str(arguments.prompt)]
    environment = dict(os.environ, RETRO_CPU=variant, OMP_NUM_THREADS="1")
    done = subprocess.run([*command, *program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line)) for line in LINE.findall(done.stderr)]


def minus(later, earlier):
    return tuple(a - b for a, b in zip(later, earlier))


def print_row(variant, dtype, what, counts):
    millions = " | ".join(f"{count / 1e6:.1f}" for count in counts)
    print(f"| {variant} | {dtype} | {what} | {millions} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("sysroot")
    parser.add_argument("--types", nargs="+", default=["int8", "q4_k", "bf16"])
    parser.add_argument("--variants", nargs="+", default=["bf16", "dotprod", "neon"])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    arguments = parser.parse_args()
    print("| variant | type | | instructions, millions | bytes loaded | bytes stored |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        plugin = build_plugin(folder)
        for variant in arguments.variants:
            for dtype in arguments.types:
                opened, prompt, one, two = marks_of(arguments, plugin, dtype, variant)
                print_row(variant, dtype, f"prompt of {arguments.prompt}", minus(prompt, opened))
                print_row(variant, dtype, "a step", minus(minus(two, one), minus(one, prompt)))


if __name__ == "__main__":
    main()
