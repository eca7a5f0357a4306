/* retro/families/family_glm.c: GLM-4 as Hugging Face stores it ("glm", and "glm4" with norms behind
 * the branches too): as Llama, with gate and up in one matrix, and rotary positions on pairs of
 * neighbours in half of each head. */
#include "retro/families/huggingface.h"

static enum status read_glm(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 10000, .partial = 0.5}, .attention_bias = true};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->kv_heads = 2;
    dims->head_dim = 128;
    dims->epsilon = 1.5625e-7f;
    dims->activation = ACTIVATION_SILU;
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims->proj_bias = dims->mlp_bias = false;
    dims->rope_interleaved = true;
    decoder.spec.window = 0;
    *spec = decoder.spec;
    return STATUS_OK;
}

#define ROWS_OF_BRANCHES \
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}}, \
        HUGGINGFACE_ATTENTION_ROWS, \
        {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}}, \
        {.place = offsetof(struct layer, fc1), .names = {"mlp.gate_up_proj.*"}}, { \
        .place = offsetof(struct layer, fc2), .names = { "mlp.down_proj.*" } \
    }
static const struct tensor_row glm_rows[] = {ROWS_OF_BRANCHES};
static const struct tensor_row glm4_rows[] = {
    ROWS_OF_BRANCHES,
    {.place = offsetof(struct layer, norm_attention), .names = {"post_self_attn_layernorm.*"}},
    {.place = offsetof(struct layer, norm_out), .names = {"post_mlp_layernorm.*"}},
};

const struct family family_glm = {
    HUGGINGFACE_DECODER("glm", read_glm, huggingface_layer, glm_rows)};

const struct family family_glm4 = {
    HUGGINGFACE_DECODER("glm4", read_glm, huggingface_layer, glm4_rows)};
