/* retro/template/eval.c: a template's statements, carried out; opening a template and rendering it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "retro/template/template_private.h"

/* Limits and failures. */

void run_step(struct template_run *r, int64_t n) {
    r->steps += n;
    if (r->steps > TEMPLATE_MAX_STEPS)
        memory_fail(r->m, STATUS_TOO_LARGE, "line %d: the chat template takes more than %d steps for this request",
                    r->line, TEMPLATE_MAX_STEPS);
}

void run_enter(struct template_run *r) {
    run_step(r, 1);
    if (++r->depth > TEMPLATE_MAX_DEPTH)
        memory_fail(r->m, STATUS_TOO_LARGE, "line %d: values or calls nested deeper than %d levels", r->line,
                    TEMPLATE_MAX_DEPTH);
}

void run_leave(struct template_run *r) { r->depth--; }

void run_fail(struct template_run *r, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(r->m, STATUS_INVALID, "chat template, line %d: %s", r->line, text);
}

void run_refuse(struct template_run *r, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(r->m, STATUS_UNSUPPORTED, "chat template, line %d: %s is not supported", r->line, text);
}

void run_need_defined(struct template_run *r, struct value v) {
    if (v.kind == VALUE_UNDEFINED) run_fail(r, "%.*s", (int)v.string->size, v.string->text);
}

/* Scopes. */

struct template_scope *scope_open(struct template_run *r, struct template_scope *parent) {
    struct template_scope *s = memory_take(r->m, sizeof *s);
    s->parent = parent;
    return s;
}

enum { SCOPE_PLAIN = 16 }; /* entries that are looked through */

static struct scope_entry *scope_find(const struct template_scope *s, const struct template_string *name) {
    int plain = min_int(s->n, SCOPE_PLAIN);
    for (int i = 0; i < plain; i++)
        if (string_equal(s->entries[i].name, name)) return &s->entries[i];
    if (s->n == plain) return NULL;
    uint64_t hash = lookup_hash(name->text, name->size);
    size_t at = 0;
    for (int i; (i = lookup_next(&s->places, hash, &at)) >= 0;)
        if (string_equal(s->entries[i].name, name)) return &s->entries[i];
    return NULL;
}

void scope_set(struct template_run *r, const struct template_string *name, struct value v) {
    struct template_scope *s = r->scope;
    struct scope_entry *there = scope_find(s, name);
    if (there) {
        there->value = v;
        return;
    }
    if (s->n >= SCOPE_PLAIN) memory_lookup_add(r->m, &s->places, lookup_hash(name->text, name->size), s->n);
    s->entries = memory_grow(r->m, s->entries, s->n, &s->capacity, sizeof *s->entries);
    s->entries[s->n] = (struct scope_entry){name, v};
    s->n++;
}

struct value scope_get(struct template_run *r, const struct template_string *name) {
    for (const struct template_scope *s = r->scope; s; s = s->parent) {
        const struct scope_entry *there = scope_find(s, name);
        run_step(r, 1);
        if (there) return there->value;
    }
    const struct call_row *row = global_find(name);
    if (row) return value_callable(r, (struct template_callable){.kind = CALLABLE_GLOBAL, .row = row});
    return value_undefined(r, "'%.*s' is undefined", (int)name->size, name->text);
}

/* Statements. */

/* How a body ended: break and continue leave the bodies up to their loop's. */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow run_nodes(struct template_run *r, const struct node *n);

static void target_assign(struct template_run *r, const struct node *target, struct value v) {
    r->line = target->line;
    if (target->kind == NODE_NAME) {
        scope_set(r, target->name, v);
    } else if (target->kind == NODE_ATTRIBUTE) {
        struct value of = scope_get(r, target->left->name);
        if (of.kind != VALUE_NAMESPACE) run_fail(r, "cannot assign attribute on non-namespace object");
        if (target->name->text[0] == '_') run_fail(r, "a namespace takes no attribute that begins with an underscore");
        dict_set(r, of.dict, value_string(target->name), v);
    } else {
        const struct template_list *items = value_items(r, v);
        int i = 0;
        for (const struct node *part = target->list; part; part = part->next, i++) {
            if (i >= items->n) run_fail(r, "not enough values to unpack (got %d)", items->n);
            target_assign(r, part, items->items[i]);
        }
        if (i < items->n) run_fail(r, "too many values to unpack (expected %d)", i);
    }
}

/* The scope of a loop's next round: that of the last one, emptied, unless a macro holds it. */
static void open_round(struct template_run *r, struct template_scope **inner, struct template_scope *outer) {
    if (*inner == NULL || (*inner)->held) *inner = scope_open(r, outer);
    (*inner)->n = 0;
    (*inner)->places = (struct lookup_table){0};
    r->scope = *inner;
}

/* The items that the loop's own condition lets through. */
static const struct template_list *loop_items(struct template_run *r, const struct node *n) {
    struct value over = run_expression(r, n->left);
    const struct template_list *items = value_items(r, over);
    if (n->right == NULL) return items;
    struct value kept = value_list(r, LIST_PLAIN);
    struct template_scope *outer = r->scope, *inner = NULL;
    for (int i = 0; i < items->n; i++) {
        open_round(r, &inner, outer);
        target_assign(r, n->target, items->items[i]);
        if (value_truth(r, run_expression(r, n->right))) list_append(r, kept, items->items[i]);
    }
    r->scope = outer;
    return kept.list;
}

static enum flow run_for(struct template_run *r, const struct node *n) {
    struct template_scope *outer = r->scope, *inner = NULL;
    const struct template_list *items = loop_items(r, n);
    struct value loop = {.kind = VALUE_LOOP, .loop = memory_take(r->m, sizeof *loop.loop)};
    const struct template_string *name = string_of(r->m, "loop", strlen("loop"), false);
    loop.loop->items = items;
    bool completed = false;
    for (int i = 0; i < items->n; i++) {
        run_step(r, 1);
        loop.loop->at = i;
        open_round(r, &inner, outer);
        scope_set(r, name, loop);
        target_assign(r, n->target, items->items[i]);
        enum flow flow = run_nodes(r, n->body);
        completed = completed || flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    r->scope = outer;
    /* As in Jinja: else is for loops of which no round came to its end. */
    if (completed) return FLOW_NEXT;
    r->scope = scope_open(r, outer);
    enum flow flow = run_nodes(r, n->other);
    r->scope = outer;
    return flow;
}

struct value run_capture(struct template_run *r, const struct node *body) {
    struct text_builder text = {.m = r->m}, *outer = r->out;
    r->out = &text;
    run_nodes(r, body);
    r->out = outer;
    return value_string(builder_string(&text));
}

/* A body in a scope of its own. */
static struct value capture_inner(struct template_run *r, const struct node *body) {
    struct template_scope *outer = r->scope;
    r->scope = scope_open(r, outer);
    struct value text = run_capture(r, body);
    r->scope = outer;
    return text;
}

static struct value text_filter(struct template_run *r, const struct node *filters, struct value text) {
    struct value outer = r->body_text;
    r->body_text = text;
    struct value v = run_expression(r, filters);
    r->body_text = outer;
    return v;
}

static enum flow run_with(struct template_run *r, const struct node *n) {
    struct template_scope *outer = r->scope, *inner = scope_open(r, outer);
    for (const struct node *set = n->list; set; set = set->next) {
        r->scope = outer;
        struct value v = run_expression(r, set->left);
        r->scope = inner;
        target_assign(r, set->target, v);
    }
    r->scope = inner;
    enum flow flow = run_nodes(r, n->body);
    r->scope = outer;
    return flow;
}

static struct value macro_value(struct template_run *r, const struct node *n) {
    for (struct template_scope *s = r->scope; s; s = s->parent) s->held = true;
    return value_callable(r, (struct template_callable){.kind = CALLABLE_MACRO, .macro = n, .scope = r->scope});
}

static void run_call_block(struct template_run *r, const struct node *n) {
    struct value callee = run_expression(r, n->left->left);
    struct call_arguments a = {0};
    struct dict_entry *keywords;
    int count = 0, i = 0;
    for (const struct node *k = n->left->keywords; k; k = k->next) count++;
    keywords = memory_take(r->m, (size_t)(count + 1) * sizeof *keywords);
    for (const struct node *k = n->left->keywords; k; k = k->next) {
        keywords[i] = (struct dict_entry){value_string(k->name), run_expression(r, k->left)};
        i++;
    }
    keywords[count] = (struct dict_entry){value_string(n->right->name), macro_value(r, n->right)};
    struct value list = value_list(r, LIST_PLAIN);
    for (const struct node *item = n->left->list; item; item = item->next)
        list_append(r, list, run_expression(r, item));
    a = (struct call_arguments){list.list->items, list.list->n, keywords, count + 1};
    value_write(r, r->out, call_value(r, callee, &a));
}

static enum flow run_node(struct template_run *r, const struct node *n) {
    r->line = n->line;
    switch (n->kind) {
        case NODE_TEXT: builder_add(r->out, n->constant.string); return FLOW_NEXT;
        case NODE_PRINT: value_write(r, r->out, run_expression(r, n->left)); return FLOW_NEXT;
        case NODE_IF: return run_nodes(r, value_truth(r, run_expression(r, n->left)) ? n->body : n->other);
        case NODE_FOR: return run_for(r, n);
        case NODE_SET: target_assign(r, n->target, run_expression(r, n->left)); return FLOW_NEXT;
        case NODE_SET_BODY:
            target_assign(r, n->target, text_filter(r, n->left, capture_inner(r, n->body)));
            return FLOW_NEXT;
        case NODE_MACRO: scope_set(r, n->name, macro_value(r, n)); return FLOW_NEXT;
        case NODE_CALL_BLOCK: run_call_block(r, n); return FLOW_NEXT;
        case NODE_FILTER_BLOCK:
            value_write(r, r->out, text_filter(r, n->left, capture_inner(r, n->body)));
            return FLOW_NEXT;
        case NODE_WITH: return run_with(r, n);
        case NODE_BLOCK: return run_nodes(r, n->body);
        case NODE_BREAK: return FLOW_BREAK;
        case NODE_CONTINUE: return FLOW_CONTINUE;
        default: CHECK(false);
    }
}

static enum flow run_nodes(struct template_run *r, const struct node *n) {
    enum flow flow = FLOW_NEXT;
    run_enter(r);
    for (; n && flow == FLOW_NEXT; n = n->next) flow = run_node(r, n);
    run_leave(r);
    return flow;
}

void run_body(struct template_run *r, const struct node *body) { run_nodes(r, body); }

/* Opening. */

static void note_name(struct template *t, const struct template_string *name) {
    t->names = memory_grow(&t->memory, t->names, t->n_names, &t->names_capacity, sizeof *t->names);
    t->names[t->n_names] = string_of(&t->memory, name->text, name->size, false)->text;
    t->n_names++;
}

bool template_reads(const struct template *t, const char *name) {
    for (int i = 0; i < t->n_names; i++)
        if (strcmp(t->names[i], name) == 0) return true;
    return false;
}

struct text_span template_literals(const struct template *t) {
    return (struct text_span){t->literals.text, t->literals.size};
}

static void template_parse(struct template *t, struct text_span source) {
    struct template_tokens tokens = {0};
    lexer_read(&t->memory, source, &tokens);
    t->literals.m = &t->memory;
    for (int i = 0; i < tokens.n; i++) {
        const struct template_token *token = &tokens.tokens[i];
        if (token->kind == TOKEN_NAME) note_name(t, token->text);
        if (token->kind != TOKEN_TEXT && token->kind != TOKEN_STRING) continue;
        builder_add(&t->literals, token->text);
        builder_bytes(&t->literals, "", NULL, 1);
    }
    struct template_parser p = {.m = &t->memory, .at = tokens.tokens};
    t->body = parser_template(&p);
}

enum status template_open(struct template **out, struct text_span source, struct error *e) {
    *out = NULL;
    if (source.size > TEMPLATE_MAX_SOURCE)
        return error_set(e, STATUS_TOO_LARGE, "the chat template has %zu bytes, the limit is %d", source.size,
                         TEMPLATE_MAX_SOURCE);
    if (!utf8_is_valid(source.text, source.size))
        return error_set(e, STATUS_INVALID, "the chat template is not valid UTF-8");
    struct template *t = xcalloc(1, sizeof *t);
    t->memory.e = e;
    if (setjmp(t->memory.failed)) {
        template_close(t);
        return error_prefix(e, "chat template");
    }
    template_parse(t, source);
    *out = t;
    return STATUS_OK;
}

void template_close(struct template *t) {
    if (t == NULL) return;
    memory_release(&t->memory);
    free(t);
}

/* Rendering. */

static void set_variables(struct template_run *r, const struct template_input *input) {
    r->scope = scope_open(r, NULL);
    for (int i = 0; i < input->n; i++) {
        const struct template_variable *v = &input->variables[i];
        scope_set(r, string_of(r->m, v->name, strlen(v->name), false), value_from_json(r, v->value, !v->trusted));
    }
    r->scope = scope_open(r, r->scope);
}

static void keep_output(const struct text_builder *text, struct template_output *out) {
    buffer_append(&out->text, text->text, text->size);
    if (text->marks) {
        buffer_append(&out->marks, text->marks, text->size);
        return;
    }
    for (size_t i = 0; i < text->size; i++) buffer_append(&out->marks, "", 1);
}

enum status template_render(const struct template *t, const struct template_input *input, struct template_output *out,
                            struct error *e) {
    struct template_run r = {.now = input->now, .line = 1};
    struct text_builder text = {.m = &r.memory};
    r.m = &r.memory;
    r.out = &text;
    r.memory.e = e;
    if (setjmp(r.memory.failed)) {
        memory_release(&r.memory);
        return e->status;
    }
    set_variables(&r, input);
    run_body(&r, t->body);
    keep_output(&text, out);
    memory_release(&r.memory);
    return STATUS_OK;
}

void template_output_free(struct template_output *out) {
    buffer_free(&out->text);
    buffer_free(&out->marks);
}
