/* retro/grammar/json_rules.c: see json_rules.h. */
#include "retro/grammar/json_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INDENT = 64 };

static int set_of(struct grammar_draft *d, const char *bytes) {
    struct symbol_set set = {{0}};
    for (; *bytes; bytes++) symbol_set_add(&set, (unsigned char)*bytes);
    return expr_set(d, &set);
}

static int range_of(struct grammar_draft *d, char first, char last) {
    struct symbol_set set = {{0}};
    for (char c = first; c <= last; c++) symbol_set_add(&set, c);
    return expr_set(d, &set);
}

static int optional(struct grammar_draft *d, int item) { return expr_repeat(d, item, 0, 1); }

/* The call of a rule that is made at the first call; *rule is its number + 1. */
static bool begin_rule(struct json_rules *r, int *rule, const char *name, int *call) {
    bool is_new = *rule == 0;
    if (is_new) *rule = draft_rule_open(r->draft, name) + 1;
    *call = expr_rule(r->draft, *rule - 1);
    return is_new;
}

static void end_rule(struct json_rules *r, int rule, int expr) { draft_rule_set(r->draft, rule - 1, expr); }

int json_blanks(struct json_rules *r) {
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->blanks, "blanks", &call)) return call;
    int line = EXPR_SEQUENCE_OF(d, optional(d, expr_word(d, "\r")), expr_word(d, "\n"));
    int lines = EXPR_SEQUENCE_OF(d, expr_repeat(d, line, 1, 2), expr_repeat(d, set_of(d, " \t"), 0, MOST_INDENT));
    end_rule(r, r->blanks, EXPR_EITHER_OF(d, EXPR_EMPTY, expr_word(d, " "), lines));
    return call;
}

static int hex_digits(struct grammar_draft *d, int n) {
    return expr_repeat(d, set_of(d, "0123456789abcdefABCDEF"), n, n);
}

/* \u escapes of characters: no half of a pair alone. */
static int escapes(struct grammar_draft *d) {
    int low = EXPR_SEQUENCE_OF(d, set_of(d, "0123456789abcefABCEF"), hex_digits(d, 3));
    int below = EXPR_SEQUENCE_OF(d, set_of(d, "dD"), range_of(d, '0', '7'), hex_digits(d, 2));
    int pair = EXPR_SEQUENCE_OF(d, set_of(d, "dD"), set_of(d, "89abAB"), hex_digits(d, 2), expr_word(d, "\\u"),
                                set_of(d, "dD"), set_of(d, "cdefCDEF"), hex_digits(d, 2));
    int code = EXPR_SEQUENCE_OF(d, expr_word(d, "u"), EXPR_EITHER_OF(d, low, below, pair));
    return EXPR_SEQUENCE_OF(d, expr_word(d, "\\"), EXPR_EITHER_OF(d, set_of(d, "\"\\/bfnrt"), code));
}

int json_character(struct json_rules *r) {
    static const struct char_range plain[] = {{' ', '!'}, {'#', '['}, {']', CHAR_LAST}};
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->character, "character", &call)) return d->rules[r->character - 1].expr;
    end_rule(r, r->character, EXPR_EITHER_OF(d, expr_chars(d, plain, ARRAY_COUNT(plain)), escapes(d)));
    return d->rules[r->character - 1].expr;
}

int json_string(struct json_rules *r) {
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->string, "string", &call)) return call;
    int body = expr_repeat(d, json_character(r), 0, -1);
    end_rule(r, r->string, EXPR_SEQUENCE_OF(d, expr_word(d, "\""), body, expr_word(d, "\"")));
    return call;
}

int json_integer(struct json_rules *r) {
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->integer, "integer", &call)) return call;
    int digits = EXPR_SEQUENCE_OF(d, range_of(d, '1', '9'), expr_repeat(d, range_of(d, '0', '9'), 0, -1));
    int sign = optional(d, expr_word(d, "-"));
    end_rule(r, r->integer, EXPR_SEQUENCE_OF(d, sign, EXPR_EITHER_OF(d, expr_word(d, "0"), digits)));
    return call;
}

int json_number(struct json_rules *r) {
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->number, "number", &call)) return call;
    int digits = expr_repeat(d, range_of(d, '0', '9'), 1, -1);
    int fraction = optional(d, EXPR_SEQUENCE_OF(d, expr_word(d, "."), digits));
    int exponent = optional(d, EXPR_SEQUENCE_OF(d, set_of(d, "eE"), optional(d, set_of(d, "+-")), digits));
    end_rule(r, r->number, EXPR_SEQUENCE_OF(d, json_integer(r), fraction, exponent));
    return call;
}

int json_any(struct json_rules *r) {
    struct grammar_draft *d = r->draft;
    int call;
    if (!begin_rule(r, &r->value, "value", &call)) return call;
    int words = EXPR_EITHER_OF(d, expr_word(d, "null"), expr_word(d, "true"), expr_word(d, "false"));
    int others = EXPR_EITHER_OF(d, json_any_object(r), json_any_array(r), json_string(r), json_number(r));
    end_rule(r, r->value, EXPR_EITHER_OF(d, words, others));
    return call;
}

int json_any_object(struct json_rules *r) {
    int call;
    if (!begin_rule(r, &r->object, "object", &call)) return call;
    struct expr_object object = {.more = json_member_of(r, json_string(r), json_any(r))};
    end_rule(r, r->object, json_object_of(r, &object));
    return call;
}

int json_any_array(struct json_rules *r) {
    int call;
    if (!begin_rule(r, &r->array, "array", &call)) return call;
    end_rule(r, r->array, json_list_of(r, NULL, 0, json_any(r), 0, -1));
    return call;
}

/* Characters that are written in one way. */

static bool is_plain(int32_t c) { return c >= ' ' && c != '"' && c != '\\'; }

/* The escapes of a character that is not plain; a letter where there is one, and its number. */
static int escape_of(struct grammar_draft *d, int32_t c) {
    static const char letters[] = "btnvfr";
    char letter[3] = {'\\', (char)c, '\0'}, number[8];
    if (c == '"' || c == '\\') return expr_word(d, letter);
    snprintf(number, sizeof number, "\\u%04x", (unsigned)c);
    if (c < '\b' || c > '\r' || c == '\v') return expr_word(d, number);
    letter[1] = letters[c - '\b'];
    return EXPR_EITHER_OF(d, expr_word(d, letter), expr_word(d, number));
}

int json_written_text(struct json_rules *r, struct text_span text) {
    struct grammar_draft *d = r->draft;
    struct expr_list all = {0};
    size_t plain = 0;
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && is_plain((unsigned char)text.text[i])) continue;
        expr_list_add(&all, expr_text(d, text.text + plain, i - plain));
        if (i < text.size) expr_list_add(&all, escape_of(d, (unsigned char)text.text[i]));
        plain = i + 1;
    }
    int expr = expr_sequence(d, all.items, all.n);
    free(all.items);
    return EXPR_SEQUENCE_OF(d, expr_word(d, "\""), expr, expr_word(d, "\""));
}

int json_written_chars(struct json_rules *r, const struct char_range *ranges, int n) {
    struct grammar_draft *d = r->draft;
    struct char_ranges plain = {0};
    struct expr_list all = {0};
    for (int i = 0; i < n; i++) {
        for (int32_t c = ranges[i].first; c <= ranges[i].last && c < 128; c++) {
            if (is_plain(c))
                char_ranges_add(&plain, c, c);
            else
                expr_list_add(&all, escape_of(d, c));
        }
        if (ranges[i].last >= 128)
            char_ranges_add(&plain, ranges[i].first < 128 ? 128 : ranges[i].first, ranges[i].last);
    }
    char_ranges_sort(&plain);
    expr_list_add(&all, expr_chars(d, plain.list, plain.n));
    int expr = expr_either(d, all.items, all.n);
    free(plain.list);
    free(all.items);
    return expr;
}

/* Objects and lists. */

int json_member_of(struct json_rules *r, int name, int value) {
    struct grammar_draft *d = r->draft;
    return EXPR_SEQUENCE_OF(d, name, json_blanks(r), expr_word(d, ":"), json_blanks(r), value, json_blanks(r));
}

int json_object_of(struct json_rules *r, struct expr_object *object) {
    struct grammar_draft *d = r->draft;
    object->open = EXPR_SEQUENCE_OF(d, expr_word(d, "{"), json_blanks(r));
    object->separator = EXPR_SEQUENCE_OF(d, expr_word(d, ","), json_blanks(r));
    object->close = expr_word(d, "}");
    return expr_object(d, object);
}

/* Items behind the first, each behind a comma: those of the prefix from `at` on, of which all below min must be
 * there, and then the rest. */
static int more_items(struct json_rules *r, const int *items, int n, int rest, const int bounds[2]) {
    struct grammar_draft *d = r->draft;
    int comma = EXPR_SEQUENCE_OF(d, expr_word(d, ","), json_blanks(r));
    int min = max_int(bounds[0] - n, 0), max = bounds[1] < 0 ? -1 : max_int(bounds[1] - n, 0);
    int tail = expr_repeat(d, EXPR_SEQUENCE_OF(d, comma, rest, json_blanks(r)), min, max);
    for (int i = n - 1; i > 0; i--) {
        tail = EXPR_SEQUENCE_OF(d, comma, items[i], json_blanks(r), tail);
        if (bounds[1] >= 0 && i >= bounds[1]) tail = EXPR_EMPTY;
        if (i >= bounds[0]) tail = EXPR_EITHER_OF(d, EXPR_EMPTY, tail);
    }
    return tail;
}

int json_list_of(struct json_rules *r, const int *prefix, int n_prefix, int rest, int min, int max) {
    struct grammar_draft *d = r->draft;
    const int bounds[2] = {min, max};
    const int *items = n_prefix > 0 ? prefix : &rest;
    int filled = EXPR_NOTHING, empty = min <= 0 ? EXPR_EMPTY : EXPR_NOTHING;
    if (max != 0)
        filled =
            EXPR_SEQUENCE_OF(d, items[0], json_blanks(r), more_items(r, items, max_int(n_prefix, 1), rest, bounds));
    return EXPR_SEQUENCE_OF(d, expr_word(d, "["), json_blanks(r), EXPR_EITHER_OF(d, empty, filled), expr_word(d, "]"));
}
