/* retro/model/loader_find.c: the stored tensors of a place: names, shapes, types, and the scales of
 * quantised ones. See loader.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/text.h"
#include "retro/model/loader.h"
#include "retro/weights/fp8_blocks.h"

static const char *const plane_suffix[PLANES] = {"", ".scale", ".minimum"};

/* e4m3 is widened to bf16, as its publishers do, or to f32 where that is to become another type. */
static enum status convert_type(const struct loader *loader, const struct stored_tensor *stored,
                                enum dtype *out, struct error *e) {
    switch (stored->dtype) {
        case STORED_F32: *out = DTYPE_F32; return STATUS_OK;
        case STORED_F16: *out = DTYPE_F16; return STATUS_OK;
        case STORED_BF16: *out = DTYPE_BF16; return STATUS_OK;
        case STORED_I8: *out = DTYPE_INT8; return STATUS_OK;
        case STORED_U8: *out = DTYPE_INT4; return STATUS_OK;
        case STORED_F8_E4M3:
            *out = loader->options->convert ? DTYPE_F32 : DTYPE_BF16;
            return STATUS_OK;
        default:
            return error_set(
                e, STATUS_UNSUPPORTED,
                "%s: stored as %s; F32, F16, BF16, F8_E4M3, and quantised I8 and U8 are supported",
                stored->name, stored_dtype_name(stored->dtype));
    }
}

/* Whether the tensor is [rows, cols] when leading dimensions of 1 are left out, and the next ones
 * and the last ones are read as one each: a convolution over patches [d, 3, P, P], a position table
 * [1, positions, d] or [2, positions, d], a class token [d]. */
static bool is_flat(const struct stored_tensor *stored, int rows, int cols) {
    int first = 0;
    if (stored->n_dims < 3 && rows > 1) return false;
    while (first < stored->n_dims - 1 && rows > 1 && stored->shape[first] == 1) first++;
    int64_t found = rows == 1 ? 1 : stored->shape[first];
    for (int i = first + 1; found < rows && i < stored->n_dims - 1; i++) found *= stored->shape[i];
    return found == rows && stored->elements == (size_t)rows * (size_t)cols;
}

/* A tensor of this shape, marked as used: [rows, cols], or [rows] where there is one column. */
static enum status find_tensor(struct loader *loader, const char *name, int rows, int cols,
                               const struct stored_tensor **out, struct error *e) {
    const struct stored_tensor *stored = weights_find(loader->weights, name);
    if (stored == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool vector = cols == 1 && stored->n_dims == 1;
    bool plain = stored->n_dims == (vector ? 1 : 2) && stored->shape[0] == rows &&
                 (vector || stored->shape[1] == cols);
    if (!plain && !is_flat(stored, rows, cols)) {
        char shape[120];
        return error_set(e, STATUS_INVALID, "tensor %s is %s, config.json makes it [%d, %d]", name,
                         stored_shape_text(stored, shape, sizeof shape), rows, cols);
    }
    bool *used = &loader->used[weights_index(loader->weights, stored)];
    if (!*used) loader->done += stored->bytes;
    *used = true;
    *out = stored;
    return STATUS_OK;
}

static bool halves_finite(const struct stored_tensor *stored) {
    const uint16_t *values = stored->data;
    uint16_t largest = 0;
    for (size_t i = 0; i < stored->elements; i++) {
        uint16_t exponent = values[i] & 0x7c00;
        largest = exponent > largest ? exponent : largest;
    }
    return largest != 0x7c00;
}

static bool exponents_finite(const struct stored_tensor *stored) {
    const uint8_t *bytes = stored->data;
    uint8_t largest = 0;
    for (size_t i = 0; i < stored->elements; i++) largest = bytes[i] > largest ? bytes[i] : largest;
    return largest <= MXFP4_MOST;
}

/* Bytes are int4, or MXFP4 where their scales are bytes too. */
static bool is_mxfp4(const struct loader *loader, const struct stored_tensor *stored) {
    char full[TENSOR_NAME + 16];
    snprintf(full, sizeof full, "%s%s", stored->name, plane_suffix[PLANE_SCALES]);
    const struct stored_tensor *scales = weights_find(loader->weights, full);
    return stored->dtype == STORED_U8 && scales && scales->dtype == STORED_U8;
}

/* The scales or minimums of a quantised tensor. */
static enum status find_blocks(struct loader *loader, struct stored_part *part, const char *name,
                               enum plane plane, struct error *e) {
    const struct stored_tensor *stored;
    char full[TENSOR_NAME + 16];
    int blocks = part->cols / QUANTISE_BLOCK;
    snprintf(full, sizeof full, "%s%s", name, plane_suffix[plane]);
    if (weights_find(loader->weights, full) == NULL)
        return error_set(e, STATUS_INVALID, "tensor %s is quantised (%s), but %s is missing", name,
                         dtype_name(part->planes.dtype), full);
    if (find_tensor(loader, full, part->rows, blocks, &stored, e)) return e->status;
    bool bytes = part->planes.dtype == DTYPE_MXFP4;
    if (stored->dtype != (bytes ? STORED_U8 : STORED_F16))
        return error_set(e, STATUS_INVALID, "tensor %s is %s; scales and minimums are F16", full,
                         stored_dtype_name(stored->dtype));
    if (!(bytes ? exponents_finite(stored) : halves_finite(stored)))
        return error_set(e, STATUS_CORRUPT, "tensor %s holds a number that is not finite", full);
    part->planes.at[plane] = stored->data;
    return STATUS_OK;
}

/* The type that blocks are kept in: super-blocks as they are on the CPU, where no file is made of
 * them, else int8 or int4; f32 where they are to be widened and would lose on the way. */
static enum dtype choose_blocks_dtype(const struct loader *loader, const struct block_form *form) {
    const struct model_options *options = loader->options;
    bool cpu = strcmp(loader->model->backend->ops->name, "cpu") == 0;
    if (options->convert) return form->loss == BLOCKS_EXACT ? form->dtype : DTYPE_F32;
    return cpu && !options->storable ? form->kernel : form->dtype;
}

/* Rows of GGUF's blocks. */
static enum status find_block_rows(struct loader *loader, struct stored_part *part,
                                   const char *name, struct error *e) {
    const struct block_form *form = weights_find(loader->weights, name)->form;
    part->planes.dtype = choose_blocks_dtype(loader, form);
    if (part->transposed || part->cols % form->elements != 0)
        return error_set(
            e, STATUS_INVALID,
            "tensor %s is stored as %s, in blocks of %d columns; config.json makes it [%d, %d]%s",
            name, form->name, form->elements, part->rows, part->cols,
            part->transposed ? " transposed" : "");
    if (find_tensor(loader, name, part->rows, part->cols, &part->stored, e)) return e->status;
    if (dtype_kquant(part->planes.dtype)) part->planes.at[PLANE_VALUES] = part->stored->data;
    return STATUS_OK;
}

/* Blocks run along the columns that a product adds up: whatever a family's folders do with floats,
 * quantised matrices are [out, in]. */
static bool lies_turned(const struct stored_tensor *stored) {
    return stored->turned || stored->dtype == STORED_I8 || stored->dtype == STORED_U8 ||
           stored->dtype == STORED_F8_E4M3;
}

static bool scales_finite(const struct stored_tensor *scales) {
    bool finite = true;
    for (size_t i = 0; i < scales->elements; i++)
        finite = finite && isfinite(fp8_scale(scales, (int64_t)i));
    return finite;
}

/* The factors of a tensor of e4m3 numbers: one, one a row, or one a square. */
static enum status find_scales(struct loader *loader, struct stored_part *part, int rows, int cols,
                               struct error *e) {
    char full[TENSOR_NAME + 16];
    snprintf(full, sizeof full, "%s" FP8_OTHER_SCALES, part->stored->name);
    const struct stored_tensor *scales = weights_find(loader->weights, full);
    if (scales == NULL) {
        snprintf(full, sizeof full, "%s" FP8_SCALES, part->stored->name);
        scales = weights_find(loader->weights, full);
    }
    bool whole = scales && scales->elements == 1, by_row = scales && fp8_by_row(scales, rows);
    int down = whole    ? 1
               : by_row ? rows
                        : fp8_blocks(rows),
        across = whole || by_row ? 1 : fp8_blocks(cols);
    if (find_tensor(loader, full, down, across, &scales, e)) return e->status;
    if (scales->dtype != STORED_F32 && scales->dtype != STORED_BF16 && scales->dtype != STORED_F16)
        return error_set(e, STATUS_UNSUPPORTED, "tensor %s is %s; factors are F32, BF16 or F16",
                         full, stored_dtype_name(scales->dtype));
    if (!scales_finite(scales))
        return error_set(e, STATUS_CORRUPT, "tensor %s holds a number that is not finite", full);
    part->scales = scales;
    return STATUS_OK;
}

/* The rows of a part of e4m3 numbers or of blocks, widened in the room of part number `i`. */
static enum status widen_part(struct loader *loader, struct stored_part *part, int i,
                              struct error *e) {
    int rows = part->transposed ? part->cols : part->rows, n = part->planes.cols;
    enum dtype dtype = part->planes.dtype;
    size_t row_bytes = (size_t)n * dtype_bytes(dtype);
    char *wide = loader_room(loader, ROOM_PARTS + i, (size_t)rows, row_bytes);
    if (wide == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory to widen %s", part->stored->name);
    const struct block_form *form = part->stored->form;
    const char *blocks = part->stored->data;
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows; row++) {
        char *to = wide + (size_t)row * row_bytes;
        size_t at = (size_t)(part->first + row);
        if (form)
            blocks_widen((float *)(void *)to, form, blocks + at * block_row_bytes(form, n), n);
        else
            fp8_row_widen(to, dtype, part->stored, part->scales, part->first + row, n);
    }
    part->planes.at[PLANE_VALUES] = wide;
    return STATUS_OK;
}

static enum status find_part(struct loader *loader, struct stored_part *part, const char *name,
                             struct error *e) {
    const struct stored_tensor *stored = weights_find(loader->weights, name);
    if (stored && lies_turned(stored)) part->transposed = false;
    part->planes = (struct matrix_planes){.cols = part->transposed ? part->rows : part->cols};
    if (stored && stored->form) return find_block_rows(loader, part, name, e);
    if (stored && convert_type(loader, stored, &part->planes.dtype, e)) return e->status;
    if (stored && is_mxfp4(loader, stored)) part->planes.dtype = DTYPE_MXFP4;
    bool blocks = dtype_quantised(part->planes.dtype);
    if (blocks && part->cols % QUANTISE_BLOCK != 0)
        return error_set(e, STATUS_INVALID,
                         "tensor %s is stored as %s; only matrices whose columns are a multiple of "
                         "%d can be quantised, "
                         "config.json makes it [%d, %d]",
                         name, stored_dtype_name(stored->dtype), QUANTISE_BLOCK, part->rows,
                         part->cols);

    int cols = dtype_two_a_byte(part->planes.dtype) ? part->cols / 2 : part->cols;
    bool vector = cols == 1;
    int stored_rows = part->transposed && !vector ? cols : part->rows,
        stored_cols = part->transposed && !vector ? part->rows : cols;
    if (find_tensor(loader, name, stored_rows, stored_cols, &stored, e)) return e->status;
    part->stored = stored;
    if (stored->dtype == STORED_F8_E4M3)
        return find_scales(loader, part, stored_rows, stored_cols, e);
    part->planes.at[PLANE_VALUES] = stored->data;
    enum status status = STATUS_OK;
    for (int p = PLANE_SCALES; p < PLANES && status == STATUS_OK; p++)
        if (plane_bytes(part->planes.dtype, p, part->cols))
            status = find_blocks(loader, part, name, (enum plane)p, e);
    return status;
}

/* All rows of a tensor of blocks, which is to be widened. */
static enum status find_wide_blocks(struct loader *loader, struct stored_part *part,
                                    const char *name, struct error *e) {
    part->planes = (struct matrix_planes){.dtype = DTYPE_F32, .cols = part->cols};
    part->widened = true;
    return find_tensor(loader, name, part->rows, part->cols, &part->stored, e);
}

/* A head's rows of a tensor of all heads: of each its keys' `plain` rows, which the place has
 * turned, then its values'. Blocks along the columns would cut what the turned rows add up, so
 * those of GGUF are widened. */
static enum status find_head(struct loader *loader, struct stored_part *part,
                             const struct place *place, const char *name, struct error *e) {
    const struct dims *dims = &loader->model->stacks[place->stack].dims;
    const struct latent_dims *latent = &dims->latent;
    const struct stored_tensor *stored = weights_find(loader->weights, name);
    bool keys = part->part == PART_HEAD_KEYS;
    int rows = latent->plain + latent->value,
        first = place->expert * rows + (keys ? 0 : latent->plain);
    part->rows = dims->heads * rows;
    part->cols = latent->rank;
    if (stored && (stored->dtype == STORED_I8 || stored->dtype == STORED_U8))
        return error_set(e, STATUS_UNSUPPORTED,
                         "tensor %s is quantised, which is not supported: keep it as it was", name);
    bool blocks = stored && stored->form;
    if (blocks ? find_wide_blocks(loader, part, name, e) : find_part(loader, part, name, e))
        return e->status;
    part->first = first;
    if (!part->scales && !part->widened)
        part->planes.at[PLANE_VALUES] = plane_at(&part->planes, PLANE_VALUES, first, 0);
    part->rows = place->share.whole_rows;
    part->cols = place->share.whole_cols;
    part->transposed = keys;
    part->part = PART_WHOLE;
    return STATUS_OK;
}

static int count_rows(const struct share *share, enum part part) {
    int last = share->blocks[share->n_blocks - 1];
    if (part_is_all(part)) return share->whole_rows;
    if (part == PART_BUT_LAST) return share->whole_rows - last;
    return part == PART_Q_GATE ? share->blocks[0] + last : share->blocks[part - PART_FIRST];
}

/* Other spellings of a tensor that was found are the same tensor again: Megatron's T5 registers
 * some twice. */
static void use_spellings(struct loader *loader, const struct place *place, int row) {
    char name[TENSOR_NAME];
    for (int j = 0; place_spelling(place, row, j, name); j++) {
        const struct stored_tensor *stored = weights_find(loader->weights, name);
        if (stored) loader->used[weights_index(loader->weights, stored)] = true;
    }
}

/* The first spelling of a row that the checkpoint has; the family's own where it has none, for the
 * error. */
static const char *find_spelling(const struct loader *loader, const struct place *place, int row,
                                 char name[TENSOR_NAME]) {
    for (int j = 0; place_spelling(place, row, j, name); j++)
        if (weights_find(loader->weights, name)) return name;
    return place_spelling(place, row, 0, name);
}

static bool has_spelling(const struct loader *loader, const struct place *place, int row) {
    char name[TENSOR_NAME];
    for (int j = 0; place_spelling(place, row, j, name); j++)
        if (weights_find(loader->weights, name)) return true;
    return false;
}

/* The row of a place whose parts a family's files have in one tensor or apart: that of the one,
 * where the checkpoint has it; -1 where it has the parts, or the place is always in one form. */
static int find_whole(const struct loader *loader, const struct place *the_place) {
    size_t place = the_place->rows->rows[the_place->row].place;
    for (int i = the_place->row + 1; i < the_place->rows->n; i++) {
        const struct tensor_row *row = &the_place->rows->rows[i];
        if (row->place == place && part_is_all(row->part) && has_spelling(loader, the_place, i))
            return i;
    }
    return -1;
}

/* Whether a row names one of the tensors of the place. A part that is a weight alone adds nothing
 * to the bias of the others. */
static bool is_row_of(const struct place *place, int i, int whole) {
    const struct tensor_row *row = &place->rows->rows[i];
    if (row->place != place->rows->rows[place->row].place) return false;
    if (place->bias && ends_with(row->names[0], ".weight")) return false;
    if (whole >= 0) return i == whole;
    bool other = part_is_all(row->part) && i != place->row;
    return !other && part_is_of(row->part, place->share.n_blocks);
}

/* Whether a part is stored as [in, out]. Of a square nobody can tell by the shape, and
 * transformers takes it for [out, in]. */
static bool is_transposed(const struct loader *loader, const struct tensor_row *row,
                          const struct stored_part *part, const char *name) {
    const struct stored_tensor *stored = weights_find(loader->weights, name);
    if (!row->turned_if_so || stored == NULL) return row->transposed;
    return part->rows != part->cols && stored->n_dims == 2 && stored->shape[0] == part->cols &&
           stored->shape[1] == part->rows;
}

/* The order of columns that are stored in turn: those of one of the joined rows after another. */
static struct head_order join_columns(const struct tensor_row *row, int cols) {
    enum { JOINED = 4 };
    if (!row->columns_in_turn) return (struct head_order){.size = 0};
    return (struct head_order){.size = 1, .keys = JOINED, .group = cols / JOINED, .columns = true};
}

/* All stored tensors of a place; *n of them. */
enum status loader_find_parts(struct loader *loader, const struct place *place,
                              struct stored_part parts[MAX_PARTS], int *n, struct error *e) {
    int whole = find_whole(loader, place);
    *n = 0;
    for (int i = place->row; i < place->rows->n; i++) {
        const struct tensor_row *row = &place->rows->rows[i];
        char name[TENSOR_NAME];
        if (!is_row_of(place, i, whole)) continue;
        CHECK(*n < MAX_PARTS);
        struct stored_part *part = &parts[*n];
        *n += 1;
        *part = (struct stored_part){.part = row->part,
                                     .rows = count_rows(&place->share, row->part),
                                     .cols = place->share.whole_cols,
                                     .joined = join_columns(row, place->share.whole_cols)};
        find_spelling(loader, place, i, name);
        bool transposed = is_transposed(loader, row, part, name);
        part->transposed = transposed;
        bool head = part_is_head(row->part);
        if (head ? find_head(loader, part, place, name, e) : find_part(loader, part, name, e))
            return e->status;
        bool read = !loader->options->check_only && !place->elsewhere;
        bool widens = part->scales || part->widened;
        if (widens && read && widen_part(loader, part, *n - 1, e)) return e->status;
        use_spellings(loader, place, i);
        if (!head || (row->part == PART_HEAD_KEYS && place->expert == 0))
            loader_report(loader, name, place, row, transposed);
    }
    CHECK(*n > 0);
    return STATUS_OK;
}
