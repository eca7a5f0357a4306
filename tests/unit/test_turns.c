/* tests/unit/test_turns.c: whose turn it is: lines of several requests and clients, and prompts
 * that leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/threads/turns.h"

enum { MOST = 32 };

struct prompt {
    struct turn turn; /* first */
    char request;
    bool leaves, taken;
};

static struct prompt prompts[MOST];
static int n_prompts;

/* A request of n prompts; "request" names it. */
static void add_request(struct turns *t, uint64_t client, char request, int n) {
    struct turn *items[MOST];
    for (int i = 0; i < n; i++) {
        assert_true(n_prompts < MOST);
        prompts[n_prompts].request = request;
        items[i] = &prompts[n_prompts].turn;
        n_prompts++;
    }
    turns_add(t, client, items, n);
}

static struct prompt *take(struct turns *t) {
    struct prompt *p = (struct prompt *)turns_take(t);
    if (p) p->taken = true;
    return p;
}

static void end(struct turns *t, struct prompt *p) {
    turns_end(t, &p->turn);
    p->taken = false;
}

static void assert_turns(struct turns *t, const char *requests) {
    for (; *requests; requests++) {
        struct prompt *p = take(t);
        assert_non_null(p);
        assert_int_equal(p->request, *requests);
    }
}

static bool leaves(void *context, const struct turn *item) {
    (void)context;
    return ((const struct prompt *)item)->leaves;
}

static int drop_count(struct turns *t) {
    int n = 0;
    for (struct turn *item = turns_drop(t, leaves, NULL); item; item = item->next) n++;
    return n;
}

static int open_turns(void **state) {
    static struct turns t;
    n_prompts = 0;
    for (int i = 0; i < MOST; i++) prompts[i] = (struct prompt){0};
    turns_open(&t);
    *state = &t;
    return 0;
}

/* All that wait leave and all that were taken end; then nothing is left, which turns_close checks.
 */
static int close_turns(void **state) {
    struct turns *t = *state;
    for (int i = 0; i < n_prompts; i++) prompts[i].leaves = true;
    drop_count(t);
    for (int i = 0; i < n_prompts; i++)
        if (prompts[i].taken) end(t, &prompts[i]);
    turns_close(t);
    return 0;
}

/* One request has everything while it is alone, and its prompts come in their order. */
static void test_alone(void **state) {
    struct turns *t = *state;
    add_request(t, 1, 'a', 3);
    assert_int_equal(t->n_waiting, 3);
    for (int i = 0; i < 3; i++) assert_ptr_equal(take(t), &prompts[i]);
    assert_null(take(t));
    assert_int_equal(t->n_waiting, 0);
}

/* Arrays that came first do not keep a single prompt waiting: it is next. */
static void test_a_single_prompt_behind_arrays(void **state) {
    struct turns *t = *state;
    add_request(t, 1, 'a', 8);
    assert_turns(t, "aaaa"); /* four sequences, all taken */
    add_request(t, 1, 'b', 8);
    add_request(t, 1, 'c', 1);
    end(t, &prompts[0]);
    assert_turns(t, "b");
    end(t, &prompts[1]);
    assert_turns(t, "c");
    end(t, &prompts[2]);
    assert_turns(t, "ababa"); /* from here on a and b have as many as each other */
}

/* A client of many requests has no more than one of one request. */
static void test_clients(void **state) {
    struct turns *t = *state;
    for (int i = 0; i < 6; i++) add_request(t, 1, (char)('a' + i), 1);
    add_request(t, 2, 'z', 3);
    assert_turns(t, "azbzczdef");
}

/* Sequences that all end at once: whoever came last is served after one turn of each, not after all
 * of them. */
static void test_lockstep(void **state) {
    struct turns *t = *state;
    add_request(t, 1, 'a', 6);
    add_request(t, 1, 'b', 6);
    assert_turns(t, "ab");
    add_request(t, 1, 'c', 1);
    end(t, &prompts[0]);
    end(t, &prompts[6]);
    assert_turns(t, "ab");
    end(t, &prompts[1]);
    end(t, &prompts[7]);
    assert_turns(t, "ca");
}

/* One sequence: many requests of one client and one of another take turns by client. */
static void test_clients_of_one_sequence(void **state) {
    struct turns *t = *state;
    for (int i = 0; i < 5; i++) add_request(t, 1, (char)('a' + i), 1);
    add_request(t, 2, 'z', 2);
    static const int order[] = {0, 5, 1, 6, 2, 3, 4};
    for (size_t i = 0; i < ARRAY_COUNT(order); i++) {
        assert_ptr_equal(take(t), &prompts[order[i]]);
        end(t, &prompts[order[i]]);
    }
}

static void test_leaving(void **state) {
    struct turns *t = *state;
    add_request(t, 1, 'a', 3);
    add_request(t, 2, 'b', 2);
    assert_turns(t, "a");
    prompts[1].leaves = prompts[3].leaves = prompts[4].leaves = true; /* of a one, of b all */
    assert_int_equal(drop_count(t), 3);
    assert_int_equal(t->n_waiting, 1);
    assert_int_equal(drop_count(t), 0);
    assert_ptr_equal(take(t), &prompts[2]);
    assert_null(take(t));
    add_request(t, 2, 'c', 1); /* lines still end where they should */
    assert_turns(t, "c");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_alone, open_turns, close_turns),
        cmocka_unit_test_setup_teardown(test_a_single_prompt_behind_arrays, open_turns,
                                        close_turns),
        cmocka_unit_test_setup_teardown(test_clients, open_turns, close_turns),
        cmocka_unit_test_setup_teardown(test_lockstep, open_turns, close_turns),
        cmocka_unit_test_setup_teardown(test_clients_of_one_sequence, open_turns, close_turns),
        cmocka_unit_test_setup_teardown(test_leaving, open_turns, close_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
