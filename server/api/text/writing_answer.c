/* server/api/text/writing_answer.c: from sequences to an answer. See writing_answer.h. */
#include "server/api/text/writing_answer.h"

#include <stdlib.h>
#include <time.h>

#include "server/api/text/writing_ask.h"

/* Open. */

void writing_answer_init(struct writing_answer *a, const struct writing_ops *ops, const struct request_writing *asked) {
    a->ops = ops;
    a->asked = asked;
    a->created = time(NULL);
    a->id = random_number();
}

struct choice *writing_answer_add(struct writing_answer *a, size_t bytes, const struct principal *who,
                                  struct waker waker) {
    struct choice *choice = xcalloc(1, bytes);
    a->choices = xrealloc(a->choices, ((size_t)a->n + 1) * sizeof(struct choice *));
    a->choices[a->n] = choice;
    choice->index = a->n;
    choice->sequence = sequence_open();
    choice->sequence->asked.principal = principal_hold(*who);
    choice->sequence->answer.waker = waker;
    a->n++;
    return choice;
}

bool writing_answer_submit(struct writing_answer *a, struct failure *f) {
    struct sequence **sequences = xcalloc((size_t)a->n, sizeof(struct sequence *));
    struct error e;
    for (int i = 0; i < a->n; i++) sequences[i] = a->choices[i]->sequence;
    enum status status = engine_submit(a->model->engine, sequences, a->n, &e);
    free(sequences);
    if (status == STATUS_OK) return true;
    failure_from_error(f, &e);
    if (status == STATUS_BUSY) f->retry_after = engine_retry_after(a->model->engine);
    return false;
}

void writing_answer_begin(struct writing_answer *a) {
    if (!a->asked->stream) return;
    a->base.stream = true;
    answer_set_header(&a->base, "Content-Type", "text/event-stream");
    answer_add_header(&a->base, "X-Accel-Buffering", "no"); /* nginx would keep events back */
}

/* Poll. */

static bool read_answer(const struct writing_answer *a, struct choice *choice, struct error *e) {
    choice->progress = sequence_read(choice->sequence, choice->text.size, &choice->text, e);
    if (a->ops->read) a->ops->read(choice);
    return choice->progress.finish != FINISH_ERROR;
}

/* Whether the comparison has not failed; `finished` where there is nothing to wait for any more. */
static bool read_comparison(struct choice *choice, struct error *e) {
    struct buffer unread = {0};
    struct sequence *comparison = choice->sequence->asked.comparison;
    enum finish how = comparison ? sequence_read(comparison, SIZE_MAX, &unread, e).finish : FINISH_STOP;
    choice->finished = how != FINISH_NONE;
    return how != FINISH_ERROR;
}

/* One choice, as far as it has come; false: it failed. */
static bool poll_choice(const struct writing_answer *a, struct choice *choice, struct buffer *out, struct error *e) {
    bool stream = a->base.stream;
    if (!choice->written) {
        if (!read_answer(a, choice, e)) return false;
        if (stream) a->ops->write_new(a, choice, out);
        choice->written = choice->progress.finish != FINISH_NONE;
    }
    if (!choice->written || choice->finished) return true;
    if (!read_comparison(choice, e)) return false;
    if (stream && choice->finished && a->asked->retrieval.compared) a->ops->write_comparison(a, choice, out);
    return true;
}

static enum answer_progress fail(struct writing_answer *a, const struct error *e, struct buffer *out) {
    struct failure f;
    failure_from_error(&f, e);
    if (a->base.stream) {
        a->ops->write_end(a, &f, out);
        failure_free(&f);
    } else {
        failure_answer(&f, &a->base, out);
    }
    return ANSWER_COMPLETE;
}

enum answer_progress writing_answer_poll(struct answer *answer, struct buffer *out) {
    struct writing_answer *a = (struct writing_answer *)answer;
    size_t before = out->size;
    bool finished = true;
    for (int i = 0; i < a->n; i++) {
        struct error e;
        if (!poll_choice(a, a->choices[i], out, &e)) return fail(a, &e, out);
        finished = finished && a->choices[i]->finished;
    }
    if (!finished) return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
    if (a->base.stream)
        a->ops->write_end(a, NULL, out);
    else
        a->ops->write_whole(a, out);
    return ANSWER_COMPLETE;
}

/* The end. */

void writing_answer_cancel(struct writing_answer *a) {
    for (int i = 0; i < a->n; i++) sequence_cancel(a->choices[i]->sequence);
    if (a->n > 0) engine_notice(a->model->engine);
}

void writing_answer_free(struct writing_answer *a) {
    writing_answer_cancel(a);
    for (int i = 0; i < a->n; i++) {
        struct choice *choice = a->choices[i];
        sequence_detach(choice->sequence);
        sequence_release(choice->sequence);
        if (a->ops->free_choice) a->ops->free_choice(choice);
        buffer_free(&choice->text);
        free(choice);
    }
    free(a->choices);
}
