/* retro/run/cross/encoder_group.c: packed texts through an encoder's layers. See encoder_group.h. */
#include "retro/run/cross/encoder_group.h"

#include <stdlib.h>
#include <string.h>

enum status encoder_group_measure(struct encoder_group *g, const struct model *m, int max_rows, struct error *e) {
    *g = (struct encoder_group){.model = m, .encoder = &m->stacks[STACK_ENCODER], .max_rows = max_rows};
    return scratch_measure(g->encoder, max_rows, &g->bytes, e);
}

enum status encoder_group_open(struct encoder_group *g, struct error *e) {
    size_t rows = (size_t)g->max_rows;
    if (scratch_open(&g->scratch, g->model, g->encoder, g->max_rows, e)) return e->status;
    g->ids = xmalloc(rows * sizeof *g->ids);
    g->positions = xmalloc(rows * sizeof *g->positions);
    g->slot_row_of = xmalloc(rows * sizeof *g->slot_row_of);
    g->spans = xmalloc(rows * sizeof *g->spans);
    return STATUS_OK;
}

void encoder_group_close(struct encoder_group *g) {
    if (g->model == NULL) return;
    scratch_close(&g->scratch, g->model);
    free(g->ids);
    free(g->positions);
    free(g->slot_row_of);
    free(g->spans);
}

void encoder_group_clear(struct encoder_group *g) {
    g->n_rows = 0;
    g->n_spans = 0;
}

void encoder_group_add(struct encoder_group *g, const int32_t *ids, int n, int slot_row) {
    int first = g->n_rows;
    CHECK(n > 0 && n <= g->max_rows - first);
    memcpy(g->ids + first, ids, (size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) {
        g->positions[first + i] = i;
        g->slot_row_of[first + i] = slot_row + i;
    }
    g->spans[g->n_spans] = (struct attention_span){first, n, first, n};
    g->n_spans++;
    g->n_rows += n;
}

struct tensor encoder_group_rows(const struct encoder_group *g) {
    return tensor_rows(g->scratch.x, 0, g->n_rows);
}

struct tensor encoder_group_run(const struct encoder_group *g, cross_function *cross, void *context) {
    struct pass pass = {.model = g->model,
                        .stack = g->encoder,
                        .scratch = scratch_rows(&g->scratch, g->n_rows),
                        .spans = g->spans,
                        .n_spans = g->n_spans,
                        .positions = g->positions,
                        .cross = cross,
                        .context = context};
    stack_embed(g->model, g->encoder, pass.scratch.x, g->ids, g->positions);
    for (int i = 0; i < g->encoder->dims.n_layers; i++) {
        pass.layer_index = i;
        layer_forward(&pass, &g->encoder->layers[i]);
    }
    return pass.scratch.x;
}
