"""Cross entropy over the vocabulary, a block of rows at a time, and a loss against repetition.

PyTorch's own keeps the logits of all rows in float32 several times over and passes over each copy: for 4 096 rows and 8 192
entries these were a sixth of a training step on a CPU. Here a block's logits live only until its gradient is known, and one
copy of the gradient in the products' type is kept, for the two products that end it.
"""

import torch
import torch.nn.functional as F

from . import native

ROWS = {"cpu": 1024, "cuda": 16384}  # of a block: a core's cache is small, and a GPU wants few large products
FADING = 0.3  # of a token's probability, from one copy of a phrase to the next
REPETITION_WEIGHT = 2  # of a target that repeats, beside one of text


def product_type(x):
    """The type that a product of x is computed in: autocast's, where it is on."""
    on = torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if on else x.dtype


class BlockedCrossEntropy(torch.autograd.Function):
    """The gradient is computed in forward, where the logits are, for a mean whose own gradient is 1."""

    @staticmethod
    def forward(ctx, hidden, weight, targets):
        dtype = product_type(hidden)
        rows, words = hidden.to(dtype), weight.to(dtype)
        total = torch.zeros((), device=hidden.device)
        slope = torch.empty(len(rows), len(words), dtype=dtype, device=hidden.device)  # of the sum, by logits
        scored = (targets >= 0).to(torch.float32)

        most = ROWS[hidden.device.type]
        for at in range(0, len(rows), most):
            block = slice(at, at + most)
            if native.suits(slope):
                logits = torch.mm(rows[block], words.T, out=slope[block])
                total += native.cross_entropy_rows(logits, targets[block]).sum()
                continue
            logits = rows[block] @ words.T
            right = targets[block, None].clamp(min=0)
            share = logits.softmax(-1, dtype=torch.float32)
            # -log p of the right word: the largest share is never too small for a logarithm, the right word's may be.
            nats = logits.amax(-1).float() - logits.gather(1, right)[:, 0].float() - share.amax(-1).log()
            total += (nats * scored[block]).sum()
            share.scatter_add_(1, right, share.new_full((len(share), 1), -1.0))
            slope[block] = share

        count = scored.sum()
        shares = (scored / count)[:, None]
        ctx.save_for_backward((slope @ words).float() * shares, slope.T @ (rows * shares).to(dtype))
        return total / count

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight = ctx.saved_tensors
        return hidden * gradient, weight.float() * gradient, None


@torch.compiler.disable
def cross_entropy(hidden, weight, targets):
    """Mean in nats over targets [rows] of softmax(hidden [rows, d] weight' [words, d]); target -1 is not scored."""
    return BlockedCrossEntropy.apply(hidden, weight, targets)


def repetition_loss(hidden, weight, targets, periods):
    """Mean in nats over the rows with a period: their targets repeat what was said `period` rows before, and shall be FADING
    times as likely as they were there. A model that finds each copy likelier than the last one never leaves a loop.
    DITTO (Xu et al. 2022, arXiv 2206.02369), equation 3. hidden [rows, d], targets and periods [rows], 0: no repetition. The
    rows are looked for where the periods lie, on the CPU beside a GPU."""
    rows = periods.nonzero().squeeze(1)
    wanted, each = torch.unique(torch.cat([rows, rows - periods[rows]]), return_inverse=True)
    rows, wanted, each = (numbers.to(hidden.device) for numbers in (rows, wanted, each))
    words = torch.empty_like(wanted)
    words[each] = targets[rows].repeat(2)  # a row and the one that it repeats have the same target
    shares = torch.exp(-F.cross_entropy(F.linear(hidden[wanted], weight).float(), words, reduction="none"))[each]
    now, before = shares.chunk(2)
    return -torch.log1p(-(now - FADING * before.detach()).abs().clamp(max=1 - 1e-5)).mean()
