/* tests/ops/test_ops_pack.c: packing puts every element where layout.h says, and zeros everywhere
 * else: every pair of dtypes, shapes around tiles, pairs and runs, weights of several pieces, in
 * memory that was not clear before. */
#include <malloc.h>

#include "kernels/cpu/cpu.h"
#include "tests/ops/ops.h"

static const enum dtype float_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

static void assert_packed(struct backend *b, struct weight *w, const struct host_matrix *host,
                          const char *expected) {
    struct error e = {0};
    if (backend_pack(b, w, host, &e)) fail_msg("%s", e.text);
    size_t bytes = b->ops->packed_bytes(w);
    if (memcmp(w->data, expected, bytes) == 0) {
        backend_release(b, w->data);
        return;
    }
    size_t at = 0;
    while (((const char *)w->data)[at] == expected[at]) at++;
    fail_msg("[%d, %d] %s from %s: byte %zu of %zu", w->n_out, w->n_in, dtype_name(w->dtype),
             dtype_name(host->dtype), at, bytes);
}

/* Elements one by one, which is how the layout is defined. */
static void pack_floats(struct backend *b, int n_out, int n_in, enum dtype from, enum dtype to) {
    struct weight w = {.dtype = to, .n_out = n_out, .n_in = n_in};
    size_t n = (size_t)n_out * (size_t)n_in, size = dtype_bytes(to);
    float *values = random_array(n);
    char *host = xmalloc(n * sizeof(float) + 1), *expected = xcalloc(b->ops->packed_bytes(&w), 1);
    /* bf16 and f16 rows begin anywhere in memory. */
    char *start = host + (from == DTYPE_F32 ? 0 : 2 * (n % 2));
    dtype_convert(start, from, values, DTYPE_F32, n);
    for (int row = 0; row < n_out; row++)
        for (int k = 0; k < n_in; k++) {
            size_t at = (size_t)row * (size_t)n_in + (size_t)k;
            dtype_convert(expected + packed_index(to, n_in, row, k) * size, to,
                          start + at * dtype_bytes(from), from, 1);
        }
    assert_packed(b, &w, &(struct host_matrix){.values = start, .dtype = from}, expected);
    free(values);
    free(host);
    free(expected);
}

static void pack_blocks(struct backend *b, int n_out, int n_in, enum dtype t) {
    size_t n = (size_t)n_out * (size_t)n_in, blocks = n / QUANTISE_BLOCK;
    uint8_t *values = xmalloc(n);
    uint16_t *scales = xmalloc(2 * blocks), *minimums = xmalloc(2 * blocks);
    for (size_t i = 0; i < n; i++) values[i] = (uint8_t)random_bits();
    for (size_t i = 0; i < blocks; i++) {
        scales[i] = (uint16_t)random_bits();
        minimums[i] = (uint16_t)random_bits();
    }
    struct host_matrix host = {.values = values,
                               .scales = scales,
                               .minimums = t == DTYPE_INT4 ? minimums : NULL,
                               .dtype = t};
    struct weight w = {.dtype = t, .n_out = n_out, .n_in = n_in};
    char *expected = xcalloc(b->ops->packed_bytes(&w), 1);
    struct weight view = {expected, t, n_out, n_in};
    for (int row = 0; row < n_out; row++)
        for (int i = 0; i < n_in / QUANTISE_BLOCK; i++) {
            struct packed_block to = packed_block(&view, row / TILE_COLUMNS, i);
            int lane = row % TILE_COLUMNS, half = QUANTISE_BLOCK / 2;
            size_t at = (size_t)row * (size_t)(n_in / QUANTISE_BLOCK) + (size_t)i;
            ((uint16_t *)(uintptr_t)to.scales)[lane] = scales[at];
            if (t == DTYPE_INT4)
                ((uint16_t *)(uintptr_t)to.scales)[TILE_COLUMNS + lane] = minimums[at];
            for (int k = 0; k < (t == DTYPE_INT4 ? half : QUANTISE_BLOCK); k++) {
                const uint8_t *block =
                    values + at * (t == DTYPE_INT4 ? (size_t)half : QUANTISE_BLOCK);
                int low = block[k / 2] >> (k % 2 ? 4 : 0) & 15,
                    high = block[(k + half) / 2 % half] >> (k % 2 ? 4 : 0);
                ((uint8_t *)(uintptr_t)to.values)[k / QUAD * QUAD_BYTES + lane * QUAD + k % QUAD] =
                    t == DTYPE_INT4 ? (uint8_t)(low | (high & 15) << 4)
                                    : (uint8_t)(block[k] + INT8_OFFSET);
            }
        }
    assert_packed(b, &w, &host, expected);
    free(values);
    free(scales);
    free(minimums);
    free(expected);
}

static struct backend *open_cpu(int threads) {
    struct backend *b;
    struct error e;
    assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){.threads = threads}, &e),
                     STATUS_OK);
    return b;
}

static void test_floats(void **state) {
    (void)state;
    static const int outs[] = {1, 15, 16, 17, 33, 48},
                     ins[] = {1, 2, 3, 16, 31, 127, 128, 129, 258};
    struct backend *b = open_cpu(2);
    for (size_t f = 0; f < ARRAY_COUNT(float_types); f++)
        for (size_t t = 0; t < ARRAY_COUNT(float_types); t++) {
            for (size_t i = 0; i < ARRAY_COUNT(outs); i++)
                for (size_t j = 0; j < ARRAY_COUNT(ins); j++)
                    pack_floats(b, outs[i], ins[j], float_types[f], float_types[t]);
            pack_floats(b, 1500, 1021, float_types[f],
                        float_types[t]); /* pieces for both threads */
        }
    backend_close(b);
}

static void test_blocks(void **state) {
    (void)state;
    static const int outs[] = {1, 16, 17, 33}, ins[] = {32, 64, 96, 160};
    struct backend *b = open_cpu(2);
    for (int t = DTYPE_INT8; t <= DTYPE_INT4; t++) {
        for (size_t i = 0; i < ARRAY_COUNT(outs); i++)
            for (size_t j = 0; j < ARRAY_COUNT(ins); j++)
                pack_blocks(b, outs[i], ins[j], (enum dtype)t);
        pack_blocks(b, 3000, 2080, (enum dtype)t);
    }
    backend_close(b);
}

/* Ops rely on memory that is zero where nothing was written. */
static void test_clear_memory(void **state) {
    (void)state;
    static const size_t sizes[] = {
        0, 1, 63, 65, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 7 << 20};
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *b = open_cpu(threads);
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            char *p = b->ops->alloc(b, sizes[i]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t at = 0; at < sizes[i]; at++)
                if (p[at]) fail_msg("byte %zu of %zu is %d", at, sizes[i], p[at]);
            backend_release(b, p);
        }
        backend_close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_clear_memory)};
    mallopt(M_PERTURB,
            0x5a); /* what malloc hands out is full of other bytes, also what would come clear */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
