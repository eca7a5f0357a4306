/* retro/families/family_gemma3.c: Gemma 3 with pictures as Hugging Face stores it: SigLIP's tower,
 * whose squares of rows are averaged, normed and multiplied by one matrix, and the decoder of
 * family_gemma.c, in which the rows of a picture see each other. Without a vision_config, or
 * without tensors of a tower, the model reads text alone. */
#include "retro/families/huggingface_vision.h"

#include <string.h>

/* The spec, and keys that have no place in it. */
struct gemma3_keys {
    struct model_spec spec;
    const struct json *text, *vision;
};

#define AT_KEYS(member) JSON_AT(struct gemma3_keys, member)
static const struct json_field fields[] = {
    {"text_config", JSON_RAW, AT_KEYS(text), .required = true},
    {"vision_config", JSON_RAW, AT_KEYS(vision)},
    {"image_token_index|image_token_id", JSON_INT, AT_SPEC(picture.id), .min = 0, .max = LIMIT_IDS,
     .fallback = 262144},
    {"mm_tokens_per_image", JSON_INT, AT_SPEC(picture.together), .min = 1, .max = LIMIT_PIXELS,
     .fallback = 256},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* A whole model says what ends a text, and whether the output matrix is the word table. */
static const struct json_field outer_fields[] = {
    {.name = "eos_token_id", .type = JSON_PARSED, .parse = huggingface_parse_eos},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied)},
};
static const struct json_table outer_table = JSON_TABLE(outer_fields, .open = true);

static enum status read_text(const struct json *config, struct gemma3_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->spec;
    if (family_gemma3_text.read(keys->text, spec, e)) return error_prefix(e, "text_config");
    if (spec->two_sided)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"use_bidirectional_attention\" is for embedders of text "
                         "alone: leave it out or send false");
    spec->logit_cap = 0; /* transformers reads final_logit_softcapping and does nothing with it */
    spec->parts[STACK_DECODER] =
        (struct model_part){&family_gemma3_text, {"language_model.", "model.language_model.", ""}};
    return spec_read(config, &outer_table, spec, e);
}

/* The side of a square of `tokens` rows; 0: they are no square. */
static int find_side(int tokens) {
    int side = 1;
    while (side * side < tokens) side++;
    return side * side == tokens ? side : 0;
}

static enum status read_vision(struct gemma3_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->spec;
    const struct family *siglip = huggingface_find_tower("siglip_vision_model");
    const struct json *type = json_member(keys->vision, "model_type");
    if (!json_is_absent(type) && !json_text_is(type, siglip->model_type))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"vision_config\" has another \"model_type\" than "
                         "\"%s\"",
                         siglip->model_type);
    if (siglip->read(keys->vision, spec, e)) return error_prefix(e, "vision_config");
    spec->parts[STACK_TOWER] =
        (struct model_part){siglip,
                            {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                             "model.vision_tower.", "vision_tower."}};

    int lines = spec->tower.image_h / spec->tower.patch, side = find_side(spec->picture.together);
    if (side == 0 || lines % side != 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"mm_tokens_per_image\" is %d; it must be a square whose "
                         "side divides the %d lines of patches",
                         spec->picture.together, lines);
    const struct dims *tower = &spec->stacks[STACK_TOWER];
    spec->tower.averaged = lines / side;
    spec->projector = (struct projector_spec){.in = tower->hidden,
                                              .out = spec->stacks[STACK_DECODER].hidden,
                                              .normed = true,
                                              .centered = true,
                                              .norm = NORM_RMS,
                                              .epsilon = tower->epsilon};
    return STATUS_OK;
}

static enum status read_gemma3(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    struct gemma3_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e) || read_text(config, &keys, e)) return e->status;
    if (json_is_absent(keys.vision))
        keys.spec.picture.together = 0;
    else if (read_vision(&keys, e))
        return e->status;
    *spec = keys.spec;
    return spec_check(spec, e);
}

static void inspect_gemma3(const struct weights *weights, struct model_spec *spec) {
    if (weights_find(weights, "lm_head.weight") ||
        weights_find(weights, "language_model.lm_head.weight"))
        spec->tied = false;
    huggingface_drop_absent_tower(weights, "vision_tower.", spec);
}

/* The tower's head is not read. */
static bool ignore_unread(const char *name) {
    return huggingface_ignores_extras(name) || strstr(name, "position_ids") ||
           strstr(name, "vision_model.head.") || strstr(name, "vision_tower.head.");
}

static const struct tensor_row rows[] = {
    {.place = offsetof(struct model, projector.norm),
     .names = {"multi_modal_projector.mm_soft_emb_norm.*",
               "model.multi_modal_projector.mm_soft_emb_norm.*"}},
    {.place = offsetof(struct model, projector.fc1),
     .names = {"multi_modal_projector.mm_input_projection_weight",
               "model.multi_modal_projector.mm_input_projection_weight"},
     .transposed = true},
};

const struct family family_gemma3 = {
    .model_type = "gemma3",
    .read = read_gemma3,
    .inspect = inspect_gemma3,
    .outer = {{NULL}, rows, ARRAY_COUNT(rows)},
    .ignores = ignore_unread,
};
