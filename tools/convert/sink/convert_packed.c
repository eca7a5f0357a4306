/* tools/convert/sink/convert_packed.c: writes a loaded model's weights as they lie in memory (retro/model/packed.h). */
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

static void add_tensor(struct packing *k, const char *name, enum stored_dtype dtype, const void *data, size_t bytes) {
    if (k->n == k->capacity) {
        k->capacity = max_int(64, 2 * k->capacity);
        k->specs = xrealloc(k->specs, (size_t)k->capacity * sizeof *k->specs);
        k->data = xrealloc(k->data, (size_t)k->capacity * sizeof *k->data);
        k->sizes = xrealloc(k->sizes, (size_t)k->capacity * sizeof *k->sizes);
    }
    static const size_t element[] = {
        [STORED_F32] = 4, [STORED_F16] = 2, [STORED_BF16] = 2, [STORED_I8] = 1, [STORED_U8] = 1};
    size_t padded = k->matrices ? packed_padded(bytes) : bytes;
    k->data[k->n] = data;
    k->sizes[k->n] = bytes;
    k->specs[k->n] = (struct tensor_spec){.name = xstrdup(name),
                                          .dtype = dtype,
                                          .n_dims = 1,
                                          .shape = {(int64_t)(padded / element[dtype])},
                                          .bytes = padded};
    k->n++;
}

static enum status add_place(void *context, const struct place *p, struct error *e) {
    static const enum stored_dtype stored[] = {[DTYPE_F32] = STORED_F32,
                                               [DTYPE_F16] = STORED_F16,
                                               [DTYPE_BF16] = STORED_BF16,
                                               [DTYPE_INT8] = STORED_I8,
                                               [DTYPE_INT4] = STORED_U8};
    (void)e;
    struct packing *k = context;
    if (k->matrices != (p->form == PLACE_MATRIX)) return STATUS_OK;
    if (k->matrices) {
        const struct weight *w = p->at;
        add_tensor(k, p->name, stored[w->dtype], w->data, k->conversion->backend->ops->packed_bytes(w));
    } else {
        bool table = p->form == PLACE_TABLE || p->form == PLACE_RELATIVE;
        const void *data = table ? ((struct tensor *)p->at)->data : *(float **)p->at;
        int rows, cols;
        place_kept(k->conversion->model, p, &rows, &cols);
        add_tensor(k, p->name, STORED_F32, data, (size_t)rows * (size_t)cols * sizeof(float));
    }
    return STATUS_OK;
}

static enum status collect(struct packing *k, struct error *e) {
    struct buffer tag = {0};
    k->matrices = true;
    if (model_visit(k->conversion->model, add_place, k, e)) return e->status;
    k->matrices = false;
    if (model_visit(k->conversion->model, add_place, k, e)) return e->status;
    buffer_printf(&tag, PACKED_TAG "%s", k->conversion->backend->ops->packed_layout);
    add_tensor(k, tag.data, STORED_U8, "", 0);
    buffer_free(&tag);
    return STATUS_OK;
}

static enum status packed_write(const struct conversion *p, const char *from, const char *folder, struct error *e) {
    (void)from;
    struct packing k = {.conversion = p};
    struct tensor_file *f;
    struct buffer path = {0};
    buffer_printf(&path, "%s/" PACKED_FILE, folder);
    enum status status = collect(&k, e);
    if (status == STATUS_OK) status = tensor_file_open(&f, path.data, k.specs, k.n, e);
    if (status == STATUS_OK) {
        for (int i = 0; i < k.n && status == STATUS_OK; i++) status = tensor_file_put(f, i, k.data[i], k.sizes[i], e);
        struct error closing;
        enum status closed = tensor_file_close(f, &closing);
        if (status == STATUS_OK && closed) status = error_set(e, closed, "%s", closing.text);
    }
    for (int i = 0; i < k.n; i++) free((void *)(uintptr_t)k.specs[i].name);
    free(k.specs);
    free(k.data);
    free(k.sizes);
    buffer_free(&path);
    return status;
}

const struct written_format format_packed = {.name = "packed",
                                             .described = "the packed layout of the CPU backend",
                                             .doing = "packing",
                                             .loaded = true,
                                             .write = packed_write};
