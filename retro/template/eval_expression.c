/* retro/template/eval_expression.c: a template's expressions, evaluated; macros, called. */
#include <string.h>

#include "retro/template/template_private.h"

static struct call_arguments arguments_of(struct template_run *r, const struct node *n) {
    struct call_arguments a = {0};
    int count = 0, keywords = 0;
    for (const struct node *item = n->list; item; item = item->next) count++;
    for (const struct node *item = n->keywords; item; item = item->next) keywords++;
    a.items = memory_take(r->m, (size_t)count * sizeof *a.items);
    a.keywords = memory_take(r->m, (size_t)keywords * sizeof *a.keywords);
    for (const struct node *item = n->list; item; item = item->next) {
        a.items[a.n] = run_expression(r, item);
        a.n++;
    }
    for (const struct node *item = n->keywords; item; item = item->next) {
        a.keywords[a.n_keywords] = (struct dict_entry){value_string(item->name), run_expression(r, item->left)};
        a.n_keywords++;
    }
    return a;
}

static struct value list_of(struct template_run *r, const struct node *n, enum list_type type) {
    struct value v = value_list(r, type);
    for (const struct node *item = n->list; item; item = item->next) list_append(r, v, run_expression(r, item));
    return v;
}

static struct value dict_of(struct template_run *r, const struct node *n) {
    struct value v = value_dict(r);
    for (const struct node *key = n->list; key; key = key->next->next) {
        struct value k = run_expression(r, key);
        dict_set(r, v.dict, k, run_expression(r, key->next));
    }
    return v;
}

static struct value concat_run(struct template_run *r, const struct node *n) {
    struct text_builder b = {.m = r->m};
    for (const struct node *item = n->list; item; item = item->next) value_write(r, &b, run_expression(r, item));
    return value_string(builder_string(&b));
}

static struct value comparison_run(struct template_run *r, const struct node *n) {
    struct value left = run_expression(r, n->left);
    for (const struct node *operand = n->list; operand; operand = operand->next) {
        struct value right = run_expression(r, operand->left);
        r->line = operand->line;
        if (!operator_compare(r, operand->operator, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value choice_run(struct template_run *r, const struct node *n) {
    if (value_truth(r, run_expression(r, n->right))) return run_expression(r, n->left);
    if (n->other) return run_expression(r, n->other);
    return value_undefined(r, "the inline if-expression on line %d evaluated to false and no else section was defined.",
                           n->line);
}

static struct value item_read(struct template_run *r, const struct node *n) {
    struct value of = run_expression(r, n->left);
    if (n->right->kind != NODE_SLICE) {
        struct value key = run_expression(r, n->right);
        r->line = n->line;
        return value_item(r, of, key);
    }
    struct value bounds[3];
    const struct node *parts[3] = {n->right->left, n->right->right, n->right->other};
    for (int i = 0; i < 3; i++) bounds[i] = parts[i] ? run_expression(r, parts[i]) : value_none();
    r->line = n->line;
    return value_slice(r, of, bounds);
}

/* A filter or a test that is not known fails where it is reached, as in Jinja: templates name those of other programs.
 */
static struct value call_row_of(struct template_run *r, const struct node *n) {
    const char *kind = n->kind == NODE_FILTER ? "filter" : "test";
    if (n->row == NULL) run_refuse(r, "the %s %.*s", kind, (int)n->name->size, n->name->text);
    struct value self = run_expression(r, n->left);
    struct call_arguments a = arguments_of(r, n);
    r->line = n->line;
    return call_row_apply(r, n->row, self, &a);
}

static struct value call_of(struct template_run *r, const struct node *n) {
    struct value callee = run_expression(r, n->left);
    struct call_arguments a = arguments_of(r, n);
    r->line = n->line;
    return call_value(r, callee, &a);
}

static struct value attribute_read(struct template_run *r, const struct node *n) {
    struct value of = run_expression(r, n->left);
    r->line = n->line;
    return value_attribute(r, of, n->name);
}

static struct value unary_run(struct template_run *r, const struct node *n) {
    struct value v = run_expression(r, n->left);
    return n->operator== OPERATOR_NOT ? value_bool(!value_truth(r, v)) : operator_unary(r, n->operator, v);
}

static struct value operator_run(struct template_run *r, const struct node *n) {
    struct value left = run_expression(r, n->left), right = run_expression(r, n->right);
    r->line = n->line;
    return operator_apply(r, n->operator, left, right);
}

/* and, or: the operand that decides. */
static struct value decision_run(struct template_run *r, const struct node *n) {
    struct value left = run_expression(r, n->left);
    return value_truth(r, left) == (n->kind == NODE_OR) ? left : run_expression(r, n->right);
}

static struct value node_evaluate(struct template_run *r, const struct node *n) {
    switch (n->kind) {
        case NODE_CONSTANT: return n->constant;
        case NODE_NAME: return scope_get(r, n->name);
        case NODE_BODY_TEXT: return r->body_text;
        case NODE_LIST: return list_of(r, n, LIST_PLAIN);
        case NODE_TUPLE: return list_of(r, n, LIST_TUPLE);
        case NODE_DICT: return dict_of(r, n);
        case NODE_ATTRIBUTE: return attribute_read(r, n);
        case NODE_ITEM: return item_read(r, n);
        case NODE_CALL: return call_of(r, n);
        case NODE_FILTER:
        case NODE_TEST: return call_row_of(r, n);
        case NODE_UNARY: return unary_run(r, n);
        case NODE_BINARY: return operator_run(r, n);
        case NODE_CONCAT: return concat_run(r, n);
        case NODE_COMPARE: return comparison_run(r, n);
        case NODE_AND:
        case NODE_OR: return decision_run(r, n);
        case NODE_CHOICE: return choice_run(r, n);
        default: CHECK(false);
    }
}

struct value run_expression(struct template_run *r, const struct node *n) {
    run_enter(r);
    r->line = n->line;
    struct value v = node_evaluate(r, n);
    run_leave(r);
    return v;
}

/* Macros. */

static const struct dict_entry *take_keyword(const struct call_arguments *a, const struct template_string *name,
                                             int *taken) {
    for (int i = 0; i < a->n_keywords; i++) {
        if (!string_equal(a->keywords[i].key.string, name)) continue;
        ++*taken;
        return &a->keywords[i];
    }
    return NULL;
}

static bool body_reads(const struct node *n, const char *name);

static bool list_reads(const struct node *n, const char *name) {
    for (; n; n = n->next)
        if (body_reads(n, name)) return true;
    return false;
}

static bool body_reads(const struct node *n, const char *name) {
    if (n == NULL) return false;
    if (n->kind == NODE_NAME && string_is(n->name, name)) return true;
    return body_reads(n->left, name) || body_reads(n->right, name) || list_reads(n->other, name) ||
           list_reads(n->list, name) || list_reads(n->keywords, name) || list_reads(n->body, name);
}

static void bind_parameters(struct template_run *r, const struct node *macro, const struct call_arguments *a) {
    int i = 0, taken = 0;
    const struct template_string *caller = string_of(r->m, "caller", strlen("caller"), false);
    for (const struct node *p = macro->list; p; p = p->next, i++) {
        const struct dict_entry *keyword = i < a->n ? NULL : take_keyword(a, p->name, &taken);
        if (i < a->n)
            scope_set(r, p->name, a->items[i]);
        else if (keyword)
            scope_set(r, p->name, keyword->value);
        else if (p->left)
            scope_set(r, p->name, run_expression(r, p->left));
        else
            scope_set(r, p->name,
                      value_undefined(r, "parameter '%.*s' was not provided", (int)p->name->size, p->name->text));
    }
    const struct dict_entry *given = take_keyword(a, caller, &taken);
    if (given) scope_set(r, caller, given->value);
    if (list_reads(macro->body, "varargs") || list_reads(macro->body, "kwargs"))
        run_refuse(r, "varargs or kwargs in a macro");
    if (given && !list_reads(macro->body, "caller"))
        run_fail(r, "macro '%.*s' was invoked with two values for the special caller argument or takes no caller",
                 (int)macro->name->size, macro->name->text);
    if (a->n > i)
        run_fail(r, "macro '%.*s' takes not more than %d argument(s)", (int)macro->name->size, macro->name->text, i);
    if (taken < a->n_keywords)
        run_fail(r, "macro '%.*s' takes no such keyword argument", (int)macro->name->size, macro->name->text);
}

struct value run_macro(struct template_run *r, const struct template_callable *c, const struct call_arguments *a) {
    struct template_scope *outer = r->scope;
    int line = r->line;
    r->scope = scope_open(r, c->scope);
    bind_parameters(r, c->macro, a);
    struct value text = run_capture(r, c->macro->body);
    r->scope = outer;
    r->line = line;
    return text;
}
