/* tests/unit/test_conversations.c: what is known of conversations: keys, and turns by use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/host/prompt/conversations.h"

static struct text_span span(const char *text) { return (struct text_span){text, strlen(text)}; }

static struct turn_key key_of(const char *first, const char *second) {
    return turn_key_add(turn_key_add((struct turn_key){0}, span(first)), span(second));
}

static bool same(struct turn_key left, struct turn_key right) {
    return left.first == right.first && left.second == right.second;
}

/* A chain tells where its texts end. */
static void test_keys(void **state) {
    (void)state;
    assert_true(same(key_of("ab", "c"), key_of("ab", "c")));
    assert_false(same(key_of("ab", "c"), key_of("a", "bc")));
    assert_false(same(key_of("a", "b"), key_of("b", "a")));
    assert_false(same(key_of("a", ""), turn_key_add((struct turn_key){0}, span("a"))));
}

static void put(struct conversations *conversations, int number, int n) {
    struct read_turn *turn = read_turn_open((struct turn_key){(uint64_t)number, 1});
    turn->passages = xcalloc((size_t)n + 1, sizeof *turn->passages);
    for (turn->n = 0; turn->n < n; turn->n++)
        turn->passages[turn->n] = (struct read_passage){.document = xstrdup("document")};
    turn->last_number = n;
    conversations_put(conversations, turn);
}

/* The passages of a turn; -1: it is not known. */
static int count(struct conversations *conversations, int number) {
    struct read_turn *turn =
        conversations_find(conversations, (struct turn_key){(uint64_t)number, 1});
    int n = turn ? turn->n : -1;
    read_turn_release(turn);
    return n;
}

static void test_the_latest_turn_of_a_key_stays(void **state) {
    struct conversations *conversations = conversations_open(1 << 20, false);
    (void)state;
    put(conversations, 1, 2);
    struct read_turn *held = conversations_find(conversations, (struct turn_key){1, 1});
    put(conversations, 1, 3);
    assert_int_equal(count(conversations, 1), 3);
    assert_int_equal(held->n, 2);
    assert_int_equal(conversations_count(conversations).turns, 1);
    read_turn_release(held);
    conversations_close(conversations);
}

/* Turns leave in the order of their use, and what is kept is bounded. */
static void test_turns_leave_by_use(void **state) {
    enum { TURNS = 1000, BYTES = 100 << 10 };
    struct conversations *conversations = conversations_open(BYTES, false);
    (void)state;
    for (int i = 0; i < TURNS; i++) {
        put(conversations, i, 4);
        assert_int_equal(count(conversations, 0), 4);
        assert_true(conversations_count(conversations).bytes <= BYTES);
    }
    struct conversation_counts counts = conversations_count(conversations);
    assert_int_equal(counts.turns + counts.evicted, TURNS);
    assert_true(counts.turns > 50 && counts.evicted > 50);
    assert_int_equal(count(conversations, 1), -1);
    assert_int_equal(count(conversations, TURNS - (int)counts.turns), -1);
    for (int i = TURNS - (int)counts.turns + 1; i < TURNS; i++)
        assert_int_equal(count(conversations, i), 4);
    conversations_close(conversations);
}

/* One that is larger than all that may be kept is not kept. */
static void test_no_room(void **state) {
    struct conversations *conversations = conversations_open(1000, false);
    (void)state;
    put(conversations, 1, 1000);
    assert_int_equal(conversations_count(conversations).turns, 0);
    assert_int_equal(conversations_count(conversations).bytes, 0);
    conversations_close(conversations);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_the_latest_turn_of_a_key_stays),
        cmocka_unit_test(test_turns_leave_by_use),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
