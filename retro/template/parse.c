/* retro/template/parse.c: statements of a template, from tokens to nodes. Expressions are parsed by
 * template_parse_expression.c. */
#include <stdio.h>
#include <string.h>

#include "retro/template/template_private.h"

/* Functions that both parser files use. */

void parser_fail(const struct template_parser *parser, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(parser->m, STATUS_INVALID, "line %d: %s", parser->at->line, text);
}

void parser_refuse(const struct template_parser *parser, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memory_fail(parser->m, STATUS_UNSUPPORTED, "line %d: %s is not supported", parser->at->line,
                text);
}

struct node *parser_node(struct template_parser *parser, enum node_kind kind) {
    struct node *node = memory_take(parser->m, sizeof *node);
    node->kind = kind;
    node->line = parser->at->line;
    return node;
}

bool parser_skip(struct template_parser *parser, enum operator_kind operator) {
    if (parser->at->kind != TOKEN_OPERATOR || parser->at->operator!= operator) return false;
    parser->at++;
    return true;
}

bool parser_is_name(const struct template_parser *parser, const char *name) {
    return parser->at->kind == TOKEN_NAME && string_is(parser->at->text, name);
}

bool parser_skip_name(struct template_parser *parser, const char *name) {
    if (!parser_is_name(parser, name)) return false;
    parser->at++;
    return true;
}

void parser_expect(struct template_parser *parser, enum operator_kind operator, const char * what) {
    char words[64];
    if (!parser_skip(parser, operator))
        parser_fail(parser, "expected '%s' %s, found %s", operator_words(operator), what,
                    token_words(parser->at, words));
}

const struct template_string *parser_expect_name(struct template_parser *parser) {
    char words[64];
    if (parser->at->kind != TOKEN_NAME)
        parser_fail(parser, "expected a name, found %s", token_words(parser->at, words));
    return (parser->at++)->text;
}

void parser_enter(struct template_parser *parser) {
    if (++parser->depth > TEMPLATE_MAX_NESTING)
        parser_fail(parser, "nested deeper than %d levels", TEMPLATE_MAX_NESTING);
}

void parser_leave(struct template_parser *parser) { parser->depth--; }

/* Statements. */

static void expect_kind(struct template_parser *parser, enum template_token_kind kind,
                        const char *what) {
    char words[64];
    if (parser->at->kind != kind)
        parser_fail(parser, "expected %s, found %s", what, token_words(parser->at, words));
    parser->at++;
}

static void end_tag(struct template_parser *parser) { expect_kind(parser, TOKEN_BLOCK_END, "%}"); }

static struct node *parse_statement(struct template_parser *parser);

/* Whether the tag that begins here is one of `ends`, names parted by blanks. */
static bool at_end(const struct template_parser *parser, const char *ends) {
    if (parser->at->kind != TOKEN_BLOCK_BEGIN || ends == NULL || parser->at[1].kind != TOKEN_NAME)
        return false;
    const struct template_string *name = parser->at[1].text;
    for (const char *at = ends; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == name->size && memcmp(at, name->text, n) == 0) return true;
        at += n;
    }
    return false;
}

/* Nodes up to a tag of `ends`, whose name is then the next token; up to the end of the template
 * where it is NULL. */
static struct node *parse_body(struct template_parser *parser, const char *ends) {
    struct node *first = NULL, **last = &first;
    char words[64];
    parser_enter(parser);
    while (!at_end(parser, ends)) {
        struct node *node = NULL;
        if (parser->at->kind == TOKEN_END) {
            if (ends) parser_fail(parser, "the template ends before %s", ends);
            break;
        }
        if (parser->at->kind == TOKEN_TEXT) {
            node = parser_node(parser, NODE_TEXT);
            node->constant = value_string((parser->at++)->text);
        } else if (parser->at->kind == TOKEN_PRINT_BEGIN) {
            node = parser_node(parser, NODE_PRINT);
            parser->at++;
            node->left = parser_tuple(parser, TUPLE_OF_CHOICES);
            expect_kind(parser, TOKEN_PRINT_END, "}}");
        } else if (parser->at->kind == TOKEN_BLOCK_BEGIN) {
            parser->at++;
            node = parse_statement(parser);
        } else {
            parser_fail(parser, "unexpected %s", token_words(parser->at, words));
        }
        *last = node;
        last = &node->next;
    }
    if (ends) parser->at++;
    parser_leave(parser);
    return first;
}

/* A body up to its end tag, which is read too. */
static struct node *parse_block(struct template_parser *parser, const char *end) {
    end_tag(parser);
    struct node *body = parse_body(parser, end);
    parser->at++;
    return body;
}

static struct node *parse_if(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_IF);
    node->left = parser_tuple(parser, TUPLE_SIMPLE);
    end_tag(parser);
    node->body = parse_body(parser, "elif else endif");
    if (parser_skip_name(parser, "elif")) {
        parser_enter(parser);
        node->other = parse_if(parser);
        parser_leave(parser);
        return node;
    }
    if (parser_skip_name(parser, "else")) {
        node->other = parse_block(parser, "endif");
    } else {
        parser->at++;
    }
    return node;
}

static struct node *parse_for(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_FOR);
    node->target = parser_target(parser, false);
    if (!parser_skip_name(parser, "in")) parser_fail(parser, "expected 'in' in the for loop");
    node->left = parser_tuple(parser, TUPLE_SIMPLE);
    if (parser_skip_name(parser, "if")) node->right = parser_expression(parser);
    if (parser_is_name(parser, "recursive")) parser_refuse(parser, "a recursive loop");
    end_tag(parser);
    parser->loops++;
    node->body = parse_body(parser, "else endfor");
    parser->loops--;
    if (parser_skip_name(parser, "else"))
        node->other = parse_block(parser, "endfor");
    else
        parser->at++;
    return node;
}

static struct node *body_text(struct template_parser *parser) {
    return parser_node(parser, NODE_BODY_TEXT);
}

static struct node *parse_set(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_SET);
    node->target = parser_target(parser, true);
    if (parser_skip(parser, OPERATOR_ASSIGN)) {
        node->left = parser_tuple(parser, TUPLE_OF_CHOICES);
        return node;
    }
    node->kind = NODE_SET_BODY;
    node->left = parser_filters(parser, body_text(parser), false);
    node->body = parse_block(parser, "endset");
    return node;
}

static void parse_parameters(struct template_parser *parser, struct node *macro) {
    struct node **last = &macro->list;
    parser_expect(parser, OPERATOR_PAREN_OPEN, "before a macro's parameters");
    while (!parser_skip(parser, OPERATOR_PAREN_CLOSE)) {
        if (macro->list) parser_expect(parser, OPERATOR_COMMA, "between a macro's parameters");
        struct node *parameter = parser_node(parser, NODE_PARAMETER);
        parameter->name = parser_expect_name(parser);
        if (parser_skip(parser, OPERATOR_ASSIGN))
            parameter->left = parser_expression(parser);
        else if (macro->list && last != &macro->list && macro->right)
            parser_fail(parser, "a parameter without a default behind one that has one");
        if (parameter->left) macro->right = parameter;
        *last = parameter;
        last = &parameter->next;
    }
    macro->right = NULL;
}

static struct node *parse_macro(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_MACRO);
    int loops = parser->loops;
    node->name = parser_expect_name(parser);
    parse_parameters(parser, node);
    parser->loops = 0;
    node->body = parse_block(parser, "endmacro");
    parser->loops = loops;
    return node;
}

static struct node *parse_call(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_CALL_BLOCK);
    int loops = parser->loops;
    node->right = parser_node(parser, NODE_MACRO);
    node->right->name = string_of(parser->m, "caller", strlen("caller"), false);
    if (parser->at->kind == TOKEN_OPERATOR && parser->at->operator== OPERATOR_PAREN_OPEN)
        parse_parameters(parser, node->right);
    node->left = parser_expression(parser);
    if (node->left->kind != NODE_CALL) parser_fail(parser, "{%% call %%} needs a call");
    parser->loops = 0;
    node->right->body = parse_block(parser, "endcall");
    parser->loops = loops;
    return node;
}

static struct node *parse_filter_block(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_FILTER_BLOCK);
    node->left = parser_filters(parser, body_text(parser), true);
    node->body = parse_block(parser, "endfilter");
    return node;
}

static struct node *parse_with(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_WITH), **last = &node->list;
    while (parser->at->kind != TOKEN_BLOCK_END) {
        if (node->list) parser_expect(parser, OPERATOR_COMMA, "between the names of with");
        struct node *set = parser_node(parser, NODE_SET);
        set->target = parser_target(parser, false);
        parser_expect(parser, OPERATOR_ASSIGN, "in with");
        set->left = parser_expression(parser);
        *last = set;
        last = &set->next;
    }
    node->body = parse_block(parser, "endwith");
    return node;
}

static struct node *parse_generation(struct template_parser *parser) {
    struct node *node =
        parser_node(parser, NODE_WITH); /* a scope of its own, as Jinja's call block */
    int loops = parser->loops;
    parser->loops = 0;
    node->body = parse_block(parser, "endgeneration");
    parser->loops = loops;
    return node;
}

static struct node *parse_jump(struct template_parser *parser, enum node_kind kind) {
    if (parser->loops == 0) parser_fail(parser, "break or continue outside a loop");
    return parser_node(parser, kind);
}

static struct node *parse_print(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_BLOCK), **last = &node->body;
    while (parser->at->kind != TOKEN_BLOCK_END) {
        if (node->body) parser_expect(parser, OPERATOR_COMMA, "in print");
        *last = parser_node(parser, NODE_PRINT);
        (*last)->left = parser_expression(parser);
        last = &(*last)->next;
    }
    return node;
}

/* Behind "{%", through "%}". */
static struct node *parse_statement(struct template_parser *parser) {
    struct node *node;
    if (parser_skip_name(parser, "if")) {
        node = parse_if(parser);
    } else if (parser_skip_name(parser, "for")) {
        node = parse_for(parser);
    } else if (parser_skip_name(parser, "set")) {
        node = parse_set(parser);
    } else if (parser_skip_name(parser, "macro")) {
        node = parse_macro(parser);
    } else if (parser_skip_name(parser, "call")) {
        node = parse_call(parser);
    } else if (parser_skip_name(parser, "filter")) {
        node = parse_filter_block(parser);
    } else if (parser_skip_name(parser, "with")) {
        node = parse_with(parser);
    } else if (parser_skip_name(parser, "generation")) {
        node = parse_generation(parser);
    } else if (parser_skip_name(parser, "print")) {
        node = parse_print(parser);
    } else if (parser_is_name(parser, "break") || parser_is_name(parser, "continue")) {
        node = parse_jump(parser, parser_is_name(parser, "break") ? NODE_BREAK : NODE_CONTINUE);
        parser->at++;
    } else {
        char words[64];
        const char *known = " block extends include import from autoescape trans ";
        struct text_span name = {token_words(parser->at, words),
                                 strlen(token_words(parser->at, words))};
        if (parser->at->kind == TOKEN_NAME && memmem(known, strlen(known), name.text, name.size))
            parser_refuse(parser, "the tag %s", name.text);
        parser_fail(parser, "there is no tag %s here", name.text);
    }
    end_tag(parser);
    return node;
}

struct node *parser_template(struct template_parser *parser) {
    return parse_body(parser, NULL);
}
