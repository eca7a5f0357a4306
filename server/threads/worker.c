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

static struct turn *take_job(struct worker *worker) {
    pthread_mutex_lock(&worker->lock);
    struct turn *job = turns_take(&worker->turns);
    pthread_mutex_unlock(&worker->lock);
    return job;
}

/* The job waits for its next turn, or leaves. */
static void put_back(struct worker *worker, struct turn *job, bool over) {
    pthread_mutex_lock(&worker->lock);
    turns_end(&worker->turns, job);
    if (over)
        worker->n_jobs--;
    else
        turns_add(&worker->turns, worker->o.client(job), &job, 1);
    pthread_mutex_unlock(&worker->lock);
}

static void *run_jobs(void *argument) {
    struct worker *worker = argument;
    for (;;) {
        struct turn *job = take_job(worker);
        if (job) {
            bool over = worker->o.work(worker->o.context, job);
            put_back(worker, job, over);
            if (over) worker->o.done(job);
        } else if (worker_is_stopped(worker)) {
            return NULL;
        } else {
            bell_wait(&worker->bell);
        }
    }
}

enum status worker_open(struct worker **out, const struct worker_options *options,
                        struct error *e) {
    struct worker *worker = xcalloc(1, sizeof *worker);
    worker->o = *options;
    bell_open(&worker->bell);
    turns_open(&worker->turns);
    pthread_mutex_init(&worker->lock, NULL);
    *out = worker; /* the thread may look at once */
    worker->running = pthread_create(&worker->thread, NULL, run_jobs, worker) == 0;
    if (worker->running) return STATUS_OK;
    worker_close(worker);
    *out = NULL;
    return error_set(e, STATUS_NO_MEMORY, "%s could not be started", options->thread);
}

enum status worker_ask(struct worker *worker, struct turn *job, struct error *e) {
    enum status status = STATUS_OK;
    pthread_mutex_lock(&worker->lock);
    if (worker_is_stopped(worker)) {
        status = error_set(e, STATUS_BUSY, "the server is stopping");
    } else if (worker->n_jobs == worker->o.capacity) {
        status = error_set(e, STATUS_BUSY, "%d %s are waiting already", worker->o.capacity,
                           worker->o.jobs);
    } else {
        turns_add(&worker->turns, worker->o.client(job), &job, 1);
        worker->n_jobs++;
    }
    pthread_mutex_unlock(&worker->lock);
    if (status == STATUS_OK) bell_ring(&worker->bell);
    return status;
}

bool worker_is_stopped(const struct worker *worker) { return atomic_load(&worker->stopped); }

int worker_count_jobs(struct worker *worker) {
    pthread_mutex_lock(&worker->lock);
    int n = worker->n_jobs;
    pthread_mutex_unlock(&worker->lock);
    return n;
}

void worker_stop(struct worker *worker) {
    if (worker == NULL || !worker->running) return;
    pthread_mutex_lock(&worker->lock);
    atomic_store(&worker->stopped, true);
    pthread_mutex_unlock(&worker->lock);
    bell_ring(&worker->bell);
    pthread_join(worker->thread, NULL);
    worker->running = false;
}

void worker_close(struct worker *worker) {
    if (worker == NULL) return;
    worker_stop(worker);
    turns_close(&worker->turns);
    bell_close(&worker->bell);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}
