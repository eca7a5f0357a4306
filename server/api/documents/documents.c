/* server/api/documents/documents.c: /v1/documents: changes of the collection, which the document
 * thread carries out. A change is answered when it is on the disk, or in the log of Milvus.
 * documents_look.c shows documents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/extract/extract.h"
#include "server/api/api.h"
#include "server/api/core/multipart.h"
#include "server/api/core/shared_answer.h"
#include "server/api/documents/document_outcome.h"
#include "server/api/documents/jobs.h"
#include "server/api/fields/document_fields.h"

static const char documents_path[] = "/v1/documents/";

/* A document that is changed, beside its item of the job. */
struct asked_document {
    char *id;
    struct buffer marks; /* of its text */
    struct document_upload upload;
};

struct document_answer {
    struct shared_answer base; /* first */
    struct document_requests requests;
    struct asked_document *asked; /* [job.n_items], as the job's items */
    struct document_job job;
    struct principal who; /* held */
    struct document_jobs *jobs;
    struct posted_job *posted;       /* it is a job of these; NULL: the client waits */
    atomic_int n_embedded, n_chunks; /* of the document that is put */
};

static void document_free(struct shared_answer *base) {
    struct document_answer *answer = (struct document_answer *)base;
    for (int i = 0; i < answer->job.n_items; i++) {
        buffer_free(&answer->asked[i].marks);
        upload_free(&answer->asked[i].upload);
        free(answer->asked[i].id);
    }
    document_requests_free(&answer->requests);
    principal_release(&answer->who);
    free(answer->job.items);
    free(answer->asked);
    free(answer);
}

static void document_part(struct document_job *job, int n_embedded, int n_chunks) {
    struct document_answer *answer = job->context;
    atomic_store(&answer->n_chunks, n_chunks);
    atomic_store(&answer->n_embedded, n_embedded);
    shared_answer_wake(&answer->base);
}

void documents_told(struct answer *answer, int *n_embedded, int *n_chunks) {
    struct document_answer *document_answer = (struct document_answer *)answer;
    *n_embedded = atomic_load(&document_answer->n_embedded);
    *n_chunks = atomic_load(&document_answer->n_chunks);
}

/* The job has what the answer would have been. */
static void end_posted(struct document_answer *answer) {
    struct buffer outcome = {0};
    struct json_writer w;
    put_begin(&w, &outcome);
    put_object(&w);
    put_job_outcomes(&w, &answer->job);
    put_object_end(&w);
    document_jobs_end(answer->jobs, answer->posted, &outcome, job_has_failed(&answer->job));
}

static void document_done(struct document_job *job) {
    struct document_answer *answer = job->context;
    if (answer->posted) end_posted(answer);
    shared_answer_finish(&answer->base);
}

static void write_list(const struct document_answer *answer, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_job_outcomes(&w, &answer->job);
    put_object_end(&w);
}

static enum answer_progress document_poll(struct answer *answer, struct buffer *out) {
    struct document_answer *document_answer = (struct document_answer *)answer;
    if (!shared_answer_is_done(&document_answer->base)) return ANSWER_WAITING;
    if (document_answer->requests.is_list) {
        write_list(document_answer, out);
        return ANSWER_COMPLETE;
    }
    struct document_outcome first = document_outcome_of(&document_answer->job.items[0]);
    if (first.status == STATUS_OK) {
        struct json_writer w;
        put_begin(&w, out);
        put_document_outcome(&w, &first);
    } else {
        struct failure failure;
        document_outcome_fail(&failure, &first);
        failure_answer(&failure, answer, out);
    }
    return ANSWER_COMPLETE;
}

static struct document_answer *make_document_answer(const struct principal *who,
                                                    struct waker waker) {
    static const struct answer_ops ops = {document_poll, shared_answer_cancel, shared_answer_close};
    struct document_answer *answer = xcalloc(1, sizeof *answer);
    shared_answer_init(&answer->base, &ops, waker, document_free);
    answer->who = principal_hold(*who);
    answer->job = (struct document_job){.client = who->client,
                                        .filter = principal_filter(who),
                                        .who = &answer->who,
                                        .cancelled = &answer->base.cancelled,
                                        .part = document_part,
                                        .done = document_done,
                                        .context = answer};
    return answer;
}

/* Rights of clients. */

_Static_assert((int)KEY_DOCUMENTS_READ == (int)DOCUMENTS_READ &&
                   (int)KEY_DOCUMENTS_WRITE == (int)DOCUMENTS_WRITE,
               "rights of keys and of the server are compared");

enum documents_access documents_right(const struct api *api, const struct principal *who) {
    int server = (int)api->models[0].documents,
        key = who->key ? (int)who->key->documents : DOCUMENTS_WRITE;
    return (enum documents_access)min_int(server, key);
}

static bool refuse_access(enum documents_access access, bool by_key, struct failure *failure) {
    if (by_key)
        return failure_set(failure, 403, "documents_not_allowed", NULL,
                           "this key may not %s documents (\"documents\" in the file of keys)",
                           access == DOCUMENTS_WRITE ? "change" : "look at");
    return failure_set(failure, 403, "documents_not_allowed", NULL,
                       access == DOCUMENTS_WRITE
                           ? "this server's documents are not changed over HTTP (option "
                             "retrieval.documents)"
                           : "this server's documents are not shown (option retrieval.documents)");
}

const struct served_model *documents_model(struct api *api, const struct principal *who,
                                           enum documents_access access, struct failure *failure) {
    const struct served_model *model = &api->models[0];
    if (model->collection == NULL) {
        failure_set(failure, 400, "no_collection", NULL,
                    "this server has no collection (option retrieval.collection)");
        return NULL;
    }
    if (documents_right(api, who) >= access) return model;
    refuse_access(access, model->documents >= access, failure);
    return NULL;
}

/* Takes the answer over. */
static struct answer *send_job(struct document_answer *answer, const struct served_model *model,
                               struct failure *failure) {
    struct error e;
    shared_answer_begin(&answer->base);
    if (document_thread_ask(model->document_thread, &answer->job, &e) == STATUS_OK)
        return &answer->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&answer->base);
    answer_close(&answer->base.base);
    return NULL;
}

/* Takes the answer over, which nobody polls: what is answered is the job. */
static struct answer *post_job(struct document_answer *answer, struct api *api,
                               const struct served_model *model, size_t bytes,
                               struct failure *failure) {
    struct posted_view view = {0};
    struct error e;
    struct buffer body = {0};
    struct json_writer w;
    answer->jobs = api->jobs;
    answer->who.deadline = 0;
    if (document_jobs_begin(api->jobs, &answer->who, answer->requests.n, bytes, &answer->posted,
                            &e)) {
        failure_from_error(failure, &e);
        answer_close(&answer->base.base);
        return NULL;
    }
    answer->job.steps = &answer->posted->steps;
    answer->job.cancelled = &answer->posted->cancelled;
    snprintf(view.id, sizeof view.id, "%s", answer->posted->id);
    view.n_files = answer->requests.n;
    view.created = answer->posted->created;
    shared_answer_begin(&answer->base);
    if (document_thread_ask(model->document_thread, &answer->job, &e)) {
        document_jobs_forget(api->jobs, answer->posted);
        failure_from_error(failure, &e);
        shared_answer_release(&answer->base);
        answer_close(&answer->base.base);
        return NULL;
    }
    answer_close(&answer->base.base);
    put_begin(&w, &body);
    put_posted_job(&w, &view, true);
    return answer_text(202, JSON_TYPE, &body);
}

/* An id that only depends on what the document is: its path, or its text. */
static char *choose_id(const struct document_request *request, const struct filter *filter) {
    char id[DOCUMENT_ID_SIZE];
    if (request->id) return xstrdup(request->id);
    document_id_within(filter, request->path[0] ? request->path : request->text, id);
    return xstrdup(id);
}

/* There would be no path for a document of such an id. */
static bool check_no_file(const char *id, struct failure *failure) {
    const char end[] = "/file";
    size_t size = id ? strlen(id) : 0;
    if (id && document_id_is_page(id))
        return failure_set(failure, 400, "invalid_value", "id",
                           "an id does not end in /pages/ and a number, which stand for a page");
    if (size < sizeof end - 1 || strcmp(id + size - (sizeof end - 1), end) != 0) return true;
    return failure_set(failure, 400, "invalid_value", "id",
                       "an id does not end in /file, which stands for the file of a document");
}

static bool check_path_id(const struct document_request *request, const char *id,
                          struct failure *failure) {
    if (request->id == NULL || strcmp(request->id, id) == 0) return true;
    return failure_set(failure, 400, "invalid_value", "id", "id is not the one of the path");
}

static void make_items(struct document_answer *answer, int n) {
    answer->asked = xcalloc((size_t)n, sizeof *answer->asked);
    answer->job.items = xcalloc((size_t)n, sizeof *answer->job.items);
    answer->job.n_items = n;
}

/* The item of a document; `id` is the path's, NULL: it has none. */
static void fill_item(struct document_answer *answer, int i, const char *id) {
    const struct document_request *request = &answer->requests.list[i];
    struct asked_document *asked = &answer->asked[i];
    struct document_item *item = &answer->job.items[i];
    struct text_span text = {request->text, request->text ? strlen(request->text) : 0};
    asked->id = id ? xstrdup(id) : choose_id(request, answer->job.filter);
    if (request->is_file) {
        asked->upload = (struct document_upload){.name = request->path,
                                                 .bytes = {request->file.data, request->file.size},
                                                 .limit = (size_t)answer->job.upload_bytes,
                                                 .max_parts = DOCUMENTS_OF_REQUEST,
                                                 .id = request->id,
                                                 .path = request->path,
                                                 .filter = answer->job.filter};
        item->upload = &asked->upload;
    } else {
        document_mark(document_kind(request->path), text, &asked->marks);
    }
    item->document =
        (struct collection_document){.id = asked->id,
                                     .path = request->path[0] ? request->path : asked->id,
                                     .title = request->title,
                                     .metadata = request->metadata.data,
                                     .text = text,
                                     .marks = marks_of(&asked->marks)};
}

static bool check_title(const struct document_request *request, struct failure *failure) {
    if (!request->is_file || request->title[0] == '\0' ||
        !document_kind_holds_several(document_kind(request->path)))
        return true;
    return failure_set(failure, 400, "invalid_value", "title",
                       "title is of one document, and %.200s may hold several", request->path);
}

static bool parse_documents(struct document_answer *answer, const struct api_request *request,
                            const struct request_limits *limits, struct failure *failure) {
    struct document_requests *requests = &answer->requests;
    struct text_span body = {request->body, request->size};
    struct error e;
    bool ok = multipart_is_announced(request->content_type)
                  ? document_form_parse(requests, request->content_type, body, limits, failure)
                  : document_requests_parse(requests, body, limits, failure);
    if (ok)
        ok = document_post_parse(&requests->wait, request->arguments, request->n_arguments, limits,
                                 failure);
    for (int i = 0; ok && i < requests->n; i++) ok = check_title(&requests->list[i], failure);
    for (int i = 0; ok && i < requests->n; i++)
        if (filter_fill(answer->job.filter, &requests->list[i].metadata, &e))
            ok = failure_from_error(failure, &e);
    return ok;
}

/* `id` is the path's; NULL: it has none. */
static struct answer *put_documents(struct api *api, const struct api_request *request,
                                    const char *id, struct waker waker, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_WRITE, failure);
    if (model == NULL) return NULL;
    struct document_answer *answer = make_document_answer(&request->principal, waker);
    bool ok = parse_documents(answer, request, &model->limits, failure);
    if (ok && id && answer->requests.is_list)
        ok = failure_set(failure, 400, "invalid_value", NULL,
                         "the path has the id of one document, the body has a list");
    if (ok && id) ok = check_path_id(&answer->requests.list[0], id, failure);
    if (ok) ok = check_no_file(id, failure);
    for (int i = 0; ok && i < answer->requests.n; i++)
        ok = check_no_file(answer->requests.list[i].id, failure);
    if (!ok) {
        answer_close(&answer->base.base);
        return NULL;
    }
    answer->job.upload_bytes = model->upload_bytes;
    make_items(answer, answer->requests.n);
    for (int i = 0; i < answer->requests.n; i++) fill_item(answer, i, id);
    return answer->requests.wait ? send_job(answer, model, failure)
                                 : post_job(answer, api, model, request->size, failure);
}

struct answer *documents_post(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    return put_documents(api, request, NULL, waker, failure);
}

struct answer *document_put_open(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    return put_documents(api, request, request->path + strlen(documents_path), waker, failure);
}

struct answer *document_delete(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_WRITE, failure);
    if (model == NULL) return NULL;
    struct document_answer *answer = make_document_answer(&request->principal, waker);
    make_items(answer, 1);
    answer->asked[0].id = xstrdup(request->path + strlen(documents_path));
    answer->job.deletes = true;
    answer->job.items[0].document = (struct collection_document){.id = answer->asked[0].id};
    return send_job(answer, model, failure);
}
