/* retro/template/parse_expression.c: expressions of a template, from tokens to nodes, with Jinja's precedence. */
#include <string.h>

#include "retro/template/template_private.h"

static struct node *parser_binary(struct template_parser *p, enum node_kind kind, struct node *left,
                                  struct node *right) {
    struct node *n = parser_node(p, kind);
    n->line = left->line;
    n->left = left;
    n->right = right;
    return n;
}

static bool at_operator(const struct template_parser *p, enum operator_kind operator) {
    return p->at->kind == TOKEN_OPERATOR && p->at->operator== operator;
}

static bool takes_any(struct template_parser *p, const enum operator_kind *of, size_t n, enum operator_kind *found) {
    for (size_t i = 0; i < n; i++) {
        *found = of[i];
        if (parser_skip(p, of[i])) return true;
    }
    return false;
}

static struct node *parse_unary(struct template_parser *p, bool with_filters);

static struct node *parse_pow(struct template_parser *p) {
    struct node *left = parse_unary(p, true);
    while (parser_skip(p, OPERATOR_POW)) {
        left = parser_binary(p, NODE_BINARY, left, parse_unary(p, true));
        left->operator= OPERATOR_POW;
    }
    return left;
}

static struct node *parse_product(struct template_parser *p) {
    static const enum operator_kind of[] = {OPERATOR_MUL, OPERATOR_DIV, OPERATOR_FLOORDIV, OPERATOR_MOD};
    enum operator_kind found;
    struct node *left = parse_pow(p);
    while (takes_any(p, of, ARRAY_COUNT(of), &found)) {
        left = parser_binary(p, NODE_BINARY, left, parse_pow(p));
        left->operator= found;
    }
    return left;
}

static struct node *parse_concat(struct template_parser *p) {
    struct node *first = parse_product(p);
    if (!at_operator(p, OPERATOR_TILDE)) return first;
    struct node *n = parser_node(p, NODE_CONCAT), **last = &first->next;
    n->list = first;
    while (parser_skip(p, OPERATOR_TILDE)) {
        *last = parse_product(p);
        last = &(*last)->next;
    }
    return n;
}

static struct node *parse_sum(struct template_parser *p) {
    static const enum operator_kind of[] = {OPERATOR_ADD, OPERATOR_SUB};
    enum operator_kind found;
    struct node *left = parse_concat(p);
    while (takes_any(p, of, ARRAY_COUNT(of), &found)) {
        left = parser_binary(p, NODE_BINARY, left, parse_concat(p));
        left->operator= found;
    }
    return left;
}

static bool takes_comparison(struct template_parser *p, enum operator_kind *found) {
    static const enum operator_kind of[] = {OPERATOR_EQ, OPERATOR_NE, OPERATOR_LT,
                                            OPERATOR_LE, OPERATOR_GT, OPERATOR_GE};
    if (takes_any(p, of, ARRAY_COUNT(of), found)) return true;
    *found = OPERATOR_IN;
    if (parser_skip_name(p, "in")) return true;
    *found = OPERATOR_NOT_IN;
    if (!parser_is_name(p, "not") || p->at[1].kind != TOKEN_NAME || !string_is(p->at[1].text, "in")) return false;
    p->at += 2;
    return true;
}

static struct node *parse_comparison(struct template_parser *p) {
    enum operator_kind found;
    struct node *left = parse_sum(p), *n = NULL, **last = NULL;
    while (takes_comparison(p, &found)) {
        if (n == NULL) {
            n = parser_binary(p, NODE_COMPARE, left, NULL);
            last = &n->list;
        }
        struct node *operand = parser_node(p, NODE_OPERAND);
        operand->operator= found;
        operand->left = parse_sum(p);
        *last = operand;
        last = &operand->next;
    }
    return n ? n : left;
}

static struct node *parse_not(struct template_parser *p) {
    if (!parser_is_name(p, "not")) return parse_comparison(p);
    struct node *n = parser_node(p, NODE_UNARY);
    p->at++;
    n->operator= OPERATOR_NOT;
    parser_enter(p);
    n->left = parse_not(p);
    parser_leave(p);
    return n;
}

static struct node *parse_and(struct template_parser *p) {
    struct node *left = parse_not(p);
    while (parser_skip_name(p, "and")) left = parser_binary(p, NODE_AND, left, parse_not(p));
    return left;
}

struct node *parser_or(struct template_parser *p) {
    parser_enter(p);
    struct node *left = parse_and(p);
    while (parser_skip_name(p, "or")) left = parser_binary(p, NODE_OR, left, parse_and(p));
    parser_leave(p);
    return left;
}

struct node *parser_expression(struct template_parser *p) {
    parser_enter(p);
    struct node *n = parser_or(p);
    while (parser_skip_name(p, "if")) {
        n = parser_binary(p, NODE_CHOICE, n, parser_or(p));
        if (parser_skip_name(p, "else")) n->other = parser_expression(p);
    }
    parser_leave(p);
    return n;
}

/* Lists. */

static bool tuple_ends(const struct template_parser *p) {
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || at_operator(p, OPERATOR_PAREN_CLOSE) ||
           parser_is_name(p, "in") || parser_is_name(p, "recursive");
}

static struct node *parse_items(struct template_parser *p, int flags, bool brackets) {
    struct node *first = NULL, **last = &first, *n = parser_node(p, NODE_TUPLE);
    bool comma = false;
    while (!tuple_ends(p)) {
        *last = flags & TUPLE_SIMPLE ? parser_or(p) : parser_expression(p);
        last = &(*last)->next;
        comma = parser_skip(p, OPERATOR_COMMA);
        if (!comma) break;
    }
    if (first == NULL && !brackets) parser_fail(p, "an expression is missing");
    if (first && first->next == NULL && !comma) return first;
    n->list = first;
    return n;
}

struct node *parser_tuple(struct template_parser *p, int flags) {
    return parse_items(p, flags, false);
}

static struct node *parse_target_item(struct template_parser *p, bool attributes) {
    if (parser_skip(p, OPERATOR_PAREN_OPEN)) {
        struct node *inner = parser_target(p, false);
        parser_expect(p, OPERATOR_PAREN_CLOSE, "behind names");
        return inner;
    }
    struct node *n = parser_node(p, NODE_NAME);
    n->name = parser_expect_name(p);
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < ARRAY_COUNT(constants); i++)
        if (string_is(n->name, constants[i])) parser_fail(p, "cannot assign to %s", constants[i]);
    if (!attributes || !parser_skip(p, OPERATOR_DOT)) return n;
    n = parser_binary(p, NODE_ATTRIBUTE, n, NULL);
    n->name = parser_expect_name(p);
    return n;
}

struct node *parser_target(struct template_parser *p, bool attributes) {
    parser_enter(p);
    struct node *first = parse_target_item(p, attributes), **last = &first->next;
    parser_leave(p);
    if (!at_operator(p, OPERATOR_COMMA)) return first;
    struct node *n = parser_node(p, NODE_TUPLE);
    n->list = first;
    while (parser_skip(p, OPERATOR_COMMA) && p->at->kind != TOKEN_BLOCK_END && !parser_is_name(p, "in") &&
           !at_operator(p, OPERATOR_ASSIGN) && !at_operator(p, OPERATOR_PAREN_CLOSE)) {
        *last = parse_target_item(p, attributes);
        last = &(*last)->next;
    }
    return n;
}

static struct node *parse_list(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_LIST), **last = &n->list;
    while (!parser_skip(p, OPERATOR_BRACKET_CLOSE)) {
        if (n->list) parser_expect(p, OPERATOR_COMMA, "in a list");
        if (parser_skip(p, OPERATOR_BRACKET_CLOSE)) break;
        *last = parser_expression(p);
        last = &(*last)->next;
    }
    return n;
}

static struct node *parse_dict(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_DICT), **last = &n->list;
    while (!parser_skip(p, OPERATOR_BRACE_CLOSE)) {
        if (n->list) parser_expect(p, OPERATOR_COMMA, "in a dict");
        if (parser_skip(p, OPERATOR_BRACE_CLOSE)) break;
        struct node *key = parser_expression(p);
        parser_expect(p, OPERATOR_COLON, "behind a key");
        key->next = parser_expression(p);
        *last = key;
        last = &key->next->next;
    }
    return n;
}

/* Primaries and what follows them. */

static struct node *parse_name(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_CONSTANT);
    const struct template_string *name = (p->at++)->text;
    if (string_is(name, "true") || string_is(name, "True")) {
        n->constant = value_bool(true);
    } else if (string_is(name, "false") || string_is(name, "False")) {
        n->constant = value_bool(false);
    } else if (string_is(name, "none") || string_is(name, "None")) {
        n->constant = value_none();
    } else {
        n->kind = NODE_NAME;
        n->name = name;
    }
    return n;
}

static struct node *parse_strings(struct template_parser *p) {
    struct node *n = parser_node(p, NODE_CONSTANT);
    struct text_builder b = {.m = p->m};
    while (p->at->kind == TOKEN_STRING) builder_add(&b, (p->at++)->text);
    n->constant = value_string(builder_string(&b));
    return n;
}

struct node *parser_primary(struct template_parser *p) {
    char words[64];
    struct node *n;
    if (p->at->kind == TOKEN_NAME) return parse_name(p);
    if (p->at->kind == TOKEN_STRING) return parse_strings(p);
    if (p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT) {
        n = parser_node(p, NODE_CONSTANT);
        n->constant = p->at->kind == TOKEN_INT ? value_int(p->at->number) : value_float(p->at->real);
        p->at++;
        return n;
    }
    parser_enter(p);
    if (parser_skip(p, OPERATOR_PAREN_OPEN)) {
        n = parse_items(p, TUPLE_OF_CHOICES, true);
        parser_expect(p, OPERATOR_PAREN_CLOSE, "behind an expression");
    } else if (parser_skip(p, OPERATOR_BRACKET_OPEN)) {
        n = parse_list(p);
    } else if (parser_skip(p, OPERATOR_BRACE_OPEN)) {
        n = parse_dict(p);
    } else {
        parser_fail(p, "unexpected %s", token_words(p->at, words));
    }
    parser_leave(p);
    return n;
}

void parser_call_arguments(struct template_parser *p, struct node *call) {
    struct node **last = &call->list, **last_keyword = &call->keywords;
    parser_expect(p, OPERATOR_PAREN_OPEN, "before arguments");
    while (!parser_skip(p, OPERATOR_PAREN_CLOSE)) {
        if (call->list || call->keywords) parser_expect(p, OPERATOR_COMMA, "between arguments");
        if (parser_skip(p, OPERATOR_PAREN_CLOSE)) break;
        if (at_operator(p, OPERATOR_MUL) || at_operator(p, OPERATOR_POW)) parser_refuse(p, "* or ** in arguments");
        bool named =
            p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && p->at[1].operator== OPERATOR_ASSIGN;
        if (named) {
            struct node *keyword = parser_node(p, NODE_KEYWORD);
            keyword->name = parser_expect_name(p);
            p->at++;
            keyword->left = parser_expression(p);
            *last_keyword = keyword;
            last_keyword = &keyword->next;
        } else {
            if (call->keywords) parser_fail(p, "a positional argument behind a named one");
            *last = parser_expression(p);
            last = &(*last)->next;
        }
    }
}

static struct node *parse_call(struct template_parser *p, struct node *left) {
    struct node *n = parser_binary(p, NODE_CALL, left, NULL);
    parser_call_arguments(p, n);
    return n;
}

static struct node *parse_slice_part(struct template_parser *p) {
    bool empty =
        at_operator(p, OPERATOR_COLON) || at_operator(p, OPERATOR_BRACKET_CLOSE) || at_operator(p, OPERATOR_COMMA);
    return empty ? NULL : parser_expression(p);
}

static struct node *parse_subscript(struct template_parser *p) {
    struct node *from = parse_slice_part(p);
    if (!at_operator(p, OPERATOR_COLON)) {
        if (from == NULL) parser_fail(p, "[] without an index");
        return from;
    }
    struct node *n = parser_node(p, NODE_SLICE);
    n->left = from;
    parser_skip(p, OPERATOR_COLON);
    n->right = parse_slice_part(p);
    if (parser_skip(p, OPERATOR_COLON)) n->other = parse_slice_part(p);
    return n;
}

static struct node *parse_item(struct template_parser *p, struct node *left) {
    struct node *n = parser_binary(p, NODE_ITEM, left, parse_subscript(p));
    if (at_operator(p, OPERATOR_COMMA)) parser_refuse(p, "an index of several values");
    parser_expect(p, OPERATOR_BRACKET_CLOSE, "behind an index");
    return n;
}

static struct node *parse_dot(struct template_parser *p, struct node *left) {
    struct node *n = parser_binary(p, NODE_ATTRIBUTE, left, NULL);
    if (p->at->kind == TOKEN_INT) {
        n->kind = NODE_ITEM;
        n->right = parser_primary(p);
    } else {
        n->name = parser_expect_name(p);
    }
    return n;
}

static struct node *parse_postfix(struct template_parser *p, struct node *n) {
    for (;;) {
        if (parser_skip(p, OPERATOR_DOT))
            n = parse_dot(p, n);
        else if (parser_skip(p, OPERATOR_BRACKET_OPEN))
            n = parse_item(p, n);
        else if (at_operator(p, OPERATOR_PAREN_OPEN))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* One filter behind its pipe. */
static struct node *parse_filter(struct template_parser *p, struct node *left) {
    struct node *n = parser_binary(p, NODE_FILTER, left, NULL);
    n->line = p->at->line;
    n->name = parser_expect_name(p);
    if (at_operator(p, OPERATOR_DOT)) parser_refuse(p, "a filter with a dot in its name");
    n->row = filter_find(n->name);
    if (at_operator(p, OPERATOR_PAREN_OPEN)) parser_call_arguments(p, n);
    return n;
}

struct node *parser_filters(struct template_parser *p, struct node *left, bool first_is_named) {
    if (first_is_named) left = parse_filter(p, left);
    while (parser_skip(p, OPERATOR_PIPE)) left = parse_filter(p, left);
    return left;
}

static bool test_argument_follows(const struct template_parser *p) {
    if (p->at->kind == TOKEN_NAME)
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_INT || p->at->kind == TOKEN_FLOAT ||
           at_operator(p, OPERATOR_BRACKET_OPEN) || at_operator(p, OPERATOR_BRACE_OPEN);
}

static struct node *parse_test(struct template_parser *p, struct node *left) {
    bool negated = parser_skip_name(p, "not");
    struct node *n = parser_binary(p, NODE_TEST, left, NULL);
    n->line = p->at->line;
    n->name = parser_expect_name(p);
    n->row = test_find(n->name);
    if (at_operator(p, OPERATOR_PAREN_OPEN)) {
        parser_call_arguments(p, n);
    } else if (test_argument_follows(p)) {
        if (parser_is_name(p, "is")) parser_fail(p, "a test of a test");
        n->list = parse_postfix(p, parser_primary(p));
    }
    if (!negated) return n;
    n = parser_binary(p, NODE_UNARY, n, NULL);
    n->operator= OPERATOR_NOT;
    return n;
}

static struct node *parse_unary(struct template_parser *p, bool with_filters) {
    struct node *n;
    enum operator_kind sign;
    static const enum operator_kind of[] = {OPERATOR_SUB, OPERATOR_ADD};
    if (takes_any(p, of, ARRAY_COUNT(of), &sign)) {
        n = parser_node(p, NODE_UNARY);
        n->operator= sign;
        parser_enter(p);
        n->left = parse_unary(p, false);
        parser_leave(p);
    } else {
        n = parser_primary(p);
    }
    n = parse_postfix(p, n);
    while (with_filters) {
        if (parser_skip(p, OPERATOR_PIPE))
            n = parse_filter(p, n);
        else if (parser_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (at_operator(p, OPERATOR_PAREN_OPEN))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}
