"""make_gguf_families.py PEERS OUT [NAME ...]: parts of tests/golden/gguf whose files llama.cpp's own converter makes of
tiny random checkpoints of transformers, and transformers' logits and tokens. PEERS is a folder with llama.cpp's source
(llama_cpp_python-*); the python that runs this has torch and transformers 5.23.

A folder has model.gguf and cases.safetensors, as tests/golden/hf/README.md describes them. Where the converter rounds
matrices to Q8_0, transformers computes with the rounded ones. Tokens have names alone: nothing is tokenised here.

qwen2vl is the text of tests/golden/vision/qwen2_vl (make_qwen_vl_golden.py), whose tower is in no such file.

KIND.gguf is the embedder of tests/golden/embedder/KIND with its tokenizer; its vectors are expected.safetensors there,
or beside it KIND.safetensors: of XLM-RoBERTa with a map of characters."""

import io
import json
import pathlib
import shutil
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(sys.argv[1])
SOURCE = next(PEERS.glob("llama_cpp_python-*/vendor/llama.cpp"))
sys.path[:0] = [str(HERE), str(SOURCE), str(SOURCE / "gguf-py")]

import gguf
import numpy as np
import sentencepiece
import torch
from conversion import get_model_class
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers
from transformers import AutoConfig, AutoModelForCausalLM

import make_embedder_goldens as goldens
from make_decoder_golden import FACTORS, MOE, SIZES, fill, make_cases, rope, words_of_4

Q8 = gguf.GGMLQuantizationType.Q8_0
PHI3 = dict(rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, **FACTORS),
            original_max_position_embeddings=24, sliding_window=9)
GEMMA3 = dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=16, num_hidden_layers=7)
EXPERTS = dict(MOE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=False)
# Folder: model_type, what differs from SIZES, the type of matrices.
FAMILIES = {
    "phi3": ("phi3", PHI3, "F32"),
    "phi3_short": ("phi3", dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0), sliding_window=None,
                                original_max_position_embeddings=64), "Q8_0"),
    "gemma3": ("gemma3_text", dict(GEMMA3, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), "Q8_0"),
    "gptneox": ("gpt_neox", dict(rope("default", partial_rotary_factor=0.5), use_parallel_residual=False), "F32"),
    "gptneox_parallel": ("gpt_neox", dict(use_parallel_residual=True), "Q8_0"),
    "mixtral": ("mixtral", dict(MOE, num_local_experts=4, intermediate_size=64), "Q8_0"),
    "qwen2moe": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=64), "Q8_0"),
    "qwen3moe": ("qwen3_moe", dict(EXPERTS, head_dim=16, norm_topk_prob=True), "Q8_0"),
}

EMBEDDERS = ("bert_cls", "xlm_mapped", "qwen3_last")


def add_letters(model):
    """A vocabulary of names."""
    w, n = model.gguf_writer, model.hparams["vocab_size"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(["<pad>", "<s>", "</s>", "AB"] + [chr(ord("A") + i) for i in range(n - 4)])
    w.add_token_types([3, 3, 3] + [1] * (n - 3))
    w.add_token_merges(["A B"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)


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


def convert_embedder(kind, out):
    with tempfile.TemporaryDirectory() as scratch:
        folder = HERE.parent / "golden/embedder" / kind
        if kind == "xlm_mapped":
            folder = make_mapped(out, pathlib.Path(scratch))
        base = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
        own = {"model_arch": base.model_arch, "get_vocab_base_pre": lambda self, tokenizer: "qwen2"}
        if kind == "xlm_mapped":
            own["set_vocab"] = set_mapped_vocab
        type("Tiny", (base,), own)(folder, gguf.LlamaFileType.ALL_F32, out / f"{kind}.gguf").write()


def round_matrices(model):
    """Numbers that Q8_0 holds."""
    for p in model.parameters():
        if p.dim() >= 2:
            narrow = gguf.quants.quantize(p.detach().numpy(), Q8)
            with torch.no_grad():
                p.copy_(torch.from_numpy(gguf.quants.dequantize(narrow, Q8)))


def convert(folder, out, kind):
    hparams = json.loads((folder / "config.json").read_text())
    kind = gguf.LlamaFileType.ALL_F32 if kind == "F32" else gguf.LlamaFileType.MOSTLY_Q8_0
    # NeoX's converter knows the words of transformers 4 only.
    words = words_of_4(hparams) if hparams["model_type"] == "gpt_neox" else None
    base = get_model_class(hparams["architectures"][0])
    letters = dict(model=dict(vocab={str(i): i for i in range(hparams["vocab_size"])}), added_tokens=[])
    (folder / "tokenizer.json").write_text(json.dumps(letters))  # Gemma's converter counts them
    tiny = type("Tiny", (base,), {"model_arch": base.model_arch, "set_vocab": add_letters})
    tiny(folder, kind, out, hparams=words).write()


def make_model(model_type, options):
    options = dict(SIZES, **options)
    if model_type == "gpt_neox":
        options.pop("num_key_value_heads")
    config = AutoConfig.for_model(model_type, **options)
    config._attn_implementation = "eager"
    return AutoModelForCausalLM.from_config(config).eval().float()


def make_folder(out, model_type, options, kind, seed):
    model = make_model(model_type, options)
    fill(model, seed)
    if kind == "Q8_0":
        round_matrices(model)
    data = make_cases(model, np.random.Generator(np.random.PCG64(seed)))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model.save_pretrained(folder)
        convert(folder, out / "model.gguf", kind)
    save_file(data, out / "cases.safetensors", metadata={"format": "np"})
    for path in out.iterdir():
        path.chmod(0o644)


def make_qwen2vl(out):
    folder = HERE.parent / "golden/vision/qwen2_vl"
    data = {name: t for name, t in load_file(folder / "cases.safetensors").items() if name.startswith("text.")}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        convert(pathlib.Path(scratch), out / "model.gguf", "F32")
    save_file(data, out / "cases.safetensors", metadata={"format": "np"})


def main():
    out, names = pathlib.Path(sys.argv[2]), sys.argv[3:]
    for kind in names or EMBEDDERS:
        if kind in EMBEDDERS:
            convert_embedder(kind, out)
    if not names or "qwen2vl" in names:
        make_qwen2vl(out / "qwen2vl")
    for name in [name for name in names if name in FAMILIES] if names else FAMILIES:
        model_type, options, kind = FAMILIES[name]
        make_folder(out / name, model_type, options, kind, zlib.crc32(name.encode()))
        size = sum(path.stat().st_size for path in (out / name).iterdir())
        print(f"{name:20s} {size / 1000:.0f} KB", flush=True)


if __name__ == "__main__":
    main()
