/* retro/model/spec.c: reads config.json by a family's table, and checks the rules that join its keys. See spec.h. */
#include "retro/model/spec.h"

#include <math.h>

struct model_spec model_spec_default(void) {
    struct model_spec s = {.logit_scale = 1, .eod = -1, .start = -1, .position_pad = -1};
    s.retro.first_layer = -1;
    return s;
}

enum status spec_read(const struct json *config, const struct json_table *table, void *out, struct error *e) {
    struct json_reader reader = {.name = "config.json", .e = e};
    return json_table_read(&reader, table, config, out);
}

void dims_set_mlp(struct dims *d, int mlp) {
    d->gated = (mlp & MLP_GATED) != 0;
    d->activation = (enum activation)(mlp & ~MLP_GATED);
}

/* In float32, as the reference computes them (docs/spec/retro-model.md 4.4). */
void dims_set_rope(struct dims *d, enum rope_id id, float base) {
    struct rope_table *table = &d->rope[id];
    CHECK(d->rotated >= 0 && d->rotated <= ATTENTION_MAX_HEAD);
    table->base = base;
    for (int i = 0; i < d->rotated / 2; i++) table->inv_freq[i] = 1.0f / powf(base, (float)(2 * i) / (float)d->rotated);
}

void dims_set_bias(struct dims *d, bool bias) { d->qkv_bias = d->proj_bias = d->mlp_bias = bias; }

enum status spec_check_id(const struct model_spec *s, const char *key, int id, struct error *e) {
    if (id < s->vocab) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "config.json: \"%s\" is %d, allowed is 0 .. %d", key, id, s->vocab - 1);
}

static enum status check_relative(const struct dims *d, struct error *e) {
    if (d->buckets == 0 || (d->buckets % 4 == 0 && d->max_distance > d->buckets / 2)) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "config.json: relative_attention_num_buckets is %d, must be a multiple of 4 and less than twice "
                     "relative_attention_max_distance, which is %d",
                     d->buckets, d->max_distance);
}

static enum status check_experts(const struct dims *d, struct error *e) {
    if (d->experts_used > d->experts)
        return error_set(e, STATUS_INVALID, "config.json: \"num_experts_per_tok\" is %d of %d experts", d->experts_used,
                         d->experts);
    if (d->experts_used <= LIMIT_PARTS / d->hidden) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "config.json: \"num_experts_per_tok\" is %d; with rows of %d at most %d are supported",
                     d->experts_used, d->hidden, LIMIT_PARTS / d->hidden);
}

static enum status check_stack(const struct dims *d, struct error *e) {
    if (d->heads % d->kv_heads != 0)
        return error_set(e, STATUS_INVALID, "config.json: %d attention heads cannot share %d key/value heads", d->heads,
                         d->kv_heads);
    if (d->reads == EDGE_SOURCE && d->heads != d->kv_heads)
        return error_set(e, STATUS_UNSUPPORTED,
                         "config.json: %d attention heads share %d key/value heads; cross attention to a source needs "
                         "as many of both",
                         d->heads, d->kv_heads);
    if (!(d->epsilon > 0))
        return error_set(e, STATUS_INVALID, "config.json: the norm's epsilon is %g, must be positive",
                         (double)d->epsilon);
    if (d->head_dim > ATTENTION_MAX_HEAD)
        return error_set(e, STATUS_UNSUPPORTED, "config.json: attention heads of %d, the largest supported is %d",
                         d->head_dim, ATTENTION_MAX_HEAD);
    if (d->rotated % 2 != 0 || d->rotated > d->head_dim)
        return error_set(e, STATUS_INVALID, "config.json: %d rotary dimensions of a head of %d; must be even and fit",
                         d->rotated, d->head_dim);
    if (check_experts(d, e)) return e->status;
    return check_relative(d, e);
}

/* A tower's patches, positions and the rows that its projector reads. */
static enum status check_tower(const struct model_spec *s, struct error *e) {
    const struct tower_spec *t = &s->tower;
    const struct projector_spec *p = &s->projector;
    const struct dims *d = &s->stacks[STACK_TOWER];
    if (d->n_layers == 0) return STATUS_OK;
    if (t->image_h % t->patch != 0 || t->image_w % t->patch != 0)
        return error_set(e, STATUS_INVALID, "config.json: pictures of %d x %d pixels are no whole patches of %d",
                         t->image_h, t->image_w, t->patch);
    bool table = t->table_h > 0 && t->table_w > 0 && t->table_h <= LIMIT_POSITIONS / t->table_w;
    if (!table && d->rotated == 0)
        return error_set(e, STATUS_INVALID, "config.json: a position table of %d x %d patches", t->table_h, t->table_w);
    if (t->patch > LIMIT_PATCH)
        return error_set(e, STATUS_UNSUPPORTED, "config.json: patches of %d pixels, the largest supported is %d",
                         t->patch, LIMIT_PATCH);
    if (p->out == 0) return STATUS_OK;
    if (t->shuffle == 2 && t->class_tokens > 0 && !t->drops_class)
        return error_set(e, STATUS_INVALID,
                         "config.json: \"pixel_shuffle\" reads patches alone, and %d class tokens are kept",
                         t->class_tokens);
    int columns = d->hidden * t->shuffle * t->shuffle;
    if (p->in != columns)
        return error_set(e, STATUS_INVALID, "config.json: the projector reads %d columns, the tower gives %d", p->in,
                         columns);
    if (s->stacks[STACK_DECODER].n_layers > 0 && p->out != s->stacks[STACK_DECODER].hidden)
        return error_set(e, STATUS_INVALID, "config.json: the projector gives %d columns, the decoder has %d", p->out,
                         s->stacks[STACK_DECODER].hidden);
    return STATUS_OK;
}

enum status spec_check(const struct model_spec *s, struct error *e) {
    for (int i = 0; i < STACK_COUNT; i++)
        if (s->stacks[i].n_layers > 0 && check_stack(&s->stacks[i], e)) return e->status;
    if (check_tower(s, e)) return e->status;
    if (s->vocab > s->padded_vocab)
        return error_set(e, STATUS_INVALID, "config.json: vocab_size %d is larger than padded_vocab_size %d", s->vocab,
                         s->padded_vocab);
    if (s->learned_positions && s->retro.retrieved_length > s->max_positions)
        return error_set(e, STATUS_INVALID, "config.json: retro_retrieved_length %d exceeds the %d learned positions",
                         s->retro.retrieved_length, s->max_positions);
    return STATUS_OK;
}
