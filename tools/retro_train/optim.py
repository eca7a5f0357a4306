"""Optimisers and the learning rate over a run."""

import math

import torch

from .muon import Muon


class Optimiser:
    """AdamW on everything, or Muon on the matrices inside the layers and AdamW on embeddings, norms and biases."""

    def __init__(self, model, options):
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        inner = {n for n, p in trained.items() if p.dim() == 2 and n.startswith("decoder.")}
        decayed = [p for n, p in trained.items() if p.dim() == 2 and (n not in inner or options.optimizer == "adamw")]
        plain = [p for p in trained.values() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": options.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        fused = all(p.is_cuda for p in trained.values())
        self.parts = [torch.optim.AdamW([g for g in groups if g["params"]], lr=1.0, betas=tuple(options.betas), fused=fused)]
        if options.optimizer == "muon":
            self.parts.append(Muon([trained[n] for n in sorted(inner)], lr=1.0, momentum=0.95, ns_steps=4,
                                   weight_decay=options.weight_decay))
        elif options.optimizer != "adamw":
            raise ValueError(f'optimizer "{options.optimizer}", known are adamw and muon')
        self.parameters = list(trained.values())

    def step(self, rate):
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


SCHEDULES = ("cosine", "flat-linear", "flat", "linear")


def learning_rate(options, step, progress):
    """progress: share of the run that is over, of its steps or of its time; 0 in a flat run, which has no end."""
    warm = min(1.0, (step + 1) / max(1, options.warmup_steps))
    if options.schedule == "cosine":
        shape = options.final_rate + (1 - options.final_rate) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    else:
        flat = {"flat-linear": options.flat_until, "flat": 1.0, "linear": 0.0}[options.schedule]
        fallen = max(0.0, progress - flat) / (1 - flat) if flat < 1 else 0.0
        shape = 1 + (options.final_rate - 1) * min(fallen, 1.0)
    return options.learning_rate * warm * shape
