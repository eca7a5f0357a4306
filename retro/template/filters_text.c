/* retro/template/filters_text.c: filters whose value is a text or a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* The value as Jinja's soft_str reads it. */
static const struct template_string *self_text(struct template_run *run,
                                               const struct bound_call *call) {
    const struct template_string *template_string = value_text(run, call->self);
    if (template_string->safe)
        run_refuse(run, "the filter %s of a text marked as safe", call->row->name);
    return template_string;
}

static struct value filter_trim(struct template_run *run, const struct bound_call *call) {
    return value_string(
        string_strip(run->m, self_text(run, call), argument_text(run, call, 0), true, true));
}

static struct value filter_upper(struct template_run *run, const struct bound_call *call) {
    return value_string(string_case(run, self_text(run, call), CASE_UPPER));
}

static struct value filter_lower(struct template_run *run, const struct bound_call *call) {
    return value_string(string_case(run, self_text(run, call), CASE_LOWER));
}

static struct value filter_capitalize(struct template_run *run, const struct bound_call *call) {
    return value_string(string_case(run, self_text(run, call), CASE_CAPITAL));
}

/* Jinja's title: words end at white space, hyphens and opening brackets. */
static struct value filter_title(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(run, call);
    struct text_builder builder = {.m = run->m};
    for (size_t at = 0; at < string->size;) {
        size_t end = at;
        while (end < string->size) {
            int32_t character;
            size_t n = (size_t)utf8_read(string->text + end, string->size - end, &character);
            if (python_is_space(character) ||
                (character > 0 && character < 0x80 && strchr("-({[<", character)))
                break;
            end += n;
        }
        size_t first =
            end > at ? at + (size_t)utf8_length(string->text + at, string->size - at) : at;
        builder_add(&builder, string_case(run, string_part(run->m, string, at, first), CASE_UPPER));
        builder_add(&builder,
                    string_case(run, string_part(run->m, string, first, end), CASE_LOWER));
        if (end < string->size) {
            size_t n = (size_t)utf8_length(string->text + end, string->size - end);
            builder_part(&builder, string, end, end + n);
            end += n;
        }
        at = end;
    }
    return value_string(builder_string(&builder));
}

static struct value filter_replace(struct template_run *run, const struct bound_call *call) {
    const struct template_string *parts[2] = {value_text(run, call->args[0]),
                                              value_text(run, call->args[1])};
    bool all = call->args[2].kind == VALUE_ABSENT || call->args[2].kind == VALUE_NONE;
    return value_string(string_replace(run, self_text(run, call), parts,
                                       all ? -1 : argument_int(run, call, 2, -1)));
}

static struct value filter_string(struct template_run *run, const struct bound_call *call) {
    return value_string(value_text(run, call->self));
}

static struct value filter_length(struct template_run *run, const struct bound_call *call) {
    return value_int(value_length(run, call->self));
}

static struct value filter_safe(struct template_run *run, const struct bound_call *call) {
    return value_string(string_safe(run->m, value_text(run, call->self)));
}

static struct value filter_escape(struct template_run *run, const struct bound_call *call) {
    return value_string(string_escape(run->m, value_text(run, call->self)));
}

static struct value filter_tojson(struct template_run *run, const struct bound_call *call) {
    struct json_layout layout = {.ascii = argument_bool(run, call, 0, false),
                                 .indent = call->args[1],
                                 .separators = call->args[2],
                                 .sort = argument_bool(run, call, 3, false)};
    return value_string(value_json(run, call->self, &layout));
}

static bool splits_lines(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

/* Jinja's indent: lines behind the first begin with the indentation, unless they are blank. */
static struct value filter_indent(struct template_run *run, const struct bound_call *call) {
    const struct template_string *string = self_text(run, call), *by;
    struct text_builder builder = {.m = run->m};
    bool first = argument_bool(run, call, 1, false), blank = argument_bool(run, call, 2, false);
    run_need_defined(run, call->self);
    if (call->self.kind != VALUE_STRING)
        run_fail(run, "indent needs a str, not %s", value_type(call->self));
    if (call->args[0].kind == VALUE_STRING) {
        by = call->args[0].string;
    } else {
        int64_t n = argument_int(run, call, 0, 4);
        if (n > 1000) run_refuse(run, "an indentation of %lld", (long long)n);
        char blanks[1000];
        memset(blanks, ' ', sizeof blanks);
        by = string_of(run->m, blanks, n < 0 ? 0 : (size_t)n, false);
    }
    bool starts = first && string->size > 0;
    if (first && string->size == 0) builder_add(&builder, by);
    if (starts) builder_add(&builder, by);
    bool fresh = false, some = false;
    for (size_t at = 0, n; at < string->size; at += n) {
        int32_t character;
        n = (size_t)utf8_read(string->text + at, string->size - at, &character);
        bool ends = splits_lines(character);
        if (fresh && (!ends || blank)) builder_add(&builder, by);
        fresh = ends;
        some = true;
        if (character == '\r' && at + 1 < string->size && string->text[at + 1] == '\n') at++;
        if (ends)
            builder_character(&builder, '\n', string, at);
        else
            builder_part(&builder, string, at, at + n);
    }
    if (fresh && some && blank) builder_add(&builder, by);
    return value_string(builder_string(&builder));
}

static struct value filter_wordcount(struct template_run *run, const struct bound_call *call) {
    run_refuse(run, "the filter wordcount of a %s", value_type(call->self));
}

static struct value filter_format(struct template_run *run, const struct bound_call *call) {
    struct value value = value_list(run, LIST_TUPLE);
    if (call->all->n_keywords > 0 && call->all->n > 0)
        run_fail(run, "can't handle positional and keyword arguments at the same time");
    if (call->all->n_keywords > 0) {
        value = value_dict(run);
        for (int i = 0; i < call->all->n_keywords; i++)
            dict_set(run, value.dict, call->all->keywords[i].key, call->all->keywords[i].value);
    }
    for (int i = 0; i < call->all->n; i++) list_append(run, value, call->all->items[i]);
    return value_string(format_percent(run, self_text(run, call), value));
}

static bool text_number(const struct template_string *string, char text[64]) {
    struct template_string all = *string;
    if (all.size == 0 || all.size > 60 || memchr(all.text, '\0', all.size)) return false;
    memcpy(text, all.text, all.size);
    text[all.size] = '\0';
    return true;
}

static bool parse_int(struct template_run *run, const struct template_string *string, int base,
                      int64_t *out) {
    char text[64], *end;
    if (!text_number(string_strip(run->m, string, NULL, true, true), text)) return false;
    for (char *at = text; *at; at++)
        if ((unsigned char)*at >= 0x80 || *at == '_')
            run_refuse(run, "a number written with other than ASCII digits");
    *out = strtoll(text, &end, base);
    if (end == text || text[0] == ' ') return false;
    if (*out == INT64_MAX || *out == INT64_MIN) run_refuse(run, "a number beyond 64 bits");
    return *end == '\0';
}

static bool parse_float(struct template_run *run, const struct template_string *string,
                        double *out) {
    char text[64], *end;
    if (!text_number(string_strip(run->m, string, NULL, true, true), text)) return false;
    if (strpbrk(text, "xX_ ")) return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static struct value real_truncate(struct template_run *run, double v) {
    if (!(fabs(v) < 9e18)) run_refuse(run, "a number beyond 64 bits");
    return value_int((int64_t)v);
}

static struct value filter_int(struct template_run *run, const struct bound_call *call) {
    int64_t base = argument_int(run, call, 1, 10), v;
    struct value fallback = call->args[0].kind == VALUE_ABSENT ? value_int(0) : call->args[0];
    double real;
    run_need_defined(run, call->self);
    switch (call->self.kind) {
        case VALUE_INT:
        case VALUE_BOOL: return value_int(value_index(call->self));
        case VALUE_FLOAT:
            return isfinite(call->self.real) ? real_truncate(run, call->self.real) : fallback;
        case VALUE_STRING:
            if (base != 10) run_refuse(run, "the filter int with a base");
            if (parse_int(run, call->self.string, 10, &v)) return value_int(v);
            return parse_float(run, call->self.string, &real) && isfinite(real)
                       ? real_truncate(run, real)
                       : fallback;
        default: return fallback;
    }
}

static struct value filter_float(struct template_run *run, const struct bound_call *call) {
    struct value fallback = call->args[0].kind == VALUE_ABSENT ? value_float(0) : call->args[0];
    double v;
    run_need_defined(run, call->self);
    if (value_is_number(call->self)) return value_float(value_real(call->self));
    if (call->self.kind == VALUE_STRING && parse_float(run, call->self.string, &v))
        return value_float(v);
    return fallback;
}

static struct value filter_abs(struct template_run *run, const struct bound_call *call) {
    run_need_defined(run, call->self);
    if (!value_is_number(call->self))
        run_fail(run, "bad operand type for abs(): '%s'", value_type(call->self));
    if (call->self.kind == VALUE_FLOAT) return value_float(fabs(call->self.real));
    return value_index(call->self) < 0 ? operator_unary(run, OPERATOR_SUB, call->self)
                                       : value_int(value_index(call->self));
}

static struct value filter_round(struct template_run *run, const struct bound_call *call) {
    int64_t precision = argument_int(run, call, 0, 0);
    const struct template_string *method = argument_text(run, call, 1);
    char text[400];
    run_need_defined(run, call->self);
    if (!value_is_number(call->self))
        run_fail(run, "type %s doesn't define __round__ method", value_type(call->self));
    if (precision < 0 || precision > 20)
        run_refuse(run, "the filter round with a precision of %lld", (long long)precision);
    double v = value_real(call->self), scale = pow(10, (double)precision);
    if (method && string_is(method, "ceil")) return value_float(ceil(v * scale) / scale);
    if (method && string_is(method, "floor")) return value_float(floor(v * scale) / scale);
    if (method && !string_is(method, "common"))
        run_fail(run, "method must be common, ceil or floor");
    if (call->self.kind != VALUE_FLOAT) return value_int(value_index(call->self));
    snprintf(text, sizeof text, "%.*f", (int)precision,
             v); /* rounds halves to even, as Python does */
    return value_float(strtod(text, NULL));
}

/* is given: an undefined value, or one that is false where the argument boolean says so. */
static struct value filter_default(struct template_run *run, const struct bound_call *call) {
    bool absent = call->self.kind == VALUE_UNDEFINED ||
                  (argument_bool(run, call, 1, false) && !value_truth(run, call->self));
    if (!absent) return call->self;
    return call->args[0].kind == VALUE_ABSENT ? value_words(run, "") : call->args[0];
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
