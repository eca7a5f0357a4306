"""What travels to another machine: a data folder that trains the same, a checkpoint that goes on."""

import tarfile

import pytest
import standin
import torch
from retro_train import pack
from retro_train.config import ModelConfig
from retro_train.train import Ranks, Run, Trainer, train
from test_train import MODEL, curve, write_config


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("pack") / "data"
    standin.data_folder(path, ModelConfig.from_dict(MODEL))
    torch.set_num_threads(1)
    return path


def test_a_packed_folder_trains_the_same(tmp_path, data):
    (data / "collection/gen-000001/vectors.f32").write_bytes(b"\0" * 1000)
    pack.pack_data(data, tmp_path / "data.tar.xz")
    pack.pack_data(data, tmp_path / "again.tar.xz")
    assert (tmp_path / "data.tar.xz").read_bytes() == (tmp_path / "again.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "data.tar.xz") as archive:
        archive.extractall(tmp_path / "moved", filter="data")
    names = {p.name for p in (tmp_path / "moved").rglob("*")}
    assert "vectors.f32" not in names and "valid" in names and not (tmp_path / "moved/documents/train").exists()
    curves = []
    for folder in (data, tmp_path / "moved"):
        config = write_config(tmp_path / "run-of" / folder.name, folder, steps=8)
        curves.append(curve(train(config, tmp_path / folder.name / "run").folder))
    assert curves[0] == curves[1] and "on" in curves[0][8]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_small_checkpoint_goes_on(tmp_path, data, optimizer):
    config = write_config(tmp_path, data, optimizer=optimizer, evaluate_every=0)
    whole = Trainer(Run.create(config, tmp_path / "whole"), Ranks())
    half = Trainer(Run.create(config, tmp_path / "half"), Ranks())
    for _ in range(12):
        half.train_step(half.progress())
    half.save()

    (tmp_path / "other").mkdir()
    pack.pack_checkpoint(tmp_path / "half", tmp_path / "other/checkpoint.pt")
    assert (tmp_path / "other/checkpoint.pt").stat().st_size < 0.75 * (tmp_path / "half/checkpoint.pt").stat().st_size
    other = Trainer(Run.create(config, tmp_path / "other"), Ranks())
    assert other.step == 12 and all(p.dtype == torch.float32 for p in other.model.parameters())
    losses = {whole: [], other: []}
    for trainer in (whole, other):
        while trainer.progress() < 1:
            trainer.train_step(trainer.progress())
            losses[trainer].append(trainer.loss)
    assert len(losses[other]) == 12
    assert all(abs(a - b) < 0.02 for a, b in zip(losses[other], losses[whole][12:], strict=True))
