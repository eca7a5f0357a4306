/* retro/grammar/schema_text.c: strings and numbers. See schema_private.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/regex_parse.h"
#include "retro/grammar/schema_private.h"

/* Formats as regular expressions of texts that are surely of them; not all texts that are, where
 * the rules are long. */
struct named_format {
    const char *name, *pattern;
};

#define YEARS_OF_LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-" \
    "9]|30)|" \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" YEARS_OF_LEAP "-02-29)"
#define ZONE "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define TIME \
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?" ZONE \
    "|23:59:60(?:\\.[0-9]+)?[Zz])"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 "(?:" BYTE "\\.){3}" BYTE
#define WORD "[0-9a-fA-F]{1,4}"
#define LABEL "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,16}"
#define HOST LABEL "(?:\\." LABEL "){0,6}"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,30}"
#define URL_CHARS "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*"
static const struct named_format formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "[Tt]" TIME "$"},
    {"duration",
     "^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T(?:[0-9]+H(?:"
     "[0-9]+M(?:[0-9]+S)?)"
     "?|"
     "[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+"
     "S))$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^(?:(?:" WORD ":){7}" WORD "|(?:" WORD ":){1,6}:" WORD "|(?:" WORD ":){1,5}(?::" WORD
             "){2}|(?:" WORD ":){1,4}(?::" WORD "){2,3}|(?:" WORD ":){1,3}(?::" WORD
             "){2,4}|(?:" WORD ":){1,2}(?::" WORD "){2,5}|" WORD ":(?::" WORD "){2,6}|:(?::" WORD
             "){1,7}|(?:" WORD ":){1,7}:|::)$"},
    {"hostname", "^" HOST "$"},
    {"email", "^" ATOM "(?:\\." ATOM ")?@" HOST "$"},
    {"uri", "^[a-z][a-z0-9]{0,10}://" HOST "(?::[0-9]{1,5})?(?:/" URL_CHARS ")?(?:\\?" URL_CHARS
            ")?(?:#" URL_CHARS ")?$"},
};

static int write_chars(void *context, const struct char_range *ranges, int n) {
    return json_written_chars(context, ranges, n);
}

int schema_pattern(struct schema_compiler *compiler, const struct json *schema,
                   struct text_span pattern) {
    const struct regex_writer writer = {write_chars, compiler->rules, false};
    struct error e;
    int inside;
    if (regex_parse(compiler->d, pattern, &writer, &inside, &e))
        return schema_fail(compiler, schema, e.status, "pattern: %s", e.text);
    return json_between_marks(compiler->rules, inside);
}

/* A quote, or no text: an answer for which nothing was found has that. */
static int compile_quote(struct schema_compiler *compiler, bool may_be_empty) {
    struct grammar_draft *draft = compiler->d;
    int quote = expr_quote(draft, QUOTE_JSON), mark = expr_word(draft, "\"");
    if (may_be_empty) quote = EXPR_EITHER_OF(draft, quote, EXPR_EMPTY);
    return EXPR_SEQUENCE_OF(draft, mark, quote, mark);
}

static int compile_format(struct schema_compiler *compiler, const struct json *schema,
                          const struct json *name) {
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(formats); i++) {
        buffer_printf(&known, "%s%s", i ? ", " : "", formats[i].name);
        if (!json_text_is(name, formats[i].name)) continue;
        buffer_free(&known);
        return schema_pattern(compiler, schema,
                              (struct text_span){formats[i].pattern, strlen(formats[i].pattern)});
    }
    schema_fail(compiler, schema, STATUS_UNSUPPORTED, "format: supported are quote, %s",
                known.data);
    buffer_free(&known);
    return EXPR_NOTHING;
}

static bool schema_has(const struct schema_list *list, const char *keyword,
                       const struct json **schema) {
    for (int i = 0; i < list->n; i++) {
        if (json_member(list->items[i], keyword) == NULL) continue;
        *schema = list->items[i];
        return true;
    }
    return false;
}

static bool has_one_value(const struct schema_list *list, const char *keyword,
                          const struct json *value) {
    for (int i = 0; i < list->n; i++) {
        const struct json *other = json_member(list->items[i], keyword);
        if (other && !json_same(other, value)) return false;
    }
    return true;
}

int schema_string(struct schema_compiler *compiler, const struct schema_list *list) {
    const struct json *schema, *other;
    struct grammar_draft *draft = compiler->d;
    int min = schema_count(compiler, list, "minLength", true, 0),
        max = schema_count(compiler, list, "maxLength", false, -1);
    bool counted = min > 0 || max >= 0, has_format = schema_has(list, "format", &other);
    if (schema_has(list, "pattern", &schema)) {
        const struct json *pattern = json_member(schema, "pattern");
        if (!json_is_text(pattern))
            return schema_fail(compiler, schema, STATUS_INVALID, "pattern is no string");
        if (counted || has_format || !has_one_value(list, "pattern", pattern))
            return schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                               "pattern beside another pattern, format, minLength or maxLength");
        return schema_pattern(compiler, schema, json_text(pattern));
    }
    if (has_format) {
        const struct json *format = json_member(other, "format");
        if (json_text_is(format, "quote") && compiler->rules->raw)
            return schema_fail(compiler, other, STATUS_UNSUPPORTED,
                               "format: the model's calls hold no quotes");
        if (json_text_is(format, "quote") && has_one_value(list, "format", format) && min <= 1 &&
            max < 0)
            return compile_quote(compiler, min == 0);
        if (counted || !has_one_value(list, "format", format))
            return schema_fail(compiler, other, STATUS_UNSUPPORTED,
                               "format beside another format, minLength or maxLength");
        return compile_format(compiler, other, format);
    }
    if (!counted) return json_string_rule(compiler->rules);
    if (max >= 0 && max < min) return EXPR_NOTHING;
    int body = expr_repeat(draft, json_character(compiler->rules), min, max);
    return json_between_marks(compiler->rules, body);
}

/* Numbers. */

/* A bound as a decimal; NULL, with an error set, where it would need an exponent. */
static const char *write_bound(struct schema_compiler *compiler, const struct json *schema,
                               double value, bool integer, char *out, size_t size) {
    if (fabs(value) >= 1e15 || (value != 0 && fabs(value) < 1e-9)) {
        schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                    "a bound is %g; supported are 0 and 1e-9 .. 1e15", value);
        return NULL;
    }
    for (int digits = integer ? 0 : 1; digits <= 24; digits++) {
        snprintf(out, size, "%.*f", digits, value + 0.0); /* -0 is 0 */
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

int schema_number(struct schema_compiler *compiler, const struct schema_list *list, int types) {
    const struct json *schema = list->items[0];
    struct number_bounds bounds = {.fractions = types & TYPE_FRACTION};
    char low[64], high[64];
    double least = -INFINITY, most = INFINITY, bound;
    if (schema_bound(compiler, list, "minimum", true, &bound)) least = bound;
    if (schema_bound(compiler, list, "maximum", false, &bound)) most = bound;
    if (schema_bound(compiler, list, "exclusiveMinimum", true, &bound) && bound >= least) {
        least = bound;
        bounds.low_excluded = true;
    }
    if (schema_bound(compiler, list, "exclusiveMaximum", false, &bound) && bound <= most) {
        most = bound;
        bounds.high_excluded = true;
    }
    if (isinf(least) && isinf(most))
        return bounds.fractions ? json_number(compiler->rules) : json_integer_rule(compiler->rules);
    if (!bounds.fractions) {
        least = bounds.low_excluded && least == floor(least) ? least + 1 : ceil(least);
        most = bounds.high_excluded && most == floor(most) ? most - 1 : floor(most);
        bounds.low_excluded = bounds.high_excluded = false;
    }
    if (least > most) return EXPR_NOTHING;
    if (!isinf(least))
        bounds.low = write_bound(compiler, schema, least, !bounds.fractions, low, sizeof low);
    if (!isinf(most))
        bounds.high = write_bound(compiler, schema, most, !bounds.fractions, high, sizeof high);
    return compiler->e->status ? EXPR_NOTHING : number_range(compiler->d, &bounds);
}
