/* retro/families/family_qwen3_5.c: Qwen3.5 as Hugging Face stores it: a decoder as Qwen3-Next's
 * (family_qwen3_next.c), with plain MLPs or with experts, alone or as the text_config of a model
 * with the vision tower of family_qwen3_tower.c. Then a row has three positions, by which the
 * rotated part of a head turns in turns; delta nets read rows in their order alone. Without a
 * vision_config, or where the checkpoint has no tensors of the tower, the model reads text alone.
 */
#include "retro/families/huggingface_vision.h"

static const struct huggingface_sizes dense_sizes = {248320, 32, 4096, 4, 12288, 0, 0},
                                      expert_sizes = {248320, 40, 2048, 2, 512, 256, 8};

static const struct rope_rules picture_rope = {.base = 10000,
                                               .partial = 0.25,
                                               .multimodal = true,
                                               .interleaved = true,
                                               .sections = {11, 11, 10}};

static const struct json_field fields[] = {QWEN_VL_FIELDS(248056)};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* The parts of a model, dense or with experts. */
struct qwen3_5_parts {
    const struct huggingface_sizes *usual;
    const struct family *text, *tower;
};

static enum status read_whole(const struct json *config, const struct qwen3_5_parts *parts,
                              struct model_spec *spec, struct error *e) {
    struct qwen_vl_keys keys = {.spec = *spec};
    if (spec_read(config, &table, &keys, e)) return e->status;
    bool sees = !json_is_absent(keys.vision);
    const struct rope_rules *rope = sees ? &picture_rope : &huggingface_delta_rope;
    if (huggingface_read_delta(keys.text, parts->usual, rope, &keys.spec, e))
        return error_prefix(e, "text_config");
    keys.spec.tied = keys.spec.tied || keys.tied;
    keys.spec.parts[STACK_DECODER] =
        (struct model_part){parts->text, {"", "model.language_model.", "language_model."}};
    if (sees && qwen_tower_read(keys.vision, parts->tower, &keys.spec, e))
        return error_prefix(e, "vision_config");
    *spec = keys.spec;
    return spec_check(spec, e);
}

static enum status read_dense(const struct json *config, struct model_spec *spec, struct error *e) {
    static const struct qwen3_5_parts parts = {&dense_sizes, &family_qwen3_5_text, &qwen3_5_tower};
    return read_whole(config, &parts, spec, e);
}
static enum status read_moe(const struct json *config, struct model_spec *spec, struct error *e) {
    static const struct qwen3_5_parts parts = {&expert_sizes, &family_qwen3_5_moe_text,
                                               &qwen3_5_moe_tower};
    return read_whole(config, &parts, spec, e);
}

static enum status read_text(const struct json *config, struct model_spec *spec, struct error *e) {
    return huggingface_read_delta(config, &dense_sizes, &huggingface_delta_rope, spec, e);
}
static enum status read_moe_text(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    return huggingface_read_delta(config, &expert_sizes, &huggingface_delta_rope, spec, e);
}

static void find_parts(const struct weights *weights, struct model_spec *spec) {
    huggingface_find_output(weights, spec);
    huggingface_drop_absent_tower(weights, "visual.", spec);
}

const struct family family_qwen3_5_text = {
    HUGGINGFACE_DELTA_DECODER("qwen3_5_text", read_text, huggingface_delta_rows)};
const struct family family_qwen3_5_moe_text = {
    HUGGINGFACE_DELTA_DECODER("qwen3_5_moe_text", read_moe_text, huggingface_delta_rows)};
const struct family family_qwen3_5 = {.model_type = "qwen3_5",
                                      .read = read_dense,
                                      .inspect = find_parts,
                                      .ignores = huggingface_ignores_foretelling};
const struct family family_qwen3_5_moe = {.model_type = "qwen3_5_moe",
                                          .read = read_moe,
                                          .inspect = find_parts,
                                          .ignores = huggingface_ignores_foretelling};
