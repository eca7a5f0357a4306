/* retro/families/huggingface.c: keys of config.json that Hugging Face's families share. See huggingface.h. */
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

enum status huggingface_parse_eos(struct json_reader *r, const struct json *value, void *object) {
    static const struct json_field id = {.type = JSON_INT, .min = -1, .max = LIMIT_IDS};
    static const struct json_field ids = {.type = JSON_LIST, .item = &id, .item_size = sizeof(int), .or_one = true};
    struct model_spec *s = object;
    struct json_list list = {0};
    enum status status = json_field_read(r, &ids, value, &list);
    const int *end = list.items;
    for (size_t i = 0; i < list.count && status == STATUS_OK; i++)
        if (end[i] >= 0) status = end_ids_add(&s->ends, end[i], r->e);
    if (status == STATUS_OK && s->ends.n > 0) s->eod = s->ends.ids[0];
    json_list_free(&ids, &list);
    return status;
}

enum status huggingface_derive(struct model_spec *s, struct dims *d, struct error *e) {
    if (d->head_dim == 0 && d->hidden % d->heads != 0)
        return error_set(e, STATUS_INVALID, "config.json: hidden size %d is not a multiple of %d attention heads",
                         d->hidden, d->heads);
    if (d->head_dim == 0) d->head_dim = d->hidden / d->heads;
    if (d->kv_heads == 0) d->kv_heads = d->heads;
    d->score_scale = 1.0f / sqrtf((float)d->head_dim);
    s->padded_vocab = s->vocab;
    if (s->eod >= s->vocab) s->eod = -1;
    return STATUS_OK;
}

void huggingface_find_output(const struct weights *w, struct model_spec *s) {
    if (weights_find(w, "lm_head.weight") || weights_find(w, "embed_out.weight")) s->tied = false;
}

enum status huggingface_derive_encoder(struct model_spec *s, struct error *e) {
    struct dims *d = &s->stacks[STACK_ENCODER];
    if (huggingface_derive(s, d, e)) return e->status;
    dims_set_bias(d, true);
    d->norm = NORM_LAYER;
    s->learned_positions = true;
    s->tied = true;
    return spec_check(s, e);
}

bool huggingface_ignores_heads(const char *name) {
    static const char *const heads[] = {"pooler.", "cls.", "lm_head.", "vocab_", "classifier.", "pre_classifier."};
    static const char *const models[] = {"", "bert.", "roberta.", "mpnet.", "distilbert."};
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        size_t n = strlen(models[i]);
        if (strncmp(name, models[i], n) != 0) continue;
        const char *rest = name + n;
        for (size_t j = 0; j < ARRAY_COUNT(heads); j++)
            if (strncmp(rest, heads[j], strlen(heads[j])) == 0) return true;
        if (strcmp(rest, "embeddings.position_ids") == 0 || strcmp(rest, "embeddings.token_type_ids") == 0) return true;
    }
    return false;
}
