/* server/api/text/writing_answer.c: from sequences to an answer. See writing_answer.h. */
#include "server/api/text/writing_answer.h"

#include <stdlib.h>
#include <time.h>

#include "server/api/text/writing_ask.h"

/* Open. */

void writing_answer_init(struct writing_answer *answer, const struct writing_ops *ops,
                         const struct request_writing *asked) {
    answer->ops = ops;
    answer->asked = asked;
    answer->created = time(NULL);
    answer->id = random_number();
}

struct choice *writing_answer_add(struct writing_answer *answer, size_t bytes,
                                  const struct principal *who, struct waker waker) {
    struct choice *choice = xcalloc(1, bytes);
    answer->choices = xrealloc(answer->choices, ((size_t)answer->n + 1) * sizeof(struct choice *));
    answer->choices[answer->n] = choice;
    choice->index = answer->n;
    choice->sequence = sequence_open();
    choice->sequence->asked.principal = principal_hold(*who);
    choice->sequence->answer.waker = waker;
    answer->n++;
    return choice;
}

bool writing_answer_submit(struct writing_answer *answer, struct failure *failure) {
    struct sequence **sequences = xcalloc((size_t)answer->n, sizeof(struct sequence *));
    struct error e;
    for (int i = 0; i < answer->n; i++) sequences[i] = answer->choices[i]->sequence;
    enum status status = engine_submit(answer->model->engine, sequences, answer->n, &e);
    free(sequences);
    if (status == STATUS_OK) return true;
    failure_from_error(failure, &e);
    if (status == STATUS_BUSY) failure->retry_after = engine_retry_after(answer->model->engine);
    return false;
}

void writing_answer_begin(struct writing_answer *answer) {
    if (!answer->asked->stream) return;
    answer->base.stream = true;
    answer_set_header(&answer->base, "Content-Type", "%s",
                      answer->ops->stream_type ? answer->ops->stream_type : "text/event-stream");
    answer_add_header(&answer->base, "X-Accel-Buffering", "no"); /* nginx would keep events back */
}

/* Poll. */

static bool read_answer(const struct writing_answer *answer, struct choice *choice,
                        struct error *e) {
    choice->progress = sequence_read(choice->sequence, choice->text.size, &choice->text, e);
    if (answer->ops->read) answer->ops->read(answer, choice, e);
    return choice->progress.finish != FINISH_ERROR;
}

/* Whether no comparison has failed; `finished` where there is nothing to wait for any more. */
static bool read_comparisons(struct choice *choice, struct error *e) {
    struct buffer unread = {0};
    enum finish how = FINISH_STOP;
    for (struct sequence *one = choice->sequence->asked.comparison;
         one && how != FINISH_NONE && how != FINISH_ERROR; one = one->asked.comparison)
        how = sequence_read(one, SIZE_MAX, &unread, e).finish;
    choice->finished = how != FINISH_NONE;
    return how != FINISH_ERROR;
}

/* One choice, as far as it has come; false: it failed. */
static bool poll_choice(const struct writing_answer *answer, struct choice *choice,
                        struct buffer *out, struct error *e) {
    bool stream = answer->base.stream;
    if (!choice->written) {
        if (!read_answer(answer, choice, e)) return false;
        if (stream) answer->ops->write_new(answer, choice, out);
        choice->written = choice->progress.finish != FINISH_NONE;
    }
    if (!choice->written || choice->finished) return true;
    if (!read_comparisons(choice, e)) return false;
    const struct request_retrieval *asked = &answer->asked->retrieval;
    if (stream && choice->finished && (asked->compared || asked->choice.support))
        answer->ops->write_comparison(answer, choice, out);
    return true;
}

static enum answer_progress fail(struct writing_answer *answer, const struct error *e,
                                 struct buffer *out) {
    struct failure failure;
    failure_from_error(&failure, e);
    if (answer->base.stream) {
        answer->ops->write_end(answer, &failure, out);
        failure_free(&failure);
    } else {
        failure_answer(&failure, &answer->base, out);
    }
    return ANSWER_COMPLETE;
}

enum answer_progress writing_answer_poll(struct answer *answer, struct buffer *out) {
    struct writing_answer *writing_answer = (struct writing_answer *)answer;
    size_t before = out->size;
    bool finished = true;
    for (int i = 0; i < writing_answer->n; i++) {
        struct error e;
        if (!poll_choice(writing_answer, writing_answer->choices[i], out, &e))
            return fail(writing_answer, &e, out);
        finished = finished && writing_answer->choices[i]->finished;
    }
    if (!finished) return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
    if (writing_answer->base.stream)
        writing_answer->ops->write_end(writing_answer, NULL, out);
    else
        writing_answer->ops->write_whole(writing_answer, out);
    return ANSWER_COMPLETE;
}

/* The end. */

const struct text_span *writing_stop(const struct writing_answer *answer,
                                     const struct choice *choice) {
    const struct stops *asked = &answer->asked->stops;
    int number = choice->progress.stop_string;
    return number >= 0 && number < asked->n ? &asked->strings[number] : NULL;
}

void writing_answer_cancel(struct writing_answer *answer) {
    for (int i = 0; i < answer->n; i++) sequence_cancel(answer->choices[i]->sequence);
    if (answer->n > 0) engine_notice(answer->model->engine);
}

void writing_answer_free(struct writing_answer *answer) {
    writing_answer_cancel(answer);
    for (int i = 0; i < answer->n; i++) {
        struct choice *choice = answer->choices[i];
        sequence_detach(choice->sequence);
        sequence_release(choice->sequence);
        if (answer->ops->free_choice) answer->ops->free_choice(choice);
        buffer_free(&choice->text);
        free(choice);
    }
    free(answer->choices);
}
