/* server/api/chat/chat_guide.h: what holds a chat's answer to a grammar: forced calls of tools,
 * strict tools, and where in an answer with thoughts the grammar begins. */
#pragma once

#include "server/api/chat/chat.h"

/* Gives the request the guide of its tools, where calls are forced or a tool is strict. Once, when
 * the prompt and the format of calls are known. */
bool chat_guide_tools(struct chat_answer *answer, struct failure *failure);
/* Where the grammar begins in the answer; once the engine's request is filled. */
bool chat_guide_begin(const struct chat_answer *answer, const struct chat_prompt *prompt,
                      struct sequence_request *asked, struct failure *failure);
