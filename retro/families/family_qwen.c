/* retro/families/family_qwen.c: Qwen2 and Qwen3 as Hugging Face stores them: as Llama, with biases on queries, keys and
 * values (2) or norms of each head's queries and keys (3), and a window in the last layers. */
#include "retro/families/huggingface.h"

/* The values of absent keys. */
static void start_qwen(struct huggingface_decoder *k) {
    struct dims *d = &k->spec.stacks[STACK_DECODER];
    d->kv_heads = 32;
    d->epsilon = 1e-6f;
    d->activation = ACTIVATION_SILU;
    k->rope.base = 10000;
    k->spec.window = 4096;
    k->max_window_layers = 28;
}

static enum status read_qwen(const struct json *config, struct huggingface_decoder *k, struct error *e) {
    struct dims *d = &k->spec.stacks[STACK_DECODER];
    if (huggingface_read_decoder(config, k, e)) return e->status;
    if (!k->use_window) k->spec.window = 0;
    if (!json_is_absent(k->layer_types)) return huggingface_read_layer_types(k, e);
    for (int i = k->max_window_layers; i < d->n_layers; i++) k->spec.windowed[i] = k->spec.window > 0;
    return STATUS_OK;
}

/* No key decides on Qwen2's biases. */
enum status huggingface_read_qwen2(const struct json *config, struct huggingface_decoder *k, struct error *e) {
    if (read_qwen(config, k, e)) return e->status;
    dims_set_bias(&k->spec.stacks[STACK_DECODER], false);
    k->spec.stacks[STACK_DECODER].qkv_bias = true;
    return STATUS_OK;
}

static enum status read_qwen2(const struct json *config, struct model_spec *s, struct error *e) {
    struct huggingface_decoder k = {.spec = *s};
    start_qwen(&k);
    if (huggingface_read_qwen2(config, &k, e)) return e->status;
    *s = k.spec;
    return STATUS_OK;
}

static enum status read_qwen3(const struct json *config, struct model_spec *s, struct error *e) {
    struct huggingface_decoder k = {.spec = *s};
    k.spec.stacks[STACK_DECODER].head_dim = 128;
    start_qwen(&k);
    if (read_qwen(config, &k, e)) return e->status;
    k.spec.stacks[STACK_DECODER].mlp_bias = false;
    k.spec.stacks[STACK_DECODER].qk_norm = QK_NORM_HEAD;
    *s = k.spec;
    return STATUS_OK;
}
const struct family family_qwen2 = {
    HUGGINGFACE_DECODER("qwen2", read_qwen2, huggingface_layer, huggingface_layer_rows)};

const struct family family_qwen3 = {
    HUGGINGFACE_DECODER("qwen3", read_qwen3, huggingface_layer, huggingface_layer_rows)};
