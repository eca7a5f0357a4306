/* retro/run/embed/pooling.c: means, first and last rows are taken on the device; other modes read all rows on the host.
 * The modules behind work on one vector a text
 * and run there too, but for the products of Dense modules. See pooling.h. */
#include "retro/run/embed/pooling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retro/weights/weights.h"

struct dense {
    struct weight weight; /* f32; data NULL where the module is none */
    float *bias;          /* device, or NULL */
};

struct pooling {
    const struct encoder_folder *folder;
    struct backend *backend;
    int d, dim, widest;
    struct tensor device[2];                 /* [max_rows, widest]: what a module reads and writes */
    float *rows;                             /* host [max_rows, d], where a mode needs them */
    float *vectors, *part;                   /* host [max_rows, widest]; [max_rows, d] */
    int32_t *picked;                         /* [max_rows] */
    struct dense dense[ENCODER_MAX_MODULES]; /* by module */
};

/* Whether a mode reads all rows on the host: the device's mean is of whole texts. */
static bool pooled_on_host(const struct encoder_folder *f, enum pooling_mode mode) {
    bool mean = mode == POOLING_MEAN || mode == POOLING_MEAN_SQRT;
    return mode == POOLING_MAX || mode == POOLING_WEIGHTED || (mean && !f->include_prompt);
}

static int widest_of(const struct encoder_folder *f, int d) {
    int widest = f->n_modes * d;
    for (int i = 0; i < f->n_modules; i++) widest = max_int(widest, f->modules[i].n_out);
    return widest;
}

enum status pooling_check(const struct encoder_folder *f, int d, int *dim, struct error *e) {
    if (f->pooled >= 0 && f->pooled != d)
        return error_set(e, STATUS_INVALID, "the pooling configuration says rows of %d numbers, the model has %d",
                         f->pooled, d);
    *dim = f->n_modes * d;
    for (int i = 0; i < f->n_modules; i++) {
        const struct encoder_module *m = &f->modules[i];
        if (m->normalize) continue;
        if (m->n_in != *dim)
            return error_set(e, STATUS_INVALID, "%s/config.json: in_features is %d, the module before gives %d",
                             m->folder, m->n_in, *dim);
        *dim = m->n_out;
    }
    return STATUS_OK;
}

size_t pooling_bytes(const struct encoder_folder *f, int max_rows, int d) {
    size_t numbers = 2 * (size_t)max_rows * (size_t)widest_of(f, d);
    for (int i = 0; i < f->n_modules; i++)
        numbers += (size_t)f->modules[i].n_out * ((size_t)f->modules[i].n_in + (size_t)f->modules[i].bias);
    return numbers * sizeof(float);
}

/* Dense modules. */

/* A float tensor of this shape; cols 0: a vector. */
static enum status find_floats(const struct weights *w, const char *name, int rows, int cols, const float **out,
                               struct error *e) {
    const struct stored_tensor *t = weights_find(w, name);
    char shape[120];
    if (t == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    bool fits = t->n_dims == (cols ? 2 : 1) && t->shape[0] == rows && (cols == 0 || t->shape[1] == cols);
    if (!fits || t->dtype != STORED_F32)
        return error_set(e, STATUS_INVALID, "tensor %s is %s %s, config.json makes it F32 [%d, %d]", name,
                         stored_dtype_name(t->dtype), stored_shape_text(t, shape, sizeof shape), rows, cols);
    *out = t->data;
    return STATUS_OK;
}

static enum status load_dense(struct dense *dense, struct backend *b, const struct encoder_module *m,
                              const struct weights *w, struct error *e) {
    const float *values, *bias;
    size_t bytes = (size_t)m->n_out * sizeof *bias;
    void *memory;
    if (find_floats(w, m->weight_name ? m->weight_name : "linear.weight", m->n_out, m->n_in, &values, e))
        return e->status;
    struct weight weight = {.dtype = DTYPE_F32, .n_out = m->n_out, .n_in = m->n_in};
    struct host_matrix host = {.values = values, .dtype = DTYPE_F32};
    if (backend_pack(b, &weight, &host, e)) return e->status;
    dense->weight = weight;
    if (!m->bias) return STATUS_OK;
    if (find_floats(w, m->bias_name ? m->bias_name : "linear.bias", m->n_out, 0, &bias, e) ||
        backend_alloc(b, &memory, bytes, "bias", e))
        return e->status;
    dense->bias = memory;
    backend_upload(b, memory, bias, bytes);
    return backend_sync(b, e);
}

static enum status open_dense(struct pooling *p, int i, struct error *e) {
    const struct encoder_module *m = &p->folder->modules[i];
    struct weights *w;
    char path[4096];
    if (m->normalize) return STATUS_OK;
    snprintf(path, sizeof path, m->weight_name ? "%s" : "%s/model.safetensors", m->folder);
    if (weights_open(&w, path, e)) return e->status;
    enum status status = load_dense(&p->dense[i], p->backend, m, w, e);
    if (status) error_prefix(e, "%s", path);
    weights_close(w);
    return status;
}

static enum status open_rows(struct pooling *p, int max_rows, struct error *e) {
    size_t rows = (size_t)max_rows, bytes = rows * (size_t)p->widest * sizeof(float);
    bool host_rows = false;
    for (int i = 0; i < 2; i++) {
        void *memory;
        if (backend_alloc(p->backend, &memory, bytes, "vectors", e)) return e->status;
        p->device[i] = tensor_make(memory, DTYPE_F32, max_rows, p->widest);
    }
    for (int i = 0; i < p->folder->n_modes; i++)
        host_rows = host_rows || pooled_on_host(p->folder, p->folder->modes[i]);
    if (host_rows) p->rows = xmalloc(rows * (size_t)p->d * sizeof *p->rows);
    p->vectors = xmalloc(bytes);
    p->part = xmalloc(rows * (size_t)p->d * sizeof *p->part);
    p->picked = xmalloc(rows * sizeof *p->picked);
    return STATUS_OK;
}

enum status pooling_open(struct pooling **out, const struct encoder_folder *folder, struct backend *b, int max_rows,
                         int d, struct error *e) {
    int dim;
    *out = NULL;
    if (pooling_check(folder, d, &dim, e)) return e->status;
    struct pooling *p = xcalloc(1, sizeof *p);
    p->folder = folder;
    p->backend = b;
    p->d = d;
    p->dim = dim;
    p->widest = widest_of(folder, d);
    enum status status = open_rows(p, max_rows, e);
    for (int i = 0; i < folder->n_modules && status == STATUS_OK; i++) status = open_dense(p, i, e);
    if (status) {
        pooling_close(p);
        return status;
    }
    *out = p;
    return STATUS_OK;
}

void pooling_close(struct pooling *p) {
    if (p == NULL) return;
    for (int i = 0; i < ENCODER_MAX_MODULES; i++) {
        backend_release(p->backend, p->dense[i].weight.data);
        backend_release(p->backend, p->dense[i].bias);
    }
    for (int i = 0; i < 2; i++) backend_release(p->backend, p->device[i].data);
    free(p->rows);
    free(p->vectors);
    free(p->part);
    free(p->picked);
    free(p);
}

/* Modes. Each fills part [n, d], host. */

/* The first row of a text that is pooled; its end where there is none. */
static int first_row(const struct pooling_rows *r, int i) { return min_int(r->starts[i] + r->skip, r->starts[i + 1]); }

/* The one row that a text's vector is, -1: zeros. The first row of a text that is all prompt is its own first. */
static int pick_row(const struct pooling_rows *r, enum pooling_mode mode, int i) {
    int start = r->starts[i], end = r->starts[i + 1], first = first_row(r, i);
    if (mode == POOLING_LAST) return first < end ? end - 1 : -1;
    if (start == end) return -1;
    return first < end ? first : start;
}

static void pool_device(struct pooling *p, const struct pooling_rows *r, enum pooling_mode mode) {
    struct tensor y = tensor_make(p->device[0].data, DTYPE_F32, r->n, p->d);
    if (mode == POOLING_MEAN || mode == POOLING_MEAN_SQRT) {
        backend_mean_rows(p->backend, &(struct mean_rows_args){.y = y, .x = r->x, .starts = r->starts});
    } else {
        for (int i = 0; i < r->n; i++) p->picked[i] = pick_row(r, mode, i);
        backend_gather_rows(p->backend, &(struct gather_rows_args){.y = y, .x = r->x, .rows = p->picked});
    }
    backend_download(p->backend, p->part, y.data, (size_t)r->n * (size_t)p->d * sizeof *p->part);
}

/* Sums of rows weighted by their number in the text, from 1, or by one. */
static void pool_column(struct pooling *p, const struct pooling_rows *r, enum pooling_mode mode, int i, int column) {
    double sum = 0, weights = 0;
    float largest = -INFINITY;
    int first = first_row(r, i), end = r->starts[i + 1];
    for (int row = first; row < end; row++) {
        float x = p->rows[(size_t)row * (size_t)p->d + (size_t)column];
        double weight = mode == POOLING_WEIGHTED ? row - r->starts[i] + 1 : 1;
        sum += weight * (double)x;
        weights += weight;
        largest = fmaxf(largest, x);
    }
    float *y = &p->part[(size_t)i * (size_t)p->d + (size_t)column];
    if (first == end)
        *y = 0;
    else if (mode == POOLING_MAX)
        *y = largest;
    else
        *y = (float)(sum / weights);
}

static enum status pool_host(struct pooling *p, const struct pooling_rows *r, enum pooling_mode mode, struct error *e) {
    size_t bytes = (size_t)r->x.rows * (size_t)p->d * sizeof *p->rows;
    backend_download(p->backend, p->rows, r->x.data, bytes);
    if (backend_sync(p->backend, e)) return e->status;
    for (int i = 0; i < r->n; i++)
        for (int column = 0; column < p->d; column++) pool_column(p, r, mode, i, column);
    return STATUS_OK;
}

/* The sum by the root of the count is the mean times that root. */
static void scale_means(struct pooling *p, const struct pooling_rows *r) {
    for (int i = 0; i < r->n; i++) {
        float scale = sqrtf((float)(r->starts[i + 1] - first_row(r, i)));
        for (int column = 0; column < p->d; column++) p->part[(size_t)i * (size_t)p->d + (size_t)column] *= scale;
    }
}

/* vectors [n, modes d]: the modes' vectors side by side. */
static enum status pool_modes(struct pooling *p, const struct pooling_rows *r, struct error *e) {
    size_t d = (size_t)p->d, wide = d * (size_t)p->folder->n_modes;
    for (int k = 0; k < p->folder->n_modes; k++) {
        enum pooling_mode mode = p->folder->modes[k];
        if (pooled_on_host(p->folder, mode)) {
            if (pool_host(p, r, mode, e)) return e->status;
        } else {
            pool_device(p, r, mode);
            if (backend_sync(p->backend, e)) return e->status;
        }
        if (mode == POOLING_MEAN_SQRT) scale_means(p, r);
        for (size_t i = 0; i < (size_t)r->n; i++)
            memcpy(p->vectors + i * wide + (size_t)k * d, p->part + i * d, d * sizeof *p->part);
    }
    return STATUS_OK;
}

/* Modules. */

static float activate_dense(float x, enum dense_activation activation) {
    switch (activation) {
        case DENSE_IDENTITY: return x;
        case DENSE_TANH: return tanhf(x);
        case DENSE_RELU: return fmaxf(x, 0);
        case DENSE_SIGMOID: return 1 / (1 + expf(-x));
        case DENSE_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
        case DENSE_SILU: return x / (1 + expf(-x));
    }
    return x;
}

/* vectors [n, n_in] become [n, n_out]. */
static enum status run_dense(struct pooling *p, int i, int n, struct error *e) {
    const struct encoder_module *m = &p->folder->modules[i];
    struct tensor x = tensor_make(p->device[0].data, DTYPE_F32, n, m->n_in);
    struct tensor y = tensor_make(p->device[1].data, DTYPE_F32, n, m->n_out);
    size_t numbers = (size_t)n * (size_t)m->n_out;
    backend_upload(p->backend, x.data, p->vectors, (size_t)n * (size_t)m->n_in * sizeof(float));
    backend_linear(p->backend,
                   &(struct linear_args){.y = y, .x = x, .weight = &p->dense[i].weight, .bias = p->dense[i].bias});
    backend_download(p->backend, p->vectors, y.data, numbers * sizeof(float));
    if (backend_sync(p->backend, e)) return e->status;
    for (size_t j = 0; j < numbers; j++)
        p->vectors[j] = activate_dense(p->vectors[j], (enum dense_activation)m->activation);
    return STATUS_OK;
}

/* to = the first n numbers of from, divided by their L2 norm; to may be from. */
static void normalize_vector(float *to, const float *from, int n) {
    double squares = 0;
    for (int j = 0; j < n; j++) squares += (double)from[j] * (double)from[j];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = 0; j < n; j++) to[j] = (float)((double)from[j] * scale);
}

enum status pooling_run(struct pooling *p, const struct pooling_rows *r, int dimensions, bool raw, float *vectors,
                        struct error *e) {
    size_t size = (size_t)p->d * (size_t)p->folder->n_modes;
    if (pool_modes(p, r, e)) return e->status;
    for (int k = 0; k < p->folder->n_modules; k++) {
        const struct encoder_module *m = &p->folder->modules[k];
        if (!m->normalize && run_dense(p, k, r->n, e)) return e->status;
        if (!m->normalize) size = (size_t)m->n_out;
        for (size_t i = 0; m->normalize && i < (size_t)r->n; i++)
            normalize_vector(p->vectors + i * size, p->vectors + i * size, (int)size);
    }
    for (size_t i = 0; i < (size_t)r->n; i++) {
        float *vector = vectors + i * (size_t)dimensions;
        if (raw && p->folder->raw)
            memcpy(vector, p->vectors + i * size, (size_t)dimensions * sizeof *vector);
        else
            normalize_vector(vector, p->vectors + i * size, dimensions);
    }
    return STATUS_OK;
}
