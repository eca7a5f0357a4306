/* retro/grammar/expr_facts.c: least fixed points over a draft's expressions. Parts come before the whole, so that one
 * sweep is enough but for rules; sweeps in both directions follow chains of rules however they are listed. */
#include <stdlib.h>

#include "retro/grammar/program.h"

static const int64_t MOST_WORK = 400 * 1000 * 1000;

static bool all_of(const struct grammar_draft *d, const struct expr *x, const bool *facts) {
    for (int i = 0; i < x->n; i++)
        if (!facts[expr_items(d, x)[i]]) return false;
    return true;
}

static bool any_of(const struct grammar_draft *d, const struct expr *x, const bool *facts) {
    for (int i = 0; i < x->n; i++)
        if (facts[expr_items(d, x)[i]]) return true;
    return false;
}

/* Only what opens and closes it, and what is required, must be there. */
static bool object_matches(const struct grammar_draft *d, const struct expr *x, const bool *matches) {
    for (int i = 0; i < x->n; i++)
        if ((i < 3 || d->required[x->first + i]) && !matches[expr_items(d, x)[i]]) return false;
    return true;
}

static bool expr_matches(const struct expr_facts *f, const struct grammar_draft *d, const struct expr *x) {
    switch (x->kind) {
        case EXPR_SET:
        case EXPR_TEXT: return true;
        case EXPR_SEQUENCE: return all_of(d, x, f->matches);
        case EXPR_EITHER: return any_of(d, x, f->matches);
        case EXPR_REPEAT: return x->min == 0 || all_of(d, x, f->matches);
        case EXPR_RULE: return f->rule_matches[x->first];
        default: return object_matches(d, x, f->matches);
    }
}

static bool expr_nullable(const struct expr_facts *f, const struct grammar_draft *d, const struct expr *x) {
    switch (x->kind) {
        case EXPR_SEQUENCE: return all_of(d, x, f->nullable);
        case EXPR_EITHER: return any_of(d, x, f->nullable);
        case EXPR_REPEAT: return x->min == 0 || all_of(d, x, f->nullable);
        case EXPR_RULE: return f->rule_nullable[x->first];
        default: return false; /* what opens an object is never empty */
    }
}

static bool note_fact(bool *fact, bool now) {
    bool changed = now && !*fact;
    *fact = *fact || now;
    return changed;
}

static bool sweep(struct expr_facts *f, const struct grammar_draft *d, bool backwards) {
    bool changed = false;
    for (int i = 0; i < d->n_exprs; i++) {
        int x = backwards ? d->n_exprs - 1 - i : i;
        changed |= note_fact(&f->matches[x], expr_matches(f, d, &d->exprs[x]));
        changed |= note_fact(&f->nullable[x], expr_nullable(f, d, &d->exprs[x]));
    }
    for (int i = 0; i < d->n_rules; i++) {
        int rule = backwards ? d->n_rules - 1 - i : i;
        changed |= note_fact(&f->rule_matches[rule], f->matches[d->rules[rule].expr]);
        changed |= note_fact(&f->rule_nullable[rule], f->nullable[d->rules[rule].expr]);
    }
    return changed;
}

enum status expr_facts_open(struct expr_facts *f, const struct grammar_draft *d, struct error *e) {
    size_t n = (size_t)d->n_exprs, rules = (size_t)d->n_rules;
    int64_t work = 0;
    *f = (struct expr_facts){xcalloc(n, 1), xcalloc(n, 1), xcalloc(rules + 1, 1), xcalloc(rules + 1, 1)};
    for (bool backwards = false; sweep(f, d, backwards); backwards = !backwards) {
        work += d->n_exprs + d->n_rules;
        if (work > MOST_WORK)
            return error_set(e, STATUS_TOO_LARGE, "the grammar's rules refer to each other in too many ways");
    }
    return STATUS_OK;
}

void expr_facts_free(struct expr_facts *f) {
    free(f->nullable);
    free(f->matches);
    free(f->rule_nullable);
    free(f->rule_matches);
    *f = (struct expr_facts){0};
}
