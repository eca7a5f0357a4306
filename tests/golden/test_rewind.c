/* tests/golden/test_rewind.c: a session whose latest rows are forgotten goes on as one that never
 * had them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "retro/run/session/session.h"

enum { ROWS = 2 * ATTENTION_BLOCK + 40, CHANGED = ATTENTION_BLOCK + 50, SLICE = 64 };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
    int vocab;
};

static void fixture_open(struct fixture *f, const char *folder, enum dtype kv_dtype) {
    struct error e = {0};
    struct model_options o = {.convert = true, .dtype = DTYPE_F32};
    struct session_limits limits = {.max_sessions = 2,
                                    .max_tokens = ROWS,
                                    .max_step_rows = SLICE,
                                    .max_logit_rows = SLICE,
                                    .max_neighbors = 2,
                                    .kv_dtype = kv_dtype};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &o, &e) ||
        session_pool_open(&f->pool, f->model, &limits, &e))
        fail_msg("%s", e.text);
    f->vocab = model_info(f->model)->padded_vocab;
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* Rows of the session until it has `end`, and the logits of the last one. */
static void read_rows(struct fixture *f, struct session *s, const int32_t *tokens, int end,
                      float *last) {
    struct error e = {0};
    struct tensor logits;
    struct neighbor_tokens none[SLICE] = {{0}};
    while (session_length(s) < end) {
        int at = session_length(s), n = min_int(SLICE, end - at);
        struct step_item item = {.session = s,
                                 .tokens = tokens + at,
                                 .n_tokens = n,
                                 .neighbors = none,
                                 .n_logits = at + n == end};
        if (session_step(f->pool, &item, 1, &logits, &e)) fail_msg("%s", e.text);
        if (item.n_logits)
            backend_download(f->backend, last, logits.data, (size_t)f->vocab * sizeof *last);
        assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
    }
}

/* Two texts that are alike up to CHANGED, read one after the other in one session, and the second
 * by itself. */
static void check(const char *folder, enum dtype kv_dtype, bool keeps) {
    struct fixture f;
    struct session *s = NULL, *alone = NULL;
    struct error e = {0};
    int32_t first[ROWS], second[ROWS];
    fixture_open(&f, folder, kv_dtype);
    float *again = malloc((size_t)f.vocab * sizeof *again),
          *expected = malloc((size_t)f.vocab * sizeof *expected);
    struct grid grid = grid_make(GRID_END, ROWS, max_int(8, model_info(f.model)->chunk_length));
    for (int i = 0; i < ROWS; i++) {
        first[i] = (7 * i + 3) % 60;
        second[i] = i < CHANGED ? first[i] : (11 * i + 5) % 60;
    }
    if (session_open(&s, f.pool, grid, &e) || session_open(&alone, f.pool, grid, &e))
        fail_msg("%s", e.text);
    read_rows(&f, s, first, ROWS, again);
    session_rewind(s, CHANGED, grid);
    assert_int_equal(session_length(s), keeps ? ATTENTION_BLOCK : 0);
    assert_int_equal(session_pool_blocks(f.pool).used, keeps ? 1 : 0);
    read_rows(&f, s, second, ROWS, again);
    read_rows(&f, alone, second, ROWS, expected);
    assert_memory_equal(again, expected, (size_t)f.vocab * sizeof *again);
    session_rewind(s, ROWS + 1, grid);
    assert_int_equal(session_length(s), keeps ? 2 * ATTENTION_BLOCK : 0);
    session_close(s);
    session_close(alone);
    free(again);
    free(expected);
    fixture_close(&f);
}

static void test_decoders(void **state) {
    (void)state;
    check("tests/golden/hf/llama", DTYPE_F32, true);
    check("tests/golden/hf/llama", DTYPE_INT8, true);
    check("tests/golden/hf/qwen2_window", DTYPE_F32, true);
    check("tests/golden/hf/deepseek_v3", DTYPE_F32, true);
    check("tests/golden/hf/gemma4", DTYPE_F32, true);
    check("tests/golden/hf/llama4", DTYPE_F32, true);
}

static void test_retro(void **state) {
    (void)state;
    check("tests/golden/retro/case_b", DTYPE_F32, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoders),
                                       cmocka_unit_test(test_retro)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
