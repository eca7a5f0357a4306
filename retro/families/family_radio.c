/* retro/families/family_radio.c: NVIDIA's RADIO as the Hugging Face Hub has it: a vision
 * transformer of timm whose patches, class tokens and registers come from a generator with CPE
 * positions, behind a conditioner of pixels. The tower's rows are those of its last layer; heads of
 * teachers (adaptors) and normalizers of features are not read. */
#include "retro/families/huggingface.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The spec, and keys that have no place in it. Of RADIO's keys most are in "args", the options of
 * its training. */
struct radio_hub_keys {
    struct model_spec spec;
    const struct json *args, *kwargs, *teachers, *window;
    char *name; /* of timm */
    int table, size, multiple, registers;
    double ratio; /* of an MLP's columns to the rows' */
    bool per_teacher, reparametrised;
};

#define AT_KEYS(member) JSON_AT(struct radio_hub_keys, member)

static const struct json_field fields[] = {
    {"args", JSON_RAW, AT_KEYS(args)},
    {"patch_size", JSON_INT, AT_SPEC(tower.patch), .min = 1, .max = LIMIT_PATCH, .fallback = 16},
    {"vitdet_window_size", JSON_RAW, AT_KEYS(window)},
    {"interpolate_align_corners", JSON_BOOL, AT_SPEC(tower.corners)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static const struct json_field args_fields[] = {
    {"model", JSON_TEXT, AT_KEYS(name), .required = true},
    {"model_kwargs", JSON_RAW, AT_KEYS(kwargs)},
    {"cpe_max_size", JSON_INT, AT_KEYS(table), .min = 1, .max = LIMIT_PIXELS},
    {"cls_token_per_teacher", JSON_BOOL, AT_KEYS(per_teacher)},
    {"teachers", JSON_RAW, AT_KEYS(teachers)},
    {"register_multiple", JSON_INT, AT_KEYS(multiple), .min = 0, .max = LIMIT_CLASS_TOKENS},
    {"cpe_num_registers", JSON_INT, AT_KEYS(registers), .min = 0, .max = LIMIT_CLASS_TOKENS},
    {"model_norm", JSON_BOOL, AT_TOWER(final_norm)},
    {"spectral_reparam", JSON_BOOL, AT_KEYS(reparametrised)},
    {"in_chans", JSON_NEUTRAL, .min = 3},
};
static const struct json_table args_table = JSON_TABLE(args_fields, .open = true);

/* Arguments of a model of timm beside its name; others change the layers, so they are refused. */
static const struct json_field kwargs_fields[] = {
    {"embed_dim", JSON_INT, AT_TOWER(hidden), .min = 1, .max = LIMIT_WIDTH},
    {"depth", JSON_INT, AT_TOWER(n_layers), .min = 1, .max = MAX_LAYERS},
    {"num_heads", JSON_INT, AT_TOWER(heads), .min = 1, .max = LIMIT_HEADS},
    {"mlp_ratio", JSON_DOUBLE, AT_KEYS(ratio), .min = 1e-3, .max = 1e3},
    {"img_size", JSON_INT, AT_KEYS(size), .min = 1, .max = LIMIT_PIXELS},
    {"qkv_bias", JSON_BOOL, AT_TOWER(qkv_bias)},
    {.name = "weight_init", .type = JSON_IGNORED},
};
static const struct json_table kwargs_table = JSON_TABLE(kwargs_fields);

/* The names of timm that RADIO's checkpoints have, without the side of a patch and of a picture. */
static const struct radio_size {
    const char *name;
    int layers, hidden, heads;
} sizes[] = {{"vit_tiny_patch", 12, 192, 3},
             {"vit_small_patch", 12, 384, 6},
             {"vit_base_patch", 12, 768, 12},
             {"vit_large_patch", 24, 1024, 16},
             {"vit_huge_patch", 32, 1280, 16}};

static enum status set_size(struct radio_hub_keys *keys, struct error *e) {
    struct dims *dims = &keys->spec.stacks[STACK_TOWER];
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        char rest[32];
        size_t n = strlen(sizes[i].name);
        snprintf(rest, sizeof rest, "%d_224", keys->spec.tower.patch);
        if (strncmp(keys->name, sizes[i].name, n) != 0 || strcmp(keys->name + n, rest) != 0)
            continue;
        dims->n_layers = sizes[i].layers;
        dims->hidden = sizes[i].hidden;
        dims->heads = sizes[i].heads;
        return STATUS_OK;
    }
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"args\" has \"model\" \"%.60s\"; vit_tiny, vit_small, "
                     "vit_base, vit_large and "
                     "vit_huge with _patch%d_224 are supported",
                     keys->name, keys->spec.tower.patch);
}

/* Teachers of one name share a class token. */
static int count_teachers(const struct json *teachers) {
    size_t n = json_count(teachers);
    int distinct = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_text(json_member(json_item(teachers, i), "name")).text;
        bool again = false;
        for (size_t j = 0; j < i && name && !again; j++) {
            const char *other = json_text(json_member(json_item(teachers, j), "name")).text;
            again = other && strcmp(name, other) == 0;
        }
        distinct += !again;
    }
    return distinct;
}

/* Registers fill the class tokens up to a multiple; a multiple is filled up by another one. */
static enum status set_class_tokens(struct radio_hub_keys *keys, struct error *e) {
    int classes = keys->per_teacher ? count_teachers(keys->teachers) : 1;
    int registers = keys->multiple > 0 ? keys->multiple - classes % keys->multiple : 0;
    if (keys->registers > 0) registers = keys->registers;
    if (classes < 1 || classes > LIMIT_CLASS_TOKENS)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"args\" has %d \"teachers\", each with a class token; 1 .. "
                         "%d are allowed",
                         classes, LIMIT_CLASS_TOKENS);
    keys->spec.tower.class_tokens = classes + registers;
    return STATUS_OK;
}

/* As upstream: the largest picture is rounded to whole patches, and there are no windows where it
 * is the usual one. */
static enum status set_table(struct radio_hub_keys *keys, struct error *e) {
    struct tower_spec *tower = &keys->spec.tower;
    if (keys->table == 0)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"args\" has no \"cpe_max_size\"; RADIO with CPE positions is supported");
    int side = (int)nearbyint((double)keys->table / tower->patch);
    tower->table_h = tower->table_w = max_int(1, side);
    tower->windows = tower->table_h * tower->patch != keys->size;
    return STATUS_OK;
}

static enum status read_args(struct radio_hub_keys *keys, struct error *e) {
    struct dims *dims = &keys->spec.stacks[STACK_TOWER];
    if (spec_read(keys->args, &args_table, keys, e)) return e->status;
    if (keys->reparametrised)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"spectral_reparam\" is true; weights as they are "
                         "multiplied are supported");
    if (set_size(keys, e)) return e->status;
    if (!json_is_absent(keys->kwargs) && spec_read(keys->kwargs, &kwargs_table, keys, e))
        return error_prefix(e, "model_kwargs");
    double ffn = dims->hidden * keys->ratio;
    if (!(ffn >= 1 && ffn <= LIMIT_FFN))
        return error_set(
            e, STATUS_INVALID,
            "config.json: \"mlp_ratio\" makes %g columns of an MLP, allowed is 1 .. %d", ffn,
            LIMIT_FFN);
    dims->ffn = (int)ffn;
    return STATUS_OK;
}

static enum status read_keys(const struct json *config, struct radio_hub_keys *keys,
                             struct error *e) {
    struct dims *dims = &keys->spec.stacks[STACK_TOWER];
    if (spec_read(config, &table, keys, e)) return e->status;
    if (!json_is_absent(keys->window))
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"vitdet_window_size\" is not null; attention over the whole picture is "
            "supported");
    dims_set_bias(dims, true);
    dims->norm = NORM_LAYER;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_GELU_ERF;
    if (read_args(keys, e)) return error_prefix(e, "args");
    if (set_class_tokens(keys, e) || set_table(keys, e)) return e->status;
    keys->spec.tower.conditioned = true;
    keys->spec.tower.shuffle = 1;
    return STATUS_OK;
}

static enum status read_radio_hub(const struct json *config, struct model_spec *spec,
                                  struct error *e) {
    struct radio_hub_keys keys = {.spec = *spec, .size = 224, .ratio = 4};
    enum status status = read_keys(config, &keys, e);
    json_table_free(&args_table, &keys);
    if (status) return status;
    int padded = keys.spec.padded_vocab;
    if (huggingface_derive(&keys.spec, &keys.spec.stacks[STACK_TOWER], e)) return e->status;
    keys.spec.padded_vocab = padded;
    *spec = keys.spec;
    return spec_check(spec, e);
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE};
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

static bool ignore_heads(const char *name) {
    const char *const unread[] = {"summary_idxs", "adaptors.", "feature_normalizer.",
                                  "inter_feature_normalizer.", "model.head."};
    if (begins(name, "radio_model.")) name += strlen("radio_model.");
    for (size_t i = 0; i < ARRAY_COUNT(unread); i++)
        if (begins(name, unread[i])) return true;
    return false;
}

#define RADIO_NAMES(name) \
    { "radio_model." name, name }
static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.mean),
     .names = RADIO_NAMES("input_conditioner.norm_mean")},
    {.place = offsetof(struct model, tower.deviation),
     .names = RADIO_NAMES("input_conditioner.norm_std")},
    {.place = offsetof(struct model, tower.patch),
     .names = RADIO_NAMES("model.patch_generator.embedder.*")},
    {.place = offsetof(struct model, tower.class_token),
     .names = RADIO_NAMES("model.patch_generator.cls_token.token")},
    {.place = offsetof(struct model, tower.position),
     .names = RADIO_NAMES("model.patch_generator.pos_embed")},
    {.place = offsetof(struct model, stacks[STACK_TOWER].final_norm),
     .names = RADIO_NAMES("model.norm.*")},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"norm1.*"}},
    {.place = offsetof(struct layer, qkv), .names = {"attn.qkv.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attn.proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"norm2.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.fc1.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.fc2.*"}},
};

const struct family family_radio_hub = {
    .class_name = "RADIOModel",
    .read = read_radio_hub,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"radio_model.model.blocks.#.", "model.blocks.#."},
                            layer_rows,
                            ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_heads,
};
