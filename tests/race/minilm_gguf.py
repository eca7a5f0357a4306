#!/usr/bin/env python3
"""The embedder all-MiniLM-L6-v2 as a GGUF file in f32, for llama.cpp.

    minilm_gguf.py MODEL_FOLDER FILE

Needs the package gguf."""
import json
import pathlib
import sys

import gguf

from embed_peers import read_safetensors
from random_gguf import write_file

ENDS = ("weight", "bias")
LAYER = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
         "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
         "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}


def names(layers):
    """Names in the file to those of the folder."""
    yield "token_embd.weight", "embeddings.word_embeddings.weight"
    yield "position_embd.weight", "embeddings.position_embeddings.weight"
    yield "token_types.weight", "embeddings.token_type_embeddings.weight"
    for end in ENDS:
        yield f"token_embd_norm.{end}", f"embeddings.LayerNorm.{end}"
        for i in range(layers):
            for to, name in LAYER.items():
                yield f"blk.{i}.{to}.{end}", f"encoder.layer.{i}.{name}.{end}"


def spelled(word):
    """Pieces that begin a word have the sign of a space, others lose theirs; special tokens stay."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else "\u2581" + word


def add_words(w, words):
    w.add_tokenizer_model("bert")
    w.add_token_list([spelled(word) for word in words])
    w.add_token_types([gguf.TokenType.CONTROL if word.startswith("[") and word.endswith("]") else gguf.TokenType.NORMAL
                       for word in words])
    w.add_token_type_count(2)
    for add, word in ((w.add_bos_token_id, "[CLS]"), (w.add_eos_token_id, "[SEP]"), (w.add_sep_token_id, "[SEP]"),
                      (w.add_unk_token_id, "[UNK]"), (w.add_pad_token_id, "[PAD]"), (w.add_mask_token_id, "[MASK]")):
        add(words.index(word))


def main(folder, file):
    config = json.loads((folder / "config.json").read_text())
    tensors = read_safetensors(folder / "model.safetensors")
    w = gguf.GGUFWriter(file, "bert")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_layer_norm_eps(config["layer_norm_eps"])
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_words(w, (folder / "vocab.txt").read_text().splitlines())
    for to, name in names(config["num_hidden_layers"]):
        w.add_tensor(to, tensors[name])
    write_file(w)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
