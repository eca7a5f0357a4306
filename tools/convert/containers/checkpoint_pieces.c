/* tools/convert/containers/checkpoint_pieces.c: tensors that are made of pieces with places:
 * whether these fit together, and tensors of all layers, which become one for each. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/containers/checkpoint.h"

enum { LAYERS_LIMIT = 1 << 12 };

static enum status fail(const struct checkpoint *checkpoint, const char *name, struct error *e,
                        const char *why) {
    return error_set(e, STATUS_CORRUPT, "%s: %s %s", checkpoint->folder, name, why);
}

enum status checkpoint_check_pieces(const struct checkpoint *checkpoint,
                                    const struct checkpoint_tensor *tensor, struct error *e) {
    size_t whole = 1, sum = 0;
    for (int k = 0; k < tensor->n_dims; k++)
        if (tensor->shape[k] < 1 || mul_overflows(whole, (size_t)tensor->shape[k], &whole) ||
            whole > INT64_MAX / 8)
            return fail(checkpoint, tensor->name, e, "has a shape that cannot be");
    for (int i = 0; i < tensor->n_pieces; i++) {
        size_t volume = 1;
        for (int k = 0; k < tensor->n_dims; k++) volume *= (size_t)tensor->pieces[i].extent[k];
        sum += volume;
        for (int j = 0; j < i; j++) {
            bool apart = false;
            for (int k = 0; k < tensor->n_dims; k++)
                apart = apart ||
                        tensor->pieces[i].origin[k] >=
                            tensor->pieces[j].origin[k] + tensor->pieces[j].extent[k] ||
                        tensor->pieces[j].origin[k] >=
                            tensor->pieces[i].origin[k] + tensor->pieces[i].extent[k];
            if (!apart) return fail(checkpoint, tensor->name, e, "has parts that overlap");
        }
    }
    return sum == whole ? STATUS_OK
                        : fail(checkpoint, tensor->name, e, "has parts that leave gaps");
}

/* Where a part lies in memory, and whose it is. */
struct stored_bytes {
    const uint8_t *start, *end;
    const char *name;
};

static int compare_bytes(const void *a, const void *b) {
    const struct stored_bytes *bytes = a, *stored_bytes = b;
    if (bytes->start != stored_bytes->start) return bytes->start < stored_bytes->start ? -1 : 1;
    return (bytes->end > stored_bytes->end) - (bytes->end < stored_bytes->end);
}

static int list_bytes(const struct checkpoint *checkpoint, struct stored_bytes *list) {
    int n = 0;
    for (int i = 0; i < checkpoint->n; i++) {
        const struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        for (int k = 0; k < tensor->n_pieces; k++) {
            size_t bytes = torch_dtype_bytes(tensor->dtype);
            if (tensor->pieces[k].data == NULL) continue;
            for (int axis = 0; axis < tensor->n_dims; axis++)
                bytes *= (size_t)tensor->pieces[k].extent[axis];
            list[n] = (struct stored_bytes){tensor->pieces[k].data, tensor->pieces[k].data + bytes,
                                            tensor->name};
            n++;
        }
    }
    return n;
}

/* Tied tensors have the same bytes; some of the same are halves of two weights. */
enum status checkpoint_check_shared(const struct checkpoint *checkpoint, struct error *e) {
    size_t most = 1;
    for (int i = 0; i < checkpoint->n; i++) most += (size_t)checkpoint->tensors[i].n_pieces;
    struct stored_bytes *list = xcalloc(most, sizeof *list);
    int n = list_bytes(checkpoint, list);
    qsort(list, (size_t)n, sizeof *list, compare_bytes);
    const struct stored_bytes *last = list; /* of those before, that ends last */
    enum status status = STATUS_OK;
    for (int i = 1; i < n && status == STATUS_OK; i++) {
        bool alike = list[i].start == last->start && list[i].end == last->end;
        if (list[i].start < last->end && !alike)
            status = error_set(e, STATUS_CORRUPT,
                               "%s: %s and %s share a part of their bytes, as no two weights do",
                               checkpoint->folder, last->name, list[i].name);
        if (list[i].end > last->end) last = &list[i];
    }
    free(list);
    return status;
}

/* Layers that are stacked. */

/* "decoder.layers.mlp" has all layers in one tensor; "decoder.layers.0.mlp" has one. NULL: not
 * stacked. */
static const char *find_stack(const char *name) {
    const char *found = strstr(name, "layers.");
    return found && !isdigit((unsigned char)found[7]) ? found + 7 : NULL;
}

/* Adds layer i of a tensor of all layers. */
static void add_layer(struct checkpoint *checkpoint, int index, int64_t layer) {
    const char *tail = find_stack(checkpoint->tensors[index].name);
    struct buffer name = {0};
    buffer_printf(&name, "%.*s%lld.%s", (int)(tail - checkpoint->tensors[index].name),
                  checkpoint->tensors[index].name, (long long)layer, tail);
    struct checkpoint_tensor *tensor = checkpoint_add(checkpoint, name.data);
    const struct checkpoint_tensor *all = &checkpoint->tensors[index];
    buffer_free(&name);
    tensor->dtype = all->dtype;
    tensor->file = all->file;
    tensor->n_dims = all->n_dims - 1;
    tensor->problem = all->problem ? xstrdup(all->problem) : NULL;
    for (int k = 0; k < tensor->n_dims; k++) tensor->shape[k] = all->shape[k + 1];
    tensor->pieces = xcalloc((size_t)all->n_pieces + 1, sizeof *tensor->pieces);
    for (int i = 0; i < all->n_pieces; i++) {
        const struct checkpoint_piece *from = &all->pieces[i];
        if (layer < from->origin[0] || layer >= from->origin[0] + from->extent[0]) continue;
        struct checkpoint_piece *piece = &tensor->pieces[tensor->n_pieces];
        size_t bytes = torch_dtype_bytes(tensor->dtype);
        for (int k = 0; k < tensor->n_dims; k++) {
            piece->origin[k] = from->origin[k + 1];
            piece->extent[k] = from->extent[k + 1];
            bytes *= (size_t)piece->extent[k];
        }
        piece->data = from->data + (size_t)(layer - from->origin[0]) * bytes;
        tensor->n_pieces++;
    }
}

enum status checkpoint_unstack(struct checkpoint *checkpoint, struct error *e) {
    int n = checkpoint->n;
    for (int i = 0; i < n; i++) {
        const char *name = checkpoint->tensors[i].name;
        if (find_stack(name) == NULL) continue;
        int64_t layers = checkpoint->tensors[i].n_dims > 0 ? checkpoint->tensors[i].shape[0] : 0;
        if (layers < 1 || layers > LAYERS_LIMIT)
            return fail(checkpoint, name, e, "has no axis of layers");
        for (int64_t k = 0; k < layers; k++) add_layer(checkpoint, i, k);
    }
    int kept = 0;
    for (int i = 0; i < checkpoint->n; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        if (find_stack(tensor->name)) {
            free(tensor->name);
            free(tensor->pieces);
            free(tensor->problem);
            continue;
        }
        checkpoint->tensors[kept] = *tensor;
        kept++;
    }
    checkpoint->n = kept;
    return STATUS_OK;
}
