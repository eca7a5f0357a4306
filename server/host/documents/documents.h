/* server/host/documents/documents.h: what a model retrieves from: a collection, on a disk or in
 * Milvus, the embedder it was made with, and a retriever over both. The server and retro-eval share
 * it, so that what is measured is what is served.
 *
 * By chunked cross attention a model reads the collection's tokens, which must be its own
 * tokenizer's, in chunks of its length. In its prompt it reads text, of which every collection has
 * its documents'. */
#pragma once

#include "retrieval/open/collection_open.h"
#include "retrieval/retriever.h"
#include "retro/model/model.h"
#include "retro/text/tokenizer.h"
#include "server/host/models/budget.h"
#include "server/host/options/config.h"

/* Whoever follows the embedders of a collection. */
struct embedder_follower {
    const struct config *config;
    const struct embedder *first, *pictures; /* at the start; pictures NULL: they have none */
    bool shares; /* embedders that come later are used by several threads */
};

struct documents {
    struct collection *collection;
    struct embedder embedder;
    struct embedder pictures; /* the pictures' own embedder; zeroed: they have none */
    struct embedder reranker; /* zeroed without retrieval.reranker */
    struct retriever *retriever;
    struct filter *filter;             /* of all searches; NULL: none */
    struct embedder_follower follower; /* of programs that follow their embedders */
    bool attends; /* the model can read the collection's tokens by chunked cross attention */
};

/* Hits that the reranker reads; 0: there is none. */
static inline int rerank_candidates_of(const struct retrieval_settings *settings) {
    return settings->reranker[0] ? settings->rerank_candidates : 0;
}

/* The collection of that name, by the configuration's options of Milvus where it lies there. */
enum status documents_collection_open(struct collection **out, const struct config *config,
                                      const char *name, struct error *e);
/* Makes one in Milvus: milvus_collection_create. */
enum status documents_collection_make(const struct config *config, const char *name,
                                      const struct collection_options *options, int32_t max_token,
                                      struct error *e);
/* Whether the configuration names a collection. */
bool documents_wanted(const struct config *config);
/* The embedder that reads the pictures of queries and documents, if it sees. */
static inline const struct embedder *documents_seer(const struct documents *documents) {
    return documents->pictures.self ? &documents->pictures : &documents->embedder;
}
/* Opens the pictures' own embedder where the collection has one: the configuration's, else the
 * collection's. Else *out is zeroed. STATUS_INVALID where it is another one than pictures were
 * embedded with, and where there is none and the configuration names one. */
enum status documents_open_pictures(struct embedder *out, const struct config *config,
                                    const struct collection_info *info, struct error *e);
/* The embedder's folder: the configuration's, else the collection's own. */
const char *documents_embedder(const struct config *config, const char *of_collection);

/* Opens all three, for at most max_k neighbours of a chunk, and refuses what the model cannot read:
 * made with another embedder; where it is to attend (retrieval.mode), with another tokenizer, of
 * another chunk length, or with tokens that it does not have. The model may be NULL: none reads
 * them. */
enum status documents_open(struct documents *documents, const struct config *config,
                           const struct model_info *model, const struct tokenizer *tokenizer,
                           int max_k, struct error *e);
/* The same for no model and without a filter: what is searched, with its embedders. */
enum status documents_open_search(struct documents *documents, const struct config *config,
                                  int max_k, struct error *e);
/* From now on the collection may turn to vectors of another embedder (retro-index embed): snapshots
 * name theirs, and that of a new generation is opened. Where the configuration names another one,
 * or one of both reads pictures, the collection stays as it was, and the error says what to do. All
 * of the follower stays where it is, and is borrowed. */
void embedders_follow(struct embedder_follower *follower, struct collection *collection);
void documents_close(struct documents *documents); /* of zeroed documents: nothing */

/* Refuses what documents_open would refuse, as far as the MANIFEST and the folders tell. Loads
 * nothing. */
enum status documents_check(const struct config *config, const struct model_info *model,
                            const struct tokenizer *tokenizer, struct error *e);
/* Adds what a program takes beside the model: itself and, where they are wanted, the documents. The
 * backend is the device of the embedder. */
enum status documents_measure(const struct config *config, struct backend *backend,
                              struct budget_parts *parts, struct error *e);
