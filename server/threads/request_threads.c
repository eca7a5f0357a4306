/* server/threads/request_threads.c: see request_threads.h. */
#include "server/threads/request_threads.h"

#include <pthread.h>
#include <stdlib.h>

struct request_threads {
    struct request_threads_options o;
    int most; /* threads of one client */
    pthread_t *threads;
    int n_threads;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct turns turns;
    bool stopped;
};

/* With the lock. NULL: the threads end. */
static struct turn *next_job(struct request_threads *t) {
    for (;;) {
        struct turn *job = turns_take_below(&t->turns, t->most);
        if (job || (t->stopped && t->turns.n_waiting == 0)) return job;
        pthread_cond_wait(&t->changed, &t->lock);
    }
}

static void *run(void *argument) {
    struct request_threads *t = argument;
    struct turn *job;
    pthread_mutex_lock(&t->lock);
    while ((job = next_job(t)) != NULL) {
        /* The job may be waiting again, or be gone, when its work is done: its turn is kept here. */
        struct turn done = *job;
        pthread_mutex_unlock(&t->lock);

        t->o.work(job);

        pthread_mutex_lock(&t->lock);
        turns_end(&t->turns, &done);
        pthread_cond_broadcast(&t->changed); /* its client may have another turn, or all may be over */
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

enum status request_threads_open(struct request_threads **out, const struct request_threads_options *o,
                                 struct error *e) {
    struct request_threads *t = xcalloc(1, sizeof *t);
    t->o = *o;
    t->most = o->threads > 1 ? o->threads - 1 : 1;
    t->threads = xcalloc((size_t)o->threads, sizeof *t->threads);
    turns_open(&t->turns);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    while (t->n_threads < o->threads && pthread_create(&t->threads[t->n_threads], NULL, run, t) == 0) t->n_threads++;
    if (t->n_threads < o->threads) {
        request_threads_close(t);
        return error_set(e, STATUS_NO_MEMORY, "%d threads of server.request_threads could not be started", o->threads);
    }
    *out = t;
    return STATUS_OK;
}

/* With the lock. */
static void job_add(struct request_threads *t, struct turn *job) {
    turns_add(&t->turns, t->o.client(job), &job, 1);
    pthread_cond_signal(&t->changed);
}

bool request_threads_ask(struct request_threads *t, struct turn *job) {
    pthread_mutex_lock(&t->lock);
    bool taken = !t->stopped && t->turns.n_waiting < t->o.capacity;
    if (taken) job_add(t, job);
    pthread_mutex_unlock(&t->lock);
    return taken;
}

void request_threads_ask_again(struct request_threads *t, struct turn *job) {
    pthread_mutex_lock(&t->lock);
    job_add(t, job);
    pthread_mutex_unlock(&t->lock);
}

static bool is_job(void *context, const struct turn *job) { return job == context; }

bool request_threads_take_back(struct request_threads *t, struct turn *job) {
    pthread_mutex_lock(&t->lock);
    bool waited = turns_drop(&t->turns, is_job, job) != NULL;
    pthread_mutex_unlock(&t->lock);
    return waited;
}

void request_threads_stop(struct request_threads *t) {
    if (t == NULL) return;
    pthread_mutex_lock(&t->lock);
    t->stopped = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_threads; i++) pthread_join(t->threads[i], NULL);
    t->n_threads = 0;
}

void request_threads_close(struct request_threads *t) {
    if (t == NULL) return;
    request_threads_stop(t);
    turns_close(&t->turns);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->threads);
    free(t);
}
