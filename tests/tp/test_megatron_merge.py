"""tools/megatron_merge.py: a checkpoint of Megatron's on two tensor parallel ranks becomes the model folder it was split
from, bit by bit, and bad checkpoints are refused with their reason."""
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
WHOLE = ROOT / "tests/golden/retro/case_b"
PARTS = ROOT / "tests/golden/retro/case_b_tp2"


def merge(*arguments):
    command = [sys.executable, ROOT / "tools/megatron_merge.py", *map(str, arguments), "--vocab-size", "250"]
    return subprocess.run(command, capture_output=True, text=True)


def tensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def test_merged_is_whole(tmp_path):
    done = merge(PARTS, tmp_path, "--eod", 249)
    assert done.returncode == 0, done.stderr
    assert "2 ranks" in done.stdout
    assert tensors(tmp_path / "model.safetensors") == tensors(WHOLE / "model.safetensors")
    made, want = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, WHOLE))
    assert made.pop("torch_dtype") == "float32" and made.pop("eod_token_id") == 249
    assert made == {key: want[key] for key in made}
    for name in ("cases.safetensors", "generation.safetensors"):
        shutil.copy(WHOLE / name, tmp_path)
    parity = subprocess.run([BUILD / "retro-eval", "parity", tmp_path], capture_output=True, text=True)
    assert parity.returncode == 0 and parity.stdout.endswith(" 0 failed\n"), parity.stdout + parity.stderr


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(PARTS, folder)
    return folder


def rank(folder, number):
    return folder / f"iter_0000001/mp_rank_{number:02d}/model_optim_rng.pt"


def refused(copy, words):
    done = merge(copy, copy / "out")
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (copy / "out/config.json").exists()


def test_missing_rank(copy):
    shutil.rmtree(rank(copy, 0).parent)
    refused(copy, "ranks mp_rank_01; expected mp_rank_00")


def test_missing_iteration(copy):
    (copy / "latest_checkpointed_iteration.txt").write_text("7")
    refused(copy, "iter_0000007 holds no mp_rank_*/model_optim_rng.pt")


def test_no_archive(copy):
    rank(copy, 1).write_bytes(b"PK not really")
    refused(copy, "not a file of torch.save")


def test_ranks_of_two_models(copy):
    """What all ranks share differs: these parts do not belong together."""
    path, changed = rank(copy, 1), copy / "changed.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, bytes(len(data)) if "/data/" in name else data)
    changed.replace(path)
    refused(copy, "differs between ranks")


def test_pickles_run_nothing(copy):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(copy / "was-here"),)

    with zipfile.ZipFile(rank(copy, 1), "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps({"model": {}, "args": Hostile()}))
    refused(copy, "hold different tensors")
    assert not (copy / "was-here").exists()
