"""Writes tests/golden/attention.json: how rows of models/retro-docs share out their cross attention over neighbours, by
PyTorch in float32, beside the answers that the model writes greedily.

    python tests/reference/make_attention_golden.py

Needs torch, safetensors and tokenizers. tests/http/test_provenance.py compares the server with it."""
import json
import pathlib
import sys

import tokenizers
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from retro_train.export import load_model  # noqa: E402
from retro_train.model import Neighbours  # noqa: E402

MODEL = ROOT / "models/retro-docs"
TEXTS = ["fork() creates a new process by duplicating the calling process.",
         "A pipe connects two processes: what one writes, the other reads.",
         "The server answers completions and tells which passages were read."]
EOD = json.loads((MODEL / "config.json").read_text()).get("eod_token", 0)


def told(values):
    return [round(v, 7) for v in values.tolist()]


class Reference:
    def __init__(self):
        self.model = load_model(MODEL).float().eval()
        self.c = self.model.config
        self.tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        self.seen = []
        for layer in self.model.decoder.layers:
            if layer.retro:
                layer.cross_attention.attn.register_forward_pre_hook(self.note)

    def note(self, module, inputs):
        """What each row of each chunk's window gives to each neighbour, the mean over the heads."""
        x, context = inputs[0], inputs[1]
        heads, size, r = module.heads, module.head_size, self.c.retro_retrieved_length
        q = module.linear_q(x).unflatten(-1, (heads, size)).transpose(1, 2)
        k = module.linear_kv(context).unflatten(-1, (heads, 2, size))[..., 0, :].transpose(1, 2)
        weights = (q @ k.transpose(-1, -2) / size**0.5).double().softmax(-1)
        self.seen.append(weights.unflatten(-1, (-1, r)).sum(-1).mean(1))

    def neighbours(self):
        r = self.c.retro_retrieved_length
        rows = [self.tokenizer.encode(text, add_special_tokens=False).ids[:r] for text in TEXTS]
        return torch.tensor([row + [EOD] * (r - len(row)) for row in rows])

    def forward(self, ids, n_prompt):
        """Logits of the last row, and shares [chunks, m, k] of the windows that begin with each chunk's closing row."""
        m = self.c.retro_chunk_length
        f = n_prompt % m or m
        chunks = 1 + (len(ids) - f) // m if len(ids) >= f else 0
        sets = self.neighbours()[None, None].expand(1, max(chunks, 1), -1, -1)
        self.seen = []
        hidden = self.model.hidden(torch.tensor([ids]), Neighbours(sets, torch.tensor([f])))
        return self.model.logits(hidden[:, -1])[0], torch.stack(self.seen).mean(0), f

    def case(self, prompt, n_answer):
        ids = list(prompt)
        while len(ids) < len(prompt) + n_answer:
            logits, shares, f = self.forward(ids, len(prompt))
            ids.append(int(logits[: self.tokenizer.get_vocab_size()].argmax()))
        entries = []
        for chunk in range(len(shares)):
            first = f - 1 + chunk * shares.shape[1]
            rows = shares[chunk][: min(shares.shape[1], len(ids) - 1 - first)]
            writing = max(0, len(prompt) - 1 - first)
            entries.append({"chunk": chunk, "shares": told(rows.mean(0)), "tokens": [told(row) for row in rows[writing:]]})
        return {"prompt": list(prompt), "answer": ids[len(prompt):], "attention": entries}


def main():
    with torch.no_grad():
        reference = Reference()
        short = reference.tokenizer.encode("A chunk is closed by its last token, which", add_special_tokens=False).ids
        cases = [reference.case(short, 68), reference.case([(11 * i) % 8000 + 100 for i in range(140)], 4)]
    out = ROOT / "tests/golden/attention.json"
    out.write_text(json.dumps({"neighbors": TEXTS, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
