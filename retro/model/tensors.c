/* retro/model/tensors.c: the walk over all places that a model keeps weights in, and the names of their tensors. See
 * tensors.h. */
#include "retro/model/tensor_shapes.h"

#include <stdio.h>
#include <string.h>

/* Names. */

/* prefix + spelling, with '*' and '#' replaced. */
static const char *spell(const char *prefix, const char *spelling, bool bias, int expert, char name[TENSOR_NAME]) {
    int used = snprintf(name, TENSOR_NAME, "%s", prefix);
    for (const char *at = spelling; *at; at++) {
        CHECK(used >= 0 && used < TENSOR_NAME);
        char *to = name + used;
        size_t room = (size_t)(TENSOR_NAME - used);
        if (*at == '*')
            used += snprintf(to, room, "%s", bias ? "bias" : "weight");
        else if (*at == '#')
            used += snprintf(to, room, "%d", expert);
        else
            used += snprintf(to, room, "%c", *at);
    }
    CHECK(used > 0 && used < TENSOR_NAME);
    return name;
}

const char *place_spelling(const struct place *p, int i, int j, char name[TENSOR_NAME]) {
    const struct tensor_row *row = &p->rows->rows[i];
    int n = 0;
    while (n < (int)ARRAY_COUNT(row->names) && row->names[n]) n++;
    if (p->roots == NULL) return j < n ? spell(p->prefix, row->names[j], p->bias, p->expert, name) : NULL;
    if (j >= n * PART_ROOTS || p->roots[j / n] == NULL) return NULL;
    return spell(p->roots[j / n], row->names[j % n], p->bias, p->expert, name);
}

/* "decoder.layers.#." of layer 3 is "decoder.layers.3." behind the root; '@' is the first retro layer. */
static void make_prefix(const struct model *m, const char *root, const char *form, int layer,
                        char prefix[TENSOR_NAME]) {
    size_t used = strlen(root);
    CHECK(used < TENSOR_NAME);
    memcpy(prefix, root, used);
    for (; *form; form++) {
        size_t room = TENSOR_NAME - used;
        int number = *form == '#' ? layer : m->spec.retro.first_layer;
        bool numbered = *form == '#' || *form == '@';
        int n = numbered ? snprintf(prefix + used, room, "%d", number) : snprintf(prefix + used, room, "%c", *form);
        CHECK(n > 0 && (size_t)n < room);
        used += (size_t)n;
    }
    prefix[used] = '\0';
}

/* Listing the places. */

static bool has_bias(const struct model *m, const struct dims *d, const struct tensor_row *row,
                     const struct place_shape *shape, bool absent) {
    if (row->bias_if_there) return !absent;
    if (shape->out == EXTENT_PROJECTOR_IN) return m->spec.projector.norm == NORM_LAYER;
    if (shape->in == EXTENT_PROJECTOR_IN || shape->out == EXTENT_PROJECTOR_OUT) return m->spec.projector.bias;
    if (shape->out == EXTENT_JOINT) return m->spec.dual_encoder_bias;
    if (shape->in == EXTENT_PATCH) return m->spec.tower.patch_bias;
    if (shape->kind == KIND_NORM) return d->norm == NORM_LAYER;
    if (shape->out == EXTENT_VOCAB) return m->spec.output_bias;
    if (shape->out == EXTENT_FC1 || shape->in == EXTENT_FFN) return d->mlp_bias;
    if (shape->out == EXTENT_SHARED_FC1 || shape->in == EXTENT_SHARED_FFN) return false;
    bool cross = shape->out == EXTENT_HEADS || shape->out == EXTENT_CROSS_KV; /* retro-model.md 5.6 */
    return shape->in == EXTENT_HEADS || cross ? d->proj_bias : d->qkv_bias;
}

static bool is_first_row(const struct tensor_rows *rows, int i) {
    for (int j = 0; j < i; j++)
        if (rows->rows[j].place == rows->rows[i].place) return false;
    return true;
}

struct tensor_walk {
    struct model *model;
    place_visitor *visit;
    void *context;
    struct error *error;
};

static enum status visit_one(const struct tensor_walk *w, struct place *p, enum place_form form, bool bias, void *at) {
    p->form = form;
    p->bias = bias;
    p->at = at;
    CHECK(place_spelling(p, p->row, 0, p->name) != NULL);
    return w->visit(w->context, p, w->error);
}

/* A bias has the rows of its matrix, and one column that no rank splits. */
static struct share share_of_bias(struct share s) {
    s.whole_cols = s.cols = 1;
    s.first_col = 0;
    return s;
}

/* One place for each expert. */
static enum status visit_experts(const struct tensor_walk *w, struct place p, struct weight *experts) {
    int n = w->model->stacks[p.stack].dims.experts;
    for (int i = 0; i < n; i++) {
        p.expert = i;
        if (visit_one(w, &p, PLACE_MATRIX, false, &experts[i])) return w->error->status;
    }
    return STATUS_OK;
}

/* The one or two places of a row: weight and bias, gamma and beta. */
static enum status visit_row(const struct tensor_walk *w, struct place p, const struct place_shape *shape, void *base,
                             bool absent) {
    struct model *m = w->model;
    const struct tensor_row *row = &p.rows->rows[p.row];
    char *at = (char *)base + shape->place;
    bool bias = has_bias(m, &m->stacks[p.stack].dims, row, shape, absent);
    p.share = share_make(m, p.stack, shape);

    switch (shape->kind) {
        case KIND_MATRIX: return visit_one(w, &p, PLACE_MATRIX, false, at);
        case KIND_EXPERTS: return visit_experts(w, p, *(struct weight **)(void *)at);
        case KIND_TABLE: return visit_one(w, &p, PLACE_TABLE, false, at);
        case KIND_RELATIVE: return visit_one(w, &p, PLACE_RELATIVE, false, at);
        case KIND_NORM: {
            struct norm_weights *norm = (struct norm_weights *)(void *)at;
            if (visit_one(w, &p, PLACE_GAMMA, false, &norm->gamma)) return w->error->status;
            return bias ? visit_one(w, &p, PLACE_VECTOR, true, &norm->beta) : STATUS_OK;
        }
        case KIND_PROJECTION: {
            struct projection *projection = (struct projection *)(void *)at;
            if (visit_one(w, &p, PLACE_MATRIX, false, &projection->weight)) return w->error->status;
            p.share = share_of_bias(p.share);
            return bias ? visit_one(w, &p, PLACE_VECTOR, true, &projection->bias) : STATUS_OK;
        }
    }
    return STATUS_OK;
}

static bool is_cross(size_t place) {
    return place == offsetof(struct layer, norm_cross) || place == offsetof(struct layer, cross_q) ||
           place == offsetof(struct layer, cross_kv) || place == offsetof(struct layer, cross_proj);
}

static bool is_expert(size_t place) {
    return place == offsetof(struct layer, router) || place == offsetof(struct layer, expert_fc1) ||
           place == offsetof(struct layer, expert_fc2);
}

static bool is_shared_expert(size_t place) {
    return place == offsetof(struct layer, shared_gate) || place == offsetof(struct layer, shared_fc1) ||
           place == offsetof(struct layer, shared_fc2);
}

/* Whether the layer has the place: a table of rows may serve layers with and without it. */
static bool has_place(const struct layer *layer, const struct dims *d, size_t place) {
    if (place == offsetof(struct layer, norm_q) || place == offsetof(struct layer, norm_k))
        return d->qk_norm != QK_NORM_NONE;
    if (is_expert(place)) return layer->spec.experts;
    if (is_shared_expert(place)) return layer->spec.experts && d->shared_ffn > 0;
    if (place == offsetof(struct layer, fc1) || place == offsetof(struct layer, fc2)) return !layer->spec.experts;
    return layer->spec.cross || !is_cross(place);
}

static enum status visit_layer(const struct tensor_walk *w, struct layer *layer, struct place p) {
    for (int i = 0; i < p.rows->n; i++) {
        size_t place = p.rows->rows[i].place;
        if (!is_first_row(p.rows, i) || !has_place(layer, &w->model->stacks[p.stack].dims, place)) continue;
        p.row = i;
        if (visit_row(w, p, layer_shape(place), layer, layer->absent >> i & 1)) return w->error->status;
    }
    return STATUS_OK;
}

static bool in_stack(size_t place, enum stack_id stack) {
    size_t first = offsetof(struct model, stacks) + (size_t)stack * sizeof(struct stack);
    return place >= first && place < first + sizeof(struct stack);
}

/* The dims that an outer place takes its shape from. */
static enum stack_id stack_of(const struct model *m, size_t place) {
    size_t first = offsetof(struct model, tower), end = offsetof(struct model, newline) + sizeof m->newline;
    if (in_stack(place, STACK_ENCODER)) return STACK_ENCODER;
    if (in_stack(place, STACK_TOWER) || (place >= first && place < end)) return STACK_TOWER;
    return model_has_stack(m, STACK_DECODER) ? STACK_DECODER : STACK_ENCODER;
}

static bool outer_needed(const struct model *m, const struct place_shape *shape, enum stack_id stack) {
    const struct dims *d = &m->stacks[stack].dims;
    if (shape->kind == KIND_RELATIVE) return d->buckets > 0;
    if (in_stack(shape->place, stack)) return d->final_norm;
    if (shape->out == EXTENT_POSITIONS) return m->spec.learned_positions;
    if (shape->out == EXTENT_TYPES) return m->spec.type_vocab > 0;
    if (shape->place == offsetof(struct model, output)) return model_writes(m) && !m->rows_only;
    if (shape->place == offsetof(struct model, tower.norm_before)) return m->spec.tower.norm_before;
    if (shape->place == offsetof(struct model, tower.norm_head)) return m->spec.tower.pooled;
    if (shape->out == EXTENT_CHANNELS) return m->spec.tower.conditioned;
    if (shape->place == offsetof(struct model, tower.class_token)) return m->spec.tower.class_tokens > 0;
    if (shape->place == offsetof(struct model, projector.norm)) return m->spec.projector.normed;
    if (shape->place == offsetof(struct model, projector.fc2)) return m->spec.projector.ffn > 0;
    return true;
}

/* The embedding is on the first stage and on that of the neighbour encoder, the output on the last. */
static bool keeps_outer(const struct model *m, const struct place_shape *shape) {
    const struct comm *c = m->comm;
    bool first = c->stage == 0, last = c->stage == c->stages - 1, tied = m->spec.tied && c->size == 1;
    bool word = shape->place == offsetof(struct model, embedding.word);
    if (shape->place == offsetof(struct model, output) || in_stack(shape->place, STACK_DECODER)) return last;
    return first || c->stage == m->encodes || (word && tied && last);
}

/* A tied output matrix is the word table; on several ranks each has its own part, cut from the word table. */
static enum status visit_output(const struct tensor_walk *w, struct place p, const struct place_shape *shape,
                                bool absent) {
    struct model *m = w->model;
    bool bias = has_bias(m, &m->stacks[p.stack].dims, &p.rows->rows[p.row], shape, absent);
    p.share = share_make(m, p.stack, shape);
    if (m->spec.tied && m->comm->size > 1) {
        struct place cut = p;
        cut.row = 0; /* of every family: the word table */
        if (visit_one(w, &cut, PLACE_MATRIX, false, &m->output.weight)) return w->error->status;
    } else if (!m->spec.tied && visit_one(w, &p, PLACE_MATRIX, false, &m->output.weight)) {
        return w->error->status;
    }
    p.share = share_of_bias(p.share);
    return bias ? visit_one(w, &p, PLACE_VECTOR, true, &m->output.bias) : STATUS_OK;
}

/* The outer places that a family's rows name. */
static enum status visit_part(const struct tensor_walk *w, const struct model_part *part, uint64_t absent) {
    struct model *m = w->model;
    const struct tensor_rows *rows = &part->family->outer;
    for (int i = 0; i < rows->n; i++) {
        size_t place = rows->rows[i].place;
        const struct place_shape *shape = outer_shape(place);
        struct place p = {
            .prefix = "", .roots = part->roots, .rows = rows, .row = i, .outer = true, .stack = stack_of(m, place)};
        if (!is_first_row(rows, i) || !outer_needed(m, shape, p.stack)) continue;
        p.elsewhere = !keeps_outer(m, shape);
        bool output = place == offsetof(struct model, output), lacks = absent >> i & 1;
        CHECK(!output || rows->rows[0].place == offsetof(struct model, embedding.word));
        if (output ? visit_output(w, p, shape, lacks) : visit_row(w, p, shape, m, lacks)) return w->error->status;
    }
    return STATUS_OK;
}

static enum status visit_outer(const struct tensor_walk *w) {
    struct model *m = w->model;
    const struct model_part own = {.family = m->family, .roots = {""}};
    if (visit_part(w, &own, m->absent[STACK_COUNT])) return w->error->status;
    for (int id = 0; id < STACK_COUNT; id++) {
        const struct model_part *part = &m->spec.parts[id];
        if (part->family && visit_part(w, part, m->absent[id])) return w->error->status;
    }
    return STATUS_OK;
}

/* Layers of a decoder are on one stage each, an encoder is whole on one. */
static bool layer_elsewhere(const struct model *m, enum stack_id id, int i) {
    const struct portion *kept = &m->stacks[id].kept;
    return i < kept->first || i >= kept->first + kept->n;
}

/* model_resolve has chosen the spelling. */
static const char *layer_prefix(const struct model *m, enum stack_id id, int layer, char prefix[TENSOR_NAME]) {
    struct model_part part = model_part_of(m, id);
    const struct tensor_rows *rows = &part.family->stacks[id];
    int spelling = m->stacks[id].prefix, forms = (int)ARRAY_COUNT(rows->prefixes);
    make_prefix(m, part.roots[spelling / forms], rows->prefixes[spelling % forms], layer, prefix);
    return prefix;
}

static const struct tensor_rows *layer_rows_of(const struct model *m, int id) {
    return &model_part_of(m, (enum stack_id)id).family->stacks[id];
}

enum status model_visit(struct model *m, place_visitor *visit, void *context, struct error *e) {
    struct tensor_walk w = {.model = m, .visit = visit, .context = context, .error = e};
    char prefix[TENSOR_NAME];
    if (visit_outer(&w)) return e->status;
    for (int id = 0; id < STACK_COUNT; id++) {
        struct stack *s = &m->stacks[id];
        for (int i = 0; i < s->dims.n_layers; i++) {
            struct place p = {.rows = layer_rows_of(m, id), .stack = (enum stack_id)id};
            p.prefix = layer_prefix(m, p.stack, i, prefix);
            p.elsewhere = layer_elsewhere(m, p.stack, i);
            if (visit_layer(&w, &s->layers[i], p)) return e->status;
        }
    }
    return STATUS_OK;
}

void place_kept(const struct model *m, const struct place *p, int *rows, int *cols) {
    bool relative = p->form == PLACE_RELATIVE;
    *rows = relative ? p->share.cols : p->share.rows;
    *cols = relative ? 2 * m->stacks[p->stack].dims.max_distance + 1 : p->share.cols;
}

/* Whether w has the weight or the bias of a row under one of the row's spellings behind one of the prefixes. */
static bool has_row(const struct weights *w, const char *const *prefixes, int n, const struct tensor_row *row,
                    bool bias) {
    char name[TENSOR_NAME];
    for (int i = 0; i < n && prefixes[i]; i++)
        for (size_t j = 0; j < ARRAY_COUNT(row->names) && row->names[j]; j++)
            if (weights_find(w, spell(prefixes[i], row->names[j], bias, 0, name))) return true;
    return false;
}

static uint64_t find_absent(const struct tensor_rows *rows, const char *const *prefixes, int n,
                            const struct weights *w) {
    uint64_t absent = 0;
    CHECK(rows->n <= 64);
    for (int i = 0; i < rows->n; i++) {
        const struct tensor_row *row = &rows->rows[i];
        bool there = row->bias_if_there && w && has_row(w, prefixes, n, row, true);
        if (!there) absent |= (uint64_t)1 << i;
    }
    return absent;
}

/* The spelling under which w has a tensor of the first layer, of roots times prefixes; the family's own where it has
 * none. */
static int find_prefix(const struct model *m, const struct model_part *part, const struct tensor_rows *rows,
                       const struct weights *w) {
    char prefix[TENSOR_NAME];
    const char *const prefixes[] = {prefix};
    int forms = (int)ARRAY_COUNT(rows->prefixes);
    for (int j = 0; w && j < forms * PART_ROOTS; j++) {
        const char *root = part->roots[j / forms], *form = rows->prefixes[j % forms];
        if (root == NULL || form == NULL) continue;
        make_prefix(m, root, form, 0, prefix);
        for (int i = 0; i < rows->n; i++)
            if (has_row(w, prefixes, 1, &rows->rows[i], false)) return j;
    }
    return 0;
}

static void resolve_stack(struct model *m, enum stack_id id, const struct weights *w) {
    char prefix[TENSOR_NAME];
    const char *const prefixes[] = {prefix};
    struct stack *s = &m->stacks[id];
    struct model_part part = model_part_of(m, id);
    const struct tensor_rows *rows = &part.family->stacks[id];
    if (m->spec.parts[id].family) m->absent[id] = find_absent(&part.family->outer, part.roots, PART_ROOTS, w);
    s->prefix = find_prefix(m, &part, rows, w);
    for (int i = 0; i < s->dims.n_layers; i++) {
        layer_prefix(m, id, i, prefix);
        s->layers[i].absent = find_absent(rows, prefixes, 1, w);
    }
}

void model_resolve(struct model *m, const struct weights *w) {
    const char *const none[] = {""};
    m->absent[STACK_COUNT] = find_absent(&m->family->outer, none, 1, w);
    for (int id = 0; id < STACK_COUNT; id++) resolve_stack(m, (enum stack_id)id, w);
}
