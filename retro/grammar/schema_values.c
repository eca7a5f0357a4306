/* retro/grammar/schema_values.c: enum and const: values that are written as they stand. See schema_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/grammar/schema_private.h"

int json_type_bit(const struct json *v) {
    switch (json_kind(v)) {
        case JSON_KIND_NULL: return TYPE_NULL;
        case JSON_KIND_BOOL: return TYPE_BOOL;
        case JSON_KIND_INT: return TYPE_INTEGER;
        case JSON_KIND_REAL: return json_double(v) == floor(json_double(v)) ? TYPE_INTEGER : TYPE_FRACTION;
        case JSON_KIND_TEXT: return TYPE_STRING;
        case JSON_KIND_LIST: return TYPE_ARRAY;
        default: return TYPE_OBJECT;
    }
}

/* Wide enough for every integer and every double. */
static long double number_of(const struct json *v) {
    return json_is_int(v) ? (long double)json_int(v) : (long double)json_double(v);
}

static bool same_number(const struct json *a, const struct json *b) { return number_of(a) == number_of(b); }

bool json_equal(const struct json *a, const struct json *b) {
    if (json_is_numeric(a) && json_is_numeric(b)) return same_number(a, b);
    if (json_kind(a) != json_kind(b) || json_count(a) != json_count(b)) return false;
    if (json_is_text(a)) return span_equals(json_text(a), json_text(b));
    if (json_kind(a) == JSON_KIND_BOOL) return json_bool(a) == json_bool(b);
    for (size_t i = 0; json_is_list(a) && i < json_count(a); i++)
        if (!json_equal(json_item(a, i), json_item(b, i))) return false;
    for (struct json_entry it = {0}; json_kind(a) == JSON_KIND_OBJECT && json_next(a, &it);) {
        const struct json *other = json_member_n(b, it.name);
        if (other == NULL || !json_equal(it.value, other)) return false;
    }
    return true;
}

/* Sets of values, sorted. Lists and objects are sorted by their size alone: those of one size are compared one by one.
 */

static int compare_values(const struct json *a, const struct json *b) {
    bool number = json_is_numeric(a);
    if (number && json_is_numeric(b)) return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
    if (json_kind(a) != json_kind(b)) return json_kind(a) < json_kind(b) ? -1 : 1;
    if (json_is_text(a)) return span_compare(json_text(a), json_text(b));
    if (json_kind(a) == JSON_KIND_BOOL) return (int)json_bool(a) - (int)json_bool(b);
    return (json_count(a) > json_count(b)) - (json_count(a) < json_count(b));
}

/* Integers and reals in between would be no order: both count as one kind. */
static int compare_kinds(const struct json *a, const struct json *b) {
    bool numbers = json_is_numeric(a) && json_is_numeric(b);
    if (numbers || json_kind(a) == json_kind(b)) return compare_values(a, b);
    int x = json_is_numeric(a) ? JSON_KIND_INT : (int)json_kind(a);
    int y = json_is_numeric(b) ? JSON_KIND_INT : (int)json_kind(b);
    return (x > y) - (x < y);
}

static int by_value(const void *x, const void *y) {
    return compare_kinds(*(const struct json *const *)x, *(const struct json *const *)y);
}

static const struct json **sort_values(const struct json *list, size_t *n) {
    *n = json_count(list);
    const struct json **sorted = xcalloc(*n + 1, sizeof *sorted);
    for (size_t i = 0; i < *n; i++) sorted[i] = json_item(list, i);
    if (*n > 1) qsort(sorted, *n, sizeof *sorted, by_value);
    return sorted;
}

/* Whether one of the sorted values is equal. */
static bool among(struct schema_compiler *c, const struct json *const *sorted, size_t n, const struct json *value) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_kinds(sorted[middle], value) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && compare_kinds(sorted[low], value) == 0 && schema_charge(c, value, 1); low++)
        if (json_equal(sorted[low], value)) return true;
    return false;
}

/* Leaves the values that a schema's enum has. */
static void keep_listed(struct schema_compiler *c, const struct json *schema, struct value_list *values) {
    const struct json *several = json_member(schema, "enum");
    size_t n;
    int kept = 0;
    if (several == NULL || !schema_charge(c, schema, json_count(several) + (size_t)values->n)) return;
    const struct json **sorted = sort_values(several, &n);
    for (int i = 0; i < values->n; i++) {
        values->items[kept] = values->items[i];
        kept += among(c, sorted, n, values->items[i]);
    }
    values->n = kept;
    free(sorted);
}

static void keep_equal(const struct json *schema, struct value_list *values) {
    const struct json *one = json_member(schema, "const");
    int kept = 0;
    for (int i = 0; i < values->n; i++) {
        values->items[kept] = values->items[i];
        kept += one == NULL || json_equal(one, values->items[i]);
    }
    values->n = kept;
}

static void value_add(struct value_list *out, const struct json *value) {
    out->items = xgrow(out->items, out->n, &out->capacity, sizeof *out->items);
    out->items[out->n] = value;
    out->n++;
}

bool schema_values(struct schema_compiler *c, const struct schema_list *list, struct value_list *out) {
    int types = schema_types_of(c, list);
    for (int i = 0; i < list->n; i++) {
        const struct json *several = json_member(list->items[i], "enum"), *one = json_member(list->items[i], "const");
        size_t n = one ? 1 : json_count(several);
        if (several && !json_is_list(several)) schema_fail(c, list->items[i], STATUS_INVALID, "enum is no list");
        if (!one && !several) continue;
        for (size_t k = 0; k < n && schema_charge(c, list->items[i], 1); k++) {
            const struct json *value = one ? one : json_item(several, k);
            if (json_type_bit(value) & types) value_add(out, value);
        }
        if (one) keep_listed(c, list->items[i], out);
        for (int k = i + 1; k < list->n; k++) {
            keep_listed(c, list->items[k], out);
            keep_equal(list->items[k], out);
        }
        return true;
    }
    return false;
}

/* A value, and the number of its list. */
struct listed_value {
    const struct json *value;
    int list;
};

static int by_listed_value(const void *x, const void *y) {
    const struct listed_value *a = x, *b = y;
    int order = compare_kinds(a->value, b->value);
    return order ? order : (a->list > b->list) - (a->list < b->list);
}

bool schema_values_meet(struct schema_compiler *c, const struct value_list *lists, int n, int *first, int *second) {
    struct listed_value *all;
    size_t size = 0, k = 0;
    bool meet = false;
    for (int i = 0; i < n; i++) size += (size_t)lists[i].n;
    all = xcalloc(size + 1, sizeof *all);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < lists[i].n; j++, k++) all[k] = (struct listed_value){lists[i].items[j], i};
    if (size > 1) qsort(all, size, sizeof *all, by_listed_value);
    for (size_t i = 0; i < size && !meet; i++)
        for (size_t j = i + 1; j < size && !meet && compare_kinds(all[i].value, all[j].value) == 0; j++) {
            if (!schema_charge(c, all[i].value, 1)) break;
            meet = all[i].list != all[j].list && json_equal(all[i].value, all[j].value);
            *first = all[i].list;
            *second = all[j].list;
        }
    free(all);
    return meet;
}

static int scalar_value(struct schema_compiler *c, const struct json *value) {
    struct buffer written = {0};
    struct json_writer w;
    put_begin(&w, &written);
    if (json_kind(value) == JSON_KIND_REAL && json_type_bit(value) == TYPE_INTEGER && fabs(json_double(value)) < 1e15)
        put_int(&w, (int64_t)json_double(value));
    else
        put_json(&w, value);
    int expr = expr_text(c->d, written.data, written.size);
    buffer_free(&written);
    return expr;
}

static int write_value(struct schema_compiler *c, const struct json *value);

static int list_value(struct schema_compiler *c, const struct json *value) {
    struct expr_list items = {0};
    int n = (int)json_count(value);
    for (int i = 0; i < n; i++) expr_list_add(&items, write_value(c, json_item(value, (size_t)i)));
    int expr = json_list_of(c->rules, items.items, n, EXPR_NOTHING, n, n);
    free(items.items);
    return expr;
}

static int object_value(struct schema_compiler *c, const struct json *value) {
    struct expr_member *members = xcalloc(json_count(value) + 1, sizeof *members);
    struct expr_object object = {.members = members, .more = EXPR_NOTHING};
    for (struct json_entry it = {0}; json_next(value, &it); object.n++) {
        int name = json_written_text(c->rules, it.name);
        members[object.n] = (struct expr_member){json_member_of(c->rules, name, write_value(c, it.value)), true};
    }
    int expr = json_object_of(c->rules, &object);
    free(members);
    return expr;
}

/* JSON's parser bounds the depth. */
static int write_value(struct schema_compiler *c, const struct json *value) {
    if (json_is_list(value)) return list_value(c, value);
    if (json_kind(value) == JSON_KIND_OBJECT) return object_value(c, value);
    return json_is_text(value) ? json_written_text(c->rules, json_text(value)) : scalar_value(c, value);
}

int schema_compile_values(struct schema_compiler *c, const struct schema_list *list, const struct value_list *values) {
    struct expr_list all = {0};
    int types = 0;
    for (int i = 0; i < values->n; i++) types |= json_type_bit(values->items[i]);
    const char *keyword = types ? schema_keyword_of(list, types) : NULL;
    if (keyword) schema_fail(c, list->items[0], STATUS_UNSUPPORTED, "%s beside enum or const", keyword);
    for (int i = 0; i < values->n && schema_charge(c, list->items[0], 1); i++)
        expr_list_add(&all, write_value(c, values->items[i]));
    int expr = expr_either(c->d, all.items, all.n);
    free(all.items);
    return expr;
}
