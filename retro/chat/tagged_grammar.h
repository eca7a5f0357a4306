/* retro/chat/tagged_grammar.h: calls between tags (tagged_calls.h) as grammars: those of
 * CALLS_FUNCTION and CALLS_GLM, which stand between <tool_call> and </tool_call>. */
#pragma once

#include "retro/chat/chat_reply.h"
#include "retro/grammar/schema.h"

/* One call of the tool, without the outer tags: its parameters in the order of `properties`, each
 * at most once, and the required ones. A text value has no "</". STATUS_UNSUPPORTED names a keyword
 * that cannot be held to between tags. Errors stay in *e. */
int tagged_call_draft(struct json_rules *rules, enum call_format format,
                      const struct json *function, struct error *e);
