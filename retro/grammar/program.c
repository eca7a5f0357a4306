/* retro/grammar/program.c: from expressions to nodes, from the end of each text to its beginning: a
 * part is compiled when the node behind it is known. Parts that match no text are left out, so that
 * whoever follows the nodes can always come to an end. See program.h. */
#include "retro/grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/lookup.h"

enum {
    MAX_NODES = 2000000,
    SMALL_REPEAT = 32, /* nodes of a repetition that is written out instead of counted */
    MAX_EMPTY_REPEAT = 64,
    REGISTER_FREE = -1, /* the current rule's register */
    REGISTER_OF_OBJECT = -2
};

struct compiler {
    struct program *p;
    const struct grammar_draft *d;
    struct expr_facts facts;
    struct lookup_table sets; /* of the program */
    int *rule_of; /* [n_exprs] the rule that was made of a repetition or an object, -1: none */
    int *pending; /* [n_pending] expressions of rules from n_rules of the draft on */
    int n_pending, pending_capacity;
    int holder; /* of the register: the counter that is being compiled, or REGISTER_... */
    struct error *e;
};

static int compile_expr(struct compiler *compiler, int expr, int next);

static int fail_nodes(struct compiler *compiler) {
    if (compiler->e->status == STATUS_OK)
        error_set(compiler->e, STATUS_TOO_LARGE,
                  "the grammar takes more than %d nodes; the longest repetitions and lists "
                  "of alternatives make them",
                  MAX_NODES);
    return 0;
}

static int node_add(struct compiler *compiler, enum node_kind kind, int a, int b) {
    struct program *program = compiler->p;
    if (compiler->e->status || program->n_nodes == MAX_NODES) return fail_nodes(compiler);
    program->nodes =
        xgrow(program->nodes, program->n_nodes, &program->nodes_capacity, sizeof *program->nodes);
    program->nodes[program->n_nodes] = (struct program_node){kind, a, b, compiler->holder};
    program->n_nodes++;
    return program->n_nodes - 1;
}

static int targets_add(struct program *program, const int *targets, int n) {
    int first = program->n_targets;
    for (int i = 0; i < n; i++) {
        program->targets = xgrow(program->targets, program->n_targets, &program->targets_capacity,
                                 sizeof *program->targets);
        program->targets[program->n_targets] = targets[i];
        program->n_targets++;
    }
    return first;
}

static int split_add(struct compiler *compiler, const int *targets, int n) {
    return node_add(compiler, NODE_SPLIT, targets_add(compiler->p, targets, n), n);
}

/* Sets and texts. */

/* The number of an equal set. */
static int set_add(struct compiler *compiler, const struct symbol_set *set) {
    struct program *program = compiler->p;
    uint64_t hash = lookup_hash(set, sizeof *set);
    size_t at = 0;
    for (int i; (i = lookup_next(&compiler->sets, hash, &at)) >= 0;)
        if (memcmp(&program->sets[i], set, sizeof *set) == 0) return i;
    lookup_add(&compiler->sets, hash, program->n_sets);
    program->sets =
        xgrow(program->sets, program->n_sets, &program->sets_capacity, sizeof *program->sets);
    program->sets[program->n_sets] = *set;
    program->n_sets++;
    return program->n_sets - 1;
}

static int compile_text(struct compiler *compiler, const struct expr *expression, int next) {
    const char *text = compiler->d->text.data + expression->first;
    for (int i = expression->n - 1; i >= 0; i--) {
        struct symbol_set set = {{0}};
        symbol_set_add(&set, (unsigned char)text[i]);
        next = node_add(compiler, NODE_SET, set_add(compiler, &set), next);
    }
    return next;
}

static int compile_quote(struct compiler *compiler, const struct expr *expression, int next) {
    struct symbol_set set = {{0}};
    symbol_set_add(&set, GRAMMAR_QUOTES + expression->first);
    return node_add(compiler, NODE_SET, set_add(compiler, &set), next);
}

/* Alternatives. */

static int compile_either(struct compiler *compiler, const struct expr *expression, int next) {
    struct expr_list targets = {0};
    for (int i = 0; i < expression->n; i++) {
        int item = expr_items(compiler->d, expression)[i];
        if (compiler->facts.matches[item])
            expr_list_add(&targets, compile_expr(compiler, item, next));
    }
    int node = targets.n == 1 ? targets.items[0] : split_add(compiler, targets.items, targets.n);
    free(targets.items);
    return node;
}

/* Repetitions. */

/* Nodes of an expression, up to a bound. */
static int expr_size(const struct compiler *compiler, int expr, int most) {
    const struct expr *expression = &compiler->d->exprs[expr];
    int size = 1;
    if (expression->kind == EXPR_TEXT) return expression->n;
    if (expression->kind == EXPR_SET || expression->kind == EXPR_QUOTE ||
        expression->kind == EXPR_RULE || expression->kind == EXPR_OBJECT)
        return 1;
    for (int i = 0; i < expression->n && size < most; i++)
        size += expr_size(compiler, expr_items(compiler->d, expression)[i], most - size);
    return size;
}

static int compile_option(struct compiler *compiler, int item, int next) {
    int targets[2] = {compile_expr(compiler, item, next), next};
    return split_add(compiler, targets, 2);
}

static int compile_loop(struct compiler *compiler, int item, int next) {
    int loop = split_add(compiler, (const int[]){next, next}, 2),
        first = compiler->p->nodes[loop].a;
    int body = compile_expr(compiler, item, loop);
    compiler->p->targets[first] = body;
    return loop;
}

static int compile_copies(struct compiler *compiler, const struct expr *expression, int item,
                          int next) {
    if (expression->max < 0) next = compile_loop(compiler, item, next);
    for (int i = expression->min; i < expression->max; i++)
        next = compile_option(compiler, item, next);
    for (int i = 0; i < expression->min; i++) next = compile_expr(compiler, item, next);
    return next;
}

static int compile_counter(struct compiler *compiler, const struct expr *expression, int item,
                           int next) {
    struct program *program = compiler->p;
    int number = program->n_counters, outer = compiler->holder;
    program->counters = xgrow(program->counters, program->n_counters, &program->counters_capacity,
                              sizeof *program->counters);
    program->counters[number] =
        (struct program_counter){.min = expression->min, .max = expression->max, .exit = next};
    program->n_counters++;
    compiler->holder = number;
    int node = node_add(compiler, NODE_COUNT, number, 0), body = compile_expr(compiler, item, node);
    program->counters[number].body = body;
    compiler->holder = outer;
    return node;
}

/* A call of the rule that is made of an expression. */
static int compile_own_rule(struct compiler *compiler, int expr, int next) {
    if (compiler->rule_of[expr] < 0) {
        compiler->rule_of[expr] = compiler->d->n_rules + compiler->n_pending;
        compiler->pending = xgrow(compiler->pending, compiler->n_pending,
                                  &compiler->pending_capacity, sizeof *compiler->pending);
        compiler->pending[compiler->n_pending] = expr;
        compiler->n_pending++;
    }
    return node_add(compiler, NODE_CALL, compiler->rule_of[expr], next);
}

static int compile_repeat(struct compiler *compiler, int expr, int next) {
    struct expr expression = compiler->d->exprs[expr];
    int item = expr_items(compiler->d, &expression)[0],
        times = expression.max < 0 ? expression.min : expression.max;
    if (!compiler->facts.matches[item]) return next;
    if (compiler->facts.nullable[item]) {
        expression.min = 0;
        if (expression.max > MAX_EMPTY_REPEAT && compiler->e->status == STATUS_OK)
            error_set(
                compiler->e, STATUS_TOO_LARGE,
                "a part that may be empty is repeated up to %d times; at most %d are allowed there",
                expression.max, MAX_EMPTY_REPEAT);
        return compile_copies(compiler, &expression, item, next);
    }
    if (times <= 1 || times * (int64_t)expr_size(compiler, item, SMALL_REPEAT + 1) <= SMALL_REPEAT)
        return compile_copies(compiler, &expression, item, next);
    if (compiler->holder != REGISTER_FREE) return compile_own_rule(compiler, expr, next);
    return compile_counter(compiler, &expression, item, next);
}

/* Objects. */

static void members_add(struct compiler *compiler, const struct expr *expression, int after) {
    struct program *program = compiler->p;
    for (int i = 3; i < expression->n; i++) {
        int item = expr_items(compiler->d, expression)[i];
        int start = compiler->facts.matches[item] ? compile_expr(compiler, item, after) : -1;
        program->members = xgrow(program->members, program->n_members, &program->members_capacity,
                                 sizeof *program->members);
        program->members[program->n_members] =
            (struct program_member){start, compiler->d->required[expression->first + i]};
        program->n_members++;
    }
}

static int compile_object(struct compiler *compiler, const struct expr *expression, int next) {
    struct program *program = compiler->p;
    const int *parts = expr_items(compiler->d, expression);
    int number = program->n_objects;
    program->objects = xgrow(program->objects, program->n_objects, &program->objects_capacity,
                             sizeof *program->objects);
    program->n_objects++;
    struct program_object object = {.n = expression->n - 3, .more = -1, .ordered = expression->min};
    compiler->holder = REGISTER_OF_OBJECT;
    int after = node_add(compiler, NODE_AFTER, number, 0),
        pick = node_add(compiler, NODE_PICK, number, 0);
    int members = node_add(compiler, NODE_MEMBERS, number, 0);
    object.close = compile_expr(compiler, parts[2], next);
    object.separator = compile_expr(compiler, parts[1], pick);
    if (compiler->facts.matches[expression->max])
        object.more = compile_expr(compiler, expression->max, after);
    object.first = program->n_members;
    members_add(compiler, expression, after);
    program->objects[number] = object;
    int open = compile_expr(compiler, parts[0], members);
    compiler->holder = REGISTER_FREE;
    return open;
}

/* Everything. */

static int compile_sequence(struct compiler *compiler, const struct expr *expression, int next) {
    for (int i = expression->n - 1; i >= 0; i--)
        next = compile_expr(compiler, expr_items(compiler->d, expression)[i], next);
    return next;
}

/* The node from which a text of the expression, which matches some, leads to `next`. */
static int compile_expr(struct compiler *compiler, int expr, int next) {
    const struct expr *expression = &compiler->d->exprs[expr];
    if (compiler->e->status) return 0;
    switch (expression->kind) {
        case EXPR_SET:
            return node_add(compiler, NODE_SET,
                            set_add(compiler, &compiler->d->sets[expression->first]), next);
        case EXPR_TEXT: return compile_text(compiler, expression, next);
        case EXPR_QUOTE: return compile_quote(compiler, expression, next);
        case EXPR_SEQUENCE: return compile_sequence(compiler, expression, next);
        case EXPR_EITHER: return compile_either(compiler, expression, next);
        case EXPR_REPEAT: return compile_repeat(compiler, expr, next);
        case EXPR_RULE: return node_add(compiler, NODE_CALL, expression->first, next);
        default: return compile_own_rule(compiler, expr, next);
    }
}

/* The beginning of a rule that was made of an expression. */
static int compile_pending(struct compiler *compiler, int expr, int accept) {
    const struct expr *expression = &compiler->d->exprs[expr];
    if (expression->kind == EXPR_OBJECT) return compile_object(compiler, expression, accept);
    return compile_counter(compiler, expression, expr_items(compiler->d, expression)[0], accept);
}

static void rule_add(struct compiler *compiler, int expr, bool own) {
    struct program *program = compiler->p;
    struct program_rule rule = {.nullable = compiler->facts.nullable[expr]};
    int accept = node_add(compiler, NODE_ACCEPT, 0, 0);
    rule.start = accept;
    if (own)
        rule.start = compile_pending(compiler, expr, accept);
    else if (compiler->facts.matches[expr])
        rule.start = compile_expr(compiler, expr, accept);
    program->rules =
        xgrow(program->rules, program->n_rules, &program->rules_capacity, sizeof *program->rules);
    program->rules[program->n_rules] = rule;
    program->n_rules++;
}

static enum status check_draft(const struct grammar_draft *draft, struct error *e) {
    if (grammar_draft_check(draft, e)) return e->status;
    for (int i = 0; i < draft->n_rules; i++)
        if (draft->rules[i].expr < 0)
            return error_set(e, STATUS_INVALID, "the rule %.100s is used and not defined",
                             draft->rules[i].name);
    return STATUS_OK;
}

static enum status check_root(const struct compiler *compiler) {
    int root = compiler->d->rules[0].expr;
    if (!compiler->facts.matches[root])
        return error_set(compiler->e, STATUS_INVALID,
                         "no text matches: every one would be endless");
    return STATUS_OK;
}

static void compile_rules(struct compiler *compiler) {
    for (int i = 0; i < compiler->d->n_rules && compiler->e->status == STATUS_OK; i++)
        rule_add(compiler, compiler->d->rules[i].expr, false);
    for (int i = 0; i < compiler->n_pending && compiler->e->status == STATUS_OK; i++)
        rule_add(compiler, compiler->pending[i], true);
}

enum status program_compile(struct program *out, const struct grammar_draft *draft,
                            struct error *e) {
    struct compiler compiler = {.p = out, .d = draft, .holder = REGISTER_FREE, .e = e};
    *out = (struct program){0};
    *e = (struct error){0};
    if (check_draft(draft, e)) return e->status;
    compiler.rule_of = xmalloc((size_t)draft->n_exprs * sizeof *compiler.rule_of);
    for (int i = 0; i < draft->n_exprs; i++) compiler.rule_of[i] = -1;
    expr_facts_open(&compiler.facts, draft);
    if (check_root(&compiler) == STATUS_OK) compile_rules(&compiler);
    if (e->status == STATUS_OK) program_finish(out, draft, e);
    expr_facts_free(&compiler.facts);
    lookup_free(&compiler.sets);
    free(compiler.rule_of);
    free(compiler.pending);
    return e->status;
}

void program_free(struct program *program) {
    for (int i = 0; i < program->n_rules; i++) free(program->rules[i].first);
    free(program->nodes);
    free(program->targets);
    free(program->counters);
    free(program->objects);
    free(program->members);
    free(program->rules);
    free(program->sets);
    free(program->class_sets);
    *program = (struct program){0};
}
