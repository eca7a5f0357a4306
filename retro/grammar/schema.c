/* retro/grammar/schema.c: lists of schemas that hold together, references, and alternatives. See schema_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/schema_private.h"

enum { MAX_STEPS = 20000, MAX_NESTING = 200, MAX_ALTERNATIVES = 200, MAX_WORK = 4000000 };

/* Messages. */

/* Appends the way from `at` to the value; false: it is not below. */
static bool find_place(const struct json *at, const struct json *wanted, struct buffer *out) {
    size_t before = out->size;
    if (at == wanted) return true;
    for (struct json_entry it = {0}; json_kind(at) == JSON_KIND_OBJECT && json_next(at, &it);) {
        buffer_printf(out, "/%.60s", it.name.text);
        if (find_place(it.value, wanted, out)) return true;
        out->size = before;
    }
    for (size_t i = 0; json_is_list(at) && i < json_count(at); i++) {
        buffer_printf(out, "/%zu", i);
        if (find_place(json_item(at, i), wanted, out)) return true;
        out->size = before;
    }
    return false;
}

int schema_fail(struct schema_compiler *c, const struct json *schema, enum status status, const char *format, ...) {
    char words[300];
    struct buffer place = {0};
    va_list arguments;
    if (c->e->status) return EXPR_NOTHING;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    buffer_append_string(&place, "#");
    find_place(c->root, schema, &place);
    buffer_append(&place, "", 1);
    error_set(c->e, status, "%.300s: %s", place.data, words);
    buffer_free(&place);
    return EXPR_NOTHING;
}

bool schema_charge(struct schema_compiler *c, const struct json *schema, size_t n) {
    if (c->e->status || c->d->error.status) return false;
    c->work += (int64_t)n;
    if (c->work <= MAX_WORK) return true;
    schema_fail(c, schema, STATUS_TOO_LARGE,
                "the schema's names, values and alternatives take more than %d comparisons: make its lists shorter",
                MAX_WORK);
    return false;
}

/* Lists. */

static void list_append(struct schema_list *list, const struct json *item) {
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n] = item;
    list->n++;
}

static bool list_has(const struct schema_list *list, const struct json *item) {
    for (int i = 0; i < list->n; i++)
        if (list->items[i] == item) return true;
    return false;
}

void schema_list_copy(struct schema_list *to, const struct schema_list *from) {
    *to = (struct schema_list){.never = from->never};
    for (int i = 0; i < from->n; i++) list_append(to, from->items[i]);
}

void schema_list_free(struct schema_list *list) {
    free(list->items);
    *list = (struct schema_list){0};
}

/* References. */

/* The next part of a JSON pointer, unescaped. */
static void read_part(const char **at, struct buffer *part) {
    buffer_clear(part);
    for (; **at != '\0' && **at != '/'; (*at)++) {
        unsigned value = 0;
        char c = **at;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1')) {
            (*at)++;
            c = **at == '0' ? '~' : '/';
        } else if (c == '%' && sscanf(*at + 1, "%2x", &value) == 1 && (*at)[2] != '\0') {
            *at += 2;
            c = (char)value;
        }
        buffer_append(part, &c, 1);
    }
}

static const struct json *step_into(const struct json *at, const struct buffer *part) {
    const char *text = part->data ? part->data : "";
    char *end;
    if (!json_is_list(at)) return json_member_n(at, (struct text_span){text, part->size});
    unsigned long i = strtoul(text, &end, 10);
    return part->size > 0 && *end == '\0' ? json_item(at, i) : NULL;
}

static const struct json *find_reference(struct schema_compiler *c, const struct json *schema) {
    const struct json *at = c->root, *ref = json_member(schema, "$ref");
    const char *word = json_word(ref);
    struct buffer part = {0};
    if (word == NULL || word[0] != '#' || (word[1] != '\0' && word[1] != '/')) {
        schema_fail(c, schema, STATUS_UNSUPPORTED, "$ref: only references within the schema, as #/$defs/name");
        return NULL;
    }
    if (!schema_charge(c, schema, json_text(ref).size / 16)) return NULL;
    for (word++; *word == '/' && at;) {
        word++;
        read_part(&word, &part);
        at = step_into(at, &part);
    }
    buffer_free(&part);
    if (at == NULL) schema_fail(c, schema, STATUS_INVALID, "$ref: nothing is there");
    return at;
}

void schema_list_add(struct schema_compiler *c, struct schema_list *list, const struct json *schema) {
    if (!schema_charge(c, schema, 1 + (size_t)list->n / 16) || list_has(list, schema)) return;
    if (json_kind(schema) == JSON_KIND_BOOL) {
        list->never = list->never || !json_bool(schema);
        return;
    }
    if (json_kind(schema) != JSON_KIND_OBJECT) {
        schema_fail(c, schema, STATUS_INVALID, "a schema is an object or a boolean");
        return;
    }
    if (c->depth == MAX_NESTING) {
        schema_fail(c, schema, STATUS_TOO_LARGE, "more than %d schemas within each other", MAX_NESTING);
        return;
    }
    schema_check_keywords(c, schema);
    list_append(list, schema);
    c->depth++;
    if (json_member(schema, "$ref")) {
        const struct json *target = find_reference(c, schema);
        if (target) schema_list_add(c, list, target);
    }
    const struct json *all = json_member(schema, "allOf");
    for (size_t i = 0; i < json_count(all); i++) schema_list_add(c, list, json_item(all, i));
    c->depth--;
}

/* Alternatives. */

/* The first anyOf or oneOf that is open. */
static const struct json *find_open(const struct schema_list *list, const struct json **schema, bool *one) {
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < 2; k++) {
            const struct json *alternatives = json_member(list->items[i], k ? "oneOf" : "anyOf");
            if (!json_is_list(alternatives) || list_has(list, alternatives)) continue;
            *schema = list->items[i];
            *one = k;
            return alternatives;
        }
    }
    return NULL;
}

static void fail_both(struct schema_compiler *c, const struct json *schema, int first, int second) {
    schema_fail(c, schema, STATUS_UNSUPPORTED,
                "oneOf: a value may match both %d and %d; write anyOf, or tell them apart by a required member with "
                "const",
                first, second);
}

/* Alternatives that list their values are compared all at once, others two by two. */
static void check_disjoint(struct schema_compiler *c, const struct json *schema, const struct schema_list *lists,
                           int n) {
    struct value_list *values = xcalloc((size_t)n, sizeof *values);
    bool *listed = xcalloc((size_t)n, sizeof *listed);
    int first, second;
    for (int i = 0; i < n; i++) listed[i] = schema_values(c, &lists[i], &values[i]);
    if (schema_values_meet(c, values, n, &first, &second)) fail_both(c, schema, first, second);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i && c->e->status == STATUS_OK; j++)
            if (!(listed[i] && listed[j]) && !schema_disjoint(c, &lists[j], &lists[i])) fail_both(c, schema, j, i);
    for (int i = 0; i < n; i++) free(values[i].items);
    free(values);
    free(listed);
}

static int compile_open(struct schema_compiler *c, const struct schema_list *list, const struct json *schema,
                        const struct json *alternatives, bool one) {
    int n = (int)json_count(alternatives);
    if (n == 0 || n > MAX_ALTERNATIVES)
        return schema_fail(c, schema, STATUS_UNSUPPORTED, "%s has %d alternatives, allowed is 1 .. %d",
                           one ? "oneOf" : "anyOf", n, MAX_ALTERNATIVES);
    struct schema_list *lists = xcalloc((size_t)n, sizeof *lists);
    struct expr_list all = {0};
    for (int i = 0; i < n; i++) {
        schema_list_copy(&lists[i], list);
        list_append(&lists[i], alternatives);
        schema_list_add(c, &lists[i], json_item(alternatives, (size_t)i));
    }
    if (one) check_disjoint(c, schema, lists, n);
    for (int i = 0; i < n && c->e->status == STATUS_OK; i++) expr_list_add(&all, schema_list_compile(c, &lists[i]));
    int expr = expr_either(c->d, all.items, all.n);
    for (int i = 0; i < n; i++) schema_list_free(&lists[i]);
    free(lists);
    free(all.items);
    return expr;
}

/* Everything. */

static int compile_types(struct schema_compiler *c, const struct schema_list *list) {
    struct json_rules *r = c->rules;
    struct expr_list all = {0};
    int types = schema_types_of(c, list);
    if (types == TYPE_ALL && schema_keyword_of(list, TYPE_ALL) == NULL) return json_any(r);
    if (types & TYPE_NULL) expr_list_add(&all, expr_word(c->d, "null"));
    if (types & TYPE_BOOL) expr_list_add(&all, EXPR_EITHER_OF(c->d, expr_word(c->d, "true"), expr_word(c->d, "false")));
    if (types & TYPE_NUMBER) expr_list_add(&all, schema_number(c, list, types));
    if (types & TYPE_STRING) expr_list_add(&all, schema_string(c, list));
    if (types & TYPE_ARRAY) expr_list_add(&all, schema_array(c, list));
    if (types & TYPE_OBJECT) expr_list_add(&all, schema_object(c, list));
    int expr = expr_either(c->d, all.items, all.n);
    free(all.items);
    return expr;
}

static int compile_list(struct schema_compiler *c, const struct schema_list *list) {
    const struct json *schema;
    struct value_list values = {0};
    bool one;
    const struct json *open = find_open(list, &schema, &one);
    if (open) return compile_open(c, list, schema, open, one);
    if (!schema_values(c, list, &values)) return compile_types(c, list);
    int expr = schema_compile_values(c, list, &values);
    free(values.items);
    return expr;
}

static bool same_list(const struct schema_list *a, const struct schema_list *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!list_has(b, a->items[i])) return false;
    return true;
}

/* The same for lists of the same schemas in any order. */
static uint64_t hash_list(const struct schema_list *list) {
    uint64_t hash = 0;
    for (int i = 0; i < list->n; i++) hash += lookup_hash(&list->items[i], sizeof list->items[i]);
    return hash;
}

/* The place of an equal list among those that have a rule, or -1. */
static int find_done(struct schema_compiler *c, const struct schema_list *list, uint64_t hash) {
    size_t at = 0;
    for (int i; (i = lookup_next(&c->done_by_list, hash, &at)) >= 0;)
        if (schema_charge(c, list->items[0], (size_t)list->n / 16) && same_list(&c->done[i].list, list)) return i;
    return -1;
}

int schema_list_compile(struct schema_compiler *c, const struct schema_list *list) {
    if (list->never || c->e->status) return EXPR_NOTHING;
    if (list->n == 0) return json_any(c->rules);
    uint64_t hash = hash_list(list);
    int done = find_done(c, list, hash);
    if (done >= 0) return expr_rule(c->d, c->done[done].rule);
    if (!schema_charge(c, list->items[0], (size_t)list->n)) return EXPR_NOTHING;
    c->steps++;
    if (c->steps > MAX_STEPS || c->depth == MAX_NESTING)
        return schema_fail(c, list->items[0], STATUS_TOO_LARGE,
                           "the schema has too many parts: more than %d, or %d "
                           "within each other",
                           MAX_STEPS, MAX_NESTING);
    int rule = draft_rule_open(c->d, "of the schema");
    c->done = xgrow(c->done, c->n_done, &c->done_capacity, sizeof *c->done);
    c->done[c->n_done].rule = rule;
    schema_list_copy(&c->done[c->n_done].list, list);
    lookup_add(&c->done_by_list, hash, c->n_done);
    c->n_done++;
    c->depth++;
    draft_rule_set(c->d, rule, compile_list(c, list));
    c->depth--;
    return expr_rule(c->d, rule);
}

int schema_value(struct schema_compiler *c, const struct json *schema) {
    struct schema_list list = {0};
    if (schema) schema_list_add(c, &list, schema);
    int expr = schema_list_compile(c, &list);
    schema_list_free(&list);
    return expr;
}

enum status schema_compile(struct json_rules *rules, const struct json *schema, const struct schema_options *o,
                           int *out, struct error *e) {
    struct schema_compiler c = {.rules = rules, .d = rules->draft, .root = schema, .o = *o, .e = e};
    *e = (struct error){0};
    *out = schema_value(&c, schema);
    for (int i = 0; i < c.n_done; i++) schema_list_free(&c.done[i].list);
    free(c.done);
    lookup_free(&c.done_by_list);
    return e->status;
}
