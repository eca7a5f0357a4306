/* tests/golden/test_session_inputs.c: what sessions read beside ids: sources of a model with an
 * encoder, whose results are the same bits alone or in any batch, and rows given in place of ids.
 */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"
#include "retro/weights/weights.h"
#include "tests/folder.h"

enum { SEQUENCES = 5, LENGTH = 24, SOURCE = 40 };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
    int vocab;
};

static void fixture_open(struct fixture *f, const char *folder, enum dtype dtype) {
    struct error e = {0};
    struct model_options o = {.convert = true, .dtype = dtype};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &o, &e))
        fail_msg("%s", e.text);
    struct session_limits limits = {.max_sessions = SEQUENCES,
                                    .max_tokens = LENGTH,
                                    .max_step_rows = SEQUENCES * LENGTH,
                                    .max_logit_rows = SEQUENCES * LENGTH,
                                    .max_neighbors = 2,
                                    .max_source = model_info(f->model)->reads_source ? SOURCE : 0,
                                    .max_given = LENGTH,
                                    .kv_dtype = dtype};
    if (session_pool_open(&f->pool, f->model, &limits, &e)) fail_msg("%s", e.text);
    f->vocab = model_info(f->model)->padded_vocab;
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* A made-up source and target; the target's rows enter in slices. */
struct target {
    int32_t source[SOURCE], tokens[LENGTH];
    int n_source, length, slice;
    struct session *session;
    float *logits; /* [length, V] */
};

static void target_make(struct target *t, const struct fixture *f, int number) {
    unsigned seed = 17u * (unsigned)number + 3;
    *t = (struct target){.n_source = 1 + number * 9 % SOURCE,
                         .length = LENGTH - 4 * number,
                         .slice = 1 + number % 3};
    for (int i = 0; i < SOURCE; i++)
        t->source[i] = (int32_t)((seed = seed * 1103515245u + 12345u) >> 8) % 250;
    for (int i = 0; i < LENGTH; i++)
        t->tokens[i] = (int32_t)((seed = seed * 1103515245u + 12345u) >> 8) % 250;
    t->logits = calloc((size_t)LENGTH * (size_t)f->vocab, sizeof *t->logits);
}

/* One step: the next rows of each; a session that has none yet begins with its source. */
static void step_targets(struct fixture *f, struct target **list, int n) {
    struct step_item items[SEQUENCES] = {{0}};
    struct tensor logits;
    struct error e = {0};
    int at[SEQUENCES], row = 0;
    for (int i = 0; i < n; i++) {
        struct target *t = list[i];
        at[i] = session_length(t->session);
        int rows = min_int(t->slice, t->length - at[i]);
        items[i] = (struct step_item){
            .session = t->session, .tokens = t->tokens + at[i], .n_tokens = rows, .n_logits = rows};
        if (at[i] > 0) continue;
        items[i].source = t->source;
        items[i].n_source = t->n_source;
    }
    if (session_step(f->pool, items, n, &logits, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        int rows = items[i].n_tokens;
        backend_download(f->backend, list[i]->logits + (size_t)at[i] * (size_t)f->vocab,
                         tensor_rows(logits, row, rows).data,
                         (size_t)rows * (size_t)f->vocab * sizeof(float));
        row += rows;
    }
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
}

static bool target_done(const struct target *t) { return session_length(t->session) == t->length; }

static void run_alone(struct fixture *f, struct target *t) {
    assert_int_equal(session_open(&t->session, f->pool, (struct grid){0}, NULL), STATUS_OK);
    while (!target_done(t)) step_targets(f, &t, 1);
    session_close(t->session);
    t->session = NULL;
}

/* Each enters two steps after the one before and leaves when it is done, so sources are encoded
 * beside decoding. */
static void run_together(struct fixture *f, struct target *all) {
    int left = SEQUENCES;
    for (int round = 0; left > 0; round++) {
        struct target *list[SEQUENCES];
        int n = 0;
        if (round % 2 == 0 && round / 2 < SEQUENCES)
            assert_int_equal(session_open(&all[round / 2].session, f->pool, (struct grid){0}, NULL),
                             STATUS_OK);
        for (int i = 0; i < SEQUENCES; i++) {
            if (all[i].session == NULL) continue;
            list[n] = &all[i];
            n++;
        }
        if (n > 0) step_targets(f, list, n);
        for (int i = 0; i < n; i++) {
            if (!target_done(list[i])) continue;
            session_close(list[i]->session);
            list[i]->session = NULL;
            left--;
        }
    }
}

static void check_sources(const char *folder, enum dtype dtype) {
    struct fixture f;
    struct target alone[SEQUENCES], together[SEQUENCES];
    fixture_open(&f, folder, dtype);
    for (int i = 0; i < SEQUENCES; i++) {
        target_make(&alone[i], &f, i);
        target_make(&together[i], &f, i);
        run_alone(&f, &alone[i]);
    }
    run_together(&f, together);
    for (int i = 0; i < SEQUENCES; i++) {
        size_t bytes = (size_t)alone[i].length * (size_t)f.vocab * sizeof(float);
        assert_memory_equal(alone[i].logits, together[i].logits, bytes);
        free(alone[i].logits);
        free(together[i].logits);
    }
    fixture_close(&f);
}

static void test_sources_in_any_batch(void **state) {
    (void)state;
    check_sources("tests/golden/t5/case_a", DTYPE_F32);
    check_sources("tests/golden/t5/case_b", DTYPE_F32);
    check_sources("tests/golden/t5/case_c", DTYPE_BF16);
    check_sources("tests/golden/hf/t5_v1_1", DTYPE_F16);
}

static void test_sources_are_checked(void **state) {
    (void)state;
    struct fixture f;
    struct target t;
    struct error e = {0};
    struct tensor logits;
    fixture_open(&f, "tests/golden/t5/case_a", DTYPE_F32);
    target_make(&t, &f, 1);
    assert_int_equal(session_open(&t.session, f.pool, (struct grid){0}, &e), STATUS_OK);
    struct step_item item = {
        .session = t.session, .tokens = t.tokens, .n_tokens = 1, .n_logits = 1};
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "a source of 0 ids, allowed is 1 .. 40"));
    item.source = t.source;
    item.n_source = SOURCE + 1;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_TOO_LARGE);
    item.n_source = 3;
    t.source[2] = 1 << 20;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "source id 2"));
    t.source[2] = 7;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "comes with a session's first rows"));
    free(t.logits);
    fixture_close(&f);
}

/* Rows of the word table of a folder, as a caller would give them. */
static void read_words(const char *folder, const int32_t *ids, int n, float *rows, int d) {
    struct error e = {0};
    struct weights *w;
    if (weights_open(&w, folder, &e)) fail_msg("%s", e.text);
    const struct stored_tensor *table = weights_find(w, "embedding.word_embeddings.weight");
    assert_true(table != NULL && table->dtype == STORED_F32 && table->shape[1] == d);
    for (int i = 0; i < n; i++)
        memcpy(rows + (size_t)i * (size_t)d,
               (const float *)table->data + (size_t)ids[i] * (size_t)d, (size_t)d * sizeof *rows);
    weights_close(w);
}

/* The embedded words given as rows, beside a session that gives ids, have the bits of ids; so has a
 * mix of both. */
static void check_given(const char *folder) {
    struct fixture f;
    struct error e = {0};
    struct tensor logits;
    struct session *s[2];
    int32_t tokens[LENGTH];
    float *rows, *want, *got;
    fixture_open(&f, folder, DTYPE_F32);
    int d = model_info(f.model)->hidden;
    size_t bytes = LENGTH * (size_t)f.vocab * sizeof(float);
    for (int i = 0; i < LENGTH; i++) tokens[i] = i * 37 % 250;
    rows = malloc(LENGTH * (size_t)d * sizeof *rows);
    want = malloc(bytes);
    got = malloc(bytes);
    read_words(folder, tokens, LENGTH, rows, d);

    struct neighbor_tokens none[LENGTH] = {{0}};
    struct grid grid = grid_make(GRID_END, LENGTH, max_int(1, model_info(f.model)->chunk_length));
    for (int i = 0; i < 2; i++) assert_int_equal(session_open(&s[i], f.pool, grid, &e), STATUS_OK);
    struct step_item ids = {.session = s[0],
                            .tokens = tokens,
                            .n_tokens = LENGTH,
                            .neighbors = none,
                            .n_logits = LENGTH};
    if (session_step(f.pool, &ids, 1, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f.backend, want, logits.data, bytes);
    assert_int_equal(backend_sync(f.backend, &e), STATUS_OK);
    session_close(s[0]);
    assert_int_equal(session_open(&s[0], f.pool, grid, &e), STATUS_OK);

    /* The first rows of one session are given and the rest ids; the other session begins with ids
     * beside them. */
    int half = LENGTH / 2;
    struct step_item first[2] = {
        {.session = s[0], .rows = rows, .n_tokens = half, .neighbors = none, .n_logits = half},
        {.session = s[1], .tokens = tokens, .n_tokens = half, .neighbors = none}};
    if (session_step(f.pool, first, 2, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f.backend, got, logits.data, bytes / 2);
    assert_int_equal(backend_sync(f.backend, &e), STATUS_OK);
    struct step_item rest = {.session = s[0],
                             .tokens = tokens + half,
                             .n_tokens = LENGTH - half,
                             .neighbors = none,
                             .n_logits = LENGTH - half};
    if (session_step(f.pool, &rest, 1, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f.backend, got + (size_t)half * (size_t)f.vocab, logits.data, bytes / 2);
    assert_int_equal(backend_sync(f.backend, &e), STATUS_OK);
    assert_memory_equal(want, got, bytes);

    rest.rows = rows;
    assert_int_equal(session_step(f.pool, &rest, 1, &logits, &e), STATUS_TOO_LARGE);
    session_close(s[1]);
    assert_int_equal(session_open(&rest.session, f.pool, grid, &e), STATUS_OK);
    assert_int_equal(session_step(f.pool, &rest, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "ids and rows"));
    free(rows);
    free(want);
    free(got);
    fixture_close(&f);
}

static void test_given_rows(void **state) {
    (void)state;
    check_given("tests/golden/retro/case_a"); /* learned positions, which given rows get too */
    check_given("tests/golden/retro/case_b"); /* rotary */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sources_in_any_batch),
                                       cmocka_unit_test(test_sources_are_checked),
                                       cmocka_unit_test(test_given_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
