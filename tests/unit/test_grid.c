/* tests/unit/test_grid.c: the chunk grid against a restatement that cuts rows one at a time, for
 * every prompt and length below 300. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/base/base.h"
#include "retro/model/grid.h"

enum { ROWS = 300 };
static const int chunk_lengths[] = {1, 2, 3, 8, 64};

/* chunk_of[p] by cutting: the first chunk takes P mod m rows (m when that is 0), the others m each;
 * the prompt's end is then a chunk end. GRID_START cuts m rows from the start. */
static void cut_rows(enum grid_mode mode, int prompt, int m, int *chunk_of) {
    int left = m;
    if (mode == GRID_END)
        for (int cut = prompt; cut > 0; cut -= m)
            left = cut; /* rows before the earliest cut from the end */
    int chunk = 0;
    for (int p = 0; p < ROWS; p++) {
        if (left == 0) {
            chunk++;
            left = m;
        }
        chunk_of[p] = chunk;
        left--;
    }
}

/* Row p reads the last chunk that is complete when row p itself is there. */
static int read_by_cutting(const int *chunk_of, int p) {
    int last = -1;
    for (int q = 0; q <= p; q++)
        if (q + 1 < ROWS && chunk_of[q + 1] != chunk_of[q]) last = chunk_of[q];
    return last;
}

static void check_rows(struct grid g, const int *chunk_of) {
    for (int p = 0; p + 1 < ROWS; p++) {
        int j = chunk_of[p];
        bool closes = chunk_of[p + 1] != j;
        assert_true(grid_start(g, j) <= p && p < grid_end(g, j));
        assert_int_equal(grid_end(g, j), grid_start(g, j + 1));
        assert_int_equal(grid_closes(g, p), closes);
        int read = read_by_cutting(chunk_of, p);
        assert_int_equal(grid_read(g, p), read);
        assert_int_equal(grid_complete(g, p + 1), read + 1);
        if (closes) assert_int_equal(read, j);
        if (!closes) assert_int_equal(read, j - 1);
    }
}

static void test_every_grid(void **state) {
    (void)state;
    static int chunk_of[ROWS];
    for (size_t i = 0; i < ARRAY_COUNT(chunk_lengths); i++) {
        int m = chunk_lengths[i];

        for (int prompt = 1; prompt < ROWS; prompt++) {
            for (int mode = GRID_END; mode <= GRID_START; mode++) {
                cut_rows((enum grid_mode)mode, prompt, m, chunk_of);
                check_rows(grid_make((enum grid_mode)mode, prompt, m), chunk_of);
            }
        }
    }
}

/* The grid at the prompt's end is Megatron's for a whole sequence of that length, spec 5.5: l =
 * ceil(n / m) chunks, the first window of queries starts at row (n - 1) mod m, window c reads chunk
 * c. */
static void test_whole_sequences(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(chunk_lengths); i++) {
        int m = chunk_lengths[i];
        for (int n = 1; n < ROWS; n++) {
            struct grid g = grid_make(GRID_END, n, m);
            assert_int_equal(grid_complete(g, n), (n + m - 1) / m);
            assert_true(grid_closes(g, n - 1));
            int pad = (n - 1) % m;
            for (int p = 0; p < n; p++)
                assert_int_equal(grid_read(g, p), p < pad ? -1 : (p - pad) / m);
        }
    }
}

/* The rows of spec 5.5's table of worked layouts. */
static void test_table(void **state) {
    (void)state;
    static const struct {
        int n, chunks, first, last_start;
    } rows[] = {{200, 4, 8, 136}, {192, 3, 64, 128}, {65, 2, 1, 1},
                {64, 1, 64, 0},   {63, 1, 63, 0},    {1, 1, 1, 0}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct grid g = grid_make(GRID_END, rows[i].n, 64);
        assert_int_equal(g.f, rows[i].first);
        assert_int_equal(grid_complete(g, rows[i].n), rows[i].chunks);
        assert_int_equal(grid_start(g, rows[i].chunks - 1), rows[i].last_start);
        assert_int_equal(grid_end(g, rows[i].chunks - 1), rows[i].n);
    }
    struct grid g = grid_make(GRID_START, 200, 64);
    assert_int_equal(grid_complete(g, 200), 3);
    assert_int_equal(grid_read(g, 62), -1);
    assert_int_equal(grid_read(g, 63), 0);
    assert_int_equal(grid_read(g, 199), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_grid),
        cmocka_unit_test(test_whole_sequences),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
