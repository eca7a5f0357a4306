/* tests/ops/test_ops_shares.c: attention shared out over groups of keys, against double loops:
 * masks, grouped heads, dtypes, bias, window, soft-cap, block tables; and the same bits alone, in
 * any batch and with any number of threads.
 */
#include "tests/ops/ops.h"

enum { Q_ROWS = 40, K_ROWS = 480, COLUMNS = 4 };

/* Decode, prompts, no queries, no keys; row 25 is in none. */
static const struct attention_span spans[] = {
    {.q_start = 0, .q_count = 1, .k_start = 0, .k_count = 97},
    {.q_start = 1, .q_count = 17, .k_start = 97, .k_count = 17},
    {.q_start = 18, .q_count = 0, .k_start = 0, .k_count = 5},
    {.q_start = 18, .q_count = 2, .k_start = 3, .k_count = 0},
    {.q_start = 20, .q_count = 5, .k_start = 115, .k_count = 33},
    {.q_start = 26, .q_count = 1, .k_start = 7, .k_count = 473},
    {.q_start = 27, .q_count = 13, .k_start = 180, .k_count = 258}};
enum { SPANS = ARRAY_COUNT(spans) };
/* Side by side, apart, overlapping, empty; across ranges of keys. */
static const struct key_group groups[] = {{0, 64},  {64, 33}, {2, 5},   {0, 17},   {5, 12},
                                          {16, 1},  {30, 3},  {0, 0},   {10, 300}, {310, 163},
                                          {127, 2}, {0, 1},   {0, 258}, {100, 158}};
static const struct key_group span_groups[SPANS] = {{0, 2}, {2, 4}, {0, 0}, {0, 0},
                                                    {6, 2}, {8, 4}, {12, 2}};

static struct attention_shares_args random_shares(enum dtype dtype, const int heads[3]) {
    struct attention_shares_args a = {.groups = groups,
                                      .n_groups = ARRAY_COUNT(groups),
                                      .span_groups = span_groups,
                                      .weight = 0.5f / (float)heads[0]};
    a.of = (struct attention_args){
        .spans = spans, .n_spans = SPANS, .heads = heads[0], .kv_heads = heads[1]};
    a.of.head_dim = heads[2];
    a.of.scale = 3 / sqrtf((float)heads[2]);
    a.of.q = random_tensor(DTYPE_F32, Q_ROWS, heads[0] * heads[2], 5);
    a.of.k = random_keys(dtype, K_ROWS, heads[1] * heads[2], 3);
    a.of.k_scales = random_scales(dtype, K_ROWS, heads[1], 0);
    a.y = random_tensor(DTYPE_F32, Q_ROWS, COLUMNS, 2);
    return a;
}

static void free_shares(struct attention_shares_args *a) {
    free(a->of.q.data);
    free(a->of.k.data);
    free(a->of.k_scales.data);
    free(a->of.bias.data);
    free(a->y.data);
}

static bool key_seen(const struct attention_args *a, const struct attention_span *span, int query,
                     int key) {
    int stands = span->k_count - span->q_count + query;
    bool near = a->window == 0 || abs(key - stands) < a->window;
    if (span->mutual) return a->window == 0 || stands - key < a->window;
    return near && (a->mask == MASK_NONE || key <= stands);
}

static double score(const struct attention_args *a, bool rounds, const struct attention_span *span,
                    int query, int head, int key) {
    int kv = head / (a->heads / a->kv_heads) * a->head_dim, own = head * a->head_dim,
        reach = a->bias.cols / 2;
    int distance = key - (span->k_count - span->q_count + query);
    double dot = key_score(a, rounds, span->q_start + query, own, span->k_start + key, kv);
    if (a->softcap > 0) dot = a->softcap * tanh(dot / a->softcap);
    if (a->bias.data)
        dot += tensor_get(a->bias, head, reach + max_int(-reach, min_int(distance, reach)));
    return dot;
}

/* One head of one query gives so much to a group. */
static double share_of(const struct attention_args *a, bool rounds,
                       const struct attention_span *span, int query, int head,
                       struct key_group keys) {
    double all = a->sinks ? exp((double)a->sinks[head]) : 0, sum = 0;
    for (int key = 0; key < span->k_count; key++) {
        double p =
            key_seen(a, span, query, key) ? exp(score(a, rounds, span, query, head, key)) : 0;
        all += p;
        if (key >= keys.first && key < keys.first + keys.n) sum += p;
    }
    return sum / all;
}

/* y was `before` and has grown by what it should. */
static void check_shares(const struct backend *b, const struct attention_shares_args *a,
                         struct tensor before) {
    const bool rounds = attention_rounds(b, &a->of);
    bool grown[Q_ROWS][COLUMNS] = {{false}};
    for (int s = 0; s < a->of.n_spans; s++)
        for (int i = 0; i < a->of.spans[s].q_count && a->of.spans[s].k_count > 0; i++)
            for (int g = 0; g < a->span_groups[s].n; g++) {
                int row = a->of.spans[s].q_start + i;
                double want = 0;
                for (int head = 0; head < a->of.heads; head++)
                    want += share_of(&a->of, rounds, &a->of.spans[s], i, head,
                                     a->groups[a->span_groups[s].first + g]);
                double found = tensor_get(a->y, row, g) - tensor_get(before, row, g);
                if (!(fabs(found - a->weight * want) <= 5e-6))
                    fail_msg("span %d query %d group %d: %.9g, expected %.9g", s, i, g, found,
                             a->weight * want);
                grown[row][g] = true;
            }
    for (int i = 0; i < Q_ROWS; i++)
        for (int g = 0; g < COLUMNS; g++)
            if (!grown[i][g]) assert_true(tensor_get(a->y, i, g) == tensor_get(before, i, g));
    assert_gaps_untouched(a->y);
}

static struct tensor copy_of(struct tensor t) {
    struct tensor copy = padded_tensor(t.dtype, t.rows, t.cols, 0);
    for (int i = 0; i < t.rows; i++)
        for (int j = 0; j < t.cols; j++) tensor_set(copy, i, j, tensor_get(t, i, j));
    return copy;
}

static const int head_shapes[][3] = {{1, 1, 1},  {4, 4, 8},   {3, 3, 7},   {8, 2, 16},
                                     {6, 3, 64}, {2, 2, 127}, {70, 1, 20}, {1, 1, 512}};
static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_INT8};
/* window, reach of the bias (-1: none), soft-cap, mask */
static const struct shares_way {
    int window, reach;
    float softcap;
    enum mask mask;
    float sinks; /* the size of the heads' sinks; 0: none */
} ways[] = {{0, -1, 0, MASK_NONE, 0}, {0, -1, 0, MASK_CAUSAL, 0},   {33, -1, 0, MASK_CAUSAL, 0},
            {0, 3, 0, MASK_NONE, 0},  {150, 20, 2, MASK_CAUSAL, 0}, {33, -1, 0, MASK_CAUSAL, 2},
            {33, 3, 0, MASK_NONE, 0}};

static void shares_in_all_ways(struct backend *b) {
    for (size_t h = 0; h < ARRAY_COUNT(head_shapes); h++)
        for (size_t w = 0; w < ARRAY_COUNT(ways); w++) {
            struct attention_shares_args a =
                random_shares(dtypes[(h + w) % ARRAY_COUNT(dtypes)], head_shapes[h]);
            a.of.window = ways[w].window;
            a.of.softcap = ways[w].softcap;
            a.of.mask = ways[w].mask;
            if (ways[w].reach >= 0)
                a.of.bias = random_tensor(DTYPE_F32, a.of.heads, 2 * ways[w].reach + 1, 3);
            float *sinks = random_array((size_t)a.of.heads);
            for (int i = 0; i < a.of.heads; i++) sinks[i] *= ways[w].sinks;
            if (ways[w].sinks > 0) a.of.sinks = sinks;
            struct tensor before = copy_of(a.y);
            backend_attention_shares(b, &a);
            check_shares(b, &a, before);
            free(before.data);
            free(sinks);
            free_shares(&a);
        }
}

/* Spans whose queries see each other, with and without a window. */
static void shares_of_mutual(struct backend *b) {
    struct attention_span mutual[SPANS];
    for (int i = 0; i < SPANS; i++) {
        mutual[i] = spans[i];
        mutual[i].mutual = 1;
    }
    for (int window = 0; window < 20; window += 9) {
        struct attention_shares_args a = random_shares(DTYPE_F16, (const int[]){6, 3, 24});
        a.of.spans = mutual;
        a.of.mask = MASK_CAUSAL;
        a.of.window = window;
        struct tensor before = copy_of(a.y);
        backend_attention_shares(b, &a);
        check_shares(b, &a, before);
        free(before.data);
        free_shares(&a);
    }
}

static void test_shares(void **state) {
    (void)state;
    for_each_variant(shares_in_all_ways, 2);
    for_each_variant(shares_of_mutual, 2);
}

/* Keys in blocks in reverse order give the same bits; rows of k that are no key are NaN. */
static void shares_in_blocks(struct backend *b) {
    struct attention_shares_args a = random_shares(DTYPE_F16, (const int[]){6, 3, 24}), blocked = a;
    struct attention_span moved[SPANS];
    int32_t blocks[32];
    int n = 0, most = ARRAY_COUNT(blocks);
    a.of.mask = blocked.of.mask = MASK_CAUSAL;
    blocked.of.k = padded_tensor(DTYPE_F16, most * ATTENTION_BLOCK, a.of.k.cols, 1);
    blocked.y = copy_of(a.y);
    for (int s = 0; s < SPANS; s++) {
        moved[s] = spans[s];
        moved[s].k_start = n;
        for (int key = 0; key < spans[s].k_count; key++) {
            int at = n + key / ATTENTION_BLOCK;
            blocks[at] = most - 1 - at;
            for (int j = 0; j < a.of.k.cols; j++)
                tensor_set(blocked.of.k, blocks[at] * ATTENTION_BLOCK + key % ATTENTION_BLOCK, j,
                           tensor_get(a.of.k, spans[s].k_start + key, j));
        }
        n += (spans[s].k_count + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
    }
    blocked.of.spans = moved;
    blocked.of.blocks = blocks;
    blocked.of.n_blocks = n;
    backend_attention_shares(b, &a);
    backend_attention_shares(b, &blocked);
    for (int i = 0; i < Q_ROWS; i++) assert_rows_equal(blocked.y, i, a.y, i);
    free(blocked.of.k.data);
    free(blocked.y.data);
    free_shares(&a);
}

static void test_blocks(void **state) {
    (void)state;
    for_each_variant(shares_in_blocks, 2);
}

/* The last queries of a span alone, as a step of decoding has them, get the bits of all of it. */
static void shares_alone(struct backend *b) {
    struct attention_shares_args a = random_shares(DTYPE_BF16, (const int[]){8, 2, 40});
    a.of.mask = MASK_CAUSAL;
    struct tensor before = copy_of(a.y);
    backend_attention_shares(b, &a);
    for (int s = 0; s < SPANS; s++) {
        struct attention_shares_args one = a;
        struct attention_span last = spans[s];
        if (last.q_count == 0) continue;
        last.q_start += last.q_count - 1;
        last.q_count = 1;
        one.of.spans = &last;
        one.of.n_spans = 1;
        one.span_groups = &span_groups[s];
        one.y = copy_of(before);
        backend_attention_shares(b, &one);
        assert_rows_equal(one.y, last.q_start, a.y, last.q_start);
        free(one.y.data);
    }
    free(before.data);
    free_shares(&a);
}

static void test_alone(void **state) {
    (void)state;
    for_each_variant(shares_alone, 1);
    for_each_variant(shares_alone, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
