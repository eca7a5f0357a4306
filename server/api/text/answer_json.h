/* server/api/text/answer_json.h: the JSON that answers of completions and chats have in common: events of a stream,
 * usage.
 */
#pragma once

#include "config/json/json_writer.h"
#include "server/api/core/failure.h"
#include "server/schedule/sequence.h"

/* An event of a stream is one JSON object; the caller begins it with put_object between the two. */
void event_begin(struct json_writer *w, struct buffer *out);
void event_end(struct json_writer *w, struct buffer *out);
/* The end of a stream: an event with the failure, where `failed` is not NULL, and the mark that nothing follows. */
void stream_end(const struct failure *failed, struct buffer *out);

/* Tokens of an answer's prompts, those of them that earlier requests had computed, and tokens that were written. */
struct token_usage {
    int64_t prompt, cached, written;
};
/* Adds a prompt's tokens, of the first answer to it. */
void usage_add_prompt(struct token_usage *u, const struct progress *p);
/* The member "usage". */
void usage_write(struct json_writer *w, const struct token_usage *u);
