/* retro/families/huggingface.c: keys of config.json that Hugging Face's families share. See
 * huggingface.h. */
#include "retro/families/huggingface.h"

#include <math.h>
#include <string.h>

const struct json_choice huggingface_activations[] = {{"gelu", ACTIVATION_GELU_ERF},
                                                      {"gelu_new", ACTIVATION_GELU_TANH},
                                                      {"gelu_fast", ACTIVATION_GELU_TANH},
                                                      {"gelu_accurate", ACTIVATION_GELU_TANH},
                                                      {"gelu_python", ACTIVATION_GELU_ERF},
                                                      {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                                      {"quick_gelu", ACTIVATION_QUICK_GELU},
                                                      {"relu", ACTIVATION_RELU},
                                                      {"relu2", ACTIVATION_RELU_SQUARED},
                                                      {"silu", ACTIVATION_SILU},
                                                      {"swish", ACTIVATION_SILU},
                                                      {NULL, 0}};

enum status huggingface_parse_eos(struct json_reader *reader, const struct json *value,
                                  void *object) {
    static const struct json_field id = {.type = JSON_INT, .min = -1, .max = LIMIT_IDS};
    static const struct json_field ids = {
        .type = JSON_LIST, .item = &id, .item_size = sizeof(int), .or_one = true};
    struct model_spec *spec = object;
    struct json_list list = {0};
    enum status status = json_field_read(reader, &ids, value, &list);
    const int *end = list.items;
    for (size_t i = 0; i < list.count && status == STATUS_OK; i++)
        if (end[i] >= 0) status = end_ids_add(&spec->ends, end[i], reader->e);
    if (status == STATUS_OK && spec->ends.n > 0) spec->eod = spec->ends.ids[0];
    json_list_free(&ids, &list);
    return status;
}

/* A number, and Infinity as transformers writes it: bare, which is a text by now, or tagged. */
static bool parse_step(const struct json *value, float *out) {
    const struct json *tagged = json_member(value, "__float__");
    if (tagged) value = tagged;
    *out = json_text_is(value, "Infinity") ? INFINITY : (float)json_double(value);
    return json_text_is(value, "Infinity") || (json_is_numeric(value) && *out >= 0);
}

enum status huggingface_parse_steps(struct json_reader *reader, const struct json *value,
                                    void *object) {
    struct model_spec *spec = object;
    struct state_dims *state = &spec->stacks[STACK_DECODER].state;
    bool two = json_is_list(value) && json_count(value) == 2;
    if (two && parse_step(json_item(value, 0), &state->least) &&
        parse_step(json_item(value, 1), &state->most) && state->least <= state->most)
        return STATUS_OK;
    return error_set(reader->e, STATUS_INVALID,
                     "config.json: \"time_step_limit\" must be two numbers, the least step and the "
                     "most, which may be Infinity");
}

enum status huggingface_derive(struct model_spec *spec, struct dims *dims, struct error *e) {
    if (dims->head_dim == 0 && dims->hidden % dims->heads != 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: hidden size %d is not a multiple of %d attention heads",
                         dims->hidden, dims->heads);
    if (dims->head_dim == 0) dims->head_dim = dims->hidden / dims->heads;
    if (dims->kv_heads == 0) dims->kv_heads = dims->heads;
    dims->score_scale = 1.0f / sqrtf((float)dims->head_dim);
    spec->padded_vocab = spec->vocab;
    if (spec->eod >= spec->vocab) spec->eod = -1;
    return STATUS_OK;
}

void huggingface_find_output(const struct weights *weights, struct model_spec *spec) {
    if (weights_find(weights, "lm_head.weight") || weights_find(weights, "embed_out.weight"))
        spec->tied = false;
}

enum status huggingface_derive_encoder(struct model_spec *spec, struct error *e) {
    struct dims *dims = &spec->stacks[STACK_ENCODER];
    if (huggingface_derive(spec, dims, e)) return e->status;
    dims_set_bias(dims, true);
    dims->norm = NORM_LAYER;
    spec->learned_positions = true;
    spec->tied = true;
    return spec_check(spec, e);
}

bool huggingface_ignores_heads(const char *name) {
    static const char *const heads[] = {
        "pooler.",         "cls.",  "lm_head.", "vocab_",          "classifier.",
        "pre_classifier.", "head.", "decoder.", "lm_predictions.", "mask_predictions."};
    static const char *const models[] = {
        "", "bert.", "roberta.", "mpnet.", "distilbert.", "nomic_bert.", "deberta."};
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        size_t n = strlen(models[i]);
        if (strncmp(name, models[i], n) != 0) continue;
        const char *rest = name + n;
        for (size_t j = 0; j < ARRAY_COUNT(heads); j++)
            if (strncmp(rest, heads[j], strlen(heads[j])) == 0) return true;
        if (strcmp(rest, "embeddings.position_ids") == 0 ||
            strcmp(rest, "embeddings.token_type_ids") == 0)
            return true;
    }
    return false;
}
