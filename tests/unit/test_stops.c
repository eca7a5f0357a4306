/* tests/unit/test_stops.c: stop strings over text that arrives in any pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/schedule/stops.h"

static struct stops make(const char *const *strings, int n) {
    struct stops s = {0};
    for (int i = 0; i < n; i++) stops_add(&s, strings[i], strlen(strings[i]));
    return s;
}

/* Feeds `text` in pieces of `piece` bytes. Returns what was shown; nothing shown may have to be
 * taken back. */
static size_t feed(const struct stops *s, const char *text, size_t piece, bool *stopped) {
    size_t visible = 0, size = strlen(text);
    struct stop_match match;
    *stopped = false;
    for (size_t end = piece; !*stopped; end += piece) {
        size_t now = end < size ? end : size, before = visible;
        *stopped = stops_scan(s, text, now, &visible, &match);
        assert_true(visible >= before && visible <= now);
        if (now == size) break;
    }
    return visible;
}

/* The same result whatever the pieces: `expected` bytes shown, stopped there or not. */
static void expect(const struct stops *s, const char *text, size_t expected, bool stops) {
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        bool stopped;
        assert_int_equal(feed(s, text, piece, &stopped), expected);
        assert_int_equal(stopped, stops);
    }
}

static void test_without_stops(void **state) {
    (void)state;
    struct stops none = {0};
    expect(&none, "anything at all", 15, false);
}

static void test_across_pieces(void **state) {
    (void)state;
    struct stops s = make((const char *const[]){"\n\nEND"}, 1);
    expect(&s, "text\n\nEND more", 4, true);
    expect(&s, "text\n\nEN", 4, false); /* held back: it may become the stop */
    expect(&s, "text\n\nENT", 9, false);
    expect(&s, "\n\n\n\n\nEND", 3, true);
    expect(&s, "\n\nEND", 0, true);
    stops_free(&s);
}

static void test_several(void **state) {
    (void)state;
    struct stops s = make((const char *const[]){"abcd", "bc", "x"}, 3);
    expect(&s, "--x--", 2, true);
    expect(&s, "--bx", 3, true);
    expect(&s, "--b", 2, false);
    stops_free(&s);
    /* Where pieces decide which of two overlapping stops is complete first, the text still ends
     * before both. */
    struct stops two = make((const char *const[]){"abcd", "bc"}, 2);
    size_t visible = 0;
    struct stop_match match = {0};
    assert_true(stops_scan(&two, "--abcd", 6, &visible, &match));
    assert_int_equal(visible, 2);
    assert_int_equal(match.end, 6);
    assert_int_equal(match.index, 0);
    visible = 0;
    assert_true(stops_scan(&two, "--abc", 5, &visible, &match));
    assert_int_equal(visible, 3);
    assert_int_equal(match.end, 5);
    assert_int_equal(match.index, 1);
    stops_free(&two);
}

static void test_utf8(void **state) {
    (void)state;
    struct stops s = make((const char *const[]){"\xE2\x82\xAC!"}, 1);
    size_t visible = 0;
    struct stop_match match = {0};
    /* Whole characters come in; a held character is held as a whole. */
    assert_false(stops_scan(&s, "a\xE2\x82\xAC", 4, &visible, &match));
    assert_int_equal(visible, 1);
    assert_false(stops_scan(&s, "a\xE2\x82\xAC?", 5, &visible, &match));
    assert_int_equal(visible, 5);
    stops_free(&s);
}

/* Against the plain definition, on random texts over two letters. */
static void test_random(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        char text[33] = "", stop[5] = "";
        seed = seed * 1664525u + 1013904223u;
        int stop_size = 1 + (int)(seed >> 16) % 4;
        for (int i = 0; i < stop_size; i++) stop[i] = 'a' + (char)(seed >> (20 + i) & 1);
        for (int i = 0; i < 32; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = 'a' + (char)(seed >> 24 & 1);
        }
        struct stops s = {0};
        stops_add(&s, stop, (size_t)stop_size);
        const char *at = strstr(text, stop);
        bool stopped;
        size_t visible = feed(&s, text, 1 + (size_t)round % 5, &stopped);
        assert_int_equal(stopped, at != NULL);
        if (at) assert_int_equal(visible, at - text);
        if (!at) assert_true(32 - visible < (size_t)stop_size);
        stops_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_stops), cmocka_unit_test(test_across_pieces),
        cmocka_unit_test(test_several),       cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
