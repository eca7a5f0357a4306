/* retro/template/parse_expression.c: expressions of a template, from tokens to nodes, with Jinja's
 * precedence. */
#include <string.h>

#include "retro/template/template_private.h"

static struct node *parser_binary(struct template_parser *parser, enum node_kind kind,
                                  struct node *left, struct node *right) {
    struct node *node = parser_node(parser, kind);
    node->line = left->line;
    node->left = left;
    node->right = right;
    return node;
}

static bool at_operator(const struct template_parser *parser, enum operator_kind operator) {
    return parser->at->kind == TOKEN_OPERATOR && parser->at->operator== operator;
}

static bool takes_any(struct template_parser *parser, const enum operator_kind *of, size_t n,
                      enum operator_kind *found) {
    for (size_t i = 0; i < n; i++) {
        *found = of[i];
        if (parser_skip(parser, of[i])) return true;
    }
    return false;
}

static struct node *parse_unary(struct template_parser *parser, bool with_filters);

static struct node *parse_pow(struct template_parser *parser) {
    struct node *left = parse_unary(parser, true);
    while (parser_skip(parser, OPERATOR_POW)) {
        left = parser_binary(parser, NODE_BINARY, left, parse_unary(parser, true));
        left->operator= OPERATOR_POW;
    }
    return left;
}

static struct node *parse_product(struct template_parser *parser) {
    static const enum operator_kind of[] = {OPERATOR_MUL, OPERATOR_DIV, OPERATOR_FLOORDIV,
                                            OPERATOR_MOD};
    enum operator_kind found;
    struct node *left = parse_pow(parser);
    while (takes_any(parser, of, ARRAY_COUNT(of), &found)) {
        left = parser_binary(parser, NODE_BINARY, left, parse_pow(parser));
        left->operator= found;
    }
    return left;
}

static struct node *parse_concat(struct template_parser *parser) {
    struct node *first = parse_product(parser);
    if (!at_operator(parser, OPERATOR_TILDE)) return first;
    struct node *node = parser_node(parser, NODE_CONCAT), **last = &first->next;
    node->list = first;
    while (parser_skip(parser, OPERATOR_TILDE)) {
        *last = parse_product(parser);
        last = &(*last)->next;
    }
    return node;
}

static struct node *parse_sum(struct template_parser *parser) {
    static const enum operator_kind of[] = {OPERATOR_ADD, OPERATOR_SUB};
    enum operator_kind found;
    struct node *left = parse_concat(parser);
    while (takes_any(parser, of, ARRAY_COUNT(of), &found)) {
        left = parser_binary(parser, NODE_BINARY, left, parse_concat(parser));
        left->operator= found;
    }
    return left;
}

static bool takes_comparison(struct template_parser *parser, enum operator_kind *found) {
    static const enum operator_kind of[] = {OPERATOR_EQ, OPERATOR_NE, OPERATOR_LT,
                                            OPERATOR_LE, OPERATOR_GT, OPERATOR_GE};
    if (takes_any(parser, of, ARRAY_COUNT(of), found)) return true;
    *found = OPERATOR_IN;
    if (parser_skip_name(parser, "in")) return true;
    *found = OPERATOR_NOT_IN;
    if (!parser_is_name(parser, "not") || parser->at[1].kind != TOKEN_NAME ||
        !string_is(parser->at[1].text, "in"))
        return false;
    parser->at += 2;
    return true;
}

static struct node *parse_comparison(struct template_parser *parser) {
    enum operator_kind found;
    struct node *left = parse_sum(parser), *node = NULL, **last = NULL;
    while (takes_comparison(parser, &found)) {
        if (node == NULL) {
            node = parser_binary(parser, NODE_COMPARE, left, NULL);
            last = &node->list;
        }
        struct node *operand = parser_node(parser, NODE_OPERAND);
        operand->operator= found;
        operand->left = parse_sum(parser);
        *last = operand;
        last = &operand->next;
    }
    return node ? node : left;
}

static struct node *parse_not(struct template_parser *parser) {
    if (!parser_is_name(parser, "not")) return parse_comparison(parser);
    struct node *node = parser_node(parser, NODE_UNARY);
    parser->at++;
    node->operator= OPERATOR_NOT;
    parser_enter(parser);
    node->left = parse_not(parser);
    parser_leave(parser);
    return node;
}

static struct node *parse_and(struct template_parser *parser) {
    struct node *left = parse_not(parser);
    while (parser_skip_name(parser, "and"))
        left = parser_binary(parser, NODE_AND, left, parse_not(parser));
    return left;
}

struct node *parser_or(struct template_parser *parser) {
    parser_enter(parser);
    struct node *left = parse_and(parser);
    while (parser_skip_name(parser, "or"))
        left = parser_binary(parser, NODE_OR, left, parse_and(parser));
    parser_leave(parser);
    return left;
}

struct node *parser_expression(struct template_parser *parser) {
    parser_enter(parser);
    struct node *node = parser_or(parser);
    while (parser_skip_name(parser, "if")) {
        node = parser_binary(parser, NODE_CHOICE, node, parser_or(parser));
        if (parser_skip_name(parser, "else")) node->other = parser_expression(parser);
    }
    parser_leave(parser);
    return node;
}

/* Lists. */

static bool tuple_ends(const struct template_parser *parser) {
    return parser->at->kind == TOKEN_PRINT_END || parser->at->kind == TOKEN_BLOCK_END ||
           at_operator(parser, OPERATOR_PAREN_CLOSE) || parser_is_name(parser, "in") ||
           parser_is_name(parser, "recursive");
}

static struct node *parse_items(struct template_parser *parser, int flags, bool brackets) {
    struct node *first = NULL, **last = &first, *node = parser_node(parser, NODE_TUPLE);
    bool comma = false;
    while (!tuple_ends(parser)) {
        *last = flags & TUPLE_SIMPLE ? parser_or(parser) : parser_expression(parser);
        last = &(*last)->next;
        comma = parser_skip(parser, OPERATOR_COMMA);
        if (!comma) break;
    }
    if (first == NULL && !brackets) parser_fail(parser, "an expression is missing");
    if (first && first->next == NULL && !comma) return first;
    node->list = first;
    return node;
}

struct node *parser_tuple(struct template_parser *parser, int flags) {
    return parse_items(parser, flags, false);
}

static struct node *parse_target_item(struct template_parser *parser, bool attributes) {
    if (parser_skip(parser, OPERATOR_PAREN_OPEN)) {
        struct node *inner = parser_target(parser, false);
        parser_expect(parser, OPERATOR_PAREN_CLOSE, "behind names");
        return inner;
    }
    struct node *node = parser_node(parser, NODE_NAME);
    node->name = parser_expect_name(parser);
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < ARRAY_COUNT(constants); i++)
        if (string_is(node->name, constants[i]))
            parser_fail(parser, "cannot assign to %s", constants[i]);
    if (!attributes || !parser_skip(parser, OPERATOR_DOT)) return node;
    node = parser_binary(parser, NODE_ATTRIBUTE, node, NULL);
    node->name = parser_expect_name(parser);
    return node;
}

struct node *parser_target(struct template_parser *parser, bool attributes) {
    parser_enter(parser);
    struct node *first = parse_target_item(parser, attributes), **last = &first->next;
    parser_leave(parser);
    if (!at_operator(parser, OPERATOR_COMMA)) return first;
    struct node *node = parser_node(parser, NODE_TUPLE);
    node->list = first;
    while (parser_skip(parser, OPERATOR_COMMA) && parser->at->kind != TOKEN_BLOCK_END &&
           !parser_is_name(parser, "in") && !at_operator(parser, OPERATOR_ASSIGN) &&
           !at_operator(parser, OPERATOR_PAREN_CLOSE)) {
        *last = parse_target_item(parser, attributes);
        last = &(*last)->next;
    }
    return node;
}

static struct node *parse_list(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_LIST), **last = &node->list;
    while (!parser_skip(parser, OPERATOR_BRACKET_CLOSE)) {
        if (node->list) parser_expect(parser, OPERATOR_COMMA, "in a list");
        if (parser_skip(parser, OPERATOR_BRACKET_CLOSE)) break;
        *last = parser_expression(parser);
        last = &(*last)->next;
    }
    return node;
}

static struct node *parse_dict(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_DICT), **last = &node->list;
    while (!parser_skip(parser, OPERATOR_BRACE_CLOSE)) {
        if (node->list) parser_expect(parser, OPERATOR_COMMA, "in a dict");
        if (parser_skip(parser, OPERATOR_BRACE_CLOSE)) break;
        struct node *key = parser_expression(parser);
        parser_expect(parser, OPERATOR_COLON, "behind a key");
        key->next = parser_expression(parser);
        *last = key;
        last = &key->next->next;
    }
    return node;
}

/* Primaries and what follows them. */

static struct node *parse_name(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_CONSTANT);
    const struct template_string *name = (parser->at++)->text;
    if (string_is(name, "true") || string_is(name, "True")) {
        node->constant = value_bool(true);
    } else if (string_is(name, "false") || string_is(name, "False")) {
        node->constant = value_bool(false);
    } else if (string_is(name, "none") || string_is(name, "None")) {
        node->constant = value_none();
    } else {
        node->kind = NODE_NAME;
        node->name = name;
    }
    return node;
}

static struct node *parse_strings(struct template_parser *parser) {
    struct node *node = parser_node(parser, NODE_CONSTANT);
    struct text_builder builder = {.m = parser->m};
    while (parser->at->kind == TOKEN_STRING) builder_add(&builder, (parser->at++)->text);
    node->constant = value_string(builder_string(&builder));
    return node;
}

struct node *parser_primary(struct template_parser *parser) {
    char words[64];
    struct node *node;
    if (parser->at->kind == TOKEN_NAME) return parse_name(parser);
    if (parser->at->kind == TOKEN_STRING) return parse_strings(parser);
    if (parser->at->kind == TOKEN_INT || parser->at->kind == TOKEN_FLOAT) {
        node = parser_node(parser, NODE_CONSTANT);
        node->constant = parser->at->kind == TOKEN_INT ? value_int(parser->at->number)
                                                       : value_float(parser->at->real);
        parser->at++;
        return node;
    }
    parser_enter(parser);
    if (parser_skip(parser, OPERATOR_PAREN_OPEN)) {
        node = parse_items(parser, TUPLE_OF_CHOICES, true);
        parser_expect(parser, OPERATOR_PAREN_CLOSE, "behind an expression");
    } else if (parser_skip(parser, OPERATOR_BRACKET_OPEN)) {
        node = parse_list(parser);
    } else if (parser_skip(parser, OPERATOR_BRACE_OPEN)) {
        node = parse_dict(parser);
    } else {
        parser_fail(parser, "unexpected %s", token_words(parser->at, words));
    }
    parser_leave(parser);
    return node;
}

void parser_call_arguments(struct template_parser *parser, struct node *call) {
    struct node **last = &call->list, **last_keyword = &call->keywords;
    parser_expect(parser, OPERATOR_PAREN_OPEN, "before arguments");
    while (!parser_skip(parser, OPERATOR_PAREN_CLOSE)) {
        if (call->list || call->keywords)
            parser_expect(parser, OPERATOR_COMMA, "between arguments");
        if (parser_skip(parser, OPERATOR_PAREN_CLOSE)) break;
        if (at_operator(parser, OPERATOR_MUL) || at_operator(parser, OPERATOR_POW))
            parser_refuse(parser, "* or ** in arguments");
        bool named = parser->at->kind == TOKEN_NAME && parser->at[1].kind == TOKEN_OPERATOR &&
                     parser->at[1].operator== OPERATOR_ASSIGN;
        if (named) {
            struct node *keyword = parser_node(parser, NODE_KEYWORD);
            keyword->name = parser_expect_name(parser);
            parser->at++;
            keyword->left = parser_expression(parser);
            *last_keyword = keyword;
            last_keyword = &keyword->next;
        } else {
            if (call->keywords) parser_fail(parser, "a positional argument behind a named one");
            *last = parser_expression(parser);
            last = &(*last)->next;
        }
    }
}

static struct node *parse_call(struct template_parser *parser, struct node *left) {
    struct node *node = parser_binary(parser, NODE_CALL, left, NULL);
    parser_call_arguments(parser, node);
    return node;
}

static struct node *parse_slice_part(struct template_parser *parser) {
    bool empty = at_operator(parser, OPERATOR_COLON) ||
                 at_operator(parser, OPERATOR_BRACKET_CLOSE) || at_operator(parser, OPERATOR_COMMA);
    return empty ? NULL : parser_expression(parser);
}

static struct node *parse_subscript(struct template_parser *parser) {
    struct node *from = parse_slice_part(parser);
    if (!at_operator(parser, OPERATOR_COLON)) {
        if (from == NULL) parser_fail(parser, "[] without an index");
        return from;
    }
    struct node *node = parser_node(parser, NODE_SLICE);
    node->left = from;
    parser_skip(parser, OPERATOR_COLON);
    node->right = parse_slice_part(parser);
    if (parser_skip(parser, OPERATOR_COLON)) node->other = parse_slice_part(parser);
    return node;
}

static struct node *parse_item(struct template_parser *parser, struct node *left) {
    struct node *node = parser_binary(parser, NODE_ITEM, left, parse_subscript(parser));
    if (at_operator(parser, OPERATOR_COMMA)) parser_refuse(parser, "an index of several values");
    parser_expect(parser, OPERATOR_BRACKET_CLOSE, "behind an index");
    return node;
}

static struct node *parse_dot(struct template_parser *parser, struct node *left) {
    struct node *node = parser_binary(parser, NODE_ATTRIBUTE, left, NULL);
    if (parser->at->kind == TOKEN_INT) {
        node->kind = NODE_ITEM;
        node->right = parser_primary(parser);
    } else {
        node->name = parser_expect_name(parser);
    }
    return node;
}

static struct node *parse_postfix(struct template_parser *parser, struct node *node) {
    for (;;) {
        if (parser_skip(parser, OPERATOR_DOT))
            node = parse_dot(parser, node);
        else if (parser_skip(parser, OPERATOR_BRACKET_OPEN))
            node = parse_item(parser, node);
        else if (at_operator(parser, OPERATOR_PAREN_OPEN))
            node = parse_call(parser, node);
        else
            return node;
    }
}

/* One filter behind its pipe. */
static struct node *parse_filter(struct template_parser *parser, struct node *left) {
    struct node *node = parser_binary(parser, NODE_FILTER, left, NULL);
    node->line = parser->at->line;
    node->name = parser_expect_name(parser);
    if (at_operator(parser, OPERATOR_DOT)) parser_refuse(parser, "a filter with a dot in its name");
    node->row = filter_find(node->name);
    if (at_operator(parser, OPERATOR_PAREN_OPEN)) parser_call_arguments(parser, node);
    return node;
}

struct node *parser_filters(struct template_parser *parser, struct node *left,
                            bool first_is_named) {
    if (first_is_named) left = parse_filter(parser, left);
    while (parser_skip(parser, OPERATOR_PIPE)) left = parse_filter(parser, left);
    return left;
}

static bool test_argument_follows(const struct template_parser *parser) {
    if (parser->at->kind == TOKEN_NAME)
        return !parser_is_name(parser, "else") && !parser_is_name(parser, "or") &&
               !parser_is_name(parser, "and");
    return parser->at->kind == TOKEN_STRING || parser->at->kind == TOKEN_INT ||
           parser->at->kind == TOKEN_FLOAT || at_operator(parser, OPERATOR_BRACKET_OPEN) ||
           at_operator(parser, OPERATOR_BRACE_OPEN);
}

static struct node *parse_test(struct template_parser *parser, struct node *left) {
    bool negated = parser_skip_name(parser, "not");
    struct node *node = parser_binary(parser, NODE_TEST, left, NULL);
    node->line = parser->at->line;
    node->name = parser_expect_name(parser);
    node->row = test_find(node->name);
    if (at_operator(parser, OPERATOR_PAREN_OPEN)) {
        parser_call_arguments(parser, node);
    } else if (test_argument_follows(parser)) {
        if (parser_is_name(parser, "is")) parser_fail(parser, "a test of a test");
        node->list = parse_postfix(parser, parser_primary(parser));
    }
    if (!negated) return node;
    node = parser_binary(parser, NODE_UNARY, node, NULL);
    node->operator= OPERATOR_NOT;
    return node;
}

static struct node *parse_unary(struct template_parser *parser, bool with_filters) {
    struct node *node;
    enum operator_kind sign;
    static const enum operator_kind of[] = {OPERATOR_SUB, OPERATOR_ADD};
    if (takes_any(parser, of, ARRAY_COUNT(of), &sign)) {
        node = parser_node(parser, NODE_UNARY);
        node->operator= sign;
        parser_enter(parser);
        node->left = parse_unary(parser, false);
        parser_leave(parser);
    } else {
        node = parser_primary(parser);
    }
    node = parse_postfix(parser, node);
    while (with_filters) {
        if (parser_skip(parser, OPERATOR_PIPE))
            node = parse_filter(parser, node);
        else if (parser_skip_name(parser, "is"))
            node = parse_test(parser, node);
        else if (at_operator(parser, OPERATOR_PAREN_OPEN))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}
