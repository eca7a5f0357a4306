/* retro/families/family_qwen3_vl.c: Qwen3-VL as Hugging Face stores it: Qwen3's decoder, also that
 * with experts, with multimodal RoPE whose pairs take turns, and the tower of family_qwen3_tower.c.
 * The decoder's keys are in a text_config. Without a vision_config, or where the checkpoint has no
 * tensors of the tower, the model reads text alone. */
#include "retro/families/huggingface_vision.h"

/* The values of absent keys of a text_config. */
static void start_text(struct huggingface_decoder *decoder) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    decoder->spec.vocab = 151936;
    decoder->spec.max_positions = 128000;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    decoder->rope = (struct rope_rules){
        .base = 500000, .multimodal = true, .interleaved = true, .sections = {24, 20, 20}};
}

static enum status read_dense(const struct json *text, struct huggingface_decoder *decoder,
                              struct error *e) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    dims->n_layers = dims->heads = dims->kv_heads = 32;
    dims->hidden = 4096;
    dims->head_dim = 128;
    dims->ffn = 22016;
    return huggingface_read_qwen3(text, decoder, e);
}

/* The weights of a row's experts are brought to the sum 1, and no key says so. */
static enum status read_experts(const struct json *text, struct huggingface_decoder *decoder,
                                struct error *e) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    dims->n_layers = 24;
    dims->hidden = 2048;
    dims->heads = dims->kv_heads = 16;
    dims->ffn = 5632;
    dims->experts = 60;
    dims->experts_used = 4;
    dims->expert_ffn = 1408;
    if (huggingface_read_qwen3_moe(text, decoder, e)) return e->status;
    dims->experts_renormalised = true;
    return STATUS_OK;
}

static enum status read_text(struct qwen_vl_keys *keys, bool experts, struct error *e) {
    struct huggingface_decoder decoder = {.spec = keys->spec};
    const struct family *text = experts ? &family_qwen3_turned_moe : &family_qwen3;
    start_text(&decoder);
    if (experts ? read_experts(keys->text, &decoder, e) : read_dense(keys->text, &decoder, e))
        return error_prefix(e, "text_config");
    keys->spec = decoder.spec;
    keys->spec.tied = decoder.spec.tied || keys->tied;
    keys->spec.parts[STACK_DECODER] =
        (struct model_part){text, {"", "model.language_model.", "language_model."}};
    return STATUS_OK;
}

static enum status read_whole(const struct json *config, bool experts, struct model_spec *spec,
                              struct error *e) {
    struct qwen_vl_keys keys = {.spec = *spec};
    const struct family *tower = experts ? &qwen3_moe_tower : &qwen3_tower;
    if (spec_read(config, &qwen_vl_table, &keys, e) || read_text(&keys, experts, e))
        return e->status;
    if (!json_is_absent(keys.vision) && qwen_tower_read(keys.vision, tower, &keys.spec, e))
        return error_prefix(e, "vision_config");
    *spec = keys.spec;
    return spec_check(spec, e);
}

static enum status read_qwen3_vl(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    return read_whole(config, false, spec, e);
}

static enum status read_qwen3_vl_moe(const struct json *config, struct model_spec *spec,
                                     struct error *e) {
    return read_whole(config, true, spec, e);
}

static void find_parts(const struct weights *weights, struct model_spec *spec) {
    huggingface_find_output(weights, spec);
    huggingface_drop_absent_tower(weights, "visual.", spec);
}

const struct family family_qwen3_vl = {
    .model_type = "qwen3_vl",
    .read = read_qwen3_vl,
    .inspect = find_parts,
    .ignores = huggingface_ignores_extras,
};

const struct family family_qwen3_vl_moe = {
    .model_type = "qwen3_vl_moe",
    .read = read_qwen3_vl_moe,
    .inspect = find_parts,
    .ignores = huggingface_ignores_extras,
};
