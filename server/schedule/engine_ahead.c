/* server/schedule/engine_ahead.c: the neighbours of a chunk that is still being written, looked for
 * as soon as drafts foretell the rest of it. The sequence goes on meanwhile. When its chunk closes
 * with the tokens that were foretold, the neighbours are there, or on their way; with others they
 * are looked for anew. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/engine_private.h"

void ahead_part_close(struct ahead_part *part) { free(part->ids); }

/* The chunk that is being written. */
static int open_chunk(const struct engine_sequence *sequence) {
    int rows = sequence->n_rows + sequence->n_ids - sequence->n_reread;
    return grid_complete(sequence->sequence->answer.grid, rows);
}

int engine_ahead_missing(const struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    const struct sequence_answer *answer = &sequence->sequence->answer;
    const struct ahead_part *part = &sequence->ahead;
    bool moves = asked->passages.search && asked->choice.every > 0; /* the grid, and the chunks */
    if (!asked->neighbors.search || moves || answer->n_chunks == 0) return 0;
    int chunk = open_chunk(sequence);
    if (chunk >= answer->n_chunks || part->state != AHEAD_NONE || part->ids_chunk == chunk + 1)
        return 0;
    int rows = sequence->n_rows + sequence->n_ids - sequence->n_reread;
    return grid_end(answer->grid, chunk) - rows;
}

/* The chunk's tokens: those that are written, and `rest`. */
static int write_ids(struct engine_sequence *sequence, int chunk, const int32_t *rest, int n_rest) {
    struct ahead_part *part = &sequence->ahead;
    int n = engine_read_chunk(sequence, chunk, part->ids, n_rest);
    memcpy(part->ids + n, rest, (size_t)n_rest * sizeof *rest);
    return n + n_rest;
}

void engine_look_ahead(struct engine_sequence *sequence, const int32_t *rest, int n_rest) {
    struct ahead_part *part = &sequence->ahead;
    const struct engine *engine = sequence->engine;
    int chunk = open_chunk(sequence);
    if (part->ids == NULL)
        part->ids = xcalloc((size_t)engine->info.chunk_length, sizeof *part->ids);
    part->n_ids = write_ids(sequence, chunk, rest, n_rest);
    part->ids_chunk = chunk + 1;
    engine_write_query(sequence, part->ids, part->n_ids);
    /* A search that cannot be asked for now is asked for when the chunk closes. */
    if (engine_ask(sequence, sequence->sequence->answer.n_searches + chunk, 1, &(struct error){0}))
        return;
    part->state = AHEAD_ASKED;
    sequence->engine->metrics.lookups_ahead++;
}

void engine_note_ahead(struct engine_sequence *sequence) { sequence->ahead.state = AHEAD_FOUND; }

/* Whether chunk `chunk`, which is complete, has the tokens that were looked for. */
static bool came_true(const struct engine_sequence *sequence, int chunk) {
    const struct ahead_part *part = &sequence->ahead;
    int32_t *ids = sequence->engine->chunk_ids;
    int n = engine_read_chunk(sequence, chunk, ids, 0);
    return part->ids_chunk == chunk + 1 && n == part->n_ids &&
           memcmp(ids, part->ids, (size_t)n * sizeof *ids) == 0;
}

void engine_forget_ahead(struct engine_sequence *sequence) {
    struct lookup *lookup = &sequence->lookup.job;
    if (lookup->status == STATUS_OK) hits_free(&lookup->hits[0]);
    sequence->ahead.state = AHEAD_NONE;
}

enum ahead_end engine_end_ahead(struct engine_sequence *sequence, int chunk) {
    struct ahead_part *part = &sequence->ahead;
    bool asked = part->state == AHEAD_ASKED, found = part->state == AHEAD_FOUND;
    if (!asked && !found) return AHEAD_NOTHING;
    bool right = came_true(sequence, chunk);
    if (right && (asked || sequence->lookup.job.status == STATUS_OK)) {
        sequence->engine->metrics.lookups_used++;
        part->state = AHEAD_NONE;
        return found ? AHEAD_IS_THERE : AHEAD_COMES;
    }
    if (asked) return AHEAD_IS_OTHER;
    engine_forget_ahead(sequence);
    return AHEAD_NOTHING;
}
