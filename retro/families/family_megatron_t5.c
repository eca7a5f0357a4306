/* retro/families/family_megatron_t5.c: T5 as Megatron-Core writes it (docs/spec/t5-model.md): an
 * encoder, and a decoder that reads its output by cross attention. */
#include <string.h>

#include "retro/families/megatron.h"

static const struct json_field fields[] = {
    {"encoder_num_layers", JSON_INT, AT_ENCODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .required = true},
    {"decoder_num_layers", JSON_INT, AT_DECODER(n_layers), .min = 1, .max = MAX_LAYERS,
     .required = true},
    {"bos_token_id", JSON_INT, AT_SPEC(start), .min = 0, .max = LIMIT_IDS, .required = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_t5(const struct json *config, struct model_spec *spec, struct error *e) {
    struct dims *decoder = &spec->stacks[STACK_DECODER], *encoder = &spec->stacks[STACK_ENCODER];
    if (spec_read(config, &table, spec, e) || spec_read_megatron(config, spec, e) ||
        spec_check_id(spec, "bos_token_id", spec->start, e))
        return e->status;

    int depth = encoder->n_layers;
    decoder->final_norm = true;
    decoder->reads = EDGE_SOURCE;
    *encoder = *decoder;
    encoder->n_layers = depth;
    encoder->reads = EDGE_NONE;
    spec->output_bias = spec->tied; /* spec 2.4 */
    return spec_check(spec, e);
}

/* Megatron registers the position table and the output matrix twice; both spellings are one tensor
 * (spec 3). */
static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"embedding.word_embeddings.weight"}},
    {.place = offsetof(struct model, embedding.position),
     .names = {"embedding.position_embeddings.weight", "position_embeddings.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].relative),
     .names = {"encoder_relative_pos_emb.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].relative),
     .names = {"decoder_relative_pos_emb.relative_attention_bias.weight"}},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].final_norm),
     .names = {"encoder.final_layernorm.*"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"decoder.final_layernorm.*"}},
    {.place = offsetof(struct model, output),
     .names = {"lm_head.output_layer.*", "output_layer.*"}},
};

/* Transformer Engine's names first, then those of local specs. */
static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in),
     .names = {"self_attention.linear_qkv.layer_norm_*", "input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv),
     .part = PART_BY_HEAD,
     .names = {"self_attention.linear_qkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attention.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_cross), .names = {"pre_cross_attn_layernorm.*"}},
    {.place = offsetof(struct layer, cross_q), .names = {"cross_attention.linear_q.*"}},
    {.place = offsetof(struct layer, cross_kv),
     .part = PART_BY_HEAD,
     .names = {"cross_attention.linear_kv.*"}},
    {.place = offsetof(struct layer, cross_proj), .names = {"cross_attention.linear_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp),
     .names = {"mlp.linear_fc1.layer_norm_*", "pre_mlp_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.linear_fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.linear_fc2.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    const struct dims *dims = &spec->stacks[stack];
    bool decoder = stack == STACK_DECODER;
    (void)i;
    return (struct layer_spec){.mask = decoder ? MASK_CAUSAL : MASK_NONE,
                               .rope = dims->rotated > 0,
                               .relative = dims->buckets > 0,
                               .cross = decoder};
}

const struct family family_megatron_t5 = {
    .architecture = "t5",
    .read = read_t5,
    .layer = describe_layer,
    .stacks[STACK_ENCODER] = {{"encoder.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .stacks[STACK_DECODER] = {{"decoder.layers.#."}, layer_rows, ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_megatron_state,
};
