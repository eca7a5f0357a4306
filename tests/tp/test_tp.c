/* tests/tp/test_tp.c: tensor parallelism: 1, 2 and 4 ranks, as threads, give the reference's logits; all ranks hold the
 * same bits, and a repeat gives them again. Every rank loads its own share of the weights. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/hash.h"
#include "retro/session.h"
#include "retro/weights.h"

enum { MAX_RANKS = 4 };

/* One rank's run over the cases of a folder. */
struct rank {
    const char *folder;
    struct comm *comm;
    pthread_t thread;
    struct error error; /* STATUS_OK when it ran */
    float max_abs;      /* from the reference */
    uint64_t hash;      /* of all logits */
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

static void *run_rank(void *argument) {
    struct rank *rank = argument;
    struct backend *b = NULL;
    struct model *m = NULL;
    struct error *e = &rank->error;
    if (backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, e) == STATUS_OK &&
        model_open(&m, rank->folder, b, rank->comm, &(struct model_options){0}, e) == STATUS_OK &&
        run_folder(rank, m, b, e) == STATUS_OK)
        e->status = STATUS_OK;
    model_close(m);
    backend_close(b);
    comm_close(rank->comm);
    return NULL;
}

/* The hash of what all ranks computed. */
static uint64_t check_ranks(const char *folder, int size) {
    struct rank ranks[MAX_RANKS];
    struct comm *comms[MAX_RANKS];
    assert_int_equal(comm_open_threads(comms, size, NULL), STATUS_OK);
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.folder = folder, .comm = comms[r]};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < size; r++) {
        if (ranks[r].error.status) fail_msg("%s, rank %d of %d: %s", folder, r, size, ranks[r].error.text);
        assert_true(ranks[r].n_cases > 1);
        if (!(ranks[r].max_abs <= 2e-4f))
            fail_msg("%s, rank %d of %d: %g from the reference", folder, r, size, (double)ranks[r].max_abs);
        assert_int_equal(ranks[r].hash, ranks[0].hash);
    }
    return ranks[0].hash;
}

static void test_goldens(void **state) {
    static const char *const names[] = {"case_a", "case_b", "case_c", "case_e_legacy_raw", "case_e_legacy_raw_gate"};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char folder[100];
        snprintf(folder, sizeof folder, "tests/golden/retro/%s", names[i]);
        for (int size = 1; size <= MAX_RANKS; size *= 2)
            assert_int_equal(check_ranks(folder, size), check_ranks(folder, size));
    }
}

/* Heads that do not divide are refused by every rank before any of them waits for another. */
static void test_uneven_split(void **state) {
    (void)state;
    struct error e = {0};
    struct comm *comms[3];
    struct backend *b;
    struct model *m;
    assert_int_equal(comm_open_threads(comms, 3, &e), STATUS_OK);
    assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, &e), STATUS_OK);
    assert_int_equal(model_open(&m, "tests/golden/retro/case_a", b, comms[1], &(struct model_options){0}, &e),
                     STATUS_INVALID);
    assert_non_null(strstr(e.text, "cannot be split evenly over 3 ranks"));
    for (int r = 0; r < 3; r++) comm_close(comms[r]);
    backend_close(b);
    assert_int_equal(comm_open_threads(comms, 0, &e), STATUS_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_uneven_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
