/* retro/template/globals.c: functions that templates find without asking, and the methods of dicts,
 * lists and loops. */
#include <string.h>

#include "retro/template/template_private.h"

enum { MAX_RANGE = 100000 }; /* the sandbox's */

/* Functions. */

static struct value raise_exception(struct template_run *run, const struct bound_call *call) {
    const struct template_string *words = value_text(run, call->args[0]);
    memory_fail(run->m, STATUS_INVALID, "%.*s", (int)words->size, words->text);
}

static struct value strftime_now(struct template_run *run, const struct bound_call *call) {
    const struct template_string *format = argument_text(run, call, 0);
    char zero[200], text[1000];
    if (format == NULL) run_fail(run, "strftime_now needs a string");
    if (format->size >= sizeof zero || memchr(format->text, '\0', format->size))
        run_refuse(run, "strftime_now with a format of %zu bytes", format->size);
    memcpy(zero, format->text, format->size);
    zero[format->size] = '\0';
    size_t n = zero[0] ? strftime(text, sizeof text, zero, &run->now) : 0;
    return value_string(string_of(run->m, text, n, false));
}

static struct value make_range(struct template_run *run, const struct bound_call *call) {
    bool one = call->args[1].kind == VALUE_ABSENT;
    int64_t start = one ? 0 : argument_int(run, call, 0, 0),
            stop = argument_int(run, call, one ? 0 : 1, 0);
    int64_t stride = argument_int(run, call, 2, 1);
    struct value value = value_list(run, LIST_RANGE);
    if (stride == 0) run_fail(run, "range() arg 3 must not be zero");
    value.list->start = start;
    value.list->stop = stop;
    value.list->stride = stride;
    for (int64_t at = start; stride > 0 ? at < stop : at > stop;) {
        if (value.list->n == MAX_RANGE)
            run_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                     MAX_RANGE);
        list_append(run, value, value_int(at));
        if (__builtin_add_overflow(at, stride, &at)) break;
    }
    return value;
}

static struct value copy_dict(struct template_run *run, const struct template_dict *dict) {
    struct value value = value_dict(run);
    for (int i = 0; i < dict->n; i++)
        dict_set(run, value.dict, dict->entries[i].key, dict->entries[i].value);
    return value;
}

/* dict(mapping or pairs, name=value, ...) */
static struct value make_dict(struct template_run *run, const struct bound_call *call) {
    struct value value = value_dict(run);
    if (call->all->n > 1) run_fail(run, "dict expected at most 1 argument, got %d", call->all->n);
    if (call->all->n == 1 && call->all->items[0].kind == VALUE_DICT) {
        value = copy_dict(run, call->all->items[0].dict);
    } else if (call->all->n == 1) {
        const struct template_list *pairs = value_items(run, call->all->items[0]);
        for (int i = 0; i < pairs->n; i++) {
            const struct template_list *pair = value_items(run, pairs->items[i]);
            if (pair->n != 2)
                run_fail(run, "dictionary update sequence element #%d has length %d; 2 is required",
                         i, pair->n);
            dict_set(run, value.dict, pair->items[0], pair->items[1]);
        }
    }
    for (int i = 0; i < call->all->n_keywords; i++)
        dict_set(run, value.dict, call->all->keywords[i].key, call->all->keywords[i].value);
    return value;
}

static struct value make_namespace(struct template_run *run, const struct bound_call *call) {
    struct value value = make_dict(run, call);
    for (int i = 0; i < value.dict->n; i++) {
        struct value key = value.dict->entries[i].key;
        if (key.kind == VALUE_STRING && key.string->size > 0 && key.string->text[0] == '_')
            run_fail(run, "a namespace takes no attribute that begins with an underscore");
    }
    value.kind = VALUE_NAMESPACE;
    return value;
}

static struct value make_joiner(struct template_run *run, const struct bound_call *call) {
    struct value separator =
        call->args[0].kind == VALUE_ABSENT ? value_words(run, ", ") : call->args[0];
    return value_callable(
        run,
        (struct template_callable){
            .kind = CALLABLE_JOINER, .self = separator, .state = memory_take(run->m, sizeof(int))});
}

static struct value refuse_global(struct template_run *run, const struct bound_call *call) {
    run_refuse(run, "the function %s", call->row->name);
}

static const struct call_row functions[] = {
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {"range", make_range, "start stop step /", 1},
    {"dict", make_dict, "*", 0},
    {"namespace", make_namespace, "*", 0},
    {"joiner", make_joiner, "sep", 0},
    {"cycler", refuse_global, "*", 0},
    {"lipsum", refuse_global, "*", 0},
};
const struct call_table global_functions = {functions, ARRAY_COUNT(functions)};

/* Dicts. */

static struct value dict_view(struct template_run *run, const struct bound_call *call,
                              enum list_type type) {
    const struct template_dict *dict = call->self.dict;
    struct value list = value_list(run, type);
    for (int i = 0; i < dict->n; i++) {
        const struct dict_entry *entry = &dict->entries[i];
        struct value item = type == LIST_KEYS ? entry->key : entry->value;
        list_append(run, list,
                    type == LIST_ITEMS ? list_pair(run, entry->key, entry->value) : item);
    }
    return list;
}

static struct value dict_items(struct template_run *run, const struct bound_call *call) {
    return dict_view(run, call, LIST_ITEMS);
}
static struct value dict_keys(struct template_run *run, const struct bound_call *call) {
    return dict_view(run, call, LIST_KEYS);
}
static struct value dict_values(struct template_run *run, const struct bound_call *call) {
    return dict_view(run, call, LIST_VALUES);
}

static struct value dict_get(struct template_run *run, const struct bound_call *call) {
    struct value *there = dict_find(run, call->self.dict, call->args[0]);
    if (there) return *there;
    return call->args[1].kind == VALUE_ABSENT ? value_none() : call->args[1];
}

static struct value dict_copy(struct template_run *run, const struct bound_call *call) {
    return copy_dict(run, call->self.dict);
}

static const struct call_row dict_rows[] = {
    {"items", dict_items, "/", 0},   {"keys", dict_keys, "/", 0},
    {"values", dict_values, "/", 0}, {"get", dict_get, "key default /", 1},
    {"copy", dict_copy, "/", 0},
};
const struct call_table dict_methods = {dict_rows, ARRAY_COUNT(dict_rows)};

/* Lists. */

static struct value list_index_of(struct template_run *run, const struct bound_call *call) {
    for (int i = 0; i < call->self.list->n; i++)
        if (value_equal(run, call->self.list->items[i], call->args[0])) return value_int(i);
    run_fail(run, "the value is not in list");
}

static struct value list_count(struct template_run *run, const struct bound_call *call) {
    int64_t n = 0;
    for (int i = 0; i < call->self.list->n; i++)
        n += value_equal(run, call->self.list->items[i], call->args[0]);
    return value_int(n);
}

static struct value list_copy(struct template_run *run, const struct bound_call *call) {
    struct value list = value_list(run, call->self.list->type);
    for (int i = 0; i < call->self.list->n; i++) list_append(run, list, call->self.list->items[i]);
    return list;
}

static struct value group_key(struct template_run *run, const struct bound_call *call) {
    (void)run;
    return call->self.list->items[0];
}
static struct value group_list(struct template_run *run, const struct bound_call *call) {
    (void)run;
    return call->self.list->items[1];
}

static const struct call_row list_rows[] = {
    {"index", list_index_of, "value /", 1},
    {"count", list_count, "value /", 1},
    {"copy", list_copy, "/", 0},
    {"grouper", group_key, NULL, 0},
    {"list", group_list, NULL, 0},
};
const struct call_table list_methods = {list_rows, ARRAY_COUNT(list_rows)};

/* The variable loop. */

static struct value item_beside(struct template_run *run, const struct loop_state *state, int at,
                                const char *name) {
    if (at >= 0 && at < state->items->n) return state->items->items[at];
    return value_undefined(run, "there is no %s item", name);
}

#define LOOP(name, result) \
    static struct value name(struct template_run *r, const struct bound_call *c) { \
        const struct loop_state *l = c->self.loop; \
        (void)r, (void)l; \
        return result; \
    }
LOOP(loop_index, value_int(l->at + 1))
LOOP(loop_index0, value_int(l->at))
LOOP(loop_revindex, value_int(l->items->n - l->at))
LOOP(loop_revindex0, value_int(l->items->n - l->at - 1))
LOOP(loop_first, value_bool(l->at == 0))
LOOP(loop_last, value_bool(l->at == l->items->n - 1))
LOOP(loop_length, value_int(l->items->n))
LOOP(loop_previtem, item_beside(r, l, l->at - 1, "previous"))
LOOP(loop_nextitem, item_beside(r, l, l->at + 1, "next"))
LOOP(loop_depth, value_int(1))
LOOP(loop_depth0, value_int(0))

static struct value loop_cycle(struct template_run *run, const struct bound_call *call) {
    if (call->all->n == 0) run_fail(run, "no items for cycling given");
    return call->all->items[call->self.loop->at % call->all->n];
}

static struct value loop_changed(struct template_run *run, const struct bound_call *call) {
    struct value now = value_list(run, LIST_TUPLE);
    for (int i = 0; i < call->all->n; i++) list_append(run, now, call->all->items[i]);
    bool changed = call->self.loop->changed.kind == VALUE_ABSENT ||
                   !value_equal(run, call->self.loop->changed, now);
    call->self.loop->changed = now;
    return value_bool(changed);
}

static const struct call_row loop_rows[] = {
    {"index", loop_index, NULL, 0},       {"index0", loop_index0, NULL, 0},
    {"revindex", loop_revindex, NULL, 0}, {"revindex0", loop_revindex0, NULL, 0},
    {"first", loop_first, NULL, 0},       {"last", loop_last, NULL, 0},
    {"length", loop_length, NULL, 0},     {"previtem", loop_previtem, NULL, 0},
    {"nextitem", loop_nextitem, NULL, 0}, {"depth", loop_depth, NULL, 0},
    {"depth0", loop_depth0, NULL, 0},     {"cycle", loop_cycle, "*", 0},
    {"changed", loop_changed, "*", 0},
};
const struct call_table loop_methods = {loop_rows, ARRAY_COUNT(loop_rows)};
