"""tests/cuda/peer_torch.py: what PyTorch does with the shapes that `retro-bench device` measures, for comparison.

    python3 tests/cuda/peer_torch.py [--compile] [--limits] [--device cuda] tools/shapes/gpt-1.1b ...

The model is the plain one: bf16 weights (random), RMSNorm, rotary positions, grouped attention through
scaled_dot_product_attention, SwiGLU, greedy choice on the device. Every step is captured in a CUDA graph and replayed, so
Python costs nothing; --compile has torch.compile fuse what lies between a layer's products and attention, which takes it
some time for each shape. As a server has to, the host waits for the token of every step and of every prompt. Loads are
those of tools/bench/bench_device.c: 128 tokens after 128 others at batch 1, 8 and 64; prompts of 512 and 2048. One JSON line for
each figure, under the same names; --limits also measures the two ceilings. On "cpu" it runs without graphs, for tests.
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F

PROMPT, TOKENS = 128, 128
ROUNDS, PREFILLS = 5, 4


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure_limits(report, device):
    """The same two ceilings that our own program measures: a check of one by the other."""
    source = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    report("copy", 2e-9 * source.numel() * rate(device, lambda: target.copy_(source), 20), "GB/s")
    del source, target
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    report("gemm", 2e-12 * 8192**3 * rate(device, lambda: a @ b.T, 10), "TFLOP/s")


def rate(device, call, times):
    """Calls a second: the median of some rounds of `times` calls."""
    call()
    rates = []
    for _ in range(ROUNDS):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            call()
        synchronize(device)
        rates.append(times / (time.perf_counter() - start))
    return statistics.median(rates)


def rotate(x, cos, sin):
    """x [batch, heads, n, head], cos and sin [n, head / 2]."""
    u, v = x.chunk(2, dim=-1)
    return torch.cat((u * cos - v * sin, v * cos + u * sin), dim=-1)


def before_attention(x, norm, weight, cos, sin, heads, groups):
    """Queries [batch, heads, n, head], keys and values [batch, groups, n, head]."""
    u = F.linear(F.rms_norm(x, norm.shape, norm), weight)
    q, k, v = u.view(*x.shape[:2], heads + 2 * groups, -1).transpose(1, 2).split((heads, groups, groups), dim=1)
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def after_attention(x, mixed, out, norm, up, down):
    x = x + F.linear(mixed, out)
    gate, value = F.linear(F.rms_norm(x, norm.shape, norm), up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * value, down)


class Model:
    """A decoder with random weights in the shape of a config.json."""

    def __init__(self, config, device, compiled):
        self.device = device
        self.before, self.after = before_attention, after_attention
        if compiled:
            self.before, self.after = (torch.compile(f, dynamic=False) for f in (before_attention, after_attention))
        self.heads, self.groups = config["num_attention_heads"], config["num_query_groups"]
        self.hidden, self.ffn = config["hidden_size"], config["ffn_hidden_size"]
        self.head = self.hidden // self.heads
        rows = (self.heads + 2 * self.groups) * self.head
        self.layers = [
            {"norm_in": self.ones(), "qkv": self.random(rows, self.hidden), "out": self.random(self.hidden, self.hidden),
             "norm_mlp": self.ones(), "up": self.random(2 * self.ffn, self.hidden),
             "down": self.random(self.hidden, self.ffn)}
            for _ in range(config["num_layers"])]
        self.word = self.random(config["vocab_size"], self.hidden)
        self.output = self.random(config["vocab_size"], self.hidden)
        self.norm = self.ones()
        frequency = config["rotary_base"] ** (-torch.arange(0, self.head, 2, device=device) / self.head)
        angle = torch.arange(4096, device=device)[:, None] * frequency
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()

    def ones(self):
        return torch.ones(self.hidden, dtype=torch.bfloat16, device=self.device)

    def random(self, rows, cols):
        return torch.empty(rows, cols, dtype=torch.bfloat16, device=self.device).uniform_(-0.02, 0.02)

    def new_cache(self, batch, length):
        shape = (len(self.layers), 2, batch, self.groups, length, self.head)
        return torch.zeros(shape, dtype=torch.bfloat16, device=self.device)

    def attend(self, q, k, v, keys, values, mask):
        """A prompt reads its own keys; a token those of the cache at which the mask is 0. The heads of a group are then the
        queries of one head: the kernels that take a mask take no groups."""
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        grouped = q.reshape(q.shape[0], self.groups, -1, self.head)
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).reshape(q.shape)

    def forward(self, tokens, positions, cache, mask):
        """The next token of each row of tokens [batch, n], whose positions [n] are filled in the cache."""
        batch, n = tokens.shape
        x = self.word[tokens]
        cos, sin = self.cos[positions], self.sin[positions]
        for w, (keys, values) in zip(self.layers, cache):
            q, k, v = self.before(x, w["norm_in"], w["qkv"], cos, sin, self.heads, self.groups)
            keys.index_copy_(2, positions, k)
            values.index_copy_(2, positions, v)
            mixed = self.attend(q, k, v, keys, values, mask).transpose(1, 2).reshape(batch, n, self.hidden)
            x = self.after(x, mixed, w["out"], w["norm_mlp"], w["up"], w["down"])
        return F.linear(F.rms_norm(x[:, -1], (self.hidden,), self.norm), self.output).argmax(-1)


def captured(device, step):
    """`step` as a graph; it is run a few times first, as capture asks for."""
    if device.type != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure_decode(report, model, batch):
    length = PROMPT + TOKENS
    cache = model.new_cache(batch, length)
    tokens = torch.randint(0, 200, (batch, 1), device=model.device)
    position = torch.full((1,), PROMPT, device=model.device)
    columns = torch.arange(length, device=model.device)

    def step():
        mask = torch.where(columns <= position, 0.0, -torch.inf).bfloat16()
        mask = mask.expand(batch, 1, model.heads // model.groups, length)
        tokens.copy_(model.forward(tokens, position, cache, mask)[:, None])
        position.add_(1)

    replay = captured(model.device, step)
    rates = []
    for _ in range(ROUNDS):
        position.fill_(PROMPT)
        synchronize(model.device)
        start = time.perf_counter()
        for _ in range(TOKENS):
            replay()
            tokens.tolist()
        rates.append(batch * TOKENS / (time.perf_counter() - start))
    report(f"decode.{batch}", statistics.median(rates), "tok/s")


def measure_prefill(report, model, prompt):
    cache = model.new_cache(1, prompt)
    tokens = torch.randint(0, 200, (1, prompt), device=model.device)
    positions, drawn = torch.arange(prompt, device=model.device), torch.zeros(1, dtype=torch.int64, device=model.device)
    replay = captured(model.device, lambda: drawn.copy_(model.forward(tokens, positions, cache, None)))

    def prompt_and_token():
        replay()
        drawn.tolist()

    report(f"prefill.{prompt}", prompt * rate(model.device, prompt_and_token, PREFILLS), "tok/s")


@torch.inference_mode()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="*", type=pathlib.Path)
    p.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    p.add_argument("--compile", action="store_true")
    p.add_argument("--limits", action="store_true")
    p.add_argument("--batches", type=int, nargs="+", default=(1, 8, 64))
    p.add_argument("--prompts", type=int, nargs="+", default=(512, 2048))
    a = p.parse_args()
    by = "pytorch compiled" if a.compile else "pytorch"
    name = None

    def report(figure, value, unit):
        print(json.dumps({"by": by, "model": name, "name": figure, "value": value, "unit": unit}), flush=True)

    if a.limits:
        measure_limits(report, a.device)
    for folder in a.folders:
        name, model = folder.name, Model(json.loads((folder / "config.json").read_text()), a.device, a.compile)
        for batch in a.batches:
            measure_decode(report, model, batch)
        for prompt in a.prompts:
            measure_prefill(report, model, prompt)
        del model
        if a.device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
