/* server/doors/stores/store_files.c: the files of a vector store: listed, shown, added, changed and
 * taken out. */
#include <stdlib.h>
#include <string.h>

#include "server/api/routes.h"
#include "server/doors/shared/door_fields.h"
#include "server/doors/stores/stores_private.h"

/* Shapes. */

static void put_last_error(struct json_writer *w, const struct store_member *member) {
    put_key(w, "last_error");
    if (member->state != FILE_FAILED) {
        put_null(w);
        return;
    }
    put_object(w);
    put_key_string(w, "code", member->code);
    put_key_string(w, "message", member->message);
    put_object_end(w);
}

void put_store_file(struct json_writer *w, struct api *api, const struct principal *who,
                    const char *store, const struct store_member *member) {
    struct collection_found found = {0};
    struct error e;
    bool there = collection_find(api->models[0].collection, principal_filter(who), member->document,
                                 &found, &e) == STATUS_OK;
    put_object(w);
    file_put_id(w, "id", member->document);
    put_key_string(w, "object", "vector_store.file");
    put_key_int(w, "created_at", member->created);
    put_key_string(w, "vector_store_id", store);
    put_key_string(w, "status", file_state_name(member->state));
    put_last_error(w, member);
    put_key_int(w, "usage_bytes", member->bytes);
    put_key_chunking(w, &api->models[0]);
    put_key_attributes(w, there ? found.document.metadata : "", store);
    put_object_end(w);
    if (there) collection_found_release(&found);
}

/* Looking. */

static bool is_collection(const char *store) { return strcmp(store, collection_store) == 0; }

/* The file of the path, in the store. */
static bool find_member(struct api *api, const struct api_request *request, const char *store,
                        struct store_member *out, struct failure *failure) {
    struct error e;
    char *document = file_of_path(request, 4, failure);
    if (document == NULL) return false;
    enum status status = member_find(api, &request->principal, store, document, out, &e);
    free(document);
    if (status == STATUS_OK) return true;
    member_free(out);
    if (status != STATUS_NOT_FOUND) return failure_from_error(failure, &e);
    return failure_set(failure, 404, "not_found", "file_id", "the vector store has no such file");
}

struct answer *store_file(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    struct store_member member;
    struct buffer body = {0};
    struct json_writer w;
    char store[STORE_ID_BYTES];
    if (!store_of_path(api, request, false, store, failure)) return NULL;
    if (is_collection(store)) return collection_file(api, request, waker, failure);
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) == NULL ||
        !find_member(api, request, store, &member, failure))
        return NULL;
    put_begin(&w, &body);
    put_store_file(&w, api, &request->principal, store, &member);
    member_free(&member);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *store_content(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    struct store_member member;
    char store[STORE_ID_BYTES];
    if (!store_of_path(api, request, false, store, failure)) return NULL;
    if (!is_collection(store)) {
        if (!find_member(api, request, store, &member, failure)) return NULL;
        member_free(&member);
    }
    return document_content(api, request, waker, failure);
}

/* Lists. */

static int by_time(const void *a, const void *b) {
    const struct store_member *left = a, *right = b;
    if (left->created != right->created) return left->created < right->created ? -1 : 1;
    return strcmp(left->document, right->document);
}

static void swap_members(struct store_member *left, struct store_member *right) {
    struct store_member first = *left;
    *left = *right;
    *right = first;
}

/* Leaves those of the query's status, in its order. */
static void order_members(struct store_members *members, const struct stores_query *query) {
    int n = 0;
    for (int i = 0; i < members->n; i++) {
        bool shown = query->state == 0 || (int)members->list[i].state == query->state - 1;
        if (shown) swap_members(&members->list[i], &members->list[n]);
        n += shown;
    }
    for (int i = n; i < members->n; i++) member_free(&members->list[i]);
    members->n = n;
    if (n > 0) qsort(members->list, (size_t)n, sizeof *members->list, by_time);
    for (int i = 0; !query->ascends && i < n / 2; i++)
        swap_members(&members->list[i], &members->list[n - 1 - i]);
}

struct file_page {
    struct api *api;
    const struct principal *who;
    const char *store;
    const struct store_members *members;
    struct stores_query *query;
};

static char *id_text(const char *document) {
    struct buffer text = {0};
    file_append_id(&text, document);
    return text.data;
}

static bool put_page(const struct file_page *page, struct buffer *body, struct failure *failure) {
    const struct store_members *members = page->members;
    char **ids = xcalloc((size_t)members->n + 1, sizeof(char *));
    struct page_slice slice;
    struct json_writer w;
    for (int i = 0; i < members->n; i++) ids[i] = id_text(members->list[i].document);
    bool ok = page_cut(&slice, (const char *const *)ids, members->n, page->query, failure);
    if (ok) {
        bool any = slice.end > slice.from;
        put_begin(&w, body);
        put_object(&w);
        put_key_string(&w, "object", "list");
        put_key_array(&w, "data");
        for (int i = slice.from; i < slice.end; i++)
            put_store_file(&w, page->api, page->who, page->store, &members->list[i]);
        put_page_end(&w, any ? ids[slice.from] : NULL, any ? ids[slice.end - 1] : NULL, slice.more);
    }
    for (int i = 0; i < members->n; i++) free(ids[i]);
    free(ids);
    return ok;
}

struct answer *members_answer(struct api *api, const struct api_request *request, const char *store,
                              struct store_members *members, struct failure *failure) {
    struct stores_query query = {0};
    struct buffer body = {0};
    const struct file_page page = {.api = api,
                                   .who = &request->principal,
                                   .store = store,
                                   .members = members,
                                   .query = &query};
    bool ok = page_read(&query, &store_files_query_table, api, request, failure);
    if (ok) order_members(members, &query);
    ok = ok && put_page(&page, &body, failure);
    json_table_free(&store_files_query_table, &query);
    members_free(members);
    return ok ? answer_text(200, JSON_TYPE, &body) : NULL;
}

struct answer *store_files(struct api *api, const struct api_request *request, struct waker waker,
                           struct failure *failure) {
    char store[1][STORE_ID_BYTES];
    struct store_members members = {0};
    struct error e;
    if (!store_of_path(api, request, false, store[0], failure)) return NULL;
    if (is_collection(store[0])) return collection_files(api, request, waker, failure);
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) == NULL) return NULL;
    if (members_collect(api, &request->principal,
                        &(struct store_ids){(const char(*)[STORE_ID_BYTES])store, 1}, &members,
                        &e) == STATUS_OK)
        return members_answer(api, request, store[0], &members, failure);
    members_free(&members);
    failure_from_error(failure, &e);
    return NULL;
}

/* Adding. */

/* The document of a file's id that a request names, which has to be an uploaded one of the
 * client's. NULL with *failure set. */
static char *read_file_id(const struct member_job *job, const struct json *id,
                          struct failure *failure) {
    struct collection_found found;
    struct file_facts facts = {0};
    struct error e;
    const char *word = json_word(id);
    char *document = word ? file_document(word) : NULL;
    bool there = document && collection_find(job->model->collection, principal_filter(&job->who),
                                             document, &found, &e) == STATUS_OK;
    if (there) {
        file_facts_read(&facts, &found.document);
        collection_found_release(&found);
    }
    there = there && (facts.until == 0 || facts.until > time(NULL));
    if (there && facts.uploaded) return document;
    free(document);
    if (there)
        failure_set(failure, 400, "not_supported", "file_id",
                    "%.80s is a document of the collection, which vs_collection has: upload it as "
                    "a file",
                    word);
    else
        failure_set(failure, 404, "not_found", "file_id", "there is no file %.80s",
                    word ? word : "(none)");
    return NULL;
}

static bool add_file(struct member_job *job, const struct json *id, const struct json *attributes,
                     struct failure *failure) {
    if (!attributes_check(attributes, "attributes", false, failure)) return false;
    char *document = read_file_id(job, id, failure);
    if (document) member_job_add(job, document, attributes);
    return document != NULL;
}

static bool check_count(const struct json *list, const char *field, struct failure *failure) {
    if (json_is_list(list) && json_count(list) <= BATCH_FILES) return true;
    return failure_set(failure, 400, "invalid_value", field,
                       "%s must be an array of at most %d files", field, BATCH_FILES);
}

bool member_job_read(struct member_job *job, const struct json *ids, const struct json *attributes,
                     struct failure *failure) {
    bool ok = json_is_absent(ids) || check_count(ids, "file_ids", failure);
    for (size_t i = 0; ok && i < json_count(ids); i++)
        ok = add_file(job, json_item(ids, i), attributes, failure);
    return ok;
}

bool member_job_read_files(struct member_job *job, const struct json *files,
                           struct failure *failure) {
    const struct door_table rows = {"stores", &store_file_table};
    bool ok = check_count(files, "files", failure);
    for (size_t i = 0; ok && i < json_count(files); i++) {
        struct store_file_request asked = {0};
        ok = door_read_json(job->stores->api, &rows, json_item(files, i), &asked, failure) &&
             chunking_check(asked.chunking, job->model, failure) &&
             add_file(job, asked.file_id, asked.attributes, failure);
    }
    return ok;
}

static void write_added(const struct member_job *job, struct json_writer *w) {
    struct store_member member = {.document = job->files[0].document, .created = job->created};
    put_object(w);
    file_put_id(w, "id", member.document);
    put_key_string(w, "object", "vector_store.file");
    put_key_int(w, "created_at", member.created);
    put_key_string(w, "vector_store_id", job->store);
    put_key_string(w, "status", file_state_name(FILE_IN_PROGRESS));
    put_key_null(w, "last_error");
    put_key_int(w, "usage_bytes", 0);
    put_key_chunking(w, job->model);
    put_key(w, "attributes");
    if (job->files[0].attributes)
        put_json(w, job->files[0].attributes);
    else
        put_raw(w, (struct text_span){"{}", 2});
    put_object_end(w);
}

struct answer *store_file_add(struct api *api, const struct api_request *request,
                              struct waker waker, struct failure *failure) {
    const struct door_table rows = {"stores", &store_file_table};
    struct store_file_request asked = {0};
    struct json *body = NULL;
    char store[STORE_ID_BYTES];
    const struct served_model *model = stores_model(api, &request->principal, failure);
    if (model == NULL || !store_of_path(api, request, true, store, failure)) return NULL;
    struct member_job *job = member_job_make(api, request, MEMBER_ADD, store);
    bool ok = door_read(api, request, &rows, &body, &asked, failure) &&
              chunking_check(asked.chunking, model, failure) &&
              add_file(job, asked.file_id, asked.attributes, failure);
    json_close(body);
    job->hidden = true;
    store_touch(api->stores, &request->principal, store);
    if (ok) return member_job_ask(job, waker, write_added, failure);
    answer_close(&job->base.base);
    return NULL;
}

/* Changing and taking out. */

static void write_changed(const struct member_job *job, struct json_writer *w) {
    struct store_member member;
    struct error e;
    if (member_find(job->stores->api, &job->who, job->store, job->files[0].document, &member, &e))
        log_warn("a file of a vector store was changed and is gone: %s", e.text);
    put_store_file(w, job->stores->api, &job->who, job->store, &member);
    member_free(&member);
}

/* A job for the file of the path, which the store has. */
static struct member_job *job_of_path(struct api *api, const struct api_request *request,
                                      enum member_change change, struct failure *failure) {
    struct store_member member;
    char store[STORE_ID_BYTES];
    if (stores_model(api, &request->principal, failure) == NULL ||
        !store_of_path(api, request, true, store, failure) ||
        !find_member(api, request, store, &member, failure))
        return NULL;
    struct member_job *job = member_job_make(api, request, change, store);
    member_job_add(job, xstrdup(member.document), NULL);
    member_free(&member);
    return job;
}

struct answer *store_file_modify(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    const struct door_table rows = {"stores", &store_file_change_table};
    struct store_file_change asked = {0};
    struct json *body = NULL;
    struct member_job *job = job_of_path(api, request, MEMBER_MODIFY, failure);
    if (job == NULL) return NULL;
    bool ok = door_read(api, request, &rows, &body, &asked, failure) &&
              attributes_check(asked.attributes, "attributes", false, failure);
    if (ok) job->files[0].attributes = json_duplicate(asked.attributes);
    json_close(body);
    job->write = write_changed;
    if (ok) return member_job_ask(job, waker, NULL, failure);
    answer_close(&job->base.base);
    return NULL;
}

static void write_removed(const struct member_job *job, struct json_writer *w) {
    put_object(w);
    file_put_id(w, "id", job->files[0].document);
    put_key_string(w, "object", "vector_store.file.deleted");
    put_key_bool(w, "deleted", true);
    put_object_end(w);
}

struct answer *store_file_remove(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    struct member_job *job = job_of_path(api, request, MEMBER_REMOVE, failure);
    if (job == NULL) return NULL;
    job->write = write_removed;
    return member_job_ask(job, waker, NULL, failure);
}
