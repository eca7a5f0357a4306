"""tests/cuda/peer_torch.py: what PyTorch does with the shapes that `retro-bench device` measures, for comparison.

    python3 tests/cuda/peer_torch.py tools/shapes/gpt-1.1b ...

The model is the plain one: bf16 weights (random), RMSNorm, rotary positions, grouped attention through
scaled_dot_product_attention, SwiGLU, greedy choice on the device. Every step is captured in a CUDA graph and replayed, so
Python costs nothing. Loads are those of tools/bench_device.c: a prompt of 128, then 128 tokens at batch 1, 8 and 64;
prompts of 512 and 2048. One JSON line for each figure, under the same names.
"""
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

PROMPT, TOKENS = 128, 128
ROUNDS = 5


def report(name, value, unit, model=None):
    print(json.dumps({"by": "pytorch", "model": model, "name": name, "value": value, "unit": unit}), flush=True)


def measure_limits():
    """The same two ceilings that our own program measures: a check of one by the other."""
    source = torch.randint(0, 255, (1 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    report("copy", 2e-9 * source.numel() * rate(lambda: target.copy_(source), 20), "GB/s")
    del source, target
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    report("gemm", 2e-12 * 8192**3 * rate(lambda: a @ b.T, 10), "TFLOP/s")


def rate(call, times):
    """Calls a second: the median of some rounds of `times` calls."""
    call()
    rates = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        torch.cuda.synchronize()
        rates.append(times / (time.perf_counter() - start))
    return statistics.median(rates)


class Model:
    """A decoder with random weights in the shape of a config.json."""

    def __init__(self, config):
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
        frequency = config["rotary_base"] ** (-torch.arange(0, self.head, 2, device="cuda") / self.head)
        angle = torch.arange(4096, device="cuda")[:, None] * frequency
        self.cos, self.sin = angle.cos().bfloat16(), angle.sin().bfloat16()

    def ones(self):
        return torch.ones(self.hidden, dtype=torch.bfloat16, device="cuda")

    @staticmethod
    def random(rows, cols):
        return torch.empty(rows, cols, dtype=torch.bfloat16, device="cuda").uniform_(-0.02, 0.02)

    def rotate(self, x, positions):
        cos, sin = self.cos[positions][None, None], self.sin[positions][None, None]
        u, v = x.chunk(2, dim=-1)
        return torch.cat((u * cos - v * sin, v * cos + u * sin), dim=-1)

    def new_cache(self, batch, length):
        shape = (len(self.layers), 2, batch, self.groups, length, self.head)
        return torch.zeros(shape, dtype=torch.bfloat16, device="cuda")

    def forward(self, tokens, positions, cache, mask):
        """The next token of each row of tokens [batch, n], whose positions [n] are filled in the cache."""
        batch, n = tokens.shape
        x = self.word[tokens]
        for w, (keys, values) in zip(self.layers, cache):
            u = F.linear(F.rms_norm(x, (self.hidden,), w["norm_in"]), w["qkv"])
            u = u.view(batch, n, -1, self.head).transpose(1, 2)
            q, k, v = u.split((self.heads, self.groups, self.groups), dim=1)
            keys.index_copy_(2, positions, self.rotate(k, positions))
            values.index_copy_(2, positions, v)
            if mask is None:  # a prompt from an empty cache
                mixed = F.scaled_dot_product_attention(self.rotate(q, positions), keys[:, :, :n], values[:, :, :n],
                                                       is_causal=True, enable_gqa=True)
            else:
                mixed = F.scaled_dot_product_attention(self.rotate(q, positions), keys, values, attn_mask=mask,
                                                       enable_gqa=True)
            x = x + F.linear(mixed.transpose(1, 2).reshape(batch, n, self.hidden), w["out"])
            gate, up = F.linear(F.rms_norm(x, (self.hidden,), w["norm_mlp"]), w["up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, w["down"])
        return F.linear(F.rms_norm(x[:, -1], (self.hidden,), self.norm), self.output).argmax(-1)


def captured(step):
    """`step` as a graph; it is run a few times first, as capture asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def measure_decode(name, model, batch):
    length = PROMPT + TOKENS
    cache = model.new_cache(batch, length)
    tokens = torch.randint(0, 1000, (batch, 1), device="cuda")
    position = torch.tensor([PROMPT], device="cuda")
    columns = torch.arange(length, device="cuda")

    def step():
        tokens.copy_(model.forward(tokens, position, cache, (columns <= position)[None, None, None])[:, None])
        position.add_(1)

    graph = captured(step)
    rates = []
    for _ in range(ROUNDS):
        position.fill_(PROMPT)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(TOKENS):
            graph.replay()
            tokens.tolist()  # a server has to have them
        rates.append(batch * TOKENS / (time.perf_counter() - start))
    report(f"decode.{batch}", statistics.median(rates), "tok/s", name)


def measure_prefill(name, model, prompt):
    cache = model.new_cache(1, prompt)
    tokens, positions = torch.randint(0, 1000, (1, prompt), device="cuda"), torch.arange(prompt, device="cuda")
    graph = captured(lambda: model.forward(tokens, positions, cache, None))
    report(f"prefill.{prompt}", prompt * rate(graph.replay, 4), "tok/s", name)


@torch.inference_mode()
def main():
    measure_limits()
    for folder in map(pathlib.Path, sys.argv[1:]):
        model = Model(json.loads((folder / "config.json").read_text()))
        for batch in (1, 8, 64):
            measure_decode(folder.name, model, batch)
        for prompt in (512, 2048):
            measure_prefill(folder.name, model, prompt)
        del model
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
