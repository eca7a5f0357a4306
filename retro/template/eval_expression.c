/* retro/template/eval_expression.c: a template's expressions, evaluated; macros, called. */
#include <string.h>

#include "retro/template/template_private.h"

static struct call_arguments arguments_of(struct template_run *run, const struct node *node) {
    struct call_arguments arguments = {0};
    int count = 0, keywords = 0;
    for (const struct node *item = node->list; item; item = item->next) count++;
    for (const struct node *item = node->keywords; item; item = item->next) keywords++;
    arguments.items = memory_take(run->m, (size_t)count * sizeof *arguments.items);
    arguments.keywords = memory_take(run->m, (size_t)keywords * sizeof *arguments.keywords);
    for (const struct node *item = node->list; item; item = item->next) {
        arguments.items[arguments.n] = run_expression(run, item);
        arguments.n++;
    }
    for (const struct node *item = node->keywords; item; item = item->next) {
        arguments.keywords[arguments.n_keywords] =
            (struct dict_entry){value_string(item->name), run_expression(run, item->left)};
        arguments.n_keywords++;
    }
    return arguments;
}

static struct value list_of(struct template_run *run, const struct node *node,
                            enum list_type type) {
    struct value value = value_list(run, type);
    for (const struct node *item = node->list; item; item = item->next)
        list_append(run, value, run_expression(run, item));
    return value;
}

static struct value dict_of(struct template_run *run, const struct node *node) {
    struct value value = value_dict(run);
    for (const struct node *key = node->list; key; key = key->next->next) {
        struct value the_value = run_expression(run, key);
        dict_set(run, value.dict, the_value, run_expression(run, key->next));
    }
    return value;
}

static struct value concat_run(struct template_run *run, const struct node *node) {
    struct text_builder builder = {.m = run->m};
    for (const struct node *item = node->list; item; item = item->next)
        value_write(run, &builder, run_expression(run, item));
    return value_string(builder_string(&builder));
}

static struct value comparison_run(struct template_run *run, const struct node *node) {
    struct value left = run_expression(run, node->left);
    for (const struct node *operand = node->list; operand; operand = operand->next) {
        struct value right = run_expression(run, operand->left);
        run->line = operand->line;
        if (!operator_compare(run, operand->operator, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value choice_run(struct template_run *run, const struct node *node) {
    if (value_truth(run, run_expression(run, node->right))) return run_expression(run, node->left);
    if (node->other) return run_expression(run, node->other);
    return value_undefined(
        run,
        "the inline if-expression on line %d evaluated to false and no else section was defined.",
        node->line);
}

static struct value item_read(struct template_run *run, const struct node *node) {
    struct value of = run_expression(run, node->left);
    if (node->right->kind != NODE_SLICE) {
        struct value key = run_expression(run, node->right);
        run->line = node->line;
        return value_item(run, of, key);
    }
    struct value bounds[3];
    const struct node *parts[3] = {node->right->left, node->right->right, node->right->other};
    for (int i = 0; i < 3; i++) bounds[i] = parts[i] ? run_expression(run, parts[i]) : value_none();
    run->line = node->line;
    return value_slice(run, of, bounds);
}

/* A filter or a test that is not known fails where it is reached, as in Jinja: templates name those
 * of other programs.
 */
static struct value call_row_of(struct template_run *run, const struct node *node) {
    const char *kind = node->kind == NODE_FILTER ? "filter" : "test";
    if (node->row == NULL)
        run_refuse(run, "the %s %.*s", kind, (int)node->name->size, node->name->text);
    struct value self = run_expression(run, node->left);
    struct call_arguments arguments = arguments_of(run, node);
    run->line = node->line;
    return call_row_apply(run, node->row, self, &arguments);
}

static struct value call_of(struct template_run *run, const struct node *node) {
    struct value callee = run_expression(run, node->left);
    struct call_arguments arguments = arguments_of(run, node);
    run->line = node->line;
    return call_value(run, callee, &arguments);
}

static struct value attribute_read(struct template_run *run, const struct node *node) {
    struct value of = run_expression(run, node->left);
    run->line = node->line;
    return value_attribute(run, of, node->name);
}

static struct value unary_run(struct template_run *run, const struct node *node) {
    struct value value = run_expression(run, node->left);
    return node->operator== OPERATOR_NOT ? value_bool(!value_truth(run, value))
                                         : operator_unary(run, node->operator, value);
}

static struct value operator_run(struct template_run *run, const struct node *node) {
    struct value left = run_expression(run, node->left), right = run_expression(run, node->right);
    run->line = node->line;
    return operator_apply(run, node->operator, left, right);
}

/* and, or: the operand that decides. */
static struct value decision_run(struct template_run *run, const struct node *node) {
    struct value left = run_expression(run, node->left);
    return value_truth(run, left) == (node->kind == NODE_OR) ? left
                                                             : run_expression(run, node->right);
}

static struct value node_evaluate(struct template_run *run, const struct node *node) {
    switch (node->kind) {
        case NODE_CONSTANT: return node->constant;
        case NODE_NAME: return scope_get(run, node->name);
        case NODE_BODY_TEXT: return run->body_text;
        case NODE_LIST: return list_of(run, node, LIST_PLAIN);
        case NODE_TUPLE: return list_of(run, node, LIST_TUPLE);
        case NODE_DICT: return dict_of(run, node);
        case NODE_ATTRIBUTE: return attribute_read(run, node);
        case NODE_ITEM: return item_read(run, node);
        case NODE_CALL: return call_of(run, node);
        case NODE_FILTER:
        case NODE_TEST: return call_row_of(run, node);
        case NODE_UNARY: return unary_run(run, node);
        case NODE_BINARY: return operator_run(run, node);
        case NODE_CONCAT: return concat_run(run, node);
        case NODE_COMPARE: return comparison_run(run, node);
        case NODE_AND:
        case NODE_OR: return decision_run(run, node);
        case NODE_CHOICE: return choice_run(run, node);
        default: CHECK(false);
    }
}

struct value run_expression(struct template_run *run, const struct node *node) {
    run_enter(run);
    run->line = node->line;
    struct value value = node_evaluate(run, node);
    run_leave(run);
    return value;
}

/* Macros. */

static const struct dict_entry *take_keyword(const struct call_arguments *arguments,
                                             const struct template_string *name, int *taken) {
    for (int i = 0; i < arguments->n_keywords; i++) {
        if (!string_equal(arguments->keywords[i].key.string, name)) continue;
        ++*taken;
        return &arguments->keywords[i];
    }
    return NULL;
}

static bool body_reads(const struct node *node, const char *name);

static bool list_reads(const struct node *node, const char *name) {
    for (; node; node = node->next)
        if (body_reads(node, name)) return true;
    return false;
}

static bool body_reads(const struct node *node, const char *name) {
    if (node == NULL) return false;
    if (node->kind == NODE_NAME && string_is(node->name, name)) return true;
    return body_reads(node->left, name) || body_reads(node->right, name) ||
           list_reads(node->other, name) || list_reads(node->list, name) ||
           list_reads(node->keywords, name) || list_reads(node->body, name);
}

static void bind_parameters(struct template_run *run, const struct node *macro,
                            const struct call_arguments *arguments) {
    int i = 0, taken = 0;
    const struct template_string *caller = string_of(run->m, "caller", strlen("caller"), false);
    for (const struct node *node = macro->list; node; node = node->next, i++) {
        const struct dict_entry *keyword =
            i < arguments->n ? NULL : take_keyword(arguments, node->name, &taken);
        if (i < arguments->n)
            scope_set(run, node->name, arguments->items[i]);
        else if (keyword)
            scope_set(run, node->name, keyword->value);
        else if (node->left)
            scope_set(run, node->name, run_expression(run, node->left));
        else
            scope_set(run, node->name,
                      value_undefined(run, "parameter '%.*s' was not provided",
                                      (int)node->name->size, node->name->text));
    }
    const struct dict_entry *given = take_keyword(arguments, caller, &taken);
    if (given) scope_set(run, caller, given->value);
    if (list_reads(macro->body, "varargs") || list_reads(macro->body, "kwargs"))
        run_refuse(run, "varargs or kwargs in a macro");
    if (given && !list_reads(macro->body, "caller"))
        run_fail(run,
                 "macro '%.*s' was invoked with two values for the special caller argument or "
                 "takes no caller",
                 (int)macro->name->size, macro->name->text);
    if (arguments->n > i)
        run_fail(run, "macro '%.*s' takes not more than %d argument(s)", (int)macro->name->size,
                 macro->name->text, i);
    if (taken < arguments->n_keywords)
        run_fail(run, "macro '%.*s' takes no such keyword argument", (int)macro->name->size,
                 macro->name->text);
}

struct value run_macro(struct template_run *run, const struct template_callable *callable,
                       const struct call_arguments *arguments) {
    struct template_scope *outer = run->scope;
    int line = run->line;
    run->scope = scope_open(run, callable->scope);
    bind_parameters(run, callable->macro, arguments);
    struct value text = run_capture(run, callable->macro->body);
    run->scope = outer;
    run->line = line;
    return text;
}
