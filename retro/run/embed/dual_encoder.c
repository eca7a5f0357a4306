/* retro/run/embed/dual_encoder.c: see dual_encoder.h. */
#include "retro/run/embed/dual_encoder.h"

#include <math.h>
#include <stdlib.h>

struct dual_encoder {
    const struct model *model;
    struct tower *tower;
    void *memory;
    struct tensor last, made; /* [most, d], [most, joint] */
    int32_t *rows;            /* [most] host */
    float *host;              /* [most, joint] */
    int most;
};

/* Pictures of one pass of the tower: enough rows to keep the products busy. */
enum { PICTURES_AT_ONCE = 4 };

static int tower_rows_at_once(const struct model *model) {
    const struct tower_spec *tower = &model->spec.tower;
    return PICTURES_AT_ONCE * tower_count(model, TOWER_ROWS, tower->image_h, tower->image_w);
}

static size_t row_bytes(const struct model *model) {
    return ((size_t)model->stacks[STACK_ENCODER].dims.hidden + (size_t)model->spec.joint) *
           sizeof(float);
}

enum status dual_encoder_measure(size_t *bytes, const struct model *model, int most,
                                 struct error *e) {
    if (tower_measure(bytes, model, tower_rows_at_once(model), e)) return e->status;
    *bytes += (size_t)most * row_bytes(model);
    return STATUS_OK;
}

static enum status open_parts(struct dual_encoder *encoder, struct error *e) {
    const struct model *model = encoder->model;
    int d = model->stacks[STACK_ENCODER].dims.hidden;
    if (tower_open(&encoder->tower, model, tower_rows_at_once(model), e) ||
        backend_alloc(model->backend, &encoder->memory, (size_t)encoder->most * row_bytes(model),
                      "joint vectors", e))
        return e->status;
    float *last = encoder->memory;
    encoder->last = tensor_make(last, DTYPE_F32, encoder->most, d);
    encoder->made = tensor_make(last + (size_t)encoder->most * (size_t)d, DTYPE_F32, encoder->most,
                                model->spec.joint);
    encoder->rows = xmalloc((size_t)encoder->most * sizeof *encoder->rows);
    encoder->host =
        xmalloc((size_t)encoder->most * (size_t)model->spec.joint * sizeof *encoder->host);
    return STATUS_OK;
}

enum status dual_encoder_open(struct dual_encoder **out, const struct model *model, int most,
                              struct error *e) {
    struct dual_encoder *encoder = xcalloc(1, sizeof *encoder);
    encoder->model = model;
    encoder->most = max_int(most, PICTURES_AT_ONCE);
    if (open_parts(encoder, e)) {
        dual_encoder_close(encoder);
        return e->status;
    }
    *out = encoder;
    return STATUS_OK;
}

void dual_encoder_close(struct dual_encoder *encoder) {
    if (encoder == NULL) return;
    tower_close(encoder->tower);
    backend_release(encoder->model->backend, encoder->memory);
    free(encoder->rows);
    free(encoder->host);
    free(encoder);
}

/* The first `dimensions` numbers of each row of encoder->host, at unit length. */
static void write_vectors(const struct dual_encoder *encoder, int n, int dimensions,
                          float *vectors) {
    for (int i = 0; i < n; i++) {
        const float *from = encoder->host + (size_t)i * (size_t)encoder->model->spec.joint;
        double sum = 0;
        for (int k = 0; k < dimensions; k++) sum += (double)from[k] * (double)from[k];
        double scale = sum > 0 ? 1 / sqrt(sum) : 0;
        for (int k = 0; k < dimensions; k++)
            vectors[i * dimensions + k] = (float)(scale * (double)from[k]);
    }
}

enum status dual_encoder_texts(struct dual_encoder *encoder, const struct pooling_rows *rows,
                               int dimensions, float *vectors, struct error *e) {
    struct backend *backend = encoder->model->backend;
    const int32_t *starts = rows->starts;
    int n = rows->n;
    struct tensor last = tensor_rows(encoder->last, 0, n), made = tensor_rows(encoder->made, 0, n);
    CHECK(n <= encoder->most);
    for (int i = 0; i < n; i++)
        encoder->rows[i] = starts[i + 1] > starts[i] ? starts[i + 1] - 1 : -1;
    backend_gather_rows(backend,
                        &(struct gather_rows_args){.y = last, .x = rows->x, .rows = encoder->rows});
    backend_linear(backend, &(struct linear_args){.y = made,
                                                  .x = last,
                                                  .weight = &encoder->model->joint.weight,
                                                  .bias = encoder->model->joint.bias});
    backend_download(backend, encoder->host, made.data,
                     (size_t)n * (size_t)made.cols * sizeof *encoder->host);
    if (backend_sync(backend, e)) return e->status;
    write_vectors(encoder, n, dimensions, vectors);
    return STATUS_OK;
}

enum status dual_encoder_pictures(struct dual_encoder *encoder,
                                  const struct tower_picture *pictures, int n, int dimensions,
                                  float *vectors, struct error *e) {
    for (int first = 0; first < n; first += PICTURES_AT_ONCE) {
        int some = min_int(PICTURES_AT_ONCE, n - first);
        if (tower_run(encoder->tower, pictures + first, some, TOWER_POOLED, encoder->host, e))
            return e->status;
        write_vectors(encoder, some, dimensions, vectors + (size_t)first * (size_t)dimensions);
    }
    return STATUS_OK;
}
