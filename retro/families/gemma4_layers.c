/* retro/families/gemma4_layers.c: see gemma4_layers.h. */
#include "retro/families/gemma4_layers.h"

#include <stdlib.h>
#include <string.h>

static const struct json_field layer_fields[] = {
    {"head_dim", JSON_INT, AT_DECODER(head_dim), .min = 1, .max = LIMIT_HEADS},
    {"num_key_value_heads", JSON_INT, AT_DECODER(kv_heads), .min = 1, .max = LIMIT_HEADS},
    {.name = "skip", .type = JSON_EMPTY},
};
static const struct json_table layer_table = JSON_TABLE(layer_fields);

/* The part of per_layer_config of each of n layers; NULL: it has none. */
static enum status list_configs(const struct json *config, const struct json *configs[], int n,
                                struct error *e) {
    for (int i = 0; i < n; i++) configs[i] = NULL;
    for (struct json_entry it = {0}; json_next(config, &it);) {
        char *end;
        long i = strtol(it.name.text, &end, 10);
        if (*end != '\0' || end == it.name.text || i < 0 || i >= n)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"per_layer_config\" has \"%.20s\", which is no layer",
                             it.name.text);
        configs[i] = it.value;
    }
    return STATUS_OK;
}

/* transformers 5 writes per_layer_config: the heads of each layer, where they are not those of the
 * model. The last layer has no window. */
static enum status read_configs(struct huggingface_decoder *decoder, struct error *e) {
    const struct json *configs[MAX_LAYERS];
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER], wide = *dims;
    int n = dims->n_layers;
    if (list_configs(decoder->layer_configs, configs, n, e)) return e->status;
    for (int i = n - 1; i >= 0; i--) {
        struct model_spec read = {.stacks[STACK_DECODER] = *dims};
        const struct dims *layer = &read.stacks[STACK_DECODER];
        if (configs[i] && spec_read(configs[i], &layer_table, &read, e))
            return error_prefix(e, "per_layer_config");
        if (i == n - 1) wide = *layer;
        const struct dims *expected = decoder->spec.windowed[i] ? dims : &wide;
        if (layer->head_dim != expected->head_dim || layer->kv_heads != expected->kv_heads)
            return error_set(e, STATUS_UNSUPPORTED,
                             "config.json: \"per_layer_config\" gives layer %d heads of %d and %d "
                             "key/value heads; layers of one type must have the same",
                             i, layer->head_dim, layer->kv_heads);
    }
    dims->wide_head_dim = wide.head_dim;
    dims->wide_kv_heads = wide.kv_heads;
    return STATUS_OK;
}

/* The last layers reuse what layers of their type have kept. */
static enum status read_reuse(struct gemma4_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    int n = spec->stacks[STACK_DECODER].n_layers, own = n - keys->shared_layers;
    bool kept[2] = {false, false}, used[2] = {false, false};
    for (int i = 0; i < n; i++) {
        bool *of = i < own ? kept : used;
        of[spec->windowed[i]] = true;
    }
    if (keys->shared_layers == 0) return STATUS_OK;
    if (own < 1 || (used[0] && !kept[0]) || (used[1] && !kept[1]))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"num_kv_shared_layers\" is %d of %d layers; those before "
                         "them must have layers of each of their types",
                         keys->shared_layers, n);
    spec->reuse_from = own;
    return STATUS_OK;
}

enum status gemma4_read_layers(struct gemma4_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    bool own_heads = spec->values_are_keys && keys->global_kv_heads > 0;
    spec->windowed[dims->n_layers - 1] = false; /* whatever layer_types says, as transformers */
    dims->wide_kv_heads = own_heads ? keys->global_kv_heads : dims->kv_heads;
    if (!json_is_absent(keys->decoder.layer_configs) && read_configs(&keys->decoder, e))
        return e->status;
    if (read_reuse(keys, e)) return e->status;
    if (spec->reuse_from > 0 && keys->wide_mlp) dims->wide_ffn = 2 * dims->ffn;
    return STATUS_OK;
}

enum status gemma4_read_experts(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    static const struct json_field expert_fields[] = {
        {"num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
         .required = true},
        {"top_k_experts", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
         .required = true},
        {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
         .required = true}};
    static const struct json_table expert_table = JSON_TABLE(expert_fields, .open = true);
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->experts_renormalised = dims->experts_scaled = true;
    if (spec_read(config, &expert_table, spec, e)) return e->status;
    if (dims->experts_used <= dims->experts) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "config.json: \"top_k_experts\" is %d of %d experts",
                     dims->experts_used, dims->experts);
}

struct layer_spec gemma4_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    struct layer_spec layer = huggingface_local_layer(spec, stack, i);
    int source = spec->reuse_from - 1;
    layer.wide_heads = !spec->windowed[i];
    layer.ordered = spec->picture.linked && !spec->windowed[i];
    layer.values_are_keys = spec->values_are_keys && layer.wide_heads;
    layer.reuses = spec->reuse_from > 0 && i >= spec->reuse_from;
    layer.wide_mlp = layer.reuses && spec->stacks[stack].wide_ffn > 0;
    while (layer.reuses && spec->windowed[source] != spec->windowed[i]) source--;
    if (layer.reuses) layer.source = source;
    return layer;
}

bool gemma4_ignores(const char *name) {
    static const char *const unused[] = {".self_attn.k_proj.", ".self_attn.v_proj.",
                                         ".self_attn.k_norm.", ".self_attn.v_norm.",
                                         "audio_tower.",       "embed_audio."};
    for (size_t i = 0; i < ARRAY_COUNT(unused); i++)
        if (strstr(name, unused[i])) return true;
    return huggingface_ignores_extras(name);
}
