/* server/host/documents/embedder_model.h: the encoder of retro/ in the shape that retrieval/ asks
 * for. The server and retro-index share it, so that a collection and the queries on it are embedded
 * the same way. */
#pragma once

#include "retrieval/embedder.h"
#include "retro/run/embed/encoder.h"
#include "server/host/options/config.h"

/* Opens the encoder in `folder` on a backend of its own: device, dtype, threads (retrieval.threads,
 * else model.threads), prompts, dimensions and limit of tokens as the configuration says. *out
 * stays valid until embedder_model_close; its name is the folder. */
enum status embedder_model_open(struct embedder *out, const char *folder,
                                const struct config *config, struct error *e);
/* The bytes that embedder_model_open would take, before it is called. */
enum status embedder_model_measure(struct encoder_bytes *out, const char *folder,
                                   const struct config *config, struct backend *backend,
                                   struct error *e);
/* The same of an embedder for pictures alone, which takes no prompts, dimensions or limit of the
 * configuration: these are for texts. STATUS_UNSUPPORTED where it reads no pictures. */
enum status picture_embedder_open(struct embedder *out, const char *folder,
                                  const struct config *config, struct error *e);
enum status picture_embedder_measure(struct encoder_bytes *out, const char *folder,
                                     const struct config *config, struct backend *backend,
                                     struct error *e);
void embedder_model_close(struct embedder *embedder); /* of a zeroed embedder: nothing */
