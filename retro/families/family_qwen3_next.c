/* retro/families/family_qwen3_next.c: Qwen3-Next as Hugging Face stores it, and what Qwen3.5 shares
 * with it: gated delta nets in most layers, gated attention with partial RoPE in the others, norms
 * around one, experts beside a shared one. Qwen3-Next has one product in order of heads before each
 * delta net, Qwen3.5 (family_qwen3_5.c) has it in parts. */
#include <string.h>

#include "retro/families/huggingface.h"

struct delta_keys {
    struct huggingface_decoder decoder;
    int interval;             /* every so many layers has attention, where layer_types is silent */
    int sparse_step;          /* every so many layers has experts */
    const struct json *dense; /* mlp_only_layers: numbers of layers without */
};

#define AT_DELTA(member) AT_DECODER(state.member)
#define AT_KEYS(member) JSON_AT(struct delta_keys, member)
static const struct json_field fields[] = {
    {"linear_num_key_heads", JSON_INT, AT_DELTA(key_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 16},
    {"linear_num_value_heads", JSON_INT, AT_DELTA(value_heads), .min = 1, .max = LIMIT_HEADS,
     .fallback = 32},
    {"linear_key_head_dim", JSON_INT, AT_DELTA(key_dim), .min = 1, .max = DELTA_MAX_HEAD,
     .fallback = 128},
    {"linear_value_head_dim", JSON_INT, AT_DELTA(value_dim), .min = 1, .max = DELTA_MAX_HEAD,
     .fallback = 128},
    {"linear_conv_kernel_dim", JSON_INT, AT_DELTA(kernel), .min = 1, .max = DELTA_MAX_KERNEL,
     .fallback = 4},
    {"full_attention_interval", JSON_INT, AT_KEYS(interval), .min = 1, .max = MAX_LAYERS,
     .fallback = 4},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

static const struct json_field expert_fields[] = {
    {"num_experts|num_local_experts", JSON_INT, AT_DECODER(experts), .min = 1,
     .max = LIMIT_EXPERTS},
    {"num_experts_per_tok", JSON_INT, AT_DECODER(experts_used), .min = 1, .max = LIMIT_EXPERTS},
    {"moe_intermediate_size", JSON_INT, AT_DECODER(expert_ffn), .min = 1, .max = LIMIT_FFN,
     .fallback = 512},
    {"shared_expert_intermediate_size", JSON_INT, AT_DECODER(shared_ffn), .min = 1,
     .max = LIMIT_FFN, .fallback = 512},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised)},
    {"decoder_sparse_step", JSON_INT, AT_KEYS(sparse_step), .min = 1, .max = MAX_LAYERS,
     .fallback = 1},
    {"mlp_only_layers", JSON_RAW, AT_KEYS(dense)},
};
static const struct json_table expert_table = JSON_TABLE(expert_fields, .open = true);

static const struct huggingface_sizes next_sizes = {151936, 48, 2048, 2, 5632, 512, 10};

const struct rope_rules huggingface_delta_rope = {
    .base = 10000, .partial = 0.25, .reads_text = true};

static void start_keys(struct delta_keys *keys, const struct huggingface_sizes *usual) {
    struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    keys->decoder.spec.vocab = usual->vocab;
    dims->n_layers = usual->layers;
    dims->hidden = usual->hidden;
    dims->heads = 16;
    dims->kv_heads = usual->kv_heads;
    dims->ffn = usual->ffn;
    dims->experts = usual->experts;
    dims->experts_used = usual->used;
    dims->experts_renormalised = true;
    dims->head_dim = 256;
    dims->state.mixer = MIXER_DELTA;
    dims->epsilon = 1e-6f;
    dims->activation = ACTIVATION_SILU;
}

static enum status read_layers(struct delta_keys *keys, struct error *e) {
    static const char *const names[] = {"linear_attention", NULL};
    struct model_spec *spec = &keys->decoder.spec;
    if (!json_is_absent(keys->decoder.layer_types))
        return huggingface_read_mixers(&keys->decoder, names, MIXER_DELTA, e);
    for (int i = 0; i < spec->stacks[STACK_DECODER].n_layers; i++)
        spec->mixers[i] = (i + 1) % keys->interval != 0 ? MIXER_DELTA : MIXER_ATTENTION;
    return STATUS_OK;
}

static enum status read_experts(const struct json *config, struct delta_keys *keys,
                                struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    if (spec_read(config, &expert_table, keys, e)) return e->status;
    dims->shared_gated = true;
    return huggingface_read_dense(spec, keys->sparse_step, keys->dense, e);
}

static enum status read_decoder(const struct json *config, struct delta_keys *keys,
                                const struct huggingface_sizes *usual, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    start_keys(keys, usual);
    if (huggingface_read_decoder(config, &keys->decoder, e) || spec_read(config, &table, keys, e) ||
        read_layers(keys, e) || (usual->experts > 0 && read_experts(config, keys, e)))
        return e->status;
    if (dims->activation != ACTIVATION_SILU)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"hidden_act\" must be silu, for the delta nets' sake");
    dims->zero_centered_gamma = true;
    dims->head_gate = dims->head_dim;
    dims->qk_norm = QK_NORM_HEAD;
    dims->mlp_bias = false;
    spec->window = 0;
    return spec_check(spec, e);
}

enum status huggingface_read_delta(const struct json *config, const struct huggingface_sizes *usual,
                                   const struct rope_rules *rope, struct model_spec *spec,
                                   struct error *e) {
    struct delta_keys keys = {.decoder = {.spec = *spec, .rope = *rope}};
    if (read_decoder(config, &keys, usual, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

static enum status read_next(const struct json *config, struct model_spec *spec, struct error *e) {
    return huggingface_read_delta(config, &next_sizes, &huggingface_delta_rope, spec, e);
}

bool huggingface_ignores_foretelling(const char *name) {
    return strncmp(name, "mtp.", 4) == 0 || huggingface_ignores_extras(name);
}

bool huggingface_ignores_tower(const char *name) {
    return strncmp(name, "model.visual.", 13) == 0 || huggingface_ignores_foretelling(name);
}

const struct tensor_row huggingface_delta_rows[HUGGINGFACE_DELTA_LAYER_ROWS] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_Q_GATE, .names = {"self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_K, .names = {"self_attn.k_proj.*"}},
    {.place = offsetof(struct layer, qkv), .part = PART_V, .names = {"self_attn.v_proj.*"}},
    {.place = offsetof(struct layer, norm_q), .names = {"self_attn.q_norm.*"}},
    {.place = offsetof(struct layer, norm_k), .names = {"self_attn.k_norm.*"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.*"}},
    HUGGINGFACE_DELTA_ROWS("linear_attn"),
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, shared_gate), .names = {"mlp.shared_expert_gate.*"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_expert"),
};

const struct family family_qwen3_next = {
    HUGGINGFACE_DELTA_DECODER("qwen3_next", read_next, huggingface_delta_rows)};
