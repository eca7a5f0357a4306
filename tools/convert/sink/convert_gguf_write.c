/* tools/convert/sink/convert_gguf_write.c: a model as a GGUF file that llama.cpp runs. Weights keep their type: int8 is
 * Q8_0 and int4 is Q4_1, number for number. See convert.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retro/model/loader.h"
#include "retro/model/place_names.h"
#include "tools/convert/sink/convert_gguf.h"

enum { ALIGNMENT = 32, GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_1 = 3, GGML_Q8_0 = 8, GGML_BF16 = 30 };

/* One tensor of the file: rows [first, first + rows) of a place, or of that place of every expert. */
struct written_tensor {
    char name[GGUF_NAME + 1];
    uint32_t type;
    int n_dims, experts, rows, cols, first; /* experts: 0 outside of mixtures */
    bool paired;                            /* queries and keys in pairs, as llama.cpp's llama has them */
    size_t bytes, offset;                   /* bytes: of one expert */
};

struct gguf_writing {
    struct loader loader;
    struct model *model;
    struct written_architecture architecture;
    struct written_tensor *tensors;
    int n, capacity, at; /* at: the next to be written */
    size_t data;         /* where the tensors begin in the file */
    FILE *file;
};

/* Names. */

/* The row of the written family for block b of a place, or for all blocks. */
static const struct tensor_row *find_row(const struct gguf_writing *g, const struct place *p, int b) {
    const struct family *f = g->architecture.family;
    return place_row_find(p->outer ? &f->outer : &f->stacks[STACK_DECODER], p->rows->rows[p->row].place,
                          (enum part)(PART_FIRST + b));
}

/* How many tensors the blocks of a place are: one each, or all together. */
static int count_tensors(const struct gguf_writing *g, const struct place *p) {
    const struct tensor_row *row = find_row(g, p, 0);
    return row->part < PART_FIRST ? 1 : p->share.n_blocks;
}

/* The name of block b; NULL: the file has no such tensor. */
static const char *find_name(const struct gguf_writing *g, const struct place *p, int b) {
    const struct tensor_row *row = find_row(g, p, b);
    return row ? place_names_find(p->outer ? &gguf_outer_names : &gguf_layer_names, row) : NULL;
}

/* "model.layers.7." is of layer 7. */
static int layer_of(const struct place *p) {
    return (int)strtol(p->prefix + strcspn(p->prefix, "0123456789"), NULL, 10);
}

/* Small matrices that choose experts stay f32, as llama.cpp's own files have them. */
static bool is_routing(const struct place *p) {
    size_t place = p->rows->rows[p->row].place;
    return !p->outer && (place == offsetof(struct layer, router) || place == offsetof(struct layer, shared_gate));
}

static bool is_expert(const struct place *p) {
    size_t place = p->rows->rows[p->row].place;
    return !p->outer && (place == offsetof(struct layer, expert_fc1) || place == offsetof(struct layer, expert_fc2));
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
        snprintf(t->name, sizeof t->name, "blk.%d.%s.%s", layer_of(p), name, ending);
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
    if (!g->architecture.every_bias || p->outer || p->form != PLACE_MATRIX) return false;
    if (place == offsetof(struct layer, qkv)) return !d->qkv_bias;
    return place == offsetof(struct layer, proj) ? !d->proj_bias : !d->mlp_bias;
}

/* Block b of a place, or the whole: b 0 where they are one tensor. */
static int list_block(struct gguf_writing *g, const struct place *p, const struct staged_place *s, int b, int first) {
    const struct dims *d = &g->model->stacks[STACK_DECODER].dims;
    bool matrix = p->form == PLACE_MATRIX,
         qkv = !p->outer && p->rows->rows[p->row].place == offsetof(struct layer, qkv);
    struct written_tensor *t = add_tensor(g, p, find_name(g, p, b), p->bias);
    int rows = count_tensors(g, p) == 1 ? p->share.rows : p->share.blocks[b];
    t->type = matrix && !is_routing(p) ? type_of(s->planes.dtype) : GGML_F32;
    t->n_dims = matrix || p->form == PLACE_TABLE ? 2 : 1;
    t->experts = is_expert(p) ? d->experts : 0;
    t->first = first;
    t->paired = qkv && b < 2 && g->architecture.rows->paired && !d->rope_interleaved;
    size_tensor(t, t->n_dims == 2 ? rows : 1, t->n_dims == 2 ? p->share.cols : rows * p->share.cols);
    return rows;
}

/* The tensors of a place, one for each of its blocks; of experts those of the first, which the others join. */
static enum status list_place(void *context, const struct place *p, struct error *e) {
    struct gguf_writing *g = context;
    struct staged_place s = {.rows = p->share.rows, .cols = p->share.cols};
    if (find_name(g, p, 0) == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "tensor %s has no place in a GGUF file of %s", p->name,
                         g->architecture.rows->name);
    if (loader_stage(&g->loader, &s, p, e)) return e->status;
    if (is_expert(p) && p->expert > 0) {
        if (g->tensors[g->n - 1].type == type_of(s.planes.dtype)) return STATUS_OK;
        return error_set(e, STATUS_UNSUPPORTED,
                         "tensor %s is of another type than that of the first expert; a GGUF file "
                         "has them in one",
                         p->name);
    }
    int first = 0;
    for (int b = 0; b < count_tensors(g, p); b++) first += list_block(g, p, &s, b, first);
    if (lacks_bias(g, p)) {
        struct written_tensor *t = add_tensor(g, p, g->tensors[g->n - 1].name, true);
        snprintf(t->name, sizeof t->name, "%.*s.bias", (int)(strlen(g->tensors[g->n - 2].name) - strlen(".weight")),
                 g->tensors[g->n - 2].name);
        size_tensor(t, 1, p->share.rows);
    }
    return STATUS_OK;
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

/* To a tensor's place in the file, which is filled with zeros up to there; an expert's part of it. */
static enum status seek_tensor(struct gguf_writing *g, const struct written_tensor *t, int expert, struct error *e) {
    size_t at = g->data + t->offset + (size_t)expert * t->bytes;
    if (fseeko(g->file, (off_t)at, SEEK_SET) == 0) return STATUS_OK;
    return error_errno(e, "model.gguf");
}

/* The blocks of a place, from tensor `at` on; one expert's. */
static enum status write_blocks(struct gguf_writing *g, int at, struct staged_place *s, const struct place *p,
                                struct error *e) {
    int left = p->share.rows;
    for (int i = at; left > 0; i++) {
        const struct written_tensor *t = &g->tensors[i];
        if (seek_tensor(g, t, p->expert, e)) return e->status;
        bool rows = p->form == PLACE_MATRIX && !is_routing(p);
        if (rows ? write_rows(g, t, s, e) : write_floats(g, t, s, p, e)) return e->status;
        if (p->expert + 1 >= t->experts && write_padding(g, (size_t)max_int(t->experts, 1) * t->bytes, e))
            return e->status;
        left -= t->n_dims == 2 ? t->rows : t->cols / p->share.cols;
    }
    return STATUS_OK;
}

/* The same tensors in the same order as list_place; those of experts are there once and written as often. */
static enum status write_place(void *context, const struct place *p, struct error *e) {
    struct gguf_writing *g = context;
    struct staged_place s = {.rows = p->share.rows, .cols = p->share.cols};
    if (loader_stage(&g->loader, &s, p, e)) return e->status;
    int n = count_tensors(g, p);
    if (!is_expert(p) || p->expert == 0) g->at += n;
    if (write_blocks(g, g->at - n, &s, p, e)) return e->status;
    if (!lacks_bias(g, p)) return STATUS_OK;
    const struct written_tensor *bias = next_tensor(g);
    return seek_tensor(g, bias, 0, e) ? e->status : write_zeros(g, bias, e);
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

static enum status write_header(struct gguf_writing *g, const struct gguf_keys *k, struct error *e) {
    struct buffer b = {0};
    size_t at = 0;
    buffer_append_string(&b, "GGUF");
    gguf_put_number(&b, 3, 4);
    gguf_put_number(&b, (uint64_t)g->n, 8);
    gguf_put_number(&b, (uint64_t)k->n, 8);
    buffer_append(&b, k->bytes.data, k->bytes.size);
    for (int i = 0; i < g->n; i++) {
        struct written_tensor *t = &g->tensors[i];
        t->offset = at;
        gguf_put_text(&b, (struct text_span){t->name, strlen(t->name)});
        gguf_put_number(&b, (uint64_t)t->n_dims + (t->experts > 0), 4);
        gguf_put_number(&b, (uint64_t)t->cols, 8);
        if (t->n_dims == 2) gguf_put_number(&b, (uint64_t)t->rows, 8);
        if (t->experts > 0) gguf_put_number(&b, (uint64_t)t->experts, 8);
        gguf_put_number(&b, t->type, 4);
        gguf_put_number(&b, at, 8);
        at += ((size_t)max_int(t->experts, 1) * t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    g->data = (b.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    enum status status = write_bytes(g, b.data, b.size, e);
    if (status == STATUS_OK) status = write_padding(g, b.size, e);
    buffer_free(&b);
    return status;
}

static enum status write_file(struct gguf_writing *g, const struct gguf_keys *k, struct error *e) {
    const struct written_factors *factors = &g->architecture.factors;
    struct model_options wanted = {.check_only = false};
    if (write_header(g, k, e)) return e->status;
    g->loader.options = &wanted;
    for (int i = 0; i < factors->n; i++) {
        const struct written_tensor *t = next_tensor(g);
        if (write_bytes(g, factors->values[i], t->bytes, e) || write_padding(g, t->bytes, e)) return e->status;
    }
    return model_visit(g->model, write_place, g, e);
}

static enum status collect(struct gguf_writing *g, struct gguf_keys *k, const char *from, struct error *e) {
    static const struct model_options checked = {.check_only = true};
    const char *name = g->architecture.rows->name;
    keys_put_text(k, "general.architecture", (struct text_span){name, strlen(name)});
    keys_put_int(k, "general.quantization_version", 2);
    keys_put_shape(k, g->model, &g->architecture);
    if (keys_put_tokenizer(k, from, g->model->spec.padded_vocab, e)) return e->status;
    g->loader.options = &checked;
    return model_visit(g->model, list_place, g, e);
}

static enum status put_file(struct gguf_writing *g, const struct gguf_keys *k, const char *folder, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/model.gguf", folder);
    g->file = fopen(path.data, "wbx");
    enum status status = g->file ? write_file(g, k, e) : error_errno(e, "%s", path.data);
    if (g->file && (fflush(g->file) != 0 || fsync(fileno(g->file)) != 0) && status == STATUS_OK)
        status = error_errno(e, "%s", path.data);
    if (g->file && fclose(g->file) != 0 && status == STATUS_OK) status = error_errno(e, "%s", path.data);
    buffer_free(&path);
    return status;
}

/* Vectors by which RoPE's frequencies are divided stand before all. */
static void list_factors(struct gguf_writing *g) {
    const struct written_factors *factors = &g->architecture.factors;
    struct place outer = {.outer = true};
    for (int i = 0; i < factors->n; i++) {
        struct written_tensor *t = add_tensor(g, &outer, factors->names[i], false);
        size_tensor(t, 1, g->model->stacks[STACK_DECODER].dims.rotated / 2);
    }
}

static enum status gguf_write(const struct conversion *p, const char *from, const char *folder, struct error *e) {
    struct gguf_writing g = {.model = p->model, .loader = {.model = p->model, .weights = p->weights}};
    struct gguf_keys keys = {.n = 0};
    if (architecture_choose(p->model, &g.architecture, e)) return e->status;
    g.loader.used = xcalloc((size_t)weights_count(p->weights) + 1, sizeof *g.loader.used);
    list_factors(&g);
    enum status status = collect(&g, &keys, from, e);
    if (status == STATUS_OK) status = put_file(&g, &keys, folder, e);
    for (int i = 0; i < ROOMS; i++) free(g.loader.rooms[i].data);
    free(g.loader.used);
    free(g.tensors);
    buffer_free(&keys.bytes);
    return status;
}

const struct written_format format_gguf = {.name = "gguf",
                                           .described = "a GGUF file, each in its type",
                                           .doing = "writing GGUF",
                                           .whole = true,
                                           .write = gguf_write};
