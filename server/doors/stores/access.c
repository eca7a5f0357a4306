/* server/doors/stores/access.c: who meets which stores. A store of another key, one that never was
 * and one that was deleted are told in the same words. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/api/routes.h"
#include "server/api/text/writing_ask.h"
#include "server/doors/stores/stores_private.h"

const char collection_store[] = "vs_collection";

enum { TOUCH_SECONDS = 3600 }; /* of a store's use that need not be written */

const char *stores_owner(const struct principal *who) { return who->key ? who->key->owner : ""; }

void make_store_id(const char *prefix, char id[STORE_ID_BYTES]) {
    snprintf(id, STORE_ID_BYTES, "%s%016" PRIx64 "%016" PRIx64, prefix, random_number(),
             random_number());
}

const struct served_model *stores_model(struct api *api, const struct principal *who,
                                        struct failure *failure) {
    const struct served_model *model = documents_model(api, who, DOCUMENTS_WRITE, failure);
    if (model == NULL || (api->stores && api->stores->registry)) return model;
    failure_set(failure, 400, "not_supported", NULL,
                "files and vector stores are kept beside a collection in a folder, and this one is "
                "in none: add documents at /v1/documents and search vs_collection");
    return NULL;
}

char *file_of_path(const struct api_request *request, int segment, struct failure *failure) {
    char id[FILE_ID_BYTES];
    char *document =
        route_segment(request->path, segment, id, sizeof id) ? file_document(id) : NULL;
    if (document == NULL)
        failure_set(failure, 404, "not_found", "file_id", "there is no file %.80s", id);
    return document;
}

/* Stores. */

bool store_is_expired(const struct store_record *store, int64_t now) {
    return store->days > 0 && store->active + store->days * (int64_t)DAY_SECONDS <= now;
}

struct store_record *store_find(struct records *records, const char *owner, const char *id) {
    struct store_record *stores = records->stores.items;
    for (size_t i = 0; i < records->stores.count; i++)
        if (strcmp(stores[i].owner, owner) == 0 && strcmp(stores[i].id, id) == 0) return &stores[i];
    return NULL;
}

const struct store_record *store_of(const struct records *records, const char *owner,
                                    const char *id) {
    return store_find((struct records *)(uintptr_t)records, owner, id);
}

bool store_is_missing(const char *id, const char *field, struct failure *failure) {
    return failure_set(failure, 404, "not_found", field, "there is no vector store %.80s", id);
}

bool refuse_collection(struct failure *failure) {
    return failure_set(failure, 400, "not_supported", "vector_store_id",
                       "vs_collection is the collection, whose documents are added and deleted at "
                       "/v1/documents: make a vector store for files");
}

static bool check_store(struct api *api, const struct principal *who, const char *id,
                        const char *field, struct failure *failure) {
    struct error e;
    if (api->models[0].collection && strcmp(id, collection_store) == 0) return true;
    if (api->stores == NULL || api->stores->registry == NULL)
        return store_is_missing(id, field, failure);
    const struct records *records = registry_look(api->stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    const struct store_record *store = store_of(records, stores_owner(who), id);
    bool found = store != NULL, expired = store && store_is_expired(store, time(NULL));
    registry_end(api->stores->registry);
    if (!found) return store_is_missing(id, field, failure);
    return !expired || failure_set(failure, 400, "vector_store_expired", field,
                                   "the vector store %.80s has expired (expires_after)", id);
}

bool store_of_path(struct api *api, const struct api_request *request, bool changes,
                   char id[STORE_ID_BYTES], struct failure *failure) {
    if (!route_segment(request->path, 2, id, STORE_ID_BYTES))
        return store_is_missing(id, "vector_store_id", failure);
    if (!check_store(api, &request->principal, id, "vector_store_id", failure)) return false;
    return !changes || strcmp(id, collection_store) != 0 || refuse_collection(failure);
}

_Static_assert((int)STORE_NAME_BYTES >= (int)STORE_ID_BYTES, "a set holds ids");

bool stores_find(struct api *api, const struct principal *who, const struct json *ids,
                 const char *field, struct store_set *out, struct failure *failure) {
    size_t n = json_count(ids);
    *out = (struct store_set){0};
    if (!json_is_list(ids) || n == 0 || n > STORES_OF_SEARCH)
        return failure_set(failure, 400, "invalid_type", field,
                           "%s must be an array of 1 to %d ids", field, STORES_OF_SEARCH);
    for (size_t i = 0; i < n; i++) {
        const char *id = json_word(json_item(ids, i));
        if (id == NULL || strlen(id) >= STORE_ID_BYTES)
            return store_is_missing(id ? id : "(none)", field, failure);
        if (!check_store(api, who, id, field, failure)) return false;
        snprintf(out->ids[i], STORE_NAME_BYTES, "%s", id);
        out->n++;
    }
    for (int i = 0; i < out->n; i++) store_touch(api->stores, who, out->ids[i]);
    return true;
}

/* Of days that count, an hour does not. */
static bool is_stale(struct registry *registry, const char *owner, const char *id) {
    struct error e;
    const struct records *records = registry_look(registry, &e);
    if (records == NULL) return false;
    const struct store_record *store = store_of(records, owner, id);
    bool stale = store && time(NULL) - store->active >= TOUCH_SECONDS;
    registry_end(registry);
    return stale;
}

void store_touch(struct stores *stores, const struct principal *who, const char *id) {
    const char *owner = stores_owner(who);
    struct error e;
    if (stores == NULL || stores->registry == NULL || !is_stale(stores->registry, owner, id))
        return;
    struct records *records = registry_change(stores->registry, &e);
    struct store_record *store = records ? store_find(records, owner, id) : NULL;
    enum status status = records ? STATUS_OK : e.status;
    if (store) {
        store->active = time(NULL);
        status = registry_write(stores->registry, &e);
    } else if (records) {
        registry_end(stores->registry);
    }
    if (status) log_warn("a vector store was used, which is not written down: %s", e.text);
}
