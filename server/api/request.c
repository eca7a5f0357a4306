/* server/api/request.c: the tables of request fields, and the few fields that are more than a number. See request.h. */
#include "server/api/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "config/json/json_writer.h"

/* Longest stop string in bytes: text that may become one is held back. */
enum { STOP_BYTES = 1024 };

/* A parser of a row that fails by setting the failure itself. */
#define FIELD_PARSER(parse, read) \
    static enum status parse(struct json_reader *r, const struct json *value, void *object) { \
        return read(object, value, r->limits, r->context) ? STATUS_OK : STATUS_INVALID; \
    }

/* Prompts. */

/* `of` is the field and what of it the ids are: "prompt 3". */
static bool parse_ids(struct request_prompt *p, const struct json *array, const char *of,
                      const struct request_limits *l, struct failure *f) {
    const char *field = strncmp(of, "prompt", 6) == 0 ? "prompt" : of;
    size_t n = json_count(array);
    p->ids = xmalloc((n + 1) * sizeof *p->ids);
    p->n_ids = (int)n;
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_item(array, i);
        if (!json_is_int(v))
            return failure_set(f, 400, "invalid_type", field, "token %zu of %s is not an integer", i, of);
        int64_t id = json_int(v);
        if (id < 0 || id >= l->vocab)
            return failure_set(f, 400, "invalid_value", field,
                               "token %zu of %s is %lld, the model's vocabulary is 0 .. %d", i, of, (long long)id,
                               l->vocab - 1);
        p->ids[i] = (int32_t)id;
    }
    return true;
}

static bool wrong_prompt(struct failure *f) {
    return failure_set(f, 400, "invalid_type", "prompt",
                       "prompt must be a string, an array of strings, an array of token ids, or an array of those");
}

/* An array of prompts holds prompts of one kind; an empty text starts from the end-of-text token, an empty array of
 * token ids is more likely a mistake. */
static bool parse_one_prompt(struct completion_request *r, const struct json *v, bool ids,
                             const struct request_limits *l, struct failure *f) {
    int i = r->n_prompts++;
    struct request_prompt *p = &r->prompts[i];
    if (ids ? !json_is_list(v) : !json_is_text(v)) return wrong_prompt(f);
    if (ids && json_count(v) == 0)
        return failure_set(f, 400, "invalid_value", "prompt", "prompt %d is an empty array of token ids", i);
    if (ids) {
        char of[32];
        snprintf(of, sizeof of, "prompt %d", i);
        return parse_ids(p, v, of, l, f);
    }
    p->size = json_text(v).size;
    p->text = xstrndup(json_text(v).text, p->size);
    return true;
}

static bool read_prompt(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    const struct json *first = json_item(v, 0);
    bool several = json_is_list(v) && !json_is_int(first);
    bool ids = json_is_list(several ? first : v);
    size_t n = several ? json_count(v) : 1;
    if (n == 0) return failure_set(f, 400, "invalid_value", "prompt", "prompt is an empty array");
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", "prompt",
                           "the request has %zu prompts, the limit is %d (option server.max_prompts)", n,
                           l->max_prompts);
    r->prompts = xcalloc(n, sizeof *r->prompts);
    if (!several) return parse_one_prompt(r, v, ids, l, f);
    for (size_t i = 0; i < n; i++)
        if (!parse_one_prompt(r, json_item(v, i), ids, l, f)) return false;
    return true;
}
FIELD_PARSER(parse_prompt, read_prompt)

/* The beginning of the answer, which a model with an encoder goes on from. */
static bool read_target(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    r->has_target = true;
    if (json_is_list(v)) return parse_ids(&r->target, v, "target", l, f);
    if (!json_is_text(v))
        return failure_set(f, 400, "invalid_type", "target", "target must be a string or an array of token ids");
    r->target.size = json_text(v).size;
    r->target.text = xstrndup(json_text(v).text, r->target.size);
    return true;
}
FIELD_PARSER(parse_target, read_target)

/* Stops. */

static bool add_stop(struct completion_request *r, const struct json *v, struct failure *f) {
    if (!json_is_text(v))
        return failure_set(f, 400, "invalid_type", "stop", "stop must be a string or an array of strings");
    size_t size = json_text(v).size;
    if (size == 0 || size > STOP_BYTES)
        return failure_set(f, 400, "invalid_value", "stop", "a stop string has %zu bytes, allowed is 1 .. %d", size,
                           STOP_BYTES);
    stops_add(&r->stops, json_text(v).text, size);
    return true;
}

static bool read_stop(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    size_t n = json_is_list(v) ? json_count(v) : 1;
    if (n > (size_t)l->max_stops)
        return failure_set(f, 400, "too_many_stops", "stop",
                           "the request has %zu stop strings, the limit is %d (option server.max_stops)", n,
                           l->max_stops);
    if (!json_is_list(v)) return add_stop(r, v, f);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(r, json_item(v, i), f)) return false;
    return true;
}
FIELD_PARSER(parse_stop, read_stop)

/* Retrieval. */

static bool read_neighbors(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.neighbors";
    struct request_retrieval *r = object;
    size_t n = json_count(v);
    if (!json_is_list(v) || n == 0)
        return failure_set(f, 400, "invalid_type", name, "%s must be an array of at least one text", name);
    if (n > (size_t)l->max_k)
        return failure_set(f, 400, "invalid_value", name, "%s has %zu texts, the limit is %d (option retrieval.max_k)",
                           name, n, l->max_k);
    r->neighbors = xcalloc(n, sizeof *r->neighbors);
    for (size_t i = 0; i < n; i++) {
        const struct json *text = json_item(v, i);
        if (!json_is_text(text))
            return failure_set(f, 400, "invalid_type", name, "neighbour %zu of %s is not a string", i, name);
        size_t size = json_text(text).size;
        r->neighbors[r->n_neighbors++] = (struct text_span){xstrndup(json_text(text).text, size), size};
    }
    return true;
}
FIELD_PARSER(parse_neighbors, read_neighbors)

static const struct json_field retrieval_fields[] = {
    {"enabled", JSON_BOOL, .offset = offsetof(struct request_retrieval, enabled)},
    {"k", JSON_INT64, .offset = offsetof(struct request_retrieval, k), .min = 1, .option = "retrieval.max_k",
     .limit_offset = offsetof(struct request_limits, max_k)},
    {"min_similarity", JSON_DOUBLE, .offset = offsetof(struct request_retrieval, min_similarity), .min = -1, .max = 1},
    {"neighbors", JSON_PARSED, .parse = parse_neighbors},
};
static const struct json_table retrieval_table = JSON_TABLE(retrieval_fields);

static enum status parse_retrieval(struct json_reader *r, const struct json *value, void *object) {
    struct request_retrieval *retrieval = &((struct completion_request *)object)->retrieval;
    retrieval->given = true;
    enum status status = json_table_read(r, &retrieval_table, value, retrieval);
    bool searches = !retrieval->enabled || retrieval->k != 0 || retrieval->min_similarity >= -1;
    if (status || retrieval->n_neighbors == 0 || !searches) return status;
    failure_set(r->context, 400, "invalid_value", "retrieval.neighbors",
                "retrieval.neighbors takes the place of a search: leave out enabled, k and min_similarity");
    return STATUS_INVALID;
}

/* The rest. */

/* Fields that mean nothing here must still be what OpenAI's clients send. */

static bool read_user(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    return json_is_text(v) || failure_set(f, 400, "invalid_type", "user", "user must be a string");
}
FIELD_PARSER(parse_user, read_user)

static bool read_metadata(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    bool ok = json_kind(v) == JSON_KIND_OBJECT;
    return ok || failure_set(f, 400, "invalid_type", "metadata", "metadata must be an object");
}
FIELD_PARSER(parse_metadata, read_metadata)

static bool read_store(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    bool ok = json_kind(v) == JSON_KIND_BOOL;
    return ok || failure_set(f, 400, "invalid_type", "store", "store must be true or false");
}
FIELD_PARSER(parse_store, read_store)

static bool read_obfuscation(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "stream_options.include_obfuscation";
    (void)object, (void)l;
    bool ok = json_kind(v) == JSON_KIND_BOOL;
    return ok || failure_set(f, 400, "invalid_type", name, "%s must be true or false", name);
}
FIELD_PARSER(parse_obfuscation, read_obfuscation)

static const struct json_field stream_fields[] = {
    {"include_usage", JSON_BOOL, .offset = offsetof(struct completion_request, include_usage)},
    {"include_obfuscation", JSON_PARSED, .parse = parse_obfuscation},
};
static const struct json_table stream_table = JSON_TABLE(stream_fields);

static enum status parse_stream_options(struct json_reader *r, const struct json *value, void *object) {
    return json_table_read(r, &stream_table, value, object);
}

static bool read_seed(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    (void)l;
    if (!json_is_int(v)) return failure_set(f, 400, "invalid_type", "seed", "seed must be an integer");
    r->seed = json_int(v);
    r->has_seed = true;
    return true;
}
FIELD_PARSER(parse_seed, read_seed)

static bool read_model(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    (void)l;
    if (!json_is_text(v)) return failure_set(f, 400, "invalid_type", "model", "model must be a string");
    free(r->model);
    r->model = xstrndup(json_text(v).text, json_text(v).size);
    /* It is compared as a C string, where a NUL would make a known name of an unknown one. */
    if (strlen(r->model) != json_text(v).size)
        return failure_set(f, 400, "invalid_value", "model", "model holds a NUL character");
    return true;
}
FIELD_PARSER(parse_model, read_model)

#define AT(name) .offset = offsetof(struct completion_request, name)
static const struct json_field completion_fields[] = {
    {"model", JSON_PARSED, .parse = parse_model},
    {"prompt", JSON_PARSED, .parse = parse_prompt},
    {"max_tokens", JSON_INT64, AT(max_tokens), .min = 0, .max = INT32_MAX},
    {"temperature", JSON_DOUBLE, AT(temperature), .min = 0, .max = 2},
    {"top_p", JSON_DOUBLE, AT(top_p), .min = 1e-6, .max = 1},
    {"top_k", JSON_INT64, AT(top_k), .min = 0, .max = INT32_MAX},
    {"min_p", JSON_DOUBLE, AT(min_p), .min = 0, .max = 1},
    {"seed", JSON_PARSED, .parse = parse_seed},
    {"stop", JSON_PARSED, .parse = parse_stop},
    {"target", JSON_PARSED, .parse = parse_target},
    {"stream", JSON_BOOL, AT(stream)},
    {"stream_options", JSON_PARSED, .parse = parse_stream_options},
    {"echo", JSON_BOOL, AT(echo)},
    {"logprobs", JSON_INT64, AT(logprobs), .min = 0, .option = "server.max_logprobs",
     .limit_offset = offsetof(struct request_limits, max_logprobs)},
    {"ignore_eos", JSON_BOOL, AT(ignore_eos)},
    {"retrieval", JSON_PARSED, .parse = parse_retrieval},
    {"n", JSON_NEUTRAL, .min = 1},
    {"best_of", JSON_NEUTRAL, .min = 1},
    {"presence_penalty", JSON_NEUTRAL, .min = 0},
    {"frequency_penalty", JSON_NEUTRAL, .min = 0},
    {.name = "logit_bias", .type = JSON_EMPTY},
    {.name = "suffix", .type = JSON_EMPTY},
    {"user", JSON_PARSED, .parse = parse_user},
    {"metadata", JSON_PARSED, .parse = parse_metadata},
    {"store", JSON_PARSED, .parse = parse_store},
};
#undef AT
static const struct json_table completion_table = JSON_TABLE(completion_fields);

/* The name comes first: it says which limits hold for the other fields. */
static const struct request_limits *find_limits(struct completion_request *r, const struct json *json,
                                                const struct request_models *models, struct failure *f) {
    const struct json *name = json_member(json, "model");
    if (!json_is_absent(name) && !read_model(r, name, models->largest, f)) return NULL;
    return models->limits(models->context, r->model, f);
}

static bool check_completion(const struct completion_request *r, struct failure *f) {
    if (r->n_prompts == 0) return failure_set(f, 400, "missing_parameter", "prompt", "prompt is missing");
    if (r->include_usage && !r->stream)
        return failure_set(f, 400, "invalid_value", "stream_options", "stream_options is only for stream: true");
    return true;
}

bool completion_request_parse(struct completion_request *r, const char *body, size_t size,
                              const struct request_models *models, struct failure *f) {
    struct json *json;
    *r = (struct completion_request){.max_tokens = 16, .temperature = 1, .top_p = 1, .logprobs = -1};
    r->retrieval = (struct request_retrieval){.enabled = true, .min_similarity = -2};
    if (!fields_load(&json, body, size, models->largest, f)) return false;
    const struct request_limits *l = find_limits(r, json, models, f);
    bool ok = l && fields_parse(&completion_table, r, json, l, f) && check_completion(r, f);
    json_close(json);
    return ok;
}

void completion_request_free(struct completion_request *r) {
    for (int i = 0; i < r->n_prompts; i++) {
        free(r->prompts[i].text);
        free(r->prompts[i].ids);
    }
    for (int i = 0; i < r->retrieval.n_neighbors; i++) free((char *)(uintptr_t)r->retrieval.neighbors[i].text);
    free(r->retrieval.neighbors);
    free(r->prompts);
    free(r->target.text);
    free(r->target.ids);
    free(r->model);
    stops_free(&r->stops);
    *r = (struct completion_request){0};
}

/* Searches. */

static bool read_query(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    struct search_request *r = object;
    (void)l;
    if (!json_is_text(v)) return failure_set(f, 400, "invalid_type", "query", "query must be a string");
    r->query_size = json_text(v).size;
    r->query = xstrndup(json_text(v).text, r->query_size);
    return true;
}
FIELD_PARSER(parse_query, read_query)

static const struct json_field search_fields[] = {
    {"query", JSON_PARSED, .parse = parse_query},
    {"k", JSON_INT64, .offset = offsetof(struct search_request, k), .min = 1, .option = "retrieval.max_k",
     .limit_offset = offsetof(struct request_limits, max_k)},
    {"min_similarity", JSON_DOUBLE, .offset = offsetof(struct search_request, min_similarity), .min = -1, .max = 1},
    {"q", JSON_PARSED, .parse = parse_query},
};
/* All but the last row for a body, all but the first for a query string. */
enum { SEARCH_FIELDS = ARRAY_COUNT(search_fields) - 1 };
static const struct json_table body_table = {.fields = search_fields, .count = SEARCH_FIELDS};
static const struct json_table query_table = {.fields = search_fields + 1, .count = SEARCH_FIELDS};

static bool parse_search(struct search_request *r, const struct json_table *t, const struct json *json,
                         const struct request_limits *l, struct failure *f) {
    *r = (struct search_request){.min_similarity = -2};
    if (!fields_parse(t, r, json, l, f)) return false;
    if (r->query == NULL || r->query_size == 0)
        return failure_set(f, 400, "missing_parameter", "query", "query (or q in the query string) is missing");
    return true;
}

bool search_request_parse(struct search_request *r, const char *body, size_t size, const struct request_limits *l,
                          struct failure *f) {
    struct json *json;
    *r = (struct search_request){0};
    if (!fields_load(&json, body, size, l, f)) return false;
    bool ok = parse_search(r, &body_table, json, l, f);
    json_close(json);
    return ok;
}

/* A number of the query string is a number, so that the same table checks it; other text stays text and fails there. */
static void put_argument(struct json_writer *w, const struct query_argument *a) {
    struct error ignored;
    struct json *value = NULL;
    struct text_span text = {a->value, strlen(a->value)};
    put_key(w, a->name);
    if (strcmp(a->name, "q") != 0 && json_parse_any(&value, text, "query", &ignored) == STATUS_OK)
        put_raw(w, text);
    else
        put_string_n(w, text.text, text.size);
    json_close(value);
}

static bool check_argument(const struct query_argument *arguments, int i, struct failure *f) {
    const struct query_argument *a = &arguments[i];
    for (int j = 0; j < i; j++)
        if (strcmp(arguments[j].name, a->name) == 0)
            return failure_set(f, 400, "invalid_value", a->name, "%s is given more than once", a->name);
    if (utf8_is_valid(a->name, strlen(a->name)) && utf8_is_valid(a->value, strlen(a->value))) return true;
    return failure_set(f, 400, "invalid_value", a->name, "%s is not valid UTF-8", a->name);
}

bool search_request_parse_query(struct search_request *r, const struct query_argument *arguments, int n,
                                const struct request_limits *l, struct failure *f) {
    struct buffer text = {0};
    struct json_writer w;
    struct json *json = NULL;
    bool ok = true;
    *r = (struct search_request){0};
    put_begin(&w, &text);
    put_object(&w);
    for (int i = 0; i < n && ok; i++) {
        ok = check_argument(arguments, i, f);
        if (ok) put_argument(&w, &arguments[i]);
    }
    put_object_end(&w);
    ok = ok && fields_load(&json, text.data, text.size, l, f) && parse_search(r, &query_table, json, l, f);
    json_close(json);
    buffer_free(&text);
    return ok;
}

void search_request_free(struct search_request *r) {
    free(r->query);
    *r = (struct search_request){0};
}
