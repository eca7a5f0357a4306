/* server/api/writing.c: see writing.h. */
#include "server/api/writing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint64_t random_number(void) {
    uint64_t v = 0;
    CHECK(getrandom(&v, sizeof v, 0) == sizeof v); /* a read this small never comes short */
    return v;
}

static const struct request_limits *choose_model(void *context, const char *name, struct failure *f) {
    const struct served_model *model = api_model(context, name, f);
    return model ? &model->limits : NULL;
}

struct request_models writing_models(struct api *a) {
    return (struct request_models){choose_model, a, &a->largest};
}

/* Retrieval. */

bool writing_check(const struct served_model *model, const struct request_writing *w, struct failure *f) {
    const struct request_retrieval *r = &w->retrieval;
    if (!r->given || !r->enabled) return true;
    if (r->n_neighbors > 0 && model->info->chunk_length == 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.neighbors",
                           "the model %s reads no neighbours by cross attention; put the texts into the prompt",
                           model->id);
    if (r->n_neighbors == 0 && model->retrieval == NULL)
        return failure_set(f, 400, "no_collection", "retrieval",
                           "this server has no collection (option retrieval.collection); send retrieval.neighbors");
    if (r->n_neighbors > 0 && model->eod < 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.neighbors",
                           "the model has no end-of-document id to pad neighbours with");
    return true;
}

/* The caller's texts as the model reads neighbours: cut or padded to r tokens. */
static bool neighbors_give(const struct served_model *model, const struct request_writing *w,
                           struct generation_neighbors *to, struct failure *f) {
    const struct request_retrieval *r = &w->retrieval;
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

bool writing_searches(const struct served_model *model, const struct request_writing *w) {
    const struct request_retrieval *r = &w->retrieval;
    return r->n_neighbors == 0 && model->retrieval != NULL && (r->given ? r->enabled : model->retrieve);
}

static bool neighbors_ask(const struct served_model *model, const struct request_writing *w,
                          struct generation_neighbors *to, struct failure *f) {
    const struct request_retrieval *r = &w->retrieval;
    if (r->n_neighbors > 0) return neighbors_give(model, w, to, f);
    to->search = writing_searches(model, w);
    to->k = r->k ? (int)r->k : model->k;
    to->min_similarity = r->min_similarity < -1 ? model->min_similarity : (float)r->min_similarity;
    return true;
}

/* Sampling. */

static void sampling_ask(const struct request_writing *w, int number, struct sample_params *p) {
    *p = (struct sample_params){.temperature = (float)w->temperature,
                                .top_p = (float)w->top_p,
                                .min_p = (float)w->min_p,
                                .top_k = w->top_k > 0 ? (int)w->top_k : 0,
                                .seed = w->has_seed ? (uint64_t)w->seed + (uint64_t)number : random_number()};
}

static void changes_ask(const struct request_writing *w, struct generation_changes *to) {
    *to = (struct generation_changes){.presence = (float)w->presence_penalty,
                                      .frequency = (float)w->frequency_penalty,
                                      .repetition = (float)w->repetition_penalty,
                                      .n_biases = w->n_biases};
    if (w->n_biases == 0) return;
    to->biases = xcalloc((size_t)w->n_biases, sizeof *to->biases);
    for (int i = 0; i < w->n_biases; i++) to->biases[i] = (struct generation_bias){w->biases[i].id, w->biases[i].bias};
}

static void end_ask(const struct request_writing *w, struct generation_end *to) {
    size_t bytes = (size_t)w->stop_ids.n * sizeof *to->stop_ids;
    *to = (struct generation_end){.ignore_eos = w->ignore_eos,
                                  .include_stop = w->include_stop,
                                  .min_tokens = (int)w->min_tokens,
                                  .n_stop_ids = w->stop_ids.n};
    stops_copy(&to->stops, &w->stops);
    if (bytes > 0) to->stop_ids = memcpy(xmalloc(bytes), w->stop_ids.ids, bytes);
}

bool writing_ask(const struct served_model *model, const struct request_writing *w, int number,
                 struct generation_request *asked, struct failure *f) {
    sampling_ask(w, number, &asked->sampling);
    changes_ask(w, &asked->changes);
    end_ask(w, &asked->end);
    asked->wake_per_token = w->stream;
    return neighbors_ask(model, w, &asked->neighbors, f);
}

/* From the request to the engine, and to the answer. */

int32_t *writing_copy_ids(const struct tokens *ids) {
    size_t bytes = (size_t)ids->n * sizeof *ids->ids;
    int32_t *copy = xmalloc(bytes);
    if (bytes > 0) memcpy(copy, ids->ids, bytes);
    return copy;
}

bool writing_submit(const struct served_model *model, struct generation **generations, int n, struct failure *f) {
    struct error e;
    enum status status = engine_submit(model->engine, generations, n, &e);
    if (status == STATUS_OK) return true;
    failure_from_error(f, &e);
    if (status == STATUS_BUSY) f->retry_after = engine_retry_after(model->engine);
    return false;
}

void writing_answer_init(struct answer *a, const struct answer_ops *ops, bool stream) {
    answer_init(a, ops, stream ? "text/event-stream" : JSON_TYPE);
    a->stream = stream;
    if (stream) answer_add_header(a, "X-Accel-Buffering", "no"); /* nginx would keep events back */
}
