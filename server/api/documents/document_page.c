/* server/api/documents/document_page.c: GET /v1/documents/ID/pages/N: a page of a PDF as a picture,
 * drawn of the file that the document came from, where that is kept. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "server/api/api.h"
#include "server/api/core/shared_answer.h"
#include "server/documents/page_thread.h"

static const char documents_path[] = "/v1/documents/", pages_path[] = "/pages/";
enum { MOST_DIGITS = 6 };

struct page_answer {
    struct shared_answer base; /* first */
    struct page_job job;
    char *id;
};

static void free_page(struct shared_answer *base) {
    struct page_answer *answer = (struct page_answer *)base;
    principal_release(&answer->job.principal);
    buffer_free(&answer->job.png);
    free(answer->id);
    free(answer);
}

static void page_done(struct page_job *job) { shared_answer_finish(job->context); }

/* A file that changed, or is damaged, is no fault of the request. */
static void describe_failure(const struct page_job *job, struct failure *failure) {
    if (job->is_changed)
        failure_set(failure, 409, "file_changed", NULL, "%s", job->error.text);
    else if (job->status == STATUS_INVALID)
        failure_set(failure, 422, "page_not_drawn", NULL, "%s", job->error.text);
    else
        failure_from_error(failure, &job->error);
}

static enum answer_progress page_poll(struct answer *base, struct buffer *out) {
    struct page_answer *answer = (struct page_answer *)base;
    const struct page_job *job = &answer->job;
    struct failure failure;
    if (!shared_answer_is_done(&answer->base)) return ANSWER_WAITING;
    if (job->n_pages > 0) answer_add_header(base, "X-Page-Count", "%d", job->n_pages);
    if (job->status) {
        describe_failure(job, &failure);
        failure_answer(&failure, base, out);
        return ANSWER_COMPLETE;
    }
    answer_set_header(base, "Content-Type", "image/png");
    answer_set_header(base, "Cache-Control", "private, no-cache");
    answer_add_header(base, "X-Content-Type-Options", "nosniff");
    answer_add_header(base, "Content-Security-Policy", "default-src 'none'; sandbox");
    answer_add_header(base, "Cross-Origin-Resource-Policy", "same-origin");
    buffer_append(out, job->png.data, job->png.size);
    return ANSWER_COMPLETE;
}

/* Where the number begins in an id and what follows it in a path; NULL: no page is asked for. */
static const char *find_number(const char *id) {
    size_t n = 0, size = strlen(id), least = strlen(pages_path);
    while (n < size && is_digit(id[size - 1 - n])) n++;
    if (n == 0 || n > MOST_DIGITS || size <= least + n) return NULL;
    const char *number = id + size - n;
    return memcmp(number - least, pages_path, least) == 0 ? number : NULL;
}

bool document_id_is_page(const char *id) { return find_number(id) != NULL; }

bool document_path_is_page(const char *path) {
    return document_id_is_page(path + strlen(documents_path));
}

struct answer *document_page(struct api *api, const struct api_request *request, struct waker waker,
                             struct failure *failure) {
    static const struct answer_ops ops = {page_poll, shared_answer_cancel, shared_answer_close};
    const struct served_model *model =
        documents_model(api, &request->principal, DOCUMENTS_READ, failure);
    const char *id = request->path + strlen(documents_path);
    const char *number = find_number(id);
    struct error e;
    if (model == NULL) return NULL;
    if (number == NULL) {
        failure_set(failure, 404, "not_found", NULL, "a page is asked for by its number, from 1");
        return NULL;
    }
    struct page_answer *answer = xcalloc(1, sizeof *answer);
    shared_answer_init(&answer->base, &ops, waker, free_page);
    answer->id = xstrndup(id, (size_t)(number - id) - strlen(pages_path));
    answer->job = (struct page_job){.principal = principal_hold(request->principal),
                                    .id = answer->id,
                                    .number = atoi(number),
                                    .cancelled = &answer->base.cancelled,
                                    .done = page_done,
                                    .context = answer};
    shared_answer_begin(&answer->base);
    if (page_thread_ask(model->page_thread, &answer->job, &e) == STATUS_OK)
        return &answer->base.base;
    failure_from_error(failure, &e);
    shared_answer_release(&answer->base);
    answer_close(&answer->base.base);
    return NULL;
}
