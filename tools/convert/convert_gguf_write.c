/* tools/convert/convert_gguf_write.c: a model as a GGUF file that llama.cpp runs. Weights keep their type: int8 is Q8_0
 * and int4 is Q4_1, number for number. See convert.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retro/model/loader.h"
#include "tools/convert/convert_gguf.h"

enum { ALIGNMENT = 32, GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_1 = 3, GGML_Q8_0 = 8, GGML_BF16 = 30 };

/* Architectures of llama.cpp that our decoders are. */
enum architecture { ARCH_GPT2, ARCH_LLAMA, ARCH_QWEN2 };
static const char *const architecture_names[] = {"gpt2", "llama", "qwen2"};

/* One tensor of the file: rows [first, first + rows) of a place. */
struct written_tensor {
    char name[GGUF_NAME + 1];
    uint32_t type;
    int n_dims, rows, cols, first;
    bool paired; /* queries and keys in pairs, as llama.cpp's llama has them */
    size_t bytes, offset;
};

struct gguf_writing {
    struct loader loader;
    struct model *model;
    enum architecture architecture;
    struct written_tensor *tensors;
    int n, capacity, at; /* at: the next to be written */
    FILE *file;
};

/* Names. */

struct place_name {
    size_t place;
    const char *names[MAX_PARTS]; /* of the whole, or of its blocks */
};

static const struct place_name layer_names[] = {
    {offsetof(struct layer, norm_in), {"attn_norm"}},
    {offsetof(struct layer, qkv), {"attn_q", "attn_k", "attn_v"}},
    {offsetof(struct layer, proj), {"attn_output"}},
    {offsetof(struct layer, norm_mlp), {"ffn_norm"}},
    {offsetof(struct layer, fc1), {"ffn_gate", "ffn_up"}},
    {offsetof(struct layer, fc2), {"ffn_down"}},
};
static const struct place_name outer_names[] = {
    {offsetof(struct model, embedding.word), {"token_embd"}},
    {offsetof(struct model, embedding.position), {"position_embd"}},
    {offsetof(struct model, stacks[STACK_DECODER].final_norm), {"output_norm"}},
    {offsetof(struct model, output), {"output"}},
};

static const struct place_name *find_names(const struct place *p) {
    size_t place = p->rows->rows[p->row].place;
    const struct place_name *names = p->outer ? outer_names : layer_names;
    size_t n = p->outer ? ARRAY_COUNT(outer_names) : ARRAY_COUNT(layer_names);
    for (size_t i = 0; i < n; i++)
        if (names[i].place == place) return &names[i];
    return NULL;
}

static int layer_of(const struct model *m, const struct place *p) {
    return (int)(((const char *)p->at - (const char *)m->stacks[STACK_DECODER].layers) /
                 (ptrdiff_t)sizeof(struct layer));
}

static struct written_tensor *add_tensor(struct gguf_writing *g, const struct place *p, const char *name, bool bias) {
    g->tensors = xgrow(g->tensors, g->n, &g->capacity, sizeof *g->tensors);
    struct written_tensor *t = &g->tensors[g->n];
    g->n++;
    *t = (struct written_tensor){.n_dims = 1, .type = GGML_F32};
    const char *ending = bias ? "bias" : "weight";
    if (p->outer)
        snprintf(t->name, sizeof t->name, "%s.%s", name, ending);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s.%s", layer_of(g->model, p), name, ending);
    return t;
}

static uint32_t type_of(enum dtype t) {
    switch (t) {
        case DTYPE_F16: return GGML_F16;
        case DTYPE_BF16: return GGML_BF16;
        case DTYPE_INT8: return GGML_Q8_0;
        case DTYPE_INT4: return GGML_Q4_1;
        default: return GGML_F32;
    }
}

static void size_tensor(struct written_tensor *t, int rows, int cols) {
    t->rows = rows;
    t->cols = cols;
    t->bytes = (size_t)rows * block_row_bytes(block_form_find(t->type), cols);
}

/* GPT-2 has a bias on every product: zeros, where the model has none. */
static bool lacks_bias(const struct gguf_writing *g, const struct place *p) {
    const struct dims *d = &g->model->stacks[STACK_DECODER].dims;
    size_t place = p->rows->rows[p->row].place;
    if (g->architecture != ARCH_GPT2 || p->outer || p->form != PLACE_MATRIX) return false;
    if (place == offsetof(struct layer, qkv)) return !d->qkv_bias;
    return place == offsetof(struct layer, proj) ? !d->proj_bias : !d->mlp_bias;
}

/* The tensors of a place, one for each of its blocks. */
static enum status list_place(void *context, const struct place *p, struct error *e) {
    struct gguf_writing *g = context;
    struct staged_place s = {.rows = p->share.rows, .cols = p->share.cols};
    const struct place_name *names = find_names(p);
    if (names == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "tensor %s has no place in a GGUF file of %s", p->name,
                         architecture_names[g->architecture]);
    if (loader_stage(&g->loader, &s, p, e)) return e->status;

    bool matrix = p->form == PLACE_MATRIX, fused = names->place == offsetof(struct layer, qkv) && !p->outer;
    bool split = p->share.n_blocks > 1 && !(fused && g->architecture == ARCH_GPT2);
    int first = 0;
    for (int b = 0; b < (split ? p->share.n_blocks : 1); b++) {
        bool up = !p->outer && names->place == offsetof(struct layer, fc1) && !split;
        const char *name = fused && !split ? "attn_qkv" : up ? "ffn_up" : names->names[b];
        struct written_tensor *t = add_tensor(g, p, name, p->bias);
        t->type = matrix ? type_of(s.planes.dtype) : GGML_F32;
        t->n_dims = matrix || p->form == PLACE_TABLE ? 2 : 1;
        t->first = first;
        t->paired =
            fused && b < 2 && g->architecture == ARCH_LLAMA && !g->model->stacks[STACK_DECODER].dims.rope_interleaved;
        int rows = split ? p->share.blocks[b] : p->share.rows;
        size_tensor(t, t->n_dims == 2 ? rows : 1, t->n_dims == 2 ? p->share.cols : rows * p->share.cols);
        first += rows;
    }
    if (lacks_bias(g, p)) {
        struct written_tensor *t = add_tensor(g, p, g->tensors[g->n - 1].name, true);
        snprintf(t->name, sizeof t->name, "%.*s.bias", (int)(strlen(g->tensors[g->n - 2].name) - strlen(".weight")),
                 g->tensors[g->n - 2].name);
        size_tensor(t, 1, p->share.rows);
    }
    return STATUS_OK;
}

/* The base that RoPE's frequencies follow from, as it was written: to six digits. */
static float find_base(const struct dims *d) {
    char text[40];
    if (d->rotated < 4) return 10000;
    snprintf(text, sizeof text, "%.6g", pow((double)d->rope[ROPE_GLOBAL].inv_freq[1], -0.5 * d->rotated));
    return strtof(text, NULL);
}

/* Frequencies that are not RoPE's own become factors by which llama.cpp divides those. */
static bool has_factors(const struct gguf_writing *g, float *factors) {
    const struct dims *d = &g->model->stacks[STACK_DECODER].dims;
    bool differ = false;
    for (int i = 0; i < d->rotated / 2; i++) {
        float plain = 1.0f / powf(find_base(d), (float)(2 * i) / (float)d->rotated);
        factors[i] = plain / d->rope[ROPE_GLOBAL].inv_freq[i];
        differ = differ || fabsf(factors[i] - 1) > 1e-6f;
    }
    return differ;
}

/* Data. */

/* The row of the place that row i of a tensor is. */
static int source_row(const struct gguf_writing *g, const struct written_tensor *t, int i) {
    int head = g->model->stacks[STACK_DECODER].dims.head_dim, at = i % head;
    if (!t->paired) return t->first + i;
    return t->first + i - at + at / 2 + at % 2 * (head / 2);
}

static void put_block(struct buffer *out, const struct matrix_planes *p, int row, int first) {
    buffer_append(out, plane_at(p, PLANE_SCALES, row, first), 2);
    if (p->dtype == DTYPE_INT4) buffer_append(out, plane_at(p, PLANE_MINIMUMS, row, first), 2);
    const uint8_t *values = (const uint8_t *)plane_at(p, PLANE_VALUES, row, first);
    if (p->dtype == DTYPE_INT8) {
        buffer_append(out, values, QUANTISE_BLOCK);
        return;
    }
    for (int j = 0; j < QUANTISE_BLOCK / 2; j++) {
        int far = j + QUANTISE_BLOCK / 2, low = values[j / 2] >> 4 * (j % 2) & 15,
            high = values[far / 2] >> 4 * (far % 2) & 15;
        buffer_append(out, &(char){(char)(low | high << 4)}, 1);
    }
}

static void put_row(struct buffer *out, const struct matrix_planes *p, int row) {
    if (!dtype_quantised(p->dtype)) {
        buffer_append(out, plane_at(p, PLANE_VALUES, row, 0), plane_bytes(p->dtype, PLANE_VALUES, p->cols));
        return;
    }
    for (int at = 0; at < p->cols; at += QUANTISE_BLOCK) put_block(out, p, row, at);
}

static enum status write_bytes(struct gguf_writing *g, const void *bytes, size_t size, struct error *e) {
    if (output_check(e)) return e->status;
    if (fwrite(bytes, 1, size, g->file) == size) return STATUS_OK;
    return error_errno(e, "model.gguf");
}

static enum status write_padding(struct gguf_writing *g, size_t size, struct error *e) {
    static const char zeros[ALIGNMENT];
    return write_bytes(g, zeros, (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT, e);
}

static enum status write_zeros(struct gguf_writing *g, const struct written_tensor *t, struct error *e) {
    char *zeros = xcalloc(t->bytes, 1);
    enum status status = write_bytes(g, zeros, t->bytes, e);
    free(zeros);
    return status ? status : write_padding(g, t->bytes, e);
}

/* Vectors and tables as f32, norms as they are computed with. */
static enum status write_floats(struct gguf_writing *g, const struct written_tensor *t, struct staged_place *s,
                                const struct place *p, struct error *e) {
    float *wide = stage_widen(&g->loader, s);
    if (wide == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to widen it", t->name);
    size_t n = t->bytes / sizeof *wide;
    struct buffer out = {0};
    for (size_t i = 0; i < n; i++) {
        float v = wide[t->n_dims == 1 ? (size_t)source_row(g, t, (int)i) : i];
        if (p->form == PLACE_GAMMA && g->model->stacks[STACK_DECODER].dims.zero_centered_gamma) v += 1;
        buffer_append(&out, &v, sizeof v);
    }
    enum status status = write_bytes(g, out.data, out.size, e);
    buffer_free(&out);
    return status;
}

static enum status write_rows(struct gguf_writing *g, const struct written_tensor *t, const struct staged_place *s,
                              struct error *e) {
    struct buffer row = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < t->rows && status == STATUS_OK; i++) {
        buffer_clear(&row);
        put_row(&row, &s->planes, source_row(g, t, i));
        status = write_bytes(g, row.data, row.size, e);
    }
    buffer_free(&row);
    return status;
}

/* The tensor whose turn it is. */
static const struct written_tensor *next_tensor(struct gguf_writing *g) {
    g->at++;
    return &g->tensors[g->at - 1];
}

/* The same tensors in the same order as list_place. */
static enum status write_place(void *context, const struct place *p, struct error *e) {
    struct gguf_writing *g = context;
    struct staged_place s = {.rows = p->share.rows, .cols = p->share.cols};
    if (loader_stage(&g->loader, &s, p, e)) return e->status;
    int left = p->share.rows;
    while (left > 0) {
        const struct written_tensor *t = next_tensor(g);
        enum status status = p->form == PLACE_MATRIX ? write_rows(g, t, &s, e) : write_floats(g, t, &s, p, e);
        if (status == STATUS_OK) status = write_padding(g, t->bytes, e);
        if (status) return status;
        left -= t->n_dims == 2 ? t->rows : t->cols / p->share.cols;
    }
    return lacks_bias(g, p) ? write_zeros(g, next_tensor(g), e) : STATUS_OK;
}

/* Keys. */

void gguf_put_number(struct buffer *out, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buffer_append(out, &(char){(char)(v >> 8 * i)}, 1);
}

void gguf_put_text(struct buffer *out, struct text_span text) {
    gguf_put_number(out, text.size, 8);
    buffer_append(out, text.text, text.size);
}

static void put_key(struct gguf_keys *k, const char *key, enum gguf_type type) {
    k->n++;
    gguf_put_text(&k->bytes, (struct text_span){key, strlen(key)});
    gguf_put_number(&k->bytes, type, 4);
}

void keys_put_int(struct gguf_keys *k, const char *key, uint32_t v) {
    put_key(k, key, GGUF_U32);
    gguf_put_number(&k->bytes, v, 4);
}

void keys_put_float(struct gguf_keys *k, const char *key, float v) {
    put_key(k, key, GGUF_F32);
    buffer_append(&k->bytes, &v, sizeof v);
}

void keys_put_bool(struct gguf_keys *k, const char *key, bool v) {
    put_key(k, key, GGUF_BOOL);
    gguf_put_number(&k->bytes, v, 1);
}

void keys_put_text(struct gguf_keys *k, const char *key, struct text_span v) {
    put_key(k, key, GGUF_TEXT);
    gguf_put_text(&k->bytes, v);
}

void keys_put_list(struct gguf_keys *k, const char *key, enum gguf_type item, size_t n) {
    put_key(k, key, GGUF_LIST);
    gguf_put_number(&k->bytes, item, 4);
    gguf_put_number(&k->bytes, n, 8);
}

static void put_shape(struct gguf_keys *k, const struct gguf_writing *g) {
    const struct dims *d = &g->model->stacks[STACK_DECODER].dims;
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"block_count", d->n_layers},          {"context_length", g->model->spec.max_positions},
                 {"embedding_length", d->hidden},       {"feed_forward_length", d->ffn},
                 {"attention.head_count", d->heads},    {"attention.head_count_kv", d->kv_heads},
                 {"attention.key_length", d->head_dim}, {"attention.value_length", d->head_dim},
                 {"rope.dimension_count", d->rotated}};
    char key[100];
    const char *name = architecture_names[g->architecture];
    for (size_t i = 0; i < ARRAY_COUNT(sizes) - (g->architecture == ARCH_GPT2 ? 3 : 0); i++) {
        snprintf(key, sizeof key, "%s.%s", name, sizes[i].key);
        keys_put_int(k, key, (uint32_t)sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_%sepsilon", name, g->architecture == ARCH_GPT2 ? "" : "rms_");
    keys_put_float(k, key, d->epsilon);
    snprintf(key, sizeof key, "%s.rope.freq_base", name);
    if (g->architecture != ARCH_GPT2) keys_put_float(k, key, find_base(d));
}

static enum status choose_architecture(struct gguf_writing *g, struct error *e) {
    const struct model *m = g->model;
    const struct dims *d = &m->stacks[STACK_DECODER].dims;
    static const char *const families[] = {"gpt", "gpt2", "llama", "qwen2"};
    bool known = false, scaled = d->score_scale == 1.0f / sqrtf((float)d->head_dim);
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) known = known || strcmp(families[i], m->info.family) == 0;
    if (!known)
        return error_set(e, STATUS_UNSUPPORTED, "a %s model is not written to GGUF; gpt, gpt2, llama and qwen2 are",
                         m->info.family);

    bool turns = d->rope_long_after == 0 && (d->rope[ROPE_GLOBAL].scale == 0 || d->rope[ROPE_GLOBAL].scale == 1);
    bool unscaled = (d->residual_scale == 0 || d->residual_scale == 1) && d->score_cap == 0 &&
                    (m->spec.embedding_scale == 0 || m->spec.embedding_scale == 1) && m->spec.logit_cap == 0;
    bool whole = m->spec.window == 0 && d->qk_norm == QK_NORM_NONE && !d->parallel;
    bool plain =
        scaled && turns && unscaled && whole && d->final_norm && m->spec.logit_scale == 1 && !m->spec.output_bias;
    bool gpt2 = m->spec.learned_positions && d->rotated == 0 && d->norm == NORM_LAYER && !d->gated &&
                d->activation == ACTIVATION_GELU_TANH && d->heads == d->kv_heads;
    bool llama = !m->spec.learned_positions && d->rotated == d->head_dim && d->norm == NORM_RMS && d->gated &&
                 d->activation == ACTIVATION_SILU && !d->proj_bias && !d->mlp_bias;
    g->architecture = gpt2 ? ARCH_GPT2 : d->qkv_bias ? ARCH_QWEN2 : ARCH_LLAMA;
    if (plain && (gpt2 || (llama && !(d->qkv_bias && d->rope_interleaved)))) return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "this model is neither llama.cpp's gpt2 (learned positions, layer norms, gelu_tanh) nor its llama "
                     "or qwen2 (RoPE on whole heads, RMS norms, swiglu, no biases but of queries, keys and values)");
}

static enum status write_header(struct gguf_writing *g, const struct gguf_keys *k, struct error *e) {
    struct buffer b = {0};
    size_t at = 0;
    buffer_append_string(&b, "GGUF");
    gguf_put_number(&b, 3, 4);
    gguf_put_number(&b, (uint64_t)g->n, 8);
    gguf_put_number(&b, (uint64_t)k->n, 8);
    buffer_append(&b, k->bytes.data, k->bytes.size);
    for (int i = 0; i < g->n; i++) {
        const struct written_tensor *t = &g->tensors[i];
        gguf_put_text(&b, (struct text_span){t->name, strlen(t->name)});
        gguf_put_number(&b, (uint64_t)t->n_dims, 4);
        gguf_put_number(&b, (uint64_t)t->cols, 8);
        if (t->n_dims == 2) gguf_put_number(&b, (uint64_t)t->rows, 8);
        gguf_put_number(&b, t->type, 4);
        gguf_put_number(&b, at, 8);
        at += (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    enum status status = write_bytes(g, b.data, b.size, e);
    if (status == STATUS_OK) status = write_padding(g, b.size, e);
    buffer_free(&b);
    return status;
}

static enum status write_file(struct gguf_writing *g, const struct gguf_keys *k, const float *factors,
                              struct error *e) {
    struct model_options wanted = {.check_only = false};
    if (write_header(g, k, e)) return e->status;
    g->loader.options = &wanted;
    if (factors) {
        const struct written_tensor *t = next_tensor(g);
        if (write_bytes(g, factors, t->bytes, e) || write_padding(g, t->bytes, e)) return e->status;
    }
    return model_visit(g->model, write_place, g, e);
}

static enum status collect(struct gguf_writing *g, struct gguf_keys *k, const char *from, struct error *e) {
    static const struct model_options checked = {.check_only = true};
    const char *name = architecture_names[g->architecture];
    keys_put_text(k, "general.architecture", (struct text_span){name, strlen(name)});
    keys_put_int(k, "general.quantization_version", 2);
    put_shape(k, g);
    if (keys_put_tokenizer(k, from, g->model->spec.padded_vocab, e)) return e->status;
    g->loader.options = &checked;
    return model_visit(g->model, list_place, g, e);
}

static enum status put_file(struct gguf_writing *g, const struct gguf_keys *k, const char *folder, const float *factors,
                            struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/model.gguf", folder);
    g->file = fopen(path.data, "wbx");
    enum status status = g->file ? write_file(g, k, factors, e) : error_errno(e, "%s", path.data);
    if (g->file && (fflush(g->file) != 0 || fsync(fileno(g->file)) != 0) && status == STATUS_OK)
        status = error_errno(e, "%s", path.data);
    if (g->file && fclose(g->file) != 0 && status == STATUS_OK) status = error_errno(e, "%s", path.data);
    buffer_free(&path);
    return status;
}

enum status gguf_write(const struct conversion *p, const char *from, const char *folder, struct error *e) {
    struct gguf_writing g = {.model = p->model, .loader = {.model = p->model, .weights = p->weights}};
    struct gguf_keys keys = {.n = 0};
    float factors[ATTENTION_MAX_HEAD];
    if (choose_architecture(&g, e)) return e->status;
    g.loader.used = xcalloc((size_t)weights_count(p->weights) + 1, sizeof *g.loader.used);
    bool scaled = g.architecture != ARCH_GPT2 && has_factors(&g, factors);
    if (scaled && g.architecture == ARCH_QWEN2)
        return error_set(e, STATUS_UNSUPPORTED, "llama.cpp's qwen2 has no scaled RoPE");
    if (scaled) {
        struct place outer = {.outer = true};
        struct written_tensor *t = add_tensor(&g, &outer, "rope_freqs", false);
        size_tensor(t, 1, p->model->stacks[STACK_DECODER].dims.rotated / 2);
    }
    enum status status = collect(&g, &keys, from, e);
    if (status == STATUS_OK) status = put_file(&g, &keys, folder, scaled ? factors : NULL, e);
    for (int i = 0; i < ROOMS; i++) free(g.loader.rooms[i].data);
    free(g.loader.used);
    free(g.tensors);
    buffer_free(&keys.bytes);
    return status;
}
