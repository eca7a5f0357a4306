/* retro/template/eval.c: a template's statements, carried out; opening a template and rendering it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* Limits and failures. */

void run_step(struct template_run *run, int64_t n) {
    run->steps += n;
    if (run->steps > TEMPLATE_MAX_STEPS)
        memory_fail(run->m, STATUS_TOO_LARGE,
                    "line %d: the chat template takes more than %d steps for this request",
                    run->line, TEMPLATE_MAX_STEPS);
}

void run_enter(struct template_run *run) {
    run_step(run, 1);
    if (++run->depth > TEMPLATE_MAX_DEPTH)
        memory_fail(run->m, STATUS_TOO_LARGE,
                    "line %d: values or calls nested deeper than %d levels", run->line,
                    TEMPLATE_MAX_DEPTH);
}

void run_leave(struct template_run *run) { run->depth--; }

void run_fail(struct template_run *run, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(run->m, STATUS_INVALID, "chat template, line %d: %s", run->line, text);
}

void run_refuse(struct template_run *run, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(run->m, STATUS_UNSUPPORTED, "chat template, line %d: %s is not supported",
                run->line, text);
}

void run_need_defined(struct template_run *run, struct value value) {
    if (value.kind == VALUE_UNDEFINED)
        run_fail(run, "%.*s", (int)value.string->size, value.string->text);
}

/* Scopes. */

struct template_scope *scope_open(struct template_run *run, struct template_scope *parent) {
    struct template_scope *scope = memory_take(run->m, sizeof *scope);
    scope->parent = parent;
    return scope;
}

enum { SCOPE_PLAIN = 16 }; /* entries that are looked through */

static struct scope_entry *scope_find(const struct template_scope *scope,
                                      const struct template_string *name) {
    int plain = min_int(scope->n, SCOPE_PLAIN);
    for (int i = 0; i < plain; i++)
        if (string_equal(scope->entries[i].name, name)) return &scope->entries[i];
    if (scope->n == plain) return NULL;
    uint64_t hash = lookup_hash(name->text, name->size);
    size_t at = 0;
    for (int i; (i = lookup_next(&scope->places, hash, &at)) >= 0;)
        if (string_equal(scope->entries[i].name, name)) return &scope->entries[i];
    return NULL;
}

void scope_set(struct template_run *run, const struct template_string *name, struct value value) {
    struct template_scope *scope = run->scope;
    struct scope_entry *there = scope_find(scope, name);
    if (there) {
        there->value = value;
        return;
    }
    if (scope->n >= SCOPE_PLAIN)
        memory_lookup_add(run->m, &scope->places, lookup_hash(name->text, name->size), scope->n);
    scope->entries =
        memory_grow(run->m, scope->entries, scope->n, &scope->capacity, sizeof *scope->entries);
    scope->entries[scope->n] = (struct scope_entry){name, value};
    scope->n++;
}

struct value scope_get(struct template_run *run, const struct template_string *name) {
    for (const struct template_scope *scope = run->scope; scope; scope = scope->parent) {
        const struct scope_entry *there = scope_find(scope, name);
        run_step(run, 1);
        if (there) return there->value;
    }
    const struct call_row *row = global_find(name);
    if (row)
        return value_callable(run, (struct template_callable){.kind = CALLABLE_GLOBAL, .row = row});
    return value_undefined(run, "'%.*s' is undefined", (int)name->size, name->text);
}

/* Statements. */

/* How a body ended: break and continue leave the bodies up to their loop's. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow run_nodes(struct template_run *run, const struct node *node);

static void target_assign(struct template_run *run, const struct node *target, struct value value) {
    run->line = target->line;
    if (target->kind == NODE_NAME) {
        scope_set(run, target->name, value);
    } else if (target->kind == NODE_ATTRIBUTE) {
        struct value of = scope_get(run, target->left->name);
        if (of.kind != VALUE_NAMESPACE)
            run_fail(run, "cannot assign attribute on non-namespace object");
        if (target->name->text[0] == '_')
            run_fail(run, "a namespace takes no attribute that begins with an underscore");
        dict_set(run, of.dict, value_string(target->name), value);
    } else {
        const struct template_list *items = value_items(run, value);
        int i = 0;
        for (const struct node *part = target->list; part; part = part->next, i++) {
            if (i >= items->n) run_fail(run, "not enough values to unpack (got %d)", items->n);
            target_assign(run, part, items->items[i]);
        }
        if (i < items->n) run_fail(run, "too many values to unpack (expected %d)", i);
    }
}

/* The scope of a loop's next round: that of the last one, emptied, unless a macro holds it. */
static void open_round(struct template_run *run, struct template_scope **inner,
                       struct template_scope *outer) {
    if (*inner == NULL || (*inner)->held) *inner = scope_open(run, outer);
    (*inner)->n = 0;
    (*inner)->places = (struct lookup_table){0};
    run->scope = *inner;
}

/* The items that the loop's own condition lets through. */
static const struct template_list *loop_items(struct template_run *run, const struct node *node) {
    struct value over = run_expression(run, node->left);
    const struct template_list *items = value_items(run, over);
    if (node->right == NULL) return items;
    struct value kept = value_list(run, LIST_PLAIN);
    struct template_scope *outer = run->scope, *inner = NULL;
    for (int i = 0; i < items->n; i++) {
        open_round(run, &inner, outer);
        target_assign(run, node->target, items->items[i]);
        if (value_truth(run, run_expression(run, node->right)))
            list_append(run, kept, items->items[i]);
    }
    run->scope = outer;
    return kept.list;
}

static enum flow run_for(struct template_run *run, const struct node *node) {
    struct template_scope *outer = run->scope, *inner = NULL;
    const struct template_list *items = loop_items(run, node);
    struct value loop = {.kind = VALUE_LOOP, .loop = memory_take(run->m, sizeof *loop.loop)};
    const struct template_string *name = string_of(run->m, "loop", strlen("loop"), false);
    loop.loop->items = items;
    bool completed = false;
    for (int i = 0; i < items->n; i++) {
        run_step(run, 1);
        loop.loop->at = i;
        open_round(run, &inner, outer);
        scope_set(run, name, loop);
        target_assign(run, node->target, items->items[i]);
        enum flow flow = run_nodes(run, node->body);
        completed = completed || flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    run->scope = outer;
    /* As in Jinja: else is for loops of which no round came to its end. */
    if (completed) return FLOW_NEXT;
    run->scope = scope_open(run, outer);
    enum flow flow = run_nodes(run, node->other);
    run->scope = outer;
    return flow;
}

struct value run_capture(struct template_run *run, const struct node *body) {
    struct text_builder text = {.m = run->m}, *outer = run->out;
    run->out = &text;
    run_nodes(run, body);
    run->out = outer;
    return value_string(builder_string(&text));
}

/* A body in a scope of its own. */
static struct value capture_inner(struct template_run *run, const struct node *body) {
    struct template_scope *outer = run->scope;
    run->scope = scope_open(run, outer);
    struct value text = run_capture(run, body);
    run->scope = outer;
    return text;
}

static struct value text_filter(struct template_run *run, const struct node *filters,
                                struct value text) {
    struct value outer = run->body_text;
    run->body_text = text;
    struct value value = run_expression(run, filters);
    run->body_text = outer;
    return value;
}

static enum flow run_with(struct template_run *run, const struct node *node) {
    struct template_scope *outer = run->scope, *inner = scope_open(run, outer);
    for (const struct node *set = node->list; set; set = set->next) {
        run->scope = outer;
        struct value value = run_expression(run, set->left);
        run->scope = inner;
        target_assign(run, set->target, value);
    }
    run->scope = inner;
    enum flow flow = run_nodes(run, node->body);
    run->scope = outer;
    return flow;
}

static struct value macro_value(struct template_run *run, const struct node *node) {
    for (struct template_scope *scope = run->scope; scope; scope = scope->parent)
        scope->held = true;
    return value_callable(run, (struct template_callable){
                                   .kind = CALLABLE_MACRO, .macro = node, .scope = run->scope});
}

static void run_call_block(struct template_run *run, const struct node *node) {
    struct value callee = run_expression(run, node->left->left);
    struct call_arguments arguments = {0};
    struct dict_entry *keywords;
    int count = 0, i = 0;
    for (const struct node *the_node = node->left->keywords; the_node; the_node = the_node->next)
        count++;
    keywords = memory_take(run->m, (size_t)(count + 1) * sizeof *keywords);
    for (const struct node *the_node = node->left->keywords; the_node; the_node = the_node->next) {
        keywords[i] =
            (struct dict_entry){value_string(the_node->name), run_expression(run, the_node->left)};
        i++;
    }
    keywords[count] =
        (struct dict_entry){value_string(node->right->name), macro_value(run, node->right)};
    struct value list = value_list(run, LIST_PLAIN);
    for (const struct node *item = node->left->list; item; item = item->next)
        list_append(run, list, run_expression(run, item));
    arguments = (struct call_arguments){list.list->items, list.list->n, keywords, count + 1};
    value_write(run, run->out, call_value(run, callee, &arguments));
}

static enum flow run_node(struct template_run *run, const struct node *node) {
    run->line = node->line;
    switch (node->kind) {
        case NODE_TEXT: builder_add(run->out, node->constant.string); return FLOW_NEXT;
        case NODE_PRINT:
            value_write(run, run->out, run_expression(run, node->left));
            return FLOW_NEXT;
        case NODE_IF:
            return run_nodes(
                run, value_truth(run, run_expression(run, node->left)) ? node->body : node->other);
        case NODE_FOR: return run_for(run, node);
        case NODE_SET:
            target_assign(run, node->target, run_expression(run, node->left));
            return FLOW_NEXT;
        case NODE_SET_BODY:
            target_assign(run, node->target,
                          text_filter(run, node->left, capture_inner(run, node->body)));
            return FLOW_NEXT;
        case NODE_MACRO: scope_set(run, node->name, macro_value(run, node)); return FLOW_NEXT;
        case NODE_CALL_BLOCK: run_call_block(run, node); return FLOW_NEXT;
        case NODE_FILTER_BLOCK:
            value_write(run, run->out,
                        text_filter(run, node->left, capture_inner(run, node->body)));
            return FLOW_NEXT;
        case NODE_WITH: return run_with(run, node);
        case NODE_BLOCK: return run_nodes(run, node->body);
        case NODE_BREAK: return FLOW_BREAK;
        case NODE_CONTINUE: return FLOW_CONTINUE;
        default: CHECK(false);
    }
}

static enum flow run_nodes(struct template_run *run, const struct node *node) {
    enum flow flow = FLOW_NEXT;
    run_enter(run);
    for (; node && flow == FLOW_NEXT; node = node->next) flow = run_node(run, node);
    run_leave(run);
    return flow;
}

void run_body(struct template_run *run, const struct node *body) { run_nodes(run, body); }

/* Opening. */

static void note_name(struct template *template, const struct template_string *name) {
    template->names = memory_grow(&template->memory, template->names, template->n_names,
                                  &template->names_capacity, sizeof *template->names);
    template->names[template->n_names] =
        string_of(&template->memory, name->text, name->size, false)->text;
    template->n_names++;
}

bool template_reads(const struct template *template, const char *name) {
    for (int i = 0; i < template->n_names; i++)
        if (strcmp(template->names[i], name) == 0) return true;
    return false;
}

struct text_span template_literals(const struct template *template) {
    return (struct text_span){template->literals.text, template->literals.size};
}

static void template_parse(struct template *template, struct text_span source) {
    struct template_tokens tokens = {0};
    lexer_read(&template->memory, source, &tokens);
    template->literals.m = &template->memory;
    for (int i = 0; i < tokens.n; i++) {
        const struct template_token *token = &tokens.tokens[i];
        if (token->kind == TOKEN_NAME) note_name(template, token->text);
        if (token->kind != TOKEN_TEXT && token->kind != TOKEN_STRING) continue;
        builder_add(&template->literals, token->text);
        builder_bytes(&template->literals, "", NULL, 1);
    }
    struct template_parser parser = {.m = &template->memory, .at = tokens.tokens};
    template->body = parser_template(&parser);
}

enum status template_open(struct template **out, struct text_span source, struct error *e) {
    *out = NULL;
    if (source.size > TEMPLATE_MAX_SOURCE)
        return error_set(e, STATUS_TOO_LARGE, "the chat template has %zu bytes, the limit is %d",
                         source.size, TEMPLATE_MAX_SOURCE);
    if (!utf8_is_valid(source.text, source.size))
        return error_set(e, STATUS_INVALID, "the chat template is not valid UTF-8");
    struct template *template = xcalloc(1, sizeof *template);
    template->memory.e = e;
    if (setjmp(template->memory.failed)) {
        template_close(template);
        return error_prefix(e, "chat template");
    }
    template_parse(template, source);
    *out = template;
    return STATUS_OK;
}

void template_close(struct template *template) {
    if (template == NULL) return;
    memory_release(&template->memory);
    free(template);
}

/* Rendering. */

static void set_variables(struct template_run *run, const struct template_input *input) {
    run->scope = scope_open(run, NULL);
    for (int i = 0; i < input->n; i++) {
        const struct template_variable *variable = &input->variables[i];
        scope_set(run, string_of(run->m, variable->name, strlen(variable->name), false),
                  value_from_json(run, variable->value, !variable->trusted));
    }
    run->scope = scope_open(run, run->scope);
}

static void keep_output(const struct text_builder *text, struct template_output *out) {
    buffer_append(&out->text, text->text, text->size);
    if (text->marks) {
        buffer_append(&out->marks, text->marks, text->size);
        return;
    }
    for (size_t i = 0; i < text->size; i++) buffer_append(&out->marks, "", 1);
}

enum status template_render(const struct template *template, const struct template_input *input,
                            struct template_output *out, struct error *e) {
    struct template_run run = {.now = input->now, .line = 1};
    struct text_builder text = {.m = &run.memory};
    run.m = &run.memory;
    run.out = &text;
    run.memory.e = e;
    if (setjmp(run.memory.failed)) {
        memory_release(&run.memory);
        return e->status;
    }
    set_variables(&run, input);
    run_body(&run, template->body);
    keep_output(&text, out);
    memory_release(&run.memory);
    return STATUS_OK;
}

void template_output_free(struct template_output *out) {
    buffer_free(&out->text);
    buffer_free(&out->marks);
}
