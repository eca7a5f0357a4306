/* retro/families/family_hunyuan.c: the models of Hunyuan as Hugging Face stores them: as Llama,
 * with norms of each head's queries and keys behind the rotation; the larger ones with experts in
 * every layer, beside an MLP of the same size that all rows use. */
#include "retro/families/huggingface.h"

/* Parts of Hunyuan's models that transformers does not know either. */
static const struct json_field fields[] = {
    {.name = "use_cla", .type = JSON_MUST_BE_FALSE},
    {.name = "position_embedding_xdrope", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_keys(const struct json *config, struct huggingface_decoder *decoder,
                             struct error *e) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    decoder->rope = (struct rope_rules){.base = 10000, .alpha = true};
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, decoder, e) || spec_read(config, &table, decoder, e))
        return e->status;
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_HEAD;
    dims->qk_norm_last = true;
    decoder->spec.window = 0;
    return STATUS_OK;
}

static enum status read_dense(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    if (read_keys(config, &decoder, e)) return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

/* The decoder's keys, and those that are a number for all layers or a list of one for each. */
struct hunyuan_keys {
    struct huggingface_decoder decoder;
    const struct json *used, *expert_ffn, *shared;
};

static const struct json_field moe_fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 1},
    {"moe_topk|num_experts_per_tok", JSON_RAW, JSON_AT(struct hunyuan_keys, used)},
    {"moe_intermediate_size", JSON_RAW, JSON_AT(struct hunyuan_keys, expert_ffn)},
    {"num_shared_expert", JSON_RAW, JSON_AT(struct hunyuan_keys, shared)},
    {"moe_layer_num_skipped", JSON_NEUTRAL, .min = 0},
};
static const struct json_table moe_table = JSON_TABLE(moe_fields, .open = true);

/* The number that a key has for each layer, between 1 and `most`; what *out is where it is absent.
 */
static enum status read_alike(const struct json *value, const char *key, int most, int *out,
                              struct error *e) {
    bool list = json_is_list(value);
    size_t n = json_is_absent(value) ? 0 : list ? json_count(value) : 1;
    for (size_t i = 0; i < n; i++) {
        const struct json *item = list ? json_item(value, i) : value;
        int64_t number = json_int(item);
        if (number < 1 || number > most)
            return error_set(e, STATUS_INVALID, "config.json: \"%s\" is no number from 1 to %d",
                             key, most);
        if (i > 0 && number != *out)
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"%s\" differs between layers, which is not supported",
                             key);
        *out = (int)number;
    }
    return STATUS_OK;
}

static enum status read_moe(const struct json *config, struct model_spec *spec, struct error *e) {
    struct hunyuan_keys keys = {.decoder = {.spec = *spec}};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    int shared = 1;
    if (read_keys(config, &keys.decoder, e) || spec_read(config, &moe_table, &keys, e))
        return e->status;
    dims->experts_used = 1;
    dims->experts_renormalised = true;
    dims->expert_ffn = dims->shared_ffn = dims->ffn;
    if (read_alike(keys.used, "moe_topk", LIMIT_EXPERTS, &dims->experts_used, e) ||
        read_alike(keys.expert_ffn, "moe_intermediate_size", LIMIT_FFN, &dims->expert_ffn, e) ||
        read_alike(keys.shared, "num_shared_expert", LIMIT_EXPERTS, &shared, e))
        return e->status;
    if (dims->expert_ffn != dims->ffn || shared != 1)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"moe_intermediate_size\" is %d and \"num_shared_expert\" %d; "
            "supported are \"intermediate_size\", which is %d, and 1",
            dims->expert_ffn, shared, dims->ffn);
    *spec = keys.decoder.spec;
    return spec_check(spec, e);
}

static const struct tensor_row moe_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, router), .names = {"mlp.gate.wg.weight"}},
    HUGGINGFACE_EXPERT_PRODUCTS,
    HUGGINGFACE_SHARED_ROWS("mlp.shared_mlp"),
};

const struct family family_hunyuan_dense = {
    HUGGINGFACE_DECODER("hunyuan_v1_dense", read_dense, huggingface_layer, huggingface_layer_rows)};

const struct family family_hunyuan_moe = {
    HUGGINGFACE_DECODER("hunyuan_v1_moe", read_moe, huggingface_layer, moe_rows)};
