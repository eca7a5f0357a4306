/* server/api/documents/jobs.c: /v1/jobs: how far uploads are that were answered at once. */
#include "server/api/documents/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "config/json/json_writer.h"
#include "server/api/routes.h"

static const char *const state_names[] = {[POSTED_WAITING] = "waiting",
                                          [POSTED_RUNNING] = "running",
                                          [POSTED_DONE] = "done",
                                          [POSTED_FAILED] = "failed",
                                          [POSTED_CANCELLED] = "cancelled"};

/* The members of an object, in braces, behind those that the writer has put. */
static void put_members(struct json_writer *w, const struct buffer *object) {
    struct json *json;
    struct error e;
    if (object->size == 0 ||
        json_parse(&json, (struct text_span){object->data, object->size}, "outcome", &e)) {
        put_key_array(w, "data");
        put_array_end(w);
        return;
    }
    for (struct json_entry entry = {0}; json_next(json, &entry);) {
        put_key_n(w, entry.name.text, entry.name.size);
        put_json(w, entry.value);
    }
    json_close(json);
}

void put_posted_job(struct json_writer *w, const struct posted_view *view, bool whole) {
    put_object(w);
    put_key_string(w, "object", "job");
    put_key_string(w, "id", view->id);
    put_key_string(w, "status", state_names[view->state]);
    put_key_int(w, "created", view->created);
    put_key_object(w, "files");
    put_key_int(w, "done", view->n_done);
    put_key_int(w, "total", view->n_files);
    put_object_end(w);
    put_key_int(w, "chunks", view->n_chunks);
    if (whole) put_members(w, &view->outcome);
    put_object_end(w);
}

static struct answer *answer_job(struct api *api, const struct api_request *request, bool cancel,
                                 struct failure *failure) {
    struct posted_view view;
    struct buffer body = {0};
    struct json_writer w;
    char id[JOB_ID_SIZE];
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) == NULL) return NULL;
    if (!route_segment(request->path, 2, id, sizeof id) ||
        !document_jobs_look(api->jobs, &request->principal, id, cancel, &view)) {
        failure_set(failure, 404, "not_found", NULL,
                    "there is no such job; a job is kept for an hour behind its end");
        return NULL;
    }
    put_begin(&w, &body);
    put_posted_job(&w, &view, true);
    buffer_free(&view.outcome);
    return answer_text(200, JSON_TYPE, &body);
}

struct answer *job_show(struct api *api, const struct api_request *request, struct waker waker,
                        struct failure *failure) {
    (void)waker;
    return answer_job(api, request, false, failure);
}

struct answer *job_cancel(struct api *api, const struct api_request *request, struct waker waker,
                          struct failure *failure) {
    (void)waker;
    return answer_job(api, request, true, failure);
}

struct answer *jobs_list(struct api *api, const struct api_request *request, struct waker waker,
                         struct failure *failure) {
    struct buffer body = {0};
    struct json_writer w;
    (void)waker;
    if (documents_model(api, &request->principal, DOCUMENTS_READ, failure) == NULL) return NULL;
    struct posted_view *views = xcalloc(JOBS_KEPT, sizeof *views);
    int n = document_jobs_list(api->jobs, &request->principal, views);
    put_begin(&w, &body);
    put_object(&w);
    put_key_string(&w, "object", "list");
    put_key_array(&w, "data");
    for (int i = 0; i < n; i++) put_posted_job(&w, &views[i], false);
    put_array_end(&w);
    put_object_end(&w);
    free(views);
    return answer_text(200, JSON_TYPE, &body);
}
