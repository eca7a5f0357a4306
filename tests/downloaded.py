"""A model folder as it is downloaded, tiny and random: config.json, two safetensors shards with their index,
tokenizer.json, tokenizer_config.json, special_tokens_map.json, generation_config.json and a chat template:
python downloaded.py FOLDER makes a Llama with byte-level BPE. Needs NumPy."""

import json
import pathlib
import struct
import sys

import numpy as np

LAYERS, HIDDEN, HEADS, FFN, VOCAB = 2, 32, 4, 64, 320
ENDS = [VOCAB - 2, VOCAB - 1]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "intermediate_size": FFN, "vocab_size": VOCAB,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "bos_token_id": VOCAB - 3,
    "eos_token_id": ENDS[0], "torch_dtype": "float32",
}
MARKS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]  # the last ids


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        raw = values.astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def random_tensors():
    random, kv = np.random.default_rng(5), HIDDEN // HEADS * 2

    def matrix(rows, columns):
        return random.standard_normal((rows, columns)) * 0.3

    yield "model.embed_tokens.weight", matrix(VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", np.ones(HIDDEN)
        for name, rows in (("q_proj", HIDDEN), ("k_proj", kv), ("v_proj", kv), ("o_proj", HIDDEN)):
            yield f"{layer}self_attn.{name}.weight", matrix(rows, HIDDEN)
        for name, rows, columns in (("gate_proj", FFN, HIDDEN), ("up_proj", FFN, HIDDEN), ("down_proj", HIDDEN, FFN)):
            yield f"{layer}mlp.{name}.weight", matrix(rows, columns)
    yield "model.norm.weight", np.ones(HIDDEN)
    yield "lm_head.weight", matrix(VOCAB, HIDDEN)


def tokenizer():
    """Every byte, made-up words, and the marks; a text begins with the first of them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    pieces = [*map(chr, printable), *(chr(256 + i) for i in range(len(others)))]
    pieces += [f"\u0120w{i}" for i in range(VOCAB - len(MARKS) - len(pieces))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": VOCAB - 3 + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, mark in enumerate(MARKS)]
    begin = {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": MARKS[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {MARKS[0]: {"id": MARKS[0], "ids": [VOCAB - 3], "tokens": [MARKS[0]]}}}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
             "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": begin, "decoder": level, "model": model}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False))


def write_folder(folder, generation=None):
    """generation: what generation_config.json says, None: its usual content."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG)
    tensors = list(random_tensors())
    halves = tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
    shards = {f"model-{i + 1:05}-of-00002.safetensors": dict(half) for i, half in enumerate(halves)}
    for name, shard in shards.items():
        write_safetensors(folder / name, shard)
    write_json(folder / "model.safetensors.index.json", {
        "metadata": {"total_size": sum(4 * t.size for _, t in tensors)},
        "weight_map": {tensor: name for name, shard in shards.items() for tensor in shard}})
    write_json(folder / "tokenizer.json", tokenizer())
    marks = {"bos_token": MARKS[0], "eos_token": MARKS[2]}
    write_json(folder / "special_tokens_map.json", marks)
    write_json(folder / "tokenizer_config.json", {**marks, "tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}")
    if generation is None:
        generation = {"bos_token_id": VOCAB - 3, "eos_token_id": ENDS, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
    write_json(folder / "generation_config.json", generation)


if __name__ == "__main__":
    write_folder(sys.argv[1])
