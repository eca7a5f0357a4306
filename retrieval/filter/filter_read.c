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

typedef enum status filter_part_reader(struct filter_reader *x, const struct json *value,
                                       struct filter **out);
static filter_part_reader read_part;

/* Steps to a member or an item, for messages, and back. */
struct filter_step {
    struct json_place place;
};
static void step_into(struct filter_reader *reader, struct filter_step *step, const char *name,
                      size_t item) {
    step->place = (struct json_place){.above = reader->r->place, .name = name, .item = item};
    reader->r->place = &step->place;
}
static void step_back(struct filter_reader *reader, const struct filter_step *step) {
    reader->r->place = step->place.above;
}

/* "retrieval.filter.and[2].range: ..." */
static enum status fail_here(struct filter_reader *reader, enum json_fault fault, const char *why) {
    struct buffer place = {0};
    json_place_print(reader->r->place, &place);
    enum status status = json_fail(reader->r, fault, "%.300s%s%s", place.size ? place.data : "",
                                   place.size ? ": " : "", why);
    buffer_free(&place);
    return status;
}

static enum status fail_limit(struct filter_reader *reader, const char *what, int limit) {
    char why[100];
    snprintf(why, sizeof why, "the filter has more than %d %s", limit, what);
    return fail_here(reader, JSON_FAULT_VALUE, why);
}

static enum status count_part(struct filter_reader *reader) {
    reader->n_parts++;
    if (reader->n_parts <= FILTER_MAX_PARTS) return STATUS_OK;
    return fail_limit(reader, "conditions and operators", FILTER_MAX_PARTS);
}

/* Values. */

static enum status read_value(struct filter_reader *reader, const struct json *json,
                              struct filter_value *out) {
    struct text_span text = json_text(json);
    reader->n_values++;
    if (reader->n_values > FILTER_MAX_VALUES)
        return fail_limit(reader, "values", FILTER_MAX_VALUES);
    switch (json_kind(json)) {
        case JSON_KIND_BOOL:
            out->fact = (struct fact){.kind = FACT_BOOL, .truth = json_bool(json)};
            return STATUS_OK;
        case JSON_KIND_INT:
            out->fact = (struct fact){.kind = FACT_INT, .whole = json_int(json)};
            return STATUS_OK;
        case JSON_KIND_REAL:
            out->fact = (struct fact){.kind = FACT_REAL, .real = json_double(json)};
            return STATUS_OK;
        case JSON_KIND_TEXT:
            out->fact = (struct fact){.kind = FACT_TEXT,
                                      .text = {xstrndup(text.text, text.size), text.size}};
            return STATUS_OK;
        default: return json_fail_type(reader->r, "a string, a number or a boolean", json);
    }
}

static enum status add_value(struct filter_reader *reader, const struct json *json,
                             struct filter *filter) {
    struct filter_value value = {0};
    if (read_value(reader, json, &value)) return reader->r->e->status;
    filter->values =
        xgrow(filter->values, filter->n_values, &filter->values_capacity, sizeof *filter->values);
    filter->values[filter->n_values] = value;
    filter->n_values++;
    return STATUS_OK;
}

/* Conditions, each on one name. */

static enum status read_equal(struct filter_reader *reader, const struct json *json,
                              struct filter *filter) {
    return add_value(reader, json, filter);
}

static enum status read_any(struct filter_reader *reader, const struct json *json,
                            struct filter *filter) {
    enum status status = STATUS_OK;
    size_t n = json_count(json);
    if (!json_is_list(json) || n == 0)
        return json_fail_type(reader->r, "an array of at least one value", json);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        struct filter_step step;
        step_into(reader, &step, NULL, i);
        status = add_value(reader, json_item(json, i), filter);
        step_back(reader, &step);
    }
    if (status == STATUS_OK) filter_sort_values(filter);
    return status;
}

static enum status read_beginning(struct filter_reader *reader, const struct json *json,
                                  struct filter *filter) {
    filter->kind = FILTER_PREFIX;
    return json_is_text(json) ? add_value(reader, json, filter)
                              : json_fail_type(reader->r, "a string", json);
}

static enum status read_bound(struct filter_reader *reader, const struct json *json,
                              struct filter_bound *bound) {
    if (!json_is_numeric(json) && !json_is_text(json))
        return json_fail_type(reader->r, "a number or a date", json);
    if (bound->given)
        return fail_here(reader, JSON_FAULT_VALUE,
                         "a range has one of gt and gte, and one of lt and lte");
    if (read_value(reader, json, &bound->value)) return reader->r->e->status;
    bound->given = true;
    if (json_is_text(json) && !fact_parse_date(bound->value.fact.text, &bound->value.date))
        return fail_here(
            reader, JSON_FAULT_VALUE,
            "a text in a range must be a date such as \"2024-05-31\" or \"2024-05-31T12:00:00Z\"");
    return STATUS_OK;
}

static enum status read_end(struct filter_reader *reader, const struct json_entry *it,
                            struct filter *filter) {
    bool low = it->name.text[0] == 'g', inclusive = it->name.size == 3;
    bool known = it->name.size <= 3 &&
                 (strcmp(it->name.text, "gt") == 0 || strcmp(it->name.text, "gte") == 0 ||
                  strcmp(it->name.text, "lt") == 0 || strcmp(it->name.text, "lte") == 0);
    struct filter_bound *bound = low ? &filter->low : &filter->high;
    if (!known) return fail_here(reader, JSON_FAULT_UNKNOWN, "a range has gt, gte, lt and lte");
    bound->inclusive = inclusive;
    return read_bound(reader, it->value, bound);
}

static enum status read_range(struct filter_reader *reader, const struct json *json,
                              struct filter *filter) {
    enum status status = STATUS_OK;
    filter->kind = FILTER_RANGE;
    if (json_kind(json) != JSON_KIND_OBJECT || json_count(json) == 0)
        return json_fail_type(reader->r, "an object with gt, gte, lt or lte", json);
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(json, &it);) {
        struct filter_step step;
        step_into(reader, &step, it.name.text, 0);
        status = read_end(reader, &it, filter);
        step_back(reader, &step);
    }
    bool texts = filter->low.value.fact.kind == FACT_TEXT;
    if (status == STATUS_OK && filter->low.given && filter->high.given &&
        texts != (filter->high.value.fact.kind == FACT_TEXT))
        status = fail_here(reader, JSON_FAULT_VALUE,
                           "both ends of a range must be numbers, or both dates");
    return status;
}

typedef enum status filter_condition_reader(struct filter_reader *x, const struct json *v,
                                            struct filter *f);

static enum status read_condition(struct filter_reader *reader, const struct json_entry *it,
                                  filter_condition_reader *read, struct filter *all) {
    struct filter *filter = filter_make(FILTER_IN);
    filter_add_part(all, filter);
    filter->key = xstrndup(it->name.text, it->name.size);
    filter->key_size = it->name.size;
    if (strlen(filter->key) != filter->key_size || filter->key_size == 0)
        return fail_here(reader, JSON_FAULT_VALUE,
                         "a name in a filter is empty or holds a NUL character");
    if (count_part(reader)) return reader->r->e->status;
    return read(reader, it->value, filter);
}

/* {"lang": "en", "year": 2024}: all of them hold. */
static enum status read_conditions(struct filter_reader *reader, const struct json *json,
                                   filter_condition_reader *read, struct filter **out) {
    enum status status = STATUS_OK;
    if (json_kind(json) != JSON_KIND_OBJECT || json_count(json) == 0)
        return json_fail_type(reader->r, "an object with at least one name of metadata, id or path",
                              json);
    struct filter *all = filter_make(FILTER_AND);
    *out = all;
    for (struct json_entry it = {0}; status == STATUS_OK && json_next(json, &it);) {
        struct filter_step step;
        step_into(reader, &step, it.name.text, 0);
        status = read_condition(reader, &it, read, all);
        step_back(reader, &step);
    }
    if (status || all->n_parts != 1) return status;
    *out = filter_hold(all->parts[0]);
    filter_release(all);
    return STATUS_OK;
}

/* Operators. */

static enum status read_parts(struct filter_reader *reader, const struct json *json,
                              enum filter_kind kind, struct filter **out) {
    enum status status = STATUS_OK;
    size_t n = json_count(json);
    if (!json_is_list(json) || n == 0)
        return json_fail_type(reader->r, "an array of at least one filter", json);
    *out = filter_make(kind);
    for (size_t i = 0; i < n && status == STATUS_OK; i++) {
        struct filter *part = NULL;
        struct filter_step step;
        step_into(reader, &step, NULL, i);
        status = read_part(reader, json_item(json, i), &part);
        step_back(reader, &step);
        if (part) filter_add_part(*out, part);
    }
    return status;
}

static enum status read_not(struct filter_reader *reader, const struct json *json,
                            struct filter **out) {
    struct filter *part = NULL;
    *out = filter_make(FILTER_NOT);
    enum status status = read_part(reader, json, &part);
    if (part) filter_add_part(*out, part);
    return status;
}

static enum status read_operator(struct filter_reader *reader, const struct json_entry *it,
                                 struct filter **out) {
    const char *name = it->name.text;
    if (strcmp(name, "eq") == 0) return read_conditions(reader, it->value, read_equal, out);
    if (strcmp(name, "in") == 0) return read_conditions(reader, it->value, read_any, out);
    if (strcmp(name, "range") == 0) return read_conditions(reader, it->value, read_range, out);
    if (strcmp(name, "prefix") == 0) return read_conditions(reader, it->value, read_beginning, out);
    if (strcmp(name, "and") == 0) return read_parts(reader, it->value, FILTER_AND, out);
    if (strcmp(name, "or") == 0) return read_parts(reader, it->value, FILTER_OR, out);
    if (strcmp(name, "not") == 0) return read_not(reader, it->value, out);
    return fail_here(reader, JSON_FAULT_UNKNOWN, "there is no such operator; there are " OPERATORS);
}

/* *out may be there in part after a failure. */
static enum status read_part(struct filter_reader *reader, const struct json *value,
                             struct filter **out) {
    struct json_entry it = {0};
    struct filter_step step;
    if (count_part(reader)) return reader->r->e->status;
    if (reader->depth == FILTER_MAX_DEPTH) return fail_limit(reader, "levels", FILTER_MAX_DEPTH);
    if (json_kind(value) != JSON_KIND_OBJECT) return json_fail_type(reader->r, "an object", value);
    if (json_count(value) != 1 || !json_next(value, &it))
        return fail_here(reader, JSON_FAULT_VALUE,
                         "a filter has one operator: " OPERATORS "; \"and\" joins several");
    reader->depth++;
    step_into(reader, &step, it.name.text, 0);
    enum status status = read_operator(reader, &it, out);
    step_back(reader, &step);
    reader->depth--;
    return status;
}

static enum status read_whole(struct json_reader *reader, const struct json *value,
                              struct filter **out) {
    struct filter_reader filter_reader = {.r = reader};
    struct filter *filter = NULL;
    enum status status = read_part(&filter_reader, value, &filter);
    if (status) {
        filter_release(filter);
        return status;
    }
    filter_finish(filter);
    *out = filter;
    return STATUS_OK;
}

enum status filter_read(struct filter **out, struct json_reader *reader, const struct json *value) {
    struct json *inner;
    struct error e;
    *out = NULL;
    if (!json_is_text(value)) return read_whole(reader, value, out);
    if (json_parse(&inner, json_text(value), "the filter", &e))
        return json_fail(reader, JSON_FAULT_VALUE, "%s", e.text);
    enum status status = read_whole(reader, inner, out);
    json_close(inner);
    return status;
}

enum status filter_parse(struct filter **out, const char *text, const char *name, struct error *e) {
    struct json *value;
    struct json_reader reader = {.name = name, .e = e};
    *out = NULL;
    if (text == NULL || text[0] == '\0') return STATUS_OK;
    if (json_parse(&value, (struct text_span){text, strlen(text)}, name, e)) return e->status;
    enum status status = filter_read(out, &reader, value);
    json_close(value);
    return status;
}
