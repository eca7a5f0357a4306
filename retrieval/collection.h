/* retrieval/collection.h: documents that are searched and changed, wherever they lie. A kind of
 * collection fills in the table of operations: a folder (retrieval/store/store.h), Milvus
 * (retrieval/milvus/milvus_collection.h); retrieval/open/collection_open.h opens either by its
 * name. All else asks through this; what has to do with ranking and with the ids of tenants stands
 * above the table, once. */
#pragma once

#include "config/base/buffer.h"
#include "retrieval/embedder.h"
#include "retrieval/snapshot.h"

/* The facts that a collection is made with. */
struct collection_options {
    int chunk_length;
    enum chunk_cut cut;
    int context, overlap; /* as those of struct collection_info */
    int32_t eod;
    int dim;
    uint64_t embedder_hash, tokenizer_hash;
    const char *query_prompt, *document_prompt; /* the embedder's; NULL: "" */
    const char *embedder,
        *tokenizer; /* where they lie, for programs that are given nothing but the collection */
    const char *index_factory;     /* NULL: by size */
    bool sparse;                   /* chunks have sparse weights: the embedder's texts do */
    struct picture_space pictures; /* n and index are not read: the index is chosen by size */
    bool locked;                   /* the caller holds generation_lock */
};
/* To make another collection by the same embedder and tokenizer; it points into info. Its index is
 * chosen by size. */
struct collection_options collection_options_of(const struct collection_info *info);
/* Whether documents can be put as they are from a collection with these options: embedders,
 * prompts, tokenizer and chunks are the same. */
bool collection_is_made_so(const struct collection_info *info,
                           const struct collection_options *options);

/* Whether the collection was built with this embedder and its prompts; and with this tokenizer and
 * chunk length, which only models need that read its tokens. STATUS_INVALID says what differs. */
enum status collection_match_embedder(const struct collection_info *info,
                                      const struct embedder *embedder, struct error *e);
/* The same of the pictures' own embedder; NULL: nobody has one. */
enum status collection_match_picture_embedder(const struct collection_info *info,
                                              const struct embedder *embedder, struct error *e);
enum status collection_match_tokens(const struct collection_info *info, uint64_t tokenizer_hash,
                                    int chunk_length, struct error *e);
/* A hash of all that a vector depends on beside its text, as the collection and as the embedder has
 * it; never 0. Vectors of two marks do not mix. */
uint64_t collection_vector_mark(const struct collection_info *info);
uint64_t embedder_vector_mark(const struct embedder *embedder);

/* Where embedders come from, for a program that goes on when the collection turns to vectors of
 * another one. */
struct embedder_source {
    /* Opens the one that a generation was made with, which is slow. A failure leaves the collection
     * in the state before. */
    enum status (*open)(void *context, const struct collection_info *info,
                        struct held_embedder **out, struct error *e);
    void *context;
};

/* Vectors whose nearest chunks are sought. */
struct nearest_query {
    const float *vectors; /* [n, dim], of pictures [n, pictures.dim] */
    int n, k;
    bool pictures; /* among the vectors that pictures have of their own embedder; found are their
                      first chunks */
    bool rereads;  /* snapshot_vectors will be asked of what is found */
    struct filter *filter; /* documents that may be found; NULL: all */
    const struct text_span
        *excluded; /* [n_excluded] documents, by path or id, that need not be found */
    int n_excluded;
};
enum { FOUND_NONE = -1, FOUND_GONE = -2 };
struct nearest_found {
    int64_t
        *ids; /* [n, k] chunks, best first; FOUND_GONE: one went meanwhile, FOUND_NONE: no more */
    float *similarities;       /* [n, k] */
    struct snapshot *snapshot; /* held for the caller: what has the chunks */
};

struct word_demands; /* retrieval/words/word_demands.h */

/* A text whose words are sought. */
struct word_query {
    struct text_span text;
    const struct word_demands *demands; /* in place of the text; NULL: none */
    struct filter *filter;              /* NULL: all documents */
    int k;
    const atomic_bool *cancelled; /* true: nobody waits for it any more; NULL: somebody does */
};
/* Chunks that share words with it, best first. */
struct word_found {
    int64_t *ids;  /* [k] by BM25; FOUND_NONE: no more */
    float *shares; /* [k] the weight of the text's words that each has, of all words' weight: those
                      that no chunk has count most, and common ones nothing */
};

/* Sparse weights of a text whose ids are sought in chunks. */
struct sparse_query {
    struct sparse_row weights; /* without faults */
    struct filter *filter;     /* NULL: all documents */
    int k;
    const atomic_bool *cancelled; /* as that of a word_query */
};
/* Chunks that share ids with it, best first. */
struct sparse_found {
    int64_t *ids;  /* [k]; FOUND_NONE: no more */
    float *scores; /* [k] sparse_row_multiply */
};

/* A document that was looked for; zeroed: none. */
struct collection_found {
    struct stored_document document;
    struct snapshot *snapshot; /* held: the document lives as long */
};
static inline void collection_found_release(struct collection_found *found) {
    snapshot_release(found->snapshot);
}

/* Documents that the filter allows, behind the one of the id `after` (NULL: all). text.text may be
 * NULL: then only the size of a text and its hash are at hand. STATUS_NOT_FOUND where a folder has
 * no document `after`; STATUS_CANCELLED once a walk over a folder is late. */
struct collection_walk {
    const struct filter *filter;
    const char *after;
    int n_wanted; /* documents after which the walk will be ended, about; 0: not known */
    const struct filter *narrow; /* documents that it refuses are left out; NULL: none */
    double deadline;             /* of time_now, after which the walk is of no use; 0: none */
    struct snapshot *
        snapshot; /* of the collection: what is walked over, where its kind can; NULL: the newest */
    document_taker *take;
    void *context;
};

/* How much has changed since the generation of a folder was written. */
struct collection_changes {
    int64_t n_documents, n_chunks; /* of the log, those that are not there any more included */
    int64_t n_deleted, n_deleted_chunks; /* of the generation */
    uint64_t log_bytes;
    bool damaged;         /* the log has changes that cannot be read */
    int64_t n_words;      /* different words of the generation */
    uint64_t words_bytes; /* of their file */
    int64_t n_sparse;     /* sparse weights of the generation; 0: it has none */
};

struct collection {
    const struct collection_ops *ops;
};

/* Ids are those that documents are stored under. Any thread. */
struct collection_ops {
    bool remote; /* another machine is asked: a call may wait, and many documents in a call are
                    cheaper */
    void (*close)(struct collection *collection);
    struct snapshot *(*hold)(struct collection *collection);
    enum status (*follow)(struct collection *collection, struct error *e);
    /* Looking. *out is zeroed; on failure too its lists are freed by the caller, and it has no
     * snapshot. */
    enum status (*search)(struct collection *collection, struct snapshot *snapshot,
                          const struct nearest_query *query, struct nearest_found *out,
                          struct error *e);
    /* *found has room for k. */
    enum status (*search_words)(struct collection *collection, struct snapshot *snapshot,
                                const struct word_query *query, struct word_found *found,
                                struct error *e);
    /* The same by sparse weights, of a snapshot that is sparse; NULL: none is. */
    enum status (*search_sparse)(struct collection *collection, struct snapshot *snapshot,
                                 const struct sparse_query *query, struct sparse_found *found,
                                 struct error *e);
    /* Whether the words of the snapshot are made, or soon will be; NULL: they need not be. */
    bool (*has_words)(struct collection *collection, const struct snapshot *snapshot);
    /* STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. */
    enum status (*find)(struct collection *collection, const struct filter *filter, const char *id,
                        struct collection_found *out, struct error *e);
    /* All that the filter allows; those that `narrow` refuses may be left out. Where `after` is not
     * NULL, the walk begins behind it where `ordered` is, else no later than at it. */
    enum status (*walk)(struct collection *collection,
                        const struct collection_walk *collection_walk, struct error *e);
    bool ordered; /* a walk is in the order of ids' hashes, and can begin behind any */
    /* Of all; NULL: the newest snapshot knows. */
    enum status (*count)(struct collection *collection, int64_t *n_documents, int64_t *n_chunks,
                         struct error *e);
    enum status (*shows_all)(struct collection *collection, const struct filter *filter,
                             const char *const *ids, int n, bool *shows, struct error *e);
    enum status (*has_all)(struct collection *collection,
                           const struct collection_document *const *documents, int n, bool *has,
                           struct error *e);
    /* Changing: each document has its own effect, status and error. CHANGE_REFUSED and
     * STATUS_INVALID where the filter does not allow the document, or the one that it would
     * replace. */
    void (*put_all)(struct collection *collection, const struct filter *filter,
                    struct document_put *puts, int n);
    enum status (*remove)(struct collection *collection, const struct filter *filter,
                          const char *id, struct error *e);
    /* collection_list_gone; NULL: changes are not noticed. */
    bool (*list_gone)(struct collection *collection, int64_t *position, struct buffer *ids);
    /* A folder alone does these; NULL elsewhere. */
    void (*follow_embedders)(struct collection *collection, const struct embedder_source *source,
                             struct held_embedder *first);
    enum status (*move)(struct collection *collection, const char *device, struct error *e);
    struct collection_changes (*changes)(struct collection *collection);
    enum status (*compact)(struct collection *collection, const atomic_bool *cancelled,
                           struct error *e);
};

/* Snapshots, documents and hits that are held outlive it. NULL: nothing. */
static inline void collection_close(struct collection *collection) {
    if (collection) collection->ops->close(collection);
}
/* Whether another machine is asked: a call may wait for it, and many documents in a call are
 * cheaper. */
static inline bool collection_is_remote(const struct collection *collection) {
    return collection->ops->remote;
}
/* The newest snapshot, held for the caller. Asks nobody. */
static inline struct snapshot *collection_hold(struct collection *collection) {
    return collection->ops->hold(collection);
}
/* Looks for what other programs have done: another generation of a folder, other counts in Milvus.
 */
static inline enum status collection_follow(struct collection *collection, struct error *e) {
    return collection->ops->follow(collection, e);
}
/* From now on each snapshot names the embedder of its vectors: `first`, which is that of the newest
 * one, and whose hold is taken over, or one of the source. A generation whose embedder the source
 * does not open is not turned to: searches go on as before, changes are refused with its words, and
 * after a minute it is asked again. Nothing in Milvus, whose vectors stay those of one embedder.
 * Before the collection is shared. */
static inline void collection_follow_embedders(struct collection *collection,
                                               const struct embedder_source *source,
                                               struct held_embedder *first) {
    if (collection->ops->follow_embedders)
        collection->ops->follow_embedders(collection, source, first);
    else
        embedder_release(first);
}
/* Where the index searches, now and later (index_move); before it is shared. Milvus searches where
 * it does. */
static inline enum status collection_move(struct collection *collection, const char *device,
                                          struct error *e) {
    return collection->ops->move ? collection->ops->move(collection, device, e) : STATUS_OK;
}
/* STATUS_UNSUPPORTED, as below, where the collection is no folder. */
enum status collection_count_changes(struct collection *collection, struct collection_changes *out,
                                     struct error *e);
/* store_compact. */
enum status collection_compact(struct collection *collection, const atomic_bool *cancelled,
                               struct error *e);

/* Appends to `ids` the collection_hash_id, uint64_t each, of all documents that were deleted or
 * replaced by another content since *position, which moves on to the newest snapshot; from 0 on:
 * since the collection was opened. An id may come more than once. False: so many went that they are
 * not remembered one by one, or the collection has turned to what another program has written; then
 * any document may have gone. In Milvus nothing is noticed: true, and no ids. */
static inline bool collection_list_gone(struct collection *collection, int64_t *position,
                                        struct buffer *ids) {
    return collection->ops->list_gone == NULL ||
           collection->ops->list_gone(collection, position, ids);
}
/* By a secret of this process, so that nobody can choose ids that meet. */
uint64_t collection_hash_id(const char *id);

/* Ids, here and below, are those that clients of the filter say and are shown (filter/scope.h): a
 * document that is stored under the filter's own id, else one that is stored under the id as it is,
 * where the filter allows it. So nobody meets documents that it does not see, whatever ids these
 * have.
 *
 * STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. *out is
 * zeroed then. */
enum status collection_find(struct collection *collection, const struct filter *filter,
                            const char *id, struct collection_found *out, struct error *e);
enum status collection_walk(struct collection *collection, const struct collection_walk *walk,
                            struct error *e);
/* Documents and chunks that the filter allows. */
enum status collection_count(struct collection *collection, const struct filter *filter,
                             int64_t *n_documents, int64_t *n_chunks, struct error *e);

/* Whether clients of the filter may put the document, filter_admits: STATUS_INVALID. */
enum status collection_check_put(const struct filter *filter,
                                 const struct collection_document *document, struct error *e);
/* Whether the document is there and has this content: putting it would change nothing. */
enum status collection_has(struct collection *collection, const struct filter *filter,
                           const struct collection_document *document, bool *has, struct error *e);
/* Adds the document under the filter's own id, or replaces the one of its id that is shown; the
 * same content again changes nothing. vectors are [chunks, dim]. On return it is acknowledged, and
 * in every later snapshot. STATUS_INVALID and CHANGE_REFUSED where the filter (NULL: none) does not
 * allow the document, or the one that it would replace. */
enum status collection_put(struct collection *collection, const struct filter *filter,
                           const struct collection_document *document, const float *vectors,
                           enum change_effect *effect, struct error *e);
/* Of several documents at a time: fewer calls of Milvus. */
struct collection_asked {
    const struct filter *filter;
    const struct collection_document *const *documents; /* [n] */
    int n;
};
enum status collection_has_all(struct collection *collection, const struct collection_asked *asked,
                               bool *has, struct error *e);
/* Each has its own effect, status and error. */
void collection_put_all(struct collection *collection, const struct filter *filter,
                        struct document_put *puts, int n);
/* STATUS_NOT_FOUND, in the same words, where no document has that id and where the filter does not
 * allow it. */
enum status collection_delete(struct collection *collection, const struct filter *filter,
                              const char *id, struct error *e);
