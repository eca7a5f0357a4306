"""The PyTorch model against Megatron-Core's logits, layers and greedy tokens (tests/golden/retro)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from retro_train.config import ModelConfig
from retro_train.model import Neighbours, Retro

GOLDEN = Path(__file__).resolve().parents[1] / "golden/retro"
FOLDERS = sorted(p.parent.name for p in GOLDEN.glob("*/model.safetensors"))
TOLERANCE = 1e-4  # the reference's own float32 rounding is 1e-5


def load(folder, **changes):
    values = json.loads((GOLDEN / folder / "config.json").read_text())
    model = Retro(ModelConfig.from_dict(values | changes))
    model.load_state_dict(load_file(GOLDEN / folder / "model.safetensors"), strict=True)
    return model.eval(), values


def close(actual, expected):
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max().item() < TOLERANCE


def first_chunk(n, m):
    return n % m or m


def all_cases():
    for folder in FOLDERS:
        for case in json.loads((GOLDEN / folder / "config.json").read_text())["cases"]:
            yield folder, case["name"]


@pytest.mark.parametrize("folder, name", list(all_cases()))
@torch.no_grad()
def test_forward(folder, name):
    model, _ = load(folder)
    case = {k.removeprefix(name + "."): v for k, v in load_file(GOLDEN / folder / "cases.safetensors").items()
            if k.startswith(name + ".")}
    ids, m = case["tokens"].long(), model.config.retro_chunk_length
    neighbours = Neighbours(case["neighbors"].long(), torch.full((ids.shape[0],), first_chunk(ids.shape[1], m)))
    trace = []
    hidden = model.hidden(ids, neighbours, trace)
    close(model.embedding(ids), case["embedding"])
    close(neighbours.hidden.view_as(case["encoder"]), case["encoder"])
    for i, layer in enumerate(trace):
        close(layer, case[f"layer.{i}"])
    close(model.logits(hidden), case["logits"])


def generation_cases():
    for folder in FOLDERS:
        for case in json.loads((GOLDEN / folder / "config.json").read_text()).get("generation", []):
            yield folder, case["name"]


@pytest.mark.parametrize("folder, name", list(generation_cases()))
@torch.no_grad()
def test_generation_on_the_prompt_end_grid(folder, name):
    model, values = load(folder)
    case = {k.removeprefix(name + "."): v for k, v in load_file(GOLDEN / folder / "generation.safetensors").items()
            if k.startswith(name + ".")}
    ids, m = case["prompt"].long()[None], model.config.retro_chunk_length
    f = torch.tensor([first_chunk(ids.shape[1], m)])
    for token, logits in zip(case["tokens"].tolist(), case["logits"]):
        chunks = 1 + (ids.shape[1] - int(f)) // m
        found = Neighbours(case["neighbors"].long()[None, :chunks], f)
        last = model.logits(model.hidden(ids, found)[0, -1])
        close(last, logits)
        assert last[: values["vocab_size"]].argmax().item() == token
        ids = torch.cat([ids, torch.tensor([[token]])], 1)


@torch.no_grad()
def test_a_batch_of_different_grids_is_its_sequences_alone():
    model, _ = load("case_a")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 250, (4, 24), generator=generator)
    found = torch.randint(0, 250, (4, 3, 2, 16), generator=generator)
    f, counts = torch.tensor([8, 1, 5, 8]), torch.tensor([[2, 2, 2], [2, 0, 2], [1, 2, 0], [0, 0, 0]])
    together = model.hidden(ids, Neighbours(found, f, counts))
    for i in range(4):
        alone = model.hidden(ids[i:i + 1], Neighbours(found[i:i + 1], f[i:i + 1], counts[i:i + 1]))
        close(together[i:i + 1], alone)
    close(together[3:], model.hidden(ids[3:]))  # no neighbours at all: cross attention is skipped
    # A chunk with one neighbour is the chunk that was given only this one.
    one = model.hidden(ids[:1], Neighbours(found[:1, :, :1], f[:1]))
    close(model.hidden(ids[:1], Neighbours(found[:1], f[:1], torch.ones(1, 3))), one)
    assert (one - together[:1]).abs().max() > 0.01


@torch.no_grad()
def test_rows_before_the_first_closing_ignore_neighbours():
    model, _ = load("case_a")
    ids = torch.arange(24)[None]
    a, b = (model.hidden(ids, Neighbours(torch.full((1, 3, 2, 16), t), torch.tensor([5]))) for t in (3, 9))
    assert torch.equal(a[:, :4], b[:, :4])
    assert (a[:, 4:] - b[:, 4:]).abs().amax(-1).min() > 1e-3


@torch.no_grad()
def test_zero_centred_gamma_stores_one_less():
    model, _ = load("case_c")
    centred, _ = load("case_c", layernorm_zero_centered_gamma=True)
    for name, p in centred.named_parameters():
        if "norm" in name and name.endswith("weight"):
            p -= 1
    ids = torch.arange(16)[None]
    close(centred.logits(centred.hidden(ids)), model.logits(model.hidden(ids)))


@torch.no_grad()
def test_bfloat16_attention_on_the_cpu_is_attention():
    model, _ = load("case_a")
    ids, found = torch.arange(24)[None], torch.arange(96).view(1, 3, 2, 16)
    exact = model.hidden(ids, Neighbours(found, torch.tensor([8]), torch.tensor([[2, 1, 0]])))
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.hidden(ids, Neighbours(found, torch.tensor([8]), torch.tensor([[2, 1, 0]])))
    assert (rough - exact).abs().max() < 0.05 * exact.abs().max()


def test_too_few_neighbour_sets_are_refused():
    model, _ = load("case_a")
    with pytest.raises(ValueError, match="2 neighbour sets"):
        model.hidden(torch.arange(24)[None], Neighbours(torch.zeros(1, 2, 2, 16, dtype=torch.long), torch.tensor([8])))
