/* server/api/chat/chat_place.h: the places of found passages in a conversation: before the text of
 * the user's last message and, where a conversation keeps what it read, before those of earlier
 * ones. The text before the first of them, system text and earlier turns, stays the beginning of
 * every prompt of the conversation, whatever is found.
 *
 * The template is rendered with a mark in each place. Passages take their places in the rendered
 * text, where they count as the request's: no text of theirs is read by the template or becomes a
 * control token. */
#pragma once

#include "retro/chat/chat.h"
#include "server/api/core/failure.h"
#include "server/host/options/retrieval_choice.h"
#include "server/schedule/sequence.h"

struct chat_place {
    char name[48];          /* of all marks: no text of the client's has it */
    struct text_span query; /* owned: the last message's text, with the turns before it where these
                               are asked for, or as the model has rewritten it */
    bool rewritten;         /* it has */
    char *query_problem;    /* owned: why it has not; NULL: it was not to */
    struct sequence_conversation conversation; /* its turns are those of the places but the last */
    /* [n] messages that passages stand in, in their order; the last is the user's last. While the
     * request's JSON is open. */
    const struct json **messages;
    int n;
    /* chat_place_keep: the rendered conversation without the marks, and where in it passages go. */
    const struct template *template;
    const struct tokenizer *tokenizer;
    struct template_output text;
    size_t *at;          /* [n] ascending; PLACE_MISSING: the template left the message out */
    int pictures_before; /* of the conversation's pictures, how many stand before the last place */
};
#define PLACE_MISSING SIZE_MAX

/* A conversation and who has it. */
struct chat_asker {
    const struct json *messages;
    enum retrieval_query query;
    const struct chat_rewrite *rewrite;  /* of its question */
    struct conversations *conversations; /* NULL: earlier turns keep nothing */
    const struct principal *who;
};
/* NULL: no message of a user has a text. */
struct chat_place *chat_place_open(const struct chat_asker *asker);
void chat_place_close(struct chat_place *place); /* of NULL: nothing */
/* Passages are sought by the question as it was rewritten since, where it was; else the problem is
 * noted. */
void chat_place_rewrite(struct chat_place *place, const struct chat_rewrite *rewrite);

/* The number of the user's last message. */
bool chat_find_question(const struct json *messages, size_t *out);
/* Whether a message is the user's or the model's, and has a text. */
bool chat_is_turn(const struct json *message);
/* Whether there are such before message `last`, which has a text. */
bool chat_has_turns(const struct json *messages, size_t last);
/* The text of a message. */
void chat_append_text(const struct json *message, struct buffer *out);
/* The texts of a message's parts, a line each. */
void chat_join_parts(const struct json *parts, struct buffer *out);
/* The text with the mark before its first word; templates may cut blanks off its ends. NULL: the
 * text alone. */
void chat_mark_text(struct text_span text, const char *mark, struct buffer *out);
enum { CHAT_MARK_BYTES = 64 };
/* The mark of a message that passages stand in, into `mark`; NULL: none do. Messages are asked for
 * in their order, and *next, from 0, counts the marks. */
const char *chat_place_mark(const struct chat_place *place, const struct json *message, int *next,
                            char mark[CHAT_MARK_BYTES]);

/* Takes the marks out of a rendered text and notes their places. False, with *failure set: the
 * template did not write the last. */
bool chat_place_find(struct chat_place *place, struct template_output *text,
                     struct failure *failure);
/* Keeps a copy of the text, which the marks were taken out of. Template and tokenizer are borrowed.
 */
void chat_place_keep(struct chat_place *place, const struct template *template,
                     const struct tokenizer *tokenizer, const struct template_output *text);
/* Counts the pictures before the last place of a text that is kept. */
bool chat_place_count(struct chat_place *place, int32_t picture_id, struct failure *failure);
/* Gives the engine a copy of its own, by which it puts passages into the prompt. */
void chat_place_give(const struct chat_place *place, struct sequence_place *out);
