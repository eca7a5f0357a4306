/* server/schedule/scoring.c: see scoring.h. */
#include "server/schedule/scoring.h"

#include <stdlib.h>
#include <string.h>

void scoring_part_close(struct scoring_part *part) { free(part->forced); }

/* Whether log-probabilities of the rows that it reads are wanted: of a prompt that is read for
 * the first time. */
static bool scores_prompt(const struct engine_sequence *sequence) {
    return sequence->sequence->asked.score_prompt && sequence->n_reread == 0;
}

bool scoring_reads(const struct engine_sequence *sequence) {
    return scores_prompt(sequence) || sequence->scoring.forced;
}

int scoring_first_row(const struct engine_sequence *sequence) {
    if (sequence->scoring.forced)
        return sequence->n_prefix + sequence->sequence->asked.n_prompt - 1;
    return scores_prompt(sequence) ? sequence->n_prefix : sequence->n_rows - 1;
}

/* Of a token in the row on the host, from 1. */
static int32_t rank_of(const struct engine *engine, int32_t token) {
    int32_t rank = 1;
    for (int32_t id = 0; id < engine->info.vocab; id++)
        rank += engine->row[id] > engine->row[token] ||
                (engine->row[id] == engine->row[token] && id < token);
    return rank;
}

/* Log-probabilities of `token` under one row of logits, into row `entry` of the answer. */
static enum status score_token(struct engine_sequence *sequence, int entry, struct tensor logits,
                               int32_t token, struct error *e) {
    struct engine *engine = sequence->engine;
    struct sequence_answer *answer = &sequence->sequence->answer;
    int n_top = sequence->sequence->asked.n_top, n = max_int(1, n_top), at = 0;
    size_t first = (size_t)entry * (size_t)n_top;
    backend_download(engine->o.backend, engine->row, logits.data,
                     (size_t)engine->info.padded_vocab * sizeof *engine->row);
    if (backend_sync(engine->o.backend, e)) return e->status;

    float log_sum =
        logprobs_top(engine->row, engine->info.vocab, n, engine->top_ids, engine->top_logprobs);
    if (answer->ranks && entry < sequence->sequence->asked.n_prompt)
        answer->ranks[entry] = rank_of(engine, token);
    while (at < n && engine->top_ids[at] != token) at++;
    /* The same number as in the list when it is there: clients compare the two for equality. */
    answer->logprobs[entry] = at < n ? engine->top_logprobs[at] : engine->row[token] - log_sum;
    memcpy(answer->top_ids + first, engine->top_ids, (size_t)n_top * sizeof *answer->top_ids);
    memcpy(answer->top_logprobs + first, engine->top_logprobs,
           (size_t)n_top * sizeof *answer->top_logprobs);
    return STATUS_OK;
}

/* Row i predicts token i + 1. Passages before the prompt are not scored. */
enum status scoring_take(struct engine *engine, int i, struct tensor logits, struct error *e) {
    struct engine_sequence *sequence = engine->step.sequences[i];
    int end = session_length(sequence->session) - engine->step.items[i].n_drafts,
        first = end - logits.rows, known = sequence->n_rows + (sequence->scoring.forced ? 1 : 0);
    for (int j = 0; scoring_reads(sequence) && j < logits.rows && first + j + 1 < known; j++) {
        int next = first + j + 1, entry = next - sequence->n_prefix;
        if (entry < 1) continue;
        if (score_token(sequence, entry, tensor_rows(logits, j, 1), sequence->rows[next], e))
            return e->status;
    }
    return STATUS_OK;
}

enum status scoring_take_drawn(struct engine *engine, int i, struct tensor row, struct error *e) {
    struct engine_sequence *sequence = engine->step.sequences[i];
    const struct sequence_request *asked = &sequence->sequence->asked;
    if (asked->n_top < 0) return STATUS_OK;
    return score_token(sequence, asked->n_prompt + sequence->n_ids, row, engine->step.drawn[i], e);
}

/* Comparisons. */

struct engine_sequence *comparison_open(const struct engine_sequence *engine_sequence) {
    struct engine *engine = engine_sequence->engine;
    struct sequence *sequence = engine_sequence->sequence->asked.comparison;
    const struct sequence_request *asked = &engine_sequence->sequence->asked;
    const struct sequence_answer *answer = &engine_sequence->sequence->answer;
    const int32_t *ids = asked->forced ? asked->forced : answer->ids;
    int n_ids = asked->forced ? asked->n_forced : engine_sequence->n_ids;
    size_t bytes = (size_t)n_ids * sizeof *ids;
    if (sequence == NULL || n_ids == 0) return NULL;
    sequence->asked.forced = memcpy(xmalloc(bytes), ids, bytes);
    sequence->asked.n_forced = n_ids;
    sequence_prepare(sequence, &(struct sequence_rows){engine->o.grid, engine->info.chunk_length,
                                                       engine->o.max_context});
    if (sequence_searches(&sequence->asked))
        sequence->answer.snapshot = snapshot_hold(answer->snapshot);
    struct engine_sequence *compared = engine_sequence_open(engine, sequence);
    engine_inherit_documents(compared, engine_sequence);
    return compared;
}

void comparison_begin(struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    int n = sequence->n_rows + asked->n_forced;
    if (asked->forced == NULL) return;
    sequence->scoring.forced = xmalloc((size_t)n * sizeof *sequence->scoring.forced);
    memcpy(sequence->scoring.forced, sequence->rows,
           (size_t)sequence->n_rows * sizeof *sequence->scoring.forced);
    memcpy(sequence->scoring.forced + sequence->n_rows, asked->forced,
           (size_t)asked->n_forced * sizeof *sequence->scoring.forced);
    sequence->rows = sequence->scoring.forced;
    sequence->n_rows = n - 1; /* nobody asks what comes behind the last token */
}
