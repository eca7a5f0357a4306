/* retro/chat/harmony.h: answers of gpt-oss, which are messages in channels ("harmony"):
 *
 *     <|channel|>analysis<|message|>what it thinks<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>what it says<|return|>
 *
 * The marks are MARK_HARMONY and those behind it. The prompt ends with <|start|>assistant, so the
 * first message begins with its channel or with the tool that it is for. */
#pragma once

#include "retro/chat/chat_reply.h"
#include "retro/grammar/vocab.h"

/* The beginning of the message that says the answer, behind the prompt. */
extern const char harmony_final[];

/* Whether the texts that a template writes are in channels. */
bool harmony_is_written(struct text_span literals);
/* Takes in the next part of an answer as chat_reply_read does; false: the rest waits. */
bool harmony_read(struct chat_reply *reply, struct text_span span, bool last);
