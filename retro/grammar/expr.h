/* retro/grammar/expr.h: a grammar while it is written: expressions over bytes and marks, and rules
 * that name them. GBNF, regular expressions and JSON Schema all become these; program.h makes an
 * automaton of them.
 *
 * An expression is a number. Limits are sticky: once one is reached, every call returns
 * EXPR_NOTHING and grammar_draft_check tells which. */
#pragma once

#include "config/base/buffer.h"

/* How a quote is written: as it stands in its passage, or as JSON strings write that. */
enum quote_writing { QUOTE_PLAIN, QUOTE_JSON, QUOTE_WRITINGS };

/* Symbols are bytes; marks behind them, which are tokens such as <tool_call> that are a symbol of
 * their own; and whole quotes, one symbol for each way of writing them (quote_source.h). */
enum {
    GRAMMAR_BYTES = 256,
    GRAMMAR_MARKS = 48,
    GRAMMAR_QUOTES = GRAMMAR_BYTES + GRAMMAR_MARKS,
    GRAMMAR_SYMBOLS = GRAMMAR_QUOTES + QUOTE_WRITINGS
};

/* EMPTY matches the empty text, NOTHING no text at all. */
enum { EXPR_EMPTY = 0, EXPR_NOTHING = 1 };

enum {
    GRAMMAR_MAX_EXPRS = 400000,
    GRAMMAR_MAX_RULES = 20000,
    GRAMMAR_MAX_REPEAT = 1000000, /* of one repetition, where it has an end */
    GRAMMAR_MAX_MEMBERS = 1024    /* named members of one object */
};

struct symbol_set {
    uint64_t bits[(GRAMMAR_SYMBOLS + 63) / 64];
};
static inline void symbol_set_add(struct symbol_set *set, int symbol) {
    set->bits[symbol / 64] |= (uint64_t)1 << (symbol % 64);
}
static inline bool symbol_set_has(const struct symbol_set *set, int symbol) {
    return set->bits[symbol / 64] >> (symbol % 64) & 1;
}

/* Code points first .. last. */
struct char_range {
    int32_t first, last;
};

/* A member of an object: its text with what is between key and value, such as "a": 1. */
struct expr_member {
    int expr;
    bool required;
};

/* Members come once each, in any order or as listed; `more` any number of times, EXPR_NOTHING:
 * never. */
struct expr_object {
    const struct expr_member *members; /* [n] */
    int n, more;
    bool ordered;
    int open, separator, close; /* such as {, a comma and }, with the white space around them */
};

enum expr_kind {
    EXPR_SET,
    EXPR_TEXT,
    EXPR_SEQUENCE,
    EXPR_EITHER,
    EXPR_REPEAT,
    EXPR_RULE,
    EXPR_OBJECT,
    EXPR_QUOTE,
    EXPR_KINDS
};

struct expr {
    enum expr_kind kind;
    int first, n; /* of the draft's sets, text, items, rules or members, by kind; EXPR_QUOTE: its
                     writing */
    int min, max; /* EXPR_REPEAT; max -1: no end. EXPR_OBJECT: whether ordered, and the expression
                     of `more` */
};

struct draft_rule {
    char *name; /* owned, for messages */
    int expr;   /* -1: named and not defined */
};

/* Zero-initialise, then grammar_draft_open; free when done. */
struct grammar_draft {
    struct expr *exprs; /* [n_exprs] */
    int n_exprs, exprs_capacity;
    struct symbol_set *sets;
    int n_sets, sets_capacity;
    int *items; /* expressions of sequences, alternatives, repeats and objects, side by side */
    int n_items, items_capacity;
    bool *required; /* beside items of objects */
    struct buffer text;
    struct draft_rule *rules;
    int n_rules, rules_capacity;
    bool quotes[QUOTE_WRITINGS]; /* it has quotes that are written so */
    bool without_quotes;         /* no quote matches any text */
    struct error error;          /* of the first limit reached */
};

void grammar_draft_open(struct grammar_draft *draft);
void grammar_draft_free(struct grammar_draft *draft);
enum status grammar_draft_check(const struct grammar_draft *draft, struct error *e);

int expr_set(struct grammar_draft *draft, const struct symbol_set *set);
int expr_mark(struct grammar_draft *draft, int mark);
/* A text that stands in a passage that was read. */
int expr_quote(struct grammar_draft *draft, enum quote_writing writing);
int expr_text(struct grammar_draft *draft, const char *text, size_t size);
int expr_word(struct grammar_draft *draft, const char *word);
/* One code point of the ranges, which are sorted and apart, as UTF-8; surrogates are none. */
int expr_chars(struct grammar_draft *draft, const struct char_range *ranges, int n);
/* Any characters but NUL, without the two ASCII characters side by side. */
int expr_text_without(struct grammar_draft *draft, char first, char second);
int expr_sequence(struct grammar_draft *draft, const int *items, int n);
int expr_either(struct grammar_draft *draft, const int *items, int n);
int expr_repeat(struct grammar_draft *draft, int item, int min, int max);
int expr_object(struct grammar_draft *draft, const struct expr_object *object);
/* A rule to be set later; the name is copied. */
int draft_rule_open(struct grammar_draft *draft, const char *name);
void draft_rule_set(struct grammar_draft *draft, int rule, int expr);
int expr_rule(struct grammar_draft *draft, int rule);

#define EXPR_SEQUENCE_OF(d, ...) \
    expr_sequence(d, (const int[]){__VA_ARGS__}, (int)ARRAY_COUNT(((const int[]){__VA_ARGS__})))
#define EXPR_EITHER_OF(d, ...) \
    expr_either(d, (const int[]){__VA_ARGS__}, (int)ARRAY_COUNT(((const int[]){__VA_ARGS__})))

/* Items that an expression is made of. */
static inline const int *expr_items(const struct grammar_draft *draft,
                                    const struct expr *expression) {
    return draft->items + expression->first;
}

/* A list of expressions that grows. Zero-initialise, free `items`. */
struct expr_list {
    int *items;
    int n, capacity;
};
void expr_list_add(struct expr_list *list, int expr);
