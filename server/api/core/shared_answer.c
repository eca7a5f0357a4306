/* server/api/core/shared_answer.c: see shared_answer.h. */
#include "server/api/core/shared_answer.h"

#include "server/api/core/failure.h"

void shared_answer_init(struct shared_answer *shared_answer, const struct answer_ops *ops,
                        struct waker waker, void (*free)(struct shared_answer *shared_answer)) {
    answer_init(&shared_answer->base, ops, JSON_TYPE);
    shared_answer->free = free;
    shared_answer->waker = waker;
    atomic_init(&shared_answer->references, 1);
    pthread_mutex_init(&shared_answer->lock, NULL);
}

void shared_answer_begin(struct shared_answer *answer) {
    answer->done = false;
    atomic_fetch_add(&answer->references, 1);
}

void shared_answer_release(struct shared_answer *answer) {
    if (atomic_fetch_sub(&answer->references, 1) != 1) return;
    picture_job_release(answer->reading);
    pthread_mutex_destroy(&answer->lock);
    answer->free(answer);
}

void shared_answer_wake(struct shared_answer *answer) {
    pthread_mutex_lock(&answer->lock);
    if (answer->waker.wake) answer->waker.wake(answer->waker.context);
    pthread_mutex_unlock(&answer->lock);
}

void shared_answer_finish(struct shared_answer *answer) {
    pthread_mutex_lock(&answer->lock);
    answer->done = true;
    if (answer->waker.wake) answer->waker.wake(answer->waker.context);
    pthread_mutex_unlock(&answer->lock);
    shared_answer_release(answer);
}

bool shared_answer_is_done(struct shared_answer *answer) {
    pthread_mutex_lock(&answer->lock);
    bool done = answer->done;
    pthread_mutex_unlock(&answer->lock);
    return done;
}

void shared_answer_read(struct shared_answer *answer, struct picture_job *job) {
    pthread_mutex_lock(&answer->lock);
    struct picture_job *before = answer->reading;
    answer->reading = job;
    pthread_mutex_unlock(&answer->lock);
    picture_job_release(before);
}

void shared_answer_cancel(struct answer *base) {
    struct shared_answer *answer = (struct shared_answer *)base;
    atomic_store(&answer->cancelled, true);
    pthread_mutex_lock(&answer->lock);
    if (answer->reading) picture_job_hurry(answer->reading);
    pthread_mutex_unlock(&answer->lock);
}

void shared_answer_close(struct answer *base) {
    struct shared_answer *answer = (struct shared_answer *)base;
    shared_answer_cancel(base);
    if (answer->reading) picture_job_cancel(answer->reading);
    pthread_mutex_lock(&answer->lock);
    answer->waker.wake = NULL;
    pthread_mutex_unlock(&answer->lock);
    shared_answer_release(answer);
}
