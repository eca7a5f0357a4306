"""The reference's logits and greedy tokens, through retro-eval parity, on every instruction set this machine has."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cpu_variants import find_variants

EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
GOLDEN = ROOT / "tests/golden"
KINDS = ("retro/*", "t5/*", "hf/*")
FOLDERS = sorted(p.parent for kind in KINDS for p in GOLDEN.glob(f"{kind}/config.json"))
WHOLE = ("gemma4", "gemma4_text", "gemma4_moe_text")  # layers read keys of others, and have inputs of their own
RETRO = GOLDEN / "retro/case_a"
VARIANTS = find_variants(EVAL, RETRO)


def dtype_of(folder):
    """References of bf16 weights, and of those in eight or four bits, are f32 arithmetic."""
    return ("--set", "model.dtype=f32") if folder.name.endswith(("_bf16", "_mxfp4", "_fp8")) else ()


def parity(*arguments, cpu=None):
    environment = dict(os.environ, **({"RETRO_CPU": cpu} if cpu else {}))
    return subprocess.run([EVAL, "parity", *map(str, arguments)], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("cpu", VARIANTS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_reference_logits(folder, cpu):
    done = parity(*dtype_of(folder), folder, cpu=cpu)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 1 and all("tokens=ok" in line for line in lines[:-1])


def test_config_of_transformers_4(tmp_path):
    """T5's says by tie_word_embeddings what 5 says by scale_decoder_outputs; others have rope_theta and rope_scaling
    outside a table, and names of their own for them."""
    folders = [shutil.copytree(path.parent, tmp_path / path.parent.name) for path in GOLDEN.glob("hf/*/config_v4.json")]
    for folder in folders:
        shutil.copy(folder / "config_v4.json", folder / "config.json")
    done = parity("--set", "model.dtype=f32", *folders)
    assert done.returncode == 0 and len(folders) > 15, done.stdout + done.stderr


def test_two_stages():
    """The layers of the decoders on two stages; windows, rotary tables and scales go with them."""
    folders = [f for f in FOLDERS if "/hf/" in str(f) and not f.name.startswith("t5") and f.name not in WHOLE]
    done = parity("--set", "model.dtype=f32", "--set", "parallel.pipeline=2", "--set", "parallel.comm=threads", *folders)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WHOLE)
def test_layers_that_are_not_cut(name):
    done = parity("--set", "parallel.pipeline=2", "--set", "parallel.comm=threads", GOLDEN / "hf" / name)
    assert done.returncode == 1 and "not cut into stages: use parallel.tensor" in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "/retro/" not in str(f)], ids=lambda p: p.name)
def test_two_ranks(folder):
    """Heads, MLP, vocabulary and the relative table shared by two ranks."""
    done = parity("--tolerance", "2e-4", "--set", "parallel.tensor=2", "--set", "parallel.comm=threads", *dtype_of(folder), folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failing_folder_does_not_hide_the_next(tmp_path):
    done = parity(tmp_path / "absent", RETRO)
    assert done.returncode == 1 and "tokens=ok" in done.stdout and "1 failed" in done.stdout


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return raw[:8 + size], header, bytearray(raw[8 + size:])


def test_a_wrong_weight_is_noticed(tmp_path):
    """The comparison can fail: one output weight changed by 0.01 moves logits beyond the tolerance."""
    folder = shutil.copytree(RETRO, tmp_path / "case")
    head, header, data = read_safetensors(folder / "model.safetensors")
    start, end = header["decoder.layers.2.mlp.linear_fc2.bias"]["data_offsets"]
    bias = np.frombuffer(bytes(data[start:end]), dtype="<f4").copy()
    bias[0] += 0.01
    data[start:end] = bias.tobytes()
    (folder / "model.safetensors").write_bytes(head + bytes(data))
    done = parity(folder)
    assert done.returncode == 1 and "FAILED" in done.stdout


def test_errors_are_named(tmp_path):
    for arguments, words in [([], "no folder"), (["--tolerance", "x", RETRO], "must be a number"),
                             ([tmp_path / "absent"], "config.json"), (["--frob", "1", RETRO], "unknown option")]:
        done = parity(*arguments)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_other_folders_are_skipped_but_are_no_pass(tmp_path):
    done = parity(tmp_path, RETRO)
    assert done.returncode == 0 and "skipped: no config.json" in done.stdout
    assert parity(tmp_path).returncode == 1


def test_bf16_stays_near():
    """bf16 weights and cache move logits of these small models by less than 0.5; f32 by less than 1e-4."""
    done = parity("--set", "model.dtype=bf16", "--tolerance", "0.5", RETRO)
    worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
    assert 1e-4 < worst < 0.5


LATENT = "deepseek", "glm4_moe_lite", "mistral4", "youtu"
EXPERTS = "moe", "solar_open", "dots1", "gpt_oss", "minimax", "granite_hybrid", "mellum"
INT8 = "--set", "model.cache_dtype=int8", "--set", "model.dtype=f32"


@pytest.mark.parametrize("cpu", VARIANTS)
def test_int8_keys_stay_near(cpu):
    """Keys and values of 8 bits move logits, and by little, except where a row meets another expert than before."""
    folders = [f for f in FOLDERS if not f.name.startswith(LATENT)]
    routed = [f for f in folders if any(part in f.name for part in EXPERTS)]
    for tolerance, some in (0.25, [f for f in folders if f not in routed]), (1.5, routed):
        done = parity(*INT8, "--tolerance", tolerance, *some, cpu=cpu)
        assert done.returncode == 0 and len(some) > 10, done.stdout + done.stderr
        worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
        assert worst > 0.05


def test_int8_keys_over_ranks():
    folders = [GOLDEN / name for name in ("t5/case_d", "hf/llama", "hf/gemma2", "hf/qwen3_next", "retro/case_b")]
    for ranks, some in ("parallel.tensor=2", folders), ("parallel.pipeline=2", folders[1:]):
        done = parity(*INT8, "--tolerance", "0.6", "--set", ranks, "--set", "parallel.comm=threads", *some)
        assert done.returncode == 0 and "tokens=ok" in done.stdout, done.stdout + done.stderr


def test_int8_keys_of_latents():
    done = parity(*INT8, GOLDEN / "hf/deepseek_v3")
    assert done.returncode == 1
    assert "latent attention" in done.stdout + done.stderr and "model.cache_dtype" in done.stdout + done.stderr


@pytest.mark.parametrize("folder", [f for f in FOLDERS if "t5" in str(f)], ids=lambda p: p.name)
def test_bf16_stays_near_with_an_encoder(folder):
    """Both stacks and the cross attention in bf16, and its keys and values."""
    done = parity("--set", "model.dtype=bf16", "--tolerance", "0.5", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
    assert worst > 1e-4
