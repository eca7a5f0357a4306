/* tests/tp/test_tp.c: a model shared by ranks that are threads, in parts of its layers, in stages
 * and in both, gives the reference's logits, and a repeat gives the same bits. Every rank loads its
 * own share of the weights; rank 0 runs the cases, the others follow it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/hash.h"
#include "retro/weights/weights.h"
#include "server/host/models/opened_model.h"

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

static enum status run_rows(struct rank *rank, struct session_pool *pool, struct backend *b,
                            const struct sequence *s, int rows, struct error *e) {
    int vocab = 0, sets = grid_complete(s->grid, s->n);
    struct neighbor_tokens *all = calloc((size_t)sets + 1, sizeof *all);
    struct session *session;
    struct tensor logits;
    for (int j = 0; j < sets; j++)
        all[j] = (struct neighbor_tokens){s->neighbors + j * s->k * s->r, s->k};
    enum status status = session_open(&session, pool, s->grid, e);
    for (int at = 0; at < s->n && status == STATUS_OK; at += rows) {
        struct step_item item = {.session = session,
                                 .tokens = s->tokens + at,
                                 .n_tokens = rows,
                                 .neighbors = all + grid_complete(s->grid, at),
                                 .n_logits = rows};
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

static enum status run_case(struct rank *rank, const struct weights *w, const char *name,
                            struct model *m, struct backend *b, struct error *e) {
    char key[80];
    const struct stored_tensor *parts[3];
    static const char *const suffixes[] = {"tokens", "neighbors", "logits"};
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s.%s", name, suffixes[i]);
        parts[i] = weights_find(w, key);
        if (parts[i] == NULL) return error_set(e, STATUS_NOT_FOUND, "%s", key);
    }
    struct sequence s = {
        .n = (int)parts[0]->shape[1], .k = (int)parts[1]->shape[2], .r = (int)parts[1]->shape[3]};
    s.grid = grid_make(GRID_END, s.n, model_info(m)->chunk_length);
    struct session_pool *pool;
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = s.n,
                                    .max_step_rows = s.n,
                                    .max_logit_rows = s.n,
                                    .max_neighbors = s.k,
                                    .kv_dtype = DTYPE_F32};
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

static enum status run_folder(struct rank *rank, struct model *m, struct backend *b,
                              struct error *e) {
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

static void configure(struct config *c, int size, int stages) {
    char text[40];
    config_init(c);
    snprintf(text, sizeof text, "parallel.tensor=%d", size);
    assert_int_equal(config_set(c, text, NULL), STATUS_OK);
    snprintf(text, sizeof text, "parallel.pipeline=%d", stages);
    assert_int_equal(config_set(c, text, NULL), STATUS_OK);
    assert_int_equal(config_set(c, "parallel.comm=threads", NULL), STATUS_OK);
}

/* The hash of all logits. */
static uint64_t check_folder(const char *folder, int size, int stages) {
    struct rank rank = {.folder = folder};
    struct error e = {0};
    struct config c;
    struct opened_model o;
    configure(&c, size, stages);
    enum status status = opened_model_open(&o, &c, folder, NULL, &e);
    config_free(&c);
    if (status == STATUS_OK) {
        assert_int_equal(o.comm->size, size);
        assert_int_equal(o.n_followers, size * stages - 1);
        assert_false(opened_model_follows(&o));
        status = run_folder(&rank, o.model, o.backend, &e);
        opened_model_close(&o);
    }
    if (status) fail_msg("%s, %d stages of %d ranks: %s", folder, stages, size, e.text);
    assert_true(rank.n_cases > 1);
    if (!(rank.max_abs <= 2e-4f))
        fail_msg("%s, %d stages of %d ranks: %g from the reference", folder, stages, size,
                 (double)rank.max_abs);
    return rank.hash;
}

static const char *const cases[] = {"case_a", "case_b", "case_c", "case_e_legacy_raw",
                                    "case_e_legacy_raw_gate"};

static const char *folder_of(size_t i, char *text, size_t size) {
    snprintf(text, size, "tests/golden/retro/%s", cases[i]);
    return text;
}

static void test_tensor_parallel(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[100];
        const char *folder = folder_of(i, text, sizeof text);
        for (int size = 1; size <= MAX_RANKS; size *= 2)
            assert_int_equal(check_folder(folder, size, 1), check_folder(folder, size, 1));
    }
}

/* Stages change where a layer is computed and nothing else: bit by bit the logits without them.
 * Retro layers of case_b are on both stages of two; of five stages, some have none. */
static void test_pipeline(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[100];
        const char *folder = folder_of(i, text, sizeof text);
        for (int size = 1; size <= 2; size++)
            assert_int_equal(check_folder(folder, size, 2), check_folder(folder, size, 1));
    }
    const char *folder = "tests/golden/retro/case_b";
    assert_int_equal(check_folder(folder, 1, 5), check_folder(folder, 1, 1));
}

/* A few sequences that retrieve, in steps of up to 27 rows; the hash of all logits. */
static uint64_t run_micro_batches(int size, int stages, int micro_batch_rows) {
    enum { SEQUENCES = 3, ROWS = 9, VOCAB = 256 };
    struct error e = {0};
    struct config c;
    struct opened_model o;
    struct session_pool *pool;
    struct session *sessions[SEQUENCES];
    struct step_item items[SEQUENCES];
    struct tensor logits;
    int32_t tokens[SEQUENCES][ROWS], found[2 * 2 * 16];
    static float host[SEQUENCES * VOCAB];
    uint64_t hash = 0;
    configure(&c, size, stages);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_b", NULL, &e), STATUS_OK);
    config_free(&c);
    const struct model_info *info = model_info(o.model);
    assert_true(info->padded_vocab <= VOCAB && info->retrieved_length <= 16);
    struct session_limits limits = {.max_sessions = SEQUENCES,
                                    .max_tokens = 32,
                                    .max_step_rows = SEQUENCES * ROWS,
                                    .max_logit_rows = SEQUENCES,
                                    .max_neighbors = 2,
                                    .kv_dtype = DTYPE_F32,
                                    .micro_batch_rows = micro_batch_rows};
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(found); i++) found[i] = (int32_t)(i * 7 % 100);
    const struct neighbor_tokens sets[] = {{found, 2}, {found + 1, 1}, {found + 2, 2}, {NULL, 0}};
    for (int s = 0; s < SEQUENCES; s++) {
        struct grid grid = grid_make(GRID_END, ROWS - s, info->chunk_length);
        for (int i = 0; i < ROWS; i++) tokens[s][i] = (31 * s + 17 * i) % 200;
        assert_int_equal(session_open(&sessions[s], pool, grid, &e), STATUS_OK);
    }
    for (int step = 0; step < 12; step++) {
        for (int s = 0; s < SEQUENCES; s++) {
            int n = step ? 1 : ROWS - s;
            assert_true(session_closes(sessions[s], n) <= 3);
            items[s] = (struct step_item){.session = sessions[s],
                                          .tokens = tokens[s],
                                          .n_tokens = n,
                                          .neighbors = sets + s % 2,
                                          .n_logits = 1};
        }
        if (session_step(pool, items, SEQUENCES, &logits, &e)) fail_msg("%s", e.text);
        size_t bytes = (size_t)SEQUENCES * (size_t)info->padded_vocab * sizeof *host;
        backend_download(o.backend, host, logits.data, bytes);
        assert_int_equal(backend_sync(o.backend, &e), STATUS_OK);
        hash = hash_bytes(host, bytes, hash);
    }
    session_pool_close(pool);
    opened_model_close(&o);
    return hash;
}

/* Sequences of a step that are done in turn, and stages that work on different ones at a time: the
 * same logits, bit by bit, as all at once on one stage of as many ranks. */
static void test_micro_batches(void **state) {
    (void)state;
    static const int limits[] = {0, 1, 18, 1000};
    for (int size = 1; size <= 2; size++) {
        uint64_t whole = run_micro_batches(size, 1, 0);
        for (int stages = 1; stages <= 3; stages++)
            for (size_t i = 0; i < ARRAY_COUNT(limits); i++)
                assert_int_equal(run_micro_batches(size, stages, limits[i]), whole);
    }
}

/* Three ranks share four heads. */
static void test_uneven_split(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[100];
        const char *folder = folder_of(i, text, sizeof text);
        assert_int_equal(check_folder(folder, 3, 1), check_folder(folder, 3, 2));
    }
}

/* More ranks than there are heads or layers are refused by all ranks at once. */
static void test_too_many_ranks(void **state) {
    (void)state;
    struct error e = {0};
    struct config c;
    struct opened_model o;
    configure(&c, 5, 1);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", NULL, &e),
                     STATUS_INVALID);
    assert_non_null(strstr(e.text, "parallel.tensor is 5, and this model's 4 key/value heads"));
    assert_int_equal(config_set(&c, "parallel.tensor=1", NULL), STATUS_OK);
    assert_int_equal(config_set(&c, "parallel.pipeline=7", NULL), STATUS_OK);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", NULL, &e),
                     STATUS_INVALID);
    assert_non_null(strstr(e.text, "parallel.pipeline is 7 and the model has 6 layers"));
    assert_int_equal(config_set(&c, "parallel.comm=single", NULL), STATUS_OK);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", NULL, &e),
                     STATUS_INVALID);
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
    configure(&c, 2, 1);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_a", NULL, &e), STATUS_OK);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = 1 << 20,
                                    .max_step_rows = 8,
                                    .max_logit_rows = 8,
                                    .max_neighbors = 2,
                                    .kv_dtype = DTYPE_F32};
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_INVALID);
    limits.max_tokens = 8;
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_OK);
    session_pool_close(pool);
    opened_model_close(&o);
    config_free(&c);
}

/* Says that nobody waits any more from its n-th question on. */
static bool abandoned_after(void *left) {
    int *n = left;
    if (*n == 0) return true;
    --*n;
    return false;
}

/* The hash of the logits of one prompt. */
static uint64_t run_prompt(const struct opened_model *o, struct session_pool *pool,
                           const int32_t *tokens, int n, int expected) {
    struct session *session;
    struct tensor logits;
    struct error e = {0};
    float host[512];
    static const struct neighbor_tokens none[64];
    assert_int_equal(session_open(&session, pool,
                                  grid_make(GRID_START, n, model_info(o->model)->chunk_length), &e),
                     STATUS_OK);
    struct step_item item = {.session = session,
                             .tokens = tokens,
                             .n_tokens = n,
                             .neighbors = none,
                             .n_logits = expected ? 0 : 1};
    assert_int_equal(session_step(pool, &item, 1, &logits, &e), expected);
    session_close(session);
    if (expected) return 0;
    assert_true(logits.cols <= (int)ARRAY_COUNT(host));
    size_t bytes = (size_t)logits.cols * sizeof *host;
    backend_download(o->backend, host, logits.data, bytes);
    assert_int_equal(backend_sync(o->backend, &e), STATUS_OK);
    return hash_bytes(host, bytes, 0);
}

/* Rank 0 hears that nobody waits, and all ranks leave the step before the same layer: the next one
 * is whole again. A step of few rows asks nobody. */
static void check_abandoned(int size) {
    enum { ROWS = 40, FEW = 5 };
    struct error e = {0};
    struct config c;
    struct opened_model o;
    struct session_pool *pool;
    int32_t tokens[ROWS];
    for (int i = 0; i < ROWS; i++) tokens[i] = i * 13 % 100;
    configure(&c, size, 1);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_b", NULL, &e), STATUS_OK);
    config_free(&c);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = ROWS,
                                    .max_step_rows = ROWS,
                                    .max_logit_rows = 1,
                                    .max_neighbors = 1,
                                    .kv_dtype = DTYPE_F32};
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_OK);
    uint64_t whole = run_prompt(&o, pool, tokens, ROWS, STATUS_OK);

    int parts = session_pool_parts(pool);
    assert_int_equal(parts, model_info(o.model)->n_layers);
    for (int layers = 0; layers < parts; layers++) {
        int left = layers;
        session_pool_watch(pool, abandoned_after, &left);
        run_prompt(&o, pool, tokens, ROWS, STATUS_CANCELLED);
        assert_int_equal(left, 0);
    }
    int none = 0, many = 1 << 20;
    session_pool_watch(pool, abandoned_after, &none);
    run_prompt(&o, pool, tokens, FEW, size > 1 ? STATUS_OK : STATUS_CANCELLED);
    session_pool_watch(pool, abandoned_after, &many);
    assert_int_equal(run_prompt(&o, pool, tokens, ROWS, STATUS_OK), whole);
    session_pool_close(pool);
    opened_model_close(&o);
}

static void test_an_abandoned_step(void **state) {
    (void)state;
    for (int size = 1; size <= 3; size++) check_abandoned(size);
}

/* A text read twice, and twice more with another end, whose last row reads a document that goes
 * between the two, in a pool that keeps rows or keeps none; the hash of all last rows' logits. */
static uint64_t run_reusing(int size, int stages, enum dtype kv_dtype, int kept_blocks) {
    enum { ROWS = 300, CHUNKS = ROWS / 4 + 1, VOCAB = 512 };
    static struct neighbor_tokens sets[CHUNKS];
    static int32_t tokens[ROWS], found[2 * 16 + CHUNKS];
    static float host[VOCAB];
    struct error e = {0};
    struct config c;
    struct opened_model o;
    struct session_pool *pool;
    uint64_t hash = 0;
    configure(&c, size, stages);
    assert_int_equal(opened_model_open(&o, &c, "tests/golden/retro/case_b", NULL, &e), STATUS_OK);
    config_free(&c);
    const struct model_info *info = model_info(o.model);
    assert_true(info->padded_vocab <= VOCAB && info->retrieved_length <= 16 &&
                info->chunk_length == 4);
    struct session_limits limits = {.max_sessions = 1,
                                    .max_tokens = ROWS,
                                    .max_step_rows = ROWS,
                                    .max_logit_rows = 1,
                                    .max_neighbors = 2,
                                    .kv_dtype = kv_dtype,
                                    .kept_blocks = kept_blocks};
    assert_int_equal(session_pool_open(&pool, o.model, &limits, &e), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(found); i++) found[i] = (int32_t)(i * 7 % 100);
    for (int i = 0; i < ROWS; i++) tokens[i] = i * i % 200;
    for (int j = 0; j < CHUNKS; j++) sets[j] = (struct neighbor_tokens){found + j, j % 3};
    static const int reused[] = {0, ROWS - 1, ROWS - 20, ROWS - 20}, found_chunks[] = {0, 1, 1, 1};
    for (int i = 0; i < 4; i++) {
        struct session *s;
        struct tensor logits;
        if (i == 2) tokens[ROWS - 20]++; /* and the next one has it, too */
        struct session_text text = {.ids = tokens, .n = ROWS - 1, .neighbors = sets};
        assert_int_equal(session_open(&s, pool, grid_make(GRID_END, ROWS, 4), &e), STATUS_OK);
        if (i == 2) session_read_document(s, 9, ROWS - 1);
        assert_int_equal(session_reuse(s, &text), kept_blocks ? reused[i] : 0);
        struct step_item item = {.session = s,
                                 .tokens = tokens + session_length(s),
                                 .n_tokens = ROWS - session_length(s),
                                 .neighbors = sets + session_next_chunk(s),
                                 .n_logits = 1};
        if (session_step(pool, &item, 1, &logits, &e)) fail_msg("%s", e.text);
        backend_download(o.backend, host, logits.data, (size_t)info->padded_vocab * sizeof *host);
        assert_int_equal(backend_sync(o.backend, &e), STATUS_OK);
        hash = hash_bytes(host, (size_t)info->padded_vocab * sizeof *host, hash);
        assert_int_equal(session_pool_chunks(pool).found, kept_blocks ? found_chunks[i] : 0);
        if (i == 2) session_pool_forget(pool, &(uint64_t){9}, 1);
        session_close(s);
    }
    session_pool_close(pool);
    opened_model_close(&o);
    return hash;
}

/* Every rank has its part of the rows that are taken over: the same logits, bit by bit, as when all
 * are computed. */
static void test_reused_rows(void **state) {
    (void)state;
    for (int size = 1; size <= 2; size++)
        for (int stages = 1; stages <= 3; stages++)
            for (int narrow = 0; narrow <= 1; narrow++) {
                enum dtype kv_dtype = narrow ? DTYPE_INT8 : DTYPE_F32;
                assert_int_equal(run_reusing(size, stages, kv_dtype, 10),
                                 run_reusing(size, stages, kv_dtype, 0));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_parallel),   cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_micro_batches),     cmocka_unit_test(test_uneven_split),
        cmocka_unit_test(test_too_many_ranks),    cmocka_unit_test(test_refused_pool),
        cmocka_unit_test(test_an_abandoned_step), cmocka_unit_test(test_reused_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
