/* server/api/documents/documents.c: /v1/documents: changes of the collection, which the document thread carries out. A
 * change is answered when it is on the disk, or in the log of Milvus. documents_look.c shows documents. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/extract/extract.h"
#include "server/api/api.h"
#include "server/api/core/multipart.h"
#include "server/api/core/shared_answer.h"
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
};

static void document_free(struct shared_answer *base) {
    struct document_answer *d = (struct document_answer *)base;
    for (int i = 0; i < d->job.n_items; i++) {
        buffer_free(&d->asked[i].marks);
        upload_free(&d->asked[i].upload);
        free(d->asked[i].id);
    }
    document_requests_free(&d->requests);
    principal_release(&d->who);
    free(d->job.items);
    free(d->asked);
    free(d);
}

static void document_done(struct document_job *j) { shared_answer_finish(j->context); }

/* How the change of a document went. */
struct document_outcome {
    const char *id;
    enum change_effect effect;
    enum status status;
    const struct error *error;
};

static struct document_outcome outcome_of(const struct document_item *item) {
    return (struct document_outcome){item->document.id, item->effect, item->status, &item->error};
}

static void fail_document(struct failure *f, const struct document_outcome *o) {
    *f = (struct failure){0};
    if (o->effect == CHANGE_REFUSED)
        failure_set(f, 403, "document_not_allowed", NULL, "%s", o->error->text);
    else
        failure_from_error(f, o->error);
}

/* Of a list, each tells how it went. */
static void write_outcome(struct json_writer *w, const struct document_outcome *o) {
    static const char *const names[] = {[CHANGE_NOTHING] = "unchanged",
                                        [CHANGE_ADDED] = "added",
                                        [CHANGE_REPLACED] = "replaced",
                                        [CHANGE_DELETED] = "deleted"};
    struct failure f;
    put_object(w);
    put_key_string(w, "id", o->id);
    put_key_string(w, "object", "document");
    put_key_string(w, "effect", o->status ? "failed" : names[o->effect]);
    if (o->status) {
        fail_document(&f, o);
        put_key_object(w, "error");
        put_key_string(w, "message", f.message);
        put_key_string(w, "code", f.code ? f.code : "failed");
        put_object_end(w);
        failure_free(&f);
    }
    put_object_end(w);
}

/* The documents of a file that may hold several, with their paths. */
static void write_parts(struct json_writer *w, const struct document_upload *u) {
    for (int i = 0; i < u->n_parts; i++) {
        const struct upload_part *p = &u->parts[i];
        write_outcome(w, &(struct document_outcome){p->id, p->effect, p->status, &p->error});
    }
}

static void write_skipped(struct json_writer *w, const struct document_upload *u) {
    const struct error *list = (const struct error *)(const void *)u->skipped.data;
    for (size_t i = 0; i < u->skipped.size / sizeof *list; i++) {
        put_object(w);
        put_key_string(w, "file", u->name);
        put_key_string(w, "message", list[i].text);
        put_object_end(w);
    }
}

static void write_list(const struct document_answer *d, struct buffer *out) {
    struct json_writer w;
    int n_skipped = 0;
    put_begin(&w, out);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < d->job.n_items; i++) {
        const struct document_item *item = &d->job.items[i];
        struct document_outcome outcome = outcome_of(item);
        if (item->upload && item->status == STATUS_OK && upload_holds_several(item->upload))
            write_parts(&w, item->upload);
        else
            write_outcome(&w, &outcome);
        if (item->upload) n_skipped += item->upload->n_skipped;
    }
    put_array_end(&w);
    if (n_skipped > 0) {
        put_key_int(&w, "n_skipped", n_skipped);
        put_key_array(&w, "skipped");
        for (int i = 0; i < d->job.n_items; i++)
            if (d->job.items[i].upload) write_skipped(&w, d->job.items[i].upload);
        put_array_end(&w);
    }
    put_object_end(&w);
}

static enum answer_progress document_poll(struct answer *a, struct buffer *out) {
    struct document_answer *d = (struct document_answer *)a;
    if (!shared_answer_is_done(&d->base)) return ANSWER_WAITING;
    struct document_outcome first = outcome_of(&d->job.items[0]);
    if (d->requests.is_list) {
        write_list(d, out);
    } else if (first.status == STATUS_OK) {
        struct json_writer w;
        put_begin(&w, out);
        write_outcome(&w, &first);
    } else {
        struct failure f;
        fail_document(&f, &first);
        failure_answer(&f, a, out);
    }
    return ANSWER_COMPLETE;
}

static struct document_answer *make_document_answer(const struct principal *who, struct waker waker) {
    static const struct answer_ops ops = {document_poll, shared_answer_cancel, shared_answer_close};
    struct document_answer *d = xcalloc(1, sizeof *d);
    shared_answer_init(&d->base, &ops, waker, document_free);
    d->who = principal_hold(*who);
    d->job = (struct document_job){.client = who->client,
                                   .filter = principal_filter(who),
                                   .who = &d->who,
                                   .cancelled = &d->base.cancelled,
                                   .done = document_done,
                                   .context = d};
    return d;
}

/* Rights of clients. */

const struct served_model *documents_model(struct api *a, enum documents_access access, struct failure *f) {
    const struct served_model *model = &a->models[0];
    if (model->collection == NULL) {
        failure_set(f, 400, "no_collection", NULL, "this server has no collection (option retrieval.collection)");
        return NULL;
    }
    if (model->documents >= access) return model;
    failure_set(f, 403, "documents_not_allowed", NULL,
                access == DOCUMENTS_WRITE ? "this server's documents are not changed over HTTP (option "
                                            "retrieval.documents)"
                                          : "this server's documents are not shown (option retrieval.documents)");
    return NULL;
}

/* Takes the answer over. */
static struct answer *send_job(struct document_answer *d, const struct served_model *model, struct failure *f) {
    struct error e;
    shared_answer_begin(&d->base);
    if (document_thread_ask(model->document_thread, &d->job, &e) == STATUS_OK) return &d->base.base;
    failure_from_error(f, &e);
    shared_answer_release(&d->base);
    answer_close(&d->base.base);
    return NULL;
}

/* An id that only depends on what the document is: its path, or its text. */
static char *choose_id(const struct document_request *r, const struct filter *filter) {
    char id[DOCUMENT_ID_SIZE];
    if (r->id) return xstrdup(r->id);
    document_id_within(filter, r->path[0] ? r->path : r->text, id);
    return xstrdup(id);
}

static bool check_path_id(const struct document_request *r, const char *id, struct failure *f) {
    if (r->id == NULL || strcmp(r->id, id) == 0) return true;
    return failure_set(f, 400, "invalid_value", "id", "id is not the one of the path");
}

static void make_items(struct document_answer *d, int n) {
    d->asked = xcalloc((size_t)n, sizeof *d->asked);
    d->job.items = xcalloc((size_t)n, sizeof *d->job.items);
    d->job.n_items = n;
}

/* The item of a document; `id` is the path's, NULL: it has none. */
static void fill_item(struct document_answer *d, int i, const char *id) {
    const struct document_request *request = &d->requests.list[i];
    struct asked_document *asked = &d->asked[i];
    struct document_item *item = &d->job.items[i];
    struct text_span text = {request->text, request->text ? strlen(request->text) : 0};
    asked->id = id ? xstrdup(id) : choose_id(request, d->job.filter);
    if (request->is_file) {
        asked->upload = (struct document_upload){.name = request->path,
                                                 .bytes = {request->file.data, request->file.size},
                                                 .limit = (size_t)d->job.upload_bytes,
                                                 .max_parts = DOCUMENTS_OF_REQUEST,
                                                 .id = request->id,
                                                 .path = request->path,
                                                 .filter = d->job.filter};
        item->upload = &asked->upload;
    } else {
        document_mark(document_kind(request->path), text, &asked->marks);
    }
    item->document = (struct collection_document){.id = asked->id,
                                                  .path = request->path[0] ? request->path : asked->id,
                                                  .title = request->title,
                                                  .metadata = request->metadata.data,
                                                  .text = text,
                                                  .marks = marks_of(&asked->marks)};
}

static bool check_title(const struct document_request *r, struct failure *f) {
    if (!r->is_file || r->title[0] == '\0' || !document_kind_holds_several(document_kind(r->path))) return true;
    return failure_set(f, 400, "invalid_value", "title", "title is of one document, and %.200s may hold several",
                       r->path);
}

static bool parse_documents(struct document_answer *d, const struct api_request *r, const struct request_limits *l,
                            struct failure *f) {
    struct document_requests *requests = &d->requests;
    struct text_span body = {r->body, r->size};
    struct error e;
    bool ok = multipart_is_announced(r->content_type) ? document_form_parse(requests, r->content_type, body, l, f)
                                                      : document_requests_parse(requests, body, l, f);
    for (int i = 0; ok && i < requests->n; i++) ok = check_title(&requests->list[i], f);
    for (int i = 0; ok && i < requests->n; i++)
        if (filter_fill(d->job.filter, &requests->list[i].metadata, &e)) ok = failure_from_error(f, &e);
    return ok;
}

/* `id` is the path's; NULL: it has none. */
static struct answer *put_documents(struct api *a, const struct api_request *r, const char *id, struct waker waker,
                                    struct failure *f) {
    const struct served_model *model = documents_model(a, DOCUMENTS_WRITE, f);
    if (model == NULL) return NULL;
    struct document_answer *d = make_document_answer(&r->principal, waker);
    bool ok = parse_documents(d, r, &model->limits, f);
    if (ok && id && d->requests.is_list)
        ok = failure_set(f, 400, "invalid_value", NULL, "the path has the id of one document, the body has a list");
    if (ok && id) ok = check_path_id(&d->requests.list[0], id, f);
    if (!ok) {
        answer_close(&d->base.base);
        return NULL;
    }
    d->job.upload_bytes = model->upload_bytes;
    make_items(d, d->requests.n);
    for (int i = 0; i < d->requests.n; i++) fill_item(d, i, id);
    return send_job(d, model, f);
}

struct answer *documents_post(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    return put_documents(a, r, NULL, waker, f);
}

struct answer *document_put_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    return put_documents(a, r, r->path + strlen(documents_path), waker, f);
}

struct answer *document_delete(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = documents_model(a, DOCUMENTS_WRITE, f);
    if (model == NULL) return NULL;
    struct document_answer *d = make_document_answer(&r->principal, waker);
    make_items(d, 1);
    d->asked[0].id = xstrdup(r->path + strlen(documents_path));
    d->job.deletes = true;
    d->job.items[0].document = (struct collection_document){.id = d->asked[0].id};
    return send_job(d, model, f);
}
