/* tools/bench.h: what the sub-commands of retro-bench share: the limits of the machine, medians, output. */
#pragma once

#include "config/base.h"

/* What this machine can do with `threads` threads: bytes read from memory and f32 multiply-adds (two operations each),
 * with the widest instructions it has. */
struct roofline {
    int threads;
    double read_gbps;  /* 1e9 bytes per second, from a buffer larger than the caches */
    double fma_gflops; /* 1e9 operations per second, from registers */
};

/* Measures for about a second. STATUS_NO_MEMORY when the buffer does not fit. */
enum status roofline_measure(struct roofline *r, int threads, struct error *e);

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
