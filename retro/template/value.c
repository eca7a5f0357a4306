/* retro/template/value.c: the values of templates: made, compared, counted, iterated over, as in Python. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* Making. */

struct value value_none(void) {
    return (struct value){.kind = VALUE_NONE};
}
struct value value_bool(bool v) {
    return (struct value){.kind = VALUE_BOOL, .truth = v};
}
struct value value_int(int64_t v) {
    return (struct value){.kind = VALUE_INT, .number = v};
}
struct value value_float(double v) {
    return (struct value){.kind = VALUE_FLOAT, .real = v};
}
struct value value_string(const struct template_string *s) {
    return (struct value){.kind = VALUE_STRING, .string = s};
}

struct value value_words(struct template_run *r, const char *words) {
    return value_string(string_of(r->m, words, strlen(words), false));
}

struct value value_undefined(struct template_run *r, const char *format, ...) {
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct value v = value_words(r, text);
    v.kind = VALUE_UNDEFINED;
    return v;
}

struct value value_list(struct template_run *r, enum list_type type) {
    struct value v = {.kind = VALUE_LIST, .list = memory_take(r->m, sizeof *v.list)};
    v.list->type = type;
    return v;
}

struct value value_dict(struct template_run *r) {
    struct value v = {.kind = VALUE_DICT, .dict = memory_take(r->m, sizeof *v.dict)};
    return v;
}

struct value value_callable(struct template_run *r, struct template_callable c) {
    struct template_callable *copy = memory_take(r->m, sizeof *copy);
    *copy = c;
    return (struct value){.kind = VALUE_CALLABLE, .callable = copy};
}

void list_append(struct template_run *r, struct value list, struct value item) {
    struct template_list *l = list.list;
    run_step(r, 1);
    l->items = memory_grow(r->m, l->items, l->n, &l->capacity, sizeof *l->items);
    l->items[l->n] = item;
    l->n++;
}

struct value list_pair(struct template_run *r, struct value first, struct value second) {
    struct value pair = value_list(r, LIST_TUPLE);
    list_append(r, pair, first);
    list_append(r, pair, second);
    return pair;
}

/* Comparing. */

bool value_is_number(struct value v) { return v.kind == VALUE_INT || v.kind == VALUE_FLOAT || v.kind == VALUE_BOOL; }

double value_real(struct value v) {
    if (v.kind == VALUE_FLOAT) return v.real;
    return (double)value_index(v);
}

int64_t value_index(struct value v) { return v.kind == VALUE_BOOL ? v.truth : v.number; }

static bool is_sequence(struct value v) {
    return v.kind == VALUE_LIST && (v.list->type == LIST_PLAIN || v.list->type == LIST_TUPLE ||
                                    v.list->type == LIST_GROUP || v.list->type == LIST_RANGE);
}

static enum list_type list_type_compared(enum list_type type) { return type == LIST_GROUP ? LIST_TUPLE : type; }

static bool equal_lists(struct template_run *r, const struct template_list *a, const struct template_list *b) {
    if (list_type_compared(a->type) != list_type_compared(b->type) || a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!value_equal(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(struct template_run *r, const struct template_dict *a, const struct template_dict *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        const struct value *other = dict_find(r, b, a->entries[i].key);
        if (other == NULL || !value_equal(r, a->entries[i].value, *other)) return false;
    }
    return true;
}

static bool equal_numbers(struct value a, struct value b) {
    if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT) return value_real(a) == value_real(b);
    return value_index(a) == value_index(b);
}

bool value_equal(struct template_run *r, struct value a, struct value b) {
    if (value_is_number(a) && value_is_number(b)) return equal_numbers(a, b);
    if (a.kind != b.kind) return false;
    run_enter(r);
    bool equal = true;
    switch (a.kind) {
        case VALUE_STRING:
            if (a.string->size == b.string->size) run_step(r, (int64_t)a.string->size / 64);
            equal = string_equal(a.string, b.string);
            break;
        case VALUE_LIST:
            equal = a.list == b.list || (a.list->type != LIST_GENERATOR && equal_lists(r, a.list, b.list));
            break;
        case VALUE_DICT: equal = equal_dicts(r, a.dict, b.dict); break;
        case VALUE_NAMESPACE: equal = a.dict == b.dict; break;
        case VALUE_LOOP: equal = a.loop == b.loop; break;
        case VALUE_CALLABLE: equal = a.callable == b.callable; break;
        default: break; /* two of None, two undefined values */
    }
    run_leave(r);
    return equal;
}

static int compare_lists(struct template_run *r, const struct template_list *a, const struct template_list *b,
                         const char *sign) {
    int n = min_int(a->n, b->n), i = 0;
    while (i < n && value_equal(r, a->items[i], b->items[i])) i++;
    if (i == n) return (a->n > b->n) - (a->n < b->n);
    run_enter(r);
    int order = value_compare(r, a->items[i], b->items[i], sign);
    run_leave(r);
    return order;
}

int value_compare(struct template_run *r, struct value a, struct value b, const char *sign) {
    run_step(r, 1);
    run_need_defined(r, a);
    run_need_defined(r, b);
    if (value_is_number(a) && value_is_number(b)) {
        if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
            return (value_index(a) > value_index(b)) - (value_index(a) < value_index(b));
        double x = value_real(a), y = value_real(b);
        if (isnan(x) || isnan(y)) run_refuse(r, "an order of numbers that are not numbers");
        return (x > y) - (x < y);
    }
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) return string_compare(a.string, b.string);
    if (is_sequence(a) && is_sequence(b) && a.list->type != LIST_RANGE &&
        list_type_compared(a.list->type) == list_type_compared(b.list->type))
        return compare_lists(r, a.list, b.list, sign);
    if (a.kind == VALUE_LIST && b.kind == VALUE_LIST && a.list->type >= LIST_KEYS && b.list->type >= LIST_KEYS)
        run_refuse(r, "an order of views of dicts");
    run_fail(r, "'%s' not supported between instances of '%s' and '%s'", sign, value_type(a), value_type(b));
}

bool value_truth(struct template_run *r, struct value v) {
    (void)r;
    switch (v.kind) {
        case VALUE_ABSENT:
        case VALUE_UNDEFINED:
        case VALUE_NONE: return false;
        case VALUE_BOOL: return v.truth;
        case VALUE_INT: return v.number != 0;
        case VALUE_FLOAT: return v.real != 0;
        case VALUE_STRING: return v.string->size > 0;
        case VALUE_LIST: return v.list->type == LIST_GENERATOR || v.list->n > 0;
        case VALUE_DICT: return v.dict->n > 0;
        case VALUE_LOOP: return v.loop->items->n > 0;
        default: return true;
    }
}

/* Dicts. */

enum { FEW_ENTRIES = 16 }; /* that are looked through */

/* Equal values have equal hashes: 1, 1.0 and true too. */
static uint64_t value_hash(struct value v) {
    double real = value_is_number(v) ? value_real(v) + 0.0 : 0;
    if (v.kind == VALUE_STRING) return lookup_hash(v.string->text, v.string->size);
    return value_is_number(v) ? lookup_hash(&real, sizeof real) : (uint64_t)v.kind;
}

static struct value *placed_find(struct template_run *r, struct template_dict *d, struct value key) {
    uint64_t hash = value_hash(key);
    size_t at = 0;
    for (; d->n_placed < d->n; d->n_placed++)
        memory_lookup_add(r->m, &d->places, value_hash(d->entries[d->n_placed].key), d->n_placed);
    for (int i; (i = lookup_next(&d->places, hash, &at)) >= 0;)
        if (value_equal(r, d->entries[i].key, key)) return &d->entries[i].value;
    return NULL;
}

struct value *dict_find(struct template_run *r, const struct template_dict *d, struct value key) {
    if (key.kind == VALUE_DICT || (key.kind == VALUE_LIST && key.list->type == LIST_PLAIN))
        run_fail(r, "unhashable type: '%s'", value_type(key));
    run_step(r, 1);
    /* Noting places changes nothing that a template can see. */
    if (d->n > FEW_ENTRIES) return placed_find(r, (struct template_dict *)(uintptr_t)d, key);
    for (int i = 0; i < d->n; i++)
        if (value_equal(r, d->entries[i].key, key)) return &d->entries[i].value;
    return NULL;
}

struct value *dict_find_words(const struct template_dict *d, const char *key) {
    for (int i = 0; i < d->n; i++)
        if (d->entries[i].key.kind == VALUE_STRING && string_is(d->entries[i].key.string, key))
            return &d->entries[i].value;
    return NULL;
}

void dict_set(struct template_run *r, struct template_dict *d, struct value key, struct value value) {
    struct value *there = dict_find(r, d, key);
    if (there) {
        *there = value;
        return;
    }
    d->entries = memory_grow(r->m, d->entries, d->n, &d->capacity, sizeof *d->entries);
    d->entries[d->n] = (struct dict_entry){key, value};
    d->n++;
}

/* Types, iterating. */

static const char *list_type_name(const struct template_list *l) {
    static const char *const names[] = {
        [LIST_PLAIN] = "list",         [LIST_TUPLE] = "tuple",         [LIST_GROUP] = "_GroupTuple",
        [LIST_RANGE] = "range",        [LIST_GENERATOR] = "generator", [LIST_KEYS] = "dict_keys",
        [LIST_VALUES] = "dict_values", [LIST_ITEMS] = "dict_items"};
    return names[l->type];
}

static const char *callable_type_name(const struct template_callable *c) {
    static const char *const names[] = {[CALLABLE_MACRO] = "Macro",
                                        [CALLABLE_METHOD] = "builtin_function_or_method",
                                        [CALLABLE_GLOBAL] = "function",
                                        [CALLABLE_CYCLER] = "Cycler",
                                        [CALLABLE_JOINER] = "Joiner"};
    return names[c->kind];
}

const char *value_type(struct value v) {
    switch (v.kind) {
        case VALUE_NONE: return "NoneType";
        case VALUE_BOOL: return "bool";
        case VALUE_INT: return "int";
        case VALUE_FLOAT: return "float";
        case VALUE_STRING: return v.string->safe ? "Markup" : "str";
        case VALUE_LIST: return list_type_name(v.list);
        case VALUE_DICT: return "dict";
        case VALUE_NAMESPACE: return "Namespace";
        case VALUE_LOOP: return "LoopContext";
        case VALUE_CALLABLE: return callable_type_name(v.callable);
        default: return "Undefined";
    }
}

static const struct template_list *string_items(struct template_run *r, const struct template_string *s) {
    struct value items = value_list(r, LIST_PLAIN);
    for (size_t at = 0; at < s->size;) {
        size_t n = (size_t)utf8_length(s->text + at, s->size - at);
        list_append(r, items, value_string(string_part(r->m, s, at, at + n)));
        at += n;
    }
    return items.list;
}

static const struct template_list *dict_keys(struct template_run *r, const struct template_dict *d) {
    struct value items = value_list(r, LIST_PLAIN);
    for (int i = 0; i < d->n; i++) list_append(r, items, d->entries[i].key);
    return items.list;
}

/* The items that a generator has left; it is empty afterwards. */
static const struct template_list *generator_rest(struct template_run *r, struct template_list *l) {
    struct value rest = value_list(r, LIST_PLAIN);
    if (l->n > l->read) rest.list->items = l->items + l->read;
    rest.list->n = rest.list->capacity = l->n - l->read;
    l->read = l->n;
    return rest.list;
}

const struct template_list *value_items(struct template_run *r, struct value v) {
    switch (v.kind) {
        case VALUE_UNDEFINED: return value_list(r, LIST_PLAIN).list;
        case VALUE_STRING: return string_items(r, v.string);
        case VALUE_LIST: return v.list->type == LIST_GENERATOR ? generator_rest(r, v.list) : v.list;
        case VALUE_DICT: return dict_keys(r, v.dict);
        case VALUE_LOOP: run_refuse(r, "iterating over the variable loop");
        default: run_fail(r, "'%s' object is not iterable", value_type(v));
    }
}

bool value_is_iterable(struct value v) {
    return v.kind == VALUE_UNDEFINED || v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_DICT ||
           v.kind == VALUE_LOOP;
}

static bool items_contain(struct template_run *r, struct template_list *l, struct value what) {
    int first = l->type == LIST_GENERATOR ? l->read : 0;
    for (int i = first; i < l->n; i++) {
        run_step(r, 1);
        if (l->type == LIST_GENERATOR) l->read = i + 1;
        if (value_equal(r, l->items[i], what)) return true;
    }
    return false;
}

bool value_contains(struct template_run *r, struct value where, struct value what) {
    switch (where.kind) {
        case VALUE_UNDEFINED: return false;
        case VALUE_STRING:
            run_need_defined(r, what);
            if (what.kind != VALUE_STRING)
                run_fail(r, "'in <string>' requires string as left operand, not %s", value_type(what));
            run_step(r, 1 + (int64_t)where.string->size / 64);
            return string_find(where.string, what.string, 0) != SIZE_MAX;
        case VALUE_LIST: return items_contain(r, where.list, what);
        case VALUE_DICT: return dict_find(r, where.dict, what) != NULL;
        default: run_fail(r, "argument of type '%s' is not iterable", value_type(where));
    }
}

int64_t value_length(struct template_run *r, struct value v) {
    switch (v.kind) {
        case VALUE_UNDEFINED: return 0;
        case VALUE_STRING: return string_length(v.string);
        case VALUE_DICT: return v.dict->n;
        case VALUE_LOOP: return v.loop->items->n;
        case VALUE_LIST:
            if (v.list->type != LIST_GENERATOR) return v.list->n;
            /* fall through */
        default: run_fail(r, "object of type '%s' has no len()", value_type(v));
    }
}
