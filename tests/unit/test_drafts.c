/* tests/unit/test_drafts.c: the table of texts that drafts come from, against a search of all
 * places, and how many drafts pay by what rows cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/schedule/drafts/draft_table.h"
#include "server/schedule/drafts/row_costs.h"

enum { MOST = 4000, LETTERS = 5 };

static unsigned random_below(unsigned *seed, unsigned below) {
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 8) % below;
}

/* The table was given these: texts with -1 between them, and the text that is written apart. */
struct texts {
    int32_t all[MOST], written[MOST];
    int n, n_written;
};

static int count_same(const struct texts *t, int place) {
    int n = 0;
    while (n < DRAFT_RECENT && n < place && n < t->n_written && t->all[place - 1 - n] >= 0 &&
           t->all[place - 1 - n] == t->written[t->n_written - 1 - n])
        n++;
    return n;
}

/* The length of the longest match, by looking everywhere. */
static int longest(const struct texts *t) {
    int best = 0;
    for (int place = DRAFT_KEY; place < t->n; place++)
        if (t->all[place] >= 0) best = max_int(best, count_same(t, place));
    return best < DRAFT_KEY ? 0 : best;
}

static void write(struct draft_table *table, struct texts *t, int32_t token) {
    draft_table_write(table, DRAFT_ANSWER, token);
    t->all[t->n] = t->written[t->n_written] = token;
    t->n++;
    t->n_written++;
}

static void add(struct draft_table *table, struct texts *t, const int32_t *ids, int n) {
    draft_table_add(table, DRAFT_NEIGHBORS, ids, n);
    t->all[t->n] = -1;
    memcpy(t->all + t->n + 1, ids, (size_t)n * sizeof *ids);
    t->all[t->n + 1 + n] = -1;
    t->n += n + 2;
}

/* Random texts of few letters, so that matches of every length occur, short enough that no key
 * stands in more places than are looked at. */
static void check_random(unsigned seed, int letters) {
    struct draft_table table = {0};
    struct texts *t = calloc(1, sizeof *t);
    int32_t ids[60];
    int found = 0, right = 0;
    for (int i = 0; i < 200; i++) {
        if (random_below(&seed, 40) == 0) {
            int n = (int)random_below(&seed, 60);
            for (int j = 0; j < n; j++) ids[j] = (int32_t)random_below(&seed, (unsigned)letters);
            add(&table, t, ids, n);
        }
        struct draft_match match = draft_table_match(&table);
        int expected = longest(t);
        assert_int_equal(match.length, expected);
        int32_t next = draft_table_next(&table, match);
        if (expected > 0) {
            assert_int_equal(next, t->all[match.place]);
            assert_int_equal(count_same(t, match.place), expected);
        } else {
            assert_int_equal(next, -1);
        }
        found += expected > 0;
        bool repeats = next >= 0 && random_below(&seed, 4) > 0;
        int32_t token = repeats ? next : (int32_t)random_below(&seed, (unsigned)letters);
        if (random_below(&seed, 30) == 0) token = -1 - (int32_t)random_below(&seed, 5);
        right += token == next;
        write(&table, t, token < 0 ? -1 : token);
    }
    assert_true(found > 20 && right > 20);
    draft_table_close(&table);
    free(t);
}

static void test_matches_are_the_longest(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 300; seed++) check_random(seed, 8 + (int)(seed % 3) * LETTERS);
}

static void test_places_have_kinds(void **state) {
    (void)state;
    struct draft_table table = {0};
    const int32_t first[] = {1, 2, 3}, second[] = {4, 5, 6, 7};
    assert_int_equal(draft_table_begin(&table, DRAFT_PREDICTED), -1);
    draft_table_add(&table, DRAFT_NEIGHBORS, first, 3);
    draft_table_add(&table, DRAFT_PREDICTED, second, 4);
    draft_table_write(&table, DRAFT_PROMPT, 4);
    draft_table_write(&table, DRAFT_PROMPT, 5);
    int begin = draft_table_begin(&table, DRAFT_PREDICTED);
    assert_int_equal(table.tokens[begin], 4);
    struct draft_match match = draft_table_match(&table);
    assert_int_equal(match.length, 2);
    assert_int_equal(match.place, begin + 2);
    assert_int_equal(draft_table_kind(&table, match.place), DRAFT_PREDICTED);
    assert_int_equal(draft_table_next(&table, match), 6);
    assert_int_equal(draft_table_next(&table, draft_match_step(match)), 7);
    draft_table_write(&table, DRAFT_ANSWER, 1);
    draft_table_write(&table, DRAFT_ANSWER, 2);
    match = draft_table_match(&table);
    assert_int_equal(draft_table_kind(&table, match.place), DRAFT_NEIGHBORS);
    assert_int_equal(draft_table_next(&table, match), 3);
    assert_true(draft_table_bytes(&table) > 0);
    draft_table_close(&table);
}

/* A text of one token, a million times: looking stays bounded. */
static void test_repetition_is_bounded(void **state) {
    (void)state;
    struct draft_table table = {0};
    for (int i = 0; i < 1000000; i++) draft_table_write(&table, DRAFT_ANSWER, 7);
    struct draft_match match = draft_table_match(&table);
    assert_int_equal(match.length, DRAFT_RECENT);
    assert_int_equal(draft_table_next(&table, match), 7);
    assert_true(draft_table_bytes(&table) <= (size_t)1000000 * 32);
    draft_table_close(&table);
}

/* Costs. */

static void test_costs_lie_between_those_seen(void **state) {
    (void)state;
    struct row_costs costs = {0};
    assert_true(row_costs_of(&costs, 4) == 0);
    row_costs_note(&costs, 1, 1.0);
    row_costs_note(&costs, 9, 2.0);
    assert_true(row_costs_of(&costs, 1) == 1.0);
    assert_true(row_costs_of(&costs, 5) == 1.5);
    assert_true(row_costs_of(&costs, 20) > 2.0);
    row_costs_note(&costs, 9, 100.0); /* the machine was away */
    assert_true(row_costs_of(&costs, 9) < 2.5);
    for (int i = 0; i < 600; i++) row_costs_note(&costs, 1, 1.0);
    assert_true(row_costs_of(&costs, 9) < 2.0); /* forgotten: to be tried again */
}

static void test_drafts_that_pay_are_chosen(void **state) {
    (void)state;
    enum { MOST_DRAFTS = 30 };
    struct row_costs costs = {0};
    double sure[MOST_DRAFTS], unlikely[MOST_DRAFTS];
    for (int i = 0; i < MOST_DRAFTS; i++) {
        sure[i] = 1;
        unlikely[i] = i == 0 ? 0.05 : unlikely[i - 1] * 0.05;
    }
    assert_int_equal(row_costs_choose(&costs, 1, 1, sure, MOST_DRAFTS), 0); /* nothing is known */
    for (int rows = 1; rows <= ROW_COSTS; rows++)
        row_costs_note(&costs, rows, rows <= 16 ? 1 + 0.05 * rows : 4.0 * rows);
    assert_int_equal(row_costs_choose(&costs, 1, 1, sure, MOST_DRAFTS), 15);
    assert_int_equal(row_costs_choose(&costs, 10, 10, sure, MOST_DRAFTS), 6);
    assert_int_equal(row_costs_choose(&costs, 16, 16, sure, MOST_DRAFTS), 0);
    assert_int_equal(row_costs_choose(&costs, 1, 1, unlikely, MOST_DRAFTS), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches_are_the_longest),
                                       cmocka_unit_test(test_places_have_kinds),
                                       cmocka_unit_test(test_repetition_is_bounded),
                                       cmocka_unit_test(test_costs_lie_between_those_seen),
                                       cmocka_unit_test(test_drafts_that_pay_are_chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
