/* server/pictures/picture_thread.c: see picture_thread.h. */
#include "server/pictures/picture_thread.h"

#include <stddef.h>
#include <stdlib.h>

#include "config/base/data_url.h"
#include "server/threads/worker.h"

/* Small files may be large pictures, which take long to decode: a request's all together have a
 * limit, too. */
static const int64_t MOST_PIXELS = 1 << 26;
/* A request and a document are no larger, and neither is a file in one. */
static const size_t MOST_BYTES = (size_t)1 << 31;

struct picture_thread {
    struct picture_thread_options o;
    struct worker *worker;
};

/* Jobs. */

struct picture_job *picture_job_open(const struct picture_reader *reader, int n,
                                     struct principal who, struct waker waker) {
    struct picture_job *job = xcalloc(1, sizeof *job);
    job->principal = principal_hold(who);
    job->reader = *reader;
    job->files = xcalloc((size_t)n + 1, sizeof *job->files);
    job->n = n;
    for (int i = 0; i < n; i++) job->files[i].place = -1;
    if (reader->picture_input)
        job->set =
            picture_set_open(reader->picture_input->model, reader->picture_input->line_ids, n);
    job->waker = waker;
    atomic_init(&job->references, 1);
    pthread_mutex_init(&job->lock, NULL);
    return job;
}

void picture_job_release(struct picture_job *job) {
    if (job == NULL || atomic_fetch_sub(&job->references, 1) != 1) return;
    for (int i = 0; i < job->n; i++) {
        buffer_free(&job->files[i].bytes);
        buffer_free(&job->files[i].fetch.bytes);
        free(job->files[i].web);
        free(job->files[i].pixels.pixels);
    }
    free(job->files);
    picture_set_release(job->set);
    principal_release(&job->principal);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

void picture_job_hurry(struct picture_job *job) {
    atomic_store(&job->cancelled, true);
    atomic_store(&job->unwanted, true);
}

void picture_job_cancel(struct picture_job *job) {
    picture_job_hurry(job);
    pthread_mutex_lock(&job->lock);
    job->waker.wake = NULL;
    pthread_mutex_unlock(&job->lock);
}

bool picture_job_is_over(struct picture_job *job) {
    pthread_mutex_lock(&job->lock);
    bool over = job->over;
    pthread_mutex_unlock(&job->lock);
    return over;
}

size_t picture_job_fetched(const struct picture_job *job) {
    return job->thread->o.fetched_bytes - atomic_load(&job->bytes_left);
}

static void end_job(struct turn *turn) {
    struct picture_job *job = (struct picture_job *)turn;
    pthread_mutex_lock(&job->lock);
    job->over = true;
    if (job->waker.wake) job->waker.wake(job->waker.context);
    pthread_mutex_unlock(&job->lock);
    picture_job_release(job);
}

static enum status check_pixels(const struct picture_set *set,
                                const struct picture_input_tiles *tiles, struct error *e) {
    int64_t pixels = picture_cut_pixels(&tiles->cut);
    for (int i = 0; i < set->n; i++) pixels += picture_cut_pixels(&set->list[i].cut);
    if (pixels <= MOST_PIXELS) return STATUS_OK;
    return error_set(
        e, STATUS_TOO_LARGE,
        "the pictures have more than %lld pixels together, as they are or as the model "
        "reads them: send fewer, or smaller ones",
        (long long)MOST_PIXELS);
}

static enum status take_bytes(struct picture_file *file, struct error *e) {
    struct text_span type;
    if (file->fetch.error.status) {
        *e = file->fetch.error;
        return e->status;
    }
    if (file->web) {
        buffer_free(&file->bytes);
        file->bytes = file->fetch.bytes;
        file->fetch.bytes = (struct buffer){0};
        return STATUS_OK;
    }
    return file->url.text ? data_url_read(&file->bytes, &type, file->url, MOST_BYTES, e)
                          : STATUS_OK;
}

static enum status read_tiles(struct picture_job *job, struct picture_file *file,
                              struct text_span bytes, struct error *e) {
    struct picture_input_tiles tiles;
    if (picture_input_read(&tiles, job->reader.picture_input, bytes, e)) return e->status;
    if (check_pixels(job->set, &tiles, e)) {
        free(tiles.pixels);
        return e->status;
    }
    file->place = job->set->n;
    picture_set_add(job->set, tiles.pixels, &tiles.cut);
    return STATUS_OK;
}

static enum status read_file(struct picture_job *job, struct picture_file *file, struct error *e) {
    if (take_bytes(file, e)) return e->status;
    struct text_span bytes = {file->bytes.data, file->bytes.size};
    if (job->reader.embedder)
        return embedder_read_picture(job->reader.embedder, bytes, &file->pixels, e);
    return read_tiles(job, file, bytes, e);
}

static enum status name_file(const struct picture_file *file, struct error *e) {
    return file->of ? error_prefix(e, "a picture of %s %zu", file->of, file->number) : e->status;
}

/* One picture more. */
static enum status read_next(const struct picture_thread *thread, struct picture_job *job) {
    struct picture_file *file = &job->files[job->n_done];
    if (job->error.status) return job->error.status; /* it could not be fetched */
    if (principal_is_late(&job->principal, time_now()))
        return error_set(&job->error, STATUS_CANCELLED,
                         "the pictures were not read in time (option server.request_timeout)");
    if (worker_is_stopped(thread->worker) || atomic_load(&job->cancelled))
        return error_set(&job->error, STATUS_CANCELLED,
                         "the request was cancelled: the client left or the server stops");
    enum status status = read_file(job, file, &file->error);
    buffer_free(&file->bytes);
    if (status == STATUS_OK || job->skips) return STATUS_OK;
    job->error = file->error;
    return name_file(file, &job->error);
}

/* Fetching. */

/* All files are there, or are not to be had. */
static enum status pass_on(struct picture_job *job, struct error *e) {
    return worker_ask(job->thread->worker, &job->turn, e);
}

/* One failure ends a job that skips nothing; what the others end with then says nothing. */
static void note_failure(struct picture_job *job, const struct picture_file *file) {
    const struct error *e = &file->fetch.error;
    if (job->skips || e->status == STATUS_CANCELLED) return;
    pthread_mutex_lock(&job->lock);
    if (job->error.status == STATUS_OK) {
        job->error = *e;
        name_file(file, &job->error);
    }
    pthread_mutex_unlock(&job->lock);
    atomic_store(&job->unwanted, true);
}

/* On the fetcher's thread. */
static void file_fetched(struct fetch *the_fetch) {
    struct picture_job *job = the_fetch->context;
    struct picture_file *file =
        (struct picture_file *)((char *)the_fetch - offsetof(struct picture_file, fetch));
    struct error e;
    if (the_fetch->error.status) note_failure(job, file);
    if (atomic_fetch_sub(&job->n_fetching, 1) != 1) return;
    if (pass_on(job, &e) == STATUS_OK) return;
    if (job->error.status == STATUS_OK) job->error = e;
    end_job(&job->turn);
}

static enum status fetch_files(struct picture_job *job, struct error *e) {
    struct fetch **fetches = xcalloc((size_t)job->n + 1, sizeof(struct fetch *));
    int n = 0;
    atomic_store(&job->bytes_left, job->thread->o.fetched_bytes - job->fetched_before);
    for (int i = 0; i < job->n; i++) {
        struct picture_file *file = &job->files[i];
        if (file->web == NULL) continue;
        file->fetch.url = file->web;
        file->fetch.left = &job->bytes_left;
        file->fetch.unwanted = &job->unwanted;
        file->fetch.done = file_fetched;
        file->fetch.context = job;
        fetches[n] = &file->fetch;
        n++;
    }
    atomic_store(&job->n_fetching, n);
    enum status status =
        n > 0 ? fetcher_ask(job->thread->o.fetcher, fetches, n, e) : pass_on(job, e);
    free(fetches);
    return status;
}

/* The thread. */

static bool work(void *context, struct turn *turn) {
    struct picture_job *job = (struct picture_job *)turn;
    enum status status = read_next(context, job);
    job->n_done++;
    return status != STATUS_OK || job->n_done == job->n;
}

static uint64_t client_of(const struct turn *turn) {
    return ((const struct picture_job *)turn)->principal.client;
}

enum status picture_thread_open(struct picture_thread **out,
                                const struct picture_thread_options *options, struct error *e) {
    struct picture_thread *thread = xcalloc(1, sizeof *thread);
    thread->o = *options;
    struct worker_options worker_options = {.thread = "the thread that reads pictures",
                                            .jobs = "requests with pictures",
                                            .capacity = options->capacity,
                                            .work = work,
                                            .done = end_job,
                                            .client = client_of,
                                            .context = thread};
    if (worker_open(&thread->worker, &worker_options, e)) {
        free(thread);
        return e->status;
    }
    *out = thread;
    return STATUS_OK;
}

void picture_thread_stop(struct picture_thread *thread) {
    if (thread) worker_stop(thread->worker);
}

void picture_thread_close(struct picture_thread *thread) {
    if (thread == NULL) return;
    worker_close(thread->worker);
    free(thread);
}

enum status picture_thread_ask(struct picture_thread *thread, struct picture_job *job,
                               struct error *e) {
    atomic_fetch_add(&job->references, 1);
    job->thread = thread;
    enum status status = fetch_files(job, e);
    if (status) picture_job_release(job);
    return status;
}
