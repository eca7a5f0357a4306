/* server/api/documents/documents_look.c: /v1/documents: what is in the collection. A folder is in
 * memory and shown at once; Milvus is asked by the document thread. */
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

static void look_free(struct document_look *look) {
    principal_release(&look->who);
    document_list_free(&look->list);
    buffer_free(&look->body);
    free(look->id);
}

/* Looking. */

static void write_document(struct json_writer *w, const struct stored_document *document,
                           bool with_text) {
    put_object(w);
    put_key_string(w, "id", document->id);
    put_key_string(w, "object", "document");
    put_key_string(w, "path", document->path);
    put_key_string(w, "title", document->title);
    put_key(w, "metadata");
    put_raw(w, document->metadata[0]
                   ? (struct text_span){document->metadata, strlen(document->metadata)}
                   : (struct text_span){"{}", 2});
    put_key_int(w, "chunks", document->n_chunks);
    put_key_int(w, "bytes", (int64_t)document->text.size);
    if (with_text) put_key_string_n(w, "text", document->text.text, document->text.size);
    put_object_end(w);
}

static enum status show_document(struct document_look *look, struct error *e) {
    struct collection_found found;
    struct json_writer w;
    if (collection_find(look->model->collection, principal_filter(&look->who), look->id, &found, e))
        return e->status;
    put_begin(&w, &look->body);
    write_document(&w, &found.document, true);
    collection_found_release(&found);
    return STATUS_OK;
}

/* The file of a document that is a picture. */
static enum status read_picture(struct document_look *look, const struct stored_document *document,
                                struct error *e) {
    struct picture_document picture;
    struct error unread;
    if (picture_document_read(&picture, document->text) &&
        picture_document_file(&picture, &look->body, &unread) == STATUS_OK)
        look->media_type = picture_media_type((struct text_span){look->body.data, look->body.size});
    return look->media_type ? STATUS_OK
                            : error_set(e, STATUS_NOT_FOUND, "the document is no picture");
}

static enum status show_picture(struct document_look *look, struct error *e) {
    struct collection_found found;
    if (collection_find(look->model->collection, principal_filter(&look->who), look->id, &found, e))
        return e->status;
    enum status status = read_picture(look, &found.document, e);
    collection_found_release(&found);
    return status;
}

struct document_listing {
    const struct document_list_request *request;
    struct json_writer w;
    int64_t n;
    bool more;
};

static enum status list_document(void *context, const struct stored_document *document,
                                 struct error *e) {
    struct document_listing *listing = context;
    const struct document_list_request *request = listing->request;
    if (request->prefix && strncmp(document->path, request->prefix, strlen(request->prefix)) != 0)
        return STATUS_OK;
    listing->more = listing->n == request->limit;
    if (listing->more) return error_set(e, STATUS_CANCELLED, "the list is full");
    write_document(&listing->w, document, false);
    listing->n++;
    return STATUS_OK;
}

static void begin_list(struct document_look *look, struct json_writer *w, int64_t n_documents,
                       int64_t n_chunks) {
    struct snapshot *snapshot = collection_hold(look->model->collection);
    put_begin(w, &look->body);
    put_object(w);
    put_key_string(w, "object", "list");
    put_key_int(w, "documents", n_documents);
    put_key_int(w, "chunks", n_chunks);
    if (principal_filter(&look->who) == NULL) { /* a tenant is told nothing of others' changes */
        put_key_int(w, "generation", snapshot->generation);
        put_key_int(w, "changes", snapshot->n_changes);
    }
    put_key_array(w, "data");
    snapshot_release(snapshot);
}

static enum status list_documents(struct document_look *look, struct error *e) {
    struct document_listing listing = {.request = &look->list};
    struct collection_walk walk = {.filter = principal_filter(&look->who),
                                   .after = look->list.after,
                                   .n_wanted = (int)look->list.limit + 1,
                                   .narrow = look->list.filter,
                                   .deadline = look->who.deadline,
                                   .take = list_document,
                                   .context = &listing};
    int64_t n_documents, n_chunks;
    if (collection_count(look->model->collection, principal_filter(&look->who), &n_documents,
                         &n_chunks, e))
        return e->status;
    begin_list(look, &listing.w, n_documents, n_chunks);
    enum status status = collection_walk(look->model->collection, &walk, e);
    if (status && !listing.more)
        return look->who.deadline > 0 && principal_is_late(&look->who, time_now())
                   ? error_set(
                         e, status,
                         "the documents were not listed in time (option server.request_timeout)")
                   : status;
    put_array_end(&listing.w);
    put_key_bool(&listing.w, "has_more", listing.more);
    put_object_end(&listing.w);
    return STATUS_OK;
}

static void look(struct document_look *document_look) {
    enum status status = document_look->is_picture
                             ? show_picture(document_look, &document_look->error)
                         : document_look->id ? show_document(document_look, &document_look->error)
                                             : list_documents(document_look, &document_look->error);
    document_look->failed = status != STATUS_OK;
}

/* A picture came from anywhere, so a browser may do nothing but show it. */
static void add_headers(const struct document_look *look, struct answer *answer) {
    if (look->media_type == NULL) return;
    answer_set_header(answer, "Content-Type", "%s", look->media_type);
    answer_add_header(answer, "X-Content-Type-Options", "nosniff");
    answer_add_header(answer, "Content-Security-Policy", "default-src 'none'; sandbox");
}

static void describe_failure(const struct document_look *look, struct failure *failure) {
    if (look->error.status == STATUS_NOT_FOUND && look->id == NULL)
        failure_set(failure, 404, "not_found", "after", "%s", look->error.text);
    else
        failure_from_error(failure, &look->error);
}

/* In the document thread. */

struct look_answer {
    struct shared_answer base; /* first */
    struct document_look look;
    struct document_job job;
};

static void free_answer(struct shared_answer *base) {
    struct look_answer *answer = (struct look_answer *)base;
    look_free(&answer->look);
    free(answer);
}

static void look_run(struct document_job *job) {
    struct look_answer *answer = job->context;
    look(&answer->look);
}

static void look_done(struct document_job *job) { shared_answer_finish(job->context); }

static enum answer_progress look_poll(struct answer *base, struct buffer *out) {
    struct look_answer *answer = (struct look_answer *)base;
    struct failure failure;
    if (!shared_answer_is_done(&answer->base)) return ANSWER_WAITING;
    if (answer->look.failed) {
        describe_failure(&answer->look, &failure);
        failure_answer(&failure, base, out);
    } else {
        add_headers(&answer->look, base);
        buffer_append(out, answer->look.body.data, answer->look.body.size);
    }
    return ANSWER_COMPLETE;
}

/* Takes the look over. */
static struct answer *ask_thread(const struct document_look *look, struct waker waker,
                                 struct failure *failure) {
    static const struct answer_ops ops = {look_poll, shared_answer_cancel, shared_answer_close};
    struct look_answer *answer = xcalloc(1, sizeof *answer);
    struct error e;
    shared_answer_init(&answer->base, &ops, waker, free_answer);
    answer->look = *look;
    answer->look.failed = true;
    error_set(&answer->look.error, STATUS_CANCELLED, "the server is stopping");
    answer->job = (struct document_job){.run = look_run,
                                        .cancelled = &answer->base.cancelled,
                                        .done = look_done,
                                        .context = answer};
    shared_answer_begin(&answer->base);
    if (document_thread_ask(look->model->document_thread, &answer->job, &e) == STATUS_OK)
        return &answer->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&answer->base);
    answer_close(&answer->base.base);
    return NULL;
}

/* Takes the look over. */
static struct answer *answer_look(struct document_look *document_look, struct waker waker,
                                  struct failure *failure) {
    if (collection_is_remote(document_look->model->collection))
        return ask_thread(document_look, waker, failure);
    look(document_look);
    struct answer *answer =
        document_look->failed ? NULL : answer_text(200, JSON_TYPE, &document_look->body);
    if (document_look->failed)
        describe_failure(document_look, failure);
    else
        add_headers(document_look, answer);
    look_free(document_look);
    return answer;
}

struct answer *document_show(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    const struct served_model *model = documents_model(api, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct document_look look = {.model = model,
                                 .who = principal_hold(request->principal),
                                 .id = xstrdup(request->path + strlen(documents_path))};
    return answer_look(&look, waker, failure);
}

struct answer *document_picture(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    const struct served_model *model = documents_model(api, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct document_look look = {.model = model,
                                 .who = principal_hold(request->principal),
                                 .id = xstrdup(request->path + strlen(pictures_path)),
                                 .is_picture = true};
    return answer_look(&look, waker, failure);
}

struct answer *documents_list(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    const struct served_model *model = documents_model(api, DOCUMENTS_READ, failure);
    struct document_look look = {.model = model};
    if (model == NULL) return NULL;
    look.who = principal_hold(request->principal);
    if (document_list_parse(&look.list, request->arguments, request->n_arguments, &model->limits,
                            failure))
        return answer_look(&look, waker, failure);
    look_free(&look);
    return NULL;
}
