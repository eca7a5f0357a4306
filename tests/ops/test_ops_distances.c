/* tests/ops/test_ops_distances.c: attention whose scores grow by what distances say, by query and
 * by key (struct distance_scores), against double loops; and the same bits alone, in any batch and
 * with any number of threads. */
#include "tests/ops/ops.h"

enum { HEADS = 3, HEAD_DIM = 20, ROWS = 400, TABLE = 9, REACH = 30 };

/* One long span of more keys than a range, short ones, and one with fewer queries than keys. */
static const struct attention_span spans[] = {
    {.q_start = 0, .q_count = 300, .k_start = 0, .k_count = 300},
    {.q_start = 300, .q_count = 1, .k_start = 300, .k_count = 1},
    {.q_start = 301, .q_count = 40, .k_start = 301, .k_count = 40},
    {.q_start = 341, .q_count = 7, .k_start = 341, .k_count = 50},
};

struct case_of_distances {
    struct attention_args args;
    int32_t columns[2 * REACH + 1];
};

/* Rows of the table in no order, as buckets may be. */
static void open_case(struct case_of_distances *one) {
    struct attention_args *a = &one->args;
    *a = (struct attention_args){.heads = HEADS, .kv_heads = HEADS, .head_dim = HEAD_DIM};
    a->scale = 0.3F;
    a->q = random_tensor(DTYPE_F32, ROWS, HEADS * HEAD_DIM, 5);
    a->k = random_tensor(DTYPE_F32, ROWS, HEADS * HEAD_DIM, 3);
    a->v = random_tensor(DTYPE_F32, ROWS, HEADS * HEAD_DIM, 0);
    a->out = padded_tensor(DTYPE_F32, ROWS, HEADS * HEAD_DIM, 2);
    a->distances =
        (struct distance_scores){.by_query = random_tensor(DTYPE_F32, ROWS, HEADS * TABLE, 4),
                                 .by_key = random_tensor(DTYPE_F32, ROWS, HEADS * TABLE, 1),
                                 .columns = one->columns,
                                 .reach = REACH};
    for (int i = 0; i < 2 * REACH + 1; i++) one->columns[i] = random_int(TABLE);
    a->spans = spans;
    a->n_spans = (int)ARRAY_COUNT(spans);
}

static void close_case(struct case_of_distances *one) {
    free(one->args.q.data);
    free(one->args.k.data);
    free(one->args.v.data);
    free(one->args.out.data);
    free(one->args.distances.by_query.data);
    free(one->args.distances.by_key.data);
}

static double score(const struct attention_args *a, const struct attention_span *span, int query,
                    int key, int head) {
    int row = span->q_start + query, at = span->k_start + key;
    int distance = span->k_count - span->q_count + query - key;
    int column =
        head * TABLE + a->distances.columns[REACH + max_int(-REACH, min_int(distance, REACH))];
    double sum = tensor_get(a->distances.by_query, row, column) +
                 tensor_get(a->distances.by_key, at, column);
    for (int d = 0; d < HEAD_DIM; d++)
        sum += (double)tensor_get(a->q, row, head * HEAD_DIM + d) *
               tensor_get(a->k, at, head * HEAD_DIM + d);
    return sum * (double)a->scale;
}

static void check_row(const struct attention_args *a, const struct attention_span *span, int query,
                      int head) {
    double sum = 0, out[HEAD_DIM] = {0};
    for (int key = 0; key < span->k_count; key++) {
        double p = exp(score(a, span, query, key, head));
        sum += p;
        for (int d = 0; d < HEAD_DIM; d++)
            out[d] += p * tensor_get(a->v, span->k_start + key, head * HEAD_DIM + d);
    }
    for (int d = 0; d < HEAD_DIM; d++) {
        double found = tensor_get(a->out, span->q_start + query, head * HEAD_DIM + d);
        if (!(fabs(found - out[d] / sum) <= 5e-6))
            fail_msg("query %d head %d: %.9g, expected %.9g", span->q_start + query, head, found,
                     out[d] / sum);
    }
}

static void distances_match(struct backend *b) {
    struct case_of_distances one;
    open_case(&one);
    backend_attention(b, &one.args);
    for (size_t i = 0; i < ARRAY_COUNT(spans); i++)
        for (int query = 0; query < spans[i].q_count; query++)
            for (int head = 0; head < HEADS; head++) check_row(&one.args, &spans[i], query, head);
    close_case(&one);
}

static void test_distances(void **state) {
    (void)state;
    for_each_variant(distances_match, 1);
    for_each_variant(distances_match, 3);
}

static void spans_alone(struct backend *b) {
    struct case_of_distances one;
    open_case(&one);
    struct attention_args *a = &one.args;
    struct tensor together = padded_tensor(DTYPE_F32, ROWS, HEADS * HEAD_DIM, 0), out = a->out;
    a->out = together;
    backend_attention(b, a);
    a->out = out;
    a->n_spans = 1;
    for (size_t i = 0; i < ARRAY_COUNT(spans); i++) {
        a->spans = &spans[i];
        backend_attention(b, a);
        for (int row = spans[i].q_start; row < spans[i].q_start + spans[i].q_count; row++)
            assert_memory_equal(tensor_at(together, row, 0), tensor_at(out, row, 0),
                                sizeof(float) * HEADS * HEAD_DIM);
    }
    free(together.data);
    close_case(&one);
}

static void test_alone(void **state) {
    (void)state;
    for_each_variant(spans_alone, 1);
    for_each_variant(spans_alone, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distances),
                                       cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
