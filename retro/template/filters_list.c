/* retro/template/filters_list.c: filters over lists and dicts. */
#include <stdlib.h>
#include <string.h>

#include "retro/template/template_private.h"

static struct value generator_make(struct template_run *run) {
    return value_list(run, LIST_GENERATOR);
}

/* Attributes. */

static struct value path_part(struct template_run *run, const struct template_string *path,
                              size_t from, size_t to) {
    int64_t number = 0;
    bool digits = to > from;
    for (size_t i = from; i < to; i++) {
        digits = digits && path->text[i] >= '0' && path->text[i] <= '9' && number < INT32_MAX;
        if (digits) number = number * 10 + path->text[i] - '0';
    }
    return digits ? value_int(number) : value_string(string_part(run->m, path, from, to));
}

static struct value path_of(struct template_run *run, struct value value, struct value path,
                            struct value fallback) {
    if (path.kind == VALUE_ABSENT || path.kind == VALUE_NONE) return value;
    if (path.kind != VALUE_STRING) return value_item(run, value, path);
    const struct template_string *string = path.string;
    for (size_t at = 0; at <= string->size;) {
        size_t end = at;
        while (end < string->size && string->text[end] != '.') end++;
        value = value_item(run, value, path_part(run, string, at, end));
        if (value.kind == VALUE_UNDEFINED && fallback.kind != VALUE_ABSENT &&
            fallback.kind != VALUE_NONE)
            value = fallback;
        at = end + 1;
    }
    return value;
}

struct value value_path(struct template_run *run, struct value value, struct value path) {
    return path_of(run, value, path, (struct value){.kind = VALUE_ABSENT});
}

static struct value fold_case(struct template_run *run, struct value value, bool sensitive) {
    if (sensitive || value.kind != VALUE_STRING) return value;
    return value_string(string_case(run, value.string, CASE_LOWER));
}

/* Sorting: stable, by keys. */

struct sort_row {
    struct value key, item;
};

static void rows_sort(struct template_run *run, struct sort_row *rows, struct sort_row *spare,
                      int n, int sign) {
    if (n < 2) return;
    int half = n / 2, left = 0, right = half;
    rows_sort(run, rows, spare, half, sign);
    rows_sort(run, rows + half, spare, n - half, sign);
    for (int i = 0; i < n; i++) {
        bool take_right =
            right < n &&
            (left == half || sign * value_compare(run, rows[right].key, rows[left].key, "<") < 0);
        int *from = take_right ? &right : &left;
        spare[i] = rows[*from];
        ++*from;
    }
    memcpy(rows, spare, (size_t)n * sizeof *rows);
}

static struct sort_row *sorted_rows(struct template_run *run, const struct template_list *items,
                                    struct value path, bool sensitive, bool reverse) {
    struct sort_row *rows = memory_take(run->m, ((size_t)items->n * 2 + 1) * sizeof *rows);
    for (int i = 0; i < items->n; i++)
        rows[i] = (struct sort_row){
            fold_case(run, value_path(run, items->items[i], path), sensitive), items->items[i]};
    rows_sort(run, rows, rows + items->n, items->n, reverse ? -1 : 1);
    return rows;
}

static struct value filter_sort(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    struct value list = value_list(run, LIST_PLAIN);
    if (call->args[2].kind == VALUE_STRING &&
        memchr(call->args[2].string->text, ',', call->args[2].string->size))
        run_refuse(run, "the filter sort by several attributes");
    const struct sort_row *rows =
        sorted_rows(run, items, call->args[2], argument_bool(run, call, 1, false),
                    argument_bool(run, call, 0, false));
    for (int i = 0; i < items->n; i++) list_append(run, list, rows[i].item);
    return list;
}

static struct value dict_pairs(struct template_run *run, const struct template_dict *dict,
                               enum list_type type) {
    struct value list = value_list(run, type);
    for (int i = 0; i < dict->n; i++)
        list_append(run, list, list_pair(run, dict->entries[i].key, dict->entries[i].value));
    return list;
}

static struct value filter_dictsort(struct template_run *run, const struct bound_call *call) {
    const struct template_string *by = argument_text(run, call, 1);
    run_need_defined(run, call->self);
    if (call->self.kind != VALUE_DICT)
        run_fail(run, "'%s' object has no attribute 'items'", value_type(call->self));
    if (by && !string_is(by, "key") && !string_is(by, "value"))
        run_fail(run, "You can only sort by either \"key\" or \"value\"");
    struct value pairs = dict_pairs(run, call->self.dict, LIST_PLAIN),
                 list = value_list(run, LIST_PLAIN);
    const struct sort_row *rows =
        sorted_rows(run, pairs.list, value_int(by && string_is(by, "value") ? 1 : 0),
                    argument_bool(run, call, 0, false), argument_bool(run, call, 2, false));
    for (int i = 0; i < pairs.list->n; i++) list_append(run, list, rows[i].item);
    return list;
}

static struct value filter_groupby(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    bool sensitive = argument_bool(run, call, 2, false);
    struct value groups = value_list(run, LIST_PLAIN), group = value_none(), last = value_none();
    struct sort_row *rows = memory_take(run->m, ((size_t)items->n * 2 + 1) * sizeof *rows);
    for (int i = 0; i < items->n; i++) {
        struct value key = path_of(run, items->items[i], call->args[0], call->args[1]);
        rows[i] = (struct sort_row){fold_case(run, key, sensitive), items->items[i]};
    }
    rows_sort(run, rows, rows + items->n, items->n, 1);
    for (int i = 0; i < items->n; i++) {
        if (i == 0 || !value_equal(run, rows[i].key, last)) {
            struct value pair = value_list(run, LIST_GROUP);
            last = rows[i].key;
            group = value_list(run, LIST_PLAIN);
            list_append(run, pair, path_of(run, rows[i].item, call->args[0], call->args[1]));
            list_append(run, pair, group);
            list_append(run, groups, pair);
        }
        list_append(run, group, rows[i].item);
    }
    return groups;
}

/* Choosing. */

static struct value extreme_find(struct template_run *run, const struct bound_call *call,
                                 int sign) {
    const struct template_list *items = value_items(run, call->self);
    bool sensitive = argument_bool(run, call, 0, false);
    if (items->n == 0) return value_undefined(run, "No aggregated item, sequence was empty.");
    int best = 0;
    for (int i = 1; i < items->n; i++) {
        struct value left =
            fold_case(run, value_path(run, items->items[i], call->args[1]), sensitive);
        struct value right =
            fold_case(run, value_path(run, items->items[best], call->args[1]), sensitive);
        if (sign * value_compare(run, left, right, sign > 0 ? ">" : "<") > 0) best = i;
    }
    return items->items[best];
}

static struct value filter_min(struct template_run *run, const struct bound_call *call) {
    return extreme_find(run, call, -1);
}
static struct value filter_max(struct template_run *run, const struct bound_call *call) {
    return extreme_find(run, call, 1);
}

static struct value filter_sum(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    struct value sum = call->args[1].kind == VALUE_ABSENT ? value_int(0) : call->args[1];
    if (sum.kind == VALUE_STRING)
        run_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int i = 0; i < items->n; i++)
        sum =
            operator_apply(run, OPERATOR_ADD, sum, value_path(run, items->items[i], call->args[0]));
    return sum;
}

static struct value filter_first(struct template_run *run, const struct bound_call *call) {
    if (call->self.kind == VALUE_LIST && call->self.list->type == LIST_GENERATOR) {
        struct template_list *list = call->self.list;
        if (list->read >= list->n)
            return value_undefined(run, "No first item, sequence was empty.");
        list->read++;
        return list->items[list->read - 1];
    }
    const struct template_list *items = value_items(run, call->self);
    return items->n > 0 ? items->items[0]
                        : value_undefined(run, "No first item, sequence was empty.");
}

static bool is_generator(struct value value) {
    return value.kind == VALUE_LIST && value.list->type == LIST_GENERATOR;
}

static struct value filter_last(struct template_run *run, const struct bound_call *call) {
    if (is_generator(call->self) || call->self.kind == VALUE_UNDEFINED)
        run_fail(run, "'%s' object is not reversible", value_type(call->self));
    const struct template_list *items = value_items(run, call->self);
    return items->n > 0 ? items->items[items->n - 1]
                        : value_undefined(run, "No last item, sequence was empty.");
}

static struct value filter_list(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    struct value list = value_list(run, LIST_PLAIN);
    for (int i = 0; i < items->n; i++) list_append(run, list, items->items[i]);
    return list;
}

static struct value filter_items(struct template_run *run, const struct bound_call *call) {
    if (call->self.kind == VALUE_UNDEFINED) return generator_make(run);
    if (call->self.kind != VALUE_DICT) run_fail(run, "Can only get item pairs from a mapping.");
    return dict_pairs(run, call->self.dict, LIST_GENERATOR);
}

static struct value filter_reverse(struct template_run *run, const struct bound_call *call) {
    if (call->self.kind == VALUE_STRING)
        return value_slice(run, call->self,
                           (struct value[3]){value_none(), value_none(), value_int(-1)});
    const struct template_list *items = value_items(run, call->self);
    struct value list = value_list(
        run, is_generator(call->self) || call->self.kind == VALUE_UNDEFINED ? LIST_PLAIN
                                                                            : LIST_GENERATOR);
    for (int i = items->n; i-- > 0;) list_append(run, list, items->items[i]);
    return list;
}

static struct value filter_unique(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    struct value list = generator_make(run);
    struct template_dict seen = {0};
    for (int i = 0; i < items->n; i++) {
        struct value key = fold_case(run, value_path(run, items->items[i], call->args[1]),
                                     argument_bool(run, call, 0, false));
        if (dict_find(run, &seen, key)) continue;
        dict_set(run, &seen, key, value_none());
        list_append(run, list, items->items[i]);
    }
    return list;
}

static struct value filter_join(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    struct text_builder builder = {.m = run->m};
    for (int i = 0; i < items->n; i++) {
        if (i > 0 && call->args[0].kind != VALUE_ABSENT) value_write(run, &builder, call->args[0]);
        value_write(run, &builder, value_path(run, items->items[i], call->args[1]));
    }
    return value_string(builder_string(&builder));
}

static struct value filter_batch(struct template_run *run, const struct bound_call *call) {
    const struct template_list *items = value_items(run, call->self);
    int64_t size = argument_int(run, call, 0, 1);
    struct value list = generator_make(run), part = value_none();
    if (size < 1 || size > INT32_MAX) run_refuse(run, "batches of %lld items", (long long)size);
    for (int i = 0; i < items->n; i++) {
        if (i % size == 0) {
            part = value_list(run, LIST_PLAIN);
            list_append(run, list, part);
        }
        list_append(run, part, items->items[i]);
    }
    bool fills =
        call->args[1].kind != VALUE_ABSENT && call->args[1].kind != VALUE_NONE && items->n > 0;
    while (fills && part.list->n < size) list_append(run, part, call->args[1]);
    return list;
}

/* Filters and tests by name: map, select and their kin. */

static struct call_arguments rest_of(const struct bound_call *call, int from) {
    struct call_arguments rest = *call->all;
    rest.items += from;
    rest.n -= from;
    return rest;
}

static const struct template_string *name_argument(struct template_run *run,
                                                   const struct bound_call *call, int i) {
    if (call->all->items[i].kind != VALUE_STRING)
        run_fail(run, "%s needs the name of a filter or a test", call->row->name);
    return call->all->items[i].string;
}

static struct value map_attribute(struct template_run *run, const struct bound_call *call,
                                  const struct template_list *items) {
    struct value list = generator_make(run), path = {.kind = VALUE_ABSENT}, fallback = path;
    for (int i = 0; i < call->all->n_keywords; i++) {
        const struct dict_entry *keyword = &call->all->keywords[i];
        if (string_is(keyword->key.string, "attribute"))
            path = keyword->value;
        else if (string_is(keyword->key.string, "default"))
            fallback = keyword->value;
        else
            run_fail(run, "map has no argument named %.*s", (int)keyword->key.string->size,
                     keyword->key.string->text);
    }
    if (path.kind == VALUE_ABSENT) run_fail(run, "map requires a filter argument");
    for (int i = 0; i < items->n; i++)
        list_append(run, list, path_of(run, items->items[i], path, fallback));
    return list;
}

static struct value filter_map(struct template_run *run, const struct bound_call *call) {
    if (!value_truth(run, call->self)) return generator_make(run);
    const struct template_list *items = value_items(run, call->self);
    if (call->all->n == 0) return map_attribute(run, call, items);
    const struct template_string *name = name_argument(run, call, 0);
    const struct call_row *row = filter_find(name);
    struct value list = generator_make(run);
    if (row == NULL) run_refuse(run, "the filter %.*s", (int)name->size, name->text);
    struct call_arguments rest = rest_of(call, 1);
    for (int i = 0; i < items->n; i++)
        list_append(run, list, call_row_apply(run, row, items->items[i], &rest));
    return list;
}

/* Items for which the test, on the item or its attribute, holds or does not. */
static struct value items_choose(struct template_run *run, const struct bound_call *call,
                                 bool by_attribute, bool wanted) {
    struct value list = generator_make(run), path = {.kind = VALUE_ABSENT};
    if (!value_truth(run, call->self)) return list;
    const struct template_list *items = value_items(run, call->self);
    int off = by_attribute ? 1 : 0;
    const struct call_row *row = NULL;
    struct call_arguments rest = {0};
    if (by_attribute && call->all->n == 0) run_fail(run, "Missing parameter for attribute name");
    if (by_attribute) path = call->all->items[0];
    if (call->all->n > off) {
        const struct template_string *name = name_argument(run, call, off);
        row = test_find(name);
        if (row == NULL) run_refuse(run, "the test %.*s", (int)name->size, name->text);
        rest = rest_of(call, off + 1);
    }
    for (int i = 0; i < items->n; i++) {
        struct value value = value_path(run, items->items[i], path);
        bool holds = value_truth(run, row ? call_row_apply(run, row, value, &rest) : value);
        if (holds == wanted) list_append(run, list, items->items[i]);
    }
    return list;
}

static struct value filter_select(struct template_run *run, const struct bound_call *call) {
    return items_choose(run, call, false, true);
}
static struct value filter_reject(struct template_run *run, const struct bound_call *call) {
    return items_choose(run, call, false, false);
}
static struct value filter_selectattr(struct template_run *run, const struct bound_call *call) {
    return items_choose(run, call, true, true);
}
static struct value filter_rejectattr(struct template_run *run, const struct bound_call *call) {
    return items_choose(run, call, true, false);
}

/* An attribute, never an item. */
static struct value filter_attr(struct template_run *run, const struct bound_call *call) {
    run_refuse(run, "the filter attr of a %s", value_type(call->self));
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
