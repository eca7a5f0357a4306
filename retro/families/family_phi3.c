/* retro/families/family_phi3.c: Phi-3 as Hugging Face stores it: as Llama, with Q, K and V in one
 * matrix, gate and up in another, rotary positions on a part of each head, longrope, and a window
 * in all layers. */
#include "retro/families/huggingface.h"

static enum status read_phi3(const struct json *config, struct model_spec *spec, struct error *e) {
    struct huggingface_decoder decoder = {.spec = *spec};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    decoder.rope =
        (struct rope_rules){.base = 10000, .partial = 1, .original = 4096, .renames_yarn = true};
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    dims_set_bias(dims, false);
    for (int i = 0; i < dims->n_layers; i++) decoder.spec.windowed[i] = true;
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .names = {"self_attn.qkv_proj.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, fc1), .names = {"mlp.gate_up_proj.*"}},
    {.place = offsetof(struct layer, fc2), .names = {"mlp.down_proj.*"}},
};

const struct family family_phi3 = {
    HUGGINGFACE_DECODER("phi3", read_phi3, huggingface_layer, layer_rows)};
