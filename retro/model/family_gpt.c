/* retro/model/family_gpt.c: GPT and Retro decoders as Megatron-Core writes them (docs/spec/retro-model.md 1, 3, 9).
 * Retro is the GPT layer with its third slot, cross attention, filled at some layers; GPT is Retro without it. */
#include <stdio.h>
#include <string.h>

#include "retro/model/spec.h"

/* Megatron's schedule: from layer 6 (9 in models deeper than 15), then every third; numbers are 1-based (spec 3). */
static void retro_layers_by_rule(struct dims *d) {
    for (int i = d->n_layers <= 15 ? 6 : 9; i <= d->n_layers; i += 3) d->retro_layer[i - 1] = true;
}

static enum status retro_layers_by_list(const json_t *list, struct dims *d, struct error *e) {
    if (!json_is_array(list))
        return error_set(e, STATUS_INVALID, "config.json: \"retro_layers\" must be a list of layer numbers");
    json_int_t last = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 1 || number > d->n_layers || number <= last)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"retro_layers\" has an entry that is not a layer number 1 .. %d, or is out "
                             "of order",
                             d->n_layers);
        d->retro_layer[number - 1] = true;
        last = number;
    }
    return STATUS_OK;
}

static enum status read_retro_layers(const json_t *config, struct dims *d, struct error *e) {
    const json_t *list = json_object_get(config, "retro_layers");
    if (list && !json_is_null(list)) {
        enum status status = retro_layers_by_list(list, d, e);
        if (status) return status;
    } else {
        retro_layers_by_rule(d);
    }
    d->first_retro_layer = -1;
    for (int i = d->n_layers - 1; i >= 0; i--) {
        if (!d->retro_layer[i]) continue;
        d->first_retro_layer = i;
        d->n_retro_layers++;
    }
    if (d->n_retro_layers == 0)
        return error_set(e, STATUS_INVALID, "config.json: a retro model of %d layers needs \"retro_layers\"",
                         d->n_layers);
    return STATUS_OK;
}

static enum status read_positions(const json_t *config, struct dims *d, struct error *e) {
    static const char *const kinds[] = {"learned_absolute", "rope", "none", NULL};
    int kind;
    float percent;
    if (dims_choice(config, "position_embedding_type", kinds, -1, &kind, e) ||
        dims_int(config, "max_position_embeddings", (struct range){1, 1 << 24}, &d->max_positions, e) ||
        dims_float_or(config, "rotary_percent", 1.0f, &percent, e) ||
        dims_float_or(config, "rotary_base", 10000.0f, &d->rope_base, e) ||
        dims_bool_or(config, "rotary_interleaved", false, &d->rope_interleaved, e))
        return e->status;
    if (!(percent > 0 && percent <= 1) || !(d->rope_base > 0))
        return error_set(e, STATUS_INVALID, "config.json: rotary_percent must be in (0, 1] and rotary_base positive");
    d->learned_positions = kind == 0;
    if (kind == 1) d->rotated = percent >= 1 ? d->head_dim : (int)((float)d->head_dim * percent);
    return STATUS_OK;
}

static enum status read_mlp(const json_t *config, struct dims *d, struct error *e) {
    static const struct {
        enum activation activation;
        bool gated;
    } kinds[] = {{ACTIVATION_GELU_TANH, false},    {ACTIVATION_GELU_ERF, false},  {ACTIVATION_SILU, true},
                 {ACTIVATION_GELU_TANH, true},     {ACTIVATION_SILU, false},      {ACTIVATION_RELU, false},
                 {ACTIVATION_RELU_SQUARED, false}, {ACTIVATION_QUICK_GELU, false}};
    static const char *const names[] = {"gelu_tanh", "gelu_erf",     "swiglu",     "geglu", "silu",
                                        "relu",      "squared_relu", "quick_gelu", NULL};
    int kind;
    if (dims_choice(config, "activation", names, -1, &kind, e)) return e->status;
    d->activation = kinds[kind].activation;
    d->gated = kinds[kind].gated;
    return STATUS_OK;
}

static enum status read_norm(const json_t *config, struct dims *d, struct error *e) {
    static const char *const kinds[] = {"LayerNorm", "RMSNorm", NULL};
    int kind;
    if (dims_choice(config, "normalization", kinds, 0, &kind, e) ||
        dims_float_or(config, "layernorm_epsilon", 1e-5f, &d->epsilon, e) ||
        dims_bool_or(config, "layernorm_zero_centered_gamma", false, &d->zero_centered_gamma, e))
        return e->status;
    d->norm = kind == 0 ? NORM_LAYER : NORM_RMS;
    return STATUS_OK;
}

static enum status gpt_read_dims(const json_t *config, struct dims *d, struct error *e) {
    d->first_retro_layer = -1;
    if (dims_int(config, "num_layers", (struct range){1, MAX_LAYERS}, &d->n_layers, e) ||
        dims_int(config, "hidden_size", (struct range){1, 1 << 20}, &d->hidden, e) ||
        dims_int(config, "num_attention_heads", (struct range){1, 1 << 14}, &d->heads, e) ||
        dims_int_or(config, "num_query_groups", (struct range){1, 1 << 14}, d->heads, &d->kv_heads, e) ||
        dims_int_or(config, "kv_channels", (struct range){1, 1 << 14}, max_int(1, d->hidden / d->heads), &d->head_dim,
                    e) ||
        dims_int_or(config, "ffn_hidden_size", (struct range){1, 1 << 22}, 4 * d->hidden, &d->ffn, e) ||
        dims_int(config, "vocab_size", (struct range){1, 1 << 24}, &d->vocab, e) ||
        dims_int_or(config, "padded_vocab_size", (struct range){1, 1 << 24}, d->vocab, &d->padded_vocab, e) ||
        dims_bool_or(config, "add_bias_linear", true, &d->bias, e) ||
        dims_bool_or(config, "tie_word_embeddings", true, &d->tied, e) ||
        dims_bool_or(config, "final_norm", false, &d->final_norm, e) ||
        dims_int_or(config, "eod_token_id", (struct range){0, d->vocab - 1}, -1, &d->eod, e) ||
        read_positions(config, d, e) || read_mlp(config, d, e) || read_norm(config, d, e))
        return e->status;
    return dims_check(d, e);
}

static enum status retro_read_dims(const json_t *config, struct dims *d, struct error *e) {
    static const char *const residuals[] = {"normed", "raw", NULL};
    int residual;
    if (gpt_read_dims(config, d, e) ||
        dims_int(config, "retro_chunk_length", (struct range){1, 1 << 16}, &d->chunk_length, e) ||
        dims_int_or(config, "retro_num_neighbors", (struct range){1, 1 << 10}, 2, &d->num_neighbors, e) ||
        dims_int_or(config, "retro_retrieved_length", (struct range){1, 1 << 16}, 2 * d->chunk_length,
                    &d->retrieved_length, e) ||
        dims_int_or(config, "retro_encoder_num_layers", (struct range){1, MAX_LAYERS}, 2, &d->encoder_layers, e) ||
        dims_choice(config, "encoder_residual", residuals, 0, &residual, e) ||
        dims_float_or(config, "retro_attention_gate", 1.0f, &d->gate, e) || read_retro_layers(config, d, e))
        return e->status;
    d->encoder_residual_normed = residual == 0;
    return dims_check(d, e);
}

static const struct outer_names outer = {
    .word = "embedding.word_embeddings.weight",
    .position = "embedding.position_embeddings.weight",
    .final_gamma = "decoder.final_layernorm.weight",
    .final_beta = "decoder.final_layernorm.bias",
    .output = "output_layer.weight",
    .decoder_layer = "decoder.layers.%d.",
    .encoder_layer = "decoder.layers.%d.cross_attention.encoder.layers.%d.",
};

/* Transformer Engine's names first, then those of local specs (spec 9.3); encoder layer 0 norms under a third. */
static const struct weight_name names[] = {
    {SLOT_NORM_IN_GAMMA, PART_WHOLE, {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"}},
    {SLOT_NORM_IN_BETA, PART_WHOLE, {"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"}},
    {SLOT_QKV, PART_QKV_BY_GROUP, {"self_attention.linear_qkv.weight"}},
    {SLOT_QKV_BIAS, PART_QKV_BY_GROUP, {"self_attention.linear_qkv.bias"}},
    {SLOT_PROJ, PART_WHOLE, {"self_attention.linear_proj.weight"}},
    {SLOT_PROJ_BIAS, PART_WHOLE, {"self_attention.linear_proj.bias"}},
    {SLOT_NORM_CROSS_GAMMA, PART_WHOLE, {"pre_cross_attn_layernorm.weight"}},
    {SLOT_NORM_CROSS_BETA, PART_WHOLE, {"pre_cross_attn_layernorm.bias"}},
    {SLOT_CROSS_Q, PART_WHOLE, {"cross_attention.attn.linear_q.weight"}},
    {SLOT_CROSS_Q_BIAS, PART_WHOLE, {"cross_attention.attn.linear_q.bias"}},
    {SLOT_CROSS_KV, PART_KV_BY_HEAD, {"cross_attention.attn.linear_kv.weight"}},
    {SLOT_CROSS_KV_BIAS, PART_KV_BY_HEAD, {"cross_attention.attn.linear_kv.bias"}},
    {SLOT_CROSS_PROJ, PART_WHOLE, {"cross_attention.attn.linear_proj.weight"}},
    {SLOT_CROSS_PROJ_BIAS, PART_WHOLE, {"cross_attention.attn.linear_proj.bias"}},
    {SLOT_NORM_MLP_GAMMA,
     PART_WHOLE,
     {"mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight", "pre_mlp_layernorm.norm.weight"}},
    {SLOT_NORM_MLP_BETA,
     PART_WHOLE,
     {"mlp.linear_fc1.layer_norm_bias", "pre_mlp_layernorm.bias", "pre_mlp_layernorm.norm.bias"}},
    {SLOT_FC1, PART_WHOLE, {"mlp.linear_fc1.weight"}},
    {SLOT_FC1_BIAS, PART_WHOLE, {"mlp.linear_fc1.bias"}},
    {SLOT_FC2, PART_WHOLE, {"mlp.linear_fc2.weight"}},
    {SLOT_FC2_BIAS, PART_WHOLE, {"mlp.linear_fc2.bias"}},
};

/* Applied iff the key exists: Megatron-Core dropped the final norm of Retro in 0.8.0 (spec 7). */
static void gpt_inspect(const struct weights *w, struct dims *d) {
    d->final_norm = weights_find(w, outer.final_gamma) != NULL;
}

/* The option that sets the encoder's depth never reaches Megatron's model (spec 1.1): the keys tell the truth. */
static void retro_inspect(const struct weights *w, struct dims *d) {
    gpt_inspect(w, d);
    int depth = 0;
    for (; depth < MAX_LAYERS; depth++) {
        char name[160];
        int used = snprintf(name, sizeof name, outer.encoder_layer, d->first_retro_layer, depth);
        snprintf(name + used, sizeof name - (size_t)used, "mlp.linear_fc2.weight");
        if (weights_find(w, name) == NULL) break;
    }
    d->encoder_layers = max_int(depth, 1); /* loading layer 0 reports what is missing */
}

static struct layer_spec decoder_layer(const struct dims *d, int i) {
    return (struct layer_spec){.mask = MASK_CAUSAL, .rope = d->rotated > 0, .cross = d->retro_layer[i]};
}

/* Bidirectional, no rotary positions (spec 4.4); layer 0 also reads the decoder's chunk (spec 6). */
static struct layer_spec encoder_layer(const struct dims *d, int j) {
    return (struct layer_spec){.mask = MASK_NONE, .cross = j == 0, .cross_residual_normed = d->encoder_residual_normed};
}

/* Transformer Engine leaves opaque state blobs beside the weights. */
static bool ignores(const char *name) {
    const char *suffix = "._extra_state";
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

const struct family family_retro = {
    .name = "retro",
    .read_dims = retro_read_dims,
    .inspect = retro_inspect,
    .decoder_layer = decoder_layer,
    .encoder_layer = encoder_layer,
    .outer = &outer,
    .names = names,
    .n_names = ARRAY_COUNT(names),
    .ignores = ignores,
};

const struct family family_gpt = {
    .name = "gpt",
    .read_dims = gpt_read_dims,
    .inspect = gpt_inspect,
    .decoder_layer = decoder_layer,
    .outer = &outer,
    .names = names,
    .n_names = ARRAY_COUNT(names),
    .ignores = ignores,
};
