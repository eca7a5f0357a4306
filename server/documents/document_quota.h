/* server/documents/document_quota.h: the bytes of documents that a key may have stored
 * ("stored_bytes" in the file of keys): texts, paths, titles and metadata of all documents that
 * there are for it, and copies of their files, each once. They are counted from the collection, so
 * a restart and another program's changes are no matter.
 */
#pragma once

#include "config/base/key_set.h"
#include "retrieval/collection.h"
#include "server/access/principal.h"

/* Of one job. Zeroed but for the first two, which are borrowed. */
struct document_quota {
    struct collection *collection;
    const struct principal *who; /* NULL: nobody, whose documents nobody counts */
    int64_t stored;              /* bytes, with what this job has put */
    struct key_set copies;       /* of files (retrieval/kept): how many documents name each */
    bool counted;
};
void quota_free(struct document_quota *quota);

/* Whether the key has such a limit. */
bool quota_is_set(const struct document_quota *quota);
/* Whether documents [n], of which text, path, title, metadata, file and id are looked at, may be
 * put together; then they are counted. STATUS_TOO_LARGE names the limit and what there is.
 * Documents that take no more room than before may always. */
enum status quota_take(struct document_quota *quota, const struct collection_document *documents,
                       int n, struct error *e);
/* Documents that were taken are not there: the next call counts anew. */
static inline void quota_forget(struct document_quota *quota) { quota->counted = false; }
/* Tells the key what is stored, where it was counted. */
void quota_note(const struct document_quota *quota);
