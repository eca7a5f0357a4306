/* retro/run/embed/pooling.c: means, first and last rows are taken on the device; other modes read
 * all rows on the host. The modules behind work on one vector a text and run there too, but for the
 * products of Dense modules. See pooling.h. */
#include "retro/run/embed/pooling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tensor.h"
#include "retro/run/embed/head_weights.h"

struct dense {
    struct weight weight; /* f32; data NULL where the module is none */
    float *bias;          /* device, or NULL */
    float *gamma, *beta;  /* host, of the norm behind; or NULL */
};

struct pooling {
    const struct encoder_folder *folder;
    struct backend *backend;
    int d, dim, widest;
    struct tensor device[2]; /* [max_rows, widest]: what a module reads and writes */
    float *rows;             /* host [max_rows, d], where a mode needs them */
    float *vectors, *part;   /* host [max_rows, widest]; [max_rows, d] */
    int32_t *picked;         /* [max_rows] */
    struct dense dense[ENCODER_MAX_MODULES]; /* by module */
};

/* Whether a mode reads all rows on the host: the device's mean is of whole texts. */
static bool pooled_on_host(const struct encoder_folder *folder, enum pooling_mode mode) {
    bool mean = mode == POOLING_MEAN || mode == POOLING_MEAN_SQRT;
    return mode == POOLING_MAX || mode == POOLING_WEIGHTED || (mean && !folder->include_prompt);
}

static int widest_of(const struct encoder_folder *folder, int d) {
    int widest = folder->n_modes * d;
    for (int i = 0; i < folder->n_modules; i++) widest = max_int(widest, folder->modules[i].n_out);
    return widest;
}

enum status pooling_check(const struct encoder_folder *folder, int d, int *dim, struct error *e) {
    if (folder->pooled >= 0 && folder->pooled != d)
        return error_set(e, STATUS_INVALID,
                         "the pooling configuration says rows of %d numbers, the model has %d",
                         folder->pooled, d);
    *dim = folder->n_modes * d;
    for (int i = 0; i < folder->n_modules; i++) {
        const struct encoder_module *module = &folder->modules[i];
        if (module->normalize) continue;
        if (module->n_in != *dim)
            return error_set(e, STATUS_INVALID,
                             "%s/config.json: in_features is %d, the module before gives %d",
                             module->folder, module->n_in, *dim);
        *dim = module->n_out;
    }
    return STATUS_OK;
}

size_t pooling_bytes(const struct encoder_folder *folder, int max_rows, int d) {
    size_t numbers = 2 * (size_t)max_rows * (size_t)widest_of(folder, d);
    for (int i = 0; i < folder->n_modules; i++)
        numbers += (size_t)folder->modules[i].n_out *
                   ((size_t)folder->modules[i].n_in + (size_t)folder->modules[i].bias);
    return numbers * sizeof(float);
}

/* Dense modules. */

/* One row of a matrix less another, which the caller frees. */
static enum status read_contrast(const struct weights *weights, const char *name,
                                 const struct encoder_module *module, float **out,
                                 struct error *e) {
    const struct stored_tensor *stored = weights_find(weights, name);
    int last = max_int(module->row[0], module->row[1]);
    if (stored == NULL) return error_set(e, STATUS_INVALID, "tensor %s is missing", name);
    if (stored->n_dims != 2 || stored->shape[0] <= last || stored->shape[1] != module->n_in ||
        !head_stores_rows(stored))
        return error_set(e, STATUS_INVALID,
                         "tensor %s is no F32, F16 or BF16 matrix with row %d of %d numbers", name,
                         last, module->n_in);

    size_t n = (size_t)module->n_in;
    float *less = xmalloc(n * sizeof *less);
    *out = xmalloc(n * sizeof **out);
    head_copy_row(*out, stored, module->row[0], module->n_in);
    head_copy_row(less, stored, module->row[1], module->n_in);
    for (size_t i = 0; i < n; i++) (*out)[i] -= less[i];
    free(less);
    return STATUS_OK;
}

static enum status load_matrix(struct dense *dense, struct backend *backend,
                               const struct encoder_module *module, const struct weights *weights,
                               struct error *e) {
    float *values = NULL;
    const char *name = module->weight_name ? module->weight_name : "linear.weight";
    if (module->contrast ? read_contrast(weights, name, module, &values, e)
                         : head_read_floats(weights, name, module->n_out, module->n_in, &values, e))
        return e->status;
    struct weight weight = {.dtype = DTYPE_F32, .n_out = module->n_out, .n_in = module->n_in};
    struct host_matrix host = {.values = values, .dtype = DTYPE_F32};
    enum status status = backend_pack(backend, &weight, &host, e);
    free(values);
    if (status == STATUS_OK) dense->weight = weight;
    return status;
}

static enum status load_bias(struct dense *dense, struct backend *backend,
                             const struct encoder_module *module, const struct weights *weights,
                             struct error *e) {
    float *bias = NULL;
    void *memory;
    size_t bytes = (size_t)module->n_out * sizeof *bias;
    const char *name = module->bias_name ? module->bias_name : "linear.bias";
    if (head_read_floats(weights, name, module->n_out, 0, &bias, e)) return e->status;
    enum status status = backend_alloc(backend, &memory, bytes, "bias", e);
    if (status == STATUS_OK) {
        dense->bias = memory;
        backend_upload(backend, memory, bias, bytes);
        status = backend_sync(backend, e);
    }
    free(bias);
    return status;
}

static enum status load_dense(struct dense *dense, struct backend *backend,
                              const struct encoder_module *module, const struct weights *weights,
                              struct error *e) {
    if (load_matrix(dense, backend, module, weights, e) ||
        (module->bias && load_bias(dense, backend, module, weights, e)))
        return e->status;
    int n = module->n_out;
    if (module->norm_name && head_read_floats(weights, module->norm_name, n, 0, &dense->gamma, e))
        return e->status;
    return module->norm_bias_name
               ? head_read_floats(weights, module->norm_bias_name, n, 0, &dense->beta, e)
               : STATUS_OK;
}

static enum status open_dense(struct pooling *pooling, int i, struct error *e) {
    const struct encoder_module *module = &pooling->folder->modules[i];
    struct weights *weights;
    char path[4096];
    if (module->normalize) return STATUS_OK;
    snprintf(path, sizeof path, module->weight_name ? "%s" : "%s/model.safetensors",
             module->folder);
    if (weights_open(&weights, path, e)) return e->status;
    enum status status = load_dense(&pooling->dense[i], pooling->backend, module, weights, e);
    if (status) error_prefix(e, "%s", path);
    weights_close(weights);
    return status;
}

static enum status open_rows(struct pooling *pooling, int max_rows, struct error *e) {
    size_t rows = (size_t)max_rows, bytes = rows * (size_t)pooling->widest * sizeof(float);
    bool host_rows = false;
    for (int i = 0; i < 2; i++) {
        void *memory;
        if (backend_alloc(pooling->backend, &memory, bytes, "vectors", e)) return e->status;
        pooling->device[i] = tensor_make(memory, DTYPE_F32, max_rows, pooling->widest);
    }
    for (int i = 0; i < pooling->folder->n_modes; i++)
        host_rows = host_rows || pooled_on_host(pooling->folder, pooling->folder->modes[i]);
    if (host_rows) pooling->rows = xmalloc(rows * (size_t)pooling->d * sizeof *pooling->rows);
    pooling->vectors = xmalloc(bytes);
    pooling->part = xmalloc(rows * (size_t)pooling->d * sizeof *pooling->part);
    pooling->picked = xmalloc(rows * sizeof *pooling->picked);
    return STATUS_OK;
}

enum status pooling_open(struct pooling **out, const struct encoder_folder *folder,
                         struct backend *backend, int max_rows, int d, struct error *e) {
    int dim;
    *out = NULL;
    if (pooling_check(folder, d, &dim, e)) return e->status;
    struct pooling *pooling = xcalloc(1, sizeof *pooling);
    pooling->folder = folder;
    pooling->backend = backend;
    pooling->d = d;
    pooling->dim = dim;
    pooling->widest = widest_of(folder, d);
    enum status status = open_rows(pooling, max_rows, e);
    for (int i = 0; i < folder->n_modules && status == STATUS_OK; i++)
        status = open_dense(pooling, i, e);
    if (status) {
        pooling_close(pooling);
        return status;
    }
    *out = pooling;
    return STATUS_OK;
}

void pooling_close(struct pooling *pooling) {
    if (pooling == NULL) return;
    for (int i = 0; i < ENCODER_MAX_MODULES; i++) {
        backend_release(pooling->backend, pooling->dense[i].weight.data);
        backend_release(pooling->backend, pooling->dense[i].bias);
        free(pooling->dense[i].gamma);
        free(pooling->dense[i].beta);
    }
    for (int i = 0; i < 2; i++) backend_release(pooling->backend, pooling->device[i].data);
    free(pooling->rows);
    free(pooling->vectors);
    free(pooling->part);
    free(pooling->picked);
    free(pooling);
}

/* Modes. Each fills part [n, d], host. */

/* The first row of a text that is pooled; its end where there is none. */
static int first_row(const struct pooling_rows *rows, int i) {
    return min_int(rows->starts[i] + rows->skip, rows->starts[i + 1]);
}

/* The one row that a text's vector is, -1: zeros. The first row of a text that is all prompt is its
 * own first. */
static int pick_row(const struct pooling_rows *rows, enum pooling_mode mode, int i) {
    int start = rows->starts[i], end = rows->starts[i + 1], first = first_row(rows, i);
    if (mode == POOLING_LAST) return first < end ? end - 1 : -1;
    if (start == end) return -1;
    return first < end ? first : start;
}

static void pool_device(struct pooling *pooling, const struct pooling_rows *rows,
                        enum pooling_mode mode) {
    struct tensor y = tensor_make(pooling->device[0].data, DTYPE_F32, rows->n, pooling->d);
    if (mode == POOLING_MEAN || mode == POOLING_MEAN_SQRT) {
        backend_mean_rows(pooling->backend,
                          &(struct mean_rows_args){.y = y, .x = rows->x, .starts = rows->starts});
    } else {
        for (int i = 0; i < rows->n; i++) pooling->picked[i] = pick_row(rows, mode, i);
        backend_gather_rows(pooling->backend, &(struct gather_rows_args){
                                                  .y = y, .x = rows->x, .rows = pooling->picked});
    }
    backend_download(pooling->backend, pooling->part, y.data,
                     (size_t)rows->n * (size_t)pooling->d * sizeof *pooling->part);
}

/* Sums of rows weighted by their number in the text, from 1, or by one. */
static void pool_column(struct pooling *pooling, const struct pooling_rows *rows,
                        enum pooling_mode mode, int i, int column) {
    double sum = 0, weights = 0;
    float largest = -INFINITY;
    int first = first_row(rows, i), end = rows->starts[i + 1];
    for (int row = first; row < end; row++) {
        float x = pooling->rows[(size_t)row * (size_t)pooling->d + (size_t)column];
        double weight = mode == POOLING_WEIGHTED ? row - rows->starts[i] + 1 : 1;
        sum += weight * (double)x;
        weights += weight;
        largest = fmaxf(largest, x);
    }
    float *y = &pooling->part[(size_t)i * (size_t)pooling->d + (size_t)column];
    if (first == end)
        *y = 0;
    else if (mode == POOLING_MAX)
        *y = largest;
    else
        *y = (float)(sum / weights);
}

static enum status pool_host(struct pooling *pooling, const struct pooling_rows *rows,
                             enum pooling_mode mode, struct error *e) {
    size_t bytes = (size_t)rows->x.rows * (size_t)pooling->d * sizeof *pooling->rows;
    backend_download(pooling->backend, pooling->rows, rows->x.data, bytes);
    if (backend_sync(pooling->backend, e)) return e->status;
    for (int i = 0; i < rows->n; i++)
        for (int column = 0; column < pooling->d; column++)
            pool_column(pooling, rows, mode, i, column);
    return STATUS_OK;
}

/* The sum by the root of the count is the mean times that root. */
static void scale_means(struct pooling *pooling, const struct pooling_rows *rows) {
    for (int i = 0; i < rows->n; i++) {
        float scale = sqrtf((float)(rows->starts[i + 1] - first_row(rows, i)));
        for (int column = 0; column < pooling->d; column++)
            pooling->part[(size_t)i * (size_t)pooling->d + (size_t)column] *= scale;
    }
}

/* vectors [n, modes d]: the modes' vectors side by side. */
static enum status pool_modes(struct pooling *pooling, const struct pooling_rows *rows,
                              struct error *e) {
    size_t d = (size_t)pooling->d, wide = d * (size_t)pooling->folder->n_modes;
    for (int k = 0; k < pooling->folder->n_modes; k++) {
        enum pooling_mode mode = pooling->folder->modes[k];
        if (pooled_on_host(pooling->folder, mode)) {
            if (pool_host(pooling, rows, mode, e)) return e->status;
        } else {
            pool_device(pooling, rows, mode);
            if (backend_sync(pooling->backend, e)) return e->status;
        }
        if (mode == POOLING_MEAN_SQRT) scale_means(pooling, rows);
        for (size_t i = 0; i < (size_t)rows->n; i++)
            memcpy(pooling->vectors + i * wide + (size_t)k * d, pooling->part + i * d,
                   d * sizeof *pooling->part);
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

/* LayerNorm, perhaps without beta, in place. */
static void norm_vector(float *x, const struct dense *dense, int n, float epsilon) {
    double mean = 0, variance = 0;
    for (int j = 0; j < n; j++) mean += (double)x[j] / n;
    for (int j = 0; j < n; j++) variance += ((double)x[j] - mean) * ((double)x[j] - mean) / n;
    double scale = 1 / sqrt(variance + (double)epsilon);
    for (int j = 0; j < n; j++) {
        double beta = dense->beta ? (double)dense->beta[j] : 0;
        x[j] = (float)(((double)x[j] - mean) * scale * (double)dense->gamma[j] + beta);
    }
}

/* vectors [n, n_in] become [n, n_out]. */
static enum status run_dense(struct pooling *pooling, int i, int n, struct error *e) {
    const struct encoder_module *module = &pooling->folder->modules[i];
    struct tensor x = tensor_make(pooling->device[0].data, DTYPE_F32, n, module->n_in);
    struct tensor y = tensor_make(pooling->device[1].data, DTYPE_F32, n, module->n_out);
    size_t numbers = (size_t)n * (size_t)module->n_out;
    backend_upload(pooling->backend, x.data, pooling->vectors,
                   (size_t)n * (size_t)module->n_in * sizeof(float));
    backend_linear(
        pooling->backend,
        &(struct linear_args){
            .y = y, .x = x, .weight = &pooling->dense[i].weight, .bias = pooling->dense[i].bias});
    backend_download(pooling->backend, pooling->vectors, y.data, numbers * sizeof(float));
    if (backend_sync(pooling->backend, e)) return e->status;
    for (size_t j = 0; j < numbers; j++)
        pooling->vectors[j] =
            activate_dense(pooling->vectors[j], (enum dense_activation)module->activation);
    for (int j = 0; j < n && pooling->dense[i].gamma; j++)
        norm_vector(pooling->vectors + (size_t)j * (size_t)module->n_out, &pooling->dense[i],
                    module->n_out, module->epsilon);
    return STATUS_OK;
}

/* to = the first n numbers of from, divided by their L2 norm; to may be from. */
static void normalize_vector(float *to, const float *from, int n) {
    double squares = 0;
    for (int j = 0; j < n; j++) squares += (double)from[j] * (double)from[j];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int j = 0; j < n; j++) to[j] = (float)((double)from[j] * scale);
}

enum status pooling_run(struct pooling *pooling, const struct pooling_rows *rows, int dimensions,
                        bool raw, float *vectors, struct error *e) {
    size_t size = (size_t)pooling->d * (size_t)pooling->folder->n_modes;
    if (pool_modes(pooling, rows, e)) return e->status;
    for (int k = 0; k < pooling->folder->n_modules; k++) {
        const struct encoder_module *module = &pooling->folder->modules[k];
        if (!module->normalize && run_dense(pooling, k, rows->n, e)) return e->status;
        if (!module->normalize) size = (size_t)module->n_out;
        for (size_t i = 0; module->normalize && i < (size_t)rows->n; i++)
            normalize_vector(pooling->vectors + i * size, pooling->vectors + i * size, (int)size);
    }
    for (size_t i = 0; i < (size_t)rows->n; i++) {
        float *vector = vectors + i * (size_t)dimensions;
        if (raw && pooling->folder->raw)
            memcpy(vector, pooling->vectors + i * size, (size_t)dimensions * sizeof *vector);
        else
            normalize_vector(vector, pooling->vectors + i * size, dimensions);
    }
    return STATUS_OK;
}
