"""Writes tests/golden/hf/gpt_neox: a tiny random GPT-NeoX without parallel residual, and its logits.

    python tests/reference/make_neox_golden.py      (transformers 5.23.0, torch 2.15.0 on a CPU, float32)
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

out = Path(__file__).resolve().parents[1] / "golden/hf/gpt_neox"
torch.manual_seed(5)
config = GPTNeoXConfig(vocab_size=250, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=72,
                       hidden_act="gelu", rotary_pct=0.5, max_position_embeddings=64, use_parallel_residual=False,
                       layer_norm_eps=1e-5, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
model = GPTNeoXForCausalLM(config).eval()
with torch.no_grad():
    for p in model.parameters():
        p += 0.1 * torch.randn_like(p)
    ids = torch.randint(0, 250, (2, 24))
    model.save_pretrained(out)
    save_file({"b2.input_ids": ids, "b2.logits": model(ids).logits.contiguous()}, out / "cases.safetensors")
for name in ("generation_config.json",):
    (out / name).unlink(missing_ok=True)
print(json.dumps(json.loads((out / "config.json").read_text())))
