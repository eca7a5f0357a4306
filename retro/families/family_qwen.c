/* retro/families/family_qwen.c: Qwen2 and Qwen3 as Hugging Face stores them: as Llama, with biases
 * on queries, keys and values (2) or norms of each head's queries and keys (3), and a window in the
 * last layers. */
#include "retro/families/huggingface.h"

/* The values of absent keys. */
static void start_qwen(struct huggingface_decoder *decoder) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    dims->kv_heads = 32;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
    decoder->rope.base = 10000;
    decoder->spec.window = 4096;
    decoder->max_window_layers = 28;
    decoder->may_look_ahead = true;
}

static enum status read_qwen(const struct json *config, struct huggingface_decoder *decoder,
                             struct error *e) {
    struct dims *dims = &decoder->spec.stacks[STACK_DECODER];
    if (huggingface_read_decoder(config, decoder, e)) return e->status;
    if (!decoder->use_window) decoder->spec.window = 0;
    if (huggingface_refuse_two_windows(&decoder->spec, e)) return e->status;
    if (!json_is_absent(decoder->layer_types))
        return huggingface_read_layer_types(decoder, dims->n_layers, e);
    for (int i = decoder->max_window_layers; i < dims->n_layers; i++)
        decoder->spec.windowed[i] = decoder->spec.window > 0;
    return STATUS_OK;
}

/* No key decides on Qwen2's biases. */
enum status huggingface_read_qwen2(const struct json *config, struct huggingface_decoder *decoder,
                                   struct error *e) {
    if (read_qwen(config, decoder, e)) return e->status;
    dims_set_bias(&decoder->spec.stacks[STACK_DECODER], false);
    decoder->spec.stacks[STACK_DECODER].qkv_bias = true;
    return STATUS_OK;
}

static enum status read_qwen2(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    start_qwen(&decoder);
    if (huggingface_read_qwen2(config, &decoder, e)) return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

enum status huggingface_read_qwen3(const struct json *config, struct huggingface_decoder *decoder,
                                   struct error *e) {
    if (read_qwen(config, decoder, e)) return e->status;
    decoder->spec.stacks[STACK_DECODER].mlp_bias = false;
    decoder->spec.stacks[STACK_DECODER].qk_norm = QK_NORM_HEAD;
    return STATUS_OK;
}

static enum status read_qwen3(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    decoder.spec.stacks[STACK_DECODER].head_dim = 128;
    start_qwen(&decoder);
    if (huggingface_read_qwen3(config, &decoder, e)) return e->status;
    *spec = decoder.spec;
    return STATUS_OK;
}

const struct family family_qwen2 = {
    HUGGINGFACE_DECODER("qwen2", read_qwen2, huggingface_layer, huggingface_layer_rows)};

const struct family family_qwen3 = {
    HUGGINGFACE_DECODER("qwen3", read_qwen3, huggingface_layer, huggingface_layer_rows)};
