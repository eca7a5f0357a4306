/* tests/unit/test_faiss_file.c: FAISS files of every kind that retro-index makes are read; forged
 * ones are refused or harmless, wherever they differ; other kinds are refused by name. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/base/buffer.h"
#include "tests/unit/indexes.h"

#if HAVE_FAISS

enum { COUNT = 33, D = 4, K = 5 };

static const char *const kinds[] = {"Flat",
                                    "SQ8",
                                    "SQ6",
                                    "SQ4",
                                    "SQfp16",
                                    "PQ2x4np",
                                    "HNSW4",
                                    "HNSW4_SQ8",
                                    "IVF2,Flat",
                                    "IVF2,SQ8",
                                    "IVF2,PQ2x4np",
                                    "IVF2,PQ2x5np",
                                    "IVF9,Flat",
                                    "IVF2_HNSW4,Flat",
                                    "RR2,Flat",
                                    "Flat,RFlat",
                                    "IVF2,PQ2x4np,RFlat"};

static char path[32]; /* of a file in memory */

static void build(const char *factory) {
    struct error e = {0};
    float *v = make_vectors(COUNT, D, 0);
    if (index_build_faiss(path, factory, v, COUNT, D, &e)) fail_msg("%s: %s", factory, e.text);
    free(v);
}

static void write_file(const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_true(f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

/* Whatever opens can be searched and read; true when it opened. */
static bool use(void) {
    struct index *x;
    struct error e = {0};
    float *queries = make_vectors(3, D, 0), vectors[COUNT * D], similarities[3 * K];
    int64_t ids[3 * K];
    bool opened = index_open_faiss(&x, path, COUNT, D, &e) == STATUS_OK;
    if (opened) {
        if (index_search(x, (struct index_query){.vectors = queries, .n = 3, .k = K}, ids,
                         similarities, &e) == STATUS_OK)
            for (int i = 0; i < 3 * K; i++) assert_in_range(ids[i] + 1, 0, COUNT);
        (void)index_vectors(x, 0, COUNT, vectors, &e); /* of some kinds FAISS gives none back */
        index_close(x);
    } else {
        assert_true(e.status != STATUS_OK && e.text[0] != '\0');
    }
    free(queries);
    return opened;
}

static void test_kinds_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        build(kinds[i]);
        if (!use()) fail_msg("%s is not read", kinds[i]);
    }
}

/* A learned rotation needs more vectors. */
static void test_opq_is_read(void **state) {
    (void)state;
    enum { MANY = 300 };
    struct index *x = NULL;
    struct error e = {0};
    float *v = make_vectors(MANY, D, 0), similarities[K];
    int64_t ids[K];
    if (index_build_faiss(path, "OPQ2,IVF2,PQ2np", v, MANY, D, &e) ||
        index_open_faiss(&x, path, MANY, D, &e) ||
        index_search(x, (struct index_query){.vectors = v, .n = 1, .k = K}, ids, similarities, &e))
        fail_msg("%s", e.text);
    assert_in_range(ids[0], 0, MANY - 1);
    index_close(x);
    free(v);
}

static void test_other_kinds_are_refused(void **state) {
    (void)state;
    static const char *const others[] = {"LSH", "PQ2x4fs", "IVF2,PQ2x4fs", "L2norm,Flat"};
    float *v = make_vectors(COUNT, D, 0);
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        struct error e = {0};
        if (index_build_faiss(path, others[i], v, COUNT, D, &e) == STATUS_OK)
            fail_msg("%s is built", others[i]);
    }
    struct error e = {0};
    assert_int_equal(index_build_faiss(path, "PQ2x4fs", v, COUNT, D, &e), STATUS_UNSUPPORTED);
    if (strstr(e.text, "\"IPfs\"") == NULL || strstr(e.text, "HNSW") == NULL)
        fail_msg("%s", e.text);
    free(v);
}

/* Tries values that a forger may put in the place of a byte. */
static void forge_byte(struct buffer *b, size_t at, int *opened, int *refused) {
    uint8_t before = (uint8_t)b->data[at];
    const uint8_t values[] = {before ^ 1, before ^ 8, before ^ 128, before ^ 0xff,
                              (uint8_t)(before + 1)};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        b->data[at] = (char)values[i];
        write_file(b->data, b->size);
        ++*(use() ? opened : refused);
    }
    b->data[at] = (char)before;
}

/* A number of 4 or 8 bytes that is as large as can be, or a little more or less than it was. */
static void forge_numbers(struct buffer *b, int *opened, int *refused) {
    static const int64_t values[] = {-1, INT64_MIN, INT64_MAX, INT32_MAX, 1 << 20};
    for (size_t at = 0; at + 8 <= b->size; at += 4)
        for (size_t i = 0; i < 2 * ARRAY_COUNT(values); i++) {
            char before[8];
            size_t size = i % 2 ? 4 : 8;
            memcpy(before, b->data + at, sizeof before);
            memcpy(b->data + at, &values[i / 2], size);
            write_file(b->data, b->size);
            ++*(use() ? opened : refused);
            memcpy(b->data + at, before, sizeof before);
        }
}

static void test_forged(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        struct buffer b = {0};
        struct error e = {0};
        int opened = 0, refused = 0;
        build(kinds[i]);
        if (file_read(path, 1 << 20, &b, &e)) fail_msg("%s", e.text);
        for (size_t at = 0; at < b.size; at++) forge_byte(&b, at, &opened, &refused);
        forge_numbers(&b, &opened, &refused);
        for (size_t size = 0; size < b.size; size++) {
            write_file(b.data, size);
            assert_false(use());
        }
        print_message("%-20s %5zu bytes: %6d opened, %6d refused\n", kinds[i], b.size, opened,
                      refused);
        assert_true(opened > 0 && refused > 0);
        write_file(b.data, b.size);
        assert_true(use());
        buffer_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_are_read), cmocka_unit_test(test_opq_is_read),
        cmocka_unit_test(test_other_kinds_are_refused), cmocka_unit_test(test_forged)};
    int fd = memfd_create("index", 0);
    if (fd < 0) return 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    index_set_threads(1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(fd);
    return failed;
}

#else

int main(void) { return 0; }

#endif
