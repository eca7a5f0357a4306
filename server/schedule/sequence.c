/* server/schedule/sequence.c: the record that an asker and the engine share. See sequence.h. */
#include "server/schedule/sequence.h"

#include <stdlib.h>

struct sequence *sequence_open(void) {
    struct sequence *sequence = xcalloc(1, sizeof *sequence);
    sequence->asked.n_top = -1;
    sequence->asked.changes.repetition = 1;
    pthread_mutex_init(&sequence->answer.lock, NULL);
    atomic_init(&sequence->references, 1);
    atomic_init(&sequence->cancelled, false);
    return sequence;
}

/* Passages make a prompt longer than it came: then there may be as many chunks as fit any sequence.
 */
static void prepare_found(struct sequence *sequence, const struct sequence_rows *rows) {
    const struct sequence_request *asked = &sequence->asked;
    struct sequence_answer *answer = &sequence->answer;
    int n_rows = asked->n_prompt + asked->max_tokens;
    if (rows->m > 0) {
        answer->grid = grid_make(rows->grid, asked->n_prompt, rows->m);
        answer->n_chunks = grid_complete(answer->grid, n_rows);
        answer->chunks_room =
            sequence_reads_passages(asked) ? rows->most / rows->m + 1 : answer->n_chunks;
    }
    if (sequence_reads_passages(asked)) answer->n_searches = 1;
    int every = asked->choice.every;
    if (asked->passages.search && every > 0) answer->n_searches += asked->max_tokens / every;
    answer->found_room = answer->n_searches + (asked->neighbors.search ? answer->chunks_room : 0);
    answer->search_rows = xcalloc((size_t)answer->n_searches, sizeof *answer->search_rows);
    answer->seen = xcalloc((size_t)answer->n_searches, sizeof *answer->seen);
    answer->found = xcalloc((size_t)answer->found_room, sizeof *answer->found);
}

static void prepare_shares(struct sequence *sequence, const struct sequence_rows *rows) {
    const struct sequence_request *asked = &sequence->asked;
    struct sequence_answer *answer = &sequence->answer;
    const struct sequence_neighbors *neighbors = &asked->neighbors;
    size_t n_rows = sequence_reads_passages(asked)
                        ? (size_t)rows->most
                        : (size_t)asked->n_prompt + (size_t)asked->max_tokens;
    answer->share_columns = max_int(max_int(neighbors->k, neighbors->given_k),
                                    max_int(asked->passages.k, asked->passages.n_given));
    size_t row = (size_t)answer->share_columns;
    if (neighbors->search || neighbors->given_k > 0)
        answer->neighbor_shares = xcalloc(n_rows * row, sizeof(float));
    if (sequence_reads_passages(asked))
        answer->passage_shares = xcalloc((size_t)asked->max_tokens * row, sizeof(float));
}

void sequence_prepare(struct sequence *sequence, const struct sequence_rows *rows) {
    const struct sequence_request *asked = &sequence->asked;
    struct sequence_answer *answer = &sequence->answer;
    size_t most = (size_t)asked->max_tokens, n_rows = (size_t)asked->n_prompt + most;
    answer->ids = xcalloc(most, sizeof *answer->ids);
    answer->text_ends = xcalloc(most, sizeof *answer->text_ends);
    if (asked->n_top >= 0) {
        answer->logprobs = xcalloc(n_rows, sizeof *answer->logprobs);
        answer->top_ids = xcalloc(n_rows * (size_t)asked->n_top, sizeof *answer->top_ids);
        answer->top_logprobs = xcalloc(n_rows * (size_t)asked->n_top, sizeof *answer->top_logprobs);
    }
    if (asked->rank_prompt) answer->ranks = xcalloc((size_t)asked->n_prompt, sizeof *answer->ranks);
    prepare_found(sequence, rows);
    if (asked->told_rows != TOLD_NO_ROWS) prepare_shares(sequence, rows);
}

/* Conversations. */

struct sequence_conversation sequence_conversation_copy(const struct sequence_conversation *from) {
    struct sequence_conversation copy = *from;
    copy.turns = xcalloc((size_t)from->n + 1, sizeof *copy.turns);
    for (int i = 0; i < from->n; i++) {
        copy.turns[i] = from->turns[i];
        read_turn_hold(copy.turns[i].turn);
    }
    return copy;
}

void sequence_conversation_free(struct sequence_conversation *conversation) {
    for (int i = 0; i < conversation->n; i++) read_turn_release(conversation->turns[i].turn);
    free(conversation->turns);
}

const struct hit *sequence_passage(const struct sequence *sequence, int j, int number) {
    const struct sequence_answer *answer = &sequence->answer;
    for (int i = 0; i < answer->found[j].n; i++)
        if (answer->found[j].list[i].number == number) return &answer->found[j].list[i];
    for (int i = 0; i < answer->n_earlier; i++)
        if (answer->earlier[i].number == number) return &answer->earlier[i];
    return NULL;
}

/* References. */

void sequence_hold(struct sequence *sequence) { atomic_fetch_add(&sequence->references, 1); }

static void free_given(struct text_span *given, int n) {
    for (int i = 0; i < n; i++) free((char *)(uintptr_t)given[i].text);
    free(given);
}

static void request_clear(struct sequence_request *asked) {
    stops_free(&asked->end.stops);
    free(asked->end.stop_ids);
    free(asked->shown);
    free(asked->changes.biases);
    free(asked->prompt);
    free(asked->source);
    picture_set_release(asked->pictures);
    free(asked->neighbors.given_ids);
    free_given(asked->neighbors.given, asked->neighbors.n_given);
    free_given(asked->passages.given, asked->passages.n_given);
    for (int i = 0; i < asked->n_excluded; i++) free((char *)(uintptr_t)asked->excluded[i].text);
    free(asked->excluded);
    filter_release(asked->filter);
    free(asked->forced);
    free(asked->predicted);
    sequence_release(asked->comparison);
    free((char *)(uintptr_t)asked->place.query.text);
    free(asked->place.query_problem);
    sequence_conversation_free(&asked->place.conversation);
    principal_release(&asked->principal);
    grammar_release(asked->grammar);
    if (asked->place.close) asked->place.close(asked->place.context);
}

static void answer_clear(struct sequence_answer *answer) {
    for (int j = 0; j < answer->found_room; j++) hits_free(&answer->found[j]);
    for (int j = 0; j < answer->n_searches; j++) found_pictures_free(&answer->seen[j]);
    recalled_release(answer->recalled, answer->n_recalled);
    free(answer->recalled);
    free(answer->earlier);
    pthread_mutex_destroy(&answer->lock);
    buffer_free(&answer->text);
    free(answer->ids);
    free(answer->text_ends);
    free(answer->logprobs);
    free(answer->top_ids);
    free(answer->top_logprobs);
    free(answer->ranks);
    free(answer->found);
    free(answer->search_rows);
    free(answer->seen);
    free(answer->neighbor_shares);
    free(answer->passage_shares);
    free(answer->quotes);
    snapshot_release(answer->snapshot);
}

void sequence_release(struct sequence *sequence) {
    if (sequence == NULL || atomic_fetch_sub(&sequence->references, 1) != 1) return;
    answer_clear(&sequence->answer);
    request_clear(&sequence->asked);
    free(sequence);
}

struct progress sequence_read(struct sequence *sequence, size_t from, struct buffer *text,
                              struct error *e) {
    struct sequence_answer *answer = &sequence->answer;
    pthread_mutex_lock(&answer->lock);
    struct progress progress = answer->progress;
    if (progress.visible > from)
        buffer_append(text, answer->text.data + from, progress.visible - from);
    if (progress.finish == FINISH_ERROR) *e = answer->error;
    pthread_mutex_unlock(&answer->lock);
    return progress;
}

void sequence_cancel(struct sequence *sequence) {
    for (; sequence; sequence = sequence->asked.comparison)
        atomic_store(&sequence->cancelled, true);
}

void sequence_detach(struct sequence *sequence) {
    for (; sequence; sequence = sequence->asked.comparison) {
        pthread_mutex_lock(&sequence->answer.lock);
        sequence->answer.waker.wake = NULL;
        pthread_mutex_unlock(&sequence->answer.lock);
    }
}

int sequence_found_row(const struct sequence *sequence, int j) {
    const struct sequence_answer *answer = &sequence->answer;
    return j < answer->n_searches ? answer->search_rows[j]
                                  : grid_end(answer->grid, j - answer->n_searches) - 1;
}
