"""The loop: a killed run goes on to the identical curve, losses fall, export is what was trained, evaluation is exact."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import standin
import torch
from retro_train import export
from retro_train.config import ModelConfig
from retro_train.evaluate import cut_windows, evaluate
from retro_train.init import copy_init
from retro_train.model import Neighbours, Retro
from retro_train.neighbours import Collection, read_neighbours
from retro_train.optim import learning_rate
from retro_train.train import Ranks, Run, Trainer, TrainOptions, train

TOOLS = Path(__file__).resolve().parents[2] / "tools"
MODEL = {"architecture": "retro", "num_layers": 3, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 400,
         "max_position_embeddings": 64, "position_embedding_type": "learned_absolute", "activation": "gelu_tanh",
         "retro_layers": [2, 3], "retro_chunk_length": 8, "retro_num_neighbors": 2, "eod_token_id": 0}
TRAIN = {"sequence": 32, "batch": 4, "steps": 24, "warmup_steps": 4, "learning_rate": 3e-3, "log_every": 1, "evaluate_every": 8,
         "evaluate_documents": 2, "checkpoint_minutes": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("train") / "data"
    standin.data_folder(path, ModelConfig.from_dict(MODEL))
    torch.set_num_threads(1)
    return path


def write_config(folder, data, model=MODEL, **options):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model": model, "data": str(data), "train": TRAIN | options}))
    return folder / "config.json"


def curve(run):
    return [json.loads(line) for line in (run / "curves.jsonl").read_text().splitlines()]


def start(config, out):
    command = [sys.executable, "-m", "retro_train", "train", "--config", config, "--out", out]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(TOOLS), "OMP_NUM_THREADS": "1"},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_kill_and_resume_gives_the_identical_curve(tmp_path, data, optimizer):
    config = write_config(tmp_path, data, optimizer=optimizer)
    train(config, tmp_path / "whole")
    process = start(config, tmp_path / "killed")
    curves, deadline = tmp_path / "killed/curves.jsonl", time.monotonic() + 600
    # Until a third of the run is on disk, at whatever point of a step or of a checkpoint.
    while not curves.exists() or curves.read_text().count("\n") <= 8:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = len(curve_whole_lines(tmp_path / "killed"))
    process = start(config, tmp_path / "killed")
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0 and "resumed at step" in output, output
    assert 0 < before < len(curve(tmp_path / "whole"))
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")
    weights = [torch.load(tmp_path / r / "checkpoint.pt", weights_only=True)["model"] for r in ("whole", "killed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (tmp_path / "killed/curves.png").read_bytes()[:4] == b"\x89PNG"


def stop_behind(config, out, lines):
    """A run that is told to stop when so many lines of its curve are on the disk."""
    process, curves, deadline = start(config, out), out / "curves.jsonl", time.monotonic() + 600
    while not curves.exists() or curves.read_text().count("\n") <= lines:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, output


def test_a_flat_run_goes_on_and_others_branch_off(tmp_path, data):
    """It ends when it is told to, at a whole step, and goes on there. A branch has the flat run's weights, state and batches."""
    flat = {"schedule": "flat", "steps": None, "evaluate_every": 0, "checkpoint_minutes": 60}
    config = write_config(tmp_path, data, **flat)
    stop_behind(config, tmp_path / "flat", 8)
    stopped = torch.load(tmp_path / "flat/checkpoint.pt", weights_only=True)["summary"]
    assert stopped["step"] == curve(tmp_path / "flat")[-1]["step"] > 8 and stopped["first"] == 0

    branch = {"from": "flat", "data": str(data), "train": TRAIN | {"schedule": "linear", "steps": 6, "evaluate_every": 0}}
    (tmp_path / "branch.json").write_text(json.dumps(branch))
    first = Trainer(Run.create(tmp_path / "branch.json", tmp_path / "first"), Ranks())
    assert first.step == first.first == stopped["step"] and first.progress() == 0
    stop_behind(config, tmp_path / "flat", stopped["step"] + 8)
    steps = [r["step"] for r in curve(tmp_path / "flat")]
    assert steps == list(range(1, steps[-1] + 1)) and steps[-1] > stopped["step"] + 8

    train(tmp_path / "branch.json", tmp_path / "first")  # from where it branched off, although the flat run went on
    branched = curve(tmp_path / "first")
    assert [r["step"] for r in branched] == [stopped["step"] + i for i in range(1, 7)]
    assert abs(branched[0]["loss"] - curve(tmp_path / "flat")[stopped["step"]]["loss"]) < 1e-6
    export.export_run(tmp_path / "first", tmp_path / "model", "f32", None, "x")
    assert f"| initialisation | step {stopped['step']} of flat |" in (tmp_path / "model/README.md").read_text()


def test_budgets_and_schedules():
    with pytest.raises(ValueError, match="neither"):
        TrainOptions(schedule="flat", steps=3)
    with pytest.raises(ValueError, match="steps or minutes"):
        TrainOptions(schedule="linear")
    with pytest.raises(ValueError, match='schedule "falt"'):
        TrainOptions(schedule="falt", steps=3)
    rates = {name: [learning_rate(TrainOptions(schedule=name, steps=None if name == "flat" else 1, final_rate=0.1, learning_rate=1), 999, x)
                    for x in (0, 0.3, 0.65, 1)] for name in ("flat", "linear", "flat-linear")}
    assert rates["flat"] == [1, 1, 1, 1]
    assert np.allclose(rates["linear"], [1, 0.73, 0.415, 0.1]) and np.allclose(rates["flat-linear"], [1, 1, 0.55, 0.1])


def curve_whole_lines(run):
    return [line for line in (run / "curves.jsonl").read_text().splitlines(True) if line.endswith("\n")]


def test_losses_fall_and_other_configurations_are_refused(tmp_path, data):
    config = write_config(tmp_path, data, steps=60, learning_rate=1e-2, checkpoint_minutes=60)
    train(config, tmp_path / "run")
    losses = [r["loss"] for r in curve(tmp_path / "run") if "loss" in r]
    assert len(losses) == 60 and np.mean(losses[-5:]) < np.mean(losses[:5]) - 1
    assert {"on", "off", "random"} <= set(curve(tmp_path / "run")[8])
    with pytest.raises(ValueError, match="another configuration"):
        train(write_config(tmp_path, data, steps=61), tmp_path / "run")
    with pytest.raises(ValueError, match="unknown stesp"):
        train(write_config(tmp_path, data, stesp=61), tmp_path / "other")


def test_accumulation_is_the_same_step(tmp_path, data):
    after = []
    for parts in (1, 4):
        config = write_config(tmp_path / str(parts), data, accumulate=parts, steps=1, evaluate_every=0, optimizer="adamw", clip=1e9)
        train(config, tmp_path / str(parts) / "run")
        after.append(curve(tmp_path / str(parts) / "run")[0]["loss"])
    assert abs(after[0] - after[1]) < 1e-5


def test_two_processes_train_as_one(tmp_path, data):
    """torchrun over gloo: the same batches, so nearly the same losses: each process weighs the scored tokens of its own rows,
    and rows differ in how much padding they hold."""
    config = write_config(tmp_path, data, steps=6, evaluate_every=0)
    train(config, tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "retro_train",
               "train", "--config", config, "--out", tmp_path / "two"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(TOOLS), "OMP_NUM_THREADS": "1"}, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for a, b in zip(curve(tmp_path / "one"), curve(tmp_path / "two"), strict=True):
        assert abs(a["loss"] - b["loss"]) < 0.02


def test_export_is_what_was_trained(tmp_path, data):
    config = write_config(tmp_path, data, steps=4, evaluate_every=0)
    run = train(config, tmp_path / "run")
    export.export_run(tmp_path / "run", tmp_path / "model", "f32", None, "retro_train export")
    again, trained = export.load_model(tmp_path / "model"), torch.load(run.checkpoint, weights_only=True)["model"]
    assert all(torch.equal(t, trained[name]) for name, t in again.state_dict().items())
    values = json.loads((tmp_path / "model/config.json").read_text())
    assert MODEL.items() <= values.items()
    assert (tmp_path / "model/tokenizer.json").read_bytes() == (data / "model/tokenizer.json").read_bytes()
    card = (tmp_path / "model/README.md").read_text()
    assert "| steps | 4 |" in card and "| tokens seen | 512 |" in card and "retro_train export" in card


def test_freezing_the_base_leaves_it_alone(tmp_path, data):
    config = write_config(tmp_path, data, steps=3, evaluate_every=0, freeze_base=True, init="normal")
    trainer = Trainer(Run.create(config, tmp_path / "run"), Ranks())
    before = {name: t.clone() for name, t in trainer.model.state_dict().items()}
    trainer.run_all()
    for name, t in trainer.model.state_dict().items():
        new = "cross_attention" in name or "pre_cross_attn" in name
        assert torch.equal(t, before[name]) != (new and not name.endswith("bias")) or (new and name.endswith("bias"))


def test_a_plain_gpt_trains_on_the_same_folder(tmp_path, data):
    model = {k: v for k, v in MODEL.items() if not k.startswith("retro_")} | {"architecture": "gpt"}
    train(write_config(tmp_path, data, model=model, steps=3, init="normal"), tmp_path / "run")
    export.export_run(tmp_path / "run", tmp_path / "model", "bf16", None, "x")
    assert export.load_model(tmp_path / "model").config.architecture == "gpt"


@torch.no_grad()
def test_copy_init_finds_the_answer():
    """A window whose next token stands in a neighbour behind the current one: the first cross attention looks there."""
    c = ModelConfig.from_dict(MODEL | {"hidden_size": 192, "num_attention_heads": 3, "retro_layers": [2], "vocab_size": 2000,
                                       "retro_chunk_length": 64, "max_position_embeddings": 256})
    torch.manual_seed(0)
    model = Retro(c)
    copy_init(model)
    shares, text = [], torch.randint(1, 2000, (1, 128))
    neighbours = Neighbours(torch.stack([text, torch.randint(1, 2000, (1, 128))], 1)[None], torch.tensor([64]))
    cross = model.decoder.layers[1].cross_attention.attn
    original = cross.forward

    def watch(x, context, mask=None):
        h = 64
        q = cross.linear_q(x).view(-1, 3, h)
        k = cross.linear_kv(context).view(-1, 3, 2, h)[:, :, 0]
        weights = torch.einsum("qhd,khd->hqk", q, k).div(8).softmax(-1)
        # The window starts at row 63, so its row i holds token 63 + i; the answer is the neighbour's place 64 + i.
        shares.append(weights[:2, range(63), range(64, 127)].mean().item())
        return original(x, context, mask)

    cross.forward = watch
    model.hidden(torch.cat([text, text[:, :1]], 1)[:, :127], neighbours)
    assert shares[0] > 0.1  # at random it is 1 / 256


@torch.no_grad()
def test_evaluation_is_the_sum_over_single_windows(data):
    """Against the definition computed window by window, without batches."""
    vocabulary = standin.tokenizer.Vocabulary(data / "model/tokenizer.json")
    torch.manual_seed(0)
    model = Retro(ModelConfig.from_dict(MODEL)).eval()
    for p in model.parameters():
        p += 0.1 * torch.randn_like(p)
    collection = Collection(data / "collection")
    texts = [text for _, text in standin.documents(5, seed=9)] + ["Grüße "]
    documents = [vocabulary.encode(t) for t in texts]
    chunks = sum(len(d) // 8 for d in documents)
    found = np.random.default_rng(0).integers(-1, len(collection), (chunks, 2))
    found.sort(1)
    found = found[:, ::-1].copy()  # missing ones last
    result = evaluate(model, documents, vocabulary, 32, found, collection)
    bits, size, chunk = {"on": 0.0, "off": 0.0}, 0, 0
    for d in documents:
        for at in range(0, len(d), 32):
            w = torch.from_numpy(d[at : at + 32])[None]
            rows = w.shape[1] // 8
            mine = found[chunk : chunk + rows]
            chunk += rows
            if w.shape[1] < 2:
                continue
            size += len(vocabulary.tokenizer.decode(w[0, 1:].tolist()).encode()) if w.shape[1] > 7 else vocabulary.bytes[d[at + 1 : at + 32]].sum()
            ids = torch.from_numpy(collection.neighbour_tokens(mine, 16))[None]
            read = Neighbours(ids, torch.tensor([8]), torch.from_numpy((mine >= 0).sum(1))[None]) if rows else None
            for mode, n in (("on", read), ("off", None)):
                p = model.logits(model.hidden(w, n)).log_softmax(-1)[0, :-1].gather(1, w[0, 1:, None])
                bits[mode] -= p.sum().item() / np.log(2)
    assert result["bytes"] == size
    for mode in bits:
        assert abs(result["modes"][mode]["bits_per_byte"] - bits[mode] / size) < 1e-5
        assert result["modes"][mode]["low"] <= result["modes"][mode]["bits_per_byte"] <= result["modes"][mode]["high"]
    assert bits["on"] != bits["off"]


def test_windows_are_whole_chunks():
    windows = cut_windows([np.arange(70), np.arange(33)], 32, 8)
    assert [(w.document, len(w.tokens), w.chunk) for w in windows] == [(0, 32, 0), (0, 32, 4), (0, 6, 8), (1, 32, 8)]
    with pytest.raises(ValueError, match="multiple"):
        cut_windows([np.arange(70)], 30, 8)


def test_neighbours_of_validation_are_read_in_order(data):
    found = read_neighbours(data / "valid.neighbours")
    vocabulary = standin.tokenizer.Vocabulary(data / "model/tokenizer.json")
    chunks = sum(len(vocabulary.encode(p.read_text())) // 8 for p in (data / "documents/valid").glob("*.txt"))
    assert found.ids.shape == (chunks, 2)


def test_a_compiled_decoder_trains_the_same(tmp_path, data, monkeypatch):
    """Traced as on a GPU, without a compiler behind it; batches have many numbers of chunks that read neighbours."""
    plain, frames = torch.nn.Module.compile, []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: frames.append(self) or plain(self, backend="aot_eager"))
    for compiled in (False, True):
        config = write_config(tmp_path / str(compiled), data, steps=4, evaluate_every=4, compile=compiled)
        train(config, tmp_path / str(compiled) / "run")
    assert len(frames) == 3  # layers
    for a, b in zip(curve(tmp_path / "False/run"), curve(tmp_path / "True/run"), strict=True):
        assert a.keys() == b.keys() and all(abs(a[key] - b[key]) < 1e-4 for key in a)
    export.export_run(tmp_path / "True/run", tmp_path / "model", "f32", None, "x")  # the names of weights are as ever
    assert export.load_model(tmp_path / "model").config.num_layers == 3
