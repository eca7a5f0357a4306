"""A T5 with random bf16 weights on PyTorch (transformers): a process that t5_race.py asks over a pipe.

    t5_peer.py CONFIG_FILE [--attention sdpa|eager]

Reads commands, one a line, and answers each with a line of JSON:

    rate THREADS SEQUENCES SOURCE TOKENS    {"first": source tok/s, "encoder": source tok/s, "decode": tok/s}

"first" ends with the logits of the first token: the encoder, keys and values of the source for each decoder layer, one
row of the decoder. "encoder" is the encoder alone. "decode" is TOKENS steps of one token after that, over the cache;
the next token is the most likely one. Sources have no padding, so there is no mask. Needs torch and transformers.
"""
import argparse
import json
import sys
import time

import torch
from transformers import DynamicCache, EncoderDecoderCache, T5Config, T5ForConditionalGeneration

BLOCK, DEVIATION = 1000003, 0.02  # a prime: rows of a matrix differ


def open_model(path, attention):
    """Weights repeat one random block: speed does not depend on them, and the initialisers of transformers take long."""
    with open(path, encoding="utf-8") as text:
        config = T5Config(**json.load(text))
    config._attn_implementation = attention
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = T5ForConditionalGeneration(config)
    model = model.to_empty(device="cpu").to(torch.bfloat16).eval()
    model.tie_weights()
    torch.manual_seed(1)
    block = torch.randn(BLOCK) * DEVIATION
    for name, weight in model.named_parameters():
        if name.endswith("layer_norm.weight"):
            weight.data.fill_(1)
        else:
            repeats = -(-weight.numel() // BLOCK)
            weight.data.copy_(block.repeat(repeats)[: weight.numel()].view(weight.shape))
    return model


class Sequences:
    """Sequences that read sources of one length and write by the most likely token."""

    def __init__(self, model, n, source):
        self.model = model
        self.ids = torch.arange(n * source).reshape(n, source) * 7 % (model.config.vocab_size - 2) + 2
        self.last = torch.full((n, 1), model.config.decoder_start_token_id)

    def encode(self):
        self.encoded = self.model.encoder(input_ids=self.ids)
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def step(self):
        out = self.model(encoder_outputs=self.encoded, decoder_input_ids=self.last, past_key_values=self.cache,
                         use_cache=True)
        self.last = out.logits[:, -1:].argmax(-1)


def measure(model, n, source, tokens):
    run = Sequences(model, n, source)
    start = time.perf_counter()
    run.encode()
    encoded = time.perf_counter()
    run.step()
    first = time.perf_counter()
    for _ in range(tokens):
        run.step()
    end = time.perf_counter()
    return {"first": n * source / (first - start), "encoder": n * source / (encoded - start),
            "decode": n * tokens / (end - first)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config")
    p.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    a = p.parse_args()
    model = open_model(a.config, a.attention)
    warm = set()
    for line in sys.stdin:
        command, *numbers = line.split()
        assert command == "rate", command
        threads, n, source, tokens = map(int, numbers)
        torch.set_num_threads(threads)
        with torch.inference_mode():
            if tuple(numbers) not in warm:  # fills oneDNN's caches for these shapes, as ours warms up
                measure(model, n, source, 1)
                warm.add(tuple(numbers))
            print(json.dumps(measure(model, n, source, tokens)), flush=True)


if __name__ == "__main__":
    main()
