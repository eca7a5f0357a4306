/* retrieval/collection.c: see collection.h. */
#include "retrieval/collection.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/scope.h"
#include "retrieval/milvus/client/address.h"
#include "retrieval/retriever_local.h"
#include "retrieval/retriever_milvus.h"

/* One of them is there. */
struct collection {
    struct store *store;
    struct milvus_collection *remote;
};

bool collection_is_remote(const char *name) { return milvus_address_is(name); }

enum status collection_open(struct collection **out, const char *name, const struct milvus_settings *s,
                            struct error *e) {
    struct collection *l = xcalloc(1, sizeof *l);
    enum status status =
        collection_is_remote(name) ? milvus_collection_open(&l->remote, name, s, e) : store_open(&l->store, name, e);
    if (status)
        free(l);
    else
        *out = l;
    return status;
}

void collection_close(struct collection *l) {
    if (l == NULL) return;
    store_close(l->store);
    milvus_collection_close(l->remote);
    free(l);
}

struct store *collection_store(struct collection *l) {
    return l->store;
}
struct milvus_collection *collection_milvus(struct collection *l) {
    return l->remote;
}

enum status collection_retriever(struct collection *l, struct collection_embedders embedders, int max_k,
                                 struct retriever **out, struct error *e) {
    if (l->store) return retriever_local_open(out, l->store, embedders.texts, embedders.pictures, max_k, e);
    if (collection_match_picture_embedder(milvus_info(l->remote), embedders.pictures, e)) return e->status;
    return retriever_milvus_open(out, l->remote, embedders.texts, max_k, e);
}

struct snapshot *collection_hold(struct collection *l) {
    return l->remote ? milvus_hold(l->remote) : store_hold(l->store);
}

const struct collection_info *collection_info(struct collection *l, const struct snapshot *snapshot) {
    return l->remote ? milvus_info(l->remote) : snapshot_info(snapshot);
}

int32_t collection_max_token(struct collection *l, const struct snapshot *snapshot) {
    return l->remote ? milvus_info(l->remote)->max_token : snapshot_max_token(snapshot);
}

enum status collection_follow(struct collection *l, struct error *e) {
    return l->remote ? milvus_follow(l->remote, e) : store_follow(l->store, e);
}

void collection_found_release(struct collection_found *f) {
    snapshot_release(f->snapshot);
    milvus_document_release(f->held);
    *f = (struct collection_found){0};
}

/* Ids. */

/* Of each id whether the filter shows a document that is stored under it. */
static enum status ask_shown(struct collection *l, const struct filter *filter, const char *const *ids, int n,
                             bool *shows, struct error *e) {
    if (l->remote) return milvus_shows_all(l->remote, filter, ids, n, shows, e);
    for (int i = 0; i < n; i++) shows[i] = store_shows(l->store, filter, ids[i]);
    return STATUS_OK;
}

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

static enum status choose_ids(struct collection *l, const struct filter *filter, struct resolved *r, struct error *e) {
    size_t n = (size_t)r->n;
    const char **plain = xcalloc(n, sizeof(char *));
    bool *shows_own = xcalloc(n, sizeof *shows_own), *shows_plain = xcalloc(n, sizeof *shows_plain);
    for (int i = 0; i < r->n; i++) {
        plain[i] = r->documents[i].id;
        r->own[i] = scope_id(filter, plain[i]);
    }
    enum status status = ask_shown(l, filter, (const char *const *)r->own, r->n, shows_own, e);
    if (status == STATUS_OK) status = ask_shown(l, filter, plain, r->n, shows_plain, e);
    for (int i = 0; i < r->n && status == STATUS_OK; i++)
        if (shows_own[i] || !shows_plain[i]) r->documents[i].id = r->own[i];
    free(plain);
    free(shows_own);
    free(shows_plain);
    return status;
}

/* Of asked->documents. Free *out, on failure too. */
static enum status resolve(struct collection *l, const struct collection_asked *asked, struct resolved *out,
                           struct error *e) {
    size_t n = (size_t)asked->n;
    *out = (struct resolved){
        .documents = xcalloc(n + 1, sizeof *out->documents), .own = xcalloc(n + 1, sizeof(char *)), .n = asked->n};
    for (size_t i = 0; i < n; i++) out->documents[i] = *asked->documents[i];
    return asked->filter && n > 0 ? choose_ids(l, asked->filter, out, e) : STATUS_OK;
}

/* Looking. */

static enum status find_stored(struct collection *l, const struct filter *filter, const char *id,
                               struct collection_found *out, struct error *e) {
    if (l->store) return store_find_allowed(l->store, filter, id, &out->snapshot, &out->document, e);
    enum status status = milvus_find(l->remote, filter, id, &out->held, e);
    if (status == STATUS_OK) out->document = milvus_document_stored(out->held);
    return status;
}

enum status collection_find(struct collection *l, const struct filter *filter, const char *id,
                            struct collection_found *out, struct error *e) {
    char *own = filter ? scope_id(filter, id) : NULL;
    *out = (struct collection_found){0};
    enum status status = own ? find_stored(l, filter, own, out, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = find_stored(l, filter, id, out, e);
    if (status == STATUS_OK) out->document.id = scope_show(filter, out->document.id);
    free(own);
    return status;
}

/* A walk, which in a folder begins behind a document. */
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

static enum status walk_folder(struct store *l, struct collection_stroll *w, struct error *e) {
    struct snapshot *snapshot = store_hold(l);
    enum status status = store_walk(snapshot, take_allowed, w, e);
    snapshot_release(snapshot);
    if (status || w->after == NULL) return status;
    return error_set(e, STATUS_NOT_FOUND, "no document has the id that the list is to begin behind");
}

static enum status walk_remote(struct milvus_collection *r, struct collection_stroll *w, struct error *e) {
    struct milvus_walk walk = {.filter = w->asked->filter,
                               .narrow = w->asked->narrow,
                               .after = w->after,
                               .n_wanted = w->asked->n_wanted,
                               .take = take_allowed,
                               .context = w};
    w->after = NULL;
    return milvus_walk(r, &walk, e);
}

enum status collection_walk(struct collection *l, const struct collection_walk *w, struct error *e) {
    struct collection_stroll stroll = {.asked = w, .after = w->after};
    char *own = w->filter && w->after ? scope_id(w->filter, w->after) : NULL;
    bool shows_own = false, shows_plain = false;
    enum status status = STATUS_OK;
    if (own) status = ask_shown(l, w->filter, (const char *const[]){own}, 1, &shows_own, e);
    if (own && status == STATUS_OK) status = ask_shown(l, w->filter, &w->after, 1, &shows_plain, e);
    if (own && (shows_own || !shows_plain)) stroll.after = own;
    if (status == STATUS_OK)
        status = l->remote ? walk_remote(l->remote, &stroll, e) : walk_folder(l->store, &stroll, e);
    free(own);
    return status;
}

enum status collection_count(struct collection *l, struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                             struct error *e) {
    if (l->remote) return milvus_count(l->remote, filter, n_documents, n_chunks, e);
    struct snapshot *snapshot = store_hold(l->store);
    store_count(snapshot, filter, n_documents, n_chunks);
    snapshot_release(snapshot);
    return STATUS_OK;
}

/* Changing. */

enum status collection_check_put(const struct filter *filter, const struct collection_document *d, struct error *e) {
    struct buffer facts = {0};
    if (filter == NULL) return STATUS_OK;
    enum status status = facts_append(&facts, d->metadata, e);
    struct filter_subject subject = {d->id, d->path, {facts.data, facts.size}};
    if (status == STATUS_OK && !filter_admits(filter, &subject)) status = filter_refuse(filter, e);
    buffer_free(&facts);
    return status;
}

enum status collection_has(struct collection *l, const struct filter *filter, const struct collection_document *d,
                           bool *has, struct error *e) {
    return collection_has_all(l, &(struct collection_asked){filter, &d, 1}, has, e);
}

enum status collection_put(struct collection *l, const struct filter *filter, const struct collection_document *d,
                           const float *vectors, enum change_effect *effect, struct error *e) {
    struct document_put put = {.document = d, .vectors = vectors};
    collection_put_all(l, filter, &put, 1);
    *effect = put.effect;
    if (put.status) *e = put.error;
    return put.status;
}

/* Those that would not be put are not there: their owner could have put none such. */
enum status collection_has_all(struct collection *l, const struct collection_asked *asked, bool *has, struct error *e) {
    struct resolved r;
    int n = asked->n;
    const struct collection_document **documents = xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    enum status status = resolve(l, asked, &r, e);
    for (int i = 0; i < n; i++) documents[i] = &r.documents[i];
    if (status == STATUS_OK && l->remote) status = milvus_has_all(l->remote, documents, n, has, e);
    for (int i = 0; i < n && status == STATUS_OK; i++) {
        struct error refused;
        if (l->store) has[i] = store_has(l->store, documents[i]);
        has[i] = has[i] && collection_check_put(asked->filter, documents[i], &refused) == STATUS_OK;
    }
    resolved_free(&r);
    free(documents);
    return status;
}

static void put_stored(struct collection *l, const struct filter *filter, struct document_put *puts, int n) {
    if (l->remote) {
        milvus_put_all(l->remote, filter, puts, n);
        return;
    }
    for (int i = 0; i < n; i++)
        puts[i].status =
            store_put_allowed(l->store, filter, puts[i].document, puts[i].vectors, &puts[i].effect, &puts[i].error);
}

void collection_put_all(struct collection *l, const struct filter *filter, struct document_put *puts, int n) {
    const struct collection_document **documents = xcalloc((size_t)n + 1, sizeof(struct collection_document *));
    struct resolved r;
    struct error e;
    for (int i = 0; i < n; i++) documents[i] = puts[i].document;
    enum status status = resolve(l, &(struct collection_asked){filter, documents, n}, &r, &e);
    for (int i = 0; i < n; i++) {
        puts[i].document = &r.documents[i];
        puts[i].effect = CHANGE_NOTHING;
        puts[i].status = status;
        if (status) puts[i].error = e;
    }
    if (status == STATUS_OK) put_stored(l, filter, puts, n);
    for (int i = 0; i < n; i++) puts[i].document = documents[i];
    resolved_free(&r);
    free(documents);
}

static enum status delete_stored(struct collection *l, const struct filter *filter, const char *id, struct error *e) {
    return l->remote ? milvus_delete(l->remote, filter, id, e) : store_delete_allowed(l->store, filter, id, e);
}

enum status collection_delete(struct collection *l, const struct filter *filter, const char *id, struct error *e) {
    char *own = filter ? scope_id(filter, id) : NULL;
    enum status status = own ? delete_stored(l, filter, own, e) : STATUS_NOT_FOUND;
    if (status == STATUS_NOT_FOUND) status = delete_stored(l, filter, id, e);
    free(own);
    return status;
}
