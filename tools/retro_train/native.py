"""Operations of a training step that native.c computes where PyTorch is slow: on a CPU, in bfloat16.

`switch_on` compiles native.c once for this machine. Without it, on other devices and in other types, PyTorch computes them.
"""

import ctypes
import hashlib
import math
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F

from .files import replace_file

SOURCE = Path(__file__).with_name("native.c")
FLAGS = ["-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
library = None  # native.c's functions, while it is switched on
helpers = ThreadPoolExecutor(os.cpu_count())  # beside the thread that calls; Python's lock is not held inside of the library


def compile_source(folder):
    """The library of this source, compiler and processor in folder."""
    compiler = [os.environ.get("CC", "cc").split()[-1], *FLAGS]
    chosen = subprocess.run([*compiler, "-Q", "--help=target"], capture_output=True, check=False).stdout
    path = Path(folder) / f"native-{hashlib.sha256(SOURCE.read_bytes() + repr(compiler).encode() + chosen).hexdigest()[:16]}.so"
    if not path.exists():
        replace_file(path, lambda out: subprocess.run([*compiler, "-o", out, SOURCE, "-lm"], check=True))
    return path


def switch_on(folder=Path.home() / ".cache/retro-server/native"):
    global library
    library = ctypes.CDLL(str(compile_source(folder)))


def switch_off():
    global library
    library = None


def suits(x):
    return library is not None and x.device.type == "cpu" and x.dtype == torch.bfloat16


def call(name, arrays, work, *sizes):
    """A function of native.c over the first dimension of the arrays, which are cut into a piece for each of PyTorch's threads; each
    has `work` floats of its own, unless that is 0. The sizes are those behind the first."""
    assert all(x.is_contiguous() for x in arrays)
    count, threads = len(arrays[0]), torch.get_num_threads()
    function = getattr(library, name)

    def piece(number):
        first, end = (count * i // threads for i in (number, number + 1))
        own = [x[first:end] for x in arrays] + ([torch.empty(work)] if work else [])
        function(*(ctypes.c_void_p(x.data_ptr()) for x in own), *(ctypes.c_int64(n) for n in (end - first, *sizes)))

    others = [helpers.submit(piece, i) for i in range(1, threads)]
    piece(0)
    for other in others:
        other.result()


def cross_entropy_rows(logits, targets):
    """Nats of each row [rows], 0 for the target -1. The logits [rows, words] become the gradient of their sum."""
    nats = torch.empty(len(targets))
    call("cross_entropy_rows", (logits, targets, nats), logits.shape[1], logits.shape[1])
    return nats


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        call("gelu_tanh", (x.view(-1), y.view(-1)), 0)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        slope = torch.empty_like(x)
        call("gelu_tanh_gradient", (x.view(-1), gradient.reshape(-1), slope.view(-1)), 0)
        return slope


def gelu_tanh(x):
    return Gelu.apply(x) if suits(x) else F.gelu(x, approximate="tanh")


QUERY_ROWS = 128  # of a block of causal attention


class SelfAttention(torch.autograd.Function):
    """qkv [b, n, heads, 3, h], queries scaled here, to [b, n, heads h]. Causal rows go in blocks, each with the keys up to its last
    row; without `causal` every row reads all keys."""

    @staticmethod
    def forward(ctx, qkv, causal):
        b, n, heads, _, h = qkv.shape
        q, k, v = qkv.permute(3, 0, 2, 1, 4).reshape(3, b * heads, n, h).unbind()  # each contiguous
        q = q / math.sqrt(h)
        out, blocks = torch.empty_like(q), []
        for rows, seen in causal_blocks(n, causal):
            shares = torch.bmm(q[:, rows], k[:, :seen].mT)
            call("softmax_causal", (shares,), seen, *shares.shape[1:], rows.start + 1 if causal else n)
            out[:, rows] = torch.bmm(shares, v[:, :seen])
            blocks.append(shares)
        ctx.causal = causal
        ctx.save_for_backward(q, k, v, *blocks)
        return out.view(b, heads, n, h).transpose(1, 2).reshape(b, n, heads * h)

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, *blocks = ctx.saved_tensors
        _, n, h = q.shape
        b, heads = len(gradient), gradient.shape[2] // h
        gradient = gradient.view(b, n, heads, h).transpose(1, 2).reshape(-1, n, h)
        slopes = torch.zeros(3, *q.shape, dtype=q.dtype)
        of_q, of_k, of_v = slopes
        for (rows, seen), shares in zip(causal_blocks(n, ctx.causal), blocks, strict=True):
            of_v[:, :seen].baddbmm_(shares.mT, gradient[:, rows])
            slope = torch.bmm(gradient[:, rows], v[:, :seen].mT)
            call("softmax_gradient_rows", (shares.view(-1, seen), slope.view(-1, seen)), 0, seen)
            of_q[:, rows] = torch.bmm(slope, k[:, :seen])
            of_k[:, :seen].baddbmm_(slope.mT, q[:, rows])
        of_q /= math.sqrt(h)
        return slopes.view(3, b, heads, n, h).permute(1, 3, 2, 0, 4), None


def causal_blocks(n, causal):
    """(query rows, keys that they read) of each block."""
    size = QUERY_ROWS if causal else n
    for at in range(0, n, size):
        end = min(at + size, n)
        yield slice(at, end), end if causal else n


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, lengths):
        shares = scores.contiguous()  # the caller's own, which nothing else reads
        rows, keys = scores.shape[-2:]
        call("softmax_lengths", (shares.view(-1, rows, keys), lengths), keys, rows, keys)
        if shares is scores:
            ctx.mark_dirty(scores)
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx, gradient):
        (shares,) = ctx.saved_tensors
        slope, keys = gradient.clone(memory_format=torch.contiguous_format), gradient.shape[-1]
        call("softmax_gradient_rows", (shares.view(-1, keys), slope.view(-1, keys)), 0, keys)
        return slope, None


def softmax_lengths(scores, lengths):
    """In place over [..., rows, keys] of bfloat16 on the CPU: each row of a matrix reads its first keys; lengths [...] says how
    many, the others get 0."""
    return Softmax.apply(scores, lengths.to(torch.int32).flatten())
