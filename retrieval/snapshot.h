/* retrieval/snapshot.h: one state of a collection. It never changes, and it stays readable for as
 * long as somebody holds it, whatever newer state is opened meanwhile. A request holds one from its
 * first chunk to its last; hits hold the one that they were found in. Any thread may hold, release
 * and read. */
#pragma once

#include <stdatomic.h>
#include <string.h>

#include "retrieval/document.h"
#include "retrieval/embedder.h"

/* Where pictures have an embedder of their own: a second space of vectors, in which each picture
 * has one, at its first chunk. The chunks of its caption have vectors of the collection's embedder,
 * as all chunks do. */
struct picture_space {
    const char *embedder; /* folder, as given when built; NULL: there is none */
    uint64_t embedder_hash;
    const char *query_prompt, *document_prompt; /* the embedder's */
    int dim;
    int64_t n;                 /* pictures */
    const char *index_factory; /* of their vectors; "" where n is 0 */
};

/* The facts that a collection was made with. */
struct collection_info {
    int64_t n_documents, n_chunks, n_tokens;
    int chunk_length;
    enum chunk_cut cut;
    int context, overlap; /* tokens that are embedded before a chunk's, at most: of its title and
                             headings, and of the text before it */
    int generation;
    int32_t eod;
    int32_t max_token; /* largest id in it, eod included: a model's vocabulary must be larger */
    int dim;
    uint64_t embedder_hash, tokenizer_hash;
    const char *embedder;                       /* folder, as given when built */
    const char *query_prompt, *document_prompt; /* the embedder's, which are part of every vector */
    const char *tokenizer;                      /* the same */
    const char *index_factory;
    bool sparse; /* chunks have sparse weights by the embedder beside their vectors */
    struct picture_space pictures;
};

struct snapshot {
    const struct snapshot_ops *ops;
    const struct collection_info
        *info; /* of its generation, whose counts it has; lives as long as the snapshot */
    const struct embedder *embedder; /* that its vectors are of, where the collection was given a
                                        source of embedders (collection_follow_embedders); lives as
                                        long as the snapshot. NULL: it was not, or cannot change */
    int64_t version;                 /* of the same source: a later state has a larger one */
    int generation; /* that it stands on, and how many changes it has since, for people */
    int64_t n_changes;
    int64_t n_documents, n_chunks;
    int64_t
        chunk_limit; /* one search finds at most so many chunks; a folder's have numbers below it */
    int32_t max_token;  /* largest token id in it, end of document included */
    atomic_int holders; /* 1 when made: its maker's */
};

/* Chunks are known by numbers, which mean nothing in another snapshot. */
struct snapshot_ops {
    void (*close)(struct snapshot *snapshot); /* by whoever releases it last */
    struct chunk (*chunk)(const struct snapshot *snapshot, int64_t id);
    /* Of chunks [first, first + n), all of one document: [n, dim]. */
    enum status (*vectors)(const struct snapshot *snapshot, int64_t first, int n, float *vectors,
                           struct error *e);
    enum status (*picture_vector)(const struct snapshot *snapshot, int64_t id, float *vector,
                                  bool *has, struct error *e);
    /* Of a collection that is sparse. */
    enum status (*sparse)(const struct snapshot *snapshot, int64_t first, int n,
                          struct sparse_rows *rows, struct error *e);
};

/* The caller holds it already, or whoever does cannot release it meanwhile. NULL is nothing. */
static inline struct snapshot *snapshot_hold(struct snapshot *snapshot) {
    if (snapshot) atomic_fetch_add(&snapshot->holders, 1);
    return snapshot;
}

static inline void snapshot_release(struct snapshot *snapshot) {
    if (snapshot && atomic_fetch_sub(&snapshot->holders, 1) == 1) snapshot->ops->close(snapshot);
}

/* A chunk that was found in the snapshot, or that a document in it has. */
static inline struct chunk snapshot_chunk(const struct snapshot *snapshot, int64_t id) {
    return snapshot->ops->chunk(snapshot, id);
}

/* A document of the snapshot with its tokens and chunks, to be put elsewhere: it points into the
 * snapshot, and to `ranges` [n_chunks], which it fills in. Its chunks are at hand. */
static inline struct collection_document snapshot_document_again(
    const struct snapshot *snapshot, const struct stored_document *document,
    struct chunk_range *ranges) {
    struct collection_document again = document_again(document);
    struct chunk chunk = snapshot_chunk(snapshot, document->first_chunk);
    again.ids = chunk_document_ids(&chunk);
    again.n = chunk_document_tokens(&chunk);
    for (int64_t i = 0; i < document->n_chunks; i++) {
        chunk = snapshot_chunk(snapshot, document->first_chunk + i);
        ranges[i] = chunk_range_of(&chunk);
    }
    again.chunks = ranges;
    again.n_chunks = (int)document->n_chunks;
    return again;
}

/* The vectors [n, dim] of chunks [first, first + n) of one document, as the index keeps them.
 * STATUS_UNSUPPORTED of an inverted file on a GPU. STATUS_NOT_FOUND where Milvus has them no more.
 */
static inline enum status snapshot_vectors(const struct snapshot *snapshot, int64_t first, int n,
                                           float *vectors, struct error *e) {
    return snapshot->ops->vectors(snapshot, first, n, vectors, e);
}

/* The vector [pictures.dim] of the picture that a chunk begins; *has: there is one, else it is not
 * written. */
static inline enum status snapshot_picture_vector(const struct snapshot *snapshot, int64_t id,
                                                  float *vector, bool *has, struct error *e) {
    *has = false;
    return snapshot->info->pictures.embedder
               ? snapshot->ops->picture_vector(snapshot, id, vector, has, e)
               : STATUS_OK;
}

/* Adds the sparse weights of chunks [first, first + n) of one document, a row each; no rows where
 * the collection has none. */
static inline enum status snapshot_sparse(const struct snapshot *snapshot, int64_t first, int n,
                                          struct sparse_rows *rows, struct error *e) {
    return snapshot->info->sparse ? snapshot->ops->sparse(snapshot, first, n, rows, e) : STATUS_OK;
}

/* The neighbour as a model reads it: the chunk and what follows it in the same document, cut or
 * padded with eod to ids [r] (docs/spec/retro-data.md 9; continuation never leaves the document,
 * unlike Megatron's). */
static inline void snapshot_neighbor_tokens(const struct snapshot *snapshot, int64_t id, int r,
                                            int32_t *ids) {
    struct chunk chunk = snapshot_chunk(snapshot, id);
    int n = min_int(r, chunk.n_following);
    memcpy(ids, chunk.tokens, (size_t)n * sizeof *ids);
    for (int i = n; i < r; i++) ids[i] = snapshot->info->eod;
}
