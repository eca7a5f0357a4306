/* retro/grammar/schema_values.c: enum and const: values that are written as they stand. See
 * schema_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/grammar/schema_private.h"

int json_type_bit(const struct json *json) {
    switch (json_kind(json)) {
        case JSON_KIND_NULL: return TYPE_NULL;
        case JSON_KIND_BOOL: return TYPE_BOOL;
        case JSON_KIND_INT: return TYPE_INTEGER;
        case JSON_KIND_REAL:
            return json_double(json) == floor(json_double(json)) ? TYPE_INTEGER : TYPE_FRACTION;
        case JSON_KIND_TEXT: return TYPE_STRING;
        case JSON_KIND_LIST: return TYPE_ARRAY;
        default: return TYPE_OBJECT;
    }
}

/* Wide enough for every integer and every double. */
static long double number_of(const struct json *json) {
    return json_is_int(json) ? (long double)json_int(json) : (long double)json_double(json);
}

static bool same_number(const struct json *left, const struct json *right) {
    return number_of(left) == number_of(right);
}

bool json_same(const struct json *left, const struct json *right) {
    if (json_is_numeric(left) && json_is_numeric(right)) return same_number(left, right);
    if (json_kind(left) != json_kind(right) || json_count(left) != json_count(right)) return false;
    if (json_is_text(left)) return span_equals(json_text(left), json_text(right));
    if (json_kind(left) == JSON_KIND_BOOL) return json_bool(left) == json_bool(right);
    for (size_t i = 0; json_is_list(left) && i < json_count(left); i++)
        if (!json_same(json_item(left, i), json_item(right, i))) return false;
    for (struct json_entry it = {0}; json_kind(left) == JSON_KIND_OBJECT && json_next(left, &it);) {
        const struct json *other = json_member_n(right, it.name);
        if (other == NULL || !json_same(it.value, other)) return false;
    }
    return true;
}

/* Sets of values, sorted. Lists and objects are sorted by their size alone: those of one size are
 * compared one by one.
 */

static int compare_values(const struct json *left, const struct json *right) {
    bool number = json_is_numeric(left);
    if (number && json_is_numeric(right))
        return (number_of(left) > number_of(right)) - (number_of(left) < number_of(right));
    if (json_kind(left) != json_kind(right)) return json_kind(left) < json_kind(right) ? -1 : 1;
    if (json_is_text(left)) return span_compare(json_text(left), json_text(right));
    if (json_kind(left) == JSON_KIND_BOOL) return (int)json_bool(left) - (int)json_bool(right);
    return (json_count(left) > json_count(right)) - (json_count(left) < json_count(right));
}

/* Integers and reals in between would be no order: both count as one kind. */
static int compare_kinds(const struct json *left, const struct json *right) {
    bool numbers = json_is_numeric(left) && json_is_numeric(right);
    if (numbers || json_kind(left) == json_kind(right)) return compare_values(left, right);
    int x = json_is_numeric(left) ? JSON_KIND_INT : (int)json_kind(left);
    int y = json_is_numeric(right) ? JSON_KIND_INT : (int)json_kind(right);
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
static bool among(struct schema_compiler *compiler, const struct json *const *sorted, size_t n,
                  const struct json *value) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_kinds(sorted[middle], value) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && compare_kinds(sorted[low], value) == 0 && schema_charge(compiler, value, 1);
         low++)
        if (json_same(sorted[low], value)) return true;
    return false;
}

/* Leaves the values that a schema's enum has. */
static void keep_listed(struct schema_compiler *compiler, const struct json *schema,
                        struct value_list *values) {
    const struct json *several = json_member(schema, "enum");
    size_t n;
    int kept = 0;
    if (several == NULL ||
        !schema_charge(compiler, schema, json_count(several) + (size_t)values->n))
        return;
    const struct json **sorted = sort_values(several, &n);
    for (int i = 0; i < values->n; i++) {
        values->items[kept] = values->items[i];
        kept += among(compiler, sorted, n, values->items[i]);
    }
    values->n = kept;
    free(sorted);
}

static void keep_equal(const struct json *schema, struct value_list *values) {
    const struct json *one = json_member(schema, "const");
    int kept = 0;
    for (int i = 0; i < values->n; i++) {
        values->items[kept] = values->items[i];
        kept += one == NULL || json_same(one, values->items[i]);
    }
    values->n = kept;
}

static void value_add(struct value_list *out, const struct json *value) {
    out->items = xgrow(out->items, out->n, &out->capacity, sizeof *out->items);
    out->items[out->n] = value;
    out->n++;
}

bool schema_values(struct schema_compiler *compiler, const struct schema_list *list,
                   struct value_list *out) {
    int types = schema_types_of(compiler, list);
    for (int i = 0; i < list->n; i++) {
        const struct json *several = json_member(list->items[i], "enum"),
                          *one = json_member(list->items[i], "const");
        size_t n = one ? 1 : json_count(several);
        if (several && !json_is_list(several))
            schema_fail(compiler, list->items[i], STATUS_INVALID, "enum is no list");
        if (!one && !several) continue;
        for (size_t k = 0; k < n && schema_charge(compiler, list->items[i], 1); k++) {
            const struct json *value = one ? one : json_item(several, k);
            if (json_type_bit(value) & types) value_add(out, value);
        }
        if (one) keep_listed(compiler, list->items[i], out);
        for (int k = i + 1; k < list->n; k++) {
            keep_listed(compiler, list->items[k], out);
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
    const struct listed_value *left = x, *right = y;
    int order = compare_kinds(left->value, right->value);
    return order ? order : (left->list > right->list) - (left->list < right->list);
}

bool schema_values_meet(struct schema_compiler *compiler, const struct value_list *lists, int n,
                        int *first, int *second) {
    struct listed_value *all;
    size_t size = 0, k = 0;
    bool meet = false;
    for (int i = 0; i < n; i++) size += (size_t)lists[i].n;
    all = xcalloc(size + 1, sizeof *all);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < lists[i].n; j++, k++)
            all[k] = (struct listed_value){lists[i].items[j], i};
    if (size > 1) qsort(all, size, sizeof *all, by_listed_value);
    for (size_t i = 0; i < size && !meet; i++)
        for (size_t j = i + 1; j < size && !meet && compare_kinds(all[i].value, all[j].value) == 0;
             j++) {
            if (!schema_charge(compiler, all[i].value, 1)) break;
            meet = all[i].list != all[j].list && json_same(all[i].value, all[j].value);
            *first = all[i].list;
            *second = all[j].list;
        }
    free(all);
    return meet;
}

static int scalar_value(struct schema_compiler *compiler, const struct json *value) {
    struct buffer written = {0};
    struct json_writer w;
    put_begin(&w, &written);
    if (json_kind(value) == JSON_KIND_REAL && json_type_bit(value) == TYPE_INTEGER &&
        fabs(json_double(value)) < 1e15)
        put_int(&w, (int64_t)json_double(value));
    else
        put_json(&w, value);
    int expr = expr_text(compiler->d, written.data, written.size);
    buffer_free(&written);
    return expr;
}

static int write_value(struct schema_compiler *compiler, const struct json *value);

static int list_value(struct schema_compiler *compiler, const struct json *value) {
    struct expr_list items = {0};
    int n = (int)json_count(value);
    for (int i = 0; i < n; i++)
        expr_list_add(&items, write_value(compiler, json_item(value, (size_t)i)));
    int expr = json_list_of(compiler->rules, items.items, n, EXPR_NOTHING, n, n);
    free(items.items);
    return expr;
}

static int object_value(struct schema_compiler *compiler, const struct json *value) {
    struct expr_member *members = xcalloc(json_count(value) + 1, sizeof *members);
    struct expr_object object = {.members = members, .more = EXPR_NOTHING};
    for (struct json_entry it = {0}; json_next(value, &it); object.n++) {
        int name = json_written_name(compiler->rules, it.name);
        members[object.n] = (struct expr_member){
            json_member_of(compiler->rules, name, write_value(compiler, it.value)), true};
    }
    int expr = json_object_of(compiler->rules, &object);
    free(members);
    return expr;
}

/* JSON's parser bounds the depth. */
static int write_value(struct schema_compiler *compiler, const struct json *value) {
    if (json_is_list(value)) return list_value(compiler, value);
    if (json_kind(value) == JSON_KIND_OBJECT) return object_value(compiler, value);
    return json_is_text(value) ? json_written_text(compiler->rules, json_text(value))
                               : scalar_value(compiler, value);
}

int schema_compile_values(struct schema_compiler *compiler, const struct schema_list *list,
                          const struct value_list *values) {
    struct expr_list all = {0};
    int types = 0;
    for (int i = 0; i < values->n; i++) types |= json_type_bit(values->items[i]);
    const char *keyword = types ? schema_keyword_of(list, types) : NULL;
    if (keyword)
        schema_fail(compiler, list->items[0], STATUS_UNSUPPORTED, "%s beside enum or const",
                    keyword);
    for (int i = 0; i < values->n && schema_charge(compiler, list->items[0], 1); i++)
        expr_list_add(&all, write_value(compiler, values->items[i]));
    int expr = expr_either(compiler->d, all.items, all.n);
    free(all.items);
    return expr;
}
