/* tests/ops/ops.h: what the op tests share: a backend per variant, seeded numbers, packed weights
 * and comparisons. */
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first. */
#include <cmocka.h>

#include "kernels/cpu/cpu.h"

/* Whether TEST_VARIANTS, which is not set or a list of names with spaces, has the variant: under an
 * emulator a test leaves out those whose kernels others have too. */
static inline bool variant_wanted(const char *name) {
    const char *list = getenv("TEST_VARIANTS");
    const size_t length = strlen(name);
    if (list == NULL) return true;
    for (; *list != '\0'; list += strcspn(list, " "), list += strspn(list, " "))
        if (strcspn(list, " ") == length && strncmp(list, name, length) == 0) return true;
    return false;
}

/* Calls test(b) on a backend of every variant this CPU runs; says which ones those are. */
static inline void for_each_variant(void (*test)(struct backend *b), int threads) {
    const char *const *names = cpu_variant_names;
    int tested = 0;
    for (int i = 0; names[i] != NULL; i++) {
        if (!variant_wanted(names[i])) continue;
        struct backend *b;
        struct error e;
        setenv("RETRO_CPU", names[i], 1);
        enum status s = backend_open(&b, "cpu", &(struct backend_options){.threads = threads}, &e);
        unsetenv("RETRO_CPU");
        if (s == STATUS_UNSUPPORTED) {
            print_message("  %s: not on this CPU\n", names[i]);
            continue;
        }
        assert_int_equal(s, STATUS_OK);
        test(b);
        assert_int_equal(backend_sync(b, &e), STATUS_OK);
        backend_close(b);
        tested++;
    }
    assert_true(tested > 0);
}

/* A small generator of our own, so that a failure repeats everywhere. */
static inline uint32_t random_bits(void) {
    static uint64_t state = 0x853c49e6748fea9b;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}
static inline int random_int(int below) { return (int)(random_bits() % (uint32_t)below); }
/* Uniform in [-1, 1). */
static inline float random_value(void) { return (float)(int32_t)random_bits() * 0x1p-31f; }

static inline float *random_array(size_t n) {
    float *x = xmalloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_value();
    return x;
}

/* Rows with a stride of their own, the space between filled with NaN: reading or writing it shows.
 */
static inline struct tensor padded_tensor(enum dtype dtype, int rows, int cols, int gap) {
    size_t n = (size_t)rows * (size_t)(cols + gap) + 1, size = dtype_bytes(dtype);
    char *data = xmalloc(n * size);
    float nan_value = NAN;
    for (size_t i = 0; i < n; i++) dtype_convert(data + i * size, dtype, &nan_value, DTYPE_F32, 1);
    return (struct tensor){
        .data = data, .stride = cols + gap, .rows = rows, .cols = cols, .dtype = dtype};
}

static inline void *tensor_at(struct tensor t, int row, int col) {
    return (char *)t.data + (row * t.stride + col) * (int64_t)dtype_bytes(t.dtype);
}

static inline float tensor_get(struct tensor t, int row, int col) {
    float v;
    dtype_convert(&v, DTYPE_F32, tensor_at(t, row, col), t.dtype, 1);
    return v;
}

static inline void tensor_set(struct tensor t, int row, int col, float v) {
    dtype_convert(tensor_at(t, row, col), t.dtype, &v, DTYPE_F32, 1);
}

static inline struct tensor random_tensor(enum dtype dtype, int rows, int cols, int gap) {
    struct tensor t = padded_tensor(dtype, rows, cols, gap);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) tensor_set(t, i, j, random_value());
    return t;
}

/* Rows of keys or values; those of int8 have scales of [0, 1 / 127) too, of which `groups` share
 * out the columns. */
static inline struct tensor random_keys(enum dtype dtype, int rows, int cols, int gap) {
    if (dtype != DTYPE_INT8) return random_tensor(dtype, rows, cols, gap);
    size_t n = (size_t)rows * (size_t)(cols + gap);
    int8_t *data = xmalloc(n + 1);
    for (size_t i = 0; i < n; i++) data[i] = (int8_t)(random_int(255) - 127);
    return (struct tensor){
        .data = data, .stride = cols + gap, .rows = rows, .cols = cols, .dtype = dtype};
}
static inline struct tensor random_scales(enum dtype dtype, int rows, int groups, int gap) {
    if (dtype != DTYPE_INT8) return (struct tensor){0};
    struct tensor t = random_tensor(DTYPE_BF16, rows, groups, gap);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < groups; j++) tensor_set(t, i, j, fabsf(tensor_get(t, i, j)) / 127);
    return t;
}
/* A number of a row of keys or values. */
static inline float key_get(struct tensor t, struct tensor scales, int row, int col) {
    if (t.dtype != DTYPE_INT8) return tensor_get(t, row, col);
    return (float)*(const int8_t *)tensor_at(t, row, col) *
           tensor_get(scales, row, col / (t.cols / scales.cols));
}
/* Whether the call multiplies numbers rounded to bf16. */
static inline bool attention_rounds(const struct backend *b, const struct attention_args *a) {
    return a->k.dtype != DTYPE_F32 && !a->exact && cpu_of(b)->kernels->attention_rounds;
}
static inline double rounded_to(bool bf16, float v) {
    return (double)(bf16 ? bf16_to_f32(f32_to_bf16(v)) : v);
}
/* q k of one key as attention makes it, where `rounds` of numbers that are rounded to bf16. The
 * scale of an int8 key multiplies the sum. */
static inline double key_score(const struct attention_args *a, bool rounds, int query, int own,
                               int key, int first) {
    bool int8 = a->k.dtype == DTYPE_INT8;
    double dot = 0;
    for (int d = 0; d < a->head_dim; d++) {
        float q = a->scale * tensor_get(a->q, query, own + d),
              k = int8 ? (float)*(const int8_t *)tensor_at(a->k, key, first + d)
                       : tensor_get(a->k, key, first + d);
        dot += rounded_to(rounds, q) * rounded_to(rounds, k);
    }
    return int8 ? dot * (double)tensor_get(a->k_scales, key, first / a->head_dim) : dot;
}
/* The row becomes `v`, NaN or infinity. */
static inline void key_spoil(struct tensor t, struct tensor scales, int row, float v) {
    for (int j = 0; j < t.cols && t.dtype != DTYPE_INT8; j++) tensor_set(t, row, j, v);
    for (int j = 0; j < scales.cols; j++) tensor_set(scales, row, j, v);
}

/* Where d of a super-block is; dmin follows it in Q4_K and Q5_K. */
static inline uint8_t *super_scale_at(enum dtype dtype, uint8_t *block) {
    return block + (dtype == DTYPE_Q6_K ? 208 : 0);
}

/* Every bit pattern is a super-block; only the f16 numbers need a size. */
static inline void random_supers(uint8_t *raw, enum dtype dtype, size_t blocks) {
    size_t bytes = super_block_bytes(dtype);
    for (size_t i = 0; i < blocks; i++) {
        uint8_t *block = raw + i * bytes;
        uint16_t d = f32_to_f16(random_value() / 512), dmin = f32_to_f16(random_value() / 64);
        for (size_t k = 0; k < bytes; k++) block[k] = (uint8_t)random_bits();
        memcpy(super_scale_at(dtype, block), &d, sizeof d);
        if (dtype != DTYPE_Q6_K) memcpy(block + 2, &dmin, sizeof dmin);
    }
}

/* The space between rows still holds the NaN that padded_tensor put there. */
static inline void assert_gaps_untouched(struct tensor t) {
    for (int i = 0; i < t.rows; i++)
        for (int64_t j = t.cols; j < t.stride; j++) assert_true(isnan(tensor_get(t, i, (int)j)));
}

static inline void assert_rows_equal(struct tensor a, int row_a, struct tensor b, int row_b) {
    assert_int_equal(a.cols, b.cols);
    assert_memory_equal(tensor_at(a, row_a, 0), tensor_at(b, row_b, 0),
                        (size_t)a.cols * dtype_bytes(a.dtype));
}

/* A product of random rows with w, with a bias or without, with and without space between rows. */
static inline struct linear_args random_linear(const struct weight *w, int rows, int round) {
    return (struct linear_args){.x = random_tensor(DTYPE_F32, rows, w->n_in, round % 2 * 5),
                                .y = padded_tensor(DTYPE_F32, rows, w->n_out, round % 3),
                                .weight = w,
                                .bias = round % 4 ? random_array((size_t)w->n_out) : NULL};
}

static inline void free_linear(struct linear_args *a) {
    free(a->x.data);
    free(a->y.data);
    free((float *)(uintptr_t)a->bias);
}

/* Sizes, numbers of rows and dtypes at which linear is tested; lists end with -1. */
struct linear_sweep {
    const int *outs, *ins, *rows;
    enum dtype first, last;
    int shape[2]; /* n_out, n_in that every number of rows meets */
};

/* run(b, dtype, rows, {n_out, n_in}, round): all sizes and dtypes, while the number of rows walks
 * in a stride that brings it together with several of them; large products with few rows. */
static inline void sweep_linear(struct backend *b, const struct linear_sweep *s,
                                void (*run)(struct backend *b, enum dtype dtype, int rows,
                                            const int shape[2], int round)) {
    int round = 0;
    const int *rows = s->rows;
    for (const int *out = s->outs; *out >= 0; out++)
        for (const int *in = s->ins; *in >= 0; in++)
            for (enum dtype d = s->first; d <= s->last; d++, round++) {
                run(b, d, *out * *in > 65536 ? min_int(*rows, 17) : *rows, (const int[]){*out, *in},
                    round);
                if (*++rows < 0) rows = s->rows;
            }
    for (rows = s->rows; *rows >= 0; rows++)
        for (enum dtype d = s->first; d <= s->last; d++, round++) run(b, d, *rows, s->shape, round);
}

/* 70 rows of values in [-size, size) in one call against each in batches of 1 .. 70. */
static inline void check_batches(struct backend *b, const struct weight *w, float size) {
    struct linear_args all = {.x = random_tensor(DTYPE_F32, 70, w->n_in, 3),
                              .y = padded_tensor(DTYPE_F32, 70, w->n_out, 0),
                              .weight = w,
                              .activation = ACTIVATION_GELU_TANH};
    for (int i = 0; i < all.x.rows; i++)
        for (int j = 0; j < all.x.cols; j++)
            tensor_set(all.x, i, j, tensor_get(all.x, i, j) * size);
    backend_linear(b, &all);
    for (int rows = 1; rows <= 70; rows++) {
        struct linear_args part = all;
        int first = (70 - rows) / 2;
        part.x = tensor_rows(all.x, first, rows);
        part.y = padded_tensor(DTYPE_F32, rows, all.y.cols, 1);
        backend_linear(b, &part);
        for (int i = 0; i < rows; i++) assert_rows_equal(part.y, i, all.y, first + i);
        free(part.y.data);
    }
    free(all.x.data);
    free(all.y.data);
}
