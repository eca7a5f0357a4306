/* server/threads/worker.c: see worker.h. */
#include "server/threads/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/threads/queue.h"

struct worker {
    struct worker_options o;
    pthread_t thread;
    bool running;
    struct bell bell;
    atomic_bool stopped;
    pthread_mutex_t lock; /* guards the rest, and that nothing comes once stopped is set */
    struct turns turns;
    int n_jobs;
};

static struct turn *take_job(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    struct turn *job = turns_take(&w->turns);
    pthread_mutex_unlock(&w->lock);
    return job;
}

/* The job waits for its next turn, or leaves. */
static void put_back(struct worker *w, struct turn *job, bool over) {
    pthread_mutex_lock(&w->lock);
    turns_end(&w->turns, job);
    if (over)
        w->n_jobs--;
    else
        turns_add(&w->turns, w->o.client(job), &job, 1);
    pthread_mutex_unlock(&w->lock);
}

static void *run_jobs(void *argument) {
    struct worker *w = argument;
    for (;;) {
        struct turn *job = take_job(w);
        if (job) {
            bool over = w->o.work(w->o.context, job);
            put_back(w, job, over);
            if (over) w->o.done(job);
        } else if (worker_is_stopped(w)) {
            return NULL;
        } else {
            bell_wait(&w->bell);
        }
    }
}

enum status worker_open(struct worker **out, const struct worker_options *o, struct error *e) {
    struct worker *w = xcalloc(1, sizeof *w);
    w->o = *o;
    bell_open(&w->bell);
    turns_open(&w->turns);
    pthread_mutex_init(&w->lock, NULL);
    *out = w; /* the thread may look at once */
    w->running = pthread_create(&w->thread, NULL, run_jobs, w) == 0;
    if (w->running) return STATUS_OK;
    worker_close(w);
    *out = NULL;
    return error_set(e, STATUS_NO_MEMORY, "%s could not be started", o->thread);
}

enum status worker_ask(struct worker *w, struct turn *job, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&w->lock);
    if (worker_is_stopped(w)) {
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    } else if (w->n_jobs == w->o.capacity) {
        status = error_set(e, STATUS_BUSY, "%d %s are waiting already", w->o.capacity, w->o.jobs);
    } else {
        turns_add(&w->turns, w->o.client(job), &job, 1);
        w->n_jobs++;
    }
    pthread_mutex_unlock(&w->lock);
    if (status == STATUS_OK) bell_ring(&w->bell);
    return status;
}

bool worker_is_stopped(const struct worker *w) { return atomic_load(&w->stopped); }

int worker_count_jobs(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    int n = w->n_jobs;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void worker_stop(struct worker *w) {
    if (w == NULL || !w->running) return;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->stopped, true);
    pthread_mutex_unlock(&w->lock);
    bell_ring(&w->bell);
    pthread_join(w->thread, NULL);
    w->running = false;
}

void worker_close(struct worker *w) {
    if (w == NULL) return;
    worker_stop(w);
    turns_close(&w->turns);
    bell_close(&w->bell);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
