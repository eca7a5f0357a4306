/* tools/bench.h: what the sub-commands of retro-bench share: the limits of the machine, medians, output. */
#pragma once

#include "kernels/tensor.h"

/* The multiplications that are measured: of f32, and dot products of bf16 and of int8 where there are instructions for
 * them; without, bf16 is multiplied as f32. */
enum bench_product { BENCH_F32, BENCH_BF16, BENCH_INT8, BENCH_PRODUCTS };

/* What this machine can do with `threads` threads, with the instructions that the backend uses. */
struct roofline {
    int threads;
    double read_gbps;              /* 1e9 bytes per second, from a buffer larger than the caches */
    double gflops[BENCH_PRODUCTS]; /* 1e9 operations per second, from registers; a multiply-add is two */
};

/* Measures for less than a second; `kernels` is backend_describe. STATUS_NO_MEMORY when the buffer does not fit. */
enum status roofline_measure(struct roofline *r, const char *kernels, int threads, struct error *e);
/* The product that matrices of that dtype are limited by. */
enum bench_product bench_product_of(enum dtype t);
const char *bench_product_name(enum bench_product p);

/* One way to load and multiply. All functions return something that depends on all their work, so that none of it can
 * be left out. `bytes` is a multiple of 1024. */
struct bench_probe {
    const char *kernels;
    uint64_t (*read)(const char *p, size_t bytes);
    struct {
        double (*run)(int steps);
        double operations; /* of one step */
    } multiply[BENCH_PRODUCTS];
};
const struct bench_probe *bench_probe_of(const char *kernels);

/* The buffer that is read, and the least amount of weights a bandwidth figure is taken over: beyond any cache. */
#define BENCH_BYTES ((size_t)512 << 20)

/* Threads this process may run on. */
int bench_threads(void);
/* The median of n values, which are reordered. */
double bench_median(double *values, int n);
/* {"name": "read_gbps", "threads": 1, "value": 38.1, "unit": "GB/s"} */
void bench_print_json(const char *name, int threads, double value, const char *unit);

/* The sub-commands. argv[0] is the sub-command's name; the result is the exit code. */
int bench_roofline(int argc, char **argv);
int bench_linear(int argc, char **argv);
int bench_decode(int argc, char **argv);
int bench_prefill(int argc, char **argv);
int bench_batch(int argc, char **argv);
int bench_peers(int argc, char **argv);
int bench_embed(int argc, char **argv);
int bench_device(int argc, char **argv);
