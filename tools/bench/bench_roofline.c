/* tools/bench/bench_roofline.c: the limits of the machine: how fast it reads memory and multiplies.
 * The kernels are measured against these numbers, so they are taken with the instructions that the
 * kernels use. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/backend.h"
#include "tools/bench/bench.h"

enum { ROUNDS = 7, STEPS = 1 << 22 };

const char *bench_product_name(enum bench_product product) {
    static const char *const names[] = {
        [BENCH_F32] = "f32 FMA", [BENCH_BF16] = "bf16 dot", [BENCH_INT8] = "int8 dot"};
    return names[product];
}

enum bench_product bench_product_of(enum dtype dtype) {
    return dtype_quantised(dtype) ? BENCH_INT8 : dtype == DTYPE_BF16 ? BENCH_BF16 : BENCH_F32;
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

/* Pieces are small and handed out as threads become free: a core that is busy elsewhere for a
 * moment does less. */
static double multiply_once(const struct bench_probe *probe, enum bench_product product,
                            int threads) {
    enum { PIECES = 64 };
    double sum = 0, start = time_now();
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum)
    for (int i = 0; i < PIECES; i++) sum += probe->multiply[product].run(STEPS / PIECES);
    double seconds = time_now() - start;
    sink = sum;
    return probe->multiply[product].operations * STEPS / seconds * 1e-9;
}

/* With the instructions that the backend uses; NULL with *e set. */
static const struct bench_probe *find_probe(struct error *e) {
    struct backend *backend;
    if (backend_open(&backend, "cpu", &(struct backend_options){.threads = 1}, e)) return NULL;
    const struct bench_probe *probe = bench_probe_of(backend_describe(backend));
    backend_close(backend);
    return probe;
}

enum status roofline_measure(struct roofline *roofline, int threads, struct error *e) {
    const struct bench_probe *probe = find_probe(e);
    if (probe == NULL) return e->status;
    char *data = aligned_alloc((size_t)2 << 20, BENCH_BYTES);
    if (data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "roofline: no memory for a buffer of %zu MiB",
                         BENCH_BYTES >> 20);
    madvise(data, BENCH_BYTES, MADV_HUGEPAGE); /* as the backend does for weights */
    memset(data, 1, BENCH_BYTES);
    double read[ROUNDS], multiply[BENCH_PRODUCTS][ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        read[i] = read_once(probe, data, threads);
        for (int p = 0; p < BENCH_PRODUCTS; p++) multiply[p][i] = multiply_once(probe, p, threads);
    }
    free(data);
    *roofline = (struct roofline){.threads = threads,
                                  .kernels = probe->kernels[0] == '\0' ? "generic" : probe->kernels,
                                  .read_gbps = bench_median(read, ROUNDS)};
    for (int p = 0; p < BENCH_PRODUCTS; p++)
        roofline->gflops[p] = bench_median(multiply[p], ROUNDS);
    return STATUS_OK;
}

enum status bench_roofline(const struct bench_options *options, struct error *e) {
    static const char *const names[] = {[BENCH_F32] = "fma_gflops",
                                        [BENCH_BF16] = "bf16_dot_gflops",
                                        [BENCH_INT8] = "int8_dot_gops"};
    struct bench_options at = *options;
    for (at.threads = 1; at.threads <= options->threads; at.threads++) {
        struct roofline roofline;
        if (roofline_measure(&roofline, at.threads, e)) return e->status;
        bench_print_title(&at, "this machine, %d thread%s, %s kernels", at.threads,
                          at.threads > 1 ? "s" : "", roofline.kernels);
        bench_print(&at, "read_gbps", "GB/s", roofline.read_gbps);
        for (int p = 0; p < BENCH_PRODUCTS; p++)
            bench_print(&at, names[p], p == BENCH_INT8 ? "GOP/s" : "GFLOP/s", roofline.gflops[p]);
    }
    return STATUS_OK;
}
