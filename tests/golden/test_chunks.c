/* tests/golden/test_chunks.c: neighbours of a chunk that were encoded once are read again where the
 * same chunk comes with the same neighbours, and nowhere else: the logits have the same bits as
 * when they are encoded anew, and what read a document goes with it. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session_private.h"
#include "tests/folder.h"

enum {
    ROWS = 60,
    MORE = 8, /* rows of an answer */
    SESSIONS = 3,
    NEIGHBORS = 2,
    LETTERS = 40,
    CHUNKS = ROWS + MORE,
    VOCAB = 512
};

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool, *plain; /* that keeps chunks, and that keeps nothing */
    const struct model_info *info;
};

/* A session's ids, and the neighbours of its chunks. */
struct text {
    int32_t ids[ROWS + MORE];
    struct neighbor_tokens sets[CHUNKS];
    int32_t *found; /* [CHUNKS, NEIGHBORS, r] */
    struct grid grid;
    uint32_t scope;
    uint64_t document; /* that all of it reads; 0: none */
};

static struct session_pool *open_pool(struct model *model, enum dtype kv_dtype, int kept) {
    struct error e = {0};
    struct session_pool *pool;
    struct session_limits limits = {.max_sessions = SESSIONS,
                                    .max_tokens = ROWS + MORE,
                                    .max_step_rows = ROWS + MORE,
                                    .max_draft_rows = MORE,
                                    .max_logit_rows = SESSIONS,
                                    .max_neighbors = NEIGHBORS,
                                    .kv_dtype = kv_dtype,
                                    .kept_blocks = kept};
    if (session_pool_open(&pool, model, &limits, &e)) fail_msg("%s", e.text);
    return pool;
}

static void fixture_open(struct fixture *f, enum dtype kv_dtype) {
    struct error e = {0};
    struct model_options options = {.convert = true, .dtype = DTYPE_F32};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, "tests/golden/retro/case_b", f->backend, f->comm, &options, &e))
        fail_msg("%s", e.text);
    f->info = model_info(f->model);
    assert_true(f->info->padded_vocab <= VOCAB);
    f->pool = open_pool(f->model, kv_dtype, 20);
    f->plain = open_pool(f->model, kv_dtype, 0);
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->pool);
    session_pool_close(f->plain);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* Chunks end at the end of the first ROWS rows. */
static void text_open(struct text *text, const struct model_info *info) {
    int r = info->retrieved_length;
    *text = (struct text){.grid = grid_make(GRID_END, ROWS, info->chunk_length)};
    text->found = calloc((size_t)CHUNKS * NEIGHBORS * (size_t)r, sizeof *text->found);
    for (int i = 0; i < ROWS + MORE; i++) text->ids[i] = (i * i + i / 9) % LETTERS;
    for (int j = 0; j < CHUNKS; j++) {
        int32_t *ids = text->found + j * NEIGHBORS * r;
        for (int i = 0; i < NEIGHBORS * r; i++) ids[i] = (i * 5 + j * 11) % LETTERS;
        text->sets[j] = (struct neighbor_tokens){ids, NEIGHBORS};
    }
}

static struct session *open_session(struct session_pool *pool, const struct text *text, int known) {
    struct error e = {0};
    struct session *session;
    assert_int_equal(session_open(&session, pool, text->grid, &e), STATUS_OK);
    session_set_scope(session, text->scope);
    if (text->document != 0) session_read_document(session, text->document, 0);
    session_reuse(session,
                  &(struct session_text){.ids = text->ids, .n = known, .neighbors = text->sets});
    return session;
}

/* The logits of the session's row before `end`, to which it reads in one step. */
static void read_to(struct fixture *f, struct session *session, const struct text *text, int end,
                    float last[VOCAB]) {
    struct error e = {0};
    struct tensor logits;
    int done = session_length(session);
    struct step_item item = {.session = session,
                             .tokens = text->ids + done,
                             .n_tokens = end - done,
                             .neighbors = text->sets + session_next_chunk(session),
                             .n_logits = 1};
    if (session_step(session->pool, &item, 1, &logits, &e)) fail_msg("%s", e.text);
    memset(last, 0, VOCAB * sizeof *last);
    backend_download(f->backend, last, logits.data, (size_t)f->info->padded_vocab * sizeof *last);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
}

/* Reads the text's first ROWS rows, and MORE one by one, in a pool: how many chunks were encoded.
 */
static int64_t read_in(struct fixture *f, struct session_pool *pool, const struct text *text,
                       float last[VOCAB], float end[VOCAB]) {
    int64_t before = session_pool_chunks(pool).encoded;
    struct session *session = open_session(pool, text, ROWS - 1);
    read_to(f, session, text, ROWS, last);
    for (int row = ROWS + 1; row <= ROWS + MORE; row++) read_to(f, session, text, row, end);
    session_close(session);
    return session_pool_chunks(pool).encoded - before;
}

/* The same in both pools, which say the same: how many chunks the one that keeps them encoded. */
static int64_t read_text(struct fixture *f, const struct text *text) {
    float last[VOCAB], end[VOCAB], plain_last[VOCAB], plain_end[VOCAB];
    int64_t encoded = read_in(f, f->pool, text, last, end);
    read_in(f, f->plain, text, plain_last, plain_end);
    assert_memory_equal(last, plain_last, sizeof last);
    assert_memory_equal(end, plain_end, sizeof end);
    return encoded;
}

/* Slots of the pool's cross cache that have any row of any layer. */
static int count_written(const struct session_pool *pool) {
    const struct cross_cache *cache = &pool->cross;
    int n = 0;
    for (int slot = 0; slot < cache->n_slots; slot++) {
        bool holds = false;
        for (int i = 0; i < model_decoder(pool->model)->dims.n_layers; i++) {
            if (cache->k[i].data == NULL) continue;
            size_t bytes =
                (size_t)cache->slot_rows * (size_t)cache->k[i].cols * dtype_bytes(cache->dtype);
            const char *k = tensor_rows(cache->k[i], slot * cache->slot_rows, 1).data,
                       *v = tensor_rows(cache->v[i], slot * cache->slot_rows, 1).data;
            for (size_t at = 0; at < bytes; at++) holds = holds || k[at] != 0 || v[at] != 0;
        }
        n += holds;
    }
    return n;
}

static void note_known(void *context, uint64_t document) {
    uint64_t *wanted = context;
    if (*wanted == document) *wanted = 0;
}

/* Whether rows of the pool are said to depend on the document. */
static bool knows_document(const struct session_pool *pool, uint64_t document) {
    session_pool_documents(pool, note_known, &document);
    return document == 0;
}

static int chunks_of(const struct text *text, int rows) { return grid_complete(text->grid, rows); }

static void check_found(enum dtype kv_dtype) {
    struct fixture f;
    struct text text;
    fixture_open(&f, kv_dtype);
    text_open(&text, f.info);
    int all = chunks_of(&text, ROWS + MORE);
    assert_int_equal(read_text(&f, &text), all);
    /* The prompt's last row closes a chunk that is there, as are those of the answer. */
    assert_int_equal(read_text(&f, &text), 0);
    assert_true(session_pool_chunks(f.pool).found > 0 && session_pool_chunks(f.pool).kept > 0);
    assert_int_equal(session_pool_chunks(f.plain).found, 0);
    assert_int_equal(session_pool_chunks(f.plain).kept, 0);

    /* Another scope, another id before, other neighbours: nothing of it is found. */
    text.scope = 3;
    assert_int_equal(read_text(&f, &text), all);
    assert_int_equal(read_text(&f, &text), 0);
    text.scope = 0;
    text.ids[2]++;
    assert_int_equal(read_text(&f, &text), all);
    text.ids[2]--;
    text.found[(chunks_of(&text, ROWS) - 1) * NEIGHBORS * f.info->retrieved_length]++;
    assert_true(read_text(&f, &text) > 0);
    text.sets[chunks_of(&text, ROWS) - 1].k--;
    assert_true(read_text(&f, &text) > 0);
    text.sets[chunks_of(&text, ROWS) - 1].k = 0;
    read_text(&f, &text);
    free(text.found);
    fixture_close(&f);
}

static void test_found(void **state) {
    (void)state;
    check_found(DTYPE_F32);
    check_found(DTYPE_F16);
    check_found(DTYPE_INT8);
}

/* Where a text parts from an earlier one, the chunk before is encoded by the second of those that
 * part there, and found by the third. */
static void test_where_texts_part(void **state) {
    struct fixture f;
    struct text text;
    float last[VOCAB];
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    static const int encoded[] = {1, 0, 0};
    read_text(&f, &text);
    for (int i = 0; i < 3; i++) {
        int64_t before = session_pool_chunks(f.pool).encoded;
        text.ids[ROWS / 2] = LETTERS + i;
        struct session *session = open_session(f.pool, &text, ROWS / 2);
        read_to(&f, session, &text, ROWS / 2 + 1, last);
        assert_int_equal(session_pool_chunks(f.pool).encoded - before, encoded[i]);
        session_close(session);
    }
    free(text.found);
    fixture_close(&f);
}

/* Guessed rows are part of what follows only where they are kept. */
static void test_drafts(void **state) {
    struct fixture f;
    struct text text;
    struct error e = {0};
    struct tensor logits;
    float last[VOCAB], end[VOCAB];
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    read_text(&f, &text);
    for (int kept = 0; kept <= 2; kept++) {
        int32_t rows[] = {text.ids[ROWS], text.ids[ROWS + 1], text.ids[ROWS + 2]};
        struct session *session = open_session(f.pool, &text, ROWS - 1);
        read_to(&f, session, &text, ROWS, last);
        for (int i = 1 + kept; i < 3; i++) rows[i] = (rows[i] + 1) % LETTERS;
        struct step_item item = {
            .session = session, .tokens = rows, .n_tokens = 3, .n_logits = 1, .n_drafts = 2};
        assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
        session_settle(session, rows + 1, kept);
        read_to(&f, session, &text, ROWS + MORE, end);
        session_close(session);
        assert_int_equal(read_text(&f, &text), 0);
    }
    free(text.found);
    fixture_close(&f);
}

static bool abandon_later(void *context) {
    int *left = context;
    (*left)--;
    return *left < 0;
}

/* Chunks of a step that was never computed to its end are not found. */
static void test_abandoned(void **state) {
    struct fixture f;
    struct text text;
    struct error e = {0};
    struct tensor logits;
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    for (int layers = 0; layers < f.info->n_layers; layers++) {
        int left = layers;
        session_pool_watch(f.pool, abandon_later, &left);
        struct session *session = open_session(f.pool, &text, ROWS - 1);
        struct step_item item = {
            .session = session, .tokens = text.ids, .n_tokens = ROWS, .neighbors = text.sets};
        assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_CANCELLED);
        session_close(session);
        assert_int_equal(session_pool_chunks(f.pool).kept, 0);
    }
    int many = 1 << 20;
    session_pool_watch(f.pool, abandon_later, &many);
    assert_int_equal(read_text(&f, &text), chunks_of(&text, ROWS + MORE));
    free(text.found);
    fixture_close(&f);
}

/* More texts than slots: the least recently used go first, and what is found is right. */
static void test_slots_are_few(void **state) {
    enum { TEXTS = 30 };
    struct fixture f;
    struct text text;
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    for (int i = 0; i < TEXTS; i++) {
        text.ids[0] = i;
        assert_true(read_text(&f, &text) > 0);
        assert_in_range(session_pool_chunks(f.pool).kept, 1, f.pool->cross.n_slots);
    }
    assert_int_equal(read_text(&f, &text), 0);
    text.ids[0] = 0;
    assert_true(read_text(&f, &text) > 0);
    free(text.found);
    fixture_close(&f);
}

/* Chunks that read a document go with it, and are overwritten, also what a shorter chunk has left
 * behind itself; the rest stays. */
static void test_documents(void **state) {
    struct fixture f;
    struct text text, other;
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    text_open(&other, f.info);
    text.document = 5;
    other.document = 6;
    other.ids[1]++;
    read_text(&f, &text);
    read_text(&f, &other);
    session_pool_forget(f.pool, &(uint64_t){7}, 1);
    assert_int_equal(read_text(&f, &text), 0);
    assert_int_equal(read_text(&f, &other), 0);
    assert_true(knows_document(f.pool, 5) && knows_document(f.pool, 6));

    session_pool_forget(f.pool, &(uint64_t){5}, 1);
    assert_false(knows_document(f.pool, 5));
    assert_int_equal(read_text(&f, &other), 0);
    session_pool_forget(f.pool, &(uint64_t){6}, 1);
    assert_int_equal(count_written(f.pool), 0);
    assert_int_equal(session_pool_chunks(f.pool).kept, 0);
    text.document = other.document = 0;
    assert_true(read_text(&f, &text) > 0);
    assert_true(read_text(&f, &other) > 0);

    /* A slot that another chunk has taken, which is shorter. */
    session_pool_forget(f.pool, &(uint64_t){5}, 1);
    for (int i = 0; i < 2; i++) {
        text.document = 8 + (uint64_t)i;
        text.ids[0]++;
        for (int j = 0; j < CHUNKS; j++) text.sets[j].k = NEIGHBORS - i;
        for (int j = 0; j < 20; j++) {
            text.ids[3]++;
            read_text(&f, &text);
        }
    }
    assert_false(knows_document(f.pool, 8));
    session_pool_forget(f.pool, &(uint64_t){9}, 1);
    assert_int_equal(count_written(f.pool), 0);
    free(text.found);
    free(other.found);
    fixture_close(&f);
}

/* A session that reads the document goes on, and leaves nothing of it. */
static void test_a_session_goes_on(void **state) {
    struct fixture f;
    struct text text;
    float last[VOCAB], plain[VOCAB];
    (void)state;
    fixture_open(&f, DTYPE_F32);
    text_open(&text, f.info);
    text.document = 5;
    struct session *session = open_session(f.pool, &text, ROWS - 1),
                   *alone = open_session(f.plain, &text, ROWS - 1);
    read_to(&f, session, &text, ROWS, last);
    read_to(&f, alone, &text, ROWS, plain);
    session_pool_forget(f.pool, &(uint64_t){5}, 1);
    assert_int_equal(count_written(f.pool), 1);
    read_to(&f, session, &text, ROWS + 1, last);
    read_to(&f, alone, &text, ROWS + 1, plain);
    assert_memory_equal(last, plain, sizeof last);
    read_to(&f, session, &text, ROWS + MORE, last);
    session_close(session);
    session_close(alone);
    assert_int_equal(session_pool_chunks(f.pool).kept, 0);
    assert_int_equal(count_written(f.pool), 0);
    free(text.found);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),
                                       cmocka_unit_test(test_where_texts_part),
                                       cmocka_unit_test(test_drafts),
                                       cmocka_unit_test(test_abandoned),
                                       cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_slots_are_few),
                                       cmocka_unit_test(test_a_session_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
