/* server/api/documents/documents_look.c: /v1/documents: what is in the collection. A folder is in memory and shown at
 * once; Milvus is asked by the document thread. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/picture_document.h"
#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
#include "server/api/fields/document_fields.h"

static const char documents_path[] = "/v1/documents/", pictures_path[] = "/v1/pictures/";

/* One document, the picture that it is, or a list of them. */
struct document_look {
    const struct served_model *model;
    struct principal who; /* held: no other documents are there than it sees */
    char *id;             /* NULL: a list is asked for */
    bool is_picture;      /* of the document, the picture is asked for */
    struct document_list_request list;
    struct buffer body;     /* the answer, where *failure is none */
    const char *media_type; /* of the picture */
    bool failed;
    struct error error;
};

static void look_free(struct document_look *l) {
    principal_release(&l->who);
    document_list_free(&l->list);
    buffer_free(&l->body);
    free(l->id);
}

/* Looking. */

static void write_document(struct json_writer *w, const struct stored_document *d, bool with_text) {
    put_object(w);
    put_key_string(w, "id", d->id);
    put_key_string(w, "object", "document");
    put_key_string(w, "path", d->path);
    put_key_string(w, "title", d->title);
    put_key(w, "metadata");
    put_raw(w, d->metadata[0] ? (struct text_span){d->metadata, strlen(d->metadata)} : (struct text_span){"{}", 2});
    put_key_int(w, "chunks", d->n_chunks);
    put_key_int(w, "bytes", (int64_t)d->text.size);
    if (with_text) put_key_string_n(w, "text", d->text.text, d->text.size);
    put_object_end(w);
}

static enum status show_document(struct document_look *l, struct error *e) {
    struct collection_found found;
    struct json_writer w;
    if (collection_find(l->model->collection, principal_filter(&l->who), l->id, &found, e)) return e->status;
    put_begin(&w, &l->body);
    write_document(&w, &found.document, true);
    collection_found_release(&found);
    return STATUS_OK;
}

/* The file of a document that is a picture. */
static enum status read_picture(struct document_look *l, const struct stored_document *d, struct error *e) {
    struct picture_document picture;
    struct error unread;
    if (picture_document_read(&picture, d->text) && picture_document_file(&picture, &l->body, &unread) == STATUS_OK)
        l->media_type = picture_media_type((struct text_span){l->body.data, l->body.size});
    return l->media_type ? STATUS_OK : error_set(e, STATUS_NOT_FOUND, "the document is no picture");
}

static enum status show_picture(struct document_look *l, struct error *e) {
    struct collection_found found;
    if (collection_find(l->model->collection, principal_filter(&l->who), l->id, &found, e)) return e->status;
    enum status status = read_picture(l, &found.document, e);
    collection_found_release(&found);
    return status;
}

struct document_listing {
    const struct document_list_request *request;
    struct json_writer w;
    int64_t n;
    bool more;
};

static enum status list_document(void *context, const struct stored_document *d, struct error *e) {
    struct document_listing *l = context;
    const struct document_list_request *r = l->request;
    if (r->prefix && strncmp(d->path, r->prefix, strlen(r->prefix)) != 0) return STATUS_OK;
    l->more = l->n == r->limit;
    if (l->more) return error_set(e, STATUS_CANCELLED, "the list is full");
    write_document(&l->w, d, false);
    l->n++;
    return STATUS_OK;
}

static void begin_list(struct document_look *l, struct json_writer *w, int64_t n_documents, int64_t n_chunks) {
    struct snapshot *snapshot = collection_hold(l->model->collection);
    put_begin(w, &l->body);
    put_object(w);
    put_key_string(w, "object", "list");
    put_key_int(w, "documents", n_documents);
    put_key_int(w, "chunks", n_chunks);
    if (principal_filter(&l->who) == NULL) { /* a tenant is told nothing of others' changes */
        put_key_int(w, "generation", snapshot->generation);
        put_key_int(w, "changes", snapshot->n_changes);
    }
    put_key_array(w, "data");
    snapshot_release(snapshot);
}

static enum status list_documents(struct document_look *l, struct error *e) {
    struct document_listing listing = {.request = &l->list};
    struct collection_walk walk = {.filter = principal_filter(&l->who),
                                   .after = l->list.after,
                                   .n_wanted = (int)l->list.limit + 1,
                                   .narrow = l->list.filter,
                                   .deadline = l->who.deadline,
                                   .take = list_document,
                                   .context = &listing};
    int64_t n_documents, n_chunks;
    if (collection_count(l->model->collection, principal_filter(&l->who), &n_documents, &n_chunks, e)) return e->status;
    begin_list(l, &listing.w, n_documents, n_chunks);
    enum status status = collection_walk(l->model->collection, &walk, e);
    if (status && !listing.more)
        return l->who.deadline > 0 && principal_is_late(&l->who, time_now())
                   ? error_set(e, status, "the documents were not listed in time (option server.request_timeout)")
                   : status;
    put_array_end(&listing.w);
    put_key_bool(&listing.w, "has_more", listing.more);
    put_object_end(&listing.w);
    return STATUS_OK;
}

static void look(struct document_look *l) {
    enum status status = l->is_picture ? show_picture(l, &l->error)
                         : l->id       ? show_document(l, &l->error)
                                       : list_documents(l, &l->error);
    l->failed = status != STATUS_OK;
}

/* A picture came from anywhere, so a browser may do nothing but show it. */
static void add_headers(const struct document_look *l, struct answer *answer) {
    if (l->media_type == NULL) return;
    answer_set_header(answer, "Content-Type", "%s", l->media_type);
    answer_add_header(answer, "X-Content-Type-Options", "nosniff");
    answer_add_header(answer, "Content-Security-Policy", "default-src 'none'; sandbox");
}

static void describe_failure(const struct document_look *l, struct failure *f) {
    if (l->error.status == STATUS_NOT_FOUND && l->id == NULL)
        failure_set(f, 404, "not_found", "after", "%s", l->error.text);
    else
        failure_from_error(f, &l->error);
}

/* In the document thread. */

struct look_answer {
    struct shared_answer base; /* first */
    struct document_look look;
    struct document_job job;
};

static void free_answer(struct shared_answer *base) {
    struct look_answer *a = (struct look_answer *)base;
    look_free(&a->look);
    free(a);
}

static void look_run(struct document_job *j) {
    struct look_answer *a = j->context;
    look(&a->look);
}

static void look_done(struct document_job *j) { shared_answer_finish(j->context); }

static enum answer_progress look_poll(struct answer *base, struct buffer *out) {
    struct look_answer *a = (struct look_answer *)base;
    struct failure f;
    if (!shared_answer_is_done(&a->base)) return ANSWER_WAITING;
    if (a->look.failed) {
        describe_failure(&a->look, &f);
        failure_answer(&f, base, out);
    } else {
        add_headers(&a->look, base);
        buffer_append(out, a->look.body.data, a->look.body.size);
    }
    return ANSWER_COMPLETE;
}

/* Takes the look over. */
static struct answer *ask_thread(const struct document_look *l, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {look_poll, shared_answer_cancel, shared_answer_close};
    struct look_answer *a = xcalloc(1, sizeof *a);
    struct error e;
    shared_answer_init(&a->base, &ops, waker, free_answer);
    a->look = *l;
    a->look.failed = true;
    error_set(&a->look.error, STATUS_CANCELLED, "the server is stopping");
    a->job = (struct document_job){.run = look_run, .cancelled = &a->base.cancelled, .done = look_done, .context = a};
    shared_answer_begin(&a->base);
    if (document_thread_ask(l->model->document_thread, &a->job, &e) == STATUS_OK) return &a->base.base;
    failure_from_error(f, &e);
    shared_answer_release(&a->base);
    answer_close(&a->base.base);
    return NULL;
}

/* Takes the look over. */
static struct answer *answer_look(struct document_look *l, struct waker waker, struct failure *f) {
    if (collection_is_remote(l->model->collection)) return ask_thread(l, waker, f);
    look(l);
    struct answer *answer = l->failed ? NULL : answer_text(200, JSON_TYPE, &l->body);
    if (l->failed)
        describe_failure(l, f);
    else
        add_headers(l, answer);
    look_free(l);
    return answer;
}

struct answer *document_show(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = documents_model(a, DOCUMENTS_READ, f);
    if (model == NULL) return NULL;
    struct document_look l = {
        .model = model, .who = principal_hold(r->principal), .id = xstrdup(r->path + strlen(documents_path))};
    return answer_look(&l, waker, f);
}

struct answer *document_picture(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = documents_model(a, DOCUMENTS_READ, f);
    if (model == NULL) return NULL;
    struct document_look l = {.model = model,
                              .who = principal_hold(r->principal),
                              .id = xstrdup(r->path + strlen(pictures_path)),
                              .is_picture = true};
    return answer_look(&l, waker, f);
}

struct answer *documents_list(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    const struct served_model *model = documents_model(a, DOCUMENTS_READ, f);
    struct document_look l = {.model = model};
    if (model == NULL) return NULL;
    l.who = principal_hold(r->principal);
    if (document_list_parse(&l.list, r->arguments, r->n_arguments, &model->limits, f)) return answer_look(&l, waker, f);
    look_free(&l);
    return NULL;
}
