/* retrieval/collection.h: documents that are searched and changed, wherever they lie: in a folder (store/store.h) or in
 * Milvus (milvus/remote.h). Programs that work on either ask through this; what only a folder has, they ask its own
 * functions for. */
#pragma once

#include "retrieval/milvus/milvus_collection.h"
#include "retrieval/retriever.h"
#include "retrieval/store/store.h"

struct collection;

/* Whether a name means a collection that is no folder. */
bool collection_is_remote(const char *name);
/* `name` is a folder or an address in Milvus; the settings are for the latter. */
enum status collection_open(struct collection **out, const char *name, const struct milvus_settings *s,
                            struct error *e);
/* Snapshots, documents and hits that are held outlive it. NULL: nothing. */
void collection_close(struct collection *l);
/* The one that it is; the other is NULL. */
struct store *collection_store(struct collection *l);
struct milvus_collection *collection_milvus(struct collection *l);

/* The embedders that the documents were embedded with. */
struct collection_embedders {
    const struct embedder *texts;    /* and pictures, where these have no other */
    const struct embedder *pictures; /* their own; NULL: they have none */
};
/* Borrows the embedders. Refuses others than the collection's: STATUS_INVALID. */
enum status collection_retriever(struct collection *l, struct collection_embedders embedders, int max_k,
                                 struct retriever **out, struct error *e);
/* The newest snapshot, held for the caller. Asks nobody. */
struct snapshot *collection_hold(struct collection *l);
/* The facts that it was made with; they live as long as the snapshot, which is of this collection. */
const struct collection_info *collection_info(struct collection *l, const struct snapshot *snapshot);
/* The largest token id in the snapshot. */
int32_t collection_max_token(struct collection *l, const struct snapshot *snapshot);
/* Looks for what other programs have done: another generation of a folder, other counts in Milvus. */
enum status collection_follow(struct collection *l, struct error *e);

/* A document that was looked for. */
struct collection_found {
    struct stored_document document;
    struct snapshot *snapshot; /* it lives as long as these */
    struct milvus_document *held;
};
void collection_found_release(struct collection_found *f); /* of a zeroed one: nothing */
/* Ids, here and below, are those that clients of the filter say and are shown (filter/scope.h): a document that is
 * stored under the filter's own id, else one that is stored under the id as it is, where the filter allows it. So
 * nobody meets documents that it does not see, whatever ids these have.
 *
 * STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. *out is zeroed then. */
enum status collection_find(struct collection *l, const struct filter *filter, const char *id,
                            struct collection_found *out, struct error *e);
/* Documents that the filter allows, behind the one of the id `after` (NULL: all). text.text may be NULL: then only the
 * size of a text and its hash are at hand. STATUS_NOT_FOUND where a folder has no document `after`; STATUS_CANCELLED
 * once a walk over a folder is late. */
struct collection_walk {
    const struct filter *filter;
    const char *after;
    int n_wanted;                /* documents after which the walk will be ended, about; 0: not known */
    const struct filter *narrow; /* documents that it refuses are left out; NULL: none */
    double deadline;             /* of time_now, after which the walk is of no use; 0: none */
    document_taker *take;
    void *context;
};
enum status collection_walk(struct collection *l, const struct collection_walk *w, struct error *e);
/* Documents and chunks that the filter allows. */
enum status collection_count(struct collection *l, struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                             struct error *e);

/* Whether clients of the filter may put the document, filter_admits: STATUS_INVALID. */
enum status collection_check_put(const struct filter *filter, const struct collection_document *d, struct error *e);
/* As those of store.h. A document is put under the filter's own id, but where it replaces another that is shown. */
enum status collection_has(struct collection *l, const struct filter *filter, const struct collection_document *d,
                           bool *has, struct error *e);
enum status collection_put(struct collection *l, const struct filter *filter, const struct collection_document *d,
                           const float *vectors, enum change_effect *effect, struct error *e);
/* Of several documents at a time: fewer calls of Milvus. Each has its own effect, status and error. */
struct collection_asked {
    const struct filter *filter;
    const struct collection_document *const *documents; /* [n] */
    int n;
};
enum status collection_has_all(struct collection *l, const struct collection_asked *asked, bool *has, struct error *e);
void collection_put_all(struct collection *l, const struct filter *filter, struct document_put *puts, int n);
enum status collection_delete(struct collection *l, const struct filter *filter, const char *id, struct error *e);
