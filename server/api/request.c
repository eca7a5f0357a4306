/* server/api/request.c: the tables of request fields, and the few fields that are more than a number. See request.h. */
#include "server/api/request.h"

#include <stdlib.h>
#include <string.h>

/* Longest stop string in bytes: text that may become one is held back. */
enum { STOP_BYTES = 1024 };

/* Prompts. */

static bool parse_ids(struct request_prompt *p, const json_t *array, int prompt, const struct request_limits *l,
                      struct failure *f) {
    size_t n = json_array_size(array);
    p->ids = xmalloc((n + 1) * sizeof *p->ids);
    p->n_ids = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v))
            return failure_set(f, 400, "invalid_type", "prompt", "token %zu of prompt %d is not an integer", i, prompt);
        json_int_t id = json_integer_value(v);
        if (id < 0 || id >= l->vocab)
            return failure_set(f, 400, "invalid_value", "prompt",
                               "token %zu of prompt %d is %lld, the model's vocabulary is 0 .. %d", i, prompt,
                               (long long)id, l->vocab - 1);
        p->ids[i] = (int32_t)id;
    }
    return true;
}

static bool wrong_prompt(struct failure *f) {
    return failure_set(f, 400, "invalid_type", "prompt",
                       "prompt must be a string, an array of strings, an array of token ids, or an array of those");
}

/* What is in an array of prompts is all of one kind; an empty text starts from the end-of-text token, an empty array of
 * token ids is more likely a mistake. */
static bool parse_one_prompt(struct completion_request *r, const json_t *v, bool ids, const struct request_limits *l,
                             struct failure *f) {
    int i = r->n_prompts++;
    struct request_prompt *p = &r->prompts[i];
    if (ids ? !json_is_array(v) : !json_is_string(v)) return wrong_prompt(f);
    if (ids && json_array_size(v) == 0)
        return failure_set(f, 400, "invalid_value", "prompt", "prompt %d is an empty array of token ids", i);
    if (ids) return parse_ids(p, v, i, l, f);
    p->size = json_string_length(v);
    p->text = xstrndup(json_string_value(v), p->size);
    return true;
}

static bool parse_prompt(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    const json_t *first = json_array_get(v, 0);
    bool several = json_is_array(v) && !json_is_integer(first);
    bool ids = json_is_array(several ? first : v);
    size_t n = several ? json_array_size(v) : 1;
    if (n == 0) return failure_set(f, 400, "invalid_value", "prompt", "prompt is an empty array");
    if (n > (size_t)l->max_prompts)
        return failure_set(f, 400, "too_many_prompts", "prompt",
                           "the request has %zu prompts, the limit is %d (option server.max_prompts)", n,
                           l->max_prompts);
    r->prompts = xcalloc(n, sizeof *r->prompts);
    if (!several) return parse_one_prompt(r, v, ids, l, f);
    for (size_t i = 0; i < n; i++)
        if (!parse_one_prompt(r, json_array_get(v, i), ids, l, f)) return false;
    return true;
}

/* Stops. */

static bool add_stop(struct completion_request *r, const json_t *v, struct failure *f) {
    if (!json_is_string(v))
        return failure_set(f, 400, "invalid_type", "stop", "stop must be a string or an array of strings");
    size_t size = json_string_length(v);
    if (size == 0 || size > STOP_BYTES)
        return failure_set(f, 400, "invalid_value", "stop", "a stop string has %zu bytes, allowed is 1 .. %d", size,
                           STOP_BYTES);
    stops_add(&r->stops, json_string_value(v), size);
    return true;
}

static bool parse_stop(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > (size_t)l->max_stops)
        return failure_set(f, 400, "too_many_stops", "stop",
                           "the request has %zu stop strings, the limit is %d (option server.max_stops)", n,
                           l->max_stops);
    if (!json_is_array(v)) return add_stop(r, v, f);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(r, json_array_get(v, i), f)) return false;
    return true;
}

/* Retrieval. */

static bool parse_neighbors(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.neighbors";
    struct request_retrieval *r = object;
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0)
        return failure_set(f, 400, "invalid_type", name, "%s must be an array of at least one text", name);
    if (n > (size_t)l->max_k)
        return failure_set(f, 400, "invalid_value", name, "%s has %zu texts, the limit is %d (option retrieval.max_k)",
                           name, n, l->max_k);
    r->neighbors = xcalloc(n, sizeof *r->neighbors);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(v, i);
        if (!json_is_string(text))
            return failure_set(f, 400, "invalid_type", name, "neighbour %zu of %s is not a string", i, name);
        size_t size = json_string_length(text);
        r->neighbors[r->n_neighbors++] = (struct text_span){xstrndup(json_string_value(text), size), size};
    }
    return true;
}

static const struct field retrieval_fields[] = {
    {"enabled", FIELD_BOOL, .offset = offsetof(struct request_retrieval, enabled)},
    {"k", FIELD_INT, .offset = offsetof(struct request_retrieval, k), .min = 1, .option = "retrieval.max_k",
     .limit_offset = offsetof(struct request_limits, max_k)},
    {"min_similarity", FIELD_NUMBER, .offset = offsetof(struct request_retrieval, min_similarity), .min = -1, .max = 1},
    {"neighbors", FIELD_PARSED, .parse = parse_neighbors},
};
static const struct field_table retrieval_table = {retrieval_fields, (int)ARRAY_COUNT(retrieval_fields), "retrieval."};

static bool parse_retrieval(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct request_retrieval *r = &((struct completion_request *)object)->retrieval;
    r->given = true;
    if (!fields_parse(&retrieval_table, r, v, l, f)) return false;
    if (r->n_neighbors == 0 || (r->enabled && r->k == 0 && r->min_similarity < -1)) return true;
    return failure_set(f, 400, "invalid_value", "retrieval.neighbors",
                       "retrieval.neighbors takes the place of a search: leave out enabled, k and min_similarity");
}

/* The rest. */

/* Fields that mean nothing here must still be what OpenAI's clients send. */

static bool parse_user(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    return json_is_string(v) || failure_set(f, 400, "invalid_type", "user", "user must be a string");
}

static bool parse_metadata(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    return json_is_object(v) || failure_set(f, 400, "invalid_type", "metadata", "metadata must be an object");
}

static bool parse_store(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    (void)object, (void)l;
    return json_is_boolean(v) || failure_set(f, 400, "invalid_type", "store", "store must be true or false");
}

static bool parse_obfuscation(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "stream_options.include_obfuscation";
    (void)object, (void)l;
    return json_is_boolean(v) || failure_set(f, 400, "invalid_type", name, "%s must be true or false", name);
}

static const struct field stream_fields[] = {
    {"include_usage", FIELD_BOOL, .offset = offsetof(struct completion_request, include_usage)},
    {"include_obfuscation", FIELD_PARSED, .parse = parse_obfuscation},
};
static const struct field_table stream_table = {stream_fields, (int)ARRAY_COUNT(stream_fields), "stream_options."};

static bool parse_stream_options(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    return fields_parse(&stream_table, object, v, l, f);
}

static bool parse_seed(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    (void)l;
    if (!json_is_integer(v)) return failure_set(f, 400, "invalid_type", "seed", "seed must be an integer");
    r->seed = json_integer_value(v);
    r->has_seed = true;
    return true;
}

static bool parse_model(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct completion_request *r = object;
    (void)l;
    if (!json_is_string(v)) return failure_set(f, 400, "invalid_type", "model", "model must be a string");
    free(r->model);
    r->model = xstrndup(json_string_value(v), json_string_length(v));
    /* It is compared as a C string, where a NUL would make a known name of an unknown one. */
    if (strlen(r->model) != json_string_length(v))
        return failure_set(f, 400, "invalid_value", "model", "model holds a NUL character");
    return true;
}

#define AT(name) .offset = offsetof(struct completion_request, name)
static const struct field completion_fields[] = {
    {"model", FIELD_PARSED, .parse = parse_model},
    {"prompt", FIELD_PARSED, .parse = parse_prompt},
    {"max_tokens", FIELD_INT, AT(max_tokens), .min = 0, .max = INT32_MAX},
    {"temperature", FIELD_NUMBER, AT(temperature), .min = 0, .max = 2},
    {"top_p", FIELD_NUMBER, AT(top_p), .min = 1e-6, .max = 1},
    {"top_k", FIELD_INT, AT(top_k), .min = 0, .max = INT32_MAX},
    {"min_p", FIELD_NUMBER, AT(min_p), .min = 0, .max = 1},
    {"seed", FIELD_PARSED, .parse = parse_seed},
    {"stop", FIELD_PARSED, .parse = parse_stop},
    {"stream", FIELD_BOOL, AT(stream)},
    {"stream_options", FIELD_PARSED, .parse = parse_stream_options},
    {"echo", FIELD_BOOL, AT(echo)},
    {"logprobs", FIELD_INT, AT(logprobs), .min = 0, .option = "server.max_logprobs",
     .limit_offset = offsetof(struct request_limits, max_logprobs)},
    {"ignore_eos", FIELD_BOOL, AT(ignore_eos)},
    {"retrieval", FIELD_PARSED, .parse = parse_retrieval},
    {"n", FIELD_NEUTRAL, .min = 1},
    {"best_of", FIELD_NEUTRAL, .min = 1},
    {"presence_penalty", FIELD_NEUTRAL, .min = 0},
    {"frequency_penalty", FIELD_NEUTRAL, .min = 0},
    {.name = "logit_bias", .type = FIELD_EMPTY},
    {.name = "suffix", .type = FIELD_EMPTY},
    {"user", FIELD_PARSED, .parse = parse_user},
    {"metadata", FIELD_PARSED, .parse = parse_metadata},
    {"store", FIELD_PARSED, .parse = parse_store},
};
#undef AT
static const struct field_table completion_table = {completion_fields, (int)ARRAY_COUNT(completion_fields), ""};

/* The name comes first: it says which limits hold for the other fields. */
static const struct request_limits *find_limits(struct completion_request *r, const json_t *json,
                                                const struct request_models *models, struct failure *f) {
    const json_t *name = json_object_get(json, "model");
    if (name && !json_is_null(name) && !parse_model(r, name, models->largest, f)) return NULL;
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
    json_t *json;
    *r = (struct completion_request){.max_tokens = 16, .temperature = 1, .top_p = 1, .logprobs = -1};
    r->retrieval = (struct request_retrieval){.enabled = true, .min_similarity = -2};
    if (!fields_load(&json, body, size, models->largest, f)) return false;
    const struct request_limits *l = find_limits(r, json, models, f);
    bool ok = l && fields_parse(&completion_table, r, json, l, f) && check_completion(r, f);
    json_decref(json);
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
    free(r->model);
    stops_free(&r->stops);
    *r = (struct completion_request){0};
}

/* Searches. */

static bool parse_query(void *object, const json_t *v, const struct request_limits *l, struct failure *f) {
    struct search_request *r = object;
    (void)l;
    if (!json_is_string(v)) return failure_set(f, 400, "invalid_type", "query", "query must be a string");
    r->query_size = json_string_length(v);
    r->query = xstrndup(json_string_value(v), r->query_size);
    return true;
}

static const struct field search_fields[] = {
    {"query", FIELD_PARSED, .parse = parse_query},
    {"k", FIELD_INT, .offset = offsetof(struct search_request, k), .min = 1, .option = "retrieval.max_k",
     .limit_offset = offsetof(struct request_limits, max_k)},
    {"min_similarity", FIELD_NUMBER, .offset = offsetof(struct search_request, min_similarity), .min = -1, .max = 1},
    {"q", FIELD_PARSED, .parse = parse_query},
};
/* All but the last row for a body, all but the first for a query string. */
enum { SEARCH_FIELDS = ARRAY_COUNT(search_fields) - 1 };
static const struct field_table body_table = {search_fields, SEARCH_FIELDS, ""};
static const struct field_table query_table = {search_fields + 1, SEARCH_FIELDS, ""};

static bool parse_search(struct search_request *r, const struct field_table *t, const json_t *json,
                         const struct request_limits *l, struct failure *f) {
    *r = (struct search_request){.min_similarity = -2};
    if (!fields_parse(t, r, json, l, f)) return false;
    if (r->query == NULL || r->query_size == 0)
        return failure_set(f, 400, "missing_parameter", "query", "query (or q in the query string) is missing");
    return true;
}

bool search_request_parse(struct search_request *r, const char *body, size_t size, const struct request_limits *l,
                          struct failure *f) {
    json_t *json;
    *r = (struct search_request){0};
    if (!fields_load(&json, body, size, l, f)) return false;
    bool ok = parse_search(r, &body_table, json, l, f);
    json_decref(json);
    return ok;
}

/* A number of the query string as JSON, so that the same table checks it; other text stays text and fails there. */
static json_t *query_value(const char *text) {
    struct error ignored;
    json_t *list = NULL, *value = NULL;
    struct buffer wrapped = {0};
    buffer_printf(&wrapped, "[%s]", text);
    if (json_load_text(&list, wrapped.data, wrapped.size, "query", &ignored) == STATUS_OK && json_array_size(list) == 1)
        value = json_incref(json_array_get(list, 0));
    else
        value = json_string(text);
    json_decref(list);
    buffer_free(&wrapped);
    return value;
}

static bool add_argument(json_t *json, const struct query_argument *a, struct failure *f) {
    if (json_object_get(json, a->name))
        return failure_set(f, 400, "invalid_value", a->name, "%s is given more than once", a->name);
    json_t *value = strcmp(a->name, "q") == 0 ? json_string(a->value) : query_value(a->value);
    if (json_object_set_new(json, a->name, value) == 0) return true;
    return failure_set(f, 400, "invalid_value", a->name, "%s is not valid UTF-8", a->name);
}

bool search_request_parse_query(struct search_request *r, const struct query_argument *arguments, int n,
                                const struct request_limits *l, struct failure *f) {
    json_t *json = json_object();
    bool ok = true;
    *r = (struct search_request){0};
    for (int i = 0; i < n && ok; i++) ok = add_argument(json, &arguments[i], f);
    ok = ok && parse_search(r, &query_table, json, l, f);
    json_decref(json);
    return ok;
}

void search_request_free(struct search_request *r) {
    free(r->query);
    *r = (struct search_request){0};
}
