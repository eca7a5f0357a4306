/* server/schedule/comparison.c: see comparison.h. */
#include "server/schedule/comparison.h"

#include <string.h>

struct engine_sequence *comparison_open(const struct engine_sequence *s) {
    struct engine *x = s->engine;
    struct sequence *sequence = s->sequence->asked.comparison;
    const struct sequence_answer *answer = &s->sequence->answer;
    size_t bytes = (size_t)s->n_ids * sizeof *answer->ids;
    if (sequence == NULL || s->n_ids == 0) return NULL;
    sequence->asked.forced = memcpy(xmalloc(bytes), answer->ids, bytes);
    sequence->asked.n_forced = s->n_ids;
    sequence_prepare(sequence, &(struct sequence_rows){x->o.grid, x->info.chunk_length, x->o.max_context});
    if (sequence_searches(&sequence->asked)) sequence->answer.snapshot = snapshot_hold(answer->snapshot);
    return engine_sequence_open(x, sequence);
}

void comparison_begin(struct engine_sequence *s) {
    const struct sequence_request *asked = &s->sequence->asked;
    int n = s->n_rows + asked->n_forced;
    if (asked->forced == NULL) return;
    s->forced = xmalloc((size_t)n * sizeof *s->forced);
    memcpy(s->forced, s->rows, (size_t)s->n_rows * sizeof *s->forced);
    memcpy(s->forced + s->n_rows, asked->forced, (size_t)asked->n_forced * sizeof *s->forced);
    s->rows = s->forced;
    s->n_rows = n - 1; /* nobody asks what comes behind the last token */
}
