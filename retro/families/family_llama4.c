/* retro/families/family_llama4.c: the text part of Llama 4 as Hugging Face stores it, alone or as
 * the text_config of a model with a tower, which is not read: as Llama, with pairs of neighbours
 * that turn and attention within chunks in most layers, queries that grow with their place in those
 * without RoPE, and experts that read rows times their weight beside one that all rows use. */
#include <string.h>

#include "retro/families/huggingface.h"

/* The decoder's keys, and those that have no place in the spec. */
struct llama4_keys {
    struct huggingface_decoder decoder;
    const struct json *tuned, *expert_layers; /* expert_layers: numbers of layers */
    int step;                                 /* every so many layers has experts */
    int dense_ffn;
    bool qk_norm;
};

static const struct json_field fields[] = {
    {"intermediate_size_mlp", JSON_INT, JSON_AT(struct llama4_keys, dense_ffn), .min = 1,
     .max = LIMIT_FFN, .fallback = 16384},
    {"num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 16},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 1},
    {"moe_layers", JSON_RAW, JSON_AT(struct llama4_keys, expert_layers)},
    {"interleave_moe_layer_step", JSON_INT, JSON_AT(struct llama4_keys, step), .min = 1,
     .max = MAX_LAYERS, .fallback = 1},
    {"attention_chunk_size", JSON_INT, AT_SPEC(window), .min = 1, .max = LIMIT_POSITIONS},
    {"use_qk_norm", JSON_BOOL, JSON_AT(struct llama4_keys, qk_norm), .fallback = true},
    {"attn_temperature_tuning", JSON_RAW, JSON_AT(struct llama4_keys, tuned)},
    {"floor_scale", JSON_INT, AT_DECODER(query_grows_after), .min = 1, .max = LIMIT_POSITIONS,
     .fallback = 8192},
    {"attn_scale", JSON_FLOAT, AT_DECODER(query_growth), .fallback = 0.1},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Where layer_types is silent, layers with RoPE attend within chunks. */
static enum status read_chunks(struct llama4_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    int n = spec->stacks[STACK_DECODER].n_layers;
    for (int i = 0; i < n; i++) spec->windowed[i] = !spec->unrotated[i];
    if (!json_is_absent(keys->decoder.layer_types) &&
        huggingface_read_layer_types(&keys->decoder, n, e))
        return e->status;
    spec->chunk = spec->window;
    spec->window = 0;
    return STATUS_OK;
}

static enum status read_experts(struct llama4_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    int n = spec->stacks[STACK_DECODER].n_layers;
    bool good = json_is_list(keys->expert_layers);
    if (json_is_absent(keys->expert_layers))
        return huggingface_read_dense(spec, keys->step, NULL, e);
    for (int i = 0; i < n; i++) spec->dense[i] = true;
    for (size_t j = 0; good && j < json_count(keys->expert_layers); j++) {
        const struct json *item = json_item(keys->expert_layers, j);
        good = json_is_int(item);
        if (good && json_int(item) >= 0 && json_int(item) < n) spec->dense[json_int(item)] = false;
    }
    return good ? STATUS_OK
                : error_set(e, STATUS_INVALID,
                            "config.json: \"moe_layers\" must be a list of numbers of layers");
}

static enum status read_text(const struct json *config, struct model_spec *model_spec,
                             struct error *e) {
    struct llama4_keys keys = {.decoder = {.spec = *model_spec,
                                           .rope = {.base = 500000},
                                           .window_type = "chunked_attention"}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->head_dim = 128;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &keys.decoder, e)) return e->status;
    spec->window = json_member(config, "attention_chunk_size") ? 0 : 8192; /* null: none */
    if (spec_read(config, &table, &keys, e) || huggingface_read_unrotated(config, spec, e) ||
        read_chunks(&keys, e) || read_experts(&keys, e))
        return e->status;
    dims->expert_ffn = dims->shared_ffn = dims->ffn;
    dims->ffn = keys.dense_ffn;
    dims->mlp_bias = false;
    dims->router_sigmoid = dims->experts_weigh_inputs = true;
    dims->qk_norm = keys.qk_norm ? QK_NORM_HEAD : QK_NORM_NONE;
    dims->qk_norm_last = dims->rope_interleaved = true;
    bool tuned = keys.tuned == NULL || json_bool(keys.tuned) || json_int(keys.tuned) != 0;
    if (!tuned) dims->query_grows_after = 0;
    dims->query_grows_ahead = 1;
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

/* Queries of layers without RoPE grow: they turn by a table of zeros. */
static struct layer_spec describe(const struct model_spec *spec, enum stack_id stack, int i) {
    struct layer_spec layer = huggingface_layer(spec, stack, i);
    layer.bare_heads = spec->unrotated[i];
    layer.chunk = spec->windowed[i] ? spec->chunk : 0;
    layer.grows = layer.grows && spec->unrotated[i];
    if (!layer.grows) return layer;
    layer.rope = true;
    layer.frequencies = ROPE_LOCAL;
    return layer;
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q, .names = {"self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_GATE_UP_ROWS(fc1, "feed_forward"),
    {.place = offsetof(struct layer, fc2), .names = {"feed_forward.down_proj.*"}},
    {.place = offsetof(struct layer, router), .names = {"feed_forward.router.*"}},
    HUGGINGFACE_GATE_UP_ROWS(expert_fc1, "feed_forward.experts.#"),
    {.place = offsetof(struct layer, expert_fc1),
     .names = {"feed_forward.experts.#.gate_up_proj.*"},
     .transposed = true},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"feed_forward.experts.#.down_proj.*"},
     .transposed = true},
    HUGGINGFACE_SHARED_ROWS("feed_forward.shared_expert"),
};

static bool ignores(const char *name) {
    return strstr(name, "vision_model.") || strstr(name, "multi_modal_projector.");
}

const struct family family_llama4_text = {
    HUGGINGFACE_DECODER("llama4_text", read_text, describe, layer_rows)};

static enum status read_nested(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    if (read_text(json_member(config, "text_config"), spec, e))
        return error_prefix(e, "text_config");
    spec->parts[STACK_DECODER] =
        (struct model_part){&family_llama4_text, {"", "language_model.", "model.language_model."}};
    return STATUS_OK;
}

const struct family family_llama4 = {.model_type = "llama4",
                                     .read = read_nested,
                                     .inspect = huggingface_find_output,
                                     .ignores = ignores};
