/* server/api/text/completion_json.c: choices of completions in OpenAI's shape, which are the same
 * in a body and in the events of a stream. */
#include <stdio.h>

#include "config/base/utf8.h"
#include "server/api/text/completions.h"
#include "server/api/text/provenance_json.h"

/* Rows of a choice are its sequence: the prompt's tokens, then the answer's. */
struct rows {
    int first, end;
};

static int32_t row_token(const struct sequence *sequence, int row) {
    return row < sequence->asked.n_prompt ? sequence->asked.prompt[row]
                                          : sequence->answer.ids[row - sequence->asked.n_prompt];
}

/* A token that is not whole characters has no text of its own; its bytes are spelt out, so that two
 * of them differ. */
static void token_text(const struct tokenizer *tokenizer, int32_t id, struct buffer *out) {
    struct buffer piece = {0};
    tokenizer_piece(tokenizer, id, &piece);
    if (utf8_is_valid(piece.data, piece.size)) {
        buffer_append(out, piece.data, piece.size);
    } else {
        buffer_append_string(out, "bytes:");
        for (size_t i = 0; i < piece.size; i++)
            buffer_printf(out, "\\x%02x", (unsigned char)piece.data[i]);
    }
    buffer_free(&piece);
}

static void write_token(struct json_writer *w, const struct tokenizer *tokenizer, int32_t id,
                        bool as_key) {
    struct buffer text = {0};
    token_text(tokenizer, id, &text);
    if (as_key)
        put_key_n(w, text.data, text.size);
    else
        put_string_n(w, text.data, text.size);
    buffer_free(&text);
}

/* The alternatives of one row, and the token itself where it is not among them. */
static void write_top(struct json_writer *w, const struct completion *completion,
                      const struct sequence *sequence, int row) {
    const struct tokenizer *tokenizer = completion->base.model->tokenizer;
    const int32_t *ids = sequence->answer.top_ids + (size_t)row * (size_t)sequence->asked.n_top;
    const float *logprobs =
        sequence->answer.top_logprobs + (size_t)row * (size_t)sequence->asked.n_top;
    bool listed = false;
    put_object(w);
    for (int i = 0; i < completion->request.logprobs; i++) {
        write_token(w, tokenizer, ids[i], true);
        put_float(w, logprobs[i]);
        listed = listed || ids[i] == row_token(sequence, row);
    }
    if (!listed) {
        write_token(w, tokenizer, row_token(sequence, row), true);
        put_float(w, sequence->answer.logprobs[row]);
    }
    put_object_end(w);
}

static void write_offsets(struct json_writer *w, const struct completion *completion,
                          const struct completion_choice *choice, struct rows rows) {
    const struct sequence *sequence = choice->base.sequence;
    int64_t prompt = (int64_t)utf8_count(choice->prompt_text.data, choice->prompt_text.size),
            characters = 0;
    size_t counted = 0;
    for (int row = rows.first; row < rows.end; row++) {
        bool in_prompt = row < sequence->asked.n_prompt;
        const struct buffer *text = in_prompt ? &choice->prompt_text : &choice->base.text;
        int i = row - sequence->asked.n_prompt;
        if (i == 0) counted = 0, characters = completion->request.echo ? prompt : 0;
        if (row == rows.first && i > 0) characters = completion->request.echo ? prompt : 0;
        size_t start = in_prompt ? choice->prompt_starts[row]
                       : i > 0   ? sequence->answer.text_ends[i - 1]
                                 : 0;
        if (start > text->size) start = text->size; /* cut by a stop string */
        characters += (int64_t)utf8_count(text->data + counted, start - counted);
        counted = start;
        put_int(w, characters);
    }
}

static void write_logprobs(struct json_writer *w, const struct completion *completion,
                           const struct completion_choice *choice, struct rows rows) {
    const struct sequence *sequence = choice->base.sequence;
    const struct tokenizer *tokenizer = completion->base.model->tokenizer;
    if (completion->request.logprobs < 0) {
        put_key_null(w, "logprobs");
        return;
    }
    put_key_object(w, "logprobs");
    put_key_array(w, "tokens");
    for (int row = rows.first; row < rows.end; row++)
        write_token(w, tokenizer, row_token(sequence, row), false);
    put_array_end(w);
    put_key_array(w, "token_logprobs");
    for (int row = rows.first; row < rows.end; row++) {
        if (row == 0)
            put_null(w); /* nothing comes before the first token */
        else
            put_float(w, sequence->answer.logprobs[row]);
    }
    put_array_end(w);
    put_key_array(w, "top_logprobs");
    for (int row = rows.first; row < rows.end; row++) {
        if (row == 0)
            put_null(w);
        else
            write_top(w, completion, sequence, row);
    }
    put_array_end(w);
    put_key_array(w, "text_offset");
    write_offsets(w, completion, choice, rows);
    put_array_end(w);
    put_object_end(w);
}

/* Tokens that belong to the text, and the one by which the model ended it. */
static int shown_ids(const struct completion *completion, const struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct progress *progress = &choice->progress;
    int n = progress->n_ids;
    bool ends = n > 0 && end_ids_have(&completion->base.model->ends, sequence->answer.ids[n - 1]) &&
                !sequence->asked.end.ignore_eos;
    return progress->finish == FINISH_STOP && ends
               ? n
               : tokens_shown(sequence, progress, choice->ids_sent);
}

static void write_ids(struct json_writer *w, const char *key, const int32_t *ids, int n) {
    put_key_array(w, key);
    for (int i = 0; i < n; i++) put_int(w, ids[i]);
    put_array_end(w);
}

/* Tokens of the answer that were not sent yet, a stop string's too once it is complete; the
 * prompt's the first time. */
static void write_token_ids(struct json_writer *w, struct completion_choice *choice, int shown) {
    const struct sequence *sequence = choice->base.sequence;
    int end = choice->base.progress.finish != FINISH_NONE ? choice->base.progress.n_ids : shown;
    if (!choice->prompt_sent)
        write_ids(w, "prompt_token_ids", sequence->asked.prompt, sequence->asked.n_prompt);
    write_ids(w, "token_ids", sequence->answer.ids + choice->token_ids_sent,
              end - choice->token_ids_sent);
    choice->token_ids_sent = end;
}

static void write_prompt_logprob(struct json_writer *w, const struct tokenizer *tokenizer,
                                 int32_t id, float logprob, int rank) {
    char key[16];
    struct buffer text = {0};
    snprintf(key, sizeof key, "%d", id);
    token_text(tokenizer, id, &text);
    put_key_object(w, key);
    put_key_float(w, "logprob", logprob);
    put_key_int(w, "rank", rank);
    put_key_string_n(w, "decoded_token", text.data, text.size);
    put_object_end(w);
    buffer_free(&text);
}

/* In vLLM's shape: for each token of the prompt itself and the likeliest, by id. */
static void write_prompt_logprobs(struct json_writer *w, const struct completion *completion,
                                  const struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct tokenizer *tokenizer = completion->base.model->tokenizer;
    int wanted = (int)completion->request.prompt_logprobs;
    if (wanted < 0) return;
    put_key_array(w, "prompt_logprobs");
    for (int row = 0; row < sequence->asked.n_prompt; row++) {
        size_t first = (size_t)row * (size_t)sequence->asked.n_top;
        int32_t token = sequence->asked.prompt[row];
        if (row == 0) {
            put_null(w); /* nothing comes before the first token */
            continue;
        }
        put_object(w);
        write_prompt_logprob(w, tokenizer, token, sequence->answer.logprobs[row],
                             sequence->answer.ranks[row]);
        for (int i = 0; i < wanted; i++)
            if (sequence->answer.top_ids[first + (size_t)i] != token)
                write_prompt_logprob(w, tokenizer, sequence->answer.top_ids[first + (size_t)i],
                                     sequence->answer.top_logprobs[first + (size_t)i], i + 1);
        put_object_end(w);
    }
    put_array_end(w);
}

/* The part of the choice that was not sent yet, as one element of "choices". */
static void write_choice(struct json_writer *w, const struct writing_answer *answer,
                         struct choice *choice) {
    const struct completion *completion = (const struct completion *)answer;
    struct completion_choice *own = (struct completion_choice *)choice;
    const struct sequence *sequence = choice->sequence;
    struct buffer text = {0};
    int shown = shown_ids(completion, choice);
    struct rows rows = {sequence->asked.n_prompt + choice->ids_sent,
                        sequence->asked.n_prompt + shown};
    if (completion->request.echo && !own->prompt_sent) {
        buffer_append(&text, own->prompt_text.data, own->prompt_text.size);
        rows.first = 0;
    }
    if (choice->text.size > own->text_sent)
        buffer_append(&text, choice->text.data + own->text_sent,
                      choice->text.size - own->text_sent);
    put_object(w);
    put_key_int(w, "index", choice->index);
    put_key_string_n(w, "text", text.data, text.size);
    write_logprobs(w, completion, own, rows);
    openai_write_finish(w, choice->progress.finish);
    openai_write_stop_reason(w, answer, choice);
    if (completion->request.writing.return_token_ids) write_token_ids(w, own, shown);
    write_prompt_logprobs(w, completion, choice);
    put_object_end(w);
    own->prompt_sent = true;
    own->text_sent = choice->text.size;
    choice->ids_sent = shown;
    buffer_free(&text);
}

static void write_empty(struct json_writer *w, const struct choice *choice) {
    put_object(w);
    put_key_int(w, "index", choice->index);
    put_key_string(w, "text", "");
    put_key_null(w, "logprobs");
    openai_write_finish(w, FINISH_NONE);
    put_object_end(w);
}

static struct told_answer tell(const struct writing_answer *answer, const struct choice *choice) {
    const struct completion *completion = (const struct completion *)answer;
    const struct buffer *prompt = &((const struct completion_choice *)choice)->prompt_text;
    return (struct told_answer){.model = answer->model,
                                .sequence = choice->sequence,
                                .progress = &choice->progress,
                                .asked = &completion->request.writing.retrieval,
                                .index = choice->index,
                                .found_sent = choice->found_sent,
                                .text = {choice->text.data, choice->text.size},
                                .before = (int64_t)utf8_count(prompt->data, prompt->size)};
}

const struct openai_shape completion_shape = {.prefix = "cmpl-",
                                              .whole = "text_completion",
                                              .part = "text_completion",
                                              .write_choice = write_choice,
                                              .write_empty = write_empty,
                                              .tell = tell};

void completion_write_new(const struct writing_answer *answer, struct choice *choice,
                          struct buffer *out) {
    const struct completion *completion = (const struct completion *)answer;
    const struct completion_choice *own = (const struct completion_choice *)choice;
    const struct progress *progress = &choice->progress;
    struct json_writer w;
    if (openai_has_found(choice)) openai_write_found(answer, choice, out);
    bool has_prompt = completion->request.echo && !own->prompt_sent &&
                      (progress->n_ids > 0 || !choice->sequence->asked.score_prompt);
    bool has_text =
        progress->visible > own->text_sent ||
        (completion->request.logprobs >= 0 && shown_ids(completion, choice) > choice->ids_sent);
    if (!has_prompt && !has_text && progress->finish == FINISH_NONE) return;
    openai_begin_event(&w, answer, out);
    write_choice(&w, answer, choice);
    if (progress->finish != FINISH_NONE)
        openai_end_finished(&w, answer, choice);
    else
        openai_end_choices(&w, answer);
}
