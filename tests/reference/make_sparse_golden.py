#!/usr/bin/env python3
"""Writes tests/golden/embedder/sparse: a head of sparse weights for the random embedder xlm_cls, as bge-m3 has one, and
the weights that it gives by PyTorch.

    python tests/reference/make_sparse_golden.py

Needs PyTorch and transformers; `make test` reads what this script wrote. The kept files were made with transformers 5.23.0,
torch 2.15.0, CPU float32, one text a batch.

sparse_linear.pt  the state of a Linear(hidden, 1), as torch.save writes it
sparse.json       for each text of texts.json the weight of each token id: relu(w . h + b) of its tokens, the heaviest of
                  them; cls, eos, pad and unk are left out, as FlagEmbedding leaves them out
"""
import json
import pathlib

import torch
import transformers

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "embedder"
FOLDER, OUT = GOLDEN / "xlm_cls", GOLDEN / "sparse"
SEED = 5


def make_head(hidden):
    generator = torch.Generator().manual_seed(SEED)
    head = torch.nn.Linear(hidden, 1)
    head.weight.data = 0.3 * torch.randn(1, hidden, generator=generator)
    head.bias.data = torch.tensor([0.1])
    return head


def weigh(text, tokenizer, model, head):
    left_out = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    read = tokenizer(text, truncation=True, max_length=tokenizer.model_max_length, return_tensors="pt")
    weights = torch.relu(head(model(**read).last_hidden_state)).reshape(-1).tolist()
    row = {}
    for token, weight in zip(read["input_ids"][0].tolist(), weights):
        if token not in left_out and weight > 0:
            row[token] = max(weight, row.get(token, 0))
    return {str(token): row[token] for token in sorted(row)}


@torch.no_grad()
def main():
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER).eval()
    head = make_head(model.config.hidden_size)
    OUT.mkdir(exist_ok=True)
    torch.save(head.state_dict(), OUT / "sparse_linear.pt")
    rows = [weigh(text, tokenizer, model, head) for text in json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))]
    (OUT / "sparse.json").write_text(json.dumps(rows) + "\n")
    print(sum(map(len, rows)), "weights", "transformers", transformers.__version__, "torch", torch.__version__)


if __name__ == "__main__":
    main()
