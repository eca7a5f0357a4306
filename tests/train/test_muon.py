"""Muon on stacks of matrices against torch.optim.Muon."""

import torch
from retro_train.muon import Muon, orthogonal

SHAPES = [(48, 16), (16, 48), (48, 16), (16, 16), (16, 48)]


def test_steps_are_pytorchs():
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in SHAPES]
    ours, theirs = ([t.clone().requires_grad_() for t in start] for _ in range(2))
    mine = Muon(ours, lr=0.1, momentum=0.9, ns_steps=4, weight_decay=0.05)
    other = torch.optim.Muon(theirs, lr=0.1, momentum=0.9, ns_steps=4, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for a, b in zip(ours, theirs):
            b.grad = torch.randn_like(a)
            a.grad = b.grad.clone()
        mine.step()
        other.step()
    for a, b, s in zip(ours, theirs, start, strict=True):
        # bfloat16 products of a stack round otherwise than those of a matrix alone; the steps are 0.2 and more.
        assert (a - b).norm() < 0.02 * (b - s).norm()
        assert torch.equal(mine.state[a]["momentum_buffer"], other.state[b]["momentum_buffer"])
    theirs_again = Muon(ours, lr=0.1, momentum=0.9, ns_steps=4, weight_decay=0.05)
    theirs_again.load_state_dict(other.state_dict())  # a run of before goes on


def test_a_matrix_without_a_gradient_stays():
    p, q = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    p.grad = torch.eye(4)
    Muon([p, q], lr=0.1, momentum=0.9, ns_steps=4, weight_decay=0.1).step()
    assert torch.equal(q, torch.ones(4, 4)) and not torch.equal(p, q)


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 40, 20), 5).float())
    assert 0.5 < values.min() and values.max() < 1.3
