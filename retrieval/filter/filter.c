/* retrieval/filter/filter.c: filters as trees: asked, joined and written. See filter.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/filter/filter_private.h"
#include "retrieval/filter/scope.h"

struct filter *filter_make(enum filter_kind kind) {
    struct filter *f = xcalloc(1, sizeof *f);
    atomic_init(&f->holders, 1);
    f->kind = kind;
    return f;
}

void filter_add_part(struct filter *f, struct filter *part) {
    f->parts = xgrow(f->parts, f->n_parts, &f->parts_capacity, sizeof(struct filter *));
    f->parts[f->n_parts] = part;
    f->n_parts++;
}

struct filter *filter_hold(struct filter *f) {
    if (f) atomic_fetch_add(&f->holders, 1);
    return f;
}

static void free_value(struct filter_value *v) { free((char *)(uintptr_t)v->fact.text.text); }

void filter_release(struct filter *f) {
    if (f == NULL || atomic_fetch_sub(&f->holders, 1) > 1) return;
    for (int i = 0; i < f->n_parts; i++) filter_release(f->parts[i]);
    for (int i = 0; i < f->n_values; i++) free_value(&f->values[i]);
    free_value(&f->low.value);
    free_value(&f->high.value);
    free(f->parts);
    free(f->values);
    free(f->sorted);
    free(f->key);
    free(f->text);
    free(f);
}

/* Asking. */

static bool is_number(const struct fact *f) { return f->kind == FACT_INT || f->kind == FACT_REAL; }

/* An order of all values: booleans, numbers, texts. 0: they are equal. */
static int compare_facts(const struct fact *a, const struct fact *b) {
    if (is_number(a) && is_number(b)) return fact_compare_numbers(a, b);
    int x = is_number(a) ? FACT_INT : (int)a->kind, y = is_number(b) ? FACT_INT : (int)b->kind;
    if (x != y) return x < y ? -1 : 1;
    return a->kind == FACT_BOOL ? (int)a->truth - (int)b->truth : span_compare(a->text, b->text);
}

static int by_value(const void *a, const void *b) {
    return compare_facts(*(const struct fact *const *)a, *(const struct fact *const *)b);
}

void filter_sort_values(struct filter *f) {
    if (f->n_values < 2) return;
    f->sorted = xcalloc((size_t)f->n_values, sizeof *f->sorted);
    for (int i = 0; i < f->n_values; i++) f->sorted[i] = &f->values[i].fact;
    qsort(f->sorted, (size_t)f->n_values, sizeof *f->sorted, by_value);
}

/* The order of a value and a bound; false where they cannot be compared. */
static bool compare_with(const struct fact *fact, const struct filter_value *bound, int *order) {
    int64_t date;
    if (bound->fact.kind == FACT_TEXT) {
        if (fact->kind != FACT_TEXT || !fact_parse_date(fact->text, &date)) return false;
        *order = (date > bound->date) - (date < bound->date);
        return true;
    }
    if (!is_number(fact)) return false;
    *order = fact_compare_numbers(fact, &bound->fact);
    return true;
}

static bool is_within(const struct fact *fact, const struct filter *f) {
    int order;
    if (f->low.given && (!compare_with(fact, &f->low.value, &order) || order < (f->low.inclusive ? 0 : 1)))
        return false;
    if (f->high.given && (!compare_with(fact, &f->high.value, &order) || order > (f->high.inclusive ? 0 : -1)))
        return false;
    return true;
}

static bool begins_with(const struct fact *fact, struct text_span prefix) {
    return fact->kind == FACT_TEXT && fact->text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(fact->text.text, prefix.text, prefix.size) == 0);
}

static bool condition_holds(const struct filter *f, const struct fact *fact) {
    if (f->kind == FILTER_RANGE) return is_within(fact, f);
    if (f->kind == FILTER_PREFIX) return begins_with(fact, f->values[0].fact.text);
    if (f->sorted == NULL) return compare_facts(fact, &f->values[0].fact) == 0;
    return bsearch(&fact, f->sorted, (size_t)f->n_values, sizeof *f->sorted, by_value) != NULL;
}

static bool text_holds(const struct filter *f, const char *text) {
    return condition_holds(f, &(struct fact){.kind = FACT_TEXT, .text = {text, strlen(text)}});
}

/* Whether any value of that name fits. `id` and `path` are the document's own; an id is the one that the document's
 * owner gave, and the stored one. */
static bool condition_allows(const struct filter *f, const struct filter_subject *s) {
    struct fact fact;
    struct text_span key = {f->key, f->key_size};
    if (strcmp(f->key, "path") == 0) return text_holds(f, s->path);
    if (strcmp(f->key, "id") == 0) return text_holds(f, s->id) || text_holds(f, scope_own(s->id));
    for (size_t at = 0; facts_next(s->facts, &at, &fact);)
        if (span_equals(fact.name, key) && condition_holds(f, &fact)) return true;
    return false;
}

bool filter_allows(const struct filter *f, const struct filter_subject *s) {
    if (f == NULL) return true;
    if (f->kind == FILTER_NOT) return !filter_allows(f->parts[0], s);
    if (f->kind != FILTER_AND && f->kind != FILTER_OR) return condition_allows(f, s);
    for (int i = 0; i < f->n_parts; i++)
        if (filter_allows(f->parts[i], s) == (f->kind == FILTER_OR)) return f->kind == FILTER_OR;
    return f->kind == FILTER_AND;
}

/* Admitting. */

/* A filter's answer where each list is one of its values alone: the same for each choice of values, or mixed. */
enum verdict { VERDICT_NO, VERDICT_MIXED, VERDICT_YES };

static enum verdict verdict_of(int n_fit, int n) {
    if (n_fit == 0) return VERDICT_NO;
    return n_fit == n ? VERDICT_YES : VERDICT_MIXED;
}

static enum verdict judge_condition(const struct filter *f, const struct filter_subject *s) {
    struct text_span key = {f->key, f->key_size};
    struct fact fact;
    int n = 0, n_fit = 0;
    bool listed = false, is_equal = f->kind == FILTER_IN && f->n_values == 1;
    bool is_own = strcmp(f->key, "id") == 0 || strcmp(f->key, "path") == 0;
    if (is_own) return condition_allows(f, s) ? VERDICT_YES : VERDICT_NO;
    for (size_t at = 0; facts_next(s->facts, &at, &fact);) {
        if (!span_equals(fact.name, key)) continue;
        n++;
        n_fit += condition_holds(f, &fact);
        listed = listed || fact.listed;
    }
    return listed && is_equal && n_fit > 0 ? VERDICT_MIXED : verdict_of(n_fit, n);
}

static enum verdict judge(const struct filter *f, const struct filter_subject *s) {
    if (f->kind == FILTER_NOT) return VERDICT_YES - judge(f->parts[0], s);
    if (f->kind != FILTER_AND && f->kind != FILTER_OR) return judge_condition(f, s);
    enum verdict all = f->kind == FILTER_AND ? VERDICT_YES : VERDICT_NO;
    for (int i = 0; i < f->n_parts; i++) {
        enum verdict part = judge(f->parts[i], s);
        if (f->kind == FILTER_AND ? part < all : part > all) all = part;
    }
    return all;
}

bool filter_admits(const struct filter *f, const struct filter_subject *s) {
    return f == NULL || judge(f, s) == VERDICT_YES;
}

enum status filter_refuse(const struct filter *f, struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "the document is not one that this client may put (of a list all values have to fit, and what "
                     "equals one value is no list): %s",
                     filter_text(f));
}

/* Writing. */

static void put_fact(struct json_writer *w, const struct fact *fact) {
    switch (fact->kind) {
        case FACT_BOOL: put_bool(w, fact->truth); break;
        case FACT_INT: put_int(w, fact->whole); break;
        case FACT_REAL: put_double(w, fact->real); break;
        case FACT_TEXT: put_string_n(w, fact->text.text, fact->text.size); break;
    }
}

static void put_bound(struct json_writer *w, const struct filter_bound *b, const char *inclusive,
                      const char *exclusive) {
    if (!b->given) return;
    put_key(w, b->inclusive ? inclusive : exclusive);
    put_fact(w, &b->value.fact);
}

static void put_condition(struct json_writer *w, const struct filter *f) {
    bool alone = f->n_values == 1;
    put_key_object(w, f->kind == FILTER_RANGE ? "range" : f->kind == FILTER_PREFIX ? "prefix" : alone ? "eq" : "in");
    put_key_n(w, f->key, f->key_size);
    if (f->kind == FILTER_RANGE) {
        put_object(w);
        put_bound(w, &f->low, "gte", "gt");
        put_bound(w, &f->high, "lte", "lt");
        put_object_end(w);
    } else if (alone) {
        put_fact(w, &f->values[0].fact);
    } else {
        put_array(w);
        for (int i = 0; i < f->n_values; i++) put_fact(w, &f->values[i].fact);
        put_array_end(w);
    }
    put_object_end(w);
}

static void put_filter(struct json_writer *w, const struct filter *f) {
    put_object(w);
    if (f->kind == FILTER_NOT) {
        put_key(w, "not");
        put_filter(w, f->parts[0]);
    } else if (f->kind == FILTER_AND || f->kind == FILTER_OR) {
        put_key_array(w, f->kind == FILTER_AND ? "and" : "or");
        for (int i = 0; i < f->n_parts; i++) put_filter(w, f->parts[i]);
        put_array_end(w);
    } else {
        put_condition(w, f);
    }
    put_object_end(w);
}

void filter_finish(struct filter *f) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_filter(&w, f);
    free(f->text);
    f->text = text.data;
}

const char *filter_text(const struct filter *f) { return f ? f->text : ""; }

bool filter_is_same(const struct filter *a, const struct filter *b) {
    return a == b || strcmp(filter_text(a), filter_text(b)) == 0;
}

/* Joining. */

struct filter *filter_join(struct filter *a, struct filter *b) {
    if (a == NULL || b == NULL) return filter_hold(a ? a : b);
    struct filter *both = filter_make(FILTER_AND);
    filter_add_part(both, filter_hold(a));
    filter_add_part(both, filter_hold(b));
    filter_finish(both);
    return both;
}

/* Filling. */

static void fill_members(const struct filter *f, const struct json *given, struct json_writer *w) {
    if (f->kind == FILTER_AND)
        for (int i = 0; i < f->n_parts; i++) fill_members(f->parts[i], given, w);
    if (f->kind != FILTER_IN || f->n_values != 1) return;
    if (strcmp(f->key, "id") == 0 || strcmp(f->key, "path") == 0) return;
    if (json_member_n(given, (struct text_span){f->key, f->key_size})) return;
    put_key_n(w, f->key, f->key_size);
    put_fact(w, &f->values[0].fact);
}

enum status filter_fill(const struct filter *f, struct buffer *metadata, struct error *e) {
    struct json *given = NULL;
    struct buffer filled = {0};
    struct json_writer w;
    if (f == NULL) return STATUS_OK;
    if (metadata->size > 0 && json_parse(&given, (struct text_span){metadata->data, metadata->size}, "metadata", e))
        return e->status;
    if (given && json_kind(given) != JSON_KIND_OBJECT) {
        json_close(given);
        return error_set(e, STATUS_INVALID, "metadata is not an object");
    }
    put_begin(&w, &filled);
    put_object(&w);
    for (struct json_entry it = {0}; given && json_next(given, &it);) {
        put_key_n(&w, it.name.text, it.name.size);
        put_json(&w, it.value);
    }
    fill_members(f, given, &w);
    put_object_end(&w);
    json_close(given);
    buffer_free(metadata);
    *metadata = filled;
    return STATUS_OK;
}
