/* server/doors/responses/responses_events.c: a response as the events of a stream, numbered without
 * gaps: items one after the other, each between its "added" and its "done". */
#include <stdlib.h>
#include <string.h>

#include "server/doors/responses/responses.h"
#include "server/doors/shared/event.h"

/* One poll's events. */
struct event_writer {
    const struct responses_told *told;
    struct responses_choice *choice;
    struct buffer *out;
    struct json_writer w;
};

static void begin(struct event_writer *events, const char *name) {
    event_begin(&events->w, events->out, name);
    put_key_int(&events->w, "sequence_number", events->choice->n_events);
    events->choice->n_events++;
}

static void write_response(struct event_writer *events, const char *name) {
    begin(events, name);
    put_key(&events->w, "response");
    responses_write(&events->w, events->told);
    event_end(&events->w);
}

/* Items. */

static int last_item(const struct event_writer *events) { return events->choice->n - 1; }

static enum responses_kind last_kind(const struct event_writer *events) {
    return events->choice->items[last_item(events)].kind;
}

static bool has_content(const struct event_writer *events) {
    return last_kind(events) == ITEM_MESSAGE || last_kind(events) == ITEM_REASONING;
}

static void write_item(struct event_writer *events, const char *name, bool begins) {
    begin(events, name);
    put_key_int(&events->w, "output_index", last_item(events));
    put_key(&events->w, "item");
    responses_write_item(&events->w, events->told, last_item(events), begins);
    event_end(&events->w);
}

/* An event of the last item, open behind its place. */
static void begin_of_item(struct event_writer *events, const char *name) {
    char id[RESPONSE_ID_BYTES];
    responses_item_id(events->told->answer, events->choice, last_item(events), id);
    begin(events, name);
    put_key_string(&events->w, "item_id", id);
    put_key_int(&events->w, "output_index", last_item(events));
    if (has_content(events)) put_key_int(&events->w, "content_index", 0);
}

static void write_part(struct event_writer *events, const char *name, bool begins) {
    begin_of_item(events, name);
    put_key(&events->w, "part");
    responses_write_part(&events->w, events->told, last_item(events), begins);
    event_end(&events->w);
}

static void put_no_logprobs(struct event_writer *events) {
    if (last_kind(events) != ITEM_MESSAGE) return;
    put_key_array(&events->w, "logprobs");
    put_array_end(&events->w);
}

static void write_delta(struct event_writer *events, struct text_span text) {
    static const char *const names[] = {[ITEM_REASONING] = "response.reasoning_text.delta",
                                        [ITEM_MESSAGE] = "response.output_text.delta",
                                        [ITEM_CALL] = "response.function_call_arguments.delta",
                                        [ITEM_MCP_CALL] = "response.mcp_call_arguments.delta"};
    if (text.size == 0) return;
    begin_of_item(events, names[last_kind(events)]);
    put_key_string_n(&events->w, "delta", text.text, text.size);
    put_no_logprobs(events);
    event_end(&events->w);
}

static void write_done(struct event_writer *events) {
    static const char *const names[] = {[ITEM_REASONING] = "response.reasoning_text.done",
                                        [ITEM_MESSAGE] = "response.output_text.done",
                                        [ITEM_CALL] = "response.function_call_arguments.done",
                                        [ITEM_MCP_CALL] = "response.mcp_call_arguments.done"};
    struct text_span text = responses_item_text(events->choice, last_item(events));
    const struct responses_item *item = &events->choice->items[last_item(events)];
    bool call = item->kind == ITEM_CALL;
    begin_of_item(events, names[item->kind]);
    if (call) responses_put_name(&events->w, events->told, item->call);
    bool arguments = call || item->kind == ITEM_MCP_CALL;
    put_key_string_n(&events->w, arguments ? "arguments" : "text", text.text, text.size);
    put_no_logprobs(events);
    event_end(&events->w);
}

static void write_citations(struct event_writer *events) {
    struct responses_citation citation = {0};
    int i = last_item(events);
    for (int n = 0;
         last_kind(events) == ITEM_MESSAGE && responses_next_citation(events->told, i, &citation);
         n++) {
        begin_of_item(events, "response.output_text.annotation.added");
        put_key_int(&events->w, "annotation_index", n);
        put_key(&events->w, "annotation");
        responses_put_citation(&events->w, events->told, &citation);
        event_end(&events->w);
    }
}

/* An event that names its item, and no more. */
static void write_stage(struct event_writer *events, const char *name) {
    begin_of_item(events, name);
    event_end(&events->w);
}

/* The call of the last item. */
static const struct chat_call *own_call(const struct event_writer *events) {
    const struct responses_item *item = &events->choice->items[last_item(events)];
    return &events->choice->chat.turns->calls[item->call];
}

static void close_item(struct event_writer *events) {
    if (!events->choice->open) return;
    if (last_kind(events) == ITEM_SEARCH) {
        write_stage(events, "response.file_search_call.completed");
    } else if (last_kind(events) == ITEM_MCP_CALL) {
        write_stage(events, own_call(events)->failed ? "response.mcp_call.failed"
                                                     : "response.mcp_call.completed");
    } else {
        write_citations(events);
        write_done(events);
    }
    if (has_content(events)) write_part(events, "response.content_part.done", false);
    write_item(events, "response.output_item.done", false);
    events->choice->open = false;
}

static void open_item(struct event_writer *events, struct responses_item item) {
    struct responses_choice *choice = events->choice;
    close_item(events);
    choice->items = xgrow(choice->items, choice->n, &choice->capacity, sizeof *choice->items);
    choice->items[choice->n] = item;
    choice->n++;
    choice->open = true;
    write_item(events, "response.output_item.added", true);
    if (has_content(events)) write_part(events, "response.content_part.added", true);
}

/* A search begins with the response, and ends before what is written of it. */
static void begin_search(struct event_writer *events) {
    open_item(events, (struct responses_item){.kind = ITEM_SEARCH});
    write_stage(events, "response.file_search_call.in_progress");
    write_stage(events, "response.file_search_call.searching");
}

/* The parts of an answer. */

/* Thoughts or text from byte *sent up to `end`: the open item goes on, or another begins. */
static void write_text(struct event_writer *events, enum responses_kind kind,
                       const struct buffer *text, size_t end, size_t *sent) {
    struct responses_choice *choice = events->choice;
    struct text_span rest = {text->data + *sent, end - *sent};
    if (rest.size == 0) return;
    if (!choice->open || last_kind(events) != kind)
        open_item(events, (struct responses_item){.kind = kind, .start = *sent, .end = *sent});
    choice->items[last_item(events)].end = end;
    write_delta(events, rest);
    *sent = end;
}

static void begin_own_call(struct event_writer *events, int number) {
    open_item(events, (struct responses_item){.kind = ITEM_MCP_CALL, .call = number});
    write_stage(events, "response.mcp_call.in_progress");
    write_delta(events, responses_item_text(events->choice, last_item(events)));
    write_done(events);
}

/* Calls that the server carries out, with what was thought and said before each; whether all of
 * them are over. */
static bool write_own_calls(struct event_writer *events) {
    struct chat_choice *chat = &events->choice->chat;
    const struct chat_turns *turns = chat->turns;
    for (; turns && chat->over_sent < turns->n_calls; chat->over_sent++) {
        const struct chat_call *call = &turns->calls[chat->over_sent];
        write_text(events, ITEM_REASONING, &chat->reply.reasoning, call->reasoning_at,
                   &chat->reasoning_sent);
        write_text(events, ITEM_MESSAGE, &chat->reply.content, call->content_at,
                   &chat->content_sent);
        if (chat->begun_sent == chat->over_sent) begin_own_call(events, chat->over_sent);
        chat->begun_sent = chat->over_sent + 1;
        if (!call->over) return false;
        close_item(events);
    }
    return true;
}

static void write_call(struct event_writer *events, int number) {
    open_item(events, (struct responses_item){.kind = ITEM_CALL, .call = number});
    write_delta(events, responses_item_text(events->choice, last_item(events)));
    close_item(events);
}

/* A response has an item, if its text is empty. */
static void close_all(struct event_writer *events) {
    struct responses_choice *choice = events->choice;
    bool says = false;
    for (int i = 0; i < choice->n; i++)
        says = says || choice->items[i].kind == ITEM_MESSAGE || choice->items[i].kind == ITEM_CALL;
    if (!says) open_item(events, (struct responses_item){.kind = ITEM_MESSAGE});
    close_item(events);
}

void responses_write_new(const struct writing_answer *answer, struct choice *base,
                         struct buffer *out) {
    struct responses_choice *choice = (struct responses_choice *)base;
    struct chat_choice *chat = &choice->chat;
    struct responses_told told = {(const struct responses_answer *)answer, choice, RESPONSE_BEGINS,
                                  NULL};
    struct event_writer events = {&told, choice, out, {0}};
    if (!chat->begun) {
        write_response(&events, "response.created");
        write_response(&events, "response.in_progress");
    }
    if (!chat->begun && told.answer->searches) begin_search(&events);
    chat->begun = true;
    if (choice->open && last_kind(&events) == ITEM_SEARCH && base->progress.n_found > 0)
        close_item(&events);
    if (!write_own_calls(&events)) return;
    write_text(&events, ITEM_REASONING, &chat->reply.reasoning, chat->reply.reasoning.size,
               &chat->reasoning_sent);
    write_text(&events, ITEM_MESSAGE, &chat->reply.content, chat->reply.content.size,
               &chat->content_sent);
    for (; chat->calls_sent < chat->reply.n_calls; chat->calls_sent++)
        write_call(&events, chat->calls_sent);
    if (base->progress.finish != FINISH_NONE) close_all(&events);
}

void responses_write_end(const struct writing_answer *base, const struct failure *failed,
                         struct buffer *out) {
    const struct responses_answer *answer = (const struct responses_answer *)base;
    struct responses_choice *choice = (struct responses_choice *)base->choices[0];
    struct responses_told told = {answer, choice, failed ? RESPONSE_FAILS : RESPONSE_ENDS, failed};
    struct event_writer events = {&told, choice, out, {0}};
    if (!failed) responses_keep(answer, choice);
    write_response(&events, responses_end_type(&told));
}

/* The items are those of a stream, whose events nobody reads. */
void responses_write_whole(struct writing_answer *base, struct buffer *out) {
    const struct responses_answer *answer = (const struct responses_answer *)base;
    struct responses_choice *choice = (struct responses_choice *)base->choices[0];
    struct responses_told told = {answer, choice, RESPONSE_ENDS, NULL};
    struct buffer events = {0};
    struct json_writer w;
    responses_write_new(base, base->choices[0], &events);
    buffer_free(&events);
    put_begin(&w, out);
    responses_write(&w, &told);
    responses_keep(answer, choice);
}
