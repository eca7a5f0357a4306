/* retro/template/format.c: "..." % values and "...".format(values), as far as templates go: signs, widths,
 * precisions of texts and numbers. */
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

static void field_pad(struct template_run *r, struct text_builder *out, const struct template_string *s,
                      const struct format_field *f, bool number) {
    int64_t missing = f->width - string_length(s), left = 0;
    char align = f->align ? f->align : number ? '>' : '<';
    size_t sign = number && s->size > 0 && strchr("+- ", s->text[0]) ? 1 : 0;
    run_step(r, missing > 0 ? missing : 0);
    if (align == '>' || align == '=') left = missing;
    if (align == '^') left = missing / 2;
    if (align == '=') builder_part(out, s, 0, sign);
    for (int64_t i = 0; i < left; i++) builder_words(out, f->fill);
    builder_part(out, s, align == '=' ? sign : 0, s->size);
    for (int64_t i = left; i < missing; i++) builder_words(out, f->fill);
}

static void group_digits(struct text_builder *out, const char *digits) {
    size_t n = strspn(digits, "0123456789");
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) builder_words(out, ",");
        builder_bytes(out, digits + i, NULL, 1);
    }
    builder_words(out, digits + n);
}

static void write_sign(struct text_builder *out, bool negative, const struct format_field *f) {
    if (negative)
        builder_words(out, "-");
    else if (f->sign == '+' || f->sign == ' ')
        builder_words(out, f->sign == '+' ? "+" : " ");
}

static void write_int(struct template_run *r, struct text_builder *out, int64_t v, const struct format_field *f) {
    char digits[80];
    uint64_t magnitude = v < 0 ? -(uint64_t)v : (uint64_t)v;
    const char *form = f->type == 'x' ? "%llx" : f->type == 'X' ? "%llX" : f->type == 'o' ? "%llo" : "%llu";
    struct text_builder text = {.m = r->m};
    struct format_field how = *f;
    snprintf(digits, sizeof digits, form, (unsigned long long)magnitude);
    write_sign(&text, v < 0, f);
    if (f->alternate) run_refuse(r, "# in a format");
    for (int i = (int)strlen(digits); i < f->precision; i++) builder_words(&text, "0");
    if (f->comma)
        group_digits(&text, digits);
    else
        builder_words(&text, digits);
    if (f->zero && !f->align) {
        how.align = '=';
        strcpy(how.fill, "0");
    }
    field_pad(r, out, builder_string(&text), &how, true);
}

static void write_float(struct template_run *r, struct text_builder *out, double v, const struct format_field *f) {
    char digits[400], form[8] = "%.*f";
    struct text_builder text = {.m = r->m};
    struct format_field how = *f;
    char type = f->type == '%' ? 'f' : f->type;
    if (f->alternate || f->precision > 50) run_refuse(r, "this form of a number");
    form[3] = type;
    snprintf(digits, sizeof digits, form, f->precision < 0 ? 6 : f->precision, fabs(f->type == '%' ? v * 100 : v));
    write_sign(&text, signbit(v) && !isnan(v), f);
    if (f->comma)
        group_digits(&text, digits);
    else
        builder_words(&text, digits);
    if (f->type == '%') builder_words(&text, "%");
    if (f->zero && !f->align && isfinite(v)) {
        how.align = '=';
        strcpy(how.fill, "0");
    }
    field_pad(r, out, builder_string(&text), &how, true);
}

static void write_text(struct template_run *r, struct text_builder *out, const struct template_string *s,
                       const struct format_field *f) {
    size_t end = f->precision < 0 ? s->size : string_offset(s, f->precision);
    field_pad(r, out, string_part(r->m, s, 0, end), f, false);
}

static const struct template_string *repr_of(struct template_run *r, struct value v) {
    struct text_builder b = {.m = r->m};
    value_repr(r, &b, v);
    return builder_string(&b);
}

/* % */

struct percent {
    struct template_run *r;
    const char *at, *end;
    struct value arguments;
    int used;
};

static struct value next_argument(struct percent *p) {
    bool tuple = p->arguments.kind == VALUE_LIST && p->arguments.list->type == LIST_TUPLE;
    int at = p->used, n = tuple ? p->arguments.list->n : 1;
    if (at >= n) run_fail(p->r, "not enough arguments for format string");
    p->used++;
    return tuple ? p->arguments.list->items[at] : p->arguments;
}

static struct value named_argument(struct percent *p) {
    const char *close = memchr(p->at, ')', (size_t)(p->end - p->at));
    if (close == NULL) run_fail(p->r, "incomplete format key");
    if (p->arguments.kind != VALUE_DICT) run_fail(p->r, "format requires a mapping");
    struct value key = value_string(string_of(p->r->m, p->at, (size_t)(close - p->at), false));
    struct value *there = dict_find(p->r, p->arguments.dict, key);
    if (there == NULL) run_fail(p->r, "the format names the key %s", key.string->text);
    p->at = close + 1;
    return *there;
}

static int read_count(struct percent *p) {
    int n = 0;
    if (p->at < p->end && *p->at == '*') run_refuse(p->r, "* in a format");
    if (p->at == p->end || *p->at < '0' || *p->at > '9') return -1;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        n = n * 10 + *p->at - '0';
        if (n > MAX_WIDTH) run_refuse(p->r, "a format's width beyond %d", MAX_WIDTH);
    }
    return n;
}

static void read_flags(struct percent *p, struct format_field *f) {
    for (; p->at < p->end && *p->at && strchr("-+ #0", *p->at); p->at++) {
        if (*p->at == '-')
            f->align = '<';
        else if (*p->at == '#')
            f->alternate = true;
        else if (*p->at == '0')
            f->zero = true;
        else if (f->sign != '+')
            f->sign = *p->at;
    }
}

static void write_percent(struct percent *p, struct text_builder *out, struct value v, const struct format_field *f) {
    if (strchr("diuxXo", f->type)) {
        if (!value_is_number(v) || (v.kind == VALUE_FLOAT && strchr("xXo", f->type)))
            run_fail(p->r, "%%%c format: a real number is required, not %s", f->type, value_type(v));
        if (v.kind == VALUE_FLOAT && !(fabs(v.real) < 9e18)) run_refuse(p->r, "a number beyond 64 bits");
        write_int(p->r, out, v.kind == VALUE_FLOAT ? (int64_t)v.real : value_index(v), f);
    } else if (strchr("feEgGF", f->type)) {
        if (!value_is_number(v)) run_fail(p->r, "must be real number, not %s", value_type(v));
        write_float(p->r, out, value_real(v), f);
    } else if (f->type == 's' || f->type == 'r') {
        struct format_field how = *f;
        if (!how.align) how.align = '>';
        write_text(p->r, out, f->type == 's' ? value_text(p->r, v) : repr_of(p->r, v), &how);
    } else {
        run_refuse(p->r, "%%%c in a format", f->type);
    }
}

const struct template_string *format_percent(struct template_run *r, const struct template_string *format,
                                             struct value arguments) {
    struct text_builder out = {.m = r->m};
    struct percent p = {r, format->text, format->text + format->size, arguments, 0};
    bool named_any = false;
    if (format->safe) run_refuse(r, "%% with a text marked as safe");
    while (p.at < p.end) {
        if (*p.at != '%') {
            size_t at = (size_t)(p.at - format->text);
            builder_part(&out, format, at, at + 1);
            p.at++;
            continue;
        }
        struct format_field f = {.fill = " ", .precision = -1};
        bool named = ++p.at < p.end && *p.at == '(';
        struct value v = {.kind = VALUE_ABSENT};
        if (named) {
            p.at++;
            v = named_argument(&p);
            named_any = true;
        }
        read_flags(&p, &f);
        f.width = read_count(&p);
        if (p.at < p.end && *p.at == '.') {
            p.at++;
            f.precision = max_int(read_count(&p), 0);
        }
        if (p.at == p.end) run_fail(r, "incomplete format");
        f.type = *p.at++;
        if (f.type == '%')
            builder_words(&out, "%");
        else
            write_percent(&p, &out, named ? v : next_argument(&p), &f);
    }
    bool tuple = arguments.kind == VALUE_LIST && arguments.list->type == LIST_TUPLE;
    bool mapping = arguments.kind == VALUE_DICT || (arguments.kind == VALUE_LIST && !tuple) || named_any;
    if (tuple ? p.used < arguments.list->n : p.used == 0 && !mapping)
        run_fail(r, "not all arguments converted during string formatting");
    return builder_string(&out);
}

/* {} */

struct braces {
    struct template_run *r;
    const struct template_string *format;
    const struct call_arguments *arguments;
    int next; /* of {}; -1 once a number was given */
};

static struct value argument_at(const struct braces *b, int64_t i) {
    if (i < b->arguments->n) return b->arguments->items[i];
    run_fail(b->r, "Replacement index %lld out of range for positional args tuple", (long long)i);
}

static struct value argument_named(const struct braces *b, const struct template_string *name) {
    for (int i = 0; i < b->arguments->n_keywords; i++)
        if (string_equal(b->arguments->keywords[i].key.string, name)) return b->arguments->keywords[i].value;
    run_fail(b->r, "the format names the argument %.*s", (int)name->size, name->text);
}

static int digits_of(const struct template_string *s) {
    int n = 0;
    for (size_t i = 0; i < s->size; i++) {
        if (s->text[i] < '0' || s->text[i] > '9' || n > 1000) return -1;
        n = n * 10 + s->text[i] - '0';
    }
    return s->size > 0 ? n : -1;
}

static struct value braces_value(struct braces *b, const struct template_string *name) {
    if (memchr(name->text, '.', name->size) || memchr(name->text, '[', name->size))
        run_refuse(b->r, "an attribute or an index in a format");
    if (name->size == 0) return argument_at(b, b->next++);
    int number = digits_of(name);
    return number >= 0 ? argument_at(b, number) : argument_named(b, name);
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static struct format_field read_spec(struct template_run *r, const struct template_string *spec) {
    struct format_field f = {.fill = " ", .width = -1, .precision = -1};
    struct percent p = {.r = r, .at = spec->text, .end = spec->text + spec->size};
    size_t first = spec->size > 0 ? (size_t)utf8_length(spec->text, spec->size) : 0;
    if (memchr(spec->text, '{', spec->size)) run_refuse(r, "{} inside a format's {}");
    if (first > 0 && first < spec->size && is_align(spec->text[first])) {
        memcpy(f.fill, spec->text, first);
        f.fill[first] = '\0';
        f.align = spec->text[first];
        p.at += first + 1;
    } else if (first > 0 && is_align(spec->text[0])) {
        f.align = *p.at++;
    }
    if (p.at < p.end && *p.at && strchr("+- ", *p.at)) f.sign = *p.at++;
    if (p.at < p.end && *p.at == '#') run_refuse(r, "# in a format");
    if (p.at < p.end && *p.at == '0') {
        f.zero = true;
        p.at++;
    }
    f.width = read_count(&p);
    if (p.at < p.end && *p.at == ',') {
        f.comma = true;
        p.at++;
    }
    if (p.at < p.end && *p.at == '.') {
        p.at++;
        f.precision = read_count(&p);
    }
    if (p.at < p.end) f.type = *p.at++;
    if (p.at != p.end) run_refuse(r, "the format %.*s", (int)spec->size, spec->text);
    return f;
}

static void write_braces(struct template_run *r, struct text_builder *out, struct value v,
                         const struct template_string *spec) {
    struct format_field f = read_spec(r, spec);
    if (spec->size == 0) {
        value_write(r, out, v);
    } else if (v.kind == VALUE_STRING && (f.type == 's' || f.type == 0) && !f.zero && !f.comma && !f.sign) {
        write_text(r, out, v.string, &f);
    } else if (v.kind == VALUE_INT && f.type && strchr("dxXo", f.type) && f.precision < 0) {
        write_int(r, out, v.number, &f);
    } else if (v.kind == VALUE_INT && f.type == 0 && f.precision < 0) {
        write_int(r, out, v.number, &f);
    } else if (value_is_number(v) && v.kind != VALUE_BOOL && f.type && strchr("feEgGF%", f.type)) {
        write_float(r, out, value_real(v), &f);
    } else {
        run_refuse(r, "the format %.*s of a %s", (int)spec->size, spec->text, value_type(v));
    }
}

/* One {...} whose inside is [from, to). */
static void write_field(struct braces *b, struct text_builder *out, size_t from, size_t to) {
    const struct template_string *s = b->format;
    size_t name_end = from, spec = to;
    while (name_end < to && s->text[name_end] != ':' && s->text[name_end] != '!') name_end++;
    struct value v = braces_value(b, string_part(b->r->m, s, from, name_end));
    if (name_end < to && s->text[name_end] == '!') {
        char how = name_end + 1 < to ? s->text[name_end + 1] : '\0';
        if (how != 'r' && how != 's') run_refuse(b->r, "!%c in a format", how);
        v = value_string(how == 'r' ? repr_of(b->r, v) : value_text(b->r, v));
        name_end += 2;
    }
    if (name_end < to && s->text[name_end] == ':')
        spec = name_end + 1;
    else if (name_end < to)
        run_fail(b->r, "expected ':' after conversion specifier");
    write_braces(b->r, out, v, string_part(b->r->m, s, spec, to));
}

const struct template_string *format_braces(struct template_run *r, const struct template_string *format,
                                            const struct call_arguments *a) {
    struct text_builder out = {.m = r->m};
    struct braces b = {r, format, a, 0};
    const char *text = format->text;
    for (size_t at = 0; at < format->size; at++) {
        char c = text[at];
        bool twice = at + 1 < format->size && text[at + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            at++;
        } else if (c == '}') {
            run_fail(r, "Single '}' encountered in format string");
        } else if (c == '{') {
            const char *close = memchr(text + at, '}', format->size - at);
            if (close == NULL) run_fail(r, "Single '{' encountered in format string");
            write_field(&b, &out, at + 1, (size_t)(close - text));
            at = (size_t)(close - text);
            continue;
        }
        builder_part(&out, format, at, at + 1);
    }
    return builder_string(&out);
}
