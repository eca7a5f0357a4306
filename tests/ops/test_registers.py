"""The sums of the float kernels stay in registers: no inner loop of theirs stores a vector at every depth.

A compiler that leaves a loop over rows standing keeps its sums in memory, which halves the speed and changes no result:
no other test sees that. The objects of the build are disassembled.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / os.environ.get("RETRO_BUILD", "build") / "kernels/cpu/x86"
MULTIPLIES = ("vfmadd", "vdpbf16ps")
CHAINS = 4  # of multiplications in a loop: kernels of one row and one tile have fewer


def read_instructions(path):
    """(address, name, operands) of each."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ *([0-9a-f]+):\t(\S+) *(.*)$", text, re.M)
    return [(int(address, 16), name, operands) for address, name, operands in found]


def find_inner_loops(instructions):
    """Instructions from a jump's target to the jump back, where no other such loop is within."""
    places = {address: i for i, (address, _, _) in enumerate(instructions)}
    loops = []
    for i, (address, name, operands) in enumerate(instructions):
        target = re.match(r"([0-9a-f]+) <", operands)
        if name.startswith("j") and target and int(target[1], 16) < address and int(target[1], 16) in places:
            loops.append((places[int(target[1], 16)], i))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [instructions[start:end + 1] for start, end in inner]


def count_loop(loop):
    """Its multiplications, and its vectors that are stored."""
    multiplications = sum(name.startswith(MULTIPLIES) for _, name, _ in loop)
    stores = sum(name.startswith("vmov") and re.search(r",[^,]*\([^)]*\)$", operands) is not None for _, name, operands in loop)
    return multiplications, stores


@pytest.mark.parametrize("kernel", ["linear_avx2", "linear_avx512", "linear_avx512bf16"])
def test_sums_stay_in_registers(kernel):
    path = KERNELS / f"{kernel}.c.o"
    if not path.exists() or shutil.which("objdump") is None:
        pytest.skip("needs kernels for x86 and objdump of binutils")
    counts = [count_loop(loop) for loop in find_inner_loops(read_instructions(path))]
    counts = [count for count in counts if count[0] >= CHAINS]
    assert len(counts) >= 6, "the kernels' loops are not found"
    assert sum(stores for _, stores in counts) * 20 <= sum(n for n, _ in counts), counts
