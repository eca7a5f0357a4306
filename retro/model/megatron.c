/* retro/model/megatron.c: the keys of config.json that describe one stack in Megatron's words; GPT, Retro and T5 share
 * them (docs/model-format.md, docs/spec/retro-model.md 1). */
#include "retro/model/megatron.h"

#include <math.h>
#include <string.h>

static enum status read_positions(const struct json *config, bool relative, struct model_spec *s, struct dims *d,
                                  struct error *e) {
    static const char *const kinds[] = {"learned_absolute", "rope", "none", "relative", NULL};
    static const char *const absolute[] = {"learned_absolute", "rope", "none", NULL};
    enum { LEARNED, ROPE, NONE, RELATIVE };
    int kind;
    float percent;
    if (dims_choice(config, "position_embedding_type", relative ? kinds : absolute, -1, &kind, e) ||
        dims_int(config, "max_position_embeddings", (struct range){1, 1 << 24}, &s->max_positions, e) ||
        dims_float_or(config, "rotary_percent", 1.0f, &percent, e) ||
        dims_float_or(config, "rotary_base", 10000.0f, &d->rope_base, e) ||
        dims_bool_or(config, "rotary_interleaved", false, &d->rope_interleaved, e))
        return e->status;
    if (!(percent > 0 && percent <= 1) || !(d->rope_base > 0))
        return error_set(e, STATUS_INVALID, "config.json: rotary_percent must be in (0, 1] and rotary_base positive");

    s->learned_positions = kind == LEARNED;
    if (kind == ROPE) d->rotated = percent >= 1 ? d->head_dim : (int)((float)d->head_dim * percent);
    if (kind != RELATIVE) return STATUS_OK;
    return dims_relative(config, d, e);
}

static enum status read_mlp(const struct json *config, struct dims *d, struct error *e) {
    static const struct {
        enum activation activation;
        bool gated;
    } kinds[] = {{ACTIVATION_GELU_TANH, false},    {ACTIVATION_GELU_ERF, false},   {ACTIVATION_SILU, true},
                 {ACTIVATION_GELU_TANH, true},     {ACTIVATION_SILU, false},       {ACTIVATION_RELU, false},
                 {ACTIVATION_RELU_SQUARED, false}, {ACTIVATION_QUICK_GELU, false}, {ACTIVATION_GELU_TANH, true},
                 {ACTIVATION_GELU_ERF, true}};
    static const char *const names[] = {"gelu_tanh",    "gelu_erf",   "swiglu",     "geglu",     "silu", "relu",
                                        "squared_relu", "quick_gelu", "geglu_tanh", "geglu_erf", NULL};
    int kind;
    if (dims_choice(config, "activation", names, -1, &kind, e)) return e->status;
    d->activation = kinds[kind].activation;
    d->gated = kinds[kind].gated;
    return STATUS_OK;
}

static enum status read_norm(const struct json *config, struct dims *d, struct error *e) {
    static const char *const kinds[] = {"LayerNorm", "RMSNorm", NULL};
    int kind;
    if (dims_choice(config, "normalization", kinds, 0, &kind, e) ||
        dims_float_or(config, "layernorm_epsilon", 1e-5f, &d->epsilon, e) ||
        dims_bool_or(config, "layernorm_zero_centered_gamma", false, &d->zero_centered_gamma, e))
        return e->status;
    d->norm = kind == 0 ? NORM_LAYER : NORM_RMS;
    return STATUS_OK;
}

enum status dims_megatron(const struct json *config, bool relative, struct model_spec *s, struct dims *d,
                          struct error *e) {
    if (dims_int(config, "hidden_size", (struct range){1, 1 << 20}, &d->hidden, e) ||
        dims_int(config, "num_attention_heads", (struct range){1, 1 << 14}, &d->heads, e) ||
        dims_int_or(config, "num_query_groups", (struct range){1, 1 << 14}, d->heads, &d->kv_heads, e) ||
        dims_int_or(config, "kv_channels", (struct range){1, 1 << 14}, max_int(1, d->hidden / d->heads), &d->head_dim,
                    e) ||
        dims_int_or(config, "ffn_hidden_size", (struct range){1, 1 << 22}, 4 * d->hidden, &d->ffn, e) ||
        dims_int(config, "vocab_size", (struct range){1, 1 << 24}, &s->vocab, e) ||
        dims_int_or(config, "padded_vocab_size", (struct range){1, 1 << 24}, s->vocab, &s->padded_vocab, e) ||
        dims_bool_or(config, "add_bias_linear", true, &d->bias, e) ||
        dims_bool_or(config, "tie_word_embeddings", true, &s->tied, e) ||
        dims_int_or(config, "eod_token_id", (struct range){0, s->vocab - 1}, -1, &s->eod, e) ||
        read_positions(config, relative, s, d, e) || read_mlp(config, d, e) || read_norm(config, d, e))
        return e->status;
    d->score_scale = 1.0f / sqrtf((float)d->head_dim);
    return STATUS_OK;
}

const struct tensor_row megatron_outer_rows[MEGATRON_OUTER_ROWS] = {
    {.place = offsetof(struct model, embedding.word), .names = {"embedding.word_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.position), .names = {"embedding.position_embeddings.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm), .names = {"decoder.final_layernorm.*"}},
    {.place = offsetof(struct model, output), .names = {"output_layer.*"}},
};

bool ignore_megatron_state(const char *name) {
    const char *suffix = "._extra_state";
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}
