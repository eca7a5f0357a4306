/* retrieval/collection.c: what collections of all kinds do alike: the ids of tenants, and who may change what. See
 * collection.h. */
#include "retrieval/collection.h"

#include <stdlib.h>

#include "retrieval/filter/scope.h"

static enum status refuse_folder_work(struct error *e) {
    return error_set(e, STATUS_UNSUPPORTED,
                     "the collection is in no folder: it has no log of changes and nothing to compact");
}

enum status collection_count_changes(struct collection *c, struct collection_changes *out, struct error *e) {
    if (c->ops->changes == NULL) return refuse_folder_work(e);
    *out = c->ops->changes(c);
    return STATUS_OK;
}

enum status collection_compact(struct collection *c, const atomic_bool *cancelled, struct error *e) {
    return c->ops->compact ? c->ops->compact(c, cancelled, e) : refuse_folder_work(e);
}

/* Ids. */

/* Documents with the ids that they are stored under. */
struct resolved {
    struct collection_document *documents; /* [n] */
    char **own;                            /* [n] ids in the filter's scope */
    int n;
};

static void resolved_free(struct resolved *r) {
    for (int i = 0; i < r->n; i++) free(r->own[i]);
    free(r->own);
    free(r->documents);
}

static enum status choose_ids(struct collection *c, const struct filter *filter, struct resolved *r, struct error *e) {
    size_t n = (size_t)r->n;
    const char **plain = xcalloc(n, sizeof(char *));
    bool *shows_own = xcalloc(n, sizeof *shows_own), *shows_plain = xcalloc(n, sizeof *shows_plain);
    for (int i = 0; i < r->n; i++) {
        plain[i] = r->documents[i].id;
        r->own[i] = scope_id(filter, plain[i]);
    }
    enum status status = c->ops->shows_all(c, filter, (const char *const *)r->own, r->n, shows_own, e);
    if (status == STATUS_OK) status = c->ops->shows_all(c, filter, plain, r->n, shows_plain, e);
    for (int i = 0; i < r->n && status == STATUS_OK; i++)
        if (shows_own[i] || !shows_plain[i]) r->documents[i].id = r->own[i];
    free(plain);
    free(shows_own);
    free(shows_plain);
    return status;
}

/* Of asked->documents. Free *out, on failure too. */
static enum status resolve(struct collection *c, const struct collection_asked *asked, struct resolved *out,
                           struct error *e) {
    size_t n = (size_t)asked->n;
    *out = (struct resolved){
        .documents = xcalloc(n + 1, sizeof *out->documents), .own = xcalloc(n + 1, sizeof(char *)), .n = asked->n};
    for (size_t i = 0; i < n; i++) out->documents[i] = *asked->documents[i];
    return asked->filter && n > 0 ? choose_ids(c, asked->filter, out, e) : STATUS_OK;
}

/* Looking. */

enum status collection_find(struct collection *c, const struct filter *filter, const char *id,
                            struct collection_found *out, struct error *e) {
    char *own = filter ? scope_id(filter, id) : NULL;
    *out = (struct collection_found){0};
    enum status status = own ? c->ops->find(c, filter, own, out, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = c->ops->find(c, filter, id, out, e);
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
static bool is_late(struct collection_stroll *w) {
    w->n++;
    return w->asked->deadline > 0 && w->n % 16 == 0 && time_now() >= w->asked->deadline;
}

/* A document that is not allowed is as if it were not there. */
static enum status take_allowed(void *context, const struct stored_document *d, struct error *e) {
    struct collection_stroll *w = context;
    const struct collection_walk *asked = w->asked;
    if (is_late(w)) return error_set(e, STATUS_CANCELLED, "the documents were not listed in time");
    if (!document_is_allowed(asked->filter, d)) return STATUS_OK;
    if (w->after) {
        if (strcmp(d->id, w->after) == 0) w->after = NULL;
        return STATUS_OK;
    }
    if (!document_is_allowed(asked->narrow, d)) return STATUS_OK;
    struct stored_document shown = *d;
    shown.id = scope_show(asked->filter, d->id);
    return asked->take(asked->context, &shown, e);
}

/* `after` is the id that the document is stored under. */
static enum status walk_behind(struct collection *c, const struct collection_walk *asked, const char *after,
                               struct error *e) {
    struct collection_stroll stroll = {.asked = asked, .after = c->ops->ordered ? NULL : after};
    struct collection_walk walk = *asked;
    walk.after = after;
    walk.take = take_allowed;
    walk.context = &stroll;
    enum status status = c->ops->walk(c, &walk, e);
    if (status || stroll.after == NULL) return status;
    return error_set(e, STATUS_NOT_FOUND, "no document has the id that the list is to begin behind");
}

enum status collection_walk(struct collection *c, const struct collection_walk *w, struct error *e) {
    struct collection_document first = {.id = w->after};
    struct collection_asked asked = {w->filter, (const struct collection_document *const[]){&first}, w->after != NULL};
    struct resolved r;
    enum status status = resolve(c, &asked, &r, e);
    if (status == STATUS_OK) status = walk_behind(c, w, w->after ? r.documents[0].id : NULL, e);
    resolved_free(&r);
    return status;
}

/* Counting. */

struct collection_counts {
    const struct filter *filter;
    int64_t n_documents, n_chunks;
};

static enum status count_document(void *context, const struct stored_document *d, struct error *e) {
    struct collection_counts *counts = context;
    (void)e;
    if (!document_is_allowed(counts->filter, d)) return STATUS_OK;
    counts->n_documents++;
    counts->n_chunks += d->n_chunks;
    return STATUS_OK;
}

static enum status count_all(struct collection *c, int64_t *n_documents, int64_t *n_chunks, struct error *e) {
    if (c->ops->count) return c->ops->count(c, n_documents, n_chunks, e);
    struct snapshot *newest = collection_hold(c);
    *n_documents = newest->n_documents;
    *n_chunks = newest->n_chunks;
    snapshot_release(newest);
    return STATUS_OK;
}

enum status collection_count(struct collection *c, const struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                             struct error *e) {
    struct collection_counts counts = {.filter = filter};
    struct collection_walk walk = {.filter = filter, .take = count_document, .context = &counts};
    if (filter == NULL) return count_all(c, n_documents, n_chunks, e);
    enum status status = c->ops->walk(c, &walk, e);
    *n_documents = counts.n_documents;
    *n_chunks = counts.n_chunks;
    return status;
}

/* Changing. */

enum status collection_check_put(const struct filter *filter, const struct collection_document *d, struct error *e) {
    bool admits = true;
    enum status status = filter ? document_ask_filter(filter, filter_admits, d, &admits, e) : STATUS_OK;
    return status || admits ? status : filter_refuse(filter, e);
}

enum status collection_has(struct collection *c, const struct filter *filter, const struct collection_document *d,
                           bool *has, struct error *e) {
    return collection_has_all(c, &(struct collection_asked){filter, &d, 1}, has, e);
}

enum status collection_put(struct collection *c, const struct filter *filter, const struct collection_document *d,
                           const float *vectors, enum change_effect *effect, struct error *e) {
    struct document_put put = {.document = d, .vectors = vectors};
    collection_put_all(c, filter, &put, 1);
    *effect = put.effect;
    if (put.status) *e = put.error;
    return put.status;
}

/* Those that would not be put are not there: their owner could have put none such. */
enum status collection_has_all(struct collection *c, const struct collection_asked *asked, bool *has, struct error *e) {
    struct resolved r;
    int n = asked->n;
    const struct collection_document **documents = xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    enum status status = resolve(c, asked, &r, e);
    for (int i = 0; i < n; i++) documents[i] = &r.documents[i];
    if (status == STATUS_OK) status = c->ops->has_all(c, documents, n, has, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct error refused;
        has[i] = has[i] && collection_check_put(asked->filter, documents[i], &refused) == STATUS_OK;
    }
    resolved_free(&r);
    free(documents);
    return status;
}

void collection_put_all(struct collection *c, const struct filter *filter, struct document_put *puts, int n) {
    const struct collection_document **documents = xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    struct resolved r;
    struct error e;
    for (int i = 0; i < n; i++) documents[i] = puts[i].document;
    enum status status = resolve(c, &(struct collection_asked){filter, documents, n}, &r, &e);
    for (int i = 0; i < n; i++) {
        puts[i].document = &r.documents[i];
        puts[i].effect = CHANGE_NOTHING;
        puts[i].status = status;
        if (status) puts[i].error = e;
    }
    if (status == STATUS_OK) c->ops->put_all(c, filter, puts, n);
    for (int i = 0; i < n; i++) puts[i].document = documents[i];
    resolved_free(&r);
    free(documents);
}

enum status collection_delete(struct collection *c, const struct filter *filter, const char *id, struct error *e) {
    char *own = filter ? scope_id(filter, id) : NULL;
    enum status status = own ? c->ops->remove(c, filter, own, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = c->ops->remove(c, filter, id, e);
    free(own);
    return status;
}
