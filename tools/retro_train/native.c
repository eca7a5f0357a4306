/* tools/retro_train/native.c: operations of a training step that PyTorch computes slowly on a CPU
 * in bfloat16. Here each row is computed in float and in one pass over memory. native.py compiles
 * and calls the functions; tests/train/test_native.py compares them with PyTorch's. Every array is
 * contiguous. */

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float widen(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, ties to even. Not for NaN. */
static inline uint16_t narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* e^x within 3e-7 of it for x in -87..88, which larger and smaller ones are taken for. */
static inline float exponential(float x) {
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float t = x * 1.44269504f;
    float whole = rintf(t);
    float part = t - whole; /* -0.5 .. 0.5; below: Taylor's series of 2^part */
    float power = 1.54035304e-4f;
    power = power * part + 1.33335581e-3f;
    power = power * part + 9.61812911e-3f;
    power = power * part + 5.55041087e-2f;
    power = power * part + 2.40226507e-1f;
    power = power * part + 6.93147181e-1f;
    power = power * part + 1.0f;
    int32_t exponent = ((int32_t)whole + 127) << 23;
    float scale;
    memcpy(&scale, &exponent, sizeof scale);
    return power * scale;
}

static float largest(const uint16_t *x, int64_t n) {
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        float value = widen(x[i]);
        top = value > top ? value : top;
    }
    return top;
}

/* work[i] = e^(x[i] - top); returns their sum. */
static float exponentials(const uint16_t *x, float top, float *work, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        work[i] = exponential(widen(x[i]) - top);
        sum += work[i];
    }
    return sum;
}

static void write_scaled(const float *work, float scale, uint16_t *x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        x[i] = narrow(work[i] * scale);
    }
}

/* nats [rows] is each row's cross entropy, 0 for the target -1; logits [rows, words] become its
 * gradient. work [words].
 */
void cross_entropy_rows(uint16_t *logits, const int64_t *targets, float *nats, float *work,
                        int64_t rows, int64_t words) {
    for (int64_t row = 0; row < rows; row++) {
        uint16_t *x = logits + row * words;
        int64_t right = targets[row];
        if (right < 0) {
            nats[row] = 0;
            memset(x, 0, (size_t)words * sizeof *x);
            continue;
        }
        float top = largest(x, words);
        float distance = top - widen(x[right]);
        float sum = exponentials(x, top, work, words);
        nats[row] = logf(sum) + distance;
        write_scaled(work, 1 / sum, x, words);
        x[right] = narrow(work[right] / sum - 1);
    }
}

/* Softmax in place of a row over its first `seen` keys; the others become 0. work [keys]. */
static void softmax_row(uint16_t *x, float *work, int64_t seen, int64_t keys) {
    float sum = exponentials(x, largest(x, seen), work, seen);
    write_scaled(work, 1 / sum, x, seen);
    memset(x + seen, 0, (size_t)(keys - seen) * sizeof *x);
}

/* scores [matrices, rows, keys]: row i of each matrix reads its first `first` + i keys, at most
 * all. work [keys]. */
void softmax_causal(uint16_t *scores, float *work, int64_t matrices, int64_t rows, int64_t keys,
                    int64_t first) {
    for (int64_t at = 0; at < matrices * rows; at++) {
        int64_t seen = first + at % rows;
        softmax_row(scores + at * keys, work, seen < keys ? seen : keys, keys);
    }
}

/* scores [matrices, rows, keys]: the rows of matrix j read its first lengths[j] keys. work [keys].
 */
void softmax_lengths(uint16_t *scores, const int32_t *lengths, float *work, int64_t matrices,
                     int64_t rows, int64_t keys) {
    for (int64_t at = 0; at < matrices * rows; at++) {
        softmax_row(scores + at * keys, work, lengths[at / rows], keys);
    }
}

/* gradient [rows, keys], of shares that softmax made, becomes that of the scores. */
void softmax_gradient_rows(const uint16_t *shares, uint16_t *gradient, int64_t rows, int64_t keys) {
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *y = shares + row * keys;
        uint16_t *g = gradient + row * keys;
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < keys; i++) {
            dot += widen(y[i]) * widen(g[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < keys; i++) {
            g[i] = narrow(widen(y[i]) * (widen(g[i]) - dot));
        }
    }
}

/* GELU by tanh is x times the logistic function of 2 sqrt(2 / pi) (x + 0.044715 x^3). */
static inline float gate(float x) {
    return 1 / (1 + exponential(-1.59576912f * x * (1 + 0.044715f * x * x)));
}

void gelu_tanh(const uint16_t *x, uint16_t *y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float value = widen(x[i]);
        y[i] = narrow(value * gate(value));
    }
}

/* slope = gradient times GELU's derivative at x. */
void gelu_tanh_gradient(const uint16_t *x, const uint16_t *gradient, uint16_t *slope, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float value = widen(x[i]);
        float open = gate(value);
        float bend = 1.59576912f * (1 + 0.134145f * value * value);
        slope[i] = narrow(widen(gradient[i]) * (open + value * open * (1 - open) * bend));
    }
}
