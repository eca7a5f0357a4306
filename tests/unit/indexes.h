/* tests/unit/indexes.h: what the tests of indexes share: made-up vectors, and searches from several
 * threads. */
#pragma once

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

#include "retrieval/index/index.h"

static uint64_t random_state = 1;
static inline uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 40);
}
static inline float random_unit(void) {
    return (float)((double)random_bits() / (double)(1 << 24)) * 2 - 1;
}

static inline void normalise(float *v, int dim) {
    double square = 1e-30;
    for (int i = 0; i < dim; i++) square += (double)v[i] * v[i];
    for (int i = 0; i < dim; i++) v[i] = (float)(v[i] / sqrt(square));
}

/* count unit vectors around `centres` directions, as texts of a few subjects lie; centres 0:
 * anywhere. */
static inline float *make_vectors(int64_t count, int dim, int centres) {
    float *centre = malloc(((size_t)centres * (size_t)dim + 1) * sizeof *centre);
    float *v = malloc(((size_t)count * (size_t)dim + 1) * sizeof *v);
    for (size_t i = 0; i < (size_t)centres * (size_t)dim; i++) centre[i] = random_unit();
    for (int64_t i = 0; i < count; i++) {
        float *row = v + (size_t)i * (size_t)dim;
        for (int j = 0; j < dim; j++)
            row[j] = random_unit() +
                     (centres ? centre[(size_t)(i % centres) * (size_t)dim + (size_t)j] : 0);
        normalise(row, dim);
    }
    free(centre);
    return v;
}

/* Small whole numbers, `share` vectors or more in a row alike: all sums are exact in whatever order
 * they are taken, and very many similarities are equal. */
static inline float *make_ties(int64_t count, int dim, int share) {
    float *v = malloc(((size_t)count * (size_t)dim + 1) * sizeof *v);
    for (int64_t i = 0; i < count; i++) {
        float *row = v + (size_t)i * (size_t)dim;
        for (int j = 0; j < dim; j++)
            row[j] = i % share ? row[j - dim] : (float)(random_bits() % 3) - 1;
    }
    return v;
}

enum { SHARED_N = 50, SHARED_K = 6 };
struct searcher {
    const struct index *index;
    const float *queries; /* [SHARED_N, dim] */
    int64_t ids[SHARED_N * SHARED_K];
};

static inline void *search_thread(void *p) {
    struct searcher *s = p;
    float similarities[SHARED_N * SHARED_K];
    index_set_threads(1);
    for (int i = 0; i < 20; i++)
        index_search(s->index,
                     (struct index_query){.vectors = s->queries, .n = SHARED_N, .k = SHARED_K},
                     s->ids, similarities, NULL);
    return NULL;
}

/* Four threads search for the first vectors of the index, v: all find the same, and each vector
 * itself first. */
static inline void check_threads(const struct index *x, const float *v) {
    static struct searcher s[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        s[i] = (struct searcher){.index = x, .queries = v};
        assert_int_equal(pthread_create(&threads[i], NULL, search_thread, &s[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++) assert_memory_equal(s[0].ids, s[i].ids, sizeof s[0].ids);
    for (int q = 0; q < SHARED_N; q++) assert_int_equal(s[0].ids[q * SHARED_K], q);
}
