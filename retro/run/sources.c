/* retro/run/sources.c: encoding the texts that sessions read. See sources.h. */
#include "retro/run/sources.h"

#include <stdlib.h>

/* Rows the encoder works on at once, where no text is longer. */
enum { GROUP_ROWS = 512 };

static const struct stack *encoder_of(const struct sources *s) { return &s->model->stacks[STACK_ENCODER]; }

enum status sources_measure(struct sources *s, struct cross_cache *cache, const struct model *m,
                            const struct session_limits *l, struct error *e) {
    *s = (struct sources){.model = m, .cache = cache};
    int most = m->spec.learned_positions ? m->spec.max_positions : INT32_MAX;
    if (l->max_source < 1 || l->max_source > most)
        return error_set(e, STATUS_INVALID, "%d tokens for the encoder of one sequence; allowed is 1 .. %d",
                         l->max_source, most);
    s->max_rows = max_int(l->max_source, GROUP_ROWS);
    struct cross_cache_sizes sizes = {
        .n_slots = l->max_sessions, .slot_rows = l->max_source, .group_rows = s->max_rows, .dtype = l->kv_dtype};
    if (cross_cache_measure(cache, m, &sizes, e) || scratch_measure(encoder_of(s), s->max_rows, &s->bytes, e))
        return e->status;
    return STATUS_OK;
}

enum status sources_open(struct sources *s, struct error *e) {
    size_t rows = (size_t)s->max_rows;
    if (scratch_open(&s->scratch, s->model, encoder_of(s), s->max_rows, e)) return e->status;
    s->ids = xmalloc(rows * sizeof *s->ids);
    s->positions = xmalloc(rows * sizeof *s->positions);
    s->slot_row_of = xmalloc(rows * sizeof *s->slot_row_of);
    s->spans = xmalloc(rows * sizeof *s->spans);
    return STATUS_OK;
}

void sources_close(struct sources *s) {
    if (s->model == NULL) return;
    scratch_close(&s->scratch, s->model);
    free(s->ids);
    free(s->positions);
    free(s->slot_row_of);
    free(s->spans);
}

/* Rows of the group, text after text. */
static int lay_out_group(struct sources *s, const struct source *list, int n) {
    int row = 0;
    for (int j = 0; j < n; j++) {
        s->spans[j] = (struct attention_span){row, list[j].n, row, list[j].n};
        for (int i = 0; i < list[j].n; i++) {
            s->ids[row + i] = list[j].ids[i];
            s->positions[row + i] = i;
            s->slot_row_of[row + i] = list[j].slot * s->cache->slot_rows + i;
        }
        row += list[j].n;
    }
    return row;
}

static void encode_group(struct sources *s, const struct source *list, int n) {
    const struct model *m = s->model;
    const struct stack *encoder = encoder_of(s);
    int rows = lay_out_group(s, list, n);
    struct pass pass = {.model = m,
                        .stack = encoder,
                        .scratch = scratch_rows(&s->scratch, rows),
                        .spans = s->spans,
                        .n_spans = n,
                        .positions = s->positions};
    struct tensor x = pass.scratch.x;

    stack_embed(m, encoder, x, s->ids, s->positions);
    for (int i = 0; i < encoder->dims.n_layers; i++) layer_forward(&pass, &encoder->layers[i]);
    if (encoder->final_norm.gamma) stack_norm(m, encoder, x, x, &encoder->final_norm);
    cross_cache_fill(s->cache, x, s->slot_row_of);
}

void sources_encode(struct sources *s, const struct source *list, int n) {
    int first = 0;
    while (first < n) {
        int end = first, rows = 0;
        while (end < n && rows + list[end].n <= s->max_rows) {
            rows += list[end].n;
            end++;
        }
        encode_group(s, list + first, end - first);
        first = end;
    }
}
