/* tools/bench_roofline.c: the limits of the machine: how fast it reads memory and multiplies. The kernels are measured
 * against these numbers, so they are taken with the instructions that the kernels use. */
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/backend.h"
#include "tools/bench.h"

enum { ROUNDS = 7, STEPS = 1 << 22 };

int bench_threads(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? max_int(1, CPU_COUNT(&set)) : 1;
}

static int compare_doubles(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double bench_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_print_json(const char *name, int threads, double value, const char *unit) {
    printf("{\"name\": \"%s\", \"threads\": %d, \"value\": %.4g, \"unit\": \"%s\"}\n", name, threads, value, unit);
}

const char *bench_product_name(enum bench_product p) {
    static const char *const names[] = {[BENCH_F32] = "f32 FMA", [BENCH_BF16] = "bf16 dot", [BENCH_INT8] = "int8 dot"};
    return names[p];
}

enum bench_product bench_product_of(enum dtype t) {
    return dtype_quantised(t) ? BENCH_INT8 : t == DTYPE_BF16 ? BENCH_BF16 : BENCH_F32;
}

/* Written to, so that the compiler keeps what is measured. */
static volatile double sink;

static double read_once(const struct bench_probe *probe, const char *data, int threads) {
    size_t chunk = (size_t)1 << 20;
    int chunks = (int)(BENCH_BYTES / chunk);
    uint64_t sum = 0;
    double start = time_now();
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) reduction(+ : sum)
    for (int i = 0; i < chunks; i++) sum += probe->read(data + (size_t)i * chunk, chunk);
    double seconds = time_now() - start;
    sink = (double)sum;
    return (double)BENCH_BYTES / seconds * 1e-9;
}

/* Pieces are small and handed out as threads become free: a core that is busy elsewhere for a moment does less. */
static double multiply_once(const struct bench_probe *probe, enum bench_product p, int threads) {
    enum { PIECES = 64 };
    double sum = 0, start = time_now();
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum)
    for (int i = 0; i < PIECES; i++) sum += probe->multiply[p].run(STEPS / PIECES);
    double seconds = time_now() - start;
    sink = sum;
    return probe->multiply[p].operations * STEPS / seconds * 1e-9;
}

enum status roofline_measure(struct roofline *r, const char *kernels, int threads, struct error *e) {
    char *data = aligned_alloc((size_t)2 << 20, BENCH_BYTES);
    if (data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "roofline: no memory for a buffer of %zu MiB", BENCH_BYTES >> 20);
    madvise(data, BENCH_BYTES, MADV_HUGEPAGE); /* as the backend does for weights */
    memset(data, 1, BENCH_BYTES);
    const struct bench_probe *probe = bench_probe_of(kernels);
    double read[ROUNDS], multiply[BENCH_PRODUCTS][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        read[i] = read_once(probe, data, threads);
        for (int p = 0; p < BENCH_PRODUCTS; p++) multiply[p][i] = multiply_once(probe, p, threads);
    }
    free(data);
    *r = (struct roofline){.threads = threads, .read_gbps = bench_median(read, ROUNDS)};
    for (int p = 0; p < BENCH_PRODUCTS; p++) r->gflops[p] = bench_median(multiply[p], ROUNDS);
    return STATUS_OK;
}

static void report(const struct roofline *r, bool json) {
    static const char *const names[] = {
        [BENCH_F32] = "fma_gflops", [BENCH_BF16] = "bf16_dot_gflops", [BENCH_INT8] = "int8_dot_gops"};
    if (!json) {
        printf("%7d   %9.1f", r->threads, r->read_gbps);
        for (int p = 0; p < BENCH_PRODUCTS; p++) printf("   %8.0f", r->gflops[p]);
        printf("\n");
        return;
    }
    bench_print_json("read_gbps", r->threads, r->read_gbps, "GB/s");
    for (int p = 0; p < BENCH_PRODUCTS; p++)
        bench_print_json(names[p], r->threads, r->gflops[p], p == BENCH_INT8 ? "GOP/s" : "GFLOP/s");
}

static enum status run(bool json, struct error *e) {
    struct backend *b;
    enum status status = backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e);
    if (status) return status;
    if (!json) {
        printf("%s\nthreads   read GB/s", backend_describe(b));
        for (int p = 0; p < BENCH_PRODUCTS; p++) printf("   %8s", bench_product_name(p));
        printf("   1e9 operations/s\n");
    }
    for (int threads = 1; threads <= bench_threads() && status == STATUS_OK; threads++) {
        struct roofline r;
        status = roofline_measure(&r, backend_describe(b), threads, e);
        if (status == STATUS_OK) report(&r, json);
    }
    backend_close(b);
    return status;
}

int bench_roofline(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'h') {
            printf("usage: retro-bench roofline [--json]\n");
            return 0;
        }
        if (c != 'j') return 2;
        json = true;
    }
    struct error e;
    if (run(json, &e) == STATUS_OK) return 0;
    fprintf(stderr, "retro-bench: %s\n", e.text);
    return 1;
}
