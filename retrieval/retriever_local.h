/* retrieval/retriever_local.h: a retriever over a collection on this machine, with the embedders it was built with. */
#pragma once

#include "retrieval/embedder.h"
#include "retrieval/retriever.h"
#include "retrieval/store/store.h"

/* Searches `documents`; a query gets max_k hits at most. Embedders are borrowed, and so are the documents; `pictures`
 * is the pictures' own, NULL where they have none. Refuses other embedders than the collection's. */
enum status retriever_local_open(struct retriever **out, struct store *documents, const struct embedder *embedder,
                                 const struct embedder *pictures, int max_k, struct error *e);

/* A chunk of the snapshot as a hit, which borrows from the snapshot. */
void hit_show(struct hit *hit, const struct snapshot *snapshot, int64_t id, float similarity);
