/* kernels/cpu/pool.c: threads that help with one job at a time. See pool.h.
 *
 * A job is open from the caller's announcement until its last piece is taken. A helper enters by saying that it is
 * `inside` and then looking whether a job is open; the caller closes the job and then waits until nobody is inside.
 * Both orders are sequentially consistent, so either the helper sees a closed job and leaves without touching it, or
 * the caller sees the helper and waits. A helper that has not entered, because it sleeps or has no core, costs nothing.
 * One that loses its core in the middle of a piece costs the time until it gets it back, milliseconds where the others'
 * pieces take microseconds. Such a one stays out of some of the next jobs, of more each time.
 * Between jobs helpers spin for some ten microseconds, the gap between two ops of a step, and then sleep. */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 1000, LINE = 64, LEAST_REST = 64, MOST_REST = 2048 };

/* What a helper may keep others waiting, in seconds and in pieces of the caller, before it has to rest. */
static const double patience = 3e-4, patience_pieces = 4;

struct helper {
    struct pool *pool;
    pthread_t thread;
    int number;
    /* For the caller: the jobs that it stays out of yet, as many as it is told next time, and those since the last. */
    int rest, next_rest, good;
    atomic_bool resting;
    _Alignas(LINE) atomic_bool inside;
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

/* How many it took. */
static int take_pieces(struct pool *p, int thread) {
    int taken = 0;
    for (int piece; (piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->pieces; taken++)
        p->work(p->context, piece, thread);
    return taken;
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
        if (atomic_load(&self->resting)) continue;
        atomic_store(&self->inside, true);
        if (atomic_load(&p->open)) take_pieces(p, self->number);
        atomic_store(&self->inside, false);
    }
    return NULL;
}

static void wake_helpers(struct pool *p) {
    if (atomic_load(&p->sleeping) == 0) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

/* Before a job: whose rest is over. */
static void count_rests(struct pool *p) {
    for (int i = 0; i < p->n_helpers; i++) {
        struct helper *h = &p->helpers[i];
        if (h->rest > 0 && --h->rest == 0) atomic_store(&h->resting, false);
    }
}

/* After a job that the helper left `waited` seconds after the caller was done. */
static void judge(struct helper *h, double waited, double longest) {
    if (waited > longest) {
        h->rest = h->next_rest = min_int(MOST_REST, max_int(LEAST_REST, 2 * h->next_rest));
        h->good = 0;
        atomic_store(&h->resting, true);
    } else if (h->rest == 0 && ++h->good == MOST_REST) {
        h->next_rest = h->good = 0;
    }
}

void pool_run(struct pool *p, int pieces, pool_work *work, const void *context) {
    if (p->n_helpers == 0 || pieces <= 1) {
        for (int i = 0; i < pieces; i++) work(context, i, 0);
        return;
    }
    count_rests(p);
    p->work = work;
    p->context = context;
    p->pieces = pieces;
    atomic_store(&p->next, 0);
    atomic_store(&p->open, true);
    atomic_fetch_add(&p->announced, 1);
    wake_helpers(p);
    double start = time_now();
    int taken = take_pieces(p, 0);
    atomic_store(&p->open, false);
    double done = time_now(), longest = patience + patience_pieces * (done - start) / max_int(1, taken);
    for (int h = 0; h < p->n_helpers; h++) {
        bool late = atomic_load(&p->helpers[h].inside);
        for (int i = 0; atomic_load(&p->helpers[h].inside); i = (i + 1) % SPINS) pause_briefly(i);
        judge(&p->helpers[h], late ? time_now() - done : 0, longest);
    }
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
    p->helpers = aligned_alloc(LINE, (size_t)threads * sizeof *p->helpers);
    if (p->helpers == NULL) {
        free(p);
        return error_set(e, STATUS_NO_MEMORY, "cpu: no memory for %d threads", threads);
    }
    memset(p->helpers, 0, (size_t)threads * sizeof *p->helpers);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 0; i < p->n_helpers; i++) {
        p->helpers[i].pool = p;
        p->helpers[i].number = i + 1;
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
