/* server/api/text/completions.c: POST /v1/completions: from a checked request to sequences, and
 * from their progress to an answer. The JSON itself is in completion_json.c. */
#include "server/api/text/completions.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/text/infill.h"
#include "server/api/text/quotes_ask.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/writing_ask.h"

/* The prompt. */

/* Ids of a text, or those that were sent, behind *ids; the caller frees them on failure too. */
static bool tokenize(const struct completion *completion, const struct request_prompt *prompt,
                     int flags, struct tokens *ids, struct failure *failure) {
    struct error e;
    for (int i = 0; i < prompt->n_ids; i++) tokens_append(ids, prompt->ids[i], 0);
    const char *text = prompt->text ? prompt->text : "";
    if (prompt->ids == NULL &&
        tokenizer_encode(completion->base.model->tokenizer, text, prompt->size, flags, ids, &e))
        return failure_from_error(failure, &e);
    return true;
}

/* A prompt with a suffix. The token that ends the answer becomes one of the request's. */
static bool tokenize_infill(struct completion *completion, const struct request_prompt *prompt,
                            struct tokens *ids, struct failure *failure) {
    struct request_ids *stops = &completion->request.writing.stop_ids;
    const struct buffer *suffix = &completion->request.suffix;
    int32_t end;
    if (!infill_tokenize(completion->base.model, prompt,
                         (struct text_span){suffix->data, suffix->size}, ids, &end, failure))
        return false;
    if (end < 0 || completion->request.writing.ignore_eos ||
        (stops->n > 0 && stops->ids[stops->n - 1] == end))
        return true;
    stops->ids = xrealloc(stops->ids, ((size_t)stops->n + 1) * sizeof *stops->ids);
    stops->ids[stops->n] = end;
    stops->n++;
    return true;
}

/* A text that is never empty: the prompt of a decoder, or an encoder's source. */
static bool tokenize_prompt(struct completion *completion, const struct request_prompt *prompt,
                            struct tokens *ids, struct failure *failure) {
    if (completion->request.suffix.size > 0)
        return tokenize_infill(completion, prompt, ids, failure);
    if (!tokenize(completion, prompt, TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, ids,
                  failure))
        return false;
    if (ids->n == 0 && completion->base.model->eod < 0)
        return failure_set(
            failure, 400, "invalid_value", "prompt",
            "the prompt is empty, and the model has no token to start an empty text from");
    if (ids->n == 0) tokens_append(ids, completion->base.model->eod, 0);
    return true;
}

/* The rows of a decoder whose encoder reads the prompt: its start id, then the beginning of the
 * answer. */
static bool tokenize_target(const struct completion *completion, struct tokens *ids,
                            struct failure *failure) {
    tokens_append(ids, completion->base.model->info->start, 0);
    return tokenize(completion, &completion->request.target, TOKENIZER_PARSE_SPECIAL, ids, failure);
}

static bool check_context(const struct completion *completion, int n_prompt,
                          struct failure *failure) {
    int64_t n = completion->request.max_tokens;
    if (n_prompt + n <= completion->base.model->limits.context) return true;
    return failure_set(
        failure, 400, "context_length_exceeded", "max_tokens",
        "the prompt has %d tokens and max_tokens is %lld, together %lld; the limit is %d tokens "
        "(the model's, or option server.max_context)",
        n_prompt, (long long)n, (long long)(n_prompt + n), completion->base.model->limits.context);
}

/* The text of the prompt and where its tokens start in it: as it was sent, or what the ids say. */
static void keep_prompt(const struct completion *completion, struct completion_choice *choice,
                        const struct request_prompt *prompt, const struct tokens *ids) {
    const struct tokenizer *tokenizer = completion->base.model->tokenizer;
    choice->prompt_starts = xcalloc((size_t)ids->n, sizeof *choice->prompt_starts);
    if (prompt->ids == NULL) {
        buffer_append(&choice->prompt_text, prompt->text, prompt->size);
        if (prompt->size > 0)
            memcpy(choice->prompt_starts, ids->starts, (size_t)ids->n * sizeof *ids->starts);
        return;
    }
    struct detokenizer detokenizer = {0};
    int first =
        completion->base.model->info->reads_source ? 1 : 0; /* the decoder's start id is no text */
    for (int i = first; i < ids->n; i++) {
        choice->prompt_starts[i] = (uint32_t)choice->prompt_text.size;
        if (tokenizer_is_special(tokenizer, ids->ids[i]))
            tokenizer_piece(tokenizer, ids->ids[i], &choice->prompt_text);
        else
            detokenizer_push(&detokenizer, tokenizer, ids->ids[i], &choice->prompt_text);
    }
    detokenizer_finish(&detokenizer, &choice->prompt_text);
}

/* Open. */

static bool check_source(const struct completion *completion, int n_source,
                         struct failure *failure) {
    if (n_source <= completion->base.model->limits.context) return true;
    return failure_set(
        failure, 400, "context_length_exceeded", "prompt",
        "the prompt has %d tokens; the encoder reads %d (the model's limit, or option "
        "server.max_context)",
        n_source, completion->base.model->limits.context);
}

/* All that the choices of one prompt have in common: `ids` are the decoder's rows, `source` the
 * encoder's where there is one. */
struct opening {
    struct tokens ids, source;
    const struct request_prompt *shown; /* what echo puts before the text */
    const struct principal *who;
    struct waker waker;
};

/* The request in the engine's words. */
static bool ask(const struct completion *completion, const struct choice *choice,
                const struct opening *opening, struct failure *failure) {
    const struct completion_request *request = &completion->request;
    const struct served_model *model = completion->base.model;
    struct sequence_request *asked = &choice->sequence->asked;
    if (!check_source(completion, opening->source.n, failure) ||
        !check_context(completion, opening->ids.n, failure))
        return false;
    asked->n_prompt = opening->ids.n;
    asked->prompt = writing_copy_ids(opening->ids.ids, opening->ids.n);
    asked->n_source = opening->source.n;
    asked->source = writing_copy_ids(opening->source.ids, opening->source.n);
    asked->max_tokens = (int)request->max_tokens;
    asked->n_top = (int)(request->logprobs > request->prompt_logprobs ? request->logprobs
                                                                      : request->prompt_logprobs);
    asked->score_prompt =
        (request->echo && request->logprobs >= 0) || request->prompt_logprobs >= 0;
    asked->rank_prompt = request->prompt_logprobs >= 0;
    int number = request->writing.has_seed ? choice->number : choice->index;
    return writing_ask(model, &request->writing, number, asked, failure) &&
           writing_compare(model, &request->writing, choice->sequence, failure);
}

/* Answer `number` to a prompt. */
static bool open_choice(struct completion *completion, const struct opening *opening, int number,
                        struct failure *failure) {
    struct completion_choice *choice = (struct completion_choice *)writing_answer_add(
        &completion->base, sizeof *choice, opening->who, opening->waker);
    choice->base.number = number;
    if (!ask(completion, &choice->base, opening, failure)) return false;
    if (completion->request.echo) keep_prompt(completion, choice, opening->shown, &opening->ids);
    return true;
}

static bool open_prompt(struct completion *completion, const struct request_prompt *prompt,
                        struct opening *opening, struct failure *failure) {
    bool encodes = completion->base.model->info->reads_source;
    opening->shown = encodes ? &completion->request.target : prompt;
    opening->ids = opening->source = (struct tokens){0};
    bool ok =
        tokenize_prompt(completion, prompt, encodes ? &opening->source : &opening->ids, failure) &&
        (!encodes || tokenize_target(completion, &opening->ids, failure));
    for (int i = 0; ok && i < completion->per_prompt; i++)
        ok = open_choice(completion, opening, i, failure);
    tokens_free(&opening->ids);
    tokens_free(&opening->source);
    return ok;
}

static bool check_target(const struct completion *completion, struct failure *failure) {
    if (!completion->request.has_target || completion->base.model->info->reads_source) return true;
    return failure_set(
        failure, 400, "unsupported_parameter", "target",
        "target is for models with an encoder, and %s has none: write it behind the prompt",
        completion->base.model->id);
}

static bool open_choices(struct completion *completion, const struct principal *who,
                         struct waker waker, struct failure *failure) {
    struct completion_request *request = &completion->request;
    struct opening opening = {.who = who, .waker = waker};
    if (!retrieval_settle(completion->base.model, &request->writing.retrieval, failure) ||
        !quotes_settle(completion->base.model, &request->writing, false, failure) ||
        !check_target(completion, failure))
        return false;
    completion->per_prompt = (int)(request->best_of ? request->best_of : request->writing.n);
    for (int i = 0; i < request->prompts.n; i++)
        if (!open_prompt(completion, &request->prompts.all[i], &opening, failure)) return false;
    return true;
}

/* The whole answer. */

static double mean_logprob(const struct choice *choice) {
    return choice->progress.n_ids ? choice->progress.logprob_sum / choice->progress.n_ids : 0;
}

/* Of the answers to each prompt the n likeliest per token are sent, the likeliest first. */
static void choose_best(struct completion *completion) {
    struct choice **choices = completion->base.choices;
    int n = (int)completion->request.writing.n;
    for (int i = 0; i < completion->base.n; i++) {
        int first = i - i % completion->per_prompt, rank = 0;
        double mean = mean_logprob(choices[i]);
        for (int j = first; j < first + completion->per_prompt; j++) {
            double other = mean_logprob(choices[j]);
            rank += other > mean || (other == mean && j < i);
        }
        choices[i]->index = rank < n ? first / completion->per_prompt * n + rank : -1;
    }
}

static void write_whole(struct writing_answer *answer, struct buffer *out) {
    struct completion *completion = (struct completion *)answer;
    if (completion->per_prompt > completion->request.writing.n) choose_best(completion);
    openai_write_whole(answer, out);
}

static void free_choice(struct choice *choice) {
    struct completion_choice *own = (struct completion_choice *)choice;
    buffer_free(&own->prompt_text);
    free(own->prompt_starts);
}

static const struct writing_ops completion_ops = {.openai = &completion_shape,
                                                  .write_new = completion_write_new,
                                                  .write_comparison = openai_write_comparison,
                                                  .write_end = openai_write_end,
                                                  .write_whole = write_whole,
                                                  .free_choice = free_choice};

static void completion_cancel(struct answer *answer) {
    writing_answer_cancel((struct writing_answer *)answer);
}

static void completion_close(struct answer *answer) {
    struct completion *completion = (struct completion *)answer;
    writing_answer_free(&completion->base);
    completion_request_free(&completion->request);
    free(completion);
}

static bool parse_completion(struct completion *completion, struct api *api,
                             const struct api_request *request, struct failure *failure) {
    const struct request_models models = writing_models(api);
    if (!completion_request_parse(&completion->request, request->body, request->size, &models,
                                  failure))
        return false;
    writing_choose_seed(&completion->request.writing);
    completion->base.model = api_model(api, completion->request.model, failure);
    return true;
}

struct answer *completions_open(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    static const struct answer_ops ops = {writing_answer_poll, completion_cancel, completion_close};
    struct completion *completion = xcalloc(1, sizeof *completion);
    struct answer *answer = &completion->base.base;
    writing_answer_init(&completion->base, &completion_ops, &completion->request.writing);
    if (!parse_completion(completion, api, request, failure) ||
        !open_choices(completion, &request->principal, waker, failure) ||
        !writing_answer_submit(&completion->base, failure)) {
        completion_close(answer);
        return NULL;
    }
    answer_init(answer, &ops, JSON_TYPE);
    writing_answer_begin(&completion->base);
    return answer;
}
