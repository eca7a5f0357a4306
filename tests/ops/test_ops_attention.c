/* tests/ops/test_ops_attention.c: attention against double loops: masks, grouped heads, dtypes,
 * strided views, empty spans, block tables, bias, window, soft-cap, keys that must not matter; and
 * the same bits alone, in any batch, in any blocks and with any number of threads. */
#include "tests/ops/ops.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_INT8};
enum { DTYPES = ARRAY_COUNT(dtypes) };

static bool key_seen(const struct attention_args *a, const struct attention_span *span, int query,
                     int key) {
    int stands = span->k_count - span->q_count + query;
    bool near = a->window == 0 || abs(key - stands) < a->window,
         same = a->chunk == 0 || key / a->chunk == stands / a->chunk;
    if (span->mutual) return a->window == 0 || stands - key < a->window;
    return near && same && (a->mask == MASK_NONE || key <= stands);
}

static int key_row(const struct attention_args *a, const struct attention_span *span, int key) {
    if (a->blocks == NULL) return span->k_start + key;
    return a->blocks[span->k_start + key / ATTENTION_BLOCK] * ATTENTION_BLOCK +
           key % ATTENTION_BLOCK;
}

static double score(const struct attention_args *a, bool rounds, const struct attention_span *span,
                    int query, int head, int key) {
    int kv = head / (a->heads / a->kv_heads) * a->head_dim, own = head * a->head_dim,
        reach = a->bias.cols / 2;
    int distance = key - (span->k_count - span->q_count + query);
    double dot = key_score(a, rounds, span->q_start + query, own, key_row(a, span, key), kv);
    if (a->softcap > 0) dot = a->softcap * tanh(dot / a->softcap);
    if (a->bias.data)
        dot += tensor_get(a->bias, head, reach + max_int(-reach, min_int(distance, reach)));
    return dot;
}

/* Softmax attention of one row and head in double, into out[head_dim]. Behind it is how far each
 * result may be from it: where weights of keys are rounded to bf16, each is by at most its 256th
 * part. */
static void reference_row(const struct attention_args *a, bool rounds,
                          const struct attention_span *span, int query, int head, double *out) {
    double *errors = out + a->head_dim;
    int kv = head / (a->heads / a->kv_heads) * a->head_dim;
    double *scores = xcalloc((size_t)span->k_count + 1, sizeof *scores), largest = -INFINITY,
           sum = 0;
    if (a->sinks) largest = (double)a->sinks[head];
    for (int key = 0; key < span->k_count; key++) {
        if (!key_seen(a, span, query, key)) continue;
        scores[key] = score(a, rounds, span, query, head, key);
        largest = fmax(largest, scores[key]);
    }
    if (a->sinks) sum = exp((double)a->sinks[head] - largest);
    for (int d = 0; d < a->head_dim; d++) out[d] = errors[d] = 0;
    for (int key = 0; key < span->k_count; key++) {
        if (!key_seen(a, span, query, key)) continue;
        double p = exp(scores[key] - largest);
        sum += p;
        for (int d = 0; d < a->head_dim; d++) {
            float value = key_get(a->v, a->v_scales, key_row(a, span, key), kv + d);
            double v = rounded_to(rounds && a->v.dtype != DTYPE_INT8, value);
            out[d] += p * v;
            errors[d] += rounds ? p * fabs(v) / 256 : 0;
        }
    }
    for (int d = 0; d < a->head_dim; d++) {
        out[d] = sum > 0 ? out[d] / sum : 0;
        errors[d] = 5e-6 + (sum > 0 ? errors[d] / sum : 0);
    }
    free(scores);
}

static void check_attention(const struct backend *b, const struct attention_args *a) {
    bool *written = xcalloc((size_t)a->q.rows + 1, sizeof *written),
         rounds = attention_rounds(b, a);
    double *expected = xcalloc(2 * (size_t)a->head_dim, sizeof *expected);
    const double *errors = expected + a->head_dim;
    for (int s = 0; s < a->n_spans; s++)
        for (int i = 0; i < a->spans[s].q_count; i++) {
            written[a->spans[s].q_start + i] = true;
            for (int head = 0; head < a->heads; head++) {
                reference_row(a, rounds, &a->spans[s], i, head, expected);
                for (int d = 0; d < a->head_dim; d++) {
                    double found =
                        tensor_get(a->out, a->spans[s].q_start + i, head * a->head_dim + d);
                    if (!(fabs(found - expected[d]) <= errors[d]))
                        fail_msg("span %d query %d head %d dim %d of %d: %.9g, expected %.9g", s, i,
                                 head, d, a->head_dim, found, expected[d]);
                }
            }
        }
    for (int i = 0; i < a->q.rows; i++)
        for (int j = 0; !written[i] && j < a->q.cols; j++)
            assert_true(tensor_get(a->out, i, j) == 0);
    assert_gaps_untouched(a->out);
    free(written);
    free(expected);
}

static struct attention_args random_attention(enum dtype dtype, const int heads[3], int q_rows,
                                              int k_rows) {
    struct attention_args a = {.heads = heads[0], .kv_heads = heads[1], .head_dim = heads[2]};
    a.scale = 3 / sqrtf((float)heads[2]);
    a.q = random_tensor(DTYPE_F32, q_rows, heads[0] * heads[2], 5);
    a.k = random_keys(dtype, k_rows, heads[1] * heads[2], 3);
    a.v = random_keys(dtype, k_rows, heads[1] * heads[2], 0);
    a.k_scales = random_scales(dtype, k_rows, heads[1], 0);
    a.v_scales = random_scales(dtype, k_rows, heads[1], 2);
    a.out = padded_tensor(DTYPE_F32, q_rows, heads[0] * heads[2], 2);
    return a;
}

static void free_attention(struct attention_args *a) {
    free(a->q.data);
    free(a->k.data);
    free(a->v.data);
    free(a->k_scales.data);
    free(a->v_scales.data);
    free(a->out.data);
}

/* heads, kv_heads, head_dim */
static const int head_shapes[][3] = {{1, 1, 1},  {4, 4, 8},   {3, 3, 7},   {8, 2, 16}, {4, 1, 33},
                                     {6, 3, 64}, {2, 2, 127}, {17, 1, 20}, {1, 1, 576}};
/* Spans of every kind: long, single query (decode), empty, no keys, more queries than a block; few
 * and many queries of more keys than a range, and of as many; row 40 is in none. */
enum { Q_ROWS = 72, K_ROWS = 480 };
static const struct attention_span mixed_spans[] = {
    {.q_start = 0, .q_count = 1, .k_start = 0, .k_count = 97},
    {.q_start = 1, .q_count = 17, .k_start = 97, .k_count = 17},
    {.q_start = 18, .q_count = 0, .k_start = 0, .k_count = 5},
    {.q_start = 18, .q_count = 1, .k_start = 114, .k_count = 1},
    {.q_start = 19, .q_count = 3, .k_start = 3, .k_count = 0},
    {.q_start = 22, .q_count = 5, .k_start = 115, .k_count = 33},
    {.q_start = 27, .q_count = 13, .k_start = 20, .k_count = 64},
    {.q_start = 41, .q_count = 2, .k_start = 148, .k_count = 32},
    {.q_start = 43, .q_count = 1, .k_start = 7, .k_count = 473},
    {.q_start = 44, .q_count = 3, .k_start = 180, .k_count = 258},
    {.q_start = 47, .q_count = 24, .k_start = 190, .k_count = 145},
    {.q_start = 71, .q_count = 1, .k_start = 200, .k_count = 128},
};

static void attention_shapes(struct backend *b) {
    for (size_t h = 0; h < ARRAY_COUNT(head_shapes); h++)
        for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
            for (int mask = 0; mask < 2; mask++) {
                struct attention_args a =
                    random_attention(dtypes[d], head_shapes[h], Q_ROWS, K_ROWS);
                a.spans = mixed_spans;
                a.n_spans = (int)ARRAY_COUNT(mixed_spans);
                a.mask = mask ? MASK_CAUSAL : MASK_NONE;
                for (int exact = 0; exact < 2; exact++) {
                    a.exact = exact;
                    backend_attention(b, &a);
                    check_attention(b, &a);
                }
                free_attention(&a);
            }
}

static void test_attention(void **state) {
    (void)state;
    for_each_variant(attention_shapes, 2);
}

static void attention_none(struct backend *b) {
    struct attention_args a = random_attention(DTYPE_F32, (const int[]){2, 2, 4}, 3, 0);
    backend_attention(b, &a);
    check_attention(b, &a);
    free_attention(&a);
    a = random_attention(DTYPE_F32, (const int[]){2, 2, 4}, 0, 3);
    backend_attention(b, &a);
    free_attention(&a);
}

static void test_attention_empty(void **state) {
    (void)state;
    for_each_variant(attention_none, 2);
}

/* Each span alone, and each query of a causal span as a decode step of its own, gives the bits of
 * the mixed call. */
static void check_alone(struct backend *b, enum dtype dtype, const int heads[3]) {
    for (int mask = 0; mask < 2; mask++) {
        struct attention_args all = random_attention(dtype, heads, Q_ROWS, K_ROWS), one;
        all.spans = mixed_spans;
        all.n_spans = (int)ARRAY_COUNT(mixed_spans);
        all.mask = mask ? MASK_CAUSAL : MASK_NONE;
        backend_attention(b, &all);
        one = all;
        one.out = padded_tensor(DTYPE_F32, Q_ROWS, all.q.cols, 1);
        one.n_spans = 1;
        for (int s = 0; s < all.n_spans; s++)
            for (int i = 0; i < all.spans[s].q_count; i++) {
                struct attention_span span = all.spans[s];
                if (span.k_count == 0) continue;
                one.spans = &span;
                backend_attention(b, &one);
                assert_rows_equal(one.out, span.q_start + i, all.out, span.q_start + i);
                if (mask) span.k_count -= span.q_count - 1 - i;
                span.q_start += i;
                span.q_count = 1;
                backend_attention(b, &one);
                assert_rows_equal(one.out, span.q_start, all.out, span.q_start);
            }
        free(one.out.data);
        free_attention(&all);
    }
}

static void attention_alone(struct backend *b) {
    static const int in_place[] = {6, 3, 64}; /* keys of f32 that need no copy */
    for (size_t h = 0; h < ARRAY_COUNT(head_shapes); h++) {
        check_alone(b, DTYPE_BF16, head_shapes[h]);
        check_alone(b, DTYPE_INT8, head_shapes[h]);
    }
    check_alone(b, DTYPE_F32, in_place);
}

static void test_attention_batch_invariance(void **state) {
    (void)state;
    for_each_variant(attention_alone, 2);
}

/* Keys right of a query, or outside its span, may be anything, NaN included. */
static void check_unseen(struct backend *b, enum dtype dtype) {
    static const struct attention_span span = {
        .q_start = 0, .q_count = 40, .k_start = 2, .k_count = 50};
    struct attention_args a = random_attention(dtype, (const int[]){4, 2, 24}, 40, 53);
    a.spans = &span;
    a.n_spans = 1;
    a.mask = MASK_CAUSAL;
    backend_attention(b, &a);
    struct attention_args poisoned = a;
    poisoned.out = padded_tensor(DTYPE_F32, 40, a.q.cols, 0);
    enum {
        LAST = 22
    }; /* the query from which on all is poisoned: its keys are 0 .. 32 of the span */
    for (int i = 0; i < 53; i++)
        if (i < 2 || i > 2 + 10 + LAST) {
            key_spoil(a.k, a.k_scales, i, NAN);
            key_spoil(a.v, a.v_scales, i, i % 2 ? NAN : INFINITY);
        }
    backend_attention(b, &poisoned);
    for (int i = 0; i <= LAST; i++) assert_rows_equal(poisoned.out, i, a.out, i);
    assert_true(isnan(tensor_get(poisoned.out, LAST + 1, 0)));
    free(poisoned.out.data);
    free_attention(&a);
}

static void attention_poison(struct backend *b) {
    for (int d = 0; d < DTYPES; d++) check_unseen(b, dtypes[d]);
}

static void test_attention_ignores_unseen_keys(void **state) {
    (void)state;
    for_each_variant(attention_poison, 1);
}

/* Large scores: the running maximum keeps every exponential at or below one. */
static void attention_large(struct backend *b) {
    struct attention_args a = random_attention(DTYPE_F32, (const int[]){2, 2, 16}, 4, 100);
    static const struct attention_span span = {
        .q_start = 0, .q_count = 4, .k_start = 0, .k_count = 100};
    a.spans = &span;
    a.n_spans = 1;
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < a.k.cols; j++) tensor_set(a.k, i, j, (float)(i % 7 == 0 ? 300 : -300));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < a.q.cols; j++) tensor_set(a.q, i, j, (float)(i % 2 ? 2 : -2));
    backend_attention(b, &a);
    check_attention(b, &a);
    free_attention(&a);
}

static void test_attention_large_scores(void **state) {
    (void)state;
    for_each_variant(attention_large, 1);
}

/* One variant at a time: one thread's result is right, and any other number of threads repeats it.
 */
static void check_threads(struct attention_args a) {
    const char *const *names = cpu_variant_names;
    struct tensor first = a.out;
    for (int i = 0; names[i] != NULL; i++)
        for (int threads = 1; threads <= 5 && variant_wanted(names[i]); threads++) {
            struct backend *b;
            setenv("RETRO_CPU", names[i], 1);
            enum status s =
                backend_open(&b, "cpu", &(struct backend_options){.threads = threads}, NULL);
            unsetenv("RETRO_CPU");
            if (s == STATUS_UNSUPPORTED) break;
            a.out = threads == 1 ? first : padded_tensor(DTYPE_F32, a.q.rows, a.q.cols, 0);
            backend_attention(b, &a);
            if (threads == 1) check_attention(b, &a);
            for (int row = 0; row < a.q.rows; row++) assert_rows_equal(a.out, row, first, row);
            if (threads > 1) free(a.out.data);
            backend_close(b);
        }
}

static void test_attention_threads(void **state) {
    (void)state;
    for (int d = 1; d < DTYPES; d += 2) {
        struct attention_args a =
            random_attention(dtypes[d], (const int[]){8, 2, 40}, Q_ROWS, K_ROWS);
        a.spans = mixed_spans;
        a.n_spans = (int)ARRAY_COUNT(mixed_spans);
        a.mask = MASK_CAUSAL;
        check_threads(a);
        free_attention(&a);
    }
}

/* Few rows and many keys: ranges are shared out, with the largest heads some at a time; and a step
 * of two sequences, one of which has few keys. */
static void test_attention_long(void **state) {
    (void)state;
    static const struct attention_span spans[] = {{0, 1, 0, 1500, 0}, {1, 2, 1500, 100, 0}};
    static const int shapes[][3] = {{1, 1, 64}, {2, 1, 576}, {6, 6, 24}, {5, 5, 33}, {40, 1, 8}};
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++)
        for (int n = 1; n <= 2; n++) {
            struct attention_args a = random_attention(DTYPE_BF16, shapes[i], n == 1 ? 1 : 3, 1600);
            a.spans = spans;
            a.n_spans = n;
            a.mask = MASK_CAUSAL;
            check_threads(a);
            free_attention(&a);
        }
}

/* A way to attend: what may be given beside keys and values. */
struct attention_way {
    int window, reach; /* reach: of the bias; -1: none */
    float softcap;
    enum mask mask;
    float sinks; /* the size of the heads' sinks; 0: none */
    int chunk;
    int mutual; /* of every other span */
};

static const struct attention_way ways[] = {
    {0, 20, 0, MASK_NONE, 0, 0, 0},      {0, 3, 0, MASK_CAUSAL, 0, 0, 0},
    {0, 0, 0, MASK_NONE, 0, 0, 0},       {0, -1, 2, MASK_NONE, 0, 0, 0},
    {0, -1, 0.5f, MASK_CAUSAL, 0, 0, 0}, {1, -1, 0, MASK_CAUSAL, 0, 0, 0},
    {33, -1, 0, MASK_CAUSAL, 0, 0, 0},   {128, -1, 0, MASK_CAUSAL, 0, 0, 0},
    {200, 150, 4, MASK_CAUSAL, 0, 0, 0}, {1 << 30, 7, 9, MASK_CAUSAL, 0, 0, 0},
    {0, -1, 0, MASK_CAUSAL, 0, 0, 0},    {0, -1, 0, MASK_CAUSAL, 2, 0, 0},
    {33, -1, 0, MASK_CAUSAL, 5, 0, 0},   {0, 20, 3, MASK_NONE, 1, 0, 0},
    {128, -1, 0, MASK_CAUSAL, 80, 0, 0}, {1, -1, 0, MASK_NONE, 0, 0, 0},
    {33, 20, 2, MASK_NONE, 0, 0, 0},     {129, -1, 0, MASK_NONE, 3, 0, 0},
    {0, -1, 0, MASK_CAUSAL, 0, 1, 0},    {0, -1, 0, MASK_CAUSAL, 0, 30, 0},
    {0, -1, 2, MASK_CAUSAL, 3, 128, 0},  {0, 9, 0, MASK_CAUSAL, 0, 200, 0},
    {0, -1, 0, MASK_CAUSAL, 0, 0, 1},    {1, -1, 0, MASK_CAUSAL, 0, 0, 1},
    {33, -1, 0, MASK_CAUSAL, 0, 0, 1},   {5, 20, 2, MASK_CAUSAL, 3, 0, 1},
    {150, -1, 0, MASK_CAUSAL, 1, 0, 1},  {0, 9, 3, MASK_CAUSAL, 0, 0, 1},
};

/* The mixed spans, of which every other one is mutual. */
static const struct attention_span *mutual_spans(void) {
    static struct attention_span spans[ARRAY_COUNT(mixed_spans)];
    for (size_t i = 0; i < ARRAY_COUNT(spans); i++) {
        spans[i] = mixed_spans[i];
        spans[i].mutual = (int)i % 2;
    }
    return spans;
}

/* Adds what the way gives to random attention over the mixed spans. */
static struct attention_args attention_in_way(enum dtype dtype, const int heads[3],
                                              const struct attention_way *way) {
    struct attention_args a = random_attention(dtype, heads, Q_ROWS, K_ROWS);
    a.spans = way->mutual ? mutual_spans() : mixed_spans;
    a.n_spans = (int)ARRAY_COUNT(mixed_spans);
    a.mask = way->mask;
    a.window = way->window;
    a.chunk = way->chunk;
    a.softcap = way->softcap;
    if (way->sinks > 0) {
        float *sinks = xcalloc((size_t)heads[0], sizeof *sinks);
        for (int i = 0; i < heads[0]; i++) sinks[i] = way->sinks * (i % 2 ? random_value() : 1);
        a.sinks = sinks;
    }
    if (way->reach >= 0) a.bias = random_tensor(DTYPE_F32, heads[0], 2 * way->reach + 1, 3);
    return a;
}

static void free_way(struct attention_args *a) {
    free(a->bias.data);
    free((void *)(uintptr_t)a->sinks);
    free_attention(a);
}

/* The same keys in blocks in scattered order; every row of k and v that is no key is NaN. */
struct blocked {
    struct attention_args args;
    struct attention_span spans[ARRAY_COUNT(mixed_spans)];
    int32_t *blocks;
};

static void copy_row(struct tensor to, int row, struct tensor from, int from_row) {
    memcpy(tensor_at(to, row, 0), tensor_at(from, from_row, 0),
           (size_t)to.cols * dtype_bytes(to.dtype));
}

static struct blocked make_blocked(const struct attention_args *a) {
    struct blocked t = {.args = *a};
    int n = 0;
    for (int s = 0; s < a->n_spans; s++)
        n += (a->spans[s].k_count + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    t.blocks = xcalloc((size_t)n + 1, sizeof *t.blocks);
    for (int i = 0; i < n; i++) t.blocks[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = random_int(i + 1), was = t.blocks[i];
        t.blocks[i] = t.blocks[j];
        t.blocks[j] = was;
    }
    t.args.k = random_keys(a->k.dtype, n * ATTENTION_BLOCK, a->k.cols, 1);
    t.args.v = random_keys(a->v.dtype, n * ATTENTION_BLOCK, a->v.cols, 0);
    t.args.k_scales = random_scales(a->k.dtype, n * ATTENTION_BLOCK, a->kv_heads, 3);
    t.args.v_scales = random_scales(a->v.dtype, n * ATTENTION_BLOCK, a->kv_heads, 0);
    for (int i = 0; i < n * ATTENTION_BLOCK; i++) {
        key_spoil(t.args.k, t.args.k_scales, i, NAN);
        key_spoil(t.args.v, t.args.v_scales, i, NAN);
    }
    t.args.out = padded_tensor(DTYPE_F32, a->out.rows, a->out.cols, 0);
    t.args.blocks = t.blocks;
    t.args.n_blocks = n;
    for (int s = 0, at = 0; s < a->n_spans; s++) {
        t.spans[s] = a->spans[s];
        t.spans[s].k_start = at;
        for (int key = 0; key < a->spans[s].k_count; key++) {
            int row =
                t.blocks[at + key / ATTENTION_BLOCK] * ATTENTION_BLOCK + key % ATTENTION_BLOCK;
            int from = a->spans[s].k_start + key;
            copy_row(t.args.k, row, a->k, from);
            copy_row(t.args.v, row, a->v, from);
            if (a->k.dtype != DTYPE_INT8) continue;
            copy_row(t.args.k_scales, row, a->k_scales, from);
            copy_row(t.args.v_scales, row, a->v_scales, from);
        }
        at += (a->spans[s].k_count + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    }
    return t;
}

static void free_blocked(struct blocked *t) {
    free(t->args.k.data);
    free(t->args.v.data);
    free(t->args.k_scales.data);
    free(t->args.v_scales.data);
    free(t->args.out.data);
    free(t->blocks);
}

/* Every way, over rows and over blocks: the definition, and the same bits. Each way meets half of
 * the shapes: an emulated processor takes minutes for them. */
static void attention_ways(struct backend *b) {
    for (size_t h = 0; h < ARRAY_COUNT(head_shapes); h++)
        for (size_t w = h % 2; w < ARRAY_COUNT(ways); w += 2) {
            struct attention_args a =
                attention_in_way(dtypes[(h + w / 2) % DTYPES], head_shapes[h], &ways[w]);
            struct blocked t = make_blocked(&a);
            t.args.spans = t.spans;
            backend_attention(b, &a);
            check_attention(b, &a);
            backend_attention(b, &t.args);
            for (int i = 0; i < a.out.rows; i++) assert_rows_equal(t.args.out, i, a.out, i);
            free_blocked(&t);
            free_way(&a);
        }
}

static void test_attention_ways(void **state) {
    (void)state;
    for_each_variant(attention_ways, 2);
}

/* In every way each query of a causal span has the bits that it has as a decode step of its own, or
 * of a mutual span without those before it. */
static void check_ways_alone(struct backend *b, enum dtype dtype) {
    static const int heads[] = {6, 2, 40};
    for (size_t w = 0; w < ARRAY_COUNT(ways); w++) {
        if (ways[w].mask == MASK_NONE) continue;
        struct attention_args all = attention_in_way(dtype, heads, &ways[w]), one;
        backend_attention(b, &all);
        one = all;
        one.out = padded_tensor(DTYPE_F32, Q_ROWS, all.q.cols, 1);
        one.n_spans = 1;
        for (int s = 0; s < all.n_spans; s++)
            for (int i = 0; i < all.spans[s].q_count && all.spans[s].k_count > 0; i++) {
                struct attention_span span = all.spans[s];
                if (!span.mutual) span.k_count -= span.q_count - 1 - i;
                span.q_start += i;
                span.q_count = span.mutual ? span.q_count - i : 1;
                one.spans = &span;
                backend_attention(b, &one);
                assert_rows_equal(one.out, span.q_start, all.out, span.q_start);
            }
        free(one.out.data);
        free_way(&all);
    }
}

static void attention_ways_alone(struct backend *b) {
    check_ways_alone(b, DTYPE_BF16);
    check_ways_alone(b, DTYPE_INT8);
}

static void test_attention_ways_alone(void **state) {
    (void)state;
    for_each_variant(attention_ways_alone, 2);
}

/* Any number of threads; long lists, of which a window shows the end. */
static void test_attention_ways_threads(void **state) {
    (void)state;
    static const struct attention_span spans[] = {
        {0, 1, 0, 1500, 0}, {1, 2, 1500, 100, 0}, {3, 30, 40, 900, 0}};
    static const struct attention_span mutual[] = {
        {0, 1, 0, 1500, 0}, {1, 2, 1500, 100, 0}, {3, 30, 40, 900, 1}};
    for (size_t w = 0; w < ARRAY_COUNT(ways); w += 2) {
        struct attention_args a = random_attention(DTYPE_F16, (const int[]){8, 2, 40}, 33, 1600);
        a.mask = ways[w].mask;
        a.window = ways[w].window;
        a.chunk = ways[w].chunk;
        a.softcap = ways[w].softcap;
        if (ways[w].reach >= 0) a.bias = random_tensor(DTYPE_F32, 8, 2 * ways[w].reach + 1, 0);
        for (int n = 1; n <= 3; n += 2) {
            a.spans = ways[w].mutual ? mutual : spans;
            a.n_spans = n;
            a.q.rows = a.out.rows = n == 3 ? 33 : 1;
            check_threads(a);
        }
        free_way(&a);
    }
}

/* Keys outside the window may be anything too, NaN included, and a query that sees none of them
 * does not notice: keys left of it, and with a window to both sides those right of it. */
enum { WINDOW_QUERIES = 150, WINDOW_KEYS = 400, WINDOW = 37, LEFT_END = 300, RIGHT_BEGIN = 380 };

static void poison_keys(const struct attention_args *a, int begin, int end) {
    for (int i = begin; i < end; i++) {
        key_spoil(a->k, a->k_scales, i, NAN);
        key_spoil(a->v, a->v_scales, i, i % 2 ? NAN : INFINITY);
    }
}

static void check_outside_window(struct backend *b, enum dtype dtype, int group, enum mask mask) {
    static const struct attention_span span = {.q_count = WINDOW_QUERIES, .k_count = WINDOW_KEYS};
    struct attention_args a =
        random_attention(dtype, (const int[]){2 * group, 2, 24}, WINDOW_QUERIES, WINDOW_KEYS);
    a.spans = &span;
    a.n_spans = 1;
    a.mask = mask;
    a.window = WINDOW;
    backend_attention(b, &a);
    check_attention(b, &a);

    struct attention_args poisoned = a;
    poisoned.out = padded_tensor(DTYPE_F32, WINDOW_QUERIES, a.q.cols, 0);
    poison_keys(&a, 0, LEFT_END);
    if (mask == MASK_NONE) poison_keys(&a, RIGHT_BEGIN, WINDOW_KEYS);
    backend_attention(b, &poisoned);

    int first_stands = WINDOW_KEYS - WINDOW_QUERIES, clean = LEFT_END + WINDOW - 1 - first_stands;
    int clean_end = mask == MASK_NONE ? RIGHT_BEGIN - WINDOW + 1 - first_stands : WINDOW_QUERIES;
    for (int i = clean; i < clean_end; i++) assert_rows_equal(poisoned.out, i, a.out, i);
    assert_true(isnan(tensor_get(poisoned.out, clean - 1, 0)));
    if (mask == MASK_NONE) assert_true(isnan(tensor_get(poisoned.out, clean_end, 0)));
    free(poisoned.out.data);
    free_attention(&a);
}

static void attention_window_poison(struct backend *b) {
    for (size_t d = 0; d < ARRAY_COUNT(dtypes); d++)
        for (int group = 1; group <= 3; group++) {
            check_outside_window(b, dtypes[d], group, MASK_CAUSAL);
            check_outside_window(b, dtypes[d], group, MASK_NONE);
        }
}

static void test_attention_ignores_keys_outside_the_window(void **state) {
    (void)state;
    for_each_variant(attention_window_poison, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_empty),
        cmocka_unit_test(test_attention_batch_invariance),
        cmocka_unit_test(test_attention_ignores_unseen_keys),
        cmocka_unit_test(test_attention_large_scores),
        cmocka_unit_test(test_attention_threads),
        cmocka_unit_test(test_attention_long),
        cmocka_unit_test(test_attention_ways),
        cmocka_unit_test(test_attention_ways_alone),
        cmocka_unit_test(test_attention_ways_threads),
        cmocka_unit_test(test_attention_ignores_keys_outside_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
