/* retro/chat/harmony.c: see harmony.h. */
#include "retro/chat/harmony.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/chat/chat_reply_private.h"

const char harmony_final[] = "<|channel|>final<|message|>";

/* Longer ones are no headers: the model does not write in channels. */
enum { HEADER_MOST = 512 };

static const char recipient_mark[] = "to=", tool_prefix[] = "functions.";

bool harmony_is_written(struct text_span literals) {
    return span_find(literals, grammar_mark_text(MARK_CHANNEL)) != SIZE_MAX &&
           span_find(literals, grammar_mark_text(MARK_MESSAGE)) != SIZE_MAX;
}

/* The marks behind a message's text: its end, or the next message. */
static const enum grammar_mark ends[] = {MARK_MESSAGE_END, MARK_MESSAGE_CALL, MARK_MESSAGE_RETURN,
                                         MARK_START};

/* Where the first of them is, and how long; SIZE_MAX: none is there. */
static size_t find_end(struct text_span span, size_t *size) {
    const char *marks[ARRAY_COUNT(ends)];
    int which = 0;
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) marks[i] = grammar_mark_text(ends[i]);
    size_t first = span_find_first(span, marks, ARRAY_COUNT(ends), &which);
    if (first != SIZE_MAX) *size = ends[which] == MARK_START ? 0 : strlen(marks[which]);
    return first;
}

/* The bytes that cannot be part of an end that is still to come. */
static size_t before_end(struct text_span span) {
    size_t sure = span.size;
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++) {
        size_t before = span_before_mark(span, grammar_mark_text(ends[i]));
        sure = before < sure ? before : sure;
    }
    return sure;
}

/* The word behind the first `mark` of a header; its text NULL: there is none. */
static struct text_span word_behind(struct text_span header, const char *mark) {
    size_t at = span_find(header, mark), end;
    if (at == SIZE_MAX) return (struct text_span){0};
    at += strlen(mark);
    for (end = at; end < header.size && !is_blank(header.text[end]) && header.text[end] != '<';)
        end++;
    return (struct text_span){header.text + at, end - at};
}

/* Whether a text may begin with a header of which more is to come. */
static bool begins_header(struct text_span span, bool last) {
    static const char *const beginnings[] = {"<|start|>", "<|channel|>", " to=", "to="};
    for (size_t i = 0; i < ARRAY_COUNT(beginnings); i++) {
        size_t n = strlen(beginnings[i]), size = span.size < n ? span.size : n;
        if (memcmp(span.text, beginnings[i], size) == 0 && (size == n || !last)) return true;
    }
    return false;
}

/* Where a message to a tool ends: behind its JSON, whose texts may have the marks too. */
static size_t find_call_end(struct text_span body, bool last, size_t *mark) {
    struct text_span json = trim_blanks(body);
    size_t size;
    if (span_json(json, &size) == CALL_WAITS && !last) return SIZE_MAX;
    size_t before = size > 0 ? (size_t)(json.text - body.text) + size : 0;
    size_t end = find_end((struct text_span){body.text + before, body.size - before}, mark);
    return end == SIZE_MAX ? SIZE_MAX : before + end;
}

/* A message to a tool is a call once it is there whole. SIZE_MAX: more is to come; 0: it is none.
 */
static size_t read_call(struct chat_reply *reply, struct text_span recipient, struct text_span body,
                        bool last) {
    size_t mark = 0, prefix = strlen(tool_prefix);
    if (recipient.size <= prefix || memcmp(recipient.text, tool_prefix, prefix) != 0) return 0;
    if (!reply_reads_calls(reply)) return 0;
    if (!reply_is_due(reply, body, NULL, last)) return SIZE_MAX;
    size_t end = find_call_end(body, last, &mark);
    bool waits = end == SIZE_MAX && !last;
    size_t size = end == SIZE_MAX ? body.size : end;
    struct text_span name = {recipient.text + prefix, recipient.size - prefix};
    bool read = !waits && reply_add_call(reply, name, (struct text_span){body.text, size});
    reply_note_try(reply, waits ? CALL_WAITS : read ? CALL_READ : CALL_WRONG, body.size);
    if (waits) return SIZE_MAX;
    return read ? size + mark : 0;
}

/* Thoughts, and words, of several messages stand apart. */
static void part_texts(struct buffer *text) {
    if (text->size > 0) buffer_append_string(text, "\n");
}

/* Text without a header is words. A mark that begins no message is one of them: it would be taken
 * for the end of words before it for ever. */
static void begin_words(struct chat_reply *reply, struct text_span span) {
    const char *start = grammar_mark_text(MARK_START);
    reply->part = REPLY_SAYS;
    if (span_starts_with(span, start)) reply_take(reply, &reply->content, span, strlen(start));
}

static bool read_header(struct chat_reply *reply, struct text_span span, bool last) {
    const char *message = grammar_mark_text(MARK_MESSAGE);
    size_t most = HEADER_MOST + strlen(message);
    size_t end =
        span_find((struct text_span){span.text, span.size < most ? span.size : most}, message);
    bool short_enough = end == SIZE_MAX ? span.size < most : end <= HEADER_MOST;
    bool header = begins_header(span, last) && short_enough;
    if (header && end == SIZE_MAX && !last) return false;
    if (!header || end == SIZE_MAX) {
        begin_words(reply, span);
        return true;
    }
    struct text_span head = {span.text, end},
                     channel = word_behind(head, grammar_mark_text(MARK_CHANNEL));
    size_t body = end + strlen(message);
    size_t used = read_call(reply, word_behind(head, recipient_mark),
                            (struct text_span){span.text + body, span.size - body}, last);
    if (used == SIZE_MAX) return false;
    reply->read += body + used;
    if (used > 0) return true;
    reply->part = span_is(channel, "analysis") ? REPLY_THINKS : REPLY_SAYS;
    part_texts(reply->part == REPLY_THINKS ? &reply->reasoning : &reply->content);
    return true;
}

static bool read_text(struct chat_reply *reply, struct text_span span, bool last) {
    struct buffer *to = reply->part == REPLY_THINKS ? &reply->reasoning : &reply->content;
    size_t mark = 0, end = find_end(span, &mark);
    if (end == SIZE_MAX) {
        reply_take(reply, to, span, last ? span.size : before_end(span));
        return false;
    }
    reply_take(reply, to, span, end);
    reply->read += mark;
    reply->part = REPLY_BEGINS;
    return true;
}

bool harmony_read(struct chat_reply *reply, struct text_span span, bool last) {
    return reply->part == REPLY_BEGINS ? read_header(reply, span, last)
                                       : read_text(reply, span, last);
}
