/* tests/golden/test_prefix.c: rows that sessions take over from earlier ones, and rows that were
 * guessed ahead, are the bits that they would compute: random texts that begin alike, at once and
 * one after the other, with right and wrong drafts, in a cache that is too small for all of them,
 * with neighbours, sources, windows. The reference is a pool that keeps nothing and drafts
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "retro/run/session/session.h"
#include "tests/folder.h"

enum {
    TEXTS = 40,   /* of one run */
    LENGTH = 420, /* rows of a session */
    SESSIONS = 4, /* at once */
    STEP_ROWS = 600,
    LETTERS = 40, /* ids that texts are made of */
    CHUNKS = LENGTH / 4 + 1,
    NEIGHBORS = 2,
    SOURCE = 30,
    DRAFTS = 40, /* of one session in a step */
};

/* A block, as a file has it. */
struct stored {
    struct block_address before, address;
    uint64_t base;
    int32_t ids[ATTENTION_BLOCK], *read;
    int n;
    char *image;
};

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *kept, *plain;
    const struct model_info *info;
    int64_t reused, drafted, kept_drafts;
    struct stored *stored; /* [n_stored] what the kept pool's blocks were, in the order they came */
    int n_stored, room;
    int64_t loaded;     /* rows that sessions took from these */
    bool loads, stores; /* whether they do, and whether blocks are noted */
};

/* A text, what it reads, and the logits that the pool without a cache gives. */
struct text {
    int32_t ids[LENGTH], source[SOURCE];
    int n, prompt, n_source;
    struct grid grid;
    int32_t *found; /* [CHUNKS, NEIGHBORS, r] */
    struct neighbor_tokens sets[CHUNKS];
    float *expected; /* [n, V] */
    struct session *session;
    bool gone; /* it leaves before its drafts are settled */
};

static unsigned random_below(unsigned *seed, int below) {
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 8) % (unsigned)below;
}

static struct session_pool *open_pool(const struct fixture *f, enum dtype dtype, int kept_blocks,
                                      int kept_states) {
    struct error e = {0};
    struct session_pool *pool;
    struct session_limits limits = {.max_sessions = SESSIONS,
                                    .max_tokens = LENGTH,
                                    .max_step_rows = STEP_ROWS,
                                    .max_logit_rows = STEP_ROWS,
                                    .max_neighbors = NEIGHBORS,
                                    .max_source = f->info->reads_source ? SOURCE : 0,
                                    .kv_dtype = dtype,
                                    .max_draft_rows = SESSIONS * DRAFTS,
                                    .kept_blocks = kept_blocks,
                                    .kept_states = kept_states};
    if (session_pool_open(&pool, f->model, &limits, &e)) fail_msg("%s", e.text);
    return pool;
}

static void fixture_open(struct fixture *f, const char *folder, enum dtype dtype, int kept_blocks,
                         int kept_states) {
    struct error e = {0};
    struct model_options o = {.convert = true, .dtype = dtype == DTYPE_INT8 ? DTYPE_F32 : dtype};
    *f = (struct fixture){0};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &o, &e))
        fail_msg("%s", e.text);
    f->info = model_info(f->model);
    f->kept = open_pool(f, dtype, kept_blocks, kept_states);
    f->plain = open_pool(f, dtype, 0, 0);
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->kept);
    session_pool_close(f->plain);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

/* Neighbours follow from the chunk's ids and the state of the collection, as those of a search do.
 */
static void find_neighbors(struct text *t, const struct model_info *info, int snapshot) {
    int r = info->retrieved_length;
    if (info->chunk_length == 0) return;
    t->found = calloc((size_t)CHUNKS * NEIGHBORS * (size_t)r, sizeof *t->found);
    for (int j = 0; j < grid_complete(t->grid, t->n); j++) {
        unsigned seed = (unsigned)snapshot;
        for (int i = grid_start(t->grid, j); i < grid_end(t->grid, j); i++)
            seed = seed * 31u + (unsigned)t->ids[i];
        int32_t *ids = t->found + j * NEIGHBORS * r;
        t->sets[j] = (struct neighbor_tokens){ids, (int)random_below(&seed, NEIGHBORS + 1)};
        for (int i = 0; i < NEIGHBORS * r; i++) ids[i] = (int32_t)random_below(&seed, LETTERS);
    }
}

/* Mostly an earlier text up to somewhere or to its end, then something new; sometimes with an edit
 * in the middle.
 */
static void make_text(struct text *t, const struct text *earlier, int n_earlier,
                      const struct model_info *info, unsigned *seed) {
    int shared = 0;
    *t = (struct text){.n = 2 + (int)random_below(seed, LENGTH - 2)};
    for (int i = 0; i < t->n; i++) t->ids[i] = (int32_t)random_below(seed, LETTERS);
    for (int i = 0; i < SOURCE; i++) t->source[i] = (int32_t)random_below(seed, 3);
    t->n_source = info->reads_source ? 1 + (int)random_below(seed, 3) : 0;
    if (n_earlier > 0 && random_below(seed, 8) > 0) {
        const struct text *from = &earlier[random_below(seed, n_earlier)];
        shared = (int)random_below(seed, min_int(from->n, t->n) + 1);
        if (random_below(seed, 3) == 0) shared = min_int(from->n, t->n);
        memcpy(t->ids, from->ids, (size_t)shared * sizeof *t->ids);
        memcpy(t->source, from->source, sizeof t->source);
        if (info->reads_source) t->n_source = from->n_source;
    }
    if (shared > 0 && random_below(seed, 4) == 0) t->ids[random_below(seed, shared)] ^= 1;
    t->prompt = 1 + (int)random_below(seed, t->n);
    t->grid = grid_make(random_below(seed, 2) ? GRID_END : GRID_START, t->prompt,
                        max_int(info->chunk_length, 1));
    find_neighbors(t, info, (int)random_below(seed, 6) == 0);
}

static struct step_item next_item(const struct text *t, int rows) {
    int at = session_length(t->session);
    bool source = session_wants_source(t->session);
    return (struct step_item){.session = t->session,
                              .tokens = t->ids + at,
                              .n_tokens = rows,
                              .neighbors = t->sets + session_next_chunk(t->session),
                              .n_logits = rows,
                              .source = source ? t->source : NULL,
                              .n_source = source ? t->n_source : 0};
}

static void expect_logits(struct fixture *f, struct text *t) {
    struct error e = {0};
    struct tensor logits;
    size_t bytes = (size_t)t->n * (size_t)f->info->padded_vocab * sizeof(float);
    t->expected = malloc(bytes);
    assert_int_equal(session_open(&t->session, f->plain, t->grid, &e), STATUS_OK);
    assert_int_equal(
        session_reuse(t->session, &(struct session_text){.ids = t->ids, .n = t->n - 1}), 0);
    struct step_item item = next_item(t, t->n);
    if (session_step(f->plain, &item, 1, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f->backend, t->expected, logits.data, bytes);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
    session_close(t->session);
}

/* Rows of a text in a step: certain ones, and drafts, of which the first `right` are the text's. */
struct drafted {
    int32_t ids[LENGTH];
    int at, certain, n, right;
};

/* How many rows more than `certain` close no chunk and have a place. */
static int most_drafts(const struct text *t, int certain) {
    int closes = session_closes(t->session, certain), n = 0;
    int most = min_int(DRAFTS, LENGTH - session_length(t->session) - certain);
    while (n < most && session_closes(t->session, certain + n + 1) == closes) n++;
    return n;
}

/* A slice of random size, and often drafts behind it that are wrong from somewhere on. */
static struct step_item draft_item(const struct text *t, struct drafted *rows, unsigned *seed) {
    int at = session_length(t->session);
    int certain = 1 + (int)random_below(seed, min_int(t->n - at, STEP_ROWS / SESSIONS - DRAFTS));
    int drafts = (int)random_below(seed, most_drafts(t, certain) + 1);
    if (random_below(seed, 3) == 0) drafts = 0;
    int right = min_int((int)random_below(seed, drafts + 1), t->n - at - certain);
    *rows = (struct drafted){.at = at, .certain = certain, .n = drafts, .right = right};
    memcpy(rows->ids, t->ids + at, (size_t)(certain + right) * sizeof *rows->ids);
    for (int i = certain + right; i < certain + drafts; i++)
        rows->ids[i] = (t->ids[min_int(at + i, LENGTH - 1)] + 1) % LETTERS;

    struct step_item item = next_item(t, certain + drafts);
    item.tokens = rows->ids;
    item.n_drafts = drafts;
    return item;
}

/* The next rows of all open sessions in one step. */
static void step_together(struct fixture *f, struct text **open, int n, unsigned *seed) {
    struct step_item items[SESSIONS];
    struct drafted rows[SESSIONS];
    struct error e = {0};
    struct tensor logits;
    int first = 0, vocab = f->info->padded_vocab;
    static float host[LENGTH * 512];
    assert_true(vocab <= 512);
    for (int i = 0; i < n; i++) items[i] = draft_item(open[i], &rows[i], seed);
    if (session_step(f->kept, items, n, &logits, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        int true_rows = rows[i].certain + rows[i].right;
        size_t row = (size_t)vocab * sizeof(float), bytes = (size_t)true_rows * row;
        backend_download(f->backend, host, tensor_rows(logits, first, true_rows).data, bytes);
        assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
        assert_memory_equal(host, open[i]->expected + (size_t)rows[i].at * (size_t)vocab, bytes);
        first += items[i].n_tokens;
    }
    for (int i = 0; i < n; i++) {
        open[i]->gone = random_below(seed, 50) == 0;
        if (!open[i]->gone)
            session_settle(open[i]->session, rows[i].ids + rows[i].certain, rows[i].right);
        f->drafted += rows[i].n;
        f->kept_drafts += rows[i].right;
    }
}

/* Blocks outside of the pool. */

static void note_joined(void *context, const struct session_block *block) {
    struct fixture *f = context;
    if (!f->stores) return;
    if (f->n_stored == f->room) {
        f->room = 2 * f->room + 64;
        f->stored = realloc(f->stored, (size_t)f->room * sizeof *f->stored);
    }
    struct stored *stored = &f->stored[f->n_stored];
    size_t read = (size_t)block->n_read * sizeof *block->read;
    struct block_file file = {.before = block->before,
                              .base = block->base,
                              .ids = block->ids,
                              .n = block->n,
                              .read = block->read,
                              .n_read = block->n_read};
    *stored = (struct stored){.before = block->before,
                              .base = block->base,
                              .read = malloc(read + 1),
                              .n = block->n,
                              .image = malloc(session_block_bytes(f->kept, block->n))};
    block_file_address(&file, &stored->address);
    memcpy(stored->ids, block->ids, (size_t)block->n * sizeof *block->ids);
    if (read > 0) memcpy(stored->read, block->read, read);
    session_block_get(f->kept, block->block, block->n, stored->image);
    f->n_stored++;
}

static void note_left(void *context, int32_t block) {
    (void)context;
    assert_true(block >= 0);
}

/* The next block of the text that was stored; false: there is none with a row of it. */
static bool load_next(struct fixture *f, const struct text *t, const struct session_text *text) {
    struct block_address at = session_address(t->session);
    int best = -1, rows = 0, first = session_length(t->session);
    for (int i = 0; i < f->n_stored; i++) {
        const struct stored *stored = &f->stored[i];
        if (memcmp(&stored->before, &at, sizeof at) != 0 ||
            stored->base != session_base(t->session))
            continue;
        int n = session_agrees(t->session, text, first, stored->ids, stored->n, stored->read);
        if (n <= rows) continue;
        rows = n;
        best = i;
    }
    if (best < 0) return false;
    struct block_address address;
    bool whole = session_block_address(t->session, text, &at, first, &address);
    assert_int_equal(whole, text->n - first >= ATTENTION_BLOCK);
    if (rows == ATTENTION_BLOCK)
        assert_memory_equal(&address, &f->stored[best].address, sizeof address);
    struct loaded_block loaded = {
        .image = f->stored[best].image, .n = f->stored[best].n, .rows = rows};
    session_load_block(t->session, text, &loaded);
    f->loaded += rows;
    return rows == ATTENTION_BLOCK;
}

static void load_stored(struct fixture *f, struct text *t, const struct session_text *text) {
    session_share(t->session, text);
    if (session_find_more(t->session, text) > 0) return;
    while (load_next(f, t, text)) continue;
}

static void open_session(struct fixture *f, struct text *t) {
    struct error e = {0};
    assert_int_equal(session_open(&t->session, f->kept, t->grid, &e), STATUS_OK);
    session_set_origin(t->session, &(struct block_address){{7}});
    struct session_text text = {.ids = t->ids,
                                .n = t->n - 1,
                                .neighbors = t->sets,
                                .source = t->source,
                                .n_source = t->n_source};
    int found = session_find(t->session, &text);
    if (f->loads) load_stored(f, t, &text);
    int reused = session_reuse(t->session, &text);
    int length = session_length(t->session);
    assert_true(found % ATTENTION_BLOCK == 0 && found <= length && length < t->n);
    assert_true(reused == length || reused == length + t->n_source);
    f->reused += reused;
}

static void check_blocks(const struct fixture *f) {
    struct session_blocks b = session_pool_blocks(f->kept);
    assert_true(b.used >= 0 && b.used <= b.all && b.kept >= 0 && b.kept <= b.kept_most);
}

static void check_texts(struct fixture *f, struct text *texts, unsigned *seed) {
    struct text *open[SESSIONS];
    int n_open = 0, begun = 0;
    while (begun < TEXTS || n_open > 0) {
        while (begun < TEXTS && n_open < SESSIONS && (n_open == 0 || random_below(seed, 3) == 0)) {
            open_session(f, &texts[begun]);
            open[n_open] = &texts[begun];
            n_open++;
            begun++;
        }
        step_together(f, open, n_open, seed);
        for (int i = n_open - 1; i >= 0; i--) {
            bool leaves = open[i]->gone || random_below(seed, 20) == 0; /* a client goes */
            if (session_length(open[i]->session) < open[i]->n && !leaves) continue;
            session_close(open[i]->session);
            n_open--;
            open[i] = open[n_open];
        }
        check_blocks(f);
    }
    assert_int_equal(session_pool_blocks(f->kept).used, 0);
}

static void check_kept(const char *folder, enum dtype dtype, int kept_blocks, int kept_states) {
    struct fixture f;
    struct text *texts = calloc(TEXTS, sizeof *texts);
    unsigned seed = (unsigned)kept_blocks + 5;
    fixture_open(&f, folder, dtype, kept_blocks, kept_states);
    for (int i = 0; i < TEXTS; i++) {
        make_text(&texts[i], texts, i, f.info, &seed);
        expect_logits(&f, &texts[i]);
    }
    check_texts(&f, texts, &seed);
    assert_true(f.reused > 0 && f.kept_drafts > 20 && f.drafted - f.kept_drafts > 20);
    assert_true(kept_blocks > 100 || session_pool_blocks(f.kept).evicted > 0);
    for (int i = 0; i < TEXTS; i++) {
        free(texts[i].found);
        free(texts[i].expected);
    }
    free(texts);
    fixture_close(&f);
}

static void check_folder(const char *folder, enum dtype dtype, int kept_blocks) {
    check_kept(folder, dtype, kept_blocks, 0);
}

/* Layers with states: many are kept, few, and one that all texts are at odds over. */
static void test_states(void **state) {
    (void)state;
    check_kept("tests/golden/hf/qwen3_5_text", DTYPE_F32, 1000, 200);
    check_kept("tests/golden/hf/qwen3_next", DTYPE_BF16, 1000, 7);
    check_kept("tests/golden/hf/qwen3_next_stacked", DTYPE_F32, 20, 5);
    check_kept("tests/golden/hf/qwen3_5_moe_stacked", DTYPE_F16, 9, 1);
    check_kept("tests/golden/hf/lfm2_biases", DTYPE_F32, 1000, 200);
    check_kept("tests/golden/hf/lfm2_moe", DTYPE_BF16, 20, 5);
    check_kept("tests/golden/hf/lfm3_biases", DTYPE_F32, 1000, 200);
    check_kept("tests/golden/hf/olmo_hybrid", DTYPE_F32, 20, 5);
    check_kept("tests/golden/hf/granite_hybrid", DTYPE_F32, 1000, 200);
    check_kept("tests/golden/hf/granite_hybrid_rope", DTYPE_BF16, 20, 5);
    check_kept("tests/golden/hf/nemotron_h", DTYPE_F32, 1000, 200);
    check_kept("tests/golden/hf/nemotron_h_moe", DTYPE_F16, 9, 1);
    check_kept("tests/golden/hf/qwen3_next", DTYPE_INT8, 20, 5);
}

/* A second pool, as another process has it, takes the blocks of a first one. */
static void check_stored(const char *folder, enum dtype dtype, int kept_blocks) {
    struct fixture f;
    struct text *texts = calloc(TEXTS, sizeof *texts);
    struct error e = {0};
    unsigned seed = 11;
    fixture_open(&f, folder, dtype, kept_blocks, 0);
    assert_int_equal(session_pool_has_blocks(f.kept, &e), STATUS_OK);
    const struct session_watch watch = {note_joined, note_left, &f};
    session_pool_watch_blocks(f.kept, &watch);
    for (int i = 0; i < TEXTS; i++) {
        make_text(&texts[i], texts, i, f.info, &seed);
        expect_logits(&f, &texts[i]);
    }
    f.stores = true;
    check_texts(&f, texts, &seed);
    session_pool_close(f.kept);
    f.kept = open_pool(&f, dtype, kept_blocks, 0);
    session_pool_watch_blocks(f.kept, &watch);
    f.stores = false;
    f.loads = true;
    check_texts(&f, texts, &seed);
    assert_true(f.n_stored > 20 && f.loaded > 1000);
    for (int i = 0; i < f.n_stored; i++) {
        free(f.stored[i].read);
        free(f.stored[i].image);
    }
    for (int i = 0; i < TEXTS; i++) {
        free(texts[i].found);
        free(texts[i].expected);
    }
    free(f.stored);
    free(texts);
    fixture_close(&f);
}

static void test_stored(void **state) {
    (void)state;
    check_stored("tests/golden/hf/llama3", DTYPE_F16, 1000);
    check_stored("tests/golden/hf/gemma2", DTYPE_F32, 2);
    check_stored("tests/golden/retro/case_b", DTYPE_F32, 1000);
    check_stored("tests/golden/retro/case_c", DTYPE_BF16, 5);
    check_stored("tests/golden/hf/gemma4_keys", DTYPE_F16, 1000);
    check_stored("tests/golden/hf/gemma4", DTYPE_INT8, 20);
    check_stored("tests/golden/hf/llama3", DTYPE_INT8, 20);
    check_stored("tests/golden/retro/case_b", DTYPE_INT8, 1000);
}

static void test_decoders(void **state) {
    (void)state;
    check_folder("tests/golden/hf/llama3", DTYPE_F16, 1000);
    check_folder("tests/golden/hf/gemma2", DTYPE_F32, 9);
    check_folder("tests/golden/hf/mixtral", DTYPE_BF16, 20);
    check_folder("tests/golden/hf/phi3", DTYPE_F16, 1);
    check_folder("tests/golden/hf/llama3", DTYPE_INT8, 1000);
    check_folder("tests/golden/hf/gemma2", DTYPE_INT8, 9);
    check_folder("tests/golden/hf/gpt_oss_mxfp4", DTYPE_BF16, 20);
    check_folder("tests/golden/hf/gemma4", DTYPE_F16, 1000);
    check_folder("tests/golden/hf/gemma4_text", DTYPE_INT8, 9);
    check_folder("tests/golden/hf/llama4", DTYPE_F16, 20);
    check_folder("tests/golden/hf/hunyuan_v1_moe", DTYPE_BF16, 1000);
    check_folder("tests/golden/hf/deepseek_v2", DTYPE_F16, 20);
    check_folder("tests/golden/hf/deepseek_v3", DTYPE_F32, 1000);
}

static void test_neighbors(void **state) {
    (void)state;
    check_folder("tests/golden/retro/case_b", DTYPE_F32, 1000);
    check_folder("tests/golden/retro/case_b", DTYPE_F16, 7);
    check_folder("tests/golden/retro/case_c", DTYPE_BF16, 15);
    check_folder("tests/golden/retro/case_b", DTYPE_INT8, 20);
}

static void test_sources(void **state) {
    (void)state;
    check_folder("tests/golden/t5/case_d", DTYPE_F32, 1000);
    check_folder("tests/golden/hf/t5_v1_0", DTYPE_F16, 6);
    check_folder("tests/golden/t5/case_d", DTYPE_INT8, 20);
}

/* The logits of the last row of a text that is read with session_reuse. */
static void read_last(struct fixture *f, struct session_pool *pool, struct text *t, int expected,
                      float *last) {
    struct error e = {0};
    struct tensor logits;
    assert_int_equal(session_open(&t->session, pool, t->grid, &e), STATUS_OK);
    assert_int_equal(
        session_reuse(t->session, &(struct session_text){.ids = t->ids, .n = t->n - 1}), expected);
    struct step_item item = next_item(t, t->n - session_length(t->session));
    item.n_logits = 1;
    if (session_step(pool, &item, 1, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f->backend, last, logits.data, (size_t)f->info->padded_vocab * sizeof *last);
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
    session_close(t->session);
}

/* Rows that went through a file are the same, and what is pinned outlives everything else. */
static void check_images(const char *folder, enum dtype dtype, int kept_states) {
    enum { KEPT = 4, SAVED = 300, MOST_VOCAB = 512 };
    struct fixture f;
    struct text t, others;
    struct error e = {0};
    float expected[MOST_VOCAB], last[MOST_VOCAB];
    unsigned seed = 3;
    fixture_open(&f, folder, dtype, KEPT, kept_states);
    assert_true(f.info->padded_vocab <= MOST_VOCAB && session_has_image(f.kept));
    do make_text(&t, NULL, 0, f.info, &seed);
    while (t.n < SAVED + 50);
    read_last(&f, f.plain, &t, 0, expected);

    size_t bytes = session_image_bytes(f.plain, SAVED);
    char *image = malloc(bytes);
    struct tensor logits;
    struct session *s;
    struct step_item item = {.tokens = t.ids, .n_tokens = SAVED};
    assert_int_equal(session_open(&item.session, f.plain, t.grid, &e), STATUS_OK);
    assert_int_equal(session_step(f.plain, &item, 1, &logits, &e), STATUS_OK);
    assert_int_equal(session_image_get(item.session, image, &e), STATUS_OK);
    session_close(item.session);

    /* A pool that keeps no rows of others takes them too. */
    assert_int_equal(session_open(&t.session, f.plain, t.grid, &e), STATUS_OK);
    assert_int_equal(session_image_put(t.session, t.ids, SAVED, image, &e), STATUS_OK);
    item = next_item(&t, t.n - SAVED);
    item.n_logits = 1;
    if (session_step(f.plain, &item, 1, &logits, &e)) fail_msg("%s", e.text);
    backend_download(f.backend, last, logits.data, (size_t)f.info->padded_vocab * sizeof *last);
    assert_int_equal(backend_sync(f.backend, &e), STATUS_OK);
    assert_memory_equal(last, expected, (size_t)f.info->padded_vocab * sizeof *last);
    session_close(t.session);

    assert_int_equal(session_open(&s, f.kept, t.grid, &e), STATUS_OK);
    assert_int_equal(session_image_put(s, t.ids, SAVED, image, &e), STATUS_OK);
    session_pin(s);
    for (int i = 0; i < 5; i++) {
        make_text(&others, NULL, 0, f.info, &seed);
        others.ids[0] = (t.ids[0] + 1 + i) % LETTERS; /* or they begin alike by chance */
        read_last(&f, f.kept, &others, 0, last);
    }
    assert_true(session_pool_blocks(f.kept).evicted > 0);
    read_last(&f, f.kept, &t, SAVED, last);
    assert_memory_equal(last, expected, (size_t)f.info->padded_vocab * sizeof *last);
    free(image);
    fixture_close(&f);
}

static void test_images(void **state) {
    (void)state;
    check_images("tests/golden/hf/gemma2", DTYPE_F16, 0);
    check_images("tests/golden/hf/qwen3_next", DTYPE_F16, 2);
    check_images("tests/golden/hf/lfm2", DTYPE_F16, 2);
    check_images("tests/golden/hf/granite_hybrid", DTYPE_F16, 2);
    check_images("tests/golden/hf/nemotron_h_moe", DTYPE_F16, 2);
    check_images("tests/golden/hf/deepseek_v3", DTYPE_F16, 0);
    check_images("tests/golden/hf/gemma4", DTYPE_F16, 0);
    check_images("tests/golden/hf/llama4_text", DTYPE_INT8, 0);
    check_images("tests/golden/hf/gemma2", DTYPE_INT8, 0);
    check_images("tests/golden/hf/qwen3_next", DTYPE_INT8, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoders), cmocka_unit_test(test_neighbors),
        cmocka_unit_test(test_sources),  cmocka_unit_test(test_states),
        cmocka_unit_test(test_images),   cmocka_unit_test(test_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
