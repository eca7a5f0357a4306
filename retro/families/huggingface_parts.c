/* retro/families/huggingface_parts.c: models of a tower, a projector and a decoder as Hugging Face
 * stores them, such as LLaVA: their text_config and vision_config. */
#include <string.h>

#include "retro/families/huggingface_vision.h"

/* The sizes that transformers leaves out of a text_config: they are those of its class. */
static void start_sizes(struct model_spec *spec, const struct family *family) {
    struct dims *dims = &spec->stacks[STACK_DECODER];
    bool llama = family == &family_llama;
    if (!llama && family != &family_mistral) return;
    spec->vocab = 32000;
    dims->n_layers = 32;
    dims->hidden = 4096;
    dims->heads = 32;
    dims->ffn = llama ? 11008 : 14336;
}

/* transformers' classes take the decoder without what stands behind its output matrix: neither a
 * soft-cap nor a scale of logits. Granite multiplies rows of pictures as it does those of words. */
static enum status fit_decoder(const struct json *config, struct model_spec *spec,
                               struct error *e) {
    bool multiplies = !json_is_absent(json_member(config, "embedding_multiplier"));
    spec->logit_scale = 1;
    spec->logit_cap = 0;
    if (!multiplies || spec->embedding_scale == 1) return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "config.json: \"embedding_multiplier\" is %g beside a vision tower, whose rows "
        "it would multiply; 1 is supported there",
        (double)spec->embedding_scale);
}

enum status huggingface_read_text(const struct json *config, const struct family *usual,
                                  struct model_spec *spec, struct error *e) {
    const char *type = json_text(json_member(config, "model_type")).text;
    const struct family *family = type ? family_of_type(type) : usual;
    if (family == NULL || family->stacks[STACK_DECODER].n == 0 ||
        family->stacks[STACK_ENCODER].n > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"text_config\" has \"model_type\" \"%.60s\"; it must be a "
                         "decoder that is supported alone",
                         type);
    start_sizes(spec, family);
    if (family->read(config, spec, e) || fit_decoder(config, spec, e))
        return error_prefix(e, "text_config");
    spec->parts[STACK_DECODER] =
        (struct model_part){family, {"language_model.", "model.language_model.", ""}};
    return STATUS_OK;
}

enum status huggingface_read_vision(const struct json *config, const char *usual,
                                    struct model_spec *spec, struct error *e) {
    const char *type = json_text(json_member(config, "model_type")).text;
    const struct family *tower = huggingface_find_tower(type ? type : usual);
    if (tower == NULL)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"vision_config\" has \"model_type\" \"%.60s\"; clip_vision_model, "
            "siglip_vision_model and pixtral are supported",
            type);
    if (tower->read(config, spec, e)) return error_prefix(e, "vision_config");
    spec->stacks[STACK_TOWER].final_norm = false; /* of the tower's head */
    spec->parts[STACK_TOWER] =
        (struct model_part){tower,
                            {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                             "model.vision_tower.", "vision_tower."}};
    return STATUS_OK;
}

/* From the end where the number is negative: 0 is what enters the first layer. */
enum status huggingface_read_feature_layer(const struct json *config, int usual,
                                           struct model_spec *spec, struct error *e) {
    int n = spec->stacks[STACK_TOWER].n_layers;
    bool absent = json_is_absent(config);
    if (!absent && !json_is_int(config))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"vision_feature_layer\" must be one number");
    int64_t i = absent ? usual : json_int(config), layers = i < 0 ? n + 1 + i : i;
    if (layers < 1 || layers > n)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"vision_feature_layer\" is %lld, the tower has %d layers",
                         (long long)i, n);
    spec->tower.layers = (int)layers;
    return STATUS_OK;
}

void huggingface_find_nested_output(const struct weights *weights, struct model_spec *spec) {
    if (weights_find(weights, "lm_head.weight") ||
        weights_find(weights, "language_model.lm_head.weight"))
        spec->tied = false;
}

bool huggingface_ignores_tower_heads(const char *name) {
    return huggingface_ignores_extras(name) || strstr(name, ".post_layernorm.") ||
           strstr(name, "position_ids") || strstr(name, "vision_model.head.") ||
           strstr(name, "vision_tower.head.");
}
