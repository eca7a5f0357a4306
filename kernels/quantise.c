/* kernels/quantise.c: quantised blocks of 32 weights. See quantise.h. */
#include "kernels/quantise.h"

#include <math.h>
#include <string.h>

#include "kernels/mxfp4.h"

/* How far the search moves each end of a block's range inwards: TRIES steps of a fifth of a
 * quantisation step. */
enum { BLOCK = QUANTISE_BLOCK, LEVELS = 15, TRIES = 6 };

struct quantised_row quantised_row_at(struct quantised_row first, enum dtype dtype, int n,
                                      int64_t i) {
    int64_t blocks = n / BLOCK, scale = dtype == DTYPE_MXFP4 ? 1 : sizeof *first.scales;
    return (struct quantised_row){
        .values = (char *)first.values + i * (dtype_two_a_byte(dtype) ? n / 2 : n),
        .scales = (void *)((char *)first.scales + i * blocks * scale),
        .minimums = dtype == DTYPE_INT4 ? first.minimums + i * blocks : NULL,
    };
}

/* To nearest even, |x| < 2^22; without a call, so that loops over a block vectorise. */
static inline float round_even(float x) { return x + 0x1.8p23f - 0x1.8p23f; }
static inline float clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

static bool f16_finite(uint16_t v) { return (v & 0x7c00) != 0x7c00; }

static bool block_finite(const float *w) {
    float sum = 0; /* infinity and NaN survive a product with zero */
    for (int j = 0; j < BLOCK; j++) sum += 0.0f * w[j];
    return sum == 0;
}

static bool block_to_int8(const float *w, int8_t *q, uint16_t *scale) {
    float largest = 0;
    for (int j = 0; j < BLOCK; j++) largest = fmaxf(largest, fabsf(w[j]));
    *scale = f32_to_f16(largest / 127.0f);
    if (!f16_finite(*scale)) return false;
    float rounded = f16_to_f32(*scale), inverse = rounded > 0 ? 1.0f / rounded : 0;
    for (int j = 0; j < BLOCK; j++) q[j] = (int8_t)round_even(clamp(w[j] * inverse, -127, 127));
    return true;
}

/* A block of int4 while it is searched: weights above the block's lowest, which keeps sums
 * accurate. */
struct scale_search {
    float w[BLOCK], v[BLOCK]; /* weight and importance */
    float low, range, sum_v, sum_w;
    /* the best so far */
    uint16_t scale, minimum;
    float error;
};

/* q = the nearest levels under a scale and minimum. */
static void assign(const struct scale_search *search, float scale, float minimum, float q[BLOCK]) {
    float inverse = 1.0f / scale;
#pragma omp simd
    for (int j = 0; j < BLOCK; j++)
        q[j] = round_even(clamp((search->w[j] - minimum) * inverse, 0, LEVELS));
}

/* Least squares: the scale and minimum that suit levels q best; false when q does not tell them. */
static bool fit(const struct scale_search *search, const float q[BLOCK], float *scale,
                float *minimum) {
    float vq = 0, vqq = 0, vwq = 0;
#pragma omp simd reduction(+ : vq, vqq, vwq)
    for (int j = 0; j < BLOCK; j++) {
        vq += search->v[j] * q[j];
        vqq += search->v[j] * q[j] * q[j];
        vwq += search->v[j] * search->w[j] * q[j];
    }
    float determinant = search->sum_v * vqq - vq * vq;
    if (!(determinant > 0)) return false;
    *scale = (search->sum_v * vwq - search->sum_w * vq) / determinant;
    *minimum = (search->sum_w - *scale * vq) / search->sum_v;
    return *scale > 0;
}

/* Takes a scale and minimum, as f16 rounds them, when they are the best so far. */
static void consider(struct scale_search *search, float scale, float minimum) {
    uint16_t half_scale = f32_to_f16(scale), half_minimum = f32_to_f16(minimum + search->low);
    if (!f16_finite(half_scale) || !f16_finite(half_minimum) || half_scale == 0) return;
    float q[BLOCK], error = 0;
    scale = f16_to_f32(half_scale);
    minimum = f16_to_f32(half_minimum) - search->low;
    assign(search, scale, minimum, q);
#pragma omp simd reduction(+ : error)
    for (int j = 0; j < BLOCK; j++) {
        float off = search->w[j] - scale * q[j] - minimum;
        error += search->v[j] * off * off;
    }
    if (error >= search->error) return;
    search->error = error;
    search->scale = half_scale;
    search->minimum = half_minimum;
}

static void search_start(struct scale_search *search, const float *w, const float *importance) {
    float high = w[0];
    *search = (struct scale_search){.low = w[0], .error = INFINITY};
    for (int j = 1; j < BLOCK; j++) {
        search->low = fminf(search->low, w[j]);
        high = fmaxf(high, w[j]);
    }
    search->range = high - search->low;
    for (int j = 0; j < BLOCK; j++) {
        search->w[j] = w[j] - search->low;
        search->v[j] = importance ? importance[j] : 1.0f;
        search->sum_v += search->v[j];
    }
    /* Columns that never see an input say nothing: then all count alike. */
    for (int j = 0; j < BLOCK && !(search->sum_v > 0); j++) search->v[j] = 1.0f;
    if (!(search->sum_v > 0)) search->sum_v = BLOCK;
    for (int j = 0; j < BLOCK; j++) search->sum_w += search->v[j] * search->w[j];
}

/* Ranges with both ends moved inwards, each followed by one round of fitting a line to the levels
 * it gives. */
static void search_run(struct scale_search *search) {
    float step = search->range / LEVELS;
    for (int a = 0; a < TRIES; a++)
        for (int b = 0; b < TRIES; b++) {
            float minimum = 0.2f * (float)a * step,
                  scale = step - 0.2f * (float)(a + b) * step / LEVELS, q[BLOCK];
            if (a + b == 0) consider(search, scale, minimum);
            assign(search, scale, minimum, q);
            if (fit(search, q, &scale, &minimum)) consider(search, scale, minimum);
        }
}

static bool block_to_int4(const float *w, const float *importance, uint8_t *q, uint16_t *scale,
                          uint16_t *minimum) {
    struct scale_search search;
    float levels[BLOCK] = {0};
    search_start(&search, w, importance);
    if (search.range > 0) search_run(&search);
    if (search.error == INFINITY) { /* no spread that f16 can hold: one number stands for all */
        search.scale = 0;
        search.minimum = f32_to_f16(search.low + 0.5f * search.range);
        if (!f16_finite(search.minimum) || search.range > 1.0f) return false;
    } else {
        assign(&search, f16_to_f32(search.scale), f16_to_f32(search.minimum) - search.low, levels);
    }
    for (int j = 0; j < BLOCK; j += 2)
        q[j / 2] = (uint8_t)((int)levels[j] | (int)levels[j + 1] << 4);
    *scale = search.scale;
    *minimum = search.minimum;
    return true;
}

bool quantise_row(enum dtype dtype, struct quantised_row to, const float *w,
                  const float *importance, int n) {
    CHECK((dtype == DTYPE_INT8 || dtype == DTYPE_INT4) && n % BLOCK == 0);
    bool ok = true;
    for (int i = 0; i < n / BLOCK && ok; i++) {
        const float *block = w + i * BLOCK, *v = importance ? importance + i * BLOCK : NULL;
        if (!block_finite(block)) return false;
        ok = dtype == DTYPE_INT8
                 ? block_to_int8(block, (int8_t *)to.values + i * BLOCK, &to.scales[i])
                 : block_to_int4(block, v, (uint8_t *)to.values + i * BLOCK / 2, &to.scales[i],
                                 &to.minimums[i]);
    }
    return ok;
}

void dequantise_row(float *w, enum dtype dtype, struct quantised_row from, int n) {
    if (dtype == DTYPE_MXFP4) {
        mxfp4_widen(w, from.values, (const uint8_t *)from.scales, n);
        return;
    }
    CHECK((dtype == DTYPE_INT8 || dtype == DTYPE_INT4) && n % BLOCK == 0);
    const int8_t *bytes = from.values;
    const uint8_t *halves = from.values;
    for (int j = 0; j < n; j++) {
        float scale = f16_to_f32(from.scales[j / BLOCK]);
        if (dtype == DTYPE_INT8)
            w[j] = scale * (float)bytes[j];
        else
            w[j] = scale * (float)(halves[j / 2] >> 4 * (j & 1) & 15) +
                   f16_to_f32(from.minimums[j / BLOCK]);
    }
}

void deviation_add(struct deviation *deviation, const float *w, const float *approximation, int n) {
    for (int j = 0; j < n; j++) {
        double off = (double)w[j] - (double)approximation[j];
        deviation->squared += off * off;
        deviation->total += (double)w[j] * (double)w[j];
        deviation->largest = fmax(deviation->largest, fabs(off));
    }
}

double deviation_relative(const struct deviation *deviation) {
    return deviation->total > 0 ? sqrt(deviation->squared / deviation->total) : 0;
}
