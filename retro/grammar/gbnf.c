/* retro/grammar/gbnf.c: see gbnf.h. */
#include "retro/grammar/gbnf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"
#include "config/base/utf8.h"
#include "retro/grammar/char_ranges.h"
#include "retro/grammar/text_reader.h"

enum { MAX_DEPTH = 100, MAX_NAME = 100 };

struct gbnf_reader {
    struct grammar_draft *d;
    struct text_reader in;
    struct lookup_table names; /* of the draft's rules */
    int depth;                 /* of parentheses */
    struct error *e;
};

static int read_alternatives(struct gbnf_reader *r);

static enum status fail(struct gbnf_reader *r, const char *expected) {
    int line = 1, column = 1;
    for (size_t i = 0; i < r->in.at && i < r->in.text.size; i++) {
        column = r->in.text.text[i] == '\n' ? 1 : column + 1;
        line += r->in.text.text[i] == '\n';
    }
    if (r->e->status) return r->e->status;
    return error_set(r->e, STATUS_INVALID, "line %d, column %d: expected %s", line, column, expected);
}

/* Blanks and comments, and line ends where they mean nothing. */
static void skip_blanks(struct gbnf_reader *r, bool lines) {
    for (;;) {
        char c = text_peek(&r->in);
        if (c == '#')
            while (r->in.at < r->in.text.size && r->in.text.text[r->in.at] != '\n') text_step(&r->in);
        else if (r->in.at < r->in.text.size && (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))))
            text_step(&r->in);
        else
            return;
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Characters. */

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int32_t read_hex(struct gbnf_reader *r, int digits) {
    int64_t value = 0;
    for (int i = 0; i < digits; i++) {
        int digit = digit_value(text_peek(&r->in));
        if (digit < 0) {
            fail(r, digits == 2 ? "two hexadecimal digits" : digits == 4 ? "four hexadecimal digits" : "eight of them");
            return 0;
        }
        value = 16 * value + digit;
        text_step(&r->in);
    }
    if (value > CHAR_LAST || (value >= 0xD800 && value <= 0xDFFF)) fail(r, "a code point before this");
    return (int32_t)value;
}

static int32_t read_escape(struct gbnf_reader *r) {
    char c = text_peek(&r->in);
    text_step(&r->in);
    switch (c) {
        case 'x': return read_hex(r, 2);
        case 'u': return read_hex(r, 4);
        case 'U': return read_hex(r, 8);
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case '"':
        case '\\':
        case '[':
        case ']':
        case '-':
        case '^': return c;
        default:
            r->in.at--;
            fail(r, "one of x u U n r t \" \\ [ ] - ^ behind a backslash");
            return 0;
    }
}

/* One code point, written as it is or escaped. */
static int32_t read_char(struct gbnf_reader *r) {
    int32_t c;
    if (r->in.at >= r->in.text.size) {
        fail(r, "more before the end");
        return 0;
    }
    if (text_take(&r->in, "\\")) return read_escape(r);
    int length = utf8_read(r->in.text.text + r->in.at, r->in.text.size - r->in.at, &c);
    if (c < 0) fail(r, "UTF-8");
    r->in.at += (size_t)length;
    return c < 0 ? 0 : c;
}

static int read_literal(struct gbnf_reader *r) {
    struct expr_list chars = {0};
    while (text_peek(&r->in) != '"' && r->e->status == STATUS_OK) {
        struct char_range range = {.first = read_char(r)};
        range.last = range.first;
        expr_list_add(&chars, expr_chars(r->d, &range, 1));
    }
    text_take(&r->in, "\"");
    int all = expr_sequence(r->d, chars.items, chars.n);
    free(chars.items);
    return all;
}

static int read_class(struct gbnf_reader *r) {
    struct char_ranges ranges = {0};
    bool negated = text_take(&r->in, "^");
    while (text_peek(&r->in) != ']' && r->e->status == STATUS_OK) {
        int32_t first = read_char(r), last = first;
        bool is_range =
            text_peek(&r->in) == '-' && r->in.at + 1 < r->in.text.size && r->in.text.text[r->in.at + 1] != ']';
        if (is_range) {
            text_step(&r->in);
            last = read_char(r);
            if (last < first) fail(r, "a range whose end is not before its beginning");
        }
        char_ranges_add(&ranges, first, last);
    }
    text_take(&r->in, "]");
    if (negated)
        char_ranges_negate(&ranges);
    else
        char_ranges_sort(&ranges);
    int all = expr_chars(r->d, ranges.list, ranges.n);
    free(ranges.list);
    return all;
}

/* Rules. */

/* The rule of a name, a new one where there is none. */
static int find_rule(struct gbnf_reader *r, const char *name) {
    uint64_t hash = lookup_hash(name, strlen(name));
    size_t at = 0;
    for (int rule; (rule = lookup_next(&r->names, hash, &at)) >= 0;)
        if (strcmp(r->d->rules[rule].name, name) == 0) return rule;
    int rule = draft_rule_open(r->d, name);
    lookup_add(&r->names, hash, rule);
    return rule;
}

static int read_name(struct gbnf_reader *r) {
    char name[MAX_NAME + 1];
    size_t n = 0;
    for (; is_name(text_peek(&r->in)) && n < MAX_NAME; n++) {
        name[n] = text_peek(&r->in);
        text_step(&r->in);
    }
    name[n] = '\0';
    if (is_name(text_peek(&r->in))) fail(r, "a name of at most 100 characters");
    return find_rule(r, name);
}

static int read_atom(struct gbnf_reader *r) {
    static const struct char_range any = {0, CHAR_LAST};
    if (text_take(&r->in, "\"")) return read_literal(r);
    if (text_take(&r->in, "[")) return read_class(r);
    if (text_take(&r->in, ".")) return expr_chars(r->d, &any, 1);
    if (is_name(text_peek(&r->in))) return expr_rule(r->d, read_name(r));
    if (text_peek(&r->in) == '<' || text_peek(&r->in) == '!') {
        fail(r, "text: tokens, <[1000]> and <think>, are not supported");
        return EXPR_NOTHING;
    }
    if (!text_take(&r->in, "(") || r->depth == MAX_DEPTH) {
        fail(r, r->depth == MAX_DEPTH ? "at most 100 parentheses within each other" : "a part of a rule");
        return EXPR_NOTHING;
    }
    r->depth++;
    int inner = read_alternatives(r);
    r->depth--;
    skip_blanks(r, true);
    if (!text_take(&r->in, ")")) fail(r, "\")\"");
    return inner;
}

/* Repetitions. */

/* A number, -1 where there is none. */
static int read_number(struct gbnf_reader *r) {
    int64_t n = -1;
    for (; text_peek(&r->in) >= '0' && text_peek(&r->in) <= '9'; r->in.at++) {
        n = 10 * (n < 0 ? 0 : n) + (text_peek(&r->in) - '0');
        if (n > GRAMMAR_MAX_REPEAT) {
            fail(r, "at most 1000000 repetitions");
            return 0;
        }
    }
    return (int)n;
}

static int read_bounds(struct gbnf_reader *r, int atom) {
    skip_blanks(r, false);
    int min = read_number(r), max = min;
    skip_blanks(r, false);
    if (text_take(&r->in, ",")) {
        skip_blanks(r, false);
        max = read_number(r);
        skip_blanks(r, false);
    } else if (min < 0) {
        fail(r, "a number");
    }
    if (!text_take(&r->in, "}")) fail(r, "\"}\"");
    min = max_int(min, 0);
    if (max >= 0 && max < min) fail(r, "bounds whose second is not less than the first");
    return expr_repeat(r->d, atom, min, max);
}

static int read_repeated(struct gbnf_reader *r) {
    int atom = read_atom(r);
    for (int n = 0; r->e->status == STATUS_OK; n++) {
        if (n == MAX_DEPTH) fail(r, "fewer repetitions of one part");
        if (text_take(&r->in, "*"))
            atom = expr_repeat(r->d, atom, 0, -1);
        else if (text_take(&r->in, "+"))
            atom = expr_repeat(r->d, atom, 1, -1);
        else if (text_take(&r->in, "?"))
            atom = expr_repeat(r->d, atom, 0, 1);
        else if (text_take(&r->in, "{"))
            atom = read_bounds(r, atom);
        else
            break;
    }
    return atom;
}

static bool begins_atom(const struct gbnf_reader *r) {
    char c = text_peek(&r->in);
    return is_name(c) || (c != '\0' && strchr("\"[.(<!", c) != NULL);
}

static int read_alternative(struct gbnf_reader *r) {
    struct expr_list parts = {0};
    skip_blanks(r, true);
    while (begins_atom(r) && r->e->status == STATUS_OK) {
        expr_list_add(&parts, read_repeated(r));
        skip_blanks(r, r->depth > 0);
    }
    int all = expr_sequence(r->d, parts.items, parts.n);
    free(parts.items);
    return all;
}

static int read_alternatives(struct gbnf_reader *r) {
    struct expr_list all = {0};
    do {
        expr_list_add(&all, read_alternative(r));
        skip_blanks(r, r->depth > 0);
    } while (r->e->status == STATUS_OK && text_take(&r->in, "|"));
    int expr = expr_either(r->d, all.items, all.n);
    free(all.items);
    return expr;
}

static void read_rule(struct gbnf_reader *r) {
    if (!is_name(text_peek(&r->in))) {
        fail(r, "the name of a rule");
        return;
    }
    int rule = read_name(r);
    skip_blanks(r, false);
    if (!text_take(&r->in, "::=")) fail(r, "\"::=\"");
    if (r->d->rules[rule].expr >= 0) fail(r, "each rule once");
    int expr = read_alternatives(r);
    draft_rule_set(r->d, rule, expr);
    if (r->in.at < r->in.text.size && text_peek(&r->in) != '\n' && text_peek(&r->in) != '\r')
        fail(r, "the end of the line, or a part of a rule");
    skip_blanks(r, true);
}

enum status gbnf_parse(struct grammar_draft *d, struct text_span text, struct error *e) {
    struct gbnf_reader r = {.d = d, .in = {.text = text}, .e = e};
    *e = (struct error){0};
    int root = find_rule(&r, "root");
    skip_blanks(&r, true);
    while (r.in.at < text.size && e->status == STATUS_OK && d->error.status == STATUS_OK) read_rule(&r);
    if (e->status == STATUS_OK && d->error.status == STATUS_OK && d->rules[root].expr < 0)
        error_set(e, STATUS_INVALID, "there is no rule named root");
    lookup_free(&r.names);
    return e->status;
}
