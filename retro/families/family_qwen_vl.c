/* retro/families/family_qwen_vl.c: Qwen2-VL and Qwen2.5-VL as Hugging Face stores them: Qwen2's decoder with multimodal
 * RoPE, and the tower of family_qwen_tower.c. The decoder's keys are in a text_config, or, as older folders have them,
 * beside the vision_config. Without a vision_config the model reads text alone. */
#include "retro/families/huggingface_vision.h"

/* Keys of the whole model. */
struct qwen_vl_keys {
    struct model_spec spec;
    const struct json *text, *vision;
    bool tied;
};

#define AT_KEYS(member) JSON_AT(struct qwen_vl_keys, member)
static const struct json_field fields[] = {
    {"text_config", JSON_RAW, AT_KEYS(text)},
    {"vision_config", JSON_RAW, AT_KEYS(vision)},
    {"image_token_id", JSON_INT, AT_SPEC(picture.id), .min = 0, .max = LIMIT_IDS, .fallback = 151655},
    {"tie_word_embeddings", JSON_BOOL, AT_KEYS(tied)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* The values of absent keys of a text_config; keys beside a vision_config are all there. */
static void start_text(struct huggingface_decoder *k, bool nested) {
    struct dims *d = &k->spec.stacks[STACK_DECODER];
    d->kv_heads = 8;
    d->epsilon = 1e-5f;
    d->activation = ACTIVATION_SILU;
    k->rope = (struct rope_rules){.base = 1e6, .multimodal = true};
    k->spec.max_positions = 32768;
    k->spec.window = 4096;
    k->max_window_layers = 80;
    if (!nested) return;
    k->spec.vocab = 152064;
    k->spec.eod = 151645;
    d->n_layers = 80;
    d->hidden = 8192;
    d->heads = 64;
    d->ffn = 29568;
}

static enum status read_text(const struct json *config, struct qwen_vl_keys *keys, struct error *e) {
    bool nested = !json_is_absent(keys->text);
    struct huggingface_decoder k = {.spec = keys->spec};
    start_text(&k, nested);
    if (huggingface_read_qwen2(nested ? keys->text : config, &k, e))
        return nested ? error_prefix(e, "text_config") : e->status;
    keys->spec = k.spec;
    keys->spec.tied = k.spec.tied || keys->tied;
    keys->spec.parts[STACK_DECODER] =
        (struct model_part){&family_qwen2, {"", "model.language_model.", "language_model."}};
    return STATUS_OK;
}

static enum status read_qwen_vl(const struct json *config, bool newer, struct model_spec *s, struct error *e) {
    struct qwen_vl_keys k = {.spec = *s};
    if (spec_read(config, &table, &k, e) || read_text(config, &k, e)) return e->status;
    if (!json_is_absent(k.vision) && qwen_tower_read(k.vision, newer, &k.spec, e))
        return error_prefix(e, "vision_config");
    *s = k.spec;
    return spec_check(s, e);
}

static enum status read_qwen2_vl(const struct json *config, struct model_spec *s, struct error *e) {
    return read_qwen_vl(config, false, s, e);
}

static enum status read_qwen2_5_vl(const struct json *config, struct model_spec *s, struct error *e) {
    return read_qwen_vl(config, true, s, e);
}

const struct family family_qwen2_vl = {
    .model_type = "qwen2_vl",
    .read = read_qwen2_vl,
    .inspect = huggingface_find_output,
    .ignores = huggingface_ignore_frequencies,
};

const struct family family_qwen2_5_vl = {
    .model_type = "qwen2_5_vl",
    .read = read_qwen2_5_vl,
    .inspect = huggingface_find_output,
    .ignores = huggingface_ignore_frequencies,
};
