"""A random Mixtral in bf16 whose experts are nearly all of it, with the tokenizer of downloaded.py, for tests with little
memory: python large_experts.py FOLDER makes one of 0.4 GB. Needs NumPy."""
import json
import pathlib
import struct
import sys

import numpy as np

import downloaded

HIDDEN, FFN, EXPERTS, LAYERS, HEADS = 512, 1024, 16, 8, 4
CONFIG = {**downloaded.CONFIG, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": HIDDEN, "intermediate_size": FFN,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_local_experts": EXPERTS, "num_experts_per_tok": 2,
          "torch_dtype": "bfloat16"}
NUMBERS = 1 << 20  # that tensors are cut from


def tensor_shapes():
    kv = HIDDEN // HEADS * CONFIG["num_key_value_heads"]
    yield "model.embed_tokens.weight", (downloaded.VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield f"{layer}input_layernorm.weight", (HIDDEN,)
        yield f"{layer}post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q_proj", HIDDEN), ("k_proj", kv), ("v_proj", kv), ("o_proj", HIDDEN)):
            yield f"{layer}self_attn.{name}.weight", (rows, HIDDEN)
        yield f"{layer}block_sparse_moe.gate.weight", (EXPERTS, HIDDEN)
        for j in range(EXPERTS):
            for name, shape in (("w1", (FFN, HIDDEN)), ("w2", (HIDDEN, FFN)), ("w3", (FFN, HIDDEN))):
                yield f"{layer}block_sparse_moe.experts.{j}.{name}.weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (downloaded.VOCAB, HIDDEN)


def as_bf16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def make(folder):
    """Writes the folder; the bytes of its tensors."""
    folder = pathlib.Path(folder)
    downloaded.write_folder(folder)
    for path in folder.glob("model*.safetensors*"):
        path.unlink()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(9)
    numbers = as_bf16(random.standard_normal(2 * NUMBERS) * 0.05)
    shapes, header, at = list(tensor_shapes()), {}, 0
    for name, shape in shapes:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes:
            first = int(random.integers(NUMBERS))
            values = numbers[first:first + int(np.prod(shape))] if len(shape) > 1 else as_bf16(np.ones(shape))
            file.write(values.tobytes())
    return at


if __name__ == "__main__":
    make(sys.argv[1])
