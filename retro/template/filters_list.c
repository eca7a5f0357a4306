/* retro/template/filters_list.c: filters over lists and dicts. */
#include <stdlib.h>
#include <string.h>

#include "retro/template/template_private.h"

static struct value generator_make(struct template_run *r) { return value_list(r, LIST_GENERATOR); }

/* Attributes. */

static struct value path_part(struct template_run *r, const struct template_string *path, size_t from, size_t to) {
    int64_t number = 0;
    bool digits = to > from;
    for (size_t i = from; i < to; i++) {
        digits = digits && path->text[i] >= '0' && path->text[i] <= '9' && number < INT32_MAX;
        if (digits) number = number * 10 + path->text[i] - '0';
    }
    return digits ? value_int(number) : value_string(string_part(r->m, path, from, to));
}

static struct value path_of(struct template_run *r, struct value v, struct value path, struct value fallback) {
    if (path.kind == VALUE_ABSENT || path.kind == VALUE_NONE) return v;
    if (path.kind != VALUE_STRING) return value_item(r, v, path);
    const struct template_string *s = path.string;
    for (size_t at = 0; at <= s->size;) {
        size_t end = at;
        while (end < s->size && s->text[end] != '.') end++;
        v = value_item(r, v, path_part(r, s, at, end));
        if (v.kind == VALUE_UNDEFINED && fallback.kind != VALUE_ABSENT && fallback.kind != VALUE_NONE) v = fallback;
        at = end + 1;
    }
    return v;
}

struct value value_path(struct template_run *r, struct value v, struct value path) {
    return path_of(r, v, path, (struct value){.kind = VALUE_ABSENT});
}

static struct value fold_case(struct template_run *r, struct value v, bool sensitive) {
    if (sensitive || v.kind != VALUE_STRING) return v;
    return value_string(string_case(r, v.string, CASE_LOWER));
}

/* Sorting: stable, by keys. */

struct sort_row {
    struct value key, item;
};

static void rows_sort(struct template_run *r, struct sort_row *rows, struct sort_row *spare, int n, int sign) {
    if (n < 2) return;
    int half = n / 2, left = 0, right = half;
    rows_sort(r, rows, spare, half, sign);
    rows_sort(r, rows + half, spare, n - half, sign);
    for (int i = 0; i < n; i++) {
        bool take_right =
            right < n && (left == half || sign * value_compare(r, rows[right].key, rows[left].key, "<") < 0);
        int *from = take_right ? &right : &left;
        spare[i] = rows[*from];
        ++*from;
    }
    memcpy(rows, spare, (size_t)n * sizeof *rows);
}

static struct sort_row *sorted_rows(struct template_run *r, const struct template_list *items, struct value path,
                                    bool sensitive, bool reverse) {
    struct sort_row *rows = memory_take(r->m, ((size_t)items->n * 2 + 1) * sizeof *rows);
    for (int i = 0; i < items->n; i++)
        rows[i] = (struct sort_row){fold_case(r, value_path(r, items->items[i], path), sensitive), items->items[i]};
    rows_sort(r, rows, rows + items->n, items->n, reverse ? -1 : 1);
    return rows;
}

static struct value filter_sort(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    struct value list = value_list(r, LIST_PLAIN);
    if (c->args[2].kind == VALUE_STRING && memchr(c->args[2].string->text, ',', c->args[2].string->size))
        run_refuse(r, "the filter sort by several attributes");
    const struct sort_row *rows =
        sorted_rows(r, items, c->args[2], argument_bool(r, c, 1, false), argument_bool(r, c, 0, false));
    for (int i = 0; i < items->n; i++) list_append(r, list, rows[i].item);
    return list;
}

static struct value dict_pairs(struct template_run *r, const struct template_dict *d, enum list_type type) {
    struct value list = value_list(r, type);
    for (int i = 0; i < d->n; i++) list_append(r, list, list_pair(r, d->entries[i].key, d->entries[i].value));
    return list;
}

static struct value filter_dictsort(struct template_run *r, const struct bound_call *c) {
    const struct template_string *by = argument_text(r, c, 1);
    run_need_defined(r, c->self);
    if (c->self.kind != VALUE_DICT) run_fail(r, "'%s' object has no attribute 'items'", value_type(c->self));
    if (by && !string_is(by, "key") && !string_is(by, "value"))
        run_fail(r, "You can only sort by either \"key\" or \"value\"");
    struct value pairs = dict_pairs(r, c->self.dict, LIST_PLAIN), list = value_list(r, LIST_PLAIN);
    const struct sort_row *rows = sorted_rows(r, pairs.list, value_int(by && string_is(by, "value") ? 1 : 0),
                                              argument_bool(r, c, 0, false), argument_bool(r, c, 2, false));
    for (int i = 0; i < pairs.list->n; i++) list_append(r, list, rows[i].item);
    return list;
}

static struct value filter_groupby(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    bool sensitive = argument_bool(r, c, 2, false);
    struct value groups = value_list(r, LIST_PLAIN), group = value_none(), last = value_none();
    struct sort_row *rows = memory_take(r->m, ((size_t)items->n * 2 + 1) * sizeof *rows);
    for (int i = 0; i < items->n; i++) {
        struct value key = path_of(r, items->items[i], c->args[0], c->args[1]);
        rows[i] = (struct sort_row){fold_case(r, key, sensitive), items->items[i]};
    }
    rows_sort(r, rows, rows + items->n, items->n, 1);
    for (int i = 0; i < items->n; i++) {
        if (i == 0 || !value_equal(r, rows[i].key, last)) {
            struct value pair = value_list(r, LIST_GROUP);
            last = rows[i].key;
            group = value_list(r, LIST_PLAIN);
            list_append(r, pair, path_of(r, rows[i].item, c->args[0], c->args[1]));
            list_append(r, pair, group);
            list_append(r, groups, pair);
        }
        list_append(r, group, rows[i].item);
    }
    return groups;
}

/* Choosing. */

static struct value extreme_find(struct template_run *r, const struct bound_call *c, int sign) {
    const struct template_list *items = value_items(r, c->self);
    bool sensitive = argument_bool(r, c, 0, false);
    if (items->n == 0) return value_undefined(r, "No aggregated item, sequence was empty.");
    int best = 0;
    for (int i = 1; i < items->n; i++) {
        struct value a = fold_case(r, value_path(r, items->items[i], c->args[1]), sensitive);
        struct value b = fold_case(r, value_path(r, items->items[best], c->args[1]), sensitive);
        if (sign * value_compare(r, a, b, sign > 0 ? ">" : "<") > 0) best = i;
    }
    return items->items[best];
}

static struct value filter_min(struct template_run *r, const struct bound_call *c) { return extreme_find(r, c, -1); }
static struct value filter_max(struct template_run *r, const struct bound_call *c) { return extreme_find(r, c, 1); }

static struct value filter_sum(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    struct value sum = c->args[1].kind == VALUE_ABSENT ? value_int(0) : c->args[1];
    if (sum.kind == VALUE_STRING) run_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int i = 0; i < items->n; i++)
        sum = operator_apply(r, OPERATOR_ADD, sum, value_path(r, items->items[i], c->args[0]));
    return sum;
}

static struct value filter_first(struct template_run *r, const struct bound_call *c) {
    if (c->self.kind == VALUE_LIST && c->self.list->type == LIST_GENERATOR) {
        struct template_list *l = c->self.list;
        if (l->read >= l->n) return value_undefined(r, "No first item, sequence was empty.");
        l->read++;
        return l->items[l->read - 1];
    }
    const struct template_list *items = value_items(r, c->self);
    return items->n > 0 ? items->items[0] : value_undefined(r, "No first item, sequence was empty.");
}

static bool is_generator(struct value v) { return v.kind == VALUE_LIST && v.list->type == LIST_GENERATOR; }

static struct value filter_last(struct template_run *r, const struct bound_call *c) {
    if (is_generator(c->self) || c->self.kind == VALUE_UNDEFINED)
        run_fail(r, "'%s' object is not reversible", value_type(c->self));
    const struct template_list *items = value_items(r, c->self);
    return items->n > 0 ? items->items[items->n - 1] : value_undefined(r, "No last item, sequence was empty.");
}

static struct value filter_list(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    struct value list = value_list(r, LIST_PLAIN);
    for (int i = 0; i < items->n; i++) list_append(r, list, items->items[i]);
    return list;
}

static struct value filter_items(struct template_run *r, const struct bound_call *c) {
    if (c->self.kind == VALUE_UNDEFINED) return generator_make(r);
    if (c->self.kind != VALUE_DICT) run_fail(r, "Can only get item pairs from a mapping.");
    return dict_pairs(r, c->self.dict, LIST_GENERATOR);
}

static struct value filter_reverse(struct template_run *r, const struct bound_call *c) {
    if (c->self.kind == VALUE_STRING)
        return value_slice(r, c->self, (struct value[3]){value_none(), value_none(), value_int(-1)});
    const struct template_list *items = value_items(r, c->self);
    struct value list =
        value_list(r, is_generator(c->self) || c->self.kind == VALUE_UNDEFINED ? LIST_PLAIN : LIST_GENERATOR);
    for (int i = items->n; i-- > 0;) list_append(r, list, items->items[i]);
    return list;
}

static struct value filter_unique(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    struct value list = generator_make(r);
    struct template_dict seen = {0};
    for (int i = 0; i < items->n; i++) {
        struct value key = fold_case(r, value_path(r, items->items[i], c->args[1]), argument_bool(r, c, 0, false));
        if (dict_find(r, &seen, key)) continue;
        dict_set(r, &seen, key, value_none());
        list_append(r, list, items->items[i]);
    }
    return list;
}

static struct value filter_join(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    struct text_builder b = {.m = r->m};
    for (int i = 0; i < items->n; i++) {
        if (i > 0 && c->args[0].kind != VALUE_ABSENT) value_write(r, &b, c->args[0]);
        value_write(r, &b, value_path(r, items->items[i], c->args[1]));
    }
    return value_string(builder_string(&b));
}

static struct value filter_batch(struct template_run *r, const struct bound_call *c) {
    const struct template_list *items = value_items(r, c->self);
    int64_t size = argument_int(r, c, 0, 1);
    struct value list = generator_make(r), part = value_none();
    if (size < 1 || size > INT32_MAX) run_refuse(r, "batches of %lld items", (long long)size);
    for (int i = 0; i < items->n; i++) {
        if (i % size == 0) {
            part = value_list(r, LIST_PLAIN);
            list_append(r, list, part);
        }
        list_append(r, part, items->items[i]);
    }
    bool fills = c->args[1].kind != VALUE_ABSENT && c->args[1].kind != VALUE_NONE && items->n > 0;
    while (fills && part.list->n < size) list_append(r, part, c->args[1]);
    return list;
}

/* Filters and tests by name: map, select and their kin. */

static struct call_arguments rest_of(const struct bound_call *c, int from) {
    struct call_arguments rest = *c->all;
    rest.items += from;
    rest.n -= from;
    return rest;
}

static const struct template_string *name_argument(struct template_run *r, const struct bound_call *c, int i) {
    if (c->all->items[i].kind != VALUE_STRING) run_fail(r, "%s needs the name of a filter or a test", c->row->name);
    return c->all->items[i].string;
}

static struct value map_attribute(struct template_run *r, const struct bound_call *c,
                                  const struct template_list *items) {
    struct value list = generator_make(r), path = {.kind = VALUE_ABSENT}, fallback = path;
    for (int i = 0; i < c->all->n_keywords; i++) {
        const struct dict_entry *keyword = &c->all->keywords[i];
        if (string_is(keyword->key.string, "attribute"))
            path = keyword->value;
        else if (string_is(keyword->key.string, "default"))
            fallback = keyword->value;
        else
            run_fail(r, "map has no argument named %.*s", (int)keyword->key.string->size, keyword->key.string->text);
    }
    if (path.kind == VALUE_ABSENT) run_fail(r, "map requires a filter argument");
    for (int i = 0; i < items->n; i++) list_append(r, list, path_of(r, items->items[i], path, fallback));
    return list;
}

static struct value filter_map(struct template_run *r, const struct bound_call *c) {
    if (!value_truth(r, c->self)) return generator_make(r);
    const struct template_list *items = value_items(r, c->self);
    if (c->all->n == 0) return map_attribute(r, c, items);
    const struct template_string *name = name_argument(r, c, 0);
    const struct call_row *row = filter_find(name);
    struct value list = generator_make(r);
    if (row == NULL) run_refuse(r, "the filter %.*s", (int)name->size, name->text);
    struct call_arguments rest = rest_of(c, 1);
    for (int i = 0; i < items->n; i++) list_append(r, list, call_row_apply(r, row, items->items[i], &rest));
    return list;
}

/* Items for which the test, on the item or its attribute, holds or does not. */
static struct value items_choose(struct template_run *r, const struct bound_call *c, bool by_attribute, bool wanted) {
    struct value list = generator_make(r), path = {.kind = VALUE_ABSENT};
    if (!value_truth(r, c->self)) return list;
    const struct template_list *items = value_items(r, c->self);
    int off = by_attribute ? 1 : 0;
    const struct call_row *row = NULL;
    struct call_arguments rest = {0};
    if (by_attribute && c->all->n == 0) run_fail(r, "Missing parameter for attribute name");
    if (by_attribute) path = c->all->items[0];
    if (c->all->n > off) {
        const struct template_string *name = name_argument(r, c, off);
        row = test_find(name);
        if (row == NULL) run_refuse(r, "the test %.*s", (int)name->size, name->text);
        rest = rest_of(c, off + 1);
    }
    for (int i = 0; i < items->n; i++) {
        struct value v = value_path(r, items->items[i], path);
        bool holds = value_truth(r, row ? call_row_apply(r, row, v, &rest) : v);
        if (holds == wanted) list_append(r, list, items->items[i]);
    }
    return list;
}

static struct value filter_select(struct template_run *r, const struct bound_call *c) {
    return items_choose(r, c, false, true);
}
static struct value filter_reject(struct template_run *r, const struct bound_call *c) {
    return items_choose(r, c, false, false);
}
static struct value filter_selectattr(struct template_run *r, const struct bound_call *c) {
    return items_choose(r, c, true, true);
}
static struct value filter_rejectattr(struct template_run *r, const struct bound_call *c) {
    return items_choose(r, c, true, false);
}

/* An attribute, never an item. */
static struct value filter_attr(struct template_run *r, const struct bound_call *c) {
    run_refuse(r, "the filter attr of a %s", value_type(c->self));
}

static const struct call_row rows[] = {
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"list", filter_list, "", 0},
    {"items", filter_items, "", 0},
    {"reverse", filter_reverse, "", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"join", filter_join, "d attribute", 0},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"map", filter_map, "*", 0},
    {"select", filter_select, "*", 0},
    {"reject", filter_reject, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
    {"attr", filter_attr, "name", 1},
};
const struct call_table list_filters = {rows, ARRAY_COUNT(rows)};
