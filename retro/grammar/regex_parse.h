/* retro/grammar/regex_parse.h: regular expressions of JSON Schema (ECMA-262) as expressions of a
 * grammar. */
#pragma once

#include "retro/grammar/char_ranges.h"

/* How one character of a set is written. */
struct regex_writer {
    int (*chars)(void *context, const struct char_range *ranges, int n);
    void *context;
    bool whole; /* the expression describes all of a text; else a part of it, where ^ and $ do not
                   say otherwise */
};

/* Characters, classes, groups, alternatives, repetitions; ^ at the beginning and $ at the end of
 * the expression or of one of its alternatives. STATUS_INVALID: it is no regular expression;
 * STATUS_UNSUPPORTED: look-around, references back, \b, \p, flags. The expression in *out;
 * EXPR_NOTHING after an error. */
enum status regex_parse(struct grammar_draft *draft, struct text_span text,
                        const struct regex_writer *writer, int *out, struct error *e);
