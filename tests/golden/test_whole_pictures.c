/* tests/golden/test_whole_pictures.c: rows of a picture that see each other, in layers with windows
 * shorter than a picture and in full ones. However a text is cut into steps, whatever it takes
 * over, within a picture too, and beside other texts, its logits are the same bits; a step that
 * would cut a picture is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "tests/folder.h"

enum { HIDDEN = 32, VOCAB = 64, WORDS = 140, PICTURES = 2, MORE = 20, DRAWN = 3 };
enum { TOGETHER = 16, FIRST = 40, SECOND = 100 }; /* where the pictures stand among the words */
enum { SECOND_AT = SECOND + TOGETHER - 1, SECOND_END = SECOND_AT + TOGETHER };
enum { ROWS = WORDS + PICTURES * (TOGETHER - 1), MOST = ROWS + DRAWN + MORE };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
};

static void open_fixture(struct fixture *f, int kept) {
    struct error e = {0};
    const struct backend_options options = {.threads = 2};
    const struct session_limits limits = {.max_sessions = 2,
                                          .max_tokens = MOST,
                                          .max_step_rows = 2 * MOST,
                                          .max_logit_rows = MOST,
                                          .max_given = 2 * MOST,
                                          .max_shares = 2,
                                          .kv_dtype = DTYPE_F32,
                                          .kept_blocks = kept};
    if (backend_open(&f->backend, "cpu", &options, &e) || comm_open_single(&f->comm, &e) ||
        model_open(&f->model, "tests/golden/vision/gemma3_a", f->backend, f->comm,
                   &(struct model_options){0}, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
}

static void close_fixture(struct fixture *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* A text of words with two pictures, of which the second is made of `seed`. */
static void make_text(struct merged_text *out, const struct model *m, int seed, int words) {
    struct merged_picture pictures[PICTURES];
    struct error e = {0};
    int32_t ids[WORDS + MORE];
    float rows[PICTURES][TOGETHER * HIDDEN];
    for (int i = 0; i < words; i++) ids[i] = i * 7 % 60;
    ids[FIRST] = ids[SECOND] = model_picture_id(m);
    for (int i = 0; i < PICTURES; i++) {
        int from = i == 1 ? seed : 1;
        for (int j = 0; j < TOGETHER * HIDDEN; j++)
            rows[i][j] = (float)((from * 31 + j * 17) % 101) / 50 - 1;
        pictures[i] = (struct merged_picture){.rows = rows[i], .tiles = 1, .tile_rows = TOGETHER};
        pictures[i].name.picture[0] = from;
    }
    if (picture_rows_text(out, m, &(struct picture_text){ids, words, pictures, PICTURES}, &e))
        fail_msg("%s", e.text);
    assert_int_equal(out->n, words - WORDS + ROWS);
}

static int count_given(const int32_t *ids, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += ids[i] < 0;
    return given;
}

/* The logits of the text's last row, and of rows that are drawn behind it. */
struct reading {
    float logits[DRAWN + 1][VOCAB];
    int reused;
};

static void take_logits(const struct fixture *f, struct tensor logits, float *to) {
    struct error e = {0};
    backend_download(f->backend, to, logits.data, (size_t)logits.rows * VOCAB * sizeof *to);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
}

/* The n rows of a text from `at` on. */
static struct step_item make_item(struct session *s, const struct merged_text *t, int at, int n) {
    bool given = count_given(t->ids + at, n) > 0;
    return (struct step_item){.session = s,
                              .tokens = t->ids + at,
                              .n_tokens = n,
                              .names = t->names,
                              .rows = given ? t->given + count_given(t->ids, at) * HIDDEN : NULL,
                              .n_logits = at + n == t->n};
}

static void step(const struct fixture *f, const struct step_item *item, struct tensor *logits) {
    struct error e = {0};
    if (session_step(f->pool, item, 1, logits, &e)) fail_msg("%s", e.text);
}

/* Takes over what is there of the text's first `most` rows, and reads the others in steps of so
 * many rows at most. */
static void read_text(const struct fixture *f, const struct merged_text *t, int most, int rows,
                      struct reading *out) {
    struct session *s;
    struct tensor logits;
    struct error e = {0};
    if (session_open(&s, f->pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    const struct session_text text = {.ids = t->ids, .n = most, .names = t->names};
    out->reused = session_reuse(s, &text);
    for (int at = session_length(s); at < t->n; at = session_length(s)) {
        int n = picture_rows_fit(f->model, t->ids + at, t->n - at, rows);
        struct step_item item = make_item(s, t, at, n);
        step(f, &item, &logits);
    }
    take_logits(f, logits, out->logits[0]);
    for (int i = 0; i < DRAWN; i++) {
        const int32_t id = 11 + i;
        struct step_item item = {
            .session = s, .tokens = &id, .n_tokens = 1, .names = t->names, .n_logits = 1};
        step(f, &item, &logits);
        take_logits(f, logits, out->logits[i + 1]);
    }
    session_close(s);
}

static void test_rows_that_fit(void **state) {
    (void)state;
    struct fixture f;
    struct merged_text t;
    open_fixture(&f, 0);
    make_text(&t, f.model, 1, WORDS);
    assert_int_equal(picture_rows_together(f.model), TOGETHER);
    assert_int_equal(picture_rows_left(f.model, t.ids[FIRST - 1]), 0);
    assert_int_equal(picture_rows_left(f.model, t.ids[FIRST]), TOGETHER);
    assert_int_equal(picture_rows_left(f.model, t.ids[FIRST + TOGETHER - 1]), 1);
    assert_int_equal(picture_rows_left(f.model, t.ids[SECOND_AT + 3]), TOGETHER - 3);
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
    close_fixture(&f);
}

static void test_cuts(void **state) {
    (void)state;
    static const int steps[] = {TOGETHER, TOGETHER + 1, 30, 60, 150};
    struct fixture f;
    struct merged_text t;
    struct reading whole, cut;
    open_fixture(&f, 0);
    make_text(&t, f.model, 1, WORDS);
    read_text(&f, &t, 0, MOST, &whole);
    for (size_t i = 0; i < ARRAY_COUNT(steps); i++) {
        read_text(&f, &t, 0, steps[i], &cut);
        assert_memory_equal(cut.logits, whole.logits, sizeof whole.logits);
    }
    merged_text_free(&t);
    close_fixture(&f);
}

/* The second picture lies on both sides of the end of a block. */
static void test_rows_are_taken_over(void **state) {
    (void)state;
    struct fixture plain, keeping;
    struct merged_text t, other, longer;
    struct reading whole, first, again, part, elsewhere, elsewhere_plain, on, on_plain;
    open_fixture(&plain, 0);
    open_fixture(&keeping, 16);
    make_text(&t, plain.model, 1, WORDS);
    make_text(&other, plain.model, 2, WORDS);
    make_text(&longer, plain.model, 1, WORDS + MORE);
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
    close_fixture(&plain);
    close_fixture(&keeping);
}

/* A picture of one text beside words and a picture of another. */
static void test_texts_do_not_meet(void **state) {
    (void)state;
    struct fixture f;
    struct error e = {0};
    struct merged_text t[2];
    struct reading alone[2];
    struct session *s[2];
    struct tensor logits;
    float together[2][VOCAB];
    open_fixture(&f, 0);
    for (int i = 0; i < 2; i++) {
        make_text(&t[i], f.model, 1 + i, WORDS);
        read_text(&f, &t[i], 0, MOST, &alone[i]);
        if (session_open(&s[i], f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    }
    struct step_item first = make_item(s[0], &t[0], 0, SECOND_AT);
    step(&f, &first, &logits);
    struct step_item both[] = {make_item(s[1], &t[1], 0, ROWS),
                               make_item(s[0], &t[0], SECOND_AT, ROWS - SECOND_AT)};
    if (session_step(f.pool, both, 2, &logits, &e)) fail_msg("%s", e.text);
    take_logits(&f, logits, together[0]);
    assert_memory_equal(together[0], alone[1].logits[0], sizeof together[0]);
    assert_memory_equal(together[1], alone[0].logits[0], sizeof together[1]);
    for (int i = 0; i < 2; i++) {
        merged_text_free(&t[i]);
        session_close(s[i]);
    }
    close_fixture(&f);
}

/* All logits of the text in one step, [ROWS, VOCAB] owned; and how row FIRST shares out its
 * attention: to all keys, and to the last row of its picture. */
static float *read_all(const struct fixture *f, const struct merged_text *t, float shares[2]) {
    static const struct key_group groups[] = {{0, ROWS}, {FIRST + TOGETHER - 1, 1}};
    float *all = xmalloc((size_t)ROWS * VOCAB * sizeof *all), told[ROWS][4];
    struct session *s;
    struct tensor logits;
    struct error e = {0};
    if (session_open(&s, f->pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    struct step_item item = make_item(s, t, 0, ROWS);
    item.n_logits = item.n_self_shares = ROWS;
    item.groups = groups;
    item.n_groups = 2;
    step(f, &item, &logits);
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
    struct fixture f;
    struct merged_text t;
    float shares[2];
    open_fixture(&f, 0);
    make_text(&t, f.model, 1, WORDS);
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
    close_fixture(&f);
}

static void refuse(const struct fixture *f, struct session *s, const struct merged_text *t, int at,
                   int n, const char *words) {
    struct error e = {0};
    struct tensor logits;
    struct step_item item = make_item(s, t, at, n);
    int length = session_length(s);
    assert_int_equal(session_step(f->pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, words));
    assert_int_equal(session_length(s), length);
}

static void test_cut_pictures_are_refused(void **state) {
    (void)state;
    struct fixture f;
    struct session *s;
    struct error e = {0};
    struct tensor logits;
    struct merged_text t;
    open_fixture(&f, 0);
    make_text(&t, f.model, 1, WORDS);
    if (session_open(&s, f.pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    refuse(&f, s, &t, FIRST + 2, TOGETHER - 2, "begins with the last 14 rows of a picture");
    refuse(&f, s, &t, 0, FIRST + 1, "15 rows that see each other are left of it");
    refuse(&f, s, &t, 0, FIRST + TOGETHER - 1, "1 rows that see each other are left of it");
    t.ids[FIRST + 4] = 7;
    refuse(&f, s, &t, 0, ROWS, "token 43 is followed by no more of its picture");
    t.ids[FIRST + 4] = t.ids[FIRST + 3] - 1;
    struct step_item item = make_item(s, &t, 0, FIRST + TOGETHER);
    step(&f, &item, &logits);
    session_close(s);
    merged_text_free(&t);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_fit),       cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_rows_are_taken_over), cmocka_unit_test(test_texts_do_not_meet),
        cmocka_unit_test(test_rows_see_each_other), cmocka_unit_test(test_cut_pictures_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
