"""tools/megatron_merge.py: a checkpoint of Megatron's on two tensor parallel ranks becomes the model folder it was split
from, bit by bit; so does the same cut into pipeline stages; and bad checkpoints are refused with their reason."""
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import types
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("RETRO_BUILD", "build")
WHOLE = ROOT / "tests/golden/retro/case_b"
PARTS = ROOT / "tests/golden/retro/case_b_tp2"
sys.path.insert(0, str(ROOT / "tools"))
import megatron_merge  # noqa: E402


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
    assert "1 stages of 2 ranks" in done.stdout
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
    refused(copy, "holds mp_rank_01; 2 tensor parallel ranks of 1 pipeline stages are mp_rank_00, mp_rank_01")


def test_missing_iteration(copy):
    (copy / "latest_checkpointed_iteration.txt").write_text("7")
    refused(copy, "iter_0000007 holds no mp_rank_*/model_optim_rng.pt")


def test_no_archive(copy):
    rank(copy, 1).write_bytes(b"PK not really")
    refused(copy, "not a file of torch.save")


def test_ranks_of_two_models(copy):
    """Tensors that all ranks share differ: these parts do not belong together."""
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


@pytest.fixture
def torch(monkeypatch):
    """The few names of PyTorch that a checkpoint's pickle mentions."""
    module, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    utils._rebuild_tensor_v2 = lambda *_: None
    utils._rebuild_tensor_v2.__module__, utils._rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    module.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return module


def save(path, tensors, args, torch):
    """The bytes that torch.save makes of {"model": tensors, "args": args}; tensors are float32 arrays."""
    class Stored:
        def __init__(self, name):
            self.name = name

        def __reduce__(self):
            array, step, strides = tensors[self.name], 1, []
            for n in reversed(array.shape):
                strides.insert(0, step)
                step *= n
            storage = Storage(self.name)
            return torch_utils._rebuild_tensor_v2, (storage, 0, array.shape, tuple(strides), False, None)

    class Storage:
        def __init__(self, name):
            self.name = name

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if isinstance(thing, Storage):
                return "storage", torch.FloatStorage, thing.name, "cpu", tensors[thing.name].size
            return None

    torch_utils = sys.modules["torch._utils"]
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as z:
        with z.open("archive/data.pkl", "w") as f:
            Pickler(f, 2).dump({"model": {name: Stored(name) for name in tensors}, "args": args})
        for name, array in tensors.items():
            z.writestr(f"archive/data/{name}", array.tobytes())


def cut(folder, first_layers, torch, tied=False):
    """The two ranks' checkpoint cut before these layers, each stage counting its own from 0. With `tied`, as a model
    whose output matrix is its word table, of which the last stage has a copy."""
    ends = [*first_layers[1:], 12]
    for r, archive in enumerate(megatron_merge.find_stages(PARTS, None)[0]):
        whole = {name: t.read(archive).view("<f4") for name, t in archive.tensors.items()}
        if tied:
            whole["output_layer.weight"] = whole["embedding.word_embeddings.weight"]
        args = archive.content["args"]
        args.pipeline_model_parallel_size = len(ends)
        args.untie_embeddings_and_output_weights = not tied
        del args.params_dtype, args.attention_backend
        for s, (first, end) in enumerate(zip(first_layers, ends)):
            here = {}
            for name, array in whole.items():
                parts = name.split(".")
                if parts[0] == "decoder" and first <= int(parts[2]) < end:
                    here[".".join([*parts[:2], str(int(parts[2]) - first), *parts[3:]])] = array
                elif name.startswith("embedding.") and s == 0 or name == "output_layer.weight" and end == 12:
                    here[name] = array
            save(folder / f"iter_0000001/mp_rank_{r:02d}_{s:03d}/model_optim_rng.pt", here, args, torch)
    (folder / "latest_checkpointed_iteration.txt").write_text("1")


@pytest.mark.parametrize("first_layers", [[0, 6], [0, 4, 8], [0, 1, 2, 11]])
def test_stages(tmp_path, torch, first_layers):
    cut(tmp_path / "stages", first_layers, torch)
    done = merge(tmp_path / "stages", tmp_path / "out")
    assert done.returncode == 0 and f"{len(first_layers)} stages of 2 ranks" in done.stdout, done.stderr
    assert tensors(tmp_path / "out/model.safetensors") == tensors(WHOLE / "model.safetensors")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["retro_layers"] == json.loads((WHOLE / "config.json").read_text())["retro_layers"]


def test_tied_stages(tmp_path, torch):
    """The copy is left out when it is one, and refused when it is not."""
    cut(tmp_path / "stages", [0, 6], torch, tied=True)
    assert merge(tmp_path / "stages", tmp_path / "out").returncode == 0
    made, whole = tensors(tmp_path / "out/model.safetensors"), tensors(WHOLE / "model.safetensors")
    del whole["output_layer.weight"]
    assert made == whole
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is True
    last = tmp_path / "stages/iter_0000001/mp_rank_01_001/model_optim_rng.pt"
    with zipfile.ZipFile(last) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(last, "w") as new:
        for name, data in content.items():
            new.writestr(name, bytes(len(data)) if name.endswith("output_layer.weight") else data)
    refused(tmp_path / "stages", "output_layer.weight differs from the word embeddings")


def test_missing_stage(tmp_path, torch):
    cut(tmp_path, [0, 6], torch)
    for r in range(2):
        shutil.rmtree(tmp_path / f"iter_0000001/mp_rank_{r:02d}_001")
    refused(tmp_path, "2 tensor parallel ranks of 2 pipeline stages are mp_rank_00_000, mp_rank_00_001, mp_rank_01_000")


def test_stages_with_too_few_layers(tmp_path, torch):
    cut(tmp_path, [1, 6], torch)
    refused(tmp_path, "2 stages hold 11 layers; the checkpoint's arguments say 12")
