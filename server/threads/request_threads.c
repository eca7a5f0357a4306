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
static struct turn *next_job(struct request_threads *threads) {
    for (;;) {
        struct turn *job = turns_take_below(&threads->turns, threads->most);
        if (job || (threads->stopped && threads->turns.n_waiting == 0)) return job;
        pthread_cond_wait(&threads->changed, &threads->lock);
    }
}

static void *run(void *argument) {
    struct request_threads *threads = argument;
    struct turn *job;
    pthread_mutex_lock(&threads->lock);
    while ((job = next_job(threads)) != NULL) {
        /* The job may be waiting again, or be gone, when its work is done: its turn is kept here.
         */
        struct turn done = *job;
        pthread_mutex_unlock(&threads->lock);

        threads->o.work(job);

        pthread_mutex_lock(&threads->lock);
        turns_end(&threads->turns, &done);
        pthread_cond_broadcast(
            &threads->changed); /* its client may have another turn, or all may be over */
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

enum status request_threads_open(struct request_threads **out,
                                 const struct request_threads_options *options, struct error *e) {
    struct request_threads *threads = xcalloc(1, sizeof *threads);
    threads->o = *options;
    threads->most = options->threads > 1 ? options->threads - 1 : 1;
    threads->threads = xcalloc((size_t)options->threads, sizeof *threads->threads);
    turns_open(&threads->turns);
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->changed, NULL);
    while (threads->n_threads < options->threads &&
           pthread_create(&threads->threads[threads->n_threads], NULL, run, threads) == 0)
        threads->n_threads++;
    if (threads->n_threads < options->threads) {
        request_threads_close(threads);
        return error_set(e, STATUS_NO_MEMORY,
                         "%d threads of server.request_threads could not be started",
                         options->threads);
    }
    *out = threads;
    return STATUS_OK;
}

/* With the lock. */
static void job_add(struct request_threads *threads, struct turn *job) {
    turns_add(&threads->turns, threads->o.client(job), &job, 1);
    pthread_cond_signal(&threads->changed);
}

bool request_threads_ask(struct request_threads *threads, struct turn *job) {
    pthread_mutex_lock(&threads->lock);
    bool taken = !threads->stopped && threads->turns.n_waiting < threads->o.capacity;
    if (taken) job_add(threads, job);
    pthread_mutex_unlock(&threads->lock);
    return taken;
}

void request_threads_ask_again(struct request_threads *threads, struct turn *job) {
    pthread_mutex_lock(&threads->lock);
    job_add(threads, job);
    pthread_mutex_unlock(&threads->lock);
}

static bool is_job(void *context, const struct turn *job) { return job == context; }

bool request_threads_take_back(struct request_threads *threads, struct turn *job) {
    pthread_mutex_lock(&threads->lock);
    bool waited = turns_drop(&threads->turns, is_job, job) != NULL;
    pthread_mutex_unlock(&threads->lock);
    return waited;
}

void request_threads_stop(struct request_threads *threads) {
    if (threads == NULL) return;
    pthread_mutex_lock(&threads->lock);
    threads->stopped = true;
    pthread_cond_broadcast(&threads->changed);
    pthread_mutex_unlock(&threads->lock);
    for (int i = 0; i < threads->n_threads; i++) pthread_join(threads->threads[i], NULL);
    threads->n_threads = 0;
}

void request_threads_close(struct request_threads *threads) {
    if (threads == NULL) return;
    request_threads_stop(threads);
    turns_close(&threads->turns);
    pthread_cond_destroy(&threads->changed);
    pthread_mutex_destroy(&threads->lock);
    free(threads->threads);
    free(threads);
}
