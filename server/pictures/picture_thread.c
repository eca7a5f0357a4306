/* server/pictures/picture_thread.c: see picture_thread.h. */
#include "server/pictures/picture_thread.h"

#include <stddef.h>
#include <stdlib.h>

#include "config/base/data_url.h"
#include "server/threads/worker.h"

/* Small files may be large pictures, which take long to decode: a request's all together have a limit, too. */
static const int64_t MOST_PIXELS = 1 << 26;
/* A request and a document are no larger, and neither is a file in one. */
static const size_t MOST_BYTES = (size_t)1 << 31;

struct picture_thread {
    struct picture_thread_options o;
    struct worker *worker;
};

/* Jobs. */

struct picture_job *picture_job_open(const struct picture_reader *reader, int n, struct principal who,
                                     struct waker waker) {
    struct picture_job *j = xcalloc(1, sizeof *j);
    j->principal = principal_hold(who);
    j->reader = *reader;
    j->files = xcalloc((size_t)n + 1, sizeof *j->files);
    j->n = n;
    for (int i = 0; i < n; i++) j->files[i].place = -1;
    if (reader->picture_input) j->set = picture_set_open(reader->picture_input->model, n);
    j->waker = waker;
    atomic_init(&j->references, 1);
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

void picture_job_release(struct picture_job *j) {
    if (j == NULL || atomic_fetch_sub(&j->references, 1) != 1) return;
    for (int i = 0; i < j->n; i++) {
        buffer_free(&j->files[i].bytes);
        buffer_free(&j->files[i].fetch.bytes);
        free(j->files[i].web);
        free(j->files[i].pixels.pixels);
    }
    free(j->files);
    picture_set_release(j->set);
    principal_release(&j->principal);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

void picture_job_hurry(struct picture_job *j) {
    atomic_store(&j->cancelled, true);
    atomic_store(&j->unwanted, true);
}

void picture_job_cancel(struct picture_job *j) {
    picture_job_hurry(j);
    pthread_mutex_lock(&j->lock);
    j->waker.wake = NULL;
    pthread_mutex_unlock(&j->lock);
}

bool picture_job_is_over(struct picture_job *j) {
    pthread_mutex_lock(&j->lock);
    bool over = j->over;
    pthread_mutex_unlock(&j->lock);
    return over;
}

size_t picture_job_fetched(const struct picture_job *j) {
    return j->thread->o.fetched_bytes - atomic_load(&j->bytes_left);
}

static void end_job(struct turn *turn) {
    struct picture_job *j = (struct picture_job *)turn;
    pthread_mutex_lock(&j->lock);
    j->over = true;
    if (j->waker.wake) j->waker.wake(j->waker.context);
    pthread_mutex_unlock(&j->lock);
    picture_job_release(j);
}

static enum status check_pixels(const struct picture_set *set, const struct picture_input_tiles *tiles,
                                struct error *e) {
    int64_t pixels = (int64_t)tiles->cut.original_height * tiles->cut.original_width;
    for (int i = 0; i < set->n; i++)
        pixels += (int64_t)set->list[i].cut.original_height * set->list[i].cut.original_width;
    if (pixels <= MOST_PIXELS) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE, "the pictures have more than %lld pixels together: send smaller ones",
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
    return file->url.text ? data_url_read(&file->bytes, &type, file->url, MOST_BYTES, e) : STATUS_OK;
}

static enum status read_tiles(struct picture_job *j, struct picture_file *file, struct text_span bytes,
                              struct error *e) {
    struct picture_input_tiles tiles;
    if (picture_input_read(&tiles, j->reader.picture_input, bytes, e)) return e->status;
    if (check_pixels(j->set, &tiles, e)) {
        free(tiles.pixels);
        return e->status;
    }
    file->place = j->set->n;
    picture_set_add(j->set, tiles.pixels, &tiles.cut);
    return STATUS_OK;
}

static enum status read_file(struct picture_job *j, struct picture_file *file, struct error *e) {
    if (take_bytes(file, e)) return e->status;
    struct text_span bytes = {file->bytes.data, file->bytes.size};
    if (j->reader.embedder) return embedder_read_picture(j->reader.embedder, bytes, &file->pixels, e);
    return read_tiles(j, file, bytes, e);
}

static enum status name_file(const struct picture_file *file, struct error *e) {
    return file->of ? error_prefix(e, "a picture of %s %zu", file->of, file->number) : e->status;
}

/* One picture more. */
static enum status read_next(const struct picture_thread *t, struct picture_job *j) {
    struct picture_file *file = &j->files[j->n_done];
    if (j->error.status) return j->error.status; /* it could not be fetched */
    if (principal_is_late(&j->principal, time_now()))
        return error_set(&j->error, STATUS_CANCELLED,
                         "the pictures were not read in time (option server.request_timeout)");
    if (worker_is_stopped(t->worker) || atomic_load(&j->cancelled))
        return error_set(&j->error, STATUS_CANCELLED, "the request was cancelled: the client left or the server stops");
    enum status status = read_file(j, file, &file->error);
    buffer_free(&file->bytes);
    if (status == STATUS_OK || j->skips) return STATUS_OK;
    j->error = file->error;
    return name_file(file, &j->error);
}

/* Fetching. */

/* All files are there, or are not to be had. */
static enum status pass_on(struct picture_job *j, struct error *e) {
    return worker_ask(j->thread->worker, &j->turn, e);
}

/* One failure ends a job that skips nothing; what the others end with then says nothing. */
static void note_failure(struct picture_job *j, const struct picture_file *file) {
    const struct error *e = &file->fetch.error;
    if (j->skips || e->status == STATUS_CANCELLED) return;
    pthread_mutex_lock(&j->lock);
    if (j->error.status == STATUS_OK) {
        j->error = *e;
        name_file(file, &j->error);
    }
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->unwanted, true);
}

/* On the fetcher's thread. */
static void file_fetched(struct fetch *f) {
    struct picture_job *j = f->context;
    struct picture_file *file = (struct picture_file *)((char *)f - offsetof(struct picture_file, fetch));
    struct error e;
    if (f->error.status) note_failure(j, file);
    if (atomic_fetch_sub(&j->n_fetching, 1) != 1) return;
    if (pass_on(j, &e) == STATUS_OK) return;
    if (j->error.status == STATUS_OK) j->error = e;
    end_job(&j->turn);
}

static enum status fetch_files(struct picture_job *j, struct error *e) {
    struct fetch **fetches = xcalloc((size_t)j->n + 1, sizeof(struct fetch *));
    int n = 0;
    atomic_store(&j->bytes_left, j->thread->o.fetched_bytes - j->fetched_before);
    for (int i = 0; i < j->n; i++) {
        struct picture_file *file = &j->files[i];
        if (file->web == NULL) continue;
        file->fetch.url = file->web;
        file->fetch.left = &j->bytes_left;
        file->fetch.unwanted = &j->unwanted;
        file->fetch.done = file_fetched;
        file->fetch.context = j;
        fetches[n] = &file->fetch;
        n++;
    }
    atomic_store(&j->n_fetching, n);
    enum status status = n > 0 ? fetcher_ask(j->thread->o.fetcher, fetches, n, e) : pass_on(j, e);
    free(fetches);
    return status;
}

/* The thread. */

static bool work(void *context, struct turn *turn) {
    struct picture_job *j = (struct picture_job *)turn;
    enum status status = read_next(context, j);
    j->n_done++;
    return status != STATUS_OK || j->n_done == j->n;
}

static uint64_t client_of(const struct turn *turn) { return ((const struct picture_job *)turn)->principal.client; }

enum status picture_thread_open(struct picture_thread **out, const struct picture_thread_options *options,
                                struct error *e) {
    struct picture_thread *t = xcalloc(1, sizeof *t);
    t->o = *options;
    struct worker_options o = {.thread = "the thread that reads pictures",
                               .jobs = "requests with pictures",
                               .capacity = options->capacity,
                               .work = work,
                               .done = end_job,
                               .client = client_of,
                               .context = t};
    if (worker_open(&t->worker, &o, e)) {
        free(t);
        return e->status;
    }
    *out = t;
    return STATUS_OK;
}

void picture_thread_stop(struct picture_thread *t) {
    if (t) worker_stop(t->worker);
}

void picture_thread_close(struct picture_thread *t) {
    if (t == NULL) return;
    worker_close(t->worker);
    free(t);
}

enum status picture_thread_ask(struct picture_thread *t, struct picture_job *j, struct error *e) {
    atomic_fetch_add(&j->references, 1);
    j->thread = t;
    enum status status = fetch_files(j, e);
    if (status) picture_job_release(j);
    return status;
}
