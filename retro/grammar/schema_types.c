/* retro/grammar/schema_types.c: keywords and the types of values that they speak of; and when two
 * lists of schemas can hold of no value both. See schema_private.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/schema_private.h"

enum { NOTHING_SAID = 0, MAX_COMPARED = 4 };

struct schema_keyword {
    const char *name;
    int types; /* of the values that it restricts */
};

static const struct schema_keyword keywords[] = {
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"oneOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"nullable", 0},
    {"minLength", TYPE_STRING},
    {"maxLength", TYPE_STRING},
    {"pattern", TYPE_STRING},
    {"format", TYPE_STRING},
    {"minimum", TYPE_NUMBER},
    {"maximum", TYPE_NUMBER},
    {"exclusiveMinimum", TYPE_NUMBER},
    {"exclusiveMaximum", TYPE_NUMBER},
    {"items", TYPE_ARRAY},
    {"prefixItems", TYPE_ARRAY},
    {"minItems", TYPE_ARRAY},
    {"maxItems", TYPE_ARRAY},
    {"properties", TYPE_OBJECT},
    {"required", TYPE_OBJECT},
    {"additionalProperties", TYPE_OBJECT},
    {"patternProperties", TYPE_OBJECT},
    {"minProperties", TYPE_OBJECT},
    {"maxProperties", TYPE_OBJECT},
    {"title", NOTHING_SAID},
    {"description", NOTHING_SAID},
    {"default", NOTHING_SAID},
    {"example", NOTHING_SAID},
    {"examples", NOTHING_SAID},
    {"deprecated", NOTHING_SAID},
    {"readOnly", NOTHING_SAID},
    {"writeOnly", NOTHING_SAID},
    {"discriminator", NOTHING_SAID},
    {"$comment", NOTHING_SAID},
    {"$schema", NOTHING_SAID},
    {"$id", NOTHING_SAID},
    {"$anchor", NOTHING_SAID},
    {"$defs", NOTHING_SAID},
    {"definitions", NOTHING_SAID},
    {"contentEncoding", NOTHING_SAID},
    {"contentMediaType", NOTHING_SAID},
    {"contentSchema", NOTHING_SAID},
};

/* Where a keyword changes nothing though it is not supported. */
static bool changes_nothing(const char *name, const struct json *value) {
    if (strncmp(name, "x-", 2) == 0) return true;
    if (strcmp(name, "uniqueItems") == 0)
        return json_kind(value) == JSON_KIND_BOOL && !json_bool(value);
    return strncmp(name, "unevaluated", 11) == 0 && json_kind(value) == JSON_KIND_BOOL &&
           json_bool(value);
}

static const struct schema_keyword *find_keyword(const char *name) {
    for (size_t i = 0; i < ARRAY_COUNT(keywords); i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

void schema_check_keywords(struct schema_compiler *compiler, const struct json *schema) {
    for (struct json_entry it = {0}; json_next(schema, &it);)
        if (find_keyword(it.name.text) == NULL && !changes_nothing(it.name.text, it.value))
            schema_fail(compiler, schema, STATUS_UNSUPPORTED, "the keyword %.60s is not supported",
                        it.name.text);
}

const char *schema_keyword_of(const struct schema_list *list, int types) {
    for (int i = 0; i < list->n; i++) {
        for (size_t k = 0; k < ARRAY_COUNT(keywords); k++)
            if ((keywords[k].types & types) && json_member(list->items[i], keywords[k].name))
                return keywords[k].name;
    }
    return NULL;
}

/* Types. */

static int type_named(struct schema_compiler *compiler, const struct json *schema,
                      const struct json *name) {
    static const struct schema_keyword types[] = {
        {"null", TYPE_NULL},     {"boolean", TYPE_BOOL},  {"integer", TYPE_INTEGER},
        {"number", TYPE_NUMBER}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
        {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (json_text_is(name, types[i].name)) return types[i].types;
    schema_fail(compiler, schema, STATUS_INVALID,
                "type: expected null, boolean, integer, number, string, array or object");
    return 0;
}

int schema_types_of(struct schema_compiler *compiler, const struct schema_list *list) {
    int all = TYPE_ALL;
    for (int i = 0; i < list->n; i++) {
        const struct json *schema = list->items[i], *type = json_member(schema, "type");
        int types = 0;
        if (type == NULL) continue;
        for (size_t k = 0; json_is_list(type) && k < json_count(type); k++)
            types |= type_named(compiler, schema, json_item(type, k));
        if (!json_is_list(type)) types = type_named(compiler, schema, type);
        if (json_bool(json_member(schema, "nullable"))) types |= TYPE_NULL;
        all &= types;
    }
    return list->never ? 0 : all;
}

/* Numbers. */

bool schema_bound(struct schema_compiler *compiler, const struct schema_list *list,
                  const char *keyword, bool largest, double *out) {
    bool found = false;
    for (int i = 0; i < list->n; i++) {
        const struct json *value = json_member(list->items[i], keyword);
        if (value == NULL) continue;
        if (!json_is_numeric(value))
            schema_fail(compiler, list->items[i], STATUS_INVALID, "%s is no number", keyword);
        double number = json_double(value);
        if (!found || (largest ? number > *out : number < *out)) *out = number;
        found = true;
    }
    return found;
}

int schema_count(struct schema_compiler *compiler, const struct schema_list *list,
                 const char *keyword, bool largest, int fallback) {
    double number;
    if (!schema_bound(compiler, list, keyword, largest, &number)) return fallback;
    if (number >= 0 && number <= GRAMMAR_MAX_REPEAT && number == floor(number)) return (int)number;
    schema_fail(compiler, list->items[0], STATUS_UNSUPPORTED, "%s is %g, allowed is 0 .. %d",
                keyword, number, GRAMMAR_MAX_REPEAT);
    return fallback;
}

/* Disjoint lists. */

static bool disjoint_below(struct schema_compiler *compiler, const struct schema_list *left,
                           const struct schema_list *right, int depth);

static bool disjoint_values(struct schema_compiler *compiler, const struct value_list *left,
                            const struct value_list *right) {
    const struct value_list both[] = {*left, *right};
    int first, second;
    return !schema_values_meet(compiler, both, 2, &first, &second);
}

static int types_among(const struct value_list *values) {
    int types = 0;
    for (int i = 0; i < values->n; i++) types |= json_type_bit(values->items[i]);
    return types;
}

/* The largest number of a that is left is below the least of the right. */
static bool bound_below(struct schema_compiler *compiler, const struct schema_list *left,
                        const struct schema_list *right, const char *most, const char *least) {
    double high, low;
    return schema_bound(compiler, left, most, false, &high) &&
           schema_bound(compiler, right, least, true, &low) && high < low;
}

static bool disjoint_bounds(struct schema_compiler *compiler, const struct schema_list *left,
                            const struct schema_list *right, const char *most, const char *least) {
    return bound_below(compiler, left, right, most, least) ||
           bound_below(compiler, right, left, most, least);
}

/* A member that both require has no value in common, or one requires what the other forbids. */
static bool disjoint_at(struct schema_compiler *compiler, const struct schema_list *left,
                        const struct schema_list *right, struct text_span name, int depth) {
    struct schema_list in_a = {0}, in_b = {0};
    bool may_a = schema_member(compiler, left, name, &in_a),
         may_b = schema_member(compiler, right, name, &in_b);
    bool disjoint = !may_a || !may_b;
    if (!disjoint && schema_requires(compiler, left, name) &&
        schema_requires(compiler, right, name))
        disjoint = disjoint_below(compiler, &in_a, &in_b, depth + 1);
    schema_list_free(&in_a);
    schema_list_free(&in_b);
    return disjoint;
}

static bool disjoint_objects(struct schema_compiler *compiler, const struct schema_list *left,
                             const struct schema_list *right, int depth) {
    for (int side = 0; side < 2; side++) {
        const struct schema_list *list = side ? right : left;
        for (int i = 0; i < list->n; i++) {
            const struct json *required = json_member(list->items[i], "required");
            for (size_t k = 0;
                 k < json_count(required) && schema_charge(compiler, list->items[i], 1); k++)
                if (json_is_text(json_item(required, k)) &&
                    disjoint_at(compiler, left, right, json_text(json_item(required, k)), depth))
                    return true;
        }
    }
    return false;
}

static bool disjoint_below(struct schema_compiler *compiler, const struct schema_list *left,
                           const struct schema_list *right, int depth) {
    struct value_list in_a = {0}, in_b = {0};
    int common = schema_types_of(compiler, left) & schema_types_of(compiler, right);
    if (common == 0 || compiler->e->status) return true;
    bool listed_a = schema_values(compiler, left, &in_a),
         listed_b = schema_values(compiler, right, &in_b);
    bool disjoint = listed_a && listed_b && disjoint_values(compiler, &in_a, &in_b);
    if (listed_a) common &= types_among(&in_a);
    if (listed_b) common &= types_among(&in_b);
    free(in_a.items);
    free(in_b.items);
    if (disjoint || common == 0) return true;
    if (depth == MAX_COMPARED) return false;
    if (common & ~(TYPE_NUMBER | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT)) return false;
    if ((common & TYPE_NUMBER) && !disjoint_bounds(compiler, left, right, "maximum", "minimum"))
        return false;
    if ((common & TYPE_STRING) && !disjoint_bounds(compiler, left, right, "maxLength", "minLength"))
        return false;
    if ((common & TYPE_ARRAY) && !disjoint_bounds(compiler, left, right, "maxItems", "minItems"))
        return false;
    return !(common & TYPE_OBJECT) || disjoint_objects(compiler, left, right, depth);
}

bool schema_disjoint(struct schema_compiler *compiler, const struct schema_list *left,
                     const struct schema_list *right) {
    return disjoint_below(compiler, left, right, 0);
}
