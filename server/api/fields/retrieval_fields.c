/* server/api/fields/retrieval_fields.c: see retrieval_fields.h. */
#include "server/api/fields/retrieval_fields.h"

#include <stdlib.h>

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

static bool read_every(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.every";
    struct request_retrieval *r = object;
    if (!json_is_int(v)) return failure_set(f, 400, "invalid_type", name, "%s must be an integer", name);
    r->every = json_int(v);
    if (r->every == 0 || (r->every >= l->min_every && r->every <= INT32_MAX)) return true;
    return failure_set(f, 400, "invalid_value", name,
                       "%s is %lld, allowed is 0 or at least %d tokens (option retrieval.min_every)", name,
                       (long long)r->every, l->min_every);
}
FIELD_PARSER(parse_every, read_every)

static bool read_attention(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.attention";
    struct request_retrieval *r = object;
    bool tokens = json_text_is(v, "tokens");
    (void)l;
    if (!tokens && json_kind(v) != JSON_KIND_BOOL)
        return failure_set(f, 400, json_is_text(v) ? "invalid_value" : "invalid_type", name,
                           "%s must be true, false or \"tokens\"", name);
    r->attention = tokens ? ATTENTION_OF_TOKENS : json_bool(v) ? ATTENTION_OF_CHUNKS : ATTENTION_UNTOLD;
    return true;
}
FIELD_PARSER(parse_attention, read_attention)

static bool read_documents(struct document_names *out, const struct json *v, const char *name,
                           const struct request_limits *l, struct failure *f) {
    size_t n = json_count(v);
    if (!json_is_list(v)) return failure_set(f, 400, "invalid_type", name, "%s must be an array of documents", name);
    if (n > (size_t)l->max_excluded)
        return failure_set(f, 400, "invalid_value", name,
                           "%s has %zu documents, the limit is %d (option retrieval.max_excluded)", name, n,
                           l->max_excluded);
    out->all = xcalloc(n + 1, sizeof *out->all);
    for (size_t i = 0; i < n; i++) {
        struct text_span text = json_text(json_item(v, i));
        if (!json_is_text(json_item(v, i)))
            return failure_set(f, 400, "invalid_type", name, "document %zu of %s is not a string", i, name);
        out->all[out->n++] = (struct text_span){xstrndup(text.text, text.size), text.size};
    }
    return true;
}

static bool read_exclude(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    return read_documents(&((struct request_retrieval *)object)->excluded, v, "retrieval.exclude", l, f);
}
FIELD_PARSER(parse_exclude, read_exclude)

static bool read_compare(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.compare";
    struct request_retrieval *r = object;
    bool off = json_text_is(v, "off");
    r->compared = off ? COMPARED_WITH_OFF : COMPARED_WITHOUT;
    if (off) return true;
    if (!json_is_list(v))
        return failure_set(f, 400, json_is_text(v) ? "invalid_value" : "invalid_type", name,
                           "%s must be \"off\" or an array of documents", name);
    return read_documents(&r->without, v, name, l, f);
}
FIELD_PARSER(parse_compare, read_compare)

/* True or false, as text in a query string. */
static bool read_switch(int *out, const struct json *v, const char *name, struct failure *f) {
    bool on = json_bool(v) || json_text_is(v, "true");
    if (json_kind(v) != JSON_KIND_BOOL && !on && !json_text_is(v, "false"))
        return failure_set(f, 400, "invalid_type", name, "%s must be true or false, not %s", name, json_kind_name(v));
    *out = on;
    return true;
}

static bool read_hybrid(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)l;
    return read_switch(&((struct request_choice *)object)->hybrid, v, "hybrid", f);
}
FIELD_PARSER(parse_hybrid, read_hybrid)

static bool read_rerank(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)l;
    return read_switch(&((struct request_choice *)object)->rerank, v, "rerank", f);
}
FIELD_PARSER(parse_rerank, read_rerank)

static bool read_pictures(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    (void)l;
    return read_switch(&((struct request_choice *)object)->pictures, v, "pictures", f);
}
FIELD_PARSER(parse_pictures, read_pictures)

#define AT(member) JSON_AT(struct request_choice, member)
static const struct json_field choice_fields[] = {
    {"hybrid", JSON_PARSED, .parse = parse_hybrid, .schema = "{\"type\":\"boolean\"}",
     .help = "rank by words beside vectors; default: the server's"},
    {"rerank", JSON_PARSED, .parse = parse_rerank, .schema = "{\"type\":\"boolean\"}",
     .help = "put what is found in the order of the server's reranker; default: where there is one"},
    {"pictures", JSON_PARSED, .parse = parse_pictures, .schema = "{\"type\":\"boolean\"}",
     .help = "seek pictures by the embedder of their own, where they have one; default: the server's"},
    {"per_document", JSON_INT64, AT(per_document), .min = 0, .max = 1024,
     .help = "at most so many neighbours of one document; 0: any number"},
    {"distinct", JSON_DOUBLE, AT(distinct), .min = 0, .max = 1,
     .help = "neighbours whose cosine with a better one is above this are left out; 0: none are"},
};
#undef AT
const struct json_table choice_table = JSON_TABLE(choice_fields);

static enum status parse_filter(struct json_reader *r, const struct json *value, void *object) {
    return field_read_filter(&((struct request_retrieval *)object)->filter, r, value);
}

#define DOCUMENTS_SCHEMA "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"
#define AT(member) JSON_AT(struct request_retrieval, member)
static const struct json_field retrieval_fields[] = {
    {"enabled", JSON_BOOL, AT(enabled), .help = "false: write without neighbours; default: the server's"},
    {"k", JSON_INT64, AT(k), .min = 1, .option = "retrieval.max_k",
     .limit_offset = offsetof(struct request_limits, max_k), .help = "neighbours per chunk"},
    {"min_similarity", JSON_DOUBLE, AT(min_similarity), .min = -1, .max = 1,
     .help = "neighbours below this cosine are dropped"},
    {"mode", JSON_CHOICE, AT(mode), .choices = retrieval_modes,
     .help = "how the model reads them: by cross attention, in its prompt, or both; auto: the server's"},
    {"query", JSON_CHOICE, AT(query), .choices = retrieval_queries,
     .help = "of a chat: the user's last message, or with the turns before it"},
    {"every", JSON_PARSED, .parse = parse_every, .schema = "{\"type\":\"integer\",\"minimum\":0}",
     .help = "tokens of the answer after which passages of the prompt are sought again; 0: never"},
    {"neighbors", JSON_PARSED, .parse = parse_neighbors,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1}",
     .help = "texts to read in place of a search: at every chunk, or in the prompt"},
    {"attention", JSON_PARSED, .parse = parse_attention, .schema = "{\"enum\":[true,false,\"tokens\"]}",
     .help = "tell how much of its attention the model gave to each neighbour; \"tokens\": for each token too"},
    {.type = JSON_ROWS, AT(choice), .table = &choice_table},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
    {"exclude", JSON_PARSED, .parse = parse_exclude, .schema = DOCUMENTS_SCHEMA,
     .help = "documents that are not found"},
    {"compare", JSON_PARSED, .parse = parse_compare, .schema = "{\"anyOf\":[{\"const\":\"off\"}," DOCUMENTS_SCHEMA "]}",
     .help = "score the answer once more without retrieval, or without these documents"},
};
#undef AT
const struct json_table retrieval_table = JSON_TABLE(retrieval_fields);

void request_retrieval_init(struct request_retrieval *r) {
    *r = (struct request_retrieval){
        .enabled = true, .min_similarity = -2, .query = -1, .every = -1, .choice = REQUEST_CHOICE_UNSAID};
}

enum status request_retrieval_read(struct json_reader *r, const struct json *value, struct request_retrieval *out) {
    out->given = true;
    enum status status = json_table_read(r, &retrieval_table, value, out);
    bool names = out->excluded.n + out->without.n > 0;
    bool searches = !out->enabled || out->k != 0 || out->min_similarity >= -1 || out->every > 0 || out->filter ||
                    request_choice_is_said(&out->choice) || names;
    if (status || out->n_neighbors == 0 || !searches) return status;
    failure_set(r->context, 400, "invalid_value", "retrieval.neighbors",
                "retrieval.neighbors takes the place of a search: leave out enabled, k, min_similarity, every, "
                "hybrid, rerank, per_document, distinct, filter, exclude and documents in compare");
    return STATUS_INVALID;
}

static void free_names(struct document_names *names) {
    for (int i = 0; i < names->n; i++) free((char *)(uintptr_t)names->all[i].text);
    free(names->all);
}

void request_retrieval_free(struct request_retrieval *r) {
    for (int i = 0; i < r->n_neighbors; i++) free((char *)(uintptr_t)r->neighbors[i].text);
    free(r->neighbors);
    filter_release(r->filter);
    free_names(&r->excluded);
    free_names(&r->without);
    *r = (struct request_retrieval){0};
}
