/* retro/template/call.c: calls of filters, tests, methods, globals and macros: finding the row, binding
 * arguments. */
#include <string.h>

#include "retro/template/template_private.h"

const struct call_row *call_row_find(const struct call_row *rows, size_t n, const struct template_string *name) {
    for (size_t i = 0; i < n; i++)
        if (string_is(name, rows[i].name)) return &rows[i];
    return NULL;
}

static const struct call_row *row_find(const struct call_table *table, const struct template_string *name) {
    return call_row_find(table->rows, table->n, name);
}

const struct call_row *filter_find(const struct template_string *name) {
    const struct call_row *row = row_find(&text_filters, name);
    return row ? row : row_find(&list_filters, name);
}

const struct call_row *test_find(const struct template_string *name) { return row_find(&value_tests, name); }
const struct call_row *global_find(const struct template_string *name) { return row_find(&global_functions, name); }

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

static void arguments_bind(struct template_run *r, const struct call_row *row, const struct call_arguments *a,
                           struct bound_call *c) {
    int places = count_places(row->parameters);
    if (a->n > places) run_fail(r, "%s takes at most %d arguments, %d were given", row->name, places, a->n);
    for (int i = 0; i < a->n; i++) c->args[i] = a->items[i];
    for (int i = 0; i < a->n_keywords; i++) {
        const struct template_string *name = a->keywords[i].key.string;
        int place = strchr(row->parameters, '/') ? -1 : place_of(row->parameters, name);
        if (place < 0) run_fail(r, "%s has no argument named %.*s", row->name, (int)name->size, name->text);
        if (c->args[place].kind != VALUE_ABSENT)
            run_fail(r, "%s got two values for the argument %.*s", row->name, (int)name->size, name->text);
        c->args[place] = a->keywords[i].value;
    }
    for (int i = 0; i < row->needed; i++)
        if (c->args[i].kind == VALUE_ABSENT) run_fail(r, "%s needs %d arguments", row->name, row->needed);
}

struct value call_row_apply(struct template_run *r, const struct call_row *row, struct value self,
                            const struct call_arguments *a) {
    struct bound_call c = {.self = self, .all = a, .row = row};
    run_enter(r);
    if (self.kind == VALUE_STRING) run_step(r, (int64_t)self.string->size / 64);
    if (strcmp(row->parameters, "*") != 0)
        arguments_bind(r, row, a, &c);
    else if (a->n < row->needed)
        run_fail(r, "%s needs %d arguments", row->name, row->needed);
    struct value v = row->call(r, &c);
    run_leave(r);
    return v;
}

static struct value call_cycler(struct template_run *r, const struct template_callable *c,
                                const struct call_arguments *a) {
    if (a->n > 0 || a->n_keywords > 0) run_fail(r, "a joiner takes no arguments");
    return (*c->state)++ == 0 ? value_words(r, "") : c->self;
}

struct value call_value(struct template_run *r, struct value v, const struct call_arguments *a) {
    run_need_defined(r, v);
    if (v.kind != VALUE_CALLABLE) run_fail(r, "'%s' object is not callable", value_type(v));
    const struct template_callable *c = v.callable;
    run_enter(r);
    struct value result;
    switch (c->kind) {
        case CALLABLE_MACRO: result = run_macro(r, c, a); break;
        case CALLABLE_JOINER: result = call_cycler(r, c, a); break;
        case CALLABLE_CYCLER: run_fail(r, "'Cycler' object is not callable");
        default: result = call_row_apply(r, c->row, c->self, a);
    }
    run_leave(r);
    return result;
}

int64_t argument_int(struct template_run *r, const struct bound_call *c, int i, int64_t fallback) {
    struct value v = c->args[i];
    if (v.kind == VALUE_ABSENT) return fallback;
    run_need_defined(r, v);
    if (v.kind != VALUE_INT && v.kind != VALUE_BOOL)
        run_fail(r, "%s: argument %d is a '%s', expected an integer", c->row->name, i + 1, value_type(v));
    return value_index(v);
}

bool argument_bool(struct template_run *r, const struct bound_call *c, int i, bool fallback) {
    return c->args[i].kind == VALUE_ABSENT ? fallback : value_truth(r, c->args[i]);
}

const struct template_string *argument_text(struct template_run *r, const struct bound_call *c, int i) {
    struct value v = c->args[i];
    if (v.kind == VALUE_ABSENT || v.kind == VALUE_NONE) return NULL;
    run_need_defined(r, v);
    if (v.kind != VALUE_STRING)
        run_fail(r, "%s: argument %d is a '%s', expected a string", c->row->name, i + 1, value_type(v));
    return v.string;
}
