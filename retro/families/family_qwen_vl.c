/* retro/families/family_qwen_vl.c: Qwen2-VL and Qwen2.5-VL as Hugging Face stores them: Qwen2's
 * decoder with multimodal RoPE, and the tower of family_qwen_tower.c. The decoder's keys are in a
 * text_config, or, as older folders have them, beside the vision_config. Without a vision_config
 * the model reads text alone. */
#include "retro/families/huggingface_vision.h"

/* The values of absent keys of a text_config; keys beside a vision_config are all there. */
static void start_text(struct huggingface_decoder *decoder, bool nested) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    decoder->rope = (struct rope_rules){.base = 1e6, .multimodal = true, .sections = {16, 24, 24}};
    decoder->spec.max_positions = 32768;
    decoder->spec.window = 4096;
    decoder->max_window_layers = 80;
    if (!nested) return;
    decoder->spec.vocab = 152064;
    decoder->spec.eod = 151645;
    dims->n_layers = 80;
    dims->hidden = 8192;
    dims->heads = 64;
    dims->ffn = 29568;
}

static enum status read_text(const struct json *config, struct qwen_vl_keys *keys,
                             struct error *e) {
    bool nested = !json_is_absent(keys->text);
    struct huggingface_decoder decoder = {.spec = keys->spec};
    start_text(&decoder, nested);
    if (huggingface_read_qwen2(nested ? keys->text : config, &decoder, e))
        return nested ? error_prefix(e, "text_config") : e->status;
    keys->spec = decoder.spec;
    keys->spec.tied = decoder.spec.tied || keys->tied;
    keys->spec.parts[STACK_DECODER] =
        (struct model_part){&family_qwen2, {"", "model.language_model.", "language_model."}};
    return STATUS_OK;
}

static enum status read_qwen_vl(const struct json *config, const struct family *tower,
                                struct model_spec *spec, struct error *e) {
    struct qwen_vl_keys keys = {.spec = *spec};
    if (spec_read(config, &qwen_vl_table, &keys, e) || read_text(config, &keys, e))
        return e->status;
    if (!json_is_absent(keys.vision) && qwen_tower_read(keys.vision, tower, &keys.spec, e))
        return error_prefix(e, "vision_config");
    *spec = keys.spec;
    return spec_check(spec, e);
}

static enum status read_qwen2_vl(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    return read_qwen_vl(config, &qwen2_tower, spec, e);
}

static enum status read_qwen2_5_vl(const struct json *config, struct model_spec *spec,
                                   struct error *e) {
    return read_qwen_vl(config, &qwen2_5_tower, spec, e);
}

const struct family family_qwen2_vl = {
    .model_type = "qwen2_vl",
    .read = read_qwen2_vl,
    .inspect = huggingface_find_output,
    .ignores = huggingface_ignores_extras,
};

const struct family family_qwen2_5_vl = {
    .model_type = "qwen2_5_vl",
    .read = read_qwen2_5_vl,
    .inspect = huggingface_find_output,
    .ignores = huggingface_ignores_extras,
};
