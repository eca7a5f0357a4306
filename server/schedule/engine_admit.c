/* server/schedule/engine_admit.c: who gets a session and who leaves. See engine_private.h. */
#include <stdlib.h>

#include "server/schedule/scoring.h"

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
    while ((s = queue_take(&x->answered)) != NULL) engine_accept(s);
    drop(x, drop_all);
}

/* Admit. */

static void start_sequence(struct engine_sequence *s) {
    struct engine *x = s->engine;
    const struct sequence_request *asked = &s->sequence->asked;
    struct error e = {0};
    s->state = SEQUENCE_RUNNING;
    if (!asked->forced) histogram_note(&x->metrics.queue, time_now() - s->submitted);
    principal_charge(&asked->principal, asked->n_prompt + asked->n_source + asked->n_forced, 0);
    if (!sequence_reads_passages(asked)) comparison_begin(s);
    if (asked->max_tokens == 0 && !asked->score_prompt) {
        engine_sequence_finish(s, FINISH_LENGTH, NULL);
    } else if (engine_sequence_start(s, &e)) {
        engine_sequence_finish(s, FINISH_ERROR, &e);
    } else {
        x->active[x->n_active] = s;
        x->n_active++;
        if (sequence_reads_passages(asked))
            engine_seek_passages(s);
        else
            engine_close_prompt(s);
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
