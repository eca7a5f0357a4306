/* tools/eval/search_ways.c: see search_ways.h. */
#include "tools/eval/search_ways.h"

static const char *const way_names[] = {[RETRIEVE_NEAREST] = "vectors",
                                        [RETRIEVE_WORDS] = "words",
                                        [RETRIEVE_BOTH] = "hybrid",
                                        [SEARCH_RERANKED] = "reranked"};

enum status search_ways_open(struct search_ways *ways, const struct config *config, int ranks,
                             struct error *e) {
    *ways = (struct search_ways){.ranks = ranks};
    if (!documents_wanted(config))
        return error_set(e, STATUS_INVALID, "retrieval.collection is needed: --config or --set");
    enum status status = documents_open_search(&ways->documents, config, ranks, e);
    ways->configured = retrieval_choice_ranking(&config->retrieval.choice,
                                                rerank_candidates_of(&config->retrieval));
    if (status == STATUS_OK) ways->snapshot = collection_hold(ways->documents.collection);
    return status;
}

void search_ways_close(struct search_ways *ways) {
    snapshot_release(ways->snapshot);
    documents_close(&ways->documents);
}

int search_ways_count(const struct search_ways *ways) {
    return ways->configured.rerank > 0 ? SEARCH_WAYS : SEARCH_RERANKED;
}

const char *search_way_name(int way) { return way_names[way]; }

static struct retriever_choice choice_of(const struct search_ways *ways, int way) {
    if (way == SEARCH_RERANKED)
        return (struct retriever_choice){
            .way = ways->configured.way, .rerank = ways->configured.rerank, .per_document = 1};
    return (struct retriever_choice){.way = (enum retriever_way)way, .per_document = 1};
}

enum status search_way_ask(const struct search_ways *ways, const struct ways_query *query, int way,
                           struct hits *hits, struct error *e) {
    struct retriever_query asked = {.text = query->text,
                                    .k = ways->ranks,
                                    .min_similarity = -1,
                                    .choice = choice_of(ways, way),
                                    .excluded = query->excluded,
                                    .n_excluded = query->n_excluded,
                                    .snapshot = ways->snapshot};
    return retriever_search(ways->documents.retriever, &asked, 1, hits, e);
}
