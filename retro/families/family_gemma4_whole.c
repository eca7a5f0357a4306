/* retro/families/family_gemma4_whole.c: Gemma 4 with pictures as Hugging Face stores it: the tower
 * of family_gemma4_vision.c, and the decoder of family_gemma4.c, in which the rows of a picture may
 * see each other in layers with a window. Without a vision_config, or without tensors of the tower,
 * the model reads text alone. A tower of sound is not read. */
#include "retro/families/gemma4_layers.h"
#include "retro/families/huggingface_vision.h"

/* The keys of a whole model: its pictures, the end of a text, and whether the output matrix is the
 * word table. */
static const struct json_field whole_fields[] = {
    {"image_token_id", JSON_INT, AT_SPEC(picture.id), .min = 0, .max = LIMIT_IDS,
     .fallback = 258880},
    {.name = "eos_token_id", .type = JSON_PARSED, .parse = huggingface_parse_eos},
    {"tie_word_embeddings", JSON_BOOL, AT_SPEC(tied)},
};
static const struct json_table whole_table = JSON_TABLE(whole_fields, .open = true);

/* The id that pads texts says what a picture's row gives each layer. */
static enum status read_pictures(const struct json *config, const struct json *text,
                                 struct model_spec *spec, struct error *e) {
    static const struct json_field pad_fields[] = {
        {"pad_token_id", JSON_INT, AT_SPEC(picture.stand_in), .min = 0, .max = LIMIT_IDS}};
    static const struct json_table pad_table = JSON_TABLE(pad_fields, .open = true);
    const struct json *vision = json_member(config, "vision_config");
    if (json_is_absent(vision)) return STATUS_OK;
    if (spec_read(text, &pad_table, spec, e)) return error_prefix(e, "text_config");
    if (spec->picture.stand_in >= spec->vocab)
        return error_set(e, STATUS_INVALID, "config.json: \"pad_token_id\" is %d of %d ids",
                         spec->picture.stand_in, spec->vocab);
    if (gemma4_tower.read(vision, spec, e)) return error_prefix(e, "vision_config");
    spec->picture.linked = json_text_is(json_member(text, "use_bidirectional_attention"), "vision");
    spec->parts[STACK_TOWER] =
        (struct model_part){&gemma4_tower, {"model.vision_tower.", "vision_tower."}};
    return STATUS_OK;
}

static enum status read_whole(const struct json *config, struct model_spec *spec, struct error *e) {
    const struct json *text = json_member(config, "text_config");
    if (family_gemma4_text.read(text, spec, e)) return error_prefix(e, "text_config");
    spec->parts[STACK_DECODER] =
        (struct model_part){&family_gemma4_text, {"", "model.language_model.", "language_model."}};
    if (spec_read(config, &whole_table, spec, e) || read_pictures(config, text, spec, e))
        return e->status;
    return spec_check(spec, e);
}

static void inspect_whole(const struct weights *weights, struct model_spec *spec) {
    huggingface_find_output(weights, spec);
    huggingface_drop_absent_tower(weights, "vision_tower.", spec);
}

static const struct tensor_row whole_rows[] = {
    {.place = offsetof(struct model, projector.fc1),
     .names = {"embed_vision.embedding_projection.*", "model.embed_vision.embedding_projection.*"}},
};

const struct family family_gemma4 = {
    .model_type = "gemma4",
    .read = read_whole,
    .inspect = inspect_whole,
    .outer = {{NULL}, whole_rows, ARRAY_COUNT(whole_rows)},
    .ignores = gemma4_ignores,
};
