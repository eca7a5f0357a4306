/* retro/model/packed.c: weights that lie in a file as the backend wants them. See packed.h. */
#include "retro/model/packed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct packed_loader {
    struct model *model;
    const struct weights *weights;
    int used;
};

static const char again[] = "convert the model again with this program's retro-convert";

enum status model_files_open(struct weights **out, bool *packed, const char *folder, struct error *e) {
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, folder);
    *packed = access(path.data, F_OK) == 0;
    enum status status = weights_open(out, *packed ? path.data : folder, e);
    buffer_free(&path);
    return status;
}

static enum status check_layout(const struct weights *w, const char *layout, struct error *e) {
    size_t n = strlen(PACKED_TAG);
    for (int i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name;
        if (strncmp(name, PACKED_TAG, n) != 0) continue;
        if (strcmp(name + n, layout) == 0) return STATUS_OK;
        return error_set(e, STATUS_UNSUPPORTED, PACKED_FILE " has the layout \"%.60s\", this program \"%s\": %s",
                         name + n, layout, again);
    }
    return error_set(e, STATUS_CORRUPT, PACKED_FILE " does not say which layout it has: %s", again);
}

static enum status check_use(const struct model *m, const struct model_options *o, struct error *e) {
    const struct backend_ops *ops = m->backend->ops;
    if (ops->packed_layout == NULL)
        return error_set(e, STATUS_UNSUPPORTED, PACKED_FILE " is for the CPU; for %s use the model it was made from",
                         ops->name);
    if (m->comm->world->size > 1)
        return error_set(e, STATUS_UNSUPPORTED,
                         PACKED_FILE " cannot be split over %d ranks; use the model it was made from",
                         m->comm->world->size);
    if (o->convert)
        return error_set(e, STATUS_UNSUPPORTED,
                         PACKED_FILE
                         " keeps the types it has: set the dtype to auto, or use the model it was made "
                         "from");
    return STATUS_OK;
}

static enum dtype dtype_of(enum stored_dtype t) {
    switch (t) {
        case STORED_F16: return DTYPE_F16;
        case STORED_BF16: return DTYPE_BF16;
        case STORED_I8: return DTYPE_INT8;
        case STORED_U8: return DTYPE_INT4;
        default: return DTYPE_F32;
    }
}

static enum status place_mapped(struct packed_loader *l, const struct place *p, const struct stored_tensor *t,
                                struct error *e) {
    struct weight *w = p->at;
    *w = (struct weight){.dtype = dtype_of(t->dtype), .n_out = p->share.rows, .n_in = p->share.cols};
    bool blocks = !dtype_quantised(w->dtype) || w->n_in % QUANTISE_BLOCK == 0;
    size_t bytes = blocks ? l->model->backend->ops->packed_bytes(w) : 0;
    if (bytes == 0 || t->bytes != packed_padded(bytes) || (uintptr_t)t->data % PACKED_ALIGNMENT != 0)
        return error_set(e, STATUS_CORRUPT,
                         PACKED_FILE ": %s is %zu bytes of %s, which is no [%d, %d] matrix at a multiple of %d: %s",
                         p->name, t->bytes, stored_dtype_name(t->dtype), w->n_out, w->n_in, PACKED_ALIGNMENT, again);
    w->data = (void *)(uintptr_t)t->data; /* nobody writes to weights */
    return STATUS_OK;
}

static enum status place_floats(struct packed_loader *l, const struct place *p, const struct stored_tensor *t,
                                struct error *e) {
    int rows, cols;
    void *device;
    place_kept(l->model, p, &rows, &cols);
    size_t n = (size_t)rows * (size_t)cols;
    if (t->dtype != STORED_F32 || t->elements != n)
        return error_set(e, STATUS_CORRUPT, PACKED_FILE ": %s holds %zu of %s, config.json makes it %zu of F32: %s",
                         p->name, t->elements, stored_dtype_name(t->dtype), n, again);
    if (backend_alloc(l->model->backend, &device, t->bytes, "weights", e)) return e->status;
    if (p->form == PLACE_TABLE || p->form == PLACE_RELATIVE)
        *(struct tensor *)p->at = tensor_make(device, DTYPE_F32, rows, cols);
    else
        *(float **)p->at = device;
    backend_upload(l->model->backend, device, t->data, t->bytes);
    return backend_sync(l->model->backend, e);
}

static enum status load_place(void *context, const struct place *p, struct error *e) {
    struct packed_loader *l = context;
    const struct stored_tensor *t = weights_find(l->weights, p->name);
    if (t == NULL) return error_set(e, STATUS_INVALID, PACKED_FILE ": %s is missing: %s", p->name, again);
    l->used++;
    l->model->info.weight_bytes += t->bytes;
    return p->form == PLACE_MATRIX ? place_mapped(l, p, t, e) : place_floats(l, p, t, e);
}

enum status model_load_packed(struct model *m, const struct weights *w, const struct model_options *o,
                              struct error *e) {
    struct packed_loader l = {.model = m, .weights = w};
    if (check_use(m, o, e) || check_layout(w, m->backend->ops->packed_layout, e) || model_visit(m, load_place, &l, e))
        return e->status;
    if (l.used + 1 == weights_count(w)) return STATUS_OK;
    return error_set(e, STATUS_INVALID, PACKED_FILE ": %d tensors, config.json makes it %d: %s", weights_count(w),
                     l.used + 1, again);
}
