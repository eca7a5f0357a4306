/* server/schedule/engine_sequence.c: one answer as it grows: tokens become text, and what can no
 * longer change is published. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

struct engine_sequence *engine_sequence_open(struct engine *engine, struct sequence *sequence) {
    const struct sequence_request *asked = &sequence->asked;
    struct engine_sequence *engine_sequence = xcalloc(1, sizeof *engine_sequence);
    sequence_hold(sequence);
    engine_sequence->engine = engine;
    engine_sequence->sequence = sequence;
    engine_sequence->rows = asked->prompt;
    engine_sequence->n_rows = asked->n_prompt;
    engine_sequence->source = asked->source;
    engine_sequence->n_source = asked->n_source;
    engine_sequence->submitted = time_now();
    engine_sequence->text.stop_string = engine_sequence->text.stop_id = -1;
    /* The answer goes on where the prompt ends; behind a decoder's start id alone it is a text
     * of its own. */
    engine_sequence->text.detokenizer.started = asked->n_source == 0 || asked->n_prompt > 1;
    engine_sequence->pictures.set = picture_set_hold(asked->pictures);
    lookup_part_open(engine_sequence);
    return engine_sequence;
}

enum status engine_sequence_start(struct engine_sequence *sequence, struct error *e) {
    struct engine *engine = sequence->engine;
    const struct sequence_request *asked = &sequence->sequence->asked;
    if (session_open(&sequence->session, engine->pool, engine_sequence_grid(sequence), e))
        return e->status;
    sequence->prefix.scope = engine_scope(engine, sequence);
    session_set_scope(sequence->session, sequence->prefix.scope);
    if (engine->blocks) {
        struct block_address origin = engine_origin(engine, sequence);
        session_set_origin(sequence->session, &origin);
    }
    engine_note_inherited(sequence);
    logit_edits_open(&sequence->edits, asked, engine->info.vocab, &engine->o.ends);
    guide_part_open(&sequence->guide, asked, &engine->o, engine->info.vocab);
    return STATUS_OK;
}

void engine_sequence_free(struct engine_sequence *sequence) {
    buffer_free(&sequence->text.all);
    lookup_part_close(&sequence->lookup);
    ahead_part_close(&sequence->ahead);
    blocks_part_close(&sequence->blocks);
    passage_part_close(&sequence->passages);
    found_part_close(&sequence->found);
    pictures_part_close(&sequence->pictures);
    scoring_part_close(&sequence->scoring);
    attention_part_close(&sequence->attention);
    guide_part_close(&sequence->guide);
    draft_part_close(&sequence->drafts);
    logit_edits_close(&sequence->edits);
    sequence_release(sequence->sequence);
    free(sequence);
}

/* Without neighbours the rows do not depend on the grid, so all such sessions get the same one:
 * they can take over each other's rows. It has no more chunks than the answer's own. */
struct grid engine_sequence_grid(const struct engine_sequence *sequence) {
    const struct sequence_neighbors *asked = &sequence->sequence->asked.neighbors;
    bool reads = asked->search || asked->given_k > 0;
    struct grid grid = sequence->sequence->answer.grid;
    return reads ? grid : grid_make(GRID_START, sequence->n_rows, max_int(grid.m, 1));
}

struct workload engine_sequence_left(const struct engine_sequence *sequence) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    int read = sequence->session ? session_length(sequence->session) : 0,
        unread = max_int(0, sequence->n_rows - read);
    int source =
        sequence->session && !session_wants_source(sequence->session) ? 0 : sequence->n_source;
    if (asked->forced)
        return (struct workload){.prompt = source + unread +
                                           (sequence->scoring.forced ? 0 : asked->n_forced)};
    return (struct workload){.prompt = source + unread,
                             .answer = asked->max_tokens - sequence->n_ids};
}

/* Special tokens are no text, but for those that the asker reads an answer by, and the sentinels
 * that tell its spans apart. */
static bool is_shown(const struct tokenizer *tokenizer, const struct sequence_request *asked,
                     int32_t token) {
    if (!tokenizer_is_special(tokenizer, token)) return true;
    for (int i = 0; i < asked->n_shown; i++)
        if (asked->shown[i] == token) return true;
    int32_t sentinel = tokenizer_sentinel(tokenizer, 0);
    for (int n = 1; sentinel >= 0 && sentinel != token; n++)
        sentinel = tokenizer_sentinel(tokenizer, n);
    return sentinel == token;
}

static bool is_stop_id(const struct sequence_end *end, int32_t token) {
    for (int i = 0; i < end->n_stop_ids; i++)
        if (end->stop_ids[i] == token) return true;
    return false;
}

/* How the answer ends by this token itself. */
static enum finish token_ends(struct engine_sequence *sequence, int32_t token) {
    const struct sequence_request *asked = &sequence->sequence->asked;
    bool may = sequence->n_ids >= asked->end.min_tokens;
    if (may && end_ids_have(&sequence->engine->o.ends, token) && !asked->end.ignore_eos)
        return FINISH_STOP;
    if (may && is_stop_id(&asked->end, token)) {
        sequence->text.stop_id = token;
        return FINISH_STOP;
    }
    return sequence->n_ids + 1 == asked->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

/* Moves `visible` on; true when a stop string ends the text. A stop string that begins within
 * the first min_tokens tokens is text. */
static bool stops_reached(struct engine_sequence *sequence) {
    const struct sequence_end *end = &sequence->sequence->asked.end;
    struct stop_match match;
    if (end->min_tokens > 0 && sequence->n_ids <= end->min_tokens) {
        sequence->text.visible = sequence->text.all.size;
        return false;
    }
    if (!stops_scan(&end->stops, sequence->text.all.data, sequence->text.all.size,
                    &sequence->text.visible, &match))
        return false;
    sequence->text.stop_string = match.index;
    if (end->include_stop) sequence->text.visible = match.end;
    return true;
}

static void note_token(struct engine_sequence *sequence) {
    struct engine_metrics *metrics = &sequence->engine->metrics;
    double now = time_now();
    if (sequence->n_ids == 0)
        histogram_note(&metrics->first_token, now - sequence->submitted);
    else
        histogram_note(&metrics->per_token, now - sequence->latest);
    sequence->latest = now;
}

enum finish engine_sequence_append(struct engine_sequence *sequence, int32_t token, float logprob) {
    const struct engine_options *options = &sequence->engine->o;
    const struct sequence_end *end = &sequence->sequence->asked.end;
    struct sequence_answer *answer = &sequence->sequence->answer;
    enum finish how = token_ends(sequence, token);
    bool is_text = (how != FINISH_STOP || end->include_stop) &&
                   is_shown(options->tokenizer, &sequence->sequence->asked, token);
    size_t before = sequence->text.all.size;

    note_token(sequence);
    if (is_text)
        detokenizer_push(&sequence->text.detokenizer, options->tokenizer, token,
                         &sequence->text.all);
    answer->ids[sequence->n_ids] = token;
    answer->text_ends[sequence->n_ids] = sequence->text.all.size;
    sequence->n_ids++;
    sequence->logprob_sum += (double)logprob;
    logit_edits_note(&sequence->edits, token);

    if (stops_reached(sequence)) return FINISH_STOP;
    if (how != FINISH_STOP && sequence->guide.matcher)
        how = guide_note(&sequence->guide, token, before, how);
    if (how == FINISH_NONE) return how;
    detokenizer_finish(&sequence->text.detokenizer, &sequence->text.all);
    sequence->text.visible = sequence->text.all.size;
    return how;
}

/* Under the answer's lock. */
static void answer_update(struct engine_sequence *sequence, enum finish how) {
    struct sequence_answer *answer = &sequence->sequence->answer;
    const struct sequence_neighbors *asked = &sequence->sequence->asked.neighbors;
    bool wake = sequence->sequence->asked.wake_per_token || how != FINISH_NONE;
    bool tells_chunks = asked->search || asked->given_k > 0;
    if (sequence->text.visible > answer->text.size)
        buffer_append(&answer->text, sequence->text.all.data + answer->text.size,
                      sequence->text.visible - answer->text.size);
    answer->progress =
        (struct progress){.n_cached = sequence->prefix.n_cached,
                          .n_ids = sequence->n_ids,
                          .drafts = sequence->drafts.told,
                          .visible = sequence->text.visible,
                          .n_found = sequence->passages.n_searched +
                                     (tells_chunks ? sequence->lookup.n_neighbors : 0),
                          .n_read = sequence->n_source + sequence->n_rows - sequence->n_reread,
                          .finish = how,
                          .logprob_sum = sequence->logprob_sum,
                          .stop_string = sequence->text.stop_string,
                          .stop_id = sequence->text.stop_id,
                          .complete = guide_is_complete(&sequence->guide)};
    if (wake && answer->waker.wake) answer->waker.wake(answer->waker.context);
}

void engine_sequence_publish(struct engine_sequence *sequence) {
    struct sequence_answer *answer = &sequence->sequence->answer;
    pthread_mutex_lock(&answer->lock);
    answer_update(sequence, FINISH_NONE);
    pthread_mutex_unlock(&answer->lock);
}

void engine_sequence_park(struct engine_sequence *sequence, enum parked_for what) {
    sequence->state = SEQUENCE_PARKED;
    sequence->parked_for = what;
    sequence->engine->n_parked++;
}

/* Gives back the session, and the turn that it was for. */
static void sequence_leave(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    engine_end_view(sequence);
    if (sequence->state != SEQUENCE_WAITING) turns_end(&engine->turns, &sequence->turn);
    if (sequence->session == NULL) return;
    session_close(sequence->session);
    sequence->session = NULL;
    int i = 0;
    while (engine->active[i] != sequence) i++;
    engine->n_active--;
    memmove(engine->active + i, engine->active + i + 1,
            (size_t)(engine->n_active - i) * sizeof(struct engine_sequence *));
}

void engine_sequence_finish(struct engine_sequence *sequence, enum finish how,
                            const struct error *e) {
    struct engine *engine = sequence->engine;
    struct sequence_answer *answer = &sequence->sequence->answer;
    struct engine_sequence *next = how == FINISH_ERROR ? NULL : comparison_open(sequence);
    sequence_leave(sequence);
    principal_charge(&sequence->sequence->asked.principal, 0, sequence->n_ids);
    if (!sequence->sequence->asked.forced) {
        engine->metrics.finished[how]++;
        histogram_note(&engine->metrics.request, time_now() - sequence->submitted);
    }
    if (next) {
        engine_wait(next); /* in the place that this one had among those in flight */
    } else {
        pthread_mutex_lock(&engine->lock);
        engine->in_flight--;
        client_counts_take(&engine->by_client, sequence->sequence->asked.principal.client, 1);
        pthread_mutex_unlock(&engine->lock);
    }

    pthread_mutex_lock(&answer->lock);
    if (how == FINISH_ERROR) answer->error = *e;
    engine_tell_quotes(sequence);
    answer_update(sequence, how);
    pthread_mutex_unlock(&answer->lock);

    bool parked = sequence->state == SEQUENCE_PARKED;
    if (!parked && sequence->ahead.state != AHEAD_ASKED) {
        engine_sequence_free(sequence);
        return;
    }
    if (parked && sequence->parked_for == PARKED_FOR_PICTURES)
        picture_job_hurry(sequence->found.job);
    sequence->state = SEQUENCE_LEFT;
    engine->n_parked -= parked;
    engine->n_left++;
}
