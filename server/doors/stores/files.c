/* server/doors/stores/files.c: /v1/files, and the files of the store that is the collection: the
 * documents that the client sees. */
#include <stdlib.h>
#include <string.h>

#include "server/api/documents/document_file.h"
#include "server/api/documents/look.h"
#include "server/api/routes.h"
#include "server/doors/stores/stores_private.h"

enum file_shape { SHAPE_FILE, SHAPE_STORE_FILE };

struct file_look {
    struct look base; /* first */
    const struct api *api;
    const struct served_model *model;
    struct principal who; /* held: no other documents are there than it sees */
    enum file_shape shape;
    bool content;   /* its text is asked for; of SHAPE_STORE_FILE */
    char *document; /* NULL: a list is asked for */
    struct files_query query;
    char *after;           /* the document's id; NULL: from the first */
    struct filter *narrow; /* held: documents that are listed; NULL: all */
};

static void free_look(struct look *base) {
    struct file_look *look = (struct file_look *)base;
    principal_release(&look->who);
    filter_release(look->narrow);
    free(look->query.after);
    free(look->after);
    free(look->document);
    free(look);
}

/* Shapes. */

static void put_file(struct json_writer *w, const struct file_look *look,
                     const struct stored_document *document) {
    struct file_facts facts;
    file_facts_read(&facts, document);
    put_object(w);
    file_put_id(w, "id", document->id);
    put_key_string(w, "object", "file");
    put_key_int(w, "bytes", facts.uploaded ? facts.bytes : (int64_t)document->text.size);
    put_key_int(w, "created_at", facts.uploaded ? facts.created : look->api->created);
    if (facts.until > 0) put_key_int(w, "expires_at", facts.until);
    put_key_string(w, "filename", document->path);
    if (facts.uploaded)
        put_key_string_n(w, "purpose", facts.purpose.text, facts.purpose.size);
    else
        put_key_string(w, "purpose", "assistants");
    put_key_string(w, "status", "processed");
    put_object_end(w);
}

static void put_collection_file(struct json_writer *w, const struct file_look *look,
                                const struct stored_document *document) {
    put_object(w);
    file_put_id(w, "id", document->id);
    put_key_string(w, "object", "vector_store.file");
    put_key_int(w, "created_at", look->api->created);
    put_key_string(w, "vector_store_id", collection_store);
    put_key_string(w, "status", "completed");
    put_key_null(w, "last_error");
    put_key_int(w, "usage_bytes", (int64_t)document->text.size);
    put_key_chunking(w, look->model);
    put_key_attributes(w, document->metadata, NULL);
    put_object_end(w);
}

static bool is_over(const struct stored_document *document) {
    struct file_facts facts;
    file_facts_read(&facts, document);
    return facts.until > 0 && facts.until <= time(NULL);
}

static void put_shaped(struct json_writer *w, const struct file_look *look,
                       const struct stored_document *document) {
    if (look->shape == SHAPE_FILE)
        put_file(w, look, document);
    else
        put_collection_file(w, look, document);
}

static void put_content(struct json_writer *w, const struct stored_document *document) {
    put_object(w);
    put_key_string(w, "object", "vector_store.file_content.page");
    put_key_array(w, "data");
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", document->text.text, document->text.size);
    put_object_end(w);
    put_array_end(w);
    put_key_bool(w, "has_more", false);
    put_key_null(w, "next_page");
    put_object_end(w);
}

/* Looking. */

static enum status show(struct file_look *look, struct error *e) {
    struct collection_found found;
    struct json_writer w;
    if (collection_find(look->model->collection, principal_filter(&look->who), look->document,
                        &found, e))
        return e->status;
    if (is_over(&found.document)) {
        collection_found_release(&found);
        return error_set(e, STATUS_NOT_FOUND, "no document has the id %.200s", look->document);
    }
    put_begin(&w, &look->base.body);
    if (look->content)
        put_content(&w, &found.document);
    else
        put_shaped(&w, look, &found.document);
    collection_found_release(&found);
    return STATUS_OK;
}

struct file_listing {
    const struct file_look *look;
    struct json_writer w;
    struct buffer first, last; /* ids of documents */
    int64_t n;
    bool more;
};

static enum status list_file(void *context, const struct stored_document *document,
                             struct error *e) {
    struct file_listing *listing = context;
    if (is_over(document)) return STATUS_OK;
    listing->more = listing->n == listing->look->query.limit;
    if (listing->more) return error_set(e, STATUS_CANCELLED, "the list is full");
    put_shaped(&listing->w, listing->look, document);
    if (listing->n == 0) buffer_append_string(&listing->first, document->id);
    buffer_clear(&listing->last);
    buffer_append_string(&listing->last, document->id);
    listing->n++;
    return STATUS_OK;
}

static void put_end(struct file_listing *listing, const char *key, const struct buffer *id) {
    if (listing->n > 0)
        file_put_id(&listing->w, key, id->data);
    else
        put_key_null(&listing->w, key);
}

static enum status list(struct file_look *look, struct error *e) {
    struct file_listing listing = {.look = look};
    const struct collection_walk walk = {.filter = principal_filter(&look->who),
                                         .narrow = look->narrow,
                                         .after = look->after,
                                         .n_wanted = (int)look->query.limit + 1,
                                         .deadline = look->who.deadline,
                                         .take = list_file,
                                         .context = &listing};
    put_begin(&listing.w, &look->base.body);
    put_object(&listing.w);
    put_key_string(&listing.w, "object", "list");
    put_key_array(&listing.w, "data");
    enum status status = collection_walk(look->model->collection, &walk, e);
    if (listing.more) status = STATUS_OK;
    put_array_end(&listing.w);
    put_end(&listing, "first_id", &listing.first);
    put_end(&listing, "last_id", &listing.last);
    put_key_bool(&listing.w, "has_more", listing.more);
    put_object_end(&listing.w);
    buffer_free(&listing.first);
    buffer_free(&listing.last);
    return status;
}

static enum status run_look(struct look *base, struct error *e) {
    struct file_look *look = (struct file_look *)base;
    return look->document ? show(look, e) : list(look, e);
}

/* Asking. */

static struct file_look *make_look(struct api *api, const struct api_request *request,
                                   enum file_shape shape, struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    if (model == NULL) return NULL;
    struct file_look *look = xcalloc(1, sizeof *look);
    look->base = (struct look){.run = run_look, .free = free_look};
    look->api = api;
    look->model = model;
    look->who = principal_hold(request->principal);
    look->shape = shape;
    return look;
}

/* Files of that purpose. Documents that came by other means are for assistants. */
static struct filter *purpose_filter(int purpose) {
    static const char *const texts[] = {
        [PURPOSE_ASSISTANTS] = "{\"not\":{\"eq\":{\"$purpose\":\"user_data\"}}}",
        [PURPOSE_USER_DATA] = "{\"eq\":{\"$purpose\":\"user_data\"}}"};
    struct filter *filter = NULL;
    struct error e;
    if (purpose != PURPOSE_ANY)
        CHECK(filter_parse(&filter, texts[purpose], "purpose", &e) == STATUS_OK);
    return filter;
}

static struct answer *ask_one(struct file_look *look, const struct api_request *request,
                              int segment, struct waker waker, struct failure *failure) {
    if (look == NULL) return NULL;
    look->base.lost = "file_id";
    look->document = file_of_path(request, segment, failure);
    if (look->document) return look_ask(&look->base, look->model, waker, failure);
    look_free(&look->base);
    return NULL;
}

static struct answer *ask_list(struct file_look *look, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    struct json *asked = NULL;
    if (look == NULL) return NULL;
    bool ok = arguments_load(&asked, &files_query_table, request->arguments, request->n_arguments,
                             failure) &&
              fields_parse(&files_query_table, &look->query, asked, &look->api->largest, failure);
    json_close(asked);
    look->base.lost = "after";
    look->narrow = purpose_filter(look->query.purpose);
    if (ok && look->query.after) {
        look->after = file_document(look->query.after);
        ok = look->after ||
             failure_set(failure, 400, "invalid_value", "after", "after is the id of no file");
    }
    if (ok) return look_ask(&look->base, look->model, waker, failure);
    look_free(&look->base);
    return NULL;
}

struct answer *files_list(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    return ask_list(make_look(api, request, SHAPE_FILE, failure), request, waker, failure);
}

struct answer *file_show(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    return ask_one(make_look(api, request, SHAPE_FILE, failure), request, 2, waker, failure);
}

struct answer *file_content(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    char *document = model ? file_of_path(request, 2, failure) : NULL;
    const struct document_file_ask ask = {
        .model = model, .id = document, .lost = "file_id", .hides = is_over};
    return document ? document_file_ask(request, &ask, waker, failure) : NULL;
}

/* The collection as a store. */

struct answer *collection_files(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    return ask_list(make_look(api, request, SHAPE_STORE_FILE, failure), request, waker, failure);
}

struct answer *collection_file(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    return ask_one(make_look(api, request, SHAPE_STORE_FILE, failure), request, 4, waker, failure);
}

struct answer *document_content(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    struct file_look *look = make_look(api, request, SHAPE_STORE_FILE, failure);
    if (look) look->content = true;
    return ask_one(look, request, 4, waker, failure);
}
