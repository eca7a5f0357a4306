/* retro/families/family_lfm2.c: LFM2 as Hugging Face stores it: short convolutions between two
 * gates in most layers, attention with norms of heads in the others. With experts it is in
 * family_lfm2_moe.c. */
#include "retro/families/lfm2.h"

#include <math.h>

/* The keys that have no place in the spec. */
struct lfm2_dense_keys {
    struct huggingface_decoder decoder;
    bool adjusts; /* the size of the MLP is made of the one that is written */
    double multiplier;
    int multiple;
};

#define AT_KEYS(member) JSON_AT(struct lfm2_dense_keys, member)
static const struct json_field fields[] = {
    {"norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"conv_L_cache", JSON_INT, AT_DECODER(state.kernel), .min = 2, .max = DELTA_MAX_KERNEL,
     .fallback = 3},
    {"conv_bias", JSON_BOOL, AT_DECODER(state.filter_bias)},
    {"tie_embedding", JSON_BOOL, AT_SPEC(tied)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static const struct json_field dense_fields[] = {
    {"block_ff_dim", JSON_INT, AT_DECODER(ffn), .min = 1, .max = LIMIT_FFN},
    {"block_auto_adjust_ff_dim", JSON_BOOL, AT_KEYS(adjusts)},
    {"block_ffn_dim_multiplier", JSON_DOUBLE, AT_KEYS(multiplier), .min = 1e-6, .max = 1e6},
    {"block_multiple_of", JSON_INT, AT_KEYS(multiple), .min = 1, .max = LIMIT_FFN, .fallback = 256},
};
static const struct json_table dense_table = JSON_TABLE(dense_fields, .open = true);

struct huggingface_decoder lfm2_start(const struct model_spec *spec, int hidden, int ffn) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = {.base = 1e6}};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    decoder.spec.vocab = 65536;
    decoder.spec.tied = true;
    dims->n_layers = dims->heads = 32;
    dims->kv_heads = 8;
    dims->hidden = hidden;
    dims->ffn = ffn;
    dims->activation = ACTIVATION_SILU;
    return decoder;
}

/* Layers with attention by their numbers; all of them where nothing says it. */
static enum status read_attention(const struct json *listed, struct model_spec *spec,
                                  struct error *e) {
    int n = spec->stacks[STACK_DECODER].n_layers;
    if (json_is_absent(listed)) return STATUS_OK;
    if (!json_is_list(listed))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"full_attn_idxs\" must be a list of layers");
    for (int i = 0; i < n; i++) spec->mixers[i] = MIXER_CONVOLUTION;
    for (size_t j = 0; j < json_count(listed); j++) {
        const struct json *item = json_item(listed, j);
        if (!json_is_int(item))
            return error_set(e, STATUS_INVALID,
                             "config.json: \"full_attn_idxs\" has an item that is no integer");
        if (json_int(item) >= 0 && json_int(item) < n)
            spec->mixers[json_int(item)] = MIXER_ATTENTION;
    }
    return STATUS_OK;
}

enum status lfm2_read(const struct json *config, struct huggingface_decoder *decoder,
                      struct error *e) {
    static const char *const names[] = {"conv", NULL};
    struct model_spec *spec = &decoder->spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    if (huggingface_read_decoder(config, decoder, e) || spec_read(config, &table, decoder, e))
        return e->status;
    bool listed = !json_is_absent(decoder->layer_types);
    if (listed ? huggingface_read_mixers(decoder, names, MIXER_CONVOLUTION, e)
               : read_attention(json_member(config, "full_attn_idxs"), spec, e))
        return e->status;
    dims_set_bias(dims, false);
    dims->qk_norm = QK_NORM_HEAD;
    dims->state.mixer = MIXER_CONVOLUTION;
    dims->state.key_heads = dims->state.value_heads = dims->hidden;
    dims->state.value_dim = 1;
    dims->state.proj_bias = dims->state.filter_bias;
    spec->window = 0;
    return spec_check(spec, e);
}

/* Two thirds of the size, times the multiplier, up to a multiple; without a multiplier the two
 * thirds. */
static enum status adjust_ffn(const struct json *config, struct lfm2_dense_keys *keys,
                              struct error *e) {
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    const struct json *multiplier = json_member(config, "block_ffn_dim_multiplier");
    int ffn = (int)(2 * (int64_t)dims->ffn / 3);
    if (multiplier == NULL || !json_is_absent(multiplier)) {
        double wide = floor(keys->multiplier * ffn);
        ffn = (int)fmin(wide, LIMIT_FFN);
        ffn = (ffn + keys->multiple - 1) / keys->multiple * keys->multiple;
    }
    if (ffn < 1 || ffn > LIMIT_FFN)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"block_ffn_dim_multiplier\" makes MLPs of %d columns, "
                         "allowed is 1 .. %d",
                         ffn, LIMIT_FFN);
    dims->ffn = ffn;
    return STATUS_OK;
}

static enum status read_lfm2(const struct json *config, struct model_spec *spec, struct error *e) {
    struct lfm2_dense_keys keys = {
        .decoder = lfm2_start(spec, 2560, 12288), .adjusts = true, .multiplier = 1};
    if (lfm2_read(config, &keys.decoder, e) || spec_read(config, &dense_table, &keys, e))
        return e->status;
    if (keys.adjusts && adjust_ffn(config, &keys, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    LFM2_MIXER_ROWS,
    LFM2_MLP_ROWS,
};

const struct tensor_row lfm2_outer_rows[LFM2_OUTER_ROWS] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"model.embed_tokens.weight", "embed_tokens.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"model.embedding_norm.*", "embedding_norm.*"}},
    {.place = offsetof(struct model, output), .names = {"lm_head.*"}},
};

const struct family family_lfm2 = {LFM2_DECODER("lfm2", read_lfm2, layer_rows)};
