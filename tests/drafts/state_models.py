"""Random models whose layers keep states, with attention in every second layer: short convolutions (LFM2), and state spaces and
experts without gates (Nemotron-H)."""
import numpy as np

D, HEADS, GROUPS, SIZE, FFN = 64, 4, 2, 16, 64
COMMON = {"hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "intermediate_size": FFN, "max_position_embeddings": 2048}

CONVOLUTION = {"model_type": "lfm2", **COMMON, "num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2,
               "block_auto_adjust_ff_dim": False, "tie_word_embeddings": False}
SPACE = {"model_type": "nemotron_h", **COMMON, "hybrid_override_pattern": "M*-M*E", "head_dim": SIZE, "mamba_num_heads": 8, "mamba_head_dim": 16,
         "n_groups": 2, "ssm_state_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "moe_shared_expert_intermediate_size": 32, "use_conv_bias": False}


class Draw:
    """Named random tensors."""

    def __init__(self, seed):
        self.random, self.tensors = np.random.default_rng(seed), {}

    def matrix(self, name, rows, columns, scale=1):
        self.tensors[name + ".weight"] = scale * self.random.standard_normal((rows, columns)) / np.sqrt(columns)

    def ones(self, name, n):
        self.tensors[name + ".weight"] = np.ones(n)

    def vector(self, name, n, centre=0):
        self.tensors[name] = centre + self.random.standard_normal(n)

    def attention(self, layer, out):
        for name, rows in (("q_proj", HEADS * SIZE), ("k_proj", GROUPS * SIZE), ("v_proj", GROUPS * SIZE)):
            self.matrix(layer + name, rows, D)
        self.matrix(layer + out, D, HEADS * SIZE)


def convolution_tensors(vocab):
    draw = Draw(8)
    draw.matrix("model.embed_tokens", vocab, D, 4)
    draw.matrix("lm_head", vocab, D, 3)
    draw.ones("model.embedding_norm", D)
    for i, kind in enumerate(CONVOLUTION["layer_types"]):
        layer = f"model.layers.{i}."
        draw.ones(layer + "operator_norm", D)
        draw.ones(layer + "ffn_norm", D)
        for name, rows, columns in (("w1", FFN, D), ("w3", FFN, D), ("w2", D, FFN)):
            draw.matrix(f"{layer}feed_forward.{name}", rows, columns)
        if kind == "conv":
            draw.matrix(layer + "conv.in_proj", 3 * D, D)
            draw.matrix(layer + "conv.out_proj", D, D)
            draw.tensors[layer + "conv.conv.weight"] = draw.random.standard_normal((D, 1, 3)) / 2
        else:
            draw.attention(layer + "self_attn.", "out_proj")
            draw.ones(layer + "self_attn.q_layernorm", SIZE)
            draw.ones(layer + "self_attn.k_layernorm", SIZE)
    return draw.tensors


def space_tensors(vocab):
    draw, heads, values = Draw(9), SPACE["mamba_num_heads"], SPACE["mamba_num_heads"] * SPACE["mamba_head_dim"]
    channels = values + 2 * SPACE["n_groups"] * SPACE["ssm_state_size"]
    draw.matrix("backbone.embeddings", vocab, D, 4)
    draw.matrix("lm_head", vocab, D, 3)
    draw.ones("backbone.norm_f", D)
    for i, kind in enumerate(SPACE["hybrid_override_pattern"]):
        layer = f"backbone.layers.{i}."
        draw.ones(layer + "norm", D)
        layer += "mixer."
        if kind == "M":
            draw.matrix(layer + "in_proj", values + channels + heads, D)
            draw.tensors[layer + "conv1d.weight"] = draw.random.standard_normal((channels, 1, 4)) / 2
            draw.vector(layer + "A_log", heads, -2)
            draw.vector(layer + "dt_bias", heads)
            draw.vector(layer + "D", heads)
            draw.ones(layer + "norm", values)
            draw.matrix(layer + "out_proj", D, values)
        elif kind == "*":
            draw.attention(layer, "o_proj")
        elif kind == "-":
            draw.matrix(layer + "up_proj", FFN, D)
            draw.matrix(layer + "down_proj", D, FFN)
        else:
            draw.matrix(layer + "gate", 4, D)
            draw.vector(layer + "gate.e_score_correction_bias", 4)
            for name in ("experts.0", "experts.1", "experts.2", "experts.3", "shared_experts"):
                draw.matrix(f"{layer}{name}.up_proj", 32, D)
                draw.matrix(f"{layer}{name}.down_proj", D, 32)
    return draw.tensors
