/* retro/template/format.c: "..." % values and "...".format(values), as far as templates go: signs,
 * widths, precisions of texts and numbers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

enum { MAX_WIDTH = 10000 };

/* How one value is written. */
struct format_field {
    char fill[5]; /* a character */
    char align;   /* < > ^ =, or 0 */
    char sign;    /* + - blank, or 0 */
    bool alternate, zero, comma;
    int width, precision; /* -1: not given */
    char type;            /* 0: not given */
};

static void field_pad(struct template_run *run, struct text_builder *out,
                      const struct template_string *string, const struct format_field *field,
                      bool number) {
    int64_t missing = field->width - string_length(string), left = 0;
    char align = field->align ? field->align : number ? '>' : '<';
    size_t sign = number && string->size > 0 && strchr("+- ", string->text[0]) ? 1 : 0;
    run_step(run, missing > 0 ? missing : 0);
    if (align == '>' || align == '=') left = missing;
    if (align == '^') left = missing / 2;
    if (align == '=') builder_part(out, string, 0, sign);
    for (int64_t i = 0; i < left; i++) builder_words(out, field->fill);
    builder_part(out, string, align == '=' ? sign : 0, string->size);
    for (int64_t i = left; i < missing; i++) builder_words(out, field->fill);
}

static void group_digits(struct text_builder *out, const char *digits) {
    size_t n = strspn(digits, "0123456789");
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) builder_words(out, ",");
        builder_bytes(out, digits + i, NULL, 1);
    }
    builder_words(out, digits + n);
}

static void write_sign(struct text_builder *out, bool negative, const struct format_field *field) {
    if (negative)
        builder_words(out, "-");
    else if (field->sign == '+' || field->sign == ' ')
        builder_words(out, field->sign == '+' ? "+" : " ");
}

static void write_int(struct template_run *run, struct text_builder *out, int64_t v,
                      const struct format_field *field) {
    char digits[80];
    uint64_t magnitude = v < 0 ? -(uint64_t)v : (uint64_t)v;
    const char *form = field->type == 'x'   ? "%llx"
                       : field->type == 'X' ? "%llX"
                       : field->type == 'o' ? "%llo"
                                            : "%llu";
    struct text_builder text = {.m = run->m};
    struct format_field how = *field;
    snprintf(digits, sizeof digits, form, (unsigned long long)magnitude);
    write_sign(&text, v < 0, field);
    if (field->alternate) run_refuse(run, "# in a format");
    for (int i = (int)strlen(digits); i < field->precision; i++) builder_words(&text, "0");
    if (field->comma)
        group_digits(&text, digits);
    else
        builder_words(&text, digits);
    if (field->zero && !field->align) {
        how.align = '=';
        strcpy(how.fill, "0");
    }
    field_pad(run, out, builder_string(&text), &how, true);
}

static void write_float(struct template_run *run, struct text_builder *out, double v,
                        const struct format_field *field) {
    char digits[400], form[8] = "%.*f";
    struct text_builder text = {.m = run->m};
    struct format_field how = *field;
    char type = field->type == '%' ? 'f' : field->type;
    if (field->alternate || field->precision > 50) run_refuse(run, "this form of a number");
    form[3] = type;
    snprintf(digits, sizeof digits, form, field->precision < 0 ? 6 : field->precision,
             fabs(field->type == '%' ? v * 100 : v));
    write_sign(&text, signbit(v) && !isnan(v), field);
    if (field->comma)
        group_digits(&text, digits);
    else
        builder_words(&text, digits);
    if (field->type == '%') builder_words(&text, "%");
    if (field->zero && !field->align && isfinite(v)) {
        how.align = '=';
        strcpy(how.fill, "0");
    }
    field_pad(run, out, builder_string(&text), &how, true);
}

static void write_text(struct template_run *run, struct text_builder *out,
                       const struct template_string *string, const struct format_field *field) {
    size_t end = field->precision < 0 ? string->size : string_offset(string, field->precision);
    field_pad(run, out, string_part(run->m, string, 0, end), field, false);
}

static const struct template_string *repr_of(struct template_run *run, struct value value) {
    struct text_builder builder = {.m = run->m};
    value_repr(run, &builder, value);
    return builder_string(&builder);
}

/* % */

struct percent {
    struct template_run *r;
    const char *at, *end;
    struct value arguments;
    int used;
};

static struct value next_argument(struct percent *percent) {
    bool tuple =
        percent->arguments.kind == VALUE_LIST && percent->arguments.list->type == LIST_TUPLE;
    int at = percent->used, n = tuple ? percent->arguments.list->n : 1;
    if (at >= n) run_fail(percent->r, "not enough arguments for format string");
    percent->used++;
    return tuple ? percent->arguments.list->items[at] : percent->arguments;
}

static struct value named_argument(struct percent *percent) {
    const char *close = memchr(percent->at, ')', (size_t)(percent->end - percent->at));
    if (close == NULL) run_fail(percent->r, "incomplete format key");
    if (percent->arguments.kind != VALUE_DICT) run_fail(percent->r, "format requires a mapping");
    struct value key =
        value_string(string_of(percent->r->m, percent->at, (size_t)(close - percent->at), false));
    struct value *there = dict_find(percent->r, percent->arguments.dict, key);
    if (there == NULL) run_fail(percent->r, "the format names the key %s", key.string->text);
    percent->at = close + 1;
    return *there;
}

static int read_count(struct percent *percent) {
    int n = 0;
    if (percent->at < percent->end && *percent->at == '*') run_refuse(percent->r, "* in a format");
    if (percent->at == percent->end || *percent->at < '0' || *percent->at > '9') return -1;
    for (; percent->at < percent->end && *percent->at >= '0' && *percent->at <= '9';
         percent->at++) {
        n = n * 10 + *percent->at - '0';
        if (n > MAX_WIDTH) run_refuse(percent->r, "a format's width beyond %d", MAX_WIDTH);
    }
    return n;
}

static void read_flags(struct percent *percent, struct format_field *field) {
    for (; percent->at < percent->end && *percent->at && strchr("-+ #0", *percent->at);
         percent->at++) {
        if (*percent->at == '-')
            field->align = '<';
        else if (*percent->at == '#')
            field->alternate = true;
        else if (*percent->at == '0')
            field->zero = true;
        else if (field->sign != '+')
            field->sign = *percent->at;
    }
}

static void write_percent(struct percent *percent, struct text_builder *out, struct value value,
                          const struct format_field *field) {
    if (strchr("diuxXo", field->type)) {
        if (!value_is_number(value) || (value.kind == VALUE_FLOAT && strchr("xXo", field->type)))
            run_fail(percent->r, "%%%c format: a real number is required, not %s", field->type,
                     value_type(value));
        if (value.kind == VALUE_FLOAT && !(fabs(value.real) < 9e18))
            run_refuse(percent->r, "a number beyond 64 bits");
        write_int(percent->r, out,
                  value.kind == VALUE_FLOAT ? (int64_t)value.real : value_index(value), field);
    } else if (strchr("feEgGF", field->type)) {
        if (!value_is_number(value))
            run_fail(percent->r, "must be real number, not %s", value_type(value));
        write_float(percent->r, out, value_real(value), field);
    } else if (field->type == 's' || field->type == 'r') {
        struct format_field how = *field;
        if (!how.align) how.align = '>';
        write_text(percent->r, out,
                   field->type == 's' ? value_text(percent->r, value) : repr_of(percent->r, value),
                   &how);
    } else {
        run_refuse(percent->r, "%%%c in a format", field->type);
    }
}

const struct template_string *format_percent(struct template_run *run,
                                             const struct template_string *format,
                                             struct value arguments) {
    struct text_builder out = {.m = run->m};
    struct percent percent = {run, format->text, format->text + format->size, arguments, 0};
    bool named_any = false;
    if (format->safe) run_refuse(run, "%% with a text marked as safe");
    while (percent.at < percent.end) {
        if (*percent.at != '%') {
            size_t at = (size_t)(percent.at - format->text);
            builder_part(&out, format, at, at + 1);
            percent.at++;
            continue;
        }
        struct format_field field = {.fill = " ", .precision = -1};
        bool named = ++percent.at < percent.end && *percent.at == '(';
        struct value value = {.kind = VALUE_ABSENT};
        if (named) {
            percent.at++;
            value = named_argument(&percent);
            named_any = true;
        }
        read_flags(&percent, &field);
        field.width = read_count(&percent);
        if (percent.at < percent.end && *percent.at == '.') {
            percent.at++;
            field.precision = max_int(read_count(&percent), 0);
        }
        if (percent.at == percent.end) run_fail(run, "incomplete format");
        field.type = *percent.at++;
        if (field.type == '%')
            builder_words(&out, "%");
        else
            write_percent(&percent, &out, named ? value : next_argument(&percent), &field);
    }
    bool tuple = arguments.kind == VALUE_LIST && arguments.list->type == LIST_TUPLE;
    bool mapping =
        arguments.kind == VALUE_DICT || (arguments.kind == VALUE_LIST && !tuple) || named_any;
    if (tuple ? percent.used < arguments.list->n : percent.used == 0 && !mapping)
        run_fail(run, "not all arguments converted during string formatting");
    return builder_string(&out);
}

/* {} */

struct braces {
    struct template_run *r;
    const struct template_string *format;
    const struct call_arguments *arguments;
    int next; /* of {}; -1 once a number was given */
};

static struct value argument_at(const struct braces *braces, int64_t i) {
    if (i < braces->arguments->n) return braces->arguments->items[i];
    run_fail(braces->r, "Replacement index %lld out of range for positional args tuple",
             (long long)i);
}

static struct value argument_named(const struct braces *braces,
                                   const struct template_string *name) {
    for (int i = 0; i < braces->arguments->n_keywords; i++)
        if (string_equal(braces->arguments->keywords[i].key.string, name))
            return braces->arguments->keywords[i].value;
    run_fail(braces->r, "the format names the argument %.*s", (int)name->size, name->text);
}

static int digits_of(const struct template_string *string) {
    int n = 0;
    for (size_t i = 0; i < string->size; i++) {
        if (string->text[i] < '0' || string->text[i] > '9' || n > 1000) return -1;
        n = n * 10 + string->text[i] - '0';
    }
    return string->size > 0 ? n : -1;
}

static struct value braces_value(struct braces *braces, const struct template_string *name) {
    if (memchr(name->text, '.', name->size) || memchr(name->text, '[', name->size))
        run_refuse(braces->r, "an attribute or an index in a format");
    if (name->size == 0) return argument_at(braces, braces->next++);
    int number = digits_of(name);
    return number >= 0 ? argument_at(braces, number) : argument_named(braces, name);
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static struct format_field read_spec(struct template_run *run, const struct template_string *spec) {
    struct format_field field = {.fill = " ", .width = -1, .precision = -1};
    struct percent percent = {.r = run, .at = spec->text, .end = spec->text + spec->size};
    size_t first = spec->size > 0 ? (size_t)utf8_length(spec->text, spec->size) : 0;
    if (memchr(spec->text, '{', spec->size)) run_refuse(run, "{} inside a format's {}");
    if (first > 0 && first < spec->size && is_align(spec->text[first])) {
        memcpy(field.fill, spec->text, first);
        field.fill[first] = '\0';
        field.align = spec->text[first];
        percent.at += first + 1;
    } else if (first > 0 && is_align(spec->text[0])) {
        field.align = *percent.at++;
    }
    if (percent.at < percent.end && *percent.at && strchr("+- ", *percent.at))
        field.sign = *percent.at++;
    if (percent.at < percent.end && *percent.at == '#') run_refuse(run, "# in a format");
    if (percent.at < percent.end && *percent.at == '0') {
        field.zero = true;
        percent.at++;
    }
    field.width = read_count(&percent);
    if (percent.at < percent.end && *percent.at == ',') {
        field.comma = true;
        percent.at++;
    }
    if (percent.at < percent.end && *percent.at == '.') {
        percent.at++;
        field.precision = read_count(&percent);
    }
    if (percent.at < percent.end) field.type = *percent.at++;
    if (percent.at != percent.end) run_refuse(run, "the format %.*s", (int)spec->size, spec->text);
    return field;
}

static void write_braces(struct template_run *run, struct text_builder *out, struct value value,
                         const struct template_string *spec) {
    struct format_field field = read_spec(run, spec);
    if (spec->size == 0) {
        value_write(run, out, value);
    } else if (value.kind == VALUE_STRING && (field.type == 's' || field.type == 0) &&
               !field.zero && !field.comma && !field.sign) {
        write_text(run, out, value.string, &field);
    } else if (value.kind == VALUE_INT && field.type && strchr("dxXo", field.type) &&
               field.precision < 0) {
        write_int(run, out, value.number, &field);
    } else if (value.kind == VALUE_INT && field.type == 0 && field.precision < 0) {
        write_int(run, out, value.number, &field);
    } else if (value_is_number(value) && value.kind != VALUE_BOOL && field.type &&
               strchr("feEgGF%", field.type)) {
        write_float(run, out, value_real(value), &field);
    } else {
        run_refuse(run, "the format %.*s of a %s", (int)spec->size, spec->text, value_type(value));
    }
}

/* One {...} whose inside is [from, to). */
static void write_field(struct braces *braces, struct text_builder *out, size_t from, size_t to) {
    const struct template_string *string = braces->format;
    size_t name_end = from, spec = to;
    while (name_end < to && string->text[name_end] != ':' && string->text[name_end] != '!')
        name_end++;
    struct value value = braces_value(braces, string_part(braces->r->m, string, from, name_end));
    if (name_end < to && string->text[name_end] == '!') {
        char how = name_end + 1 < to ? string->text[name_end + 1] : '\0';
        if (how != 'r' && how != 's') run_refuse(braces->r, "!%c in a format", how);
        value = value_string(how == 'r' ? repr_of(braces->r, value) : value_text(braces->r, value));
        name_end += 2;
    }
    if (name_end < to && string->text[name_end] == ':')
        spec = name_end + 1;
    else if (name_end < to)
        run_fail(braces->r, "expected ':' after conversion specifier");
    write_braces(braces->r, out, value, string_part(braces->r->m, string, spec, to));
}

const struct template_string *format_braces(struct template_run *run,
                                            const struct template_string *format,
                                            const struct call_arguments *arguments) {
    struct text_builder out = {.m = run->m};
    struct braces braces = {run, format, arguments, 0};
    const char *text = format->text;
    for (size_t at = 0; at < format->size; at++) {
        char c = text[at];
        bool twice = at + 1 < format->size && text[at + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            at++;
        } else if (c == '}') {
            run_fail(run, "Single '}' encountered in format string");
        } else if (c == '{') {
            const char *close = memchr(text + at, '}', format->size - at);
            if (close == NULL) run_fail(run, "Single '{' encountered in format string");
            write_field(&braces, &out, at + 1, (size_t)(close - text));
            at = (size_t)(close - text);
            continue;
        }
        builder_part(&out, format, at, at + 1);
    }
    return builder_string(&out);
}
