/* tests/unit/test_store_gone.c: documents that went from a collection, as those are told who keep
 * something of them (collection_list_gone). */
#include <string.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store.h"
#include "tests/documents.h"
#include "tests/folder.h"

enum { REMEMBERED = 4096 };

static struct collection *open_store(void) {
    struct collection *collection;
    struct error e;
    if (store_open(&collection, test_folder, &e)) fail_msg("%s", e.text);
    return collection;
}

/* A collection of documents 0 to n - 1 in their version 1. */
static void build(int n) {
    struct collection_options options = {.chunk_length = CHUNK,
                                         .eod = EOD,
                                         .dim = DIM,
                                         .embedder = "toy",
                                         .tokenizer = "toy",
                                         .index_factory = INDEX_EXACT};
    struct generation_builder *builder;
    struct error e;
    if (builder_create(&builder, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        struct made_document made;
        make_document(&made, i, 1);
        if (builder_add_document(builder, &made.document, &e) ||
            builder_add_vectors(builder, made.vectors,
                                document_count_chunks(made.document.n, CHUNK), &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(builder, &e)) fail_msg("%s", e.text);
}

static void put(struct collection *collection, int id, int version) {
    struct made_document made;
    struct error e;
    enum change_effect effect;
    make_document(&made, id, version);
    assert_int_equal(collection_put(collection, NULL, &made.document, made.vectors, &effect, &e),
                     STATUS_OK);
}

static void delete_document(struct collection *collection, int id) {
    struct error e;
    char name[16];
    snprintf(name, sizeof name, "id %d", id);
    assert_int_equal(collection_delete(collection, NULL, name, &e), STATUS_OK);
}

/* Those of the ids 0 to 9 that are told to have gone since then, as bits; -1: nobody knows. */
static int list_gone(struct collection *collection, int64_t *position) {
    struct buffer ids = {0};
    bool known = collection_list_gone(collection, position, &ids);
    const uint64_t *list = (const uint64_t *)(const void *)ids.data;
    int gone = 0;
    for (size_t i = 0; i < ids.size / sizeof *list; i++)
        for (int id = 0; id < 10; id++) {
            char name[16];
            snprintf(name, sizeof name, "id %d", id);
            gone |= (list[i] == collection_hash_id(name)) << id;
        }
    buffer_free(&ids);
    return known ? gone : -1;
}

/* Each document that went is told of once, whether it came back or not. */
static void test_changes_of_all_programs(void **state) {
    int64_t at = 0;
    (void)state;
    build(4);
    struct collection *own = open_store(), *other = open_store();
    assert_int_equal(list_gone(own, &at), 0);
    put(own, 5, 1);
    put(own, 5, 1); /* the same content again */
    assert_int_equal(list_gone(own, &at), 0);
    put(own, 0, 2);
    delete_document(own, 1);
    put(own, 1, 1);
    assert_int_equal(list_gone(own, &at), 1 << 0 | 1 << 1);
    assert_int_equal(list_gone(own, &at), 0);
    put(other, 2, 2);
    delete_document(other, 5);
    assert_int_equal(list_gone(own, &at), 1 << 2 | 1 << 5);
    collection_close(own);
    collection_close(other);
}

/* A compaction of this program takes nothing away, and hides nothing that went before it. One of
 * another program may. */
static void test_compactions(void **state) {
    struct error e;
    int64_t at = 0;
    (void)state;
    build(4);
    struct collection *own = open_store(), *other = open_store();
    delete_document(own, 3);
    put(own, 3, 1);
    assert_int_equal(collection_compact(own, NULL, &e), STATUS_OK);
    assert_int_equal(list_gone(own, &at), 1 << 3);
    put(own, 0, 3);
    assert_int_equal(list_gone(own, &at), 1 << 0);
    assert_int_equal(collection_compact(other, NULL, &e), STATUS_OK);
    assert_int_equal(collection_follow(own, &e), STATUS_OK);
    assert_int_equal(list_gone(own, &at), -1);
    assert_int_equal(list_gone(own, &at), 0);
    collection_close(own);
    collection_close(other);
}

static void test_more_than_are_remembered(void **state) {
    int64_t often = 0, late = 0;
    (void)state;
    build(4);
    struct collection *own = open_store();
    for (int i = 0; i < REMEMBERED; i++) put(own, 0, 2 + i % 2);
    assert_int_equal(list_gone(own, &often), 1 << 0);
    put(own, 1, 2);
    assert_int_equal(list_gone(own, &often), 1 << 1);
    assert_int_equal(list_gone(own, &late), -1);
    put(own, 2, 2);
    assert_int_equal(list_gone(own, &late), 1 << 2);
    collection_close(own);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(test_changes_of_all_programs),
                                       IN_FOLDER(test_compactions),
                                       IN_FOLDER(test_more_than_are_remembered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
