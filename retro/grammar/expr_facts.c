/* retro/grammar/expr_facts.c: least fixed points over a draft's expressions: a fact that is found of an expression is
 * told to all that it is a part of, each of which counts how many parts it still waits for. */
#include <stdlib.h>

#include "retro/grammar/program.h"

/* The expressions that each expression is a part of; a rule's expression is a part of the rule's calls. */
struct expr_wholes {
    int *first;  /* [n_exprs + 1] of `wholes` */
    int *wholes; /* those of expression x are first[x] .. first[x + 1] */
};

/* Calls note(part, whole) for all parts that must match for their whole to do so, or that may. */
typedef void part_noter(struct expr_wholes *w, int part, int whole);

static void each_part(const struct grammar_draft *d, struct expr_wholes *w, part_noter *note) {
    for (int x = 0; x < d->n_exprs; x++) {
        const struct expr *e = &d->exprs[x];
        if (e->kind == EXPR_RULE) note(w, d->rules[e->first].expr, x);
        if (e->kind == EXPR_SET || e->kind == EXPR_TEXT || e->kind == EXPR_RULE) continue;
        for (int i = 0; i < e->n; i++) {
            /* Of an object's members, those that are required. */
            bool waits = e->kind != EXPR_OBJECT || i < 3 || d->required[e->first + i];
            if (waits) note(w, expr_items(d, e)[i], x);
        }
    }
}

static void count_whole(struct expr_wholes *w, int part, int whole) {
    (void)whole;
    w->first[part]++;
}

/* Fills from the end of each part's places to their beginning. */
static void put_whole(struct expr_wholes *w, int part, int whole) {
    w->first[part]--;
    w->wholes[w->first[part]] = whole;
}

static void wholes_open(struct expr_wholes *w, const struct grammar_draft *d) {
    w->first = xcalloc((size_t)d->n_exprs + 1, sizeof *w->first);
    each_part(d, w, count_whole);
    for (int x = 1; x <= d->n_exprs; x++) w->first[x] += w->first[x - 1];
    w->wholes = xcalloc((size_t)w->first[d->n_exprs] + 1, sizeof *w->wholes);
    each_part(d, w, put_whole);
}

/* How many parts a fact of the expression waits for; -1: it is never true. */
static int needs_to_match(const struct grammar_draft *d, const struct expr *x) {
    int needed = 3; /* the parts that open, separate and close an object */
    switch (x->kind) {
        case EXPR_SET:
        case EXPR_TEXT: return 0;
        case EXPR_SEQUENCE: return x->n;
        case EXPR_EITHER: return x->n > 0 ? 1 : -1;
        case EXPR_REPEAT: return x->min == 0 ? 0 : x->n;
        case EXPR_RULE: return 1;
        default:
            for (int i = 3; i < x->n; i++) needed += d->required[x->first + i];
            return needed;
    }
}

/* The part that opens an object is never empty. */
static int needs_to_be_empty(const struct grammar_draft *d, const struct expr *x) {
    bool text = x->kind == EXPR_SET || x->kind == EXPR_TEXT || x->kind == EXPR_OBJECT;
    return text ? -1 : needs_to_match(d, x);
}

static void find_facts(const struct grammar_draft *d, const struct expr_wholes *w, bool *facts,
                       int (*needs)(const struct grammar_draft *d, const struct expr *x)) {
    int *waits = xcalloc((size_t)d->n_exprs, sizeof *waits);
    struct expr_list found = {0};
    for (int x = 0; x < d->n_exprs; x++) {
        waits[x] = needs(d, &d->exprs[x]);
        facts[x] = waits[x] == 0;
        if (facts[x]) expr_list_add(&found, x);
    }
    while (found.n > 0) {
        found.n--;
        int part = found.items[found.n];
        for (int i = w->first[part]; i < w->first[part + 1]; i++) {
            int whole = w->wholes[i];
            if (facts[whole] || waits[whole] < 0) continue;
            waits[whole]--;
            facts[whole] = waits[whole] == 0;
            if (facts[whole]) expr_list_add(&found, whole);
        }
    }
    free(waits);
    free(found.items);
}

void expr_facts_open(struct expr_facts *f, const struct grammar_draft *d) {
    struct expr_wholes w;
    *f = (struct expr_facts){xcalloc((size_t)d->n_exprs, 1), xcalloc((size_t)d->n_exprs, 1)};
    wholes_open(&w, d);
    find_facts(d, &w, f->matches, needs_to_match);
    find_facts(d, &w, f->nullable, needs_to_be_empty);
    free(w.first);
    free(w.wholes);
}

void expr_facts_free(struct expr_facts *f) {
    free(f->nullable);
    free(f->matches);
    *f = (struct expr_facts){0};
}
