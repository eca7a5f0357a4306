"""Random super-blocks as GGUF files hold them, for models in which tokens choose different experts. Needs NumPy alone.

The numbers have the mean 0. Were it above 0, each product would add the sum of its inputs to all of its outputs: the rows of all
tokens would grow alike, and routers would choose the same experts for nearly all of them."""
import numpy as np

NUMBERS = 256  # of a super-block
SCALE = 1e-4
# Bytes of a super-block, and f16 at places in it. A number of Q4_K and Q5_K is scale * factor * code - minimum * factor, and both factors are
# any six bits, so the minimum is the scale times the mean code. Q6_K has codes and factors with signs.
SUPER_BLOCKS = {"Q4_K": (144, {0: SCALE, 2: 7.5 * SCALE}), "Q5_K": (176, {0: SCALE, 2: 15.5 * SCALE}), "Q6_K": (210, {208: SCALE})}
# Matrices whose numbers are larger or smaller than those of the others: tokens differ by what they are embedded as, and attention, which adds
# the mean of many tokens to each, is what makes them alike.
MATRIX_SCALES = {"token_embd": 40, "attn_output": 0.1, "ssm_out": 0.1}


def matrix_scale(name):
    """Of the matrix "blk.3.attn_output.weight"."""
    return MATRIX_SCALES.get(name.removesuffix(".weight").split(".")[-1], 1)


def random_blocks(random, shape, kind, scale=1):
    """Bytes [rows, bytes of a row] of a matrix [rows, columns]: any bits but for the scales."""
    size, halves = SUPER_BLOCKS[kind]
    blocks = random.integers(0, 256, (shape[0], shape[1] // NUMBERS, size), np.uint8)
    for at, value in halves.items():
        blocks[:, :, at:at + 2] = np.frombuffer(np.float16(value * scale).tobytes(), np.uint8)
    return blocks.reshape(shape[0], -1)
