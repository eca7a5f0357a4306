/* retro/families/family_seed_oss.c: Seed-OSS as Hugging Face stores it: as Llama, with biases on
 * queries, keys and values, and a key of its own for that of attention's output. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {
    {"attention_out_bias", JSON_BOOL, AT_DECODER(proj_bias)},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_seed_oss(const struct json *config, struct model_spec *spec,
                                 struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 10000}, .attention_bias = true};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->head_dim = 128;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims->proj_bias = false;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return spec_read(config, &table, spec, e);
}

const struct family family_seed_oss = {
    HUGGINGFACE_DECODER("seed_oss", read_seed_oss, huggingface_layer, huggingface_layer_rows)};
