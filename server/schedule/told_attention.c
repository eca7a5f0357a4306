/* server/schedule/told_attention.c: see told_attention.h. */
#include "server/schedule/told_attention.h"

#include <stdlib.h>
#include <string.h>

void attention_part_close(struct attention_part *part) { free(part->groups); }

static bool attends(const struct sequence_request *asked) {
    return asked->neighbors.search || asked->neighbors.given_k > 0;
}

bool told_attention_of_all(const struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    return asked->told_rows == TOLD_ALL_ROWS && !asked->forced && attends(asked);
}

/* Passages are told of for the rows that write the answer; neighbours for these, or for all rows
 * that read them. */
void told_attention_plan(const struct engine_sequence *sequence, struct step_item *item) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    if (asked->told_rows == TOLD_NO_ROWS || sequence->scoring.forced) return;
    int end = session_length(item->session) + item->n_tokens,
        writing = min_int(item->n_tokens, max_int(0, end - sequence->n_rows + 1));
    if (attends(asked))
        item->n_cross_shares = asked->told_rows == TOLD_ALL_ROWS ? item->n_tokens : writing;
    if (sequence->attention.n == 0 || writing == 0) return;
    item->groups = sequence->attention.groups;
    item->n_groups = sequence->attention.n;
    if (asked->n_source > 0)
        item->n_cross_shares = writing;
    else
        item->n_self_shares = writing;
}

void told_attention_place(struct engine_sequence *sequence, const int *ends, int n, int first) {
    size_t bytes = (size_t)n * sizeof *sequence->attention.groups;
    if (sequence->sequence->asked.told_rows == TOLD_NO_ROWS) return;
    sequence->attention.n = n;
    if (n == 0) return;
    sequence->attention.groups = xrealloc(sequence->attention.groups, bytes);
    for (int i = 0; i < n; i++) {
        int begin = i > 0 ? ends[i - 1] : 0;
        sequence->attention.groups[i] = (struct key_group){first + begin, ends[i] - begin};
    }
}

static void copy_shares(float *to, const float *from, int n) {
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* `told` is of this row of the sequence: columns of cross attention, then as many of self
 * attention. */
static void take_row(const struct engine_sequence *sequence, int row, const float *told,
                     int columns) {
    struct sequence_answer *answer = &sequence->sequence->answer;
    const struct sequence_request *asked = &sequence->sequence->asked;
    int token = row + 1 - sequence->n_rows + sequence->n_reread;
    bool writes = row + 1 >= sequence->n_rows;
    if (attends(asked) && (writes || asked->told_rows == TOLD_ALL_ROWS))
        copy_shares(answer->neighbor_shares + (size_t)row * (size_t)answer->share_columns, told,
                    answer->share_columns);
    if (sequence->attention.n > 0 && writes)
        copy_shares(answer->passage_shares + (size_t)token * (size_t)answer->share_columns,
                    asked->n_source > 0 ? told : told + columns,
                    min_int(sequence->attention.n, answer->share_columns));
}

static bool tells(const struct step_item *item) {
    return item->n_cross_shares + item->n_self_shares > 0;
}

/* Row j of item i, from what is on the host. */
static void take_item_row(struct engine *engine, int i, int j) {
    const struct engine_step *step = &engine->step;
    const struct step_item *item = &step->items[i];
    int cols = session_shares(engine->pool).cols, before = 0;
    if (!tells(item)) return;
    for (int k = 0; k < i; k++) before += step->items[k].n_tokens;
    take_row(step->sequences[i], session_length(item->session) - item->n_tokens + j,
             engine->shared_out + (size_t)(before + j) * (size_t)cols, cols / 2);
}

enum status told_attention_take(struct engine *engine, struct error *e) {
    const struct engine_step *step = &engine->step;
    struct tensor shares = session_shares(engine->pool);
    int rows = 0, last = 0;
    for (int i = 0; i < step->n; i++) {
        rows += step->items[i].n_tokens;
        if (tells(&step->items[i])) last = rows;
    }
    if (last == 0) return STATUS_OK;
    backend_download(engine->o.backend, engine->shared_out, shares.data,
                     (size_t)last * (size_t)shares.cols * sizeof *engine->shared_out);
    if (backend_sync(engine->o.backend, e)) return e->status;

    for (int i = 0; i < step->n; i++) {
        const struct step_item *item = &step->items[i];
        for (int j = 0; j < item->n_tokens - item->n_drafts; j++) take_item_row(engine, i, j);
    }
    return STATUS_OK;
}

void told_attention_take_draft(struct engine *engine, int i) {
    const struct step_item *item = &engine->step.items[i];
    int taken = engine->step.sequences[i]->drafts.taken;
    take_item_row(engine, i, item->n_tokens - item->n_drafts - 1 + taken);
}
