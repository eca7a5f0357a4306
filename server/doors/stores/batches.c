/* server/doors/stores/batches.c: /v1/vector_stores/{id}/file_batches: files that are added
 * together.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/routes.h"
#include "server/doors/shared/door_fields.h"
#include "server/doors/stores/stores_private.h"

/* A batch as it is now. */
struct batch_state {
    char id[STORE_ID_BYTES], store[STORE_ID_BYTES];
    int64_t created;
    bool cancelled;
    struct store_members files;
};

static void put_batch(struct json_writer *w, const struct batch_state *batch) {
    int64_t counts[FILE_CANCELLED + 1] = {0};
    for (int i = 0; i < batch->files.n; i++) counts[batch->files.list[i].state]++;
    bool works = counts[FILE_IN_PROGRESS] > 0;
    put_object(w);
    put_key_string(w, "id", batch->id);
    put_key_string(w, "object", "vector_store.files_batch");
    put_key_int(w, "created_at", batch->created);
    put_key_string(w, "vector_store_id", batch->store);
    put_key_string(w, "status",
                   works              ? "in_progress"
                   : batch->cancelled ? "cancelled"
                                      : "completed");
    put_key_object(w, "file_counts");
    for (int i = 0; i <= FILE_CANCELLED; i++)
        put_key_int(w, file_state_name((enum file_state)i), counts[i]);
    put_key_int(w, "total", batch->files.n);
    put_object_end(w);
    put_object_end(w);
}

static struct answer *answer_batch(struct batch_state *batch) {
    struct buffer body = {0};
    struct json_writer w;
    put_begin(&w, &body);
    put_batch(&w, batch);
    members_free(&batch->files);
    return answer_text(200, JSON_TYPE, &body);
}

/* Finding. */

static bool is_missing(const char *id, struct failure *failure) {
    return failure_set(failure, 404, "not_found", "batch_id", "there is no file batch %.80s", id);
}

/* A batch that this server works on; `cancels`: what is left of it is given up. */
static bool find_job(struct stores *stores, const char *owner, struct batch_state *out,
                     bool cancels) {
    pthread_mutex_lock(&stores->lock);
    struct member_job *job = member_job_find(stores, out->id);
    bool found = job && !job->hidden && job->change == MEMBER_ADD &&
                 strcmp(stores_owner(&job->who), owner) == 0 && strcmp(job->store, out->store) == 0;
    if (found && cancels) atomic_store(&job->cancelled, true);
    for (int i = 0; found && i < job->n; i++) {
        struct store_member member = {.document = xstrdup(job->files[i].document),
                                      .state = job->files[i].state,
                                      .created = job->created};
        member_copy(&out->files, &member, job->files[i].code, job->files[i].error.text);
    }
    if (found) out->created = job->created;
    if (found) out->cancelled = atomic_load(&job->cancelled);
    pthread_mutex_unlock(&stores->lock);
    return found;
}

/* Files that were lost with a server are in the store, or failed. */
static void settle(struct api *api, const struct principal *who, struct batch_state *batch) {
    for (int i = 0; i < batch->files.n; i++) {
        struct store_member *member = &batch->files.list[i], now;
        struct error e;
        if (member->state != FILE_IN_PROGRESS) continue;
        if (member_find(api, who, batch->store, member->document, &now, &e)) {
            member_free(&now);
            continue;
        }
        member_free(member);
        *member = now;
    }
}

static bool find_record(struct api *api, const char *owner, struct batch_state *out,
                        struct failure *failure) {
    struct error e;
    const struct records *records = registry_look(api->stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    const struct batch_record *batches = records->batches.items, *found = NULL;
    for (size_t i = 0; i < records->batches.count; i++)
        if (!batches[i].hidden && strcmp(batches[i].id, out->id) == 0 &&
            strcmp(batches[i].owner, owner) == 0 && strcmp(batches[i].store, out->store) == 0)
            found = &batches[i];
    for (size_t i = 0; found && i < found->files.count; i++) {
        const struct file_entry *entry = (struct file_entry *)found->files.items + i;
        struct store_member member = {.document = xstrdup(entry->document),
                                      .state = (enum file_state)entry->state,
                                      .created = found->created};
        member_copy(&out->files, &member, entry->code, entry->message);
    }
    if (found) out->created = found->created;
    if (found) out->cancelled = found->cancelled;
    registry_end(api->stores->registry);
    return found || is_missing(out->id, failure);
}

/* The batch of the path. */
static bool find_batch(struct api *api, const struct api_request *request, bool cancels,
                       struct batch_state *out, struct failure *failure) {
    const struct principal *who = &request->principal;
    *out = (struct batch_state){0};
    if (!store_of_path(api, request, true, out->store, failure)) return false;
    if (!route_segment(request->path, 4, out->id, sizeof out->id))
        return is_missing(out->id, failure);
    if (find_job(api->stores, stores_owner(who), out, cancels)) return true;
    if (!find_record(api, stores_owner(who), out, failure)) return false;
    settle(api, who, out);
    return true;
}

/* Handlers. */

struct answer *file_batch_show(struct api *api, const struct api_request *request,
                               struct waker waker, struct failure *failure) {
    struct batch_state batch;
    (void)waker;
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) &&
        find_batch(api, request, false, &batch, failure))
        return answer_batch(&batch);
    return NULL;
}

static bool note_cancelled(struct stores *stores, const char *id, struct failure *failure) {
    struct error e;
    struct records *records = registry_change(stores->registry, &e);
    if (records == NULL) return failure_from_error(failure, &e);
    struct batch_record *batches = records->batches.items;
    for (size_t i = 0; i < records->batches.count; i++)
        if (strcmp(batches[i].id, id) == 0) batches[i].cancelled = true;
    return registry_write(stores->registry, &e) == STATUS_OK || failure_from_error(failure, &e);
}

static bool works(const struct batch_state *batch) {
    for (int i = 0; i < batch->files.n; i++)
        if (batch->files.list[i].state == FILE_IN_PROGRESS) return true;
    return false;
}

struct answer *file_batch_cancel(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    struct batch_state batch;
    (void)waker;
    if (stores_model(api, &request->principal, failure) == NULL ||
        !find_batch(api, request, true, &batch, failure))
        return NULL;
    if (!works(&batch)) return answer_batch(&batch);
    batch.cancelled = true;
    if (note_cancelled(api->stores, batch.id, failure)) return answer_batch(&batch);
    members_free(&batch.files);
    return NULL;
}

struct answer *file_batch_files(struct api *api, const struct api_request *request,
                                struct waker waker, struct failure *failure) {
    struct batch_state batch;
    (void)waker;
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) == NULL ||
        !find_batch(api, request, false, &batch, failure))
        return NULL;
    return members_answer(api, request, batch.store, &batch.files, failure);
}

static void write_asked(const struct member_job *job, struct json_writer *w) {
    struct batch_state batch = {.created = job->created};
    strcpy(batch.id, job->batch);
    strcpy(batch.store, job->store);
    for (int i = 0; i < job->n; i++) {
        struct store_member member = {.document = xstrdup(job->files[i].document)};
        member_copy(&batch.files, &member, NULL, NULL);
    }
    put_batch(w, &batch);
    members_free(&batch.files);
}

static bool read_batch(struct member_job *job, const struct batch_request *asked,
                       struct failure *failure) {
    bool ids = !json_is_absent(asked->file_ids), files = !json_is_absent(asked->files);
    if (ids == files)
        return failure_set(failure, 400, "invalid_value", "file_ids",
                           "a file batch has file_ids or files, and one of them");
    if (!chunking_check(asked->chunking, job->model, failure)) return false;
    bool ok = ids ? member_job_read(job, asked->file_ids, asked->attributes, failure)
                  : member_job_read_files(job, asked->files, failure);
    return ok && (job->n > 0 || failure_set(failure, 400, "invalid_value", "file_ids",
                                            "a file batch has at least one file"));
}

struct answer *file_batch_create(struct api *api, const struct api_request *request,
                                 struct waker waker, struct failure *failure) {
    const struct door_table rows = {"stores", &batch_table};
    struct batch_request asked = {0};
    struct json *body = NULL;
    char store[STORE_ID_BYTES];
    if (stores_model(api, &request->principal, failure) == NULL ||
        !store_of_path(api, request, true, store, failure))
        return NULL;
    struct member_job *job = member_job_make(api, request, MEMBER_ADD, store);
    bool ok =
        door_read(api, request, &rows, &body, &asked, failure) && read_batch(job, &asked, failure);
    json_close(body);
    store_touch(api->stores, &request->principal, store);
    if (ok) return member_job_ask(job, waker, write_asked, failure);
    answer_close(&job->base.base);
    return NULL;
}
