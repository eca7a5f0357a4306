/* retro/families/family_gpt_neox.c: GPT-NeoX and Pythia as Hugging Face stores them: LayerNorm,
 * biases, rotary positions on a part of each head, Q, K and V of a head beside each other, and
 * attention and MLP in parallel or one after the other. */
#include "retro/families/huggingface.h"

static const struct json_field fields[] = {
    {"layer_norm_eps", JSON_FLOAT, AT_DECODER(epsilon), .fallback = 1e-5},
    {"use_parallel_residual", JSON_BOOL, AT_DECODER(parallel), .fallback = true},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_neox(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec,
        .rope = {.base = 10000, .partial = 0.25, .neox_names = true},
        .attention_bias = true};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1; /* read below */
    dims->activation = ACTIVATION_GELU_ERF;
    if (huggingface_read_decoder(config, &decoder, e) ||
        spec_read(config, &table, &decoder.spec, e))
        return e->status;
    if (dims->heads * dims->head_dim != dims->hidden || dims->kv_heads != dims->heads)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"head_dim\" %d and \"num_key_value_heads\" %d: the %d "
                         "heads of gpt_neox fill the "
                         "hidden size %d, and each has its own keys and values",
                         dims->head_dim, dims->kv_heads, dims->heads, dims->hidden);
    dims->norm = NORM_LAYER;
    dims->gated = false;
    dims->mlp_bias = true;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return spec_check(spec, e);
}

/* transformers 5 calls the output matrix lm_head. GPTNeoXModel writes no prefix. */
static const struct tensor_row outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"gpt_neox.embed_in.weight", "embed_in.weight"}},
    {.place = offsetof(struct model, stacks[STACK_DECODER].final_norm),
     .names = {"gpt_neox.final_layer_norm.*", "final_layer_norm.*"}},
    {.place = offsetof(struct model, output), .names = {"embed_out.*", "lm_head.*"}},
};

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv),
     .part = PART_BY_HEAD,
     .names = {"attention.query_key_value.*"}},
    {.place = offsetof(struct layer, proj), .names = {"attention.dense.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.dense_h_to_4h.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.dense_4h_to_h.*"}},
};

/* Old checkpoints hold the causal mask and the frequencies in every layer. */
static bool ignore_buffers(const char *name) {
    return huggingface_ends_with(name, ".attention.bias") ||
           huggingface_ends_with(name, ".attention.masked_bias") ||
           huggingface_ignores_extras(name);
}

const struct family family_gpt_neox = {
    .model_type = "gpt_neox",
    .read = read_neox,
    .inspect = huggingface_find_output,
    .layer = huggingface_layer,
    .stacks[STACK_DECODER] = {{"gpt_neox.layers.#.", "layers.#."},
                              layer_rows,
                              ARRAY_COUNT(layer_rows)},
    .outer = {{NULL}, outer_rows, ARRAY_COUNT(outer_rows)},
    .ignores = ignore_buffers,
};
