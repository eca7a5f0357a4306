/* retrieval/index/faiss_file.h: whether a file is one that FAISS may read.
 *
 * FAISS trusts its files: it allocates what they say, and follows their graphs without a check.
 * This reader goes through one from the first byte to the last, knows the kinds of index that
 * retro-index makes, and refuses everything else; what it passes is read and searched within
 * bounds. The format is that of FAISS 1.7.3's write_index. */
#pragma once

#include "config/base/base.h"

/* Kinds of index that are read; also the words of an error about another. */
#define FAISS_FILE_KINDS \
    "Flat, SQ.., PQ.., HNSW.., IVF..,Flat, IVF..,SQ.., IVF..,PQ.., OPQ.. before and RFlat behind " \
    "them"

struct faiss_file {
    const uint8_t *data;
    size_t size;
    const char *name; /* in errors */
};

/* STATUS_CORRUPT unless it is an index of `count` vectors of dim numbers by inner product, of one
 * of these kinds, whose sizes agree with each other and with the file's, whose ids are 0 .. count -
 * 1, each once, whose links lead to vectors and whose numbers are finite; STATUS_UNSUPPORTED for
 * another kind. */
enum status faiss_file_check(struct faiss_file file, int64_t count, int dim, struct error *e);
