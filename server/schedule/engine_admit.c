/* server/schedule/engine_admit.c: who gets a sequence and who leaves, and neighbours on their way: a sequence whose
 * next row needs them is parked until the retrieval thread answers. See engine_private.h. */
#include <stdlib.h>

#include "server/schedule/comparison.h"

/* Neighbours. */

static void lookup_done(struct lookup *l) {
    struct engine_sequence *s = l->context;
    CHECK(queue_put(&s->engine->answered, (void *[]){s}, 1)); /* engine_admit bounds lookups, so there is room */
}

/* The tokens of chunk j, all of which exist, into ids [m]; returns how many. */
static int read_chunk(const struct engine_sequence *s, int j, int32_t *ids) {
    const struct grid grid = s->sequence->answer.grid;
    int start = grid_start(grid, j), n = grid_end(grid, j) - start;
    for (int i = 0; i < n; i++) ids[i] = engine_sequence_row(s, start + i);
    return n;
}

/* The texts of chunks [first, first + n), as queries. */
static void write_queries(struct engine_sequence *s, int first, int n) {
    const struct engine *x = s->engine;
    const struct sequence_request *asked = &s->sequence->asked;
    struct retriever_query *queries = s->lookup.queries;
    /* No reranker: a chunk of the answer would wait for it, at every chunk. */
    struct retriever_choice ranking = retrieval_choice_ranking(&asked->choice, 0);
    buffer_clear(&s->query_text);
    for (int j = 0; j < n; j++) {
        size_t before = s->query_text.size;
        int n_ids = read_chunk(s, first + j, x->chunk_ids);
        tokenizer_decode(x->o.tokenizer, x->chunk_ids, n_ids, true, &s->query_text);
        queries[j] = (struct retriever_query){.text = {NULL, s->query_text.size - before},
                                              .k = asked->neighbors.k,
                                              .r = x->info.retrieved_length,
                                              .min_similarity = (float)asked->choice.min_similarity,
                                              .choice = ranking,
                                              .filter = s->filter,
                                              .excluded = asked->excluded,
                                              .n_excluded = asked->n_excluded};
    }
    const char *text = s->query_text.data ? s->query_text.data : "";
    for (int j = 0; j < n; j++) {
        queries[j].text.text = text;
        text += queries[j].text.size;
    }
}

void engine_look_up(struct engine_sequence *s, int first, int n) {
    struct engine *x = s->engine;
    struct lookup *l = &s->lookup;
    struct error e = {0};
    l->n = n;
    l->hits = s->sequence->answer.found + first;
    l->cancelled = &s->sequence->cancelled;
    l->done = lookup_done;
    l->context = s;
    if (retrieval_thread_ask(x->o.retrieval, l, &e)) {
        engine_sequence_finish(s, FINISH_ERROR, &e);
        return;
    }
    s->state = SEQUENCE_PARKED;
    x->n_parked++;
}

void engine_close_chunks(struct engine_sequence *s, int first, int n) {
    if (s->sequence->asked.neighbors.search && n > 0) {
        write_queries(s, first, n);
        engine_look_up(s, s->sequence->answer.n_searches + first, n);
        return;
    }
    s->n_neighbors += n;
    engine_sequence_publish(s);
}

/* The lookup of a sequence that left is done. */
static void forget_neighbors(struct engine_sequence *s) {
    struct lookup *l = &s->lookup;
    for (int j = 0; j < l->n && l->status == STATUS_OK; j++) hits_free(&l->hits[j]);
    s->engine->n_left--;
    engine_sequence_free(s);
}

/* Whether the sequence is written without the neighbours of a lookup that failed: then it has found none. A collection
 * that answers wrongly is as good as one that does not answer. */
static bool goes_without(struct engine_sequence *s) {
    const struct lookup *l = &s->lookup;
    bool is_away = l->status == STATUS_BUSY || l->status == STATUS_CORRUPT;
    if (!is_away || !s->engine->o.write_without) return false;
    if (!atomic_exchange(&s->sequence->answer.away, true))
        log_warn("an answer is written without neighbours: %s", l->error.text);
    return true;
}

static void accept_neighbors(struct engine_sequence *s) {
    const struct lookup *l = &s->lookup;
    if (s->state == SEQUENCE_LEFT) {
        forget_neighbors(s);
        return;
    }
    s->engine->n_parked--;
    s->state = SEQUENCE_RUNNING;
    if (s->reads_pictures) {
        engine_accept_pictures(s);
        return;
    }
    if (l->status && !goes_without(s)) {
        struct error e = l->error;
        engine_sequence_finish(s, FINISH_ERROR, &e);
        return;
    }
    if (s->seeks_passages) {
        engine_accept_passages(s);
        return;
    }
    for (int j = 0; j < l->n; j++) {
        const struct hits *found = &l->hits[j];
        s->neighbors[s->n_neighbors] = (struct neighbor_tokens){.ids = found->ids, .k = found->n};
        s->n_neighbors++;
    }
    engine_sequence_publish(s);
}

/* Receive. */

static struct engine_sequence *sequence_of(const struct turn *item) {
    return (struct engine_sequence *)(uintptr_t)item;
}

static void count_waiting(struct engine *x, const struct engine_sequence *s, int sign) {
    struct workload left = engine_sequence_left(s);
    x->waiting.prompt += sign * left.prompt;
    x->waiting.answer += sign * left.answer;
}

void engine_wait(struct engine_sequence *s) {
    struct engine *x = s->engine;
    turns_add(&x->turns, s->sequence->asked.principal.client, (struct turn *[]){&s->turn}, 1);
    count_waiting(x, s, 1);
}

static void accept_submission(struct engine *x, struct engine_submission *submission) {
    turns_add(&x->turns, submission->client, submission->items, submission->n);
    for (int i = 0; i < submission->n; i++) count_waiting(x, sequence_of(submission->items[i]), 1);
    free(submission);
}

static void finish_cancelled(struct engine_sequence *s) {
    struct error e;
    error_set(&e, STATUS_CANCELLED, "the request was cancelled: the client left or the server stops");
    engine_sequence_finish(s, FINISH_ERROR, &e);
}

static void finish_late(struct engine_sequence *s) {
    struct error e;
    error_set(&e, STATUS_CANCELLED, "the answer did not come in time (option server.request_timeout)");
    engine_sequence_finish(s, FINISH_ERROR, &e);
}

/* A reason to leave without an answer, or with a part of it. */
struct departure {
    bool all;
    double now;
};

static bool sequence_is_late(const struct engine_sequence *s, double now) {
    return principal_is_late(&s->sequence->asked.principal, now);
}

static bool sequence_departs(void *departure, const struct turn *item) {
    const struct departure *d = departure;
    const struct engine_sequence *s = sequence_of(item);
    return d->all || engine_sequence_cancelled(s) || sequence_is_late(s, d->now);
}

static void finish_departed(struct engine_sequence *s, const struct departure *d) {
    if (d->all || engine_sequence_cancelled(s))
        finish_cancelled(s);
    else
        finish_late(s);
}

/* Whoever left costs nothing from here on. */
static void drop(struct engine *x, bool drop_all) {
    struct departure d = {.all = drop_all, .now = time_now()};
    struct turn *dropped = turns_drop(&x->turns, sequence_departs, &d);
    while (dropped) {
        struct engine_sequence *s = sequence_of(dropped);
        dropped = dropped->next;
        count_waiting(x, s, -1);
        finish_departed(s, &d);
    }
    for (int i = x->n_active - 1; i >= 0; i--)
        if (sequence_departs(&d, &x->active[i]->turn)) finish_departed(x->active[i], &d);
}

void engine_receive(struct engine *x, bool drop_all) {
    struct engine_submission *submission;
    struct engine_sequence *s;
    while ((submission = queue_take(&x->submitted)) != NULL) accept_submission(x, submission);
    while ((s = queue_take(&x->answered)) != NULL) accept_neighbors(s);
    drop(x, drop_all);
}

/* Admit. */

/* Without neighbours the rows do not depend on the grid, so all such sessions get the same one: they can take over each
 * other's rows. It has no more chunks than the answer's own. */
struct grid engine_sequence_grid(const struct engine_sequence *s) {
    const struct sequence_neighbors *asked = &s->sequence->asked.neighbors;
    bool reads = asked->search || asked->given_k > 0;
    struct grid grid = s->sequence->answer.grid;
    return reads ? grid : grid_make(GRID_START, s->n_rows, max_int(grid.m, 1));
}

static void start_sequence(struct engine_sequence *s) {
    struct engine *x = s->engine;
    const struct sequence_request *asked = &s->sequence->asked;
    const struct sequence_answer *answer = &s->sequence->answer;
    struct error e = {0};
    s->state = SEQUENCE_RUNNING;
    if (!asked->forced) histogram_note(&x->metrics.queue, time_now() - s->submitted);
    principal_charge(&asked->principal, asked->n_prompt + asked->n_source + asked->n_forced, 0);
    if (!sequence_reads_passages(asked)) comparison_begin(s);
    if (asked->max_tokens == 0 && !asked->score_prompt) {
        engine_sequence_finish(s, FINISH_LENGTH, NULL);
    } else if (session_open(&s->session, x->pool, engine_sequence_grid(s), &e)) {
        engine_sequence_finish(s, FINISH_ERROR, &e);
    } else {
        s->scope = engine_scope(x, s);
        session_set_scope(s->session, s->scope);
        x->active[x->n_active] = s;
        x->n_active++;
        logit_edits_open(&s->edits, asked, x->info.vocab, &x->o.ends);
        guided_open(s);
        if (sequence_reads_passages(asked))
            engine_seek_passages(s);
        else
            engine_close_chunks(s, 0, answer->n_chunks ? grid_complete(answer->grid, s->n_rows) : 0);
    }
}

/* Those who left while they were parked still have their lookups under way, which are bounded too. */
void engine_admit(struct engine *x) {
    int lookups = engine_lookups(x->o.max_sequences);
    while (x->n_active < x->o.max_sequences && x->n_active + x->n_left < lookups) {
        struct turn *next = turns_take(&x->turns);
        if (next == NULL) return;
        count_waiting(x, sequence_of(next), -1);
        start_sequence(sequence_of(next));
    }
}
