/* tests/unit/test_store_gone.c: documents that went from a collection, as those are told who keep
 * something of them (collection_list_gone). */
#include <string.h>

#include "tests/made_collection.h"

enum { REMEMBERED = 4096 };

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
    made_collection_build(4);
    struct collection *own = made_collection_open(), *other = made_collection_open();
    assert_int_equal(list_gone(own, &at), 0);
    made_collection_put(own, 5, 1);
    made_collection_put(own, 5, 1); /* the same content again */
    assert_int_equal(list_gone(own, &at), 0);
    made_collection_put(own, 0, 2);
    made_collection_delete(own, 1);
    made_collection_put(own, 1, 1);
    assert_int_equal(list_gone(own, &at), 1 << 0 | 1 << 1);
    assert_int_equal(list_gone(own, &at), 0);
    made_collection_put(other, 2, 2);
    made_collection_delete(other, 5);
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
    made_collection_build(4);
    struct collection *own = made_collection_open(), *other = made_collection_open();
    made_collection_delete(own, 3);
    made_collection_put(own, 3, 1);
    assert_int_equal(collection_compact(own, NULL, &e), STATUS_OK);
    assert_int_equal(list_gone(own, &at), 1 << 3);
    made_collection_put(own, 0, 3);
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
    made_collection_build(4);
    struct collection *own = made_collection_open();
    for (int i = 0; i < REMEMBERED; i++) made_collection_put(own, 0, 2 + i % 2);
    assert_int_equal(list_gone(own, &often), 1 << 0);
    made_collection_put(own, 1, 2);
    assert_int_equal(list_gone(own, &often), 1 << 1);
    assert_int_equal(list_gone(own, &late), -1);
    made_collection_put(own, 2, 2);
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
