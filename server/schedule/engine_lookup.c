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

int engine_read_chunk(const struct engine_sequence *sequence, int j, int32_t *ids, int missing) {
    const struct grid grid = sequence->sequence->answer.grid;
    int start = grid_start(grid, j), n = grid_end(grid, j) - start - missing;
    for (int i = 0; i < n; i++) ids[i] = engine_sequence_row(sequence, start + i);
    return n;
}

/* A query for a chunk's neighbours, but for its text, whose size is known. No reranker: a chunk of
 * the answer would wait for it, at every chunk. */
static struct retriever_query neighbor_query(const struct engine_sequence *sequence, size_t size) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    return (struct retriever_query){.text = {NULL, size},
                                    .k = asked->neighbors.k,
                                    .r = sequence->engine->info.retrieved_length,
                                    .min_similarity = (float)asked->choice.min_similarity,
                                    .choice = retrieval_choice_ranking(&asked->choice, 0),
                                    .filter = sequence->lookup.filter,
                                    .excluded = asked->excluded,
                                    .n_excluded = asked->n_excluded};
}

/* Appends the text of the tokens; returns its size. */
static size_t append_text(struct engine_sequence *sequence, const int32_t *ids, int n) {
    size_t before = sequence->lookup.query.size;
    tokenizer_decode(sequence->engine->o.tokenizer, ids, n, true, &sequence->lookup.query);
    return sequence->lookup.query.size - before;
}

/* The n queries' texts lie behind each other. */
static void place_texts(struct engine_sequence *sequence, int n) {
    struct retriever_query *queries = sequence->lookup.job.queries;
    const char *text = sequence->lookup.query.data ? sequence->lookup.query.data : "";
    for (int j = 0; j < n; j++) {
        queries[j].text.text = text;
        text += queries[j].text.size;
    }
}

void engine_write_query(struct engine_sequence *sequence, const int32_t *ids, int n) {
    buffer_clear(&sequence->lookup.query);
    size_t size = append_text(sequence, ids, n);
    sequence->lookup.job.queries[0] = neighbor_query(sequence, size);
    place_texts(sequence, 1);
}

/* The texts of chunks [first, first + n), as queries. */
static void write_queries(struct engine_sequence *sequence, int first, int n) {
    int32_t *ids = sequence->engine->chunk_ids;
    buffer_clear(&sequence->lookup.query);
    for (int j = 0; j < n; j++) {
        int n_ids = engine_read_chunk(sequence, first + j, ids, 0);
        size_t size = append_text(sequence, ids, n_ids);
        sequence->lookup.job.queries[j] = neighbor_query(sequence, size);
    }
    place_texts(sequence, n);
}

enum status engine_ask(struct engine_sequence *sequence, int first, int n, struct error *e) {
    struct lookup *lookup = &sequence->lookup.job;
    lookup->n = n;
    lookup->recall = first == 0 && sequence->lookup.recall.list ? &sequence->lookup.recall : NULL;
    lookup->hits = sequence->sequence->answer.found + first;
    lookup->cancelled = &sequence->sequence->cancelled;
    lookup->done = lookup_done;
    lookup->context = sequence;
    return retrieval_thread_ask(sequence->engine->o.retrieval, lookup, e);
}

void engine_look_up(struct engine_sequence *sequence, enum parked_for what, int first, int n) {
    struct error e = {0};
    if (engine_ask(sequence, first, n, &e))
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
    else
        engine_sequence_park(sequence, what);
}

static void look_up_chunks(struct engine_sequence *sequence, int first, int n) {
    write_queries(sequence, first, n);
    engine_look_up(sequence, PARKED_FOR_NEIGHBORS, sequence->sequence->answer.n_searches + first,
                   n);
}

static void accept_neighbors(struct engine_sequence *sequence) {
    const struct lookup *lookup = &sequence->lookup.job;
    struct error e = {0};
    for (int j = 0; j < lookup->n; j++) {
        const struct hits *found = &lookup->hits[j];
        sequence->lookup.neighbors[sequence->lookup.n_neighbors] =
            (struct neighbor_tokens){.ids = found->ids, .k = found->n};
        engine_read_hits(
            sequence, found->list, found->n,
            grid_end(sequence->sequence->answer.grid, sequence->lookup.n_neighbors) - 1);
        sequence->lookup.n_neighbors++;
        if (e.status == STATUS_OK)
            engine_quote_neighbors(sequence, sequence->lookup.n_neighbors - 1, &e);
    }
    if (e.status)
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
    else
        engine_sequence_publish(sequence);
}

void engine_close_chunks(struct engine_sequence *sequence, int first, int n) {
    if (!sequence->sequence->asked.neighbors.search || n == 0) {
        sequence->lookup.n_neighbors += n;
        engine_sequence_publish(sequence);
        return;
    }
    switch (engine_end_ahead(sequence, first)) {
        case AHEAD_IS_THERE: accept_neighbors(sequence); break;
        case AHEAD_COMES: engine_sequence_park(sequence, PARKED_FOR_NEIGHBORS); break;
        case AHEAD_IS_OTHER: engine_sequence_park(sequence, PARKED_FOR_OTHERS); break;
        case AHEAD_NOTHING: look_up_chunks(sequence, first, n); break;
    }
}

void engine_close_prompt(struct engine_sequence *sequence) {
    const struct sequence_answer *answer = &sequence->sequence->answer;
    engine_close_chunks(sequence, 0,
                        answer->n_chunks ? grid_complete(answer->grid, sequence->n_rows) : 0);
}

/* The answer that a sequence was waiting for when it left is there. */
static void forget_neighbors(struct engine_sequence *sequence) {
    struct lookup *lookup = &sequence->lookup.job;
    bool found = lookup->status == STATUS_OK && !sequence->blocks.loading;
    for (int j = 0; j < lookup->n && found; j++) hits_free(&lookup->hits[j]);
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

void engine_accept(struct engine_sequence *sequence) {
    if (sequence->state == SEQUENCE_LEFT) {
        forget_neighbors(sequence);
        return;
    }
    if (sequence->state == SEQUENCE_RUNNING) {
        engine_note_ahead(sequence);
        return;
    }
    sequence->engine->n_parked--;
    sequence->state = SEQUENCE_RUNNING;
    if (sequence->parked_for == PARKED_FOR_OTHERS) {
        engine_forget_ahead(sequence);
        look_up_chunks(sequence, sequence->lookup.n_neighbors, 1);
        return;
    }
    if (sequence->parked_for == PARKED_FOR_BLOCKS)
        engine_accept_blocks(sequence);
    else if (sequence->parked_for == PARKED_FOR_PICTURES)
        engine_accept_pictures(sequence);
    else if (sequence->lookup.job.status && !goes_without(sequence))
        engine_sequence_finish(sequence, FINISH_ERROR, &sequence->lookup.job.error);
    else if (sequence->parked_for == PARKED_FOR_PASSAGES)
        engine_accept_passages(sequence);
    else
        accept_neighbors(sequence);
}
