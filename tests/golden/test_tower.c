/* tests/golden/test_tower.c: a picture's rows are the same bits alone and beside others; a text
 * with pictures takes over the rows that an earlier session computed of the same pictures, and of
 * no others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"
#include "retro/run/tower/picture_rows.h"
#include "retro/run/tower/tower.h"
#include "tests/folder.h"

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
};

static void open_fixture(struct fixture *f, const char *folder) {
    struct error e = {0};
    const struct backend_options options = {.threads = 2};
    if (backend_open(&f->backend, "cpu", &options, &e) || comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &(struct model_options){0}, &e))
        fail_msg("%s", e.text);
}

static void close_fixture(struct fixture *f) {
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

static float *make_pixels(unsigned seed, int height, int width) {
    size_t n = 3 * (size_t)height * (size_t)width;
    float *pixels = malloc(n * sizeof *pixels);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        pixels[i] = (float)(seed >> 16 & 1023) / 512 - 1;
    }
    return pixels;
}

enum { PICTURES = 4 };

/* Pictures of several sizes through one tower: the limit of rows, of which the largest picture has
 * `most`, cuts the list into passes. */
static void check_pictures_apart(const char *folder, enum tower_end end,
                                 const int sizes[PICTURES][2], int most) {
    struct fixture f;
    struct error e = {0};
    struct tower *tower;
    struct tower_picture pictures[PICTURES];
    size_t values = 0;
    open_fixture(&f, folder);
    size_t d = (size_t)tower_columns(f.model, end);
    for (int i = 0; i < PICTURES; i++) {
        pictures[i] = (struct tower_picture){make_pixels((unsigned)i, sizes[i][0], sizes[i][1]),
                                             sizes[i][0], sizes[i][1]};
        values += (size_t)tower_count(f.model, end, sizes[i][0], sizes[i][1]) * d;
    }
    float *together = malloc(values * sizeof *together), *alone = malloc(values * sizeof *alone);
    const int limits[] = {most, most * 10 / 7, most * 10};
    for (size_t k = 0; k < ARRAY_COUNT(limits); k++) {
        if (tower_open(&tower, f.model, limits[k], &e) ||
            tower_run(tower, pictures, PICTURES, end, together, &e))
            fail_msg("%s", e.text);
        size_t at = 0;
        for (int i = 0; i < PICTURES; i++) {
            assert_int_equal(tower_run(tower, &pictures[i], 1, end, alone + at, &e), STATUS_OK);
            at += (size_t)tower_count(f.model, end, sizes[i][0], sizes[i][1]) * d;
        }
        assert_memory_equal(together, alone, values * sizeof *together);
        tower_close(tower);
    }

    char words[60];
    snprintf(words, sizeof words, "is %d rows, the limit is %d", most, most - 1);
    assert_int_equal(tower_open(&tower, f.model, most - 1, &e), STATUS_OK);
    assert_int_equal(tower_run(tower, pictures, PICTURES, end, together, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, words));
    tower_close(tower);
    for (int i = 0; i < PICTURES; i++) free((void *)(uintptr_t)pictures[i].pixels);
    free(together);
    free(alone);
    close_fixture(&f);
}

/* RADIO reads any size. */
static void test_pictures_do_not_meet(void **state) {
    (void)state;
    const int sizes[PICTURES][2] = {{64, 64}, {32, 56}, {48, 16}, {72, 80}};
    check_pictures_apart("tests/golden/vision/radio_a", TOWER_ROWS, sizes, 98);
}

/* Towers of Qwen2-VL do, too; windows of several pictures stand in one pass. */
static void test_windows_do_not_meet(void **state) {
    (void)state;
    const int sizes[PICTURES][2] = {{32, 64}, {8, 8}, {56, 8}, {56, 72}};
    check_pictures_apart("tests/golden/vision/hf_qwen2_vl", TOWER_PROJECTED, sizes, 14 * 18);
    check_pictures_apart("tests/golden/vision/hf_qwen2_5_vl", TOWER_PROJECTED, sizes, 14 * 18);
    check_pictures_apart("tests/golden/vision/hf_qwen3_vl", TOWER_PROJECTED, sizes, 14 * 18);
}

/* So does Gemma 4's, whose rows are means of squares; its means of several pictures stand in one
 * pass. */
static void test_means_do_not_meet(void **state) {
    (void)state;
    const int sizes[PICTURES][2] = {{12, 24}, {6, 6}, {54, 6}, {42, 48}};
    check_pictures_apart("tests/golden/vision/gemma4_a", TOWER_PROJECTED, sizes, 21 * 24);
    check_pictures_apart("tests/golden/vision/gemma4_b", TOWER_PROJECTED, sizes, 21 * 24);
}

/* A pass in parts gives what a whole one gives; one that was left behind leaves nothing. */
static void test_a_pass_in_parts(void **state) {
    (void)state;
    struct fixture f;
    struct error e = {0};
    struct tower *tower;
    enum { TILE = 32, VALUES = 4 * 32, TILES = 3 };
    float *pixels = make_pixels(3, TILES * TILE, TILE);
    struct tower_picture tiles[TILES];
    float whole[TILES * VALUES], parts[TILES * VALUES];
    open_fixture(&f, "tests/golden/vision/llava_b");
    for (int i = 0; i < TILES; i++)
        tiles[i] = (struct tower_picture){pixels + i * 3 * TILE * TILE, TILE, TILE};
    int rows = tower_count(f.model, TOWER_ROWS, TILE, TILE), taken, layers = 0;
    if (tower_open(&tower, f.model, 2 * rows, &e) ||
        tower_run(tower, tiles, TILES, TOWER_PROJECTED, whole, &e))
        fail_msg("%s", e.text);

    bool done = false;
    assert_int_equal(tower_begin(tower, tiles + 1, 2, TOWER_PROJECTED, &taken, &e), STATUS_OK);
    assert_int_equal(tower_advance(tower, parts, &done, &e), STATUS_OK);
    assert_false(done);
    assert_int_equal(tower_begin(tower, tiles, TILES, TOWER_PROJECTED, &taken, &e), STATUS_OK);
    assert_int_equal(taken, 2);
    while (!done) {
        assert_int_equal(tower_advance(tower, parts, &done, &e), STATUS_OK);
        layers++;
    }
    assert_true(layers > 1);
    assert_int_equal(tower_run(tower, tiles + 2, 1, TOWER_PROJECTED, parts + 2 * VALUES, &e),
                     STATUS_OK);
    assert_memory_equal(whole, parts, sizeof whole);
    tower_close(tower);
    free(pixels);
    close_fixture(&f);
}

static void test_sizes_are_checked(void **state) {
    (void)state;
    struct fixture f;
    struct error e = {0};
    open_fixture(&f, "tests/golden/vision/llava_b");
    assert_int_equal(tower_check(f.model, 32, 32, &e), STATUS_OK);
    assert_int_equal(tower_check(f.model, 32, 40, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "the model reads 32 x 32"));
    assert_int_equal(tower_count(f.model, TOWER_PROJECTED, 32, 32), 4);
    close_fixture(&f);
    open_fixture(&f, "tests/golden/vision/radio_a");
    assert_int_equal(tower_check(f.model, 32, 36, &e), STATUS_INVALID);
    assert_int_equal(tower_check(f.model, 1 << 20, 8, &e), STATUS_TOO_LARGE);
    assert_int_equal(tower_check(f.model, 8, 0, &e), STATUS_TOO_LARGE);
    close_fixture(&f);

    int lines, columns;
    open_fixture(&f, "tests/golden/vision/hf_qwen2_5_vl");
    assert_int_equal(tower_check(f.model, 8, 24, &e), STATUS_OK);
    assert_int_equal(tower_check(f.model, 12, 24, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "3 x 6 patches"));
    tower_grid(f.model, 16, 24, &lines, &columns);
    assert_true(lines == 2 && columns == 3);
    assert_int_equal(tower_count(f.model, TOWER_PROJECTED, 16, 24), lines * columns);
    close_fixture(&f);
}

/* 160 words, a picture, 60 words: more than a block of keys and values before and with the picture.
 */
enum { WORDS = 220, PLACE = 100, SIDE = 32, ROWS = WORDS + 3, VOCAB = 256, STEP = 90 };

struct seen {
    struct merged_text text;
    float logits[VOCAB];
    int reused;
};

static struct session_pool *open_pool(const struct fixture *f, int kept) {
    struct error e = {0};
    struct session_pool *pool;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = ROWS,
                                    .max_step_rows = ROWS,
                                    .max_logit_rows = 1,
                                    .max_given = STEP,
                                    .max_picture_rows = 64,
                                    .kv_dtype = DTYPE_F32,
                                    .kept_blocks = kept};
    if (session_pool_open(&pool, f->model, &limits, &e)) fail_msg("%s", e.text);
    return pool;
}

static int count_given(const int32_t *ids, int n) {
    int given = 0;
    for (int i = 0; i < n; i++) given += ids[i] < 0;
    return given;
}

/* Reads a text about the picture made of `seed`, in steps of so many rows; its last row's logits.
 */
static void read_text(struct fixture *f, struct session_pool *pool, unsigned seed,
                      struct seen *out) {
    struct error e = {0};
    struct session *s;
    struct tensor logits;
    int32_t ids[WORDS];
    float rows[4 * 32];
    float *pixels = make_pixels(seed, SIDE, SIDE);
    struct tower_picture picture = {pixels, SIDE, SIDE};
    for (int i = 0; i < WORDS; i++) ids[i] = i * 7 % 240;
    ids[PLACE] = model_picture_id(f->model);
    if (session_encode_pictures(pool, &picture, 1, rows, &e)) fail_msg("%s", e.text);
    struct merged_picture merged = {
        .rows = rows, .tiles = 1, .tile_rows = 4, .name = {.picture = {7, 7, 7, (int32_t)seed}}};
    struct picture_text asked = {ids, WORDS, &merged, 1, {0}};
    if (picture_rows_text(&out->text, f->model, &asked, &e)) fail_msg("%s", e.text);
    assert_int_equal(out->text.n, ROWS);

    if (session_open(&s, pool, (struct grid){0}, &e)) fail_msg("%s", e.text);
    struct session_text text = {.ids = out->text.ids, .names = out->text.names, .n = ROWS - 1};
    out->reused = session_reuse(s, &text);
    for (int at = session_length(s); at < ROWS; at += STEP) {
        int n = min_int(STEP, ROWS - at), before = count_given(out->text.ids, at);
        bool given = count_given(out->text.ids + at, n) > 0;
        struct step_item item = {.session = s,
                                 .tokens = out->text.ids + at,
                                 .n_tokens = n,
                                 .names = out->text.names,
                                 .n_logits = at + n == ROWS,
                                 .rows = given ? out->text.given + before * 32 : NULL};
        if (session_step(pool, &item, 1, &logits, &e)) fail_msg("%s", e.text);
    }
    backend_download(f->backend, out->logits, logits.data, sizeof out->logits);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
    session_close(s);
    free(pixels);
}

static void test_pictures_are_taken_over(void **state) {
    (void)state;
    struct fixture f;
    struct seen plain, first, again, other, other_plain;
    open_fixture(&f, "tests/golden/vision/llava_b");
    struct session_pool *pool = open_pool(&f, 0);
    read_text(&f, pool, 5, &plain);
    read_text(&f, pool, 6, &other_plain);
    session_pool_close(pool);
    pool = open_pool(&f, 8);
    read_text(&f, pool, 5, &first);
    read_text(&f, pool, 5, &again);
    read_text(&f, pool, 6, &other);
    session_pool_close(pool);

    assert_int_equal(plain.reused, 0);
    assert_int_equal(first.reused, 0);
    assert_int_equal(again.reused, ROWS - 1);
    assert_int_equal(other.reused, PLACE); /* up to the picture */
    assert_memory_equal(first.logits, plain.logits, sizeof plain.logits);
    assert_memory_equal(again.logits, plain.logits, sizeof plain.logits);
    assert_memory_equal(other.logits, other_plain.logits, sizeof plain.logits);
    assert_memory_not_equal(other.logits, plain.logits, sizeof plain.logits);
    struct seen *all[] = {&plain, &first, &again, &other, &other_plain};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) merged_text_free(&all[i]->text);
    close_fixture(&f);
}

static void test_places_are_counted(void **state) {
    (void)state;
    struct fixture f;
    struct error e = {0};
    struct merged_text t;
    float rows[4 * 32] = {0};
    const struct merged_picture picture = {
        .rows = rows, .tiles = 1, .tile_rows = 4, .name = {.picture = {1, 2}}};
    const int32_t ids[] = {1, -200, 2};
    open_fixture(&f, "tests/golden/vision/llava_a");
    struct picture_text text = {ids, 3, &picture, 0, {0}};
    assert_int_equal(picture_rows_text(&t, f.model, &text, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "1 places for pictures, and 0 pictures"));
    text.n_pictures = 1;
    assert_int_equal(picture_rows_text(&t, f.model, &text, &e), STATUS_OK);
    assert_int_equal(t.n, 6);
    assert_int_equal(t.positions[5], 2); /* a picture counts once */
    assert_true(t.ids[1] < 0 && t.ids[2] < 0 && t.ids[1] != t.ids[2]);
    merged_text_free(&t);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures_do_not_meet), cmocka_unit_test(test_windows_do_not_meet),
        cmocka_unit_test(test_means_do_not_meet),    cmocka_unit_test(test_a_pass_in_parts),
        cmocka_unit_test(test_sizes_are_checked),    cmocka_unit_test(test_pictures_are_taken_over),
        cmocka_unit_test(test_places_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
