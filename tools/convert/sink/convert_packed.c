/* tools/convert/sink/convert_packed.c: writes a model's weights as the backend lays them out
 * (retro/model/packed.h). */
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/model/packed.h"
#include "tools/convert/sink/sink.h"

/* All tensors of the file, matrices first. */
struct packing {
    const struct conversion *conversion;
    struct tensor_spec *specs;
    int n, capacity;
    bool matrices; /* of this visit; they come first, because vectors end anywhere */
    struct tensor_file *file;
    int next_matrix, next_other; /* of specs, to be written */
};

static void add_tensor(struct packing *packing, const char *name, enum stored_dtype dtype,
                       size_t bytes) {
    static const size_t element[] = {
        [STORED_F32] = 4,  [STORED_F16] = 2, [STORED_BF16] = 2, [STORED_I8] = 1, [STORED_U8] = 1,
        [STORED_BOOL] = 1, [STORED_I16] = 2, [STORED_I32] = 4,  [STORED_I64] = 8};
    packing->specs = xgrow(packing->specs, packing->n, &packing->capacity, sizeof *packing->specs);
    packing->specs[packing->n] = (struct tensor_spec){.name = xstrdup(name),
                                                      .dtype = dtype,
                                                      .n_dims = 1,
                                                      .shape = {(int64_t)(bytes / element[dtype])},
                                                      .bytes = bytes};
    packing->n++;
}

static size_t packed_size(const struct packing *packing, const struct weight *weight) {
    return packing->conversion->backend->ops->packed_bytes(weight);
}

static enum status add_place(void *context, const struct place *place, struct error *e) {
    struct packing *packing = context;
    int rows, cols;
    (void)e;
    if (packing->matrices != (place->form == PLACE_MATRIX)) return STATUS_OK;
    if (packing->matrices) {
        const struct weight *weight = place->at;
        add_tensor(packing, place->name, packed_stored(weight->dtype),
                   packed_padded(packed_size(packing, weight)));
    } else {
        place_kept(packing->conversion->model, place, &rows, &cols);
        add_tensor(packing, place->name, STORED_F32, (size_t)rows * (size_t)cols * sizeof(float));
    }
    return STATUS_OK;
}

static enum status collect(struct packing *packing, struct error *e) {
    struct buffer tag = {0};
    packing->matrices = true;
    if (model_visit(packing->conversion->model, add_place, packing, e)) return e->status;
    packing->next_other = packing->n;
    packing->matrices = false;
    if (model_visit(packing->conversion->model, add_place, packing, e)) return e->status;
    buffer_printf(&tag, PACKED_TAG "%s", packing->conversion->backend->ops->packed_layout);
    add_tensor(packing, tag.data, STORED_U8, 0);
    buffer_free(&tag);
    return STATUS_OK;
}

/* Places come in the order of the visits. */
static enum status write_place(void *context, const struct place *place, struct error *e) {
    struct packing *packing = context;
    bool table = place->form == PLACE_TABLE || place->form == PLACE_RELATIVE;
    if (place->form == PLACE_MATRIX) {
        const struct weight *weight = place->at;
        int at = packing->next_matrix;
        packing->next_matrix++;
        return tensor_file_put(packing->file, at, weight->data, packed_size(packing, weight), e);
    }
    const void *data = table ? ((struct tensor *)place->at)->data : *(float **)place->at;
    int at = packing->next_other;
    packing->next_other++;
    return tensor_file_put(packing->file, at, data, packing->specs[at].bytes, e);
}

/* The model again, one place after another, so that a model larger than the memory can be packed.
 */
static enum status write_places(struct packing *packing, const char *from, struct error *e) {
    const struct model_options options = {.passed = write_place, .context = packing};
    const struct conversion *conversion = packing->conversion;
    struct model *model;
    if (model_open(&model, from, conversion->backend, conversion->comm, &options, e))
        return e->status;
    model_close(model);
    return STATUS_OK;
}

static enum status packed_write(const struct conversion *conversion, const char *from,
                                const char *folder, struct error *e) {
    struct packing packing = {.conversion = conversion};
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, folder);
    enum status status = collect(&packing, e);
    if (status == STATUS_OK)
        status = tensor_file_open(&packing.file, path.data, packing.specs, packing.n, e);
    if (status == STATUS_OK) {
        struct error closing;
        status = write_places(&packing, from, e);
        enum status closed = tensor_file_close(packing.file, &closing);
        if (status == STATUS_OK && closed) status = error_set(e, closed, "%s", closing.text);
    }
    for (int i = 0; i < packing.n; i++) free((void *)(uintptr_t)packing.specs[i].name);
    free(packing.specs);
    buffer_free(&path);
    return status;
}

const struct written_format format_packed = {.name = "packed",
                                             .described = "the packed layout of the CPU backend",
                                             .doing = "packing",
                                             .packs = true,
                                             .write = packed_write};
