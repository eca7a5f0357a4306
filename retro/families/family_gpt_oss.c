/* retro/families/family_gpt_oss.c: gpt-oss as Hugging Face stores it: attention with sinks, which
 * alternates between a window and all keys, and in every layer an MLP of experts with biases, whose
 * gates and ups are cut off. As published experts are MXFP4; transformers also writes them as
 * floats, which lie turned. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and one that has no place in the spec. */
struct gpt_oss_keys {
    struct huggingface_decoder decoder;
    float alpha;
};

static const struct json_field fields[] = {
    {"num_local_experts|num_experts", JSON_INT, AT_DECODER(experts), .min = 1, .max = LIMIT_EXPERTS,
     .fallback = 128},
    {"num_experts_per_tok|experts_per_token", JSON_INT, AT_DECODER(experts_used), .min = 1,
     .max = LIMIT_EXPERTS, .fallback = 4},
    {"swiglu_limit", JSON_FLOAT, AT_DECODER(gate_limit), .min = 1e-30, .max = 1e30, .fallback = 7},
    {"swiglu_alpha", JSON_FLOAT, JSON_AT(struct gpt_oss_keys, alpha), .min = 1.7019, .max = 1.7021,
     .fallback = 1.702},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static enum status read_gpt_oss(const struct json *config, struct model_spec *model_spec,
                                struct error *e) {
    struct gpt_oss_keys keys = {.decoder = {.spec = *model_spec,
                                            .rope = {.base = 150000},
                                            .attention_bias = true,
                                            .mxfp4 = true,
                                            .window_pattern = 2}};
    struct model_spec *spec = &keys.decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    dims->kv_heads = 8;
    dims->head_dim = 64;
    dims->epsilon = 1e-5f;
    dims->activation = ACTIVATION_SILU;
    spec->window = 128;
    if (json_is_absent(json_member(config, "rope_parameters")) &&
        json_is_absent(json_member(config, "rope_scaling")))
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: gpt_oss needs \"rope_scaling\" or \"rope_parameters\"");
    if (huggingface_read_decoder(config, &keys.decoder, e) || spec_read(config, &table, &keys, e) ||
        huggingface_read_windows(&keys.decoder, e))
        return e->status;
    dims->activation = ACTIVATION_QUICK_GELU; /* whatever hidden_act says: x sigmoid(1.702 x) */
    dims->gate_shift = 1;
    dims->mlp_bias = false;
    dims->expert_ffn = dims->ffn;
    dims->expert_bias = dims->sinks = true;
    dims->experts_renormalised = true; /* a softmax of the chosen alone is that of all, divided */
    *model_spec = *spec;
    return spec_check(model_spec, e);
}

/* Gate and up take turns in one tensor; GGUF has them apart. */
static const struct tensor_row layer_rows[] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    HUGGINGFACE_ATTENTION_ROWS,
    {.place = offsetof(struct layer, sinks), .names = {"self_attn.sinks"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    {.place = offsetof(struct layer, router), .names = {"mlp.router.*"}},
    {.place = offsetof(struct layer, expert_fc1),
     .part = PART_GATE,
     .names = {"mlp.experts.#.gate_proj.*"}},
    {.place = offsetof(struct layer, expert_fc1),
     .part = PART_UP,
     .names = {"mlp.experts.#.up_proj.*"}},
    {.place = offsetof(struct layer, expert_fc1),
     .part = PART_IN_TURN,
     .names = {"mlp.experts.#.gate_up_proj.*"},
     .transposed = true},
    {.place = offsetof(struct layer, expert_fc2),
     .names = {"mlp.experts.#.down_proj.*"},
     .transposed = true},
};

const struct family family_gpt_oss = {
    HUGGINGFACE_DECODER("gpt_oss", read_gpt_oss, huggingface_layer, layer_rows)};
