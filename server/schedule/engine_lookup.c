/* server/schedule/engine_lookup.c: neighbours and passages on their way: a sequence whose next
 * row needs them is parked until the retrieval thread answers. See engine_private.h. */
#include <stdlib.h>

#include "config/base/log.h"
#include "server/schedule/engine_private.h"

void lookup_part_open(struct engine_sequence *s) {
    struct lookup_part *p = &s->lookup;
    const struct sequence_request *asked = &s->sequence->asked;
    size_t n_chunks = (size_t)max_int(1, s->sequence->answer.chunks_room);
    p->neighbors = xcalloc(n_chunks, sizeof *p->neighbors);
    for (size_t j = 0; j < n_chunks; j++)
        p->neighbors[j] = (struct neighbor_tokens){asked->neighbors.given_ids, asked->neighbors.given_k};
    if (!sequence_searches(asked)) return;
    p->job.queries = xcalloc(n_chunks, sizeof *p->job.queries);
    p->job.snapshot = snapshot_hold(s->sequence->answer.snapshot);
    p->filter = filter_join(principal_filter(&asked->principal), asked->filter);
}

void lookup_part_close(struct lookup_part *p) {
    free(p->neighbors);
    free(p->job.queries);
    snapshot_release(p->job.snapshot);
    filter_release(p->filter);
    buffer_free(&p->query);
}

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
    struct retriever_query *queries = s->lookup.job.queries;
    /* No reranker: a chunk of the answer would wait for it, at every chunk. */
    struct retriever_choice ranking = retrieval_choice_ranking(&asked->choice, 0);
    buffer_clear(&s->lookup.query);
    for (int j = 0; j < n; j++) {
        size_t before = s->lookup.query.size;
        int n_ids = read_chunk(s, first + j, x->chunk_ids);
        tokenizer_decode(x->o.tokenizer, x->chunk_ids, n_ids, true, &s->lookup.query);
        queries[j] = (struct retriever_query){.text = {NULL, s->lookup.query.size - before},
                                              .k = asked->neighbors.k,
                                              .r = x->info.retrieved_length,
                                              .min_similarity = (float)asked->choice.min_similarity,
                                              .choice = ranking,
                                              .filter = s->lookup.filter,
                                              .excluded = asked->excluded,
                                              .n_excluded = asked->n_excluded};
    }
    const char *text = s->lookup.query.data ? s->lookup.query.data : "";
    for (int j = 0; j < n; j++) {
        queries[j].text.text = text;
        text += queries[j].text.size;
    }
}

void engine_look_up(struct engine_sequence *s, enum parked_for what, int first, int n) {
    struct engine *x = s->engine;
    struct lookup *l = &s->lookup.job;
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
    engine_sequence_park(s, what);
}

void engine_close_chunks(struct engine_sequence *s, int first, int n) {
    if (s->sequence->asked.neighbors.search && n > 0) {
        write_queries(s, first, n);
        engine_look_up(s, PARKED_FOR_NEIGHBORS, s->sequence->answer.n_searches + first, n);
        return;
    }
    s->lookup.n_neighbors += n;
    engine_sequence_publish(s);
}

void engine_close_prompt(struct engine_sequence *s) {
    const struct sequence_answer *answer = &s->sequence->answer;
    engine_close_chunks(s, 0, answer->n_chunks ? grid_complete(answer->grid, s->n_rows) : 0);
}

/* The lookup of a sequence that left is done. */
static void forget_neighbors(struct engine_sequence *s) {
    struct lookup *l = &s->lookup.job;
    for (int j = 0; j < l->n && l->status == STATUS_OK; j++) hits_free(&l->hits[j]);
    s->engine->n_left--;
    engine_sequence_free(s);
}

/* Whether the sequence is written without the neighbours of a lookup that failed: then it has
 * found none. A collection that answers wrongly is as good as one that does not answer. */
static bool goes_without(struct engine_sequence *s) {
    const struct lookup *l = &s->lookup.job;
    bool is_away = l->status == STATUS_BUSY || l->status == STATUS_CORRUPT;
    if (!is_away || !s->engine->o.write_without) return false;
    if (!atomic_exchange(&s->sequence->answer.away, true))
        log_warn("an answer is written without neighbours: %s", l->error.text);
    return true;
}

static void accept_neighbors(struct engine_sequence *s) {
    const struct lookup *l = &s->lookup.job;
    for (int j = 0; j < l->n; j++) {
        const struct hits *found = &l->hits[j];
        s->lookup.neighbors[s->lookup.n_neighbors] = (struct neighbor_tokens){.ids = found->ids, .k = found->n};
        s->lookup.n_neighbors++;
    }
    engine_sequence_publish(s);
}

void engine_accept(struct engine_sequence *s) {
    if (s->state == SEQUENCE_LEFT) {
        forget_neighbors(s);
        return;
    }
    s->engine->n_parked--;
    s->state = SEQUENCE_RUNNING;
    if (s->parked_for == PARKED_FOR_PICTURES)
        engine_accept_pictures(s);
    else if (s->lookup.job.status && !goes_without(s))
        engine_sequence_finish(s, FINISH_ERROR, &s->lookup.job.error);
    else if (s->parked_for == PARKED_FOR_PASSAGES)
        engine_accept_passages(s);
    else
        accept_neighbors(s);
}
