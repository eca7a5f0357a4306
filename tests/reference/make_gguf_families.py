"""make_gguf_families.py PEERS OUT [NAME ...]: parts of tests/golden/gguf whose files llama.cpp's own converter makes of
tiny random checkpoints of transformers, and transformers' logits and tokens. PEERS is a folder with llama.cpp's source
(llama_cpp_python-*); the python that runs this has torch and transformers 5.23.

A folder has model.gguf and cases.safetensors, as tests/golden/hf/README.md describes them. Where the converter rounds
matrices to Q8_0, transformers computes with the rounded ones. Tokens have names alone: nothing is tokenised here.

qwen2vl is the text of tests/golden/vision/qwen2_vl (make_qwen_vl_golden.py), whose tower is in no such file.
The embedders beside them are made by make_gguf_embedders.py."""

import json
import pathlib
import re
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
import torch
from conversion import get_model_class
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_decoder_golden import FACTORS, MOE, MULTIPLIERS, SIZES, fill, make_cases, rope, words_of_4

Q8 = gguf.GGMLQuantizationType.Q8_0
PHI3 = dict(rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, **FACTORS),
            original_max_position_embeddings=24, sliding_window=9)
GEMMA3 = dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=16, num_hidden_layers=7)
EXPERTS = dict(MOE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=False)
EXPERTS_4 = dict(MOE, num_experts_per_tok=2, moe_intermediate_size=32)
LATENT = dict(EXPERTS_4 | dict(moe_intermediate_size=16), num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8,
              v_head_dim=20, n_routed_experts=4, num_hidden_layers=2, first_k_dense_replace=1)
YARN = dict(factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0)
DELTA = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
             linear_conv_kernel_dim=4, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5,
                                                            mrope_interleaved=True, mrope_section=[2, 1, 1]))
SPACE = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=8, mamba_d_head=8,
             mamba_d_state=16, mamba_n_groups=2, shared_intermediate_size=32, **MULTIPLIERS)
NEMOTRON = dict(num_hidden_layers=None, head_dim=16, ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, chunk_size=8)
LFM2 = dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"])
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA4 = dict(head_dim=16, global_head_dim=32, sliding_window=5, vocab_size_per_layer_input=64, final_logit_softcapping=3.0)
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
    "deepseek2_lite": ("deepseek_v2", dict(LATENT | dict(kv_lora_rank=32), **rope("yarn", mscale=0.707, mscale_all_dim=0.707, **YARN), q_lora_rank=None,
                                           n_shared_experts=2), "F32"),
    "deepseek2": ("deepseek_v3", dict(LATENT | dict(n_routed_experts=6), **rope("yarn", mscale=1.0, mscale_all_dim=1.0, **YARN), q_lora_rank=16,
                                      n_group=3, topk_group=2, n_shared_experts=1), "F32"),
    "glm47_flash": ("glm4_moe_lite", dict(LATENT, **rope("default"), q_lora_rank=16, n_group=1, topk_group=1), "F32"),
    "glm4moe": ("glm4_moe", dict(EXPERTS_4, head_dim=16, n_routed_experts=4, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
                                 num_hidden_layers=2), "Q8_0"),
    "ernie4_5_moe": ("ernie4_5_moe", dict(MOE, moe_num_experts=4, moe_k=2, moe_intermediate_size=32, num_hidden_layers=3, moe_layer_interval=1,
                                          moe_num_shared_experts=2, intermediate_size=128), "Q8_0"),
    "minimax": ("minimax_m2", dict(MOE, head_dim=16, num_local_experts=4, num_experts_per_tok=2, rotary_dim=8), "F32"),
    "qwen35": ("qwen3_5_text", dict(DELTA | dict(linear_key_head_dim=16, linear_value_head_dim=16), num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                    tie_word_embeddings=True), "F32"),
    "qwen35moe": ("qwen3_5_moe_text", dict(DELTA, **EXPERTS_4, num_experts=4, shared_expert_intermediate_size=32, num_hidden_layers=2,
                                           full_attention_interval=2), "Q8_0"),
    "lfm2": ("lfm2", dict(LFM2, intermediate_size=64, block_multiple_of=32, block_ffn_dim_multiplier=1.3), "Q8_0"),
    "lfm2moe": ("lfm2_moe", dict(EXPERTS_4, **LFM2, num_experts=4, num_dense_layers=1), "Q8_0"),
    "granitehybrid": ("granitemoehybrid", dict(MOE, **SPACE, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True), "Q8_0"),
    "granitehybrid_dense": ("granitemoehybrid", dict(SPACE, num_local_experts=0, num_experts_per_tok=0, attention_bias=True), "Q8_0"),
    "granite4": ("granitemoehybrid", dict(SPACE | dict(num_hidden_layers=2, layer_types=["full_attention"] * 2), num_local_experts=0,
                                          num_experts_per_tok=0, position_embedding_type="rope"), "Q8_0"),
    "granitemoe": ("granitemoe", dict(MOE, **MULTIPLIERS, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True), "Q8_0"),
    "granitemoe_shared": ("granitemoeshared", dict(MOE, **MULTIPLIERS, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2,
                                                   shared_intermediate_size=64, attention_bias=True), "Q8_0"),
    "dots1": ("dots1", dict(EXPERTS_4, n_routed_experts=4, n_shared_experts=2, routed_scaling_factor=1.5, norm_topk_prob=True, first_k_dense_replace=1,
                            num_hidden_layers=3, head_dim=16), "Q8_0"),
    "olmoe": ("olmoe", dict(MOE, num_experts=4, num_experts_per_tok=2, intermediate_size=64), "Q8_0"),
    "nemotron_h": ("nemotron_h", dict(NEMOTRON, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"], mlp_bias=True), "Q8_0"),
    "nemotron_h_moe": ("nemotron_h", dict(NEMOTRON, **EXPERTS_4, layers_block_type=["moe", "linear_attention", "full_attention", "moe"],
                                          n_routed_experts=4, n_group=1, topk_group=1, moe_shared_expert_intermediate_size=32,
                                          routed_scaling_factor=1.5), "Q8_0"),
    "glm4": ("glm4", dict(head_dim=16, attention_bias=True), "Q8_0"),
    "cohere2": ("cohere2", dict(sliding_window=5, num_hidden_layers=4, logit_scale=0.5), "Q8_0"),
    "olmo3": ("olmo3", dict(sliding_window=5, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], rope_parameters={
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500000.0, "original_max_position_embeddings": 16, "beta_fast": 4.0,
                           "beta_slow": 1.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}), "Q8_0"),
    "mistral3": ("ministral3", dict(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=6, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.4)), "Q8_0"),
    "exaone4": ("exaone4", dict(head_dim=16, sliding_window=5, num_hidden_layers=4), "Q8_0"),
    "arcee": ("arcee", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
                            attention_bias=True, mlp_bias=True), "Q8_0"),
    "nemotron": ("nemotron", dict(mlp_bias=True), "Q8_0"),
    "seed_oss": ("seed_oss", dict(head_dim=16), "Q8_0"),
    "ernie4_5": ("ernie4_5", dict(head_dim=16), "Q8_0"),
    "gemma4": ("gemma4_text", dict(GEMMA4, num_hidden_layers=4, layer_types=[SLIDING, FULL, SLIDING, FULL], num_kv_shared_layers=2,
                                   use_double_wide_mlp=True, hidden_size_per_layer_input=12), "F32"),
    "gemma4_moe": ("gemma4_text", dict(GEMMA4, **MOE, num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL], num_attention_heads=8,
                                       num_key_value_heads=4, attention_k_eq_v=True, num_global_key_value_heads=2, hidden_size_per_layer_input=0,
                                       enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32), "Q8_0"),
    "llama4": ("llama4_text", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
                                   head_dim=16, intermediate_size_mlp=64, num_local_experts=4, num_experts_per_tok=2, num_hidden_layers=4,
                                   interleave_moe_layer_step=2), "F32"),
    "hunyuan_moe": ("hunyuan_v1_moe", dict(MOE, head_dim=16, num_experts=4, moe_topk=2, intermediate_size=64, **rope("default")), "Q8_0"),
    "hunyuan_dense": ("hunyuan_v1_dense", dict(head_dim=16, tie_word_embeddings=True, max_position_embeddings=32768, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0)), "Q8_0"),
}


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


def round_matrices(model):
    """Numbers that Q8_0 holds. Filters of convolutions stay as they are, in the file too."""
    for p in model.parameters():
        if p.dim() >= 2 and p.shape[-1] % 32 == 0:
            narrow = gguf.quants.quantize(p.detach().numpy(), Q8)
            with torch.no_grad():
                p.copy_(torch.from_numpy(gguf.quants.dequantize(narrow, Q8)))


def words_of_converter(hparams):
    """Some converters know the words of transformers 4 alone, or of published files."""
    kind = hparams["model_type"]
    if kind == "nemotron_h":
        experts = "moe" in hparams["layers_block_type"]
        kept = {key: v for key, v in words_of_4(hparams).items() if experts or not re.search("expert|moe|group$", key)}
        return dict(kept, num_hidden_layers=len(hparams["layers_block_type"]))
    if kind in ("gpt_neox", "granitemoehybrid", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        return words_of_4(hparams)
    if kind == "hunyuan_v1_moe":  # a number for each layer
        one = dict(moe_intermediate_size=hparams["intermediate_size"], moe_topk=hparams["moe_topk"], num_shared_expert=1)
        return hparams | {key: [n] * hparams["num_hidden_layers"] for key, n in one.items()}
    further = {"cohere2": dict(rotary_pct=1.0), "minimax_m2": dict(scoring_func="sigmoid")}
    return dict(hparams, **further[kind]) if kind in further else None


def convert(folder, out, kind):
    hparams = json.loads((folder / "config.json").read_text())
    kind = gguf.LlamaFileType.ALL_F32 if kind == "F32" else gguf.LlamaFileType.MOSTLY_Q8_0
    words = words_of_converter(hparams)
    base = get_model_class(hparams["architectures"][0])
    base = getattr(base, "Ministral3Model", base)  # a class that another one chooses
    letters = dict(model=dict(vocab={str(i): i for i in range(hparams["vocab_size"])}), added_tokens=[])
    (folder / "tokenizer.json").write_text(json.dumps(letters))  # Gemma's converter counts them
    tiny = type("Tiny", (base,), {"model_arch": base.model_arch, "set_vocab": add_letters, "no_mtp": True})
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


SEEDS = ("deepseek2", "gemma4", "gemma4_moe", "glm4moe", "lfm2moe", "llama4", "granitehybrid", "granitemoe_shared", "nemotron_h_moe", "qwen35moe")


def make_seed(name):
    """A smaller file of the family for tests/fuzz/fuzz_gguf.c."""
    model_type, options, _ = FAMILIES[name]
    small = dict(vocab_size=8, hidden_size=16, moe_intermediate_size=8, shared_intermediate_size=8, shared_expert_intermediate_size=8,
                 moe_shared_expert_intermediate_size=8, kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, linear_key_head_dim=8,
                 linear_value_head_dim=8, num_local_experts=2, mamba_n_heads=4, mamba_d_state=4, mamba_num_heads=8, ssm_state_size=4, head_dim=8,
                 global_head_dim=16, vocab_size_per_layer_input=8, hidden_size_per_layer_input=4, intermediate_size_mlp=16)
    known = {key: value for key, value in small.items() if key in options or key in SIZES}
    if "rope_parameters" in options and "mrope_section" in options["rope_parameters"]:
        known["rope_parameters"] = dict(options["rope_parameters"], mrope_section=[1, 1, 0])
    model = make_model(model_type, dict(options, **known, intermediate_size=16))
    fill(model, 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model.save_pretrained(folder)
        convert(folder, HERE.parent / "fuzz/corpus/gguf" / name, "F32")


def main():
    out, names = pathlib.Path(sys.argv[2]), sys.argv[3:]
    if not names or "qwen2vl" in names:
        make_qwen2vl(out / "qwen2vl")
    for name in [name for name in names if name in FAMILIES] if names else FAMILIES:
        model_type, options, kind = FAMILIES[name]
        make_folder(out / name, model_type, options, kind, zlib.crc32(name.encode()))
        size = sum(path.stat().st_size for path in (out / name).iterdir())
        print(f"{name:20s} {size / 1000:.0f} KB", flush=True)
        if name in SEEDS:
            make_seed(name)


if __name__ == "__main__":
    main()
