"""The mean of models that went on from each other."""

import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from retro_train import export
from retro_train.average import average_models
from retro_train.config import ModelConfig
from retro_train.model import Retro
from test_train import MODEL


def models_of(*seeds, **changes):
    for seed in seeds:
        torch.manual_seed(seed)
        yield Retro(ModelConfig.from_dict(MODEL | changes))


def test_every_parameter_is_the_weighted_mean():
    first, second = models_of(0, 1)
    mean = average_models([first, second], [1, 3])
    states = [m.state_dict() for m in (first, second, mean)]
    for name, got in states[2].items():
        torch.testing.assert_close(got, 0.25 * states[0][name] + 0.75 * states[1][name], msg=name)
    assert mean.config == second.config


def test_models_that_do_not_fit_are_refused():
    (one,), (wide,) = models_of(0), models_of(0, hidden_size=2 * MODEL["hidden_size"])
    with pytest.raises(ValueError, match="model 1 of 2 has other parameters"):
        average_models([wide, one], [1, 1])
    for weights in ([1], [1, -1], [0, 0]):
        with pytest.raises(ValueError, match="needs a weight for each"):
            average_models([one, one], weights)


def test_the_command(tmp_path):
    """Folders in, a folder out that has the last one's tokenizer."""
    for name, model in zip("ab", models_of(0, 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text(f'"{name}"')
        export.write_model(tmp_path / name, model, None)
    command = [sys.executable, "-m", "retro_train", "average", "--models", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "mean"]
    subprocess.run([*command, "--dtype", "f32"], cwd=ROOT / "tools", check=True)
    first, second = models_of(0, 1)
    want, got = average_models([first, second], [1, 1]).state_dict(), export.load_model(tmp_path / "mean").state_dict()
    assert all(torch.equal(got[name], want[name]) for name in want)
    assert (tmp_path / "mean/tokenizer.json").read_text() == '"b"'
