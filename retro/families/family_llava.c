/* retro/families/family_llava.c: LLaVA as Megatron-Core has it (docs/spec/vision-model.md 5): a
 * tower, a projector and a GPT, each with the tensors that it has alone behind a name of its own.
 */
#include "retro/families/vision.h"

#include <string.h>

/* The spec, and keys that have no place in it. */
struct llava_keys {
    struct model_spec spec;
    const struct json *language, *vision, *projector, *tags;
    bool shuffles;
};

static const struct json_field fields[] = {
    {"language", JSON_RAW, JSON_AT(struct llava_keys, language)},
    {"vision", JSON_RAW, JSON_AT(struct llava_keys, vision)},
    {"projector", JSON_RAW, JSON_AT(struct llava_keys, projector)},
    {"image_token_index", JSON_INT, AT_SPEC(picture.id), .min = -LIMIT_IDS, .max = LIMIT_IDS,
     .fallback = -200},
    {"drop_vision_class_token", JSON_BOOL, AT_SPEC(tower.drops_class)},
    {"pixel_shuffle", JSON_BOOL, JSON_AT(struct llava_keys, shuffles)},
    {"tile_tags", JSON_RAW, JSON_AT(struct llava_keys, tags)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* Lists of ids, all of one length: those of tiles 1, 2, ..., then the thumbnail's. */
static enum status read_tags(const struct json *list, struct model_spec *spec, struct error *e) {
    struct picture_spec *picture_spec = &spec->picture;
    if (json_is_absent(list)) return STATUS_OK;
    size_t n = json_count(list), length = json_count(json_item(list, 0));
    if (n < 1 || n > MAX_TILES || length < 1 || length > MAX_TILE_TAG)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"tile_tags\" are %zu lists of %zu ids, allowed is 1 .. %d "
                         "lists of 1 .. %d",
                         n, length, MAX_TILES, MAX_TILE_TAG);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < length; j++) {
            const struct json *tag = json_item(list, i), *id = json_item(tag, j);
            if (json_count(tag) != length || !json_is_int(id) || json_int(id) < 0 ||
                json_int(id) >= spec->vocab)
                return error_set(
                    e, STATUS_INVALID,
                    "config.json: \"tile_tags\" [%zu] is no list of %zu ids of the vocabulary", i,
                    length);
            picture_spec->tags[i][j] = (int32_t)json_int(id);
        }
    picture_spec->n_tags = (int)n;
    picture_spec->tag_length = (int)length;
    return STATUS_OK;
}

/* The family of a part, by its own key. */
static const struct family *find_tower(const struct json *vision) {
    const char *name = json_text(json_member(vision, "architecture")).text;
    const struct family *towers[] = {&family_clip_vit, &family_radio_vit};
    for (size_t i = 0; i < ARRAY_COUNT(towers); i++)
        if (name && strcmp(towers[i]->architecture, name) == 0) return towers[i];
    return NULL;
}

static enum status read_llava(const struct json *config, struct model_spec *spec, struct error *e) {
    struct llava_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;
    const struct json *parts[] = {keys.language, keys.vision, keys.projector};
    static const char *const names[] = {"language", "vision", "projector"};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        if (json_kind(parts[i]) != JSON_KIND_OBJECT)
            return error_set(e, STATUS_INVALID,
                             "config.json: \"%s\" of a llava is an object of its keys, not %s",
                             names[i], json_kind_name(parts[i]));
    struct tower_spec wanted = keys.spec.tower;
    const struct family *tower = find_tower(keys.vision);
    if (tower == NULL)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"vision\" has no \"architecture\" that is clip_vit or radio_vit");
    if (tower->read(keys.vision, &keys.spec, e) || family_gpt.read(keys.language, &keys.spec, e) ||
        megatron_read_projector(keys.projector, &keys.spec.projector, e) ||
        read_tags(keys.tags, &keys.spec, e))
        return e->status;

    keys.spec.tower.drops_class = wanted.drops_class && keys.spec.tower.class_tokens > 0;
    keys.spec.tower.shuffle = keys.shuffles ? 2 : 1;
    keys.spec.parts[STACK_DECODER] = (struct model_part){&family_gpt, {"language_model."}};
    keys.spec.parts[STACK_TOWER] = (struct model_part){tower, {"vision_model."}};
    *spec = keys.spec;
    return spec_check(spec, e);
}

/* As of GPT, the checkpoint tells. */
static void inspect_llava(const struct weights *weights, struct model_spec *spec) {
    spec->stacks[STACK_DECODER].final_norm =
        weights_find(weights, "language_model.decoder.final_layernorm.weight") != NULL;
}

static const struct tensor_row rows[] = {MEGATRON_PROJECTOR_ROWS("vision_projection.encoder.")};

const struct family family_llava_mcore = {
    .architecture = "llava",
    .read = read_llava,
    .inspect = inspect_llava,
    .outer = {{NULL}, rows, ARRAY_COUNT(rows)},
    .ignores = megatron_ignores_vision,
};
