/* retro/grammar/regex_parse.c: see regex_parse.h. */
#include "retro/grammar/regex_parse.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/grammar/text_reader.h"

enum { MAX_GROUPS = 60 };

struct regex_reader {
    struct grammar_draft *d;
    const struct regex_writer *writer;
    struct text_reader in;
    int depth;
    struct error *e;
};

static int read_alternatives(struct regex_reader *reader);

static int fail(struct regex_reader *reader, enum status status, const char *what) {
    if (reader->e->status == STATUS_OK)
        error_set(reader->e, status, "regular expression, byte %zu: %s", reader->in.at + 1, what);
    return EXPR_NOTHING;
}

/* Characters. */

static const struct char_range digits[] = {{'0', '9'}};
static const struct char_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct char_range blanks[] = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct char_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void add_class(struct char_ranges *to, const struct char_range *list, size_t n,
                      bool negated) {
    struct char_ranges own = {0};
    for (size_t i = 0; i < n; i++) char_ranges_add(&own, list[i].first, list[i].last);
    if (negated) char_ranges_negate(&own);
    for (int i = 0; i < own.n; i++) char_ranges_add(to, own.list[i].first, own.list[i].last);
    free(own.list);
}

/* \d, \W and so on; false: the letter is none of these. */
static bool take_class(struct regex_reader *reader, struct char_ranges *to) {
    char c = text_peek(&reader->in), small = (char)(c | 0x20);
    bool negated = c == 'D' || c == 'W' || c == 'S';
    if (small == 'd')
        add_class(to, digits, ARRAY_COUNT(digits), negated);
    else if (small == 'w')
        add_class(to, letters, ARRAY_COUNT(letters), negated);
    else if (small == 's')
        add_class(to, blanks, ARRAY_COUNT(blanks), negated);
    else
        return false;
    text_step(&reader->in);
    return true;
}

static int32_t read_hex(struct regex_reader *reader, int n) {
    int32_t value = 0;
    for (int i = 0; i < n; i++) {
        char c = text_peek(&reader->in), small = (char)(c | 0x20);
        bool digit = c >= '0' && c <= '9';
        if (!digit && (small < 'a' || small > 'f'))
            return fail(reader, STATUS_INVALID, "expected a hexadecimal digit");
        value = 16 * value + (digit ? c - '0' : small - 'a' + 10);
        text_step(&reader->in);
    }
    return value;
}

/* \uXXXX, perhaps two of them as a pair, or \u{X...}. */
static int32_t read_unicode(struct regex_reader *reader) {
    int32_t c;
    if (text_take(&reader->in, "{")) {
        for (c = 0; text_peek(&reader->in) != '}' && reader->e->status == STATUS_OK;) {
            c = 16 * c + read_hex(reader, 1);
            if (c > CHAR_LAST) fail(reader, STATUS_INVALID, "no code point is so large");
        }
        text_take(&reader->in, "}");
        return c;
    }
    c = read_hex(reader, 4);
    if (c >= 0xD800 && c <= 0xDBFF && text_take(&reader->in, "\\u")) {
        int32_t low = read_hex(reader, 4);
        if (low >= 0xDC00 && low <= 0xDFFF) c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if ((c >= 0xD800 && c <= 0xDFFF) || c > CHAR_LAST)
        fail(reader, STATUS_INVALID, "half of a surrogate pair");
    return c;
}

/* A character that stands for itself. */
static int32_t read_plain(struct regex_reader *reader) {
    int32_t c;
    if (reader->in.at >= reader->in.text.size)
        return fail(reader, STATUS_INVALID, "it ends too early");
    int length =
        utf8_read(reader->in.text.text + reader->in.at, reader->in.text.size - reader->in.at, &c);
    if (c < 0) return fail(reader, STATUS_INVALID, "not UTF-8");
    reader->in.at += (size_t)length;
    return c;
}

static int32_t read_escape(struct regex_reader *reader) {
    static const char names[] = "tnvfr", values[] = "\t\n\v\f\r";
    char c = text_peek(&reader->in);
    const char *name = c ? strchr(names, c) : NULL;
    text_step(&reader->in);
    if (name) return values[name - names];
    if (c == 'x') return read_hex(reader, 2);
    if (c == 'u') return read_unicode(reader);
    if (c == '0' && !(text_peek(&reader->in) >= '0' && text_peek(&reader->in) <= '9')) return 0;
    if (c == 'c' && (text_peek(&reader->in) | 0x20) >= 'a' &&
        (text_peek(&reader->in) | 0x20) <= 'z') {
        text_step(&reader->in);
        return reader->in.text.text[reader->in.at - 1] & 0x1F;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\0')
        return fail(reader, STATUS_UNSUPPORTED,
                    "this escape is not supported (references back, \\b, \\B, \\p, \\k)");
    reader->in.at--;
    return read_plain(reader);
}

static int32_t read_char(struct regex_reader *reader) {
    return text_take(&reader->in, "\\") ? read_escape(reader) : read_plain(reader);
}

static int put_ranges(struct regex_reader *reader, struct char_ranges *ranges, bool negated) {
    if (negated)
        char_ranges_negate(ranges);
    else
        char_ranges_sort(ranges);
    int all = reader->writer->chars(reader->writer->context, ranges->list, ranges->n);
    free(ranges->list);
    return all;
}

/* Behind [: the characters up to ]. */
static int read_set(struct regex_reader *reader) {
    struct char_ranges ranges = {0};
    bool negated = text_take(&reader->in, "^");
    while (text_peek(&reader->in) != ']' && reader->e->status == STATUS_OK) {
        size_t before = reader->in.at;
        if (text_take(&reader->in, "\\")) {
            if (take_class(reader, &ranges)) continue;
            if (text_take(&reader->in, "b")) {
                char_ranges_add(&ranges, '\b', '\b');
                continue;
            }
            reader->in.at = before;
        }
        int32_t first = read_char(reader), last = first;
        if (text_peek(&reader->in) == '-' && reader->in.at + 1 < reader->in.text.size &&
            reader->in.text.text[reader->in.at + 1] != ']') {
            text_step(&reader->in);
            last = read_char(reader);
        }
        if (last < first) fail(reader, STATUS_INVALID, "a range whose end is before its beginning");
        char_ranges_add(&ranges, first, last);
    }
    text_take(&reader->in, "]");
    return put_ranges(reader, &ranges, negated);
}

static int any_char(struct regex_reader *reader) {
    struct char_ranges all = {0};
    return put_ranges(reader, &all, true);
}

/* Structure. */

static int read_group(struct regex_reader *reader) {
    if (reader->depth == MAX_GROUPS)
        return fail(reader, STATUS_UNSUPPORTED, "more than 60 groups within each other");
    if (text_take(&reader->in, "?:") || text_peek(&reader->in) != '?') {
        reader->depth++;
        int inner = read_alternatives(reader);
        reader->depth--;
        return text_take(&reader->in, ")") ? inner : fail(reader, STATUS_INVALID, "expected )");
    }
    return fail(reader, STATUS_UNSUPPORTED,
                "(? is supported as (?: only: no look-around, names or flags");
}

static int read_atom(struct regex_reader *reader) {
    struct char_ranges ranges = {0};
    if (text_take(&reader->in, "(")) return read_group(reader);
    if (text_take(&reader->in, "[")) return read_set(reader);
    if (text_take(&reader->in, ".")) {
        add_class(&ranges, line_ends, ARRAY_COUNT(line_ends), false);
        return put_ranges(reader, &ranges, true);
    }
    if (text_peek(&reader->in) == '^' || text_peek(&reader->in) == '$')
        return fail(reader, STATUS_UNSUPPORTED,
                    "^ and $ are supported at the ends of the whole expression only");
    if (text_peek(&reader->in) != '\0' && strchr("*+?", text_peek(&reader->in)))
        return fail(reader, STATUS_INVALID, "nothing is there to be repeated");
    if (text_take(&reader->in, "\\")) {
        if (take_class(reader, &ranges)) return put_ranges(reader, &ranges, false);
        reader->in.at--;
    }
    int32_t c = read_char(reader);
    if (reader->e->status) return EXPR_NOTHING;
    char_ranges_add(&ranges, c, c);
    return put_ranges(reader, &ranges, false);
}

/* A number behind { or a comma; -1: there is none. */
static int read_number(struct regex_reader *reader) {
    int64_t n = -1;
    for (;
         text_peek(&reader->in) >= '0' && text_peek(&reader->in) <= '9' && n <= GRAMMAR_MAX_REPEAT;
         reader->in.at++)
        n = 10 * (n < 0 ? 0 : n) + (text_peek(&reader->in) - '0');
    if (n > GRAMMAR_MAX_REPEAT) fail(reader, STATUS_INVALID, "at most 1000000 repetitions");
    return (int)n;
}

static int read_bounds(struct regex_reader *reader, int atom) {
    int min = read_number(reader), max = min;
    if (text_take(&reader->in, ",")) max = read_number(reader);
    if (min < 0 || !text_take(&reader->in, "}"))
        return fail(reader, STATUS_INVALID, "{ is expected as {n}, {n,} or {n,m}; else write \\{");
    if (max >= 0 && max < min)
        return fail(reader, STATUS_INVALID, "the second bound is less than the first");
    return expr_repeat(reader->d, atom, min, max);
}

static int read_repeated(struct regex_reader *reader) {
    int atom = read_atom(reader);
    if (reader->e->status) return EXPR_NOTHING;
    if (text_take(&reader->in, "*"))
        atom = expr_repeat(reader->d, atom, 0, -1);
    else if (text_take(&reader->in, "+"))
        atom = expr_repeat(reader->d, atom, 1, -1);
    else if (text_take(&reader->in, "?"))
        atom = expr_repeat(reader->d, atom, 0, 1);
    else if (text_take(&reader->in, "{"))
        atom = read_bounds(reader, atom);
    else
        return atom;
    text_take(&reader->in, "?"); /* lazy or not, the texts are the same */
    if (text_peek(&reader->in) != '\0' && strchr("*+?{", text_peek(&reader->in)))
        return fail(reader, STATUS_INVALID, "a repetition of a repetition");
    return atom;
}

static bool at_end(const struct regex_reader *reader) {
    return reader->in.at >= reader->in.text.size || text_peek(&reader->in) == '|' ||
           (text_peek(&reader->in) == ')' && reader->depth > 0);
}

/* One alternative; ^ and $ only where it is one of the whole expression. */
static int read_alternative(struct regex_reader *reader) {
    struct expr_list parts = {0};
    bool outermost = reader->depth == 0, begins = outermost && text_take(&reader->in, "^"),
         ends = false;
    if (outermost && !begins && !reader->writer->whole)
        expr_list_add(&parts, expr_repeat(reader->d, any_char(reader), 0, -1));
    while (!at_end(reader) && !ends && reader->e->status == STATUS_OK) {
        ends = outermost && text_take(&reader->in, "$");
        if (!ends) expr_list_add(&parts, read_repeated(reader));
    }
    if (ends && !at_end(reader))
        fail(reader, STATUS_UNSUPPORTED,
             "^ and $ are supported at the ends of the whole expression only");
    if (outermost && !ends && !reader->writer->whole)
        expr_list_add(&parts, expr_repeat(reader->d, any_char(reader), 0, -1));
    int all = expr_sequence(reader->d, parts.items, parts.n);
    free(parts.items);
    return all;
}

static int read_alternatives(struct regex_reader *reader) {
    struct expr_list all = {0};
    do {
        expr_list_add(&all, read_alternative(reader));
    } while (reader->e->status == STATUS_OK && text_take(&reader->in, "|"));
    int expr = expr_either(reader->d, all.items, all.n);
    free(all.items);
    return expr;
}

enum status regex_parse(struct grammar_draft *draft, struct text_span text,
                        const struct regex_writer *writer, int *out, struct error *e) {
    struct regex_reader reader = {.d = draft, .writer = writer, .in = {.text = text}, .e = e};
    *e = (struct error){0};
    *out = read_alternatives(&reader);
    if (e->status == STATUS_OK && reader.in.at < text.size)
        fail(&reader, STATUS_INVALID, ") without (");
    if (e->status) *out = EXPR_NOTHING;
    return e->status;
}
