/* server/schedule/engine_sequence.c: one answer as it grows: tokens become text, and what can no
 * longer change is published. See engine_private.h. */
#include <stdlib.h>
#include <string.h>

#include "server/schedule/scoring.h"
#include "server/schedule/told_attention.h"

struct engine_sequence *engine_sequence_open(struct engine *x, struct sequence *sequence) {
    const struct sequence_request *asked = &sequence->asked;
    struct engine_sequence *s = xcalloc(1, sizeof *s);
    sequence_hold(sequence);
    s->engine = x;
    s->sequence = sequence;
    s->rows = asked->prompt;
    s->n_rows = asked->n_prompt;
    s->source = asked->source;
    s->n_source = asked->n_source;
    s->submitted = time_now();
    s->text.stop_string = s->text.stop_id = -1;
    /* The answer goes on where the prompt ends; behind a decoder's start id alone it is a text
     * of its own. */
    s->text.detokenizer.started = asked->n_source == 0 || asked->n_prompt > 1;
    s->pictures.set = picture_set_hold(asked->pictures);
    lookup_part_open(s);
    return s;
}

enum status engine_sequence_start(struct engine_sequence *s, struct error *e) {
    struct engine *x = s->engine;
    const struct sequence_request *asked = &s->sequence->asked;
    if (session_open(&s->session, x->pool, engine_sequence_grid(s), e)) return e->status;
    s->prefix.scope = engine_scope(x, s);
    session_set_scope(s->session, s->prefix.scope);
    logit_edits_open(&s->edits, asked, x->info.vocab, &x->o.ends);
    guide_part_open(&s->guide, asked, &x->o, x->info.vocab);
    return STATUS_OK;
}

void engine_sequence_free(struct engine_sequence *s) {
    buffer_free(&s->text.all);
    lookup_part_close(&s->lookup);
    passage_part_close(&s->passages);
    found_part_close(&s->found);
    pictures_part_close(&s->pictures);
    scoring_part_close(&s->scoring);
    attention_part_close(&s->attention);
    guide_part_close(&s->guide);
    logit_edits_close(&s->edits);
    sequence_release(s->sequence);
    free(s);
}

/* Without neighbours the rows do not depend on the grid, so all such sessions get the same one:
 * they can take over each other's rows. It has no more chunks than the answer's own. */
struct grid engine_sequence_grid(const struct engine_sequence *s) {
    const struct sequence_neighbors *asked = &s->sequence->asked.neighbors;
    bool reads = asked->search || asked->given_k > 0;
    struct grid grid = s->sequence->answer.grid;
    return reads ? grid : grid_make(GRID_START, s->n_rows, max_int(grid.m, 1));
}

struct workload engine_sequence_left(const struct engine_sequence *s) {
    const struct sequence_request *asked = &s->sequence->asked;
    int read = s->session ? session_length(s->session) : 0, unread = max_int(0, s->n_rows - read);
    int source = s->session && !session_wants_source(s->session) ? 0 : s->n_source;
    if (asked->forced) return (struct workload){.prompt = source + unread + (s->scoring.forced ? 0 : asked->n_forced)};
    return (struct workload){.prompt = source + unread, .answer = asked->max_tokens - s->n_ids};
}

/* Special tokens are no text, but for those that the asker reads an answer by, and the sentinels
 * that tell its spans apart. */
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
        s->text.stop_id = token;
        return FINISH_STOP;
    }
    return s->n_ids + 1 == asked->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

/* Moves `visible` on; true when a stop string ends the text. A stop string that begins within
 * the first min_tokens tokens is text. */
static bool stops_reached(struct engine_sequence *s) {
    const struct sequence_end *end = &s->sequence->asked.end;
    struct stop_match match;
    if (end->min_tokens > 0 && s->n_ids <= end->min_tokens) {
        s->text.visible = s->text.all.size;
        return false;
    }
    if (!stops_scan(&end->stops, s->text.all.data, s->text.all.size, &s->text.visible, &match)) return false;
    s->text.stop_string = match.index;
    if (end->include_stop) s->text.visible = match.end;
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
    if (is_text) detokenizer_push(&s->text.detokenizer, o->tokenizer, token, &s->text.all);
    answer->ids[s->n_ids] = token;
    answer->text_ends[s->n_ids] = s->text.all.size;
    s->n_ids++;
    s->logprob_sum += (double)logprob;
    logit_edits_note(&s->edits, token);

    if (stops_reached(s)) return FINISH_STOP;
    if (how != FINISH_STOP && s->guide.matcher) how = guide_note(&s->guide, token, how);
    if (how == FINISH_NONE) return how;
    detokenizer_finish(&s->text.detokenizer, &s->text.all);
    s->text.visible = s->text.all.size;
    return how;
}

/* Under the answer's lock. */
static void answer_update(struct engine_sequence *s, enum finish how) {
    struct sequence_answer *answer = &s->sequence->answer;
    const struct sequence_neighbors *asked = &s->sequence->asked.neighbors;
    bool wake = s->sequence->asked.wake_per_token || how != FINISH_NONE;
    bool tells_chunks = asked->search || asked->given_k > 0;
    if (s->text.visible > answer->text.size)
        buffer_append(&answer->text, s->text.all.data + answer->text.size, s->text.visible - answer->text.size);
    answer->progress = (struct progress){.n_cached = s->prefix.n_cached,
                                         .n_ids = s->n_ids,
                                         .visible = s->text.visible,
                                         .n_found = s->passages.n_searched + (tells_chunks ? s->lookup.n_neighbors : 0),
                                         .n_read = s->n_source + s->n_rows - s->n_reread,
                                         .finish = how,
                                         .logprob_sum = s->logprob_sum,
                                         .stop_string = s->text.stop_string,
                                         .stop_id = s->text.stop_id,
                                         .complete = guide_is_complete(&s->guide)};
    if (wake && answer->waker.wake) answer->waker.wake(answer->waker.context);
}

void engine_sequence_publish(struct engine_sequence *s) {
    struct sequence_answer *answer = &s->sequence->answer;
    pthread_mutex_lock(&answer->lock);
    answer_update(s, FINISH_NONE);
    pthread_mutex_unlock(&answer->lock);
}

void engine_sequence_park(struct engine_sequence *s, enum parked_for what) {
    s->state = SEQUENCE_PARKED;
    s->parked_for = what;
    s->engine->n_parked++;
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
        client_counts_take(&x->by_client, s->sequence->asked.principal.client, 1);
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
    if (s->parked_for == PARKED_FOR_PICTURES) picture_job_hurry(s->found.job);
    s->state = SEQUENCE_LEFT;
    x->n_parked--;
    x->n_left++;
}
