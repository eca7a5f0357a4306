/* kernels/backend.h: what a device can do. One table of functions; cpu/ and cuda/ fill it.
 *
 * A backend is opened by name and owns its device memory, stream and thread pool. Compute ops
 * enqueue in order, never allocate and return nothing: the first failure sticks in the backend,
 * later ops do nothing, and backend_sync reports it. Shapes were checked when the weights were
 * loaded, so a mismatch here is our bug and CHECK aborts.
 *
 * Activations are f32. Every op computes a row from that row alone, in an order that does not
 * depend on how many rows there are: the result for a sequence is bitwise the same alone and in any
 * batch.
 *
 * The ops are called through the wrappers at the end: backend_linear(b, &(struct
 * linear_args){...}). Arrays of int and float in argument structs are host memory, read when the op
 * is enqueued. */
#pragma once

#include "kernels/tensor.h"

struct backend {
    const struct backend_ops *ops;
    struct error error; /* the first failure since the last sync; STATUS_OK when none */
    void *device;       /* the implementation's own state */
};

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_GELU_TANH, /* 0.5 x (1 + tanh(0.79788456 x (1 + 0.044715 x^2))),
                             docs/spec/retro-model.md 4.5 */
    ACTIVATION_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt 2)) */
    ACTIVATION_SILU,      /* x sigmoid(x) */
    ACTIVATION_RELU,
    ACTIVATION_RELU_SQUARED,
    ACTIVATION_QUICK_GELU, /* x sigmoid(1.702 x) */
    ACTIVATION_SIGMOID
};

/* y = activation(x W^T + bias). x [rows, n_in], y [rows, n_out], bias f32 [n_out] or NULL; y
 * overlaps nothing. Products are summed in f32. With bf16 weights a backend may round x to bf16
 * first, to nearest even, where the device has a dot product of that type: each term is then off by
 * at most 2^-8 of its size. f32 and f16 weights meet x as it is. With int8 and int4 weights a
 * backend may round x to integers too: in each block of QUANTISE_BLOCK to multiples of its largest
 * magnitude / 127, so each x is off by at most 1 / 254 of that; for int4 to multiples of the least
 * power of two that is not below it, so off by at most 1 / 127. MXFP4 weights do as int8; Q4_K,
 * Q5_K and Q6_K weights do as int8 with blocks of SUPER_BLOCK. A NaN or, on the CPU, an infinity in
 * x makes that row of y NaN. The header of kernels/cuda/linear.cu says what that device rounds. */
struct linear_args {
    struct tensor y, x;
    const struct weight *weight;
    const float *bias;
    enum activation activation;
};

/* A product for each head: of head h of a row of x, the first n_in columns by weights[h], and
 * behind them in y the next `kept` columns of x as they are. Heads lie side by side: x [rows, heads
 * columns], of at least n_in + kept columns each, y [rows, heads (n_out + kept)]. The weights have
 * one shape and one type; products round as backend_linear's. y overlaps nothing. Latent attention
 * takes queries to the space of the cache's rows and back by this (DeepSeek-V2, arXiv 2405.04434,
 * 2.1.2). */
struct linear_heads_args {
    struct tensor y, x;
    const struct weight *weights; /* [heads], host array */
    int heads, kept;
};

/* One sequence of an attention call: query rows [q_start, q_start + q_count) read k_count keys.
 * Without a block table those are rows [k_start, k_start + k_count) of k and v; with one, k_start
 * counts in the table: key i is row blocks[k_start + i / ATTENTION_BLOCK] * ATTENTION_BLOCK + i %
 * ATTENTION_BLOCK. Sequences overlap in no query row; a row in no sequence, or with k_count 0, gets
 * zeros. */
struct attention_span {
    int q_start, q_count, k_start, k_count;
    int mutual; /* 1: under MASK_CAUSAL its queries see all keys up to its last, as those of a
                   picture that is whole do (Gemma Team 2025, arXiv 2503.19786); else 0. A window
                   bounds the keys before a query alone */
};

/* Query i of a span stands at key k_count - q_count + i: its own key in self attention. */
enum mask {
    MASK_NONE,
    MASK_CAUSAL /* a query sees the key where it stands and those before; k_count >= q_count */
};

enum {
    ATTENTION_MAX_HEAD =
        576, /* largest head_dim, of rope too: whoever reads a model's shape checks it */
    /* Rows of a block of keys and values. Every jump from one block to another costs a reader about
     * 0.3 us, measured on an EPYC (Zen 5) with blocks in random order: 7 to 11 % of reading rows of
     * 1 KiB in blocks of 64 rows, half of that in blocks of 128. */
    ATTENTION_BLOCK = 128
};

/* Additions to scores by distance, from the side of the query and of the key (DeBERTa, He et al.
 * 2021, arXiv 2006.03654, 3.1): the score of query i and key j of head h grows by scale
 * (by_query[i][h R + c] + by_key[j][h R + c]),  c = columns[D + distance], distance = where the
 * query stands - key, at least -D and at most D. f32 [rows of q, heads R] and [rows of k, heads R],
 * columns [2 D + 1] of 0 .. R - 1, all on the device. by_query.data NULL: nothing. CPU alone; keys
 * lie row after row, kv_heads is heads, and there is neither bias nor soft-cap. */
struct distance_scores {
    struct tensor by_query, by_key;
    const int32_t *columns;
    int reach; /* D */
};

/* out = softmax(scale q k^T + bias) v per head (spec 4.3). q, out f32 [rows, heads * head_dim],
 * heads side by side; k, v [key rows, kv_heads * head_dim] of any dtype; query head i reads key
 * head i / (heads / kv_heads). Self attention over a KV cache, over packed rows, encoder and
 * chunked cross attention are all this op: chunked cross attention is one span per chunk, the rows
 * [(n-1) mod m, n) cut every m, each reading its own k * r neighbour rows (spec 5.3).
 *
 * Equal keys and values give equal bits, with and without a block table and in whatever blocks they
 * lie. Rows of k and v that a query does not see have no effect on it, NaN included.
 *
 * The columns of a key head in a row of int8 keys or values are integers times one scale, as
 * scatter_rows_args makes them. Only the CPU reads these. */
struct attention_args {
    struct tensor out, q, k, v;
    struct tensor k_scales,
        v_scales; /* bf16 [key rows, kv_heads] of int8 k and v; else data NULL */
    const struct attention_span *spans;
    int n_spans;
    int heads, kv_heads, head_dim;
    float scale;
    enum mask mask;
    const int32_t *blocks; /* the block tables of all spans, [n_blocks]; NULL: keys and values lie
                              row after row */
    int n_blocks;
    /* Added to the scores by head and distance, f32 [heads, 2 D + 1], on the device: head h adds
     * bias[h][D + distance], distance = key - where the query stands, at least -D and at most D.
     * data NULL: nothing. T5's relative positions are this (Raffel et al. 2020, section 2.1). */
    struct tensor bias;
    int chunk;  /* > 0: a query sees only keys of its own run of so many, counted from the first */
    int window; /* > 0: a query sees only keys nearer to where it stands than `window`; 0: all */
    float softcap; /* > 0: a score s becomes softcap tanh(s / softcap), after scale, before the
                      bias. 0: it stays */
    struct distance_scores distances;
    /* Each head's softmax has one more score, sinks[head], whose value is zero: what it takes, the
     * keys lack. Device, [heads]; NULL: none. */
    const float *sinks;
    /* Products are in f32, whatever the type of keys and values is. Else a device may round what it
     * multiplies to bf16 where these have fewer than 32 bits. */
    bool exact;
};

/* The keys [begin, end) of a span that a query sees which stands at one. */
static inline int attention_keys_begin(const struct attention_args *args, int stands) {
    if (args->chunk > 0) return stands - stands % args->chunk;
    return args->window > 0 && stands >= args->window ? stands - args->window + 1 : 0;
}
static inline int attention_keys_end(const struct attention_args *args,
                                     const struct attention_span *span, int stands) {
    int keys = span->k_count;
    if (args->mask == MASK_CAUSAL) return span->mutual ? keys : stands + 1;
    return args->window > 0 && stands < keys - args->window ? stands + args->window : keys;
}

/* Keys [first, first + n) of a span, as far as it has them; or key groups [first, first + n) of
 * all.
 */
struct key_group {
    int first, n;
};

/* Attention of `of`, shared out over groups of keys: y[i, g] grows by
 *     weight * sum over heads, and over the keys of group g of row i's span, of softmax(scale q k^T
 * + bias), where the groups of span s are those that span_groups[s] counts, at most as many as y
 * has columns. Rows in no span keep what y holds. `out` and `v` of `of` are not read. The result
 * for a row does not depend on other rows. */
struct attention_shares_args {
    struct attention_args of;
    struct tensor y; /* f32 [rows of q, at least the groups of any span] */
    const struct key_group *groups;
    int n_groups;
    const struct key_group *span_groups; /* [of.n_spans] which of `groups` a span has */
    float weight;
};

enum norm_kind { NORM_LAYER, NORM_RMS };

/* y = norm(x) gamma + beta per row (spec 4.2); beta is NULL for RMS, and where there is no gamma,
 * which stands for 1. y may be x. Zero-centred gamma is resolved at load. */
struct norm_args {
    struct tensor y, x;
    const float *gamma, *beta;
    float epsilon;
    enum norm_kind kind;
    int heads; /* > 1: a row is so many rows side by side, and gamma and beta are of one of them; 0
                  and 1: one row */
    bool each_head; /* gamma and beta are of all of them */
    /* The sums of squares of longer rows, of which x holds some columns: f32 [rows, 1], on the
     * device, of `whole` columns. RMS only. data NULL: the norm is of x itself. */
    struct tensor squares;
    int whole;
};

/* y[i] = the sum of the squares of x's row i; y f32 [rows, 1]. */
struct square_rows_args {
    struct tensor y, x;
};

/* y = a + scale row_scale[i] (b + bias): residual, output bias and attention gate in one pass. bias
 * and row_scale may be NULL (nothing, and 1). Where row_scale is 0, y is exactly a. y may be a or
 * b. */
struct add_args {
    struct tensor y, a, b;
    const float *bias;
    const float *row_scale; /* [rows] */
    float scale;            /* > 0: as above; 0: none, as 1 */
};

/* How the two halves of a gated unit meet: activation(g) * (u + shift), where limit > 0 cuts g off
 * above it, and u above it and below -limit. All zero: activation(g) * u. A plain unit has one
 * half, activation(g). */
struct gating {
    enum activation activation;
    float limit, shift;
    int plain; /* 0 or 1; the others are zero then */
};
/* The columns that make one column of such a unit. */
static inline int gating_halves(const struct gating *gating) { return gating->plain ? 1 : 2; }

/* y = gating(g = x[:, :F], u = x[:, F:]); x [rows, 2F], or [rows, F] of plain units, where y may be
 * x; y [rows, F]. */
struct glu_args {
    struct tensor y, x;
    struct gating gating;
};

/* y = activation(x) by, where a column of x weighs as many columns of `by` as these are a multiple
 * of it: x [rows, F], by and y [rows, n F]. y may be by, and where n is 1 it may be x. */
struct gate_args {
    struct tensor y, x, by;
    enum activation activation;
};

/* Rows [first, first + n) of x, of one sequence, of a layer that keeps a state. They go on from the
 * state `from`, -1: an empty one, and leave the state `to`, -1: none. Both are rows of the args'
 * `states`. n may be 0: then `to` becomes what `from` is. A span that `follows` is of the same
 * sequence as the span before it in the list, and runs behind it; others touch no state that
 * another one writes. */
struct state_span {
    int32_t first, n, from, to, follows;
};

/* Channels of rows, each convolved over the row and the kernel - 1 rows before it: y[row][c] =
 * activation(bias[c] + sum over i of filter[c][i] x[row - kernel + 1 + i][c]). A row of `states`
 * begins with the kernel - 1 latest rows of x, the oldest first; what stands behind them is another
 * operation's. Each row is computed by itself, in an order that does not depend on how rows are cut
 * into spans. */
struct convolve_args {
    struct tensor y, x;   /* f32 [rows, channels]; overlap nothing; rows of y in no span stay */
    struct tensor filter; /* f32 [channels, kernel] */
    const float *bias;    /* device, [channels]; NULL: none */
    enum activation activation;
    const struct state_span *spans; /* host, [n_spans] */
    struct tensor states;           /* f32 [states, columns]; data NULL: no span has any */
    int n_spans;
};

/* How a row enters the state S [key_dim, value_dim] of a value head, with q and k of its key head,
 * v of its own. */
enum delta_rule {
    /* A gated delta net (Yang et al. 2024, arXiv 2412.06464). With a row of x as q [key heads,
     * key_dim], k likewise, v [value heads, value_dim]; q and k of a head become q / sqrt(sum q^2 +
     * 1e-6) / sqrt(key_dim) and k / sqrt(sum k^2 + 1e-6); a row of gates is b of each value head,
     * then a of each:
     *
     *     S = e^(-rate softplus(a + bias)) S
     *     S = S + k outer (write_scale sigmoid(b) (v - k S))
     *     y = q S
     */
    DELTA_CORRECTS,
    /* A state space (Mamba-2, Dao and Gu 2024, arXiv 2405.21060). With a row of x as v, k, q, which
     * the paper calls x, B, C, and a row of gates as a of each value head:
     *
     *     step = softplus(a + bias), at least `least` and at most `most`
     *     S = e^(-rate step) S + k outer (step v)
     *     y = q S + skip v
     */
    DELTA_ADDS
};

/* The rows of layers whose heads keep a matrix. Value head i reads key head i / (value heads / key
 * heads). A row of `states` ends with S of each value head; what stands before is another
 * operation's. Each row is computed by itself, in an order that does not depend on how rows are cut
 * into spans. */
struct delta_args {
    struct tensor y;          /* f32 [rows, value heads value_dim]; rows in no span stay */
    struct tensor x, gates;   /* f32 [rows, channels]; [rows, 2 value heads], or [rows, value heads]
                                 where rows add */
    const float *rate, *bias; /* device, [value heads] */
    const float *skip;        /* device, [value heads], where rows add */
    const struct state_span *spans; /* host, [n_spans] */
    struct tensor states;           /* f32 [states, columns]; data NULL: no span has any */
    int n_spans;
    enum delta_rule rule;
    int key_heads, value_heads, key_dim, value_dim;
    float least, most; /* where rows add */
    float write_scale; /* where they do not; 0: none, as 1 */
};
enum {
    DELTA_MAX_KERNEL = 8,
    DELTA_MAX_HEAD = 256 /* key_dim, value_dim */
};

/* The experts that a row uses, and their weights: y[i] = the k largest of the row's scores, largest
 * first, the lowest expert first among equals, then the k numbers of those experts. Scores are
 * softmax(logits[i]), or sigmoid(logits[i]); k and the columns of logits are at most ROUTE_EXPERTS.
 *
 * `bias` is added to scores where experts are chosen, and not to weights. With groups > 1 experts
 * stand in groups of equal size, and those of the groups_used groups are chosen from whose two best
 * scores (with the bias) have the largest sums, the lowest group first among equals (DeepSeek-V3,
 * arXiv 2412.19437, 2.1.2), or whose best score is largest (DeepSeek-V2, arXiv 2405.04434, 2.2.2).
 * With `renormalise` the k weights are divided by their sum and epsilon; then they are multiplied
 * by `scale`, and each by its expert's number of `factors`. A NaN ranks as -infinity and makes the
 * weights of its row NaN. logits f32 [rows, experts], y f32 [rows, 2 k]. */
enum { ROUTE_EXPERTS = 1 << 12 };
struct route_args {
    struct tensor y, logits;
    const float *bias, *factors; /* device, [experts]; NULL: none */
    bool sigmoid, renormalise;
    int groups, groups_used; /* groups 0: as 1 */
    int group_best;          /* scores that make a group's sum: 1, or 2; 0: as 2 */
    float scale;             /* 0: none, as 1 */
    float epsilon;
};

/* A mixture of experts: y = sum over j of weight j times expert j of x's row, in the order of
 * routes, where an expert is gating(g, u) W2^T + b2, [g, u] = x W1^T + b1 and, where there is a
 * shared expert, + sigmoid(gate) shared, or + shared where it has no gate. The routes are read by
 * the device when the op runs: the host need not know them. A row's result is the same whatever
 * other rows its experts meet.
 *
 * Each expert meets its own rows only. */
struct experts_args {
    struct tensor y, x;             /* [rows, d] */
    struct tensor routes;           /* [rows, 2 k], of backend_route */
    const struct weight *fc1, *fc2; /* [n_experts]: [2F, d] with the rows of g first, or [F, d] of
                                       plain units; [d, F]; host arrays */
    float *const *bias1, *const *bias2; /* [n_experts]: device, of the rows; NULL: there are none */
    struct tensor shared, gate;         /* [rows, d], [rows, 1]; data NULL: there is none */
    struct tensor few, parts;           /* to work in: [rows, d], [rows, k d] */
    struct tensor wide, gated; /* likewise: [rows, rows of fc1], [rows, F]; of plain units they may
                                  be one */
    int n_experts;
    bool weighs_inputs; /* a weight multiplies what the expert reads, and not what it gives. CPU
                           alone */
    bool fetched; /* the matrices lie in a mapped file that memory does not hold: those of chosen
                     experts are asked for before they are needed. CPU alone */
    struct gating gating;
};

/* x = factor by x, in place. */
struct scale_args {
    struct tensor x;
    float factor;
    const float *by; /* device, one number; NULL: 1 */
};

/* y = x, cut off below `least` and above `most`; NaN stays. y may be x. */
struct clamp_args {
    struct tensor y, x;
    const float *least, *most; /* device, one number each */
};

/* xIELU (Huang and Schlag 2024, arXiv 2411.13010), which may be in place:
 *
 *     y = softplus(positive) x^2 + slope x                                 where x > 0
 *     y = (slope + softplus(negative)) (e^min(x, least) - 1 - x) + slope x    elsewhere
 */
struct xielu_args {
    struct tensor y, x;
    const float *positive, *negative, *slope, *least; /* device, one number each */
};

/* x = cap tanh(x / cap), in place; cap > 0. */
struct softcap_args {
    struct tensor x;
    float cap;
};

/* y[i] = scale word[ids[i]] + position[positions[i]] + type[0]; position and type may be NULL. A
 * negative id stands for a word of zeros. `word` is a packed weight (it is often the output matrix
 * too); position and type are plain f32 rows.
 */
struct embed_args {
    struct tensor y;
    const struct weight *word;
    const struct tensor *position, *type;
    const int32_t *ids, *positions;
    float scale; /* > 0: as above; 0: none, as 1 */
};

/* Rotates `rotated` dims of every head of x, from dim `first` on, in place (spec 4.4): half-split
 * pairs (i, i + rotated/2) or interleaved pairs (2i, 2i+1), counted from there. Angle =
 * float32(position * inv_freq[i]), inv_freq f32 [rotated / 2], host memory. The rotated dims are
 * also multiplied by `scale`. A row may have several positions, as time, row and column of a
 * picture's patch: pair i turns by the row's position section_of[i]. Where `grows_after` is set,
 * the rotated dims of a row whose first position is p are also multiplied by 1 + growth log(1 +
 * floor((p + grows_ahead) / grows_after)). */
struct rope_args {
    struct tensor x;          /* [rows, heads * head_dim] */
    const int32_t *positions; /* [rows, sections] */
    const float *inv_freq;
    const uint8_t *
        section_of; /* [rotated / 2] < sections; NULL: all pairs turn by the row's first position */
    int sections;   /* positions of a row; 0: one */
    int heads, head_dim, first, rotated;
    bool interleaved;
    float scale; /* > 0: as above; 0: none, as 1 */
    float growth;
    int grows_after; /* 0: rows are not multiplied by their place */
    int grows_ahead;
};

/* y[i] = x[rows[i]], converting the dtype; a negative index gives a row of zeros. */
struct gather_rows_args {
    struct tensor y, x;
    const int32_t *rows; /* [y.rows] */
};

/* y[rows[i]] = x[i], converting the dtype: how new keys and values enter the cache. A negative
 * index is skipped.
 *
 * Where y is int8, x is f32 and has scales.cols groups of equal width. A group becomes integers
 * q = x / scale, rounded to nearest even, with scale = its largest magnitude / 127, rounded up to
 * bf16. A group that holds NaN or infinity gets the scale NaN, one below 2^-100 gets 0. */
struct scatter_rows_args {
    struct tensor y, x;
    const int32_t *rows;  /* [x.rows] */
    struct tensor scales; /* bf16 [rows of y, groups] where y is int8; else data NULL */
};

/* y[s] = mean of x rows [starts[s], starts[s + 1]), divided by its L2 norm if `normalize`. */
struct mean_rows_args {
    struct tensor y, x;
    const int32_t *starts; /* [y.rows + 1] */
    bool normalize;
};

/* A change to one logit before a draw: first bias is added, then a positive one is divided by
 * `repetition` and any other multiplied by it, then `penalty` is taken away; each step is rounded
 * to float. */
struct logit_edit {
    int32_t id;       /* each once in a row */
    float bias;       /* -INFINITY: not drawn while there is another */
    float repetition; /* above 0; 1: none */
    float penalty;
    float logit; /* the op's own: what it was */
};

/* How one row of logits becomes a token. Order: edits, mask, temperature, then top_k, top_p, min_p
 * on what is left, then a draw. temperature 0 is greedy: the lowest id among the largest logits.
 * Ids >= n_vocab (padding) are never drawn. */
struct sample_params {
    float temperature; /* >= 0 */
    float top_p; /* (0, 1]; keeps the smallest set of largest probabilities whose sum reaches it */
    float min_p; /* [0, 1]; drops tokens below min_p times the largest probability */
    int top_k;   /* 0: off */
    uint64_t seed;            /* the draw depends on (seed, draw) only, never on the batch */
    uint64_t draw;            /* number of tokens this sequence has drawn before */
    struct logit_edit *edits; /* [n_edits] host */
    int64_t n_edits;
    const uint32_t *mask; /* [n_vocab / 32, rounded up] host; only ids whose bit is set are drawn;
                             NULL: all may be */
};

/* ids[i] = one token from logits row i; logprobs[i] = its log-probability under softmax of the raw
 * logits: those before edits and mask. A row whose mask has no id with a finite logit may draw any.
 */
struct sample_args {
    struct tensor
        logits; /* f32 [rows, >= n_vocab]; edited during the op, and afterwards as before */
    const struct sample_params *params;
    int n_vocab;
    int32_t *ids;    /* host, valid after sync */
    float *logprobs; /* host, valid after sync */
};

/* The operations, each with its struct NAME_args. A new one is a word here, its struct, its wrapper
 * that checks shapes (device/backend.c), cpu_NAME and cuda_NAME. */
/* clang-format off */
#define BACKEND_OPERATIONS(OPERATION) \
    OPERATION(linear) OPERATION(linear_heads) OPERATION(attention) OPERATION(attention_shares) \
    OPERATION(norm) OPERATION(square_rows) OPERATION(add) OPERATION(glu) OPERATION(gate) \
    OPERATION(convolve) OPERATION(delta) OPERATION(route) OPERATION(experts) \
    OPERATION(scale) OPERATION(clamp) OPERATION(xielu) OPERATION(softcap) OPERATION(embed) OPERATION(rope) \
    OPERATION(gather_rows) OPERATION(scatter_rows) OPERATION(mean_rows) OPERATION(sample)
/* clang-format on */
#define OPERATION_MEMBER(name) void (*name)(struct backend * b, const struct name##_args *a);

struct backend_ops {
    const char *name;
    const char *(*describe)(
        const struct backend *backend); /* which device and which kernels, for people */

    /* Memory and order. alloc returns NULL when the device is full; memory is zeroed and 64-byte
     * aligned. */
    void *(*alloc)(struct backend *backend, size_t bytes);
    void (*release)(struct backend *backend, void *p);
    size_t (*available)(struct backend *backend); /* bytes that alloc can still give; SIZE_MAX when
                                                     nobody can tell */
    void (*upload)(struct backend *backend, void *device, const void *host, size_t bytes);
    void (*download)(struct backend *backend, void *host, const void *device, size_t bytes);
    enum status (*sync)(struct backend *backend, struct error *e);
    void (*close)(struct backend *backend);

    /* Loading: a host matrix becomes weight->data in the packed layout of weight->dtype. A float
     * matrix of any dtype may become a float weight of any other; a quantised one keeps its dtype.
     * STATUS_UNSUPPORTED for anything else. */
    enum status (*pack)(struct backend *backend, struct weight *weight,
                        const struct host_matrix *host, struct error *e);
    /* Names the packed layout, for files that hold weights in it; NULL where a device has none that
     * may be kept. Then packed_bytes is what weight->data takes, 0 when that overflows, and
     * weight->data may point to memory of somebody else, such as a mapped file, aligned to 64 bytes
     * and never written to. */
    const char *packed_layout;
    size_t (*packed_bytes)(const struct weight *weight);
    /* Bytes that were read from disk for experts_args.fetched since the backend was opened; NULL
     * where nothing is. */
    uint64_t (*fetched_bytes)(const struct backend *backend);

    BACKEND_OPERATIONS(OPERATION_MEMBER)
};

struct backend_options {
    int threads; /* CPU threads; 0: as many as the process may run on */
    bool eager;  /* GPU: launch every op by itself, not steps as graphs; to compare the two */
};

/* "auto" is "cuda" where there is a CUDA device and the build has CUDA, else "cpu". Any other name
 * is itself. */
const char *backend_choose(const char *device);
/* Opens "cpu" (the instruction set is picked by CPUID) or, in a build with CUDA, "cuda:N" ("cuda"
 * is "cuda:0"), or what backend_choose says. An unknown or absent device is an error. */
enum status backend_open(struct backend **out, const char *device,
                         const struct backend_options *options, struct error *e);
void backend_close(struct backend *backend);
/* Names the kernels that were picked, for logs and --version: "cpu avx512, 2 threads". */
const char *backend_describe(const struct backend *backend);

/* alloc that reports: STATUS_NO_MEMORY names what it was for. */
enum status backend_alloc(struct backend *backend, void **out, size_t bytes, const char *what,
                          struct error *e);
static inline void backend_release(struct backend *backend, void *p) {
    backend->ops->release(backend, p);
}
static inline enum status backend_sync(struct backend *backend, struct error *e) {
    return backend->ops->sync(backend, e);
}
enum status backend_pack(struct backend *backend, struct weight *weight,
                         const struct host_matrix *host, struct error *e);
static inline void backend_upload(struct backend *backend, void *device, const void *host,
                                  size_t bytes) {
    backend->ops->upload(backend, device, host, bytes);
}
static inline void backend_download(struct backend *backend, void *host, const void *device,
                                    size_t bytes) {
    backend->ops->download(backend, host, device, bytes);
}
static inline uint64_t backend_fetched(const struct backend *backend) {
    return backend->ops->fetched_bytes ? backend->ops->fetched_bytes(backend) : 0;
}
/* Device memory becomes zeros. */
void backend_wipe(struct backend *backend, void *device, size_t bytes);

/* Each wrapper checks shapes (backend.c), then calls the device unless an earlier op failed. */
#define OPERATION_WRAPPER(name) void backend_##name(struct backend *b, const struct name##_args *a);
BACKEND_OPERATIONS(OPERATION_WRAPPER)

/* log softmax(logits)[id] for the n largest ids of one host row, best first, lowest id first among
 * equals; used for log-probabilities in answers. Returns log sum exp. ids and logprobs hold n
 * entries. */
float logprobs_top(const float *logits, int n_vocab, int n, int32_t *ids, float *logprobs);
