/* server/host/embedder_bert.h: the sentence encoder of retro/ in the shape that retrieval/ asks for. The server and
 * retro-index share it, so that a collection and the queries on it are embedded the same way. */
#pragma once

#include "retrieval/embedder.h"
#include "retro/run/encoder.h"
#include "server/host/config.h"

/* Opens the encoder in `folder` on its own backend: device, dtype and threads (retrieval.threads, else model.threads)
 * as the configuration says. *out stays valid until embedder_bert_close; its name is the folder. */
enum status embedder_bert_open(struct embedder *out, const char *folder, const struct config *config, struct error *e);
/* The memory that opening takes, known before. */
enum status embedder_bert_measure(struct encoder_bytes *out, const char *folder, const struct config *config,
                                  struct backend *b, struct error *e);
void embedder_bert_close(struct embedder *embedder); /* of a zeroed embedder: nothing */
