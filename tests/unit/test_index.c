/* tests/unit/test_index.c: exact search against a naive one, FAISS against exact search. */
#include <malloc.h>
#include <math.h>
#include <unistd.h>

#include "retrieval/index/index_recall.h"
#include "tests/unit/indexes.h"

static float *copy(const float *v, size_t n) {
    float *c = malloc((n + 1) * sizeof *c);
    if (n) memcpy(c, v, n * sizeof *c);
    return c;
}

static struct index *open_flat(const float *v, int64_t count, int dim) {
    struct index *x;
    struct error e = {0};
    assert_int_equal(index_open_flat(&x, copy(v, (size_t)count * (size_t)dim), count, dim, &e),
                     STATUS_OK);
    return x;
}

enum { NAIVE_K = 7 };

/* In double, by repeated selection: slow, and obviously right. */
static void check_naive(const float *v, const struct index *x, const float *query,
                        const int64_t *ids, const float *similarities) {
    int64_t count = x->count;
    int dim = x->dim;
    double *scores = malloc(((size_t)count + 1) * sizeof *scores);
    for (int64_t i = 0; i < count; i++) {
        scores[i] = 0;
        for (int j = 0; j < dim; j++)
            scores[i] += (double)v[(size_t)i * (size_t)dim + (size_t)j] * query[j];
    }
    for (int i = 0; i < NAIVE_K; i++) {
        int64_t best = -1;
        for (int64_t j = 0; j < count; j++)
            if (best < 0 || scores[j] > scores[best]) best = scores[j] > -9 ? j : best;
        if (i >= count) {
            assert_int_equal(ids[i], -1);
            assert_true(similarities[i] == -2);
            continue;
        }
        assert_true(fabs(similarities[i] - scores[best]) < 1e-5);
        assert_true(ids[i] == best || fabs(scores[ids[i]] - scores[best]) < 1e-5);
        scores[ids[i]] = -10;
    }
    free(scores);
}

static void test_exact_is_naive(void **state) {
    (void)state;
    static const int dims[] = {1, 2, 3, 15, 16, 17, 31, 64, 100, 384};
    for (size_t d = 0; d < ARRAY_COUNT(dims); d++)
        for (int count = 0; count < 200; count += count < 4 ? 1 : 61) {
            enum { N = 11, K = NAIVE_K };
            int dim = dims[d];
            int64_t ids[N * K];
            float similarities[N * K];
            float *v = make_vectors(count, dim, 0), *queries = make_vectors(N, dim, 0);
            struct index *x = open_flat(v, count, dim);
            assert_int_equal(
                index_search(x, (struct index_query){.vectors = queries, .n = N, .k = K}, ids,
                             similarities, NULL),
                STATUS_OK);
            for (int q = 0; q < N; q++)
                check_naive(v, x, queries + q * dim, ids + q * NAIVE_K, similarities + q * NAIVE_K);
            index_close(x);
            free(v);
            free(queries);
        }
}

/* Equal similarities are in order of id, whatever the blocks. */
static void test_exact_ties(void **state) {
    (void)state;
    enum { COUNT = 300, DIM = 5, K = 20 };
    float v[COUNT * DIM] = {0};
    int64_t ids[K];
    float similarities[K], query[DIM] = {1};
    for (int i = 0; i < COUNT; i++) v[i * DIM] = i % 10 == 3 ? 1.0F : 0.5F;
    struct index *x = open_flat(v, COUNT, DIM);
    assert_int_equal(index_search(x, (struct index_query){.vectors = query, .n = 1, .k = K}, ids,
                                  similarities, NULL),
                     STATUS_OK);
    for (int i = 0; i < K; i++) assert_int_equal(ids[i], 3 + 10 * i);
    index_close(x);
}

static void test_exact_edges(void **state) {
    (void)state;
    struct error e = {0};
    int64_t ids[2];
    float similarities[2], nan_query[2] = {NAN, 1}, v[2] = {1, 0};
    struct index *x = open_flat(v, 1, 2);
    assert_int_equal(
        index_search(x, (struct index_query){.vectors = v, .n = 0, .k = 1}, ids, similarities, &e),
        STATUS_OK);
    assert_int_equal(
        index_search(x, (struct index_query){.vectors = v, .n = 1, .k = 0}, ids, similarities, &e),
        STATUS_INVALID);
    assert_int_equal(index_search(x, (struct index_query){.vectors = nan_query, .n = 1, .k = 2},
                                  ids, similarities, &e),
                     STATUS_OK);
    assert_int_equal(ids[0], -1);
    index_close(x);
    assert_int_equal(index_open_flat(&x, NULL, 1, 0, &e), STATUS_INVALID);
}

static void test_devices(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:12345"};
    struct error e = {0};
    float v[2] = {1, 0};
    struct index *x = open_flat(v, 1, 2);
    assert_int_equal(index_move(x, "cpu", &e), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        assert_int_equal(index_move(x, wrong[i], &e), STATUS_INVALID);
        assert_non_null(strstr(e.text, "cuda:N"));
    }
    assert_int_equal(index_move(x, "cuda:0", &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "IVF<lists>,Flat"));
    index_close(x);
}

#if HAVE_FAISS

static char path[] = "/tmp/retro-index-XXXXXX";

static struct index *open_faiss(const char *factory, const float *v, int64_t count, int dim) {
    struct index *x = NULL;
    struct error e = {0};
    if (index_build_faiss(path, factory, v, count, dim, &e)) fail_msg("%s", e.text);
    if (index_open_faiss(&x, path, count, dim, &e)) fail_msg("%s", e.text);
    return x;
}

static void test_faiss_flat_is_exact(void **state) {
    (void)state;
    static const int dims[] = {1, 2, 3, 7, 16, 33, 384};
    static const int counts[] = {0, 1, 2, 5, 100, 1000};
    enum { N = 25, K = 8 };
    int64_t ids[N * K], expected[N * K];
    float similarities[N * K], expected_similarities[N * K];
    for (size_t d = 0; d < ARRAY_COUNT(dims); d++)
        for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
            int dim = dims[d], count = counts[c];
            float *v = make_vectors(count, dim, 0), *queries = make_vectors(N, dim, 0);
            struct index *flat = open_flat(v, count, dim), *x = open_faiss(NULL, v, count, dim);
            assert_int_equal(
                index_search(x, (struct index_query){.vectors = queries, .n = N, .k = K}, ids,
                             similarities, NULL),
                STATUS_OK);
            index_search(flat, (struct index_query){.vectors = queries, .n = N, .k = K}, expected,
                         expected_similarities, NULL);
            for (int i = 0; i < N * K; i++) {
                assert_true(fabsf(similarities[i] - expected_similarities[i]) < 1e-5F);
                bool near_tie = (i % K > 0 && similarities[i - 1] - similarities[i] < 1e-5F) ||
                                (i % K < K - 1 && similarities[i] - similarities[i + 1] < 1e-5F);
                /* The last of K may tie with one that was cut off. */
                assert_true(ids[i] == expected[i] || near_tie || i % K == K - 1);
            }
            index_close(flat);
            index_close(x);
            free(v);
            free(queries);
        }
}

enum { TIES_N = 40, TIES_K = 12 };

/* Whatever k and the other queries of the batch are, neighbours are those of exact search, ties in
 * order of id: one query by itself, with another k, and all together. */
static void check_ties(const struct index *x, const struct index *exact, const float *queries) {
    int64_t ids[TIES_N * TIES_K], expected[TIES_N * TIES_K], alone[TIES_K];
    float similarities[TIES_N * TIES_K], expected_similarities[TIES_N * TIES_K];
    struct index_query all = {.vectors = queries, .n = TIES_N, .k = TIES_K};
    assert_int_equal(index_search(exact, all, expected, expected_similarities, NULL), STATUS_OK);
    assert_int_equal(index_search(x, all, ids, similarities, NULL), STATUS_OK);
    assert_memory_equal(ids, expected, sizeof ids);
    assert_memory_equal(similarities, expected_similarities, sizeof similarities);
    for (int q = 0; q < TIES_N; q++)
        for (int k = 1; k < TIES_K; k += 3) {
            struct index_query one = {.vectors = queries + q * x->dim, .n = 1, .k = k};
            assert_int_equal(index_search(x, one, alone, similarities, NULL), STATUS_OK);
            assert_memory_equal(alone, expected + q * TIES_K, (size_t)k * sizeof *alone);
        }
}

/* Few numbers in short vectors, each vector 30 times: ties of some hundreds, far more than a search
 * has to spare. */
static void test_faiss_ties(void **state) {
    (void)state;
    static const char *const factories[] = {"Flat", "IVF8,Flat"};
    static const int dims[] = {3, 16, 65};
    enum { COUNT = 1800, SHARE = 30 };
    for (size_t f = 0; f < ARRAY_COUNT(factories); f++)
        for (size_t d = 0; d < ARRAY_COUNT(dims); d++) {
            float *v = make_ties(COUNT, dims[d], SHARE), *queries = make_ties(TIES_N, dims[d], 1);
            struct index *exact = open_flat(v, COUNT, dims[d]),
                         *x = open_faiss(factories[f], v, COUNT, dims[d]);
            check_ties(x, exact, queries);
            index_close(exact);
            index_close(x);
            free(v);
            free(queries);
        }
}

/* A query by itself finds what it finds among many others, to the last bit of a similarity: a
 * server's answer does not depend on who else asks. */
static void test_faiss_alone_and_among_others(void **state) {
    (void)state;
    static const char *const factories[] = {"Flat", "IVF16,Flat", "IVF16,SQ8", "IVF16,PQ16np"};
    enum { COUNT = 2000, DIM = 384, N = 70, K = 3 };
    float *v = make_vectors(COUNT, DIM, 0), similarities[N * K], alone[K];
    int64_t ids[N * K], alone_ids[K];
    const float *queries = v + (size_t)500 * DIM;
    for (size_t f = 0; f < ARRAY_COUNT(factories); f++) {
        struct index *x = open_faiss(factories[f], v, COUNT, DIM);
        assert_int_equal(index_search(x, (struct index_query){.vectors = queries, .n = N, .k = K},
                                      ids, similarities, NULL),
                         STATUS_OK);
        for (int q = 0; q < N; q++) {
            struct index_query one = {.vectors = queries + (size_t)q * DIM, .n = 1, .k = K};
            assert_int_equal(index_search(x, one, alone_ids, alone, NULL), STATUS_OK);
            assert_memory_equal(alone_ids, ids + q * K, sizeof alone_ids);
            assert_memory_equal(alone, similarities + q * K, sizeof alone);
        }
        index_close(x);
    }
    free(v);
}

/* Lists that stay in their file find what lists in memory find, to the bit but for the sums of
 * many queries at a time, and an open index does not take their bytes. */
static void test_mapped_lists(void **state) {
    (void)state;
    static const char *const factories[] = {"IVF32,Flat", "IVF32,SQ8", "IVF32_HNSW8,SQ8"};
    enum { COUNT = 20000, DIM = 96, N = 40, K = 10 };
    float *v = make_vectors(COUNT, DIM, 200), similarities[N * K], expected_similarities[N * K];
    int64_t ids[N * K], expected[N * K];
    struct error e = {0};
    for (size_t f = 0; f < ARRAY_COUNT(factories); f++) {
        struct index_source source = {
            .factory = factories[f], .vectors = v, .count = COUNT, .dim = DIM};
        struct index *memory = NULL;
        if (index_make_faiss(&memory, &source, &e)) fail_msg("%s", e.text);
        size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
        struct index *mapped = open_faiss(factories[f], v, COUNT, DIM);
        size_t taken = mallinfo2().uordblks + mallinfo2().hblkhd - before;
        assert_true(taken < (size_t)COUNT * DIM / 2);
        struct index_query query = {.vectors = v, .n = N, .k = K};
        assert_int_equal(index_search(memory, query, expected, expected_similarities, &e),
                         STATUS_OK);
        assert_int_equal(index_search(mapped, query, ids, similarities, &e), STATUS_OK);
        assert_memory_equal(ids, expected, sizeof ids);
        assert_memory_equal(similarities, expected_similarities, sizeof similarities);
        query.bulk = true;
        assert_int_equal(index_search(mapped, query, ids, similarities, &e), STATUS_OK);
        for (int i = 0; i < N * K; i++)
            assert_true(fabsf(similarities[i] - expected_similarities[i]) < 1e-5F);
        index_close(memory);
        index_close(mapped);
    }
    free(v);
}

/* More vectors tie than a search looks at: still k different ones of them. */
static void test_faiss_widest_tie(void **state) {
    (void)state;
    enum { COUNT = 3 * INDEX_WIDEST, K = 4 };
    float *v = make_ties(COUNT, 4, COUNT), similarities[K];
    int64_t ids[K];
    struct index *x = open_faiss("Flat", v, COUNT, 4);
    assert_int_equal(index_search(x, (struct index_query){.vectors = v, .n = 1, .k = K}, ids,
                                  similarities, NULL),
                     STATUS_OK);
    for (int i = 0; i < K; i++) {
        assert_true(ids[i] >= 0 && ids[i] < COUNT && (i == 0 || ids[i] > ids[i - 1]));
        assert_true(similarities[i] == similarities[0]);
    }
    index_close(x);
    free(v);
}

/* Share of the true ten nearest that an index of 20 000 vectors finds. */
static double recall(const char *factory) {
    enum { COUNT = 20000, DIM = 32, N = 100, K = 10 };
    int64_t ids[N * K], expected[N * K];
    float similarities[N * K];
    float *v = make_vectors(COUNT, DIM, 200);
    float *queries = v + (size_t)1000 * DIM;
    struct index *flat = open_flat(v, COUNT, DIM), *x = open_faiss(factory, v, COUNT, DIM);
    index_search(flat, (struct index_query){.vectors = queries, .n = N, .k = K}, expected,
                 similarities, NULL);
    assert_int_equal(index_search(x, (struct index_query){.vectors = queries, .n = N, .k = K}, ids,
                                  similarities, NULL),
                     STATUS_OK);
    int found = 0;
    for (int q = 0; q < N; q++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) found += ids[q * K + i] == expected[q * K + j];
    index_close(flat);
    index_close(x);
    free(v);
    return (double)found / (N * K);
}

static void test_faiss_recall(void **state) {
    (void)state;
    double ivf = recall("IVF512,Flat"), pq = recall("IVF64,PQ16np");
    print_message("recall of the ten nearest: IVF512,Flat %.3f, IVF64,PQ16np %.3f\n", ivf, pq);
    assert_true(ivf > 0.95);
    assert_true(pq > 0.5);
}

static void test_factory_by_size(void **state) {
    (void)state;
    static const struct {
        const char *asked;
        int64_t count;
        int dim;
        const char *factory;
    } cases[] = {{NULL, 1, 384, "Flat"},
                 {NULL, 100000, 384, "Flat"},
                 {NULL, 100001, 384, "IVF1024,SQ8"},
                 {NULL, 1000000, 384, "IVF4096,SQ8"},
                 {NULL, 100000000, 384, "IVF32768,SQ8"},
                 {"flat", 1000000, 384, "Flat"},
                 {"ivf", 1000, 384, "IVF128,Flat"},
                 {"ivfsq8", 1000, 20, "IVF128,SQ8"},
                 {"hnsw", 1000, 5, "HNSW32"},
                 {"IVF7,Flat", 1000, 5, "IVF7,Flat"},
                 {INDEX_EXACT, 1000, 5, INDEX_EXACT}};
    struct error e = {0};
    char factory[INDEX_FACTORY_SIZE], longest[INDEX_FACTORY_SIZE + 1] = {0};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_equal(index_resolve(factory, cases[i].asked, cases[i].count, cases[i].dim, &e),
                         STATUS_OK);
        assert_string_equal(factory, cases[i].factory);
        assert_true(index_check_factory(cases[i].asked, cases[i].dim, &e) == STATUS_OK);
    }
    memset(longest, 'I', INDEX_FACTORY_SIZE);
    assert_int_equal(index_resolve(factory, longest, 1, 1, &e), STATUS_INVALID);

    const char *const zeros[] = {"IVF0,Flat", "PQ0", "HNSW00", "IVF4,PQ4x0", "OPQ4_0,IVF4,PQ4"};
    for (size_t i = 0; i < ARRAY_COUNT(zeros); i++) {
        assert_int_equal(index_check_factory(zeros[i], 32, &e), STATUS_INVALID);
        assert_non_null(strstr(e.text, "0"));
    }
    assert_int_equal(index_resolve(factory, "IVF100,PQ20", 1, 1, &e), STATUS_OK);
}

/* The words that were asked for are found again, so that they can be asked of more vectors. */
static void test_asked_again(void **state) {
    (void)state;
    static const char *const asked[] = {NULL, "hnsw", "ivf", "ivfsq8", "IVF7,Flat", INDEX_EXACT};
    struct error e = {0};
    char factory[INDEX_FACTORY_SIZE];
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        assert_int_equal(index_resolve(factory, asked[i], 5000, 384, &e), STATUS_OK);
        const char *found = index_asked(factory, 5000, 384);
        if (asked[i] == NULL)
            assert_null(found);
        else
            assert_string_equal(found, asked[i]);
    }
    assert_null(index_asked("Flat", 5000, 384)); /* which the number chooses too */
    assert_string_equal(index_asked("IVF1024,Flat", 5000, 384), "IVF1024,Flat");
}

/* A kind that has an index built and searched, beside the vectors where it compresses; finds as
 * much as it should. */
static void check_kind(const char *kind, double least) {
    enum { COUNT = 700, DIM = 16, N = 100, K = 2 };
    float *v = make_vectors(COUNT + N, DIM, 20), kept[2 * DIM];
    struct recall_figures figures;
    struct error e = {0};
    char factory[INDEX_FACTORY_SIZE];
    assert_int_equal(index_resolve(factory, kind, COUNT, DIM, &e), STATUS_OK);
    struct index *x = open_faiss(kind, v, COUNT, DIM);
    if (!index_is_lossless(factory)) x = index_refine(x, factory, v);
    assert_int_equal(index_vectors(x, 77, 2, kept, &e), STATUS_OK);
    assert_memory_equal(kept, v + 77 * DIM, sizeof kept);
    struct recall_sample sample = {.queries = v + (size_t)COUNT * DIM, .n = N, .k = K};
    assert_int_equal(index_recall(x, &sample, &figures, &e), STATUS_OK);
    print_message("%s: recall of the nearest %.3f, of the two nearest %.3f\n", kind,
                  figures.recall_first, figures.recall);
    assert_true(figures.recall >= least && figures.recall_first >= least);
    assert_true(figures.median > 0 && figures.p99 >= figures.median);
    index_close(x);
    free(v);
}

static void test_kinds_find_enough(void **state) {
    (void)state;
    check_kind("flat", 1);
    check_kind("ivf", 0.95);
    check_kind("ivfsq8", 0.95);
    check_kind("hnsw", 0.95);
}

/* Similarities beside the vectors are those of exact search, to the bit, for any k up to all of
 * them. */
static void test_refined_is_exact(void **state) {
    (void)state;
    enum { COUNT = 2000, DIM = 24, K = COUNT + 3 };
    static const int wanted[] = {1, 5, 300, COUNT, K};
    static int64_t ids[K], expected[K];
    static float similarities[K], expected_similarities[K];
    float *v = make_vectors(COUNT, DIM, 10);
    struct index *x = index_refine(open_faiss("SQ8", v, COUNT, DIM), "SQ8", v),
                 *exact = open_flat(v, COUNT, DIM);
    struct error e = {0};
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
        struct index_query query = {.vectors = v + 5 * DIM, .n = 1, .k = wanted[i]};
        assert_int_equal(index_search(x, query, ids, similarities, &e), STATUS_OK);
        assert_int_equal(index_search(exact, query, expected, expected_similarities, &e),
                         STATUS_OK);
        assert_memory_equal(ids, expected, (size_t)wanted[i] * sizeof *ids);
        assert_memory_equal(similarities, expected_similarities,
                            (size_t)wanted[i] * sizeof *similarities);
    }
    assert_int_equal(index_move(x, "cuda:0", &e), STATUS_UNSUPPORTED);
    index_close(exact);
    index_close(x);
    free(v);
}

/* An index that finds the wrong ones is caught: every query's own vector, a wrong one, nothing at
 * all. */
static enum status search_wrongly(const struct index *x, struct index_query q, int64_t *ids,
                                  float *similarities, struct error *e) {
    (void)x, (void)e;
    for (int i = 0; i < q.n * q.k; i++) {
        ids[i] = i % q.k == 0 ? 3 : -1;
        similarities[i] = i % q.k == 0 ? 0.0F : -2;
    }
    return STATUS_OK;
}

static enum status give_axes(const struct index *x, int64_t first, int n, float *vectors,
                             struct error *e) {
    (void)e;
    for (int i = 0; i < n * x->dim; i++) vectors[i] = i % x->dim == (first + i / x->dim) % x->dim;
    return STATUS_OK;
}

static void test_recall_is_counted(void **state) {
    (void)state;
    enum { DIM = 4, N = 2 };
    static const struct index_ops wrong = {.search = search_wrongly, .vectors = give_axes};
    const struct index x = {.ops = &wrong, .dim = DIM, .count = 8}; /* each axis twice */
    const float queries[N * DIM] = {1, 0, 0, 0, 0, 0, 0, 1};
    const int64_t own[N] = {0, 3};
    atomic_bool cancelled = true;
    struct recall_figures figures;
    struct error e = {0};
    struct recall_sample sample = {.queries = queries, .n = N, .k = 1};
    assert_int_equal(index_recall(&x, &sample, &figures, &e), STATUS_OK);
    assert_true(figures.recall == 0 && figures.recall_first == 0);
    sample.k = 3; /* the third nearest is at a right angle, as what is found */
    assert_int_equal(index_recall(&x, &sample, &figures, &e), STATUS_OK);
    assert_true(fabs(figures.recall - 1.0 / 3) < 1e-9 && figures.recall_first == 0);
    sample = (struct recall_sample){.queries = queries, .own = own, .n = N, .k = 2};
    assert_int_equal(index_recall(&x, &sample, &figures, &e), STATUS_OK);
    assert_true(fabs(figures.recall - 0.25) <
                1e-9); /* the first query finds 3; the second finds itself alone */
    sample.cancelled = &cancelled;
    assert_int_equal(index_recall(&x, &sample, &figures, &e), STATUS_CANCELLED);
}

static void test_faiss_errors(void **state) {
    (void)state;
    struct error e = {0};
    struct index *x;
    float *v = make_vectors(10, 4, 0);
    assert_int_equal(index_build_faiss(path, "NoSuchIndex", v, 10, 4, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "NoSuchIndex"));
    assert_int_equal(index_build_faiss(path, "IVF64,Flat", v, 10, 4, &e), STATUS_INTERNAL);
    assert_non_null(strstr(e.text, "training"));
    assert_int_equal(index_build_faiss("/nonexistent/x", "Flat", v, 10, 4, &e), STATUS_INTERNAL);
    assert_int_equal(index_open_faiss(&x, "/nonexistent/x", 10, 4, &e), STATUS_IO);
    assert_int_equal(index_build_faiss(path, "Flat", v, 10, 4, &e), STATUS_OK);
    assert_int_equal(index_open_faiss(&x, path, 11, 4, &e), STATUS_CORRUPT);
    assert_int_equal(index_open_faiss(&x, path, 10, 5, &e), STATUS_CORRUPT);
    free(v);
}

static void test_faiss_from_threads(void **state) {
    (void)state;
    float *v = make_vectors(3000, 24, 30);
    struct index *x = open_faiss("IVF32,Flat", v, 3000, 24);
    check_threads(x, v);
    index_close(x);
    free(v);
}

#else

static void test_without_faiss(void **state) {
    (void)state;
    struct error e = {0};
    struct index *x;
    float v[1] = {1};
    char factory[INDEX_FACTORY_SIZE];
    assert_int_equal(index_resolve(factory, NULL, 1000000, 384, &e), STATUS_OK);
    assert_string_equal(factory, INDEX_EXACT);
    assert_int_equal(index_build_faiss("x", "Flat", v, 1, 1, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "make deps"));
    assert_int_equal(index_open_faiss(&x, "x", 1, 1, &e), STATUS_UNSUPPORTED);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_is_naive),
        cmocka_unit_test(test_exact_ties),
        cmocka_unit_test(test_exact_edges),
        cmocka_unit_test(test_devices),
#if HAVE_FAISS
        cmocka_unit_test(test_faiss_flat_is_exact),
        cmocka_unit_test(test_faiss_ties),
        cmocka_unit_test(test_mapped_lists),
        cmocka_unit_test(test_faiss_widest_tie),
        cmocka_unit_test(test_faiss_alone_and_among_others),
        cmocka_unit_test(test_faiss_recall),
        cmocka_unit_test(test_factory_by_size),
        cmocka_unit_test(test_asked_again),
        cmocka_unit_test(test_kinds_find_enough),
        cmocka_unit_test(test_refined_is_exact),
        cmocka_unit_test(test_recall_is_counted),
        cmocka_unit_test(test_faiss_errors),
        cmocka_unit_test(test_faiss_from_threads),
#else
        cmocka_unit_test(test_without_faiss),
#endif
    };
#if HAVE_FAISS
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
#else
    return cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
