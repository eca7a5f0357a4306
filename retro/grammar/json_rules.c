/* retro/grammar/json_rules.c: see json_rules.h. */
#include "retro/grammar/json_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INDENT = 64 };

/* Within marks: all characters but the one that the end of a mark begins with; and those of names
 * that stand bare. */
static const struct char_range unbarred[] = {{1, '|' - 1}, {'|' + 1, CHAR_LAST}},
                               name_chars[] = {{'-', '.'}, {'0', '9'}, {'A', 'Z'},
                                               {'_', '_'}, {'a', 'z'}, {128, CHAR_LAST}};
static const char mark_end[] = "|>";

static int set_of(struct grammar_draft *draft, const char *bytes) {
    struct symbol_set set = {{0}};
    for (; *bytes; bytes++) symbol_set_add(&set, (unsigned char)*bytes);
    return expr_set(draft, &set);
}

static int range_of(struct grammar_draft *draft, char first, char last) {
    struct symbol_set set = {{0}};
    for (char c = first; c <= last; c++) symbol_set_add(&set, c);
    return expr_set(draft, &set);
}

static int optional(struct grammar_draft *draft, int item) {
    return expr_repeat(draft, item, 0, 1);
}

/* The call of a rule that is made at the first call; *rule is its number + 1. */
static bool begin_rule(struct json_rules *rules, int *rule, const char *name, int *call) {
    bool is_new = *rule == 0;
    if (is_new) *rule = draft_rule_open(rules->draft, name) + 1;
    *call = expr_rule(rules->draft, *rule - 1);
    return is_new;
}

static void end_rule(struct json_rules *rules, int rule, int expr) {
    draft_rule_set(rules->draft, rule - 1, expr);
}

int json_blanks(struct json_rules *rules) {
    struct grammar_draft *draft = rules->draft;
    int call;
    if (rules->raw) return EXPR_EMPTY;
    if (!begin_rule(rules, &rules->blanks, "blanks", &call)) return call;
    int line =
        EXPR_SEQUENCE_OF(draft, optional(draft, expr_word(draft, "\r")), expr_word(draft, "\n"));
    int lines = EXPR_SEQUENCE_OF(draft, expr_repeat(draft, line, 1, 2),
                                 expr_repeat(draft, set_of(draft, " \t"), 0, MOST_INDENT));
    end_rule(rules, rules->blanks, EXPR_EITHER_OF(draft, EXPR_EMPTY, expr_word(draft, " "), lines));
    return call;
}

static int hex_digits(struct grammar_draft *draft, int n) {
    return expr_repeat(draft, set_of(draft, "0123456789abcdefABCDEF"), n, n);
}

/* \u escapes of characters: no half of a pair alone. */
static int escapes(struct grammar_draft *draft) {
    int low = EXPR_SEQUENCE_OF(draft, set_of(draft, "0123456789abcefABCEF"), hex_digits(draft, 3));
    int below = EXPR_SEQUENCE_OF(draft, set_of(draft, "dD"), range_of(draft, '0', '7'),
                                 hex_digits(draft, 2));
    int pair = EXPR_SEQUENCE_OF(draft, set_of(draft, "dD"), set_of(draft, "89abAB"),
                                hex_digits(draft, 2), expr_word(draft, "\\u"), set_of(draft, "dD"),
                                set_of(draft, "cdefCDEF"), hex_digits(draft, 2));
    int code =
        EXPR_SEQUENCE_OF(draft, expr_word(draft, "u"), EXPR_EITHER_OF(draft, low, below, pair));
    return EXPR_SEQUENCE_OF(draft, expr_word(draft, "\\"),
                            EXPR_EITHER_OF(draft, set_of(draft, "\"\\/bfnrt"), code));
}

int json_character(struct json_rules *rules) {
    static const struct char_range plain[] = {{' ', '!'}, {'#', '['}, {']', CHAR_LAST}};
    struct grammar_draft *draft = rules->draft;
    int call;
    if (rules->raw) return expr_chars(draft, unbarred, ARRAY_COUNT(unbarred));
    if (!begin_rule(rules, &rules->character, "character", &call))
        return draft->rules[rules->character - 1].expr;
    end_rule(rules, rules->character,
             EXPR_EITHER_OF(draft, expr_chars(draft, plain, ARRAY_COUNT(plain)), escapes(draft)));
    return draft->rules[rules->character - 1].expr;
}

int json_between_marks(struct json_rules *rules, int inside) {
    struct grammar_draft *draft = rules->draft;
    int mark = rules->raw ? rules->mark : expr_word(draft, "\"");
    return EXPR_SEQUENCE_OF(draft, mark, inside, mark);
}

int json_string_rule(struct json_rules *rules) {
    struct grammar_draft *draft = rules->draft;
    int call;
    if (!begin_rule(rules, &rules->string, "string", &call)) return call;
    int body = rules->raw ? expr_text_without(draft, mark_end[0], mark_end[1])
                          : expr_repeat(draft, json_character(rules), 0, -1);
    end_rule(rules, rules->string, json_between_marks(rules, body));
    return call;
}

int json_integer_rule(struct json_rules *rules) {
    struct grammar_draft *draft = rules->draft;
    int call;
    if (!begin_rule(rules, &rules->integer, "integer", &call)) return call;
    int digits = EXPR_SEQUENCE_OF(draft, range_of(draft, '1', '9'),
                                  expr_repeat(draft, range_of(draft, '0', '9'), 0, -1));
    int sign = optional(draft, expr_word(draft, "-"));
    end_rule(rules, rules->integer,
             EXPR_SEQUENCE_OF(draft, sign, EXPR_EITHER_OF(draft, expr_word(draft, "0"), digits)));
    return call;
}

int json_number(struct json_rules *rules) {
    struct grammar_draft *draft = rules->draft;
    int call;
    if (!begin_rule(rules, &rules->number, "number", &call)) return call;
    int digits = expr_repeat(draft, range_of(draft, '0', '9'), 1, -1);
    int fraction = optional(draft, EXPR_SEQUENCE_OF(draft, expr_word(draft, "."), digits));
    int exponent = optional(draft, EXPR_SEQUENCE_OF(draft, set_of(draft, "eE"),
                                                    optional(draft, set_of(draft, "+-")), digits));
    end_rule(rules, rules->number,
             EXPR_SEQUENCE_OF(draft, json_integer_rule(rules), fraction, exponent));
    return call;
}

static int any_name(struct json_rules *rules) {
    int letter = expr_chars(rules->draft, name_chars, ARRAY_COUNT(name_chars));
    return rules->raw ? expr_repeat(rules->draft, letter, 1, -1) : json_string_rule(rules);
}

/* Levels of objects and arrays: of any value, and of those within one of so many. */
static int all_levels(const struct json_rules *rules) {
    return rules->shallow ? JSON_SHALLOW - rules->around : JSON_SHALLOW + 1;
}
static int levels_within(int levels) { return levels > JSON_SHALLOW ? levels : levels - 1; }

static int any_value(struct json_rules *rules, int levels);

static int any_object(struct json_rules *rules, int levels) {
    struct any_rules *any = &rules->any[levels];
    int call;
    if (!begin_rule(rules, &any->object, "object", &call)) return call;
    int value = any_value(rules, levels_within(levels));
    struct expr_object object = {.more = json_member_of(rules, any_name(rules), value)};
    end_rule(rules, any->object, json_object_of(rules, &object));
    return call;
}

static int any_array(struct json_rules *rules, int levels) {
    struct any_rules *any = &rules->any[levels];
    int call;
    if (!begin_rule(rules, &any->array, "array", &call)) return call;
    int value = any_value(rules, levels_within(levels));
    end_rule(rules, any->array, json_list_of(rules, NULL, 0, value, 0, -1));
    return call;
}

static int any_value(struct json_rules *rules, int levels) {
    struct grammar_draft *draft = rules->draft;
    struct any_rules *any = &rules->any[levels];
    int call;
    if (!begin_rule(rules, &any->value, "value", &call)) return call;
    int words = EXPR_EITHER_OF(draft, expr_word(draft, "null"), expr_word(draft, "true"),
                               expr_word(draft, "false"));
    int flat = EXPR_EITHER_OF(draft, words, json_string_rule(rules), json_number(rules));
    int expr = levels == 0 ? flat
                           : EXPR_EITHER_OF(draft, any_object(rules, levels),
                                            any_array(rules, levels), flat);
    end_rule(rules, any->value, expr);
    return call;
}

int json_any(struct json_rules *rules) { return any_value(rules, all_levels(rules)); }
int json_any_object(struct json_rules *rules) { return any_object(rules, all_levels(rules)); }
int json_any_array(struct json_rules *rules) { return any_array(rules, all_levels(rules)); }
bool json_may_nest(const struct json_rules *rules) { return all_levels(rules) > 0; }

/* Characters that are written in one way. */

static bool is_plain(int32_t c) { return c >= ' ' && c != '"' && c != '\\'; }

/* The escapes of a character that is not plain; a letter where there is one, and its number. */
static int escape_of(struct grammar_draft *draft, int32_t c) {
    static const char letters[] = "btnvfr";
    char letter[3] = {'\\', (char)c, '\0'}, number[8];
    if (c == '"' || c == '\\') return expr_word(draft, letter);
    snprintf(number, sizeof number, "\\u%04x", (unsigned)c);
    if (c < '\b' || c > '\r' || c == '\v') return expr_word(draft, number);
    letter[1] = letters[c - '\b'];
    return EXPR_EITHER_OF(draft, expr_word(draft, letter), expr_word(draft, number));
}

/* The draft's error, where there is none yet. */
static int refuse(struct grammar_draft *draft, struct text_span text) {
    if (draft->error.status == STATUS_OK)
        error_set(&draft->error, STATUS_INVALID,
                  "the model's calls cannot hold the text \"%.*s\": a mark of theirs ends in %s",
                  (int)(text.size < 100 ? text.size : 100), text.text, mark_end);
    return EXPR_NOTHING;
}

static int raw_text(struct json_rules *rules, struct text_span text) {
    bool ends_mark = text.size > 0 && memmem(text.text, text.size, mark_end, strlen(mark_end));
    return ends_mark ? refuse(rules->draft, text) : expr_text(rules->draft, text.text, text.size);
}

int json_written_text(struct json_rules *rules, struct text_span text) {
    struct grammar_draft *draft = rules->draft;
    struct expr_list all = {0};
    size_t plain = 0;
    if (rules->raw) return json_between_marks(rules, raw_text(rules, text));
    for (size_t i = 0; i <= text.size; i++) {
        if (i < text.size && is_plain((unsigned char)text.text[i])) continue;
        expr_list_add(&all, expr_text(draft, text.text + plain, i - plain));
        if (i < text.size) expr_list_add(&all, escape_of(draft, (unsigned char)text.text[i]));
        plain = i + 1;
    }
    int expr = expr_sequence(draft, all.items, all.n);
    free(all.items);
    return json_between_marks(rules, expr);
}

/* One character that both have. */
static int common_char(struct grammar_draft *draft, const struct char_range *ranges, int n,
                       const struct char_range *others, int n_others) {
    struct char_ranges common = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_others; k++) {
            int32_t first = max_int(ranges[i].first, others[k].first),
                    last = min_int(ranges[i].last, others[k].last);
            if (first <= last) char_ranges_add(&common, first, last);
        }
    int expr = expr_chars(draft, common.list, common.n);
    free(common.list);
    return expr;
}

/* Any of the characters but the one that would end a mark; where there is no other, they cannot be
 * written. */
static int raw_chars(struct grammar_draft *draft, const struct char_range *ranges, int n) {
    int expr = common_char(draft, ranges, n, unbarred, ARRAY_COUNT(unbarred));
    bool barred = false;
    for (int i = 0; i < n; i++)
        barred = barred || (ranges[i].first <= mark_end[0] && mark_end[0] <= ranges[i].last);
    return expr == EXPR_NOTHING && barred ? refuse(draft, (struct text_span){mark_end, 1}) : expr;
}

int json_written_chars(struct json_rules *rules, const struct char_range *ranges, int n) {
    struct grammar_draft *draft = rules->draft;
    struct char_ranges plain = {0};
    struct expr_list all = {0};
    if (rules->raw) return raw_chars(draft, ranges, n);
    for (int i = 0; i < n; i++) {
        for (int32_t c = ranges[i].first; c <= ranges[i].last && c < 128; c++) {
            if (is_plain(c))
                char_ranges_add(&plain, c, c);
            else
                expr_list_add(&all, escape_of(draft, c));
        }
        if (ranges[i].last >= 128)
            char_ranges_add(&plain, ranges[i].first < 128 ? 128 : ranges[i].first, ranges[i].last);
    }
    char_ranges_sort(&plain);
    expr_list_add(&all, expr_chars(draft, plain.list, plain.n));
    int expr = expr_either(draft, all.items, all.n);
    free(plain.list);
    free(all.items);
    return expr;
}

/* Names. */

static bool is_word(struct text_span name) {
    for (size_t i = 0; i < name.size; i++) {
        bool known = false;
        int32_t byte = (unsigned char)name.text[i];
        for (size_t k = 0; k < ARRAY_COUNT(name_chars); k++)
            known = known || (name_chars[k].first <= byte && byte <= name_chars[k].last);
        if (!known) return false;
    }
    return name.size > 0;
}

int json_written_name(struct json_rules *rules, struct text_span name) {
    return rules->raw && is_word(name) ? expr_text(rules->draft, name.text, name.size)
                                       : json_written_text(rules, name);
}

int json_name_chars(struct json_rules *rules, const struct char_range *ranges, int n) {
    return rules->raw ? common_char(rules->draft, ranges, n, name_chars, ARRAY_COUNT(name_chars))
                      : json_written_chars(rules, ranges, n);
}

int json_name_of(struct json_rules *rules, int inside) {
    return rules->raw ? inside : json_between_marks(rules, inside);
}

/* Objects and lists. */

int json_member_of(struct json_rules *rules, int name, int value) {
    struct grammar_draft *draft = rules->draft;
    return EXPR_SEQUENCE_OF(draft, name, json_blanks(rules), expr_word(draft, ":"),
                            json_blanks(rules), value, json_blanks(rules));
}

int json_object_of(struct json_rules *rules, struct expr_object *object) {
    struct grammar_draft *draft = rules->draft;
    object->open = EXPR_SEQUENCE_OF(draft, expr_word(draft, "{"), json_blanks(rules));
    object->separator = EXPR_SEQUENCE_OF(draft, expr_word(draft, ","), json_blanks(rules));
    object->close = expr_word(draft, "}");
    return expr_object(draft, object);
}

/* Items behind the first, each behind a comma: those of the prefix from `at` on, of which all below
 * min must be there, and then the rest. */
static int more_items(struct json_rules *rules, const int *items, int n, int rest,
                      const int bounds[2]) {
    struct grammar_draft *draft = rules->draft;
    int comma = EXPR_SEQUENCE_OF(draft, expr_word(draft, ","), json_blanks(rules));
    int min = max_int(bounds[0] - n, 0), max = bounds[1] < 0 ? -1 : max_int(bounds[1] - n, 0);
    int tail =
        expr_repeat(draft, EXPR_SEQUENCE_OF(draft, comma, rest, json_blanks(rules)), min, max);
    for (int i = n - 1; i > 0; i--) {
        tail = EXPR_SEQUENCE_OF(draft, comma, items[i], json_blanks(rules), tail);
        if (bounds[1] >= 0 && i >= bounds[1]) tail = EXPR_EMPTY;
        if (i >= bounds[0]) tail = EXPR_EITHER_OF(draft, EXPR_EMPTY, tail);
    }
    return tail;
}

int json_list_of(struct json_rules *rules, const int *prefix, int n_prefix, int rest, int min,
                 int max) {
    struct grammar_draft *draft = rules->draft;
    const int bounds[2] = {min, max};
    const int *items = n_prefix > 0 ? prefix : &rest;
    int filled = EXPR_NOTHING, empty = min <= 0 ? EXPR_EMPTY : EXPR_NOTHING;
    if (max != 0)
        filled = EXPR_SEQUENCE_OF(draft, items[0], json_blanks(rules),
                                  more_items(rules, items, max_int(n_prefix, 1), rest, bounds));
    return EXPR_SEQUENCE_OF(draft, expr_word(draft, "["), json_blanks(rules),
                            EXPR_EITHER_OF(draft, empty, filled), expr_word(draft, "]"));
}
