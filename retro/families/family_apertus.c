/* retro/families/family_apertus.c: Apertus as Hugging Face stores it: as Llama, with norms of each
 * head's queries and keys, and an MLP without gate, whose activation is xIELU with numbers of each
 * layer's own. */
#include "retro/families/huggingface.h"

static enum status read_apertus(const struct json *config, struct model_spec *spec,
                                struct error *e) {
    struct huggingface_decoder decoder = {
        .spec = *spec, .rope = {.base = 12e6}, .may_be_xielu = true};
    struct dims *dims = &decoder.spec.stacks[STACK_DECODER];
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_NONE;
    dims->xielu = true;
    if (json_is_absent(json_member(config, "rope_parameters")) &&
        json_is_absent(json_member(config, "rope_scaling")))
        return error_set(e, STATUS_INVALID,
                         "config.json: apertus needs \"rope_parameters\" or \"rope_scaling\"");
    if (huggingface_read_decoder(config, &decoder, e)) return e->status;
    decoder.spec.window = 0;
    dims->mlp_bias = false;
    dims->gated = false;
    dims->qk_norm = QK_NORM_HEAD;
    *spec = decoder.spec;
    return STATUS_OK;
}

static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"attention_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, norm_mlp), .names = {"feedforward_layernorm.*"}},
    HUGGINGFACE_PLAIN_MLP_ROWS,
    {.place = offsetof(struct layer, xielu_positive), .names = {"mlp.act_fn.alpha_p"}},
    {.place = offsetof(struct layer, xielu_negative), .names = {"mlp.act_fn.alpha_n"}},
    {.place = offsetof(struct layer, xielu_slope), .names = {"mlp.act_fn.beta"}},
    {.place = offsetof(struct layer, xielu_least), .names = {"mlp.act_fn.eps"}},
};

const struct family family_apertus = {
    HUGGINGFACE_DECODER("apertus", read_apertus, huggingface_layer, layer_rows)};
