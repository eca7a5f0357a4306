"""One model out of several of one shape that went on from each other: the weighted mean of every parameter. Such a mean often
predicts better than each of them, since the noise of their last steps cancels (Wortsman et al. 2022, arXiv 2203.05482)."""

import torch

from .model import Retro


@torch.no_grad()
def average_models(models, weights):
    """A model of the last one's configuration. weights: one for each model, taken as shares of their sum."""
    if len(models) != len(weights) or min(weights) < 0 or sum(weights) <= 0:
        raise ValueError(f"{len(models)} models and weights {weights}: needs a weight for each, none below 0, and one above")
    shapes = [{name: t.shape for name, t in m.state_dict().items()} for m in models]
    for i, shape in enumerate(shapes):
        if shape != shapes[-1]:
            raise ValueError(f"model {i + 1} of {len(models)} has other parameters than the last")
    states = [m.state_dict() for m in models]
    mean = {name: sum(w / sum(weights) * s[name].double() for w, s in zip(weights, states)) for name in states[-1]}
    average = Retro(models[-1].config)
    average.load_state_dict(mean)
    return average
