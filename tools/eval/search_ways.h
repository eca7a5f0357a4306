/* tools/eval/search_ways.h: one query searched for by vectors, by words, by both, and as the
 * configuration has it with its reranker; for retro-eval's measurements of searches. */
#pragma once

#include "server/host/documents/documents.h"

/* The ways are those of enum retriever_way, and behind them that with a reranker. */
enum { SEARCH_RERANKED = RETRIEVE_BOTH + 1, SEARCH_WAYS };

struct search_ways {
    struct documents documents;
    struct snapshot *snapshot;          /* all searches see the same documents */
    struct retriever_choice configured; /* rerank 0: there is no reranker */
    int ranks;                          /* documents of an answer, at most */
};

/* Opens the collection of a configuration for answers of `ranks` documents. search_ways_close frees
 * what there is, after an error too. */
enum status search_ways_open(struct search_ways *ways, const struct config *config, int ranks,
                             struct error *e);
void search_ways_close(struct search_ways *ways);

/* Ways from RETRIEVE_NEAREST on: SEARCH_WAYS, or one less without a reranker. */
int search_ways_count(const struct search_ways *ways);
const char *search_way_name(int way);

/* The nearest documents, each once, at the rank of its best chunk, without those whose paths are
 * excluded. The caller frees *hits. */
struct ways_query {
    struct text_span text;
    const struct text_span *excluded; /* [n_excluded] paths */
    int n_excluded;
};
enum status search_way_ask(const struct search_ways *ways, const struct ways_query *query, int way,
                           struct hits *hits, struct error *e);
