/* server/schedule/engine_admit.c: who gets a session and who leaves. See engine_private.h. */
#include <stdlib.h>

#include "server/schedule/scoring.h"

/* Receive. */

static struct engine_sequence *sequence_of(const struct turn *item) {
    return (struct engine_sequence *)(uintptr_t)item;
}

static void count_waiting(struct engine *engine, const struct engine_sequence *sequence, int sign) {
    struct workload left = engine_sequence_left(sequence);
    engine->waiting.prompt += sign * left.prompt;
    engine->waiting.answer += sign * left.answer;
}

void engine_wait(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    turns_add(&engine->turns, sequence->sequence->asked.principal.client,
              (struct turn *[]){&sequence->turn}, 1);
    count_waiting(engine, sequence, 1);
}

static void accept_submission(struct engine *engine, struct engine_submission *submission) {
    turns_add(&engine->turns, submission->client, submission->items, submission->n);
    for (int i = 0; i < submission->n; i++)
        count_waiting(engine, sequence_of(submission->items[i]), 1);
    free(submission);
}

static void finish_cancelled(struct engine_sequence *sequence) {
    struct error e;
    error_set(&e, STATUS_CANCELLED,
              "the request was cancelled: the client left or the server stops");
    engine_sequence_finish(sequence, FINISH_ERROR, &e);
}

static void finish_late(struct engine_sequence *sequence) {
    struct error e;
    error_set(&e, STATUS_CANCELLED,
              "the answer did not come in time (option server.request_timeout)");
    engine_sequence_finish(sequence, FINISH_ERROR, &e);
}

/* A reason to leave without an answer, or with a part of it. */
struct departure {
    bool all;
    double now;
};

static bool sequence_is_late(const struct engine_sequence *sequence, double now) {
    return principal_is_late(&sequence->sequence->asked.principal, now);
}

static bool sequence_departs(void *departure, const struct turn *item) {
    const struct departure *the_departure = departure;
    const struct engine_sequence *sequence = sequence_of(item);
    return the_departure->all || engine_sequence_cancelled(sequence) ||
           sequence_is_late(sequence, the_departure->now);
}

static void finish_departed(struct engine_sequence *sequence, const struct departure *departure) {
    if (departure->all || engine_sequence_cancelled(sequence))
        finish_cancelled(sequence);
    else
        finish_late(sequence);
}

/* Whoever left costs nothing from here on. */
static void drop(struct engine *engine, bool drop_all) {
    struct departure departure = {.all = drop_all, .now = time_now()};
    struct turn *dropped = turns_drop(&engine->turns, sequence_departs, &departure);
    while (dropped) {
        struct engine_sequence *sequence = sequence_of(dropped);
        dropped = dropped->next;
        count_waiting(engine, sequence, -1);
        finish_departed(sequence, &departure);
    }
    for (int i = engine->n_active - 1; i >= 0; i--)
        if (sequence_departs(&departure, &engine->active[i]->turn))
            finish_departed(engine->active[i], &departure);
}

void engine_receive(struct engine *engine, bool drop_all) {
    struct engine_submission *submission;
    struct engine_sequence *sequence;
    while ((submission = queue_take(&engine->submitted)) != NULL)
        accept_submission(engine, submission);
    engine_forget_gone(engine); /* what these requests were sent after */
    while ((sequence = queue_take(&engine->answered)) != NULL) engine_accept(sequence);
    drop(engine, drop_all);
}

/* Admit. */

static void start_sequence(struct engine_sequence *sequence) {
    struct engine *engine = sequence->engine;
    const struct sequence_request *asked = &sequence->sequence->asked;
    struct error e = {0};
    sequence->state = SEQUENCE_RUNNING;
    if (!asked->forced) histogram_note(&engine->metrics.queue, time_now() - sequence->submitted);
    principal_charge(&asked->principal, asked->n_prompt + asked->n_source + asked->n_forced, 0);
    if (!sequence_reads_passages(asked)) comparison_begin(sequence);
    if (asked->max_tokens == 0 && !asked->score_prompt) {
        engine_sequence_finish(sequence, FINISH_LENGTH, NULL);
    } else if (engine_sequence_start(sequence, &e)) {
        engine_sequence_finish(sequence, FINISH_ERROR, &e);
    } else {
        engine->active[engine->n_active] = sequence;
        engine->n_active++;
        if (engine_quote_given(sequence, &e))
            engine_sequence_finish(sequence, FINISH_ERROR, &e);
        else if (sequence_reads_passages(asked))
            engine_seek_passages(sequence);
        else
            engine_close_prompt(sequence);
    }
}

/* Those who left while they were parked still have their lookups under way, which are bounded too.
 */
void engine_admit(struct engine *engine) {
    int lookups = engine_lookups(engine->o.max_sequences);
    while (engine->n_active < engine->o.max_sequences &&
           engine->n_active + engine->n_left < lookups) {
        struct turn *next = turns_take(&engine->turns);
        if (next == NULL) return;
        count_waiting(engine, sequence_of(next), -1);
        start_sequence(sequence_of(next));
    }
}
