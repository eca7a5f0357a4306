/* retro/families/family_mistral3.c: Mistral Small 3.1 and later and Ministral 3 with pictures, as
 * Hugging Face stores them: Pixtral's tower, whose rows are normed, joined by squares, made as wide
 * as one of them and read by a projector of two products; and a decoder, mostly Mistral or
 * Ministral 3. Without a vision_config, or without tensors of a tower, it reads text alone. */
#include "retro/families/huggingface_vision.h"

/* The spec, and keys that have no place in it. */
struct mistral3_keys {
    struct model_spec spec;
    const struct json *text, *vision, *layer;
    int activation, side;
    bool bias;
};

#define AT_KEYS(member) JSON_AT(struct mistral3_keys, member)
static const struct json_field fields[] = {
    {"text_config", JSON_RAW, AT_KEYS(text), .required = true},
    {"vision_config", JSON_RAW, AT_KEYS(vision)},
    {"vision_feature_layer", JSON_RAW, AT_KEYS(layer)},
    {"image_token_index|image_token_id", JSON_INT, AT_SPEC(picture.id), .min = 0, .max = LIMIT_IDS,
     .fallback = 10},
    {"projector_hidden_act", JSON_CHOICE, AT_KEYS(activation), .choices = huggingface_activations,
     .fallback = ACTIVATION_GELU_ERF},
    {"multimodal_projector_bias", JSON_BOOL, AT_KEYS(bias)},
    {"spatial_merge_size", JSON_INT, AT_KEYS(side), .min = 1, .max = 16, .fallback = 2},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* The whole model says whether the output matrix is the word table. */
static const struct json_field tied_fields[] = {
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied), .fallback = true}};
static const struct json_table tied_table = JSON_TABLE(tied_fields, .open = true);

static enum status read_vision(struct mistral3_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->spec;
    const struct dims *decoder = &spec->stacks[STACK_DECODER], *tower = &spec->stacks[STACK_TOWER];
    if (huggingface_read_vision(keys->vision, pixtral_tower.model_type, spec, e) ||
        huggingface_read_feature_layer(keys->layer, -1, spec, e))
        return e->status;
    if (spec->parts[STACK_TOWER].family != &pixtral_tower || keys->side != 2)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: a tower of \"model_type\" \"%s\" and \"spatial_merge_size\" "
                         "%d; pixtral and 2 are supported",
                         spec->parts[STACK_TOWER].family->model_type, keys->side);
    spec->picture.lined = true;
    spec->tower.shuffle = keys->side;
    spec->projector = (struct projector_spec){.in = keys->side * keys->side * tower->hidden,
                                              .merged = tower->hidden,
                                              .ffn = decoder->hidden,
                                              .out = decoder->hidden,
                                              .normed = true,
                                              .normed_apart = true,
                                              .norm = NORM_RMS,
                                              .epsilon = decoder->epsilon,
                                              .activation = (enum activation)keys->activation,
                                              .bias = keys->bias};
    return STATUS_OK;
}

static enum status read_mistral3(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    struct mistral3_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e) ||
        huggingface_check_quantisation(json_member(config, "quantization_config"), false, e) ||
        huggingface_read_text(keys.text, &family_mistral, &keys.spec, e) ||
        spec_read(config, &tied_table, &keys, e))
        return e->status;
    if (!json_is_absent(keys.vision) && read_vision(&keys, e)) return e->status;
    *spec = keys.spec;
    return spec_check(spec, e);
}

static void inspect_mistral3(const struct weights *weights, struct model_spec *spec) {
    huggingface_find_nested_output(weights, spec);
    huggingface_drop_absent_tower(weights, "vision_tower.", spec);
}

static const struct tensor_row rows[] = {
    {.place = offsetof(struct model, projector.norm),
     .names = {"multi_modal_projector.norm.*", "model.multi_modal_projector.norm.*"}},
    {.place = offsetof(struct model, projector.merge),
     .names = {"multi_modal_projector.patch_merger.merging_layer.*",
               "model.multi_modal_projector.patch_merger.merging_layer.*"},
     .columns_in_turn = true},
    {.place = offsetof(struct model, projector.fc1),
     .names = {"multi_modal_projector.linear_1.*", "model.multi_modal_projector.linear_1.*"}},
    {.place = offsetof(struct model, projector.fc2),
     .names = {"multi_modal_projector.linear_2.*", "model.multi_modal_projector.linear_2.*"}},
};

const struct family family_mistral3 = {
    .model_type = "mistral3",
    .read = read_mistral3,
    .inspect = inspect_mistral3,
    .outer = {{NULL}, rows, ARRAY_COUNT(rows)},
    .ignores = huggingface_ignores_extras,
};
