/* retro/model/loader_stage.c: this rank's share of a place in host memory. See loader.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/model/loader.h"

void *loader_room(struct loader *loader, int which, size_t n, size_t size) {
    struct load_room *room = &loader->rooms[which];
    size_t bytes;
    if (mul_overflows(n, size, &bytes)) return NULL;
    if (bytes <= room->bytes && room->data != NULL) return room->data;
    free(room->data);
    *room = (struct load_room){.data = malloc(bytes), .bytes = bytes};
    return room->data;
}

size_t plane_bytes(enum dtype dtype, int plane, int n) {
    if (dtype_kquant(dtype)) return plane == PLANE_VALUES ? matrix_bytes(dtype, (size_t)n) : 0;
    if (plane == PLANE_VALUES && dtype_two_a_byte(dtype)) return (size_t)n / 2;
    if (plane == PLANE_SCALES && dtype == DTYPE_MXFP4) return (size_t)n / QUANTISE_BLOCK;
    if (plane == PLANE_VALUES) return (size_t)n * (dtype == DTYPE_INT8 ? 1 : dtype_bytes(dtype));
    bool has = plane == PLANE_SCALES ? dtype_quantised(dtype) : dtype == DTYPE_INT4;
    return has ? (size_t)n / QUANTISE_BLOCK * sizeof(uint16_t) : 0;
}

const char *plane_at(const struct matrix_planes *planes, int plane, int64_t i, int first) {
    if (planes->at[plane] == NULL) return NULL;
    return planes->at[plane] + (size_t)i * plane_bytes(planes->dtype, plane, planes->cols) +
           plane_bytes(planes->dtype, plane, first);
}

void planes_widen(float *to, const struct matrix_planes *planes, int64_t i, int first, int n) {
    const char *values = plane_at(planes, PLANE_VALUES, i, first);
    if (!dtype_quantised(planes->dtype)) {
        dtype_convert(to, DTYPE_F32, values, planes->dtype, (size_t)n);
        return;
    }
    if (dtype_kquant(planes->dtype)) {
        kquants_widen(to, planes->dtype, values, n);
        return;
    }
    struct quantised_row row = {(void *)(uintptr_t)values,
                                (uint16_t *)(uintptr_t)plane_at(planes, PLANE_SCALES, i, first),
                                (uint16_t *)(uintptr_t)plane_at(planes, PLANE_MINIMUMS, i, first)};
    dequantise_row(to, planes->dtype, row, n);
}

enum status stage_take(struct loader *loader, struct staged_place *staged, enum dtype dtype,
                       struct error *e) {
    staged->planes = (struct matrix_planes){.dtype = dtype, .cols = staged->cols};
    for (int p = 0; p < PLANES; p++) {
        if (plane_bytes(dtype, p, staged->cols) == 0) continue;
        staged->room[p] =
            loader_room(loader, p, (size_t)staged->rows, plane_bytes(dtype, p, staged->cols));
        staged->planes.at[p] = staged->room[p];
        if (staged->room[p] == NULL)
            return error_set(e, STATUS_NO_MEMORY, "no memory to stage [%d, %d] of %s", staged->rows,
                             staged->cols, dtype_name(dtype));
    }
    return STATUS_OK;
}

float *stage_widen(struct loader *loader, const struct staged_place *staged) {
    float *wide =
        loader_room(loader, ROOM_WIDE, (size_t)staged->rows * (size_t)staged->cols, sizeof *wide);
    for (int i = 0; wide && i < staged->rows; i++)
        planes_widen(wide + (size_t)i * (size_t)staged->cols, &staged->planes, i, 0, staged->cols);
    return wide;
}

/* Row of the place that stored row i of a part becomes: block after block, heads in order. */
static int find_row(const struct share *share, enum part part, int i) {
    int first = 0;
    if (part == PART_WHOLE) return i;
    if (part == PART_IN_TURN) return i % share->n_blocks * share->blocks[0] + i / share->n_blocks;
    if (part == PART_BUT_LAST) return i;
    if (part == PART_Q_GATE) {
        int head = i / (2 * share->head), at = i % (2 * share->head), h = share->head;
        int gate = share->whole_rows - share->blocks[share->n_blocks - 1];
        return head * h + (at < h ? at : gate + at - h);
    }
    if (part != PART_BY_HEAD) {
        for (int b = 0; b < (int)part - (int)PART_FIRST; b++) first += share->blocks[b];
        return first + i;
    }

    /* Key/value heads, each with its share of every block. */
    int units = share->units, per_unit = share->whole_rows / units;
    int unit = i / per_unit, at = i % per_unit;
    for (int b = 0; b < share->n_blocks; b++) {
        int rows = share->blocks[b] / units;
        if (at < rows) return first + unit * rows + at;
        at -= rows;
        first += share->blocks[b];
    }
    return -1;
}

/* n rows of the stage, from `row` of the place on, of a tensor stored transposed; to[i] is -1 for
 * another rank's. A tile is as wide as a cache line, which its columns then read whole. */
enum { TILE = 32 };
static void stage_tile(struct staged_place *staged, const int to[TILE],
                       const struct stored_part *from, int row, int n, int first_col) {
    size_t size = dtype_bytes(from->planes.dtype), wide = dtype_bytes(staged->planes.dtype),
           cols = (size_t)staged->cols;
    for (int c = 0; c < staged->cols; c++) {
        _Alignas(float) char tile[TILE * sizeof(float)];
        const char *values =
            plane_at(&from->planes, PLANE_VALUES, first_col + c, 0) + (size_t)row * size;
        dtype_convert(tile, staged->planes.dtype, values, from->planes.dtype, (size_t)n);
        for (int i = 0; i < n; i++) {
            if (to[i] < 0) continue;
            char *at = staged->room[PLANE_VALUES] + ((size_t)to[i] * cols + (size_t)c) * wide;
            memcpy(at, tile + (size_t)i * wide, wide);
        }
    }
}

/* A row of blocks, whole, in the type of the stage; room is for one such row. False when a number
 * does not fit. */
static bool read_blocks(struct staged_place *row, const struct stored_part *from, int64_t i,
                        struct deviation *lost) {
    const struct block_form *form = from->stored->form;
    const char *stored =
        (const char *)from->stored->data + (size_t)i * block_row_bytes(form, from->cols);
    if (row->planes.dtype == DTYPE_F32) {
        blocks_widen((float *)(void *)row->room[PLANE_VALUES], form, stored, from->cols);
        return true;
    }
    struct quantised_row to = {row->room[PLANE_VALUES], (uint16_t *)(void *)row->room[PLANE_SCALES],
                               (uint16_t *)(void *)row->room[PLANE_MINIMUMS]};
    return blocks_quantise(row->planes.dtype, to, form, stored, from->cols, lost);
}

/* n columns of a stored row from `from` on, which are those of the stage from `to` on. */
struct column_run {
    int to, from, n;
};

/* Columns of row `to` of the stage = those of a stored row. Parts of different types meet in f32.
 */
static void stage_columns(struct staged_place *staged, int to, const struct stored_part *from,
                          int row, const struct column_run *run) {
    enum dtype dtype = staged->planes.dtype;
    if (dtype != from->planes.dtype) {
        float *wide = (float *)(void *)staged->room[PLANE_VALUES];
        planes_widen(wide + (size_t)to * (size_t)staged->cols + run->to, &from->planes, row,
                     run->from, run->n);
        return;
    }
    for (int p = 0; p < PLANES; p++) {
        size_t bytes = plane_bytes(dtype, p, run->n),
               row_bytes = plane_bytes(dtype, p, staged->cols),
               before = plane_bytes(dtype, p, run->to);
        if (bytes)
            memcpy(staged->room[p] + (size_t)to * row_bytes + before,
                   plane_at(&from->planes, p, row, run->from), bytes);
    }
}

/* Row `to` of the stage = this rank's columns of a stored row, whose heads may lie in another order
 * (NULL: they do not). */
static void stage_row(struct staged_place *staged, int to, const struct stored_part *from, int row,
                      int first_col, const struct head_order *order) {
    if (order == NULL) {
        stage_columns(staged, to, from, row,
                      &(struct column_run){.from = first_col, .n = staged->cols});
        return;
    }
    for (int col = 0; col < staged->cols; col += order->size) {
        int at = (int)head_order_find(order, first_col + col);
        stage_columns(staged, to, from, row, &(struct column_run){col, at, order->size});
    }
}

/* Room for one row of blocks; freed by the caller. */
static char *take_row(struct staged_place *row, enum dtype dtype, int cols) {
    size_t sizes[PLANES], all = 0;
    *row = (struct staged_place){.planes = {.dtype = dtype, .cols = cols}, .rows = 1, .cols = cols};
    for (int p = 0; p < PLANES; p++) {
        sizes[p] = plane_bytes(dtype, p, cols);
        all += sizes[p];
    }
    char *room = xmalloc(all + 1);
    all = 0;
    for (int p = 0; p < PLANES; p++) {
        if (sizes[p]) row->room[p] = room + all;
        row->planes.at[p] = row->room[p];
        all += sizes[p];
    }
    return room;
}

/* One thread's share of the rows of a part. */
struct block_rows {
    struct staged_place *stage;
    const struct stored_part *from;
    const struct share *share;
};

static bool stage_blocks_row(const struct block_rows *rows, struct staged_place *row, int i,
                             struct deviation *lost) {
    const struct stored_part *from = rows->from;
    int to = share_row(rows->share, find_row(rows->share, from->part, i));
    if (to < 0) return true;
    if (!read_blocks(row, from, stored_row(from->stored, i), lost)) return false;
    struct stored_part whole = {.planes = row->planes};
    stage_row(rows->stage, to, &whole, 0, rows->share->first_col, part_columns(from));
    return true;
}

/* All rows of a part that this rank keeps, converted by all cores: a large model has billions of
 * weights. */
static enum status stage_blocks(struct loader *loader, const struct block_rows *rows,
                                struct error *e) {
    const struct stored_part *from = rows->from;
    struct deviation lost = {0};
    enum dtype dtype = rows->stage->planes.dtype;
    bool loses = dtype != DTYPE_F32 && !dtype_kquant(dtype) &&
                 (from->stored->form->loss != BLOCKS_EXACT || dtype != from->stored->form->dtype);
    int bad = 0;
#pragma omp parallel
    {
        struct staged_place row;
        struct deviation mine = {0};
        char *room = take_row(&row, dtype, from->cols);
        int wrong = 0;
#pragma omp for schedule(static)
        for (int i = 0; i < from->rows; i++)
            wrong += !stage_blocks_row(rows, &row, i, loses ? &mine : NULL);
#pragma omp critical
        {
            bad += wrong;
            lost.squared += mine.squared;
            lost.total += mine.total;
        }
        free(room);
    }
    if (bad > 0)
        return error_set(e, STATUS_CORRUPT,
                         "tensor %s: %d rows of %s with a scale that is not finite or too large",
                         from->stored->name, bad, from->stored->form->name);
    loader->lost.squared += lost.squared;
    loader->lost.total += lost.total;
    loader->n_lost += lost.squared > 0;
    return STATUS_OK;
}

/* All rows of a part that this rank keeps. */
static void stage_part(struct staged_place *staged, const struct stored_part *from,
                       const struct share *share) {
    int step = from->transposed ? TILE : 1;
    for (int i = 0; i < from->rows; i += step) {
        int to[TILE], n = min_int(step, from->rows - i);
        for (int k = 0; k < n; k++) to[k] = share_row(share, find_row(share, from->part, i + k));
        if (from->transposed)
            stage_tile(staged, to, from, i, n, share->first_col);
        else if (to[0] >= 0)
            stage_row(staged, to[0], from, (int)stored_row(from->stored, i), share->first_col,
                      part_columns(from));
    }
}

/* Rows of one tensor as they are: all of them, or this rank's run of one block. */
static void stage_in_place(struct staged_place *staged, const struct stored_part *from,
                           const struct share *share) {
    staged->planes = from->planes;
    for (int p = 0; p < PLANES; p++)
        staged->planes.at[p] = plane_at(&from->planes, p, share->mine[0].first, 0);
}

/* Whether super-blocks are cut: by a rank's columns, or where heads of columns change places. */
static bool cuts_super_blocks(const struct stored_part *part, const struct staged_place *staged,
                              const struct share *share) {
    const struct head_order *order = part_columns(part);
    return staged->cols % SUPER_BLOCK != 0 || share->first_col % SUPER_BLOCK != 0 ||
           (order && order->size % SUPER_BLOCK != 0);
}

/* The type that all parts have or are read as. Blocks of different types meet in int8, others in
 * f32. Super-blocks that are cut become what smaller blocks can hold, and these f32 where heads cut
 * them too. */
static enum dtype common_dtype(const struct stored_part *parts, int n,
                               const struct staged_place *staged, const struct share *share) {
    bool blocks = true, equal = true;
    for (int k = 0; k < n; k++) {
        blocks = blocks && parts[k].stored->form && parts[k].planes.dtype != DTYPE_F32;
        equal = equal && parts[k].planes.dtype == parts[0].planes.dtype;
    }
    if (!equal) return blocks ? DTYPE_INT8 : DTYPE_F32;
    enum dtype dtype = parts[0].planes.dtype;
    const struct head_order *order = part_columns(&parts[0]);
    if (dtype_kquant(dtype) && blocks && cuts_super_blocks(&parts[0], staged, share))
        dtype = parts[0].stored->form->dtype;
    bool cut = order && dtype_quantised(dtype) && order->size % dtype_block(dtype) != 0;
    return cut ? DTYPE_F32 : dtype;
}

/* Blocks that were widened before are floats. */
static bool reads_blocks(const struct stored_part *part) {
    return part->stored->form && !part->widened;
}

/* A tensor in the order of its place, which the backend can read where it lies. */
static bool is_in_order(const struct stored_part *part) {
    bool readable = !reads_blocks(part) || dtype_kquant(part->planes.dtype);
    return part->part == PART_WHOLE && !part->transposed && readable && part->joined.size == 0 &&
           stored_in_order(part->stored);
}

enum status loader_stage(struct loader *loader, struct staged_place *staged,
                         const struct place *place, struct error *e) {
    struct stored_part parts[MAX_PARTS] = {0};
    const struct share *share = &place->share;
    int n;
    if (loader_find_parts(loader, place, parts, &n, e)) return e->status;
    enum dtype dtype = common_dtype(parts, n, staged, share);
    int block = dtype_quantised(dtype) ? dtype_block(dtype) : 1;
    if (staged->cols % block != 0 || share->first_col % block != 0)
        return error_set(e, STATUS_INVALID,
                         "%s: %d quantised columns split over %d ranks are not whole blocks of %d: "
                         "use fewer ranks, or "
                         "weights that are not quantised",
                         place->name, share->whole_cols, loader->model->comm->size, block);
    bool one_run = share->rows == share->whole_rows || share->n_blocks == 1;
    if (loader->options->check_only || place->elsewhere) {
        staged->planes.dtype = dtype; /* nobody looks at the rest */
        return STATUS_OK;
    }
    if (n == 1 && dtype == parts[0].planes.dtype && is_in_order(&parts[0]) &&
        staged->cols == share->whole_cols && one_run) {
        stage_in_place(staged, &parts[0], share);
        return STATUS_OK;
    }
    enum status status = stage_take(loader, staged, dtype, e);
    if (status == STATUS_OK && place->bias) /* that perhaps not all parts have */
        memset(staged->room[PLANE_VALUES], 0,
               (size_t)staged->rows * plane_bytes(dtype, PLANE_VALUES, staged->cols));
    for (int k = 0; k < n && status == STATUS_OK; k++) {
        struct block_rows rows = {.stage = staged, .from = &parts[k], .share = share};
        if (reads_blocks(&parts[k]))
            status = stage_blocks(loader, &rows, e);
        else
            stage_part(staged, &parts[k], share);
    }
    return status;
}
