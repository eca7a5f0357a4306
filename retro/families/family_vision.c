/* retro/families/family_vision.c: the towers of Megatron-Core, CLIPViTModel and RADIOViTModel, and
 * its multimodal projector (docs/spec/vision-model.md 1 to 4). Each is a model by itself, or a part
 * of LLaVA (family_llava.c). */
#include "retro/families/vision.h"

#include <string.h>

enum subtype { SUBTYPE_CLIP, SUBTYPE_SIGLIP, SUBTYPE_INTERNVIT };

/* The spec, and keys that have no place in it. */
struct tower_keys {
    struct model_spec spec;
    enum subtype subtype;
    bool class_token, norm_after, windows;
    int max_h, max_w;
};

static const struct json_choice subtypes[] = {{"clip", SUBTYPE_CLIP},
                                              {"siglip", SUBTYPE_SIGLIP},
                                              {"internvit", SUBTYPE_INTERNVIT},
                                              {"internvit300M", SUBTYPE_INTERNVIT},
                                              {NULL, 0}};

#define AT_KEYS(member) JSON_AT(struct tower_keys, member)
#define TOWER_FIELDS \
    {"num_layers", JSON_INT, AT_TOWER(n_layers), .min = 1, .max = MAX_LAYERS, .required = true}, \
        {"class_token_len", JSON_INT, AT_SPEC(tower.class_tokens), .min = 0, \
         .max = LIMIT_CLASS_TOKENS}, \
        {"add_class_token", JSON_BOOL, AT_KEYS(class_token), .fallback = true}, { \
        "patch_dim", JSON_INT, AT_SPEC(tower.patch), .min = 1, .max = LIMIT_PIXELS \
    }

static const struct json_field clip_fields[] = {
    TOWER_FIELDS,
    {"model_subtype", JSON_CHOICE, AT_KEYS(subtype), .choices = subtypes},
    {"img_h", JSON_INT, AT_SPEC(tower.image_h), .min = 1, .max = LIMIT_PIXELS},
    {"img_w", JSON_INT, AT_SPEC(tower.image_w), .min = 1, .max = LIMIT_PIXELS},
};
static const struct json_table clip_table = JSON_TABLE(clip_fields, .open = true);

static const struct json_field radio_fields[] = {
    TOWER_FIELDS,
    {"max_img_h", JSON_INT, AT_KEYS(max_h), .min = 1, .max = LIMIT_PIXELS},
    {"max_img_w", JSON_INT, AT_KEYS(max_w), .min = 1, .max = LIMIT_PIXELS},
    {"embedder_bias", JSON_BOOL, AT_SPEC(tower.patch_bias)},
    {"ln_pre", JSON_BOOL, AT_SPEC(tower.norm_before)},
    {"ln_post", JSON_BOOL, AT_KEYS(norm_after)},
    {"has_cpe", JSON_BOOL, AT_SPEC(tower.windows), .fallback = true},
    {"interpolate_align_corners", JSON_BOOL, AT_SPEC(tower.corners), .fallback = true},
};
static const struct json_table radio_table = JSON_TABLE(radio_fields, .open = true);

static enum status read_tower(const struct json *config, const struct json_table *table,
                              struct tower_keys *keys, struct error *e) {
    struct dims *dims = &keys->spec.stacks[STACK_TOWER];
    if (megatron_read_shape(config, dims, e)) return e->status;
    if (spec_read(config, table, keys, e)) return e->status;
    if (!keys->class_token) keys->spec.tower.class_tokens = 0;
    return STATUS_OK;
}

static enum status read_clip(const struct json *config, struct model_spec *spec, struct error *e) {
    struct tower_keys keys = {.spec = *spec};
    struct tower_spec *tower = &keys.spec.tower;
    tower->class_tokens = 1;
    tower->patch = 14;
    tower->image_h = tower->image_w = 336;
    if (read_tower(config, &clip_table, &keys, e)) return e->status;
    if (keys.subtype == SUBTYPE_SIGLIP && tower->class_tokens > 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"model_subtype\" siglip has no class tokens, not %d",
                         tower->class_tokens);

    tower->patch_bias = keys.subtype != SUBTYPE_CLIP;
    tower->norm_before = keys.subtype == SUBTYPE_CLIP;
    tower->class_positions = true;
    tower->table_h = tower->image_h / tower->patch;
    tower->table_w = tower->image_w / tower->patch;
    keys.spec.stacks[STACK_TOWER].final_norm = keys.subtype == SUBTYPE_SIGLIP;
    *spec = keys.spec;
    return spec_check(spec, e);
}

static enum status read_radio(const struct json *config, struct model_spec *spec, struct error *e) {
    struct tower_keys keys = {.spec = *spec, .max_h = 2048, .max_w = 2048};
    struct tower_spec *tower = &keys.spec.tower;
    tower->class_tokens = 8;
    tower->patch = 16;
    if (read_tower(config, &radio_table, &keys, e)) return e->status;
    tower->table_h = keys.max_h / tower->patch;
    tower->table_w = keys.max_w / tower->patch;
    keys.spec.stacks[STACK_TOWER].final_norm = keys.norm_after;
    *spec = keys.spec;
    return spec_check(spec, e);
}

/* The projector. */

struct projector_keys {
    struct projector_spec projector;
    int kind, mlp;
};

enum { PROJECTOR_MLP, PROJECTOR_AFFINE };
static const struct json_choice kinds[] = {
    {"mlp", PROJECTOR_MLP}, {"affine", PROJECTOR_AFFINE}, {NULL, 0}};

#define AT_PROJECTOR(member) JSON_AT(struct projector_keys, projector.member)
static const struct json_field projector_fields[] = {
    {"projector_type", JSON_CHOICE, JSON_AT(struct projector_keys, kind), .choices = kinds},
    {"input_size", JSON_INT, AT_PROJECTOR(in), .min = 1, .max = LIMIT_WIDTH, .required = true},
    {"hidden_size", JSON_INT, AT_PROJECTOR(out), .min = 1, .max = LIMIT_WIDTH, .required = true},
    {"ffn_hidden_size", JSON_INT, AT_PROJECTOR(ffn), .min = 1, .max = LIMIT_FFN},
    {"activation", JSON_CHOICE, JSON_AT(struct projector_keys, mlp),
     .choices = megatron_activations, .fallback = ACTIVATION_GELU_ERF},
    {"add_bias_linear", JSON_BOOL, AT_PROJECTOR(bias)},
    {"norm", JSON_BOOL, AT_PROJECTOR(normed)},
    {"normalization", JSON_CHOICE, AT_PROJECTOR(norm), .choices = megatron_norms,
     .fallback = NORM_LAYER},
    {"layernorm_epsilon", JSON_FLOAT, AT_PROJECTOR(epsilon), .fallback = 1e-5},
};
static const struct json_table projector_table = JSON_TABLE(projector_fields, .open = true);

enum status megatron_read_projector(const struct json *config, struct projector_spec *spec,
                                    struct error *e) {
    struct projector_keys keys = {.kind = PROJECTOR_MLP};
    struct dims mlp = {0};
    if (spec_read(config, &projector_table, &keys, e)) return e->status;
    if (keys.kind == PROJECTOR_MLP && keys.projector.ffn == 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: the projector is an mlp and has no \"ffn_hidden_size\"");
    if (keys.projector.normed && !(keys.projector.epsilon > 0))
        return error_set(e, STATUS_INVALID,
                         "config.json: the projector's \"layernorm_epsilon\" must be positive");

    dims_set_mlp(&mlp, keys.mlp);
    *spec = keys.projector;
    spec->activation = mlp.activation;
    spec->gated = mlp.gated;
    if (keys.kind == PROJECTOR_MLP) return STATUS_OK;
    spec->ffn = 0;
    spec->gated = false;
    spec->bias = true;
    return STATUS_OK;
}

static enum status read_projector(const struct json *config, struct model_spec *spec,
                                  struct error *e) {
    return megatron_read_projector(config, &spec->projector, e);
}

static struct layer_spec describe_layer(const struct model_spec *spec, enum stack_id stack, int i) {
    (void)spec, (void)stack, (void)i;
    return (struct layer_spec){.mask = MASK_NONE};
}

/* The forward does not read the mask token of RADIO's training. */
bool megatron_ignores_vision(const char *name) {
    size_t n = strlen(name), tail = strlen("mask_token");
    return ignore_megatron_state(name) || (n >= tail && strcmp(name + n - tail, "mask_token") == 0);
}

static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, tower.patch), .names = {"conv1.*", "embedder.*"}},
    {.place = offsetof(struct model, tower.class_token), .names = {"class_token"}},
    {.place = offsetof(struct model, tower.position),
     .names = {"position_embeddings.weight", "position_embeddings"}},
    {.place = offsetof(struct model, tower.norm_before), .names = {"ln_pre.*"}},
    {.place = offsetof(struct model, stacks[STACK_TOWER].final_norm), .names = {"ln_post.*"}},
};

static const struct tensor_row projector_rows[] = {MEGATRON_PROJECTOR_ROWS("encoder.")};

const struct family family_clip_vit = {
    .architecture = "clip_vit",
    .read = read_clip,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"decoder.layers.#."}, megatron_layer_rows, MEGATRON_LAYER_ROWS},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = megatron_ignores_vision,
};

const struct family family_radio_vit = {
    .architecture = "radio_vit",
    .read = read_radio,
    .layer = describe_layer,
    .stacks[STACK_TOWER] = {{"decoder.layers.#."}, megatron_layer_rows, MEGATRON_LAYER_ROWS},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = megatron_ignores_vision,
};

const struct family family_projector = {
    .architecture = "multimodal_projector",
    .read = read_projector,
    .layer = describe_layer,
    .outer = {{NULL}, projector_rows, ARRAY_COUNT(projector_rows)},
    .ignores = ignore_megatron_state,
};
