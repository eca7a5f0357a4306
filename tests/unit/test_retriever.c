/* tests/unit/test_retriever.c: texts to neighbours with a toy embedder, whose vector of a text is an axis: its first
 * letter's. */
#include <math.h>
#include <string.h>

#include "retrieval/retriever_local.h"
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

static struct retriever_query ask(const char *text, int k, float floor) {
    return (struct retriever_query){.text = span(text), .k = k, .r = R, .min_similarity = floor};
}

static void add(struct collection_builder *b, const char *path, const char *const *chunks, int n, int first_id) {
    struct error e = {0};
    int32_t ids[16];
    uint32_t starts[17];
    int n_chunks;
    for (int i = 0; i <= CHUNK * n; i++) {
        if (i < CHUNK * n) ids[i] = first_id + i;
        starts[i] = (uint32_t)i;
    }
    assert_int_equal(collection_add_document(b,
                                             &(struct collection_document){.path = path,
                                                                           .title = "",
                                                                           .text = {"0123456789", (size_t)(CHUNK * n)},
                                                                           .ids = ids,
                                                                           .starts = starts,
                                                                           .n = CHUNK * n},
                                             &n_chunks, &e),
                     STATUS_OK);
    assert_int_equal(n_chunks, n);
    for (int i = 0; i < n; i++) {
        float vector[DIM];
        struct text_span text = span(chunks[i]);
        toy_embed(&toy, &text, 1, vector, &e);
        assert_int_equal(collection_add_vectors(b, vector, 1, &e), STATUS_OK);
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
    return retriever_local_open(&retriever, collection, &embedder, MAX_K, &e) != STATUS_OK;
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
    struct retriever_query queries[] = {ask("a", 2, -1), ask("c", 1, -1), ask("b", 100, 0.1F)};
    struct hits results[3];
    struct error e = {0};
    assert_int_equal(retriever_search(retriever, queries, 3, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 1);
    assert_int_equal(toy.texts, 3);
    assert_int_equal(results[0].n, 2);
    assert_int_equal(results[0].list[0].chunk, 0);
    assert_int_equal(results[0].list[1].chunk, 2);
    assert_true(results[0].list[0].similarity > 0.999F);
    assert_true(fabsf(results[0].list[1].similarity - sqrtf(0.5F)) < 1e-5F);
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15, EOD, EOD};
    assert_memory_equal(results[0].ids, ids, sizeof ids);
    assert_int_equal(results[1].n, 1);
    assert_string_equal(results[1].list[0].path, "second");
    static const int32_t second_ids[] = {30, 31, EOD, EOD};
    assert_memory_equal(results[1].ids, second_ids, sizeof second_ids);
    /* k is capped at three, the floor leaves two. */
    assert_int_equal(results[2].n, 2);
    assert_int_equal(results[2].list[0].chunk, 1);
    assert_int_equal(results[2].list[1].chunk, 2);
    for (int i = 0; i < 3; i++) hits_free(&results[i]);
    assert_null(results[0].ids);
}

static void test_limits(void **state) {
    (void)state;
    struct error e = {0};
    struct hits results[2];
    struct retriever_query all = ask("a", 1000, -1), floor = ask("d", 3, 0.5F), none = ask("a", 0, -1);
    assert_int_equal(retriever_search(retriever, &all, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, MAX_K);
    hits_free(&results[0]);
    assert_int_equal(retriever_search(retriever, &floor, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    hits_free(&results[0]);
    toy.calls = 0;
    assert_int_equal(retriever_search(retriever, &none, 1, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    assert_int_equal(retriever_search(retriever, &all, 0, results, &e), STATUS_OK);
    assert_int_equal(toy.calls, 0);
    none.k = -4;
    struct retriever_query mixed[] = {none, all};
    assert_int_equal(retriever_search(retriever, mixed, 2, results, &e), STATUS_OK);
    assert_int_equal(results[0].n, 0);
    assert_int_equal(results[1].n, MAX_K);
    hits_free(&results[1]);
}

static void test_errors(void **state) {
    (void)state;
    struct error e = {0};
    struct retriever *t;
    struct hits result;
    struct retriever_query query = ask("a", 1, -1);
    toy.fails = true;
    assert_int_equal(retriever_search(retriever, &query, 1, &result, &e), STATUS_DEVICE);
    assert_string_equal(e.text, "the toy is broken");
    hits_free(&result);
    struct embedder other = embedder;
    other.hash = 7;
    assert_int_equal(retriever_local_open(&t, collection, &other, MAX_K, &e), STATUS_INVALID);
    other = embedder;
    other.dim = 4;
    assert_int_equal(retriever_local_open(&t, collection, &other, MAX_K, &e), STATUS_INVALID);
    assert_int_equal(retriever_local_open(&t, collection, &embedder, 0, &e), STATUS_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_batch, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_errors, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
