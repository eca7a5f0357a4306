/* retro/families/family_olmo2.c: OLMo 2 and 3 as Hugging Face stores them: as Llama, with norms
 * after the branches in place of those before, and norms of queries and keys over all heads at
 * once. OLMo 3 has windows in three of four layers, which turn by frequencies of their own. */
#include "retro/families/huggingface.h"

static struct huggingface_decoder start_keys(const struct model_spec *spec,
                                             struct rope_rules rope) {
    struct huggingface_decoder decoder = {.spec = *spec, .rope = rope, .window_pattern = 4};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    return decoder;
}

static void finish_spec(struct huggingface_decoder *decoder, struct model_spec *spec) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    dims->mlp_bias = false;
    dims->qk_norm = QK_NORM_WHOLE;
    *spec = decoder->spec;
}

static enum status read_olmo2(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = start_keys(spec, (struct rope_rules){.base = 10000});
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    decoder.spec.window = 0;
    finish_spec(&decoder, spec);
    return STATUS_OK;
}

/* transformers 5 gives windowed layers the base 500000 where the file has words of transformers 4,
 * whatever its rope_theta; published files have that number. */
static enum status read_olmo3(const struct json *config, struct model_spec *spec, struct error *e) {
    struct rope_rules rope = {.base = 500000, .local_base = 500000, .local_fixed = true};
    struct huggingface_decoder decoder = start_keys(spec, rope);
    decoder.spec.window = 4096;
    if (huggingface_read_decoder(config, &decoder, e) || huggingface_read_windows(&decoder, e))
        return e->status;
    finish_spec(&decoder, spec);
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    HUGGINGFACE_NORMED_BEHIND_ROWS,
};

const struct family family_olmo2 = {
    HUGGINGFACE_DECODER("olmo2", read_olmo2, huggingface_layer, layer_rows)};

const struct family family_olmo3 = {
    HUGGINGFACE_DECODER("olmo3", read_olmo3, huggingface_local_layer, layer_rows)};
