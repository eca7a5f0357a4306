/* retro/grammar/program.c: from expressions to nodes, from the end of each text to its beginning: a part is compiled
 * when the node behind it is known. Parts that match no text are left out, so that whoever follows the nodes can always
 * come to an end. See program.h. */
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
    int *rule_of;             /* [n_exprs] the rule that was made of a repetition or an object, -1: none */
    int *pending;             /* [n_pending] expressions of rules from n_rules of the draft on */
    int n_pending, pending_capacity;
    int holder; /* of the register: the counter that is being compiled, or REGISTER_... */
    struct error *e;
};

static int compile_expr(struct compiler *c, int expr, int next);

static int fail_nodes(struct compiler *c) {
    if (c->e->status == STATUS_OK)
        error_set(c->e, STATUS_TOO_LARGE,
                  "the grammar takes more than %d nodes; the longest repetitions and lists "
                  "of alternatives make them",
                  MAX_NODES);
    return 0;
}

static int node_add(struct compiler *c, enum node_kind kind, int a, int b) {
    struct program *p = c->p;
    if (c->e->status || p->n_nodes == MAX_NODES) return fail_nodes(c);
    p->nodes = xgrow(p->nodes, p->n_nodes, &p->nodes_capacity, sizeof *p->nodes);
    p->nodes[p->n_nodes] = (struct program_node){kind, a, b, c->holder};
    p->n_nodes++;
    return p->n_nodes - 1;
}

static int targets_add(struct program *p, const int *targets, int n) {
    int first = p->n_targets;
    for (int i = 0; i < n; i++) {
        p->targets = xgrow(p->targets, p->n_targets, &p->targets_capacity, sizeof *p->targets);
        p->targets[p->n_targets] = targets[i];
        p->n_targets++;
    }
    return first;
}

static int split_add(struct compiler *c, const int *targets, int n) {
    return node_add(c, NODE_SPLIT, targets_add(c->p, targets, n), n);
}

/* Sets and texts. */

/* The number of an equal set. */
static int set_add(struct compiler *c, const struct symbol_set *set) {
    struct program *p = c->p;
    uint64_t hash = lookup_hash(set, sizeof *set);
    size_t at = 0;
    for (int i; (i = lookup_next(&c->sets, hash, &at)) >= 0;)
        if (memcmp(&p->sets[i], set, sizeof *set) == 0) return i;
    lookup_add(&c->sets, hash, p->n_sets);
    p->sets = xgrow(p->sets, p->n_sets, &p->sets_capacity, sizeof *p->sets);
    p->sets[p->n_sets] = *set;
    p->n_sets++;
    return p->n_sets - 1;
}

static int compile_text(struct compiler *c, const struct expr *x, int next) {
    const char *text = c->d->text.data + x->first;
    for (int i = x->n - 1; i >= 0; i--) {
        struct symbol_set set = {{0}};
        symbol_set_add(&set, (unsigned char)text[i]);
        next = node_add(c, NODE_SET, set_add(c, &set), next);
    }
    return next;
}

/* Alternatives. */

static int compile_either(struct compiler *c, const struct expr *x, int next) {
    struct expr_list targets = {0};
    for (int i = 0; i < x->n; i++) {
        int item = expr_items(c->d, x)[i];
        if (c->facts.matches[item]) expr_list_add(&targets, compile_expr(c, item, next));
    }
    int node = targets.n == 1 ? targets.items[0] : split_add(c, targets.items, targets.n);
    free(targets.items);
    return node;
}

/* Repetitions. */

/* Nodes of an expression, up to a bound. */
static int expr_size(const struct compiler *c, int expr, int most) {
    const struct expr *x = &c->d->exprs[expr];
    int size = 1;
    if (x->kind == EXPR_TEXT) return x->n;
    if (x->kind == EXPR_SET || x->kind == EXPR_RULE || x->kind == EXPR_OBJECT) return 1;
    for (int i = 0; i < x->n && size < most; i++) size += expr_size(c, expr_items(c->d, x)[i], most - size);
    return size;
}

static int compile_option(struct compiler *c, int item, int next) {
    int targets[2] = {compile_expr(c, item, next), next};
    return split_add(c, targets, 2);
}

static int compile_loop(struct compiler *c, int item, int next) {
    int loop = split_add(c, (const int[]){next, next}, 2), first = c->p->nodes[loop].a;
    int body = compile_expr(c, item, loop);
    c->p->targets[first] = body;
    return loop;
}

static int compile_copies(struct compiler *c, const struct expr *x, int item, int next) {
    if (x->max < 0) next = compile_loop(c, item, next);
    for (int i = x->min; i < x->max; i++) next = compile_option(c, item, next);
    for (int i = 0; i < x->min; i++) next = compile_expr(c, item, next);
    return next;
}

static int compile_counter(struct compiler *c, const struct expr *x, int item, int next) {
    struct program *p = c->p;
    int number = p->n_counters, outer = c->holder;
    p->counters = xgrow(p->counters, p->n_counters, &p->counters_capacity, sizeof *p->counters);
    p->counters[number] = (struct program_counter){.min = x->min, .max = x->max, .exit = next};
    p->n_counters++;
    c->holder = number;
    int node = node_add(c, NODE_COUNT, number, 0), body = compile_expr(c, item, node);
    p->counters[number].body = body;
    c->holder = outer;
    return node;
}

/* A call of the rule that is made of an expression. */
static int compile_own_rule(struct compiler *c, int expr, int next) {
    if (c->rule_of[expr] < 0) {
        c->rule_of[expr] = c->d->n_rules + c->n_pending;
        c->pending = xgrow(c->pending, c->n_pending, &c->pending_capacity, sizeof *c->pending);
        c->pending[c->n_pending] = expr;
        c->n_pending++;
    }
    return node_add(c, NODE_CALL, c->rule_of[expr], next);
}

static int compile_repeat(struct compiler *c, int expr, int next) {
    struct expr x = c->d->exprs[expr];
    int item = expr_items(c->d, &x)[0], times = x.max < 0 ? x.min : x.max;
    if (!c->facts.matches[item]) return next;
    if (c->facts.nullable[item]) {
        x.min = 0;
        if (x.max > MAX_EMPTY_REPEAT && c->e->status == STATUS_OK)
            error_set(c->e, STATUS_TOO_LARGE,
                      "a part that may be empty is repeated up to %d times; at most %d are allowed there", x.max,
                      MAX_EMPTY_REPEAT);
        return compile_copies(c, &x, item, next);
    }
    if (times <= 1 || times * (int64_t)expr_size(c, item, SMALL_REPEAT + 1) <= SMALL_REPEAT)
        return compile_copies(c, &x, item, next);
    if (c->holder != REGISTER_FREE) return compile_own_rule(c, expr, next);
    return compile_counter(c, &x, item, next);
}

/* Objects. */

static void members_add(struct compiler *c, const struct expr *x, int after) {
    struct program *p = c->p;
    for (int i = 3; i < x->n; i++) {
        int item = expr_items(c->d, x)[i];
        int start = c->facts.matches[item] ? compile_expr(c, item, after) : -1;
        p->members = xgrow(p->members, p->n_members, &p->members_capacity, sizeof *p->members);
        p->members[p->n_members] = (struct program_member){start, c->d->required[x->first + i]};
        p->n_members++;
    }
}

static int compile_object(struct compiler *c, const struct expr *x, int next) {
    struct program *p = c->p;
    const int *parts = expr_items(c->d, x);
    int number = p->n_objects;
    p->objects = xgrow(p->objects, p->n_objects, &p->objects_capacity, sizeof *p->objects);
    p->n_objects++;
    struct program_object object = {.n = x->n - 3, .more = -1, .ordered = x->min};
    c->holder = REGISTER_OF_OBJECT;
    int after = node_add(c, NODE_AFTER, number, 0), pick = node_add(c, NODE_PICK, number, 0);
    int members = node_add(c, NODE_MEMBERS, number, 0);
    object.close = compile_expr(c, parts[2], next);
    object.separator = compile_expr(c, parts[1], pick);
    if (c->facts.matches[x->max]) object.more = compile_expr(c, x->max, after);
    object.first = p->n_members;
    members_add(c, x, after);
    p->objects[number] = object;
    int open = compile_expr(c, parts[0], members);
    c->holder = REGISTER_FREE;
    return open;
}

/* Everything. */

static int compile_sequence(struct compiler *c, const struct expr *x, int next) {
    for (int i = x->n - 1; i >= 0; i--) next = compile_expr(c, expr_items(c->d, x)[i], next);
    return next;
}

/* The node from which a text of the expression, which matches some, leads to `next`. */
static int compile_expr(struct compiler *c, int expr, int next) {
    const struct expr *x = &c->d->exprs[expr];
    if (c->e->status) return 0;
    switch (x->kind) {
        case EXPR_SET: return node_add(c, NODE_SET, set_add(c, &c->d->sets[x->first]), next);
        case EXPR_TEXT: return compile_text(c, x, next);
        case EXPR_SEQUENCE: return compile_sequence(c, x, next);
        case EXPR_EITHER: return compile_either(c, x, next);
        case EXPR_REPEAT: return compile_repeat(c, expr, next);
        case EXPR_RULE: return node_add(c, NODE_CALL, x->first, next);
        default: return compile_own_rule(c, expr, next);
    }
}

/* The beginning of a rule that was made of an expression. */
static int compile_pending(struct compiler *c, int expr, int accept) {
    const struct expr *x = &c->d->exprs[expr];
    if (x->kind == EXPR_OBJECT) return compile_object(c, x, accept);
    return compile_counter(c, x, expr_items(c->d, x)[0], accept);
}

static void rule_add(struct compiler *c, int expr, bool own) {
    struct program *p = c->p;
    struct program_rule rule = {.nullable = c->facts.nullable[expr]};
    int accept = node_add(c, NODE_ACCEPT, 0, 0);
    rule.start = accept;
    if (own)
        rule.start = compile_pending(c, expr, accept);
    else if (c->facts.matches[expr])
        rule.start = compile_expr(c, expr, accept);
    p->rules = xgrow(p->rules, p->n_rules, &p->rules_capacity, sizeof *p->rules);
    p->rules[p->n_rules] = rule;
    p->n_rules++;
}

static enum status check_draft(const struct grammar_draft *d, struct error *e) {
    if (grammar_draft_check(d, e)) return e->status;
    for (int i = 0; i < d->n_rules; i++)
        if (d->rules[i].expr < 0)
            return error_set(e, STATUS_INVALID, "the rule %.100s is used and not defined", d->rules[i].name);
    return STATUS_OK;
}

static enum status check_root(const struct compiler *c) {
    int root = c->d->rules[0].expr;
    if (!c->facts.matches[root]) return error_set(c->e, STATUS_INVALID, "no text matches: every one would be endless");
    return STATUS_OK;
}

static void compile_rules(struct compiler *c) {
    for (int i = 0; i < c->d->n_rules && c->e->status == STATUS_OK; i++) rule_add(c, c->d->rules[i].expr, false);
    for (int i = 0; i < c->n_pending && c->e->status == STATUS_OK; i++) rule_add(c, c->pending[i], true);
}

enum status program_compile(struct program *out, const struct grammar_draft *d, struct error *e) {
    struct compiler c = {.p = out, .d = d, .holder = REGISTER_FREE, .e = e};
    *out = (struct program){0};
    *e = (struct error){0};
    if (check_draft(d, e)) return e->status;
    c.rule_of = xmalloc((size_t)d->n_exprs * sizeof *c.rule_of);
    for (int i = 0; i < d->n_exprs; i++) c.rule_of[i] = -1;
    expr_facts_open(&c.facts, d);
    if (check_root(&c) == STATUS_OK) compile_rules(&c);
    if (e->status == STATUS_OK) program_finish(out, d, e);
    expr_facts_free(&c.facts);
    lookup_free(&c.sets);
    free(c.rule_of);
    free(c.pending);
    return e->status;
}

void program_free(struct program *p) {
    for (int i = 0; i < p->n_rules; i++) free(p->rules[i].first);
    free(p->nodes);
    free(p->targets);
    free(p->counters);
    free(p->objects);
    free(p->members);
    free(p->rules);
    free(p->sets);
    free(p->class_sets);
    *p = (struct program){0};
}
