/* server/threads/queue.h: bounded first-in first-out queues of pointers between threads, and the
 * bell their reader sleeps on. Anyone may put; one thread takes. A queue is given its bound once
 * and never grows. */
#pragma once

#include <pthread.h>

#include "config/base/base.h"

/* One thread waits, others ring. A ring while nobody waits is remembered, so none is lost. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung_condition;
    bool rung;
};
void bell_open(struct bell *bell);
void bell_close(struct bell *bell);
void bell_ring(struct bell *bell);
void bell_wait_for(struct bell *bell, double seconds); /* the same, for at most so long */
void bell_wait(struct bell *bell); /* returns at once when it rang since the last wait */

struct queue {
    pthread_mutex_t lock;
    void **items;
    int capacity, head, count;
    struct bell
        *bell; /* rung at every put; borrowed, may be shared by several queues of one reader */
};
void queue_open(struct queue *queue, int capacity, struct bell *bell);
void queue_close(struct queue *queue); /* items still in it are the caller's */
/* All n items or, when they do not fit, none: false. */
bool queue_put(struct queue *queue, void *const *items, int n);
void *queue_take(struct queue *queue); /* the oldest, NULL when empty; never waits */
