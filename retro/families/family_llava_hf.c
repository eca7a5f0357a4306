/* retro/families/family_llava_hf.c: LLaVA 1.5 and LLaVA-NeXT as Hugging Face stores them
 * (llava-hf): the tower of a vision_config, a projector of two products, and the decoder of a
 * text_config, which may be any that reads no source.
 */
#include "retro/families/huggingface_vision.h"

#include <string.h>

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

/* The sizes that transformers leaves out of a text_config: they are those of its class. */
static void start_sizes(struct model_spec *spec, const char *type) {
    struct dims *dims = &spec->stacks[STACK_DECODER];
    bool llama = strcmp(type, "llama") == 0;
    if (!llama && strcmp(type, "mistral") != 0) return;
    spec->vocab = 32000;
    dims->n_layers = 32;
    dims->hidden = 4096;
    dims->heads = 32;
    dims->ffn = llama ? 11008 : 14336;
}

/* transformers' class takes the decoder without what stands behind its output matrix: neither a
 * soft-cap nor a scale of logits. Granite multiplies rows of pictures as it does those of words. */
static enum status fit_decoder(struct llava_hf_keys *keys, struct error *e) {
    bool multiplies = !json_is_absent(json_member(keys->text, "embedding_multiplier"));
    keys->spec.logit_scale = 1;
    keys->spec.logit_cap = 0;
    if (!multiplies || keys->spec.embedding_scale == 1) return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "config.json: \"embedding_multiplier\" is %g beside a vision tower, whose rows "
        "it would multiply; 1 is supported there",
        (double)keys->spec.embedding_scale);
}

static enum status read_text(struct llava_hf_keys *keys, struct error *e) {
    const char *type = json_text(json_member(keys->text, "model_type")).text;
    const struct family *family = type ? family_of_type(type) : &family_llama;
    if (family == NULL || family->stacks[STACK_DECODER].n == 0 ||
        family->stacks[STACK_ENCODER].n > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"text_config\" has \"model_type\" \"%.60s\"; it must be a "
                         "decoder that is supported alone",
                         type);
    start_sizes(&keys->spec, type ? type : "llama");
    if (family->read(keys->text, &keys->spec, e) || fit_decoder(keys, e))
        return error_prefix(e, "text_config");
    keys->spec.parts[STACK_DECODER] =
        (struct model_part){family, {"language_model.", "model.language_model.", ""}};
    return STATUS_OK;
}

/* hidden_states[i], from the end where i is negative: 0 is what enters the first layer. */
static enum status read_layer(struct llava_hf_keys *keys, struct error *e) {
    int n = keys->spec.stacks[STACK_TOWER].n_layers;
    bool absent = json_is_absent(keys->layer);
    if (!absent && !json_is_int(keys->layer))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"vision_feature_layer\" must be one number");
    int64_t i = absent ? -2 : json_int(keys->layer), layers = i < 0 ? n + 1 + i : i;
    if (layers < 1 || layers > n)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"vision_feature_layer\" is %lld, the tower has %d layers",
                         (long long)i, n);
    keys->spec.tower.layers = (int)layers;
    return STATUS_OK;
}

static enum status read_vision(struct llava_hf_keys *keys, struct error *e) {
    const char *type = json_text(json_member(keys->vision, "model_type")).text;
    const struct family *tower = huggingface_find_tower(type ? type : "clip_vision_model");
    if (tower == NULL)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"vision_config\" has \"model_type\" \"%.60s\"; clip_vision_model and "
            "siglip_vision_model are supported",
            type);
    if (tower->read(keys->vision, &keys->spec, e)) return error_prefix(e, "vision_config");
    keys->spec.stacks[STACK_TOWER].final_norm = false; /* of the tower's head */
    keys->spec.parts[STACK_TOWER] =
        (struct model_part){tower,
                            {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                             "model.vision_tower.", "vision_tower."}};
    return read_layer(keys, e);
}

static enum status read_llava(const struct json *config, struct model_spec *model_spec,
                              struct error *e) {
    struct llava_hf_keys keys = {.spec = *model_spec};
    if (spec_read(config, &table, &keys, e) || read_text(&keys, e) || read_vision(&keys, e))
        return e->status;
    struct model_spec *spec = &keys.spec;
    int d = spec->stacks[STACK_DECODER].hidden;
    /* SigLIP has no class token, and "default" leaves its first patch out. */
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
    if (spec->picture.arranged && spec->tower.drops_class == (spec->tower.class_tokens > 0))
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"use_image_newline_parameter\" false or "
                     "\"vision_feature_select_strategy\" full; "
                     "lines of patches with a newline are supported");
}

static void inspect_llava(const struct weights *weights, struct model_spec *spec) {
    if (weights_find(weights, "lm_head.weight") ||
        weights_find(weights, "language_model.lm_head.weight"))
        spec->tied = false;
}

/* The tower's head is not read. */
static bool ignore_unread(const char *name) {
    return huggingface_ignores_extras(name) || strstr(name, ".post_layernorm.") ||
           strstr(name, "position_ids") || strstr(name, "vision_model.head.") ||
           strstr(name, "vision_tower.head.");
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
    .inspect = inspect_llava,
    .outer = {{NULL}, next_rows, ARRAY_COUNT(next_rows)},
    .ignores = ignore_unread,
};

const struct family family_llava = {
    .model_type = "llava",
    .read = read_llava,
    .inspect = inspect_llava,
    .outer = {{NULL}, rows, ARRAY_COUNT(rows)},
    .ignores = ignore_unread,
};
