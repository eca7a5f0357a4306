/* tests/unit/test_index_gpu.c: a GPU finds what the CPU finds. Run by hand or by tools/gpu_check.sh
 * with the name of a device it fails without one; without a name it takes the first GPU, and skips
 * where there is none or FAISS has no GPU part. */
#include "tests/unit/indexes.h"

static const char *device = "cuda:0";
static bool required;

/* The outcome of moving an index to the device, before any test. */
static enum status available;
static struct error why;

static void ask_for_gpu(void) {
    struct index *x;
    static const float v[2] = {1, 0};
    available = index_make_faiss(&x, &(struct index_source){"Flat", v, NULL, 1, 0, 2}, &why);
    if (available) return;
    available = index_move(x, device, &why);
    index_close(x);
}

static void skip_without_gpu(void) {
    if (available == STATUS_OK) return;
    if (required || (available != STATUS_UNSUPPORTED && available != STATUS_DEVICE))
        fail_msg("%s", why.text);
    print_message("skipped: %s\n", why.text);
    skip();
}

static struct index *make_index(const struct index_source *source) {
    struct index *x;
    struct error e = {0};
    if (index_make_faiss(&x, source, &e)) fail_msg("%s: %s", source->factory, e.text);
    return x;
}

static struct index *make_gpu_index(const struct index_source *source) {
    struct index *x = make_index(source);
    struct error e = {0};
    if (index_move(x, device, &e)) fail_msg("%s: %s", source->factory, e.text);
    return x;
}

struct found {
    int64_t *ids;
    float *similarities;
};

static struct found search(const struct index *x, struct index_query query) {
    struct error e = {0};
    size_t n = (size_t)query.n * (size_t)query.k;
    struct found f = {malloc(n * sizeof *f.ids), malloc(n * sizeof *f.similarities)};
    if (index_search(x, query, f.ids, f.similarities, &e)) fail_msg("%s", e.text);
    return f;
}

static void found_free(struct found f) {
    free(f.ids);
    free(f.similarities);
}

enum compared { COMPARED_EXACTLY, COMPARED_BUT_NEAR_TIES };

/* Sums in another order differ in their last bits: then neighbours may change places with others as
 * near. */
static void compare(struct index *cpu, struct index *gpu, struct index_query query,
                    enum compared how) {
    struct found a = search(cpu, query), b = search(gpu, query);
    for (size_t i = 0; i < (size_t)query.n * (size_t)query.k; i++) {
        int place = (int)(i % (size_t)query.k);
        const float *s = a.similarities + i;
        bool near_tie =
            how == COMPARED_BUT_NEAR_TIES &&
            (place == query.k - 1 || s[0] - s[1] < 1e-5F || (place > 0 && s[-1] - s[0] < 1e-5F));
        assert_true(a.ids[i] == b.ids[i] || near_tie);
        assert_true(fabsf(s[0] - b.similarities[i]) <= (how == COMPARED_EXACTLY ? 0 : 1e-5F));
    }
    found_free(a);
    found_free(b);
}

/* Numbers of queries and of neighbours on both sides of what the kernels take at once. */
static void compare_batches(const struct index_source *source, const float *queries,
                            enum compared how) {
    static const int ns[] = {1, 2, 19, 64}, ks[] = {1, 5, 32, 100, 1024};
    struct index *gpu = make_gpu_index(source), *cpu = make_index(source);
    for (size_t n = 0; n < ARRAY_COUNT(ns); n++)
        for (size_t k = 0; k < ARRAY_COUNT(ks); k++)
            compare(cpu, gpu, (struct index_query){.vectors = queries, .n = ns[n], .k = ks[k]},
                    how);
    index_close(cpu);
    index_close(gpu);
}

/* Whole numbers: the same bits, so the same neighbours, ties included. */
static void test_flat_exactly(void **state) {
    (void)state;
    skip_without_gpu();
    static const int dims[] = {1, 3, 16, 65, 384}, counts[] = {0, 1, 5, 1000, 5003};
    for (size_t d = 0; d < ARRAY_COUNT(dims); d++)
        for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
            float *v = make_ties(counts[c], dims[d], 7), *queries = make_ties(64, dims[d], 1);
            struct index_source source = {"Flat", v, NULL, counts[c], 0, dims[d]};
            compare_batches(&source, queries, COMPARED_EXACTLY);
            free(v);
            free(queries);
        }
}

static void test_flat(void **state) {
    (void)state;
    skip_without_gpu();
    static const int dims[] = {7, 384};
    for (size_t d = 0; d < ARRAY_COUNT(dims); d++) {
        float *v = make_vectors(20000, dims[d], 100), *queries = make_vectors(64, dims[d], 0);
        compare_batches(&(struct index_source){"Flat", v, NULL, 20000, 0, dims[d]}, queries,
                        COMPARED_BUT_NEAR_TIES);
        free(v);
        free(queries);
    }
}

/* 16 of 64 lists are visited; the last of k may lie in a list that one of two equally near centres
 * stands for. */
static void test_ivf(void **state) {
    (void)state;
    skip_without_gpu();
    static const int dims[] = {8, 384};
    for (size_t d = 0; d < ARRAY_COUNT(dims); d++) {
        float *v = make_vectors(20000, dims[d], 64), *queries = make_vectors(64, dims[d], 0);
        compare_batches(&(struct index_source){"IVF64,Flat", v, v, 20000, 64, dims[d]}, queries,
                        COMPARED_BUT_NEAR_TIES);
        free(v);
        free(queries);
    }
}

static void test_threads(void **state) {
    (void)state;
    skip_without_gpu();
    float *v = make_vectors(3000, 24, 30);
    struct index *x = make_gpu_index(&(struct index_source){"IVF32,Flat", v, v, 3000, 32, 24});
    check_threads(x, v);
    index_close(x);
    free(v);
}

static void test_vectors(void **state) {
    (void)state;
    skip_without_gpu();
    enum { COUNT = 100, DIM = 5 };
    float *v = make_vectors(COUNT, DIM, 0), back[7 * DIM];
    struct error e = {0};
    struct index *x = make_gpu_index(&(struct index_source){"Flat", v, NULL, COUNT, 0, DIM});
    assert_int_equal(index_vectors(x, 90, 7, back, &e), STATUS_OK);
    assert_memory_equal(back, v + 90 * DIM, sizeof back);
    assert_int_equal(index_vectors(x, 98, 7, back, &e), STATUS_INVALID);
    index_close(x);
    x = make_gpu_index(&(struct index_source){"IVF4,Flat", v, v, COUNT, 4, DIM});
    assert_int_equal(index_vectors(x, 0, 7, back, &e), STATUS_UNSUPPORTED);
    index_close(x);
    free(v);
}

/* Known before any GPU is asked for. */
static void test_kinds_that_stay(void **state) {
    (void)state;
    if (available == STATUS_UNSUPPORTED) skip_without_gpu();
    static const char *const factories[] = {"SQ8", "HNSW16", "IVF16,SQ8", "IVF16,PQ4np",
                                            "IVF16_HNSW8,Flat"};
    struct error e = {0};
    float *v = make_vectors(1000, 16, 0);
    for (size_t i = 0; i < ARRAY_COUNT(factories); i++) {
        struct index *x = make_index(&(struct index_source){factories[i], v, NULL, 1000, 0, 16});
        assert_int_equal(index_move(x, device, &e), STATUS_UNSUPPORTED);
        assert_non_null(strstr(e.text, "IVF<lists>,Flat"));
        index_close(x);
    }
    free(v);
}

/* After a refusal the index is still where it was. */
static void test_no_such_gpu(void **state) {
    (void)state;
    struct error e = {0};
    int64_t id;
    float *v = make_vectors(10, 4, 0), similarity;
    struct index *x = NULL;
    if (index_make_faiss(&x, &(struct index_source){"Flat", v, NULL, 10, 0, 4}, &e)) {
        assert_non_null(strstr(e.text, "make deps"));
        free(v);
        return;
    }
    enum status status = index_move(x, "cuda:999", &e);
    assert_true(status == STATUS_DEVICE || status == STATUS_UNSUPPORTED);
    assert_non_null(strstr(
        e.text, status == STATUS_DEVICE ? "no such CUDA device" : "make deps CUDA=1 && make"));
    assert_int_equal(index_search(x, (struct index_query){.vectors = v + 4 * 3, .n = 1, .k = 1},
                                  &id, &similarity, &e),
                     STATUS_OK);
    assert_int_equal(id, 3);
    index_close(x);
    free(v);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_exactly), cmocka_unit_test(test_flat),
        cmocka_unit_test(test_ivf),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_kinds_that_stay),
        cmocka_unit_test(test_no_such_gpu),
    };
    if (argc > 1) device = argv[1];
    required = argc > 1;
    ask_for_gpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
