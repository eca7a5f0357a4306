/* tests/unit/test_document_watch.c: keys of documents whose text was read, and which of them have
 * gone (server/blocks/document_watch.h). */
#include <stdlib.h>
#include <string.h>

#include "server/blocks/document_watch.h"
#include "tests/made_collection.h"

enum { N = 3 };

struct fixture {
    struct collection *collection;
    struct document_watch *watch;
    struct buffer gone;
};

static void fixture_open(struct fixture *f) {
    made_collection_build(N);
    *f = (struct fixture){.collection = made_collection_open()};
    f->watch = document_watch_open(f->collection);
}

static void fixture_close(struct fixture *f) {
    document_watch_close(f->watch);
    collection_close(f->collection);
    buffer_free(&f->gone);
}

/* The key of a hit from byte `start` on of a document as it was made. */
static uint64_t read_made(struct fixture *f, int id, int version, uint64_t start, bool *there) {
    struct made_document made;
    make_document(&made, id, version);
    const struct hit hit = {.document = made.id,
                            .path = made.path,
                            .title = "a title",
                            .start = start,
                            .end = made.document.text.size,
                            .source = made.document.text};
    return document_watch_hit(f->watch, &hit, there);
}

static uint64_t read_there(struct fixture *f, int id, int version) {
    bool there;
    uint64_t key = read_made(f, id, version, 0, &there);
    assert_true(there);
    assert_true(key > DOCUMENT_UNWATCHED && document_watch_has(f->watch, key));
    return key;
}

/* The only document that has gone since the last look; 0: none has. */
static uint64_t look(struct fixture *f) {
    buffer_clear(&f->gone);
    document_watch_look(f->watch, &f->gone);
    if (f->gone.size == 0) return 0;
    assert_int_equal(f->gone.size, sizeof(uint64_t));
    return *(const uint64_t *)(const void *)f->gone.data;
}

static void test_looks(void **state) {
    struct fixture f;
    (void)state;
    fixture_open(&f);
    assert_false(document_watch_is_needed(f.watch));
    uint64_t first = read_there(&f, 0, 1), second = read_there(&f, 1, 1);
    assert_true(document_watch_is_needed(f.watch));
    assert_true(first != second);
    assert_true(read_there(&f, 0, 1) == first);
    assert_true(look(&f) == 0);
    made_collection_put(f.collection, 5, 1);
    assert_true(look(&f) == 0);
    made_collection_delete(f.collection, 0);
    assert_true(look(&f) == first);
    assert_false(document_watch_has(f.watch, first));
    assert_true(look(&f) == 0);

    /* It comes back between two looks, or is read again: another life of the same text. */
    made_collection_put(f.collection, 0, 1);
    assert_true(look(&f) == 0);
    assert_true(read_there(&f, 0, 1) == first);
    made_collection_delete(f.collection, 0);
    made_collection_put(f.collection, 0, 1);
    assert_true(look(&f) == first);
    made_collection_put(f.collection, 1, 2);
    assert_true(look(&f) == second);
    assert_false(document_watch_is_needed(f.watch));
    fixture_close(&f);
}

/* A request that began before the change reads what is gone already. */
static void test_a_hit_of_an_earlier_state(void **state) {
    struct fixture f;
    bool there;
    (void)state;
    fixture_open(&f);
    made_collection_put(f.collection, 0, 2);
    uint64_t old = read_made(&f, 0, 1, 0, &there);
    assert_false(there);
    assert_false(document_watch_has(f.watch, old));
    assert_true(look(&f) == 0);
    assert_true(read_there(&f, 0, 2) != old);
    fixture_close(&f);
}

/* Records of files are compared when the server starts. */
static void test_records(void **state) {
    struct fixture f;
    struct buffer records = {0};
    struct document_part part;
    size_t at = 0;
    (void)state;
    fixture_open(&f);
    uint64_t keys[N];
    for (int i = 0; i < N; i++) {
        keys[i] = read_there(&f, i, 1);
        assert_true(document_watch_print(f.watch, &(struct read_document){keys[i], i}, &records));
    }
    assert_false(document_watch_print(f.watch, &(struct read_document){77, 0}, &records));
    document_watch_close(f.watch);
    made_collection_delete(f.collection, 1);
    made_collection_put(f.collection, 2, 2);

    f.watch = document_watch_open(f.collection);
    const struct text_span all = {records.data, records.size};
    for (int i = 0; i < N; i++) {
        assert_true(block_file_next_document(all, &at, &part));
        assert_int_equal(part.row, i);
        assert_true(document_watch_find(f.watch, &part) == 0);
        assert_true(document_watch_part(f.watch, &part) == keys[i]);
        assert_true(document_watch_find(f.watch, &part) == keys[i]);
    }
    document_watch_compare(f.watch, &f.gone);
    assert_int_equal(f.gone.size, 2 * sizeof(uint64_t));
    for (int i = 0; i < N; i++) assert_true(document_watch_has(f.watch, keys[i]) == (i == 0));
    assert_true(look(&f) == 0);
    buffer_free(&records);
    fixture_close(&f);
}

/* A section that is longer than what is compared of any passage: its last byte counts as well. */
static void test_long_sections(void **state) {
    enum { LONG = 100000 };
    struct fixture f;
    struct made_document made;
    struct error e;
    enum change_effect effect;
    bool there;
    (void)state;
    fixture_open(&f);
    make_document(&made, 0, 1);
    char *text = memset(xmalloc(LONG), 'a', LONG);
    made.document.text = (struct text_span){text, LONG};
    struct hit hit = {.document = made.id,
                      .path = made.path,
                      .title = "a title",
                      .end = 10,
                      .source = made.document.text};
    assert_int_equal(collection_put(f.collection, NULL, &made.document, made.vectors, &effect, &e),
                     STATUS_OK);
    uint64_t passage = document_watch_hit(f.watch, &hit, &there);
    assert_true(there);
    hit.end = LONG;
    uint64_t section = document_watch_hit(f.watch, &hit, &there);
    assert_true(there && section != passage);
    text[LONG - 1] = 'b';
    assert_int_equal(collection_put(f.collection, NULL, &made.document, made.vectors, &effect, &e),
                     STATUS_OK);

    document_watch_compare(f.watch, &f.gone);
    assert_int_equal(f.gone.size, sizeof section);
    assert_memory_equal(f.gone.data, &section, sizeof section);
    assert_true(document_watch_hit(f.watch, &hit, &there) != section && there);
    free(text);
    fixture_close(&f);
}

/* Another program's generation: nobody knows which of them went. */
static void test_another_generation(void **state) {
    struct fixture f;
    struct error e;
    (void)state;
    fixture_open(&f);
    read_there(&f, 0, 1);
    uint64_t second = read_there(&f, 1, 1);
    struct collection *other = made_collection_open();
    made_collection_put(other, 1, 3);
    assert_int_equal(collection_compact(other, NULL, &e), STATUS_OK);
    assert_int_equal(collection_follow(f.collection, &e), STATUS_OK);
    assert_true(look(&f) == second);
    assert_true(document_watch_is_needed(f.watch));
    collection_close(other);
    fixture_close(&f);
}

static void test_keys_that_are_not_used(void **state) {
    struct fixture f;
    struct key_set used = {0};
    (void)state;
    fixture_open(&f);
    uint64_t first = read_there(&f, 0, 1), second = read_there(&f, 1, 1);
    key_set_add(&used, second, 0);
    document_watch_keep(f.watch, &used);
    assert_false(document_watch_has(f.watch, first));
    made_collection_delete(f.collection, 0);
    assert_true(look(&f) == 0);
    made_collection_delete(f.collection, 1);
    assert_true(look(&f) == second);
    key_set_free(&used);
    fixture_close(&f);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(test_looks),
                                       IN_FOLDER(test_a_hit_of_an_earlier_state),
                                       IN_FOLDER(test_records),
                                       IN_FOLDER(test_long_sections),
                                       IN_FOLDER(test_another_generation),
                                       IN_FOLDER(test_keys_that_are_not_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
