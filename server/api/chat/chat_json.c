/* server/api/chat/chat_json.c: choices of chats in OpenAI's shapes: messages of one body, or deltas
 * of a stream. */
#include <stdlib.h>
#include <string.h>

#include "server/api/chat/chat_turns.h"
#include "server/api/text/provenance_json.h"

/* Log-probabilities. */

static void write_bytes(struct json_writer *w, const struct buffer *piece) {
    put_key_array(w, "bytes");
    for (size_t i = 0; i < piece->size; i++) put_int(w, (unsigned char)piece->data[i]);
    put_array_end(w);
}

static void write_token(struct json_writer *w, const struct tokenizer *tokenizer, int32_t id,
                        float logprob) {
    struct buffer piece = {0};
    tokenizer_piece(tokenizer, id, &piece);
    put_key_string_n(w, "token", piece.data, piece.size);
    put_key_float(w, "logprob", logprob);
    write_bytes(w, &piece);
    buffer_free(&piece);
}

static int shown_ids(const struct choice *choice) {
    return tokens_shown(choice->sequence, &choice->progress, choice->ids_sent);
}

void chat_put_tokens(struct json_writer *w, const struct chat_answer *answer,
                     const struct choice *choice) {
    const struct sequence *sequence = choice->sequence;
    const struct tokenizer *tokenizer = answer->base.model->tokenizer;
    int shown = shown_ids(choice), n_top = sequence->asked.n_top;
    for (int i = choice->ids_sent; i < shown; i++) {
        size_t row = (size_t)(sequence->asked.n_prompt + i);
        put_object(w);
        write_token(w, tokenizer, sequence->answer.ids[i], sequence->answer.logprobs[row]);
        put_key_array(w, "top_logprobs");
        for (int j = 0; j < n_top; j++) {
            size_t at = row * (size_t)n_top + (size_t)j;
            put_object(w);
            write_token(w, tokenizer, sequence->answer.top_ids[at],
                        sequence->answer.top_logprobs[at]);
            put_object_end(w);
        }
        put_array_end(w);
        put_object_end(w);
    }
}

static void write_logprobs(struct json_writer *w, const struct chat_answer *answer,
                           struct choice *choice) {
    if (!answer->request.logprobs) {
        put_key_null(w, "logprobs");
        return;
    }
    put_key_object(w, "logprobs");
    put_key_array(w, "content");
    chat_put_tokens(w, answer, choice);
    put_array_end(w);
    put_key_null(w, "refusal");
    put_object_end(w);
    choice->ids_sent = shown_ids(choice);
}

/* Messages. */

/* Mistral's templates take ids of nine letters and digits, and refuse others. */
void chat_call_id(const struct chat_answer *answer, const struct chat_choice *choice, int i,
                  char id[CALL_ID_BYTES]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t number = answer->base.id + (uint64_t)choice->base.index * 1000003 + (uint64_t)i * 7919;
    strcpy(id, answer->format == CALLS_MISTRAL ? "" : "call_");
    size_t at = strlen(id), end = at + (at ? 12 : 9);
    for (; at < end; at++) {
        id[at] = letters[number % 36];
        number /= 36;
    }
    id[end] = '\0';
}

static void write_calls(struct json_writer *w, const struct chat_answer *answer,
                        struct chat_choice *choice, bool indexed) {
    const struct chat_reply *reply = &choice->reply;
    if (reply->n_calls == choice->calls_sent) return;
    put_key_array(w, "tool_calls");
    for (; choice->calls_sent < reply->n_calls; choice->calls_sent++) {
        const struct tool_call *call = &reply->calls[choice->calls_sent];
        put_object(w);
        char id[CALL_ID_BYTES];
        if (indexed) put_key_int(w, "index", choice->calls_sent);
        chat_call_id(answer, choice, choice->calls_sent, id);
        put_key_string(w, "id", id);
        put_key_string(w, "type", "function");
        put_key_object(w, "function");
        put_key_string(w, "name", call->name);
        put_key_string_n(w, "arguments", call->arguments.data, call->arguments.size);
        put_object_end(w);
        put_object_end(w);
    }
    put_array_end(w);
}

/* Calls that the server carries out. In a stream a call comes when it begins, and its result with
 * the same index when it is over. */
static void write_own_call(struct json_writer *w, const struct chat_turns *turns, int i,
                           bool begins, bool ends) {
    const struct chat_call *call = &turns->calls[i];
    put_object(w);
    put_key_int(w, "index", i);
    put_key_string(w, "id", call->id);
    if (begins) {
        put_key_string(w, "server", call->server);
        put_key_string(w, "name", call->tool);
        put_key_string_n(w, "arguments", call->arguments.data, call->arguments.size);
    }
    if (ends)
        put_key_string_n(w, call->failed ? "error" : "output", call->result.data,
                         call->result.size);
    put_object_end(w);
}

static bool has_own_calls(const struct chat_choice *choice) {
    const struct chat_turns *turns = choice->turns;
    return turns && (choice->begun_sent < turns->n_calls ||
                     (choice->over_sent < turns->n_calls && turns->calls[choice->over_sent].over));
}

static void write_own_calls(struct json_writer *w, struct chat_choice *choice) {
    const struct chat_turns *turns = choice->turns;
    if (!has_own_calls(choice)) return;
    put_key_array(w, "mcp_calls");
    while (choice->over_sent < turns->n_calls && turns->calls[choice->over_sent].over) {
        write_own_call(w, turns, choice->over_sent, choice->over_sent >= choice->begun_sent, true);
        choice->over_sent++;
        choice->begun_sent = max_int(choice->begun_sent, choice->over_sent);
    }
    for (; choice->begun_sent < turns->n_calls; choice->begun_sent++)
        write_own_call(w, turns, choice->begun_sent, true, false);
    put_array_end(w);
}

/* Log-probabilities go behind the text, and the words for the end behind both. */
static void write_tail(struct json_writer *w, const struct chat_answer *answer,
                       struct chat_choice *choice, enum finish finish) {
    write_logprobs(w, answer, &choice->base);
    if (finish == FINISH_STOP && choice->reply.n_calls > 0)
        put_key_string(w, "finish_reason", "tool_calls");
    else
        openai_write_finish(w, finish);
    openai_write_stop_reason(w, &answer->base, &choice->base);
}

static void write_message(struct json_writer *w, const struct writing_answer *answer,
                          struct choice *choice) {
    const struct chat_answer *chat_answer = (const struct chat_answer *)answer;
    struct chat_choice *own = (struct chat_choice *)choice;
    const struct chat_reply *reply = &own->reply;
    put_object(w);
    put_key_int(w, "index", choice->index);
    put_key_object(w, "message");
    put_key_string(w, "role", "assistant");
    if (reply->content.size == 0 && reply->n_calls > 0)
        put_key_null(w, "content");
    else
        put_key_string_n(w, "content", reply->content.data, reply->content.size);
    put_key_null(w, "refusal");
    if (reply->reasoning.size > 0)
        put_key_string_n(w, "reasoning_content", reply->reasoning.data, reply->reasoning.size);
    write_own_calls(w, own);
    write_calls(w, chat_answer, own, false);
    put_object_end(w);
    write_tail(w, chat_answer, own, choice->progress.finish);
    put_object_end(w);
}

static struct told_answer tell(const struct writing_answer *answer, const struct choice *choice) {
    const struct chat_reply *said = &((const struct chat_choice *)choice)->reply;
    return (struct told_answer){.model = answer->model,
                                .sequence = choice->sequence,
                                .progress = &choice->progress,
                                .asked = &answer->asked->retrieval,
                                .index = choice->index,
                                .found_sent = choice->found_sent,
                                .text = {said->content.data, said->content.size},
                                .said = said};
}

/* Deltas. */

static void begin_delta(struct json_writer *w, const struct choice *choice) {
    put_object(w);
    put_key_int(w, "index", choice->index);
    put_key_object(w, "delta");
}

static void end_delta(struct json_writer *w) {
    put_object_end(w);
    put_key_null(w, "logprobs");
    openai_write_finish(w, FINISH_NONE);
    put_object_end(w);
}

static void write_empty(struct json_writer *w, const struct choice *choice) {
    begin_delta(w, choice);
    end_delta(w);
}

const struct openai_shape chat_shape = {.prefix = "chatcmpl-",
                                        .whole = "chat.completion",
                                        .part = "chat.completion.chunk",
                                        .write_choice = write_message,
                                        .write_empty = write_empty,
                                        .tell = tell};

static void write_role_event(const struct writing_answer *answer, struct chat_choice *choice,
                             struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    begin_delta(&w, &choice->base);
    put_key_string(&w, "role", "assistant");
    put_key_string(&w, "content", "");
    end_delta(&w);
    openai_end_choices(&w, answer);
    choice->begun = true;
}

/* The part of a text that has not been sent. */
static void write_rest(struct json_writer *w, const char *key, const struct buffer *text,
                       size_t *sent) {
    if (text->size > *sent) put_key_string_n(w, key, text->data + *sent, text->size - *sent);
    *sent = text->size;
}

static void write_text_event(const struct writing_answer *answer, struct chat_choice *choice,
                             struct buffer *out) {
    const struct chat_answer *chat_answer = (const struct chat_answer *)answer;
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    begin_delta(&w, &choice->base);
    write_rest(&w, "reasoning_content", &choice->reply.reasoning, &choice->reasoning_sent);
    write_rest(&w, "content", &choice->reply.content, &choice->content_sent);
    write_own_calls(&w, choice);
    write_calls(&w, chat_answer, choice, true);
    put_object_end(&w);
    write_tail(&w, chat_answer, choice, FINISH_NONE);
    put_object_end(&w);
    openai_end_choices(&w, answer);
}

static void write_finish_event(const struct writing_answer *answer, struct chat_choice *choice,
                               struct buffer *out) {
    struct json_writer w;
    openai_begin_event(&w, answer, out);
    begin_delta(&w, &choice->base);
    put_object_end(&w);
    write_tail(&w, (const struct chat_answer *)answer, choice, choice->base.progress.finish);
    put_object_end(&w);
    openai_end_finished(&w, answer, &choice->base);
}

void chat_write_new(const struct writing_answer *answer, struct choice *choice,
                    struct buffer *out) {
    struct chat_choice *own = (struct chat_choice *)choice;
    const struct chat_reply *reply = &own->reply;
    bool has_text = reply->reasoning.size > own->reasoning_sent ||
                    reply->content.size > own->content_sent || reply->n_calls > own->calls_sent ||
                    has_own_calls(own);
    bool has_logprobs = ((const struct chat_answer *)answer)->request.logprobs &&
                        shown_ids(choice) > choice->ids_sent;
    bool has_found = openai_has_found(choice), ends = choice->progress.finish != FINISH_NONE;
    if (!own->begun && (has_text || has_logprobs || has_found || ends))
        write_role_event(answer, own, out);
    if (has_found) openai_write_found(answer, choice, out);
    if (has_text || has_logprobs) write_text_event(answer, own, out);
    if (ends) write_finish_event(answer, own, out);
}
