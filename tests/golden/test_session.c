/* tests/golden/test_session.c: what a session promises beyond the reference's logits: the same bits
 * alone or in any batch and however rows are split into steps, limits that touch nothing, chunks
 * without neighbours, zero-centred gamma. */
#include <stdlib.h>
#include <string.h>

#include "config/base/text.h"
#include "config/json/json_writer.h"
#include "retro/run/session/session.h"
#include "retro/weights/weights.h"
#include "tests/folder.h"

enum { MAX_SEQUENCES = 6, MAX_LENGTH = 48, MAX_CHUNKS = 16 };

struct fixture {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
    struct session_pool *pool;
};

/* A made-up sequence: prompt, what follows, and neighbours for every chunk; some chunks have none.
 */
struct sequence {
    int prompt, length;
    int32_t tokens[MAX_LENGTH];
    struct neighbor_tokens sets[MAX_CHUNKS];
    int32_t *ids;
    struct grid grid;
    struct session *session;
    float *logits; /* [length, V], rows filled as they are computed */
};

/* Keys and values of that type, and weights; beside int8 keys weights of f32. */
static void fixture_open(struct fixture *f, const char *folder, enum dtype dtype,
                         int max_step_rows) {
    struct error e = {0};
    struct model_options o = {.convert = true, .dtype = dtype == DTYPE_INT8 ? DTYPE_F32 : dtype};
    if (backend_open(&f->backend, "cpu", &(struct backend_options){0}, &e) ||
        comm_open_single(&f->comm, &e) ||
        model_open(&f->model, folder, f->backend, f->comm, &o, &e))
        fail_msg("%s", e.text);
    struct session_limits limits = {.max_sessions = MAX_SEQUENCES,
                                    .max_tokens = MAX_LENGTH,
                                    .max_step_rows = max_step_rows,
                                    .max_logit_rows = max_step_rows,
                                    .max_neighbors = 3,
                                    .kv_dtype = dtype};
    if (session_pool_open(&f->pool, f->model, &limits, &e)) fail_msg("%s", e.text);
}

static void fixture_close(struct fixture *f) {
    session_pool_close(f->pool);
    model_close(f->model);
    comm_close(f->comm);
    backend_close(f->backend);
}

static int32_t draw(unsigned *seed, int below) {
    *seed = *seed * 1103515245 + 12345;
    return (int32_t)((*seed >> 8) % (unsigned)below);
}

static void sequence_make(struct sequence *s, const struct model_info *info, unsigned seed,
                          int prompt, int length) {
    int per_chunk = 3 * info->retrieved_length;
    *s = (struct sequence){.prompt = prompt, .length = length};
    int chunk = info->chunk_length > 0 ? info->chunk_length : MAX_LENGTH;
    s->grid = grid_make(seed % 3 ? GRID_END : GRID_START, prompt, chunk);
    s->ids = malloc((size_t)(MAX_CHUNKS * per_chunk) * sizeof(int32_t));
    s->logits = calloc((size_t)length * (size_t)info->padded_vocab, sizeof(float));
    for (int i = 0; i < length; i++) s->tokens[i] = draw(&seed, info->vocab);
    for (int i = 0; i < MAX_CHUNKS * per_chunk; i++) s->ids[i] = draw(&seed, info->vocab);
    for (int j = 0; j < MAX_CHUNKS; j++)
        s->sets[j] = (struct neighbor_tokens){s->ids + j * per_chunk, draw(&seed, 4)};
}

static void sequence_free(struct sequence *s) {
    session_close(s->session);
    free(s->ids);
    free(s->logits);
}

static void sequence_open(struct sequence *s, struct fixture *f) {
    assert_int_equal(session_open(&s->session, f->pool, s->grid, NULL), STATUS_OK);
}

/* One step: the next rows[i] rows of each listed sequence; logits are kept. */
static void advance(struct fixture *f, struct sequence **list, const int *rows, int n) {
    struct step_item items[MAX_SEQUENCES];
    struct tensor logits;
    struct error e = {0};
    int vocab = model_info(f->model)->padded_vocab, at[MAX_SEQUENCES], total = 0;
    for (int i = 0; i < n; i++) {
        struct sequence *s = list[i];
        at[i] = session_length(s->session);
        items[i] = (struct step_item){.session = s->session,
                                      .tokens = s->tokens + at[i],
                                      .n_tokens = rows[i],
                                      .neighbors = s->sets + grid_complete(s->grid, at[i]),
                                      .n_logits = rows[i]};
    }
    if (session_step(f->pool, items, n, &logits, &e)) fail_msg("%s", e.text);
    assert_true(n == 0 || logits.cols == vocab);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)rows[i] * (size_t)vocab * sizeof(float);
        backend_download(f->backend, list[i]->logits + (size_t)at[i] * (size_t)vocab,
                         tensor_rows(logits, total, rows[i]).data, bytes);
        total += rows[i];
    }
    assert_int_equal(backend_sync(f->backend, &e), STATUS_OK);
}

/* The sequence alone: its prompt in slices of `slice`, then row by row. */
static void run_alone(struct fixture *f, struct sequence *s, int slice) {
    sequence_open(s, f);
    for (int at = 0; at < s->length;) {
        int rows = at < s->prompt ? min_int(slice, s->prompt - at) : 1;
        advance(f, &s, &rows, 1);
        at += rows;
    }
    session_close(s->session);
    s->session = NULL;
}

static void assert_same_bits(const struct sequence *a, const struct sequence *b, int vocab) {
    assert_memory_equal(a->logits, b->logits, (size_t)a->length * (size_t)vocab * sizeof(float));
}

/* Sequences enter one after the other, so prompts of one run beside decode rows of others at other
 * chunk phases. */
static void run_together(struct fixture *f, struct sequence *s, int n) {
    int entered = 0, left = n;
    for (int round = 0; left > 0; round++) {
        struct sequence *list[MAX_SEQUENCES];
        int rows[MAX_SEQUENCES], count = 0;
        if (entered < n && round % 2 == 0) {
            sequence_open(&s[entered], f);
            entered++;
        }
        for (int i = 0; i < entered; i++) {
            if (s[i].session == NULL) continue;
            int at = session_length(s[i].session);
            list[count] = &s[i];
            rows[count] = at < s[i].prompt ? min_int(3 + i, s[i].prompt - at) : 1;
            count++;
        }
        if (count > 0) advance(f, list, rows, count);
        for (int i = 0; i < entered; i++) {
            if (s[i].session == NULL || session_length(s[i].session) < s[i].length) continue;
            session_close(s[i].session);
            s[i].session = NULL;
            left--;
        }
    }
}

static void check_folder(const char *folder, enum dtype dtype) {
    static const int prompts[MAX_SEQUENCES] = {13, 1, 16, 7, 25, 3},
                     lengths[MAX_SEQUENCES] = {40, 20, 33, 48, 26, 12};
    struct fixture f;
    struct sequence alone[MAX_SEQUENCES], other[MAX_SEQUENCES];
    fixture_open(&f, folder, dtype, 64);
    const struct model_info *info = model_info(f.model);
    for (int i = 0; i < MAX_SEQUENCES; i++) {
        sequence_make(&alone[i], info, 7u + (unsigned)i, prompts[i], lengths[i]);
        sequence_make(&other[i], info, 7u + (unsigned)i, prompts[i], lengths[i]);
        run_alone(&f, &alone[i], alone[i].prompt);
    }
    run_together(&f, other, MAX_SEQUENCES);
    for (int i = 0; i < MAX_SEQUENCES; i++)
        assert_same_bits(&alone[i], &other[i], info->padded_vocab);
    for (int slice = 1; slice <= 9; slice += 4) {
        run_alone(&f, &other[4], slice);
        assert_same_bits(&alone[4], &other[4], info->padded_vocab);
    }
    for (int i = 0; i < MAX_SEQUENCES; i++) {
        sequence_free(&alone[i]);
        sequence_free(&other[i]);
    }
    fixture_close(&f);
}

static void test_batch_is_bitwise_alone(void **state) {
    (void)state;
    check_folder("tests/golden/retro/case_a", DTYPE_F32);
    check_folder("tests/golden/retro/case_b", DTYPE_F32);
    check_folder("tests/golden/retro/case_c", DTYPE_F32);
    check_folder("tests/golden/retro/case_e_legacy_raw_gate", DTYPE_F32);
    check_folder("tests/golden/retro/case_a", DTYPE_BF16);
    check_folder("tests/golden/retro/case_b", DTYPE_F16);
    check_folder("tests/golden/retro/case_a", DTYPE_INT8);
    check_folder("tests/golden/retro/case_c", DTYPE_INT8);
}

/* Windows, two rotary tables, norms of heads and after branches, soft-caps, parallel branches,
 * scales, sinks, experts in four bits, delta nets, short convolutions, state spaces, latents. */
static void test_batch_of_decoders_is_bitwise_alone(void **state) {
    (void)state;
    check_folder("tests/golden/hf/gemma2", DTYPE_F32);
    check_folder("tests/golden/hf/gemma3_text", DTYPE_BF16);
    check_folder("tests/golden/hf/gemma4", DTYPE_F32);
    check_folder("tests/golden/hf/gemma4_text", DTYPE_BF16);
    check_folder("tests/golden/hf/gemma4_keys", DTYPE_INT8);
    check_folder("tests/golden/hf/gemma4_moe", DTYPE_BF16);
    check_folder("tests/golden/hf/gemma4_moe_text", DTYPE_F32);
    check_folder("tests/golden/hf/llama4", DTYPE_F32);
    check_folder("tests/golden/hf/llama4_text", DTYPE_INT8);
    check_folder("tests/golden/hf/hunyuan_v1_moe", DTYPE_BF16);
    check_folder("tests/golden/hf/olmo2", DTYPE_F16);
    check_folder("tests/golden/hf/phi3", DTYPE_F32);
    check_folder("tests/golden/hf/gpt_neox_parallel", DTYPE_F32);
    check_folder("tests/golden/hf/granite", DTYPE_BF16);
    check_folder("tests/golden/hf/gpt_oss", DTYPE_F32);
    check_folder("tests/golden/hf/ministral3", DTYPE_F32);
    check_folder("tests/golden/hf/granite_swa", DTYPE_F32);
    check_folder("tests/golden/hf/granitemoeshared", DTYPE_BF16);
    check_folder("tests/golden/hf/hunyuan_v1_dense", DTYPE_F32);
    check_folder("tests/golden/hf/gpt_oss_mxfp4", DTYPE_BF16);
    check_folder("tests/golden/hf/qwen3_next", DTYPE_F32);
    check_folder("tests/golden/hf/deepseek_v2", DTYPE_F32);
    check_folder("tests/golden/hf/deepseek_v3", DTYPE_BF16);
    check_folder("tests/golden/hf/glm4_moe_lite", DTYPE_F16);
    check_folder("tests/golden/hf/mistral4", DTYPE_F32);
    check_folder("tests/golden/hf/olmoe", DTYPE_BF16);
    check_folder("tests/golden/hf/dots1", DTYPE_F32);
    check_folder("tests/golden/hf/afmoe", DTYPE_F32);
    check_folder("tests/golden/hf/youtu", DTYPE_BF16);
    check_folder("tests/golden/hf/qwen3_5", DTYPE_BF16);
    check_folder("tests/golden/hf/qwen3_5_text", DTYPE_F32);
    check_folder("tests/golden/hf/lfm2", DTYPE_F32);
    check_folder("tests/golden/hf/lfm2_moe", DTYPE_BF16);
    check_folder("tests/golden/hf/lfm3", DTYPE_F32);
    check_folder("tests/golden/hf/olmo_hybrid", DTYPE_BF16);
    check_folder("tests/golden/hf/granite_hybrid", DTYPE_F32);
    check_folder("tests/golden/hf/granite_hybrid_rope", DTYPE_BF16);
    check_folder("tests/golden/hf/nemotron_h_moe", DTYPE_F32);
    check_folder("tests/golden/hf/gemma2", DTYPE_INT8);
    check_folder("tests/golden/hf/llama", DTYPE_INT8);
    check_folder("tests/golden/hf/gpt_oss", DTYPE_INT8);
    check_folder("tests/golden/hf/qwen3_next", DTYPE_INT8);
    check_folder("tests/golden/hf/granite_hybrid", DTYPE_INT8);
}

/* A token's latent is all that a layer keeps of it. */
static void test_latents_are_one_row(void **state) {
    (void)state;
    struct fixture f;
    fixture_open(&f, "tests/golden/hf/deepseek_v3", DTYPE_F32, MAX_LENGTH);
    assert_int_equal(model_info(f.model)->cache_row_bytes, 3 * (24 + 8) * sizeof(float));
    fixture_close(&f);
}

/* More closed chunks in one step than the encoder takes at once give the bits of single steps. */
static void test_long_prompt_closes_many_chunks(void **state) {
    (void)state;
    struct fixture f;
    struct sequence one, many;
    fixture_open(&f, "tests/golden/retro/case_b", DTYPE_F32, MAX_LENGTH);
    const struct model_info *info = model_info(f.model);
    sequence_make(&one, info, 4, 47, 47);
    sequence_make(&many, info, 4, 47, 47);
    run_alone(&f, &one, 47);
    run_alone(&f, &many, 1);
    assert_same_bits(&one, &many, info->padded_vocab);
    sequence_free(&one);
    sequence_free(&many);
    fixture_close(&f);
}

static void test_limits_touch_nothing(void **state) {
    (void)state;
    struct fixture f;
    struct error e = {0};
    struct tensor logits;
    struct session *s, *extra[MAX_SEQUENCES];
    int32_t tokens[MAX_LENGTH + 1] = {0}, neighbour[3 * 16] = {0};
    struct neighbor_tokens sets[MAX_CHUNKS];
    fixture_open(&f, "tests/golden/retro/case_a", DTYPE_F32, 20);
    for (int i = 0; i < MAX_CHUNKS; i++) sets[i] = (struct neighbor_tokens){neighbour, 2};
    assert_int_equal(session_open(&s, f.pool, grid_make(GRID_END, 5, 8), &e), STATUS_OK);
    struct step_item item = {
        .session = s, .tokens = tokens, .n_tokens = 21, .neighbors = sets, .n_logits = 1};
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_TOO_LARGE);
    assert_non_null(strstr(e.text, "the limits are 20 and 20"));
    item.n_tokens = MAX_LENGTH + 1;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_TOO_LARGE);
    item.n_tokens = 5;
    sets[0].k = 4;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_TOO_LARGE);
    sets[0].k = 2;
    tokens[3] = 256;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    assert_non_null(strstr(e.text, "token 3 is id 256"));
    tokens[3] = -1;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    tokens[3] = 0;
    neighbour[17] = 1 << 30;
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_INVALID);
    neighbour[17] = 0;
    assert_int_equal(session_length(s), 0);
    assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_OK);
    assert_int_equal(session_length(s), 5);
    assert_int_equal(session_closes(s, 7), 0);
    assert_int_equal(session_closes(s, 8), 1);
    for (int i = 1; i < MAX_SEQUENCES; i++)
        assert_int_equal(session_open(&extra[i], f.pool, grid_make(GRID_END, 5, 8), &e), STATUS_OK);
    assert_int_equal(session_open(&extra[0], f.pool, grid_make(GRID_END, 5, 8), &e), STATUS_BUSY);
    session_close(s);
    assert_int_equal(session_open(&extra[0], f.pool, grid_make(GRID_END, 5, 8), &e), STATUS_OK);
    fixture_close(&f);
}

/* Says that nobody waits any more from its n-th question on. */
static bool abandoned_after(void *left) {
    int *n = left;
    if (*n == 0) return true;
    --*n;
    return false;
}

/* A step that nobody waits for ends between two layers; its session is closed, and nothing of it is
 * in the next one. */
static void test_an_abandoned_step(void **state) {
    (void)state;
    struct fixture f;
    struct sequence alone, s;
    struct error e = {0};
    struct tensor logits;
    fixture_open(&f, "tests/golden/retro/case_b", DTYPE_F32, 64);
    const struct model_info *info = model_info(f.model);
    sequence_make(&alone, info, 5, 20, 40);
    sequence_make(&s, info, 5, 20, 40);
    run_alone(&f, &alone, MAX_LENGTH);

    int parts = session_pool_parts(f.pool);
    assert_true(parts > 1);
    for (int layers = 0; layers < parts; layers++) {
        int left = layers;
        session_pool_watch(f.pool, abandoned_after, &left);
        sequence_open(&s, &f);
        struct step_item item = {.session = s.session,
                                 .tokens = s.tokens,
                                 .n_tokens = 20,
                                 .neighbors = s.sets,
                                 .n_logits = 1};
        assert_int_equal(session_step(f.pool, &item, 1, &logits, &e), STATUS_CANCELLED);
        assert_int_equal(left, 0);
        session_close(s.session);
    }

    int more = 1 << 20;
    session_pool_watch(f.pool, abandoned_after, &more);
    run_alone(&f, &s, MAX_LENGTH);
    assert_same_bits(&alone, &s, info->padded_vocab);
    sequence_free(&alone);
    sequence_free(&s);
    fixture_close(&f);
}

/* from/config.json with another value for one key, as to/config.json. */
static void write_config(const char *from, const char *to, const char *key, const char *value) {
    struct error e = {0};
    struct buffer text = {0};
    struct json_writer w;
    struct json *config;
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", from);
    if (json_parse_file(&config, path, &e)) fail_msg("%s", e.text);
    put_begin(&w, &text);
    put_object(&w);
    for (struct json_entry it = {0}; json_next(config, &it);) {
        if (strcmp(it.name.text, key) == 0) continue;
        put_key(&w, it.name.text);
        put_json(&w, it.value);
    }
    put_key(&w, key);
    put_raw(&w, (struct text_span){value, strlen(value)});
    put_object_end(&w);
    folder_write(to, "config.json", text.data, text.size);
    json_close(config);
    buffer_free(&text);
}

/* The folder's model with every norm weight stored minus one and the flag set: the same function
 * (spec 4.2). */
static void write_zero_centred(const char *from, const char *to) {
    struct error e = {0};
    struct buffer file = {0};
    struct weights *w;
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    if (file_read(path, 64 << 20, &file, &e) ||
        weights_open_memory(&w, file.data, file.size, path, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < weights_count(w); i++) {
        const struct stored_tensor *t = weights_at(w, i);
        if (!strstr(t->name, "norm") || !ends_with(t->name, "weight")) continue;
        float *data = (float *)(void *)(file.data + ((const char *)t->data - file.data));
        for (size_t j = 0; j < t->elements; j++) data[j] -= 1.0f;
    }
    weights_close(w);
    folder_write(to, "model.safetensors", file.data, file.size);
    buffer_free(&file);
    write_config(from, to, "layernorm_zero_centered_gamma", "true");
}

static void test_zero_centred_gamma(void **state) {
    (void)state;
    char folder[FOLDER_SIZE];
    struct fixture plain, centred;
    struct sequence a, b;
    folder_make(folder);
    write_zero_centred("tests/golden/retro/case_a", folder);
    fixture_open(&plain, "tests/golden/retro/case_a", DTYPE_F32, 48);
    fixture_open(&centred, folder, DTYPE_F32, 48);
    const struct model_info *info = model_info(plain.model);
    sequence_make(&a, info, 5, 21, 30);
    sequence_make(&b, info, 5, 21, 30);
    run_alone(&plain, &a, 21);
    run_alone(&centred, &b, 21);
    for (int i = 0; i < a.length * info->padded_vocab; i++)
        assert_float_equal(a.logits[i], b.logits[i], 1e-4); /* x - 1 + 1 rounds once */
    sequence_free(&a);
    sequence_free(&b);
    fixture_close(&plain);
    fixture_close(&centred);
    folder_remove(folder);
}

/* config.json and checkpoint that disagree are refused with the tensor's name. */
static void test_mismatch_is_named(void **state) {
    (void)state;
    char folder[FOLDER_SIZE];
    struct error e = {0};
    struct backend *b;
    struct comm *c;
    struct model *m;
    folder_make(folder);
    write_zero_centred("tests/golden/retro/case_a", folder);
    assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){0}, &e), STATUS_OK);
    assert_int_equal(comm_open_single(&c, &e), STATUS_OK);
    static const struct {
        const char *key;
        const char *value, *expect;
    } cases[] = {{"ffn_hidden_size", "96", "is [128, 32], config.json makes it [96, 32]"},
                 {"num_layers", "5", "not a layer number"},
                 {"num_layers", "7", "decoder.layers.6."},
                 {"hidden_size", "0", "allowed is 1"},
                 {"max_position_embeddings", "8", "exceeds the 8 learned positions"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        write_config("tests/golden/retro/case_a", folder, cases[i].key, cases[i].value);
        assert_int_not_equal(model_open(&m, folder, b, c, &(struct model_options){0}, &e),
                             STATUS_OK);
        if (!strstr(e.text, cases[i].expect))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].expect, e.text);
    }
    comm_close(c);
    backend_close(b);
    folder_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_is_bitwise_alone),
        cmocka_unit_test(test_batch_of_decoders_is_bitwise_alone),
        cmocka_unit_test(test_long_prompt_closes_many_chunks),
        cmocka_unit_test(test_latents_are_one_row),
        cmocka_unit_test(test_limits_touch_nothing),
        cmocka_unit_test(test_zero_centred_gamma),
        cmocka_unit_test(test_mismatch_is_named),
        cmocka_unit_test(test_an_abandoned_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
