/* server/schedule/engine_lookup.c: neighbours and passages on their way: a sequence whose next
 * row needs them is parked until the retrieval thread answers. See engine_private.h. */
#include <stdlib.h>

#include "config/base/log.h"
#include "server/schedule/engine_private.h"

void lookup_part_open(struct engine_sequence *sequence) {
    struct lookup_part *part = &sequence->lookup;
    const struct sequence_request *asked = &sequence->sequence->asked;
    size_t n_chunks = (size_t)max_int(1, sequence->sequence->answer.chunks_room);
    part->neighbors = xcalloc(n_chunks, sizeof *part->neighbors);
    for (size_t j = 0; j < n_chunks; j++)
        part->neighbors[j] =
            (struct neighbor_tokens){asked->neighbors.given_ids, asked->neighbors.given_k};
    if (!sequence_searches(asked)) return;
    part->job.queries = xcalloc(n_chunks, sizeof *part->job.queries);
    part->job.snapshot = snapshot_hold(sequence->sequence->answer.snapshot);
    part->filter = filter_join(principal_filter(&asked->principal), asked->filter);
}

void lookup_part_close(struct lookup_part *part) {
    free(part->neighbors);
    free(part->job.queries);
    snapshot_release(part->job.snapshot);
    filter_release(part->filter);
    buffer_free(&part->query);
}

static void lookup_done(struct lookup *lookup) {
    struct engine_sequence *sequence = lookup->context;
    CHECK(queue_put(&sequence->engine->answered, (void *[]){sequence},
                    1)); /* engine_admit bounds lookups, so there is room */
}

/* The tokens of chunk j, all of which exist, into ids [m]; returns how many. */
static int read_chunk(const struct engine_sequence *sequence, int j, int32_t *ids) {
    const struct grid grid = sequence->sequence->answer.grid;
    int start = grid_start(grid, j), n = grid_end(grid, j) - start;
    for (int i = 0; i < n; i++) ids[i] = engine_sequence_row(sequence, start + i);
    return n;
}

/* The texts of chunks [first, first + n), as queries. */
static void write_queries(struct engine_sequence *sequence, int first, int n) {
    const struct engine *engine = sequence->engine;
    const struct sequence_request *asked = &sequence->sequence->asked;
    struct retriever_query *queries = sequence->lookup.job.queries;
    /* No reranker: a chunk of the answer would wait for it, at every chunk. */
    struct retriever_choice ranking = retrieval_choice_ranking(&asked->choice, 0);
    buffer_clear(&sequence->lookup.query);
    for (int j = 0; j < n; j++) {
        size_t before = sequence->lookup.query.size;
        int n_ids = read_chunk(sequence, first + j, engine->chunk_ids);
        tokenizer_decode(engine->o.tokenizer, engine->chunk_ids, n_ids, true,
                         &sequence->lookup.query);
        queries[j] = (struct retriever_query){.text = {NULL, sequence->lookup.query.size - before},
                                              .k = asked->neighbors.k,
                                              .r = engine->info.retrieved_length,
                                              .min_similarity = (float)asked->choice.min_similarity,
                                              .choice = ranking,
                                              .filter = sequence->lookup.filter,
                                              .excluded = asked->excluded,
                                              .n_excluded = asked->n_excluded};
    }
    const char *text = sequence->lookup.query.data ? sequence->lookup.query.data : "";
    for (int j = 0; j < n; j++) {
        queries[j].text.text = text;
        text += queries[j].text.size;
    }
}

void engine_look_up(struct engine_sequence *sequence, enum parked_for what, int first, int n) {
    struct engine *engine = sequence->engine;
    struct lookup *lookup = &sequence->lookup.job;
    struct error e = {0};
    lookup->n = n;
    lookup->hits = sequence->sequence->answer.found + first;
    lookup->cancelled = &sequence->sequence->cancelled;
    lookup->done = lookup_done;
    lookup->context = sequence;
    if (retrieval_thread_ask(engine->o.retrieval, lookup, &e)) {
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
        return;
    }
    engine_sequence_park(sequence, what);
}

void engine_close_chunks(struct engine_sequence *sequence, int first, int n) {
    if (sequence->sequence->asked.neighbors.search && n > 0) {
        write_queries(sequence, first, n);
        engine_look_up(sequence, PARKED_FOR_NEIGHBORS,
                       sequence->sequence->answer.n_searches + first, n);
        return;
    }
    sequence->lookup.n_neighbors += n;
    engine_sequence_publish(sequence);
}

void engine_close_prompt(struct engine_sequence *sequence) {
    const struct sequence_answer *answer = &sequence->sequence->answer;
    engine_close_chunks(sequence, 0,
                        answer->n_chunks ? grid_complete(answer->grid, sequence->n_rows) : 0);
}

/* The lookup of a sequence that left is done. */
static void forget_neighbors(struct engine_sequence *sequence) {
    struct lookup *lookup = &sequence->lookup.job;
    for (int j = 0; j < lookup->n && lookup->status == STATUS_OK; j++) hits_free(&lookup->hits[j]);
    sequence->engine->n_left--;
    engine_sequence_free(sequence);
}

/* Whether the sequence is written without the neighbours of a lookup that failed: then it has
 * found none. A collection that answers wrongly is as good as one that does not answer. */
static bool goes_without(struct engine_sequence *sequence) {
    const struct lookup *lookup = &sequence->lookup.job;
    bool is_away = lookup->status == STATUS_BUSY || lookup->status == STATUS_CORRUPT;
    if (!is_away || !sequence->engine->o.write_without) return false;
    if (!atomic_exchange(&sequence->sequence->answer.away, true))
        log_warn("an answer is written without neighbours: %s", lookup->error.text);
    return true;
}

static void accept_neighbors(struct engine_sequence *sequence) {
    const struct lookup *lookup = &sequence->lookup.job;
    struct error e = {0};
    for (int j = 0; j < lookup->n; j++) {
        const struct hits *found = &lookup->hits[j];
        sequence->lookup.neighbors[sequence->lookup.n_neighbors] =
            (struct neighbor_tokens){.ids = found->ids, .k = found->n};
        sequence->lookup.n_neighbors++;
        if (e.status == STATUS_OK)
            engine_quote_neighbors(sequence, sequence->lookup.n_neighbors - 1, &e);
    }
    if (e.status)
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
    else
        engine_sequence_publish(sequence);
}

void engine_accept(struct engine_sequence *sequence) {
    if (sequence->state == SEQUENCE_LEFT) {
        forget_neighbors(sequence);
        return;
    }
    sequence->engine->n_parked--;
    sequence->state = SEQUENCE_RUNNING;
    if (sequence->parked_for == PARKED_FOR_PICTURES)
        engine_accept_pictures(sequence);
    else if (sequence->lookup.job.status && !goes_without(sequence))
        engine_sequence_finish(sequence, FINISH_ERROR, &sequence->lookup.job.error);
    else if (sequence->parked_for == PARKED_FOR_PASSAGES)
        engine_accept_passages(sequence);
    else
        accept_neighbors(sequence);
}
