/* kernels/cpu/pool.c: threads that help with one job at a time. See pool.h.
 *
 * Shares. Each thread begins a job with a share of its own, a range of pieces that it takes from
 * the front: a thread that streams weights finds the next ones fetched by the piece before. A
 * thread without pieces takes the back half of another's share. A helper that sleeps, or has lost
 * its core, keeps nobody waiting but for the piece it is doing.
 *
 * Joining. A job is open from the caller's announcement until the caller finds no piece. A helper
 * enters by saying that it is `inside` and then looking whether a job is open; the caller closes
 * the job and then waits until nobody is inside. Both orders are sequentially consistent, so either
 * the helper sees a closed job and leaves without touching it, or the caller sees the helper and
 * waits.
 *
 * Lost cores. A thread that loses its core in the middle of a piece costs the time until it gets it
 * back, milliseconds where a job takes a fraction of one. So a helper offers its core to other
 * programs just before it enters, when it holds no piece. The loss of a core in the middle of a
 * piece is entered in the helper's account (helper_account.h), which leaves the helper out of some
 * jobs only when it costs more than it gains.
 *
 * Between jobs helpers spin for some ten microseconds, the gap between two ops of a step, and then
 * sleep. */
#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/helper_account.h"
#include "kernels/cpu/relax.h"

/* PACE_JOBS: jobs of a kind, for each thread, after which a helper in doubt has the caller's own
 * pace measured again.
 */
enum { SPINS = 1000, LINE = 64, PACE_JOBS = 64 };

/* A thread that takes part; number 0 is the caller. */
struct member {
    /* The pieces that are left of its share: the first in the low half, the end in the high one.
     * One word says all, so whoever exchanges it for another takes what it names. */
    _Alignas(LINE) _Atomic uint64_t share;
    _Alignas(LINE) atomic_bool inside; /* may touch the job */
    int taken; /* pieces of the job; the caller reads it when the helper has left */
    /* Only helpers have these. */
    struct pool *pool;
    int number;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    atomic_bool asleep;
    atomic_bool resting; /* left out of the next job */
    /* The caller's. */
    struct helper_account account;
    double waited; /* seconds, after the last job */
};

struct pool {
    int threads;
    struct member *members; /* [threads] */
    struct pace_table paces;
    /* The job; written while none is open and nobody is inside. */
    pool_work *work;
    const void *context;
    _Alignas(LINE) atomic_bool open;
    _Alignas(LINE) atomic_uint announced; /* jobs so far */
    atomic_bool stop;
};

static uint64_t share_make(uint32_t first, uint32_t end) { return (uint64_t)end << 32 | first; }
static uint32_t share_first(uint64_t share) { return (uint32_t)share; }
static uint32_t share_end(uint64_t share) { return (uint32_t)(share >> 32); }
static bool share_empty(uint64_t share) { return share_first(share) >= share_end(share); }

/* The first piece of its own share; false where none is left. */
static bool share_take(struct member *self, int *piece) {
    uint64_t share = atomic_load(&self->share);
    while (!share_empty(share)) {
        uint32_t first = share_first(share);
        if (!atomic_compare_exchange_weak(&self->share, &share,
                                          share_make(first + 1, share_end(share))))
            continue;
        *piece = (int)first;
        return true;
    }
    return false;
}

/* The back half of somebody's share becomes its own, which is empty; false where all are. */
static bool share_steal(struct pool *pool, struct member *self) {
    for (int i = 1; i < pool->threads; i++) {
        struct member *from = &pool->members[(self->number + i) % pool->threads];
        uint64_t share = atomic_load(&from->share);
        while (!share_empty(share)) {
            uint32_t first = share_first(share), end = share_end(share),
                     middle = first + (end - first) / 2;
            if (!atomic_compare_exchange_weak(&from->share, &share, share_make(first, middle)))
                continue;
            atomic_store(&self->share, share_make(middle, end));
            return true;
        }
    }
    return false;
}

static void member_work(struct pool *pool, struct member *self) {
    do {
        for (int piece; share_take(self, &piece); self->taken++)
            pool->work(pool->context, piece, self->number);
    } while (share_steal(pool, self));
}

static bool job_announced(const struct member *self, unsigned seen) {
    return atomic_load(&self->pool->announced) != seen && !atomic_load(&self->resting);
}

/* Waits for a job that is not number `seen`, and is not left out of; false when the pool closes. */
static bool job_wait(struct member *self, unsigned seen) {
    const atomic_bool *stop = &self->pool->stop;
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(stop)) return false;
        if (job_announced(self, seen)) return true;
        cpu_relax();
    }

    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->asleep, true);
    while (!job_announced(self, seen) && !atomic_load(stop))
        pthread_cond_wait(&self->wake, &self->mutex);
    atomic_store(&self->asleep, false);
    pthread_mutex_unlock(&self->mutex);
    return !atomic_load(stop);
}

static void *helper_main(void *argument) {
    struct member *self = argument;
    struct pool *pool = self->pool;
    for (unsigned seen = 0; job_wait(self, seen);) {
        seen = atomic_load(&pool->announced);
        sched_yield();
        atomic_store(&self->inside, true);
        if (atomic_load(&pool->open)) member_work(pool, self);
        atomic_store(&self->inside, false);
    }
    return NULL;
}

static void helper_wake(struct member *member) {
    pthread_mutex_lock(&member->mutex);
    pthread_cond_signal(&member->wake);
    pthread_mutex_unlock(&member->mutex);
}

/* Decides who takes part in a job that begins at `now`; returns how many helpers do, *doubts
 * whether one might be a loss. */
static int helpers_choose(struct pool *pool, double now, bool *doubts) {
    int helpers = 0;
    *doubts = false;
    for (int i = 1; i < pool->threads; i++) {
        struct member *member = &pool->members[i];
        bool rests = account_rests(&member->account, now);
        atomic_store(&member->resting, rests);
        if (rests) continue;
        helpers++;
        *doubts = *doubts || account_doubts(&member->account);
    }
    return helpers;
}

/* Gives each of those that take part its share, and tells the helpers. */
static void job_announce(struct pool *pool, int pieces, int helpers) {
    int64_t n = helpers + 1, at = 0;
    for (int i = 0; i < pool->threads; i++) {
        struct member *member = &pool->members[i];
        bool rests = i > 0 && atomic_load(&member->resting);
        uint32_t first = (uint32_t)(at * pieces / n);
        at += !rests;
        member->taken = 0;
        atomic_store(&member->share, share_make(first, (uint32_t)(at * pieces / n)));
    }
    atomic_store(&pool->open, true);
    atomic_fetch_add(&pool->announced, 1);
    for (int i = 1; i < pool->threads; i++) {
        struct member *member = &pool->members[i];
        if (!atomic_load(&member->resting) && atomic_load(&member->asleep)) helper_wake(member);
    }
}

/* Until nobody is inside; each helper is charged with what it took longer than those before it.
 * Returns the time. */
static double helpers_join(struct pool *pool, double now) {
    for (int i = 1; i < pool->threads; i++) {
        struct member *member = &pool->members[i];
        member->waited = 0;
        if (!atomic_load(&member->inside)) continue;
        for (int spins = 1; atomic_load(&member->inside); spins++) {
            if (spins % SPINS == 0) sched_yield(); /* the helper may need this core */
            cpu_relax();
        }
        double left = time_now();
        member->waited = left - now;
        now = left;
    }
    return now;
}

/* After a job that began at `start` and ended at `now`: `gain` seconds for each piece that a helper
 * did. */
static void helpers_account(struct pool *pool, double gain, double start, double now) {
    for (int i = 1; i < pool->threads; i++) {
        struct member *member = &pool->members[i];
        if (account_rests(&member->account, start)) continue;
        account_enter(&member->account, gain * member->taken, member->waited, now);
    }
}

void pool_run(struct pool *pool, double operations, int pieces, pool_work *work,
              const void *context) {
    if (pool->threads == 1 || pieces <= 1) {
        for (int i = 0; i < pieces; i++) work(context, i, 0);
        return;
    }

    bool doubts;
    double start = time_now();
    int helpers = helpers_choose(pool, start, &doubts);
    struct job_pace *pace = pace_find(&pool->paces, work, operations);
    if (helpers == 0 || (doubts && pace_is_old(pace, PACE_JOBS * pool->threads))) {
        for (int i = 0; i < pieces; i++) work(context, i, 0);
        pace_set(pace, operations, time_now() - start);
        return;
    }

    pool->work = work;
    pool->context = context;
    job_announce(pool, pieces, helpers);
    member_work(pool, &pool->members[0]);
    atomic_store(&pool->open, false);
    double done = time_now(), now = helpers_join(pool, done);

    /* Where the caller's own pace was never measured, the one beside helpers is near. */
    int taken = pool->members[0].taken;
    double alone = pace_alone(pace, operations, (done - start) * pieces / max_int(1, taken));
    double gained = alone - (done - start);
    helpers_account(pool, gained > 0 && pieces > taken ? gained / (pieces - taken) : 0, start, now);
}

static void pool_stop(struct pool *pool, int started) {
    atomic_store(&pool->stop, true);
    for (int i = 1; i <= started; i++) {
        struct member *member = &pool->members[i];
        helper_wake(member);
        pthread_join(member->thread, NULL);
        pthread_cond_destroy(&member->wake);
        pthread_mutex_destroy(&member->mutex);
    }
    free(pool->members);
    free(pool);
}

static int helper_start(struct pool *pool, int number) {
    struct member *member = &pool->members[number];
    member->pool = pool;
    member->number = number;
    account_begin(&member->account);
    pthread_mutex_init(&member->mutex, NULL);
    pthread_cond_init(&member->wake, NULL);
    int failed = pthread_create(&member->thread, NULL, helper_main, member);
    if (failed == 0) return 0;
    pthread_cond_destroy(&member->wake);
    pthread_mutex_destroy(&member->mutex);
    return failed;
}

enum status pool_open(struct pool **out, int threads, struct error *e) {
    struct pool *pool = aligned_alloc(LINE, sizeof *pool);
    struct member *members = aligned_alloc(LINE, (size_t)threads * sizeof *members);
    if (pool == NULL || members == NULL) {
        free(members);
        free(pool);
        return error_set(e, STATUS_NO_MEMORY, "cpu: no memory for %d threads", threads);
    }
    memset(pool, 0, sizeof *pool);
    memset(members, 0, (size_t)threads * sizeof *members);
    pool->threads = threads;
    pool->members = members;
    for (int i = 1; i < threads; i++) {
        int failed = helper_start(pool, i);
        if (failed == 0) continue;
        pool_stop(pool, i - 1);
        return error_set(e, STATUS_NO_MEMORY,
                         "cpu: thread %d of %d did not start: %s; ask for fewer threads", i,
                         threads - 1, strerror(failed));
    }
    *out = pool;
    return STATUS_OK;
}

void pool_close(struct pool *pool) {
    if (pool != NULL) pool_stop(pool, pool->threads - 1);
}
