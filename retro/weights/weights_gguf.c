/* retro/weights/weights_gguf.c: the tensors of a GGUF file, and of the tower's beside it, as those
 * of the folder that they stand for. See weights_private.h. */
#include <stdlib.h>
#include <string.h>

#include "retro/weights/gguf_architectures.h"
#include "retro/weights/gguf_blocks.h"
#include "retro/weights/gguf_tower.h"
#include "retro/weights/weights_private.h"

static enum stored_dtype stored_dtype_of(const struct block_form *form) {
    if (!block_form_plain(form)) return STORED_BLOCKS;
    return form->dtype == DTYPE_F32   ? STORED_F32
           : form->dtype == DTYPE_F16 ? STORED_F16
                                      : STORED_BF16;
}

/* How all experts of a tensor lie in the file. */
static void describe_gguf(struct stored_tensor *stored, const struct gguf_tensor *from,
                          const struct gguf_view *view) {
    stored->dtype = stored_dtype_of(from->form);
    stored->form = stored->dtype == STORED_BLOCKS ? from->form : NULL;
    stored->n_dims = from->n_dims;
    for (int i = 0; i < from->n_dims; i++) stored->shape[i] = from->shape[i];
    stored->elements = from->elements;
    stored->bytes = from->bytes;
    stored->data = from->data;
    if (view->row) {
        stored->n_dims = 2;
        stored->shape[1] = stored->shape[0];
        stored->shape[0] = 1;
    }
    if (view->vector) {
        stored->n_dims = 1;
        stored->shape[0] = (int64_t)from->elements;
    }
    if (view->scalar && from->elements == 1) stored->n_dims = 0;
    stored->turned = view->turned;
    stored->paired = view->paired;
    stored->apart = view->apart;
    stored->heads = view->heads;
}

static enum status add_gguf_tensor(struct weights *weights, const struct architecture *architecture,
                                   const struct gguf_tensor *from, struct error *e) {
    struct gguf_view view;
    struct stored_tensor whole = {.name = from->name};
    if (gguf_view_tensor(&view, weights->gguf, architecture, from, e)) return e->status;
    if (view.name[0] == '\0') return STATUS_OK;
    describe_gguf(&whole, from, &view);
    if (view.stacked) return weights_add_experts(weights, &whole, view.stacked, view.name, e);
    struct stored_tensor *stored = &weights_add_entry(weights, view.name)->tensor;
    whole.name = stored->name;
    *stored = whole;
    return STATUS_OK;
}

/* The product of a patch of two frames, [d, colours, frames, P, P], from those of each frame. */
static enum status join_frames(struct entry *entry, const struct gguf_tensor *first,
                               const struct gguf_tensor *second, struct error *e) {
    struct stored_tensor *stored = &entry->tensor;
    bool alike = first->n_dims == 4 && second->n_dims == 4 && first->form == second->form &&
                 block_form_plain(first->form) && first->elements > 0;
    for (int i = 0; i < 4 && alike; i++) alike = first->shape[i] == second->shape[i];
    if (!alike)
        return error_set(e, STATUS_CORRUPT,
                         "tensors \"%s\" and \"%s\" are no products of patches of one shape and "
                         "type",
                         first->name, second->name);
    size_t pieces = (size_t)first->shape[0] * (size_t)first->shape[1],
           piece = first->bytes / pieces;
    char *joined = malloc(2 * first->bytes);
    if (joined == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory for the tensor %s", stored->name);
    for (size_t i = 0; i < pieces; i++) {
        memcpy(joined + 2 * i * piece, first->data + i * piece, piece);
        memcpy(joined + (2 * i + 1) * piece, second->data + i * piece, piece);
    }
    memmove(stored->shape + 3, stored->shape + 2, 2 * sizeof *stored->shape);
    stored->shape[2] = 2;
    stored->n_dims = 5;
    stored->elements *= 2;
    stored->bytes *= 2;
    stored->data = entry->copy = joined;
    return STATUS_OK;
}

/* The product of a patch, [d, colours, P, P], as [d, P * P * colours]. */
static enum status order_by_pixel(struct entry *entry, const struct gguf_tensor *from,
                                  struct error *e) {
    struct stored_tensor *stored = &entry->tensor;
    bool plain = from->n_dims == 4 && block_form_plain(from->form) && from->elements > 0;
    if (!plain)
        return error_set(e, STATUS_CORRUPT,
                         "tensor \"%s\" is no product of patches in F32, F16 or BF16", from->name);
    size_t colors = (size_t)from->shape[1], pixels = (size_t)(from->shape[2] * from->shape[3]);
    size_t piece = from->bytes / from->elements, row = colors * pixels * piece;
    char *ordered = malloc(from->bytes);
    if (ordered == NULL)
        return error_set(e, STATUS_NO_MEMORY, "no memory for the tensor %s", stored->name);
    for (size_t at = 0; at < from->bytes; at += row)
        for (size_t i = 0; i < colors * pixels; i++) {
            size_t plane = i % colors * pixels + i / colors;
            memcpy(ordered + at + i * piece, from->data + at + plane * piece, piece);
        }
    stored->n_dims = 2;
    stored->shape[1] = (int64_t)(colors * pixels);
    stored->data = entry->copy = ordered;
    return STATUS_OK;
}

static enum status add_tower_tensor(struct weights *weights, const struct gguf_tensor *from,
                                    struct error *e) {
    struct gguf_view view;
    const struct gguf_tensor *second;
    if (gguf_view_tower(&view, weights->gguf, from, &second, e)) return e->status;
    if (view.name[0] == '\0') return STATUS_OK;
    struct entry *entry = weights_add_entry(weights, view.name);
    const char *name = entry->tensor.name;
    describe_gguf(&entry->tensor, from, &view);
    entry->tensor.name = name;
    if (view.by_pixel) return order_by_pixel(entry, from, e);
    return second ? join_frames(entry, from, second, e) : STATUS_OK;
}

enum status weights_read_gguf(struct weights *weights, const char *path, struct error *e) {
    const struct architecture *architecture;
    if (gguf_open_model(&weights->gguf, path, e) ||
        architecture_find(weights->gguf, &architecture, e))
        return e->status;
    for (int i = 0; i < gguf_count(weights->gguf); i++)
        if (add_gguf_tensor(weights, architecture, gguf_at(weights->gguf, i), e)) return e->status;
    const struct gguf *tower = gguf_joined(weights->gguf);
    for (int i = 0; tower && i < gguf_count(tower); i++)
        if (add_tower_tensor(weights, gguf_at(tower, i), e)) return e->status;
    return weights_sort(weights, path, e);
}
