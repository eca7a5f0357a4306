/* server/threads/queue.h: bounded first-in first-out queues of pointers between threads, and the bell their reader
 * sleeps on. Anyone may put; one thread takes. A queue is given its bound once and never grows. */
#pragma once

#include <pthread.h>

#include "config/base/base.h"

/* One thread waits, others ring. A ring while nobody waits is remembered, so none is lost. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung_condition;
    bool rung;
};
void bell_open(struct bell *b);
void bell_close(struct bell *b);
void bell_ring(struct bell *b);
void bell_wait_for(struct bell *b, double seconds); /* the same, for at most so long */
void bell_wait(struct bell *b);                     /* returns at once when it rang since the last wait */

struct queue {
    pthread_mutex_t lock;
    void **items;
    int capacity, head, count;
    struct bell *bell; /* rung at every put; borrowed, may be shared by several queues of one reader */
};
void queue_open(struct queue *q, int capacity, struct bell *bell);
void queue_close(struct queue *q); /* items still in it are the caller's */
/* All n items or, when they do not fit, none: false. */
bool queue_put(struct queue *q, void *const *items, int n);
void *queue_take(struct queue *q); /* the oldest, NULL when empty; never waits */
