/* server/api/core/shared_answer.c: see shared_answer.h. */
#include "server/api/core/shared_answer.h"

#include "server/api/core/failure.h"

void shared_answer_init(struct shared_answer *a, const struct answer_ops *ops, struct waker waker,
                        void (*free)(struct shared_answer *a)) {
    answer_init(&a->base, ops, JSON_TYPE);
    a->free = free;
    a->waker = waker;
    atomic_init(&a->references, 1);
    pthread_mutex_init(&a->lock, NULL);
}

void shared_answer_begin(struct shared_answer *a) {
    a->done = false;
    atomic_fetch_add(&a->references, 1);
}

void shared_answer_release(struct shared_answer *a) {
    if (atomic_fetch_sub(&a->references, 1) != 1) return;
    picture_job_release(a->reading);
    pthread_mutex_destroy(&a->lock);
    a->free(a);
}

void shared_answer_finish(struct shared_answer *a) {
    pthread_mutex_lock(&a->lock);
    a->done = true;
    if (a->waker.wake) a->waker.wake(a->waker.context);
    pthread_mutex_unlock(&a->lock);
    shared_answer_release(a);
}

bool shared_answer_is_done(struct shared_answer *a) {
    pthread_mutex_lock(&a->lock);
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    return done;
}

void shared_answer_read(struct shared_answer *a, struct picture_job *job) {
    pthread_mutex_lock(&a->lock);
    struct picture_job *before = a->reading;
    a->reading = job;
    pthread_mutex_unlock(&a->lock);
    picture_job_release(before);
}

void shared_answer_cancel(struct answer *base) {
    struct shared_answer *a = (struct shared_answer *)base;
    atomic_store(&a->cancelled, true);
    pthread_mutex_lock(&a->lock);
    if (a->reading) picture_job_hurry(a->reading);
    pthread_mutex_unlock(&a->lock);
}

void shared_answer_close(struct answer *base) {
    struct shared_answer *a = (struct shared_answer *)base;
    shared_answer_cancel(base);
    if (a->reading) picture_job_cancel(a->reading);
    pthread_mutex_lock(&a->lock);
    a->waker.wake = NULL;
    pthread_mutex_unlock(&a->lock);
    shared_answer_release(a);
}
