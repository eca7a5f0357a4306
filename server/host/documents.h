/* server/host/documents.h: what a model retrieves from: a collection, the embedder it was made with, and a retriever
 * over both. The server and retro-eval share it, so that what is measured is what is served. */
#pragma once

#include "retrieval/retriever.h"
#include "retro/model/model.h"
#include "retro/text/tokenizer.h"
#include "server/host/config.h"

struct documents {
    struct collection *collection;
    struct embedder embedder;
    struct retriever *retriever;
};

/* Whether the configuration names a collection and the model reads neighbours. */
bool documents_wanted(const struct config *c, const struct model_info *model);
/* The embedder's folder: the configuration's, else the collection's own. */
const char *documents_embedder(const struct config *c, const char *of_collection);

/* Opens all three, for at most max_k neighbours of a chunk, and refuses what the model cannot read: made with another
 * tokenizer or embedder, of another chunk length, or with tokens that it does not have. */
enum status documents_open(struct documents *d, const struct config *c, const struct model_info *model,
                           const struct tokenizer *tokenizer, int max_k, struct error *e);
void documents_close(struct documents *d); /* of zeroed documents: nothing */
