/* tests/unit/test_loader.c: quantised matrices on their way from a file to packed weights: each
 * rank's share, widening at load, parts of different types, random weights, and files that must be
 * refused. Models are written by the test. */
#include <math.h>
#include <string.h>

#include "config/base/buffer.h"
#include "kernels/quantise.h"
#include "retro/model/tensors.h"
#include "tests/folder.h"

enum { HIDDEN = 128, HEADS = 6, GROUPS = 3, HEAD = 32, FFN = 256, VOCAB = 66, POSITIONS = 16 };

/* A checkpoint being made: a header, and the data behind it. */
struct checkpoint {
    struct buffer header, data;
    char folder[FOLDER_SIZE];
};

static void put(struct checkpoint *c, const char *name, const char *dtype, const int shape[2],
                const void *data, size_t bytes) {
    buffer_printf(&c->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d",
                  c->header.size ? "," : "{", name, dtype, shape[0]);
    if (shape[1] > 1) buffer_printf(&c->header, ",%d", shape[1]);
    buffer_printf(&c->header, "],\"data_offsets\":[%zu,%zu]}", c->data.size, c->data.size + bytes);
    buffer_append(&c->data, data, bytes);
}

/* The same numbers for the same name. */
static float *draw(const char *name, size_t n) {
    float *w = malloc(n * sizeof *w);
    unsigned seed = 1;
    for (const char *p = name; *p; p++) seed = seed * 31 + (unsigned char)*p;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        w[i] = ((float)(seed >> 8) * 0x1p-24f - 0.5f) * 0.2f;
    }
    return w;
}

/* A matrix as `t`; when `widened`, as the f32 that its quantised form stands for. */
static void add_matrix(struct checkpoint *c, const char *name, int rows, int cols, enum dtype t,
                       bool widened) {
    size_t n = (size_t)rows * (size_t)cols, blocks = n / QUANTISE_BLOCK;
    float *w = draw(name, n);
    if (dtype_quantised(t)) {
        char scale[120], minimum[120];
        struct quantised_row all = {malloc(n), malloc(2 * blocks), malloc(2 * blocks)};
        for (int i = 0; i < rows; i++) {
            struct quantised_row row = quantised_row_at(all, t, cols, i);
            assert_true(quantise_row(t, row, w + i * cols, NULL, cols));
            dequantise_row(w + i * cols, t, row, cols);
        }
        int values[2] = {rows, t == DTYPE_INT4 ? cols / 2 : cols},
            shape[2] = {rows, cols / QUANTISE_BLOCK};
        snprintf(scale, sizeof scale, "%s.scale", name);
        snprintf(minimum, sizeof minimum, "%s.minimum", name);
        if (!widened) {
            put(c, name, t == DTYPE_INT4 ? "U8" : "I8", values, all.values,
                n / (t == DTYPE_INT4 ? 2 : 1));
            put(c, scale, "F16", shape, all.scales, 2 * blocks);
            if (t == DTYPE_INT4) put(c, minimum, "F16", shape, all.minimums, 2 * blocks);
        }
        free(all.values);
        free(all.scales);
        free(all.minimums);
    }
    if (!dtype_quantised(t) || widened)
        put(c, name, "F32", (const int[2]){rows, cols}, w, n * sizeof *w);
    free(w);
}

static void checkpoint_write(struct checkpoint *c, const char *config) {
    struct buffer file = {0};
    folder_make(c->folder);
    buffer_append_string(&c->header, "}");
    while (c->header.size % 8) buffer_append_string(&c->header, " ");
    uint64_t size = c->header.size;
    buffer_append(&file, &size, 8);
    buffer_append(&file, c->header.data, c->header.size);
    buffer_append(&file, c->data.data, c->data.size);
    folder_write(c->folder, "model.safetensors", file.data, file.size);
    folder_write(c->folder, "config.json", config, strlen(config));
    buffer_free(&file);
}

static void checkpoint_remove(struct checkpoint *c) {
    folder_remove(c->folder);
    buffer_free(&c->header);
    buffer_free(&c->data);
}

/* A GPT of one layer with every kind of split: grouped queries, a gated MLP, an output matrix of
 * its own. */
static const char gpt_config[] =
    "{\"architecture\":\"gpt\",\"num_layers\":1,\"hidden_size\":128,\"num_attention_heads\":6,"
    "\"num_query_groups\":3,"
    "\"kv_channels\":32,\"ffn_hidden_size\":%d,\"vocab_size\":66,\"max_position_embeddings\":16,"
    "\"position_embedding_type\":\"rope\",\"normalization\":\"RMSNorm\",\"activation\":\"swiglu\","
    "\"add_bias_linear\":false,\"tie_word_embeddings\":false}";

#define L0 "decoder.layers.0."
static const char qkv_name[] = L0 "self_attention.linear_qkv.weight";

static void make_gpt(struct checkpoint *c, enum dtype t, bool widened, int ffn) {
    char config[sizeof gpt_config + 10];
    *c = (struct checkpoint){.folder = ""};
    add_matrix(c, "embedding.word_embeddings.weight", VOCAB, HIDDEN, t, widened);
    add_matrix(c, "output_layer.weight", VOCAB, HIDDEN, t, widened);
    add_matrix(c, qkv_name, (HEADS + 2 * GROUPS) * HEAD, HIDDEN, t, widened);
    add_matrix(c, L0 "self_attention.linear_proj.weight", HIDDEN, HEADS * HEAD, t, widened);
    add_matrix(c, L0 "mlp.linear_fc1.weight", 2 * ffn, HIDDEN, t, widened);
    add_matrix(c, L0 "mlp.linear_fc2.weight", HIDDEN, ffn, t, widened);
    add_matrix(c, L0 "self_attention.linear_qkv.layer_norm_weight", HIDDEN, 1, DTYPE_F32, false);
    add_matrix(c, L0 "mlp.linear_fc1.layer_norm_weight", HIDDEN, 1, DTYPE_F32, false);
    snprintf(config, sizeof config, gpt_config, ffn);
    checkpoint_write(c, config);
}

/* One rank's model, opened. */
struct rank {
    struct backend *backend;
    struct comm *comm;
    struct model *model;
};

static void rank_open(struct rank *r, struct comm *comm, const char *folder,
                      const struct model_options *o) {
    struct error e = {0};
    r->comm = comm;
    if ((comm == NULL && comm_open_single(&r->comm, &e)) ||
        backend_open(&r->backend, "cpu", &(struct backend_options){.threads = 1}, &e) ||
        model_open(&r->model, folder, r->backend, r->comm, o, &e))
        fail_msg("%s", e.text);
}

static void rank_close(struct rank *r) {
    model_close(r->model);
    backend_close(r->backend);
    comm_close(r->comm);
}

/* y = W x for one made-up x, of which columns [first, first + n_in) are taken. */
static void multiply(const struct rank *r, const struct weight *w, int first, float *y) {
    float x[2 * FFN];
    for (int k = 0; k < w->n_in; k++) x[k] = sinf((float)(first + k) * 0.37f);
    backend_linear(r->backend, &(struct linear_args){.y = tensor_make(y, DTYPE_F32, 1, w->n_out),
                                                     .x = tensor_make(x, DTYPE_F32, 1, w->n_in),
                                                     .weight = w});
    assert_int_equal(backend_sync(r->backend, NULL), STATUS_OK);
}

/* A rank's share of n units, as evenly as they divide. */
static int units_before(const struct rank *r, int n) { return n * r->comm->rank / r->comm->size; }
static int units_of(const struct rank *r, int n) {
    return n * (r->comm->rank + 1) / r->comm->size - units_before(r, n);
}

/* Rows of the whole matrix, block by block, each of so many units of so many rows. */
static void expect_rows(const struct rank *whole, const struct rank *part, const struct weight *a,
                        const struct weight *b, const int blocks[4][2]) {
    float y[2 * FFN], z[2 * FFN];
    multiply(whole, a, 0, y);
    multiply(part, b, 0, z);
    int from = 0, to = 0;
    for (int i = 0; blocks[i][0]; i++) {
        int n = blocks[i][0], unit = blocks[i][1], rows = units_of(part, n) * unit;
        assert_memory_equal(y + from + units_before(part, n) * unit, z + to,
                            (size_t)rows * sizeof(float));
        from += n * unit;
        to += rows;
    }
    assert_int_equal(to, b->n_out);
    assert_int_equal(a->dtype, b->dtype);
}

static void add_columns(const struct rank *part, const struct weight *w, int first, float *sum) {
    float z[2 * FFN];
    multiply(part, w, first, z);
    for (int i = 0; i < w->n_out; i++) sum[i] += z[i];
}

static void expect_sum(const struct rank *whole, const struct weight *w, const float *sum) {
    float y[2 * FFN];
    multiply(whole, w, 0, y);
    for (int i = 0; i < w->n_out; i++) assert_true(fabsf(y[i] - sum[i]) < 1e-4f);
}

/* The weights of all ranks together are those of one. Rows give the same bits; columns give sums in
 * another order. */
static void check_shares(enum dtype t, int n_ranks) {
    struct checkpoint c;
    struct rank whole, part;
    struct comm *comms[3];
    float proj[HIDDEN] = {0}, fc2[HIDDEN] = {0};
    const struct model_options keep = {0};
    make_gpt(&c, t, false, FFN);
    rank_open(&whole, NULL, c.folder, &keep);
    comm_open_threads(comms, n_ranks, 60);
    const struct layer *a = &whole.model->stacks[STACK_DECODER].layers[0];
    for (int r = 0; r < n_ranks; r++) {
        rank_open(&part, comms[r], c.folder, &keep);
        const struct layer *b = &part.model->stacks[STACK_DECODER].layers[0];
        assert_int_equal(b->qkv.weight.dtype, t);
        expect_rows(
            &whole, &part, &a->qkv.weight, &b->qkv.weight,
            (const int[4][2]){{GROUPS, HEADS / GROUPS * HEAD}, {GROUPS, HEAD}, {GROUPS, HEAD}});
        expect_rows(&whole, &part, &a->fc1.weight, &b->fc1.weight,
                    (const int[4][2]){{FFN / QUANTISE_BLOCK, QUANTISE_BLOCK},
                                      {FFN / QUANTISE_BLOCK, QUANTISE_BLOCK}});
        expect_rows(&whole, &part, &whole.model->output.weight, &part.model->output.weight,
                    (const int[4][2]){{VOCAB, 1}});
        add_columns(&part, &b->proj.weight, units_before(&part, GROUPS) * (HEADS / GROUPS) * HEAD,
                    proj);
        add_columns(&part, &b->fc2.weight,
                    units_before(&part, FFN / QUANTISE_BLOCK) * QUANTISE_BLOCK, fc2);
        rank_close(&part);
    }
    expect_sum(&whole, &a->proj.weight, proj);
    expect_sum(&whole, &a->fc2.weight, fc2);
    rank_close(&whole);
    checkpoint_remove(&c);
}

/* Three groups of heads and eight blocks of the MLP: two ranks have the heads in unequal parts,
 * three the MLP. */
static void test_shares(void **state) {
    (void)state;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_INT8, DTYPE_INT4};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        for (int n_ranks = 2; n_ranks <= 3; n_ranks++) check_shares(types[i], n_ranks);
}

/* 64 columns are two blocks: three ranks cannot share them, one can have them all. */
static void test_share_of_a_block(void **state) {
    (void)state;
    struct checkpoint c;
    struct comm *comms[3];
    struct rank whole;
    struct model *m;
    struct error e = {0};
    make_gpt(&c, DTYPE_INT8, false, 64);
    rank_open(&whole, NULL, c.folder, &(struct model_options){0});
    comm_open_threads(comms, 3, 60);
    assert_int_equal(
        model_open(&m, c.folder, whole.backend, comms[0], &(struct model_options){0}, &e),
        STATUS_INVALID);
    assert_non_null(strstr(e.text, "64 quantised columns split over 3 ranks"));
    for (int r = 0; r < 3; r++) comm_close(comms[r]);
    rank_close(&whole);
    checkpoint_remove(&c);
}

/* Loading int8 or int4 as f32 gives what a checkpoint of the dequantised numbers gives, and both
 * sizes are as counted.
 */
static void test_widening(void **state) {
    (void)state;
    for (int t = DTYPE_INT8; t <= DTYPE_INT4; t++) {
        struct checkpoint narrow, wide;
        struct rank a, b;
        float y[2 * FFN], z[2 * FFN];
        make_gpt(&narrow, (enum dtype)t, false, FFN);
        make_gpt(&wide, (enum dtype)t, true, FFN);
        rank_open(&a, NULL, narrow.folder,
                  &(struct model_options){.convert = true, .dtype = DTYPE_F32});
        rank_open(&b, NULL, wide.folder, &(struct model_options){0});
        const struct projection *p = &a.model->stacks[STACK_DECODER].layers[0].qkv,
                                *q = &b.model->stacks[STACK_DECODER].layers[0].qkv;
        assert_int_equal(p->weight.dtype, DTYPE_F32);
        multiply(&a, &p->weight, 0, y);
        multiply(&b, &q->weight, 0, z);
        assert_memory_equal(y, z, (size_t)p->weight.n_out * sizeof(float));
        assert_int_equal(model_info(a.model)->weight_bytes, model_info(b.model)->weight_bytes);
        rank_close(&a);
        rank_open(&a, NULL, narrow.folder, &(struct model_options){0});
        const struct model_info *info = model_info(a.model);
        assert_int_equal(info->dtype, t);
        assert_int_equal(info->cache_dtype, DTYPE_F16);
        size_t decode =
            (size_t)HIDDEN * (VOCAB + (HEADS + 2 * GROUPS) * HEAD + HEADS * HEAD + 3 * FFN);
        assert_int_equal(info->decode_bytes, matrix_bytes((enum dtype)t, decode));
        rank_close(&a);
        rank_close(&b);
        checkpoint_remove(&narrow);
        checkpoint_remove(&wide);
    }
}

/* Every pool of sessions is opened with this type: the engine, evaluation, benchmarks and parity
 * all take it from here.
 */
static void test_cache_type(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    struct checkpoint c;
    make_gpt(&c, DTYPE_INT8, false, FFN);
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++) {
        struct rank a;
        rank_open(&a, NULL, c.folder, &(struct model_options){.convert = true, .dtype = dtypes[i]});
        assert_int_equal(model_info(a.model)->dtype, dtypes[i]);
        assert_int_equal(model_info(a.model)->cache_dtype,
                         dtypes[i] == DTYPE_F32 ? DTYPE_F32 : DTYPE_F16);
        size_t row_bytes = model_info(a.model)->cache_row_bytes;
        rank_close(&a);

        struct model_options narrow = {.convert = true, .dtype = dtypes[i]};
        narrow.cache_given = true;
        narrow.cache_dtype = DTYPE_INT8;
        rank_open(&a, NULL, c.folder, &narrow);
        const struct model_info *info = model_info(a.model);
        size_t numbers = row_bytes / (dtypes[i] == DTYPE_F32 ? 4 : 2);
        assert_int_equal(info->cache_dtype, DTYPE_INT8);
        assert_int_equal(info->cache_row_bytes, numbers + 2 * numbers / (size_t)info->head_dim);
        rank_close(&a);
    }
    checkpoint_remove(&c);
}

static void check_refused(const char *folder, struct backend *backend, const char *expected) {
    struct comm *comm;
    struct model *model;
    struct error e = {0};
    struct model_options options = {
        .cache_given = true, .cache_dtype = DTYPE_INT8, .check_only = true};
    assert_int_equal(comm_open_single(&comm, &e), STATUS_OK);
    assert_int_equal(model_open(&model, folder, backend, comm, &options, &e), STATUS_UNSUPPORTED);
    if (strstr(e.text, expected) == NULL) fail_msg("%s: no \"%s\"", e.text, expected);
    assert_non_null(strstr(e.text, "model.cache_dtype"));
    comm_close(comm);
}

/* Rows of latents, and devices that do not read int8 keys, are refused before anything is loaded.
 */
static void test_int8_cache_refused(void **state) {
    (void)state;
    struct backend *backend, elsewhere;
    assert_int_equal(backend_open(&backend, "cpu", &(struct backend_options){0}, NULL), STATUS_OK);
    check_refused("tests/golden/hf/deepseek_v3", backend, "latent attention");
    struct backend_ops ops = *backend->ops;
    ops.name = "cuda";
    elsewhere = *backend;
    elsewhere.ops = &ops;
    check_refused("tests/golden/hf/llama", &elsewhere, "kernels of cuda");
    backend_close(backend);
}

/* The backend quantises nothing, so an option that asks for it is an error. */
static void test_no_quantising_at_load(void **state) {
    (void)state;
    struct checkpoint c;
    struct rank r;
    struct model *m;
    struct error e = {0};
    make_gpt(&c, DTYPE_F32, false, FFN);
    rank_open(&r, NULL, c.folder, &(struct model_options){0});
    struct model_options o = {.convert = true, .dtype = DTYPE_INT8};
    assert_int_equal(model_open(&m, c.folder, r.backend, r.comm, &o, &e), STATUS_UNSUPPORTED);
    rank_close(&r);
    checkpoint_remove(&c);
}

/* Random weights come in every type, the same each time, and are finite. */
static void test_random(void **state) {
    (void)state;
    struct checkpoint c;
    make_gpt(&c, DTYPE_F32, false, FFN);
    for (int t = DTYPE_F32; t <= DTYPE_INT4; t++) {
        struct model_options o = {.convert = true, .dtype = (enum dtype)t, .random = true};
        struct rank a, b;
        float y[2 * FFN], z[2 * FFN];
        rank_open(&a, NULL, c.folder, &o);
        rank_open(&b, NULL, c.folder, &o);
        const struct weight *w = &a.model->stacks[STACK_DECODER].layers[0].fc1.weight;
        assert_int_equal(w->dtype, t);
        multiply(&a, w, 0, y);
        multiply(&b, &b.model->stacks[STACK_DECODER].layers[0].fc1.weight, 0, z);
        assert_memory_equal(y, z, (size_t)w->n_out * sizeof(float));
        double sum = 0;
        for (int i = 0; i < w->n_out; i++) sum += (double)(y[i] * y[i]);
        assert_true(sum > 0.01 && sum < 1e4);
        rank_close(&a);
        rank_close(&b);
    }
    checkpoint_remove(&c);
}

/* BERT keeps Q, K and V apart: where their types differ they meet in f32, exactly. */
static void make_bert(struct checkpoint *c, enum dtype q, enum dtype k, bool widened) {
    static const char config[] =
        "{\"architecture\":\"bert\",\"num_hidden_layers\":1,\"hidden_size\":128,\"num_attention_"
        "heads\":4,"
        "\"intermediate_size\":256,\"vocab_size\":66,\"max_position_embeddings\":16,\"hidden_act\":"
        "\"gelu\"}";
    static const char *const vectors[] = {"embeddings.LayerNorm.weight",
                                          "embeddings.LayerNorm.bias",
                                          "encoder.layer.0.attention.self.query.bias",
                                          "encoder.layer.0.attention.self.key.bias",
                                          "encoder.layer.0.attention.self.value.bias",
                                          "encoder.layer.0.attention.output.dense.bias",
                                          "encoder.layer.0.attention.output.LayerNorm.weight",
                                          "encoder.layer.0.attention.output.LayerNorm.bias",
                                          "encoder.layer.0.output.dense.bias",
                                          "encoder.layer.0.output.LayerNorm.weight",
                                          "encoder.layer.0.output.LayerNorm.bias"};
    *c = (struct checkpoint){.folder = ""};
    for (size_t i = 0; i < ARRAY_COUNT(vectors); i++)
        add_matrix(c, vectors[i], HIDDEN, 1, DTYPE_F32, false);
    add_matrix(c, "encoder.layer.0.intermediate.dense.bias", FFN, 1, DTYPE_F32, false);
    add_matrix(c, "embeddings.word_embeddings.weight", VOCAB, HIDDEN, q, widened);
    add_matrix(c, "embeddings.position_embeddings.weight", POSITIONS, HIDDEN, DTYPE_F32, false);
    add_matrix(c, "embeddings.token_type_embeddings.weight", 2, HIDDEN, DTYPE_F32, false);
    add_matrix(c, "encoder.layer.0.attention.self.query.weight", HIDDEN, HIDDEN, q, widened);
    add_matrix(c, "encoder.layer.0.attention.self.key.weight", HIDDEN, HIDDEN, k, widened);
    add_matrix(c, "encoder.layer.0.attention.self.value.weight", HIDDEN, HIDDEN, DTYPE_F32, false);
    add_matrix(c, "encoder.layer.0.attention.output.dense.weight", HIDDEN, HIDDEN, q, widened);
    add_matrix(c, "encoder.layer.0.intermediate.dense.weight", FFN, HIDDEN, q, widened);
    add_matrix(c, "encoder.layer.0.output.dense.weight", HIDDEN, FFN, q, widened);
    checkpoint_write(c, config);
}

static void test_parts_of_different_types(void **state) {
    (void)state;
    struct checkpoint mixed, wide;
    struct rank a, b;
    float y[2 * FFN], z[2 * FFN];
    make_bert(&mixed, DTYPE_INT8, DTYPE_INT4, false);
    make_bert(&wide, DTYPE_INT8, DTYPE_INT4, true);
    rank_open(&a, NULL, mixed.folder, &(struct model_options){0});
    rank_open(&b, NULL, wide.folder, &(struct model_options){0});
    const struct weight *w = &a.model->stacks[STACK_ENCODER].layers[0].qkv.weight;
    assert_int_equal(w->dtype, DTYPE_F32);
    assert_int_equal(a.model->stacks[STACK_ENCODER].layers[0].fc1.weight.dtype, DTYPE_INT8);
    multiply(&a, w, 0, y);
    multiply(&b, &b.model->stacks[STACK_ENCODER].layers[0].qkv.weight, 0, z);
    assert_memory_equal(y, z, (size_t)w->n_out * sizeof(float));
    rank_close(&a);
    rank_close(&b);
    checkpoint_remove(&mixed);
    checkpoint_remove(&wide);
}

/* One qkv tensor and its companions, as a broken writer might leave them; the rest of the model is
 * sound. */
struct stored {
    const char *suffix, *dtype;
    int rows, cols;
    uint16_t fill; /* every two bytes of it */
};

static void expect_refusal(const struct stored *parts, const char *words) {
    struct checkpoint c = {.folder = ""};
    struct rank r;
    struct error e = {0};
    struct model *m;
    uint16_t *data = calloc(1 << 18, sizeof *data);
    for (const struct stored *s = parts; s->suffix; s++) {
        char name[100];
        size_t element = s->dtype[0] == 'F' ? (s->dtype[1] == '3' ? 4 : 2) : 1;
        for (int i = 0; i < 1 << 18; i++) data[i] = s->fill;
        snprintf(name, sizeof name, "%s%s", qkv_name, s->suffix);
        put(&c, name, s->dtype, (const int[2]){s->rows, s->cols}, data,
            (size_t)s->rows * (size_t)s->cols * element);
    }
    add_matrix(&c, "embedding.word_embeddings.weight", VOCAB, HIDDEN, DTYPE_F32, false);
    add_matrix(&c, "output_layer.weight", VOCAB, HIDDEN, DTYPE_F32, false);
    add_matrix(&c, L0 "self_attention.linear_qkv.layer_norm_weight", HIDDEN, 1, DTYPE_F32, false);
    char config[sizeof gpt_config + 10];
    snprintf(config, sizeof config, gpt_config, FFN);
    checkpoint_write(&c, config);
    assert_int_equal(comm_open_single(&r.comm, &e), STATUS_OK);
    assert_int_equal(backend_open(&r.backend, "cpu", &(struct backend_options){.threads = 1}, &e),
                     STATUS_OK);
    assert_int_not_equal(
        model_open(&m, c.folder, r.backend, r.comm, &(struct model_options){0}, &e), STATUS_OK);
    if (!strstr(e.text, words) || !strstr(e.text, "linear_qkv"))
        fail_msg("expected \"%s\" and the tensor in \"%s\"", words, e.text);
    comm_close(r.comm);
    backend_close(r.backend);
    checkpoint_remove(&c);
    free(data);
}

static void test_refusals(void **state) {
    (void)state;
    enum { ROWS = (HEADS + 2 * GROUPS) * HEAD, ONE = 0x3c00, INFINITE = 0x7c00, NOT = 0xfe01 };
    static const struct {
        struct stored parts[4];
        const char *words;
    } cases[] = {
        {{{"", "I8", ROWS, 128, 0}}, ".scale is missing"},
        {{{"", "U8", ROWS, 64, 0}, {".scale", "F16", ROWS, 4, ONE}}, ".minimum is missing"},
        {{{"", "I8", ROWS, 128, 0}, {".scale", "F16", ROWS, 3, ONE}}, "makes it [384, 4]"},
        {{{"", "I8", ROWS, 128, 0}, {".scale", "F16", 128, 4, ONE}}, "makes it [384, 4]"},
        {{{"", "I8", ROWS, 128, 0}, {".scale", "F32", ROWS, 4, 0}}, "scales and minimums are F16"},
        {{{"", "I8", ROWS, 128, 0}, {".scale", "F16", ROWS, 4, INFINITE}}, "not finite"},
        {{{"", "U8", ROWS, 64, 0},
          {".scale", "F16", ROWS, 4, ONE},
          {".minimum", "F16", ROWS, 4, NOT}},
         "not finite"},
        {{{"", "U8", ROWS, 128, 0},
          {".scale", "F16", ROWS, 4, ONE},
          {".minimum", "F16", ROWS, 4, ONE}},
         "makes it [384, 64]"},
        {{{"", "I8", ROWS, 64, 0}, {".scale", "F16", ROWS, 4, ONE}}, "makes it [384, 128]"},
        {{{"", "BOOL", ROWS, 128, 0}}, "quantised I8 and U8 are supported"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) expect_refusal(cases[i].parts, cases[i].words);
}

/* A scale beside a matrix that is not quantised, and a quantised vector. */
static void test_misplaced(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct checkpoint c = {.folder = ""};
        struct comm *comm;
        struct backend *b;
        struct model *m;
        struct error e = {0};
        char config[sizeof gpt_config + 10];
        uint16_t zeros[HIDDEN] = {0};
        add_matrix(&c, "embedding.word_embeddings.weight", VOCAB, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, "output_layer.weight", VOCAB, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, qkv_name, (HEADS + 2 * GROUPS) * HEAD, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, L0 "self_attention.linear_proj.weight", HIDDEN, HEADS * HEAD, DTYPE_F32,
                   false);
        add_matrix(&c, L0 "mlp.linear_fc1.weight", 2 * FFN, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, L0 "mlp.linear_fc2.weight", HIDDEN, FFN, DTYPE_F32, false);
        add_matrix(&c, L0 "mlp.linear_fc1.layer_norm_weight", HIDDEN, 1, DTYPE_F32, false);
        const char *gamma = L0 "self_attention.linear_qkv.layer_norm_weight";
        if (i == 0) {
            add_matrix(&c, gamma, HIDDEN, 1, DTYPE_F32, false);
            put(&c, "output_layer.weight.scale", "F16", (const int[2]){VOCAB, 1}, zeros, VOCAB * 2);
        } else {
            put(&c, gamma, "I8", (const int[2]){HIDDEN, 1}, zeros, HIDDEN);
        }
        snprintf(config, sizeof config, gpt_config, FFN);
        checkpoint_write(&c, config);
        assert_int_equal(comm_open_single(&comm, &e), STATUS_OK);
        assert_int_equal(backend_open(&b, "cpu", &(struct backend_options){.threads = 1}, &e),
                         STATUS_OK);
        assert_int_equal(model_open(&m, c.folder, b, comm, &(struct model_options){0}, &e),
                         STATUS_INVALID);
        assert_non_null(strstr(
            e.text, i ? "columns are a multiple of 32" : "output_layer.weight.scale has no place"));
        comm_close(comm);
        backend_close(b);
        checkpoint_remove(&c);
    }
}

/* A family whose output matrix and first projection have biases where the checkpoint has them, as
 * no key of its config.json says. */
static const struct tensor_row optional_outer_rows[] = {
    {.place = offsetof(struct model, embedding.word),
     .names = {"embedding.word_embeddings.weight"}},
    {.place = offsetof(struct model, output), .names = {"output_layer.*"}, .bias_if_there = true},
};
static const struct tensor_row optional_rows[] = {
    {.place = offsetof(struct layer, qkv), .names = {"old.qkv.*", "qkv.*"}, .bias_if_there = true},
    {.place = offsetof(struct layer, fc2), .names = {"fc2.*"}},
};
static const struct family optional_family = {
    .stacks[STACK_DECODER] = {{"outer.#.", "#."}, optional_rows, ARRAY_COUNT(optional_rows)},
    .outer = {{NULL}, optional_outer_rows, ARRAY_COUNT(optional_outer_rows)},
};

static enum status count_biases(void *context, const struct place *p, struct error *e) {
    int *n = context;
    (void)e;
    *n += p->bias;
    return STATUS_OK;
}

/* The second of two layers has the bias, and the second of two checkpoints that of the output
 * matrix. */
static void test_bias_if_there(void **state) {
    (void)state;
    for (int output_bias = 0; output_bias <= 1; output_bias++) {
        struct checkpoint c = {.folder = ""};
        struct layer layers[2] = {0};
        struct model m = {.family = &optional_family};
        struct weights *w;
        struct error e = {0};
        int n = 0;
        add_matrix(&c, "embedding.word_embeddings.weight", VOCAB, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, "output_layer.weight", VOCAB, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, "0.qkv.weight", 3 * HIDDEN, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, "1.qkv.weight", 3 * HIDDEN, HIDDEN, DTYPE_F32, false);
        add_matrix(&c, "1.qkv.bias", 3 * HIDDEN, 1, DTYPE_F32, false);
        add_matrix(&c, "0.fc2.weight", HIDDEN, FFN, DTYPE_F32, false);
        add_matrix(&c, "1.fc2.weight", HIDDEN, FFN, DTYPE_F32, false);
        if (output_bias) add_matrix(&c, "output_layer.bias", VOCAB, 1, DTYPE_F32, false);
        checkpoint_write(&c, "{}");
        if (weights_open(&w, c.folder, &e)) fail_msg("%s", e.text);
        assert_int_equal(comm_open_single(&m.comm, &e), STATUS_OK);
        assert_int_equal(
            backend_open(&m.backend, "cpu", &(struct backend_options){.threads = 1}, &e),
            STATUS_OK);

        m.spec = model_spec_default();
        m.spec.vocab = m.spec.padded_vocab = VOCAB;
        struct stack *s = &m.stacks[STACK_DECODER];
        s->dims = (struct dims){
            .n_layers = 2, .hidden = HIDDEN, .heads = 4, .kv_heads = 4, .head_dim = 32, .ffn = FFN};
        s->heads = s->kv_heads = (struct portion){0, 4};
        s->ffn = (struct portion){0, FFN};
        s->kept = (struct portion){0, 2};
        m.vocab = (struct portion){0, VOCAB};
        s->layers = layers;
        model_resolve(&m, w);
        if (model_load_weights(&m, w, &(struct model_options){0}, &e)) fail_msg("%s", e.text);
        assert_null(layers[0].qkv.bias);
        assert_non_null(layers[1].qkv.bias);
        assert_null(layers[1].fc2.bias);
        assert_int_equal(m.output.bias != NULL, output_bias);
        float *bias = draw("1.qkv.bias", 3 * HIDDEN);
        assert_memory_equal(layers[1].qkv.bias, bias, 3 * HIDDEN * sizeof *bias);
        free(bias);

        model_release_weights(&m);
        model_resolve(&m, NULL); /* random weights */
        assert_int_equal(model_visit(&m, count_biases, &n, &e), STATUS_OK);
        assert_int_equal(n, 0);
        weights_close(w);
        backend_close(m.backend);
        comm_close(m.comm);
        checkpoint_remove(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_share_of_a_block),
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_cache_type),
        cmocka_unit_test(test_int8_cache_refused),
        cmocka_unit_test(test_no_quantising_at_load),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_parts_of_different_types),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_misplaced),
        cmocka_unit_test(test_bias_if_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
