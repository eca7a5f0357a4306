/* server/api/chat/chat_place.h: the place of found passages in a conversation: before the text of
 * the user's last message. The text before that message, system text and earlier turns, stays the
 * beginning of every prompt of the conversation, whatever is found.
 *
 * The template is rendered with a mark in that place. Passages take its place in the rendered text,
 * where they count as the request's: no text of theirs is read by the template or becomes a control
 * token. */
#pragma once

#include "retro/chat/chat.h"
#include "server/api/core/failure.h"
#include "server/host/options/retrieval_choice.h"
#include "server/schedule/sequence.h"

struct chat_place {
    const struct json *message; /* the user's last; while the request's JSON is open */
    char mark[48];
    struct text_span
        query; /* owned: the message's text, with the turns before it where these are asked for */
    /* chat_place_keep: the rendered conversation without the mark, and where in it passages go. */
    const struct template *template;
    const struct tokenizer *tokenizer;
    struct template_output text;
    size_t at;
    int pictures_before; /* of the conversation's pictures, how many stand before them */
};

/* NULL: no message of a user has a text. */
struct chat_place *chat_place_open(const struct json *messages, enum retrieval_query query);
void chat_place_close(struct chat_place *place); /* of NULL: nothing */

/* The texts of a message's parts, a line each. */
void chat_join_parts(const struct json *parts, struct buffer *out);
/* The text with the mark before its first word; templates may cut blanks off its ends. NULL: the
 * text alone. */
void chat_mark_text(struct text_span text, const char *mark, struct buffer *out);

/* Takes the mark out of a rendered text and notes its place. False, with *failure set: the template
 * did not write it. */
bool chat_place_find(struct chat_place *place, struct template_output *text,
                     struct failure *failure);
/* Keeps a copy of the text, which the mark was taken out of. Template and tokenizer are borrowed.
 */
void chat_place_keep(struct chat_place *place, const struct template *template,
                     const struct tokenizer *tokenizer, const struct template_output *text);
/* Counts the pictures before the place of a text that is kept. */
bool chat_place_count(struct chat_place *place, int32_t picture_id, struct failure *failure);
/* Gives the engine a copy of its own, by which it puts passages into the prompt. */
void chat_place_give(const struct chat_place *place, struct sequence_place *out);
