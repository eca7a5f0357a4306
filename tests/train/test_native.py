"""native.c against PyTorch in float32, values and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from retro_train import loss, model, native
from retro_train.config import ModelConfig
from test_train import MODEL


@pytest.fixture(autouse=True, params=[1, 2])
def switched_on(request, tmp_path_factory):
    native.switch_on(tmp_path_factory.getbasetemp() / "native")
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)
    native.switch_off()


def near(actual, expected, share=0.01):
    """Rounded to bfloat16 (2^-9), a few times over."""
    assert actual.shape == expected.shape
    assert (actual.float() - expected).norm() <= share * expected.norm() + 1e-6, (actual.float() - expected).abs().max()


def exact(x):
    return x.detach().float().requires_grad_()


def test_gelu():
    x = torch.cat([torch.randn(5000) * 3, torch.tensor([0.0, -0.0, 100.0, -100.0, 1e-30, -1e-30, 30000.0])]).bfloat16().requires_grad_()
    slope, y = torch.randn(len(x)), exact(x)
    ours, theirs = native.gelu_tanh(x), F.gelu(y, approximate="tanh")
    near(ours, theirs, 0.003)
    near(*(torch.autograd.grad(out, at, slope.to(out.dtype))[0] for out, at in ((ours, x), (theirs, y))), 0.005)
    assert torch.allclose(ours[-7:].float(), theirs[-7:].bfloat16().float(), rtol=0, atol=1e-35)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_self_attention(rows, causal):
    torch.manual_seed(0)
    qkv = torch.randn(2, rows, 3, 3, 16).bfloat16().requires_grad_()
    known, slope = exact(qkv), torch.randn(2, rows, 48).bfloat16()
    q, k, v = known.permute(3, 0, 2, 1, 4)
    ours = native.SelfAttention.apply(qkv, causal)
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
    near(ours, theirs)
    near(torch.autograd.grad(ours, qkv, slope)[0], torch.autograd.grad(theirs, known, slope.float())[0], 0.02)


def test_softmax_over_the_first_keys():
    torch.manual_seed(0)
    scores, lengths = torch.randn(3, 2, 5, 40).bfloat16().requires_grad_(), torch.tensor([[40, 40], [20, 20], [1, 1]])
    known, slope = exact(scores), torch.randn(3, 2, 5, 40).bfloat16()
    ours = native.softmax_lengths(scores * 1, lengths)
    theirs = known.masked_fill(torch.arange(40) >= lengths[..., None, None], -math.inf).softmax(-1)
    near(ours, theirs)
    near(torch.autograd.grad(ours, scores, slope)[0], torch.autograd.grad(theirs, known, slope.float())[0])
    assert native.softmax_lengths(torch.empty(0, 2, 5, 40).bfloat16(), torch.empty(0, 2)).shape == (0, 2, 5, 40)


def test_cross_entropy():
    torch.manual_seed(0)
    hidden, weight = torch.randn(300, 64, requires_grad=True), torch.randn(1000, 64).mul(0.2).requires_grad_()
    targets = torch.randint(0, 1000, (300,))
    targets[[0, 6, 299]] = -1
    theirs = F.cross_entropy(hidden @ weight.T, targets, ignore_index=-1)
    with torch.autocast("cpu", torch.bfloat16):
        ours = loss.cross_entropy(hidden, weight, targets)
    assert abs(ours - theirs) < 1e-3 * theirs
    mine, known = (torch.autograd.grad(value, (hidden, weight)) for value in (ours, theirs))
    near(mine[0], known[0])
    near(mine[1], known[1])
    assert not mine[0][[0, 6, 299]].any()


def test_a_step_is_the_same(tmp_path):
    """A whole model with the native operations and without: the same gradients, up to bfloat16."""
    slopes = []
    for on in (True, False):
        native.switch_on(tmp_path) if on else native.switch_off()
        torch.manual_seed(0)
        net = model.Retro(ModelConfig.from_dict(MODEL))
        ids, neighbours = torch.randint(1, 400, (2, 32)), torch.randint(1, 400, (2, 4, 2, 16))
        counts = torch.tensor([[2, 1, 0, 2], [1, 2, 2, 0]])
        with torch.autocast("cpu", torch.bfloat16):
            value = net(ids, ids.roll(-1, 1), neighbours, torch.tensor([8, 3]), counts)
        value.backward()
        slopes.append((value.item(), {name: p.grad for name, p in net.named_parameters()}))
    assert abs(slopes[0][0] - slopes[1][0]) < 2e-3
    for name, slope in slopes[0][1].items():
        near(slope, slopes[1][1][name], 0.05)


def test_another_source_is_compiled_again(tmp_path, monkeypatch):
    first = native.compile_source(tmp_path)
    assert native.compile_source(tmp_path) == first and first.exists()
    source = tmp_path / "native.c"
    source.write_text(native.SOURCE.read_text() + "int more;\n")
    monkeypatch.setattr(native, "SOURCE", source)
    assert native.compile_source(tmp_path) != first
