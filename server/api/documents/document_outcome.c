/* server/api/documents/document_outcome.c: see document_outcome.h. */
#include "server/api/documents/document_outcome.h"

#include "config/json/json_writer.h"

struct document_outcome document_outcome_of(const struct document_item *item) {
    return (struct document_outcome){item->document.id, item->document.path, item->effect,
                                     item->status, &item->error};
}

void document_outcome_fail(struct failure *failure, const struct document_outcome *outcome) {
    *failure = (struct failure){0};
    if (outcome->effect == CHANGE_REFUSED)
        failure_set(failure, 403, "document_not_allowed", NULL, "%s", outcome->error->text);
    else
        failure_from_error(failure, outcome->error);
}

/* Of a list, each tells how it went. */
void put_document_outcome(struct json_writer *w, const struct document_outcome *outcome) {
    static const char *const names[] = {[CHANGE_NOTHING] = "unchanged",
                                        [CHANGE_ADDED] = "added",
                                        [CHANGE_REPLACED] = "replaced",
                                        [CHANGE_DELETED] = "deleted"};
    struct failure failure;
    put_object(w);
    put_key_string(w, "id", outcome->id);
    if (outcome->path) put_key_string(w, "path", outcome->path);
    put_key_string(w, "object", "document");
    put_key_string(w, "effect", outcome->status ? "failed" : names[outcome->effect]);
    if (outcome->status) {
        document_outcome_fail(&failure, outcome);
        put_key_object(w, "error");
        put_key_string(w, "message", failure.message);
        put_key_string(w, "code", failure.code ? failure.code : "failed");
        put_object_end(w);
        failure_free(&failure);
    }
    put_object_end(w);
}

/* The documents of a file that may hold several, with their paths. */
static void write_parts(struct json_writer *w, const struct document_upload *upload) {
    for (int i = 0; i < upload->n_parts; i++) {
        const struct upload_part *part = &upload->parts[i];
        put_document_outcome(w, &(struct document_outcome){part->id, part->path, part->effect,
                                                           part->status, &part->error});
    }
}

static void write_skipped(struct json_writer *w, const struct document_upload *upload) {
    const struct error *list = (const struct error *)(const void *)upload->skipped.data;
    for (size_t i = 0; i < upload->skipped.size / sizeof *list; i++) {
        put_object(w);
        put_key_string(w, "file", upload->name);
        put_key_string(w, "message", list[i].text);
        put_object_end(w);
    }
}

void put_job_outcomes(struct json_writer *w, const struct document_job *job) {
    int n_skipped = 0;
    put_key_array(w, "data");
    for (int i = 0; i < job->n_items; i++) {
        const struct document_item *item = &job->items[i];
        struct document_outcome outcome = document_outcome_of(item);
        if (item->upload && item->status == STATUS_OK && upload_holds_several(item->upload))
            write_parts(w, item->upload);
        else
            put_document_outcome(w, &outcome);
        if (item->upload) n_skipped += item->upload->n_skipped;
    }
    put_array_end(w);
    if (n_skipped == 0) return;
    put_key_int(w, "n_skipped", n_skipped);
    put_key_array(w, "skipped");
    for (int i = 0; i < job->n_items; i++)
        if (job->items[i].upload) write_skipped(w, job->items[i].upload);
    put_array_end(w);
}

static bool has_failed(const struct document_item *item) {
    const struct document_upload *upload = item->upload;
    if (item->status || upload == NULL || !upload_holds_several(upload)) return item->status != 0;
    for (int i = 0; i < upload->n_parts; i++)
        if (upload->parts[i].status == STATUS_OK) return false;
    return true;
}

bool job_has_failed(const struct document_job *job) {
    for (int i = 0; i < job->n_items; i++)
        if (!has_failed(&job->items[i])) return false;
    return job->n_items > 0;
}
