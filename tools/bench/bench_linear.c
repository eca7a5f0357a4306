/* tools/bench/bench_linear.c: the matrix product on weights that no cache holds, as a share of what the machine can do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "tools/bench/bench.h"

enum { MAX_WEIGHTS = 4096, ROUNDS = 9 };

struct linear_bench {
    const struct bench_options *o;
    int n_in, n_out, threads;
    enum dtype dtype;
    struct roofline roofline;
    struct backend *backend;
    struct weight weights[MAX_WEIGHTS]; /* as many as make BENCH_BYTES, one after another: none stays in a cache */
    int n_weights;
    float *x, *y;
};

static size_t weight_bytes(const struct linear_bench *t) {
    return matrix_bytes(t->dtype, (size_t)t->n_in * (size_t)t->n_out);
}

/* Values do not change the speed: any float, any four or eight bits, one scale, no minimum. The caller frees both. */
static struct host_matrix make_matrix(const struct linear_bench *t) {
    size_t n = (size_t)t->n_in * (size_t)t->n_out;
    if (!dtype_quantised(t->dtype)) {
        float *values = xmalloc(n * sizeof *values);
        for (size_t i = 0; i < n; i++) values[i] = (float)(i % 251) * 0.01f - 1.25f;
        return (struct host_matrix){.values = values};
    }
    if (dtype_kquant(t->dtype)) {
        uint8_t *blocks = xmalloc(weight_bytes(t)); /* scales of 0x1717 are small and finite */
        memset(blocks, 0x17, weight_bytes(t));
        return (struct host_matrix){.values = blocks, .dtype = t->dtype};
    }
    int8_t *values = xmalloc(n);
    uint16_t *scales = xcalloc(2 * n / QUANTISE_BLOCK, sizeof *scales);
    for (size_t i = 0; i < n; i++) values[i] = (int8_t)(i % 251 - 125);
    for (size_t i = 0; i < n / QUANTISE_BLOCK; i++) scales[i] = f32_to_f16(0.01f);
    return (struct host_matrix){.values = values,
                                .scales = scales,
                                .minimums = t->dtype == DTYPE_INT4 ? scales + n / QUANTISE_BLOCK : NULL,
                                .dtype = t->dtype};
}

static enum status make_weights(struct linear_bench *t, int most_rows, struct error *e) {
    if (t->n_in % (dtype_quantised(t->dtype) ? dtype_block(t->dtype) : 1) != 0)
        return error_set(e, STATUS_INVALID, "--in %d: %s needs a multiple of %d", t->n_in, dtype_name(t->dtype),
                         dtype_block(t->dtype));
    struct host_matrix host = make_matrix(t);
    t->n_weights = min_int(MAX_WEIGHTS, (int)(BENCH_BYTES / weight_bytes(t)) + 1);
    enum status s = STATUS_OK;
    for (int i = 0; i < t->n_weights && !s; i++) {
        t->weights[i] = (struct weight){.dtype = t->dtype, .n_out = t->n_out, .n_in = t->n_in};
        s = backend_pack(t->backend, &t->weights[i], &host, e);
    }
    free((void *)(uintptr_t)host.values);
    free((void *)(uintptr_t)host.scales);
    t->x = xcalloc((size_t)most_rows, (size_t)t->n_in * sizeof *t->x);
    t->y = xcalloc((size_t)most_rows, (size_t)t->n_out * sizeof *t->y);
    for (size_t i = 0; i < (size_t)most_rows * (size_t)t->n_in; i++) t->x[i] = (float)(i % 17) * 0.1f - 0.8f;
    return s;
}

/* Seconds of one product: the median over passes through all the weights, fewer of them when there are many rows. */
static double time_linear(const struct linear_bench *t, int rows) {
    double seconds[ROUNDS];
    int n = max_int(1, min_int(t->n_weights, t->n_weights * 8 / rows));
    for (int round = -1; round < ROUNDS; round++) { /* round -1 warms up */
        double start = time_now();
        for (int i = 0; i < n; i++)
            backend_linear(t->backend, &(struct linear_args){.y = tensor_make(t->y, DTYPE_F32, rows, t->n_out),
                                                             .x = tensor_make(t->x, DTYPE_F32, rows, t->n_in),
                                                             .weight = &t->weights[i]});
        if (round >= 0) seconds[round] = (time_now() - start) / n;
    }
    return bench_median(seconds, ROUNDS);
}

static void report(const struct linear_bench *t, int rows) {
    double seconds = time_linear(t, rows), gbps = (double)weight_bytes(t) / seconds * 1e-9;
    double gflops = 2.0 * rows * t->n_in * t->n_out / seconds * 1e-9;
    if (t->o->json) {
        char name[64];
        snprintf(name, sizeof name, "linear_%s_rows%d_gbps", dtype_name(t->dtype), rows);
        bench_print(t->o, name, "GB/s", gbps);
        snprintf(name, sizeof name, "linear_%s_rows%d_gflops", dtype_name(t->dtype), rows);
        bench_print(t->o, name, "GFLOP/s", gflops);
    } else {
        printf("%5d   %8.1f   %5.1f %%   %9.1f   %5.1f %%\n", rows, gbps, 100 * gbps / t->roofline.read_gbps, gflops,
               100 * gflops / t->roofline.gflops[bench_product_of(t->dtype)]);
    }
}

static enum status run(struct linear_bench *t, struct error *e) {
    static const int sweep[] = {1, 2, 3, 4, 8, 16, 64, 256};
    enum status s = backend_open(&t->backend, "cpu", &(struct backend_options){.threads = t->threads}, e);
    if (s) return s;
    if ((s = roofline_measure(&t->roofline, t->threads, e)) == 0)
        s = make_weights(t, max_int(t->o->rows, sweep[ARRAY_COUNT(sweep) - 1]), e);
    if (s == 0) {
        if (!t->o->json) {
            printf("%s; n_in %d, n_out %d, %s; %.1f GB/s read, %s %.0fe9/s\n", backend_describe(t->backend), t->n_in,
                   t->n_out, dtype_name(t->dtype), t->roofline.read_gbps,
                   bench_product_name(bench_product_of(t->dtype)), t->roofline.gflops[bench_product_of(t->dtype)]);
            printf(" rows   GB/s, share        GFLOP/s, share\n");
        }
        if (t->o->rows != 0) report(t, t->o->rows);
        for (size_t i = 0; t->o->rows == 0 && i < ARRAY_COUNT(sweep); i++) report(t, sweep[i]);
        s = backend_sync(t->backend, e);
    }
    for (int i = 0; i < t->n_weights; i++) backend_release(t->backend, t->weights[i].data);
    free(t->x);
    free(t->y);
    backend_close(t->backend);
    return s;
}

enum status bench_linear(const struct bench_options *o, struct error *e) {
    enum { DEFAULT_SIDE = 2048, MAX_SIDE = 1 << 18, MAX_ROWS = 1 << 16 };
    struct linear_bench *t = xcalloc(1, sizeof *t);
    t->o = o;
    t->n_in = o->n_in ? o->n_in : DEFAULT_SIDE;
    t->n_out = o->n_out ? o->n_out : DEFAULT_SIDE;
    t->dtype = o->dtype;
    t->threads = o->threads;
    enum status status =
        t->n_in > MAX_SIDE || t->n_out > MAX_SIDE || o->rows > MAX_ROWS
            ? error_set(e, STATUS_INVALID, "--in and --out are at most %d, --rows at most %d", MAX_SIDE, MAX_ROWS)
            : run(t, e);
    free(t);
    return status;
}
