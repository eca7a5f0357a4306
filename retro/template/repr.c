/* retro/template/repr.c: values as text, as Python's str and repr write them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/text/unicode.h"
#include "retro/template/template_private.h"

/* The fewest digits that read back as the same number; a power of ten from 1e16 and below 1e-4. */
void float_write(struct text_builder *b, double v) {
    char text[40];
    if (isnan(v) || isinf(v)) {
        builder_words(b, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    int digits = 1;
    do snprintf(text, sizeof text, "%.*e", digits - 1, v);
    while (strtod(text, NULL) != v && digits++ < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = digits - 1 - exponent;
        builder_printf(b, "%.*f", decimals > 0 ? decimals : 1, v);
        return;
    }
    *strchr(text, 'e') = '\0';
    builder_printf(b, "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
}

static void write_escape(struct text_builder *b, int32_t c) {
    if (c == '\n')
        builder_words(b, "\\n");
    else if (c == '\r')
        builder_words(b, "\\r");
    else if (c == '\t')
        builder_words(b, "\\t");
    else
        builder_printf(b, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void string_repr(struct text_builder *b, const struct template_string *s) {
    bool has_single = memchr(s->text, '\'', s->size) != NULL, has_double = memchr(s->text, '"', s->size) != NULL;
    const char *quote = has_single && !has_double ? "\"" : "'";
    builder_words(b, quote);
    for (size_t at = 0, n; at < s->size; at += n) {
        int32_t c;
        n = (size_t)utf8_read(s->text + at, s->size - at, &c);
        if (c == '\\' || c == *quote) builder_words(b, "\\");
        if (unicode_is_printable(c))
            builder_part(b, s, at, at + n);
        else
            write_escape(b, c);
    }
    builder_words(b, quote);
}

static void write_items(struct template_run *r, struct text_builder *b, const struct template_list *l) {
    for (int i = 0; i < l->n; i++) {
        if (i > 0) builder_words(b, ", ");
        value_repr(r, b, l->items[i]);
    }
}

static void list_repr(struct template_run *r, struct text_builder *b, const struct template_list *l) {
    switch (l->type) {
        case LIST_PLAIN:
            builder_words(b, "[");
            write_items(r, b, l);
            builder_words(b, "]");
            break;
        case LIST_TUPLE:
        case LIST_GROUP:
            builder_words(b, "(");
            write_items(r, b, l);
            builder_words(b, l->n == 1 ? ",)" : ")");
            break;
        case LIST_RANGE:
            builder_printf(b, "range(%lld, %lld", (long long)l->start, (long long)l->stop);
            if (l->stride != 1) builder_printf(b, ", %lld", (long long)l->stride);
            builder_words(b, ")");
            break;
        case LIST_GENERATOR: run_refuse(r, "the text of a generator: a filter like select gives one; add |list");
        default:
            builder_words(b, l->type == LIST_KEYS     ? "dict_keys(["
                             : l->type == LIST_VALUES ? "dict_values(["
                                                      : "dict_items([");
            write_items(r, b, l);
            builder_words(b, "])");
    }
}

static void dict_repr(struct template_run *r, struct text_builder *b, const struct template_dict *d) {
    builder_words(b, "{");
    for (int i = 0; i < d->n; i++) {
        if (i > 0) builder_words(b, ", ");
        value_repr(r, b, d->entries[i].key);
        builder_words(b, ": ");
        value_repr(r, b, d->entries[i].value);
    }
    builder_words(b, "}");
}

void value_repr(struct template_run *r, struct text_builder *b, struct value v) {
    run_enter(r);
    switch (v.kind) {
        case VALUE_ABSENT: break;
        case VALUE_UNDEFINED: builder_words(b, "Undefined"); break;
        case VALUE_NONE: builder_words(b, "None"); break;
        case VALUE_BOOL: builder_words(b, v.truth ? "True" : "False"); break;
        case VALUE_INT: builder_printf(b, "%lld", (long long)v.number); break;
        case VALUE_FLOAT: float_write(b, v.real); break;
        case VALUE_STRING:
            if (v.string->safe) builder_words(b, "Markup(");
            string_repr(b, v.string);
            if (v.string->safe) builder_words(b, ")");
            break;
        case VALUE_LIST: list_repr(r, b, v.list); break;
        case VALUE_DICT: dict_repr(r, b, v.dict); break;
        case VALUE_NAMESPACE:
            builder_words(b, "<Namespace ");
            dict_repr(r, b, v.dict);
            builder_words(b, ">");
            break;
        case VALUE_LOOP: builder_printf(b, "<LoopContext %d/%d>", v.loop->at + 1, v.loop->items->n); break;
        case VALUE_CALLABLE: run_refuse(r, "the text of a %s; it is not called", value_type(v));
    }
    run_leave(r);
}

void value_write(struct template_run *r, struct text_builder *b, struct value v) {
    run_step(r, 1);
    if (v.kind == VALUE_STRING)
        builder_add(b, v.string);
    else if (v.kind != VALUE_UNDEFINED)
        value_repr(r, b, v);
}

const struct template_string *value_text(struct template_run *r, struct value v) {
    if (v.kind == VALUE_STRING) return v.string;
    struct text_builder b = {.m = r->m};
    value_write(r, &b, v);
    return builder_string(&b);
}
