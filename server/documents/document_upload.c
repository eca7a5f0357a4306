/* server/documents/document_upload.c: see document_upload.h. */
#include "server/documents/document_upload.h"

#include <stdlib.h>

void document_id_within(const struct filter *filter, const char *name, char id[DOCUMENT_ID_SIZE]) {
    struct buffer whole = {0};
    const struct filter *known = filter_known(filter);
    if (known) buffer_printf(&whole, "%s\n", filter_text(known));
    buffer_append_string(&whole, name);
    document_id_of_path(whole.data, id);
    buffer_free(&whole);
}

/* Reading several. */

struct upload_reading {
    struct document_upload *upload;
    size_t bytes; /* of text, so far */
};

static void free_parts(struct document_upload *upload) {
    for (int i = 0; i < upload->n_parts; i++) {
        document_text_free(&upload->parts[i].read);
        free(upload->parts[i].id);
        free(upload->parts[i].path);
    }
    free(upload->parts);
    upload->parts = NULL;
    upload->n_parts = upload->part_capacity = 0;
}

static enum status check_limits(struct upload_reading *reading, size_t size, struct error *e) {
    const struct document_upload *upload = reading->upload;
    reading->bytes += size;
    if (upload->n_parts == upload->max_parts)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: more than %d documents, which is the limit of a request; upload it "
                         "in parts, or use "
                         "retro-index add",
                         upload->name, upload->max_parts);
    if (reading->bytes > upload->limit)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: its documents have more text than the limit of %zu bytes (option "
                         "server.max_upload_text)",
                         upload->name, upload->limit);
    return STATUS_OK;
}

static char *join(const char *name, const char *part) {
    struct buffer whole = {0};
    buffer_printf(&whole, "%s%s", name, part);
    return whole.data;
}

static char *make_part_id(const struct document_upload *upload, const char *part,
                          const char *path) {
    char id[DOCUMENT_ID_SIZE];
    if (upload->id) return join(upload->id, part);
    document_id_within(upload->filter, path, id);
    return xstrdup(id);
}

static enum status take_part(void *context, const char *part, const struct document_text *text,
                             struct error *e) {
    struct upload_reading *reading = context;
    struct document_upload *upload = reading->upload;
    if (check_limits(reading, text->text.size, e)) return e->status;
    upload->parts =
        xgrow(upload->parts, upload->n_parts, &upload->part_capacity, sizeof *upload->parts);
    struct upload_part *upload_part = &upload->parts[upload->n_parts];
    *upload_part = (struct upload_part){.path = join(upload->path, part)};
    upload_part->id = make_part_id(upload, part, upload_part->path);
    buffer_append(&upload_part->read.text, text->text.data, text->text.size);
    buffer_append_string(&upload_part->read.title, text->title.data ? text->title.data : "");
    buffer_append(&upload_part->read.marks, text->marks.data, text->marks.size);
    upload->n_parts++;
    return STATUS_OK;
}

static void skip_part(void *context, const struct error *why) {
    struct document_upload *upload = ((struct upload_reading *)context)->upload;
    if (upload->n_skipped < UPLOAD_SKIPPED) buffer_append(&upload->skipped, why, sizeof *why);
    upload->n_skipped++;
}

static enum status read_several(struct document_upload *upload, const struct extract_limits *limits,
                                struct error *e) {
    struct upload_reading reading = {.upload = upload};
    struct document_taker taker = {.context = &reading, .take = take_part, .skip = skip_part};
    struct extract_source source = {
        .path = upload->name, .bytes = upload->bytes, .kind = document_kind(upload->name)};
    if (source.bytes.text == NULL) source.bytes.text = "";
    enum status status = document_extract_all(&source, limits, &taker, e);
    if (status == STATUS_OK && upload->n_parts == 0 && upload->n_skipped == 0)
        status = error_set(e, STATUS_INVALID, "%s: no document in it", upload->name);
    if (status) free_parts(upload);
    return status;
}

/* The time counts from here: the file has its turn. */
static struct extract_limits limits_of(const struct document_upload *upload) {
    struct extract_limits limits = extract_limits_of(upload->limit);
    if (limits.seconds > upload->seconds) limits.seconds = upload->seconds;
    limits.until = time_now() + upload->seconds;
    limits.cancelled = upload->cancelled;
    limits.stopped = upload->stopped;
    limits.ocr = upload->ocr;
    limits.model = upload->model;
    return limits;
}

enum status upload_read(struct document_upload *upload, struct error *e) {
    struct extract_limits limits = limits_of(upload);
    if (document_kind(upload->name) == DOCUMENT_UNKNOWN)
        return error_set(e, STATUS_INVALID, "%s: not a known kind of document", upload->name);
    enum status status =
        upload_holds_several(upload)
            ? read_several(upload, &limits, e)
            : document_extract_upload(upload->name, upload->bytes, &limits, &upload->read, e);
    if (status == STATUS_OK || status == STATUS_CANCELLED || time_now() < limits.until)
        return status;
    return error_set(
        e, STATUS_TOO_LARGE,
        "%s: reading it takes over %d seconds, which is the limit of an upload (option "
        "retrieval.upload_seconds); use retro-index add",
        upload->name, upload->seconds);
}

enum status upload_count(const struct document_upload *upload, int64_t most, int64_t *bytes,
                         struct error *e) {
    *bytes += (int64_t)upload->read.text.size;
    for (int i = 0; i < upload->n_parts; i++) *bytes += (int64_t)upload->parts[i].read.text.size;
    if (*bytes <= most) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "%s: the files of the request have %lld bytes of text up to here, and the "
                     "limit is %lld (option server.max_upload_text)",
                     upload->name, (long long)*bytes, (long long)most);
}

void upload_free(struct document_upload *upload) {
    free_parts(upload);
    kept_copy_release(&upload->copy);
    document_text_free(&upload->read);
    buffer_free(&upload->skipped);
}
