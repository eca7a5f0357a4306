"""The reference's logits and greedy tokens through the CUDA kernels, on the emulated device."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import ports

BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
GOLDEN = ROOT / "tests/golden"
FOLDERS = sorted(p.parent for p in (GOLDEN / "retro").glob("*/config.json"))
DECODERS = [GOLDEN / "hf" / name for name in ("gemma2", "gemma3_text", "gemma4", "gemma4_keys", "gemma4_moe", "gemma4_moe_text", "hunyuan_v1_moe", "gpt_neox_parallel", "gpt_oss", "granite", "granite_hybrid", "granite_hybrid_rope", "hunyuan_v1_dense", "lfm2_biases", "lfm2_moe", "ministral3", "mixtral", "nemotron_h", "nemotron_h_moe", "olmo2",
                                              "phi3", "qwen2_moe", "qwen3_5", "qwen3_moe", "qwen3_next", "smollm3", "starcoder2",
                                              "afmoe", "apertus", "exaone4", "granite_swa", "lfm3", "mellum", "nemotron", "olmo_hybrid")]
T5 = sorted(p.parent for kind in ("t5/*", "hf/t5_*") for p in GOLDEN.glob(f"{kind}/config.json"))


def parity(*arguments, program=BUILD / "cuda_host/retro-eval"):
    return subprocess.run([program, "parity", *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("folder", FOLDERS + T5, ids=lambda p: p.name)
def test_reference_logits(folder):
    done = parity("--set", "model.device=cuda-host", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 2 and all("tokens=ok" in line for line in lines[:-1])


def test_decoders():
    done = parity("--set", "model.device=cuda-host", *DECODERS)
    assert done.returncode == 0 and f"{4 * len(DECODERS)} passed" in done.stdout, done.stdout + done.stderr


def test_latents_are_refused():
    """Their rows are longer than what a tile of the kernels holds."""
    done = parity("--set", "model.device=cuda-host", GOLDEN / "hf/deepseek_v3")
    assert done.returncode == 1 and "has latent attention" in done.stderr and 'use the device "cpu"' in done.stderr, done.stderr


def test_chunks_are_refused():
    done = parity("--set", "model.device=cuda-host", GOLDEN / "hf/llama4")
    assert done.returncode == 1 and "attention in chunks" in done.stderr and 'use the device "cpu"' in done.stderr, done.stderr


def test_pictures():
    """All but those of a decoder with latents."""
    folders = sorted(p.parent for p in GOLDEN.glob("vision/*/config.json") if p.parent.name != "mistral4_vl")
    done = parity("--set", "model.device=cuda-host", *folders)
    assert done.returncode == 0 and done.stdout.count("max_abs") > 40, done.stdout + done.stderr


@pytest.mark.parametrize("folders", [FOLDERS[1:3], T5], ids=["retro", "t5"])
def test_bf16_stays_near(folders):
    """bf16 weights, inputs of products and cache move these small models' logits by less than 0.5."""
    done = parity("--set", "model.device=cuda-host", "--set", "model.dtype=bf16", "--tolerance", "0.5", *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    worst = max(float(line.split("max_abs=")[1].split()[0]) for line in done.stdout.splitlines()[:-1])
    assert 1e-4 < worst < 0.5


@pytest.mark.parametrize("folder", [FOLDERS[0], T5[0], GOLDEN / "hf/olmo2"], ids=["retro", "t5", "olmo2"])
def test_two_ranks(folder):
    """Two processes, each with an emulated device of its own, share heads, MLP and vocabulary."""
    command = [BUILD / "cuda_host/retro-eval", "parity", "--tolerance", "2e-4", "--set", "model.device=cuda-host",
               "--set", "parallel.tensor=2", "--set", f"parallel.rendezvous=127.0.0.1:{ports.find(2)}"]
    ranks = [subprocess.Popen([*command, "--set", f"parallel.rank={rank}", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    lines = outputs[0][0].splitlines()
    assert len(lines) > 2 and all("tokens=ok" in line for line in lines[:-1]), outputs


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
