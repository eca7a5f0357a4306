/* retro/grammar/expr.c: see expr.h. */
#include "retro/grammar/expr.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 8 << 20 };

static int draft_fail(struct grammar_draft *draft, const char *what, int most) {
    if (draft->error.status == STATUS_OK)
        error_set(&draft->error, STATUS_TOO_LARGE, "the grammar has more than %d %s", most, what);
    return EXPR_NOTHING;
}

static int expr_add(struct grammar_draft *draft, struct expr expression) {
    if (draft->error.status) return EXPR_NOTHING;
    if (draft->n_exprs == GRAMMAR_MAX_EXPRS) return draft_fail(draft, "parts", GRAMMAR_MAX_EXPRS);
    draft->exprs =
        xgrow(draft->exprs, draft->n_exprs, &draft->exprs_capacity, sizeof *draft->exprs);
    draft->exprs[draft->n_exprs] = expression;
    draft->n_exprs++;
    return draft->n_exprs - 1;
}

/* The place of n new items. */
static int items_add(struct grammar_draft *draft, const int *items, int n) {
    int first = draft->n_items, capacity = draft->items_capacity;
    for (int i = 0; i < n; i++) {
        draft->items =
            xgrow(draft->items, draft->n_items, &draft->items_capacity, sizeof *draft->items);
        draft->items[draft->n_items] = items[i];
        draft->n_items++;
    }
    if (draft->items_capacity > capacity)
        draft->required =
            xrealloc(draft->required, (size_t)draft->items_capacity * sizeof *draft->required);
    for (int i = first; i < draft->n_items; i++) draft->required[i] = false;
    return first;
}

void grammar_draft_open(struct grammar_draft *draft) {
    expr_add(draft, (struct expr){.kind = EXPR_SEQUENCE});
    expr_add(draft, (struct expr){.kind = EXPR_EITHER});
}

void grammar_draft_free(struct grammar_draft *draft) {
    for (int i = 0; i < draft->n_rules; i++) free(draft->rules[i].name);
    free(draft->exprs);
    free(draft->sets);
    free(draft->items);
    free(draft->required);
    free(draft->rules);
    buffer_free(&draft->text);
    *draft = (struct grammar_draft){0};
}

enum status grammar_draft_check(const struct grammar_draft *draft, struct error *e) {
    if (draft->error.status) *e = draft->error;
    return draft->error.status;
}

int expr_set(struct grammar_draft *draft, const struct symbol_set *set) {
    bool empty = true;
    for (size_t i = 0; i < ARRAY_COUNT(set->bits); i++) empty = empty && set->bits[i] == 0;
    if (empty || draft->error.status) return EXPR_NOTHING;
    draft->sets = xgrow(draft->sets, draft->n_sets, &draft->sets_capacity, sizeof *draft->sets);
    draft->sets[draft->n_sets] = *set;
    draft->n_sets++;
    return expr_add(draft, (struct expr){.kind = EXPR_SET, .first = draft->n_sets - 1});
}

int expr_mark(struct grammar_draft *draft, int mark) {
    struct symbol_set set = {{0}};
    symbol_set_add(&set, GRAMMAR_BYTES + mark);
    return expr_set(draft, &set);
}

int expr_quote(struct grammar_draft *draft, enum quote_writing writing) {
    draft->quotes[writing] = true;
    return expr_add(draft, (struct expr){.kind = EXPR_QUOTE, .first = (int)writing});
}

int expr_text(struct grammar_draft *draft, const char *text, size_t size) {
    int first = (int)draft->text.size;
    if (size == 0) return EXPR_EMPTY;
    if (draft->text.size + size > TEXT_LIMIT)
        return draft_fail(draft, "bytes of literal text", TEXT_LIMIT);
    buffer_append(&draft->text, text, size);
    return expr_add(draft, (struct expr){.kind = EXPR_TEXT, .first = first, .n = (int)size});
}

int expr_word(struct grammar_draft *draft, const char *word) {
    return expr_text(draft, word, strlen(word));
}

int expr_sequence(struct grammar_draft *draft, const int *items, int n) {
    int first = draft->n_items;
    for (int i = 0; i < n; i++)
        if (items[i] == EXPR_NOTHING) return EXPR_NOTHING;
    if (n == 1) return items[0];
    if (n == 0) return EXPR_EMPTY;
    items_add(draft, items, n);
    return expr_add(draft, (struct expr){.kind = EXPR_SEQUENCE, .first = first, .n = n});
}

int expr_either(struct grammar_draft *draft, const int *items, int n) {
    int first = draft->n_items;
    if (n == 1) return items[0];
    if (n == 0) return EXPR_NOTHING;
    items_add(draft, items, n);
    return expr_add(draft, (struct expr){.kind = EXPR_EITHER, .first = first, .n = n});
}

int expr_repeat(struct grammar_draft *draft, int item, int min, int max) {
    if (min > GRAMMAR_MAX_REPEAT || max > GRAMMAR_MAX_REPEAT)
        return draft_fail(draft, "repetitions of one part", GRAMMAR_MAX_REPEAT);
    if (max == 0 || item == EXPR_EMPTY) return EXPR_EMPTY;
    if (min == 1 && max == 1) return item;
    if (item == EXPR_NOTHING) return min == 0 ? EXPR_EMPTY : EXPR_NOTHING;
    int first = items_add(draft, &item, 1);
    return expr_add(
        draft, (struct expr){.kind = EXPR_REPEAT, .first = first, .n = 1, .min = min, .max = max});
}

int expr_object(struct grammar_draft *draft, const struct expr_object *object) {
    int parts[] = {object->open, object->separator, object->close};
    if (object->n > GRAMMAR_MAX_MEMBERS)
        return draft_fail(draft, "named members of one object", GRAMMAR_MAX_MEMBERS);
    int first = items_add(draft, parts, 3);
    for (int i = 0; i < object->n; i++) {
        items_add(draft, &object->members[i].expr, 1);
        draft->required[draft->n_items - 1] = object->members[i].required;
    }
    return expr_add(draft, (struct expr){.kind = EXPR_OBJECT,
                                         .first = first,
                                         .n = object->n + 3,
                                         .min = object->ordered,
                                         .max = object->more});
}

int draft_rule_open(struct grammar_draft *draft, const char *name) {
    if (draft->n_rules == GRAMMAR_MAX_RULES) {
        draft_fail(draft, "rules", GRAMMAR_MAX_RULES);
        return draft->n_rules - 1;
    }
    draft->rules =
        xgrow(draft->rules, draft->n_rules, &draft->rules_capacity, sizeof *draft->rules);
    draft->rules[draft->n_rules] = (struct draft_rule){.name = xstrdup(name), .expr = -1};
    draft->n_rules++;
    return draft->n_rules - 1;
}

void draft_rule_set(struct grammar_draft *draft, int rule, int expr) {
    draft->rules[rule].expr = expr;
}

int expr_rule(struct grammar_draft *draft, int rule) {
    return expr_add(draft, (struct expr){.kind = EXPR_RULE, .first = rule});
}

void expr_list_add(struct expr_list *list, int expr) {
    list->items = xgrow(list->items, list->n, &list->capacity, sizeof *list->items);
    list->items[list->n] = expr;
    list->n++;
}
