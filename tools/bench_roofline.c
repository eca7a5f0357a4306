/* tools/bench_roofline.c: the limits of the machine: how fast it reads memory and multiplies. These two numbers are
 * what the kernels are measured against, so they are taken with the widest instructions the CPU has. */
#include <getopt.h>
#include <immintrin.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/bench.h"

enum { ROUNDS = 7, FMA_STEPS = 1 << 20, CHAINS = 16 };

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

/* One way to load and multiply. Both functions return something that depends on all their work, so that none of it can
 * be left out. `bytes` is a multiple of 1024. */
struct probe {
    uint64_t (*read)(const char *p, size_t bytes);
    double (*multiply)(int steps);
    double operations; /* of one step */
};

static uint64_t read_plain(const char *p, size_t bytes) {
    uint64_t sums[4] = {0};
    const uint64_t *words = (const uint64_t *)p;
    for (size_t i = 0; i < bytes / sizeof *words; i += 4)
        for (size_t j = 0; j < 4; j++) sums[j] ^= words[i + j];
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

static double multiply_plain(int steps) {
    float x[CHAINS];
    for (int j = 0; j < CHAINS; j++) x[j] = (float)j;
    for (int i = 0; i < steps; i++)
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++) x[j] = x[j] * 0.5f + 1.0f;
    double sum = 0;
    for (int j = 0; j < CHAINS; j++) sum += (double)x[j];
    return sum;
}

__attribute__((target("avx2"))) static uint64_t read_avx2(const char *p, size_t bytes) {
    __m256i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm256_setzero_si256();
    for (size_t i = 0; i < bytes; i += sizeof sums)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256((const __m256i *)(p + i) + j));
    for (int j = 1; j < 8; j++) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
    return (uint64_t)_mm256_extract_epi64(sums[0], 0);
}

__attribute__((target("avx2,fma"))) static double multiply_avx2(int steps) {
    __m256 x[12], half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
    for (int j = 0; j < 12; j++) x[j] = _mm256_set1_ps((float)j);
    for (int i = 0; i < steps; i++)
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) x[j] = _mm256_fmadd_ps(x[j], half, one);
    for (int j = 1; j < 12; j++) x[0] = _mm256_add_ps(x[0], x[j]);
    return (double)_mm256_cvtss_f32(x[0]);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, size_t bytes) {
    __m512i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes; i += sizeof sums)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512((const char *)p + i + 64 * j));
    for (int j = 1; j < 8; j++) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
    return (uint64_t)_mm512_reduce_or_epi64(sums[0]);
}

__attribute__((target("avx512f"))) static double multiply_avx512(int steps) {
    __m512 x[12], half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1);
    for (int j = 0; j < 12; j++) x[j] = _mm512_set1_ps((float)j);
    for (int i = 0; i < steps; i++)
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) x[j] = _mm512_fmadd_ps(x[j], half, one);
    for (int j = 1; j < 12; j++) x[0] = _mm512_add_ps(x[0], x[j]);
    return (double)_mm512_reduce_add_ps(x[0]);
}

static const struct probe *widest_probe(void) {
    static const struct probe plain = {read_plain, multiply_plain, 2 * CHAINS};
    static const struct probe avx2 = {read_avx2, multiply_avx2, 2 * 12 * 8};
    static const struct probe avx512 = {read_avx512, multiply_avx512, 2 * 12 * 16};
    if (__builtin_cpu_supports("avx512f")) return &avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : &plain;
}

/* Written to, so that the compiler keeps what is measured. */
static volatile double sink;

static double read_once(const struct probe *probe, const char *data, int threads) {
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
static double multiply_once(const struct probe *probe, int threads) {
    enum { PIECES = 64 };
    double sum = 0, start = time_now();
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(+ : sum)
    for (int i = 0; i < PIECES; i++) sum += probe->multiply(FMA_STEPS / PIECES * 4);
    double seconds = time_now() - start;
    sink = sum;
    return probe->operations * FMA_STEPS * 4 / seconds * 1e-9;
}

enum status roofline_measure(struct roofline *r, int threads, struct error *e) {
    char *data = aligned_alloc((size_t)2 << 20, BENCH_BYTES);
    if (data == NULL)
        return error_set(e, STATUS_NO_MEMORY, "roofline: no memory for a buffer of %zu MiB", BENCH_BYTES >> 20);
    madvise(data, BENCH_BYTES, MADV_HUGEPAGE); /* as the backend does for weights */
    memset(data, 1, BENCH_BYTES);
    const struct probe *probe = widest_probe();
    double read[ROUNDS], multiply[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        read[i] = read_once(probe, data, threads);
        multiply[i] = multiply_once(probe, threads);
    }
    free(data);
    *r = (struct roofline){threads, bench_median(read, ROUNDS), bench_median(multiply, ROUNDS)};
    return STATUS_OK;
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
    if (!json) printf("threads   read GB/s   f32 FMA GFLOP/s\n");
    for (int threads = 1; threads <= bench_threads(); threads++) {
        struct roofline r;
        struct error e;
        if (roofline_measure(&r, threads, &e)) {
            fprintf(stderr, "retro-bench: %s\n", e.text);
            return 1;
        }
        if (json) {
            bench_print_json("read_gbps", threads, r.read_gbps, "GB/s");
            bench_print_json("fma_gflops", threads, r.fma_gflops, "GFLOP/s");
        } else {
            printf("%7d   %9.1f   %15.0f\n", threads, r.read_gbps, r.fma_gflops);
        }
    }
    return 0;
}
