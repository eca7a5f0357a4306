/* tests/cuda/test_cuda_attention.c: attention of the CUDA backend against the CPU in plain loops,
 * over awkward sizes. Arguments as for test_cuda_ops.
 *
 * With keys and values in bf16 or f16, spans of several queries run on tensor cores. The device
 * rounds their q times scale and log2(e) to that type, so the reference gets q rounded; and it
 * rounds the weights, each by at most half a unit of its last place, so a sum of values in [-1, 1]
 * moves by at most that much of 1. The rest differs by the order of sums and by the exponential. */
#include "tests/cuda/cuda_ops.h"

struct attention_case {
    int heads, kv_heads, head_dim, q_rows, k_rows, gap;
    enum dtype k_dtype, v_dtype;
    enum mask mask;
    bool zero_keys;    /* then all weights are 1, which no type rounds */
    int window, reach; /* reach: of the bias, and `biased` whether there is one */
    bool biased;
    float softcap, sinks; /* the factor of random sinks; 0: none */
    bool mutual;          /* every other span of several queries */
};

/* The four tensors and what an op is told of them; the reference's arguments. */
struct attention_data {
    struct both q, k, v, out, bias, sinks;
    struct attention_args args;
};

static struct attention_data make_attention(const struct attention_case *c) {
    int q_cols = c->heads * c->head_dim, kv_cols = c->kv_heads * c->head_dim;
    struct tensor keys = random_tensor(c->k_dtype, c->k_rows, kv_cols, c->gap);
    for (int i = 0; i < keys.rows && c->zero_keys; i++)
        for (int j = 0; j < keys.cols; j++) tensor_set(keys, i, j, 0);
    struct attention_data d = {.q = both_random(DTYPE_F32, c->q_rows, q_cols, c->gap),
                               .k = both_copy(keys),
                               .v = both_random(c->v_dtype, c->k_rows, kv_cols, c->gap),
                               .out = both_empty(DTYPE_F32, c->q_rows, q_cols, 3)};
    d.args = (struct attention_args){.out = d.out.host,
                                     .q = d.q.host,
                                     .k = d.k.host,
                                     .v = d.v.host,
                                     .heads = c->heads,
                                     .kv_heads = c->kv_heads,
                                     .head_dim = c->head_dim,
                                     .scale = 3 / sqrtf((float)c->head_dim),
                                     .mask = c->mask,
                                     .window = c->window,
                                     .softcap = c->softcap};
    if (c->biased) {
        d.bias = both_random(DTYPE_F32, c->heads, 2 * c->reach + 1, 2);
        d.args.bias = d.bias.host;
    }
    if (c->sinks > 0) {
        struct tensor sinks = random_tensor(DTYPE_F32, 1, c->heads, 0);
        for (int i = 0; i < c->heads; i++)
            tensor_set(sinks, 0, i, c->sinks * (float)tensor_get(sinks, 0, i));
        d.sinks = both_copy(sinks);
        d.args.sinks = d.sinks.host.data;
    }
    return d;
}

static void free_attention(struct attention_data *d) {
    both_free(d->q);
    both_free(d->k);
    both_free(d->v);
    both_free(d->out);
    if (d->bias.host.data) both_free(d->bias);
    if (d->sinks.host.data) both_free(d->sinks);
}

static void attend_on_device(const struct attention_data *d, const struct attention_span *spans,
                             int n_spans) {
    struct attention_args a = d->args;
    size_t bytes = (size_t)n_spans * sizeof *spans;
    struct attention_span *lent = lend(spans, bytes);
    a.out = d->out.device;
    a.q = d->q.device;
    a.k = d->k.device;
    a.v = d->v.device;
    a.bias = d->bias.device;
    a.sinks = d->sinks.device.data;
    a.spans = lent;
    a.n_spans = n_spans;
    backend_attention(device, &a);
    take_back(lent, bytes);
}

/* Half a unit of the last place of 1 where a span is computed in that type; 0 where all is f32. */
static double rounding_of(const struct attention_case *c, const struct attention_span *span) {
    if (span->q_count < 2 || (span->mutual && c->window > 0) || c->head_dim > 256 ||
        c->k_dtype != c->v_dtype || c->k_dtype == DTYPE_F32)
        return 0;
    return c->k_dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

static void round_queries(const struct attention_case *c, const struct attention_data *d,
                          const struct attention_span *span) {
    float scale = d->args.scale * 1.44269504f;
    for (int i = span->q_start; i < span->q_start + span->q_count; i++)
        for (int j = 0; j < d->q.host.cols; j++) {
            uint16_t half;
            float v = tensor_get(d->q.host, i, j) * scale;
            dtype_convert(&half, c->k_dtype, &v, DTYPE_F32, 1);
            dtype_convert(&v, DTYPE_F32, &half, c->k_dtype, 1);
            tensor_set(d->q.host, i, j, v / scale);
        }
}

/* Every span within its own bound, and rows of no span 0. */
static void check_attention(const struct attention_case *c, const struct attention_span *spans,
                            int n_spans) {
    if (!chosen()) return;
    struct attention_data d = make_attention(c);
    double coarsest = 0;
    attend_on_device(&d, spans, n_spans);
    for (int i = 0; i < n_spans; i++)
        if (rounding_of(c, &spans[i]) > 0) round_queries(c, &d, &spans[i]);
    d.args.spans = spans;
    d.args.n_spans = n_spans;
    backend_attention(reference, &d.args);
    for (int i = 0; i < n_spans; i++) {
        double bound = c->zero_keys ? 0 : rounding_of(c, &spans[i]);
        struct both rows = {tensor_rows(d.out.host, spans[i].q_start, spans[i].q_count),
                            tensor_rows(d.out.device, spans[i].q_start, spans[i].q_count)};
        assert_both(rows, 5e-6 + bound, "attention");
        coarsest = fmax(coarsest, bound);
    }
    assert_both(d.out, 5e-6 + coarsest, "attention");
    free_attention(&d);
}

/* Every kind of span: prompts, single queries with one part and with several, no keys, no queries;
 * row 40 is in none.
 */
static const struct attention_span mixed[] = {
    {.q_start = 0, .q_count = 1, .k_start = 0, .k_count = 97},
    {.q_start = 1, .q_count = 17, .k_start = 97, .k_count = 17},
    {.q_start = 18, .q_count = 5, .k_start = 3, .k_count = 64},
    {.q_start = 23, .q_count = 3, .k_start = 114, .k_count = 0},
    {.q_start = 26, .q_count = 0, .k_start = 0, .k_count = 9},
    {.q_start = 26, .q_count = 1, .k_start = 5, .k_count = 1},
    {.q_start = 27, .q_count = 1, .k_start = 40, .k_count = 600},
    {.q_start = 28, .q_count = 1, .k_start = 0, .k_count = 256},
    {.q_start = 29, .q_count = 1, .k_start = 1, .k_count = 257},
    {.q_start = 30, .q_count = 10, .k_start = 100, .k_count = 131},
    {.q_start = 41, .q_count = 140, .k_start = 60, .k_count = 150}};
enum { MIXED_QUERIES = 181, MIXED_KEYS = 640 };

static void test_attention_shapes(void **state) {
    (void)state;
    static const int heads[][3] = {{1, 1, 1},  {4, 4, 8},   {3, 3, 7},  {8, 2, 16},  {4, 1, 33},
                                   {6, 3, 64}, {2, 2, 127}, {9, 1, 20}, {2, 1, 200}, {1, 1, 512}};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        for (int mask = MASK_NONE; mask <= MASK_CAUSAL; mask++) {
            struct attention_case c = {
                .heads = heads[i][0], .kv_heads = heads[i][1], .head_dim = heads[i][2]};
            c.q_rows = MIXED_QUERIES;
            c.k_rows = MIXED_KEYS;
            c.gap = i % 2 ? 8 : 5;
            c.k_dtype = c.v_dtype = (enum dtype)((i + (size_t)mask) % 3);
            c.mask = (enum mask)mask;
            check_attention(&c, mixed, (int)ARRAY_COUNT(mixed));
        }
}

static void test_attention_dtypes(void **state) {
    (void)state;
    struct attention_case c = {.heads = 4, .kv_heads = 2, .head_dim = 24};
    c.q_rows = MIXED_QUERIES;
    c.k_rows = MIXED_KEYS;
    for (int k = DTYPE_F32; k <= DTYPE_BF16; k++)
        for (int v = DTYPE_F32; v <= DTYPE_BF16; v++) {
            c.k_dtype = (enum dtype)k;
            c.v_dtype = (enum dtype)v;
            c.mask = k == v ? MASK_CAUSAL : MASK_NONE;
            check_attention(&c, mixed, (int)ARRAY_COUNT(mixed));
        }
}

/* Numbers of queries and keys around the sizes of tiles, one and more tiles of both; the last for
 * MASK_NONE alone. */
static const struct attention_span awkward[] = {
    {.q_start = 0, .q_count = 2, .k_start = 0, .k_count = 7},
    {.q_start = 2, .q_count = 15, .k_start = 7, .k_count = 63},
    {.q_start = 17, .q_count = 16, .k_start = 70, .k_count = 64},
    {.q_start = 33, .q_count = 17, .k_start = 134, .k_count = 65},
    {.q_start = 50, .q_count = 63, .k_start = 0, .k_count = 200},
    {.q_start = 113, .q_count = 64, .k_start = 199, .k_count = 64},
    {.q_start = 177, .q_count = 65, .k_start = 263, .k_count = 65},
    {.q_start = 242, .q_count = 130, .k_start = 100, .k_count = 200},
    {.q_start = 372, .q_count = 1, .k_start = 5, .k_count = 65},
    {.q_start = 373, .q_count = 2, .k_start = 330, .k_count = 2},
    {.q_start = 375, .q_count = 5, .k_start = 332, .k_count = 1}};
enum { AWKWARD = ARRAY_COUNT(awkward), AWKWARD_QUERIES = 382, AWKWARD_KEYS = 333 };
enum { MOST_SPANS = AWKWARD + ARRAY_COUNT(mixed) };

static void test_attention_on_tensor_cores(void **state) {
    (void)state;
    static const int heads[][3] = {{3, 1, 24}, {8, 1, 8},   {2, 2, 64}, {1, 1, 80},
                                   {1, 1, 96}, {1, 1, 128}, {1, 1, 256}};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        for (int mask = MASK_NONE; mask <= MASK_CAUSAL; mask++)
            for (int zero = 0; zero < 2; zero++) {
                struct attention_case c = {
                    .heads = heads[i][0], .kv_heads = heads[i][1], .head_dim = heads[i][2]};
                c.q_rows = AWKWARD_QUERIES;
                c.k_rows = AWKWARD_KEYS;
                c.gap = i == 2 ? 3 : 8; /* some rows are not aligned */
                c.k_dtype = c.v_dtype = (i + (size_t)(mask + zero)) % 2 ? DTYPE_F16 : DTYPE_BF16;
                c.mask = (enum mask)mask;
                c.zero_keys = zero;
                check_attention(&c, awkward, AWKWARD - mask);
            }
}

/* A span's rows are the same bits alone and among others. */
static void test_attention_alone(void **state) {
    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        struct attention_case c = {.heads = 3, .kv_heads = 1, .head_dim = 40, .mask = MASK_CAUSAL};
        c.q_rows = AWKWARD_QUERIES;
        c.k_rows = AWKWARD_KEYS;
        c.k_dtype = c.v_dtype = (enum dtype)dtype;
        if (!chosen()) continue;
        struct attention_data d = make_attention(&c);
        struct tensor all = padded_tensor(DTYPE_F32, c.q_rows, d.q.host.cols, 3),
                      alone = d.out.host;
        attend_on_device(&d, awkward, AWKWARD - 1);
        backend_download(device, all.data, d.out.device.data, tensor_bytes(all));
        for (int i = 0; i < AWKWARD - 1; i += 3) {
            attend_on_device(&d, &awkward[i], 1);
            backend_download(device, alone.data, d.out.device.data, tensor_bytes(alone));
            device_sync();
            for (int row = awkward[i].q_start; row < awkward[i].q_start + awkward[i].q_count; row++)
                assert_rows_equal(alone, row, all, row);
        }
        free(all.data);
        free_attention(&d);
    }
}

static void test_attention_empty(void **state) {
    (void)state;
    struct attention_case c = {.heads = 2, .kv_heads = 2, .head_dim = 8, .q_rows = 5, .k_rows = 9};
    check_attention(&c, mixed, 0);
    check_attention(&c, &(struct attention_span){1, 3, 0, 0, 0}, 1);
    c.q_rows = 0;
    check_attention(&c, mixed, 0);
}

/* Under a causal mask query i sees key i + 1: rows before SPOILT may not notice in any bit what
 * comes from there on, by an infinite value first and NaN after it; rows from there on show what is
 * infinite and what is NaN. */
static void check_unseen(enum dtype dtype, int heads, int head_dim) {
    enum { QUERIES = 100, KEYS = QUERIES + 1, SPOILT = 70 };
    static const struct attention_span span = {
        .q_start = 0, .q_count = QUERIES, .k_start = 1, .k_count = QUERIES};
    struct attention_case c = {
        .heads = heads, .kv_heads = 1, .head_dim = head_dim, .mask = MASK_CAUSAL};
    c.q_rows = QUERIES;
    c.k_rows = KEYS;
    c.k_dtype = c.v_dtype = dtype;
    if (!chosen()) return;
    struct attention_data d = make_attention(&c);
    struct tensor clean = padded_tensor(DTYPE_F32, QUERIES, d.q.host.cols, 3), found = d.out.host;
    attend_on_device(&d, &span, 1);
    backend_download(device, clean.data, d.out.device.data, tensor_bytes(clean));
    device_sync();
    for (int row = 0; row < KEYS; row++)
        for (int j = 0; j < head_dim; j++) {
            if (row == 0 || row > SPOILT + 4) tensor_set(d.k.host, row, j, NAN);
            if (row == SPOILT + 1 && j % 2)
                tensor_set(d.v.host, row, j, j % 4 == 1 ? -INFINITY : INFINITY);
            if (row == 0 || row > SPOILT + 2) tensor_set(d.v.host, row, j, NAN);
        }
    backend_upload(device, d.k.device.data, d.k.host.data, tensor_bytes(d.k.host));
    backend_upload(device, d.v.device.data, d.v.host.data, tensor_bytes(d.v.host));
    attend_on_device(&d, &span, 1);
    backend_download(device, found.data, d.out.device.data, tensor_bytes(found));
    device_sync();
    for (int row = 0; row < SPOILT; row++) assert_rows_equal(found, row, clean, row);
    for (int row = SPOILT; row < QUERIES; row++)
        for (int j = 0; j < found.cols; j++) {
            float v = tensor_get(found, row, j);
            int column = j % head_dim;
            if (row >= SPOILT + 2)
                assert_true(isnan(v));
            else if (column % 2)
                assert_true(isinf(v) && (v < 0) == (column % 4 == 1));
            else
                assert_true(isfinite(v));
        }
    free(clean.data);
    free_attention(&d);
}

static void test_attention_leaves_out(void **state) {
    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        check_unseen((enum dtype)dtype, 1, 16);
        check_unseen((enum dtype)dtype, 3, 13);
    }
    check_unseen(DTYPE_BF16, 1, 128);
    check_unseen(DTYPE_F16, 1, 256);
}

/* Window, bias and soft-cap, in every kernel: head sizes of each width, and types that go to each.
 */
static void test_attention_ways(void **state) {
    (void)state;
    static const int heads[][3] = {{3, 1, 24},  {2, 2, 64},  {8, 2, 16},
                                   {1, 1, 128}, {2, 1, 256}, {1, 1, 320}};
    static const struct attention_case ways[] = {
        {.mask = MASK_CAUSAL, .window = 1},
        {.mask = MASK_CAUSAL, .window = 40},
        {.mask = MASK_CAUSAL, .window = 128, .biased = true, .reach = 30},
        {.mask = MASK_NONE, .biased = true, .reach = 100},
        {.mask = MASK_CAUSAL, .biased = true, .reach = 0, .softcap = 2},
        {.mask = MASK_NONE, .softcap = 0.7f},
        {.mask = MASK_CAUSAL, .softcap = 5, .window = 65},
        {.mask = MASK_NONE, .window = 40},
        {.mask = MASK_NONE, .window = 65, .biased = true, .reach = 30},
        {.mask = MASK_CAUSAL, .sinks = 3},
        {.mask = MASK_CAUSAL, .window = 40, .sinks = 60},
        {.mask = MASK_NONE, .biased = true, .reach = 20, .sinks = 1},
        {.mask = MASK_CAUSAL, .mutual = true},
        {.mask = MASK_CAUSAL, .mutual = true, .window = 40},
        {.mask = MASK_CAUSAL, .mutual = true, .window = 3, .softcap = 2},
        {.mask = MASK_CAUSAL, .mutual = true, .biased = true, .reach = 20},
        {.mask = MASK_CAUSAL, .mutual = true, .window = 65, .biased = true, .reach = 30},
    };
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        for (size_t w = 0; w < ARRAY_COUNT(ways); w++) {
            struct attention_case c = ways[w];
            c.heads = heads[i][0];
            c.kv_heads = heads[i][1];
            c.head_dim = heads[i][2];
            c.k_dtype = c.v_dtype = (enum dtype)((i + w) % 3);
            c.gap = i == 1 ? 3 : 8;
            bool odd = (i / 3 + w) % 2; /* every type meets both lists of spans */
            c.q_rows = odd ? AWKWARD_QUERIES : MIXED_QUERIES;
            c.k_rows = odd ? AWKWARD_KEYS : MIXED_KEYS;
            struct attention_span spans[MOST_SPANS];
            int n = odd ? AWKWARD - 1 : (int)ARRAY_COUNT(mixed);
            for (int s = 0; s < n; s++) {
                spans[s] = odd ? awkward[s] : mixed[s];
                spans[s].mutual = c.mutual && s % 2;
            }
            check_attention(&c, spans, n);
        }
}

/* Keys of the mixed spans in blocks in scattered order, NaN in all other rows: the bits of the same
 * keys row by row. */
static void check_blocks(const struct attention_case *c) {
    enum { BLOCKS = 40, SPANS = ARRAY_COUNT(mixed) };
    if (!chosen()) return;
    struct attention_data d = make_attention(c), t = d;
    struct attention_span spans[SPANS];
    int32_t blocks[BLOCKS];
    int at = 0, step = 7; /* has no divisor in common with BLOCKS, so every block comes once */
    for (int i = 0; i < BLOCKS; i++) blocks[i] = (i * step + 3) % BLOCKS;
    struct tensor k = padded_tensor(c->k_dtype, BLOCKS * ATTENTION_BLOCK, d.k.host.cols, c->gap);
    struct tensor v = padded_tensor(c->v_dtype, BLOCKS * ATTENTION_BLOCK, d.v.host.cols, c->gap);
    for (int i = 0; i < k.rows; i++)
        for (int j = 0; j < k.cols; j++) {
            tensor_set(k, i, j, NAN);
            tensor_set(v, i, j, NAN);
        }
    for (int s = 0; s < SPANS; s++) {
        spans[s] = mixed[s];
        spans[s].k_start = at;
        for (int key = 0; key < mixed[s].k_count; key++) {
            int row = blocks[at + key / ATTENTION_BLOCK] * ATTENTION_BLOCK + key % ATTENTION_BLOCK;
            int from = mixed[s].k_start + key;
            memcpy(tensor_at(k, row, 0), tensor_at(d.k.host, from, 0),
                   (size_t)k.cols * dtype_bytes(k.dtype));
            memcpy(tensor_at(v, row, 0), tensor_at(d.v.host, from, 0),
                   (size_t)v.cols * dtype_bytes(v.dtype));
        }
        at += (mixed[s].k_count + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    }
    assert_true(at <= BLOCKS);
    t.k = both_copy(k);
    t.v = both_copy(v);
    t.out = both_empty(DTYPE_F32, c->q_rows, d.q.host.cols, 3);
    int32_t *lent = lend(blocks, sizeof blocks);
    t.args.k = t.k.host;
    t.args.v = t.v.host;
    t.args.blocks = lent;
    t.args.n_blocks = at;
    attend_on_device(&d, mixed, SPANS);
    attend_on_device(&t, spans, SPANS);
    take_back(lent, sizeof blocks);
    backend_download(device, d.out.host.data, d.out.device.data, tensor_bytes(d.out.host));
    backend_download(device, t.out.host.data, t.out.device.data, tensor_bytes(t.out.host));
    device_sync();
    for (int i = 0; i < c->q_rows; i++) assert_rows_equal(t.out.host, i, d.out.host, i);
    both_free(t.k);
    both_free(t.v);
    both_free(t.out);
    free_attention(&d);
}

static void test_attention_blocks(void **state) {
    (void)state;
    static const int heads[][3] = {{3, 1, 24}, {2, 2, 64}, {1, 1, 128}, {2, 1, 256}, {1, 1, 320}};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        for (int way = 0; way < 3; way++) {
            struct attention_case c = {
                .heads = heads[i][0], .kv_heads = heads[i][1], .head_dim = heads[i][2]};
            c.k_dtype = c.v_dtype = (enum dtype)((i + (size_t)way) % 3);
            c.q_rows = MIXED_QUERIES;
            c.k_rows = MIXED_KEYS;
            c.gap = 8;
            c.mask = way == 0 ? MASK_NONE : MASK_CAUSAL;
            c.window = way == 2 ? 90 : 0;
            check_blocks(&c);
        }
}

/* Keys left of the window do not matter in any bit, NaN and infinite ones included, and those who
 * see them show it. */
static void check_left_of_window(enum dtype dtype, int heads, int head_dim) {
    enum { QUERIES = 150, WINDOW = 37, SPOILT = 70 };
    static const struct attention_span span = {
        .q_start = 0, .q_count = QUERIES, .k_start = 0, .k_count = QUERIES};
    struct attention_case c = {
        .heads = heads, .kv_heads = 1, .head_dim = head_dim, .mask = MASK_CAUSAL};
    c.q_rows = c.k_rows = QUERIES;
    c.k_dtype = c.v_dtype = dtype;
    c.window = WINDOW;
    if (!chosen()) return;
    struct attention_data d = make_attention(&c);
    struct tensor clean = padded_tensor(DTYPE_F32, QUERIES, d.q.host.cols, 3), found = d.out.host;
    attend_on_device(&d, &span, 1);
    backend_download(device, clean.data, d.out.device.data, tensor_bytes(clean));
    device_sync();
    for (int row = 0; row <= SPOILT; row++)
        for (int j = 0; j < head_dim; j++) {
            if (row < SPOILT) tensor_set(d.k.host, row, j, NAN);
            tensor_set(d.v.host, row, j, row < SPOILT ? NAN : INFINITY);
        }
    backend_upload(device, d.k.device.data, d.k.host.data, tensor_bytes(d.k.host));
    backend_upload(device, d.v.device.data, d.v.host.data, tensor_bytes(d.v.host));
    attend_on_device(&d, &span, 1);
    backend_download(device, found.data, d.out.device.data, tensor_bytes(found));
    device_sync();
    for (int row = SPOILT + WINDOW; row < QUERIES; row++) assert_rows_equal(found, row, clean, row);
    for (int j = 0; j < found.cols; j++) {
        assert_true(isinf(tensor_get(found, SPOILT + WINDOW - 1, j)));
        assert_true(isnan(tensor_get(found, SPOILT + WINDOW - 2, j)));
    }
    free(clean.data);
    free_attention(&d);
}

static void test_attention_leaves_out_left_of_window(void **state) {
    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        check_left_of_window((enum dtype)dtype, 1, 16);
        check_left_of_window((enum dtype)dtype, 3, 13);
    }
    check_left_of_window(DTYPE_BF16, 1, 128);
    check_left_of_window(DTYPE_F16, 1, 256);
}

/* Three groups of each span's keys: its first third, its last key, and all of them. */
static void check_shares(const struct attention_case *c) {
    enum { SPANS = ARRAY_COUNT(mixed) };
    struct key_group groups[3 * SPANS], lists[SPANS];
    if (!chosen()) return;
    for (int i = 0; i < SPANS; i++) {
        int n = mixed[i].k_count;
        groups[3 * i] = (struct key_group){0, n / 3};
        groups[3 * i + 1] = (struct key_group){max_int(0, n - 1), min_int(n, 1)};
        groups[3 * i + 2] = (struct key_group){0, n};
        lists[i] = (struct key_group){3 * i, 3};
    }
    struct attention_data d = make_attention(c);
    struct both y = both_random(DTYPE_F32, c->q_rows, 3, 2);
    struct attention_shares_args a = {
        .of = d.args, .y = y.host, .groups = groups, .n_groups = 3 * SPANS};
    a.of.spans = mixed;
    a.of.n_spans = SPANS;
    a.span_groups = lists;
    a.weight = 1 / (float)c->heads;
    backend_attention_shares(reference, &a);
    a.of.q = d.q.device;
    a.of.k = d.k.device;
    a.of.bias = d.bias.device;
    a.y = y.device;
    backend_attention_shares(device, &a);
    assert_both(y, 5e-6, "shares");
    both_free(y);
    free_attention(&d);
}

static void test_attention_shares(void **state) {
    (void)state;
    static const int heads[][3] = {{4, 4, 8}, {3, 3, 7}, {6, 3, 64}, {9, 1, 20}, {1, 1, 512}};
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++)
        for (int way = 0; way < 3; way++) {
            struct attention_case c = {
                .heads = heads[i][0], .kv_heads = heads[i][1], .head_dim = heads[i][2]};
            c.q_rows = MIXED_QUERIES;
            c.k_rows = MIXED_KEYS;
            c.gap = i % 2 ? 8 : 5;
            c.k_dtype = c.v_dtype = (enum dtype)((i + (size_t)way) % 3);
            c.mask = way ? MASK_CAUSAL : MASK_NONE;
            c.window = way == 2 ? 90 : 0;
            c.biased = way == 1;
            c.reach = 20;
            c.softcap = way == 2 ? 2 : 0;
            check_shares(&c);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {TEST(test_attention_shapes),
                                       TEST(test_attention_dtypes),
                                       TEST(test_attention_on_tensor_cores),
                                       TEST(test_attention_alone),
                                       TEST(test_attention_empty),
                                       TEST(test_attention_leaves_out),
                                       TEST(test_attention_ways),
                                       TEST(test_attention_blocks),
                                       TEST(test_attention_leaves_out_left_of_window),
                                       TEST(test_attention_shares)};
    RUN_TESTS(argc, argv, tests);
}
