"""make_gguf_embedders.py PEERS OUT [KIND ...]: KIND.gguf of tests/golden/gguf: the embedder of tests/golden/embedder/KIND
with its tokenizer, as llama.cpp's own converter makes it. Its vectors are expected.safetensors there, or beside it
KIND.safetensors: of XLM-RoBERTa with a map of characters, and of EmbeddingGemma with six layers of windows for one
without, as GGUF has it. Without KIND rerankers are made too. Nomic's BERT and ModernBERT get the keys of their authors first, because the
converter knows no others. PEERS is as make_gguf_families.py has it; the python that runs this has sentence-transformers
and sentencepiece."""

import io
import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(sys.argv[1])
SOURCE = next(PEERS.glob("llama_cpp_python-*/vendor/llama.cpp"))
sys.path[:0] = [str(HERE), str(SOURCE), str(SOURCE / "gguf-py")]

import gguf
import sentencepiece
import transformers
from conversion import get_model_class
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

import make_embedder_goldens as goldens

EMBEDDERS = ("bert_cls", "xlm_mapped", "qwen3_last", "nomic_mean", "modernbert_cls", "gemma_windows")
PRE_TOKENIZERS = {"qwen3_last": "qwen2"}  # the others of bytes have GPT-2's


def small_charsmap():
    """A map of characters as XLM-RoBERTa's, of the few that the texts need."""
    rules = {"\t": " ", "\n": " ", "\u2028": " ", "\u3000": " ", "\u200b": " ", "\u00ad": "", "\ufb01": "fi", "²": "2", "½": "1/2"}
    rules |= {chr(c): chr(c - 0xfee0) for c in range(0xff01, 0xff5f)}
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        for old, new in rules.items():
            print(f"{ord(old):x}", " ".join(f"{ord(c):x}" for c in new), sep="\t", file=tsv)
        tsv.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(goldens.SENTENCES * 2), model_writer=model, vocab_size=120,
            normalization_rule_tsv=tsv.name, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def mapped_tokenizer():
    t = goldens.xlm_tokenizer()
    t._tokenizer.normalizer = normalizers.Precompiled(small_charsmap())
    return t


def set_mapped_vocab(model):
    """The converter takes runs of spaces for one where transformers cleans spaces up, which version 5 no longer says."""
    add = model.gguf_writer.add_remove_extra_whitespaces
    model.gguf_writer.add_remove_extra_whitespaces = lambda _: add(True)
    model._xlmroberta_set_vocab()


def make_mapped(out, scratch):
    """An embedder with such a map, and its vectors."""
    goldens.OUT = scratch
    goldens.KINDS["xlm_mapped"] = (mapped_tokenizer, goldens.xlm_model, goldens.KINDS["xlm_mean"][2], {}, 40, False)
    goldens.make("xlm_mapped")
    shutil.copy(scratch / "xlm_mapped/expected.safetensors", out / "xlm_mapped.safetensors")
    return scratch / "xlm_mapped"


def gemma_model(t):
    """EmbeddingGemma with GGUF's order of layers."""
    return transformers.Gemma3TextModel(transformers.Gemma3TextConfig(
        **goldens.sizes(t, num_key_value_heads=1, head_dim=16, max_position_embeddings=512, sliding_window=8,
                        query_pre_attn_scalar=16, use_bidirectional_attention=True) | dict(num_hidden_layers=7)))


def make_windows(out, scratch):
    """An embedder with that order, and its vectors."""
    goldens.OUT = scratch
    goldens.KINDS["gemma_windows"] = (goldens.llama_tokenizer, gemma_model, *goldens.KINDS["gemma_dense"][2:])
    goldens.make("gemma_windows")
    shutil.copy(scratch / "gemma_windows/expected.safetensors", out / "gemma_windows.safetensors")
    return scratch / "gemma_windows"


def copy_with(folder, scratch, config, tensors):
    """The folder with another config.json and other tensors."""
    copy = shutil.copytree(folder, scratch / folder.name)
    (copy / "config.json").write_text(json.dumps(config))
    save_file(tensors, copy / "model.safetensors")
    return copy


def publish_nomic(folder, scratch):
    old = json.loads((folder / "config.json").read_text())
    config = old | dict(n_embd=old["hidden_size"], n_layer=old["num_hidden_layers"],
                  n_head=old["num_attention_heads"], n_inner=old["intermediate_size"], n_positions=8192,
                  max_trained_positions=2048, layer_norm_epsilon=old["layer_norm_eps"], vocab_size=old["vocab_size"],
                  type_vocab_size=2, activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False,
                  mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0, rotary_emb_base=1000,
                  rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None)
    return copy_with(folder, scratch, config, load_file(folder / "model.safetensors"))


def publish_modernbert(folder, scratch):
    config = json.loads((folder / "config.json").read_text())
    ropes = config.pop("rope_parameters")
    del config["layer_types"]  # of two layers the first has no window, as of every three
    config |= dict(global_attn_every_n_layers=3, global_rope_theta=ropes["full_attention"]["rope_theta"],
                   local_rope_theta=ropes["sliding_attention"]["rope_theta"], layer_norm_eps=config["norm_eps"])
    return copy_with(folder, scratch, config, load_file(folder / "model.safetensors"))


RERANKERS = {"roberta": "gpt-2", "qwen3": "qwen2"}


def convert_reranker(kind, out):
    """reranker_KIND.gguf of tests/golden/reranker/KIND, whose logits are there. The card says which model asks."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(shutil.copytree(HERE.parent / "golden/reranker" / kind, pathlib.Path(scratch) / kind))
        (folder / "README.md").write_text("# Qwen3-Reranker\n" if kind == "qwen3" else "")
        base = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
        own = {"model_arch": base.model_arch, "get_vocab_base_pre": lambda self, tokenizer: RERANKERS[kind]}
        type("Tiny", (base,), own)(folder, gguf.LlamaFileType.ALL_F32, out / f"reranker_{kind}.gguf").write()


MADE = {"xlm_mapped": make_mapped, "gemma_windows": make_windows}
PUBLISHED = {"nomic_mean": publish_nomic, "modernbert_cls": publish_modernbert}


def convert_embedder(kind, out):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        folder = HERE.parent / "golden/embedder" / kind
        if kind in MADE:
            folder = MADE[kind](out, scratch)
        if kind in PUBLISHED:
            folder = PUBLISHED[kind](folder, scratch)
        base = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
        own = {"model_arch": base.model_arch, "get_vocab_base_pre": lambda self, tokenizer: PRE_TOKENIZERS.get(kind, "gpt-2")}
        if kind == "xlm_mapped":
            own["set_vocab"] = set_mapped_vocab
        more = {"sentence_transformers_dense_modules": True} if kind == "gemma_windows" else {}
        own["tensor_force_quant"] = lambda self, name, new_name, bid, n_dims: (
            gguf.GGMLQuantizationType.Q8_0 if new_name.startswith("dense_") else False)
        type("Tiny", (base,), own)(folder, gguf.LlamaFileType.ALL_F32, out / f"{kind}.gguf", **more).write()


def main():
    out = pathlib.Path(sys.argv[2])
    for kind in sys.argv[3:] or EMBEDDERS:
        convert_embedder(kind, out)
    for kind in () if sys.argv[3:] else RERANKERS:
        convert_reranker(kind, out)


if __name__ == "__main__":
    main()
