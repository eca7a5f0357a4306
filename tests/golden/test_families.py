"""Families of Hugging Face: spellings of config.json and of tensors, and options that are refused by name."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVAL = ROOT / os.environ.get("RETRO_BUILD", "build") / "retro-eval"
GOLDEN = ROOT / "tests/golden/hf"


def parity(folder, *arguments):
    return subprocess.run([EVAL, "parity", "--set", "model.dtype=f32", *arguments, folder], capture_output=True, text=True)


def expect_equal(folder):
    done = parity(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def expect_refusal(folder, *words):
    done = parity(folder)
    assert done.returncode == 1 and all(word in done.stderr for word in words), done.stdout + done.stderr


def copy_family(name, tmp_path, drop=(), **values):
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    for key in drop:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config | values))
    return folder


def read_tensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def zeros(*shape):
    return "F32", list(shape), np.zeros(shape, "<f4").tobytes()


def test_gpt2_without_prefix(tmp_path):
    """GPT2Model writes no "transformer."; old files hold the causal mask as well."""
    folder = copy_family("gpt2", tmp_path)
    tensors = {name.removeprefix("transformer."): t for name, t in read_tensors(folder / "model.safetensors").items()}
    assert "h.0.attn.c_attn.weight" in tensors
    tensors |= {f"h.{i}.attn.{mask}": zeros(4) for i in range(3) for mask in ("bias", "masked_bias")}
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


@pytest.mark.parametrize("prefix", ["transformer.h", "h"])
def test_gpt2_names_what_is_missing(tmp_path, prefix):
    folder = copy_family("gpt2", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    tensors = {name.replace("transformer.h", prefix): t for name, t in tensors.items()}
    del tensors[f"{prefix}.1.mlp.c_fc.bias"]
    write_tensors(folder / "model.safetensors", tensors)
    expect_refusal(folder, f"tensor {prefix}.1.mlp.c_fc.bias is missing")


def test_stored_output_matrix_wins(tmp_path):
    """tie_word_embeddings is true; lm_head.weight is stored all the same, and is the output matrix."""
    folder = copy_family("gpt2", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    word = tensors["transformer.wte.weight"]
    write_tensors(folder / "model.safetensors", tensors | {"lm_head.weight": word})
    expect_equal(folder)
    write_tensors(folder / "model.safetensors", tensors | {"lm_head.weight": zeros(*word[1])})
    assert "FAILED" in parity(folder).stdout


def test_rope_in_words_of_transformers_4(tmp_path):
    folder = copy_family("llama", tmp_path, drop=["rope_parameters"], rope_theta=50000.0, rope_scaling=None)
    expect_equal(folder)
    folder = copy_family("qwen2_bf16", tmp_path, drop=["rope_parameters"], rope_theta=1000000.0,
                         rope_scaling={"type": "default"})
    expect_equal(folder)


# Keys of published folders that change nothing: transformers does not read them either, or they say what is so anyway.
PUBLISHED = {
    "mistral": dict(return_dict=True, pruned_heads={}, is_encoder_decoder=False, add_cross_attention=False, tie_encoder_decoder=False, finetuning_task=None,
                    max_length=20, do_sample=False, bad_words_ids=None, torchscript=False, id2label={"0": "LABEL_0"}, task_specific_params=None),
    "llama": dict(activation="swiglu", pretraining_tp=1, auto_map={"AutoConfig": "x.Y"}, use_cache=True, rope_interleaved=False, is_causal=True),
    "qwen2_bf16": dict(max_window_layers=28, sliding_window=131072, use_sliding_window=False, use_mrope=False, seq_length=2048),
    "phi3": dict(embd_pdrop=0.0, resid_pdrop=0.0, full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False),
    "gemma2": dict(cache_implementation="hybrid", attention_dropout=0.0, hidden_act="gelu_pytorch_tanh"),
    "gemma3_text": dict(_sliding_window_pattern=2, attn_logit_softcapping=None, use_bidirectional_attention=False, cache_implementation="hybrid"),
    "cohere2": dict(layer_switch=4, order_of_interleaved_layers="local_attn_first", position_embedding_type="rope_gptj", rotary_pct=1.0,
                    use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=False, cache_implementation="hybrid"),
    "hunyuan_v1_dense": dict(add_classification_head=False, attention_head_dim=16, cla_share_factor=2, class_num=0, dense_list=[4096, 0], im_end_id=5,
                             norm_type="rms", pool_type="last", use_cla=False, use_qk_norm=True, use_rotary_pos_emb=True, org_vocab_size=64, sep_token_id=3),
    "hunyuan_v1_moe": dict(group_limited_greedy=False, n_group=False, topk_group=False, routed_scaling_factor=False, kv_lora_rank=None, q_lora_rank=None,
                           moe_topk=[2, 2], num_shared_expert=[1, 1], moe_intermediate_size=[24, 24], moe_layer_num_skipped=0, use_mla=False, vit_type=None,
                           position_embedding_xdrope=False, norm_topk_prob=True, use_mixed_mlp_moe=True, moe_drop_tokens=False, xdrope_section=None),
    "minimax_m2": dict(attn_type_list=[1, 1], layernorm_full_attention_beta=1.0, mlp_intermediate_size=8192, mtp_transformer_layers=1, num_mtp_modules=3,
                       qk_norm_type="per_layer", scoring_func="sigmoid", shared_intermediate_size=0, shared_moe_mode="sigmoid", use_mtp=True,
                       use_qk_norm=True, use_routing_bias=True, max_model_len=None, sliding_window=None, router_jitter_noise=0.0),
    "ernie4_5_moe": dict(moe_capacity=[64, 64, 64], moe_gate="topk", moe_use_aux_free=True, num_nextn_predict_layers=1, compression_ratio=1.0,
                         use_rmsnorm=True, moe_norm_min=1e-12),
    "seed_oss": dict(attention_dropout=0.1, residual_dropout=0.1),
    "starcoder2": dict(mlp_type="default", norm_type="layer_norm", embedding_dropout=0.1, residual_dropout=0.1),
    "smollm3": dict(max_window_layers=28, pretraining_tp=2, bos_token_id=None),
    "lfm2": dict(block_dim=32, conv_dim=32, conv_dim_out=32, block_mlp_init_scale=1.0, block_norm_eps=1e-5, block_use_swiglu=True, num_heads=4,
                 conv_use_xavier_init=True, use_pos_enc=True, tie_embedding=True),
    "granite_hybrid": dict(init_method="mup", normalization_function="rmsnorm", router_aux_loss_coef=0.01, output_router_logits=False, mamba_chunk_size=256),
    "glm4_moe": dict(num_nextn_predict_layers=1, use_cache=True, rope_scaling=None),
    "gpt2": dict(n_ctx=1024, summary_type="cls_index", summary_use_proj=True, summary_first_dropout=0.1, attn_pdrop=0.1, task_specific_params={}),
    "qwen3_next": dict(router_aux_loss_coef=0.001, output_router_logits=False, use_sliding_window=False),
    "deepseek_v3": dict(ep_size=1, moe_layer_freq=1, num_nextn_predict_layers=1, topk_method="noaux_tc", scoring_func="sigmoid", seq_aux=True, aux_loss_alpha=0.001),
}


@pytest.mark.parametrize("family", PUBLISHED)
def test_keys_of_published_folders(tmp_path, family):
    expect_equal(copy_family(family, tmp_path, **PUBLISHED[family]))


def test_rope_base_matters(tmp_path):
    assert "FAILED" in parity(copy_family("llama", tmp_path, drop=["rope_parameters"])).stdout


@pytest.mark.parametrize("key, names", [("attention_bias", "q k v o"), ("mlp_bias", "gate up down")])
def test_llama_biases_by_config(tmp_path, key, names):
    """Biases of zero change nothing; each is needed where config.json says so, and has no place where it does not."""
    folder = copy_family("llama", tmp_path, **{key: True})
    part = "self_attn" if key == "attention_bias" else "mlp"
    first = "q_proj" if key == "attention_bias" else "gate_proj"
    expect_refusal(folder, f"tensor model.layers.0.{part}.{first}.bias is missing")

    tensors = {}
    for shard in sorted(folder.glob("model-*.safetensors")):
        tensors |= read_tensors(shard)
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    for i in range(3):
        for name in names.split():
            matrix = f"model.layers.{i}.{part}.{name}_proj"
            tensors[f"{matrix}.bias"] = zeros(tensors[f"{matrix}.weight"][1][0])
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)
    shutil.copy(GOLDEN / "llama/config.json", folder / "config.json")
    expect_refusal(folder, ".bias has no place")


def test_truncate_in_a_dictionary_of_a_layer_type(tmp_path):
    """transformers reads the key beside the dictionaries alone."""
    parameters = json.loads((GOLDEN / "olmo3/config.json").read_text())["rope_parameters"]
    parameters["full_attention"]["truncate"] = False
    expect_equal(copy_family("olmo3", tmp_path, rope_parameters=parameters))


@pytest.mark.parametrize("family, original", [("llama", 2 ** 20), ("llama_linear", 1)])
def test_llama3_rope_without_a_mix(tmp_path, family, original):
    """Llama 4 Scout has equal factors: here all waves are short and stay, or all are long and are stretched."""
    config = json.loads((GOLDEN / family / "config.json").read_text())
    scaled = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": original}
    expect_equal(copy_family(family, tmp_path, rope_parameters=scaled | {"rope_theta": config["rope_parameters"]["rope_theta"]}))


def test_dynamic_rope_ends_where_it_would_change(tmp_path):
    """Up to max_position_embeddings it is the default; the longest golden text has 40 tokens."""
    scaled = dict(drop=["rope_parameters"], rope_theta=10000.0, rope_scaling={"type": "dynamic", "factor": 2.0})
    expect_equal(copy_family("qwen3", tmp_path, max_position_embeddings=40, **scaled))
    shutil.rmtree(tmp_path / "qwen3")
    done = parity(copy_family("qwen3", tmp_path, max_position_embeddings=39, **scaled))
    assert done.returncode == 1 and '40 tokens per sequence; the model has 39 "dynamic" rotary positions' in done.stderr, done.stdout + done.stderr


def test_first_dense_layers_of_glm_flash(tmp_path):
    """transformers reads mlp_layer_types alone; without it the first layer has no experts."""
    expect_equal(copy_family("glm4_moe_lite_stacked", tmp_path, drop=["mlp_layer_types"], first_k_dense_replace=0))


def test_olmo3_reads_no_base_of_windows(tmp_path):
    config = json.loads((GOLDEN / "olmo3/config_v4.json").read_text())
    expect_equal(copy_family("olmo3", tmp_path, **config | {"rope_parameters": None, "rope_local_base_freq": 100.0}))


def test_heads_of_null_fill_the_hidden_size(tmp_path):
    expect_equal(copy_family("glm4", tmp_path, head_dim=None))


def test_absent_sizes_of_gemma(tmp_path):
    """transformers has 8 heads where the key is absent, and leaves such keys out of a text_config."""
    expect_equal(copy_family("gemma4_keys", tmp_path, drop=["num_attention_heads"]))


def test_layers_of_granite_by_another_name(tmp_path):
    types = json.loads((GOLDEN / "granite_hybrid/config.json").read_text())["layer_types"]
    expect_equal(copy_family("granite_hybrid", tmp_path, drop=["layer_types"], layers_block_type=types))


def test_windows_of_exaone_by_a_pattern(tmp_path):
    """A number, or letters, as published."""
    expect_equal(copy_family("exaone4", tmp_path, drop=["layer_types"], sliding_window_pattern="LLLG"))
    shutil.rmtree(tmp_path / "exaone4")
    assert "FAILED" in parity(copy_family("exaone4", tmp_path, drop=["layer_types"], sliding_window_pattern=2)).stdout


def test_gates_of_lfm3_by_another_name(tmp_path):
    """As transformers 5 has them in memory."""
    folder = copy_family("lfm3_biases", tmp_path)
    tensors = {name.replace("gate_proj", "g_proj"): t for name, t in read_tensors(folder / "model.safetensors").items()}
    assert "model.layers.0.self_attn.g_proj.weight" in tensors
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


def test_layers_with_windows_need_a_window(tmp_path):
    """Three of four layers have one where layer_types is silent."""
    folder = copy_family("granite_swa", tmp_path, drop=["layer_types"], sliding_window=None)
    expect_refusal(folder, '"sliding_window" is off')


def test_no_layer_of_granite_turns(tmp_path):
    """Then no key of rotary positions is read."""
    folder = copy_family("granite_swa", tmp_path, layer_rope_theta=[0] * 5, rope_parameters={"rope_type": "mystic"})
    assert "FAILED" in parity(folder).stdout


def test_untied_needs_an_output_matrix(tmp_path):
    folder = copy_family("qwen2_bf16", tmp_path, drop=["tie_word_embeddings"])
    expect_refusal(folder, "tensor lm_head.weight is missing")


@pytest.mark.parametrize("family, key, value, words", [
    ("gpt2", "scale_attn_by_inverse_layer_idx", 1, "expected"),
    ("gpt2", "add_cross_attention", True, "must be false"),
    ("gpt2", "activation_function", "mish", "allowed is gelu, gelu_new"),
    ("gpt2", "n_head", 5, "32 is not a multiple of 5"),
    ("gpt2", "n_layer", 0, "allowed is 1 .. 512"),
    ("gpt2", "n_positions", "64", "expected an integer"),
    ("llama", "rope_scaling", {"type": "dynamic", "factor": 0}, "factor"),
    ("llama", "rope_scaling", {"type": "linear"}, "factor"),
    ("llama", "rope_scaling", {"type": "mystic", "factor": 2.0}, "allowed is default, linear"),
    ("llama", "rope_scaling", {"type": "llama3", "factor": 2.0, "low_freq_factor": 4, "high_freq_factor": 1},
     "low_freq_factor or greater"),
    ("llama", "rope_parameters", {"full_attention": {"rope_type": "default"}}, "of all layers at once"),
    ("llama", "rope_scaling", {"type": "mrope", "mrope_section": [1, 1, 2]}, "\"mrope_section\" of the rotary positions"),
    ("llama", "rope_scaling", {"type": "mrope"}, "\"mrope\" of the rotary positions"),
    ("gemma3_text", "rope_parameters", {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"mrope_section": [1, 1, 6]}},
     "\"mrope_section\" of the rotary positions"),
    ("llama", "partial_rotary_factor", 0.5, "not supported in this family"),
    ("llama", "per_layer_config", {"0": {}}, "not supported"),
    ("phi3", "rope_parameters", {"rope_type": "longrope", "long_factor": [1, 2, 3, 4], "short_factor": [1, 2]},
     "list of 4 numbers"),
    ("phi3", "rope_parameters", {"rope_type": "longrope", "long_factor": [1, 2, 3, 0], "short_factor": [1, 1, 1, 1]},
     "not positive"),
    ("gemma2", "use_bidirectional_attention", True, "not supported in this family"),
    ("gemma2", "is_causal", False, "\"is_causal\" is false, which is not supported in this family"),
    ("mistral", "is_causal", False, "beside a window of 5 tokens"),
    ("gemma2", "layer_types", ["chunked_attention", "full_attention"], "chunked_attention"),
    ("gemma2", "layer_types", ["full_attention"], "one for each layer"),
    ("gemma3_text", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}, "full_attention"),
    ("granite", "logits_scaling", 0, "allowed is"),
    ("gpt_neox", "rope_parameters", {"rope_type": "default", "partial_rotary_factor": 1e300}, "a share of a head"),
    ("gpt_neox", "num_key_value_heads", 2, "its own keys and values"),
    ("mistral", "layer_types", ["sliding_attention", "full_attention"], "full_attention beside"),
    ("qwen2_window", "use_sliding_window", False, "is off"),
    ("qwen3", "sliding_window", 0, "allowed is 1"),
    ("smollm3", "no_rope_layers", [1, 0], "list of 3 numbers"),
    ("starcoder2", "norm_epsilon", -1, "epsilon is -1"),
    ("smollm3", "no_rope_layer_interval", 0, "allowed is 1"),
    ("llama", "rope_scaling", {"factor": 2.0}, "rope_scaling.rope_type"),
    ("llama", "rope_parameters", {"rope_type": "llama3", "rope_theta": 5e5}, "factor"),
    ("llama", "quantization_config", {"quant_method": "gptq"}, "not supported"),
    ("llama", "num_key_value_heads", 3, "cannot share"),
    ("llama", "eos_token_id", ["2"], "expected an integer"),
    ("mixtral", "num_experts_per_tok", 6, "6 of 5 experts"),
    ("mixtral", "num_local_experts", 0, "allowed is 1"),
    ("qwen2_moe", "mlp_only_layers", 1, "must be a list"),
    ("qwen2_moe", "mlp_only_layers", ["1"], "no integer"),
    ("qwen2_moe", "decoder_sparse_step", 0, "allowed is 1"),
    ("glm4_moe", "n_group", 4, "n_group"),
    ("gpt_oss", "swiglu_alpha", 1.5, "swiglu_alpha"),
    ("gpt_oss", "swiglu_limit", 0, "swiglu_limit"),
    ("gpt_oss", "layer_types", ["full_attention"], "must be a list of 3"),
    ("gpt_oss", "quantization_config", {"quant_method": "gptq"}, "mxfp4"),
    ("gpt_oss", "rope_parameters", None, "rope_scaling"),
    ("glm4_moe", "topk_group", 5, "topk_group"),
    ("olmo3", "layer_types", ["chunked_attention"] * 3, "chunked_attention"),
    ("cohere2", "logit_scale", 0, "allowed is"),
    ("cohere2", "sliding_window", None, "is off"),
    ("ernie4_5", "use_bias", "no", "use_bias"),
    ("seed_oss", "attention_out_bias", 1, "attention_out_bias"),
    ("ministral3", "rope_parameters", None, "rope_scaling"),
    ("ministral3", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}, "llama_4_scaling_beta"),
    ("hunyuan_v1_dense", "rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, "dynamic"),
    ("hunyuan_v1_dense", "use_cla", True, "use_cla"),
    ("qwen3_next", "layer_types", ["linear_attention"] * 3, "a list of 4"),
    ("qwen3_next", "layer_types", ["linear_attention", "sliding_attention"] * 2, "[1] must be linear_attention or full_attention"),
    ("qwen3_next", "linear_num_value_heads", 3, "a multiple of"),
    ("qwen3_next", "hidden_act", "gelu", "hidden_act"),
    ("qwen3_next", "linear_conv_kernel_dim", 9, "allowed is 1 .. 8"),
    ("qwen3_next", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("lfm2", "layer_types", ["conv"] * 3, "a list of 4"),
    ("lfm2", "layer_types", ["conv", "linear_attention"] * 2, "[1] must be conv or full_attention"),
    ("lfm2", "conv_L_cache", 9, "allowed is 2 .. 8"),
    ("lfm2", "block_ffn_dim_multiplier", 1e6, "makes MLPs of"),
    ("lfm2", "block_multiple_of", 0, "allowed is 1"),
    ("lfm2", "conv_bias", "no", "conv_bias"),
    ("lfm2_moe", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("mellum", "mlp_layer_types", ["sparse"], "a list of 3"),
    ("mellum", "mlp_layer_types", ["sparse", "thin", "sparse"], "[1] must be dense or sparse"),
    ("mellum", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("mellum", "sliding_window", None, "is off"),
    ("apertus", "rope_parameters", None, "rope_scaling"),
    ("apertus", "hidden_act", "mish", "allowed is gelu"),
    ("llama", "hidden_act", "xielu", "allowed is gelu"),
    ("olmo_hybrid", "hidden_act", "gelu", "hidden_act"),
    ("olmo_hybrid", "linear_num_value_heads", 3, "a multiple of"),
    ("olmo_hybrid", "layer_types", ["linear_attention", "sliding_attention"] * 2, "[1] must be linear_attention or full_attention"),
    ("olmo_hybrid", "linear_conv_kernel_dim", 9, "allowed is 1 .. 8"),
    ("ministral", "layer_types", ["full_attention"], "one for each layer"),
    ("exaone4", "sliding_window_pattern", "LGLG", "a text of L that ends in one G"),
    ("exaone4", "sliding_window_pattern", 0, "allowed is 1"),
    ("exaone4", "sliding_window", None, "is off"),
    ("lfm3", "layer_types", ["conv"] * 4, "a list of 5"),
    ("lfm3", "layer_types", ["conv", "chunked_attention"] * 2 + ["conv"], "[1] must be conv, sliding_attention or full_attention"),
    ("lfm3", "conv_L_cache", 9, "allowed is 2 .. 8"),
    ("lfm3", "sliding_window", None, "is off"),
    ("lfm3", "use_attention_gate", "no", "use_attention_gate"),
    ("lfm3", "use_sandwich_norm", 1, "use_sandwich_norm"),
    ("lfm3", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}, "full_attention"),
    ("granite_hybrid", "layer_types", ["mamba", "attention", "conv"], "[2] must be linear_attention or full_attention"),
    ("granite_hybrid", "mamba_n_groups", 3, "must be a multiple of"),
    ("granite_hybrid", "mamba_d_head", 16, "\"mamba_n_heads\" 8 times \"mamba_d_head\" 16 must be \"mamba_expand\" times the hidden size"),
    ("granite_hybrid", "mamba_d_state", 257, "allowed is 1 .. 256"),
    ("granite_hybrid", "hidden_act", "gelu", "hidden_act"),
    ("granite_hybrid", "position_embedding_type", "alibi", "position_embedding_type"),
    ("granite_hybrid", "time_step_limit", [0.5], "must be two numbers"),
    ("granite_hybrid", "time_step_limit", [0.5, "inf"], "must be two numbers"),
    ("granite_hybrid", "time_step_limit", [0.5, 0.25], "must be two numbers"),
    ("granite_hybrid", "time_step_limit", [float("nan"), 1.0], "must be two numbers"),
    ("granite_hybrid_rope", "num_experts_per_tok", -1, "allowed is 0"),
    ("nemotron_h", "layers_block_type", [], "must name 1 .. 512 layers, it has 0"),
    ("nemotron_h", "layers_block_type", ["mlp", "conv"], "[1] must be linear_attention (M), full_attention (*), mlp (-) or moe (E)"),
    ("nemotron_h", "layers_block_type", "M-*", "must name 1 .. 512 layers"),
    ("nemotron_h_moe", "moe_latent_size", 0, "moe_latent_size"),
    ("nemotron_h", "mamba_hidden_act", "gelu", "mamba_hidden_act"),
    ("nemotron_h", "n_groups", 3, "must be a multiple of"),
    ("nemotron_h", "mamba_head_dim", 257, "allowed is 1 .. 256"),
    ("nemotron_h_moe", "topk_group", 5, "topk_group"),
    ("llama", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "mrope_interleaved": True}, "mrope_interleaved"),
    ("deepseek_v2", "norm_topk_prob", True, "is not supported in this family"),
    ("deepseek_v2", "topk_method", "noaux_tc", "greedy or group_limited_greedy"),
    ("deepseek_v2", "topk_method", "group_limited_greedy", 'needs "n_group"'),
    ("deepseek_v2", "scoring_func", "sigmoid", "softmax"),
    ("deepseek_v3", "topk_method", "greedy", "needs"),
    ("deepseek_v3", "mlp_bias", True, "must be false"),
    ("deepseek_v3", "moe_layer_freq", 2, "1"),
    ("deepseek_v3", "num_key_value_heads", 2, "is 2, must be"),
    ("deepseek_v3", "kv_lora_rank", 572, "make rows of 580; the longest supported is 576"),
    ("deepseek_v3", "qk_rope_head_dim", 7, "must be even"),
    ("deepseek_v3", "n_group", 4, "6 experts in"),
    ("glm4_moe_lite", "mlp_layer_types", ["dense", "sparse"], "list of 3"),
    ("glm4_moe_lite", "mlp_layer_types", ["dense", "sparse", "moe"], "must be dense or sparse"),
    ("glm4_moe_lite", "partial_rotary_factor", 0.5, "is not supported in this family"),
    ("deepseek_v3", "quantization_config", {"quant_method": "awq"}, "is not supported"),
    ("gemma4_moe_text", "num_experts", None, '"num_experts"'),
    ("gemma4_moe_text", "top_k_experts", 5, "5 of 4 experts"),
    ("gemma4_moe_text", "enable_moe_block", 1, "enable_moe_block"),
    ("gemma4_text", "use_bidirectional_attention", "all", "not supported in this family"),
    ("gemma4_text", "use_bidirectional_attention", "left", '"all" or "vision"'),
    ("gemma4_text", "num_kv_shared_layers", 6, "must have layers of each of their types"),
    ("gemma4_text", "num_kv_shared_layers", 5, "must have layers of each of their types"),
    ("gemma4_text", "vocab_size_per_layer_input", 32, '"vocab_size_per_layer_input" is 32'),
    ("gemma4_text", "per_layer_config", {"6": {}}, '"per_layer_config" has "6", which is no layer'),
    ("gemma4_text", "per_layer_config", {"1": {"head_dim": 24}}, "layers of one type must have the same"),
    ("gemma4_text", "per_layer_config", {"1": {"intermediate_size": 24}}, "intermediate_size"),
    ("gemma4_text", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}, "full_attention"),
    ("gemma4_keys", "per_layer_config", {"1": {"num_key_value_heads": 3}, "2": {"num_key_value_heads": 3}}, "cannot share 3"),
    ("llama", "rope_parameters", {"rope_type": "proportional", "rope_theta": 1e6}, '"proportional" of the rotary positions'),
    ("llama4_text", "layer_types", ["chunked_attention"], "a list of 3"),
    ("llama4_text", "layer_types", ["chunked_attention", "sliding_attention", "full_attention"], "allowed is chunked_attention"),
    ("llama4_text", "attention_chunk_size", None, '"attention_chunk_size" is off'),
    ("llama4_text", "moe_layers", 1, "moe_layers"),
    ("llama4_text", "moe_layers", ["1"], "moe_layers"),
    ("llama4_text", "num_experts_per_tok", 5, "5 of 4 experts"),
    ("llama4_text", "floor_scale", 0, "floor_scale"),
    ("hunyuan_v1_moe", "moe_topk", [2, 1], '"moe_topk" differs between layers'),
    ("hunyuan_v1_moe", "moe_topk", [2, "2"], '"moe_topk" is no number'),
    ("hunyuan_v1_moe", "moe_intermediate_size", [16, 16], '"moe_intermediate_size" is 16'),
    ("hunyuan_v1_moe", "num_shared_expert", 2, '"num_shared_expert" 2'),
    ("hunyuan_v1_moe", "moe_layer_num_skipped", 1, "moe_layer_num_skipped"),
    ("hunyuan_v1_moe", "use_cla", True, "use_cla"),
    ("granitemoe", "num_experts_per_tok", 6, "6 of 5 experts"),
    ("granitemoe", "num_local_experts", 0, "allowed is 1"),
    ("granitemoeshared", "shared_intermediate_size", -1, "allowed is 0"),
    ("granite_swa", "layer_rope_theta", [0, 5000.0], "must be a list of 5 numbers"),
    ("granite_swa", "layer_rope_theta", [0, 5000.0, 0, "500", 0], "[3] must be a number"),
    ("granite_swa", "layer_rope_theta", [0, -1, 0, 500.0, 0], "[1] must be a number"),
    ("granite_swa", "layer_rope_theta", [0, 5000.0, 0, 500.0, 0], "[3] is 500 beside 5000"),
    ("granite_swa", "layer_rope_theta", [1000.0, 5000.0, 0, 0, 20000.0], "[4] is 20000 beside 1000"),
    ("granite_swa", "sliding_window", None, "is off"),
    ("granitemoe_swa", "layer_types", ["chunked_attention"] * 2, "chunked_attention"),
    ("mistral4", "rope_parameters", None, "rope_scaling"),
    ("mistral4", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4}, "llama_4_scaling_beta"),
    ("mistral4", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.5},
     'of the rotary positions makes 10 dimensions turn, must be "qk_rope_head_dim", which is 8'),
    ("mistral4", "kv_lora_rank", 23, "must be even where queries grow"),
    ("mistral4", "n_group", 4, "6 experts in"),
    ("mistral4", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("youtu", "mlp_bias", True, "must be false"),
    ("olmoe", "clip_qkv", 8.0, "clip_qkv"),
    ("solar_open", "topk_group", 5, "topk_group"),
    ("solar_open", "partial_rotary_factor", 0.5, "not supported in this family"),
    ("dots1", "n_group", 4, "6 experts in"),
    ("dots1", "layer_types", ["chunked_attention"] * 3, "chunked_attention"),
    ("afmoe", "attention_bias", True, "must be false"),
    ("afmoe", "num_shared_experts", 0, "allowed is 1"),
    ("afmoe", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("afmoe", "sliding_window", None, "is off"),
    ("olmoe", "num_experts_per_tok", 7, "7 of 6 experts"),
    ("youtu", "num_key_value_heads", 2, "is 2, must be"),
    ("youtu", "partial_rotary_factor", 0.5, "is not supported in this family"),
])
def test_options_that_are_refused(tmp_path, family, key, value, words):
    folder = copy_family(family, tmp_path, **{key: value})
    done = parity(folder)
    assert done.returncode == 1 and words in done.stderr, done.stdout + done.stderr
    named = key in done.stderr or "of the rotary positions" in done.stderr or "of longrope" in done.stderr
    assert named or family == "gpt2" and key == "n_head" or "cannot share" in done.stderr or "is off" in done.stderr or \
        "epsilon is" in done.stderr


def test_too_many_parts(tmp_path):
    """Experts per token times hidden size is a number of columns, and must fit one."""
    folder = copy_family("qwen3_moe", tmp_path, num_local_experts=4096, num_experts_per_tok=4096, hidden_size=1 << 20)
    expect_refusal(folder, '"num_experts_per_tok" is 4096; with rows of 1048576 at most 16 are supported')


def test_several_eos_ids(tmp_path):
    expect_equal(copy_family("llama", tmp_path, eos_token_id=[2, 3]))


def test_unknown_family_lists_the_known(tmp_path):
    folder = copy_family("llama", tmp_path, model_type="mamba")
    families = {json.loads(path.read_text())["model_type"] for path in GOLDEN.glob("*/config.json")}
    expect_refusal(folder, 'model_type "mamba" is unknown', *families, "megatron-bert")  # the last one


MISTRAL_YARN = json.loads((GOLDEN / "mistral4/config.json").read_text())["rope_parameters"]


@pytest.mark.parametrize("family, key, value", [
    ("qwen2_window", "max_window_layers", 9), ("mistral", "sliding_window", None), ("phi3", "sliding_window", None),
    ("gemma2", "attn_logit_softcapping", None), ("gemma2", "final_logit_softcapping", None),
    ("gemma2", "query_pre_attn_scalar", 20), ("granite", "residual_multiplier", 0.5), ("granite", "logits_scaling", 1),
    ("granite", "embedding_multiplier", 1), ("granite", "attention_multiplier", 1), ("smollm3", "no_rope_layers", [1, 1, 1]),
    ("gpt_neox_parallel", "use_parallel_residual", False), ("phi3", "original_max_position_embeddings", 64),
    ("llama3", "original_max_position_embeddings", 8), ("starcoder2", "sliding_window", 6),
    ("gemma3_text", "layer_types", ["full_attention"] * 3), ("mixtral", "num_experts_per_tok", 3),
    ("mixtral", "sliding_window", None), ("qwen2_moe", "norm_topk_prob", True), ("qwen3_moe", "norm_topk_prob", False),
    ("qwen3_moe", "num_experts_per_tok", 2), ("olmo3", "sliding_window", 6), ("olmo3", "layer_types", ["full_attention"] * 3),
    ("cohere2", "logit_scale", 0.25), ("cohere2", "layer_types", ["sliding_attention"] * 4), ("cohere2", "layer_norm_eps", 0.1),
    ("glm4_moe", "routed_scaling_factor", 1), ("glm4_moe", "topk_group", 1),
    ("glm4_moe", "norm_topk_prob", False), ("glm4_moe", "num_experts_per_tok", 1), ("ernie4_5_moe", "moe_k", 2),
    ("minimax_m2", "num_experts_per_tok", 1), ("gpt_oss", "swiglu_limit", 0.2), ("gpt_oss", "sliding_window", 6),
    ("gpt_oss", "num_experts_per_tok", 1), ("gpt_oss", "layer_types", ["full_attention"] * 3),
    ("gpt_oss", "rope_parameters", {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                    "original_max_position_embeddings": 4096}), ("cohere2", "sliding_window", 6), ("ernie4_5", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
    ("glm", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
    ("ministral3", "sliding_window", None), ("ministral3", "rope_parameters", {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 6, "beta_fast": 4.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}),
    ("hunyuan_v1_dense", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
    ("lfm2", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}), ("lfm2", "norm_eps", 0.1),
    ("apertus", "rms_norm_eps", 0.1), ("mellum", "sliding_window", 6), ("mellum", "layer_types", None), ("mellum", "rope_parameters", None),
    ("mellum", "norm_topk_prob", False), ("mellum_stacked", "norm_topk_prob", True),
    ("arcee", "hidden_act", "relu"), ("nemotron", "norm_eps", 0.1),
    ("nemotron", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}),
    ("olmo_hybrid", "linear_allow_neg_eigval", False), ("olmo_hybrid_stacked", "linear_allow_neg_eigval", True), ("olmo_hybrid", "rms_norm_eps", 0.1),
    ("olmo_hybrid", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4}),
    ("olmo_hybrid_stacked", "rope_parameters", {"rope_type": "default", "rope_theta": None}),
    ("ministral", "sliding_window", 6), ("ministral", "layer_types", ["sliding_attention"] * 3), ("ministral", "layer_types", None),
    ("exaone4", "sliding_window", 6), ("exaone4", "layer_types", ["full_attention"] * 4), ("exaone4", "rms_norm_eps", 0.1),
    ("lfm3", "sliding_window", 6), ("lfm3", "layer_types", ["conv", "conv", "full_attention", "conv", "full_attention"]), ("lfm3", "norm_eps", 0.1),
    ("lfm3", "rope_parameters", {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), ("lfm3_biases", "rope_parameters", None),
    ("granite_hybrid", "time_step_limit", [0.0, float("inf")]), ("granite_hybrid_stacked", "time_step_limit", [0.2, {"__float__": "Infinity"}]),
    ("nemotron_h", "time_step_min", 0.001), ("nemotron_h", "mlp_hidden_act", "relu"), ("nemotron_h_moe", "routed_scaling_factor", 1),
    ("nemotron_h_moe", "topk_group", 1), ("nemotron_h_moe", "norm_topk_prob", False), ("nemotron_h_moe", "num_experts_per_tok", 1),
    ("granite_hybrid", "position_embedding_type", "rope"), ("granite_hybrid_rope", "position_embedding_type", "nope"),
    ("granite_hybrid", "residual_multiplier", 0.5), ("granite_hybrid", "num_experts_per_tok", 1), ("granite_hybrid", "attention_multiplier", 1),
    ("lfm2_moe", "routed_scaling_factor", 1), ("lfm2_moe", "norm_topk_prob", False), ("lfm2_moe", "num_experts_per_tok", 2),
    ("deepseek_v2", "routed_scaling_factor", 1), ("deepseek_v2", "num_experts_per_tok", 1), ("deepseek_v2_stacked", "topk_method", "greedy"),
    ("deepseek_v2_stacked", "n_group", 2), ("deepseek_v3", "n_group", 2), ("deepseek_v3", "norm_topk_prob", False),
    ("deepseek_v3", "routed_scaling_factor", 1), ("deepseek_v3", "rope_interleave", False), ("deepseek_v3_stacked", "rope_interleave", True),
    ("deepseek_v3", "rms_norm_eps", 1e-6), ("deepseek_v3", "rope_parameters", {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0,
        "mscale": 1.0}), ("deepseek_v2", "rope_parameters", {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0,
        "mscale": 0.707, "mscale_all_dim": 0.707}),
    ("gemma4_text", "sliding_window", 6), ("gemma4_text", "num_kv_shared_layers", 3), ("gemma4_text", "final_logit_softcapping", 2.0),
    ("gemma4_text", "rope_parameters", {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
    ("gemma4_text", "rope_parameters", None), ("gemma4_keys", "rms_norm_eps", 0.1), ("gemma4_moe_text", "top_k_experts", 2),
    ("llama4_text", "attention_chunk_size", 7), ("llama4_text", "floor_scale", 5), ("llama4_text", "attn_scale", 0.2),
    ("llama4_text", "attn_temperature_tuning", False), ("llama4_text", "use_qk_norm", True), ("llama4_text", "num_experts_per_tok", 1),
    ("llama4_text", "no_rope_layers", [1, 1, 1]), ("llama4_text", "layer_types", ["full_attention"] * 3),
    ("hunyuan_v1_moe", "moe_topk", 1), ("hunyuan_v1_moe", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
    ("granitemoe", "attention_multiplier", 1), ("granitemoe", "num_experts_per_tok", 1), ("granitemoeshared", "residual_multiplier", 0.5),
    ("granitemoeshared", "num_experts_per_tok", 2), ("granitemoeshared", "embedding_multiplier", 1), ("granitemoeshared", "logits_scaling", 1),
    ("granite_swa", "sliding_window", 6), ("granite_swa", "layer_rope_theta", None), ("granite_swa", "layer_rope_theta", [0] * 5),
    ("granite_swa", "layer_rope_theta", [0, 5000.0, 0, 5000.0, 0]), ("granite_swa_yarn", "layer_rope_theta", [500.0] * 3),
    ("granite_swa_yarn", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}), ("granitemoe_swa", "sliding_window", 6),
    ("granitemoe_swa", "layer_types", ["full_attention"] * 2), ("granitemoe_swa", "num_experts_per_tok", 1),
    ("mistral4", "n_group", 2), ("mistral4", "topk_group", 1), ("mistral4", "norm_topk_prob", False), ("mistral4", "routed_scaling_factor", 1),
    ("mistral4", "num_experts_per_tok", 1), ("mistral4", "rope_interleave", False),
    ("mistral4", "rope_parameters", MISTRAL_YARN | {"llama_4_scaling_beta": 0.1}), ("mistral4", "rope_parameters", MISTRAL_YARN | {"mscale_all_dim": 1.0}),
    ("mistral4_plain", "norm_topk_prob", True), ("youtu", "rope_interleave", False),
    ("youtu_yarn", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4}), ("olmoe", "norm_topk_prob", True),
    ("olmoe", "num_experts_per_tok", 2), ("olmoe_stacked", "norm_topk_prob", False),
    ("solar_open", "n_group", 2), ("solar_open", "topk_group", 1), ("solar_open", "norm_topk_prob", False), ("solar_open", "routed_scaling_factor", 1),
    ("solar_open", "rope_parameters", {"rope_type": "default", "rope_theta": 1e5}), ("dots1", "n_group", 2), ("dots1", "norm_topk_prob", False),
    ("dots1", "routed_scaling_factor", 1), ("dots1", "sliding_window", 6), ("dots1", "layer_types", ["full_attention"] * 3),
    ("dots1", "num_experts_per_tok", 1), ("afmoe", "route_scale", 1), ("afmoe", "sliding_window", 6), ("afmoe", "mup_enabled", False),
    ("afmoe", "layer_types", ["sliding_attention"] * 5), ("afmoe", "num_experts_per_tok", 1), ("afmoe_stacked", "mup_enabled", True),
   
    ("olmoe_stacked", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4})])
def test_options_that_matter(tmp_path, family, key, value):
    """Each of them changes logits by far more than the tolerance, so that none is read and forgotten."""
    drop = ["layer_types"] if family in ("qwen2_window", "smollm3") and key != "layer_types" else []
    done = parity(copy_family(family, tmp_path, drop=drop, **{key: value}))
    assert done.returncode == 1 and "FAILED" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("family, absent", [
    ("gemma2", "tie_word_embeddings"), ("gpt2", "tie_word_embeddings"), ("starcoder2", "tie_word_embeddings"),
    ("smollm3", "tie_word_embeddings"), ("mistral", "tie_word_embeddings"), ("llama3", "tie_word_embeddings"),
    ("qwen2_window", "layer_types"), ("qwen2_moe", "layer_types"), ("qwen2_moe", "qkv_bias"), ("smollm3", "layer_types"), ("gemma2", "layer_types"), ("olmo2", "head_dim"),
    ("cohere2", "layer_types"), ("cohere2", "tie_word_embeddings"), ("ernie4_5", "tie_word_embeddings"), ("glm", "attention_bias"),
    ("seed_oss", "attention_bias"), ("glm", "rms_norm_eps"), ("cohere2", "layer_norm_eps"),
    ("ministral3", "rms_norm_eps"), ("hunyuan_v1_dense", "rms_norm_eps"), ("lfm2", "norm_eps"), ("lfm2", "tie_word_embeddings"),
    ("lfm2", "conv_L_cache"), ("lfm2", "rope_parameters"), ("granite_hybrid", "mamba_d_conv"), ("granite_hybrid", "mamba_expand"),
    ("granite_hybrid", "mamba_conv_bias"), ("granite_hybrid", "position_embedding_type"), ("granite_hybrid_rope", "time_step_limit"),
    ("granite_hybrid_rope", "mamba_n_groups"), ("nemotron_h", "mlp_hidden_act"), ("nemotron_h", "time_step_limit"),
    ("nemotron_h", "conv_kernel"), ("nemotron_h", "layer_norm_epsilon"), ("nemotron_h_moe_stacked", "time_step_min"), ("lfm2_moe", "use_expert_bias"), ("lfm2_moe", "norm_topk_prob"),
    ("lfm3", "norm_eps"), ("lfm3", "conv_L_cache"), ("lfm3", "rope_parameters"), ("lfm3", "layer_types"), ("lfm3", "tie_word_embeddings"),
    ("lfm3", "use_sandwich_norm"), ("lfm3", "use_attention_gate"),
    ("exaone4", "layer_types"), ("exaone4", "rms_norm_eps"), ("exaone4_whole", "layer_types"),
    ("ministral", "rms_norm_eps"),
    ("olmo_hybrid", "layer_types"), ("olmo_hybrid_stacked", "layer_types"), ("olmo_hybrid", "linear_allow_neg_eigval"), ("olmo_hybrid", "rms_norm_eps"),
    ("olmo_hybrid_stacked", "rope_parameters"), ("olmo_hybrid_stacked", "linear_key_head_dim"), ("olmo_hybrid_stacked", "linear_value_head_dim"),
    ("olmo_hybrid_stacked", "linear_num_key_heads"), ("olmo_hybrid", "linear_conv_kernel_dim"),
    ("arcee", "hidden_act"), ("arcee", "rms_norm_eps"), ("nemotron", "hidden_act"), ("nemotron", "norm_eps"), ("nemotron", "rope_parameters"),
    ("mellum", "norm_topk_prob"), ("mellum_stacked", "mlp_layer_types"), ("mellum", "rms_norm_eps"), ("apertus", "hidden_act"), ("apertus", "rms_norm_eps"),
    ("gemma4_text", "tie_word_embeddings"), ("gemma4_text", "rms_norm_eps"), ("gemma4_text", "hidden_activation"),
    ("llama4_text", "attn_temperature_tuning"), ("llama4_text", "moe_layers"), ("llama4_text", "layer_types"),
    ("hunyuan_v1_moe", "rms_norm_eps"), ("granitemoe", "rms_norm_eps"), ("granitemoe", "num_experts_per_tok"), ("granitemoe", "rope_parameters"),
    ("granitemoeshared_stacked", "shared_intermediate_size"), ("granite_swa", "layer_types"), ("granite_swa", "rms_norm_eps"),
    ("granite_swa", "tie_word_embeddings"), ("granitemoe_swa", "layer_types"), ("granitemoe_swa", "layer_rope_theta"),
    ("olmoe", "rms_norm_eps"), ("olmoe", "norm_topk_prob"),
    ("solar_open", "rms_norm_eps"), ("solar_open", "rope_parameters"), ("solar_open", "intermediate_size"), ("solar_open", "n_shared_experts"),
    ("dots1", "rms_norm_eps"), ("dots1", "layer_types"), ("dots1_stacked", "norm_topk_prob"), ("dots1_stacked", "n_group"),
    ("afmoe", "rms_norm_eps"), ("afmoe", "layer_types"), ("afmoe", "num_dense_layers"), ("afmoe", "num_shared_experts"),
    ("afmoe_stacked", "mup_enabled"), ("afmoe_stacked", "route_scale"), ("mistral4", "rms_norm_eps"), ("mistral4", "norm_topk_prob"), ("mistral4", "first_k_dense_replace"), ("mistral4", "n_shared_experts"),
    ("mistral4", "rope_interleave"), ("mistral4_plain", "n_group"), ("mistral4_plain", "routed_scaling_factor"), ("youtu", "tie_word_embeddings"),
    ("youtu", "rms_norm_eps"), ("youtu", "rope_parameters")])
def test_absent_keys(tmp_path, family, absent):
    """What an absent key stands for differs by family."""
    folder = copy_family(family, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config.pop(absent, None)
    (folder / "config.json").write_text(json.dumps(config))
    expect_equal(folder)


@pytest.mark.parametrize("family, key, value, words", [
    ("qwen2_moe", "decoder_sparse_step", 1, "layers.0.mlp.gate.weight is missing"),
    ("qwen2_moe", "mlp_only_layers", [1], "layers.1.mlp.gate_proj.weight is missing"),
    ("qwen3_moe", "mlp_only_layers", [], "layers.1.mlp.gate.weight is missing"),
    ("qwen3_moe", "moe_intermediate_size", 8, "experts.0.gate_proj.weight is [16, 32], config.json makes it [8, 32]"),
    ("qwen2_moe", "shared_expert_intermediate_size", 16, "shared_expert.gate_proj.weight is [24, 32]"),
    ("mixtral", "num_local_experts", 6, "block_sparse_moe.gate.weight is [5, 32], config.json makes it [6, 32]"),
    ("glm4_moe", "first_k_dense_replace", 2, "layers.1.mlp.gate_proj.weight is missing"),
    ("glm4_moe", "n_shared_experts", 2, "shared_experts.gate_proj.weight is [16, 32]"),
    ("glm4_moe", "use_qk_norm", False, "_norm.weight has no place"),
    ("ernie4_5_moe", "moe_layer_interval", 1, "layers.2.mlp.gate.weight is missing"),
    ("ernie4_5_moe", "moe_layer_end_index", 1, "layers.3.mlp.gate_proj.weight is missing"),
    ("lfm3", "use_attention_gate", False, "self_attn.gate_proj.weight has no place"),
    ("lfm3", "use_sandwich_norm", False, "norm.weight has no place"),
    ("lfm3_bare", "use_attention_gate", True, "self_attn.gate_proj.weight is missing"),
    ("lfm3_bare", "use_sandwich_norm", True, "post_operator_norm.weight is missing"),
    ("lfm3_biases", "attention_bias", False, ".bias has no place"),
    ("arcee", "mlp_bias", False, ".bias has no place"), ("nemotron", "attention_bias", True, ".bias is missing"),
    ("apertus", "hidden_act", "relu2", "mlp.act_fn.alpha_n has no place"),
    ("mellum", "mlp_layer_types", None, "layers.1.mlp.gate.weight is missing"),
    ("lfm2_moe", "num_dense_layers", 2, "layers.1.feed_forward.w1.weight is missing"),
    ("nemotron_h", "layers_block_type", ["linear_attention", "mlp"], "backbone.layers.2.mixer"),
    ("nemotron_h_moe", "moe_shared_expert_intermediate_size", 16, "shared_experts.up_proj.weight is [24, 32]"),
    ("lfm2_moe", "use_expert_bias", False, "feed_forward.expert_bias has no place"),
    ("lfm2_moe", "moe_intermediate_size", 8, "experts.0.w1.weight is [16, 32]"),
    ("qwen2_moe", "qkv_bias", False, ".bias has no place"),
    ("deepseek_v3", "first_k_dense_replace", 2, "layers.1.mlp.gate_proj.weight is missing"),
    ("deepseek_v3", "q_lora_rank", 24, "q_a_proj.weight is [20, 32], config.json makes it [24, 32]"),
    ("deepseek_v3", "q_lora_rank", None, "q_b_proj.weight is [80, 20], config.json makes it [80, 32]"),
    ("deepseek_v2", "q_lora_rank", 20, "self_attn.q_a_proj.weight is missing"),
    ("deepseek_v3", "v_head_dim", 16, "kv_b_proj.weight is [128, 24], config.json makes it [112, 24]"),
    ("deepseek_v3", "kv_lora_rank", 32, "kv_a_proj_with_mqa.weight is [32, 32], config.json makes it [40, 32]"),
    ("deepseek_v2_stacked", "attention_bias", False, ".bias has no place"),
    ("glm4_moe_lite", "mlp_layer_types", ["dense", "sparse", "sparse"], "layers.2.mlp.gate.weight is missing"),
    ("glm4_moe_lite", "mlp_layer_types", None, "layers.2.mlp.gate.weight is missing"),
    ("llama4_text", "moe_layers", [0], "layers.1.feed_forward.gate_proj.weight is missing"),
    ("llama4_text", "intermediate_size", 16, "experts.0.gate_up_proj.weight is [32, 48], config.json makes it [32, 32]"),
    ("gemma4_text", "per_layer_config", {"1": {"head_dim": 26}, "5": {"head_dim": 26}}, "layers.1.self_attn.q_proj.weight is [96, 32], config.json makes it [104, 32]"),
    ("gemma4_text", "use_double_wide_mlp", True, "layers.4.mlp.gate_proj.weight is [32, 32], config.json makes it [64, 32]"),
    ("gemma4_text", "num_kv_shared_layers", 1, "layers.4.self_attn.k_proj.weight is missing"),
    ("gemma4_keys", "attention_k_eq_v", False, "self_attn.v_proj.weight is missing"),
    ("gemma4_moe_text", "num_experts", 3, "router.proj.weight is [4, 32], config.json makes it [3, 32]"),
    ("gemma4_moe_text", "moe_intermediate_size", 8, "experts.0.gate_up_proj.weight is [32, 32], config.json makes it [16, 32]"),
    ("gemma4_moe_text", "enable_moe_block", False, "has no place"),
    ("hunyuan_v1_moe", "num_experts", 4, "mlp.gate.wg.weight is [5, 32], config.json makes it [4, 32]"),
    ("granitemoe", "num_local_experts", 4, "block_sparse_moe.router.layer.weight is [5, 32], config.json makes it [4, 32]"),
    ("granitemoeshared", "shared_intermediate_size", 16, "shared_mlp.input_linear.weight is [48, 32], config.json makes it [32, 32]"),
    ("granitemoeshared", "shared_intermediate_size", 0, "has no place"),
    ("solar_open", "n_shared_experts", 2, "shared_experts.gate_proj.weight is [16, 32]"),
    ("dots1", "first_k_dense_replace", 2, "layers.1.mlp.gate_proj.weight is missing"),
    ("dots1", "n_shared_experts", 1, "shared_experts.gate_proj.weight is [32, 32]"),
    ("afmoe", "num_dense_layers", 2, "layers.1.mlp.gate_proj.weight is missing"),
    ("afmoe", "num_shared_experts", 1, "shared_experts.gate_proj.weight is [32, 32]"),
    ("afmoe", "head_dim", 8, "self_attn.q_proj.weight is [64, 32], config.json makes it [32, 32]"),
    ("olmoe", "intermediate_size", 8, "experts.0.gate_proj.weight is [16, 32], config.json makes it [8, 32]"),
    ("mistral4", "first_k_dense_replace", 1, "layers.0.mlp.gate_proj.weight is missing"),
    ("mistral4", "n_shared_experts", 2, "shared_experts.gate_proj.weight is [16, 32]"),
    ("youtu", "q_lora_rank", None, "q_b_proj.weight is [80, 20], config.json makes it [80, 32]")])
def test_experts_are_where_config_says(tmp_path, family, key, value, words):
    """Which layers have experts, how many and how large: a checkpoint of another shape is refused by a tensor's name."""
    expect_refusal(copy_family(family, tmp_path, **{key: value}), words)


def test_heads_beyond_the_kernels(tmp_path):
    folder = copy_family("gemma4_text", tmp_path, per_layer_config={"1": {"head_dim": 578}, "5": {"head_dim": 578}})
    expect_refusal(folder, 'attention heads of 578 in layers with full attention ("global_head_dim"), must be even and at most 576')


@pytest.mark.parametrize("values, columns", [
    ({"block_auto_adjust_ff_dim": False}, 40), ({"block_ffn_dim_multiplier": None}, 26), ({"block_ffn_dim_multiplier": 1.0}, 36),
    ({"block_ffn_dim_multiplier": 2.1}, 60), ({"block_multiple_of": 1}, 33), ({"block_ff_dim": 400}, 348)])
def test_sizes_of_lfm2(tmp_path, values, columns):
    """Two thirds of what config.json says, times a multiplier, up to a multiple: as transformers makes it."""
    folder = copy_family("lfm2", tmp_path, **values)
    expect_refusal(folder, f"feed_forward.w1.weight is [36, 32], config.json makes it [{columns}, 32]") if columns != 36 else \
        expect_equal(folder)


@pytest.mark.parametrize("family", ["glm4_moe", "ernie4_5_moe", "minimax_m2", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"])
def test_layers_behind_the_last_are_not_read(tmp_path, family):
    """Published files have further layers that foretell tokens; a layer that the model has takes no such tensor."""
    folder = copy_family(family, tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    n = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    more = {f"model.layers.{n}.eh_proj.weight": zeros(4, 4), "model.mtp_block.0.weight": zeros(4)}
    write_tensors(folder / "model.safetensors", tensors | more)
    expect_equal(folder)
    write_tensors(folder / "model.safetensors", tensors | {f"model.layers.{n - 1}.eh_proj.weight": zeros(4, 4)})
    expect_refusal(folder, f"tensor model.layers.{n - 1}.eh_proj.weight has no place")


@pytest.mark.parametrize("family", ["gpt_oss", "gpt_oss_mxfp4", "granite_swa", "granitemoe_swa"])
def test_sinks_and_biases_over_ranks(family):
    """Each rank has the sinks of its heads and its columns of each expert; one of them adds the second bias."""
    for way in ("tensor", "pipeline"):
        done = parity(GOLDEN / family, "--set", f"parallel.{way}=2", "--set", "parallel.comm=threads")
        assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr


def test_mxfp4_in_four_bits(tmp_path):
    """Published experts stay as they are: opened, converted to int8 beside the rest, and widened without loss.

    Beside f32, only the experts round what they read. Beside bf16, some processors round the rows of attention to bf16,
    and two rows whose router is within 1e-3 of a tie take another expert.
    """
    four = subprocess.run([EVAL, "parity", "--tolerance", "1", GOLDEN / "gpt_oss_mxfp4"], capture_output=True, text=True)
    assert four.returncode == 0 and "4 passed" in four.stdout, four.stdout + four.stderr
    for kind, *kept in (("int8",), ("bf16",), ("f32", "--keep", "*.mlp.experts.*")):
        folder = tmp_path / kind
        done = subprocess.run([EVAL.parent / "retro-convert", GOLDEN / "gpt_oss_mxfp4", folder, "--to", kind, *kept],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        dtype, shape, values = read_tensors(folder / "model.safetensors")["model.layers.0.mlp.experts.2.down_proj.weight"]
        assert (dtype, shape) == (("BF16", [64, 160]) if kind == "bf16" else ("U8", [160, 32]))
        shutil.copy(GOLDEN / "gpt_oss_mxfp4/cases.safetensors", folder)
    expect_equal(tmp_path / "bf16")
    exact = subprocess.run([EVAL, "parity", "--tolerance", "0.3", tmp_path / "f32"], capture_output=True, text=True)
    assert exact.returncode == 0 and "4 passed" in exact.stdout, exact.stdout + exact.stderr
    eight = subprocess.run([EVAL, "parity", "--tolerance", "3", tmp_path / "int8"], capture_output=True, text=True)
    assert eight.returncode == 0 and "4 passed" in eight.stdout, eight.stdout + eight.stderr
    done = subprocess.run([EVAL.parent / "retro-convert", GOLDEN / "gpt_oss_mxfp4", tmp_path / "packed", "--to", "packed"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.copy(GOLDEN / "gpt_oss_mxfp4/cases.safetensors", tmp_path / "packed")
    packed = subprocess.run([EVAL, "parity", "--tolerance", "1", tmp_path / "packed"], capture_output=True, text=True)
    assert packed.stdout.replace(str(tmp_path / "packed"), "") == four.stdout.replace(str(GOLDEN / "gpt_oss_mxfp4"), "")


def store_matrix(tensor, kind):
    """Of f32: as it is, as BF16, or the numbers of that in f32."""
    _, shape, values = tensor
    bits = np.frombuffer(values, "<u4").astype("<u8")
    halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    stored = {"F32": ("F32", values), "BF16": ("BF16", halves.tobytes()), "rounded": ("F32", (halves.astype("<u4") << 16).tobytes())}
    return stored[kind][0], shape, stored[kind][1]


@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss"])
def test_routers_are_f32(tmp_path, family):
    """Their rows are not rounded to meet bf16, and they are not rounded themselves."""
    tensors = read_tensors(GOLDEN / family / "model.safetensors")
    routers = [name for name in tensors if name.endswith((".gate.weight", ".router.weight", ".shared_expert_gate.weight"))]
    assert len(routers) >= 2

    def logits(types, *options):
        folder = copy_family(family, tmp_path)
        matrices = {name: store_matrix(t, types[name not in routers]) for name, t in tensors.items()
                    if len(t[1]) > 1 and not name.endswith("bias")}
        write_tensors(folder / "model.safetensors", tensors | matrices)
        done = subprocess.run([EVAL, "parity", "--tolerance", "3", *options, folder], capture_output=True, text=True)
        shutil.rmtree(folder)
        assert "4 passed" in done.stdout, done.stdout + done.stderr
        return done.stdout

    assert logits(("BF16", "F32")) == logits(("rounded", "F32"))
    assert logits(("F32", "F32"), "--set", "model.dtype=bf16") == logits(("F32", "BF16"))


def test_mxfp4_is_checked(tmp_path):
    """Codes without exponents, exponents of another shape or type, and the exponent that stands for NaN."""
    folder = copy_family("gpt_oss_mxfp4", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    name = "model.layers.1.mlp.experts.down_proj"
    kind, shape, values = tensors[name + "_scales"]
    assert (kind, shape) == ("U8", [4, 160, 2]) and tensors[name + "_blocks"][1] == [4, 160, 2, 16]

    def refuse(words, **changed):
        less = {key: t for key, t in tensors.items() if changed.get(key.removeprefix(name), 1)}
        write_tensors(folder / "model.safetensors", less | {name + key: t for key, t in changed.items() if t})
        expect_refusal(folder, words)

    refuse("down_proj.weight is quantised (int4), but", _scales=None)
    refuse("down_proj.weight is missing", _blocks=None)
    refuse("down_proj.weight.scale is [160, 1]", _scales=(kind, [4, 160, 1], values[:640]))
    refuse("not finite", _scales=(kind, shape, values[:-1] + b"\xff"))
    refuse("config.json makes it", _blocks=("U8", [4, 160, 1, 16], tensors[name + "_blocks"][2][:4 * 160 * 16]))
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


def test_the_form_of_mistrals_programs(tmp_path):
    """Its error says which files to put there."""
    (tmp_path / "own").mkdir()
    for name in ("params.json", "consolidated.safetensors", "tekken.json"):
        (tmp_path / "own" / name).write_text("{}")
    done = subprocess.run([EVAL.parent / "retro-convert", tmp_path / "own", tmp_path / "out", "--to", "bf16"], capture_output=True, text=True)
    assert done.returncode == 1 and "Hugging Face files of the same model" in done.stderr, done.stderr


CODES = np.arange(256)
E4M3 = np.where(CODES // 8 % 16 == 0, CODES % 8 * 2.0 ** -9, (8 + CODES % 8) * 2.0 ** (CODES // 8 % 16 - 10)) * np.where(CODES < 128, 1, -1)
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def store_squares(shape, stream):
    """Random codes, a factor for each square of 128 in bf16, and the numbers that they stand for."""
    codes = stream.integers(0, 256, shape).astype(np.uint8)
    codes[codes % 128 == 127] = 0
    squares = (*shape[:-2], -(-shape[-2] // 128), -(-shape[-1] // 128))
    factors = (stream.integers(0x3900, 0x3980, squares) << 16).astype("<u4")
    wide = np.repeat(np.repeat(factors.view("<f4"), 128, -2), 128, -1)[..., :shape[-2], :shape[-1]]
    return (("F8_E4M3", list(shape), codes.tobytes()), ("BF16", list(squares), (factors >> 16).astype("<u2").tobytes()),
            ("F32", list(shape), (E4M3[codes].astype("<f4") * wide).tobytes()))


@pytest.mark.parametrize("family", ["qwen3", "minimax_m2", "glm4_moe_stacked", "deepseek_v2", "deepseek_v3_stacked"])
def test_fp8_is_what_it_stands_for(tmp_path, family):
    """Matrices of layers as e4m3 numbers with factors, experts one by one or stacked, and the same numbers as floats; MiniMax-M2 has a name of its own for the format."""
    tensors, stream = read_tensors(GOLDEN / family / "model.safetensors"), np.random.default_rng(7)
    eight, wide = dict(tensors), dict(tensors)
    for name, (_, shape, _) in tensors.items():
        if ".layers." in name and len(shape) > 1 and not name.endswith("gate.weight"):
            eight[name], eight[name + "_scale_inv"], wide[name] = store_squares(shape, stream)
    outputs = []
    for stored in (eight, wide):
        folder = copy_family(family, tmp_path, quantization_config=FP8 | {"fmt": "float8_e4m3fn" if family == "minimax_m2" else "e4m3"})
        write_tensors(folder / "model.safetensors", stored)
        done = subprocess.run([EVAL, "parity", "--tolerance", "1e9", "--set", "model.dtype=f32", folder], capture_output=True, text=True)
        assert len(done.stdout.splitlines()) == 5, done.stdout + done.stderr
        outputs.append(done.stdout)
        shutil.rmtree(folder)
    assert outputs[0] == outputs[1] and "nan" not in outputs[0]


def test_fp8_is_checked(tmp_path):
    """Codes without factors, factors of another shape or type, a factor that is no number, codes of another size."""
    folder = copy_family("deepseek_v3_fp8", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    name = "model.layers.1.self_attn.kv_b_proj.weight"
    kind, shape, values = tensors[name + "_scale_inv"]
    assert (kind, shape, tensors[name][:2]) == ("F32", [2, 2], ("F8_E4M3", [256, 136]))

    def refuse(words, **changed):
        less = {key: t for key, t in tensors.items() if changed.get(key.removeprefix(name), 1)}
        write_tensors(folder / "model.safetensors", less | {name + key: t for key, t in changed.items() if t})
        expect_refusal(folder, words)

    refuse(name + "_scale_inv is missing", _scale_inv=None)
    refuse("_scale_inv is [2, 1], config.json makes it [2, 2]", _scale_inv=(kind, [2, 1], values[:8]))
    refuse("_scale_inv is I32; factors are", _scale_inv=("I32", shape, values))
    refuse("_scale_inv holds a number that is not finite", _scale_inv=(kind, shape, values[:12] + struct.pack("<f", float("inf"))))
    refuse("kv_b_proj.weight is [256, 137]", **{"": ("F8_E4M3", [256, 137], bytes(256 * 137))})
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


def store_whole(shape, stream):
    """Random codes, one factor for all of them as a number or a list of one, and the numbers that they stand for."""
    codes = stream.integers(0, 256, shape).astype(np.uint8)
    codes[codes % 128 == 127] = 0
    factor = (stream.integers(0x3900, 0x3980, 1) << 16).astype("<u4").view("<f4")
    return (("F8_E4M3", list(shape), codes.tobytes()), ("F32", [1] if stream.integers(2) else [], factor.tobytes()),
            ("F32", list(shape), (E4M3[codes].astype("<f4") * factor).tobytes()))


@pytest.mark.parametrize("folder", [GOLDEN / "qwen3", GOLDEN.parent / "vision/mistral3", GOLDEN.parent / "vision/ministral3_vl"])
def test_fp8_with_one_factor_a_matrix(tmp_path, folder):
    """As Ministral 3 is published: factors of what the matrices multiply are there and not read; the tower is in floats."""
    source, stream = folder, np.random.default_rng(7)
    tensors = read_tensors(source / "model.safetensors")
    eight, wide = dict(tensors), dict(tensors)
    for name, (_, shape, _) in tensors.items():
        if name.endswith("_proj.weight") and "vision_tower" not in name:
            eight[name], eight[name + "_scale_inv"], wide[name] = store_whole(shape, stream)
            eight[name.removesuffix("weight") + "activation_scale"] = ("BF16", [], b"\x80\x3f")
    assert len(eight) > len(tensors) + 20
    outputs = []
    for stored in (eight, wide):
        copy = tmp_path / "copy"
        shutil.copytree(source, copy)
        config = json.loads((source / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
                                         "dequantize": False, "modules_to_not_convert": ["vision_tower", "lm_head"]}
        (copy / "config.json").write_text(json.dumps(config))
        write_tensors(copy / "model.safetensors", stored)
        done = subprocess.run([EVAL, "parity", "--tolerance", "1e9", "--set", "model.dtype=f32", copy], capture_output=True, text=True)
        assert done.stdout.count("max_abs") > 2, done.stdout + done.stderr
        outputs.append(done.stdout)
        shutil.rmtree(copy)
    assert outputs[0] == outputs[1] and "nan" not in outputs[0]


@pytest.mark.parametrize("dimensions", [1, 3])
def test_fp8_with_one_factor_an_expert(tmp_path, dimensions):
    """As Mistral Small 4 is published: stacked experts with a list of factors, and of factors of what they multiply."""
    tensors, stream = read_tensors(GOLDEN / "mistral4/model.safetensors"), np.random.default_rng(7)
    eight, wide = dict(tensors), dict(tensors)
    stacked = [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]
    assert len(stacked) == 4
    for name in stacked:
        shape = tensors[name][1]
        parts = [store_whole(shape[1:], stream) for _ in range(shape[0])]
        factors = "F32", [shape[0], 1, 1][:dimensions], b"".join(factor[2] for _, factor, _ in parts)
        eight[name] = "F8_E4M3", shape, b"".join(codes[2] for codes, _, _ in parts)
        wide[name] = "F32", shape, b"".join(floats[2] for _, _, floats in parts)
        eight |= {name + "_scale_inv": factors, name + "_activation_scale": ("BF16", [shape[0]], b"\x80\x3f" * shape[0])}
    outputs = []
    for stored in (eight, wide):
        folder = copy_family("mistral4", tmp_path, quantization_config=FP8 | {"activation_scheme": "static", "weight_block_size": None})
        write_tensors(folder / "model.safetensors", stored)
        done = parity(folder, "--tolerance", "1e9")
        assert len(done.stdout.splitlines()) == 5, done.stdout + done.stderr
        outputs.append(done.stdout)
        shutil.rmtree(folder)
    assert outputs[0] == outputs[1] and "nan" not in outputs[0]


def compressed(strategy, **weights):
    """What compressed-tensors writes of fp8."""
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "kv_cache_scheme": None, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": None, "input_activations": {"dynamic": True, "strategy": "token"},
                                          "weights": {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True} | weights}}}


FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}, "ignore": ["lm_head"]}


@pytest.mark.parametrize("family", ["qwen3", "minimax_m2"])
@pytest.mark.parametrize("config, by_row, kind", [(compressed("channel"), True, "BF16"), (FBGEMM, True, "F32"), (compressed("tensor"), False, "BF16"), (MODELOPT, False, "F32")],
                         ids=["channel", "fbgemm", "tensor", "modelopt"])
def test_fp8_of_other_programs(tmp_path, config, by_row, kind, family):
    """A factor for each row, or one, in weight_scale; those of what multiplies the matrix and of the cache are not read."""
    tensors, stream = read_tensors(GOLDEN / family / "model.safetensors"), np.random.default_rng(7)
    eight, wide = dict(tensors), dict(tensors)
    for name, (_, shape, _) in tensors.items():
        if not (".layers." in name and len(shape) == 2 and not name.endswith("gate.weight")):
            continue
        (codes, _, _), rows = store_squares(shape, stream), shape[0] if by_row else 1
        factors = (stream.integers(0x3900, 0x3980, (rows, 1)) << 16).astype("<u4")
        eight[name] = codes
        eight[name + "_scale"] = (kind, [rows, 1] if by_row else [1], (factors if kind == "F32" else (factors >> 16).astype("<u2")).tobytes())
        eight |= {name.removesuffix("weight") + extra: ("F32", [1], b"\0\0\0\x40") for extra in ("input_scale", "k_scale", "input_scale_ub")}
        numbers = E4M3[np.frombuffer(codes[2], np.uint8)].reshape(shape).astype("<f4") * factors.view("<f4")
        wide[name] = ("F32", shape, numbers.astype("<f4").tobytes())
    outputs = []
    for stored, settings in ((eight, {"quantization_config": config}), (wide, {})):
        folder = copy_family(family, tmp_path, **settings)
        write_tensors(folder / "model.safetensors", stored)
        done = parity(folder, "--tolerance", "1e9")
        assert len(done.stdout.splitlines()) == 5, done.stdout + done.stderr
        outputs.append(done.stdout)
        shutil.rmtree(folder)
    assert outputs[0] == outputs[1] and "nan" not in outputs[0]


@pytest.mark.parametrize("change", [{"weight_block_size": [64, 128]}, {"weight_block_size": 128}, {"fmt": "e5m2"}, {"activation_scheme": "none"},
                                    {"quant_method": "compressed-tensors"}, compressed("group"), compressed("channel", num_bits=4), compressed("channel", type="int"),
                                    compressed("channel") | {"format": "nvfp4-pack-quantized"}, MODELOPT | {"quant_algo": "NVFP4"}])
def test_fp8_of_other_kinds_is_refused(tmp_path, change):
    expect_refusal(copy_family("deepseek_v3_fp8", tmp_path, quantization_config=FP8 | change), '"quantization_config" is not supported but with')


def test_fp8_is_converted(tmp_path):
    """To floats and to blocks; what blocks do not fit becomes bf16. Packed weights give the bits of the folder."""
    source = GOLDEN / "deepseek_v3_fp8"
    outputs = {}
    for kind, bound in (("bf16", 1), ("int8", 2), ("packed", 1)):
        folder = tmp_path / kind
        done = subprocess.run([EVAL.parent / "retro-convert", source, folder, "--to", kind], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        shutil.copy(source / "cases.safetensors", folder)
        done = subprocess.run([EVAL, "parity", "--tolerance", str(bound), folder], capture_output=True, text=True)
        assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
        outputs[kind] = done.stdout.replace(str(folder), "")
    tensors = read_tensors(tmp_path / "int8/model.safetensors")
    assert tensors["model.layers.0.self_attn.kv_b_proj.weight"][0] == "BF16" and tensors["model.layers.0.self_attn.o_proj.weight"][0] == "I8"
    assert not any(name.endswith("_scale_inv") for name in tensors)
    done = subprocess.run([EVAL, "parity", "--tolerance", "1", source], capture_output=True, text=True)
    assert outputs["bf16"] == outputs["packed"] == done.stdout.replace(str(source), "")


def test_window_that_is_off(tmp_path):
    """use_sliding_window decides, whatever sliding_window says."""
    plain = copy_family("qwen2_bf16", tmp_path, use_sliding_window=False, sliding_window=2, max_window_layers=0)
    expect_equal(plain)


def test_gpt_neox_spellings(tmp_path):
    """embed_out is lm_head in memory; old files hold masks and frequencies in every layer."""
    folder = copy_family("gpt_neox_parallel", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("embed_out.weight")
    for i in range(2):
        tensors |= {f"gpt_neox.layers.{i}.attention.{name}": zeros(4) for name in
                    ("bias", "masked_bias", "rotary_emb.inv_freq")}
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)


def test_models_without_prefix(tmp_path):
    """LlamaModel and the like write no "model."."""
    folder = copy_family("qwen3", tmp_path)
    tensors = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", {name.removeprefix("model."): t for name, t in tensors.items()})
    expect_equal(folder)


def test_gemma4_reads_no_keys_that_are_reused(tmp_path):
    """Published folders may hold the products that layers which reuse keys and values do not have; and a text sees what
    a model with "vision" sees."""
    folder = copy_family("gemma4_text", tmp_path, use_bidirectional_attention="vision")
    tensors = read_tensors(folder / "model.safetensors")
    assert "model.layers.4.self_attn.k_proj.weight" not in tensors and "model.layers.3.self_attn.k_proj.weight" in tensors
    tensors |= {"model.layers.4.self_attn.k_proj.weight": zeros(32, 32), "model.layers.5.self_attn.v_norm.weight": zeros(24)}
    write_tensors(folder / "model.safetensors", tensors)
    expect_equal(folder)
    del tensors["model.layers.3.self_attn.k_proj.weight"]
    write_tensors(folder / "model.safetensors", tensors)
    expect_refusal(folder, "tensor model.layers.3.self_attn.k_proj.weight is missing")


@pytest.mark.parametrize("family", ["gemma4", "llama4"])
def test_nested_texts(tmp_path, family):
    """Keys are those of text_config, and an error says so; another spelling of the layers is read as well."""
    folder = copy_family(family, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    tensors = read_tensors(folder / "model.safetensors")
    assert any("vision" in name for name in tensors)
    first = "model.language_model." if family == "gemma4" else "language_model.model."
    write_tensors(folder / "model.safetensors", {name.replace(first, first.removeprefix("model.") if family == "gemma4" else "model."): t
                                                 for name, t in tensors.items()})
    expect_equal(folder)
    config["text_config"]["num_key_value_heads"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    expect_refusal(folder, "text_config", "cannot share 3")

