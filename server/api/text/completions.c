/* server/api/text/completions.c: POST /v1/completions: from a checked request to sequences, and from their progress
 * to an answer. The JSON itself is in completion_json.c. */
#include "server/api/text/completions.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/text/infill.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/writing_ask.h"

/* The prompt. */

/* Ids of a text, or those that were sent, behind *ids; the caller frees them on failure too. */
static bool tokenize(const struct completion *c, const struct request_prompt *p, int flags, struct tokens *ids,
                     struct failure *f) {
    struct error e;
    for (int i = 0; i < p->n_ids; i++) tokens_append(ids, p->ids[i], 0);
    const char *text = p->text ? p->text : "";
    if (p->ids == NULL && tokenizer_encode(c->base.model->tokenizer, text, p->size, flags, ids, &e))
        return failure_from_error(f, &e);
    return true;
}

/* A prompt with a suffix. The token that ends the answer becomes one of the request's. */
static bool tokenize_infill(struct completion *c, const struct request_prompt *p, struct tokens *ids,
                            struct failure *f) {
    struct request_ids *stops = &c->request.writing.stop_ids;
    const struct buffer *suffix = &c->request.suffix;
    int32_t end;
    if (!infill_tokenize(c->base.model, p, (struct text_span){suffix->data, suffix->size}, ids, &end, f)) return false;
    if (end < 0 || c->request.writing.ignore_eos || (stops->n > 0 && stops->ids[stops->n - 1] == end)) return true;
    stops->ids = xrealloc(stops->ids, ((size_t)stops->n + 1) * sizeof *stops->ids);
    stops->ids[stops->n] = end;
    stops->n++;
    return true;
}

/* A text that is never empty: the prompt of a decoder, or an encoder's source. */
static bool tokenize_prompt(struct completion *c, const struct request_prompt *p, struct tokens *ids,
                            struct failure *f) {
    if (c->request.suffix.size > 0) return tokenize_infill(c, p, ids, f);
    if (!tokenize(c, p, TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, ids, f)) return false;
    if (ids->n == 0 && c->base.model->eod < 0)
        return failure_set(f, 400, "invalid_value", "prompt",
                           "the prompt is empty, and the model has no token to start an empty text from");
    if (ids->n == 0) tokens_append(ids, c->base.model->eod, 0);
    return true;
}

/* The rows of a decoder whose encoder reads the prompt: its start id, then the beginning of the answer. */
static bool tokenize_target(const struct completion *c, struct tokens *ids, struct failure *f) {
    tokens_append(ids, c->base.model->info->start, 0);
    return tokenize(c, &c->request.target, TOKENIZER_PARSE_SPECIAL, ids, f);
}

static bool check_context(const struct completion *c, int n_prompt, struct failure *f) {
    int64_t n = c->request.max_tokens;
    if (n_prompt + n <= c->base.model->limits.context) return true;
    return failure_set(f, 400, "context_length_exceeded", "max_tokens",
                       "the prompt has %d tokens and max_tokens is %lld, together %lld; the limit is %d tokens "
                       "(the model's, or option server.max_context)",
                       n_prompt, (long long)n, (long long)(n_prompt + n), c->base.model->limits.context);
}

/* The text of the prompt and where its tokens start in it: as it was sent, or what the ids say. */
static void keep_prompt(const struct completion *c, struct completion_choice *choice, const struct request_prompt *p,
                        const struct tokens *ids) {
    const struct tokenizer *t = c->base.model->tokenizer;
    choice->prompt_starts = xcalloc((size_t)ids->n, sizeof *choice->prompt_starts);
    if (p->ids == NULL) {
        buffer_append(&choice->prompt_text, p->text, p->size);
        if (p->size > 0) memcpy(choice->prompt_starts, ids->starts, (size_t)ids->n * sizeof *ids->starts);
        return;
    }
    struct detokenizer d = {0};
    int first = c->base.model->info->reads_source ? 1 : 0; /* the decoder's start id is no text */
    for (int i = first; i < ids->n; i++) {
        choice->prompt_starts[i] = (uint32_t)choice->prompt_text.size;
        if (tokenizer_is_special(t, ids->ids[i]))
            tokenizer_piece(t, ids->ids[i], &choice->prompt_text);
        else
            detokenizer_push(&d, t, ids->ids[i], &choice->prompt_text);
    }
    detokenizer_finish(&d, &choice->prompt_text);
}

/* Open. */

static bool check_source(const struct completion *c, int n_source, struct failure *f) {
    if (n_source <= c->base.model->limits.context) return true;
    return failure_set(f, 400, "context_length_exceeded", "prompt",
                       "the prompt has %d tokens; the encoder reads %d (the model's limit, or option "
                       "server.max_context)",
                       n_source, c->base.model->limits.context);
}

/* All that the choices of one prompt have in common: `ids` are the decoder's rows, `source` the encoder's where there
 * is one. */
struct opening {
    struct tokens ids, source;
    const struct request_prompt *shown; /* what echo puts before the text */
    const struct principal *who;
    struct waker waker;
};

/* The request in the engine's words. */
static bool ask(const struct completion *c, const struct choice *choice, const struct opening *o, struct failure *f) {
    const struct completion_request *r = &c->request;
    const struct served_model *model = c->base.model;
    struct sequence_request *asked = &choice->sequence->asked;
    if (!check_source(c, o->source.n, f) || !check_context(c, o->ids.n, f)) return false;
    asked->n_prompt = o->ids.n;
    asked->prompt = writing_copy_ids(o->ids.ids, o->ids.n);
    asked->n_source = o->source.n;
    asked->source = writing_copy_ids(o->source.ids, o->source.n);
    asked->max_tokens = (int)r->max_tokens;
    asked->n_top = (int)(r->logprobs > r->prompt_logprobs ? r->logprobs : r->prompt_logprobs);
    asked->score_prompt = (r->echo && r->logprobs >= 0) || r->prompt_logprobs >= 0;
    asked->rank_prompt = r->prompt_logprobs >= 0;
    int number = r->writing.has_seed ? choice->number : choice->index;
    return writing_ask(model, &r->writing, number, asked, f) &&
           writing_compare(model, &r->writing, choice->sequence, f);
}

/* Answer `number` to a prompt. */
static bool open_choice(struct completion *c, const struct opening *o, int number, struct failure *f) {
    struct completion_choice *choice =
        (struct completion_choice *)writing_answer_add(&c->base, sizeof *choice, o->who, o->waker);
    choice->base.number = number;
    if (!ask(c, &choice->base, o, f)) return false;
    if (c->request.echo) keep_prompt(c, choice, o->shown, &o->ids);
    return true;
}

static bool open_prompt(struct completion *c, const struct request_prompt *p, struct opening *o, struct failure *f) {
    bool encodes = c->base.model->info->reads_source;
    o->shown = encodes ? &c->request.target : p;
    o->ids = o->source = (struct tokens){0};
    bool ok = tokenize_prompt(c, p, encodes ? &o->source : &o->ids, f) && (!encodes || tokenize_target(c, &o->ids, f));
    for (int i = 0; ok && i < c->per_prompt; i++) ok = open_choice(c, o, i, f);
    tokens_free(&o->ids);
    tokens_free(&o->source);
    return ok;
}

static bool check_target(const struct completion *c, struct failure *f) {
    if (!c->request.has_target || c->base.model->info->reads_source) return true;
    return failure_set(f, 400, "unsupported_parameter", "target",
                       "target is for models with an encoder, and %s has none: write it behind the prompt",
                       c->base.model->id);
}

static bool open_choices(struct completion *c, const struct principal *who, struct waker waker, struct failure *f) {
    struct completion_request *r = &c->request;
    struct opening o = {.who = who, .waker = waker};
    if (!retrieval_settle(c->base.model, &r->writing.retrieval, f) || !check_target(c, f)) return false;
    c->per_prompt = (int)(r->best_of ? r->best_of : r->writing.n);
    for (int i = 0; i < r->prompts.n; i++)
        if (!open_prompt(c, &r->prompts.all[i], &o, f)) return false;
    return true;
}

/* The whole answer. */

static double mean_logprob(const struct choice *choice) {
    return choice->progress.n_ids ? choice->progress.logprob_sum / choice->progress.n_ids : 0;
}

/* Of the answers to each prompt the n likeliest per token are sent, the likeliest first. */
static void choose_best(struct completion *c) {
    struct choice **choices = c->base.choices;
    int n = (int)c->request.writing.n;
    for (int i = 0; i < c->base.n; i++) {
        int first = i - i % c->per_prompt, rank = 0;
        double mean = mean_logprob(choices[i]);
        for (int j = first; j < first + c->per_prompt; j++) {
            double other = mean_logprob(choices[j]);
            rank += other > mean || (other == mean && j < i);
        }
        choices[i]->index = rank < n ? first / c->per_prompt * n + rank : -1;
    }
}

static void write_whole(struct writing_answer *a, struct buffer *out) {
    struct completion *c = (struct completion *)a;
    if (c->per_prompt > c->request.writing.n) choose_best(c);
    openai_write_whole(a, out);
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

static void completion_cancel(struct answer *a) { writing_answer_cancel((struct writing_answer *)a); }

static void completion_close(struct answer *a) {
    struct completion *c = (struct completion *)a;
    writing_answer_free(&c->base);
    completion_request_free(&c->request);
    free(c);
}

static bool parse_completion(struct completion *c, struct api *a, const struct api_request *r, struct failure *f) {
    const struct request_models models = writing_models(a);
    if (!completion_request_parse(&c->request, r->body, r->size, &models, f)) return false;
    writing_choose_seed(&c->request.writing);
    c->base.model = api_model(a, c->request.model, f);
    return true;
}

struct answer *completions_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {writing_answer_poll, completion_cancel, completion_close};
    struct completion *c = xcalloc(1, sizeof *c);
    struct answer *answer = &c->base.base;
    writing_answer_init(&c->base, &completion_ops, &c->request.writing);
    if (!parse_completion(c, a, r, f) || !open_choices(c, &r->principal, waker, f) ||
        !writing_answer_submit(&c->base, f)) {
        completion_close(answer);
        return NULL;
    }
    answer_init(answer, &ops, JSON_TYPE);
    writing_answer_begin(&c->base);
    return answer;
}
