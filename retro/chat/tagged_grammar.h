/* retro/chat/tagged_grammar.h: calls between tags (tagged_calls.h) as grammars, without the tags
 * around all of them. */
#pragma once

#include "retro/chat/chat_reply.h"
#include "retro/grammar/schema.h"

/* One call of the tool in the format CALLS_FUNCTION, CALLS_GLM or CALLS_MINIMAX: its parameters in
 * the order of `properties`, each at most once, and the required ones. A text value has no "</".
 * STATUS_UNSUPPORTED names a keyword that cannot be held to between tags. Errors stay in *e. */
int tagged_call_draft(struct json_rules *rules, enum call_format format,
                      const struct json *function, struct error *e);
/* The same in the format CALLS_PYTHON, whose values are JSON. STATUS_INVALID: a name does not fit
 * there. */
int python_call_draft(struct json_rules *rules, const struct json *function, struct error *e);
