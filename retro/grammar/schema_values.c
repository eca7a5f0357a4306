/* retro/grammar/schema_values.c: enum and const: values that are written as they stand. See schema_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool same_number(const struct json *a, const struct json *b) {
    if (json_is_int(a) && json_is_int(b)) return json_int(a) == json_int(b);
    return json_double(a) == json_double(b);
}

static bool same_text(struct text_span a, struct text_span b) {
    return a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
}

bool json_equal(const struct json *a, const struct json *b) {
    if (json_is_numeric(a) && json_is_numeric(b)) return same_number(a, b);
    if (json_kind(a) != json_kind(b) || json_count(a) != json_count(b)) return false;
    if (json_is_text(a)) return same_text(json_text(a), json_text(b));
    if (json_kind(a) == JSON_KIND_BOOL) return json_bool(a) == json_bool(b);
    for (size_t i = 0; json_is_list(a) && i < json_count(a); i++)
        if (!json_equal(json_item(a, i), json_item(b, i))) return false;
    for (struct json_entry it = {0}; json_kind(a) == JSON_KIND_OBJECT && json_next(a, &it);) {
        const struct json *other = json_member_n(b, it.name);
        if (other == NULL || !json_equal(it.value, other)) return false;
    }
    return true;
}

static bool among(const struct json *value, const struct json *list) {
    for (size_t i = 0; i < json_count(list); i++)
        if (json_equal(value, json_item(list, i))) return true;
    return false;
}

/* Whether the enums and consts of all schemas have the value. */
static bool all_have(const struct schema_list *list, const struct json *value) {
    for (int i = 0; i < list->n; i++) {
        const struct json *several = json_member(list->items[i], "enum"), *one = json_member(list->items[i], "const");
        if (several && !among(value, several)) return false;
        if (one && !json_equal(value, one)) return false;
    }
    return true;
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
        for (size_t k = 0; k < n; k++) {
            const struct json *value = one ? one : json_item(several, k);
            if ((json_type_bit(value) & types) && all_have(list, value)) value_add(out, value);
        }
        return true;
    }
    return false;
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
    for (int i = 0; i < values->n; i++) {
        const char *keyword = schema_keyword_of(list, json_type_bit(values->items[i]));
        if (keyword) schema_fail(c, list->items[0], STATUS_UNSUPPORTED, "%s beside enum or const", keyword);
        expr_list_add(&all, write_value(c, values->items[i]));
    }
    int expr = expr_either(c->d, all.items, all.n);
    free(all.items);
    return expr;
}
