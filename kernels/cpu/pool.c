/* kernels/cpu/pool.c: threads that help with one job at a time. See pool.h.
 *
 * A job is open from the caller's announcement until its last piece is taken. A helper enters by counting itself into
 * `inside` and then looking whether a job is open; the caller closes the job and then waits for `inside` to be zero.
 * Both orders are sequentially consistent, so either the helper sees a closed job and leaves without touching it, or
 * the caller sees the helper and waits. A helper that has not entered, because it sleeps or has no core, costs nothing.
 * Between jobs helpers spin for some ten microseconds, the gap between two ops of a step, and then sleep. */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 1000, LINE = 64 };

struct helper {
    struct pool *pool;
    pthread_t thread;
    int number;
};

struct pool {
    int n_helpers;
    struct helper *helpers;
    /* The job; written while none is open and nobody is inside. */
    pool_work *work;
    const void *context;
    int pieces;
    _Alignas(LINE) atomic_int next; /* the first piece that nobody has taken; a cache line of its own */
    _Alignas(LINE) atomic_bool open;
    atomic_int inside;
    _Alignas(LINE) atomic_uint announced; /* jobs so far; a helper enters each at most once */
    atomic_int sleeping;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* announced or stop has changed */
};

static void pause_briefly(int spins) {
    /* Whoever is waited for may need this core. */
    if (spins % SPINS == SPINS - 1) sched_yield();
    __builtin_ia32_pause();
}

static void take_pieces(struct pool *p, int thread) {
    for (int piece; (piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->pieces;)
        p->work(p->context, piece, thread);
}

/* Waits for a job that is not number `seen`; false when the pool closes. */
static bool wait_for_job(struct pool *p, unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&p->stop)) return false;
        if (atomic_load(&p->announced) != seen) return true;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->sleeping, 1);
    while (atomic_load(&p->announced) == seen && !atomic_load(&p->stop)) pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
    return !atomic_load(&p->stop);
}

static void *help(void *argument) {
    struct helper *self = argument;
    struct pool *p = self->pool;
    for (unsigned seen = 0; wait_for_job(p, seen);) {
        seen = atomic_load(&p->announced);
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open)) take_pieces(p, self->number);
        atomic_fetch_sub(&p->inside, 1);
    }
    return NULL;
}

static void wake_helpers(struct pool *p) {
    if (atomic_load(&p->sleeping) == 0) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

void pool_run(struct pool *p, int pieces, pool_work *work, const void *context) {
    if (p->n_helpers == 0 || pieces <= 1) {
        for (int i = 0; i < pieces; i++) work(context, i, 0);
        return;
    }
    p->work = work;
    p->context = context;
    p->pieces = pieces;
    atomic_store(&p->next, 0);
    atomic_store(&p->open, true);
    atomic_fetch_add(&p->announced, 1);
    wake_helpers(p);
    take_pieces(p, 0);
    atomic_store(&p->open, false);
    for (int i = 0; atomic_load(&p->inside) != 0; i = (i + 1) % SPINS) pause_briefly(i);
}

static void pool_stop(struct pool *p, int started) {
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < started; i++) pthread_join(p->helpers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p->helpers);
    free(p);
}

enum status pool_open(struct pool **out, int threads, struct error *e) {
    struct pool *p = aligned_alloc(LINE, sizeof *p);
    if (p == NULL) return error_set(e, STATUS_NO_MEMORY, "cpu: no memory for the thread pool");
    memset(p, 0, sizeof *p);
    p->n_helpers = threads - 1;
    p->helpers = xcalloc((size_t)threads, sizeof *p->helpers);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 0; i < p->n_helpers; i++) {
        p->helpers[i] = (struct helper){.pool = p, .number = i + 1};
        int failed = pthread_create(&p->helpers[i].thread, NULL, help, &p->helpers[i]);
        if (failed == 0) continue;
        pool_stop(p, i);
        return error_set(e, STATUS_NO_MEMORY, "cpu: thread %d of %d did not start: %s; ask for fewer threads", i + 1,
                         threads, strerror(failed));
    }
    *out = p;
    return STATUS_OK;
}

void pool_close(struct pool *p) {
    if (p != NULL) pool_stop(p, p->n_helpers);
}
