/* tools/convert/sink/convert_tensors.c: the tensors of a model, converted on all cores and written to
 * model.safetensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
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

static enum status converted_alloc(struct converted *out, const struct change *c, struct error *e) {
    for (int i = 0; i < planes_of(c->to); i++) {
        size_t bytes = (size_t)c->rows * (size_t)plane_cols(c->cols, c->to, i) * plane_element_bytes(c->to, i);
        out->planes[i] = malloc(bytes + 1);
        if (out->planes[i] == NULL)
            return error_set(e, STATUS_NO_MEMORY, "%s: no memory for %zu bytes", c->stored->name, bytes);
    }
    return STATUS_OK;
}

static const void *plane_of(const struct conversion *p, const struct change *c, int plane) {
    char name[400];
    if (plane == 0) return c->stored->data;
    snprintf(name, sizeof name, "%s%s", c->stored->name, plane_suffixes[plane]);
    return weights_find(p->weights, name)->data; /* there, or the model would not have opened */
}

/* Whether a tensor lies in the source as its file holds it: all but those of GGUF files that have an order or blocks of
 * their own. */
static bool lies_ready(const struct stored_tensor *t) { return !t->form && !t->turned && rows_in_order(t); }

/* Row i of a tensor of GGUF's. */
static const char *gguf_row(const struct change *c, int64_t i) {
    const struct stored_tensor *t = c->stored;
    size_t bytes = t->form ? block_row_bytes(t->form, c->cols) : (size_t)c->cols * dtype_bytes(c->from);
    return (const char *)t->data + (size_t)stored_row(t, i) * bytes;
}

/* Column i of a stored tensor of floats, as f32. */
static void read_column(float *w, const struct change *c, const char *values, int64_t i) {
    size_t size = dtype_bytes(c->from);
    for (int64_t j = 0; j < c->cols; j++)
        dtype_convert(w + j, DTYPE_F32, values + (size_t)(j * c->rows + i) * size, c->from, 1);
}

/* Row i of the tensor as it is converted, as f32. */
static void read_row(float *w, const struct change *c, void *const source[MATRIX_PLANES], int64_t i) {
    int n = (int)c->cols;
    if (c->by_column)
        read_column(w, c, source[0], i);
    else if (c->stored->form)
        blocks_widen(w, c->stored->form, gguf_row(c, i), n);
    else if (!lies_ready(c->stored))
        dtype_convert(w, DTYPE_F32, gguf_row(c, i), c->from, (size_t)n);
    else if (dtype_quantised(c->from))
        dequantise_row(w, c->from, planes_row(source, c->from, n, i), n);
    else
        dtype_convert(w, DTYPE_F32, (const char *)source[0] + (size_t)i * (size_t)n * dtype_bytes(c->from), c->from,
                      (size_t)n);
}

/* Writes row i and reads it back into `back`; false when a number does not fit the type. */
static bool write_row(const struct converted *out, const struct change *c, const float *w, float *back, int64_t i) {
    int n = (int)c->cols;
    if (dtype_quantised(c->to)) {
        struct quantised_row to = planes_row(out->planes, c->to, n, i);
        bool fits = c->stored->form ? blocks_quantise(c->to, to, c->stored->form, gguf_row(c, i), n, NULL)
                                    : quantise_row(c->to, to, w, c->importance, n);
        if (!fits) return false;
        dequantise_row(back, c->to, to, n);
        return true;
    }
    char *to = (char *)out->planes[0] + (size_t)i * (size_t)n * dtype_bytes(c->to);
    return planes_write_floats(to, c->to, w, back, n);
}

static enum status convert_rows(const struct conversion *p, struct change *c, const struct converted *out,
                                struct error *e) {
    void *source[MATRIX_PLANES] = {NULL};
    int64_t bad = -1;
    for (int i = 0; i < planes_of(c->from) && lies_ready(c->stored); i++)
        source[i] = (void *)(uintptr_t)plane_of(p, c, i);
#pragma omp parallel
    {
        struct deviation d = {0};
        float *w = xmalloc(2 * (size_t)c->cols * sizeof *w), *back = w + c->cols;
#pragma omp for schedule(dynamic, ROWS_AT_ONCE)
        for (int64_t i = 0; i < c->rows; i++) {
            if (output_check(NULL)) continue;
            read_row(w, c, source, i);
            if (write_row(out, c, w, back, i)) {
                deviation_add(&d, w, back, (int)c->cols);
            } else {
#pragma omp critical
                bad = i;
            }
        }
#pragma omp critical
        {
            c->deviation.squared += d.squared;
            c->deviation.total += d.total;
            c->deviation.largest = fmax(c->deviation.largest, d.largest);
        }
        free(w);
    }
    if (output_check(e)) return e->status;
    if (bad < 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "tensor %s: row %lld holds a number that is not finite or does not fit %s",
                     c->stored->name, (long long)bad, dtype_name(c->to));
}

/* A matrix of floats that was converted as [out, in] becomes [in, out], as its family stores it. */
static enum status turn_plane(struct converted *out, const struct change *c, struct error *e) {
    size_t rows = (size_t)c->rows, cols = (size_t)c->cols, size = dtype_bytes(c->to);
    char *turned = malloc(rows * cols * size + 1);
    if (turned == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to transpose it", c->stored->name);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            memcpy(turned + (j * rows + i) * size, (char *)out->planes[0] + (i * cols + j) * size, size);
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

static void layout_make(struct layout *l, const struct conversion *p) {
    l->specs = xcalloc((size_t)p->n * MATRIX_PLANES + 1, sizeof *l->specs);
    l->places = xcalloc((size_t)p->n * MATRIX_PLANES + 1, sizeof *l->places);
    for (size_t size = 4; size > 0; size /= 2)
        for (int i = 0; i < p->n; i++)
            for (int k = 0; k < planes_of(p->changes[i].to); k++) {
                const struct change *c = &p->changes[i];
                if (plane_element_bytes(c->to, k) != size) continue;
                struct buffer name = {0};
                buffer_printf(&name, "%s%s", c->stored->name, plane_suffixes[k]);
                struct tensor_spec *s = &l->specs[l->n];
                *s = (struct tensor_spec){.name = name.data,
                                          .dtype = plane_dtype(c->to, k),
                                          .n_dims = min_int(c->stored->n_dims, 2),
                                          .shape = {c->turned_back ? c->cols : c->rows,
                                                    c->turned_back ? c->rows : plane_cols(c->cols, c->to, k)},
                                          .bytes = (size_t)c->rows * (size_t)plane_cols(c->cols, c->to, k) * size};
                l->places[i * MATRIX_PLANES + k] = l->n++;
            }
}

static void layout_free(struct layout *l) {
    for (int i = 0; i < l->n; i++) free((void *)(uintptr_t)l->specs[i].name);
    free(l->specs);
    free(l->places);
}

static enum status write_tensor(const struct conversion *p, int i, const struct layout *l, struct tensor_file *f,
                                struct error *e) {
    struct change *c = &p->changes[i];
    struct converted out = {{NULL}};
    enum status status = STATUS_OK;
    bool rewritten = c->to != c->from || !lies_ready(c->stored);
    if (rewritten) {
        status = converted_alloc(&out, c, e);
        if (status == STATUS_OK) status = convert_rows(p, c, &out, e);
        if (status == STATUS_OK && c->turned_back) status = turn_plane(&out, c, e);
    }
    for (int k = 0; k < planes_of(c->to) && status == STATUS_OK; k++) {
        int at = l->places[i * MATRIX_PLANES + k];
        const void *data = rewritten ? out.planes[k] : plane_of(p, c, k);
        status = tensor_file_put(f, at, data, l->specs[at].bytes, e);
    }
    converted_free(&out);
    return status;
}

enum status conversion_write(struct conversion *p, const char *folder, struct error *e) {
    struct layout l = {0};
    struct tensor_file *f;
    struct buffer path = {0};
    layout_make(&l, p);
    buffer_printf(&path, "%s/model.safetensors", folder);
    enum status status = tensor_file_open(&f, path.data, l.specs, l.n, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < p->n && status == STATUS_OK; i++) status = write_tensor(p, i, &l, f, e);
        struct error closing;
        enum status closed = tensor_file_close(f, &closing);
        if (status == STATUS_OK && closed) status = error_set(e, closed, "%s", closing.text);
    }
    buffer_free(&path);
    layout_free(&l);
    return status;
}
