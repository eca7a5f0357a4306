/* tools/convert/sink/convert_gguf_write.c: a model as a GGUF file that llama.cpp runs. Weights keep
 * their type: int8 is Q8_0 and int4 is Q4_1, number for number. See convert.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "retro/model/loader.h"
#include "retro/model/place_names.h"
#include "tools/convert/sink/convert_gguf.h"

enum {
    ALIGNMENT = 32,
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_1 = 3,
    GGML_Q8_0 = 8,
    GGML_BF16 = 30,
    GGML_MXFP4 = 39
};

/* One tensor of the file: rows [first, first + rows) of a place, or of that place of every expert.
 */
struct written_tensor {
    char name[GGUF_NAME + 1];
    uint32_t type;
    int n_dims, experts, rows, cols, first; /* experts: 0 outside of mixtures */
    bool paired;          /* queries and keys in pairs, as llama.cpp's llama has them */
    size_t bytes, offset; /* bytes: of one expert */
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
static const struct tensor_row *find_row(const struct gguf_writing *writing,
                                         const struct place *place, int b) {
    const struct family *family = writing->architecture.family;
    return place_row_find(place->outer ? &family->outer : &family->stacks[STACK_DECODER],
                          place->rows->rows[place->row].place, (enum part)(PART_FIRST + b));
}

/* How many tensors the blocks of a place are: one each, or all together. */
static int count_tensors(const struct gguf_writing *writing, const struct place *place) {
    const struct tensor_row *row = find_row(writing, place, 0);
    return row->part < PART_FIRST ? 1 : place->share.n_blocks;
}

/* The name of block b; NULL: the file has no such tensor. */
static const char *find_name(const struct gguf_writing *writing, const struct place *place, int b) {
    const struct tensor_row *row = find_row(writing, place, b);
    const char *mlp_norm = writing->architecture.rows->mlp_norm;
    if (mlp_norm && row && !place->outer && row->place == offsetof(struct layer, norm_mlp))
        return mlp_norm;
    return row ? place_names_find(place->outer ? &gguf_outer_names : &gguf_layer_names, row) : NULL;
}

/* "model.layers.7." is of layer 7. */
static int layer_of(const struct place *place) {
    return (int)strtol(place->prefix + strcspn(place->prefix, "0123456789"), NULL, 10);
}

static bool is_expert(const struct place *the_place) {
    size_t place = the_place->rows->rows[the_place->row].place;
    return !the_place->outer && (place == offsetof(struct layer, expert_fc1) ||
                                 place == offsetof(struct layer, expert_fc2));
}

/* "blk.7.attn_q.weight". */
static void spell_tensor(char spelt[GGUF_NAME + 1], const struct place *place, const char *name,
                         bool bias) {
    const char *ending = bias ? "bias" : "weight";
    if (place->outer)
        snprintf(spelt, GGUF_NAME + 1, "%s.%s", name, ending);
    else
        snprintf(spelt, GGUF_NAME + 1, "blk.%d.%s.%s", layer_of(place), name, ending);
}

/* The first of a place's tensors, which is one of the last before `end`: of an expert that of the
 * first one, which it joins. */
static int find_tensor(const struct gguf_writing *writing, const struct place *place, int end) {
    char name[GGUF_NAME + 1];
    int i = end - 1;
    spell_tensor(name, place, find_name(writing, place, 0), place->bias);
    while (i > 0 && strcmp(writing->tensors[i].name, name) != 0) i--;
    return i;
}

static struct written_tensor *add_tensor(struct gguf_writing *writing, const struct place *place,
                                         const char *name, bool bias) {
    writing->tensors =
        xgrow(writing->tensors, writing->n, &writing->capacity, sizeof *writing->tensors);
    struct written_tensor *tensor = &writing->tensors[writing->n];
    writing->n++;
    *tensor = (struct written_tensor){.n_dims = 1, .type = GGML_F32};
    spell_tensor(tensor->name, place, name, bias);
    return tensor;
}

static uint32_t type_of(enum dtype dtype) {
    switch (dtype) {
        case DTYPE_F16: return GGML_F16;
        case DTYPE_BF16: return GGML_BF16;
        case DTYPE_INT8: return GGML_Q8_0;
        case DTYPE_INT4: return GGML_Q4_1;
        case DTYPE_MXFP4: return GGML_MXFP4;
        default: return GGML_F32;
    }
}

static void size_tensor(struct written_tensor *tensor, int rows, int cols) {
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->bytes = (size_t)rows * block_row_bytes(block_form_find(tensor->type), cols);
}

/* GPT-2 has a bias on every product: zeros, where the model has none. */
static bool lacks_bias(const struct gguf_writing *writing, const struct place *the_place) {
    const struct dims *dims = &writing->model->stacks[STACK_DECODER].dims;
    size_t place = the_place->rows->rows[the_place->row].place;
    if (!writing->architecture.every_bias || the_place->outer || the_place->form != PLACE_MATRIX)
        return false;
    if (place == offsetof(struct layer, qkv)) return !dims->qkv_bias;
    return place == offsetof(struct layer, proj) ? !dims->proj_bias : !dims->mlp_bias;
}

/* Block b of a place, or the whole: b 0 where they are one tensor. */
static int list_block(struct gguf_writing *writing, const struct place *place,
                      const struct staged_place *staged, int b, int first) {
    const struct dims *dims = &writing->model->stacks[STACK_DECODER].dims;
    bool matrix = place->form == PLACE_MATRIX,
         qkv = !place->outer && place->rows->rows[place->row].place == offsetof(struct layer, qkv);
    struct written_tensor *tensor =
        add_tensor(writing, place, find_name(writing, place, b), place->bias);
    int rows = count_tensors(writing, place) == 1 ? place->share.rows : place->share.blocks[b];
    /* Matrices that route are f32, as llama.cpp's own files have them. */
    tensor->type = matrix && !place_routes(place) ? type_of(staged->planes.dtype) : GGML_F32;
    tensor->n_dims = matrix || (place->form == PLACE_TABLE && place->share.rows > 1) ? 2 : 1;
    tensor->experts = is_expert(place) ? dims->experts : 0;
    tensor->first = first;
    tensor->paired = qkv && b < 2 && writing->architecture.rows->paired && !dims->rope_interleaved;
    size_tensor(tensor, tensor->n_dims == 2 ? rows : 1,
                tensor->n_dims == 2 ? place->share.cols : rows * place->share.cols);
    return rows;
}

/* The tensors of a place, one for each of its blocks; of experts those of the first, which the
 * others join. */
static enum status list_place(void *context, const struct place *place, struct error *e) {
    struct gguf_writing *writing = context;
    struct staged_place staged = {.rows = place->share.rows, .cols = place->share.cols};
    if (find_name(writing, place, 0) == NULL)
        return error_set(e, STATUS_UNSUPPORTED, "tensor %s has no place in a GGUF file of %s",
                         place->name, writing->architecture.rows->name);
    if (loader_stage(&writing->loader, &staged, place, e)) return e->status;
    if (is_expert(place) && place->expert > 0) {
        const struct written_tensor *joined =
            &writing->tensors[find_tensor(writing, place, writing->n)];
        if (place->bias || joined->type == type_of(staged.planes.dtype)) return STATUS_OK;
        return error_set(e, STATUS_UNSUPPORTED,
                         "tensor %s is of another type than that of the first expert; a GGUF file "
                         "has them in one",
                         place->name);
    }
    int first = 0;
    for (int b = 0; b < count_tensors(writing, place); b++)
        first += list_block(writing, place, &staged, b, first);
    if (lacks_bias(writing, place)) {
        struct written_tensor *tensor =
            add_tensor(writing, place, writing->tensors[writing->n - 1].name, true);
        snprintf(tensor->name, sizeof tensor->name, "%.*s.bias",
                 (int)(strlen(writing->tensors[writing->n - 2].name) - strlen(".weight")),
                 writing->tensors[writing->n - 2].name);
        size_tensor(tensor, 1, place->share.rows);
    }
    return STATUS_OK;
}

/* Data. */

/* The row of the place that row i of a tensor is. */
static int source_row(const struct gguf_writing *writing, const struct written_tensor *tensor,
                      int i) {
    int head = writing->model->stacks[STACK_DECODER].dims.head_dim, at = i % head;
    if (!tensor->paired) return tensor->first + i;
    return tensor->first + i - at + at / 2 + at % 2 * (head / 2);
}

static void put_block(struct buffer *out, const struct matrix_planes *planes, int row, int first) {
    bool exponent = planes->dtype == DTYPE_MXFP4;
    buffer_append(out, plane_at(planes, PLANE_SCALES, row, first), exponent ? 1 : 2);
    if (planes->dtype == DTYPE_INT4)
        buffer_append(out, plane_at(planes, PLANE_MINIMUMS, row, first), 2);
    const uint8_t *values = (const uint8_t *)plane_at(planes, PLANE_VALUES, row, first);
    if (planes->dtype == DTYPE_INT8) {
        buffer_append(out, values, QUANTISE_BLOCK);
        return;
    }
    for (int j = 0; j < QUANTISE_BLOCK / 2; j++) {
        int far = j + QUANTISE_BLOCK / 2, low = values[j / 2] >> 4 * (j % 2) & 15,
            high = values[far / 2] >> 4 * (far % 2) & 15;
        buffer_append(out, &(char){(char)(low | high << 4)}, 1);
    }
}

static void put_row(struct buffer *out, const struct matrix_planes *planes, int row) {
    if (!dtype_quantised(planes->dtype)) {
        buffer_append(out, plane_at(planes, PLANE_VALUES, row, 0),
                      plane_bytes(planes->dtype, PLANE_VALUES, planes->cols));
        return;
    }
    for (int at = 0; at < planes->cols; at += QUANTISE_BLOCK) put_block(out, planes, row, at);
}

static enum status write_bytes(struct gguf_writing *writing, const void *bytes, size_t size,
                               struct error *e) {
    if (output_check(e)) return e->status;
    if (fwrite(bytes, 1, size, writing->file) == size) return STATUS_OK;
    return error_errno(e, "model.gguf");
}

static enum status write_padding(struct gguf_writing *writing, size_t size, struct error *e) {
    static const char zeros[ALIGNMENT];
    return write_bytes(writing, zeros, (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT, e);
}

static enum status write_zeros(struct gguf_writing *writing, const struct written_tensor *tensor,
                               struct error *e) {
    char *zeros = xcalloc(tensor->bytes, 1);
    enum status status = write_bytes(writing, zeros, tensor->bytes, e);
    free(zeros);
    return status ? status : write_padding(writing, tensor->bytes, e);
}

/* Vectors and tables as f32, norms as they are computed with. */
static enum status write_floats(struct gguf_writing *writing, const struct written_tensor *tensor,
                                struct staged_place *staged, const struct place *place,
                                struct error *e) {
    float *wide = stage_widen(&writing->loader, staged);
    if (wide == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory to widen it", tensor->name);
    size_t n = tensor->bytes / sizeof *wide;
    struct buffer out = {0};
    for (size_t i = 0; i < n; i++) {
        float v = wide[tensor->n_dims == 1 ? (size_t)source_row(writing, tensor, (int)i) : i];
        if (place->form == PLACE_GAMMA &&
            writing->model->stacks[STACK_DECODER].dims.zero_centered_gamma)
            v += 1;
        buffer_append(&out, &v, sizeof v);
    }
    enum status status = write_bytes(writing, out.data, out.size, e);
    buffer_free(&out);
    return status;
}

static enum status write_rows(struct gguf_writing *writing, const struct written_tensor *tensor,
                              const struct staged_place *staged, struct error *e) {
    struct buffer row = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < tensor->rows && status == STATUS_OK; i++) {
        buffer_clear(&row);
        put_row(&row, &staged->planes, source_row(writing, tensor, i));
        status = write_bytes(writing, row.data, row.size, e);
    }
    buffer_free(&row);
    return status;
}

/* The tensor whose turn it is. */
static const struct written_tensor *next_tensor(struct gguf_writing *writing) {
    writing->at++;
    return &writing->tensors[writing->at - 1];
}

/* To a tensor's place in the file, which is filled with zeros up to there; an expert's part of it.
 */
static enum status seek_tensor(struct gguf_writing *writing, const struct written_tensor *tensor,
                               int expert, struct error *e) {
    size_t at = writing->data + tensor->offset + (size_t)expert * tensor->bytes;
    if (fseeko(writing->file, (off_t)at, SEEK_SET) == 0) return STATUS_OK;
    return error_errno(e, "model.gguf");
}

/* The blocks of a place, from tensor `at` on; one expert's. */
static enum status write_blocks(struct gguf_writing *writing, int at, struct staged_place *staged,
                                const struct place *place, struct error *e) {
    int left = place->share.rows;
    for (int i = at; left > 0; i++) {
        const struct written_tensor *tensor = &writing->tensors[i];
        if (seek_tensor(writing, tensor, place->expert, e)) return e->status;
        bool rows = place->form == PLACE_MATRIX && !place_routes(place);
        if (rows ? write_rows(writing, tensor, staged, e)
                 : write_floats(writing, tensor, staged, place, e))
            return e->status;
        if (place->expert + 1 >= tensor->experts &&
            write_padding(writing, (size_t)max_int(tensor->experts, 1) * tensor->bytes, e))
            return e->status;
        left -= tensor->n_dims == 2 ? tensor->rows : tensor->cols / place->share.cols;
    }
    return STATUS_OK;
}

/* The same tensors in the same order as list_place; those of experts are there once and written as
 * often. */
static enum status write_place(void *context, const struct place *place, struct error *e) {
    struct gguf_writing *writing = context;
    struct staged_place staged = {.rows = place->share.rows, .cols = place->share.cols};
    if (loader_stage(&writing->loader, &staged, place, e)) return e->status;
    bool joins = is_expert(place) && place->expert > 0;
    int at = joins ? find_tensor(writing, place, writing->at) : writing->at;
    if (!joins) writing->at += count_tensors(writing, place);
    if (write_blocks(writing, at, &staged, place, e)) return e->status;
    if (!lacks_bias(writing, place)) return STATUS_OK;
    const struct written_tensor *bias = next_tensor(writing);
    return seek_tensor(writing, bias, 0, e) ? e->status : write_zeros(writing, bias, e);
}

/* Keys. */

void gguf_put_number(struct buffer *out, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buffer_append(out, &(char){(char)(v >> 8 * i)}, 1);
}

void gguf_put_text(struct buffer *out, struct text_span text) {
    gguf_put_number(out, text.size, 8);
    buffer_append(out, text.text, text.size);
}

static void put_key(struct gguf_keys *keys, const char *key, enum gguf_type type) {
    keys->n++;
    gguf_put_text(&keys->bytes, (struct text_span){key, strlen(key)});
    gguf_put_number(&keys->bytes, type, 4);
}

void keys_put_int(struct gguf_keys *keys, const char *key, uint32_t v) {
    put_key(keys, key, GGUF_U32);
    gguf_put_number(&keys->bytes, v, 4);
}

void keys_put_float(struct gguf_keys *keys, const char *key, float v) {
    put_key(keys, key, GGUF_F32);
    buffer_append(&keys->bytes, &v, sizeof v);
}

void keys_put_bool(struct gguf_keys *keys, const char *key, bool v) {
    put_key(keys, key, GGUF_BOOL);
    gguf_put_number(&keys->bytes, v, 1);
}

void keys_put_text(struct gguf_keys *keys, const char *key, struct text_span span) {
    put_key(keys, key, GGUF_TEXT);
    gguf_put_text(&keys->bytes, span);
}

void keys_put_list(struct gguf_keys *keys, const char *key, enum gguf_type item, size_t n) {
    put_key(keys, key, GGUF_LIST);
    gguf_put_number(&keys->bytes, item, 4);
    gguf_put_number(&keys->bytes, n, 8);
}

static enum status write_header(struct gguf_writing *writing, const struct gguf_keys *keys,
                                struct error *e) {
    struct buffer buffer = {0};
    size_t at = 0;
    buffer_append_string(&buffer, "GGUF");
    gguf_put_number(&buffer, 3, 4);
    gguf_put_number(&buffer, (uint64_t)writing->n, 8);
    gguf_put_number(&buffer, (uint64_t)keys->n, 8);
    buffer_append(&buffer, keys->bytes.data, keys->bytes.size);
    for (int i = 0; i < writing->n; i++) {
        struct written_tensor *tensor = &writing->tensors[i];
        tensor->offset = at;
        gguf_put_text(&buffer, (struct text_span){tensor->name, strlen(tensor->name)});
        gguf_put_number(&buffer, (uint64_t)tensor->n_dims + (tensor->experts > 0), 4);
        gguf_put_number(&buffer, (uint64_t)tensor->cols, 8);
        if (tensor->n_dims == 2) gguf_put_number(&buffer, (uint64_t)tensor->rows, 8);
        if (tensor->experts > 0) gguf_put_number(&buffer, (uint64_t)tensor->experts, 8);
        gguf_put_number(&buffer, tensor->type, 4);
        gguf_put_number(&buffer, at, 8);
        at += ((size_t)max_int(tensor->experts, 1) * tensor->bytes + ALIGNMENT - 1) / ALIGNMENT *
              ALIGNMENT;
    }
    writing->data = (buffer.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    enum status status = write_bytes(writing, buffer.data, buffer.size, e);
    if (status == STATUS_OK) status = write_padding(writing, buffer.size, e);
    buffer_free(&buffer);
    return status;
}

static enum status write_file(struct gguf_writing *writing, const struct gguf_keys *keys,
                              struct error *e) {
    const struct written_factors *factors = &writing->architecture.factors;
    struct model_options wanted = {.check_only = false};
    if (write_header(writing, keys, e)) return e->status;
    writing->loader.options = &wanted;
    for (int i = 0; i < factors->n; i++) {
        const struct written_tensor *tensor = next_tensor(writing);
        if (write_bytes(writing, factors->values[i], tensor->bytes, e) ||
            write_padding(writing, tensor->bytes, e))
            return e->status;
    }
    return model_visit(writing->model, write_place, writing, e);
}

static enum status collect(struct gguf_writing *writing, struct gguf_keys *keys, const char *from,
                           struct error *e) {
    static const struct model_options checked = {.check_only = true};
    const char *name = writing->architecture.rows->name;
    keys_put_text(keys, "general.architecture", (struct text_span){name, strlen(name)});
    keys_put_int(keys, "general.quantization_version", 2);
    keys_put_shape(keys, writing->model, &writing->architecture);
    if (keys_put_tokenizer(keys, from, writing->model->spec.padded_vocab, e)) return e->status;
    writing->loader.options = &checked;
    return model_visit(writing->model, list_place, writing, e);
}

static enum status put_file(struct gguf_writing *writing, const struct gguf_keys *keys,
                            const char *folder, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/model.gguf", folder);
    writing->file = fopen(path.data, "wbx");
    enum status status =
        writing->file ? write_file(writing, keys, e) : error_errno(e, "%s", path.data);
    if (writing->file && (fflush(writing->file) != 0 || fsync(fileno(writing->file)) != 0) &&
        status == STATUS_OK)
        status = error_errno(e, "%s", path.data);
    if (writing->file && fclose(writing->file) != 0 && status == STATUS_OK)
        status = error_errno(e, "%s", path.data);
    buffer_free(&path);
    return status;
}

/* Vectors by which RoPE's frequencies are divided stand before all. */
static void list_factors(struct gguf_writing *writing) {
    const struct written_factors *factors = &writing->architecture.factors;
    struct place outer = {.outer = true};
    for (int i = 0; i < factors->n; i++) {
        struct written_tensor *tensor = add_tensor(writing, &outer, factors->names[i], false);
        size_tensor(tensor, 1, writing->model->stacks[STACK_DECODER].dims.rotated / 2);
    }
}

static enum status gguf_write(const struct conversion *conversion, const char *from,
                              const char *folder, struct error *e) {
    struct gguf_writing writing = {
        .model = conversion->model,
        .loader = {.model = conversion->model, .weights = conversion->weights}};
    struct gguf_keys keys = {.n = 0};
    if (architecture_choose(conversion->model, &writing.architecture, e)) return e->status;
    writing.loader.used =
        xcalloc((size_t)weights_count(conversion->weights) + 1, sizeof *writing.loader.used);
    list_factors(&writing);
    enum status status = collect(&writing, &keys, from, e);
    if (status == STATUS_OK) status = put_file(&writing, &keys, folder, e);
    for (int i = 0; i < ROOMS; i++) free(writing.loader.rooms[i].data);
    free(writing.loader.used);
    free(writing.tensors);
    buffer_free(&keys.bytes);
    return status;
}

const struct written_format format_gguf = {.name = "gguf",
                                           .described = "a GGUF file, each in its type",
                                           .doing = "writing GGUF",
                                           .whole = true,
                                           .write = gguf_write};
