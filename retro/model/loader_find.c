/* retro/model/loader_find.c: the stored tensors of a place: names, shapes, types, and the scales of quantised ones. See
 * loader.h. */
#include <stdio.h>
#include <string.h>

#include "retro/model/loader.h"

static const char *const plane_suffix[PLANES] = {"", ".scale", ".minimum"};

static enum status convert_type(const struct stored_tensor *t, enum dtype *out, struct error *e) {
    switch (t->dtype) {
        case STORED_F32: *out = DTYPE_F32; return STATUS_OK;
        case STORED_F16: *out = DTYPE_F16; return STATUS_OK;
        case STORED_BF16: *out = DTYPE_BF16; return STATUS_OK;
        case STORED_I8: *out = DTYPE_INT8; return STATUS_OK;
        case STORED_U8: *out = DTYPE_INT4; return STATUS_OK;
        default:
            return error_set(e, STATUS_UNSUPPORTED,
                             "%s: stored as %s; F32, F16, BF16, and quantised I8 and U8 are supported", t->name,
                             stored_dtype_name(t->dtype));
    }
}

/* Whether the tensor is [rows, cols] when leading dimensions of 1 are left out and the last ones are read as one: a
 * convolution over patches [d, 3, P, P], a position table [1, positions, d], a class token [d]. */
static bool is_flat(const struct stored_tensor *t, int rows, int cols) {
    int first = 0;
    if (t->n_dims < 3 && rows > 1) return false;
    while (first < t->n_dims - 1 && rows > 1 && t->shape[first] == 1) first++;
    bool same_rows = rows == 1 || t->shape[first] == rows;
    return same_rows && t->elements == (size_t)rows * (size_t)cols;
}

/* A tensor of this shape, marked as used: [rows, cols], or [rows] where there is one column. */
static enum status find_tensor(struct loader *l, const char *name, int rows, int cols, const struct stored_tensor **out,
                               struct error *e) {
    const struct stored_tensor *t = weights_find(l->weights, name);
    if (t == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool vector = cols == 1 && t->n_dims == 1;
    bool plain = t->n_dims == (vector ? 1 : 2) && t->shape[0] == rows && (vector || t->shape[1] == cols);
    if (!plain && !is_flat(t, rows, cols)) {
        char shape[120];
        return error_set(e, STATUS_INVALID, "tensor %s is %s, config.json makes it [%d, %d]", name,
                         stored_shape_text(t, shape, sizeof shape), rows, cols);
    }
    bool *used = &l->used[weights_index(l->weights, t)];
    if (!*used) l->done += t->bytes;
    *used = true;
    *out = t;
    return STATUS_OK;
}

/* The scales or minimums of a quantised tensor. */
static enum status find_blocks(struct loader *l, struct stored_part *s, const char *name, enum plane plane,
                               struct error *e) {
    const struct stored_tensor *t;
    char full[TENSOR_NAME + 16];
    int blocks = s->cols / QUANTISE_BLOCK;
    snprintf(full, sizeof full, "%s%s", name, plane_suffix[plane]);
    if (weights_find(l->weights, full) == NULL)
        return error_set(e, STATUS_INVALID, "tensor %s is quantised (%s), but %s is missing", name,
                         dtype_name(s->planes.dtype), full);
    if (find_tensor(l, full, s->rows, blocks, &t, e)) return e->status;
    if (t->dtype != STORED_F16)
        return error_set(e, STATUS_INVALID, "tensor %s is %s; scales and minimums are F16", full,
                         stored_dtype_name(t->dtype));
    const uint16_t *values = t->data;
    uint16_t largest = 0;
    for (size_t i = 0; i < t->elements; i++) {
        uint16_t exponent = values[i] & 0x7c00;
        largest = exponent > largest ? exponent : largest;
    }
    if (largest == 0x7c00) return error_set(e, STATUS_CORRUPT, "tensor %s holds a number that is not finite", full);
    s->planes.at[plane] = t->data;
    return STATUS_OK;
}

/* The type that blocks are kept in: super-blocks as they are on the CPU, where no file is made of them, else int8 or
 * int4; f32 where they are to be widened and would lose on the way. */
static enum dtype choose_blocks_dtype(const struct loader *l, const struct block_form *form) {
    const struct model_options *o = l->options;
    bool cpu = strcmp(l->model->backend->ops->name, "cpu") == 0;
    if (o->convert) return form->loss == BLOCKS_EXACT ? form->dtype : DTYPE_F32;
    return cpu && !o->storable ? form->kernel : form->dtype;
}

/* Rows of GGUF's blocks. */
static enum status find_block_rows(struct loader *l, struct stored_part *s, const char *name, struct error *e) {
    const struct block_form *form = weights_find(l->weights, name)->form;
    s->planes.dtype = choose_blocks_dtype(l, form);
    if (s->transposed || s->cols % form->elements != 0)
        return error_set(e, STATUS_INVALID,
                         "tensor %s is stored as %s, in blocks of %d columns; config.json makes it [%d, %d]%s", name,
                         form->name, form->elements, s->rows, s->cols, s->transposed ? " transposed" : "");
    if (find_tensor(l, name, s->rows, s->cols, &s->stored, e)) return e->status;
    if (dtype_kquant(s->planes.dtype)) s->planes.at[PLANE_VALUES] = s->stored->data;
    return STATUS_OK;
}

/* Blocks run along the columns that a product adds up: whatever a family's folders do with floats, quantised matrices
 * are [out, in]. */
static bool lies_turned(const struct stored_tensor *t) {
    return t->turned || t->dtype == STORED_I8 || t->dtype == STORED_U8;
}

static enum status find_part(struct loader *l, struct stored_part *s, const char *name, struct error *e) {
    const struct stored_tensor *t = weights_find(l->weights, name);
    if (t && lies_turned(t)) s->transposed = false;
    s->planes = (struct matrix_planes){.cols = s->transposed ? s->rows : s->cols};
    if (t && t->form) return find_block_rows(l, s, name, e);
    if (t && convert_type(t, &s->planes.dtype, e)) return e->status;
    bool blocks = dtype_quantised(s->planes.dtype);
    if (blocks && s->cols % QUANTISE_BLOCK != 0)
        return error_set(
            e, STATUS_INVALID,
            "tensor %s is stored as %s; only matrices whose columns are a multiple of %d can be quantised, "
            "config.json makes it [%d, %d]",
            name, stored_dtype_name(t->dtype), QUANTISE_BLOCK, s->rows, s->cols);

    int cols = s->planes.dtype == DTYPE_INT4 ? s->cols / 2 : s->cols;
    bool vector = cols == 1;
    int stored_rows = s->transposed && !vector ? cols : s->rows,
        stored_cols = s->transposed && !vector ? s->rows : cols;
    if (find_tensor(l, name, stored_rows, stored_cols, &t, e)) return e->status;
    s->stored = t;
    s->planes.at[PLANE_VALUES] = t->data;
    enum status status = STATUS_OK;
    for (int p = PLANE_SCALES; p < PLANES && status == STATUS_OK; p++)
        if (plane_bytes(s->planes.dtype, p, s->cols)) status = find_blocks(l, s, name, (enum plane)p, e);
    return status;
}

static int count_rows(const struct share *share, enum part part) {
    bool whole = part == PART_WHOLE || part == PART_BY_HEAD;
    return whole ? share->whole_rows : share->blocks[part - PART_FIRST];
}

/* Other spellings of a tensor that was found are the same tensor again: Megatron's T5 registers some twice. */
static void use_spellings(struct loader *l, const struct place *p, int row) {
    char name[TENSOR_NAME];
    for (int j = 0; place_spelling(p, row, j, name); j++) {
        const struct stored_tensor *t = weights_find(l->weights, name);
        if (t) l->used[weights_index(l->weights, t)] = true;
    }
}

/* The first spelling of a row that the checkpoint has; the family's own where it has none, for the error. */
static const char *find_spelling(const struct loader *l, const struct place *p, int row, char name[TENSOR_NAME]) {
    for (int j = 0; place_spelling(p, row, j, name); j++)
        if (weights_find(l->weights, name)) return name;
    return place_spelling(p, row, 0, name);
}

static bool has_spelling(const struct loader *l, const struct place *p, int row) {
    char name[TENSOR_NAME];
    for (int j = 0; place_spelling(p, row, j, name); j++)
        if (weights_find(l->weights, name)) return true;
    return false;
}

/* The row of a place whose parts a family's files have in one tensor or apart: that of the one, where the checkpoint
 * has it; -1 where it has the parts, or the place is always in one form. */
static int find_whole(const struct loader *l, const struct place *p) {
    size_t place = p->rows->rows[p->row].place;
    for (int i = p->row + 1; i < p->rows->n; i++) {
        const struct tensor_row *row = &p->rows->rows[i];
        if (row->place == place && row->part == PART_WHOLE && has_spelling(l, p, i)) return i;
    }
    return -1;
}

/* Whether a row names one of the tensors of the place. */
static bool is_row_of(const struct place *p, int i, int whole) {
    const struct tensor_row *row = &p->rows->rows[i];
    if (row->place != p->rows->rows[p->row].place) return false;
    if (whole >= 0) return i == whole;
    bool other = row->part == PART_WHOLE && i != p->row;
    return !other && (int)row->part < (int)PART_FIRST + p->share.n_blocks;
}

/* All stored tensors of a place; *n of them. */
enum status loader_find_parts(struct loader *l, const struct place *p, struct stored_part parts[MAX_PARTS], int *n,
                              struct error *e) {
    int whole = find_whole(l, p);
    *n = 0;
    for (int i = p->row; i < p->rows->n; i++) {
        const struct tensor_row *row = &p->rows->rows[i];
        char name[TENSOR_NAME];
        if (!is_row_of(p, i, whole)) continue;
        CHECK(*n < MAX_PARTS);
        struct stored_part *s = &parts[*n];
        *n += 1;
        *s = (struct stored_part){.part = row->part,
                                  .rows = count_rows(&p->share, row->part),
                                  .cols = p->share.whole_cols,
                                  .transposed = row->transposed};
        find_spelling(l, p, i, name);
        if (find_part(l, s, name, e)) return e->status;
        use_spellings(l, p, i);
        loader_report(l, name, p, row);
    }
    CHECK(*n > 0);
    return STATUS_OK;
}
