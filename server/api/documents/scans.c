/* server/api/documents/scans.c: GET /v1/scans: the folders that the collection's documents were
 * read from, whether they are followed, and what of them was skipped. Paths are told to those who
 * may change documents; a key that sees some of the documents is told nothing. */
#include "config/json/json_writer.h"
#include "retrieval/kept/scan_record.h"
#include "server/api/api.h"

static void put_number(struct json_writer *w, const char *name, const struct json *json) {
    put_key_int(w, name, json_int(json_member(json, name)));
}

static void put_list(struct json_writer *w, const char *name, const struct json *json) {
    const struct json *list = json_member(json, name);
    put_key_array(w, name);
    for (size_t i = 0; json_is_list(list) && i < json_count(list); i++)
        put_json(w, json_item(list, i));
    put_array_end(w);
}

static void put_scan(struct json_writer *w, const struct scan_found *scan, bool with_paths) {
    put_object(w);
    put_key_string(w, "object", "scan");
    if (with_paths) put_list(w, "paths", scan->json);
    put_key_bool(w, "followed", scan->followed);
    put_number(w, "time", scan->json);
    put_number(w, "files", scan->json);
    put_number(w, "not_read", scan->json);
    put_number(w, "n_skipped", scan->json);
    if (with_paths) put_list(w, "skipped", scan->json);
    put_object_end(w);
}

struct answer *scans_list(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    const struct principal *who = &request->principal;
    const struct served_model *model = documents_model(api, who, DOCUMENTS_READ, failure);
    struct scan_found found[SCANS_SHOWN];
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (model == NULL) return NULL;
    bool sees_all = who->key == NULL || who->key->filter == NULL;
    int n = sees_all ? scan_list(model->collection_name, found) : 0;
    bool with_paths = documents_right(api, who) >= DOCUMENTS_WRITE;
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < n; i++) {
        put_scan(&w, &found[i], with_paths);
        json_close(found[i].json);
    }
    put_array_end(&w);
    put_object_end(&w);
    return answer_text(200, JSON_TYPE, &body);
}
