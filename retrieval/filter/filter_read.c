/* retrieval/filter/filter_read.c: filters from JSON. See filter.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/filter_private.h"

/* One filter that is being read. */
struct filter_reader {
    struct json_reader *r;
    int depth, n_parts, n_values;
};

#define OPERATORS "eq, in, range, prefix, and, or, not"

typedef enum status filter_part_reader(struct filter_reader *x, const struct json *value, struct filter **out);
static filter_part_reader read_part;

/* Steps to a member or an item, for messages, and back. */
struct filter_step {
    struct json_place place;
};
static void step_into(struct filter_reader *x, struct filter_step *s, const char *name, size_t item) {
    s->place = (struct json_place){.above = x->r->place, .name = name, .item = item};
    x->r->place = &s->place;
}
static void step_back(struct filter_reader *x, const struct filter_step *s) { x->r->place = s->place.above; }

/* "retrieval.filter.and[2].range: ..." */
static enum status fail_here(struct filter_reader *x, enum json_fault fault, const char *why) {
    struct buffer place = {0};
    json_place_print(x->r->place, &place);
    enum status status =
        json_fail(x->r, fault, "%.300s%s%s", place.size ? place.data : "", place.size ? ": " : "", why);
    buffer_free(&place);
    return status;
}

static enum status fail_limit(struct filter_reader *x, const char *what, int limit) {
    char why[100];
    snprintf(why, sizeof why, "the filter has more than %d %s", limit, what);
    return fail_here(x, JSON_FAULT_VALUE, why);
}

static enum status count_part(struct filter_reader *x) {
    x->n_parts++;
    if (x->n_parts <= FILTER_MAX_PARTS) return STATUS_OK;
    return fail_limit(x, "conditions and operators", FILTER_MAX_PARTS);
}

/* Values. */

static enum status read_value(struct filter_reader *x, const struct json *v, struct filter_value *out) {
    struct text_span text = json_text(v);
    x->n_values++;
    if (x->n_values > FILTER_MAX_VALUES) return fail_limit(x, "values", FILTER_MAX_VALUES);
    switch (json_kind(v)) {
        case JSON_KIND_BOOL: out->fact = (struct fact){.kind = FACT_BOOL, .truth = json_bool(v)}; return STATUS_OK;
        case JSON_KIND_INT: out->fact = (struct fact){.kind = FACT_INT, .whole = json_int(v)}; return STATUS_OK;
        case JSON_KIND_REAL: out->fact = (struct fact){.kind = FACT_REAL, .real = json_double(v)}; return STATUS_OK;
        case JSON_KIND_TEXT:
            out->fact = (struct fact){.kind = FACT_TEXT, .text = {xstrndup(text.text, text.size), text.size}};
            return STATUS_OK;
        default: return json_fail_type(x->r, "a string, a number or a boolean", v);
    }
}

static enum status add_value(struct filter_reader *x, const struct json *v, struct filter *f) {
    struct filter_value value = {0};
    if (read_value(x, v, &value)) return x->r->e->status;
    f->values = xgrow(f->values, f->n_values, &f->values_capacity, sizeof *f->values);
    f->values[f->n_values] = value;
    f->n_values++;
    return STATUS_OK;
}

/* Conditions, each on one name. */

static enum status read_equal(struct filter_reader *x, const struct json *v, struct filter *f) {
    return add_value(x, v, f);
}

static enum status read_any(struct filter_reader *x, const struct json *v, struct filter *f) {
    enum status status = STATUS_OK;
    size_t n = json_count(v);
    if (!json_is_list(v) || n == 0) return json_fail_type(x->r, "an array of at least one value", v);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        struct filter_step step;
        step_into(x, &step, NULL, i);
        status = add_value(x, json_item(v, i), f);
        step_back(x, &step);
    }
    if (status == STATUS_OK) filter_sort_values(f);
    return status;
}

static enum status read_beginning(struct filter_reader *x, const struct json *v, struct filter *f) {
    f->kind = FILTER_PREFIX;
    return json_is_text(v) ? add_value(x, v, f) : json_fail_type(x->r, "a string", v);
}

static enum status read_bound(struct filter_reader *x, const struct json *v, struct filter_bound *b) {
    if (!json_is_numeric(v) && !json_is_text(v)) return json_fail_type(x->r, "a number or a date", v);
    if (b->given) return fail_here(x, JSON_FAULT_VALUE, "a range has one of gt and gte, and one of lt and lte");
    if (read_value(x, v, &b->value)) return x->r->e->status;
    b->given = true;
    if (json_is_text(v) && !fact_parse_date(b->value.fact.text, &b->value.date))
        return fail_here(x, JSON_FAULT_VALUE,
                         "a text in a range must be a date such as \"2024-05-31\" or \"2024-05-31T12:00:00Z\"");
    return STATUS_OK;
}

static enum status read_end(struct filter_reader *x, const struct json_entry *it, struct filter *f) {
    bool low = it->name.text[0] == 'g', inclusive = it->name.size == 3;
    bool known = it->name.size <= 3 && (strcmp(it->name.text, "gt") == 0 || strcmp(it->name.text, "gte") == 0 ||
                                        strcmp(it->name.text, "lt") == 0 || strcmp(it->name.text, "lte") == 0);
    struct filter_bound *b = low ? &f->low : &f->high;
    if (!known) return fail_here(x, JSON_FAULT_UNKNOWN, "a range has gt, gte, lt and lte");
    b->inclusive = inclusive;
    return read_bound(x, it->value, b);
}

static enum status read_range(struct filter_reader *x, const struct json *v, struct filter *f) {
    enum status status = STATUS_OK;
    f->kind = FILTER_RANGE;
    if (json_kind(v) != JSON_KIND_OBJECT || json_count(v) == 0)
        return json_fail_type(x->r, "an object with gt, gte, lt or lte", v);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(v, &it);) {
        struct filter_step step;
        step_into(x, &step, it.name.text, 0);
        status = read_end(x, &it, f);
        step_back(x, &step);
    }
    bool texts = f->low.value.fact.kind == FACT_TEXT;
    if (status == STATUS_OK && f->low.given && f->high.given && texts != (f->high.value.fact.kind == FACT_TEXT))
        status = fail_here(x, JSON_FAULT_VALUE, "both ends of a range must be numbers, or both dates");
    return status;
}

typedef enum status filter_condition_reader(struct filter_reader *x, const struct json *v, struct filter *f);

static enum status read_condition(struct filter_reader *x, const struct json_entry *it, filter_condition_reader *read,
                                  struct filter *all) {
    struct filter *f = filter_make(FILTER_IN);
    filter_add_part(all, f);
    f->key = xstrndup(it->name.text, it->name.size);
    f->key_size = it->name.size;
    if (strlen(f->key) != f->key_size || f->key_size == 0)
        return fail_here(x, JSON_FAULT_VALUE, "a name in a filter is empty or holds a NUL character");
    if (count_part(x)) return x->r->e->status;
    return read(x, it->value, f);
}

/* {"lang": "en", "year": 2024}: all of them hold. */
static enum status read_conditions(struct filter_reader *x, const struct json *v, filter_condition_reader *read,
                                   struct filter **out) {
    enum status status = STATUS_OK;
    if (json_kind(v) != JSON_KIND_OBJECT || json_count(v) == 0)
        return json_fail_type(x->r, "an object with at least one name of metadata, id or path", v);
    struct filter *all = filter_make(FILTER_AND);
    *out = all;
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(v, &it);) {
        struct filter_step step;
        step_into(x, &step, it.name.text, 0);
        status = read_condition(x, &it, read, all);
        step_back(x, &step);
    }
    if (status || all->n_parts != 1) return status;
    *out = filter_hold(all->parts[0]);
    filter_release(all);
    return STATUS_OK;
}

/* Operators. */

static enum status read_parts(struct filter_reader *x, const struct json *v, enum filter_kind kind,
                              struct filter **out) {
    enum status status = STATUS_OK;
    size_t n = json_count(v);
    if (!json_is_list(v) || n == 0) return json_fail_type(x->r, "an array of at least one filter", v);
    *out = filter_make(kind);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        struct filter *part = NULL;
        struct filter_step step;
        step_into(x, &step, NULL, i);
        status = read_part(x, json_item(v, i), &part);
        step_back(x, &step);
        if (part) filter_add_part(*out, part);
    }
    return status;
}

static enum status read_not(struct filter_reader *x, const struct json *v, struct filter **out) {
    struct filter *part = NULL;
    *out = filter_make(FILTER_NOT);
    enum status status = read_part(x, v, &part);
    if (part) filter_add_part(*out, part);
    return status;
}

static enum status read_operator(struct filter_reader *x, const struct json_entry *it, struct filter **out) {
    const char *name = it->name.text;
    if (strcmp(name, "eq") == 0) return read_conditions(x, it->value, read_equal, out);
    if (strcmp(name, "in") == 0) return read_conditions(x, it->value, read_any, out);
    if (strcmp(name, "range") == 0) return read_conditions(x, it->value, read_range, out);
    if (strcmp(name, "prefix") == 0) return read_conditions(x, it->value, read_beginning, out);
    if (strcmp(name, "and") == 0) return read_parts(x, it->value, FILTER_AND, out);
    if (strcmp(name, "or") == 0) return read_parts(x, it->value, FILTER_OR, out);
    if (strcmp(name, "not") == 0) return read_not(x, it->value, out);
    return fail_here(x, JSON_FAULT_UNKNOWN, "there is no such operator; there are " OPERATORS);
}

/* *out may be there in part after a failure. */
static enum status read_part(struct filter_reader *x, const struct json *value, struct filter **out) {
    struct json_entry it = {0};
    struct filter_step step;
    if (count_part(x)) return x->r->e->status;
    if (x->depth == FILTER_MAX_DEPTH) return fail_limit(x, "levels", FILTER_MAX_DEPTH);
    if (json_kind(value) != JSON_KIND_OBJECT) return json_fail_type(x->r, "an object", value);
    if (json_count(value) != 1 || !json_next(value, &it))
        return fail_here(x, JSON_FAULT_VALUE, "a filter has one operator: " OPERATORS "; \"and\" joins several");
    x->depth++;
    step_into(x, &step, it.name.text, 0);
    enum status status = read_operator(x, &it, out);
    step_back(x, &step);
    x->depth--;
    return status;
}

static enum status read_whole(struct json_reader *r, const struct json *value, struct filter **out) {
    struct filter_reader x = {.r = r};
    struct filter *f = NULL;
    enum status status = read_part(&x, value, &f);
    if (status) {
        filter_release(f);
        return status;
    }
    filter_finish(f);
    *out = f;
    return STATUS_OK;
}

enum status filter_read(struct filter **out, struct json_reader *r, const struct json *value) {
    struct json *inner;
    struct error e;
    *out = NULL;
    if (!json_is_text(value)) return read_whole(r, value, out);
    if (json_parse(&inner, json_text(value), "the filter", &e)) return json_fail(r, JSON_FAULT_VALUE, "%s", e.text);
    enum status status = read_whole(r, inner, out);
    json_close(inner);
    return status;
}

enum status filter_parse(struct filter **out, const char *text, const char *name, struct error *e) {
    struct json *value;
    struct json_reader r = {.name = name, .e = e};
    *out = NULL;
    if (text == NULL || text[0] == '\0') return STATUS_OK;
    if (json_parse(&value, (struct text_span){text, strlen(text)}, name, e)) return e->status;
    enum status status = filter_read(out, &r, value);
    json_close(value);
    return status;
}
