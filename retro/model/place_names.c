/* retro/model/place_names.c: see place_names.h and, of family_tensor_find,
 * retro/weights/gguf_folder.h. */
#include "retro/model/place_names.h"

#include <string.h>

#include "config/base/text.h"
#include "retro/model/model_private.h"
#include "retro/weights/gguf_folder.h"

#define IN_LAYER(member) offsetof(struct layer, member)
#define IN_MODEL(member) offsetof(struct model, member)

static const struct place_name layer_names[] = {
    {IN_LAYER(norm_in), PART_WHOLE, "attn_norm"},
    {IN_LAYER(norm_in), PART_WHOLE, "attn_output_norm"}, /* of norms behind a sum */
    {IN_LAYER(qkv), PART_WHOLE, "attn_qkv"},
    {IN_LAYER(qkv), PART_Q, "attn_q"},
    {IN_LAYER(qkv), PART_K, "attn_k"},
    {IN_LAYER(qkv), PART_V, "attn_v"},
    {IN_LAYER(norm_q), PART_WHOLE, "attn_q_norm"},
    {IN_LAYER(norm_k), PART_WHOLE, "attn_k_norm"},
    {IN_LAYER(proj), PART_WHOLE, "attn_output"},
    {IN_LAYER(norm_attention), PART_WHOLE, "post_attention_norm"},
    {IN_LAYER(norm_mlp), PART_WHOLE, "ffn_norm"},
    {IN_LAYER(norm_mlp), PART_WHOLE, "layer_output_norm"},
    {IN_LAYER(norm_mlp), PART_WHOLE, "post_attention_norm"}, /* of gpt-oss */
    {IN_LAYER(sinks), PART_WHOLE, "attn_sinks"},
    {IN_LAYER(qkv), PART_Q_GATE, "attn_q"},
    {IN_LAYER(state_in), PART_BUT_LAST, "attn_qkv"},
    {IN_LAYER(state_in), PART_FOURTH, "attn_gate"},
    {IN_LAYER(state_gates), PART_WHOLE, "ssm_ba"},
    {IN_LAYER(state_filter), PART_WHOLE, "ssm_conv1d"},
    {IN_LAYER(state_rate), PART_WHOLE, "ssm_a"},
    {IN_LAYER(state_bias), PART_WHOLE, "ssm_dt"},
    {IN_LAYER(state_norm), PART_WHOLE, "ssm_norm"},
    {IN_LAYER(state_out), PART_WHOLE, "ssm_out"},
    {IN_LAYER(fc1), PART_GATE, "ffn_gate"},
    {IN_LAYER(fc1), PART_UP, "ffn_up"},
    {IN_LAYER(fc1), PART_WHOLE, "ffn_up"},
    {IN_LAYER(fc2), PART_WHOLE, "ffn_down"},
    {IN_LAYER(norm_out), PART_WHOLE, "post_ffw_norm"},
    {IN_LAYER(router), PART_WHOLE, "ffn_gate_inp"},
    {IN_LAYER(norm_router), PART_WHOLE, "ffn_gate_inp.scale"},
    {IN_LAYER(router_scale), PART_WHOLE, "ffn_down_exps.scale"},
    {IN_LAYER(norm_dense_out), PART_WHOLE, "post_ffw_norm_1"},
    {IN_LAYER(norm_experts), PART_WHOLE, "pre_ffw_norm_2"},
    {IN_LAYER(norm_experts_out), PART_WHOLE, "post_ffw_norm_2"},
    {IN_LAYER(input_gate), PART_WHOLE, "inp_gate"},
    {IN_LAYER(input_proj), PART_WHOLE, "proj"},
    {IN_LAYER(norm_input), PART_WHOLE, "post_norm"},
    {IN_LAYER(scale), PART_WHOLE, "layer_output_scale"},
    {IN_LAYER(expert_fc1), PART_GATE, "ffn_gate_exps"},
    {IN_LAYER(expert_fc1), PART_UP, "ffn_up_exps"},
    {IN_LAYER(expert_fc1), PART_WHOLE, "ffn_gate_up_exps"},
    {IN_LAYER(expert_fc2), PART_WHOLE, "ffn_down_exps"},
    {IN_LAYER(experts_in), PART_WHOLE, "ffn_latent_down"},
    {IN_LAYER(experts_out), PART_WHOLE, "ffn_latent_up"},
    {IN_LAYER(shared_gate), PART_WHOLE, "ffn_gate_inp_shexp"},
    {IN_LAYER(shared_fc1), PART_GATE, "ffn_gate_shexp"},
    {IN_LAYER(shared_fc1), PART_UP, "ffn_up_shexp"},
    {IN_LAYER(shared_fc2), PART_WHOLE, "ffn_down_shexp"},
    {IN_LAYER(expert_fc1), PART_WHOLE, "ffn_up_exps"}, /* of experts without gate */
    {IN_LAYER(shared_fc1), PART_WHOLE, "ffn_up_shexp"},
    {IN_LAYER(router_bias), PART_WHOLE, "exp_probs_b"},
    {IN_LAYER(latent_query_in), PART_WHOLE, "attn_q_a"},
    {IN_LAYER(norm_latent_query), PART_WHOLE, "attn_q_a_norm"},
    {IN_LAYER(latent_query), PART_WHOLE, "attn_q_b"},
    {IN_LAYER(latent_query), PART_WHOLE, "attn_q"}, /* of models without attn_q_a */
    {IN_LAYER(latent_in), PART_WHOLE, "attn_kv_a_mqa"},
    {IN_LAYER(norm_latent), PART_WHOLE, "attn_kv_a_norm"},
    {IN_LAYER(latent_keys), PART_HEAD_KEYS, "attn_kv_b"}, /* of older files */
    {IN_LAYER(latent_keys), PART_WHOLE, "attn_k_b"},
    {IN_LAYER(latent_values), PART_WHOLE, "attn_v_b"},
    {IN_LAYER(state_gates), PART_FIRST, "ssm_beta"},
    {IN_LAYER(state_gates), PART_SECOND, "ssm_alpha"},
    {IN_LAYER(state_in), PART_WHOLE, "ssm_in"},
    {IN_LAYER(state_filter_bias), PART_WHOLE, "ssm_conv1d"},
    {IN_LAYER(state_skip), PART_WHOLE, "ssm_d"},
    {IN_LAYER(state_in), PART_WHOLE, "shortconv.in_proj"},
    {IN_LAYER(state_filter), PART_WHOLE, "shortconv.conv"},
    {IN_LAYER(state_filter_bias), PART_WHOLE, "shortconv.conv"},
    {IN_LAYER(state_out), PART_WHOLE, "shortconv.out_proj"},
};
static const struct place_name outer_names[] = {
    {IN_MODEL(embedding.word), PART_WHOLE, "token_embd"},
    {IN_MODEL(embedding.position), PART_WHOLE, "position_embd"},
    {IN_MODEL(embedding.type), PART_WHOLE, "token_types"},
    {IN_MODEL(embedding.norm), PART_WHOLE, "token_embd_norm"},
    {IN_MODEL(stacks[STACK_DECODER].final_norm), PART_WHOLE, "output_norm"},
    {IN_MODEL(stacks[STACK_DECODER].final_norm), PART_WHOLE, "token_embd_norm"}, /* of LFM2 */
    {IN_MODEL(stacks[STACK_ENCODER].final_norm), PART_WHOLE, "output_norm"},
    {IN_MODEL(output), PART_WHOLE, "output"},
    {IN_MODEL(layer_inputs.words), PART_WHOLE, "per_layer_token_embd"},
    {IN_MODEL(layer_inputs.projection), PART_WHOLE, "per_layer_model_proj"},
    {IN_MODEL(layer_inputs.norm), PART_WHOLE, "per_layer_proj_norm"},
};
const struct place_names gguf_layer_names = {layer_names, ARRAY_COUNT(layer_names)};
const struct place_names gguf_outer_names = {outer_names, ARRAY_COUNT(outer_names)};

/* A whole may lie by heads. */
static enum part whole_or(enum part part) {
    return part_is_all(part) && !part_is_head(part) ? PART_WHOLE : part;
}

/* A name with '*' has either ending. */
static bool has_ending(const struct tensor_row *row, const char *ending) {
    return ending == NULL || strchr(row->names[0], '*') ||
           ends_with(row->names[0], "bias") == (strcmp(ending, ".bias") == 0);
}

const struct tensor_row *place_names_row(const struct place_names *names,
                                         const struct tensor_rows *rows, struct text_span name,
                                         const char *ending) {
    for (size_t i = 0; i < names->n; i++) {
        const struct place_name *known = &names->rows[i];
        if (strlen(known->name) != name.size || memcmp(known->name, name.text, name.size) != 0)
            continue;
        for (int j = 0; j < rows->n; j++)
            if (rows->rows[j].place == known->place &&
                whole_or(rows->rows[j].part) == known->part && has_ending(&rows->rows[j], ending))
                return &rows->rows[j];
    }
    return NULL;
}

const struct tensor_row *place_row_find(const struct tensor_rows *rows, size_t place,
                                        enum part part) {
    const struct tensor_row *whole = NULL;
    for (int i = 0; i < rows->n; i++) {
        const struct tensor_row *row = &rows->rows[i];
        if (row->place == place && row->part == part) return row;
        if (row->place == place && row->part < PART_FIRST) whole = row;
    }
    return whole;
}

const char *place_names_find(const struct place_names *names, const struct tensor_row *row) {
    for (size_t i = 0; i < names->n; i++)
        if (names->rows[i].place == row->place && names->rows[i].part == whole_or(row->part))
            return names->rows[i].name;
    return NULL;
}

/* How the heads with states of a row's tensor may lie. */
static enum family_heads find_heads(const struct tensor_row *row) {
    if (row->place == IN_LAYER(state_filter)) return FAMILY_HEADS_CHANNELS;
    if (row->place == IN_LAYER(state_in))
        return row->part == PART_BUT_LAST ? FAMILY_HEADS_CHANNELS : FAMILY_HEADS_VALUES;
    if (row->place == IN_LAYER(state_out)) return FAMILY_HEADS_COLUMNS;
    bool one = row->place == IN_LAYER(state_gates) || row->place == IN_LAYER(state_rate) ||
               row->place == IN_LAYER(state_bias);
    return one ? FAMILY_HEADS_ONE : FAMILY_HEADS_NONE;
}

bool family_tensor_find(const char *model_type, bool in_layer, struct text_span name,
                        const char *ending, struct family_tensor *out) {
    const struct family *family = family_of_type(model_type);
    CHECK(family != NULL);
    const struct tensor_rows *layers =
        &family->stacks[family->stacks[STACK_DECODER].n > 0 ? STACK_DECODER : STACK_ENCODER];
    const struct tensor_rows *rows = in_layer ? layers : &family->outer;
    const struct tensor_row *row =
        place_names_row(in_layer ? &gguf_layer_names : &gguf_outer_names, rows, name, ending);
    if (row == NULL) return false;
    *out =
        (struct family_tensor){.prefix = in_layer ? layers->prefixes[0] : "",
                               .name = row->names[0],
                               .transposed = row->transposed,
                               .by_head = row->part == PART_BY_HEAD && row->place == IN_LAYER(qkv),
                               .one_row = in_layer && row->place == IN_LAYER(shared_gate),
                               .vector = in_layer && row->place == IN_LAYER(state_norm),
                               .heads = in_layer ? find_heads(row) : FAMILY_HEADS_NONE,
                               .rotated = in_layer && row->place == IN_LAYER(qkv) &&
                                          (row->part == PART_Q || row->part == PART_K)};
    return true;
}
