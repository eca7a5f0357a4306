"""The inner loops of the kernels for Arm on models of processors: cycles, and the share of the multipliers' peak.

usage: mca.py BUILD [--mca llvm-mca-19] [--cpus neoverse-v1 ...]

BUILD is a build for arm64. The inner loop of a kernel is the loop of its object file with the multiplying instructions of
eight rows. llvm-mca (Debian's llvm-19) takes its operands from the first-level cache, so this is what the loop could
reach and no measurement.
"""
import argparse
import collections
import pathlib
import re
import subprocess

# Object file and function, multiplying instruction, and how many of them the loop for eight rows has.
KERNELS = [
    ("int8, 8 rows", "pairs_i8mm", "smmla", 32),
    ("Q4_K, 8 rows", "super_pairs_i8mm", "smmla", 32),
    ("bf16, 8 rows", "pairs_bf16", "bfmmla", 16),
    ("int8 by SDOT, 8 rows", "pairs_dotprod", "sdot", 64),
    ("Q4_K by SDOT, 8 rows", "super_pairs_dotprod", "sdot", 64),
]
BRANCH = re.compile(r"\s*([0-9a-f]+):\s+(?:b|b\.\w+|cbn?z|tbn?z)\s+.*?([0-9a-f]+) <")
PLACE = re.compile(r"\s*([0-9a-f]+):\s+(.*)")


def code_of(build, name):
    path = pathlib.Path(build) / f"kernels/cpu/arm/{name}.c.o"
    listing = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    functions = collections.defaultdict(list)
    for line in listing.stdout.splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:", line)
        if head:
            function = head.group(1)
        elif PLACE.match(line):
            functions[function].append(line)
    return functions


def loops_of(lines):
    """Loops without another in them and without a call: from a branch's target to the branch, branches left out."""
    places = {int(PLACE.match(line).group(1), 16): i for i, line in enumerate(lines)}
    innermost = 0  # behind the last branch back
    for i, line in enumerate(lines):
        branch = BRANCH.match(line)
        start = places.get(int(branch.group(2), 16)) if branch else None
        if start is None or start >= i:
            continue
        body = [PLACE.match(other).group(2).split("//")[0].strip() for other in lines[start:i]]
        if start >= innermost and not any(re.match(r"(bl|blr|ret)\b", text) for text in body):
            yield [text for text in body if not re.match(r"(b|b\.\w+|cbn?z|tbn?z)\b", text)]
        innermost = i


def inner_loop(build, name, multiply, count):
    """Of loops that are alike, one for each type of weights, the shortest."""
    found = [body for key, lines in code_of(build, name).items() for body in loops_of(lines) if key.startswith(name)]
    return min((body for body in found if sum(text.startswith(multiply) for text in body) == count), key=len)


def throughput(mca, cpu, text, iterations):
    """Cycles of one iteration."""
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+i8mm,+bf16,+dotprod", f"-iterations={iterations}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(re.search(r"Total Cycles:\s+(\d+)", done.stdout).group(1)) / iterations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mca", default="llvm-mca-19")
    parser.add_argument("--cpus", nargs="+", default=["neoverse-v1", "neoverse-v2", "neoverse-n2", "neoverse-n1", "cortex-a76"])
    arguments = parser.parse_args()
    print("| loop | instructions | multiply | processor | cycles | share of the peak |\n|---|---|---|---|---|---|")
    for title, name, multiply, count in KERNELS:
        body = inner_loop(arguments.build, name, multiply, count)
        shape = {"smmla": "4s, v1.16b, v2.16b", "bfmmla": "4s, v1.8h, v2.8h", "sdot": "4s, v1.16b, v2.16b"}[multiply]
        # As many of them as the peak needs, none of which waits for another.
        peak = "\n".join(f"{multiply} v{register}.{shape}" for register in range(8, 32))
        for cpu in arguments.cpus:
            if multiply != "sdot" and cpu in ("neoverse-n1", "cortex-a76"):
                continue
            cycles = throughput(arguments.mca, cpu, "\n".join(body), 200)
            least = count * throughput(arguments.mca, cpu, peak, 200) / 24
            print(f"| {title} | {len(body)} | {count} | {cpu} | {cycles:.1f} | {least / cycles:.0%} |", flush=True)


if __name__ == "__main__":
    main()
