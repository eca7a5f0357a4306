/* server/api/chat/chat_json.c: chats in OpenAI's shapes: one body, or the events of a stream. */
#include <stdlib.h>
#include <string.h>

#include "server/api/chat/chat.h"
#include "server/api/text/answer_json.h"
#include "server/api/text/citations.h"
#include "server/api/text/neighbor_json.h"
#include "server/api/text/provenance_json.h"

/* Log-probabilities. */

static void write_bytes(struct json_writer *w, const struct buffer *piece) {
    put_key_array(w, "bytes");
    for (size_t i = 0; i < piece->size; i++) put_int(w, (unsigned char)piece->data[i]);
    put_array_end(w);
}

static void write_token(struct json_writer *w, const struct tokenizer *t, int32_t id, float logprob) {
    struct buffer piece = {0};
    tokenizer_piece(t, id, &piece);
    put_key_string_n(w, "token", piece.data, piece.size);
    put_key_float(w, "logprob", logprob);
    write_bytes(w, &piece);
    buffer_free(&piece);
}

static int shown_ids(const struct chat_choice *choice) {
    return tokens_shown(choice->sequence, &choice->progress, choice->ids_sent);
}

static void write_logprobs(struct json_writer *w, const struct chat_answer *c, struct chat_choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct tokenizer *t = c->model->tokenizer;
    int shown = shown_ids(choice), n_top = sequence->asked.n_top;
    if (!c->request.logprobs) {
        put_key_null(w, "logprobs");
        return;
    }
    put_key_object(w, "logprobs");
    put_key_array(w, "content");
    for (int i = choice->ids_sent; i < shown; i++) {
        size_t row = (size_t)(sequence->asked.n_prompt + i);
        put_object(w);
        write_token(w, t, sequence->answer.ids[i], sequence->answer.logprobs[row]);
        put_key_array(w, "top_logprobs");
        for (int j = 0; j < n_top; j++) {
            size_t at = row * (size_t)n_top + (size_t)j;
            put_object(w);
            write_token(w, t, sequence->answer.top_ids[at], sequence->answer.top_logprobs[at]);
            put_object_end(w);
        }
        put_array_end(w);
        put_object_end(w);
    }
    put_array_end(w);
    put_key_null(w, "refusal");
    put_object_end(w);
    choice->ids_sent = shown;
}

/* Messages. */

/* Mistral's templates take ids of nine letters and digits, and refuse others. */
static void write_call_id(struct json_writer *w, const struct chat_answer *c, const struct chat_choice *choice, int i) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t number = c->id + (uint64_t)(choice - c->choices) * 1000003 + (uint64_t)i * 7919;
    char id[32] = "call_";
    size_t at = c->format == CALLS_MISTRAL ? 0 : strlen(id), end = at + (at ? 12 : 9);
    for (; at < end; at++) {
        id[at] = letters[number % 36];
        number /= 36;
    }
    put_key_string_n(w, "id", id, end);
}

static void write_calls(struct json_writer *w, const struct chat_answer *c, struct chat_choice *choice, bool indexed) {
    const struct chat_reply *r = &choice->reply;
    if (r->n_calls == choice->calls_sent) return;
    put_key_array(w, "tool_calls");
    for (; choice->calls_sent < r->n_calls; choice->calls_sent++) {
        const struct tool_call *call = &r->calls[choice->calls_sent];
        put_object(w);
        if (indexed) put_key_int(w, "index", choice->calls_sent);
        write_call_id(w, c, choice, choice->calls_sent);
        put_key_string(w, "type", "function");
        put_key_object(w, "function");
        put_key_string(w, "name", call->name);
        put_key_string_n(w, "arguments", call->arguments.data, call->arguments.size);
        put_object_end(w);
        put_object_end(w);
    }
    put_array_end(w);
}

/* Log-probabilities go behind the text, and the words for the end behind both. */
static void write_tail(struct json_writer *w, const struct chat_answer *c, struct chat_choice *choice,
                       enum finish finish) {
    static const char *const names[FINISH_ERROR + 1] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length"};
    bool calls = finish == FINISH_STOP && choice->reply.n_calls > 0;
    write_logprobs(w, c, choice);
    put_key_string(w, "finish_reason", calls ? "tool_calls" : names[finish]);
}

static void write_message(struct json_writer *w, const struct chat_answer *c, struct chat_choice *choice) {
    const struct chat_reply *r = &choice->reply;
    put_object(w);
    put_key_int(w, "index", choice - c->choices);
    put_key_object(w, "message");
    put_key_string(w, "role", "assistant");
    if (r->content.size == 0 && r->n_calls > 0)
        put_key_null(w, "content");
    else
        put_key_string_n(w, "content", r->content.data, r->content.size);
    put_key_null(w, "refusal");
    if (r->reasoning.size > 0) put_key_string_n(w, "reasoning_content", r->reasoning.data, r->reasoning.size);
    write_calls(w, c, choice, false);
    put_object_end(w);
    write_tail(w, c, choice, choice->progress.finish);
    put_object_end(w);
}

/* The chunks whose neighbours have not been sent yet, as elements of "retrieval". */
static void write_found(struct json_writer *w, const struct chat_answer *c, struct chat_choice *choice) {
    const struct found_listing listing = {choice->sequence, &c->request.writing.retrieval, (int)(choice - c->choices)};
    for (; choice->found_sent < choice->progress.n_found; choice->found_sent++)
        found_write(w, &listing, choice->found_sent);
}

static bool may_cite(const struct chat_choice *choice) { return citations_may_be(choice->sequence, &choice->progress); }

static void write_citations(struct json_writer *w, const struct chat_answer *c, const struct chat_choice *choice) {
    const struct buffer *said = &choice->reply.content;
    const struct cited_answer answer = {
        .sequence = choice->sequence,
        .progress = &choice->progress,
        .index = (int)(choice - c->choices),
        .text = {said->data, said->size},
        .written_before = choice->reply.content_start,
    };
    if (may_cite(choice)) citations_write(w, &answer);
}

static struct told_answer told_of(const struct chat_answer *c, const struct chat_choice *choice) {
    const struct buffer *said = &choice->reply.content;
    return (struct told_answer){.model = c->model,
                                .sequence = choice->sequence,
                                .progress = &choice->progress,
                                .asked = &c->request.writing.retrieval,
                                .index = (int)(choice - c->choices),
                                .text = {said->data, said->size},
                                .said = &choice->reply};
}

static void write_attention(struct json_writer *w, const struct chat_answer *c, const struct chat_choice *choice) {
    const struct told_answer answer = told_of(c, choice);
    attention_write(w, &answer);
}

static void write_comparison(struct json_writer *w, const struct chat_answer *c, const struct chat_choice *choice) {
    const struct told_answer answer = told_of(c, choice);
    comparison_write(w, &answer);
}

static void write_usage(struct json_writer *w, const struct chat_answer *c) {
    struct token_usage usage = {0};
    usage_add_prompt(&usage, &c->choices[0].progress);
    for (int i = 0; i < c->n; i++) usage.written += c->choices[i].progress.n_ids;
    usage_write(w, &usage);
}

static void write_head(struct json_writer *w, const struct chat_answer *c, const char *object) {
    struct buffer id = {0};
    buffer_printf(&id, "chatcmpl-%016llx", (unsigned long long)c->id);
    put_object(w);
    put_key_string_n(w, "id", id.data, id.size);
    buffer_free(&id);
    put_key_string(w, "object", object);
    put_key_int(w, "created", c->created);
    put_key_string(w, "model", c->model->id);
    origin_write(w, c->model, c->choices[0].sequence);
    put_key_array(w, "choices");
}

void chat_write(struct chat_answer *c, struct buffer *out) {
    struct json_writer w;
    put_begin(&w, out);
    write_head(&w, c, "chat.completion");
    for (int i = 0; i < c->n; i++) write_message(&w, c, &c->choices[i]);
    put_array_end(&w);
    write_usage(&w, c);
    put_key_array(&w, "retrieval");
    for (int i = 0; i < c->n; i++) write_found(&w, c, &c->choices[i]);
    put_array_end(&w);
    if (may_cite(&c->choices[0])) {
        put_key_array(&w, "citations");
        for (int i = 0; i < c->n; i++) write_citations(&w, c, &c->choices[i]);
        put_array_end(&w);
    }
    if (c->request.writing.retrieval.attention) {
        put_key_array(&w, "attention");
        for (int i = 0; i < c->n; i++) write_attention(&w, c, &c->choices[i]);
        put_array_end(&w);
    }
    if (c->request.writing.retrieval.compared) {
        put_key_array(&w, "compare");
        for (int i = 0; i < c->n; i++) write_comparison(&w, c, &c->choices[i]);
        put_array_end(&w);
    }
    put_object_end(&w);
}

/* Events. */

static void begin_event(struct json_writer *w, const struct chat_answer *c, struct buffer *out) {
    event_begin(w, out);
    write_head(w, c, "chat.completion.chunk");
}

/* The end of an event's object behind its choices: clients that asked for usage find null in every event but the last.
 */
static void end_event(struct json_writer *w, const struct chat_answer *c, struct buffer *out) {
    if (c->request.writing.include_usage) put_key_null(w, "usage");
    event_end(w, out);
}

static void begin_delta(struct json_writer *w, const struct chat_answer *c, const struct chat_choice *choice) {
    put_object(w);
    put_key_int(w, "index", choice - c->choices);
    put_key_object(w, "delta");
}

static void write_role_event(const struct chat_answer *c, struct chat_choice *choice, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    begin_delta(&w, c, choice);
    put_key_string(&w, "role", "assistant");
    put_key_string(&w, "content", "");
    put_object_end(&w);
    put_key_null(&w, "logprobs");
    put_key_null(&w, "finish_reason");
    put_object_end(&w);
    put_array_end(&w);
    end_event(&w, c, out);
    choice->begun = true;
}

/* The part of a text that has not been sent. */
static void write_new(struct json_writer *w, const char *key, const struct buffer *text, size_t *sent) {
    if (text->size > *sent) put_key_string_n(w, key, text->data + *sent, text->size - *sent);
    *sent = text->size;
}

static void write_text_event(const struct chat_answer *c, struct chat_choice *choice, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    begin_delta(&w, c, choice);
    write_new(&w, "reasoning_content", &choice->reply.reasoning, &choice->reasoning_sent);
    write_new(&w, "content", &choice->reply.content, &choice->content_sent);
    write_calls(&w, c, choice, true);
    put_object_end(&w);
    write_tail(&w, c, choice, FINISH_NONE);
    put_object_end(&w);
    put_array_end(&w);
    end_event(&w, c, out);
}

/* Neighbours come in an event of their own, with an empty delta, before the text of the tokens that read them. */
static void write_retrieval_event(const struct chat_answer *c, struct chat_choice *choice, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    begin_delta(&w, c, choice);
    put_object_end(&w);
    put_key_null(&w, "logprobs");
    put_key_null(&w, "finish_reason");
    put_object_end(&w);
    put_array_end(&w);
    put_key_array(&w, "retrieval");
    write_found(&w, c, choice);
    put_array_end(&w);
    end_event(&w, c, out);
}

static void write_finish_event(const struct chat_answer *c, struct chat_choice *choice, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    begin_delta(&w, c, choice);
    put_object_end(&w);
    write_tail(&w, c, choice, choice->progress.finish);
    put_object_end(&w);
    put_array_end(&w);
    if (may_cite(choice)) {
        put_key_array(&w, "citations");
        write_citations(&w, c, choice);
        put_array_end(&w);
    }
    if (c->request.writing.retrieval.attention) {
        put_key_array(&w, "attention");
        write_attention(&w, c, choice);
        put_array_end(&w);
    }
    end_event(&w, c, out);
}

void chat_write_event(struct chat_answer *c, struct chat_choice *choice, struct buffer *out) {
    const struct chat_reply *r = &choice->reply;
    bool has_text = r->reasoning.size > choice->reasoning_sent || r->content.size > choice->content_sent ||
                    r->n_calls > choice->calls_sent;
    bool has_logprobs = c->request.logprobs && shown_ids(choice) > choice->ids_sent;
    bool has_found = choice->progress.n_found > choice->found_sent && found_is_told(choice->sequence);
    bool ends = choice->progress.finish != FINISH_NONE;
    if (!choice->begun && (has_text || has_logprobs || has_found || ends)) write_role_event(c, choice, out);
    if (has_found) write_retrieval_event(c, choice, out);
    if (has_text || has_logprobs) write_text_event(c, choice, out);
    if (ends) write_finish_event(c, choice, out);
}

void chat_write_comparison(struct chat_answer *c, const struct chat_choice *choice, struct buffer *out) {
    struct json_writer w;
    if (!c->request.writing.retrieval.compared) return;
    begin_event(&w, c, out);
    put_array_end(&w);
    put_key_array(&w, "compare");
    write_comparison(&w, c, choice);
    put_array_end(&w);
    end_event(&w, c, out);
}

static void write_usage_event(struct chat_answer *c, struct buffer *out) {
    struct json_writer w;
    begin_event(&w, c, out);
    put_array_end(&w);
    write_usage(&w, c);
    event_end(&w, out);
}

void chat_write_end(struct chat_answer *c, const struct failure *failed, struct buffer *out) {
    if (failed == NULL && c->request.writing.include_usage) write_usage_event(c, out);
    stream_end(failed, out);
}
