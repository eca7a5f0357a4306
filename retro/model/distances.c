/* retro/model/distances.c: see distances.h. */
#include "retro/model/distances.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "retro/model/layer_private.h"

int distance_row(const struct distance_dims *dims, int distance) {
    int middle = dims->span / 2, away = abs(distance), row = distance;
    if (dims->buckets && away > middle) {
        float share = logf((float)away / (float)middle) /
                      logf((float)((double)(dims->farthest - 1) / middle));
        int bucket = (int)ceilf(share * (float)(middle - 1)) + middle;
        row = distance > 0 ? bucket : -bucket;
    }
    return max_int(0, min_int(row + dims->span, 2 * dims->span - 1));
}

static enum status open_columns(struct model *model, struct stack *stack, struct error *e) {
    const struct distance_dims *dims = &stack->dims.distances;
    size_t n = 2 * (size_t)dims->farthest + 1;
    int32_t *host = xmalloc(n * sizeof *host);
    void *device = NULL;
    for (size_t i = 0; i < n; i++) host[i] = distance_row(dims, (int)i - dims->farthest);
    enum status status = backend_alloc(model->backend, &device, n * sizeof *host, "distances", e);
    stack->distance_columns = device;
    if (status == STATUS_OK) {
        backend_upload(model->backend, device, host, n * sizeof *host);
        status = backend_sync(model->backend, e);
    }
    free(host);
    return status;
}

/* Columns [first, first + h) of rows that lie on the host, as a matrix. */
static enum status pack_head(struct model *model, const struct tensor *rows, int first, int h,
                             struct weight *out, struct error *e) {
    float *head = xmalloc((size_t)rows->rows * (size_t)h * sizeof *head);
    for (int i = 0; i < rows->rows; i++)
        for (int d = 0; d < h; d++) head[i * h + d] = tensor_f32(*rows)[i * rows->cols + first + d];
    const struct host_matrix host = {.values = head, .dtype = DTYPE_F32};
    *out = (struct weight){.dtype = DTYPE_F32, .n_out = rows->rows, .n_in = h};
    enum status status = backend_pack(model->backend, out, &host, e);
    free(head);
    return status;
}

/* `rows`: the layer's queries, keys and values of the table, on the host. */
static enum status pack_layer(struct model *model, const struct stack *stack, struct layer *layer,
                              const struct tensor *rows, struct error *e) {
    int heads = stack->heads.n, h = stack->dims.head_dim;
    enum status status = STATUS_OK;
    layer->distance_keys = xcalloc((size_t)heads, sizeof *layer->distance_keys);
    layer->distance_queries = xcalloc((size_t)heads, sizeof *layer->distance_queries);
    for (int i = 0; i < heads && status == STATUS_OK; i++) {
        status = pack_head(model, rows, i * h, h, &layer->distance_queries[i], e);
        if (status == STATUS_OK)
            status = pack_head(model, rows, (heads + i) * h, h, &layer->distance_keys[i], e);
    }
    return status;
}

/* On the device: the table behind its norm, and its rows as one layer projects them. */
struct distance_rows {
    struct tensor table, projected;
    float *host;
    void *memory;
};

static enum status open_rows(struct distance_rows *rows, struct model *model,
                             const struct stack *stack, struct error *e) {
    int n = 2 * stack->dims.distances.span, d = stack->dims.hidden,
        columns = (stack->heads.n + 2 * stack->kv_heads.n) * stack->dims.head_dim;
    size_t floats = (size_t)n * (size_t)(d + columns);
    if (backend_alloc(model->backend, &rows->memory, floats * sizeof(float), "distances", e))
        return e->status;
    float *at = rows->memory;
    rows->table = tensor_make(at, DTYPE_F32, n, d);
    rows->projected = tensor_make(at + (size_t)n * (size_t)d, DTYPE_F32, n, columns);
    rows->host = xmalloc((size_t)n * (size_t)columns * sizeof *rows->host);
    if (stack->norm_distances.gamma)
        stack_norm(model, stack, rows->table, stack->distances, &stack->norm_distances);
    else
        rows->table = stack->distances;
    return STATUS_OK;
}

static enum status open_layer(const struct distance_rows *rows, struct model *model,
                              const struct stack *stack, struct layer *layer, struct error *e) {
    struct tensor host =
        tensor_make(rows->host, DTYPE_F32, rows->projected.rows, rows->projected.cols);
    layer_project_rows(model, rows->projected, rows->table, &layer->qkv, ACTIVATION_NONE);
    backend_download(model->backend, rows->host, rows->projected.data,
                     (size_t)host.rows * (size_t)host.cols * sizeof(float));
    if (backend_sync(model->backend, e)) return e->status;
    return pack_layer(model, stack, layer, &host, e);
}

enum status distances_check_device(const struct model *model, struct error *e) {
    const char *device = model->backend->ops->name;
    if (model->spec.stacks[STACK_ENCODER].distances.span == 0 || strcmp(device, "cpu") == 0)
        return STATUS_OK;
    return error_set(e, STATUS_UNSUPPORTED,
                     "the scores of a %s model grow by distances, which the kernels of %s do not "
                     "know: use the device \"cpu\"",
                     model->info.family, device);
}

enum status distances_open(struct model *model, bool check_only, struct error *e) {
    struct stack *stack = &model->stacks[STACK_ENCODER];
    const struct distance_dims *dims = &stack->dims.distances;
    struct distance_rows rows = {0};
    if (dims->span == 0) return STATUS_OK;
    size_t each = 2 * (size_t)dims->span * (size_t)stack->dims.head_dim;
    model->info.weight_bytes +=
        2 * (size_t)stack->dims.n_layers * (size_t)stack->heads.n * matrix_bytes(DTYPE_F32, each);
    if (check_only) return STATUS_OK;
    enum status status = open_columns(model, stack, e);
    if (status == STATUS_OK) status = open_rows(&rows, model, stack, e);
    for (int i = 0; i < stack->dims.n_layers && status == STATUS_OK; i++)
        status = open_layer(&rows, model, stack, &stack->layers[i], e);
    backend_release(model->backend, rows.memory);
    free(rows.host);
    return status;
}

static void release_heads(struct model *model, struct weight *weights, int n) {
    for (int i = 0; weights && i < n; i++) backend_release(model->backend, weights[i].data);
}

void distances_release(struct model *model) {
    struct stack *stack = &model->stacks[STACK_ENCODER];
    for (int i = 0; i < stack->dims.n_layers; i++) {
        release_heads(model, stack->layers[i].distance_keys, stack->heads.n);
        release_heads(model, stack->layers[i].distance_queries, stack->heads.n);
    }
    backend_release(model->backend, stack->distance_columns);
}
