/* retro/grammar/gbnf.h: grammars as llama.cpp writes them: "root ::= [a-z]+ (", " item)*". */
#pragma once

#include "retro/grammar/expr.h"

/* Fills an open draft from text; its first rule is `root`. STATUS_INVALID with line and column.
 * <quote> is a text of a passage that was read. Tokens, <[1000]> and <think>, are not supported. */
enum status gbnf_parse(struct grammar_draft *draft, struct text_span text, struct error *e);
