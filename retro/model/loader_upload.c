/* retro/model/loader_upload.c: staged places onto the device: matrices packed, vectors and tables as f32. See
 * loader.h. */
#include <math.h>
#include <stdlib.h>

#include "retro/model/loader.h"

/* Norms that are stored around zero, and the last norm of a model whose rows are scaled before the output matrix. */
static void adjust_norm(const struct loader *l, const struct place *p, float *w, size_t n) {
    const struct model *m = l->model;
    const struct dims *d = &m->stacks[p->stack].dims;
    const struct norm_weights *last = &m->stacks[STACK_DECODER].final_norm;
    bool scaled = p->at == &last->gamma || p->at == &last->beta;
    if (p->form == PLACE_GAMMA && d->zero_centered_gamma)
        for (size_t i = 0; i < n; i++) w[i] += 1.0f;
    if (scaled && m->spec.logit_scale != 1)
        for (size_t i = 0; i < n; i++) w[i] *= m->spec.logit_scale;
}

/* n floats on the device; *device is set also on failure, for model_release_weights. */
static enum status upload_floats(struct loader *l, void **device, const float *host, size_t n, struct error *e) {
    struct backend *b = l->model->backend;
    if (backend_alloc(b, device, n * sizeof(float), "weights", e)) return e->status;
    backend_upload(b, *device, host, n * sizeof(float));
    return backend_sync(b, e);
}

/* Vectors and tables become f32. */
static enum status upload_vector(struct loader *l, const struct staged_place *s, const struct place *p,
                                 struct error *e) {
    size_t n = (size_t)s->rows * (size_t)s->cols;
    float *host = stage_widen(l, s);
    if (host == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to convert %zu numbers", p->name, n);
    adjust_norm(l, p, host, n);

    void *device = NULL;
    enum status status = upload_floats(l, &device, host, n, e);
    if (device == NULL) return status;
    if (p->form == PLACE_TABLE)
        *(struct tensor *)p->at = tensor_make(device, DTYPE_F32, s->rows, s->cols);
    else
        *(float **)p->at = device;
    return status;
}

/* The bucket of a key that stands `distance` rows after its query (docs/spec/t5-model.md 2.2). */
static int find_bucket(const struct dims *d, bool both_ways, int distance) {
    int buckets = both_ways ? d->buckets / 2 : d->buckets, first = both_ways && distance > 0 ? buckets : 0;
    int away = both_ways ? abs(distance) : max_int(-distance, 0), exact = buckets / 2;
    if (away < exact) return first + away;
    float far = logf((float)away / (float)exact) / logf((float)d->max_distance / (float)exact);
    return first + min_int(buckets - 1, exact + (int)(far * (float)(buckets - exact)));
}

/* [buckets, local H] becomes [local H, distances], a bias by key minus query: from max_distance on all distances share
 * a bucket. A decoder sees what lies before, an encoder both ways. */
static enum status upload_relative(struct loader *l, const struct staged_place *s, const struct place *p,
                                   struct error *e) {
    const struct dims *d = &l->model->stacks[p->stack].dims;
    bool both_ways = p->stack == STACK_ENCODER;
    int distances = 2 * d->max_distance + 1;
    size_t n = (size_t)s->cols * (size_t)distances;
    const float *table = stage_widen(l, s);
    float *bias = malloc(n * sizeof *bias);
    if (table == NULL || bias == NULL) {
        free(bias);
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for %zu numbers", p->name, n);
    }
    for (int i = 0; i < distances; i++) {
        int bucket = find_bucket(d, both_ways, i - d->max_distance);
        for (int head = 0; head < s->cols; head++)
            bias[(size_t)head * (size_t)distances + (size_t)i] = table[bucket * s->cols + head];
    }

    void *device = NULL;
    enum status status = upload_floats(l, &device, bias, n, e);
    if (device) *(struct tensor *)p->at = tensor_make(device, DTYPE_F32, s->cols, distances);
    free(bias);
    return status;
}

/* A quantised matrix is widened where the options ask for it; the backend refuses the other direction. */
static enum status upload_matrix(struct loader *l, const struct staged_place *s, const struct place *p,
                                 struct error *e) {
    const struct matrix_planes *from = &s->planes;
    struct weight *w = p->at;
    struct host_matrix host = {.values = from->at[PLANE_VALUES],
                               .scales = (const uint16_t *)(const void *)from->at[PLANE_SCALES],
                               .minimums = (const uint16_t *)(const void *)from->at[PLANE_MINIMUMS],
                               .dtype = from->dtype};
    if (dtype_quantised(from->dtype) && !dtype_quantised(w->dtype)) {
        const float *wide = stage_widen(l, s);
        if (wide == NULL) return error_set(e, STATUS_NO_MEMORY, "%s: no memory to widen it", p->name);
        host = (struct host_matrix){.values = wide, .dtype = DTYPE_F32};
    }
    return backend_pack(l->model->backend, w, &host, e);
}

enum status loader_upload(struct loader *l, const struct staged_place *s, const struct place *p, struct error *e) {
    if (p->form == PLACE_MATRIX) return upload_matrix(l, s, p, e);
    return p->form == PLACE_RELATIVE ? upload_relative(l, s, p, e) : upload_vector(l, s, p, e);
}
