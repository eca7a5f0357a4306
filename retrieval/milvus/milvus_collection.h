/* retrieval/milvus/milvus_collection.h: a collection that lies in Milvus: documents as rows, one a
 * chunk, that any number of programs read and change. docs/milvus.md says what a row holds.
 *
 * A document is there when all its rows are, of one content: a reader sees a document whole or not
 * at all, however its rows come and go. Keys are made of the document's id and the chunk's number,
 * so that a change that was broken off and is made again leaves the same rows. Documents that were
 * read are kept in memory by their content, which never changes. Changes are acknowledged when
 * Milvus has them in its log.
 *
 * The newest snapshot holds the counts that were read last; what is sought is what is there when it
 * is asked for. It is not ranked by words: STATUS_UNSUPPORTED. */
#pragma once

#include "retrieval/collection.h"
#include "retrieval/milvus/client/milvus.h"

/* STATUS_NOT_FOUND: there is no such collection. STATUS_INVALID: it was not made by retro-index.
 * STATUS_BUSY. */
enum status milvus_collection_open(struct collection **out, const char *address,
                                   const struct milvus_settings *settings, struct error *e);
/* Makes the collection, which must not be there; max_token is the largest id that the tokenizer
 * gives. options->index_factory is an index of Milvus': "HNSW" (NULL is that) or "FLAT", which
 * compares with all. STATUS_UNSUPPORTED where options->pictures names an embedder: there is room
 * for one space of vectors. */
enum status milvus_collection_create(const char *address, const struct milvus_settings *settings,
                                     const struct collection_options *options, int32_t max_token,
                                     struct error *e);
