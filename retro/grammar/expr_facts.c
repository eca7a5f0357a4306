/* retro/grammar/expr_facts.c: least fixed points over a draft's expressions: a fact that is found
 * of an expression is told to all that it is a part of, each of which counts how many parts it
 * still waits for. */
#include <stdlib.h>

#include "retro/grammar/program.h"

/* The expressions that each expression is a part of; a rule's expression is a part of the rule's
 * calls. */
struct expr_wholes {
    int *first;  /* [n_exprs + 1] of `wholes` */
    int *wholes; /* those of expression x are first[x] .. first[x + 1] */
};

/* Calls note(part, whole) for all parts that must match for their whole to do so, or that may. */
typedef void part_noter(struct expr_wholes *w, int part, int whole);

static void each_part(const struct grammar_draft *draft, struct expr_wholes *wholes,
                      part_noter *note) {
    for (int x = 0; x < draft->n_exprs; x++) {
        const struct expr *expression = &draft->exprs[x];
        if (expression->kind == EXPR_RULE) note(wholes, draft->rules[expression->first].expr, x);
        if (expression->kind == EXPR_SET || expression->kind == EXPR_TEXT ||
            expression->kind == EXPR_QUOTE || expression->kind == EXPR_RULE)
            continue;
        for (int i = 0; i < expression->n; i++) {
            /* Of an object's members, those that are required. */
            bool waits =
                expression->kind != EXPR_OBJECT || i < 3 || draft->required[expression->first + i];
            if (waits) note(wholes, expr_items(draft, expression)[i], x);
        }
    }
}

static void count_whole(struct expr_wholes *wholes, int part, int whole) {
    (void)whole;
    wholes->first[part]++;
}

/* Fills from the end of each part's places to their beginning. */
static void put_whole(struct expr_wholes *wholes, int part, int whole) {
    wholes->first[part]--;
    wholes->wholes[wholes->first[part]] = whole;
}

static void wholes_open(struct expr_wholes *wholes, const struct grammar_draft *draft) {
    wholes->first = xcalloc((size_t)draft->n_exprs + 1, sizeof *wholes->first);
    each_part(draft, wholes, count_whole);
    for (int x = 1; x <= draft->n_exprs; x++) wholes->first[x] += wholes->first[x - 1];
    wholes->wholes = xcalloc((size_t)wholes->first[draft->n_exprs] + 1, sizeof *wholes->wholes);
    each_part(draft, wholes, put_whole);
}

/* How many parts a fact of the expression waits for; -1: it is never true. */
static int needs_to_match(const struct grammar_draft *draft, const struct expr *expression) {
    int needed = 3; /* the parts that open, separate and close an object */
    switch (expression->kind) {
        case EXPR_SET:
        case EXPR_TEXT: return 0;
        case EXPR_QUOTE: return draft->without_quotes ? -1 : 0;
        case EXPR_SEQUENCE: return expression->n;
        case EXPR_EITHER: return expression->n > 0 ? 1 : -1;
        case EXPR_REPEAT: return expression->min == 0 ? 0 : expression->n;
        case EXPR_RULE: return 1;
        default:
            for (int i = 3; i < expression->n; i++)
                needed += draft->required[expression->first + i];
            return needed;
    }
}

/* The part that opens an object is never empty. */
static int needs_to_be_empty(const struct grammar_draft *draft, const struct expr *expression) {
    bool text = expression->kind == EXPR_SET || expression->kind == EXPR_TEXT ||
                expression->kind == EXPR_QUOTE || expression->kind == EXPR_OBJECT;
    return text ? -1 : needs_to_match(draft, expression);
}

static void find_facts(const struct grammar_draft *grammar_draft, const struct expr_wholes *wholes,
                       bool *facts,
                       int (*needs)(const struct grammar_draft *grammar_draft,
                                    const struct expr *x)) {
    int *waits = xcalloc((size_t)grammar_draft->n_exprs, sizeof *waits);
    struct expr_list found = {0};
    for (int x = 0; x < grammar_draft->n_exprs; x++) {
        waits[x] = needs(grammar_draft, &grammar_draft->exprs[x]);
        facts[x] = waits[x] == 0;
        if (facts[x]) expr_list_add(&found, x);
    }
    while (found.n > 0) {
        found.n--;
        int part = found.items[found.n];
        for (int i = wholes->first[part]; i < wholes->first[part + 1]; i++) {
            int whole = wholes->wholes[i];
            if (facts[whole] || waits[whole] < 0) continue;
            waits[whole]--;
            facts[whole] = waits[whole] == 0;
            if (facts[whole]) expr_list_add(&found, whole);
        }
    }
    free(waits);
    free(found.items);
}

void expr_facts_open(struct expr_facts *facts, const struct grammar_draft *draft) {
    struct expr_wholes wholes;
    *facts =
        (struct expr_facts){xcalloc((size_t)draft->n_exprs, 1), xcalloc((size_t)draft->n_exprs, 1)};
    wholes_open(&wholes, draft);
    find_facts(draft, &wholes, facts->matches, needs_to_match);
    find_facts(draft, &wholes, facts->nullable, needs_to_be_empty);
    free(wholes.first);
    free(wholes.wholes);
}

void expr_facts_free(struct expr_facts *facts) {
    free(facts->nullable);
    free(facts->matches);
    *facts = (struct expr_facts){0};
}
