/* server/api/chat/chat_fit.h: the prompt of a conversation that may be longer than the context: the
 * oldest turns go, where the request says so. */
#pragma once

#include "server/api/chat/chat.h"

/* Tokens that a conversation may have, and what a template adds to each message. */
struct chat_budget {
    int64_t tokens;
    double per_message;
};

/* How many of the oldest messages behind those of the system have to go for the rest to fit, as far
 * as their texts tell; whole turns: what is left begins with a message of the user's. It reads the
 * latest messages first, and no more of them than fit. */
int chat_count_dropped(const struct tokenizer *tokenizer, const struct json *messages,
                       struct chat_budget budget);

/* Makes the prompt; of a request that truncates, of the latest turns that fit. */
bool chat_fit_prompt(struct chat_answer *answer, struct chat_prompt *prompt,
                     struct failure *failure);
