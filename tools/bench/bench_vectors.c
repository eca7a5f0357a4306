/* tools/bench/bench_vectors.c: see bench_vectors.h. A vector is the mean, and the sum of what its
 * topic (20 documents), its document and itself add, with 0.22, 0.26 and 0.52 of the variance, each
 * drawn with the spectrum that was measured and turned by reflections, so that no axis matters more
 * than others. */
#include "tools/bench/bench_vectors.h"

#include <math.h>
#include <stdlib.h>

#include "config/base/base.h"

enum { TOPIC_DOCUMENTS = 20, REFLECTIONS = 6 };
enum draw_level { DRAW_MEAN, DRAW_TOPIC, DRAW_DOCUMENT, DRAW_CHUNK, DRAW_REFLECTION };

#define MEAN_LENGTH 0.37

/* About normally distributed: the sum of four uniform numbers. */
static float draw(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    uint64_t bits = (*state ^ *state >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    bits ^= bits >> 31;
    int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                  (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    return (float)(sum - 131070) * (float)(1.7320508 / 65536);
}

static uint64_t draw_seed(enum draw_level level, uint64_t number) {
    return (number * 8 + (uint64_t)level + 1) * 0xD1342543DE82EF95u;
}

/* row += share of the variance of what that part of the level adds. */
static void add_part(const struct made_vectors *made, float *row, enum draw_level level,
                     uint64_t number, float share) {
    uint64_t state = draw_seed(level, number);
    float scale = sqrtf(share);
    for (int i = 0; i < made->dim; i++) row[i] += scale * made->deviations[i] * draw(&state);
}

static void scale_to(float *row, int dim, double length) {
    double square = 1e-30;
    for (int i = 0; i < dim; i++) square += (double)row[i] * row[i];
    float scale = (float)(length / sqrt(square));
    for (int i = 0; i < dim; i++) row[i] *= scale;
}

static void reflect(const struct made_vectors *made, float *row) {
    for (int j = 0; j < REFLECTIONS; j++) {
        const float *u = made->reflections + (size_t)j * (size_t)made->dim;
        float product = 0;
        for (int i = 0; i < made->dim; i++) product += u[i] * row[i];
        for (int i = 0; i < made->dim; i++) row[i] -= 2 * product * u[i];
    }
}

void made_vector(const struct made_vectors *made, float *row, uint64_t document, uint64_t number) {
    uint64_t state = draw_seed(DRAW_MEAN, 0);
    for (int i = 0; i < made->dim; i++) row[i] = draw(&state);
    scale_to(row, made->dim, MEAN_LENGTH / sqrt(1 - MEAN_LENGTH * MEAN_LENGTH));
    add_part(made, row, DRAW_TOPIC, document / TOPIC_DOCUMENTS, 0.22F);
    add_part(made, row, DRAW_DOCUMENT, document, 0.26F);
    add_part(made, row, DRAW_CHUNK, number, 0.52F);
    reflect(made, row);
    scale_to(row, made->dim, 1);
}

void made_vectors_open(struct made_vectors *made, int dim) {
    double sum = 0;
    made->dim = dim;
    made->deviations = xmalloc((size_t)made->dim * sizeof *made->deviations);
    made->reflections =
        xmalloc((size_t)REFLECTIONS * (size_t)made->dim * sizeof *made->reflections);
    for (int i = 0; i < made->dim; i++) sum += pow(i + 1, -0.65) * exp(-i / 200.0);
    for (int i = 0; i < made->dim; i++)
        made->deviations[i] = (float)sqrt(pow(i + 1, -0.65) * exp(-i / 200.0) / sum);
    for (int j = 0; j < REFLECTIONS; j++) {
        float *u = made->reflections + (size_t)j * (size_t)made->dim;
        uint64_t state = draw_seed(DRAW_REFLECTION, (uint64_t)j);
        for (int i = 0; i < made->dim; i++) u[i] = draw(&state);
        scale_to(u, made->dim, 1);
    }
}

void made_vectors_close(struct made_vectors *made) {
    free(made->deviations);
    free(made->reflections);
    *made = (struct made_vectors){0};
}
