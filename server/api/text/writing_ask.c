/* server/api/text/writing_ask.c: see writing_ask.h. */
#include "server/api/text/writing_ask.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/api/text/grammars.h"
#include "server/api/text/quotes_ask.h"
#include "server/api/text/retrieval_ask.h"

uint64_t random_number(void) {
    uint64_t v = 0;
    CHECK(getrandom(&v, sizeof v, 0) == sizeof v); /* a read this small never comes short */
    return v;
}

static const struct request_limits *choose_model(void *context, const char *name,
                                                 struct failure *failure) {
    const struct served_model *model = api_model(context, name, failure);
    return model ? &model->limits : NULL;
}

struct request_models writing_models(struct api *api) {
    return (struct request_models){choose_model, api, &api->largest};
}

/* Random seeds are integers that every reader of JSON takes as they are, with those behind them. */
enum { SEED_BITS = 52 };

void writing_choose_seed(struct request_writing *writing) {
    if (!writing->has_seed) writing->seed = (int64_t)(random_number() >> (64 - SEED_BITS));
}

/* Grammars. */

/* The first piece of an answer that is a text of its own loses a blank (detokenizer), which no mask
 * knows. */
static bool grammar_ask(const struct served_model *model, const struct request_writing *writing,
                        struct sequence_request *asked, struct failure *failure) {
    asked->grammar_begin = (struct matcher_begin){
        .after = -1, .optional = -1, .quote_words = writing->retrieval.choice.quote_words};
    if (writing->guide.kind == GUIDE_NONE) return true;
    if (model->info->reads_source)
        return failure_set(
            failure, 400, "unsupported_parameter", writing->guide.field,
            "%s: the answers of models with an encoder, as %s, cannot be held to a grammar",
            writing->guide.field, model->id);
    asked->grammar = grammars_get(model->grammars, &writing->guide, failure);
    return asked->grammar != NULL && quotes_check(writing, asked, failure);
}

/* Sampling. */

int32_t *writing_copy_ids(const int32_t *ids, int n) {
    size_t bytes = (size_t)n * sizeof *ids;
    return bytes > 0 ? memcpy(xmalloc(bytes), ids, bytes) : NULL;
}

static void sampling_ask(const struct request_writing *writing, int number,
                         struct sample_params *params) {
    *params = (struct sample_params){.temperature = (float)writing->temperature,
                                     .top_p = (float)writing->top_p,
                                     .min_p = (float)writing->min_p,
                                     .top_k = writing->top_k > 0 ? (int)writing->top_k : 0,
                                     .seed = (uint64_t)writing->seed + (uint64_t)number};
}

static void changes_ask(const struct request_writing *writing, struct sequence_changes *to) {
    *to = (struct sequence_changes){.presence = (float)writing->presence_penalty,
                                    .frequency = (float)writing->frequency_penalty,
                                    .repetition = (float)writing->repetition_penalty,
                                    .no_repeat = (int)writing->no_repeat_ngram_size,
                                    .n_biases = writing->n_biases};
    if (writing->n_biases == 0) return;
    to->biases = xcalloc((size_t)writing->n_biases, sizeof *to->biases);
    for (int i = 0; i < writing->n_biases; i++)
        to->biases[i] = (struct sequence_bias){writing->biases[i].id, writing->biases[i].bias};
}

static void end_ask(const struct request_writing *writing, struct sequence_end *to) {
    *to = (struct sequence_end){
        .ignore_eos = writing->ignore_eos,
        .include_stop = writing->include_stop,
        .min_tokens = (int)writing->min_tokens,
        .stop_ids = writing_copy_ids(writing->stop_ids.ids, writing->stop_ids.n),
        .n_stop_ids = writing->stop_ids.n};
    stops_copy(&to->stops, &writing->stops);
}

/* Where the answer goes on with a text, its first token may be another than that of a text by
 * itself; what follows it is the same. */
static bool prediction_ask(const struct served_model *model, const struct request_writing *writing,
                           struct sequence_request *asked, struct failure *failure) {
    struct tokens ids = {0};
    struct error e = {0};
    if (writing->prediction.size == 0) return true;
    if (tokenizer_encode(model->tokenizer, writing->prediction.data, writing->prediction.size,
                         TOKENIZER_PLAIN, &ids, &e))
        error_prefix(&e, "prediction");
    asked->predicted = writing_copy_ids(ids.ids, ids.n);
    asked->n_predicted = ids.n;
    tokens_free(&ids);
    return e.status == STATUS_OK || failure_from_error(failure, &e);
}

bool writing_ask(const struct served_model *model, const struct request_writing *writing,
                 int number, struct sequence_request *asked, struct failure *failure) {
    sampling_ask(writing, number, &asked->sampling);
    changes_ask(writing, &asked->changes);
    end_ask(writing, &asked->end);
    asked->wake_per_token = writing->stream;
    return retrieval_ask(model, &writing->retrieval, asked, failure) &&
           grammar_ask(model, writing, asked, failure) &&
           prediction_ask(model, writing, asked, failure);
}

/* The same request that reads nothing beside its prompt, whose answer is scored and not written. */
static struct sequence *sequence_without(const struct sequence *sequence) {
    const struct sequence_request *asked = &sequence->asked;
    struct sequence *without = sequence_open();
    struct sequence_request *to = &without->asked;
    without->answer.waker = sequence->answer.waker;
    to->principal = principal_hold(asked->principal);
    to->prompt = writing_copy_ids(asked->prompt, asked->n_prompt);
    to->n_prompt = asked->n_prompt;
    to->source = writing_copy_ids(asked->source, asked->n_source);
    to->n_source = asked->n_source;
    to->pictures = picture_set_hold(asked->pictures);
    to->max_tokens = asked->max_tokens;
    to->n_top = 0;
    return without;
}

bool writing_compare(const struct served_model *model, const struct request_writing *writing,
                     struct sequence *sequence, struct failure *failure) {
    const struct request_retrieval *retrieval = &writing->retrieval;
    struct sequence_request *asked = &sequence->asked;
    bool judges = retrieval->choice.support && sequence_reads_texts(asked) && asked->max_tokens > 0;
    if (retrieval->compared == COMPARED_WITH_NOTHING && !judges) return true;
    if (asked->max_tokens == 0)
        return failure_set(failure, 400, "invalid_value", "retrieval.compare",
                           "retrieval.compare scores what is written, and max_tokens is 0");
    struct sequence *without = asked->comparison = sequence_without(sequence);
    asked->n_top = max_int(0, asked->n_top);
    if (retrieval->compared != COMPARED_WITHOUT) return true;
    if (judges) without->asked.comparison = sequence_without(sequence);
    return retrieval_ask_without(model, retrieval, &without->asked, failure);
}
