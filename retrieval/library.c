/* retrieval/library.c: see library.h. */
#include "retrieval/library.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/milvus/address.h"
#include "retrieval/retriever_local.h"
#include "retrieval/retriever_milvus.h"

/* One of them is there. */
struct library {
    struct living *living;
    struct remote *remote;
};

bool library_is_remote(const char *name) { return milvus_address_is(name); }

enum status library_open(struct library **out, const char *name, const struct milvus_settings *s, struct error *e) {
    struct library *l = xcalloc(1, sizeof *l);
    enum status status =
        library_is_remote(name) ? remote_open(&l->remote, name, s, e) : living_open(&l->living, name, e);
    if (status)
        free(l);
    else
        *out = l;
    return status;
}

void library_close(struct library *l) {
    if (l == NULL) return;
    living_close(l->living);
    remote_close(l->remote);
    free(l);
}

struct living *library_living(struct library *l) {
    return l->living;
}
struct remote *library_remote(struct library *l) {
    return l->remote;
}

enum status library_retriever(struct library *l, struct library_embedders embedders, int max_k, struct retriever **out,
                              struct error *e) {
    if (l->living) return retriever_local_open(out, l->living, embedders.texts, embedders.pictures, max_k, e);
    if (collection_match_picture_embedder(remote_info(l->remote), embedders.pictures, e)) return e->status;
    return retriever_milvus_open(out, l->remote, embedders.texts, max_k, e);
}

struct snapshot *library_hold(struct library *l) {
    return l->remote ? remote_hold(l->remote) : living_hold(l->living);
}

const struct collection_info *library_info(struct library *l, const struct snapshot *view) {
    return l->remote ? remote_info(l->remote) : view_info(view);
}

int32_t library_max_token(struct library *l, const struct snapshot *view) {
    return l->remote ? remote_info(l->remote)->max_token : view_max_token(view);
}

enum status library_follow(struct library *l, struct error *e) {
    return l->remote ? remote_follow(l->remote, e) : living_follow(l->living, e);
}

void library_found_release(struct library_found *f) {
    snapshot_release(f->view);
    remote_document_release(f->held);
    *f = (struct library_found){0};
}

enum status library_find(struct library *l, const struct filter *filter, const char *id, struct library_found *out,
                         struct error *e) {
    *out = (struct library_found){0};
    if (l->living) return living_find_allowed(l->living, filter, id, &out->view, &out->document, e);
    enum status status = remote_find(l->remote, filter, id, &out->held, e);
    if (status == STATUS_OK) out->document = remote_document_stored(out->held);
    return status;
}

/* A walk over a folder, which begins behind a document. */
struct folder_walk {
    const struct library_walk *asked;
    bool begun;
};

static enum status take_from_folder(void *context, const struct stored_document *d, struct error *e) {
    struct folder_walk *w = context;
    if (w->begun) return document_is_allowed(w->asked->filter, d) ? w->asked->take(w->asked->context, d, e) : STATUS_OK;
    w->begun = document_is_allowed(w->asked->filter, d) && strcmp(d->id, w->asked->after) == 0;
    return STATUS_OK;
}

static enum status walk_folder(struct living *l, const struct library_walk *w, struct error *e) {
    struct folder_walk walk = {.asked = w, .begun = w->after == NULL};
    struct snapshot *view = living_hold(l);
    enum status status = view_walk(view, take_from_folder, &walk, e);
    snapshot_release(view);
    if (status || walk.begun) return status;
    return error_set(e, STATUS_NOT_FOUND, "no document has the id that the list is to begin behind");
}

enum status library_walk(struct library *l, const struct library_walk *w, struct error *e) {
    struct remote_walk walk = {.filter = w->filter,
                               .narrow = w->narrow,
                               .after = w->after,
                               .n_wanted = w->n_wanted,
                               .take = w->take,
                               .context = w->context};
    return l->remote ? remote_walk(l->remote, &walk, e) : walk_folder(l->living, w, e);
}

enum status library_count(struct library *l, struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                          struct error *e) {
    if (l->remote) return remote_count(l->remote, filter, n_documents, n_chunks, e);
    struct snapshot *view = living_hold(l->living);
    view_count(view, filter, n_documents, n_chunks);
    snapshot_release(view);
    return STATUS_OK;
}

enum status library_has(struct library *l, const struct collection_document *d, bool *has, struct error *e) {
    return library_has_all(l, &d, 1, has, e);
}

enum status library_put(struct library *l, const struct filter *filter, const struct collection_document *d,
                        const float *vectors, enum change_effect *effect, struct error *e) {
    struct document_put put = {.document = d, .vectors = vectors};
    library_put_all(l, filter, &put, 1);
    *effect = put.effect;
    if (put.status) *e = put.error;
    return put.status;
}

enum status library_has_all(struct library *l, const struct collection_document *const *documents, int n, bool *has,
                            struct error *e) {
    if (l->remote) return remote_has_all(l->remote, documents, n, has, e);
    for (int i = 0; i < n; i++) has[i] = living_has(l->living, documents[i]);
    return STATUS_OK;
}

void library_put_all(struct library *l, const struct filter *filter, struct document_put *puts, int n) {
    if (l->remote) {
        remote_put_all(l->remote, filter, puts, n);
        return;
    }
    for (int i = 0; i < n; i++)
        puts[i].status =
            living_put_allowed(l->living, filter, puts[i].document, puts[i].vectors, &puts[i].effect, &puts[i].error);
}

enum status library_delete(struct library *l, const struct filter *filter, const char *id, struct error *e) {
    return l->remote ? remote_delete(l->remote, filter, id, e) : living_delete_allowed(l->living, filter, id, e);
}
