/* tests/unit/test_quantise.c: blocks of 8 and 4 bits: error bounds, exact values, the search
 * against plain rounding and against a finer search, importance, and what cannot be stored. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/quantise.h"

enum { COLS = 8 * QUANTISE_BLOCK, BLOCKS = COLS / QUANTISE_BLOCK };

/* Room for one row, and what it becomes. */
struct row {
    uint8_t values[COLS];
    uint16_t scales[BLOCKS], minimums[BLOCKS];
    float back[COLS];
};

static struct quantised_row view(struct row *r) {
    return (struct quantised_row){r->values, r->scales, r->minimums};
}

static bool round_trip(struct row *r, enum dtype t, const float *w, const float *importance) {
    if (!quantise_row(t, view(r), w, importance, COLS)) return false;
    dequantise_row(r->back, t, view(r), COLS);
    return true;
}

/* Roughly normal numbers: sums of four uniform ones. */
static void draw(float *w, int n, float scale, unsigned seed) {
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
        }
        w[j] = scale * sum;
    }
}

static void test_int8_error(void **state) {
    (void)state;
    static const float scales[] = {1e-4f, 0.02f, 1.0f, 300.0f};
    for (size_t s = 0; s < ARRAY_COUNT(scales); s++) {
        float w[COLS];
        struct row r;
        draw(w, COLS, scales[s], 1u + (unsigned)s);
        assert_true(round_trip(&r, DTYPE_INT8, w, NULL));
        for (int b = 0; b < BLOCKS; b++) {
            float largest = 0;
            for (int j = b * QUANTISE_BLOCK; j < (b + 1) * QUANTISE_BLOCK; j++)
                largest = fmaxf(largest, fabsf(w[j]));
            /* Half a step, and what rounding the scale moves the largest weight: 2^-11, or the f16
             * grid's 2^-25 * 127.
             */
            float bound = largest * (0.5f / 127 + 0x1p-11f) + 127 * 0x1p-25f;
            for (int j = b * QUANTISE_BLOCK; j < (b + 1) * QUANTISE_BLOCK; j++) {
                assert_true(fabsf(w[j] - r.back[j]) <= bound);
                assert_true(((int8_t *)r.values)[j] >= -127);
            }
        }
    }
}

/* Values that the formats hold exactly come back exactly. */
static void test_exact_values(void **state) {
    (void)state;
    float w[COLS];
    struct row r;
    for (int j = 0; j < COLS; j++) w[j] = 0.25f * (float)(j % 255 - 127);
    for (int b = 0; b < BLOCKS; b++) w[b * QUANTISE_BLOCK] = 0.25f * 127;
    assert_true(round_trip(&r, DTYPE_INT8, w, NULL));
    assert_memory_equal(w, r.back, sizeof w);
    for (int j = 0; j < COLS; j++) w[j] = 0.5f * (float)(j * 7 % 16) - 3.0f;
    assert_true(round_trip(&r, DTYPE_INT4, w, NULL));
    assert_memory_equal(w, r.back, sizeof w);
    assert_int_equal(r.values[0], 0 | 7 << 4); /* the even index in the low half */
    for (int j = 0; j < COLS; j++) w[j] = j < QUANTISE_BLOCK ? 0.0f : -1.5f; /* no spread */
    assert_true(round_trip(&r, DTYPE_INT4, w, NULL));
    assert_memory_equal(w, r.back, sizeof w);
    memset(w, 0, sizeof w);
    assert_true(round_trip(&r, DTYPE_INT8, w, NULL));
    assert_memory_equal(w, r.back, sizeof w);
}

/* Rounding to the block's own range: the start that the search must improve on. */
static double plain_error(const float *w, const float *importance) {
    double error = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const float *block = w + b * QUANTISE_BLOCK, *v = importance + b * QUANTISE_BLOCK;
        float low = block[0], high = block[0];
        for (int j = 1; j < QUANTISE_BLOCK; j++) {
            low = fminf(low, block[j]);
            high = fmaxf(high, block[j]);
        }
        float scale = (high - low) / 15;
        for (int j = 0; j < QUANTISE_BLOCK; j++) {
            float off = block[j] - (low + scale * nearbyintf((block[j] - low) / scale));
            error += (double)(v[j] * off * off);
        }
    }
    return error;
}

static double weighted_error(const float *w, const float *back, const float *importance) {
    double error = 0;
    for (int j = 0; j < COLS; j++)
        error += (double)importance[j] * ((double)w[j] - (double)back[j]) *
                 ((double)w[j] - (double)back[j]);
    return error;
}

/* The least error over a grid of scales and minimums far finer than the search's: what there is to
 * find. */
static double finest_error(const float *block) {
    float low = block[0], high = block[0];
    double best = INFINITY;
    for (int j = 1; j < QUANTISE_BLOCK; j++) {
        low = fminf(low, block[j]);
        high = fmaxf(high, block[j]);
    }
    float step = (high - low) / 15;
    for (int a = -20; a <= 80; a++)
        for (int b = -20; b <= 80; b++) {
            float minimum = low + 0.025f * (float)a * step,
                  scale = (high - 0.025f * (float)b * step - minimum) / 15;
            double error = 0;
            for (int j = 0; j < QUANTISE_BLOCK; j++) {
                float q = fminf(15, fmaxf(0, nearbyintf((block[j] - minimum) / scale)));
                float off = block[j] - minimum - scale * q;
                error += (double)(off * off);
            }
            best = fmin(best, error);
        }
    return best;
}

static void test_int4_search(void **state) {
    (void)state;
    float w[COLS], ones[COLS];
    struct row r;
    double found = 0, finest = 0, plain = 0;
    for (int j = 0; j < COLS; j++) ones[j] = 1;
    for (unsigned seed = 1; seed <= 8; seed++) {
        draw(w, COLS, 0.05f, seed);
        assert_true(round_trip(&r, DTYPE_INT4, w, NULL));
        found += weighted_error(w, r.back, ones);
        plain += plain_error(w, ones);
        for (int b = 0; b < BLOCKS; b++) finest += finest_error(w + b * QUANTISE_BLOCK);
    }
    assert_true(found < 0.9 * plain);
    assert_true(found < 1.05 * finest);
}

/* With importance the weighted error falls, at the price of the plain one. */
static void test_importance(void **state) {
    (void)state;
    float w[COLS], importance[COLS], ones[COLS];
    struct row with, without;
    draw(w, COLS, 0.05f, 3);
    for (int j = 0; j < COLS; j++) {
        importance[j] = j % 5 == 0 ? 30.0f : 0.2f;
        ones[j] = 1;
    }
    assert_true(round_trip(&with, DTYPE_INT4, w, importance));
    assert_true(round_trip(&without, DTYPE_INT4, w, NULL));
    assert_true(weighted_error(w, with.back, importance) <
                0.8 * weighted_error(w, without.back, importance));
    assert_true(weighted_error(w, with.back, ones) > weighted_error(w, without.back, ones));
    /* A text that never reaches these columns is no reason to spoil them. */
    memset(importance, 0, sizeof importance);
    assert_true(round_trip(&with, DTYPE_INT4, w, importance));
    assert_memory_equal(with.back, without.back, sizeof with.back);
}

static void test_refusals(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e8f};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        for (int t = DTYPE_INT8; t <= DTYPE_INT4; t++) {
            float w[COLS];
            struct row r;
            draw(w, COLS, 1, 5);
            w[77] = bad[i];
            assert_false(quantise_row((enum dtype)t, view(&r), w, NULL, COLS));
        }
}

/* Weights so small that f16 has no step for them keep their size instead of becoming NaN. */
static void test_tiny(void **state) {
    (void)state;
    for (int t = DTYPE_INT8; t <= DTYPE_INT4; t++) {
        float w[COLS];
        struct row r;
        draw(w, COLS, 1e-9f, 5);
        assert_true(round_trip(&r, (enum dtype)t, w, NULL));
        for (int j = 0; j < COLS; j++) assert_true(fabsf(r.back[j]) <= 2e-7f);
    }
}

static void test_rows_and_deviation(void **state) {
    (void)state;
    uint8_t values[3 * COLS];
    uint16_t scales[3 * BLOCKS], minimums[3 * BLOCKS];
    struct quantised_row first = {values, scales, minimums};
    struct quantised_row row = quantised_row_at(first, DTYPE_INT8, COLS, 2);
    assert_ptr_equal(row.values, values + 2 * COLS);
    assert_ptr_equal(row.scales, scales + 2 * BLOCKS);
    assert_null(row.minimums);
    row = quantised_row_at(first, DTYPE_INT4, COLS, 2);
    assert_ptr_equal(row.values, values + COLS);
    assert_ptr_equal(row.minimums, minimums + 2 * BLOCKS);
    struct deviation d = {0};
    assert_true(deviation_relative(&d) == 0);
    deviation_add(&d, (float[]){3, 4}, (float[]){3, 4.5f}, 2);
    assert_true(fabs(deviation_relative(&d) - 0.1) < 1e-12 && d.largest == 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8_error),         cmocka_unit_test(test_exact_values),
        cmocka_unit_test(test_int4_search),        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_rows_and_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
