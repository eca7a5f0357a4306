/* retro/families/huggingface_latent.c: decoders with attention over latents, as DeepSeek-V3's
 * relatives have it; behind the first layers the MLP is one of experts, beside one that all rows
 * use, where the family has experts. See huggingface.h. */
#include "retro/families/huggingface.h"

/* The decoder's keys, and those that have no place in the spec. */
struct latent_keys {
    struct huggingface_decoder decoder;
    const struct huggingface_latent_sizes *usual;
    int first_dense, shared, sigmoid, method;
    const struct json *mlp_types; /* mlp_layer_types */
};
enum { METHOD_GREEDY, METHOD_GROUPS, METHOD_BIAS };

#define AT_KEYS(member) JSON_AT(struct latent_keys, member)
#define SIZE(name, member, most) \
    { name, JSON_INT, AT_DECODER(member), .min = 1, .max = (most) }
static const struct json_choice scorings[] = {{"softmax", false}, {"sigmoid", true}, {NULL, 0}};
static const struct json_choice methods[] = {{"greedy", METHOD_GREEDY},
                                             {"group_limited_greedy", METHOD_GROUPS},
                                             {"noaux_tc", METHOD_BIAS},
                                             {NULL, 0}};
static const struct json_field latent_fields[] = {
    SIZE("kv_lora_rank", latent.rank, ATTENTION_MAX_HEAD),
    SIZE("q_lora_rank", latent.query_rank, LIMIT_WIDTH),
    SIZE("qk_nope_head_dim", latent.plain, ATTENTION_MAX_HEAD),
    SIZE("qk_rope_head_dim", latent.rope, ATTENTION_MAX_HEAD),
    SIZE("v_head_dim", latent.value, ATTENTION_MAX_HEAD),
    {"rope_interleave", JSON_BOOL, AT_DECODER(rope_interleaved)},
    {.name = "mlp_bias", .type = JSON_MUST_BE_FALSE},
};
static const struct json_table latent_table = JSON_TABLE(latent_fields, .open = true);
static const struct json_field fields[] = {
    SIZE("n_routed_experts|num_local_experts|num_experts", experts, LIMIT_EXPERTS),
    SIZE("num_experts_per_tok", experts_used, LIMIT_EXPERTS),
    SIZE("moe_intermediate_size", expert_ffn, LIMIT_FFN),
    SIZE("n_group", router_groups, LIMIT_EXPERTS),
    SIZE("topk_group", router_groups_used, LIMIT_EXPERTS),
    {"n_shared_experts", JSON_INT, AT_KEYS(shared), .min = 1, .max = 64},
    {"norm_topk_prob", JSON_BOOL, AT_DECODER(experts_renormalised)},
    {"routed_scaling_factor", JSON_FLOAT, AT_DECODER(router_scale), .min = 1e-30, .max = 1e30},
    {"first_k_dense_replace", JSON_INT, AT_KEYS(first_dense), .min = 0, .max = MAX_LAYERS},
    {"scoring_func", JSON_CHOICE, AT_KEYS(sigmoid), .choices = scorings},
    {"topk_method", JSON_CHOICE, AT_KEYS(method), .choices = methods},
    {"mlp_layer_types", JSON_RAW, AT_KEYS(mlp_types)},
    {.name = "moe_layer_freq", .type = JSON_NEUTRAL, .min = 1},
};
static const struct json_table table = JSON_TABLE(fields, .open = true);

/* V2's experts are chosen by their scores alone, the others' by a bias too; each has the scores
 * that go with that. */
static enum status check_routing(const struct latent_keys *keys, bool sigmoid, struct error *e) {
    const struct dims *dims = &keys->decoder.spec.stacks[STACK_DECODER];
    if ((keys->method == METHOD_BIAS) != sigmoid || (keys->sigmoid != 0) != sigmoid)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: this family needs \"topk_method\" %s and \"scoring_func\" %s",
            sigmoid ? "noaux_tc" : "greedy or group_limited_greedy",
            sigmoid ? "sigmoid" : "softmax");
    if (!sigmoid && dims->experts_renormalised)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"norm_topk_prob\" is not supported in this family");
    if (keys->method == METHOD_GROUPS && (!dims->router_groups || !dims->router_groups_used))
        return error_set(e, STATUS_INVALID,
                         "config.json: \"topk_method\" group_limited_greedy needs \"n_group\" and "
                         "\"topk_group\"");
    return STATUS_OK;
}

/* The first layers, which have no experts where no list names them. */
static int count_dense(const struct latent_keys *keys) {
    return keys->usual->lists_dense ? keys->usual->first_dense : keys->first_dense;
}

/* A family of one choice names none. */
static enum status read_experts(const struct json *config, struct latent_keys *keys,
                                struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    const bool sigmoid = keys->usual->dims.router_sigmoid, one = keys->usual->one_choice;
    if (spec_read(config, &table, keys, e) || (!one && check_routing(keys, sigmoid, e)) ||
        huggingface_read_mlp_types(spec, keys->mlp_types, count_dense(keys), e))
        return e->status;
    if (!one && keys->method == METHOD_GREEDY) dims->router_groups = dims->router_groups_used = 0;
    dims->router_group_best = !one && keys->method == METHOD_GROUPS ? 1 : 0;
    dims->router_bias = sigmoid;
    dims->shared_ffn = keys->shared * dims->expert_ffn;
    return STATUS_OK;
}

/* Where queries grow, the share of a head that turns is written, of the whole of it. */
static struct rope_rules rope_rules_of(const struct huggingface_latent_sizes *usual,
                                       const struct latent_dims *latent) {
    int whole = latent->plain + latent->rope;
    struct rope_rules rules = {.base = 10000, .rotated = latent->rope, .scales_scores = true};
    rules.grows = usual->grows;
    if (!rules.grows) return rules;
    rules.rotated = whole;
    rules.partial = (double)latent->rope / whole;
    return rules;
}

static enum status check_heads(const struct dims *dims, struct error *e) {
    if (dims->kv_heads != dims->heads)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"num_key_value_heads\" is %d, must be "
                         "\"num_attention_heads\", which is %d",
                         dims->kv_heads, dims->heads);
    if (dims->rotated == dims->latent.rope || dims->latent.rope % 2 != 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: \"partial_rotary_factor\" of the rotary positions makes %d "
                     "dimensions turn, must be "
                     "\"qk_rope_head_dim\", which is %d",
                     dims->rotated, dims->latent.rope);
}

static enum status read_keys(const struct json *config, struct latent_keys *keys, struct error *e) {
    struct model_spec *spec = &keys->decoder.spec;
    struct dims *dims = &spec->stacks[STACK_DECODER];
    const struct latent_dims *latent = &dims->latent;
    const struct json *query_rank = json_member(config, "q_lora_rank");
    if (query_rank && json_is_absent(query_rank)) dims->latent.query_rank = 0;
    if (spec_read(config, &latent_table, keys, e)) return e->status;
    keys->decoder.query_dim = latent->plain + latent->rope;
    keys->decoder.rope = rope_rules_of(keys->usual, latent);
    if (huggingface_read_decoder(config, &keys->decoder, e) ||
        (keys->usual->dims.experts > 0 && read_experts(config, keys, e)) || check_heads(dims, e))
        return e->status;
    dims->kv_heads = 1;
    dims->head_dim = latent->rank + latent->rope;
    spec->window = 0;
    return spec_check(spec, e);
}

enum status huggingface_read_latent(const struct json *config,
                                    const struct huggingface_latent_sizes *usual,
                                    struct model_spec *spec, struct error *e) {
    struct latent_keys keys = {.decoder.spec = *spec,
                               .usual = usual,
                               .first_dense = usual->first_dense,
                               .shared = usual->shared,
                               .sigmoid = usual->dims.router_sigmoid,
                               .method = usual->dims.router_sigmoid ? METHOD_BIAS : METHOD_GREEDY};
    struct dims *dims = &keys.decoder.spec.stacks[STACK_DECODER];
    *dims = usual->dims;
    dims->activation = ACTIVATION_SILU;
    dims->rope_interleaved = true;
    dims->latent.epsilon = 1e-6f; /* whatever rms_norm_eps says */
    if (read_keys(config, &keys, e)) return e->status;
    *spec = keys.decoder.spec;
    return STATUS_OK;
}

const struct tensor_row huggingface_latent_rows[HUGGINGFACE_LATENT_LAYER_ROWS] = {
    {.place = offsetof(struct layer, norm_in), .names = {"input_layernorm.*"}},
    {.place = offsetof(struct layer, latent_query_in), .names = {"self_attn.q_a_proj.*"}},
    {.place = offsetof(struct layer, norm_latent_query), .names = {"self_attn.q_a_layernorm.*"}},
    {.place = offsetof(struct layer, latent_query),
     .names = {"self_attn.q_b_proj.*", "self_attn.q_proj.*"}},
    {.place = offsetof(struct layer, latent_in), .names = {"self_attn.kv_a_proj_with_mqa.*"}},
    {.place = offsetof(struct layer, norm_latent), .names = {"self_attn.kv_a_layernorm.*"}},
    {.place = offsetof(struct layer, latent_keys),
     .part = PART_HEAD_KEYS,
     .names = {"self_attn.kv_b_proj.weight"}},
    {.place = offsetof(struct layer, latent_keys), .names = {"self_attn.k_b_proj.#.weight"}},
    {.place = offsetof(struct layer, latent_values),
     .part = PART_HEAD_VALUES,
     .names = {"self_attn.kv_b_proj.weight"}},
    {.place = offsetof(struct layer, latent_values), .names = {"self_attn.v_b_proj.#.weight"}},
    {.place = offsetof(struct layer, proj), .names = {"self_attn.o_proj.*"}},
    {.place = offsetof(struct layer, norm_mlp), .names = {"post_attention_layernorm.*"}},
    HUGGINGFACE_MLP_ROWS,
    HUGGINGFACE_EXPERT_ROWS,
    {.place = offsetof(struct layer, router_bias), .names = {"mlp.gate.e_score_correction_bias"}},
    HUGGINGFACE_SHARED_ROWS("mlp.shared_experts"),
};
