/* retro/template/filters_text.c: filters whose value is a text or a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* The value as Jinja's soft_str reads it. */
static const struct template_string *self_text(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = value_text(r, c->self);
    if (s->safe) run_refuse(r, "the filter %s of a text marked as safe", c->row->name);
    return s;
}

static struct value filter_trim(struct template_run *r, const struct bound_call *c) {
    return value_string(string_strip(r->m, self_text(r, c), argument_text(r, c, 0), true, true));
}

static struct value filter_upper(struct template_run *r, const struct bound_call *c) {
    return value_string(string_case(r, self_text(r, c), CASE_UPPER));
}

static struct value filter_lower(struct template_run *r, const struct bound_call *c) {
    return value_string(string_case(r, self_text(r, c), CASE_LOWER));
}

static struct value filter_capitalize(struct template_run *r, const struct bound_call *c) {
    return value_string(string_case(r, self_text(r, c), CASE_CAPITAL));
}

/* Jinja's title: words end at white space, hyphens and opening brackets. */
static struct value filter_title(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(r, c);
    struct text_builder b = {.m = r->m};
    for (size_t at = 0; at < s->size;) {
        size_t end = at;
        while (end < s->size) {
            int32_t character;
            size_t n = (size_t)utf8_read(s->text + end, s->size - end, &character);
            if (python_is_space(character) || (character > 0 && character < 0x80 && strchr("-({[<", character))) break;
            end += n;
        }
        size_t first = end > at ? at + (size_t)utf8_length(s->text + at, s->size - at) : at;
        builder_add(&b, string_case(r, string_part(r->m, s, at, first), CASE_UPPER));
        builder_add(&b, string_case(r, string_part(r->m, s, first, end), CASE_LOWER));
        if (end < s->size) {
            size_t n = (size_t)utf8_length(s->text + end, s->size - end);
            builder_part(&b, s, end, end + n);
            end += n;
        }
        at = end;
    }
    return value_string(builder_string(&b));
}

static struct value filter_replace(struct template_run *r, const struct bound_call *c) {
    const struct template_string *parts[2] = {value_text(r, c->args[0]), value_text(r, c->args[1])};
    bool all = c->args[2].kind == VALUE_ABSENT || c->args[2].kind == VALUE_NONE;
    return value_string(string_replace(r, self_text(r, c), parts, all ? -1 : argument_int(r, c, 2, -1)));
}

static struct value filter_string(struct template_run *r, const struct bound_call *c) {
    return value_string(value_text(r, c->self));
}

static struct value filter_length(struct template_run *r, const struct bound_call *c) {
    return value_int(value_length(r, c->self));
}

static struct value filter_safe(struct template_run *r, const struct bound_call *c) {
    return value_string(string_safe(r->m, value_text(r, c->self)));
}

static struct value filter_escape(struct template_run *r, const struct bound_call *c) {
    return value_string(string_escape(r->m, value_text(r, c->self)));
}

static struct value filter_tojson(struct template_run *r, const struct bound_call *c) {
    struct json_layout layout = {.ascii = argument_bool(r, c, 0, false),
                                 .indent = c->args[1],
                                 .separators = c->args[2],
                                 .sort = argument_bool(r, c, 3, false)};
    return value_string(value_json(r, c->self, &layout));
}

static bool splits_lines(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Jinja's indent: lines behind the first begin with the indentation, unless they are blank. */
static struct value filter_indent(struct template_run *r, const struct bound_call *c) {
    const struct template_string *s = self_text(r, c), *by;
    struct text_builder b = {.m = r->m};
    bool first = argument_bool(r, c, 1, false), blank = argument_bool(r, c, 2, false);
    run_need_defined(r, c->self);
    if (c->self.kind != VALUE_STRING) run_fail(r, "indent needs a str, not %s", value_type(c->self));
    if (c->args[0].kind == VALUE_STRING) {
        by = c->args[0].string;
    } else {
        int64_t n = argument_int(r, c, 0, 4);
        if (n > 1000) run_refuse(r, "an indentation of %lld", (long long)n);
        char blanks[1000];
        memset(blanks, ' ', sizeof blanks);
        by = string_of(r->m, blanks, n < 0 ? 0 : (size_t)n, false);
    }
    bool starts = first && s->size > 0;
    if (first && s->size == 0) builder_add(&b, by);
    if (starts) builder_add(&b, by);
    bool fresh = false, some = false;
    for (size_t at = 0, n; at < s->size; at += n) {
        int32_t character;
        n = (size_t)utf8_read(s->text + at, s->size - at, &character);
        bool ends = splits_lines(character);
        if (fresh && (!ends || blank)) builder_add(&b, by);
        fresh = ends;
        some = true;
        if (character == '\r' && at + 1 < s->size && s->text[at + 1] == '\n') at++;
        if (ends)
            builder_character(&b, '\n', s, at);
        else
            builder_part(&b, s, at, at + n);
    }
    if (fresh && some && blank) builder_add(&b, by);
    return value_string(builder_string(&b));
}

static struct value filter_wordcount(struct template_run *r, const struct bound_call *c) {
    run_refuse(r, "the filter wordcount of a %s", value_type(c->self));
}

static struct value filter_format(struct template_run *r, const struct bound_call *c) {
    struct value a = value_list(r, LIST_TUPLE);
    if (c->all->n_keywords > 0 && c->all->n > 0)
        run_fail(r, "can't handle positional and keyword arguments at the same time");
    if (c->all->n_keywords > 0) {
        a = value_dict(r);
        for (int i = 0; i < c->all->n_keywords; i++)
            dict_set(r, a.dict, c->all->keywords[i].key, c->all->keywords[i].value);
    }
    for (int i = 0; i < c->all->n; i++) list_append(r, a, c->all->items[i]);
    return value_string(format_percent(r, self_text(r, c), a));
}

static bool text_number(const struct template_string *s, char text[64]) {
    struct template_string all = *s;
    if (all.size == 0 || all.size > 60 || memchr(all.text, '\0', all.size)) return false;
    memcpy(text, all.text, all.size);
    text[all.size] = '\0';
    return true;
}

static bool parse_int(struct template_run *r, const struct template_string *s, int base, int64_t *out) {
    char text[64], *end;
    if (!text_number(string_strip(r->m, s, NULL, true, true), text)) return false;
    for (char *at = text; *at; at++)
        if ((unsigned char)*at >= 0x80 || *at == '_') run_refuse(r, "a number written with other than ASCII digits");
    *out = strtoll(text, &end, base);
    if (end == text || text[0] == ' ') return false;
    if (*out == INT64_MAX || *out == INT64_MIN) run_refuse(r, "a number beyond 64 bits");
    return *end == '\0';
}

static bool parse_float(struct template_run *r, const struct template_string *s, double *out) {
    char text[64], *end;
    if (!text_number(string_strip(r->m, s, NULL, true, true), text)) return false;
    if (strpbrk(text, "xX_ ")) return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static struct value real_truncate(struct template_run *r, double v) {
    if (!(fabs(v) < 9e18)) run_refuse(r, "a number beyond 64 bits");
    return value_int((int64_t)v);
}

static struct value filter_int(struct template_run *r, const struct bound_call *c) {
    int64_t base = argument_int(r, c, 1, 10), v;
    struct value fallback = c->args[0].kind == VALUE_ABSENT ? value_int(0) : c->args[0];
    double real;
    run_need_defined(r, c->self);
    switch (c->self.kind) {
        case VALUE_INT:
        case VALUE_BOOL: return value_int(value_index(c->self));
        case VALUE_FLOAT: return isfinite(c->self.real) ? real_truncate(r, c->self.real) : fallback;
        case VALUE_STRING:
            if (base != 10) run_refuse(r, "the filter int with a base");
            if (parse_int(r, c->self.string, 10, &v)) return value_int(v);
            return parse_float(r, c->self.string, &real) && isfinite(real) ? real_truncate(r, real) : fallback;
        default: return fallback;
    }
}

static struct value filter_float(struct template_run *r, const struct bound_call *c) {
    struct value fallback = c->args[0].kind == VALUE_ABSENT ? value_float(0) : c->args[0];
    double v;
    run_need_defined(r, c->self);
    if (value_is_number(c->self)) return value_float(value_real(c->self));
    if (c->self.kind == VALUE_STRING && parse_float(r, c->self.string, &v)) return value_float(v);
    return fallback;
}

static struct value filter_abs(struct template_run *r, const struct bound_call *c) {
    run_need_defined(r, c->self);
    if (!value_is_number(c->self)) run_fail(r, "bad operand type for abs(): '%s'", value_type(c->self));
    if (c->self.kind == VALUE_FLOAT) return value_float(fabs(c->self.real));
    return value_index(c->self) < 0 ? operator_unary(r, OPERATOR_SUB, c->self) : value_int(value_index(c->self));
}

static struct value filter_round(struct template_run *r, const struct bound_call *c) {
    int64_t precision = argument_int(r, c, 0, 0);
    const struct template_string *method = argument_text(r, c, 1);
    char text[400];
    run_need_defined(r, c->self);
    if (!value_is_number(c->self)) run_fail(r, "type %s doesn't define __round__ method", value_type(c->self));
    if (precision < 0 || precision > 20)
        run_refuse(r, "the filter round with a precision of %lld", (long long)precision);
    double v = value_real(c->self), scale = pow(10, (double)precision);
    if (method && string_is(method, "ceil")) return value_float(ceil(v * scale) / scale);
    if (method && string_is(method, "floor")) return value_float(floor(v * scale) / scale);
    if (method && !string_is(method, "common")) run_fail(r, "method must be common, ceil or floor");
    if (c->self.kind != VALUE_FLOAT) return value_int(value_index(c->self));
    snprintf(text, sizeof text, "%.*f", (int)precision, v); /* rounds halves to even, as Python does */
    return value_float(strtod(text, NULL));
}

/* is given: an undefined value, or one that is false where the argument boolean says so. */
static struct value filter_default(struct template_run *r, const struct bound_call *c) {
    bool absent = c->self.kind == VALUE_UNDEFINED || (argument_bool(r, c, 1, false) && !value_truth(r, c->self));
    if (!absent) return c->self;
    return c->args[0].kind == VALUE_ABSENT ? value_words(r, "") : c->args[0];
}

static const struct call_row rows[] = {
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"string", filter_string, "", 0},
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"safe", filter_safe, "", 0},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"format", filter_format, "*", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
};
const struct call_table text_filters = {rows, ARRAY_COUNT(rows)};
