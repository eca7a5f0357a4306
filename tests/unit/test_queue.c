/* tests/unit/test_queue.c: the bounded queue and its bell, alone and between threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/threads/queue.h"

static void test_order_and_bound(void **state) {
    (void)state;
    struct bell bell;
    struct queue q;
    int v[5];
    bell_open(&bell);
    queue_open(&q, 3, &bell);
    assert_null(queue_take(&q));
    for (int round = 0; round < 10; round++) { /* around the ring several times */
        assert_true(queue_put(&q, (void *[]){&v[0], &v[1]}, 2));
        assert_false(queue_put(&q, (void *[]){&v[2], &v[3]}, 2)); /* all or none */
        assert_true(queue_put(&q, (void *[]){&v[4]}, 1));
        assert_false(queue_put(&q, (void *[]){&v[2]}, 1));
        assert_ptr_equal(queue_take(&q), &v[0]);
        assert_ptr_equal(queue_take(&q), &v[1]);
        assert_ptr_equal(queue_take(&q), &v[4]);
        assert_null(queue_take(&q));
    }
    queue_close(&q);
    bell_close(&bell);
}

static void test_ring_is_remembered(void **state) {
    (void)state;
    struct bell bell;
    struct queue q;
    bell_open(&bell);
    queue_open(&q, 1, &bell);
    assert_true(queue_put(&q, (void *[]){&bell}, 1));
    bell_wait(&bell); /* the put came first: returns at once */
    bell_ring(&bell);
    bell_ring(&bell);
    bell_wait(&bell);
    assert_false(bell.rung); /* two rings, one waking */
    queue_close(&q);
    bell_close(&bell);
}

enum { WRITERS = 4, ITEMS = 20000 };

struct traffic {
    struct queue q;
    struct bell bell;
    char items[WRITERS][ITEMS];
};

struct writer {
    struct traffic *t;
    int index;
};

static void *write_all(void *argument) {
    struct writer *w = argument;
    for (int i = 0; i < ITEMS;)
        if (queue_put(&w->t->q, (void *[]){&w->t->items[w->index][i]}, 1)) i++;
    return NULL;
}

/* Every item of every writer arrives once, each writer's in order. */
static void test_threads(void **state) {
    (void)state;
    struct traffic *t = calloc(1, sizeof *t);
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    int next[WRITERS] = {0}, taken = 0;
    bell_open(&t->bell);
    queue_open(&t->q, 16, &t->bell);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){t, i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_all, &writers[i]), 0);
    }
    while (taken < WRITERS * ITEMS) {
        char *item = queue_take(&t->q);
        if (item == NULL) {
            bell_wait(&t->bell);
            continue;
        }
        int writer = (int)((item - &t->items[0][0]) / ITEMS);
        assert_ptr_equal(item, &t->items[writer][next[writer]++]);
        taken++;
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    assert_null(queue_take(&t->q));
    queue_close(&t->q);
    bell_close(&t->bell);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_bound),
        cmocka_unit_test(test_ring_is_remembered),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
