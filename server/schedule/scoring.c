/* server/schedule/scoring.c: see scoring.h. */
#include "server/schedule/scoring.h"

#include <stdlib.h>
#include <string.h>

void scoring_part_close(struct scoring_part *p) { free(p->forced); }

/* Whether log-probabilities of the rows that it reads are wanted: of a prompt that is read for
 * the first time. */
static bool scores_prompt(const struct engine_sequence *s) {
    return s->sequence->asked.score_prompt && s->n_reread == 0;
}

bool scoring_reads(const struct engine_sequence *s) { return scores_prompt(s) || s->scoring.forced; }

int scoring_first_row(const struct engine_sequence *s) {
    if (s->scoring.forced) return s->n_prefix + s->sequence->asked.n_prompt - 1;
    return scores_prompt(s) ? s->n_prefix : s->n_rows - 1;
}

/* Of a token in the row on the host, from 1. */
static int32_t rank_of(const struct engine *x, int32_t token) {
    int32_t rank = 1;
    for (int32_t id = 0; id < x->info.vocab; id++)
        rank += x->row[id] > x->row[token] || (x->row[id] == x->row[token] && id < token);
    return rank;
}

/* Log-probabilities of `token` under one row of logits, into row `entry` of the answer. */
static enum status score_token(struct engine_sequence *s, int entry, struct tensor logits, int32_t token,
                               struct error *e) {
    struct engine *x = s->engine;
    struct sequence_answer *answer = &s->sequence->answer;
    int n_top = s->sequence->asked.n_top, n = max_int(1, n_top), at = 0;
    size_t first = (size_t)entry * (size_t)n_top;
    backend_download(x->o.backend, x->row, logits.data, (size_t)x->info.padded_vocab * sizeof *x->row);
    if (backend_sync(x->o.backend, e)) return e->status;

    float log_sum = logprobs_top(x->row, x->info.vocab, n, x->top_ids, x->top_logprobs);
    if (answer->ranks && entry < s->sequence->asked.n_prompt) answer->ranks[entry] = rank_of(x, token);
    while (at < n && x->top_ids[at] != token) at++;
    /* The same number as in the list when it is there: clients compare the two for equality. */
    answer->logprobs[entry] = at < n ? x->top_logprobs[at] : x->row[token] - log_sum;
    memcpy(answer->top_ids + first, x->top_ids, (size_t)n_top * sizeof *answer->top_ids);
    memcpy(answer->top_logprobs + first, x->top_logprobs, (size_t)n_top * sizeof *answer->top_logprobs);
    return STATUS_OK;
}

/* Row i predicts token i + 1; the last of the item's rows has just drawn. Passages before the
 * prompt are not scored. */
enum status scoring_take(struct engine *x, int i, struct tensor logits, struct error *e) {
    struct engine_sequence *s = x->step.sequences[i];
    const struct sequence_request *asked = &s->sequence->asked;
    int first = session_length(s->session) - logits.rows, known = s->n_rows + (s->scoring.forced ? 1 : 0);
    for (int j = 0; scoring_reads(s) && j < logits.rows && first + j + 1 < known; j++) {
        int next = first + j + 1, entry = next - s->n_prefix;
        if (entry < 1) continue;
        if (score_token(s, entry, tensor_rows(logits, j, 1), s->rows[next], e)) return e->status;
    }
    if (asked->n_top < 0 || x->step.draw_row[i] < 0) return STATUS_OK;
    return score_token(s, asked->n_prompt + s->n_ids, tensor_rows(logits, logits.rows - 1, 1), x->step.drawn[i], e);
}

/* Comparisons. */

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
    s->scoring.forced = xmalloc((size_t)n * sizeof *s->scoring.forced);
    memcpy(s->scoring.forced, s->rows, (size_t)s->n_rows * sizeof *s->scoring.forced);
    memcpy(s->scoring.forced + s->n_rows, asked->forced, (size_t)asked->n_forced * sizeof *s->scoring.forced);
    s->rows = s->scoring.forced;
    s->n_rows = n - 1; /* nobody asks what comes behind the last token */
}
