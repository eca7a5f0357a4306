/* kernels/cpu/sample_weights.h: the integer weight of a logit, w = round(2^40 e^z), z = (logit -
 * largest) / temperature.
 *
 * Sampling sums and compares integers, so its results do not depend on the order of the additions
 * or on the device. For that, e^z itself must be the same everywhere: it is written in double
 * additions, multiplications and one division, each rounded once, nothing fused (in CUDA:
 * __dadd_rn, __dmul_rn, __ddiv_rn). Exactly: z = max((logit - largest) / temperature, -40) NaN and
 * infinite logits: see sample_clean n = round to even of z * 0x1.71547652b82fep0;  r = (z - n *
 * 0x1.62e42fefa39efp-1) p = 1 + r (1 + r (1/2 + r (1/6 + ... + r / 11!)))     Horner, |r| < 0.35:
 * error below 2^-50 w = round to even of p * 2^n * 2^40 z = 0 gives 2^40. Below about z = -28.4,
 * probability 2^-41 of the largest, a token weighs 0 and is never drawn. This file is compiled into
 * each variant so that the compiler can use its vectors; the results are the same. */
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* A double's bits and back. */
static inline uint64_t double_bits(double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}
static inline double double_from_bits(uint64_t u) {
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline uint64_t sample_weight(double logit, double largest, double temperature) {
    /* Adding 1.5 * 2^52 leaves the nearest integer in the low bits of the sum. */
    static const double magic = 0x1.8p52;
    /* z is never positive; with its sign bit set, even for zero, doubles compare as their bits do.
     */
    int64_t bits = (int64_t)double_bits(-((largest - logit) / temperature)),
            lowest = (int64_t)double_bits(-40.0);
    double z = double_from_bits((uint64_t)(bits < lowest ? bits : lowest));
    double shifted = z * 0x1.71547652b82fep0 + magic, n = shifted - magic;
    double r = z - n * 0x1.62e42fefa39efp-1, p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    /* n is in [-58, 0]: 2^(n + 40) by writing the exponent. */
    double power = double_from_bits((double_bits(shifted) + 1023 + 40) << 52);
    return double_bits(p * power + 0x1p52) - double_bits(0x1p52);
}

/* NaN and -inf become the lowest finite value, +inf the largest: a broken row still yields a token.
 * -0 becomes 0. Done on the bits, where the compiler has no comparison of NaN to be careful about.
 */
static inline float sample_clean(float logit) {
    uint32_t u, largest = 0x7f7fffff, infinity = 0x7f800000;
    memcpy(&u, &logit, sizeof u);
    uint32_t size = u & 0x7fffffff, sign = size > infinity ? 0x80000000 : u & 0x80000000;
    u = sign | (size < largest ? size : largest);
    memcpy(&logit, &u, sizeof u);
    return logit + 0.0f;
}

/* An integer that orders as the logits do. */
static inline uint32_t sample_key(float logit) {
    float x = sample_clean(logit);
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u ^ (u & 0x80000000 ? 0xffffffff : 0x80000000);
}

static inline void sample_keys(uint32_t *keys, const float *logits, int n) {
    for (int i = 0; i < n; i++) keys[i] = sample_key(logits[i]);
}

static inline uint32_t sample_top(const float *logits, int n) {
    uint32_t top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t key = sample_key(logits[i]);
        top = key > top ? key : top;
    }
    return top;
}

static inline void sample_weights(uint64_t *w, const float *logits, int n, double largest,
                                  double temperature) {
    for (int i = 0; i < n; i++)
        w[i] = sample_weight((double)sample_clean(logits[i]), largest, temperature);
}
