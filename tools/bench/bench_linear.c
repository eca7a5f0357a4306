/* tools/bench/bench_linear.c: the matrix product on weights that no cache holds, as a share of what
 * the machine can do.
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
    struct weight weights[MAX_WEIGHTS]; /* as many as make BENCH_BYTES, one after another: none
                                           stays in a cache */
    int n_weights;
    float *x, *y;
};

static size_t weight_bytes(const struct linear_bench *bench) {
    return matrix_bytes(bench->dtype, (size_t)bench->n_in * (size_t)bench->n_out);
}

/* Values do not change the speed: any float, any four or eight bits, one scale, no minimum. The
 * caller frees both. */
static struct host_matrix make_matrix(const struct linear_bench *bench) {
    size_t n = (size_t)bench->n_in * (size_t)bench->n_out;
    if (!dtype_quantised(bench->dtype)) {
        float *values = xmalloc(n * sizeof *values);
        for (size_t i = 0; i < n; i++) values[i] = (float)(i % 251) * 0.01f - 1.25f;
        return (struct host_matrix){.values = values};
    }
    if (dtype_kquant(bench->dtype)) {
        uint8_t *blocks = xmalloc(weight_bytes(bench)); /* scales of 0x1717 are small and finite */
        memset(blocks, 0x17, weight_bytes(bench));
        return (struct host_matrix){.values = blocks, .dtype = bench->dtype};
    }
    int8_t *values = xmalloc(n);
    uint16_t *scales = xcalloc(2 * n / QUANTISE_BLOCK, sizeof *scales);
    for (size_t i = 0; i < n; i++) values[i] = (int8_t)(i % 251 - 125);
    for (size_t i = 0; i < n / QUANTISE_BLOCK; i++) scales[i] = f32_to_f16(0.01f);
    return (struct host_matrix){
        .values = values,
        .scales = scales,
        .minimums = bench->dtype == DTYPE_INT4 ? scales + n / QUANTISE_BLOCK : NULL,
        .dtype = bench->dtype};
}

static enum status make_weights(struct linear_bench *bench, int most_rows, struct error *e) {
    if (bench->n_in % (dtype_quantised(bench->dtype) ? dtype_block(bench->dtype) : 1) != 0)
        return error_set(e, STATUS_INVALID, "--in %d: %s needs a multiple of %d", bench->n_in,
                         dtype_name(bench->dtype), dtype_block(bench->dtype));
    struct host_matrix host = make_matrix(bench);
    bench->n_weights = min_int(MAX_WEIGHTS, (int)(BENCH_BYTES / weight_bytes(bench)) + 1);
    enum status status = STATUS_OK;
    for (int i = 0; i < bench->n_weights && !status; i++) {
        bench->weights[i] =
            (struct weight){.dtype = bench->dtype, .n_out = bench->n_out, .n_in = bench->n_in};
        status = backend_pack(bench->backend, &bench->weights[i], &host, e);
    }
    free((void *)(uintptr_t)host.values);
    free((void *)(uintptr_t)host.scales);
    bench->x = xcalloc((size_t)most_rows, (size_t)bench->n_in * sizeof *bench->x);
    bench->y = xcalloc((size_t)most_rows, (size_t)bench->n_out * sizeof *bench->y);
    for (size_t i = 0; i < (size_t)most_rows * (size_t)bench->n_in; i++)
        bench->x[i] = (float)(i % 17) * 0.1f - 0.8f;
    return status;
}

/* Seconds of one product: the median over passes through all the weights, fewer of them when there
 * are many rows. */
static double time_linear(const struct linear_bench *bench, int rows) {
    double seconds[ROUNDS];
    int n = max_int(1, min_int(bench->n_weights, bench->n_weights * 8 / rows));
    for (int round = -1; round < ROUNDS; round++) { /* round -1 warms up */
        double start = time_now();
        for (int i = 0; i < n; i++)
            backend_linear(
                bench->backend,
                &(struct linear_args){.y = tensor_make(bench->y, DTYPE_F32, rows, bench->n_out),
                                      .x = tensor_make(bench->x, DTYPE_F32, rows, bench->n_in),
                                      .weight = &bench->weights[i]});
        if (round >= 0) seconds[round] = (time_now() - start) / n;
    }
    return bench_median(seconds, ROUNDS);
}

static void report(const struct linear_bench *bench, int rows) {
    double seconds = time_linear(bench, rows), gbps = (double)weight_bytes(bench) / seconds * 1e-9;
    double gflops = 2.0 * rows * bench->n_in * bench->n_out / seconds * 1e-9;
    if (bench->o->json) {
        char name[64];
        snprintf(name, sizeof name, "linear_%s_rows%d_gbps", dtype_name(bench->dtype), rows);
        bench_print(bench->o, name, "GB/s", gbps);
        snprintf(name, sizeof name, "linear_%s_rows%d_gflops", dtype_name(bench->dtype), rows);
        bench_print(bench->o, name, "GFLOP/s", gflops);
    } else {
        printf("%5d   %8.1f   %5.1f %%   %9.1f   %5.1f %%\n", rows, gbps,
               100 * gbps / bench->roofline.read_gbps, gflops,
               100 * gflops / bench->roofline.gflops[bench_product_of(bench->dtype)]);
    }
}

static enum status run(struct linear_bench *bench, struct error *e) {
    static const int sweep[] = {1, 2, 3, 4, 8, 16, 64, 256};
    enum status status = backend_open(&bench->backend, "cpu",
                                      &(struct backend_options){.threads = bench->threads}, e);
    if (status) return status;
    if ((status = roofline_measure(&bench->roofline, bench->threads, e)) == 0)
        status = make_weights(bench, max_int(bench->o->rows, sweep[ARRAY_COUNT(sweep) - 1]), e);
    if (status == 0) {
        if (!bench->o->json) {
            printf("%s; n_in %d, n_out %d, %s; %.1f GB/s read, %s %.0fe9/s\n",
                   backend_describe(bench->backend), bench->n_in, bench->n_out,
                   dtype_name(bench->dtype), bench->roofline.read_gbps,
                   bench_product_name(bench_product_of(bench->dtype)),
                   bench->roofline.gflops[bench_product_of(bench->dtype)]);
            printf(" rows   GB/s, share        GFLOP/s, share\n");
        }
        if (bench->o->rows != 0) report(bench, bench->o->rows);
        for (size_t i = 0; bench->o->rows == 0 && i < ARRAY_COUNT(sweep); i++)
            report(bench, sweep[i]);
        status = backend_sync(bench->backend, e);
    }
    for (int i = 0; i < bench->n_weights; i++)
        backend_release(bench->backend, bench->weights[i].data);
    free(bench->x);
    free(bench->y);
    backend_close(bench->backend);
    return status;
}

enum status bench_linear(const struct bench_options *options, struct error *e) {
    enum { DEFAULT_SIDE = 2048, MAX_SIDE = 1 << 18, MAX_ROWS = 1 << 16 };
    struct linear_bench *bench = xcalloc(1, sizeof *bench);
    bench->o = options;
    bench->n_in = options->n_in ? options->n_in : DEFAULT_SIDE;
    bench->n_out = options->n_out ? options->n_out : DEFAULT_SIDE;
    bench->dtype = options->dtype;
    bench->threads = options->threads;
    enum status status =
        bench->n_in > MAX_SIDE || bench->n_out > MAX_SIDE || options->rows > MAX_ROWS
            ? error_set(e, STATUS_INVALID, "--in and --out are at most %d, --rows at most %d",
                        MAX_SIDE, MAX_ROWS)
            : run(bench, e);
    free(bench);
    return status;
}
