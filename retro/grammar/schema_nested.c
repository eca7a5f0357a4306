/* retro/grammar/schema_nested.c: arrays and objects. See schema_private.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/base/utf8.h"
#include "retro/grammar/schema_private.h"

enum { MAX_NAME = 200 /* characters of a name beside which other names are allowed */ };

/* Arrays. */

/* The schema that one schema of the list has for item i; NULL: none. */
static const struct json *item_schema(struct schema_compiler *compiler, const struct json *schema,
                                      size_t i) {
    const struct json *prefix = json_member(schema, "prefixItems"),
                      *rest = json_member(schema, "items");
    if (json_is_list(rest)) {
        schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                    "items: a schema for all items; prefixItems lists schemas");
        return NULL;
    }
    return i < json_count(prefix) ? json_item(prefix, i) : rest;
}

static int compile_item(struct schema_compiler *compiler, const struct schema_list *list,
                        size_t i) {
    struct schema_list all = {0};
    for (int k = 0; k < list->n; k++) {
        const struct json *schema = item_schema(compiler, list->items[k], i);
        if (schema) schema_list_add(compiler, &all, schema);
    }
    int expr = schema_list_compile(compiler, &all);
    schema_list_free(&all);
    return expr;
}

int schema_array(struct schema_compiler *compiler, const struct schema_list *list) {
    int min = schema_count(compiler, list, "minItems", true, 0),
        max = schema_count(compiler, list, "maxItems", false, -1);
    size_t n = 0;
    struct expr_list prefix = {0};
    if (!json_may_nest(compiler->rules)) return EXPR_NOTHING;
    for (int i = 0; i < list->n; i++) {
        size_t count = json_count(json_member(list->items[i], "prefixItems"));
        n = count > n ? count : n;
    }
    if (n > GRAMMAR_MAX_MEMBERS)
        return schema_fail(compiler, list->items[0], STATUS_TOO_LARGE,
                           "prefixItems has more than %d", GRAMMAR_MAX_MEMBERS);
    compiler->rules->around++;
    for (size_t i = 0; i < n; i++) expr_list_add(&prefix, compile_item(compiler, list, i));
    int rest = compile_item(compiler, list, n), expr = EXPR_NOTHING;
    compiler->rules->around--;
    if (max < 0 || min <= max)
        expr = json_list_of(compiler->rules, prefix.items, (int)n, rest, min, max);
    free(prefix.items);
    return expr;
}

/* Names. */

struct name_list {
    struct text_span *items;
    bool *required; /* [n] */
    int n, capacity;
    struct lookup_table places; /* of the items */
};

static void names_add(struct name_list *names, struct text_span name, bool required) {
    uint64_t hash = lookup_hash(name.text, name.size);
    size_t at = 0;
    for (int i; (i = lookup_next(&names->places, hash, &at)) >= 0;)
        if (span_equals(names->items[i], name)) {
            names->required[i] = names->required[i] || required;
            return;
        }
    names->items = xgrow(names->items, names->n, &names->capacity, sizeof *names->items);
    names->required = xrealloc(names->required, (size_t)names->capacity * sizeof *names->required);
    names->items[names->n] = name;
    names->required[names->n] = required;
    lookup_add(&names->places, hash, names->n);
    names->n++;
}

static void names_list(struct schema_compiler *compiler, const struct schema_list *list,
                       struct name_list *names) {
    for (int i = 0; i < list->n; i++) {
        const struct json *properties = json_member(list->items[i], "properties");
        if (properties && json_kind(properties) != JSON_KIND_OBJECT)
            schema_fail(compiler, list->items[i], STATUS_INVALID, "properties is no object");
        for (struct json_entry it = {0};
             json_kind(properties) == JSON_KIND_OBJECT && json_next(properties, &it);)
            if (schema_charge(compiler, list->items[i], 1)) names_add(names, it.name, false);
    }
    for (int i = 0; i < list->n; i++) {
        const struct json *required = json_member(list->items[i], "required");
        for (size_t k = 0; k < json_count(required) && schema_charge(compiler, list->items[i], 1);
             k++) {
            if (!json_is_text(json_item(required, k)))
                schema_fail(compiler, list->items[i], STATUS_INVALID,
                            "required is no list of strings");
            else
                names_add(names, json_text(json_item(required, k)), true);
        }
    }
}

bool schema_requires(struct schema_compiler *compiler, const struct schema_list *list,
                     struct text_span name) {
    for (int i = 0; i < list->n; i++) {
        const struct json *required = json_member(list->items[i], "required");
        if (!schema_charge(compiler, list->items[i], json_count(required))) return false;
        for (size_t k = 0; k < json_count(required); k++) {
            struct text_span one = json_text(json_item(required, k));
            if (one.text && span_equals(one, name)) return true;
        }
    }
    return false;
}

static const struct json *closing(const struct json *schema) {
    return json_member(schema, "additionalProperties");
}

bool schema_member(struct schema_compiler *compiler, const struct schema_list *list,
                   struct text_span name, struct schema_list *out) {
    *out = (struct schema_list){0};
    for (int i = 0; i < list->n; i++) {
        const struct json *own = json_member_n(json_member(list->items[i], "properties"), name);
        if (own == NULL) own = closing(list->items[i]);
        if (own) schema_list_add(compiler, out, own);
    }
    return !out->never;
}

/* Members that no schema names. */

/* One character that is none of these. */
static int other_char(struct schema_compiler *compiler, const struct char_ranges *taken) {
    struct char_ranges others = {0};
    for (int i = 0; i < taken->n; i++)
        char_ranges_add(&others, taken->list[i].first, taken->list[i].last);
    char_ranges_negate(&others);
    int expr = json_name_chars(compiler->rules, others.list, others.n);
    free(others.list);
    return expr;
}

static int compare_names(const void *x, const void *y) {
    const struct text_span *left = x, *right = y;
    size_t n = left->size < right->size ? left->size : right->size;
    int order = n > 0 ? memcmp(left->text, right->text, n) : 0;
    return order ? order : (left->size > right->size) - (left->size < right->size);
}

/* The texts, from byte `at` on, that are none of the sorted names, which have the same bytes before
 * it. */
static int other_text(struct schema_compiler *compiler, const struct text_span *names, int n,
                      size_t at) {
    struct char_ranges taken = {0};
    struct expr_list all = {0};
    int other = other_char(compiler, &taken), any = expr_repeat(compiler->d, other, 0, -1),
        first = 0;
    bool may_end = at > 0 || !compiler->rules->raw; /* a bare name is not empty */
    if (n == 0) return may_end ? any : expr_repeat(compiler->d, other, 1, -1);
    while (first < n && names[first].size == at) first++;
    if (first == 0 && may_end) expr_list_add(&all, EXPR_EMPTY);
    for (int end; first < n; first = end) {
        int32_t letter, next;
        size_t length = (size_t)utf8_read(names[first].text + at, names[first].size - at, &letter);
        for (end = first + 1; end < n; end++) {
            utf8_read(names[end].text + at, names[end].size - at, &next);
            if (next != letter) break;
        }
        struct char_range range = {letter, letter};
        char_ranges_add(&taken, letter, letter);
        int rest = other_text(compiler, names + first, end - first, at + length);
        expr_list_add(
            &all, EXPR_SEQUENCE_OF(compiler->d, json_name_chars(compiler->rules, &range, 1), rest));
    }
    expr_list_add(&all, EXPR_SEQUENCE_OF(compiler->d, other_char(compiler, &taken), any));
    int expr = expr_either(compiler->d, all.items, all.n);
    free(taken.list);
    free(all.items);
    return expr;
}

static int other_name(struct schema_compiler *compiler, const struct schema_list *list,
                      const struct name_list *names) {
    struct text_span *sorted = xcalloc((size_t)names->n + 1, sizeof *sorted);
    for (int i = 0; i < names->n; i++) {
        sorted[i] = names->items[i];
        if (sorted[i].size > MAX_NAME)
            schema_fail(
                compiler, list->items[0], STATUS_UNSUPPORTED,
                "a name of more than %d bytes where other names are allowed (additionalProperties)",
                MAX_NAME);
    }
    if (names->n > 1) qsort(sorted, (size_t)names->n, sizeof *sorted, compare_names);
    int inside = compiler->e->status ? EXPR_NOTHING : other_text(compiler, sorted, names->n, 0);
    free(sorted);
    return json_name_of(compiler->rules, inside);
}

/* patternProperties where all other names are forbidden: the names are those of its one pattern. */
static int pattern_member(struct schema_compiler *compiler, const struct schema_list *list,
                          const struct json *schema, const struct name_list *names) {
    const struct json *patterns = json_member(schema, "patternProperties"),
                      *others = closing(schema);
    struct json_entry it = {0};
    bool closed = json_kind(others) == JSON_KIND_BOOL && !json_bool(others);
    if (!closed || list->n != 1 || names->n > 0 || json_count(patterns) != 1 ||
        !json_next(patterns, &it))
        return schema_fail(
            compiler, schema, STATUS_UNSUPPORTED,
            "patternProperties: supported with one pattern, additionalProperties false, and no "
            "properties beside it");
    return json_member_of(compiler->rules, schema_pattern(compiler, schema, it.name),
                          schema_value(compiler, it.value));
}

static int other_member(struct schema_compiler *compiler, const struct schema_list *list,
                        const struct name_list *names) {
    struct schema_list all = {0};
    int expr = EXPR_NOTHING;
    bool open = true;
    for (int i = 0; i < list->n; i++) {
        if (json_member(list->items[i], "patternProperties"))
            return pattern_member(compiler, list, list->items[i], names);
        if (closing(list->items[i]))
            schema_list_add(compiler, &all, closing(list->items[i]));
        else if (compiler->o.strict &&
                 schema_keyword_of(&(struct schema_list){.items = &list->items[i], .n = 1},
                                   TYPE_OBJECT))
            open = false;
    }
    if (open && !all.never)
        expr = json_member_of(compiler->rules, other_name(compiler, list, names),
                              schema_list_compile(compiler, &all));
    schema_list_free(&all);
    return expr;
}

/* Objects. */

/* Counts of members are supported where the other keywords see to them. */
static void check_counts(struct schema_compiler *compiler, const struct schema_list *list,
                         const struct expr_object *object) {
    int required = 0, min = schema_count(compiler, list, "minProperties", true, 0);
    int max = schema_count(compiler, list, "maxProperties", false, GRAMMAR_MAX_REPEAT);
    for (int i = 0; i < object->n; i++) required += object->members[i].required;
    if (min > required)
        schema_fail(compiler, list->items[0], STATUS_UNSUPPORTED,
                    "minProperties is more than the required members");
    if (max < GRAMMAR_MAX_REPEAT && (object->more != EXPR_NOTHING || max < object->n))
        schema_fail(compiler, list->items[0], STATUS_UNSUPPORTED,
                    "maxProperties is supported where no more members are allowed anyway");
}

static int named_member(struct schema_compiler *compiler, const struct schema_list *list,
                        struct text_span name) {
    struct schema_list all;
    int expr = EXPR_NOTHING;
    if (schema_member(compiler, list, name, &all))
        expr = json_member_of(compiler->rules, json_written_name(compiler->rules, name),
                              schema_list_compile(compiler, &all));
    schema_list_free(&all);
    return expr;
}

int schema_object(struct schema_compiler *compiler, const struct schema_list *list) {
    struct name_list names = {0};
    if (!json_may_nest(compiler->rules)) return EXPR_NOTHING;
    compiler->rules->around++;
    names_list(compiler, list, &names);
    if (names.n > GRAMMAR_MAX_MEMBERS)
        schema_fail(compiler, list->items[0], STATUS_TOO_LARGE, "more than %d named members",
                    GRAMMAR_MAX_MEMBERS);
    struct expr_member *members = xcalloc((size_t)names.n + 1, sizeof *members);
    struct expr_object object = {.members = members, .ordered = compiler->o.strict};
    object.more = compiler->e->status ? EXPR_NOTHING : other_member(compiler, list, &names);
    for (int i = 0; i < names.n && compiler->e->status == STATUS_OK; i++) {
        members[object.n] =
            (struct expr_member){named_member(compiler, list, names.items[i]), names.required[i]};
        object.n++;
    }
    compiler->rules->around--;
    check_counts(compiler, list, &object);
    int expr = compiler->e->status ? EXPR_NOTHING : json_object_of(compiler->rules, &object);
    free(members);
    free(names.items);
    free(names.required);
    lookup_free(&names.places);
    return expr;
}
