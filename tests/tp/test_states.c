/* tests/tp/test_states.c: states of sequences on several ranks and stages: drafts that are taken
 * and that are not, and states that later texts go on from, leave the logits of a pool that does
 * neither, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/hash.h"
#include "server/host/models/opened_model.h"

enum { ROWS = 400, PROMPT = 300, DRAFTS = 5, RIGHT = 3, VOCAB = 64, TEXTS = 4 };

struct ranks {
    struct opened_model model;
    struct session_pool *pool;
    uint64_t hash; /* of logits */
};

static void ranks_open(struct ranks *ranks, const char *folder, int size, int stages, int kept) {
    char text[40];
    struct error e = {0};
    struct config c;
    *ranks = (struct ranks){0};
    config_init(&c);
    snprintf(text, sizeof text, "parallel.tensor=%d", size);
    assert_int_equal(config_set(&c, text, NULL), STATUS_OK);
    snprintf(text, sizeof text, "parallel.pipeline=%d", stages);
    assert_int_equal(config_set(&c, text, NULL), STATUS_OK);
    assert_int_equal(config_set(&c, "parallel.comm=threads", NULL), STATUS_OK);
    if (opened_model_open(&ranks->model, &c, folder, NULL, &e)) fail_msg("%s", e.text);
    config_free(&c);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = ROWS,
                                    .max_step_rows = ROWS,
                                    .max_logit_rows = 1,
                                    .max_draft_rows = DRAFTS,
                                    .kv_dtype = DTYPE_F32,
                                    .kept_blocks = kept,
                                    .kept_states = kept};
    if (session_pool_open(&ranks->pool, ranks->model.model, &limits, &e)) fail_msg("%s", e.text);
}

static void ranks_close(struct ranks *ranks) {
    session_pool_close(ranks->pool);
    opened_model_close(&ranks->model);
}

static void step(struct ranks *ranks, struct session *session, const int32_t *tokens, int n,
                 int drafts, int logits) {
    static float host[VOCAB];
    struct error e = {0};
    struct tensor found;
    struct step_item item = {.session = session,
                             .tokens = tokens,
                             .n_tokens = n,
                             .n_drafts = drafts,
                             .n_logits = logits};
    if (session_step(ranks->pool, &item, 1, &found, &e)) fail_msg("%s", e.text);
    if (logits == 0) return;
    assert_int_equal(found.cols, VOCAB);
    backend_download(ranks->model.backend, host, found.data, sizeof host);
    assert_int_equal(backend_sync(ranks->model.backend, &e), STATUS_OK);
    ranks->hash = hash_bytes(host, sizeof host, ranks->hash);
}

/* The next row and drafts behind it, of which the first ones are the text's. */
static void step_drafting(struct ranks *ranks, struct session *session, const int32_t *tokens) {
    int32_t rows[1 + DRAFTS];
    const int at = session_length(session);
    memcpy(rows, tokens + at, sizeof rows);
    for (int i = 1 + RIGHT; i <= DRAFTS; i++) rows[i] = (rows[i] + 1) % VOCAB;
    step(ranks, session, rows, 1 + DRAFTS, DRAFTS, 0);
    session_settle(session, rows + 1, RIGHT);
    assert_int_equal(session_length(session), at + 1 + RIGHT);
}

/* The hash of the last row's logits of each text, with drafts and what is kept, or without. */
static uint64_t run(const char *folder, int size, int stages, int kept, int reused[TEXTS]) {
    static int32_t tokens[ROWS];
    struct ranks ranks;
    ranks_open(&ranks, folder, size, stages, kept);
    for (int i = 0; i < ROWS; i++) tokens[i] = i * i % 61;
    for (int i = 0; i < TEXTS; i++) {
        struct session *session;
        struct error e = {0};
        if (i >= 2) tokens[PROMPT - 40 + 10 * i]++;
        struct session_text text = {.ids = tokens, .n = ROWS - 1};
        assert_int_equal(session_open(&session, ranks.pool, (struct grid){0}, &e), STATUS_OK);
        reused[i] = session_reuse(session, &text);
        int length = session_length(session);
        if (kept > 0 && length < PROMPT) {
            step(&ranks, session, tokens + length, PROMPT - length, 0, 0);
            step_drafting(&ranks, session, tokens);
            step_drafting(&ranks, session, tokens);
        }
        length = session_length(session);
        step(&ranks, session, tokens + length, ROWS - length, 0, 1);
        session_close(session);
    }
    ranks_close(&ranks);
    return ranks.hash;
}

static void check_states(const char *folder) {
    int reused[TEXTS], none[TEXTS];
    for (int size = 1; size <= 2; size++)
        for (int stages = 1; stages <= 2; stages++) {
            uint64_t plain = run(folder, size, stages, 0, none),
                     kept = run(folder, size, stages, 8, reused);
            assert_true(plain == kept);
            assert_int_equal(reused[1], 384); /* the last full block */
            assert_int_equal(reused[2], 0);   /* it parts from the others in the block before */
            assert_int_equal(reused[3], 256); /* where that text parted, a state is kept */
        }
}

static void test_states(void **state) {
    (void)state;
    check_states("tests/golden/hf/qwen3_next");
    check_states("tests/golden/hf/lfm2_moe");
    check_states("tests/golden/hf/lfm3");
    check_states("tests/golden/hf/olmo_hybrid");
    check_states("tests/golden/hf/granite_hybrid");
    check_states("tests/golden/hf/nemotron_h_moe");
    check_states("tests/golden/hf/granite_hybrid_rope"); /* one key head, whole on both ranks */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
