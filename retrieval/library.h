/* retrieval/library.h: documents that are searched and changed, wherever they lie: in a folder (store/living.h) or in
 * Milvus (milvus/remote.h). Programs that work on either ask through this; what only a folder has, they ask its own
 * functions for. */
#pragma once

#include "retrieval/milvus/remote.h"
#include "retrieval/retriever.h"
#include "retrieval/store/living.h"

struct library;

/* Whether a name means a collection that is no folder. */
bool library_is_remote(const char *name);
/* `name` is a folder or an address in Milvus; the settings are for the latter. */
enum status library_open(struct library **out, const char *name, const struct milvus_settings *s, struct error *e);
/* Views, documents and hits that are held outlive it. NULL: nothing. */
void library_close(struct library *l);
/* The one that it is; the other is NULL. */
struct living *library_living(struct library *l);
struct remote *library_remote(struct library *l);

/* The embedders that the documents were embedded with. */
struct library_embedders {
    const struct embedder *texts;    /* and pictures, where these have no other */
    const struct embedder *pictures; /* their own; NULL: they have none */
};
/* Borrows the embedders. Refuses others than the collection's: STATUS_INVALID. */
enum status library_retriever(struct library *l, struct library_embedders embedders, int max_k, struct retriever **out,
                              struct error *e);
/* The newest view, held for the caller. Asks nobody. */
struct snapshot *library_hold(struct library *l);
/* The facts that it was made with; they live as long as the view, which is of this library. */
const struct collection_info *library_info(struct library *l, const struct snapshot *view);
/* The largest token id in the view. */
int32_t library_max_token(struct library *l, const struct snapshot *view);
/* Looks for what other programs have done: another generation of a folder, other counts in Milvus. */
enum status library_follow(struct library *l, struct error *e);

/* A document that was looked for. */
struct library_found {
    struct stored_document document;
    struct snapshot *view; /* it lives as long as these */
    struct remote_document *held;
};
void library_found_release(struct library_found *f); /* of a zeroed one: nothing */
/* Ids, here and below, are those that clients of the filter say and are shown (filter/scope.h): a document that is
 * stored under the filter's own id, else one that is stored under the id as it is, where the filter allows it. So
 * nobody meets documents that it does not see, whatever ids these have.
 *
 * STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. *out is zeroed then. */
enum status library_find(struct library *l, const struct filter *filter, const char *id, struct library_found *out,
                         struct error *e);
/* Documents that the filter allows, behind the one of the id `after` (NULL: all). text.text may be NULL: then only the
 * size of a text and its hash are at hand. STATUS_NOT_FOUND where a folder has no document `after`; STATUS_CANCELLED
 * once a walk over a folder is late. */
struct library_walk {
    const struct filter *filter;
    const char *after;
    int n_wanted;                /* documents after which the walk will be ended, about; 0: not known */
    const struct filter *narrow; /* documents that it refuses are left out; NULL: none */
    double deadline;             /* of time_now, after which the walk is of no use; 0: none */
    view_taker *take;
    void *context;
};
enum status library_walk(struct library *l, const struct library_walk *w, struct error *e);
/* Documents and chunks that the filter allows. */
enum status library_count(struct library *l, struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                          struct error *e);

/* Whether clients of the filter may put the document, filter_admits: STATUS_INVALID. */
enum status library_check_put(const struct filter *filter, const struct collection_document *d, struct error *e);
/* As those of living.h. A document is put under the filter's own id, but where it replaces another that is shown. */
enum status library_has(struct library *l, const struct filter *filter, const struct collection_document *d, bool *has,
                        struct error *e);
enum status library_put(struct library *l, const struct filter *filter, const struct collection_document *d,
                        const float *vectors, enum change_effect *effect, struct error *e);
/* Of several documents at a time: fewer calls of Milvus. Each has its own effect, status and error. */
struct library_asked {
    const struct filter *filter;
    const struct collection_document *const *documents; /* [n] */
    int n;
};
enum status library_has_all(struct library *l, const struct library_asked *asked, bool *has, struct error *e);
void library_put_all(struct library *l, const struct filter *filter, struct document_put *puts, int n);
enum status library_delete(struct library *l, const struct filter *filter, const char *id, struct error *e);
