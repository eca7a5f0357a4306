/* retro/run/neighbors.c: the neighbour encoder and the slots of its projected output. See neighbors.h. */
#include "retro/run/neighbors.h"

#include <stdlib.h>

/* Rows the encoder works on at once; more closed chunks than fit are encoded in groups, with the same result. */
enum { GROUP_ROWS = 1024 };

/* Which of nb->memory. */
enum { MEMORY_SLOTS, MEMORY_CHUNKS, MEMORY_PROJECTED, MEMORY_OPEN_ROWS };

static enum status allocate(struct neighbors *nb, int which, const char *what, struct error *e) {
    return backend_alloc(nb->model->backend, &nb->memory[which], nb->sizes[which], what, e);
}

/* One layer's keys or values of all slots. */
static size_t slots_bytes(const struct neighbors *nb, enum dtype dtype) {
    size_t cols = (size_t)nb->model->local.heads.n * (size_t)nb->model->dims.head_dim;
    return (size_t)nb->n_slots * (size_t)nb->slot_rows * cols * dtype_bytes(dtype);
}

static enum status open_slots(struct neighbors *nb, enum dtype dtype, struct error *e) {
    const struct dims *d = &nb->model->dims;
    int cols = nb->model->local.heads.n * d->head_dim, rows = nb->n_slots * nb->slot_rows, at = 0;
    size_t one = slots_bytes(nb, dtype);
    if (allocate(nb, MEMORY_SLOTS, "neighbour keys and values", e)) return e->status;
    nb->k = xcalloc((size_t)d->n_layers, sizeof *nb->k);
    nb->v = xcalloc((size_t)d->n_layers, sizeof *nb->v);
    for (int i = nb->model->first_layer; i < nb->model->end_layer; i++) {
        if (!d->retro_layer[i]) continue;
        nb->k[i] = tensor_make((char *)nb->memory[MEMORY_SLOTS] + (size_t)at++ * one, dtype, rows, cols);
        nb->v[i] = tensor_make((char *)nb->memory[MEMORY_SLOTS] + (size_t)at++ * one, dtype, rows, cols);
    }
    nb->free_slots = xmalloc((size_t)nb->n_slots * sizeof *nb->free_slots);
    for (int i = 0; i < nb->n_slots; i++) nb->free_slots[i] = nb->n_slots - 1 - i;
    nb->n_free = nb->n_slots;
    return STATUS_OK;
}

static enum status open_group(struct neighbors *nb, int max_step_rows, struct error *e) {
    const struct model *m = nb->model;
    int d = m->dims.hidden, kv = 2 * m->local.heads.n * m->dims.head_dim, chunk_rows = nb->max_chunks * nb->m;
    size_t rows = (size_t)nb->max_rows;
    if (scratch_open(&nb->scratch, m, nb->max_rows, e) ||
        allocate(nb, MEMORY_CHUNKS, "chunk rows for the encoder", e) ||
        allocate(nb, MEMORY_PROJECTED, "encoder output", e))
        return e->status;
    nb->context = tensor_make(nb->memory[MEMORY_CHUNKS], DTYPE_F32, chunk_rows, d);
    nb->context_kv =
        tensor_make((float *)nb->memory[MEMORY_CHUNKS] + (size_t)chunk_rows * (size_t)d, DTYPE_F32, chunk_rows, kv);
    nb->projected = tensor_make(nb->memory[MEMORY_PROJECTED], DTYPE_F32, nb->max_rows, kv);
    nb->ids = xmalloc(rows * sizeof *nb->ids);
    nb->positions = xmalloc(rows * sizeof *nb->positions);
    nb->slot_row_of = xmalloc(rows * sizeof *nb->slot_row_of);
    nb->context_rows = xmalloc((size_t)chunk_rows * sizeof *nb->context_rows);
    nb->step_rows = xmalloc((size_t)max_step_rows * sizeof *nb->step_rows);
    nb->self_spans = xmalloc(rows * sizeof *nb->self_spans);
    nb->cross_spans = xmalloc((size_t)nb->max_chunks * sizeof *nb->cross_spans);
    return STATUS_OK;
}

enum status neighbors_measure(struct neighbors *nb, const struct model *m, const struct session_limits *l,
                              int max_closings, struct error *e) {
    const struct dims *d = &m->dims;
    *nb = (struct neighbors){.model = m, .m = d->chunk_length, .r = d->retrieved_length};
    if (l->max_neighbors < 1 || (int64_t)l->max_neighbors * nb->r > 1 << 20)
        return error_set(e, STATUS_INVALID, "%d neighbours of %d tokens per chunk; allowed is 1 .. %d",
                         l->max_neighbors, nb->r, (1 << 20) / nb->r);
    nb->slot_rows = l->max_neighbors * nb->r;
    /* Each session keeps one slot, and while a step runs every closing takes one. */
    nb->n_slots = l->max_sessions + max_closings;
    if ((int64_t)nb->n_slots * nb->slot_rows > INT32_MAX / 2)
        return error_set(e, STATUS_INVALID,
                         "%d neighbours of %d tokens for each of %d sessions and %d chunks of a step are too many rows",
                         l->max_neighbors, nb->r, l->max_sessions, max_closings);
    nb->max_rows = max_int(nb->slot_rows, min_int(GROUP_ROWS, max_closings * nb->slot_rows));
    nb->max_chunks = min_int(max_closings, max_int(1, nb->max_rows / nb->r));
    size_t kv = 2 * (size_t)m->local.heads.n * (size_t)d->head_dim, hidden = (size_t)d->hidden, layers = 0;
    for (int i = m->first_layer; i < m->end_layer; i++) layers += d->retro_layer[i];
    nb->sizes[MEMORY_SLOTS] = 2 * layers * slots_bytes(nb, l->kv_dtype);
    nb->sizes[MEMORY_CHUNKS] = (size_t)nb->max_chunks * (size_t)nb->m * (hidden + kv) * sizeof(float);
    nb->sizes[MEMORY_PROJECTED] = (size_t)nb->max_rows * kv * sizeof(float);
    nb->sizes[MEMORY_OPEN_ROWS] = (size_t)l->max_sessions * (size_t)nb->m * hidden * sizeof(float);
    if (scratch_measure(m, nb->max_rows, &nb->bytes, e)) return e->status;
    for (size_t i = 0; i < ARRAY_COUNT(nb->sizes); i++) nb->bytes += nb->sizes[i];
    return STATUS_OK;
}

enum status neighbors_open(struct neighbors *nb, const struct model *m, const struct session_limits *l,
                           int max_closings, struct error *e) {
    if (neighbors_measure(nb, m, l, max_closings, e) || open_slots(nb, l->kv_dtype, e) ||
        open_group(nb, l->max_step_rows, e) || allocate(nb, MEMORY_OPEN_ROWS, "rows of open chunks", e))
        return e->status;
    nb->open_rows = tensor_make(nb->memory[MEMORY_OPEN_ROWS], DTYPE_F32, l->max_sessions * nb->m, m->dims.hidden);
    return STATUS_OK;
}

void neighbors_close(struct neighbors *nb) {
    if (nb->model == NULL) return;
    for (size_t i = 0; i < ARRAY_COUNT(nb->memory); i++) backend_release(nb->model->backend, nb->memory[i]);
    scratch_close(&nb->scratch, nb->model);
    free(nb->k);
    free(nb->v);
    free(nb->free_slots);
    free(nb->ids);
    free(nb->positions);
    free(nb->slot_row_of);
    free(nb->context_rows);
    free(nb->step_rows);
    free(nb->self_spans);
    free(nb->cross_spans);
}

int neighbors_take_slot(struct neighbors *nb) {
    CHECK(nb->n_free > 0);
    return nb->free_slots[--nb->n_free];
}

void neighbors_free_slot(struct neighbors *nb, int slot) {
    if (slot >= 0) nb->free_slots[nb->n_free++] = slot;
}

/* context rows of the group = what earlier steps kept, then this step's rows, then zeros where the first chunk is
 * short: zeros after the norm, so a pad row's key and value are the biases, and it is attended (spec 5.1). */
static void gather_context(struct neighbors *nb, const struct closing *c, int n, struct tensor normed) {
    struct backend *b = nb->model->backend;
    for (int i = 0; i < normed.rows; i++) nb->step_rows[i] = -1;
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < nb->m; i++)
            nb->context_rows[j * nb->m + i] = i < c[j].rows_before ? c[j].session * nb->m + i : -1;
        for (int i = 0; i < c[j].rows_here; i++)
            nb->step_rows[c[j].row - c[j].rows_here + 1 + i] = j * nb->m + c[j].rows_before + i;
    }
    struct tensor context = tensor_rows(nb->context, 0, n * nb->m);
    gather_rows(b, &(struct gather_rows_args){.y = context, .x = nb->open_rows, .rows = nb->context_rows});
    scatter_rows(b, &(struct scatter_rows_args){.y = context, .x = normed, .rows = nb->step_rows});
}

/* Row t of neighbour i of closing j is row (first row of j) + i r + t of the group. */
static int plan_group(struct neighbors *nb, const struct closing *c, int n, int *n_spans) {
    int row = 0;
    *n_spans = 0;
    for (int j = 0; j < n; j++) {
        nb->cross_spans[j] = (struct attention_span){row, c[j].k * nb->r, j * nb->m, nb->m};
        for (int i = 0; i < c[j].k; i++) {
            nb->self_spans[(*n_spans)++] = (struct attention_span){row, nb->r, row, nb->r};
            for (int t = 0; t < nb->r; t++, row++) {
                nb->ids[row] = c[j].ids[i * nb->r + t];
                nb->positions[row] = t; /* every neighbour is its own sequence (spec 2) */
                nb->slot_row_of[row] = c[j].slot * nb->slot_rows + i * nb->r + t;
            }
        }
    }
    return row;
}

/* The encoder's cross attention reads the decoder's chunk (spec 6 step 3). */
static const struct cross_source *read_context(void *source, int layer_index, struct tensor normed) {
    (void)layer_index;
    (void)normed;
    return source;
}

/* x of `pass` = the encoder's output for the group. */
static void encode_group(struct neighbors *nb, const struct closing *c, int n, struct tensor normed,
                         struct pass *pass) {
    const struct model *m = nb->model;
    int heads = m->local.heads.n * m->dims.head_dim;
    gather_context(nb, c, n, normed);
    struct tensor kv = tensor_rows(nb->context_kv, 0, n * nb->m);
    struct cross_source source = {
        .k = tensor_cols(kv, 0, heads), .v = tensor_cols(kv, heads, heads), .spans = nb->cross_spans, .n_spans = n};
    pass->context = &source;
    embed(m->backend, &(struct embed_args){.y = pass->scratch.x,
                                           .word = &m->word,
                                           .position = m->position.data ? &m->position : NULL,
                                           .ids = nb->ids,
                                           .positions = nb->positions});
    for (int j = 0; j < m->n_encoder; j++) {
        const struct layer *l = &m->encoder[j];
        if (l->spec.cross)
            linear(m->backend, &(struct linear_args){.y = kv,
                                                     .x = tensor_rows(nb->context, 0, n * nb->m),
                                                     .weight = &l->cross_kv.weight,
                                                     .bias = l->cross_kv.bias});
        layer_forward(pass, l);
    }
}

/* Keys and values of this stage's retro layers, into the group's slots. */
static void project_group(struct neighbors *nb, struct tensor encoded) {
    const struct model *m = nb->model;
    int heads = m->local.heads.n * m->dims.head_dim;
    struct tensor out = tensor_rows(nb->projected, 0, encoded.rows);
    for (int i = m->first_layer; i < m->end_layer; i++) {
        if (!m->dims.retro_layer[i]) continue;
        const struct projection *w = &m->layers[i].cross_kv;
        linear(m->backend, &(struct linear_args){.y = out, .x = encoded, .weight = &w->weight, .bias = w->bias});
        scatter_rows(m->backend, &(struct scatter_rows_args){
                                     .y = nb->k[i], .x = tensor_cols(out, 0, heads), .rows = nb->slot_row_of});
        scatter_rows(m->backend, &(struct scatter_rows_args){
                                     .y = nb->v[i], .x = tensor_cols(out, heads, heads), .rows = nb->slot_row_of});
    }
}

/* One stage encodes; from there the output goes from stage to stage, as far as there are retro layers. */
static void fill_group(struct neighbors *nb, const struct closing *c, int n, struct tensor normed) {
    const struct model *m = nb->model;
    const struct comm *comm = m->comm;
    int n_spans, rows = plan_group(nb, c, n, &n_spans);
    struct pass pass = {.model = m,
                        .scratch = scratch_rows(&nb->scratch, rows),
                        .spans = nb->self_spans,
                        .n_spans = n_spans,
                        .positions = nb->positions,
                        .cross = read_context};
    if (comm->stage == m->encodes)
        encode_group(nb, c, n, normed, &pass);
    else
        comm_receive(comm->world, m->backend, pass.scratch.x, comm->world->rank - comm->size);
    project_group(nb, pass.scratch.x);
    if (comm->stage < m->reads) comm_send(comm->world, m->backend, pass.scratch.x, comm->world->rank + comm->size);
}

void neighbors_encode(struct neighbors *nb, const struct closing *closings, int n, struct tensor normed) {
    for (int first = 0; first < n;) {
        while (first < n && closings[first].k == 0) first++;
        int last = first, rows = 0;
        while (last < n && last - first < nb->max_chunks && closings[last].k > 0 &&
               rows + closings[last].k * nb->r <= nb->scratch.max_rows)
            rows += closings[last++].k * nb->r;
        if (last > first) fill_group(nb, closings + first, last - first, normed);
        first = last;
    }
}

void neighbors_keep(struct neighbors *nb, struct tensor normed, const int32_t *rows) {
    scatter_rows(nb->model->backend, &(struct scatter_rows_args){.y = nb->open_rows, .x = normed, .rows = rows});
}
