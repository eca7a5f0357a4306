/* retrieval/store/store_embed.h: the vectors of a collection by another embedder, while it is
 * searched and changed.
 *
 * The second set grows in a collection of its own, DIR/embedding, made of a snapshot. Documents
 * that come and go in DIR meanwhile are brought over, the last of them under DIR's lock; then the
 * generation is moved into DIR, and CURRENT turns. So a reader sees one set or the other, whole,
 * and no acknowledged change is lost. DIR is not locked before that, and while it is, no more is
 * done than bringing over what came since the last look. DIR/embedding is used again
 * after a crash, as far as it is whole. */
#pragma once

#include "retrieval/store/store.h"

#define EMBEDDING_FOLDER "embedding"

struct vector_change {
    const char *embedder; /* the new one: its folder, */
    uint64_t embedder_hash;
    const char *query_prompt, *document_prompt;
    int dim;
    bool sparse;               /* it gives sparse weights, too */
    const char *index_factory; /* NULL: as the collection's was asked for */
    /* The vectors [n_chunks, dim] of a document, whose tokens and chunks are filled in, and where
     * `sparse` is its sparse weights, a row a chunk, into empty rows. It may be asked more than
     * once for the same. awaited: DIR is locked, and others wait for it. */
    enum status (*embed)(void *context, const struct collection_document *document, bool awaited,
                         float *vectors, struct sparse_rows *sparse, struct error *e);
    void (*tell)(void *context, const char *step); /* what is begun now, for people; or NULL */
    void *context;
    const atomic_bool *cancelled;
};

/* How it went. */
struct vector_changed {
    int64_t n_later; /* documents that came or went since the snapshot, and were brought over */
    double locked_seconds; /* for which other programs could not change the collection */
};

/* Fills a second set of vectors and turns to it. STATUS_CANCELLED, and any failure: the collection
 * is as it was, and the next call goes on from here. STATUS_BUSY where another program holds its
 * lock for minutes. STATUS_CORRUPT where its log is damaged, STATUS_INVALID where
 * every document is deleted. One caller at a time. */
enum status store_change_vectors(const char *dir, const struct vector_change *change,
                                 struct vector_changed *out, struct error *e);
/* DIR/embedding, in new memory; the folder is made. */
enum status store_embedding_folder(char **out, const char *dir, struct error *e);
/* Removes DIR/embedding; *there: it was there. */
enum status store_embedding_remove(const char *dir, bool *there, struct error *e);
