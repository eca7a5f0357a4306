/* retro/chat/tagged_grammar.h: calls between tags (tagged_calls.h) as grammars, without the tags
 * around all of them. */
#pragma once

#include "retro/chat/tagged_calls.h"
#include "retro/grammar/schema.h"

/* STATUS_INVALID, in *e: the text would be read back as another. */
enum status tagged_text_check(enum call_format format, enum tagged_part part, struct text_span text,
                              struct error *e);

/* One call of the tool in the format CALLS_FUNCTION, CALLS_GLM or CALLS_MINIMAX: its parameters in
 * the order of `properties`, each at most once, and the required ones. A free text has no "</".
 * STATUS_UNSUPPORTED names a keyword that cannot be held to between tags, STATUS_INVALID a name or
 * a text of `enum` that cannot stand there. Errors stay in *e. */
int tagged_call_draft(struct json_rules *rules, enum call_format format,
                      const struct json *function, struct error *e);
/* The same in the format CALLS_PYTHON, whose values are JSON. STATUS_INVALID: a name does not fit
 * there. */
int python_call_draft(struct json_rules *rules, const struct json *function, struct error *e);
