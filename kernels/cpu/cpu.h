/* kernels/cpu/cpu.h: private to the CPU backend: its state and the table of vector kernels.
 *
 * A variant (generic; avx2, avxvnni, avx512, avx512vnni, avx512bf16, amx; neon, dotprod, i8mm,
 * bf16) is one struct cpu_kernels. The op files (linear.c, attention.c ...) cut the work, hand it
 * to threads and call the variant; a variant never sees threads. */
#pragma once

#include <stdatomic.h>

#include "kernels/backend.h"
#include "kernels/cpu/compiler.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pool.h"

enum {
    ATTENTION_KEYS =
        256, /* keys of one range, whole blocks: the softmax of a row is made range by range */
    ATTENTION_ROWS = 128, /* (query, head) pairs of one piece of attention */
    ATTENTION_COPY =
        8192, /* floats: keys, or values, converted together where several rows read them */
    SAMPLE_BLOCK = 256, /* logits whose weights are computed together */
    INPUT_BYTES =
        2 << 20, /* activations rounded to bf16 or int8, or in panels, that are held at once */
    CPU_MAX_THREADS = 1024
};

/* With few rows memory sets the pace of a product, and must never idle: they read the weights as
 * one stream, tile after tile, and fetch what comes FETCH_AHEAD bytes later. Measured for one row:
 * 94 % of the read bandwidth in int8 and 95 to 99 % in int4, f16 and bf16, where four tiles side by
 * side reached 70 to 80. More rows take as many tiles at once as the registers hold, and spread the
 * fetching of the next ones over their passes. */
enum { FEW_ROWS = 4, FETCH_AHEAD = 4096 };

/* The softmax of some rows over some of their keys: per row the largest score, the sum of e^(score
 * - largest), and the sum of the values times that. Rows are padded to whole vectors. */
struct attention_sums {
    float *out;           /* [rows][padded head_dim] */
    float *largest, *sum; /* [rows] */
};

/* One thread's scratch for attention. */
struct attention_scratch {
    float queries[ATTENTION_ROWS *
                  ATTENTION_MAX_HEAD]; /* [rows][padded], scaled, zeros beyond head_dim */
    float scores[ATTENTION_ROWS * ATTENTION_KEYS]; /* of one range; then e^(score - largest) */
    float bias[ATTENTION_ROWS * ATTENTION_KEYS];   /* of one range, where distances add to scores */
    float copy[ATTENTION_COPY]; /* [keys][kv_heads][padded], zeros beyond head_dim */
    /* Queries, and the weights of one range's keys, as pairs of bf16, where a variant multiplies
     * such: a float's place holds a pair. */
    float query_pairs[ATTENTION_ROWS * ATTENTION_MAX_HEAD];
    float weight_pairs[ATTENTION_ROWS * ATTENTION_KEYS / 2];
    /* Of one range's int8 keys and values, [kv_heads][ATTENTION_KEYS]. */
    float k_scales[ATTENTION_ROWS * ATTENTION_KEYS], v_scales[ATTENTION_ROWS * ATTENTION_KEYS];
    /* Sums of two pieces with the largest heads, of more with smaller ones; all threads' are shared
     * where a piece is.
     */
    float sums[2 * ATTENTION_ROWS * (ATTENTION_MAX_HEAD + 2)];
};

/* The work of the variants' attention: `keys` keys and values of one range, columns of `kv_heads`
 * key heads. `rows` rows read each key head: those of key head g are g * rows .. of the scratch and
 * of `sums`. Row i of them sees keys [hidden[i], visible[i]) of the range, and neither falls as i
 * grows; where it sees none, its sums mean nothing. */
struct attention_range {
    struct attention_scratch *scratch;
    struct attention_sums sums;
    struct tensor k, v;               /* of all rows; of these key heads' columns */
    struct tensor k_scales, v_scales; /* likewise; data NULL: none */
    /* The row of k and v where key ATTENTION_BLOCK * i of the range lies, and those after it
     * follow. The last is where the next range begins, for fetching ahead; where there is none, any
     * row. */
    int starts[ATTENTION_KEYS / ATTENTION_BLOCK + 1];
    int keys, kv_heads, rows, head_dim;
    int padded; /* head_dim rounded up to TILE_COLUMNS */
    int hidden[ATTENTION_ROWS], visible[ATTENTION_ROWS];
    bool exact;    /* as in attention_args */
    float softcap; /* 0: none */
    int reach;     /* the largest distance that the bias tells from farther ones; -1: no bias */
    int distance[ATTENTION_ROWS];      /* [row]: position of the range's first key minus that of the
                                          row's query */
    const float *bias[ATTENTION_ROWS]; /* [key head][row]: the bias at distance 0 */
};

struct input_block;
struct super_input;
struct block_product;
struct panel_product;
struct pair_product;

/* Kernels that every vector set has a form of, KERNEL(set, result, name, parameters, arguments,
 * inner): name_SET is the header's `inner`, compiled with the instructions of the set. An extension
 * (VNNI, BF16) uses those of the set it extends. A new one is a row here and its inner function. */

/* The softmax of every row over this range alone; then `from` enters `to` (see attention.c).
 * attention_vector.h */
#define ATTENTION_KERNELS(KERNEL, set) \
    KERNEL(set, void, attention, (const struct attention_range *range), (range), attention_vector)
#define MERGE_KERNELS(KERNEL, set) \
    KERNEL( \
        set, void, merge, \
        (const struct attention_sums *to, const struct attention_sums *from, int row, int padded), \
        (to, from, row, padded), merge_vector)

/* Element by element, y may be x: y[i] = activation(x[i]); x[i] = cap tanh(x[i] / cap); y[i] =
 * e^x[i], within 2 ulp where the result is a normal number, and NaN stays NaN. math_vector.h; the
 * generic forms are in math_generic.c. */
#define MATH_KERNELS(KERNEL, set) \
    KERNEL(set, void, activate, (float *y, const float *x, int n, enum activation activation), \
           (y, x, n, activation), activate_vector) \
    KERNEL(set, void, softcap, (float *x, int n, float cap), (x, n, cap), softcap_vector) \
    KERNEL(set, void, exp, (float *y, const float *x, int n), (y, x, n), exp_vector)

/* Rows of one value head that keeps a matrix: q, k and v are ready, and `state` is S [key_dim,
 * value_dim], which is read and written. delta_vector.h, delta_generic.c. */
struct delta_rows {
    const float *q, *k, *v; /* rows of q and k are `apart` floats apart */
    int64_t apart, v_apart, y_apart;
    float *y, *state;
    const float *decay, *strength; /* of each row, `heads` floats apart: how much of S stays, and
                                      how much of what v asks for is written */
    int heads, rows, key_dim, value_dim;
    enum delta_rule rule;
    float skip; /* where rows add */
};
#define DELTA_KERNELS(KERNEL, set) \
    KERNEL(set, void, delta, (const struct delta_rows *rows), (rows), delta_vector)

/* Bitwise the same in all variants, so the generic form is the same text: one row of the ops of
 * those names, y[i] = sum over j of filter[j n + i] x[j][i], y[i] = x[i] scale, to[i] = from[i] as
 * f16 as dtype_convert makes it, a group of scatter_rows as int8, whose scale is returned as bf16
 * (row_math.h); integers that order as the logits do, the largest of
 * them, and the integer sampling weights, of n
 * <= SAMPLE_BLOCK logits (sample_weights.h). */
#define ROW_KERNELS(KERNEL, set) \
    KERNEL(set, void, norm, (const struct norm_args *a, int row), (a, row), norm_row) \
    KERNEL(set, void, square, (const struct square_rows_args *a, int row), (a, row), square_row) \
    KERNEL(set, void, add, (const struct add_args *a, int row), (a, row), add_row) \
    KERNEL(set, void, convolve, \
           (float *y, const float *const *x, const float *filter, int kernel, int n), \
           (y, x, filter, kernel, n), convolve_row) \
    KERNEL(set, void, scale, (float *y, const float *x, int n, float scale), (y, x, n, scale), \
           scale_row) \
    KERNEL(set, void, halve, (uint16_t * to, const float *from, int n), (to, from, n), halve_row) \
    KERNEL(set, uint16_t, narrow, (int8_t * to, const float *from, int n), (to, from, n), \
           narrow_row) \
    KERNEL(set, void, keys, (uint32_t * keys, const float *logits, int n), (keys, logits, n), \
           sample_keys) \
    KERNEL(set, uint32_t, top, (const float *logits, int n), (logits, n), sample_top) \
    KERNEL(set, void, weights, \
           (uint64_t * w, const float *logits, int n, double largest, double temperature), \
           (w, logits, n, largest, temperature), sample_weights)

#define KERNELS_BESIDE_ATTENTION(KERNEL, set) \
    MERGE_KERNELS(KERNEL, set) \
    MATH_KERNELS(KERNEL, set) ROW_KERNELS(KERNEL, set) DELTA_KERNELS(KERNEL, set)
#define COMMON_KERNELS(KERNEL, set) \
    ATTENTION_KERNELS(KERNEL, set) KERNELS_BESIDE_ATTENTION(KERNEL, set)

#define KERNEL_MEMBER(set, result, name, parameters, arguments, inner) result(*name) parameters;
struct cpu_kernels {
    const char *name;
    bool (*supported)(
        void); /* whether this processor and operating system can run them; NULL: all can */
    /* to[i] = from[i] as bf16, round to nearest even; NULL where linear takes f32 activations for
     * bf16 weights too. */
    void (*round)(uint16_t *to, const float *from, int n);
    /* Columns of tiles [first_tile, first_tile + n_tiles) of y = x W^T + bias, all rows, before the
     * activation. x is f32; or bf16, rows padded with zero to packed_depth, where the weight is
     * bf16 and `round` is there. */
    void (*linear)(const struct linear_args *args, int first_tile, int n_tiles);
    /* The same of f32 weights, for many rows: the most rows of a panel (panels.h), 0 where there
     * are no such kernels; one panel's copy; then columns of tiles as above. */
    int panel_rows;
    void (*panel)(const struct panel_product *product, int panel);
    void (*panels)(const struct panel_product *product, int first_tile, int n_tiles);
    /* `blocks` blocks of x, for weights of that dtype, each `step` structs behind the one before;
     * bitwise the same in all variants. Then columns of tiles as above, of int8 and int4 weights
     * (blocks.h). */
    void (*quantise)(struct input_block *to, int step, const float *from, int blocks,
                     enum dtype weights);
    void (*blocks)(const struct block_product *product, int first_tile, int n_tiles);
    /* The same for Q4_K, Q5_K and Q6_K weights. */
    void (*quantise_supers)(struct super_input *to, int step, const float *from, int supers,
                            enum dtype weights);
    void (*supers)(const struct block_product *product, int first_tile, int n_tiles);
    /* The same products of more than FEW_ROWS rows, and with `round` those of bf16, in pairs of
     * rows (pairs.h): one pair's copy; then columns of tiles as above. NULL: there are no such
     * kernels. */
    void (*pair)(const struct pair_product *product, int pair);
    void (*pairs)(const struct pair_product *product, int first_tile, int n_tiles);
    /* Whether attention over keys and values of fewer than 32 bits rounds what it multiplies, and
     * the weights of keys, to bf16, where a call is not exact. */
    bool attention_rounds;
    COMMON_KERNELS(KERNEL_MEMBER, )
};

extern const struct cpu_kernels cpu_kernels_generic;
#if CPU_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512,
    cpu_kernels_avx512vnni, cpu_kernels_avx512bf16, cpu_kernels_amx;
#endif
#if CPU_ARM
extern const struct cpu_kernels cpu_kernels_neon, cpu_kernels_dotprod, cpu_kernels_i8mm,
    cpu_kernels_bf16;
#endif
/* The variants of this build, best first, then NULL. */
extern const struct cpu_kernels *const cpu_variants[];
/* The names of the variants of all builds, then NULL. */
extern const char *const cpu_variant_names[];

/* The state behind backend->device. */
struct cpu {
    const struct cpu_kernels *kernels;
    int threads;
    struct pool *pool;
    struct attention_scratch *scratch; /* [threads] */
    void *inputs;          /* [INPUT_BYTES], what kernels->round, quantise, panel and pair make */
    atomic_ullong fetched; /* bytes (fetch.h) */
    atomic_bool pages_hidden, advice_refused; /* likewise: what the system does not do */
    char description[48];
};

static inline int divide_up(int x, int y) { return (x + y - 1) / y; }
static inline struct cpu *cpu_of(const struct backend *backend) { return backend->device; }

/* work(context, 0 .. pieces - 1, thread) on all threads, or on this one alone where waking the
 * others would cost more than it saves: `operations` is a rough count of multiply-adds or of
 * elements moved. */
static inline void cpu_run(struct backend *backend, double operations, int pieces, pool_work *work,
                           const void *context) {
    if (operations >= 32768) {
        pool_run(cpu_of(backend)->pool, operations, pieces, work, context);
    } else {
        for (int i = 0; i < pieces; i++) work(context, i, 0);
    }
}

enum status cpu_open(struct backend *backend, const struct backend_options *options,
                     struct error *e);
static inline bool cpu_supports(const struct cpu_kernels *kernels) {
    return kernels->supported == NULL || kernels->supported();
}
/* Memory as ops->alloc gives it, without the zeros: for what is written as a whole. */
void *cpu_reserve(size_t bytes);

enum status cpu_pack(struct backend *backend, struct weight *weight, const struct host_matrix *host,
                     struct error *e);
size_t cpu_packed_bytes(const struct weight *weight);
#define CPU_PROTOTYPE(name) void cpu_##name(struct backend *b, const struct name##_args *a);
BACKEND_OPERATIONS(CPU_PROTOTYPE)

/* y = x W^T + bias of `n` <= LONE_PRODUCTS products of one row each, all as one job: between two of
 * them no thread waits and memory does not idle. Their weights have one shape and dtype; products
 * with the same x share it. `room`, aligned as a cache line, has cpu_lone_row_bytes for each
 * product. A row's result is that of cpu_linear. */
enum { LONE_PRODUCTS = 32 };
void cpu_linear_lone(struct backend *backend, const struct linear_args *args, int n, void *room);
size_t cpu_lone_row_bytes(const struct backend *backend, const struct weight *weight);

static inline float *row_f32(struct tensor t, int row) {
    return (float *)t.data + (int64_t)row * t.stride;
}
static inline void *row_of(struct tensor t, int row) {
    return (char *)t.data + row * t.stride * (int64_t)dtype_bytes(t.dtype);
}
