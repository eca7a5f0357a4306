/* server/api/text/told_answer.h: one choice of an answer as clients see it: all that the members
 * beside its text are written from, whatever shape it is sent in. */
#pragma once

#include "retro/chat/chat_reply.h"
#include "server/api/api.h"

struct told_answer {
    const struct served_model *model;
    const struct sequence *sequence;
    const struct progress *progress;
    const struct request_retrieval *asked;
    int index;                     /* of the choice */
    int found_sent;                /* entries of what was found that have been sent */
    struct text_span text;         /* its own: all that was written, or what a chat says of it */
    const struct chat_reply *said; /* of a chat; NULL: the text is all that was written */
    int64_t before;                /* characters shown before the text: those of an echoed prompt */
};
