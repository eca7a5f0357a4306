"""Every decoder family as int8 and int4: it converts, opens and stays near its reference."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
NAMES = ("llama3", "mistral", "qwen2_window", "qwen3", "phi3", "gemma2", "gemma3_text", "gpt_neox_parallel", "olmo2",
         "granite", "smollm3", "starcoder2", "glm", "glm4", "seed_oss", "ernie4_5", "cohere2", "ministral3",
         "hunyuan_v1_dense", "granite_swa", "exaone4", "ministral", "arcee", "nemotron", "apertus")
LAYERED = ("gemma4", "gemma4_text", "gemma4_keys", "lfm3", "olmo_hybrid")
ROUTED = ("llama4", "mellum", "hunyuan_v1_moe_stacked", "gemma4_moe", "gemma4_moe_text", "granitemoe", "granitemoeshared", "granitemoe_swa", "olmoe_stacked", "dots1_stacked", "afmoe_stacked")
LATENT = ("deepseek_v2", "deepseek_v2_stacked", "mistral4", "youtu")  # a change may send a token to other experts
STATES = ("qwen3_5_text", "lfm2", "granite_hybrid_rope", "nemotron_h")  # products of products, and norms behind small sums, make the steps of small matrices larger


@pytest.mark.parametrize("kind, bound, names", [("int8", 0.6, NAMES), ("int4", 3, NAMES), ("int8", 2, STATES), ("int4", 4, STATES),
                                                ("int8", 2, LATENT), ("int4", 6, LATENT),
                                                ("int8", 2, LAYERED), ("int4", 6, LAYERED), ("int8", 2, ROUTED), ("int4", 8, ROUTED)])
def test_decoders(tmp_path, kind, bound, names):
    """Matrices of 32 columns are one block a row; int4 keeps little of such small ones; logits of unrelated models are 8 apart."""
    folders = []
    for name in names:
        source, folder = ROOT / "tests/golden/hf" / name, tmp_path / name
        done = subprocess.run([BUILD / "retro-convert", source, folder, "--to", kind], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        shutil.copy(source / "cases.safetensors", folder)
        folders.append(folder)
    done = subprocess.run([BUILD / "retro-eval", "parity", "--tolerance", str(bound), *folders], capture_output=True, text=True)
    assert done.returncode == 0 and f"{4 * len(names)} passed" in done.stdout, done.stdout + done.stderr
