/* retro/families/family_qwen3_5.c: the text part of Qwen3.5 as Hugging Face stores it: as
 * Qwen3-Next (family_qwen3_next.c), with plain MLPs or with experts, alone or as the text_config of
 * a model with a vision tower, which is not read. */
#include "retro/families/huggingface.h"

static const struct huggingface_sizes dense_sizes = {248320, 32, 4096, 4, 12288, 0, 0},
                                      expert_sizes = {248320, 40, 2048, 2, 512, 256, 8};

struct nested_keys {
    const struct json *text; /* text_config */
    bool tied;
};

#define AT_KEYS(member) JSON_AT(struct nested_keys, member)
static const struct json_field outer_fields[] = {{"text_config", JSON_RAW, AT_KEYS(text)},
                                                 {"tie_word_embeddings", JSON_BOOL, AT_KEYS(tied)}};
static const struct json_table outer_table = JSON_TABLE(outer_fields, .open = true);

static enum status read_nested(const struct json *config, const struct huggingface_sizes *usual,
                               const struct family *text, struct model_spec *spec,
                               struct error *e) {
    struct nested_keys keys = {0};
    if (spec_read(config, &outer_table, &keys, e)) return e->status;
    if (huggingface_read_delta(keys.text, usual, spec, e)) return error_prefix(e, "text_config");
    spec->tied = spec->tied || keys.tied;
    spec->parts[STACK_DECODER] =
        (struct model_part){text, {"", "model.language_model.", "language_model."}};
    return STATUS_OK;
}

static enum status read_text(const struct json *config, struct model_spec *spec, struct error *e) {
    return huggingface_read_delta(config, &dense_sizes, spec, e);
}
static enum status read_moe_text(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    return huggingface_read_delta(config, &expert_sizes, spec, e);
}
static enum status read_dense(const struct json *config, struct model_spec *spec, struct error *e) {
    return read_nested(config, &dense_sizes, &family_qwen3_5_text, spec, e);
}
static enum status read_moe(const struct json *config, struct model_spec *spec, struct error *e) {
    return read_nested(config, &expert_sizes, &family_qwen3_5_moe_text, spec, e);
}

const struct family family_qwen3_5_text = {
    HUGGINGFACE_DELTA_DECODER("qwen3_5_text", read_text, huggingface_delta_rows)};
const struct family family_qwen3_5_moe_text = {
    HUGGINGFACE_DELTA_DECODER("qwen3_5_moe_text", read_moe_text, huggingface_delta_rows)};
const struct family family_qwen3_5 = {.model_type = "qwen3_5",
                                      .read = read_dense,
                                      .inspect = huggingface_find_output,
                                      .ignores = huggingface_ignores_foretelling};
const struct family family_qwen3_5_moe = {.model_type = "qwen3_5_moe",
                                          .read = read_moe,
                                          .inspect = huggingface_find_output,
                                          .ignores = huggingface_ignores_foretelling};
