/* retro/weights/weights_gguf.c: the tensors of a GGUF file as those of the folder that it stands
 * for. See weights_private.h. */
#include "retro/weights/gguf_architectures.h"
#include "retro/weights/gguf_blocks.h"
#include "retro/weights/gguf_folder.h"
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

enum status weights_read_gguf(struct weights *weights, const char *path, struct error *e) {
    const struct architecture *architecture;
    if (gguf_open(&weights->gguf, path, e) || architecture_find(weights->gguf, &architecture, e))
        return e->status;
    for (int i = 0; i < gguf_count(weights->gguf); i++)
        if (add_gguf_tensor(weights, architecture, gguf_at(weights->gguf, i), e)) return e->status;
    return weights_sort(weights, path, e);
}
