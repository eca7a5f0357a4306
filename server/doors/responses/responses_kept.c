/* server/doors/responses/responses_kept.c: responses that were stored: what came before and with
 * them, and what they said, as one JSON text of {"history", "input", "response"}. */
#include <stdlib.h>
#include <string.h>

#include "server/api/routes.h"
#include "server/api/text/writing_ask.h"
#include "server/doors/kept/kept.h"
#include "server/doors/responses/responses.h"

static bool is_stored(const struct responses_answer *answer) {
    const struct json *store = answer->asked.store;
    return json_is_absent(store) || json_bool(store);
}

/* Keeping. */

static void put_id(struct json_writer *w, const struct responses_answer *answer, int i) {
    char id[RESPONSE_ID_BYTES];
    snprintf(id, sizeof id, "item_%016llx%04d", (unsigned long long)answer->chat.base.id,
             i % 10000);
    put_key_string(w, "id", id);
}

/* An item of the input with an id, by which lists of it go on. */
static void put_input_item(struct json_writer *w, const struct responses_answer *answer,
                           const struct json *item, int i) {
    put_object(w);
    if (!json_is_text(json_member(item, "id"))) put_id(w, answer, i);
    if (json_is_absent(json_member(item, "type"))) put_key_string(w, "type", "message");
    for (struct json_entry it = {0}; json_next(item, &it);) {
        bool replaced = (strcmp(it.name.text, "id") == 0 && !json_is_text(it.value)) ||
                        (strcmp(it.name.text, "type") == 0 && json_is_absent(it.value));
        if (replaced) continue;
        put_key_n(w, it.name.text, it.name.size);
        put_json(w, it.value);
    }
    put_object_end(w);
}

static void put_text_item(struct json_writer *w, const struct responses_answer *answer) {
    struct text_span text = json_text(answer->asked.input);
    put_object(w);
    put_id(w, answer, 0);
    put_key_string(w, "type", "message");
    put_key_string(w, "role", "user");
    put_key_array(w, "content");
    put_object(w);
    put_key_string(w, "type", "input_text");
    put_key_string_n(w, "text", text.text, text.size);
    put_object_end(w);
    put_array_end(w);
    put_object_end(w);
}

static void put_input(struct json_writer *w, const struct responses_answer *answer) {
    const struct json *input = answer->asked.input;
    put_key_array(w, "input");
    if (json_is_text(input)) put_text_item(w, answer);
    for (size_t i = 0; json_is_list(input) && i < json_count(input); i++)
        put_input_item(w, answer, json_item(input, i), (int)i);
    put_array_end(w);
}

void responses_keep(const struct responses_answer *answer, const struct responses_choice *choice) {
    const struct responses_told told = {answer, choice, RESPONSE_ENDS, NULL};
    struct buffer text = {0};
    struct json_writer w;
    if (!is_stored(answer)) return;
    put_begin(&w, &text);
    put_object(&w);
    put_key(&w, "history");
    if (answer->history.size > 0)
        put_raw(&w, (struct text_span){answer->history.data, answer->history.size});
    else
        put_null(&w);
    put_input(&w, answer);
    put_key(&w, "response");
    responses_write(&w, &told);
    put_object_end(&w);
    kept_put(answer->api->responses, kept_owner(&answer->chat.principal), answer->id, &text);
    buffer_free(&text);
}

/* Going on. */

static void put_items(struct json_writer *w, const struct json *items) {
    for (size_t i = 0; i < json_count(items); i++) put_json(w, json_item(items, i));
}

/* The stored response of an id; the caller closes it. */
static struct json *find_kept(struct api *api, const struct principal *who, const char *id) {
    struct buffer text = {0};
    struct json *kept = NULL;
    struct error e;
    if (kept_get(api->responses, kept_owner(who), id, &text) &&
        json_parse(&kept, (struct text_span){text.data, text.size}, "response", &e))
        kept = NULL;
    buffer_free(&text);
    return kept;
}

bool responses_go_on(struct responses_answer *answer, const struct principal *who,
                     const struct json *id, struct failure *failure) {
    const char *word = json_word(id);
    struct json *kept = word ? find_kept(answer->api, who, word) : NULL;
    struct json_writer w;
    if (kept == NULL)
        return failure_set(failure, 404, "previous_response_not_found", "previous_response_id",
                           "previous_response_id: there is no stored response of this id (they "
                           "are kept for a time: options server.max_responses, "
                           "server.max_response_mb, server.response_hours)");
    put_begin(&w, &answer->history);
    put_array(&w);
    put_items(&w, json_member(kept, "history"));
    put_items(&w, json_member(kept, "input"));
    put_items(&w, json_member(json_member(kept, "response"), "output"));
    put_array_end(&w);
    json_close(kept);
    return true;
}

/* Routes: /v1/responses/ID and below. */

static bool not_found(struct failure *failure, const char *id) {
    return failure_set(failure, 404, "not_found", "id", "there is no stored response %.80s", id);
}

static struct json *find_named(struct api *api, const struct api_request *request,
                               char id[RESPONSE_ID_BYTES], struct failure *failure) {
    struct json *kept = NULL;
    if (route_segment(request->path, 2, id, RESPONSE_ID_BYTES))
        kept = find_kept(api, &request->principal, id);
    if (kept == NULL) not_found(failure, id);
    return kept;
}

struct answer *response_show(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    char id[RESPONSE_ID_BYTES];
    struct json *kept = find_named(api, request, id, failure);
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (kept == NULL) return NULL;
    put_begin(&w, &body);
    put_json(&w, json_member(kept, "response"));
    json_close(kept);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *response_delete(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    char id[RESPONSE_ID_BYTES];
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (!route_segment(request->path, 2, id, sizeof id) ||
        !kept_delete(api->responses, kept_owner(&request->principal), id)) {
        not_found(failure, id);
        return NULL;
    }
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "id", id);
    put_key_string(&w, "object", "response");
    put_key_bool(&w, "deleted", true);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *response_cancel(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    char id[RESPONSE_ID_BYTES];
    struct json *kept = find_named(api, request, id, failure);
    (void)waker;
    if (kept == NULL) return NULL;
    json_close(kept);
    failure_set(failure, 400, "invalid_value", "id",
                "only a background response can be cancelled, and there are none here: a client "
                "that leaves ends its own");
    return NULL;
}

/* Lists of input items. */

struct item_list {
    const struct json *items;
    struct items_query query;
};

static size_t item_at(const struct item_list *list, size_t i) {
    return list->query.ascends ? i : json_count(list->items) - 1 - i;
}

static const char *item_name(const struct item_list *list, size_t i) {
    return json_word(json_member(json_item(list->items, item_at(list, i)), "id"));
}

/* The place behind the item that the query names. */
static bool find_first(const struct item_list *list, size_t *first, struct failure *failure) {
    const char *after = list->query.after;
    *first = 0;
    if (after == NULL) return true;
    for (size_t i = 0; i < json_count(list->items); i++) {
        const char *name = item_name(list, i);
        *first = i + 1;
        if (name && strcmp(name, after) == 0) return true;
    }
    return failure_set(failure, 400, "invalid_value", "after", "after names no item of this list");
}

static struct answer *write_list(const struct item_list *list, size_t first) {
    size_t n = json_count(list->items), end = first + (size_t)list->query.limit;
    struct buffer body = {0};
    struct json_writer w;
    if (end > n) end = n;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (size_t i = first; i < end; i++) put_json(&w, json_item(list->items, item_at(list, i)));
    put_array_end(&w);
    put_key_string(&w, "first_id", first < end ? item_name(list, first) : NULL);
    put_key_string(&w, "last_id", first < end ? item_name(list, end - 1) : NULL);
    put_key_bool(&w, "has_more", end < n);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *response_items(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    char id[RESPONSE_ID_BYTES];
    struct json *kept = find_named(api, request, id, failure), *asked = NULL;
    struct item_list list = {.items = json_member(kept, "input")};
    struct answer *answer = NULL;
    size_t first;
    (void)waker;
    if (kept &&
        arguments_load(&asked, &items_query_table, request->arguments, request->n_arguments,
                       failure) &&
        fields_parse(&items_query_table, &list.query, asked, &api->largest, failure) &&
        find_first(&list, &first, failure))
        answer = write_list(&list, first);
    free(list.query.after);
    json_close(asked);
    json_close(kept);
    return answer;
}
