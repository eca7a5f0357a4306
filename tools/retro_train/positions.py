"""A longer context for a model with learned positions, to go on training with."""

import dataclasses

import torch

from .init import wave_rows


RIDGE = 0.1  # of 0.02 to 0.3 the one by which rows 0..383 of models/retro-docs foretell the rest best (0.58 of its squares left)


def continue_rows(rows, count, h):
    """rows [n, d] of positions 0..n-1 to [count, d]. The new ones are made of copy_init's h waves by the linear map that makes the
    old ones of them best: they are mostly such waves, also after training. The ridge is for waves slower than the old rows."""
    old = len(rows)
    known = torch.cat([wave_rows(count, h).double(), torch.ones(count, 1, dtype=torch.float64)], 1)
    gram = known[:old].T @ known[:old] + RIDGE * old * torch.eye(known.shape[1], dtype=torch.float64)
    fit = torch.linalg.solve(gram, known[:old].T @ rows.double())
    return torch.cat([rows, (known[old:] @ fit).to(rows.dtype)])


@torch.no_grad()
def widen_context(model, positions):
    """A copy of the model for sequences of `positions` tokens."""
    c = model.config
    if c.position_embedding_type != "learned_absolute" or positions <= c.max_position_embeddings:
        raise ValueError(f"positions {positions}: needs a model with fewer learned ones; this has {c.max_position_embeddings} "
                         f"({c.position_embedding_type})")
    state = model.state_dict()
    name = "embedding.position_embeddings.weight"
    state[name] = continue_rows(state[name], positions, c.kv_channels)
    wide = type(model)(dataclasses.replace(c, max_position_embeddings=positions))
    wide.load_state_dict(state)
    return wide
