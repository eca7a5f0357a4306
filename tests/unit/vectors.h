/* tests/unit/vectors.h: made-up vectors for the tests of indexes. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t random_state = 1;
static inline uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 40);
}
static inline float random_unit(void) { return (float)((double)random_bits() / (double)(1 << 24)) * 2 - 1; }

static inline void normalise(float *v, int dim) {
    double square = 1e-30;
    for (int i = 0; i < dim; i++) square += (double)v[i] * v[i];
    for (int i = 0; i < dim; i++) v[i] = (float)(v[i] / sqrt(square));
}

/* count unit vectors around `centres` directions, as texts of a few subjects lie; centres 0: anywhere. */
static inline float *make_vectors(int64_t count, int dim, int centres) {
    float *centre = malloc(((size_t)centres * (size_t)dim + 1) * sizeof *centre);
    float *v = malloc(((size_t)count * (size_t)dim + 1) * sizeof *v);
    for (size_t i = 0; i < (size_t)centres * (size_t)dim; i++) centre[i] = random_unit();
    for (int64_t i = 0; i < count; i++) {
        float *row = v + (size_t)i * (size_t)dim;
        for (int j = 0; j < dim; j++)
            row[j] = random_unit() + (centres ? centre[(size_t)(i % centres) * (size_t)dim + (size_t)j] : 0);
        normalise(row, dim);
    }
    free(centre);
    return v;
}

/* Small whole numbers, `share` vectors or more in a row alike: all sums are exact in whatever order they are taken, and
 * very many similarities are equal. */
static inline float *make_ties(int64_t count, int dim, int share) {
    float *v = malloc(((size_t)count * (size_t)dim + 1) * sizeof *v);
    for (int64_t i = 0; i < count; i++) {
        float *row = v + (size_t)i * (size_t)dim;
        for (int j = 0; j < dim; j++) row[j] = i % share ? row[j - dim] : (float)(random_bits() % 3) - 1;
    }
    return v;
}
