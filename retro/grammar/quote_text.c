/* retro/grammar/quote_text.c: see quote_text.h. */
#include "retro/grammar/quote_text.h"

#include "retro/grammar/gbnf.h"

static const char rules[] =
    "root ::= ([^\"\\u00ab\\u00bb\\u201c-\\u201f] | \"\\\"\" <quote> \"\\\"\" | "
    "\"\\u201c\" <quote> \"\\u201d\" | \"\\u201e\" <quote> [\\u201c\\u201d] | "
    "\"\\u00ab\" <quote> \"\\u00bb\")*";

enum status quote_text_draft(struct grammar_draft *draft, struct error *e) {
    return gbnf_parse(draft, (struct text_span){rules, sizeof rules - 1}, e);
}
