/* tests/unit/test_edits.c: the changes that a request asks for on the logits of its answer, draw by
 * draw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "server/schedule/logit_edits.h"

enum { VOCAB = 10, EOD = 9 };

static const struct logit_edit *edit_of(const struct logit_edits *e, int32_t id) {
    static const struct logit_edit none = {.repetition = 1};
    const struct logit_edit *found = &none;
    for (int i = 0; i < e->n; i++) {
        if (e->list[i].id != id) continue;
        assert_ptr_equal(found, &none); /* each id once */
        found = &e->list[i];
    }
    return found;
}

static const struct end_ids ends = {{EOD}, 1};

static void expect_edit(const struct logit_edits *e, int32_t id, float bias, float repetition,
                        float penalty) {
    const struct logit_edit *edit = edit_of(e, id);
    if (edit->bias != bias || edit->repetition != repetition || edit->penalty != penalty)
        fail_msg("token %d: bias %g, repetition %g, penalty %g", id, (double)edit->bias,
                 (double)edit->repetition, (double)edit->penalty);
}

static void test_nothing_is_asked(void **state) {
    (void)state;
    struct logit_edits e;
    struct sequence_request asked = {.changes.repetition = 1, .max_tokens = 5};
    logit_edits_open(&e, &asked, VOCAB, &ends);
    logit_edits_note(&e, 3);
    assert_int_equal(e.n, 0);
    assert_null(e.list);
    logit_edits_close(&e);
}

/* Presence and frequency count the answer's tokens, repetition the prompt's too. */
static void test_penalties(void **state) {
    (void)state;
    struct logit_edits e;
    int32_t prompt[] = {1, 2, 1};
    struct sequence_request asked = {
        .prompt = prompt,
        .n_prompt = 3,
        .max_tokens = 5,
        .changes = {.presence = 0.5f, .frequency = 0.25f, .repetition = 2}};
    logit_edits_open(&e, &asked, VOCAB, &ends);
    expect_edit(&e, 1, 0, 2, 0);
    expect_edit(&e, 2, 0, 2, 0);
    expect_edit(&e, 3, 0, 1, 0);
    logit_edits_note(&e, 3);
    logit_edits_note(&e, 1);
    logit_edits_note(&e, 3);
    expect_edit(&e, 1, 0, 2, 0.75f);
    expect_edit(&e, 2, 0, 2, 0);
    expect_edit(&e, 3, 0, 2, 1);
    logit_edits_close(&e);
}

/* More tokens than the vocabulary has: every one once. */
static void test_every_token_is_written(void **state) {
    (void)state;
    struct logit_edits e;
    struct sequence_request asked = {.max_tokens = 100,
                                     .changes = {.frequency = 1, .repetition = 1}};
    logit_edits_open(&e, &asked, VOCAB, &ends);
    for (int i = 0; i < 100; i++) logit_edits_note(&e, i % VOCAB);
    assert_int_equal(e.n, VOCAB);
    expect_edit(&e, 7, 0, 1, 10);
    logit_edits_close(&e);
}

/* Ends wait for min_tokens and get their own bias then. */
static void test_ends_wait(void **state) {
    (void)state;
    struct logit_edits e;
    struct sequence_bias biases[] = {{EOD, 3}, {4, -100}};
    int32_t stop_ids[] = {5, EOD};
    struct sequence_request asked = {
        .max_tokens = 9,
        .changes = {biases, 2, .repetition = 1},
        .end = {.stop_ids = stop_ids, .n_stop_ids = 2, .min_tokens = 2}};
    logit_edits_open(&e, &asked, VOCAB, &ends);
    expect_edit(&e, EOD, -INFINITY, 1, 0);
    expect_edit(&e, 5, -INFINITY, 1, 0);
    expect_edit(&e, 4, -100, 1, 0);
    logit_edits_note(&e, 1);
    expect_edit(&e, 5, -INFINITY, 1, 0);
    logit_edits_note(&e, 1);
    expect_edit(&e, EOD, 3, 1, 0);
    expect_edit(&e, 5, 0, 1, 0);
    expect_edit(&e, 4, -100, 1, 0);
    logit_edits_close(&e);
}

static bool stood_before(const int32_t *history, int n, int run) {
    for (int i = 0; i + run < n; i++)
        if (memcmp(history + i, history + n - run, (size_t)run * sizeof *history) == 0) return true;
    return false;
}

/* At every draw those tokens are barred that would end a run which the prompt or the answer has,
 * and no others. */
static void test_runs_come_once(void **state) {
    (void)state;
    for (int run = 1; run <= 4; run++) {
        struct logit_edits e;
        int32_t history[60] = {1, 2, -1, -1, 1, 2}; /* with a picture's rows */
        struct sequence_bias biases[] = {{2, 3}};
        struct sequence_request asked = {.prompt = history,
                                         .n_prompt = 6,
                                         .max_tokens = 50,
                                         .changes = {biases, 1, .repetition = 1, .no_repeat = run},
                                         .end.min_tokens = 9};
        int n_barred = 0;
        logit_edits_open(&e, &asked, VOCAB, &ends);
        for (int n = 6; n < 56; n++) {
            for (int32_t id = 0; id < VOCAB; id++) {
                history[n] = id;
                bool waits = id == EOD && n - 6 < 9,
                     barred = !waits && stood_before(history, n + 1, run);
                float bias = waits ? -INFINITY : id == 2 ? 3 : 0;
                expect_edit(&e, id, barred ? -1e9f : bias, 1, 0);
                n_barred += barred;
            }
            history[n] = (n * n + n / 7) % 5;
            logit_edits_note(&e, history[n]);
        }
        assert_true(n_barred > 10);
        logit_edits_close(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_asked),       cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_every_token_is_written), cmocka_unit_test(test_ends_wait),
        cmocka_unit_test(test_runs_come_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
