/* server/doors/stores/store_choice.c: what a search of a store asks for, in this server's words. */
#include <string.h>

#include "config/base/text.h"
#include "server/doors/stores/stores.h"

enum { MOST_RESULTS = 50, FILTER_DEPTH = 16 };

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

/* Filters. */

struct filter_writer {
    struct json_writer *w;
    const char *field;
    struct failure *failure;
};

static bool put_filter(const struct filter_writer *writer, const struct json *filter, int depth);

static bool put_joined(const struct filter_writer *writer, const struct json *filter,
                       const char *name, int depth) {
    const struct json *inner = json_member(filter, "filters");
    if (!json_is_list(inner) || json_count(inner) == 0)
        return refuse(writer->failure, writer->field, "and and or have filters, at least one");
    put_object(writer->w);
    put_key_array(writer->w, name);
    for (size_t i = 0; i < json_count(inner); i++)
        if (!put_filter(writer, json_item(inner, i), depth + 1)) return false;
    put_array_end(writer->w);
    put_object_end(writer->w);
    return true;
}

/* {"eq": {"key": value}} */
static void put_condition(struct json_writer *w, const char *name, const struct json *filter) {
    struct text_span key = json_text(json_member(filter, "key"));
    put_object(w);
    put_key_object(w, name);
    put_key_n(w, key.text, key.size);
    put_json(w, json_member(filter, "value"));
    put_object_end(w);
    put_object_end(w);
}

/* {"range": {"key": {"gt": value}}} */
static void put_range(struct json_writer *w, const char *bound, const struct json *filter) {
    struct text_span key = json_text(json_member(filter, "key"));
    put_object(w);
    put_key_object(w, "range");
    put_key_n(w, key.text, key.size);
    put_object(w);
    put_key(w, bound);
    put_json(w, json_member(filter, "value"));
    put_object_end(w);
    put_object_end(w);
    put_object_end(w);
}

static bool put_compared(const struct filter_writer *writer, const struct json *filter,
                         const char *type) {
    static const struct {
        const char *name, *own;
        bool negated, range;
    } rows[] = {{"eq", "eq", false, false}, {"ne", "eq", true, false},  {"in", "in", false, false},
                {"nin", "in", true, false}, {"gt", "gt", false, true},  {"gte", "gte", false, true},
                {"lt", "lt", false, true},  {"lte", "lte", false, true}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (strcmp(rows[i].name, type) != 0) continue;
        if (rows[i].negated) put_object(writer->w);
        if (rows[i].negated) put_key(writer->w, "not");
        if (rows[i].range)
            put_range(writer->w, rows[i].own, filter);
        else
            put_condition(writer->w, rows[i].own, filter);
        if (rows[i].negated) put_object_end(writer->w);
        return true;
    }
    return refuse(writer->failure, writer->field,
                  "a filter's type is eq, ne, gt, gte, lt, lte, in, nin, and, or");
}

static bool put_filter(const struct filter_writer *writer, const struct json *filter, int depth) {
    const char *type = json_word(json_member(filter, "type"));
    if (depth > FILTER_DEPTH) return refuse(writer->failure, writer->field, "is too deep");
    if (type && (strcmp(type, "and") == 0 || strcmp(type, "or") == 0))
        return put_joined(writer, filter, type, depth);
    if (type == NULL || !json_is_text(json_member(filter, "key")) ||
        json_is_absent(json_member(filter, "value")))
        return refuse(writer->failure, writer->field, "a filter has type, key and value");
    return put_compared(writer, filter, type);
}

/* Numbers. */

static bool put_count(struct json_writer *w, const struct store_choice *choice,
                      struct failure *failure) {
    const struct json *n = choice->max_num_results;
    if (json_is_absent(n)) {
        if (choice->usual > 0) put_key_int(w, "k", choice->usual);
        return true;
    }
    if (!json_is_int(n) || json_int(n) < 1 || json_int(n) > MOST_RESULTS)
        return refuse(failure, "max_num_results", "must be 1 .. 50");
    put_key_int(w, "k", json_int(n));
    return true;
}

static bool put_threshold(struct json_writer *w, const struct json *options,
                          struct failure *failure) {
    const struct json *least = json_member(options, "score_threshold");
    double value = json_double(least);
    if (json_is_absent(least)) return true;
    if (!json_is_numeric(least) || !(value >= 0 && value <= 1))
        return refuse(failure, "ranking_options", "score_threshold must be 0 .. 1");
    if (value > 0) put_key_float(w, "min_similarity", (float)value);
    return true;
}

bool store_put_choice(struct json_writer *w, const struct store_choice *choice, const char *field,
                      struct failure *failure) {
    const struct filter_writer writer = {w, field, failure};
    if (!put_count(w, choice, failure) || !put_threshold(w, choice->ranking_options, failure))
        return false;
    if (json_is_absent(choice->filters)) return true;
    put_key(w, "filter");
    return put_filter(&writer, choice->filters, 0);
}

double store_score(const struct hit *hit, double before) {
    double score = hit->relevance >= 0 ? (double)hit->relevance : (double)hit->similarity;
    if (!(score >= 0)) score = 0;
    return score < before ? score : before;
}
