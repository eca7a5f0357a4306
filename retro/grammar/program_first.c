/* retro/grammar/program_first.c: what follows from a program's nodes: symbols that it never tells
 * apart, the symbols that each rule's texts begin with, and rules that begin with themselves, which
 * no walk from left to right can follow. See program.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/grammar/program.h"

/* Longer chains of rules that begin with each other would be a deep recursion of automaton.c. */
enum { MAX_CHAIN = 500 };

/* Classes. */

/* Cuts every class in two: the symbols of the set, and the others. */
static void refine_classes(struct program *program, const struct symbol_set *set) {
    uint16_t renamed[GRAMMAR_SYMBOLS][2];
    int n = 0;
    memset(renamed, 0xFF, sizeof renamed);
    for (int s = 0; s < GRAMMAR_SYMBOLS; s++) {
        uint16_t *name = &renamed[program->class_of[s]][symbol_set_has(set, s)];
        if (*name == 0xFFFF) {
            *name = (uint16_t)n;
            n++;
        }
        program->class_of[s] = *name;
    }
    program->n_classes = n;
}

static void find_classes(struct program *program) {
    program->n_classes = 1;
    for (int i = 0; i < program->n_sets; i++) refine_classes(program, &program->sets[i]);
    program->class_words = (program->n_classes + 63) / 64;
    program->class_sets = xcalloc((size_t)program->n_sets * (size_t)program->class_words + 1,
                                  sizeof *program->class_sets);
    for (int i = 0; i < program->n_sets; i++) {
        uint64_t *classes = program->class_sets + (size_t)i * (size_t)program->class_words;
        for (int s = 0; s < GRAMMAR_SYMBOLS; s++)
            if (symbol_set_has(&program->sets[i], s))
                classes[program->class_of[s] / 64] |= (uint64_t)1 << (program->class_of[s] % 64);
    }
}

/* Beginnings. */

/* The nodes that a rule begins at, and the search for rules among them. */
struct first_search {
    struct program *p;
    const struct grammar_draft *d;
    int *seen; /* [n_nodes] the rule that saw the node last, -1: none */
    int *stack;
    int n_stack, capacity;
};

static void push_node(struct first_search *search, int rule, int node) {
    if (search->seen[node] == rule) return;
    search->seen[node] = rule;
    search->stack = xgrow(search->stack, search->n_stack, &search->capacity, sizeof *search->stack);
    search->stack[search->n_stack] = node;
    search->n_stack++;
}

static void push_counter(struct first_search *search, int rule,
                         const struct program_counter *counter) {
    push_node(search, rule, counter->body);
    if (counter->min == 0) push_node(search, rule, counter->exit);
}

/* Takes in the symbols of a node that its rule begins at, goes on where nothing is read, and lists
 * called rules. */
static void visit_node(struct first_search *search, int rule, int node, struct expr_list *called) {
    struct program *program = search->p;
    const struct program_node *program_node = &program->nodes[node];
    if (program_node->kind == NODE_SET)
        for (int i = 0; i < program->class_words; i++)
            program->rules[rule].first[i] |= program_set(program, program_node->a)[i];
    if (program_node->kind == NODE_SPLIT)
        for (int i = 0; i < program_node->b; i++)
            push_node(search, rule, program->targets[program_node->a + i]);
    if (program_node->kind == NODE_COUNT)
        push_counter(search, rule, &program->counters[program_node->a]);
    if (program_node->kind != NODE_CALL) return;
    expr_list_add(called, program_node->a);
    if (program->rules[program_node->a].nullable) push_node(search, rule, program_node->b);
}

static void list_called(struct first_search *search, int rule, struct expr_list *called) {
    search->n_stack = 0;
    push_node(search, rule, search->p->rules[rule].start);
    while (search->n_stack > 0) {
        search->n_stack--;
        visit_node(search, rule, search->stack[search->n_stack], called);
    }
}

/* One rule on the way from the root of a search. */
struct first_place {
    int rule, next; /* next: of the called rules */
    struct expr_list called;
};

static const char *rule_name(const struct grammar_draft *draft, int rule) {
    return rule < draft->n_rules ? draft->rules[rule].name : "of a repetition";
}

static enum status fail_chain(const struct first_search *search, int rule, bool itself,
                              struct error *e) {
    const char *name = rule_name(search->d, rule);
    if (itself)
        return error_set(e, STATUS_INVALID,
                         "the rule %.100s begins with itself (left recursion): write it with the "
                         "repetition behind, "
                         "as a ::= b (\"+\" b)*",
                         name);
    return error_set(e, STATUS_TOO_LARGE, "more than %d rules begin with each other, at %.100s",
                     MAX_CHAIN, name);
}

enum { RULE_NEW, RULE_OPEN, RULE_DONE };

/* Depth first from one rule; the beginnings of a rule are known when those of all that it calls
 * are. */
static enum status search_from(struct first_search *search, int root, uint8_t *states,
                               struct first_place *places, struct error *e) {
    struct program *program = search->p;
    int depth = 0;
    enum status status = STATUS_OK;
    places[0] = (struct first_place){.rule = root};
    states[root] = RULE_OPEN;
    list_called(search, root, &places[0].called);
    while (depth >= 0) {
        struct first_place *place = &places[depth];
        if (status || place->next == place->called.n) {
            for (int i = 0; i < place->called.n && status == STATUS_OK; i++)
                for (int w = 0; w < program->class_words; w++)
                    program->rules[place->rule].first[w] |=
                        program->rules[place->called.items[i]].first[w];
            states[place->rule] = RULE_DONE;
            free(place->called.items);
            depth--;
            continue;
        }
        int rule = place->called.items[place->next];
        place->next++;
        if (states[rule] == RULE_DONE) continue;
        if (states[rule] == RULE_OPEN || depth + 1 == MAX_CHAIN) {
            status = fail_chain(search, rule, states[rule] == RULE_OPEN, e);
            continue;
        }
        depth++;
        places[depth] = (struct first_place){.rule = rule};
        states[rule] = RULE_OPEN;
        list_called(search, rule, &places[depth].called);
    }
    return status;
}

static bool is_empty(const struct program *program, const uint64_t *set) {
    for (int i = 0; i < program->class_words; i++)
        if (set[i]) return false;
    return true;
}

enum status program_finish(struct program *program, const struct grammar_draft *draft,
                           struct error *e) {
    struct first_search search = {.p = program, .d = draft};
    uint8_t *states = xcalloc((size_t)program->n_rules, 1);
    struct first_place *places = xcalloc(MAX_CHAIN, sizeof *places);
    find_classes(program);
    search.seen = xmalloc((size_t)program->n_nodes * sizeof *search.seen);
    for (int i = 0; i < program->n_nodes; i++) search.seen[i] = -1;
    for (int i = 0; i < program->n_rules; i++)
        program->rules[i].first = xcalloc((size_t)program->class_words, sizeof(uint64_t));
    enum status status = STATUS_OK;
    for (int i = 0; i < program->n_rules && status == STATUS_OK; i++)
        if (states[i] == RULE_NEW) status = search_from(&search, i, states, places, e);
    if (status == STATUS_OK && is_empty(program, program->rules[0].first))
        status = error_set(e, STATUS_INVALID, "only the empty text matches");
    free(search.seen);
    free(search.stack);
    free(states);
    free(places);
    return status;
}
