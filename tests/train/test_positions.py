"""A longer context: old rows stay, new ones continue the waves."""

import pytest
import torch
from retro_train.config import ModelConfig
from retro_train.init import wave_rows
from retro_train.model import Retro
from retro_train.positions import continue_rows, widen_context
from test_train import MODEL


def test_rows_continue_the_waves():
    """What copy_init lays out, mixed into other dimensions and with noise."""
    torch.manual_seed(0)
    mixed = wave_rows(600, 16) @ torch.randn(16, 24) + 0.5
    rows = continue_rows(mixed[:400] + 0.01 * torch.randn(400, 24), 600, 16)
    assert rows.shape == (600, 24)
    assert (rows[400:] - mixed[400:]).norm() < 0.5 * mixed[400:].norm()


def test_a_wider_model_does_the_same_within_its_old_context():
    torch.manual_seed(0)
    model = Retro(ModelConfig.from_dict(MODEL))
    wide, ids = widen_context(model, 100), torch.randint(1, 400, (1, 64))
    assert wide.config.max_position_embeddings == 100
    assert torch.equal(wide.hidden(ids), model.hidden(ids))
    assert wide.hidden(torch.randint(1, 400, (1, 100))).isfinite().all()
    with pytest.raises(ValueError, match="fewer"):
        widen_context(model, 64)
    with pytest.raises(ValueError, match="rope"):
        widen_context(Retro(ModelConfig.from_dict(MODEL | {"position_embedding_type": "rope"})), 100)
