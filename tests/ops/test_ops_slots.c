/* tests/ops/test_ops_slots.c: what some families ask of the ops beside the plain form: norms of
 * heads, norms by sums of squares, soft-caps, and the scales of sums, words and rotations. */
#include "tests/ops/ops.h"

enum { ROWS = 9 };

/* Heads side by side have the bits of as many rows, with one gamma and beta or with each its own.
 */
static void check_heads(struct backend *b, bool each) {
    static const int shapes[][2] = {{1, 5}, {3, 1}, {4, 16}, {2, 33}, {5, 128}};
    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++)
        for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
            int heads = shapes[s][0], h = shapes[s][1];
            struct tensor x = random_tensor(DTYPE_F32, ROWS, heads * h, 4);
            struct tensor y = padded_tensor(DTYPE_F32, ROWS, heads * h, 1);
            float *gamma = random_array((size_t)(heads * h)),
                  *beta = random_array((size_t)(heads * h));
            struct norm_args a = {.gamma = gamma, .epsilon = 1e-6f, .kind = (enum norm_kind)kind};
            if (kind == NORM_LAYER) a.beta = beta;
            a.y = y;
            a.x = x;
            a.heads = heads;
            a.each_head = each;
            backend_norm(b, &a);
            assert_gaps_untouched(y);

            a.heads = 0;
            for (int head = 0; head < heads; head++) {
                a.x = a.y = tensor_cols(x, head * h, h);
                a.gamma = each ? gamma + head * h : gamma;
                if (kind == NORM_LAYER) a.beta = each ? beta + head * h : beta;
                backend_norm(b, &a);
            }
            for (int i = 0; i < ROWS; i++) assert_rows_equal(x, i, y, i);
            free(x.data);
            free(y.data);
            free(gamma);
            free(beta);
        }
}

static void norm_heads(struct backend *b) {
    check_heads(b, false);
    check_heads(b, true);
}

/* A row in two parts, each normed by the sum of both parts' squares, is the row normed at once. */
static void norm_parts(struct backend *b) {
    enum { COLS = 77, FIRST = 30 };
    struct tensor x = random_tensor(DTYPE_F32, ROWS, COLS, 2),
                  y = padded_tensor(DTYPE_F32, ROWS, COLS, 0);
    struct tensor squares = padded_tensor(DTYPE_F32, ROWS, 2, 1),
                  sum = padded_tensor(DTYPE_F32, ROWS, 1, 0);
    float *gamma = random_array(COLS);
    struct tensor parts[] = {tensor_cols(x, 0, FIRST), tensor_cols(x, FIRST, COLS - FIRST)};
    struct norm_args a = {.y = y, .x = x, .gamma = gamma, .epsilon = 1e-6f, .kind = NORM_RMS};
    backend_norm(b, &a);
    for (int i = 0; i < 2; i++)
        backend_square_rows(
            b, &(struct square_rows_args){.y = tensor_cols(squares, i, 1), .x = parts[i]});
    assert_gaps_untouched(squares);
    for (int i = 0; i < ROWS; i++) {
        double expected = 0;
        for (int j = 0; j < FIRST; j++) expected += pow(tensor_get(x, i, j), 2);
        assert_true(fabs(tensor_get(squares, i, 0) - expected) <= 1e-6 * expected);
        tensor_set(sum, i, 0, tensor_get(squares, i, 0) + tensor_get(squares, i, 1));
    }

    a.squares = sum;
    a.whole = COLS;
    for (int i = 0; i < 2; i++) {
        a.x = a.y = parts[i];
        a.gamma = gamma + i * FIRST;
        backend_norm(b, &a);
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            assert_true(fabs(tensor_get(x, i, j) - tensor_get(y, i, j)) <= 1e-6);
    free(x.data);
    free(y.data);
    free(squares.data);
    free(sum.data);
    free(gamma);
}

/* No gamma is a gamma of ones. */
static void norm_bare(struct backend *b) {
    enum { HEADS = 3, H = 21 };
    struct tensor x = random_tensor(DTYPE_F32, ROWS, HEADS * H, 2),
                  y = padded_tensor(DTYPE_F32, ROWS, HEADS * H, 1);
    float ones[H];
    for (int i = 0; i < H; i++) ones[i] = 1;
    struct norm_args a = {.y = y, .x = x, .epsilon = 1e-6f, .kind = NORM_RMS, .heads = HEADS};
    backend_norm(b, &a);
    assert_gaps_untouched(y);
    a.y = x;
    a.gamma = ones;
    backend_norm(b, &a);
    for (int i = 0; i < ROWS; i++) assert_rows_equal(x, i, y, i);
    free(x.data);
    free(y.data);
}

static void test_norms(void **state) {
    (void)state;
    for_each_variant(norm_bare, 2);
    for_each_variant(norm_heads, 2);
    for_each_variant(norm_parts, 2);
}

static void softcap_sizes(struct backend *b) {
    static const int sizes[] = {0, 1, 15, 16, 33, 8192, 20001};
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct tensor x = random_tensor(DTYPE_F32, 3, sizes[s], 2),
                      y = padded_tensor(DTYPE_F32, 3, sizes[s], 0);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < sizes[s]; j++) {
                tensor_set(x, i, j, 200 * tensor_get(x, i, j));
                tensor_set(y, i, j, tensor_get(x, i, j));
            }
        backend_softcap(b, &(struct softcap_args){.x = x, .cap = 30});
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < sizes[s]; j++) {
                double expected = 30 * tanh(tensor_get(y, i, j) / 30);
                assert_true(fabs(tensor_get(x, i, j) - expected) <= 1e-6 * fabs(expected));
            }
        assert_gaps_untouched(x);
        free(x.data);
        free(y.data);
    }
}

static void scale_sizes(struct backend *b) {
    static const int sizes[] = {0, 1, 15, 33, 513};
    static const float factors[] = {-1.5f, 0, 0.3f};
    for (size_t s = 0; s < ARRAY_COUNT(sizes) * 2 * ARRAY_COUNT(factors); s++) {
        int cols = sizes[s / (2 * ARRAY_COUNT(factors))];
        float factor = factors[s % ARRAY_COUNT(factors)], number = -0.7f;
        bool with = s / ARRAY_COUNT(factors) % 2;
        struct tensor x = random_tensor(DTYPE_F32, ROWS, cols, 2),
                      y = padded_tensor(DTYPE_F32, ROWS, cols, 0);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < cols; j++) tensor_set(y, i, j, tensor_get(x, i, j));
        backend_scale(b,
                      &(struct scale_args){.x = x, .factor = factor, .by = with ? &number : NULL});
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < cols; j++) {
                float expected = tensor_get(y, i, j) * (with ? factor * number : factor);
                assert_true(tensor_get(x, i, j) == expected);
            }
        assert_gaps_untouched(x);
        free(x.data);
        free(y.data);
    }
}

static void xielu_sizes(struct backend *b) {
    static const int sizes[] = {0, 1, 15, 33, 513};
    const float positive = 0.3f, negative = -0.8f, slope = 0.5f, least = -1e-6f;
    const double p = log1p(exp((double)positive)), n = (double)slope + log1p(exp((double)negative));
    for (size_t s = 0; s < ARRAY_COUNT(sizes) * 2; s++) {
        int cols = sizes[s / 2];
        struct tensor x = random_tensor(DTYPE_F32, ROWS, cols, 2),
                      y = padded_tensor(DTYPE_F32, ROWS, cols, 1),
                      before = padded_tensor(DTYPE_F32, ROWS, cols, 0), out = s % 2 ? x : y;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < cols; j++) {
                float value = j == 7 ? -60 : j == 9 ? 0 : 3 * tensor_get(x, i, j);
                tensor_set(x, i, j, value);
                tensor_set(before, i, j, value);
            }
        backend_xielu(b, &(struct xielu_args){.y = out,
                                              .x = x,
                                              .positive = &positive,
                                              .negative = &negative,
                                              .slope = &slope,
                                              .least = &least});
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < cols; j++) {
                double v = (double)tensor_get(before, i, j),
                       below = n * (expm1(fmin(v, (double)least)) - v),
                       expected = (v > 0 ? p * v * v : below) + (double)slope * v;
                assert_true(fabs((double)tensor_get(out, i, j) - expected) <=
                            1e-6 * (1 + fabs(expected)));
            }
        assert_gaps_untouched(out);
        free(x.data);
        free(y.data);
        free(before.data);
    }
}

static void test_xielu(void **state) {
    (void)state;
    for_each_variant(xielu_sizes, 2);
}

static void clamp_sizes(struct backend *b) {
    static const int sizes[] = {0, 1, 15, 33, 513};
    const float least = -0.4f, most = 0.7f;
    for (size_t s = 0; s < ARRAY_COUNT(sizes) * 2; s++) {
        int cols = sizes[s / 2];
        struct tensor x = random_tensor(DTYPE_F32, ROWS, cols, 2),
                      y = padded_tensor(DTYPE_F32, ROWS, cols, 1),
                      expected = padded_tensor(DTYPE_F32, ROWS, cols, 0), in = s % 2 ? y : x;
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < cols; j++) {
                float value = 2 * tensor_get(x, i, j);
                if (j == 7) value = NAN;
                tensor_set(in, i, j, value);
                tensor_set(expected, i, j, value < least ? least : value > most ? most : value);
            }
        backend_clamp(b, &(struct clamp_args){.y = y, .x = in, .least = &least, .most = &most});
        for (int i = 0; i < ROWS; i++) assert_rows_equal(y, i, expected, i);
        assert_gaps_untouched(y);
        free(x.data);
        free(y.data);
        free(expected.data);
    }
}

static void test_clamp(void **state) {
    (void)state;
    for_each_variant(clamp_sizes, 2);
}

static void test_scale(void **state) {
    (void)state;
    for_each_variant(scale_sizes, 2);
}

static void test_softcap(void **state) {
    (void)state;
    for_each_variant(softcap_sizes, 2);
}

/* The scale of a branch meets its bias too, and the scale of its row. */
static void add_scale(struct backend *b) {
    enum { COLS = 37 };
    struct tensor x = random_tensor(DTYPE_F32, ROWS, COLS, 0),
                  z = random_tensor(DTYPE_F32, ROWS, COLS, 1);
    struct tensor y = padded_tensor(DTYPE_F32, ROWS, COLS, 3);
    float *bias = random_array(COLS), *rows = random_array(ROWS);
    rows[2] = 0;
    for (int with = 0; with < 2; with++) {
        struct add_args a = {.y = y, .a = x, .b = z, .bias = bias, .scale = 0.25f};
        if (with) a.row_scale = rows;
        backend_add(b, &a);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++) {
                double branch =
                    0.25 * (with ? rows[i] : 1) * ((double)tensor_get(z, i, j) + bias[j]);
                assert_true(fabs(tensor_get(y, i, j) - (tensor_get(x, i, j) + branch)) <= 4e-7);
            }
    }
    assert_gaps_untouched(y);
    free(x.data);
    free(y.data);
    free(z.data);
    free(bias);
    free(rows);
}

/* The word alone is scaled, and a word of zeros stays one. */
static void embed_scale(struct backend *b) {
    enum { COLS = 16, WORDS = 20 };
    const float scale = 5.6568542f;
    struct weight w = {.dtype = DTYPE_F32, .n_out = WORDS, .n_in = COLS};
    struct tensor words = random_tensor(DTYPE_F32, WORDS, COLS, 0),
                  y = padded_tensor(DTYPE_F32, 3, COLS, 1);
    struct tensor positions = random_tensor(DTYPE_F32, 4, COLS, 0);
    int32_t ids[] = {7, -1, 19}, at[] = {3, 0, 1};
    struct host_matrix host = {.values = words.data};
    struct embed_args a = {
        .y = y, .word = &w, .position = &positions, .ids = ids, .positions = at, .scale = scale};
    assert_int_equal(backend_pack(b, &w, &host, NULL), STATUS_OK);
    backend_embed(b, &a);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < COLS; j++) {
            float word = ids[i] < 0 ? 0 : scale * tensor_get(words, ids[i], j);
            assert_true(tensor_get(y, i, j) == word + tensor_get(positions, at[i], j));
        }
    assert_gaps_untouched(y);
    backend_release(b, w.data);
    free(words.data);
    free(positions.data);
    free(y.data);
}

/* Rotated columns are scaled, and nothing behind them. */
static void rope_scale(struct backend *b) {
    enum { HEADS = 3, HEAD = 12, ROTATED = 8 };
    float inv_freq[] = {1, 0.3f, 0.1f, 0.01f};
    int32_t positions[ROWS];
    for (int i = 0; i < ROWS; i++) positions[i] = 17 * i;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct tensor x = random_tensor(DTYPE_F32, ROWS, HEADS * HEAD, 1);
        struct tensor plain = padded_tensor(DTYPE_F32, ROWS, HEADS * HEAD, 0);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < HEADS * HEAD; j++) tensor_set(plain, i, j, tensor_get(x, i, j));
        struct rope_args a = {
            .positions = positions, .inv_freq = inv_freq, .heads = HEADS, .head_dim = HEAD};
        a.rotated = ROTATED;
        a.interleaved = interleaved;
        a.x = plain;
        backend_rope(b, &a);
        a.x = x;
        a.scale = 1.3f;
        backend_rope(b, &a);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < HEADS * HEAD; j++) {
                double expected = (j % HEAD < ROTATED ? (double)1.3f : 1) * tensor_get(plain, i, j);
                assert_true(fabs(tensor_get(x, i, j) - expected) <= 4e-7);
            }
        free(x.data);
        free(plain.data);
    }
}

/* Rows far away are scaled by their place, in steps. */
static void check_growth(struct backend *b, int ahead) {
    enum { HEAD = 8, AFTER = 40 };
    static const float inv_freq[] = {1, 0.3f, 0.1f, 0.01f};
    int32_t positions[ROWS];
    for (int i = 0; i < ROWS; i++) positions[i] = 39 * i;
    struct tensor x = random_tensor(DTYPE_F32, ROWS, HEAD, 1);
    struct tensor plain = padded_tensor(DTYPE_F32, ROWS, HEAD, 0);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < HEAD; j++) tensor_set(plain, i, j, tensor_get(x, i, j));
    struct rope_args a = {.positions = positions, .inv_freq = inv_freq, .heads = 1};
    a.head_dim = a.rotated = HEAD;
    a.x = plain;
    backend_rope(b, &a);
    a.x = x;
    a.growth = 0.5f;
    a.grows_after = AFTER;
    a.grows_ahead = ahead;
    backend_rope(b, &a);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < HEAD; j++) {
            double scale = 1 + 0.5 * log(1 + floor((positions[i] + ahead) / (double)AFTER));
            double expected = scale * tensor_get(plain, i, j);
            assert_true(fabs(tensor_get(x, i, j) - expected) <= 2e-6);
        }
    free(x.data);
    free(plain.data);
}

static void rope_growth(struct backend *b) {
    check_growth(b, 0);
    check_growth(b, 1);
}

static void test_scales(void **state) {
    (void)state;
    for_each_variant(add_scale, 2);
    for_each_variant(embed_scale, 2);
    for_each_variant(rope_scale, 2);
    for_each_variant(rope_growth, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_softcap),
                                       cmocka_unit_test(test_clamp), cmocka_unit_test(test_xielu),
                                       cmocka_unit_test(test_scale), cmocka_unit_test(test_scales)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
