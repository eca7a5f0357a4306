/* tests/golden/test_whole_pictures.c: rows of a picture that see each other, in layers with windows
 * shorter than a picture and in full ones. However a text is cut into steps, whatever it takes
 * over, within a picture too, and beside other texts, its logits are the same bits; a step that
 * would cut a picture is refused. */
#include <math.h>

#include "tests/golden/pictured_text.h"

enum { TOGETHER = 16, FIRST = 40, SECOND = 100 }; /* where the pictures stand among the words */
enum { SECOND_AT = SECOND + TOGETHER - 1, SECOND_END = SECOND_AT + TOGETHER };
enum { ROWS = WORDS + PICTURES * (TOGETHER - 1), MOST = ROWS + DRAWN + MORE };

/* A model whose pictures have one number of rows, and one whose pictures have any. */
static const char *folder;
static const char fixed[] = "tests/golden/vision/gemma3_a", any[] = "tests/golden/vision/gemma4_b";

static void open_fixture(struct pictured_model *f, int kept_blocks) {
    pictured_open(f, folder, MOST, kept_blocks);
}

static void make_text(struct merged_text *out, const struct pictured_model *f, int seed,
                      int words) {
    static const struct picture_place places[PICTURES] = {{FIRST, TOGETHER, {0, 0}},
                                                          {SECOND, TOGETHER, {0, 0}}};
    pictured_text_make(out, f, places, seed, words);
}

static void test_rows_that_fit(void **state) {
    (void)state;
    struct pictured_model f;
    struct merged_text t;
    open_fixture(&f, 0);
    make_text(&t, &f, 1, WORDS);
    assert_int_equal(picture_rows_together(f.model), folder == fixed ? TOGETHER : 0);
    assert_int_equal(picture_rows_most(f.model, 9 * TOGETHER), TOGETHER);
    assert_int_equal(picture_rows_left(f.model, t.ids + FIRST - 1, ROWS - (FIRST - 1)), 0);
    assert_int_equal(picture_rows_left(f.model, t.ids + FIRST, ROWS - (FIRST)), TOGETHER);
    assert_int_equal(
        picture_rows_left(f.model, t.ids + FIRST + TOGETHER - 1, ROWS - (FIRST + TOGETHER - 1)), 1);
    assert_int_equal(picture_rows_left(f.model, t.ids + SECOND_AT + 3, ROWS - (SECOND_AT + 3)),
                     TOGETHER - 3);
    for (int n = 0; n < ROWS + 2; n++) {
        int fit = picture_rows_fit(f.model, t.ids, ROWS, n), first = FIRST + TOGETHER;
        int expected = n > FIRST && n < first ? FIRST : min_int(n, ROWS);
        if (n > SECOND_AT && n < SECOND_END) expected = SECOND_AT;
        assert_int_equal(fit, expected);
    }
    assert_int_equal(picture_rows_fit(f.model, t.ids + FIRST, ROWS - FIRST, TOGETHER - 1), 0);
    assert_int_equal(picture_rows_fit(f.model, t.ids + FIRST + 2, ROWS - FIRST - 2, 9), 0);
    assert_int_equal(picture_rows_fit(f.model, t.ids + FIRST + 2, ROWS - FIRST - 2, 14), 14);
    merged_text_free(&t);
    pictured_close(&f);
}

static void test_cuts(void **state) {
    (void)state;
    static const int steps[] = {TOGETHER, TOGETHER + 1, 30, 60, 150};
    struct pictured_model f;
    struct merged_text t;
    struct pictured_reading whole, cut;
    open_fixture(&f, 0);
    make_text(&t, &f, 1, WORDS);
    read_text(&f, &t, 0, MOST, &whole);
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        read_text(&f, &t, 0, steps[i], &cut);
        assert_memory_equal(cut.logits, whole.logits, sizeof whole.logits);
    }
    merged_text_free(&t);
    pictured_close(&f);
}

/* The second picture lies on both sides of the end of a block. */
static void test_rows_are_taken_over(void **state) {
    (void)state;
    struct pictured_model plain, keeping;
    struct merged_text t, other, longer;
    struct pictured_reading whole, first, again, part, elsewhere, elsewhere_plain, on, on_plain;
    open_fixture(&plain, 0);
    open_fixture(&keeping, 16);
    make_text(&t, &plain, 1, WORDS);
    make_text(&other, &plain, 2, WORDS);
    make_text(&longer, &plain, 1, WORDS + MORE);
    assert_in_range(ATTENTION_BLOCK, SECOND_AT + 1, SECOND_END - 1);
    read_text(&plain, &t, 0, MOST, &whole);
    read_text(&plain, &other, 0, MOST, &elsewhere_plain);
    read_text(&plain, &longer, 0, MOST, &on_plain);

    read_text(&keeping, &t, t.n - 1, 30, &first);
    read_text(&keeping, &t, t.n - 1, 30, &again);
    for (int most = SECOND_AT + 1; most < SECOND_END; most++) { /* ends within the picture */
        read_text(&keeping, &t, most, 30, &part);
        assert_int_equal(part.reused, most);
        assert_memory_equal(part.logits, whole.logits, sizeof whole.logits);
    }
    read_text(&keeping, &other, t.n - 1, 30, &elsewhere);
    read_text(&keeping, &longer, longer.n - 1, 30, &on);
    assert_int_equal(first.reused, 0);
    assert_int_equal(again.reused, ROWS - 1);
    assert_int_equal(elsewhere.reused, SECOND_AT);
    assert_int_equal(on.reused, ROWS);
    assert_memory_equal(first.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(again.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(elsewhere.logits, elsewhere_plain.logits, sizeof whole.logits);
    assert_memory_equal(on.logits, on_plain.logits, sizeof whole.logits);
    assert_memory_not_equal(elsewhere.logits, whole.logits, sizeof whole.logits);
    struct merged_text *texts[] = {&t, &other, &longer};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) merged_text_free(texts[i]);
    pictured_close(&plain);
    pictured_close(&keeping);
}

/* A picture of one text beside words and a picture of another. */
static void test_texts_do_not_meet(void **state) {
    (void)state;
    struct pictured_model f;
    struct error e = {0};
    struct merged_text t[2];
    struct pictured_reading alone[2];
    struct session *s[2];
    struct tensor logits;
    float together[2][VOCAB];
    open_fixture(&f, 0);
    for (int i = 0; i < 2; i++) {
        make_text(&t[i], &f, 1 + i, WORDS);
        read_text(&f, &t[i], 0, MOST, &alone[i]);
        if (session_open(&s[i], f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    }
    struct step_item first = make_item(&f, s[0], &t[0], 0, SECOND_AT);
    take_step(&f, &first, &logits);
    struct step_item both[] = {make_item(&f, s[1], &t[1], 0, ROWS),
                               make_item(&f, s[0], &t[0], SECOND_AT, ROWS - SECOND_AT)};
    if (session_step(f.pool, both, 2, &logits, &e)) fail_msg("%s", e.text);
    take_logits(&f, logits, together[0]);
    assert_memory_equal(together[0], alone[1].logits[0], sizeof together[0]);
    assert_memory_equal(together[1], alone[0].logits[0], sizeof together[1]);
    for (int i = 0; i < 2; i++) {
        merged_text_free(&t[i]);
        session_close(s[i]);
    }
    pictured_close(&f);
}

/* All logits of the text in one step, [ROWS, VOCAB] owned; and how row FIRST shares out its
 * attention: to all keys, and to the last row of its picture. */
static float *read_all(const struct pictured_model *f, const struct merged_text *t,
                       float shares[2]) {
    static const struct key_group groups[] = {{0, ROWS}, {FIRST + TOGETHER - 1, 1}};
    float *all = xmalloc((size_t)ROWS * VOCAB * sizeof *all), told[ROWS][4];
    struct session *s;
    struct tensor logits;
    struct error e = {0};
    if (session_open(&s, f->pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    struct step_item item = make_item(f, s, t, 0, ROWS);
    item.n_logits = item.n_self_shares = ROWS;
    item.groups = groups;
    item.n_groups = 2;
    take_step(f, &item, &logits);
    take_logits(f, logits, all);
    struct tensor of = session_shares(f->pool);
    backend_download(f->backend, told, of.data, sizeof told);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
    assert_int_equal(of.cols, 4);
    memcpy(shares, &told[FIRST][2], 2 * sizeof *shares);
    for (int i = 0; i < ROWS; i++) assert_true(fabsf(told[i][2] - 1) < 1e-5f);
    session_close(s);
    return all;
}

/* The first row of a picture sees the last one; words before see neither. */
static void test_rows_see_each_other(void **state) {
    (void)state;
    struct pictured_model f;
    struct merged_text t;
    float shares[2];
    open_fixture(&f, 0);
    make_text(&t, &f, 1, WORDS);
    float *before = read_all(&f, &t, shares);
    assert_true(shares[1] > 0);
    for (int i = 0; i < HIDDEN; i++) t.given[(TOGETHER - 1) * HIDDEN + i] += 0.5f;
    float *after = read_all(&f, &t, shares);
    size_t row = VOCAB * sizeof *before;
    assert_memory_equal(before, after, FIRST * row);
    for (int i = FIRST; i < FIRST + TOGETHER; i++)
        assert_memory_not_equal(before + i * VOCAB, after + i * VOCAB, row);
    free(before);
    free(after);
    merged_text_free(&t);
    pictured_close(&f);
}

static void refuse(const struct pictured_model *f, struct session *s, const struct merged_text *t,
                   int at, int n, const char *words) {
    struct error e = {0};
    struct tensor logits;
    struct step_item item = make_item(f, s, t, at, n);
    int length = session_length(s);
    assert_int_equal(session_step(f->pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, words));
    assert_int_equal(session_length(s), length);
}

static void test_cut_pictures_are_refused(void **state) {
    (void)state;
    struct pictured_model f;
    struct session *s;
    struct error e = {0};
    struct tensor logits;
    struct merged_text t;
    folder = fixed;
    open_fixture(&f, 0);
    make_text(&t, &f, 1, WORDS);
    if (session_open(&s, f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    refuse(&f, s, &t, FIRST + 2, TOGETHER - 2, "begins with the last 14 rows of a picture");
    refuse(&f, s, &t, 0, FIRST + 1, "15 rows that see each other are left of it");
    refuse(&f, s, &t, 0, FIRST + TOGETHER - 1, "1 rows that see each other are left of it");
    t.ids[FIRST + 4] = 7;
    refuse(&f, s, &t, 0, ROWS, "token 43 is followed by no more of its picture");
    t.ids[FIRST + 4] = t.ids[FIRST + 3] - 1;
    struct step_item item = make_item(&f, s, &t, 0, FIRST + TOGETHER);
    take_step(&f, &item, &logits);
    session_close(s);
    merged_text_free(&t);
    pictured_close(&f);
}

/* Nothing would tell the rows of one from those of the other. */
static void test_pictures_side_by_side(void **state) {
    (void)state;
    struct pictured_model f;
    struct merged_text t;
    struct error e = {0};
    folder = any;
    open_fixture(&f, 0);
    float rows[HIDDEN] = {0};
    int32_t ids[] = {5, model_picture_id(f.model), 7, model_picture_id(f.model)};
    const struct merged_picture picture = {.rows = rows, .tiles = 1, .tile_rows = 1},
                                pictures[] = {picture, picture};
    const struct picture_text text = {ids, 4, pictures, 2, {0}};
    assert_int_equal(picture_rows_text(&t, f.model, &text, &e), STATUS_OK);
    merged_text_free(&t);
    ids[2] = ids[1];
    ids[1] = 7;
    assert_int_equal(picture_rows_text(&t, f.model, &text, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "two pictures stand side by side"));
    pictured_close(&f);
}

int main(void) {
    const struct CMUnitTest both[] = {
        cmocka_unit_test(test_rows_that_fit),       cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_rows_are_taken_over), cmocka_unit_test(test_texts_do_not_meet),
        cmocka_unit_test(test_rows_see_each_other),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(test_cut_pictures_are_refused),
                                     cmocka_unit_test(test_pictures_side_by_side)};
    folder = fixed;
    int failed = cmocka_run_group_tests_name("rows of one number", both, NULL, NULL);
    folder = any;
    failed += cmocka_run_group_tests_name("rows of any number", both, NULL, NULL);
    return failed + cmocka_run_group_tests_name("refused", one, NULL, NULL);
}
