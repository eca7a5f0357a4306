/* tests/fuzz/fuzz_request.c: bytes of a request body: either a request within the limits, or a
 * failure with words. */
#include <stdint.h>
#include <string.h>

#include "server/api/fields/completion_fields.h"
#include "server/api/fields/embedding_fields.h"
#include "server/api/fields/search_fields.h"
#include "server/api/fields/token_fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct request_limits limits = {
    .vocab = 100,
    .context = 64,
    .max_prompts = 3,
    .max_choices = 6,
    .max_stops = 4,
    .max_biases = 3,
    .max_logprobs = 5,
    .retrieval = {.max_k = 4, .min_every = 4, .max_excluded = 3, .max_filter_bytes = 4096},
    .metadata = {100, 4096},
    .max_prompts_option = "server.max_prompts"};

/* There is one model, "m". */
static const struct request_limits *find_limits(void *context, const char *model,
                                                struct failure *f) {
    (void)context;
    if (model == NULL || strcmp(model, "m") == 0) return &limits;
    failure_set(f, 400, "model_not_found", "model", "there is no %.100s", model);
    return NULL;
}

static const struct request_models models = {find_limits, NULL, &limits};

static void check_failure(struct failure *f) {
    struct buffer out = {0};
    CHECK(f->http == 400 && f->code != NULL && f->message[0] != '\0');
    failure_write(f, &out);
    buffer_free(&out);
    failure_free(f);
}

static void check_request(const struct completion_request *r) {
    CHECK(r->prompts.n >= 1 && r->prompts.n <= limits.max_prompts);
    for (int i = 0; i < r->prompts.n; i++)
        for (int j = 0; j < r->prompts.all[i].n_ids; j++)
            CHECK(r->prompts.all[i].ids[j] >= 0 && r->prompts.all[i].ids[j] < limits.vocab);
    const struct request_writing *w = &r->writing;
    CHECK(r->max_tokens >= 0 && r->max_tokens <= INT32_MAX && w->top_k >= -1 &&
          w->top_k <= INT32_MAX);
    CHECK(w->temperature >= 0 && w->temperature <= 2 && w->top_p > 0 && w->top_p <= 1 &&
          w->min_p >= 0 && w->min_p <= 1);
    CHECK(w->repetition_penalty > 0 && w->min_tokens >= 0 && w->min_tokens <= r->max_tokens);
    CHECK(w->n >= 1 && (r->best_of == 0 || r->best_of >= w->n) && r->best_of <= limits.max_choices);
    for (int i = 0; i < w->n_biases; i++)
        CHECK(w->biases[i].id >= 0 && w->biases[i].id < limits.vocab);
    for (int i = 0; i < w->stop_ids.n; i++)
        CHECK(w->stop_ids.ids[i] >= 0 && w->stop_ids.ids[i] < limits.vocab);
    CHECK(r->logprobs >= -1 && r->logprobs <= limits.max_logprobs);
    CHECK(w->retrieval.choice.every == 0 ||
          w->retrieval.choice.every >= limits.retrieval.min_every);
    CHECK(w->stops.n <= limits.max_stops && w->retrieval.neighbors.n <= limits.retrieval.max_k);
}

/* The same bytes as each of the other bodies. */
static void try_others(const char *text, size_t size) {
    struct embedding_request embedding;
    struct rerank_request rerank;
    struct tokenize_request tokenize;
    struct detokenize_request detokenize;
    struct failure f = {0};
    if (!embedding_request_parse(&embedding, &embedding_table, text, size, &models, &f))
        check_failure(&f);
    embedding_request_free(&embedding);
    if (!rerank_request_parse(&rerank, text, size, &models, &f)) check_failure(&f);
    rerank_request_free(&rerank);
    if (!tokenize_request_parse(&tokenize, text, size, &models, &f)) check_failure(&f);
    tokenize_request_free(&tokenize);
    if (!detokenize_request_parse(&detokenize, text, size, &models, &f)) check_failure(&f);
    detokenize_request_free(&detokenize);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct completion_request r;
    struct search_request s;
    struct failure f = {0};
    if (completion_request_parse(&r, (const char *)data, size, &models, &f))
        check_request(&r);
    else
        check_failure(&f);
    completion_request_free(&r);
    if (!search_request_parse(&s, (const char *)data, size, &limits, &f)) check_failure(&f);
    search_request_free(&s);
    try_others((const char *)data, size);
    return 0;
}
