"""The reference's logits and greedy tokens through the CUDA kernels, on the emulated device."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
FOLDERS = sorted(p.parent for p in (ROOT / "tests/golden/retro").glob("*/config.json"))


def parity(*arguments, program=BUILD / "cuda_host/retro-eval"):
    return subprocess.run([program, "parity", *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_reference_logits(folder):
    done = parity("--set", "model.device=cuda-host", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 2 and all("tokens=ok" in line for line in lines[:-1])


def test_bf16_stays_near():
    """bf16 weights, inputs of products and cache move these small models' logits by less than 0.5."""
    done = parity("--set", "model.device=cuda-host", "--set", "model.dtype=bf16", "--tolerance", "0.5", *FOLDERS[1:3])
    assert done.returncode == 0, done.stdout + done.stderr
    worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
    assert 1e-4 < worst < 0.5


def test_other_devices_are_refused():
    """The emulated device is for tests: programs do not have it, and neither has a device 7."""
    for program, device, words in [(BUILD / "retro-eval", "cuda-host", "cuda-host"),
                                   (BUILD / "cuda_host/retro-eval", "cuda-host:7", "no CUDA"),
                                   (BUILD / "cuda_host/retro-eval", "cuda-hostile", "no CUDA")]:
        done = parity("--set", f"model.device={device}", FOLDERS[0], program=program)
        assert done.returncode == 1 and words in done.stderr, done.stderr


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU")
def test_without_a_gpu():
    """auto falls back and says so; a GPU that was asked for by name is an error."""
    done = parity("--set", "model.device=auto", FOLDERS[0], program=BUILD / "retro-eval")
    assert done.returncode == 0 and "no CUDA device, using cpu" in done.stderr, done.stderr
    for device in ("cuda", "cuda:0"):
        done = parity("--set", f"model.device={device}", FOLDERS[0], program=BUILD / "retro-eval")
        assert done.returncode == 1 and "CUDA" in done.stderr and 'use "cpu"' in done.stderr, done.stderr
