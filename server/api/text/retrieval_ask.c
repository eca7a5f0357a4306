/* server/api/text/retrieval_ask.c: see retrieval_ask.h. */
#include "server/api/text/retrieval_ask.h"

#include <stdlib.h>

static bool searches(const struct served_model *model, const struct request_retrieval *r) {
    return r->neighbors.n == 0 && model->retrieval != NULL && r->choice.enabled;
}

bool retrieval_reads_passages(const struct served_model *model, const struct request_retrieval *r) {
    return retrieval_prompts(r->choice.mode) && (searches(model, r) || r->neighbors.n > 0);
}

/* Check. */

bool retrieval_check_reranker(const struct served_model *model, const struct retrieval_choice *c, const char *field,
                              struct failure *f) {
    if (model->rerank_candidates > 0 || !choice_says(c, CHOICE_RERANK) || !c->rerank) return true;
    return failure_set(f, 400, "no_reranker", field, "this server has no reranker (option retrieval.reranker)");
}

static bool check_attention(const struct served_model *model, const struct request_retrieval *r, struct failure *f) {
    if (model->info->chunk_length == 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.mode",
                           "the model %s has no chunked cross attention; retrieval.mode is \"prompt\" for it",
                           model->id);
    if (r->neighbors.n == 0 && !model->attends)
        return failure_set(f, 400, "no_retrieval", "retrieval.mode",
                           "the collection was cut by another tokenizer or in other chunks than the model %s has; "
                           "retrieval.mode is \"prompt\" for it",
                           model->id);
    if (r->neighbors.n > 0 && model->eod < 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.neighbors",
                           "the model has no end-of-document id to pad neighbours with");
    int k = max_int(r->choice.k, r->neighbors.n), most = model->limits.retrieval.max_neighbors;
    if (k > most)
        return failure_set(f, 400, "invalid_value", r->neighbors.n > 0 ? "retrieval.neighbors" : "retrieval.k",
                           "%d neighbours: cross attention has room for %d of a chunk (option retrieval.max_neighbors)",
                           k, most);
    if (choice_says(&r->choice, CHOICE_EVERY) && r->choice.every > 0)
        return failure_set(f, 400, "invalid_value", "retrieval.every",
                           "retrieval.every is for retrieval.mode \"prompt\": by cross attention every chunk has "
                           "neighbours of its own");
    return true;
}

/* Passages that are sought again stand in other places for every part of the answer. */
static bool seeks_again(const struct served_model *model, const struct request_retrieval *r) {
    return r->choice.every > 0 && searches(model, r) && !retrieval_attends(r->choice.mode);
}

/* Fields about what is read are for requests that read something. */
static bool check_reads(const struct served_model *model, const struct request_retrieval *r, struct failure *f) {
    const char *field = r->attention ? "retrieval.attention" : r->compared ? "retrieval.compare" : NULL;
    if (field == NULL) return true;
    if (r->neighbors.n == 0 && !searches(model, r))
        return failure_set(f, 400, "no_retrieval", field,
                           "%s is for requests that read neighbours, and this one reads none", field);
    if ((r->attention || r->compared == COMPARED_WITHOUT) && seeks_again(model, r))
        return failure_set(f, 400, "unsupported_parameter", field,
                           "%s is for passages that are sought once: send \"every\": 0", field);
    return true;
}

bool retrieval_settle(const struct served_model *model, struct request_retrieval *r, struct failure *f) {
    r->choice = retrieval_choice_merge(&model->choice, &r->choice);
    if (!r->given || !r->choice.enabled) return check_reads(model, r, f);
    if (r->neighbors.n == 0 && model->retrieval == NULL)
        return failure_set(f, 400, "no_collection", "retrieval",
                           "this server has no collection (option retrieval.collection); send retrieval.neighbors");
    if (retrieval_attends(r->choice.mode) && !check_attention(model, r, f)) return false;
    return check_reads(model, r, f) && retrieval_check_reranker(model, &r->choice, "retrieval.rerank", f);
}

/* Ask. */

/* The caller's texts as the model attends to neighbours: cut or padded to r tokens. */
static bool give_neighbors(const struct served_model *model, const struct request_retrieval *r,
                           struct sequence_neighbors *to, struct failure *f) {
    int length = model->info->retrieved_length;
    struct error e;
    struct tokens ids = {0};
    bool ok = true;
    to->given_ids = xmalloc((size_t)r->neighbors.n * (size_t)length * sizeof *to->given_ids);
    for (int i = 0; ok && i < r->neighbors.n; i++) {
        int32_t *row = to->given_ids + (size_t)i * (size_t)length;
        ids.n = 0;
        if (tokenizer_encode(model->tokenizer, r->neighbors.all[i].text, r->neighbors.all[i].size, TOKENIZER_PLAIN,
                             &ids, &e))
            ok = failure_from_error(f, &e);
        for (int j = 0; ok && j < length; j++) row[j] = j < ids.n ? ids.ids[j] : model->eod;
    }
    tokens_free(&ids);
    to->given_k = r->neighbors.n;
    return ok;
}

static bool ask_neighbors(const struct served_model *model, const struct request_retrieval *r,
                          struct sequence_neighbors *to, struct failure *f) {
    if (r->neighbors.n > 0) return give_neighbors(model, r, to, f);
    to->search = searches(model, r);
    to->k = r->choice.k ? r->choice.k : model->usual_neighbors;
    return true;
}

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

static void ask_passages(const struct served_model *model, const struct request_retrieval *r,
                         struct sequence_passages *to) {
    append_texts(&to->given, &to->n_given, &r->neighbors);
    if (to->n_given > 0) return;
    to->search = searches(model, r);
    to->k = r->choice.k ? r->choice.k : model->usual_passages;
}

bool retrieval_ask(const struct served_model *model, const struct request_retrieval *r, struct sequence_request *asked,
                   struct failure *f) {
    bool attends = retrieval_attends(r->choice.mode);
    append_texts(&asked->excluded, &asked->n_excluded, &r->excluded);
    asked->filter = filter_join(model->filter, r->filter);
    asked->choice = r->choice;
    asked->tell_attention = r->attention != ATTENTION_UNTOLD;
    if (attends) asked->choice.every = 0;
    if (retrieval_prompts(r->choice.mode)) ask_passages(model, r, &asked->passages);
    return !attends || ask_neighbors(model, r, &asked->neighbors, f);
}

bool retrieval_ask_without(const struct served_model *model, const struct request_retrieval *r,
                           struct sequence_request *asked, struct failure *f) {
    append_texts(&asked->excluded, &asked->n_excluded, &r->without);
    bool ok = retrieval_ask(model, r, asked, f);
    asked->tell_attention = false;
    return ok;
}
