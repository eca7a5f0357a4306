/* retrieval/collection.c: what collections of all kinds do alike: the ids of tenants, and who may
 * change what. See collection.h. */
#include "retrieval/collection.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"
#include "retrieval/filter/scope.h"

static enum status refuse_folder_work(struct error *e) {
    return error_set(
        e, STATUS_UNSUPPORTED,
        "the collection is in no folder: it has no log of changes and nothing to compact");
}

enum status collection_count_changes(struct collection *collection, struct collection_changes *out,
                                     struct error *e) {
    if (collection->ops->changes == NULL) return refuse_folder_work(e);
    *out = collection->ops->changes(collection);
    return STATUS_OK;
}

enum status collection_compact(struct collection *collection, const atomic_bool *cancelled,
                               struct error *e) {
    return collection->ops->compact ? collection->ops->compact(collection, cancelled, e)
                                    : refuse_folder_work(e);
}

/* Ids. */

uint64_t collection_hash_id(const char *id) { return lookup_hash(id, strlen(id)); }

/* Documents with the ids that they are stored under. */
struct resolved {
    struct collection_document *documents; /* [n] */
    char **own;                            /* [n] ids in the filter's scope */
    int n;
};

static void resolved_free(struct resolved *resolved) {
    for (int i = 0; i < resolved->n; i++) free(resolved->own[i]);
    free(resolved->own);
    free(resolved->documents);
}

static enum status choose_ids(struct collection *collection, const struct filter *filter,
                              struct resolved *resolved, struct error *e) {
    size_t n = (size_t)resolved->n;
    const char **plain = xcalloc(n, sizeof(char *));
    bool *shows_own = xcalloc(n, sizeof *shows_own), *shows_plain = xcalloc(n, sizeof *shows_plain);
    for (int i = 0; i < resolved->n; i++) {
        plain[i] = resolved->documents[i].id;
        resolved->own[i] = scope_id(filter, plain[i]);
    }
    enum status status = collection->ops->shows_all(
        collection, filter, (const char *const *)resolved->own, resolved->n, shows_own, e);
    if (status == STATUS_OK)
        status = collection->ops->shows_all(collection, filter, plain, resolved->n, shows_plain, e);
    for (int i = 0; i < resolved->n && status == STATUS_OK; i++)
        if (shows_own[i] || !shows_plain[i]) resolved->documents[i].id = resolved->own[i];
    free(plain);
    free(shows_own);
    free(shows_plain);
    return status;
}

/* Of asked->documents. Free *out, on failure too. */
static enum status resolve(struct collection *collection, const struct collection_asked *asked,
                           struct resolved *out, struct error *e) {
    size_t n = (size_t)asked->n;
    *out = (struct resolved){.documents = xcalloc(n + 1, sizeof *out->documents),
                             .own = xcalloc(n + 1, sizeof(char *)),
                             .n = asked->n};
    for (size_t i = 0; i < n; i++) out->documents[i] = *asked->documents[i];
    return filter_known(asked->filter) && n > 0 ? choose_ids(collection, asked->filter, out, e)
                                                : STATUS_OK;
}

/* Looking. */

enum status collection_find(struct collection *collection, const struct filter *filter,
                            const char *id, struct collection_found *out, struct error *e) {
    char *own = scope_id(filter, id);
    *out = (struct collection_found){0};
    enum status status =
        own ? collection->ops->find(collection, filter, own, out, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = collection->ops->find(collection, filter, id, out, e);
    if (status == STATUS_OK) out->document.id = scope_show(filter, out->document.id);
    free(own);
    return status;
}

/* A walk, which behind a document begins late where its order tells nothing. */
struct collection_stroll {
    const struct collection_walk *asked;
    const char *after; /* as it is stored; NULL: it has begun */
    int64_t n;         /* documents that were looked at */
};

/* The clock is asked now and then. */
static bool is_late(struct collection_stroll *stroll) {
    stroll->n++;
    return stroll->asked->deadline > 0 && stroll->n % 16 == 0 &&
           time_now() >= stroll->asked->deadline;
}

/* A document that is not allowed is as if it were not there. */
static enum status take_allowed(void *context, const struct stored_document *document,
                                struct error *e) {
    struct collection_stroll *stroll = context;
    const struct collection_walk *asked = stroll->asked;
    if (is_late(stroll))
        return error_set(e, STATUS_CANCELLED, "the documents were not listed in time");
    if (!document_is_allowed(asked->filter, document)) return STATUS_OK;
    if (stroll->after) {
        if (strcmp(document->id, stroll->after) == 0) stroll->after = NULL;
        return STATUS_OK;
    }
    if (!document_is_allowed(asked->narrow, document)) return STATUS_OK;
    struct stored_document shown = *document;
    shown.id = scope_show(asked->filter, document->id);
    return asked->take(asked->context, &shown, e);
}

/* `after` is the id that the document is stored under. */
static enum status walk_behind(struct collection *collection, const struct collection_walk *asked,
                               const char *after, struct error *e) {
    struct collection_stroll stroll = {.asked = asked,
                                       .after = collection->ops->ordered ? NULL : after};
    struct collection_walk walk = *asked;
    walk.after = after;
    walk.take = take_allowed;
    walk.context = &stroll;
    enum status status = collection->ops->walk(collection, &walk, e);
    if (status || stroll.after == NULL) return status;
    return error_set(e, STATUS_NOT_FOUND,
                     "no document has the id that the list is to begin behind");
}

enum status collection_walk(struct collection *collection, const struct collection_walk *walk,
                            struct error *e) {
    struct collection_document first = {.id = walk->after};
    struct collection_asked asked = {
        walk->filter, (const struct collection_document *const[]){&first}, walk->after != NULL};
    struct resolved resolved;
    enum status status = resolve(collection, &asked, &resolved, e);
    if (status == STATUS_OK)
        status = walk_behind(collection, walk, walk->after ? resolved.documents[0].id : NULL, e);
    resolved_free(&resolved);
    return status;
}

/* Counting. */

struct collection_counts {
    const struct filter *filter;
    int64_t n_documents, n_chunks;
};

static enum status count_document(void *context, const struct stored_document *document,
                                  struct error *e) {
    struct collection_counts *counts = context;
    (void)e;
    if (!document_is_allowed(counts->filter, document)) return STATUS_OK;
    counts->n_documents++;
    counts->n_chunks += document->n_chunks;
    return STATUS_OK;
}

static enum status count_all(struct collection *collection, int64_t *n_documents, int64_t *n_chunks,
                             struct error *e) {
    if (collection->ops->count) return collection->ops->count(collection, n_documents, n_chunks, e);
    struct snapshot *newest = collection_hold(collection);
    *n_documents = newest->n_documents;
    *n_chunks = newest->n_chunks;
    snapshot_release(newest);
    return STATUS_OK;
}

enum status collection_count(struct collection *collection, const struct filter *filter,
                             int64_t *n_documents, int64_t *n_chunks, struct error *e) {
    struct collection_counts counts = {.filter = filter};
    struct collection_walk walk = {.filter = filter, .take = count_document, .context = &counts};
    if (filter == NULL) return count_all(collection, n_documents, n_chunks, e);
    enum status status = collection->ops->walk(collection, &walk, e);
    *n_documents = counts.n_documents;
    *n_chunks = counts.n_chunks;
    return status;
}

/* Changing. */

enum status collection_check_put(const struct filter *filter,
                                 const struct collection_document *document, struct error *e) {
    bool admits = true;
    enum status status =
        filter ? document_ask_filter(filter, filter_admits, document, &admits, e) : STATUS_OK;
    return status || admits ? status : filter_refuse(filter, e);
}

enum status collection_has(struct collection *collection, const struct filter *filter,
                           const struct collection_document *document, bool *has, struct error *e) {
    return collection_has_all(collection, &(struct collection_asked){filter, &document, 1}, has, e);
}

enum status collection_put(struct collection *collection, const struct filter *filter,
                           const struct collection_document *document, const float *vectors,
                           enum change_effect *effect, struct error *e) {
    struct document_put put = {.document = document, .vectors = vectors};
    collection_put_all(collection, filter, &put, 1);
    *effect = put.effect;
    if (put.status) *e = put.error;
    return put.status;
}

/* Those that would not be put are not there: their owner could have put none such. */
enum status collection_has_all(struct collection *collection, const struct collection_asked *asked,
                               bool *has, struct error *e) {
    struct resolved resolved;
    int n = asked->n;
    const struct collection_document **documents =
        xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    enum status status = resolve(collection, asked, &resolved, e);
    for (int i = 0; i < n; i++) documents[i] = &resolved.documents[i];
    if (status == STATUS_OK) status = collection->ops->has_all(collection, documents, n, has, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct error refused;
        has[i] = has[i] && collection_check_put(asked->filter, documents[i], &refused) == STATUS_OK;
    }
    resolved_free(&resolved);
    free(documents);
    return status;
}

void collection_put_all(struct collection *collection, const struct filter *filter,
                        struct document_put *puts, int n) {
    const struct collection_document **documents =
        xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    struct resolved resolved;
    struct error e;
    for (int i = 0; i < n; i++) documents[i] = puts[i].document;
    enum status status =
        resolve(collection, &(struct collection_asked){filter, documents, n}, &resolved, &e);
    for (int i = 0; i < n; i++) {
        puts[i].document = &resolved.documents[i];
        puts[i].effect = CHANGE_NOTHING;
        puts[i].status = status;
        if (status) puts[i].error = e;
    }
    if (status == STATUS_OK) collection->ops->put_all(collection, filter, puts, n);
    for (int i = 0; i < n; i++) puts[i].document = documents[i];
    resolved_free(&resolved);
    free(documents);
}

enum status collection_delete(struct collection *collection, const struct filter *filter,
                              const char *id, struct error *e) {
    char *own = scope_id(filter, id);
    enum status status =
        own ? collection->ops->remove(collection, filter, own, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = collection->ops->remove(collection, filter, id, e);
    free(own);
    return status;
}
