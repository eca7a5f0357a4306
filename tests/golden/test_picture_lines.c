/* tests/golden/test_picture_lines.c: Mistral 3 reads a picture line by line, an id behind each and
 * another one behind the last. However a text is cut into steps, and whatever it takes over, its
 * logits are the same bits. */
#include "tests/golden/pictured_text.h"

enum { FIRST = 40, SECOND = 81 }; /* where the pictures stand among the words */
enum { FIRST_ROWS = 12, FIRST_LINES = 3, SECOND_ROWS = 18, SECOND_LINES = 2 };
enum {
    SECOND_AT = SECOND + FIRST_ROWS + FIRST_LINES - 1, /* the second one's first row */
    ROWS = WORDS - PICTURES + FIRST_ROWS + FIRST_LINES + SECOND_ROWS + SECOND_LINES,
    MOST = ROWS + DRAWN + MORE
};
static const char folder[] = "tests/golden/vision/mistral3";

static void make_text(struct merged_text *out, const struct pictured_model *f, int seed,
                      int words) {
    static const struct picture_place places[PICTURES] = {{FIRST, FIRST_ROWS, {FIRST_LINES, 4}},
                                                          {SECOND, SECOND_ROWS, {SECOND_LINES, 9}}};
    pictured_text_make(out, f, places, seed, words);
}

static void test_ids_behind_lines(void **state) {
    (void)state;
    struct pictured_model f;
    struct merged_text t;
    pictured_open(&f, folder, MOST, 0);
    make_text(&t, &f, 1, WORDS);
    assert_int_equal(t.n, ROWS);
    assert_int_equal(t.n_given, FIRST_ROWS + SECOND_ROWS);
    for (int i = 0; i < FIRST_ROWS + FIRST_LINES; i++) {
        int line = i / 5, column = i % 5;
        int expected = column < 4               ? -1 - 4 * line - column
                       : line + 1 < FIRST_LINES ? LINE_END
                                                : PICTURE_END;
        assert_int_equal(t.ids[FIRST + i], expected);
    }
    assert_int_equal(t.ids[SECOND_AT + 9], LINE_END);
    assert_int_equal(t.ids[SECOND_AT + 19], PICTURE_END);
    assert_int_equal(t.names[FIRST_ROWS + 9].row, 9);
    merged_text_free(&t);
    pictured_close(&f);
}

static void test_grids_are_checked(void **state) {
    (void)state;
    struct pictured_model f;
    struct error e = {0};
    struct merged_text t;
    static const float rows[6 * HIDDEN];
    const struct merged_picture picture = {
        .rows = rows, .tiles = 1, .tile_rows = 6, .grid = {2, 2}};
    pictured_open(&f, folder, MOST, 0);
    const int32_t id = model_picture_id(f.model);
    const struct picture_text text = {&id, 1, &picture, 1, {LINE_END, PICTURE_END}};
    assert_int_equal(picture_rows_text(&t, f.model, &text, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "6 rows, and of 2 times 2"));
    pictured_close(&f);
}

static void test_rows_are_taken_over(void **state) {
    (void)state;
    struct pictured_model plain, keeping;
    struct merged_text t, other;
    struct pictured_reading whole, cut, first, part, elsewhere, elsewhere_plain;
    pictured_open(&plain, folder, MOST, 0);
    pictured_open(&keeping, folder, MOST, 16);
    make_text(&t, &plain, 1, WORDS);
    make_text(&other, &plain, 2, WORDS);
    read_text(&plain, &t, t.n - 1, MOST, &whole);
    read_text(&plain, &t, t.n - 1, 7, &cut);
    read_text(&plain, &other, t.n - 1, MOST, &elsewhere_plain);
    assert_memory_equal(cut.logits, whole.logits, sizeof whole.logits);

    read_text(&keeping, &t, t.n - 1, 30, &first);
    read_text(&keeping, &t, SECOND_AT + 12, 30, &part); /* ends behind a line of the second one */
    read_text(&keeping, &other, t.n - 1, 30, &elsewhere);
    assert_int_equal(first.reused, 0);
    assert_int_equal(part.reused, SECOND_AT + 12);
    assert_int_equal(elsewhere.reused, SECOND_AT);
    assert_memory_equal(first.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(part.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(elsewhere.logits, elsewhere_plain.logits, sizeof whole.logits);
    assert_memory_not_equal(elsewhere.logits, whole.logits, sizeof whole.logits);
    merged_text_free(&t);
    merged_text_free(&other);
    pictured_close(&plain);
    pictured_close(&keeping);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_behind_lines),
        cmocka_unit_test(test_grids_are_checked),
        cmocka_unit_test(test_rows_are_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
