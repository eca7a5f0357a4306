/* retro/chat/call_grammar.h: calls of tools as grammars, in the formats that chat_reply.h reads. */
#pragma once

#include "retro/chat/chat_reply.h"
#include "retro/grammar/schema.h"
#include "retro/grammar/vocab.h"

/* Whether calls of the format can be described; others are read alone. */
bool call_grammar_knows(enum call_format format);
/* The mark that calls of the format begin with; false: they begin with none. */
bool call_grammar_mark(enum call_format format, enum grammar_mark *mark);
/* guide: {"format", "tools", "name", "one", "forced"}: calls of the tools, or one call of the tool
 * that `name` names; one call where `one` is true. Forced: one call or several, or `answer`,
 * EXPR_NOTHING for none, in their place; else the rest of the answer behind the mark of a first
 * call. In channels all of the answer is described: thoughts, then calls or the final message,
 * which is `answer` and any text where nothing is forced. */
enum status call_grammar_draft(struct grammar_draft *draft, const struct vocab *vocab,
                               const struct json *guide, int answer, int *out, struct error *e);
