"""tests/cuda/peer_torch.py, on the CPU: that token by token it computes what it computes of a prompt, and its figures."""
import json
import pathlib
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cuda"))
import peer_torch  # noqa: E402

CONFIG = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_query_groups": 2, "ffn_hidden_size": 96,
          "vocab_size": 300, "rotary_base": 10000}
LENGTH, TOKENS, PROMPT = 16, 12, 8


@torch.inference_mode()
def test_tokens_agree_with_a_prompt():
    torch.manual_seed(1)
    model = peer_torch.Model(CONFIG, torch.device("cpu"), compiled=False)
    for matrix in (model.word, *(w[name] for w in model.layers for name in ("qkv", "out", "up", "down"))):
        matrix.mul_(10)
    tokens = torch.randint(0, CONFIG["vocab_size"], (3, TOKENS))
    whole, steps = model.new_cache(3, LENGTH), model.new_cache(3, LENGTH)
    model.forward(tokens, torch.arange(TOKENS), whole, None)
    model.forward(tokens[:, :PROMPT], torch.arange(PROMPT), steps, None)
    for at in range(PROMPT, TOKENS):
        mask = torch.where(torch.arange(LENGTH) <= at, 0.0, -torch.inf).bfloat16().expand(3, 1, 2, LENGTH)
        model.forward(tokens[:, at:at + 1], torch.tensor([at]), steps, mask)
    size = whole[1].abs().max()
    assert size > 0.1 and (whole - steps)[1].abs().max() < 0.03 * size
    # The keys and values of the second layer depend on what the first attended to.
    steps[0, 1, :, :, 2] += 1
    before = steps.clone()
    model.forward(tokens[:, -1:], torch.tensor([TOKENS - 1]), steps, mask)
    assert (steps - before)[1].abs().max() > 0.03 * size


def test_figures(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_layers": 1}))
    done = subprocess.run([sys.executable, ROOT / "tests/cuda/peer_torch.py", "--device", "cpu", "--prompts", "16", "--batches", "2",
                           "--", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(f["by"], f["model"], f["name"]) for f in figures] == [
        ("pytorch", tmp_path.name, "decode.2"), ("pytorch", tmp_path.name, "prefill.16")]
    assert all(f["value"] > 0 for f in figures)
