/* tools/bench/bench.h: what the sub-commands of retro-bench share: options, the limits of the
 * machine, output. */
#pragma once

#include <stdio.h>

#include "kernels/tensor.h"

/* The command line. */

/* An option that several sub-commands may have; a command lists its own as a sum. */
enum bench_option {
    BENCH_OPTION_MODEL = 1 << 0,
    BENCH_OPTION_DTYPE = 1 << 1,
    BENCH_OPTION_THREADS = 1 << 2,
    BENCH_OPTION_SEQUENCES = 1 << 3,
    BENCH_OPTION_PROMPT = 1 << 4,
    BENCH_OPTION_TOKENS = 1 << 5,
    BENCH_OPTION_ROWS = 1 << 6,
    BENCH_OPTION_IN = 1 << 7,
    BENCH_OPTION_OUT = 1 << 8,
    BENCH_OPTION_COLLECTION = 1 << 9,
    BENCH_OPTION_CHUNKS = 1 << 10,
    BENCH_OPTION_EMBEDDER = 1 << 11,
    BENCH_OPTION_DEVICE = 1 << 12,
    BENCH_OPTION_LIMITS = 1 << 13,
    BENCH_OPTION_EAGER = 1 << 14,
    BENCH_OPTION_JSON = 1 << 15,
    BENCH_OPTION_VECTORS = 1 << 16,
    BENCH_OPTION_DIMS = 1 << 17,
    BENCH_OPTION_INDEX = 1 << 18,
    BENCH_OPTION_K = 1 << 19,
    BENCH_OPTION_ROUNDS = 1 << 20,
    BENCH_OPTION_PIXELS = 1 << 21
};

/* A shape that needs no folder: the part of a config.json that does not depend on retrieval. */
struct bench_shape {
    const char *name, *retro_name; /* of the plain model, and of the one that reads neighbours */
    int layers, hidden, heads, ffn, vocab, positions;
    const char *position, *norm, *activation; /* as config.json names them */
    bool bias;
};

enum { BENCH_MAX_ROUNDS = 32 };

/* The command line's options. Strings are borrowed from argv; numbers are 0 and strings NULL where
 * nothing was given. */
struct bench_options {
    char **folders;
    int n_folders;
    const struct bench_shape *shape; /* shape m where none was given */
    enum dtype dtype;                /* bf16 where none was given */
    int threads;                     /* as many as the process may use where none were given */
    int sequences, prompt, tokens, rows, n_in, n_out, chunks, vectors, dims, k, pixels;
    int rounds; /* measurements; 5 where nothing was given, at most BENCH_MAX_ROUNDS */
    const char *collection, *embedder, *device, *index;
    bool limits, eager, json, help;
    /* For the output, set by the command or its caller: in front of the figures' names, and of what
     * they are; model and dtype are left out where NULL. */
    const char *prefix, *model_name, *dtype_name;
};

struct bench_command {
    const char *name, *help;
    unsigned options; /* a sum of enum bench_option */
    int min_folders, max_folders;
    enum status (*run)(const struct bench_options *options, struct error *e);
};

/* Reads the arguments after the names of n commands into *options. Several commands share one line:
 * each takes the options it has, one of them has to, and folders are for single commands. */
enum status bench_parse(struct bench_options *options, char **arguments,
                        const struct bench_command *const *commands, int n, struct error *e);
void bench_print_usage(const struct bench_command *command, FILE *out);

/* The names that dtype_parse knows, Q4_K, Q5_K and Q6_K, and names that others have for a type of
 * as many bits: q8_0 is int8, q4_1 and q4_0 are int4. False when unknown. */
bool bench_dtype_parse(const char *name, enum dtype *dtype);
/* "m", "s-int8": a shape, and a type that bench_dtype_parse knows. The type is left alone where the
 * name has none. False when unknown. */
bool bench_shape_parse(const char *name, const struct bench_shape **shape, enum dtype *dtype);

/* The limits of the machine. */

/* The multiplications that are measured: of f32, and dot products of bf16 and of int8 where there
 * are instructions for them; without, bf16 is multiplied as f32. */
enum bench_product { BENCH_F32, BENCH_BF16, BENCH_INT8, BENCH_PRODUCTS };

/* The ceilings of this machine with `threads` threads and the instructions that the backend uses.
 */
struct roofline {
    int threads;
    const char *kernels;           /* the variant whose instructions were measured */
    double read_gbps;              /* 1e9 bytes per second, from a buffer larger than the caches */
    double gflops[BENCH_PRODUCTS]; /* 1e9 operations per second, from registers; a multiply-add is
                                      two */
};

/* Measures for less than a second. STATUS_NO_MEMORY when the buffer does not fit. */
enum status roofline_measure(struct roofline *roofline, int threads, struct error *e);
/* The product that matrices of that dtype are limited by. */
enum bench_product bench_product_of(enum dtype dtype);
const char *bench_product_name(enum bench_product product);

/* One way to load and multiply. All functions return something that depends on all their work, so
 * that none of it can be left out. `bytes` is a multiple of 1024. */
struct bench_probe {
    const char *kernels;
    uint64_t (*read)(const char *p, size_t bytes);
    struct {
        double (*run)(int steps);
        double operations; /* of one step */
    } multiply[BENCH_PRODUCTS];
};
const struct bench_probe *bench_probe_of(const char *kernels); /* backend_describe of the CPU */

/* The buffer that is read, and the least amount of weights a bandwidth figure is taken over: beyond
 * any cache. */
#define BENCH_BYTES ((size_t)512 << 20)

/* Output and small things. */

/* Threads this process may run on. */
int bench_threads(void);
/* The median of n values, which are sorted; 0 when there are none. */
double bench_median(double *values, int n);

/* Names the measurement and the machine, for readers; nothing in JSON, whose lines say it
 * themselves. */
void bench_print_title(const struct bench_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* One figure on a line: {"name": "decode", "model": "m", "dtype": "bf16", "threads": 1,
 * "value": 12.5, "unit": "tok/s"}, or a row of a table. */
void bench_print(const struct bench_options *options, const char *name, const char *unit,
                 double value);
/* The median of n rounds with "low" and "high" beside it; returns it. The values are sorted. */
double bench_print_rounds(const struct bench_options *options, const char *name, const char *unit,
                          double *values, int n);

/* A new empty folder among the system's temporary ones, and its end with all that is in it. */
enum { BENCH_FOLDER_SIZE = 32 };
enum status bench_folder_make(char path[BENCH_FOLDER_SIZE], struct error *e);
void bench_folder_remove(const char *path);

/* The sub-commands. */
enum status bench_roofline(const struct bench_options *options, struct error *e);
enum status bench_linear(const struct bench_options *options, struct error *e);
enum status bench_decode(const struct bench_options *options, struct error *e);
enum status bench_prefill(const struct bench_options *options, struct error *e);
enum status bench_batch(const struct bench_options *options, struct error *e);
enum status bench_cache(const struct bench_options *options, struct error *e);
enum status bench_seq2seq(const struct bench_options *options, struct error *e);
enum status bench_tower(const struct bench_options *options, struct error *e);
enum status bench_peers(const struct bench_options *options, struct error *e);
enum status bench_turns(const struct bench_options *options, struct error *e);
enum status bench_embed(const struct bench_options *options, struct error *e);
enum status bench_retrieval(const struct bench_options *options, struct error *e);
enum status bench_load(const struct bench_options *options, struct error *e);
enum status bench_search(const struct bench_options *options, struct error *e);
enum status bench_quotes(const struct bench_options *options, struct error *e);
enum status bench_index(const struct bench_options *options, struct error *e);
enum status bench_device(const struct bench_options *options, struct error *e);
