/* retro/template/parse.c: statements of a template, from tokens to nodes. Expressions are parsed by
 * template_parse_expression.c. */
#include <stdio.h>
#include <string.h>

#include "retro/template/template_private.h"

/* Functions that both parser files use. */

void parser_fail(const struct template_parser *p, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(p->m, STATUS_INVALID, "line %d: %s", p->at->line, text);
}

void parser_refuse(const struct template_parser *p, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(p->m, STATUS_UNSUPPORTED, "line %d: %s is not supported", p->at->line, text);
}

struct node *parser_node(struct template_parser *p, enum node_kind kind) {
    struct node *n = memory_take(p->m, sizeof *n);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

bool parser_skip(struct template_parser *p, enum operator_kind operator) {
    if (p->at->kind != TOKEN_OPERATOR || p->at->operator!= operator) return false;
    p->at++;
    return true;
}

bool parser_is_name(const struct template_parser *p, const char *name) {
    return p->at->kind == TOKEN_NAME && string_is(p->at->text, name);
}

bool parser_skip_name(struct template_parser *p, const char *name) {
    if (!parser_is_name(p, name)) return false;
    p->at++;
    return true;
}

void parser_expect(struct template_parser *p, enum operator_kind operator, const char * what) {
    char words[64];
    if (!parser_skip(p, operator))
        parser_fail(p, "expected '%s' %s, found %s", operator_words(operator), what, token_words(p->at, words));
}

const struct template_string *parser_expect_name(struct template_parser *p) {
    char words[64];
    if (p->at->kind != TOKEN_NAME) parser_fail(p, "expected a name, found %s", token_words(p->at, words));
    return (p->at++)->text;
}

void parser_enter(struct template_parser *p) {
    if (++p->depth > TEMPLATE_MAX_NESTING) parser_fail(p, "nested deeper than %d levels", TEMPLATE_MAX_NESTING);
}

void parser_leave(struct template_parser *p) { p->depth--; }

/* Statements. */

static void expect_kind(struct template_parser *p, enum template_token_kind kind, const char *what) {
    char words[64];
    if (p->at->kind != kind) parser_fail(p, "expected %s, found %s", what, token_words(p->at, words));
    p->at++;
}

static void end_tag(struct template_parser *p) { expect_kind(p, TOKEN_BLOCK_END, "%}"); }

static struct node *parse_statement(struct template_parser *p);

/* Whether the tag that begins here is one of `ends`, names parted by blanks. */
static bool at_end(const struct template_parser *p, const char *ends) {
    if (p->at->kind != TOKEN_BLOCK_BEGIN || ends == NULL || p->at[1].kind != TOKEN_NAME) return false;
    const struct template_string *name = p->at[1].text;
    for (const char *at = ends; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == name->size && memcmp(at, name->text, n) == 0) return true;
        at += n;
    }
    return false;
}

/* Nodes up to a tag of `ends`, whose name is then the next token; up to the end of the template where it is NULL. */
static struct node *parse_body(struct template_parser *p, const char *ends) {
    struct node *first = NULL, **last = &first;
    char words[64];
    parser_enter(p);
    while (!at_end(p, ends)) {
        struct node *n = NULL;
        if (p->at->kind == TOKEN_END) {
            if (ends) parser_fail(p, "the template ends before %s", ends);
            break;
        }
        if (p->at->kind == TOKEN_TEXT) {
            n = parser_node(p, NODE_TEXT);
            n->constant = value_string((p->at++)->text);
        } else if (p->at->kind == TOKEN_PRINT_BEGIN) {
            n = parser_node(p, NODE_PRINT);
            p->at++;
            n->left = parser_tuple(p, TUPLE_OF_CHOICES);
            expect_kind(p, TOKEN_PRINT_END, "}}");
        } else if (p->at->kind == TOKEN_BLOCK_BEGIN) {
            p->at++;
            n = parse_statement(p);
        } else {
            parser_fail(p, "unexpected %s", token_words(p->at, words));
        }
        *last = n;
        last = &n->next;
    }
    if (ends) p->at++;
    parser_leave(p);
    return first;
}

/* A body up to its end tag, which is read too. */
static struct node *parse_block(struct template_parser *p, const char *end) {
    end_tag(p);
    struct node *body = parse_body(p, end);
    p->at++;
    return body;
}

static struct node *parse_if(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_IF);
    n->left = parser_tuple(p, TUPLE_SIMPLE);
    end_tag(p);
    n->body = parse_body(p, "elif else endif");
    if (parser_skip_name(p, "elif")) {
        parser_enter(p);
        n->other = parse_if(p);
        parser_leave(p);
        return n;
    }
    if (parser_skip_name(p, "else")) {
        n->other = parse_block(p, "endif");
    } else {
        p->at++;
    }
    return n;
}

static struct node *parse_for(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_FOR);
    n->target = parser_target(p, false);
    if (!parser_skip_name(p, "in")) parser_fail(p, "expected 'in' in the for loop");
    n->left = parser_tuple(p, TUPLE_SIMPLE);
    if (parser_skip_name(p, "if")) n->right = parser_expression(p);
    if (parser_is_name(p, "recursive")) parser_refuse(p, "a recursive loop");
    end_tag(p);
    p->loops++;
    n->body = parse_body(p, "else endfor");
    p->loops--;
    if (parser_skip_name(p, "else"))
        n->other = parse_block(p, "endfor");
    else
        p->at++;
    return n;
}

static struct node *body_text(struct template_parser *p) { return parser_node(p, NODE_BODY_TEXT); }

static struct node *parse_set(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_SET);
    n->target = parser_target(p, true);
    if (parser_skip(p, OPERATOR_ASSIGN)) {
        n->left = parser_tuple(p, TUPLE_OF_CHOICES);
        return n;
    }
    n->kind = NODE_SET_BODY;
    n->left = parser_filters(p, body_text(p), false);
    n->body = parse_block(p, "endset");
    return n;
}

static void parse_parameters(struct template_parser *p, struct node *macro) {
    struct node **last = &macro->list;
    parser_expect(p, OPERATOR_PAREN_OPEN, "before a macro's parameters");
    while (!parser_skip(p, OPERATOR_PAREN_CLOSE)) {
        if (macro->list) parser_expect(p, OPERATOR_COMMA, "between a macro's parameters");
        struct node *parameter = parser_node(p, NODE_PARAMETER);
        parameter->name = parser_expect_name(p);
        if (parser_skip(p, OPERATOR_ASSIGN))
            parameter->left = parser_expression(p);
        else if (macro->list && last != &macro->list && macro->right)
            parser_fail(p, "a parameter without a default behind one that has one");
        if (parameter->left) macro->right = parameter;
        *last = parameter;
        last = &parameter->next;
    }
    macro->right = NULL;
}

static struct node *parse_macro(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_MACRO);
    int loops = p->loops;
    n->name = parser_expect_name(p);
    parse_parameters(p, n);
    p->loops = 0;
    n->body = parse_block(p, "endmacro");
    p->loops = loops;
    return n;
}

static struct node *parse_call(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_CALL_BLOCK);
    int loops = p->loops;
    n->right = parser_node(p, NODE_MACRO);
    n->right->name = string_of(p->m, "caller", strlen("caller"), false);
    if (p->at->kind == TOKEN_OPERATOR && p->at->operator== OPERATOR_PAREN_OPEN) parse_parameters(p, n->right);
    n->left = parser_expression(p);
    if (n->left->kind != NODE_CALL) parser_fail(p, "{%% call %%} needs a call");
    p->loops = 0;
    n->right->body = parse_block(p, "endcall");
    p->loops = loops;
    return n;
}

static struct node *parse_filter_block(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_FILTER_BLOCK);
    n->left = parser_filters(p, body_text(p), true);
    n->body = parse_block(p, "endfilter");
    return n;
}

static struct node *parse_with(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_WITH), **last = &n->list;
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->list) parser_expect(p, OPERATOR_COMMA, "between the names of with");
        struct node *set = parser_node(p, NODE_SET);
        set->target = parser_target(p, false);
        parser_expect(p, OPERATOR_ASSIGN, "in with");
        set->left = parser_expression(p);
        *last = set;
        last = &set->next;
    }
    n->body = parse_block(p, "endwith");
    return n;
}

static struct node *parse_generation(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_WITH); /* a scope of its own, as Jinja's call block */
    int loops = p->loops;
    p->loops = 0;
    n->body = parse_block(p, "endgeneration");
    p->loops = loops;
    return n;
}

static struct node *parse_jump(struct template_parser *p, enum node_kind kind) {
    if (p->loops == 0) parser_fail(p, "break or continue outside a loop");
    return parser_node(p, kind);
}

static struct node *parse_print(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_BLOCK), **last = &n->body;
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->body) parser_expect(p, OPERATOR_COMMA, "in print");
        *last = parser_node(p, NODE_PRINT);
        (*last)->left = parser_expression(p);
        last = &(*last)->next;
    }
    return n;
}

/* Behind "{%", through "%}". */
static struct node *parse_statement(struct template_parser *p) {
    struct node *n;
    if (parser_skip_name(p, "if")) {
        n = parse_if(p);
    } else if (parser_skip_name(p, "for")) {
        n = parse_for(p);
    } else if (parser_skip_name(p, "set")) {
        n = parse_set(p);
    } else if (parser_skip_name(p, "macro")) {
        n = parse_macro(p);
    } else if (parser_skip_name(p, "call")) {
        n = parse_call(p);
    } else if (parser_skip_name(p, "filter")) {
        n = parse_filter_block(p);
    } else if (parser_skip_name(p, "with")) {
        n = parse_with(p);
    } else if (parser_skip_name(p, "generation")) {
        n = parse_generation(p);
    } else if (parser_skip_name(p, "print")) {
        n = parse_print(p);
    } else if (parser_is_name(p, "break") || parser_is_name(p, "continue")) {
        n = parse_jump(p, parser_is_name(p, "break") ? NODE_BREAK : NODE_CONTINUE);
        p->at++;
    } else {
        char words[64];
        const char *known = " block extends include import from autoescape trans ";
        struct text_span name = {token_words(p->at, words), strlen(token_words(p->at, words))};
        if (p->at->kind == TOKEN_NAME && memmem(known, strlen(known), name.text, name.size))
            parser_refuse(p, "the tag %s", name.text);
        parser_fail(p, "there is no tag %s here", name.text);
    }
    end_tag(p);
    return n;
}

struct node *parser_template(struct template_parser *p) {
    return parse_body(p, NULL);
}
