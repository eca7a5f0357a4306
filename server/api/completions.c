/* server/api/completions.c: POST /v1/completions: from a checked request to generations, and from their progress to an
 * answer. The JSON itself is in completion_json.c. */
#include "server/api/completions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t random_number(void) {
    uint64_t v = 0;
    CHECK(getrandom(&v, sizeof v, 0) == sizeof v); /* a read this small never comes short */
    return v;
}

/* The prompt. */

/* Ids of the prompt into *ids, freed by the caller on failure too. */
static bool tokenize(struct completion *c, const struct request_prompt *p, struct tokens *ids, struct failure *f) {
    struct error e;
    for (int i = 0; i < p->n_ids; i++) tokens_append(ids, p->ids[i], 0);
    if (p->ids == NULL &&
        tokenizer_encode(c->api->tokenizer, p->text, p->size, TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, ids, &e))
        return failure_from_error(f, &e);
    if (ids->n == 0 && c->api->eod < 0)
        return failure_set(f, 400, "invalid_value", "prompt",
                           "the prompt is empty, and the model has no token to start an empty text from");
    if (ids->n == 0) tokens_append(ids, c->api->eod, 0);
    return true;
}

static bool check_context(const struct completion *c, int n_prompt, struct failure *f) {
    int64_t n = c->request.max_tokens;
    if (n_prompt + n <= c->api->limits.context) return true;
    return failure_set(f, 400, "context_length_exceeded", "max_tokens",
                       "the prompt has %d tokens and max_tokens is %lld, together %lld; the limit is %d tokens "
                       "(the model's, or option server.max_context)",
                       n_prompt, (long long)n, (long long)(n_prompt + n), c->api->limits.context);
}

/* The text of the prompt and where its tokens start in it: as it was sent, or what the ids say. */
static void keep_prompt(struct completion *c, struct choice *choice, const struct request_prompt *p,
                        const struct tokens *ids) {
    const struct tokenizer *t = c->api->tokenizer;
    choice->prompt_starts = xcalloc((size_t)ids->n, sizeof *choice->prompt_starts);
    if (p->ids == NULL) {
        buffer_append(&choice->prompt_text, p->text, p->size);
        if (p->size > 0) memcpy(choice->prompt_starts, ids->starts, (size_t)ids->n * sizeof *ids->starts);
        return;
    }
    struct detokenizer d = {0};
    for (int i = 0; i < ids->n; i++) {
        choice->prompt_starts[i] = (uint32_t)choice->prompt_text.size;
        if (tokenizer_is_special(t, ids->ids[i]))
            tokenizer_piece(t, ids->ids[i], &choice->prompt_text);
        else
            detokenizer_push(&d, t, ids->ids[i], &choice->prompt_text);
    }
    detokenizer_finish(&d, &choice->prompt_text);
}

/* Retrieval. */

static bool check_retrieval(const struct completion *c, struct failure *f) {
    const struct request_retrieval *r = &c->request.retrieval;
    const struct api *a = c->api;
    if (!r->given || !r->enabled) return true;
    if (a->info->chunk_length == 0)
        return failure_set(f, 400, "no_retrieval", "retrieval", "the model %s reads no neighbours", a->model_id);
    if (r->n_neighbors == 0 && a->retrieval == NULL)
        return failure_set(f, 400, "no_collection", "retrieval",
                           "this server has no collection (option retrieval.collection); send retrieval.neighbors");
    if (r->n_neighbors > 0 && a->eod < 0)
        return failure_set(f, 400, "no_retrieval", "retrieval.neighbors",
                           "the model has no end-of-document id to pad neighbours with");
    return true;
}

/* The caller's texts as the model reads neighbours: cut or padded to r tokens. */
static bool give_neighbors(struct completion *c, struct generation *g, struct failure *f) {
    const struct request_retrieval *r = &c->request.retrieval;
    int length = c->api->info->retrieved_length;
    struct error e;
    struct tokens ids = {0};
    bool ok = true;
    g->given_ids = xmalloc((size_t)r->n_neighbors * (size_t)length * sizeof *g->given_ids);
    for (int i = 0; ok && i < r->n_neighbors; i++) {
        int32_t *row = g->given_ids + (size_t)i * (size_t)length;
        ids.n = 0;
        if (tokenizer_encode(c->api->tokenizer, r->neighbors[i].text, r->neighbors[i].size, TOKENIZER_PLAIN, &ids, &e))
            ok = failure_from_error(f, &e);
        for (int j = 0; ok && j < length; j++) row[j] = j < ids.n ? ids.ids[j] : c->api->eod;
    }
    tokens_free(&ids);
    g->given_k = r->n_neighbors;
    return ok;
}

static bool set_retrieval(struct completion *c, struct generation *g, struct failure *f) {
    const struct request_retrieval *r = &c->request.retrieval;
    const struct api *a = c->api;
    if (r->n_neighbors > 0) return give_neighbors(c, g, f);
    g->retrieve = a->retrieval != NULL && (r->given ? r->enabled : a->retrieve);
    g->k = r->k ? (int)r->k : a->k;
    g->min_similarity = r->min_similarity < -1 ? a->min_similarity : (float)r->min_similarity;
    return true;
}

/* Open. */

static bool fill(struct completion *c, struct choice *choice, const struct tokens *ids, struct failure *f) {
    const struct completion_request *r = &c->request;
    struct generation *g = choice->generation;
    if (!check_context(c, ids->n, f)) return false;
    g->n_prompt = ids->n;
    g->prompt = xmalloc((size_t)ids->n * sizeof *g->prompt);
    memcpy(g->prompt, ids->ids, (size_t)ids->n * sizeof *g->prompt);
    g->max_tokens = (int)r->max_tokens;
    g->sampling = (struct sample_params){.temperature = (float)r->temperature,
                                         .top_p = (float)r->top_p,
                                         .min_p = (float)r->min_p,
                                         .top_k = (int)r->top_k,
                                         .seed = r->has_seed ? (uint64_t)r->seed : random_number()};
    g->ignore_eos = r->ignore_eos;
    g->wake_per_token = r->stream;
    g->n_top = (int)r->logprobs;
    g->score_prompt = r->echo && r->logprobs >= 0;
    stops_copy(&g->stops, &r->stops);
    return set_retrieval(c, g, f);
}

static bool open_choice(struct completion *c, int i, struct waker waker, struct failure *f) {
    const struct request_prompt *p = &c->request.prompts[i];
    struct choice *choice = &c->choices[i];
    struct tokens ids = {0};
    choice->generation = generation_open();
    choice->generation->waker = waker;
    choice->generation->detokenizer.started = true; /* the answer goes on where the prompt ends */
    bool ok = tokenize(c, p, &ids, f) && fill(c, choice, &ids, f);
    if (ok && c->request.echo) keep_prompt(c, choice, p, &ids);
    tokens_free(&ids);
    return ok;
}

static bool open_choices(struct completion *c, struct waker waker, struct failure *f) {
    if (c->request.model && strcmp(c->request.model, c->api->model_id) != 0)
        return failure_set(f, 404, "model_not_found", "model",
                           "the model '%.100s' does not exist, this server has '%.100s'", c->request.model,
                           c->api->model_id);
    if (!check_retrieval(c, f)) return false;
    c->choices = xcalloc((size_t)c->request.n_prompts, sizeof *c->choices);
    for (int i = 0; i < c->request.n_prompts; i++) {
        c->n = i + 1;
        if (!open_choice(c, i, waker, f)) return false;
    }
    return true;
}

static bool submit(struct completion *c, struct failure *f) {
    struct error e;
    struct generation **generations = xcalloc((size_t)c->n, sizeof(struct generation *));
    for (int i = 0; i < c->n; i++) generations[i] = c->choices[i].generation;
    enum status status = engine_submit(c->api->engine, generations, c->n, &e);
    free(generations);
    return status == STATUS_OK || failure_from_error(f, &e);
}

/* Poll. */

static void read_choice(struct choice *choice) {
    choice->progress = generation_read(choice->generation, choice->text.size, &choice->text, &choice->error);
}

static enum answer_progress fail(struct completion *c, const struct error *e, struct buffer *out) {
    struct failure f;
    failure_from_error(&f, e);
    if (c->base.stream) {
        completion_write_end(c, &f, out);
    } else {
        c->base.http = f.http;
        failure_write(&f, out);
    }
    return ANSWER_COMPLETE;
}

static enum answer_progress completion_poll(struct answer *a, struct buffer *out) {
    struct completion *c = (struct completion *)a;
    size_t before = out->size;
    bool finished = true;
    for (int i = 0; i < c->n; i++) {
        struct choice *choice = &c->choices[i];
        if (choice->finished) continue;
        read_choice(choice);
        if (choice->progress.finish == FINISH_ERROR) return fail(c, &choice->error, out);
        if (a->stream) completion_write_event(c, choice, out);
        choice->finished = choice->progress.finish != FINISH_NONE;
        finished = finished && choice->finished;
    }
    if (!finished) return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
    if (a->stream)
        completion_write_end(c, NULL, out);
    else
        completion_write(c, out);
    return ANSWER_COMPLETE;
}

static void completion_cancel(struct answer *a) {
    struct completion *c = (struct completion *)a;
    for (int i = 0; i < c->n; i++) atomic_store(&c->choices[i].generation->cancelled, true);
    engine_notice(c->api->engine);
}

static void completion_close(struct answer *a) {
    struct completion *c = (struct completion *)a;
    if (c->n > 0) completion_cancel(a);
    for (int i = 0; i < c->n; i++) {
        struct choice *choice = &c->choices[i];
        generation_detach(choice->generation);
        generation_release(choice->generation);
        buffer_free(&choice->prompt_text);
        buffer_free(&choice->text);
        free(choice->prompt_starts);
    }
    completion_request_free(&c->request);
    free(c->choices);
    free(c);
}

struct answer *completions_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {completion_poll, completion_cancel, completion_close};
    struct completion *c = xcalloc(1, sizeof *c);
    c->base = (struct answer){.ops = &ops, .http = 200};
    c->api = a;
    c->created = time(NULL);
    snprintf(c->id, sizeof c->id, "cmpl-%016llx", (unsigned long long)random_number());
    if (completion_request_parse(&c->request, r->body, r->size, &a->limits, f) && open_choices(c, waker, f) &&
        submit(c, f)) {
        c->base.stream = c->request.stream;
        return &c->base;
    }
    completion_close(&c->base);
    return NULL;
}
