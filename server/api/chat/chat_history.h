/* server/api/chat/chat_history.h: the turns of a conversation that this server has answered with
 * passages: they are known by a chain of hashes over the messages (conversations.h). */
#pragma once

#include "server/api/chat/chat_place.h"

/* Fills in the place's messages and its conversation: of the earlier turns those that are known
 * and whose passages stood in the latest prompt, and message `last`. In linear time. */
void chat_history_read(const struct chat_asker *asker, size_t last, struct chat_place *place);
