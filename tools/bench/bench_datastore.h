/* tools/bench/bench_datastore.h: what retro-bench retrieval searches: a collection that is given,
 * or one of random chunks and vectors that lasts as long as the run, behind the server's own
 * embedder and retriever. */
#pragma once

#include "retrieval/retriever.h"
#include "retrieval/store/store.h"
#include "retro/model/model.h"
#include "retro/text/tokenizer.h"
#include "server/host/options/config.h"
#include "tools/bench/bench.h"

struct datastore {
    struct config config;            /* the server's defaults */
    struct embedder inner, embedder; /* the second calls the first and looks at the clock */
    double embed_start, embed_end;   /* of the latest call */
    struct tokenizer *tokenizer;     /* what turns the chunks that the model writes into text */
    struct collection *collection;
    struct retriever *retriever;
};

/* Opens the collection, embedder and tokenizer that the options name. A random collection takes the
 * embedder's own tokenizer, so that a chunk of the model's random tokens is a text of about as many
 * tokens for the embedder. Keep *datastore where it is, it points into itself; close it on failure
 * too. */
enum status datastore_open(struct datastore *datastore, const struct bench_options *options,
                           const struct model_info *info, struct error *e);
void datastore_close(struct datastore *datastore); /* of a zeroed one: nothing */
