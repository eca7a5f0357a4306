/* server/api/text/completion_json.c: completions in OpenAI's shapes: one body, or the events of a stream, which look
 * the same.
 */
#include <stdio.h>

#include "config/base/utf8.h"
#include "server/api/text/answer_json.h"
#include "server/api/text/citations.h"
#include "server/api/text/completions.h"
#include "server/api/text/neighbor_json.h"
#include "server/api/text/provenance_json.h"

/* Rows of a choice are its sequence: the prompt's tokens, then the answer's. */
struct rows {
    int first, end;
};

static int32_t row_token(const struct sequence *sequence, int row) {
    return row < sequence->asked.n_prompt ? sequence->asked.prompt[row]
                                          : sequence->answer.ids[row - sequence->asked.n_prompt];
}

/* Characters, not bytes: what clients count in text_offset. */
static int64_t count_characters(const char *text, size_t size) {
    int64_t n = 0;
    for (size_t i = 0; i < size; i++) n += (text[i] & 0xC0) != 0x80;
    return n;
}

/* A token that is not whole characters has no text of its own; its bytes are spelt out, so that two of them differ. */
static void token_text(const struct tokenizer *t, int32_t id, struct buffer *out) {
    struct buffer piece = {0};
    tokenizer_piece(t, id, &piece);
    if (utf8_is_valid(piece.data, piece.size)) {
        buffer_append(out, piece.data, piece.size);
    } else {
        buffer_append_string(out, "bytes:");
        for (size_t i = 0; i < piece.size; i++) buffer_printf(out, "\\x%02x", (unsigned char)piece.data[i]);
    }
    buffer_free(&piece);
}

static void write_token(struct json_writer *w, const struct tokenizer *t, int32_t id, bool as_key) {
    struct buffer text = {0};
    token_text(t, id, &text);
    if (as_key)
        put_key_n(w, text.data, text.size);
    else
        put_string_n(w, text.data, text.size);
    buffer_free(&text);
}

/* The alternatives of one row, and the token itself where it is not among them. */
static void write_top(struct json_writer *w, const struct completion *c, const struct sequence *sequence, int row) {
    const struct tokenizer *t = c->model->tokenizer;
    const int32_t *ids = sequence->answer.top_ids + (size_t)row * (size_t)sequence->asked.n_top;
    const float *logprobs = sequence->answer.top_logprobs + (size_t)row * (size_t)sequence->asked.n_top;
    bool listed = false;
    put_object(w);
    for (int i = 0; i < c->request.logprobs; i++) {
        write_token(w, t, ids[i], true);
        put_float(w, logprobs[i]);
        listed = listed || ids[i] == row_token(sequence, row);
    }
    if (!listed) {
        write_token(w, t, row_token(sequence, row), true);
        put_float(w, sequence->answer.logprobs[row]);
    }
    put_object_end(w);
}

static void write_offsets(struct json_writer *w, const struct completion *c, const struct choice *choice,
                          struct rows rows) {
    const struct sequence *sequence = choice->sequence;
    int64_t prompt = count_characters(choice->prompt_text.data, choice->prompt_text.size), characters = 0;
    size_t counted = 0;
    for (int row = rows.first; row < rows.end; row++) {
        bool in_prompt = row < sequence->asked.n_prompt;
        const struct buffer *text = in_prompt ? &choice->prompt_text : &choice->text;
        int i = row - sequence->asked.n_prompt;
        if (i == 0) counted = 0, characters = c->request.echo ? prompt : 0;
        if (row == rows.first && i > 0) characters = c->request.echo ? prompt : 0;
        size_t start = in_prompt ? choice->prompt_starts[row] : i > 0 ? sequence->answer.text_ends[i - 1] : 0;
        if (start > text->size) start = text->size; /* cut by a stop string */
        characters += count_characters(text->data + counted, start - counted);
        counted = start;
        put_int(w, characters);
    }
}

static void write_logprobs(struct json_writer *w, const struct completion *c, const struct choice *choice,
                           struct rows rows) {
    const struct sequence *sequence = choice->sequence;
    const struct tokenizer *t = c->model->tokenizer;
    if (c->request.logprobs < 0) {
        put_key_null(w, "logprobs");
        return;
    }
    put_key_object(w, "logprobs");
    put_key_array(w, "tokens");
    for (int row = rows.first; row < rows.end; row++) write_token(w, t, row_token(sequence, row), false);
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
            write_top(w, c, sequence, row);
    }
    put_array_end(w);
    put_key_array(w, "text_offset");
    write_offsets(w, c, choice, rows);
    put_array_end(w);
    put_object_end(w);
}

/* Tokens that belong to the text, and the one by which the model ended it. */
static int shown_ids(const struct completion *c, const struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct progress *p = &choice->progress;
    int n = p->n_ids;
    bool ends = n > 0 && end_ids_have(&c->model->ends, sequence->answer.ids[n - 1]) && !sequence->asked.end.ignore_eos;
    return p->finish == FINISH_STOP && ends ? n : tokens_shown(sequence, p, choice->ids_sent);
}

static void write_finish(struct json_writer *w, enum finish finish) {
    static const char *const names[FINISH_ERROR + 1] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
    put_key_string(w, "finish_reason", names[finish]);
}

/* The reason that stopped it, where the request named it: a text or a token id. */
static void write_stop_reason(struct json_writer *w, const struct choice *choice) {
    const struct progress *p = &choice->progress;
    const struct stops *stops = &choice->sequence->asked.end.stops;
    if (p->finish != FINISH_STOP) return;
    if (p->stop_string >= 0)
        put_key_string_n(w, "stop_reason", stops->strings[p->stop_string].text, stops->strings[p->stop_string].size);
    else if (p->stop_id >= 0)
        put_key_int(w, "stop_reason", p->stop_id);
}

static void write_ids(struct json_writer *w, const char *key, const int32_t *ids, int n) {
    put_key_array(w, key);
    for (int i = 0; i < n; i++) put_int(w, ids[i]);
    put_array_end(w);
}

/* Tokens of the answer that were not sent yet, a stop string's too once it is complete; the prompt's the first time. */
static void write_token_ids(struct json_writer *w, struct choice *choice, int shown) {
    const struct sequence *sequence = choice->sequence;
    int end = choice->progress.finish != FINISH_NONE ? choice->progress.n_ids : shown;
    if (!choice->prompt_sent) write_ids(w, "prompt_token_ids", sequence->asked.prompt, sequence->asked.n_prompt);
    write_ids(w, "token_ids", sequence->answer.ids + choice->token_ids_sent, end - choice->token_ids_sent);
    choice->token_ids_sent = end;
}

static void write_prompt_logprob(struct json_writer *w, const struct tokenizer *t, int32_t id, float logprob,
                                 int rank) {
    char key[16];
    struct buffer text = {0};
    snprintf(key, sizeof key, "%d", id);
    token_text(t, id, &text);
    put_key_object(w, key);
    put_key_float(w, "logprob", logprob);
    put_key_int(w, "rank", rank);
    put_key_string_n(w, "decoded_token", text.data, text.size);
    put_object_end(w);
    buffer_free(&text);
}

/* In vLLM's shape: for each token of the prompt itself and the likeliest, by id. */
static void write_prompt_logprobs(struct json_writer *w, const struct completion *c, const struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct tokenizer *t = c->model->tokenizer;
    int wanted = (int)c->request.prompt_logprobs;
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
        write_prompt_logprob(w, t, token, sequence->answer.logprobs[row], sequence->answer.ranks[row]);
        for (int i = 0; i < wanted; i++)
            if (sequence->answer.top_ids[first + (size_t)i] != token)
                write_prompt_logprob(w, t, sequence->answer.top_ids[first + (size_t)i],
                                     sequence->answer.top_logprobs[first + (size_t)i], i + 1);
        put_object_end(w);
    }
    put_array_end(w);
}

/* The part of the choice that was not sent yet, as one element of "choices". */
static void write_choice(struct json_writer *w, struct completion *c, struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    struct buffer text = {0};
    int shown = shown_ids(c, choice);
    struct rows rows = {sequence->asked.n_prompt + choice->ids_sent, sequence->asked.n_prompt + shown};
    if (c->request.echo && !choice->prompt_sent) {
        buffer_append(&text, choice->prompt_text.data, choice->prompt_text.size);
        rows.first = 0;
    }
    if (choice->text.size > choice->text_sent)
        buffer_append(&text, choice->text.data + choice->text_sent, choice->text.size - choice->text_sent);
    put_object(w);
    put_key_int(w, "index", choice->index);
    put_key_string_n(w, "text", text.data, text.size);
    write_logprobs(w, c, choice, rows);
    write_finish(w, choice->progress.finish);
    write_stop_reason(w, choice);
    if (c->request.writing.return_token_ids) write_token_ids(w, choice, shown);
    write_prompt_logprobs(w, c, choice);
    put_object_end(w);
    choice->prompt_sent = true;
    choice->text_sent = choice->text.size;
    choice->ids_sent = shown;
    buffer_free(&text);
}

/* The chunks whose neighbours have not been sent yet, as elements of "retrieval". */
static void write_found(struct json_writer *w, struct completion *c, struct choice *choice) {
    const struct found_listing listing = {choice->sequence, &c->request.writing.retrieval, choice->index};
    for (; choice->found_sent < choice->progress.n_found; choice->found_sent++)
        found_write(w, &listing, choice->found_sent);
}

static bool may_cite(const struct choice *choice) { return citations_may_be(choice->sequence, &choice->progress); }

/* Characters before the answer's own. */
static int64_t count_before(const struct completion *c, const struct choice *choice) {
    const struct buffer *prompt = &choice->prompt_text;
    return c->request.echo ? count_characters(prompt->data, prompt->size) : 0;
}

static void write_citations(struct json_writer *w, const struct completion *c, const struct choice *choice) {
    const struct cited_answer answer = {
        .sequence = choice->sequence,
        .progress = &choice->progress,
        .index = choice->index,
        .text = {choice->text.data, choice->text.size},
        .before = count_before(c, choice),
    };
    if (may_cite(choice)) citations_write(w, &answer);
}

static struct told_answer told_of(const struct completion *c, const struct choice *choice) {
    return (struct told_answer){.model = c->model,
                                .sequence = choice->sequence,
                                .progress = &choice->progress,
                                .asked = &c->request.writing.retrieval,
                                .index = choice->index,
                                .text = {choice->text.data, choice->text.size},
                                .before = count_before(c, choice)};
}

static void write_attention(struct json_writer *w, const struct completion *c, const struct choice *choice) {
    const struct told_answer answer = told_of(c, choice);
    attention_write(w, &answer);
}

static void write_comparison(struct json_writer *w, const struct completion *c, const struct choice *choice) {
    const struct told_answer answer = told_of(c, choice);
    comparison_write(w, &answer);
}

static void write_usage(struct json_writer *w, const struct completion *c) {
    struct token_usage usage = {0};
    for (int i = 0; i < c->n; i++) {
        const struct choice *choice = &c->choices[i];
        if (choice->number == 0) usage_add_prompt(&usage, &choice->progress);
        usage.written += choice->progress.n_ids;
    }
    usage_write(w, &usage);
}

static void write_head(struct json_writer *w, const struct completion *c) {
    struct buffer id = {0};
    buffer_printf(&id, "cmpl-%016llx", (unsigned long long)c->id);
    put_object(w);
    put_key_string_n(w, "id", id.data, id.size);
    buffer_free(&id);
    put_key_string(w, "object", "text_completion");
    put_key_int(w, "created", c->created);
    put_key_string(w, "model", c->model->id);
    origin_write(w, c->model, c->choices[0].sequence);
    put_key_array(w, "choices");
}

static struct choice *choice_at(struct completion *c, int index) {
    int i = 0;
    while (c->choices[i].index != index) i++;
    return &c->choices[i];
}

void completion_write(struct completion *c, struct buffer *out) {
    struct json_writer w;
    int n = c->n / c->per_prompt * (int)c->request.writing.n;
    put_begin(&w, out);
    write_head(&w, c);
    for (int index = 0; index < n; index++) write_choice(&w, c, choice_at(c, index));
    put_array_end(&w);
    write_usage(&w, c);
    put_key_array(&w, "retrieval");
    for (int index = 0; index < n; index++) write_found(&w, c, choice_at(c, index));
    put_array_end(&w);
    if (may_cite(&c->choices[0])) {
        put_key_array(&w, "citations");
        for (int index = 0; index < n; index++) write_citations(&w, c, choice_at(c, index));
        put_array_end(&w);
    }
    if (c->request.writing.retrieval.attention) {
        put_key_array(&w, "attention");
        for (int index = 0; index < n; index++) write_attention(&w, c, choice_at(c, index));
        put_array_end(&w);
    }
    if (c->request.writing.retrieval.compared) {
        put_key_array(&w, "compare");
        for (int index = 0; index < n; index++) write_comparison(&w, c, choice_at(c, index));
        put_array_end(&w);
    }
    put_object_end(&w);
}

static void begin_event(struct json_writer *w, const struct completion *c, struct buffer *out) {
    event_begin(w, out);
    write_head(w, c);
}

/* The end of an event's object: clients that asked for usage find null in every event but the last. */
static void end_event(struct json_writer *w, const struct completion *c, struct buffer *out) {
    if (c->request.writing.include_usage) put_key_null(w, "usage");
    event_end(w, out);
}

/* Neighbours come in an event of their own, with an empty text, before the text of the tokens that read them. */
static void write_retrieval_event(struct completion *c, struct choice *choice, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    put_object(&w);
    put_key_int(&w, "index", choice->index);
    put_key_string(&w, "text", "");
    put_key_null(&w, "logprobs");
    write_finish(&w, FINISH_NONE);
    put_object_end(&w);
    put_array_end(&w);
    put_key_array(&w, "retrieval");
    write_found(&w, c, choice);
    put_array_end(&w);
    end_event(&w, c, out);
}

void completion_write_event(struct completion *c, struct choice *choice, struct buffer *out) {
    const struct sequence *sequence = choice->sequence;
    const struct progress *p = &choice->progress;
    struct json_writer w;
    if (p->n_found > choice->found_sent && found_is_told(sequence)) write_retrieval_event(c, choice, out);
    bool has_prompt = c->request.echo && !choice->prompt_sent && (p->n_ids > 0 || !sequence->asked.score_prompt);
    bool has_text =
        p->visible > choice->text_sent || (c->request.logprobs >= 0 && shown_ids(c, choice) > choice->ids_sent);
    if (!has_prompt && !has_text && p->finish == FINISH_NONE) return;
    begin_event(&w, c, out);
    write_choice(&w, c, choice);
    put_array_end(&w);
    if (p->finish != FINISH_NONE && may_cite(choice)) {
        put_key_array(&w, "citations");
        write_citations(&w, c, choice);
        put_array_end(&w);
    }
    if (p->finish != FINISH_NONE && c->request.writing.retrieval.attention) {
        put_key_array(&w, "attention");
        write_attention(&w, c, choice);
        put_array_end(&w);
    }
    end_event(&w, c, out);
}

void completion_write_comparison(struct completion *c, const struct choice *choice, struct buffer *out) {
    struct json_writer w;
    if (!c->request.writing.retrieval.compared) return;
    begin_event(&w, c, out);
    put_array_end(&w);
    put_key_array(&w, "compare");
    write_comparison(&w, c, choice);
    put_array_end(&w);
    end_event(&w, c, out);
}

static void write_usage_event(struct completion *c, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    put_array_end(&w);
    write_usage(&w, c);
    event_end(&w, out);
}

void completion_write_end(struct completion *c, const struct failure *failed, struct buffer *out) {
    if (failed == NULL && c->request.writing.include_usage) write_usage_event(c, out);
    stream_end(failed, out);
}
