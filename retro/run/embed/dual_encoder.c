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

static int tower_rows_at_once(const struct model *m) {
    const struct tower_spec *t = &m->spec.tower;
    return PICTURES_AT_ONCE * tower_count(m, TOWER_ROWS, t->image_h, t->image_w);
}

static size_t row_bytes(const struct model *m) {
    return ((size_t)m->stacks[STACK_ENCODER].dims.hidden + (size_t)m->spec.joint) * sizeof(float);
}

enum status dual_encoder_measure(size_t *bytes, const struct model *m, int most, struct error *e) {
    if (tower_measure(bytes, m, tower_rows_at_once(m), e)) return e->status;
    *bytes += (size_t)most * row_bytes(m);
    return STATUS_OK;
}

static enum status open_parts(struct dual_encoder *j, struct error *e) {
    const struct model *m = j->model;
    int d = m->stacks[STACK_ENCODER].dims.hidden;
    if (tower_open(&j->tower, m, tower_rows_at_once(m), e) ||
        backend_alloc(m->backend, &j->memory, (size_t)j->most * row_bytes(m), "joint vectors", e))
        return e->status;
    float *last = j->memory;
    j->last = tensor_make(last, DTYPE_F32, j->most, d);
    j->made = tensor_make(last + (size_t)j->most * (size_t)d, DTYPE_F32, j->most, m->spec.joint);
    j->rows = xmalloc((size_t)j->most * sizeof *j->rows);
    j->host = xmalloc((size_t)j->most * (size_t)m->spec.joint * sizeof *j->host);
    return STATUS_OK;
}

enum status dual_encoder_open(struct dual_encoder **out, const struct model *m, int most, struct error *e) {
    struct dual_encoder *j = xcalloc(1, sizeof *j);
    j->model = m;
    j->most = max_int(most, PICTURES_AT_ONCE);
    if (open_parts(j, e)) {
        dual_encoder_close(j);
        return e->status;
    }
    *out = j;
    return STATUS_OK;
}

void dual_encoder_close(struct dual_encoder *j) {
    if (j == NULL) return;
    tower_close(j->tower);
    backend_release(j->model->backend, j->memory);
    free(j->rows);
    free(j->host);
    free(j);
}

/* The first `dimensions` numbers of each row of j->host, at unit length. */
static void write_vectors(const struct dual_encoder *j, int n, int dimensions, float *vectors) {
    for (int i = 0; i < n; i++) {
        const float *from = j->host + (size_t)i * (size_t)j->model->spec.joint;
        double sum = 0;
        for (int k = 0; k < dimensions; k++) sum += (double)from[k] * (double)from[k];
        double scale = sum > 0 ? 1 / sqrt(sum) : 0;
        for (int k = 0; k < dimensions; k++) vectors[i * dimensions + k] = (float)(scale * (double)from[k]);
    }
}

enum status dual_encoder_texts(struct dual_encoder *j, const struct pooling_rows *rows, int dimensions, float *vectors,
                               struct error *e) {
    struct backend *b = j->model->backend;
    const int32_t *starts = rows->starts;
    int n = rows->n;
    struct tensor last = tensor_rows(j->last, 0, n), made = tensor_rows(j->made, 0, n);
    CHECK(n <= j->most);
    for (int i = 0; i < n; i++) j->rows[i] = starts[i + 1] > starts[i] ? starts[i + 1] - 1 : -1;
    backend_gather_rows(b, &(struct gather_rows_args){.y = last, .x = rows->x, .rows = j->rows});
    backend_linear(b, &(struct linear_args){
                          .y = made, .x = last, .weight = &j->model->joint.weight, .bias = j->model->joint.bias});
    backend_download(b, j->host, made.data, (size_t)n * (size_t)made.cols * sizeof *j->host);
    if (backend_sync(b, e)) return e->status;
    write_vectors(j, n, dimensions, vectors);
    return STATUS_OK;
}

enum status dual_encoder_pictures(struct dual_encoder *j, const struct tower_picture *pictures, int n, int dimensions,
                                  float *vectors, struct error *e) {
    for (int first = 0; first < n; first += PICTURES_AT_ONCE) {
        int some = min_int(PICTURES_AT_ONCE, n - first);
        if (tower_run(j->tower, pictures + first, some, TOWER_POOLED, j->host, e)) return e->status;
        write_vectors(j, some, dimensions, vectors + (size_t)first * (size_t)dimensions);
    }
    return STATUS_OK;
}
