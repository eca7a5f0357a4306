/* retrieval/filter/filter.c: filters as trees: asked, joined and written. See filter.h. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "retrieval/filter/filter_private.h"
#include "retrieval/filter/scope.h"

struct filter *filter_make(enum filter_kind kind) {
    struct filter *filter = xcalloc(1, sizeof *filter);
    atomic_init(&filter->holders, 1);
    filter->kind = kind;
    return filter;
}

void filter_add_part(struct filter *filter, struct filter *part) {
    filter->parts =
        xgrow(filter->parts, filter->n_parts, &filter->parts_capacity, sizeof(struct filter *));
    filter->parts[filter->n_parts] = part;
    filter->n_parts++;
}

struct filter *filter_hold(struct filter *filter) {
    if (filter) atomic_fetch_add(&filter->holders, 1);
    return filter;
}

static void free_value(struct filter_value *value) {
    free((char *)(uintptr_t)value->fact.text.text);
}

void filter_release(struct filter *filter) {
    if (filter == NULL || atomic_fetch_sub(&filter->holders, 1) > 1) return;
    for (int i = 0; i < filter->n_parts; i++) filter_release(filter->parts[i]);
    for (int i = 0; i < filter->n_values; i++) free_value(&filter->values[i]);
    free_value(&filter->low.value);
    free_value(&filter->high.value);
    filter_release(filter->base);
    free(filter->parts);
    free(filter->values);
    free(filter->sorted);
    free(filter->key);
    free(filter->text);
    free(filter);
}

/* Asking. */

static bool is_number(const struct fact *fact) {
    return fact->kind == FACT_INT || fact->kind == FACT_REAL;
}

/* An order of all values: booleans, numbers, texts. 0: they are equal. */
static int compare_facts(const struct fact *left, const struct fact *right) {
    if (is_number(left) && is_number(right)) return fact_compare_numbers(left, right);
    int x = is_number(left) ? FACT_INT : (int)left->kind,
        y = is_number(right) ? FACT_INT : (int)right->kind;
    if (x != y) return x < y ? -1 : 1;
    return left->kind == FACT_BOOL ? (int)left->truth - (int)right->truth
                                   : span_compare(left->text, right->text);
}

static int by_value(const void *a, const void *b) {
    return compare_facts(*(const struct fact *const *)a, *(const struct fact *const *)b);
}

void filter_sort_values(struct filter *filter) {
    if (filter->n_values < 2) return;
    filter->sorted = xcalloc((size_t)filter->n_values, sizeof *filter->sorted);
    for (int i = 0; i < filter->n_values; i++) filter->sorted[i] = &filter->values[i].fact;
    qsort(filter->sorted, (size_t)filter->n_values, sizeof *filter->sorted, by_value);
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

static bool is_within(const struct fact *fact, const struct filter *filter) {
    int order;
    if (filter->low.given && (!compare_with(fact, &filter->low.value, &order) ||
                              order < (filter->low.inclusive ? 0 : 1)))
        return false;
    if (filter->high.given && (!compare_with(fact, &filter->high.value, &order) ||
                               order > (filter->high.inclusive ? 0 : -1)))
        return false;
    return true;
}

static bool begins_with(const struct fact *fact, struct text_span prefix) {
    return fact->kind == FACT_TEXT && fact->text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(fact->text.text, prefix.text, prefix.size) == 0);
}

static bool condition_holds(const struct filter *filter, const struct fact *fact) {
    if (filter->kind == FILTER_RANGE) return is_within(fact, filter);
    if (filter->kind == FILTER_PREFIX) return begins_with(fact, filter->values[0].fact.text);
    if (filter->sorted == NULL) return compare_facts(fact, &filter->values[0].fact) == 0;
    return bsearch(&fact, filter->sorted, (size_t)filter->n_values, sizeof *filter->sorted,
                   by_value) != NULL;
}

static bool text_holds(const struct filter *filter, const char *text) {
    return condition_holds(filter, &(struct fact){.kind = FACT_TEXT, .text = {text, strlen(text)}});
}

/* Whether any value of that name fits. `id` and `path` are the document's own; an id is the one
 * that the document's owner gave, and the stored one. */
static bool condition_allows(const struct filter *filter, const struct filter_subject *subject) {
    struct fact fact;
    struct text_span key = {filter->key, filter->key_size};
    if (strcmp(filter->key, "path") == 0) return text_holds(filter, subject->path);
    if (strcmp(filter->key, "id") == 0)
        return text_holds(filter, subject->id) || text_holds(filter, scope_own(subject->id));
    for (size_t at = 0; facts_next(subject->facts, &at, &fact);)
        if (span_equals(fact.name, key) && condition_holds(filter, &fact)) return true;
    return false;
}

bool filter_allows(const struct filter *filter, const struct filter_subject *subject) {
    if (filter == NULL) return true;
    if (filter->kind == FILTER_NOT) return !filter_allows(filter->parts[0], subject);
    if (filter->kind != FILTER_AND && filter->kind != FILTER_OR)
        return condition_allows(filter, subject);
    for (int i = 0; i < filter->n_parts; i++)
        if (filter_allows(filter->parts[i], subject) == (filter->kind == FILTER_OR))
            return filter->kind == FILTER_OR;
    return filter->kind == FILTER_AND;
}

/* Admitting. */

/* A filter's answer where each list is one of its values alone: the same for each choice of values,
 * or mixed. */
enum verdict { VERDICT_NO, VERDICT_MIXED, VERDICT_YES };

static enum verdict verdict_of(int n_fit, int n) {
    if (n_fit == 0) return VERDICT_NO;
    return n_fit == n ? VERDICT_YES : VERDICT_MIXED;
}

static enum verdict judge_condition(const struct filter *filter,
                                    const struct filter_subject *subject) {
    struct text_span key = {filter->key, filter->key_size};
    struct fact fact;
    int n = 0, n_fit = 0;
    bool listed = false, is_equal = filter->kind == FILTER_IN && filter->n_values == 1;
    bool is_own = strcmp(filter->key, "id") == 0 || strcmp(filter->key, "path") == 0;
    if (is_own) return condition_allows(filter, subject) ? VERDICT_YES : VERDICT_NO;
    for (size_t at = 0; facts_next(subject->facts, &at, &fact);) {
        if (!span_equals(fact.name, key)) continue;
        n++;
        n_fit += condition_holds(filter, &fact);
        listed = listed || fact.listed;
    }
    return listed && is_equal && n_fit > 0 ? VERDICT_MIXED : verdict_of(n_fit, n);
}

static enum verdict judge(const struct filter *filter, const struct filter_subject *subject) {
    if (filter->kind == FILTER_NOT) return VERDICT_YES - judge(filter->parts[0], subject);
    if (filter->kind != FILTER_AND && filter->kind != FILTER_OR)
        return judge_condition(filter, subject);
    enum verdict all = filter->kind == FILTER_AND ? VERDICT_YES : VERDICT_NO;
    for (int i = 0; i < filter->n_parts; i++) {
        enum verdict part = judge(filter->parts[i], subject);
        if (filter->kind == FILTER_AND ? part < all : part > all) all = part;
    }
    return all;
}

bool filter_admits(const struct filter *filter, const struct filter_subject *subject) {
    return filter == NULL || judge(filter, subject) == VERDICT_YES;
}

enum status filter_refuse(const struct filter *filter, struct error *e) {
    return error_set(e, STATUS_INVALID,
                     "the document is not one that this client may put (of a list all values have "
                     "to fit, and what "
                     "equals one value is no list): %s",
                     filter_text(filter_known(filter)));
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

static void put_bound(struct json_writer *w, const struct filter_bound *bound,
                      const char *inclusive, const char *exclusive) {
    if (!bound->given) return;
    put_key(w, bound->inclusive ? inclusive : exclusive);
    put_fact(w, &bound->value.fact);
}

static void put_condition(struct json_writer *w, const struct filter *filter) {
    bool alone = filter->n_values == 1;
    put_key_object(w, filter->kind == FILTER_RANGE    ? "range"
                      : filter->kind == FILTER_PREFIX ? "prefix"
                      : alone                         ? "eq"
                                                      : "in");
    put_key_n(w, filter->key, filter->key_size);
    if (filter->kind == FILTER_RANGE) {
        put_object(w);
        put_bound(w, &filter->low, "gte", "gt");
        put_bound(w, &filter->high, "lte", "lt");
        put_object_end(w);
    } else if (alone) {
        put_fact(w, &filter->values[0].fact);
    } else {
        put_array(w);
        for (int i = 0; i < filter->n_values; i++) put_fact(w, &filter->values[i].fact);
        put_array_end(w);
    }
    put_object_end(w);
}

static void put_filter(struct json_writer *w, const struct filter *filter) {
    put_object(w);
    if (filter->kind == FILTER_NOT) {
        put_key(w, "not");
        put_filter(w, filter->parts[0]);
    } else if (filter->kind == FILTER_AND || filter->kind == FILTER_OR) {
        put_key_array(w, filter->kind == FILTER_AND ? "and" : "or");
        for (int i = 0; i < filter->n_parts; i++) put_filter(w, filter->parts[i]);
        put_array_end(w);
    } else {
        put_condition(w, filter);
    }
    put_object_end(w);
}

void filter_finish(struct filter *filter) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_filter(&w, filter);
    free(filter->text);
    filter->text = text.data;
}

const char *filter_text(const struct filter *filter) { return filter ? filter->text : ""; }

bool filter_is_same(const struct filter *left, const struct filter *right) {
    return left == right || strcmp(filter_text(left), filter_text(right)) == 0;
}

/* Joining. */

struct filter *filter_join(struct filter *left, struct filter *right) {
    if (left == NULL || right == NULL) return filter_hold(left ? left : right);
    struct filter *both = filter_make(FILTER_AND);
    filter_add_part(both, filter_hold(left));
    filter_add_part(both, filter_hold(right));
    filter_finish(both);
    return both;
}

static struct filter *make_condition(enum filter_kind kind, const char *name, const char *text) {
    struct filter *filter = filter_make(kind);
    size_t size = strlen(text);
    filter->key = xstrdup(name);
    filter->key_size = strlen(name);
    filter->values =
        xgrow(filter->values, filter->n_values, &filter->values_capacity, sizeof *filter->values);
    filter->values[0] =
        (struct filter_value){.fact = {.kind = FACT_TEXT, .text = {xstrndup(text, size), size}}};
    filter->n_values = 1;
    return filter;
}

struct filter *filter_owned(struct filter *base, const char *name, const char *owner) {
    struct filter *unowned = filter_make(FILTER_NOT), *either = filter_make(FILTER_OR),
                  *all = filter_make(FILTER_AND);
    filter_add_part(unowned, make_condition(FILTER_PREFIX, name, ""));
    filter_add_part(either, unowned);
    filter_add_part(either, make_condition(FILTER_IN, name, owner));
    if (base) filter_add_part(all, filter_hold(base));
    filter_add_part(all, either);
    all->owned = true;
    all->base = filter_hold(base);
    filter_finish(all);
    return all;
}

const struct filter *filter_known(const struct filter *filter) {
    return filter && filter->owned ? filter->base : filter;
}

/* Filling. */

static void fill_members(const struct filter *filter, const struct json *given,
                         struct json_writer *w) {
    if (filter->kind == FILTER_AND)
        for (int i = 0; i < filter->n_parts; i++) fill_members(filter->parts[i], given, w);
    if (filter->kind != FILTER_IN || filter->n_values != 1) return;
    if (strcmp(filter->key, "id") == 0 || strcmp(filter->key, "path") == 0) return;
    if (json_member_n(given, (struct text_span){filter->key, filter->key_size})) return;
    put_key_n(w, filter->key, filter->key_size);
    put_fact(w, &filter->values[0].fact);
}

enum status filter_fill(const struct filter *filter, struct buffer *metadata, struct error *e) {
    struct json *given = NULL;
    struct buffer filled = {0};
    struct json_writer w;
    if (filter == NULL) return STATUS_OK;
    if (metadata->size > 0 &&
        json_parse(&given, (struct text_span){metadata->data, metadata->size}, "metadata", e))
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
    fill_members(filter, given, &w);
    put_object_end(&w);
    json_close(given);
    buffer_free(metadata);
    *metadata = filled;
    return STATUS_OK;
}
