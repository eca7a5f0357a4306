/* retro/grammar/schema.c: lists of schemas that hold together, references, and alternatives. See
 * schema_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/schema_private.h"

enum { MAX_STEPS = 20000, MAX_NESTING = 400, MAX_ALTERNATIVES = 200, MAX_WORK = 4000000 };

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

int schema_fail(struct schema_compiler *compiler, const struct json *schema, enum status status,
                const char *format, ...) {
    char words[300];
    struct buffer place = {0};
    va_list arguments;
    if (compiler->e->status) return EXPR_NOTHING;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    buffer_append_string(&place, "#");
    find_place(compiler->root, schema, &place);
    buffer_append(&place, "", 1);
    error_set(compiler->e, status, "%.300s: %s", place.data, words);
    buffer_free(&place);
    return EXPR_NOTHING;
}

bool schema_charge(struct schema_compiler *compiler, const struct json *schema, size_t n) {
    if (compiler->e->status || compiler->d->error.status) return false;
    compiler->work += (int64_t)n;
    if (compiler->work <= MAX_WORK) return true;
    schema_fail(compiler, schema, STATUS_TOO_LARGE,
                "the schema's names, values and alternatives take more than %d comparisons: make "
                "its lists shorter",
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

static const struct json *find_reference(struct schema_compiler *compiler,
                                         const struct json *schema) {
    const struct json *at = compiler->root, *ref = json_member(schema, "$ref");
    const char *word = json_word(ref);
    struct buffer part = {0};
    if (word == NULL || word[0] != '#' || (word[1] != '\0' && word[1] != '/')) {
        schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                    "$ref: only references within the schema, as #/$defs/name");
        return NULL;
    }
    if (!schema_charge(compiler, schema, json_text(ref).size / 16)) return NULL;
    for (word++; *word == '/' && at;) {
        word++;
        read_part(&word, &part);
        at = step_into(at, &part);
    }
    buffer_free(&part);
    if (at == NULL) schema_fail(compiler, schema, STATUS_INVALID, "$ref: nothing is there");
    return at;
}

void schema_list_add(struct schema_compiler *compiler, struct schema_list *list,
                     const struct json *schema) {
    if (!schema_charge(compiler, schema, 1 + (size_t)list->n / 16) || list_has(list, schema))
        return;
    if (json_kind(schema) == JSON_KIND_BOOL) {
        list->never = list->never || !json_bool(schema);
        return;
    }
    if (json_kind(schema) != JSON_KIND_OBJECT) {
        schema_fail(compiler, schema, STATUS_INVALID, "a schema is an object or a boolean");
        return;
    }
    if (compiler->depth == MAX_NESTING) {
        schema_fail(compiler, schema, STATUS_TOO_LARGE, "more than %d schemas within each other",
                    MAX_NESTING);
        return;
    }
    schema_check_keywords(compiler, schema);
    list_append(list, schema);
    compiler->depth++;
    if (json_member(schema, "$ref")) {
        const struct json *target = find_reference(compiler, schema);
        if (target) schema_list_add(compiler, list, target);
    }
    const struct json *all = json_member(schema, "allOf");
    for (size_t i = 0; i < json_count(all); i++) schema_list_add(compiler, list, json_item(all, i));
    compiler->depth--;
}

/* Alternatives. */

/* The first anyOf or oneOf that is open. */
static const struct json *find_open(const struct schema_list *list, const struct json **schema,
                                    bool *one) {
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

static void fail_both(struct schema_compiler *compiler, const struct json *schema, int first,
                      int second) {
    schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                "oneOf: a value may match both %d and %d; write anyOf, or tell them apart by a "
                "required member with "
                "const",
                first, second);
}

/* Alternatives that list their values are compared all at once, others two by two. */
static void check_disjoint(struct schema_compiler *compiler, const struct json *schema,
                           const struct schema_list *lists, int n) {
    struct value_list *values = xcalloc((size_t)n, sizeof *values);
    bool *listed = xcalloc((size_t)n, sizeof *listed);
    int first, second;
    for (int i = 0; i < n; i++) listed[i] = schema_values(compiler, &lists[i], &values[i]);
    if (schema_values_meet(compiler, values, n, &first, &second))
        fail_both(compiler, schema, first, second);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i && compiler->e->status == STATUS_OK; j++)
            if (!(listed[i] && listed[j]) && !schema_disjoint(compiler, &lists[j], &lists[i]))
                fail_both(compiler, schema, j, i);
    for (int i = 0; i < n; i++) free(values[i].items);
    free(values);
    free(listed);
}

static int compile_open(struct schema_compiler *compiler, const struct schema_list *list,
                        const struct json *schema, const struct json *alternatives, bool one) {
    int n = (int)json_count(alternatives);
    if (n == 0 || n > MAX_ALTERNATIVES)
        return schema_fail(compiler, schema, STATUS_UNSUPPORTED,
                           "%s has %d alternatives, allowed is 1 .. %d", one ? "oneOf" : "anyOf", n,
                           MAX_ALTERNATIVES);
    struct schema_list *lists = xcalloc((size_t)n, sizeof *lists);
    struct expr_list all = {0};
    for (int i = 0; i < n; i++) {
        schema_list_copy(&lists[i], list);
        list_append(&lists[i], alternatives);
        schema_list_add(compiler, &lists[i], json_item(alternatives, (size_t)i));
    }
    if (one) check_disjoint(compiler, schema, lists, n);
    for (int i = 0; i < n && compiler->e->status == STATUS_OK; i++)
        expr_list_add(&all, schema_list_compile(compiler, &lists[i]));
    int expr = expr_either(compiler->d, all.items, all.n);
    for (int i = 0; i < n; i++) schema_list_free(&lists[i]);
    free(lists);
    free(all.items);
    return expr;
}

/* Everything. */

static int compile_types(struct schema_compiler *compiler, const struct schema_list *list) {
    struct json_rules *rules = compiler->rules;
    struct expr_list all = {0};
    int types = schema_types_of(compiler, list);
    if (types == TYPE_ALL && schema_keyword_of(list, TYPE_ALL) == NULL) return json_any(rules);
    if (types & TYPE_NULL) expr_list_add(&all, expr_word(compiler->d, "null"));
    if (types & TYPE_BOOL)
        expr_list_add(&all, EXPR_EITHER_OF(compiler->d, expr_word(compiler->d, "true"),
                                           expr_word(compiler->d, "false")));
    if (types & TYPE_NUMBER) expr_list_add(&all, schema_number(compiler, list, types));
    if (types & TYPE_STRING) expr_list_add(&all, schema_string(compiler, list));
    if (types & TYPE_ARRAY) expr_list_add(&all, schema_array(compiler, list));
    if (types & TYPE_OBJECT) expr_list_add(&all, schema_object(compiler, list));
    int expr = expr_either(compiler->d, all.items, all.n);
    free(all.items);
    return expr;
}

static int compile_list(struct schema_compiler *compiler, const struct schema_list *list) {
    const struct json *schema;
    struct value_list values = {0};
    bool one;
    const struct json *open = find_open(list, &schema, &one);
    if (open) return compile_open(compiler, list, schema, open, one);
    if (!schema_values(compiler, list, &values)) return compile_types(compiler, list);
    int expr = schema_compile_values(compiler, list, &values);
    free(values.items);
    return expr;
}

static bool same_list(const struct schema_list *left, const struct schema_list *right) {
    if (left->n != right->n) return false;
    for (int i = 0; i < left->n; i++)
        if (!list_has(right, left->items[i])) return false;
    return true;
}

/* Where levels count, a schema has a rule for each of those that its values may begin at: one that
 * refers to itself ends with the last. */
static int levels_around(const struct schema_compiler *compiler) {
    return compiler->rules->shallow ? compiler->rules->around : 0;
}

/* The same for lists of the same schemas in any order. */
static uint64_t hash_list(const struct schema_list *list, int around) {
    uint64_t hash = lookup_hash(&around, sizeof around);
    for (int i = 0; i < list->n; i++) hash += lookup_hash(&list->items[i], sizeof list->items[i]);
    return hash;
}

/* The place of an equal list among those that have a rule, or -1. */
static int find_done(struct schema_compiler *compiler, const struct schema_list *list,
                     uint64_t hash) {
    size_t at = 0;
    for (int i; (i = lookup_next(&compiler->done_by_list, hash, &at)) >= 0;)
        if (schema_charge(compiler, list->items[0], (size_t)list->n / 16) &&
            compiler->done[i].around == levels_around(compiler) &&
            same_list(&compiler->done[i].list, list))
            return i;
    return -1;
}

int schema_list_compile(struct schema_compiler *compiler, const struct schema_list *list) {
    if (list->never || compiler->e->status) return EXPR_NOTHING;
    if (list->n == 0) return json_any(compiler->rules);
    uint64_t hash = hash_list(list, levels_around(compiler));
    int done = find_done(compiler, list, hash);
    if (done >= 0) return expr_rule(compiler->d, compiler->done[done].rule);
    if (!schema_charge(compiler, list->items[0], (size_t)list->n)) return EXPR_NOTHING;
    compiler->steps++;
    if (compiler->steps > MAX_STEPS || compiler->depth == MAX_NESTING)
        return schema_fail(compiler, list->items[0], STATUS_TOO_LARGE,
                           "the schema has too many parts: more than %d, or %d "
                           "within each other",
                           MAX_STEPS, MAX_NESTING);
    int rule = draft_rule_open(compiler->d, "of the schema");
    compiler->done =
        xgrow(compiler->done, compiler->n_done, &compiler->done_capacity, sizeof *compiler->done);
    compiler->done[compiler->n_done].rule = rule;
    compiler->done[compiler->n_done].around = levels_around(compiler);
    schema_list_copy(&compiler->done[compiler->n_done].list, list);
    lookup_add(&compiler->done_by_list, hash, compiler->n_done);
    compiler->n_done++;
    compiler->depth++;
    draft_rule_set(compiler->d, rule, compile_list(compiler, list));
    compiler->depth--;
    return expr_rule(compiler->d, rule);
}

int schema_value(struct schema_compiler *compiler, const struct json *schema) {
    struct schema_list list = {0};
    if (schema) schema_list_add(compiler, &list, schema);
    int expr = schema_list_compile(compiler, &list);
    schema_list_free(&list);
    return expr;
}

enum status schema_compile(struct json_rules *rules, const struct json *schema,
                           const struct schema_options *options, int *out, struct error *e) {
    struct schema_compiler compiler = {.rules = rules,
                                       .d = rules->draft,
                                       .root = options->root ? options->root : schema,
                                       .o = *options,
                                       .e = e};
    *e = (struct error){0};
    *out = schema_value(&compiler, schema);
    for (int i = 0; i < compiler.n_done; i++) schema_list_free(&compiler.done[i].list);
    free(compiler.done);
    lookup_free(&compiler.done_by_list);
    return e->status;
}
