/* tests/unit/test_gguf.c: the GGUF reader on good files and on every kind of damage, the types of
 * its tensors against the package gguf, and the folder that a file stands for. */
#include "retro/weights/gguf_folder.h"

#include <math.h>

#include "config/json/json_value.h"
#include "retro/weights/weights.h"
#include "tests/unit/gguf_build.h"

static void draft_llama(struct gguf_draft *d) {
    draft_word(d, "general.architecture", "llama");
    draft_u32(d, "llama.block_count", 2);
    draft_u32(d, "llama.embedding_length", 64);
    draft_u32(d, "llama.attention.head_count", 4);
    draft_u32(d, "llama.feed_forward_length", 96);
    draft_f32(d, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    draft_tensor(d, "token_embd.weight", 8, 10, 64, 10 * 2 * 34);
}

static struct gguf *open_draft(struct gguf_draft *d) {
    struct gguf *g;
    struct error e = {0};
    draft_build(d);
    if (gguf_open_memory(&g, d->file.data, d->file.size, "m", &e)) fail_msg("%s", e.text);
    return g;
}

static void expect_words(const struct error *e, const char *words) {
    if (strstr(e->text, words) == NULL) fail_msg("expected \"%s\" in: %s", words, e->text);
}

static void expect_refusal(const void *bytes, size_t size, const char *words) {
    struct gguf *g = (struct gguf *)&words;
    struct error e = {0};
    assert_int_not_equal(gguf_open_memory(&g, bytes, size, "m", &e), STATUS_OK);
    assert_null(g);
    expect_words(&e, words);
}

/* Builds and frees the draft. */
static void expect_draft_refusal(struct gguf_draft *d, const char *words) {
    draft_build(d);
    expect_refusal(d->file.data, d->file.size, words);
    draft_free(d);
}

static void test_values(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    int64_t whole;
    double number;
    struct text_span text;
    draft_key(&d, "small", GGUF_I8);
    draft_number(&d.keys, 0xfe, 1);
    draft_key(&d, "large", GGUF_U64);
    draft_number(&d.keys, UINT64_MAX, 8);
    draft_f32(&d, "real", 0.5f);
    draft_word(&d, "word", "abc");
    draft_list(&d, "list", GGUF_TEXT, 2);
    draft_text(&d.keys, "x");
    draft_text(&d.keys, "");
    draft_key(&d, "yes", GGUF_BOOL);
    draft_number(&d.keys, 1, 1);
    struct gguf *g = open_draft(&d);

    assert_int_equal(gguf_value_count(g), 6);
    assert_true(gguf_int(gguf_value_find(g, "small"), &whole));
    assert_int_equal(whole, -2);
    assert_false(gguf_int(gguf_value_find(g, "large"), &whole));
    assert_false(gguf_int(gguf_value_find(g, "real"), &whole));
    assert_true(gguf_number(gguf_value_find(g, "real"), &number) && number == 0.5);
    assert_true(gguf_number(gguf_value_find(g, "small"), &number) && number == -2);
    assert_true(gguf_text(gguf_value_find(g, "word"), &text) && text.size == 3 &&
                memcmp(text.text, "abc", 3) == 0);
    assert_true(gguf_int(gguf_value_find(g, "yes"), &whole) && whole == 1);
    assert_null(gguf_value_find(g, "absent"));
    assert_false(gguf_text(NULL, &text));

    struct gguf_items it = gguf_items_of(gguf_value_find(g, "list"));
    struct gguf_value item;
    assert_true(gguf_next(&it, &item) && gguf_text(&item, &text) && text.size == 1);
    assert_true(gguf_next(&it, &item) && gguf_text(&item, &text) && text.size == 0);
    assert_false(gguf_next(&it, &item));
    gguf_close(g);
    draft_free(&d);
}

static void test_tensors(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_tensor(&d, "b", 0, 2, 3, 24);
    draft_tensor(&d, "a", 8, 0, 64, 68);
    struct gguf *g = open_draft(&d);
    assert_int_equal(gguf_count(g), 2);
    const struct gguf_tensor *t = gguf_find(g, "b");
    assert_ptr_equal(t, gguf_at(g, 1));
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->bytes, 24);
    for (int i = 0; i < 24; i++) assert_int_equal(t->data[i], i);
    assert_string_equal(gguf_find(g, "a")->form->name, "Q8_0");
    assert_int_equal(gguf_find(g, "a")->bytes, 68);
    assert_null(gguf_find(g, "c"));
    gguf_close(g);
    draft_free(&d);
}

/* A good file cut off at any byte is refused, and never read past its end: the sanitizers watch. */
static void test_cut_off(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_llama(&d);
    draft_list(&d, "list", GGUF_TEXT, 1);
    draft_text(&d.keys, "x");
    draft_build(&d);
    size_t tail = 0; /* what pads the last tensor may be missing */
    while (d.file.size - tail > d.file.size - d.data.size + 10 * 2 * 34) tail++;
    for (size_t size = 0; size < d.file.size - tail; size++) {
        char *exact = malloc(size + 1);
        assert_non_null(exact);
        memcpy(exact, d.file.data, size);
        expect_refusal(exact, size, "m: ");
        free(exact);
    }
    draft_free(&d);
}

static void test_lying_keys(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    expect_refusal("GGUF\1\0\0\0", 8, "version 1");
    expect_refusal("GGUF\0\0\0\3", 8, "big-endian");
    expect_refusal("GGML\3\0\0\0", 8, "does not begin with");

    draft_u32(&d, "twice", 1);
    draft_u32(&d, "twice", 2);
    expect_draft_refusal(&d, "\"twice\": is there twice");
    d = (struct gguf_draft){0};
    draft_key(&d, "odd", (enum gguf_type)13);
    expect_draft_refusal(&d, "\"odd\": has an unknown type");
    d = (struct gguf_draft){0};
    draft_list(&d, "nested", GGUF_LIST, 1);
    expect_draft_refusal(&d, "\"nested\": is a list of an unknown type or of lists");
    d = (struct gguf_draft){0};
    draft_list(&d, "endless", GGUF_U32, (uint64_t)1 << 62);
    expect_draft_refusal(&d, "\"endless\": is longer than the file");
    d = (struct gguf_draft){0};
    draft_list(&d, "texts", GGUF_TEXT, UINT64_MAX);
    expect_draft_refusal(&d, "ends within a text");
    d = (struct gguf_draft){0};
    draft_key(&d, "word", GGUF_TEXT);
    draft_number(&d.keys, UINT64_MAX, 8);
    expect_draft_refusal(&d, "is a string of 18446744073709551615 bytes");
    d = (struct gguf_draft){0};
    draft_key(&d, "flag", GGUF_BOOL);
    draft_number(&d.keys, 2, 1);
    expect_draft_refusal(&d, "\"flag\": a truth value");
    d = (struct gguf_draft){0};
    draft_u32(&d, "general.alignment", 3);
    expect_draft_refusal(&d, "general.alignment");
    d = (struct gguf_draft){.n_keys = (uint64_t)1 << 60};
    expect_draft_refusal(&d, "1152921504606846976 keys");
    d = (struct gguf_draft){.n_tensors = 2};
    draft_u32(&d, "a", 1);
    expect_draft_refusal(&d, "2 tensors");
}

static void test_lying_tensors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t rows, cols;
        size_t bytes;
        const char *words;
    } cases[] = {
        {"t", 99, 2, 32, 64, "tensor \"t\" is of type 99; known are F32, F16"},
        {"t", 4, 2, 32, 64, "is of type 4"}, /* a type of the past */
        {"t", 8, 2, 33, 68, "tensor \"t\" has rows of 33, which are no whole blocks of Q8_0"},
        {"t", 12, 1, 32, 144, "no whole blocks of Q4_K"},
        {"t", 0, 1, (uint64_t)1 << 40, 4, "\"t\": a dimension"},
        {"t", 0, 1 << 30, 1 << 30, 4, "tensor \"t\" takes"},
        {"t", 0, 3, 3, 32, "tensor \"t\" takes 36 bytes from byte 0 on, the data holds 32"},
        {"", 0, 1, 1, 4, "a tensor's name of 0 bytes"},
        {"a name of more than sixty-four bytes, which is what the format allows", 0, 1, 1, 4,
         "a tensor's name of 69"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct gguf_draft d = {0};
        draft_tensor(&d, cases[i].name, cases[i].type, cases[i].rows, cases[i].cols,
                     cases[i].bytes);
        expect_draft_refusal(&d, cases[i].words);
    }
}

static void test_lying_places(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_tensor(&d, "t", 0, 0, 8, 32);
    draft_tensor(&d, "t", 0, 0, 8, 32);
    expect_draft_refusal(&d, "tensor \"t\" is there twice");

    /* The second at the first's place, and one with a hole before it. */
    for (uint64_t offset = 0; offset <= 64; offset += 64) {
        d = (struct gguf_draft){0};
        draft_tensor(&d, "t", 0, 0, 8, 32);
        draft_tensor(&d, "u", 0, 0, 8, 32);
        d.tensors.size -= 8;
        draft_number(&d.tensors, offset, 8);
        expect_draft_refusal(&d, "tensor \"u\" starts at byte");
    }
    d = (struct gguf_draft){0};
    draft_tensor(&d, "t", 0, 0, 1, 4);
    for (int i = 0; i < 4; i++) d.tensors.data[9 + i] = (char)(i ? 0 : 5);
    expect_draft_refusal(&d, "tensor \"t\" has 5 dimensions");
}

static struct gguf *open_golden(const char *name) {
    struct gguf *g;
    struct error e = {0};
    char path[200];
    snprintf(path, sizeof path, "tests/golden/gguf/%s", name);
    if (gguf_open(&g, path, &e)) fail_msg("%s", e.text);
    return g;
}

/* As int8 or int4: the same numbers where the type says so, and near where it does not. */
static void check_quantised(const struct gguf_tensor *t, const float *want, int n) {
    int8_t values[1024];
    uint16_t scales[32], minimums[32];
    float back[1024];
    struct deviation lost = {0};
    struct quantised_row to = {values, scales, minimums};
    assert_true(blocks_quantise(t->form->dtype, to, t->form, t->data, n, &lost));
    dequantise_row(back, t->form->dtype, to, n);
    double relative = deviation_relative(&lost), most[] = {0, 5e-4, 2e-2};
    if (relative > most[t->form->loss]) fail_msg("%s: relative error %g", t->name, relative);
    for (int i = 0; t->form->loss == BLOCKS_EXACT && i < n; i++)
        if (back[i] != want[i])
            fail_msg("%s[%d]: %g, expected %g", t->name, i, (double)back[i], (double)want[i]);
}

/* Rows of random bits of every type; what the package gguf makes of them is beside them. */
static void test_blocks(void **state) {
    (void)state;
    struct gguf *g = open_golden("blocks.gguf");
    int types = 0;
    for (int i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        char name[100];
        float got[512];
        if (block_form_plain(t->form)) continue;
        snprintf(name, sizeof name, "%s.f32", t->name);
        const struct gguf_tensor *want = gguf_find(g, name);
        assert_string_equal(t->form->name, t->name);
        assert_non_null(want);
        for (int row = 0; row < 2; row++) {
            const float *expected = (const float *)(const void *)want->data + row * 512;
            blocks_widen(got, t->form, t->data + (size_t)row * t->bytes / 2, 512);
            for (int k = 0; k < 512; k++)
                if (got[k] != expected[k])
                    fail_msg("%s[%d]: %g, not %g", t->name, k, (double)got[k], (double)expected[k]);
        }
        check_quantised(t, (const float *)(const void *)want->data, 512);
        types++;
    }
    assert_int_equal(types, 12);
    gguf_close(g);
}

/* Q3_K's largest product of scale and value is 128, which only a change of all signs brings into a
 * byte. */
static void test_turned_signs(void **state) {
    (void)state;
    uint8_t block[110] = {0};
    int8_t values[256];
    uint16_t scales[8];
    float want[256], back[256];
    struct quantised_row to = {values, scales, NULL};
    const struct block_form *form = block_form_find(11);
    block[108] = 0x66; /* f16 0.1 and a bit; all scales are -32, all values -4 */
    block[109] = 0x2e;
    assert_true(blocks_quantise(DTYPE_INT8, to, form, block, 256, NULL));
    blocks_widen(want, form, block, 256);
    dequantise_row(back, DTYPE_INT8, to, 256);
    assert_int_equal(values[0], -128);
    assert_true(want[0] > 12);
    assert_memory_equal(want, back, sizeof want);
}

/* Numbers 0 .. 15 and 16 .. 31 share bytes in the file, neighbours do here; exponents lie apart. */
static void test_mxfp4(void **state) {
    (void)state;
    enum { BLOCKS = 3, COLUMNS = BLOCKS * 32 };
    uint8_t row[BLOCKS * 17], values[COLUMNS / 2], exponents[BLOCKS];
    float want[COLUMNS], got[COLUMNS];
    struct quantised_row to = {values, (uint16_t *)(void *)exponents, NULL};
    const struct block_form *form = block_form_find(39);
    for (int i = 0; i < BLOCKS * 17; i++) row[i] = (uint8_t)(i * 89);
    row[0] = 127; /* 1, and the first number is a half */
    row[1] = 0x21;
    row[17] = 0;
    row[34] = 252;
    assert_int_equal(form->dtype, DTYPE_MXFP4);
    blocks_widen(want, form, row, COLUMNS);
    assert_true(want[0] == 0.5f && want[16] == 1);
    assert_true(blocks_quantise(DTYPE_MXFP4, to, form, row, COLUMNS, NULL));
    dequantise_row(got, DTYPE_MXFP4, to, COLUMNS);
    for (int i = 0; i < COLUMNS; i++) assert_true(got[i] == want[i]);
    row[34] = 253;
    assert_false(blocks_quantise(DTYPE_MXFP4, to, form, row, COLUMNS, NULL));
}

static void test_scales_beyond(void **state) {
    (void)state;
    uint8_t q4_0[18] = {0xff, 0x7b}, q8_0[34] = {0x00, 0x7c}; /* the largest f16, infinity */
    int8_t values[32];
    uint16_t scale, minimum;
    struct quantised_row to = {values, &scale, &minimum};
    assert_false(blocks_quantise(DTYPE_INT4, to, block_form_find(2), q4_0, 32,
                                 NULL)); /* its minimum is 8 times that */
    assert_true(blocks_quantise(DTYPE_INT8, to, block_form_find(2), q4_0, 32, NULL));
    assert_false(blocks_quantise(DTYPE_INT8, to, block_form_find(8), q8_0, 32, NULL));
}

static struct json *read_config(struct gguf_draft *d) {
    struct gguf *g = open_draft(d);
    struct buffer text = {0};
    struct json *config;
    struct error e = {0};
    if (gguf_write_config(g, &text, &e)) fail_msg("%s", e.text);
    if (json_parse(&config, (struct text_span){text.data, text.size}, "config.json", &e))
        fail_msg("%s", e.text);
    buffer_free(&text);
    gguf_close(g);
    return config;
}

static void test_config(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_llama(&d);
    draft_list(&d, "llama.attention.head_count_kv", GGUF_U32, 2);
    draft_number(&d.keys, 2, 4);
    draft_number(&d.keys, 2, 4);
    draft_u32(&d, "llama.rope.dimension_count", 16);
    draft_word(&d, "llama.rope.scaling.type", "yarn");
    draft_f32(&d, "llama.rope.scaling.factor", 4);
    draft_u32(&d, "tokenizer.ggml.eos_token_id", 5);
    draft_u32(&d, "tokenizer.ggml.eot_token_id", 7);
    struct json *config = read_config(&d);
    assert_true(json_text_is(json_member(config, "model_type"), "llama"));
    assert_int_equal(json_int(json_member(config, "vocab_size")), 10);
    assert_int_equal(json_int(json_member(config, "num_hidden_layers")), 2);
    assert_int_equal(json_int(json_member(config, "num_key_value_heads")), 2);
    assert_true(json_bool(json_member(config, "tie_word_embeddings")));
    assert_false(json_bool(json_member(config, "attention_bias")));
    assert_true(
        json_text_is(json_member(json_member(config, "rope_scaling"), "rope_type"), "yarn"));
    assert_int_equal(json_int(json_item(json_member(config, "eos_token_id"), 1)), 7);
    json_close(config);
    draft_free(&d);
}

static void draft_sizes(struct gguf_draft *d, const char *architecture) {
    static const char *const keys[] = {"block_count", "embedding_length", "attention.head_count",
                                       "context_length"};
    static const uint32_t values[] = {2, 64, 4, 32};
    char key[80];
    draft_word(d, "general.architecture", architecture);
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i]);
        draft_u32(d, key, values[i]);
    }
    draft_tensor(d, "token_embd.weight", 0, 10, 64, (size_t)10 * 64 * 4);
}

/* The factors of longrope are tensors, and a window of 0 is none. */
static void test_phi3_config(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    draft_sizes(&d, "phi3");
    draft_u32(&d, "phi3.attention.sliding_window", 0);
    draft_u32(&d, "phi3.rope.dimension_count", 12);
    draft_u32(&d, "phi3.rope.scaling.original_context_length", 16);
    draft_f32(&d, "phi3.rope.scaling.attn_factor", 1.25f);
    draft_tensor(&d, "rope_factors_long.weight", 0, 0, 6, 24);
    draft_tensor(&d, "rope_factors_short.weight", 0, 0, 6, 24);
    struct json *config = read_config(&d);
    const struct json *scaling = json_member(config, "rope_scaling");
    assert_int_equal((int)(16 * json_double(json_member(config, "partial_rotary_factor"))), 12);
    assert_int_equal(json_int(json_member(config, "original_max_position_embeddings")), 16);
    assert_true(json_is_absent(json_member(config, "sliding_window")));
    assert_true(json_text_is(json_member(scaling, "rope_type"), "longrope"));
    assert_int_equal(json_count(json_member(scaling, "short_factor")), 6);
    assert_true(json_double(json_member(scaling, "attention_factor")) == 1.25);
    json_close(config);
    draft_free(&d);
}

/* Every sixth layer is without a window where the file is silent; without a window none has it. */
static void test_gemma3_config(void **state) {
    (void)state;
    for (uint32_t window = 0; window <= 8; window += 8) {
        struct gguf_draft d = {0};
        draft_sizes(&d, "gemma3");
        if (window) draft_u32(&d, "gemma3.attention.sliding_window", window);
        struct json *config = read_config(&d);
        assert_int_equal(json_int(json_member(config, "sliding_window_pattern")), window ? 6 : 1);
        assert_int_equal(json_int(json_member(config, "query_pre_attn_scalar")), 16);
        assert_true(json_double(json_member(config, "rope_local_base_freq")) == 10000);
        json_close(config);
        draft_free(&d);
    }
    struct gguf_draft d = {0};
    draft_sizes(&d, "gemma3");
    draft_u32(&d, "gemma3.attention.sliding_window", 8);
    draft_list(&d, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 2);
    draft_number(&d.keys, 1, 1);
    draft_number(&d.keys, 0, 1);
    struct json *config = read_config(&d);
    assert_true(
        json_text_is(json_item(json_member(config, "layer_types"), 0), "sliding_attention"));
    assert_true(json_text_is(json_item(json_member(config, "layer_types"), 1), "full_attention"));
    json_close(config);
    draft_free(&d);
}

static void draft_sections(struct gguf_draft *d, const uint32_t *pairs, int n) {
    draft_list(d, "qwen2vl.rope.dimension_sections", GGUF_I32, (uint64_t)n);
    for (int i = 0; i < n; i++) draft_number(&d->keys, pairs[i], 4);
}

/* Sections stand in rope_scaling, beside the kind of scaling where there is one. */
static void test_qwen2vl_config(void **state) {
    (void)state;
    static const uint32_t pairs[] = {2, 3, 3, 0};
    for (int scaled = 0; scaled < 2; scaled++) {
        struct gguf_draft d = {0};
        draft_sizes(&d, "qwen2vl");
        draft_sections(&d, pairs, 3 + scaled);
        if (scaled) draft_word(&d, "qwen2vl.rope.scaling.type", "yarn");
        if (scaled) draft_f32(&d, "qwen2vl.rope.scaling.factor", 4);
        struct json *config = read_config(&d);
        const struct json *scaling = json_member(config, "rope_scaling");
        const struct json *sections = json_member(scaling, "mrope_section");
        assert_true(json_text_is(json_member(config, "model_type"), "qwen2_vl"));
        assert_true(json_text_is(json_member(scaling, "rope_type"), scaled ? "yarn" : "default"));
        assert_int_equal(json_count(sections), 3);
        for (size_t i = 0; i < 3; i++) assert_int_equal(json_int(json_item(sections, i)), pairs[i]);
        assert_int_equal(json_is_absent(json_member(scaling, "factor")), !scaled);
        json_close(config);
        draft_free(&d);
    }
}

/* How an embedder's rows become one: absent, known, a reranker's, and unknown. */
static void test_pooling(void **state) {
    (void)state;
    static const uint32_t types[] = {0, 3, 4, 5};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        struct gguf_draft d = {0};
        enum gguf_pooling pooling;
        struct error e = {0};
        draft_sizes(&d, "bert");
        if (types[i]) draft_u32(&d, "bert.pooling_type", types[i]);
        struct gguf *g = open_draft(&d);
        enum status status = gguf_find_pooling(g, &pooling, &e);
        assert_int_equal(status, types[i] == 5 ? STATUS_UNSUPPORTED : STATUS_OK);
        if (status)
            expect_words(&e, "\"bert.pooling_type\" is not supported");
        else
            assert_int_equal(pooling, types[i] ? (int)types[i] : GGUF_POOLING_ABSENT);
        gguf_close(g);
        draft_free(&d);
    }
}

/* Frees the draft. */
static void expect_config_refusal(struct gguf_draft *d, const char *words) {
    struct gguf *g = open_draft(d);
    struct buffer text = {0};
    struct error e = {0};
    assert_int_not_equal(gguf_write_config(g, &text, &e), STATUS_OK);
    expect_words(&e, words);
    buffer_free(&text);
    gguf_close(g);
    draft_free(d);
}

static void test_config_refusals(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *words;
    } cases[] = {
        {"llama.expert_count", 8, "\"llama.expert_count\" has a value that is not supported"},
        {"llama.attention.sliding_window", 4096, "\"llama.attention.sliding_window\" has a value"},
        {"llama.rope.dimension_count", 8,
         "\"llama.rope.dimension_count\" is not the size of a head"},
        {"llama.new_idea", 1, "\"llama.new_idea\" is not known, and may change results"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct gguf_draft d = {0};
        draft_llama(&d);
        draft_u32(&d, cases[i].key, cases[i].value);
        expect_config_refusal(&d, cases[i].words);
    }
    struct gguf_draft d = {0};
    draft_word(&d, "general.architecture", "mamba");
    expect_config_refusal(&d, "general.architecture \"mamba\" is unknown; known: llama, smollm3");
    d = (struct gguf_draft){0};
    draft_llama(&d);
    draft_f32(&d, "llama.rope.freq_base", NAN);
    expect_config_refusal(&d, "\"llama.rope.freq_base\" is not a finite number");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "qwen2vl");
    draft_sections(&d, (const uint32_t[]){2, 3, 2, 1}, 4);
    expect_config_refusal(
        &d, "\"qwen2vl.rope.dimension_sections\" is no list of three whole numbers and zeros");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "qwen2vl");
    draft_sections(&d, (const uint32_t[]){4, 4}, 2);
    expect_config_refusal(&d, "\"qwen2vl.rope.dimension_sections\" has fewer than three numbers");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "qwen2vl");
    draft_u32(&d, "qwen2vl.rope.dimension_sections", 8);
    expect_config_refusal(&d, "\"qwen2vl.rope.dimension_sections\" has fewer than three numbers");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "gptneox");
    draft_u32(&d, "gptneox.rope.dimension_count", 17);
    expect_config_refusal(&d, "\"gptneox.rope.dimension_count\" is not a part of a head");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "gptneox");
    draft_u32(&d, "gptneox.use_parallel_residual", 1);
    expect_config_refusal(&d, "\"gptneox.use_parallel_residual\" is no truth value");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "phi3");
    draft_tensor(&d, "rope_factors_long.weight", 0, 0, 6, 24);
    expect_config_refusal(&d, "tensor rope_factors_short.weight is missing");
    d = (struct gguf_draft){0};
    draft_sizes(&d, "gemma3");
    draft_u32(&d, "gemma3.attention.sliding_window", 8);
    draft_word(&d, "gemma3.attention.sliding_window_pattern", "some");
    expect_config_refusal(&d, "is neither a number nor a list of truth values");
    d = (struct gguf_draft){0};
    draft_llama(&d);
    draft_list(&d, "llama.attention.head_count_kv", GGUF_U32, 2);
    draft_number(&d.keys, 2, 4);
    draft_number(&d.keys, 4, 4);
    expect_config_refusal(&d, "\"llama.attention.head_count_kv\" is not one whole number");
}

static void write_draft(struct gguf_draft *d, const char *name) {
    draft_build(d);
    folder_write(test_folder, name, d->file.data, d->file.size);
    draft_free(d);
}

static enum status open_weights(struct weights **w, const char *name, struct error *e) {
    char path[FOLDER_PATH_SIZE];
    folder_path(path, test_folder, name);
    return weights_open(w, path, e);
}

static void test_folder_names(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    struct weights *w;
    struct error e = {0};
    draft_llama(&d);
    draft_tensor(&d, "blk.1.attn_q.weight", 8, 64, 64, 64 * 68);
    draft_tensor(&d, "blk.11.ffn_norm.weight", 0, 0, 64, 256);
    write_draft(&d, "model.gguf");
    assert_int_equal(open_weights(&w, "", &e), STATUS_OK);
    const struct stored_tensor *q = weights_find(w, "model.layers.1.self_attn.q_proj.weight");
    assert_non_null(q);
    assert_int_equal(q->dtype, STORED_BLOCKS);
    assert_int_equal(q->paired, 16);
    assert_int_equal(weights_find(w, "model.layers.11.post_attention_layernorm.weight")->dtype,
                     STORED_F32);
    assert_int_equal(weights_count(w), 3);
    weights_close(w);

    d = (struct gguf_draft){0};
    draft_llama(&d);
    draft_tensor(&d, "blk.0.attn_rot.weight", 0, 0, 64, 256);
    write_draft(&d, "model.gguf");
    assert_int_equal(open_weights(&w, "model.gguf", &e), STATUS_UNSUPPORTED);
    expect_words(&e, "tensor \"blk.0.attn_rot.weight\" has no place in the architecture llama");
}

/* Stacked experts are tensors of their own, each with its part of the data. */
static void test_experts(void **state) {
    (void)state;
    struct gguf_draft d = {0};
    struct weights *w;
    struct error e = {0};
    draft_llama(&d);
    draft_tensor(&d, "blk.0.ffn_gate_inp.weight", 0, 3, 64, (size_t)3 * 64 * 4);
    draft_experts(&d, "blk.0.ffn_up_exps.weight", 3, 2, 5);
    write_draft(&d, "model.gguf");
    assert_int_equal(open_weights(&w, "", &e), STATUS_OK);
    const struct stored_tensor *first =
        weights_find(w, "model.layers.0.block_sparse_moe.experts.0.w3.weight");
    const struct stored_tensor *last =
        weights_find(w, "model.layers.0.block_sparse_moe.experts.2.w3.weight");
    assert_non_null(first);
    assert_non_null(last);
    assert_int_equal(last->n_dims, 2);
    assert_int_equal(last->shape[0], 2);
    assert_int_equal(last->shape[1], 5);
    assert_int_equal(last->bytes, 40);
    assert_ptr_equal(last->data, (const char *)first->data + 80);
    weights_close(w);

    d = (struct gguf_draft){0};
    draft_llama(&d);
    draft_tensor(&d, "blk.0.ffn_gate_inp.weight", 0, 3, 64, (size_t)3 * 64 * 4);
    draft_tensor(&d, "blk.0.ffn_up_exps.weight", 0, 2, 5, 40);
    write_draft(&d, "model.gguf");
    assert_int_equal(open_weights(&w, "model.gguf", &e), STATUS_CORRUPT);
    expect_words(&e, "tensor \"blk.0.ffn_up_exps.weight\": expected 3 dimensions, experts first");
}

/* The gate of a shared expert is a vector in some files, a row in others. */
static void test_vector_as_row(void **state) {
    (void)state;
    for (uint64_t rows = 0; rows < 2; rows++) {
        struct gguf_draft d = {0};
        struct weights *w;
        struct error e = {0};
        draft_sizes(&d, "qwen2moe");
        draft_tensor(&d, "blk.0.ffn_gate_inp_shexp.weight", 0, rows, 64, (size_t)64 * 4);
        write_draft(&d, "model.gguf");
        assert_int_equal(open_weights(&w, "", &e), STATUS_OK);
        const struct stored_tensor *t =
            weights_find(w, "model.layers.0.mlp.shared_expert_gate.weight");
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->shape[0], 1);
        assert_int_equal(t->shape[1], 64);
        weights_close(w);
    }
}

static void write_shard(int number, int count, int says, const char *tensor) {
    struct gguf_draft d = {0};
    char name[60];
    draft_word(&d, "general.architecture", "llama");
    draft_u32(&d, "split.no", (uint32_t)number);
    draft_u32(&d, "split.count", (uint32_t)says);
    draft_u32(&d, "split.tensors.count", 2);
    draft_tensor(&d, tensor, 0, 2, 4, 32);
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number + 1, count);
    write_draft(&d, name);
}

static void test_shards(void **state) {
    (void)state;
    struct weights *w;
    struct error e = {0};
    write_shard(0, 2, 2, "token_embd.weight");
    assert_int_not_equal(open_weights(&w, "m-00001-of-00002.gguf", &e), STATUS_OK);
    expect_words(&e, "m-00002-of-00002.gguf");
    write_shard(1, 2, 2, "output.weight");
    assert_int_equal(open_weights(&w, "m-00001-of-00002.gguf", &e), STATUS_OK);
    assert_int_equal(weights_count(w), 2);
    weights_close(w);
    assert_int_equal(open_weights(&w, "m-00002-of-00002.gguf", &e), STATUS_INVALID);
    expect_words(&e, "file 2 of 2 of a model; name the first");
    write_shard(1, 2, 2, "token_embd.weight");
    assert_int_equal(open_weights(&w, "m-00001-of-00002.gguf", &e), STATUS_CORRUPT);
    expect_words(&e, "tensor \"token_embd.weight\" is there twice");
    write_shard(0, 3, 2, "token_embd.weight");
    assert_int_equal(open_weights(&w, "m-00001-of-00003.gguf", &e), STATUS_INVALID);
    expect_words(&e, "its name must end in -00001-of-00002.gguf");
}

static void test_paired_rows(void **state) {
    (void)state;
    static const int expected[] = {0, 2, 1, 3, 4, 6, 5, 7};
    const struct stored_tensor paired = {.paired = 4}, same = {.paired = 0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(stored_row(&paired, i), expected[i]);
        assert_int_equal(stored_row(&same, i), i);
    }
    /* Two heads of two rows: queries 0 to 3, keys 4 to 7, values 8 to 11. */
    static const int apart[] = {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
    const struct stored_tensor qkv = {.apart = 2, .shape = {12, 5}};
    for (int i = 0; i < 12; i++) assert_int_equal(stored_row(&qkv, i), apart[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_lying_keys),
        cmocka_unit_test(test_lying_tensors),
        cmocka_unit_test(test_lying_places),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_turned_signs),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_scales_beyond),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_phi3_config),
        cmocka_unit_test(test_gemma3_config),
        cmocka_unit_test(test_qwen2vl_config),
        cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_config_refusals),
        cmocka_unit_test_setup_teardown(test_folder_names, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_experts, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_vector_as_row, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(test_shards, folder_set_up, folder_tear_down),
        cmocka_unit_test(test_paired_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
