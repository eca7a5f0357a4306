/* server/api/chat/chat_rewrite.h: the question that passages of a chat are sought by, rewritten by
 * the model that answers (retrieval.query=rewritten): "and the second one?" becomes a question that
 * says by itself what it asks for.
 *
 * The rewrite is a chat of its own, before the answer: one message with the latest turns and the
 * question, a temperature of 0, few tokens, and a grammar whose texts are one line. It is the
 * principal's as the answer is, with the same deadline, and is charged like one. A conversation
 * without earlier turns needs none. Where the model gives no line the conversation is sought by,
 * and the answer says why. */
#pragma once

#include "config/base/buffer.h"
#include "server/api/core/failure.h"

struct api;
struct chat_answer;
struct json;

/* Zeroed: nothing is rewritten. Constant once it is over. */
struct chat_rewrite {
    struct answer *asked; /* owned; NULL: the model is not asked, or no more */
    char *query;          /* owned; NULL: there is no rewritten question */
    char *problem;        /* owned: why there is none; NULL: none is needed */
};

/* Asks the model, where the request wants it and the conversation has earlier turns, whose pictures
 * are there. False, with
 * *failure set: the request wants a rewrite that the model cannot write, or the server is busy. */
bool chat_rewrite_start(struct chat_answer *answer, struct api *api, struct failure *failure);
/* Whether there is nothing to wait for any more; by the one thread that polls the answer. */
bool chat_rewrite_is_over(struct chat_answer *answer);
/* With the answer's lock: nobody waits for it any more. */
void chat_rewrite_cancel(const struct chat_rewrite *rewrite);
/* No wake comes from it any more. */
void chat_rewrite_end(struct chat_rewrite *rewrite);
void chat_rewrite_free(struct chat_rewrite *rewrite);
