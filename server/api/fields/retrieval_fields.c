/* server/api/fields/retrieval_fields.c: see retrieval_fields.h. */
#include "server/api/fields/retrieval_fields.h"

#include <stdlib.h>

/* Owned copies of a list's texts; `of` is what each is called in messages: "neighbour". */
static bool read_texts(struct text_list *out, const struct json *list, const char *of,
                       const char *name, struct failure *failure) {
    size_t n = json_count(list);
    out->all = xcalloc(n + 1, sizeof *out->all);
    for (size_t i = 0; i < n; i++) {
        const struct json *item = json_item(list, i);
        struct text_span text = json_text(item);
        if (!json_is_text(item))
            return failure_set(failure, 400, "invalid_type", name, "%s %zu of %s is not a string",
                               of, i, name);
        out->all[i] = (struct text_span){xstrndup(text.text, text.size), text.size};
        out->n++;
    }
    return true;
}

static bool read_neighbors(void *object, const struct json *json,
                           const struct request_limits *limits, struct failure *failure) {
    static const char name[] = "retrieval.neighbors";
    struct request_retrieval *retrieval = object;
    size_t n = json_count(json);
    int most = limits->retrieval.max_k;
    if (!json_is_list(json) || n == 0)
        return failure_set(failure, 400, "invalid_type", name,
                           "%s must be an array of at least one text", name);
    if (n > (size_t)most)
        return failure_set(failure, 400, "invalid_value", name,
                           "%s has %zu texts, the limit is %d (option retrieval.max_k)", name, n,
                           most);
    return read_texts(&retrieval->neighbors, json, "neighbour", name, failure);
}
FIELD_PARSER(parse_neighbors, read_neighbors)

static bool read_attention(void *object, const struct json *json,
                           const struct request_limits *limits, struct failure *failure) {
    static const char name[] = "retrieval.attention";
    struct request_retrieval *retrieval = object;
    bool tokens = json_text_is(json, "tokens");
    (void)limits;
    if (!tokens && json_kind(json) != JSON_KIND_BOOL)
        return failure_set(failure, 400, json_is_text(json) ? "invalid_value" : "invalid_type",
                           name, "%s must be true, false or \"tokens\"", name);
    retrieval->attention = tokens            ? ATTENTION_OF_TOKENS
                           : json_bool(json) ? ATTENTION_OF_CHUNKS
                                             : ATTENTION_UNTOLD;
    return true;
}
FIELD_PARSER(parse_attention, read_attention)

static bool read_documents(struct text_list *out, const struct json *json, const char *name,
                           const struct request_limits *limits, struct failure *failure) {
    size_t n = json_count(json);
    int most = limits->retrieval.max_excluded;
    if (!json_is_list(json))
        return failure_set(failure, 400, "invalid_type", name, "%s must be an array of documents",
                           name);
    if (n > (size_t)most)
        return failure_set(failure, 400, "invalid_value", name,
                           "%s has %zu documents, the limit is %d (option retrieval.max_excluded)",
                           name, n, most);
    return read_texts(out, json, "document", name, failure);
}

static bool read_exclude(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    return read_documents(&((struct request_retrieval *)object)->excluded, json,
                          "retrieval.exclude", limits, failure);
}
FIELD_PARSER(parse_exclude, read_exclude)

static bool read_compare(void *object, const struct json *json, const struct request_limits *limits,
                         struct failure *failure) {
    static const char name[] = "retrieval.compare";
    struct request_retrieval *retrieval = object;
    bool off = json_text_is(json, "off");
    retrieval->compared = off ? COMPARED_WITH_OFF : COMPARED_WITHOUT;
    if (off) return true;
    if (!json_is_list(json))
        return failure_set(failure, 400, json_is_text(json) ? "invalid_value" : "invalid_type",
                           name, "%s must be \"off\" or an array of documents", name);
    return read_documents(&retrieval->without, json, name, limits, failure);
}
FIELD_PARSER(parse_compare, read_compare)

static enum status parse_filter(struct json_reader *reader, const struct json *value,
                                void *object) {
    return field_read_filter(&((struct request_retrieval *)object)->filter, reader, value);
}

#define DOCUMENTS_SCHEMA "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"
#define AT(member) JSON_AT(struct request_retrieval, member)
static const struct json_field retrieval_fields[] = {
    {.type = JSON_ROWS, AT(choice), .table = &retrieval_choice_table},
    {"neighbors", JSON_PARSED, .parse = parse_neighbors,
     .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1}",
     .help = "texts to read in place of a search: at every chunk, or in the prompt"},
    {"attention", JSON_PARSED, .parse = parse_attention,
     .schema = "{\"enum\":[true,false,\"tokens\"]}",
     .help = "tell how much of its attention the model gave to each neighbour; \"tokens\": for "
             "each token too"},
    {"boxes", JSON_BOOL, AT(boxes),
     .help = "tell where on its pages each passage, and each quote, stands"},
    {"filter", JSON_PARSED, .parse = parse_filter, .schema = "{\"type\":\"object\"}",
     .help = "the documents that may be found, by their metadata, id and path"},
    {"exclude", JSON_PARSED, .parse = parse_exclude, .schema = DOCUMENTS_SCHEMA,
     .help = "documents that are not found"},
    {"compare", JSON_PARSED, .parse = parse_compare,
     .schema = "{\"anyOf\":[{\"const\":\"off\"}," DOCUMENTS_SCHEMA "]}",
     .help = "score the answer once more without retrieval, or without these documents"},
};
#undef AT
const struct json_table retrieval_table = JSON_TABLE(retrieval_fields);

static bool check_every(const struct retrieval_choice *choice, const struct request_limits *limits,
                        struct failure *failure) {
    static const char name[] = "retrieval.every";
    if (choice->every == 0 || choice->every >= limits->retrieval.min_every) return true;
    return failure_set(failure, 400, "invalid_value", name,
                       "%s is %d, allowed is 0 or at least %d tokens (option retrieval.min_every)",
                       name, choice->every, limits->retrieval.min_every);
}

/* Whether fields say something of a search. */
static bool asks_search(const struct request_retrieval *retrieval) {
    const struct retrieval_choice *choice = &retrieval->choice;
    return !choice->enabled || choice->every > 0 || choice->said >> CHOICE_K || retrieval->filter ||
           retrieval->excluded.n + retrieval->without.n > 0;
}

enum status request_retrieval_read(struct json_reader *reader, const struct json *value,
                                   struct request_retrieval *out) {
    struct retrieval_choice *choice = &out->choice;
    enum status status = json_table_read(reader, &retrieval_table, value, out);
    if (status) return status;
    out->given = true;
    retrieval_choice_note(choice, value);
    if (!choice_says(choice, CHOICE_ENABLED))
        choice->enabled = true; /* who says anything of retrieval wants it */
    choice->said |= 1U << CHOICE_ENABLED;
    if (!check_every(choice, reader->limits, reader->context)) return STATUS_INVALID;
    if (out->neighbors.n == 0 || !asks_search(out)) return STATUS_OK;
    failure_set(reader->context, 400, "invalid_value", "retrieval.neighbors",
                "retrieval.neighbors takes the place of a search: leave out enabled, k, "
                "min_similarity, every, "
                "hybrid, rerank, pictures, per_document, distinct, min_confidence, filter, exclude "
                "and documents "
                "in compare");
    return STATUS_INVALID;
}

static void free_texts(struct text_list *texts) {
    for (int i = 0; i < texts->n; i++) free((char *)(uintptr_t)texts->all[i].text);
    free(texts->all);
}

void request_retrieval_free(struct request_retrieval *retrieval) {
    free_texts(&retrieval->neighbors);
    filter_release(retrieval->filter);
    free_texts(&retrieval->excluded);
    free_texts(&retrieval->without);
    *retrieval = (struct request_retrieval){0};
}
