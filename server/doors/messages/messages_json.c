/* server/doors/messages/messages_json.c: an answer in Anthropic's shapes. */
#include <string.h>

#include "config/base/hash.h"
#include "server/api/text/cited_numbers.h"
#include "server/doors/messages/messages.h"
#include "server/doors/shared/call_input.h"

void messages_write_id(struct json_writer *w, const struct writing_answer *answer) {
    char id[32];
    snprintf(id, sizeof id, "msg_%016llx", (unsigned long long)answer->id);
    put_key_string(w, "id", id);
}

void messages_write_call_id(struct json_writer *w, const struct chat_answer *answer,
                            const struct chat_choice *choice, int i) {
    char id[CALL_ID_BYTES], whole[CALL_ID_BYTES + 8];
    chat_call_id(answer, choice, i, id);
    snprintf(whole, sizeof whole, "toolu_%s", id);
    put_key_string(w, "id", whole);
}

/* The ids of a call and of its result. */
static void put_own_id(struct json_writer *w, const char *key, const struct chat_call *call) {
    char whole[CALL_ID_BYTES + 12];
    snprintf(whole, sizeof whole, "mcptoolu_%s", call->id);
    put_key_string(w, key, whole);
}

void messages_write_own_call(struct json_writer *w, const struct chat_call *call) {
    put_key_string(w, "type", "mcp_tool_use");
    put_own_id(w, "id", call);
    put_key_string(w, "name", call->tool);
    put_key_string(w, "server_name", call->server);
}

void messages_write_own_result(struct json_writer *w, const struct chat_call *call) {
    put_key_string(w, "type", "mcp_tool_result");
    put_own_id(w, "tool_use_id", call);
    put_key_bool(w, "is_error", call->failed);
    put_key_array(w, "content");
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", call->result.data, call->result.size);
    put_object_end(w);
    put_array_end(w);
}

void messages_write_signature(struct json_writer *w, struct text_span thought) {
    char signature[24];
    uint64_t hash = hash_bytes(thought.text, thought.size, 0);
    snprintf(signature, sizeof signature, "%016llx", (unsigned long long)hash);
    put_key_string(w, "signature", signature);
}

/* The end. */

static const char *stop_reason(const struct messages_answer *answer, const struct choice *choice) {
    const struct progress *progress = &choice->progress;
    if (progress->finish == FINISH_LENGTH)
        return answer->chat.clamped ? "model_context_window_exceeded" : "max_tokens";
    if (((const struct chat_choice *)choice)->reply.n_calls > 0) return "tool_use";
    return writing_stop(&answer->chat.base, choice) ? "stop_sequence" : "end_turn";
}

void messages_write_stop(struct json_writer *w, const struct messages_answer *answer,
                         const struct choice *choice) {
    const char *reason = stop_reason(answer, choice);
    const struct text_span *stop = writing_stop(&answer->chat.base, choice);
    put_key_string(w, "stop_reason", reason);
    if (strcmp(reason, "stop_sequence") == 0)
        put_key_string_n(w, "stop_sequence", stop->text, stop->size);
    else
        put_key_null(w, "stop_sequence");
}

/* Tokens that were taken from an earlier prompt are told apart where the request marks what is to
 * be kept, as at Anthropic; else they are input like any. */
void messages_write_usage(struct json_writer *w, const struct messages_answer *answer,
                          const struct choice *choice) {
    const struct progress *progress = &choice->progress;
    const struct earlier_turns *earlier = &choice->earlier;
    int now = progress->n_read > 0 ? progress->n_read : answer->chat.n_counted;
    int64_t read = earlier->n_read + now, cached = 0;
    if (answer->counts_cache) cached = earlier->n_cached + min_int(progress->n_cached, now);
    put_key_object(w, "usage");
    put_key_int(w, "input_tokens", read - cached);
    put_key_int(w, "cache_creation_input_tokens", 0);
    put_key_int(w, "cache_read_input_tokens", cached);
    put_key_int(w, "output_tokens", earlier->n_ids + progress->n_ids);
    put_object_end(w);
}

/* Citations. */

static void write_result(struct json_writer *w, const struct citable *passage) {
    put_key_string_n(w, "source", passage->source.text, passage->source.size);
    put_key_int(w, "search_result_index", passage->document);
    put_key_int(w, "start_block_index", passage->start);
    put_key_int(w, "end_block_index", passage->end);
}

static void write_document(struct json_writer *w, const struct citable *passage) {
    static const struct {
        const char *start, *end;
    } places[] = {[CITES_CHARACTERS] = {"start_char_index", "end_char_index"},
                  [CITES_PAGES] = {"start_page_number", "end_page_number"},
                  [CITES_BLOCKS] = {"start_block_index", "end_block_index"}};
    put_key_int(w, "document_index", passage->document);
    put_key_int(w, places[passage->kind].start, passage->start);
    put_key_int(w, places[passage->kind].end, passage->end);
}

void messages_write_citation(struct json_writer *w, const struct citable *passage) {
    static const char *const types[] = {[CITES_CHARACTERS] = "char_location",
                                        [CITES_PAGES] = "page_location",
                                        [CITES_BLOCKS] = "content_block_location",
                                        [CITES_RESULT] = "search_result_location"};
    bool result = passage->kind == CITES_RESULT;
    put_object(w);
    put_key_string(w, "type", types[passage->kind]);
    put_key_string_n(w, "cited_text", passage->text.text, passage->text.size);
    put_key(w, result ? "title" : "document_title");
    if (passage->title.text)
        put_string_n(w, passage->title.text, passage->title.size);
    else
        put_null(w);
    if (result)
        write_result(w, passage);
    else
        write_document(w, passage);
    put_object_end(w);
}

const struct citable *messages_cited(const struct messages_answer *answer, struct text_span text,
                                     size_t *at, size_t end) {
    const struct citable_list *list = &answer->citables;
    int number;
    while ((number = cited_next(text, at, end)) > 0)
        if (number <= list->n) return &list->all[number - 1];
    return NULL;
}

/* The whole. */

static bool names_passage(const struct messages_answer *answer, struct text_span text,
                          const struct cited_piece *piece) {
    size_t at = piece->start;
    return piece->names && messages_cited(answer, text, &at, piece->end) != NULL;
}

/* The text from `from` on to the first brackets that name a passage. */
static size_t plain_end(const struct messages_answer *answer, struct text_span text, size_t from) {
    struct cited_piece piece;
    size_t at = from;
    if (answer->citables.n == 0) return text.size;
    while (cited_cut(text, at, true, &piece) && !names_passage(answer, text, &piece))
        at = piece.end;
    return at;
}

/* The block of a text, with the citations of all brackets that stand right behind it; moves *at
 * behind those. */
static void write_text_block(struct json_writer *w, const struct messages_answer *answer,
                             struct text_span text, size_t *at) {
    size_t start = *at, end = plain_end(answer, text, start);
    struct cited_piece piece;
    const struct citable *passage;
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", text.text + start, end - start);
    bool cited = end < text.size;
    if (cited)
        put_key_array(w, "citations");
    else
        put_key_null(w, "citations");
    for (*at = end; cited_cut(text, *at, true, &piece) && names_passage(answer, text, &piece);
         *at = piece.end)
        for (size_t next = piece.start;
             (passage = messages_cited(answer, text, &next, piece.end)) != NULL;)
            messages_write_citation(w, passage);
    if (cited) put_array_end(w);
    put_object_end(w);
}

static void write_thinking(struct json_writer *w, struct text_span thought) {
    put_object(w);
    put_key_string(w, "type", "thinking");
    put_key_string_n(w, "thinking", thought.text, thought.size);
    messages_write_signature(w, thought);
    put_object_end(w);
}

static void write_call(struct json_writer *w, const struct chat_answer *answer,
                       const struct chat_choice *choice, int i) {
    const struct tool_call *call = &choice->reply.calls[i];
    put_object(w);
    put_key_string(w, "type", "tool_use");
    messages_write_call_id(w, answer, choice, i);
    put_key_string(w, "name", call->name);
    put_key(w, "input");
    put_call_input(w, &call->arguments);
    put_object_end(w);
}

/* Bytes of the thoughts and of the content. */
struct spoken {
    size_t thought, said;
};

/* Writes what was thought and said from *at up to `end`. */
static void write_words(struct json_writer *w, const struct messages_answer *answer,
                        const struct chat_reply *reply, struct spoken *at, struct spoken end) {
    struct text_span text = {reply->content.data, end.said},
                     thoughts = {reply->reasoning.data + at->thought, end.thought - at->thought};
    if (answer->thinks && thoughts.size > 0) write_thinking(w, thoughts);
    while (at->said < text.size) write_text_block(w, answer, text, &at->said);
    at->thought = end.thought;
}

/* A call that the server carried out, and its result. */
static void write_own_call(struct json_writer *w, const struct chat_call *call) {
    put_object(w);
    messages_write_own_call(w, call);
    put_key(w, "input");
    put_call_input(w, &call->arguments);
    put_object_end(w);
    put_object(w);
    messages_write_own_result(w, call);
    put_object_end(w);
}

static void write_content(struct json_writer *w, const struct messages_answer *answer,
                          const struct chat_choice *choice) {
    const struct chat_reply *reply = &choice->reply;
    const struct chat_turns *turns = choice->turns;
    struct spoken at = {0}, end = {reply->reasoning.size, reply->content.size};
    put_key_array(w, "content");
    for (int i = 0; turns && i < turns->n_calls; i++) {
        const struct chat_call *call = &turns->calls[i];
        write_words(w, answer, reply, &at, (struct spoken){call->reasoning_at, call->content_at});
        write_own_call(w, call);
    }
    write_words(w, answer, reply, &at, end);
    for (int i = 0; i < reply->n_calls; i++) write_call(w, &answer->chat, choice, i);
    put_array_end(w);
}

void messages_write_whole(struct writing_answer *base, struct buffer *out) {
    const struct messages_answer *answer = (const struct messages_answer *)base;
    const struct choice *choice = base->choices[0];
    struct json_writer w;
    put_begin(&w, out);
    put_object(&w);
    messages_write_id(&w, base);
    put_key_string(&w, "type", "message");
    put_key_string(&w, "role", "assistant");
    put_key_string(&w, "model", base->model->id);
    write_content(&w, answer, (const struct chat_choice *)choice);
    messages_write_stop(&w, answer, choice);
    messages_write_usage(&w, answer, choice);
    put_object_end(&w);
}
