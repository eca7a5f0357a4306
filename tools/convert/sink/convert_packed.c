/* tools/convert/sink/convert_packed.c: writes a loaded model's weights as they lie in memory
 * (retro/model/packed.h). */
#include <stdlib.h>
#include <string.h>

#include "config/base/buffer.h"
#include "retro/model/packed.h"
#include "tools/convert/sink/sink.h"

/* All tensors of the file: where each comes from, and how it is written. */
struct packing {
    const struct conversion *conversion;
    struct tensor_spec *specs;
    const void **data;
    size_t *sizes; /* without the zeros behind */
    int n, capacity;
    bool matrices; /* of this visit; they come first, because vectors end anywhere */
};

static void add_tensor(struct packing *packing, const char *name, enum stored_dtype dtype,
                       const void *data, size_t bytes) {
    if (packing->n == packing->capacity) {
        packing->capacity = max_int(64, 2 * packing->capacity);
        packing->specs =
            xrealloc(packing->specs, (size_t)packing->capacity * sizeof *packing->specs);
        packing->data = xrealloc(packing->data, (size_t)packing->capacity * sizeof *packing->data);
        packing->sizes =
            xrealloc(packing->sizes, (size_t)packing->capacity * sizeof *packing->sizes);
    }
    static const size_t element[] = {[STORED_F32] = 4, [STORED_F16] = 2, [STORED_BF16] = 2,
                                     [STORED_I8] = 1,  [STORED_U8] = 1,  [STORED_MXFP4_PACKED] = 1};
    size_t padded = packing->matrices ? packed_padded(bytes) : bytes;
    packing->data[packing->n] = data;
    packing->sizes[packing->n] = bytes;
    packing->specs[packing->n] = (struct tensor_spec){.name = xstrdup(name),
                                                      .dtype = dtype,
                                                      .n_dims = 1,
                                                      .shape = {(int64_t)(padded / element[dtype])},
                                                      .bytes = padded};
    packing->n++;
}

static enum status add_place(void *context, const struct place *place, struct error *e) {
    static const enum stored_dtype stored[] = {
        [DTYPE_F32] = STORED_F32, [DTYPE_F16] = STORED_F16, [DTYPE_BF16] = STORED_BF16,
        [DTYPE_INT8] = STORED_I8, [DTYPE_INT4] = STORED_U8, [DTYPE_MXFP4] = STORED_MXFP4_PACKED};
    struct packing *packing = context;
    (void)e;
    if (packing->matrices != (place->form == PLACE_MATRIX)) return STATUS_OK;
    if (packing->matrices) {
        const struct weight *weight = place->at;
        add_tensor(packing, place->name, stored[weight->dtype], weight->data,
                   packing->conversion->backend->ops->packed_bytes(weight));
    } else {
        bool table = place->form == PLACE_TABLE || place->form == PLACE_RELATIVE;
        const void *data = table ? ((struct tensor *)place->at)->data : *(float **)place->at;
        int rows, cols;
        place_kept(packing->conversion->model, place, &rows, &cols);
        add_tensor(packing, place->name, STORED_F32, data,
                   (size_t)rows * (size_t)cols * sizeof(float));
    }
    return STATUS_OK;
}

static enum status collect(struct packing *packing, struct error *e) {
    struct buffer tag = {0};
    packing->matrices = true;
    if (model_visit(packing->conversion->model, add_place, packing, e)) return e->status;
    packing->matrices = false;
    if (model_visit(packing->conversion->model, add_place, packing, e)) return e->status;
    buffer_printf(&tag, PACKED_TAG "%s", packing->conversion->backend->ops->packed_layout);
    add_tensor(packing, tag.data, STORED_U8, "", 0);
    buffer_free(&tag);
    return STATUS_OK;
}

static enum status packed_write(const struct conversion *conversion, const char *from,
                                const char *folder, struct error *e) {
    (void)from;
    struct packing packing = {.conversion = conversion};
    struct tensor_file *file;
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, folder);
    enum status status = collect(&packing, e);
    if (status == STATUS_OK)
        status = tensor_file_open(&file, path.data, packing.specs, packing.n, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < packing.n && status == STATUS_OK; i++)
            status = tensor_file_put(file, i, packing.data[i], packing.sizes[i], e);
        struct error closing;
        enum status closed = tensor_file_close(file, &closing);
        if (status == STATUS_OK && closed) status = error_set(e, closed, "%s", closing.text);
    }
    for (int i = 0; i < packing.n; i++) free((void *)(uintptr_t)packing.specs[i].name);
    free(packing.specs);
    free(packing.data);
    free(packing.sizes);
    buffer_free(&path);
    return status;
}

const struct written_format format_packed = {.name = "packed",
                                             .described = "the packed layout of the CPU backend",
                                             .doing = "packing",
                                             .loaded = true,
                                             .write = packed_write};
