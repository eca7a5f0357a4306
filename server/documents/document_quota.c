/* server/documents/document_quota.c: see document_quota.h. */
#include "server/documents/document_quota.h"

#include <string.h>

#include "config/base/hash.h"
#include "retrieval/kept/kept_name.h"

static int64_t limit_of(const struct document_quota *quota) {
    const struct key *key = quota->who ? quota->who->key : NULL;
    return key ? key->limits.stored_bytes : 0;
}

bool quota_is_set(const struct document_quota *quota) { return limit_of(quota) > 0; }

static int64_t length(const char *text) { return (int64_t)strlen(text ? text : ""); }

/* All that a client may make as long as it likes. */
static int64_t bytes_of_stored(const struct stored_document *document) {
    return (int64_t)document->text.size + length(document->path) + length(document->title) +
           length(document->metadata);
}

static int64_t bytes_of_new(const struct collection_document *document) {
    return (int64_t)document->text.size + length(document->path) + length(document->title) +
           length(document->metadata);
}

/* One more document names a copy, or one less: the bytes that come with it or go. */
static int64_t count_copy(struct document_quota *quota, const char *file, int change) {
    struct kept_name name = kept_name_read(file);
    bool added;
    if (name.kind != KEPT_COPY) return 0;
    size_t size = strlen(name.hash);
    int64_t *n = key_set_put(&quota->copies, hash_bytes(name.hash, size, 0),
                             hash_bytes(name.hash, size, 1), &added);
    bool was_there = *n > 0;
    *n += change;
    return ((*n > 0) - was_there) * (int64_t)name.size;
}

static enum status add_stored(void *context, const struct stored_document *document,
                              struct error *e) {
    struct document_quota *quota = context;
    (void)e;
    quota->stored += bytes_of_stored(document) + count_copy(quota, document->file, 1);
    return STATUS_OK;
}

static enum status count_stored(struct document_quota *quota, struct error *e) {
    struct collection_walk walk = {
        .filter = principal_filter(quota->who), .take = add_stored, .context = quota};
    if (quota->counted) return STATUS_OK;
    key_set_free(&quota->copies);
    quota->stored = 0;
    if (collection_walk(quota->collection, &walk, e)) return e->status;
    quota->counted = true;
    return STATUS_OK;
}

/* Bytes of the document that this one replaces; 0: none. */
static enum status count_replaced(struct document_quota *quota, const char *id, int64_t *bytes,
                                  struct error *e) {
    struct collection_found found;
    *bytes = 0;
    enum status status =
        collection_find(quota->collection, principal_filter(quota->who), id, &found, e);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return status;
    *bytes = bytes_of_stored(&found.document) - count_copy(quota, found.document.file, -1);
    collection_found_release(&found);
    return STATUS_OK;
}

void quota_free(struct document_quota *quota) { key_set_free(&quota->copies); }

void quota_note(const struct document_quota *quota) {
    if (quota->counted) key_note_stored(quota->who->key, quota->stored);
}

enum status quota_take(struct document_quota *quota, const struct collection_document *documents,
                       int n, struct error *e) {
    int64_t limit = limit_of(quota), more = 0;
    if (limit == 0) return STATUS_OK;
    if (count_stored(quota, e)) return e->status;
    for (int i = 0; i < n; i++) {
        int64_t replaced;
        if (count_replaced(quota, documents[i].id, &replaced, e)) return e->status;
        more += bytes_of_new(&documents[i]) - replaced + count_copy(quota, documents[i].file, 1);
    }
    if (more > 0 && quota->stored + more > limit) {
        quota_forget(quota);
        return error_set(e, STATUS_TOO_LARGE,
                         "the key %s may store %lld bytes of documents (\"stored_bytes\" in the "
                         "file of keys); %lld are "
                         "stored, and this takes %lld more",
                         quota->who->key->name, (long long)limit, (long long)quota->stored,
                         (long long)more);
    }
    quota->stored += more;
    return STATUS_OK;
}
