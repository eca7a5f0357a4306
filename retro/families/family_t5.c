/* retro/families/family_t5.c: T5 v1.0, v1.1 and Flan-T5 as Hugging Face stores them: relative
 * positions, RMS norms without bias, scores that are not scaled, no biases; v1.0 ties the output
 * matrix and scales the rows before it. */
#include <math.h>
#include <string.h>

#include "retro/families/huggingface.h"

/* The spec, and keys that have no place in it. */
struct t5_keys {
    struct model_spec spec;
    int mlp;
    int scaled; /* scale_decoder_outputs, -1 where it is absent */
};

static const struct json_choice mlp_names[] = {{"relu", ACTIVATION_RELU},
                                               {"gelu", ACTIVATION_GELU_ERF},
                                               {"silu", ACTIVATION_SILU},
                                               {"gated-gelu", ACTIVATION_GELU_TANH | MLP_GATED},
                                               {"gated-relu", ACTIVATION_RELU | MLP_GATED},
                                               {"gated-silu", ACTIVATION_SILU | MLP_GATED},
                                               {NULL, 0}};

static enum status parse_scaled(struct json_reader *reader, const struct json *value,
                                void *object) {
    static const struct json_field flag = {.type = JSON_BOOL};
    struct t5_keys *keys = object;
    bool scaled;
    if (json_field_read(reader, &flag, value, &scaled)) return reader->e->status;
    keys->scaled = scaled;
    return STATUS_OK;
}

static const struct json_field fields[] = {
    {"num_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS, .required = true},
    {"num_decoder_layers", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS},
    {"d_model", JSON_INT, AT_DECODER(hidden), .min = 1, .max = LIMIT_WIDTH, .required = true},
    {"num_heads", JSON_INT, AT_DECODER(heads), .min = 1, .max = LIMIT_HEADS, .required = true},
    {"d_kv", JSON_INT, AT_DECODER(head_dim), .min = 1, .max = LIMIT_HEADS, .required = true},
    {"d_ff", JSON_INT, AT_DECODER(ffn), .min = 1, .max = LIMIT_FFN, .required = true},
    {"vocab_size", JSON_INT, AT_SPEC(vocab), .min = 1, .max = LIMIT_IDS, .required = true},
    {"eos_token_id", JSON_INT, AT_SPEC(eod), .min = 0, .max = LIMIT_IDS, .fallback = 1},
    {"decoder_start_token_id", JSON_INT, AT_SPEC(start), .min = 0, .max = LIMIT_IDS},
    {"layer_norm_epsilon", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-6},
    {"feed_forward_proj", JSON_CHOICE, JSON_AT(struct t5_keys, mlp), .choices = mlp_names,
     .fallback = ACTIVATION_RELU},
    {"relative_attention_num_buckets", JSON_INT, AT_DECODER(buckets), .min = 4,
     .max = LIMIT_BUCKETS, .fallback = 32},
    {"relative_attention_max_distance", JSON_INT, AT_DECODER(max_distance), .min = 2,
     .max = LIMIT_BUCKETS, .fallback = 128},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied), .fallback = true},
    {.name = "scale_decoder_outputs", .type = JSON_PARSED, .parse = parse_scaled},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_t5(const struct json *config, struct model_spec *spec, struct error *e) {
    struct t5_keys keys = {.spec = *spec, .scaled = -1};
    keys.spec.start = 0;
    if (spec_read(config, &table, &keys, e)) return e->status;
    *spec = keys.spec;
    if (spec_check_id(spec, "eos_token_id", spec->eod, e) ||
        spec_check_id(spec, "decoder_start_token_id", spec->start, e))
        return e->status;

    struct dims *decoder = &spec->stacks[STACK_DECODER], *encoder = &spec->stacks[STACK_ENCODER];
    int depth = encoder->n_layers;
    if (decoder->n_layers == 0) decoder->n_layers = depth;
    dims_set_mlp(decoder, keys.mlp);
    spec->padded_vocab = spec->vocab;
    decoder->kv_heads = decoder->heads;
    decoder->norm = NORM_RMS;
    decoder->score_scale = 1;
    decoder->final_norm = true;
    decoder->reads = EDGE_SOURCE;
    *encoder = *decoder;
    encoder->n_layers = depth;
    encoder->reads = EDGE_NONE;

    /* transformers 5 writes scale_decoder_outputs; before, a tied output matrix meant scaled rows.
     */
    bool scaled = keys.scaled < 0 ? spec->tied : keys.scaled > 0;
    if (scaled) spec->logit_scale = 1.0f / sqrtf((float)decoder->hidden);
    return spec_check(spec, e);
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].relative),
     .names = {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].relative),
     .names = {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = {"encoder.final_layer_norm.*"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"decoder.final_layer_norm.*"}},
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
    {.place = offsetof(struct layer, fc1),
     .part = PART_UP,
     .names = {"layer.1.DenseReluDense.wi_1.*"}},
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
    {.place = offsetof(struct layer, cross_kv),
     .part = PART_CROSS_K,
     .names = {"layer.1.EncDecAttention.k.*"}},
    {.place = offsetof(struct layer, cross_kv),
     .part = PART_CROSS_V,
     .names = {"layer.1.EncDecAttention.v.*"}},
    {.place = offsetof(struct layer, cross_proj), .names = {"layer.1.EncDecAttention.o.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"layer.2.layer_norm.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_GATE,
     .names = {"layer.2.DenseReluDense.wi_0.*", "layer.2.DenseReluDense.wi.*"}},
    {.place = offsetof(struct layer, fc1),
     .part = PART_UP,
     .names = {"layer.2.DenseReluDense.wi_1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"layer.2.DenseReluDense.wo.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    bool decoder = stack == STACK_DECODER;
    (void)spec, (void)i;
    return (struct layer_spec){
        .mask = decoder ? MASK_CAUSAL : MASK_NONE, .relative = true, .cross = decoder};
}

/* Old checkpoints hold a relative table in the cross attention of the first block, which nothing
 * reads. */
static bool ignore_unread(const char *name) {
    return strcmp(name, "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight") ==
           0;
}

const struct family family_t5 = {
    .model_type = "t5",
    .read = read_t5,
    .inspect = huggingface_find_output,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {{"encoder.block.#."}, encoder_rows, ARRAY_COUNT(encoder_rows)},
    .stacks[STACK_DECODER] = {{"decoder.block.#."}, decoder_rows, ARRAY_COUNT(decoder_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_unread,
};
