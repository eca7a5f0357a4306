/* tools/convert/containers/checkpoint_pieces.c: tensors that are made of pieces with places: whether these fit
 * together, and tensors of all layers, which become one for each. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/containers/checkpoint.h"

enum { LAYERS_LIMIT = 1 << 12 };

static enum status fail(const struct checkpoint *c, const char *name, struct error *e, const char *why) {
    return error_set(e, STATUS_CORRUPT, "%s: %s %s", c->folder, name, why);
}

enum status checkpoint_check_pieces(const struct checkpoint *c, const struct checkpoint_tensor *t, struct error *e) {
    size_t whole = 1, sum = 0;
    for (int k = 0; k < t->n_dims; k++)
        if (t->shape[k] < 1 || mul_overflows(whole, (size_t)t->shape[k], &whole) || whole > INT64_MAX / 8)
            return fail(c, t->name, e, "has a shape that cannot be");
    for (int i = 0; i < t->n_pieces; i++) {
        size_t volume = 1;
        for (int k = 0; k < t->n_dims; k++) volume *= (size_t)t->pieces[i].extent[k];
        sum += volume;
        for (int j = 0; j < i; j++) {
            bool apart = false;
            for (int k = 0; k < t->n_dims; k++)
                apart = apart || t->pieces[i].origin[k] >= t->pieces[j].origin[k] + t->pieces[j].extent[k] ||
                        t->pieces[j].origin[k] >= t->pieces[i].origin[k] + t->pieces[i].extent[k];
            if (!apart) return fail(c, t->name, e, "has parts that overlap");
        }
    }
    return sum == whole ? STATUS_OK : fail(c, t->name, e, "has parts that leave gaps");
}

/* Where a part lies in memory, and whose it is. */
struct stored_bytes {
    const uint8_t *start, *end;
    const char *name;
};

static int compare_bytes(const void *a, const void *b) {
    const struct stored_bytes *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int list_bytes(const struct checkpoint *c, struct stored_bytes *list) {
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        for (int k = 0; k < t->n_pieces; k++) {
            size_t bytes = torch_dtype_bytes(t->dtype);
            if (t->pieces[k].data == NULL) continue;
            for (int axis = 0; axis < t->n_dims; axis++) bytes *= (size_t)t->pieces[k].extent[axis];
            list[n] = (struct stored_bytes){t->pieces[k].data, t->pieces[k].data + bytes, t->name};
            n++;
        }
    }
    return n;
}

/* Tied tensors have the same bytes; some of the same are halves of two weights. */
enum status checkpoint_check_shared(const struct checkpoint *c, struct error *e) {
    size_t most = 1;
    for (int i = 0; i < c->n; i++) most += (size_t)c->tensors[i].n_pieces;
    struct stored_bytes *list = xcalloc(most, sizeof *list);
    int n = list_bytes(c, list);
    qsort(list, (size_t)n, sizeof *list, compare_bytes);
    const struct stored_bytes *last = list; /* of those before, that ends last */
    enum status status = STATUS_OK;
    for (int i = 1; i < n && status == STATUS_OK; i++) {
        bool alike = list[i].start == last->start && list[i].end == last->end;
        if (list[i].start < last->end && !alike)
            status = error_set(e, STATUS_CORRUPT, "%s: %s and %s share a part of their bytes, as no two weights do",
                               c->folder, last->name, list[i].name);
        if (list[i].end > last->end) last = &list[i];
    }
    free(list);
    return status;
}

/* Layers that are stacked. */

/* "decoder.layers.mlp" has all layers in one tensor; "decoder.layers.0.mlp" has one. NULL: not stacked. */
static const char *find_stack(const char *name) {
    const char *found = strstr(name, "layers.");
    return found && !isdigit((unsigned char)found[7]) ? found + 7 : NULL;
}

/* Adds layer i of a tensor of all layers. */
static void add_layer(struct checkpoint *c, int index, int64_t layer) {
    const char *tail = find_stack(c->tensors[index].name);
    struct buffer name = {0};
    buffer_printf(&name, "%.*s%lld.%s", (int)(tail - c->tensors[index].name), c->tensors[index].name, (long long)layer,
                  tail);
    struct checkpoint_tensor *t = checkpoint_add(c, name.data);
    const struct checkpoint_tensor *all = &c->tensors[index];
    buffer_free(&name);
    t->dtype = all->dtype;
    t->file = all->file;
    t->n_dims = all->n_dims - 1;
    t->problem = all->problem ? xstrdup(all->problem) : NULL;
    for (int k = 0; k < t->n_dims; k++) t->shape[k] = all->shape[k + 1];
    t->pieces = xcalloc((size_t)all->n_pieces + 1, sizeof *t->pieces);
    for (int i = 0; i < all->n_pieces; i++) {
        const struct checkpoint_piece *from = &all->pieces[i];
        if (layer < from->origin[0] || layer >= from->origin[0] + from->extent[0]) continue;
        struct checkpoint_piece *piece = &t->pieces[t->n_pieces];
        size_t bytes = torch_dtype_bytes(t->dtype);
        for (int k = 0; k < t->n_dims; k++) {
            piece->origin[k] = from->origin[k + 1];
            piece->extent[k] = from->extent[k + 1];
            bytes *= (size_t)piece->extent[k];
        }
        piece->data = from->data + (size_t)(layer - from->origin[0]) * bytes;
        t->n_pieces++;
    }
}

enum status checkpoint_unstack(struct checkpoint *c, struct error *e) {
    int n = c->n;
    for (int i = 0; i < n; i++) {
        const char *name = c->tensors[i].name;
        if (find_stack(name) == NULL) continue;
        int64_t layers = c->tensors[i].n_dims > 0 ? c->tensors[i].shape[0] : 0;
        if (layers < 1 || layers > LAYERS_LIMIT) return fail(c, name, e, "has no axis of layers");
        for (int64_t k = 0; k < layers; k++) add_layer(c, i, k);
    }
    int kept = 0;
    for (int i = 0; i < c->n; i++) {
        struct checkpoint_tensor *t = &c->tensors[i];
        if (find_stack(t->name)) {
            free(t->name);
            free(t->pieces);
            free(t->problem);
            continue;
        }
        c->tensors[kept] = *t;
        kept++;
    }
    c->n = kept;
    return STATUS_OK;
}
