/* retro/model/packed.c: weights that lie in a file as the backend wants them. See packed.h. */
#include "retro/model/packed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct packed_loader {
    struct model *model;
    const struct weights *weights;
    bool check_only;
    int used;
};

static const char again[] = "convert the model again with this program's retro-convert";

enum status model_files_open(struct weights **out, bool *packed, const char *folder,
                             struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, folder);
    *packed = access(path.data, F_OK) == 0;
    enum status status = weights_open(out, *packed ? path.data : folder, e);
    buffer_free(&path);
    return status;
}

static enum status check_layout(const struct weights *weights, const char *layout,
                                struct error *e) {
    size_t n = strlen(PACKED_TAG);
    for (int i = 0; i < weights_count(weights); i++) {
        const char *name = weights_at(weights, i)->name;
        if (strncmp(name, PACKED_TAG, n) != 0) continue;
        if (strcmp(name + n, layout) == 0) return STATUS_OK;
        return error_set(e, STATUS_UNSUPPORTED,
                         PACKED_FILE " has the layout \"%.60s\", this program \"%s\": %s", name + n,
                         layout, again);
    }
    return error_set(e, STATUS_CORRUPT, PACKED_FILE " does not say which layout it has: %s", again);
}

static enum status check_use(const struct model *model, const struct model_options *options,
                             struct error *e) {
    const struct backend_ops *ops = model->backend->ops;
    if (ops->packed_layout == NULL)
        return error_set(e, STATUS_UNSUPPORTED,
                         PACKED_FILE " is for the CPU; for %s use the model it was made from",
                         ops->name);
    if (model->comm->world->size > 1)
        return error_set(e, STATUS_UNSUPPORTED,
                         PACKED_FILE
                         " cannot be split over %d ranks; use the model it was made from",
                         model->comm->world->size);
    if (options->convert)
        return error_set(
            e, STATUS_UNSUPPORTED,
            PACKED_FILE
            " keeps the types it has: set the dtype to auto, or use the model it was made "
            "from");
    return STATUS_OK;
}

static const struct {
    enum dtype dtype;
    enum stored_dtype stored;
} types[] = {{DTYPE_F32, STORED_F32},  {DTYPE_F16, STORED_F16},  {DTYPE_BF16, STORED_BF16},
             {DTYPE_INT8, STORED_I8},  {DTYPE_INT4, STORED_U8},  {DTYPE_MXFP4, STORED_BOOL},
             {DTYPE_Q4_K, STORED_I16}, {DTYPE_Q5_K, STORED_I32}, {DTYPE_Q6_K, STORED_I64}};

enum stored_dtype packed_stored(enum dtype dtype) {
    for (size_t i = 0; i < ARRAY_COUNT(types); i++)
        if (types[i].dtype == dtype) return types[i].stored;
    CHECK(false); /* the CPU holds no other type */
    return STORED_F32;
}

static bool find_dtype(enum stored_dtype stored, enum dtype *dtype) {
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        if (types[i].stored != stored) continue;
        *dtype = types[i].dtype;
        return true;
    }
    return false;
}

static enum status copy_matrix(struct packed_loader *loader, struct weight *weight,
                               const struct stored_tensor *stored, struct error *e) {
    struct backend *backend = loader->model->backend;
    if (backend_alloc(backend, &weight->data, stored->bytes, "weights", e)) return e->status;
    backend_upload(backend, weight->data, stored->data, stored->bytes);
    return backend_sync(backend, e);
}

static enum status place_matrix(struct packed_loader *loader, const struct place *place,
                                const struct stored_tensor *stored, struct error *e) {
    struct weight *weight = place->at;
    *weight = (struct weight){.n_out = place->share.rows, .n_in = place->share.cols};
    bool whole =
        find_dtype(stored->dtype, &weight->dtype) &&
        (!dtype_quantised(weight->dtype) || weight->n_in % dtype_block(weight->dtype) == 0);
    size_t bytes = whole ? loader->model->backend->ops->packed_bytes(weight) : 0;
    if (bytes == 0 || stored->bytes != packed_padded(bytes) ||
        (uintptr_t)stored->data % PACKED_ALIGNMENT != 0)
        return error_set(
            e, STATUS_CORRUPT,
            PACKED_FILE
            ": %s is %zu bytes of %s, which is no [%d, %d] matrix at a multiple of %d: %s",
            place->name, stored->bytes, stored_dtype_name(stored->dtype), weight->n_out,
            weight->n_in, PACKED_ALIGNMENT, again);
    if (loader->model->fetches_experts && !place_is_expert(place))
        return copy_matrix(loader, weight, stored, e);
    weight->data = (void *)(uintptr_t)stored->data; /* nobody writes to weights */
    return STATUS_OK;
}

static enum status place_floats(struct packed_loader *loader, const struct place *place,
                                const struct stored_tensor *stored, struct error *e) {
    int rows, cols;
    void *device;
    place_kept(loader->model, place, &rows, &cols);
    size_t n = (size_t)rows * (size_t)cols;
    if (stored->dtype != STORED_F32 || stored->elements != n)
        return error_set(e, STATUS_CORRUPT,
                         PACKED_FILE ": %s holds %zu of %s, config.json makes it %zu of F32: %s",
                         place->name, stored->elements, stored_dtype_name(stored->dtype), n, again);
    if (loader->check_only) return STATUS_OK;
    if (backend_alloc(loader->model->backend, &device, stored->bytes, "weights", e))
        return e->status;
    if (place->form == PLACE_TABLE || place->form == PLACE_RELATIVE)
        *(struct tensor *)place->at = tensor_make(device, DTYPE_F32, rows, cols);
    else
        *(float **)place->at = device;
    backend_upload(loader->model->backend, device, stored->data, stored->bytes);
    return backend_sync(loader->model->backend, e);
}

static enum status load_place(void *context, const struct place *place, struct error *e) {
    struct packed_loader *loader = context;
    const struct stored_tensor *stored = weights_find(loader->weights, place->name);
    if (stored == NULL)
        return error_set(e, STATUS_INVALID, PACKED_FILE ": %s is missing: %s", place->name, again);
    loader->used++;
    loader->model->info.weight_bytes += stored->bytes;
    return place->form == PLACE_MATRIX ? place_matrix(loader, place, stored, e)
                                       : place_floats(loader, place, stored, e);
}

enum status model_load_packed(struct model *model, const struct weights *weights,
                              const struct model_options *options, struct error *e) {
    struct packed_loader loader = {
        .model = model, .weights = weights, .check_only = options->check_only};
    if (check_use(model, options, e) ||
        check_layout(weights, model->backend->ops->packed_layout, e) ||
        model_visit(model, load_place, &loader, e))
        return e->status;
    if (model->fetches_experts) weights_read_apart(weights);
    if (loader.used + 1 == weights_count(weights)) return STATUS_OK;
    return error_set(e, STATUS_INVALID, PACKED_FILE ": %d tensors, config.json makes it %d: %s",
                     weights_count(weights), loader.used + 1, again);
}
