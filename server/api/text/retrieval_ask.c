/* server/api/text/retrieval_ask.c: see retrieval_ask.h. */
#include "server/api/text/retrieval_ask.h"

#include <stdlib.h>

bool retrieval_searches(const struct served_model *model,
                        const struct request_retrieval *retrieval) {
    return retrieval->neighbors.n == 0 && model->retrieval != NULL && retrieval->choice.enabled;
}

bool retrieval_reads(const struct served_model *model, const struct request_retrieval *retrieval) {
    return retrieval_searches(model, retrieval) || retrieval->neighbors.n > 0;
}

bool retrieval_reads_passages(const struct served_model *model,
                              const struct request_retrieval *retrieval) {
    return retrieval_prompts(retrieval->choice.mode) &&
           (retrieval_searches(model, retrieval) || retrieval->neighbors.n > 0);
}

bool retrieval_keeps(const struct served_model *model, const struct request_retrieval *retrieval) {
    return retrieval->choice.conversation == RETRIEVAL_KEPT && retrieval->choice.every == 0 &&
           retrieval->neighbors.n == 0 && retrieval_reads_passages(model, retrieval) &&
           retriever_recalls(model->retriever);
}

/* Check. */

bool retrieval_check_reranker(const struct served_model *model,
                              const struct retrieval_choice *choice, const char *field,
                              struct failure *failure) {
    if (model->rerank_candidates > 0 || !choice_says(choice, CHOICE_RERANK) || !choice->rerank)
        return true;
    return failure_set(failure, 400, "no_reranker", field,
                       "this server has no reranker (option retrieval.reranker)");
}

static bool check_attention(const struct served_model *model,
                            const struct request_retrieval *retrieval, struct failure *failure) {
    if (model->info->chunk_length == 0)
        return failure_set(
            failure, 400, "no_retrieval", "retrieval.mode",
            "the model %s has no chunked cross attention; retrieval.mode is \"prompt\" for it",
            model->id);
    if (retrieval->neighbors.n == 0 && !model->attends)
        return failure_set(
            failure, 400, "no_retrieval", "retrieval.mode",
            "the collection was cut by another tokenizer or in other chunks than the model %s has; "
            "retrieval.mode is \"prompt\" for it",
            model->id);
    if (retrieval->neighbors.n > 0 && model->eod < 0)
        return failure_set(failure, 400, "no_retrieval", "retrieval.neighbors",
                           "the model has no end-of-document id to pad neighbours with");
    int k = max_int(retrieval->choice.k, retrieval->neighbors.n),
        most = model->limits.retrieval.max_neighbors;
    if (k > most)
        return failure_set(failure, 400, "invalid_value",
                           retrieval->neighbors.n > 0 ? "retrieval.neighbors" : "retrieval.k",
                           "%d neighbours: cross attention has room for %d of a chunk (option "
                           "retrieval.max_neighbors)",
                           k, most);
    if (choice_says(&retrieval->choice, CHOICE_EVERY) && retrieval->choice.every > 0)
        return failure_set(
            failure, 400, "invalid_value", "retrieval.every",
            "retrieval.every is for retrieval.mode \"prompt\": by cross attention every chunk has "
            "neighbours of its own");
    return true;
}

/* Passages that are sought again stand in other places for every part of the answer. */
static bool seeks_again(const struct served_model *model,
                        const struct request_retrieval *retrieval) {
    return retrieval->choice.every > 0 && retrieval_searches(model, retrieval) &&
           !retrieval_attends(retrieval->choice.mode);
}

/* Fields about what is read are for requests that read something. */
static bool check_reads(const struct served_model *model, const struct request_retrieval *retrieval,
                        struct failure *failure) {
    const struct retrieval_choice *choice = &retrieval->choice;
    bool judges = choice_says(choice, CHOICE_SUPPORT) && choice->support;
    const char *field = retrieval->attention  ? "retrieval.attention"
                        : retrieval->compared ? "retrieval.compare"
                        : judges              ? "retrieval.support"
                                              : NULL;
    if (field == NULL) return true;
    if (!retrieval_reads(model, retrieval))
        return failure_set(failure, 400, "no_retrieval", field,
                           "%s is for requests that read neighbours, and this one reads none",
                           field);
    if ((retrieval->attention || retrieval->compared == COMPARED_WITHOUT) &&
        seeks_again(model, retrieval))
        return failure_set(failure, 400, "unsupported_parameter", field,
                           "%s is for passages that are sought once: send \"every\": 0", field);
    return true;
}

bool retrieval_settle(const struct served_model *model, struct request_retrieval *retrieval,
                      struct failure *failure) {
    retrieval->choice = retrieval_choice_merge(&model->choice, &retrieval->choice);
    if (!retrieval->given || !retrieval->choice.enabled)
        return check_reads(model, retrieval, failure);
    if (retrieval->neighbors.n == 0 && model->retrieval == NULL)
        return failure_set(failure, 400, "no_collection", "retrieval",
                           "this server has no collection (option retrieval.collection); send "
                           "retrieval.neighbors");
    if (retrieval_attends(retrieval->choice.mode) && !check_attention(model, retrieval, failure))
        return false;
    return check_reads(model, retrieval, failure) &&
           retrieval_check_reranker(model, &retrieval->choice, "retrieval.rerank", failure);
}

/* Ask. */

/* Appends owned copies of texts. */
static void append_texts(struct text_span **to, int *n, const struct text_list *texts) {
    if (texts->n == 0) return;
    *to = xrealloc(*to, ((size_t)*n + (size_t)texts->n) * sizeof **to);
    for (int i = 0; i < texts->n; i++) {
        const struct text_span *text = &texts->all[i];
        (*to)[*n] = (struct text_span){xstrndup(text->text, text->size), text->size};
        ++*n;
    }
}

/* The caller's texts as the model attends to neighbours: cut or padded to r tokens. */
static bool give_neighbors(const struct served_model *model,
                           const struct request_retrieval *retrieval, struct sequence_neighbors *to,
                           struct failure *failure) {
    int length = model->info->retrieved_length;
    struct error e;
    struct tokens ids = {0};
    bool ok = true;
    to->given_ids =
        xmalloc((size_t)retrieval->neighbors.n * (size_t)length * sizeof *to->given_ids);
    for (int i = 0; ok && i < retrieval->neighbors.n; i++) {
        int32_t *row = to->given_ids + (size_t)i * (size_t)length;
        ids.n = 0;
        if (tokenizer_encode(model->tokenizer, retrieval->neighbors.all[i].text,
                             retrieval->neighbors.all[i].size, TOKENIZER_PLAIN, &ids, &e))
            ok = failure_from_error(failure, &e);
        for (int j = 0; ok && j < length; j++) row[j] = j < ids.n ? ids.ids[j] : model->eod;
    }
    tokens_free(&ids);
    to->given_k = retrieval->neighbors.n;
    append_texts(&to->given, &to->n_given, &retrieval->neighbors);
    return ok;
}

static bool ask_neighbors(const struct served_model *model,
                          const struct request_retrieval *retrieval, struct sequence_neighbors *to,
                          struct failure *failure) {
    if (retrieval->neighbors.n > 0) return give_neighbors(model, retrieval, to, failure);
    to->search = retrieval_searches(model, retrieval);
    to->k = retrieval->choice.k ? retrieval->choice.k : model->usual_neighbors;
    return true;
}

static void ask_passages(const struct served_model *model,
                         const struct request_retrieval *retrieval, struct sequence_passages *to) {
    append_texts(&to->given, &to->n_given, &retrieval->neighbors);
    if (to->n_given > 0) return;
    to->search = retrieval_searches(model, retrieval);
    to->k = retrieval->choice.k ? retrieval->choice.k : model->usual_passages;
}

/* The order of passages where relevance leaves a choice. */
static struct passage_order order_of(const struct served_model *model,
                                     const struct sequence_request *asked) {
    if (asked->choice.order != RETRIEVAL_STABLE || !asked->passages.search)
        return (struct passage_order){0};
    return (struct passage_order){
        .known = model->conversations,
        .before = conversations_begin(model->conversations, &asked->principal),
        .distance = model->order_distance};
}

/* The passage that supports a sentence most is told by the attention of the rows that wrote it. */
static enum told_rows told_rows_of(const struct request_retrieval *retrieval) {
    if (retrieval->attention != ATTENTION_UNTOLD) return TOLD_ALL_ROWS;
    return retrieval->choice.support ? TOLD_WRITING_ROWS : TOLD_NO_ROWS;
}

bool retrieval_ask(const struct served_model *model, const struct request_retrieval *retrieval,
                   struct sequence_request *asked, struct failure *failure) {
    bool attends = retrieval_attends(retrieval->choice.mode);
    append_texts(&asked->excluded, &asked->n_excluded, &retrieval->excluded);
    asked->filter = filter_join(model->filter, retrieval->filter);
    asked->choice = retrieval->choice;
    asked->told_rows = told_rows_of(retrieval);
    if (attends) asked->choice.every = 0;
    if (retrieval_prompts(retrieval->choice.mode)) ask_passages(model, retrieval, &asked->passages);
    asked->order = order_of(model, asked);
    return !attends || ask_neighbors(model, retrieval, &asked->neighbors, failure);
}

bool retrieval_ask_without(const struct served_model *model,
                           const struct request_retrieval *retrieval,
                           struct sequence_request *asked, struct failure *failure) {
    append_texts(&asked->excluded, &asked->n_excluded, &retrieval->without);
    bool ok = retrieval_ask(model, retrieval, asked, failure);
    asked->told_rows = TOLD_NO_ROWS;
    return ok;
}
