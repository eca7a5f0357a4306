"""Writes the decoder families of tests/golden/hf: tiny random checkpoints of transformers' own classes, and their logits.

    pip install torch transformers==5.23.0 safetensors numpy
    python tests/reference/make_decoder_golden.py [NAME ...]

The folders have the layout of tests/golden/hf/README.md. A prompt is longer than any window; `long` is also longer than
original_max_position_embeddings, which the generation stays below. Nothing is patched. Each folder is read back, with
config.json and, where transformers 4 wrote other words, with config_v4.json, and must give the same logits.
"""
import json
import os
import shutil
import sys
import warnings
import zlib
from pathlib import Path

os.environ["TRANSFORMERS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
import numpy as np
import safetensors.torch
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

OUT = Path(__file__).resolve().parents[1] / "golden/hf"
VOCAB, LONG, PROMPT, NEW = 64, 40, 7, 16
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MOE = dict(experts_implementation="eager")
FACTORS = dict(short_factor=[1.0, 1.1, 1.3], long_factor=[1.5, 2.5, 4.0])


def rope(kind, **keys):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **keys}}


UNTRUNCATED = dict(rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, truncate=False, beta_fast=32.0, beta_slow=1.0,
                                        original_max_position_embeddings=4096))

DELTA = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=20,
             linear_conv_kernel_dim=4)
DELTA_EXPERTS = dict(MOE, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, shared_expert_intermediate_size=24)
DELTA_LAYERS = dict(num_hidden_layers=4, layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"])
LATENT = dict(MOE, num_key_value_heads=4, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=6,
              num_experts_per_tok=2, moe_intermediate_size=16, num_hidden_layers=3, first_k_dense_replace=1)
# transformers empties the row of a padding token when it loads Youtu, so there is none.
DENSE_LATENT = dict(pad_token_id=None, num_key_value_heads=4, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20)
MSCALE = dict(factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0)
MROPE = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_interleaved=True,
                                  mrope_section=[2, 1, 1]))
TINY_TOWER = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=2, out_hidden_size=32, num_position_embeddings=4)

LFM2 = dict(num_hidden_layers=4, layer_types=["conv", "conv", "full_attention", "conv"])

LFM3_ROPE = dict(full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.75, factor=2.0),
                 sliding_attention=dict(rope_type="default", rope_theta=5000.0))
OLMO_DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=20)
LFM3_LAYERS = ["sliding_attention", "conv", "full_attention", "conv"]

SPACE = dict(num_hidden_layers=3, intermediate_size=16, layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=8,
             mamba_d_state=12, mamba_d_conv=4, mamba_expand=2, shared_intermediate_size=24, mamba_chunk_size=8)
MULTIPLIERS = dict(embedding_multiplier=1.5, residual_multiplier=0.7, attention_multiplier=0.2, logits_scaling=2.0)

NEMOTRON = dict(num_hidden_layers=None, head_dim=16, ssm_state_size=12, mamba_num_heads=8, mamba_head_dim=8, chunk_size=8)

WIDE = dict(head_dim=16, global_head_dim=24, sliding_window=5, vocab_size_per_layer_input=VOCAB)
TYPES = dict(S="sliding_attention", F="full_attention")
REUSING = dict(WIDE, num_hidden_layers=6, layer_types=[TYPES[c] for c in "SFSSSF"], num_kv_shared_layers=3, use_double_wide_mlp=True,
               hidden_size_per_layer_input=12, final_logit_softcapping=3.0)
GEMMA4_EXPERTS = dict(MOE, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=16)
GEMMA4_TOWER = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                    patch_size=2, position_embedding_size=4)

LLAMA4 = dict(head_dim=16, intermediate_size=24, intermediate_size_mlp=40, num_local_experts=4, attention_chunk_size=6, floor_scale=4, attn_scale=0.3)
LLAMA4_TOWER = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, vision_output_dim=16,
                    projector_input_dim=16, projector_output_dim=16)

WITHOUT_4 = ("lfm3", "ministral", "olmo_hybrid", "mellum")  # families that transformers 4 never wrote, beside Qwen3.5

# Folder: model_type, and what differs from SIZES and from transformers' defaults.
FAMILIES = {
    "llama3": ("llama", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=16), attention_bias=True, mlp_bias=True)),
    "llama_linear": ("llama", dict(rope("linear", factor=4.0), tie_word_embeddings=True, num_key_value_heads=4)),
    "llama_yarn": ("llama", dict(rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0),
                                 head_dim=16)),
    "mistral": ("mistral", dict(sliding_window=5)),
    "qwen2_window": ("qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("qwen3", dict(head_dim=16, tie_word_embeddings=True, num_hidden_layers=2)),
    "phi3": ("phi3", dict(rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                                               **FACTORS), original_max_position_embeddings=24, sliding_window=9)),
    "gemma2": ("gemma2", dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
                              final_logit_softcapping=3.0)),
    "gemma3_text": ("gemma3_text", dict(head_dim=16, sliding_window=5, query_pre_attn_scalar=24, num_hidden_layers=3,
                                        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                        rope_parameters={
                                            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "gemma4": ("gemma4", REUSING),
    "gemma4_text": ("gemma4_text", dict(REUSING, num_kv_shared_layers=2, use_double_wide_mlp=False, final_logit_softcapping=None, rope_parameters={
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
    "gemma4_keys": ("gemma4_text", dict(WIDE, num_hidden_layers=3, layer_types=[TYPES[c] for c in "SFF"], num_attention_heads=8, num_key_value_heads=4,
                                        attention_k_eq_v=True, num_global_key_value_heads=2, hidden_size_per_layer_input=0, attention_bias=True,
                                        tie_word_embeddings=False)),
    "gemma4_moe": ("gemma4", dict(WIDE, **GEMMA4_EXPERTS, num_hidden_layers=3, layer_types=[TYPES[c] for c in "SSF"], num_attention_heads=8, num_key_value_heads=4,
                                  attention_k_eq_v=True, num_global_key_value_heads=2, hidden_size_per_layer_input=0, final_logit_softcapping=3.0)),
    "gemma4_moe_text": ("gemma4_text", dict(REUSING, **GEMMA4_EXPERTS | dict(num_experts=4, top_k_experts=3), num_hidden_layers=4, num_kv_shared_layers=2,
                                            layer_types=[TYPES[c] for c in "SFSF"])),
    "gpt_neox_parallel": ("gpt_neox", dict(use_parallel_residual=True)),
    "olmo2": ("olmo2", dict(attention_bias=True)),
    "olmo3": ("olmo3", dict(sliding_window=5, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                            rope_parameters={
                                "full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500000.0,
                                                   "original_max_position_embeddings": 16, "beta_fast": 4.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}})),
    "glm": ("glm", dict(head_dim=16, eos_token_id=[2, 3])),
    "glm4": ("glm4", dict(head_dim=8, attention_bias=False)),
    "seed_oss": ("seed_oss", dict(head_dim=16, attention_out_bias=True, mlp_bias=True)),
    "ernie4_5": ("ernie4_5", dict(head_dim=16, use_bias=True)),
    "cohere2": ("cohere2", dict(sliding_window=5, num_hidden_layers=4, logit_scale=0.5)),
    "ministral3": ("ministral3", dict(head_dim=16, sliding_window=21, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=6, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.4))),
    "ministral3_level": ("ministral3", dict(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=6, beta_fast=4.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=0.0, llama_4_scaling_beta=0.0))),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", dict(head_dim=16, attention_bias=True, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0))),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(MOE, head_dim=16, num_experts=5, moe_topk=2, intermediate_size=24, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0))),
    "hunyuan_v1_moe_stacked": ("hunyuan_v1_moe", dict(MOE, head_dim=8, num_experts=4, moe_topk=[1, 1], attention_bias=True, tie_word_embeddings=True)),
    "llama4": ("llama4", dict(LLAMA4, num_hidden_layers=4, interleave_moe_layer_step=2)),
    "llama4_text": ("llama4_text", dict(LLAMA4, num_hidden_layers=3, no_rope_layers=[1, 0, 1], num_experts_per_tok=2, use_qk_norm=False, attention_bias=True,
                                        **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "glm4_moe": ("glm4_moe", dict(MOE, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_group=3,
                                  topk_group=2, routed_scaling_factor=1.5, use_qk_norm=True, num_hidden_layers=3, attention_bias=True)),
    "glm4_moe_stacked": ("glm4_moe", dict(MOE, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=False,
                                          n_shared_experts=2, num_hidden_layers=2)),
    "ernie4_5_moe": ("ernie4_5_moe", dict(MOE, moe_num_experts=6, moe_k=3, moe_intermediate_size=16, num_hidden_layers=4,
                                          moe_layer_interval=2, moe_num_shared_experts=1)),
    "ernie4_5_moe_biases": ("ernie4_5_moe", dict(MOE, moe_num_experts=4, moe_k=2, moe_intermediate_size=16, num_hidden_layers=2, moe_num_shared_experts=2, use_bias=True)),
    "minimax_m2": ("minimax_m2", dict(MOE, head_dim=16, num_local_experts=5, num_experts_per_tok=2, rotary_dim=8)),
    "gpt_oss": ("gpt_oss", dict(MOE, **UNTRUNCATED, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=5, num_hidden_layers=3)),
    "gpt_oss_mxfp4": ("gpt_oss", dict(MOE, **UNTRUNCATED, head_dim=16, hidden_size=160, intermediate_size=64, num_local_experts=4,
                                      num_experts_per_tok=3, sliding_window=5)),
    "granite": ("granite", dict(embedding_multiplier=1.5, residual_multiplier=0.7, attention_multiplier=0.2,
                                logits_scaling=2.0, tie_word_embeddings=True)),
    "granitemoe": ("granitemoe", dict(MOE, **MULTIPLIERS, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2, tie_word_embeddings=True)),
    "granitemoe_stacked": ("granitemoe", dict(MOE, intermediate_size=16, num_local_experts=4, num_experts_per_tok=3, attention_bias=True)),
    "granitemoeshared": ("granitemoeshared", dict(MOE, **MULTIPLIERS, intermediate_size=16, num_local_experts=5, num_experts_per_tok=3,
                                                  shared_intermediate_size=24)),
    "granitemoeshared_stacked": ("granitemoeshared", dict(MOE, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2)),
    "granite_swa": ("granite_swa", dict(MULTIPLIERS, sliding_window=5, num_hidden_layers=5, layer_rope_theta=[0, 5000.0, 0, 5000.0, 20000.0],
                                        tie_word_embeddings=True)),
    "granite_swa_yarn": ("granite_swa", dict(rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0), sliding_window=5,
                                             num_hidden_layers=3, layer_types=[TYPES[c] for c in "SFS"], layer_rope_theta=[500.0, 50000.0, 500.0],
                                             attention_multiplier=0.3, attention_bias=True, mlp_bias=True, tie_word_embeddings=False)),
    "granitemoe_swa": ("granitemoe_swa", dict(MOE, **MULTIPLIERS, intermediate_size=16, num_local_experts=5, num_experts_per_tok=2, sliding_window=5,
                                              shared_intermediate_size=24)),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0, 1], num_hidden_layers=3, use_sliding_window=True,
                                sliding_window=5)),
    "starcoder2": ("starcoder2", dict(sliding_window=5)),
    "mixtral": ("mixtral", dict(MOE, num_local_experts=5, sliding_window=5)),
    "qwen2_moe": ("qwen2_moe", dict(MOE, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                                    shared_expert_intermediate_size=24, num_hidden_layers=3, decoder_sparse_step=2,
                                    use_sliding_window=True, sliding_window=5, max_window_layers=2)),
    "qwen3_moe": ("qwen3_moe", dict(MOE, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, head_dim=16,
                                    norm_topk_prob=True, num_hidden_layers=3, mlp_only_layers=[1])),
    "mixtral_stacked": ("mixtral", dict(MOE, num_local_experts=4, intermediate_size=16)),
    "qwen2_moe_stacked": ("qwen2_moe", dict(MOE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                            shared_expert_intermediate_size=24)),
    "qwen3_moe_stacked": ("qwen3_moe", dict(MOE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                            head_dim=16, norm_topk_prob=True)),
    "qwen3_next": ("qwen3_next", dict(DELTA, **DELTA_EXPERTS, **DELTA_LAYERS)),
    "qwen3_next_stacked": ("qwen3_next", dict(DELTA | dict(linear_key_head_dim=6, linear_value_head_dim=16), **DELTA_EXPERTS, num_hidden_layers=2, full_attention_interval=2, norm_topk_prob=False,
                                              attention_bias=True, mlp_only_layers=[0])),
    "qwen3_5": ("qwen3_5", dict(DELTA, **DELTA_LAYERS, **MROPE, tie_word_embeddings=True)),
    "qwen3_5_text": ("qwen3_5_text", dict(DELTA | dict(linear_num_value_heads=2, linear_conv_kernel_dim=2), **DELTA_LAYERS)),
    "qwen3_5_moe_stacked": ("qwen3_5_moe", dict(DELTA, **DELTA_EXPERTS, **DELTA_LAYERS, **MROPE)),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", dict(DELTA, **DELTA_EXPERTS, num_hidden_layers=2, full_attention_interval=2)),
    "lfm2": ("lfm2", dict(LFM2, intermediate_size=40, block_multiple_of=12, block_ffn_dim_multiplier=1.3)),
    "lfm2_biases": ("lfm2", dict(LFM2, conv_bias=True, conv_L_cache=5, block_auto_adjust_ff_dim=False, tie_word_embeddings=False)),
    "lfm2_moe": ("lfm2_moe", dict(MOE, **LFM2, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, num_dense_layers=1,
                                  routed_scaling_factor=1.5)),
    "lfm2_moe_stacked": ("lfm2_moe", dict(MOE, **LFM2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                          num_dense_layers=2, use_expert_bias=False, norm_topk_prob=False)),
    "lfm3": ("lfm3", dict(head_dim=16, num_hidden_layers=5, sliding_window=5)),
    "lfm3_biases": ("lfm3", dict(head_dim=8, num_hidden_layers=4, layer_types=LFM3_LAYERS, rope_parameters=LFM3_ROPE, sliding_window=9, conv_bias=True,
                                 attention_bias=True, conv_L_cache=4, tie_word_embeddings=False)),
    "lfm3_bare": ("lfm3", dict(head_dim=8, num_hidden_layers=4, layer_types=LFM3_LAYERS, sliding_window=9, use_sandwich_norm=False,
                               use_attention_gate=False)),
    "exaone4": ("exaone4", dict(head_dim=16, num_hidden_layers=4, sliding_window=5)),
    "exaone4_whole": ("exaone4", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
                                      sliding_window=None, layer_types=["full_attention"] * 2, tie_word_embeddings=True)),
    "ministral": ("ministral", dict(head_dim=16, num_hidden_layers=3, sliding_window=5, layer_types=[TYPES[c] for c in "SFS"])),
    "olmo_hybrid": ("olmo_hybrid", dict(OLMO_DELTA, num_hidden_layers=4, rope_parameters=dict(rope_type="default", rope_theta=None))),
    "olmo_hybrid_stacked": ("olmo_hybrid", dict(rope("default"), num_hidden_layers=3, attention_bias=True, linear_allow_neg_eigval=False, linear_conv_kernel_dim=3)),
    "arcee": ("arcee", dict(head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "nemotron": ("nemotron", dict(head_dim=16)),
    "nemotron_biases": ("nemotron", dict(rope("default", partial_rotary_factor=0.25), head_dim=16, attention_bias=True, mlp_bias=True, hidden_act="gelu", norm_eps=1e-4)),
    "mellum": ("mellum", dict(MOE, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16, num_hidden_layers=3, sliding_window=5,
                              layer_types=[TYPES[c] for c in "SFS"], mlp_layer_types=["sparse", "dense", "sparse"], rope_parameters=dict(
                                  full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=4.0),
                                  sliding_attention=dict(rope_type="default", rope_theta=5000.0)))),
    "mellum_stacked": ("mellum", dict(MOE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, sliding_window=9,
                                      layer_types=[TYPES[c] for c in "FS"], norm_topk_prob=False, attention_bias=True)),
    "apertus": ("apertus", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16), attention_bias=True)),
    "granite_hybrid": ("granitemoehybrid", dict(MOE, **SPACE, **MULTIPLIERS, num_local_experts=5, num_experts_per_tok=2, mamba_n_groups=2,
                                                mamba_d_head=8, tie_word_embeddings=True, time_step_limit=(0.3, float("inf")))),
    "granite_hybrid_rope": ("granitemoehybrid", dict(SPACE, **MULTIPLIERS, num_local_experts=0, mamba_proj_bias=True, mamba_conv_bias=False,
                                                     position_embedding_type="rope", attention_bias=True)),
    "granite_hybrid_stacked": ("granitemoehybrid", dict(MOE, **SPACE, num_local_experts=4, num_experts_per_tok=2, mamba_n_groups=8,
                                                        time_step_limit=(0.2, 0.9))),
    "nemotron_h": ("nemotron_h", dict(NEMOTRON, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
                                      n_groups=2, use_bias=True, mlp_bias=True, time_step_min=0.3)),
    "nemotron_h_moe": ("nemotron_h", dict(MOE, **NEMOTRON, layers_block_type=["moe", "linear_attention", "full_attention", "moe", "mlp"],
                                          n_groups=4, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, moe_intermediate_size=16,
                                          moe_shared_expert_intermediate_size=24, routed_scaling_factor=1.5, use_conv_bias=False)),
    "nemotron_h_moe_stacked": ("nemotron_h", dict(MOE, **NEMOTRON, layers_block_type=["linear_attention", "moe", "full_attention"], n_groups=1,
                                                  n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                                  moe_shared_expert_intermediate_size=24, norm_topk_prob=False)),
    "nemotron_h_latent": ("nemotron_h", dict(MOE, **NEMOTRON, layers_block_type=["moe", "linear_attention", "full_attention", "moe"], n_groups=2,
                                             n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, moe_latent_size=12,
                                             moe_shared_expert_intermediate_size=24, attention_bias=True, mlp_bias=True)),
    "deepseek_v2": ("deepseek_v2", dict(LATENT, **rope("yarn", mscale=0.707, mscale_all_dim=0.9, **MSCALE), q_lora_rank=None,
                                        n_shared_experts=2, routed_scaling_factor=1.5)),
    "deepseek_v2_stacked": ("deepseek_v2", dict(LATENT | dict(num_hidden_layers=2, num_experts_per_tok=3), q_lora_rank=20, topk_method="group_limited_greedy",
                                                n_group=3, topk_group=2, attention_bias=True, n_shared_experts=1)),
    "deepseek_v3": ("deepseek_v3", dict(LATENT | dict(num_experts_per_tok=3), **rope("yarn", mscale=1.0, mscale_all_dim=1.0, **MSCALE), q_lora_rank=20,
                                        n_group=3, topk_group=2, rms_norm_eps=1e-4)),
    "deepseek_v3_stacked": ("deepseek_v3", dict(LATENT | dict(num_hidden_layers=2, n_routed_experts=4), q_lora_rank=None, n_group=1, topk_group=1,
                                                norm_topk_prob=False, rope_interleave=False, attention_bias=True)),
    "deepseek_v3_fp8": ("deepseek_v3", dict(LATENT | dict(kv_lora_rank=136, qk_nope_head_dim=40, v_head_dim=24, num_hidden_layers=2, n_routed_experts=4),
                                            **rope("default"), hidden_size=160, q_lora_rank=20, n_group=1, topk_group=1)),
    "glm4_moe_lite": ("glm4_moe_lite", dict(LATENT | dict(mlp_layer_types=["dense", "sparse", "dense"]), **rope("default"), q_lora_rank=20, n_group=1,
                                            topk_group=1, num_hidden_layers=3, v_head_dim=28)),
    "glm4_moe_lite_stacked": ("glm4_moe_lite", dict(LATENT | dict(num_hidden_layers=2, n_routed_experts=6), q_lora_rank=20, n_group=3, topk_group=2,
                                                    norm_topk_prob=False, attention_bias=True)),
    "olmoe": ("olmoe", dict(MOE, num_experts=6, num_experts_per_tok=3, intermediate_size=16)),
    "olmoe_stacked": ("olmoe", dict(MOE, num_experts=5, num_experts_per_tok=2, intermediate_size=24, norm_topk_prob=True, attention_bias=True,
                                    tie_word_embeddings=True, num_key_value_heads=4, **rope("linear", factor=4.0))),
    "solar_open": ("solar_open", dict(MOE, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_group=3, topk_group=2,
                                      routed_scaling_factor=1.5, attention_bias=True)),
    "dots1": ("dots1", dict(MOE, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_group=3, topk_group=2, n_shared_experts=2,
                            routed_scaling_factor=1.5, norm_topk_prob=True, first_k_dense_replace=1, num_hidden_layers=3, sliding_window=5,
                            max_window_layers=2)),
    "dots1_stacked": ("dots1", dict(MOE, head_dim=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=1,
                                    attention_bias=True, sliding_window=None)),
    "afmoe": ("afmoe", dict(MOE, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_hidden_layers=5, route_scale=1.5,
                            sliding_window=5, mup_enabled=True)),
    "afmoe_stacked": ("afmoe", dict(MOE, head_dim=16, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=16, num_hidden_layers=3,
                                    num_dense_layers=2, num_shared_experts=1, sliding_window=5, global_attn_every_n_layers=2, num_key_value_heads=4)),
    "mistral4": ("mistral4", dict(LATENT | dict(first_k_dense_replace=0, num_hidden_layers=2), **rope("yarn", llama_4_scaling_beta=0.4, mscale=1.0,
                                  mscale_all_dim=0.8, **MSCALE | dict(original_max_position_embeddings=6)), q_lora_rank=20, n_group=3, topk_group=2, routed_scaling_factor=1.5)),
    "mistral4_plain": ("mistral4", dict(LATENT | dict(n_routed_experts=5), **rope("yarn", llama_4_scaling_beta=0.1, mscale=1.0, mscale_all_dim=1.0, **MSCALE), q_lora_rank=None,
                                        norm_topk_prob=False, n_shared_experts=2, attention_bias=True, rope_interleave=False)),
    "youtu": ("youtu", dict(DENSE_LATENT, **rope("default"), q_lora_rank=20)),
    "youtu_yarn": ("youtu", dict(DENSE_LATENT, **rope("yarn", mscale=1.0, mscale_all_dim=0.8, **MSCALE), q_lora_rank=None, attention_bias=True,
                                 rope_interleave=False, tie_word_embeddings=False)),
    "gpt2_by_layer": ("gpt2", dict(num_hidden_layers=3, scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True)),
    "gpt2_plain": ("gpt2", dict(n_inner=40, n_positions=64, tie_word_embeddings=False)),
}


def fill(model, seed):
    """Seeded noise, one stream a tensor. Norms stand around what makes them neutral."""
    centre = 0.0 if model.config.model_type.startswith(("gemma2", "gemma3", "qwen3_next", "qwen3_5")) or model.config.model_type == "nemotron" else 1.0
    biases = [(name, b) for name, b in model.named_buffers() if name.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar"))]
    for name, p in [*model.named_parameters(), *biases]:
        stream = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
        z = stream.standard_normal(tuple(p.shape)).astype(np.float32)
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            z = 0.3 * z
        elif name.endswith(("router.scale", "per_expert_scale")):
            z = 1 + 0.25 * z
        elif name.endswith("router.proj.weight"):  # of rows of length 1
            z = 1.2 * z
        elif name.endswith("layer_scalar"):
            z = 0.8 + 0.1 * z
        elif name.endswith(".A_log"):
            z = z - 1
        elif name.endswith(("mamba.D", "mixer.D")):
            z = 0.5 * z
        elif name.endswith("linear_attn.norm.weight"):
            z = 1 + 0.25 * z
        elif model.config.model_type.startswith("gemma4") and name.endswith(("q_norm.weight", "k_norm.weight")):
            z = 0.4 + 0.1 * z  # scores are not divided, and sharp ones make the reference's rounding large
        elif p.dim() == 1:
            z = centre + 0.25 * z if name.endswith("weight") else 0.2 * z
        elif name.endswith(("linear_attn.out_proj.weight", "linear_attn.o_proj.weight", "mamba.out_proj.weight", "mixer.out_proj.weight")):  # behind a norm that makes small sums, and their rounding, large
            z = 0.3 * z / np.sqrt(p.shape[-1])
        elif ".visual." in name or "vision" in name:
            z = 0.1 * z
        elif "embed" in name or "wte" in name or "wpe" in name:
            z = (0.15 if model.config.tie_word_embeddings else 0.4) * z
        else:
            z = 1.2 * z / np.sqrt(p.shape[0] if "c_" in name and model.config.model_type == "gpt2" else p.shape[-1])
        with torch.no_grad():
            p.copy_(torch.from_numpy(np.ascontiguousarray(z, np.float32)))


LEVELS = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def to_blocks(w):
    """Numbers [..., columns] as MXFP4: codes, two a byte, the exponents, and the numbers that they stand for."""
    blocks = w.reshape(*w.shape[:-1], -1, 32)
    exponents = np.ceil(np.log2(np.abs(blocks).max(-1) / 6)).clip(-126, 127).astype(np.int32)
    scaled = blocks / np.exp2(exponents)[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - LEVELS).argmin(-1)
    back = np.sign(scaled) * LEVELS[codes] * np.exp2(exponents)[..., None]
    codes = (codes + 8 * (scaled < 0)).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8), back.reshape(w.shape).astype(np.float32)


@torch.no_grad()
def publish(model):
    """The form in which gpt-oss is published: experts in MXFP4, all else in bf16; the model gets the same numbers."""
    for name, p in model.named_parameters():
        p.copy_(p.bfloat16().float())
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            p.copy_(torch.from_numpy(to_blocks(p.transpose(1, 2).numpy())[2]).transpose(1, 2))


def write_published(model, folder):
    tensors = {}
    for name, t in model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            codes, exponents, _ = to_blocks(t.transpose(1, 2).numpy())
            tensors |= {name + "_blocks": torch.from_numpy(np.ascontiguousarray(codes)),
                        name + "_scales": torch.from_numpy(np.ascontiguousarray(exponents))}
        else:
            tensors[name] = t.bfloat16().contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def to_squares(w):
    """A matrix as e4m3 numbers with a factor for each square of 128: both, and the numbers that they stand for."""
    rows, cols = w.shape
    padded = torch.nn.functional.pad(w, (0, -cols % 128, 0, -rows % 128))
    squares = padded.reshape(padded.shape[0] // 128, 128, padded.shape[1] // 128, 128)
    factors = squares.abs().amax((1, 3)) / 448
    codes = (squares / factors[:, None, :, None]).to(torch.float8_e4m3fn)
    back = (codes.float() * factors[:, None, :, None]).reshape(padded.shape)[:rows, :cols]
    return codes.reshape(padded.shape)[:rows, :cols].contiguous(), factors, back


def in_squares(name):
    return ".layers." in name and name.endswith((".weight", ".gate_up_proj", ".down_proj")) and "norm" not in name and not name.endswith("mlp.gate.weight")


@torch.no_grad()
def publish_fp8(model):
    """The form in which DeepSeek-V3 is published; gate and up of an expert are matrices of their own."""
    for name, p in model.named_parameters():
        p.copy_(p.bfloat16().float())
        for one in (p if p.dim() == 3 else [p]) if in_squares(name) else []:
            for half in one.chunk(2) if name.endswith("gate_up_proj") else [one]:
                half.copy_(to_squares(half)[2])


def write_published_fp8(folder):
    tensors = {}
    for name, t in safetensors.torch.load_file(folder / "model.safetensors").items():
        if in_squares(name):
            tensors[name], tensors[name + "_scale_inv"], _ = to_squares(t)
        else:
            tensors[name] = t.contiguous() if name.endswith("e_score_correction_bias") else t.bfloat16().contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for path in folder.glob("config*.json"):
        config = json.loads(path.read_text())
        config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
        path.write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def run(model, ids, mask=None):
    tensors = {"input_ids": torch.from_numpy(np.asarray(ids, np.int64))}
    if mask is not None:
        tensors["attention_mask"] = torch.from_numpy(np.asarray(mask, np.int64))
    return model(**tensors, use_cache=False).logits.float().numpy()


def make_cases(model, rng):
    vocab = model.config.get_text_config().vocab_size
    ids = rng.integers(3, vocab, (2, 14)).astype(np.int32)
    mask = np.ones_like(ids)
    mask[1, 9:] = ids[1, 9:] = 0
    long = rng.integers(3, vocab, (1, LONG)).astype(np.int32)
    data = {}
    for name, rows, ones in [("b1", ids[:1], mask[:1]), ("b2", ids, mask), ("long", long, np.ones_like(long))]:
        data |= {f"{name}.input_ids": rows, f"{name}.attention_mask": ones, f"{name}.logits": run(model, rows, ones)}
    return {name: np.ascontiguousarray(t) for name, t in data.items()} | make_generation(model, rng)


def make_generation(model, rng):
    """Greedy, a whole forward for each id; prompts with close decisions are passed over."""
    for _ in range(200):
        ids = list(rng.integers(3, model.config.get_text_config().vocab_size, PROMPT))
        logits = []
        for _ in range(NEW):
            logits.append(run(model, [ids])[0, -1])
            ids.append(int(logits[-1].argmax()))
        rows = np.stack(logits)
        best = np.sort(rows)[:, -2:]
        if (best[:, 1] - best[:, 0]).min() > 2e-3 and len(set(ids[PROMPT:])) >= 3:
            return {"generate.prompt": np.array(ids[:PROMPT], np.int32),
                    "generate.tokens": np.array(ids[PROMPT:], np.int32), "generate.logits": rows}
    raise SystemExit("no suitable prompt")


def words_of_4(config):
    """The same options as transformers 4 wrote them."""
    old = dict(config)
    parameters = old.pop("rope_parameters", None)
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.40.0"
    if old["model_type"] == "gpt2":
        return old
    if "n_group" in old and old["model_type"].startswith(("deepseek", "glm4_moe_lite")):
        sigmoid = old["model_type"] != "deepseek_v2"
        old.pop("head_dim", None)
        if old.get("mlp_layer_types", [])[1:] == ["sparse"] * (old["num_hidden_layers"] - 1):
            old.pop("mlp_layer_types")
        old |= dict(moe_layer_freq=1, ep_size=1, scoring_func="sigmoid" if sigmoid else "softmax")
        old |= dict(topk_method="noaux_tc", num_nextn_predict_layers=1) if sigmoid else {}
    if old["model_type"] == "qwen3_moe":
        old["num_experts"] = old.pop("num_local_experts")
    if old["model_type"] == "exaone4":  # as published
        old["sliding_window_pattern"] = "LLLG" if old["sliding_window"] else None
    if old["model_type"] == "granitemoehybrid":  # as published; Infinity stands bare
        names = {"linear_attention": "mamba", "full_attention": "attention"}
        old["layer_types"] = [names[kind] for kind in old["layer_types"]]
        old["position_embedding_type"] = old.get("position_embedding_type") or "nope"
        old["time_step_limit"] = [t["__float__"] if isinstance(t, dict) else t for t in old["time_step_limit"]]
        old["time_step_limit"] = [float(t) for t in old["time_step_limit"]]
    if old["model_type"] == "lfm2":  # as the first models are published
        old["full_attn_idxs"] = [i for i, kind in enumerate(old.pop("layer_types")) if kind == "full_attention"]
        old["block_ff_dim"] = old.pop("intermediate_size")
    if old["model_type"] == "nemotron_h":  # as published: layers by a pattern, no positions
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        old["hybrid_override_pattern"] = "".join(letters[kind] for kind in old.pop("layers_block_type"))
        old["time_step_limit"] = [0.0, float("inf")]
        return old
    layers = parameters if "full_attention" in parameters else {"full_attention": parameters}
    scaling = dict(layers["full_attention"])
    base, partial = scaling.pop("rope_theta"), scaling.pop("partial_rotary_factor", None)
    if old["model_type"] == "gpt_neox":
        old |= {"rotary_emb_base": base, "rotary_pct": partial}
    else:
        old["rope_theta"] = base
        if partial is not None:
            old["partial_rotary_factor"] = partial
    if "sliding_attention" in layers:
        old["rope_local_base_freq"] = layers["sliding_attention"]["rope_theta"]
    elif scaling["rope_type"] != "default":
        scaling["type"] = scaling.pop("rope_type")
    plain = scaling.get("rope_type") == "default"
    old["rope_scaling"] = None if plain else scaling
    return old


def as_published(config):
    """As Gemma 4 is published: the heads of layers without a window by keys of their own; and Llama 4."""
    text = config.get("text_config", config)
    if text["model_type"] == "llama4_text":
        scaling = text.pop("rope_parameters")
        text |= dict(rope_theta=scaling.pop("rope_theta"), rope_scaling=None if scaling["rope_type"] == "default" else scaling)
        text["no_rope_layers"] = [] if text["num_hidden_layers"] == 4 else text["no_rope_layers"]
        for key in ("layer_types", "moe_layers"):
            text.pop(key)
        return config
    heads = text.pop("per_layer_config")[str(text["num_hidden_layers"] - 1)]
    text |= dict(global_head_dim=heads["head_dim"], num_global_key_value_heads=heads.get("num_key_value_heads"))
    return config


def expect_same(model, folder, config, data):
    loaded = type(model).from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    for case in ("b1", "long"):
        assert np.abs(run(loaded, data[f"{case}.input_ids"]) - data[f"{case}.logits"]).max() < 1e-5, folder


def split_filters(folder, config):
    """transformers cuts the filter of OLMo Hybrid into three equal parts; published are those of queries, keys and values."""
    path, keys = folder / "model.safetensors", config.linear_num_key_heads * config.linear_key_head_dim
    tensors = safetensors.torch.load_file(path)
    for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        names = [name.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
        whole = torch.cat([tensors[one] for one in names])
        tensors |= {one: part.contiguous() for one, part in zip(names, whole.split([keys, keys, len(whole) - 2 * keys]))}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def add_foretelling(folder):
    """What is published has a layer behind the last one, which transformers does not read either."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path) | {"mtp.fc.weight": torch.ones(2, 2), "mtp.norm.weight": torch.ones(2)}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def make_folder(folder, model_type, options, seed):
    shutil.rmtree(folder, ignore_errors=True)
    options = dict(SIZES, **options)
    if model_type == "gpt2":
        options |= dict(n_embd=options.pop("hidden_size"), n_head=4, n_layer=options.pop("num_hidden_layers"))
    if model_type == "gpt_neox":
        options.pop("num_key_value_heads")
    nested = model_type in ("qwen3_5", "qwen3_5_moe", "gemma4", "llama4")
    if nested:
        tied = options.get("tie_word_embeddings", model_type == "gemma4")
        tower = {"gemma4": GEMMA4_TOWER, "llama4": LLAMA4_TOWER}.get(model_type, TINY_TOWER)
        options = dict(text_config=options, vision_config=tower, tie_word_embeddings=tied)
    config = AutoConfig.for_model(model_type, **options)
    config._attn_implementation = "eager"
    kind = AutoModelForImageTextToText if nested else AutoModelForCausalLM
    if model_type == "mistral4":  # which no automatic class knows alone
        model = transformers.Mistral4ForCausalLM._from_config(config).eval().float()
    else:
        model = kind.from_config(config).eval().float()
    fill(model, seed)
    published = folder.name.endswith("_mxfp4")
    if published:
        publish(model)
    squares = folder.name.endswith("_fp8")
    if squares:
        publish_fp8(model)
    data = make_cases(model, np.random.Generator(np.random.PCG64(seed)))

    # Experts are taken apart when they are saved, but in folders that hold what the model has in memory.
    model.save_pretrained(folder, save_original_format=not folder.name.endswith("_stacked"))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if published:
        write_published(model, folder)
    if model_type == "olmo_hybrid":
        split_filters(folder, config)
    if model_type.startswith(("qwen3_next", "qwen3_5", "nemotron_h")):
        add_foretelling(folder)
    save_file(data, folder / "cases.safetensors", metadata={"format": "np"})
    expect_same(model, folder, None, data)
    written = json.loads((folder / "config.json").read_text())
    if model_type in WITHOUT_4 or model_type.startswith("qwen3_5"):
        for path in folder.iterdir():
            path.chmod(0o644)
        return
    old = as_published(written) if model_type.startswith(("gemma4", "llama4")) else words_of_4(written)
    expect_same(model, folder, type(config)(**old), data)
    (folder / "config_v4.json").write_text(json.dumps(old, indent=2) + "\n")
    if squares:  # behind the comparisons: transformers reads such files on GPUs alone
        write_published_fp8(folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def main():
    for name in sys.argv[1:] or FAMILIES:
        model_type, options = FAMILIES[name]
        make_folder(OUT / name, model_type, options, zlib.crc32(name.encode()))
        size = sum(path.stat().st_size for path in (OUT / name).iterdir())
        print(f"{name:20s} {size / 1000:.0f} KB", flush=True)


if __name__ == "__main__":
    main()
