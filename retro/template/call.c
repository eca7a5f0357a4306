/* retro/template/call.c: calls of filters, tests, methods, globals and macros: finding the row,
 * binding arguments. */
#include <string.h>

#include "retro/template/template_private.h"

const struct call_row *call_row_find(const struct call_row *rows, size_t n,
                                     const struct template_string *name) {
    for (size_t i = 0; i < n; i++)
        if (string_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

static const struct call_row *row_find(const struct call_table *table,
                                       const struct template_string *name) {
    return call_row_find(table->rows, table->n, name);
}

const struct call_row *filter_find(const struct template_string *name) {
    const struct call_row *row = row_find(&text_filters, name);
    return row ? row : row_find(&list_filters, name);
}

const struct call_row *test_find(const struct template_string *name) {
    return row_find(&value_tests, name);
}
const struct call_row *global_find(const struct template_string *name) {
    return row_find(&global_functions, name);
}

const struct call_row *method_find(struct value self, const struct template_string *name) {
    const struct call_row *row = NULL;
    if (self.kind == VALUE_STRING) {
        row = row_find(&text_methods, name);
        return row ? row : row_find(&text_class_methods, name);
    }
    if (self.kind == VALUE_DICT) return row_find(&dict_methods, name);
    if (self.kind == VALUE_LIST) {
        row = row_find(&list_methods, name);
        bool group = row && row->parameters == NULL;
        return group && self.list->type != LIST_GROUP ? NULL : row;
    }
    if (self.kind == VALUE_LOOP) return row_find(&loop_methods, name);
    return NULL;
}

/* The place of a parameter's name in "a b c", or -1. */
static int place_of(const char *parameters, const struct template_string *name) {
    int place = 0;
    for (const char *at = parameters; *at; place++) {
        size_t n = strcspn(at, " ");
        if (n == name->size && memcmp(at, name->text, n) == 0) return place;
        at += n;
        at += strspn(at, " ");
    }
    return -1;
}

static int count_places(const char *parameters) {
    int n = 0;
    for (const char *at = parameters; *at && *at != '/'; n++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return n;
}

static void arguments_bind(struct template_run *run, const struct call_row *row,
                           const struct call_arguments *arguments, struct bound_call *call) {
    int places = count_places(row->parameters);
    if (arguments->n > places)
        run_fail(run, "%s takes at most %d arguments, %d were given", row->name, places,
                 arguments->n);
    for (int i = 0; i < arguments->n; i++) call->args[i] = arguments->items[i];
    for (int i = 0; i < arguments->n_keywords; i++) {
        const struct template_string *name = arguments->keywords[i].key.string;
        int place = strchr(row->parameters, '/') ? -1 : place_of(row->parameters, name);
        if (place < 0)
            run_fail(run, "%s has no argument named %.*s", row->name, (int)name->size, name->text);
        if (call->args[place].kind != VALUE_ABSENT)
            run_fail(run, "%s got two values for the argument %.*s", row->name, (int)name->size,
                     name->text);
        call->args[place] = arguments->keywords[i].value;
    }
    for (int i = 0; i < row->needed; i++)
        if (call->args[i].kind == VALUE_ABSENT)
            run_fail(run, "%s needs %d arguments", row->name, row->needed);
}

struct value call_row_apply(struct template_run *run, const struct call_row *row, struct value self,
                            const struct call_arguments *arguments) {
    struct bound_call call = {.self = self, .all = arguments, .row = row};
    run_enter(run);
    if (self.kind == VALUE_STRING) run_step(run, (int64_t)self.string->size / 64);
    if (strcmp(row->parameters, "*") != 0)
        arguments_bind(run, row, arguments, &call);
    else if (arguments->n < row->needed)
        run_fail(run, "%s needs %d arguments", row->name, row->needed);
    struct value value = row->call(run, &call);
    run_leave(run);
    return value;
}

static struct value call_cycler(struct template_run *run, const struct template_callable *callable,
                                const struct call_arguments *arguments) {
    if (arguments->n > 0 || arguments->n_keywords > 0) run_fail(run, "a joiner takes no arguments");
    return (*callable->state)++ == 0 ? value_words(run, "") : callable->self;
}

struct value call_value(struct template_run *run, struct value value,
                        const struct call_arguments *arguments) {
    run_need_defined(run, value);
    if (value.kind != VALUE_CALLABLE)
        run_fail(run, "'%s' object is not callable", value_type(value));
    const struct template_callable *callable = value.callable;
    run_enter(run);
    struct value result;
    switch (callable->kind) {
        case CALLABLE_MACRO: result = run_macro(run, callable, arguments); break;
        case CALLABLE_JOINER: result = call_cycler(run, callable, arguments); break;
        case CALLABLE_CYCLER: run_fail(run, "'Cycler' object is not callable");
        default: result = call_row_apply(run, callable->row, callable->self, arguments);
    }
    run_leave(run);
    return result;
}

int64_t argument_int(struct template_run *run, const struct bound_call *call, int i,
                     int64_t fallback) {
    struct value value = call->args[i];
    if (value.kind == VALUE_ABSENT) return fallback;
    run_need_defined(run, value);
    if (value.kind != VALUE_INT && value.kind != VALUE_BOOL)
        run_fail(run, "%s: argument %d is a '%s', expected an integer", call->row->name, i + 1,
                 value_type(value));
    return value_index(value);
}

bool argument_bool(struct template_run *run, const struct bound_call *call, int i, bool fallback) {
    return call->args[i].kind == VALUE_ABSENT ? fallback : value_truth(run, call->args[i]);
}

const struct template_string *argument_text(struct template_run *run, const struct bound_call *call,
                                            int i) {
    struct value value = call->args[i];
    if (value.kind == VALUE_ABSENT || value.kind == VALUE_NONE) return NULL;
    run_need_defined(run, value);
    if (value.kind != VALUE_STRING)
        run_fail(run, "%s: argument %d is a '%s', expected a string", call->row->name, i + 1,
                 value_type(value));
    return value.string;
}
