/* server/api/documents/look.c: see look.h. */
#include "server/api/documents/look.h"

#include <stdlib.h>

#include "server/api/core/shared_answer.h"

void look_free(struct look *look) {
    buffer_free(&look->body);
    look->free(look);
}

static void run(struct look *look) { look->failed = look->run(look, &look->error) != STATUS_OK; }

static void describe_failure(const struct look *look, struct failure *failure) {
    if (look->http)
        failure_set(failure, look->http, look->code, NULL, "%s", look->error.text);
    else if (look->error.status == STATUS_NOT_FOUND && look->lost)
        failure_set(failure, 404, "not_found", look->lost, "%s", look->error.text);
    else
        failure_from_error(failure, &look->error);
}

static void add_headers(const struct look *look, struct answer *answer) {
    if (look->head) look->head(look, answer);
}

/* In the document thread, or as a stream. */

struct look_answer {
    struct shared_answer base; /* first */
    struct look *look;
    struct document_job job;
};

static void free_answer(struct shared_answer *base) {
    struct look_answer *answer = (struct look_answer *)base;
    look_free(answer->look);
    free(answer);
}

static void look_run(struct document_job *job) {
    struct look_answer *answer = job->context;
    run(answer->look);
}

static void look_done(struct document_job *job) { shared_answer_finish(job->context); }

static enum answer_progress look_poll(struct answer *base, struct buffer *out) {
    struct look_answer *answer = (struct look_answer *)base;
    struct failure failure;
    if (base->stream) return answer->look->more(answer->look, out);
    if (!shared_answer_is_done(&answer->base)) return ANSWER_WAITING;
    if (answer->look->failed) {
        describe_failure(answer->look, &failure);
        failure_answer(&failure, base, out);
    } else {
        add_headers(answer->look, base);
        buffer_append(out, answer->look->body.data, answer->look->body.size);
    }
    base->stream = !answer->look->failed && answer->look->length > 0;
    base->length = base->stream ? answer->look->length : 0;
    return base->stream ? ANSWER_MORE : ANSWER_COMPLETE;
}

static struct look_answer *make_answer(struct look *look, struct waker waker) {
    static const struct answer_ops ops = {look_poll, shared_answer_cancel, shared_answer_close};
    struct look_answer *answer = xcalloc(1, sizeof *answer);
    shared_answer_init(&answer->base, &ops, waker, free_answer);
    answer->look = look;
    return answer;
}

static struct answer *ask_thread(struct look *look, const struct served_model *model,
                                 struct waker waker, struct failure *failure) {
    struct look_answer *answer = make_answer(look, waker);
    struct error e;
    look->failed = true;
    error_set(&look->error, STATUS_CANCELLED, "the server is stopping");
    answer->job = (struct document_job){.run = look_run,
                                        .cancelled = &answer->base.cancelled,
                                        .done = look_done,
                                        .context = answer};
    shared_answer_begin(&answer->base);
    if (document_thread_ask(model->document_thread, &answer->job, &e) == STATUS_OK)
        return &answer->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&answer->base);
    answer_close(&answer->base.base);
    return NULL;
}

struct answer *look_ask(struct look *look, const struct served_model *model, struct waker waker,
                        struct failure *failure) {
    if (collection_is_remote(model->collection)) return ask_thread(look, model, waker, failure);
    run(look);
    if (look->length > 0 && !look->failed) {
        struct look_answer *stream = make_answer(look, waker);
        stream->base.done = true;
        return &stream->base.base;
    }
    struct answer *answer = look->failed ? NULL : answer_text(200, JSON_TYPE, &look->body);
    if (look->failed)
        describe_failure(look, failure);
    else
        add_headers(look, answer);
    look_free(look);
    return answer;
}
