/* tests/golden/test_forget.c: rows that were computed from the text of a document are gone with it:
 * nobody takes them over, and their bytes are zeros as soon as no session reads them. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session_private.h"
#include "tests/folder.h"

enum {
    KEPT = 12,
    SESSIONS = 4,
    ROWS = 400,
    ROW = 150, /* from which on a document was read */
    LETTERS = 40
};

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
};

static const char ROWS_ALONE[] = "tests/golden/hf/gemma2",
                  WITH_STATES[] = "tests/golden/hf/qwen3_next";

static enum dtype kv_dtype = DTYPE_F16;

static void fixture_open(struct fixture *f, const char *folder, int kept) {
    struct error e = {0};
    struct model_options options = {.convert = true, .dtype = DTYPE_F16};
    struct session_limits limits = {.max_sessions = SESSIONS,
                                    .max_tokens = ROWS,
                                    .max_step_rows = ROWS,
                                    .max_logit_rows = SESSIONS,
                                    .kv_dtype = kv_dtype,
                                    .kept_blocks = kept,
                                    .kept_states = kept};
    *f = (struct fixture){0};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &options, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

static void make_ids(int32_t ids[ROWS], int seed) {
    for (int i = 0; i < ROWS; i++) ids[i] = (i * 7 + i / 40) % LETTERS;
    if (seed > 0) ids[ROW - 1] = (ids[ROW - 1] + seed) % LETTERS;
}

/* A session that has read the whole text, which from ROW on depends on a document; 0: on none. */
static struct session *read_text(struct fixture *f, const int32_t ids[ROWS], uint64_t document) {
    struct error e = {0};
    struct tensor logits;
    struct session *session;
    assert_int_equal(session_open(&session, f->pool, (struct grid){0}, &e), STATUS_OK);
    session_reuse(session, &(struct session_text){.ids = ids, .n = ROWS - 1});
    if (document != 0) session_read_document(session, document, ROW);
    int done = session_length(session);
    struct step_item item = {
        .session = session, .tokens = ids + done, .n_tokens = ROWS - done, .n_logits = 1};
    assert_int_equal(session_step(f->pool, &item, 1, &logits, &e), STATUS_OK);
    return session;
}

/* Blocks of the pool that have any row. */
static int count_written(struct fixture *f, int kept) {
    size_t bytes = session_block_bytes(f->pool, ATTENTION_BLOCK);
    int n = 0, n_blocks = kept + SESSIONS * ((ROWS + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK);
    char *image = malloc(bytes), *zeros = calloc(1, bytes);
    for (int block = 0; block < n_blocks; block++) {
        session_block_get(f->pool, block, ATTENTION_BLOCK, image);
        n += memcmp(image, zeros, bytes) != 0;
    }
    free(image);
    free(zeros);
    return n;
}

/* States of the pool that hold anything. */
static int count_states(const struct fixture *f) {
    const struct state_cache *cache = &f->pool->states;
    int n = 0;
    for (int i = 0; i < cache->n_states; i++) {
        bool holds = false;
        for (int layer = 0; layer < cache->layers; layer++) {
            struct tensor states = cache->states;
            states.data = (float *)states.data + (size_t)layer * states.rows * states.cols;
            const float *values = tensor_rows(states, i, 1).data;
            for (int j = 0; j < states.cols; j++) holds = holds || values[j] != 0;
        }
        n += holds;
    }
    return n;
}

static int count_found(struct fixture *f, const int32_t ids[ROWS]) {
    struct error e = {0};
    struct session *session;
    assert_int_equal(session_open(&session, f->pool, (struct grid){0}, &e), STATUS_OK);
    int rows = session_reuse(session, &(struct session_text){.ids = ids, .n = ROWS - 1});
    session_close(session);
    return rows;
}

/* Rows before the document stay; those behind go, and are overwritten. */
static void test_rows_leave(void **state) {
    const uint64_t gone[] = {4, 5};
    int32_t ids[ROWS], other[ROWS];
    struct fixture f;
    (void)state;
    fixture_open(&f, ROWS_ALONE, KEPT);
    make_ids(ids, 0);
    make_ids(other, 1);
    session_close(read_text(&f, ids, 5));
    session_close(read_text(&f, other, 6));
    assert_int_equal(count_found(&f, ids), ROWS - 1);
    session_pool_forget(f.pool, gone, 2);
    assert_int_equal(count_found(&f, ids), ROW - 1);
    assert_int_equal(count_found(&f, other), ROWS - 1);
    assert_int_equal(count_written(&f, KEPT), 4);

    /* Rows that others have taken over go, too. */
    session_close(read_text(&f, other, 0));
    session_pool_forget(f.pool, &(uint64_t){6}, 1);
    assert_int_equal(count_found(&f, other), ATTENTION_BLOCK);
    assert_int_equal(count_written(&f, KEPT), 1);
    fixture_close(&f);
}

/* A session that reads it goes on, and leaves nothing; so does one that took its rows over. */
static void test_sessions_go_on(void **state) {
    int32_t ids[ROWS];
    struct fixture f;
    (void)state;
    fixture_open(&f, ROWS_ALONE, KEPT);
    make_ids(ids, 0);
    struct session *first = read_text(&f, ids, 5), *second = read_text(&f, ids, 0);
    session_pool_forget(f.pool, &(uint64_t){5}, 1);
    assert_int_equal(count_found(&f, ids), ATTENTION_BLOCK);
    assert_int_equal(session_length(first), ROWS);
    session_close(first);
    assert_true(count_written(&f, KEPT) > 1);
    session_close(second);
    assert_int_equal(count_written(&f, KEPT), 1);
    assert_int_equal(session_pool_blocks(f.pool).used, 0);
    assert_int_equal(session_pool_blocks(f.pool).kept, 1);

    /* The same text without the document is kept as ever. */
    session_close(read_text(&f, ids, 0));
    assert_int_equal(count_found(&f, ids), ROWS - 1);
    fixture_close(&f);
}

/* Rows before the document that a session reads later are found, even if they are computed after
 * the document has gone: what others find does not depend on the moment at which it went. */
static void test_rows_before(void **state) {
    int32_t ids[ROWS];
    struct tensor logits;
    struct error e;
    struct fixture f;
    (void)state;
    fixture_open(&f, ROWS_ALONE, KEPT);
    make_ids(ids, 0);
    for (int begun = 0; begun <= 300; begun += 100) {
        struct session *session;
        assert_int_equal(session_open(&session, f.pool, (struct grid){0}, &e), STATUS_OK);
        session_read_document(session, 5, ROW);
        struct step_item item = {
            .session = session, .tokens = ids, .n_tokens = begun, .n_logits = 1};
        if (begun > 0) assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
        session_pool_forget(f.pool, &(uint64_t){5}, 1);
        assert_true(session_is_found(session, 0) == (begun <= ROW));
        assert_false(session_is_found(session, ROW + 1));
        item.tokens = ids + begun;
        item.n_tokens = ROWS - begun;
        assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
        session_close(session);
        assert_int_equal(count_found(&f, ids), ATTENTION_BLOCK);
        assert_int_equal(count_written(&f, KEPT), 1);
    }
    fixture_close(&f);
}

/* A session that begins anew with other passages: what came before its own text of then is free of
 * the documents of then, and what was written from these is not. */
static void test_beginning_anew(void **state) {
    int32_t ids[ROWS], other[ROWS];
    struct tensor logits;
    struct error e;
    struct fixture f;
    (void)state;
    fixture_open(&f, ROWS_ALONE, KEPT);
    make_ids(ids, 0);
    make_ids(other, 1);
    struct session *session = read_text(&f, ids, 5);
    session_rewind(session, ROW - 1, (struct grid){0});
    session_move_documents(session, 300);
    session_read_document(session, 6, ROW);
    session_reuse(session, &(struct session_text){.ids = other, .n = ROWS - 1});
    int done = session_length(session);
    assert_int_equal(done, ROW - 1);
    struct step_item item = {
        .session = session, .tokens = other + done, .n_tokens = ROWS - done, .n_logits = 1};
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
    session_close(session);
    session_pool_forget(f.pool, &(uint64_t){5}, 1);
    assert_int_equal(count_found(&f, ids), ROW - 1);
    assert_int_equal(count_found(&f, other), 2 * ATTENTION_BLOCK);
    session_pool_forget(f.pool, &(uint64_t){6}, 1);
    assert_int_equal(count_found(&f, other), ATTENTION_BLOCK);
    fixture_close(&f);
}

/* A block that is given up for others is overwritten at once, since nobody knows it afterwards. */
static void test_evicted_rows(void **state) {
    int32_t ids[ROWS], other[ROWS];
    struct fixture f;
    (void)state;
    fixture_open(&f, ROWS_ALONE, 1);
    make_ids(ids, 0);
    make_ids(other, 1);
    session_close(read_text(&f, ids, 5));
    assert_int_equal(count_written(&f, 1), 1);
    fixture_close(&f);

    fixture_open(&f, ROWS_ALONE, 0);
    session_close(read_text(&f, ids, 5));
    assert_int_equal(count_written(&f, 0), 0);
    session_close(read_text(&f, other, 0));
    assert_true(count_written(&f, 0) > 0);
    fixture_close(&f);
}

/* A state sums up all rows before it: it goes with the first of them that read the document. */
static void test_states_leave(void **state) {
    const uint64_t gone[] = {4, 5};
    int32_t ids[ROWS], other[ROWS];
    struct fixture f;
    (void)state;
    fixture_open(&f, WITH_STATES, KEPT);
    make_ids(ids, 0);
    make_ids(other, 1);
    session_close(read_text(&f, ids, 5));
    session_close(read_text(&f, other, 6));
    int rows = count_found(&f, other);
    assert_true(rows >= 3 * ATTENTION_BLOCK);
    assert_int_equal(count_found(&f, ids), rows);
    session_pool_forget(f.pool, gone, 2);
    /* Where the texts part, before either document, a state is kept. */
    assert_int_equal(count_found(&f, ids), ATTENTION_BLOCK);
    assert_int_equal(count_found(&f, other), rows);
    assert_true(count_states(&f) > 1);
    session_pool_forget(f.pool, &(uint64_t){6}, 1);
    assert_int_equal(count_found(&f, other), ATTENTION_BLOCK);
    assert_int_equal(count_states(&f), 1);
    assert_int_equal(count_written(&f, KEPT), 1);

    /* Sessions that go on leave nothing: one that has read it, and one that took its state over. */
    session_close(read_text(&f, ids, 5));
    struct session *first = read_text(&f, ids, 5), *second = read_text(&f, ids, 0);
    session_pool_forget(f.pool, gone, 2);
    assert_int_equal(count_found(&f, ids), ATTENTION_BLOCK);
    assert_true(count_states(&f) > 1);
    session_close(first);
    session_close(second);
    assert_int_equal(count_states(&f), 1);
    assert_int_equal(count_written(&f, KEPT), 1);

    session_close(read_text(&f, ids, 0));
    assert_true(count_found(&f, ids) >= 3 * ATTENTION_BLOCK);
    fixture_close(&f);
}

/* States that are given up for others, or never kept, are overwritten like rows. */
static void test_states_that_are_not_kept(void **state) {
    int32_t ids[ROWS];
    struct error e;
    struct fixture f;
    (void)state;
    fixture_open(&f, WITH_STATES, 0);
    make_ids(ids, 0);
    session_close(read_text(&f, ids, 5));
    assert_int_equal(count_states(&f), 0);
    assert_int_equal(count_written(&f, 0), 0);
    session_close(read_text(&f, ids, 0));
    assert_int_equal(count_states(&f), 1);
    fixture_close(&f);

    fixture_open(&f, WITH_STATES, 1);
    session_close(read_text(&f, ids, 5));
    assert_true(count_states(&f) <= 1);
    assert_int_equal(session_pool_has_blocks(f.pool, &e), STATUS_UNSUPPORTED);
    assert_non_null(strstr(e.text, "states"));
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_leave),
                                       cmocka_unit_test(test_sessions_go_on),
                                       cmocka_unit_test(test_evicted_rows),
                                       cmocka_unit_test(test_beginning_anew),
                                       cmocka_unit_test(test_rows_before),
                                       cmocka_unit_test(test_states_leave),
                                       cmocka_unit_test(test_states_that_are_not_kept)};
    int failed = cmocka_run_group_tests_name("rows of f16", tests, NULL, NULL);
    kv_dtype = DTYPE_INT8;
    return failed + cmocka_run_group_tests_name("rows of int8", tests, NULL, NULL);
}
