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

static int read_alternatives(struct gbnf_reader *reader);

static enum status fail(struct gbnf_reader *reader, const char *expected) {
    int line = 1, column = 1;
    for (size_t i = 0; i < reader->in.at && i < reader->in.text.size; i++) {
        column = reader->in.text.text[i] == '\n' ? 1 : column + 1;
        line += reader->in.text.text[i] == '\n';
    }
    if (reader->e->status) return reader->e->status;
    return error_set(reader->e, STATUS_INVALID, "line %d, column %d: expected %s", line, column,
                     expected);
}

/* Blanks and comments, and line ends where they mean nothing. */
static void skip_blanks(struct gbnf_reader *reader, bool lines) {
    for (;;) {
        char c = text_peek(&reader->in);
        if (c == '#')
            while (reader->in.at < reader->in.text.size &&
                   reader->in.text.text[reader->in.at] != '\n')
                text_step(&reader->in);
        else if (reader->in.at < reader->in.text.size &&
                 (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))))
            text_step(&reader->in);
        else
            return;
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Characters. */

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int32_t read_hex(struct gbnf_reader *reader, int digits) {
    int64_t value = 0;
    for (int i = 0; i < digits; i++) {
        int digit = digit_value(text_peek(&reader->in));
        if (digit < 0) {
            fail(reader, digits == 2   ? "two hexadecimal digits"
                         : digits == 4 ? "four hexadecimal digits"
                                       : "eight of them");
            return 0;
        }
        value = 16 * value + digit;
        text_step(&reader->in);
    }
    if (value > CHAR_LAST || (value >= 0xD800 && value <= 0xDFFF))
        fail(reader, "a code point before this");
    return (int32_t)value;
}

static int32_t read_escape(struct gbnf_reader *reader) {
    char c = text_peek(&reader->in);
    text_step(&reader->in);
    switch (c) {
        case 'x': return read_hex(reader, 2);
        case 'u': return read_hex(reader, 4);
        case 'U': return read_hex(reader, 8);
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
            reader->in.at--;
            fail(reader, "one of x u U n r t \" \\ [ ] - ^ behind a backslash");
            return 0;
    }
}

/* One code point, written as it is or escaped. */
static int32_t read_char(struct gbnf_reader *reader) {
    int32_t c;
    if (reader->in.at >= reader->in.text.size) {
        fail(reader, "more before the end");
        return 0;
    }
    if (text_take(&reader->in, "\\")) return read_escape(reader);
    int length =
        utf8_read(reader->in.text.text + reader->in.at, reader->in.text.size - reader->in.at, &c);
    if (c < 0) fail(reader, "UTF-8");
    reader->in.at += (size_t)length;
    return c < 0 ? 0 : c;
}

static int read_literal(struct gbnf_reader *reader) {
    struct expr_list chars = {0};
    while (text_peek(&reader->in) != '"' && reader->e->status == STATUS_OK) {
        struct char_range range = {.first = read_char(reader)};
        range.last = range.first;
        expr_list_add(&chars, expr_chars(reader->d, &range, 1));
    }
    text_take(&reader->in, "\"");
    int all = expr_sequence(reader->d, chars.items, chars.n);
    free(chars.items);
    return all;
}

static int read_class(struct gbnf_reader *reader) {
    struct char_ranges ranges = {0};
    bool negated = text_take(&reader->in, "^");
    while (text_peek(&reader->in) != ']' && reader->e->status == STATUS_OK) {
        int32_t first = read_char(reader), last = first;
        bool is_range = text_peek(&reader->in) == '-' && reader->in.at + 1 < reader->in.text.size &&
                        reader->in.text.text[reader->in.at + 1] != ']';
        if (is_range) {
            text_step(&reader->in);
            last = read_char(reader);
            if (last < first) fail(reader, "a range whose end is not before its beginning");
        }
        char_ranges_add(&ranges, first, last);
    }
    text_take(&reader->in, "]");
    if (negated)
        char_ranges_negate(&ranges);
    else
        char_ranges_sort(&ranges);
    int all = expr_chars(reader->d, ranges.list, ranges.n);
    free(ranges.list);
    return all;
}

/* Rules. */

/* The rule of a name, a new one where there is none. */
static int find_rule(struct gbnf_reader *reader, const char *name) {
    uint64_t hash = lookup_hash(name, strlen(name));
    size_t at = 0;
    for (int rule; (rule = lookup_next(&reader->names, hash, &at)) >= 0;)
        if (strcmp(reader->d->rules[rule].name, name) == 0) return rule;
    int rule = draft_rule_open(reader->d, name);
    lookup_add(&reader->names, hash, rule);
    return rule;
}

static int read_name(struct gbnf_reader *reader) {
    char name[MAX_NAME + 1];
    size_t n = 0;
    for (; is_name(text_peek(&reader->in)) && n < MAX_NAME; n++) {
        name[n] = text_peek(&reader->in);
        text_step(&reader->in);
    }
    name[n] = '\0';
    if (is_name(text_peek(&reader->in))) fail(reader, "a name of at most 100 characters");
    return find_rule(reader, name);
}

static int read_atom(struct gbnf_reader *reader) {
    static const struct char_range any = {0, CHAR_LAST};
    if (text_take(&reader->in, "\"")) return read_literal(reader);
    if (text_take(&reader->in, "[")) return read_class(reader);
    if (text_take(&reader->in, ".")) return expr_chars(reader->d, &any, 1);
    if (is_name(text_peek(&reader->in))) return expr_rule(reader->d, read_name(reader));
    if (text_take(&reader->in, "<quote>")) return expr_quote(reader->d, QUOTE_PLAIN);
    if (text_peek(&reader->in) == '<' || text_peek(&reader->in) == '!') {
        fail(reader, "text, or <quote>: tokens, <[1000]> and <think>, are not supported");
        return EXPR_NOTHING;
    }
    if (!text_take(&reader->in, "(") || reader->depth == MAX_DEPTH) {
        fail(reader, reader->depth == MAX_DEPTH ? "at most 100 parentheses within each other"
                                                : "a part of a rule");
        return EXPR_NOTHING;
    }
    reader->depth++;
    int inner = read_alternatives(reader);
    reader->depth--;
    skip_blanks(reader, true);
    if (!text_take(&reader->in, ")")) fail(reader, "\")\"");
    return inner;
}

/* Repetitions. */

/* A number, -1 where there is none. */
static int read_number(struct gbnf_reader *reader) {
    int64_t n = -1;
    for (; text_peek(&reader->in) >= '0' && text_peek(&reader->in) <= '9'; reader->in.at++) {
        n = 10 * (n < 0 ? 0 : n) + (text_peek(&reader->in) - '0');
        if (n > GRAMMAR_MAX_REPEAT) {
            fail(reader, "at most 1000000 repetitions");
            return 0;
        }
    }
    return (int)n;
}

static int read_bounds(struct gbnf_reader *reader, int atom) {
    skip_blanks(reader, false);
    int min = read_number(reader), max = min;
    skip_blanks(reader, false);
    if (text_take(&reader->in, ",")) {
        skip_blanks(reader, false);
        max = read_number(reader);
        skip_blanks(reader, false);
    } else if (min < 0) {
        fail(reader, "a number");
    }
    if (!text_take(&reader->in, "}")) fail(reader, "\"}\"");
    min = max_int(min, 0);
    if (max >= 0 && max < min) fail(reader, "bounds whose second is not less than the first");
    return expr_repeat(reader->d, atom, min, max);
}

static int read_repeated(struct gbnf_reader *reader) {
    int atom = read_atom(reader);
    for (int n = 0; reader->e->status == STATUS_OK; n++) {
        if (n == MAX_DEPTH) fail(reader, "fewer repetitions of one part");
        if (text_take(&reader->in, "*"))
            atom = expr_repeat(reader->d, atom, 0, -1);
        else if (text_take(&reader->in, "+"))
            atom = expr_repeat(reader->d, atom, 1, -1);
        else if (text_take(&reader->in, "?"))
            atom = expr_repeat(reader->d, atom, 0, 1);
        else if (text_take(&reader->in, "{"))
            atom = read_bounds(reader, atom);
        else
            break;
    }
    return atom;
}

static bool begins_atom(const struct gbnf_reader *reader) {
    char c = text_peek(&reader->in);
    return is_name(c) || (c != '\0' && strchr("\"[.(<!", c) != NULL);
}

static int read_alternative(struct gbnf_reader *reader) {
    struct expr_list parts = {0};
    skip_blanks(reader, true);
    while (begins_atom(reader) && reader->e->status == STATUS_OK) {
        expr_list_add(&parts, read_repeated(reader));
        skip_blanks(reader, reader->depth > 0);
    }
    int all = expr_sequence(reader->d, parts.items, parts.n);
    free(parts.items);
    return all;
}

static int read_alternatives(struct gbnf_reader *reader) {
    struct expr_list all = {0};
    do {
        expr_list_add(&all, read_alternative(reader));
        skip_blanks(reader, reader->depth > 0);
    } while (reader->e->status == STATUS_OK && text_take(&reader->in, "|"));
    int expr = expr_either(reader->d, all.items, all.n);
    free(all.items);
    return expr;
}

static void read_rule(struct gbnf_reader *reader) {
    if (!is_name(text_peek(&reader->in))) {
        fail(reader, "the name of a rule");
        return;
    }
    int rule = read_name(reader);
    skip_blanks(reader, false);
    if (!text_take(&reader->in, "::=")) fail(reader, "\"::=\"");
    if (reader->d->rules[rule].expr >= 0) fail(reader, "each rule once");
    int expr = read_alternatives(reader);
    draft_rule_set(reader->d, rule, expr);
    if (reader->in.at < reader->in.text.size && text_peek(&reader->in) != '\n' &&
        text_peek(&reader->in) != '\r')
        fail(reader, "the end of the line, or a part of a rule");
    skip_blanks(reader, true);
}

enum status gbnf_parse(struct grammar_draft *draft, struct text_span text, struct error *e) {
    struct gbnf_reader reader = {.d = draft, .in = {.text = text}, .e = e};
    *e = (struct error){0};
    int root = find_rule(&reader, "root");
    skip_blanks(&reader, true);
    while (reader.in.at < text.size && e->status == STATUS_OK && draft->error.status == STATUS_OK)
        read_rule(&reader);
    if (e->status == STATUS_OK && draft->error.status == STATUS_OK && draft->rules[root].expr < 0)
        error_set(e, STATUS_INVALID, "there is no rule named root");
    lookup_free(&reader.names);
    return e->status;
}
