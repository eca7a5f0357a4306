/* server/api/documents/documents_look.c: /v1/documents: what is in the collection. */
#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "retrieval/picture_document.h"
#include "server/api/api.h"
#include "server/api/documents/look.h"
#include "server/api/fields/document_fields.h"

static const char documents_path[] = "/v1/documents/", pictures_path[] = "/v1/pictures/";

/* One document, the picture that it is, or a list of them. */
struct document_look {
    struct look base; /* first */
    const struct served_model *model;
    struct principal who; /* held: no other documents are there than it sees */
    char *id;             /* NULL: a list is asked for */
    bool is_picture;      /* of the document, the picture is asked for */
    struct document_list_request list;
    const char *media_type; /* of the picture */
};

static void free_look(struct look *base) {
    struct document_look *look = (struct document_look *)base;
    principal_release(&look->who);
    document_list_free(&look->list);
    free(look->id);
    free(look);
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
    put_begin(&w, &look->base.body);
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
        picture_document_file(&picture, &look->base.body, &unread) == STATUS_OK)
        look->media_type =
            picture_media_type((struct text_span){look->base.body.data, look->base.body.size});
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
    if (request->path && !document_path_is_named(document->path, request->path)) return STATUS_OK;
    listing->more = listing->n == request->limit;
    if (listing->more) return error_set(e, STATUS_CANCELLED, "the list is full");
    write_document(&listing->w, document, false);
    listing->n++;
    return STATUS_OK;
}

static void begin_list(struct document_look *look, struct json_writer *w, int64_t n_documents,
                       int64_t n_chunks) {
    struct snapshot *snapshot = collection_hold(look->model->collection);
    put_begin(w, &look->base.body);
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

static enum status run_look(struct look *base, struct error *e) {
    struct document_look *look = (struct document_look *)base;
    if (look->is_picture) return show_picture(look, e);
    return look->id ? show_document(look, e) : list_documents(look, e);
}

/* A picture came from anywhere, so a browser may do nothing but show it. */
static void add_headers(const struct look *base, struct answer *answer) {
    const struct document_look *look = (const struct document_look *)base;
    if (look->media_type == NULL) return;
    answer_set_header(answer, "Content-Type", "%s", look->media_type);
    answer_add_header(answer, "X-Content-Type-Options", "nosniff");
    answer_add_header(answer, "Content-Security-Policy", "default-src 'none'; sandbox");
}

/* `id` of a document; NULL: a list is asked for. */
static struct document_look *make_look(const struct served_model *model,
                                       const struct api_request *request, const char *id) {
    struct document_look *look = xcalloc(1, sizeof *look);
    look->base = (struct look){.run = run_look, .head = add_headers, .free = free_look};
    look->base.lost = id ? NULL : "after";
    look->model = model;
    look->who = principal_hold(request->principal);
    look->id = id ? xstrdup(id) : NULL;
    return look;
}

struct answer *document_show(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    if (document_path_is_file(request->path)) return document_file(api, request, waker, failure);
    if (document_path_is_page(request->path)) return document_page(api, request, waker, failure);
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct document_look *look = make_look(model, request, request->path + strlen(documents_path));
    return look_ask(&look->base, model, waker, failure);
}

struct answer *document_picture(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct document_look *look = make_look(model, request, request->path + strlen(pictures_path));
    look->is_picture = true;
    return look_ask(&look->base, model, waker, failure);
}

struct answer *documents_list(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct document_look *look = make_look(model, request, NULL);
    if (document_list_parse(&look->list, request->arguments, request->n_arguments, &model->limits,
                            failure))
        return look_ask(&look->base, model, waker, failure);
    look_free(&look->base);
    return NULL;
}
