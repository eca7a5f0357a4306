/* retro/families/family_deberta.c: DeBERTa-v2 and v3 as Hugging Face stores them (He et al. 2021,
 * arXiv 2006.03654 and 2111.09543): BERT whose tokens have no positions, but distances between each
 * other, which add to the scores of attention by the query, by the key, or by both. An encoder
 * alone. */
#include "retro/families/huggingface.h"

#include <math.h>
#include <string.h>

/* The spec, and keys that have no place in it. */
struct deberta_keys {
    struct model_spec spec;
    bool relative, shares, biased;
    int buckets, farthest, types, kernel, embedding;
    const struct json *kinds;
    char *norm;
};
#define AT_KEYS(member) JSON_AT(struct deberta_keys, member)

static const struct json_field fields[] = {
    HUGGINGFACE_ENCODER_SIZES,
    {"max_position_embeddings", JSON_INT, AT_SPEC(max_positions), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 512},
    {"layer_norm_eps", JSON_FLOAT, AT_ENCODER(epsilon), .fallback = 1e-7},
    {"hidden_act", JSON_CHOICE, AT_ENCODER(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {"relative_attention", JSON_BOOL, AT_KEYS(relative)},
    {"share_att_key", JSON_BOOL, AT_KEYS(shares)},
    {"position_biased_input", JSON_BOOL, AT_KEYS(biased), .fallback = true},
    {"position_buckets", JSON_INT, AT_KEYS(buckets), .min = -1, .max = LIMIT_POSITIONS,
     .fallback = -1},
    {"max_relative_positions", JSON_INT, AT_KEYS(farthest), .min = -1, .max = LIMIT_POSITIONS,
     .fallback = -1},
    {"type_vocab_size", JSON_INT, AT_KEYS(types), .min = 0, .max = LIMIT_IDS},
    {"conv_kernel_size", JSON_INT, AT_KEYS(kernel), .min = 0, .max = LIMIT_POSITIONS},
    {"embedding_size", JSON_INT, AT_KEYS(embedding), .min = 0, .max = LIMIT_WIDTH},
    {"pos_att_type", JSON_RAW, AT_KEYS(kinds)},
    {"norm_rel_ebd", JSON_TEXT, AT_KEYS(norm), .text = "none"},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Whether "c2p|p2c", or a list of the two in any order, has both; what a model lacks of them would
 * change its scale. */
static bool has_both(const struct json *kinds) {
    bool query = false, key = false;
    const char *text = json_word(kinds);
    if (text) return strcmp(text, "c2p|p2c") == 0 || strcmp(text, "p2c|c2p") == 0;
    for (size_t i = 0; json_is_list(kinds) && i < json_count(kinds); i++) {
        query = query || json_text_is(json_item(kinds, i), "c2p");
        key = key || json_text_is(json_item(kinds, i), "p2c");
    }
    return query && key && json_count(kinds) == 2;
}

static enum status refuse(const char *key, const char *wanted, struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"%s\" of a deberta-v2 must be %s, as in the published models",
                     key, wanted);
}

static enum status check_keys(const struct deberta_keys *keys, struct error *e) {
    int hidden = keys->spec.stacks[STACK_ENCODER].hidden;
    if (!keys->relative) return refuse("relative_attention", "true", e);
    if (!keys->shares) return refuse("share_att_key", "true", e);
    if (!has_both(keys->kinds)) return refuse("pos_att_type", "\"p2c|c2p\"", e);
    if (keys->biased) return refuse("position_biased_input", "false", e);
    if (keys->types > 0) return refuse("type_vocab_size", "0", e);
    if (keys->kernel > 0) return refuse("conv_kernel_size", "0", e);
    if (keys->embedding > 0 && keys->embedding != hidden)
        return refuse("embedding_size", "hidden_size", e);
    if (keys->buckets > 0 && keys->buckets < 4) return refuse("position_buckets", "4 or more", e);
    if (strcmp(keys->norm, "none") != 0 && strcmp(keys->norm, "layer_norm") != 0)
        return refuse("norm_rel_ebd", "\"layer_norm\" or \"none\"", e);
    return STATUS_OK;
}

/* Without buckets the table tells all distances apart that it has rows for. */
static enum status read_distances(const struct deberta_keys *keys, struct distance_dims *out,
                                  struct error *e) {
    int farthest = keys->farthest > 0 ? keys->farthest : keys->spec.max_positions;
    *out = (struct distance_dims){.span = keys->buckets > 0 ? keys->buckets : farthest,
                                  .farthest = farthest,
                                  .buckets = keys->buckets > 0,
                                  .normed = strcmp(keys->norm, "layer_norm") == 0};
    if (!out->buckets || farthest - 1 > out->span / 2) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: %d distances are too few for \"position_buckets\" %d", farthest,
                     out->span);
}

static enum status read_deberta(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct deberta_keys keys = {.spec = *spec};
    struct dims *dims = &keys.spec.stacks[STACK_ENCODER];
    enum status status = spec_read(config, &table, &keys, e);
    if (status == STATUS_OK) status = check_keys(&keys, e);
    if (status == STATUS_OK) status = read_distances(&keys, &dims->distances, e);
    json_table_free(&table, &keys);
    if (status || huggingface_derive_encoder(&keys.spec, e)) return e->status;
    keys.spec.learned_positions = false;
    dims->score_scale = 1.0f / sqrtf(3.0f * (float)dims->head_dim); /* of three sums */
    *spec = keys.spec;
    return spec_check(spec, e);
}

/* A checkpoint of the encoder alone, or of a model around it. */
#define OUTER_NAMES(name) \
    { name, "deberta." name }

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = OUTER_NAMES("embeddings.word_embeddings.weight")},
    {.place = offsetof(struct model, embedding.norm),
     .names = OUTER_NAMES("embeddings.LayerNorm.*")},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].distances),
     .names = OUTER_NAMES("encoder.rel_embeddings.weight")},
    {.place = offsetof(struct model, stacks[STACK_ENCODER].norm_distances),
     .names = OUTER_NAMES("encoder.LayerNorm.*")},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, qkv),
     .part = PART_Q,
     .names = {"attention.self.query_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"attention.self.key_proj.*"}},
    {.place = offsetof(struct layer, qkv),
     .part = PART_V,
     .names = {"attention.self.value_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.output.dense.*"}},
    {.place = offsetof(struct layer, norm_in), .names = {"attention.output.LayerNorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"intermediate.dense.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"output.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"output.LayerNorm.*"}},
};

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.post_norm = true, .mask = MASK_NONE};
}

const struct family family_deberta_v2 = {
    HUGGINGFACE_ENCODER("deberta-v2", read_deberta, describe_layer, "deberta.", "encoder.layer.#.",
                        layer_rows, outer_rows)};
