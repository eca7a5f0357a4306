/* retro/template/value.c: the values of templates: made, compared, counted, iterated over, as in
 * Python. */
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
struct value value_string(const struct template_string *string) {
    return (struct value){.kind = VALUE_STRING, .string = string};
}

struct value value_words(struct template_run *run, const char *words) {
    return value_string(string_of(run->m, words, strlen(words), false));
}

struct value value_undefined(struct template_run *run, const char *format, ...) {
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct value value = value_words(run, text);
    value.kind = VALUE_UNDEFINED;
    return value;
}

struct value value_list(struct template_run *run, enum list_type type) {
    struct value value = {.kind = VALUE_LIST, .list = memory_take(run->m, sizeof *value.list)};
    value.list->type = type;
    return value;
}

struct value value_dict(struct template_run *run) {
    struct value value = {.kind = VALUE_DICT, .dict = memory_take(run->m, sizeof *value.dict)};
    return value;
}

struct value value_callable(struct template_run *run, struct template_callable callable) {
    struct template_callable *copy = memory_take(run->m, sizeof *copy);
    *copy = callable;
    return (struct value){.kind = VALUE_CALLABLE, .callable = copy};
}

void list_append(struct template_run *run, struct value list, struct value item) {
    struct template_list *template_list = list.list;
    run_step(run, 1);
    template_list->items = memory_grow(run->m, template_list->items, template_list->n,
                                       &template_list->capacity, sizeof *template_list->items);
    template_list->items[template_list->n] = item;
    template_list->n++;
}

struct value list_pair(struct template_run *run, struct value first, struct value second) {
    struct value pair = value_list(run, LIST_TUPLE);
    list_append(run, pair, first);
    list_append(run, pair, second);
    return pair;
}

/* Comparing. */

bool value_is_number(struct value value) {
    return value.kind == VALUE_INT || value.kind == VALUE_FLOAT || value.kind == VALUE_BOOL;
}

double value_real(struct value value) {
    if (value.kind == VALUE_FLOAT) return value.real;
    return (double)value_index(value);
}

int64_t value_index(struct value value) {
    return value.kind == VALUE_BOOL ? value.truth : value.number;
}

static bool is_sequence(struct value value) {
    return value.kind == VALUE_LIST &&
           (value.list->type == LIST_PLAIN || value.list->type == LIST_TUPLE ||
            value.list->type == LIST_GROUP || value.list->type == LIST_RANGE);
}

static enum list_type list_type_compared(enum list_type type) {
    return type == LIST_GROUP ? LIST_TUPLE : type;
}

static bool equal_lists(struct template_run *run, const struct template_list *left,
                        const struct template_list *right) {
    if (list_type_compared(left->type) != list_type_compared(right->type) || left->n != right->n)
        return false;
    for (int i = 0; i < left->n; i++)
        if (!value_equal(run, left->items[i], right->items[i])) return false;
    return true;
}

static bool equal_dicts(struct template_run *run, const struct template_dict *left,
                        const struct template_dict *right) {
    if (left->n != right->n) return false;
    for (int i = 0; i < left->n; i++) {
        const struct value *other = dict_find(run, right, left->entries[i].key);
        if (other == NULL || !value_equal(run, left->entries[i].value, *other)) return false;
    }
    return true;
}

static bool equal_numbers(struct value left, struct value right) {
    if (left.kind == VALUE_FLOAT || right.kind == VALUE_FLOAT)
        return value_real(left) == value_real(right);
    return value_index(left) == value_index(right);
}

bool value_equal(struct template_run *run, struct value left, struct value right) {
    if (value_is_number(left) && value_is_number(right)) return equal_numbers(left, right);
    if (left.kind != right.kind) return false;
    run_enter(run);
    bool equal = true;
    switch (left.kind) {
        case VALUE_STRING:
            if (left.string->size == right.string->size)
                run_step(run, (int64_t)left.string->size / 64);
            equal = string_equal(left.string, right.string);
            break;
        case VALUE_LIST:
            equal = left.list == right.list ||
                    (left.list->type != LIST_GENERATOR && equal_lists(run, left.list, right.list));
            break;
        case VALUE_DICT: equal = equal_dicts(run, left.dict, right.dict); break;
        case VALUE_NAMESPACE: equal = left.dict == right.dict; break;
        case VALUE_LOOP: equal = left.loop == right.loop; break;
        case VALUE_CALLABLE: equal = left.callable == right.callable; break;
        default: break; /* two of None, two undefined values */
    }
    run_leave(run);
    return equal;
}

static int compare_lists(struct template_run *run, const struct template_list *left,
                         const struct template_list *right, const char *sign) {
    int n = min_int(left->n, right->n), i = 0;
    while (i < n && value_equal(run, left->items[i], right->items[i])) i++;
    if (i == n) return (left->n > right->n) - (left->n < right->n);
    run_enter(run);
    int order = value_compare(run, left->items[i], right->items[i], sign);
    run_leave(run);
    return order;
}

int value_compare(struct template_run *run, struct value left, struct value right,
                  const char *sign) {
    run_step(run, 1);
    run_need_defined(run, left);
    run_need_defined(run, right);
    if (value_is_number(left) && value_is_number(right)) {
        if (left.kind != VALUE_FLOAT && right.kind != VALUE_FLOAT)
            return (value_index(left) > value_index(right)) -
                   (value_index(left) < value_index(right));
        double x = value_real(left), y = value_real(right);
        if (isnan(x) || isnan(y)) run_refuse(run, "an order of numbers that are not numbers");
        return (x > y) - (x < y);
    }
    if (left.kind == VALUE_STRING && right.kind == VALUE_STRING)
        return string_compare(left.string, right.string);
    if (is_sequence(left) && is_sequence(right) && left.list->type != LIST_RANGE &&
        list_type_compared(left.list->type) == list_type_compared(right.list->type))
        return compare_lists(run, left.list, right.list, sign);
    if (left.kind == VALUE_LIST && right.kind == VALUE_LIST && left.list->type >= LIST_KEYS &&
        right.list->type >= LIST_KEYS)
        run_refuse(run, "an order of views of dicts");
    run_fail(run, "'%s' not supported between instances of '%s' and '%s'", sign, value_type(left),
             value_type(right));
}

bool value_truth(struct template_run *run, struct value value) {
    (void)run;
    switch (value.kind) {
        case VALUE_ABSENT:
        case VALUE_UNDEFINED:
        case VALUE_NONE: return false;
        case VALUE_BOOL: return value.truth;
        case VALUE_INT: return value.number != 0;
        case VALUE_FLOAT: return value.real != 0;
        case VALUE_STRING: return value.string->size > 0;
        case VALUE_LIST: return value.list->type == LIST_GENERATOR || value.list->n > 0;
        case VALUE_DICT: return value.dict->n > 0;
        case VALUE_LOOP: return value.loop->items->n > 0;
        default: return true;
    }
}

/* Dicts. */

enum { FEW_ENTRIES = 16 }; /* that are looked through */

/* Equal values have equal hashes: 1, 1.0 and true too. */
static uint64_t value_hash(struct value value) {
    double real = value_is_number(value) ? value_real(value) + 0.0 : 0;
    if (value.kind == VALUE_STRING) return lookup_hash(value.string->text, value.string->size);
    return value_is_number(value) ? lookup_hash(&real, sizeof real) : (uint64_t)value.kind;
}

static struct value *placed_find(struct template_run *run, struct template_dict *dict,
                                 struct value key) {
    uint64_t hash = value_hash(key);
    size_t at = 0;
    for (; dict->n_placed < dict->n; dict->n_placed++)
        memory_lookup_add(run->m, &dict->places, value_hash(dict->entries[dict->n_placed].key),
                          dict->n_placed);
    for (int i; (i = lookup_next(&dict->places, hash, &at)) >= 0;)
        if (value_equal(run, dict->entries[i].key, key)) return &dict->entries[i].value;
    return NULL;
}

struct value *dict_find(struct template_run *run, const struct template_dict *dict,
                        struct value key) {
    if (key.kind == VALUE_DICT || (key.kind == VALUE_LIST && key.list->type == LIST_PLAIN))
        run_fail(run, "unhashable type: '%s'", value_type(key));
    run_step(run, 1);
    /* Noting places changes nothing that a template can see. */
    if (dict->n > FEW_ENTRIES)
        return placed_find(run, (struct template_dict *)(uintptr_t)dict, key);
    for (int i = 0; i < dict->n; i++)
        if (value_equal(run, dict->entries[i].key, key)) return &dict->entries[i].value;
    return NULL;
}

struct value *dict_find_words(const struct template_dict *dict, const char *key) {
    for (int i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind == VALUE_STRING &&
            string_is(dict->entries[i].key.string, key))
            return &dict->entries[i].value;
    return NULL;
}

void dict_set(struct template_run *run, struct template_dict *dict, struct value key,
              struct value value) {
    struct value *there = dict_find(run, dict, key);
    if (there) {
        *there = value;
        return;
    }
    dict->entries =
        memory_grow(run->m, dict->entries, dict->n, &dict->capacity, sizeof *dict->entries);
    dict->entries[dict->n] = (struct dict_entry){key, value};
    dict->n++;
}

/* Types, iterating. */

static const char *list_type_name(const struct template_list *list) {
    static const char *const names[] = {
        [LIST_PLAIN] = "list",         [LIST_TUPLE] = "tuple",         [LIST_GROUP] = "_GroupTuple",
        [LIST_RANGE] = "range",        [LIST_GENERATOR] = "generator", [LIST_KEYS] = "dict_keys",
        [LIST_VALUES] = "dict_values", [LIST_ITEMS] = "dict_items"};
    return names[list->type];
}

static const char *callable_type_name(const struct template_callable *callable) {
    static const char *const names[] = {[CALLABLE_MACRO] = "Macro",
                                        [CALLABLE_METHOD] = "builtin_function_or_method",
                                        [CALLABLE_GLOBAL] = "function",
                                        [CALLABLE_CYCLER] = "Cycler",
                                        [CALLABLE_JOINER] = "Joiner"};
    return names[callable->kind];
}

const char *value_type(struct value value) {
    switch (value.kind) {
        case VALUE_NONE: return "NoneType";
        case VALUE_BOOL: return "bool";
        case VALUE_INT: return "int";
        case VALUE_FLOAT: return "float";
        case VALUE_STRING: return value.string->safe ? "Markup" : "str";
        case VALUE_LIST: return list_type_name(value.list);
        case VALUE_DICT: return "dict";
        case VALUE_NAMESPACE: return "Namespace";
        case VALUE_LOOP: return "LoopContext";
        case VALUE_CALLABLE: return callable_type_name(value.callable);
        default: return "Undefined";
    }
}

static const struct template_list *string_items(struct template_run *run,
                                                const struct template_string *string) {
    struct value items = value_list(run, LIST_PLAIN);
    for (size_t at = 0; at < string->size;) {
        size_t n = (size_t)utf8_length(string->text + at, string->size - at);
        list_append(run, items, value_string(string_part(run->m, string, at, at + n)));
        at += n;
    }
    return items.list;
}

static const struct template_list *dict_keys(struct template_run *run,
                                             const struct template_dict *dict) {
    struct value items = value_list(run, LIST_PLAIN);
    for (int i = 0; i < dict->n; i++) list_append(run, items, dict->entries[i].key);
    return items.list;
}

/* The items that a generator has left; it is empty afterwards. */
static const struct template_list *generator_rest(struct template_run *run,
                                                  struct template_list *list) {
    struct value rest = value_list(run, LIST_PLAIN);
    if (list->n > list->read) rest.list->items = list->items + list->read;
    rest.list->n = rest.list->capacity = list->n - list->read;
    list->read = list->n;
    return rest.list;
}

const struct template_list *value_items(struct template_run *run, struct value value) {
    switch (value.kind) {
        case VALUE_UNDEFINED: return value_list(run, LIST_PLAIN).list;
        case VALUE_STRING: return string_items(run, value.string);
        case VALUE_LIST:
            return value.list->type == LIST_GENERATOR ? generator_rest(run, value.list)
                                                      : value.list;
        case VALUE_DICT: return dict_keys(run, value.dict);
        case VALUE_LOOP: run_refuse(run, "iterating over the variable loop");
        default: run_fail(run, "'%s' object is not iterable", value_type(value));
    }
}

bool value_is_iterable(struct value value) {
    return value.kind == VALUE_UNDEFINED || value.kind == VALUE_STRING ||
           value.kind == VALUE_LIST || value.kind == VALUE_DICT || value.kind == VALUE_LOOP;
}

static bool items_contain(struct template_run *run, struct template_list *list, struct value what) {
    int first = list->type == LIST_GENERATOR ? list->read : 0;
    for (int i = first; i < list->n; i++) {
        run_step(run, 1);
        if (list->type == LIST_GENERATOR) list->read = i + 1;
        if (value_equal(run, list->items[i], what)) return true;
    }
    return false;
}

bool value_contains(struct template_run *run, struct value where, struct value what) {
    switch (where.kind) {
        case VALUE_UNDEFINED: return false;
        case VALUE_STRING:
            run_need_defined(run, what);
            if (what.kind != VALUE_STRING)
                run_fail(run, "'in <string>' requires string as left operand, not %s",
                         value_type(what));
            run_step(run, 1 + (int64_t)where.string->size / 64);
            return string_find(where.string, what.string, 0) != SIZE_MAX;
        case VALUE_LIST: return items_contain(run, where.list, what);
        case VALUE_DICT: return dict_find(run, where.dict, what) != NULL;
        default: run_fail(run, "argument of type '%s' is not iterable", value_type(where));
    }
}

int64_t value_length(struct template_run *run, struct value value) {
    switch (value.kind) {
        case VALUE_UNDEFINED: return 0;
        case VALUE_STRING: return string_length(value.string);
        case VALUE_DICT: return value.dict->n;
        case VALUE_LOOP: return value.loop->items->n;
        case VALUE_LIST:
            if (value.list->type != LIST_GENERATOR) return value.list->n;
            /* fall through */
        default: run_fail(run, "object of type '%s' has no len()", value_type(value));
    }
}
