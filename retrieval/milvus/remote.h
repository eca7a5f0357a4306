/* retrieval/milvus/remote.h: a collection that lies in Milvus: documents as rows, one a chunk, that any number of
 * programs read and change. docs/milvus.md says what a row holds.
 *
 * A document is there when all its rows are, of one content: a reader sees a document whole or not at all, however
 * its rows come and go. Keys are made of the document's id and the chunk's number, so that a change that was broken off
 * and is made again leaves the same rows. Documents that were read are kept in memory by their content, which never
 * changes. */
#pragma once

#include "retrieval/filter/filter.h"
#include "retrieval/milvus/milvus.h"
#include "retrieval/retriever.h"
#include "retrieval/store/living.h"

struct remote;

/* STATUS_NOT_FOUND: there is no such collection. STATUS_INVALID: it was not made by retro-index. STATUS_BUSY. */
enum status remote_open(struct remote **out, const char *address, const struct milvus_settings *s, struct error *e);
/* Documents and hits that are held outlive it. NULL: nothing. */
void remote_close(struct remote *r);
/* Makes the collection, which must not be there; max_token is the largest id that the tokenizer gives.
 * o->index_factory is an index of Milvus': "HNSW" (NULL is that) or "FLAT", which compares with all. STATUS_UNSUPPORTED
 * where o->pictures names an embedder: there is room for one space of vectors. */
enum status remote_create(const char *address, const struct milvus_settings *s, const struct collection_options *o,
                          int32_t max_token, struct error *e);

/* Facts that it was made with; counts are 0. Lives as long as it. */
const struct collection_info *remote_info(const struct remote *r);
struct milvus *remote_milvus(struct remote *r);
/* The newest counts that remote_follow has read, as a snapshot: a version that readers hold is none of the data, which
 * are read as they are when they are asked for. Asks nobody. */
struct snapshot *remote_hold(struct remote *r);
/* Counts again. */
enum status remote_follow(struct remote *r, struct error *e);

/* A document as it was when it was read, counted. */
struct remote_document {
    atomic_int holders;
    char content[33]; /* of all below: a hash */
    struct collection_document document;
    struct buffer facts;
    int n_chunks;
    size_t bytes; /* of memory */
};
void remote_document_release(struct remote_document *d); /* NULL: nothing */
struct stored_document remote_document_stored(const struct remote_document *d);

/* STATUS_NOT_FOUND, in the same words, where there is none and where the filter refuses it. The caller releases it. */
enum status remote_find(struct remote *r, const struct filter *filter, const char *id, struct remote_document **out,
                        struct error *e);
/* Its vectors [n_chunks, dim]. STATUS_NOT_FOUND where it has gone or changed meanwhile. */
enum status remote_vectors(struct remote *r, const struct remote_document *d, float *vectors, struct error *e);
/* All documents that the filter allows behind the one of that id ("" or NULL: the first), in the order of a hash of
 * their ids, which is everywhere the same. Of the texts only the sizes are there. */
struct remote_walk {
    const struct filter *filter;
    const struct filter *narrow; /* documents that it refuses may be left out, and need not be */
    const char *after;
    int n_wanted; /* documents after which the walk will be ended, about; 0: not known */
    view_taker *take;
    void *context;
};
enum status remote_walk(struct remote *r, const struct remote_walk *w, struct error *e);
/* Documents and chunks that the filter allows. */
enum status remote_count(struct remote *r, const struct filter *filter, int64_t *n_documents, int64_t *n_chunks,
                         struct error *e);

/* Changes, as living_put_allowed and living_delete_allowed have them; acknowledged when Milvus has them in its log.
 * They ask for what is there as it is, whatever readers may see. */

/* Of each id whether there is a document that the filter allows. */
enum status remote_shows_all(struct remote *r, const struct filter *filter, const char *const *ids, int n, bool *shows,
                             struct error *e);
/* Of each document whether it is there, with this content. */
enum status remote_has_all(struct remote *r, const struct collection_document *const *documents, int n, bool *has,
                           struct error *e);
/* Puts documents in order, by few calls. Where Milvus fails, those have failed that were not acknowledged, and maybe
 * some that were: to put them again leaves the same. */
void remote_put_all(struct remote *r, const struct filter *filter, struct document_put *puts, int n);
enum status remote_delete(struct remote *r, const struct filter *filter, const char *id, struct error *e);

/* Queries of one filter, one set of excluded documents and one choice; vectors [n, dim], k of each. hits [n] are
 * zeroed. STATUS_UNSUPPORTED for a ranking by words. */
struct remote_search {
    const struct retriever_query *query; /* the first: filter, excluded, choice, floor */
    const float *vectors;
    int n, k;
};
enum status remote_find_nearest(struct remote *r, const struct remote_search *s, struct hits *hits, struct error *e);
