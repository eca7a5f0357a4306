/* retro/chat/chat_reply_private.h: what the readers of answers share. */
#pragma once

#include "retro/chat/chat_reply.h"

/* Whether the call that a span begins with was read, cannot be one, or is not there whole. */
enum call_found { CALL_READ, CALL_WRONG, CALL_WAITS };

/* The span without blanks at either end. */
struct text_span trim_blanks(struct text_span span);
/* Where the mark is in the span; SIZE_MAX: it is not. */
size_t span_find(struct text_span span, const char *mark);
/* Where the first of the marks is, and the place of that mark in the list; SIZE_MAX: none is there.
 * All marks begin with the same byte. */
size_t span_find_first(struct text_span span, const char *const *marks, int n, int *which);
/* Whether the span is the beginning of the mark and not all of it. */
bool span_may_become(struct text_span span, const char *mark);
/* The bytes that cannot be part of a mark that is still to come. */
size_t span_before_mark(struct text_span span, const char *mark);
/* Finds the end of the JSON value, object or list, that the span begins with, whatever its texts
 * hold. *size: its bytes, 0 where it was not found. CALL_WRONG: a tag stands in it, or the span
 * begins with another text. */
enum call_found span_json(struct text_span span, size_t *size);
/* Moves the first `size` bytes that have not been read to `to`, which is the reply's reasoning or
 * content. */
void reply_take(struct chat_reply *reply, struct buffer *to, struct text_span span, size_t size);
/* Adds a call with arguments that are a JSON object (json_check); false: they are not, or the name
 * is none. */
bool reply_add_call(struct chat_reply *reply, struct text_span name, struct text_span arguments);
/* Adds the call, or the list of calls, that the span is as JSON; false: it is none, or one of the
 * list is none, and nothing was added. */
bool json_calls_read(struct chat_reply *reply, struct text_span span);
/* Whether the call that comes next is read now: it is when the answer ends, else when its end's tag
 * came (NULL: it has none) and it was not read too often already. */
bool reply_is_due(struct chat_reply *reply, struct text_span call, const char *end, bool last);
/* Takes in the outcome of reading it, with `size` bytes there. */
void reply_note_try(struct chat_reply *reply, enum call_found found, size_t size);
/* Whether marks still begin calls: not behind too many that began none. */
bool reply_reads_calls(const struct chat_reply *reply);
