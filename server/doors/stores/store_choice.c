/* server/doors/stores/store_choice.c: what a search of stores asks for, in this server's words. */
#include <string.h>

#include "config/base/text.h"
#include "server/doors/stores/stores_private.h"

enum { MOST_RESULTS = 50, FILTER_DEPTH = 16 };

static bool refuse(struct failure *failure, const char *field, const char *why) {
    return failure_set(failure, 400, "invalid_value", field, "%s: %s", field, why);
}

/* Filters. */

struct filter_writer {
    struct json_writer *w;
    const char *store; /* whose attributes are compared; NULL: the collection */
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

/* The key as a name of metadata. */
static void put_name(const struct filter_writer *writer, const struct json *filter) {
    struct buffer name = {0};
    attribute_name_append(&name, writer->store, json_text(json_member(filter, "key")));
    put_key_n(writer->w, name.data ? name.data : "", name.size);
    buffer_free(&name);
}

/* {"eq": {"key": value}} */
static void put_condition(const struct filter_writer *writer, const char *name,
                          const struct json *filter) {
    struct json_writer *w = writer->w;
    put_object(w);
    put_key_object(w, name);
    put_name(writer, filter);
    put_json(w, json_member(filter, "value"));
    put_object_end(w);
    put_object_end(w);
}

/* {"range": {"key": {"gt": value}}} */
static void put_range(const struct filter_writer *writer, const char *bound,
                      const struct json *filter) {
    struct json_writer *w = writer->w;
    put_object(w);
    put_key_object(w, "range");
    put_name(writer, filter);
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
            put_range(writer, rows[i].own, filter);
        else
            put_condition(writer, rows[i].own, filter);
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

/* Stores. */

static void put_one_range(struct json_writer *w, const char *name, const char *bound,
                          int64_t value) {
    put_object(w);
    put_key_object(w, "range");
    put_key_object(w, name);
    put_key_int(w, bound, value);
    put_object_end(w);
    put_object_end(w);
    put_object_end(w);
}

/* Files whose time is over may not be deleted yet. The time is told to the minute: a filter that is
 * the same as the one before is made once. */
static void put_lasting(struct json_writer *w) {
    int64_t now = time(NULL);
    put_object(w);
    put_key(w, "not");
    put_one_range(w, "$until", "lte", now - now % 60);
    put_object_end(w);
}

/* Documents that are in the store, and the client's own. */
static void put_in_store(struct json_writer *w, const char *store, const char *owner) {
    struct buffer name = {0};
    buffer_printf(&name, "$%s", store);
    put_one_range(w, name.data, "gt", 0);
    buffer_free(&name);
    put_lasting(w);
    if (owner == NULL) return;
    put_object(w);
    put_key_object(w, "eq");
    put_key_string(w, key_owner_name, owner);
    put_object_end(w);
    put_object_end(w);
}

static bool is_collection(const char *store) { return strcmp(store, collection_store) == 0; }

static bool put_store(const struct filter_writer *writer, const struct store_choice *choice,
                      const char *store) {
    struct filter_writer own = *writer;
    own.store = is_collection(store) ? NULL : store;
    put_object(writer->w);
    put_key_array(writer->w, "and");
    if (own.store) put_in_store(writer->w, store, choice->owner);
    if (!json_is_absent(choice->filters) && !put_filter(&own, choice->filters, 0)) return false;
    put_array_end(writer->w);
    put_object_end(writer->w);
    return true;
}

static bool put_stores(const struct filter_writer *writer, const struct store_choice *choice) {
    const struct store_set *stores = choice->stores;
    for (int i = 0; i < stores->n; i++)
        if (is_collection(stores->ids[i]) && json_is_absent(choice->filters)) return true;
    put_key(writer->w, "filter");
    if (stores->n == 1) return put_store(writer, choice, stores->ids[0]);
    put_object(writer->w);
    put_key_array(writer->w, "or");
    for (int i = 0; i < stores->n; i++)
        if (!put_store(writer, choice, stores->ids[i])) return false;
    put_array_end(writer->w);
    put_object_end(writer->w);
    return true;
}

/* Hits of Milvus do not bring metadata. */
void store_put_attributes(struct json_writer *w, const struct served_model *model,
                          const struct hits *hits, int i, const struct store_set *stores) {
    bool at_hand = hits->pinned && !collection_is_remote(model->collection);
    const char *metadata =
        at_hand ? snapshot_chunk(hits->pinned, hits->list[i].chunk).metadata : "";
    const char *store = NULL;
    for (int j = stores->n - 1; j >= 0; j--) {
        char mark[STORE_ID_BYTES + 4];
        snprintf(mark, sizeof mark, "\"$%s\":", stores->ids[j]);
        if (!is_collection(stores->ids[j]) && strstr(metadata, mark)) store = stores->ids[j];
    }
    put_key_attributes(w, metadata, store);
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
    const struct filter_writer writer = {.w = w, .field = field, .failure = failure};
    if (!put_count(w, choice, failure) || !put_threshold(w, choice->ranking_options, failure))
        return false;
    return put_stores(&writer, choice);
}

double store_score(const struct hit *hit, double before) {
    double score = hit->relevance >= 0 ? (double)hit->relevance : (double)hit->similarity;
    if (!(score >= 0)) score = 0;
    return score < before ? score : before;
}
