"""How much the kernels for Arm take, counted where no Arm machine is: instructions, and bytes loaded and stored.

usage: counts.py BUILD SYSROOT [--types int8 q4_k bf16] [--variants bf16 i8mm dotprod neon] [--layers 2] [--prompt 512]
                 [--peer VARIANT=PROGRAM ...] [--file TYPE=GGUF ...] [--embed FOLDER TEXTS]

BUILD is a build for arm64 with the program tests/arm/step_counts (make BUILD=... tests/arm/step_counts as tests/arm64.sh
builds), SYSROOT holds that machine's libraries. Each line of the table is one run of the program under qemu-aarch64 with
tests/arm/count_plugin.c: a prompt, and one step behind 16 tokens, of a model of shape m cut to some layers. A peer is
tests/arm/peer_counts.c, built with a llama.cpp that has the instructions of the variant, and reads the type's file
(tests/race/random_gguf.py makes it); its line ends with our share of what it took. With --embed the table is of an
embedder instead: the vectors of the lines of TEXTS, at once, in f32; its file for peers is --file f32=. A count is no
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


def marks_of(sysroot, plugin, program, variant=None):
    """The totals at each mark that the program executes."""
    command = ["qemu-aarch64", "-cpu", "max,sve=off", "-plugin", plugin, "-L", sysroot, *program]
    environment = dict(os.environ, OMP_NUM_THREADS="1", **({"RETRO_CPU": variant} if variant else {}))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line)) for line in LINE.findall(done.stderr)]


def minus(later, earlier):
    return tuple(a - b for a, b in zip(later, earlier))


def counts_of(marks, prompt_name):
    """What the marks of step_counts and peer_counts say: the prompt, and the difference between one step and two."""
    opened, prompt, one, two = marks
    return {prompt_name: minus(prompt, opened), "a step": minus(minus(two, one), minus(one, prompt))}


def embed_counts(marks, name):
    return {name: minus(marks[1], marks[0])}


def print_row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def millions(counts):
    return [f"{count / 1e6:.1f}" for count in counts]


def pairs_of(words):
    return dict(word.split("=", 1) for word in words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("sysroot")
    parser.add_argument("--types", nargs="+", default=["int8", "q4_k", "bf16"])
    parser.add_argument("--variants", nargs="+", default=["bf16", "dotprod"])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--peer", nargs="+", default=[])
    parser.add_argument("--file", nargs="+", default=[])
    parser.add_argument("--embed", nargs=2)
    arguments = parser.parse_args()
    peers, files, embed = pairs_of(arguments.peer), pairs_of(arguments.file), arguments.embed
    name, read = (f"prompt of {arguments.prompt}", counts_of) if embed is None else ("texts", embed_counts)
    print_row("variant", "type", "", "program", "instructions, millions", "MB loaded", "MB stored", "instructions, loaded: ours / peer's")
    print_row(*["---"] * 8)
    with tempfile.TemporaryDirectory() as folder:
        plugin = build_plugin(folder)
        for variant in arguments.variants:
            for dtype in arguments.types if embed is None else ["f32"]:
                words = [dtype, str(arguments.layers), str(arguments.prompt)] if embed is None else ["embed", *embed]
                program = [pathlib.Path(arguments.build) / "tests/arm/step_counts", *words]
                ours = read(marks_of(arguments.sysroot, plugin, program, variant), name)
                for what, counts in ours.items():
                    print_row(variant, dtype, what, "retro-server", *millions(counts), "")
                if variant not in peers or dtype not in files:
                    continue
                words = [str(arguments.prompt)] if embed is None else ["embed", embed[1]]
                for what, counts in read(marks_of(arguments.sysroot, plugin, [peers[variant], files[dtype], *words]), name).items():
                    shares = [f"{ours[what][i] / counts[i]:.2f}" for i in range(2)]
                    print_row(variant, dtype, what, "llama.cpp", *millions(counts), ", ".join(shares))


if __name__ == "__main__":
    main()
