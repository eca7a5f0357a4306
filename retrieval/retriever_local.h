/* retrieval/retriever_local.h: a retriever over a collection on this machine, with the embedder it was built with. */
#pragma once

#include "retrieval/embedder.h"
#include "retrieval/retriever.h"
#include "retrieval/store/collection.h"

/* Searches c, which it holds for itself; a query gets max_k hits at most. The embedder is borrowed. Refuses another
 * embedder than the collection's. */
enum status retriever_local_open(struct retriever **out, struct collection *c, const struct embedder *embedder,
                                 int max_k, struct error *e);
/* From now on the newest snapshot is c, which it holds for itself; those that are held stay as they are. Any thread.
 * On failure nothing changes. */
enum status retriever_local_switch(struct retriever *t, struct collection *c, struct error *e);
