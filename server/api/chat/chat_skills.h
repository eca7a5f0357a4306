/* server/api/chat/chat_skills.h: what a model's chat template knows. */
#pragma once

#include "retro/chat/chat.h"

/* Whether conversations may have tools. */
bool chat_knows_tools(const struct chat *chat);
