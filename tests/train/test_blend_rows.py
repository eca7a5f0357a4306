"""tests/reference/blend_rows.py: rows that are joined exactly give what the whole prompt gives."""

import sys
from pathlib import Path

import pytest
import torch
from retro_train.config import ModelConfig
from retro_train.export import write_model
from retro_train.model import Retro

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import blend_rows as br

POSITIONS = ("learned_absolute", "rope")
SIZE = br.BEFORE + br.QUESTION + br.ANSWER


def make(folder, positions, layers):
    """The model, the same for blend_rows, and a prompt. Weights are larger than at a training's start, so that places matter."""
    torch.manual_seed(0)
    model = Retro(ModelConfig("gpt", layers, 32, 2, 96, SIZE, positions, "gelu_tanh")).eval()
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    write_model(folder, model, None)
    return model, br.Decoder(folder), torch.randint(0, 96, (SIZE,))


def alone(decoder, ids):
    return br.join(decoder, list(ids[:br.BEFORE].split(br.LENGTH)), False)


def close(a, b):
    return torch.allclose(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_the_decoder_is_that_of_the_trainer(tmp_path, positions):
    model, decoder, ids = make(tmp_path, positions, 3)
    wanted = model.logits(model.hidden(ids[None])[0, -br.ANSWER - 1 : -1])
    assert close(br.exact(decoder, ids), wanted)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_all_rows_computed_again_are_the_prompt(tmp_path, positions):
    _, decoder, ids = make(tmp_path, positions, 3)
    whole, kept = br.exact(decoder, ids), alone(decoder, ids)
    for again in ({"share": 1.0}, {"first": br.LENGTH}):
        logits, rows = br.blended(decoder, ids, kept, **again)
        assert close(logits, whole) and rows == br.BEFORE + br.QUESTION
    few, rows = br.blended(decoder, ids, kept)
    assert not close(few, whole) and rows == br.QUESTION


@pytest.mark.parametrize("positions", POSITIONS)
@torch.inference_mode()
def test_rows_of_the_prompt_need_no_computing_again(tmp_path, positions):
    _, decoder, ids = make(tmp_path, positions, 3)
    kept = decoder.rows_alone(ids[:br.BEFORE], torch.arange(br.BEFORE))
    assert close(br.blended(decoder, ids, kept)[0], br.exact(decoder, ids))


@torch.inference_mode()
def test_rope_turns_keys_to_their_place(tmp_path):
    """Keys and values of a first layer are of their token alone, but for their place."""
    _, decoder, ids = make(tmp_path, "rope", 1)
    whole, kept = br.exact(decoder, ids), alone(decoder, ids)
    assert close(br.blended(decoder, ids, kept)[0], whole)
    elsewhere = [tuple(rows.roll(br.LENGTH, 0) for rows in layer) for layer in kept]
    assert not close(br.blended(decoder, ids, elsewhere)[0], whole)


@torch.inference_mode()
def test_a_model_that_it_does_not_compute_is_refused(tmp_path):
    write_model(tmp_path, Retro(ModelConfig("gpt", 1, 32, 2, 96, SIZE, "rope", "swiglu")), None)
    with pytest.raises(SystemExit, match="swiglu"):
        br.Decoder(tmp_path)
