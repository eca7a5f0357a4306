/* server/doors/stores/file_upload.c: files that are uploaded, which become documents of the
 * collection, and files that are deleted. A file is there when its upload is answered. */
#include <stdlib.h>
#include <string.h>

#include "server/api/core/multipart.h"
#include "server/api/core/traffic.h"
#include "server/api/routes.h"
#include "server/doors/stores/stores_private.h"

enum { LEAST_SECONDS = 3600, MOST_SECONDS = 2592000, NAME_MOST = 1000 };

/* A change of one file that a client waits for. */
struct file_change {
    struct shared_answer base; /* first */
    struct document_job job;
    struct document_item item;
    struct document_upload upload;
    struct principal who; /* held */
    struct file_upload told;
    char *document, *name, *purpose;
    struct buffer bytes, metadata;
};

static void free_change(struct shared_answer *base) {
    struct file_change *change = (struct file_change *)base;
    upload_free(&change->upload);
    principal_release(&change->who);
    buffer_free(&change->bytes);
    buffer_free(&change->metadata);
    free(change->document);
    free(change->name);
    free(change->purpose);
    free(change);
}

/* Telling. */

static void put_uploaded(struct json_writer *w, const struct file_change *change) {
    put_object(w);
    file_put_id(w, "id", change->document);
    put_key_string(w, "object", "file");
    put_key_int(w, "bytes", change->told.bytes);
    put_key_int(w, "created_at", change->told.created);
    if (change->told.until > 0) put_key_int(w, "expires_at", change->told.until);
    put_key_string(w, "filename", change->name);
    put_key_string(w, "purpose", change->purpose);
    put_key_string(w, "status", "processed");
    put_object_end(w);
}

static void put_deleted(struct json_writer *w, const struct file_change *change) {
    put_object(w);
    file_put_id(w, "id", change->document);
    put_key_string(w, "object", "file");
    put_key_bool(w, "deleted", true);
    put_object_end(w);
}

static enum answer_progress poll_change(struct answer *base, struct buffer *out) {
    struct file_change *change = (struct file_change *)base;
    struct json_writer w;
    if (!shared_answer_is_done(&change->base)) return ANSWER_WAITING;
    if (change->item.status) {
        struct failure failure = {0};
        failure_from_error(&failure, &change->item.error);
        failure_answer(&failure, base, out);
        return ANSWER_COMPLETE;
    }
    put_begin(&w, out);
    if (change->job.deletes)
        put_deleted(&w, change);
    else
        put_uploaded(&w, change);
    return ANSWER_COMPLETE;
}

/* Asking. */

static void change_done(struct document_job *job) { shared_answer_finish(job->context); }

static struct file_change *make_change(const struct api_request *request, struct waker waker) {
    static const struct answer_ops ops = {poll_change, shared_answer_cancel, shared_answer_close};
    struct file_change *change = xcalloc(1, sizeof *change);
    shared_answer_init(&change->base, &ops, waker, free_change);
    change->who = principal_hold(request->principal);
    change->job = (struct document_job){.client = change->who.client,
                                        .who = &change->who,
                                        .items = &change->item,
                                        .n_items = 1,
                                        .done = change_done,
                                        .context = change};
    return change;
}

/* Takes the change. */
static struct answer *send_change(struct file_change *change, const struct served_model *model,
                                  struct failure *failure) {
    struct error e;
    change->job.filter = principal_filter(&change->who);
    shared_answer_begin(&change->base);
    if (document_thread_ask(model->document_thread, &change->job, &e) == STATUS_OK)
        return &change->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&change->base);
    answer_close(&change->base.base);
    return NULL;
}

/* The form. */

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

static bool check_purpose(const char *purpose, struct failure *failure) {
    if (purpose == NULL)
        return failure_set(failure, 400, "missing_parameter", "purpose",
                           "purpose is missing: assistants or user_data");
    if (strcmp(purpose, "assistants") == 0 || strcmp(purpose, "user_data") == 0) return true;
    return failure_set(failure, 400, "not_supported", "purpose",
                       "purpose %.40s is not supported: files are read and searched, send "
                       "assistants or user_data",
                       purpose);
}

static bool read_expiry(const struct file_form *form, struct file_upload *told,
                        struct failure *failure) {
    long seconds = form->seconds ? strtol(form->seconds, NULL, 10) : 0;
    if (form->anchor == NULL && form->seconds == NULL) return true;
    if (form->anchor == NULL || strcmp(form->anchor, "created_at") != 0)
        return refuse(failure, "expires_after[anchor]", "must be created_at");
    if (seconds < LEAST_SECONDS || seconds > MOST_SECONDS)
        return refuse(failure, "expires_after[seconds]", "must be 3600 .. 2592000");
    told->until = told->created + seconds;
    return true;
}

static bool take_file(struct file_change *change, const struct multipart_part *part,
                      struct failure *failure) {
    if (change->name) return refuse(failure, "file", "there is more than one");
    if (part->file_name == NULL || part->file_name[0] == '\0')
        return refuse(failure, "file", "has no filename, by whose end it is read");
    if (strlen(part->file_name) > NAME_MOST) return refuse(failure, "file", "its name is too long");
    if (document_kind_holds_several(document_kind(part->file_name)))
        return failure_set(failure, 400, "unsupported_file", "file",
                           "%.200s may hold several documents, and a file here is one: add it at "
                           "/v1/documents, where vs_collection searches it",
                           part->file_name);
    change->name = xstrdup(part->file_name);
    buffer_append(&change->bytes, part->body.text, part->body.size);
    return true;
}

/* The parts that are no file, by their table. */
static bool read_parts(const struct multipart *multipart, struct api *api, struct file_form *out,
                       struct failure *failure) {
    struct query_argument arguments[MULTIPART_MAX_PARTS];
    char *values[MULTIPART_MAX_PARTS];
    struct json *form = NULL;
    int n = 0;
    for (int i = 0; i < multipart->n; i++) {
        const struct multipart_part *part = &multipart->parts[i];
        if (strcmp(part->name, "file") == 0) continue;
        values[n] = xstrndup(part->body.text, part->body.size);
        arguments[n] = (struct query_argument){part->name, values[n]};
        n++;
    }
    bool ok = arguments_load(&form, &file_form_table, arguments, n, failure) &&
              fields_parse(&file_form_table, out, form, &api->largest, failure);
    if (ok)
        traffic_note_passed(
            api->traffic, "stores", "field",
            n - (out->purpose != NULL) - (out->anchor != NULL) - (out->seconds != NULL));
    json_close(form);
    for (int i = 0; i < n; i++) free(values[i]);
    return ok;
}

static bool read_multipart(struct file_change *change, struct api *api,
                           const struct multipart *multipart, struct failure *failure) {
    struct file_form form = {0};
    change->told.created = time(NULL);
    bool ok = read_parts(multipart, api, &form, failure) && check_purpose(form.purpose, failure) &&
              read_expiry(&form, &change->told, failure);
    for (int i = 0; ok && i < multipart->n; i++)
        if (strcmp(multipart->parts[i].name, "file") == 0)
            ok = take_file(change, &multipart->parts[i], failure);
    if (ok && change->name == NULL)
        ok =
            failure_set(failure, 400, "missing_parameter", "file", "the body has no part \"file\"");
    if (ok) change->purpose = xstrdup(form.purpose);
    json_table_free(&file_form_table, &form);
    return ok;
}

static bool read_form(struct file_change *change, struct api *api,
                      const struct api_request *request, struct failure *failure) {
    struct text_span body = {request->body, request->size};
    struct error e;
    if (!multipart_is_announced(request->content_type))
        return failure_set(failure, 400, "invalid_form", NULL,
                           "a file is sent as multipart/form-data, with parts file and purpose");
    struct multipart *multipart = xcalloc(1, sizeof *multipart);
    bool ok = multipart_parse(multipart, request->content_type, body, &e) == STATUS_OK
                  ? read_multipart(change, api, multipart, failure)
                  : failure_set(failure, 400, "invalid_form", NULL, "%s", e.text);
    multipart_free(multipart);
    free(multipart);
    return ok;
}

/* Uploading. */

/* Before the first document that has an owner, or ends by itself, the records say so: every server
 * of the collection goes by them. */
static bool announce(struct stores *stores, const struct file_change *change,
                     struct failure *failure) {
    bool owned = change->who.key != NULL, expires = change->told.until > 0;
    struct error e;
    const struct records *seen = registry_look(stores->registry, &e);
    if (seen == NULL) return failure_from_error(failure, &e);
    bool known = (!owned || seen->owned) && (!expires || seen->expires);
    registry_end(stores->registry);
    if (owned) keys_part();
    if (known) return true;
    struct records *records = registry_change(stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    records->owned |= owned;
    records->expires |= expires;
    return registry_write(stores->registry, &e) == STATUS_OK || failure_from_error(failure, &e);
}

static bool fill_upload(struct file_change *change, const struct served_model *model,
                        struct failure *failure) {
    struct error e;
    char id[STORE_ID_BYTES];
    make_store_id("", id);
    change->document = xstrdup(id);
    change->told.purpose = change->purpose;
    change->told.owner = store_owner(&change->who);
    change->told.bytes = (int64_t)change->bytes.size;
    file_metadata_begin(&change->metadata, &change->told);
    if (filter_fill(principal_filter(&change->who), &change->metadata, &e))
        return failure_from_error(failure, &e);
    change->upload = (struct document_upload){.name = change->name,
                                              .bytes = {change->bytes.data, change->bytes.size},
                                              .limit = (size_t)model->upload_bytes,
                                              .max_parts = 1,
                                              .path = change->name};
    change->item.upload = &change->upload;
    change->item.document = (struct collection_document){.id = change->document,
                                                         .path = change->name,
                                                         .title = "",
                                                         .metadata = change->metadata.data};
    change->job.upload_bytes = model->upload_bytes;
    change->job.cancelled = &change->base.cancelled;
    return true;
}

struct answer *file_upload(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    const struct served_model *model = stores_model(api, &request->principal, failure);
    if (model == NULL) return NULL;
    struct file_change *change = make_change(request, waker);
    if (read_form(change, api, request, failure) && announce(api->stores, change, failure) &&
        fill_upload(change, model, failure))
        return send_change(change, model, failure);
    answer_close(&change->base.base);
    return NULL;
}

/* Deleting. */

static bool find_upload(const struct served_model *model, const struct principal *who,
                        const char *document, struct failure *failure) {
    struct collection_found found;
    struct file_facts facts;
    struct error e;
    if (collection_find(model->collection, principal_filter(who), document, &found, &e))
        return e.status == STATUS_NOT_FOUND
                   ? failure_set(failure, 404, "not_found", "file_id", "there is no such file")
                   : failure_from_error(failure, &e);
    file_facts_read(&facts, &found.document);
    collection_found_release(&found);
    return facts.uploaded ||
           failure_set(failure, 400, "not_supported", "file_id",
                       "the file was not uploaded here: it is a document of the collection, which "
                       "is deleted at /v1/documents");
}

struct answer *file_delete(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    char id[FILE_ID_BYTES];
    const struct served_model *model = stores_model(api, &request->principal, failure);
    if (model == NULL) return NULL;
    struct file_change *change = make_change(request, waker);
    if (route_segment(request->path, 2, id, sizeof id)) change->document = file_document(id);
    bool ok = change->document
                  ? find_upload(model, &request->principal, change->document, failure)
                  : failure_set(failure, 404, "not_found", "file_id", "there is no such file");
    if (!ok) {
        answer_close(&change->base.base);
        return NULL;
    }
    change->job.deletes = true;
    change->item.document = (struct collection_document){.id = change->document};
    return send_change(change, model, failure);
}
