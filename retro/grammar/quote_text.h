/* retro/grammar/quote_text.h: text that is held to nothing but its quotes. */
#pragma once

#include "retro/grammar/expr.h"

/* Fills an open draft: any text, in which quotation marks stand around quotes and nowhere else:
 * "...", U+201C ... U+201D, U+201E ... U+201C or U+201D, and U+00AB ... U+00BB. */
enum status quote_text_draft(struct grammar_draft *draft, struct error *e);
