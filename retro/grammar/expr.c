/* retro/grammar/expr.c: see expr.h. */
#include "retro/grammar/expr.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 8 << 20 };

static int draft_fail(struct grammar_draft *d, const char *what, int most) {
    if (d->error.status == STATUS_OK)
        error_set(&d->error, STATUS_TOO_LARGE, "the grammar has more than %d %s", most, what);
    return EXPR_NOTHING;
}

static int expr_add(struct grammar_draft *d, struct expr x) {
    if (d->error.status) return EXPR_NOTHING;
    if (d->n_exprs == GRAMMAR_MAX_EXPRS) return draft_fail(d, "parts", GRAMMAR_MAX_EXPRS);
    d->exprs = xgrow(d->exprs, d->n_exprs, &d->exprs_capacity, sizeof *d->exprs);
    d->exprs[d->n_exprs] = x;
    d->n_exprs++;
    return d->n_exprs - 1;
}

/* The place of n new items. */
static int items_add(struct grammar_draft *d, const int *items, int n) {
    int first = d->n_items, capacity = d->items_capacity;
    for (int i = 0; i < n; i++) {
        d->items = xgrow(d->items, d->n_items, &d->items_capacity, sizeof *d->items);
        d->items[d->n_items] = items[i];
        d->n_items++;
    }
    if (d->items_capacity > capacity)
        d->required = xrealloc(d->required, (size_t)d->items_capacity * sizeof *d->required);
    for (int i = first; i < d->n_items; i++) d->required[i] = false;
    return first;
}

void grammar_draft_open(struct grammar_draft *d) {
    expr_add(d, (struct expr){.kind = EXPR_SEQUENCE});
    expr_add(d, (struct expr){.kind = EXPR_EITHER});
}

void grammar_draft_free(struct grammar_draft *d) {
    for (int i = 0; i < d->n_rules; i++) free(d->rules[i].name);
    free(d->exprs);
    free(d->sets);
    free(d->items);
    free(d->required);
    free(d->rules);
    buffer_free(&d->text);
    *d = (struct grammar_draft){0};
}

enum status grammar_draft_check(const struct grammar_draft *d, struct error *e) {
    if (d->error.status) *e = d->error;
    return d->error.status;
}

int expr_set(struct grammar_draft *d, const struct symbol_set *set) {
    bool empty = true;
    for (size_t i = 0; i < ARRAY_COUNT(set->bits); i++) empty = empty && set->bits[i] == 0;
    if (empty || d->error.status) return EXPR_NOTHING;
    d->sets = xgrow(d->sets, d->n_sets, &d->sets_capacity, sizeof *d->sets);
    d->sets[d->n_sets] = *set;
    d->n_sets++;
    return expr_add(d, (struct expr){.kind = EXPR_SET, .first = d->n_sets - 1});
}

int expr_mark(struct grammar_draft *d, int mark) {
    struct symbol_set set = {{0}};
    symbol_set_add(&set, GRAMMAR_BYTES + mark);
    return expr_set(d, &set);
}

int expr_text(struct grammar_draft *d, const char *text, size_t size) {
    int first = (int)d->text.size;
    if (size == 0) return EXPR_EMPTY;
    if (d->text.size + size > TEXT_LIMIT) return draft_fail(d, "bytes of literal text", TEXT_LIMIT);
    buffer_append(&d->text, text, size);
    return expr_add(d, (struct expr){.kind = EXPR_TEXT, .first = first, .n = (int)size});
}

int expr_word(struct grammar_draft *d, const char *word) { return expr_text(d, word, strlen(word)); }

int expr_sequence(struct grammar_draft *d, const int *items, int n) {
    int first = d->n_items;
    for (int i = 0; i < n; i++)
        if (items[i] == EXPR_NOTHING) return EXPR_NOTHING;
    if (n == 1) return items[0];
    if (n == 0) return EXPR_EMPTY;
    items_add(d, items, n);
    return expr_add(d, (struct expr){.kind = EXPR_SEQUENCE, .first = first, .n = n});
}

int expr_either(struct grammar_draft *d, const int *items, int n) {
    int first = d->n_items;
    if (n == 1) return items[0];
    if (n == 0) return EXPR_NOTHING;
    items_add(d, items, n);
    return expr_add(d, (struct expr){.kind = EXPR_EITHER, .first = first, .n = n});
}

int expr_repeat(struct grammar_draft *d, int item, int min, int max) {
    if (min > GRAMMAR_MAX_REPEAT || max > GRAMMAR_MAX_REPEAT)
        return draft_fail(d, "repetitions of one part", GRAMMAR_MAX_REPEAT);
    if (max == 0 || item == EXPR_EMPTY) return EXPR_EMPTY;
    if (min == 1 && max == 1) return item;
    if (item == EXPR_NOTHING) return min == 0 ? EXPR_EMPTY : EXPR_NOTHING;
    int first = items_add(d, &item, 1);
    return expr_add(d, (struct expr){.kind = EXPR_REPEAT, .first = first, .n = 1, .min = min, .max = max});
}

int expr_object(struct grammar_draft *d, const struct expr_object *object) {
    int parts[] = {object->open, object->separator, object->close};
    if (object->n > GRAMMAR_MAX_MEMBERS) return draft_fail(d, "named members of one object", GRAMMAR_MAX_MEMBERS);
    int first = items_add(d, parts, 3);
    for (int i = 0; i < object->n; i++) {
        items_add(d, &object->members[i].expr, 1);
        d->required[d->n_items - 1] = object->members[i].required;
    }
    return expr_add(
        d, (struct expr){
               .kind = EXPR_OBJECT, .first = first, .n = object->n + 3, .min = object->ordered, .max = object->more});
}

int draft_rule_open(struct grammar_draft *d, const char *name) {
    if (d->n_rules == GRAMMAR_MAX_RULES) {
        draft_fail(d, "rules", GRAMMAR_MAX_RULES);
        return d->n_rules - 1;
    }
    d->rules = xgrow(d->rules, d->n_rules, &d->rules_capacity, sizeof *d->rules);
    d->rules[d->n_rules] = (struct draft_rule){.name = xstrdup(name), .expr = -1};
    d->n_rules++;
    return d->n_rules - 1;
}

void draft_rule_set(struct grammar_draft *d, int rule, int expr) { d->rules[rule].expr = expr; }

int expr_rule(struct grammar_draft *d, int rule) {
    return expr_add(d, (struct expr){.kind = EXPR_RULE, .first = rule});
}

void expr_list_add(struct expr_list *list, int expr) {
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n] = expr;
    list->n++;
}
