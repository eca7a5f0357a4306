/* server/documents/page_thread.c: see page_thread.h. */
#include "server/documents/page_thread.h"

#include <stdlib.h>

#include "retrieval/extract/extract.h"
#include "retrieval/extract/pdf/pdf_picture.h"
#include "server/threads/worker.h"

enum { PAGE_SECONDS = 20 };
static const size_t PAGE_MEMORY = (size_t)512 << 20, MOST_FILE = (size_t)256 << 20;

struct page_thread {
    struct collection *collection;
    struct kept_files *files;
    atomic_bool stopped;
    struct worker *worker;
};

/* The whole file of a document that is a PDF. The caller frees *name and *bytes. */
static enum status read_file(const struct page_thread *thread, struct page_job *job,
                             const struct stored_document *document, char **name,
                             struct buffer *bytes) {
    struct kept_file file;
    struct error *e = &job->error;
    *name = kept_file_name(document);
    if (document_kind(*name) != DOCUMENT_PDF)
        return error_set(e, STATUS_NOT_FOUND, "pages are drawn of PDFs alone");
    enum status status = kept_file_open(thread->files, document, &file, e);
    job->is_changed = status == STATUS_INVALID;
    if (status) return status;
    if (file.size > MOST_FILE)
        status = error_set(e, STATUS_TOO_LARGE,
                           "the file has more than %zu MiB, and its pages are not drawn",
                           MOST_FILE >> 20);
    if (status == STATUS_OK) status = kept_file_read(&file, 0, (size_t)file.size, bytes, e);
    kept_file_close(&file);
    return status;
}

static enum status draw(const struct page_thread *thread, struct page_job *job, const char *name,
                        struct text_span file) {
    double until = time_now() + 2 * PAGE_SECONDS;
    struct sandbox_limits limits = {.memory = PAGE_MEMORY,
                                    .seconds = PAGE_SECONDS,
                                    .until = until,
                                    .cancelled = job->cancelled,
                                    .stopped = &thread->stopped};
    struct pdf_picture picture = {0};
    if (job->principal.deadline > 0 && job->principal.deadline < until)
        limits.until = job->principal.deadline;
    const struct pdf_pictured pictured = {.name = name, .bytes = file};
    enum status status = pdf_picture_draw(&picture, &pictured, job->number, &limits, &job->error);
    job->n_pages = picture.n_pages;
    if (status == STATUS_OK)
        job->png = picture.png;
    else
        buffer_free(&picture.png);
    return status;
}

static enum status work_on(const struct page_thread *thread, struct page_job *job) {
    struct collection_found found;
    struct buffer bytes = {0};
    char *name = NULL;
    bool wanted = !atomic_load(&thread->stopped) && !atomic_load(job->cancelled);
    if (!wanted) return error_set(&job->error, STATUS_CANCELLED, "the page is not drawn any more");
    if (collection_find(thread->collection, principal_filter(&job->principal), job->id, &found,
                        &job->error))
        return job->error.status;
    enum status status = read_file(thread, job, &found.document, &name, &bytes);
    collection_found_release(&found);
    if (status == STATUS_OK)
        status = draw(thread, job, name, (struct text_span){bytes.data, bytes.size});
    buffer_free(&bytes);
    free(name);
    return status;
}

static bool work(void *context, struct turn *turn) {
    struct page_job *job = (struct page_job *)turn;
    job->status = work_on(context, job);
    return true;
}

static void end_job(struct turn *turn) {
    struct page_job *job = (struct page_job *)turn;
    job->done(job);
}

static uint64_t client_of(const struct turn *turn) {
    return ((const struct page_job *)turn)->principal.client;
}

enum status page_thread_open(struct page_thread **out, struct collection *collection,
                             struct kept_files *files, int capacity, struct error *e) {
    struct page_thread *thread = xcalloc(1, sizeof *thread);
    thread->collection = collection;
    thread->files = files;
    struct worker_options options = {.thread = "the thread that draws pages",
                                     .jobs = "requests for pages",
                                     .capacity = capacity,
                                     .work = work,
                                     .done = end_job,
                                     .client = client_of,
                                     .context = thread};
    if (worker_open(&thread->worker, &options, e)) {
        page_thread_close(thread);
        return e->status;
    }
    *out = thread;
    return STATUS_OK;
}

void page_thread_stop(struct page_thread *thread) {
    if (thread == NULL) return;
    atomic_store(&thread->stopped, true);
    worker_stop(thread->worker);
}

void page_thread_close(struct page_thread *thread) {
    if (thread == NULL) return;
    worker_close(thread->worker);
    free(thread);
}

enum status page_thread_ask(struct page_thread *thread, struct page_job *job, struct error *e) {
    return worker_ask(thread->worker, &job->turn, e);
}
