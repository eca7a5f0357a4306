/* server/doors/messages/messages_events.c: an answer as the events of a stream: one block after the
 * other, each between its start and its stop. */
#include "server/api/text/cited_numbers.h"
#include "server/doors/messages/messages.h"
#include "server/doors/shared/call_input.h"
#include "server/doors/shared/event.h"

static void write_start(const struct messages_answer *answer, const struct choice *choice,
                        struct buffer *out) {
    const struct writing_answer *base = &answer->chat.base;
    struct json_writer w;
    event_begin(&w, out, "message_start");
    put_key_object(&w, "message");
    messages_write_id(&w, base);
    put_key_string(&w, "type", "message");
    put_key_string(&w, "role", "assistant");
    put_key_string(&w, "model", base->model->id);
    put_key_array(&w, "content");
    put_array_end(&w);
    put_key_null(&w, "stop_reason");
    put_key_null(&w, "stop_sequence");
    messages_write_usage(&w, answer, choice);
    put_object_end(&w);
    event_end(&w);
    event_begin(&w, out, "ping");
    event_end(&w);
}

/* Blocks. */

static void begin_block(struct json_writer *w, struct messages_choice *choice, struct buffer *out,
                        const char *type) {
    event_begin(w, out, "content_block_start");
    put_key_int(w, "index", choice->n_blocks);
    put_key_object(w, "content_block");
    put_key_string(w, "type", type);
}

static void begin_delta(struct json_writer *w, const struct messages_choice *choice,
                        struct buffer *out, const char *type) {
    event_begin(w, out, "content_block_delta");
    put_key_int(w, "index", choice->n_blocks);
    put_key_object(w, "delta");
    put_key_string(w, "type", type);
}

static void end_part(struct json_writer *w) {
    put_object_end(w);
    event_end(w);
}

static void write_delta(const struct messages_choice *choice, struct buffer *out, const char *type,
                        const char *key, struct text_span text) {
    struct json_writer w;
    begin_delta(&w, choice, out, type);
    put_key_string_n(&w, key, text.text, text.size);
    end_part(&w);
}

/* The input of a call, which its clients parse. */
static void write_input(const struct messages_choice *choice, struct buffer *out,
                        const struct buffer *arguments) {
    struct buffer input = {0};
    struct json_writer w;
    put_begin(&w, &input);
    put_call_input(&w, arguments);
    write_delta(choice, out, "input_json_delta", "partial_json",
                (struct text_span){input.data, input.size});
    buffer_free(&input);
}

static void write_stop(struct messages_choice *choice, struct buffer *out) {
    struct json_writer w;
    event_begin(&w, out, "content_block_stop");
    put_key_int(&w, "index", choice->n_blocks);
    event_end(&w);
    choice->n_blocks++;
}

static void close_block(struct messages_choice *choice, struct buffer *out) {
    struct json_writer w;
    if (choice->block == BLOCK_NONE) return;
    if (choice->block == BLOCK_THINKING) {
        begin_delta(&w, choice, out, "signature_delta");
        const struct buffer *thought = &choice->chat.reply.reasoning;
        messages_write_signature(
            &w, (struct text_span){thought->data + choice->thought_from,
                                   choice->chat.reasoning_sent - choice->thought_from});
        end_part(&w);
    }
    write_stop(choice, out);
    choice->block = BLOCK_NONE;
    choice->cited = false;
}

static void open_block(struct messages_choice *choice, struct buffer *out,
                       enum messages_block block) {
    struct json_writer w;
    bool thinks = block == BLOCK_THINKING;
    if (choice->block == block && !choice->cited) return;
    close_block(choice, out);
    begin_block(&w, choice, out, thinks ? "thinking" : "text");
    put_key_string(&w, thinks ? "thinking" : "text", "");
    if (thinks) put_key_string(&w, "signature", "");
    end_part(&w);
    choice->block = block;
    choice->thought_from = choice->chat.reasoning_sent;
}

/* The parts of an answer. */

static void write_thoughts(struct messages_choice *choice, size_t end, struct buffer *out) {
    const struct buffer *thought = &choice->chat.reply.reasoning;
    size_t sent = choice->chat.reasoning_sent;
    if (end == sent) return;
    open_block(choice, out, BLOCK_THINKING);
    write_delta(choice, out, "thinking_delta", "thinking",
                (struct text_span){thought->data + sent, end - sent});
    choice->chat.reasoning_sent = end;
}

static void write_text(struct messages_choice *choice, struct buffer *out, struct text_span text) {
    open_block(choice, out, BLOCK_TEXT);
    write_delta(choice, out, "text_delta", "text", text);
}

/* False: the brackets name no passage, and are text. */
static bool write_citations(const struct messages_answer *answer, struct messages_choice *choice,
                            struct text_span text, const struct cited_piece *piece,
                            struct buffer *out) {
    const struct citable *passage;
    struct json_writer w;
    bool any = false;
    for (size_t at = piece->start;
         (passage = messages_cited(answer, text, &at, piece->end)) != NULL; any = true) {
        if (choice->block != BLOCK_TEXT) open_block(choice, out, BLOCK_TEXT);
        begin_delta(&w, choice, out, "citations_delta");
        put_key(&w, "citation");
        messages_write_citation(&w, passage);
        end_part(&w);
    }
    choice->cited = choice->cited || any;
    return any;
}

/* Up to byte `end`; `last`: no more comes before something else. */
static void write_said(const struct messages_answer *answer, struct messages_choice *choice,
                       size_t end, bool last, struct buffer *out) {
    struct text_span text = {choice->chat.reply.content.data, end};
    bool cites = answer->citables.n > 0;
    size_t *sent = &choice->chat.content_sent;
    struct cited_piece piece;
    if (!cites && text.size > *sent) {
        write_text(choice, out, (struct text_span){text.text + *sent, text.size - *sent});
        *sent = text.size;
    }
    while (cites && cited_cut(text, *sent, last, &piece)) {
        if (!piece.names || !write_citations(answer, choice, text, &piece, out))
            write_text(choice, out,
                       (struct text_span){text.text + piece.start, piece.end - piece.start});
        *sent = piece.end;
    }
}

static void write_call(const struct messages_answer *answer, struct messages_choice *choice, int i,
                       struct buffer *out) {
    const struct tool_call *call = &choice->chat.reply.calls[i];
    struct json_writer w;
    close_block(choice, out);
    begin_block(&w, choice, out, "tool_use");
    messages_write_call_id(&w, &answer->chat, &choice->chat, i);
    put_key_string(&w, "name", call->name);
    put_key_object(&w, "input");
    put_object_end(&w);
    end_part(&w);
    write_input(choice, out, &call->arguments);
    write_stop(choice, out);
}

/* The input of a call that the server carries out, in a block that is closed at once. */
static void begin_own_call(struct messages_choice *choice, const struct chat_call *call,
                           struct buffer *out) {
    struct json_writer w;
    close_block(choice, out);
    event_begin(&w, out, "content_block_start");
    put_key_int(&w, "index", choice->n_blocks);
    put_key_object(&w, "content_block");
    messages_write_own_call(&w, call);
    put_key_object(&w, "input");
    put_object_end(&w);
    end_part(&w);
    write_input(choice, out, &call->arguments);
    write_stop(choice, out);
}

static void write_own_result(struct messages_choice *choice, const struct chat_call *call,
                             struct buffer *out) {
    struct json_writer w;
    event_begin(&w, out, "content_block_start");
    put_key_int(&w, "index", choice->n_blocks);
    put_key_object(&w, "content_block");
    messages_write_own_result(&w, call);
    end_part(&w);
    write_stop(choice, out);
}

/* Calls that the server carries out, with what was thought and said before each; whether all of
 * them are over. */
static bool write_own_calls(const struct messages_answer *answer, struct messages_choice *choice,
                            struct buffer *out) {
    struct chat_choice *chat = &choice->chat;
    const struct chat_turns *turns = chat->turns;
    for (; turns && chat->over_sent < turns->n_calls; chat->over_sent++) {
        const struct chat_call *call = &turns->calls[chat->over_sent];
        if (answer->thinks) write_thoughts(choice, call->reasoning_at, out);
        write_said(answer, choice, call->content_at, true, out);
        if (chat->begun_sent == chat->over_sent) begin_own_call(choice, call, out);
        chat->begun_sent = chat->over_sent + 1;
        if (!call->over) return false;
        write_own_result(choice, call, out);
    }
    return true;
}

void messages_write_new(const struct writing_answer *base, struct choice *base_choice,
                        struct buffer *out) {
    const struct messages_answer *answer = (const struct messages_answer *)base;
    struct messages_choice *choice = (struct messages_choice *)base_choice;
    if (!choice->chat.begun) write_start(answer, base_choice, out);
    choice->chat.begun = true;
    const struct chat_reply *reply = &choice->chat.reply;
    bool last = base_choice->progress.finish != FINISH_NONE;
    if (!write_own_calls(answer, choice, out)) return;
    if (answer->thinks) write_thoughts(choice, reply->reasoning.size, out);
    write_said(answer, choice, reply->content.size, last, out);
    for (int *sent = &choice->chat.calls_sent; *sent < choice->chat.reply.n_calls; ++*sent)
        write_call(answer, choice, *sent, out);
    if (base_choice->progress.finish != FINISH_NONE) close_block(choice, out);
}

/* The end. */

static void write_failure(const struct writing_answer *base, const struct failure *failed,
                          struct buffer *out) {
    struct failure told = *failed;
    told.form = base->base.form;
    buffer_append_string(out, "event: error\ndata: ");
    failure_write(&told, out);
    buffer_append_string(out, "\n\n");
}

void messages_write_end(const struct writing_answer *base, const struct failure *failed,
                        struct buffer *out) {
    const struct messages_answer *answer = (const struct messages_answer *)base;
    struct json_writer w;
    if (failed) {
        write_failure(base, failed, out);
        return;
    }
    event_begin(&w, out, "message_delta");
    put_key_object(&w, "delta");
    messages_write_stop(&w, answer, base->choices[0]);
    put_object_end(&w);
    messages_write_usage(&w, answer, base->choices[0]);
    event_end(&w);
    event_begin(&w, out, "message_stop");
    event_end(&w);
}
