/* server/api/text/retrieval_choice_json.c: see retrieval_choice_json.h. */
#include "server/api/text/retrieval_choice_json.h"

#include <stdlib.h>

static enum retrieval_mode mode_of(const struct served_model *model, const struct request_retrieval *r) {
    return r->mode == RETRIEVAL_AUTO ? model->mode : (enum retrieval_mode)r->mode;
}

static bool searches(const struct served_model *model, const struct request_retrieval *r) {
    return r->n_neighbors == 0 && model->retrieval != NULL && (r->given ? r->enabled : model->retrieve);
}

bool reading_prompts(const struct served_model *model, const struct request_retrieval *r) {
    return retrieval_prompts(mode_of(model, r)) && (searches(model, r) || r->n_neighbors > 0);
}

enum retrieval_query reading_query(const struct served_model *model, const struct request_retrieval *r) {
    return r->query < 0 ? model->query : (enum retrieval_query)r->query;
}

struct retriever_choice reading_choice(const struct served_model *model, const struct request_choice *c) {
    struct retriever_choice choice = model->choice;
    if (c->hybrid >= 0) choice.way = c->hybrid ? RETRIEVE_BOTH : RETRIEVE_NEAREST;
    if (c->rerank == 0) choice.rerank = 0;
    if (c->pictures >= 0) choice.no_pictures = !c->pictures;
    if (c->per_document >= 0) choice.per_document = (int)c->per_document;
    if (c->distinct >= 0) choice.distinct = (float)c->distinct;
    return choice;
}

/* Check. */

bool reading_check_choice(const struct served_model *model, const struct request_choice *c, const char *field,
                          struct failure *f) {
    if (c->rerank <= 0 || model->choice.rerank > 0) return true;
    return failure_set(f, 400, "no_reranker", field, "this server has no reranker (option retrieval.reranker)");
}

static bool check_attention(const struct served_model *model, const struct request_retrieval *r, struct failure *f) {
    if (model->info->chunk_length == 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.mode",
                           "the model %s has no chunked cross attention; retrieval.mode is \"prompt\" for it",
                           model->id);
    if (r->n_neighbors == 0 && !model->attends)
        return failure_set(f, 400, "no_retrieval", "retrieval.mode",
                           "the collection was cut by another tokenizer or in other chunks than the model %s has; "
                           "retrieval.mode is \"prompt\" for it",
                           model->id);
    if (r->n_neighbors > 0 && model->eod < 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.neighbors",
                           "the model has no end-of-document id to pad neighbours with");
    int k = max_int((int)r->k, r->n_neighbors), most = model->limits.max_neighbors;
    if (k > most)
        return failure_set(f, 400, "invalid_value", r->n_neighbors > 0 ? "retrieval.neighbors" : "retrieval.k",
                           "%d neighbours: cross attention has room for %d of a chunk (option retrieval.max_neighbors)",
                           k, most);
    if (r->every > 0)
        return failure_set(f, 400, "invalid_value", "retrieval.every",
                           "retrieval.every is for retrieval.mode \"prompt\": by cross attention every chunk has "
                           "neighbours of its own");
    return true;
}

/* Passages that are sought again stand in other places for every part of the answer. */
static bool seeks_again(const struct served_model *model, const struct request_retrieval *r) {
    int64_t every = r->every < 0 ? model->every : r->every;
    return every > 0 && searches(model, r) && !retrieval_attends(mode_of(model, r));
}

/* Fields about what is read are for requests that read something. */
static bool check_reads(const struct served_model *model, const struct request_retrieval *r, struct failure *f) {
    const char *field = r->attention ? "retrieval.attention" : r->compared ? "retrieval.compare" : NULL;
    if (field == NULL) return true;
    if (r->n_neighbors == 0 && !searches(model, r))
        return failure_set(f, 400, "no_retrieval", field,
                           "%s is for requests that read neighbours, and this one reads none", field);
    if ((r->attention || r->compared == COMPARED_WITHOUT) && seeks_again(model, r))
        return failure_set(f, 400, "unsupported_parameter", field,
                           "%s is for passages that are sought once: send \"every\": 0", field);
    return true;
}

bool reading_check(const struct served_model *model, const struct request_retrieval *r, struct failure *f) {
    if (!r->given || !r->enabled) return check_reads(model, r, f);
    if (r->n_neighbors == 0 && model->retrieval == NULL)
        return failure_set(f, 400, "no_collection", "retrieval",
                           "this server has no collection (option retrieval.collection); send retrieval.neighbors");
    return (!retrieval_attends(mode_of(model, r)) || check_attention(model, r, f)) && check_reads(model, r, f) &&
           reading_check_choice(model, &r->choice, "retrieval.rerank", f);
}

/* Ask. */

static float floor_of(const struct served_model *model, const struct request_retrieval *r) {
    return r->min_similarity < -1 ? model->min_similarity : (float)r->min_similarity;
}

/* The caller's texts as the model attends to neighbours: cut or padded to r tokens. */
static bool give_neighbors(const struct served_model *model, const struct request_retrieval *r,
                           struct sequence_neighbors *to, struct failure *f) {
    int length = model->info->retrieved_length;
    struct error e;
    struct tokens ids = {0};
    bool ok = true;
    to->given_ids = xmalloc((size_t)r->n_neighbors * (size_t)length * sizeof *to->given_ids);
    for (int i = 0; ok && i < r->n_neighbors; i++) {
        int32_t *row = to->given_ids + (size_t)i * (size_t)length;
        ids.n = 0;
        if (tokenizer_encode(model->tokenizer, r->neighbors[i].text, r->neighbors[i].size, TOKENIZER_PLAIN, &ids, &e))
            ok = failure_from_error(f, &e);
        for (int j = 0; ok && j < length; j++) row[j] = j < ids.n ? ids.ids[j] : model->eod;
    }
    tokens_free(&ids);
    to->given_k = r->n_neighbors;
    return ok;
}

static bool ask_neighbors(const struct served_model *model, const struct request_retrieval *r,
                          struct sequence_neighbors *to, struct failure *f) {
    if (r->n_neighbors > 0) return give_neighbors(model, r, to, f);
    to->search = searches(model, r);
    to->k = r->k ? (int)r->k : model->k;
    to->min_similarity = floor_of(model, r);
    return true;
}

static void give_passages(const struct request_retrieval *r, struct sequence_passages *to) {
    to->given = xcalloc((size_t)r->n_neighbors, sizeof *to->given);
    for (; to->n_given < r->n_neighbors; to->n_given++) {
        struct text_span text = r->neighbors[to->n_given];
        to->given[to->n_given] = (struct text_span){xstrndup(text.text, text.size), text.size};
    }
}

static void ask_passages(const struct served_model *model, const struct request_retrieval *r,
                         struct sequence_passages *to) {
    bool attends = retrieval_attends(mode_of(model, r));
    if (r->n_neighbors > 0) {
        give_passages(r, to);
        return;
    }
    *to = (struct sequence_passages){.search = searches(model, r),
                                     .k = r->k ? (int)r->k : model->k_passages,
                                     .min_similarity = floor_of(model, r),
                                     .every = attends        ? 0
                                              : r->every < 0 ? model->every
                                                             : (int)r->every};
}

/* Adds names to those that searches leave out. */
static void exclude(struct sequence_request *asked, const struct document_names *names) {
    size_t n = (size_t)asked->n_excluded + (size_t)names->n;
    if (names->n == 0) return;
    asked->excluded = xrealloc(asked->excluded, n * sizeof *asked->excluded);
    for (int i = 0; i < names->n; i++) {
        const struct text_span *name = &names->all[i];
        asked->excluded[asked->n_excluded++] = (struct text_span){xstrndup(name->text, name->size), name->size};
    }
}

bool reading_ask(const struct served_model *model, const struct request_retrieval *r, struct sequence_request *asked,
                 struct failure *f) {
    enum retrieval_mode mode = mode_of(model, r);
    exclude(asked, &r->excluded);
    asked->filter = filter_join(model->filter, r->filter);
    asked->choice = reading_choice(model, &r->choice);
    asked->tell_attention = r->attention != ATTENTION_UNTOLD;
    if (retrieval_prompts(mode)) ask_passages(model, r, &asked->passages);
    return !retrieval_attends(mode) || ask_neighbors(model, r, &asked->neighbors, f);
}

bool reading_ask_without(const struct served_model *model, const struct request_retrieval *r,
                         struct sequence_request *asked, struct failure *f) {
    exclude(asked, &r->without);
    bool ok = reading_ask(model, r, asked, f);
    asked->tell_attention = false;
    return ok;
}
