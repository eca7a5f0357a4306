/* retro/model/spec.c: reads config.json by a family's table, and checks the rules that join its
 * keys. See spec.h. */
#include "retro/model/spec.h"

#include <math.h>

struct model_spec model_spec_default(void) {
    struct model_spec spec = {.logit_scale = 1, .eod = -1, .start = -1, .position_pad = -1};
    spec.retro.first_layer = -1;
    return spec;
}

enum status spec_read(const struct json *config, const struct json_table *table, void *out,
                      struct error *e) {
    struct json_reader reader = {.name = "config.json", .e = e};
    return json_table_read(&reader, table, config, out);
}

void dims_set_mlp(struct dims *dims, int mlp) {
    dims->gated = (mlp & MLP_GATED) != 0;
    dims->activation = (enum activation)(mlp & ~MLP_GATED);
}

/* In float32, as the reference computes them (docs/spec/retro-model.md 4.4). */
void dims_set_rope(struct dims *dims, enum rope_id id, float base) {
    struct rope_table *table = &dims->rope[id];
    CHECK(dims->rotated >= 0 && dims->rotated <= ATTENTION_MAX_HEAD);
    table->base = base;
    for (int i = 0; i < dims->rotated / 2; i++)
        table->inv_freq[i] = 1.0f / powf(base, (float)(2 * i) / (float)dims->rotated);
}

void dims_set_bias(struct dims *dims, bool bias) {
    dims->qkv_bias = dims->proj_bias = dims->mlp_bias = bias;
}

enum status spec_check_id(const struct model_spec *spec, const char *key, int id, struct error *e) {
    if (id < spec->vocab) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "config.json: \"%s\" is %d, allowed is 0 .. %d", key, id,
                     spec->vocab - 1);
}

static enum status check_state(const struct state_dims *state, struct error *e) {
    if (state->kernel == 0 || state->value_heads % state->key_heads == 0) return STATUS_OK;
    bool delta = state->mixer == MIXER_DELTA;
    return error_set(
        e, STATUS_INVALID, "config.json: %s is %d, must be a multiple of %s, which is %d",
        delta ? "\"linear_num_value_heads\"" : "\"mamba_n_heads\" or \"mamba_num_heads\"",
        state->value_heads,
        delta ? "\"linear_num_key_heads\"" : "\"mamba_n_groups\" or \"n_groups\"",
        state->key_heads);
}

/* Within what kernels hold, of pairs that turn. */
static enum status check_latent(const struct dims *dims, struct error *e) {
    const struct latent_dims *latent = &dims->latent;
    if (latent->rank == 0) return STATUS_OK;
    if (latent->rank + latent->rope > ATTENTION_MAX_HEAD)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: \"kv_lora_rank\" %d and \"qk_rope_head_dim\" %d make rows "
                         "of %d; the longest supported is %d",
                         latent->rank, latent->rope, latent->rank + latent->rope,
                         ATTENTION_MAX_HEAD);
    if (dims->query_grows_after > 0 && latent->rank % 2 != 0)
        return error_set(
            e, STATUS_UNSUPPORTED,
            "config.json: \"kv_lora_rank\" is %d, must be even where queries grow with "
            "their place",
            latent->rank);
    if (latent->rope % 2 == 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "config.json: \"qk_rope_head_dim\" is %d, must be even",
                     latent->rope);
}

static enum status check_relative(const struct dims *dims, struct error *e) {
    if (dims->buckets == 0 || (dims->buckets % 4 == 0 && dims->max_distance > dims->buckets / 2))
        return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: relative_attention_num_buckets is %d, must be a multiple of 4 "
                     "and less than twice "
                     "relative_attention_max_distance, which is %d",
                     dims->buckets, dims->max_distance);
}

static enum status check_experts(const struct dims *dims, struct error *e) {
    if (dims->experts_used > dims->experts)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"num_experts_per_tok\" is %d of %d experts",
                         dims->experts_used, dims->experts);
    int groups = max_int(dims->router_groups, 1), used = max_int(dims->router_groups_used, 1);
    if (dims->experts % groups != 0 || used > groups ||
        dims->experts_used > dims->experts / groups * used)
        return error_set(e, STATUS_INVALID,
                         "config.json: %d experts in \"n_group\" %d groups, of which "
                         "\"topk_group\" %d are used by a token for %d experts",
                         dims->experts, groups, used, dims->experts_used);
    int width = dims_expert_width(dims);
    if (dims->experts_used <= LIMIT_PARTS / width) return STATUS_OK;
    return error_set(
        e, STATUS_UNSUPPORTED,
        "config.json: \"num_experts_per_tok\" is %d; with rows of %d at most %d are supported",
        dims->experts_used, width, LIMIT_PARTS / width);
}

/* Of layers with wide heads. */
static enum status check_wide(const struct dims *dims, struct error *e) {
    if (dims->wide_head_dim == 0) return STATUS_OK;
    if (dims->wide_kv_heads < 1 || dims->heads % dims->wide_kv_heads != 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: %d attention heads cannot share %d key/value heads of "
                         "layers with full attention (\"num_global_key_value_heads\")",
                         dims->heads, dims->wide_kv_heads);
    if (dims->wide_head_dim % 2 == 0 && dims->wide_head_dim <= ATTENTION_MAX_HEAD) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: attention heads of %d in layers with full attention "
                     "(\"global_head_dim\"), must be even and at most %d",
                     dims->wide_head_dim, ATTENTION_MAX_HEAD);
}

static enum status check_stack(const struct dims *dims, struct error *e) {
    if (dims->heads % dims->kv_heads != 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: %d attention heads cannot share %d key/value heads",
                         dims->heads, dims->kv_heads);
    if (dims->reads == EDGE_SOURCE && dims->heads != dims->kv_heads)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: %d attention heads share %d key/value heads; cross "
                         "attention to a source needs "
                         "as many of both",
                         dims->heads, dims->kv_heads);
    if (!(dims->epsilon > 0))
        return error_set(e, STATUS_INVALID,
                         "config.json: the norm's epsilon is %g, must be positive",
                         (double)dims->epsilon);
    if (check_latent(dims, e)) return e->status;
    if (dims->head_dim > ATTENTION_MAX_HEAD)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: attention heads of %d, the largest supported is %d",
                         dims->head_dim, ATTENTION_MAX_HEAD);
    if (dims->rotated % 2 != 0 || dims->rotated > dims->head_dim)
        return error_set(e, STATUS_INVALID,
                         "config.json: %d rotary dimensions of a head of %d; must be even and fit",
                         dims->rotated, dims->head_dim);
    if (check_wide(dims, e) || check_experts(dims, e) || check_state(&dims->state, e))
        return e->status;
    return check_relative(dims, e);
}

/* A tower's patches, positions and the rows that its projector reads. */
static enum status check_tower(const struct model_spec *spec, struct error *e) {
    const struct tower_spec *tower = &spec->tower;
    const struct projector_spec *projector_spec = &spec->projector;
    const struct dims *dims = &spec->stacks[STACK_TOWER];
    if (dims->n_layers == 0) return STATUS_OK;
    if (tower->image_h % tower->patch != 0 || tower->image_w % tower->patch != 0)
        return error_set(e, STATUS_INVALID,
                         "config.json: pictures of %d x %d pixels are no whole patches of %d",
                         tower->image_h, tower->image_w, tower->patch);
    bool table = tower->table_h > 0 && tower->table_w > 0 &&
                 tower->table_h <= LIMIT_POSITIONS / tower->table_w;
    if (!table && dims->rotated == 0)
        return error_set(e, STATUS_INVALID, "config.json: a position table of %d x %d patches",
                         tower->table_h, tower->table_w);
    if (tower->patch > LIMIT_PATCH)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: patches of %d pixels, the largest supported is %d",
                         tower->patch, LIMIT_PATCH);
    if (projector_spec->out == 0) return STATUS_OK;
    if (tower->shuffle == 2 && tower->class_tokens > 0 && !tower->drops_class)
        return error_set(
            e, STATUS_INVALID,
            "config.json: \"pixel_shuffle\" reads patches alone, and %d class tokens are kept",
            tower->class_tokens);
    int lines = tower->image_h / tower->patch, side = tower->averaged;
    if (side > 0 && (tower->class_tokens > 0 || lines % side != 0 || tower->shuffle != 1))
        return error_set(e, STATUS_INVALID,
                         "config.json: a picture of %d x %d patches is not averaged by squares of "
                         "%d x %d",
                         lines, tower->image_w / tower->patch, side, side);
    int columns = dims->hidden * tower->shuffle * tower->shuffle;
    if (spec->picture.lined && spec->stacks[STACK_DECODER].rope_sections > 0)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: a decoder with multimodal RoPE, and a tower whose pictures "
                         "are read in lines");
    if (projector_spec->in != columns)
        return error_set(e, STATUS_INVALID,
                         "config.json: the projector reads %d columns, the tower gives %d",
                         projector_spec->in, columns);
    if (spec->stacks[STACK_DECODER].n_layers > 0 &&
        projector_spec->out != spec->stacks[STACK_DECODER].hidden)
        return error_set(e, STATUS_INVALID,
                         "config.json: the projector gives %d columns, the decoder has %d",
                         projector_spec->out, spec->stacks[STACK_DECODER].hidden);
    if (spec->stacks[STACK_DECODER].n_layers > 0 &&
        tower->n_deepstack > spec->stacks[STACK_DECODER].n_layers)
        return error_set(e, STATUS_INVALID,
                         "config.json: %d \"deepstack_visual_indexes\", and the decoder has %d "
                         "layers",
                         tower->n_deepstack, spec->stacks[STACK_DECODER].n_layers);
    return STATUS_OK;
}

enum status spec_check(const struct model_spec *spec, struct error *e) {
    for (int i = 0; i < STACK_COUNT; i++)
        if (spec->stacks[i].n_layers > 0 && check_stack(&spec->stacks[i], e)) return e->status;
    if (check_tower(spec, e)) return e->status;
    if (spec->vocab > spec->padded_vocab)
        return error_set(e, STATUS_INVALID,
                         "config.json: vocab_size %d is larger than padded_vocab_size %d",
                         spec->vocab, spec->padded_vocab);
    if (spec->learned_positions && spec->retro.retrieved_length > spec->max_positions)
        return error_set(e, STATUS_INVALID,
                         "config.json: retro_retrieved_length %d exceeds the %d learned positions",
                         spec->retro.retrieved_length, spec->max_positions);
    return STATUS_OK;
}
