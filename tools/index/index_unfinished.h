/* tools/index/index_unfinished.h: vectors and sparse weights of a build, kept in
 * DIR/unfinished.vectors until the build is complete, so that the next one goes on where an
 * interrupted one was; and of a change of the embedder, in a folder of its own
 * (retrieval/store/store_embed.h). A vector is found by the text of its chunk: files may have
 * changed meanwhile, and come in another order. Each has a checksum; those that a crash left in
 * part are not there. */
#pragma once

#include "config/base/buffer.h"
#include "config/base/key_set.h"
#include "retrieval/embedder.h"
#include "server/host/options/config.h"

/* Zero-initialise. */
struct unfinished {
    char *path;
    int fd; /* where `path` is set; -1: nothing is kept any more */
    int dim;
    struct file_map kept;      /* vectors of the build before */
    struct key_set places;     /* of a text: where its record begins */
    int64_t end;               /* of the last record */
    int64_t n_kept, n_written; /* vectors: of the build before, and of this one */
    bool emptied;              /* there were vectors of another maker */
    struct buffer record;
};

/* A hash of all that a vector depends on beside its text. */
uint64_t unfinished_maker(const struct embedder *embedder, const struct config *config);
/* Finds what a build with the same embedder has left in dir; else there is nothing. `maker`:
 * unfinished_maker. STATUS_BUSY while another program has the file open. */
enum status unfinished_open(struct unfinished *unfinished, const char *dir, uint64_t maker, int dim,
                            struct error *e);
/* The vector [dim] of a chunk's text, of an earlier build or of this one, and its sparse weights, a
 * row more; false: it is not there. */
bool unfinished_find(struct unfinished *unfinished, struct text_span text, float *vector,
                     struct sparse_rows *sparse);
/* Keeps one; the row is empty where the embedder is not sparse. Where the disk is full, a warning
 * says so, and no more are kept. */
void unfinished_keep(struct unfinished *unfinished, struct text_span text, const float *vector,
                     struct sparse_row row);
/* Where the vector of a text came from. */
enum vector_origin {
    VECTOR_KEPT,
    VECTOR_MADE,  /* it was embedded now */
    VECTOR_EQUAL, /* of an equal text of the same call */
};
struct text_batch {
    const struct text_span *texts; /* [n] of chunks */
    int n;
    float *vectors;              /* [n, dim] */
    struct sparse_rows *sparse;  /* n rows more; empty ones where the embedder is not sparse */
    enum vector_origin *origins; /* [n] */
};
/* Fills in the batch. Texts that are not there are embedded, equal ones once, and kept. */
enum status unfinished_embed(struct unfinished *unfinished, const struct embedder *embedder,
                             const struct text_batch *batch, struct error *e);
/* Removes the file: the build is complete. */
void unfinished_remove(struct unfinished *unfinished);
void unfinished_close(struct unfinished *unfinished); /* a file without a vector goes */
