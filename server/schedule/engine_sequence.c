/* server/schedule/engine_sequence.c: one answer as it grows: tokens become text, and what can no longer change is
 * published. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/comparison.h"

struct engine_sequence *engine_sequence_open(struct engine *x, struct sequence *sequence) {
    const struct sequence_neighbors *asked = &sequence->asked.neighbors;
    size_t n_chunks = (size_t)max_int(1, sequence->answer.chunks_room);
    struct engine_sequence *s = xcalloc(1, sizeof *s);
    sequence_hold(sequence);
    s->engine = x;
    s->sequence = sequence;
    s->rows = sequence->asked.prompt;
    s->n_rows = sequence->asked.n_prompt;
    s->source = sequence->asked.source;
    s->n_source = sequence->asked.n_source;
    s->pictures = picture_set_hold(sequence->asked.pictures);
    s->stop_string = s->stop_id = -1;
    s->submitted = time_now();
    /* The answer goes on where the prompt ends; behind a decoder's start id alone it is a text of its own. */
    s->detokenizer.started = sequence->asked.n_source == 0 || sequence->asked.n_prompt > 1;
    s->neighbors = xcalloc(n_chunks, sizeof *s->neighbors);
    for (size_t j = 0; j < n_chunks; j++)
        s->neighbors[j] = (struct neighbor_tokens){.ids = asked->given_ids, .k = asked->given_k};
    if (sequence_searches(&sequence->asked)) {
        s->lookup.queries = xcalloc(n_chunks, sizeof *s->lookup.queries);
        s->lookup.snapshot = snapshot_hold(sequence->answer.snapshot);
        s->filter = filter_join(principal_filter(&sequence->asked.principal), sequence->asked.filter);
    }
    return s;
}

void engine_sequence_free(struct engine_sequence *s) {
    buffer_free(&s->text);
    buffer_free(&s->query_text);
    logit_edits_close(&s->edits);
    guided_close(s);
    free(s->neighbors);
    free(s->given);
    free(s->positions);
    picture_set_release(s->pictures);
    picture_job_release(s->reading);
    free(s->composed_rows);
    free(s->composed_source);
    free(s->forced);
    free(s->passage_keys);
    free(s->lookup.queries);
    snapshot_release(s->lookup.snapshot);
    filter_release(s->filter);
    sequence_release(s->sequence);
    free(s);
}

struct workload engine_sequence_left(const struct engine_sequence *s) {
    const struct sequence_request *asked = &s->sequence->asked;
    int read = s->session ? session_length(s->session) : 0, unread = max_int(0, s->n_rows - read);
    int source = s->session && !session_wants_source(s->session) ? 0 : s->n_source;
    if (asked->forced) return (struct workload){.prompt = source + unread + (s->forced ? 0 : asked->n_forced)};
    return (struct workload){.prompt = source + unread, .answer = asked->max_tokens - s->n_ids};
}

/* Special tokens are no text, but for those that the asker reads an answer by, and the sentinels that tell its spans
 * apart. */
static bool is_shown(const struct tokenizer *t, const struct sequence_request *asked, int32_t token) {
    if (!tokenizer_is_special(t, token)) return true;
    for (int i = 0; i < asked->n_shown; i++)
        if (asked->shown[i] == token) return true;
    int32_t sentinel = tokenizer_sentinel(t, 0);
    for (int n = 1; sentinel >= 0 && sentinel != token; n++) sentinel = tokenizer_sentinel(t, n);
    return sentinel == token;
}

static bool is_stop_id(const struct sequence_end *end, int32_t token) {
    for (int i = 0; i < end->n_stop_ids; i++)
        if (end->stop_ids[i] == token) return true;
    return false;
}

/* How the answer ends by this token itself. */
static enum finish token_ends(struct engine_sequence *s, int32_t token) {
    const struct sequence_request *asked = &s->sequence->asked;
    bool may = s->n_ids >= asked->end.min_tokens;
    if (may && end_ids_have(&s->engine->o.ends, token) && !asked->end.ignore_eos) return FINISH_STOP;
    if (may && is_stop_id(&asked->end, token)) {
        s->stop_id = token;
        return FINISH_STOP;
    }
    return s->n_ids + 1 == asked->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

/* Moves `visible` on; true when a stop string ends the text. A stop string that begins within the first min_tokens
 * tokens is text. */
static bool stops_reached(struct engine_sequence *s) {
    const struct sequence_end *end = &s->sequence->asked.end;
    struct stop_match match;
    if (end->min_tokens > 0 && s->n_ids <= end->min_tokens) {
        s->visible = s->text.size;
        return false;
    }
    if (!stops_scan(&end->stops, s->text.data, s->text.size, &s->visible, &match)) return false;
    s->stop_string = match.index;
    if (end->include_stop) s->visible = match.end;
    return true;
}

static void note_token(struct engine_sequence *s) {
    struct engine_metrics *metrics = &s->engine->metrics;
    double now = time_now();
    if (s->n_ids == 0)
        histogram_note(&metrics->first_token, now - s->submitted);
    else
        histogram_note(&metrics->per_token, now - s->latest);
    s->latest = now;
}

enum finish engine_sequence_append(struct engine_sequence *s, int32_t token, float logprob) {
    const struct engine_options *o = &s->engine->o;
    const struct sequence_end *end = &s->sequence->asked.end;
    struct sequence_answer *answer = &s->sequence->answer;
    enum finish how = token_ends(s, token);
    bool is_text = (how != FINISH_STOP || end->include_stop) && is_shown(o->tokenizer, &s->sequence->asked, token);

    note_token(s);
    if (is_text) detokenizer_push(&s->detokenizer, o->tokenizer, token, &s->text);
    answer->ids[s->n_ids] = token;
    answer->text_ends[s->n_ids] = s->text.size;
    s->n_ids++;
    s->logprob_sum += (double)logprob;
    logit_edits_note(&s->edits, token);

    if (stops_reached(s)) return FINISH_STOP;
    if (how != FINISH_STOP && s->matcher) how = guided_note(s, token, how);
    if (how == FINISH_NONE) return how;
    detokenizer_finish(&s->detokenizer, &s->text);
    s->visible = s->text.size;
    return how;
}

/* Under the answer's lock. */
static void answer_update(struct engine_sequence *s, enum finish how) {
    struct sequence_answer *answer = &s->sequence->answer;
    const struct sequence_neighbors *asked = &s->sequence->asked.neighbors;
    bool wake = s->sequence->asked.wake_per_token || how != FINISH_NONE;
    bool tells_chunks = asked->search || asked->given_k > 0;
    if (s->visible > answer->text.size)
        buffer_append(&answer->text, s->text.data + answer->text.size, s->visible - answer->text.size);
    answer->progress = (struct progress){.n_cached = s->n_cached,
                                         .n_ids = s->n_ids,
                                         .visible = s->visible,
                                         .n_found = s->n_searched + (tells_chunks ? s->n_neighbors : 0),
                                         .n_read = s->n_source + s->n_rows - s->n_reread,
                                         .finish = how,
                                         .logprob_sum = s->logprob_sum,
                                         .stop_string = s->stop_string,
                                         .stop_id = s->stop_id,
                                         .complete = s->matcher && s->matcher->finished};
    if (wake && answer->waker.wake) answer->waker.wake(answer->waker.context);
}

void engine_sequence_publish(struct engine_sequence *s) {
    struct sequence_answer *answer = &s->sequence->answer;
    pthread_mutex_lock(&answer->lock);
    answer_update(s, FINISH_NONE);
    pthread_mutex_unlock(&answer->lock);
}

/* Gives back the session, and the turn that it was for. */
static void sequence_leave(struct engine_sequence *s) {
    struct engine *x = s->engine;
    engine_end_view(s);
    if (s->state != SEQUENCE_WAITING) turns_end(&x->turns, &s->turn);
    if (s->session == NULL) return;
    session_close(s->session);
    s->session = NULL;
    int i = 0;
    while (x->active[i] != s) i++;
    x->n_active--;
    memmove(x->active + i, x->active + i + 1, (size_t)(x->n_active - i) * sizeof(struct engine_sequence *));
}

void engine_sequence_finish(struct engine_sequence *s, enum finish how, const struct error *e) {
    struct engine *x = s->engine;
    struct sequence_answer *answer = &s->sequence->answer;
    struct engine_sequence *next = how == FINISH_ERROR ? NULL : comparison_open(s);
    sequence_leave(s);
    principal_charge(&s->sequence->asked.principal, 0, s->n_ids);
    if (!s->sequence->asked.forced) {
        x->metrics.finished[how]++;
        histogram_note(&x->metrics.request, time_now() - s->submitted);
    }
    if (next) {
        engine_wait(next); /* in the place that this one had among those in flight */
    } else {
        pthread_mutex_lock(&x->lock);
        x->in_flight--;
        shares_take(&x->shares, s->sequence->asked.principal.client, 1);
        pthread_mutex_unlock(&x->lock);
    }

    pthread_mutex_lock(&answer->lock);
    if (how == FINISH_ERROR) answer->error = *e;
    answer_update(s, how);
    pthread_mutex_unlock(&answer->lock);

    if (s->state != SEQUENCE_PARKED) {
        engine_sequence_free(s);
        return;
    }
    if (s->reads_pictures) picture_job_hurry(s->reading);
    s->state = SEQUENCE_LEFT;
    x->n_parked--;
    x->n_left++;
}
