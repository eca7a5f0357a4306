"""The reference's logits and greedy tokens, through retro-eval parity, on every instruction set this machine has."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
FOLDERS = sorted(p.parent for p in (ROOT / "tests/golden/retro").glob("*/config.json"))
FLAGS = set(next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split())
NEEDS = {"avx2": "avx2", "avx512": "avx512vl", "avx512bf16": "avx512_bf16"}
VARIANTS = ["generic"] + [v for v, flag in NEEDS.items() if flag in FLAGS]


def parity(*arguments, cpu=None):
    environment = dict(os.environ, **({"RETRO_CPU": cpu} if cpu else {}))
    return subprocess.run([EVAL, "parity", *map(str, arguments)], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("cpu", VARIANTS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_reference_logits(folder, cpu):
    done = parity(folder, cpu=cpu)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 2 and all("tokens=ok" in line for line in lines[:-1])


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return raw[:8 + size], header, bytearray(raw[8 + size:])


def test_a_wrong_weight_is_noticed(tmp_path):
    """The comparison can fail: one output weight changed by 0.01 moves logits beyond the tolerance."""
    folder = shutil.copytree(FOLDERS[0], tmp_path / "case")
    head, header, data = read_safetensors(folder / "model.safetensors")
    start, end = header["decoder.layers.2.mlp.linear_fc2.bias"]["data_offsets"]
    bias = np.frombuffer(bytes(data[start:end]), dtype="<f4").copy()
    bias[0] += 0.01
    data[start:end] = bias.tobytes()
    (folder / "model.safetensors").write_bytes(head + bytes(data))
    done = parity(folder)
    assert done.returncode == 1 and "FAILED" in done.stdout


def test_errors_are_named(tmp_path):
    for arguments, words in [([], "no folder"), (["--tolerance", "x", FOLDERS[0]], "must be a number"),
                             ([tmp_path / "absent"], "config.json"), (["--frob", "1", FOLDERS[0]], "unknown option")]:
        done = parity(*arguments)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_other_folders_are_skipped_but_are_no_pass(tmp_path):
    done = parity(tmp_path, FOLDERS[0])
    assert done.returncode == 0 and "skipped: no config.json" in done.stdout
    assert parity(tmp_path).returncode == 1


def test_bf16_stays_near():
    """bf16 weights and cache move logits of these small models by less than 0.5; f32 by less than 1e-4."""
    done = parity("--set", "model.dtype=bf16", "--tolerance", "0.5", FOLDERS[0])
    worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
    assert 1e-4 < worst < 0.5
