/* server/schedule/picture_thread.c: see picture_thread.h. */
#include "server/schedule/picture_thread.h"

#include <stdlib.h>

#include "server/schedule/queue.h"

/* Small files may be large pictures, which take long to decode: a request's all together have a limit, too. */
static const int64_t MOST_PIXELS = 1 << 26;

struct picture_thread {
    pthread_t thread;
    bool running;
    struct bell bell;
    int capacity;
    atomic_bool stopped;
    pthread_mutex_t lock; /* guards the rest, and that nothing comes once stopped is set */
    struct turns turns;
    int n_jobs;
};

/* Jobs. */

struct picture_job *picture_job_open(const struct sight *sight, int n, struct principal who, struct waker waker) {
    struct picture_job *j = xcalloc(1, sizeof *j);
    j->principal = principal_hold(who);
    j->sight = sight;
    j->files = xcalloc((size_t)n + 1, sizeof *j->files);
    j->n = n;
    j->set = picture_set_open(sight->model, n);
    j->waker = waker;
    atomic_init(&j->references, 1);
    pthread_mutex_init(&j->lock, NULL);
    return j;
}

void picture_job_release(struct picture_job *j) {
    if (j == NULL || atomic_fetch_sub(&j->references, 1) != 1) return;
    for (int i = 0; i < j->n; i++) buffer_free(&j->files[i].bytes);
    free(j->files);
    picture_set_release(j->set);
    principal_release(&j->principal);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

void picture_job_cancel(struct picture_job *j) {
    atomic_store(&j->cancelled, true);
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

static void end_job(struct picture_job *j) {
    pthread_mutex_lock(&j->lock);
    j->over = true;
    if (j->waker.wake) j->waker.wake(j->waker.context);
    pthread_mutex_unlock(&j->lock);
    picture_job_release(j);
}

static enum status check_pixels(const struct picture_set *set, struct error *e) {
    int64_t pixels = 0;
    for (int i = 0; i < set->n; i++)
        pixels += (int64_t)set->list[i].cut.original_height * set->list[i].cut.original_width;
    if (pixels <= MOST_PIXELS) return STATUS_OK;
    return error_set(e, STATUS_TOO_LARGE,
                     "the pictures of the conversation have more than %lld pixels together: send smaller ones",
                     (long long)MOST_PIXELS);
}

/* One picture more. */
static enum status read_next(const struct picture_thread *t, struct picture_job *j) {
    struct picture_file *file = &j->files[j->n_done];
    struct sight_tiles tiles;
    if (principal_is_late(&j->principal, time_now()))
        return error_set(&j->error, STATUS_CANCELLED,
                         "the pictures were not read in time (option server.request_timeout)");
    if (atomic_load(&t->stopped) || atomic_load(&j->cancelled))
        return error_set(&j->error, STATUS_CANCELLED, "the request was cancelled: the client left or the server stops");
    if (sight_read(&tiles, j->sight, (struct text_span){file->bytes.data, file->bytes.size}, &j->error)) {
        error_prefix(&j->error, "a picture of message %zu", file->message);
        return j->error.status;
    }
    picture_set_add(j->set, tiles.pixels, &tiles.cut);
    buffer_free(&file->bytes);
    return check_pixels(j->set, &j->error);
}

/* The thread. */

static struct picture_job *take_job(struct picture_thread *t) {
    pthread_mutex_lock(&t->lock);
    struct turn *turn = turns_take(&t->turns);
    pthread_mutex_unlock(&t->lock);
    return (struct picture_job *)turn;
}

/* The job waits for its next turn. False when it is over. */
static bool put_back(struct picture_thread *t, struct picture_job *j, enum status status) {
    struct turn *turn = &j->turn;
    j->n_done++;
    bool over = status != STATUS_OK || j->n_done == j->n;
    pthread_mutex_lock(&t->lock);
    turns_end(&t->turns, turn);
    if (over)
        t->n_jobs--;
    else
        turns_add(&t->turns, j->principal.client, &turn, 1);
    pthread_mutex_unlock(&t->lock);
    return !over;
}

static void *run_pictures(void *argument) {
    struct picture_thread *t = argument;
    for (;;) {
        struct picture_job *j = take_job(t);
        if (j) {
            if (!put_back(t, j, read_next(t, j))) end_job(j);
        } else if (atomic_load(&t->stopped)) {
            return NULL;
        } else {
            bell_wait(&t->bell);
        }
    }
}

enum status picture_thread_open(struct picture_thread **out, int capacity, struct error *e) {
    struct picture_thread *t = xcalloc(1, sizeof *t);
    t->capacity = capacity;
    bell_open(&t->bell);
    turns_open(&t->turns);
    pthread_mutex_init(&t->lock, NULL);
    t->running = pthread_create(&t->thread, NULL, run_pictures, t) == 0;
    if (!t->running) {
        picture_thread_close(t);
        return error_set(e, STATUS_NO_MEMORY, "the thread that reads pictures could not be started");
    }
    *out = t;
    return STATUS_OK;
}

void picture_thread_stop(struct picture_thread *t) {
    if (t == NULL || !t->running) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stopped, true);
    pthread_mutex_unlock(&t->lock);
    bell_ring(&t->bell);
    pthread_join(t->thread, NULL);
    t->running = false;
}

void picture_thread_close(struct picture_thread *t) {
    if (t == NULL) return;
    picture_thread_stop(t);
    turns_close(&t->turns);
    bell_close(&t->bell);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

enum status picture_thread_ask(struct picture_thread *t, struct picture_job *j, struct error *e) {
    enum status status = STATUS_OK;
    struct turn *turn = &j->turn;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stopped)) {
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    } else if (t->n_jobs == t->capacity) {
        status = error_set(e, STATUS_BUSY, "%d requests with pictures are waiting already", t->capacity);
    } else {
        atomic_fetch_add(&j->references, 1);
        turns_add(&t->turns, j->principal.client, &turn, 1);
        t->n_jobs++;
    }
    pthread_mutex_unlock(&t->lock);
    if (status == STATUS_OK) bell_ring(&t->bell);
    return status;
}
