/* retro/families/family_llava_hf.c: LLaVA 1.5 and LLaVA-NeXT as Hugging Face stores them
 * (llava-hf): the tower of a vision_config, a projector of two products, and the decoder of a
 * text_config, which may be any that reads no source. With Pixtral's tower it is Pixtral 12B. */
#include "retro/families/huggingface_vision.h"

/* The spec, and keys that have no place in it. */
struct llava_hf_keys {
    struct model_spec spec;
    const struct json *text, *vision, *layer;
    int activation, strategy;
    bool bias;
};

enum { STRATEGY_PATCHES, STRATEGY_ALL };
static const struct json_choice strategies[] = {
    {"default", STRATEGY_PATCHES}, {"full", STRATEGY_ALL}, {NULL, 0}};

#define AT_KEYS(member) JSON_AT(struct llava_hf_keys, member)
static const struct json_field fields[] = {
    {"text_config", JSON_RAW, AT_KEYS(text)},
    {"vision_config", JSON_RAW, AT_KEYS(vision)},
    {"vision_feature_layer", JSON_RAW, AT_KEYS(layer)},
    {"image_token_index|image_token_id", JSON_INT, AT_SPEC(picture.id), .min = 0, .max = LIMIT_IDS,
     .fallback = 32000},
    {"projector_hidden_act", JSON_CHOICE, AT_KEYS(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {"vision_feature_select_strategy", JSON_CHOICE, AT_KEYS(strategy), .choices = strategies},
    {"multimodal_projector_bias", JSON_BOOL, AT_KEYS(bias), .fallback = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_llava(const struct json *config, struct model_spec *model_spec,
                              struct error *e) {
    struct llava_hf_keys keys = {.spec = *model_spec};
    if (spec_read(config, &table, &keys, e) ||
        huggingface_check_quantisation(json_member(config, "quantization_config"), false, e) ||
        huggingface_read_text(keys.text, &family_llama, &keys.spec, e) ||
        huggingface_read_vision(keys.vision, "clip_vision_model", &keys.spec, e) ||
        huggingface_read_feature_layer(keys.layer, -2, &keys.spec, e))
        return e->status;
    struct model_spec *spec = &keys.spec;
    int d = spec->stacks[STACK_DECODER].hidden;
    /* SigLIP and Pixtral have no class token, and "default" leaves their first patch out. */
    bool drops = keys.strategy == STRATEGY_PATCHES;
    if (drops && spec->tower.class_tokens == 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"vision_feature_select_strategy\" is \"default\", which "
                         "leaves out the first row "
                         "of a tower without a class token; \"full\" is supported");
    spec->tower.drops_class = drops;
    spec->projector = (struct projector_spec){.in = spec->stacks[STACK_TOWER].hidden,
                                              .ffn = d,
                                              .out = d,
                                              .activation = (enum activation)keys.activation,
                                              .bias = keys.bias};
    spec->picture.lined = spec->tower.oblong;
    *model_spec = keys.spec;
    return spec_check(model_spec, e);
}

/* A line of tiles ends with a row that the checkpoint has. */
static const struct json_field next_fields[] = {
    {.name = "use_image_newline_parameter",
     .type = JSON_BOOL,
     AT_SPEC(picture.arranged),
     .fallback = true},
};
static const struct json_table next_table = JSON_TABLE(next_fields, .open = true);

static enum status read_llava_next(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    if (read_llava(config, spec, e) || spec_read(config, &next_table, spec, e)) return e->status;
    if (spec->picture.lined)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: llava_next has tiles, and its tower pictures of any size");
    if (spec->picture.arranged && spec->tower.drops_class == (spec->tower.class_tokens > 0))
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"use_image_newline_parameter\" false or "
                     "\"vision_feature_select_strategy\" full; "
                     "lines of patches with a newline are supported");
}

static const struct tensor_row rows[] = {
    {.place = offsetof(struct model, projector.fc1),
     .names = {"multi_modal_projector.linear_1.*", "model.multi_modal_projector.linear_1.*"}},
    {.place = offsetof(struct model, projector.fc2),
     .names = {"multi_modal_projector.linear_2.*", "model.multi_modal_projector.linear_2.*"}},
};

static const struct tensor_row next_rows[] = {
    {.place = offsetof(struct model, projector.fc1),
     .names = {"multi_modal_projector.linear_1.*", "model.multi_modal_projector.linear_1.*"}},
    {.place = offsetof(struct model, projector.fc2),
     .names = {"multi_modal_projector.linear_2.*", "model.multi_modal_projector.linear_2.*"}},
    {.place = offsetof(struct model, newline), .names = {"image_newline", "model.image_newline"}},
};

const struct family family_llava_next = {
    .model_type = "llava_next",
    .read = read_llava_next,
    .inspect = huggingface_find_nested_output,
    .outer = {{NULL}, next_rows, ARRAY_COUNT(next_rows)},
    .ignores = huggingface_ignores_tower_heads,
};

const struct family family_llava = {
    .model_type = "llava",
    .read = read_llava,
    .inspect = huggingface_find_nested_output,
    .outer = {{NULL}, rows, ARRAY_COUNT(rows)},
    .ignores = huggingface_ignores_tower_heads,
};
