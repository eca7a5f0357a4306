/* tests/golden/test_places.c: multimodal RoPE: rows of pictures have positions by their grid, and
 * the words behind go on after the largest; in Qwen3-VL further columns of these rows are added
 * behind the first layers, and in Qwen3.5 delta nets read them in the order of the text. However a
 * text is cut into steps, whatever it takes over and when a session is used again, its logits are
 * the same bits. */
#include "tests/golden/pictured_text.h"

enum { FIRST = 40, SECOND = 81 }; /* where the pictures stand among the words */
enum {
    FIRST_ROWS = 12,
    SECOND_ROWS = 18,
    SECOND_AT = SECOND + FIRST_ROWS - 1
}; /* the second one's first row */
enum { ROWS = WORDS - PICTURES + FIRST_ROWS + SECOND_ROWS, MOST = ROWS + DRAWN + MORE };

/* Tests run with each of these. */
static const char older[] = "tests/golden/vision/qwen2_vl",
                  newer[] = "tests/golden/vision/qwen3_vl",
                  states[] = "tests/golden/vision/qwen3_5";

static void open_fixture(struct pictured_model *f, const char *folder, int kept_blocks) {
    pictured_open(f, folder, MOST, kept_blocks);
    assert_int_equal(f->columns, folder == newer ? MOST_COLUMNS : HIDDEN);
}

static void make_text(struct merged_text *out, const struct pictured_model *f, int seed,
                      int words) {
    static const struct picture_place places[PICTURES] = {{FIRST, FIRST_ROWS, {3, 4}},
                                                          {SECOND, SECOND_ROWS, {2, 9}}};
    pictured_text_make(out, f, places, seed, words);
}

static void test_positions(void **state) {
    (void)state;
    static const struct picture_grid grids[] = {{2, 3}, {1, 1}, {3, 1}};
    static const int32_t ids[] = {7, 8, -1, -2, -3, -4, -5, -6, 9, -7, -8, -9, -10, 5};
    static const int32_t expected[][PLACE_SECTIONS] = {
        {0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {2, 3, 2}, {2, 3, 3},
        {2, 3, 4}, {5, 5, 5}, {6, 6, 6}, {7, 7, 7}, {7, 8, 7}, {7, 9, 7}, {10, 10, 10}};
    int32_t got[ARRAY_COUNT(ids)][PLACE_SECTIONS] = {{0}};
    picture_rows_place(got[0], ids, (int)ARRAY_COUNT(ids), grids);
    assert_memory_equal(got, expected, sizeof expected);

    /* A text that ends within a picture. */
    memset(got, 0x55, sizeof got);
    picture_rows_place(got[0], ids, 5, grids);
    assert_memory_equal(got, expected, 5 * sizeof *expected);
    assert_int_equal(got[5][0], 0x55555555);
}

static void test_grids_are_checked(void **state) {
    struct pictured_model f;
    struct error e = {0};
    struct merged_text t;
    static const float rows[6 * HIDDEN];
    const struct merged_picture picture = {
        .rows = rows, .tiles = 1, .tile_rows = 6, .grid = {2, 2}};
    open_fixture(&f, *state, 0);
    const int32_t id = model_picture_id(f.model);
    assert_int_equal(
        picture_rows_text(&t, f.model, &(struct picture_text){&id, 1, &picture, 1, {0}}, &e),
        STATUS_INVALID);
    assert_non_null(strstr(e.text, "6 rows, and of 2 times 2"));
    pictured_close(&f);
}

static void test_rows_are_taken_over(void **state) {
    struct pictured_model plain, keeping;
    struct merged_text t, other, longer;
    struct pictured_reading whole, cut, first, again, part, elsewhere, elsewhere_plain, on,
        on_plain;
    open_fixture(&plain, *state, 0);
    open_fixture(&keeping, *state, 16);
    make_text(&t, &plain, 1, WORDS);
    make_text(&other, &plain, 2, WORDS);
    make_text(&longer, &plain, 1, WORDS + MORE);
    read_text(&plain, &t, t.n - 1, MOST, &whole);
    read_text(&plain, &t, t.n - 1, 7, &cut);
    read_text(&plain, &other, t.n - 1, MOST, &elsewhere_plain);
    read_text(&plain, &longer, t.n - 1, MOST, &on_plain);
    assert_memory_equal(cut.logits, whole.logits, sizeof whole.logits);

    read_text(&keeping, &t, t.n - 1, 30, &first);
    read_text(&keeping, &t, t.n - 1, 30, &again);
    read_text(&keeping, &t, SECOND_AT + 4, 30, &part); /* ends within the second picture */
    read_text(&keeping, &other, t.n - 1, 30, &elsewhere);
    read_text(&keeping, &longer, longer.n - 1, 30, &on);
    assert_int_equal(first.reused, 0);
    assert_int_equal(again.reused, ROWS - 1);
    assert_int_equal(part.reused, SECOND_AT + 4);
    assert_int_equal(elsewhere.reused, SECOND_AT);
    assert_int_equal(on.reused, ROWS);
    assert_memory_equal(first.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(again.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(part.logits, whole.logits, sizeof whole.logits);
    assert_memory_equal(elsewhere.logits, elsewhere_plain.logits, sizeof whole.logits);
    assert_memory_equal(on.logits, on_plain.logits, sizeof whole.logits);
    assert_memory_not_equal(elsewhere.logits, whole.logits, sizeof whole.logits);
    struct merged_text *texts[] = {&t, &other, &longer};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) merged_text_free(texts[i]);
    pictured_close(&plain);
    pictured_close(&keeping);
}

/* A text in whose second picture a block of rows ends. */
static void make_text_across_blocks(struct merged_text *out, const struct pictured_model *f,
                                    int seed, int words) {
    static const struct picture_place places[PICTURES] = {{FIRST, FIRST_ROWS, {3, 4}},
                                                          {110, SECOND_ROWS, {2, 9}}};
    pictured_text_make(out, f, places, seed, words);
    assert_true(out->ids[ATTENTION_BLOCK - 1] < 0 && out->ids[ATTENTION_BLOCK] < 0);
}

/* A text goes on behind a state that was kept within the second picture. */
static void test_states_are_taken_over(void **state) {
    struct pictured_model plain, keeping;
    struct merged_text t, other, longer;
    struct pictured_reading whole, cut, first, again, elsewhere, elsewhere_plain, on, on_plain;
    open_fixture(&plain, *state, 0);
    open_fixture(&keeping, *state, 16);
    make_text_across_blocks(&t, &plain, 1, WORDS);
    make_text_across_blocks(&other, &plain, 2, WORDS);
    make_text_across_blocks(&longer, &plain, 1, WORDS + MORE);
    read_text(&plain, &t, t.n - 1, MOST, &whole);
    read_text(&plain, &t, t.n - 1, 7, &cut);
    read_text(&plain, &other, t.n - 1, MOST, &elsewhere_plain);
    read_text(&plain, &longer, t.n - 1, MOST, &on_plain);
    assert_memory_equal(cut.logits, whole.logits, sizeof whole.logits);

    read_text(&keeping, &t, t.n - 1, 30, &first);
    read_text(&keeping, &t, t.n - 1, 30, &again);
    read_text(&keeping, &other, t.n - 1, 30, &elsewhere);
    read_text(&keeping, &longer, longer.n - 1, 30, &on);
    assert_int_equal(first.reused, 0);
    assert_int_equal(again.reused, ATTENTION_BLOCK);
    assert_int_equal(elsewhere.reused, 0);
    assert_int_equal(on.reused, ATTENTION_BLOCK);
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

/* Two texts in the same steps, with the second picture of one beside the first words of the other.
 */
static void test_texts_do_not_meet(void **state) {
    struct pictured_model f;
    struct error e = {0};
    struct merged_text t[2];
    struct pictured_reading alone[2];
    struct session *s[2];
    struct tensor logits;
    float together[2][VOCAB];
    open_fixture(&f, *state, 0);
    for (int i = 0; i < 2; i++) {
        make_text(&t[i], &f, 1 + i, WORDS);
        read_text(&f, &t[i], 0, MOST, &alone[i]);
        if (session_open(&s[i], f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    }
    struct step_item first = make_item(&f, s[0], &t[0], 0, SECOND_AT + 5);
    if (session_step(f.pool, &first, 1, &logits, &e)) fail_msg("%s", e.text);
    struct step_item both[] = {make_item(&f, s[1], &t[1], 0, ROWS),
                               make_item(&f, s[0], &t[0], first.n_tokens, ROWS - first.n_tokens)};
    if (session_step(f.pool, both, 2, &logits, &e)) fail_msg("%s", e.text);
    take_logits(&f, logits, together[0]);
    assert_memory_equal(together[0], alone[1].logits[0], sizeof together[0]);
    assert_memory_equal(together[1], alone[0].logits[0], sizeof together[1]);

    /* And a word of each behind. */
    const int32_t id = 11;
    for (int i = 0; i < 2; i++)
        both[i] = (struct step_item){
            .session = s[i], .tokens = &id, .n_tokens = 1, .names = t[i].names, .n_logits = 1};
    if (session_step(f.pool, both, 2, &logits, &e)) fail_msg("%s", e.text);
    take_logits(&f, logits, together[0]);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(together[i], alone[i].logits[1], sizeof together[i]);
        merged_text_free(&t[i]);
        session_close(s[i]);
    }
    pictured_close(&f);
}

/* A session that is rewound begins anew: it has lost count of the positions within its text. */
static void test_rewound(void **state) {
    struct pictured_model f;
    struct session *s;
    struct error e = {0};
    struct merged_text t;
    struct pictured_reading whole, twice, words, words_again;
    open_fixture(&f, *state, 0);
    make_text(&t, &f, 1, WORDS);
    if (session_open(&s, f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    read_on(&f, s, &t, MOST, &whole);
    session_rewind(s, ROWS - 1, (struct grid){0});
    assert_int_equal(session_length(s), 0);
    read_on(&f, s, &t, MOST, &twice);
    assert_memory_equal(twice.logits, whole.logits, sizeof whole.logits);
    merged_text_free(&t);

    /* Words alone are counted, as ever. */
    session_rewind(s, 0, (struct grid){0});
    int32_t ids[ROWS], positions[ROWS * PLACE_SECTIONS];
    for (int i = 0; i < ROWS; i++) ids[i] = i % 50;
    picture_rows_place(positions, ids, ROWS, NULL);
    t = (struct merged_text){
        .ids = ids, .positions = positions, .sections = PLACE_SECTIONS, .n = ROWS};
    read_on(&f, s, &t, MOST, &words);
    session_rewind(s, ROWS - 1, (struct grid){0});
    assert_int_equal(session_length(s), *state == states ? 0 : ATTENTION_BLOCK);
    read_on(&f, s, &t, MOST, &words_again);
    assert_memory_equal(words_again.logits, words.logits, sizeof words.logits);
    session_close(s);
    pictured_close(&f);
}

/* The columns behind a word's are read wherever the row is computed: other ones there, other
 * logits.
 */
static void test_deepstack_is_read(void **state) {
    struct pictured_model f;
    struct merged_text t;
    struct pictured_reading first, other;
    open_fixture(&f, *state, 0);
    make_text(&t, &f, 1, WORDS);
    read_text(&f, &t, 0, MOST, &first);
    for (int part = 1; part < f.columns / HIDDEN; part++) {
        for (int column = 0; column < HIDDEN; column++) {
            float *value = t.given + (FIRST_ROWS + 2) * f.columns + part * HIDDEN + column;
            *value += 1;
        }
        read_text(&f, &t, 0, 7, &other);
        assert_memory_not_equal(other.logits, first.logits, sizeof first.logits);
        first = other;
    }
    merged_text_free(&t);
    pictured_close(&f);
}

#define WITH(folder, test) \
    { .name = #test " " #folder, .test_func = test, .initial_state = (void *)(uintptr_t)folder }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_positions),
                                       WITH(older, test_grids_are_checked),
                                       WITH(older, test_rows_are_taken_over),
                                       WITH(newer, test_rows_are_taken_over),
                                       WITH(states, test_states_are_taken_over),
                                       WITH(older, test_texts_do_not_meet),
                                       WITH(newer, test_texts_do_not_meet),
                                       WITH(states, test_texts_do_not_meet),
                                       WITH(older, test_rewound),
                                       WITH(newer, test_rewound),
                                       WITH(states, test_rewound),
                                       WITH(newer, test_deepstack_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
