/* retrieval/milvus/milvus_collection.h: a collection that lies in Milvus: documents as rows, one a chunk, that any
 * number of programs read and change. docs/milvus.md says what a row holds.
 *
 * A document is there when all its rows are, of one content: a reader sees a document whole or not at all, however
 * its rows come and go. Keys are made of the document's id and the chunk's number, so that a change that was broken off
 * and is made again leaves the same rows. Documents that were read are kept in memory by their content, which never
 * changes. */
#pragma once

#include "retrieval/filter/filter.h"
#include "retrieval/milvus/client/milvus.h"
#include "retrieval/retriever.h"
#include "retrieval/store/store.h"

struct milvus_collection;

/* STATUS_NOT_FOUND: there is no such collection. STATUS_INVALID: it was not made by retro-index. STATUS_BUSY. */
enum status milvus_collection_open(struct milvus_collection **out, const char *address, const struct milvus_settings *s,
                                   struct error *e);
/* Documents and hits that are held outlive it. NULL: nothing. */
void milvus_collection_close(struct milvus_collection *r);
/* Makes the collection, which must not be there; max_token is the largest id that the tokenizer gives.
 * o->index_factory is an index of Milvus': "HNSW" (NULL is that) or "FLAT", which compares with all. STATUS_UNSUPPORTED
 * where o->pictures names an embedder: there is room for one space of vectors. */
enum status milvus_collection_create(const char *address, const struct milvus_settings *s,
                                     const struct collection_options *o, int32_t max_token, struct error *e);

/* Facts that it was made with; counts are 0. Lives as long as it. */
const struct collection_info *milvus_info(const struct milvus_collection *r);
struct milvus *milvus_server(struct milvus_collection *r);
/* The newest counts that milvus_follow has read, as a snapshot: a version that readers hold is none of the data, which
 * are read as they are when they are asked for. Asks nobody. */
struct snapshot *milvus_hold(struct milvus_collection *r);
/* Counts again. */
enum status milvus_follow(struct milvus_collection *r, struct error *e);

/* A document as it was when it was read, counted. */
struct milvus_document {
    atomic_int holders;
    char content[33]; /* of all below: a hash */
    struct collection_document document;
    struct buffer facts;
    int n_chunks;
    size_t bytes; /* of memory */
};
void milvus_document_release(struct milvus_document *d); /* NULL: nothing */
struct stored_document milvus_document_stored(const struct milvus_document *d);

/* STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. The caller releases it. */
enum status milvus_find(struct milvus_collection *r, const struct filter *filter, const char *id,
                        struct milvus_document **out, struct error *e);
/* Its vectors [n_chunks, dim]. STATUS_NOT_FOUND where it has gone or changed meanwhile. */
enum status milvus_vectors(struct milvus_collection *r, const struct milvus_document *d, float *vectors,
                           struct error *e);
/* All documents that the filter allows behind the one of that id ("" or NULL: the first), in the order of a hash of
 * their ids, which is everywhere the same. Of the texts only the sizes are there. */
struct milvus_walk {
    const struct filter *filter;
    const struct filter *narrow; /* documents that it refuses may be left out, and need not be */
    const char *after;
    int n_wanted; /* documents after which the walk will be ended, about; 0: not known */
    document_taker *take;
    void *context;
};
enum status milvus_walk(struct milvus_collection *r, const struct milvus_walk *w, struct error *e);
/* Documents and chunks that the filter allows. */
enum status milvus_count(struct milvus_collection *r, const struct filter *filter, int64_t *n_documents,
                         int64_t *n_chunks, struct error *e);

/* Changes, as store_put_allowed and store_delete_allowed have them; acknowledged when Milvus has them in its log.
 * They ask for what is there as it is, whatever readers may see. */

/* Of each id whether there is a document that the filter allows. */
enum status milvus_shows_all(struct milvus_collection *r, const struct filter *filter, const char *const *ids, int n,
                             bool *shows, struct error *e);
/* Of each document whether it is there, with this content. */
enum status milvus_has_all(struct milvus_collection *r, const struct collection_document *const *documents, int n,
                           bool *has, struct error *e);
/* Puts documents in order, by few calls. Where Milvus fails, those have failed that were not acknowledged, and maybe
 * some that were: to put them again leaves the same. */
void milvus_put_all(struct milvus_collection *r, const struct filter *filter, struct document_put *puts, int n);
enum status milvus_delete(struct milvus_collection *r, const struct filter *filter, const char *id, struct error *e);

/* Queries of one filter, one set of excluded documents and one choice; vectors [n, dim], k of each. hits [n] are
 * zeroed. STATUS_UNSUPPORTED for a ranking by words. */
struct milvus_search {
    const struct retriever_query *query; /* the first: filter, excluded, choice, floor */
    const float *vectors;
    int n, k;
};
enum status milvus_find_nearest(struct milvus_collection *r, const struct milvus_search *s, struct hits *hits,
                                struct error *e);
