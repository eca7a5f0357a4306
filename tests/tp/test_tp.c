/* tests/tp/test_tp.c: tensor parallelism: 1, 2 and 4 ranks, as threads, give the reference's logits, and a repeat gives
 * the same bits. Every rank loads its own share of the weights; rank 0 runs the cases, the others follow it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/hash.h"
#include "retro/opened_model.h"
#include "retro/weights.h"

enum { MAX_RANKS = 4 };

/* Rank 0's run over the cases of a folder. */
struct rank {
    const char *folder;
    float max_abs; /* from the reference */
    uint64_t hash; /* of all logits */
    int n_cases;
};

/* One sequence of a case: whole, then row by row. */
struct sequence {
    const int32_t *tokens, *neighbors;
    const float *logits;
    int n, k, r;
    struct grid grid;
};

static enum status run_rows(struct rank *rank, struct session_pool *pool, struct backend *b, const struct sequence *s,
                            int rows, struct error *e) {
    int vocab = 0, sets = grid_complete(s->grid, s->n);
    struct neighbor_tokens *all = calloc((size_t)sets + 1, sizeof *all);
    struct session *session;
    struct tensor logits;
    for (int j = 0; j < sets; j++) all[j] = (struct neighbor_tokens){s->neighbors + j * s->k * s->r, s->k};
    enum status status = session_open(&session, pool, s->grid, e);
    for (int at = 0; at < s->n && status == STATUS_OK; at += rows) {
        struct step_item item = {session, s->tokens + at, rows, all + grid_complete(s->grid, at), rows};
        status = session_step(pool, &item, 1, &logits, e);
        if (status) break;
        vocab = logits.cols;
        float *host = malloc((size_t)rows * (size_t)vocab * sizeof(float));
        backend_download(b, host, logits.data, (size_t)rows * (size_t)vocab * sizeof(float));
        status = backend_sync(b, e);
        for (int i = 0; i < rows * vocab; i++)
            rank->max_abs = fmaxf(rank->max_abs, fabsf(host[i] - s->logits[at * vocab + i]));
        rank->hash = hash_bytes(host, (size_t)rows * (size_t)vocab * sizeof(float), rank->hash);
        free(host);
    }
    session_close(session);
    free(all);
    return status;
}

static enum status run_case(struct rank *rank, const struct weights *w, const char *name, struct model *m,
                            struct backend *b, struct error *e) {
    char key[80];
    const struct stored_tensor *parts[3];
    static const char *const suffixes[] = {"tokens", "neighbors", "logits"};
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s.%s", name, suffixes[i]);
        parts[i] = weights_find(w, key);
        if (parts[i] == NULL) return error_set(e, STATUS_NOT_FOUND, "%s", key);
    }
    struct sequence s = {.n = (int)parts[0]->shape[1], .k = (int)parts[1]->shape[2], .r = (int)parts[1]->shape[3]};
    s.grid = grid_make(GRID_END, s.n, model_info(m)->chunk_length);
    struct session_pool *pool;
    struct session_limits limits = {1, s.n, s.n, s.n, s.k, DTYPE_F32};
    enum status status = session_pool_open(&pool, m, &limits, e);
    for (int i = 0; i < parts[0]->shape[0] && status == STATUS_OK; i++) {
        s.tokens = (const int32_t *)parts[0]->data + i * s.n;
        s.neighbors = (const int32_t *)parts[1]->data + i * parts[1]->shape[1] * s.k * s.r;
        s.logits = (const float *)parts[2]->data + i * s.n * parts[2]->shape[2];
        status = run_rows(rank, pool, b, &s, s.n, e);
        if (status == STATUS_OK) status = run_rows(rank, pool, b, &s, 1, e);
        rank->n_cases++;
    }
    session_pool_close(pool);
    return status;
}

static enum status run_folder(struct rank *rank, struct model *m, struct backend *b, struct error *e) {
    char path[200], name[60];
    struct weights *w;
    snprintf(path, sizeof path, "%s/cases.safetensors", rank->folder);
    if (weights_open(&w, path, e)) return e->status;
    enum status status = STATUS_OK;
    for (int i = 0; i < weights_count(w) && status == STATUS_OK; i++) {
        const char *full = weights_at(w, i)->name, *dot = strrchr(full, '.');
        if (dot == NULL || strcmp(dot, ".tokens") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - full), full);
        status = run_case(rank, w, name, m, b, e);
    }
    weights_close(w);
    return status;
}

static void configure(struct config *c, int size) {
    char text[40];
    config_init(c);
    snprintf(text, sizeof text, "parallel.tensor=%d", size);
    assert_int_equal(config_set(c, text, NULL), STATUS_OK);
    assert_int_equal(config_set(c, "parallel.comm=threads", NULL), STATUS_OK);
}

/* The hash of all logits. */
static uint64_t check_folder(const char *folder, int size) {
    struct rank rank = {.folder = folder};
    struct error e = {0};
    struct config c;
    struct opened_model o;
    configure(&c, size);
    enum status status = opened_model_open(&o, &c, folder, &e);
    config_free(&c);
    if (status == STATUS_OK) {
        assert_int_equal(o.comm->size, size);
        assert_int_equal(o.n_followers, size - 1);
        assert_false(opened_model_follows(&o));
        status = run_folder(&rank, o.model, o.backend, &e);
        opened_model_close(&o);
    }
    if (status) fail_msg("%s, %d ranks: %s", folder, size, e.text);
    assert_true(rank.n_cases > 1);
    if (!(rank.max_abs <= 2e-4f)) fail_msg("%s, %d ranks: %g from the reference", folder, size, (double)rank.max_abs);
    return rank.hash;
}

static void test_goldens(void **state) {
    static const char *const names[] = {"case_a", "case_b", "case_c", "case_e_legacy_raw", "case_e_legacy_raw_gate"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char folder[100];
        snprintf(folder, sizeof folder, "tests/golden/retro/%s", names[i]);
        for (int size = 1; size <= MAX_RANKS; size *= 2)
            assert_int_equal(check_folder(folder, size), check_folder(folder, size));
    }
}

/* Heads that do not divide are refused with the numbers of ranks that would do, by all ranks at once. */
static void test_uneven_split(void **state) {
    (void)state;
    struct error e = {0};
    struct config c;
    struct opened_model o;
    configure(&c, 3);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "parallel.tensor is 3, and 4 attention heads cannot be shared evenly by 3 ranks"));
    assert_non_null(strstr(e.text, "this model runs on 1, 2 or 4"));
    assert_int_equal(config_set(&c, "parallel.comm=single", NULL), STATUS_OK);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "parallel.comm is single"));
    config_free(&c);
}

/* A pool that one rank cannot have is refused, and the ranks go on with the next. */
static void test_refused_pool(void **state) {
    (void)state;
    struct error e = {0};
    struct config c;
    struct opened_model o;
    struct session_pool *pool;
    configure(&c, 2);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", &e), STATUS_OK);
    struct session_limits limits = {1, 1 << 20, 8, 8, 2, DTYPE_F32};
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_INVALID);
    limits.max_tokens = 8;
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_OK);
    session_pool_close(pool);
    opened_model_close(&o);
    config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_uneven_split),
                                       cmocka_unit_test(test_refused_pool)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
