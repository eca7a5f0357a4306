/* server/api/text/completions.c: POST /v1/completions: from a checked request to sequences, and from their progress
 * to an answer. The JSON itself is in completion_json.c. */
#include "server/api/text/completions.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/api/text/infill.h"
#include "server/api/text/provenance_json.h"
#include "server/api/text/retrieval_ask.h"
#include "server/api/text/sampling_json.h"

/* The prompt. */

/* Ids of a text, or those that were sent, behind *ids; the caller frees them on failure too. */
static bool tokenize(const struct completion *c, const struct request_prompt *p, int flags, struct tokens *ids,
                     struct failure *f) {
    struct error e;
    for (int i = 0; i < p->n_ids; i++) tokens_append(ids, p->ids[i], 0);
    const char *text = p->text ? p->text : "";
    if (p->ids == NULL && tokenizer_encode(c->model->tokenizer, text, p->size, flags, ids, &e))
        return failure_from_error(f, &e);
    return true;
}

/* A prompt with a suffix. The token that ends the answer becomes one of the request's. */
static bool tokenize_infill(struct completion *c, const struct request_prompt *p, struct tokens *ids,
                            struct failure *f) {
    struct request_ids *stops = &c->request.writing.stop_ids;
    const struct buffer *suffix = &c->request.suffix;
    int32_t end;
    if (!infill_tokenize(c->model, p, (struct text_span){suffix->data, suffix->size}, ids, &end, f)) return false;
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
    if (ids->n == 0 && c->model->eod < 0)
        return failure_set(f, 400, "invalid_value", "prompt",
                           "the prompt is empty, and the model has no token to start an empty text from");
    if (ids->n == 0) tokens_append(ids, c->model->eod, 0);
    return true;
}

/* The rows of a decoder whose encoder reads the prompt: its start id, then the beginning of the answer. */
static bool tokenize_target(const struct completion *c, struct tokens *ids, struct failure *f) {
    tokens_append(ids, c->model->info->start, 0);
    return tokenize(c, &c->request.target, TOKENIZER_PARSE_SPECIAL, ids, f);
}

static bool check_context(const struct completion *c, int n_prompt, struct failure *f) {
    int64_t n = c->request.max_tokens;
    if (n_prompt + n <= c->model->limits.context) return true;
    return failure_set(f, 400, "context_length_exceeded", "max_tokens",
                       "the prompt has %d tokens and max_tokens is %lld, together %lld; the limit is %d tokens "
                       "(the model's, or option server.max_context)",
                       n_prompt, (long long)n, (long long)(n_prompt + n), c->model->limits.context);
}

/* The text of the prompt and where its tokens start in it: as it was sent, or what the ids say. */
static void keep_prompt(struct completion *c, struct choice *choice, const struct request_prompt *p,
                        const struct tokens *ids) {
    const struct tokenizer *t = c->model->tokenizer;
    choice->prompt_starts = xcalloc((size_t)ids->n, sizeof *choice->prompt_starts);
    if (p->ids == NULL) {
        buffer_append(&choice->prompt_text, p->text, p->size);
        if (p->size > 0) memcpy(choice->prompt_starts, ids->starts, (size_t)ids->n * sizeof *ids->starts);
        return;
    }
    struct detokenizer d = {0};
    int first = c->model->info->reads_source ? 1 : 0; /* the decoder's start id is no text */
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
    if (n_source <= c->model->limits.context) return true;
    return failure_set(f, 400, "context_length_exceeded", "prompt",
                       "the prompt has %d tokens; the encoder reads %d (the model's limit, or option "
                       "server.max_context)",
                       n_source, c->model->limits.context);
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
    struct sequence_request *asked = &choice->sequence->asked;
    if (!check_source(c, o->source.n, f) || !check_context(c, o->ids.n, f)) return false;
    asked->n_prompt = o->ids.n;
    asked->prompt = writing_copy_ids(&o->ids);
    asked->n_source = o->source.n;
    if (o->source.n > 0) asked->source = writing_copy_ids(&o->source);
    asked->max_tokens = (int)r->max_tokens;
    asked->n_top = (int)(r->logprobs > r->prompt_logprobs ? r->logprobs : r->prompt_logprobs);
    asked->score_prompt = (r->echo && r->logprobs >= 0) || r->prompt_logprobs >= 0;
    asked->rank_prompt = r->prompt_logprobs >= 0;
    int number = r->writing.has_seed ? choice->number : (int)(choice - c->choices);
    return writing_ask(c->model, &r->writing, number, asked, f) &&
           writing_compare(c->model, &r->writing, choice->sequence, f);
}

/* Answer `number` to a prompt. */
static bool open_choice(struct completion *c, const struct opening *o, int number, struct failure *f) {
    struct choice *choice = &c->choices[c->n];
    c->n++;
    choice->number = number;
    choice->index = c->n - 1;
    choice->sequence = sequence_open();
    choice->sequence->asked.principal = principal_hold(*o->who);
    choice->sequence->answer.waker = o->waker;
    if (!ask(c, choice, o, f)) return false;
    if (c->request.echo) keep_prompt(c, choice, o->shown, &o->ids);
    return true;
}

static bool open_prompt(struct completion *c, const struct request_prompt *p, struct opening *o, struct failure *f) {
    bool encodes = c->model->info->reads_source;
    o->shown = encodes ? &c->request.target : p;
    o->ids = o->source = (struct tokens){0};
    bool ok = tokenize_prompt(c, p, encodes ? &o->source : &o->ids, f) && (!encodes || tokenize_target(c, &o->ids, f));
    for (int i = 0; ok && i < c->per_prompt; i++) ok = open_choice(c, o, i, f);
    tokens_free(&o->ids);
    tokens_free(&o->source);
    return ok;
}

static bool check_target(const struct completion *c, struct failure *f) {
    if (!c->request.has_target || c->model->info->reads_source) return true;
    return failure_set(f, 400, "unsupported_parameter", "target",
                       "target is for models with an encoder, and %s has none: write it behind the prompt",
                       c->model->id);
}

static bool open_choices(struct completion *c, const struct principal *who, struct waker waker, struct failure *f) {
    struct completion_request *r = &c->request;
    struct opening o = {.who = who, .waker = waker};
    if (!retrieval_settle(c->model, &r->writing.retrieval, f) || !check_target(c, f)) return false;
    c->per_prompt = (int)(r->best_of ? r->best_of : r->writing.n);
    c->choices = xcalloc((size_t)r->prompts.n * (size_t)c->per_prompt, sizeof *c->choices);
    for (int i = 0; i < r->prompts.n; i++)
        if (!open_prompt(c, &r->prompts.all[i], &o, f)) return false;
    return true;
}

static bool submit(struct completion *c, struct failure *f) {
    struct sequence **sequences = xcalloc((size_t)c->n, sizeof(struct sequence *));
    for (int i = 0; i < c->n; i++) sequences[i] = c->choices[i].sequence;
    bool ok = writing_submit(c->model, sequences, c->n, f);
    free(sequences);
    return ok;
}

/* Poll. */

static void read_choice(struct choice *choice) {
    choice->progress = sequence_read(choice->sequence, choice->text.size, &choice->text, &choice->error);
}

static enum answer_progress fail(struct completion *c, const struct error *e, struct buffer *out) {
    struct failure f;
    failure_from_error(&f, e);
    if (c->base.stream) {
        completion_write_end(c, &f, out);
        failure_free(&f);
    } else {
        failure_answer(&f, &c->base, out);
    }
    return ANSWER_COMPLETE;
}

static double mean_logprob(const struct choice *choice) {
    return choice->progress.n_ids ? choice->progress.logprob_sum / choice->progress.n_ids : 0;
}

/* Of the answers to each prompt the n likeliest per token are sent, the likeliest first. */
static void choose_best(struct completion *c) {
    int n = (int)c->request.writing.n;
    for (int i = 0; i < c->n; i++) {
        int first = i - i % c->per_prompt, rank = 0;
        double mean = mean_logprob(&c->choices[i]);
        for (int j = first; j < first + c->per_prompt; j++) {
            double other = mean_logprob(&c->choices[j]);
            rank += other > mean || (other == mean && j < i);
        }
        c->choices[i].index = rank < n ? first / c->per_prompt * n + rank : -1;
    }
}

static enum answer_progress completion_poll(struct answer *a, struct buffer *out) {
    struct completion *c = (struct completion *)a;
    size_t before = out->size;
    bool finished = true;
    for (int i = 0; i < c->n; i++) {
        struct choice *choice = &c->choices[i];
        if (!choice->written) {
            read_choice(choice);
            if (choice->progress.finish == FINISH_ERROR) return fail(c, &choice->error, out);
            if (a->stream) completion_write_event(c, choice, out);
            choice->written = choice->progress.finish != FINISH_NONE;
        }
        if (choice->written && !choice->finished) {
            bool failed;
            choice->finished = comparison_is_over(choice->sequence, &failed, &choice->error);
            if (failed) return fail(c, &choice->error, out);
            if (a->stream && choice->finished) completion_write_comparison(c, choice, out);
        }
        finished = finished && choice->finished;
    }
    if (!finished) return out->size > before ? ANSWER_MORE : ANSWER_WAITING;
    if (a->stream) {
        completion_write_end(c, NULL, out);
    } else {
        if (c->per_prompt > c->request.writing.n) choose_best(c);
        completion_write(c, out);
    }
    return ANSWER_COMPLETE;
}

static void completion_cancel(struct answer *a) {
    struct completion *c = (struct completion *)a;
    for (int i = 0; i < c->n; i++) sequence_cancel(c->choices[i].sequence);
    engine_notice(c->model->engine);
}

static void completion_close(struct answer *a) {
    struct completion *c = (struct completion *)a;
    if (c->n > 0) completion_cancel(a);
    for (int i = 0; i < c->n; i++) {
        struct choice *choice = &c->choices[i];
        sequence_detach(choice->sequence);
        sequence_release(choice->sequence);
        buffer_free(&choice->prompt_text);
        buffer_free(&choice->text);
        free(choice->prompt_starts);
    }
    completion_request_free(&c->request);
    free(c->choices);
    free(c);
}

static bool parse_completion(struct completion *c, struct api *a, const struct api_request *r, struct failure *f) {
    const struct request_models models = writing_models(a);
    if (!completion_request_parse(&c->request, r->body, r->size, &models, f)) return false;
    writing_choose_seed(&c->request.writing);
    c->model = api_model(a, c->request.model, f);
    return true;
}

struct answer *completions_open(struct api *a, const struct api_request *r, struct waker waker, struct failure *f) {
    static const struct answer_ops ops = {completion_poll, completion_cancel, completion_close};
    struct completion *c = xcalloc(1, sizeof *c);
    c->created = time(NULL);
    c->id = random_number();
    if (!parse_completion(c, a, r, f) || !open_choices(c, &r->principal, waker, f) || !submit(c, f)) {
        completion_close(&c->base);
        return NULL;
    }
    answer_init(&c->base, &ops, JSON_TYPE);
    writing_answer_begin(&c->base, c->request.writing.stream);
    return &c->base;
}
