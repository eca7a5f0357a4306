/* retro/model/family_bert.c: BERT as Hugging Face stores it: norm after each residual sum, token types, a norm on the
 * embeddings, no causal mask. It is an encoder alone: the embedder's model, without an output matrix. */
#include <math.h>
#include <string.h>

#include "retro/model/model_private.h"

static enum status read_bert(const struct json *config, struct model_spec *s, struct error *e) {
    static const char *const activations[] = {"gelu", "gelu_new", "relu", "silu", NULL};
    static const enum activation meaning[] = {ACTIVATION_GELU_ERF, ACTIVATION_GELU_TANH, ACTIVATION_RELU,
                                              ACTIVATION_SILU};
    static const char *const positions[] = {"absolute", NULL};
    struct dims *d = &s->stacks[STACK_ENCODER];
    int activation, position;
    if (dims_int(config, "num_hidden_layers", (struct range){1, MAX_LAYERS}, &d->n_layers, e) ||
        dims_int(config, "hidden_size", (struct range){1, 1 << 20}, &d->hidden, e) ||
        dims_int(config, "num_attention_heads", (struct range){1, 1 << 14}, &d->heads, e) ||
        dims_int(config, "intermediate_size", (struct range){1, 1 << 22}, &d->ffn, e) ||
        dims_int(config, "vocab_size", (struct range){1, 1 << 24}, &s->vocab, e) ||
        dims_int(config, "max_position_embeddings", (struct range){1, 1 << 24}, &s->max_positions, e) ||
        dims_int_or(config, "type_vocab_size", (struct range){1, 1 << 16}, 2, &s->type_vocab, e) ||
        dims_float_or(config, "layer_norm_eps", 1e-12f, &d->epsilon, e) ||
        dims_choice(config, "position_embedding_type", positions, 0, &position, e) ||
        dims_choice(config, "hidden_act", activations, -1, &activation, e))
        return e->status;
    if (d->hidden % d->heads != 0)
        return error_set(e, STATUS_INVALID, "config.json: hidden_size %d is not a multiple of %d heads", d->hidden,
                         d->heads);

    d->kv_heads = d->heads;
    d->head_dim = d->hidden / d->heads;
    d->score_scale = 1.0f / sqrtf((float)d->head_dim);
    d->activation = meaning[activation];
    d->bias = true;
    d->norm = NORM_LAYER;
    s->padded_vocab = s->vocab;
    s->learned_positions = true;
    s->tied = true;
    return spec_check(s, e);
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word), .names = {"embeddings.word_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.position), .names = {"embeddings.position_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.type), .names = {"embeddings.token_type_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.norm), .names = {"embeddings.LayerNorm.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"attention.self.query.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.self.key.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"attention.self.value.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.output.dense.*"}},
    {.place = offsetof(struct layer, norm_in), .names = {"attention.output.LayerNorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"intermediate.dense.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"output.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"output.LayerNorm.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *s, enum stack_id stack, int i) {
    (void)s, (void)stack, (void)i;
    return (struct layer_spec){.post_norm = true, .mask = MASK_NONE};
}

/* The pooler serves classification; position_ids is a constant 0, 1, 2, ... */
static bool ignores_tensor(const char *name) {
    return strncmp(name, "pooler.", 7) == 0 || strcmp(name, "embeddings.position_ids") == 0;
}

const struct family family_bert = {
    .architecture = "bert",
    .model_type = "bert",
    .read = read_bert,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {"encoder.layer.#.", layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {NULL, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignores_tensor,
};
