/* retrieval/milvus/labels.c: see labels.h.
 *
 * `wide` expressions hold for all that a filter allows, others for nothing else; below "not" they
 * change places. Numbers become doubles, which keeps their order but for equality: wide comparisons
 * allow equal numbers, narrow ones do not. Of texts the first bytes are kept. */
#include "retrieval/milvus/labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/hash.h"
#include "retrieval/filter/filter_private.h"
#include "retrieval/filter/scope.h"

enum { HASH_SIZE = 33, TEXT_BYTES = 64, TEXT_SIZE = 2 * TEXT_BYTES + 1, NUMBER_SIZE = 40 };

/* The ranges that a name has, by kind. */
static const char number_kind = 'n', date_kind = 'd', text_kind = 's';

static void hash_span(struct text_span bytes, char hash[HASH_SIZE]) {
    snprintf(hash, HASH_SIZE, "%016" PRIx64 "%016" PRIx64, hash_bytes(bytes.text, bytes.size, 0),
             hash_bytes(bytes.text, bytes.size, 1));
}

/* Numbers that compare equal have one spelling. */
static void append_value(struct buffer *out, const struct fact *fact) {
    bool whole = fact->kind == FACT_REAL && fact->real >= -9e18 && fact->real <= 9e18 &&
                 (double)(int64_t)fact->real == fact->real;
    switch (fact->kind) {
        case FACT_BOOL: buffer_append_string(out, fact->truth ? "b1" : "b0"); break;
        case FACT_INT: buffer_printf(out, "i%" PRId64, fact->whole); break;
        case FACT_REAL:
            if (whole)
                buffer_printf(out, "i%" PRId64, (int64_t)fact->real);
            else
                buffer_printf(out, "r%.17g", fact->real);
            break;
        case FACT_TEXT:
            buffer_append(out, "t", 1);
            buffer_append(out, fact->text.text, fact->text.size);
            break;
    }
}

static void hash_fact(struct text_span name, const struct fact *fact, char hash[HASH_SIZE]) {
    struct buffer bytes = {0};
    buffer_append(&bytes, name.text, name.size);
    buffer_append(&bytes, "", 1);
    append_value(&bytes, fact);
    hash_span((struct text_span){bytes.data, bytes.size}, hash);
    buffer_free(&bytes);
}

static void spell_number(double value, char out[NUMBER_SIZE]) {
    snprintf(out, NUMBER_SIZE - 2, "%.17g", value);
    if (strpbrk(out, ".en") == NULL) strcat(out, ".0");
}

/* Hexadecimal digits are in the order of the bytes. */
static void spell_text(struct text_span text, char out[TEXT_SIZE]) {
    size_t n = text.size < TEXT_BYTES ? text.size : TEXT_BYTES;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)(uint8_t)text.text[i]);
}

static double number_of(const struct fact *fact) {
    return fact->kind == FACT_INT ? (double)fact->whole : fact->real;
}

/* Labels. */

/* The least and the largest of one kind of one name. */
struct label_range {
    char kind, hash[HASH_SIZE];
    double low, high;
    char least[TEXT_SIZE], most[TEXT_SIZE];
};

struct label_set {
    struct label_range *ranges; /* [n] */
    int n, capacity;
    struct json_writer *w;
};

static struct label_range *find_range(struct label_set *set, char kind, const char *hash) {
    for (int i = 0; i < set->n; i++)
        if (set->ranges[i].kind == kind && strcmp(set->ranges[i].hash, hash) == 0)
            return &set->ranges[i];
    return NULL;
}

static void widen(struct label_set *set, const struct label_range *one) {
    struct label_range *range = find_range(set, one->kind, one->hash);
    if (range == NULL) {
        set->ranges = xgrow(set->ranges, set->n, &set->capacity, sizeof *set->ranges);
        set->ranges[set->n] = *one;
        set->n++;
        return;
    }
    if (one->low < range->low) range->low = one->low;
    if (one->high > range->high) range->high = one->high;
    if (strcmp(one->least, range->least) < 0) memcpy(range->least, one->least, sizeof range->least);
    if (strcmp(one->most, range->most) > 0) memcpy(range->most, one->most, sizeof range->most);
}

static void add_fact(struct label_set *set, struct text_span name, const struct fact *fact) {
    struct label_range range = {.kind = number_kind};
    char hash[HASH_SIZE];
    int64_t date;
    hash_fact(name, fact, hash);
    put_string(set->w, hash);
    hash_span(name, range.hash);
    if (fact->kind == FACT_INT || fact->kind == FACT_REAL) {
        range.low = range.high = number_of(fact);
        widen(set, &range);
    }
    if (fact->kind != FACT_TEXT) return;
    range.kind = text_kind;
    spell_text(fact->text, range.least);
    memcpy(range.most, range.least, sizeof range.most);
    widen(set, &range);
    if (!fact_parse_date(fact->text, &date)) return;
    range = (struct label_range){.kind = date_kind, .low = (double)date, .high = (double)date};
    hash_span(name, range.hash);
    widen(set, &range);
}

/* An id or the path of the document. */
static void add_own(struct label_set *set, const char *name, const char *value) {
    struct fact fact = {.kind = FACT_TEXT, .text = {value, strlen(value)}};
    add_fact(set, (struct text_span){name, strlen(name)}, &fact);
}

static bool span_is_word(struct text_span span, const char *word) {
    return span.size == strlen(word) && memcmp(span.text, word, span.size) == 0;
}

static void put_number(struct json_writer *w, double value) {
    char digits[NUMBER_SIZE];
    spell_number(value, digits);
    put_raw(w, (struct text_span){digits, strlen(digits)});
}

/* "n<hash>" is the least, "N<hash>" the largest. */
static void put_range(struct json_writer *w, const struct label_range *range) {
    char name[HASH_SIZE + 1];
    bool is_text = range->kind == text_kind;
    for (int largest = 0; largest < 2; largest++) {
        snprintf(name, sizeof name, "%c%s", largest ? range->kind - 'a' + 'A' : range->kind,
                 range->hash);
        put_key(w, name);
        if (is_text)
            put_string(w, largest ? range->most : range->least);
        else
            put_number(w, largest ? range->high : range->low);
    }
}

void labels_write(struct buffer *out, const struct filter_subject *subject) {
    struct json_writer w;
    struct label_set set = {.w = &w};
    struct fact fact;
    const char *own = scope_own(subject->id);
    put_begin(&w, out);
    put_object(&w);
    put_key_array(&w, "e");
    add_own(&set, "id", subject->id);
    if (own != subject->id) add_own(&set, "id", own);
    add_own(&set, "path", subject->path);
    for (size_t at = 0; facts_next(subject->facts, &at, &fact);)
        if (!span_is_word(fact.name, "id") && !span_is_word(fact.name, "path"))
            add_fact(&set, fact.name, &fact);
    put_array_end(&w);
    for (int i = 0; i < set.n; i++) put_range(&w, &set.ranges[i]);
    put_object_end(&w);
    free(set.ranges);
}

/* Expressions. */

static void express_truth(struct buffer *out, bool truth) {
    buffer_append_string(out, truth ? "chunk >= 0" : "chunk < 0");
}

static void express_values(struct buffer *out, const struct filter *filter) {
    struct text_span key = {filter->key, filter->key_size};
    char hash[HASH_SIZE];
    buffer_append_string(out, "json_contains_any(labels[\"e\"], [");
    for (int i = 0; i < filter->n_values; i++) {
        hash_fact(key, &filter->values[i].fact, hash);
        buffer_printf(out, "%s\"%s\"", i > 0 ? ", " : "", hash);
    }
    buffer_append_string(out, "])");
}

/* labels["n<hash>"], or the largest */
static void express_label(struct buffer *out, char kind, bool largest,
                          const struct filter *filter) {
    char hash[HASH_SIZE];
    hash_span((struct text_span){filter->key, filter->key_size}, hash);
    buffer_printf(out, "labels[\"%c%s\"]", largest ? kind - 'a' + 'A' : kind, hash);
}

static double bound_number(const struct filter_bound *bound) {
    return bound->value.fact.kind == FACT_TEXT ? (double)bound->value.date
                                               : number_of(&bound->value.fact);
}

/* A wide one asks whether any value may lie within, a narrow one whether all do. */
static void express_range(struct buffer *out, const struct filter *filter, bool wide) {
    bool low_is_date = filter->low.value.fact.kind == FACT_TEXT,
         high_is_date = filter->high.value.fact.kind == FACT_TEXT;
    char kind = (filter->low.given ? low_is_date : high_is_date) ? date_kind : number_kind;
    char digits[NUMBER_SIZE];
    if ((filter->low.given && filter->high.given && low_is_date != high_is_date) ||
        (!filter->low.given && !filter->high.given)) {
        express_truth(out, wide);
        return;
    }
    buffer_append(out, "(", 1);
    if (filter->low.given) {
        spell_number(bound_number(&filter->low), digits);
        express_label(out, kind, wide, filter);
        buffer_printf(out, " %s %s", wide ? ">=" : ">", digits);
    }
    if (filter->low.given && filter->high.given) buffer_append_string(out, " && ");
    if (filter->high.given) {
        spell_number(bound_number(&filter->high), digits);
        express_label(out, kind, !wide, filter);
        buffer_printf(out, " %s %s", wide ? "<=" : "<", digits);
    }
    buffer_append(out, ")", 1);
}

/* Behind all texts that begin so come those that begin with a "g", which is no digit. */
static void express_prefix(struct buffer *out, const struct filter *filter, bool wide) {
    struct text_span prefix = filter->values[0].fact.text;
    char digits[TEXT_SIZE];
    if (!wide && prefix.size > TEXT_BYTES) {
        express_truth(out, false);
        return;
    }
    spell_text(prefix, digits);
    buffer_append(out, "(", 1);
    express_label(out, text_kind, wide, filter);
    buffer_printf(out, " >= \"%s\" && ", digits);
    express_label(out, text_kind, !wide, filter);
    buffer_printf(out, " <= \"%sg\")", digits);
}

static void express(struct buffer *out, const struct filter *filter, bool wide) {
    switch (filter->kind) {
        case FILTER_IN: express_values(out, filter); return;
        case FILTER_RANGE: express_range(out, filter, wide); return;
        case FILTER_PREFIX: express_prefix(out, filter, wide); return;
        case FILTER_NOT: {
            buffer_append_string(out, "not (");
            express(out, filter->parts[0], !wide);
            buffer_append(out, ")", 1);
            return;
        }
        case FILTER_AND:
        case FILTER_OR: break;
    }
    if (filter->n_parts == 0) express_truth(out, filter->kind == FILTER_AND);
    for (int i = 0; i < filter->n_parts; i++) {
        buffer_append_string(out, i == 0 ? "(" : filter->kind == FILTER_AND ? " && " : " || ");
        express(out, filter->parts[i], wide);
    }
    if (filter->n_parts > 0) buffer_append(out, ")", 1);
}

void labels_express(struct buffer *out, const struct filter *filter) {
    if (filter)
        express(out, filter, true);
    else
        express_truth(out, true);
}

void labels_express_without(struct buffer *out, const struct text_span *words, int n) {
    static const char *const names[] = {"id", "path"};
    char hash[HASH_SIZE];
    if (n == 0) {
        express_truth(out, true);
        return;
    }
    buffer_append_string(out, "not (json_contains_any(labels[\"e\"], [");
    for (int i = 0; i < 2 * n; i++) {
        const char *name = names[i % 2];
        struct fact fact = {.kind = FACT_TEXT, .text = words[i / 2]};
        hash_fact((struct text_span){name, strlen(name)}, &fact, hash);
        buffer_printf(out, "%s\"%s\"", i > 0 ? ", " : "", hash);
    }
    buffer_append_string(out, "]))");
}
