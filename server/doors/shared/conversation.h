/* server/doors/shared/conversation.h: turns of another protocol to the messages of a chat. The
 * words of one speaker in a row are one message, as most templates want turns that alternate; the
 * result of a tool is always a message of its own. */
#pragma once

#include "config/json/json_writer.h"

enum speaker {
    SPEAKER_NOBODY,
    SPEAKER_SYSTEM,
    SPEAKER_DEVELOPER,
    SPEAKER_USER,
    SPEAKER_ASSISTANT,
    SPEAKER_TOOL
};

/* Zeroed before conversation_begin. */
struct conversation {
    struct buffer text; /* the list of messages, as JSON */
    struct json_writer w;
    enum speaker speaker; /* of the message that is open */
    struct buffer said;   /* its text, until it shows a picture */
    struct buffer parts;  /* from then on: its parts, as items of JSON */
    struct json_writer parts_w;
    bool blind;            /* the model reads no pictures: one in a result is told in words */
    bool shows;            /* it has a picture */
    bool speaks;           /* it has a text, which may be empty */
    struct buffer thought; /* what was thought before it */
    struct buffer calls;   /* of tools, as items of JSON */
    struct json_writer calls_w;
    struct buffer call, tool; /* of a result: the call's id, the tool's name or nothing */
};

void conversation_begin(struct conversation *conversation);
/* All that follows is this speaker's. */
void conversation_turn(struct conversation *conversation, enum speaker speaker);
/* The same by a role's name; false: it is none of system, developer, user and assistant. */
bool conversation_turn_of(struct conversation *conversation, const struct json *role);
/* All that follows is the result of a call. Texts may be NULL. */
void conversation_result(struct conversation *conversation, struct text_span call,
                         struct text_span tool);
/* Texts of one message are lines of it. */
void conversation_say(struct conversation *conversation, struct text_span text);
/* A picture by its URL, "data:..." too. An agent goes on where a tool shows one that the model
 * cannot see. */
void conversation_show(struct conversation *conversation, struct text_span url);
/* Of the assistant's turn. `arguments` is JSON text. */
void conversation_think(struct conversation *conversation, struct text_span text);
void conversation_call(struct conversation *conversation, struct text_span id,
                       struct text_span name, struct text_span arguments);
/* The messages as JSON; theirs as long as the conversation. */
struct text_span conversation_end(struct conversation *conversation);
void conversation_free(struct conversation *conversation);
