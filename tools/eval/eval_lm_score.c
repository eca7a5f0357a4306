/* tools/eval/eval_lm_score.c: one multiple choice record: its tokens, its neighbours, its scores
 * (eval_lm.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eval/eval_lm.h"

/* One record while it is scored. */
struct question {
    struct text_span prompt; /* with its blanks */
    const struct json *choices;
    int answer;
    size_t trimmed;       /* bytes of the prompt without blanks at its end */
    struct tokens tokens; /* of the trimmed prompt, and of the choice that is scored */
    int n_encoded;        /* tokens of the trimmed prompt's text */
    int n_prompt; /* tokens that stand for the prompt: the same, or the one of an empty prompt */
    bool prompt_found; /* the prompt's chunks have their neighbours */
};

/* A choice's length, and its log-probability in each mode. */
struct scored_choice {
    int n_tokens;
    size_t n_bytes;
    double logprob[LM_MODES];
};

static enum status read_question(struct question *question, const struct json *record,
                                 struct error *e) {
    const struct json *prompt = json_member(record, "prompt"),
                      *answer = json_member(record, "answer");
    *question =
        (struct question){.prompt = json_text(prompt), .choices = json_member(record, "choices")};
    if (question->prompt.text == NULL || json_kind(question->choices) != JSON_KIND_LIST ||
        json_kind(answer) != JSON_KIND_INT)
        return error_set(
            e, STATUS_INVALID,
            "expected {\"prompt\": \"...\", \"choices\": [\"...\", ...], \"answer\": 0}");
    size_t n = json_count(question->choices);
    if (n < 2 || n > 1000)
        return error_set(e, STATUS_INVALID, "%zu choices, expected 2 .. 1000", n);
    for (size_t i = 0; i < n; i++)
        if (json_text(json_item(question->choices, i)).size == 0)
            return error_set(e, STATUS_INVALID, "choice %zu is not a text, or empty", i);
    int64_t index = json_int(answer);
    if (index < 0 || index >= (int64_t)n)
        return error_set(e, STATUS_INVALID, "the answer is choice %lld, expected 0 .. %zu",
                         (long long)index, n - 1);
    question->answer = (int)index;
    question->trimmed = question->prompt.size;
    while (question->trimmed > 0 &&
           strchr(" \t\n\v\f\r", question->prompt.text[question->trimmed - 1]))
        question->trimmed--;
    return STATUS_OK;
}

/* As the server reads a prompt. */
static enum status encode(const struct lm *lm, const char *text, size_t n, struct tokens *out,
                          struct error *e) {
    return tokenizer_encode(lm->model.tokenizer, text, n,
                            TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, out, e);
}

static enum status encode_prompt(const struct lm *lm, struct question *question, struct error *e) {
    if (encode(lm, question->prompt.text, question->trimmed, &question->tokens, e))
        return e->status;
    question->n_encoded = question->tokens.n;
    if (question->tokens.n == 0 && lm->eod < 0)
        return error_set(e, STATUS_INVALID,
                         "the prompt is empty, and the model has no token to start a text from");
    if (question->tokens.n == 0) tokens_append(&question->tokens, lm->eod, 0);
    question->n_prompt = question->tokens.n;
    return STATUS_OK;
}

/* The choice's tokens behind the prompt's. */
static enum status encode_choice(const struct lm *lm, struct question *question,
                                 struct text_span choice, struct error *e) {
    struct tokens whole = {0};
    struct buffer text = {0};
    buffer_append(&text, question->prompt.text, question->prompt.size);
    buffer_append(&text, choice.text, choice.size);
    enum status status = encode(lm, text.data, text.size, &whole, e);
    question->tokens.n = question->n_prompt;
    for (int i = question->n_encoded; status == STATUS_OK && i < whole.n; i++)
        tokens_append(&question->tokens, whole.ids[i], 0);
    int n = question->tokens.n;
    if (status == STATUS_OK && n == question->n_prompt)
        status = error_set(e, STATUS_INVALID,
                           "the choice \"%.40s\" adds no token: it becomes part of the prompt's "
                           "last one; begin it with "
                           "a blank",
                           choice.text);
    if (status == STATUS_OK && n > lm->context)
        status =
            error_set(e, STATUS_TOO_LARGE,
                      "prompt and choice have %d tokens, the limit is %d (the model's, or option "
                      "server.max_context); nothing is cut",
                      n, lm->context);
    buffer_free(&text);
    tokens_free(&whole);
    return status;
}

/* The prompt's chunks are searched for once; those that a long choice closes, for each choice. */
static enum status find(struct lm *lm, struct question *question,
                        const struct scored_sequence *sequence, struct error *e) {
    int of_prompt = grid_complete(sequence->grid, question->n_prompt),
        all = grid_complete(sequence->grid, sequence->n - 1);
    if (!question->prompt_found &&
        subject_retrieve(&lm->model, sequence, 0, of_prompt, &lm->found, e))
        return e->status;
    question->prompt_found = true;
    return subject_retrieve(&lm->model, sequence, of_prompt, all, &lm->found, e);
}

static enum status score_choice(struct lm *lm, struct question *question, struct text_span text,
                                struct scored_choice *choice, struct error *e) {
    if (encode_choice(lm, question, text, e)) return e->status;
    struct scored_sequence sequence = {
        .tokens = question->tokens.ids,
        .n = question->tokens.n,
        .from = question->n_prompt,
        .grid = grid_make(lm->grid, question->n_prompt, max_int(1, lm->model.info->chunk_length))};
    *choice = (struct scored_choice){.n_tokens = sequence.n - sequence.from, .n_bytes = text.size};
    double *logprobs = xcalloc((size_t)sequence.n, sizeof *logprobs);
    enum status status = lm->modes[LM_ON] ? find(lm, question, &sequence, e) : STATUS_OK;
    for (int mode = 0; mode < LM_MODES && status == STATUS_OK; mode++) {
        if (!lm->modes[mode]) continue;
        status = subject_score(&lm->model, &sequence, mode == LM_ON ? lm->found.read : NULL,
                               logprobs, e);
        for (int i = sequence.from; i < sequence.n; i++) choice->logprob[mode] += logprobs[i];
    }
    free(logprobs);
    return status;
}

static struct lm_verdict judge(const struct scored_choice *choices, int n, int mode, int answer) {
    struct lm_verdict verdict = {.answer_bits = -choices[answer].logprob[mode] / log(2.0)};
    for (int i = 1; i < n; i++) {
        const struct scored_choice *choice = &choices[i], *left = &choices[verdict.likeliest],
                                   *right = &choices[verdict.likeliest_per_byte];
        if (choice->logprob[mode] > left->logprob[mode]) verdict.likeliest = i;
        if (choice->logprob[mode] * (double)right->n_bytes >
            right->logprob[mode] * (double)choice->n_bytes)
            verdict.likeliest_per_byte = i;
    }
    return verdict;
}

static void keep(struct lm *lm, const struct lm_result *result) {
    lm->results = xgrow(lm->results, lm->n, &lm->capacity, sizeof *lm->results);
    lm->results[lm->n] = *result;
    lm->n++;
}

static void put_counts(struct json_writer *w, const char *key, const struct scored_choice *choices,
                       int n, bool bytes) {
    put_key_array(w, key);
    for (int i = 0; i < n; i++)
        put_int(w, bytes ? (int64_t)choices[i].n_bytes : choices[i].n_tokens);
    put_array_end(w);
}

static void put_verdict(struct json_writer *w, const struct scored_choice *choices, int n, int mode,
                        const struct lm_verdict *verdict) {
    put_key_object(w, mode == LM_ON ? "on" : "off");
    put_key_array(w, "logprobs");
    for (int i = 0; i < n; i++) put_float(w, (float)choices[i].logprob[mode]);
    put_array_end(w);
    put_key_int(w, "likeliest", verdict->likeliest);
    put_key_int(w, "likeliest_per_byte", verdict->likeliest_per_byte);
    put_object_end(w);
}

static enum status write_record(const struct lm *lm, const struct lm_result *result,
                                const struct scored_choice *choices, struct error *e) {
    struct buffer line = {0};
    struct json_writer w;
    put_begin(&w, &line);
    put_object(&w);
    put_key_int(&w, "answer", result->answer);
    put_counts(&w, "tokens", choices, result->n_choices, false);
    put_counts(&w, "bytes", choices, result->n_choices, true);
    for (int mode = 0; mode < LM_MODES; mode++)
        if (lm->modes[mode])
            put_verdict(&w, choices, result->n_choices, mode, &result->verdicts[mode]);
    put_object_end(&w);
    buffer_append(&line, "\n", 1);
    bool written = fwrite(line.data, 1, line.size, lm->records_out) == line.size;
    buffer_free(&line);
    return written ? STATUS_OK : error_errno(e, "--records: write");
}

enum status lm_score_record(void *context, const struct json *record, struct error *e) {
    struct lm *lm = context;
    struct question question;
    if (read_question(&question, record, e)) return e->status;
    int n = (int)json_count(question.choices);
    struct scored_choice *choices = xcalloc((size_t)n, sizeof *choices);
    enum status status = encode_prompt(lm, &question, e);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = score_choice(lm, &question, json_text(json_item(question.choices, (size_t)i)),
                              &choices[i], e);
    if (status == STATUS_OK) {
        struct lm_result result = {.n_choices = n,
                                   .answer = question.answer,
                                   .answer_bytes = (double)choices[question.answer].n_bytes};
        for (int mode = 0; mode < LM_MODES; mode++)
            if (lm->modes[mode]) result.verdicts[mode] = judge(choices, n, mode, question.answer);
        keep(lm, &result);
        if (lm->records_out) status = write_record(lm, &result, choices, e);
    }
    tokens_free(&question.tokens);
    free(choices);
    return status;
}
