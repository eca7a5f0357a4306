/* server/threads/queue.c: bounded queues between threads. See queue.h. */
#include "server/threads/queue.h"

#include <stdlib.h>
#include <time.h>

void bell_open(struct bell *b) {
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&b->rung_condition, &clock);
    pthread_condattr_destroy(&clock);
    b->rung = false;
}

void bell_close(struct bell *b) {
    pthread_cond_destroy(&b->rung_condition);
    pthread_mutex_destroy(&b->lock);
}

void bell_ring(struct bell *b) {
    pthread_mutex_lock(&b->lock);
    b->rung = true;
    pthread_cond_signal(&b->rung_condition);
    pthread_mutex_unlock(&b->lock);
}

void bell_wait(struct bell *b) {
    pthread_mutex_lock(&b->lock);
    while (!b->rung) pthread_cond_wait(&b->rung_condition, &b->lock);
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
}

void bell_wait_for(struct bell *b, double seconds) {
    double until = time_now() + seconds;
    struct timespec deadline = {.tv_sec = (time_t)until, .tv_nsec = (long)(1e9 * (until - (double)(time_t)until))};
    int waited = 0;
    pthread_mutex_lock(&b->lock);
    while (!b->rung && waited == 0) waited = pthread_cond_timedwait(&b->rung_condition, &b->lock, &deadline);
    b->rung = false;
    pthread_mutex_unlock(&b->lock);
}

void queue_open(struct queue *q, int capacity, struct bell *bell) {
    CHECK(capacity > 0);
    *q = (struct queue){.items = xcalloc((size_t)capacity, sizeof *q->items), .capacity = capacity, .bell = bell};
    pthread_mutex_init(&q->lock, NULL);
}

void queue_close(struct queue *q) {
    if (q->items == NULL) return;
    pthread_mutex_destroy(&q->lock);
    free(q->items);
    *q = (struct queue){0};
}

bool queue_put(struct queue *q, void *const *items, int n) {
    pthread_mutex_lock(&q->lock);
    bool fits = n <= q->capacity - q->count;
    for (int i = 0; fits && i < n; i++) q->items[(q->head + q->count + i) % q->capacity] = items[i];
    if (fits) q->count += n;
    pthread_mutex_unlock(&q->lock);
    if (fits && n > 0) bell_ring(q->bell);
    return fits;
}

void *queue_take(struct queue *q) {
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    if (q->count > 0) {
        item = q->items[q->head];
        q->head = (q->head + 1) % q->capacity;
        q->count--;
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}
