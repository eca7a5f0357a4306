"""Muon (Jordan et al. 2024) as torch.optim.Muon computes it, all matrices of one shape together: a small model has a hundred
matrices whose products are each too small to fill a machine, and a GPU would wait for every one of them."""

import math

import torch

COEFFICIENTS = 3.4445, -4.775, 2.0315  # of the Newton-Schulz iteration


def orthogonal(matrices, steps):
    """matrices [count, rows, columns] to bfloat16 ones with the same singular vectors and singular values near 1."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).to(torch.bfloat16)
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """With Nesterov momentum, decoupled weight decay, and steps of the size that AdamW's have. State as torch.optim.Muon."""

    def __init__(self, matrices, lr, momentum, ns_steps, weight_decay):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "ns_steps": ns_steps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for shape, matrices in shapes.items():
                self.step_of_shape(shape, matrices, group)

    def step_of_shape(self, shape, matrices, group):
        gradients, momentum = [p.grad for p in matrices], group["momentum"]
        for p in matrices:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffers = [self.state[p]["momentum_buffer"] for p in matrices]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        updates = orthogonal(torch.stack(torch._foreach_lerp(gradients, buffers, momentum)), group["ns_steps"])

        rate = group["lr"] * 0.2 * math.sqrt(max(shape))
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, list(updates.to(matrices[0].dtype).unbind()), alpha=-rate)
