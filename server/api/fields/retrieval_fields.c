/* server/api/fields/retrieval_fields.c: see retrieval_fields.h. */
#include "server/api/fields/retrieval_fields.h"

#include <stdlib.h>

/* Owned copies of a list's texts; `of` is what each is called in messages: "neighbour". */
static bool read_texts(struct text_list *out, const struct json *list, const char *of, const char *name,
                       struct failure *f) {
    size_t n = json_count(list);
    out->all = xcalloc(n + 1, sizeof *out->all);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_item(list, i);
        struct text_span text = json_text(item);
        if (!json_is_text(item))
            return failure_set(f, 400, "invalid_type", name, "%s %zu of %s is not a string", of, i, name);
        out->all[i] = (struct text_span){xstrndup(text.text, text.size), text.size};
        out->n++;
    }
    return true;
}

static bool read_neighbors(void *object, const struct json *v, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.neighbors";
    struct request_retrieval *r = object;
    size_t n = json_count(v);
    int most = l->retrieval.max_k;
    if (!json_is_list(v) || n == 0)
        return failure_set(f, 400, "invalid_type", name, "%s must be an array of at least one text", name);
    if (n > (size_t)most)
        return failure_set(f, 400, "invalid_value", name, "%s has %zu texts, the limit is %d (option retrieval.max_k)",
                           name, n, most);
    return read_texts(&r->neighbors, v, "neighbour", name, f);
}
FIELD_PARSER(parse_neighbors, read_neighbors)

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

static bool read_documents(struct text_list *out, const struct json *v, const char *name,
                           const struct request_limits *l, struct failure *f) {
    size_t n = json_count(v);
    int most = l->retrieval.max_excluded;
    if (!json_is_list(v)) return failure_set(f, 400, "invalid_type", name, "%s must be an array of documents", name);
    if (n > (size_t)most)
        return failure_set(f, 400, "invalid_value", name,
                           "%s has %zu documents, the limit is %d (option retrieval.max_excluded)", name, n, most);
    return read_texts(out, v, "document", name, f);
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

static enum status parse_filter(struct json_reader *r, const struct json *value, void *object) {
    return field_read_filter(&((struct request_retrieval *)object)->filter, r, value);
}

#define DOCUMENTS_SCHEMA "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"
#define AT(member) JSON_AT(struct request_retrieval, member)
static const struct json_field retrieval_fields[] = {
    {.type = JSON_ROWS, AT(choice), .table = &retrieval_choice_table},
    {"neighbors", JSON_PARSED, .parse = parse_neighbors,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1}",
     .help = "texts to read in place of a search: at every chunk, or in the prompt"},
    {"attention", JSON_PARSED, .parse = parse_attention, .schema = "{\"enum\":[true,false,\"tokens\"]}",
     .help = "tell how much of its attention the model gave to each neighbour; \"tokens\": for each token too"},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
    {"exclude", JSON_PARSED, .parse = parse_exclude, .schema = DOCUMENTS_SCHEMA,
     .help = "documents that are not found"},
    {"compare", JSON_PARSED, .parse = parse_compare, .schema = "{\"anyOf\":[{\"const\":\"off\"}," DOCUMENTS_SCHEMA "]}",
     .help = "score the answer once more without retrieval, or without these documents"},
};
#undef AT
const struct json_table retrieval_table = JSON_TABLE(retrieval_fields);

static bool check_every(const struct retrieval_choice *c, const struct request_limits *l, struct failure *f) {
    static const char name[] = "retrieval.every";
    if (c->every == 0 || c->every >= l->retrieval.min_every) return true;
    return failure_set(f, 400, "invalid_value", name,
                       "%s is %d, allowed is 0 or at least %d tokens (option retrieval.min_every)", name, c->every,
                       l->retrieval.min_every);
}

/* Whether fields say something of a search. */
static bool asks_search(const struct request_retrieval *r) {
    const struct retrieval_choice *c = &r->choice;
    return !c->enabled || c->every > 0 || c->said >> CHOICE_K || r->filter || r->excluded.n + r->without.n > 0;
}

enum status request_retrieval_read(struct json_reader *r, const struct json *value, struct request_retrieval *out) {
    struct retrieval_choice *c = &out->choice;
    enum status status = json_table_read(r, &retrieval_table, value, out);
    if (status) return status;
    out->given = true;
    retrieval_choice_note(c, value);
    if (!choice_says(c, CHOICE_ENABLED)) c->enabled = true; /* who says anything of retrieval wants it */
    c->said |= 1U << CHOICE_ENABLED;
    if (!check_every(c, r->limits, r->context)) return STATUS_INVALID;
    if (out->neighbors.n == 0 || !asks_search(out)) return STATUS_OK;
    failure_set(r->context, 400, "invalid_value", "retrieval.neighbors",
                "retrieval.neighbors takes the place of a search: leave out enabled, k, min_similarity, every, "
                "hybrid, rerank, pictures, per_document, distinct, filter, exclude and documents in compare");
    return STATUS_INVALID;
}

static void free_texts(struct text_list *texts) {
    for (int i = 0; i < texts->n; i++) free((char *)(uintptr_t)texts->all[i].text);
    free(texts->all);
}

void request_retrieval_free(struct request_retrieval *r) {
    free_texts(&r->neighbors);
    filter_release(r->filter);
    free_texts(&r->excluded);
    free_texts(&r->without);
    *r = (struct request_retrieval){0};
}
