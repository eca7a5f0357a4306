/* server/threads/queue.c: bounded queues between threads. See queue.h. */
#include "server/threads/queue.h"

#include <stdlib.h>
#include <time.h>

void bell_open(struct bell *bell) {
    pthread_mutex_init(&bell->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&bell->rung_condition, &clock);
    pthread_condattr_destroy(&clock);
    bell->rung = false;
}

void bell_close(struct bell *bell) {
    pthread_cond_destroy(&bell->rung_condition);
    pthread_mutex_destroy(&bell->lock);
}

void bell_ring(struct bell *bell) {
    pthread_mutex_lock(&bell->lock);
    bell->rung = true;
    pthread_cond_signal(&bell->rung_condition);
    pthread_mutex_unlock(&bell->lock);
}

void bell_wait(struct bell *bell) {
    pthread_mutex_lock(&bell->lock);
    while (!bell->rung) pthread_cond_wait(&bell->rung_condition, &bell->lock);
    bell->rung = false;
    pthread_mutex_unlock(&bell->lock);
}

void bell_wait_for(struct bell *bell, double seconds) {
    double until = time_now() + seconds;
    struct timespec deadline = {.tv_sec = (time_t)until,
                                .tv_nsec = (long)(1e9 * (until - (double)(time_t)until))};
    int waited = 0;
    pthread_mutex_lock(&bell->lock);
    while (!bell->rung && waited == 0)
        waited = pthread_cond_timedwait(&bell->rung_condition, &bell->lock, &deadline);
    bell->rung = false;
    pthread_mutex_unlock(&bell->lock);
}

void queue_open(struct queue *queue, int capacity, struct bell *bell) {
    CHECK(capacity > 0);
    *queue = (struct queue){.items = xcalloc((size_t)capacity, sizeof *queue->items),
                            .capacity = capacity,
                            .bell = bell};
    pthread_mutex_init(&queue->lock, NULL);
}

void queue_close(struct queue *queue) {
    if (queue->items == NULL) return;
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    *queue = (struct queue){0};
}

bool queue_put(struct queue *queue, void *const *items, int n) {
    pthread_mutex_lock(&queue->lock);
    bool fits = n <= queue->capacity - queue->count;
    for (int i = 0; fits && i < n; i++)
        queue->items[(queue->head + queue->count + i) % queue->capacity] = items[i];
    if (fits) queue->count += n;
    pthread_mutex_unlock(&queue->lock);
    if (fits && n > 0) bell_ring(queue->bell);
    return fits;
}

void *queue_take(struct queue *queue) {
    void *item = NULL;
    pthread_mutex_lock(&queue->lock);
    if (queue->count > 0) {
        item = queue->items[queue->head];
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return item;
}
