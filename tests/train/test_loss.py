"""The blocked cross entropy and the blocked causal attention against their definitions, values and gradients."""

import math

import pytest
import torch
from retro_train import loss, model


def gradients(value, *inputs):
    return [value.detach(), *torch.autograd.grad(value, inputs)]


@pytest.mark.parametrize("rows", [1, 7, 64])  # of a block; 21 rows are one block, three, and more
def test_cross_entropy_is_pytorchs(rows, monkeypatch):
    monkeypatch.setitem(loss.ROWS, "cpu", rows)
    torch.manual_seed(0)
    hidden, weight = torch.randn(21, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    targets = torch.randint(0, 50, (21,))
    targets[[0, 6, 20]] = -1
    ours = gradients(3 * loss.cross_entropy(hidden, weight, targets), hidden, weight)
    expected = gradients(3 * torch.nn.functional.cross_entropy(hidden @ weight.T, targets, ignore_index=-1), hidden, weight)
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == b.dtype and torch.allclose(a, b, atol=2e-6), (a - b).abs().max()
    assert not ours[1][[0, 6, 20]].any()


def test_a_hopeless_word_has_a_finite_loss():
    """Its share of the softmax is zero in float32."""
    hidden, weight = torch.tensor([[200.0]], requires_grad=True), torch.tensor([[1.0], [-1.0]], requires_grad=True)
    value = loss.cross_entropy(hidden, weight, torch.tensor([1]))
    assert value.item() == 400
    assert torch.allclose(torch.autograd.grad(value, hidden)[0], torch.tensor([[2.0]]))


def test_in_bfloat16_it_is_as_near_as_pytorchs():
    torch.manual_seed(0)
    hidden, weight = torch.randn(300, 64, requires_grad=True), torch.randn(1000, 64).mul(0.2).requires_grad_()
    targets = torch.randint(0, 1000, (300,))
    exact = gradients(torch.nn.functional.cross_entropy(hidden @ weight.T, targets), hidden, weight)
    with torch.autocast("cpu", torch.bfloat16):
        ours = gradients(loss.cross_entropy(hidden, weight, targets), hidden, weight)
        theirs = gradients(torch.nn.functional.cross_entropy((hidden @ weight.T).float(), targets), hidden, weight)
    for a, b, x in zip(ours, theirs, exact, strict=True):
        assert a.dtype == torch.float32 and (a - x).norm() <= 1.1 * (b - x).norm() + 1e-3 * x.norm()


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_causal_attention_in_blocks(rows):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, rows, 16, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    exact = [x.detach().float().requires_grad_() for x in (q, k, v)]
    scores = exact[0] @ exact[1].transpose(-1, -2) / math.sqrt(16)
    expected = scores.masked_fill(~torch.ones(rows, rows, dtype=torch.bool).tril(), -math.inf).softmax(-1) @ exact[2]
    actual, slope = model.attend(q, k, v, causal=True), torch.randn(2, 3, rows, 16)
    pairs = [(actual, expected), *zip(torch.autograd.grad((actual.float() * slope).sum(), (q, k, v)),
                                      torch.autograd.grad((expected * slope).sum(), exact))]
    for a, b in pairs:
        assert (a.float() - b).norm() <= 0.02 * b.norm() + 1e-3


def test_repetition_loss_is_its_definition():
    torch.manual_seed(0)
    hidden, weight = torch.randn(12, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    targets = torch.tensor([4, 5, 6] * 4)
    periods = torch.tensor([0] * 6 + [3] * 6)
    shares = (hidden @ weight.T).softmax(-1)[torch.arange(12), targets]
    expected = -(1 - (shares[6:] - loss.FADING * shares[3:9].detach()).abs()).log().mean()
    ours = gradients(loss.repetition_loss(hidden, weight, targets, periods), hidden, weight)
    for a, b in zip(ours, gradients(expected, hidden, weight), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert not ours[1][:6].any()


def test_a_model_learns_to_leave_a_loop():
    """Logits of their own for each row: where one copy is certain, its FADING is the best for the next."""
    weight, targets = torch.eye(4), torch.tensor([1, 2] * 3)
    hidden = (4 * torch.nn.functional.one_hot(targets, 4).float()).requires_grad_()
    descent = torch.optim.SGD([hidden], lr=1.0)
    for _ in range(300):
        descent.zero_grad()
        loss.repetition_loss(hidden, weight, targets, torch.tensor([0, 0, 2, 2, 2, 2])).backward()
        descent.step()
    shares = hidden.softmax(-1)[torch.arange(6), targets].detach()
    assert (shares[:2] > 0.9).all() and torch.allclose(shares[2:4], shares[:2] * loss.FADING, atol=0.02)
    assert torch.allclose(shares[4:], shares[2:4] * loss.FADING, atol=0.02)


def test_a_model_weighs_both_losses_by_their_targets():
    from retro_train.config import ModelConfig

    torch.manual_seed(0)
    net = model.Retro(ModelConfig(architecture="gpt", num_layers=1, hidden_size=16, num_attention_heads=2, vocab_size=20, max_position_embeddings=12,
                                  position_embedding_type="learned_absolute", activation="gelu_tanh"))
    ids = torch.randint(0, 20, (2, 12))
    ids[1] = ids[1, :3].repeat(4)
    targets, periods = ids.roll(-1, 1), torch.zeros_like(ids)
    targets[0, 2] = -1
    periods[1, 6:] = 3
    hidden = net.hidden(ids).flatten(0, 1)
    said = targets.masked_fill(periods != 0, -1).flatten()
    expected = (17 * loss.cross_entropy(hidden, net.words, said)
                + 6 * loss.REPETITION_WEIGHT * loss.repetition_loss(hidden, net.words, targets.flatten(), periods.flatten())) / 23
    assert torch.allclose(net(ids, targets, periods=periods), expected)
    assert torch.allclose(net(ids, targets, periods=0 * periods), loss.cross_entropy(hidden, net.words, targets.flatten()))
