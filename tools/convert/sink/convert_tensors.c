/* tools/convert/sink/convert_tensors.c: the tensors of a model, converted on all cores and written
 * to model.safetensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/weights/fp8_blocks.h"
#include "retro/weights/gguf_blocks.h"
#include "tools/convert/sink/sink.h"

enum { ROWS_AT_ONCE = 16 };

/* A converted tensor in memory. */
struct converted {
    void *planes[MATRIX_PLANES];
};

static void converted_free(struct converted *out) {
    for (int i = 0; i < MATRIX_PLANES; i++) free(out->planes[i]);
}

static enum status converted_alloc(struct converted *out, const struct change *change,
                                   struct error *e) {
    for (int i = 0; i < planes_of(change->to); i++) {
        size_t bytes = (size_t)change->rows * (size_t)plane_cols(change->cols, change->to, i) *
                       plane_element_bytes(change->to, i);
        out->planes[i] = malloc(bytes + 1);
        if (out->planes[i] == NULL)
            return error_set(e, STATUS_NO_MEMORY, "%s: no memory for %zu bytes",
                             change->stored->name, bytes);
    }
    return STATUS_OK;
}

static const void *plane_of(const struct conversion *conversion, const struct change *change,
                            int plane) {
    char name[400];
    if (plane == 0) return change->stored->data;
    snprintf(name, sizeof name, "%s%s", change->stored->name, plane_suffixes[plane]);
    return weights_find(conversion->weights, name)
        ->data; /* there, or the model would not have opened */
}

/* Whether a tensor lies in the source as it may be written: all but those of GGUF files that have
 * an order or blocks of their own, and e4m3 numbers. */
static bool lies_ready(const struct stored_tensor *stored) {
    return !stored->form && !stored->turned && stored->dtype != STORED_F8_E4M3 &&
           stored_in_order(stored);
}

/* Row i of a tensor of GGUF's. */
static const char *gguf_row(const struct change *change, int64_t i) {
    const struct stored_tensor *stored = change->stored;
    size_t bytes = stored->form ? block_row_bytes(stored->form, change->cols)
                                : (size_t)change->cols * dtype_bytes(change->from);
    return (const char *)stored->data + (size_t)stored_row(stored, i) * bytes;
}

/* Column i of a stored tensor of floats, as f32. */
static void read_column(float *w, const struct change *change, const char *values, int64_t i) {
    size_t size = dtype_bytes(change->from);
    for (int64_t j = 0; j < change->cols; j++)
        dtype_convert(w + j, DTYPE_F32, values + (size_t)(j * change->rows + i) * size,
                      change->from, 1);
}

/* Columns whose heads lie in another order, put into that of the family's files; `room` is for a
 * row. */
static void order_columns(float *w, float *room, const struct head_order *order, int64_t n) {
    memcpy(room, w, (size_t)n * sizeof *w);
    for (int64_t j = 0; j < n; j++) w[j] = room[head_order_find(order, j)];
}

/* Row i of the tensor as it is converted, as f32. */
static void read_row(float *w, const struct change *change, void *const source[MATRIX_PLANES],
                     int64_t i) {
    int n = (int)change->cols;
    if (change->by_column)
        read_column(w, change, source[0], i);
    else if (change->scales)
        fp8_row_widen(w, DTYPE_F32, change->stored, change->scales, i, n);
    else if (change->stored->form)
        blocks_widen(w, change->stored->form, gguf_row(change, i), n);
    else if (!lies_ready(change->stored))
        dtype_convert(w, DTYPE_F32, gguf_row(change, i), change->from, (size_t)n);
    else if (dtype_quantised(change->from))
        dequantise_row(w, change->from, planes_row(source, change->from, n, i), n);
    else
        dtype_convert(w, DTYPE_F32,
                      (const char *)source[0] + (size_t)i * (size_t)n * dtype_bytes(change->from),
                      change->from, (size_t)n);
}

/* Writes row i and reads it back into `back`; false when a number does not fit the type. */
static bool write_row(const struct converted *out, const struct change *change, const float *w,
                      float *back, int64_t i) {
    int n = (int)change->cols;
    if (dtype_quantised(change->to)) {
        struct quantised_row to = planes_row(out->planes, change->to, n, i);
        bool blocks = change->stored->form && !stored_columns(change->stored, n);
        bool fits = blocks ? blocks_quantise(change->to, to, change->stored->form,
                                             gguf_row(change, i), n, NULL)
                           : quantise_row(change->to, to, w, change->importance, n);
        if (!fits) return false;
        dequantise_row(back, change->to, to, n);
        return true;
    }
    char *to = (char *)out->planes[0] + (size_t)i * (size_t)n * dtype_bytes(change->to);
    return planes_write_floats(to, change->to, w, back, n);
}

static enum status convert_rows(const struct conversion *conversion, struct change *change,
                                const struct converted *out, struct error *e) {
    void *source[MATRIX_PLANES] = {NULL};
    const struct head_order *order = stored_columns(change->stored, change->cols);
    int64_t bad = -1;
    for (int i = 0; i < planes_of(change->from) && lies_ready(change->stored); i++)
        source[i] = (void *)(uintptr_t)plane_of(conversion, change, i);
#pragma omp parallel
    {
        struct deviation d = {0};
        float *w = xmalloc(2 * (size_t)change->cols * sizeof *w), *back = w + change->cols;
#pragma omp for schedule(dynamic, ROWS_AT_ONCE)
        for (int64_t i = 0; i < change->rows; i++) {
            if (output_check(NULL)) continue;
            read_row(w, change, source, i);
            if (order) order_columns(w, back, order, change->cols);
            if (write_row(out, change, w, back, i)) {
                deviation_add(&d, w, back, (int)change->cols);
            } else {
#pragma omp critical
                bad = i;
            }
        }
#pragma omp critical
        {
            change->deviation.squared += d.squared;
            change->deviation.total += d.total;
            change->deviation.largest = fmax(change->deviation.largest, d.largest);
        }
        free(w);
    }
    if (output_check(e)) return e->status;
    if (bad < 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID,
                     "tensor %s: row %lld holds a number that is not finite or does not fit %s",
                     change->stored->name, (long long)bad, dtype_name(change->to));
}

/* A matrix of floats that was converted as [out, in] becomes [in, out], as its family stores it. */
static enum status turn_plane(struct converted *out, const struct change *change, struct error *e) {
    size_t rows = (size_t)change->rows, cols = (size_t)change->cols, size = dtype_bytes(change->to);
    char *turned = malloc(rows * cols * size + 1);
    if (turned == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory to transpose it",
                         change->stored->name);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            memcpy(turned + (j * rows + i) * size, (char *)out->planes[0] + (i * cols + j) * size,
                   size);
    free(out->planes[0]);
    out->planes[0] = turned;
    return STATUS_OK;
}

/* The tensors of the file: those of large elements first, so that each is aligned for its type. */
struct layout {
    struct tensor_spec *specs;
    int *places; /* [n, MATRIX_PLANES]: index in specs, of each plane of each change */
    int n;
};

static void layout_make(struct layout *layout, const struct conversion *conversion) {
    layout->specs = xcalloc((size_t)conversion->n * MATRIX_PLANES + 1, sizeof *layout->specs);
    layout->places = xcalloc((size_t)conversion->n * MATRIX_PLANES + 1, sizeof *layout->places);
    for (size_t size = 4; size > 0; size /= 2)
        for (int i = 0; i < conversion->n; i++)
            for (int k = 0; k < planes_of(conversion->changes[i].to); k++) {
                const struct change *change = &conversion->changes[i];
                if (plane_element_bytes(change->to, k) != size) continue;
                struct buffer name = {0};
                buffer_printf(&name, "%s%s", change->stored->name, plane_suffixes[k]);
                struct tensor_spec *spec = &layout->specs[layout->n];
                *spec = (struct tensor_spec){
                    .name = name.data,
                    .dtype = plane_dtype(change->to, k),
                    .n_dims = min_int(change->stored->n_dims, 2),
                    .shape = {change->turned_back ? change->cols : change->rows,
                              change->turned_back ? change->rows
                                                  : plane_cols(change->cols, change->to, k)},
                    .bytes = (size_t)change->rows *
                             (size_t)plane_cols(change->cols, change->to, k) * size};
                layout->places[i * MATRIX_PLANES + k] = layout->n++;
            }
}

static void layout_free(struct layout *layout) {
    for (int i = 0; i < layout->n; i++) free((void *)(uintptr_t)layout->specs[i].name);
    free(layout->specs);
    free(layout->places);
}

static enum status write_tensor(const struct conversion *conversion, int i,
                                const struct layout *layout, struct tensor_file *file,
                                struct error *e) {
    struct change *change = &conversion->changes[i];
    struct converted out = {{NULL}};
    enum status status = STATUS_OK;
    bool rewritten = change->to != change->from || !lies_ready(change->stored);
    if (rewritten) {
        status = converted_alloc(&out, change, e);
        if (status == STATUS_OK) status = convert_rows(conversion, change, &out, e);
        if (status == STATUS_OK && change->turned_back) status = turn_plane(&out, change, e);
    }
    for (int k = 0; k < planes_of(change->to) && status == STATUS_OK; k++) {
        int at = layout->places[i * MATRIX_PLANES + k];
        const void *data = rewritten ? out.planes[k] : plane_of(conversion, change, k);
        status = tensor_file_put(file, at, data, layout->specs[at].bytes, e);
    }
    converted_free(&out);
    return status;
}

enum status conversion_write(struct conversion *conversion, const char *folder, struct error *e) {
    struct layout layout = {0};
    struct tensor_file *file;
    struct buffer path = {0};
    layout_make(&layout, conversion);
    buffer_printf(&path, "%s/model.safetensors", folder);
    enum status status = tensor_file_open(&file, path.data, layout.specs, layout.n, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < conversion->n && status == STATUS_OK; i++)
            status = write_tensor(conversion, i, &layout, file, e);
        struct error closing;
        enum status closed = tensor_file_close(file, &closing);
        if (status == STATUS_OK && closed) status = error_set(e, closed, "%s", closing.text);
    }
    buffer_free(&path);
    layout_free(&layout);
    return status;
}
