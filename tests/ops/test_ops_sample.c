/* tests/ops/test_ops_sample.c: sampling against a plain sort-and-walk written from the rules in
 * kernels/cpu/sample.c, the distribution of seeded draws, edge cases, and logprobs_top. */
#include "tests/ops/ops.h"

#include <float.h>

static const struct sample_params plain = {.temperature = 1, .top_p = 1};

static int32_t sample_one(struct backend *b, float *logits, int n, struct sample_params p,
                          float *logprob) {
    int32_t id = -1;
    float ignored;
    backend_sample(b, &(struct sample_args){.logits = tensor_make(logits, DTYPE_F32, 1, n),
                                            .params = &p,
                                            .n_vocab = n,
                                            .ids = &id,
                                            .logprobs = logprob == NULL ? &ignored : logprob});
    assert_int_equal(backend_sync(b, NULL), STATUS_OK);
    assert_in_range(id, 0, n - 1);
    return id;
}

/* The rules once more, the slow way. */
struct candidate {
    float logit;
    int id;
    uint64_t weight;
};

static int compare_candidates(const void *x, const void *y) {
    const struct candidate *a = x, *b = y;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id - b->id;
}

static int compare_ids(const void *x, const void *y) {
    return ((const struct candidate *)x)->id - ((const struct candidate *)y)->id;
}

static uint64_t reference_weight(double logit, double largest, double temperature) {
    static const double factorials[] = {39916800, 3628800, 362880, 40320, 5040, 720,
                                        120,      24,      6,      2,     1,    1};
    double z = fmax((logit - largest) / temperature, -40), n = nearbyint(z * 0x1.71547652b82fep0);
    double r = z - n * 0x1.62e42fefa39efp-1, p = 1 / factorials[0];
    for (int i = 1; i < 12; i++) p = p * r + 1 / factorials[i];
    return (uint64_t)nearbyint(ldexp(p, (int)n + 40));
}

static uint64_t reference_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static int32_t reference_sample(const float *logits, int n, const struct sample_params *p) {
    struct candidate *c = xcalloc((size_t)n, sizeof *c);
    for (int i = 0; i < n; i++) c[i] = (struct candidate){.logit = logits[i], .id = i};
    qsort(c, (size_t)n, sizeof *c, compare_candidates);
    uint64_t total = 0, sum = 0;
    int kept = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    if (p->temperature == 0) kept = 1;
    for (int i = 0; i < kept; i++) {
        c[i].weight =
            p->temperature == 0 ? 1 : reference_weight(c[i].logit, c[0].logit, p->temperature);
        total += c[i].weight;
    }
    if (p->top_p < 1) {
        uint64_t target = (uint64_t)ceil((double)p->top_p * (double)total);
        int i = 0;
        while (i < kept && sum < target) {
            sum += c[i].weight;
            i++;
        }
        kept = i;
    }
    int left = 0;
    for (int i = 0; i < kept; i++) {
        if ((double)c[i].weight < (double)p->min_p * 0x1p40) continue;
        c[left] = c[i];
        left++;
    }
    qsort(c, (size_t)left, sizeof *c, compare_ids);
    total = sum = 0;
    for (int i = 0; i < left; i++) total += c[i].weight;
    uint64_t r = reference_mix(reference_mix(p->seed) + p->draw * 0x9e3779b97f4a7c15);
    uint64_t target = (uint64_t)((unsigned __int128)r * total >> 64);
    int at = 0;
    while ((sum += c[at].weight) <= target) at++;
    int32_t id = c[at].id;
    free(c);
    return id;
}

static void sample_rules(struct backend *b) {
    static const int sizes[] = {1, 2, 3, 17, 255, 256, 257, 1000};
    static const float temperatures[] = {0, 0.3f, 1, 2.5f}, top_ps[] = {1, 0.95f, 0.5f, 0.01f};
    static const float min_ps[] = {0, 0.05f, 0.9f};
    for (int round = 0; round < 4000; round++) {
        int n = sizes[random_int(ARRAY_COUNT(sizes))];
        float *logits = random_array((size_t)n);
        float spread = round % 3 == 0 ? 1 : 12;
        /* Every second row has many ties, so that cuts fall between equal logits. */
        for (int i = 0; i < n; i++)
            logits[i] = round % 2 ? logits[i] * spread : roundf(logits[i] * 3);
        struct sample_params p = {.temperature = temperatures[random_int(4)],
                                  .top_p = top_ps[random_int(4)]};
        p.min_p = min_ps[random_int(3)];
        p.top_k = random_int(3) == 0 ? 0 : 1 + random_int(n + 2);
        p.seed = random_bits();
        p.draw = (uint64_t)random_int(1000);
        assert_int_equal(sample_one(b, logits, n, p, NULL), reference_sample(logits, n, &p));
        free(logits);
    }
}

/* Vocabularies of several regions, of regions of more than one block, and cuts that keep few ids or
 * more than are copied out; far from zero all logits share their leading bits. */
static void sample_large_rows(struct backend *b) {
    static const int sizes[] = {40000, 270001}, top_ks[] = {0, 20, 1500, 100000};
    static const float spreads[] = {0.01f, 3, 40}, shifts[] = {0, 200};
    for (int round = 0; round < 24; round++) {
        int n = sizes[round % 8 == 7];
        float spread = spreads[random_int(3)], shift = shifts[random_int(2)];
        float *logits = random_array((size_t)n);
        for (int i = 0; i < n; i++)
            logits[i] = (logits[i] + random_value() + random_value()) * spread + shift;
        for (int i = 0; round % 3 == 0 && i < n; i++) logits[i] = roundf(logits[i]);
        struct sample_params p = {.temperature = round % 5 ? 0.9f : 0.1f,
                                  .top_p = round % 2 ? 0.9f : 1};
        p.top_k = top_ks[random_int(4)];
        p.min_p = round % 7 ? 0 : 0.05f;
        p.seed = random_bits();
        assert_int_equal(sample_one(b, logits, n, p, NULL), reference_sample(logits, n, &p));
        free(logits);
    }
}

static void test_sample_rules(void **state) {
    (void)state;
    for_each_variant(sample_rules, 2);
    for_each_variant(sample_large_rows, 1);
}

/* 60000 seeded draws from 20 tokens: chi-square with 19 degrees of freedom is below 43.8 in 999 of
 * 1000 cases. */
static void sample_distribution(struct backend *b) {
    enum { TOKENS = 20, DRAWS = 60000 };
    float logits[TOKENS];
    double p[TOKENS], sum = 0;
    for (int i = 0; i < TOKENS; i++) {
        logits[i] = (float)(i * 7 % TOKENS) * 0.2f;
        sum += p[i] = exp(logits[i] / 0.8);
    }
    for (int by_seed = 0; by_seed < 2; by_seed++) {
        int counts[TOKENS] = {0};
        for (int i = 0; i < DRAWS; i++) {
            struct sample_params params = plain;
            params.temperature = 0.8f;
            params.seed = by_seed ? (uint64_t)i : 7;
            params.draw = by_seed ? 0 : (uint64_t)i;
            counts[sample_one(b, logits, TOKENS, params, NULL)]++;
        }
        double chi_square = 0;
        for (int i = 0; i < TOKENS; i++) {
            double expected = p[i] / sum * DRAWS;
            chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        assert_true(chi_square < 43.8);
    }
}

static void test_sample_distribution(void **state) {
    (void)state;
    for_each_variant(sample_distribution, 1);
}

static void sample_edges(struct backend *b) {
    float logits[] = {1, 5, -0.0f, 5, NAN, 3, 0.0f};
    enum { N = ARRAY_COUNT(logits) };
    float logprob;
    struct sample_params greedy = {.temperature = 0, .top_p = 1};
    /* Greedy takes the lowest of the equal ids; its log-probability leaves the NaN out. */
    assert_int_equal(sample_one(b, logits, N, greedy, &logprob), 1);
    assert_true(fabs(logprob - (5 - log(2 * exp(5) + exp(3) + exp(1) + 2))) < 1e-6);
    struct sample_params p = plain;
    p.top_k = 1;
    assert_int_equal(sample_one(b, logits, N, p, NULL), 1);
    p = plain;
    p.top_p = 1e-9f;
    assert_int_equal(sample_one(b, logits, N, p, NULL), 1);
    p = plain;
    p.min_p = 1;
    for (p.draw = 0; p.draw < 50; p.draw++)
        assert_int_equal(sample_one(b, logits, N, p, NULL) | 2, 3);
    p = plain;
    p.temperature = 1e-30f;
    for (p.draw = 0; p.draw < 50; p.draw++)
        assert_int_equal(sample_one(b, logits, N, p, NULL) | 2, 3);
    /* Two equal zeros of different sign are one tie: the cut after one of them keeps the lower id.
     */
    float zeros[] = {-1, -0.0f, 0.0f};
    p = plain;
    p.top_k = 1;
    assert_int_equal(sample_one(b, zeros, 3, p, NULL), 1);
    p.top_k = 2;
    for (p.draw = 0; p.draw < 50; p.draw++) assert_true(sample_one(b, zeros, 3, p, NULL) > 0);
    /* Extreme temperatures: everything equal, and one survivor. */
    p = plain;
    p.temperature = FLT_MAX;
    int seen[3] = {0};
    for (p.draw = 0; p.draw < 300; p.draw++) seen[sample_one(b, zeros, 3, p, NULL)]++;
    assert_true(seen[0] > 60 && seen[1] > 60 && seen[2] > 60);
}

/* Broken logits still give a token in range, and a log-probability that is not NaN. */
static void sample_broken(struct backend *b) {
    static const float values[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0, 1e-45f};
    for (int round = 0; round < 500; round++) {
        float logits[300], logprob;
        int n = 1 + random_int(300);
        for (int i = 0; i < n; i++)
            logits[i] = values[random_int(round < 20 ? 1 + round / 4 : (int)ARRAY_COUNT(values))];
        struct sample_params p = {.temperature = round % 4 ? 0.7f : 0,
                                  .top_p = round % 3 ? 0.9f : 1};
        p.top_k = round % 5 * 3;
        p.min_p = round % 7 ? 0 : 0.1f;
        p.draw = (uint64_t)round;
        sample_one(b, logits, n, p, &logprob);
        assert_false(isnan(logprob));
    }
}

static void test_sample_edges(void **state) {
    (void)state;
    for_each_variant(sample_edges, 1);
    for_each_variant(sample_broken, 1);
}

/* Rows in one call: padding ids are never drawn and each row's token is what it gets alone. */
static void sample_batch(struct backend *b) {
    enum { ROWS = 23, N = 700, PADDED = 720 };
    struct tensor logits = random_tensor(DTYPE_F32, ROWS, PADDED, 1);
    struct sample_params params[ROWS];
    int32_t ids[ROWS], again[ROWS];
    float logprobs[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int j = N; j < PADDED; j++) tensor_set(logits, i, j, 50);
        params[i] = (struct sample_params){
            .temperature = (float)(i % 3), .top_p = 0.9f, .seed = (uint64_t)i};
    }
    struct sample_args a = {
        .logits = logits, .params = params, .n_vocab = N, .ids = ids, .logprobs = logprobs};
    backend_sample(b, &a);
    for (int i = 0; i < ROWS; i++) {
        float logprob;
        assert_in_range(ids[i], 0, N - 1);
        again[i] = sample_one(b, tensor_at(logits, i, 0), N, params[i], &logprob);
        assert_int_equal(again[i], ids[i]);
        assert_true(logprob == logprobs[i]);
        double sum = 0;
        for (int j = 0; j < N; j++) sum += exp(tensor_get(logits, i, j));
        assert_true(fabs(logprob - (tensor_get(logits, i, ids[i]) - log(sum))) < 2e-6);
    }
    free(logits.data);
}

static void test_sample_batch(void **state) {
    (void)state;
    for_each_variant(sample_batch, 3);
}

/* A row with edits draws what a row of the edited logits draws; the log-probability is the raw
 * row's, and the row is what it was. */
static void sample_edits(struct backend *b) {
    enum { N = 700, EDITS = 40 };
    for (int round = 0; round < 30; round++) {
        struct tensor raw = random_tensor(DTYPE_F32, 1, N, 0),
                      edited = random_tensor(DTYPE_F32, 1, N, 0);
        struct tensor before = random_tensor(DTYPE_F32, 1, N, 0);
        struct logit_edit edits[EDITS];
        struct sample_params p = {
            .temperature = (float)(round % 3), .top_p = round % 2 ? 0.9f : 1, .seed = 5};
        float logprob, edited_logprob;
        p.top_k = round % 5 ? 0 : 20;
        p.draw = (uint64_t)round;
        memcpy(before.data, raw.data, N * sizeof(float));
        memcpy(edited.data, raw.data, N * sizeof(float));
        for (int i = 0; i < EDITS; i++) {
            edits[i] = (struct logit_edit){
                .id = i * 17, .bias = 3 * random_value(), .repetition = 1.3f, .penalty = 0.1f};
            if (i % 4 == 0) edits[i].bias = -INFINITY;
            float *logit = tensor_at(edited, 0, i * 17);
            *logit += edits[i].bias;
            *logit = *logit > 0 ? *logit / 1.3f : *logit * 1.3f;
            *logit -= 0.1f;
        }
        int32_t wanted = sample_one(b, edited.data, N, p, &edited_logprob);
        p.edits = edits;
        p.n_edits = EDITS;
        int32_t id = sample_one(b, raw.data, N, p, &logprob);
        assert_int_equal(id, wanted);
        assert_true(id % 68 != 0 || id >= EDITS * 17);
        assert_memory_equal(raw.data, before.data, N * sizeof(float));
        double sum = 0;
        for (int j = 0; j < N; j++) sum += exp(tensor_get(before, 0, j));
        assert_true(fabs(logprob - (tensor_get(before, 0, id) - log(sum))) < 2e-6);
        free(raw.data);
        free(edited.data);
        free(before.data);
    }
}

static void test_sample_edits(void **state) {
    (void)state;
    for_each_variant(sample_edits, 1);
}

/* A masked row draws what a row draws whose other logits are -inf, with edits and without; the row
 * and the log-probability are as without a mask. */
static void sample_masks(struct backend *b) {
    static const int sizes[] = {1, 31, 300, 5003, 40000}, shares[] = {1, 2, 50, 3000};
    for (int round = 0; round < 200; round++) {
        int n = sizes[round % 5], share = shares[random_int(4)];
        size_t bytes = (size_t)n * sizeof(float);
        uint32_t *mask = xcalloc((size_t)n / 32 + 1, sizeof *mask);
        float *raw = random_array((size_t)n), *hidden = xmalloc(bytes), *before = xmalloc(bytes),
              logprob, ignored;
        struct logit_edit edit = {
            .id = random_int(n), .bias = 2, .repetition = 1.1f, .penalty = 0.3f};
        struct sample_params p = {
            .temperature = (float)(round % 3), .top_p = round % 2 ? 0.9f : 1, .seed = 3};
        p.top_k = round % 4 ? 0 : 7;
        p.min_p = round % 6 ? 0 : 0.1f;
        p.draw = (uint64_t)round;
        p.edits = &edit;
        p.n_edits = round % 7 == 0;
        memcpy(before, raw, bytes);
        int kept = random_int(n);
        for (int i = 0; i < n; i++) {
            bool allowed = i == kept || random_int(share) == 0;
            hidden[i] = allowed ? raw[i] : -INFINITY;
            if (allowed) mask[i / 32] |= (uint32_t)1 << (i % 32);
        }
        int32_t wanted = sample_one(b, hidden, n, p, &ignored);
        p.mask = mask;
        int32_t id = sample_one(b, raw, n, p, &logprob);
        assert_int_equal(id, wanted);
        assert_true(mask[id / 32] >> (id % 32) & 1);
        assert_memory_equal(raw, before, bytes);
        double sum = 0;
        for (int i = 0; i < n; i++) sum += exp((double)raw[i]);
        assert_true(fabs((double)logprob - ((double)raw[id] - log(sum))) < 1e-5);
        free(mask);
        free(raw);
        free(hidden);
        free(before);
    }
}

static void test_sample_masks(void **state) {
    (void)state;
    for_each_variant(sample_masks, 1);
}

static void test_logprobs_top(void **state) {
    (void)state;
    float logits[] = {1, 7, -INFINITY, 7, NAN, 2, 1}, logprobs[7];
    int32_t ids[7];
    static const int32_t ranking[] = {1, 3, 5, 0, 6, 2, 4};
    double log_sum = log(2 * exp(7) + exp(2) + 2 * exp(1));
    for (int n = 0; n <= 7; n++) {
        assert_true(fabs(logprobs_top(logits, 7, n, ids, logprobs) - log_sum) < 1e-6);
        assert_memory_equal(ids, ranking, (size_t)n * sizeof *ids);
        for (int i = 0; i < min_int(n, 5); i++)
            assert_true(fabs(logprobs[i] - (logits[ids[i]] - log_sum)) < 1e-6);
        for (int i = 5; i < n; i++) assert_true(logprobs[i] == -INFINITY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_rules), cmocka_unit_test(test_sample_distribution),
        cmocka_unit_test(test_sample_edges), cmocka_unit_test(test_sample_batch),
        cmocka_unit_test(test_sample_edits), cmocka_unit_test(test_sample_masks),
        cmocka_unit_test(test_logprobs_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
