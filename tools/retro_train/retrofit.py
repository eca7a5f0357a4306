"""Retro-fit: a Hugging Face decoder becomes the base of a Retro model (RETRO, section 4.3).

`convert` writes a model folder whose decoder is the checkpoint, with a fresh neighbour encoder and fresh cross attention that
writes nothing yet (its output projection is zero): before training the model is exactly its base. A run that starts from
this folder with "freeze_base" trains only what is new.

  llama, mistral, qwen2   RoPE half-split as ours, RMSNorm, SwiGLU, grouped key/value heads. Only q, k, v of Qwen2 have biases;
                          the others are stored as zero.
  gpt2                    learned positions; its Conv1D weights are [in, out], ours [out, in]
  gpt_neox                partial RoPE, only with "use_parallel_residual": false: a layer that adds attention and MLP of
                          the same input is another computation, which Retro's decoder does not have

Refused, with the reason: scaled RoPE, sliding windows, tokenizers that are not byte-level BPE.
"""

import json
from pathlib import Path

import torch

from .config import ModelConfig
from .export import load_tensors, write_model
from .files import read_json
from .model import Retro
from .tokenizer import Vocabulary


def require(condition, message):
    if not condition:
        raise ValueError(message)


def group_qkv(q, k, v, heads, groups):
    """Separate q [H h, ...], k, v [G h, ...] into Megatron's rows: per group its queries, its key, its value."""
    h = q.shape[0] // heads
    rest = q.shape[1:]
    parts = (q.view(groups, heads // groups * h, *rest), k.view(groups, h, *rest), v.view(groups, h, *rest))
    return torch.cat(parts, 1).reshape(-1, *rest)


def llama_config(hf):
    rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    require(rope.get("rope_type", rope.get("type", "default")) == "default", f"{hf['model_type']}: scaled RoPE ({rope}) is not supported")
    window = hf.get("sliding_window") if hf.get("use_sliding_window", hf["model_type"] == "mistral") else None
    require(not window or window >= hf["max_position_embeddings"], f"{hf['model_type']}: sliding window attention is not supported")
    require(hf.get("hidden_act", "silu") == "silu", f"{hf['model_type']}: activation {hf.get('hidden_act')}")
    heads = hf["num_attention_heads"]
    return {
        "num_layers": hf["num_hidden_layers"], "hidden_size": hf["hidden_size"], "num_attention_heads": heads,
        "num_query_groups": hf.get("num_key_value_heads") or heads, "kv_channels": hf.get("head_dim") or hf["hidden_size"] // heads,
        "ffn_hidden_size": hf["intermediate_size"], "max_position_embeddings": hf["max_position_embeddings"],
        "position_embedding_type": "rope", "rotary_base": rope.get("rope_theta") or hf.get("rope_theta", 10000.0),
        "normalization": "RMSNorm", "layernorm_epsilon": hf["rms_norm_eps"], "activation": "swiglu",
        "add_bias_linear": bool(hf.get("attention_bias") or hf.get("mlp_bias") or hf["model_type"] == "qwen2"),
    }


def llama_tensors(w, c):
    """Biases that the checkpoint does not have are zero."""
    out = {"embedding.word_embeddings.weight": w["model.embed_tokens.weight"], "decoder.final_layernorm.weight": w["model.norm.weight"]}
    for i in range(c.num_layers):
        theirs, ours = f"model.layers.{i}.", f"decoder.layers.{i}."

        def get(name, kind):
            if kind == "bias" and theirs + name + ".bias" not in w:
                return torch.zeros(w[theirs + name + ".weight"].shape[0])
            return w[f"{theirs}{name}.{kind}"]

        out[ours + "self_attention.linear_qkv.layer_norm_weight"] = w[theirs + "input_layernorm.weight"]
        out[ours + "mlp.linear_fc1.layer_norm_weight"] = w[theirs + "post_attention_layernorm.weight"]
        for kind in ("weight", "bias") if c.add_bias_linear else ("weight",):
            q, k, v = (get(f"self_attn.{x}_proj", kind) for x in "qkv")
            out[f"{ours}self_attention.linear_qkv.{kind}"] = group_qkv(q, k, v, c.num_attention_heads, c.num_query_groups)
            out[f"{ours}self_attention.linear_proj.{kind}"] = get("self_attn.o_proj", kind)
            out[f"{ours}mlp.linear_fc1.{kind}"] = torch.cat([get("mlp.gate_proj", kind), get("mlp.up_proj", kind)])
            out[f"{ours}mlp.linear_fc2.{kind}"] = get("mlp.down_proj", kind)
    return out


GELUS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu": "gelu_erf", "relu": "relu",
         "silu": "silu", "quick_gelu": "quick_gelu"}


def gpt2_config(hf):
    require(hf.get("scale_attn_weights", True) and not hf.get("scale_attn_by_inverse_layer_idx"), "gpt2: attention scaled per layer is not supported")
    require(hf["activation_function"] in GELUS, f"gpt2: activation {hf['activation_function']}")
    return {
        "num_layers": hf["n_layer"], "hidden_size": hf["n_embd"], "num_attention_heads": hf["n_head"],
        "ffn_hidden_size": hf.get("n_inner") or 4 * hf["n_embd"], "max_position_embeddings": hf["n_positions"],
        "position_embedding_type": "learned_absolute", "layernorm_epsilon": hf["layer_norm_epsilon"],
        "activation": GELUS[hf["activation_function"]],
    }


def gpt2_tensors(w, c):
    w = {name.removeprefix("transformer."): t for name, t in w.items()}
    out = {"embedding.word_embeddings.weight": w["wte.weight"], "embedding.position_embeddings.weight": w["wpe.weight"],
           "decoder.final_layernorm.weight": w["ln_f.weight"], "decoder.final_layernorm.bias": w["ln_f.bias"]}
    for i in range(c.num_layers):
        theirs, ours = f"h.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            conv = lambda name: w[f"{theirs}{name}.{kind}"].t()  # Conv1D: [in, out]; t() leaves a bias as it is
            q, k, v = conv("attn.c_attn").chunk(3)
            out[f"{ours}self_attention.linear_qkv.{kind}"] = group_qkv(q, k, v, c.num_attention_heads, c.num_attention_heads)
            out[f"{ours}self_attention.linear_proj.{kind}"] = conv("attn.c_proj")
            out[f"{ours}mlp.linear_fc1.{kind}"] = conv("mlp.c_fc")
            out[f"{ours}mlp.linear_fc2.{kind}"] = conv("mlp.c_proj")
            out[f"{ours}self_attention.linear_qkv.layer_norm_{kind}"] = w[f"{theirs}ln_1.{kind}"]
            out[f"{ours}mlp.linear_fc1.layer_norm_{kind}"] = w[f"{theirs}ln_2.{kind}"]
    return out


def neox_config(hf):
    require(not hf.get("use_parallel_residual", True),
            "gpt_neox: parallel residual (attention and MLP of the same input) is not supported: Retro's decoder has no such layer")
    require(hf["hidden_act"] in GELUS, f"gpt_neox: activation {hf['hidden_act']}")
    require(hf.get("attention_bias", True), "gpt_neox: attention without biases is not supported")
    rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    require(rope.get("rope_type", rope.get("type", "default")) == "default", f"gpt_neox: scaled RoPE ({rope}) is not supported")
    return {
        "num_layers": hf["num_hidden_layers"], "hidden_size": hf["hidden_size"], "num_attention_heads": hf["num_attention_heads"],
        "ffn_hidden_size": hf["intermediate_size"], "max_position_embeddings": hf["max_position_embeddings"],
        "position_embedding_type": "rope",
        "rotary_percent": rope.get("partial_rotary_factor", hf.get("rotary_pct", 0.25)),
        "rotary_base": rope.get("rope_theta") or hf.get("rotary_emb_base", 10000),
        "layernorm_epsilon": hf["layer_norm_eps"], "activation": GELUS[hf["hidden_act"]],
    }


def neox_tensors(w, c):
    """query_key_value already has rows q, k, v per head, as ours."""
    out = {"embedding.word_embeddings.weight": w["gpt_neox.embed_in.weight"],
           "decoder.final_layernorm.weight": w["gpt_neox.final_layer_norm.weight"],
           "decoder.final_layernorm.bias": w["gpt_neox.final_layer_norm.bias"]}
    names = {"attention.query_key_value.": "self_attention.linear_qkv.", "attention.dense.": "self_attention.linear_proj.",
             "mlp.dense_h_to_4h.": "mlp.linear_fc1.", "mlp.dense_4h_to_h.": "mlp.linear_fc2.",
             "input_layernorm.": "self_attention.linear_qkv.layer_norm_", "post_attention_layernorm.": "mlp.linear_fc1.layer_norm_"}
    for i in range(c.num_layers):
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                out[f"decoder.layers.{i}.{ours}{kind}"] = w[f"gpt_neox.layers.{i}.{theirs}{kind}"]
    return out


# model_type -> (config, tensors, name of the separate output matrix)
FAMILIES = {
    "llama": (llama_config, llama_tensors, "lm_head.weight"),
    "mistral": (llama_config, llama_tensors, "lm_head.weight"),
    "qwen2": (llama_config, llama_tensors, "lm_head.weight"),
    "gpt2": (gpt2_config, gpt2_tensors, "lm_head.weight"),
    "gpt_neox": (neox_config, neox_tensors, "embed_out.weight"),
}


def read_base(folder):
    """(values for ModelConfig of a plain GPT, tensors under our names) of a Hugging Face folder."""
    hf = read_json(Path(folder) / "config.json")
    kind = hf.get("model_type")
    require(kind in FAMILIES, f'{folder}: model_type "{kind}", known are {", ".join(FAMILIES)}')
    make_config, make_tensors, head = FAMILIES[kind]
    w = {name: t.float() for name, t in load_tensors(folder).items()}
    values = make_config(hf) | {"architecture": "gpt", "final_norm": True}
    eod = hf.get("eos_token_id")
    values["eod_token_id"] = eod[0] if isinstance(eod, list) else eod
    values["vocab_size"] = hf["vocab_size"]
    # A head that is stored is the head, whatever tie_word_embeddings says; some writers store the tied one again.
    word = next(t for name, t in w.items() if name.endswith(("embed_tokens.weight", "wte.weight", "embed_in.weight")))
    values["tie_word_embeddings"] = head not in w or torch.equal(w[head], word)
    tensors = make_tensors(w, ModelConfig.from_dict(values))
    if not values["tie_word_embeddings"]:
        tensors["output_layer.weight"] = w[head]
    return values, tensors


def default_retro_layers(num_layers):
    """RETRO's rule where the model is deep enough; in a shallow one every third layer that ends with the last."""
    start = 6 if num_layers <= 15 else 9
    return list(range(start, num_layers + 1, 3)) or sorted(range(num_layers, max(num_layers // 2, 0), -3))


def convert(source, retrieval, seed=0):
    """The Retro model of a base. retrieval: the retro_* keys of config.json to set."""
    values, tensors = read_base(source)
    require(values["eod_token_id"] is not None, f"{source}: config.json has no eos_token_id, which pads neighbours")
    values |= {"architecture": "retro", "retro_chunk_length": 64, "retro_layers": default_retro_layers(values["num_layers"])} | retrieval
    torch.manual_seed(seed)
    model = Retro(ModelConfig.from_dict(values))
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    new = [name for name in missing if "cross_attention" not in name and "pre_cross_attn" not in name]
    require(not new and not unexpected, f"{source}: tensors missing {new}, not used {unexpected}")
    with torch.no_grad():
        for number in model.config.retro_layers:
            model.decoder.layers[number - 1].cross_attention.attn.linear_proj.weight.zero_()
    return model


def retrofit(source, out, retrieval, seed=0):
    tokenizer = Path(source) / "tokenizer.json"
    require(tokenizer.exists(), f"{source}: no tokenizer.json; save the fast tokenizer with the model")
    vocabulary = Vocabulary(tokenizer)
    model = convert(source, retrieval, seed)
    require(vocabulary.size <= model.config.vocab_size, f"{tokenizer}: {vocabulary.size} ids, the model has {model.config.vocab_size}")
    write_model(out, model, tokenizer)
    return model


def parse_retrieval(text):
    """JSON of the retro_* keys, for the command line."""
    values = json.loads(text)
    bad = [key for key in values if not key.startswith(("retro_", "encoder_"))]
    require(not bad, f"--retrieval sets retro_* keys, not {bad}")
    return values
