/* retro/model/loader_upload.c: staged places onto the device: matrices packed, vectors and tables
 * as f32. See loader.h. */
#include <math.h>
#include <stdlib.h>

#include "retro/model/loader.h"

/* Norms that are stored around zero, and the last norm of a model whose rows are scaled before the
 * output matrix. */
static void adjust_norm(const struct loader *loader, const struct place *place, float *w,
                        size_t n) {
    const struct model *model = loader->model;
    const struct dims *dims = &model->stacks[place->stack].dims;
    const struct norm_weights *last = &model->stacks[STACK_DECODER].final_norm;
    bool scaled = place->at == &last->gamma || place->at == &last->beta;
    size_t row = place->rows->rows[place->row].place;
    bool gated = !place->outer && row == offsetof(struct layer, state_norm);
    bool centered = place->at == &model->projector.norm.gamma ? model->spec.projector.centered
                                                              : dims->zero_centered_gamma;
    if (place->form == PLACE_GAMMA && centered && !gated)
        for (size_t i = 0; i < n; i++) w[i] += 1.0f;
    if (scaled && model->spec.logit_scale != 1)
        for (size_t i = 0; i < n; i++) w[i] *= model->spec.logit_scale;
}

/* The logarithm of a decay's rate, as families store it, or minus the rate, becomes the rate. */
static void adjust_rate(const struct loader *loader, const struct place *place, float *w,
                        size_t n) {
    bool plain = loader->model->stacks[place->stack].dims.state.plain_rate;
    size_t row = place->rows->rows[place->row].place;
    if (place->outer || row != offsetof(struct layer, state_rate)) return;
    for (size_t i = 0; i < n; i++) w[i] = plain ? -w[i] : expf(w[i]);
}

/* n floats on the device; *device is set also on failure, for model_release_weights. */
static enum status upload_floats(struct loader *loader, void **device, const float *host, size_t n,
                                 struct error *e) {
    struct backend *backend = loader->model->backend;
    if (backend_alloc(backend, device, n * sizeof(float), "weights", e)) return e->status;
    backend_upload(backend, *device, host, n * sizeof(float));
    return backend_sync(backend, e);
}

/* Vectors and tables become f32. */
static enum status upload_vector(struct loader *loader, const struct staged_place *staged,
                                 const struct place *place, struct error *e) {
    size_t n = (size_t)staged->rows * (size_t)staged->cols;
    float *host = stage_widen(loader, staged);
    if (host == NULL)
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory to convert %zu numbers", place->name,
                         n);
    adjust_norm(loader, place, host, n);
    adjust_rate(loader, place, host, n);

    void *device = NULL;
    enum status status = upload_floats(loader, &device, host, n, e);
    if (device == NULL) return status;
    if (place->form == PLACE_TABLE)
        *(struct tensor *)place->at = tensor_make(device, DTYPE_F32, staged->rows, staged->cols);
    else
        *(float **)place->at = device;
    return status;
}

/* The bucket of a key that stands `distance` rows after its query (docs/spec/t5-model.md 2.2). */
static int find_bucket(const struct dims *dims, bool both_ways, int distance) {
    int buckets = both_ways ? dims->buckets / 2 : dims->buckets,
        first = both_ways && distance > 0 ? buckets : 0;
    int away = both_ways ? abs(distance) : max_int(-distance, 0), exact = buckets / 2;
    if (away < exact) return first + away;
    float far = logf((float)away / (float)exact) / logf((float)dims->max_distance / (float)exact);
    return first + min_int(buckets - 1, exact + (int)(far * (float)(buckets - exact)));
}

/* [buckets, local H] becomes [local H, distances], a bias by key minus query: from max_distance on
 * all distances share a bucket. A decoder sees what lies before, an encoder both ways. */
static enum status upload_relative(struct loader *loader, const struct staged_place *staged,
                                   const struct place *place, struct error *e) {
    const struct dims *dims = &loader->model->stacks[place->stack].dims;
    bool both_ways = place->stack == STACK_ENCODER;
    int distances = 2 * dims->max_distance + 1;
    size_t n = (size_t)staged->cols * (size_t)distances;
    const float *table = stage_widen(loader, staged);
    float *bias = malloc(n * sizeof *bias);
    if (table == NULL || bias == NULL) {
        free(bias);
        return error_set(e, STATUS_NO_MEMORY, "%s: no memory for %zu numbers", place->name, n);
    }
    for (int i = 0; i < distances; i++) {
        int bucket = find_bucket(dims, both_ways, i - dims->max_distance);
        for (int head = 0; head < staged->cols; head++)
            bias[(size_t)head * (size_t)distances + (size_t)i] =
                table[bucket * staged->cols + head];
    }

    void *device = NULL;
    enum status status = upload_floats(loader, &device, bias, n, e);
    if (device)
        *(struct tensor *)place->at = tensor_make(device, DTYPE_F32, staged->cols, distances);
    free(bias);
    return status;
}

/* A quantised matrix is widened where the options ask for it; the backend refuses the other
 * direction. */
static enum status upload_matrix(struct loader *loader, const struct staged_place *staged,
                                 const struct place *place, struct error *e) {
    const struct matrix_planes *from = &staged->planes;
    struct weight *weight = place->at;
    struct host_matrix host = {.values = from->at[PLANE_VALUES],
                               .scales = (const uint16_t *)(const void *)from->at[PLANE_SCALES],
                               .minimums = (const uint16_t *)(const void *)from->at[PLANE_MINIMUMS],
                               .dtype = from->dtype};
    if (from->dtype == DTYPE_MXFP4) {
        host.exponents = (const uint8_t *)from->at[PLANE_SCALES];
        host.scales = NULL;
    }
    if (dtype_quantised(from->dtype) && !dtype_quantised(weight->dtype)) {
        const float *wide = stage_widen(loader, staged);
        if (wide == NULL)
            return error_set(e, STATUS_NO_MEMORY, "%s: no memory to widen it", place->name);
        host = (struct host_matrix){.values = wide, .dtype = DTYPE_F32};
    }
    return backend_pack(loader->model->backend, weight, &host, e);
}

enum status loader_upload(struct loader *loader, const struct staged_place *staged,
                          const struct place *place, struct error *e) {
    if (place->form == PLACE_MATRIX) return upload_matrix(loader, staged, place, e);
    return place->form == PLACE_RELATIVE ? upload_relative(loader, staged, place, e)
                                         : upload_vector(loader, staged, place, e);
}
