/* server/documents/document_upload.c: see document_upload.h. */
#include "server/documents/document_upload.h"

#include <stdlib.h>

void document_id_within(const struct filter *filter, const char *name, char id[DOCUMENT_ID_SIZE]) {
    struct buffer whole = {0};
    if (filter) buffer_printf(&whole, "%s\n", filter_text(filter));
    buffer_append_string(&whole, name);
    document_id_of_path(whole.data, id);
    buffer_free(&whole);
}

/* Reading several. */

struct upload_reading {
    struct document_upload *upload;
    size_t bytes; /* of text, so far */
};

static void free_parts(struct document_upload *u) {
    for (int i = 0; i < u->n_parts; i++) {
        document_text_free(&u->parts[i].read);
        free(u->parts[i].id);
        free(u->parts[i].path);
    }
    free(u->parts);
    u->parts = NULL;
    u->n_parts = u->part_capacity = 0;
}

static enum status check_limits(struct upload_reading *r, size_t size, struct error *e) {
    const struct document_upload *u = r->upload;
    r->bytes += size;
    if (u->n_parts == u->max_parts)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: more than %d documents, which is the limit of a request; upload it in parts, or use "
                         "retro-index add",
                         u->name, u->max_parts);
    if (r->bytes > u->limit)
        return error_set(e, STATUS_TOO_LARGE,
                         "%s: its documents have more text than the limit of %zu bytes (option server.max_upload_text)",
                         u->name, u->limit);
    return STATUS_OK;
}

static char *join(const char *name, const char *part) {
    struct buffer whole = {0};
    buffer_printf(&whole, "%s%s", name, part);
    return whole.data;
}

static char *make_part_id(const struct document_upload *u, const char *part, const char *path) {
    char id[DOCUMENT_ID_SIZE];
    if (u->id) return join(u->id, part);
    document_id_within(u->filter, path, id);
    return xstrdup(id);
}

static enum status take_part(void *context, const char *part, const struct document_text *d, struct error *e) {
    struct upload_reading *r = context;
    struct document_upload *u = r->upload;
    if (check_limits(r, d->text.size, e)) return e->status;
    u->parts = xgrow(u->parts, u->n_parts, &u->part_capacity, sizeof *u->parts);
    struct upload_part *p = &u->parts[u->n_parts];
    *p = (struct upload_part){.path = join(u->path, part)};
    p->id = make_part_id(u, part, p->path);
    buffer_append(&p->read.text, d->text.data, d->text.size);
    buffer_append_string(&p->read.title, d->title.data ? d->title.data : "");
    buffer_append(&p->read.marks, d->marks.data, d->marks.size);
    u->n_parts++;
    return STATUS_OK;
}

static void skip_part(void *context, const struct error *why) {
    struct document_upload *u = ((struct upload_reading *)context)->upload;
    if (u->n_skipped < UPLOAD_SKIPPED) buffer_append(&u->skipped, why, sizeof *why);
    u->n_skipped++;
}

static enum status read_several(struct document_upload *u, const struct extract_limits *limits, struct error *e) {
    struct upload_reading reading = {.upload = u};
    struct document_taker taker = {.context = &reading, .take = take_part, .skip = skip_part};
    struct extract_source source = {.path = u->name, .bytes = u->bytes, .kind = document_kind(u->name)};
    if (source.bytes.text == NULL) source.bytes.text = "";
    enum status status = document_extract_all(&source, limits, &taker, e);
    if (status == STATUS_OK && u->n_parts == 0 && u->n_skipped == 0)
        status = error_set(e, STATUS_INVALID, "%s: no document in it", u->name);
    if (status) free_parts(u);
    return status;
}

/* The time counts from here: the file has its turn. */
static struct extract_limits limits_of(const struct document_upload *u) {
    struct extract_limits limits = extract_limits_of(u->limit);
    if (limits.seconds > u->seconds) limits.seconds = u->seconds;
    limits.until = time_now() + u->seconds;
    limits.cancelled = u->cancelled;
    limits.stopped = u->stopped;
    return limits;
}

enum status upload_read(struct document_upload *u, struct error *e) {
    struct extract_limits limits = limits_of(u);
    if (document_kind(u->name) == DOCUMENT_UNKNOWN)
        return error_set(e, STATUS_INVALID, "%s: not a known kind of document", u->name);
    enum status status = upload_holds_several(u) ? read_several(u, &limits, e)
                                                 : document_extract_upload(u->name, u->bytes, &limits, &u->read, e);
    if (status == STATUS_OK || status == STATUS_CANCELLED || time_now() < limits.until) return status;
    return error_set(e, STATUS_TOO_LARGE,
                     "%s: reading it takes over %d seconds, which is the limit of an upload (option "
                     "retrieval.upload_seconds); use retro-index add",
                     u->name, u->seconds);
}

void upload_free(struct document_upload *u) {
    free_parts(u);
    document_text_free(&u->read);
    buffer_free(&u->skipped);
}
