/* server/api/documents/documents_delete.c: DELETE /v1/documents: the documents of a path, of a
 * folder, or that a filter allows. They are looked for when the deletion has its turn, and go one
 * after the other. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
#include "server/api/documents/document_outcome.h"
#include "server/api/fields/document_fields.h"

struct deletion {
    struct shared_answer base; /* first */
    struct document_job job;
    struct principal who; /* held */
    struct collection *collection;
    struct document_list_request asked;
    int capacity; /* of job.items */
    bool has_looked;
    struct error error; /* of looking */
};

static void deletion_free(struct shared_answer *base) {
    struct deletion *deletion = (struct deletion *)base;
    for (int i = 0; i < deletion->job.n_items; i++) {
        free((char *)(uintptr_t)deletion->job.items[i].document.id);
        free((char *)(uintptr_t)deletion->job.items[i].document.path);
    }
    free(deletion->job.items);
    document_list_free(&deletion->asked);
    principal_release(&deletion->who);
    free(deletion);
}

static enum status take_named(void *context, const struct stored_document *document,
                              struct error *e) {
    struct deletion *deletion = context;
    struct document_job *job = &deletion->job;
    (void)e;
    if (deletion->asked.path && !document_path_is_named(document->path, deletion->asked.path))
        return STATUS_OK;
    job->items = xgrow(job->items, job->n_items, &deletion->capacity, sizeof *job->items);
    job->items[job->n_items] = (struct document_item){
        .document = {.id = xstrdup(document->id), .path = xstrdup(document->path)}};
    job->n_items++;
    return STATUS_OK;
}

/* Called at each turn. */
static void look_once(struct document_job *job) {
    struct deletion *deletion = job->context;
    struct collection_walk walk = {.filter = principal_filter(&deletion->who),
                                   .narrow = deletion->asked.filter,
                                   .deadline = deletion->who.deadline,
                                   .take = take_named,
                                   .context = deletion};
    if (deletion->has_looked) return;
    deletion->has_looked = true;
    if (collection_walk(deletion->collection, &walk, &deletion->error)) {
        for (int i = 0; i < job->n_items; i++) {
            free((char *)(uintptr_t)job->items[i].document.id);
            free((char *)(uintptr_t)job->items[i].document.path);
        }
        job->n_items = 0;
    } else if (job->n_items == 0) {
        error_set(&deletion->error, STATUS_NOT_FOUND, "no document has that path%s",
                  deletion->asked.filter ? ", or is allowed by the filter" : "");
    }
}

static void deletion_done(struct document_job *job) {
    struct deletion *deletion = job->context;
    if (!deletion->has_looked)
        error_set(&deletion->error, STATUS_CANCELLED, "the server is stopping");
    shared_answer_finish(&deletion->base);
}

static enum answer_progress deletion_poll(struct answer *answer, struct buffer *out) {
    struct deletion *deletion = (struct deletion *)answer;
    struct json_writer w;
    if (!shared_answer_is_done(&deletion->base)) return ANSWER_WAITING;
    if (deletion->job.n_items == 0) {
        struct failure failure;
        failure_from_error(&failure, &deletion->error);
        failure_answer(&failure, answer, out);
        return ANSWER_COMPLETE;
    }
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_job_outcomes(&w, &deletion->job);
    put_object_end(&w);
    return ANSWER_COMPLETE;
}

static struct deletion *make_deletion(const struct served_model *model, const struct principal *who,
                                      struct waker waker) {
    static const struct answer_ops ops = {deletion_poll, shared_answer_cancel, shared_answer_close};
    struct deletion *deletion = xcalloc(1, sizeof *deletion);
    shared_answer_init(&deletion->base, &ops, waker, deletion_free);
    deletion->who = principal_hold(*who);
    deletion->collection = model->collection;
    deletion->job = (struct document_job){.client = who->client,
                                          .deletes = true,
                                          .filter = principal_filter(who),
                                          .who = &deletion->who,
                                          .run = look_once,
                                          .cancelled = &deletion->base.cancelled,
                                          .done = deletion_done,
                                          .context = deletion};
    return deletion;
}

struct answer *documents_delete(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_WRITE, failure);
    struct error e;
    if (model == NULL) return NULL;
    struct deletion *deletion = make_deletion(model, &request->principal, waker);
    if (!document_delete_parse(&deletion->asked, request->arguments, request->n_arguments,
                               &model->limits, failure)) {
        answer_close(&deletion->base.base);
        return NULL;
    }
    shared_answer_begin(&deletion->base);
    if (document_thread_ask(model->document_thread, &deletion->job, &e) == STATUS_OK)
        return &deletion->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&deletion->base);
    answer_close(&deletion->base.base);
    return NULL;
}
