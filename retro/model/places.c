/* retro/model/places.c: the tables of all places a model keeps weights in, and the walk over them. See places.h. */
#include "retro/model/places.h"

#include <stdio.h>

/* Sizes a place is made of. Q, K, V parts are counted in heads so that a rank takes whole heads. */
enum extent {
    EXTENT_ONE,
    EXTENT_HIDDEN,
    EXTENT_QKV,
    EXTENT_HEADS,
    EXTENT_KV,
    EXTENT_FC1,
    EXTENT_FFN,
    EXTENT_VOCAB,
    EXTENT_POSITIONS,
    EXTENT_TYPES
};

enum split { SPLIT_COPY, SPLIT_ROWS, SPLIT_COLS }; /* of the stored [out, in] matrix over ranks (spec 8) */

/* A place is there always, or when the model has what these say. */
enum need { NEED_ALWAYS, NEED_BETA, NEED_BIAS, NEED_POSITIONS, NEED_FINAL, NEED_FINAL_BETA, NEED_OUTPUT };

struct place_info {
    size_t offset; /* in struct layer; outside layers in struct model */
    enum place_form form;
    enum extent out, in;
    enum split split;
    enum need need;
    size_t outer; /* outside layers: which of struct outer_names */
};

/* PLACE(struct, field, form, rows, columns, split, need) */
#define PLACE(s, f, form_, o, i, split_, need_) \
    .offset = offsetof(struct s, f), .form = PLACE_##form_, .out = EXTENT_##o, .in = EXTENT_##i, \
    .split = SPLIT_##split_, .need = NEED_##need_
#define IN_LAYER(...) \
    { PLACE(layer, __VA_ARGS__) }
#define OUTSIDE(name, ...) \
    { PLACE(model, __VA_ARGS__), .outer = offsetof(struct outer_names, name) }

static const struct place_info slot_table[SLOT_COUNT] = {
    [SLOT_NORM_IN_GAMMA] = IN_LAYER(norm_in.gamma, GAMMA, HIDDEN, ONE, COPY, ALWAYS),
    [SLOT_NORM_IN_BETA] = IN_LAYER(norm_in.beta, VECTOR, HIDDEN, ONE, COPY, BETA),
    [SLOT_QKV] = IN_LAYER(qkv.weight, MATRIX, QKV, HIDDEN, ROWS, ALWAYS),
    [SLOT_QKV_BIAS] = IN_LAYER(qkv.bias, VECTOR, QKV, ONE, ROWS, BIAS),
    [SLOT_PROJ] = IN_LAYER(proj.weight, MATRIX, HIDDEN, HEADS, COLS, ALWAYS),
    [SLOT_PROJ_BIAS] = IN_LAYER(proj.bias, VECTOR, HIDDEN, ONE, COPY, BIAS),
    [SLOT_NORM_CROSS_GAMMA] = IN_LAYER(norm_cross.gamma, GAMMA, HIDDEN, ONE, COPY, ALWAYS),
    [SLOT_NORM_CROSS_BETA] = IN_LAYER(norm_cross.beta, VECTOR, HIDDEN, ONE, COPY, BETA),
    [SLOT_CROSS_Q] = IN_LAYER(cross_q.weight, MATRIX, HEADS, HIDDEN, ROWS, ALWAYS),
    [SLOT_CROSS_Q_BIAS] = IN_LAYER(cross_q.bias, VECTOR, HEADS, ONE, ROWS, BIAS),
    [SLOT_CROSS_KV] = IN_LAYER(cross_kv.weight, MATRIX, KV, HIDDEN, ROWS, ALWAYS),
    [SLOT_CROSS_KV_BIAS] = IN_LAYER(cross_kv.bias, VECTOR, KV, ONE, ROWS, BIAS),
    [SLOT_CROSS_PROJ] = IN_LAYER(cross_proj.weight, MATRIX, HIDDEN, HEADS, COLS, ALWAYS),
    [SLOT_CROSS_PROJ_BIAS] = IN_LAYER(cross_proj.bias, VECTOR, HIDDEN, ONE, COPY, BIAS),
    [SLOT_NORM_MLP_GAMMA] = IN_LAYER(norm_mlp.gamma, GAMMA, HIDDEN, ONE, COPY, ALWAYS),
    [SLOT_NORM_MLP_BETA] = IN_LAYER(norm_mlp.beta, VECTOR, HIDDEN, ONE, COPY, BETA),
    [SLOT_FC1] = IN_LAYER(fc1.weight, MATRIX, FC1, HIDDEN, ROWS, ALWAYS),
    [SLOT_FC1_BIAS] = IN_LAYER(fc1.bias, VECTOR, FC1, ONE, ROWS, BIAS),
    [SLOT_FC2] = IN_LAYER(fc2.weight, MATRIX, HIDDEN, FFN, COLS, ALWAYS),
    [SLOT_FC2_BIAS] = IN_LAYER(fc2.bias, VECTOR, HIDDEN, ONE, COPY, BIAS),
};

/* The word table is whole on every rank, because it embeds; the output matrix is split by rows. */
static const struct place_info outer_table[] = {
    OUTSIDE(word, word, MATRIX, VOCAB, HIDDEN, COPY, ALWAYS),
    OUTSIDE(output, output, MATRIX, VOCAB, HIDDEN, ROWS, OUTPUT),
    OUTSIDE(position, position, TABLE, POSITIONS, HIDDEN, COPY, POSITIONS),
    OUTSIDE(type, type, TABLE, TYPES, HIDDEN, COPY, ALWAYS),
    OUTSIDE(embed_gamma, embed_norm.gamma, GAMMA, HIDDEN, ONE, COPY, ALWAYS),
    OUTSIDE(embed_beta, embed_norm.beta, VECTOR, HIDDEN, ONE, COPY, ALWAYS),
    OUTSIDE(final_gamma, final_norm.gamma, GAMMA, HIDDEN, ONE, COPY, FINAL),
    OUTSIDE(final_beta, final_norm.beta, VECTOR, HIDDEN, ONE, COPY, FINAL_BETA),
};

static int extent_size(const struct dims *d, enum extent x) {
    switch (x) {
        case EXTENT_ONE: return 1;
        case EXTENT_HIDDEN: return d->hidden;
        case EXTENT_QKV: return (d->heads + 2 * d->kv_heads) * d->head_dim;
        case EXTENT_HEADS: return d->heads * d->head_dim;
        case EXTENT_KV: return 2 * d->heads * d->head_dim;
        case EXTENT_FC1: return d->gated ? 2 * d->ffn : d->ffn;
        case EXTENT_FFN: return d->ffn;
        case EXTENT_VOCAB: return d->padded_vocab;
        case EXTENT_POSITIONS: return d->max_positions;
        case EXTENT_TYPES: return d->type_vocab;
    }
    return 0;
}

static bool needed(const struct model *m, const struct place_info *info) {
    const struct dims *d = &m->dims;
    switch (info->need) {
        case NEED_ALWAYS: return true;
        case NEED_BETA: return d->norm == NORM_LAYER;
        case NEED_BIAS: return d->bias;
        case NEED_POSITIONS: return d->learned_positions;
        case NEED_FINAL: return d->final_norm;
        case NEED_FINAL_BETA: return d->final_norm && d->norm == NORM_LAYER;
        case NEED_OUTPUT: return !d->tied || m->comm->size > 1; /* else it is the word table */
    }
    return true;
}

static int row_blocks(const struct dims *d, enum extent out, int blocks[3]) {
    int q = d->heads * d->head_dim, k = d->kv_heads * d->head_dim;
    switch (out) {
        case EXTENT_QKV:
            blocks[0] = q;
            blocks[1] = blocks[2] = k;
            return 3;
        case EXTENT_KV: blocks[0] = blocks[1] = q; return 2;
        case EXTENT_FC1: blocks[0] = blocks[1] = d->ffn; return d->gated ? 2 : 1;
        default: blocks[0] = extent_size(d, out); return 1;
    }
}

static struct portion times(struct portion p, int unit) { return (struct portion){p.first * unit, p.n * unit}; }

/* This rank's rows of a block, or its columns. */
static struct portion local_portion(const struct model *m, enum extent x, int block) {
    switch (x) {
        case EXTENT_QKV: return times(block == 0 ? m->local.heads : m->local.kv_heads, m->dims.head_dim);
        case EXTENT_KV:
        case EXTENT_HEADS: return times(m->local.heads, m->dims.head_dim);
        case EXTENT_FC1:
        case EXTENT_FFN: return m->local.ffn;
        case EXTENT_VOCAB: return m->local.vocab;
        default: CHECK(!"an extent that is not split");
    }
}

static struct share share_make(const struct model *m, const struct place_info *info) {
    struct share s = {.whole_rows = extent_size(&m->dims, info->out)};
    s.n_blocks = row_blocks(&m->dims, info->out, s.blocks);
    s.whole_cols = s.cols = extent_size(&m->dims, info->in);
    if (info->split == SPLIT_COLS) {
        struct portion mine = local_portion(m, info->in, 0);
        s.cols = mine.n;
        s.first_col = mine.first;
    }
    for (int b = 0; b < s.n_blocks; b++) {
        bool split = info->split == SPLIT_ROWS;
        s.mine[b] = split ? local_portion(m, info->out, b) : (struct portion){0, s.blocks[b]};
        s.rows += s.mine[b].n;
    }
    return s;
}

int share_row(const struct share *s, int i) {
    int kept = 0;
    for (int b = 0; b < s->n_blocks; b++) {
        int at = i - s->mine[b].first;
        if (i < s->blocks[b]) return at >= 0 && at < s->mine[b].n ? kept + at : -1;
        i -= s->blocks[b];
        kept += s->mine[b].n;
    }
    return -1;
}

/* A tied output matrix that is a rank's own is cut from the word table. */
static const char *outer_name(const struct model *m, const struct place_info *info) {
    const struct outer_names *names = m->family->outer;
    const char *name = *(const char *const *)((const char *)names + info->outer);
    return name && info->need == NEED_OUTPUT && m->dims.tied ? names->word : name;
}

/* What a slot is called in a checkpoint: the first tensor of it, in the family's own spelling. */
static const char *slot_name(const struct family *f, enum slot slot) {
    for (int i = 0; i < f->n_names; i++)
        if (f->names[i].slot == slot) return f->names[i].names[0];
    return NULL;
}

/* What embeds is on the first stage and on that of the neighbour encoder; what makes logits on the last. */
static bool keeps_outer(const struct model *m, const struct place_info *info) {
    const struct comm *c = m->comm;
    bool first = c->stage == 0, last = c->stage == c->stages - 1, tied = m->dims.tied && c->size == 1;
    if (info->need == NEED_OUTPUT || info->need == NEED_FINAL || info->need == NEED_FINAL_BETA) return last;
    bool word = info->offset == offsetof(struct model, word);
    return first || c->stage == m->encodes || (word && tied && last);
}

static enum status visit_layer(struct model *m, struct layer *layer, struct place p, place_visitor *visit,
                               void *context, struct error *e) {
    for (int slot = 0; slot < SLOT_COUNT; slot++) {
        const struct place_info *info = &slot_table[slot];
        bool cross = slot >= SLOT_NORM_CROSS_GAMMA && slot <= SLOT_CROSS_PROJ_BIAS;
        if ((cross && !layer->spec.cross) || !needed(m, info)) continue;
        p.slot = (enum slot)slot;
        p.form = info->form;
        p.at = (char *)layer + info->offset;
        p.share = share_make(m, info);
        const char *name = slot_name(m->family, p.slot);
        CHECK(name != NULL);
        snprintf(p.name, sizeof p.name, "%s%s", p.prefix, name);
        if (visit(context, &p, e)) return e->status;
    }
    return STATUS_OK;
}

static enum status visit_outer(struct model *m, place_visitor *visit, void *context, struct error *e) {
    for (size_t i = 0; i < ARRAY_COUNT(outer_table); i++) {
        const struct place_info *info = &outer_table[i];
        struct place p = {.outer = outer_name(m, info), .form = info->form, .share = share_make(m, info)};
        p.elsewhere = !keeps_outer(m, info);
        if (p.outer == NULL || !needed(m, info)) continue;
        p.at = (char *)m + info->offset;
        snprintf(p.name, sizeof p.name, "%s", p.outer);
        if (visit(context, &p, e)) return e->status;
    }
    return STATUS_OK;
}

enum status model_visit(struct model *m, place_visitor *visit, void *context, struct error *e) {
    char prefix[120];
    if (visit_outer(m, visit, context, e)) return e->status;
    for (int i = 0; i < m->dims.n_layers; i++) {
        snprintf(prefix, sizeof prefix, m->family->outer->decoder_layer, i);
        bool elsewhere = i < m->first_layer || i >= m->end_layer;
        struct place p = {.prefix = prefix, .elsewhere = elsewhere};
        if (visit_layer(m, &m->layers[i], p, visit, context, e)) return e->status;
    }
    for (int j = 0; j < m->n_encoder; j++) {
        snprintf(prefix, sizeof prefix, m->family->outer->encoder_layer, m->dims.first_retro_layer, j);
        struct place p = {.prefix = prefix, .encoder = true, .elsewhere = m->comm->stage != m->encodes};
        if (visit_layer(m, &m->encoder[j], p, visit, context, e)) return e->status;
    }
    return STATUS_OK;
}
