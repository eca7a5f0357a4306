/* tests/unit/test_sparse.c: sparse weights of chunks: their file against what it was made of, files
 * that are damaged, and searches of a collection that changes against every chunk's score. */
#include <string.h>

#include "retrieval/generation/generation_private.h"
#include "retrieval/store/store.h"
#include "tests/documents.h"
#include "tests/folder.h"

enum { CHUNKS = 300, DOCUMENTS = IDS, K = 9 };

static uint32_t seed = 7;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525U + 1013904223U;
    return (seed >> 8) % below;
}

/* The file. */

static enum status take_bytes(void *context, const void *bytes, size_t size, struct error *e) {
    (void)e;
    buffer_append(context, bytes, size);
    return STATUS_OK;
}

/* The weights of CHUNKS made rows, as a file. */
static void write_file(struct buffer *out, int64_t piece) {
    struct sparse_weight list[SPARSE_MOST];
    struct error e;
    uint64_t ends[CHUNKS], n = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        int more = make_sparse_row(list, i);
        buffer_append(out, list, (size_t)more * sizeof *list);
        ends[i] = n += (uint64_t)more;
    }
    struct buffer weights = {0};
    buffer_append(&weights, out->data, out->size);
    const struct sparse_forward forward = {(const void *)weights.data, ends, CHUNKS};
    assert_int_equal(sparse_index_write(&forward, piece, take_bytes, out, &e), STATUS_OK);
    buffer_free(&weights);
}

static void test_file(void **state) {
    (void)state;
    struct buffer whole = {0}, pieces = {0};
    struct sparse_index *index;
    struct error e;
    write_file(&whole, SPARSE_PIECE);
    write_file(&pieces, 7);
    assert_int_equal(whole.size, pieces.size);
    assert_memory_equal(whole.data, pieces.data, whole.size);
    assert_int_equal(
        sparse_index_open(&index, (struct text_span){whole.data, whole.size}, CHUNKS, "file", &e),
        STATUS_OK);
    assert_int_equal(sparse_index_check(index, &e), STATUS_OK);

    int64_t n_postings = 0;
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct sparse_weight list[SPARSE_MOST];
        struct sparse_row row;
        int n = make_sparse_row(list, i);
        assert_int_equal(sparse_index_row(index, i, &row, &e), STATUS_OK);
        assert_int_equal(row.n, n);
        if (n > 0) assert_memory_equal(row.list, list, (size_t)n * sizeof *list);
    }
    for (uint32_t id = 0; id <= SPARSE_IDS; id++) {
        struct sparse_cursor cursor;
        sparse_cursor_open(&cursor, index, id);
        for (; cursor.chunk != SPARSE_END; sparse_cursor_next(&cursor)) n_postings++;
        assert_null(cursor.damage);
    }
    assert_int_equal(n_postings, sparse_index_weights(index));
    assert_true(n_postings > CHUNKS);
    sparse_index_free(index);
    buffer_free(&whole);
    buffer_free(&pieces);
}

static void test_nothing_weighs(void **state) {
    (void)state;
    struct buffer bytes = {0};
    struct sparse_index *index;
    struct sparse_row row;
    struct error e;
    const uint64_t ends[2] = {0, 0};
    const struct sparse_forward forward = {NULL, ends, 2};
    assert_int_equal(sparse_index_write(&forward, SPARSE_PIECE, take_bytes, &bytes, &e), STATUS_OK);
    assert_int_equal(
        sparse_index_open(&index, (struct text_span){bytes.data, bytes.size}, 2, "file", &e),
        STATUS_OK);
    assert_int_equal(sparse_index_check(index, &e), STATUS_OK);
    assert_int_equal(sparse_index_row(index, 1, &row, &e), STATUS_OK);
    assert_int_equal(row.n, 0);
    sparse_index_free(index);
    buffer_free(&bytes);
}

static enum status open_and_check(struct text_span bytes, struct error *e) {
    struct sparse_index *index;
    enum status status = sparse_index_open(&index, bytes, CHUNKS, "file", e);
    if (status) return status;
    status = sparse_index_check(index, e);
    sparse_index_free(index);
    return status;
}

/* Every byte matters: a file with another byte is refused, or checked as damaged; and so is one
 * that is cut off. */
static void test_damage(void **state) {
    (void)state;
    struct buffer bytes = {0};
    struct error e;
    write_file(&bytes, SPARSE_PIECE);
    for (size_t at = 0; at < bytes.size; at += 1 + draw(3)) {
        char before = bytes.data[at];
        bytes.data[at] ^= (char)(1 << draw(8));
        assert_int_equal(open_and_check((struct text_span){bytes.data, bytes.size}, &e),
                         STATUS_CORRUPT);
        assert_non_null(strstr(e.text, "file: "));
        bytes.data[at] = before;
    }
    for (size_t size = 0; size < bytes.size; size += 8 * (1 + draw(50)))
        assert_int_equal(open_and_check((struct text_span){bytes.data, size}, &e), STATUS_CORRUPT);
    struct sparse_index *index;
    assert_int_equal(sparse_index_open(&index, (struct text_span){bytes.data, bytes.size},
                                       CHUNKS + 1, "file", &e),
                     STATUS_CORRUPT);
    buffer_free(&bytes);
}

/* Collections. */

static void build(int n) {
    const struct collection_options options = {.chunk_length = CHUNK,
                                               .eod = EOD,
                                               .dim = DIM,
                                               .sparse = true,
                                               .embedder = "toy",
                                               .tokenizer = "toy",
                                               .index_factory = INDEX_EXACT};
    struct generation_builder *builder;
    struct error e;
    if (builder_create(&builder, test_folder, &options, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        struct made_document d;
        make_document(&d, i, 1);
        int n_chunks = d.document.n_chunks;
        if (builder_add_document(builder, &d.document, &e) ||
            builder_add_vectors(builder, d.vectors, n_chunks, &e) ||
            builder_add_sparse(builder, &d.document.sparse, n_chunks, &e))
            fail_msg("%s", e.text);
    }
    if (builder_commit(builder, &e)) fail_msg("%s", e.text);
}

static struct collection *open_collection(void) {
    struct collection *collection;
    struct error e;
    if (store_open(&collection, test_folder, &e)) fail_msg("%s", e.text);
    return collection;
}

struct expected {
    float score;
    int64_t chunk;
};

struct expecting {
    const struct snapshot *snapshot;
    const int *versions;
    struct sparse_row query;
    const struct filter *filter;
    struct expected list[DOCUMENTS * (LONGEST / CHUNK + 1)];
    int n;
};

static void expect(struct expecting *expecting, struct expected chunk) {
    expecting->list[expecting->n] = chunk;
    expecting->n++;
}

static enum status expect_document(void *context, const struct stored_document *stored,
                                   struct error *e) {
    struct expecting *expecting = context;
    struct made_document d;
    int id;
    (void)e;
    assert_int_equal(sscanf(stored->id, "id %d", &id), 1);
    make_document(&d, id, expecting->versions[id]);
    if (!document_is_allowed(expecting->filter, stored)) return STATUS_OK;
    for (int i = 0; i < d.document.n_chunks; i++) {
        struct sparse_row row = sparse_table_row(&d.document.sparse, i);
        struct sparse_rows stored_rows = {0};
        struct error why;
        assert_int_equal(
            snapshot_sparse(expecting->snapshot, stored->first_chunk + i, 1, &stored_rows, &why),
            STATUS_OK);
        struct sparse_row there = sparse_rows_row(&stored_rows, 0);
        assert_int_equal(there.n, row.n);
        if (row.n > 0) assert_memory_equal(there.list, row.list, (size_t)row.n * sizeof *row.list);
        sparse_rows_free(&stored_rows);
        float score = sparse_row_multiply(expecting->query, row);
        if (score > 0) expect(expecting, (struct expected){score, stored->first_chunk + i});
    }
    return STATUS_OK;
}

static int compare_expected(const void *left, const void *right) {
    const struct expected *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->chunk > b->chunk) - (a->chunk < b->chunk);
}

/* A search finds the chunks with the best scores of all, in their order. */
static void check_search(struct collection *collection, const int *versions,
                         struct filter *filter) {
    struct sparse_weight list[SPARSE_MOST];
    struct error e;
    struct snapshot *snapshot = collection_hold(collection);
    int n = make_sparse_row(list, 77777 + draw(1000));
    struct expecting expecting = {
        .snapshot = snapshot, .versions = versions, .query = {list, n}, .filter = filter};
    assert_int_equal(store_walk(snapshot, expect_document, &expecting, &e), STATUS_OK);
    if (expecting.n > 0)
        qsort(expecting.list, (size_t)expecting.n, sizeof *expecting.list, compare_expected);

    int64_t ids[K];
    float scores[K];
    const struct sparse_query query = {.weights = {list, n}, .filter = filter, .k = K};
    struct sparse_found found = {ids, scores};
    assert_int_equal(store_search_sparse(snapshot, &query, &found, &e), STATUS_OK);
    for (int i = 0; i < K; i++) {
        if (i >= expecting.n) {
            assert_int_equal(ids[i], FOUND_NONE);
            continue;
        }
        assert_int_equal(ids[i], expecting.list[i].chunk);
        assert_memory_equal(&scores[i], &expecting.list[i].score, sizeof scores[i]);
    }
    snapshot_release(snapshot);
}

static struct filter *make_filter(void) {
    struct filter *filter;
    struct error e;
    if (filter_parse(&filter, "{\"eq\": {\"version\": 1}}", "filter", &e)) fail_msg("%s", e.text);
    return filter;
}

/* Changes, deletions, compactions and restarts at random. */
static void test_changes(void **state) {
    (void)state;
    int versions[DOCUMENTS];
    struct error e;
    for (int i = 0; i < DOCUMENTS; i++) versions[i] = i < DOCUMENTS / 2;
    build(DOCUMENTS / 2);
    struct collection *collection = open_collection();
    struct filter *filter = make_filter();
    for (int step = 0; step < 120; step++) {
        struct made_document d;
        enum change_effect effect;
        int id = (int)draw(DOCUMENTS);
        make_document(&d, id, (int)(1 + draw(4)));
        if (draw(4) == 0) {
            enum status status = collection_delete(collection, NULL, d.id, &e);
            assert_int_equal(status, versions[id] ? STATUS_OK : STATUS_NOT_FOUND);
            versions[id] = 0;
        } else {
            versions[id] = (int)(1 + draw(4));
            make_document(&d, id, versions[id]);
            if (collection_put(collection, NULL, &d.document, d.vectors, &effect, &e))
                fail_msg("%s", e.text);
        }
        check_search(collection, versions, NULL);
        check_search(collection, versions, filter);
        if (step % 29 == 28 && collection_compact(collection, NULL, &e)) fail_msg("%s", e.text);
        if (step % 17 == 16) {
            collection_close(collection);
            assert_int_equal(disk_generation_verify(test_folder, &e), STATUS_OK);
            collection = open_collection();
        }
        check_search(collection, versions, NULL);
    }
    filter_release(filter);
    collection_close(collection);
}

/* A snapshot keeps what it holds, and a deletion takes it from all. */
static void test_snapshots(void **state) {
    (void)state;
    struct made_document d;
    struct error e;
    enum change_effect effect;
    build(3);
    struct collection *collection = open_collection();
    struct snapshot *before = collection_hold(collection);
    struct sparse_weight list[SPARSE_MOST];
    int64_t ids[K], later[K];
    float scores[K];
    int n = make_sparse_row(list, 4711);
    const struct sparse_query query = {.weights = {list, n}, .k = K};
    struct sparse_found found = {ids, scores}, found_later = {later, scores};
    assert_int_equal(store_search_sparse(before, &query, &found, &e), STATUS_OK);
    assert_true(ids[0] >= 0);

    make_document(&d, 1, 2);
    assert_int_equal(collection_put(collection, NULL, &d.document, d.vectors, &effect, &e),
                     STATUS_OK);
    assert_int_equal(store_search_sparse(before, &query, &found_later, &e), STATUS_OK);
    assert_memory_equal(ids, later, sizeof ids);
    for (int i = 0; i < 3; i++) {
        make_document(&d, i, 1);
        assert_int_equal(collection_delete(collection, NULL, d.id, &e), STATUS_OK);
    }
    assert_int_equal(store_search_sparse(before, &query, &found_later, &e), STATUS_OK);
    struct snapshot *after = collection_hold(collection);
    assert_int_equal(store_search_sparse(after, &query, &found_later, &e), STATUS_OK);
    assert_int_equal(later[0], FOUND_NONE);
    snapshot_release(after);
    snapshot_release(before);
    collection_close(collection);
}

/* Documents without weights, or with wrong ones. */
static void test_refusals(void **state) {
    (void)state;
    struct made_document d;
    struct error e;
    enum change_effect effect;
    build(3);
    struct collection *collection = open_collection();
    make_document(&d, 5, 1);
    d.document.sparse = (struct sparse_table){0};
    assert_int_equal(collection_put(collection, NULL, &d.document, d.vectors, &effect, &e),
                     STATUS_INVALID);
    assert_non_null(strstr(e.text, "it has no sparse weights"));

    static const struct sparse_weight wrong[] = {
        {SPARSE_MAX_ID + 1, 1}, {3, NAN}, {3, INFINITY}, {3, 0}, {3, -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        make_document(&d, 5, 1);
        for (int j = 0; j < d.document.n_chunks; j++) d.sparse_ends[j] = 1;
        d.weights[0] = wrong[i];
        assert_int_equal(collection_put(collection, NULL, &d.document, d.vectors, &effect, &e),
                         STATUS_INVALID);
        assert_non_null(strstr(e.text, "sparse weight"));
    }
    make_document(&d, 5, 1);
    for (int j = 0; j < d.document.n_chunks; j++) d.sparse_ends[j] = 2;
    d.weights[0] = d.weights[1] = (struct sparse_weight){3, 1};
    assert_int_equal(collection_put(collection, NULL, &d.document, d.vectors, &effect, &e),
                     STATUS_INVALID);
    assert_non_null(strstr(e.text, "do not rise"));
    collection_close(collection);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_nothing_weighs),
        cmocka_unit_test(test_damage),
        cmocka_unit_test_setup_teardown(test_changes, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_snapshots, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, folder_set_up, folder_tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
