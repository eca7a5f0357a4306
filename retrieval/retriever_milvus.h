/* retrieval/retriever_milvus.h: a retriever over a collection in Milvus, with the embedder it was built with. */
#pragma once

#include "retrieval/embedder.h"
#include "retrieval/milvus/milvus_collection.h"

/* Searches `documents`; a query gets max_k hits at most. Both are borrowed. Refuses another embedder than the
 * collection's. Hits are what is there when they are sought, whatever snapshot a query names: Milvus keeps no older
 * state. A hit's chunk is its number in its document. */
enum status retriever_milvus_open(struct retriever **out, struct milvus_collection *documents,
                                  const struct embedder *embedder, int max_k, struct error *e);
