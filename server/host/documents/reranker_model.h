/* server/host/documents/reranker_model.h: the cross-encoder of retro/ in the shape that retrieval/
 * asks for: an embedder whose requests have a query, and whose vectors are one number, the
 * relevance of each text: 1 / (1 + exp(-logit)). */
#pragma once

#include "retrieval/embedder.h"
#include "retro/run/embed/scorer.h"
#include "server/host/options/config.h"

/* Opens the cross-encoder in `folder` on a backend of its own: device, threads and dtype as the
 * embedder's; at most retrieval.reranker_tokens of a pair. *out stays valid until
 * reranker_model_close; its name is the folder. */
enum status reranker_model_open(struct embedder *out, const char *folder,
                                const struct config *config, struct error *e);
/* The bytes that reranker_model_open would take, before it is called. */
enum status reranker_model_measure(struct encoder_bytes *out, const char *folder,
                                   const struct config *config, struct backend *backend,
                                   struct error *e);
void reranker_model_close(struct embedder *reranker); /* of a zeroed one: nothing */
