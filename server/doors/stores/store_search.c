/* server/doors/stores/store_search.c: /v1/vector_stores/{id}/search. */
#include <stdlib.h>
#include <string.h>

#include "retrieval/filter/scope.h"
#include "server/api/documents/search.h"
#include "server/doors/shared/door_fields.h"
#include "server/doors/stores/stores_private.h"

enum { USUAL_RESULTS = 10 };

/* The request, as far as the writer of its answer knows it. */
struct store_search {
    char *query;
    const struct served_model *model;
    struct store_set stores;
};

static void free_search(void *context) {
    struct store_search *search = context;
    free(search->query);
    free(search);
}

static void put_result(struct json_writer *w, const struct hits *hits, int i,
                       const struct filter *viewer, const struct store_search *search,
                       double score) {
    const struct hit *hit = &hits->list[i];
    put_object(w);
    file_put_id(w, "file_id", scope_show(viewer, hit->document));
    put_key_string(w, "filename", hit->path);
    put_key_float(w, "score", (float)score);
    store_put_attributes(w, search->model, hits, i, &search->stores);
    put_key_array(w, "content");
    put_object(w);
    put_key_string(w, "type", "text");
    put_key_string_n(w, "text", hit->text.text, hit->text.size);
    put_object_end(w);
    put_array_end(w);
    put_object_end(w);
}

static void write_results(void *context, struct json_writer *w, const struct hits *hits,
                          const struct filter *viewer) {
    const struct store_search *search = context;
    double score = 1;
    put_object(w);
    put_key_string(w, "object", "vector_store.search_results.page");
    put_key_array(w, "search_query");
    put_string(w, search->query);
    put_array_end(w);
    put_key_array(w, "data");
    for (int i = 0; i < hits->n; i++) {
        score = store_score(&hits->list[i], score);
        put_result(w, hits, i, viewer, search, score);
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
static bool translate(const struct store_choice *choice, const struct buffer *query,
                      const struct request_limits *limits, struct search_request *out,
                      struct failure *failure) {
    struct buffer text = {0};
    struct json_writer w;
    put_begin(&w, &text);
    put_object(&w);
    put_key_string_n(&w, "query", query->data, query->size);
    bool ok = store_put_choice(&w, choice, "filters", failure);
    if (ok) put_object_end(&w);
    ok = ok && search_request_parse(out, text.data, text.size, limits, failure);
    buffer_free(&text);
    return ok;
}

static struct store_search *make_told(const struct served_model *model,
                                      const struct store_set *stores, const char *query) {
    struct store_search *told = xcalloc(1, sizeof *told);
    *told = (struct store_search){xstrdup(query), model, *stores};
    return told;
}

struct answer *vector_store_search(struct api *api, const struct api_request *request,
                                   struct waker waker, struct failure *failure) {
    const struct door_table rows = {"stores", &store_search_table};
    const struct request_limits *limits = &api->models[0].limits;
    struct store_search_request asked = {0};
    struct search_request search = {0};
    struct store_set stores = {.n = 1};
    struct buffer query = {0};
    struct json *body = NULL;
    struct answer *answer = NULL;
    bool ok = store_of_path(api, request, false, stores.ids[0], failure) &&
              door_read(api, request, &rows, &body, &asked, failure) &&
              read_query(asked.query, &query, failure);
    const struct store_choice choice = {.stores = &stores,
                                        .owner = store_owner(&request->principal),
                                        .filters = asked.filters,
                                        .max_num_results = asked.max_num_results,
                                        .ranking_options = asked.ranking_options,
                                        .usual = min_int(USUAL_RESULTS, limits->retrieval.max_k)};
    ok = ok && translate(&choice, &query, limits, &search, failure);
    if (ok) {
        store_touch(api->stores, &request->principal, stores.ids[0]);
        struct store_search *told = make_told(&api->models[0], &stores, query.data);
        const struct search_asker asker = {
            &api->models[0], &request->principal, waker, {write_results, told, free_search}};
        answer = search_ask(&asker, &search, failure);
    } else {
        search_request_free(&search);
    }
    buffer_free(&query);
    json_close(body);
    return answer;
}
