/* retro/model/family_t5.c: T5 v1.0, v1.1 and Flan-T5 as Hugging Face stores them: relative positions, RMS norms without
 * bias, scores that are not scaled, no biases; v1.0 ties the output matrix and scales the rows before it. */
#include <math.h>
#include <string.h>

#include "retro/model/model_private.h"

static enum status read_mlp(const struct json *config, struct dims *d, struct error *e) {
    static const char *const names[] = {"relu", "gated-gelu", "gated-silu", "gelu", "gated-relu", "silu", NULL};
    static const struct {
        enum activation activation;
        bool gated;
    } kinds[] = {{ACTIVATION_RELU, false},     {ACTIVATION_GELU_TANH, true}, {ACTIVATION_SILU, true},
                 {ACTIVATION_GELU_ERF, false}, {ACTIVATION_RELU, true},      {ACTIVATION_SILU, false}};
    int kind;
    if (dims_choice(config, "feed_forward_proj", names, 0, &kind, e)) return e->status;
    d->activation = kinds[kind].activation;
    d->gated = kinds[kind].gated;
    return STATUS_OK;
}

/* transformers 5 writes scale_decoder_outputs; before, a tied output matrix meant scaled rows. */
static enum status read_output(const struct json *config, struct model_spec *s, struct error *e) {
    bool scaled;
    if (dims_bool_or(config, "tie_word_embeddings", true, &s->tied, e) ||
        dims_bool_or(config, "scale_decoder_outputs", s->tied, &scaled, e))
        return e->status;
    if (scaled) s->logit_scale = 1.0f / sqrtf((float)s->stacks[STACK_DECODER].hidden);
    return STATUS_OK;
}

static enum status read_t5(const struct json *config, struct model_spec *s, struct error *e) {
    struct dims *decoder = &s->stacks[STACK_DECODER], *encoder = &s->stacks[STACK_ENCODER];
    int depth;
    if (dims_int(config, "num_layers", (struct range){1, MAX_LAYERS}, &depth, e) ||
        dims_int_or(config, "num_decoder_layers", (struct range){1, MAX_LAYERS}, depth, &decoder->n_layers, e) ||
        dims_int(config, "d_model", (struct range){1, 1 << 20}, &decoder->hidden, e) ||
        dims_int(config, "num_heads", (struct range){1, 1 << 14}, &decoder->heads, e) ||
        dims_int(config, "d_kv", (struct range){1, 1 << 14}, &decoder->head_dim, e) ||
        dims_int(config, "d_ff", (struct range){1, 1 << 22}, &decoder->ffn, e) ||
        dims_int(config, "vocab_size", (struct range){1, 1 << 24}, &s->vocab, e) ||
        dims_int_or(config, "eos_token_id", (struct range){0, s->vocab - 1}, 1, &s->eod, e) ||
        dims_int_or(config, "decoder_start_token_id", (struct range){0, s->vocab - 1}, 0, &s->start, e) ||
        dims_float_or(config, "layer_norm_epsilon", 1e-6f, &decoder->epsilon, e) || read_mlp(config, decoder, e) ||
        dims_relative(config, decoder, e) || read_output(config, s, e))
        return e->status;
    s->padded_vocab = s->vocab;
    decoder->kv_heads = decoder->heads;
    decoder->norm = NORM_RMS;
    decoder->score_scale = 1;
    decoder->final_norm = true;
    decoder->reads = EDGE_SOURCE;
    *encoder = *decoder;
    encoder->n_layers = depth;
    encoder->reads = EDGE_NONE;
    return spec_check(s, e);
}

/* A stored output matrix is the output matrix, whatever config.json says. */
static void inspect_t5(const struct weights *w, struct model_spec *s) {
    s->tied = weights_find(w, "lm_head.weight") == NULL;
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].relative),
     .names = {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].relative),
     .names = {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm), .names = {"encoder.final_layer_norm.*"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm), .names = {"decoder.final_layer_norm.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

/* wi_0 is activated. A plain MLP has wi alone; its second part is not there. */
static const struct tensor_row encoder_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"layer.0.layer_norm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"layer.0.SelfAttention.q.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"layer.0.SelfAttention.k.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"layer.0.SelfAttention.v.*"}},
    {.place = offsetof(struct layer, proj), .names = {"layer.0.SelfAttention.o.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"layer.1.layer_norm.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_GATE,
     .names = {"layer.1.DenseReluDense.wi_0.*", "layer.1.DenseReluDense.wi.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_UP, .names = {"layer.1.DenseReluDense.wi_1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"layer.1.DenseReluDense.wo.*"}},
};

static const struct tensor_row decoder_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"layer.0.layer_norm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"layer.0.SelfAttention.q.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"layer.0.SelfAttention.k.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"layer.0.SelfAttention.v.*"}},
    {.place = offsetof(struct layer, proj), .names = {"layer.0.SelfAttention.o.*"}},
    {.place = offsetof(struct layer, norm_cross), .names = {"layer.1.layer_norm.*"}},
    {.place = offsetof(struct layer, cross_q), .names = {"layer.1.EncDecAttention.q.*"}},
    {.place = offsetof(struct layer, cross_kv), .part = PART_CROSS_K, .names = {"layer.1.EncDecAttention.k.*"}},
    {.place = offsetof(struct layer, cross_kv), .part = PART_CROSS_V, .names = {"layer.1.EncDecAttention.v.*"}},
    {.place = offsetof(struct layer, cross_proj), .names = {"layer.1.EncDecAttention.o.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"layer.2.layer_norm.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_GATE,
     .names = {"layer.2.DenseReluDense.wi_0.*", "layer.2.DenseReluDense.wi.*"}},
    {.place = offsetof(struct layer, fc1), .part = PART_UP, .names = {"layer.2.DenseReluDense.wi_1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"layer.2.DenseReluDense.wo.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *s, enum stack_id stack, int i) {
    bool decoder = stack == STACK_DECODER;
    (void)s, (void)i;
    return (struct layer_spec){.mask = decoder ? MASK_CAUSAL : MASK_NONE, .relative = true, .cross = decoder};
}

/* Old checkpoints hold a relative table in the cross attention of the first block, which nothing reads. */
static bool ignore_unread(const char *name) {
    return strcmp(name, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight") == 0;
}

const struct family family_t5 = {
    .model_type = "t5",
    .read = read_t5,
    .inspect = inspect_t5,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {"encoder.block.#.", encoder_rows, ARRAY_COUNT(encoder_rows)},
    .stacks[STACK_DECODER] = {"decoder.block.#.", decoder_rows, ARRAY_COUNT(decoder_rows)},
    .outer = {NULL, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_unread,
};
