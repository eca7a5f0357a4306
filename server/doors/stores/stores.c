/* server/doors/stores/stores.c: /v1/vector_stores: making, showing, changing and deleting stores.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/routes.h"
#include "server/doors/shared/door_fields.h"
#include "server/doors/stores/stores_private.h"

/* Telling. A store and its files as they are counted. */

struct store_counts {
    int64_t of[FILE_CANCELLED + 1], bytes;
};

static void put_counts(struct json_writer *w, const struct store_counts *counts) {
    int64_t total = 0;
    put_key_object(w, "file_counts");
    for (int i = 0; i <= FILE_CANCELLED; i++) {
        put_key_int(w, file_state_name((enum file_state)i), counts->of[i]);
        total += counts->of[i];
    }
    put_key_int(w, "total", total);
    put_object_end(w);
}

static void put_expiry(struct json_writer *w, const struct store_record *store) {
    if (store->days == 0) return;
    put_key_object(w, "expires_after");
    put_key_string(w, "anchor", "last_active_at");
    put_key_int(w, "days", store->days);
    put_object_end(w);
    put_key_int(w, "expires_at", store->active + store->days * (int64_t)DAY_SECONDS);
}

static void put_store(struct json_writer *w, const struct store_record *store,
                      const struct store_counts *counts) {
    bool expired = store_is_expired(store, time(NULL));
    put_object(w);
    put_key_string(w, "id", store->id);
    put_key_string(w, "object", "vector_store");
    put_key_int(w, "created_at", store->created);
    put_key_int(w, "last_active_at", store->active);
    put_key_string(w, "name", store->name[0] ? store->name : NULL);
    put_key_string(w, "status",
                   expired                            ? "expired"
                   : counts->of[FILE_IN_PROGRESS] > 0 ? "in_progress"
                                                      : "completed");
    put_key_int(w, "usage_bytes", expired ? 0 : counts->bytes);
    put_counts(w, expired ? &(struct store_counts){0} : counts);
    put_expiry(w, store);
    put_key(w, "metadata");
    put_raw(w, (struct text_span){store->metadata, strlen(store->metadata)});
    put_object_end(w);
}

/* The collection. */

static struct store_record collection_record(const struct api *api) {
    return (struct store_record){.id = (char *)(uintptr_t)collection_store,
                                 .name = (char *)(uintptr_t) "collection",
                                 .metadata = (char *)(uintptr_t) "{}",
                                 .created = api->created,
                                 .active = api->created};
}

/* Of stores that are shown: the collection is among them by its id. */
struct shown_stores {
    struct store_record *list; /* [n], copies but for the collection's texts */
    struct store_counts *counts;
    int n;
};

static void shown_free(struct shown_stores *shown) {
    for (int i = 0; i < shown->n; i++)
        if (strcmp(shown->list[i].id, collection_store) != 0) store_record_free(&shown->list[i]);
    free(shown->list);
    free(shown->counts);
}

static enum status count_collection(struct api *api, const struct principal *who,
                                    struct store_counts *counts, struct error *e) {
    int64_t n_chunks;
    return collection_count(api->models[0].collection, principal_filter(who),
                            &counts->of[FILE_COMPLETED], &n_chunks, e);
}

static enum status count_files(struct api *api, const struct principal *who,
                               struct shown_stores *shown, struct error *e) {
    char(*ids)[STORE_ID_BYTES] = xcalloc((size_t)shown->n + 1, STORE_ID_BYTES);
    struct store_members members = {0};
    bool own = false;
    enum status status = STATUS_OK;
    shown->counts = xcalloc((size_t)shown->n + 1, sizeof *shown->counts);
    for (int i = 0; i < shown->n && status == STATUS_OK; i++) {
        snprintf(ids[i], STORE_ID_BYTES, "%s", shown->list[i].id);
        if (strcmp(ids[i], collection_store) == 0)
            status = count_collection(api, who, &shown->counts[i], e);
        else
            own = true;
    }
    if (status == STATUS_OK && own)
        status = members_collect(api, who,
                                 &(struct store_ids){(const char(*)[STORE_ID_BYTES])ids, shown->n},
                                 &members, e);
    for (int i = 0; i < members.n; i++) {
        struct store_counts *counts = &shown->counts[members.list[i].store];
        counts->of[members.list[i].state]++;
        counts->bytes += members.list[i].bytes;
    }
    members_free(&members);
    free(ids);
    return status;
}

/* One as an answer; takes the record, which is a copy. */
static struct answer *answer_store(struct api *api, const struct principal *who,
                                   struct store_record store, struct failure *failure) {
    struct shown_stores shown = {.list = xcalloc(1, sizeof store), .n = 1};
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    shown.list[0] = store;
    bool ok = count_files(api, who, &shown, &e) == STATUS_OK || failure_from_error(failure, &e);
    put_begin(&w, &body);
    if (ok) put_store(&w, &shown.list[0], &shown.counts[0]);
    shown_free(&shown);
    if (ok) return answer_text(200, JSON_TYPE, &body);
    buffer_free(&body);
    return NULL;
}

/* Showing. */

/* A copy of the client's store of that id, expired or not. */
static bool copy_store(struct api *api, const struct principal *who, const char *id,
                       struct store_record *out, struct failure *failure) {
    struct error e;
    if (api->models[0].collection && strcmp(id, collection_store) == 0) {
        *out = collection_record(api);
        return true;
    }
    if (api->stores == NULL || api->stores->registry == NULL)
        return store_is_missing(id, "vector_store_id", failure);
    const struct records *records = registry_look(api->stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    const struct store_record *store = store_of(records, stores_owner(who), id);
    if (store) *out = store_record_copy(store);
    registry_end(api->stores->registry);
    return store || store_is_missing(id, "vector_store_id", failure);
}

struct answer *vector_store_show(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    char id[STORE_ID_BYTES];
    struct store_record store;
    (void)waker;
    if (!route_segment(request->path, 2, id, sizeof id)) {
        store_is_missing(id, "vector_store_id", failure);
        return NULL;
    }
    if (!copy_store(api, &request->principal, id, &store, failure)) return NULL;
    return answer_store(api, &request->principal, store, failure);
}

/* Lists. */

static void add_shown(struct shown_stores *shown, struct store_record store) {
    shown->list = xrealloc(shown->list, (size_t)(shown->n + 1) * sizeof *shown->list);
    shown->list[shown->n] = store;
    shown->n++;
}

/* All of the client, the collection as the oldest, in the order that is asked for. */
static bool list_all(struct api *api, const struct principal *who, bool ascends,
                     struct shown_stores *out, struct failure *failure) {
    struct error e;
    bool kept = api->stores && api->stores->registry;
    const struct records *records = kept ? registry_look(api->stores->registry, &e) : NULL;
    if (kept && records == NULL) return failure_from_error(failure, &e);
    if (api->models[0].collection) add_shown(out, collection_record(api));
    for (size_t i = 0; records && i < records->stores.count; i++) {
        const struct store_record *store = (struct store_record *)records->stores.items + i;
        if (strcmp(store->owner, stores_owner(who)) == 0) add_shown(out, store_record_copy(store));
    }
    if (records) registry_end(api->stores->registry);
    for (int i = 0; !ascends && i < out->n / 2; i++) {
        struct store_record first = out->list[i];
        out->list[i] = out->list[out->n - 1 - i];
        out->list[out->n - 1 - i] = first;
    }
    return true;
}

/* Leaves the stores of the page. */
static bool cut_stores(struct shown_stores *shown, const struct stores_query *query, bool *more,
                       struct failure *failure) {
    const char **ids = xcalloc((size_t)shown->n + 1, sizeof(char *));
    struct page_slice slice;
    for (int i = 0; i < shown->n; i++) ids[i] = shown->list[i].id;
    bool ok = page_cut(&slice, ids, shown->n, query, failure);
    free(ids);
    if (!ok) return false;
    struct shown_stores kept = {0};
    for (int i = 0; i < shown->n; i++) {
        if (i >= slice.from && i < slice.end)
            add_shown(&kept, shown->list[i]);
        else if (strcmp(shown->list[i].id, collection_store) != 0)
            store_record_free(&shown->list[i]);
    }
    free(shown->list);
    *shown = kept;
    *more = slice.more;
    return true;
}

struct answer *stores_list(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    struct stores_query query = {0};
    struct shown_stores shown = {0};
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    bool more = false;
    (void)waker;
    bool ok = page_read(&query, &stores_query_table, api, request, failure) &&
              list_all(api, &request->principal, query.ascends != 0, &shown, failure) &&
              cut_stores(&shown, &query, &more, failure) &&
              (count_files(api, &request->principal, &shown, &e) == STATUS_OK ||
               failure_from_error(failure, &e));
    json_table_free(&stores_query_table, &query);
    if (ok) {
        put_begin(&w, &body);
        put_object(&w);
        put_key_string(&w, "object", "list");
        put_key_array(&w, "data");
        for (int i = 0; i < shown.n; i++) put_store(&w, &shown.list[i], &shown.counts[i]);
        put_page_end(&w, shown.n > 0 ? shown.list[0].id : NULL,
                     shown.n > 0 ? shown.list[shown.n - 1].id : NULL, more);
    }
    shown_free(&shown);
    return ok ? answer_text(200, JSON_TYPE, &body) : NULL;
}

/* Making. */

static struct store_record *add_store(struct records *records, const struct principal *who,
                                      const struct store_settings *settings,
                                      const char id[STORE_ID_BYTES]) {
    struct store_record *store = list_add(&records->stores, sizeof *store);
    *store = (struct store_record){.id = xstrdup(id),
                                   .owner = xstrdup(stores_owner(who)),
                                   .name = xstrdup(""),
                                   .metadata = xstrdup("{}"),
                                   .created = time(NULL),
                                   .active = time(NULL)};
    store_settings_set(settings, store);
    return store;
}

static bool has_room(const struct records *records, const struct stores *stores, const char *owner,
                     struct failure *failure) {
    const struct store_record *list = records->stores.items;
    int n = 0;
    for (size_t i = 0; i < records->stores.count; i++) n += strcmp(list[i].owner, owner) == 0;
    return n < stores->max_stores ||
           failure_set(failure, 400, "too_many_vector_stores", NULL,
                       "there are %d vector stores, and the limit is %d (option "
                       "server.max_vector_stores): delete one",
                       n, stores->max_stores);
}

/* *out is a copy. */
static bool create(struct stores *stores, const struct principal *who,
                   const struct store_settings *settings, struct store_record *out,
                   struct failure *failure) {
    char id[STORE_ID_BYTES];
    struct error e;
    make_store_id("vs_", id);
    struct records *records = registry_change(stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    if (!has_room(records, stores, stores_owner(who), failure)) {
        registry_end(stores->registry);
        return false;
    }
    *out = store_record_copy(add_store(records, who, settings, id));
    if (registry_write(stores->registry, &e) == STATUS_OK) return true;
    store_record_free(out);
    return failure_from_error(failure, &e);
}

static void write_nothing(const struct member_job *job, struct json_writer *w) {
    (void)job;
    put_null(w);
}

/* The files that the store begins with are added as those that are added one by one. */
static bool add_first_files(struct member_job *job, const char *store, struct failure *failure) {
    snprintf(job->store, sizeof job->store, "%s", store);
    job->hidden = true;
    struct answer *answer = member_job_ask(job, (struct waker){0}, write_nothing, failure);
    if (answer) answer_close(answer);
    return answer != NULL;
}

struct answer *store_create(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    const struct door_table rows = {"stores", &store_create_table};
    const struct served_model *model = stores_model(api, &request->principal, failure);
    struct store_create_request asked = {0};
    struct store_settings settings;
    struct store_record store = {0};
    struct json *body = NULL;
    (void)waker;
    if (model == NULL) return NULL;
    struct member_job *job = member_job_make(api, request, MEMBER_ADD, "");
    bool ok =
        door_read(api, request, &rows, &body, &asked, failure) &&
        store_settings_read(&settings, asked.name, asked.metadata, asked.expires_after, failure) &&
        chunking_check(asked.chunking, model, failure) &&
        member_job_read(job, asked.file_ids, NULL, failure);
    ok = ok && create(api->stores, &request->principal, &settings, &store, failure);
    json_close(body);
    if (!ok) {
        answer_close(&job->base.base);
        return NULL;
    }
    if (add_first_files(job, store.id, failure))
        return answer_store(api, &request->principal, store, failure);
    store_record_free(&store);
    return NULL;
}

/* Changing. */

struct answer *store_modify(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    const struct door_table rows = {"stores", &store_modify_table};
    struct store_modify_request asked = {0};
    struct store_settings settings;
    struct store_record copy = {0};
    struct json *body = NULL;
    struct error e;
    char id[STORE_ID_BYTES];
    (void)waker;
    bool ok =
        stores_model(api, &request->principal, failure) &&
        store_of_path(api, request, true, id, failure) &&
        door_read(api, request, &rows, &body, &asked, failure) &&
        store_settings_read(&settings, asked.name, asked.metadata, asked.expires_after, failure);
    if (ok) settings.lasts = json_kind(json_member(body, "expires_after")) == JSON_KIND_NULL;
    struct records *records = ok ? registry_change(api->stores->registry, &e) : NULL;
    if (ok && records == NULL) ok = failure_from_error(failure, &e);
    struct store_record *store =
        records ? store_find(records, stores_owner(&request->principal), id) : NULL;
    if (store) {
        store_settings_set(&settings, store);
        store->active = time(NULL);
        copy = store_record_copy(store);
        if (registry_write(api->stores->registry, &e)) ok = failure_from_error(failure, &e);
    } else if (records) {
        registry_end(api->stores->registry);
        ok = store_is_missing(id, "vector_store_id", failure);
    }
    json_close(body);
    if (ok) return answer_store(api, &request->principal, copy, failure);
    store_record_free(&copy);
    return NULL;
}

static void drop_store(struct records *records, const char *owner, const char *id) {
    const struct store_record *stores = records->stores.items;
    const struct batch_record *batches = records->batches.items;
    for (size_t i = records->stores.count; i > 0; i--)
        if (strcmp(stores[i - 1].id, id) == 0 && strcmp(stores[i - 1].owner, owner) == 0)
            records_drop_store(records, i - 1);
    for (size_t i = records->batches.count; i > 0; i--)
        if (strcmp(batches[i - 1].store, id) == 0 && strcmp(batches[i - 1].owner, owner) == 0)
            records_drop_batch(records, i - 1);
}

/* Its files stay. That they were in it goes from their metadata when they change next. */
struct answer *store_delete(struct api *api, const struct api_request *request, struct waker waker,
                            struct failure *failure) {
    const char *owner = stores_owner(&request->principal);
    struct store_record store = {0};
    struct buffer body = {0};
    struct json_writer w;
    struct error e;
    char id[STORE_ID_BYTES];
    (void)waker;
    if (!stores_model(api, &request->principal, failure)) return NULL;
    route_segment(request->path, 2, id, sizeof id);
    if (strcmp(id, collection_store) == 0) {
        refuse_collection(failure);
        return NULL;
    }
    if (!copy_store(api, &request->principal, id, &store, failure)) return NULL;
    store_record_free(&store);
    struct records *records = registry_change(api->stores->registry, &e);
    if (records) drop_store(records, owner, id);
    if (records == NULL || registry_write(api->stores->registry, &e)) {
        failure_from_error(failure, &e);
        return NULL;
    }
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "id", id);
    put_key_string(&w, "object", "vector_store.deleted");
    put_key_bool(&w, "deleted", true);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
