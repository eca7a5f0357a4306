/* retro/families/family_qwen_tower.c: the vision towers of Qwen2-VL and Qwen2.5-VL as Hugging Face
 * stores them, with their mergers. A picture is two equal frames. Half of a head's rotary pairs
 * turn by a patch's line, half by its column. The merger norms each row, joins 2 x 2 of them and
 * has an MLP: the tower's last norm and a projector. Qwen2.5-VL has RMS norms and a gated MLP, and
 * attends within windows in all layers but some. */
#include "retro/families/huggingface_vision.h"

#include <math.h>
#include <string.h>

/* The keys of either that have no place in the spec. */
struct qwen2_tower_keys {
    struct qwen_tower_keys shared;
    int ratio, window;
    struct json_list whole;
};

enum { MOST_FRAMES = 16 };

#define AT_KEYS(member) JSON_AT(struct qwen2_tower_keys, member)
static const struct json_field shared_fields[] = {
    {"num_heads", JSON_INT, AT_TOWER(heads), .min = 1, .max = LIMIT_HEADS, .fallback = 16},
    {"temporal_patch_size", JSON_INT, AT_SPEC(tower.frames), .min = 1, .max = MOST_FRAMES,
     .fallback = 2},
    {"spatial_merge_size", JSON_NEUTRAL, .min = QWEN_MERGED},
    {"in_channels", JSON_NEUTRAL, .min = 3},
    {"rope_parameters", JSON_RAW, AT_KEYS(shared.rope)},
};
const struct json_table qwen_tower_table = JSON_TABLE(shared_fields);
#define SHARED_FIELDS \
    QWEN_TOWER_FIELDS(32, 14), { .name = "deepstack_visual_indexes", .type = JSON_EMPTY }

static const struct json_field older_fields[] = {
    SHARED_FIELDS,
    {"embed_dim", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 1280},
    {"mlp_ratio", JSON_INT, AT_KEYS(ratio), .min = 1, .max = 64, .fallback = 4},
    {"hidden_size", JSON_INT, AT_SPEC(projector.out), .min = 1, .max = LIMIT_WIDTH,
     .fallback = 3584},
    {"hidden_act", JSON_CHOICE, AT_KEYS(shared.activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_QUICK_GELU},
};
static const struct json_table older_table = JSON_TABLE(older_fields, .open = true);

static const struct json_field layer_number = {"", JSON_INT, .min = 0, .max = MAX_LAYERS - 1};
static const struct json_field newer_fields[] = {
    SHARED_FIELDS,
    {"hidden_size", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH, .fallback = 3584},
    {"intermediate_size", JSON_INT, AT_TOWER(ffn), .min = 1, .max = LIMIT_FFN, .fallback = 3420},
    {"out_hidden_size", JSON_INT, AT_SPEC(projector.out), .min = 1, .max = LIMIT_WIDTH,
     .fallback = 3584},
    {"hidden_act", JSON_CHOICE, AT_KEYS(shared.activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_SILU},
    {"window_size", JSON_INT, AT_KEYS(window), .min = 1, .max = LIMIT_PIXELS, .fallback = 112},
    {"fullatt_block_indexes", JSON_LIST, AT_KEYS(whole), .item = &layer_number,
     .item_size = sizeof(int), .max = MAX_LAYERS},
};
static const struct json_table newer_table = JSON_TABLE(newer_fields, .open = true);

/* Rotary positions. */

struct axial_keys {
    int kind;
    float base;
};

static const struct json_choice axial_kinds[] = {{"axial", 0}, {"default", 0}, {NULL, 0}};
static const struct json_field axial_fields[] = {
    {"rope_type|type", JSON_CHOICE, JSON_AT(struct axial_keys, kind), .choices = axial_kinds},
    {"rope_theta", JSON_FLOAT, JSON_AT(struct axial_keys, base), .fallback = 10000},
};
static const struct json_table axial_table = JSON_TABLE(axial_fields, .open = true);

enum status huggingface_read_axial_rope(const struct json *config, bool in_turn, struct dims *dims,
                                        struct error *e) {
    struct axial_keys keys = {.base = 10000};
    struct dims of = {.rotated = in_turn ? dims->head_dim : dims->head_dim / 2};
    if (!json_is_absent(config) && spec_read(config, &axial_table, &keys, e))
        return error_prefix(e, "rope_parameters");
    if (!(keys.base > 0))
        return error_set(e, STATUS_INVALID, "config.json: \"rope_theta\" is %g, must be positive",
                         (double)keys.base);
    if (dims->head_dim % 4 != 0 || dims->head_dim > ATTENTION_MAX_HEAD)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: attention heads of %d; multiples of 4 that are at most %d are supported",
            dims->head_dim, ATTENTION_MAX_HEAD);

    int pairs = dims->head_dim / 4;
    dims_set_rope(&of, ROPE_GLOBAL, keys.base);
    dims->rotated = dims->head_dim;
    dims->rope_sections = 2;
    for (int i = 0; i < 2 * pairs; i++) {
        int from = in_turn ? 2 * (i % pairs) + i / pairs : i % pairs;
        dims->rope[ROPE_GLOBAL].inv_freq[i] = of.rope[ROPE_GLOBAL].inv_freq[from];
        dims->rope_section[i] = (uint8_t)(i / pairs);
    }
    return STATUS_OK;
}

/* Windows. */

static enum status read_windows(struct qwen2_tower_keys *keys, const struct json *config,
                                struct error *e) {
    static const int usual[] = {7, 15, 23, 31};
    struct tower_spec *tower = &keys->shared.spec.tower;
    bool absent = json_is_absent(json_member(config, "fullatt_block_indexes"));
    const int *layers = absent ? usual : keys->whole.items;
    size_t n = absent ? ARRAY_COUNT(usual) : keys->whole.count;
    tower->attended = keys->window / QWEN_MERGED / tower->patch * QWEN_MERGED;
    if (tower->attended == 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"window_size\" is %d, less than %d patches of %d",
                         keys->window, QWEN_MERGED, tower->patch);
    for (size_t i = 0; i < n; i++) tower->whole[layers[i]] = true;
    return STATUS_OK;
}

/* Both towers. */

enum status qwen_tower_finish(struct qwen_tower_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->spec;
    struct dims *dims = &spec->stacks[STACK_TOWER];
    int padded = spec->padded_vocab, wide = dims->hidden * QWEN_MERGED * QWEN_MERGED;
    if (huggingface_derive(spec, dims, e)) return e->status;
    spec->padded_vocab = padded;
    dims_set_bias(dims, true);
    dims->activation = (enum activation)keys->activation;
    dims->epsilon = 1e-6f;
    dims->final_norm = true;
    spec->tower.shuffle = QWEN_MERGED;
    spec->tower.oblong = true;
    spec->projector.in = spec->projector.ffn = wide;
    spec->projector.activation = ACTIVATION_GELU_ERF;
    spec->projector.bias = true;
    return huggingface_read_axial_rope(keys->rope, false, dims, e);
}

static enum status read_older(const struct json *config, struct model_spec *spec, struct error *e) {
    struct qwen2_tower_keys keys = {.shared.spec = *spec};
    struct dims *dims = &keys.shared.spec.stacks[STACK_TOWER];
    if (spec_read(config, &older_table, &keys, e)) return e->status;
    if (dims->hidden > LIMIT_FFN / keys.ratio)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"mlp_ratio\" is %d, for rows of %d at most %d", keys.ratio,
                         dims->hidden, LIMIT_FFN / dims->hidden);
    dims->ffn = dims->hidden * keys.ratio;
    dims->norm = NORM_LAYER;
    if (qwen_tower_finish(&keys.shared, e)) return e->status;
    *spec = keys.shared.spec;
    return STATUS_OK;
}

static enum status read_newer(const struct json *config, struct model_spec *spec, struct error *e) {
    struct qwen2_tower_keys keys = {.shared.spec = *spec};
    enum status status = spec_read(config, &newer_table, &keys, e);
    if (status == STATUS_OK) status = read_windows(&keys, config, e);
    json_table_free(&newer_table, &keys);
    if (status) return status;
    keys.shared.spec.stacks[STACK_TOWER].gated = true;
    keys.shared.spec.stacks[STACK_TOWER].norm = NORM_RMS;
    if (qwen_tower_finish(&keys.shared, e)) return e->status;
    *spec = keys.shared.spec;
    return STATUS_OK;
}

struct layer_spec qwen_tower_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE, .rope = true};
}

static const struct tensor_row older_rows[] = {
    QWEN_TOWER_ROWS,
    {.place = offsetof(struct layer, fc1), .names = {"mlp.fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.fc2.*"}},
};
static const struct tensor_row newer_rows[] = {QWEN_TOWER_ROWS, HUGGINGFACE_MLP_ROWS};

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"patch_embed.proj.*"}},
    {.place = offsetof(struct model, stacks[STACK_TOWER].final_norm), .names = {"merger.ln_q.*"}},
    {.place = offsetof(struct model, projector.fc1), .names = {"merger.mlp.0.*"}},
    {.place = offsetof(struct model, projector.fc2), .names = {"merger.mlp.2.*"}},
};

const struct family qwen2_tower = {
    .model_type = "qwen2_vl_vision",
    .read = read_older,
    .layer = qwen_tower_layer,
    .stacks[STACK_TOWER] = {{"blocks.#."}, older_rows, ARRAY_COUNT(older_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
};
const struct family qwen2_5_tower = {
    .model_type = "qwen2_5_vl_vision",
    .read = read_newer,
    .layer = qwen_tower_layer,
    .stacks[STACK_TOWER] = {{"blocks.#."}, newer_rows, ARRAY_COUNT(newer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
};

/* Whether a type is one of these names: the tower's own, and those of its model. Models with
 * experts have the tower of those without. */
static bool names_tower(const char *type, const char *tower) {
    static const char *const ends[] = {"", "_moe", "_vision", "_moe_vision"};
    const char *end = strstr(tower, "_moe") ? strstr(tower, "_moe") : strstr(tower, "_vision");
    size_t n = (size_t)(end - tower);
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++)
        if (strncmp(type, tower, n) == 0 && strcmp(type + n, ends[i]) == 0) return true;
    return false;
}

enum status qwen_tower_read(const struct json *config, const struct family *tower,
                            struct model_spec *spec, struct error *e) {
    const char *type = json_text(json_member(config, "model_type")).text;
    if (type && !names_tower(type, tower->model_type))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"model_type\" is \"%.60s\"; %s is supported here", type,
                         tower->model_type);
    if (tower->read(config, spec, e)) return e->status;
    spec->parts[STACK_TOWER] = (struct model_part){tower, {"visual.", "model.visual.", ""}};
    return STATUS_OK;
}

static enum status read_older_alone(const struct json *config, struct model_spec *spec,
                                    struct error *e) {
    return qwen_tower_read(config, &qwen2_tower, spec, e) ? e->status : spec_check(spec, e);
}

static enum status read_newer_alone(const struct json *config, struct model_spec *spec,
                                    struct error *e) {
    return qwen_tower_read(config, &qwen2_5_tower, spec, e) ? e->status : spec_check(spec, e);
}

const struct family family_qwen2_vl_vision = {
    .model_type = "qwen2_vl_vision", .read = read_older_alone, .layer = qwen_tower_layer};
const struct family family_qwen2_5_vl_vision = {
    .model_type = "qwen2_5_vl_vision", .read = read_newer_alone, .layer = qwen_tower_layer};
