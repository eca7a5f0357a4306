/* server/schedule/comparison.c: see comparison.h. */
#include "server/schedule/comparison.h"

#include <string.h>

struct engine_sequence *comparison_open(const struct engine_sequence *s) {
    struct engine *x = s->engine;
    struct generation *g = s->generation->asked.comparison;
    const struct generation_answer *answer = &s->generation->answer;
    size_t bytes = (size_t)s->n_ids * sizeof *answer->ids;
    if (g == NULL || s->n_ids == 0) return NULL;
    g->asked.forced = memcpy(xmalloc(bytes), answer->ids, bytes);
    g->asked.n_forced = s->n_ids;
    generation_prepare(g, &(struct generation_rows){x->o.grid, x->info.chunk_length, x->o.max_context});
    if (generation_searches(&g->asked)) g->answer.snapshot = snapshot_hold(answer->snapshot);
    return sequence_open(x, g);
}

void comparison_begin(struct engine_sequence *s) {
    const struct generation_request *asked = &s->generation->asked;
    int n = s->n_rows + asked->n_forced;
    if (asked->forced == NULL) return;
    s->forced = xmalloc((size_t)n * sizeof *s->forced);
    memcpy(s->forced, s->rows, (size_t)s->n_rows * sizeof *s->forced);
    memcpy(s->forced + s->n_rows, asked->forced, (size_t)asked->n_forced * sizeof *s->forced);
    s->rows = s->forced;
    s->n_rows = n - 1; /* nobody asks what comes behind the last token */
}
