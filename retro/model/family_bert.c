/* retro/model/family_bert.c: BERT as Hugging Face stores it: norm after each residual sum, token types, a norm on the
 * embeddings, no causal mask. The embedder's model; it has no output matrix. */
#include <string.h>

#include "retro/model/spec.h"

static enum status bert_read_dims(const json_t *config, struct dims *d, struct error *e) {
    static const char *const activations[] = {"gelu", "gelu_new", "relu", "silu", NULL};
    static const enum activation meaning[] = {ACTIVATION_GELU_ERF, ACTIVATION_GELU_TANH, ACTIVATION_RELU,
                                              ACTIVATION_SILU};
    static const char *const positions[] = {"absolute", NULL};
    int activation, position;
    if (dims_int(config, "num_hidden_layers", (struct range){1, MAX_LAYERS}, &d->n_layers, e) ||
        dims_int(config, "hidden_size", (struct range){1, 1 << 20}, &d->hidden, e) ||
        dims_int(config, "num_attention_heads", (struct range){1, 1 << 14}, &d->heads, e) ||
        dims_int(config, "intermediate_size", (struct range){1, 1 << 22}, &d->ffn, e) ||
        dims_int(config, "vocab_size", (struct range){1, 1 << 24}, &d->vocab, e) ||
        dims_int(config, "max_position_embeddings", (struct range){1, 1 << 24}, &d->max_positions, e) ||
        dims_int_or(config, "type_vocab_size", (struct range){1, 1 << 16}, 2, &d->type_vocab, e) ||
        dims_float_or(config, "layer_norm_eps", 1e-12f, &d->epsilon, e) ||
        dims_choice(config, "position_embedding_type", positions, 0, &position, e) ||
        dims_choice(config, "hidden_act", activations, -1, &activation, e))
        return e->status;
    if (d->hidden % d->heads != 0)
        return error_set(e, STATUS_INVALID, "config.json: hidden_size %d is not a multiple of %d heads", d->hidden,
                         d->heads);
    d->first_retro_layer = d->eod = -1;
    d->kv_heads = d->heads;
    d->head_dim = d->hidden / d->heads;
    d->padded_vocab = d->vocab;
    d->activation = meaning[activation];
    d->learned_positions = d->bias = d->tied = true;
    d->norm = NORM_LAYER;
    return dims_check(d, e);
}

static const struct outer_names outer = {
    .word = "embeddings.word_embeddings.weight",
    .position = "embeddings.position_embeddings.weight",
    .type = "embeddings.token_type_embeddings.weight",
    .embed_gamma = "embeddings.LayerNorm.weight",
    .embed_beta = "embeddings.LayerNorm.bias",
    .decoder_layer = "encoder.layer.%d.",
};

static const struct weight_name names[] = {
    {SLOT_QKV, PART_Q, {"attention.self.query.weight"}},
    {SLOT_QKV, PART_K, {"attention.self.key.weight"}},
    {SLOT_QKV, PART_V, {"attention.self.value.weight"}},
    {SLOT_QKV_BIAS, PART_Q, {"attention.self.query.bias"}},
    {SLOT_QKV_BIAS, PART_K, {"attention.self.key.bias"}},
    {SLOT_QKV_BIAS, PART_V, {"attention.self.value.bias"}},
    {SLOT_PROJ, PART_WHOLE, {"attention.output.dense.weight"}},
    {SLOT_PROJ_BIAS, PART_WHOLE, {"attention.output.dense.bias"}},
    {SLOT_NORM_IN_GAMMA, PART_WHOLE, {"attention.output.LayerNorm.weight"}},
    {SLOT_NORM_IN_BETA, PART_WHOLE, {"attention.output.LayerNorm.bias"}},
    {SLOT_FC1, PART_WHOLE, {"intermediate.dense.weight"}},
    {SLOT_FC1_BIAS, PART_WHOLE, {"intermediate.dense.bias"}},
    {SLOT_FC2, PART_WHOLE, {"output.dense.weight"}},
    {SLOT_FC2_BIAS, PART_WHOLE, {"output.dense.bias"}},
    {SLOT_NORM_MLP_GAMMA, PART_WHOLE, {"output.LayerNorm.weight"}},
    {SLOT_NORM_MLP_BETA, PART_WHOLE, {"output.LayerNorm.bias"}},
};

static void inspect(const struct weights *w, struct dims *d) {
    (void)w;
    (void)d; /* config.json tells everything */
}

static struct layer_spec layer(const struct dims *d, int i) {
    (void)d;
    (void)i;
    return (struct layer_spec){.post_norm = true, .mask = MASK_NONE};
}

/* The pooler serves classification; position_ids is a constant 0, 1, 2, ... */
static bool ignores(const char *name) {
    return strncmp(name, "pooler.", 7) == 0 || strcmp(name, "embeddings.position_ids") == 0;
}

const struct family family_bert = {
    .name = "bert",
    .read_dims = bert_read_dims,
    .inspect = inspect,
    .decoder_layer = layer,
    .outer = &outer,
    .names = names,
    .n_names = ARRAY_COUNT(names),
    .ignores = ignores,
};
