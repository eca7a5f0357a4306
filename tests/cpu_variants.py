"""The variants of the CPU's kernels that a build has and this processor runs: on x86 and on Arm alike, the programs say it."""
import os
import re
import subprocess

ABSENT = re.compile("RETRO_CPU=.*: this (CPU lacks the instructions|build has no kernels for it)")


def run_as(variant, evaluator, folder):
    return subprocess.run([evaluator, "parity", folder], env=dict(os.environ, RETRO_CPU=variant), capture_output=True, text=True)


def find_variants(evaluator, folder):
    """A variant that fails in another way than by its absence is listed, for the tests to say so. `folder`: a small model."""
    names = re.search("expected (.*), or unset", run_as("?", evaluator, folder).stderr)
    return [name for name in re.split(", | or ", names[1]) if not ABSENT.search(run_as(name, evaluator, folder).stderr)]
