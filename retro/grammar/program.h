/* retro/grammar/program.h: a grammar as an automaton with a stack: for each rule a graph of nodes,
 * whose edges are read symbols, calls of rules, and steps that read nothing. Constant once
 * compiled; automaton.h runs it.
 *
 * A walk through a rule carries one number, its register: the count of a repetition, or the members
 * of an object that were seen. Repetitions within repetitions, and objects, are rules of their own,
 * so that one register is enough. */
#pragma once

#include "retro/grammar/expr.h"

enum node_kind {
    NODE_ACCEPT,  /* the rule is over */
    NODE_SET,     /* reads a symbol of set a, goes on at b */
    NODE_SPLIT,   /* goes on at each of the targets [a, a + b) */
    NODE_CALL,    /* rule a, then b */
    NODE_COUNT,   /* counter a, whose number so far is in the register */
    NODE_MEMBERS, /* object a, behind what opens it: its end, or a first member */
    NODE_AFTER,   /* object a, behind a member: its end, or a separator */
    NODE_PICK     /* object a, behind a separator: a member */
};

struct program_node {
    enum node_kind kind;
    int a, b;
    int counter; /* whose repetition it is in, negative: none */
};

struct program_counter {
    int min, max; /* max -1: no end */
    int body, exit;
};

struct program_object {
    int first, n; /* members: entries of `members` */
    int more;     /* node of a further member, -1: there are none */
    int separator, close;
    bool ordered;
};

struct program_member {
    int start; /* -1: it can never be written */
    bool required;
};

struct program_rule {
    int start;
    bool nullable;
    uint64_t *first; /* classes that its texts begin with */
};

struct program {
    struct program_node *nodes;
    int n_nodes, nodes_capacity;
    int *targets;
    int n_targets, targets_capacity;
    struct program_counter *counters;
    int n_counters, counters_capacity;
    struct program_object *objects;
    int n_objects, objects_capacity;
    struct program_member *members;
    int n_members, members_capacity;
    struct program_rule *rules; /* [n_rules] the first is the root */
    int n_rules, rules_capacity;
    struct symbol_set *sets; /* each once */
    int n_sets, sets_capacity;
    /* Symbols that no set tells apart are of one class. */
    int n_classes;
    uint16_t class_of[GRAMMAR_SYMBOLS];
    int class_words;      /* 64-bit words of a set of classes */
    uint64_t *class_sets; /* [n_sets][class_words] */
};

static inline bool class_in(const uint64_t *set, int class) {
    return set[class / 64] >> (class % 64) & 1;
}
static inline const uint64_t *program_set(const struct program *program, int set) {
    return program->class_sets + (size_t)set * (size_t)program->class_words;
}

/* Compiles the draft, whose first rule is the root. STATUS_INVALID: a rule is not defined, or is
 * left-recursive, or the root matches no text, or none but the empty one; STATUS_TOO_LARGE: a
 * limit. *out can be freed either way. */
enum status program_compile(struct program *out, const struct grammar_draft *draft,
                            struct error *e);
void program_free(struct program *program);

/* program_first.c: classes of symbols, the beginnings of rules, and whether a rule begins with
 * itself. */
enum status program_finish(struct program *program, const struct grammar_draft *draft,
                           struct error *e);

/* expr_facts.c: of each expression, whether it matches the empty text, and whether it matches any
 * text. */
struct expr_facts {
    bool *nullable, *matches; /* [n_exprs] */
};
void expr_facts_open(struct expr_facts *facts, const struct grammar_draft *draft);
void expr_facts_free(struct expr_facts *facts);
