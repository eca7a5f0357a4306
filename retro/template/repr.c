/* retro/template/repr.c: values as text, as Python's str and repr write them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/text/unicode.h"
#include "retro/template/template_private.h"

/* The fewest digits that read back as the same number; a power of ten from 1e16 and below 1e-4. */
void float_write(struct text_builder *builder, double v) {
    char text[40];
    if (isnan(v) || isinf(v)) {
        builder_words(builder, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    int digits = 1;
    do snprintf(text, sizeof text, "%.*e", digits - 1, v);
    while (strtod(text, NULL) != v && digits++ < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = digits - 1 - exponent;
        builder_printf(builder, "%.*f", decimals > 0 ? decimals : 1, v);
        return;
    }
    *strchr(text, 'e') = '\0';
    builder_printf(builder, "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
}

static void write_escape(struct text_builder *builder, int32_t c) {
    if (c == '\n')
        builder_words(builder, "\\n");
    else if (c == '\r')
        builder_words(builder, "\\r");
    else if (c == '\t')
        builder_words(builder, "\\t");
    else
        builder_printf(builder,
                       c < 0x100     ? "\\x%02x"
                       : c < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                       (unsigned)c);
}

static void string_repr(struct text_builder *builder, const struct template_string *string) {
    bool has_single = memchr(string->text, '\'', string->size) != NULL,
         has_double = memchr(string->text, '"', string->size) != NULL;
    const char *quote = has_single && !has_double ? "\"" : "'";
    builder_words(builder, quote);
    for (size_t at = 0, n; at < string->size; at += n) {
        int32_t c;
        n = (size_t)utf8_read(string->text + at, string->size - at, &c);
        if (c == '\\' || c == *quote) builder_words(builder, "\\");
        if (unicode_is_printable(c))
            builder_part(builder, string, at, at + n);
        else
            write_escape(builder, c);
    }
    builder_words(builder, quote);
}

static void write_items(struct template_run *run, struct text_builder *builder,
                        const struct template_list *list) {
    for (int i = 0; i < list->n; i++) {
        if (i > 0) builder_words(builder, ", ");
        value_repr(run, builder, list->items[i]);
    }
}

static void list_repr(struct template_run *run, struct text_builder *builder,
                      const struct template_list *list) {
    switch (list->type) {
        case LIST_PLAIN:
            builder_words(builder, "[");
            write_items(run, builder, list);
            builder_words(builder, "]");
            break;
        case LIST_TUPLE:
        case LIST_GROUP:
            builder_words(builder, "(");
            write_items(run, builder, list);
            builder_words(builder, list->n == 1 ? ",)" : ")");
            break;
        case LIST_RANGE:
            builder_printf(builder, "range(%lld, %lld", (long long)list->start,
                           (long long)list->stop);
            if (list->stride != 1) builder_printf(builder, ", %lld", (long long)list->stride);
            builder_words(builder, ")");
            break;
        case LIST_GENERATOR:
            run_refuse(run, "the text of a generator: a filter like select gives one; add |list");
        default:
            builder_words(builder, list->type == LIST_KEYS     ? "dict_keys(["
                                   : list->type == LIST_VALUES ? "dict_values(["
                                                               : "dict_items([");
            write_items(run, builder, list);
            builder_words(builder, "])");
    }
}

static void dict_repr(struct template_run *run, struct text_builder *builder,
                      const struct template_dict *dict) {
    builder_words(builder, "{");
    for (int i = 0; i < dict->n; i++) {
        if (i > 0) builder_words(builder, ", ");
        value_repr(run, builder, dict->entries[i].key);
        builder_words(builder, ": ");
        value_repr(run, builder, dict->entries[i].value);
    }
    builder_words(builder, "}");
}

void value_repr(struct template_run *run, struct text_builder *builder, struct value value) {
    run_enter(run);
    switch (value.kind) {
        case VALUE_ABSENT: break;
        case VALUE_UNDEFINED: builder_words(builder, "Undefined"); break;
        case VALUE_NONE: builder_words(builder, "None"); break;
        case VALUE_BOOL: builder_words(builder, value.truth ? "True" : "False"); break;
        case VALUE_INT: builder_printf(builder, "%lld", (long long)value.number); break;
        case VALUE_FLOAT: float_write(builder, value.real); break;
        case VALUE_STRING:
            if (value.string->safe) builder_words(builder, "Markup(");
            string_repr(builder, value.string);
            if (value.string->safe) builder_words(builder, ")");
            break;
        case VALUE_LIST: list_repr(run, builder, value.list); break;
        case VALUE_DICT: dict_repr(run, builder, value.dict); break;
        case VALUE_NAMESPACE:
            builder_words(builder, "<Namespace ");
            dict_repr(run, builder, value.dict);
            builder_words(builder, ">");
            break;
        case VALUE_LOOP:
            builder_printf(builder, "<LoopContext %d/%d>", value.loop->at + 1,
                           value.loop->items->n);
            break;
        case VALUE_CALLABLE:
            run_refuse(run, "the text of a %s; it is not called", value_type(value));
    }
    run_leave(run);
}

void value_write(struct template_run *run, struct text_builder *builder, struct value value) {
    run_step(run, 1);
    if (value.kind == VALUE_STRING)
        builder_add(builder, value.string);
    else if (value.kind != VALUE_UNDEFINED)
        value_repr(run, builder, value);
}

const struct template_string *value_text(struct template_run *run, struct value value) {
    if (value.kind == VALUE_STRING) return value.string;
    struct text_builder builder = {.m = run->m};
    value_write(run, &builder, value);
    return builder_string(&builder);
}
