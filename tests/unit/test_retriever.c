/* tests/unit/test_retriever.c: texts to neighbours with a toy embedder, whose vector of a text is an axis: its first
 * letter's. */
#include <math.h>
#include <string.h>

#include "retrieval/retriever.h"
#include "tests/folder.h"

enum { DIM = 26, CHUNK = 2, EOD = 50, R = 4, MAX_K = 3 };

struct toy {
    int calls, texts;
    bool fails;
};

/* "a" is axis 0, "b" axis 1; "ab" lies between them. */
static enum status toy_embed(void *self, const struct text_span *texts, int n, float *vectors, struct error *e) {
    struct toy *toy = self;
    toy->calls++;
    toy->texts += n;
    if (toy->fails) return error_set(e, STATUS_DEVICE, "the toy is broken");
    for (int i = 0; i < n; i++) {
        float *v = vectors + i * DIM;
        memset(v, 0, DIM * sizeof *v);
        for (size_t j = 0; j < texts[i].size; j++) v[texts[i].text[j] - 'a'] = 1 / sqrtf((float)texts[i].size);
    }
    return STATUS_OK;
}

static struct toy toy;
static struct embedder embedder = {.dim = DIM, .hash = 5, .name = "toy", .embed = toy_embed, .self = &toy};
static char dir[FOLDER_SIZE];
static struct collection *collection;
static struct retriever *retriever;

static struct text_span span(const char *s) { return (struct text_span){s, strlen(s)}; }

static void add(struct collection_builder *b, const char *path, const char *const *chunks, int n, int first_id) {
    int32_t ids[16];
    uint32_t starts[17];
    int n_chunks;
    for (int i = 0; i <= CHUNK * n; i++) {
        if (i < CHUNK * n) ids[i] = first_id + i;
        starts[i] = (uint32_t)i;
    }
    assert_int_equal(
        collection_add_document(b, &(struct collection_document){path, "", ids, starts, CHUNK * n}, &n_chunks, NULL),
        STATUS_OK);
    assert_int_equal(n_chunks, n);
    for (int i = 0; i < n; i++) {
        float vector[DIM];
        struct text_span text = span(chunks[i]);
        toy_embed(&toy, &text, 1, vector, NULL);
        assert_int_equal(collection_add_vectors(b, vector, 1, NULL), STATUS_OK);
    }
}

static int setup(void **state) {
    (void)state;
    static const char *const first[] = {"a", "b", "ab"}, *const second[] = {"c"};
    struct collection_options o = {.chunk_length = CHUNK,
                                   .eod = EOD,
                                   .dim = DIM,
                                   .embedder_hash = 5,
                                   .tokenizer_hash = 6,
                                   .embedder = "toy",
                                   .tokenizer = "toy"};
    struct collection_builder *b;
    struct error e = {0};
    folder_make(dir);
    if (collection_create(&b, dir, &o, &e)) return 1;
    add(b, "first", first, 3, 10);
    add(b, "second", second, 1, 30);
    if (collection_commit(b, &e) || collection_open(&collection, dir, &e)) return 1;
    toy = (struct toy){0};
    return retriever_open(&retriever, collection, &embedder, R, MAX_K, &e) != STATUS_OK;
}

static int teardown(void **state) {
    (void)state;
    retriever_close(retriever);
    collection_close(collection);
    folder_remove(dir);
    return 0;
}

static void test_batch(void **state) {
    (void)state;
    struct retriever_query queries[] = {{.text = span("a"), .k = 2, .min_similarity = -1},
                                        {.text = span("c"), .k = 1, .min_similarity = -1},
                                        {.text = span("b"), .k = 100, .min_similarity = 0.1F}};
    struct retriever_result results[3];
    struct error e = {0};
    assert_int_equal(retriever_search(retriever, queries, 3, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 1);
    assert_int_equal(toy.texts, 3);
    assert_int_equal(results[0].k, 2);
    assert_int_equal(results[0].chunks[0].id, 0);
    assert_int_equal(results[0].chunks[1].id, 2);
    assert_true(results[0].similarities[0] > 0.999F);
    assert_true(fabsf(results[0].similarities[1] - sqrtf(0.5F)) < 1e-5F);
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15, EOD, EOD};
    assert_memory_equal(results[0].ids, ids, sizeof ids);
    assert_int_equal(results[1].k, 1);
    assert_string_equal(results[1].chunks[0].path, "second");
    static const int32_t second_ids[] = {30, 31, EOD, EOD};
    assert_memory_equal(results[1].ids, second_ids, sizeof second_ids);
    /* k is capped at three, the floor leaves two. */
    assert_int_equal(results[2].k, 2);
    assert_int_equal(results[2].chunks[0].id, 1);
    assert_int_equal(results[2].chunks[1].id, 2);
    for (int i = 0; i < 3; i++) retriever_result_free(&results[i]);
    assert_null(results[0].ids);
}

/* Who is gone is not embedded, as far as pieces of texts allow; the others find what they find alone. */
static void test_nobody_waits(void **state) {
    (void)state;
    enum { QUERIES = 40 };
    struct retriever_query queries[QUERIES];
    struct retriever_result results[QUERIES];
    struct error e;
    atomic_bool gone = true, there = false;
    for (int i = 0; i < QUERIES; i++)
        queries[i] = (struct retriever_query){.text = span("a"), .k = 1, .min_similarity = -1, .cancelled = &gone};
    toy = (struct toy){0};
    assert_int_equal(retriever_search(retriever, queries, QUERIES, results, &e), STATUS_CANCELLED);
    assert_int_equal(toy.texts, 0);

    queries[QUERIES - 1].cancelled = &there;
    assert_int_equal(retriever_search(retriever, queries, QUERIES, results, &e), STATUS_OK);
    assert_in_range(toy.texts, 1, 8);
    assert_int_equal(results[QUERIES - 1].k, 1);
    for (int i = 0; i < QUERIES; i++) retriever_result_free(&results[i]);
}

static void test_limits(void **state) {
    (void)state;
    struct error e = {0};
    struct retriever_result results[2];
    struct retriever_query all = {.text = span("a"), .k = 1000, .min_similarity = -1},
                           floor = {.text = span("d"), .k = 3, .min_similarity = 0.5F},
                           none = {.text = span("a"), .k = 0, .min_similarity = -1};
    assert_int_equal(retriever_search(retriever, &all, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].k, MAX_K);
    retriever_result_free(&results[0]);
    assert_int_equal(retriever_search(retriever, &floor, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].k, 0);
    retriever_result_free(&results[0]);
    toy.calls = 0;
    assert_int_equal(retriever_search(retriever, &none, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].k, 0);
    assert_int_equal(retriever_search(retriever, &all, 0, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 0);
    none.k = -4;
    struct retriever_query mixed[] = {none, all};
    assert_int_equal(retriever_search(retriever, mixed, 2, results, &e), STATUS_OK);
    assert_int_equal(results[0].k, 0);
    assert_int_equal(results[1].k, MAX_K);
    retriever_result_free(&results[1]);
}

static void test_errors(void **state) {
    (void)state;
    struct error e = {0};
    struct retriever *t;
    struct retriever_result result;
    struct retriever_query query = {.text = span("a"), .k = 1, .min_similarity = -1};
    toy.fails = true;
    assert_int_equal(retriever_search(retriever, &query, 1, &result, &e), STATUS_DEVICE);
    assert_string_equal(e.text, "the toy is broken");
    retriever_result_free(&result);
    struct embedder other = embedder;
    other.hash = 7;
    assert_int_equal(retriever_open(&t, collection, &other, R, MAX_K, &e), STATUS_INVALID);
    other = embedder;
    other.dim = 4;
    assert_int_equal(retriever_open(&t, collection, &other, R, MAX_K, &e), STATUS_INVALID);
    assert_int_equal(retriever_open(&t, collection, &embedder, 0, MAX_K, &e), STATUS_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_nobody_waits, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_errors, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
