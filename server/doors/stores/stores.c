/* server/doors/stores/stores.c: /v1/vector_stores: the one store that there is, and searches of
 * it. */
#include "server/doors/stores/stores.h"

#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/scope.h"
#include "server/api/documents/search.h"
#include "server/api/routes.h"
#include "server/doors/shared/door_fields.h"

const char collection_store[] = "vs_collection";

enum { ID_BYTES = 80, USUAL_RESULTS = 10 };

/* Finding. */

static bool has_collection(const struct api *api) { return api->models[0].collection != NULL; }

static bool is_store(const struct api *api, const char *id) {
    return has_collection(api) && strcmp(id, collection_store) == 0;
}

static bool no_store(const char *id, const char *field, struct failure *failure) {
    return failure_set(failure, 404, "not_found", field, "there is no vector store %.80s", id);
}

bool stores_check(const struct api *api, const struct json *ids, const char *field,
                  struct failure *failure) {
    if (!json_is_list(ids) || json_count(ids) == 0)
        return failure_set(failure, 400, "invalid_type", field,
                           "%s must be an array of ids, at least one", field);
    for (size_t i = 0; i < json_count(ids); i++) {
        const char *id = json_word(json_item(ids, i));
        if (id == NULL || !is_store(api, id)) return no_store(id ? id : "(none)", field, failure);
    }
    return true;
}

static bool find_named(const struct api *api, const struct api_request *request,
                       struct failure *failure) {
    char id[ID_BYTES];
    return (route_segment(request->path, 2, id, sizeof id) && is_store(api, id)) ||
           no_store(id, "vector_store_id", failure);
}

/* Telling. */

struct store_counts {
    int64_t documents, chunks;
};

static bool count_store(struct api *api, const struct principal *who, struct store_counts *counts,
                        struct failure *failure) {
    struct error e;
    return collection_count(api->models[0].collection, principal_filter(who), &counts->documents,
                            &counts->chunks, &e) == STATUS_OK ||
           failure_from_error(failure, &e);
}

static void put_file_counts(struct json_writer *w, int64_t n) {
    put_key_object(w, "file_counts");
    put_key_int(w, "in_progress", 0);
    put_key_int(w, "completed", n);
    put_key_int(w, "failed", 0);
    put_key_int(w, "cancelled", 0);
    put_key_int(w, "total", n);
    put_object_end(w);
}

static void put_store(struct json_writer *w, const struct api *api,
                      const struct store_counts *counts) {
    put_object(w);
    put_key_string(w, "id", collection_store);
    put_key_string(w, "object", "vector_store");
    put_key_int(w, "created_at", api->created);
    put_key_int(w, "last_active_at", api->created);
    put_key_string(w, "name", "collection");
    put_key_string(w, "status", "completed");
    put_key_int(w, "usage_bytes", 0);
    put_file_counts(w, counts->documents);
    put_key_object(w, "metadata");
    put_object_end(w);
    put_object_end(w);
}

struct answer *stores_list(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    struct store_counts counts = {0};
    struct buffer body = {0};
    struct json_writer w;
    bool any = has_collection(api);
    (void)waker;
    if (any && !count_store(api, &request->principal, &counts, failure)) return NULL;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    if (any) put_store(&w, api, &counts);
    put_array_end(&w);
    put_key_string(&w, "first_id", any ? collection_store : NULL);
    put_key_string(&w, "last_id", any ? collection_store : NULL);
    put_key_bool(&w, "has_more", false);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *vector_store_show(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    struct store_counts counts;
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (!find_named(api, request, failure) ||
        !count_store(api, &request->principal, &counts, failure))
        return NULL;
    put_begin(&w, &body);
    put_store(&w, api, &counts);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *stores_refuse(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    (void)api, (void)waker;
    failure_set(failure, 400, "not_supported", NULL,
                "%s of %.100s is not supported: the one vector store is the collection, whose "
                "documents are added and deleted at /v1/documents",
                request->method, request->path);
    return NULL;
}

/* Searching. */

static void put_result(struct json_writer *w, const struct hit *hit, const struct filter *viewer,
                       double score) {
    put_object(w);
    file_put_id(w, "file_id", scope_show(viewer, hit->document));
    put_key_string(w, "filename", hit->path);
    put_key_float(w, "score", (float)score);
    put_key_object(w, "attributes");
    put_object_end(w);
    put_key_array(w, "content");
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
    put_object_end(w);
    put_array_end(w);
    put_object_end(w);
}

/* The context is the query, which is the writer's. */
static void write_results(void *context, struct json_writer *w, const struct hits *hits,
                          const struct filter *viewer) {
    char *query = context;
    double score = 1;
    put_object(w);
    put_key_string(w, "object", "vector_store.search_results.page");
    put_key_array(w, "search_query");
    put_string(w, query);
    put_array_end(w);
    put_key_array(w, "data");
    for (int i = 0; i < hits->n; i++) {
        score = store_score(&hits->list[i], score);
        put_result(w, &hits->list[i], viewer, score);
    }
    put_array_end(w);
    put_key_bool(w, "has_more", false);
    put_key_null(w, "next_page");
    put_object_end(w);
}

/* Several texts are sought as one. */
static bool read_query(const struct json *query, struct buffer *out, struct failure *failure) {
    if (json_is_text(query)) buffer_append(out, json_text(query).text, json_text(query).size);
    for (size_t i = 0; json_is_list(query) && i < json_count(query); i++) {
        struct text_span text = json_text(json_item(query, i));
        if (i > 0) buffer_append(out, "\n", 1);
        buffer_append(out, text.text, text.size);
    }
    return out->size > 0 || failure_set(failure, 400, "invalid_value", "query",
                                        "query must be a text, or an array of texts");
}

/* The request in the words of /v1/retrieval/search. */
static bool translate(const struct store_search_request *asked, const struct buffer *query,
                      const struct request_limits *limits, struct search_request *out,
                      struct failure *failure) {
    const struct store_choice choice = {asked->filters, asked->max_num_results,
                                        asked->ranking_options,
                                        min_int(USUAL_RESULTS, limits->retrieval.max_k)};
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string_n(&w, "query", query->data, query->size);
    bool ok = store_put_choice(&w, &choice, "filters", failure);
    if (ok) put_object_end(&w);
    ok = ok && search_request_parse(out, text.data, text.size, limits, failure);
    buffer_free(&text);
    return ok;
}

struct answer *vector_store_search(struct api *api, const struct api_request *request,
                                   struct waker waker, struct failure *failure) {
    const struct door_table rows = {"stores", &store_search_table};
    const struct served_model *model = &api->models[0];
    struct store_search_request asked = {0};
    struct search_request search = {0};
    struct buffer query = {0};
    struct json *body = NULL;
    struct answer *answer = NULL;
    bool ok = find_named(api, request, failure) &&
              door_read(api, request, &rows, &body, &asked, failure) &&
              read_query(asked.query, &query, failure) &&
              translate(&asked, &query, &model->limits, &search, failure);
    if (ok) {
        const struct search_asker asker = {
            model, &request->principal, waker, {write_results, xstrdup(query.data), free}};
        answer = search_ask(&asker, &search, failure);
    } else {
        search_request_free(&search);
    }
    buffer_free(&query);
    json_close(body);
    return answer;
}
